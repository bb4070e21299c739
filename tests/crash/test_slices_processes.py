"""One refresh shared by real workers: `dynamic-tables worker`, each with a JVM of its own, on one
Delta lake with the store in PostgreSQL. The soak kills and stops coordinators among them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import pytest
from harness import PATIENCE_S, Plan, run_victim, start_victim, wait_until_stopped
from sliced import (
    IN_REFRESH,
    OVER,
    UNNUMBERED,
    AnyStep,
    SlicedLake,
    overtaken,
    slice_worker,
    sliced_lake,
)
from victim import EXPIRES_S

from dynamic_tables.asking import _at_one_cut
from dynamic_tables.lake.log import commits_between
from dynamic_tables.refresh.freshness import Observer
from dynamic_tables.steps import SliceStep, Step, observing
from dynamic_tables.store import Subtask
from postgres import Postgres

pytestmark = pytest.mark.spark
LONG = pytest.mark.timeout(1800)  # four JVMs, which others may keep waiting

SKEWED = str(Path(__file__).with_name("skewed.py"))
PROGRAM = str(Path(sys.executable).with_name("dynamic-tables"))
WORKERS = 2
SLICES = 6  # so many that no worker has computed all of them before the other comes
# Steps that a coordinator reaches even if others compute all of its slices.
ALWAYS = (SliceStep.KEYS_STAGED, SliceStep.SHARED, SliceStep.GATHERED, SliceStep.CLEARED)
KILLED = (*IN_REFRESH, *ALWAYS)
STOPPED = tuple(step for step in KILLED if step is not Step.LOCKED)  # it would keep the lock


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerProcess:
    process: subprocess.Popen[str]
    port: int  # of its metrics

    def computed(self, table: str) -> int:
        """Slices, as it tells Prometheus."""
        with urlopen(f"http://127.0.0.1:{self.port}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        name = f'dynamic_tables_subtasks_completed_total{{table="{table}"}} '
        return sum(int(float(line.removeprefix(name))) for line in lines if line.startswith(name))


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextmanager
def working(
    lake: SlicedLake, *, hours: Sequence[int] = (0,) * WORKERS, **settings: object
) -> Generator[dict[int, WorkerProcess]]:
    """Workers on the lake, by process id, as soon as they are counted. The clocks of their hosts
    are so many hours off."""
    environment = lake.environment(lake=lake.folder, jvm="quick", poll_s=0.2, **settings)
    started: dict[int, WorkerProcess] = {}
    try:
        for wrong in hours:
            port = free_port()
            program = [PROGRAM] if not wrong else [sys.executable, SKEWED, str(wrong), PROGRAM]
            process = subprocess.Popen(
                [*program, "worker", "--metrics-port", str(port)],
                env=environment,
                cwd=lake.folder,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            started[process.pid] = WorkerProcess(process=process, port=port)
        _until_counted(lake, set(started))
        yield started
    finally:
        for worker in started.values():
            worker.process.send_signal(signal.SIGTERM)
        for worker in started.values():
            worker.process.wait(PATIENCE_S)


def _until_counted(lake: SlicedLake, pids: set[int]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not pids <= {worker.pid for worker in lake.tables.store.workers()}:
        assert time.monotonic() < deadline, "not all workers came"
        time.sleep(0.1)


@pytest.fixture
def url(postgres: Postgres) -> str:
    return postgres.new_database()


def test_processes_share_one_refresh(url: str, tmp_path: Path) -> None:
    """Composite keys with NULL: every worker computes slices, one commit holds all of them."""
    with (
        sliced_lake(tmp_path / "lake", size=1, store=url, slices=SLICES) as lake,
        working(lake) as workers,
    ):
        tables, store = lake.tables, lake.tables.store
        definition = tables.show("t0").definition
        before = tables.lake.standing(definition)
        lake.change()
        tables.sql("DELETE FROM orders WHERE customer = 5")
        computed: list[Subtask] = []

        def observer(step: AnyStep, _table: str) -> None:
            if step is SliceStep.SHARED:  # the coordinator helps when all others have begun
                lake.until_slices(lambda found: workers.keys() <= {item.pid for item in found})
            if step is SliceStep.GATHERED:
                computed.extend(store.subtasks())

        with observing(observer):
            [record] = tables.refresh("t0").records
        assert (record.strategy, record.slices) == ("keys", len(computed))
        assert {item.subtask_type for item in computed} == {"hash_range"}
        assert computed[0].subtask_data["key_columns"] == ["customer", "region"]
        by_pid = Counter(item.pid for item in computed if item.status == "completed")
        assert by_pid.total() == len({item.slice_no for item in computed})
        for pid, worker in workers.items():
            assert worker.computed(str(definition.name)) == by_pid[pid] > 0
        after = tables.lake.standing(definition)
        [commit] = commits_between(tables.spark, definition.location, before.version, after.version)
        assert commit.stamp is not None
        assert (commit.stamp.sequence, commit.stamp.strategy) == (before.sequence + 1, "keys")
        lake.check()


@pytest.fixture
def fleet(url: str, tmp_path: Path) -> Iterator[SlicedLake]:
    """A table for each step, and workers whose claims expire soon."""
    flags = {"claim_expires_s": EXPIRES_S, "lock_wait_s": 2, "retry_s": 0.5}
    with (
        sliced_lake(tmp_path / "lake", size=len(KILLED), store=url, **flags) as lake,
        working(lake, **flags),
    ):
        yield lake


def succeeded(lake: SlicedLake, names: list[str]) -> None:
    """Ask the workers for these tables, and wait until they are through with them."""
    tables, store = lake.tables, lake.tables.store
    states = {state.definition.table_id: state for state in tables.list()}
    seen = Observer(tables.lake, tables.graph(), store.now()).look(states)
    wanted = {tables.show(name).definition.table_id for name in names}
    store.request(*_at_one_cut(wanted, seen))
    deadline = time.monotonic() + PATIENCE_S
    while wanted & {item.table_id for item in (*store.claims(), *store.pending())}:
        assert time.monotonic() < deadline, (store.claims(), store.pending())
        time.sleep(0.2)


def check_succeeded(lake: SlicedLake, plan: Plan) -> None:
    """Workers completed what the victim had begun, under its number, and then went on."""
    for name, step in plan.items():
        done = [record for record in lake.tables.history(name) if record.version]
        newest, *before, _loaded = done
        assert [record.sequence for record in done] == [*range(len(done), 0, -1)], (name, done)
        assert (newest.reason, newest.slices) == ("CHANGED", 2), (name, newest)
        told = "CHANGED" if step in OVER else "RECOVERED"
        expected = [] if step in UNNUMBERED else [(told, 2)]
        assert [(record.reason, record.slices) for record in before] == expected, (name, before)


@LONG
@pytest.mark.soak
@pytest.mark.parametrize("kind", ["python", "both"])
def test_workers_succeed_a_killed_coordinator(fleet: SlicedLake, kind: str) -> None:
    plan = {f"t{n}": step for n, step in enumerate(KILLED)}
    fleet.change()
    run_victim(fleet.folder, kind, plan, fleet.environment())
    fleet.change()
    succeeded(fleet, list(plan))
    check_succeeded(fleet, plan)
    fleet.check()


@LONG
@pytest.mark.soak
def test_workers_overtake_a_stopped_coordinator(fleet: SlicedLake) -> None:
    """SIGSTOP until its claims expire, then SIGCONT: the workers' result stands."""
    plan = {f"t{n}": step for n, step in enumerate(STOPPED)}
    fleet.change()
    victim = start_victim(fleet.folder, "stop", plan, fleet.environment())
    wait_until_stopped(victim)
    fleet.change()
    succeeded(fleet, list(plan))
    check_succeeded(fleet, plan)
    overtaken(fleet, victim)


