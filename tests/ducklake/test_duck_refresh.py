"""Refreshing one table and a graph: the basic promises."""

from __future__ import annotations

import pytest
from duck_oracle import check

import dynamic_tables as dt


@pytest.fixture(scope="module")
def shop(shared: dt.DynamicTables) -> dt.DynamicTables:
    """One shop; the tests follow each other."""
    tables = shared
    tables.sql("CREATE TABLE orders (id INT, customer INT, amount DECIMAL(10,2))")
    tables.sql("INSERT INTO orders VALUES (1, 1, 5), (2, 1, 6), (3, 2, 7), (4, NULL, NULL)")
    tables.create(
        "metrics",
        "SELECT customer, count(*) AS n, sum(amount) AS total FROM orders GROUP BY customer",
    )
    return tables


def test_first_load_equals_the_query(shop: dt.DynamicTables) -> None:
    check(shop, "metrics")
    record = shop.history("metrics")[0]
    assert (record.action, record.strategy, record.reason) == ("initialize", "full", "FIRST_LOAD")
    assert record.sequence == 1
    assert record.work.rows_inserted == 3


def test_the_report_reads_what_its_parent_read(shop: dt.DynamicTables) -> None:
    """The seed's test: metrics read orders@n, so the report must, though a newer version exists."""
    pinned = shop.history("metrics")[0].pins[0].version
    shop.create(
        "report",
        "SELECT o.id, m.total FROM orders o JOIN metrics m "
        "ON o.customer IS NOT DISTINCT FROM m.customer",
    )
    shop.sql("INSERT INTO orders VALUES (5, 2, 100)")
    record = shop.refresh("report")["report"]
    read = {pin.name.name: pin for pin in record.pins}
    assert read["orders"].version == pinned
    assert read["orders"].latest > pinned
    assert f"main.orders has version {read['orders'].latest}, read at {pinned}" in (
        record.note or ""
    )
    check(shop)

    report = shop.refresh("report", upstream=True)
    assert [record.table.name for record in report.records] == ["metrics", "report"]
    assert {r.pins[0].version for r in report.records} == {read["orders"].latest}
    check(shop)


def test_nothing_moved_is_no_data(shop: dt.DynamicTables) -> None:
    record = shop.refresh()["metrics"]
    assert (record.strategy, record.reason) == ("no_data", "NOT_MOVED")


def test_a_foreign_delete_is_noticed(shop: dt.DynamicTables) -> None:
    shop.sql("DELETE FROM metrics__ivm WHERE customer = 1")
    record = shop.refresh()["metrics"]
    assert (record.strategy, record.reason) == ("full", "FOREIGN_CHANGE")
    check(shop)


def test_columns_that_the_query_does_not_read_may_come_and_go(tables: dt.DynamicTables) -> None:
    """The table stays incremental; a retyped column costs one recomputation, then no more."""
    tables.sql("CREATE TABLE wide AS SELECT 1 AS k, 10 AS v, 'x' AS unused")
    tables.create("sums", "SELECT k, sum(v) AS s FROM wide GROUP BY k")
    tables.sql("ALTER TABLE wide DROP COLUMN unused")
    tables.sql("ALTER TABLE wide ADD COLUMN later INTEGER")
    tables.sql("INSERT INTO wide VALUES (1, 5, 0)")
    assert tables.refresh()["sums"].strategy == "merge"
    tables.sql("ALTER TABLE wide ALTER COLUMN v TYPE BIGINT")
    tables.sql("INSERT INTO wide VALUES (2, 7, 0)")
    record = tables.refresh()["sums"]
    assert (record.strategy, record.reason) == ("full", "SOURCE_SCHEMA_CHANGED")
    tables.sql("INSERT INTO wide VALUES (2, 1, 0)")
    assert tables.refresh()["sums"].strategy == "merge"
    check(tables)


def test_modes(tables: dt.DynamicTables) -> None:
    """INCREMENTAL never recomputes unless told so; FULL always does."""
    tables.sql("CREATE TABLE src AS SELECT 1 AS k, 10 AS v")
    query = "SELECT k, sum(v) AS s FROM src GROUP BY k"
    with pytest.raises(dt.Refused) as caught:
        tables.create("top", "SELECT k FROM src LIMIT 1", refresh_mode="INCREMENTAL")
    assert caught.value.reason is dt.Reason.MODE_REFUSES_FULL
    assert "LIMIT" in str(caught.value)
    tables.create("strict", query, refresh_mode="INCREMENTAL")
    tables.create("lazy", query, refresh_mode="FULL")
    tables.sql("INSERT INTO src VALUES (1, 5)")
    report = tables.refresh()
    assert (report["strict"].strategy, report["strict"].reason) == ("merge", "CHANGED")
    assert (report["lazy"].strategy, report["lazy"].reason) == ("full", "CHANGED")
    tables.sql("DELETE FROM strict__ivm")  # somebody else's: only recomputing mends it
    assert tables.refresh("strict", on_error="report")["strict"].reason == "MODE_REFUSES_FULL"
    assert tables.refresh("strict", strategy="full").ok
    check(tables)


@pytest.mark.parametrize("strategy", ["append", "merge", "keys", "rows", "full"])
def test_a_strategy_can_be_asked_for(tables: dt.DynamicTables, strategy: str) -> None:
    tables.sql("CREATE TABLE src AS SELECT 1 AS k, 10 AS v")
    tables.create("sums", "SELECT k, sum(v) AS s FROM src GROUP BY k")
    tables.sql("INSERT INTO src VALUES (1, 5), (2, 6)")
    if strategy == "append":
        record = tables.refresh(strategy=strategy, on_error="report")["sums"]
        assert record.reason == "NOT_INCREMENTAL"
        assert "NOT_MONOTONE" in (record.error or "")
        tables.refresh()
    else:
        tables.refresh("sums", strategy=strategy)
        assert tables.history("sums")[0].strategy == strategy
    check(tables)


def test_a_failing_create_says_that_nothing_was_created(tables: dt.DynamicTables) -> None:
    tables.sql("CREATE TABLE words (w VARCHAR)")
    tables.sql("INSERT INTO words VALUES ('one')")
    with pytest.raises(dt.RefreshFailed) as caught:
        tables.create("numbers", "SELECT w::INT AS n FROM words")
    assert caught.value.about == "main.numbers"
    assert "nothing was created" in (caught.value.hint or "")
    assert list(tables.list()) == []


def test_what_happens_on_an_error_is_one_of_two(tables: dt.DynamicTables) -> None:
    with pytest.raises(dt.InvalidInput) as caught:
        tables.refresh(on_error="ignore")  # type: ignore[arg-type]
    assert (caught.value.reason, caught.value.about) == (dt.Reason.BAD_VALUE, "refresh")
    assert caught.value.hint == "one of raise, report"
