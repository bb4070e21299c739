"""What `rorder` did, partition by partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Became(StrEnum):
    """What became of a partition."""

    ORDERED = "ordered"  # its rows lie in new files
    AS_IT_WAS = "as_it_was"  # its files were in this order already
    CHANGED = "changed"  # somebody changed its rows meanwhile; it was left as it is


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    """One partition of a table, before and after."""

    partition: Mapping[str, str | None]  # values by column; empty: the whole table
    became: Became
    files_before: int
    bytes_before: int
    files_after: int
    bytes_after: int
    rows: int | None = None  # None: not read
    values: int | None = None  # of the column that decides the order
    row_groups: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RorderReport:
    """What one run did to a table."""

    table: str
    unique_by: str
    engine: str
    version: int | None  # of the one commit; None: there was nothing to do
    partitions: tuple[PartitionReport, ...]

    def which(self, became: Became) -> tuple[PartitionReport, ...]:
        return tuple(one for one in self.partitions if one.became is became)

    @property
    def ordered(self) -> tuple[PartitionReport, ...]:
        return self.which(Became.ORDERED)

    @property
    def changed(self) -> tuple[PartitionReport, ...]:
        """Those that another run must take up again."""
        return self.which(Became.CHANGED)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)
