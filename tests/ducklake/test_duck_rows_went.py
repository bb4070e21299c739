"""Queries that only append as long as rows only come: what is told beforehand is what is done."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace

import pytest
from duck_oracle import check

import dynamic_tables as dt
from dynamic_tables.lake.base import Sizes
from dynamic_tables.lake.duck.area import DuckArea
from dynamic_tables.lake.duck.lake import DuckLake
from dynamic_tables.render import console, explanation_text

MB = 2**20
TOLD = Sizes(
    changed_rows=1,
    changed_bytes=1000,
    source_bytes=50_000 * MB,
    stored_bytes=40_000 * MB,
    stored_rows=10,
)
QUERIES = {
    "kept": "SELECT k, v FROM fact WHERE v < 8",
    "joined": "SELECT f.k, d.name FROM fact AS f JOIN dim AS d ON d.k = f.k",
    "both": "SELECT k FROM fact UNION ALL SELECT k FROM dim",
}
GOES = {
    "deleted": "DELETE FROM fact WHERE k = 3",
    "updated": "UPDATE fact SET k = 20, v = 6 WHERE k = 3",
}
CANCELS = {
    "came_and_went": "INSERT INTO fact VALUES (7, 77); DELETE FROM fact WHERE v = 77",
    "not_read": "UPDATE fact SET v = 6 WHERE k = 3",
}
COMES = {
    "inserted": "INSERT INTO fact VALUES (5, 5)",
    "nothing_less": "INSERT INTO fact VALUES (5, 5); DELETE FROM fact WHERE k = 1000",
    "beside": "INSERT INTO dim VALUES (5, 'five')",
}


@pytest.fixture
def lake(tables: dt.DynamicTables) -> dt.DynamicTables:
    tables.sql("CREATE TABLE fact AS SELECT range::INT AS k, range::INT AS v FROM range(10)")
    tables.sql("CREATE TABLE dim AS SELECT range::INT AS k, 'd' || range AS name FROM range(10)")
    return tables


def run(tables: dt.DynamicTables, statements: str) -> None:
    for statement in statements.split(";"):
        tables.sql(statement)


def told(tables: dt.DynamicTables, name: str) -> set[tuple[str | None, str | None]]:
    """What plan and explain say, and then the refresh and its history: strategies, and why not
    `append`."""
    (planned,) = tables.plan(name)
    explained = tables.explain(name).next_refresh
    record = tables.refresh(name)[name]
    found = [planned, explained, record, tables.history(name)[0]]
    check(tables, name)
    answers = [one.as_json() for one in found if one is not None]
    assert len(answers) == len(found)
    return {(one["strategy"], one["rejected"].get("append")) for one in answers}


@pytest.mark.parametrize("change", GOES)
@pytest.mark.parametrize("name", QUERIES)
def test_rows_that_went_are_told_beforehand(lake: dt.DynamicTables, name: str, change: str) -> None:
    lake.create(name, QUERIES[name])
    run(lake, GOES[change])
    assert told(lake, name) == {("rows", "ROWS_WENT")}


@pytest.mark.parametrize("change", CANCELS)
def test_only_reading_tells_that_they_cancel(lake: dt.DynamicTables, change: str) -> None:
    lake.create("joined", QUERIES["joined"])
    run(lake, CANCELS[change])
    assert lake.plan("joined")[0].strategy == "rows"
    record = lake.refresh("joined")["joined"]
    assert (record.strategy, record.reason) == ("no_data", "NET_EMPTY")
    assert record.rejected[dt.Strategy.APPEND] == "ROWS_WENT"


@pytest.mark.parametrize("change", COMES)
def test_rows_that_only_come_are_appended(lake: dt.DynamicTables, change: str) -> None:
    lake.create("joined", QUERIES["joined"])
    run(lake, COMES[change])
    assert told(lake, "joined") == {("append", None)}


@pytest.mark.parametrize("change", ["deleted", "updated"])
def test_the_limit_binds_rows_that_are_looked_for(
    lake: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Of a large table, one row goes: all stored ones would be read to find it."""
    lake.create("kept", QUERIES["kept"], max_scan_bytes=100 * MB)
    monkeypatch.setattr(DuckLake, "sizes", lambda *_: TOLD)
    run(lake, COMES["inserted"])
    assert told(lake, "kept") == {("append", None)}
    monkeypatch.setattr(DuckLake, "sizes", lambda *_: replace(TOLD, only_adds=False))
    run(lake, GOES[change])
    (planned,) = lake.plan("kept")
    explained = lake.explain("kept").next_refresh
    refused = lake.refresh("kept", on_error="report")["kept"]
    assert explained is not None
    assert {planned.reason, explained.reason, refused.reason} == {"SCAN_LIMIT"}
    lake.alter("kept", max_scan_bytes=49_000 * MB)
    assert told(lake, "kept") == {("rows", "ROWS_WENT")}
    (stored,) = [e for e in lake.history("kept")[0].estimates if e.strategy == "rows"]
    assert stored.bytes == TOLD.stored_bytes + TOLD.changed_bytes


