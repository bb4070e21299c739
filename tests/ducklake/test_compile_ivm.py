"""compile_ivm on DuckDB: the statements alone, on a connection that has nothing else of ours.

The oracle is the user's own text, run by DuckDB over the tables as they are.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest
from plain_lake import Lake, attached, bag, database

import dynamic_tables as dt


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with database() as connection:
        yield connection


@pytest.fixture
def lake(tmp_path: Path, connection: duckdb.DuckDBPyConnection) -> Iterator[Lake]:
    with attached(tmp_path, connection) as lake:
        yield lake


@pytest.fixture
def shop(lake: Lake) -> Lake:
    """Orders and customers, with NULLs and duplicates."""
    lake.run(
        "CREATE TABLE orders (id INT, customer INT, amount INT)",
        "CREATE TABLE customers (id INT, name VARCHAR)",
        "INSERT INTO orders VALUES (1, 5, 10), (2, 5, 20), (3, 7, 30), (4, NULL, 40), (3, 7, 30)",
        "INSERT INTO customers VALUES (5, 'Ann'), (7, 'Bob'), (NULL, 'Nobody')",
    )
    return lake


# The seed's stages: one query each, and what happens to its tables.

PROJECTED = "SELECT id, amount * 2 AS twice FROM orders"
FILTERED = "SELECT id, customer FROM orders WHERE amount > 15"
COUNTED = "SELECT customer, count(*) AS n FROM orders GROUP BY customer"
SUMMED = "SELECT customer, sum(amount) AS total, avg(amount) AS mean FROM orders GROUP BY customer"
JOINED = "SELECT o.id, o.amount, c.name FROM orders o JOIN customers c ON o.customer = c.id"
JOINED_SUMS = (
    "SELECT c.name, sum(o.amount) AS total, count(*) AS n FROM orders AS o "
    "JOIN customers AS c ON o.customer = c.id GROUP BY c.name"
)
STAGES = {
    "project": PROJECTED,
    "filter": FILTERED,
    "count": COUNTED,
    "sum": SUMMED,
    "min_max": (
        "SELECT customer, min(amount) AS lo, max(amount) AS hi FROM orders GROUP BY customer"
    ),
    "join": JOINED,
    "join_sums": JOINED_SUMS,
    "outer_join": (
        "SELECT c.name, o.amount FROM customers c LEFT JOIN orders o ON o.customer = c.id"
    ),
    "distinct": "SELECT DISTINCT customer FROM orders",
    "total": "SELECT count(*) AS n, sum(amount) AS total FROM orders",
    "counted_only": "SELECT count(*) AS n FROM orders",
    "having": "SELECT customer FROM orders GROUP BY customer HAVING count(*) > 1",
    "not_in": (
        "SELECT c.name FROM customers c WHERE c.id NOT IN (SELECT o.customer FROM orders o)"
    ),
    "nested": (
        "SELECT s.n, count(*) AS customers FROM "
        "(SELECT customer, count(*) AS n FROM orders GROUP BY customer) AS s GROUP BY s.n"
    ),
    "top": (
        "SELECT id, customer FROM orders "
        "QUALIFY row_number() OVER (PARTITION BY customer ORDER BY amount DESC, id) = 1"
    ),
    "cte": "WITH big AS (SELECT id, customer FROM orders WHERE amount > 10) SELECT id FROM big",
}  # fmt: skip
CHANGES = {
    "insert left": "INSERT INTO orders VALUES (9, 7, 5), (9, 7, 5), (10, NULL, NULL)",
    "insert right": "INSERT INTO customers VALUES (8, 'Cid'), (7, 'Bob the second')",
    "insert both": (
        "INSERT INTO orders VALUES (11, 8, 1); INSERT INTO customers VALUES (8, 'Dora')"
    ),
    "foreign key": "UPDATE orders SET customer = 7 WHERE id = 1",
    "delete a match": "DELETE FROM orders WHERE customer = 5",
    "delete without match": "DELETE FROM orders WHERE customer IS NULL",
    "delete both partners": (
        "DELETE FROM orders WHERE customer = 7; DELETE FROM customers WHERE id = 7"
    ),
    "no real change": "UPDATE orders SET amount = amount",
    "come and go": "INSERT INTO orders VALUES (99, 5, 1); DELETE FROM orders WHERE id = 99",
    "go and come": "DELETE FROM orders WHERE id = 2; INSERT INTO orders VALUES (2, 5, 20)",
    "empty": "DELETE FROM orders; DELETE FROM customers",
    "fill again": "INSERT INTO orders VALUES (1, 1, 1); INSERT INTO customers VALUES (1, 'One')",
}


@pytest.mark.parametrize("stage", STAGES)
def test_stages(shop: Lake, stage: str) -> None:
    plan = shop.compiled(STAGES[stage])
    shop.check(plan)
    changes = list(CHANGES.values())
    size = 1 if stage in ("join", "filter") else 4  # changes a range
    for start in range(0, len(changes), size):
        shop.run(*changes[start : start + size])
        shop.maintain(plan)


def test_several_changes_in_one_range(shop: Lake) -> None:
    plan = shop.compiled(JOINED)
    shop.run(*CHANGES.values())
    shop.maintain(plan)


def test_an_order_moves_from_customer_5_to_7(shop: Lake) -> None:
    plan = shop.compiled(JOINED_SUMS)
    shop.run("UPDATE orders SET customer = 7 WHERE id = 2")
    assert shop.maintain(plan) == bag([("Ann", 10, 1), ("Bob", 80, 3)])


def test_both_partners_deleted_in_one_range(shop: Lake) -> None:
    """The seed's formula joins the deleted rows with tables that have lost them already."""
    plan = shop.compiled(JOINED)
    shop.run("DELETE FROM orders WHERE id = 3", "DELETE FROM customers WHERE id = 7")
    assert shop.maintain(plan) == bag([(1, 10, "Ann"), (2, 20, "Ann")])


