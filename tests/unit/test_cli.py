"""The command line without Spark: flags, settings, errors, exit codes."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.text import Text

from dynamic_tables.cli import program, session
from dynamic_tables.cli.tools import statements
from dynamic_tables.cli.working import _signals
from dynamic_tables.connect import WAREHOUSE
from dynamic_tables.declare import Declared
from dynamic_tables.errors import Held, InvalidInput, Refused, SetupError
from dynamic_tables.layout.report import Became, PartitionReport, RorderReport
from dynamic_tables.model import Action, Outcome, RefreshRecord, RefreshReport
from dynamic_tables.names import TableName
from dynamic_tables.options import SPECS
from dynamic_tables.reasons import Reason
from dynamic_tables.refresh.context import SliceNews
from dynamic_tables.settings import SETTINGS, load_settings

NAME = TableName("spark_catalog", "sales", "by_day")
VERBS = [
    "create",
    "alter",
    "drop",
    "refresh",
    "plan",
    "explain",
    "list",
    "show",
    "history",
    "graph",
    "verify",
    "optimize",
    "sql",
    "config",
    "doctor",
    "demo",
    "suspend",
    "resume",
    "run",
    "worker",
]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of the developer's own."""
    monkeypatch.chdir(tmp_path)
    for spec in SETTINGS:
        monkeypatch.delenv(spec.environment, raising=False)
    monkeypatch.setenv("COLUMNS", "120")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(program, list(arguments))


class FakeTables:
    """Stands for `DynamicTables`; every method records its call and gives or raises `answer`."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.cancelled = self.closed = False
        self.lake = SimpleNamespace(faults=(), cancel=self._cancel, progress=list)

    def _cancel(self) -> None:
        self.cancelled = True

    def close(self) -> None:
        self.closed = True

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append((method, args, kwargs))
            if isinstance(self.answer, BaseException):
                raise self.answer
            return self.answer

        return call


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], FakeTables]:
    def install(answer: Any) -> FakeTables:
        Path("lake", WAREHOUSE).mkdir(parents=True, exist_ok=True)  # most verbs make no lake
        tables = FakeTables(answer)
        monkeypatch.setattr(session, "connect", lambda **_: tables)
        return tables

    return install


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever starts Spark fails."""

    def refuse(**_: Any) -> None:
        pytest.fail("this must be refused before Spark starts")

    monkeypatch.setattr(session, "connect", refuse)


# Help and settings.


def test_help_names_every_verb_and_setting() -> None:
    text = run("--help").stdout
    assert all(f"\n  {verb} " in text for verb in VERBS)
    assert all(f"--{spec.name.replace('_', '-')}" in text for spec in SETTINGS)
    assert "--json " in text
    assert "--debug " in text
    assert sorted(program.commands) == sorted(VERBS)


def test_without_a_verb_there_is_help() -> None:
    result = run()
    assert result.exit_code == 0
    assert result.stdout.startswith("Usage:")


@pytest.mark.parametrize("verb", ["create", "alter"])
def test_every_option_of_a_table_is_a_flag(verb: str) -> None:
    text = run(verb, "--help").stdout
    assert all(f"--{spec.field.replace('_', '-')} " in text for spec in SPECS)


def test_spark_is_not_even_imported() -> None:
    code = (
        "import sys\n"
        "from dynamic_tables.cli import program\n"
        "for arguments in ['--help'], ['config'], ['create', 'x'], ['refresh', 'a-b']:\n"
        "    try: program.main(arguments)\n"
        "    except SystemExit: pass\n"
        "    assert 'pyspark' not in sys.modules, arguments\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_settings_come_from_four_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dynamic-tables.toml").write_text('lake = "from_file"\nmemory = "1g"\nthreads = 2')
    monkeypatch.setenv("DYNAMIC_TABLES_MEMORY", "3g")
    monkeypatch.setenv("DYNAMIC_TABLES_THREADS", "8")
    result = run("--threads", "9", "config", "--json", "--jvm", "quick")
    found = {item["name"]: (item["value"], item["origin"]) for item in json.loads(result.stdout)}
    assert list(found) == [spec.name for spec in SETTINGS]
    assert found["lake"] == ("from_file", "dynamic-tables.toml")
    assert found["memory"] == ("3g", "DYNAMIC_TABLES_MEMORY")
    assert found["threads"] == (9, "flag")
    assert found["jvm"] == ("quick", "flag")
    assert found["store"] == ("", "default")


