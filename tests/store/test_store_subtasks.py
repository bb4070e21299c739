"""Slices: shared once, claimed by one worker each, retried, and gone with their refresh."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import pytest
import store_builders as make
import store_processes
from sqlalchemy import update
from sqlalchemy.exc import IntegrityError
from store_processes import CONTEXT

from dynamic_tables.errors import Held, InternalError
from dynamic_tables.reasons import Reason
from dynamic_tables.store import Claim, SliceResult, Store, Subtask, WantedSubtask
from dynamic_tables.store.engine import writing
from dynamic_tables.store.schema import claim_tokens
from dynamic_tables.store.schema import refresh_subtasks as rows
from dynamic_tables.store.subtasks import MAX_RETRIES, VANISHED

SLICING = {"strategy": "keys"}
RESULT = SliceResult(location="file:/lake/t/_staging/1/0-1", rows=3, checksum="-12")


def wanted(count: int) -> list[WantedSubtask]:
    return [
        WantedSubtask(slice_no=n, subtask_type="hash_range", subtask_data={"partition": n})
        for n in range(count)
    ]


def share(store: Store, claim: Claim, count: int = 2) -> None:
    store.open_intent(claim, make.intent())
    store.open_slices(claim, 1, SLICING, wanted(count))


def taken(store: Store, pid: int = 1) -> Subtask:
    found = store.claim_subtask(make.claimant(pid))
    assert found is not None
    return found


def age(store: Store, subtask: Subtask, *, expired: bool) -> None:
    """Let it have been claimed long ago by the database's clock."""
    assert subtask.claimed_at is not None
    past = subtask.claimed_at.replace(year=2000)
    values = {"claimed_at": past, **({"heartbeat_at": past, "expires_at": past} if expired else {})}
    with writing(store._engine) as connection:
        mine = rows.c.token == subtask.token
        assert connection.execute(update(rows).where(mine).values(values)).rowcount == 1


def test_slices_are_claimed_by_one_worker_each(store: Store, claim: Claim) -> None:
    share(store, claim)
    assert store.intent(claim.table_id) == replace(make.intent(), slicing=SLICING)
    first, second = taken(store, 1), taken(store, 2)
    assert [first.slice_no, second.slice_no] == [0, 1]
    assert (first.subtask_data, first.sequence, first.retries) == ({"partition": 0}, 1, 0)
    assert claim.token < first.token < second.token  # ty: ignore
    assert store.claim_subtask(make.claimant(3)) is None
    assert store.complete_subtask(first, RESULT)
    looked = store.look_at_slices(claim, 1)
    assert [(item.status, item.result) for item in looked] == [
        ("completed", RESULT),
        ("claimed", None),
    ]
    held = store.holder(claim.table_id)
    assert held is not None
    assert (held.mode, held.subtasks_total, held.subtasks_completed) == ("coordinator", 2, 1)


def test_slices_go_with_their_refresh(store: Store, claim: Claim) -> None:
    share(store, claim)
    mine = taken(store)
    store.record(claim, make.record(), make.build(), close_intent=1, failures="reset")
    assert store.subtasks() == []
    assert not store.complete_subtask(mine, RESULT)
    assert not store.heartbeat(mine)
    store.open_intent(claim, make.intent(2))
    store.open_slices(claim, 2, SLICING, wanted(1))
    assert store.drop_intent(claim, 2)
    assert store.subtasks() == []


def test_only_the_holder_of_the_table_shares_it(store: Store, claim: Claim) -> None:
    with pytest.raises(InternalError):  # nothing is open yet
        store.open_slices(claim, 1, SLICING, wanted(2))
    store.open_intent(claim, make.intent())
    lost = replace(claim, token=0)
    with pytest.raises(Held):
        store.open_slices(lost, 1, SLICING, wanted(2))
    with pytest.raises(Held):
        store.look_at_slices(lost, 1)
    assert store.subtasks() == []


def test_an_expired_claim_is_taken_over_and_its_owner_changes_nothing(
    store: Store, claim: Claim
) -> None:
    share(store, claim, 1)
    late = taken(store, 1)
    age(store, late, expired=True)
    successor = taken(store, 2)
    assert (successor.slice_no, successor.retries, successor.claimed_by) == (0, 1, "here:2:x:1")
    assert (late.lost, successor.lost) == (False, True)
    assert not store.heartbeat(late)
    assert not store.complete_subtask(late, RESULT)
    assert not store.fail_subtask(late, "QUERY_FAILED", "no", final=True)
    assert store.heartbeat(successor)
    assert store.complete_subtask(successor, RESULT)


