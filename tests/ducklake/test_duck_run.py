"""`dynamic-tables run`, as a process of its own."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import dynamic_tables as dt
from dynamic_tables.cli.program import INTERRUPTED

PATIENCE_S = 120


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    folder = tmp_path / "lake"
    with dt.connect(f"ducklake:{folder}", say=lambda _: None) as tables:
        tables.sql("CREATE TABLE orders AS SELECT 1 AS amount")
        tables.create("total", "SELECT sum(amount) AS n FROM orders", trigger_on_change=True)
        tables.create("idle", "SELECT amount FROM orders", target_lag="DOWNSTREAM")
        tables.sql("INSERT INTO orders VALUES (2)")
    return folder


def program(lake: Path, *words: str) -> list[str]:
    dynamic_tables = str(Path(sys.executable).with_name("dynamic-tables"))
    return [dynamic_tables, *words, "--lake", f"ducklake:{lake}"]


def test_once_and_then_nothing_is_due(lake: Path) -> None:
    for expected in (["total"], []):
        done = subprocess.run(
            program(lake, "run", "--once", "--json"), check=True, capture_output=True, text=True
        )
        assert [
            record["table"].rpartition(".")[2] for record in json.loads(done.stdout)
        ] == expected
    assert "idle has TARGET_LAG = DOWNSTREAM" in done.stderr


# The program, in which a refresh that has opened its intent waits until a file is there.
WAITING = """
import sys, time
from pathlib import Path
from dynamic_tables.cli import main
from dynamic_tables.steps import Step, observing

go = Path(sys.argv.pop(1))

def wait(step, _table):
    if step is Step.INTENDED:
        print("intended", flush=True)
        while not go.exists():
            time.sleep(0.05)

with observing(wait):
    main()
"""


@pytest.fixture
def under_way(lake: Path) -> Iterator[subprocess.Popen[str]]:
    """`run`, in the middle of a refresh that goes on when the file `go` is there."""
    _, *words = program(lake, "run")
    command = [sys.executable, "-c", WAITING, str(lake.with_name("go")), *words]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    assert running.stdout.readline() == "intended\n"
    yield running
    running.kill()
    running.wait()


def test_sigterm_ends_it_after_its_work(lake: Path, under_way: subprocess.Popen[str]) -> None:
    under_way.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        under_way.wait(1)
    lake.with_name("go").touch()
    assert under_way.wait(PATIENCE_S) == 0
    with dt.connect(f"ducklake:{lake}", say=lambda _: None) as tables:
        assert tables.store.claims() == tables.store.workers() == []
        assert tables.store.intent(tables.show("total").definition.table_id) is None
        assert tables.read("total").fetchall() == [(3,)]


def test_a_second_sigterm_ends_it_at_once(lake: Path, under_way: subprocess.Popen[str]) -> None:
    under_way.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        under_way.wait(1)
    under_way.send_signal(signal.SIGTERM)
    assert under_way.wait(PATIENCE_S) == INTERRUPTED
    with dt.connect(f"ducklake:{lake}", say=lambda _: None) as tables:
        assert tables.read("total").fetchall() == [(1,)]
        tables.worker(slots=1, say=lambda _: None).drain()
        assert "RECOVERED" in {record.reason for record in tables.history("total")}
        assert tables.read("total").fetchall() == [(3,)]


@contextmanager
def running(lake: Path, *words: str) -> Generator[subprocess.Popen[str]]:
    """The program at work; it is asked to end after the block, and its last words can be read."""
    process = subprocess.Popen(
        program(lake, *words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def rest_of(process: subprocess.Popen[str]) -> tuple[str, str]:
    assert process.stdout is not None
    assert process.stderr is not None
    return process.stdout.read(), process.stderr.read()


def test_it_tells_each_refresh_in_a_line(lake: Path) -> None:
    with running(lake, "run", "--poll-s", "0.1") as process:
        line = line_of(process)
    told = (
        r"\d\d:\d\d:\d\d main\.total@\d+: refresh merge \(CHANGED\), \+1 -1, reads \S+, [\d.]+ s\n"
    )
    assert re.fullmatch(told, line)
    data, said = rest_of(process)
    assert data == ""  # nothing more was due
    assert "ending" in said


def test_with_json_each_refresh_is_an_object_in_a_line(lake: Path) -> None:
    with running(lake, "run", "--poll-s", "0.1", "--json") as process:
        record = json.loads(line_of(process))
    assert (record["table"], record["strategy"], record["reason"]) == (
        "main.total",
        "merge",
        "CHANGED",
    )
    assert rest_of(process)[0] == ""


def test_what_fails_is_told_with_its_reason_and_the_way_out(lake: Path) -> None:
    with dt.connect(f"ducklake:{lake}", say=lambda _: None) as tables:
        tables.create(
            "broken",
            "SELECT error('too dear') AS e FROM orders WHERE amount = 2",
            initialize="ON_SCHEDULE",
            trigger_on_change=True,
        )
    with running(lake, "run", "--poll-s", "0.1") as process:
        lines = [line_of(process) for _ in range(4)]
    at = next(n for n, line in enumerate(lines) if "main.broken: skip (QUERY_FAILED)" in line)
    assert "too dear" in lines[at + 1]
    assert lines[at + 2].startswith("    hint: ")
    assert all(line.endswith("\n") for line in lines)


def unheard(lake: Path, closed: str, *words: str) -> subprocess.Popen[str]:
    """The program, one stream of which nobody reads."""
    process = subprocess.Popen(
        program(lake, *words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    getattr(process, closed).close()
    return process


def test_whose_results_nobody_reads_ends_in_order(lake: Path) -> None:
    """`run | head`: what is under way is settled, nothing stays claimed."""
    process = unheard(lake, "stdout", "run", "--poll-s", "0.1")
    assert process.wait(PATIENCE_S) == 0
    with dt.connect(f"ducklake:{lake}", say=lambda _: None) as tables:
        assert tables.store.claims() == tables.store.workers() == tables.store.pending() == []
        assert tables.read("total").fetchall() == [(3,)]


def test_whose_words_nobody_reads_works_on(lake: Path) -> None:
    """A closed stderr: results are told as before, and SIGTERM ends it in order."""
    process = unheard(lake, "stderr", "run", "--poll-s", "0.1")
    assert "main.total" in line_of(process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 0
    with dt.connect(f"ducklake:{lake}", say=lambda _: None) as tables:
        assert tables.store.claims() == tables.store.workers() == tables.store.pending() == []
        assert tables.read("total").fetchall() == [(3,)]


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
@pytest.mark.parametrize(
    ("words", "code"), [(["list"], 0), (["show", "nothing"], 2), (["show", "nothing", "--json"], 2)]
)
def test_who_is_not_listened_to_has_its_exit_code(
    lake: Path, closed: str, words: list[str], code: int
) -> None:
    assert unheard(lake, closed, *words).wait(PATIENCE_S) == code


def test_workers_need_a_store(lake: Path) -> None:
    done = subprocess.run(
        program(lake, "worker", "--json"), check=False, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert json.loads(done.stderr)["reason"] == "STORE_MISSING"
