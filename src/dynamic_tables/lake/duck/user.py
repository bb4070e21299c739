"""The user's own statements: one connection on which they run, and what they give."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from dynamic_tables.compiler import duck_bags as bags
from dynamic_tables.compiler.duck_sql import CHANGE, SIGN, SNAPSHOT, feed
from dynamic_tables.compiler.emit import WEIGHT
from dynamic_tables.definition import Definition, InParts
from dynamic_tables.errors import DynamicTablesError, RefreshError, SetupError
from dynamic_tables.lake.duck import parts
from dynamic_tables.lake.duck.connection import Connection
from dynamic_tables.lake.duck.opening import Instance, close_instance
from dynamic_tables.lake.duck.references import find_references
from dynamic_tables.lake.duck.result import Result, Rows
from dynamic_tables.lake.duck.stored import StoredTables
from dynamic_tables.lake.duck.text import MAIN, columns_sql, literal, name_sql, quote, shown_sql
from dynamic_tables.names import SHOWN, SMALL_LAKE, qualify
from dynamic_tables.reasons import Reason

RESULT_SETTINGS = (  # they decide what a query gives
    "TimeZone", "default_collation", "default_null_order", "default_order",
    "ieee_floating_point_ops", "integer_division", "old_implicit_casting",
    "order_by_non_integer_literal", "scalar_subquery_error_on_multiple_rows",
)  # fmt: skip
STORE_TYPES = {
    "string": "VARCHAR",
    "timestamp": "TIMESTAMPTZ",
    "int": "INTEGER",
    "bigint": "BIGINT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
}


def settings_of(cursor: Connection) -> dict[str, str]:
    """The settings of a connection that decide what a query gives."""
    asked = ", ".join(f"current_setting({literal(key)})::VARCHAR" for key in RESULT_SETTINGS)
    return dict(zip(RESULT_SETTINGS, cursor.execute(f"SELECT {asked}").fetchall()[0], strict=True))


class UserStatements(StoredTables):
    """Statements and results of DuckDB, beside the stored tables."""

    def __init__(self, instance: Instance, *, lock_wait_s: float) -> None:
        super().__init__(instance, lock_wait_s=lock_wait_s)
        self._user = instance.cursor()  # where the user's own statements run
        self._user_lock = threading.RLock()

    def close(self) -> None:
        self._user.close()
        close_instance(self._instance)

    def namespace(self) -> tuple[str, str]:
        catalog, schema = self._ask("SELECT current_database(), current_schema()")[0]
        return (catalog, schema) if catalog.lower() == SMALL_LAKE else (SMALL_LAKE, MAIN)

    def _ask(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """One of our questions about the user's own connection."""
        with self._user_lock:
            return self._user.execute(query, values).fetchall()

    def _settings(self) -> dict[str, str]:
        with self._user_lock:
            return settings_of(self._user)

    @property
    def session(self) -> NoReturn:
        raise SetupError(
            "this lake has no Spark: it is a DuckLake on DuckDB",
            reason=Reason.SPARK_MISSING,
            about="tables.spark",
            hint="tables.sql runs DuckDB's SQL; connect('./lake') opens a lake on Spark",
        )

    def run(self, text: str) -> Result:
        """A statement of the user; its rows are those of this moment."""
        try:
            with self._user_lock, self._user.turn:
                return Result(self._user.sql(text), self._user.turn)
        finally:
            self._instance.changed()

    def fetched(self, cursor: Connection, query: str) -> list[tuple[Any, ...]]:
        relation = cursor.sql(query)
        assert relation is not None, "a query has rows"
        return Rows(relation).first(None)

    def read(self, definition: Definition, version: int | None) -> Result:
        if version is None:
            stored = name_sql(self.stored_table(definition).name)
            return self.run(shown_sql(stored, definition.columns, definition.hidden))
        return self.run(f"FROM {self.shown_at(definition, version)}")

    def changes(self, definition: Definition, start: int, end: int) -> Result:
        """The change feed of the table in [start, end]."""
        if definition.in_parts is not None:
            return self.run(self._changes_in_parts(definition, definition.in_parts, start, end))
        name = self.catalog.name_at(self.stored_table(definition).source_id, end)
        columns = columns_sql([column.name for column in definition.columns])
        changes = feed(name.parts, str(start), str(end))
        if definition.auxiliary is not None:
            filtered = definition.auxiliary.filtered
            return self.run(_shown_changes(columns, changes, filtered=filtered))
        return self.run(
            f"SELECT {columns}, {CHANGE} AS _change_type, {SNAPSHOT} AS _commit_version "  # noqa: S608
            f"FROM {changes}"
        )

    def _changes_in_parts(
        self, definition: Definition, in_parts: InParts, start: int, end: int
    ) -> str:
        """What became of the groups, commit by commit."""
        columns = columns_sql([column.name for column in definition.stored_columns])
        commits = self.commits(definition, start - 1, end)
        if not commits or commits[0].version < end:
            raise RefreshError(
                f"the lake has no version {end}",
                reason=Reason.HISTORY_GONE,
                about=str(definition.name),
            )
        found = []
        for commit in commits:
            if commit.changes_data or not found:  # one at least, for the columns
                version = commit.version
                name = self.catalog.name_at(self.stored_table(definition).source_id, version)
                touched = feed(name.parts, str(version), str(version))
                before, after = (self.stored_at(definition, v) for v in (version - 1, version))
                groups = parts.groups_of(touched, in_parts.keys)
                signed = parts.changes(groups, before, after, in_parts, columns)
                found.append(f"SELECT *, {version:d} AS {SNAPSHOT} FROM ({signed})")  # noqa: S608
        assert definition.auxiliary is not None
        return _shown_changes(
            columns_sql([column.name for column in definition.columns]),
            f"({' UNION ALL '.join(found)})",
            filtered=definition.auxiliary.filtered,
            sign=WEIGHT,
        )

    @contextmanager
    def store_views(
        self, text: str, names: Collection[str], rows_of: Callable[[str], Any]
    ) -> Generator[None]:
        """Let a statement read the store: its tables are temporary ones while it runs."""
        with self._user_lock:
            made = []
            for name in self._mentioned(text, names):
                columns, rows = rows_of(name)
                kinds = ", ".join(f"{quote(n)} {STORE_TYPES[kind]}" for n, kind in columns)
                self._user.execute(f"CREATE OR REPLACE TEMP TABLE {quote(name)} ({kinds})")
                made.append(name)
                if rows:
                    places = ", ".join("?" for _ in columns)
                    self._user.executemany(
                        f"INSERT INTO temp.{quote(name)} VALUES ({places})",  # noqa: S608  quoted
                        [list(row) for row in rows],
                    )
            try:
                yield
            finally:
                for name in made:
                    self._user.execute(f"DROP TABLE temp.{quote(name)}")

    def _mentioned(self, text: str, names: Collection[str]) -> Iterator[str]:
        """Tables of the store that a query names, unless the user has tables called the same."""
        if not any(name in text.lower() for name in names):
            return
        try:
            found = find_references(self._serialise, text)
        except DynamicTablesError:
            return  # not a query that we know: DuckDB will say what it is
        for name in {reference.parts[-1].lower() for reference in found.tables} & set(names):
            table = qualify((name,), self.namespace())
            if self.catalog.table(table) is None and self.catalog.view(table) is None:
                yield name


def _shown_changes(columns: str, changes: str, *, filtered: bool, sign: str = SIGN) -> str:
    """Changes of what users see: commits that changed hidden columns only changed nothing."""
    where = f" WHERE {quote(SHOWN)}" if filtered else ""
    copies = bags.COPIES
    return (
        f"SELECT {columns}, CASE WHEN {copies} > 0 THEN 'insert' ELSE 'delete' END AS "  # noqa: S608
        f"_change_type, {SNAPSHOT} AS _commit_version "
        f"FROM (SELECT *, unnest(range(abs({copies}))) FROM ("
        f"SELECT {columns}, {SNAPSHOT}, sum({sign})::BIGINT AS {copies} FROM {changes}{where} "
        f"GROUP BY ALL HAVING {copies} <> 0))"
    )
