"""A view as plain SQL: statements that make it and keep it up to date, for users of nothing else.

text ──► view.py: its tables, their columns ──► plan.py: the delta plan ──► duckdb.py | spark.py
"""
