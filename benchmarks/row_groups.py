"""Row groups: what one look-up reads on plain, Z-ordered, clustered and ordered tables.

2,000 entities of 1,000 to 3,000 rows in four range partitions, written as they come in time. Each
reader looks some entities up, one by one; bytes are those that its process read from files (Linux
counts them). Each look-up is measured at its second turn: DuckDB reads footers every time, the
others keep them. Readers that do not know Delta are given the files that its statistics leave.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import unquote

import duckdb
import polars
import pyarrow
import pyarrow.dataset
from common import RESULTS, Lake, arguments, report
from deltalake import DeltaTable, QueryBuilder

import dynamic_tables as dt

ENTITIES, QUICK_ENTITIES = 2_000, 200
PARTITIONS = 4
LOOK_UPS = 9
KEYS, QUICK_KEYS, ROWS_A_KEY, CHANGED = 1_000_000, 20_000, 3, 100
FEED = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
# Values a row group: as recommended for look-ups of whole rows; or so many that the two columns
# that the refresh reads of them fill the 8 kB that Spark reads at once.
IN_ORDER: Mapping[str, int | None] = {"in_order": None, "for_refreshes": 600}
SOURCES = ("as_it_came", "clustered", *IN_ORDER)
COLUMNS = "entity INT, at TIMESTAMP, reading DOUBLE, status STRING, entity_range INT"
START, STEP = 1_700_000_000_000_000, 300_000_000  # microseconds: every five minutes or so
TITLE = "Row groups: one look-up among {} entities of 1,000 to 3,000 rows"
Look = Callable[[int], int]  # an entity; how many rows it has


@dataclass(frozen=True, slots=True)
class Cost:
    """What look-ups of one reader on one layout cost; medians."""

    kilobytes: float
    milliseconds: float


# The tables


def make(tables: dt.DynamicTables, name: str, *, clustered: bool = False) -> None:
    how = "CLUSTER BY (entity)" if clustered else "PARTITIONED BY (entity_range)"
    tables.sql(f"CREATE TABLE {name} ({COLUMNS}) USING delta {how}")


def prepare(tables: dt.DynamicTables, entities: int) -> None:
    """Rows as they come: at any time those of all entities."""
    tables.spark.sql(
        "SELECT CAST(id AS INT) AS entity, explode(sequence(0, 999 + pmod(hash(id), 2001))) AS n"
        f" FROM range({entities})"
    ).selectExpr(
        "entity",
        f"timestamp_micros({START} + {STEP}L * n + pmod(xxhash64(entity, n), {STEP // 5})) AS at",
        "round(20 + 5 * sin(n / 50) + pmod(hash(n, entity), 1000) / 500, 2) AS reading",
        "element_at(array('ok', 'ok', 'ok', 'late', 'lost'), 1 + pmod(hash(n, entity, 1), 5))"
        " AS status",
        f"CAST(entity * {PARTITIONS} DIV {entities} AS INT) AS entity_range",
    ).createOrReplaceTempView("rows")
    make(tables, "plain")
    for part in ("at <  TIMESTAMP '2023-11-18'", "at >= TIMESTAMP '2023-11-18'"):
        order = "DISTRIBUTE BY entity_range SORT BY at"
        tables.sql(f"INSERT INTO plain SELECT * FROM rows WHERE {part} {order}")
    for name in ("z_order", "native", "arrow", "arrow_grouped"):
        make(tables, name)
        tables.sql(f"INSERT INTO {name} SELECT * FROM plain")
    make(tables, "liquid", clustered=True)
    tables.sql("INSERT INTO liquid SELECT * FROM plain")
    tables.sql("OPTIMIZE z_order ZORDER BY (entity)")
    tables.sql("OPTIMIZE liquid")
    by = {"unique_by": "entity", "sort_by": "at"}
    tables.rorder("native", **by, engine="native")
    tables.rorder("arrow", **by)
    tables.rorder("arrow_grouped", **by, values_per_row_group=2)


LAYOUTS = ("plain", "z_order", "liquid", "native", "arrow", "arrow_grouped")


# The readers


def looks(tables: dt.DynamicTables, place: str) -> dict[str, Look]:
    path = place.removeprefix("file:")
    delta = DeltaTable(path)
    sql = QueryBuilder().register("t", delta)
    duck = duckdb.connect(config={"enable_external_file_cache": False})
    actions = pyarrow.table(delta.get_add_actions(flatten=True))
    told = (actions.column(n).to_pylist() for n in ("path", "min.entity", "max.entity"))
    known = [(unquote(name), least, most) for name, least, most in zip(*told, strict=True)]
    opened: dict[str, Any] = {}  # pyarrow keeps footers as long as its user keeps the dataset

    def files(entity: int) -> list[str]:
        """Those that Delta's statistics leave."""
        return [f"{path}/{name}" for name, least, most in known if least <= entity <= most]

    def spark(entity: int) -> int:
        read = tables.spark.read.format("delta").load(place)
        return len(read.where(f"entity = {entity}").collect())

    def by_duckdb(entity: int) -> int:
        query = "SELECT * FROM read_parquet(?) WHERE entity = ?"
        return duck.execute(query, [files(entity), entity]).to_arrow_table().num_rows

    def by_pyarrow(entity: int) -> int:
        chosen = files(entity)
        found = opened.get(str(chosen))
        if found is None:
            found = opened[str(chosen)] = pyarrow.dataset.dataset(chosen, format="parquet")
        return found.to_table(filter=pyarrow.dataset.field("entity") == entity).num_rows

    def by_delta_rs(entity: int) -> int:
        return pyarrow.table(sql.execute(f"SELECT * FROM t WHERE entity = {entity}")).num_rows

    def by_polars(entity: int) -> int:
        frame = polars.scan_parquet(files(entity), hive_partitioning=False)
        return frame.filter(polars.col("entity") == entity).collect().height

    return {
        "Spark": spark,
        "DuckDB": by_duckdb,
        "pyarrow": by_pyarrow,
        "delta-rs": by_delta_rs,
        "Polars": by_polars,
    }


