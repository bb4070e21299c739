"""Rows that go: deletion vectors that mark them in their files.

The comparison that found them has read their files and positions, so nothing is searched again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from dynamic_tables.errors import InternalError
from dynamic_tables.lake import bags, jvm, snapshots
from dynamic_tables.lake.holding import Kept
from dynamic_tables.lake.jvm import DELTA, Java
from dynamic_tables.names import RESERVED_PREFIX, literal
from dynamic_tables.reasons import Reason

FILE_NAME = f"{RESERVED_PREFIX}file"
FILES_AT_MOST = 500  # that are looked through, one by one
ADD_FILE_FIELDS = 13  # of Delta's AddFile; some of their places:
ADD_FILE_DATA_CHANGE, ADD_FILE_STATS = 4, 5
INLINE_BYTES_AT_MOST = 4_096  # a larger deletion vector gets a file of its own


@dataclass(frozen=True, slots=True)
class Mark:
    """Rows of one file that go."""

    file: Java
    vector: Java  # all its rows that are gone then
    rows: int  # those that go now

    def actions(self) -> tuple[Java, ...]:
        if self.vector.cardinality() == jvm.option(self.file.numPhysicalRecords()):
            return (self.file.removeWithTimestamp(now_ms(), True),)
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
    return copied(file, {ADD_FILE_STATS: wide})


def copied(file: Java, changed: Mapping[int, Any]) -> Java:
    """An AddFile with some fields changed, by their places."""
    values = [getattr(file, f"copy$default${n}")() for n in range(1, ADD_FILE_FIELDS + 1)]
    return file.copy(*[changed.get(place, value) for place, value in enumerate(values)])


def marks_of(
    session: SparkSession, log: Java, snapshot: Java, difference: Kept
) -> list[Mark] | None:
    """What goes from which files: of equal rows any will do. None if it cannot be told."""
    excess = (F.col(bags.THERE) - F.col(bags.HERE)).cast("int")
    going = difference.held.frame.where(excess > 0)
    places = going.select(F.slice(bags.PLACES, F.lit(1), excess).alias(bags.PLACES))
    if difference.held.is_local:
        wanted = sum(jvm.numbers(going.select(excess)))
        marks = _marks_here(session, log, snapshot, jvm.numbers(places))
    else:
        wanted = difference.goes
        marks = _marks_by_executors(session, log, snapshot, places)
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
    session: SparkSession, log: Java, snapshot: Java, places: Sequence[int]
) -> list[Mark] | None:
    """Deletion vectors from files and rows that are known here; None if there are too many
    files."""
    positions: dict[int, list[int]] = {}
    for file, row in zip(places[::2], places[1::2], strict=True):
        positions.setdefault(file, []).append(row)
    files = _files(session, snapshot, positions)
    if files is None:
        return None
    store = _store(session)
    with _vectors(session, log, store) as vector:
        return [
            Mark(files[file], vector(_bitmap(session, log, store, files[file], rows)), len(rows))
            for file, rows in positions.items()
        ]


def _store(session: SparkSession) -> Java:
    """What reads and writes deletion vectors that lie in files of their own."""
    conf = session._jsparkSession.sessionState().newHadoopConf()
    return jvm.java_class(session, f"{DELTA}.storage.dv.HadoopFileSystemDVStore")(conf)


def _name(path: str) -> str:
    """Delta's file names are unique, wherever the table lies."""
    return path.rpartition("/")[2]


def _files(
    session: SparkSession, snapshot: Java, wanted: Collection[int] | None
) -> dict[int, Java] | None:
    """Some files of a table (None: all of them) with their statistics, by `bags.file_id`; None if
    there are too many."""
    files = snapshots.all_files(snapshot)
    if files is None or files.size() > FILES_AT_MOST:
        if wanted is None or len(wanted) > FILES_AT_MOST:
            return None
        listed = [F.lit(file) for file in wanted]
        some = bags.file_id(F.element_at(F.split("path", "/"), -1)).isin(*listed)
        found = [*snapshot.allFiles().where(some._jc).collectAsList()]
    else:
        found = [*jvm.items(files)]
    by_id = dict(zip(_ids(session, [_name(file.path()) for file in found]), found, strict=True))
    unique = len(by_id) == len(found)  # foreign writers may call files as they like
    return by_id if unique and by_id.keys() >= set(wanted or ()) else None


