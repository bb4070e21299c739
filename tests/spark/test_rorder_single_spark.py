"""Row-group order without Spark beside Spark: tables that the one made and the other reads."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from plain_tables import Table, as_now, random_table
from random_tables import Wanted, false_statistics, rows, wanted

import dynamic_tables as dt
from dynamic_tables.lake.lock import commit_lock
from dynamic_tables.lake.plain_delta import log
from dynamic_tables.lake.plain_delta.store import Store

pytestmark = pytest.mark.spark


def place(tables: dt.DynamicTables, name: str) -> str:
    return tables.sql(f"DESCRIBE DETAIL {name}").collect()[0].location


def pieces(tables: dt.DynamicTables, table: Wanted) -> tuple[dt.RorderItem, ...]:
    return dt.rorder_setup_multi(
        place(tables, table.name),
        unique_by=table.key,
        sort_by=table.sort_by,
        values_per_row_group=table.values_per_row_group,
        max_row_group_bytes=table.max_row_group_bytes,
    )


@pytest.mark.parametrize("seed", range(100, 106))
def test_tables_of_spark(shared: dt.DynamicTables, seed: int) -> None:
    """Spark wrote them, and says afterwards that all rows, ids and statistics are right."""
    table = wanted(seed)
    for statement in table.statements:
        shared.sql(statement)
    before = rows(shared, table)
    reports = [dt.rorder_single(item.as_json()) for item in pieces(shared, table)]
    assert {part.became for report in reports for part in report.partitions} <= {"ordered"}
    assert sum(part.rows or 0 for report in reports for part in report.partitions) == before.total()
    assert rows(shared, table) == before
    assert false_statistics(shared, table) == []
    assert pieces(shared, table) == ()
    versions = [report.version for report in reports if report.version is not None]
    if table.feed and versions:
        feed = f"SELECT * FROM table_changes('{table.name}', {min(versions)}, {max(versions)})"
        assert shared.sql(feed).collect() == []


def test_tables_that_spark_did_not_make(shared: dt.DynamicTables, tmp_path: Path) -> None:
    """Spark reads them before and after, many in one statement; the feed tells of nothing."""
    made = [random_table(tmp_path / str(seed), seed) for seed in range(500, 512)]
    for table in made:
        for item in dt.rorder_setup_multi(table.root, unique_by="key"):
            dt.rorder_single(item)
    before, after, fed = [], [], []
    for number, table in enumerate(made):
        newest = log.newest(Store(str(table.root))).version
        before.append(_as_text(table, number, table.version))
        after.append(_as_text(table, number, newest))
        if newest > table.version:
            changes = f"table_changes_by_path('{table.root}', {table.version + 1}, {newest})"
            fed.append(f"SELECT '{table.root}' FROM {changes}")
    found = [Counter(shared.sql(" UNION ALL ".join(q)).collect()) for q in (before, after)]
    assert found[0] == found[1]
    assert found[0].total() == sum(len(f["rows"]) for table in made for f in table.live)
    assert shared.sql(" UNION ALL ".join(fed)).collect() == []


def _as_text(table: Table, number: int, version: int) -> str:
    ids = ", _metadata.row_id, _metadata.row_commit_version" if table.tracked else ""
    names = [f"`{column.name}`" for column in table.columns] + [*table.parts]
    text = f"to_json(struct({', '.join(names)}{ids}), map('ignoreNullFields', 'false'))"
    return f"SELECT {number}, {text} FROM delta.`{table.root}` VERSION AS OF {version}"


def test_filters_find_the_same_rows_with_and_without_skipping(
    shared: dt.DynamicTables, tmp_path: Path
) -> None:
    """By the log's statistics and by those of row groups; the rows themselves say what is right."""
    asked, right = [], []
    for seed in range(600, 608):
        table = random_table(tmp_path / str(seed), seed)
        rows = [row for file in table.live for row in file["rows"].values()]
        for item in dt.rorder_setup_multi(table.root, unique_by="key"):
            dt.rorder_single(item)
        for column in (table.columns[0], table.draw.choice(table.columns[1:])):
            known = [as_now(row.get(column.physical), column.kind) for row in rows]
            for value in [v for v in known if _literal(v, column.kind) is not None][:1]:
                condition = f"`{column.name}` = {_literal(value, column.kind)}"
                asked.append(f"SELECT count(*) FROM delta.`{table.root}` WHERE {condition}")
                right.append(sum(other == value for other in known))
    together = "SELECT array(" + ", ".join(f"({query})" for query in asked) + ")"
    found = [shared.sql(together).collect()[0][0]]
    skipping = ("spark.databricks.delta.stats.skipping", "spark.sql.parquet.filterPushdown")
    for setting in skipping:
        shared.spark.conf.set(setting, "false")
    found.append(shared.sql(together).collect()[0][0])
    for setting in skipping:
        shared.spark.conf.unset(setting)
    assert found == [right, right]
    assert len(asked) > 8


