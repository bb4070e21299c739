"""Millions of affected keys stay in Spark, which spills where its memory ends; Python sees none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(1800)]

KEYS = 1_600_000
SCENARIO = """
import json, resource, sys
import dynamic_tables as dt
from dynamic_tables.lake import jvm

keys = int(sys.argv[2])


def spilled(spark):
    gateway, store = spark.sparkContext._gateway, jvm.scala_context(spark).statusStore()
    nothing, statuses = gateway.new_array(gateway.jvm.double, 0), gateway.jvm.java.util.ArrayList()
    stages = store.stageList(None, False, False, nothing, statuses)
    return sum(stage.diskBytesSpilled() for stage in jvm.items(stages))


def megabytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


with dt.connect(sys.argv[1], memory="600m") as tables:
    tables.sql(
        "CREATE TABLE facts USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)"
        f" AS SELECT uuid() AS k, id AS v FROM range({keys})"
    )
    tables.create("kinds", "SELECT k, count(DISTINCT v % 3) AS n FROM facts GROUP BY k")
    tables.sql("INSERT INTO facts SELECT k, v + 1 FROM facts WHERE v % 8 <> 0")
    before, small = spilled(tables.spark), megabytes()
    record = tables.refresh("kinds", strategy="keys")["kinds"]
    print(json.dumps({
        "strategy": record.strategy,
        "written": record.work.rows_inserted,
        "spilled": spilled(tables.spark) - before,
        "grown": megabytes() - small,
        "equal": tables.verify("kinds").ok,
    }))
"""


def test_millions_of_keys_in_little_memory(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCENARIO, str(tmp_path / "lake"), str(KEYS)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["strategy"], told["equal"]) == ("keys", True)
    assert told["written"] == KEYS * 7 // 8
    assert told["spilled"] > 0, told
    assert told["grown"] < 100, told  # MB of Python, for what are hundreds as keys alone
    print(told)
