"""What refreshes did or would do, and whether tables are right."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from dynamic_tables.app import Verification
from dynamic_tables.declare import Declared
from dynamic_tables.model import Outcome, Pin, RefreshRecord, utc_now
from dynamic_tables.names import TableName
from dynamic_tables.refresh.context import SliceNews
from dynamic_tables.refresh.preview import Planned
from dynamic_tables.render.basics import Cell, clock_time, grid, value_text

OUTCOME_STYLE = {Outcome.DONE: "green", Outcome.SKIPPED: "yellow", Outcome.FAILED: "red"}


def records_table(records: Sequence[RefreshRecord], *, dated: bool = False) -> RenderableType:
    """One line a refresh; notes and errors below, where they have room."""
    headings = ["table", "did", "reason", "rows", "read", "seconds"]
    rows = [_record_row(record) for record in records]
    if dated:
        headings.insert(0, "started")
        rows = [[clock_time(r.started_at), *row] for r, row in zip(records, rows, strict=True)]
    below = [line for record in records for line in _remarks(record, dated=dated)]
    return Group(grid(headings, rows), *below)


def _record_row(record: RefreshRecord) -> list[Cell]:
    return [
        record.place,
        record.did,
        Text(record.reason.value, style=OUTCOME_STYLE[record.outcome]),
        record.work.rows_changed,
        pins_text(record.pins, record.table),
        record.seconds,
    ]


def _remarks(record: RefreshRecord, *, dated: bool) -> list[Text]:
    """Of which table, and in a history of which of its rows."""
    said = record.remarks
    if dated and said:
        said[0] = f"{clock_time(record.started_at)} {said[0]}"
    styles = ["red", ""] if record.error else ["dim"]
    return [Text(f"  {line}", style=style) for line, style in zip(said, styles, strict=False)]


def record_text(record: RefreshRecord) -> Text:
    """A refresh that just ended: one line that begins like its row in `history`, remarks below."""
    style = "" if record.outcome is Outcome.DONE else OUTCOME_STYLE[record.outcome]
    line = Text(f"{clock_time(record.started_at)} {record.line}", style=style)
    return Text("\n").join([line, *_remarks(record, dated=False)])


def slice_text(news: SliceNews) -> Text:
    """What happened to a slice of a refresh that workers share."""
    line = f"{clock_time(utc_now())} {news}"
    return Text(line, style="red" if news.what == "failed" else "dim")


def pins_text(pins: Sequence[Pin], reader: TableName) -> str:
    """Sources with the versions that were read."""
    return ", ".join(f"{near(pin.name, reader)}@{pin.version}" for pin in pins)


def near(name: TableName, reader: TableName) -> str:
    """A source as its reader would call it: no schema if it is the reader's own."""
    same = (name.catalog, name.schema) == (reader.catalog, reader.schema)
    return str(name).removeprefix(f"{name.schema}.") if same else str(name)


def plan_table(planned: Sequence[Planned]) -> RenderableType:
    """One line a table; below, what is warned of, and what aggregates cost by their storage."""
    rows = [
        [
            str(row.table),
            row.action.value,
            row.strategy.value if row.strategy else "",
            row.reason.value,
            f"{row.rows:,}" if row.rows is not None else "",
            f"{row.estimate.bytes:,}" if row.estimate else "",
            f"{row.estimate.seconds:.1f}" if row.estimate else "",
            row.detail,
        ]
        for row in planned
    ]
    headings = ["table", "action", "strategy", "reason", "rows", "bytes", "seconds", "detail"]
    said = [
        Text(f"  {row.table}: {text}", style="yellow") for row in planned for text in row.warnings
    ]
    stored = [
        Text(f"  {row.table}: {cost}", style="dim") for row in planned for cost in row.storages
    ]
    return Group(grid(headings, rows), *said, *stored)


def declared_text(declared: Declared) -> RenderableType:
    parts: list[RenderableType] = [Text(f"{declared.table}: {declared.did}", style="green")]
    if declared.report is not None:
        parts.append(records_table(declared.report.records))
    parts += [Text(f"note: {note}", style="dim") for note in declared.notes]
    return Group(*parts)


def verification_text(verified: Verification) -> RenderableType:
    """One line if the table is right, else the rows that differ."""
    if verified.ok:
        return Text(str(verified), style="green")
    difference = verified.difference
    head = Text(str(verified), style="red")
    names = list(difference.sample[0]) if difference.sample else []
    rows = [[value_text(row[name]) for name in names] for row in difference.sample]
    shown = ["" if name == "_difference" else name for name in names]
    return Group(head, Padding(grid(shown, rows), (0, 0, 0, 2)))
