"""TPC-H: all 22 queries as dynamic tables, refreshed after both refresh functions, against
recomputing all of them.

As the test suite does, at a larger scale; the queries have no LIMIT. A round inserts a thousandth
of the orders, deletes as many, and refreshes everything: first table by table, each beside its
recomputation, which writes the same table anew; at last all of them at once.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from common import Lake, arguments, bars, report

import dynamic_tables as dt

sys.path[:0] = [
    str(Path(__file__).parents[1] / "tests" / part) for part in ("tpch", "property", "")
]

import tpch  # noqa: E402  beside the tests

HEADING = "| query | strategy | refresh s | recompute s | ratio |\n|---|---|---|---|---|"
PARTS = 1_000  # RF1 and RF2 move a thousandth of the orders


def moved(tables: dt.DynamicTables, number: int) -> None:
    """Refresh functions 1 and 2: orders come, and as many old ones go, with their items."""
    for table, key in (("orders", "o_orderkey"), ("lineitem", "l_orderkey")):
        part = f"CAST(floor({key} / 32) AS INT) % {PARTS}"
        tables.sql(f"INSERT INTO {table} SELECT * FROM later_{table} WHERE {part} = {number}")
        tables.sql(f"DELETE FROM {table} WHERE {part} = {PARTS // 2 + number}")


def load(tables: dt.DynamicTables, folder: Path) -> None:
    feed = " USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    for table in tpch.TABLES:
        source = f"SELECT * FROM parquet.`{folder / table}.parquet`"
        if table in ("orders", "lineitem"):
            key = "o_orderkey" if table == "orders" else "l_orderkey"
            later = f"CAST(floor({key} / 32) AS INT) % {PARTS} < 10"
            tables.sql(f"CREATE TABLE {table}{feed} AS {source} WHERE NOT {later}")
            tables.sql(f"CREATE TABLE later_{table}{feed} AS {source} WHERE {later}")
        else:
            tables.sql(f"CREATE TABLE {table}{feed} AS {source}")


def one_by_one(tables: dt.DynamicTables, queries: dict[str, str]) -> dict[str, Pair]:
    """Each query is refreshed and recomputed next to each other, so that both meet the same
    machine."""
    measured = {}
    for name, query in queries.items():
        begun = time.perf_counter()
        record = tables.refresh(name)[name]
        refreshed = time.perf_counter() - begun
        measured[name] = Pair(record.strategy or "", refreshed, recomputed(tables, name, query))
        print(line(name, measured[name]), flush=True)
    return measured


def at_once(tables: dt.DynamicTables, queries: dict[str, str]) -> Pair:
    """All of them at one cut, as a refresh of everything does."""
    begun = time.perf_counter()
    tables.refresh()
    refreshed = time.perf_counter() - begun
    whole = sum(recomputed(tables, name, query) for name, query in queries.items())
    return Pair("", refreshed, whole)


def recomputed(tables: dt.DynamicTables, name: str, query: str) -> float:
    begun = time.perf_counter()
    tables.sql(f"INSERT OVERWRITE {name}_whole {query}")
    return time.perf_counter() - begun


class Pair(NamedTuple):
    """The same change by both ways, in seconds."""

    strategy: str
    refreshed: float
    recomputed: float

    @property
    def ratio(self) -> float:
        return self.recomputed / self.refreshed


def line(name: str, pair: Pair) -> str:
    times = f"{pair.refreshed:.2f} | {pair.recomputed:.2f} | {pair.ratio:.1f}"
    return f"| {name} | {pair.strategy} | {times} |"


def total(pairs: Iterable[Pair]) -> Pair:
    _, refreshed, whole = zip(*pairs, strict=True)
    return Pair("", sum(refreshed), sum(whole))


def main() -> None:
    wanted = arguments(__doc__)
    scale, rounds, warm_up = (0.01, 1, 0) if wanted.quick else (1, 2, 1)
    with tempfile.TemporaryDirectory() as data, Lake() as tables:
        queries = tpch.generated(Path(data), scale=scale)
        load(tables, Path(data))
        for name, query in queries.items():
            tables.create(name, query)
            tables.sql(f"CREATE TABLE {name}_whole USING delta AS {query}")
        measured = []
        for number in range(warm_up + rounds):
            moved(tables, number)
            measured.append(one_by_one(tables, queries))
        moved(tables, warm_up + rounds)
        together = at_once(tables, queries)
    last, counted = measured[-1], measured[warm_up:]
    alone = total(pair for taken in counted for pair in taken.values())
    lines = [HEADING, *(line(name, pair) for name, pair in last.items())]
    lines.append(
        f"\nOne after another, {rounds} rounds: refreshing {alone.refreshed:.1f} s, recomputing"
        f" {alone.recomputed:.1f} s, {alone.ratio:.1f} times; the rows above are the last round's."
        f" All at once, one round: refreshing {together.refreshed:.1f} s, recomputing one after"
        f" another {together.recomputed:.1f} s, {together.ratio:.1f} times."
    )
    title = f"TPC-H at scale {scale}"
    report(title, "\n".join(lines), save=wanted.save)
    if wanted.save:
        drawn = {name: {"refresh": pair.ratio} for name, pair in last.items()}
        bars("tpc_h.png", title, drawn, y="times faster than recomputing")


if __name__ == "__main__":
    main()
