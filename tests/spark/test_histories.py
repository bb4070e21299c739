"""Random data, random changes, many queries at once: after every refresh the equation holds.

Random queries live through random histories, each strategy in turn; and, in the long run only, a
graph of tables that read each other. The long run has 52 histories a seed:
`LIVES_SEEDS=1:11 bash scripts/test -m soak tests/spark/test_histories.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from lives import DEPTHS, Clock, Tally, lived, soak_seeds

import dynamic_tables as dt
from dynamic_tables.lake import holding
from oracle import check

pytestmark = pytest.mark.spark

QUERIES = {
    "grouped": "SELECT k, count(*) AS n, sum(v) AS s, max(t) AS m FROM fact GROUP BY k",
    "kept": "SELECT k, v, t FROM fact WHERE v IS NULL OR v > 2",
    "joined": (
        "SELECT f.k, f.v, d.name FROM fact f LEFT JOIN dim d ON f.k <=> d.k "
        "WHERE d.name IS NULL OR d.name <> 'x'"
    ),
    "nested": (
        "WITH fact AS (SELECT k, count(*) AS n FROM fact GROUP BY k) "
        "SELECT g.k, g.n, f.s FROM grouped f JOIN fact g ON g.k <=> f.k "
        "WHERE EXISTS (SELECT 1 FROM kept x WHERE x.k <=> g.k)"
    ),
    "collected": (
        "SELECT t, collect_set(v) AS vs, map(coalesce(t, 'none'), count(*)) AS m "
        "FROM kept GROUP BY t"
    ),
    "unioned": "SELECT k FROM kept UNION ALL SELECT k FROM dim UNION ALL SELECT k FROM fact",
    "below": "SELECT t, size(vs) AS n, m FROM collected",
}


def value(chance: random.Random) -> str:
    return chance.choice(["NULL", "1", "2", "3", "4"])


def text(chance: random.Random) -> str:
    return chance.choice(["NULL", "'x'", "'y'", "'it''s'", "''"])


def row(chance: random.Random) -> str:
    return f"({value(chance)}, {value(chance)}, {text(chance)})"


CHANGES: tuple[Callable[[random.Random], str], ...] = (
    lambda c: f"INSERT INTO fact VALUES {', '.join(row(c) for _ in range(c.randint(1, 6)))}",
    lambda c: f"DELETE FROM fact WHERE k <=> {value(c)}",
    lambda c: f"UPDATE fact SET k = {value(c)} WHERE v <=> {value(c)}",
    lambda c: "UPDATE fact SET t = t",
    lambda c: "INSERT INTO fact SELECT * FROM fact LIMIT 2",
    lambda c: f"INSERT OVERWRITE fact VALUES {', '.join(row(c) for _ in range(c.randint(1, 6)))}",
    lambda c: "DELETE FROM fact",
    lambda c: f"INSERT INTO dim VALUES ({value(c)}, {text(c)})",
    lambda c: f"UPDATE dim SET name = {text(c)} WHERE k <=> {value(c)}",
    lambda c: f"DELETE FROM dim WHERE k <=> {value(c)}",
    lambda c: (
        f"MERGE INTO fact USING (SELECT DISTINCT k FROM dim) d ON fact.k = d.k "
        f"WHEN MATCHED AND v > 3 THEN DELETE WHEN MATCHED THEN UPDATE SET v = {value(c)} "
        f"WHEN NOT MATCHED THEN INSERT (k, v, t) VALUES (d.k, 1, 'new')"
    ),
)


@pytest.fixture
def lake(open_lake: Callable[..., dt.DynamicTables]) -> Iterator[dt.DynamicTables]:
    tables = open_lake()
    tables.sql("CREATE TABLE fact (k INT, v INT, t STRING) USING delta")
    tables.sql("CREATE TABLE dim (k INT, name STRING) USING delta")
    for name, query in QUERIES.items():
        tables.create(name, query, initialize="ON_SCHEDULE")
    return tables


def live(tables: dt.DynamicTables, seed: int, rounds: int) -> None:
    """Let a lake live: change, refresh all or some, compare."""
    chance = random.Random(seed)
    tables.refresh()  # over empty sources
    check(tables)
    for _ in range(rounds):
        for _ in range(chance.randint(1, 4)):
            tables.sql(chance.choice(CHANGES)(chance))
        if chance.random() < 0.3:
            some = chance.sample(sorted(QUERIES), 2)
            tables.refresh(*some, upstream=chance.random() < 0.5)
        else:
            tables.refresh()
        check(tables)
    assert all(tables.verify(name).ok for name in QUERIES)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(6))
def test_random_lives_of_a_graph(lake: dt.DynamicTables, seed: int) -> None:
    live(lake, seed, rounds=8)


def random_lives(folder: Path, seeds: Iterable[int], depths: tuple[int, ...] = DEPTHS) -> Tally:
    """In every second life nothing is small enough for the driver."""
    small = holding.SMALL_CHANGES

    def open_lake(seed: int, clock: Clock) -> dt.DynamicTables:
        holding.SMALL_CHANGES = 0 if seed % 2 else small
        tables = dt.connect(folder / str(seed), jvm="quick", say=lambda _: None, clock=clock)
        tables.sql("SET spark.sql.shuffle.partitions = 1")
        return tables

    try:
        tally = lived(open_lake, seeds, spark=True, tables_wanted=13, rounds=4, depths=depths)
    finally:
        holding.SMALL_CHANGES = small
    print(tally)
    assert not tally.wrong, "\n".join(tally.wrong)
    assert len(tally.recomputed) <= 0.05 * tally.queries, "\n".join(tally.recomputed)
    return tally


@pytest.mark.timeout(1200)
def test_random_queries_live(tmp_path: Path) -> None:
    """A seed whose queries have every strategy between them; one of them reads a view."""
    tally = random_lives(tmp_path, [24], depths=(0, 0, 1, 1))
    assert tally.histories >= 50
    assert {"append", "merge", "keys", "rows", "full"} <= set(tally.strategies)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_many_more_random_queries_live(tmp_path: Path) -> None:
    random_lives(tmp_path, soak_seeds("1:11"))
