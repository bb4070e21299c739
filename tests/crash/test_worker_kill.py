"""Workers on Delta with a store in PostgreSQL: killed or stopped at every step, and succeeded.

A victim takes several tables at once, each to another step. One that is stopped wakes up when its
claims have expired and its successor has done the work: it must change nothing any more.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness import PATIENCE_S, check_lake, wait_until_stopped
from victim import EXPIRES_S

import dynamic_tables as dt
from dynamic_tables.lake.base import Standing
from dynamic_tables.model import Intent
from dynamic_tables.steps import Step
from postgres import Postgres

pytestmark = pytest.mark.spark

VICTIM = Path(__file__).with_name("worker_victim.py")
STEPS = [step for step in Step if step not in (Step.DEFINED, Step.LAID_OUT)]
QUERIES = (
    "SELECT customer, count(*) AS n FROM orders WHERE id > -{n} GROUP BY customer",
    "SELECT id, customer FROM orders WHERE id > -{n}",
)


@dataclass(frozen=True)
class Lake:
    folder: Path
    store: str
    tables: dt.DynamicTables

    def change(self) -> None:
        self.tables.sql("INSERT INTO orders SELECT max(id) + 1, max(id) % 3 FROM orders")

    def victim(self, kind: str) -> subprocess.Popen[str]:
        plan = [f"t{n}={step.value}" for n, step in enumerate(STEPS)]
        return subprocess.Popen(
            [sys.executable, str(VICTIM), str(self.folder), self.store, kind, *plan],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def standing(self, names: list[str]) -> dict[str, Standing]:
        """Numbers and versions in the lake."""
        shown = {name: self.tables.show(name).definition for name in names}
        return {name: self.tables.lake.standing(shown[name]) for name in names}

    def succeed(self, names: list[str]) -> None:
        """Another worker does what is due, as soon as it may; what failed is tried again."""
        deadline = time.monotonic() + PATIENCE_S
        worker = self.tables.worker(slots=1, say=lambda _: None)
        worker.drain()
        while open_ := [name for name in names if self._is_open(name)]:
            assert time.monotonic() < deadline, open_
            time.sleep(EXPIRES_S / 4)
            worker.drain()

    def keeps_others_away(self, name: str) -> Intent:
        """Whoever tries to refresh the table is told that somebody is about to commit to it; what
        that one has begun stays open."""
        table_id = self.tables.show(name).definition.table_id
        record = self.tables.refresh(name, on_error="report")[name]
        assert (record.outcome, record.reason) == ("failed", "HELD")
        assert "has been committing" in (record.error or "")
        intent = self.tables.store.intent(table_id)
        assert intent is not None
        return intent

    def _is_open(self, name: str) -> bool:
        state, store = self.tables.show(name), self.tables.store
        key = state.definition.table_id
        busy = {item.table_id for item in (*store.claims(), *store.pending())}
        return key in busy or store.intent(key) is not None or state.failures > 0


@pytest.fixture(scope="module")
def lake(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    folder, store = tmp_path_factory.mktemp("workers") / "lake", postgres.new_database()
    how = {
        "jvm": "quick",
        "claim_expires_s": EXPIRES_S,
        "poll_s": 0.2,
        "lock_wait_s": 2,
        "retry_s": 0.5,
    }
    with dt.connect(folder, store=store, say=lambda _: None, **how) as tables:
        tables.sql("CREATE TABLE orders (id INT, customer INT) USING delta")
        tables.sql("INSERT INTO orders VALUES (1, 1), (2, 1), (3, NULL)")
        for n in range(len(STEPS)):
            query = QUERIES[n % 2].format(n=n)
            tables.create(f"t{n}", query, initialize="ON_SCHEDULE", trigger_on_change=True)
        tables.refresh()
        yield Lake(folder, store, tables)


def test_a_stopped_worker_wakes_up_and_changes_nothing(lake: Lake) -> None:
    """But where it was about to commit on local disk, nobody else can until it goes on; and what it
    commits then is the cut that its successor would have completed."""
    locked = f"t{STEPS.index(Step.LOCKED)}"
    stood = lake.standing([locked])[locked]
    lake.change()
    victim = lake.victim("stop")
    wait_until_stopped(victim)
    lake.change()  # its successor completes the old cut, then goes to the new one
    free = [f"t{n}" for n, step in enumerate(STEPS) if step is not Step.LOCKED]
    lake.succeed(free)
    check_lake(lake.tables, *free)
    begun = lake.keeps_others_away(locked)
    assert lake.standing([locked])[locked] == stood
    before = lake.standing(free)
    victim.send_signal(signal.SIGCONT)
    output, _ = victim.communicate(timeout=PATIENCE_S)
    assert output.endswith("ended\n"), output
    assert all(f"t{n} at {step.value}" in output for n, step in enumerate(STEPS)), output
    assert lake.standing(free) == before
    lake.tables.refresh()
    check_lake(lake.tables)
    done = {r.sequence: r.cut for r in lake.tables.history(locked) if r.version}
    assert (begun.sequence, done[begun.sequence]) == (stood.sequence + 1, begun.cut)
    assert lake.standing([locked])[locked].sequence == stood.sequence + 2  # then the newest cut


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["python", "jvm", "both"])
def test_a_killed_worker_has_a_successor(lake: Lake, kind: str) -> None:
    lake.change()
    victim = lake.victim(kind)
    output, _ = victim.communicate(timeout=PATIENCE_S)
    assert all(f"t{n} at {step.value}" in output for n, step in enumerate(STEPS)), output
    assert kind == "jvm" or victim.returncode == -signal.SIGKILL, output
    lake.change()
    lake.succeed([f"t{n}" for n in range(len(STEPS))])
    check_lake(lake.tables)
