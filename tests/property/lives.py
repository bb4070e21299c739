"""Whole lives of dynamic tables through the real refresh, on either lake.

A lake gets a random world, some random views, and random queries over tables and views become
dynamic tables: each query as many as it has strategies, and one more. Then, again and again: a
random series of commits, a refresh of all tables, and every table is compared with its query,
computed from the sources as they stand. In each round every strategy is forced on one of a query's
tables, and one may choose; in the next round they change places. One table, one series of commits,
one refresh and one comparison are a *history*.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

from random_queries import Queries
from random_worlds import Changes, Column, World, random_world, rows

import dynamic_tables as dt
from dynamic_tables.errors import DynamicTablesError, InvalidInput
from dynamic_tables.model import Strategy
from dynamic_tables.options import Storage
from dynamic_tables.refresh.decide import possible
from listed import listed

START = datetime(2024, 1, 2, 12, tzinfo=UTC)
DEPTHS = (0, 0, 1, 1, 1, 2, 2, 3)
MANY = 2_000  # rows of a result: joins of joins may grow six times a round, to millions
Rows = Counter[str]


@dataclass(slots=True)
class Case:
    """A query, the tables that it became, and the ways to refresh them; None: nobody says how."""

    query: str
    ways: list[str | None]
    tables: list[str] = field(default_factory=list)

    def way(self, table: str, number: int) -> str | None:
        copy = int(table.rpartition("_")[2])
        return self.ways[(number + copy) % len(self.ways)]


@dataclass(slots=True)
class Tally:
    """What came of all lives."""

    queries: int = 0
    histories: int = 0
    strategies: Counter[str] = field(default_factory=Counter)
    recomputed: list[str] = field(default_factory=list)  # queries that have only `full`
    refused: list[str] = field(default_factory=list)  # queries that the engine does not accept
    wrong: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.queries += other.queries
        self.histories += other.histories
        self.strategies += other.strategies
        for name in ("recomputed", "refused", "wrong"):
            getattr(self, name).extend(getattr(other, name))

    def __str__(self) -> str:
        lines = [f"{self.histories} histories of {self.queries} queries: {dict(self.strategies)}"]
        lines += [f"only full: {line}" for line in self.recomputed]
        return "\n".join([*lines, *self.wrong])


@dataclass(slots=True)
class Clock:
    """Stands still until it is moved."""

    now: datetime = START

    def __call__(self) -> datetime:
        return self.now


def bag(found: Iterable[Any]) -> Rows:
    """Rows by their values: 2 equals 2.0, and doubles are equal up to their last digits."""
    return Counter(repr(tuple(map(_plain, row))) for row in found)


def _plain(value: Any) -> Any:
    if isinstance(value, (Decimal, float)):
        rounded = round(float(value), 7)
        return int(rounded) if rounded == int(rounded) else rounded
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


class Life:
    """One lake, many tables, one series of changes."""

    def __init__(
        self,
        tables: dt.DynamicTables,
        clock: Clock,
        seed: int,
        *,
        spark: bool,
        tables_wanted: int,
        depths: tuple[int, ...] = DEPTHS,
    ) -> None:
        self._tables = tables
        self._clock = clock
        self._seed = seed
        self._spark = spark
        self._wanted = tables_wanted
        self._depths = depths
        self._chance = Random(seed)
        self._world: World = random_world(self._chance)
        self._cases: list[Case] = []  # their tables were right so far
        self.tally = Tally()

    def live(self, rounds: int) -> Tally:
        self._begin()
        changes = Changes(self._chance, self._world, spark=self._spark)
        for number in range(rounds):
            for statement in changes.series():
                self._tables.sql(statement)
            if self._chance.random() < 0.5:
                self._clock.now += timedelta(days=self._chance.randint(0, 2), seconds=1)
            self._refresh(number)
        return self.tally

    def _begin(self) -> None:
        for table, columns in self._world.items():
            listed = ", ".join(f"{c.name} {self._type(c.type)}" for c in columns)
            self._tables.sql(f"CREATE TABLE {table} ({listed}){self._feed()}")
            if self._chance.random() < 0.8:  # else it begins empty
                self._tables.sql(f"INSERT INTO {table} {rows(self._chance, columns, 12)}")
        readable = self._with_views()
        while len(self._alive()) < self._wanted:
            drawn = Queries(self._chance, readable, spark=self._spark, clock=True)
            self._declare(drawn.top(self._chance.choice(self._depths)).sql)
        self._tables.refresh()
        self._compare("first load")

    def _with_views(self) -> World:
        """What queries read: the tables, and views over them or over a view that came before."""
        readable = dict(self._world)
        for number in range(self._chance.choice([0, 1, 1, 2])):
            drawn = Queries(self._chance, readable, spark=self._spark)
            view = drawn.query(self._chance.choice([0, 0, 1]))
            names = [f"v{n}" if number == 0 else name for n, name in enumerate(view.columns)]
            self._tables.sql(f"CREATE VIEW w{number} ({', '.join(names)}) AS {view.sql}")
            columns = zip(names, view.typed, strict=True)
            readable[f"w{number}"] = tuple(Column(name, of.type) for name, of in columns)
        return readable

    def _alive(self) -> dict[str, Case]:
        return {table: case for case in self._cases for table in case.tables}

    def _type(self, kind: str) -> str:
        return "STRING" if self._spark and kind == "TEXT" else kind

    def _feed(self) -> str:
        fed = " USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)"
        return fed if self._spark else ""

    def _declare(self, query: str) -> None:
        name = f"v{len(self._cases)}"
        try:
            self._tables.create(f"{name}_0", query, initialize="ON_SCHEDULE")
        except DynamicTablesError as error:
            self.tally.refused.append(f"{error.message[:200]}: {query}")
            return
        case = Case(query, [None, *self._strategies(f"{name}_0", query)], [f"{name}_0"])
        for copy in range(1, len(case.ways)):
            self._tables.create(f"{name}_{copy}", query, initialize="ON_SCHEDULE")
            case.tables.append(f"{name}_{copy}")
        self._cases.append(case)
        self.tally.queries += 1
        self._declare_in_parts(f"{name}m_0", query)

    def _declare_in_parts(self, name: str, query: str) -> None:
        """The same query stored in parts, if it can be; its ways take turns."""
        try:
            self._tables.create(
                name, query, initialize="ON_SCHEDULE", storage=Storage.MERGE_ON_READ
            )
        except InvalidInput:
            return  # not an aggregate that can be added up
        self._cases.append(Case(query, [None, *self._strategies(name, query)], [name]))

    def _strategies(self, table: str, query: str) -> list[str]:
        definition = self._tables.show(table).definition
        plan = self._tables.lake.plan_of(definition)
        found = [str(way) for way, why in possible(plan, definition).items() if why is None]
        found.remove(Strategy.NO_DATA)
        if found == [Strategy.FULL]:
            told = getattr(plan, "what", "")
            self.tally.recomputed.append(f"{getattr(plan, 'reason', '')} {told}: {query}")
        return found

    def _refresh(self, number: int) -> None:
        groups: dict[str | None, list[str]] = {}
        for name, case in self._alive().items():
            groups.setdefault(case.way(name, number), []).append(name)
        for way, names in groups.items():
            report = self._tables.refresh(*names, strategy=way, on_error="report")
            for record in report.records:
                if record.error:
                    self._fail(record.table.name, f"round {number}, {way}: {record.error}")
                else:
                    self.tally.strategies[str(record.strategy)] += 1
        self.tally.histories += len(self._alive())
        self._compare(f"round {number}")

    def _compare(self, when: str) -> None:
        today = f"DATE '{self._clock.now:%Y-%m-%d}'"
        alive = [case for case in self._cases if case.tables]
        queries = {case.query: case.query.replace("current_date", today) for case in alive}
        wanted = self._bags(queries)
        found = self._bags({name: f"SELECT * FROM {name}" for name in self._alive()})
        for name, case in self._alive().items():
            there, here = found[name], wanted[case.query]
            if there != here:
                last = self._tables.history(name, limit=1)[0]
                missing, extra = dict(here - there), dict(there - here)
                self._fail(name, f"{when}, {last.strategy}: missing {missing}, extra {extra}")
        for case in alive:
            if wanted[case.query].total() > MANY:
                case.tables.clear()

    def _bags(self, texts: dict[str, str]) -> dict[str, Rows]:
        """The rows of some queries; on Spark, where each statement costs, by one statement."""
        if not self._spark:
            return {name: bag(self._tables.sql(text).collect()) for name, text in texts.items()}
        session = listed(self._tables, (*self._world, *self._alive()))
        told = "SELECT {} AS name, to_json(struct(*)) AS row FROM ({})"
        both = " UNION ALL ".join(told.format(n, text) for n, text in enumerate(texts.values()))
        found: list[list[Any]] = [[] for _ in texts]
        for number, row in session.sql(both).collect() if texts else ():
            found[number].append(sorted(json.loads(row).items()))
        return {name: bag(rows) for name, rows in zip(texts, found, strict=True)}

    def _fail(self, name: str, what: str) -> None:
        case = self._alive()[name]
        self.tally.wrong.append(f"WRONG seed {self._seed} {name}, {what}\n  {case.query}")
        case.tables.remove(name)  # its later states mean nothing


def soak_seeds(default: str) -> Iterator[int]:
    """The seeds of a long run: LIVES_SEEDS=from:to, so that it can be divided and gone on with."""
    first, last = os.environ.get("LIVES_SEEDS", default).split(":")
    return iter(range(int(first), int(last)))


Open = Callable[[int, Clock], dt.DynamicTables]


def lived(
    open_lake: Open,
    seeds: Iterable[int],
    *,
    spark: bool,
    tables_wanted: int,
    rounds: int,
    depths: tuple[int, ...] = DEPTHS,
) -> Tally:
    """A lake for every seed."""
    tally = Tally()
    for seed in seeds:
        clock = Clock()
        with open_lake(seed, clock) as tables:
            life = Life(
                tables, clock, seed, spark=spark, tables_wanted=tables_wanted, depths=depths
            )
            tally.add(life.live(rounds))
        print(f"seed {seed}: {tally.histories} histories, {len(tally.wrong)} wrong", flush=True)
    return tally
