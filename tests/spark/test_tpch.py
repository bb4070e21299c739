"""All 22 queries of TPC-H on Delta, by changes. The long run goes through all five rounds."""

from __future__ import annotations

import pytest

import dynamic_tables as dt
import tpch

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def business(shared: dt.DynamicTables, tmp_path_factory: pytest.TempPathFactory) -> tpch.Business:
    folder = tmp_path_factory.mktemp("tpch")
    queries = tpch.generated(folder, scale=0.001)
    shared.sql("SET spark.sql.shuffle.partitions = 1")
    tpch.load(shared, folder, spark=True)
    return tpch.Business(shared, queries)


def go_through(business: tpch.Business, numbers: range) -> None:
    for number in numbers:
        strategies = business.round(number)
        recomputed = {name for name, way in strategies.items() if way == "full"}
        assert recomputed <= tpch.SCALAR, strategies


@pytest.mark.timeout(1200)
def test_all_queries_by_changes(business: tpch.Business) -> None:
    go_through(business, range(1))
    assert len(business.moved) >= 15, business.moved


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_all_rounds(business: tpch.Business) -> None:
    go_through(business, range(1, tpch.ROUNDS))
