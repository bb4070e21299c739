"""CREATE, ALTER, RENAME and DROP: from a statement to a definition that stands in the store and in
the lake.

Order matters for a crash in between. A new table is written to the store first, together with the
claim under which it is loaded; when that expires, the next refresh finds and loads it. A changed
definition is written to the store first, which refuses who has lost the claim; the next refresh
brings the lake in line. So does a dropped table leave the store before the lake (see `removal`).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any

from dynamic_tables.compiler.fingerprint import fingerprint
from dynamic_tables.compiler.refused import NotIncremental
from dynamic_tables.ddl import CreateMode, CreateStatement
from dynamic_tables.declarable import (
    check_column_names,
    check_options,
    fixed_partitions,
    fixed_storage,
)
from dynamic_tables.definition import Definition
from dynamic_tables.errors import (
    DynamicTablesError,
    Held,
    InvalidInput,
    RefreshFailed,
    Refused,
    SetupError,
    StatementError,
)
from dynamic_tables.graph import Graph
from dynamic_tables.lake.base import Analysis
from dynamic_tables.model import RefreshReport, Strategy, TableState
from dynamic_tables.names import TableName, qualify
from dynamic_tables.options import Initialize, Options, RefreshMode
from dynamic_tables.reasons import Reason
from dynamic_tables.refresh.auxiliary import with_auxiliary
from dynamic_tables.refresh.claims import Heartbeats, claimed, created
from dynamic_tables.refresh.context import Context
from dynamic_tables.refresh.definitions import dynamic_sources, renamed
from dynamic_tables.refresh.run import GraphRefresh, Request, new_refresh_id
from dynamic_tables.removal import remove, tell_too
from dynamic_tables.steps import Step, reached
from dynamic_tables.store import Claim

Say = Callable[[str], None]
APPLIED = ("cluster_by", "comment")  # options that a lake itself keeps (see `apply_layout`)


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What CREATE or ALTER did."""

    table: TableName
    did: str  # created | altered | redefined | unchanged | exists | renamed | suspended | resumed
    report: RefreshReport | None = None  # of the load, if there was one
    notes: tuple[str, ...] = ()  # what the user may want to know or do

    def __str__(self) -> str:
        loaded = [str(self.report)] if self.report else []
        notes = [f"note: {note}" for note in self.notes]
        return "\n".join([f"{self.table}: {self.did}", *loaded, *notes])

    def as_json(self) -> dict[str, Any]:
        return {
            "table": str(self.table),
            "did": self.did,
            "refresh": [record.as_json() for record in self.report.records]
            if self.report
            else None,
            "notes": list(self.notes),
        }


