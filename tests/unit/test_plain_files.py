"""Files as others write them, read without Spark: Arrow's own types, ids, zones, counted rows."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from plain_tables import Table, _write_actions

import dynamic_tables as dt
from dynamic_tables.lake.plain_delta import log
from dynamic_tables.lake.plain_delta.conforming import conformed
from dynamic_tables.lake.plain_delta.store import Store

ROWS = 12
PAIR = {"type": "struct", "fields": [("x", "integer"), ("y", "integer")]}
TIMES = {"type": "struct", "fields": [("at", "timestamp"), ("local", "timestamp_ntz")]}


@pytest.fixture(autouse=True)
def _no_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow does not understand what conftest says of it."""
    monkeypatch.delitem(sys.modules, "pandas", raising=False)


def made(root: Path, kinds: dict[str, Any], mapping: str = "none") -> Table:
    """A table of one file."""
    table = Table(root, Random(3), mapping, tracked=False)
    table.columns = [table.column("integer", "k")]
    table.columns += [table.column(kind, name) for name, kind in kinds.items()]
    table.commit([table.protocol(), table.metadata(), table.add({}, ROWS)])
    return table


def place(table: Table) -> Path:
    return table.root / unquote(table.live[0]["action"]["path"])


def written_anew(table: Table, change: Callable[[pa.Table], pa.Table], **options: Any) -> None:
    """The file as somebody else would write it."""
    read = pq.read_table(place(table), coerce_int96_timestamp_unit="us").cast(table.physical)
    pq.write_table(change(read), place(table), **options)


def rows_in_order(table: Table) -> Counter[str]:
    """What lies in the new files after the table was put in order."""
    (item,) = dt.rorder_setup_multi(table.root, unique_by="k")
    dt.rorder_single(item)
    found: Counter[str] = Counter()
    for file in log.newest(Store(str(table.root))).files.values():
        read = pq.read_table(table.root / unquote(file.path))
        assert read.schema.equals(table.physical)
        found.update(repr((row, None)) for row in read.to_pylist())
    return found


def rows_before(table: Table) -> Counter[str]:
    return table.rows_by_partition()["{}"]


# Arrow's own types: rows in order come out in the table's

TEXTS = pa.array(["", "ü", None, "x" * 40], pa.string())
INNER = pa.field("x", pa.large_string(), metadata={"PARQUET:field_id": "7"})
HELD = [
    (TEXTS, pa.large_string()),
    (TEXTS, pa.string_view()),
    (TEXTS, pa.dictionary(pa.int8(), pa.string())),
    (TEXTS, pa.dictionary(pa.int32(), pa.large_string())),
    (TEXTS.cast(pa.binary()), pa.large_binary()),
    (TEXTS.cast(pa.binary()), pa.binary_view()),
    (pa.array([0, 10**15, None, -1], pa.timestamp("us", "UTC")), pa.timestamp("us", "Asia/Tokyo")),
    (
        pa.array([0, 10**15, None, -(10**3)], pa.timestamp("us", "UTC")),
        pa.timestamp("ms", "-03:00"),
    ),
    (pa.array([["a", None], None, [], ["b"]]), pa.large_list(pa.large_string())),
    (pa.array([["a", None], None, [], ["b"]]), pa.list_(pa.dictionary(pa.int8(), pa.string()))),
    (pa.array([[1, 2], None, [3, None]], pa.list_(pa.int32())), pa.list_(pa.int32(), 2)),
    (
        pa.array([[("a", "b")], None, []], pa.map_(pa.string(), pa.string())),
        pa.map_(pa.string(), pa.large_string()),
    ),
    (pa.array([{"x": "a"}, None], pa.struct([("x", pa.string())])), pa.struct([INNER])),
]


@pytest.mark.parametrize(
    ("values", "kind"), HELD, ids=lambda given: str(getattr(given, "type", given))
)
@pytest.mark.parametrize("start", [0, 1])
def test_values_are_the_same_however_arrow_holds_them(
    values: pa.Array, kind: pa.DataType, start: int
) -> None:
    """Also parts of arrays, as batches are."""
    found = conformed(values.cast(kind).slice(start), values.type, by_id=False)
    assert found.equals(values.slice(start))
    found.validate(full=True)


