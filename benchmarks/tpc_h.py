"""TPC-H: all 22 queries as dynamic tables, refreshed after both refresh functions, against
recomputing all of them.

As the test suite does, at a larger scale; the queries have no LIMIT. A round inserts a thousandth
of the orders, deletes as many, and refreshes everything; recomputing writes the same tables anew.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

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


def main() -> None:
    wanted = arguments(__doc__)
    scale, rounds, warm_up = (0.01, 1, 0) if wanted.quick else (1, 2, 1)
    with tempfile.TemporaryDirectory() as data, Lake() as tables:
        queries = tpch.generated(Path(data), scale=scale)
        load(tables, Path(data))
        for name, query in queries.items():
            tables.create(name, query)
            tables.sql(f"CREATE TABLE {name}_whole USING delta AS {query}")
        lines, totals, drawn = [], [0.0, 0.0], {}
        for number in range(-warm_up, rounds):
            moved(tables, number + 1)
            lines = [HEADING]
            for name, query in queries.items():
                begun = time.perf_counter()
                record = tables.refresh(name)[name]
                refreshed = time.perf_counter() - begun
                begun = time.perf_counter()
                tables.sql(f"INSERT OVERWRITE {name}_whole {query}")
                recomputed = time.perf_counter() - begun
                ratio = recomputed / refreshed
                drawn[name] = {"refresh": ratio}
                lines.append(
                    f"| {name} | {record.strategy} | {refreshed:.2f} | {recomputed:.2f} |"
                    f" {ratio:.1f} |"
                )
                print(lines[-1], flush=True)
                if number >= 0:
                    totals = [totals[0] + refreshed, totals[1] + recomputed]
    refreshed, recomputed = totals
    lines.append(
        f"\nAll queries, {rounds} rounds: refreshing {refreshed:.1f} s, recomputing"
        f" {recomputed:.1f} s, {recomputed / refreshed:.1f} times. The rows above are the last"
        " round's."
    )
    title = f"TPC-H at scale {scale}"
    report(title, "\n".join(lines), save=wanted.save)
    if wanted.save:
        bars("tpc_h.png", title, drawn, y="times faster than recomputing")


if __name__ == "__main__":
    main()
