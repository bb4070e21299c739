"""The verbs that refresh and look: refresh, plan, explain, list, show, history, graph, verify."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, TextIO

import click
from rich.console import Group, RenderableType
from rich.text import Text

from dynamic_tables.app import DynamicTables, Verification
from dynamic_tables.cli.declaring import given_query
from dynamic_tables.cli.program import FAILED, verb
from dynamic_tables.cli.session import Invocation
from dynamic_tables.errors import DynamicTablesError, InvalidInput, RefreshFailed
from dynamic_tables.model import RefreshReport, Strategy, TableState
from dynamic_tables.names import split_name
from dynamic_tables.refresh.freshness import Observer
from dynamic_tables.render import (
    error_text,
    explanation_text,
    graph_json,
    graph_tree,
    plan_table,
    records_table,
    state_json,
    table_details,
    tables_table,
    verification_text,
)
from dynamic_tables.settings import masked
from dynamic_tables.store import Claim

SHOWN_REFRESHES = 5  # the last ones, in `show`


@verb("refresh")
@click.argument("names", nargs=-1)
@click.option("--upstream", is_flag=True, help="take all tables that these read along")
@click.option(
    "--strategy",
    type=click.Choice([item.value for item in Strategy if item is not Strategy.NO_DATA]),
    help="in this way, whatever it costs; without it the cheapest is chosen",
)
@click.option("--full", "strategy", flag_value="full", help="--strategy full: recompute")
def refresh(run: Invocation, names: tuple[str, ...], upstream: bool, strategy: str | None) -> None:
    """Bring tables up to date at one cut: NAMES, or all."""
    _check_names(names)
    with run.tables("refreshing") as tables:
        report = tables.refresh(*names, upstream=upstream, strategy=strategy, on_error="report")
    run.show(report.as_json(), report_text(report))
    if not report.ok:
        raise RefreshFailed(report)


def report_text(report: RefreshReport) -> RenderableType:
    if not report.records:
        return Text(str(report))
    return records_table(report.records)


@verb("plan")
@click.argument("names", nargs=-1)
def plan(run: Invocation, names: tuple[str, ...]) -> None:
    """Show what the next refresh would do, and why."""
    _check_names(names)
    with run.tables("planning") as tables:
        planned = tables.plan(*names)
    run.show([row.as_json() for row in planned], plan_table(planned))


@verb("explain")
@click.argument("query_or_name", required=False)
@click.option(
    "--file", type=click.File(encoding="utf-8"), help="a file with the query; - reads stdin"
)
def explain(run: Invocation, query_or_name: str | None, file: TextIO | None) -> None:
    """Show how a query would be, or a table is, kept up to date."""
    text = given_query(query_or_name, file, "explain")
    with run.tables("explaining") as tables:
        explained = tables.explain(text)
    run.show(explained.as_json(), explanation_text(explained))


@verb("list")
def list_(run: Invocation) -> None:
    """List the dynamic tables with their states."""
    with run.records() as tables:
        known = {lag.table: lag for lag in tables.lags()}
        states = [state for state in tables.list() if state.definition.name in known]
        claims, workers = tables.store.claims(), tables.store.workers()
    lags = [known[state.definition.name] for state in states]
    data = [
        {**state_json(state), "lag": lag.as_json()} for state, lag in zip(states, lags, strict=True)
    ]
    named = masked(run.settings["store"])
    run.show(data, tables_table(states, lags, claims, are_kept=bool(workers), store=named))


@verb("show")
@click.argument("name")
def show(run: Invocation, name: str) -> None:
    """Show everything about table NAME."""
    split_name(name)
    with run.tables(f"looking at {name}") as tables:
        state = tables.show(name)
        newest = _newest(tables, state)
        has_news = Observer(tables.lake, tables.graph(), tables.store.now()).is_behind(state)
        last = tables.history(name, limit=SHOWN_REFRESHES)
        (lag,) = tables.lags(name)
        claim = tables.store.holder(state.definition.table_id)
        workers = tables.store.workers()
    data = {**state_json(state), "lag": lag.as_json()}
    data["newest"] = {
        str(source.name): newest[source.name.key] for source in state.definition.sources
    }
    data["last_refreshes"] = [record.as_json() for record in last]
    data["refreshing"] = _refreshing(claim) if claim else None
    details = table_details(
        state, newest, last, lag, claim, has_news=has_news, is_kept=bool(workers)
    )
    run.show(data, details)


def _refreshing(claim: Claim) -> dict[str, Any]:
    return {
        "refresh_id": claim.refresh_id,
        "owner": claim.owner,
        "since": claim.claimed_at.isoformat(),
        "mode": claim.mode,
        "slices": claim.subtasks_total,
        "slices_computed": claim.subtasks_completed,
    }


def _newest(tables: DynamicTables, state: TableState) -> dict[str, int | None]:
    """The newest version of each source; None for one that is gone."""
    found: dict[str, int | None] = {}
    for source in state.definition.sources:
        try:
            found[source.name.key] = tables.lake.source_state(source).version
        except DynamicTablesError:
            found[source.name.key] = None
    return found


@verb("history")
@click.argument("name", required=False)
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True)
def history(run: Invocation, name: str | None, limit: int) -> None:
    """Show past refreshes of table NAME, or of all, newest first."""
    _check_names((name,) if name else ())
    with run.records() as tables:
        records = tables.history(name, limit=limit)
    shown = records_table(records, dated=True) if records else Text("nothing was refreshed yet")
    run.show([record.as_json() for record in records], shown)


@verb("graph")
def graph(run: Invocation) -> None:
    """Show which table reads which, with the versions read."""
    with run.records() as tables:
        found = tables.graph()
        states = {state.definition.table_id: state for state in tables.list()}
    shown = graph_tree(found, states) if states else tables_table(())
    run.show(graph_json(found, states), shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unverified:
    """A table that could not be compared."""

    table: str
    error: DynamicTablesError

    ok = False

    def as_json(self) -> dict[str, Any]:
        return {"table": self.table, "ok": False, **self.error.as_json()}


@verb("verify")
@click.argument("names", nargs=-1)
def verify(run: Invocation, names: tuple[str, ...]) -> None:
    """Compare tables with their queries: NAMES, or all.

    Each is compared with its query at the recorded cut, both ways; exit code 3 if one differs.
    """
    _check_names(names)
    with run.tables("verifying") as tables:
        states = tables.list()
        wanted = names or tuple(state.definition.name.sql for state in states if state.build)
        outcomes = [verified(tables, name) for name in wanted]
    data = [outcome.as_json() for outcome in outcomes]
    run.show(data, Group(*(_outcome(outcome) for outcome in outcomes)))
    if not all(outcome.ok for outcome in outcomes):
        sys.exit(FAILED)


def verified(tables: DynamicTables, name: str) -> Verification | Unverified:
    """One table; what is wrong with it does not keep the others from being looked at."""
    try:
        return tables.verify(name)
    except InvalidInput:
        raise  # there is no such table: nothing was asked that could be answered
    except DynamicTablesError as error:
        return Unverified(table=name, error=error)
    except tables.lake.faults as error:
        return Unverified(table=name, error=tables.lake.told(error, about=name))


def _outcome(outcome: Verification | Unverified) -> RenderableType:
    if isinstance(outcome, Unverified):
        return Group(Text(f"✗ {outcome.table}", style="red"), error_text(outcome.error))
    return verification_text(outcome)


def _check_names(names: tuple[str, ...]) -> None:
    """Names that cannot be names are refused before Spark starts."""
    for name in names:
        split_name(name)


VERBS = (refresh, plan, explain, list_, show, history, graph, verify)
