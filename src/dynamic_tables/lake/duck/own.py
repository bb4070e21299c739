"""Our own tables in a DuckLake: the definitions of the dynamic tables, and their numbers n.

They lie in the lake itself, so that a commit changes rows and number in one transaction, and a lost
store is rebuilt from here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from dynamic_tables.definition import Definition
from dynamic_tables.lake.duck.connection import Connection
from dynamic_tables.lake.duck.opening import Instance
from dynamic_tables.lake.duck.text import OWN_SCHEMA, name_sql, quote
from dynamic_tables.names import SMALL_LAKE, TableName

TABLES = TableName(SMALL_LAKE, OWN_SCHEMA, "tables")
SWEPT = 100  # numbers of a table that are kept at most: only the newest one counts
_TABLES = name_sql(TABLES)
_NUMBERS = name_sql(TableName(SMALL_LAKE, OWN_SCHEMA, "numbers"))
_ROW = f"""
    SELECT source_id, definition, (SELECT coalesce(max(sequence), 0) FROM {_NUMBERS}
        WHERE table_id = $1) FROM {_TABLES} WHERE table_id = $1
"""  # noqa: S608  constants


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What our tables say about one dynamic table."""

    source_id: str | None  # DuckLake's id of the stored table; None: made, not noted yet
    sequence: int
    definition: Definition


def make(cursor: Connection) -> None:
    cursor.execute(f"CREATE SCHEMA {quote(SMALL_LAKE)}.{quote(OWN_SCHEMA)}")
    columns = "table_id VARCHAR, source_id VARCHAR, definition VARCHAR"
    cursor.execute(f"CREATE TABLE {_TABLES} ({columns})")
    cursor.execute(f"CREATE TABLE {_NUMBERS} (table_id VARCHAR, sequence BIGINT)")


def add(cursor: Connection, definition: Definition) -> None:
    values = [definition.table_id, json.dumps(definition.as_json())]
    cursor.execute(f"INSERT INTO {_TABLES} VALUES (?, NULL, ?)", values)  # noqa: S608  a constant


def save(cursor: Connection, definition: Definition) -> None:
    change = f"UPDATE {_TABLES} SET definition = ? WHERE table_id = ?"  # noqa: S608  a constant
    cursor.execute(change, [json.dumps(definition.as_json()), definition.table_id])


def note_id(cursor: Connection, table_id: str, source_id: str) -> None:
    change = f"UPDATE {_TABLES} SET source_id = ? WHERE table_id = ?"  # noqa: S608  a constant
    cursor.execute(change, [source_id, table_id])


def forget(cursor: Connection, table_id: str) -> None:
    for table in (_TABLES, _NUMBERS):
        cursor.execute(f"DELETE FROM {table} WHERE table_id = ?", [table_id])  # noqa: S608


def take_number(cursor: Connection, table_id: str, sequence: int) -> None:
    """Note n inside the transaction that it numbers."""
    cursor.execute(f"INSERT INTO {_NUMBERS} VALUES (?, ?)", [table_id, sequence])  # noqa: S608
    if sequence % SWEPT == 0:
        older = f"DELETE FROM {_NUMBERS} WHERE table_id = ? AND sequence < ?"  # noqa: S608
        cursor.execute(older, [table_id, sequence])


def read(instance: Instance, table_id: str) -> Kept | None:
    for source_id, text, sequence in instance.rows(_ROW, [table_id]):
        definition = Definition.from_json(json.loads(text))
        return Kept(source_id=source_id, sequence=sequence, definition=definition)
    return None


def definitions(instance: Instance) -> Iterator[Definition]:
    for (text,) in instance.rows(f"SELECT definition FROM {_TABLES} ORDER BY table_id"):  # noqa: S608
        yield Definition.from_json(json.loads(text))
