"""Near keys: 100 neighbouring keys change, in a source sorted by key and in one that is not.

An aggregate and a join with an aggregate, by `keys` and as the refresh chooses itself, each against
recomputing from the *same* source: a sorted one is recomputed faster, too. `--only` makes and
measures one of the sources. In the end every table is compared with its query.
"""

from __future__ import annotations

from collections.abc import Collection

from change_size import FEED, QUERIES, Cell, as_table
from common import (
    WHOLE,
    Lake,
    Measured,
    Way,
    arguments,
    bars,
    check,
    in_turn,
    merge_rounds,
    millions,
    report,
    taking_part,
)

import dynamic_tables as dt

NEAR = 100  # keys, with one new row each
KINDS = {
    "sorted": "CAST(floor(id / {a_key}) AS BIGINT)",
    "as it came": "pmod(xxhash64(id), {keys})",
}
CHOSEN = ("aggregate", "join + aggregate")
KEPT = ("auto", "keys", "whole")  # tables of each query
WARM_UP = 10  # changes; refreshes become faster until about the tenth


def prepare(tables: dt.DynamicTables, rows: int, keys: int, kinds: Collection[str]) -> None:
    """A source of each kind with the same number of rows a key, and a small table beside them."""
    for kind in kinds:
        said = KINDS[kind].format(a_key=rows // keys, keys=keys)
        tables.sql(
            f"CREATE TABLE {source(kind)} USING delta {FEED} AS"
            f" SELECT id, {said} AS k, pmod(id * 7919, 10007) AS v FROM range({rows})"
        )
    tables.sql(
        f"CREATE TABLE dim USING delta {FEED} AS"
        f" SELECT id AS k, id % 7 AS region FROM range({keys})"
    )


def source(kind: str) -> str:
    return f"fact{list(KINDS).index(kind)}"


def queries(kinds: Collection[str]) -> dict[tuple[str, str], tuple[str, str]]:
    """Table and text, by the kind of the source and the title of the query."""
    return {
        (kind, title): (f"{source(kind)}_{place}", QUERIES[title].replace("fact", source(kind)))
        for kind in kinds
        for place, title in enumerate(CHOSEN)
    }


def create(tables: dt.DynamicTables, name: str, query: str) -> None:
    tables.create(f"{name}_auto", query)
    tables.create(f"{name}_keys", query)
    tables.sql(f"CREATE TABLE {name}_whole USING delta AS {query}")


def come(tables: dt.DynamicTables, kind: str, number: int) -> None:
    """A row each for neighbouring keys, elsewhere with every change."""
    first = (number + WARM_UP + 1) * 10 * NEAR
    tables.sql(f"INSERT INTO {source(kind)} SELECT id, {first} + id, id FROM range({NEAR})")


def measure(tables: dt.DynamicTables, name: str, query: str, number: int) -> dict[str, Measured]:
    ways: dict[str, Way] = {
        WHOLE: lambda _: tables.sql(f"INSERT OVERWRITE {name}_whole {query}"),
        "refresh": lambda _: tables.refresh(f"{name}_auto"),
        "keys": lambda _: tables.refresh(f"{name}_keys", strategy="keys"),
    }
    return in_turn(tables.spark, taking_part(ways, number), rounds=1, turn=number)


def main() -> None:
    wanted = arguments(__doc__, only=list(KINDS), rows=20_000_000)
    rows, keys = (400_000, 20_000) if wanted.quick else (wanted.rows, 1_000_000)
    rounds, warm_up = (1, 1) if wanted.quick else (5, WARM_UP)
    kinds = [kind for kind in KINDS if wanted.only in (None, kind)]
    found: dict[tuple[str, str], list[dict[str, Measured]]] = {case: [] for case in queries(kinds)}
    with Lake() as tables:
        prepare(tables, rows, keys, kinds)
        for name, query in queries(kinds).values():
            create(tables, name, query)
        for number in range(-warm_up, rounds):
            for kind in kinds:
                come(tables, kind, number)
            for case, (name, query) in queries(kinds).items():
                once = measure(tables, name, query, number)
                found[case] += [once] if number >= 0 else []
        for name, query in queries(kinds).values():
            check(tables, query, *(f"{name}_{way}" for way in KEPT))
    cells = [Cell(title, kind, NEAR, merge_rounds(some)) for (kind, title), some in found.items()]
    title = f"Near keys: {rows:,} rows, {keys:,} keys, {NEAR} change"
    alone = f"_{wanted.only.replace(' ', '_')}" if wanted.only else ""
    picture = f"near_keys_{millions(rows)}{alone}.png"
    report(title, as_table(cells), save=wanted.save, picture=picture)
    if wanted.save:
        drawn = {f"{c.query}, {c.kind}": _faster(c) for c in cells}
        bars(picture, title, drawn, y="times faster than recomputing")


def _faster(cell: Cell) -> dict[str, float]:
    return {way: cell.base / m.median for way, m in cell.found.items() if way != WHOLE}


if __name__ == "__main__":
    main()
