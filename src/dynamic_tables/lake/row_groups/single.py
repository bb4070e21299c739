"""One partition of a table in row-group order, without Spark; a transaction of its own.

The order of events is that of `ordering.py`, and so is the argument why nothing can be lost: new
files are written beside the old ones, read back and compared with them, and one commit exchanges
them, unless somebody changed the partition meanwhile. What Delta's own transaction does there,
`swapping.py` does here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import unquote

import pyarrow as pa
from pyarrow.compute import SortOptions, call_function

from dynamic_tables.errors import Held, InternalError, InvalidInput, Refused
from dynamic_tables.lake.plain_delta import log
from dynamic_tables.lake.plain_delta.columns import Columns
from dynamic_tables.lake.plain_delta.log import File, Snapshot
from dynamic_tables.lake.plain_delta.reading import Reader, Source
from dynamic_tables.lake.plain_delta.store import Store, is_elsewhere
from dynamic_tables.lake.row_groups import refusals, writing
from dynamic_tables.lake.row_groups.hashing import Bag
from dynamic_tables.lake.row_groups.order import ORDER_TAG, PARTIAL, Order
from dynamic_tables.lake.row_groups.sizes import least_file_bytes
from dynamic_tables.lake.row_groups.slices import Slice, slices_of
from dynamic_tables.lake.row_groups.swapping import NO_ROW_ID, as_added, swapped
from dynamic_tables.lake.row_groups.writing import NewFile, Target
from dynamic_tables.reasons import Reason
from dynamic_tables.steps import LayoutStep, reached

# Spark takes dates of files that do not name a new version of it for those of the old calendar.
NEW_CALENDAR = {"org.apache.spark.version": "4.2.0"}
BATCH_ROWS = 32_768
NUMBER = 0  # of the one partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """All files with the same partition values, as the log has these."""

    values: Mapping[str, str | None]
    files: tuple[File, ...]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def folder(self) -> str:
        """Where its files lie, below the table; those of a clone lie elsewhere."""
        inside = [file.path for file in self.files if not is_elsewhere(file.path)]
        return unquote(inside[0]).rpartition("/")[0] if inside else ""

    def is_ordered(self, order: str) -> bool:
        return all(file.tags.get(ORDER_TAG) == order for file in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanged:
    """What became of a partition."""

    version: int | None  # of the commit; None: somebody changed it meanwhile, so there was none
    files: tuple[NewFile, ...]  # that were committed


class PlainTable:
    """One version of a table."""

    def __init__(self, location: str) -> None:
        self.store = Store(location)
        self.name = location
        self.snapshot: Snapshot = log.newest(self.store)
        self._check_protocol()
        self.columns = Columns(location, self.snapshot.metadata)

    def _check_protocol(self) -> None:
        protocol, properties = self.snapshot.protocol, self.snapshot.metadata.configuration
        refusals.check_features(protocol.features, self.name)
        newer = protocol.reader > log.READER_VERSIONS or protocol.writer > log.WRITER_VERSIONS
        elsewhere = [key for key in properties if key.startswith("delta.coordinatedCommits")]
        if newer or elsewhere:
            what = elsewhere[0] if elsewhere else f"version {protocol.reader}, {protocol.writer}"
            raise Refused(
                f"its protocol ({what}) is not known here",
                reason=Reason.TABLE_FEATURE,
                about=self.name,
                hint="use rorder, which goes through Delta on Spark",
            )

    def checked(self, order: Order) -> Order:
        """The order with the names of columns as the table has them; refuses unfit columns."""
        find = self.columns.find
        key = find(order.unique_by, what="unique_by")
        others = [find(name, what="sort_by") for name in order.sort_by]
        return replace(
            order,
            unique_by=key["name"],
            sort_by=tuple(field["name"] for field in others),
            physical=tuple(map(self.columns.physical_name, (key, *others))),
        )

    def parts(self) -> list[Part]:
        """All partitions. Files of partial rows are left as they are: compaction folds them."""
        found: dict[tuple, list[File]] = {}
        for file in self.snapshot.files.values():
            if PARTIAL not in file.tags:
                values = tuple(sorted(file.partition_values.items()))
                found.setdefault(values, []).append(file)
        in_order = sorted(found, key=repr)
        return [Part(values=dict(values), files=tuple(found[values])) for values in in_order]

    def has_partition_columns(self, names: Iterable[str]) -> bool:
        """Whether the table is partitioned by these columns, as the log calls them."""
        fields = self.columns.all
        parts = [f for f in fields if f["name"] in self.snapshot.metadata.partition_columns]
        return set(map(self.columns.physical_name, parts)) == set(names)

    def part(self, values: Mapping[str, str | None]) -> Part:
        """One partition; without files if it is gone."""
        empty = Part(values=dict(values), files=())
        return next((part for part in self.parts() if part.values == empty.values), empty)


def put_in_order(table: PlainTable, part: Part, order: Order, *, held_bytes: int) -> Exchanged:
    """Exchange the files of a partition."""
    reached(LayoutStep.LISTED, table.name)
    work = _Work(table, part, order)
    try:
        before, files = work.write(held_bytes)
    except FileNotFoundError as error:
        raise _gone(table.name) from error
    reached(LayoutStep.WRITTEN, table.name)
    try:
        work.verify(before, files)
    except BaseException:  # whatever it was: no commit names them yet
        work.discard(files)
        raise
    reached(LayoutStep.VERIFIED, table.name)
    try:
        version = swapped(table.store, table.snapshot, part.files, files, order.tag, part.values)
    except (Held, InvalidInput, Refused):  # nothing was committed; of other errors, who knows
        work.discard(files)
        raise
    except FileNotFoundError as error:  # what was read, or the folder itself
        work.discard(files)
        raise _gone(table.name) from error
    reached(LayoutStep.EXCHANGED, table.name)
    if version is None:
        work.discard(files)
        files = []
    return Exchanged(version=version, files=tuple(files))


def _gone(name: str) -> Refused:
    return Refused(
        "a file that its log names is not there",
        reason=Reason.HISTORY_GONE,
        about=name,
        hint="run it again; if it stays so, somebody deleted files of the table",
    )


class _Work:
    """The rows of one partition, on their way."""

    def __init__(self, table: PlainTable, part: Part, order: Order) -> None:
        self._table, self._part, self._order = table, part, order
        self._reader = Reader(table.store, table.columns)
        self._keys = order.physical

    def write(self, held_bytes: int) -> tuple[Bag, list[NewFile]]:
        """The same rows in new files; nobody knows of them yet. Also what was read."""
        sources = [self._reader.source(file) for file in self._part.files]
        bag, made = [Bag()], []

        def batches() -> Iterator[pa.RecordBatch]:
            for piece in slices_of(self._reader, sources, self._keys[0], held_bytes):
                table = self._sorted(sources, piece, bag)
                number = pa.repeat(pa.scalar(NUMBER, pa.int32()), table.num_rows)
                yield from table.add_column(0, "partition", number).to_batches(BATCH_ROWS)

        try:
            made.extend(writing.written(self._target(), batches(), self._table.store.keep))
        except BaseException:  # whatever it was: no commit names them
            self.discard(made)
            raise
        expected = sum(source.rows_left for source in sources)
        if bag[0].rows != expected:
            raise self._lost(f"{bag[0].rows} rows were read of {expected}", made)
        return bag[0], made

    def _sorted(self, sources: Sequence[Source], piece: Slice, bag: list[Bag]) -> pa.Table:
        """The rows of a slice in order, NULL first; what is read is counted on its way."""
        found = []
        for source in sources:
            for batch in self._reader.rows(source):
                some = piece.rows_in(batch, self._keys[0])
                bag[0] = bag[0].with_rows(some)
                found.append(some)
        table = pa.Table.from_batches(found, self._reader.schema)
        by: dict[str, pa.ChunkedArray] = {}
        for number, key in enumerate(self._keys):
            by[f"known {number}"] = table.column(key).is_valid()
            by[f"value {number}"] = table.column(key)
        order = [(name, "ascending") for name in by]
        return table.take(call_function("sort_indices", [pa.table(by)], SortOptions(order)))

    def _target(self) -> Target:
        columns, order = self._table.columns, self._order
        return Target(
            root=self._table.store.root,
            folders={NUMBER: self._part.folder},
            key=self._keys[0],
            bounded=tuple(self._keys),
            field_ids=columns.field_ids,
            leaves=columns.leaves,
            values_per_row_group=order.values_per_row_group,
            row_group_bytes=order.row_group_bytes,
            file_bytes=least_file_bytes(self._part.size),
            metadata=NEW_CALENDAR,
        )

    def verify(self, before: Bag, files: Sequence[NewFile]) -> None:
        """The new files, read back as the log will describe them, have the rows of the old ones."""
        after = Bag()
        for file in files:
            action = as_added(file, self._part.values, self._order.tag)
            known = File.of({**action, **NO_ROW_ID})
            for batch in self._reader.rows(self._reader.source(known)):
                after = after.with_rows(batch)
        if after != before:
            raise self._lost("what was written, read back, differs from what was read", files)

    def _lost(self, what: str, files: Sequence[NewFile]) -> InternalError:
        self.discard(files)
        return InternalError(
            f"{what}; nothing was committed",
            reason=Reason.INTERNAL,
            about=self._table.name,
            hint="please report this",
        )

    def discard(self, files: Sequence[NewFile]) -> None:
        """Delete files that no commit names."""
        for file in files:
            self._table.store.delete(file.path)
