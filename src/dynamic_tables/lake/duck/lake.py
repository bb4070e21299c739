"""DuckLake tables on DuckDB: the same product without Spark, for one process."""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime

import duckdb

from dynamic_tables.compiler.plan import DeltaPlan
from dynamic_tables.compiler.references import TableReference, rewrite
from dynamic_tables.compiler.refused import NotIncremental
from dynamic_tables.definition import Column, Definition, Hidden, Source
from dynamic_tables.errors import InvalidInput, RefreshError
from dynamic_tables.lake.analysis import approximate, pin_now, source_of, view_uses
from dynamic_tables.lake.base import (
    Analysis,
    DynamicSources,
    Progress,
    Remaining,
    SourceState,
)
from dynamic_tables.lake.duck.analysis import check_clock, check_select_list
from dynamic_tables.lake.duck.area import DuckArea
from dynamic_tables.lake.duck.catalog import Table, described, unknown
from dynamic_tables.lake.duck.connection import Connection
from dynamic_tables.lake.duck.deltas import (
    DIALECT,
    OpaqueQuery,
    check_faithful,
    make_empty_sources,
)
from dynamic_tables.lake.duck.faults import DUCK_FAULTS, headline, told
from dynamic_tables.lake.duck.opening import Instance
from dynamic_tables.lake.duck.pinning import PinnedQuery, Reading, aliased_as, read_texts
from dynamic_tables.lake.duck.references import find_references, not_pinnable
from dynamic_tables.lake.duck.text import MAIN, literal, name_sql, quote
from dynamic_tables.lake.duck.types import check_columns, storable
from dynamic_tables.lake.duck.user import UserStatements, settings_of
from dynamic_tables.lake.pins import (
    hidden_sources,
    known_sources,
    pin_of,
    remaining,
    shown_columns,
)
from dynamic_tables.lake.plans import Opaque, Plans, source_names
from dynamic_tables.lake.under_way import UnderWay
from dynamic_tables.model import Pin, Work, utc_now
from dynamic_tables.names import TableName
from dynamic_tables.reasons import Reason

HARMLESS_VOLATILE = frozenset({"error"})  # gives nothing, so nothing that could differ


