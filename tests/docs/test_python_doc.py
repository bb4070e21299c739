"""docs/python.md lists the fields of what the methods give."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import dynamic_tables as dt

TEXT = (Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
PART = TEXT.split("## What comes back")[1].split("\n## ")[0]
ROWS = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", PART, re.MULTILINE))
GIVEN = {"Declared", "RefreshReport", "RefreshRecord", "Planned", "Verification", "Explanation"}


def test_the_fields_are_those_of_the_objects() -> None:
    assert {*GIVEN, "TableState"} == set(ROWS)
    for name, cell in ROWS.items():
        assert re.findall(r"`(\w+)`", cell) == [item.name for item in fields(getattr(dt, name))]


def test_the_objects_print_and_become_json_as_the_page_says() -> None:
    for name in ROWS:
        assert "__str__" in vars(getattr(dt, name)), name
        assert hasattr(getattr(dt, name), "as_json") is (name in GIVEN), name