@LONG
@pytest.mark.soak
@pytest.mark.parametrize(("kind", "exit_code"), [("python", -signal.SIGKILL), ("jvm", 1)])
def test_a_worker_is_killed_with_its_slice(
    url: str, tmp_path: Path, kind: str, exit_code: int
) -> None:
    """Wherever it is just then: the others compute its slice. Who only loses its JVM ends by
    itself, and its supervisor can tell."""
    with (
        sliced_lake(tmp_path / "lake", size=1, store=url, slices=SLICES) as lake,
        working(lake) as workers,
    ):
        lost: list[int] = []

        def observer(step: AnyStep, _table: str) -> None:
            if step is SliceStep.SHARED:
                found = lake.until_slices(lambda found: any(item.pid for item in found))
                lost.extend(item.pid for item in found if item.pid)
                os.kill(lost[0] if kind == "python" else jvm_of(lost[0]), signal.SIGKILL)

        lake.change()
        with observing(observer):
            [record] = lake.tables.refresh("t0").records
        assert (record.strategy, record.outcome) == ("keys", "done")
        assert workers[lost[0]].process.wait(PATIENCE_S) == exit_code
        lake.check()


def jvm_of(worker: int) -> int:
    """The Java among the children of a process, or among theirs."""
    told = subprocess.run(
        ["ps", "-eo", "pid=,ppid=,comm="], capture_output=True, text=True, check=True
    )
    rows = [line.split(None, 2) for line in told.stdout.splitlines()]
    family = {worker}
    while more := {int(pid) for pid, parent, _ in rows if int(parent) in family} - family:
        family |= more
    [found] = [int(pid) for pid, _, name in rows if int(pid) in family and name == "java"]
    return found


