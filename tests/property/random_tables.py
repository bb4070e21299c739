"""Random Delta tables for row-group order (types, odd values, features, pasts), and the judge."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

import dynamic_tables as dt
from dynamic_tables.lake import jvm, snapshots

LONG, LONGER = "a" * 40, "z" * 32 + "\U0010ffff!"
NUMBERS = {
    "TINYINT": ["0", "-128", "127", "5"],
    "SMALLINT": ["0", "-32768", "7"],
    "INT": ["0", "-1", "7", "2147483647", "-2147483648"],
    "BIGINT": ["0", "9223372036854775807", "-9223372036854775808", "12"],
    "DECIMAL(5, 2)": ["0", "-999.99", "1.25"],
    "DECIMAL(18, 6)": ["0.000001", "999999999999.999999"],
    "DECIMAL(38, 18)": ["0.123456789012345678", "-12345678901234567890.123456789012345678"],
}
TEXTS = {
    "STRING": ["''", "'b'", f"'{LONG}'", f"'{LONG}b'", f"'{LONGER}'", "'ü''\\\\ /='", "'a.b%20c'"],
    "VARCHAR(50)": ["'x'", "'y'"],
}
TIMES = {
    "DATE": ["'0001-01-01'", "'1582-10-04'", "'1970-01-01'", "'9999-12-31'"],
    "TIMESTAMP": [
        "'0001-01-01 00:00:00'",
        "'1969-12-31 23:59:59.999999'",
        "'2020-02-29 01:02:03.123456'",
        "'9999-12-31 23:59:59.999999'",
    ],
    "TIMESTAMP_NTZ": ["'1582-10-10 00:00:00.000001'", "'2038-01-19 03:14:07.999'"],
}
FLOATS = {
    "DOUBLE": ["'NaN'", "'Infinity'", "'-Infinity'", "'-0.0'", "'0.1'", "'1e300'"],
    "FLOAT": ["'NaN'", "'0.1'", "'-3.5'", "'0.0'"],
}
OTHERS = {
    "BOOLEAN": ["true", "false"],
    "BINARY": ["X'00FF'", "X''"],
    "STRUCT<a: INT, b: STRUCT<c: STRING, d: DOUBLE>>": [
        "named_struct('a', 1, 'b', named_struct('c', 'x', 'd', double('NaN')))",
        "named_struct('a', NULL, 'b', NULL)",
        "named_struct('a', 3, 'b', named_struct('c', NULL, 'd', 2.5))",
    ],
    "ARRAY<STRUCT<x: INT, y: DATE>>": [
        "array()",
        "array(named_struct('x', 1, 'y', DATE '2020-01-01'), NULL)",
    ],
    "MAP<STRING, ARRAY<INT>>": ["map()", "map('a', array(1, NULL), 'b', NULL)"],
}
KEYS = {**NUMBERS, **TEXTS, **TIMES}
ALL = {**KEYS, **FLOATS, **OTHERS}
PARTITIONS = {
    "STRING": ["''", "'a/b=c %'", "'ü:?'", "'__HIVE_DEFAULT_PARTITION__x'"],
    "INT": ["1", "-5"],
    "DATE": ["'1900-01-01'", "'2020-01-01'"],
    "TIMESTAMP": ["'2020-01-01 00:00:00.5'", "'1999-12-31 23:59:59'"],
    "DECIMAL(5, 2)": ["1.50", "-2"],
}
ODD_NAMES = ["plain", "With Case", "odd, (name)", "a.b", "`tick`", "ünï"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A random table, and how it is to be ordered."""

    name: str
    statements: tuple[str, ...]
    columns: dict[str, str]  # the stored ones, at the end
    key: str
    sort_by: tuple[str, ...]
    values_per_row_group: int
    max_row_group_bytes: int
    tracked: bool
    feed: bool


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def wanted(seed: int) -> Wanted:
    """A table by its seed."""
    draw = Random(seed)
    name = f"random_{seed}"
    mapping = draw.choice([None, None, "name", "name", "id"])
    names = iter(draw.sample(ODD_NAMES, len(ODD_NAMES)) if mapping else "abcdef")
    key = next(names)
    columns = {key: draw.choice([*KEYS])}
    columns |= {next(names): draw.choice([*ALL]) for _ in range(draw.randint(1, 4))}
    parts = {f"p{n}": draw.choice([*PARTITIONS]) for n in range(draw.choice([0, 0, 1, 1, 2]))}
    tracked, feed = draw.random() < 0.4, draw.random() < 0.5
    vectors = draw.random() < 0.6
    properties = {
        "delta.columnMapping.mode": mapping,
        "delta.enableRowTracking": "true" if tracked else None,
        "delta.enableChangeDataFeed": "true" if feed else None,
        "delta.enableDeletionVectors": str(vectors).lower(),
        "delta.enableTypeWidening": "true",
        "delta.feature.timestampNtz": "supported",  # a column that comes later may want it
    }
    given = ", ".join(f"'{k}' = '{v}'" for k, v in properties.items() if v)
    listed = ", ".join(f"{quoted(n)} {kind}" for n, kind in (columns | parts).items())
    by = f"PARTITIONED BY ({', '.join(parts)})" if parts else ""
    made = [f"CREATE TABLE {name} ({listed}) USING delta {by} TBLPROPERTIES ({given})"]
    made.append(_insert(draw, name, columns, parts))
    columns = _altered(draw, name, columns, made, mapped=mapping is not None)
    made.append(_insert(draw, name, columns, parts))
    if draw.random() < 0.6:
        made.append(f"DELETE FROM {name} WHERE pmod(xxhash64({quoted(key)}, {seed}), 4) = 0")
    sortable = [n for n, kind in columns.items() if kind in KEYS and n != key]
    return Wanted(
        name=name,
        statements=tuple(made),
        columns=columns,
        key=key,
        sort_by=tuple(sortable[:1]) if draw.random() < 0.5 else (),
        values_per_row_group=draw.choice([1, 1, 1, 2, 5]),
        max_row_group_bytes=draw.choice([60, 500, 64 * 2**20]),
        tracked=tracked,
        feed=feed,
    )


