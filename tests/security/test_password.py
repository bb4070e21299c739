"""The password of the store is nowhere to be read, whatever goes wrong."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

import dynamic_tables as dt
from postgres import KEYED, PASSWORD, Postgres, with_login

PATIENCE_S = 120
WRONG = "an0ther:on@e"  # as secret: it may be right elsewhere
SECRETS = {form for word in (PASSWORD, WRONG) for form in (word, quote(word, safe=""), quote(word))}
FAILING = "SELECT CASE WHEN amount > 1 THEN error('no') ELSE amount END AS n FROM orders"


@pytest.fixture
def server() -> Iterator[Postgres]:
    """A server of its own: others must not notice."""
    made = Postgres()
    yield made
    made.close()


@pytest.fixture
def url(server: Postgres) -> str:
    return server.new_keyed_database()


@pytest.fixture
def lake(url: str, tmp_path: Path) -> str:
    """With one table that fails, and one that does not."""
    folder = f"ducklake:{tmp_path / 'lake'}"
    with dt.connect(folder, store=url, say=lambda _: None) as tables:
        tables.sql("CREATE TABLE orders AS SELECT 1 AS amount")
        tables.create("total", "SELECT sum(amount) AS n FROM orders", trigger_on_change=True)
        tables.create("failing", FAILING, trigger_on_change=True)
        tables.sql("INSERT INTO orders VALUES (2)")
    return folder


class Running:
    """`run`, with all that it says; the store is given by the environment."""

    def __init__(self, lake: str, url: str) -> None:
        program = str(Path(sys.executable).with_name("dynamic-tables"))
        self.process = subprocess.Popen(
            [program, "run", "--lake", lake, "--poll-s", "0.2"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "DYNAMIC_TABLES_STORE": url},
        )
        self.said: list[str] = []
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put("")  # the end

    def until(self, pattern: str) -> None:
        """It says something like this next, or soon."""
        while not self.said or not re.search(pattern, self.said[-1]):
            self.said.append(self._lines.get(timeout=PATIENCE_S))
            assert self.said[-1], self.said

    def ended(self) -> int:
        code = self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        while not self._lines.empty():
            self.said.append(self._lines.get())
        return code


@pytest.fixture
def run(lake: str) -> Iterator[Callable[[str], Running]]:
    begun: list[Running] = []

    def run_(url: str) -> Running:
        begun.append(Running(lake, url))
        return begun[-1]

    yield run_
    for running in begun:
        running.process.kill()
        running.ended()


def check_kept(text: str) -> None:
    assert not [secret for secret in SECRETS if secret in text], text


def shown_of_processes() -> str:
    """What `ps` tells everybody."""
    shown = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                shown.append((process / "cmdline").read_text(errors="replace"))
            except OSError:  # it has ended
                continue
    return "\n".join(shown)


def kept_in(server: Postgres, database: str) -> str:
    """All that the store has written down."""
    tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
    names = [name for (name,) in server.execute(tables, database)]
    assert "refresh_history" in names
    rows = [
        row for name in names for row in server.execute(f"SELECT t::text FROM {name} t", database)
    ]
    return "\n".join(text for (text,) in rows)


def test_a_wrong_password(run: Callable[[str], Running], url: str) -> None:
    refused = run(url.replace(quote(PASSWORD, safe=""), quote(WRONG, safe="")))
    assert refused.ended() == dt.SetupError.exit_code
    said = "".join(refused.said)
    assert "password authentication failed" in said
    check_kept(said)


def test_a_failing_query_an_outage_and_a_password_that_was_changed(
    run: Callable[[str], Running], server: Postgres, url: str
) -> None:
    running = run(url)
    running.until(r"failing.*QUERY_FAILED")
    check_kept(shown_of_processes())
    server.stop("immediate")
    running.until(r"STORE_BROKEN")
    check_kept(shown_of_processes())
    server.start()
    server.execute(f"ALTER ROLE {KEYED} PASSWORD '{WRONG}'")
    server.execute(
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{KEYED}'"
    )
    running.until(r"password authentication failed")
    server.execute(f"ALTER ROLE {KEYED} PASSWORD '{PASSWORD}'")
    running.process.send_signal(signal.SIGTERM)
    assert running.ended() == 0
    check_kept("".join(running.said))
    kept = kept_in(server, url.replace(with_login("postgres@", KEYED, PASSWORD), "postgres@"))
    assert "QUERY_FAILED" in kept
    check_kept(kept)
