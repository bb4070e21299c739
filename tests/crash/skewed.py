"""A process on a host whose clock is wrong: run a program so many hours off.

    python skewed.py HOURS PROGRAM [ARGUMENT …]

Python's clock is moved, that of the engine is not. `utc_now` stays the function that it is, because
whoever plays the clock with another one is not asked what production does about clocks.
"""

from __future__ import annotations

import runpy
import sys
import time
from datetime import UTC, datetime, timedelta

from dynamic_tables import model


def move_clock(hours: float) -> None:
    """For the rest of this process."""
    real = time.time
    time.time = lambda: real() + hours * 3600
    vars(model)["SKEW"] = timedelta(hours=hours)
    model.utc_now.__code__ = _moved.__code__  # which finds its names in `model`
    assert abs(model.utc_now() - datetime.now(UTC) - timedelta(hours=hours)).total_seconds() < 1


def _moved() -> datetime:
    return datetime.now(UTC) + SKEW  # noqa: F821  # ty: ignore[unresolved-reference]


if __name__ == "__main__":
    move_clock(float(sys.argv[1]))
    del sys.argv[:2]
    runpy.run_path(sys.argv[0], run_name="__main__")
