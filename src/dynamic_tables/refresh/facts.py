"""Gathering what a decision needs from the lake; nothing is changed here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType

from dynamic_tables.definition import Definition
from dynamic_tables.lake.base import Commit, Lake, Moves, Sizes, Standing
from dynamic_tables.model import Build, Cut, Pin, RefreshRecord, Strategy
from dynamic_tables.refresh.cut import CLOCK
from dynamic_tables.refresh.decide import Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Coming:
    """What a parent is expected to change that is still to be refreshed."""

    only_adds: bool  # none of its rows go or become others
    sizes: Sizes | None  # None: not known


def gather(
    lake: Lake,
    definition: Definition,
    *,
    build: Build | None,
    standing: Standing,
    cut: Cut,
    pins: Sequence[Pin],
    history: Callable[[], Sequence[RefreshRecord]] = tuple,
    forced: Strategy | None = None,
    coming: Mapping[str, Coming] = MappingProxyType({}),
) -> Facts:
    """What happened since the build; `coming`: what parents are expected to change, by name key,
    that are still to be refreshed."""
    moved = frozenset(_moved(lake, definition, build, pins)) if build else frozenset()
    moved |= coming.keys()
    clock_moved = build is not None and build.cut.versions.get(CLOCK) != cut.versions.get(CLOCK)
    moves = None
    if build is not None:
        moves = Moves(
            before=build.pins,
            after=pins,
            then=build.cut.instant,
            now=cut.instant,
            moved=moved,
            clock_moved=clock_moved,
        )
    return Facts(
        definition=definition,
        build=build,
        pins=pins,
        moved=moved,
        plan=lambda: lake.plan_of(definition),
        moves=moves,
        sizes=cache(lambda: _sizes(lake, definition, moves, pins, [*coming.values()])),
        rows_only_come=lambda: _rows_only_come(lake, definition, moves, pins, coming.values()),
        history=history,
        clock_moved=clock_moved,
        foreign_change=bool(build)
        and changed_by_others(lake, definition, build.version, standing.version),
        forced=forced,
    )


def _sizes(
    lake: Lake,
    definition: Definition,
    moves: Moves | None,
    pins: Sequence[Pin],
    coming: Sequence[Coming],
) -> Sizes | None:
    """Not known below a parent of which nothing is; of other tables than before there are no
    changes to weigh."""
    expected = [one.sizes for one in coming if one.sizes is not None]
    if len(pins) < len(definition.sources) or len(expected) < len(coming):
        return None
    sizes = lake.sizes(definition, moves if _same_sources(moves, pins) else None)
    only_add = all(one.only_adds for one in coming)
    return sizes and _with_coming(sizes, expected, only_add=only_add)


def _same_sources(moves: Moves | None, pins: Sequence[Pin]) -> bool:
    """Whether they are the tables that the rows were built from."""
    before = {pin.source_id for pin in moves.before} if moves else set()
    return before.issuperset(pin.source_id for pin in pins)


def _with_coming(sizes: Sizes, expected: Sequence[Sizes], *, only_add: bool) -> Sizes:
    parts = [sizes, *expected]
    rows = [part.changed_rows for part in parts]
    return replace(
        sizes,
        changed_rows=None if None in rows else sum(filter(None, rows)),
        changed_bytes=sum(part.changed_bytes for part in parts),
        unchanged_bytes=sum(part.unchanged_bytes for part in parts),
        only_adds=sizes.only_adds and only_add,
    )


def _rows_only_come(
    lake: Lake,
    definition: Definition,
    moves: Moves | None,
    pins: Sequence[Pin],
    coming: Iterable[Coming],
) -> bool | None:
    """Whether no row of the sources went or becomes another one; None: nobody knows."""
    if not all(one.only_adds for one in coming):
        return False
    if moves is None or len(pins) < len(definition.sources) or not _same_sources(moves, pins):
        return None
    return lake.rows_only_come(definition, moves)


def _moved(lake: Lake, definition: Definition, build: Build, pins: Sequence[Pin]) -> Iterator[str]:
    """The sources whose rows changed between the build's pins and these."""
    before = {pin.source_id: pin.version for pin in build.pins}
    sources = {source.name.key: source for source in definition.sources}
    for pin in pins:
        since = before.get(pin.source_id)
        if since is not None and lake.moved(sources[pin.name.key], since, pin.version):
            yield pin.name.key


def changed_by_others(lake: Lake, definition: Definition, build: int, to: int) -> bool:
    """Whether somebody else changed rows since the build, or while it was being committed.

    A commit that replaces by difference compares with its base first; what others wrote between
    base and commit makes its rows wrong. A gap in the log counts as yes.
    """
    commits = lake.commits(definition, build - 1, to)
    newer = [commit for commit in commits if commit.version > build]
    if len(newer) < to - build or any(_is_foreign(commit, definition) for commit in newer):
        return True
    own = next((c.stamp for c in commits if c.version == build and is_ours(c, definition)), None)
    if own is None or own.base >= build - 1:
        return False
    between = lake.commits(definition, own.base, build - 1)
    return any(_is_foreign(commit, definition) for commit in between)


def _is_foreign(commit: Commit, definition: Definition) -> bool:
    return commit.changes_data and not is_ours(commit, definition)


def is_ours(commit: Commit, definition: Definition) -> bool:
    return commit.stamp is not None and commit.stamp.table_id == definition.table_id
