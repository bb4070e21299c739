"""compile_ivm on Spark: the statements alone, run by `spark.sql` in order.

All views live in one session and share one cursors table; the oracle is the user's own text.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from pyspark.errors import PySparkException

import dynamic_tables as dt

pytestmark = pytest.mark.spark

HOME = {"dialect": "spark", "mv_catalog": "spark_catalog", "mv_schema": "default"}
FEED = "USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)"
QUERIES = {
    "paired": (
        "SELECT o.amount, c.name, o.weight FROM orders o LEFT JOIN customers c ON o.customer = c.id"
    ),
    "grouped": (
        "SELECT c.name AS `a (key)`, count(*) AS n, sum(o.amount) AS total, avg(o.weight) AS mean "
        "FROM orders o JOIN customers c ON o.customer <=> c.id GROUP BY c.name"
    ),
}
CHANGES = (  # an order moves to another customer, both partners of a join go, NULLs, duplicates
    "INSERT INTO orders VALUES (5, 7, 0.1), (5, 7, 0.1), (NULL, NULL, NULL)",
    "INSERT INTO customers VALUES (8, 'it\\'s'), (5, 'Ann the second')",
    "DELETE FROM orders WHERE customer = 7",
    "DELETE FROM customers WHERE id = 7",
    "UPDATE orders SET customer = 8 WHERE amount = 10",
)


class Named(dt.Naming):
    def __init__(self, name: str) -> None:
        self.name = name

    def mv_table(self) -> str:
        return self.name


@pytest.fixture(scope="module")
def lake(shared: dt.DynamicTables) -> dt.DynamicTables:
    run(
        shared,
        "CREATE TABLE orders (customer INT, amount INT, weight DOUBLE) USING delta",
        "INSERT INTO orders VALUES (5, 1, 0.3), (5, 10, 0.2), (7, 20, 0.1), (NULL, 30, 0.7)",
        "ALTER TABLE orders SET TBLPROPERTIES (delta.enableChangeDataFeed = true)",
        f"CREATE TABLE customers (id INT, name STRING) {FEED}",
        "INSERT INTO customers VALUES (5, 'Ann'), (7, 'Bob'), (NULL, 'Nobody')",
    )
    return shared


def run(lake: dt.DynamicTables, *statements: str) -> None:
    for statement in statements:
        lake.spark.sql(statement)


def made(lake: dt.DynamicTables, name: str, query: str, **options: Any) -> dt.IVMPlan:
    plan = dt.compile_ivm(query, naming=Named(name), **{**HOME, **options})
    run(lake, plan.create_cursors_table, plan.create_mv, *plan.initialize_cursors)
    return plan


def bag(lake: dt.DynamicTables, query: str) -> Counter[str]:
    def plain(value: Any) -> Any:
        return round(value, 9) if isinstance(value, float) else value

    return Counter(repr(tuple(map(plain, row))) for row in lake.spark.sql(query).collect())


def check(lake: dt.DynamicTables, name: str, plan: dt.IVMPlan) -> None:
    assert bag(lake, f"SELECT * FROM {name}") == bag(lake, plan.view_sql), name


def commits(lake: dt.DynamicTables, table: str) -> list[str]:
    return [row["operation"] for row in lake.spark.sql(f"DESCRIBE HISTORY {table}").collect()]


def test_views_follow_their_tables(lake: dt.DynamicTables) -> None:
    plans = {name: made(lake, name, query) for name, query in QUERIES.items()}
    run(lake, *CHANGES)
    for name, plan in plans.items():
        run(lake, *plan.maintain)
        check(lake, name, plan)
    tables = ("_ivm_cursors", "paired", "grouped")
    before = [commits(lake, table) for table in tables]
    run(lake, "OPTIMIZE orders")
    for name in tables[1:]:  # nothing changed: nothing is written
        run(lake, *plans[name].maintain)
    assert [commits(lake, table) for table in tables] == before
    assert lake.spark.sql("SHOW VIEWS").collect() == []
    assert lake.spark.conf.get("spark.databricks.delta.write.txnVersion", None) is None


def test_a_run_that_died_is_finished_by_the_next(lake: dt.DynamicTables) -> None:
    """Each run dies later than the one before: the cursor pending, MERGE ready, MERGE done."""
    run(lake, f"CREATE TABLE r (a INT) {FEED}", "INSERT INTO r VALUES (1), (1), (2)")
    plan = made(lake, "chain", "SELECT a FROM r")
    pended, _feed, _changes, _application, paired, merged, promoted = [
        n for n, text in enumerate(plan.maintain) if text.startswith(("UPDATE", "EXECUTE"))
    ]
    run(lake, "DELETE FROM r WHERE a = 2", "INSERT INTO r VALUES (1)")
    for died in (pended, paired, merged, promoted):
        run(lake, *plan.maintain[: died + 1])
        if died == pended:  # what comes later waits for the next run
            pending = bag(lake, "SELECT a FROM r")
            run(lake, "INSERT INTO r VALUES (3)")
    assert bag(lake, "SELECT * FROM chain") == pending
    assert commits(lake, "chain").count("MERGE") == 1
    run(lake, *plan.maintain)
    check(lake, "chain", plan)
    assert commits(lake, "chain").count("MERGE") == 2


def test_what_must_not_go_unnoticed(lake: dt.DynamicTables) -> None:
    run(lake, f"CREATE TABLE s (a INT) {FEED}", "INSERT INTO s VALUES (1), (2)")
    plan = made(lake, "noticed", "SELECT a FROM s")
    run(lake, "DELETE FROM noticed WHERE a = 1", "DELETE FROM s WHERE a = 1")
    with pytest.raises(PySparkException, match="lacks rows that are to go"):
        run(lake, *plan.maintain)
    run(lake, *plan.initialize_cursors)
    check(lake, "noticed", plan)
    run(lake, "DELETE FROM _ivm_cursors WHERE mv_name = 'noticed'")
    with pytest.raises(PySparkException, match="run initialize_cursors again"):
        run(lake, *plan.maintain)
    run(lake, "CREATE TABLE feedless (a INT) USING delta", "INSERT INTO feedless VALUES (1)")
    with pytest.raises(PySparkException, match="DELTA_MISSING_CHANGE_DATA"):
        made(lake, "without", "SELECT a FROM feedless")


REFUSED = {
    "SELECT '${spark.app.name}' AS x, a FROM r": "SQL_NOT_FAITHFUL",
    "SELECT a FROM r VERSION AS OF 3": "SQL_NOT_FAITHFUL",
    "SELECT a, uuid() AS u FROM r": "NON_DETERMINISTIC",
}


@pytest.mark.parametrize("query", REFUSED)
def test_refused(query: str) -> None:
    with pytest.raises(dt.UnsupportedSQLError) as refused:
        dt.compile_ivm(query, **HOME)
    assert refused.value.feature == REFUSED[query]
