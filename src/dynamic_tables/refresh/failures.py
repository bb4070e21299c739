"""What is written down about a table that could not be refreshed."""

from __future__ import annotations

from dataclasses import replace

from dynamic_tables.errors import DynamicTablesError, Held
from dynamic_tables.model import RefreshRecord, TableState
from dynamic_tables.reasons import BY_POLICY, NEVER_SUSPENDS, NOT_ABOUT_THE_TABLE, Reason
from dynamic_tables.refresh.context import Context
from dynamic_tables.refresh.refusals import engine_gone
from dynamic_tables.store import Claim

NOT_COUNTED = frozenset(
    {
        *NOT_ABOUT_THE_TABLE,
        Reason.INTERRUPTED,
        Reason.UPSTREAM_FAILED,
        Reason.SUSPENDED,
        Reason.STORE_BROKEN,
        Reason.ENGINE_GONE,
        *BY_POLICY,
    }
)  # fmt: skip  not the table's fault


def record_failure(
    context: Context,
    record: RefreshRecord,
    error: DynamicTablesError,
    claim: Claim | None,
    read: TableState,
) -> RefreshRecord:
    """Write it down; too many failures in a row suspend the table.

    Who has lost the claim meanwhile only tells history: the table is another's to judge; so does
    who never had one, if anything happened to the table since its state was `read`. Nor does
    a table fail whose engine is dead: whatever was tried there would fail.
    """
    if error.reason not in NOT_COUNTED and not context.lake.is_alive():
        error = engine_gone(str(record.table))
        told = f"{error.message} ({record.error})"
        record = replace(record, reason=error.reason, error=told, note=error.hint)
    counted = error.reason not in NOT_COUNTED | NEVER_SUSPENDS
    store = context.store
    if store.table_by_id(record.table_id) is None:
        return record  # dropped meanwhile: nothing to record
    limit = context.settings["failures_until_suspended"]
    try:
        failures = store.record(
            claim,
            record,
            None,
            close_intent=None,
            failures="count" if counted else "keep",
            suspend_at=limit,
            read=read,
        )
    except Held as lost:
        record = replace(record, reason=Reason.TAKEN_OVER, note=lost.hint)
        store.record(None, record, None, close_intent=None, failures="keep")
        return record
    if counted and failures >= limit:
        way_out = f"ALTER DYNAMIC TABLE {record.table} RESUME takes it in again"
        record = replace(record, note=f"suspended after {failures} failures in a row; {way_out}")
    return record
