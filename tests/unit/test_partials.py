"""A sum that overflowed once is not known any more, however it is kept."""

from __future__ import annotations

import duckdb

from dynamic_tables.compiler.emit import Emitter
from dynamic_tables.compiler.merge import Merging
from dynamic_tables.compiler.plan import DeltaPlan, plan_query
from dynamic_tables.compiler.written import Gaps

TYPES = {"k": "INTEGER", "n": "BIGINT", "s": "DECIMAL(38,0)", "c": "BIGINT"}
STORED = "(VALUES (1, 2, NULL, 2), (2, 1, 7, 1), (3, 1, NULL, 0)) AS t (k, n, s, c)"


def plan() -> DeltaPlan:
    query = "SELECT k, count(*) AS n, sum(v) AS s, count(v) AS c FROM r GROUP BY k"
    found = plan_query(
        query, {"r": {"k": "INT", "v": "INT"}}, columns=tuple(TYPES), dialect="duckdb"
    )
    assert isinstance(found, DeltaPlan)
    return found


def test_stored_in_parts() -> None:
    parts = f"(FROM {STORED} UNION ALL VALUES (1, 1, 5, 1), (2, 1, 5, 1), (3, 1, 5, 1))"
    rows = duckdb.sql(plan().folded(parts, TYPES)).order("k").fetchall()
    assert [(k, n, s and int(s), c) for k, n, s, c in rows] == [
        (1, 3, None, 3), (2, 2, 12, 2), (3, 2, 5, 1),
    ]  # fmt: skip


def test_stored_in_place() -> None:
    merging = plan().merging
    assert isinstance(merging, Merging)
    parts = (
        "(VALUES (1, 1, 5, 1, 0, 0), (2, 1, 5, 1, 0, 0), (3, 1, 5, 1, 0, 0), (4, 1, 5, 1, 0, 0))"
        " AS p (_dt_k0, _dt_v0, _dt_v1, _dt_v2, _dt_gone, _dt_odd)"
    )
    groups = merging.groups(Emitter("duckdb", Gaps()), parts, f"(FROM {STORED})", TYPES)
    needing = duckdb.sql(f"SELECT _dt_k0 FROM ({groups}) WHERE _dt_needs_rows").fetchall()
    assert needing == [(1,)]  # and not 4, a group that is new
