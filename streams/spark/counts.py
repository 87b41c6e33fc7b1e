"""What the shards of a query report, added up on the driver, and the warning where records are dropped as late. Reports
of a query that Headwater writes come as rows of its batches; those of DataFrames, which the user writes somewhere, come
through an accumulator of Spark's, as each task of Spark's ends."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec
from pyspark import SparkContext, TaskContext
from pyspark.accumulators import Accumulator, AccumulatorParam

from headwater.streams.spark.rows import REPORT, Row
from headwater.streams.spark.shard import Report

__all__ = ["Counts", "LateWarnings", "Reports", "report_to", "reported", "steps_of"]

log = logging.getLogger("headwater")

# The query and batch it belongs to, none for DataFrames that do not stream, and a report as it travels.
Reported: TypeAlias = tuple[str | None, str | None, bytes]
Reports: TypeAlias = "Accumulator[list[Reported]]"


class LateWarnings:
    """Warns of the records that a step drops as late: of the first, and whenever they have become twice as many."""

    def __init__(self) -> None:
        self._warned: dict[str, int] = {}

    def note(self, step: str, late: int) -> None:
        """A step has dropped so many records so far."""
        if late and late >= 2 * self._warned.get(step, 0):
            self._warned[step] = late
            log.warning(
                "step %s has dropped %d records as late so far: they came after their windows had closed, no result "
                "has them. Give the windows a longer grace, or such records a topic of their own (Config(late=…))",
                step, late,
            )  # fmt: skip


def steps_of(counts: Counter[tuple[str, str]]) -> dict[str, Any]:
    """Counts by (kind, step) as metrics show them: in all, and by step."""
    steps: dict[str, dict[str, int]] = {}
    for (kind, step), count in counts.items():
        steps.setdefault(step, {})[f"{kind}-records-total"] = count
    return {
        "dropped-records-total": sum(count for (kind, _), count in counts.items() if kind == "dropped"),
        "late-records-total": sum(count for (kind, _), count in counts.items() if kind == "late"),
        "steps": steps,
    }


@dataclass
class _Shard:
    """What a shard has counted: in the batch it reported last, and before that."""

    batch: str | None = None
    last: Counter[tuple[str, str]] = field(default_factory=Counter)
    before: Counter[tuple[str, str]] = field(default_factory=Counter)


class Counts:
    """The counts of DataFrames.

    A batch that is computed again counts once. So do DataFrames that do not stream, however often they are computed:
    each time all of it. Of several queries that compute the same, the one that has counted most counts.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shards: dict[tuple[str | None, int, int], _Shard] = {}
        self._late = LateWarnings()
        self._told: set[str] = set()

    def take(self, reports: list[Reported]) -> None:
        """Add reports; called where Spark's driver gets them."""
        with self._lock:
            for query, batch, data in reports:
                report = msgspec.msgpack.decode(data, type=Report)
                shard = self._shards.setdefault((query, report.stage, report.shard), _Shard(batch))
                if batch != shard.batch:
                    shard.batch, shard.before = batch, shard.before + shard.last
                shard.last = report.counts()
                for warning in report.warnings:
                    if warning not in self._told:
                        self._told.add(warning)
                        log.warning(warning)
            for (kind, step), count in self._counts().items():
                if kind == "late":
                    self._late.note(step, count)

    def _counts(self) -> Counter[tuple[str, str]]:
        by_query: dict[str | None, Counter[tuple[str, str]]] = {}
        for (query, _, _), shard in self._shards.items():
            by_query.setdefault(query, Counter()).update(shard.before + shard.last)
        most: Counter[tuple[str, str]] = Counter()
        for counts in by_query.values():
            most |= counts
        return most

    def metrics(self) -> dict[str, Any]:
        """Records that were processed, dropped and late, in all and by step."""
        with self._lock:
            counts = self._counts()
        return {"records-total": counts.pop(("processed", ""), 0), **steps_of(counts)}


class _Gathering(AccumulatorParam[list[Reported]]):
    """In a Python worker it gathers reports; on the driver each goes on to the counts."""

    def __init__(self, counts: Counts | None = None) -> None:
        self._counts = counts

    def __reduce__(self) -> Any:
        return _Gathering, ()

    def zero(self, value: list[Reported]) -> list[Reported]:
        return []

    def addInPlace(self, value1: list[Reported], value2: list[Reported]) -> list[Reported]:
        if self._counts is None:
            return value1 + value2
        self._counts.take(value2)
        return value1


def report_to(context: SparkContext, counts: Counts) -> Reports:
    """An accumulator through which reports get to the counts."""
    return context.accumulator([], _Gathering(counts))


def reported(rows: list[Row]) -> list[Reported]:
    """The reports among a shard's rows, with the query and batch that runs."""
    context = TaskContext.get()
    assert context is not None
    query, batch = map(context.getLocalProperty, ("sql.streaming.queryId", "streaming.sql.batchId"))
    return [(query, batch, row[6]) for row in rows if row[0] == REPORT and row[6] is not None]
