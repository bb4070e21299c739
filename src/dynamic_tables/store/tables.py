"""Definitions, their dependencies and status, and the registry of the embedded catalog."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Float,
    Integer,
    and_,
    case,
    delete,
    insert,
    select,
    update,
)
from sqlalchemy.types import TypeEngine

from dynamic_tables.definition import Definition
from dynamic_tables.errors import Held, InternalError, InvalidInput
from dynamic_tables.model import Status, Strategy, TableState
from dynamic_tables.reasons import Reason
from dynamic_tables.store import schema
from dynamic_tables.store.engine import now
from dynamic_tables.store.records import (
    Registered,
    Row,
    definition_row,
    dependency_rows,
    registered_of,
    table_state,
)
from dynamic_tables.store.types import UtcTime

APART = (Strategy.FULL, Strategy.NO_DATA)
GROUPED = {  # by one word: recomputed, nothing to do, or by what the changes affect
    strategy.value: strategy.name if strategy in APART else "AFFECTED_KEYS" for strategy in Strategy
}

_tables = schema.dynamic_tables
_dependencies = schema.dependencies

Times = Mapping[str, datetime | None]  # by table id
Rows = tuple[tuple[tuple[str, str], ...], list[tuple[Any, ...]]]  # (name, type) of columns; rows


def create(connection: Connection, definition: Definition) -> None:
    lock_with_parents(connection, definition)
    row = {
        **definition_row(definition),
        "status": Status.ACTIVE.value,
        "failures": 0,
        "created_at": now(connection),
    }
    connection.execute(insert(_tables).values(row))
    _write_dependencies(connection, definition)


def change(connection: Connection, definition: Definition) -> None:
    """Replace the definition of a table that is locked; an older or a rival one is refused."""
    changed = connection.execute(
        update(_tables)
        .where(_tables.c.table_id == definition.table_id)
        .where(_tables.c.revision < definition.revision)
        .values(definition_row(definition))
    )
    if changed.rowcount == 1:
        _write_dependencies(connection, definition)
        return
    standing = by_id(connection, definition.table_id)
    if standing is None or standing.definition != definition:
        raise Held(
            f"the definition was changed meanwhile; revision {definition.revision} is too late",
            reason=Reason.TAKEN_OVER,
            about=str(definition.name),
            hint="look at the table as it is now, then repeat the statement",
        )


def _write_dependencies(connection: Connection, definition: Definition) -> None:
    mine = _dependencies.c.table_id == definition.table_id
    connection.execute(delete(_dependencies).where(mine))
    if rows := dependency_rows(definition):
        connection.execute(insert(_dependencies), rows)


def why_not(connection: Connection, definition: Definition) -> InvalidInput | InternalError:
    """Which constraint the definition broke."""
    other = by_key(connection, definition.name.key)
    if other is not None and other.definition.table_id != definition.table_id:
        return InvalidInput(
            "a dynamic table of this name exists",
            reason=Reason.ALREADY_EXISTS,
            about=str(definition.name),
            hint=f"DROP DYNAMIC TABLE {other.definition.name}; or choose another name",
        )
    for source in definition.sources:
        if source.dynamic_id and by_id(connection, source.dynamic_id) is None:
            return InvalidInput(
                "its source was dropped meanwhile",
                reason=Reason.UNKNOWN_SOURCE,
                about=f"{definition.name} reads {source.name}",
                hint="create the source again, then repeat the statement",
            )
    return InternalError(
        "the store does not accept the definition",
        reason=Reason.INTERNAL,
        about=f"{definition.name} ({definition.table_id})",
    )


def lock_with_parents(connection: Connection, definition: Definition) -> None:
    """Before the rows about its sources, each of which locks a parent's key: whoever drops several
    tables at once waits for one of them, or is waited for, and holds none that comes later."""
    for table_id in sorted({definition.table_id, *definition.parents}):
        is_parent = table_id != definition.table_id
        found = select(_tables.c.table_id).where(_tables.c.table_id == table_id)
        connection.execute(found.with_for_update(read=is_parent, key_share=True))


def lock(connection: Connection, table_id: str) -> Row:
    """The row of the table, ours until the transaction ends; every write to a table begins here."""
    row = lock_if_there(connection, table_id)
    if row is None:
        raise unknown(table_id)
    return row


def unknown(table_id: str) -> InvalidInput:
    return InvalidInput(
        "no dynamic table has this id; it may have been dropped meanwhile",
        reason=Reason.UNKNOWN_TABLE,
        about=table_id,
        hint="SHOW DYNAMIC TABLES",
    )


# What those who hold the lock decide by.
_LOCKED = [
    _tables.c[name]
    for name in (
        *("name", "sequence", "version"),
        *("status", "failures", "failed_at", "failed_reason", "refreshed_at"),
    )
]


def lock_if_there(connection: Connection, table_id: str) -> Row | None:
    found = select(*_LOCKED).where(_tables.c.table_id == table_id).with_for_update(key_share=True)
    return connection.execute(found).mappings().one_or_none()


def location(connection: Connection, table_id: str) -> str:
    """Where the stored table lies."""
    found = select(_tables.c.definition).where(_tables.c.table_id == table_id)
    return connection.execute(found).scalar_one()["location"]


def lock_all(connection: Connection, table_ids: Iterable[str]) -> set[str]:
    """Lock several tables, always in one order: who waits for one holds none that come later.

    The ids of those that are there come back.
    """
    found = select(_tables.c.table_id).where(_tables.c.table_id.in_(sorted(table_ids)))
    locked = found.order_by(_tables.c.table_id).with_for_update(key_share=True)
    return set(connection.scalars(locked))


def everything(connection: Connection) -> list[TableState]:
    rows = connection.execute(select(_tables).order_by(_tables.c.name_key)).mappings()
    return [table_state(row) for row in rows]


def by_key(connection: Connection, name_key: str) -> TableState | None:
    found = select(_tables).where(_tables.c.name_key == name_key)
    row = connection.execute(found).mappings().one_or_none()
    return None if row is None else table_state(row)


def by_id(connection: Connection, table_id: str) -> TableState | None:
    found = select(_tables).where(_tables.c.table_id == table_id)
    row = connection.execute(found).mappings().one_or_none()
    return None if row is None else table_state(row)


def set_status(connection: Connection, table_id: str, status: Status, because: str | None) -> None:
    lock(connection, table_id)
    values: dict[str, Any] = {"status": status.value, "suspended_because": because}
    if status is Status.ACTIVE:
        values |= {"suspended_because": None, "failures": 0, "failed_at": None}
    connection.execute(update(_tables).where(_tables.c.table_id == table_id).values(values))


def saw(connection: Connection, behind: Times, refreshed: Times) -> None:
    """Keep what a schedule found out when it looked; who was refreshed since it read the table's
    state knows better."""
    instant = now(connection)
    lock_all(connection, behind)
    for table_id, since in sorted(behind.items()):
        as_read = _tables.c.refreshed_at.is_not_distinct_from(refreshed[table_id])
        mine = and_(_tables.c.table_id == table_id, as_read)
        seen = {"seen_at": instant, "behind_since": since}
        connection.execute(update(_tables).where(mine).values(seen))


def rows_of(connection: Connection, table_name: str) -> Rows:
    """A table of the store as plain values: instants as ISO text, JSON as its text."""
    table = schema.QUERYABLE.get(table_name.lower())
    if table is None:
        raise InvalidInput(
            "the store has no such table to read",
            reason=Reason.UNKNOWN_TABLE,
            about=table_name,
            hint=f"one of {', '.join(sorted(schema.QUERYABLE))}",
        )
    shown = [part for column in table.columns for part in _shown(column)]
    columns = tuple((column.name, _simple_type(column.type)) for column in shown)
    rows = connection.execute(select(*shown).order_by(*table.primary_key))
    return columns, [tuple(_plain(value) for value in row) for row in rows]


def _shown(column: Column[Any]) -> list[ColumnElement[Any]]:
    """Strategies are grouped, as people compare them; the one that was taken stands beside."""
    if column.info.get("internal"):
        return []
    if column is not schema.refresh_history.c.strategy:
        return [column]
    return [case(GROUPED, value=column).label(column.name), column.label("how")]


def _simple_type(type_: TypeEngine[Any]) -> str:
    """Spark's name for the type."""
    match type_:
        case UtcTime():
            return "timestamp"
        case Integer():
            return "bigint"
        case Float():
            return "double"
        case _:
            return "string"


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return value


def registered(connection: Connection) -> list[Registered]:
    """Schemas before what lies in them."""
    rows = connection.execute(select(schema.registry).order_by(schema.registry.c.name_key))
    entries = [registered_of(row) for row in rows.mappings()]
    return sorted(entries, key=lambda entry: entry.kind != "schema")
