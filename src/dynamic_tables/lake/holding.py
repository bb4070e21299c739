"""What a refresh computes is computed once and held until it is through."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from dynamic_tables.compiler.stages import stages
from dynamic_tables.lake import bags, jvm
from dynamic_tables.lake.sessions import small_queries

SMALL_CHANGES = 10_000  # rows up to which they are held in the driver
SIDES = 2  # of a difference: a row that changes is one that goes and one that comes
SMALL_BYTES = 10 * 2**20
IN_MEMORY = 8  # times as large as Spark takes rows for: objects, and the columns beside the keys


@dataclass(frozen=True, slots=True)
class Kept:
    """By what a table is to differ: see `bags.counted`."""

    held: jvm.Held
    goes: int | None  # rows; None: some, held in the driver, which were not counted

    @property
    def only_inserts(self) -> bool:
        return self.goes == 0

    @property
    def size(self) -> int:
        return self.held.size


class Holder:
    """Computes frames, and holds small ones in the driver, others in the executors."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._persisted: list[DataFrame] = []
        self.expects_few = False  # rows, whatever is computed
        self.changed_rows: int | None = None  # of the sources, if known

    def held(self, frame: DataFrame, *, of_few: bool = False, sides: int = 1) -> jvm.Held:
        """Compute a frame once; `of_few`: it reads few rows."""
        flat, at_most = bags.is_flat(frame), sides * SMALL_CHANGES
        if self.expects_few and flat:
            with small_queries(self._session, applies=of_few, rows=self.changed_rows):
                few = jvm.collected(frame, rows_at_most=at_most)
            if few is not None:
                return few
            self.expects_few = False
        if flat:
            return jvm.counted(checkpointed(frame), rows_at_most=at_most)
        kept = self.persist(frame)
        return jvm.held(kept, rows_at_most=at_most, bytes_at_most=SMALL_BYTES)

    def for_joins(self, frame: DataFrame) -> DataFrame:
        """Compute a frame that others are joined with, once."""
        return self.sent_along(self.held(frame)).frame

    def sent_along(self, held: jvm.Held, *, of: DataFrame | None = None) -> jvm.Held:
        """Rows that a join brings to the rows of the other side, instead of shuffling both, if
        Spark would do so if it knew how few they are: what comes of a change feed has no size.

        `of`: the frame that was computed, if the rows are a part of it.
        """
        at_most = jvm.broadcast_bytes(self._session)
        if held.is_local or held.size * jvm.row_bytes(held.frame) > at_most:
            return held
        taken = jvm.computed_bytes(held.frame if of is None else of)  # texts may be of any length
        if taken is None or taken > IN_MEMORY * at_most:
            return held
        return replace(held, frame=F.broadcast(held.frame), is_sent_along=True)

    def sql(self, query: str) -> DataFrame:
        """A query of ours; parts of it that would grow beyond measure are computed first."""
        *before, last = stages(query)
        for stage in before:
            self.for_joins(self._session.sql(stage.sql)).createOrReplaceTempView(stage.name)
        return self._session.sql(last.sql)

    def named(self, name: str, query: str, *, of_few: bool = False) -> jvm.Held:
        """Compute a query once, under a name."""
        made = self.held(self.sql(query), of_few=of_few)
        made.frame.createOrReplaceTempView(name)
        return made

    def persist(self, frame: DataFrame) -> DataFrame:
        kept = frame.persist(StorageLevel.MEMORY_AND_DISK)
        self._persisted.append(kept)
        return kept

    def keep(self, difference: DataFrame, *, of_few: bool = False) -> Kept:
        """Hold on to what differs; it is read several times and must be the same each time."""
        found = self.held(difference, of_few=of_few, sides=SIDES)
        if not found.is_local and not bags.is_flat(difference):
            found = replace(found, frame=checkpointed(found.frame))
        return _told(found)

    def release(self) -> None:
        for frame in self._persisted:
            frame.unpersist()


def checkpointed(frame: DataFrame) -> DataFrame:
    return frame.localCheckpoint(eager=True)


def keep_computed(rows: DataFrame) -> Kept:
    """What differs, made of what is checkpointed: counted once, held in the driver if small."""
    going = F.sum(F.greatest(F.col(bags.THERE) - F.col(bags.HERE), F.lit(0)))
    size, goes = rows.agg(F.count("*"), F.coalesce(going, F.lit(0))).collect()[0]
    if size > SIDES * SMALL_CHANGES:
        return Kept(jvm.Held(rows, size, is_local=False), goes)
    return _told(jvm.collected_all(rows))


def _told(held: jvm.Held) -> Kept:
    excess = F.col(bags.THERE) - F.col(bags.HERE)
    going = held.frame.where(excess > 0)
    if held.is_local:
        return Kept(held, goes=0 if is_empty(going) else None)
    return Kept(held, goes=going.agg(F.coalesce(F.sum(excess), F.lit(0))).collect()[0][0])


def in_one_file(rows: DataFrame, kept: Kept) -> DataFrame:
    """What is made of rows in the driver is written by one task: every file costs its readers."""
    return rows.coalesce(1) if kept.held.is_local else rows


def is_empty(frame: DataFrame) -> bool:
    return frame.limit(1)._jdf.collectAsList().isEmpty()
