"""What is to be refreshed: one request a table, taken in the order of the queue.

A request waits until none of the tables that its table reads is in the queue, and until nobody
refreshes its table; what was handed back, for a while besides. Which claim works on it is written
down; if that claim is gone (it expired, its owner died), the request is free again. Whoever lost
the claim cannot end the request.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, Select, Update, delete, or_, select, update

from dynamic_tables.model import Intent, Status
from dynamic_tables.store import claims, schema, tables
from dynamic_tables.store.engine import (
    database_now,
    insert_or_update,
    next_number,
    now,
    wake_others,
)
from dynamic_tables.store.records import (
    Claim,
    Claimant,
    PendingRefresh,
    WantedRefresh,
    intent_of,
    pending_of,
    request_row,
)

_pending = schema.pending_refreshes
_claims = schema.refresh_claims
_tables = schema.dynamic_tables
_dependencies = schema.dependencies
_intents = schema.refresh_intents


def _free() -> Select[Any]:
    held = (
        select(_claims.c.table_id)
        .where(_claims.c.table_id == _pending.c.table_id, _claims.c.expires_at > database_now())
        .exists()
    )
    above = _pending.alias("above")
    waits = (
        select(above.c.table_id)
        .join(_dependencies, _dependencies.c.dynamic_id == above.c.table_id)
        .where(_dependencies.c.table_id == _pending.c.table_id)
        .exists()
    )
    # The table's row is tried first: a request that was locked beside a table that others hold
    # would stay locked, while we wait for the counter that they hold too.
    both = _tables.join(_pending, _tables.c.table_id == _pending.c.table_id)
    free = select(_pending).select_from(both)
    ripe = or_(_pending.c.not_before.is_(None), _pending.c.not_before <= database_now())
    first = free.where(~held, ~waits, ripe).order_by(_pending.c.request_no).limit(1)
    return first.with_for_update(skip_locked=True, key_share=True)


_FREE = _free()  # built once: building takes longer than running


def request(connection: Connection, wanted: Sequence[WantedRefresh]) -> None:
    """Queue up; a request that waits already stays as it is, one under way is followed by this.

    A table that was dropped meanwhile is left out.
    """
    there = tables.lock_all(connection, [item.table_id for item in wanted])
    instant = now(connection)
    for item in wanted:
        if item.table_id not in there:
            continue
        row = {
            **request_row(item),
            "request_no": next_number(connection),
            "requested_at": instant,
            "token": None,
        }
        kept = {key: value for key, value in row.items() if key not in ("table_id", "token")}
        insert_or_update(connection, _pending, row, kept, where=_pending.c.token.is_not(None))
    wake_others(connection)


def claim_next(connection: Connection, claimant: Claimant) -> tuple[Claim, PendingRefresh] | None:
    """The first request that is free, with a claim on its table.

    Both rows are locked or passed over by one statement. A claim that somebody took on the table
    between snapshot and lock is seen by `take`, which raises Held.
    """
    row = connection.execute(_FREE).mappings().one_or_none()
    if row is None:
        return None
    found = pending_of(row)
    claim = claims.take(connection, found.table_id, found.refresh_id, claimant)
    connection.execute(_of(found.table_id).values(token=claim.token))
    return claim, found


def _of(table_id: str) -> Update:
    return update(_pending).where(_pending.c.table_id == table_id)


def finish(connection: Connection, claim: Claim, done: PendingRefresh) -> bool:
    """End the request and give the claim back; what was asked for meanwhile waits then.

    False, and nothing is changed, if the claim was lost.
    """
    if not _is_ours(connection, claim):
        return False
    mine = (_pending.c.table_id == claim.table_id, _pending.c.token == claim.token)
    same = _pending.c.request_no == done.request_no
    connection.execute(delete(_pending).where(*mine, same))
    connection.execute(update(_pending).where(*mine).values(token=None))
    claims.release(connection, claim)
    wake_others(connection)
    return True


def hand_back(connection: Connection, claim: Claim, after_s: float) -> bool:
    """Let others do it: the request waits again, for so long. False if the claim was lost."""
    if not _is_ours(connection, claim):
        return False
    later: dict[str, Any] = {}
    if after_s > 0:
        later["not_before"] = now(connection) + timedelta(seconds=after_s)
        later["returned"] = _pending.c.returned + 1
    mine = _of(claim.table_id).where(_pending.c.token == claim.token)
    connection.execute(mine.values(token=None, **later))
    claims.release(connection, claim)
    wake_others(connection)
    return True


def _is_ours(connection: Connection, claim: Claim) -> bool:
    tables.lock_if_there(connection, claim.table_id)
    return claims.stands(connection, claim)


def withdraw(connection: Connection, claim: Claim, table_ids: Sequence[str]) -> set[str]:
    """Take back what waits for a refresh that cannot go on; the ids of what was taken back.

    Nothing if the claim was lost: the successor's refresh may go on.
    """
    if not _is_ours(connection, claim):
        return set()
    waiting = (_pending.c.refresh_id == claim.refresh_id, _pending.c.token.is_(None))
    gone = delete(_pending).where(*waiting, _pending.c.table_id.in_(table_ids))
    return set(connection.scalars(gone.returning(_pending.c.table_id)))


def left_open(connection: Connection, status: Status) -> list[Intent]:
    """Refreshes of tables with this status that nobody is at, and that no request brings back."""
    held = select(_claims.c.table_id).where(_claims.c.expires_at > database_now())
    theirs = select(_tables.c.table_id).where(_tables.c.status == status.value)
    found = select(_intents).where(
        _intents.c.table_id.in_(theirs),
        _intents.c.table_id.not_in(held),
        _intents.c.table_id.not_in(select(_pending.c.table_id)),
    )
    return [intent_of(row) for row in connection.execute(found).mappings()]


def everything(connection: Connection) -> list[PendingRefresh]:
    rows = connection.execute(select(_pending).order_by(_pending.c.request_no)).mappings()
    return [pending_of(row) for row in rows]
