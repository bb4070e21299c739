"""What every verb has at hand: settings, the open lake, a progress line, and where to print."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import click
from rich.console import Console, RenderableType
from rich.text import Text

from dynamic_tables.app import DynamicTables
from dynamic_tables.cli.strict import strict_json
from dynamic_tables.connect import (
    STORE_FILE,
    check_store,
    connect,
    folder_of,
    is_ducklake,
    is_lake,
)
from dynamic_tables.errors import SetupError
from dynamic_tables.names import SMALL_LAKE
from dynamic_tables.reasons import Reason
from dynamic_tables.render import ProgressLine, Unheard, console
from dynamic_tables.settings import Settings, load_settings, masked
from dynamic_tables.store import open_store, store_is_there


@dataclass(slots=True)
class Invocation:
    """One run of the program."""

    flags: dict[str, Any] = field(default_factory=dict)  # settings given as flags
    json: bool = False
    _settings: Settings | None = None
    _err: Console | None = None
    _line: ProgressLine | None = None
    _telling: threading.Lock = field(default_factory=threading.Lock)

    @property
    def settings(self) -> Settings:
        if self._settings is None:
            _check_no_password(self.flags)
            self._settings = load_settings(self.flags)
        return self._settings

    # Opening

    @contextmanager
    def tables(
        self,
        doing: str = "working",
        *,
        opening: Callable[..., DynamicTables] | None = None,
        may_make: bool = False,
    ) -> Generator[DynamicTables]:
        """The tables of the lake, with its engine; a progress line shows what that is doing.

        `may_make`: if there is no lake yet, this verb makes one.
        """
        if not may_make:
            self._check_there()
        with self.progress() as line:
            line.say("opening" if is_ducklake(self.settings["lake"]) else "starting Spark")
            opened = (opening or connect)(settings=self.settings, say=self.note)
            line.watch(opened, doing)
            try:
                yield opened
            except KeyboardInterrupt:
                opened.lake.cancel()
                raise
            except opened.lake.faults as error:
                raise opened.lake.told(error, about=doing) from error
            finally:
                line.stop()
                opened.close()

    @contextmanager
    def records(self) -> Generator[DynamicTables]:
        """The tables as the store knows them: for verbs that need no engine, in a fraction of the
        time."""
        if self.settings["warehouse"]:
            check_store(self.settings, f"warehouse={self.settings['warehouse']}")
        self._check_there()
        place = self.settings["store"] or self._store_file()
        with open_store(place) as store:
            small = is_ducklake(self.settings["lake"]) and not self.settings["warehouse"]
            lake = cast("Any", _NoEngine(small))
            yield DynamicTables(lake, store, self.settings, say=self.note)

    def _check_there(self) -> None:
        """Who looks at a lake or a store that is not there must not make one, nor take it for one
        without tables."""
        place, folder = self.settings["store"], folder_of(self.settings["lake"])
        if place and not store_is_there(place):
            raise SetupError(
                "there is no store here",
                reason=Reason.STORE_MISSING,
                about=masked(place),
                hint="--store names another one; if it was lost, `dynamic-tables doctor --rebuild`"
                " makes it anew from the lake",
            )
        made = is_lake(folder) or (not place and (folder / STORE_FILE).is_file())
        if not made and not self.settings["warehouse"]:
            raise SetupError(
                "there is no lake here",
                reason=Reason.STORE_MISSING,
                about=str(folder),
                hint="--lake names another folder; `dynamic-tables create` makes a first table",
            )

    def _store_file(self) -> Path:
        """The embedded store."""
        file = folder_of(self.settings["lake"]) / STORE_FILE
        if not file.is_file():
            raise SetupError(
                "the lake has no store",
                reason=Reason.STORE_MISSING,
                about=str(file.parent),
                hint="if it had dynamic tables, `dynamic-tables doctor --rebuild` brings them back",
            )
        return file

    # Printing

    @property
    def err(self) -> Console:
        """For people: one console, so that notes and the progress line do not mix."""
        if self._err is None:
            self._err = console(sys.stderr)
        return self._err

    def note(self, text: str) -> None:
        """For people, if anybody is there to read it: no work ends for a word that is lost."""
        with suppress(OSError):
            self.err.print(text, style="dim", soft_wrap=True)

    def show(self, data: Any, shown: RenderableType) -> None:
        """The result of a verb: data with `--json`, else for people."""
        if self.json:
            _echo(f"{strict_json(data)}\n")
            return
        with self._aside():
            console(sys.stdout).print(shown)

    def line(self, data: Any, shown: Text) -> None:
        """One of many results, told as soon as it is there: whole lines from any thread."""
        with self._telling:
            if self.json:
                _echo(f"{strict_json(data, indent=None)}\n")
                return
            screen = console(sys.stdout)
            with screen.capture() as text:
                screen.print(shown, soft_wrap=True)
            with self._aside():
                _echo(text.get())

    def _aside(self) -> AbstractContextManager[None]:
        """Without the progress line: both may be the same terminal."""
        return nullcontext() if self._line is None else self._line.paused()

    @contextmanager
    def progress(self) -> Generator[ProgressLine]:
        """A line on stderr while Spark works, if somebody sits there."""
        visible = self.err.is_terminal and not self.json
        self._line = ProgressLine(self.err if visible else None)
        try:
            yield self._line
        finally:
            self._line.stop()


def _echo(text: str) -> None:
    try:
        click.echo(text, nl=False)
    except BrokenPipeError:
        raise Unheard from None


def _check_no_password(flags: Mapping[str, Any]) -> None:
    """Everybody on the machine sees the words that a process was started with."""
    store = str(flags.get("store") or "")
    if masked(store) != store:
        raise SetupError(
            "a password on the command line shows in the list of processes",
            reason=Reason.BAD_SETTING,
            about=f"--store {masked(store)}",
            hint="give the store by DYNAMIC_TABLES_STORE or dynamic-tables.toml, or the password "
            "by ~/.pgpass",
        )


class _NoEngine:
    """Stands where the lake would be: it knows in which schema a process begins, and no more."""

    def __init__(self, ducklake: bool) -> None:
        self._ducklake = ducklake

    def namespace(self) -> tuple[str, str]:
        return (SMALL_LAKE, "main") if self._ducklake else ("spark_catalog", "default")
