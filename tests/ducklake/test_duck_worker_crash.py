"""`kill -9` of a worker at every step: its successor goes on, nothing is lost, nothing doubled."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from store_processes import CONTEXT

import dynamic_tables as dt
from dynamic_tables.steps import Step, observing

PATIENCE_S = 120
STEPS = [step for step in Step if step not in (Step.DEFINED, Step.LAID_OUT)]


def work_and_die(folder: str, step: Step) -> None:
    """A worker that is killed when it reaches the step with `total`."""

    def observer(reached: Step, table: str) -> None:
        if reached is step and table.endswith("total"):
            os.kill(os.getpid(), signal.SIGKILL)

    with dt.connect(f"ducklake:{folder}", say=lambda _: None) as tables, observing(observer):
        tables.worker(slots=1, say=lambda _: None).drain()


@pytest.mark.parametrize("half", [0, 1])
def test_a_killed_worker_has_a_successor(tmp_path: Path, half: int) -> None:
    folder = tmp_path / "lake"
    with dt.connect(f"ducklake:{folder}", say=lambda _: None) as tables:
        tables.sql("CREATE TABLE orders AS SELECT 1 AS amount")
        tables.create("total", "SELECT sum(amount) AS n FROM orders", trigger_on_change=True)
        tables.create("twice", "SELECT 2 * n AS n FROM total", trigger_on_change=True)
    expected = 1
    for step in STEPS[half::2]:
        with dt.connect(f"ducklake:{folder}", say=lambda _: None) as tables:
            tables.sql("INSERT INTO orders VALUES (1)")
        expected += 1
        victim = CONTEXT.Process(target=work_and_die, args=(str(folder), step))
        victim.start()
        victim.join(PATIENCE_S)
        assert victim.exitcode == -signal.SIGKILL, step
        with dt.connect(f"ducklake:{folder}", say=lambda _: None) as tables:
            tables.worker(slots=1, say=lambda _: None).drain()
            assert tables.read("twice").fetchall() == [(2 * expected,)], step
            assert tables.verify("total").ok
            assert tables.store.pending() == tables.store.claims() == []
            numbers = [r.sequence for r in tables.history("total") if r.strategy == "merge"]
            assert len(numbers) == len(set(numbers))
