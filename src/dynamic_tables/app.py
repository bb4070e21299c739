"""`DynamicTables`: the public object, where the parts are put together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, get_args

from dynamic_tables import ddl
from dynamic_tables.answers import Explanation, Verification, explained
from dynamic_tables.declare import Declarations, Declared
from dynamic_tables.definition import Definition
from dynamic_tables.errors import InvalidInput, RefreshFailed, Refused
from dynamic_tables.graph import Graph
from dynamic_tables.keeper import CatalogKeeper
from dynamic_tables.lake.base import Lake
from dynamic_tables.layout.plan import RorderPlan, rorder_plan
from dynamic_tables.layout.report import RorderReport
from dynamic_tables.layout.rorder import rorder
from dynamic_tables.model import (
    RefreshRecord,
    RefreshReport,
    Status,
    Strategy,
    TableState,
    utc_now,
)
from dynamic_tables.named import Named
from dynamic_tables.names import TableName, qualify, split_name
from dynamic_tables.options import Options, parse_kwargs
from dynamic_tables.reasons import Reason
from dynamic_tables.rebuild import rebuild_store
from dynamic_tables.refresh.claims import claimed_if_one_driver
from dynamic_tables.refresh.context import Context, SliceNews
from dynamic_tables.refresh.cut import common_states
from dynamic_tables.refresh.preview import Planned, preview, preview_of
from dynamic_tables.refresh.run import GraphRefresh, Request, current_builds
from dynamic_tables.refresh.versions import at_versions
from dynamic_tables.schedule import (
    WATCHED,
    Lag,
    Pace,
    Schedule,
    Sighting,
    lag_of,
    last_seen,
    looked_back,
    target_s,
)
from dynamic_tables.settings import Settings
from dynamic_tables.store import QUERYABLE, Store
from dynamic_tables.worker import Worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BY_HAND = "suspended by hand"
OnError = Literal["raise", "report"]


class DynamicTables:
    """All dynamic tables of one lake. Made by `dynamic_tables.connect`."""

    def __init__(
        self,
        lake: Lake,
        store: Store,
        settings: Settings,
        *,
        clock: Callable[[], datetime] = utc_now,
        say: Callable[[str], None],
        keeper: CatalogKeeper | None = None,
    ) -> None:
        self._lake, self._store, self._named = lake, store, Named(lake, store)
        self.settings = settings
        context = Context(lake=lake, store=store, settings=settings, clock=clock)
        self._context = replace(context, catch_up=keeper.catch_up) if keeper else context
        self._declarations = Declarations(self._context, say)
        self._keeper = keeper

    def __enter__(self) -> DynamicTables:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of store and lake; the user's session stays as it is."""
        self._store.close()
        self._lake.close()

    @property
    def spark(self) -> SparkSession:
        """The session that reads see; a lake without Spark raises SetupError."""
        return self._lake.session

    @property
    def lake(self) -> Lake:
        return self._lake

    @property
    def store(self) -> Store:
        return self._store

    def begin(self) -> None:
        """Tell the store what this process has registered; `connect` does, once it has checked that
        the store is this lake's."""
        if self._keeper is not None:
            self._keeper.begin()

    # SQL

    def sql(self, text: str) -> Any:
        """Run one statement: ours, or any other that the lake's engine understands.

        Statements about dynamic tables give the same objects as the methods below; all others give
        Spark's DataFrame, or on DuckLake a `Result` with `columns`, `collect()` and `fetchall()`.
        """
        statement = ddl.parse(text)
        if statement is None:
            return self._pass_through(text)
        return self.execute(statement)

    def execute(self, statement: ddl.Statement) -> Any:  # noqa: PLR0911  one line a statement
        """Run a parsed statement."""
        match statement:
            case ddl.CreateStatement():
                return self._declarations.create(statement)
            case ddl.AlterStatement():
                return self._alter(self._named.state(statement.parts), statement.action)
            case ddl.RefreshStatement():
                return self._refresh(
                    [self._named.state(parts) for parts in statement.tables],
                    upstream=statement.upstream,
                    forced=Strategy.FULL if statement.full else None,
                    on_error="raise",
                )
            case ddl.ExplainStatement(target=ddl.CreateStatement() as create):
                return self._explain_query(create.query, create.before)
            case ddl.ExplainStatement(target=tuple() as parts):
                return self._explain_table(self._named.state(parts))
            case ddl.ShowStatement():
                return self.list()
            case ddl.DescribeStatement():
                return self._named.state(statement.parts)
            case ddl.DropStatement():
                return self._drop(
                    statement.parts, if_exists=statement.if_exists, cascade=statement.cascade
                )
            case ddl.OptimizeStatement():
                return self._optimize(self._named.state(statement.parts))
        raise InvalidInput("not a statement", reason=Reason.SYNTAX, about=repr(statement))

    def _pass_through(self, text: str) -> Any:
        with self._lake.store_views(text, QUERYABLE, self._store.read_rows):
            result = self._lake.run(text)
        if self._keeper is not None:
            self._keeper.after_statement(text)
        return result

    # Declaring

    def create(
        self,
        name: str,
        query: str,
        *,
        or_alter: bool = False,
        or_replace: bool = False,
        if_not_exists: bool = False,
        **options: Any,
    ) -> Declared:
        """Declare a table by a query; `options` are those of the SQL statement in lower case."""
        if or_alter and or_replace:
            raise InvalidInput(
                "or_alter and or_replace exclude each other",
                reason=Reason.CONTRADICTION,
                about=name,
            )
        mode = ddl.CreateMode.CREATE
        if or_alter or or_replace:
            mode = ddl.CreateMode.OR_ALTER if or_alter else ddl.CreateMode.OR_REPLACE
        statement = ddl.CreateStatement(
            parts=split_name(name),
            query=query.strip().removesuffix(";").rstrip(),
            options=Options.from_kwargs(**options),
            mode=mode,
            if_not_exists=if_not_exists,
        )
        return self._declarations.create(statement)

    def alter(
        self, name: str, *, rename_to: str | None = None, unset: Sequence[str] = (), **options: Any
    ) -> Declared:
        """Change options, or the name."""
        state = self._named.state(name)
        if rename_to is not None:
            if unset or options:
                raise InvalidInput(
                    "a table is renamed by itself",
                    reason=Reason.CONTRADICTION,
                    about=name,
                    hint="change the options in a call of their own",
                )
            return self._alter(state, ddl.RenameTo(split_name(rename_to)))
        values = parse_kwargs(options)
        if unset:
            declared = self._declarations.unset_options(state, tuple(unset))
            if not values:
                return declared
            state = self._named.state(name)
        return self._declarations.set_options(state, values)

    def _alter(self, state: TableState, action: Any) -> Declared:
        name = state.definition.name
        match action:
            case ddl.SetOptions(options=options):
                return self._declarations.set_options(state, options)
            case ddl.UnsetOptions(names=names):
                return self._declarations.unset_options(state, names)
            case ddl.RenameTo(parts=parts):
                return self._declarations.rename(state, qualify(parts, (name.catalog, name.schema)))
            case ddl.Suspend():
                self._store.set_status(state.definition.table_id, Status.SUSPENDED, BY_HAND)
                return Declared(table=name, did="suspended")
            case ddl.Resume():
                self._resume(state)
                return Declared(table=name, did="resumed")
        raise InvalidInput("not an action", reason=Reason.SYNTAX, about=repr(action))

    def _resume(self, state: TableState) -> None:
        """Tables that read it and were suspended for their failures go on too; those that somebody
        suspended by hand do not."""
        self._store.set_status(state.definition.table_id, Status.ACTIVE)
        for key in self.graph().descendants([state.definition.table_id]):
            below = self._store.table_by_id(key)
            stopped = below is not None and below.status is Status.SUSPENDED
            if stopped and below.suspended_because != BY_HAND:
                self._store.set_status(key, Status.ACTIVE)

    def suspend(self, name: str) -> Declared:
        return self._alter(self._named.state(name), ddl.Suspend())

    def resume(self, name: str) -> Declared:
        return self._alter(self._named.state(name), ddl.Resume())

    def drop(
        self, name: str, *, if_exists: bool = False, cascade: bool = False
    ) -> Sequence[TableName]:
        """Drop a table with its files; the dropped names come back."""
        return self._drop(split_name(name), if_exists=if_exists, cascade=cascade)

    def _drop(self, parts: ddl.Parts, *, if_exists: bool, cascade: bool) -> Sequence[TableName]:
        state = self._store.table(qualify(parts, self._lake.namespace()).key)
        if state is None and if_exists:
            return []
        return self._declarations.drop(self._named.state(parts), cascade=cascade)

    def optimize(self, name: str) -> TableName:
        """Compact the stored table, in the order of its ROW_GROUPS BY if it has one; no row
        changes."""
        return self._optimize(self._named.state(name))

    def rorder(self, name: str, **how: Any) -> RorderReport:
        """`dynamic_tables.rorder` of a dynamic table, or of any Delta table of the lake."""
        with claimed_if_one_driver(self._context, self._named.dynamic(name), "rorder"):
            return rorder(self._named.place(name), **how, spark=self.spark)

    def rorder_plan(self, name: str, **how: Any) -> RorderPlan:
        """What `rorder` could do, and which way is best; nothing is written."""
        return rorder_plan(self._named.place(name), **how, spark=self.spark)

    def _optimize(self, state: TableState) -> TableName:
        with claimed_if_one_driver(self._context, state, "optimize"):
            self._lake.optimize(state.definition)
        return state.definition.name

    # Refreshing

    def refresh(
        self,
        *names: str,
        upstream: bool = False,
        strategy: str | None = None,
        on_error: OnError = "raise",
    ) -> RefreshReport:
        """Bring tables up to date at one cut: those named, or all."""
        if on_error not in get_args(OnError):
            raise InvalidInput(
                f"on_error={on_error!r} says nothing",
                reason=Reason.BAD_VALUE,
                about=", ".join(names) or "refresh",
                hint="one of " + ", ".join(get_args(OnError)),
            )
        return self._refresh(
            [self._named.state(name) for name in names],
            upstream=upstream,
            forced=_strategy(strategy, names),
            on_error=on_error,
        )

    def _refresh(
        self,
        states: Iterable[TableState],
        *,
        upstream: bool,
        forced: Strategy | None,
        on_error: OnError,
    ) -> RefreshReport:
        wanted = frozenset(state.definition.table_id for state in states)
        request = Request(table_ids=wanted or None, upstream=upstream, forced=forced)
        report = GraphRefresh(self._context, request).run()
        if not report.ok and on_error == "raise":
            raise RefreshFailed(report)
        return report

    def worker(
        self,
        *,
        slots: int,
        say: Callable[[str], None],
        tell: Callable[[RefreshRecord], None] = lambda _record: None,
        hear: Callable[[SliceNews], None] = lambda _news: None,
    ) -> Worker:
        """What keeps the tables fresh; see `dynamic-tables run` and `worker`."""
        return Worker(self._context, slots=slots, say=say, tell=tell, hear=hear)

    def plan(self, *names: str) -> Sequence[Planned]:
        """What the next refresh would do to each table, and why."""
        wanted = frozenset(self._named.state(name).definition.table_id for name in names)
        return preview(self._context, Request(table_ids=wanted or None))

    # Reading

    def read(self, names: str | Sequence[str], *, version: int | None = None) -> Any:
        """A table as a DataFrame; several names give a dict of DataFrames, all at one cut."""
        if isinstance(names, str):
            return self._read(self._named.loaded(names).definition, version)
        states = {name: self._named.loaded(name) for name in names}
        ids = [state.definition.table_id for state in states.values()]
        builds = common_states(ids, current_builds(self.graph(), self._store))
        if builds is None:
            raise Refused(
                "the tables have no state in common: they were never refreshed at one cut",
                reason=Reason.INCOMPATIBLE_CUTS,
                about=", ".join(names),
                hint="refresh them together, then read",
            )
        return {
            name: self._read(state.definition, builds[state.definition.table_id].version)
            for name, state in states.items()
        }

    def _read(self, definition: Definition, version: int | None) -> Any:
        with at_versions(self._lake, definition, version):
            return self._lake.read(definition, version)

    def changes(self, name: str, start: int, end: int) -> Any:
        """What changed in a table between two of its versions: declared columns and the feed's."""
        definition = self._named.loaded(name).definition
        with at_versions(self._lake, definition, start, end):
            return self._lake.changes(definition, start, end)

    def list(self) -> Sequence[TableState]:
        """All dynamic tables, by name."""
        return self._store.tables()

    def show(self, name: str) -> TableState:
        return self._named.state(name)

    def lags(self, *names: str) -> Sequence[Lag]:
        """How far tables are behind, in the order of `list`, by the last look of `run` or a
        worker."""
        named = [self._named.state(name) for name in names]
        everything = self._store.tables()
        states = {state.definition.table_id: state for state in (*everything, *named)}
        graph, now = Graph(state.definition for state in states.values()), self._store.now()
        seen = {key: self._last_seen(state) for key, state in states.items()}
        schedule = Schedule(graph, seen, now, Pace.of(self.settings))
        return [self._lag(state, graph, schedule, now) for state in named or everything]

    def _last_seen(self, state: TableState) -> Sighting:
        count = looked_back(state, state.behind_since)
        past = self._store.history(state.definition.table_id, count) if count else ()
        return last_seen(state, past)

    def _lag(self, state: TableState, graph: Graph, schedule: Schedule, now: datetime) -> Lag:
        table_id = state.definition.table_id
        target = target_s(graph, table_id)
        late = self._store.late(table_id, now - WATCHED, target) if target is not None else []
        return lag_of(graph, state, schedule, late, now)

    def history(self, name: str | None = None, *, limit: int = 50) -> Sequence[RefreshRecord]:
        """Past refreshes, newest first."""
        table_id = self._named.state(name).definition.table_id if name is not None else None
        return self._store.history(table_id, limit)

    def graph(self) -> Graph:
        """Which table reads which."""
        return Graph(state.definition for state in self._store.tables())

    def explain(self, query_or_name: str) -> Explanation:
        """How a query would be, or a table is, kept up to date."""
        try:
            parts = split_name(query_or_name)
        except InvalidInput:  # not a name, so it is a query
            return self._explain_query(query_or_name)
        return self._explain_table(self._named.state(parts))

    def _explain_query(self, query: str, before: str = "") -> Explanation:
        return explained(self._lake, self._declarations.defined(query, before), None)

    def _explain_table(self, state: TableState) -> Explanation:
        described = explained(self._lake, state.definition, state.build)
        return replace(described, next_refresh=preview_of(self._context, state.definition))

    def verify(self, name: str) -> Verification:
        """Compare a table with its query at the recorded cut, both ways, as bags of rows."""
        state = self._named.loaded(name)
        definition, build = state.definition, state.build
        assert build is not None
        label = f"verify {definition.name}"
        try:
            with self._lake.work_area(definition, label, pins=build.pins) as area:
                rows = area.compute(definition.as_declared(), build.pins, build.cut.instant)
                version = self._lake.standing(definition).version
                difference = area.verify(rows, definition, version)
        except self._lake.faults as error:
            raise self._lake.told(error, about=str(definition.name)) from error
        return Verification(
            table=definition.name, cut=build.cut, version=version, difference=difference
        )

    # Keeping house

    def rebuild(self) -> Sequence[TableName]:
        """Make a lost store anew from the definitions and commits in the lake."""
        return rebuild_store(self._lake, self._store)


def _strategy(name: str | None, tables: Sequence[str]) -> Strategy | None:
    """The strategy that the user asks for."""
    if name is None:
        return None
    choices = [item.value for item in Strategy if item is not Strategy.NO_DATA]
    if name not in choices:
        raise InvalidInput(
            f"there is no strategy {name!r}",
            reason=Reason.BAD_VALUE,
            about=", ".join(tables) or "refresh",
            hint="one of " + ", ".join(choices),
        )
    return Strategy(name)
