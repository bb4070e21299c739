"""A Spark of several JVMs: a driver, a master and two workers with an executor each."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import dynamic_tables as dt

pytestmark = pytest.mark.spark

MASTER = "local-cluster[2,1,1024]"
PROGRAM = str(Path(sys.executable).with_name("dynamic-tables"))
PATIENCE_S = 300
SCENARIO = """
import sys
import dynamic_tables as dt
from dynamic_tables.store import Claimant

with dt.connect(sys.argv[1], master=sys.argv[2], jvm="quick", poll_s=0.1) as tables:
    assert tables.spark.sparkContext.master.startswith("local-cluster")
    tables.sql("CREATE TABLE orders USING delta AS SELECT id, id % 7 AS customer FROM range(1000)")
    tables.create(
        "totals",
        "SELECT customer, count(*) AS n, sum(id) AS total FROM orders GROUP BY customer",
        trigger_on_change=True,
    )
    tables.create("top", "SELECT max(total) AS most FROM totals", trigger_on_change=True)
    tables.create(
        "kinds",
        "SELECT customer, count(DISTINCT id % 5) AS kinds FROM orders GROUP BY customer",
        trigger_on_change=True, parallel_threshold=4, max_parallelism=2,
    )
    for n in range(2):  # so that `kinds` is shared; whoever coordinates computes slices, too
        tables.store.enter(Claimant(owner=f"counted-{n}", host="elsewhere", pid=1, expires_s=1e6))
    tables.sql("INSERT INTO orders SELECT id + 1000, id % 9 FROM range(100)")
    tables.sql("DELETE FROM orders WHERE id % 10 = 3")
    done = tables.worker(slots=1, say=print).drain()
    assert [record.outcome for record in done] == ["done"] * 3, done
    slices = {record.table.name: (record.strategy, record.slices) for record in done}
    assert slices["kinds"] == ("keys", 2), slices
    for name in ("totals", "top", "kinds"):
        assert tables.verify(name).ok, name
    executors = tables.spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()
    print("equal, with executors:", executors)
"""


def test_tables_are_kept_on_several_jvms(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCENARIO, str(tmp_path / "lake"), MASTER],
        check=False,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    assert "equal, with executors: 3" in done.stdout  # the driver counts as one


@pytest.mark.soak
def test_a_worker_on_several_jvms(tmp_path: Path) -> None:
    """`dynamic-tables worker --master …` refreshes what is due, and ends when it is told to."""
    lake = tmp_path / "lake"
    with dt.connect(lake, jvm="quick", say=lambda _: None) as tables:
        tables.sql("CREATE TABLE orders USING delta AS SELECT id, id % 7 AS c FROM range(100)")
        query = "SELECT c, count(*) AS n FROM orders GROUP BY c"
        tables.create("totals", query, trigger_on_change=True)
        tables.sql("INSERT INTO orders VALUES (200, 3), (201, NULL)")
        store = f"sqlite:///{lake}/dynamic_tables.db"
        words = ["--store", store, "--lake", str(lake), "--master", MASTER, "--jvm", "quick"]
        with subprocess.Popen(
            [PROGRAM, "worker", *words], stderr=subprocess.PIPE, text=True
        ) as one:
            try:
                deadline = time.monotonic() + PATIENCE_S
                while tables.history("totals")[0].trigger != "schedule":
                    assert one.poll() is None, one.stderr and one.stderr.read()
                    assert time.monotonic() < deadline
                    time.sleep(0.5)
                one.send_signal(signal.SIGTERM)
                _, said = one.communicate(timeout=PATIENCE_S)
            finally:
                one.kill()
        assert one.returncode == 0, said
        assert tables.history("totals")[0].outcome == "done"
        assert tables.verify("totals").ok
