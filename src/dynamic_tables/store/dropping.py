"""Tables are forgotten together, or none of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sqlalchemy import Connection, delete, select

from dynamic_tables.errors import Refused
from dynamic_tables.reasons import Reason
from dynamic_tables.store import schema, subtasks, tables

_tables = schema.dynamic_tables
_dependencies = schema.dependencies


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


def drop(connection: Connection, names: Mapping[str, str]) -> None:
    """Delete tables that are locked and all that belongs to them, except their history."""
    _check_unread(connection, names)
    subtasks.forget(connection, names)
    ours = _dependencies.c.table_id.in_(names)
    connection.execute(delete(_dependencies).where(ours))  # in whatever order the tables go then
    connection.execute(delete(_tables).where(_tables.c.table_id.in_(names)))


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
