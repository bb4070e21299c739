"""The columns of a table as its metadata has them, and as its files do: names, ids, Arrow types."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from dynamic_tables.lake.plain_delta.log import Metadata
from dynamic_tables.lake.row_groups.order import PHYSICAL_NAME
from dynamic_tables.lake.row_groups.refusals import (
    no_column,
    partition_column,
    ranged_column,
    unfit_column,
    unknown_type,
)
from dynamic_tables.lake.row_groups.statistics import Leaf
from dynamic_tables.lake.row_groups.writing import with_field_ids

FIELD_ID = "delta.columnMapping.id"
COLLATIONS, DEFAULT = "__COLLATIONS", "EXISTS_DEFAULT"  # of a column's metadata
INDEXED_COLUMNS = 32  # have statistics, unless the table says otherwise
PLAIN = {
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "date": pa.date32(),
    "double": pa.float64(),
    "float": pa.float32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "short": pa.int16(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
WITHOUT_BOUNDS = ("binary", "boolean")
UNFIT = ("double", "float")  # readers skip nothing by them

Field = Mapping[str, Any]  # of a struct, as the metadata has it
Kind = Any  # a name, or a mapping for structs, lists and maps


@dataclass(frozen=True)
class Columns:
    """The columns of a table."""

    table: str  # what it is called in errors
    metadata: Metadata

    def __post_init__(self) -> None:
        for field in self.all:
            _check_type(field, field["type"], field["name"], self.table)

    @cached_property
    def all(self) -> Sequence[Field]:
        return json.loads(self.metadata.schema)["fields"]

    @property
    def stored(self) -> list[Field]:
        """Those that are in the files."""
        return [f for f in self.all if f["name"] not in self.metadata.partition_columns]

    @property
    def mapping(self) -> str:
        """How columns are found in files: none | name | id."""
        return self.metadata.configuration.get("delta.columnMapping.mode", "none")

    @property
    def row_ids(self) -> tuple[str, str] | None:
        """Names in files of row id and commit version, if the table tracks its rows."""
        if not self.metadata.is_on("delta.enableRowTracking"):
            return None
        key = "delta.rowTracking.materialized{}ColumnName"
        found = [self.metadata.configuration[key.format(n)] for n in ("RowId", "RowCommitVersion")]
        return found[0], found[1]

    def physical_name(self, field: Field) -> str:
        return field["metadata"][PHYSICAL_NAME] if self.mapping != "none" else field["name"]

    def partition_values(self, values: Mapping[str, str | None]) -> dict[str, str | None]:
        """The log's partition values under the names that users see."""
        fields = [f for f in self.all if f["name"] in self.metadata.partition_columns]
        return {field["name"]: values[self.physical_name(field)] for field in fields}

    def find(self, name: str, *, what: str) -> Field:
        """A stored column by a name in any case, if rows can be put in its order."""
        found = next((f for f in self.all if f["name"].lower() == name.lower()), None)
        if found is None:
            known = [field["name"] for field in self.all]
            raise no_column(name, what=what, table=self.table, known=known)
        if found["name"] in self.metadata.partition_columns:
            raise partition_column(found["name"], what=what, table=self.table)
        if not isinstance(found["type"], str) or found["type"] in UNFIT:
            raise unfit_column(found["name"], _shown(found["type"]), what=what, table=self.table)
        return found

    def ranged_column(self) -> str:
        return ranged_column(self.metadata.partition_columns, self.table)

    @cached_property
    def arrow(self) -> pa.Schema:
        """As files have them, with the ids of column mapping; row ids are not among them."""
        plain = pa.schema([self._arrow_field(field) for field in self.stored])
        return with_field_ids(plain, self.field_ids)

    def _arrow_field(self, field: Field) -> pa.Field:
        return pa.field(self.physical_name(field), self._arrow_type(field["type"]))

    def _arrow_type(self, kind: Kind) -> pa.DataType:
        if isinstance(kind, str):
            return _plain_type(kind)
        if kind["type"] == "struct":
            return pa.struct([self._arrow_field(field) for field in kind["fields"]])
        if kind["type"] == "array":
            return pa.list_(pa.field("element", self._arrow_type(kind["elementType"])))
        inner = self._arrow_type(kind["keyType"]), self._arrow_type(kind["valueType"])
        return pa.map_(pa.field("key", inner[0], nullable=False), pa.field("value", inner[1]))

    @cached_property
    def field_ids(self) -> dict[tuple[str, ...], int]:
        """Of column mapping, by path in the file."""
        inner = {"type": "struct", "fields": self.stored}
        return dict(self._ids(inner, ())) if self.mapping != "none" else {}

    def _ids(self, kind: Kind, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int]]:
        if isinstance(kind, str):
            return
        for field in kind.get("fields", ()):
            below = (*path, self.physical_name(field))
            yield below, field["metadata"][FIELD_ID]
            yield from self._ids(field["type"], below)
        for part, name in (("elementType", "element"), ("keyType", "key"), ("valueType", "value")):
            if part in kind:
                yield from self._ids(kind[part], (*path, name))

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        """What has statistics: the first columns, or those that the table names."""
        found = [
            (visible, Leaf(path, bounded))
            for field in self.stored
            for visible, path, bounded in self._leaves(field, (), ())
        ]
        named = self.metadata.configuration.get("delta.dataSkippingStatsColumns")
        if named is not None:
            wanted = {name.strip().replace("`", "").lower() for name in named.split(",")}
            return tuple(leaf for visible, leaf in found if _is_named(visible, wanted))
        limit = int(
            self.metadata.configuration.get("delta.dataSkippingNumIndexedCols", INDEXED_COLUMNS)
        )
        return tuple(leaf for _, leaf in (found if limit < 0 else found[:limit]))

    def _leaves(
        self, field: Field, above: tuple[str, ...], visible: tuple[str, ...]
    ) -> Iterator[tuple[tuple[str, ...], tuple[str, ...], bool]]:
        path, names = (*above, self.physical_name(field)), (*visible, field["name"].lower())
        kind = field["type"]
        if isinstance(kind, str):
            yield names, path, kind not in WITHOUT_BOUNDS
        elif kind["type"] == "struct":
            for inner in kind["fields"]:
                yield from self._leaves(inner, path, names)
        else:
            yield names, path, False

    @property
    def with_defaults(self) -> set[str]:
        """Columns, as files call them, that have a value where a file lacks them."""
        return {self.physical_name(f) for f in self.stored if DEFAULT in f["metadata"]}


