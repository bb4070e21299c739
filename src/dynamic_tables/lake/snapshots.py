"""What Delta's log knows of a table: its versions, properties, files and committed numbers.

Wherever the checksum of a version tells it, a question costs no Spark job.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from dynamic_tables.lake import jvm
from dynamic_tables.lake.jvm import DELTA, Java


def delta_log_by_name(spark: SparkSession, name_sql: str) -> Java:
    """Delta's log of a table in a catalog; raises AnalysisException if it is none."""
    for_name = jvm.static(spark, "io.delta.tables.DeltaTable", "forName")
    return for_name(spark._jsparkSession, name_sql).table().deltaLog()


def delta_log_by_path(spark: SparkSession, path: str) -> Java:
    for_table = jvm.static(spark, f"{DELTA}.DeltaLog", "forTable")
    return for_table(spark._jsparkSession, path)


def delta_log_of(spark: SparkSession, catalog_table: Java) -> Java:
    """Delta's log of a table as Spark's own catalog knows it."""
    for_table = jvm.static(spark, f"{DELTA}.DeltaLog", "forTable")
    return for_table(spark._jsparkSession, catalog_table)


def newest_snapshot(spark: SparkSession, log: Java) -> Java:
    """The table as it is now (the log is listed; no Spark job while checksums are written)."""
    none = jvm.some(spark, None)
    return log.update(False, none, none)


def known_snapshot(spark: SparkSession, log: Java) -> Java:
    """The table as it was when this process last looked: what is pinned, or newer; no listing."""
    known = log.unsafeVolatileSnapshot()
    return known if known.version() >= 0 else newest_snapshot(spark, log)


def table_property(snapshot: Java, key: str) -> str | None:
    """A property of a table; a place without a table has none."""
    if snapshot.version() < 0:
        return None
    return jvm.option(snapshot.metadata().configuration().get(key))


def has_feed(snapshot: Java) -> bool:
    """Whether the table writes a change feed."""
    return table_property(snapshot, "delta.enableChangeDataFeed") == "true"


def snapshot_at(spark: SparkSession, log: Java, version: int) -> Java:
    """The table as of a version; no Spark job."""
    known = log.unsafeVolatileSnapshot()
    none = jvm.some(spark, None)
    return known if known.version() == version else log.getSnapshotAt(version, none, none, False)


def table_bytes(snapshot: Java) -> int:
    """The size of a table's files; from the checksum file if there is one, which costs no job."""
    checksum = jvm.option(snapshot.checksumOpt())
    return checksum.tableSizeBytes() if checksum is not None else snapshot.sizeInBytes()


def kept_ms(spark: SparkSession, log: Java, metadata: Java) -> int:
    """For how long removed files and old commits are kept, the shorter of both."""
    files = jvm.static(spark, f"{DELTA}.DeltaLog", "tombstoneRetentionMillis")(metadata)
    return min(files, log.deltaRetentionMillis(metadata))


def file_count(snapshot: Java) -> tuple[int, int]:
    """How many files a table has, and their bytes; none if no checksum tells."""
    checksum = jvm.option(snapshot.checksumOpt())
    return (checksum.numFiles(), checksum.tableSizeBytes()) if checksum is not None else (0, 0)


def size_histogram(spark: SparkSession, snapshot: Java) -> dict[int, int] | None:
    """How many files begin at which size, in order, from the checksum; None if it does not tell."""
    checksum = jvm.option(snapshot.checksumOpt())
    found = jvm.option(checksum.fileSizeHistogram()) if checksum is not None else None
    if found is None:
        return None
    bounds = found.sortedBinBoundaries().mkString(",").split(",")
    counts = jvm.static(spark, "java.util.Arrays", "toString")(found.fileCounts())[1:-1].split(",")
    return dict(zip(map(int, bounds), map(int, counts), strict=True))


def all_files(snapshot: Java) -> Java | None:
    """The files of a table, from its checksum, which costs no job; None if it does not tell: it
    names the files of tables that have few."""
    checksum = jvm.option(snapshot.checksumOpt())
    return jvm.option(checksum.allFiles()) if checksum is not None else None


def described(spark: SparkSession, files: Java) -> list[dict[str, Any]]:
    """Files as the log describes them, in one answer: one by one, each takes several."""
    mapper = jvm.static(spark, f"{DELTA}.util.JsonUtils", "mapper")()
    return json.loads(mapper.writeValueAsString(files))


def rows_in(described_file: Mapping[str, Any]) -> int | None:
    """The rows of a file that are not gone; None: it has no statistics.

    >>> rows_in({"stats": '{"numRecords": 9}', "deletionVector": {"cardinality": 2}}), rows_in({})
    (7, None)
    """
    there = json.loads(described_file.get("stats") or "{}").get("numRecords")
    gone = (described_file.get("deletionVector") or {}).get("cardinality", 0)
    return None if there is None else there - gone


def row_count(spark: SparkSession, snapshot: Java) -> int | None:
    """The rows of a table, as far as is known without a job: a file may lack statistics."""
    files = all_files(snapshot)
    if files is None:
        return None
    counts = [rows_in(file) for file in described(spark, files)]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def transaction_version(snapshot: Java, app_id: str) -> int | None:
    """The newest number that an application has committed, by Delta's transaction identifiers."""
    checksum = jvm.option(snapshot.checksumOpt())
    kept = jvm.option(checksum.setTransactions()) if checksum is not None else None
    if kept is None:  # no checksum file: Delta replays the log in a Spark job
        return jvm.option(snapshot.transactions().get(app_id))
    for transaction in jvm.items(kept):
        if transaction.appId() == app_id:
            return transaction.version()
    return None
