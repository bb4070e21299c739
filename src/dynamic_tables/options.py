"""The options of CREATE DYNAMIC TABLE: one table for grammar, Python, command line and docs.

`Options` are the checked values; `SPECS` says for each of them how it is spelled and what it
accepts. A new option is one field, one row in `SPECS` and one paragraph in `docs/options.md`
(tests compare the three).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import Enum, StrEnum, auto
from typing import Any

from dynamic_tables import _values
from dynamic_tables.errors import InvalidInput
from dynamic_tables.reasons import Reason

DOWNSTREAM = "DOWNSTREAM"


class RefreshMode(StrEnum):
    """Whether refreshes may be incremental."""

    AUTO = "AUTO"
    INCREMENTAL = "INCREMENTAL"
    FULL = "FULL"


class Initialize(StrEnum):
    """When the first load takes place."""

    ON_CREATE = "ON_CREATE"
    ON_SCHEDULE = "ON_SCHEDULE"


class Deduplication(StrEnum):
    """Whether rows whose values did not change are left unwritten."""

    AUTO = "AUTO"
    TRUE = "true"
    FALSE = "false"


class AuxiliaryColumns(StrEnum):
    """Whether hidden state may be stored beside the declared columns."""

    AUTO = "AUTO"
    NONE = "NONE"


class Storage(StrEnum):
    """How refreshes change the stored rows."""

    IN_PLACE = "IN_PLACE"
    MERGE_ON_READ = "MERGE_ON_READ"


@dataclass(frozen=True, slots=True)
class TargetLag:
    """How far a table may fall behind its sources."""

    seconds: float | None  # None: DOWNSTREAM, as fresh as the tables that read it ask for

    @property
    def is_downstream(self) -> bool:
        return self.seconds is None

    def __str__(self) -> str:
        return DOWNSTREAM if self.seconds is None else _values.duration_text(self.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """All options of one dynamic table; contradictions cannot be built."""

    target_lag: TargetLag | None = None  # None: refreshed by hand
    trigger_on_change: bool = False
    trigger_at_most_every: float | None = None  # seconds
    refresh_mode: RefreshMode = RefreshMode.AUTO
    initialize: Initialize = Initialize.ON_CREATE
    cardinality_threshold: float | None = None  # share of keys; None: the cost model decides
    deduplication: Deduplication = Deduplication.AUTO
    auxiliary_columns: AuxiliaryColumns = AuxiliaryColumns.AUTO
    storage: Storage = Storage.IN_PLACE
    max_scan_bytes: int | None = None  # None: no limit
    allow_parallel_refresh: bool = True
    parallel_threshold: int = 10_000_000  # affected keys from which a refresh is shared
    max_parallelism: int = 16  # slices of one refresh
    cluster_by: tuple[str, ...] = ()
    partitioned_by: tuple[str, ...] = ()
    row_groups_by: str | None = None
    comment: str | None = None

    def __post_init__(self) -> None:
        for found in contradictions(self._by_field()):
            raise InvalidInput(
                found.message,
                reason=Reason.CONTRADICTION,
                about=" and ".join(_BY_FIELD[field].name for field in found.fields),
                hint=found.hint,
            )

    def _by_field(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_kwargs(cls, **kwargs: object) -> Options:
        """From Python's or the command line's spelling; None means "not given".

        >>> Options.from_kwargs(target_lag="5 minutes", cardinality_threshold="0.5").target_lag
        TargetLag(seconds=300.0)
        """
        return cls(**parse_kwargs(kwargs))

    def as_json(self) -> dict[str, Any]:
        return {name: _to_json(value) for name, value in self._by_field().items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Options:
        """The inverse of `as_json`; a missing key has its default, an unknown one is an error."""
        values: dict[str, Any] = {}
        for field, raw in data.items():
            if field not in _BY_FIELD:
                raise unknown_option(field, list(_BY_FIELD))
            if raw is not None:
                values[field] = _from_json(_BY_FIELD[field], raw)
        return cls(**values)

    def changed(self, other: Options) -> list[str]:
        """The fields in which `other` differs, in the order of declaration."""
        mine, others = self._by_field(), other._by_field()
        return [name for name, value in mine.items() if value != others[name]]

    def replace_values(self, values: Mapping[str, Any]) -> Options:
        """ALTER … SET: checked values by field, as `parse_kwargs` and the grammar give them."""
        return replace(self, **values)

    def unset(self, names: Iterable[str]) -> Options:
        """ALTER … UNSET: back to the default; names as in SQL or in Python."""
        cleared = {spec_of(name).field for name in names}
        if "trigger_on_change" in cleared:
            cleared.add("trigger_at_most_every")
        return replace(self, **{field: DEFAULTS[field] for field in cleared})


DEFAULTS: Mapping[str, Any] = {field.name: field.default for field in fields(Options)}


class Kind(Enum):
    """What sort of value an option takes."""

    LAG = auto()  # a duration or DOWNSTREAM
    DURATION = auto()
    CHOICE = auto()
    SWITCH = auto()  # true or false
    SHARE = auto()  # 0 < x <= 1
    COUNT = auto()  # a positive integer
    COLUMNS = auto()
    COLUMN = auto()
    TEXT = auto()


@dataclass(frozen=True, slots=True)
class OptionSpec:
    """One option: how it is spelled, what it accepts, what it is for."""

    name: str  # in SQL
    field: str  # in Python; with dashes, on the command line
    kind: Kind
    doc: str
    example: str  # as in a CREATE statement
    choices: type[StrEnum] | None = None  # of Kind.CHOICE
    at_work: bool = False  # False: stored now, put to work by a later release

    @property
    def keyword(self) -> str:
        """The word by which the grammar recognises it."""
        return self.name.split()[0]

    @property
    def default(self) -> Any:
        return DEFAULTS[self.field]

    @property
    def allowed(self) -> str:
        """What it accepts, in words."""
        if self.choices is not None:
            return ", ".join(choice.value for choice in self.choices)
        return _ALLOWED[self.kind]

    def parse(self, raw: object) -> Any:
        """Check and convert a value in any spelling; InvalidInput says what is allowed."""
        try:
            value = _PARSERS[self.kind](self, raw)
        except ValueError:
            raise self.bad_value(raw) from None
        if self.kind is Kind.COLUMNS and (index := _values.repeated(value)) is not None:
            raise self.repeated_column(value[index])
        return value

    def bad_value(self, raw: object) -> InvalidInput:
        return InvalidInput(
            f"{raw!r} is not allowed; allowed: {self.allowed}",
            reason=Reason.BAD_VALUE,
            about=self.name,
            hint=f"write for example {self.example}",
        )

    def repeated_column(self, column: str) -> InvalidInput:
        return InvalidInput(
            f"the column {column!r} is listed twice",
            reason=Reason.CONTRADICTION,
            about=self.name,
            hint="list every column once; names compare without case",
        )


def _lag(raw: object) -> TargetLag:
    if isinstance(raw, TargetLag):
        return raw
    if isinstance(raw, str) and raw.strip().upper() == DOWNSTREAM:
        return TargetLag(None)
    return TargetLag(_values.duration(raw))


def _choice(spec: OptionSpec, raw: object) -> StrEnum:
    assert spec.choices is not None, spec.name
    if isinstance(raw, str | bool):
        for choice in spec.choices:
            if str(raw).strip().lower() == choice.value.lower():
                return choice
    raise ValueError(raw)


_PARSERS: Mapping[Kind, Callable[[OptionSpec, object], Any]] = {
    Kind.LAG: lambda _, raw: _lag(raw),
    Kind.DURATION: lambda _, raw: _values.duration(raw),
    Kind.CHOICE: _choice,
    Kind.SWITCH: lambda _, raw: _values.switch(raw),
    Kind.SHARE: lambda _, raw: _values.share(raw),
    Kind.COUNT: lambda _, raw: _values.count(raw),
    Kind.COLUMNS: lambda _, raw: _values.columns(raw),
    Kind.COLUMN: lambda _, raw: _values.column(raw),
    Kind.TEXT: lambda _, raw: _values.text(raw),
}

_A_DURATION = "a duration of at least 1 second such as '5 minutes' or '1 hour 30 minutes'"
_ALLOWED = {
    Kind.LAG: f"{_A_DURATION}, or DOWNSTREAM",
    Kind.DURATION: _A_DURATION,
    Kind.SWITCH: "true, false",
    Kind.SHARE: "a number greater than 0 and not greater than 1",
    Kind.COUNT: f"a whole number from 1 to {_values.MAX_INTEGER}",
    Kind.COLUMNS: "a list of column names",
    Kind.COLUMN: "one column name",
    Kind.TEXT: "a text",
}

SPECS: tuple[OptionSpec, ...] = (
    OptionSpec(
        "TARGET_LAG",
        "target_lag",
        Kind.LAG,
        "How far the table may fall behind its sources; without it, it is refreshed by hand.",
        "TARGET_LAG = '5 minutes'",
        at_work=True,
    ),
    OptionSpec(
        "TRIGGER ON CHANGE",
        "trigger_on_change",
        Kind.SWITCH,
        "Refresh as soon as a source changes.",
        "TRIGGER ON CHANGE",
        at_work=True,
    ),
    OptionSpec(
        "AT MOST EVERY",
        "trigger_at_most_every",
        Kind.DURATION,
        "The shortest time between two refreshes by TRIGGER ON CHANGE.",
        "TRIGGER ON CHANGE AT MOST EVERY '1 minute'",
        at_work=True,
    ),
    OptionSpec(
        "REFRESH_MODE",
        "refresh_mode",
        Kind.CHOICE,
        "Whether refreshes may, must or must not be incremental.",
        "REFRESH_MODE = INCREMENTAL",
        choices=RefreshMode,
        at_work=True,
    ),
    OptionSpec(
        "INITIALIZE",
        "initialize",
        Kind.CHOICE,
        "Whether the first load is part of CREATE or left to the first refresh.",
        "INITIALIZE = ON_SCHEDULE",
        choices=Initialize,
        at_work=True,
    ),
    OptionSpec(
        "CARDINALITY_THRESHOLD",
        "cardinality_threshold",
        Kind.SHARE,
        "Share of affected keys from which recomputing is preferred.",
        "CARDINALITY_THRESHOLD = 0.3",
        at_work=True,
    ),
    OptionSpec(
        "DEDUPLICATION",
        "deduplication",
        Kind.CHOICE,
        "Do not write rows whose values did not change; AUTO: when the table has consumers.",
        "DEDUPLICATION = true",
        choices=Deduplication,
        at_work=True,
    ),
    OptionSpec(
        "AUXILIARY_COLUMNS",
        "auxiliary_columns",
        Kind.CHOICE,
        "NONE: never store hidden state beside the declared columns.",
        "AUXILIARY_COLUMNS = NONE",
        choices=AuxiliaryColumns,
        at_work=True,
    ),
    OptionSpec(
        "STORAGE",
        "storage",
        Kind.CHOICE,
        "MERGE_ON_READ: refreshes append partial aggregates, readers fold them.",
        "STORAGE = MERGE_ON_READ",
        choices=Storage,
        at_work=True,
    ),
    OptionSpec(
        "MAX_SCAN_BYTES",
        "max_scan_bytes",
        Kind.COUNT,
        "A refresh that would read more bytes than this refuses.",
        "MAX_SCAN_BYTES = 1000000000",
        at_work=True,
    ),
    OptionSpec(
        "ALLOW_PARALLEL_REFRESH",
        "allow_parallel_refresh",
        Kind.SWITCH,
        "Several workers may share a large refresh.",
        "ALLOW_PARALLEL_REFRESH = false",
        at_work=True,
    ),
    OptionSpec(
        "PARALLEL_THRESHOLD",
        "parallel_threshold",
        Kind.COUNT,
        "Number of affected keys from which workers share a refresh.",
        "PARALLEL_THRESHOLD = 10000000",
        at_work=True,
    ),
    OptionSpec(
        "MAX_PARALLELISM",
        "max_parallelism",
        Kind.COUNT,
        "Largest number of slices into which a refresh is cut.",
        "MAX_PARALLELISM = 16",
        at_work=True,
    ),
    OptionSpec(
        "CLUSTER BY",
        "cluster_by",
        Kind.COLUMNS,
        "Delta's liquid clustering of the stored table.",
        "CLUSTER BY (customer, day)",
        at_work=True,
    ),
    OptionSpec(
        "PARTITIONED BY",
        "partitioned_by",
        Kind.COLUMNS,
        "Hive-style partitions of the stored table.",
        "PARTITIONED BY (day)",
        at_work=True,
    ),
    OptionSpec(
        "ROW_GROUPS BY",
        "row_groups_by",
        Kind.COLUMN,
        "Column whose values have Parquet row groups of their own; small ones share them.",
        "ROW_GROUPS BY (customer)",
        at_work=True,
    ),
    OptionSpec(
        "COMMENT",
        "comment",
        Kind.TEXT,
        "A text for people, kept in the catalog.",
        "COMMENT 'sales by customer'",
        at_work=True,
    ),
)

_BY_FIELD = {spec.field: spec for spec in SPECS}
_BY_SPELLING = {re.sub(r"\W", "_", spec.name.lower()): spec for spec in SPECS}
_BY_SPELLING |= _BY_FIELD | {"trigger": _BY_FIELD["trigger_on_change"]}


def spec_of(name: str) -> OptionSpec:
    """The option called `name` in SQL, in Python or on the command line, in any case."""
    spec = _BY_SPELLING.get(re.sub(r"[\s-]+", "_", name.strip().lower()))
    if spec is None:
        raise unknown_option(name, list(_BY_FIELD))
    return spec


def unknown_option(name: str, known: Sequence[str]) -> InvalidInput:
    """The error for an option that does not exist, with the nearest one that does."""
    folded = {candidate.lower(): candidate for candidate in known}
    near = difflib.get_close_matches(name.lower(), folded, n=1)
    hint = f"did you mean {folded[near[0]]}?" if near else f"known are: {', '.join(known)}"
    return InvalidInput("no such option", reason=Reason.UNKNOWN_OPTION, about=name, hint=hint)


def parse_kwargs(kwargs: Mapping[str, object]) -> dict[str, Any]:
    """Checked values by field, for `Options(**…)` and `replace_values`; None means "not given"."""
    given = [(spec_of(name), raw) for name, raw in kwargs.items()]
    return {spec.field: spec.parse(raw) for spec, raw in given if raw is not None}


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Two options that exclude each other."""

    fields: tuple[str, str]
    message: str
    hint: str


