"""Running victims, and what must hold after any of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from pathlib import Path

import dynamic_tables as dt
from dynamic_tables.lake.log import commits_between
from dynamic_tables.steps import AnyStep
from oracle import check

VICTIM = Path(__file__).with_name("victim.py")
PATIENCE_S = 200
Plan = Mapping[str, AnyStep]  # to which step each table goes


def start_victim(
    folder: Path,
    kind: str,
    plan: Plan,
    environment: Mapping[str, str] | None = None,
    optimized: Collection[str] = (),
) -> subprocess.Popen[str]:
    """Each table of the plan goes to its step; then `kind` happens."""
    words = {table: f"optimize:{table}" if table in optimized else table for table in plan}
    steps = [f"{words[table]}={step.value}" for table, step in plan.items()]
    return subprocess.Popen(
        [sys.executable, str(VICTIM), str(folder), kind, *steps],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )


def run_victim(
    folder: Path,
    kind: str,
    plan: Plan,
    environment: Mapping[str, str] | None = None,
    optimized: Collection[str] = (),
) -> str:
    """Let a victim run to its end; its output."""
    victim = start_victim(folder, kind, plan, environment, optimized)
    output, _ = victim.communicate(timeout=PATIENCE_S)
    for table, step in plan.items():
        assert f"{table} at {step.value}" in output, output
    if kind in ("python", "both"):
        assert victim.returncode == -signal.SIGKILL, output
    return output


def wait_until_stopped(victim: subprocess.Popen[str]) -> None:
    """Until the victim has sent SIGSTOP to itself."""
    _, status = os.waitpid(victim.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status), victim.stdout.read() if victim.stdout else status


def wait_for(file: Path) -> None:
    """Until a victim has made it."""
    deadline = time.monotonic() + PATIENCE_S
    while not file.exists():
        assert time.monotonic() < deadline, f"{file.name} did not come"
        time.sleep(0.05)


def check_lake(tables: dt.DynamicTables, *names: str) -> None:
    """Every table (or those named) equals its query; its numbers have no gap and no repeat; nothing
    is left open."""
    check(tables, *names)
    for state in [tables.show(name) for name in names] if names else tables.list():
        definition = state.definition
        assert tables.store.intent(definition.table_id) is None
        assert tables.store.holder(definition.table_id) is None
        newest = tables.lake.standing(definition)
        commits = commits_between(tables.spark, definition.location, -1, newest.version)
        numbers = [commit.stamp.sequence for commit in reversed(commits) if commit.stamp]
        assert numbers == list(range(1, newest.sequence + 1)), definition.name
