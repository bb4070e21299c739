"""Rows that Python gives, as a DataFrame with the table's own types.

What Spark makes of Python's values by looking at them is another type than the table's as soon as a
column has no value, or whole numbers where the table has others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from dynamic_tables.errors import InvalidInput
from dynamic_tables.reasons import Reason


def frame_of(
    spark: SparkSession, rows: Any, wanted: StructType, dropped: str, called: str
) -> DataFrame:
    """The rows with the wanted columns; what is no list of Python's rows is left to Spark."""
    if hasattr(rows, "write"):
        return rows
    if not isinstance(rows, list | tuple | Iterator):
        return spark.createDataFrame(rows)
    named = [_named(row, wanted, called) for row in rows]
    there = dict.fromkeys(name for row in named for name in row)
    if named:
        check_columns([name for name in there if name != dropped.lower()], wanted, called)
    try:
        ordered = [
            tuple(_value(row.get(field.name.lower()), field.dataType) for field in wanted)
            for row in named
        ]
        return spark.createDataFrame(ordered, wanted)
    except (TypeError, ValueError, OverflowError) as error:  # Spark's own are of these kinds
        raise InvalidInput(
            str(error),
            reason=Reason.BAD_VALUE,
            about=called,
            hint=f"the table has {wanted.simpleString().removeprefix('struct')}",
        ) from error


def check_columns(names: Iterable[str], wanted: StructType, called: str) -> None:
    here, there = ({name.lower() for name in found} for found in (wanted.names, names))
    if here != there:
        raise InvalidInput(
            f"the rows have other columns than the table: {', '.join(sorted(here ^ there))}",
            reason=Reason.BAD_COLUMNS,
            about=called,
            hint=f"it has: {', '.join(wanted.names)}",
        )


def _named(row: Any, wanted: StructType, called: str) -> dict[str, Any]:
    """The values by name in lower case; those of a plain tuple are in the table's order."""
    if isinstance(row, Mapping):
        return {str(name).lower(): value for name, value in row.items()}
    names = getattr(row, "__fields__", None) or getattr(row, "_fields", None)
    if names is None and not isinstance(row, Sequence) and hasattr(row, "__dict__"):
        return _named(vars(row), wanted, called)
    names = wanted.names if names is None else names
    if not isinstance(row, Sequence) or isinstance(row, str) or len(row) != len(names):
        raise InvalidInput(
            f"{row!r} is no row of {len(names)} columns",
            reason=Reason.BAD_COLUMNS,
            about=called,
            hint=f"it has: {', '.join(wanted.names)}",
        )
    return {name.lower(): value for name, value in zip(names, row, strict=True)}


def _value(value: Any, kind: DataType) -> Any:  # noqa: PLR0911  one line a type
    """A value of Python as Spark wants it for a type, where that loses nothing."""
    match kind, value:
        case _, None:
            return None
        case StringType(), _ if not isinstance(value, str):
            raise TypeError(f"{value!r} is no text")  # Spark would make one of anything
        case DoubleType() | FloatType(), int() | Decimal() if not isinstance(value, bool):
            return float(value)
        case DecimalType(), int() if not isinstance(value, bool):
            return Decimal(value)
        case TimestampType() | TimestampNTZType(), date() if not isinstance(value, datetime):
            return datetime(value.year, value.month, value.day)  # noqa: DTZ001  of the session
        case ArrayType(), list() | tuple():
            return [_value(item, kind.elementType) for item in value]
        case MapType(), Mapping():
            return {
                _value(key, kind.keyType): _value(item, kind.valueType)
                for key, item in value.items()
            }
        case StructType(), Mapping():
            if unknown := value.keys() - set(kind.names):
                raise ValueError(f"{kind.simpleString()} has no {', '.join(map(str, unknown))}")
            return {field.name: _value(value.get(field.name), field.dataType) for field in kind}
    return value