def test_large_lists_of_structs_are_read_by_id() -> None:
    def field(name: str, number: int) -> pa.Field:
        return pa.field(name, pa.int32(), metadata={"PARQUET:field_id": str(number)})

    here = pa.large_list(pa.struct([field("a", 1), field("b", 2)]))
    wanted = pa.list_(pa.field("element", pa.struct([field("b", 1), field("c", 3)])))
    found = conformed(pa.array([[{"a": 1, "b": 2}], None], here), wanted, by_id=True)
    assert found.to_pylist() == [[{"b": 1, "c": None}], None]


@pytest.mark.parametrize("kind", [pa.int64(), pa.dictionary(pa.int32(), pa.int64()), pa.float64()])
def test_what_is_no_text_is_still_none(kind: pa.DataType) -> None:
    values = pa.array([1]).dictionary_encode() if pa.types.is_dictionary(kind) else pa.array([1])
    with pytest.raises(TypeError, match="is not string"):
        conformed(values.cast(kind), pa.string(), by_id=False)


def test_files_with_hints_of_arrow_are_put_in_order(tmp_path: Path) -> None:
    """As pandas, Polars and delta-rs write them."""
    lists = {"type": "array", "elementType": "string"}
    table = made(tmp_path, {"s": "string", "b": "binary", "at": "timestamp", "l": lists})

    def held(read: pa.Table) -> pa.Table:
        kinds = [pa.int32(), pa.dictionary(pa.int8(), pa.string()), pa.large_binary()]
        kinds += [pa.timestamp("us", "Europe/Paris"), pa.large_list(pa.large_string())]
        return read.cast(pa.schema([*zip(read.schema.names, kinds, strict=True)]))

    written_anew(table, held)
    assert pa.types.is_dictionary(pq.read_schema(place(table)).field("s").type)
    assert rows_in_order(table) == rows_before(table)


def test_dictionaries_inside_structs_and_lists_differ_by_row_group(tmp_path: Path) -> None:
    """Arrow itself refuses to read more than one row group of them."""
    texts = {"type": "struct", "fields": [("x", "string")]}
    table = made(tmp_path, {"v": texts, "l": {"type": "array", "elementType": "string"}})
    kind = pa.dictionary(pa.int8(), pa.string())

    def held(read: pa.Table) -> pa.Table:
        kinds = [pa.int32(), pa.struct([("x", kind)]), pa.list_(kind)]
        return read.cast(pa.schema([*zip(read.schema.names, kinds, strict=True)]))

    written_anew(table, held, row_group_size=5)
    assert rows_in_order(table) == rows_before(table)


# Times without a zone: by column

NOON = datetime(2024, 5, 1, 12)  # noqa: DTZ001


def with_times(read: pa.Table, *, instants: pa.DataType, local: pa.DataType) -> pa.Table:
    """The column `v`, a struct of an instant and a local time, in other types."""
    kind = pa.struct([("at", instants), ("local", local)])
    values = [{"at": NOON, "local": NOON}] * ROWS
    return read.set_column(1, "v", pa.array(values, kind))


def test_a_column_without_a_zone_does_not_excuse_another(tmp_path: Path) -> None:
    """The table has both kinds; each is judged by itself, also inside structs."""
    table = made(tmp_path, {"v": TIMES})
    naive = pa.timestamp("us")
    written_anew(table, lambda read: with_times(read, instants=naive, local=naive))
    with pytest.raises(dt.Refused, match="'v' has times without a zone"):
        rows_in_order(table)


