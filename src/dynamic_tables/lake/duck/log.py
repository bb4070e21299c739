"""What each snapshot of a DuckLake changed.

DuckLake numbers the snapshots of the whole catalog, not those of a table. The version of a table is
therefore the newest snapshot that touched it: so it stands still while other tables change, cuts
compare as on Delta, and a note "orders has version 7, read at 5" is never about somebody else's
table. Snapshots never change once they are there, so each is read once in the life of a process.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from dynamic_tables.lake.base import Commit, Stamp
from dynamic_tables.lake.duck.opening import Instance
from dynamic_tables.lake.duck.text import METADATA

DATA_CHANGES = frozenset(
    {"inserted_into_table", "deleted_from_table", "inlined_insert", "inlined_delete"}
)
REMOVALS = frozenset({"deleted_from_table", "inlined_delete"})  # an update is one, too
ALTERED = "altered_table"  # columns, but also comments and options
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_SNAPSHOTS = f"""
    SELECT snapshot_id, changes_made, commit_extra_info, epoch_us(snapshot_time)
    FROM {METADATA}.ducklake_snapshot_changes LEFT JOIN {METADATA}.ducklake_snapshot
        USING (snapshot_id) WHERE snapshot_id > ? ORDER BY snapshot_id
"""  # noqa: S608  a constant; ducklake_snapshots() looks at all snapshots for every question
_EXISTING = f"SELECT min(snapshot_id) FROM {METADATA}.ducklake_snapshot WHERE snapshot_id >= ?"  # noqa: S608  a constant


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One commit to the catalog."""

    version: int
    data: frozenset[int]  # DuckLake's ids of the tables whose rows changed
    removed: frozenset[int]  # of them: those whose rows went
    altered: frozenset[int]  # ids of the tables that were altered
    operation: str
    stamp: Stamp | None
    committed_at: datetime | None
    metrics: Mapping[str, str] = field(default_factory=dict)


class SnapshotLog:
    """The snapshots of one lake, read once each."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._lock = threading.Lock()
        self._snapshots: dict[int, Snapshot] = {}
        self._read_to = -1
        self._touched: dict[int, int] = {}  # the newest snapshot by DuckLake's table id
        self._stamped: dict[str, int] = {}  # the newest snapshot by our table id
        self._unstamped: dict[int, int] = {}  # the newest without a stamp, by DuckLake's table id
        self._existing: dict[int, int] = {}  # the oldest snapshot that is left, from one on
        self._expired = 0  # for which they were asked

    def version_of(self, lake_id: int, created: int, table_id: str | None = None) -> int:
        """The newest snapshot that touched a table; a fence counts for a table of ours.

        If that one has expired, the oldest one after it: nothing touched the table in between.
        """
        with self._lock:
            self._read_on()
            touched = self._touched.get(lake_id, created)
            if table_id is not None:
                touched = max(touched, self._stamped.get(table_id, 0))
            return self._left_from(touched)

    def _left_from(self, version: int) -> int:
        """The oldest snapshot that is left, from a version on."""
        expired = self._instance.newest().expired
        if expired != self._expired:
            self._existing, self._expired = {}, expired
        if version not in self._existing:
            ((existing,),) = self._instance.rows(_EXISTING, [version])
            self._existing[version] = version if existing is None else existing
        return self._existing[version]

    def unstamped(self, lake_id: int) -> int:
        """The newest snapshot that touched a table and was no refresh."""
        with self._lock:
            self._read_on()
            return self._unstamped.get(lake_id, 0)

    def number(self, table_id: str) -> int:
        """The newest number n that a commit for a table of ours carries; 0: none that is left."""
        with self._lock:
            self._read_on()
            found = self._snapshots.get(self._stamped.get(table_id, -1))
            return found.stamp.sequence if found is not None and found.stamp is not None else 0

    def commits(self, lake_id: int, after: int, to: int) -> tuple[Commit, ...]:
        """One commit for every snapshot in (after, to], newest first; gaps where some expired.

        Snapshots that did not touch the table are there as commits that changed none of its rows.
        """
        with self._lock:
            self._read_on()
            found = [
                self._snapshots[version]
                for version in range(to, after, -1)
                if version in self._snapshots
            ]
        return tuple(
            Commit(
                version=item.version,
                operation=item.operation,
                changes_data=lake_id in item.data,
                stamp=item.stamp,
                metrics=item.metrics,
                committed_at=item.committed_at,
            )
            for item in found
        )

    def rows_went(self, lake_id: int, after: int, to: int) -> bool | None:
        """Whether rows of a table went in (after, to]; None: what could tell has expired."""
        with self._lock:
            self._read_on()
            found = [self._snapshots.get(version) for version in range(after + 1, to + 1)]
        if any(item is not None and lake_id in item.removed for item in found):
            return True
        return None if None in found else False

    def altered(self, lake_id: int, after: int, to: int) -> bool:
        with self._lock:
            return any(
                lake_id in item.altered
                for version, item in self._snapshots.items()
                if after < version <= to
            )

    def _read_on(self) -> None:
        if self._instance.newest().snapshot == self._read_to:
            return
        for version, changes, extra, micros in self._instance.rows(_SNAPSHOTS, [self._read_to]):
            snapshot = _snapshot(version, changes, extra, micros)
            self._snapshots[version] = snapshot
            self._read_to = version
            for lake_id in snapshot.data | snapshot.altered:
                self._touched[lake_id] = version
            if snapshot.stamp is not None:
                self._stamped[snapshot.stamp.table_id] = version
                continue
            for lake_id in snapshot.data:
                self._unstamped[lake_id] = version


def _snapshot(version: int, changes: str, extra: str | None, micros: int | None) -> Snapshot:
    """DuckLake lists the changes as `inserted_into_table:5,created_table:"main"."name"`."""
    stamp, metrics = unpacked(extra)
    items = [item.partition(":")[::2] for item in _QUOTED.sub("", changes).split(",") if item]
    return Snapshot(
        version=version,
        data=frozenset(int(lake_id) for kind, lake_id in items if kind in DATA_CHANGES),
        removed=frozenset(int(lake_id) for kind, lake_id in items if kind in REMOVALS),
        altered=frozenset(int(lake_id) for kind, lake_id in items if kind == ALTERED),
        operation=", ".join(sorted({kind for kind, _ in items})),
        stamp=stamp,
        committed_at=None if micros is None else datetime.fromtimestamp(micros / 1e6, UTC),
        metrics=metrics,
    )


def packed(stamp: Stamp, metrics: Mapping[str, int]) -> str:
    """What our commits carry as `extra_info`."""
    counted = {key: str(value) for key, value in metrics.items()}
    return json.dumps({"stamp": stamp.as_json(), "metrics": counted})


def unpacked(text: str | None) -> tuple[Stamp | None, dict[str, str]]:
    """Our stamp and figures, if the commit carries them."""
    try:
        content: Any = json.loads(text or "null")
    except json.JSONDecodeError:
        return None, {}
    if not isinstance(content, dict) or set(content) != {"stamp", "metrics"}:
        return None, {}
    stamp = content["stamp"]
    if not isinstance(stamp, dict) or set(stamp) != set(Stamp.__dataclass_fields__):
        return None, {}
    return Stamp(**stamp), content["metrics"]
