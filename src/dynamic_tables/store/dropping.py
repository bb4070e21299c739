"""Tables are forgotten together, or none of them; and may be put back as they were."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlalchemy import Connection, Table, delete, insert, select

from dynamic_tables.definition import Definition
from dynamic_tables.errors import Refused
from dynamic_tables.reasons import Reason
from dynamic_tables.store import schema, subtasks, tables

_tables = schema.dynamic_tables
_dependencies = schema.dependencies
_KEPT = (  # owners first; claims and requests are given up with the table
    _tables,
    _dependencies,
    schema.builds,
    schema.source_snapshots,
    schema.refresh_intents,
    schema.refresh_subtasks,
)


@dataclass(frozen=True, kw_only=True)
class Dropped:
    """Tables as they were when they were forgotten."""

    rows: Mapping[str, Sequence[Mapping[str, Any]]]  # by the store's own table

    @cached_property
    def definitions(self) -> dict[str, Definition]:
        """By table id."""
        found = self.rows[_tables.name]
        return {row["table_id"]: Definition.from_json(row["definition"]) for row in found}


def lock(connection: Connection, table_ids: Collection[str]) -> dict[str, str]:
    """The names of the tables by id. They are locked with their keys: a child whose CREATE has not
    ended is waited for, and seen then."""
    mine = select(_tables.c.table_id, _tables.c.name).where(_tables.c.table_id.in_(table_ids))
    locked = connection.execute(mine.order_by(_tables.c.table_id).with_for_update())
    names = {row.table_id: row.name for row in locked}
    for table_id in table_ids:
        if table_id not in names:
            raise tables.unknown(table_id)
    return names


def drop(connection: Connection, names: Mapping[str, str]) -> Dropped:
    """Delete tables that are locked and all that belongs to them, except their history."""
    _check_unread(connection, names)
    dropped = Dropped(rows={table.name: _rows(connection, table, names) for table in _KEPT})
    subtasks.forget(connection, names)
    ours = _dependencies.c.table_id.in_(names)
    connection.execute(delete(_dependencies).where(ours))  # in whatever order the tables go then
    connection.execute(delete(_tables).where(_tables.c.table_id.in_(names)))
    return dropped


def _rows(
    connection: Connection, table: Table, table_ids: Collection[str]
) -> list[Mapping[str, Any]]:
    mine = select(table).where(table.c.table_id.in_(table_ids))
    return [dict(row) for row in connection.execute(mine).mappings()]


def put_back(connection: Connection, dropped: Dropped, table_ids: Collection[str]) -> None:
    """As if these had not been dropped; others that they read must be there, or among them."""
    definitions = [dropped.definitions[table_id] for table_id in table_ids]
    tables.lock_all(connection, {parent for item in definitions for parent in item.parents})
    for table in _KEPT:
        rows = [row for row in dropped.rows[table.name] if row["table_id"] in table_ids]
        if rows:
            connection.execute(insert(table), rows)


def _check_unread(connection: Connection, names: Mapping[str, str]) -> None:
    """By tables that stay."""
    found = (
        select(_dependencies.c.dynamic_id, _tables.c.name)
        .join(_tables, _dependencies.c.table_id == _tables.c.table_id)
        .where(_dependencies.c.dynamic_id.in_(names), _tables.c.table_id.not_in(names))
        .distinct()
        .order_by(_tables.c.name)
    )
    readers = connection.execute(found).all()
    if readers:
        parent, _ = readers[0]
        read, children = names[parent], [name for key, name in readers if key == parent]
        raise Refused(
            f"other dynamic tables read it: {', '.join(children)}",
            reason=Reason.HAS_CHILDREN,
            about=read,
            hint="it was created meanwhile; repeat the statement",
        )
