"""What a dialect supplies, and what all of them share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dynamic_tables.compiler import functions, tree
from dynamic_tables.compiler.emit import Leaves
from dynamic_tables.compiler.ivm.plan import Naming
from dynamic_tables.compiler.ivm.view import View
from dynamic_tables.compiler.plan import DeltaPlan, Situation


@dataclass(frozen=True, slots=True, kw_only=True)
class Statements:
    """The SQL of a plan; see `IVMPlan`."""

    create_cursors_table: str
    create_mv: str
    initialize_cursors: list[str]
    maintain: list[str]


@dataclass(frozen=True, kw_only=True)
class Writer(ABC):
    """Writes the statements of one view in one dialect."""

    view: View
    plan: DeltaPlan
    naming: Naming
    home: tuple[str, str]  # catalog and schema of the view's table and of the cursors
    quote: Callable[[str], str]
    literal: Callable[[str], str]

    def statements(self) -> Statements:
        return Statements(
            create_cursors_table=self.create_cursors_table(),
            create_mv=self.create_mv(),
            initialize_cursors=[*self.initialize()],
            maintain=[*self.maintain()],
        )

    @abstractmethod
    def create_cursors_table(self) -> str: ...
    @abstractmethod
    def create_mv(self) -> str: ...
    @abstractmethod
    def initialize(self) -> Iterator[str]: ...
    @abstractmethod
    def maintain(self) -> Iterator[str]: ...
    @property
    @abstractmethod
    def leaves(self) -> Leaves: ...

    @property
    def timed(self) -> bool:
        """Whether the view reads the clock."""
        filters = (n for n in tree.walk(self.plan.node) if isinstance(n, tree.Filter))
        return any(functions.reads_clock(node.condition) for node in filters)

    @property
    def situation(self) -> Situation:
        """Every source may have changed: a feed without rows makes terms without rows."""
        moved = frozenset(self.view.sources)
        return Situation(leaves=self.leaves, moved=moved, clock_moved=self.timed)

    @property
    def mv(self) -> str:
        return ".".join(map(self.quote, (*self.home, self.naming.mv_table())))

    @property
    def cursors(self) -> str:
        return ".".join(map(self.quote, (*self.home, self.naming.cursors_table())))

    @property
    def mine(self) -> str:
        """The cursors of this view."""
        return f"mv_name = {self.literal(self.naming.mv_table())}"
