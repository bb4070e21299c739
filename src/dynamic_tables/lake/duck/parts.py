"""Tables stored in parts (STORAGE = MERGE_ON_READ), as SQL: groups, and what became of them."""

from __future__ import annotations

from collections.abc import Sequence

from dynamic_tables.compiler.emit import WEIGHT
from dynamic_tables.definition import InParts
from dynamic_tables.lake.duck.text import columns_sql, quote


def of_groups(rows: str, groups: str, keys: Sequence[str]) -> str:
    """A relation: the rows that belong to some groups; without keys, there is only one group."""
    same = [f"k.{quote(key)} IS NOT DISTINCT FROM t.{quote(key)}" for key in keys]
    exists = f"EXISTS (SELECT 1 FROM {groups} AS k WHERE {' AND '.join(same)})"  # noqa: S608
    return f"(SELECT * FROM (FROM {rows}) AS t WHERE {exists if keys else 'TRUE'})"  # noqa: S608


def groups_of(rows: str, keys: Sequence[str]) -> str:
    """A relation: the groups that some rows belong to."""
    return f"(SELECT DISTINCT {columns_sql(keys) or '1 AS one'} FROM {rows})"  # noqa: S608


def changes(groups: str, before: str, after: str, in_parts: InParts, columns: str) -> str:
    """SQL of signed rows: what became of some groups between two versions of what is stored."""
    now, then = (in_parts.over(of_groups(rows, groups, in_parts.keys)) for rows in (after, before))
    return (
        f"SELECT {columns}, 1 AS {WEIGHT} FROM ({now}) "  # noqa: S608  quoted
        f"UNION ALL SELECT {columns}, -1 FROM ({then})"
    )