@pytest.mark.parametrize("old", [False, True])
def test_both_kinds_of_times_in_one_file(tmp_path: Path, old: bool) -> None:
    """Instants of 96 bits say no zone either, but are known by their width."""
    table = made(tmp_path, {"v": TIMES})
    zoned = pa.timestamp("us", "UTC")
    written_anew(
        table,
        lambda read: with_times(read, instants=zoned, local=pa.timestamp("us")),
        use_deprecated_int96_timestamps=old,
        store_schema=not old,
    )
    kept = {"at": NOON.replace(tzinfo=UTC), "local": NOON}
    found = rows_in_order(table)
    assert found.total() == ROWS
    assert all(repr(kept["local"]) in row and "zoneinfo" in row.lower() for row in found)


def test_times_in_columns_that_the_table_has_no_more(tmp_path: Path) -> None:
    table = made(tmp_path, {"at": "timestamp"})
    gone = pa.repeat(pa.scalar(NOON, pa.timestamp("us")), ROWS)
    written_anew(table, lambda read: read.append_column("gone", gone).select(["gone", "k", "at"]))
    assert rows_in_order(table) == rows_before(table)


# Columns found by id


def renamed(read: pa.Table, turned: Callable[[list[str]], list[str]]) -> pa.Table:
    """Other names for the same columns and ids."""
    names = turned(read.schema.names)
    fields = [f.with_name(n) for f, n in zip(read.schema, names, strict=True)]
    return pa.Table.from_arrays(read.columns, schema=pa.schema(fields))


def crossed(names: list[str]) -> list[str]:
    return [names[0], *reversed(names[1:])]


def test_by_id_the_names_in_a_file_do_not_matter(tmp_path: Path) -> None:
    """Each column bears the name of another one of the same type."""
    table = made(tmp_path, {"a": "integer", "b": "integer"}, mapping="id")
    before = rows_before(table)
    written_anew(table, lambda read: renamed(read, crossed))
    assert rows_in_order(table) == before


def test_by_name_the_ids_in_a_file_do_not_matter(tmp_path: Path) -> None:
    """The names are crossed, so the values are: Delta finds them so, too."""
    table = made(tmp_path, {"a": "integer", "b": "integer"}, mapping="name")
    written_anew(table, lambda read: renamed(read, crossed))
    names = [column.physical for column in table.columns]
    turned = Counter(
        repr(({names[0]: row[names[0]], names[1]: row[names[2]], names[2]: row[names[1]]}, None))
        for row in table.live[0]["rows"].values()
    )
    action = {key: v for key, v in table.live[0]["action"].items() if key != "stats"}
    table.commit([{"add": action}])  # the NULLs that the log told are now in the other column
    assert rows_in_order(table) == turned


def test_by_id_fields_of_structs_are_found_too(tmp_path: Path) -> None:
    table = made(tmp_path, {"v": PAIR, "l": {"type": "array", "elementType": PAIR}}, mapping="id")
    before = rows_before(table)

    def turned(read: pa.Table) -> pa.Table:
        """The fields of both structs change their names, not their ids."""
        kinds = [pa.int32(), _crossed(read.schema.field(1).type)]
        kinds.append(pa.list_(_crossed(read.schema.field(2).type.value_type)))
        fields = [f.with_type(kind) for f, kind in zip(read.schema, kinds, strict=True)]
        columns = [c.combine_chunks() for c in read.columns]
        lists = columns[2]
        inner = _recalled(lists.values, kinds[2].value_type)
        columns[1] = _recalled(columns[1], kinds[1])
        columns[2] = pa.ListArray.from_arrays(
            lists.offsets, inner, type=kinds[2], mask=lists.is_null()
        )
        return pa.Table.from_arrays(columns, schema=pa.schema(fields))

    written_anew(table, turned)
    assert rows_in_order(table) == before


def _crossed(kind: pa.StructType) -> pa.DataType:
    names = [kind.field(1 - n).name for n in range(2)]
    return pa.struct([kind.field(n).with_name(name) for n, name in enumerate(names)])


def _recalled(values: pa.StructArray, kind: pa.StructType) -> pa.Array:
    fields = [kind.field(n) for n in range(kind.num_fields)]
    inner = [values.field(n) for n in range(len(fields))]
    return pa.StructArray.from_arrays(inner, fields=fields, mask=values.is_null())


