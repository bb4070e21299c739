"""One refresh shared among workers, on Spark: keys and slices lie as Parquet in the table's folder.

Their folder begins with an underscore, so that neither Delta's readers nor VACUUM see it; it goes
with the table. Whoever computes a slice writes to a place that no other attempt has.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from dynamic_tables.compiler.emit import key_column
from dynamic_tables.compiler.plan import DeltaPlan
from dynamic_tables.definition import Definition
from dynamic_tables.errors import RefreshError
from dynamic_tables.lake import bags, jvm, snapshots
from dynamic_tables.lake.base import Moves
from dynamic_tables.lake.changes import of_keys
from dynamic_tables.lake.files import as_of, row_count_at, rows_at
from dynamic_tables.lake.pins import pin_of
from dynamic_tables.lake.plans import source_names
from dynamic_tables.lake.ranges import has_literal, literal_of
from dynamic_tables.lake.slicing import Part, Slicing, Split, SplitKind, StagedKeys
from dynamic_tables.model import Pin, Strategy
from dynamic_tables.names import RESERVED_PREFIX, quote
from dynamic_tables.reasons import Reason

if TYPE_CHECKING:
    from dynamic_tables.lake.area import SparkArea, SparkRows
    from dynamic_tables.lake.delta import SparkLake

FOLDER = "_slices"
SLICE = "slice"  # the folder of a slice's keys: slice=0
NUMBER = f"{RESERVED_PREFIX}slice"
INTEGER = re.compile(r"tinyint|smallint|int|bigint")
HASHABLE = re.compile(r"(?!.*(map<|variant|collate|interval)).*")  # equal values, equal hashes
HASH = "decimal(20, 0)"  # no sum of these is too large
UNEVEN = 2  # times its share, or more: then keys are hashed instead
MOST_PARTITIONS = 10_000  # of a source; more are hashed


def clear_slices(spark: SparkSession, definition: Definition, up_to: int) -> None:
    """Delete what was staged for a table's refreshes up to this number."""
    folder, files = jvm.hadoop_path(spark, f"{definition.location}/{FOLDER}")
    found = _listed(files, folder)
    if found is None:
        return
    over = [path for path in found if path.getName().isdecimal() and int(path.getName()) <= up_to]
    kept = [path for path in over if not files.delete(path, True) and files.exists(path)]
    if kept:  # a local file system says so instead of raising
        raise RefreshError(
            f"{kept[0]} cannot be deleted",
            reason=Reason.NO_PERMISSION,
            about=str(definition.name),
            hint="give this user write access to the folder",
        )
    if len(over) == len(found):
        with suppress(Py4JJavaError):  # not empty: another refresh has begun to stage
            files.delete(folder, False)


def _listed(files: jvm.Java, folder: jvm.Java) -> list[jvm.Java] | None:
    """What lies in a folder; None if it is not there, or goes while it is listed: others clear up
    too."""
    if not files.exists(folder):  # as ever: an error takes a hundred calls to be told
        return None
    try:
        return [status.getPath() for status in files.listStatus(folder)]
    except Py4JJavaError as error:
        if "FileNotFoundException" not in str(error.java_exception):
            raise
        return None


