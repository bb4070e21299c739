"""`kill -9` at every step of row-group order: the table is as it was, or done; VACUUM takes the
rest."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from harness import PATIENCE_S

import dynamic_tables as dt
from dynamic_tables.steps import LayoutStep
from oracle import bag

pytestmark = pytest.mark.spark
VICTIM = Path(__file__).with_name("rorder_victim.py")


def test_killed_at_every_step(tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    with dt.connect(folder, jvm="quick", say=lambda _: None) as tables:
        for step in LayoutStep:
            tables.sql(f"CREATE TABLE {step} USING delta AS SELECT id % 3 AS k, id FROM range(30)")
        before = {step: bag(tables.spark.table(step).collect()) for step in LayoutStep}
    kill(folder)
    with dt.connect(folder, jvm="quick", say=lambda _: None) as tables:
        tables.sql("SET spark.databricks.delta.retentionDurationCheck.enabled = false")
        for step in LayoutStep:
            check(tables, step, before[step])


def kill(folder: Path) -> None:
    command = [sys.executable, str(VICTIM), str(folder)]
    victim = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert victim.returncode == -signal.SIGKILL, victim.stdout + victim.stderr
    assert victim.stdout.count(" at ") == len(LayoutStep)


def check(tables: dt.DynamicTables, step: LayoutStep, before: object) -> None:
    """The same rows; done only where the commit had returned; a new run does it, nothing is left
    after VACUUM."""
    frame = tables.spark.table(step)
    place = Path(frame.inputFiles()[0].removeprefix("file:")).parent
    assert bag(frame.collect()) == before
    versions = tables.sql(f"DESCRIBE HISTORY {step}").count()
    assert versions == (2 if step is LayoutStep.EXCHANGED else 1)
    dt.rorder(step.value, unique_by="k", spark=tables.spark)
    tables.sql(f"VACUUM {step} RETAIN 0 HOURS")
    assert bag(tables.spark.table(step).collect()) == before
    assert len([*place.glob("*.parquet")]) == len(tables.spark.table(step).inputFiles()) == 1
