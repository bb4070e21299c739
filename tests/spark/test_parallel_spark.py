"""One table refreshed by several workers, on Delta: the equation holds, nothing is left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import dynamic_tables as dt
from dynamic_tables.lake import delta, sessions, snapshots
from dynamic_tables.lake.places import local_path
from dynamic_tables.lake.slices import FOLDER, SparkSlicer, clear_slices
from dynamic_tables.lake.slicing import Part, Slicing
from dynamic_tables.steps import SliceStep, Step, observing
from dynamic_tables.store import Subtask
from oracle import check

pytestmark = pytest.mark.spark

SHARED = {"parallel_threshold": 4, "initialize": "ON_SCHEDULE"}
WORKERS = SLICES = 2
EXPIRES_S = 4.0  # a worker is slow after half of it
FLAGS: dict[str, Any] = {
    "jvm": "quick",
    "say": lambda _: None,
    "poll_s": 0.1,
    "claim_expires_s": EXPIRES_S,
}
SOURCES = (
    """CREATE TABLE visits USING delta PARTITIONED BY (day) AS
    SELECT id, nullif(id % 7, 2) AS customer, concat('d', id % 5) AS day FROM range(140)""",
    """CREATE TABLE pairs USING delta AS
    SELECT id, nullif(id % 3, 1) AS a, nullif(concat('b', id % 2), 'b0') AS b, 1 AS amount
    FROM range(60)""",
    """CREATE TABLE orders USING delta AS
    SELECT id, nullif(id % 11, 3) AS customer, id % 5 AS product FROM range(200)""",
)
STAR = (
    """CREATE TABLE sales USING delta AS
    SELECT id, id % 50 AS customer, id % 7 AS product, id % 9 AS amount FROM range(400)""",
    "CREATE TABLE customers USING delta AS SELECT id AS customer, 'old' AS segment FROM range(50)",
)
METRICS = """
SELECT s.customer, max(c.segment) AS segment, count(*) AS sales,
       count(DISTINCT s.product) AS products, sum(s.amount) AS amount
FROM sales s JOIN customers c ON s.customer = c.customer GROUP BY s.customer
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("parallel") / "lake"


@pytest.fixture(scope="module")
def tables(folder: Path) -> Iterator[dt.DynamicTables]:
    """A lake with idle workers."""
    with dt.connect(folder, **FLAGS) as tables:
        for statement in SOURCES:  # an embedded catalog is filled when it is opened
            tables.sql(statement)
        with working(folder, WORKERS):
            yield tables


