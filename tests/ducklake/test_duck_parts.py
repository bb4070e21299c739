"""STORAGE = MERGE_ON_READ: refreshes append what groups gain and lose, readers add it up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from duck_oracle import bag, check

import dynamic_tables as dt
from dynamic_tables.steps import AnyStep, Step, observing

PARENTS = {
    "sums": "SELECT k, count(*) AS n, sum(v) AS s, count(v) AS c FROM r GROUP BY k",
    "extremes": (
        "SELECT k, min(v) AS low, max(v) AS high, avg(w) AS mean, sum(v) * 2 AS twice FROM r "
        "GROUP BY k HAVING count(*) > 1"
    ),
    "all_of_it": "SELECT count(*) AS n, sum(v) AS s FROM r",
    "joined": "SELECT r.k + q.k AS kk, sum(r.v) AS s FROM r JOIN q ON r.v = q.v GROUP BY r.k + q.k",
}
CHILDREN = {
    "filtered": "SELECT k, s FROM sums WHERE n > 1",
    "counted": "SELECT n, count(*) AS many, sum(s) AS s FROM sums GROUP BY n",
    "paired": "SELECT x.k, x.low, s.n FROM extremes x LEFT JOIN sums s ON x.k = s.k",
    "with_total": "SELECT s.k, a.n FROM sums s CROSS JOIN all_of_it a",
    "again": "SELECT low, count(*) AS n FROM extremes GROUP BY low",
}
Open = Callable[..., dt.DynamicTables]


def changes(chance: Random) -> list[str]:
    def value() -> str:
        return chance.choice(["NULL", "0", "1", "2", "3"])

    def table() -> str:
        return chance.choice("rrrq")

    def rows() -> str:
        return ", ".join(f"({value()}, {value()}, {value()})" for _ in range(chance.randint(1, 3)))

    kinds = [
        lambda: f"INSERT INTO {table()} VALUES {rows()}",
        lambda: f"INSERT INTO {table()} VALUES {rows()}",
        lambda: f"DELETE FROM {table()} WHERE v = {value()}",
        lambda: f"UPDATE {table()} SET v = {value()} WHERE k = {value()}",
        lambda: f"UPDATE {table()} SET k = {value()} WHERE v = {value()}",
        lambda: "DELETE FROM r WHERE k IS NULL OR k > 0",
    ]
    return [chance.choice(kinds)() for _ in range(chance.randint(1, 3))]


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.soak) for n in range(1, 9))]
)
def test_parents_and_children(open_lake: Open, seed: int) -> None:
    """In parts, every strategy in turn; children, and children of children, see groups only."""
    tables, chance = open_lake(), Random(seed)
    for name in "rq":
        tables.sql(f"CREATE TABLE {name} (k INT, v INT, w DOUBLE)")
        tables.sql(f"INSERT INTO {name} VALUES (1, 1, 1), (1, 2, 2), (2, NULL, 3), (NULL, 3, 4)")
    for name, query in PARENTS.items():
        tables.create(name, query, storage="MERGE_ON_READ", initialize="ON_SCHEDULE")
    for name, query in CHILDREN.items():
        storage = "MERGE_ON_READ" if name in ("counted", "again") else "IN_PLACE"
        tables.create(name, query, storage=storage, initialize="ON_SCHEDULE")
    tables.refresh()
    used: Counter[str] = Counter()
    for number in range(5):
        for statement in changes(chance):
            tables.sql(statement)
        way = (None, "fold", "keys", "full")[number % 4]
        parents = tables.refresh(*PARENTS, strategy=way) if way != "keys" else tables.refresh()
        report = tables.refresh()
        used.update(str(record.strategy) for record in (*parents.records, *report.records))
        check(tables)
    assert used["fold"]
    assert all(tables.verify(name).ok for name in (*PARENTS, *CHILDREN))


@pytest.fixture
def loaded(open_lake: Open) -> dt.DynamicTables:
    tables = open_lake()
    tables.sql("CREATE TABLE r (k INT, v INT)")
    tables.sql("INSERT INTO r VALUES (1, 1), (1, 2), (2, 5)")
    tables.create(
        "t", "SELECT k, count(*) AS n, max(v) AS m FROM r GROUP BY k", storage="MERGE_ON_READ"
    )
    return tables


def parts(tables: dt.DynamicTables) -> int:
    return tables.sql("SELECT count(*) FROM t__ivm").collect()[0][0]


def test_inserts_append_one_row_a_group(loaded: dt.DynamicTables) -> None:
    loaded.sql("INSERT INTO r VALUES (1, 9), (3, 3)")
    record = loaded.refresh("t")["t"]
    assert (record.strategy, record.work.rows_inserted, record.work.rows_deleted) == ("fold", 2, 0)
    assert parts(loaded) == 4
    assert bag(loaded.read("t").collect()) == bag([(1, 3, 9), (2, 1, 5), (3, 1, 3)])


def test_a_greatest_value_that_goes_needs_the_rows_of_its_group(loaded: dt.DynamicTables) -> None:
    loaded.sql("INSERT INTO r VALUES (1, 9), (2, 6)")
    loaded.refresh("t")
    loaded.sql("DELETE FROM r WHERE v IN (9, 5)")
    record = loaded.refresh("t")["t"]
    assert record.strategy == "fold"
    assert parts(loaded) == 2
    assert bag(loaded.read("t").collect()) == bag([(1, 2, 2), (2, 1, 6)])


def test_a_compaction_while_parts_are_replaced(loaded: dt.DynamicTables) -> None:
    """DuckLake's compaction moves rows and folds none: parts are found by their values."""
    loaded.sql("INSERT INTO r VALUES (1, 9), (2, 6)")
    before = loaded.refresh("t")["t"]
    loaded.sql("DELETE FROM r WHERE v IN (9, 5)")
    compacted = []

    def compact(step: AnyStep, _table: str) -> None:
        if step is Step.COMPUTED:
            compacted.append(loaded.optimize("t"))

    with observing(compact):
        record = loaded.refresh("t")["t"]
    assert compacted
    assert before.sequence is not None
    assert (record.strategy, record.sequence) == ("fold", before.sequence + 1)
    assert bag(loaded.read("t").collect()) == bag([(1, 2, 2), (2, 1, 6)])


