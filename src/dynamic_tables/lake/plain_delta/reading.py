"""The rows of a file as the table has them now.

Columns are found by name or by id, also those inside structs. What a file lacks is NULL, narrower
types are widened, rows that a deletion vector names are left out, and where the table tracks its
rows, each one gets the id that it has.

A reader that finds the wrong column would find it again when it reads back what was written. So
what is read is compared with what the log tells of the file: its rows, and the NULLs of its
columns.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.compute import call_function
from pyroaring import BitMap64

from dynamic_tables.errors import Refused
from dynamic_tables.lake.plain_delta.columns import Columns
from dynamic_tables.lake.plain_delta.conforming import UNWANTED, conformed, found_in, lacks_zone
from dynamic_tables.lake.plain_delta.log import File
from dynamic_tables.lake.plain_delta.store import Store
from dynamic_tables.lake.plain_delta.vectors import rows_gone
from dynamic_tables.lake.row_groups.statistics import Leaf, Statistics
from dynamic_tables.reasons import Reason

BATCH_ROWS = 32_768
SPARK_VERSION, OLD_CALENDAR = b"org.apache.spark.version", b"org.apache.spark.legacy"
NEW_CALENDAR_SINCE = (3, 1)  # version of Spark; before, old dates were other days
TIMES = (pa.types.is_date, pa.types.is_timestamp)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A file whose rows are read."""

    file: File
    rows: int  # all that it holds
    gone: BitMap64 | None
    bytes: int  # of its rows, encoded but not packed

    @property
    def rows_left(self) -> int:
        return self.rows - len(self.gone or ())


