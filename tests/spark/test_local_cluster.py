"""A Spark of several JVMs: a driver, a master and two workers with an executor each."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

SCENARIO = """
import sys
import dynamic_tables as dt

with dt.connect(sys.argv[1], master="local-cluster[2,1,1024]", jvm="quick") as tables:
    assert tables.spark.sparkContext.master.startswith("local-cluster")
    tables.sql("CREATE TABLE orders USING delta AS SELECT id, id % 7 AS customer FROM range(1000)")
    tables.create(
        "totals",
        "SELECT customer, count(*) AS n, sum(id) AS total FROM orders GROUP BY customer",
        trigger_on_change=True,
    )
    tables.create("top", "SELECT max(total) AS most FROM totals", trigger_on_change=True)
    tables.sql("INSERT INTO orders SELECT id + 1000, id % 9 FROM range(100)")
    tables.sql("DELETE FROM orders WHERE id % 10 = 3")
    done = tables.worker(slots=1, say=print).drain()
    assert [record.outcome for record in done] == ["done", "done"], done
    for name in ("totals", "top"):
        assert tables.verify(name).ok, name
    executors = tables.spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()
    print("equal, with executors:", executors)
"""


def test_tables_are_kept_on_several_jvms(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCENARIO, str(tmp_path / "lake")],
        check=False,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    assert "equal, with executors: 3" in done.stdout  # the driver counts as one
