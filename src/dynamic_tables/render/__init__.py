"""Our values as a terminal shows them.

Shared by the command line and the demo, so that the demo looks like what its readers will type.
User text is never read as markup: consoles come from `console`, which turns markup off.
"""

from __future__ import annotations

from dynamic_tables.render.basics import (
    Unheard,
    console,
    error_text,
    frame_table,
    grid,
    key_values,
    seconds,
    sql_text,
)
from dynamic_tables.render.graph import graph_json, graph_tree
from dynamic_tables.render.layout import rorder_plan_table, rorder_table
from dynamic_tables.render.progress import ProgressLine
from dynamic_tables.render.refreshes import (
    declared_text,
    plan_table,
    record_text,
    records_table,
    slice_text,
    verification_text,
)
from dynamic_tables.render.tables import explanation_text, state_json, table_details, tables_table

__all__ = [
    "ProgressLine",
    "Unheard",
    "console",
    "declared_text",
    "error_text",
    "explanation_text",
    "frame_table",
    "graph_json",
    "graph_tree",
    "grid",
    "key_values",
    "plan_table",
    "record_text",
    "records_table",
    "rorder_plan_table",
    "rorder_table",
    "seconds",
    "slice_text",
    "sql_text",
    "state_json",
    "table_details",
    "tables_table",
    "verification_text",
]
