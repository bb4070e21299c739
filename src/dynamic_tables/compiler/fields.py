"""Names that are data: fields of structs and keys of maps.

To qualify a query, sqlglot writes all names in lower case, and the tree gives columns names of its
own. For columns that is no matter; but `to_json(struct(CustomerId))` shows the name, and
`attributes.Size` may look for a key.
"""

from __future__ import annotations

from sqlglot import exp

from dynamic_tables.compiler import functions
from dynamic_tables.compiler.refused import unfaithful


def with_named_fields(ast: exp.Expr, dialect: str) -> exp.Expr:
    """The query with the fields of its structs spelled out; refuses names that would change.

    >>> from dynamic_tables.compiler.parsing import parse
    >>> ast = parse("SELECT struct(CustomerId, a + 1) AS s FROM r", "spark")
    >>> with_named_fields(ast, "spark").sql(dialect="spark")
    "SELECT NAMED_STRUCT('CustomerId', CustomerId, 'col2', a + 1) AS s FROM r"
    """
    for name in ast.find_all(exp.Identifier):
        if has_capitals(name) and name.find_ancestor(exp.DataType, exp.PropertyEQ) is not None:
            inside = name.find_ancestor(exp.DataType, exp.PropertyEQ, exp.Column)
            if not isinstance(inside, exp.Column):
                raise unfaithful(f"the field {name.name}, whose name has capitals")
    if dialect != "spark":
        return ast
    for call in list(ast.find_all(exp.Anonymous)):
        if functions.function_name(call) == "struct":
            call.replace(_named_struct(call))
    return ast


def _named_struct(call: exp.Anonymous) -> exp.Expr:
    items: list[exp.Expr] = []
    for number, value in enumerate(call.expressions, start=1):
        if isinstance(value, exp.Star):
            raise unfaithful("* inside a function")
        named = isinstance(value, (exp.Alias, exp.Column))
        name = value.alias_or_name if named else f"col{number}"
        items += [exp.Literal.string(name), value.unalias()]
    return exp.Anonymous(this="named_struct", expressions=items)


def has_capitals(name: exp.Expr) -> bool:
    return name.name != name.name.lower()


def fields_with_capitals(ast: exp.Expr) -> frozenset[str]:
    """What stands behind a dot and has capitals, in lower case: a column or a field."""
    behind = [dot.expression for dot in ast.find_all(exp.Dot)]
    behind += [column.this for column in ast.find_all(exp.Column) if column.table]
    return frozenset(name.name.lower() for name in behind if has_capitals(name))


def check_fields(qualified: exp.Expr, capitals: frozenset[str]) -> None:
    """Refuse fields whose name had capitals: a map has keys that differ by case only."""
    for dot in qualified.find_all(exp.Dot):
        if dot.expression.name.lower() in capitals:
            raise unfaithful(f"the field {dot.expression.name}, whose name has capitals")
