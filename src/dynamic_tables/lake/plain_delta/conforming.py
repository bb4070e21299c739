"""Columns of a file as the table wants them: found by name or id, widened, missing fields NULL."""

from __future__ import annotations

from itertools import product

import pyarrow as pa

ID = b"PARQUET:field_id"
is_ = pa.types


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
    if is_.is_list(kind) and is_.is_list(array.type):
        array = _whole(array)
        values = conformed(array.values, kind.value_type, by_id=by_id)
        return pa.ListArray.from_arrays(array.offsets, values, type=kind, mask=array.is_null())
    if is_.is_map(kind) and is_.is_map(array.type):
        array = _whole(array)
        keys = conformed(array.keys, kind.key_type, by_id=by_id)
        values = conformed(array.items, kind.item_type, by_id=by_id)
        return pa.MapArray.from_arrays(array.offsets, keys, values, type=kind, mask=array.is_null())
    if not _widens(array.type, kind):
        msg = f"{array.type} is not {kind}"
        raise TypeError(msg)
    return array.cast(kind)


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
