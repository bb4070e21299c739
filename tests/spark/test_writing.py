"""How differences reach a Delta table: by position, by MERGE where that cannot be, compacted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

import dynamic_tables as dt
from dynamic_tables.lake import holding, marking, snapshots
from dynamic_tables.lake.changes import Changes
from dynamic_tables.lake.delta import SparkLake
from oracle import check
from tuning import TUNING

pytestmark = pytest.mark.spark

FEED = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dt.DynamicTables]:
    folder = tmp_path_factory.mktemp("writing") / "lake"
    tables = dt.connect(folder, jvm="quick", say=lambda _: None, compact_files=3)
    tables.sql(f"CREATE TABLE fact (k INT, v INT) USING delta {FEED}")
    tables.sql("INSERT INTO fact VALUES (1, 1), (1, 1), (1, 1), (2, 2), (NULL, 3), (4, 4)")
    tables.create("copies", "SELECT k, v FROM fact", initialize="ON_SCHEDULE")
    tables.create(
        "grouped",
        "SELECT k, count(*) AS n, sum(v) AS s FROM fact GROUP BY k",
        initialize="ON_SCHEDULE",
        cardinality_threshold=0.6,
    )
    tables.refresh()
    yield tables
    tables.close()


def operations(tables: dt.DynamicTables, name: str) -> list[str]:
    history = tables.sql(f"DESCRIBE HISTORY {name}").collect()
    return [row.operation for row in history]


def test_of_equal_rows_as_many_go_as_should(lake: dt.DynamicTables) -> None:
    lake.sql("UPDATE fact SET v = 9 WHERE k = 2")
    lake.sql("INSERT INTO fact VALUES (1, 1), (4, 5)")
    lake.refresh("copies")
    lake.sql("DELETE FROM fact WHERE k IS NULL")
    lake.sql("INSERT OVERWRITE fact SELECT * FROM VALUES (1, 1), (1, 1), (2, 9), (4, 4), (4, 5)")
    record = lake.refresh("copies")["copies"]
    assert (record.strategy, record.work.rows_inserted, record.work.rows_deleted) == ("rows", 0, 3)
    check(lake, "copies")
    feed = lake.changes("copies", record.version or 0, record.version or 0).collect()
    assert Counter((row.k, row.v, row["_change_type"]) for row in feed) == {
        (1, 1, "delete"): 2,
        (None, 3, "delete"): 1,
    }


def test_many_rows_are_marked_by_the_executors(
    lake: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the rows that go are too many for the log, with and without bringing them here."""
    lake.sql("UPDATE fact SET v = v + 10 WHERE k = 4")
    monkeypatch.setattr(marking, "INLINE_BYTES_AT_MOST", 0)
    record = lake.refresh("copies")["copies"]
    assert (record.work.rows_inserted, record.work.rows_deleted) == (2, 2)
    check(lake, "copies")
    monkeypatch.setattr(holding, "SMALL_CHANGES", 0)
    lake.sql("UPDATE fact SET v = v + 1 WHERE k = 1")
    record = lake.refresh("copies")["copies"]
    assert (record.work.rows_inserted, record.work.rows_deleted) == (2, 2)
    check(lake, "copies")


def test_small_files_are_compacted(lake: dt.DynamicTables) -> None:
    """By the refresh that finds too many; no row changes, and the next refresh goes on."""
    assert "OPTIMIZE" in operations(lake, "copies")
    noted = [record.note or "" for record in lake.history("copies")]
    assert any("files were compacted" in note for note in noted)
    assert "FOREIGN_CHANGE" not in {record.reason for record in lake.history("copies")}


@pytest.mark.parametrize("off", ["enableDeletionVectors", "enableChangeDataFeed"])
def test_what_was_turned_off_is_not_used(lake: dt.DynamicTables, off: str) -> None:
    """MERGE does it then."""
    name = lake.show("copies").definition.name.sql
    lake.sql(f"ALTER TABLE {name} SET TBLPROPERTIES (delta.{off} = false)")
    lake.sql(f"UPDATE fact SET v = {len(off)} WHERE k = 2")
    assert lake.refresh("copies")["copies"].strategy == "rows"
    merges = lake.sql("DESCRIBE HISTORY copies").where("operation = 'MERGE'").collect()
    assert merges[0].operationParameters["predicate"] != "[]"  # Delta's own: it looks for the rows
    check(lake, "copies")
    lake.sql(f"ALTER TABLE {name} SET TBLPROPERTIES (delta.{off} = true)")


