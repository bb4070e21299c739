"""What commits tell of themselves, before anything is read."""

from __future__ import annotations

import pytest

from dynamic_tables.lake.base import Commit
from dynamic_tables.lake.log import only_adds, only_removes


def merged(**rows: int) -> dict[str, str]:
    return {f"numTargetRows{how.capitalize()}": str(number) for how, number in rows.items()}


@pytest.mark.parametrize(
    ("operation", "metrics", "adds", "removes"),
    [
        ("WRITE", {"numOutputRows": "3"}, True, False),
        ("STREAMING UPDATE", {}, True, False),
        ("UPDATE", {"numUpdatedRows": "1"}, False, False),
        ("DELETE", {"numDeletedRows": "1"}, False, True),
        ("MERGE", merged(updated=0, deleted=0, inserted=3), True, False),
        ("MERGE", merged(updated=0, deleted=2, inserted=0), False, True),
        ("MERGE", merged(updated=1, deleted=0, inserted=0), False, False),
        ("MERGE", {}, False, False),
        ("RESTORE", {}, False, False),
    ],
)
def test_one_way(operation: str, metrics: dict[str, str], adds: bool, removes: bool) -> None:
    """What is not known may take rows away, and bring some."""
    commit = Commit(version=1, operation=operation, changes_data=True, stamp=None, metrics=metrics)
    assert (only_adds(commit), only_removes(commit)) == (adds, removes)


def test_overwrites_do_not_only_add() -> None:
    commit = Commit(
        version=1, operation="WRITE", changes_data=True, stamp=None, metrics={}, replaces=True
    )
    assert not only_adds(commit)
    assert not only_removes(commit)
    still = Commit(version=1, operation="OPTIMIZE", changes_data=False, stamp=None, metrics={})
    assert only_adds(still)
    assert only_removes(still)
