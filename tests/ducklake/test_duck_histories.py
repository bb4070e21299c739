"""Random data, random changes, many queries at once: after every refresh the equation holds.

NULLs, duplicates, empty tables, keys that move, rows deleted and inserted again, several commits
between refreshes, tables refreshed alone and together.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
from duck_oracle import check

import dynamic_tables as dt

QUERIES = {
    "grouped": "SELECT k, count(*) AS n, sum(v) AS s, max(t) AS m FROM fact GROUP BY k",
    "kept": "SELECT k, v, t FROM fact WHERE v IS NULL OR v > 2",
    "joined": (
        "SELECT f.k, f.v, d.name FROM fact f LEFT JOIN dim d ON f.k IS NOT DISTINCT FROM d.k "
        "WHERE d.name IS NULL OR d.name <> 'x'"
    ),
    "nested": (
        "WITH fact AS (SELECT k, count(*) AS n FROM fact GROUP BY k) "
        "SELECT g.k, g.n, f.s FROM grouped f JOIN fact g ON g.k IS NOT DISTINCT FROM f.k "
        "WHERE EXISTS (SELECT 1 FROM kept x WHERE x.k IS NOT DISTINCT FROM g.k)"
    ),
    "collected": (
        "SELECT t, list(v ORDER BY v) AS vs, MAP {coalesce(t, 'none'): count(*)} AS m "
        "FROM kept GROUP BY t"
    ),
    "unioned": "SELECT k FROM kept UNION ALL SELECT k FROM dim UNION ALL SELECT k FROM fact",
    "below": "SELECT t, len(vs) AS n, m FROM collected",
}


def value(chance: random.Random) -> str:
    return chance.choice(["NULL", "1", "2", "3", "4"])


def text(chance: random.Random) -> str:
    return chance.choice(["NULL", "'x'", "'y'", "'it''s'", "''"])


def row(chance: random.Random) -> str:
    return f"({value(chance)}, {value(chance)}, {text(chance)})"


CHANGES: tuple[Callable[[random.Random], str], ...] = (
    lambda c: f"INSERT INTO fact VALUES {', '.join(row(c) for _ in range(c.randint(1, 6)))}",
    lambda c: f"DELETE FROM fact WHERE k IS NOT DISTINCT FROM {value(c)}",
    lambda c: f"UPDATE fact SET k = {value(c)} WHERE v IS NOT DISTINCT FROM {value(c)}",
    lambda c: "UPDATE fact SET t = t",
    lambda c: "INSERT INTO fact SELECT * FROM fact LIMIT 2",
    lambda c: f"INSERT INTO fact SELECT i, i % 3, 'many' FROM range({c.randint(12, 40)}) r(i)",
    lambda c: "TRUNCATE fact",
    lambda c: "CALL ducklake_flush_inlined_data('small_lake')",
    lambda c: "DELETE FROM fact",
    lambda c: f"INSERT INTO dim VALUES ({value(c)}, {text(c)})",
    lambda c: f"UPDATE dim SET name = {text(c)} WHERE k IS NOT DISTINCT FROM {value(c)}",
    lambda c: f"DELETE FROM dim WHERE k IS NOT DISTINCT FROM {value(c)}",
    # No MERGE: DuckLake 1.5.5 failed in some ("Out of buffer", "Invalid data"); why is not known.
    lambda c: f"UPDATE fact SET v = {value(c)} WHERE k IN (SELECT k FROM dim)",
    lambda c: "INSERT INTO fact SELECT k, 1, 'new' FROM dim ANTI JOIN fact USING (k)",
)


@pytest.fixture
def lake(open_lake: Callable[..., dt.DynamicTables]) -> Iterator[dt.DynamicTables]:
    tables = open_lake()
    tables.sql("CREATE TABLE fact (k INT, v INT, t VARCHAR)")
    tables.sql("CREATE TABLE dim (k INT, name VARCHAR)")
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


@pytest.mark.parametrize("seed", range(3))
def test_a_random_life(lake: dt.DynamicTables, seed: int) -> None:
    live(lake, seed, rounds=3)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 140))
def test_random_lives(lake: dt.DynamicTables, seed: int) -> None:
    live(lake, seed, rounds=6)
