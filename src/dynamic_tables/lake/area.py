"""A private session in which one table is refreshed: compute, commit, measure."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark import StorageLevel
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from dynamic_tables.compiler.plan import DeltaPlan
from dynamic_tables.definition import Column, Definition
from dynamic_tables.lake import bags, catalog, committing, parts
from dynamic_tables.lake.base import Delta, Difference, Moves, Progress, Stamp
from dynamic_tables.lake.changes import TooMany
from dynamic_tables.lake.faults import SPARK_FAULTS, headline, told
from dynamic_tables.lake.files import rows_at
from dynamic_tables.lake.holding import Holder, Kept
from dynamic_tables.lake.maintenance import Maintenance
from dynamic_tables.lake.measure import Meter
from dynamic_tables.lake.pins import column_change, pin_of, schema_changed
from dynamic_tables.lake.slices import SparkSlicer
from dynamic_tables.lake.slicing import Affected
from dynamic_tables.lake.transaction import Written
from dynamic_tables.model import Pin, Strategy, Work
from dynamic_tables.names import quote
from dynamic_tables.options import RefreshMode
from dynamic_tables.reasons import Reason

if TYPE_CHECKING:
    from dynamic_tables.lake.delta import SparkLake

LAID_OUT = 0  # the version of a stored table that has been made and nothing else
COMPARED_AT_MOST = 3  # times; who compacts through us waits for the commit lock after the first
SAMPLE_ROWS = 20  # how many differing rows `verify` shows


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkRows:
    """The result of a query at a cut; nothing has run yet."""

    frame: DataFrame
    columns: tuple[Column, ...]


class SparkArea:
    """See `lake.base.WorkArea`."""

    def __init__(self, lake: SparkLake, session: SparkSession, label: str) -> None:
        self._lake = lake
        self._session = session
        self._meter = Meter(session, label)
        self._holder = Holder(session)
        self._kept: Kept | Written | None = None
        self._compare: Callable[[int], bool] | None = None  # with another version of what is stored
        self._replaced_rows: int | None = None
        self._cardinality_ratio: float | None = None
        self.affected: DataFrame | None = None  # keys that several workers are to share

    # Computing

    def compute(self, definition: Definition, pins: Sequence[Pin], instant: datetime) -> SparkRows:
        """The query of a definition at a cut, with the columns it was declared with."""
        reading = self._lake.read_definition(self._session, definition)
        pins = [pin_of(pins, source) for source in definition.sources]
        changed = self._lake.remaining_columns(definition, pins)
        query = self._lake.pinned(
            self._session, reading, definition, pins, instant, columns=changed
        )
        try:
            frame = query.frame(definition.stored_query, definition.namespace)
        except AnalysisException as error:
            if told(error, about=str(definition.name)).reason is not Reason.QUERY_FAILED:
                raise  # a catalog's service that did not answer says nothing of columns
            raise schema_changed(definition, changed, headline(error)) from error
        names = [column.name for column in definition.stored_columns]
        if what := column_change(names, frame.columns):
            raise schema_changed(definition, changed, what)
        frame = frame.toDF(*names)
        return SparkRows(frame=frame, columns=catalog.columns_of(frame._jdf.schema()))

    def delta(
        self,
        definition: Definition,
        plan: DeltaPlan,
        strategy: Strategy,
        moves: Moves,
        base: int,
        too_many: TooMany | None = None,
    ) -> Delta | Affected | Reason:
        """Keep what the sources' changes make of the table; a reason if they cannot be had.

        If so many keys are affected that they are `too_many`, keep the keys.
        """
        maintenance = Maintenance(
            self._lake, self._session, self._holder, definition, plan, moves, base, too_many
        )
        try:
            found = maintenance.find(strategy)
        finally:
            self._cardinality_ratio = maintenance.cardinality_ratio
        self.affected = maintenance.affected
        if isinstance(found, (Affected, Reason)):
            return found
        self._kept = found.kept

        def again(version: int) -> bool:
            return isinstance(self.delta(definition, plan, strategy, moves, version), Delta)

        self._compare = again
        return found.delta

    # Committing

    def overwrite(self, rows: SparkRows, definition: Definition, stamp: Stamp) -> None:
        """Replace all rows in one commit."""
        standing = self._target(definition, stamp.base)
        same_columns = catalog.columns_of(standing._jdf.schema()) == rows.columns
        is_new = stamp.base == LAID_OUT and same_columns  # nothing to replace
        known = 0 if is_new else self._lake.row_count(definition)
        self._replaced_rows = standing.count() if known is None else known
        committing.overwrite(
            self._session,
            definition,
            rows.frame,
            stamp,
            sort_by=self._sort_columns(definition),
            same_columns=same_columns,
            is_new=is_new,
        )

    def _sort_columns(self, definition: Definition) -> Sequence[str]:
        options = definition.options
        if options.partitioned_by or options.refresh_mode is RefreshMode.FULL:
            return ()  # Spark sorts by partition itself; nobody looks for rows
        plan = self._lake.plan_of(definition)
        return plan.sort_columns() if isinstance(plan, DeltaPlan) else ()

    def difference_size(self, rows: SparkRows, definition: Definition, base: int) -> int:
        """Compare with the stored rows as bags, keep the difference; its number of rows.

        A small one is kept in the driver: MERGE then broadcasts it instead of computing it again.
        """

        def again(version: int) -> bool:
            self.difference_size(rows, definition, version)
            return True

        self._compare = again
        stored, new = bags.placed(self._target(definition, base)), rows.frame
        if definition.in_parts is not None:  # groups that are the same stay as they are stored
            new = self._holder.persist(new)
            apart = bags.counted(
                new, parts.folded(stored, definition.in_parts).select(*map(quote, new.columns))
            )
            groups = self._holder.held(parts.groups_of(apart, definition.in_parts.keys)).frame
            stored, new = (
                parts.of_groups(r, groups, definition.in_parts.keys) for r in (stored, new)
            )
        return self.keep(bags.counted(new, stored))

    def apply_difference(self, definition: Definition, stamp: Stamp) -> None:
        """One commit that deletes and inserts exactly what differs.

        It carries the same number and cut, to whichever version of the stored rows it is made.
        """
        assert self._kept is not None, "difference_size or delta comes first"
        compared = 1
        while not self._applied(definition, stamp):
            if compared == COMPARED_AT_MOST:
                raise committing.changed_meanwhile(definition)
            stamp = replace(stamp, base=self._compared_anew(definition, stamp.base))
            compared += 1

    def _applied(self, definition: Definition, stamp: Stamp) -> bool:
        if self._kept is None or not self._kept.size:  # any more, now that groups are whole
            self.fence(definition, stamp)
            return True
        if isinstance(self._kept, Written) or self._kept.only_inserts:
            self._replaced_rows = 0
        return committing.apply_difference(
            self._session,
            definition,
            self._kept,
            stamp,
            newest=lambda: self._lake.version_of(definition),
        )

    def _compared_anew(self, definition: Definition, base: int) -> int:
        """Compare with what stands now; its version. Raises if it is more than compacted."""
        version = self._lake.version_of(definition)
        commits = self._lake.commits(definition, base, version)
        same_rows = not any(commit.changes_data for commit in commits)
        if len(commits) < version - base or not same_rows:
            raise committing.changed_meanwhile(definition)
        if self._compare is None or not self._compare(version):
            raise committing.changed_meanwhile(definition)
        return version

    def slicer(self, definition: Definition, sequence: int) -> SparkSlicer:
        return SparkSlicer(self._lake, self, definition, sequence)

    def keep(self, difference: DataFrame) -> int:
        """Hold on to what differs, for `apply_difference`; its number of rows."""
        self._kept = self._holder.keep(difference)
        return self._kept.size

    def maintenance(self, definition: Definition, plan: DeltaPlan, moves: Moves) -> Maintenance:
        """The rows of a table, whatever is stored of them."""
        return Maintenance(self._lake, self._session, self._holder, definition, plan, moves, 0)

    @property
    def session(self) -> SparkSession:
        return self._session

    def fence(self, definition: Definition, stamp: Stamp) -> None:
        committing.fence(self._session, definition, stamp)

    def _target(self, definition: Definition, version: int) -> DataFrame:
        return rows_at(self._session, definition.location, version)

    # Checking and telling

    def verify(self, rows: SparkRows, definition: Definition, version: int) -> Difference:
        """Compare the query at its cut with the rows that the table shows, both ways."""
        shown = self._lake.shown(self._target(definition, version), definition)
        difference = bags.counted(rows.frame, shown)
        if definition.approximate:
            difference = bags.without_rounding(difference, definition.approximate)
        difference = difference.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            here, there = F.col(bags.HERE), F.col(bags.THERE)
            totals = difference.agg(
                F.sum(F.greatest(here - there, F.lit(0))), F.sum(F.greatest(there - here, F.lit(0)))
            ).collect()[0]
            some = difference.drop(bags.PLACES).limit(SAMPLE_ROWS).collect()
            sample = [_readable(row.asDict()) for row in some]
        finally:
            difference.unpersist()
        return Difference(missing=totals[0] or 0, unexpected=totals[1] or 0, sample=tuple(sample))

    def work(self) -> Work:
        cost = self._meter.cost()
        return Work(
            bytes_read=cost.bytes_read,
            files_read=cost.files_read,
            spark_jobs=cost.jobs,
            rows_deleted=self._replaced_rows,
            cardinality_ratio=self._cardinality_ratio,
        )

    def progress(self) -> Progress:
        return self._meter.progress()

    def cancel(self) -> None:
        self._meter.cancel()

    @contextmanager
    def open(self) -> Generator[SparkArea]:
        """A JVM that has died meanwhile has nothing to be put in order: what stands, stands."""
        self._meter.start()
        try:
            yield self
        finally:
            with suppress(*SPARK_FAULTS):
                self._meter.stop()
                self._holder.release()


def _readable(row: dict[str, Any]) -> dict[str, Any]:
    here, there = row.pop(bags.HERE), row.pop(bags.THERE)
    return {"_difference": "missing" if here > there else "unexpected", **row}
