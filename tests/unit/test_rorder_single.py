"""Row-group order without Spark: random tables, judged by their files. No JVM here.

`RORDER_SEEDS=1000:3000 bash scripts/test -m soak tests/unit/test_rorder_single.py` takes others.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections import Counter
from datetime import date, datetime
from decimal import Decimal
from math import isnan
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from plain_tables import Table, random_table

import dynamic_tables as dt
from dynamic_tables.lake.plain_delta import reading
from dynamic_tables.lake.row_groups import single


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are read in several; and of pandas Arrow does not understand what conftest says."""
    monkeypatch.setattr(reading, "BATCH_ROWS", 7)
    monkeypatch.setattr(single, "BATCH_ROWS", 11)
    monkeypatch.delitem(sys.modules, "pandas", raising=False)


ROW_IDS = ("_row-id", "_row-version")


def actions(root: Path, version: int) -> list[dict[str, Any]]:
    path = root / "_delta_log" / f"{version:020}.json"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def live_single(root: Path, seed: int) -> None:
    """Put a random table in order, piece by piece, and judge what Delta would read then."""
    table = random_table(root, seed)
    draw = Random(seed + 1)
    before = table.rows_by_partition()
    each, limit = draw.choice([1, 1, 3]), draw.choice([1, 400, 2**20])
    wanted = {
        "unique_by": "KEY",
        "sort_by": draw.choice([(), ("key",)]),
        "values_per_row_group": each,
        "max_row_group_bytes": limit,
        "max_materialize_size": draw.choice([1, 2000, 2**29]),
    }
    items = dt.rorder_setup_multi(root, **wanted)
    assert len(items) == len(before)
    reports = [dt.rorder_single(json.dumps(item.as_json())) for item in items]
    assert [report.version for report in reports] == [
        table.version + 1 + number for number in range(len(reports))
    ]
    judge(root, table, [report.version for report in reports], each)
    assert dt.rorder_setup_multi(root, **wanted) == ()


def judge(root: Path, table: Table, versions: list[int], each: int) -> None:
    """Commits that exchange all files for others with the same rows, and tell nobody of changes."""
    added, removed = [], []
    for version in versions:
        done = actions(root, version)
        assert all(
            not f["dataChange"] for a in done for k, f in a.items() if k in ("add", "remove")
        )
        assert not [a for a in done if "cdc" in a]
        added += [a["add"] for a in done if "add" in a]
        removed += [a["remove"] for a in done if "remove" in a]
    assert sorted(map(_state, removed)) == sorted(_state(f["action"]) for f in table.live)
    before = table.rows_by_partition()
    assert rows_of(root, table, added) == {k: v for k, v in before.items() if v}
    for file in added:
        check_file(root, table, file, each)
    check_row_ids(table, added)


def _state(action: dict[str, Any]) -> tuple[str, str]:
    return action["path"], json.dumps(action.get("deletionVector"), sort_keys=True)


def rows_of(root: Path, table: Table, files: list[dict[str, Any]]) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for file in files:
        read = pq.read_table(root / unquote(file["path"]), partitioning=None)
        names = [column.physical for column in table.columns]
        ids: list[Any] = [None] * read.num_rows
        if table.tracked:
            ids = [*zip(*(read.column(name).to_pylist() for name in ROW_IDS), strict=True)]
        assert read.select(names).schema.equals(table.physical)
        pairs = zip(read.select(names).to_pylist(), ids, strict=True)
        key = json.dumps(file["partitionValues"], sort_keys=True)
        found.setdefault(key, Counter()).update(repr(pair) for pair in pairs)
    return found


def check_file(root: Path, table: Table, file: dict[str, Any], each: int) -> None:
    """Few values in a row group, statistics that are true, ids of columns where they are wanted."""
    place = root / unquote(file["path"])
    assert place.stat().st_size == file["size"]
    read = pq.ParquetFile(place)
    key = table.columns[0].physical
    for n in range(read.num_row_groups):
        assert len(set(read.read_row_group(n, [key]).column(key).to_pylist())) <= each
    if table.mapped:
        ids = [(f.metadata or {}).get(b"PARQUET:field_id") for f in read.schema_arrow]
        assert ids[: len(table.columns)] == [str(c.number).encode() for c in table.columns]
    told = json.loads(file["stats"], parse_float=Decimal)
    rows = read.read()
    assert told["numRecords"] == rows.num_rows
    for column in table.columns:
        check_statistics(told, (column.physical,), rows.column(column.physical).combine_chunks())


def check_statistics(told: dict, path: tuple[str, ...], values: pa.Array) -> None:
    if pa.types.is_struct(values.type):
        for n, inner in enumerate(values.flatten()):
            check_statistics(told, (*path, values.type.field(n).name), inner)
        return
    assert _at(told["nullCount"], path) == values.null_count
    least, most = _at(told["minValues"], path), _at(told["maxValues"], path)
    known = [value for value in values.to_pylist() if value is not None]
    if pa.types.is_nested(values.type) or pa.types.is_binary(values.type):
        assert (least, most) == (None, None)
        return
    for value in known:
        nan = isinstance(value, float) and isnan(value)
        assert most is None or not nan
        assert nan or least is None or _same_kind(least, value) <= value
        assert nan or most is None or value <= _same_kind(most, value)
    if known and not pa.types.is_floating(values.type) and not pa.types.is_boolean(values.type):
        long = pa.types.is_string(values.type) or pa.types.is_timestamp(values.type)
        assert long or None not in (least, most)


def _same_kind(bound: Any, value: Any) -> Any:
    if isinstance(value, float):
        return float(bound)
    if isinstance(value, datetime):
        return datetime.fromisoformat(bound)
    return date.fromisoformat(bound) if isinstance(value, date) else bound


def _at(tree: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        tree = tree.get(name) if isinstance(tree, dict) else None
    return tree


def check_row_ids(table: Table, added: list[dict[str, Any]]) -> None:
    """Fresh ids in the log: above all that were given away, and nobody else's."""
    if not table.tracked:
        return
    start = table.next_row
    for file in added:
        assert file["baseRowId"] == start
        start += json.loads(file["stats"])["numRecords"]


@pytest.mark.parametrize("block", range(8))
def test_random_tables(tmp_path: Path, block: int) -> None:
    """Two hundred of them."""
    for seed in range(block * 25, block * 25 + 25):
        live_single(tmp_path / str(seed), seed)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_many_random_tables(tmp_path: Path) -> None:
    for seed in range(*map(int, os.environ.get("RORDER_SEEDS", "1000:2000").split(":"))):
        print("seed", seed, flush=True)
        live_single(tmp_path / str(seed), seed)
        shutil.rmtree(tmp_path / str(seed))
