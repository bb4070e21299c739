"""Tables with a range column: which range of values a row belongs to, kept by Delta itself.

A column of thousands of values makes too many partitions; a few ranges of them do not. The range
column is generated from the column, so writers need not know it, and a CHECK says the same to
writers that know no generated columns.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from itertools import pairwise
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from dynamic_tables.errors import InvalidInput, Refused
from dynamic_tables.lake import catalog, jvm, snapshots
from dynamic_tables.lake.faults import headline
from dynamic_tables.lake.ranges import has_literal, literal_of
from dynamic_tables.lake.row_groups.given import check_columns, frame_of
from dynamic_tables.lake.row_groups.refusals import RANGE_SUFFIX, ranged_column
from dynamic_tables.names import TableName, literal, quote
from dynamic_tables.reasons import Reason

SAMPLE_ROWS = 10_000  # by which the ends of ranges are chosen
CONSTRAINT = "rows_are_in_their_range"
GENERATED = "delta.generationExpression"
COMPARABLE = ((int, Decimal), str, date)  # kinds of ends: one of them for all


def create(
    spark: SparkSession, name: TableName, columns: str, *, by: str, ends: Sequence[Any]
) -> None:
    """Make the empty table; `ends` are the first values of all ranges but the first."""
    called = str(name)
    known = _columns(spark, columns, called)
    column = next((field for field in known if field.name.lower() == by.lower()), None)
    if column is None:
        raise InvalidInput(
            f"there is no column {by!r}",
            reason=Reason.BAD_COLUMNS,
            about=called,
            hint=f"its columns: {', '.join(known.names)}",
        )
    _check(ends, called)
    key, number = quote(column.name), quote(f"{column.name}{RANGE_SUFFIX}")
    listed = ", ".join(_column_sql(field, "") for field in known)
    generated = f"{number} INT GENERATED ALWAYS AS ({_number(key, ends)})"
    try:
        spark.sql(
            f"CREATE TABLE {name.sql} ({listed}, {generated}) USING delta PARTITIONED BY ({number})"
        )
        _constrain(spark, name, _check_sql(key, number, ends))
    except AnalysisException as error:
        raise InvalidInput(headline(error), reason=Reason.ANALYSIS_FAILED, about=called) from error


def _constrain(spark: SparkSession, name: TableName, check: str) -> None:
    """Add the CHECK; a table that cannot have it is not left behind."""
    try:
        spark.sql(f"ALTER TABLE {name.sql} ADD CONSTRAINT {CONSTRAINT} CHECK ({check})")
    except BaseException:  # Ctrl-C too must leave no half-made table
        spark.sql(f"DROP TABLE IF EXISTS {name.sql}")
        raise


def _columns(spark: SparkSession, columns: str, called: str) -> StructType:
    try:
        return spark.createDataFrame([], columns).schema
    except AnalysisException as error:
        raise InvalidInput(headline(error), reason=Reason.SYNTAX, about=called) from error


def _column_sql(field: StructField, colon: str) -> str:
    """A column, or a field of a struct, with all that its owner said of it."""
    required = "" if field.nullable else " NOT NULL"
    comment = field.metadata.get("comment")
    told = f" COMMENT {literal(comment)}" if comment is not None else ""
    return f"{quote(field.name)}{colon} {_type_sql(field.dataType)}{required}{told}"


def _type_sql(kind: DataType) -> str:
    match kind:
        case StructType():
            return f"STRUCT<{', '.join(_column_sql(field, ':') for field in kind)}>"
        case ArrayType():
            return f"ARRAY<{_type_sql(kind.elementType)}>"
        case MapType():
            return f"MAP<{_type_sql(kind.keyType)}, {_type_sql(kind.valueType)}>"
    return kind.simpleString()


def _check(ends: Sequence[Any], called: str) -> None:
    if not ends or not all(has_literal(end) for end in ends) or not _rise(ends):
        raise InvalidInput(
            "the ends of ranges are whole numbers, decimals, dates or plain texts that rise",
            reason=Reason.BAD_VALUE,
            about=called,
            hint="ranges=[100, 200, 300] makes four: below 100, …, from 300 on",
        )


def _rise(ends: Sequence[Any]) -> bool:
    """
    >>> _rise([1, Decimal("1.5")]), _rise(["b", "a"]), _rise([1, "b"])
    (True, False, False)
    """
    alike = any(all(isinstance(end, kind) for end in ends) for kind in COMPARABLE)
    return alike and all(before < after for before, after in pairwise(ends))


def _number(key: str, ends: Sequence[Any]) -> str:
    """The number of a value's range; NULL belongs to the first."""
    cases = " ".join(f"WHEN {key} < {literal_of(end)} THEN {n}" for n, end in enumerate(ends))
    return f"CASE WHEN {key} IS NULL THEN 0 {cases} ELSE {len(ends)} END"


def _check_sql(key: str, number: str, ends: Sequence[Any]) -> str:
    first = f"({number} = 0 AND ({key} IS NULL OR {key} < {literal_of(ends[0])}))"
    between = [
        f"({number} = {n + 1} AND {key} >= {literal_of(a)} AND {key} < {literal_of(b)})"
        for n, (a, b) in enumerate(pairwise(ends))
    ]
    last = f"({number} = {len(ends)} AND {key} >= {literal_of(ends[-1])})"
    return " OR ".join([first, *between, last])


def ends_of(sample: DataFrame, by: str, partitions: int) -> list[Any]:
    """Ends of about equally large ranges, by some of the rows."""
    some = sample.select(F.col(quote(by)).alias("key")).where("key IS NOT NULL")
    values = sorted(row.key for row in some.orderBy(F.rand(7)).limit(SAMPLE_ROWS).collect())
    chosen = {values[len(values) * n // partitions] for n in range(1, partitions)} if values else ()
    return sorted(end for end in chosen if end > values[0])


def append(spark: SparkSession, name: TableName, rows: Any, *, called: str) -> None:
    """Add rows, and let Delta fill the range column in."""
    log = catalog.log_of(spark, name)
    metadata = snapshots.newest_snapshot(spark, log).metadata()
    columns = StructType.fromJson(json.loads(metadata.schema().json()))
    by = ranged_column(tuple(jvm.items(metadata.partitionColumns())), called)
    called_so = f"{by}{RANGE_SUFFIX}".lower()
    kept = next(column for column in columns if column.name.lower() == called_so)
    if GENERATED not in kept.metadata:
        raise Refused(
            f"its column {kept.name!r} is not generated, so nothing says which range a row is in",
            reason=Reason.TABLE_FEATURE,
            about=called,
            hint="create_ranged_table makes such tables",
        )
    wanted = StructType([StructField(c.name, c.dataType) for c in columns if c != kept])
    given = frame_of(spark, rows, wanted, kept.name, called)
    fitting = _fitting(given.drop(kept.name), wanted, called)
    fitting.write.format("delta").mode("append").save(log.dataPath().toString())


def _fitting(rows: DataFrame, wanted: StructType, called: str) -> DataFrame:
    """The rows with the table's types; numbers that do not fit are errors, not other numbers."""
    check_columns(rows.columns, wanted, called)
    return rows.to(wanted)
