"""A query at a cut: the user's text with every table at its pinned version.

Base tables and dynamic tables get `VERSION AS OF` after their name. A view becomes a temporary view
of the private session, made of the view's own text, pinned in the same way, under the namespace and
settings the view was made with. Afterwards Spark's analysed plan is the witness: every leaf must
read a pinned version.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import count

from pyspark.sql import DataFrame, SparkSession

from dynamic_tables.compiler.references import (
    ClockReference,
    Reference,
    TableReference,
    aliased_as,
    instant_sql,
    pinned_relation,
    rewrite,
)
from dynamic_tables.definition import Hidden
from dynamic_tables.errors import InvalidInput, RefreshError
from dynamic_tables.lake import catalog, jvm
from dynamic_tables.lake.catalog import View
from dynamic_tables.lake.jvm import Java
from dynamic_tables.lake.references import SPECIAL_TIME, Found, find_references
from dynamic_tables.lake.sessions import result_settings, settings_for_now, use_namespace
from dynamic_tables.model import Pin
from dynamic_tables.names import RESERVED_PREFIX, SHOWN, TableName, quote
from dynamic_tables.reasons import Reason

HARMLESS_LEAVES = frozenset(
    ["OneRowRelation", "LocalRelation", "Range", "CTERelationRef", "UnionLoopRef", "EmptyRelation"]
)
UNPINNED_CLOCKS = frozenset(
    ["CurrentDate", "CurrentTimestamp", "Now", "LocalTimestamp", "CurrentTime"]
)
FS_RELATION = "org.apache.spark.sql.execution.datasources.HadoopFsRelation"
TREE_PATTERN = "org.apache.spark.sql.catalyst.trees.TreePattern"
DELTA_INDEX = "org.apache.spark.sql.delta.files.TahoeLogFileIndex"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """All texts of a query, the views' included, and what they name."""

    found: Mapping[str, Found]  # by text
    views: Mapping[str, View]  # by name key
    sources: Mapping[str, TableName]  # by name key

    @property
    def reads_clock(self) -> bool:
        return any(found.reads_clock for found in self.found.values())

    @property
    def sums_floats(self) -> bool:
        return any(found.sums_floats for found in self.found.values())


def read_texts(
    spark: SparkSession,
    query: str,
    namespace: tuple[str, str],
    *,
    unregistered: Container[str] = (),
    known: dict[str, Found] | None = None,
    given: Mapping[str, View] | None = None,
) -> Reading:
    """Follow a query through its views down to tables.

    `unregistered` names are tables too; `known` texts were read before under the same settings.
    `given` are all views there are; without them the catalog says what is one.
    """
    found: dict[str, Found] = {}
    views: dict[str, View] = {}
    sources: dict[str, TableName] = {}
    pending = [(query, namespace, False)]
    while pending:
        text, where, in_view = pending.pop()
        found[text] = (known or {}).get(text) or find_references(spark, text, where)
        for reference in found[text].tables:
            name = catalog.resolve(spark, reference, where, in_view=in_view)
            if name.key in views or name.key in sources:
                continue
            if given is not None:
                view = given.get(name.key)
            else:
                view = None if name.key in unregistered else catalog.view(spark, name)
            if view is None:
                sources[name.key] = name
            else:
                views[name.key] = view
                pending.append((view.text, view.namespace, True))
    return Reading(found=found, views=views, sources=sources)


class PinnedQuery:
    """Puts the pins into the texts and lets Spark analyse the result."""

    def __init__(
        self,
        session: SparkSession,
        reading: Reading,
        *,
        pins: Sequence[Pin],
        instant: datetime,
        columns: Mapping[str, tuple[str, ...]],
        locations: Mapping[str, str] | None = None,
        hidden: Mapping[str, Hidden] | None = None,
    ) -> None:
        self._session = session
        self._reading = reading
        self._pins = {pin.name.key: pin for pin in pins}
        self._instant = instant
        self._only_columns = columns  # by name key: what a changed source may show
        self._locations = locations or {}  # by name key: stored tables that the name is not of
        self._hidden = hidden or {}  # by name key: sources that do not show all that is stored
        self._view_names: dict[str, str] = {}
        self._numbers = count(1)

    def frame(self, query: str, namespace: tuple[str, str]) -> DataFrame:
        """The query at the cut; raises AnalysisException as Spark does."""
        frame = self._session.sql(self.text(query, namespace))
        check_leaves(self._session, frame, self._pins.values())
        check_clock(self._session, frame, self._reading)
        return frame

    def text(self, query: str, namespace: tuple[str, str]) -> str:
        def replacement(reference: Reference) -> str:
            if isinstance(reference, ClockReference):
                return instant_sql(reference.clock, self._instant)
            assert isinstance(reference, TableReference)
            return self._table(reference, namespace)

        return rewrite(query, self._reading.found[query].references, replacement)

    def _table(self, reference: TableReference, namespace: tuple[str, str]) -> str:
        name = catalog.resolve(self._session, reference, namespace)
        view = self._reading.views.get(name.key)
        if view is not None:
            return aliased_as(self._view(view), reference)
        pin = self._pins[name.key]
        location = self._locations.get(name.key)
        stored = pin.name if location is None else catalog.path_name(location)
        hidden = self._hidden.get(name.key)
        return pinned_relation(
            catalog.name_sql(stored),
            pin.version,
            reference=reference,
            only_columns=self._only_columns.get(name.key),
            only_rows=quote(SHOWN) if hidden and hidden.filtered else None,
            in_parts=hidden.in_parts.over if hidden and hidden.in_parts else None,
            renamed=location is not None,
        )

    def _view(self, view: View) -> str:
        """Make the pinned view once; its name in the private session."""
        if view.name.key not in self._view_names:
            text = self.text(view.text, view.namespace)
            name = f"{RESERVED_PREFIX}view_{next(self._numbers)}"
            self._make_view(name, view, text)
            self._view_names[view.name.key] = name
        return self._view_names[view.name.key]

    def _make_view(self, name: str, view: View, text: str) -> None:
        """As the view was made: under its own namespace and settings."""
        session = self._session
        where = (session.catalog.currentCatalog(), session.catalog.currentDatabase())
        unset = dict.fromkeys(result_settings(session))  # what the view did not have
        with settings_for_now(session, {**unset, **view.settings}):
            use_namespace(session, view.namespace)
            try:
                made = f"CREATE OR REPLACE TEMPORARY VIEW {quote(name)} AS {view.over(text)}"
                session.sql(made)
            finally:
                use_namespace(session, where)


