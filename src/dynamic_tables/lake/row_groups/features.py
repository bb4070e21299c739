"""Which Delta tables we dare to rewrite, as Delta's own reader of the log sees them."""

from __future__ import annotations

from dynamic_tables.lake.jvm import Java, items
from dynamic_tables.lake.row_groups import refusals


def check_features(snapshot: Java, table: str) -> None:
    """Refuse a table with a feature that we do not know, by name."""
    present = snapshot.protocol().implicitlyAndExplicitlySupportedFeatures()
    refusals.check_features([feature.name() for feature in items(present)], table)
