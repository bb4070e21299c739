"""The order of events, and the argument why nothing can be lost.

New files are written beside the old ones, read back and compared with them, and exchanged for them
in one commit of Delta's own transaction, which leaves alone whatever somebody else changed
meanwhile. Whoever dies before that commit leaves files that no version names, which VACUUM removes.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from dynamic_tables.lake.faults import SPARK_FAULTS, told
from dynamic_tables.lake.row_groups.files import Partition
from dynamic_tables.lake.row_groups.order import Order
from dynamic_tables.lake.row_groups.table import RowGroupTable
from dynamic_tables.lake.row_groups.writing import NewFile
from dynamic_tables.steps import LayoutStep, reached


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordered:
    """What became of a table."""

    version: int | None  # of the one commit; None: there was nothing to commit
    partitions: tuple[Partition, ...]  # as they were before
    files: tuple[NewFile, ...]  # that were written, also those that were not committed
    todo: frozenset[int]  # numbers of the partitions that were not in order
    changed: frozenset[int]  # of those among them that somebody changed meanwhile


def put_in_order(table: RowGroupTable, order: Order, where: str | None = None) -> Ordered:
    """Exchange the files of all partitions that are not in this order yet."""
    with _faults_told(table):
        partitions = table.partitions(where)
        todo = [partition for partition in partitions if not partition.is_ordered(order.tag)]
        return _exchanged(table, order, partitions, todo)


def keep_in_order(table: RowGroupTable, order: Order) -> Ordered:
    """The same, by as many values a row group as look-ups read least of.

    What was written with another number of them stays: it was the best one then, or was asked for.
    """
    with _faults_told(table):
        partitions = table.partitions(None)
        todo = [partition for partition in partitions if not partition.is_ordered_somehow(order)]
        return _exchanged(table, table.weighed(order, todo), partitions, todo)


@contextmanager
def _faults_told(table: RowGroupTable) -> Generator[None]:
    try:
        yield
    except SPARK_FAULTS as error:
        raise told(error, about=table.name) from error


def _exchanged(
    table: RowGroupTable, order: Order, partitions: Sequence[Partition], todo: Sequence[Partition]
) -> Ordered:
    reached(LayoutStep.LISTED, table.name)
    files = table.write(todo, order)
    reached(LayoutStep.WRITTEN, table.name)
    table.verify(todo, files, order)
    reached(LayoutStep.VERIFIED, table.name)
    with table.locked():
        reached(LayoutStep.LOCKED, table.name)
        committed = table.commit(todo, files, order)
    reached(LayoutStep.EXCHANGED, table.name)
    table.discard([file for file in files if file.partition in committed.changed])
    return Ordered(
        version=committed.version,
        partitions=tuple(partitions),
        files=tuple(files),
        todo=frozenset(partition.number for partition in todo),
        changed=committed.changed,
    )
