"""Strategies on Delta: many queries at once, each kept up to date by what changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import dynamic_tables as dt
from dynamic_tables.compiler.refused import NotIncremental
from dynamic_tables.lake import holding, measure, transaction
from dynamic_tables.lake.commit_files import actions_of
from dynamic_tables.lake.deltas import OpaqueQuery
from dynamic_tables.lake.maintenance import Maintenance
from dynamic_tables.lake.pinning import Reading
from dynamic_tables.lake.references import find_references
from oracle import bag, check

pytestmark = pytest.mark.spark

FEED = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
QUERIES = {
    "kept": ("append", "SELECT k, v, t FROM fact WHERE v IS NULL OR v > 2"),
    "grouped": ("merge", "SELECT k, count(*) AS n, sum(v) AS s, max(t) AS m FROM fact GROUP BY k"),
    "ranked": (
        "keys",
        "SELECT k, v, t, row_number() OVER (PARTITION BY k ORDER BY v, t) AS r FROM fact",
    ),
    "padded": ("rows", "SELECT f.k, f.v, d.name FROM fact f LEFT JOIN dim d ON f.k <=> d.k"),
    "absent": ("rows", "SELECT k, v FROM fact WHERE k NOT IN (SELECT k FROM dim)"),
    "below": ("merge", "SELECT n, count(*) AS groups FROM grouped GROUP BY n"),
    "averaged": ("merge", "SELECT k, avg(CAST(v AS DOUBLE)) AS a FROM fact GROUP BY k"),
    "frequent": (
        "merge",
        (
            "SELECT k, avg(CAST(v AS DECIMAL(9,2))) AS a, count_if(v > 3) AS big FROM fact"
            " GROUP BY k HAVING count(*) > 1"
        ),
    ),
    "exact": (  # sqlglot would print it as an approximation
        "keys",
        "SELECT t, percentile_cont(0.5) WITHIN GROUP (ORDER BY v) AS p FROM fact GROUP BY t",
    ),
}


@pytest.fixture(scope="module")
def lake(shared: dt.DynamicTables) -> dt.DynamicTables:
    shared.sql(f"CREATE TABLE fact (k INT, v INT, t STRING) USING delta {FEED}")
    shared.sql(f"CREATE TABLE dim (k INT, name STRING) USING delta {FEED}")
    shared.sql("INSERT INTO fact VALUES (1, 1, 'x'), (1, 3, NULL), (2, 3, 'y'), (NULL, 4, 'x')")
    shared.sql("INSERT INTO dim VALUES (1, 'one'), (2, 'two')")
    for name, (_, query) in QUERIES.items():
        shared.create(name, query, initialize="ON_SCHEDULE")
    shared.refresh()
    return shared


def test_inserts_are_appended(lake: dt.DynamicTables) -> None:
    lake.sql("INSERT INTO fact VALUES (2, 5, 'new'), (2, 5, 'new'), (9, 5, 'alone')")
    report = lake.refresh()
    strategies = {record.table.name: str(record.strategy) for record in report.records}
    assert strategies == {name: strategy for name, (strategy, _) in QUERIES.items()}
    assert report["kept"].reason == "CHANGED"
    assert (report["kept"].work.rows_inserted, report["kept"].work.rows_deleted) == (3, 0)
    check(lake)


def test_updates_and_deletes(lake: dt.DynamicTables) -> None:
    lake.sql("UPDATE fact SET k = 1 WHERE v = 5")
    lake.sql("DELETE FROM fact WHERE t IS NULL")
    lake.sql("DELETE FROM dim WHERE k = 2")
    report = lake.refresh()
    strategies = {record.table.name: str(record.strategy) for record in report.records}
    assert strategies["kept"] == "rows"
    assert strategies["padded"] == "rows"
    check(lake)
    assert all(lake.verify(name).ok for name in ("grouped", "averaged", "frequent"))


@contextmanager
def joining(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """The tables whose groups are merged beside their stored rows."""
    joined: set[str] = set()
    join = Maintenance._joined

    def noted(self: Maintenance, *arguments: Any) -> Any:
        joined.add(self._definition.name.name)
        return join(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Maintenance, "_joined", noted)
        yield joined


def actions(lake: dt.DynamicTables, name: str, report: dt.RefreshReport) -> set[str]:
    """The kinds of actions in the commit of a table."""
    place, version = lake.show(name).definition.location, report[name].version or 0
    return {kind for action in actions_of(lake.spark, place, version) for kind in action}


def test_large_changes_stay_in_the_executors(
    lake: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With nothing small enough for the driver, the results are the same."""
    monkeypatch.setattr(holding, "SMALL_CHANGES", 0)
    monkeypatch.setattr(transaction, "FEED_BY_FILES", 2)
    some = ("kept", "grouped", "padded", "frequent", "averaged")
    lake.sql("INSERT INTO fact VALUES (7, 7, 'last'), (NULL, 9, 'nobody')")
    with joining(monkeypatch) as joined:
        report = lake.refresh(*some)
    assert joined == {"grouped", "frequent", "averaged"}
    assert report["kept"].strategy == "append"
    assert "cdc" in actions(lake, "grouped", report)
    check(lake, *some)
    monkeypatch.setattr(transaction, "FEED_BY_FILES", 0)
    lake.sql("UPDATE fact SET v = v + 1 WHERE k = 1")  # groups that need their rows
    lake.sql("DELETE FROM fact WHERE k = 7")  # and one that goes
    before = bag(lake.read("grouped").collect())
    report = lake.refresh(*some)
    assert report["kept"].strategy == "rows"
    check(lake, *some)
    assert "cdc" not in actions(lake, "grouped", report), "the files tell what changed"
    version = report["grouped"].version or 0
    feed = lake.changes("grouped", version, version).select(*"knsm", "_change_type").collect()
    assert {row["_change_type"] for row in feed} == {"insert", "delete"}
    came, went = (
        bag([row[:-1] for row in feed if row["_change_type"] == kind])
        for kind in ("insert", "delete")
    )
    assert not came & went, "what stays is not told"
    assert before + came - went == bag(lake.read("grouped").collect())
    lake.refresh("below")
    check(lake, "below")


