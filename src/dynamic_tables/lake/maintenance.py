"""What the changes of the sources make of one table, by each strategy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from dynamic_tables.compiler.emit import WEIGHT, key_column
from dynamic_tables.compiler.joined import COMES, OLD
from dynamic_tables.compiler.merge import NEEDS_ROWS
from dynamic_tables.compiler.plan import DeltaPlan, Merge, Situation, Tables
from dynamic_tables.definition import Definition
from dynamic_tables.errors import InternalError, RefreshError
from dynamic_tables.lake import bags, holding, jvm, parts
from dynamic_tables.lake.base import Delta, Moves
from dynamic_tables.lake.deltas import KEYS, Feed, SparkLeaves, typed, types_of
from dynamic_tables.lake.differing import changes_by_files, has_feed
from dynamic_tables.lake.extent import Extent
from dynamic_tables.lake.faults import SPARK_FAULTS, is_feed_gone, told
from dynamic_tables.lake.files import rows_at
from dynamic_tables.lake.holding import (
    SIDES,
    Holder,
    Kept,
    checkpointed,
    is_empty,
    keep_computed,
)
from dynamic_tables.lake.log import RENAMING_OPERATIONS
from dynamic_tables.lake.plans import moved_names, same_types
from dynamic_tables.lake.pruning import Pruning
from dynamic_tables.lake.skipping import Wanted
from dynamic_tables.lake.slicing import Affected
from dynamic_tables.model import Pin, Strategy
from dynamic_tables.names import RESERVED_PREFIX, quote
from dynamic_tables.reasons import Reason

if TYPE_CHECKING:
    from dynamic_tables.lake.delta import SparkLake

STORED = f"{RESERVED_PREFIX}stored"
MERGED = Tables(
    parts=f"{RESERVED_PREFIX}parts",
    rows=f"{RESERVED_PREFIX}grouped",
    groups=f"{RESERVED_PREFIX}groups",
    keys=KEYS,
)
Answer = TypeVar("Answer")
TooMany = Callable[[int], bool]  # whether so many keys are to be shared among workers
MOST = 0.5  # share of the stored rows that is read from which on the others need no sorting out
SMALL_FILES_BYTES = 2**20  # of files that differ, up to which few rows are expected of them


@dataclass(frozen=True, slots=True)
class Found:
    """What became of the changes, and the rows by which the table is to differ."""

    delta: Delta
    kept: Kept | None = None


class Maintenance:
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
        self._read_files = False  # large ones, however few of their rows changed
        self._too_many = too_many
        self._pruning = Pruning(session)
        self.affected: DataFrame | None = None  # keys, if there are too many
        self.cardinality_ratio: float | None = None

    def find(self, strategy: Strategy) -> Found | Affected | Reason:
        """What the changes make of the table; a reason if they cannot be had."""
        if self._has_other_columns():
            return Reason.SOURCE_SCHEMA_CHANGED
        rows = self._lake.changed_rows(self._definition, self._moves)
        self._holder.changed_rows = rows
        self._holder.expects_few = rows is not None and rows <= holding.SMALL_CHANGES
        return self._from_feeds(lambda: self._by(strategy))

    def _has_other_columns(self) -> bool:
        """Whether what the query reads of a source was retyped, or may be another column."""
        definition, moves = self._definition, self._moves
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

    def _by(self, strategy: Strategy) -> Found | Affected | Reason:
        self._strategy = strategy
        now, leaves = self._situation()
        match strategy:
            case Strategy.KEYS:
                return self._affected(now, leaves)
            case Strategy.MERGE:
                return self._merged(now, leaves)
            case Strategy.FOLD:
                return self._folded(now)
            case _:
                return self._netted(now, strategy)

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
        by_files = self._compares_files or extent.by_files
        if by_files or not has_feed(self._session, place, after.version):
            found = changes_by_files(self._session, place, before.version, after.version)
            if found.bytes_read > SMALL_FILES_BYTES:
                self._read_files, self._holder.expects_few = True, False
            return Feed(found.rows, cancels=True)
        reader = self._session.read.format("delta").option("readChangeFeed", "true")
        ranged = reader.option("startingVersion", before.version + 1)
        rows = ranged.option("endingVersion", after.version).load(place)
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
        stored = self._lake.row_count(self._definition)
        if not stored:
            return False
        self.cardinality_ratio = min(1.0, affected.size / stored)
        allowed = self._definition.options.cardinality_threshold
        return allowed is not None and self.cardinality_ratio > allowed

    # By key

    def _affected(self, now: Situation, leaves: SparkLeaves) -> Found | Affected | Reason:
        """`keys`: the rows of the affected keys against the stored ones."""
        found = self._plan.replacement(now, KEYS, self._definition.inexact)
        if found is None:
            return _nothing(Strategy.KEYS)
        affected = self._holder.sent_along(self._holder.held(self._holder.sql(found.keys)))
        if not affected.size:
            return _nothing(Strategy.KEYS)
        affected.frame.createOrReplaceTempView(KEYS)
        if self._exceeds_threshold(affected):
            return Reason.ABOVE_THRESHOLD
        if self._too_many is not None and self._too_many(affected.size):
            self.affected = affected.frame
            return Affected(keys=affected.size)
        leaves.learn(KEYS, affected, affected.frame.columns)
        found = self._plan.replacement(now, KEYS, self._definition.inexact) or found
        stored = leaves.nearby(self._stored, KEYS, found.columns, self._prunes_stored)
        stored = of_keys(stored, affected.frame, found.columns)
        return self._found(Strategy.KEYS, bags.counted(self._typed(found.rows), stored))

    def rows_of(self, keys: DataFrame, known: Mapping[int, Sequence[Any]]) -> DataFrame:
        """The rows of some keys as they are now; `known`: all values of some key columns."""
        now, leaves = self._situation()
        for index, values in known.items():
            leaves.know(KEYS, index, values)
        keys.createOrReplaceTempView(KEYS)
        return self._typed(self._plan.rows_of(now, KEYS, self._definition.inexact))

    # By group

    def _merged(self, now: Situation, leaves: SparkLeaves) -> Found | Reason:
        """`merge`: the new rows of the changed groups against their stored ones."""
        found = self._plan.merge(now, MERGED, stored=STORED, types=self._definition.types)
        if found is None:
            return _nothing(Strategy.MERGE)
        made = self._holder.named(MERGED.parts, found.parts, of_few=self._reads_few())
        if not made.size:
            return _nothing(Strategy.MERGE)
        if self._exceeds_threshold(made):
            return Reason.ABOVE_THRESHOLD
        groups = self._plan.group_columns()
        keys = [key_column(n) for n in range(len(groups))]
        leaves.learn(MERGED.parts, made, keys)
        stored = leaves.nearby(self._stored, MERGED.parts, groups, self._prunes_stored)
        joins = found.joined and found.beside and bags.is_flat(stored)
        if joins and not made.is_local:
            self._only(stored, made, keys).createOrReplaceTempView(STORED)
            return self._joined(found)
        stored.createOrReplaceTempView(STORED)
        if joins:
            return self._joined_here(found, made, keys)
        rows = self._holder.named(MERGED.rows, found.rows)
        few = made.is_local and rows.is_local
        self._holder.named(MERGED.groups, found.groups, of_few=few)
        new = self._typed(found.merged)
        keys = self._keys_of(found)
        if not is_empty(keys):
            few = False
            self._named_keys(keys, made)
            new = new.unionAll(self._typed(found.recomputed))
        difference = bags.replaced(new, rows.frame, groups)
        return self._found(Strategy.MERGE, difference, of_few=few)

    def _only(self, stored: DataFrame, made: jvm.Held, keys: Sequence[str]) -> DataFrame:
        """Stored rows without most of those that the join would shuffle for nothing."""
        if (self.cardinality_ratio or 1.0) > MOST:
            return stored
        known = replace(made, frame=made.frame.select(*keys))
        groups = self._holder.sent_along(known, of=made.frame)
        if not groups.is_sent_along:
            return stored
        return of_keys(stored, groups.frame, self._plan.group_columns())

    def _named_keys(self, keys: DataFrame, made: jvm.Held) -> DataFrame:
        """The keys of groups that need their rows; of many it is told how many they are."""
        if not made.is_local:
            keys = self._holder.for_joins(keys)
            keys.createOrReplaceTempView(MERGED.keys)
        return keys

    def _joined_here(self, found: Merge, made: jvm.Held, columns: Sequence[str]) -> Found:
        """Few groups, each beside its stored row: what differs is made of them when it is read."""
        groups = self._beside_stored(found, made, columns)
        groups.frame.createOrReplaceTempView(MERGED.groups)
        keys = self._keys_of(found)
        come, go = bags.beside_here(self._known(found), OLD, COMES)
        if not is_empty(keys):
            return self._with_recomputed(found, groups.frame, come.unionAll(go))
        goes = not is_empty(go)
        if not goes and is_empty(come):
            return _nothing(Strategy.MERGE)
        assert groups.is_local, "they are as many as the parts"
        held = jvm.Held(come.unionAll(go), SIDES * groups.size, is_local=True)
        delta = Delta(strategy=Strategy.MERGE, changes=held.size)
        return Found(delta, Kept(held, goes=None if goes else 0))

    def _beside_stored(self, found: Merge, made: jvm.Held, columns: Sequence[str]) -> jvm.Held:
        """The parts go to the stored rows; those that find none are new groups."""
        assert found.matched is not None
        assert found.joined is not None
        stored = self._session.table(STORED)
        matched = self._holder.held(self._holder.sql(found.matched))
        if matched.size == made.size:
            return matched
        rest = without_keys(made.frame, matched.frame, columns)
        rest.createOrReplaceTempView(MERGED.parts)
        stored.limit(0).createOrReplaceTempView(STORED)
        new = self._holder.sql(found.joined)
        return self._holder.held(matched.frame.unionAll(new), of_few=True)

    def _known(self, found: Merge) -> DataFrame:
        """The groups whose values are known, each beside its stored row."""
        assert found.beside is not None
        return self._typed(found.beside, OLD, COMES)

    def _keys_of(self, found: Merge) -> DataFrame:
        """The keys of the other groups, which need their rows."""
        keys = self._holder.sql(found.keys)
        keys.createOrReplaceTempView(MERGED.keys)
        return keys

    def _joined(self, found: Merge) -> Found:
        """Many groups: each beside its stored row, in one pass over the stored table."""
        assert found.joined is not None
        groups = checkpointed(self._holder.sql(found.joined))
        groups.createOrReplaceTempView(MERGED.groups)
        known, keys = bags.beside(self._known(found), OLD, COMES), self._keys_of(found)
        with jvm.meanwhile(self._session, lambda: keep_computed(known)) as keeping:
            are_known = is_empty(keys)
        if are_known:
            differing = keeping.result()
            return Found(Delta(strategy=Strategy.MERGE, changes=differing.held.size), differing)
        self._holder.for_joins(keys).createOrReplaceTempView(MERGED.keys)
        return self._with_recomputed(found, groups, known)

    def _with_recomputed(self, found: Merge, groups: DataFrame, known: DataFrame) -> Found:
        """What differs, with the groups that are computed from their rows."""
        new = self._typed(found.recomputed)
        old = groups.where(NEEDS_ROWS).select(f"{OLD}.*").where(f"{bags.PLACE} IS NOT NULL")
        apart = bags.replaced(new, old, self._plan.group_columns())
        return self._found(Strategy.MERGE, known.unionByName(apart))

    def _folded(self, now: Situation) -> Found:
        """`fold`: what the changed groups gain and lose; nothing that is stored is read."""
        found = self._plan.fold(now, MERGED, types=self._definition.types)
        if found is None:
            return _nothing(Strategy.FOLD)
        made = self._holder.named(MERGED.parts, found.parts, of_few=self._reads_few())
        new = self._typed(found.partials)
        groups = self._holder.sql(found.keys)
        groups.createOrReplaceTempView(MERGED.keys)
        if is_empty(groups):
            return self._appended(new, made)
        groups = self._named_keys(groups, made)
        new = new.unionAll(self._typed(found.recomputed))
        in_parts = self._definition.in_parts
        assert in_parts is not None
        named = groups.toDF(*in_parts.keys) if in_parts.keys else groups
        stored = parts.of_groups(self._stored(), named, in_parts.keys)
        return self._found(Strategy.FOLD, bags.counted(new, stored))

    def _appended(self, new: DataFrame, of: jvm.Held) -> Found:
        """Rows that only come; they are made of what is held already."""
        if is_empty(new):
            return _nothing(Strategy.FOLD)
        held = jvm.Held(bags.all_new(new), of.size, is_local=of.is_local)
        return Found(Delta(strategy=Strategy.FOLD, changes=of.size), Kept(held, goes=0))

    # By row

    def _netted(self, now: Situation, strategy: Strategy) -> Found:
        """`rows` and `append`: the signed rows by which the result changed."""
        changes = self._plan.changes(now)
        if changes is None:
            return _nothing(strategy)
        held = self._holder.held(bags.netted(self._typed(changes, WEIGHT)))
        if not held.size:
            return _nothing(strategy)
        net = self._holder.sent_along(held).frame
        goes = not is_empty(net.where(F.col(WEIGHT) < 0))
        if strategy is Strategy.APPEND and goes:
            strategy = Strategy.ROWS
        found = self._found(strategy, bags.applied(net, self._stored() if goes else None))
        if goes:
            self._check_present(found)
        return found

    def _check_present(self, found: Found) -> None:
        """A row that goes must be there, as often as it goes."""
        assert found.kept is not None
        if not is_empty(found.kept.held.frame.where(F.col(bags.HERE) < 0)):
            raise InternalError(
                "rows are to be deleted that the stored table does not have",
                reason=Reason.INTERNAL,
                about=str(self._definition.name),
                hint=f"REFRESH DYNAMIC TABLE {self._definition.name} FULL, and report this",
            )

    def _found(self, strategy: Strategy, difference: DataFrame, *, of_few: bool = False) -> Found:
        kept = self._holder.keep(difference, of_few=of_few)
        return Found(Delta(strategy=strategy, changes=kept.held.size), kept)


def of_keys(stored: DataFrame, keys: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Stored rows whose key is among these; a key without columns is every row's."""
    same = [
        F.col(f"t.{quote(name)}").eqNullSafe(F.col(f"k.{key_column(n)}"))
        for n, name in enumerate(columns)
    ]
    condition = reduce(and_, same, F.lit(True))
    return stored.alias("t").join(keys.alias("k"), condition, "left_semi")


def without_keys(rows: DataFrame, keys: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Rows whose key is not among these; both have its columns."""
    same = [F.col(f"t.{name}").eqNullSafe(F.col(f"k.{name}")) for name in columns]
    return rows.alias("t").join(keys.alias("k"), reduce(and_, same), "left_anti")


def _nothing(strategy: Strategy) -> Found:
    return Found(Delta(strategy=strategy, changes=0))
