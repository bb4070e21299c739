"""Locations: one spelling, and what they are on the local disk.

A location is written as Hadoop's `Path` prints it: `file:/tmp/my lake`, not percent-encoded.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, unquote

LOCAL_SCHEME = "file:"


S3 = ("s3://", "s3a://", "s3n://")


def location_of(folder: Path) -> str:
    """A local folder as a location.

    >>> location_of(Path("/tmp/my lake"))
    'file:/tmp/my lake'
    """
    return f"{LOCAL_SCHEME}{folder}"


def local_path(location: str) -> Path | None:
    """The folder of a location on the local disk; None if it is elsewhere.

    >>> local_path("file:///tmp/a#b"), local_path("s3a://bucket/x")
    (PosixPath('/tmp/a#b'), None)
    """
    if location.startswith(LOCAL_SCHEME):
        return Path("/" + location.removeprefix(LOCAL_SCHEME).lstrip("/"))
    return Path(location) if location.startswith("/") else None


def one_spelling(location: str) -> str:
    """A location in whatever spelling, as two spellings of one place are compared.

    >>> one_spelling("s3://bucket//lake/x/"), one_spelling("/tmp/my lake/")
    ('s3a://bucket/lake/x', 'file:/tmp/my lake')
    """
    local = local_path(location)
    if local is not None:
        return location_of(local)
    scheme, mark, rest = location.partition("://")
    kind = "s3a" if f"{scheme}://" in S3 else scheme
    return f"{kind}{mark}{'/'.join(filter(None, rest.split('/')))}"


def arrow_uri(location: str) -> str:
    """A location that is not on the local disk, as Arrow wants it: encoded.

    >>> arrow_uri("s3a://bucket/my table/50%#ü")
    's3://bucket/my%20table/50%25%23%C3%BC'
    >>> arrow_uri("abfss://box@account.example/x")
    'abfss://box@account.example/x'
    """
    scheme, mark, rest = location.partition("://")
    return f"{'s3' if scheme == 's3a' else scheme}{mark}{quote(rest, safe='/@:')}"


def decoded(uri: str) -> str:
    """What deltalake calls `table_uri`, as a location: it encodes paths on the local disk.

    >>> decoded("file:///tmp/my%20lake/"), decoded("s3://bucket/a%20b")
    ('file:///tmp/my lake', 's3://bucket/a%20b')
    """
    uri = uri.rstrip("/")
    return unquote(uri) if uri.startswith(LOCAL_SCHEME) else uri


def one_driver_at(lake: str, setting: Callable[[str], str | None]) -> tuple[str, ...]:
    """Where two drivers may overwrite each other's commits: beginnings of locations, or "" for
    anywhere, if the lake itself lies there.

    Delta's log store for S3 excludes writers of one driver only; the one that keeps the log's
    newest entries in DynamoDB excludes all. Delta takes the names of settings with and without
    their first word.

    >>> one_driver_at("s3a://bucket/lake", {}.get), one_driver_at("hdfs://host/lake", {}.get)
    (('',), ('s3://', 's3a://', 's3n://'))
    >>> safe = "io.delta.storage.S3DynamoDBLogStore"
    >>> one_driver_at("s3a://bucket/lake", {"spark.delta.logStore.s3a.impl": safe}.get)
    ('s3://', 's3n://')
    >>> one_driver_at("s3a://bucket/lake", {"delta.logStore.class": safe}.get)
    ()
    """
    plain = tuple(kind for kind in S3 if "DynamoDB" not in _log_store(kind, setting))
    return ("",) if lake.startswith(plain) else plain


def _log_store(kind: str, setting: Callable[[str], str | None]) -> str:
    names = (f"{kind.removesuffix('://')}.impl", "class")
    keys = [f"{prefix}delta.logStore.{name}" for name in names for prefix in ("spark.", "")]
    return next(filter(None, map(setting, keys)), "")
