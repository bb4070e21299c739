"""Commits through Delta's own transaction: rows that come, rows that go, and the number n.

The comparison has just read the stored rows that go, so their files and positions are known. MERGE
would look for them again: it reads the table three times, in ten to twenty Spark jobs. Here
deletion vectors mark the rows that go, and one job writes those that come. Few changes are written
for the change feed too; many are told by the files that came and the vectors that changed.
Delta's writers also replay the log to learn which number stands; the checksum tells it.

The classes are internal to Delta; `try_internals` tries them at connect. A table whose deletion
vectors or change feed were turned off, or that somebody changed since the comparison, is left to
Delta's own commands.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from dynamic_tables.lake import bags, catalog, jvm, marking, snapshots
from dynamic_tables.lake.base import Stamp
from dynamic_tables.lake.holding import Kept, in_one_file
from dynamic_tables.lake.jvm import DELTA, Java
from dynamic_tables.lake.marking import ADD_FILE_DATA_CHANGE, Mark, copied, marks_of, now_ms
from dynamic_tables.lake.row_groups.order import PARTIAL
from dynamic_tables.names import quote

CHANGE_TYPE = "_change_type"  # Delta's writer puts rows that have one into the change feed
FEED_BY_FILES = 0.1  # of the rows that readers of marked files read; if more go, none are written
USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


def append(
    session: SparkSession,
    location: str,
    rows: DataFrame | None,
    stamp: Stamp,
    *,
    partial: bool = False,
) -> bool:
    """Add rows to a table; without rows, only the number is taken. False: not like this."""
    with jvm.active(session):
        log = snapshots.delta_log_by_path(session, location)
        snapshot = snapshots.newest_snapshot(session, log)
        if rows is not None and not _fits(rows, snapshot):
            return False
        transaction = _begin(session, log, snapshot, stamp)
        if transaction is not None:
            added = [*jvm.items(transaction.writeFiles(rows._jdf))] if rows is not None else []
            if partial:
                added = _with_tags(session, added, PARTIAL)
            _commit(session, transaction, added, stamp, _writing(session, "Append"))
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Rows that come to a table, in files that nobody sees before they are committed."""

    rows: DataFrame  # of which they were made
    size: int
    files: list[Java]
    transaction: Java
    written_for: Java  # snapshot


def write_ahead(
    session: SparkSession, location: str, rows: DataFrame, *, partial: bool = False
) -> Written | None:
    """Write rows that are to be added, while they are computed; None: not like this.

    The table as it was last seen will do: the commit looks at all that came after it.
    """
    with jvm.active(session):
        log = snapshots.delta_log_by_path(session, location)
        snapshot = snapshots.known_snapshot(session, log)
        counts = session.conf.get("spark.databricks.delta.stats.collect", "true") == "true"
        if not counts or not _fits(rows, snapshot):
            return None
        transaction = log.startTransaction(jvm.some(session, None), jvm.some(session, snapshot))
        files = [*jvm.items(transaction.writeFiles(rows._jdf))]
        sizes: list[Any] = [jvm.option(file.numLogicalRecords()) for file in files]
        if None in sizes:  # nobody knows whether there is anything to commit
            return None
        return Written(
            rows=rows,
            size=sum(sizes),
            files=_with_tags(session, files, PARTIAL) if partial else files,
            transaction=transaction,
            written_for=snapshot,
        )


def append_written(
    session: SparkSession, location: str, written: Written, stamp: Stamp, *, partial: bool = False
) -> bool:
    """Commit them. If the table was altered meanwhile, they are written once more."""
    with jvm.active(session):
        log = snapshots.delta_log_by_path(session, location)
        snapshot = snapshots.newest_snapshot(session, log)
        if (snapshots.transaction_version(snapshot, stamp.table_id) or 0) >= stamp.sequence:
            return True
        if _is_defined_alike(snapshot, written.written_for):
            written.transaction.readTxn().addOne(stamp.table_id)
            operation = _writing(session, "Append")
            _commit(session, written.transaction, [*written.files], stamp, operation)
            return True
    return append(session, location, written.rows, stamp, partial=partial)


def overwrite(session: SparkSession, location: str, rows: DataFrame, stamp: Stamp) -> bool:
    """Replace all rows of a table; False if it cannot be done like this."""
    with jvm.active(session):
        log = snapshots.delta_log_by_path(session, location)
        snapshot = snapshots.newest_snapshot(session, log)
        if not _fits(rows, snapshot):
            return False
        files = all_files(snapshot)
        transaction = _begin(session, log, snapshot, stamp)
        if transaction is not None:
            transaction.readWholeTable()
            added = jvm.items(transaction.writeFiles(rows._jdf))
            removed = [file.removeWithTimestamp(now_ms(), True) for file in files]
            operation = _writing(session, "Overwrite")
            _commit(session, transaction, [*added, *removed], stamp, operation)
    return True


