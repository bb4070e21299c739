"""Order, ancestors, children, cycles."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import definition, name

from dynamic_tables.definition import Source
from dynamic_tables.errors import InvalidInput
from dynamic_tables.graph import Graph
from dynamic_tables.reasons import Reason

TOP = definition("top", reads=("orders",))
LEFT = definition("left", dynamic=("top",))
RIGHT = definition("right", reads=("items",), dynamic=("top",))
BOTTOM = definition("bottom", dynamic=("left", "right"))
DIAMOND = Graph([BOTTOM, RIGHT, LEFT, TOP])


def test_parents_come_before_children() -> None:
    assert DIAMOND.order(DIAMOND) == ["top", "left", "right", "bottom"]
    assert DIAMOND.order(["right", "left"]) == ["left", "right"]


def test_reach() -> None:
    assert DIAMOND.ancestors(["bottom"]) == {"left", "right", "top"}
    assert DIAMOND.descendants(["top"]) == {"left", "right", "bottom"}
    assert DIAMOND.children("top") == ("right", "left")


def test_base_tables_below_a_table() -> None:
    assert set(DIAMOND.bases("bottom")) == {name("orders").key, name("items").key}
    assert set(DIAMOND.bases("left")) == {name("orders").key}


def test_a_cycle_is_refused_and_told() -> None:
    looped = replace(TOP, sources=(Source(name=name("bottom"), columns=(), dynamic_id="bottom"),))
    with pytest.raises(InvalidInput) as caught:
        DIAMOND.check_no_cycle(looped)
    assert caught.value.reason is Reason.CYCLE
    assert "default.top" in str(caught.value)
    assert "default.bottom" in str(caught.value)
