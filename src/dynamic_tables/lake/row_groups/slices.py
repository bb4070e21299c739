"""Parts of a partition that fit into memory: ranges of the key, equal keys together.

A partition that fits is one slice, and its files are read once. Of a larger one the keys are read
first; then every slice reads the files again and keeps what belongs to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
from pyarrow.compute import SortOptions, call_function

from dynamic_tables.lake.plain_delta.reading import Reader, Source

IN_MEMORY = 2.5  # times as much as the rows themselves: sorted ones lie beside the others


@dataclass(frozen=True, slots=True)
class Slice:
    """Keys from the one value on, below the other; None: no end. NULL is in the first."""

    start: pa.Scalar | None = None
    stop: pa.Scalar | None = None

    def rows_in(self, batch: pa.RecordBatch, key: str) -> pa.RecordBatch:
        keys = batch.column(key)
        for name, end in (("greater_equal", self.start), ("less", self.stop)):
            if end is None:
                continue
            inside = call_function(name, [keys, end])
            # NULL compares as NULL: below all ends
            stays = inside.fill_null(name == "less")
            batch, keys = batch.filter(stays), keys.filter(stays)
        return batch


def slices_of(reader: Reader, sources: Sequence[Source], key: str, held_bytes: int) -> list[Slice]:
    """As few as fit into so many bytes each; a value that does not fit is one of its own."""
    size = IN_MEMORY * sum(reader.bytes_of(source) for source in sources)
    if size <= held_bytes:
        return [Slice()]
    batches = [batch.column(key) for source in sources for batch in reader.rows(source, only=[key])]
    keys = pa.chunked_array(batches, reader.schema.field(key).type).drop_null()
    count = min(int(size // held_bytes), len(keys)) + 1
    in_order = call_function("sort_indices", [keys], SortOptions([("", "ascending")]))
    ends = []
    for n in range(1, count):
        end = keys[in_order[len(keys) * n // count].as_py()]
        if not ends or end != ends[-1]:
            ends.append(end)
    return [Slice(*both) for both in pairwise([None, *ends, None])]
