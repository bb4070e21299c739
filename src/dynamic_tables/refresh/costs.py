"""What each strategy of a table would cost, told before anything is read.

Almost all of a refresh is scanning: the changes, the sources (`full`, `keys`, and the other sides
of joins), the stored rows. So a strategy is weighed in bytes, some of which are dearer than others,
and seconds are a fixed part and the weight at a certain speed. What the table's own refreshes took
corrects the seconds of each strategy, those of about the same weight before others. A strategy that
was not taken for long is believed in again, little by little: one bad measurement does not decide
for ever. A strategy by changes that was never taken is no better than those that were: if one of
them was dearer than its weight, it is thought to be so, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import log10
from statistics import median
from typing import Any

from dynamic_tables.lake.base import Sizes
from dynamic_tables.model import Estimate, Outcome, RefreshRecord, Strategy
from dynamic_tables.options import Storage
from dynamic_tables.reasons import Reason
from dynamic_tables.steps import Step

FIXED_S = 1.0  # of every strategy: what a refresh of a tiny table takes
BYTES_PER_S = 40 * 2**20  # a scan with an aggregate, two cores
TELLING = BYTES_PER_S  # a weight from which the time of a refresh tells how fast it scans
BOUND = 20.0  # no correction is greater
REMEMBERED = 5  # refreshes of one strategy that count
NEAR = 3.0  # times as heavy or as light: refreshes of about the same weight
FAR = 10.0  # times: from there on nothing is believed of what another weight took
COLD_S = 3.0  # of a first load: a process that just started compiles what it runs
FORGOTTEN = 20  # refreshes of the table after which half of a correction is gone
MARGIN = 0.9  # another strategy must be this much cheaper than the one before it in order,
MARGIN_S = 0.5  # and by so many seconds: small tables are not worth an argument

# Whose time tells nothing of a strategy: the changes were read in vain before all was recomputed;
# the process may have just started; another process had done a part of it.
MIXED = frozenset(
    {
        Reason.ABOVE_THRESHOLD,
        Reason.HISTORY_GONE,
        Reason.CHANGES_FAILED,
        Reason.SOURCE_SCHEMA_CHANGED,
        Reason.FIRST_LOAD,
        Reason.RECOVERED,
    }
)

# What a byte of each kind weighs, against a byte of a source that is read for a recomputation.
# Few changes are brought to the driver; many are grouped, joined and compared by the executors.
FEW, FEW_BYTES = 10_000, 100_000  # rows; bytes where nobody counted rows
COMPARING = 3 * BYTES_PER_S  # to compare many changes with stored rows at all
CHANGED, COMPARED, MERGED, STORED = 4.0, 10.0, 3.0, 1.0
PASSED_OVER = 1.0  # what did not change, in files that changes are read from
# Sources are searched for few keys; for many, which are joined; for all that nobody has counted.
# On top of that comes the share of the keys that is affected: their rows are computed anew.
SEARCHED, SEARCHED_FOR_MANY, SEARCHED_FOR_ANY = 0.4, 0.3, 2.0
AFFECTED = 4.0
FOLDING = 5.0  # times as long as reading rows that are stored in place
PAYS = 0.5  # so much cheaper refreshes are worth dearer reads


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the costs of a query's strategies depend on."""

    linear: bool  # the changes of the result are the query over the changes of the sources
    merges_in_place: bool = False  # groups are merged beside their stored rows
    extremes: bool = False  # groups may need their rows when one of them goes: MIN, MAX


def estimates(
    strategies: Iterable[Strategy], sizes: Sizes, shape: Shape, history: Sequence[RefreshRecord]
) -> tuple[Estimate, ...]:
    """What each of some strategies would cost; `history` has the newest refresh first."""
    found = [_estimate(strategy, sizes, shape, history) for strategy in strategies]
    by_changes = [e for e in found if e.strategy is not Strategy.FULL]
    measured = [e for e in by_changes if _taken(e.strategy, history)]
    worst = max((correction(e.strategy, e.weight, history) for e in measured), default=1.0)
    untried = [e for e in by_changes if e not in measured]
    return tuple(_corrected(e, max(worst, 1.0)) if e in untried else e for e in found)


