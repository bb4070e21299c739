"""What delta plans are made of, on every lake: names for the sources, and the text over them."""

from __future__ import annotations

from dynamic_tables.compiler.plan import DeltaPlan, plan_query
from dynamic_tables.compiler.refused import NotIncremental
from dynamic_tables.lake.base import Moves
from dynamic_tables.model import Definition, Source
from dynamic_tables.names import RESERVED_PREFIX


def source_names(definition: Definition) -> dict[str, Source]:
    """What the compiler calls the sources: names that need no quotes and hide nothing."""
    return {f"{RESERVED_PREFIX}s{n}": source for n, source in enumerate(definition.sources)}


def planned(text: str, definition: Definition, *, dialect: str) -> DeltaPlan | NotIncremental:
    """The delta plan of a query that calls its sources so."""
    schemas = {
        name: tuple(column.name.lower() for column in source.columns)
        for name, source in source_names(definition).items()
    }
    columns = [column.name for column in definition.columns]
    return plan_query(text, schemas, columns=columns, dialect=dialect)


def moved_names(definition: Definition, moves: Moves) -> frozenset[str]:
    """The sources that changed, as the compiler calls them."""
    named = source_names(definition).items()
    return frozenset(name for name, source in named if source.name.key in moves.moved)
