"""Random tables put in order: the same rows, no change for anybody, statistics that are true.

`RORDER_SEEDS=100:300 bash scripts/test -m soak tests/spark/test_rorder_random.py` takes others.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest
from plain_tables import random_table
from random_tables import Wanted, false_statistics, quoted, rows, values_of_row_groups, wanted
from test_rorder_single import judge

import dynamic_tables as dt

pytestmark = pytest.mark.spark
PLAIN = 50  # tables whose making and judging need no Spark; each is 2 s of one core


def live(tables: dt.DynamicTables, seed: int) -> None:
    table = wanted(seed)
    for statement in table.statements:
        tables.spark.sql(statement)
    before = rows(tables, table)
    report = dt.rorder(
        table.name,
        unique_by=table.key,
        sort_by=table.sort_by,
        values_per_row_group=table.values_per_row_group,
        max_row_group_bytes=table.max_row_group_bytes,
        spark=tables.spark,
    )
    assert rows(tables, table) == before, table
    assert sum(part.rows or 0 for part in report.partitions) == before.total()
    assert false_statistics(tables, table) == []
    check_feed(tables, table, report)
    check_row_groups(tables, table, report)


def check_feed(tables: dt.DynamicTables, table: Wanted, report: dt.RorderReport) -> None:
    if table.feed and report.version is not None:
        feed = f"SELECT * FROM table_changes('{table.name}', {report.version})"
        assert tables.spark.sql(feed).collect() == []


def check_row_groups(tables: dt.DynamicTables, table: Wanted, report: dt.RorderReport) -> None:
    """One value in a row group if that was asked for, and as many row groups as were told."""
    found = values_of_row_groups(tables, table)
    assert len(found) == sum(part.row_groups or 0 for part in report.partitions)
    if table.values_per_row_group == 1:
        assert [ends for ends in found if ends[0] != ends[1]] == []
    if table.max_row_group_bytes > 1000 and table.values_per_row_group == 1:
        parts = [quoted(column) for column in report.partitions[0].partition] if found else []
        grouped = tables.spark.table(table.name).select(*parts, quoted(table.key)).distinct()
        assert len(found) == grouped.count()


def seeds(default: range) -> Iterable[int]:
    given = os.environ.get("RORDER_SEEDS")
    return range(*map(int, given.split(":"))) if given else default


@pytest.mark.parametrize("seed", range(10))
def test_random_tables(shared: dt.DynamicTables, seed: int) -> None:
    live(shared, seed)


def live_plain(tables: dt.DynamicTables, root: Path, seed: int) -> None:
    """Made and judged without Spark, which takes no time: what is left is `rorder` itself."""
    table, draw = random_table(root, seed), Random(seed + 1)
    each = draw.choice([1, 1, 3])
    report = dt.rorder(
        root,
        unique_by="key",
        sort_by=draw.choice([(), ("key",)]),
        values_per_row_group=each,
        max_row_group_bytes=draw.choice([1, 400, 2**20]),
        spark=tables.spark,
    )
    versions = [] if report.version is None else [report.version]
    judge(root, table, versions, each)
    assert sum(part.rows or 0 for part in report.partitions) == sum(
        len(file["rows"]) for file in table.live
    )


@pytest.mark.parametrize("block", range(PLAIN // 10))
def test_random_tables_that_spark_did_not_make(
    shared: dt.DynamicTables, tmp_path: Path, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "pandas", raising=False)  # Arrow asks for it
    for seed in range(block * 10, block * 10 + 10):
        live_plain(shared, tmp_path / str(seed), seed)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_many_random_tables(shared: dt.DynamicTables) -> None:
    for seed in seeds(range(1_000, 2_000)):
        print("seed", seed, flush=True)
        live(shared, seed)
        shared.spark.sql(f"DROP TABLE random_{seed}")
