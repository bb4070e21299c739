"""What is read beside the changes of a query, source by source."""

from __future__ import annotations

import pytest

from dynamic_tables.compiler.plan import DeltaPlan, plan_query

SCHEMAS = {"f": ("k", "v", "d"), "d": ("k", "r"), "g": ("k", "v", "d")}


def beside(query: str, columns: str, *moved: str, clock_moved: bool = False) -> set[str]:
    plan = plan_query(query, SCHEMAS, columns=tuple(columns), dialect="duckdb")
    assert isinstance(plan, DeltaPlan), plan
    return set(plan.read_beside(frozenset(moved), clock_moved=clock_moved))


GROUPED = "SELECT d.r AS r, count(*) AS n FROM f JOIN d ON f.k = d.k GROUP BY d.r"


@pytest.mark.parametrize(
    ("moved", "read"),
    [("f", {"d"}), ("d", {"f"}), ("fd", {"f", "d"}), ("", set())],
)
def test_a_join_reads_the_other_side(moved: str, read: set[str]) -> None:
    assert beside(GROUPED, "rn", *moved) == read


def test_a_table_joined_with_itself_reads_itself() -> None:
    query = "SELECT a.k AS k, b.v AS v FROM f AS a JOIN f AS b ON a.k = b.k"
    assert beside(query, "kv", "f") == {"f"}


def test_changes_of_one_table_pass_alone() -> None:
    assert beside("SELECT k, count(*) AS n FROM f WHERE v > 1 GROUP BY k", "kn", "f") == set()
    both = "SELECT k, count(*) AS n FROM (SELECT k FROM f UNION ALL SELECT k FROM g) GROUP BY k"
    assert beside(both, "kn", "f") == set()


def test_a_side_that_is_kept_reads_its_own_rows() -> None:
    query = "SELECT f.k AS k, d.r AS r FROM f LEFT JOIN d ON f.k = d.k"
    assert beside(query, "kr", "d") == {"f", "d"}
    assert beside(query, "kr", "f") == {"f", "d"}


def test_below_a_join_what_did_not_change_stays_unread() -> None:
    nested = "SELECT k, max(v) AS v FROM g GROUP BY k"
    query = f"SELECT f.k AS k, count(*) AS n FROM f JOIN ({nested}) AS q ON f.k = q.k GROUP BY f.k"
    assert beside(query, "kn", "f") == {"g"}
    assert beside(query, "kn", "g") == {"f", "g"}


def test_a_clock_lets_other_rows_through() -> None:
    query = "SELECT k, count(*) AS n FROM f WHERE d >= current_date GROUP BY k"
    assert beside(query, "kn", clock_moved=True) == {"f"}
    assert beside(query, "kn", "f") == set()
