"""How far tables are behind, also where a base table cannot be looked at."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from builders import build
from builders import definition as make_definition
from builders import state as make_state

from dynamic_tables.definition import Source
from dynamic_tables.errors import DynamicTablesError, Held
from dynamic_tables.graph import Graph
from dynamic_tables.model import Cut, Intent
from dynamic_tables.reasons import Reason
from dynamic_tables.refresh.freshness import Observer
from dynamic_tables.refresh.numbered import NumberedCommits

NOW = datetime(2026, 1, 2, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)


class LakeFault(Exception):
    """What an engine raises."""


class Lake:
    """`good` was changed by a writer whose clock is ahead; `dark` and `torn` cannot be read."""

    faults = (LakeFault,)

    def __init__(self, *, alive: bool = True) -> None:
        self._alive = alive

    def is_alive(self) -> bool:
        return self._alive

    def source_state(self, source: Source) -> Any:
        if source.name.name == "dark":
            raise LakeFault
        return SimpleNamespace(source_id=f"id-{source.name.name}", version=2)

    def changed_at(self, source: Source, since: int, to: int) -> datetime:
        if source.name.name == "torn":
            raise ValueError("no JSON")
        return LATER


def test_one_base_table_that_cannot_be_read_hides_no_other() -> None:
    names = ("good", "dark", "torn")
    definitions = {name: make_definition(f"of_{name}", reads=(name,)) for name in names}
    states = {
        made.table_id: replace(make_state(made), build=build(made.table_id, 1, {f"id-{name}": 1}))
        for name, made in definitions.items()
    }
    lake: Any = Lake()
    seen = Observer(lake, Graph(definitions.values()), NOW).look(states)
    assert seen.behind_since == dict.fromkeys(states, NOW)  # never later than now
    assert seen.cut.versions == {"id-good": 2, "id-torn": 2}


@pytest.mark.parametrize("name", ["dark", "torn"])
def test_a_dead_engine_is_no_change_of_all_tables(name: str) -> None:
    made = make_definition("t", reads=(name,))
    state = replace(make_state(made), build=build("t", 1, {f"id-{name}": 1}))
    lake: Any = Lake(alive=False)
    with pytest.raises(DynamicTablesError) as caught:
        Observer(lake, Graph([made]), NOW).look({"t": state})
    assert caught.value.reason is Reason.ENGINE_GONE


def test_what_is_known_to_be_unread_is_not_looked_up_again() -> None:
    made = make_definition("t", reads=("dark",))
    known = NOW - timedelta(hours=3)
    state = replace(make_state(made), build=build("t", 1, {}), behind_since=known)
    lake: Any = Lake()
    assert Observer(lake, Graph([made]), NOW).look({"t": state}).behind_since == {"t": known}


def test_who_lost_the_claim_takes_no_number() -> None:
    """The successor may be about to use it."""
    store = SimpleNamespace(heartbeat=lambda _claim: False)
    lake = SimpleNamespace(commit_lock=lambda _definition: nullcontext(), faults=())
    context: Any = SimpleNamespace(store=store, lake=lake, owner="me")
    claim: Any = SimpleNamespace(token=1)
    cut = Cut(versions={}, instant=NOW)
    intent = Intent(table_id="id-t", sequence=7, refresh_id="r", cut=cut, pins=(), fingerprint="f")
    area: Any = SimpleNamespace(fence=lambda *_: pytest.fail("it was committed"))
    commits = NumberedCommits(context, claim, lambda _step: None)
    with pytest.raises(Held) as caught:
        commits.fence(area, make_definition("t"), intent, base=3)
    assert caught.value.reason is Reason.TAKEN_OVER
