"""What changes make of a table with GROUP BY, from what is stored of its groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import and_

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from dynamic_tables.compiler.emit import key_column
from dynamic_tables.compiler.joined import COMES, OLD
from dynamic_tables.compiler.merge import NEEDS_ROWS
from dynamic_tables.compiler.plan import Merge, Situation, Tables
from dynamic_tables.lake import bags, jvm, parts
from dynamic_tables.lake.base import Delta
from dynamic_tables.lake.changes import NOTHING, Changes, Found, of_keys
from dynamic_tables.lake.deltas import KEYS, SparkLeaves
from dynamic_tables.lake.holding import (
    SIDES,
    Kept,
    checkpointed,
    is_empty,
    keep_computed,
)
from dynamic_tables.names import RESERVED_PREFIX
from dynamic_tables.reasons import Reason

STORED = f"{RESERVED_PREFIX}stored"
MERGED = Tables(
    parts=f"{RESERVED_PREFIX}parts",
    rows=f"{RESERVED_PREFIX}grouped",
    groups=f"{RESERVED_PREFIX}groups",
    keys=KEYS,
)
MOST = 0.5  # share of the stored rows that is read from which on the others need no sorting out


class GroupChanges(Changes):
    """`merge` and `fold`."""

    def _merged(self, now: Situation, leaves: SparkLeaves) -> Found | Reason:
        """`merge`: the new rows of the changed groups against their stored ones."""
        found = self._plan.merge(now, MERGED, stored=STORED, types=self._definition.types)
        if found is None:
            return NOTHING
        made = self._holder.named(MERGED.parts, found.parts, of_few=self._reads_few())
        if not made.size:
            return NOTHING
        if self._exceeds_threshold(made):
            return Reason.ABOVE_THRESHOLD
        groups = self._plan.group_columns()
        keys = [key_column(n) for n in range(len(groups))]
        leaves.learn(MERGED.parts, made, keys)
        stored = leaves.nearby(self._stored, MERGED.parts, groups, self._prunes_stored)
        joins = found.joined and found.beside and bags.is_flat(stored)
        if joins and not made.is_local:
            self._only(stored, made, keys).createOrReplaceTempView(STORED)
            return self._joined(found, now, leaves)
        stored.createOrReplaceTempView(STORED)
        if joins:
            return self._joined_here(found, made, keys, now, leaves)
        rows = self._holder.named(MERGED.rows, found.rows)
        few = made.is_local and rows.is_local
        self._holder.named(MERGED.groups, found.groups, of_few=few)
        new = self._typed(found.merged)
        needing = self._holder.sql(found.keys)
        if not is_empty(needing):
            few = False
            new = new.unionAll(self._recomputed(now, leaves, needing))
        difference = bags.replaced(new, rows.frame, groups)
        return self._found(difference, of_few=few)

    def _only(self, stored: DataFrame, made: jvm.Held, keys: Sequence[str]) -> DataFrame:
        """Stored rows without most of those that the join would shuffle for nothing."""
        if (self.cardinality_ratio or 1.0) > MOST:
            return stored
        known = replace(made, frame=made.frame.select(*keys))
        groups = self._holder.sent_along(known, of=made.frame)
        if not groups.is_sent_along:
            return stored
        return of_keys(stored, groups.frame, self._plan.group_columns())

    def _recomputed(self, now: Situation, leaves: SparkLeaves, needing: DataFrame) -> DataFrame:
        """The rows of groups that need theirs; scans look for their keys as far as they are few."""
        keys = self._holder.sent_along(self._holder.held(needing))
        keys.frame.createOrReplaceTempView(MERGED.keys)
        if self._plan.group_columns():
            leaves.learn(MERGED.keys, keys, needing.columns)
        return self._typed(self._plan.recomputed(now, MERGED.keys))

    def _joined_here(
        self,
        found: Merge,
        made: jvm.Held,
        columns: Sequence[str],
        now: Situation,
        leaves: SparkLeaves,
    ) -> Found:
        """Few groups, each beside its stored row: what differs is made of them when it is read."""
        groups = self._beside_stored(found, made, columns)
        groups.frame.createOrReplaceTempView(MERGED.groups)
        needing = self._holder.sql(found.keys)
        come, go = bags.beside_here(self._known(found), OLD, COMES)
        if not is_empty(needing):
            new = self._recomputed(now, leaves, needing)
            return self._with_recomputed(new, groups.frame, come.unionAll(go))
        goes = not is_empty(go)
        if not goes and is_empty(come):
            return NOTHING
        assert groups.is_local, "they are as many as the parts"
        held = jvm.Held(come.unionAll(go), SIDES * groups.size, is_local=True)
        delta = Delta(changes=held.size)
        return Found(delta, Kept(held, goes=None if goes else 0))

    def _beside_stored(self, found: Merge, made: jvm.Held, columns: Sequence[str]) -> jvm.Held:
        """The parts go to the stored rows; those that find none are new groups."""
        assert found.matched is not None
        assert found.joined is not None
        stored = self._session.table(STORED)
        matched = self._holder.held(self._holder.sql(found.matched))
        if matched.size == made.size:
            return matched
        rest = without_keys(made.frame, matched.frame, columns)
        rest.createOrReplaceTempView(MERGED.parts)
        stored.limit(0).createOrReplaceTempView(STORED)
        new = self._holder.sql(found.joined)
        return self._holder.held(matched.frame.unionAll(new), of_few=True)

    def _known(self, found: Merge) -> DataFrame:
        """The groups whose values are known, each beside its stored row."""
        assert found.beside is not None
        return self._typed(found.beside, OLD, COMES)

    def _joined(self, found: Merge, now: Situation, leaves: SparkLeaves) -> Found:
        """Many groups: each beside its stored row, in one pass over the stored table."""
        assert found.joined is not None
        groups = checkpointed(self._holder.sql(found.joined))
        groups.createOrReplaceTempView(MERGED.groups)
        known = bags.beside(self._known(found), OLD, COMES)
        needing = self._holder.sql(found.keys)
        with jvm.meanwhile(self._session, lambda: keep_computed(known)) as keeping:
            are_known = is_empty(needing)
        if are_known:
            differing = keeping.result()
            return Found(Delta(changes=differing.held.size), differing)
        return self._with_recomputed(self._recomputed(now, leaves, needing), groups, known)

    def _with_recomputed(self, new: DataFrame, groups: DataFrame, known: DataFrame) -> Found:
        """What differs, with the groups that are computed from their rows."""
        old = groups.where(NEEDS_ROWS).select(f"{OLD}.*").where(f"{bags.PLACE} IS NOT NULL")
        apart = bags.replaced(new, old, self._plan.group_columns())
        return self._found(known.unionByName(apart))

    def _folded(self, now: Situation, leaves: SparkLeaves) -> Found:
        """`fold`: what the changed groups gain and lose; nothing that is stored is read."""
        found = self._plan.fold(now, MERGED, types=self._definition.types)
        if found is None:
            return NOTHING
        if found.grown is not None and self._rows_only_come():
            self._holder.sql(found.parts).createOrReplaceTempView(MERGED.parts)
            written = self._written(self._typed(found.grown))
            if written is not None:
                return written
        made = self._holder.named(MERGED.parts, found.parts, of_few=self._reads_few())
        new = self._typed(found.partials)
        needing = self._holder.sql(found.keys)
        if is_empty(needing):
            return self._appended(new, made)
        new = new.unionAll(self._recomputed(now, leaves, needing))
        groups = self._session.table(MERGED.keys)
        in_parts = self._definition.in_parts
        assert in_parts is not None
        named = groups.toDF(*in_parts.keys) if in_parts.keys else groups
        near = leaves.nearby(self._stored, MERGED.keys, in_parts.keys, self._prunes_stored)
        stored = parts.of_groups(near, named, in_parts.keys)
        return self._found(bags.counted(new, stored))

    def _appended(self, new: DataFrame, of: jvm.Held) -> Found:
        """Rows that only come; they are made of what is held already."""
        if is_empty(new):
            return NOTHING
        held = jvm.Held(bags.all_new(new), of.size, is_local=of.is_local)
        return Found(Delta(changes=of.size), Kept(held, goes=0))


def without_keys(rows: DataFrame, keys: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Rows whose key is not among these; both have its columns."""
    same = [F.col(f"t.{name}").eqNullSafe(F.col(f"k.{name}")) for name in columns]
    return rows.alias("t").join(keys.alias("k"), reduce(and_, same), "left_anti")
