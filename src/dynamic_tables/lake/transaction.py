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
import time
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from dynamic_tables.errors import InternalError
from dynamic_tables.lake import bags, catalog, jvm
from dynamic_tables.lake.base import Stamp
from dynamic_tables.lake.holding import Kept
from dynamic_tables.lake.jvm import DELTA, Java
from dynamic_tables.names import RESERVED_PREFIX, literal, quote
from dynamic_tables.reasons import Reason

CHANGE_TYPE = "_change_type"  # Delta's writer puts rows that have one into the change feed
WANTED = f"{RESERVED_PREFIX}wanted"  # how many copies of a row go
FILE_NAME = f"{RESERVED_PREFIX}file"
FEED_BY_FILES = 0.1  # of the rows that readers of marked files read; if more go, none are written
FILES_AT_MOST = 500  # that are looked through, one by one
ADD_FILE_FIELDS = 13  # of Delta's AddFile; some of their places:
ADD_FILE_DATA_CHANGE, ADD_FILE_STATS = 4, 5
INLINE_BYTES_AT_MOST = 4_096  # a larger deletion vector gets a file of its own
USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


def append(session: SparkSession, location: str, rows: DataFrame | None, stamp: Stamp) -> bool:
    """Add rows to a table; without rows, only the number is taken. False: not like this."""
    with jvm.active(session):
        log = jvm.delta_log_by_path(session, location)
        snapshot = jvm.newest_snapshot(session, log)
        if rows is not None and not _fits(rows, snapshot):
            return False
        transaction = _begin(session, log, snapshot, stamp)
        if transaction is not None:
            added = [*jvm.items(transaction.writeFiles(rows._jdf))] if rows is not None else []
            _commit(session, transaction, added, stamp, _writing(session, "Append"))
    return True


def overwrite(session: SparkSession, location: str, rows: DataFrame, stamp: Stamp) -> bool:
    """Replace all rows of a table; False if it cannot be done like this."""
    with jvm.active(session):
        log = jvm.delta_log_by_path(session, location)
        snapshot = jvm.newest_snapshot(session, log)
        if not _fits(rows, snapshot):
            return False
        files = _all_files(snapshot)
        transaction = _begin(session, log, snapshot, stamp)
        if transaction is not None:
            transaction.readWholeTable()
            added = jvm.items(transaction.writeFiles(rows._jdf))
            removed = [file.removeWithTimestamp(_now_ms(), True) for file in files]
            operation = _writing(session, "Overwrite")
            _commit(session, transaction, [*added, *removed], stamp, operation)
    return True


def replace_rows(session: SparkSession, location: str, difference: Kept, stamp: Stamp) -> bool:
    """Turn the stored rows into the wanted ones; False if it cannot be done like this.

    `difference` was found at the version `stamp.base`.
    """
    with jvm.active(session):
        log = jvm.delta_log_by_path(session, location)
        snapshot = jvm.newest_snapshot(session, log)
        if snapshot.version() != stamp.base or not _is_as_made(snapshot):
            return False
        marks = _marks(session, log, snapshot, difference)
        if marks is None:
            return False
        transaction = _begin(session, log, snapshot, stamp)
        if transaction is not None:
            transaction.readWholeTable()  # whatever another writer commits meanwhile is a conflict
            rows = _written(difference, with_feed=not _tells_changes(difference, marks))
            added = [*jvm.items(transaction.writeFiles(rows._jdf))]
            _count(session, transaction, added, marks)
            removed = [action for mark in marks for action in mark.actions()]
            _commit(session, transaction, [*added, *removed], stamp, _merging(session))
    return True


def rewrite(session: SparkSession, location: str, form: Callable[[DataFrame], DataFrame]) -> None:
    """Store the same rows in another form: nobody who reads changes sees one.

    What another writer adds meanwhile stays as it is; what he takes away is a conflict.
    """
    with jvm.active(session):
        log = jvm.delta_log_by_path(session, location)
        snapshot = jvm.newest_snapshot(session, log)
        files = _all_files(snapshot)
        read = log.createDataFrame(
            snapshot, jvm.sequence(session, files), False, jvm.some(session, None)
        )
        transaction = log.startTransaction(jvm.some(session, None), jvm.some(session, snapshot))
        written = transaction.writeFiles(form(DataFrame(read, session))._jdf)
        added = [_copied(file, {ADD_FILE_DATA_CHANGE: False}) for file in jvm.items(written)]
        removed = [file.removeWithTimestamp(_now_ms(), False) for file in files]
        transaction.commit(jvm.sequence(session, [*added, *removed]), _optimizing(session))


# Beginning and ending


def _fits(rows: DataFrame, snapshot: Java) -> bool:
    """Delta's transaction takes rows as they are: names and types are checked by its writers."""
    wanted = catalog.columns_of(snapshot.metadata().schema())
    found = catalog.columns_of(rows._jdf.schema())
    return [(c.name, c.type) for c in found] == [(c.name, c.type) for c in wanted]


