"""The ways to row-group order: Spark's own writer, plans, the table option, the command line."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import dynamic_tables as dt
from dynamic_tables.cli import program
from dynamic_tables.lake import jvm
from dynamic_tables.lake.row_groups import native
from dynamic_tables.lake.row_groups.native import NativeTable
from oracle import bag, check

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ways") / "lake"


@pytest.fixture(scope="module")
def tables(folder: Path) -> Any:
    with dt.connect(folder, jvm="quick", say=lambda _: None) as opened:
        opened.sql(
            "CREATE TABLE events (entity INT, at TIMESTAMP, m MAP<STRING, INT>, day INT)"
            " USING delta PARTITIONED BY (day) TBLPROPERTIES (delta.enableChangeDataFeed = true)"
        )
        opened.sql(
            "INSERT INTO events SELECT /*+ REPARTITION(3) */ id % 20, timestamp_seconds(id),"
            " map('a', id), id % 2 FROM range(2000)"
        )
        yield opened


def row_groups(tables: dt.DynamicTables, place: str) -> list[int]:
    """Rows of every row group."""
    found = []
    for file in files(tables, place):
        footer = pq.read_metadata(file)
        found += [footer.row_group(n).num_rows for n in range(footer.num_row_groups)]
    return found


def place(tables: dt.DynamicTables, name: str) -> str:
    return tables.sql(f"DESCRIBE DETAIL {name}").collect()[0].location


def test_native(tables: dt.DynamicTables) -> None:
    """The same rows by Spark's own writer, in row groups of so many rows; nobody sees a change."""
    before = bag(tables.spark.table("events").collect())
    some = dt.rorder(
        "events", unique_by="entity", engine="native", rows_per_row_group=100, where="day = 1",
        spark=tables.spark,
    )  # fmt: skip
    report = dt.rorder(
        "events", unique_by="entity", sort_by="at", engine="native", rows_per_row_group=250,
        spark=tables.spark,
    )  # fmt: skip
    assert bag(tables.spark.table("events").collect()) == before
    assert row_groups(tables, place(tables, "events")) == [250] * 8
    assert some.version is not None
    feed = f"SELECT * FROM table_changes('events', {some.version}, {report.version})"
    assert tables.sql(feed).collect() == []
    assert tables.spark.conf.get("parquet.block.row.count.limit", None) is None


