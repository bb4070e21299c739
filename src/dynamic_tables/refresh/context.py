"""What every part of a refresh has at hand."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from dynamic_tables.errors import SetupError
from dynamic_tables.lake.base import Lake
from dynamic_tables.model import RefreshRecord, utc_now
from dynamic_tables.processes import THIS_PROCESS, name_of, this_host
from dynamic_tables.reasons import Reason
from dynamic_tables.settings import Settings
from dynamic_tables.store import Claim, Claimant, Store, Subtask

Clock = Callable[[], datetime]


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceNews:
    """What happened to a shared refresh, for whoever counts or tells."""

    table: str
    what: Literal["created", "completed", "failed", "waited"]
    count: int = 1
    seconds: float = 0.0  # how long a slice took, or how long its coordinator waited
    slice_no: int | None = None  # None: it is about all of them
    reason: Reason | None = None  # why it failed
    error: str | None = None

    @classmethod
    def failed(cls, subtask: Subtask, reason: Reason, error: str) -> SliceNews:
        return cls(
            table=subtask.dynamic_table,
            what="failed",
            slice_no=subtask.slice_no,
            reason=reason,
            error=error,
        )

    def __str__(self) -> str:
        if self.what == "created":
            return f"{self.table}: shared in {self.count} slices"
        line = f"{self.table}: slice {self.slice_no} {self.what}"
        if self.reason is not None:
            return f"{line} ({self.reason.value}): {self.error}"
        return f"{line}, {self.seconds:.2f} s"

    def as_json(self) -> dict[str, Any]:
        """For `--json`; a refresh has no `what`, and this no `action`."""
        return {
            "table": self.table,
            "what": self.what,
            "slice": self.slice_no,
            "slices": self.count if self.what == "created" else None,
            "seconds": round(self.seconds, 3) if self.what == "completed" else None,
            "reason": self.reason.value if self.reason else None,
            "error": self.error,
        }


def _nobody(_news: SliceNews) -> None:
    return None


def _uncounted(_record: RefreshRecord) -> None:
    return None


def _nothing() -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Who refreshes: enough to tell whether the process is still alive. What one process opens has
    owners that differ in their last word only (see `Claimant.process`)."""

    host: str = field(default_factory=this_host)
    pid: int = field(default_factory=os.getpid)
    nonce: str = field(default_factory=lambda: secrets.token_hex(4))

    def __str__(self) -> str:
        return f"{name_of(self.host)}:{self.pid}:{THIS_PROCESS}:{self.nonce}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The parts that a refresh is made of."""

    lake: Lake
    store: Store
    settings: Settings
    clock: Clock = utc_now
    owner: Owner = field(default_factory=Owner)
    tell: Callable[[SliceNews], None] = _nobody
    completed: Callable[[RefreshRecord], None] = _uncounted  # what an earlier one had left open
    catch_up: Callable[[], None] = _nothing  # with names that other processes made
    unreleased: set[Claim] = field(default_factory=set)  # claims that the store did not take back

    def instant(self) -> datetime:
        """The time that all processes share: the store's, unless somebody plays the clock."""
        return self.store.now() if self.clock is utc_now else self.clock()

    def instant_or_here(self) -> datetime:
        """The same; if the store does not tell it, this host's."""
        try:
            return self.instant()
        except SetupError:
            return self.clock()

    @property
    def claimant(self) -> Claimant:
        return Claimant(
            owner=str(self.owner),
            host=self.owner.host,
            pid=self.owner.pid,
            expires_s=self.settings["claim_expires_s"],
            one_driver_at=self.lake.one_driver_at,
        )


class Stopwatch:
    """Milliseconds since the start, split by step."""

    def __init__(self) -> None:
        self._start = self._last = time.monotonic()
        self.laps: dict[str, int] = {}

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self.laps[name] = self.laps.get(name, 0) + round((now - self._last) * 1000)
        self._last = now

    @property
    def total_ms(self) -> int:
        return round((time.monotonic() - self._start) * 1000)
