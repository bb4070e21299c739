"""A private session in which one table is refreshed: compute, commit, measure."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark import StorageLevel
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from dynamic_tables.errors import Held, RefreshError
from dynamic_tables.lake import bags, catalog, jvm
from dynamic_tables.lake.base import Difference, Progress, Stamp
from dynamic_tables.lake.faults import headline
from dynamic_tables.lake.measure import Meter
from dynamic_tables.lake.pinning import PinnedQuery
from dynamic_tables.lake.pins import pin_of, unpinned_columns
from dynamic_tables.lake.places import local_path
from dynamic_tables.model import Column, Definition, Pin, Work
from dynamic_tables.names import quote
from dynamic_tables.reasons import Reason

if TYPE_CHECKING:
    from dynamic_tables.lake.delta import SparkLake

LOCK_FILE = "_dynamic_tables.lock"  # Delta and VACUUM ignore names that begin with an underscore
LOCK_POLL_S = 0.05
_location_locks: dict[str, threading.Lock] = {}
_location_locks_guard = threading.Lock()
LAID_OUT = 0  # the version of a stored table that has been made and nothing else
SMALL_CHANGES = 10_000  # rows of a difference up to which it is held in the driver
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
        self._changes: DataFrame | None = None
        self._replaced_rows: int | None = None

    # Computing

    def compute(self, definition: Definition, pins: Sequence[Pin], instant: datetime) -> SparkRows:
        """The query of a definition at a cut, with the columns it was declared with."""
        reading = self._lake.read_definition(self._session, definition)
        pins = [pin_of(pins, source) for source in definition.sources]
        query = PinnedQuery(
            self._session,
            reading,
            pins=pins,
            instant=instant,
            columns=self._changed_sources(definition, pins),
        )
        try:
            frame = query.frame(definition.query, definition.namespace)
        except AnalysisException as error:
            raise self._schema_changed(definition, headline(error)) from error
        names = [column.name for column in definition.columns]
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
        reader = self._session.read.format("delta").option("versionAsOf", pin.version)
        return reader.load(self._lake.location_of(pin.name)).columns

    def _schema_changed(self, definition: Definition, what: str) -> RefreshError:
        return RefreshError(
            f"a source no longer has what the query needs: {what}",
            reason=Reason.SOURCE_SCHEMA_CHANGED,
            about=str(definition.name),
            hint="CREATE OR ALTER DYNAMIC TABLE … with a query that fits, or give the column back",
        )

    # Committing

    def overwrite(self, rows: SparkRows, definition: Definition, stamp: Stamp) -> None:
        """Replace all rows in one commit, the schema too if the query's columns changed type."""
        standing = self._session.read.format("delta").load(definition.location)
        same_columns = catalog.columns_of(standing._jdf.schema()) == rows.columns
        untouched = stamp.base == LAID_OUT and same_columns  # nothing to replace: a cheap append
        self._replaced_rows = 0 if untouched else standing.count()  # from Delta's statistics
        writer = _numbered(rows.frame, stamp).mode("append" if untouched else "overwrite")
        if not same_columns:
            writer = writer.option("overwriteSchema", "true")
            if definition.options.partitioned_by:
                writer = writer.partitionBy(*definition.options.partitioned_by)
        writer.save(definition.location)

    def difference_size(self, rows: SparkRows, definition: Definition, base: int) -> int:
        """Compare with the stored rows as bags, keep the difference; its number of rows.

        A small one is kept in the driver: MERGE then broadcasts it instead of computing it again.
        """
        difference = bags.counted(rows.frame, self._target(definition, base))
        kept = bags.operations(difference).persist(StorageLevel.MEMORY_AND_DISK)
        few = jvm.collected(kept, at_most=SMALL_CHANGES)
        if few is None:
            self._changes = kept
            return kept.count()
        kept.unpersist()
        self._changes = few.frame
        return few.size

    def apply_difference(self, definition: Definition, stamp: Stamp) -> None:
        """One MERGE that deletes and inserts exactly what differs."""
        changes = self._changes
        assert changes is not None, "difference_size comes first"
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
        nothing = self._target(definition, stamp.base).where(F.lit(False))
        _numbered(nothing, stamp).mode("append").save(definition.location)

    def _mark_writes(self, definition: Definition, stamp: Stamp) -> None:
        """MERGE takes the pair from the session, which is ours alone and resets it."""
        conf = self._session.conf
        conf.set("spark.databricks.delta.write.txnAppId", definition.table_id)
        conf.set("spark.databricks.delta.write.txnVersion", str(stamp.sequence))
        conf.set("spark.databricks.delta.commitInfo.userMetadata", json.dumps(stamp.as_json()))

    def _target(self, definition: Definition, version: int) -> DataFrame:
        reader = self._session.read.format("delta").option("versionAsOf", version)
        return reader.load(definition.location)

    # Checking and telling

    def verify(self, rows: SparkRows, definition: Definition, version: int) -> Difference:
        """Compare the query at its cut with the stored rows, both ways."""
        difference = bags.counted(rows.frame, self._target(definition, version))
        if definition.approximate:
            difference = bags.without_rounding(difference, definition.approximate)
        difference = difference.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            here, there = F.col(bags.HERE), F.col(bags.THERE)
            totals = difference.agg(
                F.sum(F.greatest(here - there, F.lit(0))), F.sum(F.greatest(there - here, F.lit(0)))
            ).collect()[0]
            sample = [_readable(row.asDict()) for row in difference.limit(SAMPLE_ROWS).collect()]
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
            if self._changes is not None:
                self._changes.unpersist()


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


