"""A graph at one cut, on Spark: what the lake itself must get right.

The semantics of graphs, failures and cuts do not depend on the lake: tests/ducklake has them all,
in a fraction of the time.
"""

from __future__ import annotations

import os
import threading

import pytest

import dynamic_tables as dt
from dynamic_tables.lake import jvm
from dynamic_tables.lake.deltas import SparkLeaves
from dynamic_tables.steps import Step, observing
from oracle import bag, check

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def diamond(shared: dt.DynamicTables) -> dt.DynamicTables:
    """`low` and `high` read `base`; `joined` reads both and the base table."""
    shared.sql("CREATE TABLE src (id INT, v INT) USING delta")
    shared.sql("INSERT INTO src VALUES (1, 10), (2, 20), (3, NULL)")
    shared.create("base", "SELECT id, v FROM src", initialize="ON_SCHEDULE")
    shared.create("low", "SELECT id, v FROM base WHERE v < 15", initialize="ON_SCHEDULE")
    shared.create("high", "SELECT id, v FROM base WHERE v >= 15", initialize="ON_SCHEDULE")
    shared.create(
        "joined",
        "SELECT s.id, l.v AS low, h.v AS high FROM src s LEFT JOIN low l ON l.id = s.id "
        "LEFT JOIN high h ON h.id = s.id",
        initialize="ON_SCHEDULE",
    )
    assert not shared.spark.catalog.tableExists("base")  # declared, not loaded
    return shared


def test_a_moved_row_reaches_every_table_at_one_cut(diamond: dt.DynamicTables) -> None:
    """`base` goes ahead and writes only what changed; readers may not mix. `low` and `high` follow
    and meet at a barrier in the middle of their refresh: independent branches run at once."""
    diamond.refresh()
    diamond.sql("UPDATE src SET v = 30 WHERE id = 1")
    diamond.sql("DELETE FROM src WHERE id = 3")
    planned = diamond.plan()
    assert len(planned) == 4
    assert all(row.rows and row.estimate and row.estimate.bytes for row in planned)
    base = diamond.refresh("base")["base"]
    assert (base.work.rows_deleted, base.work.rows_inserted) == (2, 1)
    assert base.work.spark_jobs
    assert base.work.files_read
    feed = diamond.changes("base", base.version or 0, base.version or 0)
    assert sorted(row._change_type for row in feed.collect()) == ["delete", "delete", "insert"]
    frames = diamond.read(["base", "low", "high"])
    together = bag(frames["low"].collect()) + bag(frames["high"].collect())
    assert together == bag(frames["base"].where("v IS NOT NULL").collect())
    assert bag(diamond.read("base").collect()) != bag(frames["base"].collect())

    meeting = threading.Barrier(2, timeout=60)

    def observer(step: Step, table: str) -> None:
        if step is Step.INTENDED and table in ("default.low", "default.high"):
            meeting.wait()

    with observing(observer):
        report = diamond.refresh()
    assert report["base"].reason == "NOT_MOVED"
    assert {report[name].outcome for name in ("low", "high", "joined")} == {"done"}
    cuts = {tuple(sorted(record.cut.versions.items())) for record in report.records if record.cut}
    assert len(cuts) == 1
    check(diamond)


def test_a_change_that_changes_nothing_stops_at_the_first_table(diamond: dt.DynamicTables) -> None:
    """NET_EMPTY: the source's rows were rewritten, the result is the same, children rest."""
    diamond.sql("UPDATE src SET v = v")
    report = diamond.refresh()
    base = report["base"]
    assert (base.strategy, base.reason) == ("no_data", "NET_EMPTY")
    assert base.work.spark_jobs  # what was read to find that out
    assert (base.work.rows_inserted, base.work.rows_deleted) == (0, 0)
    assert (report["low"].strategy, report["low"].reason) == ("no_data", "NOT_MOVED")


def test_the_store_can_be_queried(diamond: dt.DynamicTables) -> None:
    rows = diamond.sql(
        "SELECT source, max(snapshot_id) AS v FROM source_snapshots "
        "WHERE dynamic_table = 'default.joined' GROUP BY source"
    ).collect()
    pins = {str(pin.name): pin.version for pin in diamond.show("joined").build.pins}  # type: ignore[union-attr]
    assert {row.source: row.v for row in rows} == pins


def test_nothing_moved_starts_no_job(diamond: dt.DynamicTables) -> None:
    """Counted for the whole process: what is not written asks nobody what it cost."""

    def jobs() -> int:
        return diamond.spark._jsparkSession.sparkContext().dagScheduler().numTotalJobs()

    diamond.sql("INSERT INTO src VALUES (7, 7)")
    before = jobs()
    told = [record.work.spark_jobs for record in diamond.refresh().records]
    after = jobs()
    assert all(told)
    assert sum(filter(None, told)) <= after - before
    report = diamond.refresh()
    assert {record.reason for record in report.records} == {"NOT_MOVED"}
    assert [record.work.spark_jobs for record in report.records] == [0] * 4
    assert jobs() == after


