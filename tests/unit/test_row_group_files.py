"""What executors write: random Arrow tables cut into values, row groups and files; pure Arrow."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from math import copysign, isnan
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_tables.lake.row_groups import writing
from dynamic_tables.lake.row_groups.statistics import Leaf, Statistics
from dynamic_tables.lake.row_groups.writing import NewFile, Target, told, with_field_ids, written

KEYS = {
    pa.int32(): range(-3, 4),
    pa.string(): ["", "a", "b" * 40, "ü"],
    pa.date32(): [date(1, 1, 1), date(1582, 10, 4), date(2020, 1, 1)],
    pa.timestamp("us"): [
        datetime.fromisoformat(text) for text in ("1969-12-31T23:59:59.999999", "2020-01-01")
    ],
    pa.decimal128(38, 18): [Decimal("0.123456789012345678"), Decimal("-5.000000000000000000")],
    pa.bool_(): [False, True],
}
VALUES = pa.struct([("f", pa.float64()), ("s", pa.string())])


def random_rows(draw: Random) -> tuple[pa.DataType, list[tuple[int, Any, dict | None]]]:
    kind = draw.choice([*KEYS])
    keys = [*draw.sample([*KEYS[kind]], draw.randint(1, len(KEYS[kind]))), None]
    rows = [
        (draw.randrange(3), draw.choice(keys), draw.choice([None, _value(draw), _value(draw)]))
        for _ in range(draw.choice([0, 1, 20, 60]))
    ]
    return kind, sorted(rows, key=lambda row: _place(row[0], row[1], keys[0]))


def _place(partition: int, key: Any, any_key: Any) -> tuple:
    """NULL first, as Spark sorts."""
    return (partition, key is not None, any_key if key is None else key)


def _value(draw: Random) -> dict:
    return {"f": draw.choice([float("nan"), -0.0, 1.5, None]), "s": "x" * draw.randrange(50)}


def batches_of(draw: Random, kind: pa.DataType, rows: list) -> Iterator[pa.RecordBatch]:
    """Cut anywhere, as Spark does."""
    schema = pa.schema([("partition", pa.int32()), ("k", kind), ("v", VALUES)])
    start = 0
    while start < len(rows):
        stop = start + draw.choice([1, 7, 50])
        yield pa.RecordBatch.from_pylist(
            [dict(zip(schema.names, row, strict=True)) for row in rows[start:stop]], schema
        )
        start = stop


def target(root: Path, **changes: Any) -> Target:
    leaves = (Leaf(("k",), True), Leaf(("v", "f"), True), Leaf(("v", "s"), True))
    wanted = Target(
        root=str(root),
        folders={0: "", 1: "p=1", 2: "p=ü b/q=2"},
        key="k",
        bounded=("k",),
        field_ids={},
        leaves=leaves,
        values_per_row_group=1,
        row_group_bytes=2**20,
        file_bytes=2**20,
        metadata={"org.apache.spark.version": "4.2.0"},
    )
    return replace(wanted, **changes)


def read_back(root: Path, files: list[NewFile]) -> list[tuple]:
    found = []
    for file in files:
        table = pq.read_table(root / file.path, partitioning=None)
        assert table.num_rows == file.rows
        assert (root / file.path).stat().st_size == file.size
        found += [(file.partition, row["k"], row["v"]) for row in table.to_pylist()]
    return found


@pytest.mark.parametrize("block", range(4))
def test_random_tables(tmp_path: Path, block: int) -> None:
    """Two hundred of them: all rows in their order, one value in a row group, bounds that hold."""
    for seed in range(block * 50, block * 50 + 50):
        draw = Random(seed)
        kind, rows = random_rows(draw)
        wanted = target(
            tmp_path / str(seed),
            values_per_row_group=draw.choice([1, 1, 2, 4]),
            row_group_bytes=draw.choice([1, 300, 2**20]),
        )
        files = [*written(wanted, batches_of(draw, kind, rows))]
        assert repr(read_back(tmp_path / str(seed), files)) == repr(rows), seed
        for file in files:
            check_file(tmp_path / str(seed) / file.path, file, wanted)
        values = {(partition, key) for partition, key, _ in rows}
        assert sum(file.value_count for file in files) == len(values)


def check_file(path: Path, file: NewFile, wanted: Target) -> None:
    found = pq.ParquetFile(path)
    assert found.num_row_groups == file.row_groups
    groups = [found.read_row_group(n)["k"].to_pylist() for n in range(found.num_row_groups)]
    for group in groups:
        assert len(set(group)) <= wanted.values_per_row_group
    if wanted.row_group_bytes > 1000:  # no value is cut
        assert all(before[-1] != after[0] for before, after in pairwise(groups))
    check_statistics(json.loads(file.statistics), found.read().to_pylist())


def check_statistics(told: dict, rows: list[dict]) -> None:
    assert told["numRecords"] == len(rows)
    for leaf, path in {"k": ("k",), "f": ("v", "f"), "s": ("v", "s")}.items():
        values = [_at(row, path) for row in rows]
        known = [value for value in values if value is not None]
        assert _at(told["nullCount"], path) == len(values) - len(known)
        least, greatest = _at(told["minValues"], path), _at(told["maxValues"], path)
        if leaf == "s":
            assert least is None or all(least <= value for value in known)
            assert greatest is None or all(value <= greatest for value in known)
        if leaf == "f" and any(isnan(value) for value in known):
            assert greatest is None
        if leaf == "f" and least is not None:
            assert all(isnan(value) or least <= value for value in known)


def _at(tree: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        tree = None if tree is None else tree.get(name)
    return tree


def test_a_value_larger_than_a_row_group_has_several_of_its_own(tmp_path: Path) -> None:
    keys = [1] * 5 + [2] * 500 + [3] * 5 + [4] * 5
    table = pa.table({"p": pa.array([0] * 515, pa.int32()), "k": keys, "v": ["x" * 10] * 515})
    wanted = target(tmp_path, row_group_bytes=2000, values_per_row_group=2, leaves=())
    (file,) = written(wanted, table.to_batches(max_chunksize=100))
    found = pq.ParquetFile(tmp_path / file.path)
    groups = [set(found.read_row_group(n)["k"].to_pylist()) for n in range(file.row_groups)]
    assert groups[0] == {1}
    assert groups[-1] == {3, 4}
    assert len(groups) > 4
    assert set(map(frozenset, groups[1:-1])) == {frozenset({2})}


def test_a_new_file_begins_before_its_footer_is_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "FOOTER_BYTES", 10 * 2 * writing.CHUNK_FOOTER_BYTES)
    table = pa.table({"p": pa.array([0] * 95, pa.int32()), "k": range(95), "v": range(95)})
    files = [*written(target(tmp_path, leaves=(), file_bytes=0), table.to_batches())]
    assert [file.value_count for file in files] == [10] * 9 + [5]


def test_a_file_that_was_not_finished_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those before it were told of, and are their keeper's business."""
    monkeypatch.setattr(writing, "FOOTER_BYTES", 10 * 2 * writing.CHUNK_FOOTER_BYTES)
    table = pa.table({"p": pa.array([0] * 25, pa.int32()), "k": range(25), "v": range(25)})

    def batches() -> Iterator[pa.RecordBatch]:
        yield from table.to_batches()
        raise ValueError("no more rows")

    found = written(target(tmp_path, leaves=(), file_bytes=0), batches())
    told_of = [next(found).path, next(found).path]
    with pytest.raises(ValueError, match="no more rows"):
        next(found)
    assert sorted(path.name for path in tmp_path.rglob("*.parquet")) == sorted(told_of)


