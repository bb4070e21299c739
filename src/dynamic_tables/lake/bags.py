"""Tables as bags of rows: how often does each row occur, here and there?

Rows are compared as Spark groups them: NULL equals NULL, NaN equals NaN, 0.0 equals -0.0. Types
that cannot be compared (maps, variants) are turned into a form that can. EXCEPT ALL is not used: it
fails on maps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  everybody calls it so
from pyspark.sql import types as T  # noqa: N812

from dynamic_tables.compiler.emit import WEIGHT
from dynamic_tables.compiler.merge import NEEDS_ROWS
from dynamic_tables.names import RESERVED_PREFIX, quote

HERE = f"{RESERVED_PREFIX}here"
THERE = f"{RESERVED_PREFIX}there"
PLACE = f"{RESERVED_PREFIX}place"  # of a stored row: its file (see `file_id`), and which row of it
PLACES = f"{RESERVED_PREFIX}places"
COUNTS = (HERE, THERE, PLACES)
OPERATION = f"{RESERVED_PREFIX}op"
DELETE, INSERT = "D", "I"
COPIES_AT_MOST = 1_000  # of a row, that are made of it in the memory of a task
TOLERANCE = 1e-9  # relative; Spark's own floating sums differ that much between runs


def comparable(value: Column, kind: T.DataType, *, exactly: bool = False) -> Column:
    """`value` in a form that equality and grouping accept and that keeps what it distinguishes.

    `exactly`: also what Spark takes for equal but an expression may tell apart, as 0.0 and -0.0, or
    texts that a collation takes for the same.
    """
    if not _needs_form(kind, exactly=exactly):
        return value
    match kind:
        case T.MapType():
            entries = F.map_entries(value)
            formed = F.transform(
                entries,
                lambda entry: F.struct(
                    comparable(entry["key"], kind.keyType, exactly=exactly).alias("key"),
                    comparable(entry["value"], kind.valueType, exactly=exactly).alias("value"),
                ),
            )
            return F.array_sort(formed)
        case T.ArrayType():
            return F.transform(
                value, lambda item: comparable(item, kind.elementType, exactly=exactly)
            )
        case T.StructType():
            parts = [
                comparable(value.getField(field.name), field.dataType, exactly=exactly).alias(
                    f"f{index}"
                )
                for index, field in enumerate(kind.fields)
            ]
            return F.when(value.isNotNull(), F.struct(*parts))
        case T.StringType() | T.FloatType() | T.DoubleType():
            return value.cast("string")  # the default collation is by bytes
        case _:
            return F.to_json(value)  # VARIANT


def _needs_form(kind: T.DataType, *, exactly: bool) -> bool:
    match kind:
        case T.MapType() | T.VariantType():
            return True
        case T.ArrayType():
            return _needs_form(kind.elementType, exactly=exactly)
        case T.StructType():
            return any(_needs_form(field.dataType, exactly=exactly) for field in kind.fields)
        case T.StringType():
            return exactly and not kind.isUTF8BinaryCollation()
        case _:
            return exactly and isinstance(kind, (T.FloatType, T.DoubleType))


def placed(stored: DataFrame) -> DataFrame:
    """Rows of a Delta table with their places."""
    about = stored.metadataColumn("_metadata")
    file, row = file_id(about["file_name"]), about["row_index"]
    place = F.struct(file.alias("file"), row.alias("row"))
    return stored.select("*", place.alias(PLACE))


def file_id(name: Column) -> Column:
    """A number for a file: its path would be longer than the rest of many a row, and travels with
    every row through joins and checkpoints."""
    return F.xxhash64(name)


def is_flat(frame: DataFrame) -> bool:
    """Whether rows are small one by one: lists and maps may be of any length."""
    return all(_is_small(f.dataType) for f in frame.schema.fields if f.name != PLACES)


def _is_small(kind: T.DataType) -> bool:
    if isinstance(kind, T.StructType):
        return all(_is_small(field.dataType) for field in kind.fields)
    return not isinstance(kind, (T.ArrayType, T.MapType, T.BinaryType, T.VariantType))


def counted(here: DataFrame, there: DataFrame) -> DataFrame:
    """Every row that occurs a different number of times, with both counts and, if `there` is
    `placed`, its places there."""
    names = here.columns
    columns = [F.col(quote(name)) for name in names]
    one, no = F.lit(1), F.lit(0)
    place = F.col(PLACE) if PLACE in there.columns else F.lit(None)
    kind = there.schema[PLACE].dataType if PLACE in there.columns else T.NullType()
    both = here.select(
        *columns, one.alias(HERE), no.alias(THERE), F.lit(None).cast(kind).alias(PLACE)
    ).unionAll(there.select(*columns, no.alias(HERE), one.alias(THERE), place.alias(PLACE)))
    grouped = _grouped(both, names, HERE, THERE)
    return grouped.where(F.col(HERE) != F.col(THERE))


def replaced(here: DataFrame, there: DataFrame, keys: Sequence[str]) -> DataFrame:
    """As `counted`, where a key has one row here and one there at most: by a join, which Spark does
    faster than it groups."""
    if not keys:
        return counted(here, there)
    schema, new = here.schema, f"{RESERVED_PREFIX}new"
    same_key = [F.col(f"n.{quote(key)}").eqNullSafe(F.col(f"s.{quote(key)}")) for key in keys]
    both = (
        here.withColumn(new, F.lit(1))
        .alias("n")
        .join(there.alias("s"), reduce(and_, same_key), "full_outer")
    )
    comes = F.col(new).isNotNull()
    return _both(_pairs(both, schema, "n", "s", comes=comes, place=F.col(PLACE)))


def beside(rows: DataFrame, old: str, comes: str) -> DataFrame:
    """As `replaced`, where the new row of every key stands beside its old one, a struct with its
    place (NULL: there is none), and `comes` tells whether there is a new one."""
    return _both(_beside(rows, old, comes))


def beside_here(rows: DataFrame, old: str, comes: str) -> tuple[DataFrame, DataFrame]:
    """As `beside`, of rows in the driver: what comes and what goes. Each is read off them without
    a Spark job."""
    return _each(_beside(rows, old, comes))


def _beside(rows: DataFrame, old: str, comes: str) -> _Pairs:
    names = [name for name in rows.columns if name not in (old, comes)]
    schema = rows.select(*map(quote, names)).schema
    both = rows.select(
        F.struct(*map(quote, names)).alias("n"), F.col(old).alias("s"), F.col(comes).alias(comes)
    )
    return _pairs(both, schema, "n", "s", comes=F.col(comes), place=F.col(f"s.{PLACE}"))


@dataclass(frozen=True, slots=True)
class _Pairs:
    """A new row and an old one of each key, where they differ; one of them may be missing."""

    rows: DataFrame
    comes: Column  # whether there is a new one
    new: list[Column]  # as rows of a difference
    goes: Column
    old: list[Column]


def _pairs(
    both: DataFrame, schema: T.StructType, here: str, there: str, *, comes: Column, place: Column
) -> _Pairs:
    """`comes`: there is a new one, `place`: where the old one is, NULL if there is none."""
    goes = place.isNotNull()

    def side(alias: str, *counts: Column) -> list[Column]:
        columns = [F.col(f"{alias}.{quote(name)}").alias(name) for name in schema.names]
        return columns + [n.alias(name) for n, name in zip(counts, COUNTS, strict=True)]

    one, no, somewhere = F.lit(1), F.lit(0), F.array(place)
    nowhere = F.slice(somewhere, F.lit(1), F.lit(0))  # empty, of the same type
    return _Pairs(
        rows=both.where(~(comes & goes & same_row(schema, here, there))),
        comes=comes,
        new=side(here, one, no, nowhere),
        goes=goes,
        old=side(there, no, one, somewhere),
    )


def _both(pairs: _Pairs) -> DataFrame:
    """Pairs that differ, as a difference, in one pass."""
    sides = F.array(
        F.when(pairs.comes, F.struct(*pairs.new)), F.when(pairs.goes, F.struct(*pairs.old))
    )
    row = f"{RESERVED_PREFIX}row"
    exploded = pairs.rows.select(F.explode(sides).alias(row))
    return exploded.where(F.col(row).isNotNull()).select(f"{row}.*")


def _each(pairs: _Pairs) -> tuple[DataFrame, DataFrame]:
    return (
        pairs.rows.where(pairs.comes).select(*pairs.new),
        pairs.rows.where(pairs.goes).select(*pairs.old),
    )


def _grouped(rows: DataFrame, names: list[str], *sums: str) -> DataFrame:
    """Each row once, with the sums of some columns and the places of all its copies."""
    values = [F.first(quote(name)).alias(name) for name in names]
    totals = [F.sum(name).alias(name) for name in sums]
    places = F.collect_list(PLACE).alias(PLACES)
    grouped = rows.groupBy(*_keys(rows, names)).agg(*values, *totals, places)
    return grouped.select(*[quote(name) for name in names], *sums, PLACES)


def netted(changes: DataFrame, *, exactly: bool = False) -> DataFrame:
    """Signed rows without what came and went: each row once, with the sum of its weights.

    `exactly`: rows that a query is still to be made of; see `comparable`.
    """
    names = [name for name in changes.columns if name != WEIGHT]
    values = [F.first(quote(name)).alias(name) for name in names]
    keys = _keys(changes, names, exactly=exactly)
    grouped = changes.groupBy(*keys).agg(*values, F.sum(WEIGHT).alias(WEIGHT))
    return grouped.where(F.col(WEIGHT) != 0).select(*[quote(name) for name in names], WEIGHT)


def one_by_one(net: DataFrame) -> DataFrame:
    """Net changes with as many rows as came or went: an aggregate adds them up as they are.

    A row that came more than `COPIES_AT_MOST` times stays one row with a weight.
    """
    copies, weight = F.abs(F.col(WEIGHT)), F.col(WEIGHT)
    few, sign = copies <= COPIES_AT_MOST, F.signum(weight).cast("int")
    names = [quote(name) for name in net.columns if name != WEIGHT]
    each = F.when(few, F.array_repeat(sign, copies.cast("int"))).otherwise(F.array(weight))
    return net.select(*names, F.explode(each).alias(WEIGHT))


def applied(net: DataFrame, stored: DataFrame | None) -> DataFrame:
    """Net changes as a difference: how often each row is wanted, and how often it is there.

    `stored` is `placed`. Without it, none of them is there.
    """
    names = [name for name in net.columns if name != WEIGHT]
    columns = [F.col(quote(name)) for name in names]
    if stored is None:
        nowhere = F.lit(None).cast("array<struct<file: bigint, row: bigint>>").alias(PLACES)
        return net.select(*columns, F.col(WEIGHT).alias(HERE), F.lit(0).alias(THERE), nowhere)
    schema = net.select(*columns).schema
    present = stored.alias("t").join(net.alias("s"), same_row(schema, "t", "s"), "left_semi")
    nowhere = F.lit(None).cast(stored.schema[PLACE].dataType).alias(PLACE)
    both = net.select(*columns, WEIGHT, F.lit(0).alias(THERE), nowhere).unionAll(
        present.select(*columns, F.lit(0).alias(WEIGHT), F.lit(1).alias(THERE), PLACE)
    )
    wanted = (F.col(THERE) + F.col(WEIGHT)).alias(HERE)
    return _grouped(both, names, WEIGHT, THERE).select(*columns, wanted, THERE, PLACES)


def only_come(changes: DataFrame) -> DataFrame:
    """Signed rows of which none goes, without their signs; if one does, it fails."""
    comes = f"CASE WHEN {WEIGHT} = 1 THEN TRUE ELSE raise_error('{NEEDS_ROWS}') END"
    return changes.where(comes).drop(WEIGHT)


def all_new(rows: DataFrame) -> DataFrame:
    """Rows as a difference: none of them is there."""
    return applied(rows.withColumn(WEIGHT, F.lit(1)), None)


def _keys(frame: DataFrame, names: list[str], *, exactly: bool = False) -> list[Column]:
    """Columns in a form that can be grouped."""
    kinds = {field.name: field.dataType for field in frame.schema.fields}
    return [
        comparable(F.col(quote(name)), kinds[name], exactly=exactly).alias(
            f"{RESERVED_PREFIX}k{index}"
        )
        for index, name in enumerate(names)
    ]


def operations(difference: DataFrame) -> DataFrame:
    """The rows of the MERGE that turns `there` into `here`.

    More copies wanted: insert the missing ones. Fewer: delete all copies, insert as many as are
    wanted.
    """
    missing = (F.col(HERE) - F.col(THERE)).cast("int")
    steps = F.when(missing > 0, F.array_repeat(F.lit(INSERT), missing)).otherwise(
        F.concat(F.array(F.lit(DELETE)), F.array_repeat(F.lit(INSERT), F.col(HERE).cast("int")))
    )
    return difference.select(F.explode(steps).alias(OPERATION), "*").drop(HERE, THERE, PLACES)


def inserted(difference: DataFrame) -> DataFrame:
    """The rows that come, each as often as it does."""
    copies = F.array_repeat(F.lit(1), (F.col(HERE) - F.col(THERE)).cast("int"))
    kept = [quote(name) for name in difference.columns if name not in COUNTS]
    return difference.select(*kept, F.explode(copies).alias(OPERATION)).drop(OPERATION)


def same_row(schema: T.StructType, left: str, right: str) -> Column:
    """All columns equal, NULLs too."""
    conditions = [
        comparable(F.col(f"{left}.{quote(field.name)}"), field.dataType).eqNullSafe(
            comparable(F.col(f"{right}.{quote(field.name)}"), field.dataType)
        )
        for field in schema.fields
    ]
    return reduce(lambda a, b: a & b, conditions)


def without_rounding(difference: DataFrame, approximate: tuple[str, ...]) -> DataFrame:
    """Drop pairs of rows that differ only by rounding in columns of floating aggregates.

    Rows that agree in all other columns are paired in the order of the approximate ones.
    """
    exact = [name for name in difference.columns if name not in (*approximate, *COUNTS)]
    order = [F.col(quote(name)) for name in approximate]
    side = f"{RESERVED_PREFIX}side"
    copies = F.abs(F.col(HERE) - F.col(THERE)).cast("int")
    rows = difference.select(
        "*",
        F.when(F.col(HERE) > F.col(THERE), F.lit(1)).otherwise(F.lit(0)).alias(side),
        F.explode(F.array_repeat(F.lit(0), copies)).alias(f"{RESERVED_PREFIX}copy"),
    )
    return _paired(rows, difference, exact, order, side, approximate)


def _paired(
    rows: DataFrame,
    difference: DataFrame,
    exact: list[str],
    order: list[Column],
    side: str,
    approximate: tuple[str, ...],
) -> DataFrame:
    from pyspark.sql import Window  # noqa: PLC0415

    rank, twin = f"{RESERVED_PREFIX}rank", f"{RESERVED_PREFIX}twin"
    kinds = {field.name: field.dataType for field in difference.schema.fields}
    keys = [comparable(F.col(quote(name)), kinds[name]) for name in exact]
    ranked = rows.withColumn(
        rank, F.row_number().over(Window.partitionBy(*keys, F.col(side)).orderBy(*order))
    )
    group = Window.partitionBy(*keys, F.col(rank))
    close = [_close(F.min(quote(n)).over(group), F.max(quote(n)).over(group)) for n in approximate]
    complete = [F.count(quote(n)).over(group).isin(0, 2) for n in approximate]
    matched = reduce(lambda a, b: a & b, [*close, *complete, F.count("*").over(group) == 2])  # noqa: PLR2004
    apart = ranked.withColumn(twin, matched).where(~F.col(twin))
    return apart.select(
        *[quote(name) for name in difference.columns if name not in COUNTS],
        F.col(side).cast("bigint").alias(HERE),
        (F.lit(1) - F.col(side)).cast("bigint").alias(THERE),
    )


def _close(low: Column, high: Column) -> Column:
    scale = F.greatest(F.abs(low), F.abs(high), F.lit(1e-300))
    finite = scale < F.lit(float("inf"))  # neither Infinity nor NaN, which is the greatest of all
    near = finite & ((high - low) <= F.lit(TOLERANCE) * scale)
    return F.coalesce(low.eqNullSafe(high) | near, F.lit(False))
