"""TPC-H: all 22 queries as dynamic tables, refreshed after both refresh functions, against
recomputing all of them.

As the test suite does, at a larger scale; the queries have no LIMIT. A round inserts a thousandth
of the orders, deletes as many, and refreshes everything: first table by table, each beside its
recomputation, which writes the same table anew; at last all of them at once, in as many threads by
either way. Whichever comes first pays for cold changes and caches, so they change places from query
to query and from round to round. In the end every table is compared with its query.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from common import Lake, arguments, bars, check, report

import dynamic_tables as dt
from dynamic_tables.lake.sessions import private_session

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


def one_by_one(tables: dt.DynamicTables, queries: dict[str, str], number: int) -> dict[str, Pair]:
    """Each query is refreshed and recomputed next to each other, so that both meet the same
    machine."""
    measured = {}
    for place, (name, query) in enumerate(queries.items()):
        strategies: list[str] = []

        def refresh(name: str = name, strategies: list[str] = strategies) -> None:
            strategies.append(tables.refresh(name)[name].strategy or "")

        def recompute(name: str = name, query: str = query) -> None:
            tables.sql(overwrite(name, query))

        refreshed, recomputed = timed(refresh, recompute, turn=number + place)
        measured[name] = Pair(strategies[0], refreshed, recomputed)
        print(line(name, measured[name]), flush=True)
    return measured


def at_once(tables: dt.DynamicTables, queries: dict[str, str], number: int) -> Pair:
    """All of them at one cut, as a refresh of everything does; and all statements side by side."""

    def recompute() -> None:
        with ThreadPoolExecutor(tables.settings["threads"]) as pool:
            list(pool.map(lambda item: in_private(tables, overwrite(*item)), queries.items()))

    return Pair("", *timed(tables.refresh, recompute, turn=number))


def in_private(tables: dt.DynamicTables, statement: str) -> None:
    """In a session of its own, as each table is refreshed."""
    catalog = tables.spark.catalog
    namespace = (catalog.currentCatalog(), catalog.currentDatabase())
    private_session(tables.spark, settings={}, namespace=namespace).sql(statement)


def overwrite(name: str, query: str) -> str:
    return f"INSERT OVERWRITE {name}_whole {query}"


def timed(*ways: Callable[[], object], turn: int) -> list[float]:
    """The seconds of each way, whichever comes first."""
    seconds = [0.0] * len(ways)
    for n in range(len(ways)):
        place = (n + turn) % len(ways)
        begun = time.perf_counter()
        ways[place]()
        seconds[place] = time.perf_counter() - begun
    return seconds


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
    """Of several refreshes; the strategies that occurred."""
    strategies, refreshed, whole = zip(*pairs, strict=True)
    return Pair(", ".join(dict.fromkeys(strategies)), sum(refreshed), sum(whole))


def mean(pairs: Sequence[Pair]) -> Pair:
    whole = total(pairs)
    return Pair(whole.strategy, whole.refreshed / len(pairs), whole.recomputed / len(pairs))


def said(alone: Pair, together: Pair, rounds: int) -> str:
    return (
        f"\nThe rows are means of {rounds} rounds. One after another, all of them: refreshing"
        f" {alone.refreshed:.1f} s, recomputing {alone.recomputed:.1f} s, {alone.ratio:.1f} times."
        f" All at once, {rounds} rounds, in as many threads by either way: refreshing"
        f" {together.refreshed:.1f} s, recomputing {together.recomputed:.1f} s,"
        f" {together.ratio:.1f} times."
    )


def main() -> None:
    wanted = arguments(__doc__)
    scale, rounds, warm_up = (0.01, 1, 0) if wanted.quick else (1, 2, 1)
    single, together = [], []
    with tempfile.TemporaryDirectory() as data, Lake() as tables:
        queries = tpch.generated(Path(data), scale=scale)
        load(tables, Path(data))
        for name, query in queries.items():
            tables.create(name, query)
            tables.sql(f"CREATE TABLE {name}_whole USING delta AS {query}")
        for number in range(warm_up + rounds):
            moved(tables, number)
            single.append(one_by_one(tables, queries, number))
        for number in range(warm_up + rounds, warm_up + 2 * rounds):
            moved(tables, number)
            together.append(at_once(tables, queries, number))
        for name, query in queries.items():
            check(tables, query, name, f"{name}_whole")
    means = {name: mean([found[name] for found in single[warm_up:]]) for name in queries}
    alone = total(pair for found in single[warm_up:] for pair in found.values())
    lines = [HEADING, *(line(name, pair) for name, pair in means.items())]
    lines.append(said(alone, total(together), rounds))
    title = f"TPC-H at scale {scale}"
    picture = "tpc_h.png"
    report(title, "\n".join(lines), save=wanted.save, picture=picture)
    if wanted.save:
        drawn = {name: {"refresh": pair.ratio} for name, pair in means.items()}
        bars(picture, title, drawn, y="times faster than recomputing")


if __name__ == "__main__":
    main()
