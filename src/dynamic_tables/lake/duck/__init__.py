"""The small lake: DuckLake tables on DuckDB, in one process, without a JVM.

opening.py     the folder, the extension, one DuckDB per folder and process
text.py        identifiers and names as DuckDB reads them
references.py  where a query names tables or the clock, as DuckDB's own parser says
catalog.py     tables, views and columns, now and at a version, from DuckLake's catalog
log.py         what each snapshot of the catalog changed
pinning.py     a query at a cut
analysis.py    what CREATE makes of a query, and refuses
types.py       which columns can be stored exactly
bags.py        comparing tables as bags of rows
area.py        the refresh of one table: compute, commit, compare
stored.py      the stored tables and their definitions
user.py        the user's own statements and their results
lake.py        all of it as `lake.base.Lake`

`duckdb` is imported below this package only.
"""
