"""The changes of a table's sources, and the stored rows that they meet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from dynamic_tables.compiler.emit import key_column
from dynamic_tables.compiler.plan import DeltaPlan, Situation
from dynamic_tables.definition import Definition
from dynamic_tables.errors import RefreshError
from dynamic_tables.lake import bags, jvm
from dynamic_tables.lake.base import Delta, Moves
from dynamic_tables.lake.deltas import Feed, SparkLeaves, typed, types_of
from dynamic_tables.lake.differing import changes_by_feed, changes_by_files
from dynamic_tables.lake.extent import Extent
from dynamic_tables.lake.faults import SPARK_FAULTS, is_feed_gone, told
from dynamic_tables.lake.files import row_count_at, rows_at
from dynamic_tables.lake.holding import Holder, Kept
from dynamic_tables.lake.log import RENAMING_OPERATIONS
from dynamic_tables.lake.plans import moved_names, same_types
from dynamic_tables.lake.pruning import Pruning
from dynamic_tables.lake.sessions import small_queries
from dynamic_tables.lake.skipping import Wanted
from dynamic_tables.lake.sources import only_come
from dynamic_tables.lake.transaction import Written, write_ahead
from dynamic_tables.model import Pin, Strategy
from dynamic_tables.names import quote
from dynamic_tables.reasons import Reason

if TYPE_CHECKING:
    from dynamic_tables.lake.delta import SparkLake

Answer = TypeVar("Answer")
TooMany = Callable[[int], bool]  # whether so many keys are to be shared among workers
SMALL_FILES_BYTES = 2**20  # of files that are read, up to which few rows are expected of them
FEW_FILES = 64  # that one task opens in turn
MET_AGAIN = frozenset({Reason.QUERY_FAILED, Reason.HISTORY_GONE})  # by the same work in two steps


@dataclass(frozen=True, slots=True)
class Found:
    """What became of the changes, and the rows by which the table is to differ."""

    delta: Delta
    kept: Kept | Written | None = None


NOTHING = Found(Delta(changes=0))


class Changes:
    """One table, its stored rows at a version, and moves of its sources."""

    def __init__(
        self,
        lake: SparkLake,
        session: SparkSession,
        holder: Holder,
        definition: Definition,
        plan: DeltaPlan,
        moves: Moves,
        base: int,
        too_many: TooMany | None = None,
    ) -> None:
        self._lake, self._session, self._holder = lake, session, holder
        self._definition, self._plan = definition, plan
        self._moves, self._base = moves, base
        self._strategy: Strategy | None = None  # by which changes are looked for
        self._known_extents: Mapping[str, Extent] | None = None
        self._compares_files = False  # instead of asking for change feeds
        self._read_files = False  # large or many ones, however few of their rows changed
        self._too_many = too_many
        self._pruning = Pruning(session)
        self.affected: DataFrame | None = None  # keys, if there are too many
        self.cardinality_ratio: float | None = None

    def _has_other_columns(self) -> bool:
        """Whether what the query reads of a source was retyped, or may be another column."""
        definition, moves = self._definition, self._moves
        if not self._lake.may_have_other_columns(definition, moves):
            return False
        if not same_types(definition, self._plan, moves, lambda pin: types_of(self._at(pin))):
            return True
        commits = self._lake.commits_of_sources(definition, moves)
        return any(commit.operation in RENAMING_OPERATIONS for commit in commits)

    def net_rows(self) -> int | None:
        """How many rows of the sources changed, without what came and went; None if nothing tells
        any more."""
        if self._has_other_columns():
            return None
        try:
            return self._from_feeds(self._count)
        except RefreshError as error:
            if error.reason is not Reason.HISTORY_GONE:
                raise
        except SPARK_FAULTS as error:
            if told(error, about=str(self._definition.name)).reason is not Reason.HISTORY_GONE:
                raise
        return None

    def _count(self) -> int:
        now, leaves = self._situation()
        return sum(self._session.table(leaves.changes(name)).count() for name in now.moved)

    def _from_feeds(self, work: Callable[[], Answer]) -> Answer:
        """Work with the change feeds; where there is none for the whole time, with the files."""
        try:
            return work()
        except SPARK_FAULTS as error:
            if not is_feed_gone(error):
                raise
        self._compares_files = True  # the feed was turned on later than the last refresh
        return work()

    def _situation(self) -> tuple[Situation, SparkLeaves]:
        leaves = SparkLeaves(
            self._session,
            self._definition,
            self._plan,
            self._moves,
            feed=self._feed,
            frame_at=self._at,
            prunes=lambda pin, one: self._pruning.pays(
                self._lake.location_of(pin.name), pin.version, one
            ),
            hold=self._holder.for_joins,
            adds_up=self._strategy in (Strategy.MERGE, Strategy.FOLD),
        )
        now = Situation(
            leaves=leaves,
            moved=moved_names(self._definition, self._moves),
            clock_moved=self._moves.clock_moved,
        )
        return now, leaves

    def _at(self, pin: Pin, wanted: Sequence[Wanted] = ()) -> DataFrame:
        return rows_at(self._session, self._lake.location_of(pin.name), pin.version, wanted)

    def _feed(self, before: Pin, after: Pin) -> Feed:
        """The change feed between two pins, or what the files say that differ."""
        place = self._lake.location_of(after.name)
        extent = self._extents()[after.name.key]
        span = place, before.version, after.version
        by_files = self._compares_files or extent.by_files
        rows = None if by_files else changes_by_feed(self._session, *span)
        if rows is None:
            found = changes_by_files(self._session, *span)
            if found.bytes_read > SMALL_FILES_BYTES:
                self._read_files, self._holder.expects_few = True, False
            return Feed(found.rows, cancels=True)
        if extent.read_bytes > SMALL_FILES_BYTES or extent.read_files > FEW_FILES:
            self._read_files = True
        elif self._holder.expects_few:
            rows = rows.coalesce(1)  # groups of one task's rows need no shuffle
        return Feed(rows, cancels=self._nets(extent))

    def _nets(self, extent: Extent) -> bool:
        """Whether changes are netted before anything is made of them: few always, many if sources
        are searched for them. Many sums are added up as fast, and rows of the result are netted."""
        if extent.one_way:
            return False
        if self._strategy in (Strategy.APPEND, Strategy.ROWS) and self._plan.monotone:
            return self._plan.scans > 1
        searches = self._strategy is Strategy.KEYS or self._plan.scans > 1
        return searches or extent.replaced or self._holder.expects_few

    def _extents(self) -> Mapping[str, Extent]:
        if self._known_extents is None:
            self._known_extents = self._lake.extents(self._definition, self._moves)
        return self._known_extents

    def _reads_few(self) -> bool:
        """Whether few changes are all that is read."""
        return self._holder.expects_few and self._plan.scans == 1 and not self._read_files

    def _stored(self, wanted: Sequence[Wanted] = ()) -> DataFrame:
        """The stored rows with their places; at least those that are wanted."""
        return bags.placed(rows_at(self._session, self._definition.location, self._base, wanted))

    def _prunes_stored(self, wanted: Wanted) -> bool:
        return self._pruning.pays(self._definition.location, self._base, wanted)

    def _typed(self, query: str, *also: str) -> DataFrame:
        return typed(self._holder.sql(query), self._definition, *also)

    def _exceeds_threshold(self, affected: jvm.Held) -> bool:
        """Whether more keys are affected than the user allows, as a share of the stored rows."""
        allowed = self._definition.options.cardinality_threshold
        stored = self._lake.row_count(self._definition)
        # Whoever names a threshold wants it kept; and beside many keys, counting costs nothing.
        if stored is None and (allowed is not None or not affected.is_local):
            stored = row_count_at(self._session, self._definition.location, self._base)
        if not stored:
            return False
        self.cardinality_ratio = min(1.0, affected.size / stored)
        return allowed is not None and self.cardinality_ratio > allowed

    def _rows_only_come(self) -> bool:
        """Whether the logs of the sources tell that rows came and nothing else happened."""
        extents = self._extents().values()
        by_feed = not self._compares_files and not any(extent.by_files for extent in extents)
        told = only_come(self._definition, self._moves, extents)
        return by_feed and told and not self._moves.clock_moved

    def _written(self, rows: DataFrame) -> Found | None:
        """Rows that only come are written while they are computed; what is left is the commit.

        None: they cannot be written like this. What the query, its data or a constraint of the
        table is to blame for is met again, by whoever computes the rows and commits them.
        """
        few = self._reads_few()
        partial, place = self._definition.in_parts is not None, self._definition.location
        with small_queries(self._session, applies=few, rows=self._holder.changed_rows):
            try:
                written = write_ahead(
                    self._session, place, self._in_few_files(rows), partial=partial
                )
            except SPARK_FAULTS as error:
                about = str(self._definition.name)
                if is_feed_gone(error) or told(error, about=about).reason not in MET_AGAIN:
                    raise
                return None
        if written is None:
            return None
        return Found(Delta(changes=written.size), written)

    def _in_few_files(self, rows: DataFrame) -> DataFrame:
        """Few rows of many tasks would be as many files, which cost every reader."""
        if not self._holder.expects_few:
            return rows
        if self._session.conf.get("spark.sql.adaptive.enabled") == "true":
            return rows.hint("rebalance")
        return rows.coalesce(1) if self._reads_few() else rows.repartition(1)

    def _found(self, difference: DataFrame, *, of_few: bool = False) -> Found:
        kept = self._holder.keep(difference, of_few=of_few)
        return Found(Delta(changes=kept.held.size), kept)


def of_keys(stored: DataFrame, keys: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Stored rows whose key is among these; a key without columns is every row's."""
    same = [
        F.col(f"t.{quote(name)}").eqNullSafe(F.col(f"k.{key_column(n)}"))
        for n, name in enumerate(columns)
    ]
    condition = reduce(and_, same, F.lit(True))
    return stored.alias("t").join(keys.alias("k"), condition, "left_semi")
