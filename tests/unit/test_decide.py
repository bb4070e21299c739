"""Decisions: the first rule that applies, each with its reason."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from builders import build, definition, pin

from dynamic_tables.compiler.plan import plan_query
from dynamic_tables.compiler.refused import unfaithful
from dynamic_tables.definition import Column
from dynamic_tables.model import Strategy
from dynamic_tables.refresh.decide import Facts, decide
from dynamic_tables.refresh.facts import gather

TABLE = replace(
    definition("metrics", reads=("orders",)),
    columns=(Column(name="a", type="INT"), Column(name="n", type="BIGINT")),
)
BUILT = build("metrics", 1, {"id-orders": 1}, pins=(pin("orders", 1),))
PLAN = plan_query(
    "SELECT a, count(*) AS n FROM orders GROUP BY a",
    {"orders": ("a",)},
    columns=("a", "n"),
    dialect="duckdb",
)
MOVED = frozenset({"orders"})
QUIET = Facts(
    definition=TABLE,
    build=BUILT,
    pins=(pin("orders", 1),),
    moved=frozenset(),
    clock_moved=False,
    foreign_change=False,
    moves=None,
    plan=lambda: PLAN,
    sizes=lambda: None,
    rows_only_come=lambda: None,
    history=tuple,
    forced=None,
)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (QUIET, ("refresh", "no_data", "NOT_MOVED")),
        (replace(QUIET, build=None), ("initialize", "full", "FIRST_LOAD")),
        (replace(QUIET, moved=MOVED), ("refresh", "merge", "CHANGED")),
        (replace(QUIET, moved=MOVED, forced=Strategy.KEYS), ("refresh", "keys", "CHANGED")),
        (replace(QUIET, moved=MOVED, forced=Strategy.ROWS), ("refresh", "rows", "CHANGED")),
        (
            replace(QUIET, moved=MOVED, definition=replace(TABLE, deterministic=False)),
            ("refresh", "full", "NON_DETERMINISTIC"),
        ),
        (
            replace(QUIET, moved=MOVED, plan=lambda: unfaithful("PIVOT")),
            ("refresh", "full", "SQL_NOT_FAITHFUL"),
        ),
        (replace(QUIET, clock_moved=True), ("refresh", "merge", "TIME_PASSED")),
        (replace(QUIET, foreign_change=True), ("refresh", "full", "FOREIGN_CHANGE")),
        (
            replace(QUIET, build=replace(BUILT, fingerprint="f/another")),
            ("refresh", "full", "VIEW_CHANGED"),
        ),
        (replace(QUIET, forced=Strategy.FULL), ("refresh", "full", "FORCED")),
        (
            replace(QUIET, pins=(pin("orders", 1, source_id="another"),)),
            ("refresh", "full", "SOURCE_REPLACED"),
        ),
        (
            replace(QUIET, definition=replace(TABLE, fingerprint="another"), forced=Strategy.FULL),
            ("reinitialize", "full", "DEFINITION_CHANGED"),
        ),
    ],
)
def test_decide(facts: Facts, expected: tuple[str, str, str]) -> None:
    decision = decide(facts)
    assert (decision.action, decision.strategy, decision.reason) == expected


def test_the_plan_is_not_made_when_nothing_moved() -> None:
    """Making it costs an analysis by the engine, which NOT_MOVED must not pay."""

    def never() -> NoReturn:
        raise AssertionError

    assert decide(replace(QUIET, plan=never)).reason == "NOT_MOVED"


def test_sizes_are_looked_up_once() -> None:
    """Every rule that weighs asks for them."""
    asked: list[object] = []
    lake: Any = SimpleNamespace(sizes=lambda *given: asked.append(given), plan_of=lambda _: PLAN)
    standing: Any = SimpleNamespace(version=0)
    facts = gather(
        lake, TABLE, build=None, standing=standing, cut=BUILT.cut, pins=(pin("orders", 1),)
    )
    assert not asked
    assert facts.sizes() is facts.sizes()
    assert len(asked) == 1
