"""Definitions, dependencies, status, the registry, and what people query."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime

import pytest
import store_builders as make

from dynamic_tables.errors import Held, InvalidInput, Refused
from dynamic_tables.model import Status, utc_now
from dynamic_tables.names import TableName
from dynamic_tables.reasons import Reason
from dynamic_tables.store import Claim, Registered, Store, tables
from dynamic_tables.store.engine import writing

HOSTILE = "a'b\"c`d;-- \\ %s :x ? {} \u00e4\u6f22\U0001f600\n\t.z"


def test_a_definition_comes_back_as_it_was(store: Store) -> None:
    definition = make.definition()
    store.create_table(definition)
    state = store.table(definition.name.key)
    assert state is not None
    assert state.definition == definition
    assert (state.status, state.failures, state.build) == (Status.ACTIVE, 0, None)
    assert state.created_at.tzinfo is UTC
    assert abs((utc_now() - state.created_at).total_seconds()) < 60
    assert store.table_by_id(definition.table_id) == state
    assert store.tables() == [state]


def test_what_is_not_there_is_none(store: Store) -> None:
    assert store.table("`a`.`b`.`c`") is None
    assert store.table_by_id("none") is None
    assert store.tables() == []


def test_a_name_is_taken_whatever_its_case(store: Store, table: str) -> None:
    rival = make.definition(table_id="other", name=make.name("BY_customer"))
    with pytest.raises(InvalidInput) as caught:
        store.create_table(rival)
    assert caught.value.reason is Reason.ALREADY_EXISTS
    assert len(store.tables()) == 1


def test_a_definition_over_a_dropped_parent_is_refused_and_leaves_nothing(store: Store) -> None:
    parent = make.definition("parent")
    with pytest.raises(InvalidInput) as caught:
        store.create_table(make.definition(parents=(parent,)))
    assert caught.value.reason is Reason.UNKNOWN_SOURCE
    assert store.tables() == []
    assert store.read_rows("dependencies")[1] == []


def test_a_change_takes_name_fingerprint_and_dependencies_along(
    store: Store, claim: Claim, table: str
) -> None:
    parent = make.definition("parent")
    store.create_table(parent)
    changed = make.definition(
        parents=(parent,), name=make.name("renamed"), fingerprint="f2", revision=2
    )
    store.update_definition(claim, replace(changed, table_id=table))
    assert store.table(make.name().key) is None
    state = store.table(make.name("renamed").key)
    assert state is not None
    assert state.definition.revision == 2
    columns, rows = store.read_rows("dynamic_tables")
    at = [column for column, _ in columns].index("fingerprint")
    assert {row[at] for row in rows} == {"f1", "f2"}
    assert store.read_rows("dependencies")[1] == [
        (table, "sales.orders", None),
        (table, "sales.parent", "id-parent"),
        ("id-parent", "sales.orders", None),
    ]


@pytest.mark.parametrize("revision", [2, 1])
def test_the_slower_of_two_changes_is_refused(store: Store, claim: Claim, revision: int) -> None:
    first = make.definition(revision=2, fingerprint="first")
    store.update_definition(claim, first)
    store.update_definition(claim, first)  # a repetition is no change
    with pytest.raises(Held) as caught:
        store.update_definition(claim, make.definition(revision=revision, fingerprint="second"))
    assert caught.value.reason is Reason.TAKEN_OVER
    state = store.table_by_id(claim.table_id)
    assert state is not None
    assert state.definition == first


def test_who_lost_the_claim_changes_no_definition(store: Store, table: str) -> None:
    parent = make.definition("parent")
    store.create_table(parent)
    lost = store.claim(table, "r1", make.claimant(1))
    before = store.read_rows("dynamic_tables"), store.read_rows("dependencies")
    new = store.claim(table, "r2", make.claimant(2), lambda *_: True)
    changed = make.definition(parents=(parent,), fingerprint="f2", revision=2)
    with pytest.raises(Held) as caught:
        store.update_definition(lost, changed)
    assert (caught.value.reason, caught.value.about) == (Reason.TAKEN_OVER, "sales.by_customer")
    assert "refresh" not in caught.value.message  # a statement may have lost it
    assert (store.read_rows("dynamic_tables"), store.read_rows("dependencies")) == before
    store.update_definition(new, changed)
    store.release(new)
    with pytest.raises(Held):
        store.update_definition(new, replace(changed, revision=3))


def test_renaming_to_a_taken_name_is_refused(store: Store, claim: Claim) -> None:
    store.create_table(make.definition("other"))
    with pytest.raises(InvalidInput) as caught:
        store.update_definition(claim, make.definition(name=make.name("OTHER"), revision=2))
    assert caught.value.reason is Reason.ALREADY_EXISTS


def test_a_change_of_a_dropped_table_is_refused(store: Store, claim: Claim) -> None:
    store.delete_tables([claim.table_id])
    with pytest.raises(Held) as caught:
        store.update_definition(claim, make.definition(revision=2))
    assert caught.value.reason is Reason.TAKEN_OVER


def test_a_parent_stays_as_long_as_it_has_children(store: Store) -> None:
    parent, child = make.definition("parent"), make.definition("child")
    child = make.definition("child", parents=(parent,))
    store.create_table(parent)
    store.create_table(child)
    with pytest.raises(Refused) as caught:
        store.delete_tables([parent.table_id])
    assert caught.value.reason is Reason.HAS_CHILDREN
    assert "sales.child" in caught.value.message
    store.delete_tables([child.table_id])
    store.delete_tables([parent.table_id])
    assert store.tables() == []


def test_tables_go_together_or_not_at_all(store: Store) -> None:
    """One that a new child reads keeps the others."""
    parent = make.definition("parent")
    child = make.definition("child", parents=(parent,))
    both = [parent.table_id, child.table_id]
    store.create_table(parent)
    store.create_table(child)
    store.create_table(make.definition("grandchild", parents=(child,)))
    with pytest.raises(Refused) as caught:
        store.delete_tables(both)
    assert (caught.value.reason, caught.value.about) == (Reason.HAS_CHILDREN, "sales.child")
    assert "sales.grandchild" in caught.value.message
    assert len(store.tables()) == 3
    store.delete_tables(["id-grandchild"])
    held = [store.claim(table_id, "drop", make.claimant()) for table_id in both]
    store.release(held[1])
    with pytest.raises(Held):
        store.delete_tables(both, held)
    assert len(store.tables()) == 2
    held[1] = store.claim(child.table_id, "drop", make.claimant())
    store.delete_tables(both, held)
    assert store.tables() == []


def test_a_child_whose_create_has_not_ended_is_waited_for(store: Store, table: str) -> None:
    child = make.definition("child", parents=(make.definition(),))
    with ThreadPoolExecutor(1) as pool:
        with writing(store._engine) as connection:
            tables.create(connection, child)
            dropping = pool.submit(store.delete_tables, [table])
            time.sleep(0.2)  # long enough that it comes to the table, or it would be no test
            assert not dropping.done()
        with pytest.raises(Refused) as caught:
            dropping.result()
    assert caught.value.reason is Reason.HAS_CHILDREN
    assert caught.value.hint == "it was created meanwhile; repeat the statement"  # not: CASCADE
    assert len(store.tables()) == 2


def test_a_deleted_table_leaves_its_history_only(store: Store, table: str) -> None:
    claim, done = store.claim(table, "r", make.claimant()), make.record(started_at=store.now())
    store.record(claim, done, make.build(), close_intent=None, failures="keep")
    store.open_intent(claim, make.intent(2))
    store.delete_tables([table])
    for name in ("dynamic_tables", "dependencies", "source_snapshots", "refresh_claims"):
        assert store.read_rows(name)[1] == [], name
    assert store.builds(table) == []
    assert store.intent(table) is None
    assert store.history(table) == [done]  # that of the last days, see test_store_forgetting
    with pytest.raises(InvalidInput):
        store.delete_tables([table])
    store.create_table(make.definition())  # the name is free again


def test_resuming_forgets_failures(store: Store, table: str) -> None:
    for count in (1, 2):
        assert store.record(None, make.failed(), None, close_intent=None, failures="count") == count
    store.set_status(table, Status.SUSPENDED, "it's broken")
    state = store.table_by_id(table)
    assert state is not None
    assert (state.status, state.failures) == (Status.SUSPENDED, 2)
    assert state.suspended_because == "it's broken"
    store.set_status(table, Status.ACTIVE)
    state = store.table_by_id(table)
    assert state is not None
    assert (state.status, state.failures, state.suspended_because) == (Status.ACTIVE, 0, None)
    with pytest.raises(InvalidInput):
        store.set_status("none", Status.ACTIVE)


def test_the_registry_keeps_replaces_and_forgets(store: Store) -> None:
    view = Registered(name=("spark_catalog", "a", "V"), kind="view", text="SELECT 1")
    schema = Registered(name=("spark_catalog", "z"), kind="schema", location="/z")
    table = Registered(
        name=("spark_catalog", "a", "t"), kind="table", location="/t", extra={"provider": ["delta"]}
    )
    for entry in (view, schema, table):
        store.registry_put(entry)
    assert store.registry_all() == [schema, table, view]
    newer = replace(view, name=("spark_catalog", "A", "v"), text="SELECT 2")
    store.registry_put(newer)
    assert store.registry_all() == [schema, table, newer]
    assert table.key == TableName("spark_catalog", "a", "t").key
    assert store.registry_delete(table.key)
    assert not store.registry_delete(table.key)
    assert store.registry_all() == [schema, newer]


def test_read_rows_are_plain_values_with_types(store: Store, table: str) -> None:
    claim = store.claim(table, "r", make.claimant())
    store.record(claim, make.record(), make.build(), close_intent=None, failures="keep")
    for name in (
        "dynamic_tables",
        "dependencies",
        "source_snapshots",
        "refresh_history",
        "refresh_claims",
    ):
        columns, rows = store.read_rows(name)
        assert rows, name
        assert json.loads(json.dumps(rows)) == [list(row) for row in rows]
        assert {kind for _, kind in columns} <= {"string", "bigint", "double", "timestamp"}
        assert all(len(row) == len(columns) for row in rows)
    types = dict(store.read_rows("REFRESH_HISTORY")[0])
    assert "name_parts" not in types
    assert types["started_at"] == "timestamp"
    assert types["cardinality_ratio"] == "double"
    assert types["trigger"] == "string"
    columns, rows = store.read_rows("source_snapshots")
    seen = [dict(zip([name for name, _ in columns], row, strict=True)) for row in rows]
    assert [(row["source"], row["snapshot_id"]) for row in seen] == [
        ("sales.orders", 7),
        ("sales.parent", 7),
    ]
    assert seen[0]["dynamic_table"] == "sales.by_customer"
    with pytest.raises(InvalidInput) as caught:
        store.read_rows("registry")
    assert caught.value.reason is Reason.UNKNOWN_TABLE


def test_hostile_text_is_only_text(store: Store) -> None:
    name = TableName(HOSTILE, HOSTILE, HOSTILE)
    parent = make.definition(table_id=HOSTILE + "parent", name=make.name(HOSTILE))
    definition = make.definition(
        parents=(parent,),
        table_id=HOSTILE,
        name=name,
        query=HOSTILE,
        namespace=(HOSTILE, HOSTILE),
        settings={HOSTILE: HOSTILE},
        location=HOSTILE,
        fingerprint=HOSTILE,
    )
    store.create_table(parent)
    store.create_table(definition)
    store.set_status(HOSTILE, Status.SUSPENDED, HOSTILE)
    claim = store.claim(HOSTILE, HOSTILE, make.claimant(1, HOSTILE))
    pins = tuple(replace(pin, name=name, source_id=HOSTILE) for pin in make.pins()[:1])
    intent = make.intent(table_id=HOSTILE, refresh_id=HOSTILE, pins=pins, fingerprint=HOSTILE)
    build = replace(make.build(), table_id=HOSTILE, pins=pins, fingerprint=HOSTILE)
    done = make.record(
        table=name,
        table_id=HOSTILE,
        refresh_id=HOSTILE,
        trigger=HOSTILE,
        error=HOSTILE,
        note=HOSTILE,
        pins=pins,
        steps_ms={HOSTILE: 1},
    )
    entry = Registered(
        name=(HOSTILE, HOSTILE), kind="view", location=HOSTILE, text=HOSTILE, extra={HOSTILE: "'"}
    )
    store.registry_put(entry)
    assert store.holder(HOSTILE) == claim
    assert store.open_intent(claim, intent) == intent == store.intent(HOSTILE)
    store.record(claim, done, build, close_intent=1, failures="reset")
    state = store.table(name.key)
    assert state is not None
    assert (state.definition, state.build) == (definition, build)
    assert state.suspended_because == HOSTILE
    assert store.builds(HOSTILE) == [build]
    assert store.history(HOSTILE) == [done]
    assert store.registry_all() == [entry]
    with pytest.raises(Refused):
        store.delete_tables([parent.table_id])
    store.delete_tables([HOSTILE])
    assert [state.definition for state in store.tables()] == [parent]


def test_messages_may_quote_any_data(store: Store) -> None:
    """PostgreSQL's texts hold neither NUL nor halves of characters, but Spark's messages may."""
    store.create_table(make.definition())
    store.set_status(make.definition().table_id, Status.SUSPENDED, "cast of 'a\x00b\ud800' failed")
    [state] = store.tables()
    assert state.suspended_because == "cast of 'a␀b?' failed"


def test_who_was_refreshed_since_a_look_began_knows_better(store: Store) -> None:
    """Whatever the clock said: the look goes by the state that it read."""
    definition = make.definition()
    store.create_table(definition)
    key = definition.table_id
    long_ago = datetime(2000, 1, 1, tzinfo=UTC)
    store.saw({key: long_ago}, {key: store.tables()[0].refreshed_at})
    assert store.tables()[0].behind_since == long_ago
    store.saw({key: None}, {key: long_ago})  # another refresh than the one that stands
    assert store.tables()[0].behind_since == long_ago
