"""A commit without Spark: the same rows lie in other files.

It is made as the next version after the newest one, by a file that is created only if it is not
there. So whoever commits first is seen, and the newest version is looked at again: files that were
added stay; if a file of the partition went, or rows of it, the partition is left as it is; other
columns, properties or features end the attempt.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote as url_quote
from uuid import uuid4

from dynamic_tables.errors import Held, Refused
from dynamic_tables.lake.plain_delta import log
from dynamic_tables.lake.plain_delta.log import ROW_TRACKING, File, Metadata, Protocol, Snapshot
from dynamic_tables.lake.plain_delta.store import Store
from dynamic_tables.lake.row_groups.order import ORDER_TAG
from dynamic_tables.lake.row_groups.unaltered import check_unaltered, without_marks
from dynamic_tables.lake.row_groups.writing import NewFile
from dynamic_tables.reasons import Reason
from dynamic_tables.steps import LayoutStep, reached

PLAIN_IN_PATHS = "/=-_.~!$&'()*+,;@"  # the log has them as they are
ATTEMPTS = 20  # while others commit again and again
PAUSE_S, LONGEST_PAUSE_S = 0.02, 2.0  # between them; doubled each time, and of random length
LOCK_WAIT_S = 60.0  # for others who commit to a table on local disk
ROW_IDS_KEPT = "delta.rowTracking.preserved"  # tag of a commit
NO_ROW_ID = {"baseRowId": -(10**15), "defaultRowCommitVersion": -1}  # of rows that lost theirs
IN_COMMIT_TIME = "delta.enableInCommitTimestamps"


def as_added(file: NewFile, values: Mapping[str, str | None], tag: str) -> dict[str, Any]:
    """The log's words for a file that comes."""
    return {
        "path": url_quote(file.path, safe=PLAIN_IN_PATHS),
        "partitionValues": dict(values),
        "size": file.size,
        "modificationTime": file.modified,
        "dataChange": False,
        "stats": file.statistics,
        "tags": {ORDER_TAG: tag},
    }


def as_removed(file: File, now: int) -> dict[str, Any]:
    """The log's words for a file that goes; its deletion vector is part of its name."""
    gone = {
        "path": file.path,
        "deletionTimestamp": now,
        "dataChange": False,
        "extendedFileMetadata": True,
        "partitionValues": dict(file.partition_values),
        "size": file.size,
        "tags": dict(file.tags) or None,
        "deletionVector": file.vector,
        "baseRowId": file.base_row_id,
        "defaultRowCommitVersion": file.commit_version,
        "stats": file.statistics,
    }
    return {key: value for key, value in gone.items() if value is not None}


def swapped(
    store: Store,
    read: Snapshot,
    old: Sequence[File],
    new: Sequence[NewFile],
    tag: str,
    values: Mapping[str, str | None],
) -> int | None:
    """The version that has the new files instead of the old ones; None if these have changed."""
    with store.locked(wait_s=LOCK_WAIT_S):
        reached(LayoutStep.LOCKED, store.location)
        known = read
        for attempt in range(ATTEMPTS):
            _wait(attempt)
            known = log.newest(store, known)
            check_unaltered(_metadata(read), _metadata(known), store.location)
            if any(file.state not in known.files for file in old):
                return None
            mark = str(uuid4())
            actions = _actions(store, known, old, new, tag, values, mark)
            content = "".join(f"{json.dumps(action)}\n" for action in actions).encode()
            created = store.create(log.commit_path(known.version + 1), content)
            if created or _is_ours(store, known.version + 1, mark):
                return known.version + 1
    raise Held(
        f"others committed {ATTEMPTS} times while the new files were to be committed",
        reason=Reason.HELD,
        about=store.location,
        hint="run it again when fewer write; nothing was changed",
    )


def _wait(attempt: int) -> None:
    """So that those who finished together do not meet again and again."""
    if attempt:
        longest = min(PAUSE_S * 2**attempt, LONGEST_PAUSE_S)
        time.sleep(longest * secrets.randbelow(1000) / 1000)


def _is_ours(store: Store, version: int, mark: str) -> bool:
    """Whether a commit is the very one that we made, and only the answer was lost."""
    infos = [action.get("commitInfo") or {} for action in log.actions_of(store, version)]
    return any(info.get("txnId") == mark for info in infos)


def _metadata(snapshot: Snapshot) -> tuple[Metadata, Protocol]:
    """Columns, properties and features."""
    metadata = snapshot.metadata
    return replace(metadata, schema=without_marks(metadata.schema)), snapshot.protocol


def _actions(
    store: Store,
    known: Snapshot,
    old: Sequence[File],
    new: Sequence[NewFile],
    tag: str,
    values: Mapping[str, str | None],
    mark: str,
) -> list[dict[str, Any]]:
    now = int(time.time() * 1000)
    info = _info(old, new, tag, mark, now)
    metadata = known.metadata
    if metadata.is_on(IN_COMMIT_TIME):
        info["inCommitTimestamp"] = max(now, _time_of(store, known.version) + 1)
    added = [as_added(file, values, tag) for file in new]
    tracking: list[dict[str, Any]] = []
    suspended = metadata.is_on("delta.rowTrackingSuspended")
    if "rowTracking" in known.protocol.features and not suspended:
        tracking = [_with_row_ids(added, new, known)]
        kept = metadata.is_on("delta.enableRowTracking")
        info["tags"] = {ROW_IDS_KEPT: str(kept).lower()}
    return [
        {"commitInfo": info},
        *({"add": file} for file in added),
        *({"remove": as_removed(file, now)} for file in old),
        *tracking,
    ]


def _with_row_ids(
    added: Sequence[dict[str, Any]], new: Sequence[NewFile], known: Snapshot
) -> dict[str, Any]:
    """Fresh ids for the rows of new files, though their own are written there: the log asks so."""
    highest = -1 if known.highest_row_id is None else known.highest_row_id
    for action, file in zip(added, new, strict=True):
        action["baseRowId"] = highest + 1
        action["defaultRowCommitVersion"] = known.version + 1
        highest += file.rows
    marked = {"rowIdHighWaterMark": highest}
    domain = {"domain": ROW_TRACKING, "configuration": json.dumps(marked), "removed": False}
    return {"domainMetadata": domain}


def _time_of(store: Store, version: int) -> int:
    """The time in a commit, which the next one must exceed."""
    for action in log.actions_of(store, version):
        found = (action.get("commitInfo") or {}).get("inCommitTimestamp")
        if found is not None:
            return found
    raise Refused(
        f"version {version} does not tell when it was committed, as the table's properties ask",
        reason=Reason.TABLE_FEATURE,
        about=store.location,
        hint="use rorder, which goes through Delta on Spark",
    )


def _info(
    old: Sequence[File], new: Sequence[NewFile], tag: str, mark: str, now: int
) -> dict[str, Any]:
    """What DESCRIBE HISTORY shows."""
    metrics = {
        "numRemovedFiles": len(old),
        "numRemovedBytes": sum(file.size for file in old),
        "numAddedFiles": len(new),
        "numAddedBytes": sum(file.size for file in new),
    }
    return {
        "timestamp": now,
        "operation": "OPTIMIZE",
        "operationParameters": {"predicate": "[]", "zOrderBy": "[]", "auto": "false"},
        "isolationLevel": "SnapshotIsolation",
        "isBlindAppend": False,
        "operationMetrics": {name: str(value) for name, value in metrics.items()},
        "userMetadata": tag,
        "engineInfo": "spark-dynamic-tables",
        "txnId": mark,
    }
