"""Window functions: those of one SELECT become one operator, by the keys that all of them share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from dynamic_tables.compiler import functions
from dynamic_tables.compiler.refused import NotIncremental, unfaithful
from dynamic_tables.compiler.tree import Expression, Node, Window, column, rewritten
from dynamic_tables.reasons import Reason

if TYPE_CHECKING:
    from dynamic_tables.compiler.build import Builder


def windowed(
    builder: Builder, node: Node, expressions: list[Expression]
) -> tuple[Node, list[Expression]]:
    """Put a Window below the expressions if some of them have window functions."""
    items: list[tuple[str, Expression]] = []

    def replace(found: Expression) -> Expression | None:
        if not isinstance(found, exp.Window):
            return None
        name = builder.helper("value")
        items.append((name, found))
        return column(name)

    ready = [rewritten(expression, replace) for expression in expressions]
    if not items:
        return node, ready
    windows = [window for _, window in items]
    for window in windows:
        functions.check_stable(window)
        if functions.reads_clock(window):
            raise NotIncremental(Reason.TIME_IN_OUTPUT, "the time in a window")
    keys = _shared_keys(windows)
    if not keys:
        raise NotIncremental(Reason.NO_PARTITION, "a window over all rows")
    return Window(child=node, items=tuple(items), keys=keys), ready


def spelled_out(ast: exp.Select, expression: Expression) -> Expression:
    """OVER w with the words of WINDOW w AS (…)."""
    named = {window.name.lower(): window for window in ast.args.get("windows") or ()}

    def replace(found: Expression) -> Expression | None:
        reference = found.args.get("alias") if isinstance(found, exp.Window) else None
        if reference is None:
            return None
        definition = named.get(reference.name.lower())
        if definition is None or definition.args.get("alias"):
            raise unfaithful(f"window {reference.name}")
        spelled = found.copy()
        spelled.set("alias", None)
        for part in ("partition_by", "order", "spec"):
            if definition.args.get(part) is not None:
                spelled.set(part, definition.args[part])
        return spelled

    return rewritten(expression, replace)


def _shared_keys(windows: list[Expression]) -> tuple[Expression, ...]:
    first, *others = [list(window.args.get("partition_by") or ()) for window in windows]
    return tuple(key for key in first if all(key in other for other in others))
