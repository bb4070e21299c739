"""What a dynamic table is: the query, its sources, its columns, and how they are stored.

Definitions are kept in the store and in the lake; `as_json` and `from_json` are inverse.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dynamic_tables.names import PARTIALS, SHOWN, TableName
from dynamic_tables.options import Options

FLOATING = frozenset({"double", "float", "real"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One output column, or one column of a source as it was at CREATE."""

    name: str
    type: str  # Spark's DDL spelling, e.g. decimal(10,2)

    @property
    def floating(self) -> bool:
        return self.type.lower() in FLOATING


@dataclass(frozen=True, slots=True, kw_only=True)
class InParts:
    """STORAGE = MERGE_ON_READ: a group has several stored rows, which readers make one."""

    fold: str  # SQL over the relation PARTIALS: the rows that would be stored in place
    keys: tuple[str, ...]  # the columns that make a group

    def over(self, relation: str) -> str:
        return self.fold.replace(PARTIALS, relation)

    def as_json(self) -> dict[str, Any]:
        return {"fold": self.fold, "keys": list(self.keys)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | None) -> InParts | None:
        return cls(fold=data["fold"], keys=tuple(data["keys"])) if data else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hidden:
    """Where the rows of a dynamic table lie whose name is a view."""

    location: str
    filtered: bool  # only rows with SHOWN belong to the table
    in_parts: InParts | None = None

    def as_json(self) -> list[Any]:
        return [self.location, self.filtered, self.in_parts and self.in_parts.as_json()]

    @classmethod
    def from_json(cls, data: list[Any] | None) -> Hidden | None:
        if not data:
            return None
        location, filtered, *more = data
        in_parts = InParts.from_json(more[0]) if more else None
        return cls(location=location, filtered=filtered, in_parts=in_parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A Delta table that a query reads: a base table or another dynamic table."""

    name: TableName  # for delta.`path` relations: catalog "", schema "delta", name = the path
    columns: tuple[Column, ...]  # frozen at CREATE: `SELECT *` means these for ever
    dynamic_id: str | None = None  # our table id if the source is a dynamic table
    hidden: Hidden | None = None  # of a dynamic table with auxiliary columns


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewUse:
    """A view that a query reads, as it was at CREATE."""

    name: TableName
    text: str  # this, the namespace, columns or settings changed: VIEW_CHANGED
    namespace: tuple[str, str]
    columns: tuple[str, ...]
    settings: Mapping[str, str]
    query_columns: tuple[str, ...] = ()  # what `*` meant when the view was made, if that is kept
    types: tuple[str, ...] = ()  # that it gives to its columns, if it does

    def as_json(self) -> dict[str, Any]:
        return {
            "name": list(self.name.parts),
            "text": self.text,
            "namespace": list(self.namespace),
            "columns": list(self.columns),
            "settings": dict(self.settings),
            "query_columns": list(self.query_columns),
            "types": list(self.types),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ViewUse:
        catalog, schema = data["namespace"]
        return cls(
            name=TableName(*data["name"]),
            text=data["text"],
            namespace=(catalog, schema),
            columns=tuple(data["columns"]),
            settings=dict(data["settings"]),
            query_columns=tuple(data.get("query_columns", ())),
            types=tuple(data.get("types", ())),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Auxiliary:
    """What a table stores beside its declared columns, so that its groups can be merged."""

    query: str  # the user's query with more columns, behind the declared ones
    columns: tuple[Column, ...]  # those
    in_parts: InParts | None = None

    @property
    def filtered(self) -> bool:
        """HAVING is one of them: the table holds rows that are not shown."""
        return any(column.name == SHOWN for column in self.columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """Everything that a user declared about a dynamic table, and what CREATE found out about it."""

    table_id: str  # ours; also Delta's txnAppId
    name: TableName
    query: str  # the user's text, untouched
    namespace: tuple[str, str]  # catalog and schema in force at CREATE
    settings: Mapping[str, str]  # result-relevant settings of the session at CREATE
    columns: tuple[Column, ...]
    sources: tuple[Source, ...]
    views: tuple[ViewUse, ...]
    options: Options
    location: str  # where the stored table lies
    fingerprint: str  # of the normalised query, its settings and output columns
    reads_clock: bool = False  # current_date, now() … occur: never NOT_MOVED
    deterministic: bool = True
    approximate: tuple[str, ...] = ()  # columns of floating aggregates, compared within 1e-9
    revision: int = 1  # grows with every ALTER; the newest one stands, in the lake or in the store
    auxiliary: Auxiliary | None = None  # with it, the name is a view over the stored table

    @property
    def stored_query(self) -> str:
        """The query whose rows are stored."""
        return self.auxiliary.query if self.auxiliary else self.query

    @property
    def stored_columns(self) -> tuple[Column, ...]:
        return (*self.columns, *(self.auxiliary.columns if self.auxiliary else ()))

    @property
    def types(self) -> dict[str, str]:
        """Those of the stored columns, by name in lower case."""
        return {column.name.lower(): column.type for column in self.stored_columns}

    @property
    def stored_name(self) -> TableName:
        """What the stored table is called."""
        return self.name.hidden if self.auxiliary else self.name

    @property
    def inexact(self) -> tuple[str, ...]:
        """Stored columns that may hold floating aggregates; keys of groups in parts never do."""
        kept = self.auxiliary.columns if self.auxiliary else ()
        keys = self.in_parts.keys if self.in_parts else ()
        found = (*self.approximate, *(column.name for column in kept if column.floating))
        return tuple(name for name in found if name not in keys)

    @property
    def hidden(self) -> Hidden | None:
        """How children find the rows, if not by the name."""
        if self.auxiliary is None:
            return None
        return Hidden(
            location=self.location,
            filtered=self.auxiliary.filtered,
            in_parts=self.auxiliary.in_parts,
        )

    @property
    def in_parts(self) -> InParts | None:
        return self.auxiliary.in_parts if self.auxiliary else None

    def as_declared(self) -> Definition:
        """The same table as if it stored no more than what the user sees."""
        return replace(self, auxiliary=None)

    @property
    def parents(self) -> tuple[str, ...]:
        """Table ids of the dynamic tables it reads."""
        return tuple(source.dynamic_id for source in self.sources if source.dynamic_id)

    @property
    def built_from(self) -> str:
        """What a build must have been made of to be current: the query, and the views below it,
        those of parents that are stored in parts among them."""
        views = json.dumps([view.as_json() for view in self.views], sort_keys=True)
        suffix = _digest(views) if self.views else "-"
        form = f"/{_digest(self._form())}" if self.auxiliary else ""
        folds = [s.hidden.in_parts.fold for s in self.sources if s.hidden and s.hidden.in_parts]
        parents = f"/{_digest(json.dumps(folds))}" if folds else ""
        return f"{self.fingerprint}/{suffix}{form}{parents}"

    def _form(self) -> str:
        assert self.auxiliary is not None
        in_parts = self.auxiliary.in_parts
        return f"{self.auxiliary.query}{in_parts.fold if in_parts else ''}"

    def as_json(self) -> dict[str, Any]:
        return {
            "table_id": self.table_id,
            "name": list(self.name.parts),
            "query": self.query,
            "namespace": list(self.namespace),
            "settings": dict(self.settings),
            "columns": _columns_json(self.columns),
            "sources": [
                {
                    "name": list(source.name.parts),
                    "columns": _columns_json(source.columns),
                    "dynamic_id": source.dynamic_id,
                    "hidden": source.hidden.as_json() if source.hidden else None,
                }
                for source in self.sources
            ],
            "views": [view.as_json() for view in self.views],
            "options": self.options.as_json(),
            "location": self.location,
            "fingerprint": self.fingerprint,
            "reads_clock": self.reads_clock,
            "deterministic": self.deterministic,
            "approximate": list(self.approximate),
            "revision": self.revision,
            "auxiliary": {
                "query": self.auxiliary.query,
                "columns": _columns_json(self.auxiliary.columns),
                "in_parts": self.auxiliary.in_parts and self.auxiliary.in_parts.as_json(),
            }
            if self.auxiliary
            else None,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Definition:
        catalog, schema = data["namespace"]
        kept = data.get("auxiliary")
        return cls(
            table_id=data["table_id"],
            name=TableName(*data["name"]),
            query=data["query"],
            namespace=(catalog, schema),
            settings=dict(data["settings"]),
            columns=_columns(data["columns"]),
            sources=tuple(
                Source(
                    name=TableName(*source["name"]),
                    columns=_columns(source["columns"]),
                    dynamic_id=source["dynamic_id"],
                    hidden=Hidden.from_json(source.get("hidden")),
                )
                for source in data["sources"]
            ),
            views=tuple(ViewUse.from_json(view) for view in data["views"]),
            options=Options.from_json(data["options"]),
            location=data["location"],
            fingerprint=data["fingerprint"],
            reads_clock=data["reads_clock"],
            deterministic=data["deterministic"],
            approximate=tuple(data["approximate"]),
            revision=data["revision"],
            auxiliary=Auxiliary(
                query=kept["query"],
                columns=_columns(kept["columns"]),
                in_parts=InParts.from_json(kept.get("in_parts")),
            )
            if kept
            else None,
        )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _columns_json(columns: tuple[Column, ...]) -> list[list[str]]:
    return [[column.name, column.type] for column in columns]


def _columns(data: list[list[str]]) -> tuple[Column, ...]:
    return tuple(Column(name=name, type=type_) for name, type_ in data)
