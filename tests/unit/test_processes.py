"""Which process is which: numbers are compared where processes see each other."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dynamic_tables.processes import is_dead, name_of, this_host
from dynamic_tables.refresh.context import Owner
from dynamic_tables.render.tables import claim_text
from dynamic_tables.store import Claim, Claimant

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def proc(folder: Path, boot: str) -> Path:
    """What a host tells of itself; its namespace is a file of its own."""
    (folder / "sys/kernel/random").mkdir(parents=True)
    (folder / "sys/kernel/random/boot_id").write_text(f"{boot}-68e6-46c1\n")
    (folder / "self/ns").mkdir(parents=True)
    (folder / "self/ns/pid").touch()
    return folder


def test_hosts_of_one_name_are_told_apart(tmp_path: Path) -> None:
    """By when they were started, and containers by what they see."""
    one, other, twin = (proc(tmp_path / name, "12f9e39e") for name in ("one", "other", "twin"))
    (twin / "sys/kernel/random/boot_id").write_text("00000000-68e6-46c1\n")
    (twin / "self/ns/pid").unlink()
    os.link(one / "self/ns/pid", twin / "self/ns/pid")
    namespace = (one / "self/ns/pid").stat().st_ino
    assert this_host(one) == f"{socket.gethostname()}/12f9e39e/{namespace}"
    assert len({this_host(one), this_host(other), this_host(twin)}) == 3
    assert {name_of(this_host(place)) for place in (one, other, twin)} == {socket.gethostname()}


def test_where_there_is_no_proc_the_name_must_do(tmp_path: Path) -> None:
    assert this_host(tmp_path) == socket.gethostname()


def test_a_process_is_dead_only_where_it_would_be_seen() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert is_dead(this_host(), process.pid)
    assert not is_dead(this_host(), os.getpid())
    assert not is_dead(socket.gethostname() + "/00000000/1", process.pid)


def test_a_killed_process_is_dead_before_anybody_asks_for_it() -> None:
    process = subprocess.Popen(["sleep", "60"])
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert is_dead(this_host(), process.pid)
    process.wait()


def claimant(owner: Owner) -> Claimant:
    return Claimant(owner=str(owner), host=owner.host, pid=owner.pid, expires_s=1.0)


def test_owners_of_one_process_begin_alike_and_nobody_elses() -> None:
    one, other = Owner(), Owner()
    assert str(one) != str(other)
    assert claimant(one).process == claimant(other).process
    made = f"Owner(host={one.host!r}, pid={one.pid})"
    program = f"from dynamic_tables.refresh.context import Owner; print({made})"
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    twin = replace(claimant(one), owner=told.stdout.strip())
    assert not twin.owner.startswith(claimant(one).process)


@pytest.mark.parametrize("host", ["db-1", "db-1/12f9e39e/4026531836"])
def test_people_see_the_name(host: str) -> None:
    assert str(Owner(host=host, pid=7)).startswith("db-1:7:")
    claim = Claim(
        table_id="t",
        token=1,
        owner="o",
        host=host,
        pid=7,
        refresh_id="r",
        claimed_at=NOW,
        heartbeat_at=NOW,
        expires_at=NOW,
    )
    assert claim_text(claim) == "process 7 on db-1, since 2026-01-01 00:00:00 UTC"
