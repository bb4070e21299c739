"""Finding the references of a query in DuckDB's own parse of it.

DuckDB gives the tree of a SELECT as JSON, and each node says at which byte it begins. So the parser
that will run the query says where its tables are; we replace those characters and no others. On the
way, everything that may not occur in a definition is refused.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

from dynamic_tables.compiler.references import Reference, TableReference
from dynamic_tables.errors import InvalidInput, StatementError
from dynamic_tables.names import RESERVED_PREFIX
from dynamic_tables.reasons import Reason

Tree = dict[str, Any]
Serialise = Callable[[str], str]  # DuckDB's json_serialize_sql

TABLE_FUNCTIONS = frozenset(  # table functions that read nothing but their arguments
    ["generate_series", "generate_subscripts", "json_each", "json_tree", "range", "repeat",
     "repeat_row", "unnest"]
)  # fmt: skip
SESSION_FUNCTIONS = frozenset({"getvariable", "getenv", "currval", "nextval"})
# At the cut, {instant} stands for the cut's instant; types are those of the functions.
CLOCKS = {
    "now": "{instant}",
    "current_timestamp": "{instant}",
    "get_current_timestamp": "{instant}",
    "transaction_timestamp": "{instant}",
    "current_date": "CAST({instant} AS DATE)",
    "today": "CAST({instant} AS DATE)",
    "localtimestamp": "CAST({instant} AS TIMESTAMP)",
    "current_localtimestamp": "CAST({instant} AS TIMESTAMP)",
    "current_time": "CAST({instant} AS TIMETZ)",
    "get_current_time": "CAST({instant} AS TIMETZ)",
    "localtime": "CAST(CAST({instant} AS TIMESTAMP) AS TIME)",
    "current_localtime": "CAST(CAST({instant} AS TIMESTAMP) AS TIME)",
}
CLOCK_WORDS = frozenset(  # need no ()
    {"current_timestamp", "current_date", "current_time", "localtime", "localtimestamp"}
)
APPROXIMATE_FUNCTIONS = frozenset(  # over floating numbers the result depends on the order of rows
    ["sum", "avg", "mean", "stddev", "stddev_samp", "stddev_pop", "variance", "var_samp", "var_pop",
     "skewness", "kurtosis", "kurtosis_pop", "corr", "covar_samp", "covar_pop", "regr_slope",
     "regr_intercept", "regr_r2", "regr_sxx", "regr_sxy", "regr_syy", "regr_avgx", "regr_avgy",
     "fsum", "favg", "sumkahan", "kahan_sum", "product", "entropy", "geomean", "sem"]
)  # fmt: skip
_GAP = r"(?:\s|--[^\n]*\n|/\*(?:[^*]|\*(?!/))*\*/)*"
_PART = r'(?:"(?:[^"]|"")*"|[^\W\d][\w$]*)'
_NO_ARGUMENTS = re.compile(rf"{_PART}{_GAP}\({_GAP}\)")
_TABLE_WORD = re.compile(rf"(?<![\w.\"])table{_GAP}\Z", re.IGNORECASE)
_WORD = re.compile(_PART)


@dataclass(frozen=True, slots=True, kw_only=True)
class DuckClock(Reference):
    """A place that reads the clock; `form` has {instant} where the instant goes."""

    form: str


@dataclass(slots=True)
class Found:
    """What a text refers to."""

    tree: Tree
    references: list[Reference] = field(default_factory=list)
    functions: set[str] = field(default_factory=set)
    clock_words: set[str] = field(default_factory=set)  # names that a column of the same name hides
    aliases: set[str] = field(default_factory=set)
    pinned: list[bool] = field(default_factory=list)  # for each table: does it have AT (…)?

    @property
    def tables(self) -> list[TableReference]:
        return [item for item in self.references if isinstance(item, TableReference)]

    @property
    def reads_clock(self) -> bool:
        return any(isinstance(item, DuckClock) for item in self.references)

    @property
    def sums_floats(self) -> bool:
        return bool(self.functions & APPROXIMATE_FUNCTIONS)

    def canonical(self, named: Callable[[TableReference], str]) -> str:
        """The tree without places, tables as `named`: two queries alike are the same query."""
        return json.dumps(_plain(self.tree, self.references, named), sort_keys=True)

    def unnamed(self) -> list[int]:
        """Places within the output columns that have no name of their own."""
        node = self.tree
        while "select_list" not in node:
            node = node.get("left") or node["children"][0]
        return [_first_place(item) for item in node["select_list"] if _needs_name(item)]


def find_references(serialise: Serialise, text: str, *, pinned: bool = False) -> Found:
    """All references of one query; refuses what is no query or may not be in one.

    `pinned` texts are ours: they may have AT (VERSION => …).
    """
    if not text.strip():
        raise InvalidInput("there is no query", reason=Reason.NO_QUERY, hint="write … AS SELECT …")
    answer = json.loads(serialise(text))
    if answer["error"]:
        raise _no_select(text, answer)
    if len(answer["statements"]) != 1:
        raise InvalidInput(
            "one query is wanted, not several statements",
            reason=Reason.SEVERAL_STATEMENTS if answer["statements"] else Reason.NO_QUERY,
            hint="CREATE one dynamic table a query",
        )
    walk = _Walk(text, pinned=pinned)
    tree = answer["statements"][0]["node"]
    walk.node(tree, frozenset())
    walk.found.tree = tree
    return walk.found


def _no_select(text: str, answer: Tree) -> InvalidInput:
    if answer["error_type"] == "parser":
        place = _place(text.encode(), int(answer.get("position", 0)))
        return StatementError(
            answer["error_message"],
            reason=Reason.SYNTAX,
            text=text,
            position=place,
            hint="the query must be DuckDB's SQL; try it alone first",
        )
    return InvalidInput(
        "a dynamic table is declared by a SELECT",
        reason=Reason.NOT_A_QUERY,
        about=" ".join(text.split())[:60],
        hint="run other statements with tables.sql",
    )


def _place(encoded: bytes, offset: int) -> int:
    """DuckDB counts bytes, Python characters."""
    return len(encoded[:offset].decode(errors="replace"))


class _Walk:
    """Goes through the tree with the names of common table expressions in scope."""

    def __init__(self, text: str, *, pinned: bool) -> None:
        self._text = text
        self._encoded = text.encode()
        self._pinned = pinned
        self.found = Found(tree={})

    def node(self, node: Any, scope: frozenset[str]) -> None:
        if isinstance(node, list):
            for item in node:
                self.node(item, scope)
        if not isinstance(node, dict):
            return
        if "query_location" in node:  # 2**64 - 1: DuckDB made the node itself
            node["at"] = _place(self._encoded, min(node.pop("query_location"), len(self._encoded)))
        scope = self._with_ctes(node, scope)
        self._visit(node, scope)
        for key, value in node.items():
            if key != "cte_map":
                self.node(value, scope)

    def _with_ctes(self, node: Tree, scope: frozenset[str]) -> frozenset[str]:
        """A CTE sees those before it; itself only if it is recursive, which its node tells."""
        for entry in (node.get("cte_map") or {}).get("map", ()):
            self.node(entry["value"], scope)
            scope = scope | {entry["key"].lower()}
        if node.get("type") == "RECURSIVE_CTE_NODE":
            scope = scope | {node["cte_name"].lower()}
        return scope

    def _visit(self, node: Tree, scope: frozenset[str]) -> None:
        alias = (node.get("alias") or "").lower()
        if alias and [alias] != [name.lower() for name in node.get("column_names") or ()]:
            self.found.aliases.add(alias)
        self.found.aliases.update(name.lower() for name in node.get("column_name_alias") or ())
        match node.get("type"):
            case "BASE_TABLE":
                self._table(node, scope)
            case "TABLE_FUNCTION":
                self._table_function(node)
            case "SHOW_REF":
                self._refuse(node, "DESCRIBE, SHOW and SUMMARIZE look at the present", "SELECT …")
            case "COLUMN_REF":
                names = [name.lower() for name in node["column_names"]]
                if len(names) == 1 and names[0] in CLOCK_WORDS:
                    self.found.clock_words.add(names[0])
                    self._clock(node, _WORD, names[0])
        if node.get("class") in ("FUNCTION", "WINDOW"):
            self._function(node)

    def _table(self, node: Tree, scope: frozenset[str]) -> None:
        parts = tuple(
            part for part in (node["catalog_name"], node["schema_name"], node["table_name"]) if part
        )
        if len(parts) == 1 and parts[0].lower() in scope:
            return
        if node["at_clause"] is not None and not self._pinned:
            raise InvalidInput(
                "the query pins a version itself: AT (…)",
                reason=Reason.TIME_TRAVEL,
                about=".".join(parts),
                hint="leave AT (…) out; every refresh pins all sources at one cut",
            )
        if any(part.lower().startswith(RESERVED_PREFIX) for part in parts) and not self._pinned:
            raise InvalidInput(
                "belongs to the product",
                reason=Reason.RESERVED_NAME,
                about=".".join(parts),
                hint="read the dynamic table by its name",
            )
        start, stop = node["at"], self._end_of_name(node, parts)
        word = _TABLE_WORD.search(self._text, 0, start)
        node["reference"] = len(self.found.references)
        self.found.pinned.append(node["at_clause"] is not None)
        self.found.references.append(
            TableReference(
                start=word.start() if word else start,
                stop=stop,
                parts=parts,
                aliased=bool(node["alias"]),
                query=word is not None,
            )
        )

    def _end_of_name(self, node: Tree, parts: tuple[str, ...]) -> int:
        start = node["at"]
        if self._text[start : start + 1] == "'":
            raise not_pinnable(f"'{parts[-1]}'", "files have no versions")
        name = rf"{_GAP}\.{_GAP}".join([_PART] * len(parts))
        matched = re.compile(name).match(self._text, start)
        if matched is None:
            self._refuse(node, "the name of the table is not where DuckDB says", "quote the name")
        return matched.end()

    def _table_function(self, node: Tree) -> None:
        name = node["function"].get("function_name", "").lower()
        if name not in TABLE_FUNCTIONS:
            raise not_pinnable(f"{name}(…)", "what the function reads has no versions")

    def _function(self, node: Tree) -> None:
        name = node["function_name"].lower()
        self.found.functions.add(name)
        if name in SESSION_FUNCTIONS:
            raise InvalidInput(
                "depends on the session, which ends before the dynamic table does",
                reason=Reason.TEMPORARY_OBJECT,
                about=f"{name}(…)",
                hint="write the value itself",
            )
        if name in CLOCKS:
            self._clock(node, _NO_ARGUMENTS, name)
        elif name == "age" and len(node["children"]) == 1:
            self._refuse(node, "age with one argument reads the clock", "age(now(), …)")

    def _clock(self, node: Tree, form: re.Pattern[str], name: str) -> None:
        matched = form.match(self._text, node["at"])
        if matched is None or not matched.group().lower().strip('"').startswith(name):
            self._refuse(node, f"{name} reads the clock and cannot be pinned here", f"{name}()")
        node["reference"] = len(self.found.references)
        self.found.references.append(
            DuckClock(start=matched.start(), stop=matched.end(), form=CLOCKS[name])
        )

    def _refuse(self, node: Tree, what: str, instead: str) -> NoReturn:
        raise StatementError(
            what,
            reason=Reason.ANALYSIS_FAILED,
            text=self._text,
            position=node.get("at", 0),
            hint=f"write {instead}",
        )


def _needs_name(item: Tree) -> bool:
    if item["alias"] or item["class"] == "STAR":
        return False
    return item["class"] != "COLUMN_REF" or "reference" in item  # the clock is no column


def _first_place(node: Any) -> int:
    """Where an expression begins, or its first operand: DuckDB places a + b at the +."""
    below = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    own = node.get("at") if isinstance(node, dict) else None
    return min([sys.maxsize if own is None else own, *map(_first_place, below)])


def _plain(node: Any, references: list[Reference], named: Callable[[TableReference], str]) -> Any:
    if isinstance(node, list):
        return [_plain(item, references, named) for item in node]
    if not isinstance(node, dict):
        return node
    kept = dict(_kept(node, references, named))
    reference = references[node["reference"]] if "reference" in node else None
    if isinstance(reference, TableReference):
        kept["table_name"] = named(reference)
    return kept


def _kept(
    node: Tree, references: list[Reference], named: Callable[[TableReference], str]
) -> Iterator[tuple[str, Any]]:
    table = node.get("type") == "BASE_TABLE" and "reference" in node
    for key, value in node.items():
        spelled = table and key in ("catalog_name", "schema_name", "table_name")
        if key not in ("at", "reference") and not spelled:
            yield key, _plain(value, references, named)


def not_pinnable(about: str, why: str) -> InvalidInput:
    return InvalidInput(
        f"cannot be a source: {why}",
        reason=Reason.SOURCE_NOT_DELTA,
        about=about,
        hint="sources are tables of the lake, or views over them: CREATE TABLE … AS FROM …",
    )
