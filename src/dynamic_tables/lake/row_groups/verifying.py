"""Old files against new ones, before anybody sees the new ones.

Rows are counted, and a hash over all columns is added up: that is the same for the same bag of rows
in any order. Values under a wrong name, or lost inside a struct, change it; a count would not tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from dynamic_tables.lake.row_groups.files import PARTITION
from dynamic_tables.names import RESERVED_PREFIX, quote

SIGN, HASH = f"{RESERVED_PREFIX}sign", f"{RESERVED_PREFIX}hash"
HASHES = "decimal(38, 0)"  # no sum of hashes is too large for it


def differing(
    old: DataFrame, new: DataFrame, columns: StructType, row_ids: Sequence[str] = ()
) -> list[int]:
    """The numbers of the partitions that are not the same bag of rows in both."""
    signed = _hashed(old, columns, row_ids, 1).unionAll(_hashed(new, columns, row_ids, -1))
    rows, hashes = F.sum(SIGN), F.sum((F.col(SIGN) * F.col(HASH)).cast(HASHES))
    left = signed.groupBy(PARTITION).agg(rows.alias(SIGN), hashes.alias(HASH))
    found = left.where((F.col(SIGN) != 0) | (F.col(HASH) != 0)).collect()
    return sorted(row[PARTITION] for row in found)


def _hashed(rows: DataFrame, columns: StructType, row_ids: Sequence[str], sign: int) -> DataFrame:
    parts = [part for f in columns for part in _with_nulls(F.col(quote(f.name)), f.dataType)]
    return rows.select(
        F.col(PARTITION),
        F.lit(sign).alias(SIGN),
        F.xxhash64(*parts, *map(F.col, map(quote, row_ids))).cast("decimal(20, 0)").alias(HASH),
    )


def _with_nulls(value: Column, kind: DataType) -> Iterator[Column]:
    """A hash passes over NULL, so that (NULL, 1) and (1, NULL) would be the same without this.

    So do hashes of lists, and of maps, whose entries keep their order. A VARIANT has none at all,
    and texts with a collation only as far as this tells them apart.
    """
    yield value.isNull()
    match kind:
        case StructType():
            for field in kind.fields:
                yield from _with_nulls(value.getField(field.name), field.dataType)
        case ArrayType():
            inner = kind.elementType
            yield F.size(value)
            yield F.transform(value, lambda element: F.xxhash64(*_with_nulls(element, inner)))
        case MapType():
            fields = [StructField("key", kind.keyType), StructField("value", kind.valueType)]
            yield from _with_nulls(F.map_entries(value), ArrayType(StructType(fields)))
        case VariantType():
            yield F.to_json(F.struct(value.alias("value")), {"ignoreNullFields": "false"})
        case StringType():
            yield value.cast(StringType())
        case _:
            yield value
