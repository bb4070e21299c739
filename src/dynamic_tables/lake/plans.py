"""What delta plans are made of, on every lake: names for the sources, and the text over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dynamic_tables.compiler.plan import DeltaPlan, plan_query
from dynamic_tables.compiler.refused import NotIncremental
from dynamic_tables.lake.base import Moves
from dynamic_tables.lake.pins import pin_of
from dynamic_tables.model import Definition, Pin, Source
from dynamic_tables.names import RESERVED_PREFIX, SHOWN


def source_names(definition: Definition) -> dict[str, Source]:
    """What the compiler calls the sources: names that need no quotes and hide nothing."""
    return {f"{RESERVED_PREFIX}s{n}": source for n, source in enumerate(definition.sources)}


def planned(text: str, definition: Definition, *, dialect: str) -> DeltaPlan | NotIncremental:
    """The delta plan of a query that calls its sources so."""
    schemas = {
        name: tuple(column.name.lower() for column in source.columns)
        for name, source in source_names(definition).items()
    }
    columns = [column.name for column in definition.stored_columns]
    return plan_query(text, schemas, columns=columns, dialect=dialect)


def read_columns(definition: Definition, plan: DeltaPlan, name: str) -> list[str]:
    """The columns of a source that a plan reads, as CREATE found them spelled."""
    needed = plan.reads(name)
    columns = source_names(definition)[name].columns
    return [column.name for column in columns if column.name.lower() in needed]


def same_types(
    definition: Definition,
    plan: DeltaPlan,
    moves: Moves,
    types_at: Callable[[Pin], Mapping[str, str]],  # by column, in lower case
) -> bool:
    """Whether the columns that a plan reads are of the same types before and after.

    Others may come and go; a source that was retyped is like any other after one recomputation.
    """
    for name, source in source_names(definition).items():
        before, after = (types_at(pin_of(pins, source)) for pins in (moves.before, moves.after))
        if before.get(SHOWN) != after.get(SHOWN):
            return False  # a dynamic table that was redefined: other rows of it are shown
        for column in plan.reads(name):
            if column not in after or before.get(column) != after[column]:
                return False
    return True


def moved_names(definition: Definition, moves: Moves) -> frozenset[str]:
    """The sources that changed, as the compiler calls them."""
    named = source_names(definition).items()
    return frozenset(name for name, source in named if source.name.key in moves.moved)
