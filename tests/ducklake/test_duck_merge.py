"""`merge`: new aggregates from stored ones and changes, and the columns hidden for it."""

from __future__ import annotations

from collections.abc import Callable

import duckdb
import pytest
from duck_oracle import check

import dynamic_tables as dt
from dynamic_tables.lake.duck.deltas import DuckLeaves

SOURCE = "CREATE TABLE src (k INT, v INT, x DOUBLE, flag BOOLEAN)"


@pytest.fixture
def lake(tables: dt.DynamicTables) -> dt.DynamicTables:
    tables.sql(SOURCE)
    tables.sql("INSERT INTO src VALUES (1, 5, 0.5, true), (1, 7, 1.5, false), (2, 3, NULL, NULL)")
    tables.sql("INSERT INTO src VALUES (NULL, 4, 2.5, true), (3, NULL, NULL, true)")
    return tables


def merged(tables: dt.DynamicTables, name: str) -> None:
    """The next refresh merges, and the table equals its query."""
    record = tables.refresh(name)[name]
    assert (record.strategy, record.reason) == ("merge", "CHANGED")
    check(tables, name)


def columns(tables: dt.DynamicTables, name: str) -> list[str]:
    return [row[0] for row in tables.sql(f"DESCRIBE {name}").collect()]


def test_columns_of_the_query_itself_may_be_enough(lake: dt.DynamicTables) -> None:
    lake.create("own", "SELECT k, count(*) AS n, count(v) AS c, sum(v) AS s FROM src GROUP BY k")
    assert lake.show("own").definition.auxiliary is None
    lake.sql("UPDATE src SET k = 2 WHERE v = 5")
    merged(lake, "own")


def test_what_is_missing_is_stored_in_hidden_columns(lake: dt.DynamicTables) -> None:
    lake.create("sums", "SELECT k, sum(v) AS s, avg(v) AS a FROM src GROUP BY k")
    assert columns(lake, "sums") == ["k", "s", "a"]
    assert columns(lake, "sums__ivm") == ["k", "s", "a", "_ivm_count_1", "_ivm_count_2"]
    lake.sql("INSERT INTO src VALUES (2, 8, 0, true), (9, 1, 0, true)")
    merged(lake, "sums")
    assert [column.name for column in lake.show("sums").definition.columns] == ["k", "s", "a"]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, sum(v) AS s FROM src GROUP BY k",
        'SELECT k AS "the group", sum(v) AS "select" FROM src GROUP BY k',
        "SELECT sum(v) AS s, min(v) AS least, bool_and(flag) AS every_one FROM src",
        "SELECT sum(v) AS s FROM src GROUP BY k, flag",
        "SELECT k, avg(v) AS a FROM src GROUP BY k HAVING count(*) > 1 OR sum(v) < 4",
        "SELECT k % 2 AS odd, sum(v) FILTER (WHERE flag) AS s FROM src GROUP BY 1",
        "SELECT k, max(v) - min(v) AS spread FROM src GROUP BY ALL",
        "SELECT a.k, sum(b.v) AS s FROM src a LEFT JOIN src b ON a.v = b.k GROUP BY a.k",
        "WITH few AS (SELECT * FROM src WHERE flag) SELECT k, sum(v) AS s FROM few GROUP BY k",
        (
            "SELECT n, sum(s) AS t FROM (SELECT k, count(*) AS n, sum(v) AS s FROM src GROUP BY k)"
            " GROUP BY n"
        ),
    ],
)
def test_every_kind_of_change(lake: dt.DynamicTables, query: str) -> None:
    """Inserts, updates, moves between groups, the last row of a group, the last value of a sum."""
    lake.create("t", query)
    for change in (
        "INSERT INTO src VALUES (2, 9, 1, false), (7, 7, 7, true), (NULL, NULL, NULL, NULL)",
        "UPDATE src SET k = 2 WHERE k = 1 AND v = 5",
        "DELETE FROM src WHERE k = 7",
        "UPDATE src SET v = NULL WHERE k = 1",
        "DELETE FROM src WHERE v = 3",
        "INSERT INTO src SELECT * FROM src",
        "DELETE FROM src",
    ):
        lake.sql(change)
        assert lake.refresh()["t"].strategy in ("merge", "no_data")
        check(lake)


