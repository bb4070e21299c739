"""`merge`: new aggregates from the stored ones and the changes, without reading the sources.

What every group gains and loses is folded into one row a group (the parts). Parts and stored rows
together give the new values. Some groups need their rows all the same: the least value went away,
a floating sum lost a summand, a sum overflowed. They are recomputed by key; that is all that is
read of the sources.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from dynamic_tables.compiler.delta import Deltas
from dynamic_tables.compiler.emit import WEIGHT, Emitter, Restriction, Side, key_column
from dynamic_tables.compiler.folds import Fold, Kind, count_rows, fold_of
from dynamic_tables.compiler.tree import (
    Aggregate,
    Expression,
    Node,
    Project,
    Window,
    column,
    rewritten,
    walk,
)
from dynamic_tables.definition import FLOATING
from dynamic_tables.reasons import Reason

GONE, ODD, STORED = "_dt_gone", "_dt_odd", "_dt_stored"
NEEDS_ROWS = "_dt_needs_rows"
MANY = 100_000_000  # values; above, a decimal AVG as a quotient may be rounded twice


@dataclass(frozen=True, slots=True, kw_only=True)
class Merging:
    """How the rows of a GROUP BY are kept up to date by merging."""

    aggregate: Aggregate
    outputs: tuple[tuple[str, Expression], ...]  # declared names over the aggregate's columns
    folds: tuple[Fold, ...]  # of the aggregates, in their order

    def reason_against(self, types: Mapping[str, str]) -> Reason | None:
        """Why not, given the types of the stored columns.

        A quotient must be rounded once only. A key that is a floating sum is not the same when it
        is computed again: what goes would be taken from another group.
        """
        nested = any(isinstance(node, (Aggregate, Window)) for node in walk(self.aggregate.child))
        keys = (self.type_of(name, types) for name, _ in self.aggregate.keys)
        if nested and not FLOATING.isdisjoint(keys):
            return Reason.NON_DETERMINISTIC
        for (name, _), fold in zip(self.aggregate.aggregates, self.folds, strict=True):
            kind = self.type_of(name, types)
            if fold.kind is Kind.AVG and kind not in FLOATING and not _rounds_once(kind):
                return Reason.NO_INVERSE
        return None

    def may_need_rows(self, types: Mapping[str, str]) -> bool:
        """Whether groups may need their rows when one of them goes: the least or greatest value
        may be gone, and nothing is taken from floating sums."""
        return any(
            fold.kind in (Kind.MIN, Kind.MAX) or self.type_of(name, types) in FLOATING
            for (name, _), fold in zip(self.aggregate.aggregates, self.folds, strict=True)
        )

    # What changed

    def parts(self, emitter: Emitter, deltas: Deltas) -> str | None:
        """SQL: one row a changed group, with what it gains and loses."""
        changed = deltas.of(self.aggregate.child)
        if changed is None:
            return None
        items = [
            f"{emitter.text(key)} AS {key_column(n)}"
            for n, (_, key) in enumerate(self.aggregate.keys)
        ]
        counted = _counted if self.aggregate.keys else _counted_of_none
        for n, fold in enumerate(self.folds):
            items += _contributions(emitter, n, fold, counted)
        items.append(f"{counted(f'CASE WHEN {WEIGHT} < 0 THEN 1 ELSE 0 END')} AS {GONE}")
        items.append(f"{counted(f'CASE WHEN ABS({WEIGHT}) <> 1 THEN 1 ELSE 0 END')} AS {ODD}")
        group = ", ".join(emitter.text(key) for _, key in self.aggregate.keys)
        sql = f"SELECT {', '.join(items)} FROM {changed}" + (f" GROUP BY {group}" if group else "")
        return emitter.with_ctes(sql)

    # What is new

    def stored_rows(self, emitter: Emitter, parts: str, stored: str) -> str:
        """SQL: the stored rows of the changed groups."""
        keys = tuple(
            exp.column(exp.to_identifier(self.declared(name), quoted=True), table="q")
            for name, _ in self.aggregate.keys
        )
        matches = emitter.matches(Restriction(table=parts, values=keys))
        return f"SELECT * FROM {stored} AS q WHERE {matches}"

    def groups(self, emitter: Emitter, parts: str, rows: str, types: Mapping[str, str]) -> str:
        """SQL: the new aggregates of the changed groups, and which of them need their rows.

        `rows` are their stored rows, `types` those of the stored columns.
        """
        keys = [key_column(n) for n in range(len(self.aggregate.keys))]
        changed = [*keys, *self._values(), GONE, ODD, f"0 AS {STORED}"]
        kept = [
            *(
                f"{emitter.quote(self.declared(name))} AS {key}"
                for key, (name, _) in zip(keys, self.aggregate.keys, strict=True)
            ),
            *self._stored_values(emitter),
            "0",
            self.lost(emitter),
            "1",
        ]
        folded = [*keys, *self._folded(), *(f"SUM({c}) AS {c}" for c in (GONE, ODD, STORED))]
        inner = (
            f"SELECT {', '.join(folded)} FROM (SELECT {', '.join(changed)} FROM {parts}"
            f" UNION ALL SELECT {', '.join(kept)} FROM {rows} AS q) AS q"
        ) + (f" GROUP BY {', '.join(keys)}" if keys else "")
        return self.new_values(emitter, inner, types)

    def new_values(self, emitter: Emitter, inner: str, types: Mapping[str, str], *also: str) -> str:
        """SQL: from what the groups had and gained, their aggregates, and which need their rows."""
        keys = [key_column(n) for n in range(len(self.aggregate.keys))]
        names = [emitter.quote(name) for name, _ in self.aggregate.keys]
        new = [f"{key} AS {name}" for key, name in zip(keys, names, strict=True)]
        new += [
            f"{self.new_value(n)} AS {emitter.quote(name)}"
            for n, (name, _) in enumerate(self.aggregate.aggregates)
        ]
        needs = " OR ".join(f"COALESCE({why}, TRUE)" for why in self._needs(types))
        if keys:  # a group that is gone needs nothing
            needs = f"({needs}) AND {value_name(self._place(count_rows()))} <> 0"
        items = [*keys, *new, f"{needs} AS {NEEDS_ROWS}", *also]
        return f"SELECT {', '.join(items)} FROM ({inner}) AS q"

    def merged(self, emitter: Emitter, groups: str) -> str:
        """SQL: the rows of groups that are there and whose values are known, as declared."""
        alive = f" AND {emitter.quote(self.rows_name())} > 0" if self.aggregate.keys else ""
        items = self.items(emitter)
        return f"SELECT {items} FROM {groups} WHERE NOT {NEEDS_ROWS}{alive}"

    def needing(self, groups: str) -> str:
        """SQL: the keys of the groups that need their rows."""
        keys = [key_column(n) for n in range(len(self.aggregate.keys))]
        return f"SELECT {', '.join(keys) or '1 AS one'} FROM {groups} WHERE {NEEDS_ROWS}"

    def recomputed(self, emitter: Emitter, keys: str) -> str:
        """SQL: the rows of some groups from the sources, as declared."""
        values = tuple(column(name) for name, _ in self.aggregate.keys)
        rows = emitter.rows(self.aggregate, Side.AFTER, Restriction(table=keys, values=values))
        return f"SELECT {self.items(emitter)} FROM ({rows}) AS q"

    def items(self, emitter: Emitter) -> str:
        return ", ".join(f"{emitter.text(e)} AS {emitter.quote(n)}" for n, e in self.outputs)

    def type_of(self, name: str, types: Mapping[str, str]) -> str:
        """The type of a key or an aggregate that is stored as it is."""
        declared = self._plain().get(name)
        return types[declared.lower()].lower() if declared is not None else ""

    # Values

    def _values(self) -> list[str]:
        return [name for n, fold in enumerate(self.folds) for name in value_names(n, fold)]

    def _stored_values(self, emitter: Emitter) -> list[str]:
        found = []
        for (name, _), fold in zip(self.aggregate.aggregates, self.folds, strict=True):
            if fold.kind is not Kind.AVG:  # is made of its companions
                found.append(emitter.quote(self.declared(name)))
            if fold.kind in (Kind.MIN, Kind.MAX):
                found.append("NULL")
        return found

    def _folded(self) -> list[str]:
        found = []
        for n, fold in enumerate(self.folds):
            found += [f"{folding_word(fold)}({name}) AS {name}" for name in value_names(n, fold)]
        return found

    def new_value(self, n: int) -> str:
        fold = self.folds[n]
        match fold.kind:
            case Kind.SUM:
                return f"CASE WHEN {self.number_of(fold)} <> 0 THEN {value_name(n)} END"
            case Kind.AVG:
                total, number = value_name(self._place(fold.total())), self.number_of(fold)
                return f"CASE WHEN {number} <> 0 THEN {total} / {number} END"
            case _:
                return value_name(n)

    def _needs(self, types: Mapping[str, str]) -> list[str]:
        """Conditions under which the stored value and the changes do not tell the new one."""
        found = [f"{ODD} > 0"]
        if not self.aggregate.keys:
            found.append(f"{STORED} <> 1")
        for n, (fold, (name, _)) in enumerate(
            zip(self.folds, self.aggregate.aggregates, strict=True)
        ):
            kind = self.type_of(name, types)
            match fold.kind:
                case Kind.COUNT:
                    found.append(f"{value_name(n)} < 0")
                case Kind.SUM:
                    if kind in FLOATING:
                        found.append(f"{GONE} > 0")
                    found.append(f"({value_name(n)} IS NULL AND {self.number_of(fold)} <> 0)")
                case Kind.AVG:
                    if kind not in FLOATING:
                        found.append(f"{self.number_of(fold)} > {MANY}")
                case Kind.MIN | Kind.MAX:
                    past = "<=" if fold.kind is Kind.MIN else ">="
                    gone, new = gone_name(n), value_name(n)
                    found.append(f"({gone} IS NOT NULL AND ({new} IS NULL OR {gone} {past} {new}))")
        return found

    def number_of(self, fold: Fold) -> str:
        return value_name(self._place(fold.number()))

    def number_name(self, fold: Fold) -> str:
        """The aggregate that counts the values of a sum."""
        return self.aggregate.aggregates[self._place(fold.number())][0]

    def lost(self, emitter: Emitter) -> str:
        """How many stored sums are not known, because they overflowed."""
        found = [
            f"CASE WHEN {emitter.quote(self.declared(name))} IS NULL AND "
            f"{emitter.quote(self.declared(self.number_name(fold)))} <> 0 THEN 1 ELSE 0 END"
            for (name, _), fold in zip(self.aggregate.aggregates, self.folds, strict=True)
            if fold.kind is Kind.SUM
        ]
        return " + ".join(found) or "0"

    def _place(self, wanted: Expression) -> int:
        aggregates = [aggregate for _, aggregate in self.aggregate.aggregates]
        return aggregates.index(wanted)

    def rows_name(self) -> str:
        return self.aggregate.aggregates[self._place(count_rows())][0]

    def _plain(self) -> dict[str, str]:
        """The aggregate's columns that are stored as they are, by their declared names."""
        return {e.name: name for name, e in self.outputs if isinstance(e, exp.Column)}

    def declared(self, name: str) -> str:
        return self._plain()[name]


