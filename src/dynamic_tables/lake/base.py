"""What a refresh needs from a lake, and the values that pass between them.

The refresh is written against `Lake` alone, so that the argument why a crash loses nothing is made
once, for every lake. A lake knows nothing of the store.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from dynamic_tables.compiler.plan import DeltaPlan
from dynamic_tables.compiler.refused import NotIncremental
from dynamic_tables.definition import Column, Definition, Hidden, Source, ViewUse
from dynamic_tables.errors import RefreshError
from dynamic_tables.model import Pin, Strategy, Work
from dynamic_tables.names import TableName
from dynamic_tables.options import Options
from dynamic_tables.reasons import Reason

if TYPE_CHECKING:
    from dynamic_tables.lake.slicing import Affected, Slicer


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """A table of the lake as it is now."""

    source_id: str  # the lake's own table id, which a name may lose to another table
    version: int
    columns: tuple[Column, ...]
    location: str
    has_feed: bool = False
    bytes: int = 0
    kept_s: float | None = None  # for so long its history can be read; None: until somebody acts


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicSource:
    """A dynamic table as a possible source of another one."""

    table_id: str
    location: str
    loaded: bool  # if not, its name is not registered yet; its columns are known all the same
    columns: tuple[Column, ...]
    hidden: Hidden | None = None


DynamicSources = Mapping[str, DynamicSource]  # by name key


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """What a query is, as Spark sees it."""

    columns: tuple[Column, ...]
    canonical: str  # the text with qualified sources, dynamic ones by id: a rename changes nothing
    sources: tuple[Source, ...]
    without_feed: tuple[TableName, ...]  # base tables whose change feed is off
    source_bytes: int  # what a full load reads at most
    views: tuple[ViewUse, ...]
    settings: Mapping[str, str]
    reads_clock: bool
    deterministic: bool
    approximate: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The stored table of a dynamic table as it is now."""

    sequence: int  # the newest n that stands, 0 before the first load
    version: int  # the newest Delta version
    definition: Definition  # as the table's properties have it
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One commit in the log of a Delta table."""

    version: int
    operation: str
    changes_data: bool
    stamp: Stamp | None  # None: not ours
    metrics: Mapping[str, str]
    replaces: bool = False  # an overwrite: rows went that no metric tells of
    removes: bool = True  # a file went, or some of its rows; or nothing tells
    changed_bytes: int = 0  # of the files that its change feed is read from: the rows that changed
    read_bytes: int = 0  # of the same files: all of them, which is what is read
    read_files: int = 0
    committed_at: datetime | None = None  # None: the log does not tell
    redefines: bool = True  # columns may have changed: it has a word about them, or nothing tells


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """What our commits carry as `userMetadata`: enough to rebuild the store's record from the
    lake."""

    table_id: str
    refresh_id: str
    sequence: int
    cut: Mapping[str, Any]
    pins: Sequence[Mapping[str, Any]]
    fingerprint: str
    strategy: str
    base: int  # the target's version that the refresh started from
    writer: str  # which process made it: whoever completes an intent keeps its refresh id

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Rows that a table has too many or too few of, against its query."""

    missing: int  # in the query, not in the table
    unexpected: int  # in the table, not in the query
    sample: tuple[Mapping[str, Any], ...]  # some of them, with `_difference` = missing | unexpected

    @property
    def none(self) -> bool:
        return self.missing == 0 and self.unexpected == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far one refresh under way is; a lake that cannot tell says zero of zero."""

    label: str
    jobs_done: int = 0
    jobs: int = 0
    tasks_done: int = 0
    tasks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves:
    """From which state of the sources to which one a refresh goes."""

    before: Sequence[Pin]
    after: Sequence[Pin]
    then: datetime  # the instant of the last cut
    now: datetime
    moved: frozenset[str]  # name keys of the sources whose rows changed
    clock_moved: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """What the changes of the sources make of a table; the area keeps the rows."""

    changes: int  # rows to write, at most; 0: the changes cancel


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What is known of a refresh before it, from logs and checksums."""

    changed_rows: int | None  # of the sources; overwritten ones are netted; None: not known
    changed_bytes: int
    source_bytes: int
    stored_bytes: int
    beside_bytes: int = 0  # of the sources that changed rows are joined with
    stored_rows: int | None = None  # None: nothing tells without a job
    only_adds: bool = True  # no row of a source went or became another one
    unchanged_bytes: int = 0  # of the files that changes are read from: rows that stay as they are


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How a table is stored, as far as is known without reading it."""

    small_files: int = 0  # that compaction would merge
    rows: int = 0
    partial_rows: int = 0  # of them: appended beside what is stored of their groups
    unordered_percent: int = 0  # of the bytes: in files that are not in the order of ROW_GROUPS BY


Remaining = Mapping[str, tuple[str, ...]]  # of changed sources, by name key: columns that count


class Rows(Protocol):
    """The result of a query at a cut, ready to be written."""

    @property
    def columns(self) -> tuple[Column, ...]: ...


class Lake(Protocol):
    """A lake, as the refresh and the public object see it."""

    # Declaring
    def namespace(self) -> tuple[str, str]: ...
    def analyse(self, query: str, dynamic: DynamicSources) -> Analysis: ...
    def check_name(self, name: TableName, *, instead_of: TableName | None = None) -> None: ...
    def check_options(self, name: TableName, options: Options) -> None: ...
    def location_for(self, name: TableName, table_id: str) -> str: ...
    def is_laid_out(self, definition: Definition) -> bool: ...
    def lay_out(self, definition: Definition) -> None: ...
    def publish(self, definition: Definition) -> None: ...
    def unpublish(self, definition: Definition) -> None: ...
    def save_definition(self, definition: Definition) -> None: ...
    def erase(self, definition: Definition) -> None: ...
    def apply_layout(self, definition: Definition, changed: Collection[str]) -> None: ...
    def rename_in(self, definition: Definition, old: TableName, new: TableName) -> str: ...
    def optimize(self, definition: Definition, *, files_only: bool = False) -> None: ...
    def layout(self, definition: Definition) -> Layout: ...
    def stored_definitions(self) -> Iterator[Definition]: ...

    # Reading: statements and frames of the lake's own engine
    def run(self, text: str) -> Any: ...
    def store_views(
        self, text: str, names: Collection[str], rows_of: Callable[[str], Any]
    ) -> AbstractContextManager[None]: ...
    def read(self, definition: Definition, version: int | None) -> Any: ...
    def changes(self, definition: Definition, start: int, end: int) -> Any: ...
    def pinned_sql(self, definition: Definition, pins: Sequence[Pin], instant: datetime) -> str: ...
    @property
    def session(self) -> Any: ...  # raises SetupError where there is no Spark
    def close(self) -> None: ...

    # Refreshing
    def source_state(self, source: Source) -> SourceState: ...
    def moved(self, source: Source, since: int, to: int) -> bool: ...
    def remaining_columns(self, definition: Definition, pins: Sequence[Pin]) -> Remaining: ...
    def changed_at(self, source: Source, since: int, to: int) -> datetime | None: ...
    def plan_of(self, definition: Definition) -> DeltaPlan | NotIncremental: ...
    def query_columns(self, definition: Definition) -> tuple[Column, ...]: ...
    def sizes(  # without moves: of what is there, not of changes; None: not known
        self, definition: Definition, moves: Moves | None
    ) -> Sizes | None: ...
    def rows_only_come(  # by the logs of the sources; None: they do not tell
        self, definition: Definition, moves: Moves
    ) -> bool | None: ...
    def followed(self, definition: Definition, dynamic: DynamicSources) -> Definition: ...
    def standing(self, definition: Definition) -> Standing: ...
    def commits(self, definition: Definition, after: int, to: int) -> tuple[Commit, ...]: ...
    def work_area(  # pins: of a cut that this process did not pin itself
        self, definition: Definition, label: str, *, pins: Sequence[Pin] | None = None
    ) -> AbstractContextManager[WorkArea]: ...
    def commit_lock(self, definition: Definition) -> AbstractContextManager[None]: ...
    def progress(self) -> list[Progress]: ...
    def cancel(self) -> None: ...
    def is_alive(self) -> bool: ...  # False: the engine died, and nothing here brings it back
    @property
    def no_work(self) -> Work: ...  # what a refresh cost that opened no work area
    @property
    def one_driver_at(self) -> tuple[str, ...]: ...  # see `Claimant`
    @property
    def can_slice(self) -> bool: ...  # whether several workers can share one refresh
    def clear_slices(self, definition: Definition, up_to: int) -> None: ...  # of numbers so far
    @property
    def faults(self) -> tuple[type[BaseException], ...]: ...
    def told(self, error: BaseException, *, about: str) -> RefreshError: ...


class WorkArea(Protocol):
    """A private session in which one table is refreshed."""

    def compute(self, definition: Definition, pins: Sequence[Pin], instant: datetime) -> Rows: ...
    def overwrite(self, rows: Any, definition: Definition, stamp: Stamp) -> None: ...
    def delta(
        self,
        definition: Definition,
        plan: DeltaPlan,
        strategy: Strategy,
        moves: Moves,
        base: int,
        too_many: Callable[[int], bool] | None = None,
    ) -> Delta | Affected | Reason: ...  # a reason: the changes cannot be had
    def difference_size(self, rows: Any, definition: Definition, base: int) -> int: ...
    def apply_difference(self, definition: Definition, stamp: Stamp) -> None: ...
    def fence(self, definition: Definition, stamp: Stamp) -> None: ...
    def slicer(self, definition: Definition, sequence: int) -> Slicer: ...  # if `can_slice`
    def verify(self, rows: Any, definition: Definition, version: int) -> Difference: ...
    def work(self) -> Work: ...
