"""Intents, builds and history: what a refresh is going to do, and what it did.

The standing number of a table never goes down, and a number is recorded once. `no_data` takes no
number: its record repeats the standing one with a newer cut.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Literal

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    delete,
    insert,
    or_,
    select,
    update,
)

from dynamic_tables.errors import InternalError, InvalidInput, SetupError
from dynamic_tables.model import (
    Build,
    Intent,
    Outcome,
    RefreshRecord,
    Status,
    Strategy,
    TableState,
)
from dynamic_tables.reasons import NOT_ABOUT_THE_TABLE, Reason
from dynamic_tables.store import claims, schema, tables
from dynamic_tables.store.engine import now
from dynamic_tables.store.forgetting import forget_builds, forget_refreshes
from dynamic_tables.store.records import (
    Claim,
    Row,
    build_of,
    build_row,
    history_row,
    intent_of,
    intent_row,
    record_of,
    snapshot_rows,
)

Failures = Literal["reset", "count", "keep"]

_tables = schema.dynamic_tables
_intents = schema.refresh_intents
_subtasks = schema.refresh_subtasks
_builds = schema.builds
_history = schema.refresh_history


def open_intent(connection: Connection, claim: Claim, intent: Intent) -> Intent:
    """Write the intent, or find the same one open: its first writer's refresh id stays."""
    row = lock_claimed(connection, claim, intent.table_id)
    found = open_one(connection, intent.table_id)
    if found is not None:
        if replace(intent, refresh_id=found.refresh_id, slicing=found.slicing) != found:
            raise _broken(
                row["name"],
                f"refresh {found.sequence} is still open, {intent.sequence} cannot begin",
            )
        return found
    if row["sequence"] is not None and intent.sequence <= row["sequence"]:
        raise _broken(row["name"], f"number {intent.sequence} is not after {row['sequence']}")
    values = {
        **intent_row(intent),
        "standing": row["sequence"],
        "opened_at": now(connection),
    }
    connection.execute(insert(_intents).values(values))
    return intent


def open_one(connection: Connection, table_id: str) -> Intent | None:
    found = select(_intents).where(_intents.c.table_id == table_id)
    row = connection.execute(found).mappings().one_or_none()
    return None if row is None else intent_of(row)


def drop_intent(connection: Connection, claim: Claim, sequence: int) -> bool:
    row = lock_claimed(connection, claim, claim.table_id)
    return _close(connection, claim.table_id, row["name"], sequence)


def record(
    connection: Connection,
    claim: Claim | None,
    done: RefreshRecord,
    build: Build | None,
    *,
    close_intent: int | None,
    failures: Failures,
    history_days: int,
    suspend_at: int | None = None,
    read: TableState | None = None,
) -> int:
    """Write all that a refresh leaves behind; the number of failures in a row comes back.

    So many as `suspend_at` suspend the table. Who has no claim tells what it `read` of the table:
    if anything happened to it since, history is all that is written.
    """
    row = tables.lock_if_there(connection, done.table_id)
    if claim is not None:
        _check_about(claim, done.table_id, str(done.table))
        claims.check(connection, claim, str(done.table))
    connection.execute(insert(_history).values(history_row(done)))
    forget_refreshes(connection, done.table_id, history_days)
    if row is None:
        if build is not None or close_intent is not None:
            raise _gone(str(done.table))
        return 0
    if close_intent is not None:
        _close(connection, done.table_id, row["name"], close_intent)
    if build is not None:
        _check_build(done, build)
        is_data = done.strategy is not Strategy.NO_DATA
        _stand(connection, row, build, is_data=is_data, refresh_id=done.refresh_id)
        _check_nothing_passed(connection, row["name"], build)
    if claim is None and read is not None and _happened_since(row, read):
        return 0
    return _count(connection, done, row, failures, suspend_at)


