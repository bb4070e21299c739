"""Only real changes are written and passed on: DEDUPLICATION, and a chain of tables."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from duck_oracle import check

import dynamic_tables as dt

Open = Callable[..., dt.DynamicTables]
COPY = "SELECT id, v % 10 AS digit FROM src"
TOUCHED = "UPDATE src SET v = v + 10"  # every row, and no row of the table
CHANGED = "UPDATE src SET v = v + 1 WHERE id = 1"


@pytest.fixture
def source(open_lake: Open) -> dt.DynamicTables:
    tables = open_lake()
    tables.sql("CREATE TABLE src AS SELECT range AS id, range AS v FROM range(20)")
    return tables


def moved(record: dt.RefreshRecord) -> tuple[str, int | None, int | None]:
    return str(record.strategy), record.work.rows_inserted, record.work.rows_deleted


WAYS = ("TRUE", "FALSE", "AUTO")


def test_deduplication_of_recomputed_tables(source: dt.DynamicTables) -> None:
    """AUTO compares if somebody reads the table: a child would look at rows that did not change."""
    for way in WAYS:
        for name in (f"alone_{way}", f"read_{way}"):
            source.create(name, COPY, refresh_mode="FULL", deduplication=way)
        source.create(f"child_{way}", f"SELECT digit, count(*) AS n FROM read_{way} GROUP BY digit")
    before = {state.definition.name.name: state.build for state in source.list()}
    rewritten = {"alone_FALSE", "alone_AUTO", "read_FALSE"}
    compared = {"alone_TRUE", "read_TRUE", "read_AUTO"}
    source.sql(TOUCHED)
    report = source.refresh()
    assert {moved(report[name]) for name in rewritten} == {("full", 20, 20)}
    for name in compared:
        build = before[name]
        assert build is not None
        assert moved(report[name]) == ("no_data", 0, 0)
        assert (report[name].reason, report[name].version) == ("NET_EMPTY", build.version)
    reasons = {way: report[f"child_{way}"].reason for way in WAYS}
    assert reasons == {"TRUE": "NOT_MOVED", "FALSE": "NET_EMPTY", "AUTO": "NOT_MOVED"}
    source.sql(CHANGED)
    report = source.refresh()
    assert {moved(report[name]) for name in rewritten} == {("full", 20, 20)}
    assert {moved(report[name]) for name in compared} == {("full", 1, 1)}
    children = {moved(report[f"child_{way}"])[1:] for way in WAYS}
    assert children == {(2, 2)}  # the row went from one group to another
    check(source)


def test_a_chain_passes_on_only_real_changes(source: dt.DynamicTables) -> None:
    """Every row of the source is touched; from table to table fewer are changed by it."""
    source.create("a", "SELECT id, v // 10 AS ten FROM src")
    source.create("b", "SELECT id % 5 AS k, max(ten) AS high FROM a GROUP BY id % 5")
    source.create("c", "SELECT count(*) AS n, max(high) AS high FROM b")
    source.sql("UPDATE src SET v = v + 1")  # 9 and 19 reach another ten, both with k = 4
    report = source.refresh()
    assert [moved(report[name])[1:] for name in "abc"] == [(2, 2), (1, 1), (1, 1)]
    check(source)
    source.sql("UPDATE src SET v = v + 1 WHERE id < 10")  # 8 reaches ten: 18 of its group has it
    report = source.refresh()
    assert moved(report["a"])[1:] == (1, 1)
    assert (report["b"].reason, report["c"].reason) == ("NET_EMPTY", "NOT_MOVED")
    check(source)
    source.sql("UPDATE src SET v = v + 1 WHERE id = 18")  # 19 + 1: a new ten, not a greater one
    report = source.refresh()
    assert [moved(report[name])[1:] for name in "ab"] == [(1, 1), (1, 1)]
    assert (report["c"].strategy, report["c"].reason) == ("no_data", "NET_EMPTY")
    check(source)
