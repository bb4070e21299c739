"""What may be declared of a table, and what may be changed once it is there. Pure."""

from __future__ import annotations

from dynamic_tables.definition import Column, Definition
from dynamic_tables.errors import InvalidInput, Refused
from dynamic_tables.names import TableName, is_odd_column
from dynamic_tables.options import Options
from dynamic_tables.reasons import Reason

NOT_SKIPPED = ("DOUBLE", "FLOAT", "STRUCT", "ARRAY", "MAP", "VARIANT")  # types of columns


def check_options(name: TableName, options: Options, columns: tuple[Column, ...]) -> None:
    """Options that name columns name output columns; modes that cannot be kept are refused."""
    there = {column.name.lower() for column in columns}
    row_groups = (options.row_groups_by,) if options.row_groups_by else ()
    for column in (*options.cluster_by, *options.partitioned_by, *row_groups):
        if column.lower() not in there:
            raise InvalidInput(
                f"the query has no column {column}",
                reason=Reason.BAD_VALUE,
                about=str(name),
                hint="its columns: " + ", ".join(c.name for c in columns),
            )
    for column in columns:
        wanted = column.name.lower() == (options.row_groups_by or "").lower()
        if wanted and column.type.startswith(NOT_SKIPPED):
            raise InvalidInput(
                f"ROW_GROUPS BY names {column.name}: readers skip no row groups by {column.type}",
                reason=Reason.BAD_VALUE,
                about=str(name),
                hint="name a column of whole numbers, decimals, texts, dates or timestamps",
            )


def check_column_names(old: Definition, new: Definition) -> None:
    """Delta does not rename columns of a table with column mapping and a change feed."""
    before, after = ([column.name for column in d.columns] for d in (old, new))
    if before != after and any(map(is_odd_column, (*before, *after))):
        raise Refused(
            "columns whose names need column mapping cannot be changed on a table that exists",
            reason=Reason.BAD_COLUMNS,
            about=str(old.name),
            hint=f"DROP DYNAMIC TABLE {old.name}, then create it with the new query",
        )


def fixed_storage(name: TableName) -> Refused:
    return Refused(
        "STORAGE cannot be changed without writing all rows anew",
        reason=Reason.CONTRADICTION,
        about=str(name),
        hint=f"CREATE OR REPLACE DYNAMIC TABLE {name} STORAGE = … AS …",
    )


def fixed_partitions(name: TableName) -> Refused:
    return Refused(
        "PARTITIONED BY cannot be changed on a table that exists",
        reason=Reason.CONTRADICTION,
        about=str(name),
        hint=f"DROP DYNAMIC TABLE {name}, then create it with the new partitions",
    )
