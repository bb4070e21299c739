"""What happens to sources and definitions: pinning, views, schema changes, the clock, options."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest
from duck_oracle import check

import dynamic_tables as dt

PINNED = {  # queries whose references are easy to miss; `t` and `u` are tables, `v` is a view
    "plain": "SELECT id, n FROM t",
    "from_first": "FROM t SELECT id WHERE n > 1",
    "table": "TABLE t",
    "qualified": "SELECT main.t.id FROM main.t",
    "catalog": "SELECT t.id FROM small_lake.main.t",
    "catalog_only": "SELECT t.id FROM small_lake.t",
    "quoted": 'SELECT "x"."id" FROM "main" . /* where? */ "t" AS "x"',
    "bare_alias": "SELECT x.a FROM t x(a, b)",
    "umlaut": "SELECT 'äöü ''t''' AS t, ö.id FROM t ö",
    "comment": "SELECT id -- FROM u\n FROM t -- the end",
    "cte": "WITH c AS (SELECT id FROM t) SELECT id FROM c",
    "shadow": "WITH t AS (SELECT id + 1 AS id FROM t) SELECT id FROM t",
    "inner": "SELECT id FROM (WITH u AS (SELECT id FROM t) SELECT id FROM u) UNION ALL FROM u",
    "recursive": "WITH RECURSIVE r AS (SELECT min(id) AS i FROM t UNION ALL "
    "SELECT i + 1 FROM r WHERE i < (SELECT max(id) FROM t)) SELECT i FROM r",
    "subquery": "SELECT (SELECT max(id) FROM u) AS m, EXISTS (FROM t WHERE id = 9) AS e FROM t",
    "lateral": "SELECT t.id, l.s FROM t, LATERAL (SELECT t.id + u.id AS s FROM u) l",
    "self": "SELECT a.id FROM t a JOIN t b ON a.id = b.n",
    "set": "SELECT id FROM t EXCEPT SELECT id FROM u INTERSECT SELECT n FROM t",
    "pivot": "SELECT * FROM (PIVOT t ON n IN (1, 2) USING count(*))",
    "view": "SELECT x.one FROM v AS x JOIN v ON x.one = v.one",
    "star": "SELECT * FROM t",
    "unnested": "SELECT unnest([id, n]) AS i FROM t",
    "generated": "SELECT g.i FROM generate_series(1, 3) g(i) JOIN t ON t.id = g.i",
}


@pytest.fixture(scope="module")
def pinned(shared: dt.DynamicTables) -> dt.DynamicTables:
    shared.sql("CREATE TABLE t (id INT, n INT)")
    shared.sql("INSERT INTO t VALUES (1, 1), (2, 1), (2, 1), (NULL, 2), (3, NULL)")
    shared.sql("CREATE TABLE u AS SELECT 2 AS id")
    shared.sql("CREATE VIEW v (one) AS SELECT id FROM t WHERE id IS NOT NULL")
    for name, query in PINNED.items():
        shared.create(name, query)
    return shared


def test_what_was_pinned_is_read(pinned: dt.DynamicTables) -> None:
    """Sources move on; the recorded cut still gives the stored rows, by the product's pinning."""
    before = {name: sorted(pinned.read(name).collect(), key=str) for name in PINNED}
    for name in PINNED:  # the oracle knows no views
        if name not in ("view", "catalog", "catalog_only", "qualified", "quoted"):
            check(pinned, name)
    for change in ("INSERT INTO t SELECT id + 10, n + 1 FROM t", "INSERT INTO u VALUES (1), (12)"):
        pinned.sql(change)
    assert all(pinned.verify(name).ok for name in PINNED)
    report = pinned.refresh()
    assert {record.outcome for record in report.records} == {"done"}
    assert all(pinned.verify(name).ok for name in PINNED)
    changed = [
        name for name in PINNED if sorted(pinned.read(name).collect(), key=str) != before[name]
    ]
    assert set(PINNED) - set(changed) <= {"generated", "set"}


