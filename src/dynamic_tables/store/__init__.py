"""The store: what is declared, claimed, intended and done, in SQLite or PostgreSQL.

The lake is the truth, the store is its index. `lake` and `store` do not know each other.

    engine.py      URLs, transactions, the clock: all that differs between databases
    types.py       two column types: UTC instants and JSON
    schema.py      the tables and the invariants that the database itself holds
    sql/           the migrations, one file each; migrations.py runs those that are missing
    records.py     rows <-> values
    tables.py      definitions, dependencies, status, the registry; dropping.py: DROP
    claims.py      who refreshes what
    subtasks.py    slices of one refresh that several workers share
    queue.py       what is to be refreshed; workers.py: who is there; waking.py: sleeping till then
    refreshes.py   intents, builds, history
    store.py       `Store`: each method one transaction
"""

from __future__ import annotations

from dynamic_tables.store.dropping import Dropped
from dynamic_tables.store.engine import store_is_there
from dynamic_tables.store.records import (
    Claim,
    Claimant,
    PendingRefresh,
    Registered,
    SliceResult,
    Subtask,
    WantedRefresh,
    WantedSubtask,
    Worker,
)
from dynamic_tables.store.schema import QUERYABLE
from dynamic_tables.store.store import Store, open_store
from dynamic_tables.store.waking import Waker

__all__ = [
    "QUERYABLE",
    "Claim",
    "Claimant",
    "Dropped",
    "PendingRefresh",
    "Registered",
    "SliceResult",
    "Store",
    "Subtask",
    "Waker",
    "WantedRefresh",
    "WantedSubtask",
    "Worker",
    "open_store",
    "store_is_there",
]
