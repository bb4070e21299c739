"""The queue: melting, order, claims, and what a lost claim cannot do."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import store_builders as make
import store_processes
from store_processes import CONTEXT

from dynamic_tables.errors import Held
from dynamic_tables.store import Claim, PendingRefresh, Store, open_store
from dynamic_tables.store.engine import writing
from dynamic_tables.store.schema import pending_refreshes, refresh_claims
from postgres import Postgres

PROCESSES = 8
WORKERS, TABLES = 16, 200


def expire(store: Store, claim: Claim) -> None:
    """Let the claim's time be over by the database's clock."""
    past = claim.claimed_at.replace(year=2000)
    with writing(store._engine) as connection:
        changed = connection.execute(
            refresh_claims.update()
            .where(refresh_claims.c.token == claim.token)
            .values(heartbeat_at=past, expires_at=past)
        )
    assert changed.rowcount == 1


def claimed(store: Store, pid: int = 1) -> tuple[Claim, PendingRefresh]:
    found = store.claim_next(make.claimant(pid))
    assert found is not None
    return found


def test_requests_for_one_table_melt_together(store: Store, table: str) -> None:
    store.request(make.request(at=7))
    first = store.pending()
    store.request(make.request(refresh_id="wave-2", at=9))
    assert store.pending() == first
    assert (first[0].cut, first[0].refresh_id) == (make.cut(7), "wave-1")


def test_a_request_is_claimed_once_and_ends_with_its_claim(store: Store, table: str) -> None:
    store.request(make.request())
    claim, found = claimed(store)
    assert (found.table_id, found.cut, claim.refresh_id) == (table, make.cut(7), "wave-1")
    assert store.claim_next(make.claimant(2)) is None
    assert store.holder(table) == claim
    assert store.finish(claim, found)
    assert store.pending() == []
    assert store.holder(table) is None
    assert not store.finish(claim, found)


def test_what_is_asked_for_during_a_refresh_follows_it(store: Store, table: str) -> None:
    store.request(make.request(at=7))
    claim, found = claimed(store)
    store.request(make.request(refresh_id="wave-2", at=9))
    assert store.claim_next(make.claimant(2)) is None
    assert store.finish(claim, found)
    _, second = claimed(store, 2)
    assert (second.cut, second.refresh_id) == (make.cut(9), "wave-2")


def test_parents_come_first(store: Store) -> None:
    parent = make.definition("parent")
    store.create_table(parent)
    store.create_table(make.definition("child", parents=(parent,)))
    store.request(make.request("child"), make.request("parent"))
    claim, found = claimed(store)
    assert found.table_id == "id-parent"
    assert store.claim_next(make.claimant(2)) is None  # the child waits
    store.finish(claim, found)
    assert claimed(store, 2)[1].table_id == "id-child"


def test_a_table_that_somebody_refreshes_by_hand_is_passed_over(store: Store, table: str) -> None:
    store.create_table(make.definition("other"))
    by_hand = store.claim(table, "r", make.claimant(5))
    store.request(make.request(), make.request("other"))
    assert claimed(store)[1].table_id == "id-other"
    assert store.claim_next(make.claimant(2)) is None
    store.release(by_hand)
    assert claimed(store, 2)[1].table_id == table


def test_a_lost_claim_changes_nothing(store: Store, table: str) -> None:
    store.request(make.request())
    old, found = claimed(store)
    expire(store, old)
    new, again = claimed(store, 2)
    assert new.token > old.token
    assert replace(again, token=None) == replace(found, token=None)
    before = store.pending()
    assert not store.finish(old, found)
    assert not store.hand_back(old)
    assert not store.heartbeat(old)
    with pytest.raises(Held):
        store.record(old, make.record(1), make.build(1), close_intent=None, failures="reset")
    assert store.pending() == before
    assert store.holder(table) == new
    assert store.finish(new, again)


def test_what_is_handed_back_keeps_its_place(store: Store, table: str) -> None:
    store.create_table(make.definition("other"))
    store.request(make.request())
    store.request(make.request("other"))
    claim, found = claimed(store)
    assert store.hand_back(claim)
    assert claimed(store, 2)[1].request_no == found.request_no


def test_what_is_handed_back_may_have_to_wait(store: Store, table: str) -> None:
    store.create_table(make.definition("other"))
    store.request(make.request())
    store.request(make.request("other"))
    claim, found = claimed(store)
    assert (found.returned, found.not_before) == (0, None)
    assert store.hand_back(claim, after_s=3600.0)
    other, _ = claimed(store, 2)
    assert other.table_id == "id-other"
    assert store.claim_next(make.claimant(3)) is None
    [waiting] = [item for item in store.pending() if item.table_id == table]
    assert waiting.returned == 1
    assert waiting.not_before is not None
    with writing(store._engine) as connection:
        connection.execute(pending_refreshes.update().values(not_before=store.now()))
    assert claimed(store, 4)[1].returned == 1


def test_only_what_nobody_has_begun_is_withdrawn(store: Store, table: str) -> None:
    store.create_table(make.definition("other"))
    store.create_table(make.definition("third"))
    store.request(make.request(), make.request("other"))
    store.request(make.request("third", refresh_id="wave-2"))
    claim, running = claimed(store)
    every = ["id-by_customer", "id-other", "id-third"]
    assert store.withdraw(claim, every) == {"id-other"}
    assert [item.table_id for item in store.pending()] == [running.table_id, "id-third"]


def test_who_lost_the_claim_withdraws_nothing(store: Store, table: str) -> None:
    store.create_table(make.definition("other"))
    store.request(make.request(), make.request("other"))
    claim, _ = claimed(store)
    assert store.hand_back(claim)
    assert store.withdraw(claim, ["id-other"]) == set()
    assert len(store.pending()) == 2


def test_a_dropped_table_takes_its_request_along(store: Store, table: str) -> None:
    store.request(make.request())
    claim, found = claimed(store)
    store.delete_tables([table])
    assert store.pending() == []
    assert not store.finish(claim, found)


def test_the_worker_that_has_been_there_longest_leads(store: Store) -> None:
    first, second = make.claimant(1), make.claimant(2)
    store.enter(first)
    store.enter(second)
    store.stay(second, "sales.by_customer")
    assert [(worker.pid, worker.doing) for worker in store.workers()] == [
        (1, None),
        (2, "sales.by_customer"),
    ]
    assert store.leads(first.owner)
    assert not store.leads(second.owner)
    store.leave(first.owner)
    assert store.leads(second.owner)
    store.stay(first, None)  # a worker that was swept out is counted again
    assert [worker.pid for worker in store.workers()] == [2, 1]


def test_an_expired_worker_does_not_lead(store: Store) -> None:
    store.enter(make.claimant(1, expires_s=0.0))
    store.enter(make.claimant(2))
    assert [worker.pid for worker in store.workers()] == [2]
    assert store.leads(make.claimant(2).owner)


def test_a_request_wakes_a_sleeper(store: Store, table: str) -> None:
    """On SQLite the sleeper wakes by time, or when it is to stop."""
    stop = threading.Event()
    waker = store.waker()
    waker.sleep(0.01, stop)  # it listens from here on
    if store.url.startswith("sqlite"):
        stop.set()
    store.request(make.request())
    thread = threading.Thread(target=waker.sleep, args=(600, stop))
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    waker.close()


def test_what_was_said_before_a_sleeper_listened_is_not_slept_over(postgres: Postgres) -> None:
    """It had looked before, and not seen it: it looks once more."""
    with open_store(postgres.new_database()) as store:
        store.create_table(make.definition())
        stop, waker = threading.Event(), store.waker()
        store.request(make.request())
        thread = threading.Thread(target=waker.sleep, args=(600, stop), daemon=True)
        thread.start()
        thread.join(60)
        assert not thread.is_alive()
        before = time.monotonic()
        waker.sleep(0.3, stop)  # nobody says anything
        assert time.monotonic() - before >= 0.3
        waker.close()


def test_a_sleeper_whose_connection_broke_listens_again(postgres: Postgres) -> None:
    url = postgres.new_database()
    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    with open_store(url) as store:
        store.create_table(make.definition())
        stop, waker = threading.Event(), store.waker()
        waker.sleep(0.01, stop)  # it listens from here on
        postgres.execute(f"{others} AND datname = current_database()", url)
        waker.sleep(0.05, stop)  # by time alone
        waker.sleep(0.01, stop)  # it listens again
        store.request(make.request())
        thread = threading.Thread(target=waker.sleep, args=(600, stop), daemon=True)
        thread.start()
        thread.join(60)
        assert not thread.is_alive()
        waker.close()


@pytest.mark.parametrize("claims", [60, pytest.param(1_000, marks=pytest.mark.soak)])
def test_eight_processes_take_each_request_once(url: str, store: Store, claims: int) -> None:
    for n in range(2 * PROCESSES):
        store.create_table(make.definition(f"t{n}"))
        store.request(make.request(f"t{n}"))
    with ProcessPoolExecutor(PROCESSES, mp_context=CONTEXT) as processes:
        jobs = [processes.submit(store_processes.work_often, url, claims) for _ in range(PROCESSES)]
        taken = [claim for job in jobs for claim in job.result(timeout=500)]
    tokens, requests = zip(*taken, strict=True)
    assert len(set(tokens)) == len(set(requests)) == len(taken) == PROCESSES * claims
    assert store.claims() == []
    assert len(store.pending()) == 2 * PROCESSES


@pytest.mark.parametrize(
    ("turns", "seconds"),
    [(12, 600.0), pytest.param(10**9, 60.0, marks=pytest.mark.soak)],
)
def test_sixteen_workers_share_two_hundred_tables(
    url: str, store: Store, tmp_path: Path, turns: int, seconds: float
) -> None:
    """Never two live claims of one table, whatever some of them leave undone."""
    names = [f"t{n}" for n in range(TABLES)]
    for name in names:
        store.create_table(make.definition(name))
    store.request(*(make.request(name) for name in names))
    marks = tmp_path / "marks"
    marks.mkdir()
    with ProcessPoolExecutor(WORKERS, mp_context=CONTEXT) as processes:
        jobs = [
            processes.submit(store_processes.share, url, str(marks), turns, seconds, seed)
            for seed in range(WORKERS)
        ]
        done = [job.result(timeout=seconds + 500) for job in jobs]
    print(f"{sum(done)} claims, {min(done)} to {max(done)} by each worker")
    assert all(done)
    assert len(store.pending()) == TABLES  # nothing is lost, nothing is there twice
    assert list(marks.iterdir()) == []
    assert [claim for claim in store.claims() if store.holder(claim.table_id)] == []
