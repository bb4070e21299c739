"""From a name in a query to what it is: a Delta table, a view, or nothing we can keep up with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os.path import normpath
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from dynamic_tables.compiler.references import TableReference
from dynamic_tables.definition import Column, ViewUse
from dynamic_tables.errors import InvalidInput
from dynamic_tables.lake import jvm, snapshots
from dynamic_tables.lake.base import SourceState
from dynamic_tables.lake.jvm import Java
from dynamic_tables.lake.places import LOCAL_SCHEME, local_path, location_of
from dynamic_tables.lake.sessions import view_settings
from dynamic_tables.names import MAX_PARTS, RESERVED_PREFIX, TableName, qualify, quote
from dynamic_tables.reasons import Reason

FILE_FORMATS = frozenset(["avro", "binaryfile", "csv", "json", "orc", "parquet", "text", "xml"])
SESSION_CATALOG = "spark_catalog"
FOLLOWS_TYPES = frozenset({"TYPE EVOLUTION", "EVOLUTION"})  # views: WITH SCHEMA …
VIEW_ROWS = f"{RESERVED_PREFIX}view_rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A view as its catalog keeps it."""

    name: TableName
    text: str
    columns: tuple[str, ...]  # the names it gives to its query's columns
    query_columns: tuple[str, ...]  # their names in the query when the view was made
    namespace: tuple[str, str]  # in force when it was made
    settings: Mapping[str, str]  # result-relevant ones in force when it was made
    types: tuple[str, ...] = ()  # that it gives to its columns; none: those that its text has now

    @property
    def has_equal_names(self) -> bool:
        """Two columns of its query are called the same: they cannot be told apart by name."""
        return len({name.lower() for name in self.query_columns}) != len(self.query_columns)

    def over(self, text: str, types: Sequence[str] = ()) -> str:
        """What readers see of a text: the columns that the view has, of the types it gives them.

        `*` means what it meant when the view was made. Columns that have their `types` already are
        left as they are.
        """
        names = self.query_columns or self.columns  # none are kept of views that follow their query
        source = f"({text}\n)"
        if self.has_equal_names:  # by their places, then
            names = self.columns
            source += f" AS {quote(VIEW_ROWS)} ({', '.join(map(quote, names))})"
        given = self.types or ("",) * len(self.columns)
        present = types or ("",) * len(self.columns)
        items = ", ".join(
            f"{_cast(old, wanted, there)} AS {quote(new)}"
            for old, new, wanted, there in zip(names, self.columns, given, present, strict=True)
        )
        return f"SELECT {items} FROM {source}"  # noqa: S608  quoted


def _cast(column: str, wanted: str, present: str) -> str:
    return quote(column) if wanted in ("", present) else f"CAST({quote(column)} AS {wanted})"


def view_of(use: ViewUse) -> View:
    """A view as a definition keeps it."""
    return View(
        name=use.name,
        text=use.text,
        columns=use.columns,
        query_columns=use.query_columns,
        namespace=use.namespace,
        settings=use.settings,
        types=use.types,
    )


def path_name(path: str) -> TableName:
    """How a delta.`path` relation is named in definitions and pins."""
    return TableName("", "delta", path)


def name_sql(name: TableName) -> str:
    """A source's name as Spark SQL; path relations have no catalog."""
    return name.sql if name.catalog else f"delta.{quote(name.name)}"


def resolve(
    spark: SparkSession,
    reference: TableReference,
    namespace: tuple[str, str],
    *,
    in_view: bool = False,  # the text of a view never means temporary views
) -> TableName:
    """The qualified name that Spark would find; temporary views are refused."""
    parts = reference.parts
    if parts[0].lower() == "global_temp" or (
        len(parts) == 1 and not in_view and jvm.is_temporary_view(spark, parts[0])
    ):
        raise InvalidInput(
            "is a temporary view: it ends with the session, the dynamic table does not",
            reason=Reason.TEMPORARY_OBJECT,
            about=".".join(parts),
            hint="make it a view: CREATE VIEW … AS …",
        )
    if len(parts) > MAX_PARTS:
        raise InvalidInput(
            "names with more than three parts are not supported",
            reason=Reason.BAD_NAME,
            about=".".join(parts),
            hint="write catalog.schema.table",
        )
    name = qualify(parts, namespace)
    if _is_path(spark, name, len(parts)):
        return path_name(name.name)
    return name