def replace_rows(
    session: SparkSession, location: str, difference: Kept, stamp: Stamp, *, partial: bool = False
) -> bool:
    """Turn the stored rows into the wanted ones; False if it cannot be done like this.

    `difference` was found at the version `stamp.base`.
    """
    with jvm.active(session):
        log = snapshots.delta_log_by_path(session, location)
        snapshot = snapshots.newest_snapshot(session, log)
        if snapshot.version() != stamp.base or not _is_as_made(snapshot):
            return False
        transaction = _begin(session, log, snapshot, stamp)
        if transaction is None:
            return True
        transaction.readWholeTable()  # whatever another writer commits meanwhile is a conflict

        def write(*, with_feed: bool) -> list[Java]:
            rows = _written(difference, with_feed=with_feed)
            made = [*jvm.items(transaction.writeFiles(rows._jdf))]
            return _with_tags(session, made, PARTIAL) if partial else made

        def mark() -> list[Mark] | None:
            return marks_of(session, log, snapshot, difference)

        told = _all_tell(difference, snapshot)
        if told is None:
            marks = mark()
            told = _tells_changes(difference, [mark.file for mark in marks or ()])
            added = write(with_feed=not told) if marks is not None else []
        else:
            with jvm.meanwhile(session, mark) as marking:
                added = write(with_feed=not told)
            marks = marking.result()
        if marks is None:
            return False
        _count(session, transaction, added, marks)
        removed = [action for mark in marks for action in mark.actions()]
        _commit(session, transaction, [*added, *removed], stamp, _merging(session))
    return True


def rewrite(
    session: SparkSession,
    location: str,
    form: Callable[[DataFrame], DataFrame],
    written: Callable[[], None],
    *,
    of: Callable[[Java], list[Java]] | None = None,
) -> None:
    """Store the same rows in another form: nobody who reads changes sees one.

    What another writer adds meanwhile stays as it is; what he takes away is a conflict. `written`
    hears when the new files are there and the commit has not begun. `of`: the files that are
    written anew, of those that a snapshot has; None: all.
    """
    with jvm.active(session):
        log = snapshots.delta_log_by_path(session, location)
        snapshot = snapshots.newest_snapshot(session, log)
        files = (of or all_files)(snapshot)
        read = log.createDataFrame(
            snapshot, jvm.sequence(session, files), False, jvm.some(session, None)
        )
        transaction = log.startTransaction(jvm.some(session, None), jvm.some(session, snapshot))
        made = transaction.writeFiles(form(DataFrame(read, session))._jdf)
        added = [copied(file, {ADD_FILE_DATA_CHANGE: False}) for file in jvm.items(made)]
        removed = [file.removeWithTimestamp(now_ms(), False) for file in files]
        written()
        transaction.commit(jvm.sequence(session, [*added, *removed]), optimizing(session))


# Beginning and ending


def _fits(rows: DataFrame, snapshot: Java) -> bool:
    """Delta's transaction takes rows as they are: names and types are checked by its writers."""
    wanted = catalog.columns_of(snapshot.metadata().schema())
    found = catalog.columns_of(rows._jdf.schema())
    return [(c.name, c.type) for c in found] == [(c.name, c.type) for c in wanted]


def _is_defined_alike(one: Java, other: Java) -> bool:
    """Nobody altered the table in between; else a transaction is a conflict."""
    same_columns = one.metadata().equals(other.metadata())
    return same_columns and one.protocol().equals(other.protocol())


def _is_as_made(snapshot: Java) -> bool:
    """Nobody turned off deletion vectors or the change feed, which rows are written for."""
    marks = snapshots.table_property(snapshot, "delta.enableDeletionVectors") == "true"
    return marks and snapshots.has_feed(snapshot)


def all_files(snapshot: Java) -> list[Java]:
    """The files of a table; in a Spark job if the checksum does not name them."""
    listed = snapshots.all_files(snapshot)
    return [*(jvm.items(listed) if listed is not None else snapshot.allFiles().collectAsList())]


def _begin(session: SparkSession, log: Java, snapshot: Java, stamp: Stamp) -> Java | None:
    """A transaction that fails if another writer takes the number first.

    None if the number stands already: the table is asked afterwards whose it is.
    """
    if (snapshots.transaction_version(snapshot, stamp.table_id) or 0) >= stamp.sequence:
        return None
    transaction = log.startTransaction(jvm.some(session, None), jvm.some(session, snapshot))
    transaction.readTxn().addOne(stamp.table_id)
    return transaction


def _commit(
    session: SparkSession, transaction: Java, actions: list[Java], stamp: Stamp, operation: Java
) -> None:
    number = jvm.java_class(session, f"{DELTA}.actions.SetTransaction")
    actions.append(number(stamp.table_id, stamp.sequence, jvm.some(session, now_ms())))
    session.conf.set(USER_METADATA, json.dumps(stamp.as_json()))
    try:
        transaction.commit(jvm.sequence(session, actions), operation)
    finally:
        session.conf.unset(USER_METADATA)


