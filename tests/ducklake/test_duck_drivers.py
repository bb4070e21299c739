"""Where two drivers may lose each other's commits, whatever commits is refused beside another."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

import dynamic_tables as dt
from dynamic_tables.definition import Definition
from dynamic_tables.doctor import _on_s3
from dynamic_tables.processes import this_host
from dynamic_tables.steps import Step, observing
from dynamic_tables.store import Claimant

OTHER = Claimant(owner="other", host="elsewhere", pid=7, expires_s=60.0, one_driver_at=("",))

STATEMENTS: dict[str, Callable[[dt.DynamicTables], object]] = {
    "refresh": lambda tables: tables.refresh("child", upstream=True),
    "REFRESH": lambda tables: tables.sql("REFRESH DYNAMIC TABLE total"),
    "create": lambda tables: tables.create("more", "SELECT id FROM orders"),
    "alter": lambda tables: tables.alter("total", target_lag="1 hour"),
    "redefine": lambda tables: tables.create("total", "SELECT 1 AS n FROM orders", or_alter=True),
    "rename": lambda tables: tables.alter("total", rename_to="sums"),
    "drop": lambda tables: tables.drop("total", cascade=True),
    "optimize": lambda tables: tables.optimize("total"),
    "rorder": lambda tables: tables.rorder("total"),
    "rorder of what is stored": lambda tables: tables.rorder(str(stored(tables).stored_name)),
    "rorder of a folder": lambda tables: tables.rorder(f"file://{stored(tables).location}/"),
}


@pytest.fixture
def tables(tables: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch) -> dt.DynamicTables:
    """As if the lake lay on plain S3; both tables are behind."""
    tables.sql("CREATE TABLE orders AS SELECT 1 AS id, 10 AS amount")
    tables.create("total", "SELECT sum(amount) AS n FROM orders", trigger_on_change=True)
    tables.create("child", "SELECT n FROM total", trigger_on_change=True)
    tables.sql("INSERT INTO orders VALUES (2, 20)")
    monkeypatch.setattr(type(tables.lake), "one_driver_at", ("",))
    return tables


def stored(tables: dt.DynamicTables) -> Definition:
    definition = tables.show("total").definition
    assert definition.stored_name != definition.name
    return definition


def drain(tables: dt.DynamicTables) -> set[tuple[str, str]]:
    done = tables.worker(slots=1, say=lambda _: None).drain()
    return {(record.table.name, record.outcome) for record in done}


@pytest.mark.parametrize("what", STATEMENTS)
def test_nothing_is_committed_by_hand_beside_a_worker(tables: dt.DynamicTables, what: str) -> None:
    before = tables.list()
    tables.store.enter(OTHER)
    with pytest.raises(dt.DynamicTablesError) as caught:
        STATEMENTS[what](tables)
    error = caught.value
    assert error.reason is dt.Reason.NO_EXCLUSION
    assert "process 7 on elsewhere" in error.message
    first = {"create": "main.more", "drop": "main.child"}  # CASCADE: children first
    assert error.about == first.get(what, "main.total")
    assert "S3DynamoDBLogStore" in (error.hint or "")
    assert tables.list() == before  # no failure is held against a table, nor against its child
    assert tables.store.claims() == []
    tables.store.leave(OTHER.owner)
    assert drain(tables) == {("total", "done"), ("child", "done")}


def test_a_refused_refresh_says_so_for_every_table(tables: dt.DynamicTables) -> None:
    tables.store.enter(OTHER)
    report = tables.refresh(on_error="report")
    assert {record.reason for record in report.records} == {dt.Reason.NO_EXCLUSION}
    assert dt.RefreshFailed(report).exit_code_for_cli == dt.Refused.exit_code
    told = tables.history(limit=len(report.records))
    assert {record.reason for record in told} == {dt.Reason.NO_EXCLUSION}


def test_a_worker_is_refused_while_a_refresh_by_hand_is_under_way(tables: dt.DynamicTables) -> None:
    claim = tables.store.claim(tables.show("child").definition.table_id, "by hand", OTHER)
    with pytest.raises(dt.Refused) as caught:
        drain(tables)
    assert (caught.value.about, caught.value.reason) == ("worker", dt.Reason.NO_EXCLUSION)
    assert tables.store.workers() == []
    tables.store.release(claim)
    assert drain(tables) == {("total", "done"), ("child", "done")}


@pytest.mark.parametrize("what", ["refresh", "optimize"])
def test_no_driver_comes_while_a_statement_is_under_way(
    tables: dt.DynamicTables, what: str
) -> None:
    refused: list[Step] = []

    def observer(step: Step, _table: str) -> None:
        if step is not Step.RELEASED:
            with pytest.raises(dt.Refused):
                tables.store.enter(OTHER)
            refused.append(step)

    with observing(observer):
        STATEMENTS[what](tables)
    assert Step.CLAIMED in refused
    tables.store.enter(OTHER)


@pytest.mark.parametrize("what", ["refresh", "create", "worker"])
def test_a_dead_driver_of_this_host_is_in_nobodys_way(tables: dt.DynamicTables, what: str) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    dead = Claimant(
        owner="dead",
        host=this_host(),
        pid=process.pid,
        expires_s=60.0,
        one_driver_at=("",),
    )
    tables.store.enter(dead)
    tables.store.claim(tables.show("child").definition.table_id, "by hand", dead)
    if what == "worker":
        assert drain(tables) == {("total", "done"), ("child", "done")}
    else:
        STATEMENTS[what](tables)
    assert tables.store.claims() == tables.store.workers() == []


def test_a_part_of_the_lake_may_lie_there(
    tables: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the schema of one table lay on S3, and that of the other on a disk."""
    monkeypatch.setattr(type(tables.lake), "one_driver_at", (stored(tables).location,))
    tables.store.enter(OTHER)
    with pytest.raises(dt.Refused):
        drain(tables)
    for what in ("refresh", "optimize", "rorder", "drop"):
        with pytest.raises(dt.DynamicTablesError) as caught:
            STATEMENTS[what](tables)
        assert caught.value.reason is dt.Reason.NO_EXCLUSION
    tables.optimize("child")
    tables.alter("child", target_lag="1 hour")
    (check,) = _on_s3(tables)
    assert check.detail.startswith("main.total: two drivers may lose")
    assert "S3DynamoDBLogStore" in (check.hint or "")
