"""What a table stores beside its declared columns, so that its groups can be merged.

The query is extended by select items: the number of rows of a group, the number of values of a sum,
keys that the user did not select; HAVING becomes a column that says whether a group is shown. The
extended query is then an ordinary query, maintained by the ordinary rules; what users see is a view
over its table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from sqlglot import exp
from sqlglot.errors import SqlglotError

from dynamic_tables.compiler import functions
from dynamic_tables.compiler.folds import count_rows, fold_of
from dynamic_tables.compiler.grouping import NESTED
from dynamic_tables.compiler.parsing import parse
from dynamic_tables.compiler.spelling import printed
from dynamic_tables.compiler.tree import Expression
from dynamic_tables.names import RESERVED_PREFIX, SHOWN

UNKNOWN_CLAUSES = (
    "distinct",
    "limit",
    "offset",
    "qualify",
    "windows",
    "kind",
)  # fmt: skip  what would see the groups that HAVING hides, or the columns that are added


@dataclass(frozen=True, slots=True, kw_only=True)
class Extended:
    """A query that carries all that `merge` needs."""

    query: str
    hidden: tuple[str, ...]  # the columns that it has more, behind the others


def extended(query: str, dialect: str) -> Extended | None:
    """The query with auxiliary columns; None where none would help or none are needed."""
    try:
        ast = parse(query, dialect)
    except SqlglotError:
        return None
    if not isinstance(ast, exp.Select) or any(ast.args.get(name) for name in UNKNOWN_CLAUSES):
        return None
    lists = _Lists(ast, dialect)
    if not lists.can_be_extended():
        return None
    added = dict(lists.added())
    if not added:
        return None
    ast.set("having", None)
    for name, item in added.items():
        ast.append("expressions", exp.alias_(item, name))
    return Extended(query=printed(ast, dialect), hidden=tuple(added))


@dataclass(slots=True)
class _Lists:
    """The SELECT list, GROUP BY and HAVING of one SELECT."""

    ast: exp.Select
    dialect: str
    selected: list[Expression] = field(init=False)  # without their aliases
    aggregates: list[Expression] = field(init=False)

    def __post_init__(self) -> None:
        self.selected = [item.unalias() for item in self.ast.selects]
        having = self.ast.args.get("having")
        everything = [*self.selected, *([having.this] if having else [])]
        self.aggregates = [found for item in everything for found in _aggregates(item)]

    def can_be_extended(self) -> bool:
        """A plain GROUP BY (or none) whose aggregates all have an inverse."""
        group = self.ast.args.get("group")
        if group is None and not self.aggregates:
            return False
        if group is not None and not self._groups_plainly(group):
            return False
        if any(item.find(exp.Query, exp.Window, exp.Star) for item in self._outside()):
            return False
        if not self._having_is_plain():
            return False
        return all(fold_of(found, self.dialect) is not None for found in self.aggregates)

    def _groups_plainly(self, group: exp.Group) -> bool:
        """One grouping set; under GROUP BY ALL, what HAVING becomes could be taken for a key."""
        if any(group.args.get(name) for name in ("rollup", "cube", "grouping_sets", "totals")):
            return False
        if group.args.get("all") and self.ast.args.get("having"):
            return False
        return not any(isinstance(key, NESTED) for key in group.expressions)

    def _outside(self) -> list[Expression]:
        """Everything but FROM and WHERE, COUNT(*) aside."""
        having = self.ast.args.get("having")
        return [
            item.transform(lambda n: exp.Literal.number(1) if n == count_rows() else n)
            for item in (*self.selected, *([having.this] if having else []))
        ]

    def _having_is_plain(self) -> bool:
        """HAVING must mean the same as a select item: it mentions no alias of another item."""
        having = self.ast.args.get("having")
        if having is None:
            return True
        aliases = {
            item.alias.lower() for item in self.ast.selects if item.alias != item.unalias().name
        }
        return not any(
            not found.table and found.name.lower() in aliases
            for found in having.find_all(exp.Column)
        )

    def added(self) -> Iterator[tuple[str, Expression]]:
        """The columns to add and what they are, each once."""
        present = set(self.selected)
        wanted: list[tuple[str, Expression]] = [("key", key) for key in self._hidden_keys()]
        if self._has_keys():
            wanted.append(("count", count_rows()))
        for found in self.aggregates:
            fold = fold_of(found, self.dialect)
            assert fold is not None
            companions = zip(_purposes(len(fold.companions())), fold.companions(), strict=True)
            wanted += [*companions, (fold.kind.value, found)]
        number = 0
        for purpose, item in wanted:
            if item in present:
                continue
            present.add(item)
            number += 1
            yield f"{RESERVED_PREFIX}{purpose}_{number}", item.copy()
        if having := self.ast.args.get("having"):
            yield SHOWN, exp.Coalesce(this=having.this.copy(), expressions=[exp.false()])

    def _has_keys(self) -> bool:
        return self.ast.args.get("group") is not None

    def _hidden_keys(self) -> Iterator[Expression]:
        """Keys that are not selected; ordinals and aliases are selected by their nature."""
        group = self.ast.args.get("group")
        aliases = {item.alias.lower() for item in self.ast.selects if item.alias}
        for key in group.expressions if group is not None else ():
            is_alias = isinstance(key, exp.Column) and not key.table and key.name.lower() in aliases
            if not isinstance(key, exp.Literal) and not is_alias:
                yield key


def _purposes(number: int) -> tuple[str, ...]:
    """SUM has a count beside it, AVG a sum and a count."""
    return ("sum", "count")[2 - number :]


def _aggregates(item: Expression) -> Iterator[Expression]:
    """The outermost aggregates of an expression."""
    if functions.is_aggregate(item):
        yield item
        return
    for child in item.iter_expressions():
        yield from _aggregates(child)
