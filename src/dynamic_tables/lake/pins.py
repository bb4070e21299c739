"""What pins mean for the sources of a definition, on every lake."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dynamic_tables.definition import Definition, Hidden, Source
from dynamic_tables.errors import InternalError
from dynamic_tables.lake.base import DynamicSource
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


def pin_of(pins: Sequence[Pin], source: Source) -> Pin:
    """The pin of a source; a dynamic one is known by its id, whatever it is called now."""
    for pin in pins:
        same = pin.dynamic_id == source.dynamic_id if source.dynamic_id else False
        if same or (source.dynamic_id is None and pin.name.key == source.name.key):
            return pin if pin.name == source.name else replace(pin, name=source.name)
    raise InternalError("a source has no pin", reason=Reason.INTERNAL, about=str(source.name))


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