def test_null_keys_are_one_group(shop: Lake) -> None:
    plan = shop.compiled(COUNTED)
    shop.run("INSERT INTO orders VALUES (6, NULL, 1)", "DELETE FROM orders WHERE customer = 5")
    assert shop.maintain(plan) == bag([(None, 2), (7, 2)])


def test_exactly_as_many_copies_go_as_were_deleted(lake: Lake) -> None:
    lake.run("CREATE TABLE t (a INT, b VARCHAR)")
    lake.run("INSERT INTO t SELECT 1, 'x' FROM range(5)", "INSERT INTO t VALUES (NULL, NULL)")
    plan = lake.compiled("SELECT a FROM t")
    lake.run("DELETE FROM t WHERE rowid IN (SELECT rowid FROM t WHERE a = 1 LIMIT 2)")
    assert lake.maintain(plan) == bag([(1,)] * 3 + [(None,)])
    lake.run("INSERT INTO t VALUES (1, 'y'), (NULL, 'y')")
    assert lake.maintain(plan) == bag([(1,)] * 4 + [(None,)] * 2)


def test_a_sum_without_values_is_null_again(shop: Lake) -> None:
    plan = shop.compiled("SELECT customer, sum(amount) AS total FROM orders GROUP BY customer")
    shop.run("INSERT INTO orders VALUES (20, 7, NULL)", "DELETE FROM orders WHERE id = 3")
    assert (shop.maintain(plan))[repr((7, None))] == 1


def test_sums_beyond_53_bits_are_exact(lake: Lake) -> None:
    lake.run("CREATE TABLE t (a BIGINT)", "INSERT INTO t VALUES (9007199254740993), (0)")
    plan = lake.compiled("SELECT sum(a) AS s FROM t")
    lake.run("INSERT INTO t VALUES (9007199254740992)", *plan.maintain)
    lake.run("CALL ducklake_flush_inlined_data('dl')")
    assert lake.run("FROM dl.main.mv") == [(Decimal(18014398509481985),)]


