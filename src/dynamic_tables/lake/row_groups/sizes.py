"""How large footers and files become: what is written, and what plans reckon with."""

from __future__ import annotations

CHUNK_FOOTER_BYTES = 80  # of one column in one row group, with statistics of the key only; measured
SPARK_CHUNK_FOOTER_BYTES = 130  # the same as Spark writes it, with statistics of all columns
FOOTER_BYTES = 24 * 2**10  # a reader that wants one value reads all of it: then begins a new file
FILE_BYTES_AT_LEAST = 2 * 2**20  # in a footer's favour no files are made smaller than this …
FILES_AT_MOST = 10_000  # … nor so small that a table would have more of them
FILE_BYTES_AT_MOST = 128 * 2**20
TASK_BYTES = 64 * 2**20  # of old files, that one task sorts and writes
SMALL_TASK_BYTES = 8 * 2**20  # a further task does not pay for less
ROW_GROUP_BYTES = 64 * 2**20  # at most, in memory; files hold them packed
HELD_BYTES = 512 * 2**20  # of rows in memory, where one process sorts a partition


def least_file_bytes(size: int) -> int:
    """How large a file is at least before it ends for the sake of its footer.

    >>> least_file_bytes(10**6), least_file_bytes(10**12), least_file_bytes(10**14)
    (2097152, 100000000, 134217728)
    """
    return min(max(size // FILES_AT_MOST, FILE_BYTES_AT_LEAST), FILE_BYTES_AT_MOST)
