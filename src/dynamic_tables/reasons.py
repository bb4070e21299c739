"""Every reason code the product can give, with the sentence that explains it.

A code is stable: scripts, alerts and the documentation refer to it. `docs/reasons.md` has a
paragraph for each one, and a test fails when a code is missing there.
"""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Why something happened (a strategy was chosen) or could not happen (an error)."""

    # Why a refresh did what it did.
    FIRST_LOAD = "FIRST_LOAD"  # the table had never been loaded
    NOT_MOVED = "NOT_MOVED"  # no source changed since the last refresh
    NET_EMPTY = "NET_EMPTY"  # sources changed, the result did not
    CHANGED = "CHANGED"  # sources changed, and their changes are what was read
    NO_FEED = "NO_FEED"  # no longer given; it is in older histories
    DEARER = "DEARER"  # reading what changed would cost more than to recompute
    NOT_CHEAPER = "NOT_CHEAPER"  # it would not cost clearly less than one that comes before it
    BELOW_THRESHOLD = "BELOW_THRESHOLD"  # CARDINALITY_THRESHOLD is asked instead of the cost
    ABOVE_THRESHOLD = "ABOVE_THRESHOLD"  # more keys are affected than CARDINALITY_THRESHOLD allows
    CHANGES_FAILED = "CHANGES_FAILED"  # an expression failed on a row that came and went
    NOT_INCREMENTAL = "NOT_INCREMENTAL"  # the strategy that was asked for is not possible
    NON_DETERMINISTIC = "NON_DETERMINISTIC"  # a function's result may differ between two runs
    TIME_IN_OUTPUT = "TIME_IN_OUTPUT"  # the time is part of the result, so every row changes
    GLOBAL_LIMIT = "GLOBAL_LIMIT"  # LIMIT over all rows
    NO_PARTITION = "NO_PARTITION"  # a window without PARTITION BY, or without a common one
    RECURSIVE = "RECURSIVE"  # a recursive query
    DECLARED_FULL = "DECLARED_FULL"  # the table is declared REFRESH_MODE = FULL
    STORAGE = "STORAGE"  # the strategy is not for tables that are stored like this one
    NOT_MONOTONE = "NOT_MONOTONE"  # a new row may take an output row away: no plain append
    ROWS_WENT = "ROWS_WENT"  # rows of a source went or became others: no append this time
    NO_INVERSE = "NO_INVERSE"  # no GROUP BY on top, or an aggregate that cannot be merged
    NO_STATE = "NO_STATE"  # the stored columns do not tell enough to merge
    NO_KEY = "NO_KEY"  # no output columns identify the affected rows
    SQL_NOT_FAITHFUL = "SQL_NOT_FAITHFUL"  # the compiler does not know a construct of the query
    UNKNOWN_FUNCTION = "UNKNOWN_FUNCTION"  # a permanent function of somebody's own classes
    FORCED = "FORCED"  # the user asked for this strategy
    DEFINITION_CHANGED = "DEFINITION_CHANGED"  # the query is not the one the rows were built from
    FOREIGN_CHANGE = "FOREIGN_CHANGE"  # somebody else wrote to the stored table
    VIEW_CHANGED = "VIEW_CHANGED"  # a view the query reads has a new text
    SOURCE_REPLACED = "SOURCE_REPLACED"  # a source was dropped and made again, or replaced
    SOURCE_SCHEMA_CHANGED = "SOURCE_SCHEMA_CHANGED"  # a used column was renamed, dropped or retyped
    TIME_PASSED = "TIME_PASSED"  # the query reads the clock, and the clock has moved
    RECOVERED = "RECOVERED"  # an interrupted refresh was completed first

    # Why a refresh of a table did not take place.
    UPSTREAM_FAILED = "UPSTREAM_FAILED"  # a table it reads failed in the same refresh
    SUSPENDED = "SUSPENDED"  # suspended by hand or after failures in a row
    HELD = "HELD"  # another live process refreshes this table
    TAKEN_OVER = "TAKEN_OVER"  # another process completed this refresh meanwhile
    QUERY_FAILED = "QUERY_FAILED"  # the query or its data failed, the engine says
    ENGINE_FAILED = "ENGINE_FAILED"  # executors, memory, network, storage, or who knows
    ENGINE_GONE = "ENGINE_GONE"  # the engine itself died: its JVM, its context, its database
    COMMIT_FAILED = "COMMIT_FAILED"  # the rows were computed but could not be committed
    SUBTASKS_LOST = "SUBTASKS_LOST"  # worker after worker vanished with the same slice
    SLICE_DAMAGED = "SLICE_DAMAGED"  # a slice is not in the lake as it was computed
    PARALLEL_TIMEOUT = "PARALLEL_TIMEOUT"  # the slices of a refresh were not computed in time
    INTERRUPTED = "INTERRUPTED"  # stopped by the user, or because its worker ends
    NOT_INITIALIZED = "NOT_INITIALIZED"  # declared, but not loaded yet
    INCOMPATIBLE_CUTS = "INCOMPATIBLE_CUTS"  # its sources stand at cuts that do not fit together
    HISTORY_GONE = "HISTORY_GONE"  # a pinned version can no longer be read
    SCAN_LIMIT = "SCAN_LIMIT"  # the refresh would read more than MAX_SCAN_BYTES
    MODE_REFUSES_FULL = "MODE_REFUSES_FULL"  # INCREMENTAL was demanded, only `full` is possible
    INTERNAL = "INTERNAL"  # an invariant does not hold: a defect of ours

    # Why a statement was refused.
    SYNTAX = "SYNTAX"  # the statement cannot be parsed
    UNKNOWN_OPTION = "UNKNOWN_OPTION"  # no such option
    BAD_VALUE = "BAD_VALUE"  # the value does not fit the option
    CONTRADICTION = "CONTRADICTION"  # two options exclude each other
    NO_QUERY = "NO_QUERY"  # there is no SELECT
    NOT_A_QUERY = "NOT_A_QUERY"  # the statement is not a query (DDL, DML, a command)
    SEVERAL_STATEMENTS = "SEVERAL_STATEMENTS"  # more than one statement
    UNKNOWN_SOURCE = "UNKNOWN_SOURCE"  # a table of the query does not exist
    SOURCE_NOT_DELTA = "SOURCE_NOT_DELTA"  # a source cannot be pinned to a version
    TEMPORARY_OBJECT = "TEMPORARY_OBJECT"  # temporary views and functions end with the session
    TIME_TRAVEL = "TIME_TRAVEL"  # the query pins a version itself
    PATH_NOT_ALLOWED = "PATH_NOT_ALLOWED"  # a path relation outside the allowed roots
    RUNS_PROGRAMS = "RUNS_PROGRAMS"  # the query would run programs
    COLUMNS_UNKNOWN = "COLUMNS_UNKNOWN"  # the text does not tell whose column it names
    BAD_COLUMNS = "BAD_COLUMNS"  # output columns are unnamed or named twice
    BAD_NAME = "BAD_NAME"  # the catalog cannot hold this name
    RESERVED_NAME = "RESERVED_NAME"  # the name belongs to the product
    CYCLE = "CYCLE"  # the table would read itself
    ANALYSIS_FAILED = "ANALYSIS_FAILED"  # the query means nothing: a column that is not there …
    ALREADY_EXISTS = "ALREADY_EXISTS"  # the name is taken
    UNKNOWN_TABLE = "UNKNOWN_TABLE"  # no dynamic table of this name
    HAS_CHILDREN = "HAS_CHILDREN"  # other dynamic tables read this one
    TABLE_FEATURE = "TABLE_FEATURE"  # the table has something that row-group order does not know

    # What is wrong with the surroundings.
    JAVA_MISSING = "JAVA_MISSING"  # no Java, or one that is too old
    SPARK_MISSING = "SPARK_MISSING"  # pyspark or delta-spark is not installed
    DUCKDB_MISSING = "DUCKDB_MISSING"  # duckdb or its ducklake extension is not installed
    ARROW_MISSING = "ARROW_MISSING"  # pyarrow is not installed
    DELTA_MISSING = "DELTA_MISSING"  # Delta's jar is not on the session's class path
    VERSION_UNTESTED = "VERSION_UNTESTED"  # this pair of Spark and Delta versions is not supported
    CONNECT_UNSUPPORTED = "CONNECT_UNSUPPORTED"  # a Spark Connect session
    SESSION_RUNNING = "SESSION_RUNNING"  # another Spark session already runs in this process
    STORE_MISSING = "STORE_MISSING"  # no store was named
    STORE_BROKEN = "STORE_BROKEN"  # the store cannot be opened, or is of a newer version
    NO_PERMISSION = "NO_PERMISSION"  # the folder cannot be read or written
    DISK_FULL = "DISK_FULL"  # no space is left
    NO_EXCLUSION = "NO_EXCLUSION"  # the lake's storage does not exclude two writers from each other
    LAKE_CHANGED = "LAKE_CHANGED"  # the lake does not hold what the store says
    BAD_SETTING = "BAD_SETTING"  # a setting is unknown or has a bad value


# Refreshes that the user's own rules refuse: nothing failed.
BY_POLICY = frozenset({Reason.SCAN_LIMIT, Reason.MODE_REFUSES_FULL})

# Who came second says nothing about the table, and must not change what the first one wrote.
NOT_ABOUT_THE_TABLE = frozenset({Reason.HELD, Reason.TAKEN_OVER, Reason.NO_EXCLUSION})

# They fail again and again, later and later, but for no fault of the table: none suspends it, nor
# is one counted among its failures in a row. How often it failed so, history tells.
NEVER_SUSPENDS = frozenset({Reason.DISK_FULL})
