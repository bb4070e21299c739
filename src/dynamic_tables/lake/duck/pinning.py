"""A query at a cut: the user's text with every table at its pinned version.

A table becomes `name AT (VERSION => n)`; where an alias follows, DuckDB wants that in parentheses.
A view becomes its own text, pinned in the same way. Afterwards DuckDB parses the result once more
and is the witness: every table in it must have a version.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from dynamic_tables.compiler.references import Reference, TableReference, as_query, rewrite
from dynamic_tables.definition import Hidden
from dynamic_tables.errors import InternalError
from dynamic_tables.lake.duck.catalog import Catalog, View
from dynamic_tables.lake.duck.references import DuckClock, Found, Serialise, find_references
from dynamic_tables.lake.duck.text import columns_sql, name_sql, quote
from dynamic_tables.model import Pin
from dynamic_tables.names import SHOWN, TableName
from dynamic_tables.reasons import Reason


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

    @property
    def functions(self) -> set[str]:
        return {name for found in self.found.values() for name in found.functions}


def read_texts(
    catalog: Catalog,
    serialise: Serialise,
    query: str,
    namespace: tuple[str, str],
    *,
    declared: Container[str] = (),
) -> Reading:
    """Follow a query through its views down to tables; `declared` names are tables too."""
    found: dict[str, Found] = {}
    views: dict[str, View] = {}
    sources: dict[str, TableName] = {}
    pending = [(query, namespace)]
    while pending:
        text, where = pending.pop()
        found[text] = find_references(serialise, text)
        for reference in found[text].tables:
            name = catalog.resolve(reference, where, declared)
            if name.key in views or name.key in sources:
                continue
            view = None if name.key in declared else catalog.view(name)
            if view is None:
                table = catalog.table(name)
                sources[name.key] = table.name if table else name
            else:
                views[name.key] = view
                pending.append((view.text, view.namespace))
    return Reading(found=found, views=views, sources=sources)


class PinnedQuery:
    """Puts the pins into the texts."""

    def __init__(
        self,
        catalog: Catalog,
        serialise: Serialise,
        reading: Reading,
        *,
        pins: Sequence[Pin],
        instant: datetime,
        columns: Mapping[str, tuple[str, ...]],
        hidden: Mapping[str, Hidden] | None = None,
        declared: Container[str] = (),
    ) -> None:
        self._catalog = catalog
        self._serialise = serialise
        self._reading = reading
        self._pins = {pin.name.key: pin for pin in pins}
        self._instant = f"make_timestamptz({round(instant.timestamp() * 1_000_000)}::BIGINT)"
        self._only_columns = columns  # by name key: what a changed source may show
        self._hidden = hidden or {}  # by name key: sources that do not show all that is stored
        self._declared = declared

    def checked(self, query: str, namespace: tuple[str, str]) -> str:
        """The text that runs; everything in it is pinned."""
        text = self.text(query, namespace)
        if not all(find_references(self._serialise, text, pinned=True).pinned):
            raise InternalError(
                "a table of the query was not pinned", reason=Reason.INTERNAL, about=text
            )
        return text

    def text(self, query: str, namespace: tuple[str, str]) -> str:
        def replacement(reference: Reference) -> str:
            if isinstance(reference, DuckClock):
                return reference.form.format(instant=self._instant)
            assert isinstance(reference, TableReference)
            return self._table(reference, namespace)

        return rewrite(query, self._reading.found[query].references, replacement)

    def _table(self, reference: TableReference, namespace: tuple[str, str]) -> str:
        name = self._catalog.resolve(reference, namespace, self._declared)
        view = self._reading.views.get(name.key)
        if view is not None:
            return self._view(view, reference)
        pin = self._pins[name.key]
        then = self._catalog.name_at(pin.source_id, pin.version)
        relation = f"{name_sql(then)} AT (VERSION => {pin.version:d})"
        only, hidden = self._only_columns.get(name.key), self._hidden.get(name.key)
        if hidden and hidden.in_parts:
            relation = f"({hidden.in_parts.over(relation)})"
        if only is not None:
            where = f" WHERE {quote(SHOWN)}" if hidden and hidden.filtered else ""
            relation = f"(SELECT {columns_sql(only)} FROM {relation}{where})"  # noqa: S608  quoted
        elif reference.aliased or then.name.lower() != reference.parts[-1].lower():
            relation = f"(FROM {relation})"
        else:
            return as_query(relation, reference)
        return aliased_as(relation, reference)

    def _view(self, view: View, reference: TableReference) -> str:
        text = f"({self.text(view.text, view.namespace)}\n)"
        columns = f" ({columns_sql(view.columns)})" if view.columns else ""
        named = f"{text} AS {quote(reference.parts[-1])}{columns}"
        return f"(FROM {named})" if reference.aliased else as_query(named, reference)


def aliased_as(relation: str, reference: TableReference) -> str:
    """`relation` under the name that the query already uses for this place."""
    named = relation if reference.aliased else f"{relation} AS {quote(reference.parts[-1])}"
    return as_query(named, reference)
