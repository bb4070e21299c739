"""Tables that are partitioned by ranges of a column: made, and added to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dynamic_tables.errors import InvalidInput
from dynamic_tables.reasons import Reason

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 16


def create_ranged_table(
    name: str,
    columns: str,
    *,
    by: str,
    ranges: Sequence[Any] | None = None,
    sample: DataFrame | None = None,
    partitions: int = PARTITIONS,
    spark: SparkSession | None = None,
) -> list[Any]:
    """Make an empty table with the column `<by>_range`, which Delta fills in; its ends come back.

    `ranges` are the first values of all ranges but the first; without them they are chosen from
    the rows of `sample`, so that about equally many are in each.
    """
    from dynamic_tables.lake.row_groups import opening, ranged  # noqa: PLC0415  needs pyspark

    session = opening.session_of(spark)
    if ranges is not None and sample is None:
        ends = list(ranges)
    elif sample is not None and ranges is None:
        ends = ranged.ends_of(sample, by, partitions)
    else:
        raise InvalidInput(
            "either ranges or a sample to choose them from is needed",
            reason=Reason.CONTRADICTION,
            about=name,
            hint="ranges=[100, 200, 300], or sample=spark.table('old'), partitions=16",
        )
    ranged.create(session, opening.name_of(name, session), columns, by=by, ends=ends)
    return ends


def append(table: Any, rows: Any, *, spark: SparkSession | None = None) -> None:
    """Add rows (a DataFrame, or what Spark makes one of) to a table with a range column."""
    from dynamic_tables.lake.row_groups import opening, ranged  # noqa: PLC0415  needs pyspark

    session = opening.session_of(spark)
    name = opening.name_of(table, session)
    ranged.append(session, name, rows, called=str(name) if name.catalog else name.name)
