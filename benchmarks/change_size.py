"""Change size: how the cost of a refresh follows the size of the change, against recomputing.

A fact table, an aggregate by keys, a join with an aggregate, and the newest rows of each key.
Changes of 100 rows up to a tenth of the table, insert-only and mixed. In turn: the refresh as it
chooses, each strategy forced, and the recomputation by Spark (which is what open-source Spark
offers: truncate, query, write). The first changes of each kind, and the first of each size, warm
up and are not counted; only the last two of them are recomputed, too. A way that took three times
the recomputation is not tried on larger changes of that kind. In the end every table that was not
given up is compared with its query.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from common import (
    WHOLE,
    Lake,
    Measured,
    Way,
    arguments,
    check,
    in_turn,
    merge_rounds,
    millions,
    panels,
    report,
    taking_part,
)

import dynamic_tables as dt
from dynamic_tables.model import Strategy
from dynamic_tables.refresh.decide import possible

FEED = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
QUERIES = {
    "aggregate": "SELECT k, count(*) AS n, sum(v) AS s, max(v) AS m FROM fact GROUP BY k",
    "join + aggregate": (
        "SELECT d.region, f.k, count(*) AS n, sum(f.v) AS s FROM fact f JOIN dim d ON f.k = d.k"
        " GROUP BY d.region, f.k"
    ),
    "top 2 of each key": (
        "SELECT k, id, v FROM fact"
        " QUALIFY row_number() OVER (PARTITION BY k ORDER BY v DESC, id) <= 2"
    ),
}
KINDS = (INSERTS, MIXED) = ("inserts", "mixed")
WAYS = ("merge", "keys", "rows", "fold")
SHARES = (0.0001, 0.001, 0.01, 0.1)
WARM_UP = 8  # changes; the JVM compiles what it runs often, and a refresh is many short jobs
HOPELESS = 3.0  # times the recomputation


def prepare(tables: dt.DynamicTables, rows: int, keys: int) -> None:
    tables.sql(
        f"CREATE TABLE fact USING delta {FEED} AS"
        f" SELECT id, pmod(xxhash64(id), {keys}) AS k, pmod(id * 7919, 10007) AS v"
        f" FROM range({rows})"
    )
    tables.sql(
        f"CREATE TABLE dim USING delta {FEED} AS"
        f" SELECT id AS k, id % 7 AS region FROM range({keys})"
    )


def change(tables: dt.DynamicTables, rows: int, keys: int, number: int, *, mixed: bool) -> None:
    """Rows with random keys come; if mixed, half as many old ones change, a third of which go."""
    start = 10**10 + number * 10**8
    tables.sql(
        f"INSERT INTO fact SELECT id, pmod(xxhash64(id), {keys}), pmod(id * 7919, 10007)"
        f" FROM range({start}, {start + rows})"
    )
    if mixed:
        step = max(1, 10**6 // rows)
        some = f"id % {step} = {number % step} AND id < {rows * step // 2}"
        tables.sql(f"UPDATE fact SET v = v + 1 WHERE {some}")
        tables.sql(f"DELETE FROM fact WHERE {some} AND id % 3 = 0")


def ways(
    tables: dt.DynamicTables, name: str, query: str, without: Collection[str] = ()
) -> list[str]:
    """The strategies that a query has; one table for each, and one that may choose."""
    tables.create(f"{name}_auto", query, auxiliary_columns="AUTO")
    definition = tables.show(f"{name}_auto").definition
    found = possible(tables.lake.plan_of(definition), definition)
    others = {"no_data", "full", *without}
    strategies = [str(s) for s, why in found.items() if why is None and s not in others]
    for strategy in strategies:
        tables.create(f"{name}_{strategy}", query)
    if found[Strategy.MERGE] is None and "fold" not in without:
        tables.create(f"{name}_fold", query, storage="MERGE_ON_READ")
        strategies.append("fold")
    tables.sql(f"CREATE TABLE {name}_whole USING delta AS {query}")
    return strategies


@dataclass(frozen=True, slots=True)
class Round:
    """One change, by every way, and which one the refresh chose."""

    found: Mapping[str, Measured]
    chosen: str


@dataclass(slots=True)
class Subject:
    """One query, and the tables that are kept up to date by its ways."""

    title: str
    name: str
    query: str
    strategies: list[str]
    left_out: set[str] = field(default_factory=set)  # hopeless ones, which stand at an older cut

    def measure(self, tables: dt.DynamicTables, turn: int, number: int) -> Round:
        chosen: list[str] = []

        def refresh(strategy: str | None) -> None:
            table = f"{self.name}_{strategy or 'auto'}"
            record = tables.refresh(table, strategy=strategy)[table]
            if strategy is None:
                chosen.append(str(record.strategy))

        ways: dict[str, Way] = {
            WHOLE: lambda _: tables.sql(f"INSERT OVERWRITE {self.name}_whole {self.query}"),
            "refresh": lambda _: refresh(None),
        } | {s: lambda _, s=s: refresh(s) for s in self._tried}
        found = in_turn(tables.spark, taking_part(ways, number), rounds=1, turn=turn)
        return Round(found, chosen[0])

    def check(self, tables: dt.DynamicTables) -> None:
        names = ("whole", "auto", *self._tried)
        check(tables, self.query, *(f"{self.name}_{way}" for way in names))

    @property
    def _tried(self) -> list[str]:
        return [s for s in self.strategies if s not in self.left_out]

    def leave_out_hopeless(self, cell: Cell) -> None:
        slow = {way for way, m in cell.found.items() if m.median > HOPELESS * cell.base}
        self.left_out |= slow & set(self.strategies)

    def take_in_again(self, tables: dt.DynamicTables) -> None:
        for way in self.left_out:
            tables.refresh(f"{self.name}_{way}", strategy="full")
        self.left_out = set()


@dataclass(frozen=True, slots=True)
class Cell:
    """One query after one change, by every way."""

    query: str
    kind: str
    size: int
    found: Mapping[str, Measured]
    chosen: tuple[str, ...] = ()  # by the refresh, change by change

    @property
    def base(self) -> float:
        return self.found[WHOLE].median

    def told(self, way: str) -> str:
        """Times faster than recomputing, and the Spark jobs; of the refresh, what it chose."""
        if way not in self.found:
            return ""
        measured = self.found[way]
        chosen = ", ".join(dict.fromkeys(self.chosen)) if way == "refresh" else ""
        words = (f"{self.base / measured.median:.1f}", chosen, f"({measured.usual_jobs})")
        return " ".join(filter(None, words))

    @property
    def _ways(self) -> dict[str, float]:
        """What the refresh may choose from, forced; recomputing is its `full`."""
        found = {"full" if way == WHOLE else way: m for way, m in self.found.items()}
        return {way: m.median for way, m in found.items() if way not in ("refresh", "fold")}

    def regret(self) -> float:
        """How much longer the refresh took that chose itself than the best way that it had."""
        return self.found["refresh"].median / min(self._ways.values())

    def regret_of_choice(self) -> float:
        """The same for the strategy that was chosen, as it was measured where it was forced.

        Two measurements of the same work differ; this is what the choice alone is guilty of.
        """
        chosen = [self._ways.get(way, self.found["refresh"].median) for way in self.chosen]
        return max(chosen) / min(self._ways.values())

    def noise(self) -> float | None:
        """How far two measurements of the same work lie apart: the strategy as it was chosen, and
        the same forced. None if it was not forced, or if another one was chosen in between."""
        way, *others = dict.fromkeys(self.chosen)
        if others or way not in self.found:
            return None
        same = (self.found["refresh"].median, self.found[way].median)
        return max(same) / min(same)


def as_table(cells: Sequence[Cell]) -> str:
    """A line a cell: how many times faster than recomputing each way was (Spark jobs)."""
    ways = list(dict.fromkeys(way for cell in cells for way in cell.found if way != WHOLE))
    head = ("query", "change", "rows", "recompute s (jobs)", *ways)
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for cell in cells:
        whole = f"{cell.base:.2f} ({cell.found[WHOLE].usual_jobs})"
        values = (cell.query, cell.kind, f"{cell.size:,}", whole, *map(cell.told, ways))
        lines.append(f"| {' | '.join(values)} |")
    return "\n".join(lines)


def decision(cells: Sequence[Cell]) -> str:
    """How good the choice of the strategy was, over all cells."""
    near = sum(cell.regret() <= 1.1 for cell in cells)
    fastest = sum(cell.regret_of_choice() <= 1.0 for cell in cells)
    near_choice = sum(cell.regret_of_choice() <= 1.1 for cell in cells)
    slowest = max(cell.found["refresh"].median / cell.base for cell in cells)
    worst = max(cell.regret() for cell in cells)
    worst_choice = max(cell.regret_of_choice() for cell in cells)
    return (
        f"Of {len(cells)} changes, the refresh that chose itself was within 10 % of the best way"
        f" (recomputing among them) in {near}; at worst it took {worst:.2f} times the best, and"
        f" {slowest:.2f} times the recomputation. The strategy that it chose was, where it was"
        f" forced, the fastest in {fastest} and within 10 % of it in {near_choice}; at worst"
        f" {worst_choice:.2f} times. {noise(cells)}"
    )


def noise(cells: Sequence[Cell]) -> str:
    """What the clock is worth: regret that is smaller than this says nothing."""
    apart = [ratio for cell in cells if (ratio := cell.noise()) is not None]
    if not apart:
        return "No strategy was measured twice."
    near = sum(ratio <= 1.1 for ratio in apart)
    return (
        f"Two measurements of the same work (the strategy that the refresh chose, and the same"
        f" forced) lie {statistics.median(apart):.2f} times apart at the median and"
        f" {max(apart):.2f} at worst; within 10 % of each other in {near} of {len(apart)}."
    )


def reads(tables: dt.DynamicTables, name: str) -> str:
    """What readers pay for rows that are stored in parts: all rows, and those of one key."""

    def read(way: str, condition: str) -> None:
        text = f"SELECT count(*), sum(n), sum(s), max(m) FROM {name}_{way} WHERE {condition}"
        tables.sql(text).collect()

    told = ["| read | in place s | in parts s | ratio |", "|---|---|---|---|"]
    for title, condition in (("all rows", "true"), ("one key", "k = 4711")):
        both = {way: lambda _, way=way, c=condition: read(way, c) for way in ("merge", "fold")}
        found = in_turn(tables.spark, both, rounds=5, warm_up=2)
        place, parts = found["merge"].median, found["fold"].median
        told.append(f"| {title} | {place:.2f} | {parts:.2f} | {parts / place:.1f} |")
    return "\n".join(told)


class Grid:
    """All queries over one source, change after change."""

    def __init__(
        self,
        tables: dt.DynamicTables,
        keys: int,
        queries: Mapping[str, str],
        without: Collection[str],
    ) -> None:
        self._tables, self._keys = tables, keys
        self._changes = 0
        self._subjects = [
            Subject(title, f"q{n}", query, ways(tables, f"q{n}", query, without))
            for n, (title, query) in enumerate(queries.items())
        ]

    def take_in_again(self) -> None:
        for subject in self._subjects:
            subject.take_in_again(self._tables)

    def warm_up(self, kind: str, size: int, rounds: int) -> None:
        for number in range(-rounds, 0):
            self._once(kind, size, number)

    def measured(self, kind: str, size: int, rounds: int) -> list[Cell]:
        all_rounds = [self._once(kind, size, number) for number in range(rounds)]
        cells = []
        for subject, found in zip(self._subjects, zip(*all_rounds, strict=True), strict=True):
            measured = merge_rounds([once.found for once in found])
            chosen = tuple(once.chosen for once in found)
            cells.append(Cell(subject.title, kind, size, measured, chosen))
            subject.leave_out_hopeless(cells[-1])
        return cells

    def check(self) -> None:
        for subject in self._subjects:
            subject.check(self._tables)

    def _once(self, kind: str, size: int, number: int) -> list[Round]:
        """`number` of the change, of this kind and size; those below 0 warm up."""
        self._changes += 1
        change(self._tables, size, self._keys, self._changes, mixed=kind == MIXED)
        return [subject.measure(self._tables, self._changes, number) for subject in self._subjects]


def wanted_here() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="append", default=[], choices=WAYS, help="a way")
    parser.add_argument("--kind", choices=KINDS, help="of change")
    parser.add_argument("--share", action="append", type=float, help="of the rows that change")
    parser.add_argument("--rounds", type=int, default=1, help="changes of each size")
    parser.add_argument("--warm-up", type=int, default=WARM_UP, help="changes before each kind")
    return arguments(__doc__, only=list(QUERIES), rows=20_000_000, parser=parser)


def main() -> None:
    wanted = wanted_here()
    rows, keys = (2_000_000, 100_000) if wanted.quick else (wanted.rows, 1_000_000)
    shares = wanted.share or ((100 / rows, 0.01) if wanted.quick else (100 / rows, *SHARES))
    kinds = [wanted.kind] if wanted.kind else KINDS[:1] if wanted.quick else KINDS
    queries = {title: q for title, q in QUERIES.items() if wanted.only in (None, title)}
    warm_up = 1 if wanted.quick else wanted.warm_up
    cells: list[Cell] = []
    with Lake() as tables:
        prepare(tables, rows, keys)
        grid = Grid(tables, keys, queries, wanted.without)
        for kind in kinds:
            grid.take_in_again()
            grid.warm_up(kind, round(rows * shares[0]), warm_up)
            for share in shares:
                if share != shares[0] and not wanted.quick:  # another size may take another path
                    grid.warm_up(kind, round(rows * share), 1)
                found = grid.measured(kind, round(rows * share), wanted.rounds)
                print(as_table(found), flush=True)
                cells += found
        grid.check()
        lines = [as_table(cells), "", decision(cells)]
        if "aggregate" in queries and not {"merge", "fold"} & set(wanted.without):
            lines += ["", reads(tables, "q0")]
    title = f"Change size: {rows:,} rows, {keys:,} keys"
    picture = f"change_size_{millions(rows)}.png"
    report(title, "\n".join(lines), save=wanted.save, picture=picture)
    if wanted.save:
        _draw(picture, title, cells)


def _draw(picture: str, title: str, cells: Sequence[Cell]) -> None:
    """Times faster than recomputing, by the size of the change: a picture a query and kind."""
    drawn: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for cell in cells:
        curves = drawn.setdefault(f"{cell.query}, {cell.kind}", {})
        for way, measured in cell.found.items():
            if way != WHOLE:
                curves.setdefault(way, []).append((cell.size, cell.base / measured.median))
    panels(
        picture, title, drawn,
        x="changed rows", y="times faster than recomputing", columns=len({c.query for c in cells}),
    )  # fmt: skip


if __name__ == "__main__":
    main()
