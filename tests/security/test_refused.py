# ruff: noqa: E501  tables of cases read best with one case a line
"""Definitions that are refused: the right reason, the object's name, a hint, and not a trace left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from lakes import snapshot

import dynamic_tables as dt
from dynamic_tables.errors import DynamicTablesError
from dynamic_tables.reasons import Reason

pytestmark = pytest.mark.spark

WORLD = """
CREATE TABLE orders (id INT, customer INT, day DATE, s STRUCT<a: INT>) USING delta;
CREATE TABLE clocked (id INT, current_date STRING) USING delta;
CREATE TABLE as_csv (id INT) USING csv;
CREATE TABLE as_json (id INT) USING json;
CREATE TABLE as_parquet (id INT) USING parquet;
CREATE VIEW plain_view AS SELECT id FROM orders;
CREATE VIEW program_view AS SELECT id, reflect('java.lang.System', 'lineSeparator') AS x FROM orders;
CREATE VIEW old_view AS SELECT id FROM orders VERSION AS OF 0;
CREATE VIEW csv_view AS SELECT id FROM as_csv;
CREATE VIEW path_view AS SELECT id FROM delta.`{outside}`;
CREATE TEMPORARY VIEW passing AS SELECT 1 AS id;
CREATE GLOBAL TEMPORARY VIEW passing_too AS SELECT 1 AS id;
CREATE TEMPORARY FUNCTION passing_f(x INT) RETURNS INT RETURN x + 1;
CREATE FUNCTION program_f() RETURNS STRING RETURN reflect('java.lang.System', 'lineSeparator');
CREATE FUNCTION program_ff() RETURNS STRING RETURN upper(program_f());
CREATE FUNCTION today_f() RETURNS DATE RETURN current_date();
CREATE FUNCTION reading_f() RETURNS INT RETURN (SELECT max(id) FROM orders);
CREATE FUNCTION reading_tf() RETURNS TABLE (id INT) RETURN SELECT id FROM orders;
CREATE DYNAMIC TABLE parent INITIALIZE = ON_SCHEDULE AS SELECT id FROM orders;
CREATE DYNAMIC TABLE child INITIALIZE = ON_SCHEDULE AS SELECT id FROM parent;
"""


class World(NamedTuple):
    tables: dt.DynamicTables
    folder: Path  # everything the tests may see: the lake and what lies beside it
    places: dict[str, str]
    before: dict[str, object]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("refused")
    outside, warehouse = folder / "outside", folder / "lake" / "warehouse"
    with dt.connect(folder / "lake", jvm="quick", say=lambda _: None) as tables:
        tables.spark.sql(f"CREATE TABLE delta.`{outside}` (id INT) USING delta")
        for statement in WORLD.format(outside=outside).split(";\n"):
            if statement.strip():
                tables.sql(statement)
        tables.spark.sql("DECLARE VARIABLE spoken INT DEFAULT 1")
        (warehouse / "link").symlink_to(outside)
        (folder / "link_in").symlink_to(warehouse / "orders")
        places = {"outside": str(outside), "warehouse": str(warehouse), "folder": str(folder)}
        yield World(tables, folder, places, snapshot(tables, folder))


class Case(NamedTuple):
    text: str  # a statement of ours, or the query of CREATE DYNAMIC TABLE refused
    reason: Reason
    names: str  # the error names this


NOT_ONE_QUERY = [
    Case("", Reason.NO_QUERY, "query"),
    Case(" \n\t ", Reason.NO_QUERY, "query"),
    Case("-- nothing", Reason.SYNTAX, "line 1"),
    Case("CREATE DYNAMIC TABLE refused", Reason.NO_QUERY, "query"),
    Case("CREATE DYNAMIC TABLE refused AS", Reason.NO_QUERY, "query"),
    Case("SELECT id FROM orders; SELECT 1 AS x", Reason.SEVERAL_STATEMENTS, "more than one"),
    Case("SELECT id FROM orders; DROP TABLE orders", Reason.SEVERAL_STATEMENTS, "more than one"),
    Case(
        "CREATE DYNAMIC TABLE refused AS SELECT id FROM orders; DROP TABLE orders",
        Reason.SEVERAL_STATEMENTS,
        "column 56",
    ),
    Case("DROP TABLE orders", Reason.NOT_A_QUERY, "statement"),
    Case("DELETE FROM orders", Reason.NOT_A_QUERY, "statement"),
    Case("INSERT INTO orders SELECT * FROM orders", Reason.NOT_A_QUERY, "statement"),
    Case("UPDATE orders SET id = 1", Reason.NOT_A_QUERY, "statement"),
    Case("FROM orders INSERT INTO orders SELECT *", Reason.NOT_A_QUERY, "statement"),
    Case("WITH x AS (SELECT 1) INSERT INTO orders TABLE x", Reason.NOT_A_QUERY, "statement"),
    Case("CREATE TABLE stolen AS SELECT * FROM orders", Reason.NOT_A_QUERY, "statement"),
    Case("SHOW TABLES", Reason.NOT_A_QUERY, "statement"),
    Case("SET spark.sql.ansi.enabled=false", Reason.NOT_A_QUERY, "statement"),
    Case("EXPLAIN SELECT id FROM orders", Reason.NOT_A_QUERY, "statement"),
    Case("CACHE TABLE orders", Reason.NOT_A_QUERY, "statement"),
    Case("ADD JAR '/tmp/x.jar'", Reason.NOT_A_QUERY, "statement"),
    Case("OPTIMIZE orders", Reason.NOT_A_QUERY, "statement"),
    Case("SELECT * FORM orders", Reason.SYNTAX, "orders"),
    Case("SELECT id FROM orders WHERE id =", Reason.SYNTAX, "end of input"),
    Case("SELECT '\ud800' AS x", Reason.SYNTAX, "surrogate"),
]
SOURCES = [
    Case("SELECT * FROM nowhere", Reason.UNKNOWN_SOURCE, "default.nowhere"),
    Case("SELECT * FROM nosuch.orders", Reason.UNKNOWN_SOURCE, "nosuch.orders"),
    Case(
        "SELECT id FROM orders WHERE id IN (SELECT id FROM nowhere)",
        Reason.UNKNOWN_SOURCE,
        "nowhere",
    ),
    Case(
        "WITH a AS (SELECT * FROM b), b AS (SELECT 1 AS x) SELECT * FROM a",
        Reason.UNKNOWN_SOURCE,
        "b",
    ),
    Case("SELECT * FROM a.b.c.d", Reason.BAD_NAME, "a.b.c.d"),
    Case("SELECT nothing FROM orders", Reason.ANALYSIS_FAILED, "nothing"),
    Case("SELECT nofunction(id) AS x FROM orders", Reason.ANALYSIS_FAILED, "nofunction"),
    Case("SELECT id FROM as_csv", Reason.SOURCE_NOT_DELTA, "default.as_csv"),
    Case("SELECT id FROM as_json", Reason.SOURCE_NOT_DELTA, "default.as_json"),
    Case("SELECT id FROM as_parquet", Reason.SOURCE_NOT_DELTA, "default.as_parquet"),
    Case("SELECT id FROM csv_view", Reason.SOURCE_NOT_DELTA, "default.as_csv"),
    Case("SELECT * FROM parquet.`{warehouse}/orders`", Reason.SOURCE_NOT_DELTA, "parquet"),
    Case("SELECT * FROM text.`/etc/passwd`", Reason.SOURCE_NOT_DELTA, "/etc/passwd"),
    Case("SELECT * FROM binaryFile.`/etc/passwd`", Reason.SOURCE_NOT_DELTA, "/etc/passwd"),
    Case("SELECT * FROM jdbc.`url`", Reason.UNKNOWN_SOURCE, "jdbc.url"),
    Case("SELECT * FROM STREAM orders", Reason.SOURCE_NOT_DELTA, "orders"),
    Case("SELECT * FROM table_changes('orders', 0)", Reason.SOURCE_NOT_DELTA, "table_changes"),
    Case("SELECT * FROM read_files('/etc')", Reason.SOURCE_NOT_DELTA, "read_files"),
    Case("SELECT * FROM reading_tf()", Reason.SOURCE_NOT_DELTA, "reading_tf"),
    Case("SELECT reading_f() AS x, id FROM orders", Reason.SOURCE_NOT_DELTA, "reading_f"),
    Case("SELECT id FROM passing", Reason.TEMPORARY_OBJECT, "passing"),
    Case("SELECT id FROM global_temp.passing_too", Reason.TEMPORARY_OBJECT, "passing_too"),
    Case("SELECT passing_f(id) AS x FROM orders", Reason.TEMPORARY_OBJECT, "passing_f"),
    Case("SELECT spoken AS x, id FROM orders", Reason.ANALYSIS_FAILED, "spoken"),
    Case("SELECT id FROM orders WHERE id = :given", Reason.ANALYSIS_FAILED, "given"),
    Case("SELECT id FROM orders WHERE id = ?", Reason.ANALYSIS_FAILED, "parameter"),
    Case("SELECT '${env:HOME}' AS x, id FROM orders", Reason.SYNTAX, "${env:HOME}"),
    Case("SELECT * FROM IDENTIFIER('ord' || 'ers')", Reason.SYNTAX, "IDENTIFIER"),
]
TIME = [
    Case("SELECT * FROM orders VERSION AS OF 0", Reason.TIME_TRAVEL, "version"),
    Case("SELECT * FROM orders FOR SYSTEM_VERSION AS OF 0 AS o", Reason.TIME_TRAVEL, "version"),
    Case("SELECT * FROM orders TIMESTAMP AS OF '2026-01-01'", Reason.TIME_TRAVEL, "version"),
    Case("WITH a AS (SELECT * FROM orders VERSION AS OF 0) TABLE a", Reason.TIME_TRAVEL, "version"),
    Case("SELECT * FROM old_view", Reason.TIME_TRAVEL, "version"),
    Case("SELECT * FROM orders WITH ('versionAsOf' = '0')", Reason.ANALYSIS_FAILED, "time travel"),
    Case(
        "SELECT * FROM orders WITH ('readChangeFeed' = 'true', 'startingVersion' = '0')",
        Reason.ANALYSIS_FAILED,
        "change data feed",
    ),
    Case("SELECT * FROM `orders@v0`", Reason.UNKNOWN_SOURCE, "orders@v0"),
    Case("SELECT * FROM delta.`{warehouse}/orders@v0`", Reason.UNKNOWN_SOURCE, "orders@v0"),
    Case("SELECT DATE 'today' AS d, id FROM orders", Reason.ANALYSIS_FAILED, "today"),
    Case("SELECT CAST('now' AS TIMESTAMP) AS d, id FROM orders", Reason.ANALYSIS_FAILED, "now"),
    Case("SELECT id FROM orders WHERE day > ' Yesterday '", Reason.ANALYSIS_FAILED, "Yesterday"),
    Case("SELECT current_time() AS t, id FROM orders", Reason.ANALYSIS_FAILED, "current_time"),
    Case("SELECT today_f() AS t, id FROM orders", Reason.SOURCE_NOT_DELTA, "today_f"),
    Case("SELECT id, current_date AS x FROM clocked", Reason.ANALYSIS_FAILED, "current_date"),
    Case(
        "SELECT id AS current_date, current_date AS x FROM orders",
        Reason.BAD_COLUMNS,
        "current_date",
    ),
]
PROGRAMS = [
    Case(text, Reason.RUNS_PROGRAMS, name)
    for text, name in [
        ("SELECT reflect('java.lang.System', 'lineSeparator') AS x, id FROM orders", "reflect"),
        ("SELECT JAVA_METHOD('java.lang.System', 'lineSeparator') AS x, id FROM orders", "java_method"),
        ("SELECT `try_reflect`('java.lang.System', 'lineSeparator') AS x, id FROM orders", "try_reflect"),
        ("SELECT id FROM orders WHERE id IN (SELECT length(reflect('a', 'b')) FROM orders)", "reflect"),
        ("WITH a AS (SELECT reflect('a', 'b') AS x) SELECT x FROM a", "reflect"),
        ("SELECT id FROM orders ORDER BY (SELECT reflect('a', 'b'))", "reflect"),
        ("SELECT id FROM orders o JOIN LATERAL (SELECT reflect('a', 'b') AS x) l", "reflect"),
        ("SELECT transform(array(1), y -> reflect('a', 'b')) AS x, id FROM orders", "reflect"),
        ("SELECT system.builtin.reflect('a', 'b') AS x, id FROM orders", "reflect"),
        ("VALUES (reflect('a', 'b'))", "reflect"),
        ("FROM orders |> EXTEND reflect('a', 'b') AS x", "reflect"),
        ("SELECT * FROM program_view", "reflect"),
        ("SELECT program_f() AS x, id FROM orders", "reflect"),
        ("SELECT default.program_ff() AS x, id FROM orders", "reflect"),
        ("SELECT TRANSFORM (id) USING 'cat' AS (x STRING) FROM orders", "TRANSFORM"),
        ("SELECT x FROM (FROM orders MAP id USING 'cat' AS (x STRING))", "TRANSFORM"),
        ("SELECT x FROM orders, (SELECT TRANSFORM (id) USING 'cat' AS (x STRING) FROM orders)", "TRANSFORM"),
    ]
] + [Case("SELECT IDENTIFIER('ref' || 'lect')('a', 'b') AS x, id FROM orders", Reason.SYNTAX, "IDENTIFIER")]  # fmt: skip
PATHS = [
    Case(f"SELECT * FROM {relation}", Reason.PATH_NOT_ALLOWED, name)
    for relation, name in [
        ("delta.`{outside}`", "outside"),
        ("delta.`file:{outside}`", "outside"),
        ("delta.`FILE://{outside}`", "outside"),
        ("DELTA.`{outside}`", "outside"),
        ("spark_catalog.delta.`{outside}`", "outside"),
        ("delta.`{warehouse}/../../outside`", "outside"),
        ("delta.`{warehouse}/link`", "link"),
        ("delta.`{folder}/link_in/../outside`", "outside"),
        ("delta.`{warehouse}x`", "warehousex"),
        ("delta.`file:{folder}/%2e%2e%2f`", "%2e"),
        ("delta.`s3a://bucket/table`", "s3a://bucket/table"),
        ("delta.`s3a://bucket/a/../../b`", "s3a"),
        ("delta.`relative/table`", "relative/table"),
        ("path_view", "outside"),
    ]
]
COLUMNS = [
    Case("SELECT id, customer AS ID FROM orders", Reason.BAD_COLUMNS, "ID"),
    Case("SELECT * FROM orders a JOIN orders b ON a.id = b.id", Reason.BAD_COLUMNS, "id"),
    Case("SELECT id + 1 FROM orders", Reason.BAD_COLUMNS, "id + 1"),
    Case("SELECT count(*) FROM orders", Reason.BAD_COLUMNS, "count(*)"),
    Case(
        "SELECT id + 1 FROM orders UNION ALL SELECT id AS x FROM orders",
        Reason.BAD_COLUMNS,
        "id + 1",
    ),
    Case("SELECT id, current_date FROM orders", Reason.BAD_COLUMNS, "current_date"),
    Case("SELECT id AS _ivm_count FROM orders", Reason.RESERVED_NAME, "_ivm_count"),
    Case("SELECT id AS _dt_old FROM orders", Reason.RESERVED_NAME, "_dt_old"),
    Case("SELECT id AS x__IVM FROM orders", Reason.RESERVED_NAME, "x__IVM"),
    Case("SELECT id, NULL AS nothing FROM orders", Reason.BAD_COLUMNS, "nothing"),
    Case("SELECT id, INTERVAL '1' DAY AS later FROM orders", Reason.BAD_COLUMNS, "later"),
    Case("SELECT id, make_interval(1) AS later FROM orders", Reason.BAD_COLUMNS, "later"),
]
C = "CREATE DYNAMIC TABLE"
Q = "AS SELECT id FROM orders"
NAMES_AND_OPTIONS = [
    Case(f"{C} _ivm_x {Q}", Reason.RESERVED_NAME, "_ivm_x"),
    Case(f"{C} x__ivm {Q}", Reason.RESERVED_NAME, "x__ivm"),
    Case(f"{C} orders {Q}", Reason.ALREADY_EXISTS, "default.orders"),
    Case(f"{C} PLAIN_VIEW {Q}", Reason.ALREADY_EXISTS, "PLAIN_VIEW"),
    Case(f"{C} parent {Q}", Reason.ALREADY_EXISTS, "default.parent"),
    Case(f"{C} nosuch.refused {Q}", Reason.BAD_NAME, "nosuch"),
    Case(f"{C} `my table` {Q}", Reason.BAD_NAME, "my table"),
    Case(f"{C} a.b.c.d {Q}", Reason.SYNTAX, "three parts"),
    Case("CREATE OR ALTER DYNAMIC TABLE parent AS SELECT id FROM parent", Reason.CYCLE, "parent"),
    Case("CREATE OR ALTER DYNAMIC TABLE parent AS SELECT id FROM child", Reason.CYCLE, "parent"),
    Case("CREATE OR REPLACE DYNAMIC TABLE parent AS SELECT id FROM orders WHERE id IN (SELECT id FROM child)", Reason.CYCLE, "parent"),
    Case(f"{C} refused SPEED = 'high' {Q}", Reason.UNKNOWN_OPTION, "SPEED"),
    Case(f"{C} refused TARGET_LAG = 'soon' {Q}", Reason.BAD_VALUE, "soon"),
    Case(f"{C} refused CARDINALITY_THRESHOLD = 7 {Q}", Reason.BAD_VALUE, "7"),
    Case(f"{C} refused CLUSTER BY (id) PARTITIONED BY (id) {Q}", Reason.CONTRADICTION, "CLUSTER BY"),
    Case(f"CREATE OR ALTER DYNAMIC TABLE IF NOT EXISTS refused {Q}", Reason.CONTRADICTION, "IF NOT EXISTS"),
    Case(f"{C} refused CLUSTER BY (nothing) {Q}", Reason.BAD_VALUE, "nothing"),
    Case(f"{C} refused PARTITIONED BY (nothing) {Q}", Reason.BAD_VALUE, "nothing"),
    Case(f"{C} refused REFRESH_MODE = INCREMENTAL {Q} LIMIT 3", Reason.MODE_REFUSES_FULL, "refused"),
    Case("DROP DYNAMIC TABLE orders", Reason.UNKNOWN_TABLE, "default.orders"),
    Case("DROP DYNAMIC TABLE parent", Reason.HAS_CHILDREN, "child"),
    Case("REFRESH DYNAMIC TABLE parent, orders", Reason.UNKNOWN_TABLE, "default.orders"),
    Case("ALTER DYNAMIC TABLE parent RENAME TO orders", Reason.ALREADY_EXISTS, "orders"),
    Case("ALTER DYNAMIC TABLE parent RENAME TO x__ivm", Reason.RESERVED_NAME, "x__ivm"),
    Case("ALTER DYNAMIC TABLE parent SET CLUSTER BY (nothing)", Reason.BAD_VALUE, "nothing"),
]  # fmt: skip
CASES = [
    *NOT_ONE_QUERY, *SOURCES, *TIME, *PROGRAMS, *PATHS, *COLUMNS, *NAMES_AND_OPTIONS,
]  # fmt: skip
OURS = ("CREATE DYNAMIC", "CREATE OR", "DROP DYNAMIC", "REFRESH DYNAMIC", "ALTER DYNAMIC")


def declare(tables: dt.DynamicTables, text: str) -> None:
    if text.startswith(OURS):
        tables.sql(text)
    else:
        tables.create("refused", text)


@pytest.mark.parametrize("case", CASES, ids=lambda case: ascii(case.text)[1:70])
def test_refused(world: World, case: Case) -> None:
    text = case.text
    for key, place in world.places.items():
        text = text.replace(f"{{{key}}}", place)
    with pytest.raises(DynamicTablesError) as caught:
        declare(world.tables, text)
    error = caught.value
    assert error.reason is case.reason, error
    assert case.names.lower() in str(error).lower()
    assert error.hint
    assert error.exit_code in (2, 4)
    assert snapshot(world.tables, world.folder) == world.before


@pytest.mark.parametrize(
    "relation",
    [
        "delta.`{warehouse}/orders`",
        "delta.`file:{warehouse}/orders`",
        "spark_catalog.delta.`{warehouse}/orders`",
        "delta.`{warehouse}/../warehouse/orders`",
        "delta.`{folder}/link_in`",
    ],
)
def test_a_path_inside_the_lake_is_a_source(world: World, relation: str) -> None:
    explanation = world.tables.explain(f"SELECT id FROM {relation.format(**world.places)}")
    assert [name for name, _ in explanation.columns] == ["id"]
    assert len(explanation.sources) == 1


def test_an_allowed_root_opens_its_folder_and_no_other(world: World, tmp_path: Path) -> None:
    outside = world.places["outside"]
    with dt.connect(tmp_path / "lake", jvm="quick", allowed_roots=outside) as tables:
        assert tables.explain(f"SELECT id FROM delta.`{outside}`").columns == (("id", "INT"),)
        with pytest.raises(DynamicTablesError) as caught:
            tables.explain(f"SELECT id FROM delta.`{world.places['warehouse']}/orders`")
    assert caught.value.reason is Reason.PATH_NOT_ALLOWED
