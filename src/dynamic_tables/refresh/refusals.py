"""Why a table of a refresh did not begin or did not end, in words for its record."""

from __future__ import annotations

from dynamic_tables.definition import Definition
from dynamic_tables.errors import DynamicTablesError, Held, InternalError, RefreshError, Refused
from dynamic_tables.graph import Graph
from dynamic_tables.model import RefreshRecord, TableState
from dynamic_tables.reasons import NOT_ABOUT_THE_TABLE, Reason


def suspended(state: TableState) -> Refused:
    name = state.definition.name
    because = f" ({state.suspended_because})" if state.suspended_because else ""
    return Refused(
        f"the table is suspended{because}",
        reason=Reason.SUSPENDED,
        about=str(name),
        hint=f"ALTER DYNAMIC TABLE {name} RESUME",
    )


def upstream_failed(definition: Definition, record: RefreshRecord) -> DynamicTablesError:
    if record.reason is Reason.SUSPENDED:
        return Refused(
            f"it reads {record.table}, which is suspended",
            reason=Reason.SUSPENDED,
            about=str(definition.name),
            hint=f"ALTER DYNAMIC TABLE {record.table} RESUME",
        )
    kept_away = record.reason in NOT_ABOUT_THE_TABLE
    return Held(
        f"it reads {record.table}, which was not refreshed",
        reason=record.reason if kept_away else Reason.UPSTREAM_FAILED,
        about=str(definition.name),
        hint=f"see the error of {record.table}",
    )


def barred_above(
    graph: Graph, table_id: str, above: str, error: DynamicTablesError
) -> DynamicTablesError:
    if error.reason is Reason.SUSPENDED:
        return error
    return Held(
        f"it reads {graph[above].name}, which cannot be refreshed",
        reason=Reason.UPSTREAM_FAILED,
        about=str(graph[table_id].name),
        hint=f"see the error of {graph[above].name}",
    )


def defect(table: str, error: Exception) -> InternalError:
    told = InternalError(
        f"{type(error).__name__}: {error}",
        reason=Reason.INTERNAL,
        about=table,
        hint="this is a defect of ours; please report it with this message",
    )
    told.__cause__ = error
    return told


def engine_gone(about: str) -> InternalError:
    return InternalError(
        "the engine died: it answers nothing any more",
        reason=Reason.ENGINE_GONE,
        about=about,
        hint="start it again; what was under way goes on where it was",
    )


def interrupted(definition: Definition) -> RefreshError:
    return RefreshError(
        "stopped; the table is as it was",
        reason=Reason.INTERRUPTED,
        about=str(definition.name),
        hint="the next refresh goes on with it",
    )


def taken_over(definition: Definition, did: str) -> Held:
    return Held(
        f"another process {did} meanwhile; this one wrote nothing",
        reason=Reason.TAKEN_OVER,
        about=str(definition.name),
        hint="`dynamic-tables history` shows what the other one did; refresh again, if there is"
        " still something to do",
    )


def sentence(error: DynamicTablesError, definition: Definition) -> str:
    """For history: what, and about which object if it is another one."""
    about = f"{error.about}: " if error.about not in (None, str(definition.name)) else ""
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    return f"{about}{error.message}{notes}"
