"""What a driver does on an object store: `rorder` by both engines. Prints what it saw as JSON.

A process of its own: its JVM has Hadoop's file system for S3, which comes from Maven Central. The
store is the emulator that the environment names; nothing else is asked, not even for credentials.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.sql import SparkSession

import dynamic_tables as dt
from dynamic_tables.lake import jars
from dynamic_tables.lake.embedded import QUICK_JVM, SMALL_QUERIES
from dynamic_tables.settings import load_settings
from dynamic_tables.steps import AnyStep, LayoutStep, observing

SDK_VERSION = "2.35.4"  # what hadoop-aws 3.5.0 was built with
SDK = "software.amazon.awssdk"
LAKE = "s3a://lake"
ODD = "odd %20#ü"  # a folder; what a URI cannot have as it is


def hadoop_version() -> str:
    [jar] = jars.spark_jars().glob("hadoop-client-api-*.jar")
    return jar.stem.removeprefix("hadoop-client-api-")


def packages() -> dict[str, str]:
    """Three modules of Amazon's SDK, 20 MB: the bundle of all of them would be 690."""
    wanted = [f"org.apache.hadoop:hadoop-aws:{hadoop_version()}"]
    wanted += [f"{SDK}:{module}:{SDK_VERSION}" for module in ("s3", "s3-transfer-manager", "sts")]
    settings = load_settings({}, environment=dict(os.environ), folder=Path())
    kept = jars.jar_folder(settings).with_name(f"hadoop-aws-{hadoop_version()}")
    print(f"downloading to {kept}, unless they are there: {', '.join(wanted)}", file=sys.stderr)
    return {
        "spark.jars.packages": ",".join(wanted),
        "spark.jars.excludes": f"{SDK}:bundle",
        "spark.jars.ivy": str(kept),
        "spark.driver.extraClassPath": os.pathsep.join(jars.cached_jars(settings)),
    }


