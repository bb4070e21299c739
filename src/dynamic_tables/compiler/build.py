"""From a query to the tree of operators.

sqlglot parses and qualifies: stars are expanded, ordinals and aliases resolved, every column says
whose it is. What is left here is to put the clauses of each SELECT in the order in which they act.
What the tree cannot say raises `NotIncremental`; nothing is approximated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.qualify import qualify

from dynamic_tables.compiler import functions
from dynamic_tables.compiler.check import check_tree
from dynamic_tables.compiler.fields import (
    check_fields,
    fields_with_capitals,
    with_named_fields,
)
from dynamic_tables.compiler.grouping import grouped
from dynamic_tables.compiler.parsing import parse
from dynamic_tables.compiler.refused import NotIncremental, unfaithful
from dynamic_tables.compiler.subqueries import attach, filtered
from dynamic_tables.compiler.tree import (
    Constant,
    Distinct,
    Explode,
    Expression,
    Filter,
    Join,
    JoinKind,
    Node,
    Project,
    Scan,
    SetKind,
    SetOperation,
    Union,
    column,
    conjunction,
    conjuncts,
    has_subquery,
    rewritten,
)
from dynamic_tables.compiler.windows import spelled_out, windowed
from dynamic_tables.reasons import Reason

TABLE_ARGS = frozenset({"this", "db", "catalog", "alias", "joins", "hints"})
HELPERS = "_ivm"  # an alias that users may not have
# Source key -> its columns, in lower case; with their types where those are known.
Schemas = Mapping[str, tuple[str, ...] | Mapping[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What names mean at one place of the query."""

    tables: Mapping[str, str] = field(default_factory=dict)  # alias -> prefix of its columns
    queries: Mapping[str, tuple[Expression, Scope]] = field(default_factory=dict)  # CTEs

    def with_tables(self, tables: Mapping[str, str]) -> Scope:
        return Scope(tables={**self.tables, **tables}, queries=self.queries)