def merging_of(node: Node, columns: Sequence[str], dialect: str) -> Merging | Reason:
    """How a query is merged, or why it cannot be: no such query, or it does not store enough."""
    items: dict[str, Expression] = {name: column(name) for name in node.columns}
    while isinstance(node, Project):
        items = {name: rewritten(e, _inlined(node)) for name, e in items.items()}
        node = node.child
    if not isinstance(node, Aggregate):
        return Reason.NO_INVERSE
    folds = [fold_of(aggregate, dialect) for _, aggregate in node.aggregates]
    if any(fold is None for fold in folds):
        return Reason.NO_INVERSE
    found = Merging(
        aggregate=node,
        outputs=tuple(zip(columns, items.values(), strict=True)),
        folds=tuple(fold for fold in folds if fold is not None),
    )
    return found if _stores_enough(found) else Reason.NO_STATE


def _inlined(project: Project) -> Callable[[Expression], Expression | None]:
    """What a projection's columns are in terms of its child's."""
    items = dict(project.items)

    def replace(found: Expression) -> Expression | None:
        if not isinstance(found, exp.Column):
            return None
        value = items[found.name]
        return value.copy() if isinstance(value, exp.Column) else exp.paren(value)

    return replace


def _stores_enough(merging: Merging) -> bool:
    """Keys and aggregates reach the table as they are, and all companions are among them."""
    plain = {e.name for _, e in merging.outputs if isinstance(e, exp.Column)}
    stored = {aggregate for name, aggregate in merging.aggregate.aggregates if name in plain}
    wanted = {companion for fold in merging.folds for companion in fold.companions()}
    if merging.aggregate.keys:
        wanted.add(count_rows())
    averages = {
        name
        for (name, _), fold in zip(merging.aggregate.aggregates, merging.folds, strict=True)
        if fold.kind is Kind.AVG
    }
    return wanted <= stored and plain | averages >= set(merging.aggregate.columns)