def _is_named(visible: tuple[str, ...], wanted: set[str]) -> bool:
    return any(".".join(visible[:n]) in wanted for n in range(1, len(visible) + 1))


def _plain_type(kind: str) -> pa.DataType:
    """
    >>> _plain_type("decimal(10,2)")
    Decimal128Type(decimal128(10, 2))
    """
    if (digits := DECIMAL.fullmatch(kind)) is not None:
        return pa.decimal128(int(digits[1]), int(digits[2]))
    return PLAIN[kind]


def _check_type(field: Field, kind: Kind, name: str, table: str) -> None:
    if COLLATIONS in field.get("metadata", {}):
        raise unknown_type(name, "string with a collation", table)
    if isinstance(kind, str):
        if kind not in PLAIN and DECIMAL.fullmatch(kind) is None:
            raise unknown_type(name, kind, table)
        return
    if kind["type"] not in ("struct", "array", "map"):
        raise unknown_type(name, _shown(kind), table)
    for inner in kind.get("fields", ()):
        _check_type(inner, inner["type"], f"{name}.{inner['name']}", table)
    for part, called in (("elementType", "element"), ("keyType", "key"), ("valueType", "value")):
        if part in kind:
            _check_type({}, kind[part], f"{name}.{called}", table)


def _shown(kind: Kind) -> str:
    return kind if isinstance(kind, str) else kind["type"]
