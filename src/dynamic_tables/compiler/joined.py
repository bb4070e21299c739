"""`merge` on Spark: each group is computed beside its stored row, in one join.

Spark does this faster than it groups, and the stored table is read once. DuckDB does not need it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from dynamic_tables.compiler.emit import Emitter, key_column
from dynamic_tables.compiler.folds import Fold, Kind
from dynamic_tables.compiler.merge import (
    GONE,
    NEEDS_ROWS,
    ODD,
    Merging,
    gone_name,
    value_name,
)
from dynamic_tables.compiler.tree import Expression

OLD, COMES = "_dt_old", "_dt_comes"
LONGEST_DECIMAL = "decimal(38"  # Spark cannot add two of them without losing a digit: SUM can


@dataclass(frozen=True, slots=True)
class Joined:
    """Stored rows and parts, group by group."""

    merging: Merging

    def is_possible(self, dialect: str, types: Mapping[str, str]) -> bool:
        merging = self.merging
        sums = [
            merging.type_of(name, types)
            for (name, _), fold in zip(merging.aggregate.aggregates, merging.folds, strict=True)
            if fold.kind is Kind.SUM
        ]
        exact = not any(kind.startswith(LONGEST_DECIMAL) for kind in sums)
        return dialect == "spark" and bool(merging.aggregate.keys) and exact

    def groups(
        self,
        emitter: Emitter,
        parts: str,
        stored: str,
        types: Mapping[str, str],
        *,
        only_stored: bool = False,
    ) -> str:
        """SQL: the new aggregates of the changed groups, and which of them need their rows; beside
        each its stored row, a struct. `only_stored`: of groups that have one."""
        aggregate = self.merging.aggregate
        keys = [key_column(n) for n in range(len(aggregate.keys))]
        same = " AND ".join(
            f"p.{key} <=> q.{emitter.quote(self.merging.declared(name))}"
            for key, (name, _) in zip(keys, aggregate.keys, strict=True)
        )
        items = [  # of keys that are equal and not the same, the stored one stays
            f"COALESCE(q.{emitter.quote(self.merging.declared(name))}, p.{key}) AS {key}"
            for key, (name, _) in zip(keys, aggregate.keys, strict=True)
        ]
        for n, fold in enumerate(self.merging.folds):
            items += self._added(emitter, n, fold, types)
        lost = f"COALESCE({self.merging.lost(emitter)}, 0)"
        items += [f"p.{GONE} AS {GONE}", f"p.{ODD} + {lost} AS {ODD}", f"STRUCT(q.*) AS {OLD}"]
        join = "JOIN" if only_stored else "LEFT JOIN"
        inner = f"SELECT {', '.join(items)} FROM {parts} AS p {join} {stored} AS q ON {same}"
        return self.merging.new_values(emitter, inner, types, OLD)

    def _added(
        self, emitter: Emitter, n: int, fold: Fold, types: Mapping[str, str]
    ) -> tuple[str, ...]:
        """What a group had and what it gains."""
        if fold.kind is Kind.AVG:  # is made of its companions
            return ()
        name, _ = self.merging.aggregate.aggregates[n]
        new, old = f"p.{value_name(n)}", f"q.{emitter.quote(self.merging.declared(name))}"
        if fold.kind in (Kind.MIN, Kind.MAX):
            word = "LEAST" if fold.kind is Kind.MIN else "GREATEST"
            gone = gone_name(n)
            return f"{word}({new}, {old}) AS {value_name(n)}", f"p.{gone} AS {gone}"
        total = f"CAST({new} + {old} AS {self.merging.type_of(name, types)})"
        both = f"WHEN {new} IS NULL THEN {old} WHEN {old} IS NULL THEN {new} ELSE {total}"
        return (f"CASE {both} END AS {value_name(n)}",)

    def rows(self, emitter: Emitter, groups: str) -> str:
        """SQL: of groups whose values are known the new row, the old one, and whether the new one
        is there. Of a group that is gone nothing is computed: it has no rows to divide by."""
        alive = f"{emitter.quote(self.merging.rows_name())} > 0"

        def item(name: str, output: Expression) -> str:
            text = emitter.text(output)
            if not isinstance(output, exp.Column):
                text = f"CASE WHEN {alive} THEN {text} END"
            return f"{text} AS {emitter.quote(name)}"

        items = [item(name, output) for name, output in self.merging.outputs]
        items += [OLD, f"{alive} AS {COMES}"]
        return f"SELECT {', '.join(items)} FROM {groups} WHERE NOT {NEEDS_ROWS}"
