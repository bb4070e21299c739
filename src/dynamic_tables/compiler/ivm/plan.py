"""What `compile_ivm` gives, and how the things it makes are called."""

from __future__ import annotations

from dataclasses import dataclass

from dynamic_tables.names import RESERVED_PREFIX


class Naming:
    """Names of the things that the statements make; override what should be called otherwise.

    >>> class Mine(Naming):
    ...     def mv_table(self) -> str:
    ...         return "sales_by_region"
    >>> Mine().aux_column("keys")
    '_ivm_keys'
    """

    def mv_table(self) -> str:
        """The table that holds the view's rows; also its name in the cursors table."""
        return "mv"

    def cursors_table(self) -> str:
        """How far each view has read its sources; several views may share one."""
        return "_ivm_cursors"

    def aux_column(self, purpose: str) -> str:
        """Whatever else is needed: temporary tables and session variables."""
        return f"{RESERVED_PREFIX}{purpose}"


@dataclass(frozen=True, slots=True, kw_only=True)
class IVMPlan:
    """Statements to run in order, each field after the one above; `maintain` ever again."""

    view_sql: str  # as it was given
    create_cursors_table: str
    create_mv: str  # an empty table with the view's columns
    initialize_cursors: list[str]  # loads it and notes the versions; again: loads it anew
    maintain: list[str]  # brings it up to date
    base_tables: dict[str, str]  # table -> catalog
    features: set[str]  # what the query is made of