def test_native_knows_its_commit_among_others(
    tables: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What somebody appends right after it is not taken for its own work."""
    tables.sql("CREATE TABLE busy (k INT) USING delta")
    tables.sql("INSERT INTO busy SELECT id % 3 FROM range(30)")
    known = NativeTable._version_of

    def late(self: NativeTable, mark: str) -> int:
        tables.sql("INSERT INTO busy VALUES (7)")
        return known(self, mark)

    monkeypatch.setattr(NativeTable, "_version_of", late)
    report = dt.rorder("busy", unique_by="k", engine="native", spark=tables.spark)
    history = tables.sql("DESCRIBE HISTORY busy").collect()
    assert (report.version, history[0].version) == (2, 3)
    assert tables.spark.table("busy").count() == 31


@pytest.mark.parametrize("habit", ["optimizeWrite", "autoCompact"])
def test_native_is_not_undone_by_habits_of_the_table(
    tables: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch, habit: str
) -> None:
    """Optimized writes shuffle sorted rows, and compaction puts files together."""
    tables.sql(
        f"CREATE TABLE {habit} (k INT, v STRING, day INT) USING delta PARTITIONED BY (day)"
        f" TBLPROPERTIES (delta.autoOptimize.{habit} = true)"
    )
    tables.sql(f"INSERT INTO {habit} SELECT id * 7919 % 1000, 'v' || id, id % 2 FROM range(2000)")
    monkeypatch.setattr(native, "TASK_BYTES", 2**11)
    settings = {
        "spark.databricks.delta.autoCompact.minNumFiles": "2",
        f"spark.databricks.delta.{habit}.enabled": "true",
    }
    with native._settings(tables.spark, settings):
        report = dt.rorder(
            habit, unique_by="k", engine="native", rows_per_row_group=20, spark=tables.spark
        )
        assert {key: tables.spark.conf.get(key) for key in settings} == settings
    assert tables.sql(f"DESCRIBE HISTORY {habit}").collect()[0].version == report.version
    found = key_ends(tables, place(tables, habit))
    assert len(found) > 2  # those of the tasks that sorted the rows
    for ends in found:
        assert all(before[1] <= after[0] for before, after in pairwise(ends))


def key_ends(tables: dt.DynamicTables, place: str) -> list[list[tuple[int, int]]]:
    """The least and the greatest key of every row group, file by file."""
    found = []
    for file in files(tables, place):
        footer = pq.read_metadata(file)
        groups = [footer.row_group(n).column(0).statistics for n in range(footer.num_row_groups)]
        found.append([(group.min, group.max) for group in groups])
    return found


def test_native_refuses_to_give_new_numbers(tables: dt.DynamicTables) -> None:
    tables.sql("CREATE TABLE given (n BIGINT GENERATED ALWAYS AS IDENTITY, k INT) USING delta")
    tables.sql("INSERT INTO given (k) SELECT id % 3 FROM range(30)")
    with pytest.raises(dt.Refused, match="column n is not supported") as refused:
        dt.rorder("given", unique_by="k", engine="native", spark=tables.spark)
    assert refused.value.reason == "TABLE_FEATURE"
    assert "engine='arrow'" in (refused.value.hint or "")
    assert tables.sql("DESCRIBE HISTORY given").count() == 2


def test_what_native_cannot_write_is_told(tables: dt.DynamicTables) -> None:
    """Under the table's name, not as Spark raises it."""
    tables.sql("CREATE TABLE kept (k INT) USING delta TBLPROPERTIES (delta.appendOnly = true)")
    tables.sql("INSERT INTO kept VALUES (1), (2)")
    with pytest.raises(dt.RefreshError, match="only allow appends") as failed:
        dt.rorder("kept", unique_by="k", engine="native", spark=tables.spark)
    assert failed.value.about.endswith("kept")


@pytest.mark.parametrize("how", ["CACHE TABLE cached", "frame"])
def test_native_refuses_rows_that_are_held(tables: dt.DynamicTables, how: str) -> None:
    """What was cached may be older than the table, and Spark would write it."""
    tables.sql("CREATE OR REPLACE TABLE cached (k INT) USING delta")
    tables.sql("INSERT INTO cached SELECT id % 3 FROM range(30)")
    frame = tables.spark.read.format("delta").load(place(tables, "cached"))
    tables.sql(how) if how != "frame" else frame.cache()
    with pytest.raises(dt.Refused, match="cached") as refused:
        dt.rorder("cached", unique_by="k", engine="native", spark=tables.spark)
    assert "UNCACHE TABLE" in (refused.value.hint or "")
    tables.spark.catalog.clearCache()
    report = dt.rorder("cached", unique_by="k", engine="native", spark=tables.spark)
    assert report.version is not None


def test_native_refuses_to_lose_row_ids(tables: dt.DynamicTables) -> None:
    tables.sql(
        "CREATE TABLE tracked (k INT) USING delta TBLPROPERTIES (delta.enableRowTracking = true)"
    )
    with pytest.raises(dt.Refused, match="rowTracking"):
        dt.rorder("tracked", unique_by="k", engine="native", spark=tables.spark)
    with pytest.raises(dt.InvalidInput, match="allowed: arrow, native"):
        dt.rorder("tracked", unique_by="k", engine="paper", spark=tables.spark)
    with pytest.raises(dt.InvalidInput):
        dt.rorder("no_such", unique_by="k", engine="native", spark=tables.spark)


def test_native_compares_what_spark_does_not_hash(tables: dt.DynamicTables) -> None:
    """A VARIANT has no hash; it is compared all the same."""
    tables.sql("CREATE TABLE free (k INT, v VARIANT, s STRUCT<a: VARIANT>) USING delta")
    one = "parse_json('{\"a\": ' || id || '}')"
    tables.sql(f"INSERT INTO free SELECT id % 3, {one}, named_struct('a', {one}) FROM range(30)")
    text = "SELECT k, to_json(v), to_json(s) FROM free"
    before = bag(tables.sql(text).collect())
    report = dt.rorder("free", unique_by="k", engine="native", spark=tables.spark)
    assert report.version == 2
    assert bag(tables.sql(text).collect()) == before


def test_native_takes_whole_partitions_only(tables: dt.DynamicTables) -> None:
    """By a condition on other columns Delta would replace single rows, and readers would see it."""
    version = tables.sql("DESCRIBE HISTORY events LIMIT 1").collect()[0].version
    with pytest.raises(dt.InvalidInput, match="only partition columns") as refused:
        dt.rorder(
            "events", unique_by="entity", engine="native", where="day = 1 AND entity = 3",
            spark=tables.spark,
        )  # fmt: skip
    assert refused.value.reason == "BAD_COLUMNS"
    assert tables.sql("DESCRIBE HISTORY events LIMIT 1").collect()[0].version == version


def test_a_plan_writes_nothing(tables: dt.DynamicTables) -> None:
    history = "DESCRIBE HISTORY events LIMIT 1"
    version = tables.sql(history).collect()[0].version
    plan = tables.rorder_plan("events", unique_by="entity", where="day = 0")
    assert [(part.rows, part.values, part.partition) for part in plan.partitions] == [
        (1000, 10, {"day": "0"})
    ]
    assert {choice.engine for choice in plan.partitions[0].choices} == {"arrow", "native"}
    whole = tables.rorder_plan("events", unique_by="entity")
    assert plan.recommended in plan.partitions[0].choices
    assert whole.recommended in {choice for part in whole.partitions for choice in part.choices}
    assert (
        plan.version
        == version
        == tables.sql("DESCRIBE HISTORY events LIMIT 1").collect()[0].version
    )


def test_the_option_orders_what_refreshes_store(tables: dt.DynamicTables) -> None:
    """At once after the first load, later when enough lies out of order; refreshes go on."""
    tables.create(
        "sorted_events",
        "SELECT entity, at, day FROM events WHERE entity < 5",
        row_groups_by="Entity",
    )
    definition = tables.show("sorted_events").definition
    assert sorted(row_groups(tables, definition.location)) == [100] * 5
    assert "files out of order, 100 % of the bytes, were compacted" in _note(
        tables, "sorted_events"
    )
    tables.sql("INSERT INTO events VALUES (3, timestamp_seconds(1), NULL, 0)")
    assert tables.refresh("sorted_events")["sorted_events"].strategy == "append"
    assert len(row_groups(tables, definition.location)) == 6
    tables.sql("OPTIMIZE DYNAMIC TABLE sorted_events")
    assert sorted(row_groups(tables, definition.location)) == [100] * 4 + [101]
    tables.sql("DELETE FROM events WHERE entity = 1")
    assert tables.refresh("sorted_events")["sorted_events"].reason == "CHANGED"
    check(tables, "sorted_events")


def test_the_option_lets_small_values_share_row_groups(tables: dt.DynamicTables) -> None:
    """A row group for each key of a GROUP BY would be many times as large as its one row."""
    keys = 4000
    tables.sql("CREATE TABLE sales (k INT, v INT) USING delta")
    tables.sql(f"INSERT INTO sales SELECT id * 7919 % {keys}, id FROM range({2 * keys})")
    query = "SELECT k, count(*) AS n, sum(v) AS s FROM sales GROUP BY k"
    tables.create("plain_totals", query)
    tables.create("totals", query, row_groups_by="k")
    assert "files out of order, 100 % of the bytes, were compacted" in _note(tables, "totals")
    location = tables.show("totals").definition.location
    assert sum(row_groups(tables, location)) == keys
    assert len(row_groups(tables, location)) * 20 < keys
    plain = stored_bytes(tables, tables.show("plain_totals").definition.location)
    assert stored_bytes(tables, location) < 1.5 * plain
    for file in files(tables, location):
        stored = pq.read_table(file, columns=["k"])["k"].to_pylist()
        assert stored == sorted(stored)
    assert tables.verify("totals").ok


def test_the_option_takes_any_number_of_values_a_row_group(tables: dt.DynamicTables) -> None:
    """What was ordered by hand in row groups of other sizes is in order, and stays."""
    tables.sql("CREATE TABLE visits (k INT, v INT) USING delta")
    tables.sql("INSERT INTO visits SELECT id % 500, id FROM range(1000)")
    tables.create("by_hand", "SELECT k, count(*) AS n FROM visits GROUP BY k", row_groups_by="k")
    location = tables.show("by_hand").definition.location
    tables.rorder("by_hand", unique_by="k", values_per_row_group=50)
    ordered = files(tables, location)
    assert row_groups(tables, location) == [50] * 10
    tables.sql("OPTIMIZE DYNAMIC TABLE by_hand")
    assert files(tables, location) == ordered
    for added in (3, 4):
        tables.sql(f"INSERT INTO visits VALUES ({added}, 0)")
        tables.refresh("by_hand")
        assert "compacted" not in _note(tables, "by_hand")
        assert set(ordered) < set(files(tables, location))
    check(tables, "by_hand")


def test_small_files_beside_ordered_ones_are_merged(
    tables: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long before they are enough to put the table in order; those that are in order stay."""
    monkeypatch.setitem(tables.settings.values, "compact_files", 3)
    tables.sql("CREATE TABLE calls (k INT, v INT) USING delta")
    tables.sql("INSERT INTO calls SELECT id % 500, id FROM range(20000)")
    tables.create("by_call", "SELECT K, v FROM calls", row_groups_by="k")
    definition = tables.show("by_call").definition
    ordered, notes = files(tables, definition.location), []
    for added in range(4):
        tables.sql(f"INSERT INTO calls VALUES ({added}, 0)")
        tables.refresh("by_call")
        notes.append(_note(tables, "by_call"))
        assert set(ordered) < set(files(tables, definition.location))
    assert [note for note in notes if note] == ["3 files were compacted"]
    assert tables.lake.layout(definition).small_files == 2
    check(tables, "by_call")
    tables.sql("OPTIMIZE DYNAMIC TABLE by_call")
    assert tables.lake.layout(definition).small_files == 0


def stored_bytes(tables: dt.DynamicTables, place: str) -> int:
    return tables.sql(f"DESCRIBE DETAIL delta.`{place}`").collect()[0].sizeInBytes


def files(tables: dt.DynamicTables, place: str) -> list[str]:
    found = tables.spark.read.format("delta").load(place).inputFiles()
    return sorted(file.removeprefix("file:") for file in found)


def _note(tables: dt.DynamicTables, name: str) -> str:
    return tables.history(name)[0].note or ""


def test_columns_that_skip_nothing_are_refused_at_create(tables: dt.DynamicTables) -> None:
    with pytest.raises(dt.InvalidInput, match="readers skip no row groups by DOUBLE"):
        tables.create("never", "SELECT double(entity) AS e FROM events", row_groups_by="e")


def test_on_the_command_line(tables: dt.DynamicTables, folder: Path) -> None:
    def run(*arguments: str, code: int = 0) -> Any:
        flags = ["--lake", str(folder), "--jvm", "quick"]
        result = CliRunner(env={"COLUMNS": "160"}).invoke(program, [*flags, *arguments])
        assert result.exit_code == code, result.output
        return result

    by = ["--row-groups-by", "entity"]
    shown = run("optimize", "events", *by, "--dry-run").stdout
    assert "recommended:" in shown
    assert "bytes a look-up" in shown
    told = json.loads(run("optimize", "events", *by, "--where", "day = 1", "--json").stdout)
    assert [part["became"] for part in told[0]["partitions"]] == ["ordered"]
    again = run("optimize", "events", *by, "--where", "day = 1").stdout
    assert "nothing to do" in again
    assert "as it was" in again
    assert "CONTRADICTION" in run("optimize", "events", "--dry-run", code=2).stderr


def executions(tables: dt.DynamicTables) -> list[Any]:
    store = tables.spark._jsparkSession.sharedState().statusStore()
    return list(jvm.items(store.executionsList()))


def pushed_filters(runs: list[Any]) -> list[str]:
    """What the scans of some statements asked Parquet for, as their plans say."""
    plans = "\n".join(run.physicalPlanDescription() for run in runs)
    return re.findall(r"PushedFilters: \[(.*)\]", plans)


def test_refreshes_skip_row_groups_by_scattered_keys(tables: dt.DynamicTables) -> None:
    """The same changes of the same rows, in two layouts: the keys are all over the table.

    Spark does not count what Parquet reads in threads of its own, so it is told not to; then every
    piece that is read costs 64 kB at least.
    """
    hadoop = tables.spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("parquet.hadoop.vectored.io.enabled", "false")
    read = {}
    for layout in ("as_it_came", "in_order"):
        tables.sql(f"CREATE TABLE {layout} (k INT, v STRING) USING delta")
        tables.sql(
            f"INSERT INTO {layout} SELECT id % 300, sha2(string(id), 256) FROM range(120000)"
        )
        if layout == "in_order":
            tables.rorder(layout, unique_by="k")
        name = f"of_{layout}"
        tables.create(name, f"SELECT k, count(DISTINCT v) AS n FROM {layout} GROUP BY k")
        tables.sql(f"INSERT INTO {layout} SELECT 3 + id * 59, 'new' FROM range(5)")
        before = {run.executionId() for run in executions(tables)}
        record = tables.refresh(name, strategy="keys")[name]
        assert (record.strategy, record.work.rows_inserted) == ("keys", 5)
        asked = pushed_filters([r for r in executions(tables) if r.executionId() not in before])
        keys = [f"GreaterThanOrEqual(k,{key}),LessThanOrEqual(k,{key})" for key in (3, 62, 239)]
        assert any(all(key in filters for key in keys) for filters in asked), asked
        read[layout] = record.work.bytes_read or 0
        check(tables, name)
    assert read["in_order"] * 8 < read["as_it_came"]
