# ruff: noqa: E501, RUF001  tables of cases read best with one case a line
"""Queries at a cut: every table of every shape of query is read at its pinned version.

Hardly a refresh runs here: each query becomes a definition in memory, is computed at old versions as a refresh would,
and compared with an oracle that shares no code with it: a session where the names are temporary views over
`versionAsOf` reads. The newest versions have other rows, so a missing pin shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame

import dynamic_tables as dt
from dynamic_tables.ddl import CreateStatement
from dynamic_tables.definition import Definition
from dynamic_tables.lake.pinning import PinnedQuery, read_texts
from dynamic_tables.lake.sessions import private_session
from dynamic_tables.model import Pin
from dynamic_tables.names import TableName
from dynamic_tables.options import Options
from oracle import bag

pytestmark = pytest.mark.spark

OLD = 1  # the version that is pinned; version 2 has other rows
INSTANT = datetime(2020, 2, 29, 23, 30, 15, 123456, tzinfo=UTC)
BASE = ("orders", "people", "other.orders", "aged")
# What the oracle makes of these views, over temporary views of the base tables.
VIEWS = {
    "v": "SELECT id, amount FROM orders",
    "v_named (Key, `the value`)": "SELECT id, amount FROM orders",
    "v_over": "SELECT id, sum(amount) AS total FROM v GROUP BY id",
    "v_shadow": "WITH people AS (SELECT id FROM orders) SELECT id FROM people",
    "v_comment": "SELECT id FROM orders -- the end",
    "v_join": "SELECT o.id, p.name FROM orders o JOIN people AS p ON o.person = p.id",
    "v_clock": "SELECT id, current_date() AS today, now() AS at FROM orders",
}


class Lake(NamedTuple):
    tables: dt.DynamicTables
    pins: list[Pin]
    oracle: Any  # the session of the oracle
    places: dict[str, str]


def fill(tables: dt.DynamicTables) -> None:
    sql = tables.sql
    sql("CREATE SCHEMA other")
    sql("CREATE TABLE orders (id INT, person INT, amount INT, tags ARRAY<STRING>) USING delta")
    sql("CREATE TABLE people (id INT, name STRING) USING delta")
    sql("CREATE TABLE other.orders (id INT, amount INT) USING delta")
    sql("INSERT INTO orders VALUES (1, 1, 5, array('a')), (2, 2, 7, array('b', 'c'))")
    sql("INSERT INTO people VALUES (1, 'Ann'), (2, 'Bob')")
    sql("INSERT INTO other.orders VALUES (1, 100), (2, 700)")
    for name, text in VIEWS.items():
        sql(f"CREATE VIEW {name} AS {text}")
    sql("USE other")
    sql("CREATE VIEW v AS SELECT id, amount AS far FROM orders")  # other.orders
    tables.spark.conf.set("spark.sql.ansi.enabled", "false")
    tables.spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    sql(
        "CREATE VIEW default.v_lenient AS SELECT id, CAST('x' AS INT) AS n, current_date() AS d FROM default.orders"
    )
    tables.spark.conf.set("spark.sql.ansi.enabled", "true")
    tables.spark.conf.set("spark.sql.session.timeZone", "UTC")
    sql("USE default")
    sql("CREATE TABLE aged (id INT, name STRING) USING delta")
    sql("INSERT INTO aged VALUES (1, 'old')")
    sql("CREATE VIEW v_star AS SELECT * FROM aged")
    sql("INSERT INTO aged VALUES (2, 'new')")
    sql("ALTER TABLE aged ADD COLUMN later STRING")
    sql("INSERT INTO orders VALUES (3, 1, 11, array('new'))")
    sql("INSERT INTO people VALUES (1, 'Ann again')")
    sql("INSERT INTO other.orders VALUES (1, 900)")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    folder = tmp_path_factory.mktemp("pinning")
    with dt.connect(folder / "lake", jvm="quick", say=lambda _: None) as tables:
        fill(tables)
        path = str(folder / "lake" / "warehouse" / "orders")
        pins, oracle = [], tables.spark.newSession()
        oracle.conf.set("spark.sql.session.timeZone", "UTC")
        for name in BASE:
            schema, _, table = name.rpartition(".")
            full = TableName("spark_catalog", schema or "default", table)
            state = tables.lake._state(full)
            old = oracle.read.format("delta").option("versionAsOf", OLD).load(state.location)
            old.createOrReplaceTempView(name.replace(".", "_"))
            pins.append(Pin(name=full, source_id=state.source_id, version=OLD, latest=2))
        by_path = TableName("", "delta", path)
        pins.append(Pin(name=by_path, source_id=pins[0].source_id, version=OLD, latest=2))
        for name, text in VIEWS.items():
            oracle.sql(f"CREATE TEMPORARY VIEW {name} AS {text}")
        oracle.sql("CREATE TEMPORARY VIEW other_v AS SELECT id, amount AS far FROM other_orders")
        oracle.sql("CREATE TEMPORARY VIEW v_star AS SELECT id, name FROM aged")
        yield Lake(tables, pins, oracle, {"path": path})


def computed(lake: Lake, query: str, instant: datetime = INSTANT) -> Counter[str]:
    """What a refresh at the pins would write."""
    tables = lake.tables
    statement = CreateStatement(parts=("pinned",), query=query, options=Options())
    analysis = tables._declarations.analyse(query)
    name = TableName("spark_catalog", "default", "pinned")
    definition: Definition = tables._declarations.define(name, statement, analysis)
    with tables.lake.work_area(definition, "test") as area:
        return bag(area.compute(definition, lake.pins, instant).frame.collect())


# A shape is a query; where the oracle needs other words (schemas, versions), they stand beside it.
SHAPES: dict[str, str | tuple[str, str]] = {
    "plain": "SELECT * FROM orders",
    "alias": "SELECT o.id FROM orders o",
    "AS alias with columns": "SELECT a, c FROM orders AS o (a, b, c, d)",
    "qualified by the table's name": "SELECT orders.id FROM orders",
    "other case": "SELECT ID FROM OrDeRs",
    "back-ticks": "SELECT `orders`.`id` FROM `orders`",
    "two parts": ("SELECT id FROM default.orders", "SELECT id FROM orders"),
    "two parts in the columns": ("SELECT default.orders.id FROM default.orders", "SELECT id FROM orders"),
    "three parts": ("SELECT id FROM `spark_catalog`.`default`.orders", "SELECT id FROM orders"),
    "spaces around dots": ("SELECT id FROM spark_catalog . `default` . orders", "SELECT id FROM orders"),
    "another schema": ("SELECT * FROM other.orders", "SELECT * FROM other_orders"),
    "one name in two schemas": (
        "SELECT a.id, b.amount FROM orders a JOIN other.orders b ON a.id = b.id",
        "SELECT a.id, b.amount FROM orders a JOIN other_orders b ON a.id = b.id",
    ),
    "a path": ("SELECT id FROM delta.`{path}`", "SELECT id FROM orders"),
    "a path with alias": ("SELECT p.id FROM delta.`{path}` AS p", "SELECT id FROM orders"),
    "IDENTIFIER of a literal": "SELECT id FROM IDENTIFIER('orders')",
    "join": "SELECT o.id, p.name FROM orders o JOIN people p ON o.person = p.id",
    "self-join": "SELECT a.id AS a, b.id AS b FROM orders a CROSS JOIN orders b",
    "self-join with one alias": "SELECT orders.id AS a, b.id AS b FROM orders, orders b",
    "join in parentheses": "SELECT o.id FROM (orders o LEFT JOIN people p USING (id))",
    "full outer, semi, anti": (
        "SELECT id FROM orders LEFT SEMI JOIN people USING (id) UNION ALL SELECT a.id FROM orders a"
        " FULL OUTER JOIN people b USING (id) UNION ALL SELECT id FROM orders a LEFT ANTI JOIN people b ON a.id = b.id"
    ),
    "lateral": "SELECT o.id, x.n FROM orders o, LATERAL (SELECT count(*) AS n FROM orders i WHERE i.id <= o.id) x",
    "lateral view": "SELECT id, tag FROM orders LATERAL VIEW explode(tags) t AS tag",
    "lateral explode": "SELECT id, col FROM orders, LATERAL explode(tags)",
    "subquery": "SELECT id FROM (SELECT id FROM (SELECT * FROM orders) WHERE amount > 1) s",
    "IN": "SELECT name FROM people WHERE id IN (SELECT person FROM orders)",
    "NOT IN": "SELECT name FROM people WHERE id NOT IN (SELECT id FROM orders WHERE amount > 6)",
    "EXISTS": "SELECT id FROM people p WHERE EXISTS (SELECT 1 FROM orders o WHERE o.person = p.id)",
    "scalar": "SELECT id, (SELECT max(amount) FROM orders) AS most FROM people",
    "scalar, correlated": "SELECT (SELECT sum(amount) FROM orders o WHERE o.person = p.id) AS s FROM people p",
    "subquery in HAVING": "SELECT person, count(*) AS n FROM orders GROUP BY person HAVING count(*) >= (SELECT min(id) FROM people)",
    "subquery in CASE": "SELECT CASE WHEN id IN (SELECT id FROM people) THEN 1 ELSE 0 END AS c FROM orders",
    "CTE": "WITH big AS (SELECT * FROM orders WHERE amount > 5) SELECT id FROM big",
    "CTE called like its table": "WITH orders AS (SELECT id + 10 AS id FROM orders) SELECT id FROM orders",
    "CTE called like another table": "WITH people AS (SELECT id FROM orders) SELECT id FROM people",
    "CTE and the table itself": (
        "WITH orders AS (SELECT 99 AS id) SELECT id FROM orders UNION ALL SELECT id FROM default.orders",
        "SELECT 99 AS id UNION ALL SELECT id FROM orders",
    ),
    "CTE over CTE": "WITH a AS (SELECT * FROM orders), b AS (SELECT id FROM a) SELECT a.id FROM a JOIN b USING (id)",
    "CTE named before it exists": "WITH people AS (SELECT id FROM orders), orders AS (SELECT id FROM people) SELECT * FROM orders",
    "nested CTE": "WITH a AS (WITH orders AS (SELECT 7 AS id) SELECT id FROM orders) SELECT a.id AS x, o.id AS y FROM a, orders o",
    "CTE in a subquery": "SELECT id FROM orders WHERE id IN (WITH orders AS (SELECT 1 AS id) SELECT id FROM orders)",
    "CTE seen from a subquery": "WITH few AS (SELECT id FROM people) SELECT id FROM orders WHERE id IN (SELECT id FROM few)",
    "recursive CTE": (
        "WITH RECURSIVE orders (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM orders WHERE n < 4)"
        " SELECT n, p.name FROM orders JOIN people p ON p.id = n"
    ),
    "UNION, INTERSECT, EXCEPT": (
        "(SELECT id FROM orders UNION SELECT id FROM people) EXCEPT ALL (SELECT id FROM people INTERSECT SELECT amount FROM orders)"
    ),
    "TABLE": "TABLE orders",
    "TABLE in a set operation": "TABLE people UNION ALL TABLE people",
    "TABLE with comment and order": "TABLE /* it is */\n people ORDER BY id DESC LIMIT 1",
    "TABLE of a CTE": "WITH a AS (TABLE orders) TABLE a",
    "FROM first": "FROM orders SELECT id, amount",
    "pipes": "FROM orders |> WHERE amount > 1 |> EXTEND amount * 2 AS twice |> AGGREGATE sum(twice) AS s GROUP BY id",
    "pipes with join and union": (
        "FROM orders |> AS o |> JOIN people p ON p.id = o.person |> SELECT o.id |> UNION ALL TABLE v_shadow"
    ),
    "VALUES": "SELECT o.id, w.x FROM orders o JOIN (VALUES (1, 'one'), (3, 'three')) AS w (k, x) ON o.id = w.k",
    "range": "SELECT r.id FROM range(5) r WHERE r.id NOT IN (SELECT id FROM orders)",
    "PIVOT": "SELECT * FROM (SELECT id, amount, person FROM orders) PIVOT (sum(amount) FOR person IN (1 AS one, 2 AS two))",
    "UNPIVOT": "SELECT * FROM (SELECT id, amount FROM orders) UNPIVOT (val FOR col IN (id, amount))",
    "TABLESAMPLE": "SELECT id FROM orders TABLESAMPLE (100 PERCENT) s",
    "TABLESAMPLE of a view": "SELECT id FROM v TABLESAMPLE (100 PERCENT)",
    "window": "SELECT id, row_number() OVER (PARTITION BY person ORDER BY id) AS r FROM orders",
    "grouping sets": "SELECT id, person, sum(amount) AS s FROM orders GROUP BY GROUPING SETS ((id), (person), ())",
    "hint": "SELECT /*+ BROADCAST(p) */ o.id FROM orders o JOIN people p ON o.id = p.id",
    "comments": "SELECT /* FROM people */ id -- FROM people\nFROM /* a */ orders /* b */ AS /* c */ o -- d",
    "odd white space": "\n\tSELECT\r\n\tid\n\n FROM\t\n orders\n",
    "words in literals": "SELECT 'FROM orders' AS a, \"people\" AS b, id FROM orders WHERE 'orders' <> 'people'",
    "astral characters before": "SELECT '𝒳😀🏳️‍🌈' AS `😀`, id /* 🎉🎉 */ FROM orders WHERE id IN (SELECT id FROM people) -- 🎉",
    "column called like a table": "SELECT orders.orders FROM (SELECT id AS orders FROM orders) orders",
    "view": "SELECT * FROM v",
    "view with alias": "SELECT w.id FROM v AS w WHERE w.amount > 5",
    "view by its own name": "SELECT v.id FROM v",
    "view with a column list": "SELECT key, `the value` FROM v_named",
    "view over a view": "SELECT * FROM v_over",
    "view and its table": "SELECT v.id, o.amount FROM v JOIN orders o USING (id)",
    "view twice": "SELECT a.id AS a, b.id AS b FROM v a CROSS JOIN v b",
    "view with a shadowing CTE": "SELECT * FROM v_shadow",
    "view below a shadowing CTE": "WITH orders AS (SELECT 1 AS id) SELECT v.id FROM v JOIN orders USING (id)",
    "view that ends in a comment": "SELECT * FROM v_comment",
    "view with a join": "SELECT * FROM v_join",
    "view in another schema": ("SELECT * FROM other.v", "SELECT * FROM other_v"),
    "views of one name": ("SELECT v.amount, w.far FROM v JOIN other.v w USING (id)", "SELECT v.amount, w.far FROM v JOIN other_v w USING (id)"),
    "view by TABLE": "TABLE v",
}  # fmt: skip


Frames = dict[str, DataFrame | Exception]  # by shape; an exception is told by the test of its shape


@pytest.fixture(scope="module")
def pinned(lake: Lake) -> Frames:
    """The queries as the product pins them."""
    namespace, path = ("spark_catalog", "default"), lake.places["path"]
    settings = {"spark.sql.session.timeZone": "UTC"}
    session = private_session(lake.tables.spark, settings=settings, namespace=namespace)

    def frame(query: str) -> DataFrame:
        reading = read_texts(session, query, namespace)
        rewritten = PinnedQuery(session, reading, pins=lake.pins, instant=INSTANT, columns={})
        return rewritten.frame(query, namespace)

    return {shape: _made(frame, text.replace("{path}", path)) for shape, (text, _) in _both()}


@pytest.fixture(scope="module")
def told(lake: Lake) -> Frames:
    """The queries as the oracle reads them."""
    return {shape: _made(lake.oracle.sql, text) for shape, (_, text) in _both()}


def _both() -> Iterator[tuple[str, tuple[str, str]]]:
    for shape, text in SHAPES.items():
        yield shape, (text, text) if isinstance(text, str) else text


def _made(make: Callable[[str], DataFrame], text: str) -> DataFrame | Exception:
    try:
        return make(text)
    except Exception as error:  # noqa: BLE001
        return error


def same_query(one: DataFrame, other: DataFrame) -> bool:
    """Spark's own comparison of plans, which knows tables and versions and needs no job."""
    plans = [frame._jdf.queryExecution().normalized() for frame in (one, other)]
    return plans[0].sameResult(plans[1])


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_is_read_at_its_pins(pinned: Frames, told: Frames, shape: str) -> None:
    """Spark says that both are the same query over the same versions; if it cannot, the rows say it."""
    mine, oracles = pinned[shape], told[shape]
    assert isinstance(mine, DataFrame), mine
    assert isinstance(oracles, DataFrame), oracles
    assert mine.columns == oracles.columns
    if not same_query(mine, oracles):
        rows = bag(mine.collect())
        assert rows == bag(oracles.collect())
        assert rows, "an empty result proves nothing"


