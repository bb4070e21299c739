"""A graph at one cut: diamonds, failures, suspension, incomparable parents, reading together."""

from __future__ import annotations

import threading

import duckdb
import pytest
from duck_oracle import bag, check

import dynamic_tables as dt
from dynamic_tables.steps import Step, observing


@pytest.fixture(scope="module")
def diamond(shared: dt.DynamicTables) -> dt.DynamicTables:
    """`low` and `high` read `base`; `joined` reads both and the base table."""
    shared.sql("CREATE TABLE src (id INT, v INT)")
    shared.sql("INSERT INTO src VALUES (1, 10), (2, 20), (3, NULL)")
    shared.create("base", "SELECT id, v FROM src", initialize="ON_SCHEDULE")
    shared.create("low", "SELECT id, v FROM base WHERE v < 15", initialize="ON_SCHEDULE")
    shared.create("high", "SELECT id, v FROM base WHERE v >= 15", initialize="ON_SCHEDULE")
    shared.create(
        "joined",
        "SELECT s.id, l.v AS low, h.v AS high FROM src s LEFT JOIN low l ON l.id = s.id "
        "LEFT JOIN high h ON h.id = s.id",
        initialize="ON_SCHEDULE",
    )
    return shared


def test_declared_but_not_loaded(diamond: dt.DynamicTables) -> None:
    with pytest.raises(dt.Refused) as caught:
        diamond.read("base")
    assert caught.value.reason is dt.Reason.NOT_INITIALIZED
    with pytest.raises(duckdb.CatalogException):
        diamond.sql("FROM base")
    with pytest.raises(dt.Refused) as caught:
        diamond.refresh("low")
    assert caught.value.reason is dt.Reason.NOT_INITIALIZED


def test_all_tables_of_one_refresh_stand_at_one_cut(diamond: dt.DynamicTables) -> None:
    report = diamond.refresh()
    order = [record.table.name for record in report.records]
    assert order.index("base") < order.index("low") < order.index("joined")
    cuts = {tuple(sorted(record.cut.versions.items())) for record in report.records if record.cut}
    assert len(cuts) == 1
    assert {r.action for r in report.records} == {"initialize"}
    check(diamond)


def test_a_moving_row_reaches_every_table(diamond: dt.DynamicTables) -> None:
    diamond.sql("UPDATE src SET v = 30 WHERE id = 1")
    diamond.sql("DELETE FROM src WHERE id = 3")
    assert [p.reason for p in diamond.plan()] == ["CHANGED"] * 4
    report = diamond.refresh()
    assert report["base"].strategy == "rows"
    assert report["base"].work.rows_deleted == 2  # children see real changes only
    assert report["base"].work.rows_inserted == 1
    check(diamond)
    feed = diamond.changes("base", report["base"].version or 0, report["base"].version or 0)
    assert sorted(row[2] for row in feed.collect()) == ["delete", "delete", "insert"]


def test_a_change_that_changes_nothing_stops_at_the_first_table(diamond: dt.DynamicTables) -> None:
    """NET_EMPTY: the source's rows were rewritten, the result is the same, children rest."""
    diamond.sql("UPDATE src SET v = v")
    report = diamond.refresh()
    assert (report["base"].strategy, report["base"].reason) == ("no_data", "NET_EMPTY")
    assert (report["low"].strategy, report["low"].reason) == ("no_data", "NOT_MOVED")
    check(diamond)


def test_parents_at_incomparable_cuts(diamond: dt.DynamicTables) -> None:
    """`a` is ahead on one base table, `b` on the other; their child needs both at the newest."""
    diamond.sql("CREATE TABLE one (x INT)")
    diamond.sql("CREATE TABLE two (y INT)")
    diamond.sql("INSERT INTO one VALUES (1)")
    diamond.sql("INSERT INTO two VALUES (1)")
    for name in ("a", "b"):
        diamond.create(name, "SELECT x, y FROM one CROSS JOIN two")
    diamond.sql("INSERT INTO one VALUES (2)")
    diamond.refresh("a")
    diamond.create("ab", "SELECT a.x, b.y FROM a JOIN b ON a.x = b.x", initialize="ON_SCHEDULE")
    first = diamond.refresh("ab")  # the common older cut will do
    assert [record.table.name for record in first.records] == ["ab"]
    check(diamond, "ab")
    diamond.sql("INSERT INTO two VALUES (2)")
    diamond.refresh("b", "ab")  # ab goes to b's cut, taking a along
    check(diamond, "a", "b", "ab")
    cuts = [diamond.show(name).build.cut.versions for name in ("a", "b", "ab")]  # type: ignore[union-attr]
    assert cuts[0] == cuts[1] == cuts[2]
    diamond.drop("a", cascade=True)
    diamond.drop("b")


