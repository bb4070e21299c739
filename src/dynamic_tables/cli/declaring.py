"""The verbs that declare: create, alter, suspend, resume, drop, optimize.

What can be refused without Spark is refused before it starts.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO, TypeVar

import click
from rich.console import Group
from rich.text import Text

from dynamic_tables.app import DynamicTables
from dynamic_tables.cli.program import verb
from dynamic_tables.cli.session import Invocation
from dynamic_tables.errors import InvalidInput
from dynamic_tables.layout.rorder import ENGINES
from dynamic_tables.names import split_name
from dynamic_tables.options import SPECS, Kind, Options, OptionSpec, parse_kwargs, spec_of
from dynamic_tables.reasons import Reason
from dynamic_tables.render import declared_text, rorder_plan_table, rorder_table

NUMBER = click.IntRange(min=1)
Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def options_of_tables(function: Decorated) -> Decorated:
    """One flag for each option of a dynamic table."""
    for spec in reversed(SPECS):
        function = _flag(spec)(function)
    return function


def _flag(spec: OptionSpec) -> Callable[[Decorated], Decorated]:
    switch: dict[str, Any] = (
        {"is_flag": False, "flag_value": "true"} if spec.kind is Kind.SWITCH else {}
    )
    metavar = "|".join(spec.choices) if spec.choices else spec.kind.name
    if spec.kind is Kind.COLUMNS:
        metavar = "A,B,…"
    return click.option(
        f"--{spec.field.replace('_', '-')}", spec.field, metavar=metavar, help=spec.doc, **switch
    )


def given_query(query: str | None, file: TextIO | None, about: str) -> str:
    """The query of --query or --file, which exclude each other."""
    if (query is None) == (file is None):
        raise InvalidInput(
            "one of --query and --file is needed" + (", not both" if query else ""),
            reason=Reason.NO_QUERY if query is None else Reason.CONTRADICTION,
            about=about,
            hint=f'dynamic-tables create {about} --query "SELECT …"',
        )
    return query if query is not None else content(file)


def content(file: TextIO | None) -> str:
    """What a file says; a program that is no text is bad input, not a defect of ours."""
    assert file is not None
    try:
        return file.read()
    except UnicodeDecodeError as error:
        raise InvalidInput(
            "the file is not UTF-8 text", reason=Reason.SYNTAX, about=Path(file.name).name
        ) from error


@verb("create")
@click.argument("name")
@click.option("--query", metavar="SELECT…", help="the query")
@click.option(
    "--file", type=click.File(encoding="utf-8"), help="a file with the query; - reads stdin"
)
@click.option("--or-alter", is_flag=True, help="change the table if it exists and differs")
@click.option("--or-replace", is_flag=True, help="build the table anew if it exists")
@click.option("--if-not-exists", is_flag=True, help="leave the table alone if it exists")
@options_of_tables
def create(
    run: Invocation,
    name: str,
    query: str | None,
    file: TextIO | None,
    or_alter: bool,
    or_replace: bool,
    if_not_exists: bool,
    **options: str | None,
) -> None:
    """Declare table NAME by a query, and load it."""
    split_name(name)
    Options.from_kwargs(**options)
    text = given_query(query, file, name)
    if sum((or_alter, or_replace, if_not_exists)) > 1:
        raise InvalidInput(
            "--or-alter, --or-replace and --if-not-exists exclude each other",
            reason=Reason.CONTRADICTION,
            about=name,
            hint="each of them says what happens if the table exists; keep one",
        )
    with run.tables(f"creating {name}", may_make=True) as tables:
        declared = tables.create(
            name,
            text,
            or_alter=or_alter,
            or_replace=or_replace,
            if_not_exists=if_not_exists,
            **options,
        )
    run.show(declared.as_json(), declared_text(declared))


@verb("alter")
@click.argument("name")
@click.option("--rename-to", metavar="NAME", help="the new name; tables that read it follow")
@click.option("--unset", multiple=True, metavar="OPTION", help="put an option back to its default")
@options_of_tables
def alter(
    run: Invocation,
    name: str,
    rename_to: str | None,
    unset: tuple[str, ...],
    **options: str | None,
) -> None:
    """Change options of table NAME, or its name."""
    split_name(name)
    changes = parse_kwargs(options)
    _check_changes(name, rename_to, bool(changes or unset))
    for option in unset:
        spec_of(option)
    with run.tables(f"altering {name}") as tables:
        declared = tables.alter(name, rename_to=rename_to, unset=unset, **options)
    run.show(declared.as_json(), declared_text(declared))


def _check_changes(name: str, rename_to: str | None, options: bool) -> None:
    if rename_to is not None:
        split_name(rename_to)
    if (rename_to is not None) == options:
        raise InvalidInput(
            "a new name and new options are two statements" if options else "nothing to change",
            reason=Reason.CONTRADICTION if options else Reason.SYNTAX,
            about=name,
            hint="dynamic-tables alter --help lists what can be changed",
        )


@verb("suspend")
@click.argument("name")
def suspend(run: Invocation, name: str) -> None:
    """Leave table NAME out of refreshes."""
    split_name(name)
    with run.records() as tables:
        declared = tables.suspend(name)
    run.show(declared.as_json(), declared_text(declared))


@verb("resume")
@click.argument("name")
def resume(run: Invocation, name: str) -> None:
    """Refresh table NAME again, and forget its failures."""
    split_name(name)
    with run.records() as tables:
        declared = tables.resume(name)
    run.show(declared.as_json(), declared_text(declared))


@verb("drop")
@click.argument("name")
@click.option("--cascade", is_flag=True, help="drop the tables that read it, too")
@click.option("--if-exists", is_flag=True, help="no error if there is no such table")
def drop(run: Invocation, name: str, cascade: bool, if_exists: bool) -> None:
    """Drop table NAME with its files."""
    split_name(name)
    with run.tables(f"dropping {name}") as tables:
        dropped = [str(table) for table in tables.drop(name, cascade=cascade, if_exists=if_exists)]
    shown = "\n".join(f"{table}: dropped" for table in dropped) or f"{name}: there was none"
    run.show({"dropped": dropped}, Text(shown, style="green"))


@verb("optimize")
@click.argument("names", nargs=-1, required=True)
@click.option(
    "--row-groups-by",
    metavar="COLUMN",
    help="every value of this column in row groups of its own; for any Delta table",
)
@click.option("--sort-by", multiple=True, metavar="COLUMN", help="order of the rows of one value")
@click.option("--where", metavar="CONDITION", help="only partitions that fulfil it")
@click.option("--engine", type=click.Choice(ENGINES), help="who writes the files")
@click.option(
    "--values-per-row-group", type=NUMBER, metavar="N", help="so many values share a row group"
)
@click.option(
    "--rows-per-row-group", type=NUMBER, metavar="N", help="rows of a row group; engine native"
)
@click.option("--max-row-group-bytes", type=NUMBER, metavar="N", help="in memory, at most")
@click.option("--dry-run", is_flag=True, help="show what each layout would cost readers")
def optimize(
    run: Invocation,
    names: tuple[str, ...],
    row_groups_by: str | None,
    sort_by: tuple[str, ...],
    where: str | None,
    engine: str | None,
    dry_run: bool,
    **sizes: int | None,
) -> None:
    """Compact tables NAMES, or put their row groups in order; no row changes."""
    for name in names:
        split_name(name)
    if row_groups_by is None:
        given = sort_by or where or engine or dry_run or any(sizes.values())
        _refuse_without_column(names[0], bool(given))
        with run.tables("optimizing") as tables:
            done = [_compacted(tables, name) for name in names]
        shown = Text("\n".join(f"{name}: optimized" for name in done), style="green")
        run.show({"optimized": done}, shown)
        return
    chosen = {"unique_by": row_groups_by, "where": where}
    with run.tables("ordering") as tables:
        if dry_run:
            plans = [tables.rorder_plan(name, **chosen) for name in names]
            run.show([plan.as_json() for plan in plans], Group(*map(rorder_plan_table, plans)))
            return
        more = {"sort_by": sort_by, "engine": engine or ENGINES[0]}
        said = {size: number for size, number in sizes.items() if number is not None}
        reports = [tables.rorder(name, **chosen, **more, **said) for name in names]
    run.show([report.as_json() for report in reports], Group(*map(rorder_table, reports)))


def _compacted(tables: DynamicTables, name: str) -> str:
    try:
        return str(tables.optimize(name))
    except InvalidInput as error:
        if error.reason is Reason.UNKNOWN_TABLE:
            way = f"dynamic-tables optimize {name} --row-groups-by COLUMN"
            error.hint = f"of a Delta table that is not dynamic: {way}; {error.hint}"
        raise


def _refuse_without_column(name: str, given: bool) -> None:
    if given:
        raise InvalidInput(
            "--sort-by, --where, --engine, --dry-run and sizes belong to --row-groups-by",
            reason=Reason.CONTRADICTION,
            about=name,
            hint=f"dynamic-tables optimize {name} --row-groups-by COLUMN …",
        )


VERBS = (create, alter, suspend, resume, drop, optimize)
