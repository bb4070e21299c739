"""Who is there: one row a worker, kept by heartbeat on the database's clock.

The worker that has been there longest decides what is due. For a moment there may be two of them;
their requests melt together.

Where the storage of a table does not exclude two drivers from each other, the store does. A driver
is a worker, or a process that holds a claim on such a table: by hand, for CREATE, for ALTER. Who
becomes one draws its number first: the counter stays locked until the transaction ends, so of two
that come at once the second one sees the first.
"""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    delete,
    func,
    select,
    union_all,
    update,
)

from dynamic_tables.errors import Refused
from dynamic_tables.processes import name_of
from dynamic_tables.reasons import Reason
from dynamic_tables.store import schema
from dynamic_tables.store.engine import database_now, next_number, now, upsert
from dynamic_tables.store.records import Claimant, Worker, worker_of

_tables = schema.dynamic_tables
_workers = schema.workers
_claims = schema.refresh_claims
_subtasks = schema.refresh_subtasks


def enter(connection: Connection, claimant: Claimant) -> None:
    """Be counted; rows of workers that are gone are swept out."""
    instant = now(connection)
    sweep(connection)
    number = next_number(connection)
    if _is_anything_there(connection, claimant):
        check_one_driver(connection, claimant, "worker")
    upsert(
        connection,
        _workers,
        {
            "owner": claimant.owner,
            "worker_no": number,
            "host": claimant.host,
            "pid": claimant.pid,
            "started_at": instant,
            "heartbeat_at": instant,
            "expires_at": instant + timedelta(seconds=claimant.expires_s),
        },
    )


def sweep(connection: Connection) -> None:
    """Those without a heartbeat are gone; one that was only paused learns it by its next one."""
    connection.execute(delete(_workers).where(_workers.c.expires_at <= database_now()))


def _is_anything_there(connection: Connection, claimant: Claimant) -> bool:
    """Whether the lake, or any table of it, lies where there may be one driver only."""
    if not claimant.one_driver_at:
        return False
    definitions = connection.scalars(select(_tables.c.definition))
    return any(map(claimant.is_alone_at, ("", *(found["location"] for found in definitions))))


def check_one_driver(connection: Connection, claimant: Claimant, about: str) -> None:
    """Refuse a second driver where there may be one only; its number is drawn already.

    Claims of others that have expired are deleted: the next beat of a driver that was only paused
    would revive them, beside the one that is admitted now.
    """

    def others(found: FromClause) -> ColumnElement[bool]:
        return func.substr(found.c.owner, 1, len(claimant.process)) != claimant.process

    claimed = select(_tables.c.table_id, _tables.c.definition).join(_claims).where(others(_claims))
    there = _claims.c.table_id.in_(
        [
            table_id
            for table_id, definition in connection.execute(claimed)
            if claimant.is_alone_at(definition["location"])
        ]
    )
    expired = _claims.c.expires_at <= database_now()
    connection.execute(delete(_claims).where(there, expired, others(_claims)))
    drivers = union_all(
        select(_workers.c.owner, _workers.c.host, _workers.c.pid),
        select(_claims.c.owner, _claims.c.host, _claims.c.pid).where(there),
    )
    found = drivers.subquery()
    other = connection.execute(select(found).where(others(found))).first()
    if other is not None:
        raise Refused(
            f"process {other.pid} on {name_of(other.host)} works on this lake; where it lies on S3,"
            " two drivers may lose each other's commits",
            reason=Reason.NO_EXCLUSION,
            about=about,
            hint="one process at a time: wait until that one has ended, or stop it; or use Delta's"
            " S3DynamoDBLogStore (spark.delta.logStore.s3a.impl)",
        )


def beat(connection: Connection, claimant: Claimant, doing: str | None) -> bool:
    """Stay; False if the row was swept out, then enter again."""
    instant = now(connection)
    kept = connection.execute(
        update(_workers)
        .where(_workers.c.owner == claimant.owner)
        .values(
            heartbeat_at=instant,
            expires_at=instant + timedelta(seconds=claimant.expires_s),
            doing=doing,
        )
    )
    return kept.rowcount == 1


def leave(connection: Connection, owner: str) -> None:
    connection.execute(delete(_workers).where(_workers.c.owner == owner))


def alive(connection: Connection) -> list[Worker]:
    """Those whose heartbeat is fresh, the longest there first."""
    found = select(_workers).where(_workers.c.expires_at > database_now())
    rows = connection.execute(found.order_by(_workers.c.worker_no)).mappings()
    return [worker_of(row) for row in rows]


def idle(connection: Connection, but: str) -> int:
    """How many others are alive and hold nothing: no table, no slice."""
    tables = select(_claims.c.owner).where(_claims.c.expires_at > database_now())
    slices = select(_subtasks.c.claimed_by).where(
        _subtasks.c.status == "claimed", _subtasks.c.expires_at > database_now()
    )
    alive = select(func.count()).where(_workers.c.expires_at > database_now())
    free = alive.where(
        _workers.c.owner != but, _workers.c.owner.not_in(tables), _workers.c.owner.not_in(slices)
    )
    return connection.execute(free).scalar_one()


def leads(connection: Connection, owner: str) -> bool:
    """Whether this one has been there longest."""
    first = select(func.min(_workers.c.worker_no)).where(_workers.c.expires_at > database_now())
    found = select(_workers.c.owner).where(_workers.c.worker_no == first.scalar_subquery())
    return connection.execute(found).scalar_one_or_none() == owner
