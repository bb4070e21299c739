"""docs/cli.md and the program say the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynamic_tables.cli import program
from dynamic_tables.cli.program import INTERRUPTED
from dynamic_tables.errors import DynamicTablesError
from dynamic_tables.settings import SETTINGS, SettingSpec

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


def _tree(kind: type[DynamicTablesError]) -> list[type[DynamicTablesError]]:
    return [kind, *(below for child in kind.__subclasses__() for below in _tree(child))]
