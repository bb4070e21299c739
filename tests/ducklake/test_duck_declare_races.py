"""CREATE, ALTER, RENAME and DROP beside workers: who declares a table holds it until it stands."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import dynamic_tables as dt
from dynamic_tables.processes import this_host
from dynamic_tables.steps import Step, observing
from dynamic_tables.store import Claim, Claimant
from dynamic_tables.worker import Worker

PATIENCE_S = 30
OTHER = Claimant(owner="other", host="elsewhere", pid=1, expires_s=60.0)
HERE = Claimant(owner="other", host=this_host(), pid=1, expires_s=60.0)
SUM = "SELECT sum(amount) AS n FROM orders"
MAX = "SELECT max(amount) AS n FROM orders"
BROKEN = "SELECT error('no') AS n FROM orders"

OpenLake = Callable[..., dt.DynamicTables]


@pytest.fixture
def tables(open_lake: OpenLake) -> dt.DynamicTables:
    opened = open_lake()
    opened.sql("CREATE TABLE orders AS SELECT 1 AS id, 10 AS amount")
    return opened


def worker(tables: dt.DynamicTables) -> Worker:
    return tables.worker(slots=1, say=lambda _: None)


class Rival:
    """A worker that asks for the table, and takes it if it can, at every step until it is loaded;
    it holds what it got for ever."""

    def __init__(self, tables: dt.DynamicTables) -> None:
        self._tables, self._asking = tables, worker(tables)
        self.steps: list[Step] = []
        self.got: list[tuple[Step, Claim]] = []

    def __call__(self, step: Step, _table: str) -> None:
        if step is Step.LOCKED or Step.RECORDED in self.steps:
            return  # nobody reads the lake while a commit has its lock
        self.steps.append(step)
        self._asking.ask()
        if found := self._tables.store.claim_next(OTHER):
            self.got.append((step, found[0]))


def test_no_worker_comes_between_create_and_its_load(tables: dt.DynamicTables) -> None:
    with observing(rival := Rival(tables)):
        declared = tables.create("fresh", SUM, trigger_on_change=True)
    assert rival.got == []
    assert {Step.DEFINED, Step.LAID_OUT, Step.CLAIMED, Step.RECORDED} <= set(rival.steps)
    assert declared.report is not None
    assert tables.read("fresh").fetchall() == [(10,)]
    assert tables.store.claims() == []
    assert {record.outcome for record in worker(tables).drain()} <= {"done"}  # what was asked for
    assert tables.store.pending() == []


def test_no_worker_comes_between_alter_and_its_load(tables: dt.DynamicTables) -> None:
    tables.create("fresh", SUM, trigger_on_change=True)
    tables.sql("INSERT INTO orders VALUES (2, 20)")  # a worker finds it due
    with observing(rival := Rival(tables)):
        tables.sql(f"CREATE OR ALTER DYNAMIC TABLE fresh TRIGGER ON CHANGE AS {MAX}")
    assert rival.got == []
    assert Step.RECORDED in rival.steps
    assert tables.read("fresh").fetchall() == [(20,)]
    assert tables.store.claims() == []


def test_alter_that_fails_is_taken_back_before_a_worker_comes(tables: dt.DynamicTables) -> None:
    tables.create("fresh", SUM, trigger_on_change=True)
    tables.sql("INSERT INTO orders VALUES (2, 20)")
    with observing(rival := Rival(tables)), pytest.raises(dt.RefreshFailed) as caught:
        tables.sql(f"CREATE OR ALTER DYNAMIC TABLE fresh TRIGGER ON CHANGE AS {BROKEN}")
    assert [step for step, _ in rival.got if step is not Step.RELEASED] == []
    assert "as they were" in (caught.value.hint or "")
    assert tables.show("fresh").definition.query == SUM
    assert tables.read("fresh").fetchall() == [(10,)]


def taken(tables: dt.DynamicTables, at: Step) -> Callable[[Step, str], None]:
    """At this step the creator is taken for dead, and another one takes the table."""
    once = iter([True])

    def observer(step: Step, _table: str) -> None:
        if step is at and next(once, False):
            table_id = tables.show("fresh").definition.table_id
            tables.store.claim(table_id, "other", HERE, lambda *_: True)

    return observer


@pytest.mark.parametrize("at", [Step.DEFINED, Step.LAID_OUT, Step.PINNED])
def test_a_creator_that_was_taken_for_dead_takes_nothing_back(
    tables: dt.DynamicTables, at: Step
) -> None:
    """The successor has the table, and loads it; the creator says so."""
    with observing(taken(tables, at)), pytest.raises(dt.Held) as caught:
        tables.create("fresh", SUM, trigger_on_change=True)
    assert caught.value.reason is dt.Reason.TAKEN_OVER
    assert "the definition stands" in caught.value.message
    (held,) = tables.store.claims()
    assert held.owner == HERE.owner
    tables.store.release(held)
    done = worker(tables).drain()
    assert [(record.table.name, record.outcome) for record in done] == [("fresh", "done")]
    assert tables.read("fresh").fetchall() == [(10,)]


def test_an_alterer_that_was_taken_for_dead_takes_nothing_back(tables: dt.DynamicTables) -> None:
    tables.create("fresh", SUM, trigger_on_change=True)
    with observing(taken(tables, Step.PINNED)), pytest.raises(dt.Held) as caught:
        tables.sql(f"CREATE OR ALTER DYNAMIC TABLE fresh TRIGGER ON CHANGE AS {MAX}")
    assert caught.value.reason is dt.Reason.TAKEN_OVER
    assert tables.show("fresh").definition.query == MAX
    (held,) = tables.store.claims()
    tables.store.release(held)
    tables.sql("INSERT INTO orders VALUES (2, 20)")
    assert {record.outcome for record in worker(tables).drain()} == {"done"}
    assert tables.read("fresh").fetchall() == [(20,)]


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER DYNAMIC TABLE fresh SET TARGET_LAG = '1 hour'",
        "ALTER DYNAMIC TABLE fresh RENAME TO stale",
        f"CREATE OR ALTER DYNAMIC TABLE fresh AS {SUM}",
        "REFRESH DYNAMIC TABLE fresh",
    ],
)
def test_who_was_taken_for_dead_changes_no_definition(
    tables: dt.DynamicTables, statement: str
) -> None:
    """Neither in the store nor in the lake, where the next refresh would find it."""
    tables.create("fresh", MAX)
    tables.sql("ALTER TABLE orders ALTER amount TYPE BIGINT")  # a refresh retypes the column
    tables.sql("INSERT INTO orders VALUES (2, 20)")
    before = tables.show("fresh").definition
    at = Step.PINNED if statement.startswith("REFRESH") else Step.CLAIMED
    with observing(taken(tables, at)), pytest.raises(dt.DynamicTablesError) as caught:
        tables.sql(statement)
    assert caught.value.reason is dt.Reason.TAKEN_OVER
    assert tables.show("fresh").definition == before
    assert tables.lake.standing(before).definition == before


def meanwhile(
    tables: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]
) -> None:
    """Another one acts between the plan of the next refresh and its claim."""
    claim, once = tables.store.claim, iter([act])

    def later(*args: Any) -> Claim:
        next(once, lambda: None)()
        return claim(*args)

    monkeypatch.setattr(tables.store, "claim", later)


@pytest.mark.parametrize("followed", ["a view", "a view and a parent"])
@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("ALTER DYNAMIC TABLE fresh SET TARGET_LAG = '1 hour'", "fresh"),
        ("ALTER DYNAMIC TABLE fresh RENAME TO stale", "stale"),
    ],
)
def test_a_refresh_that_follows_views_and_parents_loses_no_statement(
    tables: dt.DynamicTables,
    monkeypatch: pytest.MonkeyPatch,
    followed: str,
    statement: str,
    name: str,
) -> None:
    """Its plan has a revision of its own, which the statement may have, too."""
    tables.create("parent", SUM)
    tables.sql("CREATE VIEW v AS SELECT id AS more FROM orders")
    tables.create("fresh", "SELECT n + more AS n FROM parent, v")
    tables.sql("CREATE OR REPLACE VIEW v AS SELECT id + 1 AS more FROM orders")
    if followed == "a view and a parent":
        with monkeypatch.context() as patch:
            patch.setattr(tables.lake, "unpublish", interrupted)  # RENAME dies half-way
            with pytest.raises(KeyboardInterrupt):
                tables.alter("parent", rename_to="moved")
    before = tables.show("fresh").definition
    meanwhile(tables, monkeypatch, lambda: tables.sql(statement))
    report = tables.refresh("fresh", on_error="report")
    assert [record.reason for record in report.records] == [dt.Reason.TAKEN_OVER]
    changed = tables.show(name).definition
    assert changed.revision == before.revision + 1
    assert tables.lake.standing(changed).definition == changed
    tables.refresh(name)
    assert tables.read(name).fetchall() == [(12,)]
    present = tables.show(name).definition
    assert present.options == changed.options
    assert tables.lake.standing(present).definition == present


def interrupted(*_args: object) -> None:
    raise KeyboardInterrupt


def test_a_name_that_was_taken_meanwhile_is_not_found_in_the_lake(tables: dt.DynamicTables) -> None:
    tables.create("fresh", SUM)
    before = tables.show("fresh").definition
    name = replace(before.name, name="taken")

    def rival(step: Step, _table: str) -> None:
        if step is Step.CLAIMED:
            tables.store.create_table(replace(before, name=name, table_id="other"))

    with observing(rival), pytest.raises(dt.InvalidInput) as caught:
        tables.alter("fresh", rename_to="taken")
    assert caught.value.reason is dt.Reason.ALREADY_EXISTS
    assert tables.lake.standing(before).definition == before
    tables.refresh("fresh")


def test_a_definition_that_the_lake_does_not_take_is_taken_back(
    tables: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.create("fresh", SUM)
    before = tables.show("fresh").definition

    with monkeypatch.context() as patch:
        patch.setattr(tables.lake, "save_definition", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tables.alter("fresh", target_lag="1 hour")
    assert tables.show("fresh").definition == replace(before, revision=before.revision + 2)
    tables.refresh("fresh")
    present = tables.show("fresh").definition
    assert tables.lake.standing(present).definition == present


def away(method: Callable[..., object], *at: int) -> Callable[..., object]:
    """The method does not answer at these calls, of which the first is 1."""
    calls = itertools.count(1)

    def asked(*args: Any) -> object:
        if next(calls) in at:
            raise dt.SetupError("it is away", reason=dt.Reason.STORE_BROKEN)
        return method(*args)

    return asked


def test_a_failed_replacement_is_taken_back_though_the_lake_is_away(
    tables: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store has the old query again; the next refresh brings the lake in line."""
    tables.create("fresh", SUM)
    monkeypatch.setattr(tables.lake, "save_definition", away(tables.lake.save_definition, 2))
    with pytest.raises(dt.RefreshFailed) as caught:
        tables.sql(f"CREATE OR REPLACE DYNAMIC TABLE fresh AS {BROKEN}")
    assert "as they were" in (caught.value.hint or "")
    assert tables.show("fresh").definition.query == SUM
    tables.refresh("fresh")
    assert tables.read("fresh").fetchall() == [(10,)]
    present = tables.show("fresh").definition
    assert tables.lake.standing(present).definition == present


