"""`fold`: what groups gain and lose is stored as it is, and readers add it up.

A refresh appends one row for every changed group and reads nothing that is stored. Groups whose
parts alone do not tell their values (a least value may have gone away) are recomputed, and their
rows replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from dynamic_tables.compiler.emit import Emitter, key_column
from dynamic_tables.compiler.folds import Fold, Kind
from dynamic_tables.compiler.functions import function_name
from dynamic_tables.compiler.merge import (
    GONE,
    NEEDS_ROWS,
    ODD,
    Merging,
    folding_word,
    gone_name,
    value_name,
    value_names,
)
from dynamic_tables.compiler.tree import Expression
from dynamic_tables.definition import FLOATING
from dynamic_tables.reasons import Reason

# Readers compute expressions over aggregates, under settings of their own.
PLAIN = (
    exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Paren, exp.Neg,
    exp.Add, exp.Sub, exp.Mul, exp.Div, exp.And, exp.Or, exp.Not, exp.Is, exp.Between,
    exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Coalesce, exp.Case, exp.If,
)  # fmt: skip
PLAIN_FUNCTIONS = frozenset({"abs", "coalesce", "greatest", "ifnull", "least", "nullif", "nvl"})


def _means_the_same_everywhere(expression: Expression) -> bool:
    """Whether time zones, locales and the like do not matter."""
    return all(
        isinstance(node, PLAIN) or function_name(node) in PLAIN_FUNCTIONS
        for node in expression.walk()
    )


@dataclass(frozen=True, slots=True)
class Partials:
    """How the rows of a GROUP BY are stored in parts."""

    merging: Merging

    def reason_against(self, types: Mapping[str, str]) -> Reason | None:
        """Why its rows cannot be stored in parts: nobody looks at a group when it grows."""
        for (name, _), fold in zip(
            self.merging.aggregate.aggregates, self.merging.folds, strict=True
        ):
            if fold.kind is Kind.AVG and self.merging.type_of(name, types) not in FLOATING:
                return Reason.NO_INVERSE
        if not all(_means_the_same_everywhere(e) for _, e in self.merging.outputs):
            return Reason.NO_INVERSE
        return self.merging.reason_against(types)

    @property
    def keys(self) -> tuple[str, ...]:
        """The declared names of the columns that make a group."""
        return tuple(self.merging.declared(name) for name, _ in self.merging.aggregate.keys)

    def rows(
        self, emitter: Emitter, parts: str, types: Mapping[str, str], *, none_needs: bool = False
    ) -> str:
        """SQL: the parts as rows to be stored; columns that are made of others are left out.

        Groups that need their rows are left out, too; `none_needs`: if there is one, it fails.
        """
        said = {name: key_column(n) for n, (name, _) in enumerate(self.merging.aggregate.keys)} | {
            name: value_name(n)
            for n, (name, _) in enumerate(self.merging.aggregate.aggregates)
            if self.merging.folds[n].kind is not Kind.AVG
        }
        items = [
            f"{said.get(e.name, 'NULL') if isinstance(e, exp.Column) else 'NULL'}"
            f" AS {emitter.quote(name)}"
            for name, e in self.merging.outputs
        ]
        nothing = " AND ".join(
            f"{value} IS NULL" if fold.kind in (Kind.MIN, Kind.MAX) else f"COALESCE({value}, 0) = 0"
            for n, fold in enumerate(self.merging.folds)
            for value in value_names(n, fold)
        )
        needs = self._needs(types)
        known = f"NOT ({needs})"
        if none_needs:
            known = f"CASE WHEN {needs} THEN raise_error('{NEEDS_ROWS}') ELSE TRUE END"
        return f"SELECT {', '.join(items)} FROM {parts} WHERE {known} AND NOT ({nothing})"

    def needing(self, parts: str, types: Mapping[str, str]) -> str:
        """SQL: the keys of the groups that need their rows, whatever is stored of them."""
        keys = [key_column(n) for n in range(len(self.merging.aggregate.keys))]
        needs = self._needs(types)
        return f"SELECT {', '.join(keys) or '1 AS one'} FROM {parts} WHERE {needs}"

    def _needs(self, types: Mapping[str, str]) -> str:
        found = [f"{ODD} > 0"]
        for n, (fold, (name, _)) in enumerate(
            zip(self.merging.folds, self.merging.aggregate.aggregates, strict=True)
        ):
            match fold.kind:
                case Kind.SUM:
                    if self.merging.type_of(name, types) in FLOATING:
                        found.append(f"{GONE} > 0")
                    found.append(
                        f"({value_name(n)} IS NULL AND {self.merging.number_of(fold)} <> 0)"
                    )
                case Kind.MIN | Kind.MAX:
                    found.append(f"{gone_name(n)} IS NOT NULL")
        return " OR ".join(f"COALESCE({why}, TRUE)" for why in found)

    def folded(self, emitter: Emitter, stored: str, types: Mapping[str, str]) -> str:
        """SQL: one row a group, of all rows that are stored of it."""
        keys = [key_column(n) for n in range(len(self.merging.aggregate.keys))]
        names = [emitter.quote(name) for name, _ in self.merging.aggregate.keys]
        sums = [
            f"{emitter.quote(self.merging.declared(n))} AS {k}"
            for k, (n, _) in zip(keys, self.merging.aggregate.keys, strict=True)
        ]
        for n, (fold, (name, _)) in enumerate(
            zip(self.merging.folds, self.merging.aggregate.aggregates, strict=True)
        ):
            if fold.kind is not Kind.AVG:
                one = self._one(emitter, fold, name)
                sums.append(
                    f"CAST({one} AS {self.merging.type_of(name, types)}) AS {value_name(n)}"
                )
        group = ", ".join(emitter.quote(name) for name in self.keys)
        inner = f"SELECT {', '.join(sums)} FROM (SELECT * FROM {stored}) AS q" + (
            f" GROUP BY {group}" if group else " HAVING COUNT(*) > 0"
        )
        values = [f"{key} AS {name}" for key, name in zip(keys, names, strict=True)]
        values += [
            f"{self.merging.new_value(n)} AS {emitter.quote(name)}"
            for n, (name, _) in enumerate(self.merging.aggregate.aggregates)
        ]
        items = [
            f"CAST({emitter.text(e)} AS {types[name.lower()]}) AS {emitter.quote(name)}"
            for name, e in self.merging.outputs
        ]
        alive = f" WHERE {emitter.quote(self.merging.rows_name())} > 0" if keys else ""
        return (
            f"SELECT {', '.join(items)} FROM (SELECT {', '.join(values)} FROM ({inner}) AS q) AS q"
            f"{alive}"
        )

    def _one(self, emitter: Emitter, fold: Fold, name: str) -> str:
        """One value of the parts' values; a sum that overflowed once is not known any more."""
        value = emitter.quote(self.merging.declared(name))
        one = f"{folding_word(fold)}({value})"
        if fold.kind is not Kind.SUM:
            return one
        number = emitter.quote(self.merging.declared(self.merging.number_name(fold)))
        lost = f"{value} IS NULL AND {number} <> 0"
        return f"CASE WHEN MAX(CASE WHEN {lost} THEN 1 ELSE 0 END) = 0 THEN {one} END"
