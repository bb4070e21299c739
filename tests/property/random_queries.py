"""Random queries over random tables, drawn from everything that is kept up to date by changes.

The texts are in the common ground of Spark and DuckDB; where the two spell a thing differently, the
generator knows. Orders in windows are total, and what breaks ties is part of the value, so that two
runs over the same rows agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from random_worlds import DATE, DECIMAL, INT, REAL, VALUES, Column, Columns, World

SCHEMAS = {"r": ("a", "b", "c"), "s": ("a", "d"), "t": ("d", "e")}
INTEGERS: World = {
    table: tuple(Column(name, INT) for name in names) for table, names in SCHEMAS.items()
}
NUMBERS = (INT, DECIMAL, REAL)


@dataclass(frozen=True, slots=True)
class Relation:
    """A query and its columns."""

    sql: str
    typed: Columns

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.typed)


@dataclass(frozen=True, slots=True)
class Place:
    """Something that stands in FROM, under its alias."""

    sql: str
    alias: str
    columns: Columns

    def named(self, column: Column) -> Column:
        return Column(f"{self.alias}.{column.name}", column.type)


class Queries:
    """Draws queries."""

    def __init__(
        self, chance: Random, world: World = INTEGERS, *, spark: bool = False, clock: bool = False
    ) -> None:
        self.chance = chance
        self.world = world
        self.spark = spark
        self.clock = clock  # whether filters may read the date
        self._aliases = 0

    def alias(self) -> str:
        self._aliases += 1
        return f"x{self._aliases}"

    def query(self, depth: int) -> Relation:
        """A query with named columns."""
        kinds = [self.plain, self.plain, self.joined, self.joined, self.grouped, self.grouped]
        kinds += [self.set_operation, self.windowed, self.distinct, self.total, self.subqueried]
        kinds += [self.rolled_up, self.scalar, self.exploded, self.shared]
        return self.chance.choice(kinds)(depth)

    def top(self, depth: int) -> Relation:
        """As `query`, but nobody computes with its columns: floating aggregates may be there."""
        return self.measured(depth) if self.chance.random() < 0.08 else self.query(depth)

    def place(self, depth: int) -> Place:
        alias = self.alias()
        if depth <= 0 or self.chance.random() < 0.45:
            table = self.chance.choice(sorted(self.world))
            return Place(f"{table} AS {alias}", alias, self.world[table])
        inner = self.query(depth - 1)
        return Place(f"({inner.sql}) AS {alias}", alias, inner.typed)

    def pick(self, place: Place, *kinds: str) -> Column:
        """A column, of one of these types if there is one; else a constant takes its place."""
        fitting = [column for column in place.columns if not kinds or column.type in kinds]
        if fitting:
            return place.named(self.chance.choice(fitting))
        return Column(self.chance.choice(VALUES[kinds[0]][1:]), kinds[0])

    # Expressions

    def value(self, place: Place) -> Column:
        one = self.pick(place)
        if self.chance.random() < 0.4:
            return one
        other = self.pick(place, one.type)
        text = self.chance.choice([
            f"coalesce({one.name}, {other.name})",
            f"CASE WHEN {self.condition(place)} THEN {one.name} ELSE {other.name} END",
            f"nullif({one.name}, {other.name})", self._computed(one),
        ])  # fmt: skip
        return Column(text, one.type)

    def _computed(self, one: Column) -> str:
        match one.type:
            case "TEXT":
                return f"upper(concat({one.name}, 'x'))"
            case "DATE":
                return f"CAST(date_trunc('month', {one.name}) AS DATE)"
            case "DECIMAL(9,2)":
                return f"CAST(-{one.name} AS DECIMAL(9,2))"
        return f"abs({one.name})"

    def condition(self, place: Place, *, clock: bool = False) -> str:
        one = self.pick(place)
        other = self.pick(place, one.type)
        constant = self.chance.choice(VALUES[one.type][1:])
        simple = self.chance.choice([
            f"{one.name} > {constant}", f"{one.name} = {constant}", f"{one.name} IS NULL",
            f"{one.name} IS NOT NULL", f"{one.name} <> {other.name}",
            f"{one.name} IN ({constant}, {VALUES[one.type][-1]})",
            f"{one.name} NOT IN ({constant})",
            f"{one.name} IS NOT DISTINCT FROM {other.name}",
            f"{one.name} BETWEEN {constant} AND {other.name}",
        ])  # fmt: skip
        if clock and one.type == DATE and self.chance.random() < 0.7:
            simple = f"{one.name} {self.chance.choice(['<', '>=', '='])} current_date"
        if self.chance.random() < 0.2:
            return f"({simple} OR {self.condition(place, clock=clock)})"
        return simple if self.chance.random() < 0.85 else f"NOT ({simple})"

    def where(self, *places: Place) -> str:
        if self.chance.random() < 0.5:
            return ""
        return f" WHERE {self.condition(self.chance.choice(places), clock=self.clock)}"

    def aggregate(self, place: Place) -> Column:
        one, number = self.pick(place), self.pick(place, *NUMBERS)
        whole = self.pick(place, INT)
        plain = self.chance.choice([
            Column("count(*)", INT), Column(f"count({one.name})", INT),
            Column(f"count(DISTINCT {one.name})", INT), Column(f"sum({whole.name})", INT),
            Column(f"sum(DISTINCT {whole.name})", INT), self._sum(number),
            Column(f"min({one.name})", one.type), Column(f"max({one.name})", one.type),
            self._rare(place, one, whole),
        ])  # fmt: skip
        if self.chance.random() < 0.2 and "DISTINCT" not in plain.name and "(*)" not in plain.name:
            head = plain.name
            if head.startswith(("sum(", "min(", "max(", "count(", "bool")) and head.endswith(")"):
                return Column(f"{head} FILTER (WHERE {self.condition(place)})", plain.type)
        return plain

    def _sum(self, number: Column) -> Column:
        kind = DECIMAL if number.type == DECIMAL else number.type
        text = f"sum({number.name})"
        return Column(f"CAST({text} AS DECIMAL(9,2))" if kind == DECIMAL else text, kind)

    def _rare(self, place: Place, one: Column, whole: Column) -> Column:
        flag = self.condition(place)
        held = f"coalesce({whole.name}, -1)"
        by = f"coalesce({self.pick(place, INT).name}, 0) * 1000 + {held}"  # equal ones are equal
        half = "percentile({}, 0.5)" if self.spark else "quantile_cont({}, 0.5)"
        distinct = (
            "size(collect_set({0}))" if self.spark else "len(list(DISTINCT {0} ORDER BY {0}))"
        )
        return self.chance.choice([
            Column(f"CASE WHEN bool_and({flag}) THEN 1 ELSE 0 END", INT),
            Column(f"CASE WHEN bool_or({flag}) THEN 1 ELSE 0 END", INT),
            Column(f"max_by({held}, {by})", INT), Column(f"min_by({held}, {by})", INT),
            Column(f"count_if({flag})", INT), Column(f"avg({whole.name})", REAL),
            Column(half.format(whole.name), REAL), Column(distinct.format(one.name), INT),
        ])  # fmt: skip

    # Queries

    def _select(self, items: list[Column], prefix: str) -> tuple[str, Columns]:
        named = tuple(Column(f"{prefix}{n}", item.type) for n, item in enumerate(items))
        listed = zip(items, named, strict=True)
        return ", ".join(f"{item.name} AS {name.name}" for item, name in listed), named

    def plain(self, depth: int) -> Relation:
        place = self.place(depth)
        items, typed = self._select(
            [self.value(place) for _ in range(self.chance.randint(1, 3))], "p"
        )
        return Relation(f"SELECT {items} FROM {place.sql}{self.where(place)}", typed)

    def joined(self, depth: int) -> Relation:
        left, right = self.place(depth), self.place(depth)
        kind = self.chance.choice(["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        on = self._tie(left, right, "=")
        if self.chance.random() < 0.3:
            on += f" AND {self._tie(left, right, self.chance.choice(['<', '<>', '=']))}"
        elif self.chance.random() < 0.15:
            on, kind = self._tie(left, right, "<"), "JOIN" if self.spark else kind
        items, typed = self._select([self.pick(left), self.pick(right), self.value(left)], "j")
        third, more = "", ""
        if self.chance.random() < 0.2:
            another = self.place(0)
            third = f" JOIN {another.sql} ON {self._tie(right, another, '=')}"
            more, extra = self._select([self.pick(another)], "h")
            more, typed = f", {more}", typed + extra
        sql = f"SELECT {items}{more} FROM {left.sql} {kind} {right.sql} ON {on}{third}"
        return Relation(f"{sql}{self.where(left, right)}", typed)

    def _tie(self, left: Place, right: Place, sign: str) -> str:
        """A condition over both sides; columns of one type, if they have one in common."""
        kinds = {c.type for c in left.columns} & {c.type for c in right.columns}
        kind = self.chance.choice(sorted(kinds)) if kinds else INT
        return f"{self.pick(left, kind).name} {sign} {self.pick(right, kind).name}"

    def grouped(self, depth: int) -> Relation:
        place = self.place(depth)
        keys = [self.pick(place)]
        if self.chance.random() < 0.4:
            another = self.pick(place)
            keys.append(Column(f"nullif({another.name}, {VALUES[another.type][1]})", another.type))
        listed, typed = self._select(keys, "k")
        if self.chance.random() < 0.15:
            listed, typed = self._select(keys[:-1], "k")
        folded, measures = self._select(
            [self.aggregate(place) for _ in range(self.chance.randint(1, 2))], "f"
        )
        items = f"{listed}, {folded}" if listed else folded
        sql = f"SELECT {items} FROM {place.sql}{self.where(place)}"
        sql += f" GROUP BY {', '.join(key.name for key in keys)}"
        if self.chance.random() < 0.25:
            whole = self.pick(place, INT).name
            condition = self.chance.choice(
                ["count(*) > 1", f"sum({whole}) > 1", f"min({whole}) < 2"]
            )
            sql += f" HAVING {condition}"
        return Relation(sql, typed + measures)

    def measured(self, depth: int) -> Relation:
        """Floating aggregates, right up to their last digits; collections."""
        place = self.place(depth)
        key, number, one = self.pick(place), self.pick(place, *NUMBERS), self.pick(place)
        folded = self.chance.choice(["stddev({})", "var_pop({})", "avg({})"]).format(number.name)
        shown = f"concat({one.name}, '')"
        kept = "sort_array(collect_set({0}))" if self.spark else "list(DISTINCT {0} ORDER BY {0})"
        measures = [
            Column(folded, REAL),
            Column("count(*)", INT),
            Column(kept.format(shown), ""),
        ]
        items, typed = self._select([key, *measures], "m")
        return Relation(f"SELECT {items} FROM {place.sql} GROUP BY {key.name}", typed)

    def rolled_up(self, depth: int) -> Relation:
        place = self.place(depth)
        one, two = self.pick(place), self.pick(place)
        kind = self.chance.choice([
            f"ROLLUP ({one.name}, {two.name})", f"CUBE ({one.name}, {two.name})",
            f"GROUPING SETS (({one.name}), ({two.name}))",
        ])  # fmt: skip
        shown = [one, two]
        if one.name == two.name:
            kind, shown = f"ROLLUP ({one.name})", [one]
        items, typed = self._select([*shown, self.aggregate(place)], "g")
        return Relation(f"SELECT {items} FROM {place.sql} GROUP BY {kind}", typed)

    def total(self, depth: int) -> Relation:
        place = self.place(depth)
        items, typed = self._select([self.aggregate(place) for _ in range(2)], "f")
        return Relation(f"SELECT {items} FROM {place.sql}{self.where(place)}", typed)

    def distinct(self, depth: int) -> Relation:
        place = self.place(depth)
        items, typed = self._select([self.value(place), self.pick(place)], "u")
        return Relation(f"SELECT DISTINCT {items} FROM {place.sql}{self.where(place)}", typed)

    def set_operation(self, depth: int) -> Relation:
        words = ["UNION ALL", "UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL"]
        left, right = self.place(depth), self.place(depth)
        first = [self.pick(left), self.value(left)]
        second = [self.pick(right, item.type) for item in first]
        items, typed = self._select(first, "v")
        others, _ = self._select(second, "v")
        sql = f"SELECT {items} FROM {left.sql} {self.chance.choice(words)} "
        return Relation(f"{sql}SELECT {others} FROM {right.sql}", typed)

    def windowed(self, depth: int) -> Relation:
        place = self.place(depth)
        key, one, number = self.pick(place), self.pick(place), self.pick(place, INT)
        order = ", ".join(f"{place.named(c).name} NULLS FIRST" for c in place.columns)
        over, running = f"PARTITION BY {key.name}", "ROWS UNBOUNDED PRECEDING"
        function = self.chance.choice([
            Column(f"row_number() OVER ({over} ORDER BY {order})", INT),
            Column(f"rank() OVER ({over} ORDER BY {one.name} NULLS LAST)", INT),
            Column(f"sum({number.name}) OVER ({over})", INT),
            Column(f"lag({number.name}) OVER ({over} ORDER BY {order})", INT),
            Column(f"sum({number.name}) OVER ({over} ORDER BY {order} {running})", INT),
        ])  # fmt: skip
        items, typed = self._select([key, one, function], "w")
        if self.chance.random() < 0.6:
            return Relation(f"SELECT {items} FROM {place.sql}{self.where(place)}", typed)
        if self.spark or self.chance.random() < 0.5:  # the best of each key
            inner = f"SELECT {items} FROM {place.sql}"
            sql = f"SELECT w0, w1 FROM ({inner}) AS {self.alias()} WHERE w2 <= 1"
            return Relation(sql, typed[:2])
        items, typed = self._select([key, one], "w")
        best = f"row_number() OVER ({over} ORDER BY {order}) <= 2"
        return Relation(f"SELECT {items} FROM {place.sql} QUALIFY {best}", typed)

    def subqueried(self, depth: int) -> Relation:
        place, inner = self.place(depth), self.place(depth - 1)
        kinds = {c.type for c in place.columns} & {c.type for c in inner.columns}
        kind = self.chance.choice(sorted(kinds)) if kinds else INT
        mine, theirs = self.pick(place, kind), self.pick(inner, kind)
        tie, other = self._tie(inner, place, "="), self.condition(place)
        condition = self.chance.choice([
            f"EXISTS (SELECT 1 FROM {inner.sql} WHERE {tie})",
            f"NOT EXISTS (SELECT 1 FROM {inner.sql} WHERE {tie} AND {theirs.name} > {mine.name})",
            f"{mine.name} IN (SELECT {theirs.name} FROM {inner.sql})",
            f"{mine.name} NOT IN (SELECT {theirs.name} FROM {inner.sql})",
            f"{mine.name} NOT IN (SELECT {theirs.name} FROM {inner.sql} WHERE {tie})",
            f"({mine.name} IS NULL OR EXISTS (SELECT 1 FROM {inner.sql} WHERE {tie}))",
            f"({other} OR {mine.name} NOT IN (SELECT {theirs.name} FROM {inner.sql}))",
        ])  # fmt: skip
        items, typed = self._select([self.pick(place), mine], "q")
        return Relation(f"SELECT {items} FROM {place.sql} WHERE {condition}", typed)

    def scalar(self, depth: int) -> Relation:
        place, inner = self.place(depth), self.place(depth - 1)
        sign = "<" if self.chance.random() < 0.2 else "="
        where = f" WHERE {self._tie(inner, place, sign)}" if self.chance.random() < 0.8 else ""
        number = self.pick(inner, INT).name
        function = self.chance.choice(["max({})", "count({})", "sum({}) + 1", "min({})"])
        folded = f"(SELECT {function.format(number)} FROM {inner.sql}{where})"
        items, typed = self._select([self.pick(place), Column(folded, INT)], "z")
        if self.chance.random() < 0.3:
            items, typed = self._select([self.pick(place)], "z")
            where = f" WHERE {self.pick(place, INT).name} <= {folded}"
            return Relation(f"SELECT {items} FROM {place.sql}{where}", typed)
        return Relation(f"SELECT {items} FROM {place.sql}", typed)

    def exploded(self, depth: int) -> Relation:
        place, alias = self.place(depth), self.alias()
        one = self.pick(place)
        other = self.pick(place, one.type)
        items, typed = self._select([self.pick(place), Column(f"{alias}.v", one.type)], "e")
        both = f"{one.name}, {other.name}"
        if self.spark:
            view = f"LATERAL VIEW explode(array({both})) {alias} AS v"
            return Relation(f"SELECT {items} FROM {place.sql} {view}", typed)
        return Relation(f"SELECT {items} FROM {place.sql}, unnest([{both}]) AS {alias}(v)", typed)

    def shared(self, depth: int) -> Relation:
        """A common table expression that is read twice."""
        inner, name = self.query(depth - 1), self.alias()
        left, right = (
            Place(f"{name} AS {a}", a, inner.typed) for a in (self.alias(), self.alias())
        )
        kind = self.chance.choice(["JOIN", "LEFT JOIN"])
        items, typed = self._select([self.pick(left), self.pick(right)], "c")
        body = f"SELECT {items} FROM {left.sql} {kind} {right.sql} ON {self._tie(left, right, '=')}"
        return Relation(f"WITH {name} AS ({inner.sql}) {body}", typed)