def test_a_failed_replacement_is_taken_back_from_what_its_load_made_of_it(
    tables: dt.DynamicTables,
) -> None:
    """The load followed a view that was replaced meanwhile: that is a revision more."""
    tables.create("fresh", SUM)
    tables.sql("CREATE VIEW v AS SELECT amount AS n FROM orders")

    def breaks(step: Step, _table: str) -> None:
        if step is Step.CLAIMED:
            tables.sql(f"CREATE OR REPLACE VIEW v AS {BROKEN}")

    with observing(breaks), pytest.raises(dt.RefreshFailed):
        tables.sql("CREATE OR REPLACE DYNAMIC TABLE fresh AS SELECT n FROM v")
    assert tables.show("fresh").definition.query == SUM
    tables.refresh("fresh")
    assert tables.read("fresh").fetchall() == [(10,)]


@pytest.mark.parametrize("heartbeat", ["answers", "does not"])
def test_what_cannot_be_taken_back_does_not_hide_the_first_error(
    tables: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch, heartbeat: str
) -> None:
    tables.create("fresh", SUM)
    monkeypatch.setattr(tables.store, "update_definition", away(tables.store.update_definition, 2))
    if heartbeat == "does not":
        monkeypatch.setattr(tables.store, "heartbeat", away(tables.store.heartbeat, *range(99)))
    with pytest.raises(dt.RefreshFailed) as caught:
        tables.sql(f"CREATE OR REPLACE DYNAMIC TABLE fresh AS {BROKEN}")
    assert caught.value.reason is dt.Reason.QUERY_FAILED
    assert "nor could its definition be taken back (it is away)" in (caught.value.hint or "")
    assert "as they were" not in (caught.value.hint or "")