def _literal(value: Any, kind: Any) -> str | None:
    """As SQL, where that is the value and nothing else."""
    if value is None or kind in ("double", "float", "binary") or not isinstance(kind, str):
        return None
    if kind == "string":
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return f"CAST('{value}' AS {kind})"


TOP = "\U0010ffff"
LONG_TEXTS = [
    *("a" * 32, "a" * 33, "a" * 32 + "\uffff" * 9, "a" * 32 + "\U00010000", "a" * 32 + TOP),
    *("\U0001f600" * 40, TOP * 32, TOP * 40, "\x00" * 40),
]


@pytest.mark.parametrize("way", ["spark", "single"])
def test_long_texts_are_found_by_their_bounds(shared: dt.DynamicTables, way: str) -> None:
    """Each in a file of its own, whose bounds are cut: no file is skipped that has the text."""
    name, spark = f"long_texts_{way}", shared.spark
    shared.sql(f"CREATE TABLE {name} (p INT, t STRING) USING delta PARTITIONED BY (p)")
    made = spark.createDataFrame([*enumerate(LONG_TEXTS)], "p INT, t STRING")
    made.write.format("delta").mode("append").saveAsTable(name)
    if way == "spark":
        dt.rorder(name, unique_by="t", spark=spark)
    else:
        for item in dt.rorder_setup_multi(place(shared, name), unique_by="t"):
            dt.rorder_single(item)
    texts = [f"decode(unhex('{text.encode().hex()}'), 'UTF-8')" for text in LONG_TEXTS]
    asked = [f"(SELECT count(*) FROM {name} WHERE t {op} {t})" for t in texts for op in "=<>"]
    in_order = sorted(text.encode() for text in LONG_TEXTS)
    places = [in_order.index(text.encode()) for text in LONG_TEXTS]
    right = [n for at in places for n in (1, at, len(LONG_TEXTS) - 1 - at)]
    assert shared.sql(f"SELECT array({', '.join(asked)})").collect()[0][0] == right


EVERYTHING = (
    "delta.enableChangeDataFeed = true, delta.enableRowTracking = true, "
    "delta.enableInCommitTimestamps = true, delta.checkpointPolicy = 'v2', "
    "delta.checkpointInterval = 3, delta.enableDeletionVectors = true"
)


def make(tables: dt.DynamicTables, name: str, properties: str = EVERYTHING) -> str:
    tables.sql(
        f"CREATE TABLE {name} (p INT, k INT, v STRING) USING delta PARTITIONED BY (p)"
        f" TBLPROPERTIES ({properties})"
    )
    tables.sql(f"INSERT INTO {name} SELECT id % 4, id % 3, 'v' || id FROM range(60)")
    return place(tables, name)


def test_spark_goes_on_afterwards(shared: dt.DynamicTables) -> None:
    """It commits after ours, checks its sums, and nobody who follows the table sees a change."""
    where = make(shared, "goes_on")
    shared.create("follows", "SELECT k, count(*) AS n FROM goes_on GROUP BY k")
    for item in dt.rorder_setup_multi(where, unique_by="k"):
        dt.rorder_single(item)
    assert shared.refresh("follows")["follows"].strategy == "no_data"
    shared.sql("INSERT INTO goes_on VALUES (1, 7, 'came')")
    shared.sql("DELETE FROM goes_on WHERE p = 2 AND k = 1")
    report = dt.rorder("goes_on", unique_by="k", spark=shared.spark)
    assert {part.partition["p"] for part in report.ordered} == {
        "1"
    }  # what is left of 2 is in order
    shared.refresh("follows")
    assert shared.verify("follows").ok
    ids = shared.sql("SELECT count(*), count(DISTINCT _metadata.row_id) FROM goes_on")
    assert ids.collect() == [(56, 56)]
    times = [row.timestamp for row in shared.sql("DESCRIBE HISTORY goes_on").collect()]
    assert times == sorted(times, reverse=True)
    _check_sum(Path(where.removeprefix("file:")))


