"""Strategies on Delta: many queries at once, each kept up to date by what changed."""

from __future__ import annotations

import pytest

import dynamic_tables as dt
from dynamic_tables.lake import holding
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


def test_large_changes_stay_in_the_executors(
    lake: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With nothing small enough for the driver, the results are the same."""
    monkeypatch.setattr(holding, "SMALL_CHANGES", 0)
    some = ("kept", "grouped", "padded", "frequent", "averaged")
    lake.sql("INSERT INTO fact VALUES (7, 7, 'last')")
    assert lake.refresh(*some)["kept"].strategy == "append"
    lake.sql("UPDATE fact SET v = v + 1 WHERE k = 1")  # groups that need their rows
    lake.sql("DELETE FROM fact WHERE k = 7")  # and one that goes
    before = bag(lake.read("grouped").collect())
    report = lake.refresh(*some)
    assert report["kept"].strategy == "rows"
    check(lake, *some)
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
