"""What the commits in Delta's log tell.

No Spark job is needed to learn what happened to a table between two versions: which operation it
was, whether it changed rows (`dataChange`), and whether the commit is one of ours.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import SparkSession

from dynamic_tables.lake.base import Commit, Stamp
from dynamic_tables.lake.commit_files import actions_of
from dynamic_tables.names import quote

# Commits that change no row but may change what a query finds.
SCHEMA_OPERATIONS = frozenset({
    "CHANGE COLUMN", "CHANGE COLUMNS", "DROP COLUMNS", "RENAME COLUMN", "REPLACE COLUMNS",
    "UPDATE SCHEMA",
})  # fmt: skip

# Of these, those after which a name may mean another column.
RENAMING_OPERATIONS = frozenset({"DROP COLUMNS", "RENAME COLUMN", "REPLACE COLUMNS"})


def commits_between(spark: SparkSession, location: str, after: int, to: int) -> tuple[Commit, ...]:
    """The commits in (after, to], newest first; fewer if the log no longer has all of them."""
    found = []
    for version in range(to, after, -1):
        commit = _commit(spark, location, version)
        if commit is None:
            return _described(spark, location, after, to)
        found.append(commit)
    return tuple(found)


def _commit(spark: SparkSession, location: str, version: int) -> Commit | None:
    info: dict[str, Any] = {}
    changed: dict[str, list[dict[str, Any]]] = {}  # files that came and went, by path
    removes = False
    fed: list[int] = []  # bytes of the files of its feed
    redefines = False
    try:
        for action in actions_of(spark, location, version):
            info = action.get("commitInfo", info)
            redefines = redefines or "metaData" in action
            if cdc := action.get("cdc"):
                fed.append(cdc.get("size") or 0)
            file = action.get("add") or action.get("remove") or {}
            if file.get("dataChange"):
                changed.setdefault(file["path"], []).append(file)
                removes = removes or "remove" in action
    except FileNotFoundError:
        return None
    read = fed or [_size(files) for files in changed.values()]
    return Commit(
        version=version,
        operation=info.get("operation", ""),
        changes_data=bool(changed),
        stamp=_stamp(info.get("userMetadata")),
        metrics=info.get("operationMetrics") or {},
        replaces=_replaces(info.get("operationParameters")),
        removes=removes,
        changed_bytes=sum(fed or map(_changed_bytes, changed.values())),
        read_bytes=sum(read),
        read_files=len(read),
        committed_at=_instant(info.get("inCommitTimestamp") or info.get("timestamp")),
        redefines=redefines,
    )


def _replaces(parameters: Mapping[str, str] | None) -> bool:
    """Whether a write takes the place of rows; a stream that writes all of its result does, too."""
    told = parameters or {}
    return told.get("mode") == "Overwrite" or told.get("outputMode") == "Complete"


def _instant(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)


def _changed_bytes(files: Sequence[Mapping[str, Any]]) -> int:
    """Of a file that came or went all; of one that stays, the share of rows that it was marked by.

    >>> stays = {"size": 1000, "stats": '{"numRecords": 10}', "deletionVector": {"cardinality": 3}}
    >>> _changed_bytes([{"size": 1000}, stays]), _changed_bytes([{"size": 1000}])
    (300, 1000)
    """
    size = _size(files)
    if len(files) == 1:
        return size
    rows = max(json.loads(file.get("stats") or "{}").get("numRecords", 0) for file in files)
    gone = [(file.get("deletionVector") or {}).get("cardinality", 0) for file in files]
    return round(size * (max(gone) - min(gone)) / rows) if rows else size


def _size(files: Sequence[Mapping[str, Any]]) -> int:
    """Of one file, which a commit may name twice: as it was and as it is."""
    return sum(file.get("size") or 0 for file in files) // len(files)


def _described(spark: SparkSession, location: str, after: int, to: int) -> tuple[Commit, ...]:
    """The same from DESCRIBE HISTORY, which knows every place a commit may lie in."""
    history = spark.sql(f"DESCRIBE HISTORY delta.{quote(location)}")
    rows = history.where(f"version > {after:d} AND version <= {to:d}").collect()
    return tuple(
        Commit(
            version=row.version,
            operation=row.operation,
            changes_data=row.operation not in NO_DATA_OPERATIONS,
            stamp=_stamp(row.userMetadata),
            metrics=row.operationMetrics or {},
            replaces=_replaces(row.operationParameters),
            removes=row.operation not in ADDING_OPERATIONS or _replaces(row.operationParameters),
            committed_at=row.timestamp.astimezone(UTC),
        )
        for row in rows
    )


# What DESCRIBE HISTORY does not tell: operations that leave every row as it was.
NO_DATA_OPERATIONS = frozenset({
    "ADD COLUMNS", "ADD CONSTRAINT", "CLUSTER BY", "COMPUTE STATS", "CREATE TABLE",
    "DROP CONSTRAINT", "DROP FEATURE", "OPTIMIZE", "REORG", "ROW TRACKING BACKFILL",
    "SET TBLPROPERTIES", "UNSET TBLPROPERTIES", "UPGRADE PROTOCOL", "VACUUM END", "VACUUM START",
    *SCHEMA_OPERATIONS,
})  # fmt: skip


ADDING_OPERATIONS = frozenset({"WRITE", "STREAMING UPDATE"})

# How many rows an operation changed, by its metrics: an update is two rows of the change feed.
_CHANGED_ROWS = {
    "WRITE": {"numOutputRows": 1},
    "STREAMING UPDATE": {"numOutputRows": 1},
    "CREATE TABLE AS SELECT": {"numOutputRows": 1},
    "DELETE": {"numDeletedRows": 1},
    "UPDATE": {"numUpdatedRows": 2},
    "MERGE": {"numTargetRowsInserted": 1, "numTargetRowsUpdated": 2, "numTargetRowsDeleted": 1},
}


def changed_rows(commits: Iterable[Commit]) -> int | None:
    """How many rows of changes some commits have, by what they tell; None if one does not.

    An overwrite does not tell how many rows it removed.
    """
    total = 0
    for commit in commits:
        if not commit.changes_data:
            continue
        known = _CHANGED_ROWS.get(commit.operation, {})
        if commit.replaces or not known.keys() & commit.metrics.keys():
            return None
        total += sum(times * int(commit.metrics.get(name, 0)) for name, times in known.items())
    return total


def only_adds(commit: Commit) -> bool:
    """Whether a commit leaves all rows as they are that were there before it.

    Its files tell, whichever program wrote it, and whatever that calls its operations.
    """
    return not (commit.changes_data and commit.removes)


def only_removes(commit: Commit) -> bool:
    """Whether a commit brings no row that was not there before it."""
    if commit.operation == "MERGE":
        came = (commit.metrics.get(f"numTargetRows{how}") for how in ("Updated", "Inserted"))
        return all(number == "0" for number in came)
    return not commit.changes_data or commit.operation == "DELETE"


def _stamp(text: str | None) -> Stamp | None:
    """Our stamp, if the commit carries one."""
    if not text:
        return None
    try:
        content: Any = json.loads(text)
    except json.JSONDecodeError:
        return None
    if not isinstance(content, dict) or set(content) != set(Stamp.__dataclass_fields__):
        return None
    return Stamp(**content)
