"""Slices of one refresh that several workers share.

The slices of a table belong to its open intent and go with it. Each is claimed like a table: by a
growing token, kept by heartbeat, free again when it expires. A worker that is slow may get company:
a second attempt at the same slice, and the first result wins (a unique index sees to that).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, delete, insert, or_, select, update

from dynamic_tables.errors import InternalError
from dynamic_tables.reasons import Reason
from dynamic_tables.store import claims, schema, tables
from dynamic_tables.store.engine import database_now, next_number, now, wake_others
from dynamic_tables.store.records import (
    Claim,
    Claimant,
    SliceResult,
    Subtask,
    WantedSubtask,
    subtask_of,
)

MAX_RETRIES = 3  # of one slice; then the refresh fails with its error
RESTS = 6  # of the time until a claim expires: so long who failed leaves a slice to others
SLOWER = 2.0  # times the slowest slice that is through: such a worker gets company
VANISHED = "its workers vanished"  # as often as it may be tried

_subtasks = schema.refresh_subtasks
_intents = schema.refresh_intents
_claims = schema.refresh_claims
_first = _subtasks.c.attempt == 0
_expired = and_(_subtasks.c.status == "claimed", _subtasks.c.expires_at <= database_now())
_may_retry = _subtasks.c.retries < MAX_RETRIES
_used_up = and_(_subtasks.c.status == "pending", _subtasks.c.retries > MAX_RETRIES)


def create(
    connection: Connection,
    claim: Claim,
    sequence: int,
    slicing: Mapping[str, Any],
    wanted: Sequence[WantedSubtask],
) -> None:
    """Let the open intent be shared; all slices or none."""
    name = tables.lock(connection, claim.table_id)["name"]
    claims.check(connection, claim, name)
    mine = and_(_intents.c.table_id == claim.table_id, _intents.c.sequence == sequence)
    shared = connection.execute(update(_intents).where(mine).values(slicing=dict(slicing)))
    if shared.rowcount != 1:
        raise InternalError(
            f"refresh {sequence} is not open, so it cannot be shared",
            reason=Reason.INTERNAL,
            about=name,
        )
    row = {
        "table_id": claim.table_id,
        "attempt": 0,
        "sequence": sequence,
        "refresh_id": claim.refresh_id,
        "dynamic_table": name,
        "status": "pending",
        "created_at": now(connection),
    }
    for item in wanted:
        connection.execute(
            insert(_subtasks).values(
                **row,
                slice_no=item.slice_no,
                subtask_type=item.subtask_type,
                subtask_data=dict(item.subtask_data),
            )
        )
    _note(connection, claim, total=len(wanted), completed=0)
    wake_others(connection)


def _note(connection: Connection, claim: Claim, *, total: int, completed: int) -> None:
    """How far the slices are, where everybody looks: at the claim."""
    connection.execute(
        update(_claims)
        .where(_claims.c.table_id == claim.table_id, _claims.c.token == claim.token)
        .values(mode="coordinator", subtasks_total=total, subtasks_completed=completed)
    )


def look(connection: Connection, claim: Claim, sequence: int) -> list[Subtask]:
    """The slices as the coordinator finds them; those that were tried too often are failed."""
    name = tables.lock(connection, claim.table_id)["name"]
    claims.check(connection, claim, name)
    ours = and_(_subtasks.c.table_id == claim.table_id, _subtasks.c.sequence == sequence)
    vanished = _end_attempts(connection, ours)
    found = [
        replace(item, lost=item.slice_no in vanished)
        for item in everything(connection, claim.table_id)
        if item.sequence == sequence
    ]
    slices = {item.slice_no for item in found}
    completed = {item.slice_no for item in found if item.status == "completed"}
    _note(connection, claim, total=len(slices), completed=len(completed))
    return found


def _end_attempts(connection: Connection, ours: ColumnElement[bool]) -> set[int]:
    """The slices whose workers vanished once too often.

    A slice has failed when its last attempt is over, and so is that of whoever helped: a helper
    that is at it may succeed. Who goes to help locks the first attempt before.
    """
    over = or_(_used_up, and_(_expired, or_(~_first, ~_may_retry)))
    found = select(_subtasks).where(ours, over)
    found = found.order_by(_subtasks.c.slice_no, _subtasks.c.attempt)
    rows = connection.execute(found.with_for_update(key_share=True)).mappings().all()
    for row in (row for row in rows if row["attempt"]):
        connection.execute(delete(_subtasks).where(_same_row(row)))
    helped = set(connection.scalars(select(_subtasks.c.slice_no).where(ours, ~_first)))
    ended = [row for row in rows if not row["attempt"] and row["slice_no"] not in helped]
    vanished = {row["slice_no"] for row in ended if row["status"] == "claimed"}
    for row in ended:
        lost = {"reason": Reason.SUBTASKS_LOST.value, "error": VANISHED}
        told = lost if row["slice_no"] in vanished else {}  # else its last error stands
        connection.execute(update(_subtasks).where(_same_row(row)).values(status="failed", **told))
    return vanished


def take(connection: Connection, claimant: Claimant, table_id: str | None = None) -> Subtask | None:
    """The first slice that is free, of one table or of any; else one whose worker is slow."""
    row = connection.execute(_free(claimant, now(connection), table_id)).mappings().one_or_none()
    if row is None:
        return _beside(connection, claimant, table_id)
    lost = row["status"] == "claimed"
    values = {**_held(connection, claimant), "retries": row["retries"] + lost}
    connection.execute(update(_subtasks).where(_same_row(row)).values(values))
    return subtask_of({**row, **values, "lost": lost})


def _free(claimant: Claimant, instant: datetime, table_id: str | None) -> Select[Any]:
    """One statement finds and locks it; what others lock just now is passed over.

    Who failed with a slice leaves it to others for a while: it may be the only one who cannot.
    """
    rested = instant - timedelta(seconds=claimant.expires_s / RESTS)
    not_mine = or_(
        _subtasks.c.claimed_by.is_(None),
        _subtasks.c.claimed_by != claimant.owner,
        _subtasks.c.heartbeat_at <= rested,
    )
    again = and_(_expired, _may_retry)
    waits = and_(_subtasks.c.status == "pending", ~_used_up, not_mine)
    free = select(_subtasks).where(_first, or_(waits, again))
    if table_id is not None:
        free = free.where(_subtasks.c.table_id == table_id)
    order = (_subtasks.c.created_at, _subtasks.c.table_id, _subtasks.c.slice_no)
    return free.order_by(*order).limit(1).with_for_update(skip_locked=True, key_share=True)


def _held(connection: Connection, claimant: Claimant) -> dict[str, Any]:
    instant = now(connection)
    return {
        "status": "claimed",
        "token": next_number(connection),
        "claimed_by": claimant.owner,
        "host": claimant.host,
        "pid": claimant.pid,
        "claimed_at": instant,
        "heartbeat_at": instant,
        "expires_at": instant + timedelta(seconds=claimant.expires_s),
    }


def _beside(connection: Connection, claimant: Claimant, table_id: str | None) -> Subtask | None:
    """A second attempt at the slice of a worker that takes much longer than the others did."""
    present, instant = everything(connection, table_id), now(connection)
    helped = {(item.table_id, item.slice_no) for item in present if item.attempt}
    for item in present:
        alone = item.status == "claimed" and (item.table_id, item.slice_no) not in helped
        if not alone or item.claimed_by == claimant.owner:
            continue
        if _is_slow(item, present, instant, at_least_s=claimant.expires_s / 2):
            locked = select(_subtasks).where(_same(item), ~_expired)
            locked = locked.with_for_update(skip_locked=True, key_share=True)
            row = connection.execute(locked).mappings().one_or_none()
            if row is not None:
                second = {**row, **_held(connection, claimant), "attempt": 1}
                connection.execute(insert(_subtasks).values(second))
                return subtask_of(second)
    return None


def _is_slow(
    item: Subtask, present: Sequence[Subtask], instant: datetime, *, at_least_s: float
) -> bool:
    assert item.claimed_at is not None
    taken = (instant - item.claimed_at).total_seconds()
    others = [
        (other.completed_at - other.claimed_at).total_seconds()
        for other in present
        if other.table_id == item.table_id and other.completed_at and other.claimed_at
    ]
    return bool(others) and taken > max(SLOWER * max(others), at_least_s)


def _same_row(row: Mapping[Any, Any]) -> ColumnElement[bool]:
    key = ("table_id", "slice_no", "attempt")
    return and_(*(_subtasks.c[name] == row[name] for name in key))


def _same(subtask: Subtask) -> ColumnElement[bool]:
    """This very claim: not the slice of another refresh, nor one that somebody else took (by the
    same token, if the database lost it: see `claims`)."""
    return and_(
        _subtasks.c.table_id == subtask.table_id,
        _subtasks.c.slice_no == subtask.slice_no,
        _subtasks.c.token == subtask.token,
        _subtasks.c.claimed_by == subtask.claimed_by,
        _subtasks.c.status == "claimed",
    )


def beat(connection: Connection, subtask: Subtask) -> bool:
    assert subtask.expires_at is not None
    assert subtask.heartbeat_at is not None
    instant = now(connection)
    kept = connection.execute(
        update(_subtasks)
        .where(_same(subtask))
        .values(
            heartbeat_at=instant,
            expires_at=instant + (subtask.expires_at - subtask.heartbeat_at),
        )
    )
    return kept.rowcount == 1


def complete(connection: Connection, subtask: Subtask, result: SliceResult) -> bool:
    """The first result of a slice wins; other attempts at it are over."""
    slice_ = and_(
        _subtasks.c.table_id == subtask.table_id, _subtasks.c.slice_no == subtask.slice_no
    )
    both = select(_subtasks).where(slice_).order_by(_subtasks.c.attempt)
    connection.execute(both.with_for_update(key_share=True))
    if connection.execute(select(_subtasks.c.token).where(_same(subtask))).one_or_none() is None:
        return False
    connection.execute(delete(_subtasks).where(slice_, _subtasks.c.attempt != subtask.attempt))
    connection.execute(
        update(_subtasks)
        .where(_same(subtask))
        .values(
            status="completed",
            result_location=result.location,
            result_rows=result.rows,
            checksum=result.checksum,
            completed_at=now(connection),
        )
    )
    wake_others(connection)
    return True


def fail(connection: Connection, subtask: Subtask, reason: str, error: str, *, final: bool) -> bool:
    """It waits for its next attempt, or has failed, if there is no use in one. After too many the
    coordinator's next look fails it, unless somebody else is at it, too.

    A second attempt beside a slow worker is only given up: the first may still succeed.
    """
    if subtask.attempt:
        failed = connection.execute(delete(_subtasks).where(_same(subtask)))
    else:
        told = {"reason": reason, "error": error, "heartbeat_at": now(connection)}
        again = {"status": "pending", "retries": subtask.retries + 1}
        after = {"status": "failed"} if final else again
        failed = connection.execute(update(_subtasks).where(_same(subtask)).values(**after, **told))
    wake_others(connection)
    return failed.rowcount == 1


def forget(connection: Connection, table_ids: Collection[str]) -> None:
    """Before their intents: who claims a slice holds its row, and looks at the intent after it."""
    mine = _subtasks.c.table_id.in_(table_ids)
    key = (_subtasks.c.table_id, _subtasks.c.slice_no, _subtasks.c.attempt)
    connection.execute(select(*key).where(mine).order_by(*key).with_for_update(key_share=True))
    connection.execute(delete(_subtasks).where(mine))


def everything(connection: Connection, table_id: str | None = None) -> list[Subtask]:
    found = select(_subtasks)
    if table_id is not None:
        found = found.where(_subtasks.c.table_id == table_id)
    order = (_subtasks.c.created_at, _subtasks.c.table_id, _subtasks.c.slice_no)
    rows = connection.execute(found.order_by(*order, _subtasks.c.attempt)).mappings()
    return [subtask_of(row) for row in rows]
