"""Random queries over three small tables, drawn from everything that is kept up to date by changes.

Each query is a text in the common ground of Spark and DuckDB. Values are small integers and NULL,
so keys meet, duplicates occur and comparisons are often unknown. Orders in windows are total.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

SCHEMAS = {"r": ("a", "b", "c"), "s": ("a", "d"), "t": ("d", "e")}


@dataclass(frozen=True, slots=True)
class Relation:
    """Something that may stand in FROM, and its columns (all integers)."""

    sql: str
    columns: tuple[str, ...]


class Queries:
    """Draws queries."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self._aliases = 0

    def alias(self) -> str:
        self._aliases += 1
        return f"x{self._aliases}"

    def query(self, depth: int) -> Relation:
        """A query with named columns."""
        kinds = [self.plain, self.plain, self.joined, self.joined, self.grouped, self.grouped]
        kinds += [self.set_operation, self.windowed, self.distinct, self.total, self.subqueried]
        kinds += [self.rolled_up, self.scalar]
        return self.chance.choice(kinds)(depth)

    def relation(self, depth: int) -> tuple[str, str, tuple[str, ...]]:
        """FROM text, alias, columns."""
        name = self.alias()
        if depth <= 0 or self.chance.random() < 0.45:
            table = self.chance.choice(sorted(SCHEMAS))
            return f"{table} AS {name}", name, SCHEMAS[table]
        inner = self.query(depth - 1)
        return f"({inner.sql}) AS {name}", name, inner.columns

    def pick(self, alias: str, columns: tuple[str, ...]) -> str:
        return f"{alias}.{self.chance.choice(columns)}"

    # Expressions

    def value(self, alias: str, columns: tuple[str, ...]) -> str:
        one, other = self.pick(alias, columns), self.pick(alias, columns)
        return self.chance.choice([
            one, one, f"{one} + 1", f"coalesce({one}, {other}, 0)", f"abs({one})", "NULL + 1",
            f"CASE WHEN {one} > 1 THEN {other} ELSE 7 END", f"nullif({one}, 2)",
        ])  # fmt: skip

    def condition(self, alias: str, columns: tuple[str, ...]) -> str:
        one, other = self.pick(alias, columns), self.pick(alias, columns)
        number = self.chance.randint(0, 3)
        simple = self.chance.choice([
            f"{one} > {number}", f"{one} = {number}", f"{one} IS NULL", f"{one} IS NOT NULL",
            f"{one} <> {other}", f"{one} IN (1, 3)", f"{one} NOT IN (0, {number})",
            f"{one} IS NOT DISTINCT FROM {other}", f"{one} BETWEEN 1 AND {other}",
        ])  # fmt: skip
        if self.chance.random() < 0.2:
            return f"({simple} OR {self.condition(alias, columns)})"
        return simple if self.chance.random() < 0.85 else f"NOT ({simple})"

    def where(self, alias: str, columns: tuple[str, ...]) -> str:
        if self.chance.random() < 0.5:
            return ""
        return f" WHERE {self.condition(alias, columns)}"

    # Queries

    def plain(self, depth: int) -> Relation:
        source, alias, columns = self.relation(depth)
        names = [f"p{n}" for n in range(self.chance.randint(1, 3))]
        items = ", ".join(f"{self.value(alias, columns)} AS {name}" for name in names)
        return Relation(f"SELECT {items} FROM {source}{self.where(alias, columns)}", tuple(names))

    def joined(self, depth: int) -> Relation:
        left, one, here = self.relation(depth)
        right, two, there = self.relation(depth)
        kind = self.chance.choice(["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        on = f"{self.pick(one, here)} = {self.pick(two, there)}"
        if self.chance.random() < 0.3:
            other = self.chance.choice(["<", "<>", "="])
            on += f" AND {self.pick(one, here)} {other} {self.pick(two, there)}"
        elif self.chance.random() < 0.15:
            on = f"{self.pick(one, here)} < {self.pick(two, there)}"
        items = f"{self.pick(one, here)} AS j0, {self.pick(two, there)} AS j1"
        items += f", {self.value(one, here)} AS j2"
        condition = self.where(*self.chance.choice([(one, here), (two, there)]))
        sql = f"SELECT {items} FROM {left} {kind} {right} ON {on}{condition}"
        return Relation(sql, ("j0", "j1", "j2"))

    def aggregate(self, alias: str, columns: tuple[str, ...]) -> str:
        one = self.pick(alias, columns)
        plain = self.chance.choice([
            "count(*)", f"count({one})", f"sum({one})", f"min({one})", f"max({one})",
            f"count(DISTINCT {one})", f"sum(DISTINCT {one})",
        ])  # fmt: skip
        if self.chance.random() < 0.2 and "DISTINCT" not in plain:
            return f"{plain} FILTER (WHERE {self.condition(alias, columns)})"
        return plain

    def grouped(self, depth: int) -> Relation:
        source, alias, columns = self.relation(depth)
        keys = [self.pick(alias, columns)]
        if self.chance.random() < 0.4:
            keys.append(f"coalesce({self.pick(alias, columns)}, -1)")
        listed = [f"{key} AS k{n}" for n, key in enumerate(keys)]
        shown = listed if self.chance.random() < 0.85 else listed[:-1]
        folded = [
            f"{self.aggregate(alias, columns)} AS f{n}" for n in range(self.chance.randint(1, 2))
        ]
        sql = f"SELECT {', '.join(shown + folded)} FROM {source}{self.where(alias, columns)}"
        sql += f" GROUP BY {', '.join(keys)}"
        if self.chance.random() < 0.25:
            sql += f" HAVING {self.aggregate(alias, columns)} > {self.chance.randint(0, 2)}"
        return Relation(sql, tuple(item.rpartition(" ")[2] for item in shown + folded))

    def rolled_up(self, depth: int) -> Relation:
        source, alias, columns = self.relation(depth)
        one, two = self.pick(alias, columns), self.pick(alias, columns)
        kind = self.chance.choice(
            [f"ROLLUP ({one}, {two})", f"CUBE ({one}, {two})", f"GROUPING SETS (({one}), ({two}))"]
        )
        if one == two:
            kind = f"ROLLUP ({one})"
            two = "0"
        folded = f"{self.aggregate(alias, columns)} AS f0"
        sql = f"SELECT {one} AS k0, {two} AS k1, {folded} FROM {source} GROUP BY {kind}"
        return Relation(sql, ("k0", "k1", "f0"))

    def total(self, depth: int) -> Relation:
        source, alias, columns = self.relation(depth)
        folded = [f"{self.aggregate(alias, columns)} AS f{n}" for n in range(2)]
        sql = f"SELECT {', '.join(folded)} FROM {source}{self.where(alias, columns)}"
        return Relation(sql, ("f0", "f1"))

    def distinct(self, depth: int) -> Relation:
        source, alias, columns = self.relation(depth)
        items = f"{self.value(alias, columns)} AS u0, {self.pick(alias, columns)} AS u1"
        return Relation(
            f"SELECT DISTINCT {items} FROM {source}{self.where(alias, columns)}", ("u0", "u1")
        )

    def set_operation(self, depth: int) -> Relation:
        word = self.chance.choice(
            ["UNION ALL", "UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL"]
        )
        parts = []
        for _ in range(2):
            source, alias, columns = self.relation(depth)
            items = f"{self.pick(alias, columns)} AS v0, {self.value(alias, columns)} AS v1"
            parts.append(f"SELECT {items} FROM {source}")
        return Relation(f" {word} ".join(parts), ("v0", "v1"))

    def windowed(self, depth: int) -> Relation:
        source, alias, columns = self.relation(depth)
        key = self.pick(alias, columns)
        order = ", ".join(f"{alias}.{name} NULLS FIRST" for name in columns)
        function = self.chance.choice([
            f"row_number() OVER (PARTITION BY {key} ORDER BY {order})",
            f"rank() OVER (PARTITION BY {key} ORDER BY {self.pick(alias, columns)} NULLS LAST)",
            f"sum({self.pick(alias, columns)}) OVER (PARTITION BY {key})",
            f"lag({self.pick(alias, columns)}) OVER (PARTITION BY {key} ORDER BY {order})",
        ])  # fmt: skip
        inner = (
            f"SELECT {key} AS w0, {self.pick(alias, columns)} AS w1, {function} AS w2 FROM {source}"
        )
        if self.chance.random() < 0.4:
            return Relation(
                f"SELECT w0, w1 FROM ({inner}) AS {self.alias()} WHERE w2 <= 1", ("w0", "w1")
            )
        return Relation(inner, ("w0", "w1", "w2"))

    def subqueried(self, depth: int) -> Relation:
        source, alias, columns = self.relation(depth)
        inner, other, there = self.relation(depth - 1)
        mine, theirs = self.pick(alias, columns), self.pick(other, there)
        tie = f"{self.pick(other, there)} = {self.pick(alias, columns)}"
        condition = self.chance.choice([
            f"EXISTS (SELECT 1 FROM {inner} WHERE {tie})",
            f"NOT EXISTS (SELECT 1 FROM {inner} WHERE {tie} AND {theirs} > {mine})",
            f"{mine} IN (SELECT {theirs} FROM {inner})",
            f"{mine} NOT IN (SELECT {theirs} FROM {inner})",
            f"{mine} NOT IN (SELECT {theirs} FROM {inner} WHERE {tie})",
            f"({mine} = 1 OR EXISTS (SELECT 1 FROM {inner} WHERE {tie}))",
            f"({mine} > 2 OR {mine} NOT IN (SELECT {theirs} FROM {inner}))",
        ])  # fmt: skip
        items = f"{self.pick(alias, columns)} AS q0, {mine} AS q1"
        return Relation(f"SELECT {items} FROM {source} WHERE {condition}", ("q0", "q1"))

    def scalar(self, depth: int) -> Relation:
        source, alias, columns = self.relation(depth)
        inner, other, there = self.relation(depth - 1)
        tie = f"{self.pick(other, there)} = {self.pick(alias, columns)}"
        if self.chance.random() < 0.2:
            tie = f"{self.pick(other, there)} < {self.pick(alias, columns)}"
        function = self.chance.choice(["max({})", "count({})", "sum({}) + 1", "min({})"])
        folded = function.format(self.pick(other, there))
        where = f" WHERE {tie}" if self.chance.random() < 0.8 else ""
        sql = (
            f"SELECT {self.pick(alias, columns)} AS z0, (SELECT {folded} FROM {inner}{where}) AS z1"
            f" FROM {source}"
        )
        return Relation(sql, ("z0", "z1"))
