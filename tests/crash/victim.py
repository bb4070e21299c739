"""A process that does one thing to a lake and is killed, paused or held up at one step.

    python victim.py FOLDER ACTION STEP KIND

ACTION is a statement of ours. KIND says what happens when STEP is reached the first time:
python | jvm | both are killed with SIGKILL; `stop` sends SIGSTOP to itself; `wait` goes on once the
file FOLDER/go exists. The last line of the output is the outcome: `done`, or the reason code.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import dynamic_tables as dt
from dynamic_tables.steps import Step, observing

EXPIRES_S = 2.0  # claims of victims expire soon


def main() -> None:
    folder, action, step, kind = Path(sys.argv[1]), sys.argv[2], Step(sys.argv[3]), sys.argv[4]
    tables = dt.connect(folder, jvm="quick", claim_expires_s=EXPIRES_S)
    fired = False

    def observer(reached: Step, table: str) -> None:
        nonlocal fired
        if reached is step and not fired:
            fired = True
            print(f"at {step.value} of {table}", flush=True)
            _strike(tables, kind, folder)

    with observing(observer):
        try:
            tables.sql(action)
        except dt.RefreshFailed as error:
            outcome = error.report.failed[0].reason.value
        except dt.DynamicTablesError as error:
            outcome = error.reason.value
        else:
            outcome = "done"
    print(outcome, flush=True)


def _strike(tables: dt.DynamicTables, kind: str, folder: Path) -> None:
    if kind == "wait":
        (folder / "waiting").touch()
        while not (folder / "go").exists():
            time.sleep(0.05)
    if kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if kind in ("jvm", "both"):
        process = tables.spark.sparkContext._gateway.proc
        process.kill()
        process.wait()
    if kind in ("python", "both"):
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
