"""Settings: flags first, then `DYNAMIC_TABLES_*`, then `dynamic-tables.toml`, then the default.

Every setting is one row of `SETTINGS`; `dynamic-tables config` prints each with its value and where
it comes from.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dynamic_tables.errors import SetupError
from dynamic_tables.reasons import Reason

CONFIG_FILE = "dynamic-tables.toml"
ENVIRONMENT_PREFIX = "DYNAMIC_TABLES_"
HISTORY_DAYS = 90  # unless somebody says otherwise


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingSpec:
    """One setting: its name in the file, its type and default, and what it is for."""

    name: str
    kind: type
    default: Any
    doc: str
    choices: tuple[str, ...] = ()
    may_be_zero: bool = False  # a number, which else is positive
    at_least: int = 0  # a number
    pattern: str = ""  # of a text
    example: str = ""  # what fits the pattern, or is large enough

    @property
    def environment(self) -> str:
        return ENVIRONMENT_PREFIX + self.name.upper()


SETTINGS = (
    SettingSpec(
        name="lake",
        kind=str,
        default="./lake",
        doc="the folder of the embedded lake; ducklake:folder for one on DuckDB",
    ),
    SettingSpec(
        name="store",
        kind=str,
        default="",
        doc="URL of the metadata store; empty: an SQLite file in the lake's folder",
    ),
    SettingSpec(
        name="warehouse",
        kind=str,
        default="",
        doc="where the tables of a cluster lie, e.g. s3a://bucket/lake, instead of a folder; Spark "
        "starts as its own configuration says, and the store is given",
    ),
    SettingSpec(
        name="allowed_roots",
        kind=str,
        default="",
        doc="folders outside the lake that delta.`path` relations may read, separated by commas",
    ),
    SettingSpec(
        name="master",
        kind=str,
        default="",
        doc="Spark's master, e.g. spark://host:7077; empty: local, in this process's own JVM",
    ),
    SettingSpec(
        name="jvm",
        kind=str,
        default="steady",
        choices=("steady", "quick"),
        doc="how the embedded JVM compiles: `quick` starts faster, `steady` computes faster",
    ),
    SettingSpec(
        name="memory",
        kind=str,
        default="2g",
        doc="heap of the embedded JVM, as Java spells it",
        pattern=r"[1-9]\d*[kmgt]?",
        example="a size such as 512m or 2g",
    ),
    SettingSpec(
        name="threads",
        kind=int,
        default=4,
        doc="how many tables of one refresh are refreshed at once",
    ),
    SettingSpec(
        name="claim_expires_s",
        kind=float,
        default=60.0,
        doc="seconds without heartbeat after which another process may take over a refresh",
    ),
    SettingSpec(
        name="lock_wait_s",
        kind=float,
        default=30.0,
        doc="seconds to wait for another process that commits to the same table",
    ),
    SettingSpec(
        name="failures_until_suspended",
        kind=int,
        default=5,
        doc="failures in a row after which a table is suspended",
    ),
    SettingSpec(
        name="poll_s",
        kind=float,
        default=5.0,
        doc="seconds between two looks of `run` and `worker` at base tables and queue",
    ),
    SettingSpec(
        name="retry_s",
        kind=float,
        default=10.0,
        doc="seconds until a refresh that failed for its surroundings is tried again; doubled "
        "with each failure in a row",
    ),
    SettingSpec(
        name="parallel_refresh",
        kind=str,
        default="on",
        choices=("on", "off"),
        doc="whether several workers may share the refresh of one large table",
    ),
    SettingSpec(
        name="parallel_max_workers",
        kind=int,
        default=16,
        doc="slices of one refresh, at most; a table's MAX_PARALLELISM may be less",
    ),
    SettingSpec(
        name="parallel_timeout_s",
        kind=float,
        default=3600.0,
        doc="seconds after which a refresh whose slices are not all computed is given up",
    ),
    SettingSpec(
        name="parallel_worth_s",
        kind=float,
        default=120.0,
        may_be_zero=True,
        doc="a refresh that one worker would do in fewer seconds, as history tells, is not shared",
    ),
    SettingSpec(
        name="history_days",
        kind=int,
        default=HISTORY_DAYS,
        at_least=2,  # the share of time within the target is about the last day
        example="a number of days, at least 2",
        doc="days for which the history of refreshes is kept; of each table the newest 50 stay",
    ),
    SettingSpec(
        name="compact_files",
        kind=int,
        may_be_zero=True,
        default=48,  # Delta's checksum names the files of tables that have up to 50
        doc="small files of a table at which a refresh compacts it; 0: never",
    ),
    SettingSpec(
        name="compact_percent",
        kind=int,
        may_be_zero=True,
        default=50,
        doc="percent of partial rows in a MERGE_ON_READ table, or of bytes out of the order of "
        "ROW_GROUPS BY, above which a refresh compacts a table; 0: never",
    ),
    SettingSpec(
        name="jar_cache",
        kind=str,
        default="",
        doc="folder for Delta's jars; empty: the user's cache",
    ),
)
_BY_NAME = {spec.name: spec for spec in SETTINGS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The effective settings of a process."""

    values: Mapping[str, Any] = field(repr=False)  # the store's password may be among them
    origins: Mapping[str, str]  # default | the file's path | the variable's name | flag

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    @property
    def allowed_roots(self) -> tuple[str, ...]:
        return tuple(root.strip() for root in self["allowed_roots"].split(",") if root.strip())


