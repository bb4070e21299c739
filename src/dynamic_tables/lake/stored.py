"""The stored tables: plain Delta tables with the rows and definitions of dynamic tables."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from dynamic_tables.definition import Definition, InParts
from dynamic_tables.errors import (
    InternalError,
    InvalidInput,
    RefreshError,
    Refused,
    SetupError,
)
from dynamic_tables.lake import catalog, jvm, parts, pieces, snapshots, transaction
from dynamic_tables.lake.base import Layout, Standing
from dynamic_tables.lake.committing import in_order
from dynamic_tables.lake.faults import headline
from dynamic_tables.lake.jvm import Java
from dynamic_tables.lake.lock import commit_lock
from dynamic_tables.lake.row_groups import stored_order
from dynamic_tables.lake.sessions import private_session
from dynamic_tables.lake.shown import ShownTables
from dynamic_tables.lake.statements import (
    PROPERTY_DEFINITION,
    PROPERTY_ID,
    create_table,
    create_view,
    register,
    set_definition,
    shown,
)
from dynamic_tables.names import TableName, check_not_reserved, literal, quote
from dynamic_tables.reasons import Reason
from dynamic_tables.steps import CompactionStep, reached

# Our statements quote by these rules, whatever the user's session has.
PLAIN_LITERALS = {
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.variable.substitute": "false",
}
SESSION_CATALOG_NAMES = re.compile(r"[A-Za-z0-9_]+")  # what Spark's own catalog accepts


class StoredTables(ShownTables):
    """Making, finding, describing and deleting stored tables."""

    def __init__(self, spark: SparkSession, *, warehouse: str | None, lock_wait_s: float) -> None:
        self.spark = spark
        self._own: SparkSession | None = None  # for our statements; Delta leaves traces in sessions
        self._warehouse = warehouse
        self._lock_wait_s = lock_wait_s

    def _run(self, statement: str) -> DataFrame:
        """Run one of our statements without touching the user's session."""
        return self._own_session().sql(statement)

    def _own_session(self) -> SparkSession:
        if self._own is None:
            namespace = (self.spark.catalog.currentCatalog(), self.spark.catalog.currentDatabase())
            self._own = private_session(self.spark, settings=PLAIN_LITERALS, namespace=namespace)
        return self._own

    def check_name(self, name: TableName, *, instead_of: TableName | None = None) -> None:  # noqa: ARG002  any table may move to any schema
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
            return jvm.schema_location(self.spark, name.schema)
        except AnalysisException as error:
            raise InvalidInput(
                "there is no such schema",
                reason=Reason.BAD_NAME,
                about=f"{name.catalog}.{name.schema}",
                hint=f"CREATE SCHEMA {quote(name.schema)}",
            ) from error

    def is_laid_out(self, definition: Definition) -> bool:
        return self._stored_id(definition.location) == definition.table_id

    def lay_out(self, definition: Definition) -> None:
        """Make the empty stored table with its properties; nobody sees it yet."""
        try:
            self._run(create_table(definition))
        except AnalysisException as error:
            raise InvalidInput(
                headline(error), reason=Reason.BAD_COLUMNS, about=str(definition.name)
            ) from error

    def publish(self, definition: Definition) -> None:
        """Let the name point to the stored table, or be a view over it, if it is not yet."""
        if self._is_published(definition):
            return
        self._clear_form(definition)
        place = self._registered_at(definition.stored_name)
        if place is None:
            self._run(register(definition.stored_name, definition.location))
        elif place != definition.location:
            raise _taken(definition)
        if definition.auxiliary is not None:
            self._publish_view(definition)

    def _is_published(self, definition: Definition) -> bool:
        shown = definition.auxiliary is None or self._shows(definition)
        return shown and self._registered_at(definition.stored_name) == definition.location

    def _shows(self, definition: Definition) -> bool:
        """Whether the name is the view that this definition wants."""
        view = catalog.view(self.spark, definition.name)
        wanted = shown(definition.stored_name.sql, definition.columns, definition.hidden)
        return view is not None and view.text == wanted and not view.types

    def _clear_form(self, definition: Definition) -> None:
        """A table that was redefined may have had the other form."""
        if definition.auxiliary is not None:
            if self._registered_at(definition.name) == definition.location:
                self._run(f"DROP TABLE {definition.name.sql}")
        elif self._is_our_view(definition):
            self._run(f"DROP VIEW {definition.name.sql}")
            self._run(f"DROP TABLE IF EXISTS {definition.name.hidden.sql}")

    def _publish_view(self, definition: Definition) -> None:
        if catalog.exists(self.spark, definition.name) and not self._is_our_view(definition):
            raise _taken(definition)
        if definition.in_parts is None:
            self._run(create_view(definition))
        else:  # a view computes under the settings that it was made with
            settings = {**definition.settings, **PLAIN_LITERALS}
            private_session(self.spark, settings=settings, namespace=definition.namespace).sql(
                create_view(definition)
            )

    def _is_our_view(self, definition: Definition) -> bool:
        """Whether the name is the view over the stored table, of this definition or an older."""
        view = catalog.view(self.spark, definition.name)
        return view is not None and f" FROM {definition.name.hidden.sql}" in view.text

    def _registered_at(self, name: TableName) -> str | None:
        """Where the table of this name lies; None if nothing has the name."""
        if not catalog.exists(self.spark, name):
            return None
        try:
            return catalog.location(self.spark, name)
        except InvalidInput:
            return ""  # a view, or no Delta table

    def apply_layout(self, definition: Definition, changed: Collection[str]) -> None:
        """Options that Delta itself keeps: clustering and the comment."""
        table = f"delta.{quote(definition.location)}"
        options = definition.options
        with self.commit_lock(definition):
            if "cluster_by" in changed:
                columns = ", ".join(map(quote, options.cluster_by))
                self._run(f"ALTER TABLE {table} CLUSTER BY {f'({columns})' if columns else 'NONE'}")
            if "comment" in changed:
                self._run(f"COMMENT ON TABLE {table} IS {literal(options.comment or '')}")

    def optimize(self, definition: Definition, *, files_only: bool = False) -> None:
        """Compact the stored table, by Delta or in the order of ROW_GROUPS BY; no row changes.

        Of a table that is stored in parts, groups become one row each again. `files_only`: of a
        table that has an order, small files are merged as they are.
        """
        about = str(definition.name)
        with self.commit_lock(definition):
            reached(CompactionStep.LOCKED, about)
            present = self.standing(definition).definition  # who held the lock may have changed it
            if present.in_parts is not None:
                self._fold(present, present.in_parts)
                reached(CompactionStep.FOLDED, about)
            has_order = present.options.row_groups_by is not None
            if not has_order or (files_only and present.in_parts is None):
                self._merge_files(present)
                reached(CompactionStep.MERGED, about)
                return
        stored_order.put_in_order(self.spark, present, lock_wait_s=self._lock_wait_s)

    def _merge_files(self, definition: Definition) -> None:
        column = definition.options.row_groups_by
        if column is None:
            self._run(f"OPTIMIZE delta.{quote(definition.location)}")
        else:
            stored_order.merge_small(self._own_session(), definition.location, column)

    def _fold(self, definition: Definition, in_parts: InParts) -> None:
        session = private_session(
            self.spark, settings=definition.settings, namespace=definition.namespace
        )

        def form(stored: DataFrame) -> DataFrame:
            return in_order(parts.folded(stored, in_parts), in_parts.keys)

        def written() -> None:
            reached(CompactionStep.WRITTEN, str(definition.name))

        transaction.rewrite(session, definition.location, form, written)

    def stored_bytes(self, definition: Definition) -> int:
        return snapshots.table_bytes(self._known(definition))

    def layout(self, definition: Definition) -> Layout:
        """Every refresh leaves one or two small files.

        A partitioned table has many by its nature: what is not stored in parts is compacted by its
        owner, and of parts those of one partition count. Files in the order of ROW_GROUPS BY are as
        large as they should be.
        """
        snapshot, options = self._known(definition), definition.options
        found = Layout()
        if definition.in_parts is not None:
            of_parts = pieces.parts(self.spark, snapshot)
            found = Layout(
                small_files=of_parts.partial_files,
                rows=of_parts.rows,
                partial_rows=of_parts.partial_rows,
            )
        if (column := options.row_groups_by) is not None:
            disorder = stored_order.disorder(snapshot, column)
            found = replace(found, unordered_percent=disorder.percent)
            return (
                found
                if options.partitioned_by
                else replace(found, small_files=disorder.small_files)
            )
        if options.partitioned_by:
            return found
        return replace(found, small_files=pieces.small_files(self.spark, snapshot))

    def unpublish(self, definition: Definition) -> None:
        """Take the names away, unless they belong to another table; the files stay."""
        if self._is_our_view(definition):
            self._run(f"DROP VIEW {definition.name.sql}")
        for name in (definition.name, definition.name.hidden):
            if self._registered_at(name) == definition.location:
                self._run(f"DROP TABLE IF EXISTS {name.sql}")

    def save_definition(self, definition: Definition) -> None:
        """Keep the definition with the table, so that a lost store can be rebuilt.

        Who comes late, because it paused and another one took over, changes nothing.
        """
        with self.commit_lock(definition):
            if self.standing(definition).definition.revision < definition.revision:
                self._run(set_definition(definition))

    def erase(self, definition: Definition) -> None:
        """Delete the stored table's own folder, and nothing else."""
        if self._stored_id(definition.location) not in (None, definition.table_id):
            raise InternalError(
                "the folder belongs to another table",
                reason=Reason.LAKE_CHANGED,
                about=definition.location,
            )
        path, files = jvm.hadoop_path(self.spark, definition.location)
        if not files.delete(path, True) and files.exists(path):  # a local one says so, no more
            raise RefreshError(
                f"{definition.location} cannot be deleted",
                reason=Reason.NO_PERMISSION,
                about=str(definition.name),
                hint="give this user write access to the folder",
            )

    def _stored_id(self, location: str) -> str | None:
        return snapshots.table_property(self._snapshot_at(location), PROPERTY_ID)

    def standing(self, definition: Definition) -> Standing:
        snapshot = self._snapshot_at(definition.location)
        text = snapshots.table_property(snapshot, PROPERTY_DEFINITION)
        if text is None:
            raise SetupError(
                f"the stored table is not at {definition.location} any more",
                reason=Reason.LAKE_CHANGED,
                about=str(definition.name),
                hint=f"DROP DYNAMIC TABLE {definition.name} and create it again",
            )
        return Standing(
            sequence=snapshots.transaction_version(snapshot, definition.table_id) or 0,
            version=snapshot.version(),
            definition=Definition.from_json(json.loads(text)),
            columns=catalog.columns_of(snapshot.metadata().schema()),
        )

    def _snapshot_at(self, location: str) -> Java:
        log = snapshots.delta_log_by_path(self.spark, location)
        return snapshots.newest_snapshot(self.spark, log)

    def _known(self, definition: Definition) -> Java:
        """As it was seen or written last by this process, which suffices for its sizes: a refresh
        asks for `standing` first."""
        log = snapshots.delta_log_by_path(self.spark, definition.location)
        return snapshots.known_snapshot(self.spark, log)

    def version_of(self, definition: Definition) -> int:
        return self._snapshot_at(definition.location).version()

    def row_count(self, definition: Definition) -> int | None:
        """How many rows stand, if Delta knows without counting them."""
        return snapshots.row_count(self.spark, self._known(definition))

    def stored_definitions(self) -> Iterator[Definition]:
        """The definitions that lie in the schemas' folders, for rebuilding a lost store."""
        for location in self._folders():
            snapshot = self._snapshot_at(location)
            text = snapshots.table_property(snapshot, PROPERTY_DEFINITION)
            if text is None:
                continue
            definition = Definition.from_json(json.loads(text))
            if definition.location.rstrip("/") == location.rstrip("/"):
                yield definition  # a copy or clone lies elsewhere: no dynamic table of ours

    def _folders(self) -> Iterator[str]:
        """Every Delta table directly below the warehouse or one of its schemas' folders."""
        roots = {self._warehouse} if self._warehouse else set()
        for schema in self.spark.catalog.listDatabases():
            roots.add(jvm.schema_location(self.spark, schema.name))
        seen = set()
        for root in sorted(roots):
            path, files = jvm.hadoop_path(self.spark, root)
            for status in files.listStatus(path) if files.exists(path) else ():
                place = status.getPath().toString()
                log, _ = jvm.hadoop_path(self.spark, f"{place}/_delta_log")
                if place not in seen and files.exists(log):
                    seen.add(place)
                    yield place

    def commit_lock(self, definition: Definition) -> AbstractContextManager[None]:
        return commit_lock(
            self.spark,
            definition.location,
            about=str(definition.name),
            wait_s=self._lock_wait_s,
        )


def _taken(definition: Definition) -> Refused:
    return Refused(
        "the name belongs to another table, so the dynamic table cannot be seen under it",
        reason=Reason.ALREADY_EXISTS,
        about=str(definition.name),
        hint=f"drop or rename the other one, or ALTER DYNAMIC TABLE {definition.name} RENAME TO …",
    )
