"""Decisions: the first rule that applies, each with its reason."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import build, definition, pin

from dynamic_tables.refresh.decide import Facts, decide

TABLE = definition("metrics", reads=("orders",))
BUILT = build("metrics", 1, {"id-orders": 1}, pins=(pin("orders", 1),))
QUIET = Facts(
    definition=TABLE,
    build=BUILT,
    pins=(pin("orders", 1),),
    moved=frozenset(),
    clock_moved=False,
    foreign_change=False,
    forced=False,
)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (QUIET, ("refresh", "no_data", "NOT_MOVED")),
        (replace(QUIET, build=None), ("initialize", "full", "FIRST_LOAD")),
        (replace(QUIET, moved=frozenset({"orders"})), ("refresh", "full", "NOT_INCREMENTAL")),
        (replace(QUIET, clock_moved=True), ("refresh", "full", "TIME_PASSED")),
        (replace(QUIET, foreign_change=True), ("refresh", "full", "FOREIGN_CHANGE")),
        (
            replace(QUIET, build=replace(BUILT, fingerprint="f/another")),
            ("refresh", "full", "VIEW_CHANGED"),
        ),
        (replace(QUIET, forced=True), ("refresh", "full", "FORCED")),
        (
            replace(QUIET, pins=(pin("orders", 1, source_id="another"),)),
            ("refresh", "full", "SOURCE_REPLACED"),
        ),
        (
            replace(QUIET, definition=replace(TABLE, fingerprint="another"), forced=True),
            ("reinitialize", "full", "DEFINITION_CHANGED"),
        ),
    ],
)
def test_decide(facts: Facts, expected: tuple[str, str, str]) -> None:
    decision = decide(facts)
    assert (decision.action, decision.strategy, decision.reason) == expected
