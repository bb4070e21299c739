"""Tables read by the list of their files are the tables that Delta reads."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from urllib.parse import unquote

import pytest

import dynamic_tables as dt
from dynamic_tables import doctor
from dynamic_tables.lake import holding, pruning
from dynamic_tables.lake.files import rows_at
from dynamic_tables.lake.pruning import Pruning
from dynamic_tables.lake.ranges import Spans
from dynamic_tables.lake.skipping import Wanted
from dynamic_tables.lake.spans import spans
from dynamic_tables.model import utc_now
from listed import newest
from oracle import bag, check

pytestmark = pytest.mark.spark

FEED = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
TABLES = {
    "marked": "TBLPROPERTIES (delta.enableDeletionVectors = true)",
    "split": "PARTITIONED BY (k) TBLPROPERTIES (delta.columnMapping.mode = 'name')",
}


@pytest.mark.parametrize("name", TABLES)
def test_a_list_of_files_reads_like_the_table(shared: dt.DynamicTables, name: str) -> None:
    shared.sql(f"CREATE TABLE {name} (k INT, v STRING) USING delta {TABLES[name]}")
    statements = (
        f"INSERT INTO {name} VALUES (1, 'a'), (1, 'a'), (2, NULL), (NULL, 'x y')",
        f"DELETE FROM {name} WHERE k = 2",
        f"ALTER TABLE {name} ADD COLUMN more INT",
        f"INSERT INTO {name} VALUES (4, 'd', 4)",
        f"OPTIMIZE {name}",
    )
    for number, statement in enumerate(statements):
        shared.sql(statement)
        if number in (1, 4):
            wanted = shared.spark.table(name)
            found = newest(shared, shared.spark, name)
            assert found.schema == wanted.schema
            assert bag(found.collect()) == bag(wanted.collect()), statement


def test_an_older_version_is_read_by_delta(shared: dt.DynamicTables) -> None:
    shared.sql("CREATE TABLE older (k INT) USING delta")
    shared.sql("INSERT INTO older VALUES (1)")
    shared.sql("INSERT INTO older VALUES (2)")
    place = shared.spark.sql("DESCRIBE DETAIL older").collect()[0].location
    states = [sorted(row.k for row in rows_at(shared.spark, place, n).collect()) for n in range(3)]
    assert states == [[], [1], [1, 2]]


def test_sources_without_a_change_feed(shared: dt.DynamicTables) -> None:
    """The files that differ tell what changed; a feed that was turned on too late is no help."""
    shared.sql("CREATE TABLE silent (k INT, v INT) USING delta PARTITIONED BY (k)")
    shared.sql(
        "CREATE TABLE late (k INT, v INT) USING delta TBLPROPERTIES"
        " (delta.enableDeletionVectors = true, delta.columnMapping.mode = 'name')"
    )
    for name in ("silent", "late"):
        shared.sql(f"INSERT INTO {name} SELECT id % 3, id FROM range(9)")
        shared.sql(f"INSERT INTO {name} VALUES (NULL, NULL), (7, 7), (7, 7)")
    queries = {
        "silent_sums": "SELECT k, count(*) AS n, sum(v) AS s FROM silent GROUP BY k",
        "late_rows": "SELECT v, k FROM late WHERE v IS NULL OR v > 1",
        "both": "SELECT s.v, l.k FROM silent s LEFT JOIN late l ON s.v = l.v",
    }
    for name, query in queries.items():
        shared.create(name, query, initialize="ON_SCHEDULE")
    shared.refresh(*queries)
    for name in ("silent", "late"):
        shared.sql(f"DELETE FROM {name} WHERE v IN (2, 3)")
        shared.sql(f"UPDATE {name} SET v = v + 10 WHERE k = 1")
        shared.sql(f"OPTIMIZE {name}")
        shared.sql(f"DELETE FROM {name} WHERE v = 7")
    shared.sql("ALTER TABLE late SET TBLPROPERTIES (delta.enableChangeDataFeed = true)")
    report = shared.refresh(*queries)
    strategies = {record.table.name: str(record.strategy) for record in report.records}
    assert strategies == {"silent_sums": "merge", "late_rows": "rows", "both": "rows"}
    check(shared, *queries)


def test_history_that_vacuum_took(shared: dt.DynamicTables) -> None:
    """What changed can no longer be read: recomputed, and only the difference is written.

    A session that takes missing files for empty ones must not make it look like no change.
    """
    shared.sql(f"CREATE TABLE brief (k INT, v INT) USING delta {FEED}")
    shared.sql("INSERT INTO brief SELECT id, id FROM range(10)")
    shared.create("kept", "SELECT k, v FROM brief")
    shared.sql("UPDATE brief SET v = 0 WHERE k = 1")
    shared.sql("UPDATE brief SET v = 0 WHERE k = 2")
    shared.sql("SET spark.databricks.delta.retentionDurationCheck.enabled = false")
    shared.sql("VACUUM brief RETAIN 0 HOURS")
    shared.spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    record = shared.refresh("kept")["kept"]
    shared.spark.conf.unset("spark.sql.files.ignoreMissingFiles")
    assert (record.strategy, record.reason) == ("full", "HISTORY_GONE")
    assert (record.work.rows_inserted, record.work.rows_deleted) == (2, 2)
    check(shared, "kept")


def test_a_version_is_gone_when_its_files_are(shared: dt.DynamicTables) -> None:
    """Not when its commit is older than deleted files are kept for: nobody has deleted any."""
    shared.sql("CREATE TABLE aged (k INT, v INT) USING delta")
    shared.sql("INSERT INTO aged SELECT id, id FROM range(10)")
    shared.create("of_aged", "SELECT k, count(*) AS n FROM aged GROUP BY k")
    shared.create("below_aged", "SELECT a.k, a.v, o.n FROM aged a JOIN of_aged o ON a.k = o.k")
    log = Path(unquote(shared.sql("DESCRIBE DETAIL aged").collect()[0].location[5:])) / "_delta_log"
    long_ago = (utc_now() - timedelta(days=10)).timestamp()
    for commit in log.glob("*.json"):
        os.utime(commit, (long_ago, long_ago))
    shared.sql("INSERT INTO aged VALUES (11, 11)")
    record = shared.refresh("below_aged", strategy="full")["below_aged"]  # at its parent's cut
    assert {pin.name.name: pin.version for pin in record.pins}["aged"] == 1
    assert shared.refresh("of_aged", "below_aged").ok
    check(shared, "of_aged", "below_aged")


def test_warned_before_history_is_gone(
    open_lake: Callable[..., dt.DynamicTables], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By `plan`, also of a table that is skipped, and by `doctor`, while something is unread."""
    now = [utc_now()]
    lake = open_lake(clock=lambda: now[0])
    monkeypatch.setattr(doctor, "utc_now", lambda: now[0])
    for name, days in {"brief": 8, "late": 8, "long": 99}.items():
        kept = f"'interval {days} days'"
        lake.sql(
            f"CREATE TABLE {name} (k INT) USING delta TBLPROPERTIES"
            f" (delta.logRetentionDuration = {kept}, delta.deletedFileRetentionDuration = {kept})"
        )
        lake.sql(f"INSERT INTO {name} VALUES (1)")
        lake.create(f"of_{name}", f"SELECT k FROM {name}")
    now[0] += timedelta(days=7)

    def warned() -> dict[str, bool]:
        rows = {row.table.name: "\n".join(row.warnings) for row in lake.plan()}
        found = {name: "keeps its history for 8.0 days" in said for name, said in rows.items()}
        told = doctor._expiring(lake)
        assert (told.hint is not None) == any(found.values())
        for name, is_warned in found.items():
            assert (f"default.{name}: " in told.detail) == is_warned
        return found

    assert not any(warned().values())
    for name in ("brief", "late", "long"):
        lake.sql(f"INSERT INTO {name} VALUES (2)")
    wanted = {"of_brief": True, "of_late": True, "of_long": False}
    assert warned() == wanted
    lake.alter("of_brief", max_scan_bytes=1)
    assert {row.table.name: row.action for row in lake.plan()}["of_brief"] == "skip"
    assert warned() == wanted
    lake.refresh("of_late")
    assert warned() == wanted | {"of_late": False}