def test_instants_are_rounded_outwards() -> None:
    instants = [datetime(2020, 1, 1, tzinfo=UTC) + timedelta(microseconds=n) for n in (1, 1001)]
    statistics = Statistics([Leaf(("t",), True)])
    statistics.add(pa.table({"t": pa.array(instants, pa.timestamp("us", "UTC"))}))
    told = json.loads(statistics.as_json())
    assert told["minValues"] == {"t": "2020-01-01T00:00:00.000Z"}
    assert told["maxValues"] == {"t": "2020-01-01T00:00:00.002Z"}


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_bounds_of_zeros_hold_for_both(zero: float) -> None:
    """Some readers tell -0.0 from 0.0 and take it for less."""
    statistics = Statistics([Leaf(("f",), True)])
    statistics.add(pa.table({"f": pa.array([zero], pa.float64())}))
    told = json.loads(statistics.as_json())
    assert copysign(1, told["minValues"]["f"]) == -1
    assert copysign(1, told["maxValues"]["f"]) == 1


def test_what_json_cannot_say_is_left_out() -> None:
    leaves = [Leaf((name,), True) for name in "abc"]
    statistics = Statistics(leaves)
    halves = pa.array([b"\xff", b"a"], pa.binary()).view(pa.string())
    late = pa.array([2**31 - 1, 0], pa.int32()).view(pa.date32())
    infinite = pa.array([float("-inf"), 1.0])
    statistics.add(pa.table({"a": halves, "b": late, "c": infinite}))
    told = json.loads(statistics.as_json())
    assert told["minValues"] == {"a": "a", "b": "1970-01-01"}
    assert told["maxValues"] == {"c": 1.0}


