"""Workers keep tables fresh: on DuckLake, with SQLite and with PostgreSQL as the store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from io import StringIO

import duckdb
import pytest
from rich.console import Console

import dynamic_tables as dt
from dynamic_tables.lake.duck.connection import Connection
from dynamic_tables.model import Status
from dynamic_tables.render import tables_table
from dynamic_tables.render.tables import status_text
from dynamic_tables.steps import Step, observing
from dynamic_tables.store import Claimant
from dynamic_tables.store.engine import writing
from dynamic_tables.store.schema import pending_refreshes
from dynamic_tables.worker import Worker
from postgres import Postgres

OpenLake = Callable[..., dt.DynamicTables]


def worker(tables: dt.DynamicTables, said: list[str] | None = None) -> Worker:
    return tables.worker(slots=1, say=(said if said is not None else []).append)


def behind(tables: dt.DynamicTables, name: str) -> datetime | None:
    return tables.show(name).behind_since


@pytest.fixture(params=["sqlite", "postgresql"])
def tables(open_lake: OpenLake, request: pytest.FixtureRequest) -> dt.DynamicTables:
    """`total` and `top` are to be fresh, `parent` as its readers ask, `by_hand` is not."""
    store = None
    if request.param == "postgresql":
        postgres: Postgres = request.getfixturevalue("postgres")
        store = postgres.new_database()
    opened = open_lake(store=store)
    opened.sql("CREATE TABLE orders AS SELECT 1 AS id, 10 AS amount")
    opened.create("parent", "SELECT id, amount FROM orders", target_lag="DOWNSTREAM")
    opened.create("total", "SELECT sum(amount) AS n FROM parent", trigger_on_change=True)
    opened.create("top", "SELECT max(amount) AS n FROM orders", trigger_on_change=True)
    opened.create("by_hand", "SELECT min(amount) AS n FROM orders")
    return opened


def insert(tables: dt.DynamicTables, number: int) -> None:
    tables.sql(f"INSERT INTO orders VALUES ({number}, {number})")


def test_what_is_due_is_refreshed_at_one_cut(tables: dt.DynamicTables) -> None:
    assert worker(tables).drain() == []
    insert(tables, 5)
    done = worker(tables).drain()
    assert {record.table.name for record in done} == {"parent", "total", "top"}
    assert {record.outcome for record in done} == {"done"}
    assert {record.trigger for record in done} == {"schedule"}
    assert len({record.refresh_id for record in done}) == 1
    assert len({str(record.cut and record.cut.versions) for record in done}) == 1
    assert tables.read("total").fetchall() == [(15,)]
    assert tables.read("by_hand").fetchall() == [(10,)]
    assert all(tables.verify(name).ok for name in ("parent", "total", "top"))
    assert worker(tables).drain() == []
    assert tables.store.pending() == tables.store.claims() == tables.store.workers() == []


def test_the_cut_is_the_one_that_was_asked_for(tables: dt.DynamicTables) -> None:
    """What is committed between asking and refreshing waits for the next round."""
    insert(tables, 5)
    late = iter([6])

    def observer(step: Step, _table: str) -> None:
        if step is Step.CLAIMED and (number := next(late, None)):
            insert(tables, number)

    with observing(observer):
        done = worker(tables).drain()
    assert len({str(record.cut and record.cut.versions) for record in done}) == 1
    assert tables.read("total").fetchall() == [(15,)]
    worker(tables).drain()
    assert tables.read("total").fetchall() == [(21,)]


def test_lag_is_measured_from_the_commit_of_the_base_table(tables: dt.DynamicTables) -> None:
    insert(tables, 5)
    asked = worker(tables).ask()
    assert behind(tables, "by_hand") is not None
    source = tables.lake.source_state(tables.show("by_hand").definition.sources[0])
    first = tables.lake.changed_at(
        tables.show("by_hand").definition.sources[0], source.version - 1, source.version
    )
    insert(tables, 6)
    worker(tables).ask()
    assert behind(tables, "by_hand") == first  # the oldest unread change counts
    assert [tables.store.table_by_id(key).definition.name.name for key in asked] == [  # ty: ignore
        "parent",
        "top",
        "total",
    ]
    done = {record.table.name: record for record in worker(tables).drain()}
    assert done["top"].behind_ms is not None
    assert behind(tables, "top") is None


def test_a_fault_of_the_query_waits_for_other_data(tables: dt.DynamicTables) -> None:
    tables.create(
        "broken",
        "SELECT 100 // (amount - 5) AS n, error('no') AS e FROM parent WHERE id = 5",
        trigger_on_change=True,
    )
    tables.create("child", "SELECT n FROM broken", trigger_on_change=True)
    insert(tables, 5)
    done = {record.table.name: record for record in worker(tables).drain()}
    assert done["broken"].reason == "QUERY_FAILED"
    assert done["total"].outcome == "done"
    newest = tables.history("child")[0]
    assert (newest.reason, newest.outcome) == ("UPSTREAM_FAILED", "failed")
    assert worker(tables).drain() == []  # the same data: no second attempt
    assert tables.lags("broken")[0].next_refresh is None  # nobody knows when other data come
    insert(tables, 6)
    again = {record.table.name for record in worker(tables).drain()}
    assert "broken" in again
    assert tables.show("broken").failures == 2


def test_a_lost_claim_and_its_successor(tables: dt.DynamicTables) -> None:
    """A worker is paused at a step until another one took over: it changes nothing any more."""
    insert(tables, 50)
    told: list[dt.RefreshRecord] = []
    first, second = worker(tables), tables.worker(slots=1, say=print, tell=told.append)
    taken: list[dt.RefreshRecord] = []
    paused = iter([True])

    def observer(step: Step, table: str) -> None:
        if step is Step.INTENDED and table.endswith("top") and next(paused, False):
            (claim,) = (
                claim
                for claim in tables.store.claims()
                if claim.table_id == tables.show("top").definition.table_id
            )
            assert tables.store.hand_back(claim)  # as if it had expired
            taken.extend(second.drain())

    with observing(observer):
        done = first.drain()
    assert [record.outcome for record in taken if record.table.name == "top"] == ["done"]
    assert [record.reason for record in done if record.table.name == "top"] == ["TAKEN_OVER"]
    reasons = [record.reason for record in told if record.table.name == "top"]
    assert reasons == ["RECOVERED", "NOT_MOVED"]  # whoever counts hears of both
    assert tables.read("top").fetchall() == [(50,)]
    assert tables.verify("top").ok
    assert tables.store.pending() == tables.store.claims() == []


def test_who_lost_the_claim_judges_neither_table_nor_children(tables: dt.DynamicTables) -> None:
    """It fails after another one took over: history has it, nothing else."""
    insert(tables, 50)
    first, second = worker(tables), worker(tables)
    parent = tables.show("parent").definition.table_id
    paused = iter([True])

    def observer(step: Step, table: str) -> None:
        if step is Step.INTENDED and table.endswith("parent") and next(paused, False):
            (claim,) = (claim for claim in tables.store.claims() if claim.table_id == parent)
            assert tables.store.hand_back(claim)  # as if it had expired
            second.drain()
            raise dt.RefreshError("no", reason=dt.Reason.QUERY_FAILED, about=table)

    with observing(observer):
        done = first.drain()
    assert [record.reason for record in done if record.table_id == parent] == ["TAKEN_OVER"]
    for name in ("parent", "total"):
        assert (tables.show(name).failures, tables.show(name).failure) == (0, None)
    assert tables.read("total").fetchall() == [(60,)]


def test_a_source_that_is_gone_fails_its_readers_only(tables: dt.DynamicTables) -> None:
    tables.sql("CREATE TABLE gone AS SELECT 1 AS id")
    tables.create("reader", "SELECT id FROM gone", trigger_on_change=True)
    tables.sql("DROP TABLE gone")
    insert(tables, 5)
    done = {record.table.name: record for record in worker(tables).drain()}
    assert done["total"].outcome == "done"
    assert (done["reader"].outcome, done["reader"].reason) == ("failed", "UNKNOWN_SOURCE")
    assert behind(tables, "reader") is not None
    assert worker(tables).drain() == []  # it is tried again later


def test_five_failures_suspend_and_resume_cascades(tables: dt.DynamicTables) -> None:
    tables.create(
        "broken", "SELECT error('no') AS e FROM parent WHERE id > 1", trigger_on_change=True
    )
    tables.create(
        "also", "SELECT error('no') AS e FROM broken WHERE e = 'x'", trigger_on_change=True
    )
    for number in range(2, 8):
        insert(tables, number)
        worker(tables).drain()
    assert tables.show("broken").status is Status.SUSPENDED
    assert tables.show("broken").failures == 5
    tables.store.set_status(tables.show("also").definition.table_id, Status.SUSPENDED, "5 failures")
    tables.suspend("total")
    tables.resume("parent")
    assert tables.show("broken").status is Status.ACTIVE
    assert tables.show("also").status is Status.ACTIVE
    assert tables.show("total").status is Status.SUSPENDED  # by hand: left alone


@contextmanager
def top_fails(*reasons: dt.Reason) -> Iterator[None]:
    """The refreshes of `top`, one after the other."""
    left = iter(reasons)

    def observer(step: Step, table: str) -> None:
        if step is Step.PINNED and table.endswith("top"):
            raise dt.RefreshError("it failed", reason=next(left), about=table)

    with observing(observer):
        yield


def wait_after_failure(tables: dt.DynamicTables) -> float:
    """Seconds until `top` is tried again, after an attempt by hand."""
    assert not tables.refresh("top", on_error="report").ok
    worker(tables).drain()  # looks, and leaves the table alone for a while
    due, failure = tables.lags("top")[0].next_refresh, tables.show("top").failure
    assert due is not None
    assert failure is not None
    return (due - failure.at).total_seconds()


def test_a_full_disk_is_waited_for_longer_each_time(tables: dt.DynamicTables) -> None:
    """It suspends no table, however long it lasts; what says nothing about the table in between
    begins nothing anew."""
    insert(tables, 5)
    with top_fails(*[dt.Reason.DISK_FULL] * 6, dt.Reason.INTERRUPTED, dt.Reason.DISK_FULL):
        waits = [wait_after_failure(tables) for _ in range(8)]
    assert waits == [10, 20, 40, 80, 160, 320, 10, 640]
    assert (tables.show("top").status, tables.show("top").failures) == (Status.ACTIVE, 0)
    assert "failing (DISK_FULL)" in str(status_text(tables.show("top")))
    tables.refresh("top")
    assert "active" in str(status_text(tables.show("top")))
    insert(tables, 6)
    with top_fails(dt.Reason.DISK_FULL):
        assert wait_after_failure(tables) == 10


def test_a_full_disk_neither_counts_nor_hides_other_failures(tables: dt.DynamicTables) -> None:
    """A disk that is full from time to time protects no table that fails for itself."""
    insert(tables, 5)
    failed, full = dt.Reason.ENGINE_FAILED, dt.Reason.DISK_FULL
    with top_fails(full, full, failed, failed, full, failed, full, failed, full, failed):
        waits = [wait_after_failure(tables) for _ in range(9)]
        assert waits == [10, 20, 10, 20, 40, 40, 80, 80, 160]
        assert (tables.show("top").status, tables.show("top").failures) == (Status.ACTIVE, 4)
        assert not tables.refresh("top", on_error="report").ok
    assert (tables.show("top").status, tables.show("top").failures) == (Status.SUSPENDED, 5)


def test_a_storage_that_does_not_answer_is_asked_again(tables: dt.DynamicTables) -> None:
    """Later with each failure, on the same data; five in a row suspend the table."""
    insert(tables, 5)

    def observer(step: Step, table: str) -> None:
        if step is Step.PINNED and table.endswith("top"):
            raise duckdb.IOException("IO Error: Could not read from file: Input/output error")

    with observing(observer):
        assert [wait_after_failure(tables) for _ in range(4)] == [10, 20, 40, 80]
        assert tables.show("top").failure.reason is dt.Reason.ENGINE_FAILED  # ty: ignore
        assert not tables.refresh("top", on_error="report").ok
    assert (tables.show("top").status, tables.show("top").failures) == (Status.SUSPENDED, 5)


def die(tables: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on the engine answers nothing: its process is gone."""

    def refuse(*_args: object) -> None:
        raise duckdb.ConnectionException("Connection refused")

    monkeypatch.setattr(Connection, "execute", refuse)
    monkeypatch.setattr(Connection, "sql", refuse)
    assert not tables.lake.is_alive()


