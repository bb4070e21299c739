"""A lake whose tables are all shared, by keys; processes that work on it; what must hold then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness import PATIENCE_S, check_lake, wait_until_stopped

import dynamic_tables as dt
from dynamic_tables.lake.places import local_path
from dynamic_tables.lake.slices import FOLDER
from dynamic_tables.reasons import Reason
from dynamic_tables.steps import SliceStep, Step, observing
from dynamic_tables.store import Claimant, Subtask

SLICE_WORKER = Path(__file__).with_name("slice_worker.py")
KEYS = ("customer, region", "customer")  # two columns (a hash), an integer (modulo), all with NULL
QUERY = (
    "SELECT {key}, count(DISTINCT product) AS products, count(*) AS n FROM orders"
    " WHERE id > -{n} GROUP BY {key}"
)
SHARED = {"parallel_threshold": 4, "initialize": "ON_SCHEDULE"}
AnyStep = Step | SliceStep
IN_REFRESH = tuple(step for step in Step if step not in (Step.DEFINED, Step.LAID_OUT))
UNNUMBERED = (Step.CLAIMED, Step.PINNED)  # no cut is fixed: who comes next goes to the newest one
OVER = (Step.RECORDED, Step.RELEASED)  # the refresh stands in the store as its own coordinator's


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicedLake:
    """A lake with tables t0, t1 …, loaded, and open in this process."""

    folder: Path
    store: str  # "": SQLite, in the folder
    tables: dt.DynamicTables

    def environment(self, **more: object) -> dict[str, str]:
        """For processes that work on the same lake with the same store."""
        said = {"store": self.store, **more} if self.store else more
        settings = {f"DYNAMIC_TABLES_{name.upper()}": str(value) for name, value in said.items()}
        return os.environ | settings

    def change(self) -> None:
        """Rows of many keys, among them those with NULL."""
        self.tables.sql(
            "INSERT INTO orders SELECT max(id) + 1 + c, nullif(c, 3), c, nullif(c % 3, 1)"
            " FROM orders, range(7) AS r (c) GROUP BY c"
        )

    def check(self) -> None:
        """The equation holds, nothing is open, and nothing of any slice is left."""
        check_lake(self.tables)
        assert self.tables.store.subtasks() == []
        for state in self.tables.list():
            place = local_path(state.definition.location)
            assert place is not None
            assert list((place / FOLDER).rglob("*")) == []

    def recorded(self, name: str) -> list[object]:
        """What the store tells of a table, but for heartbeats on its claim."""
        store, table_id = self.tables.store, self.tables.show(name).definition.table_id
        return [
            store.table_by_id(table_id),
            store.intent(table_id),
            store.subtasks(table_id),
            store.history(table_id),
        ]

    def files(self, name: str) -> set[Path]:
        """All files of a table: its log, its rows, and what is staged."""
        place = local_path(self.tables.show(name).definition.location)
        assert place is not None
        return {path for path in place.rglob("*") if path.is_file()}

    def until_slices(self, are_so: Callable[[list[Subtask]], bool]) -> list[Subtask]:
        """Wait for others to work on the slices."""
        deadline = time.monotonic() + PATIENCE_S
        while not are_so(found := self.tables.store.subtasks()):
            assert time.monotonic() < deadline, found
            time.sleep(0.05)
        return found


@contextmanager
def sliced_lake(
    folder: Path,
    *,
    size: int,
    store: str = "",
    slices: int = 2,
    on_change: bool = False,
    **flags: object,
) -> Generator[SlicedLake]:
    """Tables whose refreshes are shared from now on: that many workers are counted, and never come.
    A coordinator computes slices itself while it waits."""
    how = {"jvm": "quick", "poll_s": 0.1, **flags}
    with dt.connect(folder, store=store or None, say=lambda _: None, **how) as tables:
        tables.sql(
            "CREATE TABLE orders USING delta AS SELECT id, nullif(id % 7, 3) AS customer,"
            " id % 5 AS product, nullif(id % 3, 1) AS region FROM range(40)"
        )
        for n in range(size):
            query = QUERY.format(key=KEYS[n % len(KEYS)], n=n)
            options = {**SHARED, "max_parallelism": slices, "trigger_on_change": on_change}
            tables.create(f"t{n}", query, **options)
        tables.refresh()
        for n in range(slices):
            counted = Claimant(owner=f"counted-{n}", host="elsewhere", pid=1, expires_s=1e6)
            tables.store.enter(counted)
        yield SlicedLake(folder=folder, store=store, tables=tables)


@contextmanager
def slice_worker(
    lake: SlicedLake, kind: str, *steps: SliceStep, **plan: SliceStep
) -> Generator[subprocess.Popen[str]]:
    """A worker that waits for slices, and is struck at these steps with one; or once, when it has
    one of every table of the plan at its step."""
    words = [*steps, *(f"{table}={step.value}" for table, step in plan.items())]
    worker = subprocess.Popen(
        [sys.executable, str(SLICE_WORKER), str(lake.folder), kind, *words],
        stdout=subprocess.PIPE,
        text=True,
        env=lake.environment(),
    )
    with worker:
        try:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
            yield worker
        finally:
            worker.kill()


def lose_a_worker(lake: SlicedLake, step: SliceStep, kind: str = "python") -> None:
    """A worker dies with a slice, or its JVM does, which it tells before it ends; the coordinator
    computes it itself, at once or when the claim expires."""
    lake.change()
    store = lake.tables.store
    with slice_worker(lake, kind, step) as worker:
        left: list[Subtask] = []
        gathered: list[Subtask] = []

        def observer(reached: AnyStep, _table: str) -> None:
            if reached is SliceStep.SHARED:
                worker.wait(PATIENCE_S)
                left.extend(store.subtasks())
            if reached is SliceStep.GATHERED:
                gathered.extend(store.subtasks())

        with observing(observer):
            [record] = lake.tables.refresh("t0").records
        assert worker.stdout is not None
        check_lost(worker.returncode, worker.stdout.read(), kind)
    check_taken_over(left, gathered, kind, step)
    assert (record.strategy, record.outcome, record.slices) == ("keys", "done", 2)
    lake.check()


def check_lost(exit_code: int, said: str, kind: str) -> None:
    """Who lost its engine ends by itself, and its supervisor can tell."""
    if kind == "jvm":
        assert (exit_code, said) == (1, "ENGINE_GONE\n")
    else:
        assert (exit_code, said) == (-signal.SIGKILL, "")


def check_taken_over(
    left: list[Subtask], gathered: list[Subtask], kind: str, step: SliceStep
) -> None:
    """A worker whose JVM died has handed back the slice that it could not write, its own or the
    next; others lose theirs by their death. A slice that is there is not computed again, whatever
    died after it."""
    told = [item for item in left if item.status == "completed"]
    its_own = [item for item in left if item.status == "claimed"]
    back = [item for item in left if (item.status, item.retries) == ("pending", 1)]
    if kind == "jvm":
        expected = (step is not SliceStep.CLAIMED, 0, 1)
        assert (len(told), len(its_own), len(back)) == expected, left
        assert {item.reason for item in back} <= {Reason.ENGINE_GONE.value}, back
    else:
        done = step is SliceStep.COMPLETED
        assert (len(told), len(its_own), len(back)) == (done, not done, 0), left
    assert {item.status for item in gathered} == {"completed"}
    repeated = {item.slice_no for item in gathered if item.retries}
    assert repeated == {item.slice_no for item in (*its_own, *back)}
    kept = {item.slice_no: item.token for item in gathered}
    assert all(kept[item.slice_no] == item.token for item in told)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A worker that is stopped with a slice, until its claim has expired and others are further."""

    step: SliceStep  # where it stops
    until: AnyStep  # how far the refresh is when it goes on
    successor: str = "coordinator"  # who computes its slice: that, or another "worker"
    strategy: str | None = None  # of the refresh, if it is forced

    @property
    def counts(self) -> bool:
        return self.step is SliceStep.COMPLETED


