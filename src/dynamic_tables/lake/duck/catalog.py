"""From a name to what it is in DuckLake's catalog, now and at a version.

DuckLake finds tables of an older version by the name they had then. We know a table by its id, and
look up the name that this id had at the version: renames and tables made again under an old name
are no matter then.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from dynamic_tables.compiler.references import TableReference
from dynamic_tables.definition import Column
from dynamic_tables.errors import InvalidInput, RefreshError
from dynamic_tables.lake.duck.opening import Instance
from dynamic_tables.lake.duck.references import not_pinnable
from dynamic_tables.lake.duck.text import MAIN, METADATA, name_sql
from dynamic_tables.names import SMALL_LAKE, TableName
from dynamic_tables.reasons import Reason

_TABLES = f"""
    SELECT t.table_id, t.table_uuid::VARCHAR, s.schema_name, t.table_name, t.begin_snapshot
    FROM {METADATA}.ducklake_table t JOIN {METADATA}.ducklake_schema s USING (schema_id)
"""  # noqa: S608  constants
_NOW = "t.end_snapshot IS NULL AND s.end_snapshot IS NULL"
_THEN = (
    "t.begin_snapshot <= $2 AND (t.end_snapshot IS NULL OR t.end_snapshot > $2)"
    " AND s.begin_snapshot <= $2 AND (s.end_snapshot IS NULL OR s.end_snapshot > $2)"
)
_VIEWS = f"""
    SELECT s.schema_name, v.view_name, v.sql, v.column_aliases
    FROM {METADATA}.ducklake_view v JOIN {METADATA}.ducklake_schema s USING (schema_id)
    WHERE v.end_snapshot IS NULL AND s.end_snapshot IS NULL
        AND lower(s.schema_name) = lower($1) AND lower(v.view_name) = lower($2)
"""  # noqa: S608  constants
_SCHEMA = (
    f"SELECT schema_name FROM {METADATA}.ducklake_schema "  # noqa: S608  a constant
    "WHERE end_snapshot IS NULL AND lower(schema_name) = lower(?)"
)
KEPT_ANSWERS = 1_000  # questions; the oldest states of the lake are forgotten with all others
_SINCE = (
    f"SELECT min(snapshot_id) FROM {METADATA}.ducklake_snapshot "  # noqa: S608  a constant
    "WHERE schema_version = ?"
)
_BYTES = (
    f"SELECT coalesce(sum(file_size_bytes), 0)::BIGINT FROM {METADATA}.ducklake_data_file "  # noqa: S608
    "WHERE table_id = ? AND end_snapshot IS NULL"
)
_ROWS_EVER = f"""
    SELECT max(s.record_count)
    FROM {METADATA}.ducklake_table_stats s JOIN {METADATA}.ducklake_table t USING (table_id)
    WHERE t.table_uuid = ?::UUID
"""  # noqa: S608  constants


_COLUMN_IDS = f"""
    SELECT DISTINCT c.column_name, c.column_id
    FROM {METADATA}.ducklake_column c JOIN {METADATA}.ducklake_table t USING (table_id)
    WHERE t.table_uuid = $1::UUID AND c.parent_column IS NULL
        AND c.begin_snapshot <= $2 AND (c.end_snapshot IS NULL OR c.end_snapshot > $2)
"""  # noqa: S608  constants


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table as DuckLake's catalog has it."""

    lake_id: int  # small, what snapshots name
    source_id: str  # unique everywhere, what cuts name
    name: TableName
    created: int  # the snapshot that made it, or gave it its name


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A view as DuckLake's catalog has it."""

    name: TableName
    text: str
    columns: tuple[str, ...]  # the names it gives to its query's columns; empty: the query's own

    @property
    def namespace(self) -> tuple[str, str]:
        """DuckDB looks for a view's tables in the view's schema first."""
        return (SMALL_LAKE, self.name.schema)

    @property
    def query_columns(self) -> tuple[str, ...]:
        """DuckDB keeps none with a view."""
        return ()

    @property
    def settings(self) -> Mapping[str, str]:
        """DuckDB keeps none with a view."""
        return {}

    @property
    def types(self) -> tuple[str, ...]:
        """DuckDB casts nothing to them."""
        return ()


