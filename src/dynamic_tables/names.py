"""Identifiers and literals: the one place where they become SQL text.

Names of tables compare as Spark's do, without case; they print as the user wrote them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dynamic_tables.errors import InvalidInput
from dynamic_tables.reasons import Reason

RESERVED_PREFIX = "_ivm_"  # our own columns and tables; users may not use it
COMPILER_PREFIX = "_dt_"  # columns inside the statements of the compiler; nor this
RESERVED_SUFFIX = "__ivm"
PARTIALS = f"{RESERVED_PREFIX}partials"  # the relation that a table stored in parts is made of
SHOWN = f"{RESERVED_PREFIX}shown"  # a stored column: rows without it are not part of the table
SUBSTITUTED = re.compile(r"\$\{\S+?\}")  # Spark puts the value of a setting or variable there
_ODD_COLUMN = re.compile(r"[ ,;{}()\n\t=]")
MAX_PARTS = 3  # catalog.schema.table
SMALL_LAKE = "small_lake"  # the catalog of a DuckLake
_OWN_CATALOGS = ("", "spark_catalog", SMALL_LAKE)  # not printed; "": a path relation


def quote(part: str) -> str:
    """One identifier as Spark SQL.

    >>> quote("my `odd` name")
    '`my ``odd`` name`'
    """
    return "`" + part.replace("`", "``") + "`"


def literal(value: str) -> str:
    r"""One string as a Spark SQL literal.

    >>> literal("it's a \\")
    "'it\\'s a \\\\'"

    Spark replaces ${x} by the value of a setting even in literals; this is no such place.

    >>> literal("${env:HOME}")
    "'\\u0024{env:HOME}'"
    """
    escaped = (
        value.replace("\\", "\\\\")
        .replace("'", "\\'")
        .replace("\n", "\\n")
        .replace("\r", "\\r")
        .replace("${", "\\u0024{")
    )
    return f"'{escaped}'"


@dataclass(frozen=True, slots=True)
class TableName:
    """A fully qualified name: catalog, schema, table."""

    catalog: str
    schema: str
    name: str

    @property
    def parts(self) -> tuple[str, str, str]:
        return (self.catalog, self.schema, self.name)

    @property
    def key(self) -> str:
        """What two spellings of one name have in common; unambiguous even with dots in the
        parts."""
        return ".".join(quote(part.lower()) for part in self.parts)

    @property
    def sql(self) -> str:
        """The name as Spark SQL reads it."""
        return ".".join(quote(part) for part in self.parts)

    @property
    def hidden(self) -> TableName:
        """What the stored table is called where the name itself is a view."""
        return TableName(self.catalog, self.schema, f"{self.name}{RESERVED_SUFFIX}")

    def __str__(self) -> str:
        """For people: no catalog if it is the lake's own, quotes only where needed.

        >>> str(TableName("spark_catalog", "sales", "by_customer"))
        'sales.by_customer'
        """
        own = self.catalog.lower() in _OWN_CATALOGS
        parts = self.parts[1:] if own else self.parts
        return ".".join(
            part if part.isidentifier() and part.isascii() else quote(part) for part in parts
        )


def split_name(text: str | TableName) -> tuple[str, ...]:
    """The parts of a dotted, possibly back-ticked name.

    >>> split_name("sales.`by.customer`")
    ('sales', 'by.customer')
    """
    if not isinstance(text, (str, TableName)):
        raise InvalidInput(
            "a name is a text",
            reason=Reason.BAD_NAME,
            about=repr(text),
            hint="several names are given one by one: refresh('a', 'b')",
        )
    text = str(text)
    parts: list[str] = []
    position, length = 0, len(text)
    while True:
        part, position = _read_part(text, position)
        parts.append(part)
        if position == length:
            break
        if text[position] != ".":
            raise _bad_name(text)
        position += 1
    if len(parts) > MAX_PARTS:
        raise _bad_name(text)
    return tuple(parts)


def _read_part(text: str, start: int) -> tuple[str, int]:
    """Read one identifier at `start`; the position after it comes back with it."""
    if start < len(text) and text[start] == "`":
        position, letters = start + 1, []
        while True:
            end = text.find("`", position)
            if end < 0:
                raise _bad_name(text)
            letters.append(text[position:end])
            if text[end : end + 2] != "``":
                part, position = "".join(letters), end + 1
                break
            letters.append("`")
            position = end + 2
    else:
        position = start
        while position < len(text) and (text[position].isalnum() or text[position] in "_$"):
            position += 1
        part = text[start:position]
    if not part:
        raise _bad_name(text)
    return part, position


def _bad_name(text: str) -> InvalidInput:
    return InvalidInput(
        "not a table name",
        reason=Reason.BAD_NAME,
        about=repr(text),
        hint="write catalog.schema.table, with back-ticks around parts that are not plain words",
    )


def qualify(parts: tuple[str, ...], namespace: tuple[str, str]) -> TableName:
    """Complete one to three parts with the current catalog and schema."""
    catalog, schema = namespace
    if any("\ud800" <= letter <= "\udfff" for part in parts for letter in part):
        raise _bad_name(".".join(parts))  # half a character: neither JVM nor store can hold it
    match parts:
        case (name,):
            return TableName(catalog, schema, name)
        case (schema_, name):
            return TableName(catalog, schema_, name)
        case (catalog_, schema_, name):
            return TableName(catalog_, schema_, name)
    raise _bad_name(".".join(parts))


def is_odd_column(name: str) -> bool:
    """Whether Delta can store a column of this name under column mapping only."""
    return _ODD_COLUMN.search(name) is not None


def check_not_reserved(name: str, *, what: str) -> None:
    """Refuse names that belong to the product."""
    lowered = name.lower()
    prefixes = (RESERVED_PREFIX, COMPILER_PREFIX)
    if lowered.startswith(prefixes) or lowered.endswith(RESERVED_SUFFIX):
        raise InvalidInput(
            f"{what} names with {RESERVED_PREFIX}…, {COMPILER_PREFIX}… or …{RESERVED_SUFFIX} are"
            " reserved",
            reason=Reason.RESERVED_NAME,
            about=name,
            hint=f"choose another {what} name",
        )
