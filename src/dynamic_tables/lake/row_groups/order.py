"""What order the rows of a table are wanted in, and how files that are in it are known again."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from dynamic_tables.lake.row_groups.sizes import ROW_GROUP_BYTES

ORDER_TAG = "dynamic_tables.row_groups"  # of files that are in order: in which
PHYSICAL_NAME = "delta.columnMapping.physicalName"  # of a column: what files call it
NUMBER_OF_VALUES = re.compile(
    r'"values_per_row_group": \d+'
)  # in tags; in names, quotes are escaped
PARTIAL = "dynamic_tables.partial"  # of files whose rows add to groups stored elsewhere


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """How the rows of a table are wanted."""

    unique_by: str  # every value of this column in row groups of its own
    sort_by: tuple[str, ...] = ()  # the order of the rows of one value
    values_per_row_group: int = 1
    row_group_bytes: int = ROW_GROUP_BYTES  # at most, in memory
    physical: tuple[str, ...] = ()  # what files call unique_by and sort_by, if it differs

    @property
    def tag(self) -> str:
        """What files in this order say; names compare without case.

        They are those that files have: what users see may be the name of another column later.

        >>> Order(unique_by="Customer").tag
        '{"unique_by": "customer", "sort_by": [], "values_per_row_group": 1}'
        """
        key, *others = [name.lower() for name in self.physical or (self.unique_by, *self.sort_by)]
        wanted = {
            "unique_by": key,
            "sort_by": others,
            "values_per_row_group": self.values_per_row_group,
        }
        if self.row_group_bytes != ROW_GROUP_BYTES:
            wanted["row_group_bytes"] = self.row_group_bytes
        return json.dumps(wanted)

    def is_that_of(self, tag: str | None) -> bool:
        """Whether a file with this tag is in order, however many values share a row group."""
        wanted, found = (NUMBER_OF_VALUES.sub("", each) for each in (self.tag, tag or ""))
        return wanted == found
