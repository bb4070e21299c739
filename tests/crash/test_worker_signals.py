"""`dynamic-tables worker` on Spark, as a process of its own: SIGTERM in the middle of a refresh."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness import PATIENCE_S, check_lake
from test_duck_run import WAITING

import dynamic_tables as dt
from dynamic_tables.cli.program import INTERRUPTED

pytestmark = pytest.mark.spark


@contextmanager
def under_way(folder: Path, go: Path) -> Generator[subprocess.Popen[str]]:
    """A worker that has opened its intent, and commits when the file is there."""
    store = f"sqlite:///{folder}/dynamic_tables.db"
    words = ["worker", "--store", store, "--lake", str(folder), "--master", "local[1]"]
    process = subprocess.Popen(
        [sys.executable, "-c", WAITING, str(go), *words, "--jvm", "quick", "--poll-s", "0.2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "intended\n"
            process.send_signal(signal.SIGTERM)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(1)
            yield process
        finally:
            process.kill()


def ended(process: subprocess.Popen[str]) -> str:
    """What it said."""
    _, said = process.communicate(timeout=PATIENCE_S)
    return said


def test_sigterm(tmp_path: Path) -> None:
    """The first lets it finish its table; the second ends it at once, and another completes it."""
    folder = tmp_path / "lake"
    with dt.connect(folder, jvm="quick", say=lambda _: None) as tables:
        tables.sql("CREATE TABLE orders (amount INT) USING delta")
        tables.create("total", "SELECT sum(amount) AS n FROM orders", trigger_on_change=True)
        table_id = tables.show("total").definition.table_id

        tables.sql("INSERT INTO orders VALUES (1)")
        with under_way(folder, tmp_path / "first") as process:
            (tmp_path / "first").touch()
            said = ended(process)
        assert process.returncode == 0, said
        assert "total is finished or handed back first" in said
        assert tables.store.claims() == tables.store.workers() == tables.store.pending() == []
        assert tables.store.intent(table_id) is None
        assert tables.history("total")[0].reason == "CHANGED"

        tables.sql("INSERT INTO orders VALUES (2)")
        with under_way(folder, tmp_path / "second") as process:
            process.send_signal(signal.SIGTERM)
            said = ended(process)
        assert process.returncode == INTERRUPTED, said
        assert "stopped at once" in said
        assert tables.store.intent(table_id) is not None
        tables.worker(slots=1, say=lambda _: None).drain()
        assert "RECOVERED" in {record.reason for record in tables.history("total")}
        check_lake(tables)
