"""The delta plan of a query: which strategies can keep it up to date, and the SQL of each.

A plan is made once, from the text and the columns of the sources. At a refresh the lake supplies
the leaves (the rows before, the rows after, the changes), and the plan says which SQL gives the
changes or the affected keys. Nothing here runs anything.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from dynamic_tables.compiler import functions, tree
from dynamic_tables.compiler.beside import read_beside
from dynamic_tables.compiler.build import Schemas, build
from dynamic_tables.compiler.delta import Deltas
from dynamic_tables.compiler.emit import WEIGHT, Emitter, Leaves, Restriction, Side, key_column
from dynamic_tables.compiler.joined import Joined
from dynamic_tables.compiler.keys import Key, key_of
from dynamic_tables.compiler.merge import Merging, merging_of
from dynamic_tables.compiler.origins import origin
from dynamic_tables.compiler.partials import Partials
from dynamic_tables.compiler.prune import pruned
from dynamic_tables.compiler.refused import NotIncremental, unfaithful
from dynamic_tables.compiler.tree import Node
from dynamic_tables.compiler.written import STORED, Gaps
from dynamic_tables.model import Strategy
from dynamic_tables.reasons import Reason

T = TypeVar("T")
Possible = Mapping[Strategy, Reason | None]  # None: possible; else why not


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What is different this time."""

    leaves: Leaves
    moved: frozenset[str]  # the sources that changed
    clock_moved: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """Names of tables that the lake makes while it merges."""

    parts: str
    rows: str
    groups: str
    keys: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """`merge`: what each of the tables is made of, in this order, and the new rows at last.

    Those of the groups that need their rows are `DeltaPlan.recomputed`.
    """

    parts: str  # SQL: what every changed group gains and loses
    rows: str  # SQL: the stored rows of the changed groups
    groups: str  # SQL: their new values
    keys: str  # SQL: the groups that need their rows
    merged: str  # SQL: the new rows of the others
    joined: str | None  # SQL: rows and groups at once, each beside its stored row
    matched: str | None  # SQL: the same of groups that have one
    beside: str | None  # SQL: of them, as `merged`, with the stored rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Folding:
    """`fold`: as `Merge`; nothing that is stored is read."""

    parts: str  # SQL: what every changed group gains and loses
    partials: str  # SQL: the same as rows to be stored
    keys: str  # SQL: the groups that need their rows
    grown: str | None  # SQL: as `partials`, where rows only come and no group needs its own; Spark


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaPlan:
    """How one query is kept up to date."""

    node: Node
    columns: tuple[str, ...]  # the declared names, in order
    dialect: str
    key: Key | None
    monotone: bool  # more input rows never take an output row away
    merging: Merging | Reason  # a reason: why not
    _written: dict[Hashable, tuple[Gaps, Any]] = field(
        default_factory=dict, compare=False, repr=False
    )

    def exact_key(self, approximate: Sequence[str]) -> Key:
        """The key; where floating aggregates are among the columns, one without them.

        Any columns will do that do not differ between runs: the affected rows are found by them.
        """
        fuzzy = {name.lower() for name in approximate}
        pairs = zip(self.node.columns, self.columns, strict=True)
        exact = tuple(
            tree.column(name) for name, declared in pairs if declared.lower() not in fuzzy
        )
        if self.key is not None and all(value in exact for value in self.key.values):
            return self.key
        return Key(inputs=((self.node, exact),), values=exact)

    def reads(self, source: str) -> frozenset[str]:
        """The columns of a source that the query needs, in lower case."""
        scans = (node for node in tree.walk(self.node) if isinstance(node, tree.Scan))
        return frozenset(c for scan in scans if scan.source == source for c, _ in scan.names)

    @property
    def scans(self) -> int:
        """How often the query reads a source."""
        return sum(isinstance(node, tree.Scan) for node in tree.walk(self.node))

    def read_beside(self, moved: frozenset[str], *, clock_moved: bool) -> frozenset[str]:
        """The sources that changes of some are joined with; of groups, before they are merged."""
        merging = self.merging
        changed = merging.aggregate.child if isinstance(merging, Merging) else self.node
        return read_beside(changed, moved, clock_moved=clock_moved)

    def key_columns(self) -> tuple[str, ...]:
        """The declared names of the key."""
        return tuple(map(self._declared, self.key.columns)) if self.key else ()

    def group_columns(self) -> tuple[str, ...]:
        """The declared names of what makes a group that is merged."""
        assert isinstance(self.merging, Merging)
        return Partials(self.merging).keys

    def sort_columns(self) -> tuple[str, ...]:
        """The declared names by which later refreshes look for rows, where sorting costs little.

        Groups are few beside the rows that they are made of; other results are stored as they come.
        """
        node = self.node
        while isinstance(node, (tree.Project, tree.Filter)):
            node = node.child
        return self.key_columns() if isinstance(node, tree.Aggregate) else ()

    def possible(self) -> Possible:
        """Every strategy, and why not."""
        return {
            Strategy.NO_DATA: None,
            Strategy.APPEND: None if self.monotone else Reason.NOT_MONOTONE,
            Strategy.MERGE: self.merging if isinstance(self.merging, Reason) else None,
            Strategy.KEYS: None if self.key is not None else Reason.NO_KEY,
            Strategy.ROWS: None,
            Strategy.FULL: None,
        }

    def result(self, now: Situation) -> str:
        """SQL of all rows of the result as they are now, under the declared names."""

        def write(now: Situation) -> str:
            emitter = Emitter(self.dialect, now.leaves)
            rows = emitter.rows(self.node, Side.AFTER)
            return f"SELECT {self._renamed(emitter)} FROM ({rows}) AS q"

        return self._once("result", now, write)

    def changes(self, now: Situation) -> str | None:
        """SQL of the signed rows by which the result changed: declared columns and WEIGHT."""

        def write(now: Situation) -> str | None:
            emitter, deltas = self._deltas(now)
            name = deltas.of(self.node)
            if name is None:
                return None
            items = self._renamed(emitter)
            return emitter.with_ctes(f"SELECT {items}, {WEIGHT} FROM {name}")

        return self._once("changes", now, write)

    def affected(self, now: Situation, approximate: Sequence[str]) -> str | None:
        """SQL of the distinct keys that the changes affect, columns _dt_k0, …; see `exact_key`."""

        def write(now: Situation) -> str | None:
            emitter, deltas = self._deltas(now)
            table = deltas.keys_of(self.exact_key(approximate).inputs)
            return table and emitter.with_ctes(f"SELECT * FROM {table}")

        return self._once(("keys", tuple(approximate)), now, write)

    def rows_of(self, now: Situation, keys_table: str, approximate: Sequence[str]) -> str:
        """SQL of the rows of some keys as they are now, whoever found these keys affected."""

        def write(now: Situation) -> str:
            writer = Emitter(self.dialect, now.leaves)
            only = Restriction(table=keys_table, values=self.exact_key(approximate).values)
            rows = writer.rows(self.node, Side.AFTER, only)
            return f"SELECT {self._renamed(writer)} FROM ({rows}) AS q"

        return self._once(("rows", keys_table, tuple(approximate)), now, write)

    def exact_key_columns(self, approximate: Sequence[str]) -> tuple[str, ...]:
        """The declared names of `exact_key`, in the order of _dt_k0, …"""
        return tuple(map(self._declared, self.exact_key(approximate).columns))

    def origin(self, column: str) -> tuple[str, str] | None:
        """The source and its column that an output column is, unchanged; None: it is computed."""
        return origin(self.node, self.node.columns[self.columns.index(column)])

    def merge(
        self, now: Situation, tables: Tables, *, stored: str, types: Mapping[str, str]
    ) -> Merge | None:
        """SQL of the new rows of the changed groups.

        `stored` is the table as it stands, `types` those of its columns, by name in lower case.
        """

        def write(now: Situation) -> Merge | None:
            return self._merge(now, tables, types)

        what = ("merge", tables, frozenset(types.items()))
        return self._once(what, now, write, stored=stored)

    def _merge(self, now: Situation, tables: Tables, types: Mapping[str, str]) -> Merge | None:
        assert isinstance(self.merging, Merging)
        parts = self.merging.parts(*self._deltas(now))
        if parts is None:
            return None
        writer = Emitter(self.dialect, now.leaves)
        joined = Joined(self.merging)
        joins = joined.is_possible(self.dialect, types)

        def together(*, only_stored: bool) -> str | None:
            if not joins:
                return None
            return joined.groups(writer, tables.parts, STORED, types, only_stored=only_stored)

        return Merge(
            parts=parts,
            rows=self.merging.stored_rows(writer, tables.parts, STORED),
            groups=self.merging.groups(writer, tables.parts, tables.rows, types),
            keys=self.merging.needing(tables.groups),
            merged=self.merging.merged(writer, tables.groups),
            joined=together(only_stored=False),
            matched=together(only_stored=True),
            beside=joined.rows(writer, tables.groups) if joins else None,
        )

    def fold(self, now: Situation, tables: Tables, *, types: Mapping[str, str]) -> Folding | None:
        """SQL of what the changed groups gain and lose, as rows that readers add up."""

        def write(now: Situation) -> Folding | None:
            assert isinstance(self.merging, Merging)
            parts = self.merging.parts(*self._deltas(now))
            if parts is None:
                return None
            writer, partials = Emitter(self.dialect, now.leaves), Partials(self.merging)
            grown = None
            if self.dialect == "spark" and _is_monotone(self.merging.aggregate.child):
                grown = partials.rows(writer, tables.parts, types, none_needs=True)
            return Folding(
                parts=parts,
                partials=partials.rows(writer, tables.parts, types),
                keys=partials.needing(tables.parts, types),
                grown=grown,
            )

        return self._once(("fold", tables, frozenset(types.items())), now, write)

    def recomputed(self, now: Situation, keys_table: str) -> str:
        """SQL of the rows of some groups, from the sources: written for who has found such groups,
        because its scans are restricted by what is known of their keys."""

        def write(now: Situation) -> str:
            assert isinstance(self.merging, Merging)
            return self.merging.recomputed(Emitter(self.dialect, now.leaves), keys_table)

        return self._once(("recomputed", keys_table), now, write)

    def folded(self, relation: str, types: Mapping[str, str]) -> str:
        """SQL of one row a group, from the rows that are stored of it in parts."""
        assert isinstance(self.merging, Merging)
        return Partials(self.merging).folded(Emitter(self.dialect, Gaps()), relation, types)

    def _once(
        self, what: Hashable, now: Situation, write: Callable[[Situation], T], *, stored: str = ""
    ) -> T:
        """What is written for a situation is written once, whatever the leaves are."""
        question = (what, now.moved, now.clock_moved)
        if question not in self._written:
            gaps = Gaps()
            self._written[question] = (gaps, write(replace(now, leaves=gaps)))
        gaps, texts = self._written[question]
        return gaps.filled(texts, now.leaves, dialect=self.dialect, stored=stored)

    def _deltas(self, now: Situation) -> tuple[Emitter, Deltas]:
        emitter = Emitter(self.dialect, now.leaves)
        return emitter, Deltas(emitter, now.moved, now.clock_moved)

    def _renamed(self, emitter: Emitter) -> str:
        pairs = zip(self.node.columns, self.columns, strict=True)
        return ", ".join(f"{emitter.quote(old)} AS {emitter.quote(new)}" for old, new in pairs)

    def _declared(self, name: str) -> str:
        return self.columns[self.node.columns.index(name)]


