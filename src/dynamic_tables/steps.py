"""The labelled steps of everything that changes the lake or the store.

Production observes nothing. Tests install an observer and stop, kill or fail exactly there, so that
crash and race tests name a place instead of sleeping. The order below is the order in which a
refresh passes them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from enum import StrEnum


class Step(StrEnum):
    """A place where a process may die without anything being lost."""

    DEFINED = "defined"  # CREATE: the definition stands in the store, nothing in the lake
    LAID_OUT = "laid_out"  # CREATE: the empty Delta table with its properties exists, unregistered
    CLAIMED = "claimed"  # the claim is ours, nothing else happened
    PINNED = "pinned"  # versions are captured, nothing is written
    COMPUTED = (
        "computed"  # the query is analysed (and compared, if it has children), nothing written
    )
    INTENDED = "intended"  # the intent (n, cut) stands in the store
    LOCKED = "locked"  # the commit lock is ours, the commit has not begun
    COMMITTED = "committed"  # the Delta commit returned
    REGISTERED = "registered"  # the name points to the loaded table
    RECORDED = "recorded"  # the store has the record, the intent is closed
    RELEASED = "released"  # the claim is gone


class SliceStep(StrEnum):
    """The same for a refresh that several workers share: between INTENDED and LOCKED."""

    KEYS_STAGED = "keys_staged"  # the affected keys lie in the lake, split
    SHARED = "subtasks_created"  # the store has the slices; whoever claims one computes it
    CLAIMED = "subtask_claimed"  # a worker has a slice
    WRITTEN = "slice_written"  # its rows lie in the lake, nobody knows
    COMPLETED = "subtask_completed"  # the store knows
    GATHERED = "slices_gathered"  # all slices are there and were checked, nothing is committed
    CLEARED = "slices_cleared"  # the commit stands, what was staged is gone, the intent is open


class LayoutStep(StrEnum):
    """The same for row-group order, in the order in which it passes them."""

    LISTED = "files_listed"  # the files to be exchanged are known
    WRITTEN = "files_written"  # the new files are there, no version names them
    VERIFIED = "files_verified"  # they were read back and have the same rows
    LOCKED = "exchange_locked"  # the commit lock is ours, the commit has not begun
    EXCHANGED = "files_exchanged"  # the Delta commit returned


class CompactionStep(StrEnum):
    """The same for compaction: of OPTIMIZE, and of the policy, between REGISTERED and RECORDED."""

    LOCKED = "compaction_locked"  # the commit lock is ours, nothing is written
    WRITTEN = "folded_written"  # one row a group lies in new files, no version names them
    FOLDED = "folded"  # groups are whole (DuckLake: rows lie in files), files are not merged yet
    MERGED = "files_merged"  # small files are merged, the lock is still ours


AnyStep = Step | SliceStep | LayoutStep | CompactionStep
Observer = Callable[[AnyStep, str], None]


def _nothing(_step: AnyStep, _table: str) -> None:
    return None


_observer: Observer = _nothing


def reached(step: AnyStep, table: str) -> None:
    """Say that `table` passed `step`; whatever the observer raises goes up to the refresh."""
    _observer(step, table)


@contextmanager
def observing(observer: Observer) -> Generator[None]:
    """Install an observer for the duration of the block (tests only)."""
    global _observer  # noqa: PLW0603  one observer per process, like a debugger
    previous, _observer = _observer, observer
    try:
        yield
    finally:
        _observer = previous
