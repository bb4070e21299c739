"""A table's columns as its files have them: physical names, field ids, what has statistics."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from dynamic_tables.lake.jvm import Java, items, option
from dynamic_tables.lake.row_groups.order import PHYSICAL_NAME
from dynamic_tables.lake.row_groups.refusals import (
    no_column,
    partition_column,
    unfit_column,
    unknown_type,
)
from dynamic_tables.lake.row_groups.statistics import Leaf
from dynamic_tables.names import quote

FIELD_ID = "delta.columnMapping.id"
EXACT = (
    *(BinaryType, BooleanType, ByteType, DateType, DecimalType, IntegerType, LongType, ShortType),
    *(StringType, TimestampNTZType, TimestampType),
)
KNOWN = (*EXACT, FloatType, DoubleType)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The columns of a table."""

    table: str  # what it is called in errors
    columns: StructType  # as users see them, with Delta's metadata
    partition_columns: tuple[str, ...]
    mapped: bool  # files have other names than users see
    row_ids: tuple[str, str] | None  # physical names of row id and commit version, if tracked
    leaves: tuple[Leaf, ...]  # what Delta wants statistics of

    @property
    def stored(self) -> list[StructField]:
        """The columns that are in the files."""
        return [field for field in self.columns if field.name not in self.partition_columns]

    def find(self, name: str, *, what: str) -> StructField:
        """A stored column by a name in any case."""
        for field in self.columns:
            if field.name.lower() == name.lower():
                return self._usable(field, what)
        raise no_column(name, what=what, table=self.table, known=self.columns.names)

    def _usable(self, field: StructField, what: str) -> StructField:
        if field.name in self.partition_columns:
            raise partition_column(field.name, what=what, table=self.table)
        if not isinstance(field.dataType, EXACT):
            kind = field.dataType.simpleString()
            raise unfit_column(field.name, kind, what=what, table=self.table)
        return field

    def physical_name(self, field: StructField) -> str:
        return field.metadata[PHYSICAL_NAME] if self.mapped else field.name

    def partition_values(self, values: Mapping[str, str | None]) -> dict[str, str | None]:
        """The log's partition values under the names that users see."""
        fields = [field for field in self.columns if field.name in self.partition_columns]
        return {field.name: values[self.physical_name(field)] for field in fields}

    def as_stored(self) -> list[Column]:
        """The columns under the names that files have for them, those inside structs too."""
        return [
            F.col(quote(field.name))
            .cast(self._physical(field.dataType))
            .alias(self.physical_name(field))
            for field in self.stored
        ]

    def _physical(self, kind: DataType) -> DataType:
        match kind:
            case StructType():
                return StructType(
                    [
                        StructField(self.physical_name(f), self._physical(f.dataType))
                        for f in kind.fields
                    ]
                )
            case ArrayType():
                return ArrayType(self._physical(kind.elementType))
            case MapType():
                return MapType(self._physical(kind.keyType), self._physical(kind.valueType))
        return kind

    @property
    def leaf_count(self) -> int:
        """How many columns a file has."""
        return sum(map(leaf_count, self.stored))

    @property
    def field_ids(self) -> dict[tuple[str, ...], int]:
        """Of column mapping, by path in the file."""
        return dict(self._ids(StructType(self.stored), ())) if self.mapped else {}

    def _ids(self, kind: DataType, path: tuple[str, ...]) -> Iterator[tuple[tuple, int]]:
        match kind:
            case StructType():
                for field in kind.fields:
                    below = (*path, self.physical_name(field))
                    yield below, field.metadata[FIELD_ID]
                    yield from self._ids(field.dataType, below)
            case ArrayType():
                yield from self._ids(kind.elementType, (*path, "element"))
            case MapType():
                yield from self._ids(kind.keyType, (*path, "key"))
                yield from self._ids(kind.valueType, (*path, "value"))


def leaf_count(field: StructField) -> int:
    """How many columns of a file a column is; the fields of a struct are one each."""
    kind = field.dataType
    match kind:
        case StructType():
            return sum(map(leaf_count, kind.fields))
        case ArrayType():
            return leaf_count(StructField("", kind.elementType))
        case MapType():
            inner = StructField("", kind.keyType), StructField("", kind.valueType)
            return sum(map(leaf_count, inner))
    return 1


def schema_of(snapshot: Java, table: str) -> Schema:
    """The columns of a table, as its newest metadata has them."""
    metadata = snapshot.metadata()
    configuration = metadata.configuration()
    columns = StructType.fromJson(json.loads(metadata.schema().json()))
    _check_types(columns, table)
    mode = option(configuration.get("delta.columnMapping.mode"))
    tracked = option(configuration.get("delta.enableRowTracking")) == "true"
    row_ids = tuple(
        option(configuration.get(f"delta.rowTracking.materialized{what}ColumnName")) or ""
        for what in ("RowId", "RowCommitVersion")
    )
    return Schema(
        table=table,
        columns=columns,
        partition_columns=tuple(items(metadata.partitionColumns())),
        mapped=mode not in (None, "none"),
        row_ids=(row_ids[0], row_ids[1]) if tracked else None,
        leaves=_leaves(json.loads(snapshot.statsSchema().json())),
    )


def _leaves(statistics: Mapping) -> tuple[Leaf, ...]:
    """What Delta counts NULLs of, and which of them have bounds."""
    parts = {field["name"]: field["type"] for field in statistics["fields"]}
    bounded = set(_paths(parts.get("minValues")))
    return tuple(Leaf(path, path in bounded) for path in _paths(parts.get("nullCount")))


def _paths(kind: Mapping | str | None, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(kind, Mapping):
        for field in kind["fields"]:
            yield from _paths(field["type"], (*above, field["name"]))
    elif kind is not None:
        yield above


def _check_types(kind: DataType, table: str, above: str = "") -> None:
    match kind:
        case StructType():
            for field in kind.fields:
                name = f"{above}.{field.name}" if above else field.name
                _check_types(field.dataType, table, name)
        case ArrayType():
            _check_types(kind.elementType, table, f"{above}.element")
        case MapType():
            _check_types(kind.keyType, table, f"{above}.key")
            _check_types(kind.valueType, table, f"{above}.value")
        case _ if not isinstance(kind, KNOWN) or "collate" in kind.simpleString().lower():
            raise unknown_type(above, kind.simpleString(), table)
