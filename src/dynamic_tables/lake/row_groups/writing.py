"""Sorted rows to Parquet files, one row group at a time.

Rows arrive sorted by partition and key. Of each value the rows are gathered until the next value
begins, then so many values as wanted become one row group; so never more is held than one row group
and one batch. A value larger than a row group may be gets several of its own.

Runs in executors: it imports nothing but Arrow and the standard library.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyarrow.compute import call_function

from dynamic_tables.lake.row_groups.sizes import (
    CHUNK_FOOTER_BYTES,
    FILE_BYTES_AT_MOST,
    FOOTER_BYTES,
)
from dynamic_tables.lake.row_groups.statistics import Leaf, Statistics

# Values repeat inside a column of texts; whole numbers that are sorted differ by little.
DICTIONARY = (pa.types.is_string, pa.types.is_binary, pa.types.is_boolean)
PACKED = (pa.types.is_int32, pa.types.is_int64, pa.types.is_date32, pa.types.is_timestamp)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """How and where files are written; it travels to the executors."""

    root: str  # the table's folder: a local path, or a URI
    folders: Mapping[int, str]  # of each partition, below the root
    key: str  # physical name of the column
    bounded: tuple[str, ...]  # physical names of columns with statistics in the footer
    field_ids: Mapping[tuple[str, ...], int]  # of column mapping, by path
    leaves: tuple[Leaf, ...]  # what the log has statistics of
    values_per_row_group: int
    row_group_bytes: int
    file_bytes: int  # at least, before a file ends for the sake of its footer
    metadata: Mapping[str, str]  # of every file


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFile:
    """A file that was written; no commit knows it yet."""

    partition: int
    path: str  # below the root
    size: int
    modified: int  # ms
    rows: int
    value_count: int
    row_groups: int
    statistics: str


Keep = Callable[[str, pa.Buffer], None]

NEW_FILE_COLUMNS = (
    "partition INT, path STRING, size LONG, modified LONG, rows LONG, value_count LONG,"
    " row_groups LONG, statistics STRING"
)


def written(
    target: Target, batches: Iterable[pa.RecordBatch], keep: Keep | None = None
) -> Iterator[NewFile]:
    """Write rows: the number of their partition first, then the columns under physical names.

    `keep` stores whole files, by their paths below the root; without it they are written as they
    grow. A file that is not finished is deleted if something fails.

    >>> list(written(None, []))
    []
    """
    order = _Order(target, keep)
    try:
        for batch in batches:
            if batch.num_rows:
                yield from order.take(batch)
        yield from order.end()
    except BaseException:  # whatever it was: nobody was told of that file
        order.abandon()
        raise


def probed(root: str) -> Iterator[pa.RecordBatch]:
    """Write a small file and delete it; raises if that is not possible."""
    files, folder = file_system(root)
    name = f"_dynamic_tables.probe-{uuid4()}"  # Delta and VACUUM ignore it
    with files.open_output_stream(f"{folder}/{name}") as sink:
        sink.write(b"probe")
    files.delete_file(f"{folder}/{name}")
    yield pa.RecordBatch.from_arrays([pa.array([name])], names=["name"])


def told(files: Iterable[NewFile]) -> Iterator[pa.RecordBatch]:
    """What an executor tells the driver: one row a file, in the columns above."""
    for file in files:
        values = {name: getattr(file, name) for name in NewFile.__slots__}
        arrays = [pa.array([value], _TYPES.get(name, pa.int64())) for name, value in values.items()]
        yield pa.RecordBatch.from_arrays(arrays, names=list(values))


_TYPES = {"partition": pa.int32(), "path": pa.string(), "statistics": pa.string()}


@dataclass(slots=True)
class _Pieces:
    """Rows that were gathered: slices of batches."""

    slices: list[tuple[pa.RecordBatch, int, int]] = field(default_factory=list)  # from, to
    bytes: float = 0.0

    def add(self, batch: pa.RecordBatch, start: int, stop: int, size: float) -> None:
        if start == stop:
            return
        if self.slices and self.slices[-1][0] is batch and self.slices[-1][2] == start:
            start = self.slices.pop()[1]
        self.slices.append((batch, start, stop))
        self.bytes += size

    def move_to(self, other: _Pieces) -> None:
        for batch, start, stop in self.slices:
            other.add(batch, start, stop, 0.0)
        other.bytes += self.bytes
        self.clear()

    def clear(self) -> None:
        self.slices.clear()
        self.bytes = 0.0

    def table(self) -> pa.Table:
        batches = [batch.slice(start, stop - start) for batch, start, stop in self.slices]
        return pa.Table.from_batches(batches)


class _Order:
    """Cuts the stream of rows into values, row groups and files."""

    def __init__(self, target: Target, keep: Keep | None) -> None:
        self._target, self._keep = target, keep
        self._file: _File | None = None
        self._value = _Pieces()  # rows of the value that is not over yet
        self._group = _Pieces()  # whole values before it
        self._values = 0  # in the group
        self._continued = False  # rows of the value are in the file already
        self._last: tuple[Any, pa.Array] | None = None  # partition and key of the last row

    def take(self, batch: pa.RecordBatch) -> Iterator[NewFile]:
        partitions, rows = batch.column(0), batch.drop_columns([batch.schema.names[0]])
        keys = rows.column(self._target.key)
        per_row = max(rows.nbytes / rows.num_rows, 1.0)
        begin = 0
        for start in self._starts(partitions, keys):
            self._value.add(rows, begin, start, per_row * (start - begin))
            self._end_value()
            begin = start
            yield from self._turn_to(partitions[start].as_py())
        self._value.add(rows, begin, rows.num_rows, per_row * (rows.num_rows - begin))
        if self._value.bytes >= self._target.row_group_bytes:
            self._write_group()
            self._write(self._value, values=0 if self._continued else 1)
            self._continued = True
        self._last = (partitions[-1].as_py(), keys.slice(len(keys) - 1))

    def abandon(self) -> None:
        """What was begun goes."""
        if self._file is not None:
            self._file.abandon()

    def end(self) -> Iterator[NewFile]:
        if self._last is not None:
            self._end_value()
            yield from self._close()

    def _starts(self, partitions: pa.Array, keys: pa.Array) -> list[int]:
        """Where a value begins that the row before does not have."""
        changes = call_function("or", [_differs(partitions), _differs(keys)])
        inside = [n + 1 for n in call_function("indices_nonzero", [changes]).to_pylist()]
        if self._last is None:
            return [0, *inside]
        partition, key = self._last
        seam = pa.concat_arrays([key, keys.slice(0, 1)])
        new = partition != partitions[0].as_py() or _differs(seam)[0].as_py()
        return [0, *inside] if new else inside

    def _end_value(self) -> None:
        limit = self._target.row_group_bytes
        if not self._value.slices:
            self._continued = False
            return
        if self._continued:  # the rest of a value that has row groups of its own
            self._write(self._value, values=0)
            self._continued = False
            return
        if self._group.bytes + self._value.bytes > limit:
            self._write_group()
        self._value.move_to(self._group)
        self._values += 1
        if self._values >= self._target.values_per_row_group or self._group.bytes >= limit:
            self._write_group()

    def _turn_to(self, partition: int) -> Iterator[NewFile]:
        """A value begins: in the same file, or in a new one."""
        if self._file is not None:
            other = self._file.partition != partition
            if other:
                self._write_group()
            if other or self._file.is_full:
                yield from self._close()
        if self._file is None:
            self._file = _File(self._target, partition, self._keep)

    def _write_group(self) -> None:
        self._write(self._group, values=self._values)
        self._values = 0

    def _write(self, pieces: _Pieces, *, values: int) -> None:
        if pieces.slices:
            assert self._file is not None
            self._file.write(pieces.table(), values=values)
            pieces.clear()

    def _close(self) -> Iterator[NewFile]:
        assert self._file is not None
        self._write_group()
        done, self._file = self._file.close(), None
        yield done


def _differs(values: pa.Array) -> pa.Array:
    """Whether each value but the first is another one than that before it; NULL is a value.

    >>> _differs(pa.array([1, 1, None, None, 2])).to_pylist()
    [False, True, False, True]
    """
    before, after = values.slice(0, len(values) - 1), values.slice(1)
    one_is_null = call_function("xor", [before.is_null(), after.is_null()])
    return call_function("coalesce", [call_function("not_equal", [before, after]), one_is_null])


class _File:
    """A file that is being written."""

    def __init__(self, target: Target, partition: int, keep: Keep | None) -> None:
        self.partition = partition
        self._target, self._keep = target, keep
        name = f"part-{partition:05}-{uuid4()}-c000.zstd.parquet"
        folder = target.folders[partition]
        self._path = f"{folder}/{name}" if folder else name
        self._files, self._root = file_system(target.root)
        self._place = f"{self._root}/{self._path}"
        if keep is None and "://" not in target.root:  # object stores have no folders
            with suppress(FileExistsError):
                self._files.create_dir(f"{self._root}/{folder}", recursive=True)
        self._writer: pq.ParquetWriter | None = None
        self._sink: pa.NativeFile | None = None
        self._statistics = Statistics(target.leaves)
        self._values = self._row_groups = self._chunks = self._bytes = 0

    @property
    def is_full(self) -> bool:
        footer = self._chunks * CHUNK_FOOTER_BYTES
        small = self._bytes < self._target.file_bytes
        return self._bytes >= FILE_BYTES_AT_MOST or (footer >= FOOTER_BYTES and not small)

    def write(self, table: pa.Table, *, values: int) -> None:
        """One row group, or several if one value is too large for one."""
        if self._writer is None:
            self._writer = self._open(table.schema)
        size = max(table.nbytes / table.num_rows, 1.0)
        rows = max(int(self._target.row_group_bytes / size), 1)
        self._writer.write_table(table, row_group_size=rows)
        self._statistics.add(table)
        row_groups = -(-table.num_rows // rows)
        self._values += values
        self._row_groups += row_groups
        self._chunks += row_groups * _leaf_count(table.schema)
        assert self._sink is not None
        self._bytes = self._sink.tell()

    def close(self) -> NewFile:
        assert self._writer is not None
        self._writer.add_key_value_metadata(dict(self._target.metadata))
        self._writer.close()
        return NewFile(
            partition=self.partition,
            path=self._path,
            size=self._finish(),
            modified=int(time.time() * 1000),
            rows=self._statistics.rows,
            value_count=self._values,
            row_groups=self._row_groups,
            statistics=self._statistics.as_json(),
        )

    def _finish(self) -> int:
        """All that was written lies there then; its size."""
        assert self._sink is not None
        if self._keep is not None:
            content = self._sink.getvalue()
            self._keep(self._path, content)
            return content.size
        self._sink.close()
        return self._files.get_file_info(self._place).size

    def abandon(self) -> None:
        """Half a file is no file, though a stream that is dropped is kept by object stores."""
        if self._sink is None or self._keep is not None:
            return
        with suppress(OSError, pa.ArrowException):
            if self._writer is not None:
                self._writer.close()
            self._sink.close()
        with suppress(OSError, pa.ArrowException):
            self._files.delete_file(self._place)

    def _open(self, schema: pa.Schema) -> pq.ParquetWriter:
        """NaN is in no bound that Arrow writes, and Spark would skip its rows: floats have none."""
        held = self._keep is not None
        self._sink = (
            pa.BufferOutputStream() if held else self._files.open_output_stream(self._place)
        )
        return pq.ParquetWriter(
            self._sink,
            with_field_ids(schema, self._target.field_ids),
            compression="zstd",
            use_dictionary=_columns(schema, DICTIONARY),
            column_encoding=dict.fromkeys(_columns(schema, PACKED), "DELTA_BINARY_PACKED"),
            write_statistics=list(self._target.bounded),
            store_decimal_as_integer=True,
            store_schema=False,
        )


def _columns(schema: pa.Schema, kinds: Sequence[Any]) -> list[str]:
    """Names of plain columns of some kinds, as the Parquet writer wants them."""
    return [f.name for f in schema if "." not in f.name and any(is_(f.type) for is_ in kinds)]


def _leaf_count(schema: pa.Schema) -> int:
    def leaves(kind: pa.DataType) -> int:
        inner = [kind.field(n).type for n in range(kind.num_fields)]
        return sum(map(leaves, inner)) if inner else 1

    return sum(leaves(column.type) for column in schema)


def file_system(root: str) -> tuple[fs.FileSystem, str]:
    """Where a table lies, as Arrow sees it."""
    if "://" not in root:
        return fs.LocalFileSystem(), root
    return fs.FileSystem.from_uri(root)


def with_field_ids(schema: pa.Schema, ids: Mapping[tuple[str, ...], int]) -> pa.Schema:
    """The schema with the field ids of column mapping, which readers may go by."""
    return pa.schema([_identified(column, (), ids) for column in schema]) if ids else schema


def _identified(column: pa.Field, above: tuple[str, ...], ids: Mapping) -> pa.Field:
    path = (*above, column.name)
    made = pa.field(column.name, _with_ids(column.type, path, ids), column.nullable)
    return made.with_metadata({"PARQUET:field_id": str(ids[path])}) if path in ids else made


def _with_ids(kind: pa.DataType, path: tuple[str, ...], ids: Mapping) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([_identified(kind.field(n), path, ids) for n in range(kind.num_fields)])
    if pa.types.is_list(kind):
        inner = _with_ids(kind.value_type, (*path, "element"), ids)
        return pa.list_(pa.field(kind.value_field.name, inner, kind.value_field.nullable))
    if pa.types.is_map(kind):
        key = _with_ids(kind.key_type, (*path, "key"), ids)
        item = _with_ids(kind.item_type, (*path, "value"), ids)
        return pa.map_(
            pa.field("key", key, nullable=False),
            pa.field("value", item, kind.item_field.nullable),
        )
    return kind
