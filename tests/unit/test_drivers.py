"""Where two drivers may lose each other's commits: what Delta goes by, not what a session says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from dynamic_tables.lake.delta import SparkLake

SAFE = "io.delta.storage.S3DynamoDBLogStore"
S3A = "spark.delta.logStore.s3a.impl"
S3 = ("s3://", "s3a://", "s3n://")


def lake(warehouse: str | None, started_with: dict[str, str], session: dict[str, str]) -> SparkLake:
    context = SimpleNamespace(getConf=lambda: started_with)  # `get` takes a default, as a dict's
    conf = {"spark.sql.warehouse.dir": "file:/spark-warehouse", **started_with, **session}
    java = SimpleNamespace(sparkContext=lambda: context)
    spark = SimpleNamespace(conf=conf, _jsparkSession=java)
    return SparkLake(cast("Any", spark), warehouse=warehouse, lock_wait_s=1.0)


@pytest.mark.parametrize(
    ("warehouse", "started_with", "expected"),
    [
        ("s3a://bucket/lake", {}, ("",)),
        ("s3a://bucket/lake", {S3A: SAFE}, ("s3://", "s3n://")),
        ("s3a://bucket/lake", {"spark.delta.logStore.s3.impl": SAFE}, ("",)),
        ("s3a://bucket/lake", {"spark.delta.logStore.class": SAFE}, ()),
        ("s3a://bucket/lake", {S3A: "io.delta.storage.S3SingleDriverLogStore"}, ("",)),
        ("file:/data/lake", {}, S3),
        (None, {}, S3),
        (None, {"spark.sql.warehouse.dir": "s3a://bucket/lake"}, ("",)),
    ],
)
def test_where_one_driver_is_admitted(
    warehouse: str | None, started_with: dict[str, str], expected: tuple[str, ...]
) -> None:
    assert lake(warehouse, started_with, {}).one_driver_at == expected


def test_a_log_store_that_only_the_session_names_is_not_used_by_delta() -> None:
    assert lake("s3a://bucket/lake", {}, {S3A: SAFE}).one_driver_at == ("",)
