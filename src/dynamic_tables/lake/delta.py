"""Delta tables on Spark: the lake that the product is for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from dynamic_tables.compiler.plan import DeltaPlan
from dynamic_tables.compiler.references import TableReference, aliased_as, rewrite
from dynamic_tables.compiler.refused import NotIncremental
from dynamic_tables.definition import Column, Definition, ViewUse
from dynamic_tables.errors import DynamicTablesError, InvalidInput, RefreshError
from dynamic_tables.lake import catalog, jvm, snapshots
from dynamic_tables.lake.analysis import approximate, pin_now, source_of, view_uses
from dynamic_tables.lake.area import SparkArea
from dynamic_tables.lake.base import (
    Analysis,
    DynamicSource,
    DynamicSources,
    Moves,
    Progress,
    Sizes,
    SourceState,
)
from dynamic_tables.lake.deltas import DIALECT, OpaqueQuery, check_faithful, make_empty_sources
from dynamic_tables.lake.extent import NONE, Counted, pays_to_count, total_rows
from dynamic_tables.lake.faults import SPARK_FAULTS, headline, is_alive, told
from dynamic_tables.lake.pinning import PinnedQuery, Reading, read_texts
from dynamic_tables.lake.pins import (
    hidden_sources,
    known_sources,
    pin_of,
    shown_columns,
)
from dynamic_tables.lake.places import one_driver_at
from dynamic_tables.lake.plans import Opaque, Plans, moved_names, source_names
from dynamic_tables.lake.references import Found, find_references
from dynamic_tables.lake.select_list import unnamed_columns
from dynamic_tables.lake.sessions import private_session, result_settings
from dynamic_tables.lake.slices import clear_slices
from dynamic_tables.lake.sources import SourceTables, only_come
from dynamic_tables.lake.statements import check_columns
from dynamic_tables.lake.store_views import store_views
from dynamic_tables.lake.stored import StoredTables
from dynamic_tables.lake.under_way import UnderWay
from dynamic_tables.model import Pin, Work, utc_now
from dynamic_tables.names import TableName, quote
from dynamic_tables.options import Options
from dynamic_tables.reasons import Reason

SMALL_TABLES_BYTES = 4 * 2**20  # sources and stored rows of a refresh in a session for small ones


class SparkLake(StoredTables, SourceTables):
    """See `lake.base.Lake`."""

    def __init__(
        self,
        spark: SparkSession,
        *,
        warehouse: str | None,
        allowed_roots: tuple[str, ...] = (),
        lock_wait_s: float,
    ) -> None:
        StoredTables.__init__(self, spark, warehouse=warehouse, lock_wait_s=lock_wait_s)
        SourceTables.__init__(self, spark)
        self._roots = (*allowed_roots, *((warehouse,) if warehouse else ()))
        self._read: dict[str, dict[str, Found]] = {}  # texts by fingerprint, which has the settings
        self._counted: dict[str, Counted] = {}  # by table id
        self._under_way = UnderWay()
        # Once: heartbeats outlive an engine. Delta asks the context, whatever the session says.
        self.one_driver_at = one_driver_at(
            warehouse or spark.conf.get("spark.sql.warehouse.dir") or "",
            jvm.started_with(spark),
        )
        self._plans = Plans(
            self._opaque, dialect=DIALECT, refusals=AnalysisException, headline=headline
        )

    # Declaring

    def namespace(self) -> tuple[str, str]:
        return self.spark.catalog.currentCatalog(), self.spark.catalog.currentDatabase()

    def analyse(self, query: str, dynamic: DynamicSources) -> Analysis:
        """What a query is; refuses what cannot be a dynamic table, and says why."""
        namespace, settings = self.namespace(), result_settings(self.spark)
        found_elsewhere = _not_by_name(dynamic)
        reading = read_texts(self.spark, query, namespace, unregistered=found_elsewhere)
        states = {key: self._source_state(n, dynamic) for key, n in reading.sources.items()}
        self._check_select_list(query)
        session = private_session(self.spark, settings=settings, namespace=namespace)
        pins = [pin_now(reading.sources[key], state) for key, state in states.items()]
        pinned = PinnedQuery(
            session,
            reading,
            pins=pins,
            instant=utc_now(),
            columns=shown_columns(found_elsewhere),
            locations={key: source.location for key, source in found_elsewhere.items()},
            hidden=hidden_sources(found_elsewhere),
        )
        frame = self._analysed(pinned, query, namespace)
        columns = catalog.columns_of(frame._jdf.schema())
        check_columns(columns)
        return Analysis(
            columns=columns,
            canonical=_canonical(self.spark, reading, query, namespace, dynamic),
            sources=tuple(
                source_of(name, states[key], dynamic) for key, name in reading.sources.items()
            ),
            views=view_uses(reading.views.values()),
            settings=settings,
            reads_clock=reading.reads_clock,
            deterministic=frame._jdf.queryExecution().analyzed().deterministic(),
            approximate=approximate(columns, sums_floats=reading.sums_floats),
            without_feed=tuple(reading.sources[k] for k, s in states.items() if not s.has_feed),
            source_bytes=sum(state.bytes for state in states.values()),
        )

    def _source_state(self, name: TableName, dynamic: DynamicSources) -> SourceState:
        if not name.catalog:
            catalog.check_path(name.name, self._roots)
        declared = dynamic.get(name.key)
        if declared is not None and (not declared.loaded or declared.hidden):
            return catalog.state_at(self.spark, name, declared.location)
        return self._state(name)

    def _check_select_list(self, query: str) -> None:
        unnamed = unnamed_columns(self.spark, query)
        if unnamed:
            raise InvalidInput(
                "every output column needs a name",
                reason=Reason.BAD_COLUMNS,
                about=unnamed[0],
                hint=f"write {unnamed[0]} AS some_name",
            )

    def _analysed(self, pinned: PinnedQuery, query: str, namespace: tuple[str, str]) -> DataFrame:
        try:
            return pinned.frame(query, namespace)
        except AnalysisException as error:
            raise InvalidInput(
                headline(error),
                reason=Reason.ANALYSIS_FAILED,
                hint="the query must run as it is on Spark; try it alone first",
            ) from error

    def rename_in(self, definition: Definition, old: TableName, new: TableName) -> str:
        """The query of a definition with every mention of a table under its new name."""

        session = private_session(
            self.spark, settings=definition.settings, namespace=definition.namespace
        )

        def renamed(reference: TableReference) -> str:
            name = catalog.resolve(session, reference, definition.namespace)
            if name.key != old.key:
                return definition.query[reference.start : reference.stop]
            return aliased_as(new.sql, reference)

        found = find_references(session, definition.query)
        return rewrite(definition.query, found.tables, renamed)

    def check_options(self, name: TableName, options: Options) -> None:
        """Spark and Delta have every layout."""

    # Looking

    @property
    def session(self) -> SparkSession:
        """The session that reads see."""
        return self.spark

    def run(self, text: str) -> DataFrame:
        """A statement of the user, in the user's session."""
        return self.spark.sql(text)

    def close(self) -> None:
        """The session is the user's, or the process's: it stays."""

    @property
    def no_work(self) -> Work:
        return Work(spark_jobs=0, bytes_read=0, files_read=0)

    @property
    def can_slice(self) -> bool:
        return True

    def clear_slices(self, definition: Definition, up_to: int) -> None:
        clear_slices(self.spark, definition, up_to)

    def sizes(self, definition: Definition, moves: Moves | None) -> Sizes:
        by_name = self.extents(definition, moves) if moves else {}
        extents = [*by_name.values()]
        by_source = {name: self.present(s).bytes for name, s in source_names(definition).items()}
        source_bytes = sum(by_source.values())
        # A parent that is still to be refreshed has nothing yet that could be counted.
        all_there = all(by_name[key] is not NONE for key in moves.moved) if moves else False
        if moves and all_there and pays_to_count(extents, source_bytes):
            self._count(definition, moves)
        counted = self._counted_rows(definition, moves) if moves else None
        told = total_rows(extents) if moves else None
        return Sizes(
            changed_rows=told if counted is None else counted,
            changed_bytes=sum(extent.bytes for extent in extents),
            unchanged_bytes=sum(extent.unchanged_bytes for extent in extents),
            source_bytes=source_bytes,
            stored_bytes=self.stored_bytes(definition),
            beside_bytes=sum(by_source[name] for name in self._beside(definition, moves)),
            stored_rows=self.row_count(definition),
            only_adds=moves is None or only_come(definition, moves, extents),
        )

    def _beside(self, definition: Definition, moves: Moves | None) -> frozenset[str]:
        """The sources that changed rows are joined with, as the compiler calls them."""
        plan = self.plan_of(definition) if moves else None
        if moves is None or not isinstance(plan, DeltaPlan):
            return frozenset()
        return plan.read_beside(moved_names(definition, moves), clock_moved=moves.clock_moved)

    def changed_rows(self, definition: Definition, moves: Moves) -> int | None:
        """Of the sources: as they were counted, else as their logs tell."""
        counted = self._counted_rows(definition, moves)
        if counted is not None:
            return counted
        return total_rows([*self.extents(definition, moves).values()])

    def _counted_rows(self, definition: Definition, moves: Moves) -> int | None:
        counted = self._counted.get(definition.table_id)
        same = counted is not None and counted.pins == (*moves.before, *moves.after)
        return counted.rows if counted is not None and same else None

    def _count(self, definition: Definition, moves: Moves) -> None:
        """Net the changes and count them, once: who plans and who refreshes decides alike."""
        plan = self.plan_of(definition)
        if isinstance(plan, NotIncremental) or self._counted_rows(definition, moves) is not None:
            return
        with self.work_area(definition, f"counting the changes for {definition.name}") as area:
            rows = area.maintenance(definition, plan, moves).net_rows()
        if rows is not None:
            pins = (*moves.before, *moves.after)
            self._counted[definition.table_id] = Counted(pins=pins, rows=rows)

    def plan_of(self, definition: Definition) -> DeltaPlan | NotIncremental:
        """How the query can be kept up to date by changes."""
        return self._plans.of(definition)

    @contextmanager
    def _opaque(self, definition: Definition) -> Generator[Opaque]:
        session = private_session(
            self.spark, settings=definition.settings, namespace=definition.namespace
        )
        text = self._opaque_text(session, definition)
        yield Opaque(text, lambda: check_faithful(session, text))

    def _opaque_text(self, session: SparkSession, definition: Definition) -> str:
        """The stored query over the compiler's names for the sources."""
        make_empty_sources(session, definition)
        reading = self.read_definition(session, definition)
        opaque = OpaqueQuery(session, reading, definition)
        return opaque.text(definition.stored_query, definition.namespace)

    def query_columns(self, definition: Definition) -> tuple[Column, ...]:
        session = private_session(
            self.spark, settings=definition.settings, namespace=definition.namespace
        )
        frame = session.sql(self._opaque_text(session, definition))
        return catalog.columns_of(frame._jdf.schema())

    def followed(self, definition: Definition, dynamic: DynamicSources) -> Definition:
        """The definition with its views as they are now; the same one if they did not change."""
        if not definition.views:
            return definition
        session = private_session(
            self.spark, settings=definition.settings, namespace=definition.namespace
        )
        reading = self._read_texts(session, definition, views=None)
        before = {view.name.key: view for view in definition.views}
        now = view_uses(reading.views.values())
        views = tuple(_without_new_columns(view, before.get(view.name.key)) for view in now)
        if views == definition.views:
            return definition
        known = {source.name.key: source for source in definition.sources}
        sources = tuple(
            known.get(key) or source_of(name, self._source_state(name, dynamic), dynamic)
            for key, name in reading.sources.items()
        )
        return replace(definition, views=views, sources=sources, revision=definition.revision + 1)

    def read_definition(self, session: SparkSession, definition: Definition) -> Reading:
        """The texts below a definition, its views as it knows them: what the catalog of this
        process says of them may be older, or newer, than what all who share a refresh compute."""
        return self._read_texts(session, definition, views=definition.views)

    def _read_texts(
        self, session: SparkSession, definition: Definition, *, views: Iterable[ViewUse] | None
    ) -> Reading:
        """Each text is parsed once in the life of a process; no `views`: the catalog's own."""
        known = self._read.setdefault(definition.fingerprint, {})
        reading = read_texts(
            session,
            definition.stored_query,
            definition.namespace,
            unregistered={source.name.key for source in definition.sources if source.hidden},
            known=known,
            given=None
            if views is None
            else {view.name.key: catalog.view_of(view) for view in views},
        )
        known.update(reading.found)
        return reading

    def pinned_sql(self, definition: Definition, pins: Sequence[Pin], instant: datetime) -> str:
        """The text that a refresh at these pins runs."""
        session = private_session(
            self.spark, settings=definition.settings, namespace=definition.namespace
        )
        reading = self.read_definition(session, definition)
        pins = [pin_of(pins, source) for source in definition.sources]
        shown = shown_columns(known_sources(definition))
        pinned = self.pinned(session, reading, definition, pins, instant, columns=shown)
        return pinned.text(definition.stored_query, definition.namespace)

    def pinned(
        self,
        session: SparkSession,
        reading: Reading,
        definition: Definition,
        pins: Sequence[Pin],
        instant: datetime,
        *,
        columns: Mapping[str, tuple[str, ...]],
    ) -> PinnedQuery:
        """The texts below a definition at these pins."""
        sources = known_sources(definition)
        return PinnedQuery(
            session,
            reading,
            pins=pins,
            instant=instant,
            columns=columns,
            locations={k: s.hidden.location for k, s in sources.items() if s.hidden},
            hidden=hidden_sources(sources),
        )

    def store_views(
        self, text: str, names: Collection[str], rows_of: Callable[[str], Any]
    ) -> AbstractContextManager[None]:
        return store_views(self.spark, self.namespace(), text, names, rows_of)

    # Refreshing

    @contextmanager
    def work_area(
        self, definition: Definition, label: str, *, pins: Sequence[Pin] | None = None
    ) -> Generator[SparkArea]:
        """`pins`: of a cut that this process did not pin, so that it may know older tables only."""
        jvm.hear_at_once(self.spark)
        for source in definition.sources:
            if source.hidden is not None:
                self._locations[source.name.key] = source.hidden.location
        session = private_session(
            self.spark,
            settings=definition.settings,
            namespace=definition.namespace,
            small=self._is_small(definition, pins),
        )
        area = SparkArea(self, session, label)
        with area.open(), self._under_way.holding(area):
            yield area

    def _is_small(self, definition: Definition, pins: Sequence[Pin] | None) -> bool:
        """Whether sources and stored rows are small enough for a session that is made for that."""
        try:
            if pins is not None:
                sizes = [self.bytes_at(pin_of(pins, source)) for source in definition.sources]
                stored = snapshots.table_bytes(self._snapshot_at(definition.location))
            else:
                sizes = [self.present(source).bytes for source in definition.sources]
                stored = self.stored_bytes(definition)
        except (*SPARK_FAULTS, DynamicTablesError):  # gone: what is computed will say so
            return False
        return sum(sizes) + stored <= SMALL_TABLES_BYTES

    def progress(self) -> list[Progress]:
        return self._under_way.progress()

    def cancel(self) -> None:
        """Stop the Spark jobs of all refreshes under way."""
        self._under_way.cancel()

    def is_alive(self) -> bool:
        return is_alive(self.spark)

    @property
    def faults(self) -> tuple[type[BaseException], ...]:
        """What Spark, Delta and the way to them raise."""
        return SPARK_FAULTS

    def told(self, error: BaseException, *, about: str) -> RefreshError:
        return told(error, about=about)


def _without_new_columns(view: ViewUse, known: ViewUse | None) -> ViewUse:
    """A view that follows its query (WITH SCHEMA EVOLUTION) gains columns with its tables: what
    came after CREATE is not seen, as of tables."""
    if known is None or view.query_columns or replace(view, columns=known.columns) != known:
        return view
    return known


def _not_by_name(dynamic: DynamicSources) -> dict[str, DynamicSource]:
    """Dynamic tables whose name is not registered yet, or is a view: found by their place."""
    return {k: source for k, source in dynamic.items() if not source.loaded or source.hidden}


def _canonical(
    spark: SparkSession,
    reading: Reading,
    query: str,
    namespace: tuple[str, str],
    dynamic: DynamicSources,
) -> str:
    """The text with every table by its full name, dynamic ones by the id that a rename keeps."""

    def named(reference: TableReference) -> str:
        name = catalog.resolve(spark, reference, namespace)
        source = dynamic.get(name.key)
        return name.key if source is None else quote(f"@{source.table_id}")

    return rewrite(query, reading.found[query].tables, named)