def test_spark_tells_versions_apart(lake: Lake) -> None:
    """Or the test above could not fail: the same table at its newest version is another query."""
    for name in BASE:
        pinned = lake.oracle.table(name.replace(".", "_"))
        assert not same_query(lake.tables.spark.table(name), pinned)
        assert same_query(pinned, pinned.select("*"))


CLOCKS = {
    "current_date()": "DATE'2020-02-29'",
    "CURDATE()": "DATE'2020-02-29'",
    "current_timestamp": "TIMESTAMP'2020-02-29 23:30:15.123456Z'",
    "Current_Timestamp()": "TIMESTAMP'2020-02-29 23:30:15.123456Z'",
    "now()": "TIMESTAMP'2020-02-29 23:30:15.123456Z'",
    "localtimestamp": "TIMESTAMP_NTZ'2020-02-29 23:30:15.123456'",
    "localtimestamp()": "TIMESTAMP_NTZ'2020-02-29 23:30:15.123456'",
    "unix_timestamp()": "1583019015L",
    "date_add(current_date(), 1)": "DATE'2020-03-01'",
    "(SELECT max(now()) FROM orders)": "TIMESTAMP'2020-02-29 23:30:15.123456Z'",
    "unix_timestamp('2020-01-01', 'yyyy-MM-dd')": "1577836800L",
    "orders.`current_date`": "orders.`current_date`",
}