class SparkSlicer:
    """See `lake.slicing.Slicer`."""

    def __init__(
        self, lake: SparkLake, area: SparkArea, definition: Definition, sequence: int
    ) -> None:
        self._lake, self._area, self._session = lake, area, area.session
        self._definition = definition
        self._place = f"{definition.location}/{FOLDER}/{sequence}"

    @property
    def _keys_place(self) -> str:
        return f"{self._place}/keys"

    # Splitting

    def size(self, pins: Sequence[Pin]) -> int:
        """The rows of the largest source: nobody knows how many groups they make."""
        return max(map(self._count, pins), default=0)

    def _count(self, pin: Pin) -> int:
        return row_count_at(self._session, self._lake.location_of(pin.name), pin.version)

    def _snapshot(self, pin: Pin) -> jvm.Java:
        log = snapshots.delta_log_by_path(self._session, self._lake.location_of(pin.name))
        return snapshots.snapshot_at(self._session, log, pin.version)

    def _rows_at(self, pin: Pin) -> DataFrame:
        return as_of(self._session, self._lake.location_of(pin.name), pin.version)

    def split(self, strategy: Strategy, count: int, pins: Sequence[Pin]) -> Split | None:
        """How to tell slices apart; None if the query has no key that could."""
        plan = self._lake.plan_of(self._definition)
        if not isinstance(plan, DeltaPlan) or not self._definition.deterministic:
            return None
        columns = self._key(plan, strategy)
        hashed = self._hashable(columns)
        if not hashed:
            return None
        by_partition = self._by_partition(plan, columns, count, pins)
        if by_partition is not None:
            return by_partition
        one = strategy is Strategy.KEYS and len(columns) == 1
        if one and INTEGER.fullmatch(self._types[columns[0]]):
            return Split(kind=SplitKind.MODULO, columns=columns, count=count)
        return Split(kind=SplitKind.HASH_RANGE, columns=hashed, count=count)

    @property
    def _types(self) -> dict[str, str]:
        return {column.name: column.type.lower() for column in self._definition.stored_columns}

    def _hashable(self, columns: Sequence[str]) -> tuple[str, ...]:
        return tuple(name for name in columns if HASHABLE.fullmatch(self._types[name]))

    def _key(self, plan: DeltaPlan, strategy: Strategy) -> tuple[str, ...]:
        """The columns of the key; of a whole result only if no run gives others."""
        inexact = self._definition.inexact
        if strategy is Strategy.KEYS:
            return plan.exact_key_columns(inexact)
        fuzzy = {name.lower() for name in inexact}
        found = plan.key_columns()
        return found if all(name.lower() not in fuzzy for name in found) else ()

    def _by_partition(
        self, plan: DeltaPlan, columns: Sequence[str], count: int, pins: Sequence[Pin]
    ) -> Split | None:
        """By the partitions of a source, if its partition column is part of the key."""
        for column in columns:
            found = plan.origin(column)
            if found is None:
                continue
            source = source_names(self._definition)[found[0]]
            pin = pin_of(pins, source)
            if source.hidden is None and found[1] in self._partitioned_by(pin):
                values = _values(self._rows_at(pin), found[1], count)
                if values is not None:
                    return Split(
                        kind=SplitKind.PARTITION, columns=(column,), count=count, values=values
                    )
        return None

    def _partitioned_by(self, pin: Pin) -> set[str]:
        metadata = self._snapshot(pin).metadata()
        return {name.lower() for name in jvm.items(metadata.partitionColumns())}

    # Keys

    def stage_keys(self, split: Split) -> StagedKeys:
        """Write the affected keys, one folder a slice."""
        assert self._area.affected is not None, "delta comes first"
        plan = self._lake.plan_of(self._definition)
        assert isinstance(plan, DeltaPlan)
        key = self._key(plan, Strategy.KEYS)
        named = self._as_stored(self._area.affected, key)
        split, counts = self._suited(named, split)
        keys = named.select(F.expr(split.number()).alias(SLICE), *map(quote, key))
        keys = keys.toDF(SLICE, *(key_column(n) for n in range(len(key))))
        keys.write.mode("overwrite").partitionBy(SLICE).parquet(self._keys_place)
        return StagedKeys(split=split, key=key, counts=counts)

    def _suited(self, keys: DataFrame, split: Split) -> tuple[Split, dict[int, int]]:
        """The split for these keys, and how many each slice has; hash them if it would be uneven.

        Keys may be of partitions that are gone: their own values count, not the source's.
        """
        if split.kind is SplitKind.PARTITION:
            values = _values(keys, split.columns[0], split.count)
            if values is not None:
                split = replace(split, values=values)
                return split, self._counts(keys, split)
        elif split.kind is SplitKind.HASH_RANGE:
            return split, self._counts(keys, split)
        else:
            counts = self._counts(keys, split)
            if not _is_uneven([counts.get(number, 0) for number in range(split.count)]):
                return split, counts
        hashed = self._hashable(keys.columns)
        split = Split(kind=SplitKind.HASH_RANGE, columns=hashed, count=split.count)
        return split, self._counts(keys, split)

    def _as_stored(self, keys: DataFrame, names: Sequence[str]) -> DataFrame:
        """Keys under the names and with the types of the table: a hash depends on the type."""
        types = {column.name: column.type for column in self._definition.stored_columns}
        return keys.select(
            *(F.col(key_column(n)).cast(types[name]).alias(name) for n, name in enumerate(names))
        )

    def _counts(self, keys: DataFrame, split: Split) -> dict[int, int]:
        found = keys.groupBy(F.expr(split.number()).alias(SLICE)).count().collect()
        return {int(row[SLICE]): row["count"] for row in found}

    # Slices

    def compute(
        self, slicing: Slicing, slice_no: int, token: int, pins: Sequence[Pin], instant: datetime
    ) -> Part:
        """Compute one slice at the cut and write it to a place of its own."""
        if slicing.strategy is Strategy.KEYS:
            rows = self._of_keys(slicing, slice_no, pins, instant)
        else:
            whole = self._area.compute(self._definition, pins, instant).frame
            rows = whole.where(slicing.split.condition(slice_no))
        place = f"{self._place}/{slice_no}-{token}"
        seen = Observation()
        count, checksum = F.count(F.lit(1)).alias("rows"), _checksum(rows).alias("checksum")
        observed = rows.observe(seen, count, checksum)
        observed.toDF(*_plain(rows.columns)).write.mode("overwrite").parquet(place)
        return Part(location=place, rows=seen.get["rows"], checksum=str(seen.get["checksum"]))

    def _of_keys(
        self, slicing: Slicing, slice_no: int, pins: Sequence[Pin], instant: datetime
    ) -> DataFrame:
        plan = self._lake.plan_of(self._definition)
        assert isinstance(plan, DeltaPlan)
        still = Moves(
            before=pins,
            after=pins,
            then=instant,
            now=instant,
            moved=frozenset(),
            clock_moved=False,
        )
        keys = self._keys(f"{self._keys_place}/{SLICE}={slice_no}", slicing.counts[slice_no])
        known: dict[int, list[Any]] = {}
        if slicing.split.kind is SplitKind.PARTITION:  # so that only its partitions are read
            index = slicing.key.index(slicing.split.columns[0])
            known[index] = [row[0] for row in keys.select(key_column(index)).distinct().collect()]
        return self._area.maintenance(self._definition, plan, still).rows_of(keys, known)

    def _keys(self, place: str, count: int) -> DataFrame:
        """Staged keys, all of them: groups whose keys are missing would stay as they were."""
        try:
            keys = self._session.read.parquet(place)
        except AnalysisException as error:
            raise self._damaged("staged keys are gone", place) from error
        if keys.count() != count:
            raise self._damaged("staged keys are missing", place)
        return keys

    def gather(
        self,
        slicing: Slicing,
        parts: Mapping[int, Part],
        pins: Sequence[Pin],
        instant: datetime,
    ) -> SparkRows:
        """All slices together, once they are known to be what their workers computed."""
        whole = self._area.compute(self._definition, pins, instant)
        kinds, names = whole.frame.schema.fields, whole.frame.columns
        pairs = zip(_plain(names), kinds, strict=True)
        schema = T.StructType([T.StructField(plain, kind.dataType) for plain, kind in pairs])
        none = whole.frame.where(F.lit(False)).withColumn(NUMBER, F.lit(0))
        frames = [
            self._session.read.schema(schema)
            .parquet(part.location)
            .toDF(*names)
            .withColumn(NUMBER, F.lit(slice_no))
            for slice_no, part in parts.items()
            if part.rows
        ]
        together = reduce(DataFrame.unionAll, frames, none)
        self._check(together, slicing.split, parts)
        return type(whole)(frame=together.drop(NUMBER), columns=whole.columns)

    def _check(self, together: DataFrame, split: Split, parts: Mapping[int, Part]) -> None:
        """Every row is there, as it was computed, and in the slice that its key belongs to."""
        rows = together.drop(NUMBER)
        astray = F.sum(F.when(F.expr(split.number()).eqNullSafe(F.col(NUMBER)), 0).otherwise(1))
        found = together.groupBy(NUMBER).agg(
            F.count(F.lit(1)).alias("rows"),
            _checksum(rows).alias("checksum"),
            astray.alias("astray"),
        )
        seen = {row[NUMBER]: row for row in found.collect()}
        for slice_no, part in parts.items():
            row = seen.get(slice_no)
            told = (row["rows"], str(row["checksum"])) if row else (0, "0")
            if told != (part.rows, part.checksum) or (row and row["astray"]):
                what = f"slice {slice_no} has {told[0]} rows instead of {part.rows}, or others than"
                raise self._damaged(f"{what} were computed", part.location)

    def _damaged(self, what: str, place: str) -> RefreshError:
        return RefreshError(
            what,
            reason=Reason.SLICE_DAMAGED,
            about=str(self._definition.name),
            hint=f"{place} must be the same folder for all workers",
        )

    def difference(self, rows: SparkRows, slicing: Slicing, base: int) -> int:
        """Keep by what the rows of the affected keys differ from the stored ones."""
        stored = bags.placed(rows_at(self._session, self._definition.location, base))
        keys = self._keys(self._keys_place, sum(slicing.counts.values())).drop(SLICE)
        return self._area.keep(bags.counted(rows.frame, of_keys(stored, keys, slicing.key)))

    def discard(self, part: Part) -> None:
        """Delete what nobody waits for any more.

        If the refresh is over, its folder was gone until this slice was written. What all
        refreshes share stays: another one may list it, or begin to stage there.
        """
        path, files = jvm.hadoop_path(self._session, part.location)
        files.delete(path, True)
        with suppress(Py4JJavaError):  # not empty: that refresh goes on
            files.delete(path.getParent(), False)


