"""The embedded catalog lives in memory; here its content is listed, and put back in the next
process.

Spark's in-memory catalog knows nothing after a restart. Tables are Delta folders and can be
registered again; views and schemas are put back from what was listed before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from dynamic_tables.lake import catalog, jvm, snapshots
from dynamic_tables.lake.jvm import Java
from dynamic_tables.lake.places import local_path, location_of
from dynamic_tables.lake.statements import register
from dynamic_tables.names import TableName, literal, quote

SCHEMA_SUFFIX = ".db"  # how Spark names the folder of a schema
DEFAULT_SCHEMA = "default"
CATALOG_PACKAGE = "org.apache.spark.sql.catalyst.catalog"


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogEntry:
    """One object of the embedded catalog."""

    kind: Literal["schema", "table", "view"]
    name: tuple[str, ...]  # schema, or schema and table
    location: str | None = None
    text: str | None = None  # of a view
    extra: Mapping[str, Any] = field(default_factory=dict)  # of a view: what Spark keeps with it


def listed(spark: SparkSession) -> Iterator[CatalogEntry]:
    """Everything in Spark's own catalog, schemas first."""
    schemas = list(jvm.items(jvm.session_catalog(spark).externalCatalog().listDatabases()))
    for schema in schemas:
        if schema != DEFAULT_SCHEMA:
            location = jvm.schema_location(spark, schema)
            yield CatalogEntry(kind="schema", name=(schema,), location=location)
    for schema in schemas:
        yield from _tables(spark, schema)


def _tables(spark: SparkSession, schema: str) -> Iterator[CatalogEntry]:
    external = jvm.session_catalog(spark).externalCatalog()
    for name in jvm.items(external.listTables(schema)):
        metadata = external.getTable(schema, name)
        if metadata.tableType().name() == "VIEW":
            yield CatalogEntry(
                kind="view",
                name=(schema, name),
                text=jvm.option(metadata.viewText()),
                extra={
                    "schema": metadata.schema().json(),
                    "properties": jvm.pairs(metadata.properties()),
                    "version": metadata.createVersion(),
                    "comment": jvm.option(metadata.comment()),
                },
            )
        elif jvm.option(metadata.provider()) == "delta":
            yield CatalogEntry(
                kind="table",
                name=(schema, name),
                location=jvm.location_text(spark, metadata.location()),
            )


def restore(spark: SparkSession, entry: CatalogEntry) -> bool:
    """Put one object back; False if what it needs is not there any more."""
    if entry.kind == "schema":
        location = f" LOCATION {literal(entry.location)}" if entry.location else ""
        spark.sql(f"CREATE SCHEMA IF NOT EXISTS {quote(entry.name[0])}{location}")
        return True
    name = TableName(catalog.SESSION_CATALOG, *entry.name)
    if catalog.exists(spark, name):
        return True
    if entry.kind == "table":
        return _restore_table(spark, name, str(entry.location))
    return _restore_view(spark, name, entry)


def _restore_table(spark: SparkSession, name: TableName, location: str) -> bool:
    snapshot = snapshots.newest_snapshot(spark, snapshots.delta_log_by_path(spark, location))
    if snapshot.version() < 0:
        return False
    spark.sql(register(name, location))
    if _lies_in_schema(spark, name.schema, location):
        _make_managed(spark, name)
    return True


def _lies_in_schema(spark: SparkSession, schema: str, location: str) -> bool:
    schema_location = jvm.schema_location(spark, schema)
    folder, home = local_path(location), local_path(schema_location)
    if folder is None or home is None:
        return location.rstrip("/").rpartition("/")[0] == schema_location.rstrip("/")
    return folder.parent == home


def _make_managed(spark: SparkSession, name: TableName) -> None:
    """A table in its schema's own folder was made without LOCATION: DROP TABLE must delete its
    files."""
    managed = jvm.static(spark, f"{CATALOG_PACKAGE}.CatalogTableType", "MANAGED")()
    _alter(spark, name, tableType=managed)


def _restore_view(spark: SparkSession, name: TableName, entry: CatalogEntry) -> bool:
    """As Spark kept it: made anew, `*` would mean what the tables have by now."""
    kept, text = entry.extra, jvm.some(spark, entry.text)
    try:
        spark.sql(f"CREATE VIEW {name.sql} AS SELECT 1 AS x")
    except AnalysisException:
        return False  # its schema is not there
    _alter(
        spark,
        name,
        schema=jvm.struct_type(spark, kept["schema"]),
        properties=jvm.scala_map(spark, jvm.java_map(spark, kept["properties"])),
        createVersion=kept["version"],
        viewText=text,
        viewOriginalText=text,
        comment=jvm.some(spark, kept["comment"]),
    )
    return True


def _alter(spark: SparkSession, name: TableName, **changes: Java) -> None:
    """Spark offers no statement for this; the catalog's entry is copied with other values."""
    external = jvm.session_catalog(spark).externalCatalog()
    entry = external.getTable(name.schema.lower(), name.name.lower())
    names = entry.productElementNames().mkString(",").split(",")
    values = [changes.get(key, entry.productElement(n)) for n, key in enumerate(names)]
    external.alterTable(jvm.java_class(spark, f"{CATALOG_PACKAGE}.CatalogTable")(*values))


def drop_view(spark: SparkSession, entry: CatalogEntry) -> None:
    """Forget a view; a table that has its name by now stays."""
    name = TableName(catalog.SESSION_CATALOG, *entry.name)
    if catalog.view(spark, name) is not None:
        spark.sql(f"DROP VIEW {name.sql}")


def lying_about(spark: SparkSession, warehouse: Path) -> Iterator[CatalogEntry]:
    """Delta tables in the warehouse folder, whoever made them."""
    for place in sorted(warehouse.iterdir()) if warehouse.is_dir() else ():
        if place.name.endswith(SCHEMA_SUFFIX):
            schema = place.name.removesuffix(SCHEMA_SUFFIX)
            yield CatalogEntry(kind="schema", name=(schema,), location=location_of(place))
            for table in sorted(place.iterdir()):
                yield from _delta_folder(spark, schema, table)
        else:
            yield from _delta_folder(spark, DEFAULT_SCHEMA, place)


def _delta_folder(spark: SparkSession, schema: str, place: Path) -> Iterator[CatalogEntry]:
    """A plain Delta table; the stored tables of dynamic ones have names of their own."""
    if not (place / "_delta_log").is_dir():
        return
    snapshot = snapshots.newest_snapshot(
        spark, snapshots.delta_log_by_path(spark, location_of(place))
    )
    dynamic = snapshots.table_property(snapshot, "dynamic_tables.id")
    if dynamic is None:
        yield CatalogEntry(kind="table", name=(schema, place.name), location=location_of(place))