def _ids(session: SparkSession, names: Sequence[str]) -> list[int]:
    """What Spark makes of the names of files; they are values, so no job runs."""
    if not names:
        return []
    listed = ", ".join(f"({literal(name)})" for name in names)
    named = session.sql(f"SELECT * FROM VALUES {listed} AS t ({FILE_NAME})")  # noqa: S608  quoted
    return jvm.numbers(named.select(bags.file_id(F.col(FILE_NAME))))


def _bitmap(session: SparkSession, log: Java, store: Java, file: Java, rows: Sequence[int]) -> Java:
    """All rows of a file that are gone then."""
    bitmap = jvm.java_class(session, f"{DELTA}.deletionvectors.RoaringBitmapArray")()
    bitmap.addAll(jvm.long_sequence(session, rows))
    vector = file.deletionVector()
    if vector is not None:
        create = jvm.static(session, f"{DELTA}.deletionvectors.StoredBitmap", "create")
        bitmap.merge(create(vector, log.dataPath()).load(store))
    return bitmap


@contextmanager
def _vectors(session: SparkSession, log: Java, store: Java) -> Generator[Callable[[Java], Java]]:
    """Makes deletion vectors of bitmaps: small ones lie in the log, others in a file of theirs."""
    form = jvm.static(session, f"{DELTA}.deletionvectors.RoaringBitmapArrayFormat", "Portable")()
    descriptor = f"{DELTA}.actions.DeletionVectorDescriptor"
    inline = jvm.static(session, descriptor, "inlineInLog")
    in_file = jvm.static(session, descriptor, "onDiskWithRelativePath")
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
    session: SparkSession, log: Java, snapshot: Java, places: DataFrame
) -> list[Mark] | None:
    """Deletion vectors in files of their own, made where the rows are."""
    rows = places.select(F.explode(bags.PLACES).alias(bags.PLACE)).select(f"{bags.PLACE}.*")
    files = _files(session, snapshot, None)
    if files is None:
        found = jvm.numbers(rows.select("file").distinct())
        files = _files(session, snapshot, found)
    if files is None:
        return None
    vectors = {file: found.deletionVector() for file, found in files.items()}
    before = session.createDataFrame(
        [(file, vector and vector.serializeToBase64()) for file, vector in vectors.items()],
        "file BIGINT, deletionVectorId STRING",
    )
    wanted = rows.join(
        F.broadcast(before), "file", "left"
    ).select(  # the names that Delta's builder wants
        F.col("file").cast("string").alias("filePath"),
        F.col("row").alias("rowIndexCol"),
        "deletionVectorId",
    )
    helper = f"{DELTA}.commands.DeletionVectorBitmapGenerator"
    build = jvm.static(session, helper, "buildDeletionVectors")
    found = build(session._jsparkSession, wanted._jdf, log, 0)
    return [
        Mark(files[int(made.filePath())], made.deletionVector(), made.matchedRowCount())
        for made in jvm.items(found)
    ]


def now_ms() -> int:
    return int(time.time() * 1000)


def try_internals(session: SparkSession) -> None:
    """Try what can be tried without a table."""
    bitmap = jvm.java_class(session, f"{DELTA}.deletionvectors.RoaringBitmapArray")()
    bitmap.addAll(jvm.long_sequence(session, [1]))
    form = jvm.static(session, f"{DELTA}.deletionvectors.RoaringBitmapArrayFormat", "Portable")()
    inline = jvm.static(session, f"{DELTA}.actions.DeletionVectorDescriptor", "inlineInLog")
    inline(bitmap.serializeAsByteArray(form), bitmap.cardinality()).serializeToBase64()
