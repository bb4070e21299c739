"""One delta rule per operator: the signed rows by which a query changed.

For a source R: before is its version at the last refresh, after the pinned one, ΔR the signed rows
between. Linear operators act on the signed rows themselves; a join takes one side's changes with
the other side's rows; whatever has keys recomputes the affected keys on both sides. Both versions
of every source are readable, so no operator needs state of its own, and the rules compose.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from dynamic_tables.compiler import functions
from dynamic_tables.compiler.emit import (
    WEIGHT,
    Emitter,
    Restriction,
    Side,
    equalities,
    key_column,
)
from dynamic_tables.compiler.keys import Inputs, keys_below
from dynamic_tables.compiler.tree import (
    Aggregate,
    Constant,
    Distinct,
    Explode,
    Expression,
    Filter,
    Join,
    JoinKind,
    Mark,
    Node,
    Project,
    Scan,
    SetOperation,
    Union,
    Window,
)


@dataclass(slots=True)
class Deltas:
    """Writes the changes of a tree as named queries; None where nothing can have changed."""

    emitter: Emitter
    moved: frozenset[str]  # the sources that changed
    clock_moved: bool = False
    _known: dict[int, str | None] = field(default_factory=dict)

    def of(self, node: Node) -> str | None:
        """The name of the query that gives a node's columns and weights."""
        if id(node) not in self._known:
            terms = list(self._terms(node))
            self._known[id(node)] = self._named(terms) if terms else None
        return self._known[id(node)]

    def _named(self, terms: list[str]) -> str:
        return self.emitter.cte("d", "\nUNION ALL\n".join(terms))

    def _terms(self, node: Node) -> Iterator[str]:  # noqa: C901, PLR0912  one case an operator
        match node:
            case Scan():
                if node.source in self.moved:
                    yield self._feed(node)
            case Constant():
                return
            case Filter():
                yield from self._filter(node)
            case Project():
                if (child := self.of(node.child)) is not None:
                    yield self.emitter.projected(node, f"SELECT * FROM {child}", also=f", {WEIGHT}")
            case Explode():
                if (child := self.of(node.child)) is not None:
                    yield self.emitter.exploded(node, f"SELECT * FROM {child}", also=f", {WEIGHT}")
            case Union():
                yield from self._union(node)
            case Join(kind=JoinKind.INNER):
                yield from self._inner(node)
            case Join(kind=JoinKind.LEFT):
                yield from self._left(node)
            case Join() | Mark():
                yield from self._partnered(node)
            case Aggregate() | Window() | Distinct() | SetOperation():
                yield from self._keyed(node)

    def keys_of(self, inputs: Inputs) -> str | None:
        """The name of the query that gives the distinct keys of the inputs' changes."""
        changed = [(self.of(node), values) for node, values in inputs]
        if all(name is None for name, _ in changed):
            return None
        named = [
            (name or self._nothing(node), values)
            for (name, values), (node, _) in zip(changed, inputs, strict=True)
        ]
        return self._keys(named)

    def _nothing(self, node: Node) -> str:
        """No rows of a node, of its types."""
        rows = self.emitter.rows(node, Side.AFTER)
        return self.emitter.cte("n", f"SELECT * FROM ({rows}) AS q WHERE FALSE")

    # Linear operators

    def _feed(self, node: Scan) -> str:
        quote = self.emitter.quote
        columns = ", ".join(f"{quote(a)} AS {quote(b)}" for a, b in node.names)
        return f"SELECT {columns}, {WEIGHT} FROM {self.emitter.leaves.changes(node.source)}"

    def _filter(self, node: Filter) -> Iterator[str]:
        """The changes that pass now; and as time passes, rows that stayed enter or leave."""
        now = self.emitter.text(node.condition, Side.AFTER)
        child = self.of(node.child)
        if child is not None:
            yield f"SELECT * FROM {child} WHERE {now}"
        if self.clock_moved and functions.reads_clock(node.condition):
            then = self.emitter.text(node.condition, Side.BEFORE)
            rows = self.emitter.rows(node.child, Side.BEFORE)
            yield (
                f"SELECT *, CASE WHEN {now} THEN 1 ELSE -1 END AS {WEIGHT} FROM ({rows}) AS q"
                f" WHERE COALESCE({now}, FALSE) <> COALESCE({then}, FALSE)"
            )

    def _union(self, node: Union) -> Iterator[str]:
        """Every branch is named, changed or not: together they decide the types."""
        columns = self.emitter.listed(node.columns)
        changed = [self.of(child) for child in node.children]
        if not any(changed):
            return
        for child, name in zip(node.children, changed, strict=True):
            if name is not None:
                yield f"SELECT {columns}, {WEIGHT} FROM {name}"
            else:
                rows = self.emitter.rows(child, Side.AFTER)
                yield f"SELECT {columns}, 0 AS {WEIGHT} FROM ({rows}) AS q WHERE FALSE"

    # Joins

    def _inner(self, node: Join) -> Iterator[str]:
        """ΔL ⋈ R after, and L before ⋈ ΔR."""
        left, right = self.of(node.left), self.of(node.right)
        if left is not None:
            only = self._asked(node, left, from_left=True)
            rows = self.emitter.rows(node.right, Side.AFTER, only)
            yield self.emitter.joined(node, f"SELECT * FROM {left}", rows, weight="l")
        if right is not None:
            only = self._asked(node, right, from_left=False)
            rows = self.emitter.rows(node.left, Side.BEFORE, only)
            yield self.emitter.joined(node, rows, f"SELECT * FROM {right}", weight="r")

    def _asked(self, node: Join | Mark, changed: str, *, from_left: bool) -> Restriction | None:
        """The other side's keys that the changed rows can meet."""
        pairs = equalities(node)
        other = node.right if from_left else node.left
        if not pairs or isinstance(other, Scan):
            return None  # a scan is joined with the few changed rows anyhow
        mine = [pair[0] if from_left else pair[1] for pair in pairs]
        theirs = tuple(pair[1] if from_left else pair[0] for pair in pairs)
        return Restriction(table=self._keys([(changed, tuple(mine))]), values=theirs)

    def _left(self, node: Join) -> Iterator[str]:
        """Pairs as in an inner join; rows that lost or found their first partner, padded."""
        pairs = Join(
            left=node.left, right=node.right, kind=JoinKind.INNER, condition=node.condition
        )
        yield from self._inner(pairs)
        alone = Join(left=node.left, right=node.right, kind=JoinKind.ANTI, condition=node.condition)
        terms = list(self._partnered(alone))
        if terms:
            padding = ", ".join(f"NULL AS {self.emitter.quote(n)}" for n in node.right.columns)
            changed = self._named(terms)
            left = self.emitter.listed(node.left.columns)
            yield f"SELECT {left}, {padding}, {WEIGHT} FROM {changed}"

    def _partnered(self, node: Join | Mark) -> Iterator[str]:
        """Left rows that a right row decides about.

        ΔL with the partners of now; and left rows that a changed right row is a partner of, as they
        are now minus as they were.
        """
        left, right = self.of(node.left), self.of(node.right)
        if left is not None:
            only = self._asked(node, left, from_left=True)
            now = self.emitter.rows(node.right, Side.AFTER, only)
            yield self._decided(node, f"SELECT * FROM {left}", now, WEIGHT)
        if right is None:
            return
        touched = Join(
            left=node.left, right=node.right, kind=JoinKind.SEMI, condition=node.condition
        )
        before = self.emitter.rows(
            node.left, Side.BEFORE, self._asked(node, right, from_left=False)
        )
        affected = self.emitter.cte(
            "a", self.emitter.joined(touched, before, f"SELECT * FROM {right}")
        )
        for side, sign in ((Side.AFTER, "1"), (Side.BEFORE, "-1")):
            only = self._asked(node, affected, from_left=True)
            partners = self.emitter.rows(node.right, side, only)
            weighted = f"SELECT *, {sign} AS {WEIGHT} FROM {affected}"
            yield self._decided(node, weighted, partners, WEIGHT)

    def _decided(self, node: Join | Mark, left: str, right: str, weight: str) -> str:
        if isinstance(node, Mark):
            return self.emitter.marked(node, left, right, also=f", {weight}")
        return self.emitter.joined(node, left, right, weight="l")

    # Operators with keys

    def _keyed(self, node: Aggregate | Window | Distinct | SetOperation) -> Iterator[str]:
        """The affected keys, recomputed after minus before; what is equal cancels here."""
        inputs, keys = keys_below(node)
        table = self.keys_of(inputs)
        if table is None:
            return
        only = Restriction(table=table, values=keys)
        after = self.emitter.rows(node, Side.AFTER, only)
        before = self.emitter.rows(node, Side.BEFORE, only)
        columns = self.emitter.listed(node.columns)
        yield (
            f"SELECT {columns}, SUM({WEIGHT}) AS {WEIGHT} FROM (\n"
            f"SELECT {columns}, 1 AS {WEIGHT} FROM ({after}) AS q\nUNION ALL\n"
            f"SELECT {columns}, -1 AS {WEIGHT} FROM ({before}) AS q\n"
            f") AS q GROUP BY {columns} HAVING SUM({WEIGHT}) <> 0"
        )

    def _keys(self, changed: list[tuple[str, tuple[Expression, ...]]]) -> str:
        """The distinct keys of changed rows."""
        parts = []
        for name, values in changed:
            items = [
                f"{self.emitter.text(value)} AS {key_column(index)}"
                for index, value in enumerate(values)
            ]
            parts.append(f"SELECT DISTINCT {', '.join(items) or '1 AS one'} FROM {name}")
        return self.emitter.cte("k", " UNION ".join(parts))
