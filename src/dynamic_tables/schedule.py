"""What is due, and when: decisions over what the store knows and what was seen in the lake. Pure.

A table with a target lag is refreshed early enough that it stays within it: the time that its
refreshes take is subtracted. What is due takes the tables it reads along, so that all of them stand
at one cut. Tables without a contract are refreshed by hand, or when a table that reads them is due.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from statistics import median
from typing import Any

from dynamic_tables.graph import Graph
from dynamic_tables.model import Failure, Outcome, RefreshRecord, Status, TableState
from dynamic_tables.names import TableName
from dynamic_tables.reasons import NEVER_SUSPENDS, Reason
from dynamic_tables.settings import Settings

LONGEST_RETRY_S = 900.0  # whatever the number of failures
WATCHED = timedelta(days=1)  # the time that "within target" is about
JUDGED_BY = 5  # past refreshes, to guess how long the next one takes
FAILED_BY = 20  # past refreshes, to count failures: the longest wait is reached long before
EVER, NEVER = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
LARGEST_HEADROOM = 0.5  # of the target: a table whose refreshes take longer cannot keep it anyway

# Faults that may pass by themselves. All others are the query's own on this data: to repeat them
# on the same data would only repeat them.
MAY_PASS = frozenset(
    {
        Reason.COMMIT_FAILED,
        Reason.DISK_FULL,
        Reason.ENGINE_FAILED,
        Reason.ENGINE_GONE,
        Reason.HISTORY_GONE,
        Reason.INCOMPATIBLE_CUTS,
        Reason.INTERNAL,
        Reason.INTERRUPTED,
        Reason.LAKE_CHANGED,
        Reason.NO_PERMISSION,
        Reason.NOT_INITIALIZED,
        Reason.PARALLEL_TIMEOUT,
        Reason.SLICE_DAMAGED,
        Reason.STORE_BROKEN,
        Reason.SUBTASKS_LOST,
        Reason.UNKNOWN_SOURCE,
        Reason.UPSTREAM_FAILED,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How the loops go."""

    poll_s: float  # between two looks
    retry_s: float  # after the first failure

    @classmethod
    def of(cls, settings: Settings) -> Pace:
        return cls(poll_s=settings["poll_s"], retry_s=settings["retry_s"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """One table as the schedule sees it."""

    state: TableState
    behind_since: datetime | None  # the first change that it has not read; None: none
    versions: Mapping[str, int]  # the newest of the base tables below it
    takes_s: float = 0.0  # a refresh of it, judging by the last ones
    spared: int = 0  # failures that suspend no table, since the last refresh that was done


class Schedule:
    """One look at all tables."""

    def __init__(
        self, graph: Graph, sightings: Mapping[str, Sighting], now: datetime, pace: Pace
    ) -> None:
        self._graph, self._sightings = graph, sightings
        self._now, self._pace = now, pace
        self._taken_s: dict[str, float] = {}  # by table id, once it was asked for

    def due(self, queued: Collection[str] = ()) -> list[str]:
        """The tables to refresh now at one cut, parents first; none of those that are queued.

        Where a table cannot be refreshed (suspended, not to be tried again yet), neither can what
        reads it.
        """
        ripe = {
            key
            for key in self._sightings
            if (at := self.next_refresh(key)) is not None and at <= self._now
        }
        free = {key for key in ripe if not self._barred({key} | self._graph.ancestors([key]))}
        taken = free | self._graph.ancestors(free)
        return [key for key in self._graph.order(taken) if key not in queued]

    def may_settle(self, table_id: str) -> bool:
        """Whether what is open of the table may be completed, or else given up, now. That waits
        for no other data, as a new refresh does after a failure of the query: nobody else would
        ever give the number up."""
        seen = self._sightings.get(table_id)
        if seen is None or seen.state.status is Status.SUSPENDED:
            return False
        return seen.state.failure is None or self._retried(seen, seen.state.failure) <= self._now

    def _barred(self, table_ids: Collection[str]) -> bool:
        return any(
            key not in self._sightings
            or self._sightings[key].state.status is Status.SUSPENDED
            or self._not_before(self._sightings[key]) > self._now
            for key in table_ids
        )

    def next_refresh(self, table_id: str) -> datetime | None:
        """When the table is due by its own contract; None: nothing to read, no contract, or it
        failed and waits for other data."""
        seen = self._sightings[table_id]
        if seen.state.status is Status.SUSPENDED or seen.behind_since is None:
            return None
        wishes = [at for at in (self._by_lag(seen), self._by_change(seen)) if at is not None]
        if not wishes or (not_before := self._not_before(seen)) == NEVER:
            return None
        return max(min(wishes), not_before)

    def next_along(self, table_id: str) -> datetime | None:
        """When the table is refreshed next: by its own contract, or along with a reader."""
        readers = [table_id, *self._graph.descendants([table_id])]
        known = [at for key in readers if (at := self._with_ancestors(key)) is not None]
        return min(known, default=None)

    def _with_ancestors(self, table_id: str) -> datetime | None:
        """What a table reads is taken along, so it waits until that may be tried."""
        due = self.next_refresh(table_id)
        above = [self._sightings[key] for key in self._graph.ancestors([table_id])]
        if due is None or any(seen.state.status is Status.SUSPENDED for seen in above):
            return None
        at = max([due, *map(self._not_before, above)])
        return None if at == NEVER else at

    def _by_lag(self, seen: Sighting) -> datetime | None:
        target = seen.state.definition.options.target_lag
        if target is None or target.seconds is None or seen.behind_since is None:
            return None
        if seen.state.build is None:
            return seen.behind_since  # its first load was left to us
        takes = self._takes_s(seen.state.definition.table_id)
        headroom = min(takes + self._pace.poll_s, LARGEST_HEADROOM * target.seconds)
        return seen.behind_since + timedelta(seconds=target.seconds - headroom)

    def _takes_s(self, table_id: str) -> float:
        """A refresh with those of the tables that it has to wait for."""
        if table_id not in self._taken_s:
            above = [self._takes_s(key) for key in self._graph.parents(table_id)]
            seen = self._sightings.get(table_id)
            self._taken_s[table_id] = (seen.takes_s if seen else 0.0) + max(above, default=0.0)
        return self._taken_s[table_id]

    def _by_change(self, seen: Sighting) -> datetime | None:
        options = seen.state.definition.options
        if not options.trigger_on_change:
            return None
        pause, last = options.trigger_at_most_every, seen.state.refreshed_at
        if pause is None or last is None:
            return seen.behind_since
        return last + timedelta(seconds=pause)

    def _not_before(self, seen: Sighting) -> datetime:
        """After a failure: the retry of what may pass, else the next change of the data."""
        failure = seen.state.failure
        if failure is None:
            return EVER
        if failure.reason in MAY_PASS or failure.versions is None:
            return self._retried(seen, failure)
        same = dict(seen.versions) == {key: failure.versions.get(key) for key in seen.versions}
        return NEVER if same else failure.at

    def _retried(self, seen: Sighting, failure: Failure) -> datetime:
        """When the back-off has passed."""
        failures = seen.spared if failure.reason in NEVER_SUSPENDS else seen.state.failures
        return failure.at + timedelta(seconds=retry_after(failures, self._pace))


def retry_after(failures: int, pace: Pace) -> float:
    """Seconds until the next attempt.

    >>> [retry_after(n, Pace(poll_s=5, retry_s=10)) for n in (0, 1, 2, 3, 20)]
    [10, 10, 20, 40, 900.0]
    """
    return min(pace.retry_s * 2 ** max(failures - 1, 0), LONGEST_RETRY_S)


def looked_back(state: TableState, behind_since: datetime | None) -> int:
    """How many past refreshes tell what is to be known of a table."""
    if state.failure is not None and state.failure.reason in NEVER_SUSPENDS:
        return FAILED_BY
    return JUDGED_BY if behind_since else 0


def expected_s(history: Sequence[RefreshRecord]) -> float:
    """How long a refresh takes, judging by those that did something."""
    done = [record.duration_ms / 1000 for record in history if record.outcome is Outcome.DONE]
    return median(done) if done else 0.0


def spared(history: Iterable[RefreshRecord]) -> int:
    """Failures that suspend no table, since the last refresh that was done."""
    failing = takewhile(lambda record: record.outcome is not Outcome.DONE, history)
    return sum(record.reason in NEVER_SUSPENDS for record in failing)


def target_s(graph: Graph, table_id: str) -> float | None:
    """The lag that is asked for; for DOWNSTREAM the strictest of the tables that read it."""
    target = graph[table_id].options.target_lag
    if target is None or not target.is_downstream:
        return None if target is None else target.seconds
    readers = [graph[key].options.target_lag for key in graph.descendants([table_id])]
    asked = [lag.seconds for lag in readers if lag is not None and lag.seconds is not None]
    return min(asked, default=None)


def unconsumed(graph: Graph) -> list[str]:
    """DOWNSTREAM tables that no table with a contract reads: nothing ever refreshes them."""
    found = []
    for table_id in graph.order(graph):
        target = graph[table_id].options.target_lag
        readers = [graph[key].options for key in graph.descendants([table_id])]
        asked = any(
            options.trigger_on_change
            or (options.target_lag is not None and not options.target_lag.is_downstream)
            for options in readers
        )
        if target is not None and target.is_downstream and not asked:
            found.append(table_id)
    return found


Span = tuple[datetime, datetime]


def share_within(late: Iterable[Span], since: datetime, now: datetime) -> float:
    """The share of a time in which a table was within its target.

    `late`: when it was not, in the order of the ends. A refresh that takes long leaves its table
    late already, so these times may overlap; and the first may have begun before.

    >>> day = [datetime(2025, 1, 1, hour) for hour in range(24)]
    >>> share_within([(day[2], day[4]), (day[3], day[5])], since=day[0], now=day[10])
    0.7
    >>> share_within([(day[0], day[11])], since=day[10], now=day[20])
    0.9
    """
    seconds, counted = 0.0, since
    for begin, end in late:
        seconds += max((end - max(begin, counted)).total_seconds(), 0.0)
        counted = max(counted, end)
    window_s = (now - since).total_seconds()
    return max(1.0 - seconds / window_s, 0.0) if window_s > 0 else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How fresh a table is, as far as the last look of a schedule tells."""

    table: TableName
    target_s: float | None  # None: no contract
    behind_s: float | None  # at the last look, and since; None: nobody has looked yet
    seen_s: float | None  # how long ago somebody looked: a schedule, or a refresh
    within: float | None  # share of the time within the target; None: no target, or not known
    next_refresh: datetime | None  # None: nothing to read, or nothing asks for it
    is_due: bool = False  # by the store's clock

    def as_json(self) -> dict[str, Any]:
        return {
            "target_s": self.target_s,
            "behind_s": self.behind_s,
            "seen_s": self.seen_s,
            "within": self.within,
            "next_refresh": self.next_refresh.isoformat() if self.next_refresh else None,
        }


def last_seen(state: TableState, past: Sequence[RefreshRecord]) -> Sighting:
    """A table as the last look left it; whether its sources have changed since, nobody knows."""
    return Sighting(
        state=state,
        behind_since=state.behind_since,
        versions=state.failure.versions or {} if state.failure else {},
        takes_s=expected_s(past),
        spared=spared(past),
    )


def lag_of(
    graph: Graph, state: TableState, schedule: Schedule, late: Sequence[Span], now: datetime
) -> Lag:
    """The lag of one table now; `late`: when refreshes of the last day found it beyond its
    target."""
    table_id = state.definition.table_id
    target, since = target_s(graph, table_id), state.behind_since
    behind, seen, within = None, None, None
    if state.seen_at is not None:
        seen = max((now - state.seen_at).total_seconds(), 0.0)
        behind = 0.0 if since is None else max((now - since).total_seconds(), 0.0)
    if target is not None and state.seen_at is not None:
        if since is not None:
            late = [*late, (since + timedelta(seconds=target), now)]
        begun = max(state.created_at, now - WATCHED)
        until = now if since is not None else state.seen_at  # of the time after it nobody knows
        within = share_within(late, begun, until) if until >= begun else None
    next_refresh = schedule.next_along(table_id)
    return Lag(
        table=state.definition.name,
        target_s=target,
        behind_s=behind,
        seen_s=seen,
        within=within,
        next_refresh=next_refresh,
        is_due=next_refresh is not None and next_refresh <= now,
    )