def test_files_without_the_affected_keys_are_not_read(shared: dt.DynamicTables) -> None:
    """Eight files in the order of their groups, one of which has the rows of two neighbours."""
    shared.sql(
        "CREATE TABLE sorted (k INT, v INT) USING delta TBLPROPERTIES"
        " (delta.enableChangeDataFeed = true, delta.columnMapping.mode = 'name')"
    )
    shared.sql(
        "INSERT INTO sorted SELECT /*+ REPARTITION_BY_RANGE(8, k) */ CAST(id % 800 AS INT) AS k,"
        " CAST(id AS INT) FROM range(8000)"
    )
    shared.sql("ALTER TABLE sorted RENAME COLUMN k TO g")  # statistics know it by another name
    query = "SELECT g, max(v) AS m, count(*) AS n FROM sorted GROUP BY g"
    shared.create("near", query)
    shared.create("near_merged", query)
    shared.create("near_folded", query, storage="MERGE_ON_READ")
    assert shared.sql("DESCRIBE DETAIL sorted").collect()[0].numFiles == 8
    shared.sql("DELETE FROM sorted WHERE g IN (411, 412) AND v >= 7200")
    for name, strategy in (("near", "keys"), ("near_merged", "merge"), ("near_folded", "fold")):
        record = shared.refresh(name, strategy=strategy)[name]
        assert record.strategy == strategy
        assert (record.work.rows_inserted, record.work.rows_deleted) == (2, 2)
        assert (record.work.files_read or 0) <= 4, record.work  # the feed's, the source's, 2 stored
        check(shared, name)
    shared.sql("INSERT INTO sorted VALUES (NULL, 1), (5, 1), (799, 9999), (9000, 1)")
    assert shared.refresh("near", strategy="keys")["near"].work.rows_inserted == 4
    shared.sql("INSERT INTO sorted VALUES (NULL, 2), (NULL, 0)")
    assert shared.refresh("near", strategy="keys")["near"].work.rows_inserted == 1
    check(shared, "near")


