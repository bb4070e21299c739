"""Row-group order: what was done, and what could be."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.text import Text

from dynamic_tables.layout.plan import RorderPlan
from dynamic_tables.layout.report import RorderReport
from dynamic_tables.render.basics import grid


def rorder_table(report: RorderReport) -> RenderableType:
    """One line a partition, and the version that has them all."""
    rows = [
        [
            _partition(part.partition),
            part.became.value.replace("_", " "),
            f"{part.files_before:,} → {part.files_after:,}",
            f"{part.bytes_before:,} → {part.bytes_after:,}",
            _number(part.values),
            _number(part.row_groups),
        ]
        for part in report.partitions
    ]
    head = ["partition", "became", "files", "bytes", "values", "row groups"]
    nothing = "run it again" if report.changed else "nothing to do"
    done = nothing if report.version is None else f"version {report.version}"
    return Group(
        grid(head, rows), Text(f"{report.table} by {report.unique_by}: {done}", style="green")
    )


def rorder_plan_table(plan: RorderPlan) -> RenderableType:
    """What one look-up would read under each layout."""
    rows = [
        [
            _partition(part.partition),
            f"{part.files:,}",
            f"{part.bytes:,}",
            _number(part.values),
            str(choice),
            f"{choice.footer_bytes:,}",
            f"{choice.read_bytes:,}",
        ]
        for part in plan.partitions
        for choice in part.choices
    ]
    head = ["partition", "files", "bytes", "values", "layout", "footer", "bytes a look-up"]
    advice = f"recommended: {plan.recommended}" if plan.recommended else "the table is empty"
    return Group(grid(head, rows), Text(f"{plan.table} by {plan.unique_by}: {advice}"))


def _partition(values: Mapping[str, str | None]) -> str:
    named = (f"{name}={'NULL' if value is None else value}" for name, value in values.items())
    return ", ".join(named) or "all"


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"