def test_a_slice_is_tried_again_three_times(store: Store, claim: Claim) -> None:
    share(store, claim, 1)
    for retries in range(MAX_RETRIES + 1):
        attempt = taken(store, pid=retries)
        assert attempt.retries == retries
        assert store.fail_subtask(attempt, "ENGINE_FAILED", f"error {retries}", final=False)
    assert store.claim_subtask(make.claimant()) is None
    [failed] = store.look_at_slices(claim, 1)
    assert (failed.status, failed.reason, failed.error) == ("failed", "ENGINE_FAILED", "error 3")
    assert not failed.lost  # each of its workers told how it failed


def test_who_failed_leaves_the_slice_to_others_for_a_while(store: Store, claim: Claim) -> None:
    share(store, claim, 1)
    store.fail_subtask(taken(store, 1), "UNKNOWN_SOURCE", "not here", final=False)
    assert store.claim_subtask(make.claimant(1)) is None
    assert store.claim_subtask(make.claimant(1, expires_s=0.0)) is not None  # it rested
    other = store.subtasks()[0]
    assert (other.retries, other.error) == (1, "not here")


def test_a_slice_whose_workers_vanish_fails_too(store: Store, claim: Claim) -> None:
    share(store, claim, 1)
    for _ in range(MAX_RETRIES + 1):
        age(store, taken(store), expired=True)
    assert store.claim_subtask(make.claimant()) is None
    [failed] = store.look_at_slices(claim, 1)
    assert (failed.status, failed.reason) == ("failed", Reason.SUBTASKS_LOST)
    assert failed.lost
    assert not store.look_at_slices(claim, 1)[0].lost  # that was told


def test_what_fails_for_good_is_not_tried_again(store: Store, claim: Claim) -> None:
    share(store, claim, 1)
    store.fail_subtask(taken(store), "QUERY_FAILED", "division by zero", final=True)
    assert store.claim_subtask(make.claimant()) is None
    assert [item.status for item in store.look_at_slices(claim, 1)] == ["failed"]


def test_a_slow_worker_gets_company_and_the_first_result_wins(store: Store, claim: Claim) -> None:
    share(store, claim, 2)
    quick, slow = taken(store, 1), taken(store, 2)
    assert store.complete_subtask(quick, RESULT)
    assert store.claim_subtask(make.claimant(1)) is None  # it is not slow yet
    age(store, slow, expired=False)
    assert store.claim_subtask(make.claimant(2)) is None  # nobody helps itself
    helper = taken(store, 1)
    assert (helper.slice_no, helper.attempt) == (1, 1)
    assert store.claim_subtask(make.claimant(3)) is None  # one helper is enough
    assert store.heartbeat(slow)
    assert store.heartbeat(helper)
    assert store.complete_subtask(helper, RESULT)
    assert not store.complete_subtask(slow, RESULT)
    assert [item.status for item in store.look_at_slices(claim, 1)] == ["completed"] * 2


def test_a_helper_that_fails_leaves_the_slow_worker_alone(store: Store, claim: Claim) -> None:
    share(store, claim, 2)
    quick, slow = taken(store, 1), taken(store, 2)
    assert store.complete_subtask(quick, RESULT)
    age(store, slow, expired=False)
    assert store.fail_subtask(taken(store, 1), "ENGINE_FAILED", "no", final=True)
    age(store, taken(store, 3), expired=True)  # another helper vanishes
    assert [item.status for item in store.look_at_slices(claim, 1)] == ["completed", "claimed"]
    assert store.complete_subtask(slow, RESULT)


def helped(store: Store, claim: Claim) -> tuple[Subtask, Subtask]:
    """The last attempt that is left for a slice, by a slow worker, and one beside it."""
    share(store, claim, 2)
    assert store.complete_subtask(taken(store, 1), RESULT)
    for _ in range(MAX_RETRIES):
        age(store, taken(store, 2), expired=True)
    slow = taken(store, 2)
    age(store, slow, expired=False)
    helper = taken(store, 3)
    assert (slow.retries, helper.slice_no, helper.attempt) == (MAX_RETRIES, slow.slice_no, 1)
    return slow, helper


