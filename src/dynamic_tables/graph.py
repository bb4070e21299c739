"""Which dynamic table reads which: order, ancestors, children. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

from dynamic_tables.definition import Definition, Source
from dynamic_tables.errors import InvalidInput
from dynamic_tables.reasons import Reason


class Graph:
    """The dynamic tables and their dependencies, by table id."""

    def __init__(self, definitions: Iterable[Definition]) -> None:
        self._definitions = {definition.table_id: definition for definition in definitions}
        self._children: dict[str, list[str]] = {key: [] for key in self._definitions}
        for definition in self._definitions.values():
            for parent in dict.fromkeys(definition.parents):
                self._children[parent].append(definition.table_id)

    def __str__(self) -> str:
        """One line a table, parents before children."""
        return "\n".join(map(self._line, self.order(self))) or "no dynamic tables yet"

    def _line(self, table_id: str) -> str:
        definition = self._definitions[table_id]
        sources = ", ".join(str(source.name) for source in definition.sources)
        return f"{definition.name} reads {sources or 'no table'}"

    def __getitem__(self, table_id: str) -> Definition:
        return self._definitions[table_id]

    def __contains__(self, table_id: str) -> bool:
        return table_id in self._definitions

    def __iter__(self) -> Iterator[str]:
        return iter(self._definitions)

    @property
    def definitions(self) -> Mapping[str, Definition]:
        return self._definitions

    def parents(self, table_id: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._definitions[table_id].parents))

    def children(self, table_id: str) -> tuple[str, ...]:
        return tuple(self._children[table_id])

    def ancestors(self, table_ids: Iterable[str]) -> set[str]:
        """Every dynamic table that these read, directly or not; themselves not included."""
        return self._reach(table_ids, self.parents)

    def descendants(self, table_ids: Iterable[str]) -> set[str]:
        """Every dynamic table that reads these, directly or not."""
        return self._reach(table_ids, self.children)

    @staticmethod
    def _reach(table_ids: Iterable[str], step: Callable[[str], tuple[str, ...]]) -> set[str]:
        reached: set[str] = set()
        pending = [near for table_id in table_ids for near in step(table_id)]
        while pending:
            table_id = pending.pop()
            if table_id not in reached:
                reached.add(table_id)
                pending.extend(step(table_id))
        return reached

    def order(self, table_ids: Iterable[str]) -> list[str]:
        """Parents before children; among equals, by name."""
        wanted = set(table_ids)
        sorter = TopologicalSorter({key: set(self.parents(key)) & wanted for key in wanted})
        sorter.prepare()
        ordered: list[str] = []
        while sorter.is_active():
            ready = sorted(sorter.get_ready(), key=lambda key: self._definitions[key].name.key)
            ordered += ready
            sorter.done(*ready)
        return ordered

    def bases(self, table_id: str) -> dict[str, Source]:
        """The base tables below a table, by name key."""
        found: dict[str, Source] = {}
        for key in {table_id} | self.ancestors([table_id]):
            for source in self._definitions[key].sources:
                if source.dynamic_id is None:
                    found[source.name.key] = source
        return found

    def reads_clock(self, table_id: str) -> bool:
        """Whether the table's rows depend on the time, directly or through its sources."""
        keys = {table_id} | self.ancestors([table_id])
        return any(self._definitions[key].reads_clock for key in keys)

    def check_no_cycle(self, changed: Definition) -> None:
        """Refuse a definition that would make a table read itself."""
        definitions = {**self._definitions, changed.table_id: changed}
        parents = {key: set(definition.parents) for key, definition in definitions.items()}
        try:
            TopologicalSorter(parents).prepare()
        except CycleError as error:
            names = [str(definitions[key].name) for key in reversed(error.args[1])]
            raise InvalidInput(
                f"the table would read itself: {' reads '.join(names)}",
                reason=Reason.CYCLE,
                about=str(changed.name),
                hint="a dynamic table can read only tables that do not read it",
            ) from error