def test_floating_sums_do_not_drift_into_an_error(lake: Lake) -> None:
    lake.run(
        "CREATE TABLE t (k INT, a DOUBLE)", "CREATE TABLE u (k INT)", "INSERT INTO u VALUES (1)"
    )
    lake.run("INSERT INTO t SELECT 1, 1 / (i + 1) FROM range(1000) AS r(i)")
    plan = lake.compiled(
        "SELECT u.k, s.total FROM u "
        "JOIN (SELECT k, sum(a) AS total FROM t GROUP BY k) AS s ON s.k = u.k"
    )
    for number in range(5):
        lake.run(f"INSERT INTO t VALUES (1, 0.1 * {number})", *plan.maintain)
    maintained, expected = (lake.run(q)[0][1] for q in ("FROM dl.main.mv", plan.view_sql))
    assert maintained == pytest.approx(expected, rel=1e-12)


# Transactions and cursors


def test_an_empty_range_writes_nothing(shop: Lake) -> None:
    plan = shop.compiled(JOINED_SUMS)
    shop.run("INSERT INTO orders VALUES (30, 5, 1)")
    shop.maintain(plan)
    before = shop.snapshots()
    for _ in range(3):
        shop.maintain(plan)
    shop.run("CREATE TABLE unrelated AS SELECT 1 AS x")
    shop.maintain(plan)
    assert shop.snapshots() == before + 1


def test_a_maintained_range_is_one_commit(shop: Lake) -> None:
    plan = shop.compiled(JOINED_SUMS)
    shop.run("UPDATE orders SET amount = 1", "DELETE FROM customers WHERE id = 5")
    before = shop.snapshots()
    shop.maintain(plan)
    assert shop.snapshots() == before + 1


def test_nothing_temporary_is_left(shop: Lake) -> None:
    plan = shop.compiled(JOINED)
    shop.run(*plan.maintain)
    assert shop.run("SELECT table_name FROM duckdb_tables() WHERE temporary") == []


def test_two_views_share_the_cursors(shop: Lake) -> None:
    class Second(dt.Naming):
        def mv_table(self) -> str:
            return "second"

    one = shop.compiled(COUNTED)
    shop.run("INSERT INTO orders VALUES (40, 5, 1)")
    two = shop.compiled(JOINED, naming=Second())
    shop.run("DELETE FROM orders WHERE id = 3")
    shop.maintain(two, "dl.main.second")
    shop.maintain(one)
    shop.maintain(two, "dl.main.second")
    assert len(shop.run("FROM dl.main._ivm_cursors")) == 2


@pytest.mark.parametrize("query", [JOINED, SUMMED])
def test_a_failure_leaves_everything_as_it_was(shop: Lake, query: str) -> None:
    """Whichever statement fails: ROLLBACK, and the next run does all of it."""
    plan = shop.compiled(query)
    shop.run("UPDATE orders SET customer = 7 WHERE id = 1")
    tables = ("FROM dl.main.mv", "FROM dl.main._ivm_cursors")
    before = [bag(shop.run(table)) for table in tables]
    for count in range(1, len(plan.maintain)):
        shop.run(*plan.maintain[:count], "ROLLBACK")
        assert [bag(shop.run(table)) for table in tables] == before
    shop.maintain(plan)


def test_two_at_once_do_not_both_commit(shop: Lake) -> None:
    plan = shop.compiled(COUNTED)
    shop.run("INSERT INTO orders VALUES (50, 5, 1)")
    other = shop.connection.cursor()
    for statement in plan.maintain[:-1]:
        shop.run(statement)
        other.execute(statement)
    shop.run("COMMIT")
    with pytest.raises(duckdb.TransactionException, match="conflict"):
        other.execute("COMMIT")
    shop.maintain(plan)