@contextmanager
def commit_lock(
    spark: SparkSession, location: str, *, about: str, wait_s: float, sleep: Callable = time.sleep
) -> Generator[None]:
    """Exclude other processes while committing to a table on local disk.

    Delta on `file:` excludes writers of one JVM only. The lock is taken inside the JVM that
    commits, so it lives exactly as long as that JVM: a lock held by Python would end before its JVM
    does. Other file systems need no lock of ours.
    """
    folder = local_path(location)
    if folder is None:
        yield
        return
    with _threads_excluded(location, about=about, wait_s=wait_s):
        yield from _file_locked(spark, folder, about=about, wait_s=wait_s, sleep=sleep)


def _held(about: str, wait_s: float) -> Held:
    return Held(
        f"somebody else has been committing to it for {wait_s:g} s",
        reason=Reason.HELD,
        about=about,
        hint="wait until it ends, or end it; then refresh again",
    )


@contextmanager
def _threads_excluded(location: str, *, about: str, wait_s: float) -> Generator[None]:
    """One thread at a time: closing a file releases all locks that its process has on it."""
    with _location_locks_guard:
        lock = _location_locks.setdefault(location, threading.Lock())
    if not lock.acquire(timeout=wait_s):
        raise _held(about, wait_s)
    try:
        yield
    finally:
        lock.release()


def _file_locked(
    spark: SparkSession, folder: Path, *, about: str, wait_s: float, sleep: Callable
) -> Generator[None]:
    file = jvm.packages(spark).java.io.RandomAccessFile(str(folder / LOCK_FILE), "rw")
    try:
        deadline = time.monotonic() + wait_s
        while (lock := _try_lock(file)) is None:
            if time.monotonic() > deadline:
                raise _held(about, wait_s)
            sleep(LOCK_POLL_S)
        try:
            yield
        finally:
            lock.release()
    finally:
        file.close()


def _try_lock(file: jvm.Java) -> jvm.Java | None:
    try:
        return file.getChannel().tryLock()
    except Py4JJavaError as error:
        if "OverlappingFileLockException" in str(error.java_exception):
            return None  # another thread of this JVM has it
        raise
