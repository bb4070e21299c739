"""Who refreshes what: one claim a table, kept by heartbeat, its token larger than all before.

A claim counts until another one replaces it. Expiry allows others to replace it, and does nothing
by itself: who was paused and finds its token still there has lost nothing. Each check happens under
the lock of the table's row, as does each replacement, so that they cannot overtake each other.
Where there may be one driver only, whoever is admitted ends the expired claims of all others there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta

from sqlalchemy import ColumnElement, Connection, and_, delete, select, update

from dynamic_tables.errors import Held
from dynamic_tables.processes import name_of
from dynamic_tables.reasons import Reason
from dynamic_tables.store import schema, tables, workers
from dynamic_tables.store.engine import database_now, next_number, now, upsert
from dynamic_tables.store.records import Claim, Claimant, claim_of

_claims = schema.refresh_claims


def take(
    connection: Connection,
    table_id: str,
    refresh_id: str,
    claimant: Claimant,
    is_owner_dead: Callable[[str, int], bool] | None = None,
) -> Claim:
    name = tables.lock(connection, table_id)["name"]
    instant = now(connection)  # after the lock: waiting for it took time
    rival = _current(connection, table_id)
    if rival is not None and rival.expires_at > instant:
        dead = _is_dead(rival, claimant, is_owner_dead)
        if not dead:
            raise _held(rival, name)
    alone = _is_alone(connection, claimant, table_id)
    if alone:
        workers.sweep(connection)
    token = next_number(connection)
    if alone:
        workers.check_one_driver(connection, claimant, name)
    claim = Claim(
        table_id=table_id,
        token=token,
        owner=claimant.owner,
        host=claimant.host,
        pid=claimant.pid,
        refresh_id=refresh_id,
        claimed_at=instant,
        heartbeat_at=instant,
        expires_at=instant + timedelta(seconds=claimant.expires_s),
    )
    upsert(connection, _claims, asdict(claim))
    return claim


def _is_alone(connection: Connection, claimant: Claimant, table_id: str) -> bool:
    """Whether the table lies where there may be one driver only."""
    if not claimant.one_driver_at:
        return False
    return claimant.is_alone_at(tables.location(connection, table_id))


def _is_dead(
    rival: Claim, claimant: Claimant, is_owner_dead: Callable[[str, int], bool] | None
) -> bool:
    """Of processes on other hosts we know nothing."""
    if is_owner_dead is None or rival.host != claimant.host:
        return False
    return is_owner_dead(rival.host, rival.pid)


def _current(connection: Connection, table_id: str) -> Claim | None:
    found = select(_claims).where(_claims.c.table_id == table_id)
    row = connection.execute(found).mappings().one_or_none()
    return None if row is None else claim_of(row)


def _held(rival: Claim, name: str) -> Held:
    return Held(
        f"process {rival.pid} on {name_of(rival.host)} has been refreshing it since"
        f" {rival.claimed_at:%Y-%m-%d %H:%M:%S} UTC",
        reason=Reason.HELD,
        about=name,
        hint="wait until it ends; if that process is dead, its claim is free at"
        f" {rival.expires_at:%Y-%m-%d %H:%M:%S} UTC",
    )


def _same(claim: Claim) -> ColumnElement[bool]:
    """This very claim. A database that failed over or was restored may have lost the newest tokens,
    and gives them to others: the owner tells them apart."""
    return and_(
        _claims.c.table_id == claim.table_id,
        _claims.c.token == claim.token,
        _claims.c.owner == claim.owner,
    )


def check(connection: Connection, claim: Claim, name: str) -> None:
    """Go on only if the claim has not been replaced; the table's row must be locked already."""
    if not stands(connection, claim):
        raise Held(
            "another process took the table over meanwhile; this one records nothing more",
            reason=Reason.TAKEN_OVER,
            about=name,
            hint="`dynamic-tables show` and `history` tell how the table is now; do this again, if"
            " there is still something to do",
        )


def stands(connection: Connection, claim: Claim) -> bool:
    """Whether the claim has not been replaced."""
    found = connection.execute(select(_claims.c.token).where(_same(claim)))
    return found.one_or_none() is not None


def beat(connection: Connection, claim: Claim) -> bool:
    instant = now(connection)
    kept = connection.execute(
        update(_claims)
        .where(_same(claim))
        .values(heartbeat_at=instant, expires_at=instant + (claim.expires_at - claim.heartbeat_at))
    )
    return kept.rowcount == 1


def release(connection: Connection, claim: Claim) -> bool:
    return connection.execute(delete(_claims).where(_same(claim))).rowcount == 1


def everything(connection: Connection) -> list[Claim]:
    rows = connection.execute(select(_claims).order_by(_claims.c.token)).mappings()
    return [claim_of(row) for row in rows]


def holder(connection: Connection, table_id: str) -> Claim | None:
    found = select(_claims).where(_claims.c.table_id == table_id)
    live = found.where(_claims.c.expires_at > database_now())
    row = connection.execute(live).mappings().one_or_none()
    return None if row is None else claim_of(row)
