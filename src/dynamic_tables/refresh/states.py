"""From commits in the lake to states and figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dynamic_tables.definition import Definition
from dynamic_tables.lake.base import Commit, Lake
from dynamic_tables.model import Build, Cut, Pin, Work
from dynamic_tables.refresh.facts import is_ours

FENCE = "fence"  # the strategy in the stamp of a commit that only takes a number


def is_fence(commit: Commit) -> bool:
    return commit.stamp is not None and commit.stamp.strategy == FENCE


def newest_build(lake: Lake, definition: Definition) -> Build | None:
    """The state that the lake itself records: our newest commit that is no fence."""
    standing = lake.standing(definition)
    for commit in lake.commits(definition, -1, standing.version):
        if is_ours(commit, definition) and not is_fence(commit):
            return build_of(commit)
    return None


def build_of(commit: Commit) -> Build:
    stamp = commit.stamp
    assert stamp is not None
    return Build(
        table_id=stamp.table_id,
        sequence=stamp.sequence,
        version=commit.version,
        cut=Cut.from_json(stamp.cut),
        pins=tuple(Pin.from_json(pin) for pin in stamp.pins),
        fingerprint=stamp.fingerprint,
    )


def with_metrics(work: Work, metrics: Mapping[str, str]) -> Work:
    """Rows, files and bytes as Delta counted them in the commit."""

    def number(*names: str) -> int | None:
        found = [int(metrics[name]) for name in names if name in metrics]
        return sum(found) if found else None

    merged = "numTargetRowsInserted" in metrics
    deleted = number("numTargetRowsDeleted") if merged else work.rows_deleted
    return replace(
        work,
        rows_inserted=number("numTargetRowsInserted") if merged else number("numOutputRows"),
        rows_updated=number("numTargetRowsUpdated") if merged else 0,
        rows_deleted=deleted,
        bytes_written=number("numOutputBytes", "numTargetBytesAdded"),
        files_written=number("numFiles", "numTargetFilesAdded"),
    )


def behind_note(pins: tuple[Pin, ...]) -> str | None:
    """Say which sources have newer versions than the cut."""
    behind = [
        f"{pin.name} has version {pin.latest}, read at {pin.version}"
        for pin in pins
        if pin.latest > pin.version
    ]
    return "; ".join(behind) or None
