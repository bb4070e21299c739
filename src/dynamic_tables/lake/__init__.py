"""Where the rows are: Delta tables on Spark, and below `duck` DuckLake tables on DuckDB. `pyspark`,
`py4j` and `duckdb` are imported below this package only."""