def adopt(
    connection: Connection, build: Build, *, claim: Claim | None, refresh_id: str | None
) -> bool:
    """Let the lake's newer build stand; False if the store knows it already.

    With the same number the store may be ahead by `no_data` records, so that it stays as it is.
    """
    row = tables.lock(connection, build.table_id)
    if claim is not None:
        _check_about(claim, build.table_id, row["name"])
        claims.check(connection, claim, row["name"])
    standing = row["sequence"]
    if standing is not None and build.sequence < standing:
        raise SetupError(
            f"the lake holds refresh {build.sequence}, the store has recorded {standing}",
            reason=Reason.LAKE_CHANGED,
            about=row["name"],
            hint="was the folder restored from a copy? `dynamic-tables doctor` compares both",
        )
    passed = and_(_intents.c.table_id == build.table_id, _intents.c.sequence <= build.sequence)
    connection.execute(delete(_intents).where(passed))
    if standing == build.sequence:
        return False
    _stand(connection, row, build, is_data=True, refresh_id=refresh_id)
    return True


def builds(connection: Connection, table_id: str, limit: int) -> list[Build]:
    found = select(_builds).where(_builds.c.table_id == table_id)
    newest = found.order_by(_builds.c.build_no.desc()).limit(limit)
    return [build_of(row, row["fingerprint"]) for row in connection.execute(newest).mappings()]


def history(connection: Connection, table_id: str | None, limit: int) -> list[RefreshRecord]:
    """As it was recorded, the newest first: the clocks of hosts may differ."""
    found = select(_history)
    if table_id is not None:
        found = found.where(_history.c.table_id == table_id)
    newest = found.order_by(_history.c.history_no.desc()).limit(limit)
    return [record_of(row) for row in connection.execute(newest).mappings()]


def late(
    connection: Connection, table_id: str, since: datetime, target_s: float
) -> list[tuple[datetime, datetime]]:
    """When the table was later than its target, until refreshes that began since then ended that;
    the lag grows by a second a second."""
    found = select(_history.c.started_at, _history.c.duration_ms, _history.c.behind_ms).where(
        _history.c.table_id == table_id,
        _history.c.started_at > since,
        _history.c.outcome == Outcome.DONE.value,
        _history.c.behind_ms > target_s * 1000,
    )
    spans = []
    for started_at, duration_ms, behind_ms in connection.execute(
        found.order_by(_history.c.history_no)
    ):
        end = started_at + timedelta(milliseconds=duration_ms)
        beyond = timedelta(milliseconds=behind_ms) - timedelta(seconds=target_s)
        spans.append((end - beyond, end))
    return spans


def lock_claimed(connection: Connection, claim: Claim, table_id: str) -> Row:
    """The row of the table, ours until the transaction ends, if the claim has not been replaced."""
    row = tables.lock_if_there(connection, table_id)
    name = table_id if row is None else row["name"]
    _check_about(claim, table_id, name)
    claims.check(connection, claim, name)  # a dropped table has no claim
    if row is None:
        raise _gone(name)
    return row


def _close(connection: Connection, table_id: str, name: str, sequence: int) -> bool:
    """Delete the intent of this number; to close it again does nothing."""
    found = open_one(connection, table_id)
    if found is None:
        return False
    if found.sequence != sequence:
        raise _broken(name, f"refresh {found.sequence} is open, {sequence} cannot be closed")
    # Slices first: who claims one holds its row, and looks at the intent after it.
    connection.execute(delete(_subtasks).where(_subtasks.c.table_id == table_id))
    connection.execute(delete(_intents).where(_intents.c.table_id == table_id))
    return True


