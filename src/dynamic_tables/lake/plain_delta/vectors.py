"""Deletion vectors: which rows of a file are gone, by their positions in it."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from pyroaring import BitMap64

from dynamic_tables.errors import Refused
from dynamic_tables.lake.plain_delta.store import Store
from dynamic_tables.reasons import Reason

MAGIC = 1681511377  # of the one form that the protocol describes
UUID_LETTERS = 20  # of a name, at its end
Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
TO_B85 = str.maketrans(Z85, B85)


def rows_gone(store: Store, vector: Mapping[str, Any]) -> BitMap64:
    """The positions; their number must be the one that the log tells."""
    kind, place, size = vector["storageType"], vector["pathOrInlineDv"], vector["sizeInBytes"]
    if kind == "i":
        content = decoded(place)[:size]
    else:
        path = _path(place) if kind == "u" else place
        content = _stored(store, path, vector.get("offset") or 0, size)
    if kind not in ("i", "u", "p") or len(content) != size:
        raise _refused(store, f"is of an unknown kind {kind!r}, or too short")
    (magic,) = struct.unpack_from("<i", content)
    if magic != MAGIC:
        raise _refused(store, f"has the form {magic}, not {MAGIC}")
    found = BitMap64.deserialize(content[4:])
    if len(found) != vector["cardinality"]:
        raise _refused(store, f"has {len(found)} rows, not {vector['cardinality']}")
    return found


def decoded(text: str) -> bytes:
    """Z85, which differs from Python's alphabet only.

    >>> decoded("HelloWorld").hex()
    '864fd26fb559f75b'
    """
    return base64.b85decode(text.translate(TO_B85))


def _path(place: str) -> str:
    """
    >>> _path("ab^-aqEH.-t@S}K{vb[*k^")
    'ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin'
    """
    folder, name = place[:-UUID_LETTERS], UUID(bytes=decoded(place[-UUID_LETTERS:]))
    file = f"deletion_vector_{name}.bin"
    return f"{folder}/{file}" if folder else file


def _stored(store: Store, path: str, offset: int, size: int) -> bytes:
    """At its place in a file: how long it is, the bytes, their sum."""
    with store.open(path) as file:
        found = file.read_at(size + 8, offset)
    (told,) = struct.unpack_from(">i", found)
    content = found[4 : 4 + size]
    (sum_,) = struct.unpack_from(">I", found, 4 + size)
    if told != size or zlib.crc32(content) != sum_:
        raise _refused(store, f"in {path} is damaged")
    return content


def _refused(store: Store, what: str) -> Refused:
    return Refused(
        f"a deletion vector {what}",
        reason=Reason.TABLE_FEATURE,
        about=store.location,
        hint="REORG TABLE … APPLY (PURGE) writes the files anew",
    )
