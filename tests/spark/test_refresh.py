"""Refreshing one table and its child on Spark; tests/ducklake has the rest of the semantics."""

from __future__ import annotations

import pytest

import dynamic_tables as dt
from oracle import check

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def shop(shared: dt.DynamicTables) -> dt.DynamicTables:
    """One shop; the tests follow each other."""
    tables = shared
    tables.sql("CREATE TABLE orders (id INT, customer INT, amount DECIMAL(10,2)) USING delta")
    tables.sql("INSERT INTO orders VALUES (1, 1, 5), (2, 1, 6), (3, 2, 7), (4, NULL, NULL)")
    tables.create(
        "metrics",
        "SELECT customer, count(*) AS n, sum(amount) AS total FROM orders GROUP BY customer",
    )
    return tables


def test_the_report_reads_what_its_parent_read(shop: dt.DynamicTables) -> None:
    """The seed's test: metrics read orders@n, so the report must, though a newer version exists."""
    first = shop.history("metrics")[0]
    assert (first.reason, first.sequence, first.work.rows_inserted) == ("FIRST_LOAD", 1, 3)
    pinned = first.pins[0].version
    shop.create(
        "report", "SELECT o.id, m.total FROM orders o JOIN metrics m ON o.customer <=> m.customer"
    )
    shop.sql("INSERT INTO orders VALUES (5, 2, 100)")
    record = shop.refresh("report")["report"]
    read = {pin.name.name: pin for pin in record.pins}
    assert read["orders"].version == pinned
    assert f"default.orders has version {pinned + 1}, read at {pinned}" in (record.note or "")
    check(shop)

    report = shop.refresh("report", upstream=True)
    assert [record.table.name for record in report.records] == ["metrics", "report"]
    assert {r.pins[0].version for r in report.records} == {pinned + 1}
    check(shop)
    assert shop.refresh()["metrics"].work.spark_jobs is None  # nothing moved: Spark was not asked


def test_a_foreign_delete_is_noticed(shop: dt.DynamicTables) -> None:
    shop.spark.sql("DELETE FROM metrics__ivm WHERE customer = 1")
    record = shop.refresh()["metrics"]
    assert (record.strategy, record.reason) == ("full", "FOREIGN_CHANGE")
    check(shop)
