"""docs/options.md and the table of options say the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynamic_tables.ddl import CreateStatement, parse
from dynamic_tables.options import SPECS, Kind, OptionSpec

TEXT = (Path(__file__).parents[2] / "docs" / "options.md").read_text(encoding="utf-8")
ROWS = {
    cells[1].strip("` "): cells
    for cells in (line.split("|") for line in TEXT.splitlines() if line.startswith("| `"))
    if len(cells) == 7  # the other table is of contradictions
}


def test_the_table_lists_exactly_the_options() -> None:
    assert list(ROWS) == [spec.name for spec in SPECS]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.field)
def test_every_option_is_documented(spec: OptionSpec) -> None:
    _, _, python, flag, default, status, _ = ROWS[spec.name]
    assert python.strip() == f"`{spec.field}`"
    assert flag.strip() == f"`--{spec.field.replace('_', '-')}`"
    assert default.strip() == _default(spec)
    assert status.strip() == ("at work" if spec.at_work else "stored")
    section = TEXT.split(f"\n### {spec.name}\n")[1].split("\n#")[0]
    assert f"`{spec.example}`" in section
    assert ("put to work by a later release" in " ".join(section.split())) is not spec.at_work
    for choice in spec.choices or ():
        assert f"{choice.value}`" in section


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.field)
def test_every_example_is_a_statement(spec: OptionSpec) -> None:
    statement = parse(f"CREATE DYNAMIC TABLE t {spec.example} AS SELECT 1")
    assert isinstance(statement, CreateStatement)
    value = getattr(statement.options, spec.field)
    # Examples of numbers may show the default; all others show something else.
    assert value != spec.default or spec.kind is Kind.COUNT


def _default(spec: OptionSpec) -> str:
    if spec.default is None or spec.default == ():
        return "none"
    if isinstance(spec.default, bool):
        return f"`{str(spec.default).lower()}`"
    return f"`{spec.default}`"