@LONG
@pytest.mark.soak
@pytest.mark.parametrize("step", [SliceStep.CLAIMED, SliceStep.WRITTEN, SliceStep.COMPLETED])
def test_coordinator_and_worker_are_killed_together(
    url: str, tmp_path: Path, step: SliceStep
) -> None:
    """Both die with a slice in hand: a third one completes the cut, and no slice twice."""
    flags = {"claim_expires_s": EXPIRES_S, "lock_wait_s": 2, "retry_s": 0.5}
    with sliced_lake(tmp_path / "lake", size=1, store=url, **flags) as lake:
        lake.change()
        plan = {"t0": SliceStep.SHARED}
        with slice_worker(lake, "python", step) as worker:
            coordinator = start_victim(lake.folder, "wait", plan, lake.environment())
            worker.wait(PATIENCE_S)
        coordinator.kill()
        coordinator.wait(PATIENCE_S)
        assert (worker.returncode, coordinator.returncode) == (-signal.SIGKILL,) * 2
        done = [item.slice_no for item in lake.tables.store.subtasks() if item.result]
        assert len(done) == (1 if step is SliceStep.COMPLETED else 0)
        lake.change()
        with working(lake, hours=(0,), **flags):
            succeeded(lake, ["t0"])
        check_succeeded(lake, plan)
        lake.check()


@LONG
@pytest.mark.soak
def test_workers_whose_clocks_are_hours_apart(url: str, tmp_path: Path) -> None:
    """An hour behind and an hour ahead: they share a refresh, and succeed one that died, as if
    all had one clock; history has the store's time."""
    flags = {"claim_expires_s": EXPIRES_S, "lock_wait_s": 2, "retry_s": 0.5}
    with (
        sliced_lake(tmp_path / "lake", size=1, store=url, **flags) as lake,
        working(lake, hours=(-1, 1), **flags),
    ):
        tables, store = lake.tables, lake.tables.store
        began = store.now()
        lake.change()
        plan = {"t0": SliceStep.SHARED}
        run_victim(lake.folder, "python", plan, lake.environment())
        lake.change()
        succeeded(lake, ["t0"])
        check_succeeded(lake, plan)
        for record in tables.history("t0")[:2]:
            assert began <= record.started_at <= store.now()
            assert record.cut is not None
            assert record.cut.instant <= store.now()
        lake.check()
