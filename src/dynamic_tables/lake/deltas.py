"""Changes instead of rows: the leaves of a delta plan on Delta, and the query's text for the
compiler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import sqlglot
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from sqlglot import exp

from dynamic_tables.compiler import functions
from dynamic_tables.compiler.emit import WEIGHT, Side, Within
from dynamic_tables.compiler.plan import DeltaPlan
from dynamic_tables.compiler.references import (
    Clock,
    TableReference,
    aliased_as,
    instant_sql,
    rewrite,
)
from dynamic_tables.compiler.refused import NotIncremental, unfaithful
from dynamic_tables.compiler.spelling import prints
from dynamic_tables.definition import Definition, InParts
from dynamic_tables.lake import catalog, parts
from dynamic_tables.lake.bags import netted, one_by_one
from dynamic_tables.lake.base import Moves
from dynamic_tables.lake.jvm import Held, Java
from dynamic_tables.lake.pinning import Reading
from dynamic_tables.lake.pins import pin_of
from dynamic_tables.lake.plans import read_columns, source_names
from dynamic_tables.lake.ranges import ORDERED_ALIKE, Spans, condition
from dynamic_tables.lake.sessions import differing_settings, use_namespace
from dynamic_tables.lake.skipping import Wanted
from dynamic_tables.lake.spans import spans
from dynamic_tables.lake.statements import shown, view_of_types
from dynamic_tables.model import Pin
from dynamic_tables.names import RESERVED_PREFIX, SHOWN, quote
from dynamic_tables.reasons import Reason

DIALECT = "spark"
KEYS = f"{RESERVED_PREFIX}keys"
CAME = ("insert", "update_postimage")
CLOCKS = {  # by the names that sqlglot has for them
    "current_date": Clock.CURRENT_DATE,
    "curdate": Clock.CURDATE,
    "current_timestamp": Clock.CURRENT_TIMESTAMP,
    "now": Clock.NOW,
    "localtimestamp": Clock.LOCALTIMESTAMP,
    "unix_timestamp": Clock.UNIX_TIMESTAMP,
}


class OpaqueQuery:
    """The user's text with the compiler's names instead of tables; views are part of it.

    The session has empty sources under these names: what views mean is asked of it.
    """

    def __init__(self, session: SparkSession, reading: Reading, definition: Definition) -> None:
        self._session = session
        self._reading = reading
        self._settings, self._namespace = definition.settings, definition.namespace
        self._names = {s.name.key: name for name, s in source_names(definition).items()}

    def text(self, query: str, namespace: tuple[str, str]) -> str:
        """Raises NotIncremental if a function may do more than its name and arguments tell."""
        found = self._reading.found[query]
        for name in sorted(found.compiled_functions):
            raise NotIncremental(Reason.UNKNOWN_FUNCTION, f"{name} may fold rows, or make some")
        return rewrite(query, found.tables, lambda reference: self._table(reference, namespace))

    def _table(self, reference: TableReference, namespace: tuple[str, str]) -> str:
        name = catalog.resolve(self._session, reference, namespace)
        view = self._reading.views.get(name.key)
        if view is None:
            return aliased_as(self._names[name.key], reference)
        return aliased_as(self._view(view), reference)

    def _view(self, view: catalog.View) -> str:
        """A view's own text, if it means the same where the query stands."""
        others = differing_settings(view.settings, self._settings)
        if others:
            raise unfaithful(f"the view {view.name} was made under other settings ({others[0]})")
        if view.has_equal_names:
            raise unfaithful(f"the query of the view {view.name} has columns of one name")
        text = self.text(view.text, view.namespace)
        uncast = replace(view, types=()).over(text)
        here, there = self._meant(uncast, self._namespace), self._meant(uncast, view.namespace)
        if not here.sameResult(there):  # functions are looked for in the current schema
            raise unfaithful(f"the view {view.name} means something else outside of its schema")
        types = [column.type for column in catalog.columns_of(here.schema())]
        return f"({view.over(text, types)})"

    def _meant(self, text: str, namespace: tuple[str, str]) -> Java:
        use_namespace(self._session, namespace)
        try:
            return _analysed(self._session, text)
        finally:
            use_namespace(self._session, self._namespace)


