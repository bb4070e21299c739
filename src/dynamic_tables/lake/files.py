"""The rows of a Delta table at a version, without the query by which Delta looks for its files.

Delta finds the files of a version that it has not read yet by a query over its log: a second of
planning on any table. The checksum of a version names the files of tables that have few, so small
tables are read by that list, without files that hold nothing of what is wanted. Large ones are left
to Delta, which skips files by their statistics itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from dynamic_tables.lake import jvm, snapshots
from dynamic_tables.lake.jvm import Java
from dynamic_tables.lake.skipping import Wanted, kept

FILES_AT_MOST = 64


@dataclass(frozen=True, slots=True)
class Listed:
    """A version of a table, and its files by the checksum."""

    log: Java
    snapshot: Java
    files: Java


def rows_at(
    session: SparkSession, location: str, version: int, wanted: Sequence[Wanted] = ()
) -> DataFrame:
    """A table as of a version, at least the rows that are wanted; nothing is read yet."""
    return _listed(session, location, version, wanted) or as_of(session, location, version)


def row_count_at(session: SparkSession, location: str, version: int) -> int:
    """How many rows a version has; counted where its checksum does not tell."""
    log = snapshots.delta_log_by_path(session, location)
    known = snapshots.row_count(session, snapshots.snapshot_at(session, log, version))
    return as_of(session, location, version).count() if known is None else known


def as_of(session: SparkSession, location: str, version: int) -> DataFrame:
    """The rows as Delta finds them: these it counts by its log, listed files it opens."""
    return session.read.format("delta").option("versionAsOf", version).load(location)


def _listed(
    session: SparkSession, location: str, version: int, wanted: Sequence[Wanted]
) -> DataFrame | None:
    with jvm.active(session):
        found = listed(session, location, version)
        if found is None:
            return None
        files, snapshot = found.files, found.snapshot
        if wanted and files.size() > 1:
            files = _of(session, files, wanted, schema=snapshot.metadata().schema().json())
        frame = found.log.createDataFrame(snapshot, files, False, jvm.some(session, None))
    return DataFrame(frame, session)


def listed(session: SparkSession, location: str, version: int) -> Listed | None:
    """The files of a version that is read by their list; None: it is left to Delta."""
    log = snapshots.delta_log_by_path(session, location)
    snapshot = snapshots.snapshot_at(session, log, version)
    files = snapshots.all_files(snapshot)
    if files is None or files.size() > FILES_AT_MOST:
        return None
    return Listed(log, snapshot, files)


def _of(session: SparkSession, files: Java, wanted: Sequence[Wanted], *, schema: str) -> Java:
    """The files that may hold what is wanted."""
    stats = [file.get("stats") for file in snapshots.described(session, files)]
    places = kept(stats, wanted, schema)
    if len(places) == len(stats):
        return files
    return jvm.sequence(session, [files.apply(n) for n in places])