def test_several_tables_are_read_at_one_cut(diamond: dt.DynamicTables) -> None:
    diamond.sql("INSERT INTO src VALUES (7, 1), (8, 99)")
    diamond.refresh("base")  # low and high stay behind
    frames = diamond.read(["base", "low", "high"])
    together = bag(frames["low"].collect()) + bag(frames["high"].collect())
    assert together == bag(frames["base"].where("v IS NOT NULL").collect())
    assert bag(diamond.read("base").collect()) != bag(frames["base"].collect())
    diamond.refresh()


def test_independent_branches_run_at_once(diamond: dt.DynamicTables) -> None:
    """`low` and `high` meet at a barrier in the middle of their refresh."""
    diamond.sql("INSERT INTO src VALUES (30, 3), (31, 31)")
    meeting = threading.Barrier(2, timeout=60)

    def observer(step: Step, table: str) -> None:
        if step is Step.INTENDED and table in ("main.low", "main.high"):
            meeting.wait()

    with observing(observer):
        assert diamond.refresh().ok
    check(diamond)


def test_a_failing_table_takes_its_children_along_and_nobody_else(
    diamond: dt.DynamicTables,
) -> None:
    """A cast that fails; after five failures in a row the table is suspended."""
    diamond.sql("CREATE TABLE risky (d VARCHAR)")
    diamond.sql("INSERT INTO risky VALUES ('1')")
    diamond.create("divided", "SELECT CAST(d AS INT) AS q FROM risky")
    diamond.create("under", "SELECT q FROM divided")
    diamond.create("beside", "SELECT d FROM risky")
    before = bag(diamond.read("divided").collect())
    diamond.sql("INSERT INTO risky VALUES ('one')")
    report = diamond.refresh(on_error="report")
    outcome = {record.table.name: (record.outcome, record.reason) for record in report.records}
    assert outcome["divided"] == ("failed", "QUERY_FAILED")
    assert outcome["under"] == ("failed", "UPSTREAM_FAILED")
    assert outcome["beside"] == ("done", "CHANGED")
    assert "Could not convert string 'one'" in (report["divided"].error or "")
    assert bag(diamond.read("divided").collect()) == before
    with pytest.raises(dt.RefreshFailed) as caught:
        diamond.refresh("divided")
    assert caught.value.exit_code == 3
    for _ in range(3):
        diamond.refresh("divided", on_error="report")
    state = diamond.show("divided")
    assert (state.status, state.failures) == ("suspended", 5)
    assert "Could not convert string 'one'" in (state.suspended_because or "")
    with pytest.raises(dt.Refused) as refused:
        diamond.refresh("divided")
    assert refused.value.reason is dt.Reason.SUSPENDED
    skipped = {r.table.name: r.outcome for r in diamond.refresh().records}
    assert (skipped["divided"], skipped["under"]) == ("skipped", "skipped")
    diamond.sql("DELETE FROM risky WHERE d = 'one'")
    diamond.resume("divided")
    assert diamond.refresh().ok
    check(diamond)
    for name in ("under", "divided", "beside"):
        diamond.drop(name)


def test_source_snapshots_can_be_queried(diamond: dt.DynamicTables) -> None:
    rows = diamond.sql(
        "SELECT source, max(snapshot_id) AS v FROM source_snapshots "
        "WHERE dynamic_table = 'main.joined' GROUP BY source"
    ).collect()
    pins = {str(pin.name): pin.version for pin in diamond.show("joined").build.pins}  # type: ignore[union-attr]
    assert dict(rows) == pins
    history = diamond.sql("SELECT strategy, reason, duration_ms FROM refresh_history").collect()
    assert len(history) > 10


def test_drop_refuses_while_children_exist(diamond: dt.DynamicTables) -> None:
    with pytest.raises(dt.Refused) as caught:
        diamond.sql("DROP DYNAMIC TABLE base")
    assert caught.value.reason is dt.Reason.HAS_CHILDREN
    for child in ("low", "high", "joined"):
        assert f"main.{child}" in str(caught.value)


def test_rename_rewrites_the_children(diamond: dt.DynamicTables) -> None:
    diamond.sql("ALTER DYNAMIC TABLE base RENAME TO basis")
    with pytest.raises(duckdb.CatalogException):
        diamond.sql("FROM base")
    assert diamond.verify("low").ok
    assert "basis" in diamond.show("low").definition.query
    pinned = diamond.explain("low").pinned_sql or ""
    assert '"main"."base" AT (VERSION' in pinned  # what the table was called at that version
    assert all(r.reason == "NOT_MOVED" for r in diamond.refresh().records)
    diamond.sql("INSERT INTO src VALUES (20, 2)")
    diamond.refresh()
    check(diamond)
    assert diamond.verify("low").ok
    dropped = diamond.drop("basis", cascade=True)
    assert [name.name for name in dropped][-1] == "basis"
    assert list(diamond.list()) == []
