"""Finding the references of a query in Spark's own parse of it.

Spark's parser records for every node which characters it came from. We walk the parsed plan, keep
the scopes of common table expressions (whose names are no tables, even if a table is called the
same), and collect the places that name tables or read the clock. On the way, everything that may
not occur in a definition is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from pyspark.errors import ParseException
from pyspark.sql import SparkSession

from dynamic_tables.compiler.references import Clock, ClockReference, Reference, TableReference
from dynamic_tables.errors import InvalidInput, StatementError
from dynamic_tables.lake import jvm
from dynamic_tables.lake.faults import headline
from dynamic_tables.lake.jvm import Java
from dynamic_tables.names import SUBSTITUTED
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
CLOCK_WORDS = frozenset({"current_date", "current_timestamp", "localtimestamp"})  # need no ()
SPECIAL_TIME = re.compile(r"""(['"])\s*(now|today|tomorrow|yesterday)\b[^'"]*\1""", re.IGNORECASE)
TABLE_QUERY = re.compile(  # TABLE t: the word before the name, and what may stand between
    r"(?<![\w.`])table(?:\s|/\*(?:(?!\*/).)*\*/|--[^\n]*\n)*\Z", re.IGNORECASE | re.DOTALL
)
HIDDEN_NAMES = frozenset({"ExpressionWithUnresolvedIdentifier", "PlanWithUnresolvedIdentifier"})
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
    compiled_functions: set[str] = field(default_factory=set)  # permanent, of somebody's classes
    clock_words: set[str] = field(default_factory=set)  # names that a column of the same name hides

    @property
    def tables(self) -> list[TableReference]:
        return [item for item in self.references if isinstance(item, TableReference)]

    @property
    def reads_clock(self) -> bool:
        return any(isinstance(item, ClockReference) for item in self.references)

    @property
    def sums_floats(self) -> bool:
        return bool(self.functions & APPROXIMATE_FUNCTIONS)


def find_references(
    spark: SparkSession, text: str, namespace: tuple[str, str] | None = None
) -> Found:
    """All references of one query; refuses what is no query or may not be in one.

    Functions are looked for in the schema of the namespace, or in the current one.
    """
    if not text.strip():
        raise InvalidInput("there is no query", reason=Reason.NO_QUERY, hint="write … AS SELECT …")
    _check_characters(spark, text)
    try:
        plan = jvm.parse_query(spark, text)
    except ParseException as error:
        raise _not_a_query(spark, text, error) from error
    schema = namespace[1] if namespace else spark.catalog.currentDatabase()
    walk = _Walk(spark, text, schema)
    walk.visit(plan, ctes=frozenset(), aliased=False)
    walk.check_clock_words()
    return walk.found


def _check_characters(spark: SparkSession, text: str) -> None:
    """Refuse what Spark would not read as it is written."""
    if place := re.search("[\ud800-\udfff]", text):
        raise StatementError(
            "half of a surrogate pair is no character",
            reason=Reason.SYNTAX,
            text=text,
            position=place.start(),
            hint="send the text as valid Unicode",
        )
    place = SUBSTITUTED.search(text)
    if place and spark.conf.get("spark.sql.variable.substitute", "true") != "false":
        raise StatementError(
            f"Spark would replace {place.group()} by a value of this session",
            reason=Reason.SYNTAX,
            text=text,
            position=place.start(),
            hint="write the value itself; for the characters, write '$' || '{'",
        )


class _Walk:
    """One pass over a parsed plan."""

    def __init__(self, spark: SparkSession, text: str, schema: str) -> None:
        self.spark = spark
        self.text = text
        self.schema = schema
        self.found = Found()
        self._aliases: set[str] = set()  # of columns, if called like a clock

    def visit(self, node: Java, *, ctes: frozenset[str], aliased: bool) -> None:
        name = jvm.class_name(node)
        if name in SCRIPT_NODES:
            raise self.refusal(
                node,
                "TRANSFORM … USING runs a program",
                Reason.RUNS_PROGRAMS,
                hint="use Spark's own functions",
            )
        if name == "UnresolvedWith":
            ctes = self.enter_ctes(node, ctes)
        elif name == "UnresolvedRelation":
            self.relation(node, ctes, aliased=aliased)
        elif name == "UnresolvedTableValuedFunction":
            self.table_function(node)
        elif name in ("UnresolvedFunction", "UnresolvedAttribute"):
            self.name_in_expression(node, name)
        elif name == "Alias":
            self._aliases |= {node.name().lower()} & CLOCK_WORDS
        elif name in ("Literal", *HIDDEN_NAMES, "RelationTimeTravel"):
            self.check_fixed(node, name)
        for child in self.children(node):
            named = name in ("SubqueryAlias", "Sample") or (
                aliased and name == "UnresolvedSubqueryColumnAliases"
            )
            self.visit(child, ctes=ctes, aliased=named)

    def check_fixed(self, node: Java, name: str) -> None:
        """Refuse what would keep the text from saying what is read, and when."""
        if name == "RelationTimeTravel":
            raise self.refusal(
                node,
                "the query pins a version itself; every source is pinned by the refresh",
                Reason.TIME_TRAVEL,
                hint="leave VERSION AS OF and TIMESTAMP AS OF out",
            )
        if name in HIDDEN_NAMES:
            raise self.refusal(
                node,
                "IDENTIFIER(…) hides the name of what is used",
                Reason.SYNTAX,
                hint="write the name itself",
            )
        if not SPECIAL_TIME.search(self.text):
            return
        start, stop = self.span(node)
        if self.text[start:stop].lower().startswith(("date", "timestamp")) and (
            SPECIAL_TIME.search(self.text[start:stop])
        ):
            raise self.refusal(
                node,
                f"{self.text[start:stop]} reads the clock when it is parsed",
                Reason.ANALYSIS_FAILED,
                hint="write current_date or current_timestamp: they are pinned by the refresh",
            )

    def check_clock_words(self) -> None:
        """`current_date` may be a column; if the text itself calls one so, we cannot know."""
        for word in self._aliases & self.found.clock_words:
            raise StatementError(
                f"{word} is the clock and the name of a column",
                reason=Reason.BAD_COLUMNS,
                text=self.text,
                position=0,
                about=word,
                hint=f"write `{word}` for the column and {word}() for the clock",
            )

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
            raise self.refusal(
                node,
                f"a stream cannot be a source: {'.'.join(parts)}",
                Reason.SOURCE_NOT_DELTA,
                hint="leave STREAM out: refreshes find out themselves what is new",
            )
        start, stop = self.span(node)
        word = TABLE_QUERY.search(self.text[:start])
        self.found.references.append(
            TableReference(
                start=word.start() if word else start,
                stop=stop,
                parts=parts,
                aliased=aliased,
                query=word is not None,
            )
        )

    def table_function(self, node: Java) -> None:
        name = list(jvm.items(node.name()))[-1].lower()
        if name not in TABLE_FUNCTIONS:
            raise self.refusal(
                node,
                f"the table function {name} cannot be pinned",
                Reason.SOURCE_NOT_DELTA,
                hint="read Delta tables by their names",
            )

    def name_in_expression(self, node: Java, kind: str) -> None:
        parts = [part.lower() for part in jvm.items(node.nameParts())]
        name = parts[-1]
        if kind == "UnresolvedFunction":
            self.function(node, name, qualified=len(parts) > 1)
        elif len(parts) == 1 and name in CLOCK_WORDS and not self.is_quoted(node):
            self.found.clock_words.add(name)
            self.clock(node, CLOCKS[name])

    def is_quoted(self, node: Java) -> bool:
        """In back-ticks: a column, whatever it is called."""
        return self.text[self.span(node)[0]] == "`"

    def function(self, node: Java, name: str, *, qualified: bool) -> None:
        if name in RUN_PROGRAMS:
            raise self.refusal(
                node,
                f"{name} runs code of its own",
                Reason.RUNS_PROGRAMS,
                hint="use Spark's own functions",
            )
        if not qualified and jvm.is_temporary_function(self.spark, name):
            raise self.refusal(
                node,
                f"{name} is a temporary function of this session",
                Reason.TEMPORARY_OBJECT,
                hint="make it permanent: CREATE FUNCTION …",
            )
        self.user_function(node, [*jvm.items(node.nameParts())])
        self.found.functions.add(name)
        if name in CLOCKS and not list(jvm.items(node.arguments())):
            self.clock(node, CLOCKS[name])

    def user_function(self, node: Java, parts: list[str]) -> None:
        """A function written in SQL runs its own text, which must be as harmless as the query."""
        known = permanent_function(self.spark, parts, self.schema)
        if known is None:
            return
        text = sql_function_text(self.spark, known)
        if text is None:
            self.found.compiled_functions.add(parts[-1])
            return
        below = find_references(self.spark, text)
        if below.references:
            raise self.refusal(
                node,
                f"the function {parts[-1]} reads tables or the clock, which cannot be pinned",
                Reason.SOURCE_NOT_DELTA,
                hint="write what it does into the query",
            )

    def clock(self, node: Java, clock: Clock) -> None:
        start, stop = self.span(node)
        self.found.references.append(ClockReference(start=start, stop=stop, clock=clock))

    def span(self, node: Java) -> tuple[int, int]:
        origin = node.origin()
        start, stop = jvm.option(origin.startIndex()), jvm.option(origin.stopIndex())
        if start is None or stop is None:
            raise self.refusal(node, "its place in the text is unknown", Reason.INTERNAL)
        return start, stop + 1

    def refusal(
        self, node: Java, message: str, reason: Reason, *, hint: str | None = None
    ) -> InvalidInput:
        start = jvm.option(node.origin().startIndex()) or 0
        return StatementError(message, reason=reason, text=self.text, position=start, hint=hint)


def permanent_function(spark: SparkSession, parts: list[str], schema: str) -> Java | None:
    """What the catalog has stored of a function that somebody made; None for Spark's own."""
    catalog = jvm.session_catalog(spark)
    schema = parts[-2] if len(parts) > 1 else schema
    if not catalog.isPersistentFunction(jvm.function_identifier(spark, schema, parts[-1])):
        return None
    return catalog.externalCatalog().getFunction(schema.lower(), parts[-1].lower())


def sql_function_text(spark: SparkSession, stored: Java) -> str | None:
    """The text of a permanent function written in SQL, as a query; None for all others."""
    kinds = jvm.java_class(spark, "org.apache.spark.sql.catalyst.catalog.UserDefinedFunction")
    if not kinds.isUserDefinedFunction(stored.className()):
        return None
    parser = spark._jsparkSession.sessionState().sqlParser()
    function = kinds.fromCatalogFunction(stored, parser)
    expression = jvm.option(function.exprText())
    return f"SELECT {expression}" if expression else jvm.option(function.queryText())


def _not_a_query(spark: SparkSession, text: str, error: ParseException) -> InvalidInput:
    """Tell a syntax error from a statement that is no query, or from several statements."""
    parameters = error.getMessageParameters() or {}
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
    return StatementError(
        headline(error),
        reason=Reason.SYNTAX,
        text=text,
        position=position,
        hint="the query must run as it is on Spark; try it alone first",
    )


def _position(text: str, error: ParseException) -> int:
    """Where Spark says the error is; 0 if it does not say."""
    told = re.search(r"\(line (\d+), pos (\d+)\)", str(error))
    if told is None:
        return 0
    before = text.splitlines(keepends=True)[: int(told[1]) - 1]
    return min(sum(map(len, before)) + int(told[2]), len(text))


def _parses_as_statement(spark: SparkSession, text: str) -> bool:
    try:
        spark._jsparkSession.sessionState().sqlParser().parsePlan(text)
    except ParseException:
        return False
    return True
