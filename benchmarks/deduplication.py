"""DEDUPLICATION: a recomputed table of which few rows changed, written by comparison and whole.

What comparing costs the table itself, and what it saves one child that is refreshed after it: the
rows that are passed on, and the seconds of both refreshes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from common import Lake, arguments, report

import dynamic_tables as dt

SHARES = (0.0, 0.01, 0.5)  # of the rows
FEED = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
WAYS = {"compared": "true", "whole": "false"}
HEADING = (
    "| changed | way | table s | child s | both s | rows passed on | child's strategy |\n"
    "|---|---|---|---|---|---|---|"
)


@dataclass(frozen=True, slots=True)
class Turn:
    """One refresh of the table and one of its child."""

    table_s: float
    child_s: float
    passed_on: int  # rows that came and went
    child: str

    def line(self, share: float, way: str) -> str:
        seconds = f"{self.table_s:.2f} | {self.child_s:.2f} | {self.table_s + self.child_s:.2f}"
        return f"| {share:.0%} | {way} | {seconds} | {self.passed_on:,} | {self.child} |"


def prepare(tables: dt.DynamicTables, rows: int) -> None:
    """A table of one row a key, recomputed by every refresh; its child counts values."""
    tables.sql(
        f"CREATE TABLE fact USING delta {FEED} AS"
        f" SELECT id AS k, pmod(xxhash64(id), 1000) AS v FROM range({rows})"
    )
    for way, deduplication in WAYS.items():
        tables.create(
            f"t_{way}", "SELECT k, v FROM fact", refresh_mode="FULL", deduplication=deduplication
        )
        tables.create(f"c_{way}", f"SELECT v, count(*) AS n FROM t_{way} GROUP BY v")


def change(tables: dt.DynamicTables, rows: int, share: float) -> None:
    """Some rows get other values; or a hundredth gets others and then its own again."""
    for by in (1,) if share else (1, -1):
        many = round(rows * (share or 0.01))
        tables.sql(f"UPDATE fact SET v = pmod(v + {by}, 1000) WHERE k < {many}")


def measure(tables: dt.DynamicTables, way: str) -> Turn:
    begun = time.perf_counter()
    work = tables.refresh(f"t_{way}")[f"t_{way}"].work
    between = time.perf_counter()
    child = tables.refresh(f"c_{way}")[f"c_{way}"]
    ended = time.perf_counter()
    passed_on = (work.rows_inserted or 0) + (work.rows_deleted or 0)
    return Turn(between - begun, ended - between, passed_on, str(child.strategy))


def main() -> None:
    wanted = arguments(__doc__, rows=2_000_000)
    rows = 400_000 if wanted.quick else wanted.rows
    lines = [HEADING]
    with Lake() as tables:
        prepare(tables, rows)
        for number, share in enumerate((SHARES[1], *SHARES)):  # the first change warms up
            change(tables, rows, share)
            turns = {way: measure(tables, way) for way in (*WAYS,)[:: -1 if number % 2 else 1]}
            lines += [turns[way].line(share, way) for way in WAYS] if number else []
    report(f"Deduplication: {rows:,} rows, one child", "\n".join(lines), save=wanted.save)


if __name__ == "__main__":
    main()