def test_automatically_what_is_cheaper_is_taken(
    lake: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.create("kept", QUERIES["kept"])
    small = replace(TOLD, source_bytes=1000 * MB, only_adds=False)
    monkeypatch.setattr(DuckLake, "sizes", lambda *_: small)
    run(lake, GOES["deleted"])
    assert told(lake, "kept") == {("full", "ROWS_WENT")}


def test_explain_tells_the_query_and_the_next_refresh_apart(lake: dt.DynamicTables) -> None:
    """The query could be appended; this time it is not."""
    lake.create("kept", QUERIES["kept"])
    run(lake, GOES["deleted"])
    explained = lake.explain("kept")
    assert explained.possible == "no_data, append, rows, full"
    stream = io.StringIO()
    console(stream).print(explanation_text(explained))
    assert "append (ROWS_WENT)" in stream.getvalue()


def test_append_can_be_asked_for_and_looks_for_rows_that_went(lake: dt.DynamicTables) -> None:
    lake.create("kept", QUERIES["kept"])
    run(lake, GOES["deleted"])
    record = lake.refresh("kept", strategy="append")["kept"]
    assert (record.strategy, record.rejected[dt.Strategy.APPEND]) == ("rows", "ROWS_WENT")
    check(lake, "kept")


def test_what_parents_pass_on(lake: dt.DynamicTables) -> None:
    """Rows only come where they do in the parent."""
    lake.create("kept", QUERIES["kept"])
    lake.create("below", "SELECT k FROM kept")

    def strategies() -> dict[str, str | None]:
        planned = {row.table.name: row.strategy for row in lake.plan()}
        done = {record.table.name: record.strategy for record in lake.refresh().records}
        assert planned == done
        check(lake)
        return planned

    run(lake, COMES["inserted"])
    assert strategies() == {"kept": "append", "below": "append"}
    run(lake, GOES["deleted"])
    assert strategies() == {"kept": "rows", "below": "rows"}


def test_groups_of_a_parent_in_parts_become_others(lake: dt.DynamicTables) -> None:
    """It only ever appends; what readers see of it changes all the same."""
    query = "SELECT v % 2 AS odd, count(*) AS n FROM fact GROUP BY v % 2"
    lake.create("parts", query, storage="MERGE_ON_READ")
    lake.create("below", "SELECT odd, n FROM parts")
    run(lake, COMES["inserted"])
    assert lake.refresh("parts")["parts"].strategy == "fold"
    assert told(lake, "below") == {("rows", "ROWS_WENT")}


@pytest.fixture
def unforeseen(monkeypatch: pytest.MonkeyPatch) -> Callable[[Sizes | None], None]:
    """Nobody tells that rows went; what reads stored rows counts."""

    def told(sizes: Sizes | None) -> None:
        monkeypatch.setattr(DuckLake, "rows_only_come", lambda *_: None)
        monkeypatch.setattr(DuckLake, "sizes", lambda *_: sizes)

    return told


def test_rows_that_are_found_on_the_way(
    lake: dt.DynamicTables, unforeseen: Callable[[Sizes | None], None]
) -> None:
    lake.create("kept", QUERIES["kept"])
    unforeseen(None)
    run(lake, GOES["deleted"])
    assert lake.plan("kept")[0].strategy == "append"
    record = lake.refresh("kept")["kept"]
    assert (record.strategy, record.reason) == ("rows", "CHANGED")
    assert record.rejected[dt.Strategy.APPEND] == "ROWS_WENT"
    assert (record.work.rows_inserted, record.work.rows_deleted) == (0, 1)
    check(lake, "kept")


def test_the_limit_binds_before_stored_rows_are_read(
    lake: dt.DynamicTables,
    unforeseen: Callable[[Sizes | None], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lake.create("kept", QUERIES["kept"], max_scan_bytes=100 * MB)
    unforeseen(TOLD)
    run(lake, GOES["deleted"])
    read: list[int] = []
    monkeypatch.setattr(DuckArea, "_check_present", lambda *_: read.append(1))
    refused = lake.refresh("kept", on_error="report")["kept"]
    assert (refused.reason, read) == ("SCAN_LIMIT", [])
    lake.alter("kept", max_scan_bytes=49_000 * MB)
    assert lake.refresh("kept")["kept"].strategy == "rows"
    assert read == [1]
    check(lake, "kept")
