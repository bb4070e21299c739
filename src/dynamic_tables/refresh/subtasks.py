"""One slice of a refresh that several workers share: compute it at the pinned cut, tell where.

Whoever computes a slice commits nothing. Its rows lie in a place of their own until the coordinator
(see `sharing`) merges all slices in one commit. If the claim was lost meanwhile, or another attempt
was first, nobody waits for them, and they are deleted again.
"""

from __future__ import annotations

import time

from dynamic_tables.errors import DynamicTablesError
from dynamic_tables.lake.slicing import Part, Slicing
from dynamic_tables.model import Intent
from dynamic_tables.reasons import Reason
from dynamic_tables.refresh.context import Context, SliceNews
from dynamic_tables.refresh.refusals import defect, engine_gone
from dynamic_tables.steps import SliceStep, reached
from dynamic_tables.store import SliceResult, Subtask

# Faults of the query: it would fail again on the same data.
FINAL = frozenset({Reason.QUERY_FAILED, Reason.HISTORY_GONE, Reason.SOURCE_SCHEMA_CHANGED})

EXPIRED = "its worker's claim expired"


def carry_out(context: Context, subtask: Subtask) -> bool:
    """Compute a slice that was claimed; whether its result counts."""
    reached(SliceStep.CLAIMED, subtask.dynamic_table)
    if subtask.lost:
        context.tell(SliceNews.failed(subtask, Reason.SUBTASKS_LOST, EXPIRED))
    intent = context.store.intent(subtask.table_id)
    if intent is None or intent.sequence != subtask.sequence or intent.slicing is None:
        return False  # that refresh is over
    started = time.monotonic()
    try:
        counts = _computed(context, subtask, intent)
    except DynamicTablesError as error:
        _failed(context, subtask, error)
        return False
    except context.lake.faults as fault:
        _failed(context, subtask, context.lake.told(fault, about=subtask.dynamic_table))
        return False
    except Exception as fault:  # noqa: BLE001  one slice's defect must not end worker after worker
        _failed(context, subtask, defect(subtask.dynamic_table, fault))
        return False
    if counts:
        took = time.monotonic() - started
        context.tell(
            SliceNews(
                table=subtask.dynamic_table,
                what="completed",
                slice_no=subtask.slice_no,
                seconds=took,
            )
        )
    return counts


def _computed(context: Context, subtask: Subtask, intent: Intent) -> bool:
    assert intent.slicing is not None
    assert subtask.token is not None
    slicing = Slicing.from_json(intent.slicing)
    context.catch_up()
    _publish_parents(context, slicing)
    label = f"{intent.refresh_id} {slicing.definition.name} slice {subtask.slice_no}"
    with context.lake.work_area(slicing.definition, label, pins=intent.pins) as area:
        slicer = area.slicer(slicing.definition, intent.sequence)
        part = slicer.compute(
            slicing, subtask.slice_no, subtask.token, intent.pins, intent.cut.instant
        )
        reached(SliceStep.WRITTEN, subtask.dynamic_table)
        if not context.store.complete_subtask(subtask, result_of(part)):
            slicer.discard(part)
            return False
    reached(SliceStep.COMPLETED, subtask.dynamic_table)
    return True


def _publish_parents(context: Context, slicing: Slicing) -> None:
    """Another process may have made them since this one looked."""
    for parent in slicing.definition.parents:
        state = context.store.table_by_id(parent)
        if state is not None:
            context.lake.publish(state.definition)


def _failed(context: Context, subtask: Subtask, error: DynamicTablesError) -> None:
    """The store decides whether it is tried again; who lost the claim says nothing. A slice is not
    judged by what a dead engine says of it."""
    reason, message = error.reason, error.message
    if not context.lake.is_alive():
        gone = engine_gone(subtask.dynamic_table)
        reason, message = gone.reason, f"{gone.message} ({message})"
    if context.store.fail_subtask(subtask, reason.value, message, final=reason in FINAL):
        context.tell(SliceNews.failed(subtask, reason, message))


def result_of(part: Part) -> SliceResult:
    return SliceResult(location=part.location, rows=part.rows, checksum=part.checksum)


def part_of(result: SliceResult) -> Part:
    return Part(location=result.location, rows=result.rows, checksum=result.checksum)