def _is_as_made(snapshot: Java) -> bool:
    """Nobody turned off deletion vectors or the change feed, which rows are written for."""
    marks = jvm.table_property(snapshot, "delta.enableDeletionVectors") == "true"
    return marks and jvm.has_feed(snapshot)


def _all_files(snapshot: Java) -> list[Java]:
    listed = jvm.all_files(snapshot)
    return [*(jvm.items(listed) if listed is not None else snapshot.allFiles().collectAsList())]


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


def _optimizing(session: SparkSession) -> Java:
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


def _now_ms() -> int:
    return int(time.time() * 1000)


# Rows that come


def _tells_changes(difference: Kept, marks: Sequence[Mark]) -> bool:
    """Whether the files themselves tell readers of the change feed well enough what came and went.

    Then Delta reads every marked file for the rows that went, and twice if it was marked before.
    """
    read = sum(
        (2 if mark.file.deletionVector() else 1) * (jvm.option(mark.file.numPhysicalRecords()) or 0)
        for mark in marks
    )
    going = sum(mark.rows for mark in marks)
    return not difference.held.is_local and going > FEED_BY_FILES * read


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
    return rows.coalesce(1) if difference.held.is_local else rows


# Rows that go


@dataclass(frozen=True, slots=True)
class Mark:
    """Rows of one file that go."""

    file: Java
    vector: Java  # all its rows that are gone then
    rows: int  # those that go now

    def actions(self) -> tuple[Java, ...]:
        if self.vector.cardinality() == jvm.option(self.file.numPhysicalRecords()):
            return (self.file.removeWithTimestamp(_now_ms(), True),)
        both = self.file.removeRows(self.vector, False, True)
        return _with_wide_bounds(both._1()), both._2()


def _with_wide_bounds(file: Java) -> Java:
    """Statistics of rows some of which are gone.

    The text is changed, not its numbers: Delta's own way takes decimals through doubles, and a
    bound that is rounded hides rows from readers.
    """
    stats: str = file.stats()
    if '"tightBounds"' in stats:
        wide = stats.replace('"tightBounds":true', '"tightBounds":false')
    else:
        wide = f'{stats.rstrip()[:-1]},"tightBounds":false}}'
    return _copied(file, {ADD_FILE_STATS: wide})


def _copied(file: Java, changed: Mapping[int, Any]) -> Java:
    """An AddFile with some fields changed, by their places."""
    values = [getattr(file, f"copy$default${n}")() for n in range(1, ADD_FILE_FIELDS + 1)]
    return file.copy(*[changed.get(place, value) for place, value in enumerate(values)])


def _marks(session: SparkSession, log: Java, snapshot: Java, difference: Kept) -> list[Mark] | None:
    """What goes from which files: of equal rows any will do. None if it cannot be told."""
    excess = (F.col(bags.THERE) - F.col(bags.HERE)).cast("int")
    places = F.slice(bags.PLACES, F.lit(1), excess).alias(bags.PLACES)
    going = difference.held.frame.where(excess > 0).select(places, excess.alias(WANTED))
    if difference.held.is_local:
        rows = going.collect()
        wanted = sum(row[WANTED] for row in rows)
        marks = _marks_here(session, log, snapshot, [row[bags.PLACES] for row in rows])
    else:
        wanted = difference.goes or going.agg(F.sum(WANTED)).collect()[0][0]
        marks = _marks_by_executors(session, log, snapshot, going)
    if marks is None or any(jvm.option(m.file.numPhysicalRecords()) is None for m in marks):
        return None  # a file without statistics cannot have a deletion vector
    found = sum(mark.rows for mark in marks)
    if found != wanted:
        raise InternalError(
            f"{wanted} rows are to go, but {found} were found",
            reason=Reason.INTERNAL,
            about=log.dataPath().toString(),
        )
    return marks


def _marks_here(
    session: SparkSession, log: Java, snapshot: Java, places: Iterable[Sequence[Any]]
) -> list[Mark] | None:
    """Deletion vectors from positions that are known here; None if there are too many files."""
    positions: dict[str, list[int]] = {}
    for place in chain.from_iterable(places):
        positions.setdefault(_name(place.file), []).append(place.row)
    files = _files(snapshot, positions)
    if files is None:
        return None
    with _vectors(session, log) as vector:
        return [
            Mark(files[name], vector(_bitmap(session, log, files[name], rows)), len(rows))
            for name, rows in positions.items()
        ]


def _name(path: str) -> str:
    """Delta's file names are unique, wherever the table lies."""
    return path.rpartition("/")[2]


