"""Which columns DuckLake stores exactly.

Its files are Parquet, where some of DuckDB's types lose digits (HUGEINT becomes a floating number,
INTERVAL has milliseconds) or cannot be written at all. Whole numbers of 128 bits, which every SUM
of integers gives, are stored as DECIMAL(38,0); the other types are refused at CREATE.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dynamic_tables.compiler.duck_sql import INEXACT, WIDE, WIDE_TYPES
from dynamic_tables.definition import Column
from dynamic_tables.errors import InvalidInput
from dynamic_tables.lake.columns import check_names
from dynamic_tables.lake.duck.text import quote
from dynamic_tables.reasons import Reason

FEED_COLUMNS = frozenset({"_change_type", "_commit_version"})


def storable(columns: Sequence[Column]) -> tuple[Column, ...]:
    """The columns as they are stored."""
    return tuple(
        Column(name=column.name, type=WIDE) if column.type in WIDE_TYPES else column
        for column in columns
    )


def stored_form(text: str, columns: Sequence[Column]) -> str:
    """A query whose columns have the types they are stored with."""
    if storable(columns) == tuple(columns):
        return text
    items = ", ".join(
        f"CAST({quote(column.name)} AS {WIDE}) AS {quote(column.name)}"
        if column.type in WIDE_TYPES
        else quote(column.name)
        for column in columns
    )
    return f"SELECT {items} FROM ({text}\n)"  # noqa: S608  quoted above


def check_columns(columns: Sequence[Column]) -> None:
    """Refuse output columns that cannot be stored, or not under their names."""
    check_names(columns, feed=FEED_COLUMNS)
    for column in columns:
        _check_type(column)


def _check_type(column: Column) -> None:
    if column.type not in WIDE_TYPES and re.search(INEXACT, column.type):
        raise InvalidInput(
            f"DuckLake cannot store the type {column.type} exactly",
            reason=Reason.BAD_COLUMNS,
            about=column.name,
            hint=f"write CAST({quote(column.name)} AS VARCHAR), or another type",
        )