STORES_WITH_PASSWORDS = pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:s3cr3t@db/lake",
        "postgresql://me@tenant:s3cr3t@db/lake",
        "postgresql://me:my s3cr3t@db/lake",
        "postgresql://db/lake?user=me&password=s3cr3t",
        "postgresql://db/lake?user=me&password=my s3cr3t",
        "host=db password=s3cr3t",
    ],
)


@STORES_WITH_PASSWORDS
@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_config_masks_secrets(url: str, flags: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYNAMIC_TABLES_STORE", url)
    result = run("config", *flags)
    assert "s3cr3t" not in f"{result.output}{load_settings({})}"
    assert "***" in result.stdout


@STORES_WITH_PASSWORDS
def test_a_password_on_the_command_line_is_refused(url: str) -> None:
    result = run("--store", url, "config")
    assert result.exit_code == 2
    assert "s3cr3t" not in result.output
    assert "DYNAMIC_TABLES_STORE" in result.stderr


@pytest.mark.parametrize(
    ("flag", "value"), [("--jvm", "slow"), ("--threads", "none"), ("--lock-wait-s", "-1")]
)
def test_bad_settings_are_bad_input(flag: str, value: str) -> None:
    result = run(flag, value, "config")
    assert result.exit_code == 2
    assert f"{flag[2:].replace('-', '_')} (flag)" in result.stderr
    assert "[BAD_SETTING]" in result.stderr
    assert "hint: " in result.stderr


def test_a_file_that_is_no_toml(tmp_path: Path) -> None:
    (tmp_path / "dynamic-tables.toml").write_text("lake = ./lake")
    result = run("config")
    assert result.exit_code == 2
    assert "hint: a line a setting" in result.stderr


def test_an_unknown_setting_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "dynamic-tables.toml").write_text("laek = 'x'")
    result = run("config")
    assert result.exit_code == 2
    assert "laek (dynamic-tables.toml)" in result.stderr