def test_bounds_of_decimals_are_kept_exactly(lake: dt.DynamicTables) -> None:
    """A file some of whose rows are gone is still found by the values of the others."""
    exact = "0.123456789012345678"
    lake.sql(f"CREATE TABLE fine (k INT, d DECIMAL(20, 18)) USING delta {FEED}")
    lake.sql(f"INSERT INTO fine VALUES (1, {exact}), (2, 0.5), (3, 0.6)")
    lake.create("finest", "SELECT k, d FROM fine")
    lake.sql("DELETE FROM fine WHERE k = 2")
    assert lake.refresh("finest")["finest"].work.rows_deleted == 1
    found = lake.sql(f"SELECT k FROM finest WHERE d <= CAST('{exact}' AS DECIMAL(20, 18))")
    assert [row.k for row in found.collect()] == [1]


def test_the_users_limits(lake: dt.DynamicTables) -> None:
    """More keys than the threshold: recomputed. More bytes than the limit: refused."""
    record = lake.refresh("grouped")["grouped"]
    assert (record.strategy, record.reason) == ("full", "ABOVE_THRESHOLD")
    lake.sql("UPDATE fact SET v = 1 WHERE k = 2")
    record = lake.refresh("grouped")["grouped"]
    assert (record.strategy, record.work.cardinality_ratio) == ("merge", pytest.approx(1 / 3))
    assert {estimate.strategy for estimate in record.estimates} >= {"merge", "full"}
    lake.alter("grouped", max_scan_bytes=10)
    lake.sql("INSERT INTO fact VALUES (2, 2)")
    refused = lake.refresh("grouped", on_error="report")["grouped"]
    assert (refused.outcome, refused.reason) == ("failed", "SCAN_LIMIT")
    assert [row.reason for row in lake.plan("grouped")] == ["SCAN_LIMIT"]
    assert lake.refresh("grouped", strategy="full")["grouped"].strategy == "full"
    (tuned,) = (row for row in lake.sql(TUNING).collect() if row.dynamic_table.endswith("grouped"))
    assert tuned.avg_full is not None
    assert tuned.avg_incremental is not None
    ways = lake.sql("SELECT how, avg(duration_ms) AS ms FROM refresh_history GROUP BY how")
    assert {row.how for row in ways.collect()} >= {"merge", "full"}
    check(lake, "grouped")


@pytest.fixture
def wide(lake: dt.DynamicTables) -> Iterator[dt.DynamicTables]:
    """A stored table that is much larger than what changes in its source."""
    lake.sql(f"CREATE TABLE wide (k INT, t STRING) USING delta {FEED}")
    lake.sql("INSERT INTO wide SELECT id, sha2(CAST(id AS STRING), 512) FROM range(20000)")
    lake.create("wider", "SELECT k, t FROM wide WHERE k >= 0")
    yield lake
    lake.sql("DROP DYNAMIC TABLE wider")
    lake.sql("DROP TABLE wide")


@pytest.mark.parametrize(
    "change", ["DELETE FROM wide WHERE k = 3", "UPDATE wide SET t = 'new' WHERE k = 3"]
)
def test_rows_that_went_are_weighed_with_the_stored_rows(
    wide: dt.DynamicTables, change: str
) -> None:
    """Plan, explain, refresh and history say the same, and the limit binds what is read."""

    def told() -> set[tuple[str | None, str | None]]:
        (planned,), explained = wide.plan("wider"), wide.explain("wider").next_refresh
        record = wide.refresh("wider")["wider"]
        found = [planned, explained, record, wide.history("wider")[0]]
        answers = [one.as_json() for one in found if one is not None]
        assert len(answers) == len(found)
        return {(one["strategy"], one["rejected"].get("append")) for one in answers}

    wide.sql("INSERT INTO wide VALUES (20001, 'one')")
    assert told() == {("append", None)}
    wide.sql(change)
    (planned,) = wide.plan("wider")
    assert planned.estimate is not None
    assert planned.estimate.bytes > 1_000_000
    wide.alter("wider", max_scan_bytes=planned.estimate.bytes - 1)
    assert wide.plan("wider")[0].reason == "SCAN_LIMIT"
    assert wide.refresh("wider", on_error="report")["wider"].reason == "SCAN_LIMIT"
    wide.alter("wider", max_scan_bytes=planned.estimate.bytes)
    assert told() == {("rows", "ROWS_WENT")}
    check(wide, "wider")
    wide.alter("wider", max_scan_bytes=100_000)
    wide.sql("INSERT INTO wide VALUES (20002, 'two')")
    assert told() == {("append", None)}
    check(wide, "wider")