def pause_a_worker(lake: SlicedLake, worker: subprocess.Popen[str], pause: Pause) -> None:
    """Its successor's slice counts; when it goes on it changes nothing, and nothing is left."""
    lake.change()
    store, woken = lake.tables.store, threading.Event()
    held: list[Subtask] = []

    def observer(reached: AnyStep, _table: str) -> None:
        if reached is SliceStep.SHARED:
            wait_until_stopped(worker)
            held.extend(item for item in store.subtasks() if item.pid == worker.pid)
            if pause.successor == "worker":
                compute_slices(lake)
        if reached is SliceStep.GATHERED:
            [present] = [item for item in store.subtasks() if item.slice_no == held[0].slice_no]
            assert present.status == "completed"
            assert (present.token == held[0].token) is pause.counts
            assert present.retries == (0 if pause.counts else 1)  # it was free: the claim expired
        if reached is pause.until:
            wake(lake, worker, pause, held[0])
            woken.set()

    with observing(observer):
        [record] = lake.tables.refresh("t0", strategy=pause.strategy).records
    assert woken.is_set()
    assert record.slices == 2
    lake.check()
    done = [record.sequence for record in lake.tables.history("t0") if record.version]
    assert done == list(range(len(done), 0, -1)), done


def compute_slices(lake: SlicedLake) -> None:
    """Another worker computes all that it gets, until all slices are there."""
    worker = lake.tables.worker(slots=1, say=lambda _: None)

    def are_computed(found: list[Subtask]) -> bool:
        worker._compute()
        return all(item.status == "completed" for item in found)

    lake.until_slices(are_computed)


def wake(lake: SlicedLake, worker: subprocess.Popen[str], pause: Pause, held: Subtask) -> None:
    """Let it end its slice: the store is as before, and the lake but for what it had staged."""
    assert worker.stdout is not None
    recorded, files = lake.recorded("t0"), lake.files("t0")
    os.kill(worker.pid, signal.SIGCONT)
    assert worker.stdout.readline() == ("counts\n" if pause.counts else "in vain\n")
    assert lake.recorded("t0") == recorded
    left = lake.files("t0")
    assert left <= files
    its_own = f"{held.slice_no}-{held.token}"
    assert all(its_own in path.parts for path in files - left)


def overtaken(lake: SlicedLake, victim: subprocess.Popen[str]) -> None:
    """A stopped coordinator whose tables others have refreshed goes on, and changes nothing."""
    standing = {state.definition.name: state.build for state in lake.tables.list()}
    os.kill(victim.pid, signal.SIGCONT)
    output, _ = victim.communicate(timeout=PATIENCE_S)
    words = {word for line in output.splitlines() if " at " not in line for word in line.split()}
    assert words == {"TAKEN_OVER"}, output
    assert {state.definition.name: state.build for state in lake.tables.list()} == standing
    lake.change()
    lake.tables.refresh()  # finds what they had staged
    lake.check()
