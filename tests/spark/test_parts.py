"""STORAGE = MERGE_ON_READ on Delta: appended, folded by readers, compacted unseen."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

import dynamic_tables as dt
from dynamic_tables.lake import commit_files, jvm, pieces, snapshots, transaction
from dynamic_tables.refresh import writer
from dynamic_tables.steps import AnyStep, Step, observing
from oracle import bag, check

pytestmark = pytest.mark.spark

FEED = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
QUERY = (
    "SELECT k, count(*) AS n, sum(v) AS s, max(d) AS high, avg(w) AS mean FROM src "
    "GROUP BY k HAVING count(*) > 1"
)


@pytest.fixture(scope="module")
def lake(shared: dt.DynamicTables) -> dt.DynamicTables:
    shared.sql(f"CREATE TABLE src (k INT, v DECIMAL(9, 2), d DATE, w DOUBLE) USING delta {FEED}")
    shared.sql(
        "INSERT INTO src SELECT id % 5, id, date_add(DATE'2026-01-01', CAST(id AS INT)), id / 3"
        " FROM range(20)"
    )
    shared.create("folded", QUERY, storage="MERGE_ON_READ", initialize="ON_SCHEDULE")
    shared.create("below", "SELECT n, sum(s) AS s FROM folded GROUP BY n", initialize="ON_SCHEDULE")
    shared.refresh()
    return shared


def parts(tables: dt.DynamicTables, name: str = "folded") -> int:
    return tables.spark.table(f"{name}__ivm").count()


def test_a_refresh_appends_and_reads_nothing_stored(lake: dt.DynamicTables) -> None:
    before = lake.show("folded").build
    lake.sql("INSERT INTO src VALUES (1, 100, DATE'2030-01-01', 1), (7, 7, NULL, NULL)")
    record = lake.refresh("folded")["folded"]
    assert (record.strategy, record.work.rows_inserted, record.work.rows_deleted) == ("fold", 2, 0)
    assert parts(lake) == 7
    check(lake, "folded")
    after = lake.show("folded").build
    assert before is not None
    assert after is not None
    told = lake.changes("folded", after.version, after.version).collect()
    assert sorted((row.k, row.n, row._change_type) for row in told) == [
        (1, 4, "delete"), (1, 5, "insert"),
    ]  # fmt: skip
    old = lake.read("folded", version=before.version)
    assert sorted((row.k, row.n) for row in old.collect()) == [(n, 4) for n in range(5)]
    lake.refresh()
    check(lake)


def test_a_small_refresh_lists_no_log_twice_for_the_same(
    lake: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On an object store each look is a round trip. And rows from the driver become one file."""
    lake.sql("INSERT INTO src VALUES (1, 1, NULL, 1), (2, 1, NULL, 1), (3, 1, NULL, 1)")
    looks: list[str] = []
    look = snapshots.newest_snapshot

    def counted(spark: SparkSession, log: Any) -> Any:
        looks.append(log.dataPath().getName())
        return look(spark, log)

    monkeypatch.setattr(snapshots, "newest_snapshot", counted)
    assert lake.refresh("folded")["folded"].work.rows_inserted == 3
    # The source is pinned; what stands is asked for by the recovery, by the refresh once nothing is
    # open any more, by the transaction that begins, and afterwards: did it land?
    assert (looks.count("src"), len(looks)) == (1, 5), looks
    told = lake.spark.sql("DESCRIBE HISTORY folded__ivm LIMIT 1").collect()[0]
    assert told.operationMetrics["numFiles"] == "1"
    lake.refresh()


