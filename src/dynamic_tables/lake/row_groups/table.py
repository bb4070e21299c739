"""A Delta table whose row groups are put in order: list, write, verify, commit.

Nothing is visible before the one commit at the end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from dynamic_tables.errors import InternalError, InvalidInput, Refused
from dynamic_tables.lake import jvm, snapshots
from dynamic_tables.lake.faults import SPARK_FAULTS, headline
from dynamic_tables.lake.lock import commit_lock
from dynamic_tables.lake.places import arrow_uri, local_path
from dynamic_tables.lake.row_groups import statistics, verifying, writing
from dynamic_tables.lake.row_groups.arrow import Batches, map_in_arrow, send_along
from dynamic_tables.lake.row_groups.choosing import Facts, sharing
from dynamic_tables.lake.row_groups.committing import Committed, commit, new_actions
from dynamic_tables.lake.row_groups.features import check_features
from dynamic_tables.lake.row_groups.files import (
    PARTITION,
    Partition,
    numbered,
    partitions_of,
    rows_of,
    states_of,
)
from dynamic_tables.lake.row_groups.order import Order
from dynamic_tables.lake.row_groups.refusals import ranged_column
from dynamic_tables.lake.row_groups.schemas import Schema, schema_of
from dynamic_tables.lake.row_groups.sizes import (
    SMALL_TASK_BYTES,
    TASK_BYTES,
    least_file_bytes,
)
from dynamic_tables.lake.row_groups.writing import NEW_FILE_COLUMNS, NewFile, Target
from dynamic_tables.lake.sessions import private_session, result_settings
from dynamic_tables.names import quote
from dynamic_tables.reasons import Reason

IN_BATCHES = {  # of what is handed to Arrow: one of them is held beside a row group
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 * 2**20),
}
# A commit whose answer was lost, and which is tried again, must not meet itself as a conflict.
KNOWS_ITSELF = {"spark.databricks.delta.commit.idempotencyCheck.enabled": "true"}
NO_ROW_IDS = {"baseRowId": -(10**15), "defaultRowCommitVersion": -1}  # of rows that lost theirs


class RowGroupTable:
    """One version of a table, and what becomes of its files."""

    def __init__(
        self, spark: SparkSession, log: jvm.Java, *, name: str, lock_wait_s: float
    ) -> None:
        namespace = (spark.catalog.currentCatalog(), spark.catalog.currentDatabase())
        settings = {**result_settings(spark), **IN_BATCHES, **KNOWS_ITSELF}
        self._session = private_session(spark, settings=settings, namespace=namespace)
        self._log, self.name = log, name
        self._lock_wait_s = lock_wait_s
        with self._active():
            self._snapshot = snapshots.newest_snapshot(self._session, log)
            if self._snapshot.version() < 0:
                raise InvalidInput(
                    "there is no Delta table here", reason=Reason.UNKNOWN_SOURCE, about=name
                )
            check_features(self._snapshot, name)
            self.schema: Schema = schema_of(self._snapshot, name)

    @property
    def location(self) -> str:
        return self._log.dataPath().toString()

    @property
    def version(self) -> int:
        return self._snapshot.version()

    def checked(self, order: Order) -> Order:
        """The order with the names of columns as the table has them; refuses unfit columns."""
        find = self.schema.find
        key = find(order.unique_by, what="unique_by")
        others = [find(name, what="sort_by") for name in order.sort_by]
        return replace(
            order,
            unique_by=key.name,
            sort_by=tuple(field.name for field in others),
            physical=tuple(map(self.schema.physical_name, (key, *others))),
        )

    def ranged_column(self) -> str:
        return ranged_column(self.schema.partition_columns, self.name)

    def partitions(self, where: str | None) -> list[Partition]:
        with self._active():
            return partitions_of(self._session, self._log, self._snapshot, self.schema, where)

    def write(self, partitions: Sequence[Partition], order: Order) -> list[NewFile]:
        """The same rows in new files; nobody knows of them yet."""
        if not partitions:
            return []
        send_along(writing, statistics)
        target = self._target(partitions, order)

        def task(batches: Batches) -> Batches:
            return writing.told(writing.written(target, batches))

        with self._active():
            self._probe(target)
            made = map_in_arrow(self._sorted(partitions, order), task, NEW_FILE_COLUMNS)
            return [NewFile(**row.asDict()) for row in made.collect()]

    def _probe(self, target: Target) -> None:
        """Whether executors can write there with Arrow, which has credentials of its own.

        Rows would be sorted for long before the first of them fails.
        """
        if "://" not in target.root:
            return

        def task(_batches: Batches) -> Batches:
            return writing.probed(target.root)

        rows = self._session.range(1)
        try:
            map_in_arrow(rows, task, "name STRING").collect()
        except SPARK_FAULTS as error:
            raise Refused(
                f"executors cannot write to it with Arrow: {headline(error)}",
                reason=Reason.NO_PERMISSION,
                about=self.name,
                hint="give them credentials in their environment, or use engine='native', which"
                " writes with Spark's",
            ) from error

    def _target(self, partitions: Sequence[Partition], order: Order) -> Target:
        location = self.location
        local = local_path(location)
        return Target(
            root=str(local) if local is not None else arrow_uri(location),
            folders={partition.number: partition.folder for partition in partitions},
            key=order.physical[0],
            bounded=order.physical,
            field_ids=self.schema.field_ids,
            leaves=self.schema.leaves,
            values_per_row_group=order.values_per_row_group,
            row_group_bytes=order.row_group_bytes,
            file_bytes=least_file_bytes(sum(partition.size for partition in partitions)),
            metadata={"org.apache.spark.version": self._session.version},  # new calendar
        )

    def _sorted(self, partitions: Sequence[Partition], order: Order) -> DataFrame:
        """Rows as files have them, in order; equal values are in one task."""
        rows = self._rows(partitions)
        row_ids = [F.col(quote(name)) for name in self.schema.row_ids or ()]
        stored = rows.select(F.col(PARTITION), *self.schema.as_stored(), *row_ids)
        key, *others = map(quote, order.physical)
        tasks = self._tasks(sum(partition.size for partition in partitions))
        return stored.repartitionByRange(tasks, PARTITION, key).sortWithinPartitions(
            PARTITION, key, *others
        )

    def _tasks(self, size: int) -> int:
        cores = self._session.sparkContext.defaultParallelism
        return max(-(-size // TASK_BYTES), min(cores, -(-size // SMALL_TASK_BYTES)), 1)

    def _rows(self, partitions: Iterable[Partition]) -> DataFrame:
        files = [(file, p.number) for p in partitions for file in p.files]
        rows = self._rows_in([file.action for file, _ in files])
        return numbered(rows, [(file.uri, number) for file, number in files])

    def _rows_in(self, files: Sequence[jvm.Java]) -> DataFrame:
        return rows_of(self._session, self._log, self._snapshot, files, self.schema)

    def count_values(
        self, partitions: Sequence[Partition], order: Order
    ) -> dict[int, tuple[int, int]]:
        """Rows and, about, different values in each partition, by its number."""
        if not partitions:
            return {}
        values = F.approx_count_distinct(F.col(quote(order.unique_by)))
        with self._active():
            counted = self._rows(partitions).groupBy(PARTITION).agg(F.count("*"), values).collect()
        return {number: (rows, max(values, 1)) for number, rows, values in counted}

    def weighed(self, order: Order, partitions: Sequence[Partition]) -> Order:
        """The order with as many values a row group as are best for the largest partition."""
        if not partitions:
            return order
        largest = max(partitions, key=lambda partition: partition.size)
        rows, values = self.count_values([largest], order).get(largest.number, (0, 0))
        columns = self.schema.leaf_count
        facts = Facts(bytes=largest.size, rows=rows, values=values, columns=columns)
        return replace(order, values_per_row_group=sharing(facts))

    def verify(
        self, partitions: Sequence[Partition], files: Sequence[NewFile], order: Order
    ) -> None:
        """The new files, read back, have the rows of the old ones, all columns of them."""
        if not partitions:
            return
        with self._active():
            more = NO_ROW_IDS if self.schema.row_ids is not None else {}
            actions = new_actions(self._session, partitions, files, order.tag, more=more)
            places = [action.absolutePath(self._log).toUri().toString() for action in actions]
            numbers = zip(places, (file.partition for file in files), strict=True)
            read_back = numbered(self._rows_in(actions), numbers)
            differing = verifying.differing(
                self._rows(partitions), read_back, self.schema.columns, self.schema.row_ids or ()
            )
        if differing:
            raise InternalError(
                f"{len(differing)} partitions read back differ from what was written;"
                " nothing was committed",
                reason=Reason.INTERNAL,
                about=self.name,
                hint="please report this; VACUUM removes the files that were written",
            )

    def commit(
        self, partitions: Sequence[Partition], files: Sequence[NewFile], order: Order
    ) -> Committed:
        with self._active():
            return commit(
                self._session,
                self._log,
                self._snapshot,
                partitions=partitions,
                files=files,
                tag=order.tag,
                name=self.name,
                row_ids=self.schema.row_ids is not None,
            )

    def locked(self) -> AbstractContextManager[None]:
        """Alone among the processes that commit through us; Delta itself knows the others."""
        return commit_lock(self._session, self.location, about=self.name, wait_s=self._lock_wait_s)

    def discard(self, files: Collection[NewFile]) -> None:
        """Delete files that no commit names; what cannot be deleted is left to VACUUM."""
        if not files:
            return
        with self._active():
            newest = snapshots.newest_snapshot(self._session, self._log)
            named = {path.rpartition("/")[2] for path, _ in states_of(newest, self._log)}
        for file in files:
            if file.path.rpartition("/")[2] not in named:
                path, system = jvm.hadoop_path(self._session, f"{self.location}/{file.path}")
                with suppress(*SPARK_FAULTS):
                    system.delete(path, False)

    def _active(self) -> AbstractContextManager[None]:
        return jvm.active(self._session)
