"""What is due, and when."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from builders import build
from builders import definition as make_definition

from dynamic_tables.graph import Graph
from dynamic_tables.model import Failure, Status, TableState
from dynamic_tables.options import Options
from dynamic_tables.reasons import Reason
from dynamic_tables.schedule import Pace, Schedule, Sighting, lag_of, target_s, unconsumed

NOW = datetime(2025, 1, 1, 12, tzinfo=UTC)
PACE = Pace(poll_s=5, retry_s=10)
VERSIONS = {"id-orders": 2}  # the newest


def seconds(n: float) -> timedelta:
    return timedelta(seconds=n)


class World:
    """Tables by name; `behind` seconds since the first change that a table has not read."""

    def __init__(self) -> None:
        self.definitions: dict[str, Any] = {}
        self.sightings: dict[str, Sighting] = {}

    def table(
        self,
        name: str,
        *,
        dynamic: tuple[str, ...] = (),
        behind: float | None = None,
        takes_s: float = 0.0,
        loaded: bool = True,
        status: Status = Status.ACTIVE,
        failure: Failure | None = None,
        failures: int = 0,
        refreshed: float | None = None,
        **options: object,
    ) -> None:
        plain = make_definition(name, reads=("orders",), dynamic=dynamic)
        self.definitions[name] = replace(plain, options=Options.from_kwargs(**options))
        state = TableState(
            definition=self.definitions[name],
            status=status,
            failures=failures,
            build=build(name, 1, {"id-orders": 1}) if loaded else None,
            created_at=NOW,
            refreshed_at=None if refreshed is None else NOW - seconds(refreshed),
            failure=failure,
        )
        self.sightings[name] = Sighting(
            state=state,
            behind_since=None if behind is None else NOW - seconds(behind),
            versions=VERSIONS,
            takes_s=takes_s,
        )

    @property
    def graph(self) -> Graph:
        return Graph(self.definitions.values())

    @property
    def schedule(self) -> Schedule:
        return Schedule(self.graph, self.sightings, NOW, PACE)

    def due(self, *queued: str) -> list[str]:
        return self.schedule.due(queued)


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize(
    ("behind", "takes_s", "due"),
    [
        (None, 0, False),
        (90, 0, False),
        (95, 0, True),
        (60, 40, True),
        (40, 500, False),
        (50, 500, True),
    ],
)
def test_a_lag_is_kept_by_beginning_early_enough(
    world: World, behind: float | None, takes_s: float, due: bool
) -> None:
    world.table("t", target_lag="100 seconds", behind=behind, takes_s=takes_s)
    assert world.due() == ["t"] * due


def test_tables_without_a_contract_are_left_to_people(world: World) -> None:
    world.table("by_hand", behind=10_000)
    world.table("downstream", behind=10_000, target_lag="DOWNSTREAM")
    assert world.due() == []
    assert [world.schedule.next_refresh(name) for name in world.definitions] == [None, None]


def test_the_next_refresh_may_be_that_of_a_reader(world: World) -> None:
    world.table("root")
    world.table("middle", dynamic=("root",), target_lag="DOWNSTREAM", behind=10, takes_s=20)
    world.table("leaf", dynamic=("middle",), behind=10, target_lag="100 seconds", takes_s=5)
    world.table("other", dynamic=("root",), behind=10, target_lag="1 hour")
    world.table("idle", dynamic=("leaf",), target_lag="DOWNSTREAM")
    at = {name: world.schedule.next_along(name) for name in world.definitions}
    early = NOW + seconds(100 - 10 - 20 - 5 - PACE.poll_s)  # until leaf has waited for middle
    late = NOW + seconds(3600 - 10 - PACE.poll_s)
    assert at == {"root": early, "middle": early, "leaf": early, "other": late, "idle": None}


def test_the_next_refresh_waits_for_what_may_not_be_tried_yet(world: World) -> None:
    failed = Failure(at=NOW, reason=Reason.DISK_FULL, versions=None)
    world.table("root", failure=failed, failures=1)
    world.table("leaf", dynamic=("root",), behind=100, target_lag="1 minute")
    assert world.schedule.next_along("leaf") == NOW + seconds(PACE.retry_s)
    world.table("root", failure=replace(failed, reason=Reason.QUERY_FAILED, versions=VERSIONS))
    assert world.schedule.next_along("leaf") is None  # not on the same data
    world.table("root", status=Status.SUSPENDED)
    assert world.schedule.next_along("leaf") is None
    assert world.schedule.next_along("root") is None


def test_what_is_open_waits_for_its_back_off_and_for_no_other_data(world: World) -> None:
    failed = Failure(at=NOW - seconds(20), reason=Reason.QUERY_FAILED, versions=VERSIONS)
    world.table("once", failure=failed, failures=1, behind=100, target_lag="1 minute")
    world.table("often", failure=failed, failures=3)
    world.table("suspended", status=Status.SUSPENDED)
    world.table("well")
    assert world.due() == []
    settled = [name for name in world.definitions if world.schedule.may_settle(name)]
    assert settled == ["once", "well"]
    assert not world.schedule.may_settle("dropped")


@pytest.mark.parametrize(
    ("late", "behind", "within"),
    [
        ([], None, 1.0),
        ([], 60 + 6 * 3600, 0.75),
        ([(72, 23)], None, 1 - 1 / 24),  # three days without workers, until 23 hours ago
        ([(8, 2), (4, 1)], None, 1 - 7 / 24),  # the second one found what the first one left
        ([(8, 2)], 60 + 4 * 3600, 1 - 8 / 24),
        ([(72, 0)], 60 + 50 * 3600, 0.0),
    ],
)
def test_the_share_of_the_last_day_within_the_target(
    world: World, late: list[tuple[int, int]], behind: float | None, within: float
) -> None:
    """`late`: from and until so many hours ago."""
    world.table("t", target_lag="1 minute", behind=behind)
    seen = world.sightings["t"]
    state = replace(
        seen.state, created_at=NOW - timedelta(days=9), seen_at=NOW, behind_since=seen.behind_since
    )
    spans = [(NOW - timedelta(hours=begin), NOW - timedelta(hours=end)) for begin, end in late]
    lag = lag_of(world.graph, state, world.schedule, spans, NOW)
    assert lag.within == pytest.approx(within)
    young = replace(state, created_at=NOW - timedelta(hours=12), behind_since=None)
    since = [(NOW - timedelta(hours=6), NOW - timedelta(hours=3))]
    assert lag_of(world.graph, young, world.schedule, since, NOW).within == 0.75


def test_of_the_time_after_the_last_look_nobody_knows(world: World) -> None:
    world.table("t", target_lag="1 minute")
    begun, looked = NOW - timedelta(days=9), NOW - timedelta(hours=18)
    state = replace(world.sightings["t"].state, created_at=begun, seen_at=looked, behind_since=None)
    late = [(NOW - timedelta(hours=21), NOW - timedelta(hours=18))]
    assert lag_of(world.graph, state, world.schedule, late, NOW).within == 0.5
    long_ago = replace(state, seen_at=NOW - timedelta(hours=25))
    assert lag_of(world.graph, long_ago, world.schedule, [], NOW).within is None


def test_before_the_first_look_nothing_is_known(world: World) -> None:
    world.table("t", target_lag="1 minute")
    state = replace(world.sightings["t"].state, created_at=NOW - timedelta(days=9))
    lag = lag_of(world.graph, state, world.schedule, [], NOW)
    assert (lag.target_s, lag.behind_s, lag.seen_s, lag.within) == (60, None, None, None)


def test_what_is_due_takes_its_ancestors_along(world: World) -> None:
    world.table("root")
    world.table("middle", dynamic=("root",), target_lag="DOWNSTREAM")
    world.table("leaf", dynamic=("middle",), behind=100, target_lag="1 minute")
    world.table("other", dynamic=("root",), behind=100, target_lag="1 hour")
    assert world.due() == ["root", "middle", "leaf"]
    assert world.due("middle") == ["root", "leaf"]
    assert target_s(world.graph, "middle") == 60
    assert target_s(world.graph, "root") is None


@pytest.mark.parametrize(("refreshed", "due"), [(None, True), (59, False), (60, True)])
def test_on_change_at_most_so_often(world: World, refreshed: float | None, due: bool) -> None:
    world.table(
        "t",
        behind=1,
        refreshed=refreshed,
        trigger_on_change=True,
        trigger_at_most_every="1 minute",
    )
    world.table("at_once", behind=0, refreshed=0, trigger_on_change=True)
    assert ("t" in world.due()) is due
    assert "at_once" in world.due()


def test_the_first_load_is_due_at_once(world: World) -> None:
    world.table("t", behind=0, loaded=False, target_lag="1 day")
    assert world.due() == ["t"]


@pytest.mark.parametrize(
    ("failures", "ago", "due"), [(1, 9, False), (1, 10, True), (3, 39, False), (3, 40, True)]
)
def test_faults_of_the_surroundings_are_tried_again(
    world: World, failures: int, ago: float, due: bool
) -> None:
    failure = Failure(at=NOW - seconds(ago), reason=Reason.ENGINE_FAILED, versions=None)
    world.table("t", behind=100, target_lag="1 minute", failure=failure, failures=failures)
    assert world.due() == ["t"] * due


@pytest.mark.parametrize(("version", "due"), [(2, False), (1, True)])
def test_faults_of_the_query_wait_for_other_data(world: World, version: int, due: bool) -> None:
    failure = Failure(
        at=NOW - seconds(9_999), reason=Reason.QUERY_FAILED, versions={"id-orders": version}
    )
    world.table("t", behind=100, target_lag="1 minute", failure=failure, failures=1)
    world.table("child", dynamic=("t",), behind=100, target_lag="1 minute")
    assert world.due() == ["t", "child"] * due


def test_suspended_tables_bar_what_reads_them(world: World) -> None:
    world.table("t", behind=100, target_lag="1 minute", status=Status.SUSPENDED)
    world.table("child", dynamic=("t",), behind=100, target_lag="1 minute")
    assert world.due() == []


def test_downstream_that_nothing_consumes(world: World) -> None:
    world.table("used", target_lag="DOWNSTREAM")
    world.table("idle", target_lag="DOWNSTREAM")
    world.table("by_hand", dynamic=("idle",))
    world.table("reader", dynamic=("used",), trigger_on_change=True)
    assert unconsumed(world.graph) == ["idle"]


def test_the_tables_above_take_their_time_too(world: World) -> None:
    """`top` waits for the slower of its parents: 100 - (20 + 10 + 5) seconds are left."""
    world.table("slow", behind=64, takes_s=20)
    world.table("quick", behind=64, takes_s=1)
    world.table("top", dynamic=("slow", "quick"), behind=64, takes_s=10, target_lag="100 seconds")
    assert world.due() == []
    assert world.schedule.next_refresh("top") == NOW + seconds(1)
