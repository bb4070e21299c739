"""The coordinator without Spark: retries, errors, time, interruption; time passes while it waits.

The store, the worker and the refresh are the real ones, lake and clock are those of the simulation.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from memory_lake import KEYS, MemoryArea, MemoryLake, MemorySlicer
from simulated import FOR_EVER_S, World
from sqlalchemy import delete

from dynamic_tables.definition import Definition
from dynamic_tables.errors import DynamicTablesError, RefreshError
from dynamic_tables.lake import faults
from dynamic_tables.lake.base import Commit
from dynamic_tables.lake.slicing import Split, StagedKeys
from dynamic_tables.model import Cut, RefreshRecord
from dynamic_tables.reasons import Reason
from dynamic_tables.refresh.claims import release_dead
from dynamic_tables.refresh.context import Context, Owner, SliceNews
from dynamic_tables.refresh.run import GraphRefresh, Request
from dynamic_tables.refresh.states import FENCE
from dynamic_tables.steps import SliceStep, observing
from dynamic_tables.store import Claimant
from dynamic_tables.store.engine import writing
from dynamic_tables.store.schema import refresh_subtasks
from dynamic_tables.store.subtasks import MAX_RETRIES, VANISHED
from dynamic_tables.worker import Worker

TABLE = "parent"
GROUPED_TABLE = "sibling"  # refreshed by keys
SLICES = 2


class Patient:
    """The store; whoever sleeps lets time pass."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world.store, name)

    def waker(self) -> Patient:
        return self

    def sleep(self, _seconds: float, _stop: threading.Event) -> None:
        self._world.now += timedelta(seconds=100)

    def close(self) -> None:
        return None


class FaultyLake(MemoryLake):
    """What breaks is the surroundings' fault, or the query's."""

    reason = Reason.ENGINE_FAILED
    keeps = False  # what was staged cannot be deleted
    alive = True

    def is_alive(self) -> bool:
        return self.alive

    def clear_slices(self, definition: Definition, up_to: int) -> None:
        if self.keeps and self._disk.staged.get(definition.table_id):
            raise PermissionError("Permission denied")
        super().clear_slices(definition, up_to)

    def told(self, error: BaseException, *, about: str) -> RefreshError:
        return RefreshError(str(error), reason=self.reason, about=about)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    for number in range(SLICES):
        made.store.enter(someone(number))
    yield made
    made.store.close()


def someone(number: int, expires_s: float = FOR_EVER_S) -> Claimant:
    """A worker that is counted, and holds what it claims for a while."""
    return Claimant(owner=f"counted-{number}", host="elsewhere", pid=1, expires_s=expires_s)


def context(
    world: World,
    host: str = "here",
    reason: Reason = Reason.ENGINE_FAILED,
    *,
    keeps: bool = False,
) -> Context:
    lake = FaultyLake(world.disk, lambda: None)
    lake.reason, lake.keeps = reason, keeps
    return Context(
        lake=cast("Any", lake),
        store=cast("Any", Patient(world)),
        settings=world.settings,
        clock=lambda: world.now,
        owner=Owner(host=host, pid=1),
    )


def refreshed(parts: Context) -> tuple[RefreshRecord, list[SliceNews]]:
    """The first table that is due, by a worker."""
    done: list[RefreshRecord] = []
    news: list[SliceNews] = []
    worker = Worker(parts, slots=1, say=print, tell=done.append, hear=news.append)
    worker.ask()
    worker._once()
    return next(record for record in done if record.table_id == TABLE), news


def by_keys(parts: Context) -> GraphRefresh:
    """The refresh of a table that is refreshed by keys."""
    return GraphRefresh(parts, Request(table_ids=frozenset({GROUPED_TABLE})))


def leave_to_people(world: World) -> None:
    """From now on no table is due by itself."""
    for state in world.store.tables():
        by_hand = replace(state.definition.options, trigger_on_change=False)
        changed = replace(state.definition, options=by_hand, revision=2)
        claim = world.store.claim(changed.table_id, "alter", someone(0))
        world.store.update_definition(claim, changed)
        world.store.release(claim)


def many_keys_change(world: World) -> None:
    """After a first load, so many that several workers share them."""
    by_keys(context(world)).run()
    for base in world.disk.bases.values():
        base.extend([world.now] * 3)


def is_right(world: World) -> bool:
    found = world.disk.tables[GROUPED_TABLE]
    cut = Cut.from_json(found.commits[-1].stamp.cut)  # ty: ignore
    return found.values[-1] == world.expected(GROUPED_TABLE, cut)


