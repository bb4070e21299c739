"""Traps: queries and changes for which a simpler rule gives wrong rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from duck_oracle import check

import dynamic_tables as dt
from dynamic_tables.compiler import duck_bags as bags
from dynamic_tables.model import Strategy


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dt.DynamicTables]:
    folder: Path = tmp_path_factory.mktemp("traps") / "lake"
    with dt.connect(f"ducklake:{folder}", say=lambda _: None) as tables:
        tables.sql("SET threads = 1")
        yield tables


def run(lake: dt.DynamicTables, *statements: str) -> None:
    for statement in statements:
        lake.sql(statement)


def test_sums_of_what_has_no_sign(lake: dt.DynamicTables) -> None:
    """-(5::UINTEGER) is 4294967291."""
    run(lake, "CREATE TABLE u (k INT, x UINTEGER, b BOOLEAN)")
    run(lake, "INSERT INTO u VALUES (1, 5, true), (1, 7, true), (2, NULL, NULL)")
    lake.create("unsigned", "SELECT k, sum(x) AS s, sum(b) AS t, count(*) AS n FROM u GROUP BY k")
    run(lake, "DELETE FROM u WHERE x = 5", "INSERT INTO u VALUES (2, 3, false)")
    assert lake.refresh("unsigned")["unsigned"].strategy == "merge"
    check(lake, "unsigned")


def test_equal_is_not_the_same(lake: dt.DynamicTables) -> None:
    """1 equals '1' and '01', which are not equal."""
    run(lake, "CREATE TABLE l (i INT, z INT)", "INSERT INTO l VALUES (1, 1)")
    run(lake, "CREATE TABLE x (code VARCHAR, y INT)", "INSERT INTO x VALUES ('1', 100)")
    run(lake, "CREATE TABLE rr (code2 VARCHAR, w INT)")
    lake.create(
        "through",
        "SELECT x.y, l.z, rr.w FROM l LEFT JOIN x ON x.code = l.i JOIN rr ON l.i = rr.code2",
    )
    lake.create("tied", "SELECT l.i, (SELECT sum(w) FROM rr WHERE rr.code2 = l.i) AS s FROM l")
    run(lake, "INSERT INTO rr VALUES ('1', 2)")
    lake.refresh("through", "tied")
    run(lake, "INSERT INTO rr VALUES ('01', 3)")
    lake.refresh("through", "tied")
    check(lake, "through", "tied")
    assert lake.sql("SELECT s FROM tied").collect() == [(5,)]


def test_a_column_that_comes_back_is_another_one(lake: dt.DynamicTables) -> None:
    run(lake, "CREATE TABLE c (a INT, b INT)", "INSERT INTO c VALUES (1, 10), (2, 20)")
    lake.create("of_columns", "SELECT a, b FROM c")
    run(lake, "ALTER TABLE c DROP COLUMN b", "ALTER TABLE c ADD COLUMN b INT")
    lake.refresh("of_columns")
    check(lake, "of_columns")
    run(lake, "UPDATE c SET b = 7")
    lake.refresh("of_columns")
    for old, new in (("a", "h"), ("b", "a"), ("h", "b")):
        run(lake, f"ALTER TABLE c RENAME COLUMN {old} TO {new}")
    lake.refresh("of_columns")
    check(lake, "of_columns")


def test_what_sqlglot_would_write_otherwise(lake: dt.DynamicTables) -> None:
    """->> '$.a.b' is another key than ->> 'a.b'."""
    run(lake, "CREATE TABLE j (id INT, doc JSON)")
    query = "SELECT id, json_extract_string(doc, 'a.b') AS x, doc->>'a.b' AS y FROM j"
    lake.create("documents", query)
    run(lake, """INSERT INTO j VALUES (1, '{"a.b": 22, "a": {"b": 11}}')""")
    lake.refresh("documents")
    check(lake, "documents")
    run(lake, "SET default_null_order = 'nulls_first'")
    try:
        run(lake, "CREATE TABLE o (k INT, v INT)", "INSERT INTO o VALUES (1, NULL), (1, 2)")
        lake.create(
            "ordered",
            "SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v NULLS LAST) AS n FROM o",
        )
        run(lake, "INSERT INTO o VALUES (1, 3), (1, NULL)")
        lake.refresh("ordered")
        check(lake, "ordered")
    finally:
        run(lake, "RESET default_null_order")


def test_names_that_are_data(lake: dt.DynamicTables) -> None:
    run(lake, "CREATE TABLE n (Big INT, s STRUCT(Inner_ INT))")
    lake.create("named", "SELECT to_json({'Big': Big}) AS j, s.Inner_ AS i FROM n")
    run(lake, "INSERT INTO n VALUES (1, {'Inner_': 2})")
    lake.refresh("named")
    check(lake, "named")


COUNTED = {  # queries whose number of rows, or value over no rows, is easily mistaken
    "having_alone": "SELECT 1 AS x FROM h HAVING true",
    "having_below": "SELECT x FROM (SELECT 2 AS x FROM h HAVING count(*) > 1)",
    "exists_having": "SELECT a FROM h WHERE EXISTS (SELECT 1 FROM hs HAVING true)",
    "count_if_of_none": "SELECT a, (SELECT count_if(d > 1) FROM hs WHERE hs.a = h.a) AS x FROM h",
    "subscripts": "SELECT a FROM (SELECT a, generate_subscripts(l, 1) AS x FROM h)",
    "splits": "SELECT count(*) AS n FROM (SELECT regexp_split_to_table(t, ',') AS x FROM h)",
    "folded": "SELECT n FROM (SELECT arg_max_nulls_last(a, a) AS x, 1 AS n FROM h)",
    "weighted": "SELECT n FROM (SELECT wavg(a, a) AS x, 1 AS n FROM h)",
    "one_is_enough": "SELECT a FROM h WHERE EXISTS (SELECT d FROM hs WHERE hs.a = h.a LIMIT 1)",
}


def test_how_many_rows_there_are(lake: dt.DynamicTables) -> None:
    run(lake, "CREATE TABLE h (a INT, l INT[], t VARCHAR)", "CREATE TABLE hs (a INT, d INT)")
    run(
        lake, "INSERT INTO h VALUES (1, [1, 2], 'a,b'), (2, [], '')", "INSERT INTO hs VALUES (1, 5)"
    )
    for name, query in COUNTED.items():
        lake.create(name, query)
    changes = (
        ("INSERT INTO h VALUES (3, [7, 8], 'c,d,e'), (4, [], NULL)", "DELETE FROM hs"),
        ("DELETE FROM h WHERE a < 3", "INSERT INTO hs VALUES (3, 0), (4, 7)"),
        ("DELETE FROM h",),
    )
    for statements in changes:
        run(lake, *statements)
        report = lake.refresh(*COUNTED)
        check(lake, *COUNTED)
        assert {record.reason for record in report.records} <= {"CHANGED", "NET_EMPTY", "NOT_MOVED"}


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT a, row_number() OVER (PARTITION BY a) AS n FROM v", "NON_DETERMINISTIC"),
        ("SELECT a, lag(b IGNORE NULLS) OVER (PARTITION BY a) AS n FROM v", "NON_DETERMINISTIC"),
        ("SELECT any_value(b) AS x FROM v", "NON_DETERMINISTIC"),
        ("SELECT t COLLATE NOCASE AS k, count(*) AS n FROM v GROUP BY 1", "NON_DETERMINISTIC"),
        ("SELECT json_group_array(b) AS x FROM v", "NON_DETERMINISTIC"),
    ],
)
def test_what_may_differ_between_runs(lake: dt.DynamicTables, query: str, reason: str) -> None:
    run(lake, "CREATE TABLE IF NOT EXISTS v (a INT, b INT, t VARCHAR)")
    assert lake.explain(query).strategies[Strategy.ROWS] == reason


@pytest.mark.parametrize(("other", "differs"), [("inf", 2), ("nan", 2), ("1.0000000000000002", 0)])
def test_infinity_is_no_rounding(other: str, differs: int) -> None:
    with duckdb.connect() as db:
        rows = f"(1, 1.0, 1), (1, '{other}'::DOUBLE, -1)"
        db.execute(f"CREATE TABLE changes AS SELECT * FROM (VALUES {rows}) v(k, s, {bags.COPIES})")
        left = bags.without_rounding("changes", ["k", "s"], ["s"])
        assert len(db.execute(left).fetchall()) == differs
