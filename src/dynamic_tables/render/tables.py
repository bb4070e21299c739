"""What tables there are, and everything about one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import zip_longest
from math import floor
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from dynamic_tables._values import duration_text
from dynamic_tables.answers import Explanation, stored_form
from dynamic_tables.model import (
    Estimate,
    Failure,
    RefreshRecord,
    Status,
    Strategy,
    TableState,
)
from dynamic_tables.options import Options
from dynamic_tables.processes import name_of
from dynamic_tables.reasons import BY_POLICY, NEVER_SUSPENDS, Reason
from dynamic_tables.refresh.preview import Planned
from dynamic_tables.render.basics import Cell, clock_time, grid, instant, key_values, sql_text
from dynamic_tables.render.refreshes import near, pins_text, records_table
from dynamic_tables.schedule import Lag
from dynamic_tables.store import Claim

FRESH_LOOK_S = 60.0  # what was seen longer ago may have changed


def tables_table(
    states: Sequence[TableState],
    lags: Sequence[Lag] = (),
    claims: Sequence[Claim] = (),
    *,
    are_kept: bool = True,
    store: str = "",
) -> RenderableType:
    """`claims`: of the tables that somebody refreshes now; `are_kept`: somebody is there to keep
    contracts; `store`: the one that was named."""
    if not states:
        where = f" in {store}" if store else ""
        made = "`dynamic-tables create --help` shows how to make one"
        return Text(f"no dynamic tables yet{where}; {made}")
    held = {claim.table_id: claim for claim in claims}
    next_text = partial(_next_text, shown=clock_time, is_kept=are_kept)
    planned = any(map(next_text, lags))
    rows = [
        [
            str(state.definition.name),
            status_text(state, held.get(state.definition.table_id)),
            str(state.build.version) if state.build else "",
            reads_text(state),
            _contract(state.definition.options),
            instant(state.build.cut.instant) if state.build else "",
            *([behind_text(lag)] if lag is not None else []),
            *([next_text(lag)] if lag is not None and planned else []),
        ]
        for state, lag in zip_longest(states, lags)
    ]
    columns = ["table", "status", "version", "reads", "refreshed", "as of"]
    more = [*(["behind"] if lags else []), *(["next"] if planned else [])]
    return grid([*columns, *more], rows)


def _contract(options: Options) -> str:
    """What makes a worker refresh a table."""
    if options.target_lag is not None:
        return str(options.target_lag)
    return "on change" if options.trigger_on_change else "by hand"


def behind_text(lag: Lag) -> Cell:
    """The lag now, and the share of time within the target."""
    if lag.behind_s is None:
        return ""
    now = duration_text(float(round(lag.behind_s))) if round(lag.behind_s) else "no"
    if now == "no" and (lag.seen_s or 0.0) > FRESH_LOOK_S:
        now = f"no, {duration_text(float(round(lag.seen_s or 0.0)))} ago"
    if lag.target_s is None or lag.within is None:
        return now
    late = lag.behind_s > lag.target_s
    in_time = floor(lag.within * 100)  # all of it only if it was never late
    return Text(
        f"{now}{', late' if late else ''} ({in_time}% in time)", style="red" if late else ""
    )


def _next_text(lag: Lag, *, shown: Callable[[datetime], str], is_kept: bool) -> str:
    """When it is due; nothing happens then if nobody is there, who would also have to look."""
    due = lag.next_refresh
    when = "" if due is None else "now" if lag.is_due else shown(due)
    nobody = "nobody runs" if not is_kept and (when or lag.target_s is not None) else ""
    return ", ".join(filter(None, [when, nobody]))


def _lag_facts(lag: Lag, *, has_news: bool, is_kept: bool) -> dict[str, Cell]:
    """`has_news`: a base table changed, now that somebody looks."""
    facts: dict[str, Cell] = {}
    if lag.behind_s is not None:
        unseen = has_news and not lag.behind_s
        facts["behind"] = "yes, since the last look" if unseen else behind_text(lag)
    if lag.target_s is not None:
        facts["target"] = duration_text(lag.target_s)
    if told := _next_text(lag, shown=instant, is_kept=is_kept):
        facts["next refresh"] = told
    return facts


def status_text(state: TableState, claim: Claim | None = None) -> Text:
    """How a table is, and how far a refresh is that several workers share."""
    text = _status(state)
    if claim is not None and claim.mode == "coordinator":
        text.append(f", {claim.subtasks_completed} of {claim.subtasks_total} slices")
    return text


def _status(state: TableState) -> Text:
    if state.status is Status.SUSPENDED:
        return Text("suspended", style="yellow")
    if state.build is None:
        return Text("not loaded", style="yellow")
    if state.failures:
        return Text(f"failing ({state.failures})", style="red")
    if state.failure is not None and state.failure.reason in NEVER_SUSPENDS:
        return Text(f"failing ({state.failure.reason.value})", style="red")
    if state.failure is not None and state.failure.reason in BY_POLICY:
        return Text(f"refused ({state.failure.reason.value})", style="yellow")
    return Text("active", style="green")


def claim_text(claim: Claim) -> str:
    """Who refreshes a table, and how far it is if several workers share it."""
    where, since = name_of(claim.host), f"{claim.claimed_at:%Y-%m-%d %H:%M:%S} UTC"
    by = f"process {claim.pid} on {where}, since {since}"
    if claim.mode != "coordinator":
        return by
    return f"{by}; {claim.subtasks_completed} of {claim.subtasks_total} slices are computed"


def reads_text(state: TableState) -> str:
    """The sources, with versions once the table is loaded."""
    if state.build is not None:
        return pins_text(state.build.pins, state.definition.name)
    return ", ".join(
        near(source.name, state.definition.name) for source in state.definition.sources
    )


def table_details(
    state: TableState,
    newest: Mapping[str, int | None],
    last: Sequence[RefreshRecord],
    lag: Lag | None = None,
    claim: Claim | None = None,
    *,
    has_news: bool = False,
    is_kept: bool = True,
) -> RenderableType:
    """`newest`: by name key, the newest version of each source; None: it is gone. `has_news`: a
    base table changed since the rows were computed, which not every version tells."""
    definition = state.definition
    facts = {
        "status": _status_line(state),
        "created": instant(state.created_at),
        "stored as": stored_form(definition),
        "cut": cut_text(state, newest),
        **(_lag_facts(lag, has_news=has_news, is_kept=is_kept) if lag else {}),
        **({"refreshed by": claim_text(claim)} if claim else {}),
        "options": options_text(definition.options) or "all at their defaults",
        "columns": ", ".join(f"{column.name} {column.type}" for column in definition.columns),
    }
    parts: list[RenderableType] = [
        Text(str(definition.name), style="bold"),
        sql_text(definition.query),
        key_values(facts),
    ]
    if last:
        parts.append(records_table(last, dated=True))
    return Group(*parts)


def _status_line(state: TableState) -> Text:
    line = status_text(state)
    if state.suspended_because:
        line.append(f": {state.suspended_because}")
    if state.failures and state.status is Status.SUSPENDED:
        line.append(f"; {state.failures} failures in a row")
    return line


def cut_text(state: TableState, newest: Mapping[str, int | None]) -> Text:
    """What the rows were built from, and what has come since."""
    if state.build is None:
        return Text("none: not loaded yet")
    text = Text()
    for pin in state.build.pins:
        text.append(f"{pin.name}@{pin.version}")
        now = newest.get(pin.name.key)
        if now is None:
            text.append(" (gone)", style="red")
        elif now > pin.version:
            text.append(f" (newest: {now})", style="yellow")
        text.append(", ")
    return text.append(f"at {instant(state.build.cut.instant)}")


def options_text(options: Options) -> str:
    """Those that differ from their defaults."""
    changed = Options().changed(options)
    return ", ".join(f"{name} = {_option(getattr(options, name))}" for name in changed)


def _option(value: Any) -> str:
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def changed_options(options: Options) -> dict[str, Any]:
    plain = options.as_json()
    return {name: plain[name] for name in Options().changed(options)}


def explanation_text(explained: Explanation) -> RenderableType:
    other = [
        f"{s.value} ({reason.value})"
        for s, reason in explained.strategies.items()
        if reason not in (None, Reason.DECLARED_FULL)
    ]
    facts: dict[str, Cell] = {
        "strategies": explained.possible,
        **({"declared": "REFRESH_MODE = FULL"} if explained.otherwise else {}),
        **({"if it were AUTO": explained.otherwise} if explained.otherwise else {}),
        "key": ", ".join(explained.key),
        **({"not incremental": explained.not_incremental} if explained.not_incremental else {}),
        "plan": "\n".join(explained.tree),
        "not possible": ", ".join(other) or "none",
        "sources": ", ".join(explained.sources) or "none",
        "columns": ", ".join(f"{name} {type_}" for name, type_ in explained.columns),
        "reads the clock": "yes" if explained.reads_clock else "no",
        "deterministic": "yes" if explained.deterministic else "no",
    }
    if explained.location:
        facts["stored at"] = explained.location
    if explained.next_refresh:
        facts |= _next_refresh(explained.next_refresh)
    parts: list[RenderableType] = [sql_text(explained.query), key_values(facts)]
    if explained.pinned_sql:
        parts += [Text("the last refresh ran:", style="dim"), sql_text(explained.pinned_sql)]
    return Group(*parts)


def _next_refresh(planned: Planned) -> dict[str, Cell]:
    """What would be done, what every strategy would cost, and what either storage would."""
    way = planned.strategy.value if planned.strategy else planned.action.value
    facts: dict[str, Cell] = {"refreshed alone": f"{way} ({planned.reason.value}) {planned.detail}"}
    if planned.estimates:
        facts["would take"] = ", ".join(
            _estimate(expected, planned.rejected.get(expected.strategy))
            for expected in planned.estimates
        )
    if Reason.ROWS_WENT in planned.rejected.values():
        facts["not this time"] = f"{Strategy.APPEND.value} ({Reason.ROWS_WENT.value})"
    if planned.storages:
        facts["stored"] = "\n".join(map(str, planned.storages))
    if planned.warnings:
        facts["note"] = "\n".join(planned.warnings)
    return facts


def _estimate(expected: Estimate, rejected: Reason | None) -> str:
    count = expected.rows
    rows = "" if count is None else f"{count:,} row{'' if count == 1 else 's'}, "
    why = f", {rejected.value}" if rejected else ""
    read = f"{rows}{expected.bytes:,} bytes{why}"
    return f"{expected.strategy.value} {expected.seconds:.1f} s ({read})"


def _failure_json(failure: Failure) -> dict[str, Any]:
    return {"at": failure.at.isoformat(), "reason": failure.reason.value}


def state_json(state: TableState) -> dict[str, Any]:
    """A table for `--json`."""
    definition, build = state.definition, state.build
    return {
        "table": str(definition.name),
        "table_id": definition.table_id,
        "status": state.status.value,
        "suspended_because": state.suspended_because,
        "failures": state.failures,
        "failure": _failure_json(state.failure) if state.failure else None,
        "loaded": build is not None,
        "version": build.version if build else None,
        "sequence": build.sequence if build else None,
        "cut": build.cut.as_json() if build else None,
        "reads": {str(pin.name): pin.version for pin in build.pins} if build else {},
        "sources": [str(source.name) for source in definition.sources],
        "query": definition.query,
        "columns": {column.name: column.type for column in definition.columns},
        "options": changed_options(definition.options),
        "location": definition.location,
        "created_at": state.created_at.isoformat(),
    }
