"""What the states of the sources mean for a definition, on every lake."""

from __future__ import annotations

from collections.abc import Sequence

from dynamic_tables.definition import Column, Source
from dynamic_tables.lake.base import DynamicSources, SourceState
from dynamic_tables.model import Pin
from dynamic_tables.names import TableName


def source_of(name: TableName, state: SourceState, dynamic: DynamicSources) -> Source:
    declared = dynamic.get(name.key)
    if declared is None:
        return Source(name=name, columns=state.columns)
    return Source(
        name=name,
        columns=declared.columns,
        dynamic_id=declared.table_id,
        hidden=declared.hidden,
    )


def pin_now(name: TableName, state: SourceState) -> Pin:
    return Pin(name=name, source_id=state.source_id, version=state.version, latest=state.version)


def approximate(columns: Sequence[Column], *, sums_floats: bool) -> tuple[str, ...]:
    """Columns that may hold floating aggregates, whose last digits differ between runs."""
    return tuple(column.name for column in columns if column.floating) if sums_floats else ()