def test_what_the_logs_did_not_tell_is_bound_before_stored_rows_are_read(
    wide: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = SparkLake.sizes
    monkeypatch.setattr(SparkLake, "sizes", lambda *of: replace(sizes(*of), only_adds=True))
    wide.alter("wider", max_scan_bytes=100_000)
    wide.sql("DELETE FROM wide WHERE k = 4")
    assert wide.plan("wider")[0].strategy == "append"
    with monkeypatch.context() as unread:
        unread.delattr(Changes, "_stored")
        assert wide.refresh("wider", on_error="report")["wider"].reason == "SCAN_LIMIT"
    wide.alter("wider", unset=["max_scan_bytes"])
    record = wide.refresh("wider")["wider"]
    assert (record.strategy, record.rejected[dt.Strategy.APPEND]) == ("rows", "ROWS_WENT")
    assert (record.work.rows_inserted, record.work.rows_deleted) == (0, 1)
    check(wide, "wider")


def test_a_threshold_holds_where_delta_does_not_know_the_rows(
    lake: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checksum names the files of tables that have few; the rows of others are counted."""
    monkeypatch.setattr(snapshots, "all_files", lambda _: None)
    lake.sql(f"CREATE TABLE unlisted (k INT, v INT) USING delta {FEED}")
    lake.sql("INSERT INTO unlisted SELECT id % 10, id FROM range(100)")
    query = "SELECT k, count(*) AS n, sum(v) AS s FROM unlisted GROUP BY k"
    lake.create("uncounted", query, cardinality_threshold=0.2)

    def refreshed(keys: int, **how: str) -> tuple[str | None, str, float | None]:
        lake.sql(f"UPDATE unlisted SET v = v + 1 WHERE k < {keys}")
        record = lake.refresh("uncounted", **how)["uncounted"]
        return record.strategy, record.reason, record.work.cardinality_ratio

    assert refreshed(3) == ("full", "ABOVE_THRESHOLD", pytest.approx(0.3))
    assert refreshed(2) == ("merge", "CHANGED", pytest.approx(0.2))
    lake.alter("uncounted", unset=["cardinality_threshold"])
    merged = refreshed(2, strategy="merge")
    assert merged == ("merge", "CHANGED", None)  # nobody asked: no job for it
    monkeypatch.setattr(holding, "SMALL_CHANGES", 0)
    merged = refreshed(3, strategy="merge")
    assert merged == ("merge", "CHANGED", pytest.approx(0.3))  # beside many it costs nothing
    check(lake, "uncounted")


def test_neighbouring_groups_lie_together(lake: dt.DynamicTables) -> None:
    """Loads are sorted by group, so that literals leave out most of what is stored."""
    lake.sql(
        f"CREATE TABLE wide USING delta {FEED}"
        " AS SELECT CAST(id * 7919 % 200000 AS STRING) AS k, id AS v FROM range(200000)"
    )
    lake.create("sums", "SELECT k, count(*) AS n, sum(v) AS s, count(v) AS c FROM wide GROUP BY k")
    read = []
    for keys in ("id + 1000", "id * 4999"):
        some = f"SELECT CAST({keys} AS STRING), 5 FROM range(40)"
        lake.sql(f"INSERT INTO wide {some} UNION ALL SELECT NULL, 7")
        read.append(lake.refresh("sums", strategy="merge")["sums"].work.bytes_read or 0)
    place = lake.show("sums").definition.location
    stored = lake.spark.sql(f"DESCRIBE DETAIL delta.`{place}`").collect()[0].sizeInBytes
    assert read[0] * 2 < read[1], read
    assert read[1] > stored / 2, (read, stored)  # what Spark reads in other threads counts too
    assert lake.verify("sums").ok


def test_groups_that_have_no_order(lake: dt.DynamicTables) -> None:
    query = "SELECT map(1, v) AS m, k, count(*) AS n FROM fact GROUP BY ALL"
    lake.create("by_map", query)
    assert lake.refresh("by_map", strategy="full")["by_map"].strategy == "full"
    check(lake, "by_map")
