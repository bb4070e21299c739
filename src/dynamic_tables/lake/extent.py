"""How much of a source changed between two versions, told before its rows are read.

Commits tell their rows and bytes one by one. What came and went between the two versions cancels:
files do so by their names. An overwrite tells neither how many rows it removed nor which of them
came again; its files tell the former, and only reading them the latter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from dynamic_tables.lake.base import Commit
from dynamic_tables.lake.differing import Differing, differing_files
from dynamic_tables.lake.log import changed_rows, only_adds, only_removes
from dynamic_tables.model import Pin

SMALL_FEED_BYTES = 2**20  # of a change feed, up to which no log is read again to leave files out
FEW_ROWS = 10_000  # of changes, up to which it does not matter how many of them cancel
COUNTED = 20  # to read and net a byte is worth it for so many bytes that a recomputation reads


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """What the log tells of the changes of a source."""

    rows: int | None  # whether they cancel or not; None: nothing tells
    bytes: int  # that are read to find them; of files that stay, the share that changed
    read_bytes: int = 0  # the same with all of these files
    read_files: int = 0
    by_files: bool = False  # the files that differ are read, not the change feed
    only_adds: bool = False  # no row went or became another one
    one_way: bool = False  # all rows came, or all went: none of them cancel
    replaced: bool = False  # whole files were: any number of their rows may have come again

    @property
    def unchanged_bytes(self) -> int:
        """Of files some of whose rows are marked as gone: all of such a file is read."""
        return max(self.read_bytes - self.bytes, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """How many rows of the sources of a table changed, found by reading them."""

    pins: tuple[Pin, ...]  # before and after
    rows: int


NONE = Extent(rows=0, bytes=0, only_adds=True, one_way=True)


def extent_of(
    session: SparkSession,
    location: str,
    span: tuple[int, int],  # the version before, and the one after
    commits: Sequence[Commit],  # between them
    *,
    has_feed: bool,
) -> Extent:
    """The less that has to be read: the change feed, or the files that differ in the end."""
    told, adds = changed_rows(commits), all(map(only_adds, commits))
    changing = [commit for commit in commits if commit.changes_data]
    fed = sum(commit.changed_bytes for commit in changing)
    by_feed = Extent(
        rows=told,
        bytes=fed,
        read_bytes=sum(commit.read_bytes for commit in changing),
        read_files=sum(commit.read_files for commit in changing),
        only_adds=adds,
        one_way=adds or all(map(only_removes, commits)),
        replaced=told is None,
    )
    if has_feed and (adds or (told is not None and fed <= SMALL_FEED_BYTES)):
        return by_feed
    try:
        files = differing_files(session, location, *span)
    except FileNotFoundError:  # whoever reads the changes will say so
        return by_feed
    return _of_files(files, by_feed, has_feed=has_feed)


def _of_files(files: Differing, by_feed: Extent, *, has_feed: bool) -> Extent:
    """A file has many rows that did not change; commits that tell their rows know better."""
    known = [rows for rows in (by_feed.rows, files.rows) if rows is not None]
    rows = min(known, default=None)
    if has_feed and files.bytes >= by_feed.bytes:
        return replace(by_feed, rows=rows)
    return replace(
        by_feed,
        rows=rows,
        bytes=files.bytes,
        read_bytes=files.bytes,
        read_files=len(files.went) + len(files.came),
        by_files=True,
    )


def pays_to_count(extents: Sequence[Extent], source_bytes: int) -> bool:
    """Whether to read what was replaced, to learn how many of its rows are the same, costs little
    beside recomputing. A source that was replaced as a whole and is the only one is recomputed."""
    rows, read = total_rows(extents), sum(extent.bytes for extent in extents)
    few = rows is not None and rows <= FEW_ROWS
    return not few and any(e.replaced for e in extents) and COUNTED * read <= source_bytes


def total_rows(extents: Sequence[Extent]) -> int | None:
    """The rows of several sources; None if one does not tell."""
    rows = [extent.rows for extent in extents]
    return None if None in rows else sum(filter(None, rows))
