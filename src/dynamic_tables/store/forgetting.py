"""What the store keeps of the past, and what it forgets.

Whoever adds a row deletes what it makes superfluous, in the same transaction and a few rows at a
time: nothing has to run beside the refreshes, and no transaction becomes long.
"""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import Connection, Select, delete, select

from dynamic_tables.store import schema
from dynamic_tables.store.engine import now

KEPT_BUILDS = 100  # of a table: cuts are planned and states compared among these
KEPT_REFRESHES = 50  # of a table, however old: costs are estimated by them
FORGOTTEN_AT_ONCE = 500  # rows: a store that was never cleared is cleared bit by bit

_tables = schema.dynamic_tables
_builds = schema.builds
_history = schema.refresh_history


def forget_builds(connection: Connection, table_id: str) -> None:
    """All but the newest builds of a table; their rows in `source_snapshots` go with them."""
    mine = _builds.c.table_id == table_id
    newest = select(_builds.c.build_no).where(mine).order_by(_builds.c.build_no.desc())
    last = newest.offset(KEPT_BUILDS - 1).limit(1).scalar_subquery()  # null: there are fewer
    old = select(_builds.c.build_no).where(mine, _builds.c.build_no < last)
    few = old.order_by(_builds.c.build_no).limit(FORGOTTEN_AT_ONCE)
    connection.execute(delete(_builds).where(_builds.c.build_no.in_(few)))


def forget_refreshes(connection: Connection, table_id: str, days: int) -> None:
    """The history of a table, but for its newest rows and those of the last days."""
    mine = _history.c.table_id == table_id
    newest = select(_history.c.history_no).where(mine).order_by(_history.c.history_no.desc())
    last = newest.offset(KEPT_REFRESHES - 1).limit(1).scalar_subquery()  # null: there are fewer
    _forget(connection, _older(connection, days).where(mine, _history.c.history_no < last))


def forget_dropped(connection: Connection, days: int) -> None:
    """The history of tables that are no more, but for that of the last days."""
    there = select(_tables.c.table_id).where(_tables.c.table_id == _history.c.table_id).exists()
    _forget(connection, _older(connection, days).where(~there))


def _older(connection: Connection, days: int) -> Select[tuple[int]]:
    since = now(connection) - timedelta(days=days)
    return select(_history.c.history_no).where(_history.c.started_at < since)


def _forget(connection: Connection, old: Select[tuple[int]]) -> None:
    """What another process forgets just now is passed over."""
    few = old.order_by(_history.c.started_at).limit(FORGOTTEN_AT_ONCE)
    few = few.with_for_update(skip_locked=True)
    connection.execute(delete(_history).where(_history.c.history_no.in_(few)))