def test_files_without_many_affected_keys_are_not_read(
    shared: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys that stay in the executors are known by the ranges in which they lie."""
    monkeypatch.setattr(holding, "SMALL_CHANGES", 0)
    shared.sql(f"CREATE TABLE wide (k BIGINT, day DATE, v INT) USING delta {FEED}")
    shared.sql(
        "INSERT INTO wide SELECT /*+ REPARTITION_BY_RANGE(8, k) */ id % 800 AS k,"
        " date_add(DATE '2024-01-01', CAST(id % 800 AS INT)), CAST(id AS INT) FROM range(8000)"
    )
    for name, key in (("by_key", "k"), ("by_day", "day")):
        shared.create(name, f"SELECT {key}, max(v) AS m, count(*) AS n FROM wide GROUP BY {key}")
    shared.sql("DELETE FROM wide WHERE (k BETWEEN 5 AND 9 OR k = 790) AND v >= 7200")
    for name in ("by_key", "by_day"):
        record = shared.refresh(name, strategy="keys")[name]
        assert (record.strategy, record.work.rows_inserted) == ("keys", 6)
        assert (record.work.files_read or 0) <= 6, record.work  # the feed's, two, as many stored
        check(shared, name)
    shared.sql("INSERT INTO wide VALUES (NULL, NULL, 1), (9000, NULL, 1), (5, '2024-01-06', 1)")
    for name in ("by_key", "by_day"):
        shared.refresh(name, strategy="keys")
        check(shared, name)


def test_days_far_apart_with_many_keys(shared: dt.DynamicTables) -> None:
    """How many days there are, the number of keys does not tell."""
    keys = shared.spark.sql(
        "SELECT date_add(DATE '2024-01-01', CAST(id % 2 * 1461 AS INT)) AS day, id AS customer"
        " FROM range(3000) UNION ALL SELECT NULL, -1"
    )
    days, customers = spans(keys, ["day", "customer"], 3001)
    assert days == Spans(
        tuple((day, day) for day in (date(2024, 1, 1), date(2028, 1, 1))), null=True
    )
    assert customers == Spans(((-1, 2999),), null=False)
    assert spans(keys, ["day"], 3001) == [days]  # a key has columns that no range can say, too


def test_ranges_of_many_keys(shared: dt.DynamicTables) -> None:
    """From the least value that a type has to the greatest."""
    ends = (-(2**63), 2**63 - 1)
    rows = [(n, n and Decimal(n), n and str(n)) for n in (*range(1000, 1100), *ends, None)]
    keys = shared.spark.createDataFrame(rows, "a BIGINT, b DECIMAL(20, 0), c STRING")
    a, b, c = spans(keys, ["a", "b", "c"], len(rows))
    assert a == Spans(((ends[0], ends[0]), (1000, 1099), (ends[1], ends[1])), null=True)
    assert b == Spans(((Decimal(ends[0]), Decimal(ends[1])),), null=True)
    assert c == Spans(((str(ends[0]), str(ends[1])),), null=True)
    days = shared.spark.sql("SELECT DATE '0001-01-01' AS d UNION ALL VALUES (DATE '9999-12-31')")
    [found] = spans(days, ["d"], 2)
    assert found == Spans(((date.min, date.min), (date.max, date.max)), null=False)
    assert spans(keys.where("a IS NULL"), ["a"], 1) == [Spans((), null=True)]
    assert spans(keys.select("a"), ["a"], len(rows)) == [a]
    assert spans(keys, [], len(rows)) == []


def test_literals_are_said_where_they_leave_out_parts_of_files(
    shared: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what the checksum tells of files; the session is one that generates code."""
    shared.sql("CREATE TABLE told (k INT, v INT) USING delta")
    shared.sql("INSERT INTO told SELECT id, id FROM range(1000)")
    session = shared.spark.newSession()
    session.conf.set(pruning.CODE, "true")

    def pays(*values: int) -> bool:
        detail = shared.sql("DESCRIBE DETAIL told").collect()[0]
        version = shared.sql("DESCRIBE HISTORY told").collect()[0].version
        context = shared.spark.sparkContext
        context.setLocalProperty("spark.jobGroup.id", "pruning")
        found = Pruning(session).pays(detail.location, version, Wanted("k", values))
        context.setLocalProperty("spark.jobGroup.id", None)
        assert len(context.statusTracker().getJobIdsForGroup("pruning")) == 0
        return found

    assert not pays(3, 4)  # the file is small
    monkeypatch.setattr(pruning, "SMALL_FILE_BYTES", 0)
    assert pays(3, 4)
    assert not pays(*range(0, 1000, 3))
    shared.rorder("told", unique_by="k")
    assert pays(*range(0, 1000, 3))  # each row group has few values
