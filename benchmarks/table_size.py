"""Table size: the same change of sources that are ten times as large, again and again.

10,000 rows with neighbouring keys come into a table of one, ten and a hundred million rows that is
sorted by key, under the same number of groups. What a refresh costs should follow the change, not
the table. In the end every table is compared with its query.
"""

from __future__ import annotations

from collections.abc import Mapping

from change_size import FEED, WARM_UP, ways
from common import (
    WHOLE,
    Lake,
    Measured,
    Way,
    arguments,
    check,
    in_turn,
    merge_rounds,
    plot,
    report,
    taking_part,
)

import dynamic_tables as dt

KEYS = 100_000
CHANGED = 10_000
NEIGHBOURS = 100  # keys that the new rows have between them
SIZES = (1_000_000, 10_000_000, 100_000_000)
QUICK_SIZES = (100_000, 1_000_000)
QUERY = "SELECT k, count(*) AS n, sum(v) AS s, max(v) AS m FROM fact GROUP BY k"
TITLE = f"Table size: {CHANGED:,} rows of {NEIGHBOURS} neighbouring keys come, {KEYS:,} groups"
HEADING = (
    "| rows of the source | way | median s | times faster than recomputing |"
    " against the table before | Spark jobs |\n|---|---|---|---|---|---|"
)


def prepare(tables: dt.DynamicTables, rows: int) -> None:
    """Sorted by key, so that neighbouring keys lie in few files."""
    a_key = rows // KEYS or 1
    tables.sql(
        f"CREATE TABLE fact USING delta {FEED} AS SELECT id,"
        f" CAST(floor(id / {a_key}) AS BIGINT) AS k, pmod(id * 7919, 10007) AS v"
        f" FROM range({rows})"
    )


def come(tables: dt.DynamicTables, number: int) -> None:
    first = (number + WARM_UP + 1) * NEIGHBOURS % KEYS
    tables.sql(
        f"INSERT INTO fact SELECT id, {first} + id % {NEIGHBOURS}, id % 10007 FROM range({CHANGED})"
    )


def measured(rows: int, *, rounds: int, warm_up: int) -> dict[str, Measured]:
    """Every way after every change, in turn; the first changes warm up."""
    with Lake() as tables:
        prepare(tables, rows)
        strategies = ways(tables, "t", QUERY, without=("rows",))

        found: dict[str, Way] = {
            WHOLE: lambda _: tables.sql(f"INSERT OVERWRITE t_whole {QUERY}")
        } | {s: lambda _, s=s: tables.refresh(f"t_{s}", strategy=s) for s in strategies}
        all_rounds = []
        for number in range(-warm_up, rounds):
            come(tables, number)
            part = taking_part(found, number)
            all_rounds.append(in_turn(tables.spark, part, rounds=1, turn=number))
        check(tables, QUERY, *(f"t_{way}" for way in ("whole", *strategies)))
        return merge_rounds(all_rounds[warm_up:])


def lines(
    rows: int, found: Mapping[str, Measured], before: Mapping[str, Measured] | None
) -> list[str]:
    base = found[WHOLE].median
    told = []
    for way, m in found.items():
        grown = f"{m.median / before[way].median:.2f}" if before else ""
        told.append(
            f"| {rows:,} | {way} | {m.median:.2f} | {base / m.median:.1f} | {grown}"
            f" | {m.usual_jobs} |"
        )
    return told


def main() -> None:
    wanted = arguments(__doc__)
    sizes = QUICK_SIZES if wanted.quick else SIZES
    text, curves = [HEADING], {}
    before: Mapping[str, Measured] | None = None
    for rows in sizes:
        found = measured(rows, rounds=3, warm_up=1 if wanted.quick else WARM_UP)
        told = lines(rows, found, before)
        print("\n".join(told), flush=True)
        text += told
        for way, m in found.items():
            curves.setdefault(way, []).append((rows, m.median))
        before = found
    picture = "table_size.png"
    report(TITLE, "\n".join(text), save=wanted.save, picture=picture)
    if wanted.save:
        plot(picture, TITLE, curves, x="rows of the source", y="seconds")


if __name__ == "__main__":
    main()
