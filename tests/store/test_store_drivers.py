"""Where two drivers may lose each other's commits, the store admits one process at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import store_builders as make

from dynamic_tables.errors import Held, Refused
from dynamic_tables.reasons import Reason
from dynamic_tables.store import Claimant, Store

ME = make.claimant(1, alone_at=("",))
OTHER = make.claimant(2, "elsewhere", alone_at=("",))

COMES: dict[str, Callable[[Store, Claimant], object]] = {
    "a worker": lambda store, me: store.enter(me),
    "a worker that was swept out": lambda store, me: store.stay(me, None),
    "a refresh by hand": lambda store, me: store.claim("id-by_customer", "r", me),
    "CREATE": lambda store, me: store.create_claimed(make.definition("new"), "create", me),
    "a request": lambda store, me: store.claim_next(me),
}


@pytest.fixture(autouse=True)
def tables(store: Store, table: str) -> None:
    store.request(make.request())
    store.create_table(make.definition("other"))


def contents(store: Store) -> list[object]:
    return [store.tables(), store.claims(), store.workers(), store.pending()]


@pytest.mark.parametrize("there", ["worker", "claim"])
@pytest.mark.parametrize("comes", COMES)
def test_a_second_driver_is_refused(store: Store, comes: str, there: str) -> None:
    if there == "worker":
        store.enter(OTHER)
    else:
        store.claim("id-other", "r", OTHER)
    before = contents(store)
    with pytest.raises(Refused) as caught:
        COMES[comes](store, ME)
    assert caught.value.reason is Reason.NO_EXCLUSION
    assert "process 2 on elsewhere" in caught.value.message
    assert contents(store) == before


@pytest.mark.parametrize("comes", COMES)
def test_who_shares_the_process_or_may_share_the_lake_is_admitted(store: Store, comes: str) -> None:
    """What else the process has opened has an owner of its own."""
    store.enter(make.claimant(1, alone_at=("",)))
    store.claim("id-other", "r", make.claimant(1, alone_at=("",), opened=2))
    COMES[comes](store, ME)
    store.enter(make.claimant(2, "elsewhere"))


@pytest.mark.parametrize("there", ["worker", "claim"])
@pytest.mark.parametrize("comes", COMES)
def test_a_twin_in_another_container_is_another_process(
    store: Store, comes: str, there: str
) -> None:
    """Two containers of one host name, the process number 1 in each."""
    twin = make.claimant(1, alone_at=("",), process="y")
    if there == "worker":
        store.enter(twin)
    else:
        store.claim("id-other", "r", twin)
    with pytest.raises(Refused) as caught:
        COMES[comes](store, ME)
    assert caught.value.reason is Reason.NO_EXCLUSION


def test_people_are_told_the_name_of_a_host_alone(store: Store) -> None:
    claim = store.claim("id-by_customer", "r", make.claimant(2, "elsewhere/1a2b3c4d/42"))
    with pytest.raises(Held, match="process 2 on elsewhere has been"):
        store.claim("id-by_customer", "r", ME)
    store.release(claim)
    store.enter(make.claimant(3, "there/1a2b3c4d/42", alone_at=("",)))
    with pytest.raises(Refused, match="process 3 on there works"):
        store.enter(ME)


@pytest.mark.parametrize("comes", COMES)
def test_a_driver_that_is_gone_counts_no_more(store: Store, comes: str) -> None:
    """One that was only paused is refused when it comes back: a worker, or who had a claim."""
    gone = make.claimant(2, "elsewhere", expires_s=0.02, alone_at=("",))
    store.enter(gone)
    claim = store.claim("id-other", "r", gone)
    while store.workers() or store.holder("id-other"):
        time.sleep(0.005)
    COMES[comes](store, ME)
    assert not store.heartbeat(claim)
    assert claim.token not in [held.token for held in store.claims()]
    with pytest.raises(Held):
        store.update_definition(claim, make.definition("other", revision=2))
    with pytest.raises(Refused):
        store.stay(gone, None)


def test_a_paused_driver_goes_on_if_nobody_came(store: Store) -> None:
    """Nor do those end its claim who are of the same process, or were refused."""
    paused = store.claim("id-other", "r", make.claimant(1, expires_s=0.02, alone_at=("",)))
    while store.holder("id-other"):
        time.sleep(0.005)
    store.enter(ME)
    with pytest.raises(Refused):
        store.claim("id-by_customer", "r", OTHER)
    assert store.heartbeat(paused)


def test_of_drivers_that_come_at_once_one_is_admitted(store: Store) -> None:
    """Workers and refreshes by hand, each on a table of its own."""
    for number in range(8):
        store.create_table(make.definition(f"t{number}"))
    together = threading.Barrier(8)

    def come(number: int) -> bool:
        me = make.claimant(number, f"host-{number}", alone_at=("",))
        together.wait()
        try:
            store.claim(f"id-t{number}", "r", me) if number % 2 else store.enter(me)
        except Refused:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(come, range(8))) == 1
    assert len(store.claims()) + len(store.workers()) == 1


# A lake of which one schema lies on S3.


ON_S3 = ("s3a://",)
HERE = make.claimant(1, alone_at=ON_S3)
ELSEWHERE = make.claimant(2, "elsewhere", alone_at=ON_S3)


@pytest.fixture
def away(store: Store) -> str:
    """The id of a table on S3; the others lie on a disk."""
    definition = make.definition("away", location="s3a://bucket/lake/away-1")
    store.create_table(definition)
    return definition.table_id


def test_workers_are_many_until_a_table_lies_on_s3(store: Store) -> None:
    store.enter(HERE)
    store.enter(ELSEWHERE)
    away = make.definition("away", location="s3a://bucket/lake/away-1")
    before = contents(store)
    with pytest.raises(Refused):
        store.create_claimed(away, "create", HERE)
    assert contents(store) == before
    store.leave(ELSEWHERE.owner)
    store.release(store.create_claimed(away, "create", HERE))
    with pytest.raises(Refused) as caught:
        store.enter(ELSEWHERE)
    assert (caught.value.about, caught.value.reason) == ("worker", Reason.NO_EXCLUSION)
    store.enter(make.claimant(2, "elsewhere", alone_at=("s3://",)))  # Delta excludes others there


def test_only_what_lies_on_s3_is_refused_beside_a_worker(store: Store, away: str) -> None:
    store.enter(ELSEWHERE)
    store.claim("id-other", "r", HERE)
    with pytest.raises(Refused):
        store.claim(away, "r", HERE)


def test_claims_on_other_tables_are_in_nobodys_way(store: Store, away: str) -> None:
    """Nor does who is admitted end them, though they have expired."""
    gone = make.claimant(2, "elsewhere", expires_s=0.02, alone_at=ON_S3)
    paused = store.claim("id-other", "r", gone)
    while store.holder("id-other"):
        time.sleep(0.005)
    store.claim("id-by_customer", "r", ELSEWHERE)
    store.claim(away, "r", HERE)
    store.enter(HERE)
    assert store.heartbeat(paused)
    with pytest.raises(Refused):
        store.enter(ELSEWHERE)
