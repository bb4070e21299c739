"""What statements on DuckLake give: rows of the moment, and errors that name object and way out."""

from __future__ import annotations

import pytest

import dynamic_tables as dt
from dynamic_tables.store import QUERYABLE


@pytest.fixture(scope="module")
def lake(shared: dt.DynamicTables) -> dt.DynamicTables:
    shared.sql("CREATE TABLE orders (id INT, customer INT, amount INT)")
    shared.sql("INSERT INTO orders VALUES (1, 1, 5), (2, 1, 6)")
    shared.create("totals", "SELECT customer, count(*) AS n FROM orders GROUP BY customer")
    return shared


@pytest.mark.parametrize("name", sorted(QUERYABLE))
def test_the_store_can_be_queried(
    lake: dt.DynamicTables, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = lake.sql(f"SELECT * FROM {name}")
    assert found.fetchall() == found.fetchall() == found.limit(100).collect()
    found.show()
    assert found.columns[0] in capsys.readouterr().out
    counted = lake.sql(f"SELECT count(*) AS n FROM {name}").fetchall()
    assert counted == [(len(found.fetchall()),)]


@pytest.mark.parametrize("kind", ["INT", "TIMESTAMPTZ"])
def test_rows_are_those_of_the_moment(lake: dt.DynamicTables, kind: str) -> None:
    lake.sql(f"CREATE OR REPLACE TABLE moments (k INT, moment {kind})")
    lake.sql("INSERT INTO moments VALUES (1, NULL)")
    found = lake.sql("SELECT * FROM moments")
    other = lake.read("totals")
    lake.sql("INSERT INTO moments VALUES (2, NULL)")
    assert found.limit(10).fetchall() == [(1, None)]
    assert found.fetchall() == found.collect() == [(1, None)]
    assert str(found) == "k  moment\n1  NULL"
    assert found.where("k > 0").fetchall() == [(1, None), (2, None)]  # it asks again
    assert other.fetchall() == [(1, 2)]


def test_rows_are_asked_for_bit_by_bit(lake: dt.DynamicTables) -> None:
    found = lake.sql("SELECT range AS n, range % 2 AS n FROM range(10000) ORDER BY range DESC")
    assert found.columns == ["n", "n"]
    assert found.limit(2).limit(5).fetchall() == [(9999, 1), (9998, 0)]
    assert str(found.limit(1)) == "n     n\n9999  1"
    assert str(found).endswith("9980  0\n… the first 20 rows")
    assert found.limit(3).fetchall() == found.fetchall()[:3]
    assert len(found.fetchall()) == 10000
    assert found.limit(20000).fetchall() == found.fetchall()
    assert str(lake.sql("SET threads = 1")) == "done"


def test_statements_that_are_no_select_run_once(lake: dt.DynamicTables) -> None:
    lake.sql("CREATE TEMP TABLE kept (k INT)")
    found = lake.sql("INSERT INTO kept VALUES (1) RETURNING k")
    assert found.fetchall() == found.fetchall() == [(1,)]
    assert lake.sql("SELECT * FROM kept").fetchall() == [(1,)]
    lake.sql("DROP TABLE kept")
    pivoted = lake.sql("PIVOT orders ON id USING sum(amount) GROUP BY customer")
    assert pivoted.fetchall() == [(1, 5, 6)]


def test_where_that_cannot_be_asked_says_so(lake: dt.DynamicTables) -> None:
    for found in (lake.sql("SELECT * FROM refresh_history"), lake.read("totals")):
        with pytest.raises(dt.InvalidInput) as caught:
            found.where("nonsense > 1")
        assert "into the statement" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("query", "column"),
    [
        ("SELECT id + 1 FROM orders", "id + 1"),
        ("SELECT count(distinct customer) FROM orders", "count(distinct customer)"),
        ("SELECT id, (id + amount) * 2, 3 FROM orders", "(id + amount) * 2"),
        ("WITH o AS (SELECT id + 1 AS i FROM orders) SELECT -i FROM o", "-i"),
        ("(SELECT id, 'a,b' || id FROM orders) UNION ALL SELECT 1, 'x'", "'a,b' || id"),
        ("SELECT CASE WHEN id > 1 THEN 2 END\nFROM orders", "CASE WHEN id > 1 THEN 2 END"),
        ("SELECT (SELECT max(id) FROM orders) + 1 FROM orders", "(SELECT max(id) FROM orders) + 1"),
        ("FROM orders SELECT sum(id) OVER (ORDER BY id)", "sum(id) OVER (ORDER BY id)"),
        ("SELECT 7", "7"),
    ],
)
def test_the_column_without_a_name_is_quoted(
    lake: dt.DynamicTables, query: str, column: str
) -> None:
    with pytest.raises(dt.InvalidInput) as caught:
        lake.explain(query)
    assert (caught.value.reason, caught.value.about) == (dt.Reason.BAD_COLUMNS, column)


BROKEN = "SELECT id FROM orders GROUP"


