"""What commits tell of themselves, before anything is read."""

from __future__ import annotations

import pytest

from dynamic_tables.lake.base import Commit
from dynamic_tables.lake.log import only_adds


@pytest.mark.parametrize(
    ("operation", "metrics", "adds"),
    [
        ("WRITE", {"numOutputRows": "3"}, True),
        ("STREAMING UPDATE", {}, True),
        ("UPDATE", {"numUpdatedRows": "1"}, False),
        ("DELETE", {"numDeletedRows": "1"}, False),
        ("MERGE", {"numTargetRowsUpdated": "0", "numTargetRowsDeleted": "0"}, True),
        ("MERGE", {"numTargetRowsUpdated": "0", "numTargetRowsDeleted": "2"}, False),
        ("MERGE", {}, False),
        ("RESTORE", {}, False),
    ],
)
def test_only_adds(operation: str, metrics: dict[str, str], adds: bool) -> None:
    """What is not known may take rows away."""
    commit = Commit(version=1, operation=operation, changes_data=True, stamp=None, metrics=metrics)
    assert only_adds(commit) is adds


def test_overwrites_do_not_only_add() -> None:
    commit = Commit(
        version=1, operation="WRITE", changes_data=True, stamp=None, metrics={}, replaces=True
    )
    assert not only_adds(commit)
    still = Commit(version=1, operation="OPTIMIZE", changes_data=False, stamp=None, metrics={})
    assert only_adds(still)
