"""DROP where the lake does not let go: what is still there can be used, and dropped again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import pytest

import dynamic_tables as dt
from dynamic_tables.definition import Definition

ALL = {"main.parent", "main.brother", "main.child", "main.grandchild"}
GROUPED = "SELECT id, sum(amount) AS n FROM orders GROUP BY id"
OURS = dt.RefreshError("not today", reason=dt.Reason.NO_PERMISSION, about="main.child")
AWAY = dt.SetupError("it is away", reason=dt.Reason.STORE_BROKEN)


@pytest.fixture
def tables(open_lake: Callable[..., dt.DynamicTables]) -> dt.DynamicTables:
    """Two children of one table, and a child of one of them."""
    opened = open_lake()
    opened.sql("CREATE TABLE orders AS SELECT 1 AS id, 10 AS amount")
    opened.create("parent", GROUPED)
    opened.create("brother", "SELECT n FROM parent")
    opened.create("child", "SELECT n FROM parent", target_lag="1 hour")
    opened.create("grandchild", "SELECT sum(n) AS n FROM child")
    return opened


@pytest.fixture
def refuse(
    tables: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, BaseException], None]:
    """Let the lake not let go of `child`."""

    def refuse_(method: str, error: BaseException) -> None:
        act = getattr(tables.lake, method)

        def refuses(definition: Definition) -> Any:
            if definition.name.name == "child":
                raise error
            return act(definition)

        monkeypatch.setattr(tables.lake, method, refuses)

    return refuse_


def raising(error: BaseException) -> Callable[..., Any]:
    def raises(*_args: object) -> None:
        raise error

    return raises


def names(tables: dt.DynamicTables) -> set[str]:
    return {str(state.definition.name) for state in tables.list()}


def check_nothing_left(tables: dt.DynamicTables) -> None:
    """No dynamic table; in the lake the source alone, and none of our definitions."""
    assert names(tables) == set()
    assert tables.rebuild() == []
    ours = "database_name = current_database() AND schema_name = current_schema()"
    found = tables.sql(
        f"SELECT table_name FROM duckdb_tables() WHERE {ours} "
        f"UNION ALL SELECT view_name FROM duckdb_views() WHERE {ours}"
    )
    assert found.fetchall() == [("orders",)]


@pytest.mark.parametrize("error", [OURS, duckdb.IOException("not today")], ids=["ours", "DuckDB's"])
@pytest.mark.parametrize("method", ["unpublish", "erase"])
def test_what_the_lake_keeps_is_told_and_dropped_again(
    tables: dt.DynamicTables,
    refuse: Callable[[str, BaseException], None],
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    error: BaseException,
) -> None:
    before = [tables.show(name) for name in ("child", "parent")]
    refuse(method, error)
    with pytest.raises(dt.DynamicTablesError) as caught:
        tables.drop("parent", cascade=True)
    monkeypatch.undo()
    left = names(tables)
    assert left >= {"main.child", "main.parent"}
    assert "main.grandchild" not in left
    assert (caught.value.about, caught.value.message) == ("main.child", "not today")
    told = (
        (caught.value.hint or "").removeprefix("dropped: ").removesuffix("; repeat the statement")
    )
    gone, _, there = told.partition("; still there: ")
    assert set(gone.split(", ")) == ALL - left
    assert set(there.split(", ")) == left
    assert [tables.show(name) for name in ("child", "parent")] == before
    tables.sql("INSERT INTO orders VALUES (1, 5)")
    assert tables.refresh("child", upstream=True).ok
    assert tables.read("child").fetchall() == tables.sql("FROM child").fetchall() == [(15,)]
    assert {str(name) for name in tables.drop("parent", cascade=True)} == left
    check_nothing_left(tables)


def test_an_interrupted_drop_can_be_repeated(
    tables: dt.DynamicTables,
    refuse: Callable[[str, BaseException], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refuse("erase", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt) as caught:
        tables.drop("parent", cascade=True)
    monkeypatch.undo()
    assert "main.child" in caught.value.__notes__[0]
    tables.drop("parent", cascade=True)
    check_nothing_left(tables)


def test_what_cannot_be_put_back_is_declared_again_by_a_rebuild(
    tables: dt.DynamicTables,
    refuse: Callable[[str, BaseException], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refuse("unpublish", OURS)
    monkeypatch.setattr(tables.store, "put_back", raising(AWAY))
    with pytest.raises(dt.RefreshError) as caught:
        tables.drop("parent", cascade=True)
    monkeypatch.undo()
    hint = caught.value.hint or ""
    assert "still in the lake: main.child" in hint
    assert "(it is away); `dynamic-tables doctor --rebuild`" in hint
    tables.rebuild()
    assert names(tables) >= {"main.child", "main.parent"}
    tables.drop("parent", cascade=True)
    check_nothing_left(tables)


@pytest.mark.parametrize("away", ["unpublish", "delete_tables"])
def test_a_create_that_cannot_be_taken_back_tells_its_own_failure_too(
    tables: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch, away: str
) -> None:
    part = tables.lake if away == "unpublish" else tables.store
    monkeypatch.setattr(part, away, raising(AWAY))
    with pytest.raises(dt.RefreshFailed) as caught:
        tables.create("failing", "SELECT error('no') AS n FROM orders")
    monkeypatch.undo()
    assert caught.value.reason is dt.Reason.QUERY_FAILED
    told = "nor could the table be taken back (it is away); DROP DYNAMIC TABLE main.failing"
    assert caught.value.hint == told
    tables.sql("DROP DYNAMIC TABLE main.failing")
    assert names(tables) == ALL
