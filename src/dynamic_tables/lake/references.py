"""Finding the references of a query in Spark's own parse of it.

Spark's parser records for every node which characters it came from. We walk the parsed plan, keep
the scopes of common table expressions (whose names are no tables, even if a table is called the
same), and collect the places that name tables or read the clock. On the way, everything that may
not occur in a definition is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.errors import ParseException
from pyspark.sql import SparkSession

from dynamic_tables.compiler.references import Clock, ClockReference, Reference, TableReference
from dynamic_tables.errors import InvalidInput, StatementError
from dynamic_tables.lake import jvm
from dynamic_tables.lake.jvm import Java
from dynamic_tables.reasons import Reason

RUN_PROGRAMS = frozenset({"reflect", "java_method", "try_reflect"})
TABLE_FUNCTIONS = frozenset(  # table-valued functions that read nothing but their arguments
    [
        "range",
        "explode",
        "explode_outer",
        "posexplode",
        "posexplode_outer",
        "inline",
        "inline_outer",
        "stack",
        "json_tuple",
        "variant_explode",
        "variant_explode_outer",
    ]
)
CLOCKS = {clock.value: clock for clock in Clock}
SCRIPT_NODES = frozenset({"ScriptTransformation", "UnresolvedScriptTransformation"})
APPROXIMATE_FUNCTIONS = (
    frozenset(  # over floating numbers their result depends on the order of rows
        [
            "sum",
            "avg",
            "mean",
            "stddev",
            "std",
            "stddev_samp",
            "stddev_pop",
            "variance",
            "var_samp",
            "var_pop",
            "skewness",
            "kurtosis",
            "corr",
            "covar_samp",
            "covar_pop",
            "regr_slope",
            "regr_intercept",
            "regr_r2",
            "regr_sxx",
            "regr_sxy",
            "regr_syy",
            "regr_avgx",
            "regr_avgy",
            "try_sum",
            "try_avg",
        ]
    )
)


@dataclass(slots=True)
class Found:
    """What a text refers to."""

    references: list[Reference] = field(default_factory=list)
    functions: set[str] = field(default_factory=set)

    @property
    def tables(self) -> list[TableReference]:
        return [item for item in self.references if isinstance(item, TableReference)]

    @property
    def reads_clock(self) -> bool:
        return any(isinstance(item, ClockReference) for item in self.references)

    @property
    def sums_floats(self) -> bool:
        return bool(self.functions & APPROXIMATE_FUNCTIONS)


def find_references(spark: SparkSession, text: str) -> Found:
    """All references of one query; refuses what is no query or may not be in one."""
    if not text.strip():
        raise InvalidInput("there is no query", reason=Reason.NO_QUERY, hint="write … AS SELECT …")
    try:
        plan = jvm.parse_query(spark, text)
    except ParseException as error:
        raise _not_a_query(spark, text, error) from error
    walk = _Walk(spark, text)
    walk.visit(plan, ctes=frozenset(), aliased=False)
    return walk.found


class _Walk:
    """One pass over a parsed plan."""

    def __init__(self, spark: SparkSession, text: str) -> None:
        self.spark = spark
        self.text = text
        self.found = Found()

    def visit(self, node: Java, *, ctes: frozenset[str], aliased: bool) -> None:
        name = jvm.class_name(node)
        if name in SCRIPT_NODES:
            raise self.refusal(node, "TRANSFORM … USING runs a program", Reason.RUNS_PROGRAMS)
        if name == "UnresolvedWith":
            ctes = self.enter_ctes(node, ctes)
        elif name == "UnresolvedRelation":
            self.relation(node, ctes, aliased=aliased)
        elif name == "UnresolvedTableValuedFunction":
            self.table_function(node)
        elif name in ("UnresolvedFunction", "UnresolvedAttribute"):
            self.name_in_expression(node, name)
        elif name == "RelationTimeTravel":
            raise self.refusal(
                node,
                "the query pins a version itself; every source is pinned by the refresh",
                Reason.TIME_TRAVEL,
            )
        for child in self.children(node):
            self.visit(child, ctes=ctes, aliased=name == "SubqueryAlias")

    def children(self, node: Java) -> list[Java]:
        below = list(jvm.items(node.children()))
        if jvm.is_plan(self.spark, node):
            below += jvm.items(node.expressions())
        elif jvm.is_subquery(self.spark, node):
            below.append(node.plan())
        return below

    def enter_ctes(self, node: Java, ctes: frozenset[str]) -> frozenset[str]:
        """Visit the bodies, each in the scope of those before it; the scope of the main query."""
        recursive = bool(node.allowRecursion())
        for pair in jvm.items(node.cteRelations()):
            name = pair.productElement(0).lower()
            inner = ctes | {name} if recursive else ctes
            self.visit(pair.productElement(1), ctes=inner, aliased=False)
            ctes = ctes | {name}
        return ctes

    def relation(self, node: Java, ctes: frozenset[str], *, aliased: bool) -> None:
        parts = tuple(jvm.items(node.multipartIdentifier()))
        if len(parts) == 1 and parts[0].lower() in ctes:
            return
        if node.isStreaming():
            raise self.refusal(node, "a stream cannot be a source", Reason.SOURCE_NOT_DELTA)
        start, stop = self.span(node)
        self.found.references.append(
            TableReference(start=start, stop=stop, parts=parts, aliased=aliased)
        )

    def table_function(self, node: Java) -> None:
        name = list(jvm.items(node.name()))[-1].lower()
        if name not in TABLE_FUNCTIONS:
            raise self.refusal(
                node, f"the table function {name} cannot be pinned", Reason.SOURCE_NOT_DELTA
            )

    def name_in_expression(self, node: Java, kind: str) -> None:
        parts = [part.lower() for part in jvm.items(node.nameParts())]
        name = parts[-1]
        if kind == "UnresolvedFunction":
            self.function(node, name, qualified=len(parts) > 1)
        elif len(parts) == 1 and name in (
            "current_date",
            "current_timestamp",
            "localtimestamp",
        ):
            self.clock(node, CLOCKS[name])

    def function(self, node: Java, name: str, *, qualified: bool) -> None:
        if name in RUN_PROGRAMS:
            raise self.refusal(node, f"{name} runs code of its own", Reason.RUNS_PROGRAMS)
        if not qualified and jvm.is_temporary_function(self.spark, name):
            raise self.refusal(
                node, f"{name} is a temporary function of this session", Reason.TEMPORARY_OBJECT
            )
        self.found.functions.add(name)
        if name in CLOCKS and not list(jvm.items(node.arguments())):
            self.clock(node, CLOCKS[name])

    def clock(self, node: Java, clock: Clock) -> None:
        start, stop = self.span(node)
        self.found.references.append(ClockReference(start=start, stop=stop, clock=clock))

    def span(self, node: Java) -> tuple[int, int]:
        origin = node.origin()
        start, stop = jvm.option(origin.startIndex()), jvm.option(origin.stopIndex())
        if start is None or stop is None:
            raise self.refusal(node, "its place in the text is unknown", Reason.INTERNAL)
        return start, stop + 1

    def refusal(self, node: Java, message: str, reason: Reason) -> InvalidInput:
        start = jvm.option(node.origin().startIndex()) or 0
        return StatementError(message, reason=reason, text=self.text, position=start)


def _not_a_query(spark: SparkSession, text: str, error: ParseException) -> InvalidInput:
    """Tell a syntax error from a statement that is no query, or from several statements."""
    parameters = error.getMessageParameters() or {}
    first_line = str(error).strip().splitlines()[0]
    position = _position(text, error)
    if parameters.get("error") == "';'":
        return StatementError(
            "there is more than one statement",
            reason=Reason.SEVERAL_STATEMENTS,
            text=text,
            position=position,
            hint="declare one query; run other statements by themselves",
        )
    if _parses_as_statement(spark, text):
        return StatementError(
            "this is a statement, not a query",
            reason=Reason.NOT_A_QUERY,
            text=text,
            position=0,
            hint="a dynamic table is declared by a SELECT",
        )
    return StatementError(first_line, reason=Reason.SYNTAX, text=text, position=position)


def _position(text: str, error: ParseException) -> int:
    """Where Spark says the error is; 0 if it does not say."""
    for context in error.getQueryContext():
        return min(context.startIndex(), len(text))
    return 0


def _parses_as_statement(spark: SparkSession, text: str) -> bool:
    try:
        spark._jsparkSession.sessionState().sqlParser().parsePlan(text)
    except ParseException:
        return False
    return True