def test_a_source_that_moves_meanwhile_is_read_at_the_pinned_snapshot(shop: Lake) -> None:
    plan = shop.compiled(JOINED_SUMS)
    shop.run("INSERT INTO orders VALUES (60, 5, 1)")
    expected = bag(shop.run(plan.view_sql))
    pinned = next(n for n, text in enumerate(plan.maintain) if "current_snapshot" in text) + 1
    shop.run(*plan.maintain[:pinned])
    shop.connection.cursor().execute("INSERT INTO dl.main.orders VALUES (61, 5, 1000)")
    shop.run(*plan.maintain[pinned:])
    assert bag(shop.run("FROM dl.main.mv")) == expected
    shop.maintain(plan)


def test_without_cursor_it_says_what_to_do(shop: Lake) -> None:
    plan = shop.compiled(COUNTED)
    shop.run("DELETE FROM dl.main._ivm_cursors")
    with pytest.raises(duckdb.InvalidInputException, match="initialize_cursors"):
        shop.run(*plan.maintain)
    shop.run("ROLLBACK", *plan.initialize_cursors)
    shop.maintain(plan)


def test_two_cursors_of_one_view_are_an_error(shop: Lake) -> None:
    plan = shop.compiled(COUNTED)
    shop.run("INSERT INTO dl.main._ivm_cursors FROM dl.main._ivm_cursors")
    with pytest.raises(duckdb.InvalidInputException, match="More than one row"):
        shop.run(*plan.maintain)


def test_initializing_again_loads_anew(shop: Lake) -> None:
    plan = shop.compiled(JOINED)
    shop.run("INSERT INTO dl.main.mv VALUES (1, 2, 'foreign')", "DELETE FROM orders WHERE id = 1")
    shop.run(*plan.initialize_cursors)
    shop.check(plan)
    shop.maintain(plan)


def test_a_row_that_somebody_took_from_the_table_is_noticed(shop: Lake) -> None:
    plan = shop.compiled(JOINED)
    shop.run("DELETE FROM dl.main.mv WHERE id = 1", "DELETE FROM orders WHERE id = 1")
    with pytest.raises(duckdb.InvalidInputException, match="lacks rows that are to go"):
        shop.run(*plan.maintain)


# Sources


def test_a_source_made_again_is_noticed(shop: Lake) -> None:
    plan = shop.compiled(COUNTED)
    shop.run("CREATE OR REPLACE TABLE orders AS SELECT 1 AS id, 1 AS customer, 1 AS amount")
    with pytest.raises(duckdb.InvalidInputException, match="orders was dropped and made again"):
        shop.run(*plan.maintain)
    shop.run("ROLLBACK", *plan.initialize_cursors)
    shop.maintain(plan)


def test_columns_that_the_view_does_not_read_may_come_and_go(shop: Lake) -> None:
    plan = shop.compiled(COUNTED)
    shop.run("ALTER TABLE orders ADD COLUMN note VARCHAR", "ALTER TABLE orders DROP COLUMN amount")
    shop.run("INSERT INTO orders VALUES (70, 5, 'new')", "ALTER TABLE orders RENAME note TO remark")
    shop.maintain(plan)


def test_sources_in_several_catalogs(lake: Lake) -> None:
    lake.attach("crm")
    lake.run(
        "CREATE TABLE orders (id INT, customer INT, amount INT)",
        "CREATE SCHEMA crm.sales",
        "CREATE TABLE crm.sales.customers (id INT, name VARCHAR)",
        "INSERT INTO crm.sales.customers VALUES (5, 'Ann')",
        "INSERT INTO orders VALUES (1, 5, 10)",
    )
    plan = lake.make(
        dt.compile_ivm(JOINED_SUMS, sources={"customers": {"catalog": "crm", "schema": "sales"}})
    )
    assert plan.base_tables == {"orders": "dl", "customers": "crm"}
    assert {row[1] for row in lake.run("FROM dl.main._ivm_cursors")} == {"dl", "crm"}
    lake.run("CREATE TEMP VIEW customers AS FROM crm.sales.customers")
    for change in (
        "INSERT INTO crm.sales.customers VALUES (7, 'Bob')",
        "INSERT INTO dl.main.orders VALUES (2, 7, 1)",
        "UPDATE crm.sales.customers SET name = 'Eve'; DELETE FROM dl.main.orders WHERE id = 1",
    ):
        lake.run(change)
        lake.maintain(plan)
    before = lake.snapshots("dl"), lake.snapshots("crm")
    lake.maintain(plan)
    assert (lake.snapshots("dl"), lake.snapshots("crm")) == before


