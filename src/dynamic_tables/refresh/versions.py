"""Reading a table at versions that the user names: there may be none of that number."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from itertools import pairwise

from dynamic_tables.definition import Definition
from dynamic_tables.errors import DynamicTablesError, InvalidInput
from dynamic_tables.lake.base import Lake
from dynamic_tables.reasons import Reason


@contextmanager
def at_versions(lake: Lake, definition: Definition, *versions: int | None) -> Generator[None]:
    """What the lake says of a version that it does not have becomes an error of ours.

    The lake is asked, not the store: it may have versions that no refresh made, and may have
    forgotten some that one did.
    """
    _check(lake, definition, versions)
    try:
        with _told(lake, definition):
            yield
    except DynamicTablesError as error:
        if _is_missing(lake, definition, versions, error):
            raise _none(lake, definition, versions) from error
        raise


def _is_missing(
    lake: Lake,
    definition: Definition,
    versions: tuple[int | None, ...],
    error: DynamicTablesError,
) -> bool:
    """Engines have many words for a version that never was; a number says it without them."""
    given = [version for version in versions if version is not None]
    if not given:
        return False
    gone = error.reason is Reason.HISTORY_GONE
    return gone or max(given) > lake.standing(definition).version


@contextmanager
def _told(lake: Lake, definition: Definition) -> Generator[None]:
    try:
        yield
    except lake.faults as error:
        raise lake.told(error, about=str(definition.name)) from error


def _check(lake: Lake, definition: Definition, versions: tuple[int | None, ...]) -> None:
    """Versions are numbers from 0 on, the first one first."""
    given = [version for version in versions if version is not None]
    whole = all(type(version) is int and version >= 0 for version in given)
    if not whole or any(one > other for one, other in pairwise(given)):
        raise InvalidInput(
            f"{_listed(versions)}: versions are numbers from 0 on, the first not after the last",
            reason=Reason.BAD_VALUE,
            about=str(definition.name),
            hint=_known(lake, definition),
        )


def _none(lake: Lake, definition: Definition, versions: tuple[int | None, ...]) -> InvalidInput:
    return InvalidInput(
        f"there is nothing to be read at version {_listed(versions)}",
        reason=Reason.HISTORY_GONE,
        about=str(definition.name),
        hint=_known(lake, definition),
    )


def _listed(versions: tuple[int | None, ...]) -> str:
    return " to ".join(str(version) for version in versions)


def _known(lake: Lake, definition: Definition) -> str:
    newest = lake.standing(definition).version
    return (
        f"the newest version is {newest}; `dynamic-tables history {definition.name}` lists those "
        "that refreshes made"
    )
