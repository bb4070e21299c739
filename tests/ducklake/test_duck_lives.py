"""Random queries on DuckLake live through random histories: always equal to recomputing.

The long run: `LIVES_SEEDS=100:380 bash scripts/test -m soak tests/ducklake/test_duck_lives.py -s`
(about 360 histories a seed, 100,000 in all by default; the range may be divided between runs).
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from lives import Clock, Tally, lived, soak_seeds

import dynamic_tables as dt

TABLES, ROUNDS = 24, 14  # of a lake: 336 histories and a few more
DEAR = (  # of tiny tables: to optimise a query takes longer than to run it
    "join_order,statistics_propagation,column_lifetime,build_side_probe_side,duplicate_groups,"
    "compressed_materialization,reorder_filter,sampling_pushdown,join_filter_pushdown,extension,"
    "materialized_cte,sum_rewriter,late_materialization,cte_inlining,common_subplan"
)


def run(folder: Path, seeds: list[int]) -> Tally:
    def open_lake(seed: int, clock: Clock) -> dt.DynamicTables:
        shutil.rmtree(folder, ignore_errors=True)
        tables = dt.connect(f"ducklake:{folder / str(seed)}", say=lambda _: None, clock=clock)
        tables.sql("SET threads = 1")
        tables.sql(f"SET disabled_optimizers = '{DEAR}'")
        return tables

    return lived(open_lake, seeds, spark=False, tables_wanted=TABLES, rounds=ROUNDS)


@pytest.fixture(scope="module")
def tally(tmp_path_factory: pytest.TempPathFactory) -> Tally:
    return run(tmp_path_factory.mktemp("lives"), list(range(6)))


def check(tally: Tally) -> None:
    print(tally)
    assert not tally.wrong, "\n".join(tally.wrong)
    assert not tally.refused, "\n".join(tally.refused)
    assert len(tally.recomputed) <= 0.05 * tally.queries, "\n".join(tally.recomputed)


@pytest.mark.timeout(3600)
def test_every_table_equals_its_query(tally: Tally) -> None:
    check(tally)
    assert tally.histories >= 2_000


def test_every_strategy_took_part(tally: Tally) -> None:
    assert {"no_data", "append", "merge", "keys", "rows", "full"} <= set(tally.strategies)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_many_more_lives(tmp_path: Path) -> None:
    check(run(tmp_path / "soak", list(soak_seeds("100:380"))))