def _is_path(spark: SparkSession, name: TableName, parts: int) -> bool:
    """format.`path`, unless a schema of that name has such a table.

    Delta's catalog takes a path for a table of the schema `delta`, also when catalog or schema are
    left out or spelled out; no table of Spark's own catalog has a slash in its name.
    """
    source = name.schema.lower()
    in_session_catalog = name.catalog.lower() == SESSION_CATALOG
    if source == "delta" and in_session_catalog and "/" in name.name:
        return True
    if parts != 2 or (source != "delta" and source not in FILE_FORMATS):  # noqa: PLR2004
        return False
    if exists(spark, name):
        return False
    if source != "delta":
        raise not_delta(f"{name.schema}.{quote(name.name)}", f"{source} files have no versions")
    return True


def exists(spark: SparkSession, name: TableName) -> bool:
    """Spark's own catalog is asked first: the general question takes ten times as long."""
    if name.catalog.lower() == SESSION_CATALOG:
        identifier = jvm.table_identifier(spark, name.schema, name.name)
        if jvm.session_catalog(spark).tableExists(identifier):
            return True
    return spark.catalog.tableExists(name.sql)


def location(spark: SparkSession, name: TableName) -> str:
    """Where a Delta table lies; refuses what is no Delta table."""
    return log_of(spark, name).dataPath().toString()


def view(spark: SparkSession, name: TableName) -> View | None:
    """The view of this name; None if it is a table (or not there)."""
    if name.catalog.lower() != SESSION_CATALOG or not exists(spark, name):
        return None
    metadata = _metadata(spark, name)
    if metadata.tableType().name() != "VIEW":
        return None
    text = jvm.option(metadata.viewText())
    if text is None:
        raise not_delta(str(name), "the view has no text")
    namespace = [*jvm.items(metadata.viewCatalogAndNamespace())]
    columns = columns_of(metadata.schema())
    has_types = metadata.viewSchemaMode().toString() not in FOLLOWS_TYPES
    return View(
        name=name,
        text=text,
        columns=tuple(column.name for column in columns),
        query_columns=tuple(jvm.items(metadata.viewQueryColumnNames())),
        namespace=(namespace[0], namespace[1]),
        settings=view_settings(spark, metadata),
        types=tuple(column.type for column in columns) if has_types else (),
    )


def _metadata(spark: SparkSession, name: TableName) -> Java:
    identifier = jvm.table_identifier(spark, name.schema, name.name)
    return jvm.session_catalog(spark).getTableMetadata(identifier)


def state(spark: SparkSession, name: TableName) -> SourceState:
    """A Delta table as it is now; refuses what is no Delta table."""
    return _state_of(spark, name, log_of(spark, name))


def state_at(spark: SparkSession, name: TableName, location: str) -> SourceState:
    """The same for a stored table whose name is not registered yet."""
    return _state_of(spark, name, snapshots.delta_log_by_path(spark, location))


def known_state(spark: SparkSession, name: TableName, location: str) -> SourceState:
    """The same as this process saw it last."""
    log = snapshots.delta_log_by_path(spark, location)
    return _state_of(spark, name, log, snapshots.known_snapshot(spark, log))


def _state_of(
    spark: SparkSession, name: TableName, log: Java, snapshot: Java | None = None
) -> SourceState:
    snapshot = snapshot or snapshots.newest_snapshot(spark, log)
    if snapshot.version() < 0:
        raise unknown(name)
    metadata = snapshot.metadata()
    return SourceState(
        source_id=metadata.id(),
        version=snapshot.version(),
        columns=columns_of(metadata.schema()),
        location=log.dataPath().toString(),
        has_feed=snapshots.has_feed(snapshot),
        bytes=snapshots.table_bytes(snapshot),
        kept_s=snapshots.kept_ms(spark, log, metadata) / 1000,
    )


