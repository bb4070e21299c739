"""The order of a dynamic table's stored rows, as its option ROW_GROUPS BY wants it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from pyspark.sql import DataFrame, SparkSession

from dynamic_tables.definition import Definition
from dynamic_tables.lake import snapshots, transaction
from dynamic_tables.lake.jvm import Java, option
from dynamic_tables.lake.pieces import SMALL_FILE_BYTES
from dynamic_tables.lake.row_groups.order import ORDER_TAG, PHYSICAL_NAME, Order
from dynamic_tables.lake.row_groups.sizes import FILE_BYTES_AT_MOST
from dynamic_tables.lake.transaction import all_files
from dynamic_tables.names import quote


@dataclass(frozen=True, slots=True, kw_only=True)
class Disorder:
    """What of a table lies in files that are not in order."""

    percent: int  # of the bytes
    small_files: int


def disorder(snapshot: Java, unique_by: str) -> Disorder:
    in_order = _is_in_order(snapshot, unique_by)
    sizes = [(file.size(), in_order(file)) for file in all_files(snapshot)]
    whole, unordered = (
        sum(size for size, _ in sizes),
        [size for size, ordered in sizes if not ordered],
    )
    return Disorder(
        percent=round(100 * sum(unordered) / whole) if whole else 0,
        small_files=sum(size <= SMALL_FILE_BYTES for size in unordered),
    )


def _is_in_order(snapshot: Java, unique_by: str) -> Callable[[Java], bool]:
    physical = _physical_name(snapshot.metadata(), unique_by)
    wanted = Order(unique_by=unique_by, physical=(physical,))
    return lambda file: wanted.is_that_of(option(file.getTag(ORDER_TAG)))


def _physical_name(metadata: Java, column: str) -> str:
    mapping = option(metadata.configuration().get("delta.columnMapping.mode"))
    if mapping in (None, "none"):
        return column
    fields = json.loads(metadata.schema().json())["fields"]
    found = [f["metadata"][PHYSICAL_NAME] for f in fields if f["name"].lower() == column.lower()]
    return found[0] if found else column


def put_in_order(spark: SparkSession, definition: Definition, *, lock_wait_s: float) -> None:
    """Exchange the files that are not in order."""
    from dynamic_tables.lake.row_groups.opening import opened  # noqa: PLC0415  it imports this

    column = definition.options.row_groups_by
    assert column is not None
    table = opened(definition.location, spark, lock_wait_s=lock_wait_s, called=str(definition.name))

    from dynamic_tables.lake.row_groups import ordering  # noqa: PLC0415  needs pyarrow

    ordering.keep_in_order(table, table.checked(Order(unique_by=column)))


def merge_small(session: SparkSession, location: str, column: str) -> None:
    """Make few files of the small ones that refreshes added since the table was put in order.

    They are out of order as before: to put them in order, their whole partition is written anew.
    """

    def small(snapshot: Java) -> list[Java]:
        in_order = _is_in_order(snapshot, column)
        files = all_files(snapshot)
        return [file for file in files if file.size() <= SMALL_FILE_BYTES and not in_order(file)]

    log = snapshots.delta_log_by_path(session, location)
    found = small(snapshots.newest_snapshot(session, log))
    if len(found) < 2:  # noqa: PLR2004  nothing to merge
        return
    tasks = ceil(sum(file.size() for file in found) / FILE_BYTES_AT_MOST)

    def merged(rows: DataFrame) -> DataFrame:
        key = next(name for name in rows.columns if name.lower() == column.lower())
        return rows.coalesce(tasks).sortWithinPartitions(quote(key))

    transaction.rewrite(session, location, merged, lambda: None, of=small)
