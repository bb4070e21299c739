"""What a dialect supplies."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Statements:
    """The SQL of a plan; see `IVMPlan`."""

    create_cursors_table: str
    create_mv: str
    initialize_cursors: list[str]
    maintain: list[str]