def test_rename_rewrites_the_children(diamond: dt.DynamicTables) -> None:
    diamond.sql("ALTER DYNAMIC TABLE base RENAME TO basis")
    assert not diamond.spark.catalog.tableExists("base")
    assert diamond.verify("low").ok
    assert "basis" in (diamond.explain("low").pinned_sql or "")
    assert all(record.reason == "NOT_MOVED" for record in diamond.refresh().records)
    assert [name.name for name in diamond.drop("basis", cascade=True)][-1] == "basis"


@pytest.mark.soak  # tests/ducklake has it too
def test_a_chain_passes_on_only_real_changes(shared: dt.DynamicTables) -> None:
    """Every row of the source is touched; from table to table fewer are changed by it."""
    feed = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    shared.sql(f"CREATE TABLE links USING delta {feed} AS SELECT id, id AS v FROM range(20)")
    for name, query in {
        "a": "SELECT id, v DIV 10 AS ten FROM links",
        "b": "SELECT id % 5 AS k, max(ten) AS high FROM a GROUP BY id % 5",
        "c": "SELECT count(*) AS n FROM b WHERE high > 0",
    }.items():
        shared.create(name, query)
    shared.sql("UPDATE links SET v = v + 1")  # 9 and 19 reach another ten, both with k = 4
    report = shared.refresh("a", "b", "c")
    work = [report[name].work for name in "abc"]
    assert [(w.rows_inserted, w.rows_deleted) for w in work] == [(2, 2), (1, 1), (0, 0)]
    assert report["c"].reason == "NET_EMPTY"
    check(shared, "a", "b", "c")


FAILING = {
    "divided": ("10 / v", "DIVIDE_BY_ZERO"),
    "cast_badly": ("CAST(concat('x', t) AS INT)", "CAST_INVALID_INPUT"),
    "raised": (
        "CAST(IF(v = 0, raise_error('Read timed out'), 'fine') AS STRING)",
        "Read timed out",
    ),
    "overflowed": ("timestamp_seconds(9223372036854775807 - v)", "long overflow"),
    "of_sql": ("ratio(v)", "DIVIDE_BY_ZERO"),
    "looked_up": ("(SELECT t FROM numbers n WHERE n.v < 2)", "SCALAR_SUBQUERY_TOO_MANY_ROWS"),
    "folded": ("sum(10 / v) OVER (PARTITION BY t)", "DIVIDE_BY_ZERO"),
}


def test_what_the_query_fails_for_is_its_own_fault(shared: dt.DynamicTables) -> None:
    """It is not tried again on the same data."""
    shared.sql("CREATE TABLE numbers (v INT, t STRING) USING delta")
    shared.sql("INSERT INTO numbers VALUES (0, 'a'), (1, 'b')")
    shared.sql("CREATE FUNCTION ratio(x INT) RETURNS DOUBLE RETURN 10 / x")
    for name, (value, _) in FAILING.items():
        shared.create(name, f"SELECT t, {value} AS n FROM numbers", initialize="ON_SCHEDULE")
    report = shared.refresh(*FAILING, on_error="report")
    for name, (_, said) in FAILING.items():
        assert report[name].reason == "QUERY_FAILED", (name, report[name])
        assert said in str(report[name].error)


def test_changes_that_fail_and_changes_that_cannot_be_read(
    shared: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where an expression fails on a change, the query itself decides. A storage that does not
    answer would not answer a recomputation either, which reads more."""

    def away(*_args: object) -> str:
        return jvm.packages(shared.spark).java.net.InetAddress.getByName("storage.invalid")

    def divided(*_args: object) -> str:
        return str(shared.spark.sql("SELECT 10 / id FROM range(1)").collect())

    shared.sql("CREATE TABLE divisors (v INT) USING delta")
    shared.sql("INSERT INTO divisors VALUES (1), (2)")
    shared.create("quotients", "SELECT v, 10 / v AS q FROM divisors")
    shared.sql("INSERT INTO divisors VALUES (5)")
    monkeypatch.setattr(SparkLeaves, "changes", away)
    record = shared.refresh("quotients", on_error="report")["quotients"]
    assert (record.outcome, record.reason) == ("failed", "ENGINE_FAILED")
    monkeypatch.setattr(SparkLeaves, "changes", divided)
    record = shared.refresh("quotients")["quotients"]
    assert (record.strategy, record.reason) == ("full", "CHANGES_FAILED")
    check(shared, "quotients")


def test_what_functions_in_python_raise_is_the_querys(shared: dt.DynamicTables) -> None:
    """As PySpark tells it, and out of a broadcast, as Java does. One that dies is not."""
    spark = shared.spark

    def failing(_: int) -> int:
        raise ValueError("no")

    def dying(_: int) -> int:
        os._exit(3)

    spark.udf.register("failing", failing, "int")
    spark.udf.register("dying", dying, "int")
    calls = "SELECT failing(id) AS n FROM range(1)"
    joined = f"SELECT /*+ BROADCAST(b) */ * FROM range(9) JOIN ({calls}) b ON id = n"
    for text, reason in (
        (calls, "QUERY_FAILED"),
        (joined, "QUERY_FAILED"),
        ("SELECT dying(id) FROM range(1)", "ENGINE_FAILED"),
    ):
        with pytest.raises(shared.lake.faults) as caught:
            spark.sql(text).collect()
        assert shared.lake.told(caught.value, about="t").reason == reason, text
