"""What a worker counts, as plain data: for `headwater top`, for questions from outside and for tests. It owns the names
and shapes, and the two instruments that look at the last seconds; the counting is done where things happen, once per
batch or commit and never per record, but for the operators' own counts, which Config(metrics="debug") turns on.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from headwater.dsl.topology import ProcessorNode, Sink, Source, Topology
from headwater.state.buffers import ChangeBuffer, GraceBuffer

if TYPE_CHECKING:
    from headwater.streams.app import App
    from headwater.streams.worker import RunningTask, Worker

__all__ = ["Lost", "Meter", "collect"]

log = logging.getLogger("headwater")

DROPPED, LATE = "dropped-records-total", "late-records-total"
# What rates, averages and maxima look back on, and how finely, in milliseconds.
WINDOW, SLOT = 10_000, 500
# How long, in milliseconds, nothing more is said of a step's late records.
WARN_MS = 60_000


class Meter:
    """The sum, count and maximum of what was marked in the last ten seconds.

    >>> meter = Meter()
    >>> meter.mark(1_000, 30); meter.mark(2_000, 50); meter.mark(3_000, 40)
    >>> meter.rate(5_000), meter.mean(5_000), meter.highest(5_000)
    (30.0, 40.0, 50)
    >>> meter.rate(60_000), meter.mean(60_000)
    (0.0, None)
    """

    __slots__ = ("_began", "_slots")

    def __init__(self) -> None:
        self._began: int | None = None
        # (number of the slot, sum, count, maximum), the youngest last.
        self._slots: deque[tuple[int, int, int, int]] = deque()

    def mark(self, now: int, amount: int) -> None:
        """Something of this amount has happened."""
        if self._began is None:
            self._began = now
        slots, slot = self._slots, now // SLOT
        if slots and slots[-1][0] == slot:
            _, total, count, highest = slots.pop()
            slots.append((slot, total + amount, count + 1, max(highest, amount)))
        else:
            slots.append((slot, amount, 1, amount))
            self._forget(now)

    def _forget(self, now: int) -> None:
        slots, oldest = self._slots, (now - WINDOW) // SLOT
        while slots and slots[0][0] <= oldest:
            slots.popleft()

    def rate(self, now: int) -> float:
        """The sum per second."""
        self._forget(now)
        if self._began is None:
            return 0.0
        return 1000 * sum(slot[1] for slot in self._slots) / min(WINDOW, max(1000, now - self._began))

    def mean(self, now: int) -> float | None:
        """The mean amount, None if there was none."""
        self._forget(now)
        count = sum(slot[2] for slot in self._slots)
        return sum(slot[1] for slot in self._slots) / count if count else None

    def highest(self, now: int) -> int | None:
        """The highest amount, None if there was none."""
        self._forget(now)
        return max((slot[3] for slot in self._slots), default=None)


class Lost:
    """Records that tasks have dropped and that were late, by step, also those of tasks that have moved away; and the
    warnings about late ones."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self.dropped: Counter[str] = Counter()
        self.late: Counter[str] = Counter()
        self._told: Counter[str] = Counter()
        self._told_at: dict[str, int] = {}

    def depart(self, lost: Mapping[str, tuple[int, int]]) -> None:
        """Keep what a task has counted that is no longer here."""
        for step, (dropped, late) in lost.items():
            self.dropped[step] += dropped
            self.late[step] += late

    def warn(self, here: Iterable[Mapping[str, tuple[int, int]]], now: int, *, last: bool = False) -> None:
        """Say how many records were late, step by step, each once in a minute at most; `last` says what is left."""
        late = self.late.copy()
        for lost in here:
            late.update({step: count for step, (_, count) in lost.items()})
        for step, count in late.items():
            new = count - self._told[step]
            if new <= 0 or not (last or now - self._told_at.get(step, now - WARN_MS) >= WARN_MS):
                continue
            self._told[step], self._told_at[step] = count, now
            node = self._topology.nodes[step]
            stores = ", ".join(node.stores) if isinstance(node, ProcessorNode) else ""
            log.warning(
                "%s late for step %r%s: stream time had passed the end of their window and its grace, so they are "
                "missing in its results. Allow more grace=, or keep them with Config(late=…). Several workers that "
                "catch up at once run ahead of each other: let one do it alone.",
                "1 record was" if new == 1 else f"{new:,} records were",
                step,
                f" (store {stores})" if stores else "",
            )


