"""Where a query's records come in: source rows are packed into fat rows for the stages that read their topic, and
stages that keep nothing run here, before any shuffle. It owns that step of the query; how a source is read is the
source's.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headwater.dsl.partitioner import partition_for
from headwater.errors import StreamsError
from headwater.state.memory import MemoryBackend
from headwater.streams.spark.rows import PACKED, REGISTER, SOURCE, Row, arrow_schema, pack_batch, unpack
from headwater.streams.spark.shard import Report, Routes, collecting_seldom, output_rows, specification
from headwater.streams.task import Task

__all__ = ["IntakePlan", "intake", "row_batches"]


@dataclass(frozen=True)
class IntakePlan:
    """Who reads each topic: stages with state (stage, its shards if every one must have a copy), stages without."""

    stateful: Mapping[str, tuple[tuple[int, int | None], ...]]
    stateless: Mapping[str, tuple[tuple[int, bytes], ...]]
    patterns: tuple[tuple[re.Pattern[str], int], ...]
    routes: Routes

    def with_state(self, topic: str) -> tuple[tuple[int, int | None], ...]:
        """The stages with state that read a topic, also one that has come up since and matches a pattern."""
        found = self.stateful.get(topic)
        if found is None and topic not in self.stateless:
            return tuple((stage, None) for pattern, stage in self.patterns if pattern.fullmatch(topic))
        return found or ()


def intake(plan: IntakePlan, register: int | None = None) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """The function that Spark maps over Arrow batches of source rows.

    With `register`, that stage is asked in every batch whether its state is this query's.
    """

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        partition = _Partition(plan)
        for batch in batches:
            yield from row_batches(partition.take(batch))
        yield from row_batches(partition.close())
        if register is not None:
            yield from row_batches([(register, REGISTER, None, SOURCE, REGISTER, 0, None)])

    return run


def row_batches(rows: Iterable[Row]) -> Iterator[Any]:
    """Rows as Arrow batches; one each, since they are large."""
    schema = arrow_schema()
    for row in rows:
        yield pa.RecordBatch.from_pydict(
            {name: [content] for name, content in zip(schema.names, row, strict=True)}, schema=schema
        )


@dataclass
class _Running:
    """A stage without state, on one partition of its topic."""

    task: Task
    report: Report
    printed: io.StringIO = field(default_factory=io.StringIO)


class _Partition:
    """One partition of a Spark source; usually, but not always, that is one partition of one topic."""

    def __init__(self, plan: IntakePlan) -> None:
        self._plan = plan
        self._running: dict[tuple[int, str, int], _Running] = {}

    def take(self, batch: Any) -> Iterator[Row]:
        """The rows for others that follow from a batch of source rows."""
        for topic, partition, part in _parts(batch, self._plan.routes.partitions_of):
            packed = pa.RecordBatch.from_arrays(
                [
                    part.column("key").cast(pa.binary()),
                    part.column("value").cast(pa.binary()),
                    part.column("timestamp"),
                    _plain(part.column("headers")),
                    part.column("offset"),
                ],
                schema=PACKED,
            )
            first = packed.column("number")[0].as_py() or 0
            data = None
            for stage, shards in self._plan.with_state(topic):
                if shards is None and partition >= (known := self._plan.routes.partitions_of(topic)):
                    raise StreamsError(
                        f"the topic {topic!r} had {known} partitions when the query started, and now has records in "
                        f"partition {partition}: state is spread over {known} shards. Write to a new topic, or start "
                        "the query with a new checkpoint"
                    )
                data = data or pack_batch(packed)
                for shard in (partition,) if shards is None else range(shards):
                    yield stage, shard, topic, SOURCE, partition, first, data
            for stage, spec in self._plan.stateless.get(topic, ()):
                yield from self._run(stage, spec, topic, partition, data or pack_batch(packed), first)

    def _run(self, stage: int, spec: bytes, topic: str, partition: int, data: bytes, first: int) -> Iterator[Row]:
        running = self._running.get((stage, topic, partition))
        if running is None:
            known = specification(spec)
            task_id = f"{known.task_id.rsplit('_', 1)[0]}_{partition}"
            own = replace(known, partition=partition, task_id=task_id)
            report = Report(stage, partition)
            backend = MemoryBackend(own.backend_stores())
            task = Task(own, backend, self._plan.routes.partitions_of, warn=report.warn)
            running = self._running[stage, topic, partition] = _Running(task, report)
        task = running.task
        with contextlib.redirect_stdout(running.printed), collecting_seldom():
            task.feed(topic, partition, unpack(data))
            outputs = []
            while task.process(1 << 62, 0):
                outputs += task.commit().outputs
        # By the offsets they come from: parts of one partition that are read side by side fall into place.
        yield from output_rows(self._plan.routes, stage, partition, first, outputs)

    def close(self) -> Iterator[Row]:
        """The reports, once all batches are taken."""
        for running in self._running.values():
            running.report.processed = running.task.processed
            running.report.count(running.task.metrics(), frozenset())
            running.report.printed = running.printed.getvalue()
            running.task.close()
            yield running.report.row()


def _parts(batch: Any, partitions_of: Callable[[str], int]) -> Iterator[tuple[str, int, Any]]:
    """A batch by topic and partition, each part in its order; where no partition is given, the key chooses it."""

    def chosen(topic: str, key: bytes | None, given: int | None) -> int:
        if given is not None:
            return given
        return 0 if key is None else partition_for(key, partitions_of(topic))

    topics, partitions = batch.column("topic"), batch.column("partition")
    if not len(topics):
        return
    if partitions.null_count:
        columns = (column.to_pylist() for column in (topics, batch.column("key"), partitions))
        partitions = pa.array(map(chosen, *columns), pa.int32())
    first = topics[0].as_py(), partitions[0].as_py()
    if pc.all(pc.equal(topics, first[0])).as_py() and pc.all(pc.equal(partitions, first[1])).as_py():
        yield (*first, batch)
        return
    places: dict[tuple[str, int], list[int]] = {}
    for at, place in enumerate(zip(topics.to_pylist(), partitions.to_pylist(), strict=True)):
        places.setdefault(place, []).append(at)
    for (topic, partition), rows in places.items():
        yield topic, partition, batch.take(pa.array(rows, pa.int64()))


def _plain(headers: Any) -> Any:
    """The headers, none where there are none: an empty list and no list are the same."""
    return headers.cast(PACKED.field("headers").type)
