"""Rows that only come are written while they are computed, in one Spark job; then they stand."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest

import dynamic_tables as dt
from dynamic_tables.lake import holding, transaction
from dynamic_tables.lake.changes import Changes
from dynamic_tables.lake.delta import SparkLake
from dynamic_tables.steps import AnyStep, Step, observing
from oracle import check

pytestmark = pytest.mark.spark

FEED = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
FOLDED = "SELECT k, count(*) AS n, sum(v) AS s, min(v) AS low FROM come GROUP BY k"


@pytest.fixture(scope="module")
def lake(shared: dt.DynamicTables) -> dt.DynamicTables:
    shared.sql(f"CREATE TABLE come (k INT, v INT) USING delta {FEED}")
    shared.sql("INSERT INTO come VALUES (1, 1), (1, 2), (2, 2), (NULL, NULL)")
    shared.create("folded_ahead", FOLDED, storage="MERGE_ON_READ", initialize="ON_SCHEDULE")
    shared.create(
        "added_ahead", "SELECT k, v + 1 AS w FROM come WHERE v > 0", initialize="ON_SCHEDULE"
    )
    shared.refresh()
    return shared


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows were written ahead, write by write; -1 where that could not be."""
    sizes, write = [], transaction.write_ahead

    def noted(*given: object, **named: object) -> transaction.Written | None:
        found = None
        try:
            found = write(*given, **named)
        finally:
            sizes.append(found.size if found is not None else -1)
        return found

    monkeypatch.setattr("dynamic_tables.lake.changes.write_ahead", noted)
    return sizes


def at(step: Step, table: str, work: Callable[[], object]) -> AbstractContextManager[None]:
    """Do something when a refresh of a table passes a step; the first time."""
    done: list[object] = []

    def observe(passed: AnyStep, name: str) -> None:
        if passed is step and name.endswith(table) and not done:
            done.append(work())

    return observing(observe)


@pytest.mark.parametrize(("name", "strategy"), [("folded", "fold"), ("added", "append")])
def test_rows_that_only_come_take_one_job(
    lake: dt.DynamicTables, written: list[int], name: str, strategy: str
) -> None:
    lake.refresh()
    written.clear()
    lake.sql("INSERT INTO come VALUES (1, 5), (NULL, 7), (9, 9), (9, 9)")
    record = lake.refresh(f"{name}_ahead")[f"{name}_ahead"]
    assert (record.strategy, record.work.spark_jobs) == (strategy, 1)
    assert written == [record.work.rows_inserted] == [3 if name == "folded" else 4]
    assert record.work.rows_deleted == 0
    check(lake, f"{name}_ahead")


def test_an_update_is_looked_at_first(lake: dt.DynamicTables, written: list[int]) -> None:
    """What goes may be a least value, and a row that is to go must be there."""
    lake.sql("UPDATE come SET v = 3 WHERE v = 1")
    lake.refresh()
    assert written == []
    check(lake)


def test_what_comes_to_nothing_is_no_commit(lake: dt.DynamicTables, written: list[int]) -> None:
    lake.refresh()
    before = lake.show("added_ahead").build
    lake.sql("INSERT INTO come VALUES (3, -1)")
    record = lake.refresh("added_ahead")["added_ahead"]
    assert (record.strategy, record.reason, written) == ("no_data", "NET_EMPTY", [0])
    after = lake.show("added_ahead").build
    assert before is not None
    assert after is not None
    assert (before.version, before.sequence) == (after.version, after.sequence)


def test_a_total_that_nothing_is_added_to(lake: dt.DynamicTables, written: list[int]) -> None:
    """The row of parts of a query without groups is there, and tells nothing."""
    query = "SELECT count(*) AS n, sum(v) AS s, min(v) AS low FROM come WHERE v > 0"
    lake.create("total_ahead", query, storage="MERGE_ON_READ")
    lake.sql("INSERT INTO come VALUES (3, -1)")
    record = lake.refresh("total_ahead")["total_ahead"]
    assert (record.strategy, record.reason, written) == ("no_data", "NET_EMPTY", [0])
    lake.sql("INSERT INTO come VALUES (3, 1)")
    assert lake.refresh("total_ahead")["total_ahead"].strategy == "fold"
    check(lake, "total_ahead")
    lake.drop("total_ahead")


