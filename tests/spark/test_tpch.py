"""TPC-H on Delta, by changes. The long run has all 22 queries and all five rounds."""

from __future__ import annotations

from pathlib import Path

import pytest

import dynamic_tables as dt
import tpch

pytestmark = pytest.mark.spark


FEW = ("q4", "q13")  # for the test command


def opened(shared: dt.DynamicTables, folder: Path, *names: str) -> tpch.Business:
    generated = tpch.generated(folder, scale=0.001)
    queries = {name: generated[name] for name in names or generated}
    shared.sql("SET spark.sql.shuffle.partitions = 1")
    tpch.load(shared, folder, tpch.read_by(queries.values()), spark=True)
    return tpch.Business(shared, queries)


def go_through(business: tpch.Business, rounds: int) -> None:
    for number in range(rounds):
        strategies = business.round(number)
        recomputed = {name for name, way in strategies.items() if way == "full"}
        assert recomputed <= tpch.SCALAR, strategies


def test_some_queries_by_changes(shared: dt.DynamicTables, tmp_path: Path) -> None:
    business = opened(shared, tmp_path, *FEW)
    go_through(business, 1)
    assert len(business.moved) >= 2, business.moved


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_all_queries_by_changes(shared: dt.DynamicTables, tmp_path: Path) -> None:
    go_through(opened(shared, tmp_path), tpch.ROUNDS)