class Reader:
    """Reads files of one table."""

    def __init__(self, store: Store, columns: Columns) -> None:
        self._store, self._columns = store, columns
        self._by_id = columns.mapping == "id"
        ids = columns.row_ids or ()
        self.schema: pa.Schema = columns.arrow
        for name in ids:
            self.schema = self.schema.append(pa.field(name, pa.int64()))

    def source(self, file: File) -> Source:
        """What must be known before rows are read; refuses what would be read wrongly."""
        with self._store.open(file.path) as opened, _parquet(opened) as parquet:
            footer = parquet.metadata
            self._check_calendar(footer, file)
            self._check_instants(parquet, file)
            sizes = [footer.row_group(n).total_byte_size for n in range(footer.num_row_groups)]
            rows = footer.num_rows
        gone = rows_gone(self._store, file.vector) if file.vector else None
        if gone and gone.max() >= rows:
            raise self._refused(file, "its deletion vector names rows that it has not")
        if self._columns.row_ids and None in (file.base_row_id, file.commit_version):
            raise self._refused(file, "the log tells no row ids of it")
        return Source(file=file, rows=rows, gone=gone, bytes=sum(sizes))

    def bytes_of(self, source: Source) -> int:
        """What its rows take in memory, judging by the first of them.

        A footer tells encoded sizes: texts that repeat take a thousand times as much.
        """
        first = next(self.rows(source), None)
        if first is None or not first.num_rows:
            return source.bytes
        return max(source.bytes, first.nbytes * source.rows_left // first.num_rows)

    def rows(
        self, source: Source, *, only: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Its rows in their order; `only` some columns, by their names in files."""
        known = Statistics(_null_counted(self._columns)) if only is None else None
        with self._store.open(source.file.path) as opened, _parquet(opened) as parquet:
            start = 0
            chosen = self._chosen(parquet, source.file, only)
            for batch in _batches(parquet, chosen):
                whole = self._conformed(batch, source.file, start, only)
                if known is not None:
                    known.add(pa.Table.from_batches([whole]))
                yield self._left(whole, source, start)
                start += batch.num_rows
        if known is not None:
            self._check_statistics(source, known)

    def _chosen(
        self, parquet: pq.ParquetFile, file: File, only: Sequence[str] | None
    ) -> list[str] | None:
        """What is read of a file: other columns may be dropped ones."""
        fields = [self.schema.field(name) for name in only or self.schema.names]
        here = parquet.schema_arrow
        try:
            places = [found_in(here, field, by_id=self._by_id) for field in fields]
        except TypeError as error:
            raise self._refused(file, str(error)) from error
        names = [here.field(place).name for place in places if place is not None]
        if not names or any("." in name for name in names):
            return None  # a dot would mean a field of a struct
        return names

    def _conformed(
        self, batch: pa.RecordBatch, file: File, start: int, only: Sequence[str] | None
    ) -> pa.RecordBatch:
        fields = [self.schema.field(name) for name in only or self.schema.names]
        arrays = [self._column(batch, field, file, start) for field in fields]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _column(self, batch: pa.RecordBatch, field: pa.Field, file: File, start: int) -> pa.Array:
        if field.name in (self._columns.row_ids or ()):
            return self._row_ids(batch, field.name, file, start)
        place = found_in(batch.schema, field, by_id=self._by_id)
        if place is None:
            if field.name in self._columns.with_defaults:
                raise self._refused(
                    file, f"it lacks the column {field.name!r}, which has a default"
                )
            return pa.nulls(batch.num_rows, field.type)
        try:
            return conformed(batch.column(place), field.type, by_id=self._by_id)
        except (TypeError, pa.ArrowException) as error:
            raise self._refused(file, f"its column {field.name!r} does not fit: {error}") from error

    def _row_ids(self, batch: pa.RecordBatch, name: str, file: File, start: int) -> pa.Array:
        """Those that the file has; else they follow from the log."""
        assert self._columns.row_ids is not None
        if name == self._columns.row_ids[0]:
            assert file.base_row_id is not None
            first = file.base_row_id + start
            default = pa.array(range(first, first + batch.num_rows), pa.int64())
        else:
            default = pa.repeat(pa.scalar(file.commit_version, pa.int64()), batch.num_rows)
        if name not in batch.schema.names:
            return default
        return call_function("coalesce", [batch.column(name).cast(pa.int64()), default])

    def _left(self, batch: pa.RecordBatch, source: Source, start: int) -> pa.RecordBatch:
        if not source.gone:
            return batch
        end = start + batch.num_rows
        here = source.gone & BitMap64(range(start, end)) if batch.num_rows else BitMap64()
        if not here:
            return batch
        stay = [True] * batch.num_rows
        for position in here:
            stay[position - start] = False
        return batch.filter(pa.array(stay))

    def _check_statistics(self, source: Source, found: Statistics) -> None:
        """Of a file with a deletion vector, NULLs may be counted with or without what is gone."""
        told = source.file.told
        rows = told.get("numRecords")
        if found.rows != source.rows or rows not in (None, source.rows):
            raise self._refused(
                source.file, f"it has {found.rows} rows, and the log tells of {rows}"
            )
        if source.gone is not None or not told.get("tightBounds", True):
            return
        read = json.loads(found.as_json())["nullCount"]
        for path, nulls in _flat(told.get("nullCount") or {}):
            here = _at(read, path)
            if here is not None and nulls is not None and here != nulls:
                raise self._refused(
                    source.file,
                    f"{here} NULLs were read in {'.'.join(path)}, and the log tells of {nulls}",
                )

    def _check_calendar(self, footer: pq.FileMetaData, file: File) -> None:
        if not any(_has_times(field.type) for field in self.schema):
            return
        told = footer.metadata or {}
        version = told.get(SPARK_VERSION)
        old = version is not None and _version(version) < NEW_CALENDAR_SINCE
        if old or any(key.startswith(OLD_CALENDAR) for key in told):
            raise self._refused(file, "its dates are in the old calendar")

    def _check_instants(self, parquet: pq.ParquetFile, file: File) -> None:
        """Arrow shows instants of 96 bits, which do not say it, like times without a zone."""
        leaves = [parquet.schema.column(n) for n in range(len(parquet.schema))]
        if not any(map(_is_local_time, leaves)):
            return
        here, local = parquet.schema_arrow, map(_is_local_time, leaves)
        try:
            wanted = {found_in(here, f, by_id=self._by_id): f.type for f in self.schema}
            lacking = [
                column.name
                for n, column in enumerate(here)
                if lacks_zone(column.type, wanted.get(n, UNWANTED), local, by_id=self._by_id)
            ]
        except TypeError as error:
            raise self._refused(file, str(error)) from error
        if lacking:
            raise self._refused(file, f"its column {lacking[0]!r} has times without a zone")

    def _refused(self, file: File, what: str) -> Refused:
        return Refused(
            f"its file {file.path} cannot be read without Spark: {what}",
            reason=Reason.TABLE_FEATURE,
            about=self._columns.table,
            hint="use rorder, which reads it with Spark",
        )


def _parquet(opened: pa.NativeFile) -> pq.ParquetFile:
    """Timestamps of 96 bits are microseconds for Spark; as nanoseconds few years would fit."""
    return pq.ParquetFile(opened, coerce_int96_timestamp_unit="us")


def _batches(parquet: pq.ParquetFile, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
    """Of texts in a dictionary inside a struct or a list, Arrow cannot put row groups together."""
    at_once: list[list[int] | None] = [None]
    if any(_has_inner_dictionary(column.type) for column in parquet.schema_arrow):
        at_once = [[n] for n in range(parquet.num_row_groups)]
    for row_groups in at_once:
        yield from parquet.iter_batches(BATCH_ROWS, row_groups=row_groups, columns=columns)


def _has_inner_dictionary(kind: pa.DataType) -> bool:
    inner = [kind.field(n).type for n in range(kind.num_fields)]
    return any(pa.types.is_dictionary(part) or _has_inner_dictionary(part) for part in inner)


def _null_counted(columns: Columns) -> list[Leaf]:
    """What the log can be compared with.

    Of lists and maps some writers count the NULLs inside, those of a map as `key` and `value`.
    """
    taken = {("key",), ("value",)} if any(_has_map(f.type) for f in columns.arrow) else set()
    return [
        Leaf(leaf.path, bounded=False)
        for leaf in columns.leaves
        if leaf.path not in taken and not pa.types.is_nested(_type_at(columns.arrow, leaf.path))
    ]


def _type_at(schema: pa.Schema, path: Sequence[str]) -> pa.DataType:
    kind = schema.field(path[0]).type
    for name in path[1:]:
        kind = kind.field(name).type
    return kind


def _has_map(kind: pa.DataType) -> bool:
    inner = [kind.field(n).type for n in range(kind.num_fields)]
    return pa.types.is_map(kind) or any(map(_has_map, inner))


def _has_times(kind: pa.DataType) -> bool:
    inner = [kind.field(n).type for n in range(kind.num_fields)]
    return any(map(_has_times, inner)) or any(is_(kind) for is_ in TIMES)


def _is_local_time(leaf: pq.ColumnSchema) -> bool:
    told = json.loads(leaf.logical_type.to_json())
    return leaf.physical_type == "INT64" and told.get("isAdjustedToUTC") is False


def _version(text: bytes) -> tuple[int, int]:
    """
    >>> _version(b"3.5.0-SNAPSHOT")
    (3, 5)
    """
    major, minor = text.decode().split(".")[:2]
    return int(major), int(minor)


def _flat(tree: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, (*above, name))
        else:
            yield (*above, name), value


def _at(tree: Any, path: Sequence[str]) -> Any:
    for name in path:
        tree = tree.get(name) if isinstance(tree, Mapping) else None
    return tree