def _writing(session: SparkSession, how: str) -> Java:
    mode = jvm.java_class(session, "org.apache.spark.sql.SaveMode").valueOf(how)
    nothing = [jvm.some(session, None)] * 8
    return jvm.java_class(session, f"{DELTA}.DeltaOperations$Write")(mode, *nothing)


def _merging(session: SparkSession) -> Java:
    """What DESCRIBE HISTORY says: it is what MERGE would have done."""
    none, empty = jvm.some(session, None), jvm.sequence(session, [])
    merge = jvm.java_class(session, f"{DELTA}.DeltaOperations$Merge")
    return merge(none, none, none, none, empty, empty, empty)


def optimizing(session: SparkSession) -> Java:
    """What DESCRIBE HISTORY says of files that were exchanged."""
    optimize = jvm.java_class(session, f"{DELTA}.DeltaOperations$Optimize")
    none, empty = jvm.some(session, None), jvm.sequence(session, [])
    return optimize(empty, empty, False, none, False)


def _count(
    session: SparkSession, transaction: Java, added: Sequence[Java], marks: Sequence[Mark]
) -> None:
    """Tell in the commit what MERGE would tell in its metrics."""
    files = [action for action in added if jvm.class_name(action) == "AddFile"]
    totals = {
        "operationNumSourceRows": 0,
        "numTargetRowsInserted": sum(jvm.option(file.numLogicalRecords()) or 0 for file in files),
        "numTargetRowsUpdated": 0,
        "numTargetRowsDeleted": sum(mark.rows for mark in marks),
        "numTargetFilesAdded": len(files),
        "numTargetBytesAdded": sum(file.size() for file in files),
    }
    create = jvm.static(session, "org.apache.spark.sql.execution.metric.SQLMetrics", "createMetric")
    metrics = jvm.packages(session).java.util.HashMap()
    for name, value in totals.items():
        metric = create(jvm.scala_context(session), name)
        metric.set(value)
        metrics.put(name, metric)
    transaction.registerSQLMetrics(session._jsparkSession, jvm.scala_map(session, metrics))


# Rows that come


def _with_tags(session: SparkSession, actions: Iterable[Java], tag: str) -> list[Java]:
    """Files of rows with a tag; those of the change feed stay as they are."""
    tags = jvm.packages(session).java.util.HashMap()
    tags.put(tag, "true")
    tagged = jvm.scala_map(session, tags)
    return [
        action.copyWithTags(tagged) if jvm.class_name(action) == "AddFile" else action
        for action in actions
    ]


def _all_tell(difference: Kept, snapshot: Java) -> bool | None:
    """As `_tells_changes`, whichever files are marked; None: it depends on them, or it is not known
    yet whether they can be marked."""
    everything = snapshots.all_files(snapshot)
    if everything is None:
        return None
    if difference.held.is_local:
        return False
    return True if _tells_changes(difference, jvm.items(everything)) else None


def _tells_changes(difference: Kept, files: Iterable[Java]) -> bool:
    """Whether the marked files tell readers of the change feed well enough what came and went.

    Then Delta reads every one of them for the rows that went, and twice if it was marked before.
    """
    if difference.held.is_local:
        return False
    read = sum(
        (2 if file.deletionVector() else 1) * (jvm.option(file.numPhysicalRecords()) or 0)
        for file in files
    )
    return (difference.goes or 0) > FEED_BY_FILES * read


def _written(difference: Kept, *, with_feed: bool) -> DataFrame:
    """The rows that come, for the table and for its feed, and those that go, for its feed."""
    frame = difference.held.frame
    if not with_feed:
        return bags.inserted(frame.where(F.col(bags.HERE) > F.col(bags.THERE)))
    excess = (F.col(bags.HERE) - F.col(bags.THERE)).cast("int")
    table, insert, delete = F.lit(None).cast("string"), F.lit("insert"), F.lit("delete")
    kinds = F.when(
        excess > 0,
        F.concat(F.array_repeat(table, excess), F.array_repeat(insert, excess)),
    ).otherwise(F.array_repeat(delete, -excess))
    columns = [quote(name) for name in frame.columns if name not in bags.COUNTS]
    rows = frame.select(*columns, F.explode(kinds).alias(CHANGE_TYPE))
    return in_one_file(rows, difference)


def try_internals(session: SparkSession) -> None:
    """Try what can be tried without a table; raises Py4JError when a signature is missing."""
    nothing = jvm.some(session, None)
    _writing(session, "Append")
    _merging(session)
    optimizing(session)
    jvm.java_class(session, f"{DELTA}.actions.SetTransaction")("", 1, nothing)
    marking.try_internals(session)
