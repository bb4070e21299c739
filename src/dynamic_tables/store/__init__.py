"""The store: what is declared, claimed, intended and done, in SQLite or PostgreSQL.

The lake is the truth, the store is its index. `lake` and `store` do not know each other.

    engine.py      URLs, transactions, the clock: all that differs between databases
    types.py       two column types: UTC instants and JSON
    schema.py      the tables and the invariants that the database itself holds
    migrations.py  from any older schema to this one
    records.py     rows <-> values
    tables.py      definitions, dependencies, status, the registry
    claims.py      who refreshes what
    refreshes.py   intents, builds, history
    store.py       `Store`: each method one transaction
"""

from __future__ import annotations

from dynamic_tables.store.records import Claim, Registered
from dynamic_tables.store.schema import QUERYABLE
from dynamic_tables.store.store import Store, open_store

__all__ = ["QUERYABLE", "Claim", "Registered", "Store", "open_store"]
