"""What a refresh costs and how far it is: read off Spark's status store by job group."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from dynamic_tables.lake import jvm
from dynamic_tables.lake.base import Progress
from dynamic_tables.lake.faults import SPARK_FAULTS
from dynamic_tables.lake.jvm import Java

PAGE = 12  # executions that are looked at together; Spark keeps a thousand, a refresh has ten
FILES_METRIC = re.compile(r"SQLPlanMetric\(number of files read,(\d+),")
MARKS = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
LISTENER_WAIT_MS = 5_000  # the status store is filled by a listener that runs a little behind


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Totals over the Spark jobs of one group."""

    jobs: int | None = None  # None: Spark did not tell
    bytes_read: int | None = None
    files_read: int | None = None


class Meter:
    """Measures the Spark jobs that a thread starts under a label."""

    def __init__(self, spark: SparkSession, label: str) -> None:
        self._spark = spark
        self._context = spark.sparkContext
        self._label = label
        self._sql = spark._jsparkSession.sharedState().statusStore()
        self._started_ms = 0
        self._before: dict[str, str | None] = {}  # marks of this thread; a slice within a refresh

    def start(self) -> None:
        """Mark this thread's jobs; they can be cancelled by the label."""
        context = jvm.scala_context(self._spark)
        self._before = {key: context.getLocalProperty(key) for key in MARKS}
        self._context.setJobGroup(self._label, self._label, interruptOnCancel=True)
        self._started_ms = int(time.time() * 1000)

    def stop(self) -> None:
        context = jvm.scala_context(self._spark)
        for key, value in self._before.items():
            context.setLocalProperty(key, value)

    def cancel(self) -> None:
        self._context.cancelJobGroup(self._label)

    def progress(self) -> Progress:
        """How far the jobs of this label are, for a progress line."""
        jobs = list(self._jobs(jvm.scala_context(self._spark).statusStore()).values())
        return Progress(
            label=self._label,
            jobs_done=sum(1 for job in jobs if job.status().toString() == "SUCCEEDED"),
            jobs=len(jobs),
            tasks_done=sum(job.numCompletedTasks() + job.numSkippedTasks() for job in jobs),
            tasks=sum(job.numTasks() for job in jobs),
        )

    def cost(self) -> Cost:
        """The totals; a figure that cannot be had is no reason to fail what is already done."""
        try:
            return self._cost()
        except SPARK_FAULTS:
            return Cost()

    def _cost(self) -> Cost:
        scala_context = jvm.scala_context(self._spark)
        with suppress(Py4JError):  # a busy machine: what has arrived is counted
            scala_context.listenerBus().waitUntilEmpty(LISTENER_WAIT_MS)
        status = scala_context.statusStore()
        jobs = self._jobs(status)
        stages = {stage for job in jobs.values() for stage in jvm.items(job.stageIds())}
        return Cost(
            jobs=len(self._context.statusTracker().getJobIdsForGroup(self._label)),
            bytes_read=sum(_bytes_read(status, stage) for stage in stages),
            files_read=self._files_read(set(jobs)),
        )

    def _jobs(self, status: Java) -> dict[int, Java]:
        """The jobs of this label by id, as far as Spark remembers them."""
        found = {}
        for job_id in self._context.statusTracker().getJobIdsForGroup(self._label):
            with suppress(Py4JError):
                found[job_id] = status.job(job_id)
        return found

    def _files_read(self, job_ids: set[int]) -> int:
        """Files that the scans of these jobs opened; reading Delta's own log does not count."""
        files = 0
        for execution in self._executions():
            log_work = execution.description().startswith("Delta: ")
            if not log_work and job_ids & set(jvm.items(execution.jobs().keys())):
                files += self._files_of(execution)
        return files

    def _executions(self) -> Iterator[Java]:
        """What ran since the start, here or in other threads.

        Spark forgets old executions, so their number says nothing about where ours begin.
        """
        end = self._sql.executionsCount()
        while end > 0:
            begin = max(end - PAGE, 0)
            page = jvm.items(self._sql.executionsList(begin, end - begin))
            ours = [run for run in page if run.submissionTime() >= self._started_ms]
            yield from ours
            end = begin if ours else 0

    def _files_of(self, execution: Java) -> int:
        """The metrics come as one text: a refresh has hundreds."""
        values = self._sql.executionMetrics(execution.executionId())
        found = (
            jvm.option(values.get(int(accumulator)))
            for accumulator in set(FILES_METRIC.findall(execution.metrics().mkString()))
        )
        return sum(int(value.replace(",", "")) for value in found if value is not None)


def _bytes_read(status: Java, stage: int) -> int:
    """What a stage read; nothing is known of stages that Spark has forgotten."""
    try:
        return status.lastStageAttempt(stage).inputBytes()
    except Py4JError:
        return 0
