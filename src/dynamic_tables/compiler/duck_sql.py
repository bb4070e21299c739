"""DuckDB's words: identifiers and literals, and which types DuckLake stores exactly."""

from __future__ import annotations

from collections.abc import Sequence

# Its files are Parquet, where whole numbers of 128 bits become floating ones, so they are stored as
# decimals; of the other types some lose digits or cannot be written at all.
WIDE = "DECIMAL(38,0)"
WIDE_TYPES = ("HUGEINT", "UHUGEINT")
INEXACT = (
    r"\b(HUGEINT|UHUGEINT|INTERVAL|TIME WITH TIME ZONE|TIME_NS|BIT|BIGNUM|ENUM|UNION|VARIANT"
    r"|GEOMETRY)\b|\[\d+\]|^\"NULL\""
)


def quote(part: str) -> str:
    """One identifier.

    >>> print(quote('my "odd" name'))
    "my ""odd"" name"
    """
    return '"' + part.replace('"', '""') + '"'


def literal(value: str) -> str:
    """One string; DuckDB knows no backslash escapes.

    >>> print(literal("it's"))
    'it''s'
    """
    return "'" + value.replace("'", "''") + "'"


def columns_sql(names: Sequence[str]) -> str:
    return ", ".join(quote(name) for name in names)


CHANGE, SNAPSHOT = "_ivm_change", "_ivm_snapshot"
SIGN = f"CASE WHEN {CHANGE} IN ('insert', 'update_postimage') THEN 1 ELSE -1 END"


def feed(table: Sequence[str], start: str, end: str) -> str:
    """The changes of a table; its own columns keep their names, also one called change_type.

    >>> print(feed(("dl", "main", "t"), "3", "7"))
    ducklake_table_changes('dl', 'main', 't', 3, 7) AS feed (_ivm_snapshot, _ivm_row, _ivm_change)
    """
    name = ", ".join(map(literal, table))
    names = f"{SNAPSHOT}, _ivm_row, {CHANGE}"
    return f"ducklake_table_changes({name}, {start}, {end}) AS feed ({names})"
