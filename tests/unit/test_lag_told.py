"""What `list` and `show` tell of a table's freshness."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from io import StringIO

import pytest
from builders import build, name
from builders import definition as make_definition
from builders import state as make_state
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dynamic_tables.render import table_details, tables_table
from dynamic_tables.render.tables import behind_text
from dynamic_tables.schedule import Lag

DUE = datetime(2126, 1, 2, 3, 4, 5, tzinfo=UTC)
SHOWN_DUE = f"{DUE.astimezone():%Y-%m-%d %H:%M:%S}"
STATE = make_state(make_definition("t", reads=("orders",)), build("t", 1, {"id-orders": 1}))
LAG = Lag(
    table=name("t"), target_s=300.0, behind_s=125.0, seen_s=2.0, within=0.974, next_refresh=DUE
)
UP_TO_DATE = replace(LAG, behind_s=0.0, within=1.0)
UNSEEN = replace(LAG, behind_s=None, seen_s=None, within=None, next_refresh=None)
BY_HAND = replace(LAG, target_s=None, within=None, next_refresh=None)


def facts(lag: Lag | None) -> dict[str, str]:
    """What `show` prints, by the words at the left."""
    out = StringIO()
    Console(file=out, width=120).print(table_details(STATE, {}, (), lag))
    lines = (line.strip() for line in out.getvalue().splitlines())
    pairs = (re.split(r"\s{2,}", line, maxsplit=1) for line in lines)
    return {pair[0]: pair[1] for pair in pairs if len(pair) > 1}


@pytest.mark.parametrize(
    ("lag", "told"),
    [
        (
            LAG,
            {
                "behind": "2 minutes 5 seconds (97% in time)",
                "target": "5 minutes",
                "next refresh": SHOWN_DUE,
            },
        ),
        (
            UP_TO_DATE,
            {"behind": "no (100% in time)", "target": "5 minutes", "next refresh": SHOWN_DUE},
        ),
        (UNSEEN, {"target": "5 minutes"}),
        (BY_HAND, {"behind": "2 minutes 5 seconds"}),
        (None, {}),
    ],
)
def test_show_tells_lag_target_share_and_next_refresh(
    lag: Lag | None, told: dict[str, str]
) -> None:
    shown, without = facts(lag), facts(None)
    assert {"status", "created", "cut", "options", "columns"} <= without.keys()
    assert shown == {**without, **told}


def columns(*lags: Lag) -> dict[str, list[str]]:
    """What `list` prints, by its headings."""
    shown = tables_table([STATE] * max(len(lags), 1), lags)
    assert isinstance(shown, Table)
    return {str(column.header): [str(cell) for cell in column.cells] for column in shown.columns}


def test_list_tells_lag_share_and_next_refresh() -> None:
    shown = columns(LAG, UNSEEN, BY_HAND)
    assert shown["behind"] == ["2 minutes 5 seconds (97% in time)", "", "2 minutes 5 seconds"]
    assert shown["next"] == [SHOWN_DUE, "", ""]
    assert "next" not in columns(UNSEEN)  # nothing is going to be refreshed
    assert not {"behind", "next"} & columns().keys()


def test_a_table_beyond_its_target_is_late() -> None:
    late = replace(LAG, behind_s=301.0, within=0.9999)
    told = map(behind_text, (LAG, late))
    found = [(str(text), text.style) for text in told if isinstance(text, Text)]
    assert found == [
        ("2 minutes 5 seconds (97% in time)", ""),
        ("5 minutes 1 second, late (99% in time)", "red"),
    ]


def test_what_is_due_waits_for_somebody_to_run() -> None:
    due = replace(LAG, is_due=True)  # by the store's clock, whatever time it is here
    assert columns(due)["next"] == ["now"]
    for lag, when in ((due, "now"), (LAG, SHOWN_DUE)):
        shown = tables_table([STATE], [lag], are_kept=False)
        assert isinstance(shown, Table)
        assert [*shown.columns[-1].cells] == [f"{when}, nobody runs"]
    out = StringIO()
    Console(file=out, width=120).print(table_details(STATE, {}, (), due, is_kept=False))
    assert "next refresh  now, nobody runs" in out.getvalue()
    waiting = tables_table([STATE] * 2, [replace(LAG, next_refresh=None), BY_HAND], are_kept=False)
    assert isinstance(waiting, Table)
    assert [*waiting.columns[-1].cells] == ["nobody runs", ""]  # what comes, nobody will see


def test_news_that_nobody_has_looked_at() -> None:
    """`show` asks the sources what changed; the lag is what the last look found."""
    for has_news, told in ((True, "yes, since the last look"), (False, "no (100% in time)")):
        out = StringIO()
        shown = table_details(STATE, {}, (), UP_TO_DATE, has_news=has_news)
        Console(file=out, width=120).print(shown)
        assert f"behind        {told}" in out.getvalue()


def test_the_words_of_json() -> None:
    assert LAG.as_json() == {
        "target_s": 300.0,
        "behind_s": 125.0,
        "seen_s": 2.0,
        "within": 0.974,
        "next_refresh": DUE.isoformat(),
    }
    assert UNSEEN.as_json() == {
        "target_s": 300.0,
        "behind_s": None,
        "seen_s": None,
        "within": None,
        "next_refresh": None,
    }