def _files(snapshot: Java, names: Collection[str] | None) -> dict[str, Java] | None:
    """Some files of a table (None: all of them) with their statistics, by their names; None if
    there are too many."""
    files = jvm.all_files(snapshot)
    if files is None or files.size() > FILES_AT_MOST:
        if names is None or len(names) > FILES_AT_MOST:
            return None
        listed = ", ".join(literal(name) for name in names)
        some = snapshot.allFiles().where(f"element_at(split(path, '/'), -1) IN ({listed})")
        found = some.collectAsList()
    else:
        found = jvm.items(files)
    pairs = [(_name(file.path()), file) for file in found]
    by_name = dict(pairs)
    unique = len(by_name) == len(pairs)  # foreign writers may call files as they like
    return by_name if unique and by_name.keys() >= set(names or ()) else None


def _bitmap(session: SparkSession, log: Java, file: Java, rows: Sequence[int]) -> Java:
    """All rows of a file that are gone then."""
    bitmap = jvm.java_class(session, f"{DELTA}.deletionvectors.RoaringBitmapArray")()
    bitmap.addAll(jvm.long_sequence(session, rows))
    if file.deletionVector() is not None:
        conf = session._jsparkSession.sessionState().newHadoopConf()
        store = jvm.java_class(session, f"{DELTA}.storage.dv.HadoopFileSystemDVStore")(conf)
        create = jvm.static(session, f"{DELTA}.deletionvectors.StoredBitmap", "create")
        bitmap.merge(create(file.deletionVector(), log.dataPath()).load(store))
    return bitmap


@contextmanager
def _vectors(session: SparkSession, log: Java) -> Generator[Callable[[Java], Java]]:
    """Makes deletion vectors of bitmaps: small ones lie in the log, others in a file of theirs."""
    form = jvm.static(session, f"{DELTA}.deletionvectors.RoaringBitmapArrayFormat", "Portable")()
    descriptor = f"{DELTA}.actions.DeletionVectorDescriptor"
    inline = jvm.static(session, descriptor, "inlineInLog")
    in_file = jvm.static(session, descriptor, "onDiskWithRelativePath")
    conf = session._jsparkSession.sessionState().newHadoopConf()
    store = jvm.java_class(session, f"{DELTA}.storage.dv.HadoopFileSystemDVStore")(conf)
    identity = jvm.static(session, "java.util.UUID", "randomUUID")()
    folder = store.pathWithFileSystem(log.dataPath())
    writer = store.createWriter(store.generateFileNameInTable(folder, identity, ""))

    def vector(bitmap: Java) -> Java:
        data, rows = bitmap.serializeAsByteArray(form), bitmap.cardinality()
        if len(data) <= INLINE_BYTES_AT_MOST:
            return inline(data, rows)
        offset = jvm.some(session, writer.write(data).offset())
        return in_file(identity, "", len(data), rows, offset, jvm.some(session, None))

    try:
        yield vector
    finally:
        writer.close()  # made with the first vector that it takes


def _marks_by_executors(
    session: SparkSession, log: Java, snapshot: Java, going: DataFrame
) -> list[Mark] | None:
    """Deletion vectors in files of their own, made where the rows are."""
    place = F.explode(bags.PLACES).alias(bags.PLACE)
    rows = going.select(place).select(f"{bags.PLACE}.file", f"{bags.PLACE}.row")
    named = rows.withColumn(FILE_NAME, F.substring_index("file", "/", -1))
    files = _files(snapshot, None)
    if files is None:
        names = named.select(FILE_NAME).distinct().collect()
        files = _files(snapshot, {row[FILE_NAME] for row in names})
    if files is None:
        return None
    vectors = {name: file.deletionVector() for name, file in files.items()}
    before = session.createDataFrame(
        [(name, vector and vector.serializeToBase64()) for name, vector in vectors.items()],
        f"{FILE_NAME} STRING, deletionVectorId STRING",
    )
    wanted = named.join(
        F.broadcast(before), FILE_NAME, "left"
    ).select(  # the names that Delta's builder wants
        F.col("file").alias("filePath"), F.col("row").alias("rowIndexCol"), "deletionVectorId"
    )
    helper = f"{DELTA}.commands.DeletionVectorBitmapGenerator"
    build = jvm.static(session, helper, "buildDeletionVectors")
    found = build(session._jsparkSession, wanted._jdf, log, 0)
    return [
        Mark(files[_name(made.filePath())], made.deletionVector(), made.matchedRowCount())
        for made in jvm.items(found)
    ]


def try_internals(session: SparkSession) -> None:
    """Try what can be tried without a table; raises Py4JError when a signature is missing."""
    nothing = jvm.some(session, None)
    _writing(session, "Append")
    _merging(session)
    jvm.java_class(session, f"{DELTA}.actions.SetTransaction")("", 1, nothing)
    bitmap = jvm.java_class(session, f"{DELTA}.deletionvectors.RoaringBitmapArray")()
    bitmap.addAll(jvm.long_sequence(session, [1]))
    form = jvm.static(session, f"{DELTA}.deletionvectors.RoaringBitmapArrayFormat", "Portable")()
    inline = jvm.static(session, f"{DELTA}.actions.DeletionVectorDescriptor", "inlineInLog")
    inline(bitmap.serializeAsByteArray(form), bitmap.cardinality()).serializeToBase64()
