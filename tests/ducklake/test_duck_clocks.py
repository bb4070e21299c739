"""Hosts whose clocks are an hour off, with the store in PostgreSQL: its clock counts."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from pathlib import Path

from skewed import move_clock
from store_processes import CONTEXT

import dynamic_tables as dt
from dynamic_tables.model import utc_now
from dynamic_tables.steps import Step, observing
from dynamic_tables.store import Claimant
from postgres import Postgres

PATIENCE_S = 120
QUIET = {"say": lambda _: None}


def work(folder: str, store: str, hours: int, step: Step | None) -> None:
    """A worker whose clock is wrong; it may be killed when it comes to the step with `total`."""
    move_clock(hours)

    def observer(reached: Step, table: str) -> None:
        if reached is step and table.endswith("total"):
            os.kill(os.getpid(), signal.SIGKILL)

    with dt.connect(f"ducklake:{folder}", store=store, **QUIET) as tables, observing(observer):
        wrong = utc_now() - tables.store.now()
        assert abs(wrong - timedelta(hours=hours)) < timedelta(minutes=1)
        tables.worker(slots=1, **QUIET).drain()


def test_hosts_with_wrong_clocks(postgres: Postgres, tmp_path: Path) -> None:
    """What is due, which claim has expired, what time it is in a query and in history."""
    lake, store = f"ducklake:{tmp_path / 'lake'}", postgres.new_database()
    with dt.connect(lake, store=store, **QUIET) as tables:
        began = tables.store.now()
        tables.sql("CREATE TABLE orders AS SELECT 1 AS amount")
        tables.create("total", "SELECT sum(amount) AS n FROM orders", trigger_on_change=True)
        tables.create("twice", "SELECT 2 * n AS n FROM total", trigger_on_change=True)
        tables.create(
            "seldom",
            "SELECT max(amount) AS n FROM orders",
            trigger_on_change=True,
            trigger_at_most_every="30 minutes",
        )
        tables.create(
            "past",
            "SELECT amount FROM orders WHERE current_timestamp > TIMESTAMPTZ '2020-01-01'",
            trigger_on_change=True,
        )
        for name in ("held", "free"):
            tables.create(name, "SELECT min(amount) AS n FROM orders", trigger_on_change=True)
        seldom, held = (tables.history(name)[0] for name in ("seldom", "held"))
        tables.store.claim(held.table_id, "r", elsewhere(1800))
        free = tables.show("free").definition.table_id
    for turn, (hours, step) in enumerate([(1, Step.LOCKED), (-1, Step.COMMITTED)], 1):
        with dt.connect(lake, store=store, **QUIET) as tables:
            tables.sql("INSERT INTO orders VALUES (1)")
            tables.store.claim(free, "r", elsewhere(0.001))
        for wrong, until in ((hours, step), (-hours, None)):
            process = CONTEXT.Process(
                target=work, args=(str(tmp_path / "lake"), store, wrong, until)
            )
            process.start()
            process.join(PATIENCE_S)
            assert process.exitcode == (-signal.SIGKILL if until else 0)
        with dt.connect(lake, store=store, **QUIET) as tables:
            assert tables.read("twice").fetchall() == [(2 * (1 + turn),)]
            assert "RECOVERED" in {record.reason for record in tables.history("total")}
            assert all(tables.verify(name).ok for name in ("total", "past", "free"))
            assert tables.history("held")[0] == held  # its claim has half an hour to go
            assert tables.history("seldom")[0] == seldom  # it was refreshed a moment ago
            for record in tables.store.history(limit=1000):
                assert began <= record.started_at <= tables.store.now()
                assert record.cut is None or began <= record.cut.instant <= tables.store.now()


def elsewhere(expires_s: float) -> Claimant:
    """A process of which nobody here knows whether it lives."""
    return Claimant(owner="other", host="elsewhere", pid=1, expires_s=expires_s)
