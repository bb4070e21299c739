"""Choosing the cut: one version for every base table of a whole set of tables.

Tables of the set are free to move; dynamic tables that they read but that are not in the set stand
where they are, and tie the base tables below them to the versions they were built from. Base tables
that nothing ties are pinned at latest.

The clock is treated as one more base table: its version is the instant in microseconds, and only
tables whose rows depend on the time have it in their cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from dynamic_tables.errors import Refused
from dynamic_tables.graph import Graph
from dynamic_tables.lake.base import SourceState
from dynamic_tables.model import Build, Cut, TableState
from dynamic_tables.reasons import Reason

CLOCK = "@clock"
Builds = Callable[[str], Sequence[Build]]  # recorded states of a table, newest first


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """What exists when a refresh begins: every base table's state, captured once, and the
    instant."""

    bases: Mapping[str, SourceState]  # by name key
    instant: datetime

    @property
    def versions(self) -> dict[str, int]:
        """The newest version of each base table, by Delta's table id."""
        newest = {state.source_id: state.version for state in self.bases.values()}
        return {**newest, CLOCK: micros(self.instant)}


@dataclass(frozen=True, slots=True, kw_only=True)
class CutPlan:
    """The cut of one refresh, and where tables outside of the set are read."""

    versions: Mapping[str, int]  # of every base table below the set, by id; CLOCK too
    members: frozenset[str]  # the tables to refresh: those asked for and lagging parents
    outside: Mapping[str, Build]  # the chosen state of each parent that is not a member

    def cut_of(self, graph: Graph, present: Present, table_id: str) -> Cut:
        """The part of the cut that lies below one table."""
        ids = ids_below(graph, present, table_id)
        versions = {key: self.versions[key] for key in sorted(ids)}
        instant = from_micros(self.versions[CLOCK])
        return Cut(versions=versions, instant=instant)


def plan_cut(
    graph: Graph,
    states: Mapping[str, TableState],
    wanted: Iterable[str],
    present: Present,
    builds: Builds,
) -> CutPlan:
    """The newest cut at which the wanted tables fit the tables they read."""
    members = frozenset(wanted)
    outside = _outside(graph, members)
    _check_loaded(graph, states, outside)
    chosen = _compatible(graph, states, members, outside, present, builds)
    if chosen is None:
        return _with_lagging(graph, states, members, outside, present, builds)
    return CutPlan(versions=_merged(present, chosen.values()), members=members, outside=chosen)


def ids_below(graph: Graph, present: Present, table_id: str) -> set[str]:
    """Delta's ids of the base tables below a table; the clock, if it matters."""
    ids = {present.bases[key].source_id for key in graph.bases(table_id)}
    return ids | {CLOCK} if graph.reads_clock(table_id) else ids


def _outside(graph: Graph, members: Iterable[str]) -> list[str]:
    inside = set(members)
    return graph.order({parent for member in inside for parent in graph.parents(member)} - inside)


def _check_loaded(graph: Graph, states: Mapping[str, TableState], parents: Iterable[str]) -> None:
    for parent in parents:
        if states[parent].build is None:
            name = graph[parent].name
            raise Refused(
                f"it reads {name}, which has not been loaded yet",
                reason=Reason.NOT_INITIALIZED,
                about=str(name),
                hint=f"REFRESH DYNAMIC TABLE {name} first, or refresh WITH UPSTREAM",
            )


def _merged(present: Present, builds: Iterable[Build]) -> dict[str, int]:
    versions = present.versions
    for build in builds:
        versions.update(build.cut.versions)
    return versions


def _compatible(
    graph: Graph,
    states: Mapping[str, TableState],
    members: Iterable[str],
    outside: Sequence[str],
    present: Present,
    builds: Builds,
) -> dict[str, Build] | None:
    """One state per outside parent such that all agree; the newest such set, or none.

    States are tried newest first and the first complete set is taken: no other set is newer in
    every part.
    """
    floor = _floor(states, members)
    candidates = [
        [
            build
            for build in builds(parent)
            if _is_current(graph, present, parent, build) and _not_below(floor, build.cut)
        ]
        for parent in outside
    ]

    return _search(outside, candidates)


def _search(
    table_ids: Sequence[str], candidates: Sequence[Sequence[Build]]
) -> dict[str, Build] | None:
    """One candidate for each table such that all agree; earlier candidates are preferred."""

    found: dict[str, Build] = {}
    for group in _groups(candidates):
        chosen = _search_group([candidates[index] for index in group], {})
        if chosen is None:
            return None
        found.update(zip((table_ids[index] for index in group), chosen, strict=True))
    return found