def _altered(
    draw: Random, name: str, columns: dict[str, str], made: list[str], *, mapped: bool
) -> dict[str, str]:
    """Columns come, are widened, and where files have names of their own, renamed and dropped."""
    kinds = dict(columns)
    if draw.random() < 0.5:
        kinds["added"] = draw.choice([*ALL])
        made.append(f"ALTER TABLE {name} ADD COLUMN added {kinds['added']}")
    wider = {"TINYINT": "INT", "SMALLINT": "INT", "INT": "BIGINT", "FLOAT": "DOUBLE"}
    for column, kind in list(kinds.items()):
        if kind in wider and draw.random() < 0.5:
            kinds[column] = wider[kind]
            made.append(f"ALTER TABLE {name} ALTER COLUMN {quoted(column)} TYPE {wider[kind]}")
    others = [*kinds][1:]
    if mapped and others and draw.random() < 0.6:
        old = draw.choice(others)
        made.append(f"ALTER TABLE {name} RENAME COLUMN {quoted(old)} TO `new name`")
        kinds = {("new name" if n == old else n): kind for n, kind in kinds.items()}
        if kinds["new name"].startswith("STRUCT<a"):
            made.append(f"ALTER TABLE {name} RENAME COLUMN `new name`.b.c TO `inner`")
            kinds["new name"] = "struct with another field name"
    return kinds


def _insert(draw: Random, name: str, columns: dict[str, str], parts: dict[str, str]) -> str:
    chosen = [_pick(draw, kind, ALL, n) for n, kind in enumerate(columns.values())]
    chosen += [_pick(draw, kind, PARTITIONS, n + 50) for n, kind in enumerate(parts.values())]
    listed = ", ".join(map(quoted, [*columns, *parts]))
    size = draw.choice([1, 40, 90])
    return f"INSERT INTO {name} ({listed}) SELECT {', '.join(chosen)} FROM range({size})"