def test_a_changed_view_is_noticed(tables: dt.DynamicTables) -> None:
    tables.sql("CREATE TABLE src AS SELECT 1 AS a, 2 AS b")
    tables.sql("CREATE VIEW w AS SELECT a AS x FROM src")
    tables.create("viewed", "SELECT x FROM w")
    tables.sql("CREATE OR REPLACE VIEW w AS SELECT b AS x FROM src")
    assert [row.reason for row in tables.plan()] == ["VIEW_CHANGED"]
    assert tables.refresh()["viewed"].reason == "VIEW_CHANGED"
    assert tables.read("viewed").collect() == [(2,)]
    assert tables.refresh()["viewed"].reason == "NOT_MOVED"


def test_a_source_is_its_table_id(tables: dt.DynamicTables) -> None:
    tables.sql("CREATE TABLE src AS SELECT 1 AS a")
    tables.create("copy", "SELECT a FROM src")
    tables.sql("DROP TABLE src")
    with pytest.raises(dt.RefreshFailed) as caught:
        tables.refresh()
    assert caught.value.reason is dt.Reason.UNKNOWN_SOURCE
    assert tables.verify("copy").ok  # what was pinned can still be read
    tables.sql("CREATE TABLE src AS SELECT 1 AS a")
    assert tables.refresh()["copy"].reason == "SOURCE_REPLACED"
    tables.create("child", "SELECT s.a FROM src s JOIN copy c ON s.a = c.a")
    tables.sql("CREATE OR REPLACE TABLE src AS SELECT 7 AS a")
    report = tables.refresh("child")  # its parent was built from a table that is gone
    assert [record.table.name for record in report.records] == ["copy", "child"]
    assert report["copy"].reason == "SOURCE_REPLACED"
    check(tables)


def test_columns_come_and_go(tables: dt.DynamicTables) -> None:
    tables.sql("CREATE TABLE src (a INT, b INT)")
    tables.sql("INSERT INTO src VALUES (1, 2)")
    tables.create("star", "SELECT * FROM src")
    tables.create("below", "SELECT b FROM star")
    tables.sql("ALTER TABLE src ADD COLUMN c INT")
    tables.sql("INSERT INTO src VALUES (3, 4, 5)")
    tables.refresh()
    assert sorted(tables.read("star").collect()) == [(1, 2), (3, 4)]
    tables.sql("ALTER TABLE src ALTER b TYPE BIGINT")
    tables.sql("INSERT INTO src VALUES (5, 6, 7)")
    report = tables.refresh()
    assert (report["star"].action, report["star"].reason) == (
        "reinitialize",
        "SOURCE_SCHEMA_CHANGED",
    )
    assert [column.type for column in tables.show("star").definition.columns] == [
        "INTEGER",
        "BIGINT",
    ]
    assert tables.verify("star").ok
    assert tables.verify("below").ok
    tables.sql("ALTER TABLE src DROP COLUMN a")
    planned = {row.table.name: (row.action, row.reason) for row in tables.plan()}
    assert planned["star"] == ("skip", "SOURCE_SCHEMA_CHANGED")
    report = tables.refresh(on_error="report")
    assert report["star"].reason == "SOURCE_SCHEMA_CHANGED"
    assert "src has no column a any more" in (report["star"].error or "")
    assert report["below"].reason == "UPSTREAM_FAILED"


def test_what_is_no_change(tables: dt.DynamicTables) -> None:
    """Comments, files written out or merged and other tables do not move a source."""
    tables.sql("CREATE TABLE src AS SELECT i AS a FROM range(30) r(i)")
    tables.create("copy", "SELECT a FROM src")
    tables.create("below", "SELECT a FROM copy")
    tables.sql("COMMENT ON TABLE src IS 'quiet'")
    tables.sql("CALL ducklake_flush_inlined_data('small_lake')")
    tables.sql("CREATE TABLE other AS SELECT 1 AS x")
    tables.sql("OPTIMIZE DYNAMIC TABLE copy")
    assert {record.reason for record in tables.refresh().records} == {"NOT_MOVED"}
    check(tables)


