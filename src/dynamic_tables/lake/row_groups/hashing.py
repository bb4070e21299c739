"""A bag of rows in two numbers: how many they are, and the sum of their hashes.

The sum is the same for the same bag in any order. Bits are hashed, not values: NaN, -0.0 and texts
that are no Unicode are what they are. All is done by Arrow, column by column; only different texts
are hashed one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import pyarrow as pa
from pyarrow.compute import call_function

BITS = 64
MIXING = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)  # odd, as in SplitMix64
NULL = 0x9E3779B97F4A7C15
U64 = pa.uint64()


@dataclass(frozen=True, slots=True)
class Bag:
    """Rows without their order."""

    rows: int = 0
    hash: int = 0

    def with_rows(self, batch: pa.RecordBatch) -> Bag:
        if batch.num_rows == 0:
            return self
        total = call_function("sum", [row_hashes(batch.columns)]).as_py()
        return Bag(self.rows + batch.num_rows, (self.hash + total) % 2**BITS)


def row_hashes(columns: Sequence[pa.Array]) -> pa.Array:
    """One hash a row; which column a value is in makes a difference.

    >>> one, other = pa.array([1, None]), pa.array([None, 1])
    >>> len(set(row_hashes([one, other]).to_pylist()))
    2
    """
    found = _constant(NULL, len(columns[0]))
    for column in columns:
        found = _mixed(call_function("add", [_times(found, MIXING[1]), _hashes(column)]))
    return found


def _hashes(values: pa.Array) -> pa.Array:
    """One hash a value, NULL's own included."""
    known = _known_hashes(values)
    return call_function("if_else", [values.is_valid(), known, pa.scalar(NULL, U64)])


def _known_hashes(values: pa.Array) -> pa.Array:
    """Of what is not NULL; whatever for NULL."""
    kind = values.type
    if pa.types.is_struct(kind):
        return row_hashes(values.flatten()) if kind.num_fields else _constant(0, len(values))
    if pa.types.is_map(kind):
        entries = pa.StructArray.from_arrays([values.keys, values.items], ["key", "value"])
        return _of_lists(values, row_hashes(entries.flatten()))
    if pa.types.is_list(kind):
        return _of_lists(values, _hashes(values.values))
    if pa.types.is_decimal(kind):
        words = pa.Array.from_buffers(
            U64, 2 * len(values), [None, values.buffers()[1]], offset=2 * values.offset
        )
        pairs = pa.FixedSizeListArray.from_arrays(words, 2)
        return row_hashes([call_function("list_element", [pairs, n]) for n in (0, 1)])
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _of_texts(values.cast(pa.binary()))
    return _mixed(_word(values))


def _word(values: pa.Array) -> pa.Array:
    """The bits of a value of at most 64 of them."""
    if pa.types.is_boolean(values.type):
        return values.cast(pa.uint8()).cast(U64)
    width = values.type.bit_width
    signed = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[width]
    return values.view(signed).cast(pa.int64()).view(U64)


def _of_texts(values: pa.Array) -> pa.Array:
    different = values.dictionary_encode()
    hashes = [
        int.from_bytes(blake2b(text or b"", digest_size=8).digest(), "big")
        for text in different.dictionary.to_pylist()
    ]
    return pa.array(hashes, U64).take(different.indices)


def _of_lists(lists: pa.Array, elements: pa.Array) -> pa.Array:
    """Sums of the elements' hashes, each times its place, by differences of running sums.

    >>> halves = pa.array([[9], [1, 2], [2, 1], [1, 2], []])
    >>> len(set(_hashes(halves).to_pylist())), _hashes(halves)[1] == _hashes(halves.slice(3))[0]
    (4, True)
    """
    ends = lists.offsets.cast(pa.int64())
    starts, stops = ends.slice(0, len(lists)), ends.slice(1)
    places = pa.array(range(len(elements)), U64)
    sums = _between(elements, starts, stops)
    weighted = _between(call_function("multiply", [elements, places]), starts, stops)
    before = call_function("multiply", [starts.view(U64), sums])
    placed = call_function("add", [call_function("subtract", [weighted, before]), sums])
    lengths = call_function("subtract", [stops, starts]).view(U64)
    return _mixed(call_function("add", [placed, _mixed(lengths)]))


def _between(values: pa.Array, starts: pa.Array, stops: pa.Array) -> pa.Array:
    """Sums of parts of an array."""
    sums = pa.concat_arrays([pa.array([0], U64), call_function("cumulative_sum", [values])])
    return call_function("subtract", [sums.take(stops), sums.take(starts)])


def _mixed(values: pa.Array) -> pa.Array:
    """Every bit of the result depends on every bit of the value."""
    for factor in MIXING:
        shifted = call_function("shift_right", [values, pa.scalar(31, U64)])
        values = _times(call_function("bit_wise_xor", [values, shifted]), factor)
    shifted = call_function("shift_right", [values, pa.scalar(32, U64)])
    return call_function("bit_wise_xor", [values, shifted])


def _times(values: pa.Array, factor: int) -> pa.Array:
    return call_function("multiply", [values, pa.scalar(factor, U64)])


def _constant(value: int, size: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, U64), size)
