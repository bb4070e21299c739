"""What the changes of the sources make of one table, by each strategy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from dynamic_tables.compiler.emit import WEIGHT
from dynamic_tables.compiler.plan import Situation
from dynamic_tables.errors import InternalError
from dynamic_tables.lake import bags, holding
from dynamic_tables.lake.base import Delta
from dynamic_tables.lake.by_group import GroupChanges
from dynamic_tables.lake.changes import NOTHING, Found, of_keys
from dynamic_tables.lake.deltas import KEYS, SparkLeaves
from dynamic_tables.lake.holding import Kept, is_empty
from dynamic_tables.lake.slicing import Affected
from dynamic_tables.model import Strategy
from dynamic_tables.reasons import Reason


class Maintenance(GroupChanges):
    """One table, its stored rows at a version, and moves of its sources."""

    def find(self, strategy: Strategy) -> Found | Affected | Reason:
        """What the changes make of the table; a reason if they cannot be had."""
        if self._has_other_columns():
            return Reason.SOURCE_SCHEMA_CHANGED
        rows = self._lake.changed_rows(self._definition, self._moves)
        self._holder.changed_rows = rows
        self._holder.expects_few = rows is not None and rows <= holding.SMALL_CHANGES
        return self._from_feeds(lambda: self._by(strategy))

    def _by(self, strategy: Strategy) -> Found | Affected | Reason:
        self._strategy = strategy
        now, leaves = self._situation()
        match strategy:
            case Strategy.KEYS:
                return self._affected(now, leaves)
            case Strategy.MERGE:
                return self._merged(now, leaves)
            case Strategy.FOLD:
                return self._folded(now, leaves)
            case _:
                return self._netted(now, strategy)

    # By key

    def _affected(self, now: Situation, leaves: SparkLeaves) -> Found | Affected | Reason:
        """`keys`: the rows of the affected keys against the stored ones."""
        plan, inexact = self._plan, self._definition.inexact
        keys = plan.affected(now, inexact)
        if keys is None:
            return NOTHING
        affected = self._holder.sent_along(self._holder.held(self._holder.sql(keys)))
        if not affected.size:
            return NOTHING
        affected.frame.createOrReplaceTempView(KEYS)
        if self._exceeds_threshold(affected):
            return Reason.ABOVE_THRESHOLD
        if self._too_many is not None and self._too_many(affected.size):
            self.affected = affected.frame
            return Affected(keys=affected.size)
        leaves.learn(KEYS, affected, affected.frame.columns, by_spans=True)
        columns, rows = plan.exact_key_columns(inexact), plan.rows_of(now, KEYS, inexact)
        stored = leaves.nearby(self._stored, KEYS, columns, self._prunes_stored)
        stored = of_keys(stored, affected.frame, columns)
        return self._found(bags.counted(self._typed(rows), stored))

    def rows_of(self, keys: DataFrame, known: Mapping[int, Sequence[Any]]) -> DataFrame:
        """The rows of some keys as they are now; `known`: all values of some key columns."""
        now, leaves = self._situation()
        for index, values in known.items():
            leaves.know(KEYS, index, values)
        keys.createOrReplaceTempView(KEYS)
        return self._typed(self._plan.rows_of(now, KEYS, self._definition.inexact))

    # By row

    def _netted(self, now: Situation, strategy: Strategy) -> Found | Reason:
        """`rows` and `append`: the signed rows by which the result changed.

        Who wanted to append is asked again before the stored rows are read: they may be many.
        """
        changes = self._plan.changes(now)
        if changes is None:
            return NOTHING
        if strategy is Strategy.APPEND and self._rows_only_come():
            come = bags.only_come(self._typed(changes, WEIGHT))
            written = self._written(come)
            if written is not None:
                return written
        held = self._holder.held(bags.netted(self._typed(changes, WEIGHT)))
        if not held.size:
            return NOTHING
        net = self._holder.sent_along(held).frame
        goes = not is_empty(net.where(F.col(WEIGHT) < 0))
        if strategy is Strategy.APPEND and goes:
            return Reason.ROWS_WENT
        kept = self._holder.keep(bags.applied(net, self._stored() if goes else None))
        if goes:
            self._check_present(kept)
        return Found(Delta(changes=kept.size), kept)

    def _check_present(self, kept: Kept) -> None:
        """A row that goes must be there, as often as it goes."""
        if not is_empty(kept.held.frame.where(F.col(bags.HERE) < 0)):
            raise InternalError(
                "rows are to be deleted that the stored table does not have",
                reason=Reason.INTERNAL,
                about=str(self._definition.name),
                hint=f"REFRESH DYNAMIC TABLE {self._definition.name} FULL, and report this",
            )