def test_the_clock_is_pinned(open_lake: Callable[..., dt.DynamicTables]) -> None:
    """Rows leave as time passes; verify uses the recorded instant."""
    now = [datetime(2026, 1, 10, 12, tzinfo=UTC)]
    tables = open_lake(clock=lambda: now[0])
    tables.sql("CREATE TABLE src AS SELECT DATE '2026-01-09' AS day")
    tables.create(
        "recent",
        "SELECT day, now() AS at, CURRENT_DATE AS today, localtimestamp AS here FROM src "
        "WHERE day >= current_date - 1",
    )
    ((day, at, today, here),) = tables.read("recent").collect()
    assert (at, today) == (now[0], now[0].date())
    assert here == now[0].replace(tzinfo=None)
    assert day < today
    assert tables.show("recent").definition.reads_clock
    now[0] += timedelta(days=1)
    assert tables.refresh()["recent"].reason == "TIME_IN_OUTPUT"
    assert tables.read("recent").collect() == []
    assert tables.verify("recent").ok


def test_sums_of_integers_are_exact(tables: dt.DynamicTables) -> None:
    """DuckDB's 128-bit sums would be floating numbers in Parquet."""
    big = 2**62 + 1
    tables.sql(f"CREATE TABLE src AS SELECT {big}::BIGINT AS n, i AS k FROM range(40) r(i)")
    tables.create("sums", "SELECT k, sum(n) AS s FROM src GROUP BY k")
    tables.create("below", "SELECT sum(s) AS total FROM sums")
    assert {row[1] for row in tables.read("sums").collect()} == {big}
    assert tables.read("below").collect() == [(40 * big,)]
    assert all(tables.verify(name).ok for name in ("sums", "below"))


def test_verify_shows_what_differs_and_forgives_rounding(tables: dt.DynamicTables) -> None:
    tables.sql("CREATE TABLE src AS SELECT i % 3 AS k, i / 7 AS x FROM range(100) r(i)")
    tables.create("sums", "SELECT k, sum(x) AS s FROM src GROUP BY k")
    assert tables.show("sums").definition.approximate == ("s",)
    tables.sql("UPDATE sums__ivm SET s = s * (1 + 1e-12) WHERE k = 1")
    assert tables.verify("sums").ok
    tables.sql("UPDATE sums__ivm SET s = s + 1 WHERE k = 2")
    tables.sql("DELETE FROM sums__ivm WHERE k = 0")
    difference = tables.verify("sums").difference
    assert (difference.missing, difference.unexpected) == (2, 1)
    assert {row["_difference"] for row in difference.sample} == {"missing", "unexpected"}
    assert tables.refresh()["sums"].reason == "FOREIGN_CHANGE"
    assert tables.verify("sums").ok


def test_definitions_change(tables: dt.DynamicTables) -> None:
    tables.sql("CREATE TABLE src AS SELECT 1 AS a, 'x' AS b")
    tables.create("t", "SELECT a FROM src")
    assert tables.create("t", "select  a /* same */ from src", or_alter=True).did == "unchanged"
    assert tables.alter("t", comment="seen").did == "altered"
    assert tables.create("t", "SELECT b, a FROM src", or_alter=True).did == "redefined"
    assert tables.read("t").collect() == [("x", 1)]
    with pytest.raises(dt.InvalidInput) as caught:
        tables.alter("t", cluster_by=["a"])
    assert caught.value.reason is dt.Reason.CONTRADICTION
    tables.sql("CREATE SCHEMA elsewhere")
    with pytest.raises(dt.InvalidInput) as caught:
        tables.alter("t", rename_to="elsewhere.t")
    assert caught.value.reason is dt.Reason.BAD_NAME
    tables.create("elsewhere.t", "SELECT a FROM main.t")
    tables.sql("USE elsewhere")
    tables.create("near", "SELECT a FROM t")  # elsewhere.t
    tables.sql("USE main")
    assert [str(s.name) for s in tables.show("elsewhere.near").definition.sources] == [
        "elsewhere.t"
    ]
    assert tables.refresh().ok
    check(tables, "t")


