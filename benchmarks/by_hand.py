"""By hand: a refresh against the best sequence that somebody would write for the same change.

The aggregate, the join and the top rows of `change_size`; rows come. Each sequence keeps a table of
its own up to date: a MERGE of the aggregated change feed, as one would write it first; the same of
changes that were brought home, so that Spark knows how few they are, in a plain session and in a
tuned one; stored rows of the changed groups read, added to and written back (`replaceUsing`);
changed keys recomputed from the source and written back; partial rows appended, for readers to add
up; the whole table overwritten; and the two statements that dbt-spark sends for an incremental
model with the strategy `merge` (without dbt's own time). Whoever writes by hand knows that rows
only come; the refresh has to find out.

In the end every table is compared with its query: a sequence that is wrong is no competitor.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from change_size import FEED, QUERIES, WARM_UP, change, prepare
from common import (
    WHOLE,
    Lake,
    Measured,
    arguments,
    bars,
    check,
    in_turn,
    merge_rounds,
    millions,
    report,
    taking_part,
)
from fixed_cost import tuned
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import broadcast

import dynamic_tables as dt

SHARES = (0.0001, 0.01)
HOME = 20_000  # rows that are brought to the driver and back; beyond it they stay in Spark
HEADING = (
    "| query | rows | way | median s | against the best by hand | Spark jobs |\n"
    "|---|---|---|---|---|---|"
)
AGGREGATE, JOIN, TOP = QUERIES


@dataclass(frozen=True, slots=True)
class Target:
    """A table that is kept by hand."""

    name: str
    location: str  # by name, Spark would not let a table be read and replaced at once


@dataclass(frozen=True, slots=True)
class Came:
    """A change, as whoever writes by hand sees it in the history of the source."""

    version: int
    rows: int


Step = Callable[[SparkSession, Target, Came], object]


# The sequences, one function each


def added(by: Mapping[str, str]) -> str:
    """How stored and new values of a column become one."""
    return ", ".join(f"{column} = {how}" for column, how in by.items())


SUMS = {"n": "t.n + s.n", "s": "t.s + s.s"}
TOPS = {**SUMS, "m": "greatest(t.m, s.m)"}
PARTS = {
    AGGREGATE: "SELECT k, count(*) AS n, sum(v) AS s, max(v) AS m FROM {feed} GROUP BY k",
    JOIN: (
        "SELECT d.region, f.k, count(*) AS n, sum(f.v) AS s FROM {feed} f JOIN dim d ON f.k = d.k"
        " GROUP BY d.region, f.k"
    ),
}
KEYS = {AGGREGATE: ("k",), JOIN: ("region", "k"), TOP: ("k",)}
ADDED = {AGGREGATE: TOPS, JOIN: SUMS}


def feed(came: Came) -> str:
    return f"table_changes('fact', {came.version}, {came.version})"


def known(session: SparkSession, query: str, came: Came, name: str) -> str:
    """What a query makes of the changes, as a view that is broadcast; its name.

    Spark takes a change feed for endless, and shuffles whatever it is joined with. A few rows that
    were brought home are a relation whose size is known.
    """
    found = session.sql(query)
    small = came.rows <= HOME
    rows = session.createDataFrame(found.toArrow()) if small else found.localCheckpoint()
    broadcast(rows).createOrReplaceTempView(name)
    return name


def merged(query: str, *, home: bool = False) -> Step:
    """The changes, aggregated, added to what is stored by a MERGE."""
    on = " AND ".join(f"t.{key} <=> s.{key}" for key in KEYS[query])

    def step(session: SparkSession, target: Target, came: Came) -> object:
        parts = PARTS[query].format(feed=feed(came))
        rows = known(session, parts, came, f"{target.name}_came") if home else f"({parts})"
        return session.sql(
            f"MERGE INTO {target.name} t USING {rows} s ON {on}"
            f" WHEN MATCHED THEN UPDATE SET {added(ADDED[query])} WHEN NOT MATCHED THEN INSERT *"
        )

    return step


def replaced(query: str) -> Step:
    """The same by reading the stored rows of the changed groups and writing them back."""
    columns = [*KEYS[query], *ADDED[query]]

    def step(session: SparkSession, target: Target, came: Came) -> object:
        parts = PARTS[query].format(feed=feed(came))
        new = known(session, parts, came, f"{target.name}_came")
        sides = f"SELECT * FROM {new} UNION ALL SELECT t.* FROM {target.name} t"
        stored = f"{sides} LEFT SEMI JOIN {new} USING ({', '.join(KEYS[query])})"
        how = [f"{'max' if name == 'm' else 'sum'}({name}) AS {name}" for name in ADDED[query]]
        chosen = ", ".join([*KEYS[query], *how])
        rows = session.sql(f"SELECT {chosen} FROM ({stored}) GROUP BY {', '.join(KEYS[query])}")
        kept = rows.select(*columns).localCheckpoint()  # Delta replaces no rows that it still reads
        return written(kept, target, KEYS[query])

    return step


def recomputed(query: str) -> Step:
    """The rows of the changed keys, computed from the source and written back."""

    def step(session: SparkSession, target: Target, came: Came) -> object:
        changed = f"SELECT DISTINCT k FROM {feed(came)}"
        keys = known(session, changed, came, f"{target.name}_keys")
        whole = f"(SELECT * FROM fact LEFT SEMI JOIN {keys} USING (k))"
        rows = session.sql(QUERIES[query].replace("FROM fact", f"FROM {whole}"))
        return written(rows, target, ("k",))

    return step


def overwritten(query: str) -> Step:
    """All of it anew; where most of it changes, nobody can do better."""

    def step(session: SparkSession, target: Target, _: Came) -> object:
        return session.sql(f"INSERT OVERWRITE {target.name} {QUERIES[query]}")

    return step


def written(rows: DataFrame, target: Target, keys: tuple[str, ...]) -> object:
    writer = rows.write.format("delta").mode("overwrite")
    return writer.option("replaceUsing", ",".join(keys)).save(target.location)


def appended(query: str) -> Step:
    """Partial rows; who reads adds them up."""

    def step(session: SparkSession, target: Target, came: Came) -> object:
        parts = PARTS[query].format(feed=feed(came))
        return session.sql(f"INSERT INTO {target.name} {parts}")

    return step


def by_dbt(query: str) -> Step:
    """An incremental model with `unique_key`: the groups that new rows are in, computed anew.

    dbt knows no versions; its models look for new rows by a column that grows.
    """
    on = " AND ".join(f"DBT_INTERNAL_SOURCE.{key} = DBT_INTERNAL_DEST.{key}" for key in KEYS[query])

    def step(session: SparkSession, target: Target, came: Came) -> object:
        newest = session.sql(f"SELECT min(id) FROM {feed(came)}").collect()[0][0]
        new = f"(SELECT DISTINCT k FROM fact WHERE id >= {newest})"
        whole = f"(SELECT * FROM fact LEFT SEMI JOIN {new} USING (k))"
        model = QUERIES[query].replace("FROM fact", f"FROM {whole}")
        session.sql(f"CREATE OR REPLACE TEMPORARY VIEW {target.name}__dbt_tmp AS {model}")
        return session.sql(
            f"MERGE INTO {target.name} AS DBT_INTERNAL_DEST USING {target.name}__dbt_tmp AS"
            f" DBT_INTERNAL_SOURCE ON {on} WHEN MATCHED THEN UPDATE SET *"
            " WHEN NOT MATCHED THEN INSERT *"
        )

    return step


@dataclass(frozen=True, slots=True)
class Way:
    """One way to keep one query up to date."""

    title: str
    step: Step
    tuned: bool = False  # in a session with settings for small writes
    folded: bool = False  # its readers add up; compared with `fold`, not with `refresh`
    marks: bool = False  # with deletion vectors; replaceUsing fails without them on large tables


def ways(query: str) -> Iterator[Way]:
    if query in PARTS:
        yield Way("by hand: MERGE", merged(query))
        home = merged(query, home=True)
        yield Way("by hand: MERGE, changes brought home", home, marks=True)
        yield Way("by hand: MERGE, brought home, tuned", home, tuned=True, marks=True)
        yield Way("by hand: stored rows, replaceUsing", replaced(query), marks=True)
        yield Way("by hand: append of parts", appended(query), folded=True)
    yield Way("by hand: keys recomputed, replaceUsing", recomputed(query), marks=True)
    yield Way(WHOLE, overwritten(query))
    if query != TOP:  # a MERGE on the key cannot hold two rows a key
        yield Way("dbt: incremental, merge", by_dbt(query))


# The run


class Contest:
    """One query, and all that keep it."""

    def __init__(self, tables: dt.DynamicTables, number: int, title: str) -> None:
        self._tables, self._title, self._query = tables, title, QUERIES[title]
        self._refreshed = [f"c{number}_refresh"]
        tables.create(self._refreshed[0], self._query)
        if title in PARTS:
            self._refreshed.append(f"c{number}_fold")
            tables.create(self._refreshed[1], self._query, storage="MERGE_ON_READ")
        self._ways: dict[Target, Way] = {}
        for n, way in enumerate(ways(title)):
            name = f"c{number}_hand{n}"
            kept = f"{FEED[:-1]}, delta.enableDeletionVectors = {str(way.marks).lower()})"
            tables.sql(f"CREATE TABLE {name} USING delta {kept} AS {self._query}")
            location = tables.sql(f"DESCRIBE DETAIL {name}").first()["location"]
            self._ways[Target(name, location)] = way
        self._tuned = tuned(tables.spark)

    def measured(self, came: Came, number: int) -> dict[str, Measured]:
        """Every way after one change; those whose number is below 0 warm up."""
        found: dict[str, Callable[[int], object]] = {}
        for table in self._refreshed:
            found[table.rpartition("_")[2]] = lambda _, table=table: self._tables.refresh(table)
        for target, way in self._ways.items():
            session = self._tuned if way.tuned else self._tables.spark
            found[way.title] = lambda _, t=target, w=way, s=session: w.step(s, t, came)
        part = taking_part(found, number)
        return in_turn(self._tables.spark, part, rounds=1, turn=came.version)

    def check(self) -> None:
        """Every table has the rows of the query."""
        by_hand = [
            _summed(self._title, target.name) if way.folded else target.name
            for target, way in self._ways.items()
        ]
        check(self._tables, self._query, *self._refreshed, *by_hand)

    def lines(self, rows: int, found: Mapping[str, Measured]) -> list[str]:
        against = self.against_best(found)
        return [
            f"| {self._title} | {rows:,} | {title} | {m.median:.2f} | {against[title]:.2f} |"
            f" {m.usual_jobs} |"
            for title, m in found.items()
        ]

    def against_best(self, found: Mapping[str, Measured]) -> dict[str, float]:
        """Each way against the best sequence by hand that stores what it does."""
        hand = {way.title: way for way in self._ways.values()}
        best = {
            folded: min(found[title].median for title, way in hand.items() if way.folded is folded)
            for folded in {way.folded for way in hand.values()}
        }
        folds = {t: hand[t].folded if t in hand else t == "fold" for t in found}
        return {title: m.median / best[folds[title]] for title, m in found.items()}

    @property
    def title(self) -> str:
        return self._title


def _summed(query: str, table: str) -> str:
    how = [f"{'max' if name == 'm' else 'sum'}({name}) AS {name}" for name in ADDED[query]]
    keys = ", ".join(KEYS[query])
    return f"SELECT {keys}, {', '.join(how)} FROM {table} GROUP BY {keys}"


def newest(tables: dt.DynamicTables) -> int:
    return tables.sql("DESCRIBE HISTORY fact LIMIT 1").collect()[0].version


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--share", action="append", type=float, help="of the rows that come")
    wanted = arguments(__doc__, only=list(QUERIES), rows=20_000_000, parser=parser)
    shares = wanted.share or SHARES
    rows, keys = (400_000, 20_000) if wanted.quick else (wanted.rows, 1_000_000)
    rounds = 1 if wanted.quick else 3
    lines, drawn = [HEADING], {}
    with Lake() as tables:
        prepare(tables, rows, keys)
        chosen = [title for title in QUERIES if wanted.only in (None, title)]
        contests = [Contest(tables, n, title) for n, title in enumerate(chosen)]
        number = 0
        for share in shares:
            size = max(1, round(rows * share))
            found: dict[int, list[dict[str, Measured]]] = {n: [] for n in range(len(contests))}
            warm_up = WARM_UP if share == shares[0] and not wanted.quick else 1
            for round_ in range(-warm_up, rounds):
                number += 1
                change(tables, size, keys, number, mixed=False)
                came = Came(newest(tables), size)
                for n, contest in enumerate(contests):
                    one = contest.measured(came, round_)
                    found[n] += [one] if round_ >= 0 else []
            for n, contest in enumerate(contests):
                measured = merge_rounds(found[n])
                told = contest.lines(size, measured)
                drawn[f"{contest.title}, {size:,}"] = contest.against_best(measured)
                print("\n".join(told), flush=True)
                lines += told
        for contest in contests:
            contest.check()
    title = f"By hand: {rows:,} rows, {keys:,} keys, rows come"
    picture = f"by_hand_{millions(rows)}.png"
    report(title, "\n".join(lines), save=wanted.save, picture=picture)
    if wanted.save:
        bars(picture, title, drawn, y="seconds against the best by hand")


if __name__ == "__main__":
    main()