def collect(worker: Worker, app: App) -> dict[str, Any]:
    """The application's state and counts, and those of each task, its steps and its stores.

    Latency is the time between a record's timestamp and the commit that made its results visible; rates and latencies
    are those of the last ten seconds.
    """
    now = worker.clock.now()
    tasks = {task_id: _task(worker, running, now) for task_id, running in worker.tasks.items()}
    every: list[dict[str, Any]] = [step for task in tasks.values() for step in task["steps"].values()]
    if worker.global_task is not None:
        every += worker.global_task.metrics().values()
    latencies = [task["latency-max-ms"] for task in tasks.values() if task["latency-max-ms"] is not None]
    return {
        "app-id": worker.config.app_id,
        "state": app.state,
        "restarts-total": app.restarts,
        "records-total": sum(task["records-total"] for task in tasks.values()) + worker.departed,
        "records-rate": sum(task["records-rate"] for task in tasks.values()),
        "lag": sum(task["lag"] for task in tasks.values()),
        "latency-max-ms": max(latencies, default=None),
        "commits-total": worker.commits,
        "commit-ms": worker.commit_time.mean(now),
        DROPPED: sum(step[DROPPED] for step in every) + worker.lost.dropped.total(),
        LATE: sum(step[LATE] for step in every) + worker.lost.late.total(),
        "all-tasks": [spec.task_id for spec in worker.plan.tasks],
        "tasks": tasks,
        **worker.connection_metrics(),
    }


def _task(worker: Worker, running: RunningTask, now: int) -> dict[str, Any]:
    task = running.task
    steps = task.metrics()
    return {
        "records-total": running.processed,
        "records-rate": running.rate.rate(now),
        "lag": worker.lag(running),
        "queued": task.queued,
        "commits-total": running.commits,
        "committed-at": running.committed_at,
        "stream-time": task.stream_time,
        "latency-ms": running.latency.mean(now),
        "latency-max-ms": running.latency.highest(now),
        DROPPED: sum(step[DROPPED] for step in steps.values()),
        LATE: sum(step[LATE] for step in steps.values()),
        # As a record passes through them; they were made the other way round.
        "steps": {name: {**steps[name], **_records(running, name, steps[name])} for name in reversed(steps)},
        "stores": {name: _store(running, name) for name in task.stores},
        "positions": {f"{topic}-{partition}": at for (topic, partition), at in running.positions.items()},
    }


def _records(running: RunningTask, name: str, step: dict[str, int]) -> dict[str, int]:
    """How many records a step has taken, as far as it is known: sources and sinks always, others if they count."""
    node = running.spec.topology.nodes[name]
    task = running.task
    if isinstance(node, Source):
        taken = sum(
            read - task.waiting(topic, partition)
            for (topic, partition), read in running.read.items()
            if task.source_of(topic) == name
        )
        return {"records-total": taken}
    if isinstance(node, Sink) and isinstance(node.topic, str) and "records-total" not in step:
        return {"records-total": running.written[task.real_topic(node.topic)]}
    return {}


def _store(running: RunningTask, name: str) -> dict[str, Any]:
    """What a store has in memory and on disk, and how much it has read and written."""
    store, backend = running.task.stores[name], running.backend
    rows = running.spec.topology.stores[name].rows
    parts = [part for part in backend.stores if part == rows or part.startswith(f"{rows}|")]
    reads = sum(backend.reads[part] for part in parts)
    # A suppress step's and a grace join's rows are always in memory.
    gets = 0 if isinstance(store, ChangeBuffer | GraceBuffer) else store.gets
    return {
        "dirty-bytes": store.dirty_bytes,
        # What was in the write-back buffer when it was asked for, and what was not.
        "buffer-hits-total": max(0, gets - reads),
        "database-reads-total": reads,
        "cache-hits-total": running.task.cache_hits(name),
        "rows-written-total": sum(running.stored[part] for part in parts),
        "rows-estimate": backend.estimated_rows(rows),
        "disk-bytes": sum(backend.disk_bytes(part) for part in parts),
    }
