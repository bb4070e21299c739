"""One refresh, readable top to bottom: pin a cut, decide, execute, commit, record.

cut.py       which version of every base table, for a whole set of tables at once (pure)
decide.py    what to do with one table, and why (pure); facts.py gathers what it needs
table.py     the refresh of one table; recovery.py finishes first what an earlier one left open
abandoned.py what is left open of a table that was suspended
writer.py    intent, commit and record of one table, exactly once; numbered.py: why n stands once
run.py       the refresh of a graph: order, concurrency; failures.py, and refusals.py for the words
freshness.py how far tables have fallen behind their base tables
preview.py   what the next refresh would do
states.py    commits in the lake as states
claims.py    keeping other processes away
context.py   what every part has at hand
"""