def test_qualified_names_say_where_tables_are(lake: Lake) -> None:
    lake.attach("other")
    lake.run(
        "CREATE SCHEMA other.s", "CREATE TABLE other.s.t (a INT)", "CREATE TABLE dl.main.t (a INT)"
    )
    plan = lake.compiled("SELECT x.a FROM other.s.t x JOIN t y ON x.a = y.a")
    assert plan.base_tables == {"other.s.t": "other", "dl.main.t": "dl"}
    lake.run("INSERT INTO other.s.t VALUES (1)", "INSERT INTO t VALUES (1), (1)")
    assert lake.maintain(plan) == bag([(1,), (1,)])


def test_a_view_over_a_maintained_view(shop: Lake) -> None:
    class Upper(dt.Naming):
        def mv_table(self) -> str:
            return "upper"

    below = shop.compiled(COUNTED)
    above = shop.compiled("SELECT n, count(*) AS customers FROM mv GROUP BY n", naming=Upper())
    shop.run("DELETE FROM orders WHERE id = 1")
    shop.maintain(below)
    shop.maintain(above, "dl.main.upper")


def test_time_in_a_filter(lake: Lake) -> None:
    lake.run("CREATE TABLE events (id INT, until TIMESTAMPTZ)")
    lake.run("INSERT INTO events VALUES (1, '2020-01-01'), (2, '2200-01-01')")
    plan = lake.compiled("SELECT id FROM events WHERE until > now()")
    assert "clock" in plan.features
    lake.run("INSERT INTO events VALUES (3, now() + INTERVAL 500 MILLISECONDS)", *plan.maintain)
    assert bag(lake.run("FROM dl.main.mv")) == bag([(2,), (3,)])
    time.sleep(0.6)
    assert lake.maintain(plan) == bag([(2,)])


# Names


def test_names_are_the_users(shop: Lake) -> None:
    class Mine(dt.Naming):
        def mv_table(self) -> str:
            return 'sales "by" customer; --'

        def cursors_table(self) -> str:
            return "how far's it"

        def aux_column(self, purpose: str) -> str:
            return f"my 'odd' \"{purpose}\""

    shop.attach("else where")
    shop.run('CREATE SCHEMA "else where"."s.1"')
    plan = shop.compiled(
        JOINED_SUMS,
        naming=Mine(),
        mv_catalog="else where",
        mv_schema="s.1",
        sources={name: {"catalog": "dl"} for name in ("orders", "customers")},
    )
    shop.run("UPDATE orders SET customer = 7")
    shop.maintain(plan, '"else where"."s.1"."sales ""by"" customer; --"')


def test_hostile_identifiers(lake: Lake) -> None:
    table, column = '"or""der; DROP"', '"it\'s ""odd"""'
    lake.run(f'CREATE TABLE {table} ({column} INT, "Group" INT, "change_type" INT)')
    lake.run(f"INSERT INTO {table} VALUES (1, 1, 1), (2, 1, NULL)")
    plan = lake.compiled(
        f'SELECT "Group" AS "a ""key""", sum({column}) AS "s\'", max("change_type") AS m '
        f'FROM {table} GROUP BY "Group"'
    )
    lake.run(f"INSERT INTO {table} VALUES (3, 2, 7), (4, 1, 8)")
    lake.run(f"DELETE FROM {table} WHERE {column} = 1")
    lake.maintain(plan)
    names = [row[0] for row in lake.run("DESCRIBE dl.main.mv")]
    assert names == ['a "key"', "s'", "m"]


