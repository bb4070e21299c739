"""The tables that queries read: where they lie, and what happened to them between versions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from pyspark.sql import SparkSession

from dynamic_tables.definition import Definition, Source
from dynamic_tables.lake import catalog, snapshots
from dynamic_tables.lake.base import Commit, Moves, Remaining, SourceState
from dynamic_tables.lake.extent import NONE, Extent, extent_of
from dynamic_tables.lake.files import rows_at
from dynamic_tables.lake.log import SCHEMA_OPERATIONS, commits_between
from dynamic_tables.lake.pins import pin_of, remaining
from dynamic_tables.lake.plans import groups_change
from dynamic_tables.model import Pin, utc_now
from dynamic_tables.names import TableName


class SourceTables:
    """Sources by their names; those that are dynamic tables may be stored elsewhere."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._locations: dict[str, str] = {}  # by name key

    def source_state(self, source: Source) -> SourceState:
        if source.hidden is None:
            return self._state(source.name)
        self._locations[source.name.key] = source.hidden.location
        return catalog.state_at(self.spark, source.name, source.hidden.location)

    def present(self, source: Source) -> SourceState:
        """The same as it was found last, where it was: neither catalog nor log are asked again."""
        place = source.hidden.location if source.hidden else self.location_of(source.name)
        return catalog.known_state(self.spark, source.name, place)

    def bytes_at(self, pin: Pin) -> int:
        log = snapshots.delta_log_by_path(self.spark, self.location_of(pin.name))
        return snapshots.table_bytes(snapshots.snapshot_at(self.spark, log, pin.version))

    def _state(self, name: TableName) -> SourceState:
        state = catalog.state(self.spark, name)
        self._locations[name.key] = state.location
        return state

    def location_of(self, name: TableName) -> str:
        if name.key not in self._locations:
            self._state(name)
        return self._locations[name.key]

    def moved(self, source: Source, since: int, to: int) -> bool:
        """Whether rows or columns changed between two versions; a gap in the log counts as yes."""
        if since == to:
            return False
        if since > to:
            return True
        commits = self.source_commits(source, since, to)
        return len(commits) < to - since or any(
            commit.changes_data or commit.operation in SCHEMA_OPERATIONS for commit in commits
        )

    def changed_at(self, source: Source, since: int, to: int) -> datetime | None:
        """When the first commit in (since, to] that changed rows or columns was made.

        None: none did. What the log no longer tells counts as a change at its oldest commit.
        """
        if since == to:
            return None
        commits = self.source_commits(source, min(since, to - 1), to)
        gone = since > to or len(commits) < to - since
        changing = [
            commit
            for commit in reversed(commits)
            if gone or commit.changes_data or commit.operation in SCHEMA_OPERATIONS
        ]
        if not changing:
            return None
        return next((c.committed_at for c in changing if c.committed_at), utc_now())

    def source_commits(self, source: Source, since: int, to: int) -> tuple[Commit, ...]:
        """What happened to a source in (since, to], newest first; what is left of it."""
        location = source.hidden.location if source.hidden else self.location_of(source.name)
        return commits_between(self.spark, location, since, to)

    def commits_of_sources(self, definition: Definition, moves: Moves) -> list[Commit]:
        """What happened to all sources between their pins."""
        return [c for source in definition.sources for c in self.commits_of(source, moves)]

    def commits_of(self, source: Source, moves: Moves) -> tuple[Commit, ...]:
        old, new = pin_of(moves.before, source), pin_of(moves.after, source)
        return self.source_commits(source, old.version, new.version)

    def may_have_other_columns(self, definition: Definition, moves: Moves) -> bool:
        """Whether a commit between the pins has a word about columns, or the log has a gap."""
        for source in definition.sources:
            commits = self.commits_of(source, moves)
            span = pin_of(moves.after, source).version - pin_of(moves.before, source).version
            if len(commits) != span or any(commit.redefines for commit in commits):
                return True
        return False

    def extents(self, definition: Definition, moves: Moves) -> dict[str, Extent]:
        """How much of each source changed between its pins, by name key."""
        return {source.name.key: self._extent(source, moves) for source in definition.sources}

    def rows_only_come(self, definition: Definition, moves: Moves) -> bool:
        """Whether the logs tell that rows of the sources came and nothing else happened."""
        return only_come(definition, moves, self.extents(definition, moves).values())

    def _extent(self, source: Source, moves: Moves) -> Extent:
        commits = self.commits_of(source, moves)
        if not commits:
            return NONE
        span = (pin_of(moves.before, source).version, pin_of(moves.after, source).version)
        present = self.present(source)
        return extent_of(self.spark, present.location, span, commits, has_feed=present.has_feed)

    def remaining_columns(self, definition: Definition, pins: Sequence[Pin]) -> Remaining:
        def columns_at(pin: Pin) -> list[str]:
            return rows_at(self.spark, self.location_of(pin.name), pin.version).columns

        return remaining(definition, pins, columns_at)


def only_come(definition: Definition, moves: Moves, extents: Iterable[Extent]) -> bool:
    """The same of extents that are known."""
    return all(e.only_adds for e in extents) and not groups_change(definition, moves)
