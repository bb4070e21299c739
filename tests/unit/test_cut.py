"""Choosing the cut: vectors of versions, compared table by table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from builders import CLOCK, build, definition, present, state
from hypothesis import given
from hypothesis import strategies as st

from dynamic_tables.definition import Definition
from dynamic_tables.errors import Refused
from dynamic_tables.graph import Graph
from dynamic_tables.model import Build, Status, TableState
from dynamic_tables.reasons import Reason
from dynamic_tables.refresh.cut import CutPlan, Present, common_states, micros, plan_cut

METRICS = definition("metrics", reads=("orders",))
STOCK = definition("stock", reads=("orders", "items"))
REPORT = definition("report", reads=("orders",), dynamic=("metrics",))
BOTH = definition("both", dynamic=("metrics", "stock"))


def plan(
    definitions: Sequence[Definition],
    wanted: Sequence[str],
    now: Present,
    builds: Mapping[str, Sequence[Build]],
    suspended: Sequence[str] = (),
) -> CutPlan:
    """`builds` are newest first; the first one stands."""
    states: dict[str, TableState] = {
        d.table_id: state(
            d,
            builds.get(d.table_id, [None])[0],
            Status.SUSPENDED if d.table_id in suspended else Status.ACTIVE,
        )
        for d in definitions
    }
    return plan_cut(Graph(definitions), states, wanted, now, lambda key: list(builds.get(key, [])))


def test_base_tables_are_pinned_at_latest() -> None:
    found = plan([METRICS], ["metrics"], present(orders=105), {})
    assert found.versions["id-orders"] == 105


def test_a_parent_outside_ties_its_base_tables() -> None:
    """The seed's rule: metrics read orders@100, so the report does too."""
    builds = {"metrics": [build("metrics", 7, {"id-orders": 100})]}
    found = plan([METRICS, REPORT], ["report"], present(orders=105), builds)
    assert found.versions["id-orders"] == 100
    assert found.outside["metrics"].version == 7


def test_together_they_move_to_latest() -> None:
    builds = {"metrics": [build("metrics", 7, {"id-orders": 100})]}
    found = plan([METRICS, REPORT], ["metrics", "report"], present(orders=105), builds)
    assert found.versions["id-orders"] == 105
    assert found.outside == {}


def test_the_newest_common_cut_of_two_parents_is_taken() -> None:
    builds = {
        "metrics": [build("metrics", 7, {"id-orders": 100})],
        "stock": [
            build("stock", 9, {"id-orders": 105, "id-items": 4}),
            build("stock", 8, {"id-orders": 100, "id-items": 4}),
            build("stock", 6, {"id-orders": 100, "id-items": 2}),
        ],
    }
    found = plan([METRICS, STOCK, BOTH], ["both"], present(orders=110, items=5), builds)
    assert {key: b.version for key, b in found.outside.items()} == {"metrics": 7, "stock": 8}
    assert found.versions["id-items"] == 4
    assert found.members == {"both"}


def test_no_table_goes_back() -> None:
    """A common cut older than the child's own is no way out: the laggard is brought along."""
    builds = {
        "metrics": [build("metrics", 7, {"id-orders": 100})],
        "stock": [
            build("stock", 9, {"id-orders": 105, "id-items": 4}),
            build("stock", 8, {"id-orders": 100, "id-items": 4}),
        ],
        "both": [build("both", 3, {"id-orders": 102, "id-items": 4})],
    }
    found = plan([METRICS, STOCK, BOTH], ["both"], present(orders=110, items=5), builds)
    assert found.members == {"both", "metrics"}
    assert found.versions["id-orders"] == 105
    assert found.outside["stock"].version == 9


def test_incomparable_parents_meet_at_their_maximum() -> None:
    """metrics is ahead on orders, stock on items: both are brought to the newest of each."""
    left = definition("left", reads=("orders", "items"))
    right = definition("right", reads=("orders", "items"))
    child = definition("child", dynamic=("left", "right"))
    builds = {
        "left": [build("left", 1, {"id-orders": 105, "id-items": 2})],
        "right": [build("right", 1, {"id-orders": 100, "id-items": 4})],
    }
    found = plan([left, right, child], ["child"], present(orders=110, items=9), builds)
    assert found.members == {"child", "left", "right"}
    assert (found.versions["id-orders"], found.versions["id-items"]) == (105, 4)


def test_a_suspended_laggard_refuses_by_name() -> None:
    builds = {
        "metrics": [build("metrics", 7, {"id-orders": 100})],
        "stock": [build("stock", 9, {"id-orders": 105, "id-items": 4})],
    }
    with pytest.raises(Refused) as caught:
        plan(
            [METRICS, STOCK, BOTH],
            ["both"],
            present(orders=110, items=5),
            builds,
            suspended=["metrics"],
        )
    assert caught.value.reason is Reason.INCOMPATIBLE_CUTS
    assert "metrics" in str(caught.value)


def test_a_parent_that_was_never_loaded_refuses() -> None:
    with pytest.raises(Refused) as caught:
        plan([METRICS, REPORT], ["report"], present(orders=1), {})
    assert caught.value.reason is Reason.NOT_INITIALIZED


def test_a_parent_built_from_a_dropped_table_lags() -> None:
    """`orders` was dropped and made again: it has another id now, and its versions begin anew."""
    builds = {"metrics": [build("metrics", 7, {"id-old-orders": 100})]}
    found = plan([METRICS, REPORT], ["report"], present(orders=2), builds)
    assert found.members == {"report", "metrics"}
    assert found.versions["id-orders"] == 2


def test_the_clock_is_one_more_base_table() -> None:
    recent = definition("recent", reads=("orders",), clock=True)
    child = definition("child", dynamic=("recent",))
    now = present(orders=5)
    builds = {"recent": [build("recent", 3, {"id-orders": 4, CLOCK: 1_000_000})]}
    found = plan([recent, child], ["child"], now, builds)
    graph = Graph([recent, child])
    assert found.cut_of(graph, now, "child").instant.timestamp() == 1
    moved = plan([recent, child], ["recent", "child"], now, builds)
    assert moved.versions[CLOCK] == micros(now.instant)


def test_a_table_that_does_not_read_the_clock_has_no_instant_in_its_cut() -> None:
    now = present(orders=5)
    found = plan([METRICS], ["metrics"], now, {})
    assert found.cut_of(Graph([METRICS]), now, "metrics").versions == {"id-orders": 5}


@st.composite
def histories(draw: st.DrawFn) -> dict[str, list[Build]]:
    """Two parents over two base tables, each with states that only move forward."""
    found = {}
    for parent in ("left", "right"):
        orders, items, states = 0, 0, []
        for version in range(1, draw(st.integers(1, 5)) + 1):
            orders += draw(st.integers(0, 2))
            items += draw(st.integers(0, 2))
            states.append(build(parent, version, {"id-orders": orders, "id-items": items}))
        found[parent] = states[::-1]
    return found


@given(histories())
def test_common_states_agree_and_none_is_newer(builds: dict[str, list[Build]]) -> None:
    """Against the definition: all pairs that agree, of which no other is newer in both parts."""
    pairs = [
        (left, right)
        for left in builds["left"]
        for right in builds["right"]
        if left.cut.versions == right.cut.versions  # both read the same two base tables
    ]
    found = common_states(["left", "right"], lambda key: builds[key])
    if not pairs:
        assert found is None
        return
    assert found is not None
    chosen = (found["left"], found["right"])
    assert chosen in pairs
    assert not any(
        left.version >= chosen[0].version
        and right.version >= chosen[1].version
        and (left, right) != chosen
        for left, right in pairs
    )
