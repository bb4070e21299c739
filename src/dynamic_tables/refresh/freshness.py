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
from dynamic_tables.refresh.refusals import engine_gone

BROKEN_LOGS = (OSError, ValueError)  # a log that may not be read, or is no JSON


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
        """A table one of whose base tables cannot be looked at counts as behind: its refresh will
        say what is wrong."""
        sources: dict[str, Source] = {}
        for table_id in self._graph:
            sources.update(self._graph.bases(table_id))
        present = {key: state for key, source in sources.items() if (state := self._state(source))}
        below = {
            table_id: {
                present[key].source_id: present[key].version
                for key in self._graph.bases(table_id)
                if key in present
            }
            for table_id in self._graph
        }
        behind = {key: self.behind_since(key, states[key], present) for key in self._graph}
        versions = {state.source_id: state.version for state in present.values()}
        return Freshness(
            cut=Cut(versions=versions, instant=self._now), behind_since=behind, below=below
        )

    def is_behind(self, state: TableState) -> bool:
        """Whether a base table of this one changed since its rows were computed."""
        table_id = state.definition.table_id
        bases = self._graph.bases(table_id).items()
        present = {key: found for key, source in bases if (found := self._state(source))}
        return self.behind_since(table_id, state, present) is not None

    def _state(self, source: Source) -> SourceState | None:
        try:
            return self._lake.source_state(source)
        except (DynamicTablesError, *self._lake.faults, *BROKEN_LOGS):
            self._check_engine()
            return None  # refreshes of what reads it say so

    def _check_engine(self) -> None:
        """To a dead engine every table would seem to have changed."""
        if not self._lake.is_alive():
            raise engine_gone("worker")

    def behind_since(
        self, table_id: str, state: TableState, present: Mapping[str, SourceState]
    ) -> datetime | None:
        """What is known to be unread stays so until a refresh has read it: nothing is looked up."""
        if state.behind_since is not None:
            return state.behind_since
        if state.build is None:
            return state.created_at
        redefined = state.build.fingerprint != state.definition.built_from  # and not loaded since
        if redefined or not self._graph.bases(table_id).keys() <= present.keys():
            return self._now
        read = state.build.cut.versions
        found = [
            self._changed(key, source, present[key], read.get(present[key].source_id))
            for key, source in self._graph.bases(table_id).items()
        ]
        if self._graph.reads_clock(table_id):
            found.append(state.build.cut.instant)
        known = [min(instant, self._now) for instant in found if instant is not None]
        return min(known, default=None)

    def _changed(
        self, key: str, source: Source, present: SourceState, since: int | None
    ) -> datetime | None:
        """A table that was not read yet (it was replaced) counts as changed by its last commit."""
        start = present.version - 1 if since is None else since
        if (key, start) not in self._changes:
            try:
                found = self._lake.changed_at(source, start, present.version)
            except (DynamicTablesError, *self._lake.faults, *BROKEN_LOGS):
                self._check_engine()
                found = self._now
            if since is None:
                found = found or self._now
            self._changes[key, start] = found
        return self._changes[key, start]