# Bad input, before Spark starts.


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["create"], "Missing argument"),
        (["sql", ""], "there is no statement [NO_QUERY]"),
        (["sql", " ; -- nothing"], "there is no statement [NO_QUERY]"),
        (["demo", "--json"], "it has no data for --json"),
        (["create", "x"], "one of --query and --file is needed [NO_QUERY]"),
        (["create", "x", "--query", "SELECT 1", "--nonsense", "1"], "No such option"),
        (["create", "x", "--query", "SELECT 1", "--file", "nowhere.sql"], "No such file"),
        (["create", "a-b", "--query", "SELECT 1"], "[BAD_NAME]"),
        (["create", "x", "--query", "SELECT 1", "--target-lag", "soon"], "[BAD_VALUE]"),
        (
            ["create", "x", "--query", "S", "--cluster-by", "a", "--partitioned-by", "b"],
            "[CONTRADICTION]",
        ),
        (["create", "x", "--query", "S", "--or-alter", "--or-replace"], "exclude each other"),
        (["alter", "x"], "nothing to change"),
        (["alter", "x", "--rename-to", "y", "--comment", "z"], "[CONTRADICTION]"),
        (["alter", "x", "--unset", "TARGET_LOG"], "did you mean target_lag?"),
        (["alter", "x", "--cardinality-threshold=7"], "[BAD_VALUE]"),
        (["refresh", "a b"], "[BAD_NAME]"),
        (["history", "x", "--limit", "0"], "range"),
        (["sql"], "either a text or --file is needed"),
        (["sql", "SELECT 1; CREATE DYNAMIC TABLE x AS"], "[NO_QUERY]"),
        (["sql", "SELECT 'open"], "never closed"),
        (["lst"], "did you mean list?"),
        (["list"], "there is no lake here"),
    ],
)
def test_bad_input(arguments: list[str], said: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert said in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.usefixtures("no_spark")
def test_looking_at_no_lake_makes_none(tmp_path: Path) -> None:
    for verb in ("list", "history", "graph"):
        run("--lake", "there", verb)
    assert list(tmp_path.iterdir()) == []


# Exit codes and the shape of errors.


def record(reason: Reason, outcome: Outcome = Outcome.FAILED) -> RefreshRecord:
    return RefreshRecord(
        refresh_id="r1",
        table=NAME,
        table_id="t1",
        action=Action.SKIP,
        outcome=outcome,
        reason=reason,
        started_at=datetime(2025, 1, 1, tzinfo=UTC),
        duration_ms=5,
        error="it went wrong",
        note="mend it",
    )


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidInput("wrong", reason=Reason.SYNTAX), 2),
        (SetupError("no Java", reason=Reason.JAVA_MISSING), 2),
        (Refused("children", reason=Reason.HAS_CHILDREN), 4),
        (Held("another process", reason=Reason.HELD), 5),
        (RuntimeError("a defect"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_codes(fake: Callable[[Any], FakeTables], error: BaseException, code: int) -> None:
    tables = fake(error)
    result = run("drop", "x")
    assert result.exit_code == code
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert tables.closed
    assert tables.cancelled is isinstance(error, KeyboardInterrupt)


@pytest.mark.parametrize(
    ("reason", "code"),
    [(Reason.QUERY_FAILED, 3), (Reason.HELD, 5), (Reason.TAKEN_OVER, 5)],
)
def test_a_failing_refresh_prints_its_report(
    fake: Callable[[Any], FakeTables], reason: Reason, code: int
) -> None:
    fake(RefreshReport(refresh_id="r1", records=(record(reason),)))
    result = run("refresh", "--json")
    assert result.exit_code == code
    assert json.loads(result.stdout)["tables"][0]["reason"] == reason.value
    assert json.loads(result.stderr)["reason"] == reason.value
    assert "  sales.by_day: it went wrong\n    hint: mend it\n" in run("refresh").stdout


@pytest.mark.parametrize(
    ("reasons", "code"),
    [
        ({Reason.HELD, Reason.TAKEN_OVER}, 5),
        ({Reason.HELD, Reason.NO_EXCLUSION}, 4),
        ({Reason.HELD, Reason.SCAN_LIMIT}, 4),
        ({Reason.NO_EXCLUSION, Reason.MODE_REFUSES_FULL}, 4),
        ({Reason.HELD, Reason.NO_EXCLUSION, Reason.QUERY_FAILED}, 3),
    ],
)
def test_what_was_only_refused_or_held_has_not_failed(
    fake: Callable[[Any], FakeTables], reasons: set[Reason], code: int
) -> None:
    fake(RefreshReport(refresh_id="r1", records=tuple(map(record, reasons))))
    assert run("refresh").exit_code == code


def test_the_one_shape_of_errors(fake: Callable[[Any], FakeTables]) -> None:
    fake(Refused("it has [children]", reason=Reason.HAS_CHILDREN, about="x", hint="CASCADE"))
    expected = {
        "error": "it has [children]",
        "reason": "HAS_CHILDREN",
        "about": "x",
        "hint": "CASCADE",
    }
    assert json.loads(run("drop", "x", "--json").stderr) == expected
    assert run("drop", "x").stderr == "x: it has [children] [HAS_CHILDREN]\n  hint: CASCADE\n"
    assert json.loads(run("--json", "drop").stderr).keys() == expected.keys()


def test_unexpected_errors_ask_for_a_report(fake: Callable[[Any], FakeTables]) -> None:
    fake(RuntimeError("two\nlines"))
    result = run("drop", "x")
    assert "RuntimeError: two lines" in result.stderr
    assert "please report" in result.stderr
    assert "Traceback" in run("drop", "x", "--debug").stderr


def test_interrupted_is_one_line(fake: Callable[[Any], FakeTables]) -> None:
    fake(KeyboardInterrupt())
    lines = run("plan").stderr.strip().splitlines()
    assert len(lines) == 1
    assert "[INTERRUPTED]" in lines[0]


# What reaches the product.


def test_alter_as_written_in_the_design(fake: Callable[[Any], FakeTables]) -> None:
    tables = fake(Declared(table=NAME, did="altered"))
    result = run("alter", "product_sales", "--cardinality-threshold=0.5")
    assert result.exit_code == 0
    assert result.stdout == "sales.by_day: altered\n"
    (method, args, options) = tables.calls[0]
    given = {name: value for name, value in options.items() if value}
    assert (method, args, given) == ("alter", ("product_sales",), {"cardinality_threshold": "0.5"})


def test_create_from_a_file(fake: Callable[[Any], FakeTables], tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text("SELECT 1 AS one")
    tables = fake(Declared(table=NAME, did="created", notes=("a note",)))
    arguments = ("--file", "q.sql", "--or-alter", "--trigger-on-change", "--cluster-by", "a,b")
    assert run("create", "x", *arguments).stdout == "sales.by_day: created\nnote: a note\n"
    (_, args, options) = tables.calls[0]
    assert args == ("x", "SELECT 1 AS one")
    assert options["or_alter"]
    assert options["trigger_on_change"] == "true"
    assert options["cluster_by"] == "a,b"


@pytest.mark.parametrize(
    ("flags", "strategy"),
    [((), None), (("--full",), "full"), (("--strategy", "keys"), "keys")],
)
def test_refresh_passes_its_flags(
    fake: Callable[[Any], FakeTables], flags: tuple[str, ...], strategy: str | None
) -> None:
    tables = fake(RefreshReport(refresh_id="r", records=()))
    assert run("refresh", "a", "s.`b c`", "--upstream", *flags).exit_code == 0
    assert tables.calls == [
        (
            "refresh",
            ("a", "s.`b c`"),
            {"upstream": True, "strategy": strategy, "on_error": "report"},
        )
    ]


def test_a_strategy_that_there_is_not() -> None:
    result = run("refresh", "--strategy", "magic")
    assert result.exit_code == 2
    assert "append" in result.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" ;; -- nothing\n ; ", []),
        ("SELECT 1", ["SELECT 1"]),
        (
            "SELECT 1;\nSELECT ';', `a;b`, \";\" /* ; */;",
            ["SELECT 1", "SELECT ';', `a;b`, \";\" /* ; */"],
        ),
        ("-- say; why\nSELECT 1; SELECT 2 -- end", ["-- say; why\nSELECT 1", "SELECT 2 -- end"]),
    ],
)
def test_statements_are_cut_as_spark_cuts(text: str, expected: list[str]) -> None:
    assert list(statements(text)) == expected