def load_settings(
    flags: Mapping[str, Any] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Settings:
    """Merge the four places; unknown names and bad values are refused with their origin."""
    environment = os.environ if environment is None else environment
    values = {spec.name: spec.default for spec in SETTINGS}
    origins = dict.fromkeys(values, "default")
    layers = [_from_file(folder or Path.cwd()), _from_environment(environment)]
    layers.append(
        {key: (value, "flag") for key, value in (flags or {}).items() if value is not None}
    )
    for layer in layers:
        for name, (raw, origin) in layer.items():
            values[name] = _converted(name, raw, origin)
            origins[name] = origin
    return Settings(values=values, origins=origins)


def masked(text: str) -> str:
    """A URL without its passwords; what is taken for one is what SQLAlchemy takes for one.

    >>> masked("postgresql://me:secret@db/lake?sslpassword=other")
    'postgresql://me:***@db/lake?sslpassword=***'
    >>> masked("postgresql://me@tenant:my secret@db/lake")
    'postgresql://me@tenant:***@db/lake'
    >>> masked("host=db user=me password='my secret'")
    'host=db user=me password=***'
    """
    hidden = re.sub(r"(?s)(://[^:/]*):.*@", r"\1:***@", text)
    hidden = re.sub(r"(?i)([?&][^=&]*password=)[^&]*", r"\1***", hidden)
    return re.sub(r"(?i)(\bpassword\s*=\s*)('[^']*'|[^&\s]+)", r"\1***", hidden)


def _from_file(folder: Path) -> dict[str, tuple[Any, str]]:
    path = folder / CONFIG_FILE
    if not path.is_file():
        return {}
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SetupError(
            f"cannot be read: {error}",
            reason=Reason.BAD_SETTING,
            about=CONFIG_FILE,
            hint='a line a setting, as in lake = "./lake"; texts stand in quotes',
        ) from error
    return {name: (value, CONFIG_FILE) for name, value in content.items()}


def _from_environment(environment: Mapping[str, str]) -> dict[str, tuple[Any, str]]:
    """Known settings only: other variables with our prefix may be somebody else's."""
    found = {}
    for spec in SETTINGS:
        if spec.environment in environment:
            found[spec.name] = (environment[spec.environment], spec.environment)
    return found


def _converted(name: str, raw: Any, origin: str) -> Any:
    spec = _BY_NAME.get(name)
    if spec is None:
        raise SetupError(
            "there is no such setting",
            reason=Reason.BAD_SETTING,
            about=f"{name} ({origin})",
            hint="settings: " + ", ".join(_BY_NAME),
        )
    try:
        value = spec.kind(raw)
    except (TypeError, ValueError):
        value = None
    good = value is not None and (not spec.choices or value in spec.choices)
    if spec.kind is not str and good:
        good = value > 0 or (value == 0 and spec.may_be_zero)
        good = good and value >= spec.at_least
    if spec.pattern and good:
        good = re.fullmatch(spec.pattern, str(value), re.IGNORECASE) is not None
    if not good:
        number = f"a positive {spec.kind.__name__}{' or 0' if spec.may_be_zero else ''}"
        allowed = " or ".join(spec.choices) or spec.example or number
        raise SetupError(
            f"{raw!r} is not {allowed}",
            reason=Reason.BAD_SETTING,
            about=f"{name} ({origin})",
            hint=f"{name} is {spec.doc}; the default is {spec.default}",
        )
    return value
