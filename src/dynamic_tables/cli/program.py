"""The program: global flags, one shape for all errors, exit codes.

    0 done   1 internal   2 bad input   3 a table failed   4 refused by policy
    5 held or taken over by another refresher   130 interrupted

Errors go to stderr, with `--json` as the one object of `DynamicTablesError.as_json`; stdout has
data or nothing.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, NoReturn, TypeVar

import click

from dynamic_tables.cli.session import Invocation
from dynamic_tables.errors import DynamicTablesError, InternalError, InvalidInput, RefreshFailed
from dynamic_tables.reasons import Reason
from dynamic_tables.render import Unheard, console, error_text
from dynamic_tables.settings import SETTINGS, SettingSpec

INTERRUPTED = 130
FAILED = 3

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
pass_invocation = click.make_pass_decorator(Invocation)


def _keep_setting(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.ensure_object(Invocation).flags[str(parameter.name)] = value


def _keep_json(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        context.ensure_object(Invocation).json = True


def _setting(spec: SettingSpec, *, hidden: bool) -> click.Option:
    metavar = "|".join(spec.choices) or spec.kind.__name__.upper().replace("STR", "TEXT")
    return click.Option(
        [f"--{spec.name.replace('_', '-')}"],
        metavar=metavar,
        help=f"{spec.doc} (default: {spec.default or 'none'})",
        hidden=hidden,
        expose_value=False,
        callback=_keep_setting,
    )


def _json_flag(*, hidden: bool) -> click.Option:
    return click.Option(
        ["--json"],
        is_flag=True,
        hidden=hidden,
        expose_value=False,
        callback=_keep_json,
        help="print data as JSON",
    )


def _debug_flag(*, hidden: bool) -> click.Option:
    return click.Option(
        ["--debug"],
        is_flag=True,
        expose_value=False,
        hidden=hidden,
        help="show the traceback of an unexpected error",
    )


class Verb(click.Command):
    """A verb; it takes the global flags too, so that their place does not matter."""

    def __init__(self, *args: Any, prints_data: bool = True, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += [_setting(spec, hidden=True) for spec in SETTINGS]
        self.params += [_json_flag(hidden=not prints_data), _debug_flag(hidden=True)]


class Program(click.Group):
    """The group of all verbs, which ends every run with one of the exit codes."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> NoReturn:
        """Run, tell errors in our shape, exit; click's own way has other codes and words."""
        given = list(sys.argv[1:] if args is None else args)
        extra["standalone_mode"] = False
        code = _run(lambda: super(Program, self).main(given, *rest, **extra), given)
        _forget_unheard()
        sys.exit(code)

    def invoke(self, ctx: click.Context) -> Any:
        """`… | head`: nobody reads any more, which is no error; click would exit with 1."""
        try:
            return super().invoke(ctx)
        except (BrokenPipeError, Unheard):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the last flush
            return 0

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the nearest verb when there is none of this name."""
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            near = get_close_matches(args[0], known, n=1)
            raise InvalidInput(
                "there is no such command",
                reason=Reason.SYNTAX,
                about=args[0],
                hint=f"did you mean {near[0]}?" if near else f"there are: {', '.join(known)}",
            )
        return super().resolve_command(ctx, args)


def _run(call: Callable[[], Any], given: Sequence[str]) -> int:
    """Every way a run can end, and its exit code."""
    as_json = "--json" in given
    try:
        code = call()
    except DynamicTablesError as error:
        _tell(error, as_json=as_json)
        return _exit_code(error)
    except click.ClickException as error:
        _tell(_usage(error), as_json=as_json)
        return InvalidInput.exit_code
    except (click.Abort, KeyboardInterrupt):
        _tell(_interrupted(), as_json=as_json)
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001  the last place before the user: no traceback there
        _tell(_unexpected(error), as_json=as_json)
        if "--debug" in given:
            with suppress(OSError):
                traceback.print_exc()
        return InternalError.exit_code
    return code if isinstance(code, int) else 0


def _tell(error: DynamicTablesError, *, as_json: bool) -> None:
    with suppress(OSError):  # nobody reads it; the exit code still tells
        if as_json:
            click.echo(json.dumps(error.as_json(), ensure_ascii=False), err=True)
        else:
            console(sys.stderr).print(error_text(error), soft_wrap=True)


def _forget_unheard() -> None:
    """What stderr did not take: Python would try again at its end, and change the exit code."""
    try:
        sys.stderr.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _exit_code(error: DynamicTablesError) -> int:
    if isinstance(error, RefreshFailed):
        return error.exit_code_for_cli
    return error.exit_code


def _usage(error: click.ClickException) -> InvalidInput:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "dynamic-tables"
    return InvalidInput(
        error.format_message(), reason=Reason.SYNTAX, about=path, hint=f"{path} --help"
    )


def _interrupted() -> DynamicTablesError:
    return InternalError(
        "interrupted; the tables are as they were or as they should be, nothing is half done",
        reason=Reason.INTERRUPTED,
    )


def _unexpected(error: Exception) -> InternalError:
    text = " ".join(str(error).split())
    return InternalError(
        f"{type(error).__name__}: {text}",
        reason=Reason.INTERNAL,
        about="unexpected error",
        hint="please report this; --debug shows where it comes from",
    )


def verb(name: str, *, prints_data: bool = True) -> Callable[[Callable[..., Any]], Verb]:
    """Declare a verb; its function gets the invocation first."""

    def declare(function: Callable[..., Any]) -> Verb:
        made = click.command(name, cls=Verb, prints_data=prints_data)(pass_invocation(function))
        assert isinstance(made, Verb)
        return made

    return declare


@click.group(
    cls=Program,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="spark-dynamic-tables")
@click.pass_context
def program(context: click.Context) -> None:
    """Dynamic tables: declare a SELECT over Delta tables, we keep it equal to its query.

    Settings come from flags, then DYNAMIC_TABLES_*, then dynamic-tables.toml; `dynamic-tables
    config` shows each with its origin. `dynamic-tables demo` shows everything at work.
    """
    context.ensure_object(Invocation)
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


program.params += [_setting(spec, hidden=False) for spec in SETTINGS]
program.params += [_json_flag(hidden=False), _debug_flag(hidden=False)]
