"""Tables as bags of rows: how many copies of each row are missing, how many are too many?

Rows are compared as DuckDB groups them: NULL equals NULL, NaN equals NaN, 0.0 equals -0.0.
"""

from __future__ import annotations

from collections.abc import Sequence

from dynamic_tables.compiler.duck_sql import columns_sql, quote
from dynamic_tables.compiler.emit import WEIGHT
from dynamic_tables.names import RESERVED_PREFIX

COPIES = f"{RESERVED_PREFIX}copies"  # positive: missing from the table; negative: too many there
PRESENT = f"{RESERVED_PREFIX}present"  # copies that the table has
TOLERANCE = 1e-9  # relative; floating sums differ that much between runs


def difference(here: str, there: str, columns: Sequence[str]) -> str:
    """Every row that occurs a different number of times, with the difference."""
    names = columns_sql(list(columns))
    return (
        f"SELECT {names}, sum({COPIES})::BIGINT AS {COPIES} FROM ("
        f"SELECT {names}, 1 AS {COPIES} FROM {here} UNION ALL "
        f"SELECT {names}, -1 AS {COPIES} FROM {there}"
        f") GROUP BY {names} HAVING sum({COPIES}) <> 0"
    )


def netted(changes: str, typed: str) -> str:
    """Signed rows as a difference: what came and went cancels. `typed` casts the columns."""
    return (
        f"SELECT * EXCLUDE ({WEIGHT}), sum({WEIGHT})::BIGINT AS {COPIES} "
        f"FROM (SELECT {typed}, {WEIGHT} FROM ({changes})) "
        f"GROUP BY ALL HAVING sum({WEIGHT}) <> 0"
    )


def nothing(columns: Sequence[str]) -> str:
    """An empty difference."""
    items = ", ".join(f"NULL AS {quote(name)}" for name in columns)
    return f"SELECT {items}, 0::BIGINT AS {COPIES} LIMIT 0"


def lacking(changes: str, table: str, columns: Sequence[str]) -> str:
    """Rows of a difference that are to go more often than the table has them."""
    names = columns_sql(list(columns))
    same = " AND ".join(f"p.{quote(name)} IS NOT DISTINCT FROM d.{quote(name)}" for name in columns)
    present = f"SELECT {names}, count(*) AS {PRESENT} FROM {table} GROUP BY {names}"
    return (
        f"SELECT 1 FROM {changes} AS d LEFT JOIN ({present}) AS p ON {same} "
        f"WHERE d.{COPIES} < 0 AND coalesce(p.{PRESENT}, 0) < -d.{COPIES}"
    )


def surplus(table: str, changes: str, columns: Sequence[str]) -> str:
    """The row ids of exactly as many copies as are too many."""
    rank = f"{RESERVED_PREFIX}rank"
    same = " AND ".join(f"t.{quote(name)} IS NOT DISTINCT FROM d.{quote(name)}" for name in columns)
    keys = ", ".join(f"t.{quote(name)}" for name in columns)
    return (
        "SELECT rowid FROM ("
        f"SELECT t.rowid, d.{COPIES}, row_number() OVER (PARTITION BY {keys}) AS {rank} "
        f"FROM {table} t JOIN {changes} d ON {same} WHERE d.{COPIES} < 0"
        f") WHERE {rank} <= -{COPIES}"
    )


def missing(changes: str, columns: Sequence[str]) -> str:
    """The rows to insert, as many copies of each as are missing."""
    names = columns_sql(list(columns))
    return (
        f"SELECT {names} FROM (SELECT {names}, unnest(range({COPIES})) "
        f"FROM {changes} WHERE {COPIES} > 0)"
    )


def without_rounding(changes: str, columns: Sequence[str], approximate: Sequence[str]) -> str:
    """Drop pairs of rows that differ only by rounding in columns of floating aggregates.

    Rows that agree in all other columns are paired in the order of the approximate ones.
    """
    side, rank, twins = (f"{RESERVED_PREFIX}{word}" for word in ("side", "rank", "twins"))
    exact = [quote(name) for name in columns if name not in approximate]
    order = columns_sql(list(approximate))
    group = ", ".join([*exact, rank])
    close = " AND ".join(
        f"count({c}) OVER w IN (0, 2) AND coalesce(min({c}) OVER w = max({c}) OVER w OR "
        f"isfinite(min({c}) OVER w) AND isfinite(max({c}) OVER w) AND "
        f"max({c}) OVER w - min({c}) OVER w <= {TOLERANCE} * "
        f"greatest(abs(min({c}) OVER w), abs(max({c}) OVER w)), true)"
        for c in map(quote, approximate)
    )
    return (
        f"SELECT {columns_sql(list(columns))}, "
        f"CASE WHEN {side} THEN 1 ELSE -1 END AS {COPIES} FROM ("
        f"SELECT *, count(*) OVER w = 2 AND {close} AS {twins} FROM ("
        f"SELECT *, row_number() OVER (PARTITION BY {', '.join([*exact, side])} ORDER BY {order})"
        f" AS {rank} FROM (SELECT *, {COPIES} > 0 AS {side}, unnest(range(abs({COPIES}))) "
        f"FROM {changes})) WINDOW w AS (PARTITION BY {group})) WHERE NOT {twins}"
    )