def test_the_plan_says_what_it_is_made_of() -> None:
    plan = dt.compile_ivm(JOINED_SUMS)
    assert plan.view_sql == JOINED_SUMS
    assert plan.features == {"join", "aggregate"}
    assert plan.base_tables == {"orders": "dl", "customers": "dl"}
    assert plan.maintain[0] == "BEGIN TRANSACTION"
    assert plan.maintain[-1] == "COMMIT"
    feeds = [text for text in plan.maintain if "ducklake_table_changes" in text]
    assert len(feeds) == 2  # each source once


# What the text must tell

COLUMNS = {"r": {"columns": ["a", "b"]}, "s": {"columns": ["a", "d"]}}
NEEDS_COLUMNS = {
    "SELECT * FROM r": "r",
    "FROM r": "r",
    "SELECT r.* FROM r": "r",
    "SELECT b FROM r JOIN s ON r.a = s.a": "r",
    "SELECT b, d FROM r JOIN s USING (a)": "s",
    "SELECT x.p FROM r AS x(p, q)": "r",
    "SELECT a + 1 AS k, count(*) AS n FROM r GROUP BY k": "r",
}


@pytest.mark.parametrize("query", NEEDS_COLUMNS)
def test_what_the_text_does_not_tell_needs_columns(lake: Lake, query: str) -> None:
    with pytest.raises(dt.UnsupportedSQLError) as refused:
        dt.compile_ivm(query)
    assert refused.value.feature == "COLUMNS_UNKNOWN"
    assert f"'{NEEDS_COLUMNS[query]}': {{'columns': [...]}}" in refused.value.message
    lake.run("CREATE TABLE r (a INT, b INT)", "CREATE TABLE s (a INT, d INT)")
    lake.run("INSERT INTO r VALUES (1, 2), (3, 4)", "INSERT INTO s VALUES (1, 5)")
    plan = lake.compiled(query, sources=COLUMNS)
    lake.run("INSERT INTO r VALUES (1, 7)", "UPDATE s SET d = 6")
    lake.maintain(plan)


TELLS = (
    "SELECT r.a, r.b FROM r SEMI JOIN s ON r.a = s.a",
    "SELECT r.a FROM r ANTI JOIN s ON r.a = s.a AND s.d > 1",
    "SELECT a, count(*) AS n FROM r GROUP BY a",
    "SELECT abs(a) AS a FROM r GROUP BY a",
    "SELECT a AS k, b FROM r WHERE a > 0 ORDER BY k",
    "SELECT r.a, s.d FROM r, s WHERE r.a = s.a",
    "SELECT main.r.a FROM main.r",
    "SELECT a FROM r WHERE a IN (SELECT a FROM s WHERE d > 0)",
    "SELECT a FROM r WHERE EXISTS (SELECT * FROM s WHERE s.a = r.a)",
    "SELECT x.a, x.n FROM (SELECT a, count(*) AS n FROM r GROUP BY a) AS x JOIN s ON s.a = x.a",
    "WITH c AS (SELECT a FROM r) SELECT c.a, s.d FROM c LEFT JOIN s ON c.a = s.a",
    "SELECT a FROM r UNION ALL SELECT d FROM s",
    "SELECT r.a, i FROM r, range(2) AS g(i)",
    "SELECT R.A FROM r WHERE r.B IS NULL",
)


@pytest.mark.parametrize("query", TELLS)
def test_what_the_text_tells(lake: Lake, query: str) -> None:
    lake.run("CREATE TABLE r (a INT, b INT)", "CREATE TABLE s (a INT, d INT)")
    lake.run("INSERT INTO r VALUES (1, 2), (3, NULL)", "INSERT INTO s VALUES (1, 5)")
    plan = lake.compiled(query)
    lake.run("INSERT INTO r VALUES (1, NULL), (0, 0)", "UPDATE s SET d = 0, a = 3")
    lake.maintain(plan)