class Declarations:
    """The statements that change definitions."""

    def __init__(self, context: Context, say: Say) -> None:
        self._context = context
        self._store, self._lake = context.store, context.lake
        self._say = say

    # CREATE

    def create(self, statement: CreateStatement) -> Declared:
        name = qualify(statement.parts, self._lake.namespace())
        existing = self._store.table(name.key)
        if existing is None:
            return self._create(name, statement)
        if statement.if_not_exists:
            return Declared(table=existing.definition.name, did="exists")
        if statement.mode is CreateMode.CREATE:
            raise InvalidInput(
                "a dynamic table of this name exists",
                reason=Reason.ALREADY_EXISTS,
                about=str(name),
                hint="CREATE OR ALTER (--or-alter) changes it,"
                " CREATE OR REPLACE (--or-replace) builds it anew",
            )
        return self._redefine(existing, statement)

    def _create(self, name: TableName, statement: CreateStatement) -> Declared:
        self._lake.check_name(name)
        analysis = self._analysed(statement, str(name))
        definition = self.define(name, statement, analysis)
        self._check_mode(definition)
        self._graph().check_no_cycle(definition)
        with created(self._context, definition, new_refresh_id()) as claim:
            reached(Step.DEFINED, str(name))
            report = self._made(definition, claim)
        return Declared(table=name, did="created", report=report, notes=_notes(analysis))

    def _made(self, definition: Definition, claim: Claim) -> RefreshReport | None:
        """Lay the table out and load it; if that fails, nothing of it stays."""
        try:
            self._lake.lay_out(definition)
            reached(Step.LAID_OUT, str(definition.name))
            reached(Step.CLAIMED, str(definition.name))
            return self._load(definition, claim, otherwise="nothing was created")
        except BaseException as error:  # Ctrl-C too must leave no trace of a half-made table
            self._check_kept(definition, claim, error)
            self._unmade(definition, claim, error)
            raise

    def _unmade(self, definition: Definition, claim: Claim, error: BaseException) -> None:
        try:
            remove(self._store, self._lake, {definition.table_id: claim})
        except DynamicTablesError as second:
            told = f"nor could the table be taken back ({second.message})"
            tell_too(error, f"{told}; DROP DYNAMIC TABLE {definition.name}")

    def _check_kept(self, definition: Definition, claim: Claim, error: BaseException) -> None:
        """Who was taken for dead while it loaded a table takes nothing back: a successor goes on,
        and what becomes of the table is told by that one."""
        try:
            if self._store.heartbeat(claim):
                return
        except SetupError:  # it does not answer: what is asked of it next fails as well
            return
        if not isinstance(error, DynamicTablesError):
            raise error
        raise Held(
            "another process took over meanwhile and goes on with the load; the definition stands",
            reason=Reason.TAKEN_OVER,
            about=str(definition.name),
            hint="`dynamic-tables history` shows what the other one did",
        ) from error

    def analyse(self, query: str) -> Analysis:
        return self._lake.analyse(query, dynamic_sources(self._store.tables()))

    def _analysed(self, statement: CreateStatement, about: str) -> Analysis:
        """What the query is; its errors name the table, and the place in the whole statement."""
        try:
            return self.analyse(statement.query)
        except StatementError as error:
            in_query = error.text == statement.query  # not in a view that it reads
            raise error.within(statement.before if in_query else "", about) from error
        except DynamicTablesError as error:
            error.about = error.about or about
            raise

    def defined(self, query: str, before: str = "") -> Definition:
        """What a query would be as a table; it has no name and no place."""
        name = qualify(("explained",), self._lake.namespace())
        statement = CreateStatement(
            parts=("explained",), query=query, options=Options(), before=before
        )
        analysis = self._analysed(statement, "the query")
        return replace(self.define(name, statement, analysis), location="")

    def define(self, name: TableName, statement: CreateStatement, analysis: Analysis) -> Definition:
        """The definition that a statement means."""
        self._lake.check_options(name, statement.options)
        check_options(name, statement.options, analysis.columns)
        namespace = self._lake.namespace()
        table_id = uuid.uuid4().hex
        plain = Definition(
            table_id=table_id,
            name=name,
            query=statement.query,
            namespace=namespace,
            settings=analysis.settings,
            columns=analysis.columns,
            sources=analysis.sources,
            views=analysis.views,
            options=statement.options,
            location=self._lake.location_for(name, table_id),
            fingerprint=_fingerprint(analysis, namespace),
            reads_clock=analysis.reads_clock,
            deterministic=analysis.deterministic,
            approximate=analysis.approximate,
        )
        return with_auxiliary(self._lake, plain)

    def _check_mode(self, definition: Definition) -> None:
        """REFRESH_MODE = INCREMENTAL is refused now rather than at every refresh."""
        if definition.options.refresh_mode is not RefreshMode.INCREMENTAL:
            return
        plan = self._lake.plan_of(definition)
        if isinstance(plan, NotIncremental):
            raise Refused(
                f"REFRESH_MODE = INCREMENTAL, but the query can only be recomputed: {plan.what}",
                reason=Reason.MODE_REFUSES_FULL,
                about=str(definition.name),
                hint="REFRESH_MODE = AUTO recomputes it",
            )

    def _graph(self) -> Graph:
        return Graph(state.definition for state in self._store.tables())

    def _load(
        self,
        definition: Definition,
        claim: Claim,
        *,
        forced: Strategy | None = None,
        otherwise: str,
    ) -> RefreshReport | None:
        """Fill a table that is held; `otherwise` is what stands if that fails."""
        if definition.options.initialize is Initialize.ON_SCHEDULE:
            return None
        request = Request(
            table_ids=frozenset({definition.table_id}),
            forced=forced,
            trigger="create",
            refresh_id=claim.refresh_id,
            claim=claim,
        )
        report = GraphRefresh(self._context, request).run()
        if not report.ok:
            hint = f"{otherwise}; mend the query or its data, then CREATE again"
            raise RefreshFailed(report, hint=hint)
        return report

    # CREATE OR ALTER, CREATE OR REPLACE, ALTER

    def _redefine(self, existing: TableState, statement: CreateStatement) -> Declared:
        old = existing.definition
        analysis = self._analysed(statement, str(old.name))
        fresh = self.define(old.name, statement, analysis)
        new = replace(
            fresh, table_id=old.table_id, location=old.location, revision=old.revision + 1
        )
        self._check_mode(new)
        self._graph().check_no_cycle(new)
        same_query = new.fingerprint == old.fingerprint
        replacing = statement.mode is CreateMode.OR_REPLACE
        if same_query and not replacing:
            return self._set_options(old, statement.options)
        if old.options.partitioned_by != new.options.partitioned_by:
            raise fixed_partitions(old.name)
        check_column_names(old, new)
        self._say(self._cost(old, analysis, same_query=same_query))
        with claimed(self._context, old, new_refresh_id()) as claim:
            self._write(old, new, claim)
            report = self._rebuilt(old, new, claim)
            self._lay_out_anew(old, new, claim)
        return Declared(table=new.name, did="redefined", report=report, notes=_notes(analysis))

    def _rebuilt(self, old: Definition, new: Definition, claim: Claim) -> RefreshReport | None:
        """Load it by its new definition; if that fails, the old one stands again."""
        kept = "the table and its query are as they were"
        try:
            return self._load(new, claim, forced=Strategy.FULL, otherwise=kept)
        except BaseException as error:  # Ctrl-C too must leave the definition that fits the rows
            self._check_kept(new, claim, error)
            back = self._taken_back(old, claim, error)
            if back is not None:
                with suppress(DynamicTablesError, *self._lake.faults):  # the next refresh does it
                    self._lake.save_definition(back)
            raise

    def _lay_out_anew(self, old: Definition, new: Definition, claim: Claim) -> None:
        """After the load: only the new rows may have the columns that a layout names. One that
        fails is not declared, either, so that the statement can be repeated."""
        changed = old.options.changed(new.options)
        try:
            self._lake.apply_layout(new, changed)
        except BaseException as error:  # Ctrl-C too must leave what the table has
            plain = new.options.unset(name for name in APPLIED if name in changed)
            self._taken_back(replace(new, options=plain), claim, error)
            raise

    def _cost(self, old: Definition, analysis: Analysis, *, same_query: bool) -> str:
        """What a rebuild will read, said before it begins."""
        what = "is built anew" if same_query else "has a new query and is built anew"
        children = self._graph().descendants([old.table_id])
        ripple = f"; {len(children)} tables that read it follow at their next refresh"
        return (
            f"{old.name} {what}: reads {len(analysis.sources)} sources,"
            f" {_size(analysis.source_bytes)}{ripple if children else ''}"
        )

    def set_options(self, state: TableState, values: Mapping[str, Any]) -> Declared:
        old = state.definition
        return self._set_options(old, old.options.replace_values(values))

    def unset_options(self, state: TableState, names: tuple[str, ...]) -> Declared:
        return self._set_options(state.definition, state.definition.options.unset(names))

    def _set_options(self, old: Definition, options: Options) -> Declared:
        if not old.options.changed(options):
            return Declared(table=old.name, did="unchanged")
        if old.options.partitioned_by != options.partitioned_by:
            raise fixed_partitions(old.name)
        if old.options.storage != options.storage:
            raise fixed_storage(old.name)
        self._lake.check_options(old.name, options)
        check_options(old.name, options, old.columns)
        new = replace(old, options=options, revision=old.revision + 1)
        with claimed(self._context, old, "alter") as claim:
            self._write(old, new, claim, old.options.changed(options))
        return Declared(table=new.name, did="altered")

    def _write(
        self, old: Definition, new: Definition, claim: Claim, changed: Collection[str] = ()
    ) -> None:
        """The store first: what it does not accept must not be found in the lake. With it goes what
        the lake itself keeps of the `changed` options: declared is what was applied."""
        self._store.update_definition(claim, new)
        try:
            self._lake.save_definition(new)
            if changed:
                self._lake.apply_layout(new, changed)
        except BaseException as error:  # Ctrl-C too must leave what the lake has
            self._taken_back(old, claim, error)
            raise

    def _taken_back(self, old: Definition, claim: Claim, error: BaseException) -> Definition | None:
        """The old definition as it stands in the store again, with which the next refresh brings
        the lake in line. None: that failed, too, which is told with the first error."""
        try:
            state = self._store.table_by_id(old.table_id)
            newest = state.definition if state else old  # a refresh may have gone on from the new
            back = replace(old, revision=newest.revision + 1)
            self._store.update_definition(claim, back)
        except DynamicTablesError as second:
            told = f"nor could its definition be taken back ({second.message})"
            tell_too(error, f"{told}; DESCRIBE DYNAMIC TABLE {old.name} shows it")
            return None
        return back

    # RENAME, DROP

    def rename(self, state: TableState, new_name: TableName) -> Declared:
        """The children's queries are rewritten; nothing is recomputed.

        If this dies half-way, the next refresh of a child gives it its parent's new name.
        """
        old = state.definition
        if new_name.key != old.name.key:
            self._lake.check_name(new_name, instead_of=old.name)
        graph = self._graph()
        children = [graph[child] for child in graph.children(old.table_id)]
        rewritten = [renamed(self._lake, child, old.name, new_name) for child in children]
        new = replace(old, name=new_name, revision=old.revision + 1)
        hearts = Heartbeats(self._context)
        with hearts.beating(), ExitStack() as claims:
            held = [
                claims.enter_context(claimed(self._context, definition, "rename", hearts))
                for definition in (old, *children)
            ]
            self._write(old, new, held[0])
            self._lake.unpublish(old)
            if state.build is not None:
                self._lake.publish(new)
            for before, after, claim in zip(children, rewritten, held[1:], strict=True):
                self._write(before, after, claim)
        return Declared(table=new_name, did="renamed")

    def drop(self, state: TableState, *, cascade: bool) -> list[TableName]:
        """The table, and with CASCADE everything that reads it, children first.

        All of them are held before they go together: a refusal leaves everything as it was. What
        the lake does not let go stays, and what it reads (see `removal`).
        """
        graph = self._graph()
        table_id = state.definition.table_id
        below = graph.descendants([table_id])
        if below and not cascade:
            names = ", ".join(sorted(str(graph[key].name) for key in below))
            raise Refused(
                f"other dynamic tables read it: {names}",
                reason=Reason.HAS_CHILDREN,
                about=str(state.definition.name),
                hint=f"DROP DYNAMIC TABLE {state.definition.name} CASCADE drops them too"
                " (on the command line: --cascade)",
            )
        wanted = [graph[key] for key in reversed(graph.order(below | {table_id}))]
        hearts = Heartbeats(self._context)
        with hearts.beating(), ExitStack() as claims:
            held = {
                definition.table_id: claims.enter_context(
                    claimed(self._context, definition, "drop", hearts)
                )
                for definition in wanted
            }
            remove(self._store, self._lake, held)
        return [definition.name for definition in wanted]


def _fingerprint(analysis: Analysis, namespace: tuple[str, str]) -> str:
    return fingerprint(
        analysis.canonical,
        namespace=namespace,
        settings=analysis.settings,
        columns=[column.name for column in analysis.columns],
    )


def _notes(analysis: Analysis) -> tuple[str, ...]:
    """Without a change feed, whole files are compared to learn which of their rows changed."""
    dynamic = {source.name.key for source in analysis.sources if source.dynamic_id}
    return tuple(
        f"{name} has no change feed, so refreshes compare the files that its commits rewrote; "
        f"ALTER TABLE {name} SET TBLPROPERTIES (delta.enableChangeDataFeed = true) turns it on"
        for name in analysis.without_feed
        if name.key not in dynamic
    )


def _size(number: int) -> str:
    """Bytes for people.

    >>> _size(1536)
    '1.5 kB'
    """
    value, units = float(number), ["B", "kB", "MB", "GB", "TB"]
    while value >= 1024 and len(units) > 1:  # noqa: PLR2004
        value, units = value / 1024, units[1:]
    return f"{value:.1f} {units[0]}" if units[0] != "B" else f"{number} B"
