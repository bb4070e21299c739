"""Every query that Spark's users commonly write has an incremental plan (a long run)."""

from __future__ import annotations

import pytest

import dynamic_tables as dt
from dynamic_tables.compiler.plan import DeltaPlan
from spark_sql import COLUMNS, QUERIES

pytestmark = [pytest.mark.spark, pytest.mark.soak]

FEED = "USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)"


@pytest.mark.timeout(3600)
def test_common_queries_are_incremental(shared: dt.DynamicTables) -> None:
    shared.sql(f"CREATE TABLE r ({COLUMNS}) {FEED}")
    shared.sql(f"CREATE TABLE o (k INT, w INT, n STRING, d DATE) {FEED}")
    recomputed = {}
    for query in QUERIES:
        shared.create("common", query, initialize="ON_SCHEDULE")
        plan = shared.lake.plan_of(shared.show("common").definition)
        if not isinstance(plan, DeltaPlan):
            recomputed[query] = f"{plan.reason}: {plan.what}"
        shared.drop("common")
    assert recomputed == {}