@contextmanager
def working(folder: Path, count: int) -> Generator[None]:
    """Workers, each with a connection and a session of its own."""
    opened = [dt.connect(folder, **FLAGS) for _ in range(count)]
    workers = [other.worker(slots=1, say=print) for other in opened]
    threads = [threading.Thread(target=worker.run) for worker in workers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for worker in workers:
            worker.stop()
        for thread in threads:
            thread.join()
        for other in opened:
            other.close()


@contextmanager
def created(tables: dt.DynamicTables) -> Generator[list[Subtask]]:
    """The slices that refreshes are cut into meanwhile."""
    found: list[Subtask] = []

    def observer(step: Step | SliceStep, _table: str) -> None:
        if step is SliceStep.SHARED:
            found.extend(tables.store.subtasks())

    with observing(observer):
        yield found


def kinds(slices: list[Subtask]) -> list[str]:
    return [item.subtask_type for item in slices]


def staged(tables: dt.DynamicTables, name: str) -> list[Path]:
    """What lies in the staging place of a table."""
    place = local_path(tables.show(name).definition.location)
    assert place is not None
    return list((place / FOLDER).rglob("*"))


def _in_a_worker() -> bool:
    return threading.current_thread().name.startswith("slot")


def settled(tables: dt.DynamicTables, name: str) -> None:
    check(tables, name)
    assert tables.store.subtasks() == []
    assert staged(tables, name) == []


def rested(tables: dt.DynamicTables, workers: int = WORKERS) -> None:
    """All workers have been idle for some of their looks: a refresh that failed before this one may
    still be asked for, and whoever carries that out does not count as idle."""
    looks = 0
    for _ in range(300):
        looks = looks + 1 if tables.store.idle_workers("") == workers else 0
        if looks == 5:
            return
        time.sleep(0.1)
    pytest.fail("the workers do not come to rest")


def refreshed(tables: dt.DynamicTables, name: str, **how: object) -> dt.RefreshRecord:
    rested(tables)
    [record] = tables.refresh(name, **how).records
    settled(tables, name)
    return record


def test_keys_first_load_and_full_in_slices(tables: dt.DynamicTables) -> None:
    """An integer key with NULL; `count(DISTINCT …)` rules out `merge`."""
    tables.create(
        "variety",
        "SELECT customer, count(DISTINCT product) AS products, count(*) AS n"
        " FROM orders GROUP BY customer",
        **SHARED,
    )
    tables.create("child", "SELECT sum(n) AS n FROM variety", initialize="ON_SCHEDULE")
    with created(tables) as slices:
        first = refreshed(tables, "variety")
    assert (first.action, first.strategy, first.slices) == ("initialize", "full", SLICES)
    assert kinds(slices) == ["hash_range"] * SLICES  # nobody has counted these keys
    tables.refresh("child")
    tables.sql("INSERT INTO orders SELECT 1000 + id, nullif(id, 3), 7 FROM range(9)")
    tables.sql("DELETE FROM orders WHERE customer = 10")
    with created(tables) as slices:
        done = refreshed(tables, "variety")
    assert (done.strategy, done.slices) == ("keys", SLICES)
    assert kinds(slices) == ["modulo"] * SLICES
    [nobody] = tables.sql("SELECT n FROM variety WHERE customer IS NULL").collect()
    assert nobody.n == 19  # of 200 orders 18, and one more
    full = refreshed(tables, "variety", strategy="full")
    assert (full.reason, full.slices) == ("FORCED", SLICES)
    assert full.work.rows_inserted in (None, 0)  # nothing differs: an empty commit takes n
    tables.refresh("child")
    # Changes rows of keys that are all even, or NULL, and no count.
    tables.sql("UPDATE orders SET product = product + 10 WHERE coalesce(customer, 0) % 2 = 0")
    with created(tables) as slices:
        same = refreshed(tables, "variety")
    assert (same.strategy, same.slices) == ("keys", SLICES)
    assert kinds(slices) == ["hash_range"] * SLICES  # modulo would give all to one slice
    assert tables.refresh("child")["child"].strategy == "no_data"
    listed = [record.slices for record in tables.history("variety")]
    assert listed == [SLICES] * 4


def test_composite_keys_with_nulls_and_empty_slices(tables: dt.DynamicTables) -> None:
    """By hash; a slice without a key is skipped."""
    tables.create(
        "grouped",
        "SELECT a, b AS `b ``c`, count(DISTINCT id % 4) AS n, max(amount) AS `most of, it`"
        " FROM pairs GROUP BY a, b",
        **SHARED,
    )
    assert refreshed(tables, "grouped").slices == SLICES
    tables.sql("INSERT INTO pairs VALUES (500, NULL, NULL, 7), (501, 0, 'b1', 8), (502, 9, 'z', 9)")
    tables.sql("DELETE FROM pairs WHERE a = 2")  # two groups disappear
    with created(tables) as slices:
        done = refreshed(tables, "grouped")
    assert done.strategy == "keys"
    assert kinds(slices) == ["hash_range"] * (done.slices or 0)
    assert slices[0].subtask_data["key_columns"] == ["a", "b `c"]


def test_a_source_is_read_by_its_partitions(tables: dt.DynamicTables) -> None:
    tables.create(
        "daily",
        "SELECT day, customer, count(DISTINCT id) AS n FROM visits GROUP BY day, customer",
        **SHARED,
    )
    with created(tables) as slices:
        assert refreshed(tables, "daily").slices == SLICES
        tables.sql("INSERT INTO visits SELECT 900 + id, id % 3, NULL FROM range(3)")
        tables.sql("INSERT INTO visits SELECT 800 + id, id, concat('d', id) FROM range(5)")
        done = refreshed(tables, "daily")
        assert (done.strategy, done.slices) == ("keys", SLICES)
        tables.sql("DELETE FROM visits WHERE day IN ('d1', 'd2') OR day IS NULL")  # for good
        gone = refreshed(tables, "daily")
        assert (gone.strategy, gone.slices) == ("keys", SLICES)
        tables.sql("INSERT INTO visits SELECT 700 + id, id, 'd9' FROM range(9)")
        one = refreshed(tables, "daily")  # keys of one partition are hashed
    assert one.strategy == "keys"
    assert kinds(slices) == ["partition"] * 3 * SLICES + ["hash_range"] * (one.slices or 0)


def test_an_error_of_the_query_ends_it_and_leaves_nothing(tables: dt.DynamicTables) -> None:
    tables.create(
        "quotients",
        "SELECT id, max(10 / amount) AS q, count(DISTINCT amount) AS n FROM pairs GROUP BY id",
        **SHARED,
    )
    refreshed(tables, "quotients")
    before = tables.show("quotients").build
    tables.sql("INSERT INTO pairs SELECT 700 + id, 5, 'x', 1 FROM range(6)")
    tables.sql("INSERT INTO pairs VALUES (777, 5, 'x', 0)")
    with pytest.raises(dt.RefreshFailed) as caught:
        tables.refresh("quotients")
    [failed] = caught.value.report.failed
    assert failed.reason == "QUERY_FAILED"
    assert "slice" in str(failed.error)
    assert tables.show("quotients").build == before
    settled(tables, "quotients")
    tables.sql("DELETE FROM pairs WHERE id = 777")
    assert refreshed(tables, "quotients").slices == SLICES


def test_a_damaged_slice_is_noticed(tables: dt.DynamicTables) -> None:
    tables.create(
        "checked",
        "SELECT id, count(DISTINCT a) AS n FROM pairs GROUP BY id",
        **SHARED,
    )

    def observer(step: Step | SliceStep, table: str) -> None:
        """Before the store knows of a slice: else it may be read before it is spoilt. Every attempt
        at one is: on a slow machine it is computed twice, and the first that is ready counts."""
        if step is SliceStep.WRITTEN and table.endswith("checked"):
            for part in staged(tables, "checked"):
                if part.match("part-*") and "_temporary" not in part.parts:
                    part.unlink(missing_ok=True)

    rested(tables)
    with observing(observer), pytest.raises(dt.RefreshFailed) as caught:
        tables.refresh("checked")
    assert caught.value.report.failed[0].reason == "SLICE_DAMAGED"
    assert tables.show("checked").build is None
    settled(tables, "checked")
    assert refreshed(tables, "checked").slices == SLICES


compute = SparkSlicer.compute


def other_value(slicer: SparkSlicer, slicing: Slicing, slice_no: int, *at: Any) -> Part:
    """As many rows as were computed, under the same keys."""
    part = compute(slicer, slicing, slice_no, *at)
    spark = slicer._session
    written = spark.read.parquet(part.location)
    [(key, n), *rest] = written.collect()
    spoilt = spark.createDataFrame([(key, n + 1), *rest], written.schema)
    spoilt.write.mode("overwrite").parquet(part.location)
    return part


def other_slice(slicer: SparkSlicer, slicing: Slicing, _slice_no: int, *at: Any) -> Part:
    """All rows that were computed, but of a slice that is another worker's."""
    return compute(slicer, slicing, 0, *at)


@pytest.mark.parametrize("damage", [other_value, other_slice])
def test_a_slice_of_other_rows_is_noticed(
    tables: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch, damage: Callable[..., Part]
) -> None:
    name = damage.__name__
    tables.create(name, "SELECT id, count(DISTINCT a) AS n FROM pairs GROUP BY id", **SHARED)
    rested(tables)
    with monkeypatch.context() as patch:
        patch.setattr(SparkSlicer, "compute", damage)
        with pytest.raises(dt.RefreshFailed) as caught:
            tables.refresh(name)
    assert caught.value.report.failed[0].reason == "SLICE_DAMAGED"
    assert tables.show(name).build is None
    settled(tables, name)
    assert refreshed(tables, name).slices == SLICES


def test_missing_keys_are_noticed(tables: dt.DynamicTables) -> None:
    """Groups whose keys are missing would stay as they were."""
    tables.create(
        "keyed", "SELECT id, a, count(DISTINCT b) AS n FROM pairs GROUP BY id, a", **SHARED
    )
    refreshed(tables, "keyed")
    tables.sql("UPDATE pairs SET b = 'other'")
    loses = iter([True])

    def observer(step: Step | SliceStep, table: str) -> None:
        if step is SliceStep.KEYS_STAGED and table.endswith("keyed") and next(loses, False):
            next(found for found in staged(tables, "keyed") if found.match("part-*")).unlink()

    with observing(observer), pytest.raises(dt.RefreshFailed) as caught:
        tables.refresh("keyed", strategy="keys")
    assert caught.value.report.failed[0].reason == "SLICE_DAMAGED"
    assert "staged keys" in str(caught.value.report.failed[0].error)
    assert staged(tables, "keyed") == []
    assert refreshed(tables, "keyed").slices == SLICES


def test_what_another_refresh_stages_is_left(tables: dt.DynamicTables) -> None:
    tables.create("cleared", "SELECT id FROM pairs", initialize="ON_SCHEDULE")
    definition = tables.show("cleared").definition
    place = local_path(definition.location)
    assert place is not None
    for name in ("1", "2", "3", "not a number"):
        (place / FOLDER / name / "keys").mkdir(parents=True)
    clear_slices(tables.spark, definition, 2)
    assert {found.name for found in (place / FOLDER).iterdir()} == {"3", "not a number"}
    (place / FOLDER / "not a number" / "keys").rmdir()
    (place / FOLDER / "not a number").rmdir()
    clear_slices(tables.spark, definition, 3)
    assert not (place / FOLDER).exists()


def test_a_worker_that_saw_its_tables_empty(
    tables: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they were filled with since is large: it wants a session for large tables."""
    tables.sql("CREATE TABLE filled (id INT, word STRING) USING delta")
    tables.create("of_filled", "SELECT id, count(*) AS n FROM filled GROUP BY id", **SHARED)
    tables.sql("INSERT INTO filled SELECT id, uuid() FROM range(40)")
    known, private, small = snapshots.known_snapshot, sessions.private_session, []

    def as_once(spark: SparkSession, log: Any) -> Any:
        return snapshots.snapshot_at(spark, log, 0) if _in_a_worker() else known(spark, log)

    def recorded(*given: Any, **how: Any) -> SparkSession:
        if _in_a_worker() and "small" in how:
            small.append(how["small"])
        return private(*given, **how)

    monkeypatch.setattr(snapshots, "known_snapshot", as_once)
    monkeypatch.setattr(delta, "private_session", recorded)
    for bytes_at_most, expected in ((1, False), (2**20, True)):
        monkeypatch.setattr(delta, "SMALL_TABLES_BYTES", bytes_at_most)
        small.clear()
        assert refreshed(tables, "of_filled", strategy="full").slices == SLICES
        assert {*small} == {expected}


def test_verify_goes_by_the_cut(tables: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by what stands now."""
    tables.sql("CREATE TABLE emptied USING delta AS SELECT id, uuid() AS word FROM range(40)")
    tables.create("of_emptied", "SELECT count(DISTINCT word) AS n FROM emptied")
    tables.sql("TRUNCATE TABLE emptied")
    stored = tables.lake.stored_bytes(tables.show("of_emptied").definition)
    private, small = sessions.private_session, []

    def recorded(*given: Any, **how: Any) -> SparkSession:
        small.append(how.get("small", False))
        return private(*given, **how)

    monkeypatch.setattr(delta, "private_session", recorded)
    monkeypatch.setattr(delta, "SMALL_TABLES_BYTES", stored)
    assert tables.verify("of_emptied").ok
    assert not any(small)


def test_a_slow_worker_gets_company(tables: dt.DynamicTables) -> None:
    """One worker stops before its slice, heartbeats go on; the refresh does not wait for it."""
    tables.create(
        "hurried",
        "SELECT id, count(DISTINCT product) AS n FROM orders GROUP BY id",
        **SHARED,
    )
    recorded, ended = threading.Event(), threading.Event()
    stops = iter([True])

    def observer(step: Step | SliceStep, table: str) -> None:
        if not table.endswith("hurried"):
            return
        if step is Step.RECORDED:
            recorded.set()
        elif step is SliceStep.CLAIMED and _in_a_worker() and next(stops, False):
            assert recorded.wait(100)
            ended.set()

    with observing(observer):
        done = tables.refresh("hurried")["hurried"]
        assert ended.wait(100)
    assert done.slices == SLICES
    settled(tables, "hurried")


def test_a_dimension_changes_for_two_fifths_of_the_customers(
    tables: dt.DynamicTables, folder: Path
) -> None:
    """The seed's large refresh, small: four workers at once have a slice each."""
    for statement in STAR:
        tables.sql(statement)
    tables.create("customer_metrics", METRICS, parallel_threshold=10)
    tables.sql("UPDATE customers SET segment = 'new' WHERE customer % 5 < 2")
    computed: list[Subtask] = []
    begun = threading.Event()
    together = threading.Barrier(1 + 4, action=begun.set, timeout=100)  # the coordinator waits, too

    def observer(step: Step | SliceStep, _table: str) -> None:
        begins = step is SliceStep.CLAIMED and _in_a_worker() and not begun.is_set()
        if begins or step is SliceStep.SHARED:
            together.wait()
        elif step is SliceStep.GATHERED:
            computed.extend(tables.store.subtasks())

    with working(folder, 4 - WORKERS), observing(observer):
        rested(tables, 4)
        [record] = tables.refresh("customer_metrics", strategy="keys").records
    assert (record.strategy, record.slices) == ("keys", 4)
    assert record.work.cardinality_ratio == 0.4
    done = [item for item in computed if item.status == "completed"]
    assert sorted(item.slice_no for item in done) == [0, 1, 2, 3]
    assert set(kinds(done)) == {"modulo"}
    settled(tables, "customer_metrics")
