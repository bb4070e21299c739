"""Identifiers, names and literals as DuckDB reads them: quoted with double quotes."""

from __future__ import annotations

from collections.abc import Sequence

from dynamic_tables.compiler.duck_sql import columns_sql, literal, quote
from dynamic_tables.definition import Column, Hidden
from dynamic_tables.names import RESERVED_PREFIX, SHOWN, SMALL_LAKE, TableName

METADATA = f"{SMALL_LAKE}_metadata"  # DuckLake's own tables, which describe the catalog
OWN_SCHEMA = f"{RESERVED_PREFIX}lake"  # our tables in the lake
MAIN = "main"  # the schema that is searched after the current one


def name_sql(name: TableName) -> str:
    return ".".join(quote(part) for part in name.parts)


def shown_sql(relation: str, columns: Sequence[Column], hidden: Hidden | None) -> str:
    """What users see of a stored table: its declared columns, and the rows that HAVING keeps."""
    if hidden is not None and hidden.in_parts is not None:
        relation = f"({hidden.in_parts.over(relation)})"
    where = f" WHERE {quote(SHOWN)}" if hidden is not None and hidden.filtered else ""
    names = columns_sql([column.name for column in columns])
    return f"SELECT {names} FROM {relation}{where}"  # noqa: S608  quoted


def unseen_name(table_id: str) -> str:
    """What a stored table is called while nobody may see it."""
    return f"{RESERVED_PREFIX}{table_id}"


__all__ = [
    "MAIN",
    "METADATA",
    "OWN_SCHEMA",
    "columns_sql",
    "literal",
    "name_sql",
    "quote",
    "shown_sql",
    "unseen_name",
]
