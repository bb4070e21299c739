"""The equation: after every refresh, the table equals its query at the recorded cut, as a bag.

The oracle shares no code with the product's pinning: the user's original text runs, untouched, in a
session of its own where every source is a temporary view over the pinned version.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import dynamic_tables as dt
from dynamic_tables.lake.files import rows_at
from dynamic_tables.model import Pin, TableState
from listed import newest, session_like


def bag(rows: list[Any]) -> Counter[str]:
    """Rows as a bag; values by their printed form, which tells NULL, NaN and types apart."""
    return Counter(repr(tuple(row)) for row in rows)


def expected(tables: dt.DynamicTables, state: TableState) -> Counter[str]:
    """What the query gives at the cut that the store recorded."""
    assert state.build is not None
    spark = session_like(tables)
    for key, value in state.definition.settings.items():
        if spark.conf.isModifiable(key):
            spark.conf.set(key, value)
    for pin in state.build.pins:
        frame = rows_at(spark, tables.lake.location_of(pin.name), pin.version)
        visible(tables, pin, frame).createOrReplaceTempView(pin.name.name)
    return bag(spark.sql(state.definition.query).collect())


def visible(tables: dt.DynamicTables, pin: Pin, frame: Any) -> Any:
    """What users see of a source: auxiliary columns and groups that HAVING drops are hidden."""
    parent = tables.store.table_by_id(pin.dynamic_id) if pin.dynamic_id else None
    if parent is None or parent.definition.auxiliary is None:
        return frame
    if parent.definition.in_parts is not None:
        frame.createOrReplaceTempView("stored_in_parts")
        frame = frame.sparkSession.sql(parent.definition.in_parts.over("stored_in_parts"))
    if "_ivm_shown" in frame.columns:
        frame = frame.where("_ivm_shown")
    return frame.select(*[f"`{column.name}`" for column in parent.definition.columns])


def stored(tables: dt.DynamicTables, state: TableState) -> Counter[str]:
    """What a reader finds under the table's name."""
    return bag(newest(tables, tables.spark, state.definition.name.name).collect())


def check(tables: dt.DynamicTables, *names: str) -> None:
    """The equation, for some tables or for all that are loaded."""
    states = [tables.show(name) for name in names] if names else tables.list()
    for state in states:
        if state.build is not None:
            assert stored(tables, state) == expected(tables, state), state.definition.name