def contradictions(values: Mapping[str, Any]) -> Iterator[Contradiction]:
    """Every rule that `values` (by field, complete or not) break."""
    complete = {**DEFAULTS, **values}
    return (rule for applies, rule in _RULES if applies(complete))


_RULES: tuple[tuple[Callable[[Mapping[str, Any]], bool], Contradiction], ...] = (
    (
        lambda o: bool(o["cluster_by"] and o["partitioned_by"]),
        Contradiction(
            ("cluster_by", "partitioned_by"),
            "a Delta table is either clustered or partitioned",
            "keep CLUSTER BY, unless other programs rely on the partition folders",
        ),
    ),
    (
        lambda o: bool(o["row_groups_by"] and o["cluster_by"]),
        Contradiction(
            ("row_groups_by", "cluster_by"),
            "ROW_GROUPS BY and CLUSTER BY each decide the order of the rows",
            "keep one of them",
        ),
    ),
    (
        lambda o: o["storage"] == Storage.MERGE_ON_READ and o["refresh_mode"] == RefreshMode.FULL,
        Contradiction(
            ("storage", "refresh_mode"),
            "STORAGE = MERGE_ON_READ appends changes, REFRESH_MODE = FULL never has any",
            "write REFRESH_MODE = AUTO or STORAGE = IN_PLACE",
        ),
    ),
    (
        lambda o: (
            o["storage"] == Storage.MERGE_ON_READ
            and o["auxiliary_columns"] == AuxiliaryColumns.NONE
        ),
        Contradiction(
            ("storage", "auxiliary_columns"),
            "STORAGE = MERGE_ON_READ stores partial aggregates, AUXILIARY_COLUMNS = NONE "
            "forbids them",
            "write AUXILIARY_COLUMNS = AUTO or STORAGE = IN_PLACE",
        ),
    ),
    (
        lambda o: bool(
            o["target_lag"] and o["target_lag"].is_downstream and o["trigger_on_change"]
        ),
        Contradiction(
            ("target_lag", "trigger_on_change"),
            "TARGET_LAG = DOWNSTREAM waits for its readers, TRIGGER ON CHANGE does not",
            "leave one of them out",
        ),
    ),
    (
        lambda o: o["trigger_at_most_every"] is not None and not o["trigger_on_change"],
        Contradiction(
            ("trigger_at_most_every", "trigger_on_change"),
            "AT MOST EVERY limits TRIGGER ON CHANGE, which is not there",
            "write TRIGGER ON CHANGE AT MOST EVERY '1 minute'",
        ),
    ),
)


def _to_json(value: Any) -> Any:
    match value:
        case TargetLag(seconds=seconds):
            return DOWNSTREAM if seconds is None else seconds
        case Enum():
            return value.value
        case tuple():
            return list(value)
    return value


def _from_json(spec: OptionSpec, raw: Any) -> Any:
    """Stored values are plain: durations are seconds, columns are names without quotes."""
    if spec.kind in {Kind.LAG, Kind.DURATION} and isinstance(raw, int | float):
        try:
            seconds = _values.seconds(raw)
        except ValueError:
            raise spec.bad_value(raw) from None
        return TargetLag(seconds) if spec.kind is Kind.LAG else seconds
    return spec.parse([raw] if spec.kind is Kind.COLUMN else raw)
