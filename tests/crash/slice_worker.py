"""A worker that is struck whenever it reaches a step with a slice of another one's refresh.

    python slice_worker.py FOLDER KIND STEP [STEP …]
    python slice_worker.py FOLDER KIND TABLE=STEP [TABLE=STEP …]

KIND is as in `victim.py`. Who was stopped and goes on ends its slice, says whether that `counts`
or was `in vain`, and goes to its next step. Who loses its JVM works on as `dynamic-tables worker`
does, and ends with the reason and the exit code that it has. With tables it takes one slice of each
to the table's step, and is struck when all are there.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from victim import EXPIRES_S, Plan, meeting, strike

import dynamic_tables as dt
from dynamic_tables.refresh.subtasks import carry_out
from dynamic_tables.steps import AnyStep, SliceStep, observing
from dynamic_tables.worker import Worker


def main() -> None:
    folder, kind, words = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    pairs = [word.partition("=") for word in words if "=" in word]
    plan = {table: SliceStep(step) for table, _, step in pairs}
    steps = [] if plan else [*map(SliceStep, words)]
    flags = {"jvm": "quick", "claim_expires_s": EXPIRES_S, "poll_s": 0.1}
    with dt.connect(folder, say=lambda _: None, **flags) as tables:
        worker = tables.worker(slots=1, say=lambda _: None)
        print("ready", flush=True)

        def struck() -> None:
            strike(tables, kind, folder)

        if kind == "jvm":
            sys.exit(_without_engine(steps[0], worker, struck))
        with worker._hearts.beating():
            if plan:
                _one_of_each(plan, tables, worker, struck)
            for step in steps:
                counts = _to(step, worker, struck)
                print("counts" if counts else "in vain", flush=True)


def _without_engine(step: SliceStep, worker: Worker, struck: Callable[[], None]) -> int:
    """Work until the loss of the engine ends it; the exit code."""
    came = threading.Event()

    def observer(reached: AnyStep, _table: str) -> None:
        if reached is step and not came.is_set():
            came.set()
            struck()

    try:
        with observing(observer):
            worker.run()
    except dt.DynamicTablesError as error:
        print(error.reason.value, flush=True)
        return error.exit_code
    return 0


def _one_of_each(
    plan: Plan, tables: dt.DynamicTables, worker: Worker, struck: Callable[[], None]
) -> None:
    """Each in a thread of its own, to its step."""

    def compute(name: str) -> None:
        table_id = tables.show(name).definition.table_id
        while (subtask := tables.store.claim_subtask(worker._context.claimant, table_id)) is None:
            time.sleep(0.2)
        with worker._hearts.kept(subtask):
            carry_out(worker._context, subtask)

    with observing(meeting(plan, struck)), ThreadPoolExecutor(len(plan)) as pool:
        list(pool.map(compute, plan))


def _to(step: SliceStep, worker: Worker, struck: Callable[[], None]) -> bool:
    """Wait for a slice, and compute it; whether its result counts."""
    came = threading.Event()

    def observer(reached: SliceStep, _table: str) -> None:
        if reached is step:
            came.set()
            struck()

    counts = False
    with observing(observer):
        while not came.is_set():
            counts = worker._once()
            time.sleep(0.05)
    return counts


if __name__ == "__main__":
    main()
