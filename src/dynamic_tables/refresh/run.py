"""The refresh of a set of tables at one cut: order, concurrency, failures.

Independent branches run at once; a child waits for its parents. A failing table takes its
descendants with it (UPSTREAM_FAILED) and nobody else.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from dynamic_tables.definition import Definition, Source
from dynamic_tables.errors import (
    DynamicTablesError,
    InternalError,
    SetupError,
)
from dynamic_tables.graph import Graph
from dynamic_tables.lake.base import SourceState
from dynamic_tables.model import (
    Action,
    Build,
    Cut,
    Outcome,
    Pin,
    RefreshRecord,
    RefreshReport,
    Status,
    Strategy,
    TableState,
)
from dynamic_tables.reasons import BY_POLICY, Reason
from dynamic_tables.refresh.claims import Heartbeats, claimed
from dynamic_tables.refresh.context import Context, Stopwatch
from dynamic_tables.refresh.cut import CLOCK, Builds, CutPlan, Present, micros, plan_cut
from dynamic_tables.refresh.definitions import as_now, dynamic_sources
from dynamic_tables.refresh.failures import record_failure
from dynamic_tables.refresh.freshness import Observer
from dynamic_tables.refresh.refusals import (
    barred_above,
    defect,
    interrupted,
    sentence,
    suspended,
    upstream_failed,
)
from dynamic_tables.refresh.table import TableRefresh
from dynamic_tables.refresh.writer import Order
from dynamic_tables.store import Claim, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Which tables to refresh, and how."""

    table_ids: frozenset[str] | None = None  # None: all
    upstream: bool = False
    forced: Strategy | None = None
    trigger: str = "manual"
    refresh_id: str | None = None  # given where several processes refresh parts of one set
    cut: Cut | None = None  # of the base tables, pinned by whoever asked; None: the newest
    behind_since: Mapping[str, datetime] = field(default_factory=dict)  # by table id
    claim: Claim | None = None  # taken with the request; whoever took it gives it back
    only_recover: bool = False  # what was left open, if that can be done; no newer cut


@dataclass(slots=True)
class Plan:
    """Everything that is known before the first table is touched."""

    refresh_id: str
    graph: Graph
    states: Mapping[str, TableState]
    present: Present
    cut: CutPlan
    barred: dict[str, DynamicTablesError]  # tables that cannot begin, and why
    named: frozenset[str]  # tables that the user asked for