def check_faithful(session: SparkSession, text: str) -> None:
    """Spark analyses the text and what sqlglot prints of it alike; raises NotIncremental if not."""
    wanted = _analysed(session, text)
    if not any(_analysed(session, other).sameResult(wanted) for other in prints(text, DIALECT)):
        raise unfaithful("sqlglot prints the query differently")


def _analysed(session: SparkSession, query: str) -> Java:
    """The plan that Spark makes of a query, the same for spellings that it takes for the same."""
    return session.sql(query)._jdf.queryExecution().normalized()


def make_empty_sources(session: SparkSession, definition: Definition) -> None:
    """Views that have the sources' types, to analyse queries over them."""
    for name, source in source_names(definition).items():
        session.sql(view_of_types(name, source.columns))


@dataclass(frozen=True, slots=True)
class Feed:
    """The changes of a source as Delta's change feed tells them."""

    rows: DataFrame
    cancels: bool = False  # rows that did not change may be there: once gone, once come


class SparkLeaves:
    """See `compiler.emit.Leaves`."""

    def __init__(
        self,
        session: SparkSession,
        definition: Definition,
        plan: DeltaPlan,
        moves: Moves,
        *,
        feed: Callable[[Pin, Pin], Feed],  # what changed after one pin, up to another
        frame_at: Callable[[Pin, Sequence[Wanted]], DataFrame],  # of what is wanted, at least
        prunes: Callable[[Pin, Wanted], bool],  # whether literals leave out more than that does
        hold: Callable[[DataFrame], DataFrame],  # what is read more than once
        adds_up: bool = False,  # changes are aggregated
    ) -> None:
        self._session = session
        self._sources = source_names(definition)
        self._columns = {name: read_columns(definition, plan, name) for name in self._sources}
        self._moves = moves
        self._feed, self._frame_at, self._hold = feed, frame_at, hold
        self._prunes = prunes
        self._reads_once, self._adds_up = plan.scans == 1, adds_up
        self._named: set[str] = set()
        self._parts: dict[tuple[str, tuple[Wanted, ...]], int] = {}  # what was wanted of tables
        self._known: dict[
            tuple[str, int], tuple[Any, ...] | Spans
        ] = {}  # keys, by table and column

    def rows(self, source: str, side: Side, within: tuple[Within, ...] = ()) -> str:
        """Once keys are known, without files that have none of them: see `lake.skipping`."""
        pin, known = self._pin(source, side), self._sources[source]
        name = f"{RESERVED_PREFIX}{side.value}_{source.removeprefix(RESERVED_PREFIX)}"
        wanted = self._wanted(within) if known.hidden is None else ()
        if wanted:
            name += f"_{self._parts.setdefault((name, wanted), len(self._parts))}"
        if name not in self._named:
            self._frame_at(pin, wanted).createOrReplaceTempView(name)
            self._named.add(name)
        if known.hidden is None:
            return name
        return f"({shown(name, known.columns, known.hidden)})"

    def _pin(self, source: str, side: Side) -> Pin:
        pins = self._moves.before if side is Side.BEFORE else self._moves.after
        return pin_of(pins, self._sources[source])

    def changes(self, source: str) -> str:
        """The feed; its images of one update are two rows. They cancel where only columns changed
        that the query does not read: then nothing is affected."""
        name = f"{RESERVED_PREFIX}feed_{source.removeprefix(RESERVED_PREFIX)}"
        if name not in self._named:
            told = self._feed(self._pin(source, Side.BEFORE), self._pin(source, Side.AFTER))
            feed = told.rows
            sign = F.when(F.col("_change_type").isin(*CAME), F.lit(1)).otherwise(F.lit(-1))
            columns = [F.col(quote(column)) for column in self._columns[source]]
            hidden = self._sources[source].hidden
            in_parts = hidden.in_parts if hidden is not None else None
            if in_parts is not None:
                feed, sign = self._changed_groups(source, feed, in_parts), F.col(WEIGHT)
            if hidden is not None and hidden.filtered:
                feed = feed.where(F.col(SHOWN))
            signed = feed.select(*columns, sign.alias(WEIGHT))
            if told.cancels and in_parts is None:
                signed = netted(signed, exactly=True)
                signed = one_by_one(signed) if self._adds_up else signed
            kept = signed if self._reads_once else self._hold(signed)
            kept.createOrReplaceTempView(name)
            self._named.add(name)
        return name

    def _changed_groups(self, source: str, feed: DataFrame, in_parts: InParts) -> DataFrame:
        """What is stored of a group may change without the group; readers see groups only."""
        groups = self._hold(parts.groups_of(feed, in_parts.keys))
        before, after = (self._frame_at(self._pin(source, side), ()) for side in Side)
        return parts.changes(groups, before, after, in_parts)

    def near(self, source: str, side: Side, within: Within, column: str) -> str:
        wanted, pin = self._wanted([within]), self._pin(source, side)
        if not wanted or (self._sources[source].hidden is None and not self._prunes(pin, *wanted)):
            return ""
        found = condition(column, wanted[0].values)
        return f"{found} AND " if found else ""

    def _wanted(self, within: Sequence[Within]) -> tuple[Wanted, ...]:
        found = ((each.column, self._known.get((each.keys, each.index))) for each in within)
        return tuple(Wanted(column, values) for column, values in found if values is not None)

    def nearby(
        self,
        read: Callable[[Sequence[Wanted]], DataFrame],
        keys: str,
        columns: Sequence[str],
        prunes: Callable[[Wanted], bool],
    ) -> DataFrame:
        """Rows, without most of those that have other keys, as far as literals can say it."""
        wanted = self._wanted([Within(keys, n, name) for n, name in enumerate(columns)])
        said = (condition(quote(one.column), one.values) for one in wanted if prunes(one))
        return reduce(DataFrame.where, filter(None, said), read(wanted))

    def learn(
        self, keys: str, held: Held, columns: Sequence[str], *, by_spans: bool = False
    ) -> None:
        """The keys of a table, once they are known; texts are filled in again then.

        `by_spans`: the ranges of many keys, too, which takes a job or two.
        """
        kinds = [held.frame.schema[name].dataType.simpleString() for name in columns]
        places = [n for n, kind in enumerate(kinds) if ORDERED_ALIKE.fullmatch(kind)]
        names, found = [columns[n] for n in places], ()
        with suppress(ValueError, OverflowError):  # a date that Python does not have
            if held.is_local:
                found = zip(*held.frame.select(*names).collect(), strict=True)
            elif by_spans:
                found = spans(held.frame, names, held.size)
            self._known |= {(keys, n): of for n, of in zip(places, found, strict=False)}

    def know(self, keys: str, index: int, values: Sequence[Any]) -> None:
        """All values that a column of keys has."""
        self._known[keys, index] = tuple(values)

    def clock(self, function: exp.Expr, side: Side) -> exp.Expr:
        instant = self._moves.then if side is Side.BEFORE else self._moves.now
        clock = CLOCKS[functions.function_name(function)]
        return sqlglot.parse_one(instant_sql(clock, instant), dialect=DIALECT)


def typed(frame: DataFrame, definition: Definition, *also: str) -> DataFrame:
    """The declared columns with the types that they are stored with."""
    columns = [F.col(quote(c.name)).cast(c.type).alias(c.name) for c in definition.stored_columns]
    return frame.select(*columns, *also)


def types_of(frame: DataFrame) -> Mapping[str, str]:
    return {c.name.lower(): c.type for c in catalog.columns_of(frame._jdf.schema())}