def test_a_refresh_reads_no_commit_twice(
    lake: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What moved, how much, how to read it: all is asked of the same commits."""
    for number in range(2):
        lake.sql(f"INSERT INTO src VALUES (1, {number}, NULL, 1)")
    read, parsed = Counter[str](), commit_files._parsed

    def counted(spark: SparkSession, path: str) -> Iterator[Any]:
        read[path] += 1
        return parsed(spark, path)

    monkeypatch.setattr(commit_files, "_parsed", counted)
    assert lake.refresh("folded")["folded"].strategy == "fold"
    assert sum("/src/_delta_log/" in path for path in read) == 2
    assert {*read.values()} == {1}
    lake.refresh()


def test_rows_that_go_replace_what_is_stored_of_their_groups(lake: dt.DynamicTables) -> None:
    lake.sql("DELETE FROM src WHERE v = 100 OR k = 2")
    record = lake.refresh("folded")["folded"]
    assert record.strategy == "fold"
    lake.refresh()
    check(lake)
    assert lake.verify("folded").ok


def test_equal_rows_are_added_up_without_looking_for_their_groups(lake: dt.DynamicTables) -> None:
    """Rows that differ only in what is not read are one row of the net changes, twice."""
    lake.sql(f"CREATE TABLE twins (id INT, k INT, v INT) USING delta {FEED}")
    lake.sql("INSERT INTO twins VALUES (1, 1, 5), (2, 2, 6), (3, 3, 7), (4, 3, 7), (5, 3, 8)")
    lake.create(
        "of_twins", "SELECT k, count(*) AS n, sum(v) AS s FROM twins GROUP BY k",
        storage="MERGE_ON_READ",
    )  # fmt: skip
    lake.sql("INSERT INTO twins VALUES (6, 1, 9), (7, 1, 9)")
    lake.sql("UPDATE twins SET v = 60 WHERE id = 2")
    lake.sql("DELETE FROM twins WHERE id IN (3, 4)")
    record = lake.refresh("of_twins")["of_twins"]
    assert (record.strategy, record.work.rows_deleted) == ("fold", 0)
    check(lake, "of_twins")
    lake.sql("DROP DYNAMIC TABLE of_twins")


def test_compaction_changes_nothing_for_anybody(lake: dt.DynamicTables) -> None:
    for number in range(3):
        lake.sql(f"INSERT INTO src VALUES (1, {number}, NULL, 0)")
        lake.refresh("folded")
    lake.refresh()
    rows, stored = bag(lake.read("folded").collect()), parts(lake)
    lake.sql("OPTIMIZE DYNAMIC TABLE folded")
    assert parts(lake) < stored
    assert bag(lake.read("folded").collect()) == rows
    assert {record.reason for record in lake.refresh().records} == {"NOT_MOVED"}
    lake.sql("INSERT INTO src VALUES (1, 5, NULL, 0)")
    report = lake.refresh()
    assert {record.table.name: str(record.strategy) for record in report.records} == {
        "folded": "fold", "below": "merge",
    }  # fmt: skip
    check(lake)


def test_a_refresh_compacts_when_most_rows_are_partial(
    lake: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the checksum does not list the files, because there are many."""
    lake.sql("OPTIMIZE DYNAMIC TABLE folded")
    whole = parts(lake)
    monkeypatch.setattr(snapshots, "all_files", lambda _snapshot: None)
    monkeypatch.setattr(writer, "FEW_PARTIAL_ROWS", 0)
    notes = []
    for _ in range(2):
        lake.sql("INSERT INTO src SELECT DISTINCT k, 1, DATE'2026-01-01', 0 FROM src")
        notes.append(lake.refresh("folded")["folded"].note)
    assert notes == [None, f"{2 * whole} partial rows were compacted"]
    assert parts(lake) == whole
    check(lake, "folded")


def at(step: Step, work: Callable[[], object]) -> AbstractContextManager[None]:
    """Do something when a refresh of the table passes a step; the first time."""
    done: list[object] = []

    def observe(passed: AnyStep, table: str) -> None:
        if passed is step and table.endswith("folded") and not done:
            done.append(work())

    return observing(observe)


def commits_of(tables: dt.DynamicTables, n: int) -> list[str]:
    """How the commits were made that carry a number."""
    definition = tables.show("folded").definition
    newest = tables.lake.standing(definition).version
    commits = tables.lake.commits(definition, 0, newest)
    return [c.stamp.strategy for c in commits if c.stamp and c.stamp.sequence == n]


def by_delta(tables: dt.DynamicTables) -> None:
    """As somebody does who does not know our lock; it has two files to merge at least."""
    before = snapshot(tables.spark, tables.show("folded").definition.location)
    assert snapshots.file_count(before)[0] > 1
    tables.spark.sql("OPTIMIZE folded__ivm")


def lose_a_row(tables: dt.DynamicTables, value: int) -> None:
    """So that what is stored of its group is to be replaced, in a table of several files."""
    tables.sql(f"INSERT INTO src VALUES (1, {value}, NULL, 0)")
    tables.refresh("folded")
    tables.sql(f"DELETE FROM src WHERE v = {value}")


def test_a_compaction_while_rows_are_replaced(lake: dt.DynamicTables) -> None:
    """What was compared is not stored like that any more: it is compared anew, under the same n."""
    lake.sql("INSERT INTO src VALUES (1, 60, NULL, 0)")
    with at(Step.COMPUTED, lambda: lake.sql("OPTIMIZE DYNAMIC TABLE folded")):
        assert lake.refresh("folded")["folded"].outcome == "done"  # an append stands beside it
    before = lake.show("folded").build
    assert before is not None
    lake.sql("DELETE FROM src WHERE v = 60")
    with at(Step.COMPUTED, lambda: lake.sql("OPTIMIZE DYNAMIC TABLE folded")):
        record = lake.refresh("folded")["folded"]
    assert (record.strategy, record.sequence) == ("fold", before.sequence + 1)
    assert commits_of(lake, before.sequence + 1) == ["fold"]
    check(lake, "folded")
    lake.refresh()
    check(lake)


def test_files_that_somebody_merges_under_the_lock(lake: dt.DynamicTables) -> None:
    lose_a_row(lake, 61)
    with at(Step.LOCKED, lambda: by_delta(lake)):
        assert lake.refresh("folded")["folded"].strategy == "fold"
    check(lake, "folded")


def test_files_that_somebody_merges_during_the_commit(
    lake: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta finds the conflict."""
    lose_a_row(lake, 62)
    commit, tried = transaction._commit, []

    def late(*given: object) -> None:
        if not tried:
            by_delta(lake)
        tried.append(given)
        commit(*given)

    monkeypatch.setattr(transaction, "_commit", late)
    assert lake.refresh("folded")["folded"].strategy == "fold"
    assert len(tried) == 2
    check(lake, "folded")


def test_a_refresh_that_is_completed_meets_a_compaction(lake: dt.DynamicTables) -> None:
    """It compares the whole query with what is stored."""
    lose_a_row(lake, 63)

    def die() -> None:
        raise KeyboardInterrupt

    with at(Step.INTENDED, die), pytest.raises(KeyboardInterrupt):
        lake.refresh("folded")
    with at(Step.LOCKED, lambda: by_delta(lake)):
        lake.refresh("folded")
    assert "RECOVERED" in {record.reason for record in lake.history("folded")[:2]}
    check(lake, "folded")


def test_rows_that_somebody_changes_meanwhile(lake: dt.DynamicTables) -> None:
    """Nothing is built on them: the number is given up, and the next refresh recomputes."""
    lose_a_row(lake, 64)
    change = "DELETE FROM folded__ivm WHERE k = 3"
    with at(Step.COMPUTED, lambda: lake.spark.sql(change)):
        report = lake.refresh("folded", on_error="report")
    assert report["folded"].reason == "COMMIT_FAILED"
    assert lake.refresh("folded")["folded"].reason == "FOREIGN_CHANGE"
    check(lake, "folded")


def test_files_that_somebody_rewrites_again_and_again(
    lake: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refresh ends and gives its number up; the next one goes on by changes."""
    lose_a_row(lake, 65)
    commit, location = transaction._commit, lake.show("folded").definition.location

    def late(*given: object) -> None:
        transaction.rewrite(lake.spark, location, lambda rows: rows, lambda: None)
        commit(*given)

    with monkeypatch.context() as patched:
        patched.setattr(transaction, "_commit", late)
        report = lake.refresh("folded", on_error="report")
    assert report["folded"].reason == "COMMIT_FAILED"
    assert lake.refresh("folded")["folded"].strategy == "fold"
    check(lake, "folded")


def snapshot(spark: SparkSession, location: str) -> jvm.Java:
    return snapshots.newest_snapshot(spark, snapshots.delta_log_by_path(spark, location))


def test_rows_of_many_files_are_counted_in_one_job(lake: dt.DynamicTables) -> None:
    lake.spark.range(0, 90, 1, 60).write.format("delta").saveAsTable("many")
    lake.sql("ALTER TABLE many SET TBLPROPERTIES (delta.enableDeletionVectors = true)")
    lake.sql("DELETE FROM many WHERE id = 0")  # with its file, or as a mark in it
    location = lake.sql("DESCRIBE DETAIL many").collect()[0].location
    found = snapshot(lake.spark, location)
    assert snapshots.all_files(found) is None
    tracker = lake.spark.sparkContext.statusTracker()
    lake.spark.sparkContext.setJobGroup("counting", "counting")
    assert pieces.parts(lake.spark, found) == pieces.Parts(rows=89, partial_rows=0, partial_files=0)
    assert len(tracker.getJobIdsForGroup("counting")) <= 2  # adaptive execution splits one in two
    folded = snapshot(lake.spark, lake.show("folded").definition.location)
    assert snapshots.all_files(folded) is not None
    assert pieces._parts_by_log(lake.spark, folded) == pieces.parts(lake.spark, folded)


def test_a_partitioned_table_is_compacted(
    lake: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its partial rows, and by the files of them in one partition: the others are its nature."""
    lake.sql(f"CREATE TABLE sold (day INT, k INT) USING delta {FEED}")
    lake.sql("INSERT INTO sold SELECT id % 4, id % 8 FROM range(40)")
    lake.create(
        "by_day", "SELECT day, k, count(*) AS n FROM sold GROUP BY day, k",
        storage="MERGE_ON_READ", partitioned_by="day",
    )  # fmt: skip
    definition = lake.show("by_day").definition
    for number in range(2):
        lake.sql(f"INSERT INTO sold VALUES (0, 0), (1, {number})")
        assert lake.refresh("by_day")["by_day"].strategy == "fold"
    layout = lake.lake.layout(definition)
    assert (layout.rows, layout.partial_rows, layout.small_files) == (12, 4, 2)
    by_log = pieces._parts_by_log(lake.spark, snapshot(lake.spark, definition.location))
    assert by_log == pieces.Parts(rows=12, partial_rows=4, partial_files=2)
    monkeypatch.setattr(writer, "FEW_PARTIAL_ROWS", 0)
    lake.sql("INSERT INTO sold SELECT DISTINCT day, k FROM sold")
    assert lake.refresh("by_day")["by_day"].note == "13 partial rows were compacted"
    assert lake.lake.layout(definition).small_files == 0
    assert parts(lake, "by_day") == 9
    check(lake, "by_day")


def test_small_files_are_counted_beside_a_large_one(
    lake: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "SMALL_FILE_BYTES", 8192)
    lake.sql(f"CREATE TABLE wide USING delta {FEED} AS SELECT id, uuid() AS u FROM range(5000)")
    lake.create("copied", "SELECT id, u FROM wide")
    for number in range(3):
        lake.sql(f"INSERT INTO wide VALUES (-{number}, 'a')")
        lake.refresh("copied")
    definition = lake.show("copied").definition
    files, size = snapshots.file_count(snapshot(lake.spark, definition.location))
    assert size > files * 8192
    assert lake.lake.layout(definition).small_files == 3


# What runs beside refreshes


@contextmanager
def meanwhile(work: Callable[[], object]) -> Iterator[list[object]]:
    """Do something in another thread, again and again; what it gave."""
    stop, given, failed = threading.Event(), [], []

    def repeat() -> None:
        try:
            while not stop.wait(0.1):
                given.append(work())
        except Exception as error:  # noqa: BLE001  told below
            failed.append(error)

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield given
    finally:
        stop.set()
        thread.join()
    assert failed == []


@pytest.mark.soak
def test_compaction_while_refreshes_and_readers_run(lake: dt.DynamicTables) -> None:
    """Every refresh is done; every read is a state that was right at some refresh, and none goes
    back."""
    totals = "SELECT count(*), sum(n), sum(s) FROM"
    lake.sql("INSERT INTO src SELECT 3, id, NULL, 0 FROM range(5)")
    lake.refresh("folded")
    states: list[Row] = lake.sql(f"{totals} folded").collect()
    session, turn = lake.spark.newSession(), threading.Event()

    def compact() -> bool:
        """Once a refresh."""
        if has_turn := turn.wait(0.1):
            turn.clear()
            lake.optimize("folded")
        return has_turn

    with (
        meanwhile(lambda: session.sql(f"{totals} folded").collect()[0]) as seen,
        meanwhile(compact) as compactions,
    ):
        for number in range(4):
            goes = f"DELETE FROM src WHERE k = 3 AND v = {number}"
            comes = f"INSERT INTO src SELECT {number}, id, NULL, 1 FROM range({10 + number})"
            lake.sql(goes if number % 2 else comes)
            states += lake.sql(f"{totals} ({QUERY})").collect()
            turn.set()
            lake.refresh("folded")
    places = [states.index(row) for row in seen]
    assert places == sorted(places)
    assert len(set(places)) > 1
    assert any(compactions)
    lake.refresh()
    check(lake)