def _values(rows: DataFrame, column: str, count: int) -> tuple[tuple[str, ...], ...] | None:
    """The values of a column in so many lists of about as many rows; None if that cannot be."""
    sizes = rows.groupBy(quote(column)).count().limit(MOST_PARTITIONS + 1).collect()
    if len(sizes) > MOST_PARTITIONS:
        return None
    return balanced([(row[0], row[1]) for row in sizes], count)


def balanced(sizes: Sequence[tuple[Any, int]], count: int) -> tuple[tuple[str, ...], ...] | None:
    """Values in so many lists of about the same size, as literals; None if that cannot be.

    Rows without a value may come out of any query (a subtotal), so NULL is always in a slice.

    >>> balanced([("a", 5), ("b", 3), ("c", 2), (None, 1)], 2)
    (("'a'", 'NULL'), ("'b'", "'c'"))
    >>> balanced([(None, 9), ("a", 5), ("b", 3)], 2)
    (('NULL',), ("'a'", "'b'"))
    >>> balanced([("a", 5)], 2)
    >>> balanced([("a", 50), ("b", 3), ("c", 2)], 3)
    """
    known = [value for value, _ in sizes if value is not None]
    if len(known) < count or not all(map(has_literal, known)):
        return None
    lists: list[list[str]] = [[] for _ in range(count)]
    totals = [0] * count
    for value, size in sorted({None: 0, **dict(sizes)}.items(), key=lambda pair: -pair[1]):
        least = totals.index(min(totals))
        lists[least].append("NULL" if value is None else literal_of(value))
        totals[least] += size
    return None if _is_uneven(totals) else tuple(map(tuple, lists))


def _is_uneven(sizes: Collection[int]) -> bool:
    """Of all slices, those without anything too.

    >>> _is_uneven([2, 0]), _is_uneven([4, 2, 1, 1]), _is_uneven([3, 1]), _is_uneven([3, 2, 2, 1])
    (True, True, False, False)
    """
    return max(sizes) * len(sizes) >= UNEVEN * sum(sizes)


def _plain(names: Sequence[str]) -> list[str]:
    """Names that every file can have, by position."""
    return [f"c{n}" for n in range(len(names))]


def _checksum(rows: DataFrame) -> Column:
    """The same for the same bag of rows in any order; a hash passes over NULL, so that is told."""
    parts: list[Column] = []
    for field in rows.schema.fields:
        value = F.col(quote(field.name))
        parts += [value.isNull(), bags.comparable(value, field.dataType)]
    return F.coalesce(F.sum(F.xxhash64(*parts).cast(HASH)), F.lit(0).cast("decimal(30, 0)"))
