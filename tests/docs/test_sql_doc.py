"""docs/sql.md: every construct's example has the strategies that the table says."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest
from random_queries import SCHEMAS

from dynamic_tables.compiler.plan import DeltaPlan, plan_query
from dynamic_tables.model import Strategy

TEXT = (Path(__file__).parents[2] / "docs" / "sql.md").read_text()
ROWS = re.findall(r"^\| (.+?) \| .+ \| `(SELECT .+?)` \| (.+) \|$", TEXT, re.MULTILINE)
ALWAYS = {Strategy.NO_DATA, Strategy.FULL}


def test_every_construct_has_an_example() -> None:
    table = TEXT.partition("|---|---|---|---|\n")[2].partition("\n\n")[0]
    assert len(ROWS) == len(table.splitlines()) >= 14


@pytest.mark.parametrize(("construct", "query", "strategies"), ROWS)
def test_strategies(construct: str, query: str, strategies: str) -> None:
    with duckdb.connect() as db:
        for table, columns in SCHEMAS.items():
            db.execute(f"CREATE TABLE {table} ({', '.join(f'{name} INT' for name in columns)})")
        names = [column[0] for column in db.execute(query).description]
    plan = plan_query(query, SCHEMAS, columns=names, dialect="duckdb")
    assert isinstance(plan, DeltaPlan), plan
    possible = {way for way, why in plan.possible().items() if why is None}
    told = set(re.findall(r"`(\w+)`", strategies))
    assert told == possible - ALWAYS, construct
