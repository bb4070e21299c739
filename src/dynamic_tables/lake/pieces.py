"""In how many pieces a table is stored: asked after every refresh, so without a job if it goes."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from dynamic_tables.lake import snapshots
from dynamic_tables.lake.jvm import Java
from dynamic_tables.lake.row_groups.order import PARTIAL

SMALL_FILE_BYTES = 32 * 2**20  # one of the bounds of Delta's histogram
ROWS = "CAST(get_json_object(stats, '$.numRecords') AS BIGINT)"
STANDING = f"{ROWS} - coalesce(deletionVector.cardinality, 0)"


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


def partial_rows(spark: SparkSession, snapshot: Java) -> tuple[int, int]:
    """How many rows stand, and how many of them in files of partial ones.

    The checksum names few files; of a table that has more, one Spark job reads the log.
    """
    listed = snapshots.all_files(snapshot)
    if listed is None:
        return _rows_by_log(spark, snapshot)
    rows = [
        (snapshots.rows_in(f) or 0, PARTIAL in (f.get("tags") or ()))
        for f in snapshots.described(spark, listed)
    ]
    return sum(count for count, _ in rows), sum(count for count, partial in rows if partial)


def _rows_by_log(spark: SparkSession, snapshot: Java) -> tuple[int, int]:
    files = DataFrame(snapshot.allFiles().toDF(), spark)
    partial = f"tags['{PARTIAL}'] IS NOT NULL"
    both = files.selectExpr(f"sum({STANDING})", f"sum({STANDING}) FILTER (WHERE {partial})")
    rows, parts = both.collect()[0]
    return rows or 0, parts or 0