@pytest.mark.parametrize("name", ["folded", "added"])
def test_a_table_that_is_altered_meanwhile_is_written_anew(
    lake: dt.DynamicTables, written: list[int], name: str
) -> None:
    stored = "folded_ahead__ivm" if name == "folded" else "added_ahead"
    lake.sql("INSERT INTO come VALUES (4, 4), (5, 5)")
    alter = f"ALTER TABLE {stored} SET TBLPROPERTIES ('looked' = 'after')"
    with at(Step.COMPUTED, f"{name}_ahead", lambda: lake.spark.sql(alter)):
        assert lake.refresh(f"{name}_ahead")[f"{name}_ahead"].outcome == "done"
    assert len(written) == 1
    check(lake, f"{name}_ahead")


@pytest.mark.parametrize("name", ["folded", "added"])
def test_a_compaction_between_the_rows_and_their_commit(
    lake: dt.DynamicTables, written: list[int], name: str
) -> None:
    for number in range(2):
        lake.sql(f"INSERT INTO come VALUES (6, {number + 1})")
        if number == 0:
            lake.refresh(f"{name}_ahead")
    optimize = f"OPTIMIZE DYNAMIC TABLE {name}_ahead"
    with at(Step.COMPUTED, f"{name}_ahead", lambda: lake.sql(optimize)):
        assert lake.refresh(f"{name}_ahead")[f"{name}_ahead"].outcome == "done"
    assert len(written) == 2
    check(lake, f"{name}_ahead")


@pytest.mark.parametrize("name", ["folded", "added"])
def test_a_refresh_that_fails_leaves_its_files_unseen(lake: dt.DynamicTables, name: str) -> None:
    """Nothing refers to them; VACUUM takes them. The next refresh writes its own."""
    lake.refresh(f"{name}_ahead")
    lake.sql("INSERT INTO come VALUES (7, 7)")
    folder = Path(lake.show(f"{name}_ahead").definition.location.removeprefix("file:"))

    def die() -> None:
        raise KeyboardInterrupt

    before = {*folder.glob("*.parquet")}
    with at(Step.COMPUTED, f"{name}_ahead", die), pytest.raises(KeyboardInterrupt):
        lake.refresh(f"{name}_ahead")
    assert {*folder.glob("*.parquet")} > before
    assert lake.refresh(f"{name}_ahead")[f"{name}_ahead"].outcome == "done"
    check(lake, f"{name}_ahead")


def streamed(tables: dt.DynamicTables, folder: Path, mode: str) -> None:
    """What has come to `told` until now, counted into `counts` by a stream."""
    counts = tables.spark.readStream.table("told").groupBy("k").count()
    written = counts.writeStream.format("delta").outputMode(mode)
    written = written.option("checkpointLocation", str(folder)).trigger(availableNow=True)
    written.toTable("counts").awaitTermination()


def test_a_stream_that_writes_all_its_result_replaces_rows(
    lake: dt.DynamicTables, written: list[int], tmp_path: Path
) -> None:
    """Its commits call themselves like those of streams that append."""
    lake.sql(f"CREATE TABLE counts (k INT, count BIGINT) USING delta {FEED}")
    lake.sql("CREATE TABLE told (k INT) USING delta")
    lake.sql("INSERT INTO told VALUES (1), (1), (2)")
    streamed(lake, tmp_path / "checkpoint", "complete")
    lake.create("shown", "SELECT k, count FROM counts WHERE count > 0")
    lake.create(
        "highest", "SELECT k % 2 AS odd, count(*) AS n, max(count) AS most FROM counts GROUP BY 1",
        storage="MERGE_ON_READ",
    )  # fmt: skip
    lake.sql("INSERT INTO told VALUES (1), (3)")
    streamed(lake, tmp_path / "checkpoint", "complete")
    lake.refresh("shown", "highest")
    assert written == []
    check(lake, "shown", "highest")


