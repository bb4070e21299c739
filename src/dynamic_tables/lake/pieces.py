"""In how many pieces a table is stored: asked after every refresh, so without a job if it goes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from dynamic_tables.lake import snapshots
from dynamic_tables.lake.jvm import Java
from dynamic_tables.lake.row_groups.order import PARTIAL

SMALL_FILE_BYTES = 32 * 2**20  # one of the bounds of Delta's histogram
ROWS = "CAST(get_json_object(stats, '$.numRecords') AS BIGINT)"
STANDING = f"{ROWS} - coalesce(deletionVector.cardinality, 0)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """How much of a table that is stored in parts is partial."""

    rows: int
    partial_rows: int  # of them
    partial_files: int  # in the partition that has most of them


def small_files(spark: SparkSession, snapshot: Java) -> int:
    """How many files are small, by the histogram of sizes in the checksum.

    Without one, all or none, by their average size.
    """
    histogram = snapshots.size_histogram(spark, snapshot)
    if histogram is None:
        files, size = snapshots.file_count(snapshot)
        return files if size < files * SMALL_FILE_BYTES else 0
    ends = [*histogram][1:]  # every bin reaches to the next one
    counts = zip(ends, histogram.values(), strict=False)
    return sum(count for end, count in counts if end <= SMALL_FILE_BYTES)


def parts(spark: SparkSession, snapshot: Java) -> Parts:
    """How many rows stand, and how many of them in files of partial ones.

    The checksum names few files; of a table that has more, one Spark job reads the log.
    """
    listed = snapshots.all_files(snapshot)
    if listed is None:
        return _parts_by_log(spark, snapshot)
    files = snapshots.described(spark, listed)
    partial = [file for file in files if PARTIAL in (file.get("tags") or ())]
    by_partition = Counter(str(sorted(file["partitionValues"].items())) for file in partial)
    return Parts(
        rows=sum(snapshots.rows_in(file) or 0 for file in files),
        partial_rows=sum(snapshots.rows_in(file) or 0 for file in partial),
        partial_files=max(by_partition.values(), default=0),
    )


def _parts_by_log(spark: SparkSession, snapshot: Java) -> Parts:
    files = DataFrame(snapshot.allFiles().toDF(), spark)
    partial = f"FILTER (WHERE tags['{PARTIAL}'] IS NOT NULL)"
    by_partition = files.groupBy(F.expr("to_json(partitionValues)")).agg(
        F.expr(f"sum({STANDING})"),
        F.expr(f"sum({STANDING}) {partial}"),
        F.expr(f"count(*) {partial}"),
    )
    found = [[number or 0 for number in counts] for _, *counts in by_partition.collect()]
    return Parts(
        rows=sum(rows for rows, _, _ in found),
        partial_rows=sum(rows for _, rows, _ in found),
        partial_files=max((files for _, _, files in found), default=0),
    )
