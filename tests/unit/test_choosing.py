"""Which layout is recommended: by what one look-up reads."""

from __future__ import annotations

import pytest

from dynamic_tables.lake.row_groups.choosing import (
    Choice,
    Facts,
    arrow,
    best,
    choices,
    grouped,
    native,
    sharing,
)


def facts(values: int, bytes_per_value: int, *, rows_per_value: int = 100) -> Facts:
    return Facts(
        bytes=values * bytes_per_value, rows=values * rows_per_value, values=values, columns=4
    )


@pytest.mark.parametrize(
    ("known", "engine", "values"),
    [
        (facts(2_000, 20_000), "arrow", 1),  # entities of thousands of rows
        (facts(100, 10_000_000), "arrow", 1),
        (facts(1_000_000, 100, rows_per_value=5), "arrow", 259),  # tiny: the footer would be all
        (facts(1, 50), "arrow", 1),
    ],
)
def test_what_is_recommended(known: Facts, engine: str, values: int) -> None:
    chosen = best(choices(known))
    assert (chosen.engine, chosen.values_per_row_group) == (engine, values)


def test_grouping_makes_footer_and_row_group_equal() -> None:
    known = facts(1_000_000, 100)
    chosen = grouped(known)
    assert chosen.footer_bytes == pytest.approx(chosen.read_bytes / 2, rel=0.1)
    for other in (1, 20, 5_000):
        assert arrow(known, other).read_bytes > chosen.read_bytes


def test_an_earlier_choice_stays_unless_another_is_clearly_better() -> None:
    def reads(read: int) -> Choice:
        return Choice(
            engine="arrow",
            values_per_row_group=1,
            rows_per_row_group=None,
            footer_bytes=0,
            read_bytes=read,
        )

    first, little, much = reads(100), reads(90), reads(50)
    assert best((first, little)) is first
    assert best((first, little, much)) is much


def test_native_rows_are_few_where_rows_are_wide() -> None:
    narrow, wide = facts(1_000, 10_000), facts(1_000, 1_000_000)
    assert (native(wide).rows_per_row_group or 0) < (native(narrow).rows_per_row_group or 0)
    assert "rows a row group" in str(native(wide))


@pytest.mark.parametrize(
    ("known", "shared"),
    [
        (facts(2_000, 20_000), 1),
        (facts(16_000, 12, rows_per_value=1), 512),  # 653 would be best
        (facts(1_000_000, 100, rows_per_value=5), 256),  # 259
        (facts(0, 0), 1),
        (facts(1, 50), 1),
    ],
)
def test_values_share_row_groups_by_a_power_of_two(known: Facts, shared: int) -> None:
    assert sharing(known) == shared


def test_a_table_that_grows_a_little_keeps_its_layout() -> None:
    grown = {sharing(facts(keys, 12, rows_per_value=1)) for keys in range(12_000, 19_000, 100)}
    assert grown == {512}
