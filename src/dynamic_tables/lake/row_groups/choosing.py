"""What one look-up would read under each layout, and which one is best: pure arithmetic.

Whoever wants one value reads the footer of its file and the row groups that hold it. More values
in a row group make the footer smaller and the row group larger; the sum is least where both are
equal. Small values in row groups of their own pay more for the footer than they save.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2, sqrt

from dynamic_tables.lake.row_groups.sizes import (
    CHUNK_FOOTER_BYTES,
    FILE_BYTES_AT_MOST,
    FOOTER_BYTES,
    SPARK_CHUNK_FOOTER_BYTES,
    TASK_BYTES,
    least_file_bytes,
)

WORTH_IT = 1.25  # fewer values a row group are taken unless more of them read so much less


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of a partition before it is written anew."""

    bytes: int
    rows: int
    values: int  # about
    columns: int  # leaves of structs counted one by one

    @property
    def bytes_per_value(self) -> float:
        return max(self.bytes / max(self.values, 1), 1.0)

    @property
    def bytes_per_row(self) -> float:
        return max(self.bytes / max(self.rows, 1), 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A layout, and what it would cost readers."""

    engine: str  # arrow | native
    values_per_row_group: int | None  # of arrow
    rows_per_row_group: int | None  # of native
    footer_bytes: int  # of one file
    read_bytes: int  # by one look-up

    def __str__(self) -> str:
        if self.engine == "native":
            return f"native, {self.rows_per_row_group:,} rows a row group"
        if self.values_per_row_group == 1:
            return "arrow, a row group per value"
        return f"arrow, {self.values_per_row_group} values a row group"


def arrow(facts: Facts, values_per_row_group: int) -> Choice:
    """So many values in a row group, written with Arrow.

    >>> small = Facts(bytes=100 * 10**6, rows=10**6, values=10**6, columns=4)
    >>> arrow(small, 1).read_bytes > 100 * arrow(small, 300).read_bytes
    True
    """
    chunk, value = facts.columns * CHUNK_FOOTER_BYTES, facts.bytes_per_value
    by_footer = values_per_row_group * FOOTER_BYTES / chunk
    per_file = min(
        max(by_footer, least_file_bytes(facts.bytes) / value), FILE_BYTES_AT_MOST / value
    )
    per_file = min(max(per_file, values_per_row_group), facts.values)
    footer = ceil(per_file / values_per_row_group) * chunk
    return Choice(
        engine="arrow",
        values_per_row_group=values_per_row_group,
        rows_per_row_group=None,
        footer_bytes=footer,
        read_bytes=round(footer + min(values_per_row_group, facts.values) * value),
    )


def grouped(facts: Facts) -> Choice:
    """As many values in a row group as make footer and row group equally large."""
    in_file = min(least_file_bytes(facts.bytes), facts.bytes) / facts.bytes_per_value
    best = sqrt(in_file * facts.columns * CHUNK_FOOTER_BYTES / facts.bytes_per_value)
    return arrow(facts, min(max(round(best), 1), max(facts.values, 1)))


def native(facts: Facts) -> Choice:
    """Row groups of so many rows, written by Spark: a value begins and ends anywhere in them."""
    rows_in_file = min(TASK_BYTES, facts.bytes) / facts.bytes_per_row
    chunk = facts.columns * SPARK_CHUNK_FOOTER_BYTES
    rows = min(max(round(sqrt(rows_in_file * chunk / facts.bytes_per_row)), 1), facts.rows or 1)
    footer = ceil(rows_in_file / rows) * chunk
    row_group = rows * facts.bytes_per_row
    touched = facts.bytes_per_value / row_group + 1  # on average: it begins and ends in the middle
    return Choice(
        engine="native",
        values_per_row_group=None,
        rows_per_row_group=rows,
        footer_bytes=footer,
        read_bytes=round(footer + min(touched * row_group, facts.bytes)),
    )


def choices(facts: Facts) -> tuple[Choice, ...]:
    """The layouts to choose from: one value a row group first."""
    return (*_by_arrow(facts), native(facts))


def _by_arrow(facts: Facts) -> tuple[Choice, ...]:
    one, several = arrow(facts, 1), grouped(facts)
    return (one,) if several.values_per_row_group == 1 else (one, several)


def best(candidates: tuple[Choice, ...]) -> Choice:
    """The one that reads least; an earlier one if a later one is not clearly better."""
    chosen = candidates[0]
    for candidate in candidates[1:]:
        if candidate.read_bytes * WORTH_IT < chosen.read_bytes:
            chosen = candidate
    return chosen


def sharing(facts: Facts) -> int:
    """How many values share a row group in a table that is put in order again and again.

    A power of two, so that it stays the same while a table grows a little.

    >>> sharing(Facts(bytes=240_000, rows=20_000, values=20_000, columns=3))
    512
    """
    number = best(_by_arrow(facts)).values_per_row_group
    assert number is not None  # of arrow
    return 2 ** round(log2(number))