def _pick(draw: Random, kind: str, pools: dict[str, list[str]], salt: int) -> str:
    if kind not in pools:  # renamed inside
        kind = next(k for k in pools if k.startswith("STRUCT"))
    values = ", ".join(f"CAST({value} AS {kind})" for value in [*pools[kind], "NULL"])
    size = len(pools[kind]) + 1
    place = f"1 + pmod(xxhash64(id, {draw.randrange(1000)}, {salt}), {size})"
    return f"element_at(array({values}), CAST({place} AS INT))"


# The judge


def rows(tables: dt.DynamicTables, table: Wanted) -> Counter[str]:
    """All rows, as text in which NULL, NaN and -0.0 are themselves; with row ids if there are."""
    spark = tables.spark
    frame = spark.table(table.name)
    listed = ", ".join(quoted(name) for name in frame.columns)
    ids = ", _metadata.row_id, _metadata.row_commit_version" if table.tracked else ""
    text = f"to_json(struct({listed}{ids}), map('ignoreNullFields', 'false'))"
    return Counter(row[0] for row in frame.selectExpr(f"{text} AS row").collect())


def false_statistics(tables: dt.DynamicTables, table: Wanted) -> list[Any]:
    """Files whose statistics do not fit their rows, by Spark's own reading of both."""
    spark = tables.spark
    log = snapshots.delta_log_by_name(spark, table.name)
    with jvm.active(spark):
        snapshot = snapshots.newest_snapshot(spark, log)
        columns = json.loads(snapshot.metadata().schema().json())["fields"]
        shape = json.loads(snapshot.statsSchema().json())
        files = [
            (file.absolutePath(log).toUri().toString(), file.stats())
            for file in snapshot.allFiles().collectAsList()
        ]
    parts = {part["name"]: part["type"] for part in shape["fields"]}
    told = F.from_json("stats", StructType.fromJson(shape)).alias("_told")
    known = spark.createDataFrame(files, "_file STRING, stats STRING").select("_file", told)
    read = spark.table(table.name).selectExpr("*", "_metadata.file_path AS _file")
    checks = ["count(*) - max(_told.numRecords) AS rows"]
    for column, path in _leaves(parts["nullCount"]["fields"], columns):
        checks.append(f"count_if({column} IS NULL) - max(_told.nullCount.{path})")
    for column, path in _leaves(parts["minValues"]["fields"], columns):
        bounds = f"{column} < _told.minValues.{path} OR {column} > _told.maxValues.{path}"
        checks.append(f"count_if({bounds})")
    found = read.join(known, "_file").groupBy("_file").agg(*map(F.expr, checks)).collect()
    assert len(found) == len(files)
    return [row for row in found if any(row[1:])]


def _leaves(told: list[Any], columns: list[Any]) -> Iterator[tuple[str, str]]:
    """A column as users name it, and as files do."""
    by_physical = {
        column["metadata"].get("delta.columnMapping.physicalName", column["name"]): column
        for column in columns
    }
    for field in told:
        column = by_physical[field["name"]]
        here, there = quoted(column["name"]), quoted(field["name"])
        if isinstance(field["type"], dict):
            for below in _leaves(field["type"]["fields"], column["type"]["fields"]):
                yield f"{here}.{below[0]}", f"{there}.{below[1]}"
        else:
            yield here, there


def values_of_row_groups(tables: dt.DynamicTables, table: Wanted) -> list[tuple[Any, Any, int]]:
    """Bounds of the key and the NULLs in it, of every row group of the table."""
    log = snapshots.delta_log_by_name(tables.spark, table.name)
    schema = json.loads(snapshots.newest_snapshot(tables.spark, log).metadata().schema().json())
    key = next(f for f in schema["fields"] if f["name"] == table.key)
    name = key["metadata"].get("delta.columnMapping.physicalName", table.key)
    found = []
    for file in tables.spark.table(table.name).inputFiles():
        footer = pq.read_metadata(file.removeprefix("file:"))
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            chunks = [group.column(n) for n in range(group.num_columns)]
            told = next(c for c in chunks if c.path_in_schema == name).statistics
            ends = (told.min_raw, told.max_raw) if told.has_min_max else (None, None)
            found.append((*ends, told.null_count))
    return found
