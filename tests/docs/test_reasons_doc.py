"""Every reason code has a paragraph, and every paragraph a code."""

from __future__ import annotations

import re
from pathlib import Path

import dynamic_tables as dt
from dynamic_tables.reasons import Reason

DOCS = Path(__file__).parents[2] / "docs"
SOURCE = Path(__file__).parents[2] / "src" / "dynamic_tables"


def test_reasons_and_paragraphs_are_the_same() -> None:
    described = re.findall(r"^\*\*`([A-Z_]+)`\*\* \S", (DOCS / "reasons.md").read_text(), re.M)
    assert sorted(described) == sorted(reason.value for reason in Reason)


def test_every_reason_is_used() -> None:
    code = "".join(path.read_text() for path in SOURCE.rglob("*.py") if path.name != "reasons.py")
    unused = [reason.name for reason in Reason if f"Reason.{reason.name}" not in code]
    assert unused == ["NO_FEED"]  # it stands in older histories


def test_public_names_are_what_is_there() -> None:
    public = {name for name in vars(dt) if not name.startswith("_")}
    modules = {name for name in public if type(getattr(dt, name)).__name__ == "module"}
    assert public - modules == set(dt.__all__)


def test_every_public_method_is_in_the_python_page() -> None:
    page = (DOCS / "python.md").read_text()
    methods = [name for name in vars(dt.DynamicTables) if not name.startswith("_")]
    internal = {"begin", "execute", "lake", "store", "settings", "close"}
    assert [name for name in methods if name not in internal and f"{name}" not in page] == []