def test_what_comes_and_goes_is_not_stored(loaded: dt.DynamicTables) -> None:
    loaded.create("s", "SELECT k, count(*) AS n FROM r GROUP BY k", storage="MERGE_ON_READ")
    loaded.sql("UPDATE r SET v = 7 WHERE k = 2")
    assert loaded.refresh("s")["s"].reason == "NET_EMPTY"


def test_time_travel_and_changes(loaded: dt.DynamicTables) -> None:
    before = loaded.show("t").build
    assert before is not None
    loaded.sql("INSERT INTO r VALUES (1, 9)")
    loaded.refresh("t")
    loaded.sql("DELETE FROM r WHERE k = 2")
    loaded.refresh("t")
    after = loaded.show("t").build
    assert after is not None
    assert bag(loaded.read("t", version=before.version).collect()) == bag([(1, 2, 2), (2, 1, 5)])
    told: list[Any] = loaded.changes("t", before.version + 1, after.version).collect()
    assert bag([row[:4] for row in told]) == bag(
        [(1, 2, 2, "delete"), (1, 3, 9, "insert"), (2, 1, 5, "delete")]
    )


REFUSED = {
    "SELECT k, v FROM r": "is for a GROUP BY",
    "SELECT k, list(v ORDER BY v) AS l FROM r GROUP BY k": "NO_INVERSE",
    "SELECT k, count(*) AS n FROM r GROUP BY k LIMIT 1": "GLOBAL_LIMIT",
}


@pytest.mark.parametrize("query", REFUSED)
def test_refused(loaded: dt.DynamicTables, query: str) -> None:
    with pytest.raises(dt.InvalidInput, match=REFUSED[query]):
        loaded.create("no", query, storage="MERGE_ON_READ")


def test_the_storage_is_fixed(loaded: dt.DynamicTables) -> None:
    with pytest.raises(dt.Refused, match="without writing all rows anew"):
        loaded.sql("ALTER DYNAMIC TABLE t SET STORAGE = IN_PLACE")
    loaded.sql("INSERT INTO r VALUES (1, 1)")
    with pytest.raises(dt.RefreshFailed, match="not possible for this query: STORAGE"):
        loaded.refresh("t", strategy="merge")
    query = loaded.show("t").definition.query
    loaded.sql(f"CREATE OR REPLACE DYNAMIC TABLE t AS {query}")
    assert loaded.show("t").definition.in_parts is None
    loaded.sql("INSERT INTO r VALUES (1, 9)")
    assert loaded.refresh("t")["t"].strategy == "merge"
    check(loaded)


def test_children_follow_a_parent_whose_storage_changed(loaded: dt.DynamicTables) -> None:
    loaded.create("below", "SELECT count(*) AS groups, sum(n) AS n FROM t")
    loaded.create("beside", "SELECT k, m FROM t WHERE n > 1")
    loaded.sql("INSERT INTO r VALUES (1, 9)")
    loaded.refresh()
    query = loaded.show("t").definition.query
    for storage in ("IN_PLACE", "MERGE_ON_READ"):
        loaded.sql(f"CREATE OR REPLACE DYNAMIC TABLE t STORAGE = {storage} AS {query}")
        loaded.sql("INSERT INTO r VALUES (1, 3)")
        loaded.refresh()
        check(loaded)


