"""Copies of tasks' state on this machine, made from their changelogs: to start a task from, or to stand by for one that
runs elsewhere. It owns the task databases of a worker, the consumer that reads changelogs, and how far each copy has
come; which copies there should be is the connection's to say.

A task's database holds committed rows only, and beside them how far its changelogs are in it:

| back end store | key | row |
|---|---|---|
| `\\|changelog` | `offset` 00 topic 00 partition | the next offset to read, as decimal text |
| | `topic` 00 topic | the topic's id: one that was deleted and made anew has another |
| | `time` 00 store | how far a versioned store's time has come, as decimal text |
| | `old` 00 store 00 key | nothing: its changelog has a row in the form of an earlier release |

Both are written in one step. So a copy may be behind its changelogs, never ahead of them: it goes on from there,
whoever wrote them meanwhile. A database that another topology or version has written, or that has been lying about
for so long that deletions may be missing from the changelogs, is deleted: nothing in it is not also in Kafka.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from headwater.errors import StateError
from headwater.state.rocks import RocksBackend
from headwater.streams.changes import TASK
from headwater.streams.connection import Place, Standby
from headwater.streams.kafka.changelog import CHECKPOINT, CHECKPOINT_TIME, Changelog, Record, Rows
from headwater.streams.kafka.client_log import client_log
from headwater.streams.kafka.reader import FETCHING, read_errors
from headwater.streams.kafka.settings import for_lone_consumers
from headwater.streams.metrics import Meter
from headwater.streams.task import TaskSpec

__all__ = ["Copies", "Copy", "MemoryLog", "StateLog", "checkpoint"]

log = logging.getLogger("headwater")

# How many records are taken in at once, and how often is said how far a restore has come.
AT_ONCE = 20_000
SAY_SECONDS = 5.0
# Deletions leave a compacted topic after a day (delete.retention.ms): an older copy may have missed some.
STALE_SECONDS = 12 * 3600.0
# How long the database of a task that has moved away is kept: it may come back.
KEEP_SECONDS = 600.0


class StateLog(Protocol):
    """What turns the records of a topic into rows."""

    def bind(self, backend: RocksBackend) -> None:
        """Use the committed rows of this back end."""
        ...

    def rows(self, records: Iterable[Record]) -> Rows:
        """What the records, in the order of their offsets, write to the back end."""
        ...


class MemoryLog:
    """The changelog of a task's operator memory, whose records are the rows themselves."""

    def bind(self, backend: RocksBackend) -> None:
        """The records say all there is to say."""

    def rows(self, records: Iterable[Record]) -> Rows:
        return {TASK: {key: value for key, value, _ in records}}


def checkpoint(reached: Mapping[Place, int]) -> dict[bytes, bytes | None]:
    """The rows that say how far changelogs are in a database."""
    return {b"offset\0%s\0%d" % (topic.encode(), partition): b"%d" % at for (topic, partition), at in reached.items()}


@dataclass
class Copy:
    """One task's rows here, and how far its changelogs are in them."""

    task_id: str
    backend: RocksBackend
    logs: Mapping[Place, StateLog]
    positions: dict[Place, int]
    # Where each changelog was found to end when it was last asked, and up to where it must be read before the task
    # starts.
    ends: dict[Place, int] = field(default_factory=dict)
    targets: Mapping[Place, int] | None = None
    # Topics that are read by the task too, with the offsets up to which they are its state; and the group's offsets.
    limits: Mapping[Place, int] = field(default_factory=dict)
    committed: Mapping[Place, tuple[int, str]] = field(default_factory=dict)
    restored: int = 0
    began: float = field(default_factory=time.monotonic)
    said: float = field(default_factory=time.monotonic)

    @property
    def complete(self) -> bool:
        """Whether it has all that there was when the task was given to this worker."""
        return self.targets is not None and all(self._left(place, end) == 0 for place, end in self.targets.items())

    def _left(self, place: Place, end: int) -> int:
        # The last offsets of a partition may be those of transactions' ends: only the client sees past them.
        reached = max(self.positions[place], self.ends.get(place, -1))
        return max(0, end - reached)

    @property
    def left(self) -> int:
        """About how many records it is behind."""
        return sum(self._left(place, end) for place, end in (self.targets or {}).items())


