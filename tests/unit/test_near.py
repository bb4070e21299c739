"""What a lake knows about the affected keys reaches the scans, beside the semi-join."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from dynamic_tables.compiler.plan import DeltaPlan, Situation, plan_query
from dynamic_tables.lake.deltas import SparkLeaves


class Leaves:
    def rows(self, source: str, side: Any, within: Any = ()) -> str:
        return f"{source}_{side}"

    def changes(self, source: str) -> str:
        return f"{source}_changes"

    def clock(self, function: Any, side: Any) -> Any:
        return function

    def near(self, source: str, side: Any, within: Any, column: str) -> str:
        return f"{column} BETWEEN 1 AND 2 AND " if within.keys == "few" else ""


def rows(keys: str) -> str:
    query = "SELECT a, row_number() OVER (PARTITION BY a ORDER BY b) AS n FROM orders"
    plan = plan_query(query, {"orders": ("a", "b")}, columns=("a", "n"), dialect="spark")
    assert isinstance(plan, DeltaPlan)
    return plan.rows_of(Situation(leaves=Leaves(), moved=frozenset({"orders"})), keys, ())


def test_a_condition_stands_beside_the_semi_join() -> None:
    assert " BETWEEN 1 AND 2 AND EXISTS (SELECT 1 FROM few AS k" in rows("few")


def test_nothing_is_said_where_nothing_is_known() -> None:
    assert "BETWEEN" not in rows("many")


class Frame:
    """Two keys; Python cannot hold their timestamps, nor what `far` is asked for."""

    def __init__(self, kinds: dict[str, str], *, far: bool = False) -> None:
        self.schema = {
            name: SimpleNamespace(dataType=SimpleNamespace(simpleString=lambda kind=kind: kind))
            for name, kind in kinds.items()
        }
        self._far = far

    def select(self, *names: str) -> Frame:
        kinds = {name: self.schema[name].dataType.simpleString() for name in names}
        return Frame(kinds, far=self._far or "timestamp" in kinds.values())

    def collect(self) -> list[tuple[int, ...]]:
        if self._far:
            raise ValueError("year 10000 is out of range")
        return [tuple(range(len(self.schema))), tuple(range(len(self.schema)))]


def learned(frame: Frame) -> dict[tuple[str, int], Any]:
    leaves: Any = SimpleNamespace(_known={})
    held: Any = SimpleNamespace(is_local=True, frame=frame)
    SparkLeaves.learn(leaves, "keys", held, list(frame.schema))
    return leaves._known


def test_only_keys_that_literals_can_name_are_brought_to_python() -> None:
    found = learned(Frame({"at": "timestamp", "a": "int", "x": "double", "b": "string"}))
    assert found == {("keys", 1): (0, 0), ("keys", 3): (1, 1)}


def test_dates_that_python_does_not_have_teach_nothing() -> None:
    assert learned(Frame({"day": "date"}, far=True)) == {}
