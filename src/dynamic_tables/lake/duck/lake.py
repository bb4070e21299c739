"""DuckLake tables on DuckDB: the same product without Spark, for one process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

import duckdb

from dynamic_tables.compiler.plan import DeltaPlan
from dynamic_tables.compiler.references import TableReference, rewrite
from dynamic_tables.compiler.refused import NotIncremental
from dynamic_tables.errors import DynamicTablesError, InvalidInput, RefreshError, SetupError
from dynamic_tables.lake.base import (
    Analysis,
    DynamicSources,
    Progress,
    SourceState,
)
from dynamic_tables.lake.duck.area import DuckArea
from dynamic_tables.lake.duck.catalog import Table, described, unknown
from dynamic_tables.lake.duck.deltas import DIALECT, OpaqueQuery, check_faithful
from dynamic_tables.lake.duck.faults import DUCK_FAULTS, headline, told
from dynamic_tables.lake.duck.opening import Instance, close_instance
from dynamic_tables.lake.duck.pinning import PinnedQuery, Reading, aliased_as, read_texts
from dynamic_tables.lake.duck.references import find_references, not_pinnable
from dynamic_tables.lake.duck.result import Result, fetched
from dynamic_tables.lake.duck.stored import StoredTables
from dynamic_tables.lake.duck.text import MAIN, columns_sql, literal, name_sql, quote
from dynamic_tables.lake.duck.types import check_columns, storable
from dynamic_tables.lake.pins import pin_of
from dynamic_tables.lake.plans import planned, source_names
from dynamic_tables.model import Column, Definition, Pin, Source, ViewUse, utc_now
from dynamic_tables.names import SMALL_LAKE, TableName, qualify
from dynamic_tables.reasons import Reason

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

RESULT_SETTINGS = (  # they decide what a query gives
    "TimeZone", "default_collation", "default_null_order", "default_order",
    "ieee_floating_point_ops", "integer_division", "old_implicit_casting",
    "order_by_non_integer_literal", "scalar_subquery_error_on_multiple_rows",
)  # fmt: skip
HARMLESS_VOLATILE = frozenset({"error"})  # gives nothing, so nothing that could differ
STORE_TYPES = {
    "string": "VARCHAR",
    "timestamp": "TIMESTAMPTZ",
    "int": "INTEGER",
    "bigint": "BIGINT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
}


class DuckLake(StoredTables):
    """See `lake.base.Lake`."""

    def __init__(self, instance: Instance, *, lock_wait_s: float) -> None:
        super().__init__(instance, lock_wait_s=lock_wait_s)
        self._user = instance.cursor()  # where the user's own statements run
        self._user_lock = threading.RLock()
        self._areas: dict[str, DuckArea] = {}  # the refreshes under way, by label
        self._areas_lock = threading.Lock()
        self._plans: dict[str, DeltaPlan | NotIncremental] = {}  # by what they are built from

    def close(self) -> None:
        self._user.close()
        close_instance(self._instance)

    # Declaring

    def namespace(self) -> tuple[str, str]:
        catalog, schema = self._ask("SELECT current_database(), current_schema()")[0]
        return (catalog, schema) if catalog.lower() == SMALL_LAKE else (SMALL_LAKE, MAIN)

    def _ask(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """One of our questions about the user's own connection."""
        with self._user_lock:
            return self._user.execute(query, values).fetchall()

    def analyse(self, query: str, dynamic: DynamicSources) -> Analysis:
        """What a query is; refuses what cannot be a dynamic table, and says why."""
        namespace = self.namespace()
        declared = {key for key, source in dynamic.items() if not source.loaded}
        self._check_temporary(query)
        reading = self._read(query, namespace, declared)
        self._check_macros(reading)
        states = {key: self._state_of(name, dynamic) for key, name in reading.sources.items()}
        _check_clock(reading, states.values())
        _check_select_list(reading, query)
        settings = self._settings()
        pinned = self._pinned(
            reading,
            [_pin_now(reading.sources[key], state) for key, state in states.items()],
            utc_now(),
            declared=declared,
        ).checked(query, namespace)
        columns = self._analysed(pinned, namespace, settings)
        check_columns(columns)
        return Analysis(
            columns=storable(columns),
            canonical=self._canonical(reading, query, namespace, dynamic),
            sources=tuple(
                _source(name, states[key], dynamic) for key, name in reading.sources.items()
            ),
            views=_view_uses(reading),
            settings=settings,
            reads_clock=reading.reads_clock,
            deterministic=not self._volatile(reading),
            approximate=_approximate(reading, columns),
            without_feed=(),  # DuckLake keeps the changes of every table
            source_bytes=sum(state.bytes for state in states.values()),
        )

    def _read(
        self, query: str, namespace: tuple[str, str], declared: Collection[str] = ()
    ) -> Reading:
        return read_texts(self.catalog, self._serialise, query, namespace, declared=declared)

    def _serialise(self, text: str) -> str:
        return self._instance.rows("SELECT json_serialize_sql(?::VARCHAR)", [text])[0][0]

    def _pinned(
        self,
        reading: Reading,
        pins: Sequence[Pin],
        instant: datetime,
        *,
        columns: Mapping[str, tuple[str, ...]] | None = None,
        declared: Collection[str] = (),
    ) -> PinnedQuery:
        return PinnedQuery(
            self.catalog,
            self._serialise,
            reading,
            pins=pins,
            instant=instant,
            columns=columns or {},
            declared=declared,
        )

    def _analysed(
        self, text: str, namespace: tuple[str, str], settings: Mapping[str, str]
    ) -> tuple[Column, ...]:
        with self._private(namespace, settings) as cursor:
            try:
                return described(cursor.execute(f"DESCRIBE {text}").fetchall())
            except duckdb.Error as error:
                raise InvalidInput(
                    headline(error),
                    reason=Reason.ANALYSIS_FAILED,
                    hint="the query must run as it is on DuckDB; try it with tables.sql first",
                ) from error

    @contextmanager
    def _private(
        self, namespace: tuple[str, str], settings: Mapping[str, str]
    ) -> Generator[DuckDBPyConnection]:
        """A connection of its own, as the user's was at CREATE."""
        cursor = self._instance.cursor()
        try:
            if self.catalog.has_schema(namespace[1]):
                cursor.execute(f"USE {quote(namespace[0])}.{quote(namespace[1])}")
            for key, value in settings.items():
                cursor.execute(f"SET SESSION {quote(key)} = {literal(value)}")
            yield cursor
        finally:
            cursor.close()

    def _settings(self) -> dict[str, str]:
        asked = ", ".join(f"current_setting({literal(key)})::VARCHAR" for key in RESULT_SETTINGS)
        return dict(zip(RESULT_SETTINGS, self._ask(f"SELECT {asked}")[0], strict=True))

    def _check_temporary(self, query: str) -> None:
        """DuckDB finds temporary tables and views of the session before those of the lake."""
        temporary = {
            name.lower()
            for (name,) in self._ask(
                "SELECT table_name FROM duckdb_tables() WHERE temporary UNION ALL "
                "SELECT view_name FROM duckdb_views() WHERE temporary AND NOT internal"
            )
        }
        for reference in find_references(self._serialise, query).tables:
            if len(reference.parts) == 1 and reference.parts[0].lower() in temporary:
                raise InvalidInput(
                    "is a temporary table or view: it ends with the session, the dynamic table"
                    " does not",
                    reason=Reason.TEMPORARY_OBJECT,
                    about=reference.parts[0],
                    hint="make it a table or a view of the lake",
                )

    def _check_macros(self, reading: Reading) -> None:
        """What a macro reads cannot be seen in the query's text, so it could not be pinned."""
        made = {
            name
            for (name,) in self._ask(
                "SELECT DISTINCT lower(function_name) FROM duckdb_functions() WHERE NOT internal"
            )
        }
        for name in sorted(reading.functions & made):
            raise not_pinnable(f"{name}(…)", "a macro may read anything, unseen")

    def _volatile(self, reading: Reading) -> set[str]:
        """The functions of a query that give something else each time."""
        volatile = {
            name
            for (name,) in self._ask(
                "SELECT DISTINCT lower(function_name) FROM duckdb_functions() "
                "WHERE stability = 'VOLATILE' OR function_name = 'txid_current'"
            )
        }
        return reading.functions & (volatile - HARMLESS_VOLATILE)

    def _canonical(
        self,
        reading: Reading,
        query: str,
        namespace: tuple[str, str],
        dynamic: DynamicSources,
    ) -> str:
        """Every table by its full name, dynamic ones by the id that a rename keeps."""

        def named(reference: TableReference) -> str:
            name = self.catalog.resolve(reference, namespace, dynamic)
            source = dynamic.get(name.key)
            return name.key if source is None else f"@{source.table_id}"

        return reading.found[query].canonical(named)

    def rename_in(self, definition: Definition, old: TableName, new: TableName) -> str:
        """The query of a definition with every mention of a table under its new name."""

        def renamed(reference: TableReference) -> str:
            # The table has its new name already when a rename that died is finished.
            candidates = {old.key}
            name = self.catalog.resolve(reference, definition.namespace, candidates)
            if name.key != old.key:
                return definition.query[reference.start : reference.stop]
            return aliased_as(name_sql(new), reference)

        found = find_references(self._serialise, definition.query)
        return rewrite(definition.query, found.tables, renamed)

    # Looking

    def _state_of(self, name: TableName, dynamic: DynamicSources) -> SourceState:
        declared = dynamic.get(name.key)
        table = self._stored(declared.table_id) if declared else self.catalog.table(name)
        if table is None:
            raise unknown(name)
        return self._state(table)

    def source_state(self, source: Source) -> SourceState:
        table = self.catalog.table(source.name)
        if table is None:
            raise unknown(source.name)
        return self._state(table)

    def _state(self, table: Table) -> SourceState:
        return SourceState(
            source_id=table.source_id,
            version=self.log.version_of(table.lake_id, table.created),
            columns=self.catalog.columns(table.name),
            location=str(self._instance.folder),
            has_feed=True,
            bytes=self.catalog.bytes_of(table),
        )

    def moved(self, source: Source, since: int, to: int) -> bool:
        """Whether rows or columns changed between two versions; a gap in the log counts as yes."""
        if since == to:
            return False
        table = self.catalog.table(source.name)
        if since > to or table is None:
            return True
        commits = self.log.commits(table.lake_id, since, to)
        if len(commits) < to - since or any(commit.changes_data for commit in commits):
            return True
        if not self.log.altered(table.lake_id, since, to):
            return False
        return self.columns_at(table.source_id, since) != self.columns_at(table.source_id, to)

    def followed(self, definition: Definition, dynamic: DynamicSources) -> Definition:
        """The definition with its views as they are now; the same one if they did not change."""
        if not definition.views:
            return definition
        reading = self._read(definition.query, definition.namespace, dynamic)
        views = _view_uses(reading)
        if views == definition.views:
            return definition
        known = {source.name.key: source for source in definition.sources}
        sources = tuple(
            known.get(key) or _source(name, self._state_of(name, dynamic), dynamic)
            for key, name in reading.sources.items()
        )
        return replace(definition, views=views, sources=sources, revision=definition.revision + 1)

    def pinned(
        self,
        definition: Definition,
        pins: Sequence[Pin],
        instant: datetime,
        *,
        columns: Mapping[str, tuple[str, ...]],
    ) -> str:
        """The text that a refresh at these pins runs."""
        declared = {source.name.key for source in definition.sources}  # also those dropped since
        reading = self._read(definition.query, definition.namespace, declared)
        query = self._pinned(reading, pins, instant, columns=columns, declared=declared)
        return query.checked(definition.query, definition.namespace)

    def pinned_sql(self, definition: Definition, pins: Sequence[Pin], instant: datetime) -> str:
        pins = [pin_of(pins, source) for source in definition.sources]
        return self.pinned(definition, pins, instant, columns={})

    def has_feed(self, source: Source) -> bool:  # noqa: ARG002
        """DuckLake keeps the changes of every table."""
        return True

    def plan_of(self, definition: Definition) -> DeltaPlan | NotIncremental:
        """How the query can be kept up to date by changes; made once for each text."""
        if definition.built_from not in self._plans:
            self._plans[definition.built_from] = self._plan(definition)
        return self._plans[definition.built_from]

    def _plan(self, definition: Definition) -> DeltaPlan | NotIncremental:
        declared = {source.name.key for source in definition.sources if source.dynamic_id}
        reading = self._read(definition.query, definition.namespace, declared)
        names = {source.name.key: name for name, source in source_names(definition).items()}
        opaque = OpaqueQuery(self.catalog, reading, names=names, declared=declared)
        text = opaque.text(definition.query, definition.namespace)
        plan = planned(text, definition, dialect=DIALECT)
        if isinstance(plan, DeltaPlan):
            try:
                with self._private(definition.namespace, definition.settings) as cursor:
                    check_faithful(cursor, text, definition)
            except NotIncremental as reason:
                return reason
        return plan

    # Reading

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
            with self._user_lock:
                relation = self._user.sql(text)
                if relation is not None:
                    relation.execute()
                return Result(relation)
        finally:
            self._instance.changed()

    def fetched(self, cursor: DuckDBPyConnection, query: str) -> list[tuple[Any, ...]]:
        return fetched(cursor.sql(query))

    def read(self, definition: Definition, version: int | None) -> Result:
        if version is None:
            return self.run(f"FROM {name_sql(self.stored_table(definition).name)}")
        return self.run(f"FROM {self.stored_at(definition, version)}")

    def changes(self, definition: Definition, start: int, end: int) -> Result:
        """The change feed of the stored table in [start, end]."""
        name = self.catalog.name_at(self.stored_table(definition).source_id, end)
        table = ", ".join(literal(part) for part in name.parts)
        columns = columns_sql([column.name for column in definition.columns])
        return self.run(
            f"SELECT {columns}, change_type AS _change_type, snapshot_id AS _commit_version "  # noqa: S608
            f"FROM ducklake_table_changes({table}, {start:d}, {end:d})"
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

    # Refreshing

    @contextmanager
    def work_area(self, definition: Definition, label: str) -> Generator[DuckArea]:
        with self._private(definition.namespace, definition.settings) as cursor:
            area = DuckArea(self, cursor, label)
            with self._areas_lock:
                self._areas[label] = area
            try:
                yield area
            finally:
                with self._areas_lock:
                    del self._areas[label]

    def progress(self) -> list[Progress]:
        with self._areas_lock:
            return [area.progress() for area in self._areas.values()]

    @property
    def faults(self) -> tuple[type[BaseException], ...]:
        return DUCK_FAULTS

    def told(self, error: BaseException, *, about: str) -> RefreshError:
        return told(error, about=about)

    def cancel(self) -> None:
        """Stop the queries of all refreshes under way."""
        with self._areas_lock:
            for area in self._areas.values():
                area.cancel()


def _check_clock(reading: Reading, states: Collection[SourceState]) -> None:
    """A bare word like current_date is the clock, unless a column is called so."""
    words = {word for found in reading.found.values() for word in found.clock_words}
    columns = {column.name.lower() for state in states for column in state.columns}
    names = columns | {name for found in reading.found.values() for name in found.aliases}
    for word in sorted(words & names):
        raise InvalidInput(
            f"{word} is the clock and a column",
            reason=Reason.ANALYSIS_FAILED,
            about=word,
            hint=f"write t.{word} for the column of t, or give the column another name",
        )


def _check_select_list(reading: Reading, query: str) -> None:
    for place in reading.found[query].unnamed():
        beginning = " ".join(query[place : place + 40].split())
        raise InvalidInput(
            "every output column needs a name",
            reason=Reason.BAD_COLUMNS,
            about=beginning,
            hint="write … AS some_name",
        )


def _view_uses(reading: Reading) -> tuple[ViewUse, ...]:
    return tuple(
        ViewUse(
            name=view.name,
            text=view.text,
            namespace=view.namespace,
            columns=view.columns,
            settings={},
        )
        for view in sorted(reading.views.values(), key=lambda item: item.name.key)
    )


def _source(name: TableName, state: SourceState, dynamic: DynamicSources) -> Source:
    declared = dynamic.get(name.key)
    return Source(
        name=name,
        columns=state.columns,
        dynamic_id=declared.table_id if declared is not None else None,
    )


def _pin_now(name: TableName, state: SourceState) -> Pin:
    return Pin(name=name, source_id=state.source_id, version=state.version, latest=state.version)


def _approximate(reading: Reading, columns: Sequence[Column]) -> tuple[str, ...]:
    """Columns that may hold floating aggregates, whose last digits differ between runs."""
    if not reading.sums_floats:
        return ()
    return tuple(c.name for c in columns if c.type in ("DOUBLE", "FLOAT"))