# Neighbours in the order of code points: the ends of what one and two units of UTF-16 can say
LETTERS = "\x00a\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010fffe\U0010ffff"
TOP = "\U0010ffff"
TEXTS = [
    ("a" * 32, "a" * 32, "a" * 32),  # as long as a bound may be
    ("a" * 33, "a" * 32, "a" * 32 + TOP),
    ("\U0001f600" * 33, "\U0001f600" * 32, "\U0001f600" * 32 + TOP),  # letters, not halves of them
    ("a" * 32 + "\uffff" * 9, "a" * 32, "a" * 32 + TOP),  # below all pairs of surrogates
    ("a" * 32 + "\U0010fffe" + TOP, "a" * 32, "a" * 32 + TOP),
    (TOP * 32, TOP * 32, TOP * 32),
    ("a" * 32 + TOP, "a" * 32, None),  # nothing that is short enough is greater
    (TOP * 40, TOP * 32, None),
    ("\x00" * 40, "\x00" * 32, "\x00" * 32 + TOP),
]


@pytest.mark.parametrize(("text", "least", "greatest"), TEXTS)
def test_bounds_of_long_texts(text: str, least: str, greatest: str | None) -> None:
    told = text_statistics([text])
    assert told["minValues"] == {"t": least}
    assert told["maxValues"].get("t") == greatest


def text_statistics(texts: list[str]) -> dict[str, Any]:
    statistics = Statistics([Leaf(("t",), True)])
    for text in texts:  # each in a row group of its own
        statistics.add(pa.table({"t": pa.array([text], pa.string())}))
    return json.loads(statistics.as_json())


@given(
    st.lists(st.tuples(st.sampled_from(["", "a" * 31]), st.text(LETTERS, max_size=40)), min_size=1)
)
def test_bounds_of_texts_hold_in_the_order_of_their_bytes(parts: list[tuple[str, str]]) -> None:
    """That is how Spark, DuckDB and delta-rs compare them; UTF-16 has another order."""
    texts = ["".join(both) for both in parts]
    told = text_statistics(texts)
    least, greatest = told["minValues"]["t"].encode(), told["maxValues"].get("t")
    assert all(least <= text.encode() for text in texts)
    most = max(texts, key=str.encode)
    assert greatest is not None or (len(most) > 32 and most[32] == TOP)
    assert greatest is None or all(text.encode() <= greatest.encode() for text in texts)


def test_decimals_keep_all_digits() -> None:
    statistics = Statistics([Leaf(("d",), True)])
    exact = Decimal("-12345678901234567890.123456789012345678")
    statistics.add(pa.table({"d": pa.array([exact], pa.decimal128(38, 18))}))
    assert f'"minValues":{{"d":{exact}}}' in statistics.as_json()


def test_field_ids_reach_into_structs_lists_and_maps() -> None:
    inner = pa.struct([("x", pa.int32())])
    schema = pa.schema([("a", pa.list_(inner)), ("m", pa.map_(pa.string(), inner))])
    ids = {("a",): 1, ("a", "element", "x"): 2, ("m",): 3, ("m", "value", "x"): 4}
    found = with_field_ids(schema, ids)
    assert found.equals(schema)
    key = b"PARQUET:field_id"
    assert found.field("a").metadata[key] == b"1"
    assert found.field("a").type.value_type.field("x").metadata[key] == b"2"
    assert found.field("m").type.item_type.field("x").metadata[key] == b"4"


def test_what_an_executor_tells() -> None:
    file = NewFile(
        partition=1, path="a", size=2, modified=3, rows=4, value_count=5, row_groups=6,
        statistics="{}",
    )  # fmt: skip
    (batch,) = told([file])
    assert NewFile(**batch.to_pylist()[0]) == file
    assert batch.schema.names == [part.split()[0] for part in writing.NEW_FILE_COLUMNS.split(", ")]