class DuckLake(UserStatements):
    """See `lake.base.Lake`."""

    def __init__(self, instance: Instance, *, lock_wait_s: float) -> None:
        super().__init__(instance, lock_wait_s=lock_wait_s)
        self._under_way = UnderWay()
        self._plans = Plans(self._opaque, dialect=DIALECT, refusals=duckdb.Error, headline=headline)

    # Declaring

    def analyse(self, query: str, dynamic: DynamicSources) -> Analysis:
        """What a query is; refuses what cannot be a dynamic table, and says why."""
        namespace = self.namespace()
        declared = {key for key, source in dynamic.items() if not source.loaded or source.hidden}
        self._check_temporary(query)
        reading = self._read(query, namespace, declared)
        volatile = self._volatile(reading)
        states = {key: self._state_of(name, dynamic) for key, name in reading.sources.items()}
        check_clock(reading, states.values())
        check_select_list(reading, query)
        settings = self._settings()
        pinned = self._pinned(
            reading,
            [pin_now(reading.sources[key], state) for key, state in states.items()],
            utc_now(),
            columns=shown_columns(dynamic),
            hidden=hidden_sources(dynamic),
            declared=declared,
        ).checked(query, namespace)
        columns = self._analysed(pinned, namespace, settings)
        check_columns(columns)
        return Analysis(
            columns=storable(columns),
            canonical=self._canonical(reading, query, namespace, dynamic),
            sources=tuple(
                source_of(name, states[key], dynamic) for key, name in reading.sources.items()
            ),
            views=view_uses(reading.views.values()),
            settings=settings,
            reads_clock=reading.reads_clock,
            deterministic=not volatile,
            approximate=approximate(columns, sums_floats=reading.sums_floats),
            without_feed=(),  # DuckLake keeps the changes of every table
            source_bytes=sum(state.bytes for state in states.values()),
        )

    def _read(
        self, query: str, namespace: tuple[str, str], declared: Collection[str] = ()
    ) -> Reading:
        return read_texts(self.catalog, self._serialise, query, namespace, declared=declared)

    def _pinned(
        self,
        reading: Reading,
        pins: Sequence[Pin],
        instant: datetime,
        *,
        columns: Mapping[str, tuple[str, ...]],
        hidden: Mapping[str, Hidden],
        declared: Collection[str] = (),
    ) -> PinnedQuery:
        return PinnedQuery(
            self.catalog,
            self._serialise,
            reading,
            pins=pins,
            instant=instant,
            columns=columns,
            hidden=hidden,
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
                    hint="the query must run as it is on DuckDB; try it alone first",
                ) from error

    @contextmanager
    def _private(
        self, namespace: tuple[str, str], settings: Mapping[str, str]
    ) -> Generator[Connection]:
        """A connection of its own, as the user's was at CREATE."""
        there = self.catalog.has_schema(namespace[1])  # if not, whoever needs it will be told
        cursor = self._instance.cursor(namespace[1] if there else MAIN)
        try:
            for key, value in settings.items() - settings_of(cursor).items():
                cursor.execute(f"SET SESSION {quote(key)} = {literal(value)}")
            yield cursor
        finally:
            cursor.close()

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

    def _volatile(self, reading: Reading) -> set[str]:
        """The functions of a query that give something else each time; no macros are allowed.

        What a macro reads cannot be seen in the query's text, so it could not be pinned.
        """
        special = [
            (name, built_in)
            for name, built_in in self._ask(
                "SELECT DISTINCT lower(function_name), internal FROM duckdb_functions() WHERE "
                "NOT internal OR stability = 'VOLATILE' OR function_name = 'txid_current'"
            )
            if name in reading.functions
        ]
        for name, built_in in sorted(special):
            if not built_in:
                raise not_pinnable(f"{name}(…)", "a macro may read anything, unseen")
        return {name for name, _ in special} - HARMLESS_VOLATILE

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
        table = self._table(source)
        if table is None:
            raise unknown(source.name)
        return self._state(table)

    def _table(self, source: Source) -> Table | None:
        """A source's table; a dynamic one is known by its id, whatever its name is."""
        dynamic = source.dynamic_id
        return self._stored(dynamic) if dynamic else self.catalog.table(source.name)

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
        table = self._table(source)
        if since > to or table is None:
            return True
        commits = self.log.commits(table.lake_id, since, to)
        if len(commits) < to - since or any(commit.changes_data for commit in commits):
            return True
        if not self.log.altered(table.lake_id, since, to):
            return False
        return any(
            look(table.source_id, since) != look(table.source_id, to)
            for look in (self.columns_at, self.catalog.column_ids)
        )

    @property
    def one_driver_at(self) -> tuple[str, ...]:
        """A second process cannot open the lake at all."""
        return ()

    @property
    def no_work(self) -> Work:
        return Work()  # as of every refresh: DuckDB does not tell

    @property
    def can_slice(self) -> bool:
        return False

    def clear_slices(self, definition: Definition, up_to: int) -> None:
        """Nothing is ever staged."""

    def changed_at(self, source: Source, since: int, to: int) -> datetime | None:
        """When the first snapshot in (since, to] that moved the table was made; None: none did."""
        table = self._table(source)
        if table is None or not self.moved(source, since, to):
            return None
        commits = self.log.commits(table.lake_id, min(since, to - 1), to)
        changing = [commit for commit in commits if commit.changes_data] or commits[:1]
        return changing[-1].committed_at if changing else None

    def followed(self, definition: Definition, dynamic: DynamicSources) -> Definition:
        """The definition with its views as they are now; the same one if they did not change."""
        if not definition.views:
            return definition
        reading = self._read(definition.query, definition.namespace, dynamic)
        views = view_uses(reading.views.values())
        if views == definition.views:
            return definition
        known = {source.name.key: source for source in definition.sources}
        sources = tuple(
            known.get(key) or source_of(name, self._state_of(name, dynamic), dynamic)
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
        text = definition.stored_query
        reading = self._read(text, definition.namespace, declared)
        hidden = hidden_sources(known_sources(definition))
        query = self._pinned(
            reading, pins, instant, columns=columns, hidden=hidden, declared=declared
        )
        return query.checked(text, definition.namespace)

    def pinned_sql(self, definition: Definition, pins: Sequence[Pin], instant: datetime) -> str:
        pins = [pin_of(pins, source) for source in definition.sources]
        shown = shown_columns(known_sources(definition))
        return self.pinned(definition, pins, instant, columns=shown)

    def remaining_columns(self, definition: Definition, pins: Sequence[Pin]) -> Remaining:
        def columns_at(pin: Pin) -> list[str]:
            return [column.name for column in self.columns_at(pin.source_id, pin.version)]

        return remaining(definition, pins, columns_at)

    def plan_of(self, definition: Definition) -> DeltaPlan | NotIncremental:
        """How the query can be kept up to date by changes."""
        return self._plans.of(definition)

    @contextmanager
    def _opaque(self, definition: Definition) -> Generator[Opaque]:
        text = self._opaque_text(definition)
        with self._private(definition.namespace, definition.settings) as cursor:
            yield Opaque(text, lambda: check_faithful(cursor, text, definition))

    def _opaque_text(self, definition: Definition) -> str:
        """The stored query over the compiler's names for the sources."""
        declared = {source.name.key for source in definition.sources if source.dynamic_id}
        query = definition.stored_query
        reading = self._read(query, definition.namespace, declared)
        names = {source.name.key: name for name, source in source_names(definition).items()}
        opaque = OpaqueQuery(self.catalog, reading, names=names, declared=declared)
        return opaque.text(query, definition.namespace)

    def query_columns(self, definition: Definition) -> tuple[Column, ...]:
        with self._private(definition.namespace, definition.settings) as cursor:
            make_empty_sources(cursor, definition)
            text = self._opaque_text(definition)
            return storable(described(cursor.execute(f"DESCRIBE {text}").fetchall()))

    # Refreshing

    @contextmanager
    def work_area(
        self,
        definition: Definition,
        label: str,
        *,
        pins: Sequence[Pin] | None = None,  # noqa: ARG002  all areas are alike
    ) -> Generator[DuckArea]:
        with self._private(definition.namespace, definition.settings) as cursor:
            area = DuckArea(self, cursor, label)
            with self._under_way.holding(area):
                yield area

    def progress(self) -> list[Progress]:
        return self._under_way.progress()

    def cancel(self) -> None:
        """Stop the queries of all refreshes under way."""
        self._under_way.cancel()

    def is_alive(self) -> bool:
        """After a fatal error DuckDB refuses every statement."""
        try:
            return bool(self._instance.rows("SELECT 1"))
        except DUCK_FAULTS:
            return False

    @property
    def faults(self) -> tuple[type[BaseException], ...]:
        return DUCK_FAULTS

    def told(self, error: BaseException, *, about: str) -> RefreshError:
        return told(error, about=about)