def check_leaves(session: SparkSession, frame: DataFrame, pins: Iterable[Pin]) -> None:
    """Every leaf of the analysed plan is constant or reads a table at just the pinned version."""
    pinned = {(pin.source_id, pin.version) for pin in pins}
    plan = frame._jdf.queryExecution().analyzed()
    plans = [plan, *jvm.items(plan.subqueriesAll())]
    for leaf in (leaf for below in plans for leaf in jvm.items(below.collectLeaves())):
        kind = jvm.class_name(leaf)
        if kind in HARMLESS_LEAVES:
            continue
        found = _version_read(session, leaf, kind)
        if found is None:
            raise catalog.not_delta(_leaf_name(leaf), "it cannot be pinned to a version")
        if found not in pinned:
            raise RefreshError(
                "it was replaced while the refresh was under way",
                reason=Reason.SOURCE_REPLACED,
                about=_leaf_name(leaf),
                hint="refresh again",
            )


def check_clock(session: SparkSession, frame: DataFrame, reading: Reading) -> None:
    """Nothing in the analysed plan reads the clock; the names that do were replaced before."""
    plan = frame._jdf.queryExecution().analyzed()
    words = {word for found in reading.found.values() for word in found.clock_words}
    for leaf in jvm.items(plan.collectLeaves()) if words else ():
        for column in jvm.items(leaf.output()):
            if column.name().lower() in words:
                raise _clock_refused(f"{column.name()} is the clock and a column of a source")
    current = jvm.static(session, TREE_PATTERN, "CURRENT_LIKE")()
    special = any(SPECIAL_TIME.search(text) for text in reading.found)
    if plan.containsPattern(current) or special:
        for below in (plan, *jvm.items(plan.subqueriesAll())):
            _check_nodes(session, below)


def _check_nodes(session: SparkSession, node: Java) -> None:
    kind = jvm.class_name(node)
    if kind in UNPINNED_CLOCKS or (kind == "Cast" and _reads_special_time(node)):
        raise _clock_refused(f"{node.sql()} reads the clock and cannot be pinned")
    for child in jvm.items(node.children()):
        _check_nodes(session, child)
    for expression in jvm.items(node.expressions()) if jvm.is_plan(session, node) else ():
        _check_nodes(session, expression)


def _reads_special_time(cast: Java) -> bool:
    """CAST('now' AS TIMESTAMP), also where Spark puts the cast itself: day > 'yesterday'."""
    child = cast.child()
    return (
        cast.dataType().sql().startswith(("DATE", "TIMESTAMP"))
        and jvm.class_name(child) == "Literal"
        and SPECIAL_TIME.search(f"'{child.value()}'") is not None
    )


def _clock_refused(what: str) -> InvalidInput:
    return InvalidInput(
        what,
        reason=Reason.ANALYSIS_FAILED,
        hint="write current_date() or current_timestamp(), which refreshes read at the cut; "
        "columns called so need back-ticks",
    )


def _version_read(session: SparkSession, leaf: Java, kind: str) -> tuple[str, int] | None:
    """Delta's table id and the version that a leaf reads; None if it is not pinned to one."""
    if kind != "LogicalRelation" or not jvm.is_a(session, leaf.relation(), FS_RELATION):
        return None
    index = leaf.relation().location()
    if not jvm.is_a(session, index, DELTA_INDEX) or not index.isTimeTravelQuery():
        return None
    snapshot = index.snapshotAtAnalysis()
    return snapshot.metadata().id(), snapshot.version()


def _leaf_name(leaf: Java) -> str:
    return str(leaf.toString()).strip().splitlines()[0][:120]
