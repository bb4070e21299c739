"""Why a table, or a column of it, is not put in row-group order: the same words with and without
Spark."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from dynamic_tables.errors import InvalidInput, Refused
from dynamic_tables.reasons import Reason

RANGE_SUFFIX = "_range"  # of a partition column that names the column whose values it groups
KNOWN_FEATURES = frozenset(
    [
        "allowColumnDefaults",
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "checkpointProtection",
        "columnMapping",
        "deletionVectors",
        "domainMetadata",
        "generatedColumns",
        "identityColumns",
        "inCommitTimestamp",
        "invariants",
        "rowTracking",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    ]
)
WHY = {"clustering": "CLUSTER BY decides the order of the rows already"}


def check_features(present: Collection[str], table: str) -> None:
    """Refuse a table with a feature that we do not know, by name: it may say what files must have.

    Known features either do not concern the files (constraints hold for the same rows as before),
    or are taken care of when files are read and written.
    """
    for feature in sorted(set(present) - KNOWN_FEATURES):
        raise Refused(
            f"the table feature {feature!r} does not go with row-group order: "
            + WHY.get(feature, "what it asks of files is not known here"),
            reason=Reason.TABLE_FEATURE,
            about=table,
            hint=f"ALTER TABLE … DROP FEATURE {feature}, or leave the layout to OPTIMIZE",
        )


def ranged_column(partition_columns: Sequence[str], table: str) -> str:
    """The column that the partition column `<column>_range` names."""
    ranges = [name for name in partition_columns if name.lower().endswith(RANGE_SUFFIX)]
    if len(ranges) == 1:
        return ranges[0][: -len(RANGE_SUFFIX)]
    raise InvalidInput(
        "nothing says by which column: no single partition column is called"
        f" <column>{RANGE_SUFFIX}",
        reason=Reason.BAD_COLUMNS,
        about=table,
        hint="name it: unique_by='customer'",
    )


def no_column(name: str, *, what: str, table: str, known: Iterable[str]) -> InvalidInput:
    return InvalidInput(
        f"there is no column {name!r}, which {what} names",
        reason=Reason.BAD_COLUMNS,
        about=table,
        hint=f"its columns: {', '.join(known)}",
    )


def partition_column(name: str, *, what: str, table: str) -> InvalidInput:
    return InvalidInput(
        f"{what} names the partition column {name!r}, whose values have files of their own",
        reason=Reason.BAD_COLUMNS,
        about=table,
        hint="name a column that varies inside the partitions",
    )


def unfit_column(name: str, kind: str, *, what: str, table: str) -> InvalidInput:
    return InvalidInput(
        f"{what} names {name!r}, and readers skip no row groups by columns of type {kind}",
        reason=Reason.BAD_COLUMNS,
        about=table,
        hint="name a column of whole numbers, decimals, texts, dates or timestamps",
    )


def unknown_type(name: str, kind: str, table: str) -> Refused:
    return Refused(
        f"its column {name!r} is of type {kind}, which the engine `arrow` does not know",
        reason=Reason.TABLE_FEATURE,
        about=table,
        hint="rorder(…, engine='native') lets Spark write the files",
    )
