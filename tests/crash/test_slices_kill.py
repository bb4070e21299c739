"""`kill -9` of coordinators and of workers with a slice: successors use what is finished.

No worker is needed to share a refresh: some that are counted and never come are enough, because a
coordinator computes slices itself while it waits.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import PATIENCE_S, check_lake, run_victim, start_victim, wait_until_stopped

import dynamic_tables as dt
from dynamic_tables.lake.places import local_path
from dynamic_tables.lake.slices import FOLDER
from dynamic_tables.steps import SliceStep, Step, observing
from dynamic_tables.store import Claimant

pytestmark = pytest.mark.spark

WORKER = Path(__file__).with_name("slice_worker.py")
AS_COORDINATOR = (Step.INTENDED, *SliceStep, Step.LOCKED, Step.COMMITTED)
PAUSED = (Step.INTENDED, *(step for step in SliceStep if step is not SliceStep.CLEARED))
AS_WORKER = (SliceStep.CLAIMED, SliceStep.WRITTEN, SliceStep.COMPLETED)
FEW = (SliceStep.KEYS_STAGED, SliceStep.SHARED, SliceStep.WRITTEN, SliceStep.GATHERED)
QUERY = (
    "SELECT customer, count(DISTINCT product) AS products, count(*) AS n FROM orders"
    " WHERE id > -{n} GROUP BY customer"
)
INTERRUPTED = 2  # the number of the refresh after the first load
SHARED = {"parallel_threshold": 4, "max_parallelism": 2, "initialize": "ON_SCHEDULE"}
Lake = tuple[Path, dt.DynamicTables]


@pytest.fixture(scope="module")
def make_lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], Lake]]:
    opened: list[dt.DynamicTables] = []

    def make(size: int) -> Lake:
        """Tables that are all shared, by keys."""
        folder = tmp_path_factory.mktemp("slices") / "lake"
        tables = dt.connect(folder, jvm="quick", say=lambda _: None, poll_s=0.1)
        opened.append(tables)
        tables.sql(
            "CREATE TABLE orders USING delta AS SELECT id, nullif(id % 7, 3) AS customer,"
            " id % 5 AS product FROM range(40)"
        )
        for n in range(size):
            tables.create(f"t{n}", QUERY.format(n=n), **SHARED)
        tables.refresh()
        for n in range(2):
            counted = Claimant(owner=f"counted-{n}", host="elsewhere", pid=1, expires_s=1e6)
            tables.store.enter(counted)
        return folder, tables

    yield make
    for tables in opened:
        tables.close()


def change(tables: dt.DynamicTables) -> None:
    tables.sql(
        "INSERT INTO orders SELECT max(id) + 1 + c, c, c FROM orders, range(7) AS r (c) GROUP BY c"
    )


def check_slices(tables: dt.DynamicTables) -> None:
    check_lake(tables)
    assert tables.store.subtasks() == []
    for state in tables.list():
        place = local_path(state.definition.location)
        assert place is not None
        assert list((place / FOLDER).rglob("*")) == []


def survive(lake: Lake, kind: str, steps: tuple[Step | SliceStep, ...]) -> None:
    """Kill coordinators at these steps; whoever refreshes next goes on with what is there."""
    folder, tables = lake
    change(tables)
    names = {f"t{n}": step for n, step in enumerate(steps)}
    run_victim(folder, kind, names)
    left = [item for item in tables.store.subtasks() if item.status != "completed"]
    open_slices = Counter(item.dynamic_table for item in left)
    change(tables)
    computed: Counter[str] = Counter()
    recorded: set[str] = set()

    def observer(step: Step | SliceStep, table: str) -> None:
        if step is SliceStep.CLAIMED and table not in recorded:
            computed[table] += 1
        if step is Step.RECORDED:
            recorded.add(table)

    with observing(observer):
        report = tables.refresh()
    assert report.ok, report
    check_slices(tables)
    for name, step in names.items():
        table = str(tables.show(name).definition.name)
        if kind == "python" and step not in (Step.INTENDED, SliceStep.KEYS_STAGED):
            assert computed[table] == open_slices[table], (name, step)  # finished ones were used
        [done] = [r for r in tables.history(name) if r.sequence == INTERRUPTED and r.version]
        assert done.slices == 2, (name, step)
        alone = kind == "jvm" and step is SliceStep.CLEARED  # only the store is left to be told
        assert done.reason == ("CHANGED" if alone else "RECOVERED"), (name, step)


def test_coordinators_are_succeeded(make_lake: Callable[[int], Lake]) -> None:
    survive(make_lake(len(FEW)), "python", FEW)


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["python", "jvm", "both"])
def test_coordinators_are_succeeded_at_every_step(
    make_lake: Callable[[int], Lake], kind: str
) -> None:
    survive(make_lake(len(AS_COORDINATOR)), kind, AS_COORDINATOR)


@pytest.mark.soak
def test_paused_coordinators_are_overtaken(make_lake: Callable[[int], Lake]) -> None:
    """SIGSTOP until claims expire, then SIGCONT: the successor's result stands."""
    folder, tables = make_lake(len(PAUSED))
    change(tables)
    victim = start_victim(folder, "stop", {f"t{n}": step for n, step in enumerate(PAUSED)})
    wait_until_stopped(victim)
    change(tables)
    deadline = time.monotonic() + PATIENCE_S
    while not tables.refresh(on_error="report").ok:
        assert time.monotonic() < deadline, "claims did not expire"
        time.sleep(0.5)
    standing = {state.definition.name: state.build for state in tables.list()}
    os.kill(victim.pid, signal.SIGCONT)
    output, _ = victim.communicate(timeout=PATIENCE_S)
    words = {word for line in output.splitlines() if " at " not in line for word in line.split()}
    assert words == {"TAKEN_OVER"}, output
    assert {state.definition.name: state.build for state in tables.list()} == standing
    change(tables)
    tables.refresh()  # finds what they had staged
    check_slices(tables)


def lose_a_worker(lake: Lake, step: SliceStep) -> None:
    """A worker dies with a slice; the coordinator computes it itself when the claim expires."""
    folder, tables = lake
    change(tables)
    worker = subprocess.Popen(
        [sys.executable, str(WORKER), str(folder), step.value], stdout=subprocess.PIPE, text=True
    )
    assert worker.stdout is not None
    assert worker.stdout.readline() == "ready\n"
    gone = threading.Event()

    def observer(reached: Step | SliceStep, _table: str) -> None:
        if reached is SliceStep.SHARED:
            worker.wait(PATIENCE_S)
            gone.set()

    with observing(observer):
        [record] = tables.refresh("t0").records
    assert gone.is_set()
    assert worker.returncode == -signal.SIGKILL
    assert (record.strategy, record.slices) == ("keys", 2)
    check_slices(tables)


def test_a_worker_that_dies_loses_its_slice_only(make_lake: Callable[[int], Lake]) -> None:
    lose_a_worker(make_lake(1), SliceStep.WRITTEN)


@pytest.mark.soak
@pytest.mark.parametrize("step", AS_WORKER)
def test_a_worker_may_die_at_every_step(make_lake: Callable[[int], Lake], step: SliceStep) -> None:
    lose_a_worker(make_lake(1), step)
