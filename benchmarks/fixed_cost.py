"""Fixed cost: what a refresh of a small table costs beside the bare write of the same rows.

A source of 1,000 rows, an aggregate of 1,000 groups. In turn, after one row came or 1,000: the
refresh; what somebody would write by hand: a MERGE of the aggregated feed, an overwrite with the
whole query; and bare writes, into tables of 1,000 rows, of rows that are given as literals: nothing
is read but the table. An append of one row is the floor of one Delta commit. At last a refresh
after which nothing changed. In the end every table is compared with the query.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from common import (
    Lake,
    Measured,
    Way,
    arguments,
    bars,
    check,
    in_turn,
    jobs_begun,
    merge_rounds,
    report,
    table,
)
from pyspark.sql import SparkSession

import dynamic_tables as dt

QUERY = "SELECT k, count(*) AS n, sum(v) AS s, count(v) AS c FROM src GROUP BY k"
FEED = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
WITHOUT_CODE = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
SMALL = WITHOUT_CODE | {  # what makes tiny writes fast; which of them most, differs by the write
    "spark.sql.adaptive.enabled": "false",
    "spark.databricks.delta.merge.materializeSource": "none",
}
GROUPS = 1_000
CHANGE, NOTHING = "the change itself", "nothing changed"
BY_HAND = {  # a table each; a way that is wrong does not compete
    "MERGE by hand": "by_hand",
    "MERGE by hand, tuned session": "by_hand_tuned",
    "overwrite by hand": "whole",
}
BARE = {  # a table each, and whether it has deletion vectors
    "bare MERGE, copy-on-write, tuned session": ("bare_copied", False),
    "bare MERGE, copy-on-write, no generated code": ("bare_plain", False),
    "bare MERGE, deletion vectors, tuned session": ("bare_marked", True),
    "bare replaceUsing, tuned session": ("bare_replaced", True),
}
SUM = "WHEN MATCHED THEN UPDATE SET n = t.n + s.n, s = t.s + s.s, c = t.c + s.c"
MERGE = (
    "MERGE INTO {0} t USING (SELECT k, count(*) AS n, sum(v) AS s, count(v) AS c"
    " FROM table_changes('src', {1}, {1}) GROUP BY k) s ON t.k <=> s.k"
    f" {SUM} WHEN NOT MATCHED THEN INSERT *"
)
BARE_MERGE = f"MERGE INTO {{}} t USING ({{}}) s ON t.k = s.k {SUM} WHEN NOT MATCHED THEN INSERT *"


def prepare(tables: dt.DynamicTables) -> None:
    tables.sql(f"CREATE TABLE src (id INT, k INT, v INT) USING delta {FEED}")
    tables.sql(f"INSERT INTO src SELECT id, id % {GROUPS}, id FROM range(1000)")
    tables.create("agg", QUERY)
    for name in BY_HAND.values():
        tables.sql(f"CREATE TABLE {name} USING delta {FEED} AS {QUERY}")
    for name, marked in BARE.values():
        kept = f"{FEED[:-1]}, delta.enableDeletionVectors = {str(marked).lower()})"
        tables.sql(f"CREATE TABLE {name} USING delta {kept} AS {QUERY}")
    tables.sql("CREATE TABLE log (x INT) USING delta")


def newest(tables: dt.DynamicTables) -> int:
    return tables.sql("DESCRIBE HISTORY src LIMIT 1").collect()[0].version


def come(tables: dt.DynamicTables, rows: int, number: int) -> None:
    tables.sql(f"INSERT INTO src SELECT {number}, id % {GROUPS}, {number} FROM range({rows})")


def tuned(spark: SparkSession, settings: Mapping[str, str] = SMALL) -> SparkSession:
    session = spark.newSession()
    for key, value in settings.items():
        session.conf.set(key, value)
    return session


def bare(tables: dt.DynamicTables, session: SparkSession, rows: int) -> dict[str, Way]:
    """Writes of so many rows that are given, of the keys that the change has."""
    copied, plain, marked, replaced = BARE
    without_code = tuned(tables.spark, WITHOUT_CODE)
    location = tables.sql(f"DESCRIBE DETAIL {BARE[replaced][0]}").first()["location"]

    def given(number: int) -> str:
        values = ", ".join(f"({n % GROUPS}, 1L, {number}L, 1L)" for n in range(rows))
        return f"SELECT * FROM VALUES {values} AS given(k, n, s, c)"

    def replace(number: int) -> None:
        writer = session.sql(given(number)).write.format("delta").mode("overwrite")
        writer.option("replaceUsing", "k").save(location)

    return {
        copied: lambda n: session.sql(BARE_MERGE.format(BARE[copied][0], given(n))),
        plain: lambda n: without_code.sql(BARE_MERGE.format(BARE[plain][0], given(n))),
        marked: lambda n: session.sql(BARE_MERGE.format(BARE[marked][0], given(n))),
        replaced: replace,
    }


def by_hand(tables: dt.DynamicTables, session: SparkSession, version: int) -> dict[str, Way]:
    merge, merge_tuned, whole = BY_HAND
    return {
        merge: lambda _: tables.spark.sql(MERGE.format(BY_HAND[merge], version)),
        merge_tuned: lambda _: session.sql(MERGE.format(BY_HAND[merge_tuned], version)),
        whole: lambda _: tables.sql(f"INSERT OVERWRITE {BY_HAND[whole]} {QUERY}"),
        "append of one row": lambda _: tables.sql("INSERT INTO log VALUES (1)"),
    }


def measure(
    tables: dt.DynamicTables, rows: int, *, rounds: int, warm_up: int
) -> dict[str, Measured]:
    """One change for all ways of a round; it is made before any of them is timed."""
    session = tuned(tables.spark)
    given = bare(tables, session, rows)
    all_rounds = []
    for number in range(warm_up + rounds):

        def once(ways: dict[str, Way], turn: int = number) -> dict[str, Measured]:
            numbered = {name: lambda _, way=way: way(turn) for name, way in ways.items()}
            return in_turn(tables.spark, numbered, rounds=1, turn=turn)

        changed = once({CHANGE: lambda n: come(tables, rows, n)})
        written = by_hand(tables, session, newest(tables)) | given
        found = once({"refresh": lambda _: tables.refresh("agg")} | written)
        nothing = once({NOTHING: lambda _: tables.refresh("agg")})
        all_rounds.append(changed | found | nothing)
    return merge_rounds(all_rounds[warm_up:])


def best(found: dict[str, Measured]) -> str:
    """The bare write that took least; which one, differs from machine to machine."""
    return min(BARE, key=lambda way: found[way].median)


def many(tables: dt.DynamicTables, count: int, rounds: int) -> dict[str, Measured]:
    """All at once against one after another."""
    names = [f"many_{n}" for n in range(count)]
    for n, name in enumerate(names):
        query = QUERY.replace("GROUP BY", f"WHERE id >= -{n} GROUP BY")
        tables.create(name, query, initialize="ON_SCHEDULE")
    tables.refresh(*names)
    found = {"one after another": Measured(), "all at once": Measured()}
    for number in range(rounds + 1):
        for way, measured in sorted(found.items(), reverse=number % 2 == 1):
            come(tables, 1, number)
            jobs, begun = jobs_begun(tables.spark), time.perf_counter()
            for together in [names] if way == "all at once" else [[name] for name in names]:
                tables.refresh(*together)
            if number:
                measured.seconds.append(time.perf_counter() - begun)
                measured.jobs.append(jobs_begun(tables.spark) - jobs)
    return found


def told(found: dict[str, Measured], against: str) -> str:
    refresh = found["refresh"].median
    to_bare = refresh / found[against].median
    to_hand = refresh / min(found[way].median for way in BY_HAND)
    return (
        f"{table(found, against=against)}\n\nThe refresh takes {to_bare:.2f} times the best bare"
        f" write ({against}), and {to_hand:.2f} times the best by hand that has to find the rows."
    )


def main() -> None:
    wanted = arguments(__doc__)
    rounds, warm_up = (2, 2) if wanted.quick else (10, 25)
    picture = "fixed_cost.png"
    drawn: dict[str, dict[str, float]] = {}
    with Lake() as tables:
        prepare(tables)
        for rows in (1, 1000):
            found = measure(tables, rows, rounds=rounds, warm_up=warm_up)
            check(tables, QUERY, "agg", *BY_HAND.values())
            base = best(found)
            drawn[f"{rows:,} rows"] = {w: m.median / found[base].median for w, m in found.items()}
            title = f"Fixed cost: {rows:,} rows into a table of {GROUPS:,} groups"
            report(title, told(found, base), save=wanted.save, picture=picture)
        count = 8 if wanted.quick else 50
        found = many(tables, count, 1 if wanted.quick else 2)
        text = table(found, against="one after another")
        report(f"Fixed cost: {count} small tables", text, save=wanted.save)
    if wanted.save:
        bars(picture, "Fixed cost", drawn, y="seconds against the best bare write")


if __name__ == "__main__":
    main()