def breaking(
    monkeypatch: pytest.MonkeyPatch, times: int, says: str = "no executor is left"
) -> list[int]:
    """Let so many slices break; the numbers of those that were begun."""
    compute, begun = MemorySlicer.compute, []

    def broken(self: MemorySlicer, slicing: Any, slice_no: int, *rest: Any) -> Any:
        begun.append(slice_no)
        if len(begun) <= times:
            raise OSError(says)
        return compute(self, slicing, slice_no, *rest)

    monkeypatch.setattr(MemorySlicer, "compute", broken)
    return begun


def given_up(world: World) -> None:
    """Nothing is open or staged, and the number was taken by a fence."""
    assert world.store.intent(TABLE) is None
    assert world.store.subtasks() == []
    assert not any(world.disk.staged.values())
    assert [commit.stamp.strategy for commit in world.disk.tables[TABLE].commits] == [FENCE]  # ty: ignore


def test_a_coordinator_computes_what_nobody_takes(world: World) -> None:
    record, news = refreshed(context(world))
    assert (record.outcome, record.slices) == ("done", SLICES)
    assert [item.what for item in news] == ["created", "completed", "completed", "waited"]
    assert news[0].count == SLICES
    assert sorted(item.slice_no for item in news[1:3] if item.slice_no is not None) == [0, 1]


def test_tables_come_before_slices(world: World) -> None:
    """A slice is taken only if no table waits."""
    other = Worker(context(world, "other"), slots=1, say=print)
    once = iter([True])

    def statuses() -> list[str]:
        return sorted(item.status for item in world.store.subtasks(TABLE))

    def observer(step: SliceStep, table: str) -> None:
        if step is SliceStep.SHARED and table.endswith(TABLE) and next(once, False):
            other.ask()
            assert other._once()
            assert [r.table_id for r in world.store.history()] == [GROUPED_TABLE]
            assert statuses() == ["pending"] * SLICES
            assert other._once()
            assert statuses() == ["completed", "pending"]

    alone = GraphRefresh(context(world), Request(table_ids=frozenset({TABLE})))
    with observing(observer):
        [record] = alone.run().records
    assert (record.outcome, record.slices) == ("done", SLICES)


def test_slices_are_tried_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = breaking(monkeypatch, times=3)
    record, news = refreshed(context(world))
    assert (record.outcome, record.slices) == ("done", SLICES)
    assert len(begun) == SLICES + 3
    failed = [item for item in news if item.what == "failed"]
    assert [(item.reason, item.error) for item in failed] == [
        ("ENGINE_FAILED", "no executor is left")
    ] * 3


def test_slices_that_spark_could_not_read_in_time_are_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def as_spark(_lake: FaultyLake, error: BaseException, *, about: str) -> RefreshError:
        return faults.told(error, about=about)

    monkeypatch.setattr(FaultyLake, "told", as_spark)
    begun = breaking(monkeypatch, 3, "java.net.SocketTimeoutException: Read timed out")
    record, news = refreshed(context(world))
    assert (record.outcome, record.slices) == ("done", SLICES)
    assert len(begun) == SLICES + 3
    assert {item.reason for item in news if item.what == "failed"} == {"ENGINE_FAILED"}


