"""Column types that mean the same on every database."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import BigInteger, DateTime, Dialect, Integer, String, Text
from sqlalchemy.types import TypeDecorator, TypeEngine

Number = BigInteger().with_variant(Integer, "sqlite")  # SQLite counts up INTEGER keys only


class UtcTime(TypeDecorator[datetime]):
    """An instant: timestamptz on PostgreSQL, else ISO text whose order is that of time."""

    impl = String
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name == "postgresql":
            return dialect.type_descriptor(DateTime(timezone=True))
        return dialect.type_descriptor(String(32))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("an instant needs a time zone")
        instant = value.astimezone(UTC)
        return (
            instant if dialect.name == "postgresql" else instant.isoformat(timespec="microseconds")
        )

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        if value is None:
            return None
        instant = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        return instant.astimezone(UTC)


class Message(TypeDecorator[str]):
    """What an engine or a person says. It may quote data, and PostgreSQL's texts hold neither
    NUL nor halves of characters; a failure that cannot be recorded would be tried for ever."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        if value is None:
            return None
        return value.replace("\x00", "\N{SYMBOL FOR NULL}").encode("utf-8", "replace").decode()


class Json(TypeDecorator[Any]):
    """A JSON value, kept as text."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:  # noqa: ARG002
        return None if value is None else json.dumps(value, ensure_ascii=False)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:  # noqa: ARG002
        return None if value is None else json.loads(value)
