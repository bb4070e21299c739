"""The query by which people find out which CARDINALITY_THRESHOLD a table should have."""

TUNING = """
   -- Find cases near threshold where strategy switches
   SELECT dynamic_table, 
          AVG(duration_ms) FILTER (WHERE strategy = 'FULL') as avg_full,
          AVG(duration_ms) FILTER (WHERE strategy = 'AFFECTED_KEYS') as avg_incremental
   FROM refresh_history
   WHERE cardinality_ratio BETWEEN 0.25 AND 0.35  -- Near default threshold
   GROUP BY dynamic_table;
"""  # noqa: W291  as it is written
