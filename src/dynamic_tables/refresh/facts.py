"""Gathering what a decision needs from the lake; nothing is changed here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dynamic_tables.lake.base import Commit, Lake, Standing
from dynamic_tables.model import Build, Cut, Definition, Pin
from dynamic_tables.refresh.cut import CLOCK
from dynamic_tables.refresh.decide import Facts


def gather(
    lake: Lake,
    definition: Definition,
    *,
    build: Build | None,
    standing: Standing,
    cut: Cut,
    pins: Sequence[Pin],
    forced: bool,
) -> Facts:
    """What happened since the build."""
    facts = Facts(
        definition=definition,
        build=build,
        pins=pins,
        moved=frozenset(),
        clock_moved=False,
        changed_views=[str(name) for name in lake.changed_views(definition)],
        foreign_change=False,
        forced=forced,
    )
    if build is None:
        return facts
    return Facts(
        definition=definition,
        build=build,
        pins=pins,
        moved=frozenset(_moved(lake, definition, build, pins)),
        clock_moved=build.cut.versions.get(CLOCK) != cut.versions.get(CLOCK),
        changed_views=facts.changed_views,
        foreign_change=foreign(lake, definition, build.version, standing.version),
        forced=forced,
    )


def _moved(lake: Lake, definition: Definition, build: Build, pins: Sequence[Pin]) -> Iterator[str]:
    """The sources whose rows changed between the build's pins and these."""
    before = {pin.source_id: pin.version for pin in build.pins}
    sources = {source.name.key: source for source in definition.sources}
    for pin in pins:
        since = before.get(pin.source_id)
        if since is not None and lake.moved(sources[pin.name.key], since, pin.version):
            yield pin.name.key


def foreign(lake: Lake, definition: Definition, after: int, to: int) -> bool:
    """Whether somebody else changed rows of the stored table in (after, to]."""
    if after == to:
        return False
    return any(
        commit.changes_data and not is_ours(commit, definition)
        for commit in lake.commits(definition, after, to)
    )


def is_ours(commit: Commit, definition: Definition) -> bool:
    return commit.stamp is not None and commit.stamp.table_id == definition.table_id
