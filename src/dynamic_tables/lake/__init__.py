"""Where the rows are: Delta tables on Spark. `pyspark` and `py4j` are imported below this package
only."""