def _stand(
    connection: Connection, row: Row, build: Build, *, is_data: bool, refresh_id: str | None
) -> None:
    """Keep the build, its sources, and make it the standing one."""
    values = build_row(build)
    fingerprint = values.pop("fingerprint")
    moved = connection.execute(
        update(_tables)
        .where(_tables.c.table_id == build.table_id, _may_follow(build, is_data=is_data))
        .values({**values, "build_fingerprint": fingerprint})
    )
    if moved.rowcount != 1:
        kind = "refresh" if is_data else "no_data record at"
        raise _broken(
            row["name"], f"{kind} {build.sequence} does not follow the standing {row['sequence']}"
        )
    recorded = {"refresh_id": refresh_id, "recorded_at": now(connection)}
    kept = connection.execute(
        insert(_builds).values({**build_row(build), **recorded, "is_data": is_data})
    )
    (number,) = kept.inserted_primary_key or (None,)
    shared = {**recorded, "build_no": number, "dynamic_table": row["name"]}
    if snapshots := [{**snapshot, **shared} for snapshot in snapshot_rows(build)]:
        connection.execute(insert(schema.source_snapshots), snapshots)
    forget_builds(connection, build.table_id)


def _may_follow(build: Build, *, is_data: bool) -> ColumnElement[bool]:
    """A commit has a larger number; `no_data` has the standing one, and no older version."""
    if is_data:
        return or_(_tables.c.sequence.is_(None), _tables.c.sequence < build.sequence)
    return and_(_tables.c.sequence == build.sequence, _tables.c.version <= build.version)


def _check_about(claim: Claim, table_id: str, name: str) -> None:
    if claim.table_id != table_id:
        raise _broken(name, f"the claim is for {claim.table_id}")


def _check_build(done: RefreshRecord, build: Build) -> None:
    if build.table_id != done.table_id:
        raise _broken(str(done.table), f"the build is of {build.table_id}")


def _check_nothing_passed(connection: Connection, name: str, build: Build) -> None:
    """No open intent may have the standing number or a smaller one."""
    found = open_one(connection, build.table_id)
    if found is not None and found.sequence <= build.sequence:
        raise _broken(name, f"{build.sequence} is recorded while {found.sequence} is open")


def _happened_since(row: Row, read: TableState) -> bool:
    """Whether the table was refreshed, failed, suspended or resumed since it was read."""
    before = (
        read.build.sequence if read.build else None,
        read.refreshed_at,
        read.failure.at if read.failure else None,
        read.failures,
        read.status.value,
    )
    found = ("sequence", "refreshed_at", "failed_at", "failures", "status")
    return before != tuple(row[name] for name in found)


def _count(
    connection: Connection,
    done: RefreshRecord,
    row: Row,
    failures: Failures,
    suspend_at: int | None,
) -> int:
    """Remember how it ended, by the database's clock: the schedules of all workers go by it."""
    before = row["failures"]
    count = {"reset": 0, "count": before + 1, "keep": before}[failures]
    if done.outcome is Outcome.SKIPPED or done.reason in NOT_ABOUT_THE_TABLE:
        return count
    instant = now(connection)
    failed = done.outcome is Outcome.FAILED
    values: dict[str, Any] = {
        "failures": count,
        "failed_at": instant if failed else None,
        "failed_reason": done.reason.value if failed else None,
        "failed_versions": dict(done.cut.versions) if failed and done.cut else None,
    }
    if not failed:
        values |= {"refreshed_at": instant, "seen_at": instant, "behind_since": None}
    active = row["status"] == Status.ACTIVE.value
    if active and failures == "count" and suspend_at is not None and count >= suspend_at:
        because = f"{count} failures in a row, the last: {done.error}"
        values |= {"status": Status.SUSPENDED.value, "suspended_because": because}
    mine = _tables.c.table_id == done.table_id
    connection.execute(update(_tables).where(mine).values(values))
    return count


def _broken(name: str, message: str) -> InternalError:
    return InternalError(message, reason=Reason.INTERNAL, about=name)


def _gone(name: str) -> InvalidInput:
    return InvalidInput(
        "the table was dropped meanwhile",
        reason=Reason.UNKNOWN_TABLE,
        about=name,
        hint="SHOW DYNAMIC TABLES",
    )
