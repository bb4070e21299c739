"""The changes of a table: what its change feed tells, or the rows of the files that differ.

Without a feed, what went are the rows of files that one version has and a later one has not; what
came are those of files that it has instead. Rows that were only copied from file to file are among
both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from dynamic_tables.errors import RefreshError
from dynamic_tables.lake import jvm, snapshots
from dynamic_tables.lake.commit_files import actions_of
from dynamic_tables.lake.jvm import DELTA
from dynamic_tables.lake.transaction import CHANGE_TYPE
from dynamic_tables.reasons import Reason

Action = dict[str, Any]  # an `add` of Delta's log
CHANGE_FEED = f"{DELTA}.commands.cdc.CDCReader"
TOLD_BY_FEED = (  # what `changesToBatchDF` takes
    f"{DELTA}.DeltaLog", "long", "long", "org.apache.spark.sql.SparkSession",
    "scala.Option", "scala.Option", "boolean", "scala.Option",
)  # fmt: skip


@dataclass(slots=True)
class Differing:
    """The files that went and came, by path and deletion vector: together they name a content."""

    went: dict[tuple[Any, ...], Action] = field(default_factory=dict)
    came: dict[tuple[Any, ...], Action] = field(default_factory=dict)

    def follow(self, commit: Iterable[Mapping[str, Any]]) -> None:
        """Go on by one commit."""
        removed, added, changes_data = [], [], False
        for action in commit:
            for kind, files in (("remove", removed), ("add", added)):
                if file := action.get(kind):
                    files.append(_as_added(file))
                    changes_data |= file["dataChange"]
        if not removed and not changes_data:
            return  # files that are there are named again, with statistics or tags
        for file in removed:
            if self.came.pop(_content(file), None) is None:
                self.went[_content(file)] = file
        for file in added:
            if self.went.pop(_content(file), None) is None:
                self.came[_content(file)] = file

    @property
    def bytes(self) -> int:
        return sum(file["size"] for file in (*self.went.values(), *self.came.values()))

    @property
    def rows(self) -> int | None:
        """About how many they have: a removed file need not tell, it is taken for one as dense as
        the others. None if no file tells."""
        counts = [
            (snapshots.rows_in(f), f["size"]) for f in (*self.went.values(), *self.came.values())
        ]
        known = [(rows, size) for rows, size in counts if rows is not None]
        told, size = sum(rows for rows, _ in known), sum(size for _, size in known)
        if len(known) == len(counts):
            return told
        return round(told * self.bytes / size) if size else None


def _as_added(file: Mapping[str, Any]) -> Action:
    """A file as a commit adds it, as far as reading its rows goes."""
    return {
        "path": file["path"],
        "partitionValues": file.get("partitionValues"),
        "size": file.get("size") or 0,
        "modificationTime": file.get("modificationTime") or file.get("deletionTimestamp") or 0,
        "dataChange": True,
        "deletionVector": file.get("deletionVector"),
        "stats": file.get("stats"),
    }


def _content(file: Action) -> tuple[Any, ...]:
    vector = file.get("deletionVector") or {}
    place = (vector.get(part) for part in ("storageType", "pathOrInlineDv", "offset"))
    return (file["path"], *place)


def changes_by_feed(
    session: SparkSession, location: str, before: int, after: int
) -> DataFrame | None:
    """What the change feed tells between two versions; None if the table has none at the later.

    Delta's reader makes a query of it twice: once for what is asked of it, once inside of it.
    """
    log = snapshots.delta_log_by_path(session, location)
    snapshot = snapshots.snapshot_at(session, log, after)
    if not snapshots.has_feed(snapshot):
        return None
    told = jvm.static(session, CHANGE_FEED, "changesToBatchDF")
    none = jvm.some(session, None)
    with jvm.active(session):
        rows = told(
            log,
            before + 1,
            after,
            session._jsparkSession,
            none,
            jvm.some(session, snapshot),
            False,  # copies of a row do not cancel each other
            none,
        )
    return DataFrame(rows, session)


@dataclass(frozen=True, slots=True)
class FileChanges:
    """What a change feed would tell, and every copied row as a pair."""

    rows: DataFrame
    bytes_read: int  # of the files that differ


def changes_by_files(session: SparkSession, location: str, before: int, after: int) -> FileChanges:
    """The changes between two versions."""
    try:
        found = differing_files(session, location, before, after)
    except FileNotFoundError as error:
        raise _untold(location, before) from error
    went = _rows(session, location, before, list(found.went.values()))
    came = _rows(session, location, after, list(found.came.values()))
    rows = _marked(came, "insert").unionByName(_marked(went, "delete"), allowMissingColumns=True)
    return FileChanges(rows, bytes_read=found.bytes)


def differing_files(session: SparkSession, location: str, before: int, after: int) -> Differing:
    """FileNotFoundError: the log no longer has all commits between the two versions."""
    found = Differing()
    for version in range(before + 1, after + 1):
        found.follow(actions_of(session, location, version))
    return found


def _untold(location: str, version: int) -> RefreshError:
    return RefreshError(
        f"its log does not tell what happened after version {version}",
        reason=Reason.HISTORY_GONE,
        about=location,
        hint="turn on its change feed, and refresh more often than its log is cleaned up",
    )


def _marked(rows: DataFrame, kind: str) -> DataFrame:
    return rows.withColumn(CHANGE_TYPE, F.lit(kind))


def _rows(session: SparkSession, location: str, version: int, files: Sequence[Action]) -> DataFrame:
    """The rows of some files, as a version of the table sees them."""
    read = jvm.static(session, f"{DELTA}.actions.Action", "fromJson")
    with jvm.active(session):
        log = snapshots.delta_log_by_path(session, location)
        snapshot = snapshots.snapshot_at(session, log, version)
        partitioned = not snapshot.metadata().partitionColumns().isEmpty()
        if partitioned and any(file["partitionValues"] is None for file in files):
            raise _untold(location, version)  # not every writer says what it removes
        texts = [
            json.dumps({"add": {**file, "partitionValues": file["partitionValues"] or {}}})
            for file in files
        ]
        added = jvm.sequence(session, [read(text) for text in texts])
        frame = log.createDataFrame(snapshot, added, False, jvm.some(session, None))
    return DataFrame(frame, session)


def try_internals(session: SparkSession) -> None:
    jvm.check_signature(session, CHANGE_FEED, "changesToBatchDF", TOLD_BY_FEED)