@pytest.mark.parametrize("step", [Step.CLAIMED, Step.PINNED, Step.INTENDED])
def test_a_dead_engine_is_no_tables_failure(
    tables: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch, step: Step
) -> None:
    """The worker ends and says so; what it was at is free for others, and nothing is counted."""
    insert(tables, 5)
    died, said = iter([True]), list[str]()
    one = worker(tables, said)

    def observer(at: Step, _table: str) -> None:
        if at is step and next(died, False):
            die(tables, monkeypatch)

    with observing(observer), pytest.raises(dt.DynamicTablesError) as caught:
        one.run()
    assert (caught.value.reason, caught.value.exit_code) == (dt.Reason.ENGINE_GONE, 1)
    monkeypatch.undo()
    assert [(state.failures, state.status) for state in tables.list()] == [(0, "active")] * 4
    assert tables.store.claims() == tables.store.workers() == []
    assert len(tables.store.pending()) == 3
    assert {record.reason for record in tables.history() if record.outcome == "failed"} == {
        "ENGINE_GONE"
    }
    assert [item.returned for item in tables.store.pending()].count(1) == 1
    time_passes(tables)
    assert len(worker(tables).drain()) == 3
    assert tables.read("total").fetchall() == [(15,)]


def time_passes(tables: dt.DynamicTables) -> None:
    """What was handed back may be taken again."""
    with writing(tables.store._engine) as connection:
        connection.execute(pending_refreshes.update().values(not_before=None))


