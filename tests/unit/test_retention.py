"""A warning comes before a source has forgotten what a table has not read."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from builders import INSTANT, build, definition, pin, state

from dynamic_tables.lake.base import SourceState
from dynamic_tables.refresh.retention import expiring

WEEK_S = 7 * 86_400.0
PIN = pin("orders", 4)
TABLE = state(definition("t", reads=("orders",)), build("t", 1, {}, (PIN,)))


class Lake:
    def __init__(self, version: int, kept_s: float | None) -> None:
        self._state = SourceState(
            source_id=PIN.source_id, version=version, columns=(), location="", kept_s=kept_s
        )

    def source_state(self, _: Any) -> SourceState:
        return self._state


@pytest.mark.parametrize(
    ("version", "kept_s", "days", "warned"),
    [
        (5, WEEK_S, 6, True),
        (5, WEEK_S, 2, False),
        (4, WEEK_S, 6, False),  # nothing happened since
        (5, None, 600, False),  # kept until somebody acts
    ],
)
def test_warned_in_time(version: int, kept_s: float | None, days: int, *, warned: bool) -> None:
    lake: Any = Lake(version, kept_s)
    found = list(expiring(lake, TABLE, INSTANT + timedelta(days=days)))
    assert bool(found) is warned
    assert (
        not found or "orders keeps its history for 7.0 days, and was read 6.0 days ago" in found[0]
    )


def test_a_table_that_was_never_loaded_reads_everything_anyway() -> None:
    lake: Any = Lake(5, WEEK_S)
    never = state(definition("t", reads=("orders",)))
    assert list(expiring(lake, never, INSTANT + timedelta(days=9))) == []
