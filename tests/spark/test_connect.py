"""Sessions: embedded lakes that come back, the user's session that stays untouched, lost stores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

import dynamic_tables as dt
from dynamic_tables.lake import differing, embedded
from dynamic_tables.store import open_store
from oracle import bag

pytestmark = pytest.mark.spark


def test_an_embedded_lake_comes_back(
    open_lake: Callable[..., dt.DynamicTables], tmp_path: Path
) -> None:
    """Tables, views, schemas and dynamic tables are there again in the next process."""
    first = open_lake()
    first.sql("CREATE SCHEMA sales")
    first.sql("CREATE TABLE sales.orders (id INT) USING delta")
    first.sql("INSERT INTO sales.orders VALUES (1), (2)")
    first.sql(f"CREATE TABLE elsewhere (id INT) USING delta LOCATION '{tmp_path}/elsewhere'")
    first.sql("CREATE VIEW big (n) AS SELECT id FROM sales.orders WHERE id > 1")
    for name, query in {
        "sales.counted": "SELECT count(*) AS n FROM sales.orders",
        "from_view": "SELECT n FROM big",
    }.items():
        first.create(name, query, initialize="ON_SCHEDULE")
    first.refresh()
    first.close()

    again = open_lake()
    assert bag(again.read("sales.counted").collect()) == bag([(2,)])
    assert again.spark.sql("SELECT n FROM big").collect()[0].n == 2
    assert again.spark.catalog.tableExists("elsewhere")
    again.sql("INSERT INTO sales.orders VALUES (3)")
    again.refresh()
    assert bag(again.read("sales.counted").collect()) == bag([(3,)])
    assert bag(again.read("from_view").collect()) == bag([(2,), (3,)])
    again.sql("DROP TABLE elsewhere")
    place = tmp_path / "lake" / "warehouse"
    again.drop("sales.counted")
    again.drop("from_view")
    again.sql("DROP VIEW big")
    again.sql("DROP TABLE sales.orders")  # a managed table: its files go too
    assert not list(place.glob("sales.db/*"))
    again.close()
    third = open_lake()
    assert not third.spark.catalog.tableExists("elsewhere")
    assert (tmp_path / "elsewhere").exists()


def test_the_store_of_another_lake_is_left_alone(
    open_lake: Callable[..., dt.DynamicTables], tmp_path: Path
) -> None:
    """A store has the catalog of its lake: with another one, statements would change that."""
    first = open_lake()
    first.sql("CREATE TABLE orders (id INT) USING delta")
    first.create("counted", "SELECT count(*) AS n FROM orders")
    first.close()
    other = f"sqlite:///{tmp_path}/other.db"
    with pytest.raises(dt.DynamicTablesError, match="the store knows no table") as lost:
        open_lake(store=other)
    assert lost.value.reason is dt.Reason.STORE_MISSING
    with open_store(other) as store:
        assert not store.registry_all()
    with pytest.raises(dt.DynamicTablesError, match="tables of another one") as foreign:
        open_lake("fresh", store=first.store.url)
    assert foreign.value.reason is dt.Reason.STORE_MISSING
    assert not (tmp_path / "fresh").exists()


def test_the_users_session_stays_as_it_is(shared: dt.DynamicTables, tmp_path: Path) -> None:
    """connect(spark=…): refreshes run in sessions of their own, under the settings of CREATE."""
    spark = embedded.new_session(shared.spark.sparkContext, (tmp_path / "wh").as_uri())
    with pytest.raises(dt.SetupError) as caught:
        dt.connect(spark=spark)
    assert caught.value.reason is dt.Reason.STORE_MISSING
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    spark.sql("CREATE SCHEMA mine")
    spark.sql("USE mine")
    spark.sql("CREATE TABLE stamps (at TIMESTAMP, d INT) USING delta")
    spark.sql("INSERT INTO stamps VALUES (TIMESTAMP'2026-01-01 23:00:00Z', 0)")
    before = (spark.conf.getAll, spark.catalog.currentDatabase())
    tables = dt.connect(spark=spark, store=f"sqlite:///{tmp_path}/store.db", say=lambda _: None)
    query = "SELECT date(at) AS day, 1 / d AS q FROM stamps"
    tables.create("days", query)
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    spark.conf.set("spark.sql.ansi.enabled", "true")
    spark.sql("USE default")
    tables.refresh("mine.days", strategy="full")
    row = spark.table("mine.days").collect()[0]
    assert (str(row.day), row.q) == ("2026-01-02", None)  # Tokyo's day, no ANSI: as declared
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    spark.sql("USE mine")
    assert (spark.conf.getAll, spark.catalog.currentDatabase()) == before
    tables.close()


def test_connect_sessions_are_refused_by_name() -> None:
    connect_session = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(dt.SetupError) as caught:
        dt.connect(spark=connect_session, store="sqlite:///x.db")  # type: ignore[arg-type]
    assert caught.value.reason is dt.Reason.CONNECT_UNSUPPORTED


class WithoutDelta:
    """A session of the user whose JVM has no Delta: where its packages would be, there are none."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.version = spark.version

    @property
    def _jvm(self) -> Any:
        return SimpleNamespace(io=self._spark._jvm.nowhere)


def test_a_session_without_delta_is_told_what_repairs_it(shared: dt.DynamicTables) -> None:
    with pytest.raises(dt.SetupError) as caught:
        dt.connect(spark=WithoutDelta(shared.spark), store="sqlite:///x.db")  # type: ignore[arg-type]
    assert caught.value.reason is dt.Reason.DELTA_MISSING
    assert caught.value.exit_code == 2
    assert f"--packages {embedded.DELTA_PACKAGE}" in (caught.value.hint or "")


def test_another_version_is_refused(
    shared: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(embedded.TESTED, "delta-spark", "9.9.9")
    with pytest.raises(dt.SetupError) as caught:
        dt.connect(spark=shared.spark, store="sqlite:///x.db")
    assert caught.value.reason is dt.Reason.VERSION_UNTESTED
    assert "9.9.9" in str(caught.value)


def test_another_signature_is_refused(
    shared: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A method of the same name would fail in the first refresh only."""
    monkeypatch.setattr(differing, "TOLD_BY_FEED", (*differing.TOLD_BY_FEED, "boolean"))
    with pytest.raises(dt.SetupError) as caught:
        dt.connect(spark=shared.spark, store="sqlite:///x.db")
    assert caught.value.reason is dt.Reason.VERSION_UNTESTED
    assert "changesToBatchDF takes (org.apache.spark.sql.delta.DeltaLog,long," in str(caught.value)