class Builder:
    """Makes the tree of one query."""

    def __init__(self, schemas: Schemas, *, dialect: str) -> None:
        self.dialect = dialect
        self._schemas = schemas
        self._taken = {HELPERS}

    def fresh(self, wanted: str) -> str:
        """A prefix or column that nobody has yet."""
        name, number = wanted, 1
        while name.lower() in self._taken:
            number += 1
            name = f"{wanted}_{number}"
        self._taken.add(name.lower())
        return name

    def helper(self, purpose: str) -> str:
        """A column of ours: its prefix is no alias of the query."""
        return self.fresh(f"{HELPERS}.{purpose}")

    # Queries

    def query(self, ast: Expression, scope: Scope) -> Node:
        """A SELECT, a set operation, or either in parentheses."""
        scope = self._with_ctes(ast, scope)
        for clause in ("limit", "offset"):
            if ast.args.get(clause):
                raise NotIncremental(Reason.GLOBAL_LIMIT, "LIMIT keeps rows by their place")
        match ast:
            case exp.Subquery():
                return self.query(ast.this, scope)
            case exp.SetOperation():
                return self._set_operation(ast, scope)
            case exp.Select():
                return self.select(ast, scope)
            case exp.Values():
                return self._constant(ast, None)
        raise unfaithful(f"{type(ast).__name__} as a query")

    def _with_ctes(self, ast: Expression, scope: Scope) -> Scope:
        clause = ast.args.get("with_")
        if clause is None:
            return scope
        if clause.args.get("recursive"):
            raise NotIncremental(Reason.RECURSIVE, "WITH RECURSIVE")
        for cte in clause.expressions:
            queries = {**scope.queries, cte.alias.lower(): (cte, scope)}
            scope = Scope(tables=scope.tables, queries=queries)
        return scope

    def _set_operation(self, ast: exp.SetOperation, scope: Scope) -> Node:
        if ast.args.get("by_name") or ast.args.get("side") or ast.args.get("on"):
            raise unfaithful("set operation BY NAME")
        left, right = self.query(ast.left, scope), self.query(ast.right, scope)
        if len(left.columns) != len(right.columns):
            raise unfaithful(
                f"a {ast.key.upper()} of {len(left.columns)} and {len(right.columns)} columns"
            )
        right = Project(
            child=right,
            items=tuple(
                (name, column(other))
                for name, other in zip(left.columns, right.columns, strict=True)
            ),
        )
        keep_all = not ast.args.get("distinct")
        if isinstance(ast, exp.Union):
            both = Union(children=(left, right))
            return both if keep_all else Distinct(child=both)
        kind = SetKind.INTERSECT if isinstance(ast, exp.Intersect) else SetKind.EXCEPT
        return SetOperation(left=left, right=right, kind=kind, keep_all=keep_all)

    def select(self, ast: exp.Select, scope: Scope) -> Node:
        """FROM, WHERE, GROUP BY, HAVING, windows, QUALIFY, the list, DISTINCT: in this order."""
        self.check_clauses(ast)
        node, scope = self.from_clause(ast, scope)
        if where := ast.args.get("where"):
            node = filtered(self, node, where.this, scope)
        names = [item.alias_or_name for item in ast.selects]
        expressions = [spelled_out(ast, item.unalias()) for item in ast.selects]
        node, expressions = self._prepared(node, expressions, scope)
        if qualify := ast.args.get("qualify"):
            node, conditions = self._prepared(node, [spelled_out(ast, qualify.this)], scope)
            expressions += conditions
        if having := ast.args.get("having"):
            expressions.append(self.resolved(having.this, scope))
        node, expressions = grouped(self, node, ast, expressions, scope)
        if having:
            node = filtered(self, node, expressions.pop(), Scope(queries=scope.queries))
        node, expressions = windowed(self, node, expressions)
        if qualify:
            node = Filter(child=node, condition=expressions.pop())
        return self._listed(node, names, expressions, ast)

    def _prepared(
        self, node: Node, expressions: list[Expression], scope: Scope
    ) -> tuple[Node, list[Expression]]:
        """Expressions over the tree's columns; their subqueries are joined to the node."""
        ready = []
        for expression in expressions:
            node, replaced = attach(self, node, self.resolved(expression, scope), scope)
            ready.append(replaced)
        return node, ready

    def _listed(
        self, node: Node, names: list[str], chosen: list[Expression], ast: exp.Select
    ) -> Node:
        for expression in chosen:
            functions.check_stable(expression)
            if functions.reads_clock(expression):
                raise NotIncremental(Reason.TIME_IN_OUTPUT, "the time is part of the result")
        prefix = self.fresh("q")
        listed: Node = Project(
            child=node,
            items=tuple(
                (f"{prefix}.{name.lower()}", expression)
                for name, expression in zip(names, chosen, strict=True)
            ),
        )
        if len(set(listed.columns)) < len(listed.columns):
            raise unfaithful("two columns of one name in a subquery")
        return Distinct(child=listed) if ast.args.get("distinct") else listed

    def check_clauses(self, ast: exp.Select) -> None:
        distinct = ast.args.get("distinct")
        if distinct is not None and distinct.args.get("on"):
            raise unfaithful("DISTINCT ON")
        for clause in ("pivots", "sample", "match", "connect", "into", "kind", "cluster"):
            if ast.args.get(clause):
                raise unfaithful(clause.upper())

    # FROM

    def from_clause(self, ast: exp.Select, scope: Scope) -> tuple[Node, Scope]:
        start = ast.args.get("from_")
        if start is None:
            node: Node = Constant(query=exp.select("1 AS one"), columns=("one",))
        else:
            node, scope = self._relation(start.this, scope)
        for join in ast.args.get("joins") or ():
            node, scope = self._join(node, join, scope)
        for lateral in ast.args.get("laterals") or ():
            node, scope = self._lateral(node, lateral, lateral, scope)
        return node, scope

    def _relation(self, item: Expression, scope: Scope) -> tuple[Node, Scope]:
        if item.args.get("pivots") or item.args.get("sample"):
            raise unfaithful("PIVOT or TABLESAMPLE")
        inner_joins = item.args.get("joins")
        match item:
            case exp.Table() if isinstance(item.this, exp.Identifier):
                node, scope = self._table(item, scope)
            case exp.Table():
                node, scope = self._named(self._constant(item, item.args.get("alias")), item, scope)
            case exp.Subquery() if isinstance(item.this, (exp.Table, exp.Join)):
                node, scope = self._relation(item.this, scope)
            case exp.Subquery():
                node, scope = self._named(self.query(item.this, scope), item, scope)
            case exp.Values() | exp.Unnest():
                node, scope = self._named(self._constant(item, item.args.get("alias")), item, scope)
            case _:
                raise unfaithful(f"{type(item).__name__} in FROM")
        for join in inner_joins or ():
            node, scope = self._join(node, join, scope)
        return node, scope

    def _table(self, item: exp.Table, scope: Scope) -> tuple[Node, Scope]:
        unknown = [name for name, value in item.args.items() if value and name not in TABLE_ARGS]
        if unknown:
            raise unfaithful(f"{', '.join(unknown)} of a table")
        known = scope.queries.get(item.name.lower())
        if known is not None and not item.db:
            cte, outside = known
            node = self.query(cte.this, outside)
            names = [identifier.name for identifier in cte.args["alias"].columns]
            return self._named(node, item, scope, names)
        schema = self._schemas[item.name]
        columns = tuple(schema)
        names = [identifier.name.lower() for identifier in item.args["alias"].columns]
        names += list(columns[len(names) :])
        prefix = self.fresh(item.alias)
        pairs = zip(columns, names, strict=True)
        scan = Scan(
            source=item.name,
            names=tuple((c, f"{prefix}.{n}") for c, n in pairs),
            types=tuple(schema.items()) if isinstance(schema, Mapping) else (),
        )
        return scan, scope.with_tables({item.alias.lower(): prefix})

    def _named(
        self, node: Node, item: Expression, scope: Scope, names: list[str] | None = None
    ) -> tuple[Node, Scope]:
        """A subquery under its alias: its columns get the alias as prefix."""
        alias = item.args.get("alias")
        given = [identifier.name for identifier in alias.columns] if alias is not None else []
        last = [name.rpartition(".")[2] for name in node.columns]
        plain = (given + last[len(given) :]) if given else (names or last)
        plain += last[len(plain) :]
        prefix = self.fresh(item.alias or "s")
        items = tuple(
            (f"{prefix}.{name.lower()}", column(old))
            for name, old in zip(plain, node.columns, strict=True)
        )
        return Project(child=node, items=items), scope.with_tables({item.alias.lower(): prefix})

    def _constant(self, item: Expression, alias: exp.TableAlias | None) -> Node:
        """A relation without tables; its columns must have names."""
        if list(item.find_all(exp.Column)) or item.find(exp.Select):
            raise unfaithful("a table function over columns")
        functions.check_stable(item)
        names = [identifier.name.lower() for identifier in alias.columns] if alias else []
        if not names and isinstance(item, exp.Values) and self.dialect == "spark":
            names = [f"col{n + 1}" for n in range(len(item.expressions[0].expressions))]
        if not names:
            raise unfaithful("a constant relation without column names")
        bare = item.copy()
        bare.set("alias", exp.TableAlias(
            this=exp.to_identifier("v"), columns=[exp.to_identifier(n, quoted=True) for n in names]
        ))  # fmt: skip
        return Constant(query=exp.select("*").from_(bare), columns=tuple(names))

    # Joins

    def _join(self, left: Node, join: exp.Join, scope: Scope) -> tuple[Node, Scope]:
        item = join.this
        lateral = isinstance(item, exp.Lateral) and not isinstance(item.this, exp.Subquery)
        if lateral or (isinstance(item, exp.Unnest) and list(item.find_all(exp.Column))):
            return self._lateral(left, item, join, scope)
        if isinstance(item, exp.Lateral):
            raise unfaithful("LATERAL subquery")
        if join.args.get("using") or join.method:
            raise unfaithful(f"{join.method or 'USING'} join")
        right, inside = self._relation(item, scope)
        parts = [self.resolved(on, inside) for on in conjuncts(join.args.get("on"))]
        if any(map(has_subquery, parts)):
            raise unfaithful("a subquery in ON")
        if any(map(functions.reads_clock, parts)):
            raise unfaithful("the time in ON")
        for part in parts:
            functions.check_stable(part)
        return self.joined(left, right, join.side, join.kind, conjunction(parts)), inside

    def joined(
        self, left: Node, right: Node, side: str, kind: str, condition: Expression | None
    ) -> Node:
        if kind in ("SEMI", "ANTI"):
            chosen = JoinKind.SEMI if kind == "SEMI" else JoinKind.ANTI
            return Join(left=left, right=right, kind=chosen, condition=condition)
        match side:
            case "":
                return Join(left=left, right=right, kind=JoinKind.INNER, condition=condition)
            case "LEFT":
                return Join(left=left, right=right, kind=JoinKind.LEFT, condition=condition)
            case "RIGHT":
                return Join(left=right, right=left, kind=JoinKind.LEFT, condition=condition)
            case "FULL":
                return _full(left, right, condition)
        raise unfaithful(f"{side} {kind} join")

    def _lateral(
        self, child: Node, item: Expression, clause: Expression, scope: Scope
    ) -> tuple[Node, Scope]:
        """LATERAL VIEW explode(…) and JOIN UNNEST(…)."""
        alias = item.args.get("alias")
        if alias is None or not alias.columns:
            raise unfaithful("explode without column names")
        prefix = self.fresh(item.alias or "e")
        produced = [identifier.name.lower() for identifier in alias.columns]
        resolved = self.resolved(clause, scope)
        functions.check_stable(resolved)
        new_alias = exp.TableAlias(
            this=exp.to_identifier(prefix, quoted=True),
            columns=[exp.to_identifier(f"{prefix}.{name}", quoted=True) for name in produced],
        )
        target = resolved.this if isinstance(resolved, exp.Join) else resolved
        target.set("alias", new_alias)
        node = Explode(
            child=child, lateral=resolved, produced=tuple(f"{prefix}.{n}" for n in produced)
        )
        return node, scope.with_tables({item.alias.lower(): prefix})

    # Expressions

    def resolved(self, expression: Expression, scope: Scope) -> Expression:
        """The expression over the columns of the tree."""

        def replace(node: Expression) -> Expression | None:
            if not isinstance(node, exp.Column) or not node.table:
                return None
            prefix = scope.tables.get(node.table.lower())
            if prefix is None:
                raise unfaithful(f"column {node.sql()}")
            return column(f"{prefix}.{node.name.lower()}")

        return rewritten(expression, replace)


def _full(left: Node, right: Node, condition: Expression | None) -> Node:
    """FULL: what LEFT gives, and the rows of the right side that have no partner."""
    matched = Join(left=left, right=right, kind=JoinKind.LEFT, condition=condition)
    alone = Join(left=right, right=left, kind=JoinKind.ANTI, condition=condition)
    padded = Project(
        child=alone,
        items=(
            *((name, exp.null()) for name in left.columns),
            *((name, column(name)) for name in right.columns),
        ),
    )
    return Union(children=(matched, padded))


def build(query: str, schemas: Schemas, *, dialect: str) -> Node:
    """The tree of a query whose tables are called by the keys of `schemas`."""
    try:
        ast = with_named_fields(parse(query, dialect), dialect)
        capitals = fields_with_capitals(ast)
        typed: dict[str, object] = {
            key: dict.fromkeys(columns, "unknown") for key, columns in schemas.items()
        }
        ast = qualify(ast, schema=typed, dialect=dialect)
    except SqlglotError as error:
        raise unfaithful(f"sqlglot: {str(error).splitlines()[0]}") from error
    check_fields(ast, capitals)
    tree = Builder(schemas, dialect=dialect).query(ast, Scope())
    check_tree(tree, dialect=dialect)
    return tree
