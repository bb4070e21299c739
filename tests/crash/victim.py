"""A process that refreshes (or creates) tables and is killed when each has reached its step.

    python victim.py FOLDER KIND[+KIND …] [optimize:]TABLE=STEP [[optimize:]TABLE=STEP …]

Every table waits at its own step, in a thread of its own. When all have arrived, KIND happens:
python | jvm | both are killed with SIGKILL; `stop` sends SIGSTOP to itself; `wait` goes on once the
file FOLDER/go exists. Tables that do not exist yet are created, those with the word before them are
optimized. Each KIND is a round, which begins
with the second once FOLDER/next exists, and ends with a line of output: `done`, or the reason codes
of the failures.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dynamic_tables as dt
from dynamic_tables.steps import AnyStep, CompactionStep, Observer, SliceStep, Step, observing

EXPIRES_S = 2.0  # claims of victims expire soon
MEETING_S = 100.0
OPTIMIZE = "optimize:"
Plan = dict[str, AnyStep]
QUERY = "SELECT customer, count(*) AS n, sum(amount) AS total FROM orders GROUP BY customer"


def main() -> None:
    folder, kinds = Path(sys.argv[1]), sys.argv[2].split("+")
    pairs = [word.partition("=") for word in sys.argv[3:]]
    plan = {name.removeprefix(OPTIMIZE): _step(step) for name, _, step in pairs}
    optimized = {name.removeprefix(OPTIMIZE) for name, _, _ in pairs if name.startswith(OPTIMIZE)}
    tables = dt.connect(folder, jvm="quick", claim_expires_s=EXPIRES_S, threads=len(plan))
    for number, kind in enumerate(kinds):
        if number:
            _wait_for(folder / "next")
        print(_round(tables, kind, plan, folder, optimized), flush=True)


def _step(label: str) -> AnyStep:
    return next(kind(label) for kind in (Step, SliceStep, CompactionStep) if label in set(kind))


def meeting(plan: Plan, then: Callable[[], None]) -> Observer:
    """Lets every table wait at its step until all have arrived; then something happens."""
    barrier = threading.Barrier(len(plan), then, MEETING_S)
    arrived: set[str] = set()

    def observer(reached: AnyStep, table: str) -> None:
        name = table.rpartition(".")[2]
        if plan.get(name) is reached and name not in arrived:
            arrived.add(name)
            print(f"{name} at {reached.value}", flush=True)
            try:
                barrier.wait()
            except threading.BrokenBarrierError:
                print("not all came", flush=True)
                os._exit(1)

    return observer


def _round(
    tables: dt.DynamicTables, kind: str, plan: Plan, folder: Path, optimized: set[str]
) -> str:
    present = {state.definition.name.name for state in tables.list()}
    old = [name for name in plan if name in present and name not in optimized]
    statements = [f"CREATE DYNAMIC TABLE {name} AS {QUERY}" for name in plan if name not in present]
    statements += [f"OPTIMIZE DYNAMIC TABLE {name}" for name in optimized]
    if old:
        statements.append(f"REFRESH DYNAMIC TABLE {', '.join(old)}")
    waiting = meeting(plan, lambda: strike(tables, kind, folder))
    with observing(waiting), ThreadPoolExecutor(len(statements)) as pool:
        outcomes = list(pool.map(lambda statement: _outcome(tables, statement), statements))
    return " ".join(outcome for outcome in outcomes if outcome != "done") or "done"


def _outcome(tables: dt.DynamicTables, statement: str) -> str:
    try:
        tables.sql(statement)
    except dt.RefreshFailed as error:
        return " ".join(record.reason.value for record in error.report.failed)
    except dt.DynamicTablesError as error:
        return error.reason.value
    return "done"


def _wait_for(file: Path) -> None:
    while not file.exists():
        time.sleep(0.05)


def _stop(tables: dt.DynamicTables) -> None:
    """Stop, but not in the middle of a heartbeat, which would keep the store locked."""
    beat = tables.store.heartbeat
    tables.store.heartbeat = lambda _claim: True
    tables.store.registry_delete("nothing")  # a write: returns when those before it are through
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(1)  # the signal reaches all threads a little later
    tables.store.heartbeat = beat


def strike(tables: dt.DynamicTables, kind: str, folder: Path) -> None:
    if kind == "wait":
        (folder / "waiting").touch()
        _wait_for(folder / "go")
    if kind == "stop":
        _stop(tables)
    if kind in ("jvm", "both"):
        process = tables.spark.sparkContext._gateway.proc
        process.kill()
        process.wait()
    if kind in ("python", "both"):
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
