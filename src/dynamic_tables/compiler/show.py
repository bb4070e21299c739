"""The tree of a query for people: one operator a line, inputs indented below it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dynamic_tables.compiler.tree import (
    Aggregate,
    Constant,
    Distinct,
    Explode,
    Expression,
    Filter,
    Join,
    Mark,
    Named,
    Node,
    Project,
    Scan,
    SetOperation,
    Union,
    Window,
    children,
)


def shown(node: Node, names: Mapping[str, str], *, dialect: str, depth: int = 0) -> Iterator[str]:
    """The lines of a tree; `names` says what the sources are called."""
    yield "  " * depth + _line(node, names, dialect)
    for child in children(node):
        yield from shown(child, names, dialect=dialect, depth=depth + 1)


def _line(node: Node, names: Mapping[str, str], dialect: str) -> str:  # noqa: C901, PLR0911  one case each
    match node:
        case Scan():
            return (
                f"scan {names.get(node.source, node.source)} ({_columns(c for c, _ in node.names)})"
            )
        case Constant():
            return f"constant {node.query.sql(dialect=dialect)}"
        case Filter():
            return f"filter {_text(node.condition, dialect)}"
        case Project():
            return f"project {_named(node.items, dialect)}"
        case Explode():
            return f"explode {_text(node.lateral, dialect)}"
        case Join():
            return f"{node.kind.value} join {_on(node.condition, dialect)}"
        case Mark():
            return f"mark {node.name} {_on(node.condition, dialect)}"
        case Aggregate():
            keys = _named(node.keys, dialect) or "()"
            return f"aggregate by {keys}: {_named(node.aggregates, dialect)}"
        case Window():
            keys = ", ".join(_text(key, dialect) for key in node.keys)
            return f"window by {keys}: {_named(node.items, dialect)}"
        case Distinct():
            return "distinct"
        case Union():
            return "union all"
        case SetOperation():
            return f"{node.kind.value}{' all' if node.keep_all else ''}"


def _columns(names: Iterator[str]) -> str:
    return ", ".join(names)


def _named(items: Sequence[Named], dialect: str) -> str:
    return ", ".join(f"{name} = {_text(item, dialect)}" for name, item in items)


def _on(condition: Expression | None, dialect: str) -> str:
    return f"on {_text(condition, dialect)}" if condition is not None else "with every row"


def _text(expression: Expression, dialect: str) -> str:
    return expression.sql(dialect=dialect, identify=False).replace("`", "").replace('"', "")