class Copies:
    """The task databases of one worker: those being restored, and those that stand by."""

    def __init__(self, settings: Mapping[str, Any], app_id: str, directory: Path) -> None:
        self._directory = directory
        self._copies: dict[str, Copy] = {}
        self._by_place: dict[Place, Copy] = {}
        # What is counted: restores that had to fetch anything, the records they fetched, and those that met a copy.
        self.restores = 0
        self.restored = 0
        self.met = 0
        self.rate = Meter()
        self._consumer = Consumer(
            {
                **FETCHING,
                **for_lone_consumers(settings),
                "group.id": f"{app_id}-copies",
                # A changelog that no longer has what comes next is read again from its start.
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            },
            logger=client_log,
        )

    def __contains__(self, task_id: str) -> bool:
        return task_id in self._copies

    def __getitem__(self, task_id: str) -> Copy:
        return self._copies[task_id]

    # ---- copies come and go --------------------------------------------------------------------------------------

    def begin(
        self,
        spec: TaskSpec,
        logs: Mapping[Place, StateLog],
        starts: Mapping[Place, int],
        ids: Mapping[str, str],
    ) -> Copy:
        """Open a task's database and read on in its changelogs, which begin at these offsets and have these ids."""
        stores = [*spec.backend_stores(), CHECKPOINT]
        backend = self._open(spec.task_id, stores)
        try:
            found, known = _reached(backend)
        except StateError as error:
            backend.close()
            self.delete(spec.task_id, str(error))
            backend, (found, known) = self._open(spec.task_id, stores), ({}, {})
        gone = any(place in found and found[place] < start for place, start in starts.items())
        gone = gone or any(place in found and _is_of_old_form(log, backend) for place, log in logs.items())
        if gone or any(known.get(topic, ids[topic]) != ids[topic] for topic, _ in logs):
            backend.close()
            self.delete(spec.task_id, "its changelogs no longer have what comes next")
            backend, (found, known) = self._open(spec.task_id, stores), ({}, {})
        new = {b"topic\0" + topic.encode(): ids[topic].encode() for topic, _ in logs if topic not in known}
        if new:
            backend.write({CHECKPOINT: new})
        positions = {place: found.get(place, starts.get(place, 0)) for place in logs}
        for log in logs.values():
            log.bind(backend)
        copy = self._copies[spec.task_id] = Copy(spec.task_id, backend, logs, positions)
        if logs:
            self._by_place |= dict.fromkeys(logs, copy)
            self._consumer.incremental_assign(
                [TopicPartition(*place, positions[place] or OFFSET_BEGINNING) for place in logs]
            )
        return copy

    def _open(self, task_id: str, stores: Sequence[str]) -> RocksBackend:
        path = self._directory / task_id
        if path.exists() and time.time() - _last_used(path) > STALE_SECONDS:
            self.delete(task_id, "it has not been used for long")
        try:
            return RocksBackend(path, stores)
        except StateError as error:
            self.delete(task_id, str(error))
            return RocksBackend(path, stores)

    def delete(self, task_id: str, why: str) -> None:
        """Delete a copy that is not open: nothing in it is not also in Kafka."""
        log.warning("the copy of task %s is deleted and fetched anew: %s", task_id, why)
        shutil.rmtree(self._directory / task_id)

    def restore(
        self, task_id: str, targets: Mapping[Place, int], committed: Mapping[Place, tuple[int, str]]
    ) -> None:
        """Have a copy reach these offsets, so that its task can start from the committed ones."""
        copy = self._copies[task_id]
        copy.limits = {place: targets[place] for place in targets.keys() & committed.keys()}
        copy.targets, copy.committed = targets, committed
        copy.restored, copy.began = 0, time.monotonic()

    def take(self, task_id: str) -> RocksBackend:
        """Hand out a complete copy: its task writes to it from now on."""
        copy = self._forget(task_id)
        if copy.restored:
            self.restores += 1
            took = time.monotonic() - copy.began
            log.info("task %s: %s records restored in %.1f s", task_id, f"{copy.restored:,}", took)
        return copy.backend

    def drop(self, task_id: str) -> None:
        """Keep a task's copy no longer up to date; its database stays for a while."""
        self._forget(task_id).backend.close()

    def discard(self, task_id: str, why: str) -> None:
        """Delete a task's copy; the next one fetches all of it."""
        self.drop(task_id)
        self.delete(task_id, why)

    def _forget(self, task_id: str) -> Copy:
        copy = self._copies.pop(task_id)
        if copy.logs:
            for place in copy.logs:
                del self._by_place[place]
            self._consumer.incremental_unassign([TopicPartition(*place) for place in copy.logs])
        return copy

    def clean(self, keep: Iterable[str]) -> None:
        """Delete the databases of tasks that have been elsewhere for a while."""
        kept = {*keep, *self._copies}
        for path in self._directory.iterdir() if self._directory.exists() else ():
            if path.is_dir() and path.name not in kept and time.time() - _last_used(path) > KEEP_SECONDS:
                shutil.rmtree(path)
                log.info("the state of task %s, which runs elsewhere, is deleted", path.name)

    # ---- records come in -----------------------------------------------------------------------------------------

    def poll(self) -> bool:
        """Take in what has arrived; whether anything had."""
        messages = self._consumer.consume(AT_ONCE, 0) if self._by_place else []
        arrived: dict[Place, list[Any]] = {}
        # The client's types allow for messages without a place, which it never hands over.
        message: Any
        for message in messages:
            place = message.topic(), message.partition()
            if message.error() is not None:
                self._hear(place, message)
            elif place in arrived:
                arrived[place].append(message)
            else:
                arrived[place] = [message]
        touched = {id(copy): copy for place in arrived if (copy := self._by_place.get(place)) is not None}
        for copy in touched.values():
            self._write(copy, {place: arrived[place] for place in copy.logs if place in arrived})
        return bool(messages)

    def _hear(self, place: Place, message: Any) -> None:
        error = message.error()
        if error.code() == KafkaError._PARTITION_EOF:
            copy = self._by_place.get(place)
            if copy is not None:
                copy.ends[place] = message.offset()
            return
        fault = read_errors(message)
        if fault is not None:
            raise fault

    def _write(self, copy: Copy, arrived: Mapping[Place, list[Any]]) -> None:
        batch: dict[str, dict[bytes, bytes | None]] = {}
        reached = {}
        for place, messages in arrived.items():
            reached[place] = messages[-1].offset() + 1
            if place in copy.limits:
                reached[place] = limit = min(reached[place], copy.limits[place])
                messages = [message for message in messages if message.offset() < limit and message.key() is not None]
            rows = copy.logs[place].rows(
                [(message.key(), message.value(), message.timestamp()[1]) for message in messages]
            )
            for store, changed in rows.items():
                batch.setdefault(store, {}).update(changed)
            copy.restored += len(messages)
            self.restored += len(messages)
        self.rate.mark(time.time_ns() // 1_000_000, sum(map(len, arrived.values())))
        batch.setdefault(CHECKPOINT, {}).update(checkpoint(reached))
        copy.backend.write(batch)
        copy.positions.update(reached)
        self._say(copy)

    def _say(self, copy: Copy) -> None:
        now = time.monotonic()
        if copy.targets is None or now - copy.said < SAY_SECONDS:
            return
        copy.said = now
        rate = copy.restored / max(now - copy.began, 0.001)
        log.info(
            "task %s: %s records restored, %s/s, about %s left, %.0f s to go",
            copy.task_id,
            f"{copy.restored:,}",
            f"{rate:,.0f}",
            f"{copy.left:,}",
            copy.left / rate if rate else 0,
        )

    def standbys(self) -> dict[str, Standby]:
        """The copies that stand by, and how far each is behind."""
        behind = {task_id: self._behind(copy) for task_id, copy in self._copies.items() if copy.targets is None}
        return {task_id: Standby(self._copies[task_id].backend, lag) for task_id, lag in behind.items()}

    def _behind(self, copy: Copy) -> int:
        behind = 0
        for place, position in copy.positions.items():
            if copy.ends.get(place, -1) < position:
                _, high = self._consumer.get_watermark_offsets(TopicPartition(*place), cached=True)
                behind += max(0, high - position)
        return behind

    def restoring(self) -> dict[str, int]:
        """The tasks whose state is being fetched, and about how many records are left of each."""
        return {task_id: copy.left for task_id, copy in self._copies.items() if copy.targets is not None}

    def close(self) -> None:
        """Close all databases and let go of the cluster."""
        for copy in self._copies.values():
            copy.backend.close()
        self._copies.clear()
        self._by_place.clear()
        self._consumer.close()


def _reached(backend: RocksBackend) -> tuple[dict[Place, int], dict[str, str]]:
    """How far each changelog is in a database, and the ids of their topics."""
    offsets: dict[Place, int] = {}
    ids: dict[str, str] = {}
    for key, row in backend.scan(CHECKPOINT, b"", None):
        kind, name = key.split(b"\0", 1)
        if kind == b"topic":
            ids[name.decode()] = row.decode()
        elif kind == b"offset":
            topic, partition = name.rsplit(b"\0", 1)
            offsets[topic.decode(), int(partition)] = int(row)
    return offsets, ids


def _is_of_old_form(log: StateLog, backend: RocksBackend) -> bool:
    """Whether an earlier release has restored a versioned store here, which did not tell versions from rows."""
    if not isinstance(log, Changelog) or log.spec.kind != "versioned":
        return False
    return backend.get_many(CHECKPOINT, [CHECKPOINT_TIME + log.name.encode()]) == [None]


def _last_used(path: Path) -> float:
    """When a database was written to last."""
    return max((file.stat().st_mtime for file in path.iterdir()), default=path.stat().st_mtime)