def test_history_that_is_gone(tables: dt.DynamicTables) -> None:
    """Expired snapshots: verify says so, and the next refresh recomputes."""
    tables.sql("CREATE TABLE src AS SELECT 1 AS a")
    tables.create("copy", "SELECT a FROM src")
    tables.create("below", "SELECT a FROM copy")
    version = tables.show("copy").build.pins[0].version  # type: ignore[union-attr]
    tables.sql(
        f"SELECT snapshot_id FROM ducklake_expire_snapshots('small_lake', versions => [{version}])"
    )
    with pytest.raises(dt.RefreshError) as caught:
        tables.verify("copy")
    assert caught.value.reason is dt.Reason.HISTORY_GONE
    assert tables.refresh().ok
    assert tables.verify("copy").ok
    tables.sql("INSERT INTO src VALUES (2)")
    assert tables.refresh().ok
    check(tables)


REFUSED = [
    ("", "NO_QUERY"),
    ("SELEC 1", "SYNTAX"),
    ("SELECT 1 AS a; SELECT 2 AS a", "SEVERAL_STATEMENTS"),
    ("INSERT INTO src VALUES (1)", "NOT_A_QUERY"),
    ("DROP TABLE src", "NOT_A_QUERY"),
    ("DESCRIBE src", "ANALYSIS_FAILED"),
    ("SELECT a FROM nowhere", "UNKNOWN_SOURCE"),
    ("SELECT a FROM main.nowhere", "UNKNOWN_SOURCE"),
    ("SELECT a FROM memory.main.src", "SOURCE_NOT_DELTA"),
    ("SELECT b FROM src", "ANALYSIS_FAILED"),
    ("SELECT count(*) FROM src", "BAD_COLUMNS"),
    ("SELECT current_date FROM src", "BAD_COLUMNS"),
    ("SELECT a, a FROM src", "BAD_COLUMNS"),
    ("SELECT INTERVAL 1 DAY AS i FROM src", "BAD_COLUMNS"),
    ("SELECT [sum(a)] AS l FROM src", "BAD_COLUMNS"),
    ("SELECT a AS _ivm_a FROM src", "RESERVED_NAME"),
    ("SELECT a AS _change_type FROM src", "RESERVED_NAME"),
    ("SELECT table_id FROM _ivm_lake.tables", "RESERVED_NAME"),
    ("SELECT a FROM src AT (VERSION => 1)", "TIME_TRAVEL"),
    ("SELECT * FROM read_csv('/etc/passwd')", "SOURCE_NOT_DELTA"),
    ("SELECT * FROM read_text('/etc/passwd')", "SOURCE_NOT_DELTA"),
    ("SELECT * FROM glob('/*')", "SOURCE_NOT_DELTA"),
    ("SELECT * FROM '/etc/passwd'", "SOURCE_NOT_DELTA"),
    ("SELECT * FROM 'x.parquet'", "SOURCE_NOT_DELTA"),
    ("SELECT * FROM query('SELECT 1 AS a')", "SOURCE_NOT_DELTA"),
    ("SELECT * FROM query_table('src')", "SOURCE_NOT_DELTA"),
    ("SELECT * FROM duckdb_settings()", "SOURCE_NOT_DELTA"),
    ("SELECT x FROM scratch", "TEMPORARY_OBJECT"),
    ("SELECT getvariable('x') AS x FROM src", "TEMPORARY_OBJECT"),
    ("SELECT twice(a) AS a FROM src", "SOURCE_NOT_DELTA"),
    ("SELECT age(DATE '2020-01-01') AS a FROM src", "ANALYSIS_FAILED"),
    ("SELECT a FROM clocked WHERE day > current_date", "ANALYSIS_FAILED"),
]


@pytest.fixture(scope="module")
def hostile(shared: dt.DynamicTables) -> dt.DynamicTables:
    shared.sql("CREATE TABLE src AS SELECT 1 AS a")
    shared.sql("CREATE TABLE clocked AS SELECT 1 AS a, DATE '2026-01-01' AS day, 1 AS current_date")
    shared.sql("CREATE TEMP TABLE scratch AS SELECT 1 AS x")
    shared.sql("CREATE MACRO twice(x) AS x * 2")
    return shared