def plan_query(
    query: str, schemas: Schemas, *, columns: Sequence[str], dialect: str
) -> DeltaPlan | NotIncremental:
    """The plan of a query whose tables are called by the keys of `schemas`, or why not."""
    try:
        node = pruned(build(query, schemas, dialect=dialect))
    except NotIncremental as reason:
        return reason
    if len(node.columns) != len(columns):
        return unfaithful("an item of the SELECT list that gives several columns")
    return DeltaPlan(
        node=node,
        columns=tuple(columns),
        dialect=dialect,
        key=key_of(node),
        monotone=_is_monotone(node),
        merging=merging_of(node, columns, dialect),
    )


def _is_monotone(node: Node) -> bool:
    """Filters, projections, inner joins and UNION ALL: nothing that a new row could take away."""
    for item in tree.walk(node):
        match item:
            case tree.Scan() | tree.Constant() | tree.Project() | tree.Explode() | tree.Union():
                continue
            case tree.Join(kind=tree.JoinKind.INNER):
                continue
            case tree.Filter() if not functions.reads_clock(item.condition):
                continue
            case _:
                return False
    return True


__all__ = [
    "DeltaPlan",
    "Folding",
    "Merge",
    "Situation",
    "Tables",
    "key_column",
    "plan_query",
]