def _groups(candidates: Sequence[Sequence[Build]]) -> list[list[int]]:
    """Tables that share a base table, directly or through others, must be searched together."""
    groups: list[tuple[set[str], list[int]]] = []
    for index, builds in enumerate(candidates):
        keys = {key for build in builds for key in build.cut.versions}
        members = [index]
        for group in [g for g in groups if g[0] & keys]:
            groups.remove(group)
            keys |= group[0]
            members = sorted([*group[1], *members])
        groups.append((keys, members))
    return [members for _, members in groups]


def _search_group(candidates: Sequence[Sequence[Build]], cut: dict[str, int]) -> list[Build] | None:
    if not candidates:
        return []
    for build in candidates[0]:
        if _agrees(cut, build.cut.versions):
            rest = _search_group(candidates[1:], {**cut, **build.cut.versions})
            if rest is not None:
                return [build, *rest]
    return None


def _floor(states: Mapping[str, TableState], members: Iterable[str]) -> dict[str, int]:
    """No table goes back: the newest version that each base table has been read at by a member."""
    floor: dict[str, int] = {}
    for member in members:
        build = states[member].build
        for key, version in build.cut.versions.items() if build else ():
            floor[key] = max(version, floor.get(key, version))
    return floor


def _not_below(floor: Mapping[str, int], cut: Cut) -> bool:
    return all(version >= floor.get(key, version) for key, version in cut.versions.items())


def _agrees(left: Mapping[str, int], right: Mapping[str, int]) -> bool:
    return all(left.get(key, version) == version for key, version in right.items())


def _is_current(graph: Graph, present: Present, table_id: str, build: Build) -> bool:
    """Built from the tables that bear these names now, not from dropped or replaced ones."""
    return ids_below(graph, present, table_id) <= set(build.cut.versions)


def _with_lagging(
    graph: Graph,
    states: Mapping[str, TableState],
    members: frozenset[str],
    outside: Sequence[str],
    present: Present,
    builds: Builds,
) -> CutPlan:
    """Parents stand at cuts that do not fit: bring those that lag to the newest of their cuts."""
    target = present.versions
    newest = [build for parent in outside if (build := states[parent].build) is not None]
    tied = {key for build in newest for key in build.cut.versions}
    for key in tied & target.keys():
        target[key] = max(build.cut.versions.get(key, -1) for build in newest)
    for key, version in _floor(states, members).items():
        if key in target:
            target[key] = max(target[key], version)
    inside = set(members)
    while (laggard := _first_laggard(graph, present, inside, target, builds)) is not None:
        _check_may_follow(graph, states, laggard)
        inside.add(laggard)
        for key, version in _floor(states, [laggard]).items():
            if key in target:
                target[key] = max(target[key], version)
    chosen = {
        parent: build
        for parent in _outside(graph, inside)
        if (build := _fitting(graph, present, parent, target, builds)) is not None
    }
    return CutPlan(versions=target, members=frozenset(inside), outside=chosen)


def _first_laggard(
    graph: Graph,
    present: Present,
    inside: Iterable[str],
    target: Mapping[str, int],
    builds: Builds,
) -> str | None:
    """A parent outside that has no state at the target; its own parents come after it."""
    for parent in reversed(_outside(graph, inside)):
        if _fitting(graph, present, parent, target, builds) is None:
            return parent
    return None


def _fitting(
    graph: Graph, present: Present, table_id: str, target: Mapping[str, int], builds: Builds
) -> Build | None:
    wanted = {key: target[key] for key in ids_below(graph, present, table_id)}
    for build in builds(table_id):
        if dict(build.cut.versions) == wanted:
            return build
    return None


def _check_may_follow(graph: Graph, states: Mapping[str, TableState], table_id: str) -> None:
    """A lagging parent that is suspended cannot be brought along."""
    state = states[table_id]
    if state.status != "active":
        raise Refused(
            f"its sources stand at cuts that do not fit, and {graph[table_id].name}, which lags, is"
            " suspended",
            reason=Reason.INCOMPATIBLE_CUTS,
            about=str(graph[table_id].name),
            hint=f"ALTER DYNAMIC TABLE {graph[table_id].name} RESUME, then refresh again",
        )


def common_states(table_ids: Sequence[str], builds: Builds) -> dict[str, Build] | None:
    """The newest recorded states of some tables that agree on every shared base table."""
    return _search(table_ids, [builds(table_id) for table_id in table_ids])


def micros(instant: datetime) -> int:
    return round(instant.timestamp() * 1_000_000)


def from_micros(value: int) -> datetime:
    return datetime.fromtimestamp(value / 1_000_000, tz=UTC)
