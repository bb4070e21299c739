"""Whether literals leave out anything of the files of a table, beyond whole files.

New literals are new code, which Spark generates and compiles at every refresh; code without them is
there from the last one. Tables that are read by the list of their files lose no file by literals
(see `files`), so these are for row groups and pages: of files that are large enough to have some
that can be spared, and whose values are not all wanted. What nothing tells is taken for a yes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from dynamic_tables.lake import jvm, snapshots
from dynamic_tables.lake.files import listed
from dynamic_tables.lake.row_groups.order import ORDER_TAG
from dynamic_tables.lake.skipping import Wanted, sought

SMALL_FILE_BYTES = 2**18  # is read as a whole in less time than code is generated
CODE = "spark.sql.codegen.wholeStage"


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """What the log tells of a file."""

    stats: str | None
    bytes: int
    in_order: bool = False  # its row groups, by some column: each holds few values


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a version."""

    files: Sequence[File]
    schema: str  # as JSON

    def prune(self, wanted: Wanted) -> bool:
        """Whether literals for what is wanted leave out a part of one of them."""
        found = sought(wanted, self.schema)

        def has_parts(file: File) -> bool:
            if found is not None and not found.may_be_in(file.stats):
                return False
            if file.in_order:
                return True
            large = file.bytes > SMALL_FILE_BYTES
            return large and (found is None or not found.covers(file.stats))

        return any(map(has_parts, self.files))


class Pruning:
    """Asks the log once for each version of a table."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._known: dict[tuple[str, int], Files | None] = {}

    def pays(self, location: str, version: int, wanted: Wanted) -> bool:
        """Whether to say with literals what is wanted of a table; never a Spark job."""
        if self._session.conf.get(CODE, "true") == "false":
            return True  # nothing is generated for small tables
        place = (location, version)
        if place not in self._known:
            self._known[place] = _files(self._session, location, version)
        found = self._known[place]
        return found is None or found.prune(wanted)


def _files(session: SparkSession, location: str, version: int) -> Files | None:
    with jvm.active(session):
        found = listed(session, location, version)
        if found is None:
            return None
        files = [
            File(
                stats=file.get("stats"),
                bytes=file["size"],
                in_order=ORDER_TAG in (file.get("tags") or ()),
            )
            for file in snapshots.described(session, found.files)
        ]
        return Files(files, found.snapshot.metadata().schema().json())
