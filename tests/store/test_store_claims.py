"""One live claim a table, with growing tokens, on the database's clock."""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest
import store_builders as make
import store_processes
from sqlalchemy import update
from store_processes import CONTEXT

from dynamic_tables.errors import Held, InvalidInput
from dynamic_tables.reasons import Reason
from dynamic_tables.store import Claim, Store, schema
from dynamic_tables.store.engine import writing


def expire(store: Store, claim: Claim) -> None:
    """Wait until the database's clock has passed the claim's end."""
    while store.holder(claim.table_id) is not None:
        time.sleep(0.005)


def test_a_claim_excludes_others_and_says_who(store: Store, table: str) -> None:
    claim = store.claim(table, "r1", make.claimant(42, "alpha"))
    assert store.holder(table) == claim
    with pytest.raises(Held) as caught:
        store.claim(table, "r2", make.claimant(43, "beta"))
    assert caught.value.reason is Reason.HELD
    assert caught.value.about == "sales.by_customer"
    for part in ("42", "alpha", f"{claim.claimed_at:%Y-%m-%d %H:%M:%S}"):
        assert part in caught.value.message


def test_release_frees_the_table_and_tokens_grow(store: Store, table: str) -> None:
    store.create_table(make.definition("other"))
    first = store.claim(table, "r1", make.claimant())
    elsewhere = store.claim("id-other", "r1", make.claimant())
    assert store.release(first)
    assert not store.release(first)
    assert store.holder(table) is None
    second = store.claim(table, "r2", make.claimant(2))
    assert first.token < elsewhere.token < second.token
    assert not store.release(first)  # a late release does not harm the successor
    assert store.holder(table) == second


def test_a_claim_of_an_unknown_table_is_refused(store: Store) -> None:
    with pytest.raises(InvalidInput) as caught:
        store.claim("none", "r", make.claimant())
    assert caught.value.reason is Reason.UNKNOWN_TABLE


def test_an_expired_claim_is_taken_over_and_its_owner_learns_it(store: Store, table: str) -> None:
    old = store.claim(table, "r1", make.claimant(expires_s=0.5))
    with pytest.raises(Held):
        store.claim(table, "r2", make.claimant(2))
    expire(store, old)
    new = store.claim(table, "r2", make.claimant(2, "elsewhere"))
    assert new.token > old.token
    assert not store.heartbeat(old)
    assert not store.release(old)
    assert store.holder(table) == new


def test_a_heartbeat_keeps_the_claim_as_long_again(store: Store, table: str) -> None:
    claim = store.claim(table, "r1", make.claimant(expires_s=60))
    time.sleep(0.01)
    assert store.heartbeat(claim)
    kept = store.holder(table)
    assert kept is not None
    assert kept.heartbeat_at > claim.heartbeat_at
    assert kept.expires_at - kept.heartbeat_at == claim.expires_at - claim.heartbeat_at
    assert kept.claimed_at == claim.claimed_at


def test_an_expired_claim_that_nobody_took_can_be_kept(store: Store, table: str) -> None:
    claim = store.claim(table, "r1", make.claimant(expires_s=0.02))
    expire(store, claim)
    assert store.heartbeat(claim)


def test_a_dead_owner_on_this_host_is_replaced_at_once(store: Store, table: str) -> None:
    asked: list[tuple[str, int]] = []

    def dead(host: str, pid: int) -> bool:
        asked.append((host, pid))
        return pid == 7

    old = store.claim(table, "r1", make.claimant(7, "here"))
    with pytest.raises(Held):  # of other hosts we know nothing
        store.claim(table, "r2", make.claimant(8, "there"), is_owner_dead=dead)
    assert asked == []
    new = store.claim(table, "r2", make.claimant(8, "here"), is_owner_dead=dead)
    assert asked == [("here", 7)]
    assert new.token > old.token
    with pytest.raises(Held):
        store.claim(table, "r3", make.claimant(9, "here"), is_owner_dead=dead)
    assert not store.heartbeat(old)


def test_threads_of_one_store_exclude_each_other(store: Store, table: str) -> None:
    def attempt(pid: int) -> Claim | None:
        try:
            return store.claim(table, "r", make.claimant(pid))
        except Held:
            return None

    with ThreadPoolExecutor(8) as threads:
        claims = [claim for claim in threads.map(attempt, range(16)) if claim]
    assert claims == [store.holder(table)]


def test_eight_processes_never_hold_one_table_together(
    url: str, store: Store, table: str, tmp_path: Path
) -> None:
    store.create_table(make.definition("other"))
    marks = tmp_path / "marks"
    marks.mkdir()
    tables = [table, "id-other"]
    with ProcessPoolExecutor(8, mp_context=CONTEXT) as processes:
        jobs = [
            processes.submit(
                store_processes.claim_often, url, tables[:: 1 - 2 * (n % 2)], 6, str(marks)
            )
            for n in range(8)
        ]
        tokens = [job.result(timeout=60) for job in jobs]
    everyone = [token for mine in tokens for token in mine]
    assert len(everyone) == len(set(everyone)) == 48
    assert all(mine == sorted(mine) for mine in tokens)
    assert store.holder(table) is None


def test_a_table_is_created_with_its_claim(store: Store) -> None:
    """Nobody can take it in between; if it cannot be created, there is no claim either."""
    claim = store.create_claimed(make.definition(), "create", make.claimant(1))
    assert store.holder("id-by_customer") == claim
    store.request(make.request())
    assert store.claim_next(make.claimant(2)) is None
    with pytest.raises(Held):
        store.claim(claim.table_id, "r", make.claimant(2))
    with pytest.raises(InvalidInput) as caught:
        store.create_claimed(make.definition(table_id="id-2"), "create", make.claimant(2))
    assert caught.value.reason is Reason.ALREADY_EXISTS
    assert store.claims() == [claim]


def test_who_lost_the_claim_deletes_no_table(store: Store) -> None:
    lost = store.create_claimed(make.definition(), "create", make.claimant(1, expires_s=0.02))
    expire(store, lost)
    new = store.claim(lost.table_id, "r", make.claimant(2))
    with pytest.raises(Held) as caught:
        store.delete_tables([lost.table_id], [lost])
    assert caught.value.reason is Reason.TAKEN_OVER
    store.delete_tables([new.table_id], [new])
    assert store.tables() == []


def forget(store: Store, claim: Claim) -> None:
    """As if the database had failed over to a copy that never saw the claim, nor its token."""
    assert store.release(claim)
    with writing(store._engine) as connection:
        connection.execute(update(schema.claim_tokens).values(last=claim.token - 1))


def test_a_token_that_the_database_gave_twice_is_its_second_owners(
    store: Store, table: str
) -> None:
    store.request(make.request())
    lost = store.claim(table, "r1", make.claimant(1))
    forget(store, lost)
    found = store.claim_next(make.claimant(2))
    assert found is not None
    new, wanted = found
    assert new.token == lost.token
    assert not store.heartbeat(lost)
    assert not store.release(lost)
    assert not store.hand_back(lost)
    assert not store.finish(lost, wanted)
    with pytest.raises(Held):
        store.open_intent(lost, make.intent())
    with pytest.raises(Held):
        store.record(lost, make.record(), make.build(), close_intent=None, failures="reset")
    assert store.holder(table) == new
    assert store.intent(table) is None
    assert store.history() == []
    assert store.finish(new, wanted)
