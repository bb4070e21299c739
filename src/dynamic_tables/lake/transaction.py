"""Commits through Delta's own transaction: rows that come, rows that go, and the number n.

The comparison has just read the stored rows that go, so their files and positions are known. MERGE
would look for them again: it reads the table three times, in ten to twenty Spark jobs. Here
deletion vectors mark the rows that go, and one job writes those that come, with the change feed.
Delta's writers also replay the log to learn which number stands; the checksum tells it.

The classes are internal to Delta; `jvm.check_internals` asks for them at connect. A table without
deletion vectors, or one that somebody changed since the comparison, is left to MERGE.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from dynamic_tables.lake import bags, jvm
from dynamic_tables.lake.base import Stamp
from dynamic_tables.lake.jvm import DELTA, Java
from dynamic_tables.names import quote

CHANGE_TYPE = "_change_type"  # Delta's writer puts rows that have one into the change feed
FILES_AT_MOST = 500  # that are looked through, one by one
INLINE_BYTES_AT_MOST = 4_096  # a larger deletion vector is left to MERGE, which gives it a file
USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"

Positions = Mapping[str, Sequence[int]]  # by name of the file


def append(session: SparkSession, location: str, rows: DataFrame | None, stamp: Stamp) -> None:
    """Add rows to a table; without rows, only the number is taken."""
    with jvm.active(session):
        log = jvm.delta_log_by_path(session, location)
        transaction = _begin(session, log, jvm.newest_snapshot(session, log), stamp)
        if transaction is not None:
            added = [*jvm.items(transaction.writeFiles(rows._jdf))] if rows is not None else []
            _commit(session, transaction, added, stamp, _writing(session, "Append"))


def overwrite(session: SparkSession, location: str, rows: DataFrame, stamp: Stamp) -> bool:
    """Replace all rows of a table; False if it cannot be done like this."""
    with jvm.active(session):
        log = jvm.delta_log_by_path(session, location)
        snapshot = jvm.newest_snapshot(session, log)
        files = jvm.all_files(snapshot)
        if files is None or files.size() > FILES_AT_MOST:
            return False
        transaction = _begin(session, log, snapshot, stamp)
        if transaction is not None:
            transaction.readWholeTable()
            added = jvm.items(transaction.writeFiles(rows._jdf))
            removed = [file.removeWithTimestamp(_now_ms(), True) for file in jvm.items(files)]
            operation = _writing(session, "Overwrite")
            _commit(session, transaction, [*added, *removed], stamp, operation)
    return True


def replace_rows(session: SparkSession, location: str, difference: DataFrame, stamp: Stamp) -> bool:
    """Turn the stored rows into the wanted ones; False if it cannot be done like this.

    `difference` is a local relation (see `bags.counted`), found at the version `stamp.base`.
    """
    gone = _positions(difference)
    with jvm.active(session):
        log = jvm.delta_log_by_path(session, location)
        snapshot = jvm.newest_snapshot(session, log)
        files = _files(snapshot) if snapshot.version() == stamp.base else None
        if files is None or not gone.keys() <= files.keys():
            return False
        removals = [
            action
            for name, rows in gone.items()
            for action in _without_rows(session, log, files[name], rows)
        ]
        if None in removals:
            return False
        transaction = _begin(session, log, snapshot, stamp)
        if transaction is not None:
            transaction.readWholeTable()  # whatever another writer commits meanwhile is a conflict
            added = transaction.writeFiles(_written(difference)._jdf)
            _count(session, transaction, _totals(difference))
            _commit(session, transaction, [*jvm.items(added), *removals], stamp, _merging(session))
    return True


# Beginning and ending


def _begin(session: SparkSession, log: Java, snapshot: Java, stamp: Stamp) -> Java | None:
    """A transaction that fails if another writer takes the number first.

    None if the number stands already: the table is asked afterwards whose it is.
    """
    if (jvm.transaction_version(snapshot, stamp.table_id) or 0) >= stamp.sequence:
        return None
    transaction = log.startTransaction(jvm.some(session, None), jvm.some(session, snapshot))
    transaction.readTxn().addOne(stamp.table_id)
    return transaction


def _commit(
    session: SparkSession, transaction: Java, actions: list[Java], stamp: Stamp, operation: Java
) -> None:
    number = jvm.java_class(session, f"{DELTA}.actions.SetTransaction")
    actions.append(number(stamp.table_id, stamp.sequence, jvm.some(session, _now_ms())))
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


def _count(session: SparkSession, transaction: Java, totals: Mapping[str, int]) -> None:
    create = jvm.static(session, "org.apache.spark.sql.execution.metric.SQLMetrics", "createMetric")
    metrics = jvm.packages(session).java.util.HashMap()
    for name, value in totals.items():
        metric = create(jvm.scala_context(session), name)
        metric.set(value)
        metrics.put(name, metric)
    transaction.registerSQLMetrics(session._jsparkSession, jvm.scala_map(session, metrics))


def _totals(difference: DataFrame) -> dict[str, int]:
    """What MERGE would tell in its metrics."""
    counts = difference.select(bags.HERE, bags.THERE).collect()
    return {
        "operationNumSourceRows": len(counts),
        "numTargetRowsInserted": sum(max(here - there, 0) for here, there in counts),
        "numTargetRowsDeleted": sum(max(there - here, 0) for here, there in counts),
        "numTargetRowsUpdated": 0,
    }


def _now_ms() -> int:
    return int(time.time() * 1000)


# Rows that come


def _written(difference: DataFrame) -> DataFrame:
    """The rows that come, for the table and for its feed, and those that go, for its feed."""
    excess = (F.col(bags.HERE) - F.col(bags.THERE)).cast("int")
    table, insert, delete = F.lit(None).cast("string"), F.lit("insert"), F.lit("delete")
    kinds = F.when(
        excess > 0,
        F.concat(F.array_repeat(table, excess), F.array_repeat(insert, excess)),
    ).otherwise(F.array_repeat(delete, -excess))
    columns = [quote(name) for name in difference.columns if name not in bags.COUNTS]
    return difference.select(*columns, F.explode(kinds).alias(CHANGE_TYPE)).coalesce(1)


# Rows that go


def _positions(difference: DataFrame) -> Positions:
    """Which rows of which files go: of equal rows any will do."""
    found: dict[str, list[int]] = {}
    excess = (F.col(bags.THERE) - F.col(bags.HERE)).cast("int")
    going = difference.where(excess > 0).select(F.slice(bags.PLACES, F.lit(1), excess))
    for (places,) in going.collect():
        for place in places:
            found.setdefault(_name(place.file), []).append(place.row)
    return found


def _name(path: str) -> str:
    """Delta's file names are unique, wherever the table lies."""
    return path.rpartition("/")[2]


