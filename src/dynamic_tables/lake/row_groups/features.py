"""Which Delta tables we dare to rewrite: an unknown feature may say what files must have.

Known features either do not concern the files (constraints hold for the same rows as before), or
are taken care of: deletion vectors and widened types by Delta's reader, column mapping and row ids
when files are written.
"""

from __future__ import annotations

from dynamic_tables.errors import Refused
from dynamic_tables.lake.jvm import Java, items
from dynamic_tables.reasons import Reason

KNOWN = frozenset(
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


def check_features(snapshot: Java, table: str) -> None:
    """Refuse a table with a feature that we do not know, by name."""
    present = {
        feature.name()
        for feature in items(snapshot.protocol().implicitlyAndExplicitlySupportedFeatures())
    }
    for feature in sorted(present - KNOWN):
        raise Refused(
            f"the table feature {feature!r} does not go with row-group order: "
            + WHY.get(feature, "what it asks of files is not known here"),
            reason=Reason.TABLE_FEATURE,
            about=table,
            hint=f"ALTER TABLE … DROP FEATURE {feature}, or leave the layout to OPTIMIZE",
        )
