"""Intents, records, builds and history."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import store_builders as make
from sqlalchemy import insert
from sqlalchemy.exc import IntegrityError
from test_store_claims import expire

from dynamic_tables.errors import Held, InternalError, InvalidInput, SetupError
from dynamic_tables.model import Status
from dynamic_tables.reasons import Reason
from dynamic_tables.store import Claim, Store, schema
from dynamic_tables.store.records import intent_row


def everything(store: Store) -> dict[str, Any]:
    """All that a refresh can change."""
    return {
        **{name: store.read_rows(name) for name in sorted(schema.QUERYABLE)},
        "builds": store.builds("id-by_customer"),
        "intent": store.intent("id-by_customer"),
    }


def standing(store: Store) -> Any:
    state = store.table_by_id("id-by_customer")
    assert state is not None
    return state.build


def lose(store: Store, claim: Claim) -> Claim:
    """Another process takes the claim over."""
    return store.claim(
        claim.table_id, "thief", make.claimant(99), is_owner_dead=lambda _host, _pid: True
    )


def test_an_intent_is_written_once_and_found_again(store: Store, claim: Claim) -> None:
    intent = make.intent()
    assert store.intent(claim.table_id) is None
    assert store.open_intent(claim, intent) == intent
    assert store.intent(claim.table_id) == intent
    successor = lose(store, claim)
    again = store.open_intent(successor, replace(intent, refresh_id="another"))
    assert again == intent  # the first writer's refresh id stays


@pytest.mark.parametrize("other", [make.intent(1, at=8), make.intent(2)])
def test_a_second_different_intent_is_a_defect(store: Store, claim: Claim, other: Any) -> None:
    store.open_intent(claim, make.intent())
    with pytest.raises(InternalError):
        store.open_intent(claim, other)
    assert store.intent(claim.table_id) == make.intent()


def test_an_intent_must_be_after_the_standing_build(store: Store, claim: Claim) -> None:
    store.record(claim, make.record(3), make.build(3), close_intent=None, failures="reset")
    with pytest.raises(InternalError):
        store.open_intent(claim, make.intent(3))
    row = {**intent_row(make.intent(3)), "standing": 3, "opened_at": make.INSTANT}
    with pytest.raises(IntegrityError), store._engine.begin() as connection:
        connection.execute(insert(schema.refresh_intents).values(row))
    assert store.open_intent(claim, make.intent(4)) == make.intent(4)


def test_without_the_claim_no_intent_is_opened_or_dropped(store: Store, claim: Claim) -> None:
    lose(store, claim)
    with pytest.raises(Held) as caught:
        store.open_intent(claim, make.intent())
    assert caught.value.reason is Reason.TAKEN_OVER
    assert store.intent(claim.table_id) is None
    with pytest.raises(Held):
        store.drop_intent(claim, 1)


def test_a_claim_is_good_for_its_own_table_only(store: Store, claim: Claim) -> None:
    store.create_table(make.definition("other"))
    with pytest.raises(InternalError):
        store.open_intent(claim, make.intent(table_id="id-other"))
    with pytest.raises(InternalError):
        store.record(
            claim, make.record(table_id="id-other"), None, close_intent=None, failures="keep"
        )
    with pytest.raises(InternalError):
        store.record(
            claim, make.record(), make.build(table="other"), close_intent=None, failures="keep"
        )


def test_a_dropped_intent_makes_room_for_the_next(store: Store, claim: Claim) -> None:
    store.open_intent(claim, make.intent(1))
    with pytest.raises(InternalError):
        store.drop_intent(claim, 2)
    assert store.drop_intent(claim, 1)
    assert not store.drop_intent(claim, 1)
    assert store.open_intent(claim, make.intent(2)) == make.intent(2)


def test_a_record_writes_everything_at_once(store: Store, claim: Claim) -> None:
    store.record(None, make.failed(), None, close_intent=None, failures="count")
    store.open_intent(claim, make.intent())
    done, build = make.record(1), make.build(1)
    assert store.record(claim, done, build, close_intent=1, failures="reset") == 0
    assert store.history(claim.table_id) == [done, make.failed()]
    assert store.builds(claim.table_id) == [build]
    assert standing(store) == build
    assert store.intent(claim.table_id) is None
    assert len(store.read_rows("source_snapshots")[1]) == 2
    state = store.table_by_id(claim.table_id)
    assert state is not None
    assert state.failures == 0


def test_a_record_with_a_lost_claim_writes_nothing(store: Store, claim: Claim) -> None:
    store.open_intent(claim, make.intent())
    lose(store, claim)
    before = everything(store)
    with pytest.raises(Held) as caught:
        store.record(claim, make.record(), make.build(), close_intent=1, failures="count")
    assert caught.value.reason is Reason.TAKEN_OVER
    with pytest.raises(Held):
        store.adopt_build(make.build(), claim=claim)
    assert everything(store) == before


def test_an_expired_claim_that_nobody_took_still_records(store: Store, table: str) -> None:
    claim = store.claim(table, "r", make.claimant(expires_s=0.02))
    expire(store, claim)
    store.record(claim, make.record(), make.build(), close_intent=None, failures="reset")
    assert standing(store) == make.build()


@pytest.mark.parametrize("sequence", [2, 1])
def test_a_number_is_recorded_once_and_never_goes_down(
    store: Store, claim: Claim, sequence: int
) -> None:
    store.record(claim, make.record(2), make.build(2), close_intent=None, failures="reset")
    before = everything(store)
    with pytest.raises(InternalError):
        store.record(
            claim, make.record(2), make.build(sequence, 9), close_intent=None, failures="count"
        )
    assert everything(store) == before


def test_the_database_itself_refuses_a_number_twice(store: Store, claim: Claim) -> None:
    store.record(claim, make.record(2), make.build(2), close_intent=None, failures="reset")
    row = {
        "table_id": claim.table_id,
        "sequence": 2,
        "version": 9,
        "cut": {},
        "pins": [],
        "fingerprint": "",
        "is_data": True,
        "recorded_at": make.INSTANT,
    }
    with pytest.raises(IntegrityError), store._engine.begin() as connection:
        connection.execute(insert(schema.builds).values(row))


def test_no_data_repeats_the_number_with_a_newer_cut(store: Store, claim: Claim) -> None:
    first, second, third = make.build(1, 5, 7), make.build(1, 5, 8), make.build(1, 5, 9)
    store.record(claim, make.record(1), first, close_intent=None, failures="reset")
    store.record(claim, make.no_data(1), second, close_intent=None, failures="reset")
    store.record(claim, make.no_data(1), third, close_intent=None, failures="reset")
    assert store.builds(claim.table_id) == [third, second, first]
    assert store.builds(claim.table_id, limit=2) == [third, second]
    assert standing(store) == third
    assert len(store.read_rows("source_snapshots")[1]) == 6


@pytest.mark.parametrize("wrong", [make.build(2, 5), make.build(0, 5), make.build(1, 4)])
def test_no_data_takes_no_number(store: Store, claim: Claim, wrong: Any) -> None:
    store.record(claim, make.record(1), make.build(1, 5), close_intent=None, failures="reset")
    with pytest.raises(InternalError):
        store.record(claim, make.no_data(1), wrong, close_intent=None, failures="reset")
    assert standing(store) == make.build(1, 5)


def test_no_data_needs_a_loaded_table(store: Store, claim: Claim) -> None:
    with pytest.raises(InternalError):
        store.record(claim, make.no_data(1), make.build(), close_intent=None, failures="reset")


def test_a_build_cannot_pass_an_open_intent(store: Store, claim: Claim) -> None:
    store.open_intent(claim, make.intent(1))
    before = everything(store)
    with pytest.raises(InternalError):
        store.record(claim, make.record(1), make.build(1), close_intent=None, failures="reset")
    with pytest.raises(InternalError):
        store.record(claim, make.record(1), make.build(1), close_intent=2, failures="reset")
    assert everything(store) == before


def test_failures_are_counted_reset_or_kept(store: Store, table: str) -> None:
    def fail(failures: Any) -> int:
        return store.record(None, make.failed(), None, close_intent=None, failures=failures)

    assert [fail("count"), fail("count"), fail("keep"), fail("reset"), fail("count")] == [
        *(1, 2, 2, 0, 1)
    ]


def test_too_many_failures_suspend_in_the_same_transaction(
    store: Store, claim: Claim, table: str
) -> None:
    for count in (1, 2):
        failed = make.failed()
        how = {"close_intent": None, "failures": "count", "suspend_at": 2}
        assert store.record(claim, failed, None, **how) == count  # ty: ignore
    state = store.table_by_id(table)
    assert state is not None
    assert state.status is Status.SUSPENDED
    assert str(state.suspended_because).startswith("2 failures in a row, the last: ")


def test_who_lost_the_claim_suspends_nothing(store: Store, claim: Claim, table: str) -> None:
    assert store.release(claim)
    with pytest.raises(Held):
        store.record(claim, make.failed(), None, close_intent=None, failures="count", suspend_at=1)
    state = store.table_by_id(table)
    assert state is not None
    assert (state.status, state.failures) == (Status.ACTIVE, 0)


@pytest.mark.parametrize("since", ["nothing", "refreshed", "failed", "suspended"])
def test_without_a_claim_only_what_was_read_is_judged(
    store: Store, claim: Claim, table: str, since: str
) -> None:
    """Who was paused may find another table than the one it read: it tells history alone."""
    read = store.table_by_id(table)
    assert read is not None
    if since == "refreshed":
        store.record(claim, make.record(1), make.build(1), close_intent=None, failures="reset")
    elif since == "failed":
        store.record(claim, make.failed(), None, close_intent=None, failures="keep")
    elif since == "suspended":
        store.set_status(table, Status.SUSPENDED, "by hand")
    before, told = store.table_by_id(table), len(store.history(table))
    how = {"close_intent": None, "failures": "count", "suspend_at": 1, "read": read}
    counted = store.record(None, make.failed(), None, **how)  # ty: ignore
    after = store.table_by_id(table)
    assert after is not None
    assert len(store.history(table)) == told + 1
    assert counted == (1 if since == "nothing" else 0)
    assert (after == before) is (since != "nothing")
    assert (after.status is Status.SUSPENDED) is (since in ("nothing", "suspended"))


def test_a_dropped_table_gets_history_but_no_build(store: Store) -> None:
    assert store.record(None, make.failed(), None, close_intent=None, failures="count") == 0
    with pytest.raises(InvalidInput) as caught:
        store.record(None, make.record(), make.build(), close_intent=None, failures="reset")
    assert caught.value.reason is Reason.UNKNOWN_TABLE
    assert store.history() == [make.failed()]


def test_history_is_told_as_it_was_recorded(store: Store, table: str) -> None:
    """A host whose clock is an hour late failed after another one had been through."""
    for refresh_id, hours in (("first", 0), ("second", 1)):
        at = store.now() - timedelta(hours=hours)
        told = make.failed(refresh_id=refresh_id, started_at=at)
        store.record(None, told, None, close_intent=None, failures="keep")
    assert [record.refresh_id for record in store.history()] == ["second", "first"]
    assert [record.refresh_id for record in store.history(table)] == ["second", "first"]


def test_history_is_newest_first_for_one_or_all(store: Store, claim: Claim) -> None:
    other = make.record(5, table_id="gone", table=make.name("gone"))
    for record in (make.record(1), make.record(4), other, make.record(9)):
        store.record(None, record, None, close_intent=None, failures="keep")
    assert [record.sequence for record in store.history()] == [9, 5, 4, 1]
    assert [record.sequence for record in store.history(limit=2)] == [9, 5]
    assert [record.sequence for record in store.history(claim.table_id)] == [9, 4, 1]
    assert store.history("gone") == [other]


def test_the_lakes_newer_build_is_adopted(store: Store, claim: Claim) -> None:
    store.record(claim, make.record(1), make.build(1), close_intent=None, failures="reset")
    store.open_intent(claim, make.intent(2))
    assert store.adopt_build(make.build(2, 6, 8), claim=claim, refresh_id="r2")
    assert standing(store) == make.build(2, 6, 8)
    assert store.intent(claim.table_id) is None
    assert not store.adopt_build(make.build(2, 6, 8))
    assert store.builds(claim.table_id) == [make.build(2, 6, 8), make.build(1)]
    fence = make.build(3, 7, 8)  # a fence has a number of its own and the old cut
    assert store.adopt_build(fence, claim=claim)
    assert standing(store) == fence


def test_the_store_may_be_ahead_by_no_data_only(store: Store, claim: Claim) -> None:
    store.record(claim, make.record(4), make.build(4, 5, 7), close_intent=None, failures="reset")
    store.record(claim, make.no_data(4), make.build(4, 5, 9), close_intent=None, failures="reset")
    assert not store.adopt_build(make.build(4, 5, 7))
    assert standing(store) == make.build(4, 5, 9)
    with pytest.raises(SetupError) as caught:
        store.adopt_build(make.build(3))
    assert caught.value.reason is Reason.LAKE_CHANGED
    assert standing(store) == make.build(4, 5, 9)


def test_who_came_second_does_not_change_what_the_first_one_wrote(
    store: Store, claim: Claim, table: str
) -> None:
    store.record(claim, make.record(1), make.build(1), close_intent=None, failures="reset")
    before = store.table_by_id(table)
    late = make.failed(reason=Reason.TAKEN_OVER, cut=make.cut(7))
    store.record(None, late, None, close_intent=None, failures="keep")
    assert store.table_by_id(table) == before
    store.record(None, make.failed(cut=make.cut(8)), None, close_intent=None, failures="count")
    after = store.table_by_id(table)
    assert after is not None
    assert after.failure is not None
    assert (after.failure.reason, after.failure.versions) == (
        Reason.QUERY_FAILED,
        {"orders-id": 8},
    )


def test_late_is_told_by_every_refresh_of_the_time_asked_for(store: Store, claim: Claim) -> None:
    """More than a page of history, failures and refreshes before it: only what was done counts."""
    store.open_intent(claim, make.intent())
    store.record(
        claim, make.record(1, behind_ms=999_000), make.build(), close_intent=1, failures="reset"
    )
    before = store.now() - timedelta(hours=1)  # what is older than history is kept would go
    for number in range(100):
        started = before + timedelta(seconds=1 + number)
        done = make.no_data(1, behind_ms=60_500 if number % 2 else 59_000, started_at=started)
        store.record(claim, done, make.build(), close_intent=None, failures="reset")
    failed = make.failed(started_at=before + timedelta(minutes=5), behind_ms=10**9)
    store.record(claim, failed, None, close_intent=None, failures="count")
    half = timedelta(milliseconds=500)
    ends = [before + timedelta(seconds=1 + n, milliseconds=1200) for n in range(1, 100, 2)]
    assert store.late(claim.table_id, before, 60.0) == [(end - half, end) for end in ends]
    assert store.late(claim.table_id, before + timedelta(hours=1), 60.0) == []
