"""Keys that are too many to be brought home, as the few ranges in which they lie.

Where many neighbours change (a day, the newest numbers), the ranges leave out nearly all files of
a source that is in their order. Where keys lie all over, one range from the least to the greatest
is all that there is to say, and whoever reads finds that it leaves nothing out.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from dynamic_tables.lake.ranges import SPARSE, Spans, fewer
from dynamic_tables.names import quote

BUCKETS = 512  # into which keys are put, to find the gaps between them


def spans(keys: DataFrame, columns: Sequence[str], size: int) -> list[Spans]:
    """Where the values of each column lie; of keys that are computed, of which there are `size`."""
    told = [what(quote(name)) for name in columns for what in (F.min, F.max, F.count)]
    found = keys.agg(*told).collect()[0] if told else ()
    return [
        _spans(keys, name, *found[3 * n : 3 * n + 3], size=size) for n, name in enumerate(columns)
    ]


def _spans(keys: DataFrame, column: str, low: Any, high: Any, count: int, *, size: int) -> Spans:
    if low is None:
        return Spans((), null=True)
    ends = [(low, high)]
    if isinstance(low, (int, date)) and _distance(low, high) > SPARSE * count:
        ends = _between_gaps(keys, column, _distance(low, high))
    return Spans(tuple(ends), null=count < size)


def _distance(low: Any, high: Any) -> int:
    return (high - low).days if isinstance(low, date) else high - low


def _between_gaps(keys: DataFrame, column: str, distance: int) -> list[tuple[Any, Any]]:
    """By the least and the greatest value of each bucket."""
    value = F.col(quote(column))
    is_date = keys.schema[column].dataType.simpleString() == "date"
    number = F.unix_date(value) if is_date else value.cast("bigint")
    bucket = F.floor(number / F.lit(-(-distance // BUCKETS)))
    buckets = keys.where(value.isNotNull()).groupBy(bucket).agg(F.min(value), F.max(value))
    return fewer(sorted((low, high) for _, low, high in buckets.collect()))
