"""docs/cli.md and the program say the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dynamic_tables.cli import program
from dynamic_tables.cli.program import INTERRUPTED
from dynamic_tables.connect import STORE_FILE
from dynamic_tables.demo import SHOP, TABLES
from dynamic_tables.doctor import examine
from dynamic_tables.errors import DynamicTablesError
from dynamic_tables.settings import SETTINGS, SettingSpec, load_settings
from dynamic_tables.store import open_store
from dynamic_tables.store.migrations import MIGRATIONS

TEXT = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
VERBS_PART, SETTINGS_PART = TEXT.split("\n## Settings\n")
ROWS = [line.split("|") for line in SETTINGS_PART.splitlines() if line.startswith("| `")]


@pytest.mark.parametrize("verb", sorted(program.commands))
def test_every_verb_has_a_section_and_an_example(verb: str) -> None:
    headings = [line.removeprefix("### ") for line in TEXT.splitlines() if line.startswith("### ")]
    assert verb in ", ".join(headings).split(", ")
    assert f"dynamic-tables {verb} " in TEXT or f"dynamic-tables {verb}\n" in TEXT
    assert f"`{verb}`" in VERBS_PART.split("### ", maxsplit=1)[0]


def test_the_settings_are_those_of_the_program() -> None:
    assert [row[1].strip(" `") for row in ROWS] == [spec.name for spec in SETTINGS]


@pytest.mark.parametrize("spec", SETTINGS, ids=lambda spec: spec.name)
def test_every_setting_is_documented(spec: SettingSpec) -> None:
    row = next(row for row in ROWS if row[1].strip(" `") == spec.name)
    assert row[2].strip() == f"`--{spec.name.replace('_', '-')}`"
    assert row[3].strip() == f"`{spec.environment}`"
    assert row[4].strip() == (f"`{spec.default}`" if spec.default else "none")


def test_every_exit_code_is_documented() -> None:
    codes = {INTERRUPTED, *(kind.exit_code for kind in _tree(DynamicTablesError))}
    table = SETTINGS_PART.split("## Exit codes")[1]
    assert all(f"\n| {code} |" in table for code in codes)


def test_the_examples_are_about_tables_of_the_demo() -> None:
    """Verbs and names in their order: what is created or renamed on the page is there after."""
    known = set(re.findall(r"CREATE (?:DYNAMIC )?TABLE (\S+)", "".join((*SHOP, *TABLES))))
    seen = set()
    for verb, name, rest in re.findall(r"^\$ dynamic-tables (\w+) (shop\S+)?(.*)", TEXT, re.M):
        if verb == "create" and name:
            known.add(name)
        assert not name or name in known, (verb, name)
        seen.add((verb, name))
        if "--rename-to" in rest:
            known.add("shop." + rest.split()[-1])
    about_tables = {"create", "alter", "suspend", "resume", "drop", "optimize", "show", "history"}
    assert about_tables <= {verb for verb, name in seen if name}
    assert not re.search("product_sales|sales\\.by_day", TEXT)
    assert set(re.findall(r"(?<![./])\bshop\.\w+", TEXT)) <= known


def test_the_sample_of_doctor_has_the_rows_of_today(tmp_path: Path) -> None:
    sample = TEXT.split("$ dynamic-tables doctor\n   check")[1].split("```")[0]
    with open_store(tmp_path / STORE_FILE) as store:
        assert store.tables() == []
    settings = load_settings({"lake": str(tmp_path)}, environment={}, folder=tmp_path)
    checks = [check.name for check in examine(settings, spark=False, say=lambda _: None)]
    rows = re.findall(r"^✓  (.+?)  ", sample, re.M)
    assert rows[: len(checks)] == checks
    assert f"schema version {len(MIGRATIONS)}, " in " ".join(sample.split())


def _tree(kind: type[DynamicTablesError]) -> list[type[DynamicTablesError]]:
    return [kind, *(below for child in kind.__subclasses__() for below in _tree(child))]
