"""The order of a dynamic table's stored rows, as its option ROW_GROUPS BY wants it."""

from __future__ import annotations

import json

from pyspark.sql import SparkSession

from dynamic_tables.definition import Definition
from dynamic_tables.lake.jvm import Java, option
from dynamic_tables.lake.row_groups.order import ORDER_TAG, PHYSICAL_NAME, Order
from dynamic_tables.lake.transaction import all_files


def unordered_percent(snapshot: Java, unique_by: str) -> int:
    """How much of a table lies in files that are not in order, by bytes."""
    physical = _physical_name(snapshot.metadata(), unique_by)
    wanted = Order(unique_by=unique_by, physical=(physical,))
    files = all_files(snapshot)
    sizes = [(file.size(), wanted.is_that_of(option(file.getTag(ORDER_TAG)))) for file in files]
    whole = sum(size for size, _ in sizes)
    return round(100 * sum(size for size, ordered in sizes if not ordered) / whole) if whole else 0


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
