"""A process that was taken for dead in the middle of a commit: what it does too late is what its
successor records, once and as it is; and what nobody else would come back to is completed.

The store and the refresh are the real ones, lake and clock are those of the simulation.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from memory_lake import MemoryArea, MemoryLake, MemorySlicer
from simulated import EXPIRES_S, World
from test_sharing import (
    GROUPED_TABLE,
    SLICES,
    breaking,
    by_keys,
    context,
    is_right,
    leave_to_people,
    someone,
)

from dynamic_tables.definition import Definition
from dynamic_tables.errors import Held, RefreshError, RefreshFailed, SetupError
from dynamic_tables.model import Cut, Intent, Outcome, RefreshRecord, Status
from dynamic_tables.reasons import Reason
from dynamic_tables.refresh.run import GraphRefresh, Request
from dynamic_tables.steps import AnyStep, SliceStep, Step, observing
from dynamic_tables.store import Store, WantedRefresh
from dynamic_tables.worker import Worker

PATIENCE_S = 60
KEYS = {None: 1, SLICES: 3}  # so many change where one worker, or several, refresh them


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    by_keys(context(made)).run()
    yield made
    made.store.close()


def change(world: World, slices: int | None) -> None:
    """So many keys that the next refresh is shared among so many."""
    for number in range(slices or 0):
        world.store.enter(someone(number))
    world.disk.bases["orders"].extend([world.now] * KEYS[slices])


@dataclass
class Predecessor:
    """A refresh that stops in the middle of its commit, until it is told to go on."""

    thread: threading.Thread
    is_there: threading.Event = field(default_factory=threading.Event)
    may_go: threading.Event = field(default_factory=threading.Event)

    def stop(self) -> None:
        """In its own thread, at the first call."""
        if not self.is_there.is_set():
            self.is_there.set()
            assert self.may_go.wait(PATIENCE_S)

    def go_on(self) -> None:
        """To its end."""
        self.may_go.set()
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()


@contextmanager
def overtaken(
    world: World, step: AnyStep, run: Callable[[], Any] | None = None, *, meets: bool = True
) -> Iterator[Predecessor]:
    """Its claim has expired when the block begins; if they meet, it goes on when its successor
    comes as far."""
    run = run or by_keys(context(world, "first")).run
    first = Predecessor(threading.Thread(target=run))

    def observer(reached: AnyStep, _table: str) -> None:
        if reached is not step:
            return
        if first.is_there.is_set():
            if meets:
                first.go_on()
        else:
            first.stop()

    with observing(observer):
        first.thread.start()
        assert first.is_there.wait(PATIENCE_S)
        world.now += timedelta(seconds=EXPIRES_S + 1)
        yield first


def succeeded(world: World) -> list[RefreshRecord]:
    """What the successor tells whoever counts, besides the record that it returns."""
    told: list[RefreshRecord] = []
    second = replace(context(world, "second"), completed=told.append)
    [record] = by_keys(second).run().records
    assert (record.outcome, record.reason) == ("done", "NOT_MOVED")
    return told


def check_recorded_once(world: World, told: list[RefreshRecord], slices: int | None) -> None:
    """What the predecessor committed by keys, though its successor would have recomputed."""
    stored, history = world.disk.tables[GROUPED_TABLE], world.store.history(GROUPED_TABLE)
    assert [commit.stamp.sequence for commit in stored.commits] == [1, 2]  # ty: ignore
    late = stored.commits[-1]
    written = [r for r in history if r.outcome is Outcome.DONE and r.strategy != "no_data"]
    [done, _first_load] = written
    assert (done.reason, done.strategy, done.sequence) == ("RECOVERED", "keys", 2)
    assert (done.version, done.slices) == (late.version, slices)
    assert done.work.rows_inserted == int(late.metrics["numOutputRows"])
    assert told == [done]
    failed = [r for r in history if r.outcome is Outcome.FAILED]
    assert [r.reason for r in failed] == ["TAKEN_OVER"]
    assert "records nothing" in str(failed[0].error)
    state = world.store.table_by_id(GROUPED_TABLE)
    assert state is not None
    assert state.build is not None
    assert (state.build.sequence, state.build.version, state.failures) == (2, late.version, 0)
    assert world.store.intent(GROUPED_TABLE) is None
    assert world.store.subtasks() == world.store.claims() == []
    assert not any(world.disk.staged.values())
    assert is_right(world)


@pytest.mark.parametrize("slices", [None, SLICES])
def test_a_commit_that_landed_before_its_successor_looked(world: World, slices: int | None) -> None:
    change(world, slices)
    with overtaken(world, Step.COMMITTED) as first:
        told = succeeded(world)
        first.go_on()
    check_recorded_once(world, told, slices)


@pytest.mark.parametrize("slices", [None, SLICES])
def test_a_commit_that_lands_when_its_successor_is_about_to(
    world: World, slices: int | None
) -> None:
    """The successor's own commit is skipped: it has the same number."""
    change(world, slices)
    with overtaken(world, Step.LOCKED):
        told = succeeded(world)
    check_recorded_once(world, told, slices)


