"""The equation on DuckLake: after every refresh, the table equals its query at the recorded cut.

The oracle shares no code with the product's pinning: the user's original text runs, untouched, on a
connection of its own where every source is a temporary view over the pinned version.
"""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

import dynamic_tables as dt
from dynamic_tables.lake.duck.lake import DuckLake
from dynamic_tables.model import Pin, TableState


def bag(rows: list[Any]) -> Counter[str]:
    """Rows as a bag; values by their printed form, which tells NULL, NaN and types apart."""
    return Counter(repr(tuple(_plain(value) for value in row)) for row in rows)


def _plain(value: Any) -> Any:
    """A SUM of integers is stored as DECIMAL(38,0)."""
    whole = isinstance(value, Decimal) and value == value.to_integral_value()
    return int(value) if whole else value


def expected(tables: dt.DynamicTables, state: TableState) -> Counter[str]:
    """What the query gives at the cut that the store recorded."""
    assert state.build is not None
    assert isinstance(tables.lake, DuckLake)
    cursor = tables.lake._instance.connection.cursor()
    for pin in state.build.pins:
        cursor.execute(f'CREATE TEMP VIEW "{pin.name.name}" AS {visible(tables, pin)}')
    return bag(cursor.execute(state.definition.query).fetchall())


def visible(tables: dt.DynamicTables, pin: Pin) -> str:
    """What users see of a source: auxiliary columns and groups that HAVING drops are hidden."""
    parent = tables.store.table_by_id(pin.dynamic_id) if pin.dynamic_id else None
    auxiliary = parent.definition.auxiliary if parent else None
    table = f"{pin.name.name}__ivm" if auxiliary else pin.name.name
    version = f'FROM small_lake."{pin.name.schema}"."{table}" AT (VERSION => {pin.version})'
    if parent is None or auxiliary is None:
        return version
    if parent.definition.in_parts is not None:
        version = f"FROM ({parent.definition.in_parts.over(version.removeprefix('FROM '))})"
    columns = ", ".join(f'"{column.name}"' for column in parent.definition.columns)
    shown = any(column.name == "_ivm_shown" for column in auxiliary.columns)
    return f"SELECT {columns} {version}{' WHERE _ivm_shown' if shown else ''}"


def stored(tables: dt.DynamicTables, state: TableState) -> Counter[str]:
    """What a reader finds under the table's name."""
    name = state.definition.name
    return bag(tables.sql(f'FROM "{name.schema}"."{name.name}"').collect())


def check(tables: dt.DynamicTables, *names: str) -> None:
    """The equation, for some tables or for all that are loaded."""
    states = [tables.show(name) for name in names] if names else tables.list()
    for state in states:
        if state.build is not None:
            assert stored(tables, state) == expected(tables, state), state.definition.name


def check_lake(tables: dt.DynamicTables, *names: str) -> None:
    """Every table equals its query; its numbers have no gap and no repeat; nothing is left open."""
    check(tables, *names)
    for state in [tables.show(name) for name in names] if names else tables.list():
        definition = state.definition
        assert tables.store.intent(definition.table_id) is None
        assert tables.store.holder(definition.table_id) is None
        newest = tables.lake.standing(definition)
        commits = tables.lake.commits(definition, -1, newest.version)
        numbers = [
            commit.stamp.sequence
            for commit in reversed(commits)
            if commit.stamp and commit.stamp.table_id == definition.table_id
        ]
        assert numbers == list(range(1, newest.sequence + 1)), definition.name
