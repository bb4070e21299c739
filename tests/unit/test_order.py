"""Which files are in order: by what their tags say."""

from __future__ import annotations

import pytest

from dynamic_tables.lake.row_groups.order import Order

WANTED = Order(unique_by="Customer")


@pytest.mark.parametrize("values", [1, 7, 4096])
def test_any_number_of_values_in_a_row_group_is_the_same_order(values: int) -> None:
    assert WANTED.is_that_of(Order(unique_by="customer", values_per_row_group=values).tag)
    assert Order(unique_by="customer", values_per_row_group=values).is_that_of(WANTED.tag)


@pytest.mark.parametrize(
    "tag",
    [
        None,
        "",
        "no JSON",
        Order(unique_by="other").tag,
        Order(unique_by="customer", sort_by=("day",)).tag,
        Order(unique_by="customer", row_group_bytes=1000).tag,
        Order(unique_by='customer", "values_per_row_group": 7').tag,
    ],
)
def test_another_order_is_not(tag: str | None) -> None:
    assert not WANTED.is_that_of(tag)


def test_a_name_that_looks_like_a_number_of_values_is_a_name() -> None:
    one, other = (Order(unique_by=f'"values_per_row_group": {number}') for number in (1, 2))
    assert one.is_that_of(one.tag)
    assert not one.is_that_of(other.tag)