@pytest.mark.parametrize("retry_s", [10.0, 0.0])
def test_what_is_handed_back_does_not_come_again_at_once(
    tables: dt.DynamicTables, retry_s: float
) -> None:
    """Nor does it keep those who drain the queue, however short the wait is."""
    insert(tables, 5)
    tried: list[str] = []

    def observer(step: Step, table: str) -> None:
        if step is Step.PINNED and table.endswith("top"):
            tried.append(table)
            raise dt.SetupError("away", reason=dt.Reason.STORE_BROKEN, about="store")

    one = worker(tables)
    one._pace = replace(one._pace, retry_s=retry_s)
    with observing(observer):
        one.drain()
    assert len(tried) == 1
    time_passes(tables)
    with observing(observer):
        one.drain()
    assert len(tried) == 2
    if retry_s:
        [waiting] = tables.store.pending()
        assert waiting.not_before is not None
        assert waiting.returned == 2
        assert waiting.not_before - tables.store.now() > timedelta(seconds=retry_s)  # doubled
    time_passes(tables)
    worker(tables).drain()
    assert tables.store.pending() == []
    assert (tables.show("top").failures, tables.read("top").fetchall()) == (0, [(10,)])


@pytest.mark.parametrize("how", ["run", "drain"])
def test_with_a_dead_engine_nothing_is_due(
    tables: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    die(tables, monkeypatch)
    one = worker(tables)
    with pytest.raises(dt.DynamicTablesError) as caught:
        getattr(one, how)()
    assert caught.value.reason is dt.Reason.ENGINE_GONE
    assert tables.store.pending() == tables.store.workers() == []
    assert [state.behind_since for state in tables.store.tables()] == [None] * 4


def test_a_worker_works_until_it_is_stopped(tables: dt.DynamicTables) -> None:
    """The loop with its threads: it ends what it has begun, and leaves nothing behind."""
    insert(tables, 5)
    one = worker(tables)
    thread = threading.Thread(target=one.run)

    def observer(step: Step, table: str) -> None:
        if step is Step.RECORDED and table.endswith("total"):
            one.stop()

    with observing(observer):
        thread.start()
        thread.join(60)
    assert not thread.is_alive()
    assert tables.read("total").fetchall() == [(15,)]
    assert tables.store.claims() == tables.store.workers() == []


def test_list_and_show_tell_the_lag(tables: dt.DynamicTables) -> None:
    tables.alter("top", target_lag="1 hour", unset=["TRIGGER ON CHANGE"])
    tables.alter("parent", target_lag="DOWNSTREAM")
    assert tables.lags("by_hand")[0].behind_s == 0.0  # it was just loaded
    insert(tables, 5)
    worker(tables).drain()
    (lag,) = tables.lags("top")
    assert lag.target_s == 3600
    assert lag.behind_s is not None
    assert lag.behind_s > 0
    assert lag.within == 1.0
    since = behind(tables, "top")
    assert since is not None
    assert lag.next_refresh is not None
    assert since < lag.next_refresh < since + timedelta(hours=1)
    assert tables.lags("total")[0].behind_s == 0.0
    assert tables.lags("by_hand")[0].next_refresh is None
    tables.alter("total", target_lag="1 hour", unset=["TRIGGER ON CHANGE"])
    insert(tables, 6)
    worker(tables).drain()
    (lag,) = tables.lags("total")
    assert tables.lags("parent")[0].next_refresh == lag.next_refresh  # along with it
    assert lag.next_refresh is not None
    shown = StringIO()
    Console(file=shown, width=200).print(tables_table(tables.list(), tables.lags()))
    assert f"{lag.next_refresh.astimezone():%H:%M:%S}" in shown.getvalue()


def test_a_lag_that_is_ended_by_hand_counts(tables: dt.DynamicTables) -> None:
    """Nobody had looked meanwhile."""
    tables.alter("top", target_lag="1 second", unset=["TRIGGER ON CHANGE"])
    worker(tables).drain()
    insert(tables, 5)
    committed = tables.store.now()
    time.sleep(1.2)
    report = tables.refresh()
    waited = (tables.store.now() - committed).total_seconds() * 1000
    assert 1200 <= (report["top"].behind_ms or 0) <= waited + 100
    assert report["by_hand"].behind_ms is None  # nobody asks
    assert tables.refresh()["top"].behind_ms is None
    (lag,) = tables.lags("top")
    assert lag.within is not None
    assert lag.within < 1.0


def test_a_second_driver_is_refused_where_commits_may_be_lost(
    tables: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.store.enter(Claimant(owner="other", host="elsewhere", pid=-1, expires_s=60.0))
    assert worker(tables).drain() == []
    monkeypatch.setattr(type(tables.lake), "one_driver_at", ("",))
    with pytest.raises(dt.Refused) as caught:
        worker(tables).drain()
    assert caught.value.reason is dt.Reason.NO_EXCLUSION
    tables.store.leave("other")
    assert worker(tables).drain() == []


def test_a_driver_that_was_taken_for_gone_may_not_be_alone(
    tables: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It paused, another one came where two may lose each other's commits: it takes no more."""
    monkeypatch.setattr(type(tables.lake), "one_driver_at", ("",))
    one = worker(tables)
    with one._counted():
        one._stay()
        tables.store.leave(one._context.claimant.owner)  # swept out by who comes
        tables.store.enter(Claimant(owner="other", host="elsewhere", pid=-1, expires_s=60.0))
        with pytest.raises(dt.Refused):
            one._stay()
        assert one._stop.is_set()
    assert [found.owner for found in tables.store.workers()] == ["other"]


def test_a_driver_that_is_not_alone_any_more_ends_as_one_that_was_refused(
    tables: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its supervisor is to see by the exit code that it did not end by request."""
    monkeypatch.setattr(type(tables.lake), "one_driver_at", ("",))
    said: list[str] = []
    one = worker(tables, said)

    def pauses() -> None:
        tables.store.leave(one._context.claimant.owner)
        tables.store.enter(Claimant(owner="other", host="elsewhere", pid=-1, expires_s=60.0))
        one._beat()

    monkeypatch.setattr(one, "ask", pauses)
    with pytest.raises(dt.Refused) as caught:
        one.run()
    assert (caught.value.reason, caught.value.exit_code) == (dt.Reason.NO_EXCLUSION, 4)
    assert "ending; nothing is under way" in said
    assert [found.owner for found in tables.store.workers()] == ["other"]


def test_a_worker_that_was_taken_for_gone_is_counted_again(tables: dt.DynamicTables) -> None:
    """Its row was swept out while it was paused: it notices, says so, and goes on as the last."""
    said: list[str] = []
    one, other = worker(tables, said), Claimant(owner="b", host="b", pid=-1, expires_s=60.0)
    me = one._context.claimant.owner
    with one._counted():
        tables.store.leave(me)
        tables.store.enter(other)
        assert not tables.store.leads(me)
        one._stay()
        assert [found.owner for found in tables.store.workers()] == [other.owner, me]
        assert "taken for gone" in said[0]
        one._stay()
        assert len(said) == 1
        insert(tables, 5)
        one.ask()
        while one._once():
            pass
    assert tables.read("total").fetchall() == [(15,)]
    assert [found.owner for found in tables.store.workers()] == [other.owner]


def test_who_hangs_while_it_looks_lets_others_look(
    tables: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = worker(tables), Claimant(owner="b", host="b", pid=-1, expires_s=60.0)
    me = first._context.claimant
    tables.store.enter(me)
    tables.store.enter(second)

    def hangs() -> None:
        first._stay()
        assert tables.store.leads(me.owner)  # a long look is no hanging yet
        assert first._looks_since is not None
        first._looks_since -= me.expires_s + 1
        first._stay()
        assert tables.store.leads(second.owner)

    monkeypatch.setattr(first, "ask", hangs)
    first._turn()
    first._stay()
    assert tables.store.leads(second.owner)


@pytest.mark.parametrize("how", ["run", "drain"])
def test_who_only_ends_its_tables_lets_others_look(tables: dt.DynamicTables, how: str) -> None:
    """Its last refresh may take hours; it stays among the workers, and leads no more."""
    insert(tables, 5)
    one, other = worker(tables), Claimant(owner="b", host="b", pid=-1, expires_s=60.0)
    leads, main = [], threading.current_thread()

    def observer(step: Step, _table: str) -> None:
        if step is Step.PINNED and not leads:
            tables.store.enter(other)
            one.stop()
            if threading.current_thread() is main:
                one._stay()
            deadline = time.monotonic() + 60
            while not tables.store.leads(other.owner) and time.monotonic() < deadline:
                time.sleep(0.01)
            leads.append([found.owner for found in tables.store.workers()])

    with observing(observer):
        getattr(one, how)()
    assert leads == [[other.owner, one._context.claimant.owner]]


def test_a_workers_heart_beats_on_whatever_it_meets(
    tables: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    one = worker(tables, said)
    tables.store.enter(one._context.claimant)

    def stay(*_args: object) -> None:
        raise KeyError("a defect")

    monkeypatch.setattr(tables.store, "stay", stay)
    one._beat()
    assert "a defect" in said[0]
    monkeypatch.undo()
    one._beat()
    assert len(said) == 1


def test_the_time_is_the_stores(tables: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host whose clock is wrong pins the clock where all others do."""
    tables.create("dated", "SELECT id FROM orders WHERE current_date > DATE '2000-01-01'")
    late = tables.store.now() + timedelta(hours=1)
    monkeypatch.setattr(tables.store, "now", lambda: late)
    record = tables.refresh("dated").records[0]
    assert record.cut is not None
    assert record.cut.instant == late


def test_failures_have_the_time_of_the_store_too(
    tables: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """History, where hosts with other clocks write: all of it by one clock."""
    tables.create("broken", "SELECT error('no') AS e FROM orders WHERE id = 5")
    insert(tables, 5)
    late = tables.store.now() + timedelta(hours=1)
    monkeypatch.setattr(tables.store, "now", lambda: late)
    record = tables.refresh("broken", on_error="report")["broken"]
    assert record.outcome == "failed"
    assert record.started_at == late - timedelta(milliseconds=record.duration_ms)
    assert tables.history("broken")[0] == record


def test_what_did_not_even_begin_has_the_time_of_the_store(
    tables: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = worker(tables)
    insert(tables, 5)
    assert one.ask()
    tables.suspend("top")
    late = tables.store.now() + timedelta(hours=1)
    monkeypatch.setattr(tables.store, "now", lambda: late)
    while one._once():
        pass
    skipped = tables.history("top")[0]
    assert (skipped.reason, skipped.started_at) == ("SUSPENDED", late)


@pytest.mark.parametrize("query", ["SELECT min(amount) AS n FROM orders", "SELECT 7 AS n FROM top"])
def test_a_new_query_that_is_left_to_the_schedule_is_due(
    tables: dt.DynamicTables, query: str
) -> None:
    """No base table moved, and yet the rows are not those of the query."""
    tables.sql(
        "CREATE OR REPLACE DYNAMIC TABLE total TRIGGER ON CHANGE INITIALIZE = ON_SCHEDULE"
        f" AS {query}"
    )
    done = worker(tables).drain()
    assert "total" in {record.table.name for record in done}
    assert tables.verify("total").ok
    assert worker(tables).drain() == []


def test_clocks_of_workers_do_not_matter(tables: dt.DynamicTables, open_lake: OpenLake) -> None:
    """A worker whose clock is an hour off sees the same things due."""
    for hours in (-1, 1):
        insert(tables, 5 + hours)
        tables._context = type(tables._context)(
            lake=tables.lake,
            store=tables.store,
            settings=tables.settings,
            clock=lambda hours=hours: tables.store.now() + timedelta(hours=hours),
        )
        done = worker(tables).drain()
        assert {record.table.name for record in done} == {"parent", "total", "top"}
        assert tables.store.pending() == tables.store.claims() == []
