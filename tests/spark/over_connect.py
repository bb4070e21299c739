"""What a client of Spark Connect does: `rorder` by Spark's own writer. Prints what it saw as JSON.

A process of its own: a server of Spark Connect starts in it, and tests have a classic session.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import dynamic_tables as dt
from dynamic_tables.lake import jars
from dynamic_tables.settings import load_settings


def started() -> SparkSession:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    found = jars.cached_jars(load_settings({}, environment=dict(os.environ), folder=Path()))
    settings = {
        "spark.driver.extraClassPath": os.pathsep.join(found),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.shuffle.partitions": "1",
        "spark.ui.enabled": "false",
    }
    builder = SparkSession.builder.remote("local[2]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def refused(spark: SparkSession, place: str, **how: str) -> str:
    try:
        dt.rorder(place, **how, spark=spark)
    except dt.DynamicTablesError as error:
        return f"{type(error).__name__} {error.reason}"
    return "accepted"


def main(folder: Path) -> None:
    spark, place = started(), f"{folder}/events"
    spark.sql(
        f"CREATE TABLE delta.`{place}` USING delta TBLPROPERTIES"
        " (delta.enableChangeDataFeed = true) AS"
        " SELECT id * 7919 % 20 AS k, id, repeat('x', 50) AS filler FROM range(4000)"
    ).collect()
    before = sorted(spark.read.format("delta").load(place).collect())
    settings = spark.conf.getAll
    report = dt.rorder(place, unique_by="k", engine="native", rows_per_row_group=200, spark=spark)
    rows = spark.read.format("delta").load(place)
    changes = spark.sql(f"SELECT * FROM table_changes_by_path('{place}', {report.version})")
    [file] = {Path(path.removeprefix("file:")) for path in rows.inputFiles()}
    footer = pq.read_metadata(file)
    unknown = refused(spark, place, unique_by="nope", engine="native")
    rows.cache()
    print(json.dumps({
        "session": type(spark).__module__,
        "engine": report.engine,
        "same_rows": sorted(rows.collect()) == before,
        "changes": changes.count(),
        "row_groups": footer.num_row_groups,
        "values": [footer.row_group(n).column(0).statistics.min for n in range(20)],
        "settings_changed": sorted(dict(spark.conf.getAll.items() ^ settings.items())),
        "no_such_column": unknown,
        "cached": refused(spark, place, unique_by="k", engine="native"),
        "arrow": refused(spark, place, unique_by="k"),
    }))  # fmt: skip
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
