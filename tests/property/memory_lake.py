"""A lake in memory: as much of `Lake` as a refresh needs, and an answer that can be checked.

A base table is a number that grows. The row of a dynamic table names what it was computed from, all
the way down, so that whoever looks at it sees which versions were read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dynamic_tables.compiler.refused import NotIncremental
from dynamic_tables.definition import Column, Definition, Source
from dynamic_tables.errors import RefreshError
from dynamic_tables.lake.base import Commit, Layout, SourceState, Stamp, Standing
from dynamic_tables.lake.slicing import Part, Slicing, Split, SplitKind
from dynamic_tables.model import Pin, Strategy, Work
from dynamic_tables.reasons import Reason

Value = tuple[Any, ...]


@dataclass
class Stored:
    """A dynamic table: its commits, oldest first; version n is the n-th."""

    definition: Definition
    commits: list[Commit] = field(default_factory=list)
    values: list[Value | None] = field(default_factory=list)

    @property
    def sequence(self) -> int:
        return max((c.stamp.sequence for c in self.commits if c.stamp), default=0)


class Disk:
    """What all processes see."""

    def __init__(self) -> None:
        self.bases: dict[str, list[datetime]] = {}  # by name: when each version was committed
        self.tables: dict[str, Stored] = {}  # by table id
        self.staged: dict[str, dict[str, Value]] = {}  # slices, by table id and place

    def value(self, source: Source, version: int) -> Value:
        if source.dynamic_id is None:
            return (source.name.name, version)
        found = self.tables[source.dynamic_id].values[version]
        assert found is not None, "a table is read before it was loaded"
        return found

    def commit(self, definition: Definition, value: Value | None, stamp: Stamp) -> None:
        """As Delta does: a number that stands already is skipped, silently."""
        stored = self.tables[definition.table_id]
        if stamp.sequence <= stored.sequence:
            return
        before = stored.values[-1] if stored.values else None
        stored.commits.append(
            Commit(
                version=len(stored.commits),
                operation="WRITE",
                changes_data=value is not None,
                stamp=stamp,
                metrics={},
            )
        )
        stored.values.append(before if value is None else value)


@dataclass(frozen=True)
class OneRow:
    """The result of a query at a cut."""

    columns: tuple[Column, ...]
    value: Value


class MemoryLake:
    """The disk as one process sees it; `pass_gate` is called before each look and each commit."""

    faults = (OSError,)
    can_slice = True

    def __init__(self, disk: Disk, pass_gate: Callable[[], None]) -> None:
        self._disk, self._pass_gate = disk, pass_gate

    def source_state(self, source: Source) -> SourceState:
        if source.dynamic_id is not None:
            version = len(self._disk.tables[source.dynamic_id].commits) - 1
        else:
            version = len(self._disk.bases[source.name.name]) - 1
        return SourceState(
            source_id=f"id-{source.name.name}",
            version=version,
            columns=source.columns,
            location=source.name.name,
        )

    def changed_at(self, source: Source, since: int, to: int) -> datetime | None:
        return self._disk.bases[source.name.name][since + 1] if since < to else None

    def moved(self, _source: Source, since: int, to: int) -> bool:
        return since != to

    def followed(self, definition: Definition, _dynamic: Any) -> Definition:
        return definition

    def plan_of(self, _definition: Definition) -> NotIncremental:
        return NotIncremental(Reason.GLOBAL_LIMIT, "of no interest here")

    def sizes(self, _definition: Definition, _moves: Any) -> None:
        return None

    def layout(self, _definition: Definition) -> Layout:
        return Layout()

    def is_laid_out(self, definition: Definition) -> bool:
        return definition.table_id in self._disk.tables

    def lay_out(self, definition: Definition) -> None:
        self._disk.tables[definition.table_id] = Stored(definition)

    def publish(self, _definition: Definition) -> None:
        return None

    def save_definition(self, definition: Definition) -> None:
        self._disk.tables[definition.table_id].definition = definition

    def standing(self, definition: Definition) -> Standing:
        self._pass_gate()
        stored = self._disk.tables[definition.table_id]
        return Standing(
            sequence=stored.sequence,
            version=len(stored.commits) - 1,
            definition=stored.definition,
            columns=definition.stored_columns,
        )

    def commits(self, definition: Definition, after: int, to: int) -> tuple[Commit, ...]:
        stored = self._disk.tables[definition.table_id]
        return tuple(c for c in reversed(stored.commits) if after < c.version <= to)

    @contextmanager
    def work_area(self, _definition: Definition, _label: str) -> Iterator[MemoryArea]:
        yield MemoryArea(self._disk, self._pass_gate)

    @contextmanager
    def commit_lock(self, _definition: Definition) -> Iterator[None]:
        yield

    def clear_slices(self, definition: Definition, up_to: int) -> None:
        there = self._disk.staged.get(definition.table_id)
        if there:
            self._pass_gate()
            for place in [place for place in there if int(place.partition("/")[0]) <= up_to]:
                del there[place]

    def cancel(self) -> None:
        return None

    def told(self, error: BaseException, *, about: str) -> RefreshError:
        return RefreshError(str(error), reason=Reason.QUERY_FAILED, about=about)


class MemoryArea:
    """Where one table is refreshed."""

    def __init__(self, disk: Disk, pass_gate: Callable[[], None]) -> None:
        self._disk, self._pass_gate = disk, pass_gate
        self._rows: OneRow | None = None

    def compute(self, definition: Definition, pins: Sequence[Pin], _instant: datetime) -> OneRow:
        read = [
            self._disk.value(source, pin.version)
            for source, pin in zip(definition.sources, pins, strict=True)
        ]
        return OneRow(definition.stored_columns, (definition.name.name, *read))

    def slicer(self, definition: Definition, sequence: int) -> MemorySlicer:
        return MemorySlicer(self, self._disk, self._pass_gate, definition, sequence)

    def difference_size(self, rows: OneRow, definition: Definition, base: int) -> int:
        self._rows = rows
        stored = self._disk.tables[definition.table_id].values
        return 0 if base >= 0 and stored[base] == rows.value else 1

    def apply_difference(self, definition: Definition, stamp: Stamp) -> None:
        assert self._rows is not None
        self.overwrite(self._rows, definition, stamp)

    def overwrite(self, rows: OneRow, definition: Definition, stamp: Stamp) -> None:
        self._pass_gate()
        self._disk.commit(definition, rows.value, stamp)

    def fence(self, definition: Definition, stamp: Stamp) -> None:
        self._pass_gate()
        self._disk.commit(definition, None, stamp)

    def work(self) -> Work:
        return Work()


class MemorySlicer:
    """A slice is the whole row, and all slices must have been computed from the same versions."""

    def __init__(
        self,
        area: MemoryArea,
        disk: Disk,
        pass_gate: Callable[[], None],
        definition: Definition,
        sequence: int,
    ) -> None:
        self._area, self._disk, self._pass_gate = area, disk, pass_gate
        self._definition, self._sequence = definition, sequence

    def size(self, _pins: Sequence[Pin]) -> int:
        return 100

    def split(self, _strategy: Strategy, count: int, _pins: Sequence[Pin]) -> Split:
        return Split(kind=SplitKind.HASH_RANGE, columns=("a",), count=count)

    def compute(
        self, slicing: Slicing, slice_no: int, token: int, pins: Sequence[Pin], instant: datetime
    ) -> Part:
        self._pass_gate()
        rows = self._area.compute(slicing.definition, pins, instant)
        place = f"{self._sequence}/{slice_no}-{token}"
        self._disk.staged.setdefault(self._definition.table_id, {})[place] = rows.value
        return Part(location=place, rows=1, checksum=str(rows.value))

    def gather(
        self, slicing: Slicing, parts: dict[int, Part], _pins: Sequence[Pin], _instant: datetime
    ) -> OneRow:
        self._pass_gate()
        there = self._disk.staged.get(self._definition.table_id, {})
        assert set(parts) == set(slicing.slices)
        [value] = {there[part.location] for part in parts.values()}
        return OneRow(slicing.definition.stored_columns, value)

    def discard(self, part: Part) -> None:
        self._disk.staged.get(self._definition.table_id, {}).pop(part.location, None)