@pytest.mark.parametrize(("query", "reason"), REFUSED, ids=[query for query, _ in REFUSED])
def test_refused(hostile: dt.DynamicTables, query: str, reason: str) -> None:
    before = list(hostile.list())
    with pytest.raises(dt.InvalidInput) as caught:
        hostile.create("never", query)
    assert caught.value.reason == reason, caught.value
    assert list(hostile.list()) == before


def test_cycles_and_taken_names(tables: dt.DynamicTables) -> None:
    tables.sql("CREATE TABLE src AS SELECT 1 AS a")
    tables.create("one", "SELECT a FROM src")
    tables.create("two", "SELECT a FROM one")
    with pytest.raises(dt.InvalidInput) as caught:
        tables.create("one", "SELECT a FROM two", or_alter=True)
    assert caught.value.reason is dt.Reason.CYCLE
    with pytest.raises(dt.InvalidInput) as caught:
        tables.create("src", "SELECT a FROM one")
    assert caught.value.reason is dt.Reason.ALREADY_EXISTS
    tables.create("later", "SELECT a FROM src", initialize="ON_SCHEDULE")
    tables.sql("CREATE VIEW later AS SELECT 5 AS a")
    report = tables.refresh("later", on_error="report")
    assert report["later"].reason == "ALREADY_EXISTS"
    assert tables.sql("FROM later").collect() == [(5,)]


def test_random_functions_are_named(tables: dt.DynamicTables) -> None:
    tables.sql("CREATE TABLE src AS SELECT 1 AS a")
    assert not tables.explain("SELECT random() AS r FROM src").deterministic
    assert tables.explain("SELECT a + 1 AS r FROM src").deterministic


def test_a_source_with_the_columns_of_a_change_feed(tables: dt.DynamicTables) -> None:
    """DuckLake's feed has columns of these names too, and they come first."""
    tables.sql("CREATE TABLE log (rowid INT, change_type VARCHAR, snapshot_id INT)")
    tables.sql("INSERT INTO log VALUES (1, 'x', 7)")
    tables.create("kept", "SELECT rowid AS r, change_type AS c, snapshot_id AS s FROM log")
    tables.sql("INSERT INTO log VALUES (2, 'y', 8)")
    tables.refresh()
    check(tables)
    assert tables.history("kept")[0].strategy == "append"


def test_strange_names(tables: dt.DynamicTables) -> None:
    tables.sql('CREATE TABLE "src ""x""; --" ("a b" INT, "C""" INT)')
    tables.sql('INSERT INTO "src ""x""; --" VALUES (1, 2)')
    tables.create('`odd ``name`` "q"`', 'SELECT * FROM "src ""x""; --"')
    tables.create("below", 'SELECT "a b" AS "x.y" FROM "odd `name` ""q"""')
    assert tables.sql('FROM "odd `name` ""q"""').columns == ["a b", 'C"']
    assert tables.verify("below").ok
    assert tables.drop('`odd ``name`` "q"`', cascade=True)


def test_user_statements_are_duckdbs(tables: dt.DynamicTables) -> None:
    """Errors are DuckDB's own; a Python variable is no table; there is no Spark."""
    variable = [1, 2, 3]
    with pytest.raises(duckdb.CatalogException):
        tables.sql("FROM variable")
    assert len(variable) == 3
    result = tables.sql("SELECT 1 AS one, TIMESTAMPTZ '2026-01-01 00:00:00+00' AS at")
    assert result.columns == ["one", "at"]
    assert result.collect() == result.fetchall() == [(1, datetime(2026, 1, 1, tzinfo=UTC))]
    assert tables.sql("CREATE TABLE x (a INT)").collect() == []
    with pytest.raises(dt.SetupError) as caught:
        _ = tables.spark
    assert caught.value.reason is dt.Reason.SPARK_MISSING


def test_pyspark_is_never_imported(tmp_path: Path) -> None:
    code = f"""
import sys, dynamic_tables as dt
with dt.connect("ducklake:{tmp_path / "lake"}") as tables:
    tables.sql("CREATE TABLE src AS SELECT 1 AS a")
    tables.create("copy", "SELECT a FROM src")
    tables.refresh()
assert not [name for name in sys.modules if name.startswith(("pyspark", "py4j", "delta"))]
"""
    subprocess.run([sys.executable, "-c", code], check=True)