@pytest.mark.parametrize(
    ("statement", "about", "line", "column"),
    [
        (f"CREATE DYNAMIC TABLE x AS {BROKEN}", "main.x", 1, 54),
        (f"CREATE OR ALTER DYNAMIC TABLE totals AS\n  {BROKEN};", "main.totals", 2, 30),
        (f"EXPLAIN CREATE DYNAMIC TABLE x AS {BROKEN}", "the query", 1, 62),
    ],
)
def test_the_place_of_an_error_is_in_the_statement(
    lake: dt.DynamicTables, statement: str, about: str, line: int, column: int
) -> None:
    with pytest.raises(dt.StatementError) as caught:
        lake.sql(statement)
    error = caught.value
    assert (error.reason, error.about) == (dt.Reason.SYNTAX, about)
    assert (error.line, error.column) == (line, column)
    assert "DuckDB" in str(error.hint)


def test_errors_of_a_query_name_the_table(lake: dt.DynamicTables) -> None:
    with pytest.raises(dt.StatementError) as broken:
        lake.create("x", BROKEN)
    assert (broken.value.about, broken.value.column) == ("main.x", len(BROKEN) + 1)
    with pytest.raises(dt.InvalidInput) as wrong:
        lake.create("x", "SELECT id + true AS i FROM orders")
    assert (wrong.value.reason, wrong.value.about) == (dt.Reason.ANALYSIS_FAILED, "main.x")
    with pytest.raises(dt.InvalidInput) as wrong:
        lake.explain("SELECT nope FROM orders")
    assert wrong.value.about == "the query"


@pytest.mark.parametrize("storage", ["IN_PLACE", "MERGE_ON_READ"])
def test_versions_that_are_not_there(lake: dt.DynamicTables, storage: str) -> None:
    name = f"versions_{storage.lower()}"
    lake.create(name, "SELECT id, count(*) AS n FROM orders GROUP BY id", storage=storage)
    newest = lake.show(name).build.version  # type: ignore[union-attr]
    asked = [
        lambda: lake.read(name, version=newest + 500),
        lambda: lake.read(name, version=0),
        lambda: lake.changes(name, newest + 500, newest + 510),
        lambda: lake.changes(name, newest, newest + 510),
        lambda: lake.changes(name, 0, 0),
    ]
    for ask in asked:
        with pytest.raises(dt.InvalidInput) as caught:
            ask()
        assert (caught.value.reason, caught.value.about) == (
            dt.Reason.HISTORY_GONE,
            f"main.{name}",
        )
        assert f"newest version is {newest}" in str(caught.value.hint)
    assert len(lake.read(name, version=newest).fetchall()) == 2
    lake.drop(name)


@pytest.mark.parametrize("versions", [(3, 2), (-1, 4), ("1", 2), (True, 2), (1, 2.5)])
def test_versions_that_cannot_be(lake: dt.DynamicTables, versions: tuple) -> None:
    with pytest.raises(dt.InvalidInput) as caught:
        lake.changes("totals", *versions)
    assert caught.value.reason is dt.Reason.BAD_VALUE


def test_what_comes_back_can_be_printed(tables: dt.DynamicTables) -> None:
    assert str(tables.refresh()) == "there are no dynamic tables to refresh"
    assert str(tables.graph()) == "no dynamic tables yet"
    tables.sql("CREATE TABLE o (k INT, word VARCHAR)")
    tables.sql("INSERT INTO o VALUES (1, '1')")
    made = str(tables.create("t", "SELECT k, sum(word::INT) AS s FROM o GROUP BY k"))
    version = tables.show("t").build.version  # type: ignore[union-attr]
    first, second, *_ = made.splitlines()
    assert first == "main.t: created"
    assert second.startswith(f"main.t@{version}: initialize full (FIRST_LOAD), +1, reads main.o@")
    assert str(tables.graph()) == "main.t reads main.o"
    assert str(tables.show("t")) == f"main.t@{version}: active"
    explained = str(tables.explain("t"))
    assert explained.startswith("main.t: can be refreshed by ")
    assert "\nnext refresh of main.t: " in explained
    assert str(tables.explain("SELECT k FROM o LIMIT 1")).splitlines()[0] == (
        "the query: can be refreshed by no_data, full"
    )
    assert str(tables.verify("t")) == f"✓ main.t@{version} equals its query"
    tables.sql("INSERT INTO o VALUES (2, '7')")
    (planned,) = tables.plan()
    assert str(planned) == "main.t: refresh merge (CHANGED), changed: main.o"
    assert ": refresh merge (CHANGED), +1, reads main.o@" in str(tables.refresh())
    tables.sql("INSERT INTO o VALUES (3, 'seven')")
    line, error, hint = str(tables.refresh(on_error="report")).splitlines()
    assert line.startswith("main.t: skip (QUERY_FAILED), ")
    assert error.startswith("  main.t: ")
    assert hint.startswith("    hint: ")