def _check_sum(root: Path) -> None:
    """What Delta wrote about its newest version, though it found no such file of ours."""
    snapshot = log.newest(Store(str(root)))
    told = json.loads((root / "_delta_log" / f"{snapshot.version:020}.crc").read_text())
    assert told["numFiles"] == len(snapshot.files)
    assert told["tableSizeBytes"] == sum(file.size for file in snapshot.files.values())


@pytest.mark.parametrize("policy", ["classic", "v2", "in_columns"])
def test_checkpoints_of_spark(shared: dt.DynamicTables, policy: str) -> None:
    """What they stand for is gone from the log; statistics may be in columns only."""
    name, in_columns = f"checked_{policy}", policy == "in_columns"
    properties = f"delta.checkpointPolicy = '{'classic' if in_columns else policy}'"
    properties += ", delta.checkpointInterval = 2, delta.enableDeletionVectors = true"
    if in_columns:
        properties += ", delta.checkpoint.writeStatsAsJson = false"
        properties += ", delta.checkpoint.writeStatsAsStruct = true"
    where = make(shared, name, properties)
    shared.sql(f"DELETE FROM {name} WHERE k = 1")
    root = Path(where.removeprefix("file:")) / "_delta_log"
    assert len([*root.glob("0*2.checkpoint*")]) == 1
    for path in root.glob(f"{'0' * 19}[01].json"):  # checkpoints may end in any digit, too
        path.unlink()
    before = Counter(shared.spark.table(name).collect())
    files = log.newest(Store(where)).files.values()
    assert {file.told["nullCount"]["v"] for file in files} == {0}
    assert {file.statistics is None for file in files} == {in_columns}
    for item in dt.rorder_setup_multi(where, unique_by="k"):
        assert dt.rorder_single(item).partitions[0].became == "ordered"
    assert Counter(shared.spark.table(name).collect()) == before
    assert before.total() == 40


def test_the_lock_of_a_jvm_holds_us_and_ours_a_jvm(shared: dt.DynamicTables) -> None:
    where = make(shared, "locked")
    store, spark = Store(where), shared.spark
    with commit_lock(spark, where, about="t", wait_s=1), pytest.raises(dt.Held):
        store.locked(wait_s=0.2).__enter__()
    with store.locked(wait_s=1), pytest.raises(dt.Held):
        commit_lock(spark, where, about="t", wait_s=0.2).__enter__()
    with store.locked(wait_s=1):
        pass


def test_a_race_with_a_jvm(shared: dt.DynamicTables) -> None:
    """Both commit to one table under the lock: no version is taken twice, no row is lost."""
    where = make(shared, "raced")

    def jvm() -> None:
        for number in range(8):
            with commit_lock(shared.spark, where, about="raced", wait_s=60):
                shared.sql(f"INSERT INTO raced VALUES ({number % 4}, {number}, 'came')")

    def ours() -> list[dt.RorderReport]:
        done: list[dt.RorderReport] = []
        while not future.done() or not done:
            done += [dt.rorder_single(i) for i in dt.rorder_setup_multi(where, unique_by="k")]
        return done

    with ThreadPoolExecutor(2) as threads:
        future = threads.submit(jvm)
        reports = threads.submit(ours).result(timeout=300)
        future.result()
    versions = [report.version for report in reports if report.version is not None]
    assert len(set(versions)) == len(versions) > 0
    operations = [_operation(where, version) for version in versions]
    assert operations == ["OPTIMIZE"] * len(versions)
    newest = log.newest(Store(where)).version
    assert newest == 1 + 8 + len(versions)
    assert shared.sql("SELECT count(*), count_if(v = 'came') FROM raced").collect() == [(68, 8)]


def _operation(where: str, version: int) -> Any:
    first = next(iter(log.actions_of(Store(where), version)))
    return first["commitInfo"]["operation"]
