"""What delta plans are made of, on every lake: names for the sources, and the text over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from dynamic_tables.compiler.plan import DeltaPlan, plan_query
from dynamic_tables.compiler.refused import NotIncremental, unfaithful
from dynamic_tables.definition import Definition, Source
from dynamic_tables.lake.base import Moves
from dynamic_tables.lake.pins import pin_of
from dynamic_tables.model import Pin
from dynamic_tables.names import RESERVED_PREFIX, SHOWN


def source_names(definition: Definition) -> dict[str, Source]:
    """What the compiler calls the sources: names that need no quotes and hide nothing."""
    return {f"{RESERVED_PREFIX}s{n}": source for n, source in enumerate(definition.sources)}


@dataclass(frozen=True, slots=True)
class Opaque:
    """A query with the compiler's names instead of its tables."""

    text: str
    check_faithful: Callable[[], None]  # raises NotIncremental if the engine reads it otherwise


class Plans:
    """The delta plans of a lake's tables, each made once in the life of a process."""

    def __init__(
        self,
        opaque: Callable[[Definition], AbstractContextManager[Opaque]],
        *,
        dialect: str,
        refusals: type[Exception],  # what the engine raises at a text that it cannot analyse
        headline: Callable[[BaseException], str],
    ) -> None:
        self._opaque = opaque
        self._dialect = dialect
        self._refusals, self._headline = refusals, headline
        self._made: dict[str, DeltaPlan | NotIncremental] = {}  # by what they are built from

    def of(self, definition: Definition) -> DeltaPlan | NotIncremental:
        if definition.built_from not in self._made:
            self._made[definition.built_from] = self._make(definition)
        return self._made[definition.built_from]

    def _make(self, definition: Definition) -> DeltaPlan | NotIncremental:
        try:
            with self._opaque(definition) as query:
                plan = self._planned(query.text, definition)
                if isinstance(plan, DeltaPlan):
                    query.check_faithful()
        except NotIncremental as reason:
            return reason
        except self._refusals as error:
            return unfaithful(self._headline(error))
        return plan

    def _planned(self, text: str, definition: Definition) -> DeltaPlan | NotIncremental:
        schemas = {
            name: {column.name.lower(): column.type for column in source.columns}
            for name, source in source_names(definition).items()
        }
        columns = [column.name for column in definition.stored_columns]
        return plan_query(text, schemas, columns=columns, dialect=self._dialect)


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
    """Whether the columns that a plan reads are the same ones, of the same types, before and after.

    Others may come and go; a source that was retyped is like any other after one recomputation.
    """
    for name, source in source_names(definition).items():
        then, now = (pin_of(pins, source) for pins in (moves.before, moves.after))
        if then.version == now.version:
            continue  # what a build could read then can be read now
        before, after = types_at(then), types_at(now)
        if before.get(SHOWN) != after.get(SHOWN):
            return False  # a dynamic table that was redefined: other rows of it are shown
        for column in plan.reads(name):
            if column not in after or before.get(column) != after[column]:
                return False
    return True


def groups_change(definition: Definition, moves: Moves) -> bool:
    """Whether a source that is stored in parts got some: its rows only come, but what readers see
    of a group becomes another row."""
    return any(
        source.name.key in moves.moved and source.hidden is not None and source.hidden.in_parts
        for source in definition.sources
    )


def moved_names(definition: Definition, moves: Moves) -> frozenset[str]:
    """The sources that changed, as the compiler calls them."""
    named = source_names(definition).items()
    return frozenset(name for name, source in named if source.name.key in moves.moved)
