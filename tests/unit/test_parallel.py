"""Whether and how workers share a refresh: pure decisions, and which slice a key belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import INSTANT, definition, name, state
from hypothesis import given
from hypothesis import strategies as st

from dynamic_tables.lake.slicing import Slicing, Split, SplitKind
from dynamic_tables.model import Action, Estimate, Outcome, RefreshRecord, Strategy
from dynamic_tables.options import Options
from dynamic_tables.reasons import Reason
from dynamic_tables.refresh.costs import TELLING
from dynamic_tables.refresh.decide import Decision
from dynamic_tables.refresh.parallel import should_parallelize, slice_count, slices_for
from dynamic_tables.render.tables import claim_text, status_text
from dynamic_tables.settings import Settings, load_settings
from dynamic_tables.store import Claim

MILLION = 1_000_000


@pytest.mark.parametrize(
    ("keys", "idle", "slices"),
    [
        (9_999_999, 16, 1),
        (10 * MILLION, 1, 1),
        (10 * MILLION, 2, 2),
        (10 * MILLION, 16, 2),  # about five million keys a worker
        (50 * MILLION, 4, 4),
        (50 * MILLION, 16, 10),
        (100 * MILLION, 32, 16),
        (1_000 * MILLION, 64, 16),
    ],
)
def test_the_seeds_table(keys: int, idle: int, slices: int) -> None:
    assert slice_count(keys, idle) == slices
    assert should_parallelize(keys, idle) is (slices > 1)


@given(st.integers(0, 10**9), st.integers(0, 100), st.integers(1, 10**7), st.integers(1, 64))
def test_never_more_slices_than_workers_keys_or_allowed(
    keys: int, idle: int, threshold: int, most: int
) -> None:
    found = slice_count(keys, idle, threshold=threshold, most=most)
    assert 1 <= found <= max(1, min(idle, most, keys))
    if found > 1:
        assert keys >= threshold


def settings(folder: Path, **flags: Any) -> Settings:
    return load_settings(flags, environment={}, folder=folder)


def decision(seconds: float) -> Decision:
    expected = Estimate(strategy=Strategy.KEYS, bytes=1, weight=TELLING, seconds=seconds)
    return Decision(
        action=Action.REFRESH,
        strategy=Strategy.KEYS,
        reason=Reason.CHANGED,
        estimates=(expected,),
    )


def record(**changes: Any) -> RefreshRecord:
    values: dict[str, Any] = {
        "refresh_id": "r",
        "table": name("t"),
        "table_id": "t",
        "action": Action.REFRESH,
        "outcome": Outcome.DONE,
        "reason": Reason.CHANGED,
        "strategy": Strategy.KEYS,
        "estimates": decision(60).estimates,
        "started_at": INSTANT,
        "duration_ms": 60_000,
    }
    return RefreshRecord(**{**values, **changes})


def asked(
    folder: Path,
    *,
    options: Options | None = None,
    history: Sequence[RefreshRecord] = (),
    seconds: float = 60.0,
    idle: int = 4,
    **flags: Any,
) -> int:
    return slices_for(
        20 * MILLION,
        decision(seconds),
        options or Options(),
        settings(folder, **flags),
        idle_workers=lambda: idle,
        history=lambda: history,
    )


def test_table_and_settings_both_have_a_say(tmp_path: Path) -> None:
    assert asked(tmp_path) == 4
    assert asked(tmp_path, options=Options(allow_parallel_refresh=False)) == 1
    assert asked(tmp_path, options=Options(parallel_threshold=30 * MILLION)) == 1
    assert asked(tmp_path, options=Options(max_parallelism=3)) == 3
    assert asked(tmp_path, parallel_refresh="off") == 1
    assert asked(tmp_path, parallel_max_workers=2) == 2
    assert asked(tmp_path, idle=1) == 1


def test_what_one_worker_does_soon_is_not_shared(tmp_path: Path) -> None:
    """An estimate counts only if refreshes of the table tell that it is one."""
    alone = record()
    assert asked(tmp_path, history=[alone]) == 1
    assert asked(tmp_path, history=[alone], seconds=600.0) == 4
    assert asked(tmp_path, history=[alone], parallel_worth_s=30) == 4
    assert asked(tmp_path, history=[record(slices=4)]) == 4  # others helped: it says nothing
    assert asked(tmp_path, history=[record(strategy=Strategy.FULL)]) == 4


def test_slicing_survives_the_store() -> None:
    split = Split(
        kind=SplitKind.PARTITION, columns=("day",), count=2, values=(("'a'",), ("'b'", "NULL"))
    )
    slicing = Slicing(
        definition=definition("t", reads=("orders",)),
        strategy=Strategy.KEYS,
        key=("customer", "day"),
        split=split,
        slices=(0, 1),
    )
    assert Slicing.from_json(slicing.as_json()) == slicing
    assert split.data(1) == {
        "key_columns": ["day"],
        "partition": 1,
        "total_partitions": 2,
        "values": ["'b'", "NULL"],
    }


def test_odd_names_are_quoted() -> None:
    odd = Split(kind=SplitKind.HASH_RANGE, columns=("a`b", "c d"), count=2)
    assert odd.condition(1) == "pmod(hash(`a``b`, `c d`), 2) = 1"


def test_people_see_how_far_the_slices_are() -> None:
    claim = Claim(
        table_id="t",
        token=1,
        owner="here:7:x",
        host="here",
        pid=7,
        refresh_id="r",
        claimed_at=INSTANT,
        heartbeat_at=INSTANT,
        expires_at=INSTANT,
    )
    shared = replace(claim, mode="coordinator", subtasks_total=4, subtasks_completed=3)
    here = state(definition("t", reads=("orders",)))
    assert str(status_text(here, claim)) == "not loaded"
    assert str(status_text(here, shared)) == "not loaded, 3 of 4 slices"
    assert claim_text(claim) == "process 7 on here, since 2026-01-01 00:00:00 UTC"
    assert claim_text(shared).endswith("; 3 of 4 slices are computed")
    assert record(slices=4).did == "refresh keys in 4 slices"