def test_a_commit_that_lands_while_its_successor_gathers(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose slices are gone then, so that it gives up; and finds that nothing is to be given up."""
    change(world, SLICES)
    gather = MemorySlicer.gather
    with overtaken(world, Step.LOCKED) as first:

        def too_late(self: MemorySlicer, *args: Any) -> Any:
            first.go_on()
            return gather(self, *args)

        monkeypatch.setattr(MemorySlicer, "gather", too_late)
        told = succeeded(world)
    check_recorded_once(world, told, SLICES)


def test_a_commit_that_lands_when_its_successor_gives_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(world, None)
    fence = MemoryArea.fence
    with overtaken(world, Step.LOCKED) as first:

        def broken(*_args: object) -> None:
            raise OSError("no executor is left")

        def too_late(self: MemoryArea, *args: Any) -> None:
            first.go_on()
            fence(self, *args)

        monkeypatch.setattr(MemoryArea, "compute", broken)
        monkeypatch.setattr(MemoryArea, "fence", too_late)
        told = succeeded(world)
    check_recorded_once(world, told, None)


def test_a_commit_that_lands_when_that_of_its_successor_failed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(world, None)
    fence = MemoryArea.fence
    first = Predecessor(threading.Thread(target=by_keys(context(world, "first")).run))

    def observer(step: AnyStep, table: str) -> None:
        if step is Step.LOCKED and first.is_there.is_set():
            raise RefreshError("no", reason=Reason.COMMIT_FAILED, about=table)
        if step is Step.LOCKED:
            first.stop()

    def too_late(self: MemoryArea, *args: Any) -> None:
        first.go_on()
        fence(self, *args)

    monkeypatch.setattr(MemoryArea, "fence", too_late)
    with observing(observer):
        first.thread.start()
        assert first.is_there.wait(PATIENCE_S)
        world.now += timedelta(seconds=EXPIRES_S + 1)
        told = succeeded(world)
    check_recorded_once(world, told, None)


def test_who_lost_its_claim_while_it_waited_for_the_lock_writes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(world, None)
    lock = MemoryLake.commit_lock

    @contextmanager
    def late(self: MemoryLake, definition: Definition) -> Iterator[None]:
        monkeypatch.undo()
        world.now += timedelta(seconds=EXPIRES_S + 1)
        world.store.claim(definition.table_id, "successor", someone(0))
        with lock(self, definition):
            yield

    monkeypatch.setattr(MemoryLake, "commit_lock", late)
    [record] = by_keys(context(world, "first")).run().records
    assert (record.outcome, record.reason) == ("failed", "TAKEN_OVER")
    assert len(world.disk.tables[GROUPED_TABLE].commits) == 1
    assert world.store.intent(GROUPED_TABLE) is not None


@pytest.mark.parametrize("one_driver_at", [(), ("file:/lake",)])
def test_a_store_that_is_away_under_the_lock_throws_no_work_away(
    world: World, monkeypatch: pytest.MonkeyPatch, one_driver_at: tuple[str, ...]
) -> None:
    """But where two drivers may lose each other's commits, who cannot ask does not write."""
    change(world, None)
    heartbeat = Store.heartbeat

    def away(*_args: object) -> bool:
        monkeypatch.setattr(Store, "heartbeat", heartbeat)
        raise SetupError("the store restarts", reason=Reason.STORE_BROKEN)

    def observer(step: AnyStep, _table: str) -> None:
        if step is Step.INTENDED:
            monkeypatch.setattr(Store, "heartbeat", away)

    monkeypatch.setattr(MemoryLake, "one_driver_at", one_driver_at)
    with observing(observer):
        [record] = by_keys(context(world)).run().records
    if one_driver_at:
        assert (record.outcome, record.reason) == ("failed", "STORE_BROKEN")
        assert len(world.disk.tables[GROUPED_TABLE].commits) == 1
        assert world.store.intent(GROUPED_TABLE) is not None
    else:
        assert (record.outcome, record.strategy, record.sequence) == ("done", "keys", 2)
        assert is_right(world)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_defect_in_telling_how_a_table_ended_stops_nothing_else(
    world: World, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    """Neither the jobs of other tables, which come to their end, nor the worker."""
    change(world, None)
    cancelled = threading.Event()
    monkeypatch.setattr(MemoryLake, "cancel", lambda _lake: cancelled.set())

    def broken(*_args: object) -> None:
        raise ZeroDivisionError

    def fails(step: AnyStep, table: str) -> None:
        if step is Step.PINNED and table.endswith("parent"):
            raise RefreshError("no", reason=Reason.QUERY_FAILED, about=table)

    monkeypatch.setattr(GraphRefresh, "_failed", broken)
    stopping = threading.Event()
    settings = replace(world.settings, values={**world.settings.values, "threads": threads})
    both = Request(table_ids=frozenset({"parent", GROUPED_TABLE}))
    refresh = GraphRefresh(replace(context(world), settings=settings), both, stopping=stopping)
    with observing(fails), pytest.raises(ZeroDivisionError):
        refresh.run()
    assert not cancelled.is_set()
    assert not stopping.is_set()
    assert world.store.history(GROUPED_TABLE)[0].sequence == 2
    assert world.store.claims() == []


def test_a_predecessor_that_gives_up_too_late(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its fence has the number: what the successor completed is skipped, and it goes on with the
    number after."""
    change(world, None)
    fence, fails = MemoryArea.fence, iter([True])
    first = Predecessor(threading.Thread(target=by_keys(context(world, "first")).run))

    def paused(self: MemoryArea, *args: Any) -> None:
        first.stop()
        fence(self, *args)

    def observer(step: AnyStep, table: str) -> None:
        if step is Step.LOCKED:
            if next(fails, False):
                raise RefreshError("no", reason=Reason.COMMIT_FAILED, about=table)
            first.go_on()

    monkeypatch.setattr(MemoryArea, "fence", paused)
    with observing(observer):
        first.thread.start()
        assert first.is_there.wait(PATIENCE_S)
        world.now += timedelta(seconds=EXPIRES_S + 1)
        [record] = by_keys(context(world, "second")).run().records
    assert world.store.intent(GROUPED_TABLE) is None
    assert (record.outcome, record.strategy, record.sequence) == ("done", "keys", 3)
    assert is_right(world)


@pytest.mark.parametrize(
    "step", [*(s for s in Step if s not in (Step.DEFINED, Step.LAID_OUT)), *SliceStep]
)
def test_who_wakes_up_when_its_successor_is_through_changes_nothing(
    world: World, step: AnyStep
) -> None:
    """A coordinator, wherever it was; neither in the store nor in the lake."""
    change(world, SLICES)
    with overtaken(world, step, meets=False) as first:
        [record] = by_keys(context(world, "second")).run().records
        assert record.outcome == "done"
        assert (world.store.subtasks(), any(world.disk.staged.values())) == ([], False)
        before = standing(world)
        first.go_on()
        assert standing(world) == before
    failed = [r.reason for r in world.store.history(GROUPED_TABLE) if r.outcome is Outcome.FAILED]
    is_through = step in (Step.RECORDED, Step.RELEASED)
    assert failed == ([] if is_through else ["TAKEN_OVER"])
    change(world, SLICES)
    assert by_keys(context(world, "third")).run().ok  # finds what was staged too late
    assert not any(world.disk.staged.values())
    assert is_right(world)


def standing(world: World) -> list[object]:
    """What the store tells of the table, but for history, and all its commits."""
    store = world.store
    told = store.table_by_id(GROUPED_TABLE), store.intent(GROUPED_TABLE), store.subtasks()
    return [*told, store.claims(), [*world.disk.tables[GROUPED_TABLE].commits]]


@pytest.mark.parametrize(("step", "strategy"), [(Step.INTENDED, "full"), (Step.COMMITTED, "keys")])
def test_a_refresh_by_hand_that_died_has_a_successor(
    world: World, step: Step, strategy: str
) -> None:
    """No request brings its table back: whoever looks asks for it, at the very cut."""
    leave_to_people(world)
    change(world, None)
    looks = Worker(context(world), slots=1, say=print)

    def dies(reached: AnyStep, _table: str) -> None:
        if reached is step:
            assert looks.ask() == []  # somebody is at it
            raise KeyboardInterrupt

    with observing(dies), pytest.raises(KeyboardInterrupt):
        by_keys(context(world, "by hand")).run()
    left = world.store.intent(GROUPED_TABLE)
    assert left is not None
    world.disk.bases["orders"].append(world.now)
    assert looks.ask() == [GROUPED_TABLE]
    assert looks.ask() == []  # it waits already
    assert looks._once()
    recovered = world.store.history(GROUPED_TABLE)[0]
    assert (recovered.reason, recovered.strategy) == ("RECOVERED", strategy)
    assert (recovered.cut, recovered.sequence) == (left.cut, left.sequence)
    assert world.store.intent(GROUPED_TABLE) is None
    assert is_right(world)
    assert looks.ask() == []


def left_open(world: World) -> Intent:
    """`child` was loaded, and died in the middle of a refresh by hand; its parents went on."""
    leave_to_people(world)
    with_parents(world).run()
    change(world, None)
    with observing(dying_at(Step.INTENDED, "child")), pytest.raises(KeyboardInterrupt):
        with_parents(world).run()
    left = world.store.intent("child")
    assert left is not None
    world.disk.bases["orders"].append(world.now)
    assert by_keys(context(world)).run().ok
    return left


def with_parents(world: World) -> GraphRefresh:
    return GraphRefresh(context(world), Request(table_ids=frozenset({"child"}), upstream=True))


def dying_at(step: Step, table_id: str) -> Callable[[AnyStep, str], None]:
    def dies(reached: AnyStep, table: str) -> None:
        if reached is step and table.endswith(table_id):
            raise KeyboardInterrupt

    return dies


def test_what_was_left_open_is_completed_and_no_more(world: World) -> None:
    """Nobody asked for what its parents have become since."""
    left = left_open(world)
    told: list[RefreshRecord] = []
    looks = Worker(context(world), slots=1, say=print, tell=told.append)
    before = len(world.store.history("child"))
    assert looks.ask() == ["child"]
    assert looks._once()
    recovered, *earlier = world.store.history("child")
    assert len(earlier) == before
    assert (recovered.reason, recovered.trigger) == ("RECOVERED", "recovery")
    assert (recovered.cut, recovered.sequence) == (left.cut, left.sequence)
    assert told == [recovered]
    assert world.store.pending() == world.store.claims() == looks.ask() == []


def test_what_was_left_open_and_fails_is_run_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number is given up; on the same data the query would fail again."""
    left_open(world)
    computed: list[str] = []

    def fails(_area: MemoryArea, definition: Definition, *_: object) -> None:
        computed.append(definition.table_id)
        raise OSError("division by zero")

    monkeypatch.setattr(MemoryArea, "compute", fails)
    looks = Worker(context(world, reason=Reason.QUERY_FAILED), slots=1, say=print)
    assert looks.ask() == ["child"]
    assert looks._once()
    failed, state = world.store.history("child")[0], world.store.table_by_id("child")
    assert (failed.outcome, failed.reason, failed.trigger) == ("failed", "QUERY_FAILED", "recovery")
    assert computed == ["child"]
    assert state is not None
    assert state.failures == 1
    assert world.store.intent("child") is None
    assert world.store.pending() == world.store.claims() == looks.ask() == []


def test_what_others_completed_meanwhile_is_left_alone(world: World) -> None:
    left_open(world)
    looks = Worker(context(world), slots=1, say=print)
    assert looks.ask() == ["child"]
    assert with_parents(world).run().ok
    world.disk.bases["orders"].append(world.now)
    assert by_keys(context(world)).run().ok
    before = world.store.history("child")
    assert looks._once()
    assert world.store.history("child") == before
    assert world.store.pending() == world.store.claims() == looks.ask() == []


def kept_away(step: AnyStep, table: str) -> None:
    if step is Step.LOCKED and table.endswith(GROUPED_TABLE):
        raise Held("another one is at it", reason=Reason.TAKEN_OVER, about=table)


def test_who_lost_its_claim_has_nothing_to_hand_back(world: World) -> None:
    """The refresh that it finds open is its successor's."""
    change(world, None)
    wanted = {"table_id": GROUPED_TABLE, "trigger": "schedule", "behind_since": None}
    cut = Cut(versions={"id-orders": 1, "id-items": 0}, instant=world.now)
    world.store.request(WantedRefresh(**wanted, refresh_id="r", cut=cut))
    said: list[str] = []
    worker = Worker(context(world, "first"), slots=1, say=said.append)
    with overtaken(world, Step.LOCKED, worker._once):
        succeeded(world)
    assert world.store.history(GROUPED_TABLE)[-2].reason == "TAKEN_OVER"
    assert said == []


def test_a_table_below_one_that_stays_open_is_told(world: World) -> None:
    """It waits for the next attempt, and nothing is said about it that is not so."""
    change(world, None)
    told: list[RefreshRecord] = []
    looks = Worker(context(world), slots=1, say=print, tell=told.append)
    assert set(looks.ask()) == {"parent", GROUPED_TABLE, "child"}
    with observing(kept_away):
        while looks._once():
            pass
    assert told[-1].table_id == "child"
    assert [r.reason for r in told if r.table_id != "parent"] == ["TAKEN_OVER"] * 2
    assert [item.table_id for item in world.store.pending()] == [GROUPED_TABLE]
    check_not_failed(world, "child")


def test_a_parent_that_was_taken_over_fails_no_child(world: World) -> None:
    change(world, None)
    with observing(kept_away):
        report = with_parents(world).run()
    assert [r.reason for r in report.failed] == ["TAKEN_OVER"] * 2
    assert RefreshFailed(report).exit_code_for_cli == Held.exit_code
    check_not_failed(world, "child")


def check_not_failed(world: World, table_id: str) -> None:
    state = world.store.table_by_id(table_id)
    assert state is not None
    assert (state.failures, state.failure) == (0, None)


def test_what_stays_open_is_tried_later_and_later(world: World) -> None:
    """Whoever looks finds it left open each time, and nothing about the table tells it to wait. A
    claim that stands in the way is gone when it expires."""
    leave_to_people(world)
    change(world, None)
    looks = Worker(context(world), slots=1, say=print)
    with observing(dying_at(Step.INTENDED, GROUPED_TABLE)), pytest.raises(KeyboardInterrupt):
        by_keys(context(world, "by hand")).run()
    assert looks.ask() == [GROUPED_TABLE]
    waits = []
    with observing(kept_away):
        for _ in range(5):
            assert looks._once()
            assert looks.ask() == []
            assert not looks._once()
            [waiting] = world.store.pending()
            assert waiting.not_before is not None
            waits.append((waiting.not_before - world.now).total_seconds())
            world.now = waiting.not_before
    assert waits == [10, 20, 40, EXPIRES_S, EXPIRES_S]
    assert looks._once()
    assert world.store.intent(GROUPED_TABLE) is None
    assert world.store.pending() == []
    assert is_right(world)


@pytest.mark.parametrize("away", [1, 3])
def test_what_could_not_be_given_up_is_given_up_when_the_lake_is_back(
    world: World, monkeypatch: pytest.MonkeyPatch, away: int
) -> None:
    """The query is not tried again on the same data; its number and its staging need not wait for
    other data."""
    leave_to_people(world)
    change(world, SLICES)
    breaking(monkeypatch, times=100)
    fence, times = MemoryArea.fence, iter([True] * away)

    def fails(self: MemoryArea, *args: Any) -> None:
        if next(times, False):
            raise OSError("the lake is away")
        fence(self, *args)

    monkeypatch.setattr(MemoryArea, "fence", fails)
    cut = Cut(versions={"id-orders": KEYS[SLICES], "id-items": 0}, instant=world.now)
    wanted = {"table_id": GROUPED_TABLE, "trigger": "schedule", "behind_since": None}
    world.store.request(WantedRefresh(**wanted, refresh_id="r", cut=cut))
    looks = Worker(context(world, reason=Reason.QUERY_FAILED), slots=1, say=print)
    assert looks._once()
    for failures in range(away):
        assert world.store.intent(GROUPED_TABLE) is not None
        assert world.store.pending() == looks.ask() == []  # the back-off has not passed
        world.now += timedelta(seconds=10 * 2**failures)
        assert looks.ask() == [GROUPED_TABLE]
        assert looks._once()
    assert {r.reason for r in world.store.history(GROUPED_TABLE)[:-1]} == {Reason.QUERY_FAILED}
    assert world.store.left_open() == world.store.subtasks() == world.store.claims() == []
    assert not any(world.disk.staged.values())
    world.now += timedelta(days=1)
    assert looks.ask() == []  # on the same data it would fail again


@pytest.mark.parametrize("step", [SliceStep.SHARED, Step.COMMITTED])
def test_a_suspended_table_keeps_nothing_of_a_coordinator_that_died(
    world: World, step: AnyStep
) -> None:
    """Its number is given up, or its commit recorded; the next refresh comes when it is resumed."""
    change(world, SLICES)
    looks = Worker(context(world), slots=1, say=print)

    def dies(reached: AnyStep, _table: str) -> None:
        if reached is step:
            world.store.set_status(GROUPED_TABLE, Status.SUSPENDED, "by hand")
            looks.ask()
            assert world.store.intent(GROUPED_TABLE) is not None  # somebody is at it
            raise KeyboardInterrupt

    with observing(dies), pytest.raises(KeyboardInterrupt):
        by_keys(context(world, "by hand")).run()
    assert world.store.subtasks(GROUPED_TABLE) != []
    versions = len(world.disk.tables[GROUPED_TABLE].commits)
    assert GROUPED_TABLE not in looks.ask()
    assert GROUPED_TABLE not in looks.ask()
    assert world.store.intent(GROUPED_TABLE) is None
    assert world.store.subtasks() == world.store.claims() == []
    assert not world.disk.staged.get(GROUPED_TABLE)
    given_up = step is SliceStep.SHARED
    commits = world.disk.tables[GROUPED_TABLE].commits
    assert len(commits) == versions + given_up
    state = world.store.table_by_id(GROUPED_TABLE)
    assert state is not None
    assert state.status is Status.SUSPENDED
    world.store.set_status(GROUPED_TABLE, Status.ACTIVE)
    [record] = by_keys(context(world)).run().records
    done = ("done", "keys", 3) if given_up else ("done", "no_data", 2)
    assert (record.outcome, record.strategy, record.sequence) == done
    assert is_right(world)


def test_what_cannot_be_given_up_is_tried_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(world, SLICES)

    def dies(reached: AnyStep, _table: str) -> None:
        if reached is SliceStep.SHARED:
            raise KeyboardInterrupt

    with observing(dies), pytest.raises(KeyboardInterrupt):
        by_keys(context(world, "by hand")).run()
    world.store.set_status(GROUPED_TABLE, Status.SUSPENDED, "by hand")
    tried = []

    def fails(_area: MemoryArea, definition: Definition, _stamp: Any) -> None:
        tried.append(definition.table_id)
        raise OSError("no")

    looks = Worker(context(world), slots=1, say=print)
    with monkeypatch.context() as patch:
        patch.setattr(MemoryArea, "fence", fails)
        looks.ask()
        looks.ask()
    assert tried == [GROUPED_TABLE]
    assert world.store.intent(GROUPED_TABLE) is not None
    Worker(context(world), slots=1, say=print).ask()
    assert world.store.intent(GROUPED_TABLE) is None


def test_a_table_that_is_dropped_under_its_coordinator_leaves_nothing_open(world: World) -> None:
    change(world, SLICES)

    def drops(step: AnyStep, table: str) -> None:
        if step is SliceStep.SHARED and table.endswith("child"):
            world.now += timedelta(seconds=EXPIRES_S + 1)
            claim = world.store.claim("child", "drop", someone(0))
            world.store.delete_tables(["child"], [claim])

    with observing(drops):
        refresh = GraphRefresh(
            context(world), Request(table_ids=frozenset({"child"}), upstream=True)
        )
        *_, record = refresh.run().records
    assert (record.table_id, record.outcome) == ("child", "failed")
    assert record.reason == "UNKNOWN_TABLE"
    assert world.store.left_open() == world.store.subtasks() == world.store.claims() == []
    assert Worker(context(world), slots=1, say=print).ask() == []
