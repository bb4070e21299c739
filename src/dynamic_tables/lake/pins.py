"""What pins mean for the sources of a definition, on every lake."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from dynamic_tables.definition import Definition, Hidden, Source
from dynamic_tables.errors import InternalError, RefreshError
from dynamic_tables.lake.base import DynamicSource, Remaining
from dynamic_tables.model import Pin
from dynamic_tables.reasons import Reason


def unpinned_columns(source: Source, present: Sequence[str]) -> tuple[str, ...] | None:
    """The columns that a changed source may show; None if it has just those of CREATE."""
    frozen = [column.name for column in source.columns]
    if source.hidden and source.hidden.in_parts:
        return tuple(frozen)  # what is stored is not what is shown
    if [name.lower() for name in present] == [name.lower() for name in frozen]:
        return None
    there = {name.lower() for name in present}
    return tuple(name for name in frozen if name.lower() in there)


def remaining(
    definition: Definition, pins: Sequence[Pin], columns_at: Callable[[Pin], Sequence[str]]
) -> Remaining:
    """For pinned sources whose columns are not those of CREATE: the columns that still count."""
    found = {}
    for source in definition.sources:
        pin = next((pin for pin in pins if _is_of(pin, source)), None)
        only = unpinned_columns(source, columns_at(pin)) if pin is not None else None
        if only is not None:
            found[source.name.key] = only
    return found


def lost_columns(definition: Definition, changed: Remaining) -> list[tuple[Source, str]]:
    """What sources had at CREATE and no longer have."""
    return [
        (source, column.name)
        for source in definition.sources
        for column in source.columns
        if column.name not in changed.get(source.name.key, (column.name,))
    ]


def schema_changed(
    definition: Definition, changed: Remaining, what: str | None = None
) -> RefreshError:
    """The sources no longer have what the query needs; `what` says how the engine puts it."""
    lost = [
        f"{source.name} has no column {column} any more"
        for source, column in lost_columns(definition, changed)
    ]
    return RefreshError(
        f"a source no longer has what the query needs: {'; '.join(filter(None, [*lost, what]))}",
        reason=Reason.SOURCE_SCHEMA_CHANGED,
        about=str(definition.name),
        hint=f"CREATE OR ALTER DYNAMIC TABLE {definition.name} with a query that fits (`*` over a "
        "view means its columns of now), or give the column back",
    )


def column_change(declared: Sequence[str], present: Sequence[str]) -> str | None:
    """How the columns of a result differ from those declared; None if they do not."""
    wanted, there = ([name.lower() for name in names] for names in (declared, present))
    if wanted == there:
        return None
    gone = [name for name in declared if name.lower() not in there]
    if gone:
        return f"column {', '.join(gone)} is missing from its result"
    return f"its result has the columns {', '.join(present)} instead of {', '.join(declared)}"


def pin_of(pins: Sequence[Pin], source: Source) -> Pin:
    """The pin of a source; a dynamic one is known by its id, whatever it is called now."""
    for pin in pins:
        if _is_of(pin, source):
            return pin if pin.name == source.name else replace(pin, name=source.name)
    raise InternalError("a source has no pin", reason=Reason.INTERNAL, about=str(source.name))


def _is_of(pin: Pin, source: Source) -> bool:
    if source.dynamic_id is not None:
        return pin.dynamic_id == source.dynamic_id
    return pin.name.key == source.name.key


Known = Mapping[str, Source | DynamicSource]  # by name key


def known_sources(definition: Definition) -> Known:
    return {source.name.key: source for source in definition.sources}


def shown_columns(sources: Known) -> dict[str, tuple[str, ...]]:
    """For sources that hide columns: those that they show."""
    return {
        key: tuple(column.name for column in source.columns)
        for key, source in sources.items()
        if source.hidden
    }


def hidden_sources(sources: Known) -> dict[str, Hidden]:
    """The sources whose name is a view, by name key."""
    return {key: source.hidden for key, source in sources.items() if source.hidden}