def _rounds_once(average: str) -> bool:
    """Whether Spark's quotient of sum and count has digits enough to be rounded to an average.

    An average of decimal(p, s) is decimal(p + 4, s + 4), its sum decimal(p + 10, s). The quotient
    by a count has 38 digits at most.

    >>> _rounds_once("decimal(16,6)"), _rounds_once("decimal(38,14)"), _rounds_once("interval")
    (True, False, False)
    """
    found = re.fullmatch(r"decimal\((\d+), ?(\d+)\)", average)
    if found is None:
        return False
    precision, scale = int(found[1]), int(found[2])
    whole = precision + 6 - (scale - 4)
    return 38 - whole >= scale + 9


def folding_word(fold: Fold) -> str:
    """How parts become one."""
    return {Kind.MIN: "MIN", Kind.MAX: "MAX"}.get(fold.kind, "SUM")


def value_name(n: int) -> str:
    return f"_dt_v{n}"


def gone_name(n: int) -> str:
    return f"_dt_g{n}"


def value_names(n: int, fold: Fold) -> list[str]:
    match fold.kind:
        case Kind.AVG:
            return []
        case Kind.MIN | Kind.MAX:
            return [value_name(n), gone_name(n)]
        case _:
            return [value_name(n)]


def _signed_sum(value: str, dialect: str) -> str:
    """Spark gives a difference of decimal sums fewer digits; DuckDB cannot negate what has no sign:
    -(5::UINTEGER) is 4294967291."""
    if dialect == "duckdb":
        came, went = (f"SUM(CASE WHEN {WEIGHT} {x} 0 THEN {value} END)" for x in "><")
        return f"COALESCE({came}, 0) - COALESCE({went}, 0)"
    return f"SUM(CASE WHEN {WEIGHT} > 0 THEN {value} ELSE -({value}) END)"