class Catalog:
    """Looks things up in the lake as it stands; answers are kept until they may have changed."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._answers: dict[tuple, list[tuple]] = {}

    def rows(self, query: str, values: Sequence[str | int] = ()) -> list[tuple]:
        """About tables, views and columns: kept until the next DDL."""
        return self._kept(("schema", self._instance.newest().schema, query, *values))

    def rows_now(self, query: str, values: Sequence[str | int] = ()) -> list[tuple]:
        """About rows: kept until the next snapshot."""
        return self._kept(("rows", self._instance.newest().snapshot, query, *values))

    def _kept(self, question: tuple) -> list[tuple]:
        answers = self._answers  # another thread may begin a new one
        if question not in answers:
            if len(answers) >= KEPT_ANSWERS:
                answers = self._answers = {}
            _, _, query, *values = question
            answers[question] = self._instance.rows(query, values)
        return answers[question]

    def table(self, name: TableName) -> Table | None:
        where = (
            f"WHERE {_NOW} AND lower(s.schema_name) = lower($1) AND lower(t.table_name) = lower($2)"
        )
        return self._table(where, [name.schema, name.name])

    def by_id(self, source_id: str) -> Table | None:
        return self._table(f"WHERE {_NOW} AND t.table_uuid = $1::UUID", [source_id])

    def _table(self, where: str, values: list[str | int]) -> Table | None:
        for lake_id, source_id, schema, name, created in self.rows(_TABLES + where, values):
            return Table(
                lake_id=lake_id,
                source_id=source_id,
                name=TableName(SMALL_LAKE, schema, name),
                created=created,
            )
        return None

    def name_at(self, source_id: str, version: int) -> TableName:
        """What a table was called at a version."""
        where = f"WHERE t.table_uuid = $1::UUID AND {_THEN}"
        found = self._table(where, [source_id, self._same_schema(version)])
        if found is None:
            raise RefreshError(
                f"version {version} of a source is gone",
                reason=Reason.HISTORY_GONE,
                about=source_id,
                hint="refresh it together with its sources: refresh(..., upstream=True)",
            )
        return found.name

    def _same_schema(self, version: int) -> int:
        """An older version with the same tables and columns, which more questions are about."""
        since: int | None = self.rows(_SINCE, [self._instance.newest().schema])[0][0]
        return version if since is None else min(version, since)

    def view(self, name: TableName) -> View | None:
        for schema, view, text, aliases in self.rows(_VIEWS, [name.schema, name.name]):
            names = re.findall(r'"((?:[^"]|"")*)"', aliases or "")
            return View(
                name=TableName(SMALL_LAKE, schema, view),
                text=text,
                columns=tuple(alias.replace('""', '"') for alias in names),
            )
        return None

    def has_schema(self, schema: str) -> bool:
        return bool(self.rows(_SCHEMA, [schema]))

    def bytes_of(self, table: Table) -> int:
        return self.rows_now(_BYTES, [table.lake_id])[0][0]

    def rows_ever(self, source_id: str) -> int:
        """How many rows a table ever got: no version of it has more."""
        return self.rows_now(_ROWS_EVER, [source_id])[0][0] or 0

    def columns(self, name: TableName, version: int | None = None) -> tuple[Column, ...]:
        at = "" if version is None else f" AT (VERSION => {self._same_schema(version):d})"
        return described(self.rows(f"DESCRIBE FROM {name_sql(name)}{at}"))

    def column_ids(self, source_id: str, version: int) -> dict[str, int]:
        """A column that is dropped and made again has another id, and other values."""
        return dict(self.rows(_COLUMN_IDS, [source_id, self._same_schema(version)]))

    def resolve(
        self, reference: TableReference, namespace: tuple[str, str], declared: Container[str] = ()
    ) -> TableName:
        """The qualified name that DuckDB would find: in the current schema, then in main.

        `declared` dynamic tables count although their name is not there yet.
        """
        candidates = list(_candidates(reference.parts, namespace))
        for name in candidates:
            if name.key in declared or self.table(name) or self.view(name):
                return name
        if candidates:
            raise unknown(candidates[0])
        raise not_pinnable(".".join(reference.parts), "it is outside of the lake")


def _candidates(parts: tuple[str, ...], namespace: tuple[str, str]) -> list[TableName]:
    match parts:
        case (name,):
            schemas = dict.fromkeys([namespace[1], MAIN])
            return [TableName(SMALL_LAKE, schema, name) for schema in schemas]
        case (first, name):
            in_main = first.lower() == SMALL_LAKE
            return [
                TableName(SMALL_LAKE, first, name),
                *([TableName(SMALL_LAKE, MAIN, name)] if in_main else ()),
            ]
        case (catalog, schema, name) if catalog.lower() == SMALL_LAKE:
            return [TableName(SMALL_LAKE, schema, name)]
    return []


def described(rows: list[tuple]) -> tuple[Column, ...]:
    """The columns that DESCRIBE tells."""
    return tuple(Column(name=row[0], type=row[1]) for row in rows)


def unknown(name: TableName) -> InvalidInput:
    return InvalidInput(
        "there is no such table or view",
        reason=Reason.UNKNOWN_SOURCE,
        about=str(name),
        hint="SHOW ALL TABLES lists what there is; names without schema belong to the current one",
    )
