"""The few statements that make and describe a stored table, as SQL text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from dynamic_tables.definition import Column, Definition, Hidden
from dynamic_tables.errors import InvalidInput
from dynamic_tables.lake.columns import OTHER_NAME, check_names
from dynamic_tables.names import (
    SHOWN,
    SUBSTITUTED,
    TableName,
    is_odd_column,
    literal,
    quote,
)
from dynamic_tables.reasons import Reason

PROPERTY_DEFINITION = "dynamic_tables.definition"
PROPERTY_ID = "dynamic_tables.id"
FEED_COLUMNS = frozenset({"_change_type", "_commit_version", "_commit_timestamp"})
COMMITS_A_CHECKPOINT = 50  # Delta's 10 make every tenth small refresh twice as dear


def create_table(definition: Definition) -> str:
    """DDL of the stored table."""
    options = definition.options
    columns = ", ".join(
        f"{quote(column.name)} {column.type}" for column in definition.stored_columns
    )
    layout = ""
    if options.partitioned_by:
        layout = f" PARTITIONED BY ({', '.join(map(quote, options.partitioned_by))})"
    elif options.cluster_by:
        layout = f" CLUSTER BY ({', '.join(map(quote, options.cluster_by))})"
    comment = f" COMMENT {literal(options.comment)}" if options.comment else ""
    kept = {
        "delta.enableChangeDataFeed": "true",
        "delta.enableDeletionVectors": "true",
        "delta.isolationLevel": "Serializable",
        "delta.checkpointInterval": str(COMMITS_A_CHECKPOINT),
        PROPERTY_ID: definition.table_id,
        PROPERTY_DEFINITION: json.dumps(definition.as_json()),
    }
    if _needs_mapping(definition):
        kept["delta.columnMapping.mode"] = "name"
    return (
        f"CREATE TABLE delta.{quote(definition.location)} ({columns}) USING delta"
        f"{layout}{comment} TBLPROPERTIES ({properties(kept)})"
    )


def _needs_mapping(definition: Definition) -> bool:
    return any(is_odd_column(column.name) for column in definition.stored_columns)


def set_definition(definition: Definition) -> str:
    kept = {PROPERTY_DEFINITION: json.dumps(definition.as_json())}
    table = f"delta.{quote(definition.location)}"
    return f"ALTER TABLE {table} SET TBLPROPERTIES ({properties(kept)})"


def properties(values: Mapping[str, str]) -> str:
    return ", ".join(f"{literal(key)} = {literal(value)}" for key, value in values.items())


def register(name: TableName, location: str) -> str:
    return f"CREATE TABLE {name.sql} USING delta LOCATION {literal(location)}"


def shown(relation: str, columns: Sequence[Column], hidden: Hidden | None) -> str:
    """What users see of a stored table: its declared columns, and the rows that HAVING keeps."""
    if hidden is not None and hidden.in_parts is not None:
        relation = f"({hidden.in_parts.over(relation)})"
    names = ", ".join(quote(column.name) for column in columns)
    where = f" WHERE {quote(SHOWN)}" if hidden is not None and hidden.filtered else ""
    return f"SELECT {names} FROM {relation}{where}"  # noqa: S608  quoted


def create_view(definition: Definition) -> str:
    """The view under a table's name that hides its auxiliary columns.

    Its types are those of the stored table, also when that is built anew with others: else Spark
    would cast to what they were when the view was made.
    """
    comment = definition.options.comment
    says = f" COMMENT {literal(comment)}" if comment else ""
    text = shown(definition.stored_name.sql, definition.columns, definition.hidden)
    follows = "WITH SCHEMA TYPE EVOLUTION"
    return f"CREATE OR REPLACE VIEW {definition.name.sql}{says} {follows} AS {text}"


def view_of_types(name: str, columns: Sequence[Column]) -> str:
    """A temporary view that has columns of these types, to analyse queries over it."""
    items = ", ".join(f"CAST(NULL AS {c.type}) AS {quote(c.name)}" for c in columns)
    return f"CREATE OR REPLACE TEMPORARY VIEW {quote(name)} AS SELECT {items}"


def check_columns(columns: Sequence[Column]) -> None:
    """Refuse output columns that Delta cannot store, or not under their names."""
    check_names(columns, feed=FEED_COLUMNS)
    for column in columns:
        if SUBSTITUTED.search(column.name):
            raise InvalidInput(
                "Spark would replace ${…} in the name by a value of the session",
                reason=Reason.BAD_COLUMNS,
                about=column.name,
                hint=OTHER_NAME,
            )
        if column.type.upper() == "VOID":
            raise InvalidInput(
                "the column has no type: it is always NULL",
                reason=Reason.BAD_COLUMNS,
                about=column.name,
                hint=f"write CAST(NULL AS STRING) AS {quote(column.name)}",
            )
        if column.type.upper().startswith("INTERVAL"):
            raise InvalidInput(
                f"Delta cannot store the type {column.type}",
                reason=Reason.BAD_COLUMNS,
                about=column.name,
                hint=f"write CAST({quote(column.name)} AS STRING), or a number of units",
            )