def started(folder: Path) -> SparkSession:
    s3a = {
        "endpoint": os.environ["AWS_ENDPOINT_URL"],
        "endpoint.region": os.environ["AWS_REGION"],
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
        "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        "access.key": os.environ["AWS_ACCESS_KEY_ID"],
        "secret.key": os.environ["AWS_SECRET_ACCESS_KEY"],
        "buffer.dir": f"{folder}/uploads",
    }
    settings = {
        **packages(),
        **SMALL_QUERIES,
        **{f"spark.hadoop.fs.s3a.{key}": value for key, value in s3a.items()},
        "spark.master": "local[2]",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": QUICK_JVM,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.warehouse.dir": f"{LAKE}/warehouse",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


class Table:
    """One with odd partition values, a change feed and deleted rows."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self.spark, self.folder, self.place = spark, folder, f"{LAKE}/{folder}"
        self.run(
            "CREATE TABLE {table} (k INT, id LONG, filler STRING, p STRING) USING delta"
            " PARTITIONED BY (p) TBLPROPERTIES"
            " (delta.enableChangeDataFeed = true, delta.enableDeletionVectors = true)"
        )
        self.add(0, 2000)
        self.add(2000, 4000)
        self.run("DELETE FROM {table} WHERE id % 3 = 0")

    def run(self, statement: str) -> None:
        self.spark.sql(statement.replace("{table}", f"delta.`{self.place}`")).collect()

    def add(self, start: int, stop: int) -> None:
        self.run(
            "INSERT INTO {table} SELECT id * 7919 % 20, id, repeat('x', 50),"
            f" IF(id % 2 = 0, 'a/b=c %', 'ü:?') FROM range({start}, {stop})"
        )

    def rows(self, where: str = "true") -> Counter[str]:
        return Counter(
            map(str, self.spark.read.format("delta").load(self.place).where(where).collect())
        )

    def version(self) -> int:
        return self.spark.sql(f"DESCRIBE HISTORY delta.`{self.place}` LIMIT 1").head()[0]

    def changes(self, version: int | None) -> int:
        return self.spark.sql(
            f"SELECT * FROM table_changes_by_path('{self.place}', {version})"
        ).count()

    def objects(self) -> set[str]:
        """All that lies there; markers of folders are none."""
        inside = fs.FileSelector(f"lake/{self.folder}", recursive=True)
        found = store().get_file_info(inside)
        return {info.path for info in found if info.type == fs.FileType.File}

    def row_groups(self) -> list[tuple[int, int]]:
        """The least and the greatest key of each."""
        found = []
        for row in self.spark.read.format("delta").load(self.place).selectExpr(
            "_metadata.file_path AS path"
        ).distinct().collect():  # fmt: skip
            name = row.path.rpartition("/")[2]
            [path] = [path for path in self.objects() if path.endswith(name)]
            footer = pq.read_metadata(path, filesystem=store())
            for number in range(footer.num_row_groups):
                told = footer.row_group(number).column(0).statistics
                found.append((told.min, told.max))
        return sorted(found)


def store() -> fs.FileSystem:
    return fs.FileSystem.from_uri("s3://lake")[0]


def ordered(table: Table, **how: object) -> dict[str, object]:
    """What `rorder` makes of it: the same rows for everybody, in other files."""
    conditions = ("k = 8", "k = 7 AND p = 'ü:?'", "k > 17 AND id < 300", "k IS NULL")
    before, found = table.rows(), [table.rows(condition) for condition in conditions]
    report = dt.rorder(table.place, unique_by="k", spark=table.spark, **how)
    groups = table.row_groups()
    return {
        "engine": report.engine,
        "same_rows": table.rows() == before and before.total() == 2666,
        "same_answers": [table.rows(condition) for condition in conditions] == found,
        "changes": table.changes(report.version),
        "row_groups": len(groups),
        "widest": max(greatest - least for least, greatest in groups),
    }


def refused(table: Table, endpoint: str) -> dict[str, object]:
    """Executors that reach the store by another way than Spark does, or not at all."""
    executors = table.spark.sparkContext.environment
    before, version = table.objects(), table.version()
    executors["AWS_ENDPOINT_URL"] = endpoint
    try:
        dt.rorder(table.place, unique_by="k", spark=table.spark)
    except dt.Refused as error:
        print(error, file=sys.stderr)
        return {
            "reason": error.reason,
            "cause": [
                word for word in ("ACCESS_DENIED", "NETWORK_CONNECTION") if word in str(error)
            ],
            "names_native": "engine='native'" in (error.hint or ""),
            "untouched": table.objects() == before and table.version() == version,
        }
    finally:
        del executors["AWS_ENDPOINT_URL"]
    return {}


def meanwhile(table: Table) -> dict[str, object]:
    """Rows come, and others go, between the reading and the commit."""
    before = table.rows()

    def somebody(step: AnyStep, _name: str) -> None:
        if step is LayoutStep.VERIFIED:
            table.add(5000, 5010)
            table.run("DELETE FROM {table} WHERE id = 4")

    with observing(somebody):
        report = dt.rorder(table.place, unique_by="k", spark=table.spark)
    after = table.rows()
    return {
        "became": sorted(part.became for part in report.partitions),
        "came": (after - before).total(),
        "went": (before - after).total(),
    }


def kept_up_to_date(spark: SparkSession, folder: Path) -> dict[str, object]:
    """A dynamic table on the store, in the order of its option."""
    tables = dt.connect(
        spark=spark, warehouse=f"{LAKE}/dynamic", store=f"sqlite:///{folder}/store.db"
    )
    tables.sql(f"CREATE TABLE orders USING delta LOCATION '{LAKE}/orders' AS"
               " SELECT id % 5 AS k, id AS v FROM range(100)")  # fmt: skip
    tables.sql("CREATE DYNAMIC TABLE totals ROW_GROUPS BY (k) AS"
               " SELECT k, sum(v) AS v, count(*) AS n FROM orders GROUP BY k")  # fmt: skip
    tables.sql("INSERT INTO orders VALUES (2, 1000), (9, 1)")
    tables.refresh("totals")
    tables.sql("OPTIMIZE DYNAMIC TABLE totals")
    found = sorted(map(tuple, tables.sql("SELECT * FROM totals").collect()))
    wanted = "SELECT k, sum(v) AS v, count(*) AS n FROM orders GROUP BY k"
    same = found == sorted(map(tuple, tables.sql(wanted).collect()))
    tables.close()
    return {"rows": len(found), "same_rows": same}


def main(folder: Path, nobody: str, forbidden: str) -> None:
    spark = started(folder)
    arrow = Table(spark, ODD)
    closed = {
        "unreachable": refused(arrow, nobody),
        "forbidden": refused(arrow, forbidden),
    }
    print(json.dumps({
        **closed,
        "native": ordered(Table(spark, "native"), engine="native", rows_per_row_group=100),
        "arrow": ordered(arrow),
        "again": dt.rorder(arrow.place, unique_by="k", spark=spark).version,
        "meanwhile": meanwhile(Table(spark, "meanwhile")),
        "dynamic": kept_up_to_date(spark, folder),
    }))  # fmt: skip
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
