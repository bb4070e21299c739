"""One refresh, readable top to bottom: pin a cut, decide, execute, commit, record.

cut.py       which version of every base table, for a whole set of tables at once
decide.py    what to do with one table, and why (pure)
commit.py    exactly once: intent, commit, record; recovery
table.py     the refresh of one table, step by step
run.py       the refresh of a graph: order, concurrency, failures
"""