def _files(snapshot: Java) -> dict[str, Java] | None:
    """The files of a table with their statistics, from its checksum; None if it does not tell."""
    if jvm.option(snapshot.metadata().configuration().get("delta.enableDeletionVectors")) != "true":
        return None
    files = jvm.all_files(snapshot)
    if files is None or files.size() > FILES_AT_MOST:
        return None
    return {_name(file.path()): file for file in jvm.items(files)}


def _without_rows(
    session: SparkSession, log: Java, file: Java, rows: Sequence[int]
) -> Iterator[Java | None]:
    """The actions that take rows out of a file; None if they cannot be had."""
    bitmap = jvm.java_class(session, f"{DELTA}.deletionvectors.RoaringBitmapArray")()
    bitmap.addAll(jvm.long_sequence(session, rows))
    if file.deletionVector() is not None:
        bitmap.merge(_marked(session, log, file))
    if bitmap.cardinality() == jvm.option(file.numPhysicalRecords()):
        yield file.removeWithTimestamp(_now_ms(), True)
        return
    form = jvm.static(session, f"{DELTA}.deletionvectors.RoaringBitmapArrayFormat", "Portable")()
    content = bitmap.serializeAsByteArray(form)
    if len(content) > INLINE_BYTES_AT_MOST:
        yield None
        return
    inline = jvm.static(session, f"{DELTA}.actions.DeletionVectorDescriptor", "inlineInLog")
    both = file.removeRows(inline(content, bitmap.cardinality()), True, True)
    yield from (both._1(), both._2())


def _marked(session: SparkSession, log: Java, file: Java) -> Java:
    """The rows of a file that are deleted already."""
    conf = session._jsparkSession.sessionState().newHadoopConf()
    store = jvm.java_class(session, f"{DELTA}.storage.dv.HadoopFileSystemDVStore")(conf)
    create = jvm.static(session, f"{DELTA}.deletionvectors.StoredBitmap", "create")
    return create(file.deletionVector(), log.dataPath()).load(store)
