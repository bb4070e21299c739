"""The other verbs: sql, config, doctor, demo."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import click
from rich.console import Group, RenderableType
from rich.text import Text

from dynamic_tables import ddl
from dynamic_tables._tokens import TokenKind, scan
from dynamic_tables.app import DynamicTables, Explanation
from dynamic_tables.cli.declaring import content
from dynamic_tables.cli.looking import report_text
from dynamic_tables.cli.program import verb
from dynamic_tables.cli.session import Invocation
from dynamic_tables.connect import connect_unchecked
from dynamic_tables.declare import Declared
from dynamic_tables.errors import DynamicTablesError, InvalidInput
from dynamic_tables.model import RefreshReport, TableState
from dynamic_tables.names import TableName
from dynamic_tables.reasons import Reason
from dynamic_tables.render import (
    declared_text,
    explanation_text,
    frame_table,
    grid,
    state_json,
    table_details,
    tables_table,
)
from dynamic_tables.settings import SETTINGS, masked

UNHEALTHY = 2  # exit code of `doctor`: the surroundings are not as needed
ABOUT_LETTERS = 60  # of a statement, to recognise it by


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one statement gave, for people and for programs."""

    data: dict[str, Any]
    shown: RenderableType


def statements(text: str) -> Iterator[str]:
    """The statements of a text, cut where Spark's lexer sees a semicolon.

    >>> list(statements("SELECT ';' -- one; two\\n; SELECT 2;;"))
    ["SELECT ';' -- one; two", 'SELECT 2']
    """
    start, empty = 0, True
    for token in scan(text):
        if token.is_symbol(";") or token.kind is TokenKind.END:
            if not empty:
                yield text[start : token.start].strip()
            start, empty = token.end, True
        else:
            empty = False


@verb("sql")
@click.argument("text", required=False)
@click.option(
    "-f", "--file", type=click.File(encoding="utf-8"), help="a file of statements; - reads stdin"
)
@click.option(
    "--rows",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="how many rows of a result to print",
)
def sql(run: Invocation, text: str | None, file: TextIO | None, rows: int) -> None:
    """Run SQL, ours and Spark's; several statements are separated by semicolons."""
    if (text is None) == (file is None):
        raise InvalidInput(
            "either a text or --file is needed",
            reason=Reason.NO_QUERY,
            about="sql",
            hint='dynamic-tables sql "SHOW DYNAMIC TABLES"',
        )
    found = list(statements(text if text is not None else content(file)))
    if not found:
        raise InvalidInput(
            "there is no statement",
            reason=Reason.NO_QUERY,
            about="sql",
            hint='dynamic-tables sql "SHOW DYNAMIC TABLES"',
        )
    for statement in found:
        ddl.parse(statement)  # what is wrong with ours is said before anything runs
    with run.tables("running", may_make=True) as tables:
        if run.json:
            _answer_all(run, tables, found, rows)
            return
        for statement in found:
            run.show(None, _answer(tables, statement, rows).shown)


def _answer_all(run: Invocation, tables: DynamicTables, found: list[str], rows: int) -> None:
    """One JSON document, whatever happens: what ran is told, and last the error that ended it."""
    answers: list[dict[str, Any]] = []
    try:
        for statement in found:
            answers += [_answer(tables, statement, rows).data]  # one by one: the next may fail
    except DynamicTablesError as error:
        answers.append({"statement": found[len(answers)], **error.as_json()})
        raise
    finally:
        run.show(answers, Group())


def _answer(tables: DynamicTables, statement: str, rows: int) -> Answer:
    try:
        result = tables.sql(statement)
        data, shown = _readable(result, rows)
    except tables.lake.faults as error:
        told = tables.lake.told(error, about=statement)
        mend = "mend the statement and run it again; any before it stay done"
        raise InvalidInput(
            told.message,
            reason=told.reason,
            about=_beginning(statement),
            hint=mend if told.reason is Reason.QUERY_FAILED else told.hint,
        ) from error
    return Answer(data={"statement": statement, **data}, shown=shown)


def _beginning(statement: str) -> str:
    words = " ".join(statement.split())
    return words if len(words) <= ABOUT_LETTERS else f"{words[:ABOUT_LETTERS]}…"