GROUPS = {
    "all of them stored": ["INSERT INTO pairs VALUES (1, 1), (NULL, 2), (2, NULL)"],
    "new ones too": ["INSERT INTO pairs VALUES (1, 5), (7, 1), (8, NULL)"],
    "only new ones": ["INSERT INTO pairs VALUES (9, 1)"],
    "one goes": ["DELETE FROM pairs WHERE k = 9"],
    "rows move": ["UPDATE pairs SET k = 1 WHERE k = 7"],
    "the greatest goes": ["DELETE FROM pairs WHERE v = 5", "INSERT INTO pairs VALUES (10, 3)"],
    "nothing that is stored": ["UPDATE pairs SET k = k WHERE k = 1"],
}


@pytest.mark.parametrize("small", [holding.SMALL_CHANGES, 0], ids=["here", "in the executors"])
def test_groups_stand_beside_their_stored_rows(
    lake: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    """Whatever becomes of them, and the feed tells just that. Of groups that go, nothing is
    computed: their share would be a division by zero."""
    monkeypatch.setattr(holding, "SMALL_CHANGES", small)
    source, name = f"pairs_{small}", f"paired_{small}"
    lake.sql(f"CREATE TABLE {source} (k INT, v INT) USING delta {FEED}")
    lake.sql(f"INSERT INTO {source} VALUES (1, 1), (2, 2), (NULL, 3), (3, NULL)")
    items = "k, count(*) AS n, sum(v) AS s, max(v) AS m, count_if(v > 1) / count(*) AS share"
    lake.create(name, f"SELECT {items} FROM {source} GROUP BY k", refresh_mode="INCREMENTAL")
    for case, statements in GROUPS.items():
        for statement in statements:
            lake.sql(statement.replace("pairs", source))
        before = bag(lake.read(name).collect())
        record = lake.refresh(name, strategy="merge")[name]
        check(lake, name)
        after = bag(lake.read(name).collect())
        if record.strategy == "no_data":
            assert before == after, case
            continue
        version, columns = record.version or 0, lake.read(name).columns
        feed = lake.changes(name, version, version).select(*columns, "_change_type").collect()
        came, went = (
            bag([row[:-1] for row in feed if row["_change_type"] == kind])
            for kind in ("insert", "delete")
        )
        assert (came, went) == (after - before, before - after), case


def test_changes_travel_not_the_source(
    lake: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too many keys for the driver, and few beside the source: the source is not shuffled. Spark
    alone takes a change feed for endless."""
    monkeypatch.setattr(holding, "SMALL_CHANGES", 0)
    lake.sql("INSERT INTO fact VALUES (1, 5, 'travels')")
    version = lake.sql("DESCRIBE HISTORY fact LIMIT 1").collect()[0].version
    session = lake.spark.newSession()
    session.conf.set("spark.sql.adaptive.enabled", "false")
    place = lake.sql("DESCRIBE DETAIL fact").collect()[0].location
    feed = f"SELECT DISTINCT k FROM table_changes_by_path('{place}', {version}, {version})"

    def join() -> str:
        keys = holding.Holder(session).for_joins(session.sql(feed))
        source = session.read.format("delta").load(place)
        found = source.join(keys, "k", "left_semi")
        assert {row.k for row in found.collect()} == {1}
        return found._jdf.queryExecution().executedPlan().toString()

    assert "BroadcastHashJoin" in join()
    with monkeypatch.context() as patched:  # long texts: few rows, many bytes
        patched.setattr(holding, "IN_MEMORY", 0)
        assert "BroadcastHashJoin" not in join()
    session.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")  # the user's word
    assert "BroadcastHashJoin" not in join()
    lake.refresh("grouped", strategy="keys")
    check(lake, "grouped")


@pytest.mark.parametrize("strategy", ["merge", "keys", "rows"])
def test_one_row_for_all_stays_when_no_change_reaches_it(
    lake: dt.DynamicTables, strategy: str
) -> None:
    """A key without columns is every row's, but of no keys it is nobody's."""
    name = f"of_all_by_{strategy}"
    lake.create(name, "SELECT sum(v) AS s, count(*) AS n FROM fact WHERE t = 'of all'")
    lake.sql("INSERT INTO fact VALUES (5, 5, 'of none')")
    lake.refresh(name, strategy=strategy)
    check(lake, name)
    lake.sql("INSERT INTO fact VALUES (5, 5, 'of all')")
    assert lake.refresh(name, strategy=strategy)[name].strategy == strategy
    check(lake, name)


@pytest.mark.parametrize("strategy", ["merge", "keys"])
def test_refreshes_shuffle_what_changed(
    lake: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    """Neither for groups that need their rows (the greatest goes) nor for keys, which lie all over,
    is the source sent about; it would be if Spark did not know how few they are."""
    rows, name = 20_000, f"greatest_by_{strategy}"
    source = f"many_{strategy}"
    lake.sql(
        f"CREATE TABLE {source} USING delta {FEED} AS"
        f" SELECT id * 7 % 2000 AS k, id AS v, id % 7 AS w FROM range({rows})"
    )
    lake.create(name, f"SELECT k, max(v) AS m, count(*) AS n FROM {source} GROUP BY k")
    monkeypatch.setattr(holding, "SMALL_CHANGES", 10)
    shuffled: list[int] = []

    def also_shuffled(status: Any, stage: int) -> int:
        shuffled.append(status.lastStageAttempt(stage).shuffleWriteRecords())
        return 0

    monkeypatch.setattr(measure, "_bytes_read", also_shuffled)

    def refreshed(v: int) -> int:
        lake.sql(f"DELETE FROM {source} WHERE v >= {v}")
        shuffled.clear()
        assert lake.refresh(name, strategy=strategy)[name].strategy == strategy
        check(lake, name)
        return sum(shuffled)

    few = refreshed(rows - 300)
    assert 0 < few < rows / 4
    lake.spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    try:
        assert refreshed(rows - 600) > rows / 2
    finally:
        lake.spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")


def test_functions_of_somebodys_classes_are_not_trusted(lake: dt.DynamicTables) -> None:
    """They may fold rows; what is written in SQL can be read."""
    lake.sql("CREATE FUNCTION of_classes AS 'com.example.Total'")
    lake.sql("CREATE FUNCTION of_sql(x INT) RETURNS INT RETURN x + 1")
    definition = lake.show("grouped").definition

    def text(query: str) -> str:
        found = {query: find_references(lake.spark, query)}
        sources = {source.name.key: source.name for source in definition.sources}
        opaque = OpaqueQuery(
            lake.spark, Reading(found=found, views={}, sources=sources), definition
        )
        return opaque.text(query, definition.namespace)

    assert "of_sql(k) AS x FROM _ivm_" in text("SELECT of_sql(k) AS x FROM fact")
    for name in ("OF_CLASSES", "default.of_classes"):
        with pytest.raises(NotIncremental, match="may fold rows") as told:
            text(f"SELECT {name}(k) AS x FROM fact")
        assert told.value.reason == "UNKNOWN_FUNCTION"
