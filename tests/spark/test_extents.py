"""How much changed is told by what differs in the end, not by what happened in between."""

from __future__ import annotations

import pytest

import dynamic_tables as dt
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
    (planned,) = lake.plan("regions")
    assert (planned.reason, planned.rows) == ("CHANGED", 0)
    record = lake.refresh("regions")["regions"]
    assert (record.strategy, record.reason) == ("no_data", "NET_EMPTY")
