"""One commit that says: the same rows lie in other files.

It carries `dataChange = false`, so that neither the change feed nor a stream sees anything. Delta's
own transaction notices whoever commits at the same time; then the newest version is looked at
again. Files that were added meanwhile stay. A partition of which a file went, or rows of a file,
is left as it is. Other columns or properties end the attempt.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote as url_quote

from pyspark.sql import SparkSession

from dynamic_tables.errors import Held
from dynamic_tables.lake import jvm, snapshots
from dynamic_tables.lake.faults import SPARK_FAULTS, is_conflict
from dynamic_tables.lake.jvm import DELTA, Java
from dynamic_tables.lake.marking import now_ms
from dynamic_tables.lake.row_groups.files import Partition, states_of
from dynamic_tables.lake.row_groups.order import ORDER_TAG
from dynamic_tables.lake.row_groups.unaltered import check_unaltered, without_marks
from dynamic_tables.lake.row_groups.writing import NewFile
from dynamic_tables.lake.transaction import USER_METADATA, optimizing
from dynamic_tables.reasons import Reason

PLAIN_IN_PATHS = "/=-_.~!$&'()*+,;@"  # the log has them as they are
ATTEMPTS = 10  # while others commit again and again
ROW_IDS_KEPT = "delta.rowTracking.preserved"  # tag of a commit


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """What became of the partitions that were written anew."""

    version: int | None  # None: all of them had changed, so nothing was committed
    changed: frozenset[int]  # numbers of those that somebody changed meanwhile


def new_actions(
    session: SparkSession,
    partitions: Sequence[Partition],
    files: Sequence[NewFile],
    tag: str,
    *,
    more: Mapping[str, int] = {},
) -> list[Java]:
    """Delta's words for files that come."""
    values = {partition.number: partition.values for partition in partitions}
    parse = jvm.static(session, f"{DELTA}.actions.Action", "fromJson")
    added = [{**_added(file, values[file.partition], tag), **more} for file in files]
    return [parse(json.dumps({"add": action})) for action in added]


def _added(file: NewFile, values: Mapping[str, str | None], tag: str) -> dict[str, Any]:
    return {
        "path": url_quote(file.path, safe=PLAIN_IN_PATHS),
        "partitionValues": values,
        "size": file.size,
        "modificationTime": file.modified,
        "dataChange": False,
        "stats": file.statistics,
        "tags": {ORDER_TAG: tag},
    }


def commit(
    session: SparkSession,
    log: Java,
    listed: Java,
    *,
    partitions: Sequence[Partition],
    files: Sequence[NewFile],
    tag: str,
    name: str,
    row_ids: bool,
) -> Committed:
    """Exchange the files of all partitions that are still as they were at the version `listed`."""
    for _ in range(ATTEMPTS):
        newest = snapshots.newest_snapshot(session, log)
        check_unaltered(_metadata(listed), _metadata(newest), name)
        standing = _standing(listed, newest, log, partitions)
        numbers = {partition.number for partition in standing}
        changed = frozenset(p.number for p in partitions if p.number not in numbers)
        if not standing:
            return Committed(version=None, changed=changed)
        come = [file for file in files if file.partition in numbers]
        actions = [
            *new_actions(session, standing, come, tag),
            *(f.action.removeWithTimestamp(now_ms(), False) for p in standing for f in p.files),
        ]
        version = _try(session, log, newest, actions, tag=tag, row_ids=row_ids)
        if version is not None:
            return Committed(version=version, changed=changed)
    raise Held(
        f"others committed {ATTEMPTS} times while the new files were to be committed",
        reason=Reason.HELD,
        about=name,
        hint="run it again when fewer write; nothing was changed",
    )


def _metadata(snapshot: Java) -> list[Any]:
    """Columns, properties and features."""
    metadata = json.loads(snapshot.metadata().json())["metaData"]
    columns = without_marks(metadata["schemaString"])
    return [{**metadata, "schemaString": columns}, json.loads(snapshot.protocol().json())]


def _standing(
    listed: Java, newest: Java, log: Java, partitions: Sequence[Partition]
) -> Sequence[Partition]:
    """The partitions that have all the files, and all the rows of them, that were read."""
    if newest.version() == listed.version():
        return partitions
    present = states_of(newest, log)
    return [p for p in partitions if all(file.state in present for file in p.files)]


def _try(
    session: SparkSession, log: Java, newest: Java, actions: list[Java], *, tag: str, row_ids: bool
) -> int | None:
    """The new version; None if somebody else committed first in a way that matters."""
    none = jvm.some(session, None)
    transaction = log.startTransaction(none, jvm.some(session, newest))
    tags = jvm.packages(session).java.util.HashMap()
    if row_ids:
        tags.put(ROW_IDS_KEPT, "true")
    session.conf.set(USER_METADATA, tag)  # DESCRIBE HISTORY shows it
    try:
        return transaction.commit(
            jvm.sequence(session, actions), optimizing(session), jvm.scala_map(session, tags)
        )
    except SPARK_FAULTS as error:
        if is_conflict(error):
            return None
        raise
    finally:
        session.conf.unset(USER_METADATA)
