"""Coordinators and workers with a slice are killed or stopped: successors use what is finished.

No worker is needed to share a refresh: some that are counted and never come are enough, because a
coordinator computes slices itself while it waits.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import cycle, product

import pytest
from harness import PATIENCE_S, Plan, run_victim, start_victim, wait_for, wait_until_stopped
from sliced import (
    IN_REFRESH,
    OVER,
    UNNUMBERED,
    AnyStep,
    Pause,
    SlicedLake,
    lose_a_worker,
    overtaken,
    pause_a_worker,
    slice_worker,
    sliced_lake,
)

from dynamic_tables.reasons import Reason
from dynamic_tables.steps import SliceStep, Step, observing
from dynamic_tables.store import Claimant

pytestmark = pytest.mark.spark

AS_COORDINATOR = (*IN_REFRESH, *SliceStep)
AS_WORKER = (SliceStep.CLAIMED, SliceStep.WRITTEN, SliceStep.COMPLETED)
# Where a coordinator can be while others have slices: it waits, or has one itself.
BESIDE_WORKERS = (SliceStep.SHARED, *AS_WORKER)
FEW = (SliceStep.KEYS_STAGED, SliceStep.SHARED, SliceStep.WRITTEN, SliceStep.GATHERED)
# How far the refresh is when a worker goes on that was stopped: open, committed, over.
UNTIL = (SliceStep.GATHERED, SliceStep.CLEARED, Step.RELEASED)
INTERRUPTED = 2  # the number of the refresh after the first load
NOTHING_OPEN = (*UNNUMBERED, *OVER)
# Who has lost its JVM needs none any more, but to clear away, which the next refresh does.
ONLY_STORE_LEFT = (Step.REGISTERED, SliceStep.CLEARED)
STORES = pytest.mark.parametrize("store", ["sqlite", "postgresql"])
MakeLake = Callable[..., SlicedLake]


@pytest.fixture(scope="module")
def make_lake(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MakeLake]:
    with ExitStack() as opened:

        def make(size: int, store: str = "sqlite") -> SlicedLake:
            folder = tmp_path_factory.mktemp("slices") / "lake"
            url = ""
            if store == "postgresql":
                url = request.getfixturevalue("postgres").new_database()
            return opened.enter_context(sliced_lake(folder, size=size, store=url, lock_wait_s=2))

        yield make


def survive(lake: SlicedLake, kind: str, steps: tuple[AnyStep, ...]) -> None:
    """Kill coordinators at these steps; whoever refreshes next goes on with what is there."""
    lake.change()
    plan = {f"t{n}": step for n, step in enumerate(steps)}
    run_victim(lake.folder, kind, plan, lake.environment())
    go_on(lake, kind, plan)


def go_on(lake: SlicedLake, kind: str, plan: Plan) -> None:
    """Refresh what coordinators left at these steps: of slices, only those that are not there."""
    tables = lake.tables
    left = [item for item in tables.store.subtasks() if item.status != "completed"]
    open_slices = Counter(item.dynamic_table for item in left)
    lake.change()
    computed: Counter[str] = Counter()
    recorded: set[str] = set()

    def observer(step: AnyStep, table: str) -> None:
        if step is SliceStep.CLAIMED and table not in recorded:
            computed[table] += 1
        if step is Step.RECORDED:
            recorded.add(table)

    with observing(observer):
        report = tables.refresh()
    assert report.ok, report
    lake.check()
    for name, step in plan.items():
        table = str(tables.show(name).definition.name)
        if kind == "python" and step not in (*NOTHING_OPEN, Step.INTENDED, SliceStep.KEYS_STAGED):
            assert computed[table] == open_slices[table], (name, step)  # finished ones were used
        alone = kind == "jvm" and step in ONLY_STORE_LEFT
        check_completed(lake, name, step, recovered=not alone)


def check_completed(lake: SlicedLake, name: str, step: AnyStep, *, recovered: bool = True) -> None:
    """What a coordinator had begun is told as recovered, unless it could tell it itself."""
    [done] = [r for r in lake.tables.history(name) if r.sequence == INTERRUPTED and r.version]
    assert done.slices == 2, (name, step)
    recovered = recovered and step not in NOTHING_OPEN
    assert done.reason == ("RECOVERED" if recovered else "CHANGED"), (name, step)


def test_coordinators_are_succeeded(make_lake: MakeLake) -> None:
    survive(make_lake(len(FEW)), "python", FEW)


@pytest.mark.soak
@STORES
@pytest.mark.parametrize("kind", ["python", "jvm", "both"])
def test_coordinators_are_succeeded_at_every_step(
    make_lake: MakeLake, kind: str, store: str
) -> None:
    survive(make_lake(len(AS_COORDINATOR), store), kind, AS_COORDINATOR)


@pytest.mark.soak
@STORES
def test_paused_coordinators_are_overtaken(make_lake: MakeLake, store: str) -> None:
    """SIGSTOP until claims expire, then SIGCONT: the successor's result stands. Who is about to
    commit keeps the table's lock meanwhile, and makes the one commit of its number."""
    lake = make_lake(len(AS_COORDINATOR), store)
    tables, plan = lake.tables, {f"t{n}": step for n, step in enumerate(AS_COORDINATOR)}
    locked = f"t{AS_COORDINATOR.index(Step.LOCKED)}"
    definition = tables.show(locked).definition
    stood = tables.lake.standing(definition).sequence
    lake.change()
    victim = start_victim(lake.folder, "stop", plan, lake.environment())
    wait_until_stopped(victim)
    lake.change()
    deadline = time.monotonic() + PATIENCE_S
    while not (report := tables.refresh(*(plan.keys() - {locked}), on_error="report")).ok:
        assert time.monotonic() < deadline, report
        time.sleep(0.5)
    held = tables.refresh(locked, on_error="report")[locked]
    assert (held.reason, tables.lake.standing(definition).sequence) == ("HELD", stood)
    assert "has been committing" in (held.error or "")
    begun = tables.store.intent(definition.table_id)
    assert begun is not None
    overtaken(lake, victim)
    done = {record.sequence: record for record in tables.history(locked) if record.version}
    assert (begun.sequence, done[begun.sequence].cut) == (stood + 1, begun.cut)
    for name, step in plan.items():
        check_completed(lake, name, step)


