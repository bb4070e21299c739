"""What a lake holds, so that tests can say: nothing was touched, nothing was left behind."""

from __future__ import annotations

from pathlib import Path

import dynamic_tables as dt
from dynamic_tables.lake import jvm

LOGS = "logs"  # Spark writes its log while we look
JOURNAL = (".db", ".db-wal", ".db-shm", ".db-journal")  # SQLite's files: their rows are compared


def files(folder: Path) -> dict[str, int]:
    """Every file below a folder with its size; the logs and the store's own files left out."""
    return {
        str(path.relative_to(folder)): path.stat().st_size if path.is_file() else -1
        for path in sorted(folder.rglob("*"))
        if LOGS not in path.relative_to(folder).parts and not path.name.endswith(JOURNAL)
    }


def snapshot(tables: dt.DynamicTables, folder: Path) -> dict[str, object]:
    """Files, catalog and store of a lake; two snapshots are equal if nothing happened between."""
    store = tables.store
    external = jvm.session_catalog(tables.spark).externalCatalog()
    return {
        "files": files(folder),
        "catalog": [
            (schema, name)
            for schema in jvm.items(external.listDatabases())
            for name in jvm.items(external.listTables(schema))
        ],
        "temporary": [
            view.table()
            for view in jvm.items(jvm.session_catalog(tables.spark).listLocalTempViews("*"))
        ],
        "tables": [(s.definition.as_json(), s.status) for s in store.tables()],
        "history": [record.as_json() for record in store.history(None, 1000)],
        "registry": sorted((item.key, item.kind) for item in store.registry_all()),
        "dependencies": store.read_rows("dependencies")[1],
        "claims": store.read_rows("refresh_claims")[1],
        "namespace": tables.lake.namespace(),
    }
