"""Random tables, random rows and random changes, as SQL that Spark and DuckDB both understand.

Values come from small ranges and are often NULL, so keys meet, rows repeat and comparisons are
unknown. Doubles are quarters: their sums are exact in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

INT, DECIMAL, TEXT, DATE, REAL = "INT", "DECIMAL(9,2)", "TEXT", "DATE", "DOUBLE"
TYPES = (INT, INT, INT, DECIMAL, TEXT, DATE, REAL)
VALUES = {
    INT: ("NULL", "0", "1", "2", "3"),
    DECIMAL: ("NULL", "0.00", "1.10", "2.25", "-3.50"),
    TEXT: ("NULL", "''", "'a'", "'b'", "'it''s'"),
    DATE: ("NULL", *(f"DATE '2024-01-0{day}'" for day in range(1, 8))),
    REAL: ("NULL", "CAST(0.25 AS DOUBLE)", "CAST(1.5 AS DOUBLE)", "CAST(-2 AS DOUBLE)"),
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table or a query."""

    name: str
    type: str


Columns = tuple[Column, ...]
World = dict[str, Columns]


def random_world(chance: Random) -> World:
    """Three tables that share a key column."""
    world = {}
    for table in ("r", "s", "t"):
        more = [chance.choice(TYPES) for _ in range(chance.randint(1, 3))]
        columns = [Column("k", INT)]
        columns += [Column(f"{table}{n}", kind) for n, kind in enumerate(more)]
        world[table] = tuple(columns)
    return world


def value(chance: Random, kind: str) -> str:
    return chance.choice(VALUES[kind])


def rows(chance: Random, columns: Columns, most: int) -> str:
    listed = []
    for _ in range(chance.randint(1, most)):
        items = ", ".join(value(chance, column.type) for column in columns)
        listed.append(f"({items})")
        if chance.random() < 0.2:
            listed.append(listed[-1])  # a duplicate
    return "VALUES " + ", ".join(listed)


class Changes:
    """Draws changes to the tables of a world: one or two statements each."""

    def __init__(self, chance: Random, world: World, *, spark: bool) -> None:
        self._chance = chance
        self._world = world
        self._spark = spark

    def series(self) -> Iterator[str]:
        """What happens between two refreshes: some commits to all tables or to some, seldom
        nothing; now and then rows only come."""
        if self._chance.random() < 0.7:
            for table in sorted(self._world):
                yield from self._insert(table)
            if self._chance.random() < 0.3:
                return
        for _ in range(self._chance.choice([0, 1, 2, 3, 3, 4, 5])):
            yield from self.one()

    def one(self) -> list[str]:
        """A change to one table; sometimes the same rows go and come back."""
        table = self._chance.choice(sorted(self._world))
        kinds = [self._insert, self._update, self._move, self._delete] * 3
        kinds += [self._insert, self._insert, self._again, self._twice, self._nothing]
        kinds += [self._overwrite, self._clear]
        if self._spark:  # DuckLake 1.5.5 itself fails in some ("Out of buffer", "Invalid data")
            kinds += [self._merge]
        return self._chance.choice(kinds)(table)

    def _insert(self, table: str) -> list[str]:
        return [f"INSERT INTO {table} {rows(self._chance, self._world[table], 6)}"]

    def _where(self, table: str) -> str:
        column = self._chance.choice(self._world[table])
        return f"{column.name} IS NOT DISTINCT FROM {value(self._chance, column.type)}"

    def _update(self, table: str) -> list[str]:
        column = self._chance.choice(self._world[table])
        new = value(self._chance, column.type)
        return [f"UPDATE {table} SET {column.name} = {new} WHERE {self._where(table)}"]

    def _move(self, table: str) -> list[str]:
        return [f"UPDATE {table} SET k = {value(self._chance, INT)} WHERE {self._where(table)}"]

    def _delete(self, table: str) -> list[str]:
        return [f"DELETE FROM {table} WHERE {self._where(table)}"]

    def _again(self, table: str) -> list[str]:
        """A row comes, goes and comes back in commits of their own."""
        insert = f"INSERT INTO {table} {rows(self._chance, self._world[table], 1)}"
        return [insert, f"DELETE FROM {table} WHERE {self._where(table)}", insert]

    def _twice(self, table: str) -> list[str]:
        return [f"INSERT INTO {table} SELECT * FROM {table} WHERE {self._where(table)}"]

    def _nothing(self, table: str) -> list[str]:
        return [f"UPDATE {table} SET k = k"]

    def _overwrite(self, table: str) -> list[str]:
        new = rows(self._chance, self._world[table], 9)
        if self._spark:
            return [f"INSERT OVERWRITE {table} {new}"]
        return ["BEGIN", f"DELETE FROM {table}", f"INSERT INTO {table} {new}", "COMMIT"]

    def _clear(self, table: str) -> list[str]:
        return [f"DELETE FROM {table}"]

    def _merge(self, table: str) -> list[str]:
        other = self._chance.choice([name for name in sorted(self._world) if name != table])
        names = ", ".join(column.name for column in self._world[table])
        new = ", ".join(
            "d.k" if column.name == "k" else value(self._chance, column.type)
            for column in self._world[table]
        )
        changed = self._chance.choice(self._world[table])
        merge = (
            f"MERGE INTO {table} USING (SELECT DISTINCT k FROM {other}) AS d ON {table}.k = d.k"
            f" WHEN MATCHED AND d.k > 2 THEN DELETE"
            f" WHEN MATCHED THEN UPDATE SET {changed.name} = {value(self._chance, changed.type)}"
            f" WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({new})"
        )
        return [merge]
