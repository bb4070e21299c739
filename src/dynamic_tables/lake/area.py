"""A private session in which one table is refreshed: compute, commit, measure."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable
from pyspark import StorageLevel
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from dynamic_tables.compiler.emit import WEIGHT, key_column
from dynamic_tables.compiler.plan import DeltaPlan, Situation, Tables
from dynamic_tables.definition import Column, Definition
from dynamic_tables.errors import InternalError, RefreshError
from dynamic_tables.lake import bags, catalog, jvm, parts, transaction
from dynamic_tables.lake.base import Delta, Difference, Moves, Progress, Stamp
from dynamic_tables.lake.deltas import KEYS, Feed, SparkLeaves, typed, types_of
from dynamic_tables.lake.differing import changes_by_files, has_feed
from dynamic_tables.lake.faults import SPARK_FAULTS, headline, is_feed_gone
from dynamic_tables.lake.files import rows_at
from dynamic_tables.lake.log import RENAMING_OPERATIONS, changed_rows
from dynamic_tables.lake.measure import Meter
from dynamic_tables.lake.pins import pin_of, unpinned_columns
from dynamic_tables.lake.plans import moved_names, same_types
from dynamic_tables.lake.sessions import small_queries
from dynamic_tables.model import Pin, Strategy, Work
from dynamic_tables.names import RESERVED_PREFIX, quote
from dynamic_tables.reasons import Reason

if TYPE_CHECKING:
    from dynamic_tables.lake.delta import SparkLake

LAID_OUT = 0  # the version of a stored table that has been made and nothing else
STORED = f"{RESERVED_PREFIX}stored"
MERGED = Tables(
    parts=f"{RESERVED_PREFIX}parts",
    rows=f"{RESERVED_PREFIX}grouped",
    groups=f"{RESERVED_PREFIX}groups",
    keys=KEYS,
)
SMALL_CHANGES = 10_000  # rows of a difference up to which it is held in the driver
SMALL_BYTES = 10 * 2**20
SMALL_FILES_BYTES = 2**20  # of files that differ, up to which few rows are expected of them
SAMPLE_ROWS = 20  # how many differing rows `verify` shows


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkRows:
    """The result of a query at a cut; nothing has run yet."""

    frame: DataFrame
    columns: tuple[Column, ...]


class SparkArea:
    """See `lake.base.WorkArea`."""

    def __init__(self, lake: SparkLake, session: SparkSession, label: str) -> None:
        self._lake = lake
        self._session = session
        self._meter = Meter(session, label)
        self._difference: jvm.Held | None = None
        self._only_inserts = False  # of the difference
        self._persisted: list[DataFrame] = []
        self._expects_few = False  # rows, whatever is computed from the changes
        self._compares_files = False  # instead of asking for change feeds
        self._read_files = False  # large ones, however few of their rows changed
        self._replaced_rows: int | None = None
        self._cardinality_ratio: float | None = None

    # Computing

    def compute(self, definition: Definition, pins: Sequence[Pin], instant: datetime) -> SparkRows:
        """The query of a definition at a cut, with the columns it was declared with."""
        reading = self._lake.read_definition(self._session, definition)
        pins = [pin_of(pins, source) for source in definition.sources]
        changed = self._changed_sources(definition, pins)
        query = self._lake.pinned(
            self._session, reading, definition, pins, instant, columns=changed
        )
        try:
            frame = query.frame(definition.stored_query, definition.namespace)
        except AnalysisException as error:
            raise self._schema_changed(definition, headline(error)) from error
        names = [column.name for column in definition.stored_columns]
        if [name.lower() for name in frame.columns] != [name.lower() for name in names]:
            raise self._schema_changed(definition, _column_change(names, frame.columns))
        frame = frame.toDF(*names)
        return SparkRows(frame=frame, columns=catalog.columns_of(frame._jdf.schema()))

    def _changed_sources(
        self, definition: Definition, pins: Sequence[Pin]
    ) -> dict[str, tuple[str, ...]]:
        """For sources whose columns are not those of CREATE: the columns that still count."""
        changed = {}
        for source in definition.sources:
            pin = pin_of(pins, source)
            only = unpinned_columns(source, self._columns_at(pin))
            if only is not None:
                changed[source.name.key] = only
        return changed

    def _columns_at(self, pin: Pin) -> list[str]:
        return self._frame_at(pin).columns

    def _frame_at(self, pin: Pin) -> DataFrame:
        return rows_at(self._session, self._location(pin), pin.version)

    def _schema_changed(self, definition: Definition, what: str) -> RefreshError:
        return RefreshError(
            f"a source no longer has what the query needs: {what}",
            reason=Reason.SOURCE_SCHEMA_CHANGED,
            about=str(definition.name),
            hint="CREATE OR ALTER DYNAMIC TABLE … with a query that fits, or give the column back",
        )

    def delta(
        self,
        definition: Definition,
        plan: DeltaPlan,
        strategy: Strategy,
        moves: Moves,
        base: int,
    ) -> Delta | Reason:
        """Keep what the sources' changes make of the table; a reason if they cannot be had."""
        if not same_types(definition, plan, moves, lambda pin: types_of(self._frame_at(pin))):
            return Reason.SOURCE_SCHEMA_CHANGED
        commits = self._lake.commits_of_sources(definition, moves)
        if any(commit.operation in RENAMING_OPERATIONS for commit in commits):
            return Reason.SOURCE_SCHEMA_CHANGED
        rows = changed_rows(commits)
        self._expects_few = rows is not None and rows <= SMALL_CHANGES
        try:
            return self._by_changes(definition, plan, strategy, moves, base)
        except SPARK_FAULTS as error:
            if not is_feed_gone(error):
                raise
        self._compares_files = True  # the feed was turned on later than the last refresh
        return self._by_changes(definition, plan, strategy, moves, base)

    def _by_changes(
        self,
        definition: Definition,
        plan: DeltaPlan,
        strategy: Strategy,
        moves: Moves,
        base: int,
    ) -> Delta | Reason:
        leaves = SparkLeaves(
            self._session,
            definition,
            plan,
            moves,
            feed=self._feed,
            frame_at=self._frame_at,
            hold=lambda frame: self._held(frame).frame,
        )
        now = Situation(
            leaves=leaves, moved=moved_names(definition, moves), clock_moved=moves.clock_moved
        )
        if strategy is Strategy.KEYS:
            return self._affected(definition, plan, now, leaves, base)
        if strategy is Strategy.MERGE:
            return self._merged(definition, plan, now, base)
        if strategy is Strategy.FOLD:
            return self._folded(definition, plan, now, base)
        return self._netted(definition, plan, now, strategy, base)

    def _affected(
        self,
        definition: Definition,
        plan: DeltaPlan,
        now: Situation,
        leaves: SparkLeaves,
        base: int,
    ) -> Delta | Reason:
        """`keys`: the rows of the affected keys against the stored ones."""
        found = plan.replacement(now, KEYS, definition.inexact)
        if found is None:
            return Delta(strategy=Strategy.KEYS, changes=0)
        affected = self._held(self._session.sql(found.keys))
        if self._exceeds_threshold(definition, affected):
            return Reason.ABOVE_THRESHOLD
        keys = affected.frame
        keys.createOrReplaceTempView(KEYS)
        leaves.learn(KEYS, affected)
        found = plan.replacement(now, KEYS, definition.inexact) or found
        new = typed(self._session.sql(found.rows), definition)
        stored = self._stored(definition, base)
        for n, name in enumerate(found.columns):
            near = leaves.near(KEYS, n, quote(name)).removesuffix(" AND ")
            stored = stored.where(near) if near else stored
        if found.columns:
            same = [
                F.col(f"t.{quote(name)}").eqNullSafe(F.col(f"k.{key_column(n)}"))
                for n, name in enumerate(found.columns)
            ]
            stored = stored.alias("t").join(keys.alias("k"), reduce(and_, same), "left_semi")
        return Delta(strategy=Strategy.KEYS, changes=self._keep(bags.counted(new, stored)))

    def _merged(
        self, definition: Definition, plan: DeltaPlan, now: Situation, base: int
    ) -> Delta | Reason:
        """`merge`: the new rows of the changed groups against their stored ones."""
        self._stored(definition, base).createOrReplaceTempView(STORED)
        found = plan.merge(now, MERGED, stored=STORED, types=definition.types)
        if found is None:
            return Delta(strategy=Strategy.MERGE, changes=0)
        made = self._make(MERGED.parts, found.parts, of_few=self._reads_few(plan))
        if self._exceeds_threshold(definition, made):
            return Reason.ABOVE_THRESHOLD
        stored = self._make(MERGED.rows, found.rows)
        few = made.is_local and stored.is_local
        self._make(MERGED.groups, found.groups, of_few=few)
        new = typed(self._session.sql(found.merged), definition)
        keys = self._session.sql(found.keys)
        keys.createOrReplaceTempView(MERGED.keys)
        if not _is_empty(keys):
            few = False
            new = new.unionAll(typed(self._session.sql(found.recomputed), definition))
        difference = bags.replaced(new, stored.frame, plan.group_columns())
        return Delta(strategy=Strategy.MERGE, changes=self._keep(difference, of_few=few))

    def _folded(
        self, definition: Definition, plan: DeltaPlan, now: Situation, base: int
    ) -> Delta | Reason:
        """`fold`: what the changed groups gain and lose; nothing that is stored is read."""
        found = plan.fold(now, MERGED, types=definition.types)
        if found is None:
            return Delta(strategy=Strategy.FOLD, changes=0)
        made = self._make(MERGED.parts, found.parts, of_few=self._reads_few(plan))
        new = typed(self._session.sql(found.partials), definition)
        groups = self._session.sql(found.keys)
        groups.createOrReplaceTempView(MERGED.keys)
        if _is_empty(groups):
            return Delta(strategy=Strategy.FOLD, changes=self._append_later(new, made))
        new = new.unionAll(typed(self._session.sql(found.recomputed), definition))
        assert definition.in_parts is not None
        named = groups.toDF(*definition.in_parts.keys) if definition.in_parts.keys else groups
        stored = parts.of_groups(self._stored(definition, base), named, definition.in_parts.keys)
        return Delta(strategy=Strategy.FOLD, changes=self._keep(bags.counted(new, stored)))

    def _reads_few(self, plan: DeltaPlan) -> bool:
        """Whether few changes are all that is read."""
        return self._expects_few and plan.scans == 1 and not self._read_files

    def _make(self, name: str, query: str, *, of_few: bool = False) -> jvm.Held:
        """Compute a query once, under a name."""
        made = self._held(self._session.sql(query), of_few=of_few)
        made.frame.createOrReplaceTempView(name)
        return made

    def _exceeds_threshold(self, definition: Definition, affected: jvm.Held) -> bool:
        """Whether more keys are affected than the user allows, as a share of the stored rows."""
        stored = self._lake.row_count(definition)
        if not stored:
            return False
        self._cardinality_ratio = min(1.0, affected.size / stored)
        allowed = definition.options.cardinality_threshold
        return allowed is not None and self._cardinality_ratio > allowed

    def _netted(
        self,
        definition: Definition,
        plan: DeltaPlan,
        now: Situation,
        strategy: Strategy,
        base: int,
    ) -> Delta:
        """`rows` and `append`: the signed rows by which the result changed."""
        changes = plan.changes(now)
        if changes is None:
            return Delta(strategy=strategy, changes=0)
        net = self._held(bags.netted(typed(self._session.sql(changes), definition, WEIGHT))).frame
        goes = not _is_empty(net.where(F.col(WEIGHT) < 0))
        if strategy is Strategy.APPEND and goes:
            strategy = Strategy.ROWS
        difference = bags.applied(net, self._stored(definition, base) if goes else None)
        changes = self._keep(difference)
        if goes:
            self._check_present(definition)
        return Delta(strategy=strategy, changes=changes)

    def _check_present(self, definition: Definition) -> None:
        """A row that goes must be there, as often as it goes."""
        assert self._difference is not None
        if not _is_empty(self._difference.frame.where(F.col(bags.HERE) < 0)):
            raise InternalError(
                "rows are to be deleted that the stored table does not have",
                reason=Reason.INTERNAL,
                about=str(definition.name),
                hint=f"REFRESH DYNAMIC TABLE {definition.name} FULL, and report this",
            )

    def _held(self, frame: DataFrame, *, of_few: bool = False) -> jvm.Held:
        """Compute a frame once and keep it until the area closes."""
        if self._expects_few and bags.is_flat(frame):
            with small_queries(self._session, applies=of_few):
                few = jvm.collected(frame, rows_at_most=SMALL_CHANGES)
            if few is not None:
                return few
            self._expects_few = False
        if bags.is_flat(frame):
            kept = frame.localCheckpoint(eager=True)
            return jvm.counted(kept, rows_at_most=SMALL_CHANGES)
        kept = self._persist(frame)
        return jvm.held(kept, rows_at_most=SMALL_CHANGES, bytes_at_most=SMALL_BYTES)

    def _feed(self, before: Pin, after: Pin) -> Feed:
        """The change feed between two pins, or what the files say that differ."""
        place = self._location(after)
        if self._compares_files or not has_feed(self._session, place, after.version):
            found = changes_by_files(self._session, place, before.version, after.version)
            if found.bytes_read > SMALL_FILES_BYTES:
                self._read_files, self._expects_few = True, False
            return Feed(found.rows, has_copies=True)
        reader = self._session.read.format("delta").option("readChangeFeed", "true")
        ranged = reader.option("startingVersion", before.version + 1)
        return Feed(ranged.option("endingVersion", after.version).load(place))

    def _location(self, pin: Pin) -> str:
        return self._lake.location_of(pin.name)

    # Committing

    def overwrite(self, rows: SparkRows, definition: Definition, stamp: Stamp) -> None:
        """Replace all rows in one commit, the schema too if the query's columns changed type."""
        session, place = self._session, definition.location
        standing = self._target(definition, stamp.base)
        same_columns = catalog.columns_of(standing._jdf.schema()) == rows.columns
        untouched = stamp.base == LAID_OUT and same_columns  # nothing to replace
        known = 0 if untouched else self._lake.row_count(definition)
        self._replaced_rows = standing.count() if known is None else known
        write = transaction.append if untouched else transaction.overwrite
        if same_columns and write(session, place, rows.frame, stamp):
            return
        writer = _numbered(rows.frame, stamp).mode("overwrite")
        if not same_columns:
            writer = writer.option("overwriteSchema", "true")
            if definition.options.partitioned_by:
                writer = writer.partitionBy(*definition.options.partitioned_by)
        writer.save(place)

    def difference_size(self, rows: SparkRows, definition: Definition, base: int) -> int:
        """Compare with the stored rows as bags, keep the difference; its number of rows.

        A small one is kept in the driver: MERGE then broadcasts it instead of computing it again.
        """
        stored, new = self._stored(definition, base), rows.frame
        if definition.in_parts is not None:  # groups that are the same stay as they are stored
            new = self._persist(new)
            apart = bags.counted(
                new, parts.folded(stored, definition.in_parts).select(*map(quote, new.columns))
            )
            groups = self._held(parts.groups_of(apart, definition.in_parts.keys)).frame
            stored, new = (
                parts.of_groups(r, groups, definition.in_parts.keys) for r in (stored, new)
            )
        return self._keep(bags.counted(new, stored))

    def _persist(self, frame: DataFrame) -> DataFrame:
        kept = frame.persist(StorageLevel.MEMORY_AND_DISK)
        self._persisted.append(kept)
        return kept

    def _keep(self, difference: DataFrame, *, of_few: bool = False) -> int:
        """Hold on to what differs; how many rows they are."""
        kept = self._held(difference, of_few=of_few)
        if not kept.is_local and not bags.is_flat(difference):  # must be the same each time
            kept = replace(kept, frame=kept.frame.localCheckpoint(eager=True))
        self._difference = kept
        self._only_inserts = _is_empty(kept.frame.where(F.col(bags.THERE) > F.col(bags.HERE)))
        return kept.size

    def _append_later(self, new: DataFrame, of: jvm.Held) -> int:
        """Hold on to rows that only come; they are made of what is held already."""
        if _is_empty(new):
            return 0
        self._difference = jvm.Held(bags.all_new(new), of.size, is_local=of.is_local)
        self._only_inserts = True
        return of.size

    def apply_difference(self, definition: Definition, stamp: Stamp) -> None:
        """One commit that deletes and inserts exactly what differs."""
        assert self._difference is not None, "difference_size or delta comes first"
        with small_queries(self._session, applies=self._difference.is_local):
            self._apply(self._difference, definition, stamp)

    def _apply(self, kept: jvm.Held, definition: Definition, stamp: Stamp) -> None:
        session, place = self._session, definition.location
        if self._only_inserts:
            self._replaced_rows = 0
            new = bags.inserted(kept.frame)
            if not transaction.append(session, place, new, stamp):
                _numbered(new, stamp).mode("append").save(place)
        elif not transaction.replace_rows(session, place, kept, stamp):
            if definition.in_parts is not None and self._lake.version_of(definition) != stamp.base:
                raise _compacted_meanwhile(definition)
            self._merge(definition, bags.operations(kept.frame), stamp)

    def _merge(self, definition: Definition, changes: DataFrame, stamp: Stamp) -> None:
        """One MERGE, which finds the rows to delete by their values."""
        self._mark_writes(definition, stamp)
        schema = self._target(definition, stamp.base).schema
        condition = (F.col(f"s.{bags.OPERATION}") == bags.DELETE) & bags.same_row(schema, "t", "s")
        values: dict[str, Any] = {
            quote(field.name): F.col(f"s.{quote(field.name)}") for field in schema.fields
        }
        (
            DeltaTable.forPath(self._session, definition.location)
            .alias("t")
            .merge(changes.alias("s"), condition)
            .whenMatchedDelete()
            .whenNotMatchedInsert(
                condition=F.col(f"s.{bags.OPERATION}") == bags.INSERT, values=values
            )
            .execute()
        )

    def fence(self, definition: Definition, stamp: Stamp) -> None:
        """An empty commit that takes the number n, so that a late writer of n is skipped."""
        transaction.append(self._session, definition.location, None, stamp)

    def _mark_writes(self, definition: Definition, stamp: Stamp) -> None:
        """MERGE takes the pair from the session, which is ours alone and resets it."""
        conf = self._session.conf
        conf.set("spark.databricks.delta.write.txnAppId", definition.table_id)
        conf.set("spark.databricks.delta.write.txnVersion", str(stamp.sequence))
        conf.set("spark.databricks.delta.commitInfo.userMetadata", json.dumps(stamp.as_json()))

    def _stored(self, definition: Definition, version: int) -> DataFrame:
        """The stored rows with their places."""
        return bags.placed(self._target(definition, version))

    def _target(self, definition: Definition, version: int) -> DataFrame:
        return rows_at(self._session, definition.location, version)

    # Checking and telling

    def verify(self, rows: SparkRows, definition: Definition, version: int) -> Difference:
        """Compare the query at its cut with the rows that the table shows, both ways."""
        shown = self._lake.shown(self._target(definition, version), definition)
        difference = bags.counted(rows.frame, shown)
        if definition.approximate:
            difference = bags.without_rounding(difference, definition.approximate)
        difference = difference.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            here, there = F.col(bags.HERE), F.col(bags.THERE)
            totals = difference.agg(
                F.sum(F.greatest(here - there, F.lit(0))), F.sum(F.greatest(there - here, F.lit(0)))
            ).collect()[0]
            some = difference.drop(bags.PLACES).limit(SAMPLE_ROWS).collect()
            sample = [_readable(row.asDict()) for row in some]
        finally:
            difference.unpersist()
        return Difference(missing=totals[0] or 0, unexpected=totals[1] or 0, sample=tuple(sample))

    def work(self) -> Work:
        cost = self._meter.cost()
        return Work(
            bytes_read=cost.bytes_read,
            files_read=cost.files_read,
            spark_jobs=cost.jobs,
            rows_deleted=self._replaced_rows,
            cardinality_ratio=self._cardinality_ratio,
        )

    def progress(self) -> Progress:
        return self._meter.progress()

    def cancel(self) -> None:
        self._meter.cancel()

    @contextmanager
    def open(self) -> Generator[SparkArea]:
        self._meter.start()
        try:
            yield self
        finally:
            self._meter.stop()
            for frame in self._persisted:
                frame.unpersist()


def _compacted_meanwhile(definition: Definition) -> RefreshError:
    """Parts of a group are known by their places; by their values, others would be taken."""
    return RefreshError(
        "its stored rows were rewritten while the refresh was under way",
        reason=Reason.COMMIT_FAILED,
        about=str(definition.name),
        hint="refresh again",
    )


def _is_empty(frame: DataFrame) -> bool:
    return frame.limit(1)._jdf.collectAsList().isEmpty()


def _numbered(frame: DataFrame, stamp: Stamp) -> DataFrameWriter:
    """A write that stands at most once."""
    return (
        frame.write.format("delta")
        .option("txnAppId", stamp.table_id)
        .option("txnVersion", stamp.sequence)
        .option("userMetadata", json.dumps(stamp.as_json()))
    )


def _readable(row: dict[str, Any]) -> dict[str, Any]:
    here, there = row.pop(bags.HERE), row.pop(bags.THERE)
    return {"_difference": "missing" if here > there else "unexpected", **row}


def _column_change(declared: Sequence[str], present: Sequence[str]) -> str:
    gone = [name for name in declared if name.lower() not in {p.lower() for p in present}]
    return f"column {', '.join(gone) or '(order)'} is missing from its result"