class GraphRefresh:
    """One `refresh` call."""

    def __init__(
        self,
        context: Context,
        request: Request,
        heartbeats: Heartbeats | None = None,
        stopping: threading.Event | None = None,
    ) -> None:
        self._context = context
        self._request = request
        self._records: dict[str, RefreshRecord] = {}
        self._builds: dict[str, Build] = {}  # of tables refreshed in this call
        self._beating = heartbeats is not None  # a worker's heart beats anyway
        self._claims = heartbeats or Heartbeats(context)
        self._stopping = stopping or threading.Event()  # what is shared is left to a successor
        self._cancelled = False  # the user said stop: what fails now is no failure

    def run(self) -> RefreshReport:
        plan = self.plan()
        order = plan.graph.order(plan.cut.members)
        with nullcontext() if self._beating else self._claims.beating():
            self._run_all(plan, order)
        records = tuple(self._records[key] for key in order if key in self._records)
        return RefreshReport(refresh_id=plan.refresh_id, records=records)

    # Planning

    def plan(self) -> Plan:
        self._context.catch_up()
        states = {state.definition.table_id: state for state in self._context.store.tables()}
        graph = Graph(state.definition for state in states.values())
        wanted, barred = self._wanted(graph, states)
        graph = self._as_now(graph, states, wanted, barred)
        present, missing = self._capture(graph, wanted)
        present = _pinned(present, self._request.cut, states, wanted)
        for table_id in wanted:
            for source in graph[table_id].sources:
                if source.name.key in missing:
                    barred.setdefault(table_id, missing[source.name.key])
        for table_id in list(barred):
            for below in graph.descendants([table_id]) & wanted:
                barred.setdefault(below, barred_above(graph, below, table_id, barred[table_id]))
        free = [key for key in wanted if key not in barred]
        cut = plan_cut(graph, states, free, present, current_builds(graph, self._context.store))
        cut = replace(cut, members=cut.members | set(wanted))
        return Plan(
            refresh_id=self._request.refresh_id or new_refresh_id(),
            graph=graph,
            states=states,
            present=present,
            cut=cut,
            barred=barred,
            named=self._request.table_ids or frozenset(),
        )

    def _wanted(
        self, graph: Graph, states: Mapping[str, TableState]
    ) -> tuple[set[str], dict[str, DynamicTablesError]]:
        """The tables of the request; suspended ones and what reads them are barred."""
        named = self._request.table_ids
        wanted = set(graph) if named is None else set(named)
        if self._request.upstream:
            wanted |= graph.ancestors(wanted)
        barred: dict[str, DynamicTablesError] = {}
        for table_id in wanted:
            if states[table_id].status is Status.SUSPENDED:
                error = suspended(states[table_id])
                if named is not None and table_id in named:
                    raise error
                barred[table_id] = error
        return wanted, barred

    def _as_now(
        self,
        graph: Graph,
        states: Mapping[str, TableState],
        wanted: Iterable[str],
        barred: dict[str, DynamicTablesError],
    ) -> Graph:
        """Views may have been replaced, parents renamed; what cannot be followed is barred."""
        dynamic = dynamic_sources(states.values())
        definitions = dict(graph.definitions)
        for table_id in wanted:
            try:
                definitions[table_id] = as_now(self._context.lake, graph[table_id], graph, dynamic)
            except DynamicTablesError as error:
                barred.setdefault(table_id, error)
        return Graph(definitions.values())

    def _capture(
        self, graph: Graph, wanted: Iterable[str]
    ) -> tuple[Present, dict[str, DynamicTablesError]]:
        """Every base table's newest version, each looked at once; those that cannot be read."""
        instant = self._context.instant()
        bases: dict[str, SourceState] = {}
        missing: dict[str, DynamicTablesError] = {}
        sources: dict[str, Source] = {}
        for table_id in {*wanted, *graph.ancestors(wanted)}:
            sources.update(graph.bases(table_id))
        for key, source in sorted(sources.items()):
            try:
                bases[key] = self._context.lake.source_state(source)
            except DynamicTablesError as error:
                missing[key] = error
                bases[key] = SourceState(
                    source_id=f"gone:{key}", version=0, columns=(), location=""
                )
        return Present(bases=bases, instant=instant), missing

    # Running

    def _run_all(self, plan: Plan, order: list[str]) -> None:
        threads = self._context.settings["threads"]
        with ThreadPoolExecutor(max_workers=threads, thread_name_prefix="refresh") as pool:
            try:
                self._run_in(pool, plan, order)
            except Exception:
                raise  # a defect in how a table's end is told; all others have come to theirs
            except BaseException:  # the user said stop
                self._cancelled = True
                self._stopping.set()
                self._context.lake.cancel()
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _run_in(self, pool: ThreadPoolExecutor, plan: Plan, order: list[str]) -> None:
        """Start every table as soon as its parents are through."""
        waiting = dict.fromkeys(order)
        running: dict[Future[RefreshRecord], str] = {}
        try:
            while waiting or running:
                for table_id in [key for key in waiting if self._ready(plan, key)]:
                    del waiting[table_id]
                    running[pool.submit(self._one, plan, table_id)] = table_id
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    self._records[running.pop(future)] = future.result()
        except Exception:
            wait(running)
            raise

    def _ready(self, plan: Plan, table_id: str) -> bool:
        parents = set(plan.graph.parents(table_id)) & plan.cut.members
        return parents <= self._records.keys()

    def _one(self, plan: Plan, table_id: str) -> RefreshRecord:
        """One table, start to end; errors become a record, under the claim if it was had."""
        definition = plan.graph[table_id]
        claim, watch = self._claim_on(definition), Stopwatch()
        with ExitStack() as kept:
            try:
                self._check_may_begin(plan, table_id)
                claim = claim or kept.enter_context(
                    claimed(self._context, definition, plan.refresh_id, self._claims)
                )
                return self._done(plan, definition, claim)
            except DynamicTablesError as error:
                told = error
            except self._context.lake.faults as error:
                told = self._context.lake.told(error, about=str(definition.name))
            except Exception as error:  # noqa: BLE001  one table's defect must not end the others
                told = defect(str(definition.name), error)
            return self._failed(plan, definition, told, watch.total_ms, claim)

    def _done(self, plan: Plan, definition: Definition, claim: Claim) -> RefreshRecord:
        order = self._order(plan, definition)
        refresh = TableRefresh(self._context, order, claim, self._claims, self._stopping)
        record = refresh.run()
        assert refresh.build is not None
        self._builds[definition.table_id] = refresh.build
        return record

    def _claim_on(self, definition: Definition) -> Claim | None:
        """The claim that the request came with, which others keep, if it is on this table."""
        claim = self._request.claim
        return claim if claim is not None and claim.table_id == definition.table_id else None

    def _check_may_begin(self, plan: Plan, table_id: str) -> None:
        if table_id in plan.barred:
            raise plan.barred[table_id]
        for parent in plan.graph.parents(table_id):
            record = self._records.get(parent)
            if record is not None and record.outcome is not Outcome.DONE:
                raise upstream_failed(plan.graph[table_id], record)

    def _order(self, plan: Plan, definition: Definition) -> Order:
        cut = plan.cut.cut_of(plan.graph, plan.present, definition.table_id)
        return Order(
            refresh_id=plan.refresh_id,
            definition=definition,
            read_revision=plan.states[definition.table_id].definition.revision,
            cut=cut,
            pins=tuple(self.pin(plan, source) for source in definition.sources),
            has_children=bool(plan.graph.children(definition.table_id)),
            forced=self._request.forced if self._is_named(plan, definition.table_id) else None,
            trigger=self._request.trigger,
            behind_since=self._behind_since(plan, definition),
            only_recover=self._request.only_recover,
        )

    def _behind_since(self, plan: Plan, definition: Definition) -> datetime | None:
        """Whoever pinned a cut has looked; else a table's contract makes it worth a look."""
        table_id = definition.table_id
        if self._request.cut is not None or definition.options.target_lag is None:
            return self._request.behind_since.get(table_id)
        observer = Observer(self._context.lake, plan.graph, plan.present.instant)
        return observer.behind_since(table_id, plan.states[table_id], plan.present.bases)

    def _is_named(self, plan: Plan, table_id: str) -> bool:
        """Ancestors taken along are refreshed as they need; only named tables are forced."""
        return not plan.named or table_id in plan.named

    def pin(self, plan: Plan, source: Source) -> Pin:
        parent = source.dynamic_id
        if parent is None:
            state = plan.present.bases[source.name.key]
            return Pin(
                name=source.name,
                source_id=state.source_id,
                version=plan.cut.versions[state.source_id],
                latest=state.version,
            )
        build = (
            self._builds.get(parent) or plan.cut.outside.get(parent) or plan.states[parent].build
        )
        assert build is not None, "a parent is loaded before its child is pinned"
        self._context.lake.publish(plan.graph[parent])  # another process may have made it
        state = self._context.lake.source_state(source)
        return Pin(
            name=source.name,
            source_id=state.source_id,
            version=build.version,
            latest=max(build.version, _newest(plan, parent, build)),
            dynamic_id=parent,
        )

    # Failing

    def _failed(
        self,
        plan: Plan,
        definition: Definition,
        error: DynamicTablesError,
        took_ms: int,
        claim: Claim | None,
    ) -> RefreshRecord:
        """Record what went wrong; too many failures in a row suspend the table."""
        if self._cancelled:
            error = interrupted(definition)
        skipped = error.reason is Reason.SUSPENDED
        build = plan.states[definition.table_id].build
        record = RefreshRecord(
            refresh_id=plan.refresh_id,
            table=definition.name,
            table_id=definition.table_id,
            action=Action.SKIP,
            outcome=Outcome.SKIPPED if skipped else Outcome.FAILED,
            reason=error.reason,
            cut_from=build.cut if build else None,
            cut=self._intended(plan, definition.table_id),
            started_at=self._context.instant_or_here() - timedelta(milliseconds=took_ms),
            duration_ms=took_ms,
            trigger=self._request.trigger,
            error=sentence(error, definition),
            note=error.hint,
        )
        try:
            record = record_failure(
                self._context, record, error, claim, plan.states[definition.table_id]
            )
        except SetupError as second:  # a full disk: how it went is told all the same
            return replace(
                record, note=f"{error.hint} (nor could it be recorded: {second.message})"
            )
        if record.reason in BY_POLICY:
            self._keep_behind(plan, definition.table_id)
        return record

    def _keep_behind(self, plan: Plan, table_id: str) -> None:
        """Nothing failed, and the table is behind: `list` tells since when, unless the engine or
        the store is gone just now; then the next look of a worker tells it."""
        state, bases = plan.states[table_id], plan.present.bases
        observer = Observer(self._context.lake, plan.graph, self._context.instant_or_here())
        with suppress(SetupError, InternalError):
            since = observer.behind_since(table_id, state, bases)
            self._context.store.saw({table_id: since}, {table_id: state.refreshed_at})

    def _intended(self, plan: Plan, table_id: str) -> Cut | None:
        """The cut that a table was to reach; None if it was barred before there was one."""
        if table_id in plan.barred:
            return None
        return plan.cut.cut_of(plan.graph, plan.present, table_id)


def new_refresh_id() -> str:
    return uuid.uuid4().hex[:12]


def _pinned(
    present: Present, cut: Cut | None, states: Mapping[str, TableState], wanted: Iterable[str]
) -> Present:
    """The base tables at the versions that were asked for; if a table is past them already, as
    they are now."""
    if cut is None:
        return present
    asked = {**cut.versions, CLOCK: micros(cut.instant)}
    for table_id in wanted:
        build = states[table_id].build
        stands = build.cut.versions if build else {}
        if any(version > asked.get(key, version) for key, version in stands.items()):
            return present
    bases = {
        key: replace(state, version=min(state.version, asked.get(state.source_id, state.version)))
        for key, state in present.bases.items()
    }
    return Present(bases=bases, instant=cut.instant)


def _newest(plan: Plan, parent: str, build: Build) -> int:
    standing = plan.states[parent].build
    return standing.version if standing else build.version


def current_builds(graph: Graph, store: Store) -> Builds:
    """Recorded states that were built from the present definition; others are another table."""

    def builds(table_id: str) -> list[Build]:
        wanted = graph[table_id].built_from
        return [build for build in store.builds(table_id) if build.fingerprint == wanted]

    return builds
