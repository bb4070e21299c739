"""Near keys: 100 neighbouring keys change, in a source sorted by key and in one that is not.

An aggregate and a join with an aggregate, by `keys` and as the refresh chooses itself, each against
recomputing from the *same* source: a sorted one is recomputed faster, too.
"""

from __future__ import annotations

from change_size import FEED, QUERIES, WARM_UP, Cell, as_table
from common import Lake, Measured, arguments, bars, in_turn, merge_rounds, report

import dynamic_tables as dt

NEAR = 100  # keys, with one new row each
KINDS = {
    "sorted": "CAST(floor(id / {a_key}) AS BIGINT)",
    "as it came": "pmod(xxhash64(id), {keys})",
}
CHOSEN = ("aggregate", "join + aggregate")


def prepare(tables: dt.DynamicTables, rows: int, keys: int) -> None:
    """One source of each kind with the same number of rows a key, and a small table beside them."""
    for number, key in enumerate(KINDS.values()):
        said = key.format(a_key=rows // keys, keys=keys)
        tables.sql(
            f"CREATE TABLE fact{number} USING delta {FEED} AS"
            f" SELECT id, {said} AS k, pmod(id * 7919, 10007) AS v FROM range({rows})"
        )
    tables.sql(
        f"CREATE TABLE dim USING delta {FEED} AS"
        f" SELECT id AS k, id % 7 AS region FROM range({keys})"
    )


def queries() -> dict[tuple[str, str], tuple[str, str]]:
    """Table and text, by the kind of the source and the title of the query."""
    return {
        (kind, title): (f"n{number}_{place}", QUERIES[title].replace("fact", f"fact{number}"))
        for number, kind in enumerate(KINDS)
        for place, title in enumerate(CHOSEN)
    }


def measure(tables: dt.DynamicTables, name: str, query: str, turn: int) -> dict[str, Measured]:
    ways = {
        "recompute": lambda _: tables.sql(f"INSERT OVERWRITE {name}_whole {query}"),
        "refresh": lambda _: tables.refresh(f"{name}_auto"),
        "keys": lambda _: tables.refresh(f"{name}_keys", strategy="keys"),
    }
    return in_turn(tables.spark, ways, rounds=1, turn=turn)


def main() -> None:
    wanted = arguments(__doc__, rows=20_000_000)
    rows, keys = (400_000, 20_000) if wanted.quick else (wanted.rows, 1_000_000)
    rounds, warm_up = (1, 1) if wanted.quick else (3, WARM_UP)
    found: dict[tuple[str, str], list[dict[str, Measured]]] = {case: [] for case in queries()}
    with Lake() as tables:
        prepare(tables, rows, keys)
        for name, query in queries().values():
            tables.create(f"{name}_auto", query)
            tables.create(f"{name}_keys", query)
            tables.sql(f"CREATE TABLE {name}_whole USING delta AS {query}")
        for number in range(-warm_up, rounds):
            first = (number + warm_up + 1) * 10 * NEAR
            for source in range(len(KINDS)):
                tables.sql(
                    f"INSERT INTO fact{source} SELECT id, {first} + id, id FROM range({NEAR})"
                )
            for case, (name, query) in queries().items():
                once = measure(tables, name, query, number)
                found[case] += [once] if number >= 0 else []
    cells = [Cell(title, kind, NEAR, merge_rounds(some)) for (kind, title), some in found.items()]
    title = f"Near keys: {rows:,} rows, {keys:,} keys, {NEAR} change"
    report(title, as_table(cells), save=wanted.save)
    if wanted.save:
        found_ = {f"{c.query}, {c.kind}": _faster(c) for c in cells}
        bars(f"near_keys_{rows // 10**6}m.png", title, found_, y="times faster than recomputing")


def _faster(cell: Cell) -> dict[str, float]:
    return {way: cell.base / m.median for way, m in cell.found.items() if way != "recompute"}


if __name__ == "__main__":
    main()