def bytes_read(process: int | str) -> int:
    counters = Path(f"/proc/{process}/io").read_text(encoding="ascii").splitlines()
    return int(dict(line.split(": ") for line in counters)["rchar"])


def measured(look: Look, process: int | str, entities: Sequence[int]) -> Cost:
    sizes, times = [], []
    for entity in entities:
        turns = []
        for _ in range(2):
            before, begun = bytes_read(process), time.perf_counter()
            assert look(entity) > 0
            turns.append((bytes_read(process) - before, time.perf_counter() - begun))
        sizes.append(turns[-1][0] / 1000)
        times.append(turns[-1][1] * 1000)
    return Cost(statistics.median(sizes), statistics.median(times))


# The report


def table(megabytes: Mapping[str, float], costs: Mapping[str, Mapping[str, Cost]]) -> str:
    readers = [*next(iter(costs.values()))]
    head = "kB read by one look-up (how many times fewer than Z-order), milliseconds"
    lines = [head, "", f"| layout | MB | of plain | {' | '.join(readers)} |"]
    lines.append(f"|{'---|' * (3 + len(readers))}")
    for layout, found in costs.items():
        cells = [
            f"{cost.kilobytes:,.0f} ({costs['z_order'][reader].kilobytes / cost.kilobytes:.1f}),"
            f" {cost.milliseconds:.0f}"
            for reader, cost in found.items()
        ]
        share = megabytes[layout] / megabytes["plain"]
        lines.append(f"| {layout} | {megabytes[layout]:.1f} | {share:.2f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def draw(costs: Mapping[str, Mapping[str, Cost]]) -> None:
    from matplotlib import pyplot  # noqa: PLC0415  only who saves results needs it

    figure, axes = pyplot.subplots(figsize=(9, 5.5), layout="constrained")
    readers = [*next(iter(costs.values()))]
    width = 0.8 / len(costs)
    for number, (layout, found) in enumerate(costs.items()):
        places = [n + number * width for n in range(len(readers))]
        axes.bar(places, [found[r].kilobytes for r in readers], width, label=layout)
    axes.set_xticks([n + 0.4 - width / 2 for n in range(len(readers))], readers)
    axes.set(title="One look-up", ylabel="kB read", yscale="log")
    axes.legend(fontsize=8)
    figure.savefig(RESULTS.with_name("row_groups.png"), dpi=110)


# Refreshes


def refresh_sources(tables: dt.DynamicTables, keys: int) -> None:
    """The same rows several times; as they come, the keys are all over the files."""
    rows = f"SELECT pmod(xxhash64(id), {keys}) AS k, id AS v, sha2(string(id), 256) AS text"
    feed = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    for name in SOURCES:
        clustered = "CLUSTER BY (k)" if name == "clustered" else ""
        tables.sql(
            f"CREATE TABLE {name} (k BIGINT, v BIGINT, text STRING) USING delta {clustered} {feed}"
        )
    tables.sql(f"INSERT INTO as_it_came {rows} FROM range({keys * ROWS_A_KEY})")
    for name in SOURCES[1:]:
        tables.sql(f"INSERT INTO {name} SELECT * FROM as_it_came")
    tables.sql("OPTIMIZE clustered")
    for name, wanted in IN_ORDER.items():
        values = wanted or _recommended(tables, name)
        print(name, values, "values a row group", flush=True)
        tables.rorder(name, unique_by="k", values_per_row_group=values)


def _recommended(tables: dt.DynamicTables, name: str) -> int:
    plan = tables.rorder_plan(name, unique_by="k")
    assert plan.recommended is not None
    return plan.recommended.values_per_row_group or 1


@contextmanager
def counting(process: int, folder: str) -> Generator[list[int]]:
    """Bytes that a process reads from the files of rows in a folder, by its system calls.

    It makes the process slow; without strace nothing is counted.
    """
    found: list[int] = []
    with tempfile.NamedTemporaryFile("r", encoding="utf-8", errors="replace") as calls:
        watch = ["strace", "-f", "-q", "-y", "-e", "trace=read,pread64", "-o", calls.name]
        tracer = subprocess.Popen([*watch, "-p", str(process)], stderr=subprocess.DEVNULL)
        time.sleep(2)  # until all threads are watched
        try:
            yield found
        finally:
            tracer.terminate()
            tracer.wait()
        found.append(sum(size for path, size in _calls(calls) if folder in path))


CALL = re.compile(r"(\d+) +(?:read|pread64)\(\d+<([^>]*)>")  # thread, path
RETURNED = re.compile(r"^(\d+) .* = (\d+)$")  # also of a call that another thread interrupted


def _calls(lines: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Files of rows and the bytes of each call; those of the log do not count."""
    open_: dict[str, str] = {}
    for line in lines:
        if (call := CALL.match(line)) is not None:
            open_[call[1]] = call[2]
        if (end := RETURNED.match(line)) is not None:
            path = open_.pop(end[1], "")
            if path.endswith(".parquet") and "_delta_log" not in path:
                yield path, int(end[2])


@dataclass(frozen=True, slots=True)
class Read:
    """What a refresh read: of its source, and in all; its seconds are those of another one."""

    source: int
    everything: int
    seconds: float


def refreshes(tables: dt.DynamicTables, keys: int) -> str:
    """What is read while 100 keys, neighbours or not, are recomputed."""
    refresh_sources(tables, keys)
    for name in SOURCES:
        tables.create(f"of_{name}", f"SELECT k, count(DISTINCT v) AS n FROM {name} GROUP BY k")
    found: dict[tuple[str, str], Read] = {}
    for number in range(2):
        for spread, step in (("neighbours", 1), ("all over", keys // CHANGED)):
            changed = f"SELECT {number} + id * {step}, -id, 'new' FROM range({CHANGED})"
            for name in SOURCES:
                tables.sql(f"INSERT INTO {name} {changed}")
                timed = found.get((spread, name))
                found[spread, name] = refreshed(tables, name, timed.seconds if timed else None)
                print(spread, name, found[spread, name], flush=True)
    return told(found)


def refreshed(tables: dt.DynamicTables, name: str, timed: float | None) -> Read:
    """The first time it is timed, the second time its bytes are counted."""
    process: Any = tables.spark.sparkContext._gateway.proc
    folder = tables.sql(f"DESCRIBE DETAIL {name}").collect()[0].location.removeprefix("file:")
    watched = counting(process.pid, f"{folder}/") if timed is not None else nullcontext([])
    with watched as source:
        before, begun = bytes_read(process.pid), time.perf_counter()
        record = tables.refresh(f"of_{name}", strategy="keys")[f"of_{name}"]
        seconds, everything = time.perf_counter() - begun, bytes_read(process.pid) - before
    assert record.strategy == "keys"
    return Read(source[0] if source else 0, everything, timed or seconds)


def told(found: Mapping[tuple[str, str], Read]) -> str:
    lines = [
        "| changed keys | source | MB of the source | times fewer | MB in all | times fewer | s |",
        "|---|---|---|---|---|---|---|",
    ]
    for (spread, name), read in found.items():
        base = found[spread, SOURCES[0]]
        cells = [
            f"{read.source / 1e6:.2f} | {base.source / max(read.source, 1):.1f}",
            f"{read.everything / 1e6:.1f} | {base.everything / read.everything:.1f}",
        ]
        lines.append(f"| {spread} | {name} | {' | '.join(cells)} | {read.seconds:.1f} |")
    return "\n".join(lines)


def look_ups(tables: dt.DynamicTables, entities: int, asked: int) -> dict[str, dict[str, Cost]]:
    prepare(tables, entities)
    jvm: Any = tables.spark.sparkContext._gateway.proc
    chosen = Random(7).sample(range(entities), asked)
    costs = {}
    for layout in LAYOUTS:
        place = tables.sql(f"DESCRIBE DETAIL {layout}").collect()[0].location
        costs[layout] = {
            reader: measured(look, jvm.pid if reader == "Spark" else "self", chosen)
            for reader, look in looks(tables, place).items()
        }
        print(layout, costs[layout], flush=True)
    return costs


def sizes(tables: dt.DynamicTables) -> dict[str, float]:
    found = {n: tables.sql(f"DESCRIBE DETAIL {n}").collect()[0].sizeInBytes for n in LAYOUTS}
    return {name: size / 1e6 for name, size in found.items()}


def main() -> None:
    wanted = arguments(__doc__, only=("look_ups", "refreshes"))
    entities, keys = (QUICK_ENTITIES, QUICK_KEYS) if wanted.quick else (ENTITIES, KEYS)
    with Lake() as tables:
        if wanted.only != "refreshes":
            costs = look_ups(tables, entities, 3 if wanted.quick else LOOK_UPS)
            report(TITLE.format(f"{entities:,}"), table(sizes(tables), costs), save=wanted.save)
            if wanted.save:
                draw(costs)
        if wanted.only != "look_ups":
            title = f"Row groups: {CHANGED} of {keys:,} keys of a source change"
            report(title, refreshes(tables, keys), save=wanted.save)


if __name__ == "__main__":
    main()