def test_a_column_that_was_made_again_under_its_name_is_another_one(tmp_path: Path) -> None:
    """The file has the old one, by name and in type the same, under the id of old."""
    table = made(tmp_path, {"v": "integer"}, mapping="id")
    old = table.columns[1]
    table.columns[1] = table.column("integer", "v")
    table.columns[1].physical = old.physical
    table.commit([table.metadata()])
    keys = [repr(row[table.columns[0].physical]) for row in table.live[0]["rows"].values()]
    action = {key: v for key, v in table.live[0]["action"].items() if key != "stats"}
    table.commit([{"add": action}])
    found = rows_in_order(table)
    assert found.total() == len(keys)
    assert all(f"'{old.physical}': None" in row for row in found)


def swap_names(table: Table) -> None:
    key, other = table.columns
    key.name, other.name = other.name, key.name


def make_again(table: Table) -> None:
    table.columns[0].name = "old"
    table.columns.append(table.column("integer", "k"))


@pytest.mark.parametrize("alter", [swap_names, make_again])
def test_the_order_of_another_column_under_the_name_does_not_count(
    tmp_path: Path, alter: Callable[[Table], None]
) -> None:
    table = made(tmp_path, {"v": "integer"}, mapping="name")
    rows_in_order(table)
    assert dt.rorder_setup_multi(table.root, unique_by="k") == ()
    alter(table)
    table.version += 1
    table.commit([table.metadata()])
    (item,) = dt.rorder_setup_multi(table.root, unique_by="k")
    assert [part.became for part in dt.rorder_single(item).partitions] == ["ordered"]
    assert dt.rorder_setup_multi(table.root, unique_by="k") == ()


# What a checkpoint counts in columns


def counted(table: Table, told: dict[str, Any]) -> None:
    """A checkpoint with statistics in columns only; no commit before it is left."""
    action = {**table.live[0]["action"], "stats": json.dumps(told)}
    stands = [table.protocol(), table.metadata(), {"add": action}]
    path = table.root / "_delta_log" / f"{table.version:020}.checkpoint.parquet"
    _write_actions(path, stands, counts=True)
    assert "stats" not in [f.name for f in pq.read_schema(path).field("add").type]
    for version in range(table.version + 1):
        (table.root / log.commit_path(version)).unlink()


def test_counts_in_columns_are_told(tmp_path: Path) -> None:
    table = made(tmp_path, {"v": "string"})
    told = json.loads(table.statistics([*table.live[0]["rows"].values()]))
    counted(table, told)
    (file,) = log.newest(Store(str(tmp_path))).files.values()
    assert file.statistics is None
    assert file.told == told
    assert rows_in_order(table) == rows_before(table)


def test_nulls_inside_lists_and_maps_may_be_counted(tmp_path: Path) -> None:
    """As delta-rs counts them; those of keys and values look like columns of these names."""
    numbers = {"type": "array", "elementType": "integer"}
    words = {"type": "map", "keyType": "string", "valueType": "string"}
    inner = {"type": "struct", "fields": [("l", numbers)]}
    table = made(tmp_path, {"l": numbers, "m": words, "s": inner, "key": "string"})
    told = json.loads(table.statistics([*table.live[0]["rows"].values()]))
    wrong = {"l": 99, "m": 99, "s": {"l": 99}, "key": 99}
    counted(table, told | {"nullCount": told["nullCount"] | wrong})
    assert rows_in_order(table) == rows_before(table)


@pytest.mark.parametrize("wrong", [{"numRecords": ROWS + 1}, {"nullCount": {"v": ROWS + 1}}])
def test_counts_in_columns_are_compared_with_what_is_read(
    tmp_path: Path, wrong: dict[str, Any]
) -> None:
    table = made(tmp_path, {"v": "string"})
    told = json.loads(table.statistics([*table.live[0]["rows"].values()]))
    counted(table, told | wrong)
    with pytest.raises(dt.Refused, match="the log tells of 13"):
        rows_in_order(table)
