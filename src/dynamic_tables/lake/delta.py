"""Delta tables on Spark: the lake that the product is for."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from dynamic_tables.compiler.references import TableReference, aliased_as, rewrite
from dynamic_tables.errors import InternalError, InvalidInput, RefreshError, SetupError
from dynamic_tables.lake import catalog, jvm
from dynamic_tables.lake.area import SparkArea, commit_lock
from dynamic_tables.lake.base import (
    Analysis,
    Commit,
    DynamicSource,
    DynamicSources,
    SourceState,
    Standing,
)
from dynamic_tables.lake.faults import SPARK_FAULTS, headline, told
from dynamic_tables.lake.jvm import Java
from dynamic_tables.lake.log import SCHEMA_OPERATIONS, commits_between
from dynamic_tables.lake.measure import Progress
from dynamic_tables.lake.pinning import PinnedQuery, Reading, read_texts
from dynamic_tables.lake.references import find_references
from dynamic_tables.lake.select_list import unnamed_columns
from dynamic_tables.lake.sessions import private_session, result_settings
from dynamic_tables.lake.statements import (
    PROPERTY_DEFINITION,
    PROPERTY_ID,
    check_columns,
    create_table,
    register,
    set_definition,
)
from dynamic_tables.model import Column, Definition, Pin, Source, ViewUse, utc_now
from dynamic_tables.names import TableName, check_not_reserved, literal, qualify, quote
from dynamic_tables.reasons import Reason

SESSION_CATALOG_NAMES = re.compile(r"[A-Za-z0-9_]+")  # what Spark's own catalog accepts


class SparkLake:
    """See `lake.base.Lake`."""

    def __init__(
        self,
        spark: SparkSession,
        *,
        warehouse: str | None,
        allowed_roots: tuple[str, ...] = (),
        lock_wait_s: float,
    ) -> None:
        self.spark = spark
        self._warehouse = warehouse
        self._roots = (*allowed_roots, *((warehouse,) if warehouse else ()))
        self._lock_wait_s = lock_wait_s
        self._locations: dict[str, str] = {}  # of sources, by name key
        self._areas: dict[str, SparkArea] = {}  # the refreshes under way, by label
        self._areas_lock = threading.Lock()

    # Declaring

    def namespace(self) -> tuple[str, str]:
        return self.spark.catalog.currentCatalog(), self.spark.catalog.currentDatabase()

    def analyse(self, query: str, dynamic: DynamicSources) -> Analysis:
        """What a query is; refuses what cannot be a dynamic table, and says why."""
        namespace, settings = self.namespace(), result_settings(self.spark)
        reading = read_texts(self.spark, query, namespace, unregistered=_unregistered(dynamic))
        states = {key: self._source_state(n, dynamic) for key, n in reading.sources.items()}
        self._check_select_list(query)
        session = private_session(self.spark, settings=settings, namespace=namespace)
        pins = [_pin_now(reading.sources[key], state) for key, state in states.items()]
        pinned = PinnedQuery(
            session,
            reading,
            pins=pins,
            instant=utc_now(),
            columns={},
            locations={key: source.location for key, source in _unregistered(dynamic).items()},
        )
        frame = self._analysed(pinned, query, namespace)
        columns = catalog.columns_of(frame._jdf.schema())
        check_columns(columns)
        return Analysis(
            columns=columns,
            canonical=_canonical(self.spark, reading, query, namespace, dynamic),
            sources=tuple(
                Source(
                    name=name,
                    columns=states[key].columns,
                    dynamic_id=dynamic[key].table_id if key in dynamic else None,
                )
                for key, name in reading.sources.items()
            ),
            views=tuple(ViewUse(name=v.name, text=v.text) for v in reading.views.values()),
            settings=settings,
            reads_clock=reading.reads_clock,
            deterministic=frame._jdf.queryExecution().analyzed().deterministic(),
            approximate=_approximate(reading, columns),
            without_feed=tuple(reading.sources[k] for k, s in states.items() if not s.has_feed),
            source_bytes=sum(state.bytes for state in states.values()),
        )

    def _source_state(self, name: TableName, dynamic: DynamicSources) -> SourceState:
        if not name.catalog:
            catalog.check_path(name.name, self._roots)
        declared = dynamic.get(name.key)
        if declared is not None and not declared.loaded:
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
                hint="the query must run as it is on Spark; try it with tables.sql first",
            ) from error

    def check_name(self, name: TableName) -> None:
        """The catalog can hold the name, the schema exists, and nobody has the name."""
        check_not_reserved(name.name, what="table")
        in_session_catalog = name.catalog.lower() == catalog.SESSION_CATALOG
        if in_session_catalog and not SESSION_CATALOG_NAMES.fullmatch(name.name):
            raise InvalidInput(
                "Spark's own catalog accepts letters, digits and _ in table names only",
                reason=Reason.BAD_NAME,
                about=str(name),
                hint="choose a plain name; column names may be anything",
            )
        self._schema_location(name)
        if catalog.exists(self.spark, name):
            raise InvalidInput(
                "there is a table or view of this name already",
                reason=Reason.ALREADY_EXISTS,
                about=str(name),
                hint=f"DROP TABLE {name}, or choose another name",
            )

    def location_for(self, name: TableName, table_id: str) -> str:
        """A folder of its own: names may be used again, folders never."""
        base = self._schema_location(name) or self._warehouse
        if base is None:
            raise SetupError(
                "there is no place to store the table",
                reason=Reason.STORE_MISSING,
                about=str(name),
                hint='name one: connect(spark=spark, warehouse="s3a://bucket/lake", store=…)',
            )
        folder = re.sub(r"[^A-Za-z0-9_]", "_", name.name).lower()
        return f"{base.rstrip('/')}/{folder}-{table_id[:8]}"

    def _schema_location(self, name: TableName) -> str | None:
        if name.catalog.lower() != catalog.SESSION_CATALOG:
            return None
        try:
            metadata = jvm.session_catalog(self.spark).getDatabaseMetadata(name.schema)
        except AnalysisException as error:
            raise InvalidInput(
                "there is no such schema",
                reason=Reason.BAD_NAME,
                about=f"{name.catalog}.{name.schema}",
                hint=f"CREATE SCHEMA {quote(name.schema)}",
            ) from error
        return metadata.locationUri().toString()

    def lay_out(self, definition: Definition) -> None:
        """Make the empty stored table with its properties; nobody sees it yet."""
        try:
            self.spark.sql(create_table(definition))
        except AnalysisException as error:
            raise InvalidInput(
                headline(error), reason=Reason.BAD_COLUMNS, about=str(definition.name)
            ) from error

    def publish(self, definition: Definition) -> None:
        """Let the name point to the stored table, if it does not yet."""
        name = definition.name
        if not catalog.exists(self.spark, name):
            self.spark.sql(register(name, definition.location))

    def rename_in(self, definition: Definition, old: TableName, new: TableName) -> str:
        """The query of a definition with every mention of a table under its new name."""

        def renamed(reference: TableReference) -> str:
            name = catalog.resolve(self.spark, reference, definition.namespace)
            if name.key != old.key:
                return definition.query[reference.start : reference.stop]
            return aliased_as(new.sql, reference)

        found = find_references(self.spark, definition.query)
        return rewrite(definition.query, found.tables, renamed)

    def apply_layout(self, definition: Definition) -> None:
        """Options that Delta itself keeps: clustering and the comment."""
        options = definition.options
        clustering = ", ".join(map(quote, options.cluster_by)) if options.cluster_by else None
        table = f"delta.{quote(definition.location)}"
        with self.commit_lock(definition):
            change = f"CLUSTER BY ({clustering})" if clustering else "CLUSTER BY NONE"
            if not options.partitioned_by:
                self.spark.sql(f"ALTER TABLE {table} {change}")
            self.spark.sql(f"COMMENT ON TABLE {table} IS {literal(options.comment or '')}")

    def optimize(self, definition: Definition) -> None:
        """Let Delta compact (and cluster) the stored table; no row changes."""
        with self.commit_lock(definition):
            self.spark.sql(f"OPTIMIZE delta.{quote(definition.location)}")

    def unpublish(self, name: TableName) -> None:
        """Take the name away; the files stay."""
        self.spark.sql(f"DROP TABLE IF EXISTS {name.sql}")

    def save_definition(self, definition: Definition) -> None:
        """Keep the definition with the table, so that a lost store can be rebuilt."""
        with self.commit_lock(definition):
            self.spark.sql(set_definition(definition))

    def erase(self, definition: Definition) -> None:
        """Delete the stored table's own folder, and nothing else."""
        if self._stored_id(definition.location) not in (None, definition.table_id):
            raise InternalError(
                "the folder belongs to another table",
                reason=Reason.LAKE_CHANGED,
                about=definition.location,
            )
        path = jvm.packages(self.spark).org.apache.hadoop.fs.Path(definition.location)
        configuration = self.spark._jsparkSession.sessionState().newHadoopConf()
        path.getFileSystem(configuration).delete(path, True)

    def _stored_id(self, location: str) -> str | None:
        snapshot = self._snapshot_at(location)
        if snapshot.version() < 0:
            return None
        return _property(snapshot, PROPERTY_ID)

    # Looking

    def source_state(self, source: Source) -> SourceState:
        return self._state(source.name)

    def _state(self, name: TableName) -> SourceState:
        state = catalog.state(self.spark, name)
        self._locations[name.key] = state.location
        return state

    def location_of(self, name: TableName) -> str:
        if name.key not in self._locations:
            self._state(name)
        return self._locations[name.key]

    def moved(self, source: Source, since: int, to: int) -> bool:
        """Whether rows or columns changed between two versions; a gap in the log counts as yes."""
        if since == to:
            return False
        if since > to:
            return True
        commits = commits_between(self.spark, self.location_of(source.name), since, to)
        return commits is None or any(
            commit.changes_data or commit.operation in SCHEMA_OPERATIONS for commit in commits
        )

    def changed_views(self, definition: Definition) -> tuple[TableName, ...]:
        """Views of the query that have another text than at CREATE."""
        changed = []
        for use in definition.views:
            view = catalog.view(self.spark, use.name)
            if view is None or view.text != use.text:
                changed.append(use.name)
        return tuple(changed)

    def present_views(self, definition: Definition) -> tuple[ViewUse, ...]:
        """The views below the query as they are now: a new text may read other views."""
        reading = read_texts(self.spark, definition.query, definition.namespace)
        return tuple(ViewUse(name=v.name, text=v.text) for v in reading.views.values())

    def standing(self, definition: Definition) -> Standing:
        snapshot = self._snapshot_at(definition.location)
        text = None if snapshot.version() < 0 else _property(snapshot, PROPERTY_DEFINITION)
        if text is None:
            raise SetupError(
                f"the stored table is not at {definition.location} any more",
                reason=Reason.LAKE_CHANGED,
                about=str(definition.name),
                hint=f"DROP DYNAMIC TABLE {definition.name} and create it again",
            )
        sequence = jvm.option(snapshot.transactions().get(definition.table_id))
        return Standing(
            sequence=sequence or 0,
            version=snapshot.version(),
            definition=Definition.from_json(json.loads(text)),
            columns=catalog.columns_of(snapshot.metadata().schema()),
        )

    def _snapshot_at(self, location: str) -> Java:
        log = jvm.delta_log_by_path(self.spark, location)
        return jvm.newest_snapshot(self.spark, log)

    def commits(self, definition: Definition, after: int, to: int) -> tuple[Commit, ...]:
        """The commits of the stored table in (after, to], newest first; what is left of them."""
        for start in (after, self._oldest_kept(definition, after)):
            found = commits_between(self.spark, definition.location, start, to)
            if found is not None:
                return found
        raise SetupError(
            "the log of the stored table has gaps",
            reason=Reason.LAKE_CHANGED,
            about=str(definition.name),
            hint=f"DROP DYNAMIC TABLE {definition.name} and create it again",
        )

    def _oldest_kept(self, definition: Definition, after: int) -> int:
        """Old log files are cleaned up behind checkpoints: the version before the oldest one
        left."""
        history = self.spark.sql(f"DESCRIBE HISTORY delta.{quote(definition.location)}")
        return max(after, history.agg({"version": "min"}).collect()[0][0] - 1)

    def read(self, definition: Definition, version: int | None) -> DataFrame:
        if version is None:
            return self.spark.table(definition.name.sql)
        return self.spark.read.option("versionAsOf", version).table(definition.name.sql)

    def changes(self, definition: Definition, start: int, end: int) -> DataFrame:
        """The change feed of the stored table in [start, end]."""
        reader = self.spark.read.option("readChangeFeed", "true")
        frame = reader.option("startingVersion", start).option("endingVersion", end)
        return frame.table(definition.name.sql)

    def pinned_sql(self, definition: Definition, pins: Sequence[Pin], instant: datetime) -> str:
        """The text that a refresh at these pins runs."""
        session = private_session(
            self.spark, settings=definition.settings, namespace=definition.namespace
        )
        reading = read_texts(session, definition.query, definition.namespace)
        pinned = PinnedQuery(session, reading, pins=pins, instant=instant, columns={})
        return pinned.text(definition.query, definition.namespace)

    @contextmanager
    def store_views(
        self, text: str, names: Collection[str], rows_of: Callable[[str], Any]
    ) -> Generator[None]:
        """Let a statement read the store: its tables are temporary views while it is analysed."""
        made = []
        for name in self._mentioned(text, names):
            columns, rows = rows_of(name)
            schema = ", ".join(f"{quote(column)} {kind}" for column, kind in columns)
            frame = self.spark.createDataFrame([_typed(row, columns) for row in rows], schema)
            frame.createOrReplaceTempView(name)
            made.append(name)
        try:
            yield
        finally:
            for name in made:
                self.spark.catalog.dropTempView(name)

    def _mentioned(self, text: str, names: Collection[str]) -> Iterator[str]:
        """Tables of the store that a query names, unless the user has tables called the same."""
        if not any(name in text.lower() for name in names):
            return
        try:
            found = find_references(self.spark, text)
        except InvalidInput:
            return  # not a query: Spark will say what it is
        for reference in found.tables:
            name = reference.parts[-1].lower()
            ours = len(reference.parts) == 1 and name in names
            if ours and not catalog.exists(self.spark, qualify((name,), self.namespace())):
                yield name

    def stored_definitions(self) -> Iterator[Definition]:
        """The definitions that lie in the schemas' folders, for rebuilding a lost store."""
        for location in self._folders():
            snapshot = self._snapshot_at(location)
            text = None if snapshot.version() < 0 else _property(snapshot, PROPERTY_DEFINITION)
            if text is not None:
                yield Definition.from_json(json.loads(text))

    def _folders(self) -> Iterator[str]:
        """Every Delta table directly below the warehouse or one of its schemas' folders."""
        roots = {self._warehouse} if self._warehouse else set()
        for schema in self.spark.catalog.listDatabases():
            if schema.locationUri:
                roots.add(schema.locationUri)
        files = jvm.packages(self.spark).org.apache.hadoop.fs
        configuration = self.spark._jsparkSession.sessionState().newHadoopConf()
        seen = set()
        for root in sorted(roots):
            path = files.Path(root)
            system = path.getFileSystem(configuration)
            if not system.exists(path):
                continue
            for status in system.listStatus(path):
                place = status.getPath()
                if place.toString() not in seen and system.exists(files.Path(place, "_delta_log")):
                    seen.add(place.toString())
                    yield place.toString()

    # Refreshing

    @contextmanager
    def work_area(self, definition: Definition, label: str) -> Generator[SparkArea]:
        session = private_session(
            self.spark, settings=definition.settings, namespace=definition.namespace
        )
        area = SparkArea(self, session, label)
        with area.open():
            with self._areas_lock:
                self._areas[label] = area
            try:
                yield area
            finally:
                with self._areas_lock:
                    del self._areas[label]

    def commit_lock(self, definition: Definition) -> AbstractContextManager[None]:
        return commit_lock(
            self.spark,
            definition.location,
            about=str(definition.name),
            wait_s=self._lock_wait_s,
        )

    def progress(self) -> list[Progress]:
        """How far the refreshes under way are."""
        with self._areas_lock:
            areas = list(self._areas.values())
        return [area.progress() for area in areas]

    @property
    def faults(self) -> tuple[type[BaseException], ...]:
        """What Spark, Delta and the way to them raise."""
        return SPARK_FAULTS

    def told(self, error: BaseException, *, about: str) -> RefreshError:
        return told(error, about=about)

    def cancel(self) -> None:
        """Stop the Spark jobs of all refreshes under way."""
        with self._areas_lock:
            for area in self._areas.values():
                area.cancel()


def _property(snapshot: Java, key: str) -> str | None:
    return jvm.option(snapshot.metadata().configuration().get(key))


def _typed(row: tuple[Any, ...], columns: Sequence[tuple[str, str]]) -> tuple[Any, ...]:
    """Instants come from the store as text."""
    return tuple(
        datetime.fromisoformat(value) if kind == "timestamp" and value is not None else value
        for value, (_, kind) in zip(row, columns, strict=True)
    )


def _unregistered(dynamic: DynamicSources) -> dict[str, DynamicSource]:
    return {key: source for key, source in dynamic.items() if not source.loaded}


def _pin_now(name: TableName, state: SourceState) -> Pin:
    return Pin(name=name, source_id=state.source_id, version=state.version, latest=state.version)


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


def _approximate(reading: Reading, columns: tuple[Column, ...]) -> tuple[str, ...]:
    """Columns that may hold floating aggregates, whose last digits Spark itself does not repeat."""
    if not reading.sums_floats:
        return ()
    return tuple(c.name for c in columns if c.type.upper() in ("DOUBLE", "FLOAT"))
