"""Row groups of a fixed number of rows, by Spark's own writer and Delta's documented options.

Nothing here reaches into the JVM, so it works wherever Delta's own `overwrite` does. The price: a
value begins and ends anywhere in a row group, there is one transaction for all partitions, and rows
are compared after the commit, not before: the versions before and after it must be the same bag.
The frame that is written must stay lazy and without a version, so that Delta knows what was read
and refuses if somebody takes rows away meanwhile; what is only added stays.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from dynamic_tables.errors import DynamicTablesError, InternalError, InvalidInput, Refused
from dynamic_tables.lake.faults import SPARK_FAULTS, headline, is_conflict, told
from dynamic_tables.lake.row_groups import verifying
from dynamic_tables.lake.row_groups.files import PARTITION
from dynamic_tables.lake.row_groups.refusals import ranged_column
from dynamic_tables.lake.row_groups.schemas import leaf_count
from dynamic_tables.lake.row_groups.sizes import TASK_BYTES
from dynamic_tables.names import RESERVED_PREFIX, quote
from dynamic_tables.reasons import Reason

ROW_LIMIT = "parquet.block.row.count.limit"  # rows of a row group; read from the session
ALWAYS_NUMBERED = "DELTA_IDENTITY_COLUMNS_EXPLICIT_INSERT_NOT_SUPPORTED"  # Delta's error
# Small row groups pack worse: zstd makes up for it. Timestamps of 96 bits have no bounds.
PACKED = {
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
# Delta's own ideas of files, of the session or the table, would end the order that was just made.
AS_SORTED = {
    "spark.databricks.delta.optimizeWrite.enabled": "false",
    "spark.databricks.delta.autoCompact.enabled": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """A table, as DESCRIBE DETAIL tells it."""

    location: str
    partition_columns: tuple[str, ...]
    files: int
    size: int
    features: frozenset[str]


class NativeTable:
    """A table that Spark writes anew."""

    def __init__(self, spark: SparkSession, relation: str, *, name: str) -> None:
        self._spark, self.name = spark, name
        self.detail = self._described(relation)
        self._location = self.detail.location
        self.columns: StructType = self._read().schema
        if "rowTracking" in self.detail.features:
            raise Refused(
                "the table feature 'rowTracking' does not go with the engine `native`: all rows"
                " would get new row ids",
                reason=Reason.TABLE_FEATURE,
                about=name,
                hint="engine='arrow' keeps them",
            )

    def _described(self, relation: str) -> Detail:
        try:
            row = self._spark.sql(f"DESCRIBE DETAIL {relation}").collect()[0]
        except SPARK_FAULTS as error:
            raise InvalidInput(
                headline(error), reason=Reason.UNKNOWN_SOURCE, about=self.name
            ) from error
        return Detail(
            location=row.location,
            partition_columns=tuple(row.partitionColumns),
            files=row.numFiles,
            size=row.sizeInBytes,
            features=frozenset(row.tableFeatures or ()),
        )

    def _read(self, version: int | None = None) -> DataFrame:
        reader = self._spark.read.format("delta")
        reader = reader.option("versionAsOf", version) if version is not None else reader
        return reader.load(self._location)

    def count(self) -> int:
        """From Delta's statistics, where they are complete."""
        return self._read().count()

    def count_partitions(self) -> int:
        """Each has files of its own."""
        columns = [quote(name) for name in self.detail.partition_columns]
        return self._read().select(*columns).distinct().count() if columns else 1

    def now(self) -> Detail:
        """The table as it is afterwards."""
        return self._described(f"delta.{quote(self._location)}")

    @property
    def leaf_count(self) -> int:
        return sum(map(leaf_count, self.columns)) - len(self.detail.partition_columns)

    def ranged_column(self) -> str:
        return ranged_column(self.detail.partition_columns, self.name)

    def rewrite(
        self, unique_by: str, sort_by: Sequence[str], where: str | None, rows_per_row_group: int
    ) -> int:
        """Write the rows in order; the new version comes back."""
        self._check_where(where)
        rows = self._read()
        self._check_not_cached(rows)
        order = [quote(name) for name in (*self.detail.partition_columns, unique_by)]
        try:
            rows = rows.where(where) if where is not None else rows
            in_order = rows.repartitionByRange(self._tasks(), *order).sortWithinPartitions(
                *order, *map(quote, sort_by)
            )
            in_order.schema  # noqa: B018  Spark Connect looks at columns only when it is asked
        except SPARK_FAULTS as error:
            raise InvalidInput(
                headline(error), reason=Reason.BAD_COLUMNS, about=self.name
            ) from error
        self._check_not_cached(rows)
        mark = f"{RESERVED_PREFIX}{uuid.uuid4().hex}"
        write = in_order.write.format("delta").mode("overwrite").option("dataChange", "false")
        write = write.option("userMetadata", mark).option("optimizeWrite", "false")
        write = write.option("replaceWhere", where) if where is not None else write
        with _settings(self._spark, {**PACKED, **AS_SORTED, ROW_LIMIT: str(rows_per_row_group)}):
            self._saved(write)
        version = self._version_of(mark)
        self._verify(version)
        return version

    def _check_where(self, where: str | None) -> None:
        """Delta would replace single rows by a condition on others, which readers would see."""
        if where is None:
            return
        parts = [self.columns[name] for name in self.detail.partition_columns]
        try:
            nothing = self._spark.createDataFrame([], StructType(parts))
            nothing.where(where).schema  # noqa: B018  analyses the condition
        except SPARK_FAULTS as error:
            raise InvalidInput(
                f"only partition columns choose whole files: {headline(error)}",
                reason=Reason.BAD_COLUMNS,
                about=f"where {where!r}",
                hint=f"partition columns: {', '.join(self.detail.partition_columns) or 'none'}",
            ) from error

    def _check_not_cached(self, rows: DataFrame) -> None:
        """Spark would write the rows that it holds, though the table may have others by now."""
        if rows.storageLevel != StorageLevel.NONE:
            raise Refused(
                "this session has cached its rows, which may be older than the table",
                reason=Reason.CONTRADICTION,
                about=self.name,
                hint="UNCACHE TABLE …, or frame.unpersist(), and run it again",
            )

    def _saved(self, write: DataFrameWriter) -> None:
        try:
            write.save(self._location)
        except SPARK_FAULTS as error:
            if not is_conflict(error):
                raise self._failed(error) from error
            raise Refused(
                "somebody else changed the table meanwhile; nothing was committed",
                reason=Reason.COMMIT_FAILED,
                about=self.name,
                hint="run it again, or use engine='arrow', which leaves out what was changed",
            ) from error

    def _failed(self, error: BaseException) -> DynamicTablesError:
        if ALWAYS_NUMBERED not in str(error):
            return told(error, about=self.name)
        return Refused(
            f"Spark's own writer cannot keep the numbers of identity columns: {headline(error)}",
            reason=Reason.TABLE_FEATURE,
            about=self.name,
            hint="engine='arrow' keeps them",
        )

    def _tasks(self) -> int:
        return max(-(-self.detail.size // TASK_BYTES), 1)

    def _version_of(self, mark: str) -> int:
        """Our commit, whoever else commits before and after it."""
        history = self._spark.sql(f"DESCRIBE HISTORY delta.{quote(self._location)}")
        ours = history.where(F.col("userMetadata") == mark).select("version").collect()
        if not ours:
            raise Refused(
                "Delta skipped the write",
                reason=Reason.COMMIT_FAILED,
                about=self.name,
                hint="unset spark.databricks.delta.write.txnAppId and .txnVersion in the session",
            )
        return ours[0].version

    def _verify(self, version: int) -> None:
        before, after = (
            self._read(number).withColumn(PARTITION, F.lit(0)) for number in (version - 1, version)
        )
        if verifying.differing(before, after, self.columns):
            raise InternalError(
                f"version {version} has other rows than version {version - 1}",
                reason=Reason.INTERNAL,
                about=self.name,
                hint=f"RESTORE TABLE delta.{quote(self._location)} TO VERSION AS OF {version - 1},"
                " and please report this",
            )


@contextmanager
def _settings(spark: SparkSession, wanted: Mapping[str, str]) -> Generator[None]:
    """The user's session as it was, afterwards: Spark Connect has no private ones."""
    before = spark.conf.getAll  # those that are set; `get` also knows what others would be
    for key, value in wanted.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key in wanted:
            spark.conf.set(key, before[key]) if key in before else spark.conf.unset(key)