def whole(sizes: Sizes, history: Sequence[RefreshRecord]) -> Estimate:
    """What it would cost to recompute a table; all of its sources are read, whatever its query."""
    return _estimate(Strategy.FULL, sizes, Shape(linear=False), history)


def _estimate(
    strategy: Strategy, sizes: Sizes, shape: Shape, history: Sequence[RefreshRecord]
) -> Estimate:
    read = _read(strategy, sizes, shape)
    unchanged = 0 if strategy is Strategy.FULL else sizes.unchanged_bytes
    weight = _weight(strategy, sizes, shape, read) + PASSED_OVER * unchanged
    estimate = Estimate(
        strategy=strategy,
        bytes=sum(read) + unchanged,
        weight=round(weight),
        seconds=0.0,
        rows=sizes.stored_rows if strategy is Strategy.FULL else sizes.changed_rows,
    )
    return _corrected(estimate, correction(strategy, weight, history))


def _corrected(estimate: Estimate, by: float) -> Estimate:
    return replace(estimate, seconds=FIXED_S + by * estimate.weight / BYTES_PER_S)


def _weight(strategy: Strategy, sizes: Sizes, shape: Shape, read: tuple[int, int, int]) -> float:
    changed, searched, stored = read
    if strategy is Strategy.FULL:
        return searched
    if not _changes_much(sizes):
        return CHANGED * changed + SEARCHED * searched + STORED * stored
    if stored == 0:
        return CHANGED * changed + _searching(sizes) * searched
    beside = strategy is Strategy.MERGE and shape.merges_in_place
    compared = MERGED if beside else COMPARED
    return COMPARING + compared * changed + _searching(sizes) * searched + STORED * stored


def _searching(sizes: Sizes) -> float:
    """What a byte of a source weighs that many keys are looked for in."""
    share = changed_share(sizes)
    return SEARCHED_FOR_ANY if share is None else SEARCHED_FOR_MANY + AFFECTED * share


def changed_share(sizes: Sizes | None) -> float | None:
    """Changed rows as a share of the stored ones: about what the share of affected keys is."""
    if sizes is None or sizes.changed_rows is None or not sizes.stored_rows:
        return None
    return min(1.0, sizes.changed_rows / sizes.stored_rows)


def _changes_much(sizes: Sizes) -> bool:
    if sizes.changed_rows is None:
        return sizes.changed_bytes > FEW_BYTES
    return sizes.changed_rows > FEW


def _read(strategy: Strategy, sizes: Sizes, shape: Shape) -> tuple[int, int, int]:
    """The bytes that a strategy reads: of changes, of sources, and of stored rows."""
    joined = sizes.beside_bytes
    if strategy in (Strategy.MERGE, Strategy.FOLD) and shape.extremes and not sizes.only_adds:
        joined = sizes.source_bytes  # of groups whose least or greatest value may have gone
    match strategy:
        case Strategy.FULL:
            return 0, sizes.source_bytes, 0
        case Strategy.APPEND | Strategy.FOLD:
            return sizes.changed_bytes, joined, 0
        case Strategy.KEYS:
            return sizes.changed_bytes, sizes.source_bytes, sizes.stored_bytes
        case Strategy.ROWS if not shape.linear:  # the affected rows, before and after
            return sizes.changed_bytes, 2 * sizes.source_bytes, sizes.stored_bytes
        case _:
            return sizes.changed_bytes, joined, sizes.stored_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageCost:
    """What a way to store an aggregate would cost to refresh, and to read as a whole."""

    storage: Storage
    refresh_s: float
    read_s: float
    supposed: int | None = None  # changed rows, where none has changed yet

    def __str__(self) -> str:
        """As people read it.

        >>> print(StorageCost(storage=Storage.IN_PLACE, refresh_s=1.04, read_s=0.3, supposed=2000))
        IN_PLACE: refreshed in 1.0 s if 2,000 rows change, read in 0.3 s
        """
        supposed = f" if {_rows_change(self.supposed)}" if self.supposed is not None else ""
        took = f"refreshed in {self.refresh_s:.1f} s{supposed}"
        return f"{self.storage.value}: {took}, read in {self.read_s:.1f} s"

    def as_json(self) -> dict[str, Any]:
        return {
            "storage": self.storage.value,
            "supposed_rows": self.supposed,
            "refresh_seconds": round(self.refresh_s, 2),
            "read_seconds": round(self.read_s, 2),
        }