def test_after_three_retries_the_refresh_fails_with_the_slices_error(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = breaking(monkeypatch, times=100)
    record, _ = refreshed(context(world))
    assert (record.outcome, record.reason) == ("failed", "ENGINE_FAILED")
    assert "no executor is left" in str(record.error)
    assert max(begun.count(number) for number in range(SLICES)) == 4
    given_up(world)


def failures(news: list[SliceNews]) -> list[tuple[str | None, str | None]]:
    return [(item.reason, item.error) for item in news if item.what == "failed"]


def test_who_takes_the_slice_of_a_worker_that_vanished_tells_that_it_failed(world: World) -> None:
    """It counts no failure of its own; and nobody else knows of it."""

    def observer(step: SliceStep, _table: str) -> None:
        if step is SliceStep.SHARED:
            assert world.store.claim_subtask(someone(0, expires_s=1.0)) is not None
            world.now += timedelta(seconds=2)

    with observing(observer):
        record, news = refreshed(context(world))
    assert (record.outcome, record.slices) == ("done", SLICES)
    assert failures(news) == [("SUBTASKS_LOST", "its worker's claim expired")]


def test_a_slice_whose_last_worker_vanished_is_told_by_the_coordinator(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, though its refresh cannot be given up at first."""

    def fails(*_args: object) -> None:
        raise OSError("the lake is away")

    def observer(step: SliceStep, _table: str) -> None:
        for _ in range(MAX_RETRIES + 1) if step is SliceStep.SHARED else ():
            assert world.store.claim_subtask(someone(0, expires_s=1.0)) is not None
            world.now += timedelta(seconds=2)

    with observing(observer), monkeypatch.context() as patch:
        patch.setattr(MemoryArea, "fence", fails)
        record, news = refreshed(context(world))
    assert record.reason == "SUBTASKS_LOST"
    assert failures(news) == [("SUBTASKS_LOST", VANISHED)]
    world.now += timedelta(seconds=1000)
    assert GraphRefresh(replace(context(world), tell=news.append), Request()).run().ok
    assert world.store.table_by_id(TABLE).build.sequence == 2  # ty: ignore
    assert failures(news) == [("SUBTASKS_LOST", VANISHED)]


def test_the_slice_of_a_dead_worker_of_this_host_is_told_once(world: World) -> None:
    news: list[SliceNews] = []
    with subprocess.Popen(["true"]) as gone:
        pass
    here = Owner()
    parts = replace(context(world), owner=here, tell=news.append)
    dead = Claimant(owner="dead", host=here.host, pid=gone.pid, expires_s=FOR_EVER_S)

    def observer(step: SliceStep, table: str) -> None:
        if step is SliceStep.SHARED and table.endswith(TABLE):
            assert world.store.claim_subtask(dead) is not None
            release_dead(parts)
            release_dead(parts)

    with observing(observer):
        record, more = refreshed(context(world))
    assert (record.outcome, record.slices) == ("done", SLICES)
    assert failures(news) == [("SUBTASKS_LOST", "its worker died")]
    assert failures(more) == []


def test_a_slice_is_not_at_fault_for_the_engine_that_died_with_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker hands it back and ends. After four in a row the slice may be what kills them:
    the refresh fails, and that counts, because the engine of its coordinator lives."""
    many_keys_change(world)
    breaking(monkeypatch, times=4)
    news: list[SliceNews] = []

    def observer(step: SliceStep, _table: str) -> None:
        if step is SliceStep.SHARED:
            for number in range(4):
                parts = context(world, f"other-{number}")
                vars(parts.lake)["alive"] = False
                worker = Worker(parts, slots=1, say=print, hear=news.append)
                assert not worker._compute()
                with pytest.raises(DynamicTablesError) as gone:
                    worker._tell_end()
                assert (gone.value.reason, gone.value.exit_code) == (Reason.ENGINE_GONE, 1)

    with observing(observer):
        [record] = by_keys(context(world)).run().records
    told = "the engine died: it answers nothing any more (no executor is left)"
    assert [(item.slice_no, item.reason, item.error) for item in news] == [
        (0, Reason.ENGINE_GONE, told)
    ] * 4
    assert (record.outcome, record.reason) == ("failed", "SUBTASKS_LOST")
    assert told in str(record.error)
    state = world.store.table_by_id(GROUPED_TABLE)
    assert state is not None
    assert state.failures == 1


def test_an_error_of_the_query_is_not_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = breaking(monkeypatch, times=100)
    record, _ = refreshed(context(world, reason=Reason.QUERY_FAILED))
    assert record.reason == "QUERY_FAILED"
    assert len(begun) == 1
    given_up(world)


def test_a_defect_in_a_slice_ends_no_worker(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would end the next one too, and the next."""

    def broken(*_args: object) -> None:
        raise ValueError("written by a newer version")

    monkeypatch.setattr(MemorySlicer, "compute", broken)
    record, news = refreshed(context(world))
    assert (record.outcome, record.reason) == ("failed", "INTERNAL")
    assert "written by a newer version" in str(record.error)
    assert [item.what for item in news].count("failed") > 1
    given_up(world)


def test_a_refresh_ends_after_its_time(world: World) -> None:
    def observer(step: SliceStep, _table: str) -> None:
        while step is SliceStep.SHARED and world.store.claim_subtask(someone(0)):
            pass

    before = world.now
    with observing(observer):
        record, _ = refreshed(context(world))
    assert record.reason == "PARALLEL_TIMEOUT"
    assert "0 of 2 slices" in str(record.error)
    assert world.now - before >= timedelta(hours=1)
    given_up(world)


def test_a_refresh_ends_after_its_time_though_there_are_slices_to_compute(world: World) -> None:
    def observer(step: SliceStep, _table: str) -> None:
        if step is SliceStep.COMPLETED:
            world.now += timedelta(hours=1, seconds=1)

    with observing(observer):
        record, _ = refreshed(context(world))
    assert record.reason == "PARALLEL_TIMEOUT"
    assert "1 of 2 slices" in str(record.error)
    given_up(world)


def test_a_worker_that_is_to_end_leaves_its_other_slices_to_a_successor(world: World) -> None:
    """SIGTERM: the slice under way is finished, the rest goes back to the queue, free at once."""
    said: list[str] = []
    ends = Worker(context(world, "first"), slots=1, say=said.append)

    def observer(step: SliceStep, _table: str) -> None:
        if step is SliceStep.COMPLETED:
            ends.stop()

    ends.ask()
    with observing(observer):
        assert not ends._once()
    assert [record.reason for record in world.store.history(TABLE)] == ["INTERRUPTED"]
    assert sorted(item.status for item in world.store.subtasks(TABLE)) == ["completed", "pending"]
    assert said[-1].endswith("parent: handed back")
    assert world.store.claims() == []
    computed: list[str] = []
    with observing(lambda step, _: computed.append(step.value)):
        refreshed(context(world, "second"))
    recovered = world.store.history(TABLE)[1]
    assert (recovered.reason, recovered.slices, recovered.sequence) == ("RECOVERED", SLICES, 1)
    assert computed.count(SliceStep.CLAIMED.value) == 1
    assert world.store.table_by_id(TABLE).failures == 0  # ty: ignore


def test_a_query_that_fails_while_its_worker_ends_has_failed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaking(monkeypatch, times=1)
    ends = Worker(context(world, reason=Reason.QUERY_FAILED), slots=1, say=print)
    ends.ask()
    with observing(lambda step, _: ends.stop() if step is SliceStep.CLAIMED else None):
        ends._once()
    assert [record.reason for record in world.store.history(TABLE)] == ["QUERY_FAILED"]
    given_up(world)


def after_one_slice(world: World, refresh: GraphRefresh) -> Callable[[SliceStep, str], None]:
    """Another takes one of the slices; when the coordinator has the other one, the user says
    stop."""

    def observer(step: SliceStep, _table: str) -> None:
        if step is SliceStep.SHARED:
            assert world.store.claim_subtask(someone(0, expires_s=1000.0)) is not None
        if step is SliceStep.COMPLETED:
            refresh._stopping.set()

    return observer


def test_who_is_interrupted_leaves_finished_slices_to_a_successor(world: World) -> None:
    refresh = GraphRefresh(context(world, "first"), Request(table_ids=frozenset({TABLE})))
    with observing(after_one_slice(world, refresh)):
        [record] = refresh.run().records
    assert record.reason == "INTERRUPTED"
    left = world.store.subtasks()
    assert sorted(item.status for item in left) == ["claimed", "completed"]
    world.now += timedelta(seconds=2000)
    computed: list[str] = []
    with observing(lambda step, _: computed.append(step.value)):
        record, _ = refreshed(context(world, "second"))
    first = world.store.history(TABLE)[-2]
    assert (first.reason, first.slices, first.sequence) == ("RECOVERED", SLICES, 1)
    assert computed.count(SliceStep.CLAIMED.value) == 1
    assert world.store.intent(TABLE) is None


def test_who_coordinates_by_hand_and_dies_has_a_successor(world: World) -> None:
    """No request brings its table back: whoever looks asks for it, at the very cut."""
    many_keys_change(world)
    leave_to_people(world)
    looks = Worker(context(world), slots=1, say=print)

    def dies(step: SliceStep, _table: str) -> None:
        if step is SliceStep.SHARED:
            assert looks.ask() == []  # somebody is at it
            raise KeyboardInterrupt

    with observing(dies), pytest.raises(KeyboardInterrupt):
        by_keys(context(world, "by hand")).run()
    left = world.store.intent(GROUPED_TABLE)
    assert left is not None
    world.disk.bases["orders"].append(world.now)
    assert looks.ask() == [GROUPED_TABLE]
    assert [item.cut for item in world.store.pending()] == [left.cut]
    assert looks.ask() == []  # it waits already
    assert looks._once()
    recovered = world.store.history(GROUPED_TABLE)[0]
    assert (recovered.reason, recovered.cut, recovered.slices) == ("RECOVERED", left.cut, 2)
    assert world.store.intent(GROUPED_TABLE) is None
    assert is_right(world)
    assert not any(world.disk.staged.values())
    assert looks.ask() == []


def test_a_successor_merges_the_finished_keys(world: World) -> None:
    many_keys_change(world)
    first = by_keys(context(world, "first"))
    with observing(after_one_slice(world, first)):
        [record] = first.run().records
    assert (record.reason, world.disk.tables[GROUPED_TABLE].sequence) == ("INTERRUPTED", 1)
    assert "2/keys" in world.disk.staged[GROUPED_TABLE]
    world.now += timedelta(seconds=2000)
    world.disk.bases["orders"].append(world.now)
    computed: list[str] = []
    with observing(lambda step, _: computed.append(step.value)):
        by_keys(context(world, "second")).run()
    last, recovered, *_ = world.store.history(GROUPED_TABLE)
    assert (recovered.reason, recovered.strategy, recovered.slices) == ("RECOVERED", "keys", 2)
    assert (last.reason, last.strategy, last.slices) == ("CHANGED", "keys", None)  # of one key
    assert computed.count(SliceStep.CLAIMED.value) == 1
    assert is_right(world)
    assert not any(world.disk.staged.values())


def test_a_successor_notices_what_somebody_else_wrote_meanwhile(world: World) -> None:
    """Slices of keys mend the affected keys only: what else is wrong would stay, unnoticed."""
    many_keys_change(world)
    first = by_keys(context(world, "first"))
    with observing(after_one_slice(world, first)):
        [record] = first.run().records
    assert record.reason == "INTERRUPTED"
    spoil(world)
    world.now += timedelta(seconds=2000)
    [record] = by_keys(context(world, "second")).run().records
    assert (record.strategy, record.reason) == ("full", "FOREIGN_CHANGE")
    assert is_right(world)
    assert world.store.intent(GROUPED_TABLE) is None
    assert not any(world.disk.staged.values())


def spoil(world: World) -> None:
    """Somebody writes to a table of ours."""
    stored = world.disk.tables[GROUPED_TABLE]
    version = len(stored.commits)
    stored.commits.append(
        Commit(version=version, operation="WRITE", changes_data=True, stamp=None, metrics={})
    )
    stored.values.append((GROUPED_TABLE, *((key, "foreign") for key in KEYS)))


@pytest.mark.parametrize("lost", [[0], range(SLICES)])
def test_slices_that_the_store_has_lost_are_not_left_out(world: World, lost: list[int]) -> None:
    """Somebody cleans up by hand: what is left must not be taken for everything."""

    def observer(step: SliceStep, _table: str) -> None:
        if step is SliceStep.SHARED:
            with writing(world.store._engine) as connection:
                gone = refresh_subtasks.c.slice_no.in_(list(lost))
                connection.execute(delete(refresh_subtasks).where(gone))

    with observing(observer):
        record, _ = refreshed(context(world))
    assert (record.outcome, record.reason) == ("failed", "SUBTASKS_LOST")
    given_up(world)


def test_keys_that_could_not_be_staged_leave_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    many_keys_change(world)
    stage = MemorySlicer.stage_keys

    def half(self: MemorySlicer, split: Split) -> StagedKeys:
        stage(self, split)
        raise OSError("no space is left")

    with monkeypatch.context() as patch:
        patch.setattr(MemorySlicer, "stage_keys", half)
        [record] = by_keys(context(world)).run().records
    assert (record.outcome, record.reason) == ("failed", "ENGINE_FAILED")
    assert not any(world.disk.staged.values())
    [record] = by_keys(context(world)).run().records
    assert (record.strategy, record.slices, record.sequence) == ("keys", SLICES, 3)
    assert is_right(world)


KEPT = "what was staged in _slices could not be deleted: Permission denied"


def test_what_cannot_be_deleted_is_told_and_fails_no_refresh(world: World) -> None:
    """The rows are committed. Whoever refreshes the table next tries again, as often as it takes;
    at last somebody may."""
    many_keys_change(world)
    for expected in (2, 3):
        [record] = by_keys(context(world, keeps=True)).run().records
        assert (record.outcome, record.slices, record.sequence) == ("done", SLICES, expected)
        assert record.note == KEPT
        assert world.store.history(GROUPED_TABLE)[0] == record
        assert world.store.intent(GROUPED_TABLE) is None
        world.disk.bases["orders"].extend([world.now] * 3)
    assert {place[0] for place in world.disk.staged[GROUPED_TABLE]} == {"2", "3"}
    [record] = by_keys(context(world)).run().records
    assert (record.outcome, record.note) == ("done", None)
    assert not any(world.disk.staged.values())
    assert is_right(world)


def test_a_failed_refresh_is_closed_though_its_staging_stays(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    many_keys_change(world)
    with monkeypatch.context() as patch:
        breaking(patch, times=100)
        [record] = by_keys(context(world, reason=Reason.QUERY_FAILED, keeps=True)).run().records
    assert record.reason == "QUERY_FAILED"
    assert KEPT in str(record.error)
    assert world.store.intent(GROUPED_TABLE) is None
    assert world.store.subtasks() == []
    [record] = by_keys(context(world)).run().records
    assert (record.outcome, record.sequence) == ("done", 3)
    assert not any(world.disk.staged.values())
