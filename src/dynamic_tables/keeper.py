"""A catalog in memory, carried from one process to the next, and to those that run now."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynamic_tables._tokens import leading_words
from dynamic_tables.store import Registered, Store

if TYPE_CHECKING:
    from dynamic_tables.lake.delta import SparkLake
    from dynamic_tables.lake.registry import CatalogEntry

CHANGES_CATALOG = frozenset({"CREATE", "DROP", "ALTER", "REPLACE", "USE", "WITH"})


class CatalogKeeper:
    """Keeps a catalog that forgets in the store, from where other processes take it.

    `warehouse` is a local folder in which tables may lie that nobody registered."""

    def __init__(
        self, lake: SparkLake, store: Store, warehouse: Path | None, say: Callable[[str], None]
    ) -> None:
        self._lake, self._store, self._warehouse = lake, store, warehouse
        self._say = say
        self._known: dict[str, Registered] = {}  # as this process's own catalog had it
        self._read: dict[str, Registered] = {}  # as the store had it
        self._one_by_one = threading.Lock()

    def restore(self) -> None:
        """Register what was registered, what lies in the folder, and the loaded dynamic tables.

        The store is told of it by `begin`, once somebody knows that it is this lake's.
        """
        from dynamic_tables.lake import registry  # noqa: PLC0415  needs pyspark

        spark = self._lake.spark
        self._read = {item.key: item for item in self._store.registry_all()}
        entries = [_entry(item) for item in self._read.values()]
        for entry in entries:
            if entry.kind != "view":
                registry.restore(spark, entry)
        if self._warehouse is not None:
            for entry in registry.lying_about(spark, self._warehouse):
                registry.restore(spark, entry)
        for state in self._store.tables():
            if state.build is not None:
                self._lake.publish(state.definition)
        self._restore_views([entry for entry in entries if entry.kind == "view"])

    def begin(self) -> None:
        self.remember(but=self._read)  # what came from there would only stir others up

    def _restore_views(self, views: list[CatalogEntry]) -> None:
        """Those that cannot be made are told, and kept for later."""
        from dynamic_tables.lake import registry  # noqa: PLC0415  needs pyspark

        left = [view for view in views if not registry.restore(self._lake.spark, view)]
        if left:
            names = ", ".join(".".join(view.name) for view in left)
            self._say(f"views that cannot be restored, because their schema is gone: {names}")

    def after_statement(self, text: str) -> None:
        words = leading_words(text, 1)
        if not words or words[0] in CHANGES_CATALOG:
            self.remember()

    def remember(self, *, but: Container[str] = ()) -> None:
        """Tell the store what this process changed; what others made meanwhile is left alone."""
        with self._one_by_one:
            present = self._listed()
            dynamic = {state.definition.name.key for state in self._store.tables()}
            for key, item in present.items():
                ours = key not in dynamic and key not in but
                if ours and self._known.get(key) != item:
                    self._store.registry_put(item)
            for key in self._known.keys() - present.keys():
                self._store.registry_delete(key)
            self._known = present

    def catch_up(self) -> None:
        """Take over what other processes made, and the views that they replaced or dropped.

        Tables that they dropped stay known: their files tell that they are gone."""
        from dynamic_tables.lake import registry  # noqa: PLC0415  needs pyspark

        with self._one_by_one:
            now = {item.key: item for item in self._store.registry_all()}
            new = [item for key, item in now.items() if self._read.get(key) != item]
            gone = [item for key, item in self._read.items() if key not in now]
            self._read = now
            new = [item for item in new if self._known.get(item.key) != item]
            if not new and not gone:
                return
            for item in (*new, *gone):
                if item.kind == "view":
                    registry.drop_view(self._lake.spark, _entry(item))
            for item in new:
                if item.kind != "view":
                    registry.restore(self._lake.spark, _entry(item))
            self._restore_views([_entry(item) for item in new if item.kind == "view"])
            present = self._listed()
            for item in (*new, *gone):
                self._known.pop(item.key, None)
                if item.key in present:
                    self._known[item.key] = present[item.key]

    def _listed(self) -> dict[str, Registered]:
        from dynamic_tables.lake import registry  # noqa: PLC0415  needs pyspark

        return {item.key: item for item in map(_registered, registry.listed(self._lake.spark))}


def _registered(entry: CatalogEntry) -> Registered:
    return Registered(
        name=("spark_catalog", *entry.name),
        kind=entry.kind,
        location=entry.location,
        text=entry.text,
        extra=entry.extra,
    )


def _entry(item: Registered) -> Any:
    from dynamic_tables.lake.registry import CatalogEntry  # noqa: PLC0415  needs pyspark

    return CatalogEntry(
        kind=item.kind,
        name=item.name[1:],
        location=item.location,
        text=item.text,
        extra=item.extra,
    )
