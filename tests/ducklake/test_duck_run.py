"""`dynamic-tables run`, as a process of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import dynamic_tables as dt

PATIENCE_S = 120


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    folder = tmp_path / "lake"
    with dt.connect(f"ducklake:{folder}", say=lambda _: None) as tables:
        tables.sql("CREATE TABLE orders AS SELECT 1 AS amount")
        tables.create("total", "SELECT sum(amount) AS n FROM orders", trigger_on_change=True)
        tables.create("idle", "SELECT amount FROM orders", target_lag="DOWNSTREAM")
        tables.sql("INSERT INTO orders VALUES (2)")
    return folder


def program(lake: Path, *words: str) -> list[str]:
    dynamic_tables = str(Path(sys.executable).with_name("dynamic-tables"))
    return [dynamic_tables, *words, "--lake", f"ducklake:{lake}"]


def test_once_and_then_nothing_is_due(lake: Path) -> None:
    for expected in (["total"], []):
        done = subprocess.run(
            program(lake, "run", "--once", "--json"), check=True, capture_output=True, text=True
        )
        assert [
            record["table"].rpartition(".")[2] for record in json.loads(done.stdout)
        ] == expected
    assert "idle has TARGET_LAG = DOWNSTREAM" in done.stderr


def test_sigterm_ends_it_after_its_work(lake: Path) -> None:
    running = subprocess.Popen(program(lake, "run"), stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    for line in running.stderr:
        if "keeping tables fresh as process" in line:
            break
    running.send_signal(signal.SIGTERM)
    assert running.wait(PATIENCE_S) == 0
    with dt.connect(f"ducklake:{lake}", say=lambda _: None) as tables:
        assert tables.store.claims() == tables.store.workers() == []
        assert tables.read("total").fetchall() in ([(1,)], [(3,)])


def test_workers_need_a_store(lake: Path) -> None:
    done = subprocess.run(
        program(lake, "worker", "--json"), check=False, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert json.loads(done.stderr)["reason"] == "STORE_MISSING"
