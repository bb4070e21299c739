"""Whether several workers share one refresh, and how many. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dynamic_tables.model import RefreshRecord
from dynamic_tables.options import Options
from dynamic_tables.refresh import costs
from dynamic_tables.refresh.decide import Decision
from dynamic_tables.settings import Settings

THRESHOLD = 10_000_000  # keys; fewer are faster alone, without anything to coordinate
MOST_WORKERS = 16  # more bring little
SLICES_PER_THRESHOLD = 2  # a worker gets about half as many keys as make it worth to share
LEAST_WORKERS = 2


def should_parallelize(
    affected_keys: int,
    idle_workers: int,
    *,
    threshold: int = THRESHOLD,
    most: int = MOST_WORKERS,
) -> bool:
    """Whether to share a refresh.

    >>> should_parallelize(9_999_999, 8), should_parallelize(10_000_000, 8)
    (False, True)
    >>> should_parallelize(100_000_000, 1)
    False
    """
    return slice_count(affected_keys, idle_workers, threshold=threshold, most=most) > 1


def slice_count(
    affected_keys: int,
    idle_workers: int,
    *,
    threshold: int = THRESHOLD,
    most: int = MOST_WORKERS,
) -> int:
    """Into how many slices; 1: one worker does it alone.

    >>> slice_count(10_000_000, 8), slice_count(30_000_000, 4), slice_count(10**9, 100)
    (2, 4, 16)
    >>> slice_count(1_000, 3, threshold=10)
    3
    """
    if affected_keys < threshold or idle_workers < LEAST_WORKERS:
        return 1
    per_worker = max(threshold // SLICES_PER_THRESHOLD, 1)
    return max(min(affected_keys // per_worker, idle_workers, most), 1)


def slices_for(
    size: int,
    decision: Decision,
    options: Options,
    settings: Settings,
    *,
    idle_workers: Callable[[], int],  # asked only if the answer matters
    history: Callable[[], Sequence[RefreshRecord]],
) -> int:
    """Into how many slices a refresh of this size is cut, as the table and the settings allow."""
    allowed = options.allow_parallel_refresh and settings["parallel_refresh"] == "on"
    if not allowed or size < options.parallel_threshold:
        return 1
    expected = costs.foretold(decision.estimate, history())
    if expected is not None and expected < settings["parallel_worth_s"]:
        return 1  # it is through before the others have begun
    return slice_count(
        size,
        idle_workers(),
        threshold=options.parallel_threshold,
        most=min(options.max_parallelism, settings["parallel_max_workers"]),
    )