def test_doctor_without_spark(tmp_path: Path) -> None:
    result = run("doctor", "--no-spark", "--json", "--lake", "new")
    data = json.loads(result.stdout)
    assert result.exit_code == (0 if data["ok"] else 2)
    assert {"python", "java", "packages", "lake folder", "disk space", "store"} <= {
        check["name"] for check in data["checks"]
    }
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("warehouse", "said"),
    [("s3a://bucket/lake", "a second one is refused"), ("hdfs://host/lake", "excludes writers")],
)
def test_doctor_tells_whether_a_warehouse_takes_several_workers(
    warehouse: str, said: str, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    result = run("doctor", "--no-spark", "--warehouse", warehouse, "--store", store, "--json")
    checks = {check["name"]: check for check in json.loads(result.stdout)["checks"]}
    assert said in checks["other writers"]["detail"]
    assert ("DynamoDB" in (checks["other writers"]["hint"] or "")) == warehouse.startswith("s3a")
    assert "lake folder" not in checks


@pytest.mark.parametrize("verb", ["list", "plan", "doctor"])
def test_a_warehouse_needs_a_store(verb: str) -> None:
    flags = ["--no-spark"] if verb == "doctor" else []
    result = run(verb, *flags, "--warehouse", "s3a://bucket/lake")
    assert result.exit_code == 2
    assert "a store is needed" in " ".join(result.output.split())


def test_a_folder_or_a_warehouse() -> None:
    flags = ["--warehouse", "s3a://bucket/lake", "--lake", "./here", "--store", "sqlite:///s.db"]
    Path("s.db").touch()
    result = run("plan", *flags)
    assert result.exit_code == 2
    assert "keeps its warehouse in its own folder" in result.stderr


def test_doctor_fails_on_a_broken_store(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "dynamic_tables.db").write_text("not a database " * 100)
    result = run("doctor", "--no-spark", "--json")
    assert result.exit_code == 2
    store = next(c for c in json.loads(result.stdout)["checks"] if c["name"] == "store")
    assert not store["ok"]


@pytest.mark.usefixtures("no_spark")
def test_the_demo_wants_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "something").write_text("mine")
    result = run("demo", "--keep", str(tmp_path))
    assert result.exit_code == 2
    assert "[ALREADY_EXISTS]" in result.stderr