def test_a_sum_of_no_values_is_null_again(lake: dt.DynamicTables) -> None:
    lake.create("sums", "SELECT k, sum(v) AS s FROM src GROUP BY k")
    lake.sql("UPDATE src SET v = NULL WHERE k = 2")
    merged(lake, "sums")
    assert lake.sql("SELECT s FROM sums WHERE k = 2").collect() == [(None,)]


def test_only_groups_that_need_their_rows_read_the_source(
    lake: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a source that cannot be read, merging goes on until a group needs its rows."""
    lake.create("most", "SELECT k, max(v) AS m, sum(x) AS s FROM src GROUP BY k")
    unreadable = "(FROM src WHERE error('the source was read') IS NULL)"
    monkeypatch.setattr(DuckLeaves, "rows", lambda *_: unreadable)
    lake.sql("INSERT INTO src VALUES (1, 6, 0.25, true), (2, 9, 0.25, true)")
    merged(lake, "most")
    lake.sql("DELETE FROM src WHERE k = 3")  # no value went: its max and its sum are NULL
    merged(lake, "most")
    for change in ("DELETE FROM src WHERE v = 9", "DELETE FROM src WHERE v = 6"):
        lake.sql(change)  # the greatest of its group; a summand of a floating sum
        record = lake.refresh()["most"]
        assert (record.strategy, record.reason) == ("full", "CHANGES_FAILED")
        check(lake)


def test_changes_that_cannot_be_read_just_now_are_read_later(
    lake: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A storage that does not answer would not answer a recomputation either, which reads more."""

    def timed_out(*_args: object) -> str:
        raise duckdb.HTTPException("HTTP Error: Timeout was reached")

    lake.create("sums", "SELECT k, sum(v) AS s FROM src GROUP BY k")
    lake.sql("INSERT INTO src VALUES (1, 6, 0.25, true)")
    with monkeypatch.context() as patch:
        patch.setattr(DuckLeaves, "changes", timed_out)
        failed = lake.refresh("sums", on_error="report")["sums"]
    assert (failed.outcome, failed.reason) == ("failed", "ENGINE_FAILED")
    merged(lake, "sums")


def test_auxiliary_columns_can_be_forbidden(lake: dt.DynamicTables) -> None:
    lake.create("sums", "SELECT k, sum(v) AS s FROM src GROUP BY k", auxiliary_columns="NONE")
    assert lake.show("sums").definition.auxiliary is None
    assert lake.explain("sums").strategies[dt.Strategy.MERGE] == "NO_STATE"
    lake.sql("INSERT INTO src VALUES (1, 1, 1, true)")
    assert lake.refresh()["sums"].strategy == "keys"
    check(lake)


def test_no_columns_are_hidden_where_they_do_not_help(lake: dt.DynamicTables) -> None:
    lake.create("distinct_values", "SELECT k, count(DISTINCT v) AS n FROM src GROUP BY k")
    lake.create("plain", "SELECT k, v FROM src")
    assert all(state.definition.auxiliary is None for state in lake.list())
    assert lake.explain("distinct_values").strategies[dt.Strategy.MERGE] == "NO_INVERSE"


def test_children_see_the_table_and_not_what_it_hides(lake: dt.DynamicTables) -> None:
    lake.create("frequent", "SELECT k, sum(v) AS s FROM src GROUP BY k HAVING count(*) > 1")
    lake.create("copied", "SELECT * FROM frequent")
    lake.create("beside", "SELECT f.s, c.k FROM frequent f LEFT JOIN copied c ON f.k = c.k")
    assert columns(lake, "copied") == ["k", "s"]
    for change in (
        "INSERT INTO src VALUES (2, 1, 1, true), (5, 5, 5, true)",  # 2 appears, 5 stays hidden
        "DELETE FROM src WHERE v = 7",  # 1 disappears
        "UPDATE src SET k = 5 WHERE k = 3",
    ):
        lake.sql(change)
        lake.refresh()
        check(lake)
    assert {record.strategy for record in lake.history("copied")[:3]} <= {"append", "rows"}


def test_a_change_of_hidden_columns_alone_is_no_change_for_children(lake: dt.DynamicTables) -> None:
    lake.create("most", "SELECT k AS copies, max(v) AS m FROM src GROUP BY k")
    lake.create("copied", "SELECT * FROM most")
    before = lake.show("most").build
    assert before is not None
    lake.sql("INSERT INTO src VALUES (1, 6, 0, true)")
    report = lake.refresh()
    assert report["most"].strategy == "merge"
    assert (report["copied"].strategy, report["copied"].reason) == ("no_data", "NET_EMPTY")
    after = lake.show("most").build
    assert after is not None
    assert lake.changes("most", before.version + 1, after.version).collect() == []
    check(lake)


def test_old_versions_and_changes_show_the_declared_columns(lake: dt.DynamicTables) -> None:
    lake.create("frequent", "SELECT k, sum(v) AS s FROM src GROUP BY k HAVING count(*) > 1")
    first = lake.show("frequent").build
    assert first is not None
    lake.sql("INSERT INTO src VALUES (2, 1, 1, true), (5, 5, 5, true)")
    lake.refresh()
    second = lake.show("frequent").build
    assert second is not None
    assert lake.read("frequent", version=first.version).collect() == [(1, 12)]
    assert sorted(lake.read("frequent").collect()) == [(1, 12), (2, 4)]
    changed = lake.changes("frequent", first.version + 1, second.version).collect()
    assert [row[:3] for row in changed] == [(2, 4, "insert")]


def test_a_renamed_parent(lake: dt.DynamicTables) -> None:
    lake.create("sums", "SELECT k, sum(v) AS s FROM src GROUP BY k")
    lake.create("most", "SELECT max(s) AS m FROM sums")
    lake.sql("ALTER DYNAMIC TABLE sums RENAME TO totals")
    assert columns(lake, "totals") == ["k", "s"]
    assert {state.definition.name.name for state in lake.list()} == {"totals", "most"}
    lake.sql("INSERT INTO src VALUES (1, 100, 1, true)")
    lake.refresh()
    check(lake)


def test_a_parent_may_change_its_form(lake: dt.DynamicTables) -> None:
    hidden = "SELECT k, sum(v) AS s FROM src GROUP BY k"
    plain = "SELECT k, v AS s FROM src WHERE v > 3"
    lake.create("parent", hidden)
    lake.create("child", "SELECT max(s) AS m, count(*) AS n, count(s) AS c FROM parent")
    for query in (plain, hidden, hidden + " HAVING count(*) > 1"):
        lake.create("parent", query, or_alter=True)
        for change in ("INSERT INTO src VALUES (1, 50, 0, true)", "DELETE FROM src WHERE k = 2"):
            lake.refresh()
            check(lake, "parent")
            assert lake.verify("child").ok
            lake.sql(change)


def test_a_child_may_be_declared_before_its_parent_is_loaded(lake: dt.DynamicTables) -> None:
    lake.create("parent", "SELECT k, sum(v) AS s FROM src GROUP BY k", initialize="ON_SCHEDULE")
    lake.create("child", "SELECT max(s) AS m FROM parent", initialize="ON_SCHEDULE")
    lake.refresh()
    check(lake)
    lake.sql("INSERT INTO src VALUES (1, 50, 0, true)")
    lake.refresh()
    check(lake)


def test_drop_leaves_nothing(lake: dt.DynamicTables) -> None:
    names = "SELECT table_name FROM duckdb_tables() WHERE database_name = 'small_lake' UNION ALL"
    names += " SELECT view_name FROM duckdb_views() WHERE database_name = 'small_lake'"
    before = sorted(lake.sql(names).collect())
    lake.create("sums", "SELECT k, sum(v) AS s FROM src GROUP BY k")
    lake.drop("sums")
    assert sorted(lake.sql(names).collect()) == before


def test_a_name_that_somebody_took_meanwhile(lake: dt.DynamicTables) -> None:
    lake.create("sums", "SELECT k, sum(v) AS s FROM src GROUP BY k", initialize="ON_SCHEDULE")
    lake.sql("CREATE VIEW sums AS SELECT 1 AS one")
    record = lake.refresh(on_error="report")["sums"]
    assert record.reason == "ALREADY_EXISTS"
    assert lake.sql("FROM sums").collect() == [(1,)]
    lake.sql("DROP VIEW sums")
    lake.refresh()
    check(lake)


def test_the_lake_is_opened_again(open_lake: Callable[..., dt.DynamicTables]) -> None:
    first = open_lake()
    first.sql(SOURCE)
    first.create("sums", "SELECT k, sum(v) AS s FROM src GROUP BY k HAVING count(*) > 1")
    first.close()
    again = open_lake()
    again.sql("INSERT INTO src VALUES (1, 2, 3, true), (1, 2, 3, true), (2, 1, 1, true)")
    merged(again, "sums")
    assert again.sql("FROM sums").collect() == [(1, 4)]
