"""What the states of the sources mean for a definition, on every lake."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from dynamic_tables.definition import Column, Source, ViewUse
from dynamic_tables.lake.base import DynamicSources, SourceState
from dynamic_tables.model import Pin
from dynamic_tables.names import TableName


class View(Protocol):
    """A view as the catalog of any lake has it."""

    @property
    def name(self) -> TableName: ...
    @property
    def text(self) -> str: ...
    @property
    def namespace(self) -> tuple[str, str]: ...
    @property
    def columns(self) -> tuple[str, ...]: ...
    @property
    def query_columns(self) -> tuple[str, ...]: ...
    @property
    def settings(self) -> Mapping[str, str]: ...
    @property
    def types(self) -> tuple[str, ...]: ...


def view_uses(views: Iterable[View]) -> tuple[ViewUse, ...]:
    """The views below a query, with all that decides what they mean, settings included."""
    return tuple(
        ViewUse(
            name=view.name,
            text=view.text,
            namespace=view.namespace,
            columns=view.columns,
            query_columns=view.query_columns,
            settings=dict(view.settings),
            types=view.types,
        )
        for view in sorted(views, key=lambda item: item.name.key)
    )


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