@pytest.mark.parametrize(("name", "strategy"), [("folded", "fold"), ("added", "rows")])
def test_a_log_that_tells_wrongly_is_not_believed(
    lake: dt.DynamicTables,
    written: list[int],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    strategy: str,
) -> None:
    lake.sql("INSERT INTO come VALUES (2, 22)")
    lake.refresh()
    written.clear()
    lake.sql("DELETE FROM come WHERE v = 22")
    sizes = SparkLake.sizes
    monkeypatch.setattr(SparkLake, "sizes", lambda *of: replace(sizes(*of), only_adds=True))
    monkeypatch.setattr(Changes, "_rows_only_come", lambda _: True)
    record = lake.refresh(f"{name}_ahead")[f"{name}_ahead"]
    assert (record.strategy, written) == (strategy, [-1])
    if name == "added":
        assert record.rejected[dt.Strategy.APPEND] == "ROWS_WENT"
    check(lake, f"{name}_ahead")


def test_a_constraint_that_rows_do_not_keep_is_named(
    lake: dt.DynamicTables, written: list[int]
) -> None:
    """It is no fault of the changes: to recompute would meet it again."""
    query = "SELECT k, v * 2 AS twice FROM come WHERE v > 0"
    lake.create("kept_small", query, refresh_mode="INCREMENTAL")
    lake.spark.sql("ALTER TABLE kept_small ADD CONSTRAINT small CHECK (twice < 1000)")
    lake.sql("INSERT INTO come VALUES (6, 600)")
    record = lake.refresh("kept_small", on_error="report")["kept_small"]
    assert (record.reason, written) == ("QUERY_FAILED", [-1])
    assert "small" in (record.error or "")
    lake.drop("kept_small")


def test_many_rows_of_a_join_are_written_by_many_tasks(
    lake: dt.DynamicTables, written: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both sides grow; few of the changes make many rows."""
    monkeypatch.setattr(holding, "SMALL_CHANGES", 10)
    lake.sql(f"CREATE TABLE sides (k INT, w INT) USING delta {FEED}")
    lake.sql("INSERT INTO sides SELECT id % 3, id FROM range(30)")
    pairs = "SELECT c.k, c.v, s.w FROM come c JOIN sides s ON c.k <=> s.k"
    lake.create("pairs", pairs, partitioned_by="k")
    lake.create(
        "pairs_folded", f"SELECT k, v, count(*) AS n, max(w) AS m FROM ({pairs}) GROUP BY k, v",
        storage="MERGE_ON_READ", partitioned_by="k",
    )  # fmt: skip
    lake.sql("INSERT INTO come SELECT id % 3, id FROM range(60)")
    lake.sql("INSERT INTO sides VALUES (1, 100), (2, 200), (NULL, 300)")
    strategies = {r.table.name: r.strategy for r in lake.refresh("pairs", "pairs_folded").records}
    assert strategies == {"pairs": "append", "pairs_folded": "fold"}
    assert len(written) == 2
    assert min(written) > 10
    check(lake, "pairs", "pairs_folded")


def test_without_statistics_nobody_could_tell_how_many_were_written(
    lake: dt.DynamicTables, written: list[int]
) -> None:
    lake.refresh()
    written.clear()
    lake.sql("INSERT INTO come VALUES (8, 8)")
    lake.spark.conf.set("spark.databricks.delta.stats.collect", "false")
    try:
        lake.refresh("added_ahead", "folded_ahead")
    finally:
        lake.spark.conf.unset("spark.databricks.delta.stats.collect")
    assert written == [-1, -1]
    check(lake, "added_ahead", "folded_ahead")


def test_a_sum_that_overflows_is_looked_at(lake: dt.DynamicTables, written: list[int]) -> None:
    """Without ANSI Spark gives NULL for a sum of decimals that has no room; the next rows may bring
    it back, and only the group's rows tell its value then."""
    lake.spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        lake.sql(f"CREATE TABLE full_decimals (k INT, v DECIMAL(38, 0)) USING delta {FEED}")
        lake.sql("INSERT INTO full_decimals VALUES (1, 1)")
        lake.create(
            "of_full", "SELECT k, count(*) AS n, sum(v) AS s FROM full_decimals GROUP BY k",
            storage="MERGE_ON_READ",
        )  # fmt: skip
        most = "9" * 38
        lake.sql(f"INSERT INTO full_decimals VALUES (1, {most}), (1, {most}), (2, 5)")
        assert lake.refresh("of_full")["of_full"].strategy == "fold"
        assert written == [-1]
        check(lake, "of_full")
    finally:
        lake.spark.conf.unset("spark.sql.ansi.enabled")
