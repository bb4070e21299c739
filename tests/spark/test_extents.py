"""How much changed is told by what differs in the end, not by what happened in between."""

from __future__ import annotations

import pytest

import dynamic_tables as dt
from dynamic_tables.lake import delta
from dynamic_tables.lake.changes import Changes
from dynamic_tables.lake.deltas import Feed
from dynamic_tables.lake.maintenance import Maintenance
from dynamic_tables.model import Pin
from oracle import check

pytestmark = pytest.mark.spark

FEED = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
PLACES = 12_000  # twice as many changes as are few


@pytest.fixture(scope="module")
def lake(shared: dt.DynamicTables) -> dt.DynamicTables:
    """Many sales, whose bytes do not compress, in few places."""
    shared.sql(
        f"CREATE TABLE sales USING delta {FEED}"
        f" AS SELECT id, id % {PLACES} AS place, rand(1) AS a, rand(2) AS b FROM range(400000)"
    )
    shared.sql(
        f"CREATE TABLE places USING delta {FEED}"
        f" AS SELECT id AS place, id % 7 AS region FROM range({PLACES})"
    )
    shared.create(
        "regions",
        "SELECT p.region, count(*) AS n, min(s.id) AS first FROM sales s JOIN places p"
        " ON s.place = p.place GROUP BY p.region",
    )
    return shared


def test_an_overwrite_with_mostly_equal_rows(lake: dt.DynamicTables) -> None:
    """Most of what an overwrite says came and went is the same: it is netted, then judged."""
    lake.sql(
        "INSERT OVERWRITE places"
        " SELECT place, CASE WHEN place < 5 THEN 8 ELSE region END FROM places"
    )
    (planned,) = lake.plan("regions")
    assert (planned.reason, planned.rows) == ("CHANGED", 10)
    record = lake.refresh("regions")["regions"]
    assert (record.strategy, record.reason) == (planned.strategy, "CHANGED")
    check(lake, "regions")


def test_what_came_and_went_does_not_count(lake: dt.DynamicTables) -> None:
    version = lake.sql("DESCRIBE HISTORY places").collect()[0].version
    lake.sql("INSERT OVERWRITE places SELECT place, 9 FROM places")
    lake.sql(f"RESTORE TABLE places TO VERSION AS OF {version}")
    lake.alter("regions", refresh_mode="INCREMENTAL")  # however slow a busy machine has been
    (planned,) = lake.plan("regions")
    assert (planned.reason, planned.rows) == ("CHANGED", 0)
    record = lake.refresh("regions")["regions"]
    assert (record.strategy, record.reason) == ("no_data", "NET_EMPTY")


@pytest.mark.parametrize("strategy", ["merge", "keys"])
def test_few_rows_of_large_files_are_read_by_many_tasks(
    shared: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    """A deletion vector does not say which rows went: the files that have it are read whole."""
    name = f"large_{strategy}"
    shared.sql(
        f"CREATE TABLE {name} USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true,"
        " delta.enableDeletionVectors = true) AS SELECT /*+ REPARTITION(4) */ id, id % 90 AS k,"
        " rand(1) AS a FROM range(200000)"
    )
    shared.create(f"of_{name}", f"SELECT k, count(*) AS n, max(a) AS m FROM {name} GROUP BY k")
    feed, tasks, few = Changes._feed, [], []

    def counted(changes: Changes, before: Pin, after: Pin) -> Feed:
        told = feed(changes, before, after)
        tasks.append(told.rows.rdd.getNumPartitions())
        few.append((changes._holder.expects_few, changes._reads_few()))
        return told

    monkeypatch.setattr(Changes, "_feed", counted)
    monkeypatch.setattr(delta, "SMALL_TABLES_BYTES", 0)
    shared.spark.conf.set("spark.sql.files.minPartitionNum", "4")
    for statement in (
        f"DELETE FROM {name} WHERE id % 20000 = 7",
        f"INSERT INTO {name} VALUES (1, 1, 1)",
    ):
        shared.sql(statement)
        record = shared.refresh(f"of_{name}", strategy=strategy)[f"of_{name}"]
        assert record.strategy == strategy
    shared.spark.conf.unset("spark.sql.files.minPartitionNum")
    check(shared, f"of_{name}")
    (marked, *_), appended = tasks, tasks[-1]
    assert marked > 1
    assert (few[0], few[-1]) == ((True, False), (True, True))
    assert appended == 1


STILL = {
    "by_keys": "SELECT k, max_by(v, id) AS last FROM still GROUP BY k",
    "by_sums": "SELECT k, count(*) AS n, sum(v) AS s FROM still GROUP BY k",
    "by_join": "SELECT a.id, a.v, b.v AS w FROM still a LEFT JOIN still b ON a.id = b.k",
}


def test_changes_that_cancel_affect_nothing(
    shared: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are left out before keys are taken: all keys would be more than the threshold."""
    shared.sql(f"CREATE TABLE still (id INT, k INT, v INT, unread STRING) USING delta {FEED}")
    shared.sql("INSERT INTO still SELECT id, id % 9, id, 'a' FROM range(40)")
    for name, query in STILL.items():
        shared.create(name, query, cardinality_threshold=0.01, initialize="ON_SCHEDULE")
    shared.refresh(*STILL)

    def compare(*_: object, **__: object) -> None:
        raise AssertionError("rows were looked for")

    with monkeypatch.context() as patched:
        patched.setattr(Maintenance, "_found", compare)
        for statement in ("UPDATE still SET v = v", "UPDATE still SET unread = 'b' WHERE k < 8"):
            shared.sql(statement)
        shared.sql("INSERT INTO still VALUES (99, 99, 99, 'came')")
        shared.sql("DELETE FROM still WHERE unread = 'came'")
        found = {(r.strategy, r.reason) for r in shared.refresh(*STILL).records}
    assert found == {("no_data", "NET_EMPTY")}
    shared.sql("UPDATE still SET v = 0 WHERE id = 39")
    shared.alter("by_keys", cardinality_threshold=0.5)
    assert shared.refresh("by_keys")["by_keys"].strategy == "keys"
    check(shared, "by_keys")


def test_values_that_only_compare_equal_do_not_cancel(shared: dt.DynamicTables) -> None:
    shared.sql(f"CREATE TABLE alike (k INT, d DOUBLE) USING delta {FEED}")
    shared.sql("INSERT INTO alike VALUES (1, 0.0D), (2, 1.0D)")
    query = "SELECT k, max(CAST(d AS STRING)) AS d FROM alike GROUP BY k"
    shared.create("apart", query)
    shared.sql("UPDATE alike SET d = -d WHERE k = 1")
    assert shared.refresh("apart", strategy="keys")["apart"].work.rows_inserted == 1
    check(shared, "apart")
    assert [row.d for row in shared.read("apart").where("k = 1").collect()] == ["-0.0"]
