"""Two containers on one machine may share its host name, and see nothing of each other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import store_builders as make
from test_store_subtasks import share

from dynamic_tables.refresh.context import Owner
from dynamic_tables.store import Claimant, Store, open_store

APART = ("unshare", "--user", "--map-current-user", "--pid", "--fork", "--mount-proc")
RELEASE_DEAD = """
import sys
from dynamic_tables.refresh.claims import release_dead
from dynamic_tables.refresh.context import Context
from dynamic_tables.settings import load_settings
from dynamic_tables.store import open_store

with open_store(sys.argv[1]) as store:
    release_dead(Context(lake=None, store=store, settings=load_settings()))
"""


def can_be_apart() -> bool:
    try:
        return subprocess.run([*APART, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def hold_everything(store: Store) -> tuple[object, ...]:
    """A worker's row, a claim and a slice, all of this very process; as the store tells them."""
    owner = Owner()
    me = Claimant(owner=str(owner), host=owner.host, pid=owner.pid, expires_s=60.0)
    store.enter(me)
    share(store, store.claim("id-by_customer", "r", me))
    assert store.claim_subtask(me) is not None
    return held(store)


def held(store: Store) -> tuple[object, ...]:
    return store.workers(), store.claims(), store.subtasks()


@pytest.mark.skipif(not can_be_apart(), reason="no namespaces here")
@pytest.mark.parametrize("apart", [True, False])
def test_who_sees_other_processes_judges_none_of_ours(tmp_path: Path, *, apart: bool) -> None:
    """This process is not to be found where the other one looks, and lives."""
    url = f"sqlite:///{tmp_path}/store.db"
    program = [sys.executable, "-c", RELEASE_DEAD, url]
    with open_store(url) as store:
        store.create_table(make.definition())
        before = hold_everything(store)
        subprocess.run([*APART, *program] if apart else program, check=True)
        assert held(store) == before
