"""The command line over a DuckLake: the same verbs, no JVM."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import dynamic_tables as dt
from dynamic_tables.cli import program
from dynamic_tables.connect import STORE_FILE
from dynamic_tables.settings import SETTINGS
from dynamic_tables.store import Claimant, open_store

QUERY = "SELECT customer, sum(amount) AS total FROM orders GROUP BY customer"
ORDERS = (
    "CREATE TABLE orders (id INT, customer INT, amount INT);"
    "INSERT INTO orders VALUES (1, 1, 5), (2, 1, 6), (3, NULL, 7)"
)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for spec in SETTINGS:
        monkeypatch.delenv(spec.environment, raising=False)
    monkeypatch.setenv("COLUMNS", "120")


def run(*arguments: str, exit_code: int = 0) -> Result:
    result = CliRunner().invoke(program, ["--lake", "ducklake:./lake", *arguments])
    assert result.exit_code == exit_code, result.output
    return result


def data(*arguments: str) -> Any:
    return json.loads(run(*arguments, "--json").stdout)


def test_verbs() -> None:
    run("list", exit_code=2)  # looking at a lake that is not there does not make one
    run("sql", ORDERS)
    assert data("create", "totals", "--query", QUERY)["did"] == "created"
    run("sql", "INSERT INTO orders VALUES (4, 1, 1)")
    (planned,) = data("plan")
    assert (planned["reason"], planned["strategy"]) == ("CHANGED", "merge")
    assert data("explain", "totals")["next_refresh"] == planned
    assert "merge (CHANGED)" in run("explain", "totals").stdout
    run("suspend", "totals")
    assert data("explain", "totals")["next_refresh"]["reason"] == "SUSPENDED"
    run("resume", "totals")
    (refreshed,) = data("refresh")["tables"]
    assert (refreshed["table"], refreshed["outcome"]) == ("main.totals", "done")
    assert [row["ok"] for row in data("verify")] == [True]
    assert [row["table"] for row in data("list")] == ["main.totals"]
    assert [row["reason"] for row in data("history", "totals")] == ["CHANGED", "FIRST_LOAD"]
    assert data("show", "totals")["newest"].keys() == {"main.orders"}
    (answer,) = data("sql", "SELECT customer, total::INT AS total FROM totals ORDER BY customer")
    assert (answer["columns"], answer["rows"]) == (["customer", "total"], [[1, 12], [None, 7]])
    assert "AT (VERSION" in data("explain", "totals")["pinned_sql"]
    assert "totals" in run("graph").stdout
    assert data("doctor")["ok"]
    assert "syntax error" in run("sql", "SELEC 1", exit_code=2).output
    run("drop", "totals")
    assert data("list") == []


def contracts() -> tuple[str, bool]:
    """What `doctor` says of them, and whether something is to be done."""
    [row] = [row for row in data("doctor")["checks"] if row["name"] == "tables with a contract"]
    return row["detail"], row["hint"] is not None


def test_list_and_show_tell_how_fresh_a_table_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # a row is a line
    run("sql", ORDERS)
    run("create", "totals", "--query", QUERY, "--target-lag", "1 hour")
    run("sql", "INSERT INTO orders VALUES (4, 1, 1)")
    with dt.connect("ducklake:./lake", say=lambda _: None) as tables:
        assert tables.worker(slots=1, say=lambda _: None).drain() == []  # it looks, that is all
    lag = data("show", "totals")["lag"]
    for told in (lag, data("list")[0]["lag"]):
        assert told.keys() == {"target_s", "behind_s", "seen_s", "within", "next_refresh"}
        assert (told["target_s"], told["within"]) == (3600.0, 1.0)
        assert 0 <= told["seen_s"] <= told["behind_s"] < 600
        assert told["behind_s"] > 0
        assert told["next_refresh"] == lag["next_refresh"]
    due = datetime.fromisoformat(lag["next_refresh"]).astimezone()
    assert re.search(r"^next refresh +.+, nobody runs *$", run("show", "totals").stdout, re.M)
    assert re.search(r", nobody runs *$", run("list").stdout.splitlines()[2])
    assert contracts() == ("1; nobody runs", True)
    with open_store(Path("lake") / STORE_FILE) as store:
        store.enter(Claimant(owner="a:1:b:c", host="elsewhere", pid=1, expires_s=600.0))
    assert contracts() == ("1, 1 at work", False)
    shown = run("show", "totals").stdout
    assert re.search(r"^behind +[\w ]+ \(100% in time\) *$", shown, re.M)
    assert re.search(r"^target +1 hour *$", shown, re.M)
    assert re.search(rf"^next refresh +{due:%Y-%m-%d %H:%M:%S} *$", shown, re.M)
    heading, _, row, *_ = run("list").stdout.splitlines()
    assert heading.split()[-2:] == ["behind", "next"]
    assert re.search(rf"  [\w ]+ \(100% in time\)  .*{due:%H:%M:%S} *$", row)
    run("refresh")
    assert [told["lag"]["behind_s"] for told in (data("show", "totals"), *data("list"))] == [0, 0]
    for verb in (["show", "totals"], ["list"]):
        assert "  no (100% in time)" in run(*verb).stdout
    run("sql", "ALTER TABLE orders SET PARTITIONED BY (customer)")  # a version without other rows
    assert "  no (100% in time)" in run("show", "totals").stdout
    run("sql", "INSERT INTO orders VALUES (5, 1, 1)")
    assert "yes, since the last look" in run("show", "totals").stdout
    assert "  no (100% in time)" in run("list").stdout  # which looks at the store alone


@pytest.mark.parametrize(
    "words",
    [["verify"], ["refresh"], ["plan"], ["run", "--once"], ["run"], ["list"], ["drop", "t"],
     ["optimize", "t"], ["explain", "t"], ["show", "t"]],
)  # fmt: skip
def test_a_lake_that_is_not_there_is_not_made(words: list[str]) -> None:
    done = CliRunner().invoke(program, ["--lake", "ducklake:./typo", *words])
    assert (done.exit_code, "there is no lake here" in done.stderr) == (2, True), done.stderr
    assert not Path("typo").exists()


@pytest.mark.parametrize("words", [["list"], ["history"], ["show", "totals"], ["refresh"]])
def test_a_store_that_is_not_there_is_not_made(words: list[str]) -> None:
    run("sql", ORDERS)
    run("create", "totals", "--query", QUERY)
    done = CliRunner().invoke(program, [*words, "--store", "sqlite:///nope/x.db"])
    assert (done.exit_code, "there is no store here" in done.stderr) == (2, True), done.stderr
    assert not Path("nope").exists()


def test_a_new_lake_is_not_opened_with_the_store_of_another_one() -> None:
    run("sql", ORDERS)
    run("create", "totals", "--query", QUERY)
    theirs = f"sqlite:///{Path('lake').absolute() / STORE_FILE}"
    words = ["--lake", "ducklake:./fresh", "sql", ORDERS, "--store", theirs]
    done = CliRunner().invoke(program, words)
    assert (done.exit_code, "tables of another one" in done.stderr) == (2, True), done.stderr
    assert not Path("fresh").exists()


def test_an_empty_list_tells_which_store_it_is() -> None:
    run("sql", ORDERS)
    other = f"sqlite:///{Path('other.db').absolute()}"
    with open_store(other):
        pass
    assert f"no dynamic tables yet in {other};" in " ".join(
        run("list", "--store", other).stdout.split()
    )


def test_list_and_show_tell_that_nobody_has_looked() -> None:
    run("sql", ORDERS)
    waiting = ("--initialize", "ON_SCHEDULE", "--target-lag", "1 hour")
    run("create", "totals", "--query", QUERY, *waiting)
    for told in (data("show", "totals")["lag"], data("list")[0]["lag"]):
        assert told["target_s"] == 3600
        assert {told[key] for key in ("behind_s", "seen_s", "within")} == {None}
    shown = run("show", "totals").stdout
    assert re.search(r"^target +1 hour *$", shown, re.M)
    assert "in time" not in shown + run("list").stdout


def test_a_lost_store_is_rebuilt() -> None:
    run("sql", ORDERS)
    run("create", "totals", "--query", QUERY)
    for file in Path("lake").glob("dynamic_tables.db*"):
        file.unlink()
    assert "doctor --rebuild" in run("list", exit_code=2).output
    for _ in range(2):  # the first try leaves no store that looks like that of an empty lake
        assert "main.totals" in run("refresh", exit_code=2).output
    assert data("doctor", "--rebuild") == {"restored": ["main.totals"]}
    assert [row["ok"] for row in data("verify")] == [True]


def test_a_damaged_store_names_the_way_out() -> None:
    run("sql", ORDERS)
    run("create", "totals", "--query", QUERY)
    (store,) = Path("lake").glob("dynamic_tables.db")
    store.write_text("no database at all, " * 100)
    assert "move the file away" in run("refresh", exit_code=2).output
    for file in Path("lake").glob("dynamic_tables.db*"):
        file.unlink()
    assert data("doctor", "--rebuild") == {"restored": ["main.totals"]}


def test_a_threshold_acts_on_the_next_refresh() -> None:
    run("sql", ORDERS)
    run("create", "totals", "--query", QUERY)
    for flag, reached in (
        ("--cardinality-threshold=0.4", ("full", "ABOVE_THRESHOLD")),
        ("--cardinality-threshold=0.5", ("merge", "CHANGED")),
    ):
        run("alter", "totals", flag)
        run("sql", "INSERT INTO orders VALUES (4, 1, 1)")  # one of two groups
        (record,) = data("refresh")["tables"]
        assert (record["strategy"], record["reason"]) == reached


def test_the_store_can_be_queried() -> None:
    run("sql", ORDERS)
    run("create", "totals", "--query", QUERY)
    for name in ("refresh_history", "source_snapshots", "dynamic_tables", "dependencies"):
        (answer,) = data("sql", f"SELECT count(*) AS n FROM {name}")
        assert answer["rows"] == [[1]]
        assert len(data("sql", f"SELECT * FROM {name}")[0]["rows"]) == 1


def test_results_before_an_error_are_told() -> None:
    result = run("sql", "SELECT 1 AS a; SELEC; SELECT 2", "--json", exit_code=2)
    first, last = json.loads(result.stdout)
    assert first == {"statement": "SELECT 1 AS a", "columns": ["a"], "rows": [[1]], "more": False}
    error = json.loads(result.stderr)
    assert last == {"statement": "SELEC", **error}
    assert (error["about"], error["reason"]) == ("SELEC", "QUERY_FAILED")
    assert "mend the statement" in error["hint"]


def test_remarks_belong_to_rows() -> None:
    run("sql", "CREATE TABLE w (k INT, v VARCHAR); INSERT INTO w VALUES (1, '1')")
    run("create", "numbers", "--query", "SELECT k, v::INT AS v FROM w")
    run("sql", "INSERT INTO w VALUES (2, 'two')")
    shown = run("refresh", exit_code=3).stdout.splitlines()
    error = next(at for at, line in enumerate(shown) if line.startswith("  main.numbers: "))
    assert shown[error + 1].startswith("    hint: ")
    past = run("history").stdout.splitlines()
    failed = next(line for line in past if "QUERY_FAILED" in line)
    assert any(line.startswith(f"  {failed.split()[0]} main.numbers: ") for line in past)


def test_json_is_strict() -> None:
    def refuse(word: str) -> None:
        pytest.fail(f"{word} is not JSON")

    query = (
        "SELECT 'nan'::DOUBLE AS a, ['inf'::FLOAT, '-inf'::FLOAT] AS b, 'ab'::BLOB AS c,"
        " MAP {'x'::BLOB: 1.5} AS d, {'e': 'nan'::DOUBLE} AS e, NULL AS f"
    )
    (answer,) = json.loads(run("sql", query, "--json").stdout, parse_constant=refuse)
    row = ["NaN", ["Infinity", "-Infinity"], "YWI=", {"eA==": "1.5"}, {"e": "NaN"}, None]
    assert answer["rows"] == [row]
