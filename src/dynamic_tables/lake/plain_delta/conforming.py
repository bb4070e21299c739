"""Columns of a file as the table wants them: found by name or id, widened, missing fields NULL.

Writers that use Arrow leave a hint in the file how they held its values: as large texts, as numbers
of a dictionary, in some zone. Parquet has the same values either way, and so has the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pyarrow as pa

ID = b"PARQUET:field_id"
is_ = pa.types
UNWANTED = pa.null()
OTHER_LISTS = (
    *(is_.is_large_list, is_.is_fixed_size_list, is_.is_list_view, is_.is_large_list_view),
)
OTHER_TEXTS = (is_.is_large_string, is_.is_string_view)
OTHER_BINARIES = (is_.is_large_binary, is_.is_binary_view)


def found_in(schema: pa.Schema | pa.DataType, wanted: pa.Field, *, by_id: bool) -> int | None:
    """Where a column, or a field of a struct, is; None if it is not there.

    Spark finds names in any case. Who wrote another one is not guessed: TypeError.
    """
    size = len(schema) if isinstance(schema, pa.Schema) else schema.num_fields
    wanted_id = (wanted.metadata or {}).get(ID)
    if by_id and wanted_id is not None:  # row ids have none
        ids = [(schema.field(n).metadata or {}).get(ID) for n in range(size)]
        if not any(ids):
            msg = f"there are no ids to find {wanted.name!r} by"
            raise TypeError(msg)
        return ids.index(wanted_id) if wanted_id in ids else None
    names = [schema.field(n).name for n in range(size)]
    if wanted.name in names:
        return names.index(wanted.name)
    if wanted.name.lower() in map(str.lower, names):
        msg = f"{wanted.name!r} is written in another case"
        raise TypeError(msg)
    return None


def conformed(array: pa.Array, kind: pa.DataType, *, by_id: bool) -> pa.Array:
    """The values in another type; TypeError if the table cannot mean that.

    >>> kind = pa.struct([("b", pa.int64()), ("c", pa.string())])
    >>> conformed(pa.array([{"a": 1, "b": 2}, None]), kind, by_id=False).to_pylist()
    [{'b': 2, 'c': None}, None]
    """
    if array.type.equals(kind) and not (by_id and kind.num_fields):
        return array
    if is_.is_struct(kind) and is_.is_struct(array.type):
        return _struct(_whole(array), kind, by_id=by_id)
    if is_.is_list(kind) and any(is_other(array.type) for is_other in OTHER_LISTS):
        array = array.cast(pa.list_(array.type.value_field))
    if is_.is_list(kind) and is_.is_list(array.type):
        array = _whole(array)
        values = conformed(array.values, kind.value_type, by_id=by_id)
        return pa.ListArray.from_arrays(array.offsets, values, type=kind, mask=array.is_null())
    if is_.is_map(kind) and is_.is_map(array.type):
        array = _whole(array)
        keys = conformed(array.keys, kind.key_type, by_id=by_id)
        values = conformed(array.items, kind.item_type, by_id=by_id)
        return pa.MapArray.from_arrays(array.offsets, keys, values, type=kind, mask=array.is_null())
    if not _widens(plain(array.type), kind):
        msg = f"{array.type} is not {kind}"
        raise TypeError(msg)
    return array.cast(kind)


def plain(kind: pa.DataType) -> pa.DataType:
    """What Parquet has, whatever Arrow was told to make of it; inner types are left as they are.

    >>> plain(pa.dictionary(pa.int32(), pa.large_string()))
    DataType(string)
    >>> plain(pa.timestamp("ms", "Europe/Paris"))
    TimestampType(timestamp[ms, tz=UTC])
    """
    if is_.is_dictionary(kind):
        return plain(kind.value_type)
    if any(is_text(kind) for is_text in OTHER_TEXTS):
        return pa.string()
    if any(is_binary(kind) for is_binary in OTHER_BINARIES):
        return pa.binary()
    if is_.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    return kind


def lacks_zone(
    here: pa.DataType, wanted: pa.DataType, local: Iterator[bool], *, by_id: bool
) -> bool:
    """Whether times that tell no zone would be taken for instants.

    `local` says of each leaf of the file, in its order, whether it has such times: Arrow shows
    instants of 96 bits in the same way. What the table does not want (`UNWANTED`) is passed over.

    >>> times, instants = pa.list_(pa.timestamp("us")), pa.list_(pa.timestamp("us", "UTC"))
    >>> lacks_zone(times, instants, iter([True]), by_id=False)
    True
    >>> lacks_zone(times, times, iter([True]), by_id=False)
    False
    """
    if not here.num_fields:
        return next(local) and is_.is_timestamp(wanted) and wanted.tz is not None
    found = [lacks_zone(*both, local, by_id=by_id) for both in _inner(here, wanted, by_id=by_id)]
    return any(found)


def _inner(
    here: pa.DataType, wanted: pa.DataType, *, by_id: bool
) -> list[tuple[pa.DataType, pa.DataType]]:
    """The types inside a type of a file, each with what the table wants there."""
    if is_.is_struct(here):
        fields = (
            [wanted.field(n) for n in range(wanted.num_fields)] if is_.is_struct(wanted) else []
        )
        places = {found_in(here, field, by_id=by_id): field.type for field in fields}
        return [(here.field(n).type, places.get(n, UNWANTED)) for n in range(here.num_fields)]
    if is_.is_map(here):
        known = is_.is_map(wanted)
        return [
            (here.key_type, wanted.key_type if known else UNWANTED),
            (here.item_type, wanted.item_type if known else UNWANTED),
        ]
    return [(here.value_type, wanted.value_type if is_.is_list(wanted) else UNWANTED)]


def _whole(array: pa.Array) -> pa.Array:
    """An array that is no part of another: parts cannot be put together again."""
    return array.take(pa.array(range(len(array)), pa.int64())) if array.offset else array


def _struct(array: pa.StructArray, kind: pa.StructType, *, by_id: bool) -> pa.Array:
    fields = [kind.field(n) for n in range(kind.num_fields)]
    inner = []
    for field in fields:
        place = found_in(array.type, field, by_id=by_id)
        if place is None:
            inner.append(pa.nulls(len(array), field.type))
        else:
            inner.append(conformed(array.field(place), field.type, by_id=by_id))
    return pa.StructArray.from_arrays(inner, fields=fields, mask=array.is_null())


def _widens(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether Delta lets a column of the one type become one of the other.

    >>> _widens(pa.int8(), pa.int64()), _widens(pa.int64(), pa.int32())
    (True, False)
    """
    if is_.is_timestamp(old) and is_.is_timestamp(new):  # of 96 bits they are instants, unsaid
        return new.tz == old.tz or (old.tz is None and new.tz is not None)
    if is_.is_decimal(old) and is_.is_decimal(new):
        return new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale
    if is_.is_signed_integer(old):
        wider = is_.is_signed_integer(new) and new.bit_width >= old.bit_width
        return wider or is_.is_float64(new) or is_.is_decimal(new)
    return any(
        one(old) and other(new)
        for one, other in (
            (is_.is_float32, is_.is_float64),
            (is_.is_date32, _is_local_time),
            *product((is_.is_string, is_.is_binary), repeat=2),
        )
    )


def _is_local_time(kind: pa.DataType) -> bool:
    return is_.is_timestamp(kind) and kind.tz is None