def _counted(each: str) -> str:
    return f"SUM({each})"


def _counted_of_none(each: str) -> str:
    """Without groups there is a row of parts also where the query takes none of what changed."""
    return f"COALESCE(SUM({each}), 0)"


def _contributions(
    emitter: Emitter, n: int, fold: Fold, counted: Callable[[str], str]
) -> list[str]:
    """What the changed rows of a group add, all together."""
    argument = fold.argument()
    value = emitter.text(argument) if argument is not None else ""
    match fold.kind:
        case Kind.COUNT:
            if argument is not None:
                counts = f"({value}) IS NOT NULL"
            else:
                counts = emitter.text(fold.condition) if fold.condition is not None else "TRUE"
            each = f"CASE WHEN {counts} THEN {WEIGHT} ELSE 0 END"
            return [f"{counted(each)} AS {value_name(n)}"]
        case Kind.SUM:
            return [f"{_signed_sum(value, emitter.dialect)} AS {value_name(n)}"]
        case Kind.AVG:
            return []
        case Kind.MIN | Kind.MAX:
            word = fold.kind.value.upper()
            return [
                f"{word}(CASE WHEN {WEIGHT} > 0 THEN {value} END) AS {value_name(n)}",
                f"{word}(CASE WHEN {WEIGHT} < 0 THEN {value} END) AS {gone_name(n)}",
            ]
