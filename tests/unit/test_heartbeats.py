"""Claims are kept alive as long as somebody works, however often that is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from dynamic_tables.refresh.claims import Heartbeats


def test_a_heart_beats_on_whatever_it_meets() -> None:
    met: Iterator[Exception] = iter([TimeoutError("no connection left"), KeyError("a defect")])
    beat = threading.Event()

    def heartbeat(_claim: object) -> None:
        for error in met:
            raise error
        beat.set()

    store = SimpleNamespace(heartbeat=heartbeat)
    context: Any = SimpleNamespace(settings={"claim_expires_s": 0.06}, store=store)
    claim: Any = SimpleNamespace(token=1)
    hearts = Heartbeats(context)
    with hearts.beating(), hearts.kept(claim):
        assert beat.wait(60)


def test_a_heart_beats_again() -> None:
    beat = threading.Event()
    store = SimpleNamespace(heartbeat=lambda _claim: beat.set())
    context: Any = SimpleNamespace(settings={"claim_expires_s": 0.06}, store=store)
    claim: Any = SimpleNamespace(token=1)
    hearts = Heartbeats(context)
    for _ in range(2):
        beat.clear()
        with hearts.beating(), hearts.kept(claim):
            assert beat.wait(60)