def test_the_clock_stands_at_the_instant(lake: Lake) -> None:
    """One query with every way to ask for the time; a column called like the clock stays a column."""
    source = "(SELECT id, id + 1 AS `current_date` FROM orders) AS orders"
    asked = ", ".join(f"{asked} AS c{index}" for index, asked in enumerate(CLOCKS))
    meant = ", ".join(f"{meant} AS c{index}" for index, meant in enumerate(CLOCKS.values()))
    query, told = f"SELECT {asked} FROM {source}", f"SELECT {meant} FROM {source}"
    assert lake.tables.explain(query).reads_clock
    assert computed(lake, query) == bag(lake.oracle.sql(told).collect())


def test_the_clock_in_filters_and_views(lake: Lake) -> None:
    query = "SELECT id, today, at FROM v_clock WHERE today = current_date AND current_date > DATE'2020-02-28' AND at <= now()"
    assert lake.tables.explain(query).reads_clock
    told = "SELECT id, DATE'2020-02-29', TIMESTAMP'2020-02-29 23:30:15.123456Z' FROM orders"
    assert computed(lake, query) == bag(lake.oracle.sql(told).collect())


def test_a_view_keeps_the_settings_it_was_made_with(lake: Lake) -> None:
    """ANSI off: 'x' is no number but no error either. Tokyo: it is the next day there."""
    told = "SELECT id, CAST(NULL AS INT), DATE'2020-03-01' FROM orders"
    found = computed(lake, "SELECT * FROM v_lenient")
    assert found == bag(lake.oracle.sql(told).collect())


def test_a_view_keeps_the_columns_it_was_made_with(lake: Lake) -> None:
    """Its star was written before the table got another column."""
    found = computed(lake, "SELECT * FROM v_star")
    assert found == bag(lake.oracle.sql("SELECT * FROM v_star").collect())
    assert lake.tables.spark.table("aged").columns == ["id", "name", "later"]


def test_a_temporary_view_does_not_hide_the_table_of_a_view(lake: Lake) -> None:
    lake.tables.spark.sql("CREATE TEMPORARY VIEW orders AS SELECT 'wrong' AS id, 'wrong' AS amount")
    try:
        found = computed(lake, "SELECT * FROM v")
    finally:
        lake.tables.spark.catalog.dropTempView("orders")
    assert found == bag(lake.oracle.sql("SELECT * FROM v").collect())