@pytest.mark.soak
@STORES
def test_coordinators_and_workers_are_killed_together(make_lake: MakeLake, store: str) -> None:
    """The coordinator waits or has a slice, a worker has another one, both somewhere: whoever
    refreshes next completes the cut, and computes no finished slice again."""
    both = [*product(BESIDE_WORKERS, AS_WORKER)]
    lake = make_lake(len(both), store)
    plan = {f"t{n}": step for n, (step, _) in enumerate(both)}
    theirs = {f"t{n}": step for n, (_, step) in enumerate(both)}
    with slice_worker(lake, "python", **theirs) as worker:
        lake.change()
        coordinator = start_victim(lake.folder, "wait", plan, lake.environment())
        worker.wait(PATIENCE_S)
        wait_for(lake.folder / "waiting")
    coordinator.kill()
    coordinator.communicate(timeout=PATIENCE_S)
    assert (worker.returncode, coordinator.returncode) == (-signal.SIGKILL,) * 2
    finished = Counter(item.dynamic_table for item in lake.tables.store.subtasks() if item.result)
    for name, steps in zip(plan, both, strict=True):
        table = str(lake.tables.show(name).definition.name)
        assert finished[table] == steps.count(SliceStep.COMPLETED), (name, steps)
    go_on(lake, "python", plan)


def test_a_worker_that_dies_loses_its_slice_only(make_lake: MakeLake) -> None:
    lose_a_worker(make_lake(1), SliceStep.WRITTEN)


@pytest.mark.soak
@STORES
@pytest.mark.parametrize("kind", ["python", "jvm", "both"])
@pytest.mark.parametrize("step", AS_WORKER)
def test_a_worker_may_die_at_every_step(
    make_lake: MakeLake, step: SliceStep, kind: str, store: str
) -> None:
    lose_a_worker(make_lake(1, store), step, kind)


def test_a_stopped_worker_wakes_up_and_its_slice_is_not_taken(make_lake: MakeLake) -> None:
    """The refresh is still open: the worker computes its slice, in vain."""
    lake = make_lake(1)
    with slice_worker(lake, "stop", SliceStep.CLAIMED) as worker:
        pause_a_worker(lake, worker, Pause(step=SliceStep.CLAIMED, until=SliceStep.GATHERED))


@pytest.mark.soak
@STORES
@pytest.mark.parametrize("strategy", [None, "full"])
def test_a_worker_may_be_stopped_at_every_step(
    make_lake: MakeLake, store: str, strategy: str | None
) -> None:
    """SIGSTOP until its claim has expired and its slice was computed by another, then SIGCONT."""
    lake, successors = make_lake(1, store), cycle(["coordinator", "worker"])
    pauses = [
        Pause(step=step, until=until, successor=next(successors), strategy=strategy)
        for step, until in product(AS_WORKER, UNTIL)
    ]
    with slice_worker(lake, "stop", *(pause.step for pause in pauses)) as worker:
        for pause in pauses:
            pause_a_worker(lake, worker, pause)


def test_a_slice_that_failed_for_good_ends_its_refresh(make_lake: MakeLake) -> None:
    """Even if it was the store that did not answer its workers: the next refresh begins anew,
    instead of waiting for a slice that nobody computes."""
    lake = make_lake(1)
    store, table_id = lake.tables.store, lake.tables.show("t0").definition.table_id
    other = Claimant(owner="other", host="elsewhere", pid=1, expires_s=1e6)

    def observer(reached: AnyStep, _table: str) -> None:
        if reached is SliceStep.SHARED:
            subtask = store.claim_subtask(other)
            assert subtask is not None
            assert store.fail_subtask(subtask, Reason.STORE_BROKEN.value, "no answer", final=True)

    lake.change()
    with observing(observer):
        [failed] = lake.tables.refresh("t0", on_error="report").records
    assert (failed.reason, failed.error) == ("SUBTASKS_LOST", "slice 0: no answer")
    assert store.intent(table_id) is None
    [done] = lake.tables.refresh("t0").records
    assert (done.outcome, done.slices) == ("done", 2)
    lake.check()