REFUSED = {
    "SELECT a FROM": "SYNTAX",
    "SELECT a FROM r; SELECT a FROM r": "SEVERAL_STATEMENTS",
    "": "NO_QUERY",
    "DROP TABLE r": "NOT_A_QUERY",
    "SELECT 1 AS x": "NOT_INCREMENTAL",
    "SELECT a FROM r LIMIT 1": "GLOBAL_LIMIT",
    "SELECT a, random() AS x FROM r": "NON_DETERMINISTIC",
    "SELECT a, getvariable('x') AS x FROM r": "NON_DETERMINISTIC",
    "SELECT a, now() AS t FROM r": "TIME_IN_OUTPUT",
    "SELECT a, row_number() OVER (ORDER BY a) AS n FROM r": "NO_PARTITION",
    "WITH RECURSIVE c AS (SELECT a FROM r UNION SELECT a FROM c) SELECT a FROM c": "RECURSIVE",
    "SELECT a FROM r AT (VERSION => 3)": "SQL_NOT_FAITHFUL",
    "SELECT r.a, s.a FROM r JOIN s ON r.a = s.a": "BAD_COLUMNS",
    "SELECT a FROM MV": "CYCLE",
    "SELECT a AS _ivm_copies FROM r": "RESERVED_NAME",
    "SELECT x.a FROM read_csv('x.csv') AS x": "SOURCE_NOT_DELTA",
}


@pytest.mark.parametrize("query", REFUSED)
def test_refused(query: str) -> None:
    with pytest.raises(dt.UnsupportedSQLError) as refused:
        dt.compile_ivm(query)
    assert refused.value.feature == REFUSED[query]
    assert refused.value.reason == REFUSED[query]


MISTAKEN = {
    "SELECT nope FROM r": "Column 'nope' could not be resolved",
    "SELECT a FROM r, s": "Column 'a' could not be resolved",
    "SELECT x.b FROM r": "Column 'b' could not be resolved for table: 'x'",
    "SELECT x.b FROM r AS x JOIN s AS x ON true": "two tables are called x",
    "SELECT b FROM r JOIN s USING (b)": "Cannot automatically join: b",
    "SELECT b FROM r GROUP BY 3": "Unknown output column: 3",
}


@pytest.mark.parametrize("dialect", ["duckdb", "spark"])
@pytest.mark.parametrize("query", MISTAKEN)
def test_mistakes_are_called_mistakes(query: str, dialect: str) -> None:
    with pytest.raises(dt.UnsupportedSQLError) as refused:
        dt.compile_ivm(query, dialect=dialect, sources=COLUMNS)
    assert refused.value.reason == "ANALYSIS_FAILED"
    assert MISTAKEN[query] in str(refused.value)
    assert "Line" not in str(refused.value)


@pytest.mark.parametrize("operation", ["UNION ALL", "UNION", "INTERSECT", "EXCEPT"])
def test_a_set_operation_of_unequal_columns_is_refused(operation: str) -> None:
    with pytest.raises(dt.UnsupportedSQLError, match="of 1 and 2 columns"):
        dt.compile_ivm(f"SELECT a FROM r {operation} SELECT a, d FROM s", sources=COLUMNS)


FIELDS = (
    "SELECT info.city FROM people",
    "SELECT p.info.city, p.info.zip.code AS code FROM people p",
    "SELECT people.info.city AS c, count(*) AS n FROM people GROUP BY people.info.city",
    "SELECT id FROM people p WHERE EXISTS (SELECT 1 FROM people q WHERE q.info.city = p.info.city)",
)