def test_another_query_is_not_compared_with_the_parts_of_the_old_one(
    loaded: dt.DynamicTables,
) -> None:
    loaded.create("below", "SELECT sum(m) AS m FROM t")
    loaded.sql("INSERT INTO r VALUES (1, 9)")
    loaded.refresh()
    loaded.sql(
        "CREATE OR ALTER DYNAMIC TABLE t STORAGE = MERGE_ON_READ AS "
        "SELECT k, count(*) AS n, min(v) AS m FROM r GROUP BY k"
    )
    loaded.refresh()
    check(loaded)
    assert bag(loaded.read("t").collect()) == bag([(1, 3, 1), (2, 1, 5)])


def test_a_retyped_source(open_lake: Open) -> None:
    tables = open_lake()
    tables.sql("CREATE TABLE w (k INT, x FLOAT, i INTEGER)")
    tables.sql("INSERT INTO w VALUES (1, 0.5, 1)")
    query = "SELECT k, max(x) AS x, max(i) AS i FROM w GROUP BY k"
    tables.create("p", query, storage="MERGE_ON_READ")
    tables.create("below", "SELECT max(x) AS x, sum(i) AS i FROM p")
    tables.sql("ALTER TABLE w ALTER x TYPE DOUBLE")
    tables.sql("ALTER TABLE w ALTER i TYPE BIGINT")
    tables.sql("INSERT INTO w VALUES (1, 0.6, 3000000000)")
    tables.refresh(on_error="report")  # the child may have to be asked again
    tables.refresh()
    check(tables)
    assert all(tables.verify(name).ok for name in ("p", "below"))


def test_what_depends_on_the_readers_session_is_refused(loaded: dt.DynamicTables) -> None:
    query = "SELECT k, CAST(max(v) AS VARCHAR) AS m FROM r GROUP BY k"
    with pytest.raises(dt.InvalidInput, match="arithmetic over them"):
        loaded.create("no", query, storage="MERGE_ON_READ")


def test_a_full_refresh_folds(loaded: dt.DynamicTables) -> None:
    loaded.create("below", "SELECT sum(n) AS n FROM t")
    loaded.sql("INSERT INTO r VALUES (1, 9)")
    loaded.refresh()
    assert parts(loaded) == 3
    loaded.refresh("t", strategy="full")
    assert parts(loaded) == 2
    loaded.refresh()
    check(loaded)


def test_a_total_of_nothing(open_lake: Open) -> None:
    tables = open_lake()
    tables.sql("CREATE TABLE e (x INT)")
    tables.create("g", "SELECT count(*) AS c, sum(x) AS s FROM e", storage="MERGE_ON_READ")
    first = tables.show("g").build
    assert first is not None
    assert bag(tables.read("g").collect()) == bag([(0, None)])
    told = tables.changes("g", first.version, first.version).collect()
    assert bag([row[:3] for row in told]) == bag([(0, None, "insert")])
    tables.sql("INSERT INTO e VALUES (1)")
    tables.sql("DELETE FROM e")
    tables.refresh()
    check(tables)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(v) AS c, count(*) AS n FROM f GROUP BY d",  # the key is hidden
        "SELECT d, sum(w) AS s, count(*) AS n FROM f GROUP BY d",  # beside a floating sum
    ],
)
def test_floating_keys_find_all_parts_of_their_groups(open_lake: Open, query: str) -> None:
    """A floating column may hold sums whose last digits differ; a key of groups never does."""
    tables = open_lake()
    tables.sql("CREATE TABLE f (d DOUBLE, v INT, w DOUBLE)")
    tables.sql("INSERT INTO f VALUES (1.5, 1, 0.5), (1.5, 2, 1), (NULL, 3, 2), (0.25, 4, 3)")
    tables.create("t", query, storage="MERGE_ON_READ")
    tables.sql("INSERT INTO f VALUES (1.5, 5, 1), (NULL, NULL, 1)")
    assert tables.refresh("t", strategy="fold")["t"].strategy == "fold"
    tables.sql("INSERT INTO f VALUES (1.5, 6, 1), (NULL, 7, 1)")
    assert tables.refresh("t", strategy="keys")["t"].strategy == "keys"
    check(tables)


def test_a_floating_sum_as_a_key_is_not_merged(open_lake: Open) -> None:
    """The old sum, computed once more, may be another group by its last digit."""
    tables = open_lake()
    tables.sql("CREATE TABLE f (k INT, w DOUBLE)")
    query = "SELECT s, count(*) AS n FROM (SELECT k, sum(w) AS s FROM f GROUP BY k) q GROUP BY s"
    with pytest.raises(dt.InvalidInput, match="NON_DETERMINISTIC"):
        tables.create("t", query, storage="MERGE_ON_READ")
    tables.create("t", query)
    tables.sql("INSERT INTO f VALUES (1, 0.1)")
    with pytest.raises(dt.RefreshFailed, match="NON_DETERMINISTIC"):
        tables.refresh("t", strategy="merge")
    tables.create("plain", query.replace("sum(w)", "count(w)"), storage="MERGE_ON_READ")