def _rows_change(count: int) -> str:
    return "1 row changes" if count == 1 else f"{count:,} rows change"


def supposed(sizes: Sizes, history: Sequence[RefreshRecord]) -> Sizes:
    """Where nothing has changed: as if as many rows had as before most refreshes, of which each
    takes the room of a stored one; without such refreshes, a hundredth of the stored rows."""
    weighed = (record.estimates[:1] for record in history if record.outcome is Outcome.DONE)
    known = [
        estimate.rows
        for found in weighed
        for estimate in found
        if estimate.strategy is not Strategy.FULL and estimate.rows
    ]
    hundredth = FEW if sizes.stored_rows is None else max(sizes.stored_rows // 100, 1)
    count = round(median(known[:REMEMBERED])) if known else hundredth
    each = sizes.stored_bytes / sizes.stored_rows if sizes.stored_rows else FEW_BYTES / FEW
    return replace(sizes, changed_rows=count, changed_bytes=round(count * each))


def storages(
    sizes: Sizes,
    shape: Shape,
    history: Sequence[RefreshRecord],
    *,
    is_supposed: bool = False,
) -> tuple[StorageCost, ...]:
    """Both ways to store an aggregate whose parts can be added up."""
    rows = sizes.changed_rows if is_supposed else None
    read_s = sizes.stored_bytes / BYTES_PER_S
    merge, fold = estimates((Strategy.MERGE, Strategy.FOLD), sizes, shape, history)
    ways = (
        (Storage.IN_PLACE, merge.seconds, read_s),
        (Storage.MERGE_ON_READ, fold.seconds, FOLDING * read_s),
    )
    return tuple(
        StorageCost(storage=storage, refresh_s=refresh_s, read_s=seconds, supposed=rows)
        for storage, refresh_s, seconds in ways
    )


def advice(found: Sequence[StorageCost], present: Storage) -> str | None:
    """The other storage, if it would pay: refreshes at half the price, or reads that cost nothing
    more to refresh."""
    by = {cost.storage: cost for cost in found}
    if not by:
        return None
    in_place, in_parts = by[Storage.IN_PLACE], by[Storage.MERGE_ON_READ]
    told = f", if {_rows_change(in_place.supposed)}" if in_place.supposed is not None else ""
    if present is Storage.IN_PLACE and in_parts.refresh_s < PAYS * in_place.refresh_s:
        return (
            f"STORAGE = MERGE_ON_READ would refresh it in {in_parts.refresh_s:.1f} s instead of"
            f" {in_place.refresh_s:.1f} s; reading all of it would cost {in_parts.read_s:.1f} s"
            f" instead of {in_place.read_s:.1f} s{told}"
        )
    if present is Storage.MERGE_ON_READ and in_place.refresh_s < in_parts.refresh_s / MARGIN:
        return (
            f"STORAGE = IN_PLACE would refresh it in {in_place.refresh_s:.1f} s too, and read all"
            f" of it in {in_place.read_s:.1f} s instead of {in_parts.read_s:.1f} s{told}"
        )
    return None


@dataclass(frozen=True, slots=True)
class Taken:
    """How long one refresh took, against what it was weighed at."""

    age: int  # how many refreshes of the table came after it
    weight: int
    ratio: float

    @property
    def is_light(self) -> bool:
        return self.weight < TELLING

    def apart(self, weight: float) -> float:
        """How many times as heavy or as light, as a power of ten."""
        return abs(log10(max(weight, 1.0) / max(self.weight, 1)))


def correction(strategy: Strategy, weight: float, history: Sequence[RefreshRecord]) -> float:
    """By how much scanning was dearer on this table than it was weighed; 1: nothing is known.

    Refreshes that scanned little tell of the fixed part only, and of a process that just started,
    unless one took longer than both: then its weight was wrong, or something else held it up, on
    which the others vote.
    Weights are rough, and the rougher the further one is from what was measured.
    """
    taken = _taken(strategy, history)
    near = [one for one in taken if one.apart(weight) <= log10(NEAR)]
    told = (near or taken)[:REMEMBERED]
    if not told:
        return 1.0
    belief = 0.5 ** (told[0].age / FORGOTTEN)
    if not near:
        belief *= max(0.0, 1 - median(one.apart(weight) for one in told) / log10(FAR))
    found = median(one.ratio for one in told)
    return min(max(found, 1 / BOUND), BOUND) ** belief


def foretold(estimate: Estimate | None, history: Sequence[RefreshRecord]) -> float | None:
    """The seconds that one worker would take, where refreshes of this table tell; else None."""
    if estimate is None or not _taken(estimate.strategy, history):
        return None
    return estimate.seconds


def _taken(strategy: Strategy, history: Sequence[RefreshRecord]) -> list[Taken]:
    """The refreshes by a strategy that tell; of `full` the first load, if there is no other."""
    done = [r for r in history if r.outcome is Outcome.DONE and r.slices is None]
    weighed = [
        (age, record, estimate.weight)
        for age, record in enumerate(done)
        for estimate in record.estimates
        if record.strategy is strategy is estimate.strategy
    ]
    told = [_measured(age, record, weight) for age, record, weight in weighed if _tells(record)]
    light = [one for one in told if one.is_light]
    if all(one.ratio <= 1 for one in light):  # nothing to be said against any of them
        told = [one for one in told if not one.is_light]
    return told or [
        Taken(age, weight, max(1.0, _ratio(record, weight, cold=True)))
        for age, record, weight in weighed
        if record.reason is Reason.FIRST_LOAD and weight >= TELLING
    ]


def _measured(age: int, record: RefreshRecord, weight: int) -> Taken:
    """One refresh; a light one took no longer than its weight, or longer than a cold start."""
    if weight >= TELLING:
        return Taken(age, weight, _ratio(record, weight, cold=False))
    return Taken(age, weight, max(1.0, _ratio(record, weight, cold=True)))


def _ratio(record: RefreshRecord, weight: int, *, cold: bool) -> float:
    """How long a refresh took against its weight; `cold`: even in a process that just started."""
    scanning_s = _seconds(record) - FIXED_S - (COLD_S if cold else 0.0)
    return max(scanning_s, 0.0) * BYTES_PER_S / max(weight, 1)


def _tells(record: RefreshRecord) -> bool:
    """Whether a refresh took its time for its own strategy, and nothing else.

    A record that was begun after another one was made holds the time of both: of a recovery.
    """
    return record.reason not in MIXED and Step.RECORDED.value not in record.steps_ms


def _seconds(record: RefreshRecord) -> float:
    """Until the rows stood; compacting the table comes after the last step."""
    return (sum(record.steps_ms.values()) or record.duration_ms) / 1000


def cheapest(found: Sequence[Estimate]) -> Estimate:
    """The first one, unless a later one is cheaper by more than a guess may be wrong."""
    best = found[0]
    for other in found[1:]:
        if other.seconds < MARGIN * best.seconds and other.seconds < best.seconds - MARGIN_S:
            best = other
    return best
