"""What all benchmarks share: ways side by side in one run, told as ratios, kept with the machine.

Absolute times mean nothing: only ways that were measured in turn, in the same session, compare.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dynamic_tables as dt
from dynamic_tables.lake import jvm

RESULTS = Path(__file__).with_name("RESULTS.md")
WHOLE = "recompute"  # the way that everything is measured against
WHOLE_WARM_UP = 2  # of the changes that warm up; to recompute is dear, and few queries compile soon
Way = Callable[[int], object]  # does it once; the number of the round


@dataclass(slots=True)
class Measured:
    """One way of doing something."""

    seconds: list[float] = field(default_factory=list)
    jobs: list[int] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def usual_jobs(self) -> str:
        return f"{statistics.median(self.jobs):g}"


def jobs_begun(spark: Any) -> int:
    """Spark jobs of the whole process until now, whichever thread and session began them."""
    return jvm.scala_context(spark).dagScheduler().numTotalJobs()


def in_turn(
    spark: Any, ways: Mapping[str, Way], *, rounds: int, warm_up: int = 0, turn: int = 0
) -> dict[str, Measured]:
    """Each way once a round, so that a slow minute hits all of them.

    Whoever reads the changes first pays for it; from one `turn` to the next another one does.
    """
    found = {name: Measured() for name in ways}
    first = turn % len(ways)
    in_order = [*ways.items()][first:] + [*ways.items()][:first]
    for number in range(-warm_up, rounds):
        for name, way in in_order:
            before = jobs_begun(spark)
            begun = time.perf_counter()
            way(number)
            seconds = time.perf_counter() - begun
            if number >= 0:
                found[name].seconds.append(seconds)
                found[name].jobs.append(jobs_begun(spark) - before)
    return found


def taking_part(ways: Mapping[str, Way], number: int) -> dict[str, Way]:
    """The ways of a round; those below 0 warm up, and recompute only in the last of them."""
    return {n: way for n, way in ways.items() if n != WHOLE or number >= -WHOLE_WARM_UP}


def merge_rounds(rounds: Sequence[Mapping[str, Measured]]) -> dict[str, Measured]:
    """Rounds of the same ways, each after a change of its own."""
    return {
        title: Measured(
            seconds=[s for found in rounds for s in found[title].seconds],
            jobs=[j for found in rounds for j in found[title].jobs],
        )
        for title in rounds[0]
    }


def table(found: Mapping[str, Measured], *, against: str) -> str:
    """The medians and their ratios to one of the ways, as Markdown."""
    base = found[against].median
    lines = ["| way | median s | ratio | Spark jobs |", "|---|---|---|---|"]
    for name, way in found.items():
        ratio = way.median / base
        lines.append(f"| {name} | {way.median:.2f} | {ratio:.2f} | {way.usual_jobs} |")
    return "\n".join(lines)


def arguments(
    doc: str | None,
    *,
    only: Sequence[str] = (),
    rows: int | None = None,
    parser: argparse.ArgumentParser | None = None,
) -> argparse.Namespace:
    """What all benchmarks take, beside what a parser knows already."""
    parser = parser or argparse.ArgumentParser()
    parser.description = (doc or "").splitlines()[0]
    if only:
        parser.add_argument("--only", choices=only, help="one of the cases")
    if rows is not None:
        parser.add_argument("--rows", type=int, default=rows, help="of the source")
    parser.add_argument("--quick", action="store_true", help="small data, few rounds")
    parser.add_argument("--save", action="store_true", help=f"add the figures to {RESULTS.name}")
    return parser.parse_args()


class Lake:
    """A lake in a temporary folder, warmed up or not, that goes when it is done with."""

    def __enter__(self) -> dt.DynamicTables:
        self._folder = tempfile.mkdtemp(prefix="dynamic-tables-benchmark-")
        self._tables = dt.connect(Path(self._folder) / "lake", memory="6g")
        return self._tables

    def __exit__(self, *_: object) -> None:
        self._tables.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def check(tables: dt.DynamicTables, query: str, *shown: str) -> None:
    """All of these, names or SELECTs, have the rows of the query: who is wrong does not compete."""
    columns = tables.sql(query).columns
    wanted = bag(tables, query, columns)
    for rows in shown:
        select = rows if " " in rows else f"SELECT * FROM {rows}"
        found = bag(tables, select, columns)
        assert found == wanted, f"{rows}: {found} instead of {wanted}"


def bag(tables: dt.DynamicTables, query: str, columns: Sequence[str]) -> tuple[object, ...]:
    """A count and sums of two hashes, which tell bags apart without sorting them side by side."""
    row = ", ".join(f"`{column}`" for column in columns)
    [found] = tables.sql(
        f"SELECT count(*), sum(CAST(xxhash64({row}) AS DECIMAL(20, 0))),"
        f" sum(CAST(hash({row}) AS DECIMAL(20, 0))) FROM ({query})"
    ).collect()
    return tuple(found)


def millions(rows: int) -> str:
    """Sizes in the names of pictures, so that a run of another size keeps its own."""
    return f"{rows // 10**6}m" if rows >= 10**6 else f"{rows // 1000}k"


def command() -> str:
    """What was typed, so that everybody can repeat it."""
    wanted = [word for word in sys.argv[1:] if word != "--save"]
    return shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *wanted])


def report(title: str, text: str, *, save: bool, picture: str | None = None) -> None:
    """Print a section; with --save, keep it."""
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    when = datetime.now(UTC).strftime("%Y-%m-%d")
    shown = f"\n![plot]({picture})\n" if picture and save else ""
    section = f"## {title}\n\n{when}, {machine}: `{command()}`\n\n{text}\n{shown}"
    print(section)
    if save:
        with RESULTS.open("a", encoding="utf-8") as file:
            file.write(f"\n{section}")


def bars(file: str, title: str, groups: Mapping[str, Mapping[str, float]], *, y: str) -> None:
    """A group of bars for each case, one bar for each way, beside the results."""
    from matplotlib import pyplot  # noqa: PLC0415  only who saves results needs it

    figure, axes = pyplot.subplots(figsize=(10, 5.5), layout="constrained")
    ways = list(dict.fromkeys(way for found in groups.values() for way in found))
    width = 0.8 / len(ways)
    for number, way in enumerate(ways):
        places = [(n, found[way]) for n, found in enumerate(groups.values()) if way in found]
        xs = [n + number * width for n, _ in places]
        axes.bar(xs, [value for _, value in places], width, label=way)
    axes.set_xticks([n + 0.4 - width / 2 for n in range(len(groups))], list(groups), fontsize=7)
    axes.set(title=title, ylabel=y)
    axes.axhline(1, color="grey", linewidth=0.8)
    axes.grid(visible=True, axis="y", alpha=0.3)
    axes.legend(fontsize=7)
    figure.savefig(RESULTS.with_name(file), dpi=110)


def plot(
    file: str, title: str, curves: Mapping[str, Sequence[tuple[float, float]]], *, x: str, y: str
) -> None:
    """Curves over a logarithmic axis, beside the results."""
    from matplotlib import pyplot  # noqa: PLC0415  only who saves results needs it

    figure, axes = pyplot.subplots(figsize=(9, 5.5), layout="constrained")
    for name, points in curves.items():
        axes.plot(*zip(*sorted(points), strict=True), marker="o", label=name)
    axes.set(title=title, xlabel=x, ylabel=y, xscale="log", yscale="log")
    axes.axhline(1, color="grey", linewidth=0.8)
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend(fontsize=7)
    figure.savefig(RESULTS.with_name(file), dpi=110)


def panels(
    file: str,
    title: str,
    drawn: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]],
    *,
    x: str,
    y: str,
    columns: int,
) -> None:
    """The same curves of several cases, a small picture each, over the same axes."""
    from matplotlib import pyplot  # noqa: PLC0415  only who saves results needs it

    rows = -(-len(drawn) // columns)
    figure, grid = pyplot.subplots(
        rows, columns, figsize=(4 * columns, 3.2 * rows), layout="constrained",
        sharex=True, sharey=True, squeeze=False,
    )  # fmt: skip
    names = list(dict.fromkeys(name for curves in drawn.values() for name in curves))
    colours = {name: f"C{number}" for number, name in enumerate(names)}
    for axes, (case, curves) in zip(grid.flat, drawn.items(), strict=False):
        for name, points in curves.items():
            axes.plot(*zip(*sorted(points), strict=True), marker="o", c=colours[name], label=name)
        axes.set(title=case, xscale="log", yscale="log")
        axes.axhline(1, color="grey", linewidth=0.8)
        axes.grid(visible=True, which="both", alpha=0.3)
        axes.legend(fontsize=7)
    figure.suptitle(title)
    figure.supxlabel(x)
    figure.supylabel(y)
    figure.savefig(RESULTS.with_name(file), dpi=110)
