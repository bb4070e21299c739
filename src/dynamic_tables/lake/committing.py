"""One commit a refresh: the ways in which rows come to stand in a stored table."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from dynamic_tables.definition import Definition
from dynamic_tables.errors import RefreshError
from dynamic_tables.lake import bags, transaction
from dynamic_tables.lake.base import Stamp
from dynamic_tables.lake.faults import SPARK_FAULTS, is_conflict
from dynamic_tables.lake.files import rows_at
from dynamic_tables.lake.holding import Kept, in_one_file
from dynamic_tables.lake.ranges import ORDERED_ALIKE
from dynamic_tables.lake.sessions import small_queries
from dynamic_tables.names import quote
from dynamic_tables.reasons import Reason


def overwrite(
    session: SparkSession,
    definition: Definition,
    rows: DataFrame,
    stamp: Stamp,
    *,
    sort_by: Sequence[str],
    same_columns: bool,
    is_new: bool,
) -> None:
    """Replace all rows; the schema too if the query's columns changed type."""
    rows = in_order(rows, sort_by)
    write = transaction.append if is_new else transaction.overwrite
    if same_columns and write(session, definition.location, rows, stamp):
        return
    writer = _numbered(rows, stamp).mode("overwrite")
    if not same_columns:
        writer = writer.option("overwriteSchema", "true")
        if definition.options.partitioned_by:
            writer = writer.partitionBy(*definition.options.partitioned_by)
    writer.save(definition.location)


def in_order(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Sorted by columns in every file: whoever looks for few of their values reads few pages.

    Columns whose values no literal names (maps, doubles) end the order: nobody looks for them so.
    """
    kinds = {field.name: field.dataType.simpleString() for field in rows.schema.fields}
    ordered = takewhile(lambda name: ORDERED_ALIKE.fullmatch(kinds[name]), columns)
    found = [quote(name) for name in ordered]
    return rows.sortWithinPartitions(*found) if found else rows


def apply_difference(
    session: SparkSession,
    definition: Definition,
    kept: Kept | transaction.Written,
    stamp: Stamp,
    newest: Callable[[], int],
) -> bool:
    """Delete and insert exactly what differs from the version that the stamp is based on.

    `newest` tells the version that stands now. False: nothing was written, because parts of groups
    are known by their places, and files were rewritten; by their values, others would be taken.
    """
    partial, place = definition.in_parts is not None, definition.location
    if isinstance(kept, transaction.Written):
        if not transaction.append_written(session, place, kept, stamp, partial=partial):
            _numbered(kept.rows, stamp).mode("append").save(place)
        return True
    with small_queries(session, applies=kept.held.is_local, rows=kept.size):
        if kept.only_inserts:
            new = in_one_file(bags.inserted(kept.held.frame), kept)
            if not transaction.append(session, place, new, stamp, partial=partial):
                _numbered(new, stamp).mode("append").save(place)
        elif not _replaced(session, definition, kept, stamp):
            if partial and newest() != stamp.base:
                return False
            _merge(session, definition, bags.operations(kept.held.frame), stamp)
    return True


def _replaced(session: SparkSession, definition: Definition, kept: Kept, stamp: Stamp) -> bool:
    """By places. Where they may be looked for again, a conflict is no more than another version."""
    partial = definition.in_parts is not None
    try:
        return transaction.replace_rows(session, definition.location, kept, stamp, partial=partial)
    except SPARK_FAULTS as error:
        if not (partial and is_conflict(error)):
            raise
    return False


def fence(session: SparkSession, definition: Definition, stamp: Stamp) -> None:
    """An empty commit that takes the number n, so that a late writer of n is skipped."""
    transaction.append(session, definition.location, None, stamp)


def _merge(session: SparkSession, definition: Definition, changes: DataFrame, stamp: Stamp) -> None:
    """One MERGE, which finds the rows to delete by their values."""
    _mark_writes(session, definition, stamp)
    schema = rows_at(session, definition.location, stamp.base).schema
    condition = (F.col(f"s.{bags.OPERATION}") == bags.DELETE) & bags.same_row(schema, "t", "s")
    values: dict[str, Any] = {
        quote(field.name): F.col(f"s.{quote(field.name)}") for field in schema.fields
    }
    (
        DeltaTable.forPath(session, definition.location)
        .alias("t")
        .merge(changes.alias("s"), condition)
        .whenMatchedDelete()
        .whenNotMatchedInsert(condition=F.col(f"s.{bags.OPERATION}") == bags.INSERT, values=values)
        .execute()
    )


def _mark_writes(session: SparkSession, definition: Definition, stamp: Stamp) -> None:
    """MERGE takes the pair from the session, which is ours alone and resets it."""
    session.conf.set("spark.databricks.delta.write.txnAppId", definition.table_id)
    session.conf.set("spark.databricks.delta.write.txnVersion", str(stamp.sequence))
    metadata = json.dumps(stamp.as_json())
    session.conf.set("spark.databricks.delta.commitInfo.userMetadata", metadata)


def _numbered(frame: DataFrame, stamp: Stamp) -> DataFrameWriter:
    """A write that stands at most once."""
    return (
        frame.write.format("delta")
        .option("txnAppId", stamp.table_id)
        .option("txnVersion", stamp.sequence)
        .option("userMetadata", json.dumps(stamp.as_json()))
    )


def changed_meanwhile(definition: Definition) -> RefreshError:
    return RefreshError(
        "its stored rows were changed while the refresh was under way",
        reason=Reason.COMMIT_FAILED,
        about=str(definition.name),
        hint="refresh again",
    )