def lose(store: Store, slow: Subtask, *, vanishes: bool) -> None:
    """For the last time."""
    if vanishes:
        age(store, slow, expired=True)
    else:
        assert store.fail_subtask(slow, "ENGINE_FAILED", "no executor is left", final=False)


WHY = {True: (Reason.SUBTASKS_LOST, VANISHED), False: ("ENGINE_FAILED", "no executor is left")}


@pytest.mark.parametrize("vanishes", [True, False])
def test_a_helper_may_succeed_where_the_last_retry_failed(
    store: Store, claim: Claim, vanishes: bool
) -> None:
    slow, helper = helped(store, claim)
    lose(store, slow, vanishes=vanishes)
    assert "failed" not in {item.status for item in store.look_at_slices(claim, 1)}
    assert store.claim_subtask(make.claimant(4, expires_s=0.0)) is None  # no retry is left
    assert store.heartbeat(helper)
    assert store.complete_subtask(helper, RESULT)
    assert [item.status for item in store.look_at_slices(claim, 1)] == ["completed"] * 2


@pytest.mark.parametrize("vanishes", [True, False])
@pytest.mark.parametrize("helper_vanishes", [True, False])
def test_a_slice_fails_when_its_last_helper_does(
    store: Store, claim: Claim, vanishes: bool, helper_vanishes: bool
) -> None:
    slow, helper = helped(store, claim)
    lose(store, slow, vanishes=vanishes)
    store.look_at_slices(claim, 1)
    if helper_vanishes:
        age(store, helper, expired=True)
    else:
        assert store.fail_subtask(helper, "ENGINE_FAILED", "nor here", final=False)
    assert store.claim_subtask(make.claimant(4, expires_s=0.0)) is None
    failed = store.look_at_slices(claim, 1)[1]
    assert (failed.status, failed.reason, failed.error) == ("failed", *WHY[vanishes])


def test_a_helper_would_meet_the_same_error_of_the_query(store: Store, claim: Claim) -> None:
    slow, _ = helped(store, claim)
    assert store.fail_subtask(slow, "QUERY_FAILED", "division by zero", final=True)
    assert "failed" in {item.status for item in store.look_at_slices(claim, 1)}


def test_the_database_itself_refuses_a_second_result(store: Store, claim: Claim) -> None:
    share(store, claim, 1)
    assert store.complete_subtask(taken(store), RESULT)
    [done] = store.subtasks()
    values = {column.name: getattr(done, column.name) for column in rows.columns}
    second = rows.insert().values({**values, "attempt": 1, "token": 10**6})
    with writing(store._engine) as connection, pytest.raises(IntegrityError):
        connection.execute(second)
    assert len(store.subtasks()) == 1


def test_idle_workers_hold_nothing(store: Store, claim: Claim) -> None:
    for pid in (1, 2, 3):
        store.enter(make.claimant(pid))
    assert store.idle_workers(claim.owner) == 2  # the claim is the first one's
    share(store, claim)
    mine = taken(store, 2)
    assert store.idle_workers(claim.owner) == 1
    store.complete_subtask(mine, RESULT)
    assert store.idle_workers(claim.owner) == 2


def test_processes_never_claim_one_slice_twice(store: Store, claim: Claim, url: str) -> None:
    share(store, claim, 200)
    with ProcessPoolExecutor(4, mp_context=CONTEXT) as pool:
        found = list(pool.map(store_processes.claim_subtasks, [url] * 4, range(4)))
    tokens = [pair for process in found for pair in process]
    assert len(tokens) == len({n for n, _ in tokens}) == len({t for _, t in tokens}) == 200


def test_a_token_that_the_database_gave_twice_is_its_second_owners(
    store: Store, claim: Claim
) -> None:
    """It failed over to a copy that never saw the first claim of the slice."""
    share(store, claim, 1)
    lost = taken(store, 1)
    with writing(store._engine) as connection:
        connection.execute(update(rows).values(status="pending", token=None, claimed_by=None))
        connection.execute(update(claim_tokens).values(last=claim_tokens.c.last - 1))
    new = taken(store, 2)
    assert new.token == lost.token
    assert not store.heartbeat(lost)
    assert not store.complete_subtask(lost, RESULT)
    assert not store.fail_subtask(lost, "QUERY_FAILED", "no", final=True)
    assert store.heartbeat(new)
    assert store.complete_subtask(new, RESULT)
