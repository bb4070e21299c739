"""compile_ivm on random queries: after every round of random changes each view equals its text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import duckdb
import pytest
from plain_lake import Lake, attached, database
from random_queries import SCHEMAS, Queries

import dynamic_tables as dt

VIEWS = 8  # a lake
ROUNDS = 3
SOURCES = {table: {"columns": list(columns)} for table, columns in SCHEMAS.items()}
MAY_REFUSE = {"SQL_NOT_FAITHFUL", "NO_PARTITION"}  # what the compiler does not keep up


class Numbered(dt.Naming):
    def __init__(self, number: int) -> None:
        self.number = number

    def mv_table(self) -> str:
        return f"mv{self.number}"


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with database() as connection:
        yield connection


def value(chance: Random) -> str:
    return chance.choice(["NULL", "0", "1", "2", "3"])


def change(chance: Random) -> str:
    table = chance.choice(sorted(SCHEMAS))
    one, other = chance.choice(SCHEMAS[table]), chance.choice(SCHEMAS[table])
    same = f"{one} IS NOT DISTINCT FROM {value(chance)}"
    row = ", ".join(value(chance) for _ in SCHEMAS[table])
    return chance.choice([
        f"INSERT INTO {table} VALUES ({row}), ({row})",
        f"INSERT INTO {table} VALUES ({row})",
        f"INSERT INTO {table} SELECT * FROM {table} LIMIT 2",
        f"DELETE FROM {table} WHERE {same}",
        f"UPDATE {table} SET {other} = {value(chance)} WHERE {same}",
        f"UPDATE {table} SET {one} = {one}",
    ])  # fmt: skip


def live(lake: Lake, chance: Random) -> int:
    """Views over three tables, and what happens to them; how many could be made."""
    for table, columns in SCHEMAS.items():
        lake.run(f"CREATE TABLE {table} ({', '.join(f'{c} INT' for c in columns)})")
    lake.run(*(change(chance) for _ in range(6)))
    plans = []
    for number in range(VIEWS):
        query = Queries(chance).query(depth=chance.choice([1, 2])).sql
        try:
            plan = dt.compile_ivm(query, naming=Numbered(number), sources=SOURCES)
        except dt.UnsupportedSQLError as refused:
            if refused.feature not in MAY_REFUSE:
                raise
        else:
            plans.append((number, lake.make(plan)))
    for _ in range(ROUNDS):
        lake.run(*(change(chance) for _ in range(chance.randint(1, 4))))
        for number, plan in plans:
            lake.maintain(plan, f"dl.main.mv{number}")
    return len(plans)


@pytest.mark.parametrize("seed", range(3))
def test_random_views(seed: int, tmp_path: Path, connection: duckdb.DuckDBPyConnection) -> None:
    with attached(tmp_path, connection) as lake:
        assert live(lake, Random(seed)) >= VIEWS - 1


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 300))
def test_many_random_views(
    seed: int, tmp_path: Path, connection: duckdb.DuckDBPyConnection
) -> None:
    with attached(tmp_path, connection) as lake:
        live(lake, Random(seed))