def test_an_interrupted_statement_ends_as_such_though_the_store_is_away(
    tables: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.create("fresh", SUM)
    monkeypatch.setattr(tables.lake, "save_definition", interrupted)
    monkeypatch.setattr(tables.store, "update_definition", away(tables.store.update_definition, 2))
    with pytest.raises(KeyboardInterrupt) as caught:
        tables.alter("fresh", target_lag="1 hour")
    assert "taken back (it is away)" in caught.value.__notes__[0]


@pytest.mark.parametrize("failed", ["ALTER", "CREATE OR ALTER"])
def test_a_layout_that_was_not_applied_is_not_declared(
    tables: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch, failed: str
) -> None:
    """Else the statement, repeated, would find nothing to do."""
    statement = {
        "ALTER": "ALTER DYNAMIC TABLE fresh SET COMMENT 'new', TARGET_LAG = '1 hour'",
        "CREATE OR ALTER": f"CREATE OR ALTER DYNAMIC TABLE fresh COMMENT 'new' AS {MAX}",
    }[failed]
    tables.create("fresh", SUM, comment="old")
    monkeypatch.setattr(tables.lake, "apply_layout", away(tables.lake.apply_layout, 1))
    with pytest.raises(dt.SetupError):
        tables.sql(statement)
    present = tables.show("fresh").definition
    assert present.options.comment == ("old" if failed == "ALTER" else None)
    assert present.query == (SUM if failed == "ALTER" else MAX)  # its rows are there
    assert tables.sql(statement).did == "altered"
    assert tables.show("fresh").definition.options.comment == "new"
    assert comment_of(tables, "fresh") == "new"
    tables.refresh("fresh")
    present = tables.show("fresh").definition
    assert tables.lake.standing(present).definition == present


def comment_of(tables: dt.DynamicTables, name: str) -> object:
    stored = tables.show(name).definition.stored_name.name
    (found,) = tables.sql(
        f"SELECT comment FROM duckdb_tables() WHERE table_name = '{stored}'"
    ).fetchall()
    return found[0]


def test_what_a_dead_creator_left_is_loaded_by_a_worker(tables: dt.DynamicTables) -> None:
    """Of a process on another host only its claim tells, until it expires."""

    class Died(BaseException):
        """Stands for the end of the process."""

    def dies(step: Step, _table: str) -> None:
        if step is Step.DEFINED:
            raise Died

    with observing(dies), pytest.raises(Died):
        tables.create("fresh", SUM, trigger_on_change=True)
    table_id = tables.show("fresh").definition.table_id
    left = Claimant(owner="dead", host="elsewhere", pid=1, expires_s=1.0)
    tables.store.claim(table_id, "create", left)
    assert worker(tables).drain() == []
    while tables.store.holder(table_id) is not None:
        time.sleep(0.02)
    assert [record.outcome for record in worker(tables).drain()] == ["done"]
    assert tables.read("fresh").fetchall() == [(10,)]


CHANGES: dict[str, tuple[str, Callable[[dt.DynamicTables], object]]] = {
    "create": ("lay_out", lambda tables: tables.create("fresh", SUM)),
    "alter": ("save_definition", lambda tables: tables.alter("old", target_lag="1 hour")),
    "redefine": (
        "save_definition",
        lambda tables: tables.sql(f"CREATE OR ALTER DYNAMIC TABLE old AS {MAX}"),
    ),
    "rename": ("unpublish", lambda tables: tables.sql("ALTER DYNAMIC TABLE old RENAME TO new")),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_long_statement_keeps_its_claims(
    open_lake: OpenLake, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The lake takes long; the claims (of RENAME: those of the children, too) are kept alive."""
    tables = open_lake(claim_expires_s=0.6)
    tables.sql("CREATE TABLE orders AS SELECT 1 AS id, 10 AS amount")
    tables.create("old", SUM)
    if what == "rename":
        tables.create("child", "SELECT n FROM old")
    method, change = CHANGES[what]
    act, kept = getattr(tables.lake, method), []

    def slow(*args: object) -> object:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline and not kept:
            claims = tables.store.claims()
            beats = [claim.heartbeat_at > claim.claimed_at for claim in claims]
            kept.extend([len(claims)] if all(beats) else [])
            time.sleep(0.02)
        return act(*args)

    monkeypatch.setattr(tables.lake, method, slow)
    change(tables)
    assert kept == [2 if what == "rename" else 1]
    assert tables.store.claims() == []
