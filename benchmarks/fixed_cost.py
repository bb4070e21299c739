"""Fixed cost: what a refresh of a small table costs beside the bare write of the same rows.

A 1,000-row table, an aggregate of 100 groups. In turn: nothing changed; one row changed; 1,000 rows
came; and beside them what somebody would write by hand: a MERGE of the aggregated feed, an
overwrite with the whole query, an append of one row (the floor of one Delta commit).
"""

from __future__ import annotations

import time

from common import Lake, Measured, arguments, bars, in_turn, jobs_so_far, report, table

import dynamic_tables as dt

QUERY = "SELECT k, count(*) AS n, sum(v) AS s, count(v) AS c FROM src GROUP BY k"
FEED = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
SMALL = {  # what LAB.md found fastest for tiny writes
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.databricks.delta.merge.materializeSource": "none",
}


def prepare(tables: dt.DynamicTables) -> None:
    tables.sql(f"CREATE TABLE src (id INT, k INT, v INT) USING delta {FEED}")
    tables.sql("INSERT INTO src SELECT id, id % 100, id FROM range(1000)")
    tables.create("agg", QUERY)
    tables.sql(f"CREATE TABLE by_hand USING delta {FEED} AS {QUERY}")
    tables.sql(f"CREATE TABLE whole USING delta {FEED} AS {QUERY}")
    tables.sql("CREATE TABLE log (x INT) USING delta")


def newest(tables: dt.DynamicTables) -> int:
    return tables.sql("DESCRIBE HISTORY src LIMIT 1").collect()[0].version


def changed(tables: dt.DynamicTables, rows: int, number: int) -> int:
    """Let rows come; the version they came with."""
    tables.sql(f"INSERT INTO src SELECT {number}, id % 100, {number} FROM range({rows})")
    return newest(tables)


BEST = "MERGE by hand, tuned session"
MERGE = (
    "MERGE INTO by_hand t USING (SELECT k, count(*) AS n, sum(v) AS s, count(v) AS c"
    " FROM table_changes('src', {0}, {0}) GROUP BY k) s ON t.k <=> s.k"
    " WHEN MATCHED THEN UPDATE SET n = t.n + s.n, s = t.s + s.s, c = t.c + s.c"
    " WHEN NOT MATCHED THEN INSERT *"
)


def measure(
    tables: dt.DynamicTables, rows: int, *, rounds: int, warm_up: int
) -> dict[str, Measured]:
    """One change for all ways of a round; it is made before any of them is timed."""
    versions: dict[int, int] = {}
    tuned = tables.spark.newSession()
    for key, value in SMALL.items():
        tuned.conf.set(key, value)

    def change(number: int) -> None:
        versions[number] = changed(tables, rows, number)

    ways = {
        "the change itself": change,
        "refresh": lambda _: tables.refresh("agg"),
        "MERGE by hand": lambda n: tables.spark.sql(MERGE.format(versions[n])),
        BEST: lambda n: tuned.sql(MERGE.format(versions[n])),
        "overwrite by hand": lambda _: tables.sql(f"INSERT OVERWRITE whole {QUERY}"),
        "append of one row": lambda _: tables.sql("INSERT INTO log VALUES (1)"),
        "nothing changed": lambda _: tables.refresh("agg"),
    }
    return in_turn(tables.spark, ways, rounds=rounds, warm_up=warm_up)


def many(tables: dt.DynamicTables, count: int, rounds: int) -> dict[str, Measured]:
    """All at once against one after another."""
    names = [f"many_{n}" for n in range(count)]
    for n, name in enumerate(names):
        query = QUERY.replace("GROUP BY", f"WHERE id >= -{n} GROUP BY")
        tables.create(name, query, initialize="ON_SCHEDULE")
    tables.refresh(*names)
    found = {"one after another": Measured(), "all at once": Measured()}
    for number in range(rounds + 1):
        for way, measured in found.items():
            changed(tables, 1, number)
            before, begun = jobs_so_far(tables.spark), time.perf_counter()
            for together in [names] if way == "all at once" else [[name] for name in names]:
                tables.refresh(*together)
            if number:
                measured.seconds.append(time.perf_counter() - begun)
                measured.jobs.append(jobs_so_far(tables.spark) - before)
    return found


def main() -> None:
    wanted = arguments(__doc__)
    rounds, warm_up = (4, 6) if wanted.quick else (10, 25)
    drawn: dict[str, dict[str, float]] = {}
    with Lake() as tables:
        prepare(tables)
        for rows in (1, 1000):
            found = measure(tables, rows, rounds=rounds, warm_up=warm_up)
            text = table(found, against=BEST)
            drawn[f"{rows:,} rows"] = {w: m.median / found[BEST].median for w, m in found.items()}
            report(f"Fixed cost: {rows:,} rows into a 1,000-row table", text, save=wanted.save)
        count = 8 if wanted.quick else 50
        found = many(tables, count, 1 if wanted.quick else 2)
        text = table(found, against="one after another")
        report(f"Fixed cost: {count} small tables", text, save=wanted.save)
    if wanted.save:
        bars("fixed_cost.png", "Fixed cost", drawn, y=f"seconds against: {BEST}")


if __name__ == "__main__":
    main()