def log_of(spark: SparkSession, name: TableName) -> Java:
    """Delta's log of a table; refuses what is no Delta table."""
    if not name.catalog:
        return snapshots.delta_log_by_path(spark, name.name)
    try:
        own = _own_delta_table(spark, name)
        if own is not None:
            return snapshots.delta_log_of(spark, own)
        if not exists(spark, name):
            raise unknown(name)
        return snapshots.delta_log_by_name(spark, name.sql)
    except AnalysisException as error:
        raise _told(spark, name, error) from error
    except Py4JJavaError as error:
        raise not_delta(str(name), str(error.java_exception.getMessage())) from error


def _own_delta_table(spark: SparkSession, name: TableName) -> Java | None:
    """A Delta table of Spark's own catalog, as that keeps it: the general way to a table resolves a
    query over it, which takes ten times as long."""
    if name.catalog.lower() != SESSION_CATALOG:
        return None
    if not jvm.session_catalog(spark).tableExists(
        jvm.table_identifier(spark, name.schema, name.name)
    ):
        return None
    found = _metadata(spark, name)
    provider = jvm.option(found.provider())  # a view has none
    return found if provider is not None and provider.lower() == "delta" else None


def _told(spark: SparkSession, name: TableName, error: AnalysisException) -> InvalidInput:
    condition = error.getCondition() or ""
    if "NOT_FOUND" in condition:
        return unknown(name)
    if name.catalog.lower() == SESSION_CATALOG and exists(spark, name):
        provider = jvm.option(_metadata(spark, name).provider())
        return not_delta(str(name), f"it is a {provider} table")
    return not_delta(str(name), str(error).splitlines()[0])


def unknown(name: TableName) -> InvalidInput:
    return InvalidInput(
        "there is no such table or view",
        reason=Reason.UNKNOWN_SOURCE,
        about=str(name) if name.catalog else name_sql(name),
        hint="SHOW TABLES lists what there is; names without a schema belong to the one that was "
        "current at CREATE. If a dynamic table reads it, make it again, or CREATE OR ALTER that"
        " table without it",
    )


def not_delta(about: str, why: str) -> InvalidInput:
    return InvalidInput(
        f"cannot be a source: {why}",
        reason=Reason.SOURCE_NOT_DELTA,
        about=about,
        hint="sources are Delta tables, or views over them: CREATE TABLE … USING delta AS SELECT …",
    )


def columns_of(java_schema: Java) -> tuple[Column, ...]:
    """Names and types of a Java StructType; Delta stores no NOT NULL inside arrays and maps.

    Only a schema that was not seen before is asked for its columns one by one.
    """
    described = java_schema.json()
    if described not in _columns:
        _columns[described] = tuple(
            Column(name=field.name(), type=field.dataType().asNullable().sql())
            for field in java_schema.fields()
        )
    return _columns[described]


_columns: dict[str, tuple[Column, ...]] = {}  # by the schema's JSON


def check_path(path: str, roots: tuple[str, ...]) -> None:
    """A path relation must lie below one of the allowed roots, links resolved."""
    wanted = _normal(path)
    places = [_normal(root) for root in roots]
    if any(wanted == root or wanted.startswith(root.rstrip("/") + "/") for root in places):
        return
    raise InvalidInput(
        "the path is outside the allowed roots",
        reason=Reason.PATH_NOT_ALLOWED,
        about=path,
        hint="name its folder in the setting allowed_roots, or CREATE TABLE … LOCATION …",
    )


def _normal(path: str) -> str:
    """One spelling per place: local paths without links, others as they are without `..`.

    As Hadoop does it: `..` first, links afterwards; `%2e` is no dot.
    """
    if "://" not in path and not path.startswith(LOCAL_SCHEME):
        path = location_of(Path(path).absolute())  # as Spark reads a path without a scheme
    local = local_path(path)
    if local is not None:
        return location_of(Path(normpath(local)).resolve())
    return "refused:" if ".." in path.split("/") else path.rstrip("/")
