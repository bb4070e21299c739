"""Whole lives of dynamic tables through the real refresh, on either lake.

A lake gets a random world, and random queries over it become dynamic tables. Then, again and again:
a random series of commits, a refresh of all tables, and every table is compared with its query,
computed from the sources as they stand. In the first rounds nobody says how; then every strategy
that a table has is forced on it in turn. One table, one series of commits, one refresh and one
comparison are a *history*.
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
from random_worlds import Changes, World, random_world, rows

import dynamic_tables as dt
from dynamic_tables.errors import DynamicTablesError
from dynamic_tables.model import Strategy
from dynamic_tables.refresh.decide import possible

START = datetime(2024, 1, 2, 12, tzinfo=UTC)
DEPTHS = (0, 0, 1, 1, 1, 2, 2, 3)
Rows = Counter[str]


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
        queries: int,
        depths: tuple[int, ...] = DEPTHS,
    ) -> None:
        self._tables = tables
        self._clock = clock
        self._seed = seed
        self._spark = spark
        self._wanted = queries
        self._depths = depths
        self._chance = Random(seed)
        self._world: World = random_world(self._chance)
        self._texts: dict[str, str] = {}  # what is alive and was right so far
        self._ways: dict[str, list[str]] = {}  # the strategies of each table
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
        while len(self._texts) < self._wanted:
            drawn = Queries(self._chance, self._world, spark=self._spark, clock=True)
            self._declare(f"v{len(self._texts)}", drawn.top(self._chance.choice(self._depths)).sql)
        self._tables.refresh()
        self._compare("first load")

    def _type(self, kind: str) -> str:
        return "STRING" if self._spark and kind == "TEXT" else kind

    def _feed(self) -> str:
        fed = " USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)"
        return fed if self._spark else ""

    def _declare(self, name: str, query: str) -> None:
        try:
            self._tables.create(name, query, initialize="ON_SCHEDULE")
        except DynamicTablesError as error:
            self.tally.refused.append(f"{error.message[:200]}: {query}")
            return
        definition = self._tables.show(name).definition
        plan = self._tables.lake.plan_of(definition)
        ways = [str(way) for way, why in possible(plan, definition).items() if why is None]
        self._ways[name] = [way for way in ways if way != Strategy.NO_DATA]
        if self._ways[name] == [Strategy.FULL]:
            told = getattr(plan, "what", "")
            self.tally.recomputed.append(f"{getattr(plan, 'reason', '')} {told}: {query}")
        self._texts[name] = query
        self.tally.queries += 1

    def _refresh(self, number: int) -> None:
        """Nobody says how in the first round; then each table has its strategies in turn."""
        groups: dict[str | None, list[str]] = {}
        for name in self._texts:
            ways = [None, *self._ways[name]]
            groups.setdefault(ways[number % len(ways)], []).append(name)
        for way, names in groups.items():
            report = self._tables.refresh(*names, strategy=way, on_error="report")
            for record in report.records:
                if record.error:
                    self._fail(record.table.name, f"round {number}, {way}: {record.error}")
                else:
                    self.tally.strategies[str(record.strategy)] += 1
        self._compare(f"round {number}")
        self.tally.histories += len(self._texts)

    def _compare(self, when: str) -> None:
        today = f"DATE '{self._clock.now:%Y-%m-%d}'"
        texts = {name: text.replace("current_date", today) for name, text in self._texts.items()}
        wanted = self._bags(texts)
        found = self._bags({name: f"SELECT * FROM {name}" for name in texts})
        for name in texts:
            if wanted[name] != found[name]:
                last = self._tables.history(name, limit=1)[0]
                missing, extra = dict(wanted[name] - found[name]), dict(found[name] - wanted[name])
                self._fail(name, f"{when}, {last.strategy}: missing {missing}, extra {extra}")

    def _bags(self, texts: dict[str, str]) -> dict[str, Rows]:
        """The rows of some queries; on Spark, where each statement costs, by one statement."""
        if not self._spark:
            return {name: bag(self._tables.sql(text).collect()) for name, text in texts.items()}
        told = "SELECT '{}' AS name, to_json(struct(*)) AS row FROM ({})"
        both = " UNION ALL ".join(told.format(name, text) for name, text in texts.items())
        found: dict[str, list[Any]] = {name: [] for name in texts}
        for name, row in self._tables.sql(both).collect() if texts else ():
            found[name].append(sorted(json.loads(row).items()))
        return {name: bag(rows) for name, rows in found.items()}

    def _fail(self, name: str, what: str) -> None:
        self.tally.wrong.append(f"WRONG seed {self._seed} {name}, {what}\n  {self._texts[name]}")
        del self._texts[name]  # its later states mean nothing


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
    queries: int,
    rounds: int,
    depths: tuple[int, ...] = DEPTHS,
) -> Tally:
    """A lake for every seed."""
    tally = Tally()
    for seed in seeds:
        clock = Clock()
        with open_lake(seed, clock) as tables:
            life = Life(tables, clock, seed, spark=spark, queries=queries, depths=depths)
            tally.add(life.live(rounds))
        print(f"seed {seed}: {tally.histories} histories, {len(tally.wrong)} wrong", flush=True)
    return tally
