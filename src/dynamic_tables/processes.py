"""Which process is which, though hosts may share a name and containers a process number.

A process number says something only where processes see each other: on one host, since it was
started, among those of one namespace. So a host is compared with all of that, and people are shown
its name alone. Elsewhere than on Linux there is nothing but the name.
"""

from __future__ import annotations

import os
import secrets
import socket
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
BOOT_DIGITS = 8
THIS_PROCESS = secrets.token_hex(4)  # a forked one has another number, if the same word


def this_host(proc: Path = PROC) -> str:
    """Where numbers of processes are comparable: name/boot/namespace, or the name alone."""
    name = socket.gethostname()
    with suppress(OSError):
        boot = (proc / "sys/kernel/random/boot_id").read_text(encoding="ascii")
        return f"{name}/{boot[:BOOT_DIGITS]}/{(proc / 'self/ns/pid').stat().st_ino}"
    return name


def name_of(host: str) -> str:
    """For people.

    >>> name_of("db-1/12f9e39e/4026531836"), name_of("db-1")
    ('db-1', 'db-1')
    """
    return host.partition("/")[0]


def is_dead(host: str, pid: int) -> bool:
    """Whether a process of this host is gone, so that its claim need not expire first."""
    if host != this_host():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False  # it lives, under another user
    return _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """A killed process whose parent has not asked for its exit code does nothing any more."""
    try:
        stat = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False  # no /proc here: rely on the signal alone
    return stat.rpartition(")")[2].split()[0] == "Z"
