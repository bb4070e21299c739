"""Said in time: a source is about to forget what a table has not read yet.

Delta keeps removed files and old commits for as long as the table's properties say. A refresh that
comes later cannot be made of changes any more: the table is recomputed (HISTORY_GONE).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from dynamic_tables.lake.base import Lake
from dynamic_tables.model import TableState

NEARLY = 0.75  # of the time for which history is kept
DAY_S = 86_400


def expiring(lake: Lake, state: TableState, now: datetime) -> Iterator[str]:
    """The sources whose history will soon no longer reach back to the table's last refresh."""
    if state.build is None:
        return
    age_s = (now - state.build.cut.instant).total_seconds()
    read = {pin.source_id: pin.version for pin in state.build.pins}
    for source in state.definition.sources:
        present = lake.source_state(source)
        unread = present.version > read.get(present.source_id, present.version)
        if unread and present.kept_s is not None and age_s > NEARLY * present.kept_s:
            yield (
                f"{source.name} keeps its history for {_days(present.kept_s)}, "
                f"and was read {_days(age_s)} ago"
            )


def _days(seconds: float) -> str:
    """A span of time for people.

    >>> _days(6.5 * DAY_S), _days(3600)
    ('6.5 days', '0.0 days')
    """
    return f"{seconds / DAY_S:.1f} days"
