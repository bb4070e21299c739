"""Let a statement of the user read the store: its tables are temporary views for a moment."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from string import whitespace
from typing import Any

from pyspark.sql import SparkSession

from dynamic_tables.errors import InvalidInput
from dynamic_tables.lake import catalog, jvm
from dynamic_tables.lake.references import find_references
from dynamic_tables.names import qualify, quote


@contextmanager
def store_views(
    spark: SparkSession,
    namespace: tuple[str, str],
    text: str,
    names: Collection[str],
    rows_of: Callable[[str], Any],
) -> Generator[None]:
    """The tables of the store that a statement names are there while it is analysed."""
    made = []
    for name in _mentioned(spark, namespace, text, names):
        columns, rows = rows_of(name)
        schema = ", ".join(f"{quote(column)} {kind}" for column, kind in columns)
        frame = spark.createDataFrame([_typed(row, columns) for row in rows], schema)
        frame.createOrReplaceTempView(name)
        made.append(name)
    try:
        yield
    finally:
        for name in made:
            spark.catalog.dropTempView(name)


def _mentioned(
    spark: SparkSession, namespace: tuple[str, str], text: str, names: Collection[str]
) -> Iterator[str]:
    """Tables of the store that a query names, unless the user has tables called the same."""
    if not any(name in text.lower() for name in names):
        return
    try:
        found = find_references(spark, text.rstrip(f";{whitespace}"))  # which Spark reads past
    except InvalidInput:
        return  # not a query: Spark will say what it is
    for reference in found.tables:
        name = reference.parts[-1].lower()
        ours = len(reference.parts) == 1 and name in names
        if ours and not _is_taken(spark, namespace, name):
            yield name


def _is_taken(spark: SparkSession, namespace: tuple[str, str], name: str) -> bool:
    """Whether the user has a table, a view or a temporary view of this name."""
    table = qualify((name,), namespace)
    return jvm.is_temporary_view(spark, name) or catalog.exists(spark, table)


def _typed(row: tuple[Any, ...], columns: Sequence[tuple[str, str]]) -> tuple[Any, ...]:
    """Instants come from the store as text."""
    return tuple(
        datetime.fromisoformat(value) if kind == "timestamp" and value is not None else value
        for value, (_, kind) in zip(row, columns, strict=True)
    )