@pytest.mark.parametrize("query", FIELDS)
def test_fields_of_structs(lake: Lake, query: str) -> None:
    lake.run("CREATE TABLE people (id INT, info STRUCT(city TEXT, zip STRUCT(code INT)))")
    lake.run("INSERT INTO people VALUES (1, {'city': 'Bern', 'zip': {'code': 3000}}), (2, NULL)")
    plan = lake.compiled(query, sources={"people": {"columns": ["id", "info"]}})
    lake.run("UPDATE people SET info = {'city': 'Thun', 'zip': {'code': 3600}} WHERE id = 2")
    lake.run("INSERT INTO people SELECT * FROM people WHERE id = 1")
    lake.maintain(plan)


REFUSED_FOR_SPARK = {
    "SELECT session_window(ts, '5 minutes') AS w, count(*) AS n FROM r GROUP BY 1": (
        "SQL_NOT_FAITHFUL"
    ),
    "SELECT a FROM (SELECT a, window(ts, '1 hour', '10 minutes') AS w FROM r)": "SQL_NOT_FAITHFUL",
    "SELECT n FROM (SELECT kll_sketch_agg_bigint(a) AS x, 1 AS n FROM r)": "NON_DETERMINISTIC",
    "SELECT a FROM r WHERE day < DATE 'today'": "SQL_NOT_FAITHFUL",
    "SELECT a FROM r WHERE ts < TIMESTAMP 'now'": "SQL_NOT_FAITHFUL",
}


@pytest.mark.parametrize("query", REFUSED_FOR_SPARK)
def test_refused_for_spark(query: str) -> None:
    """Functions that make rows, and words that are a time of their own."""
    sources = {"r": {"columns": ["a", "ts", "day"]}}
    with pytest.raises(dt.UnsupportedSQLError) as refused:
        dt.compile_ivm(query, dialect="spark", sources=sources)
    assert refused.value.feature == REFUSED_FOR_SPARK[query]
    plain = query.replace("'today'", "'2024-01-01'").replace("'now'", "'2024-01-01 00:00:00'")
    if plain != query:
        assert dt.compile_ivm(plain, dialect="spark", sources=sources).maintain


def test_types_that_ducklake_does_not_store_exactly_are_refused(lake: Lake) -> None:
    lake.run("CREATE TABLE t (a TIMESTAMP, b TIMESTAMP)")
    plan = dt.compile_ivm("SELECT a - b AS age FROM t")
    with pytest.raises(duckdb.InvalidInputException, match="age: DuckLake does not store INTERVAL"):
        lake.make(plan)


def test_other_dialects_are_refused() -> None:
    with pytest.raises(dt.InvalidInput, match="duckdb"):
        dt.compile_ivm("SELECT a FROM t", dialect="mysql")


@pytest.mark.parametrize(
    ("arguments", "about"),
    [
        ({"view_sql": None}, "view_sql=None"),
        ({"dialect": None}, "dialect=None"),
        ({"mv_catalog": None}, "mv_catalog=None"),
        ({"mv_schema": ""}, "mv_schema=''"),
        ({"sources": ["t"]}, "sources=['t']"),
        ({"sources": {"t": ["a"]}}, "sources['t']"),
        ({"sources": {"t": {"colums": ["a"]}}}, "sources['t']['colums']"),
        ({"sources": {"t": {"columns": "a"}}}, "sources['t']['columns']"),
        ({"sources": {"t": {"catalog": 1}}}, "sources['t']['catalog']"),
    ],
)
def test_arguments_that_mean_nothing_are_refused(arguments: dict, about: str) -> None:
    with pytest.raises(dt.InvalidInput) as caught:
        dt.compile_ivm(**{"view_sql": "SELECT a FROM t", **arguments})
    assert (caught.value.reason, caught.value.about) == (dt.Reason.BAD_VALUE, about)
    assert caught.value.hint


def test_the_error_of_the_seed() -> None:
    error = dt.UnsupportedSQLError("join", "joins are not supported")
    assert (error.feature, error.message) == ("join", "joins are not supported")
