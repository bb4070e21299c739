"""What a lake knows about the affected keys reaches the scans, beside the semi-join."""

from __future__ import annotations

from typing import Any

from dynamic_tables.compiler.plan import DeltaPlan, Situation, plan_query


class Leaves:
    def rows(self, source: str, side: Any) -> str:
        return f"{source}_{side}"

    def changes(self, source: str) -> str:
        return f"{source}_changes"

    def clock(self, function: Any, side: Any) -> Any:
        return function

    def near(self, keys: str, index: int, column: str) -> str:
        return f"{column} BETWEEN 1 AND 2 AND " if keys == "few" else ""


def rows(keys: str) -> str:
    query = "SELECT a, row_number() OVER (PARTITION BY a ORDER BY b) AS n FROM orders"
    plan = plan_query(query, {"orders": ("a", "b")}, columns=("a", "n"), dialect="spark")
    assert isinstance(plan, DeltaPlan)
    found = plan.replacement(Situation(leaves=Leaves(), moved=frozenset({"orders"})), keys, ())
    assert found is not None
    return found.rows


def test_a_condition_stands_beside_the_semi_join() -> None:
    assert " BETWEEN 1 AND 2 AND EXISTS (SELECT 1 FROM few AS k" in rows("few")


def test_nothing_is_said_where_nothing_is_known() -> None:
    assert "BETWEEN" not in rows("many")
