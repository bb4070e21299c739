"""How far tables have fallen behind: the first commit to a base table that they have not read.

A table's cut names the version of every base table below it, so nothing between has to be looked
at. The clock is a base table that changes all the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from dynamic_tables.definition import Source
from dynamic_tables.errors import DynamicTablesError
from dynamic_tables.graph import Graph
from dynamic_tables.lake.base import Lake, SourceState
from dynamic_tables.model import Cut, TableState


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """All base tables at one moment, and how far each table is behind them."""

    cut: Cut  # the newest version of each base table
    behind_since: Mapping[str, datetime | None]  # by table id; None: it has read everything
    below: Mapping[str, Mapping[str, int]]  # by table id: the part of the cut that counts for it


class Observer:
    """Looks at the base tables; each once."""

    def __init__(self, lake: Lake, graph: Graph, now: datetime) -> None:
        self._lake, self._graph, self._now = lake, graph, now
        self._changes: dict[tuple[str, int], datetime | None] = {}

    def look(self, states: Mapping[str, TableState]) -> Freshness:
        """Tables one of whose base tables cannot be looked at are left out."""
        sources: dict[str, Source] = {}
        for table_id in self._graph:
            sources.update(self._graph.bases(table_id))
        present = {key: state for key, source in sources.items() if (state := self._state(source))}
        seen = [key for key in self._graph if self._graph.bases(key).keys() <= present.keys()]
        below = {
            table_id: {
                present[key].source_id: present[key].version for key in self._graph.bases(table_id)
            }
            for table_id in seen
        }
        behind = {key: self._behind(key, states[key], present) for key in seen}
        versions = {state.source_id: state.version for state in present.values()}
        return Freshness(
            cut=Cut(versions=versions, instant=self._now), behind_since=behind, below=below
        )

    def _state(self, source: Source) -> SourceState | None:
        try:
            return self._lake.source_state(source)
        except DynamicTablesError:  # it is gone: refreshes of what reads it say so
            return None

    def _behind(
        self, table_id: str, state: TableState, present: Mapping[str, SourceState]
    ) -> datetime | None:
        if state.build is None:
            return state.created_at
        read = state.build.cut.versions
        found = [
            self._changed(key, source, present[key], read.get(present[key].source_id))
            for key, source in self._graph.bases(table_id).items()
        ]
        if self._graph.reads_clock(table_id):
            found.append(state.build.cut.instant)
        return min((instant for instant in found if instant is not None), default=None)

    def _changed(
        self, key: str, source: Source, present: SourceState, since: int | None
    ) -> datetime | None:
        """A table that was not read yet (it was replaced) counts as changed by its last commit."""
        start = present.version - 1 if since is None else since
        if (key, start) not in self._changes:
            found = self._lake.changed_at(source, start, present.version)
            if since is None:
                found = found or self._now
            self._changes[key, start] = found
        return self._changes[key, start]
