"""How the rows of one refresh are shared among workers, and what a lake needs for it.

A slice is a set of keys: every row of the result belongs to exactly one, told by its key alone, so
that no group falls into two. What all slices have in common (`Slicing`) is written down once, with
the intent, for whoever computes or merges them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from dynamic_tables.definition import Definition
from dynamic_tables.lake.base import Rows
from dynamic_tables.model import Pin, Strategy
from dynamic_tables.names import quote


class SplitKind(StrEnum):
    """By what keys are told apart."""

    HASH_RANGE = "hash_range"  # of any key columns; Spark's hash is signed, hence pmod
    MODULO = "modulo"  # of one integer
    PARTITION = "partition"  # of a source whose partition column is part of the key


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Which slice a key belongs to. NULL is a key like any other.

    >>> Split(kind=SplitKind.HASH_RANGE, columns=("a", "b"), count=4).condition(3)
    'pmod(hash(`a`, `b`), 4) = 3'
    >>> Split(kind=SplitKind.MODULO, columns=("a",), count=4).condition(0)
    'pmod(coalesce(`a`, 0), 4) = 0'
    >>> days = Split(
    ...     kind=SplitKind.PARTITION,
    ...     columns=("day",),
    ...     count=2,
    ...     values=(("'mon'", "'tue'"), ("'wed'", "NULL")),
    ... )
    >>> days.condition(0), days.condition(1)
    ("(`day` IN ('mon', 'tue'))", "(`day` IN ('wed') OR `day` IS NULL)")
    >>> days.number()
    "CASE WHEN (`day` IN ('mon', 'tue')) THEN 0 WHEN (`day` IN ('wed') OR `day` IS NULL) THEN 1 END"
    """

    kind: SplitKind
    columns: tuple[str, ...]  # of the key, by the names that they have in the table
    count: int  # slices
    values: tuple[tuple[str, ...], ...] = ()  # PARTITION: literals, slice by slice

    def number(self) -> str:
        """SQL: the slice of a row; NULL: it belongs to none."""
        columns = [quote(name) for name in self.columns]
        match self.kind:
            case SplitKind.HASH_RANGE:
                return f"pmod(hash({', '.join(columns)}), {self.count})"
            case SplitKind.MODULO:
                return f"pmod(coalesce({columns[0]}, 0), {self.count})"
            case SplitKind.PARTITION:
                cases = (f"WHEN {self.condition(n)} THEN {n}" for n in range(self.count))
                return f"CASE {' '.join(cases)} END"

    def condition(self, slice_no: int) -> str:
        """SQL: whether a row belongs to the slice."""
        if self.kind is not SplitKind.PARTITION:
            return f"{self.number()} = {slice_no}"
        column, values = quote(self.columns[0]), self.values[slice_no]
        listed = ", ".join(value for value in values if value != "NULL")
        said = [f"{column} IN ({listed})"] if listed else []
        return f"({' OR '.join([*said, *([f'{column} IS NULL'] if 'NULL' in values else [])])})"

    def data(self, slice_no: int) -> dict[str, Any]:
        """What `refresh_subtasks.subtask_data` says of a slice."""
        told: dict[str, Any] = {
            "key_columns": list(self.columns),
            "partition": slice_no,
            "total_partitions": self.count,
        }
        return told | ({"values": list(self.values[slice_no])} if self.values else {})

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind.value,
            "columns": list(self.columns),
            "count": self.count,
            "values": [list(values) for values in self.values],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Split:
        return cls(
            kind=SplitKind(data["kind"]),
            columns=tuple(data["columns"]),
            count=data["count"],
            values=tuple(tuple(values) for values in data["values"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Slicing:
    """What the slices of one refresh have in common, besides the intent's cut."""

    definition: Definition  # as the coordinator saw it
    strategy: Strategy  # keys: the staged keys of a slice; full: its share of all rows
    key: tuple[str, ...]  # KEYS: the columns that the staged keys are values of
    split: Split
    slices: tuple[int, ...]  # those that have rows, as far as is known before
    counts: Mapping[int, int] = field(default_factory=dict)  # KEYS: the staged keys of each

    def as_json(self) -> dict[str, Any]:
        return {
            "definition": self.definition.as_json(),
            "strategy": self.strategy.value,
            "key": list(self.key),
            "split": self.split.as_json(),
            "slices": list(self.slices),
            "counts": {str(number): count for number, count in self.counts.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Slicing:
        return cls(
            definition=Definition.from_json(data["definition"]),
            strategy=Strategy(data["strategy"]),
            key=tuple(data["key"]),
            split=Split.from_json(data["split"]),
            slices=tuple(data["slices"]),
            counts={int(number): count for number, count in data["counts"].items()},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Affected:
    """So many keys are affected that several workers share them; the area keeps the keys."""

    keys: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedKeys:
    """Affected keys in the lake, split."""

    split: Split  # another one than was wanted, if that would have been uneven
    key: tuple[str, ...]
    counts: Mapping[int, int]  # keys of the slices that have some


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The rows of one slice, as whoever computed them wrote them down."""

    location: str
    rows: int
    checksum: str  # of the bag of rows


class Slicer(Protocol):
    """What several workers do to one refresh, in one staging place of the lake."""

    def size(self, pins: Sequence[Pin]) -> int: ...  # rows that the whole query is made of
    def split(self, strategy: Strategy, count: int, pins: Sequence[Pin]) -> Split | None: ...
    def stage_keys(self, split: Split) -> StagedKeys: ...
    def compute(
        self, slicing: Slicing, slice_no: int, token: int, pins: Sequence[Pin], instant: datetime
    ) -> Part: ...
    def gather(
        self,
        slicing: Slicing,
        parts: Mapping[int, Part],
        pins: Sequence[Pin],
        instant: datetime,
    ) -> Rows: ...  # raises RefreshError SLICE_DAMAGED
    def difference(self, rows: Any, slicing: Slicing, base: int) -> int: ...  # KEYS
    def discard(self, part: Part) -> None: ...
