"""Tables stored in parts (STORAGE = MERGE_ON_READ), as frames: groups, and what became of them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import reduce
from operator import and_

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from dynamic_tables.compiler.emit import WEIGHT
from dynamic_tables.definition import InParts
from dynamic_tables.lake.bags import netted
from dynamic_tables.names import RESERVED_PREFIX, quote


def folded(stored: DataFrame, in_parts: InParts) -> DataFrame:
    """One row a group, of all that is stored of it."""
    session, name = stored.sparkSession, f"{RESERVED_PREFIX}{uuid.uuid4().hex}"
    stored.createOrReplaceTempView(name)
    try:
        return session.sql(in_parts.over(name))
    finally:
        session.catalog.dropTempView(name)


def of_groups(rows: DataFrame, groups: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The rows that belong to some groups; without keys, there is only one group."""
    if not keys:
        return rows
    same = [F.col(f"t.{quote(key)}").eqNullSafe(F.col(f"k.{quote(key)}")) for key in keys]
    return rows.alias("t").join(groups.alias("k"), reduce(and_, same), "left_semi")


def groups_of(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    return rows.select(*map(quote, keys)).distinct()


def changes(groups: DataFrame, before: DataFrame, after: DataFrame, in_parts: InParts) -> DataFrame:
    """Signed rows: what became of some groups between two versions of what is stored."""
    then, now = (
        folded(of_groups(rows, groups, in_parts.keys), in_parts).withColumn(WEIGHT, F.lit(sign))
        for rows, sign in ((before, -1), (after, 1))
    )
    return netted(now.unionByName(then))