def _readable(  # noqa: PLR0911  one line a kind of result
    result: Any, rows: int
) -> tuple[dict[str, Any], RenderableType]:
    """Our own objects as their verbs print them; everything else is a DataFrame."""
    match result:
        case Declared():
            return {"result": result.as_json()}, declared_text(result)
        case RefreshReport():
            records = [record.as_json() for record in result.records]
            return {"result": records}, report_text(result)
        case Explanation():
            return {"result": result.as_json()}, explanation_text(result)
        case TableState():
            return {"result": state_json(result)}, table_details(result, _as_pinned(result), ())
        case TableName():
            return {"result": str(result)}, Text(f"{result}: done", style="green")
        case [TableName(), *_]:
            return {"result": [str(name) for name in result]}, Text(
                "\n".join(f"{name}: dropped" for name in result), style="green"
            )
        case list() | tuple():
            return {"result": [state_json(state) for state in result]}, tables_table(result)
    return _rows(result, rows)


def _as_pinned(state: TableState) -> dict[str, int | None]:
    """DESCRIBE does not look at the sources: what was read counts as the newest."""
    return {pin.name.key: pin.version for pin in state.build.pins} if state.build else {}


def _rows(frame: Any, limit: int) -> tuple[dict[str, Any], RenderableType]:
    """At most `limit` rows of a DataFrame, and whether there are more."""
    if not frame.columns:
        return {"result": None}, Text("done", style="green")
    found = frame.limit(limit + 1).collect()
    more = len(found) > limit
    values = [list(row) for row in found[:limit]]
    data = {"columns": frame.columns, "rows": values, "more": more}
    shown: RenderableType = frame_table(frame.columns, values)
    if more:
        note = Text(f"the first {limit} rows; --rows shows more", style="dim")
        shown = Group(shown, note)
    return data, shown


@verb("config")
def config(run: Invocation) -> None:
    """Show each setting, its value and where it comes from."""
    settings = run.settings
    found = [
        {
            "name": spec.name,
            "value": masked(value) if isinstance(value := settings[spec.name], str) else value,
            "origin": settings.origins[spec.name],
        }
        for spec in SETTINGS
    ]
    rows = [[item["name"], str(item["value"]), item["origin"]] for item in found]
    run.show(found, grid(["setting", "value", "origin"], rows))


@verb("doctor")
@click.option("--no-spark", is_flag=True, help="leave out the checks that start Spark")
@click.option("--rebuild", is_flag=True, help="make a lost store anew from the lake")
def doctor(run: Invocation, no_spark: bool, rebuild: bool) -> None:
    """Check the surroundings, and say what to do."""
    from dynamic_tables import doctor as checks  # noqa: PLC0415  shares its name with the verb

    if rebuild:
        with run.tables(
            "rebuilding the store of", opening=connect_unchecked, may_make=True
        ) as tables:
            restored = [str(name) for name in tables.rebuild()]
            tables.begin()
        shown = "\n".join(f"{name}: restored" for name in restored)
        run.show({"restored": restored}, Text(shown or "the store knows every table of the lake"))
        return
    with run.progress() as line:
        line.say("checking")
        found = checks.examine(run.settings, spark=not no_spark, say=run.note)
    ok = all(check.ok for check in found)
    data = {"ok": ok, "checks": [check.as_json() for check in found]}
    run.show(data, checks.checks_table(found))
    if not ok:
        sys.exit(UNHEALTHY)


@verb("demo", prints_data=False)
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="keep the lake of the demo in this folder",
)
def demo(run: Invocation, keep: Path | None) -> None:
    """Show everything at work, in a small shop; takes a minute or two."""
    from dynamic_tables.demo import run_demo  # noqa: PLC0415  shares its name with the verb

    if run.json:
        raise InvalidInput(
            "the demo is to be watched, it has no data for --json",
            reason=Reason.CONTRADICTION,
            about="demo",
            hint="dynamic-tables demo --keep ./shop, then dynamic-tables --lake ./shop list --json",
        )
    run_demo(run.settings, keep=keep)


VERBS = (sql, config, doctor, demo)
