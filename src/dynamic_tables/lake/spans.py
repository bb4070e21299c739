"""Keys that are too many to be brought home, as the few ranges in which they lie.

Where many neighbours change (a day, the newest numbers), the ranges leave out nearly all files of
a source that is in their order. Where keys lie all over, one range from the least to the greatest
is all that there is to say, and whoever reads finds that it leaves nothing out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from dynamic_tables.lake.ranges import SPARSE, Spans, fewer
from dynamic_tables.names import quote

BUCKETS = 512  # into which the values of a column are put, to find the gaps between them
FIRST_DAY = date(1970, 1, 1)
Ends = list[tuple[Any, Any]]


@dataclass(frozen=True, slots=True)
class Known:
    """A column of keys, as a whole."""

    column: str
    low: Any  # None: it has no values
    high: Any
    count: int  # of keys that have a value there

    @property
    def width(self) -> int:
        found = self.high - self.low
        return found.days if isinstance(found, timedelta) else found

    def may_have_gaps(self, *, is_alone: bool) -> bool:
        """Of a column beside others nobody knows how many different values it has."""
        counts = isinstance(self.low, (int, date))
        return counts and (not is_alone or self.width > SPARSE * self.count)


def spans(keys: DataFrame, columns: Sequence[str], size: int) -> list[Spans]:
    """Where the values of some columns of keys lie, of which there are `size`."""
    if not columns:
        return []
    told = [what(quote(name)) for name in columns for what in (F.min, F.max, F.count)]
    found = keys.agg(*told).collect()[0]
    known = [Known(name, *found[3 * n : 3 * n + 3]) for n, name in enumerate(columns)]
    is_alone = len(keys.columns) == 1
    apart = _between_gaps(keys, [one for one in known if one.may_have_gaps(is_alone=is_alone)])
    return [
        Spans(tuple(apart.get(one.column, _whole(one))), null=one.count < size) for one in known
    ]


def _whole(known: Known) -> Ends:
    return [] if known.low is None else [(known.low, known.high)]


def _between_gaps(keys: DataFrame, known: Sequence[Known]) -> Mapping[str, Ends]:
    """By the least and the greatest value of each bucket; of all columns in one job."""
    if not known:
        return {}
    values = F.explode(F.array(*(_bucketed(n, one) for n, one in enumerate(known))))
    bucketed = keys.select(values.alias("v")).select("v.*").where("number IS NOT NULL")
    ends = bucketed.groupBy("place", "bucket").agg(F.min("number"), F.max("number")).collect()
    return {
        one.column: fewer(
            sorted((_value(one, a), _value(one, b)) for place, _, a, b in ends if place == n)
        )
        for n, one in enumerate(known)
    }


def _bucketed(place: int, known: Known) -> Column:
    value = F.col(quote(known.column))
    is_date = isinstance(known.low, date)
    number = F.unix_date(value).cast("bigint") if is_date else value.cast("bigint")
    bucket = F.floor(number / F.lit(max(1, -(-known.width // BUCKETS))))
    return F.struct(F.lit(place).alias("place"), bucket.alias("bucket"), number.alias("number"))


def _value(known: Known, number: int) -> Any:
    return FIRST_DAY + timedelta(days=number) if isinstance(known.low, date) else number
