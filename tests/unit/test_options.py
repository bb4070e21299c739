"""Options: every spelling, every refusal, JSON there and back."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_tables._values import MAX_INTEGER, duration, duration_text
from dynamic_tables.errors import InvalidInput
from dynamic_tables.options import (
    SPECS,
    AuxiliaryColumns,
    Deduplication,
    Initialize,
    Options,
    RefreshMode,
    Storage,
    TargetLag,
    contradictions,
    parse_kwargs,
    spec_of,
)
from dynamic_tables.reasons import Reason


def test_every_field_has_a_spec_in_the_same_order() -> None:
    assert [spec.field for spec in SPECS] == [field.name for field in fields(Options)]


def test_defaults() -> None:
    options = Options()
    assert options == Options.from_kwargs() == Options.from_json({})
    assert {spec.field: spec.default for spec in SPECS} == {
        field.name: getattr(options, field.name) for field in fields(options)
    }
    assert (options.parallel_threshold, options.max_parallelism) == (10_000_000, 16)


ACCEPTED = [
    ("target_lag", "5 minutes", TargetLag(300.0)),
    ("target_lag", " 1 Hour 30 MINUTES ", TargetLag(5400.0)),
    ("target_lag", "0.5 minutes", TargetLag(30.0)),
    ("target_lag", "1 second", TargetLag(1.0)),
    ("target_lag", "2 weeks 1 day", TargetLag(15 * 86_400.0)),
    ("target_lag", "downstream", TargetLag(None)),
    ("target_lag", timedelta(minutes=5), TargetLag(300.0)),
    ("target_lag", TargetLag(7.0), TargetLag(7.0)),
    ("refresh_mode", "full", RefreshMode.FULL),
    ("refresh_mode", RefreshMode.INCREMENTAL, RefreshMode.INCREMENTAL),
    ("initialize", "On_Schedule", Initialize.ON_SCHEDULE),
    ("cardinality_threshold", "0.5", 0.5),
    ("cardinality_threshold", 1, 1.0),
    ("cardinality_threshold", "1e-3", 0.001),
    ("cardinality_threshold", ".25", 0.25),
    ("deduplication", True, Deduplication.TRUE),
    ("deduplication", "FALSE", Deduplication.FALSE),
    ("deduplication", "auto", Deduplication.AUTO),
    ("auxiliary_columns", "none", AuxiliaryColumns.NONE),
    ("storage", "merge_on_read", Storage.MERGE_ON_READ),
    ("max_scan_bytes", "100", 100),
    ("max_scan_bytes", MAX_INTEGER, MAX_INTEGER),
    ("allow_parallel_refresh", "true", True),
    ("allow_parallel_refresh", False, False),
    ("parallel_threshold", 5, 5),
    ("max_parallelism", " 8 ", 8),
    ("cluster_by", ["a", "odd, name"], ("a", "odd, name")),
    ("cluster_by", "a, `odd, ``name`", ("a", "odd, `name")),
    ("cluster_by", [], ()),
    ("partitioned_by", ("day",), ("day",)),
    ("row_groups_by", "customer", "customer"),
    ("row_groups_by", ["odd name"], "odd name"),
    ("comment", "", ""),
    ("comment", "it's", "it's"),
]


@pytest.mark.parametrize(("field", "raw", "value"), ACCEPTED)
def test_accepted(field: str, raw: object, value: object) -> None:
    assert getattr(Options.from_kwargs(**{field: raw}), field) == value


@pytest.mark.parametrize("field", [field.name for field in fields(Options)])
def test_none_means_not_given(field: str) -> None:
    assert Options.from_kwargs(**{field: None}) == Options()


BAD = [
    ("target_lag", "5"),
    ("target_lag", "5minutes"),
    ("target_lag", "-5 minutes"),
    ("target_lag", "0 minutes"),
    ("target_lag", "0.5 seconds"),
    ("target_lag", "1 hour 0 minutes"),
    ("target_lag", "1 hour 2 hours"),
    ("target_lag", "5 minutes ago"),
    ("target_lag", "5 months"),
    ("target_lag", "\u0665 minutes"),
    ("target_lag", "9" * 500 + " weeks"),
    ("target_lag", ""),
    ("target_lag", 300),
    ("target_lag", timedelta(0)),
    ("target_lag", timedelta(days=9999)),
    ("trigger_at_most_every", "DOWNSTREAM"),
    ("trigger_on_change", "yes"),
    ("trigger_on_change", 1),
    ("refresh_mode", "SOMETIMES"),
    ("refresh_mode", 1),
    ("initialize", ""),
    ("cardinality_threshold", 0),
    ("cardinality_threshold", 1.01),
    ("cardinality_threshold", float("nan")),
    ("cardinality_threshold", "nan"),
    ("cardinality_threshold", 10**400),
    ("cardinality_threshold", "1_0"),
    ("cardinality_threshold", True),
    ("deduplication", "maybe"),
    ("auxiliary_columns", True),
    ("storage", "TAPE"),
    ("max_scan_bytes", 0),
    ("max_scan_bytes", -1),
    ("max_scan_bytes", 1.5),
    ("max_scan_bytes", "1e6"),
    ("max_scan_bytes", MAX_INTEGER + 1),
    ("max_scan_bytes", "9" * 5000),
    ("max_parallelism", True),
    ("parallel_threshold", "many"),
    ("cluster_by", ""),
    ("cluster_by", "a,,b"),
    ("cluster_by", "a b"),
    ("cluster_by", "a.b"),
    ("cluster_by", "`open"),
    ("cluster_by", [""]),
    ("cluster_by", [1]),
    ("cluster_by", {"a"}),
    ("row_groups_by", "a, b"),
    ("row_groups_by", []),
    ("comment", 5),
]


@pytest.mark.parametrize(("field", "raw"), BAD)
def test_bad_values_name_option_value_and_what_is_allowed(field: str, raw: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        Options.from_kwargs(**{field: raw})
    error, spec = caught.value, spec_of(field)
    assert error.reason is Reason.BAD_VALUE
    assert error.about == spec.name
    assert repr(raw) in error.message
    assert spec.allowed in error.message
    assert error.hint is not None
    assert spec.example in error.hint


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("targetlag", "did you mean target_lag?"),
        ("cluster_bye", "did you mean cluster_by?"),
        ("colour", "known are: target_lag,"),
    ],
)
def test_unknown_options(name: str, hint: str) -> None:
    for make in (lambda: Options.from_kwargs(**{name: 1}), lambda: Options.from_json({name: 1})):
        with pytest.raises(InvalidInput) as caught:
            make()
        assert caught.value.reason is Reason.UNKNOWN_OPTION
        assert caught.value.about == name
        assert hint in str(caught.value.hint)


CONTRADICTIONS = [
    ({"cluster_by": ["a"], "partitioned_by": ["b"]}, "CLUSTER BY and PARTITIONED BY"),
    ({"row_groups_by": "a", "cluster_by": ["b"]}, "ROW_GROUPS BY and CLUSTER BY"),
    ({"storage": "MERGE_ON_READ", "refresh_mode": "FULL"}, "STORAGE and REFRESH_MODE"),
    ({"storage": "MERGE_ON_READ", "auxiliary_columns": "NONE"}, "STORAGE and AUXILIARY_COLUMNS"),
    ({"target_lag": "DOWNSTREAM", "trigger_on_change": True}, "TARGET_LAG and TRIGGER ON CHANGE"),
    ({"trigger_at_most_every": "1 minute"}, "AT MOST EVERY and TRIGGER ON CHANGE"),
    ({"cluster_by": ["a", "A"]}, "CLUSTER BY"),
    ({"partitioned_by": "a, b, `a`"}, "PARTITIONED BY"),
]


@pytest.mark.parametrize(("kwargs", "about"), CONTRADICTIONS)
def test_contradictions(kwargs: dict[str, object], about: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Options.from_kwargs(**kwargs)
    assert caught.value.reason is Reason.CONTRADICTION
    assert caught.value.about == about
    assert caught.value.hint


def test_near_contradictions_are_fine() -> None:
    Options.from_kwargs(target_lag="1 minute", trigger_on_change=True)
    Options.from_kwargs(trigger_on_change="true", trigger_at_most_every="1 minute")
    Options.from_kwargs(row_groups_by="a", partitioned_by="a")


def test_replace_and_unset_check_the_whole() -> None:
    clustered = Options.from_kwargs(cluster_by=["a"])
    with pytest.raises(InvalidInput, match="either clustered or partitioned"):
        clustered.replace_values(parse_kwargs({"partitioned_by": ["b"]}))
    moved = clustered.unset(["CLUSTER BY"]).replace_values(parse_kwargs({"partitioned-by": ["b"]}))
    assert moved == Options(partitioned_by=("b",))


def test_unset_of_the_trigger_takes_its_limit_along() -> None:
    options = Options(trigger_on_change=True, trigger_at_most_every=60.0, comment="x")
    assert (
        options.unset(["trigger"]) == options.unset(["TRIGGER ON CHANGE"]) == Options(comment="x")
    )
    assert options.unset(["at most every"]) == Options(trigger_on_change=True, comment="x")
    with pytest.raises(InvalidInput, match="no such option"):
        options.unset(["target lak"])


def test_changed_names_the_fields() -> None:
    assert Options().changed(Options()) == []
    assert Options().changed(Options(comment="x", max_parallelism=2)) == [
        "max_parallelism",
        "comment",
    ]


def test_lag_speaks() -> None:
    assert str(TargetLag(None)) == "DOWNSTREAM"
    assert str(TargetLag(300.0)) == "5 minutes"
    assert str(TargetLag(1.5)) == "1.5 seconds"
    assert str(TargetLag(694_861.0)) == "1 week 1 day 1 hour 1 minute 1 second"


@given(st.integers(1, 3650 * 86_400))
def test_duration_round_trip(number: int) -> None:
    assert duration(duration_text(number)) == number


seconds = st.floats(1, 3650 * 86_400)
column = st.text(min_size=1)
column_lists = st.lists(column, unique_by=str.lower).map(tuple)
counts = st.integers(1, MAX_INTEGER)
anything = {
    "target_lag": st.none() | st.builds(TargetLag, st.none() | seconds),
    "trigger_on_change": st.booleans(),
    "trigger_at_most_every": st.none() | seconds,
    "refresh_mode": st.sampled_from(RefreshMode),
    "initialize": st.sampled_from(Initialize),
    "cardinality_threshold": st.none() | st.floats(0, 1, exclude_min=True),
    "deduplication": st.sampled_from(Deduplication),
    "auxiliary_columns": st.sampled_from(AuxiliaryColumns),
    "storage": st.sampled_from(Storage),
    "max_scan_bytes": st.none() | counts,
    "allow_parallel_refresh": st.booleans(),
    "parallel_threshold": counts,
    "max_parallelism": counts,
    "cluster_by": column_lists,
    "partitioned_by": column_lists,
    "row_groups_by": st.none() | column,
    "comment": st.none() | st.text(),
}


@given(st.fixed_dictionaries(anything))
def test_json_round_trip(values: dict[str, object]) -> None:
    while broken := next(contradictions(values), None):
        del values[broken.fields[0]]
    options = Options().replace_values(values)
    there = json.loads(json.dumps(options.as_json()))
    assert Options.from_json(there) == options
    assert list(there) == [spec.field for spec in SPECS]


@pytest.mark.parametrize(
    "data",
    [
        {"target_lag": 0},
        {"target_lag": True},
        {"trigger_at_most_every": 1e99},
        {"row_groups_by": 1},
    ],
)
def test_stored_values_are_checked_too(data: dict[str, object]) -> None:
    with pytest.raises(InvalidInput) as caught:
        Options.from_json(data)
    assert caught.value.reason is Reason.BAD_VALUE
