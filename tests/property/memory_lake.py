"""A lake in memory: as much of `Lake` as a refresh needs, and an answer that can be checked.

A base table is a number that grows; each version touches one key. The row of a dynamic table names
what it was computed from, all the way down, so that whoever looks at it sees which versions were
read. A table whose query is GROUPED has such a row for every key and is refreshed key by key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from dynamic_tables.compiler.plan import DeltaPlan, plan_query
from dynamic_tables.compiler.refused import NotIncremental
from dynamic_tables.definition import Column, Definition, Source
from dynamic_tables.errors import RefreshError
from dynamic_tables.lake.base import Commit, Delta, Layout, Moves, SourceState, Stamp, Standing
from dynamic_tables.lake.slicing import Affected, Part, Slicing, Split, SplitKind, StagedKeys
from dynamic_tables.model import Pin, Strategy, Work
from dynamic_tables.reasons import Reason

Value = tuple[Any, ...]
GROUPED = "SELECT a, count(DISTINCT b) AS n FROM orders GROUP BY a"
PLAN = plan_query(GROUPED, {"orders": ("a", "b")}, columns=("a", "n"), dialect="spark")
KEYS = (None, 0, 1, 2, 3)  # of a grouped table; NULL is a key like any other
QUIET = 7  # every so manyth version of a base table touches its key and changes nothing


BEFORE, AFTER = "before", "after"


class BadRow(Exception):
    """The query fails on its data; not for ever, so that every life comes to its end."""


def touched(version: int) -> int | None:
    """The key of the rows that a version of a base table writes."""
    return KEYS[version % len(KEYS)]


def slice_of(key: int | None, split: Split) -> int:
    return KEYS.index(key) % split.count


@dataclass
class Stored:
    """A dynamic table: its commits, oldest first; version n is the n-th."""

    definition: Definition
    commits: list[Commit] = field(default_factory=list)
    values: list[Value | None] = field(default_factory=list)

    @property
    def sequence(self) -> int:
        return max((c.stamp.sequence for c in self.commits if c.stamp), default=0)

    @property
    def is_grouped(self) -> bool:
        return self.definition.query == GROUPED


class Disk:
    """What all processes see."""

    def __init__(self) -> None:
        self.bases: dict[str, list[datetime]] = {}  # by name: when each version was committed
        self.tables: dict[str, Stored] = {}  # by table id
        self.staged: dict[str, dict[str, Value]] = {}  # keys and slices, by table id and place
        self.breaks = 0  # so many slices fail before one is computed
        self.bad_rows = 0  # on so many more the query itself fails
        self.unanswered: list[str] = []  # commits that fail next: BEFORE or AFTER they happened
        self.type: str | None = None  # of what queries return; None: as the table was declared

    def stored(self, table_id: str) -> Stored:
        """A table; who was paused for too long finds none, if it was dropped."""
        if table_id not in self.tables:
            raise FileNotFoundError(table_id)
        return self.tables[table_id]

    def value(self, source: Source, version: int) -> Value:
        if source.dynamic_id is None:
            return (source.name.name, version)
        found = self.stored(source.dynamic_id).values[version]
        assert found is not None, "a table is read before it was loaded"
        return found

    def value_of(self, source: Source, version: int, key: int | None) -> Value:
        """What a source has to say about one key."""
        if source.dynamic_id is None:
            last = next(v for v in range(version, -1, -1) if v == 0 or _changes(v, key))
            return (source.name.name, last)
        value = self.value(source, version)
        if not self.stored(source.dynamic_id).is_grouped:
            return value
        return next(row for row in value[1:] if row[0] == key)

    def columns(self, definition: Definition) -> tuple[Column, ...]:
        """What its query returns now; with other types, a refresh changes the definition."""
        declared = definition.stored_columns
        return tuple(replace(column, type=self.type or column.type) for column in declared)

    def affected(self, source: Source, since: int, to: int) -> set[int | None]:
        """The keys that a source touches between two versions."""
        if source.dynamic_id is None:
            return {touched(version) for version in range(since + 1, to + 1)}
        then, now = ({k: self.value_of(source, v, k) for k in KEYS} for v in (since, to))
        return {key for key in KEYS if then[key] != now[key]}

    def staging(self, table_id: str, place: str) -> Value:
        """What was staged there; who was paused for too long finds nothing."""
        there = self.staged.get(table_id, {})
        if place not in there:
            raise FileNotFoundError(place)
        return there[place]

    def stage(self, table_id: str, place: str, value: Value) -> None:
        self.staged.setdefault(table_id, {})[place] = value

    def commit(self, definition: Definition, value: Value | None, stamp: Stamp) -> None:
        """What is answered may get lost."""
        lost = self.unanswered.pop(0) if self.unanswered else None
        if lost == BEFORE:
            raise OSError("it could not be committed")
        self._commit(self.stored(definition.table_id), value, stamp)
        if lost == AFTER:
            raise OSError("committed, but nobody answers")

    def _commit(self, stored: Stored, value: Value | None, stamp: Stamp) -> None:
        """As Delta does: a number that stands already is skipped, silently."""
        if stamp.sequence <= stored.sequence:
            return
        before = stored.values[-1] if stored.values else None
        stored.commits.append(
            Commit(
                version=len(stored.commits),
                operation="WRITE",
                changes_data=value is not None,
                stamp=stamp,
                metrics={} if value is None else {"numOutputRows": str(len(value) - 1)},
            )
        )
        stored.values.append(before if value is None else value)


def _changes(version: int, key: int | None) -> bool:
    return touched(version) == key and version % QUIET != 0


@dataclass(frozen=True)
class OneRow:
    """The result of a query at a cut; of a grouped one, behind its name, a row for every key."""

    columns: tuple[Column, ...]
    value: Value


class MemoryLake:
    """The disk as one process sees it; `pass_gate` is called before each look and each commit."""

    faults = (OSError, BadRow)
    can_slice = True
    one_driver_at = ()
    no_work = Work()

    def __init__(self, disk: Disk, pass_gate: Callable[[], None]) -> None:
        self._disk, self._pass_gate = disk, pass_gate

    def source_state(self, source: Source) -> SourceState:
        if source.dynamic_id is not None:
            version = len(self._disk.stored(source.dynamic_id).commits) - 1
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

    def plan_of(self, definition: Definition) -> DeltaPlan | NotIncremental:
        if definition.query == GROUPED:
            return PLAN
        return NotIncremental(Reason.GLOBAL_LIMIT, "of no interest here")

    def sizes(self, _definition: Definition, _moves: Any) -> None:
        return None

    def layout(self, _definition: Definition) -> Layout:
        return Layout()

    def is_laid_out(self, definition: Definition) -> bool:
        return definition.table_id in self._disk.tables

    def lay_out(self, definition: Definition) -> None:
        self._pass_gate()
        self._disk.tables.setdefault(definition.table_id, Stored(definition))

    def publish(self, _definition: Definition) -> None:
        return None

    def unpublish(self, _definition: Definition) -> None:
        return None

    def erase(self, definition: Definition) -> None:
        self._pass_gate()
        self._disk.tables.pop(definition.table_id, None)
        self._disk.staged.pop(definition.table_id, None)

    def check_options(self, _name: Any, _options: Any) -> None:
        return None

    def apply_layout(self, _definition: Definition, _changed: Any) -> None:
        return None

    def save_definition(self, definition: Definition) -> None:
        self._pass_gate()
        stored = self._disk.stored(definition.table_id)
        stored.definition = max(stored.definition, definition, key=lambda item: item.revision)

    def standing(self, definition: Definition) -> Standing:
        self._pass_gate()
        stored = self._disk.stored(definition.table_id)
        return Standing(
            sequence=stored.sequence,
            version=len(stored.commits) - 1,
            definition=stored.definition,
            columns=definition.stored_columns,
        )

    def commits(self, definition: Definition, after: int, to: int) -> tuple[Commit, ...]:
        stored = self._disk.stored(definition.table_id)
        return tuple(c for c in reversed(stored.commits) if after < c.version <= to)

    @contextmanager
    def work_area(
        self, _definition: Definition, _label: str, **_how: object
    ) -> Iterator[MemoryArea]:
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

    def is_alive(self) -> bool:
        return True

    def told(self, error: BaseException, *, about: str) -> RefreshError:
        query = isinstance(error, BadRow)
        reason = Reason.QUERY_FAILED if query else Reason.ENGINE_FAILED
        return RefreshError(str(error), reason=reason, about=about)


class MemoryArea:
    """Where one table is refreshed."""

    def __init__(self, disk: Disk, pass_gate: Callable[[], None]) -> None:
        self._disk, self._pass_gate = disk, pass_gate
        self._rows: OneRow | None = None
        self.affected: set[int | None] | None = None  # keys, if several workers share them

    def compute(self, definition: Definition, pins: Sequence[Pin], _instant: datetime) -> OneRow:
        columns = self._disk.columns(definition)
        if definition.query == GROUPED:
            return replace(self.rows_of(definition, KEYS, pins), columns=columns)
        read = [
            self._disk.value(source, pin.version)
            for source, pin in zip(definition.sources, pins, strict=True)
        ]
        return OneRow(columns, (definition.name.name, *read))

    def rows_of(
        self, definition: Definition, keys: Iterable[int | None], pins: Sequence[Pin]
    ) -> OneRow:
        """The rows of some keys."""
        pairs = list(zip(definition.sources, pins, strict=True))
        rows = (
            (key, *(self._disk.value_of(source, pin.version, key) for source, pin in pairs))
            for key in keys
        )
        return OneRow(definition.stored_columns, (definition.name.name, *rows))

    def delta(
        self,
        definition: Definition,
        _plan: DeltaPlan,
        strategy: Strategy,
        moves: Moves,
        base: int,
        too_many: Callable[[int], bool] | None,
    ) -> Delta | Affected:
        assert strategy is Strategy.KEYS
        keys = set[int | None]()
        for source, then, now in zip(definition.sources, moves.before, moves.after, strict=True):
            keys |= self._disk.affected(source, then.version, now.version)
        if too_many is not None and too_many(len(keys)):
            self.affected = keys
            return Affected(keys=len(keys))
        rows = self.rows_of(definition, keys, moves.after)
        return Delta(changes=self.replace(rows, definition, base))

    def replace(self, rows: OneRow, definition: Definition, base: int) -> int:
        """Keep what the table is with these rows instead of those of the same keys."""
        stored = self._disk.stored(definition.table_id).values[base]
        assert stored is not None
        new = {row[0]: row for row in rows.value[1:]}
        after = [new.get(row[0], row) for row in stored[1:]]
        self._rows = OneRow(rows.columns, (stored[0], *after))
        return sum(old != now for old, now in zip(stored[1:], after, strict=True))

    def slicer(self, definition: Definition, sequence: int) -> MemorySlicer:
        return MemorySlicer(self, self._disk, self._pass_gate, definition, sequence)

    def difference_size(self, rows: OneRow, definition: Definition, base: int) -> int:
        self._rows = rows
        stored = self._disk.stored(definition.table_id).values
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
    """A slice of a grouped table is the rows of some keys. Of others it is the whole row, and all
    slices must have been computed from the same versions."""

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

    @property
    def _keys_place(self) -> str:
        return f"{self._sequence}/keys"

    def size(self, _pins: Sequence[Pin]) -> int:
        return 100

    def split(self, _strategy: Strategy, count: int, _pins: Sequence[Pin]) -> Split:
        return Split(kind=SplitKind.HASH_RANGE, columns=("a",), count=count)

    def stage_keys(self, split: Split) -> StagedKeys:
        """Write the affected keys down, in the order of KEYS."""
        self._pass_gate()
        assert self._area.affected is not None, "delta comes first"
        keys = tuple(key for key in KEYS if key in self._area.affected)
        self._disk.stage(self._definition.table_id, self._keys_place, keys)
        counts = Counter(slice_of(key, split) for key in keys)
        return StagedKeys(split=split, key=("a",), counts=counts)

    def _staged_keys(self) -> Value:
        return self._disk.staging(self._definition.table_id, self._keys_place)

    def compute(
        self, slicing: Slicing, slice_no: int, token: int, pins: Sequence[Pin], instant: datetime
    ) -> Part:
        self._pass_gate()
        if self._disk.breaks:
            self._disk.breaks -= 1
            raise OSError("no executor is left")
        if self._disk.bad_rows:
            self._disk.bad_rows -= 1
            raise BadRow("division by zero")
        if slicing.definition.query != GROUPED:
            rows = self._area.compute(slicing.definition, pins, instant)
        else:
            keys = self._staged_keys() if slicing.strategy is Strategy.KEYS else KEYS
            mine = [key for key in keys if slice_of(key, slicing.split) == slice_no]
            rows = self._area.rows_of(slicing.definition, mine, pins)
        place = f"{self._sequence}/{slice_no}-{token}"
        self._disk.stage(self._definition.table_id, place, rows.value)
        return Part(location=place, rows=len(rows.value) - 1, checksum=str(rows.value))

    def gather(
        self, slicing: Slicing, parts: dict[int, Part], _pins: Sequence[Pin], _instant: datetime
    ) -> OneRow:
        self._pass_gate()
        assert set(parts) == set(slicing.slices)
        table_id, columns = self._definition.table_id, slicing.definition.stored_columns
        found = {n: self._disk.staging(table_id, part.location) for n, part in parts.items()}
        assert [str(value) for value in found.values()] == [p.checksum for p in parts.values()]
        if slicing.definition.query != GROUPED:
            [value] = set(found.values())
            return OneRow(columns, value)
        rows = {row[0]: (n, row) for n, value in found.items() for row in value[1:]}
        assert len(rows) == sum(part.rows for part in parts.values()), "slices overlap"
        assert all(slice_of(key, slicing.split) == n for key, (n, _) in rows.items())
        together = (rows[key][1] for key in KEYS if key in rows)
        return OneRow(columns, (slicing.definition.name.name, *together))

    def difference(self, rows: OneRow, _slicing: Slicing, base: int) -> int:
        assert tuple(row[0] for row in rows.value[1:]) == self._staged_keys()
        return self._area.replace(rows, self._definition, base)

    def discard(self, part: Part) -> None:
        self._disk.staged.get(self._definition.table_id, {}).pop(part.location, None)