def test_sizes_of_row_groups_are_passed_on(fake: Callable[[Any], FakeTables]) -> None:
    tables = fake(
        RorderReport(table="t", unique_by="k", engine="arrow", version=None, partitions=())
    )
    sizes = {"values_per_row_group": 5, "rows_per_row_group": 700, "max_row_group_bytes": 9000}
    flags = [part for name, n in sizes.items() for part in (f"--{name.replace('_', '-')}", str(n))]
    assert run("optimize", "t", "--row-groups-by", "k", *flags).exit_code == 0
    assert run("optimize", "t", "--row-groups-by", "k").exit_code == 0
    given = [{name: how[name] for name in sizes if name in how} for _, _, how in tables.calls]
    assert given == [sizes, {}]


def test_partitions_that_were_all_changed_are_to_be_done_again(
    fake: Callable[[Any], FakeTables],
) -> None:
    sizes = {"files_before": 2, "bytes_before": 9, "files_after": 2, "bytes_after": 9}
    changed = PartitionReport(partition={}, became=Became.CHANGED, **sizes)
    fake(
        RorderReport(table="t", unique_by="k", engine="arrow", version=None, partitions=(changed,))
    )
    shown = run("optimize", "t", "--row-groups-by", "k").stdout
    assert "run it again" in shown
    assert "nothing to do" not in shown


def test_sizes_of_row_groups_belong_to_a_column(no_spark: None) -> None:
    assert "CONTRADICTION" in run("optimize", "t", "--values-per-row-group", "5").stderr
    assert run("optimize", "t", "--row-groups-by", "k", "--rows-per-row-group", "0").exit_code == 2


class Halting(io.StringIO):
    """A stream that others may come between the halves of whatever is written to it."""

    def write(self, text: str) -> int:
        for half in (text[: len(text) // 2], text[len(text) // 2 :]):
            super().write(half)
            time.sleep(0.001)
        return len(text)


@pytest.mark.parametrize("as_json", [False, True])
def test_lines_from_many_threads_are_whole(as_json: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, invocation = Halting(), session.Invocation(json=as_json)
    monkeypatch.setattr(sys, "stdout", stream)
    with ThreadPoolExecutor(8) as pool:
        for number in range(40):
            pool.submit(invocation.line, {"number": number}, Text(f"line {number}"))
    monkeypatch.undo()
    wanted = [f'{{"number": {n}}}' if as_json else f"line {n}" for n in range(40)]
    assert sorted(stream.getvalue().splitlines()) == sorted(wanted)


def test_a_second_signal_stops_at_once_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    stopped: list[str] = []
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    worker: Any = SimpleNamespace(stop=lambda: stopped.append("asked"))
    with _signals(worker):
        os.kill(os.getpid(), signal.SIGTERM)
        assert (stopped, codes) == (["asked"], [])
        os.kill(os.getpid(), signal.SIGTERM)
    assert codes == [130]
    assert "stopped at once" in capfd.readouterr().err


def test_what_is_told_of_slices() -> None:
    told = [
        SliceNews(table="shop.t", what="created", count=4),
        SliceNews(table="shop.t", what="completed", slice_no=3, seconds=1.234),
        SliceNews(
            table="shop.t",
            what="failed",
            slice_no=3,
            reason=Reason.ENGINE_FAILED,
            error="no executor is left",
        ),
    ]
    assert [str(news) for news in told] == [
        "shop.t: shared in 4 slices",
        "shop.t: slice 3 completed, 1.23 s",
        "shop.t: slice 3 failed (ENGINE_FAILED): no executor is left",
    ]
    assert told[2].as_json() == {
        "table": "shop.t",
        "what": "failed",
        "slice": 3,
        "slices": None,
        "seconds": None,
        "reason": "ENGINE_FAILED",
        "error": "no executor is left",
    }


def test_optimize_of_an_ordinary_table_says_how(fake: Callable[[Any], FakeTables]) -> None:
    unknown = InvalidInput(
        "there is no dynamic table of this name",
        reason=Reason.UNKNOWN_TABLE,
        about="s.default.t",
        hint="there are: s.default.other",
    )
    fake(unknown)
    told = json.loads(run("optimize", "t", "--json").stderr)
    assert told["reason"] == "UNKNOWN_TABLE"
    assert told["hint"].startswith(
        "of a Delta table that is not dynamic: dynamic-tables optimize t"
    )
    assert "--row-groups-by COLUMN" in told["hint"]
