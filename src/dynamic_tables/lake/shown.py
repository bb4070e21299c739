"""What users see of stored tables: their rows now and then, and their changes.

Hidden columns are left out, groups that HAVING hides too, and partial rows are added up.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from dynamic_tables.compiler.emit import WEIGHT
from dynamic_tables.definition import Definition
from dynamic_tables.lake import bags, parts
from dynamic_tables.lake.base import Commit
from dynamic_tables.lake.files import rows_at
from dynamic_tables.lake.log import commits_between
from dynamic_tables.names import SHOWN, quote


class ShownTables:
    """Reading stored tables as their users see them."""

    spark: SparkSession

    def commits(self, definition: Definition, after: int, to: int) -> tuple[Commit, ...]:
        """The commits of the stored table in (after, to], newest first; what is left of them."""
        return commits_between(self.spark, definition.location, after, to)

    def read(self, definition: Definition, version: int | None) -> DataFrame:
        if version is None:
            return self.spark.table(definition.name.sql)
        reader = self.spark.read.option("versionAsOf", version)
        return self.shown(reader.table(definition.stored_name.sql), definition)

    def shown(self, stored: DataFrame, definition: Definition) -> DataFrame:
        """What users see of the rows of a stored table."""
        if definition.auxiliary is None:
            return stored
        if definition.in_parts is not None:
            stored = parts.folded(stored, definition.in_parts)
        rows = stored.where(F.col(SHOWN)) if definition.auxiliary.filtered else stored
        return rows.select(*[F.col(quote(column.name)) for column in definition.columns])

    def changes(self, definition: Definition, start: int, end: int) -> DataFrame:
        """The change feed of the table in [start, end]."""
        if definition.in_parts is not None:
            return self._changes_in_parts(definition, start, end)
        feed = self._feed(definition, start, end)
        return feed if definition.auxiliary is None else _shown_changes(feed, definition)

    def _changes_in_parts(self, definition: Definition, start: int, end: int) -> DataFrame:
        """What became of the groups, commit by commit."""
        assert definition.in_parts is not None
        found = []
        for commit in self.commits(definition, start - 1, end):
            if commit.changes_data or not found:  # one at least, for the columns
                feed = self._feed(definition, commit.version, commit.version)
                groups = parts.groups_of(feed, definition.in_parts.keys)
                before, after = (
                    rows_at(self.spark, definition.location, version)
                    for version in (max(commit.version - 1, 0), commit.version)
                )
                signed = parts.changes(groups, before, after, definition.in_parts)
                about = feed.select("_commit_version", "_commit_timestamp").limit(1)
                found.append(_unsigned(signed.crossJoin(about), definition))
        if not found:
            return _shown_changes(
                self._feed(definition, start, end), definition
            )  # says what is wrong
        return reduce(DataFrame.unionAll, found)

    def _feed(self, definition: Definition, start: int, end: int) -> DataFrame:
        reader = self.spark.read.option("readChangeFeed", "true")
        ranged = reader.option("startingVersion", start).option("endingVersion", end)
        return ranged.table(definition.stored_name.sql)


def _shown_changes(feed: DataFrame, definition: Definition) -> DataFrame:
    """Changes of what users see: commits that changed hidden columns only changed nothing."""
    came = F.col("_change_type").isin("insert", "update_postimage")
    return _unsigned(feed.withColumn(WEIGHT, F.when(came, 1).otherwise(-1)), definition)


def _unsigned(changes: DataFrame, definition: Definition) -> DataFrame:
    """Signed rows as a change feed of what users see."""
    assert definition.auxiliary is not None
    if definition.auxiliary.filtered:
        changes = changes.where(F.col(SHOWN))
    columns = [F.col(quote(column.name)) for column in definition.columns]
    net = bags.netted(changes.select(*columns, "_commit_version", "_commit_timestamp", WEIGHT))
    kind = F.when(F.col(WEIGHT) > 0, F.lit("insert")).otherwise(F.lit("delete"))
    copies = F.array_repeat(kind, F.abs(F.col(WEIGHT)).cast("int"))
    return net.select(
        *columns,
        F.explode(copies).alias("_change_type"),
        F.col("_commit_version"),
        F.col("_commit_timestamp"),
    )
