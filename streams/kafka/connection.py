"""Kafka as a worker's connection: tasks are dealt out by a consumer group, and a commit is one transaction.

A commit goes step by step:

1. one transaction: results, changelog records of the changed rows and of operator memory, and the inputs' offsets;
2. the changed rows are written to each task's database, with the offsets that their changelogs have reached.

A crash before the end of 1 has changed nothing. After it, the database is behind its changelogs, and whoever opens
the task next reads what is missing; so does a worker that has no database of the task at all. The brokers refuse a
transaction that brings offsets of a member the group has gone on without, so a task has one writer, whatever was
paused for how long. Every task in a transaction brings offsets, whether they have moved or not: without any it could
not be refused.

At least once, results are written as they come, and offsets are committed after them; a crash in between repeats the
results.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
import pickle
import socket
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition

from headwater.dsl.config import Config
from headwater.dsl.partitioner import partition_for
from headwater.dsl.topology import Sink, Topology
from headwater.errors import StateError, StreamsError, TopologyError
from headwater.state.rocks import RocksBackend
from headwater.streams.changes import (
    TASK,
    memory_key,
    offset_rows,
    pickled,
    read_committed,
    step_memory,
    store_memory,
)
from headwater.streams.connection import (
    OUTPUT_TIME,
    GiveUp,
    Passing,
    Place,
    Standby,
    TaskCommit,
    Undone,
    merged,
)
from headwater.streams.context import Output
from headwater.streams.identity import Fit, Identity, adopted
from headwater.streams.kafka.changelog import (
    CHECKPOINT,
    CHECKPOINT_TIME,
    Changelog,
    Rows,
    changelogs,
    rewritten_versions,
)
from headwater.streams.kafka.cluster import CHANGELOG, REPARTITION, Cluster, NewInternal, versioned_changelog
from headwater.streams.kafka.copies import Copies, MemoryLog, StateLog, checkpoint
from headwater.streams.kafka.dealing import places_of_tasks
from headwater.streams.kafka.offset_notes import NO_TIME, decode, encode
from headwater.streams.kafka.reader import Reader
from headwater.streams.kafka.record import KafkaRecord, identity_topic
from headwater.streams.kafka.recovery import expired, observed
from headwater.streams.kafka.roster import TOPIC_SETTINGS, Announcement, Roster, standbys_of, workers_topic
from headwater.streams.kafka.seat import Seat
from headwater.streams.kafka.slots import Slot
from headwater.streams.kafka.writer import NewRecord, Writer
from headwater.streams.log_record import announce, is_another
from headwater.streams.plan import Plan
from headwater.streams.queues import RawRecord
from headwater.streams.set_back import LEAPT
from headwater.streams.task import TaskSpec

__all__ = ["KafkaConnection", "memory_topic"]

log = logging.getLogger("headwater")

# How often, in seconds: processed records of internal topics are deleted; old databases are; standbys are looked after.
PURGE_SECONDS, CLEAN_SECONDS, LOOK_SECONDS = 10.0, 60.0, 0.5
# How long a new worker listens whether others run another topology.
LISTEN_SECONDS = 10.0


def memory_topic(app_id: str, task_id: str) -> str:
    """The changelog of the operator memory of a task's sub-topology.

    >>> memory_topic("revenue", "1_3")
    'revenue-operators-1-changelog'
    """
    return f"{app_id}-operators-{task_id.partition('_')[0]}-changelog"


class KafkaConnection:
    """One worker's link to a Kafka cluster; `endpoint` is where it answers questions, if it does."""

    restores = True

    def __init__(
        self, settings: Mapping[str, Any], topology: Topology, config: Config, slot: Slot, endpoint: str | None = None
    ) -> None:
        self._settings = settings
        self._topology = topology
        self._config = config
        self._app_id = config.app_id
        self._slot = slot
        self._endpoint = endpoint
        # What workers of earlier versions announce.
        self._described = hashlib.sha256(topology.describe().encode()).hexdigest()
        self._hash = ""
        # What the application is, and whether that was recorded again against another one.
        self._identity: Identity | None = None
        self._before: Identity | None = None
        self._fit: Fit | None = None
        self._insisted = False
        self._writer = Writer(settings, f"{config.app_id}-{slot.id}" if config.exactly_once else None)
        longest = self._writer.timeout_ms
        if longest is not None and config.commit_interval_ms >= longest:
            raise TopologyError(
                [
                    f"Config: commit_interval is {config.commit_interval_ms} ms, but Kafka ends a transaction after "
                    f"{longest} ms: commit more often, or allow more (--set transaction.timeout.ms=…)"
                ]
            )
        self._cluster = Cluster(settings)
        self._record = KafkaRecord(settings, config.app_id, self._cluster)
        self._reader = Reader(settings, config.app_id)
        self._copies = Copies(settings, config.app_id, slot.directory / "tasks")
        self._seat: Seat | None = None
        self.roster: Roster | None = None
        self._specs: dict[str, TaskSpec] = {}
        self._inputs: Mapping[str, Sequence[Place]] = {}
        # The partition whose owner runs a task, and the tasks by it.
        self._leads: dict[str, Place] = {}
        self._led: dict[Place, str] = {}
        # The topic that tasks are shared out by; empty where an input is.
        self._tasks_topic: str | None = None  # not known before prepare()
        self._logs: dict[str, dict[Place, Changelog]] = {}
        # The ids of the topics that state is read from: one that is made anew has another.
        self._ids: dict[str, str] = {}
        self._internal: set[str] = set()
        # How many bytes a record for a topic may have.
        self._largest: dict[str, int | None] = {}
        self._turns: dict[str, itertools.count[int]] = defaultdict(itertools.count)
        # Of the tasks that run here: offsets committed, and offsets up to which an input has been read.
        self._offsets: dict[str, dict[Place, int]] = {}
        # Rows past their retention that changelogs of Kafka Streams still have: the next commit deletes them there.
        self._expired: dict[str, Rows] = {}
        self._positions: dict[Place, int] = {}
        # The offsets after the last records that this worker has written to internal topics.
        self._written_to: dict[Place, int] = {}
        self._purged_at = self._cleaned_at = self._looked_at = time.monotonic()

    # ---- topics ------------------------------------------------------------------------------------------------

    def topics(self) -> dict[str, int]:
        return self._cluster.topics()

    def create(self, topic: str, partitions: int, *, internal: bool) -> None:
        if internal:
            self._internal.add(topic)
            self._cluster.ensure([NewInternal(topic, partitions, REPARTITION)], self._config.replication_factor)
        elif topic not in self._cluster.topics(anew=True):
            raise TopologyError(
                [
                    f"topic {topic!r}, which results are written to, does not exist: create it with the partitions, "
                    f"replication and retention it should have (headwater topics create {topic} --partitions 4 "
                    "--broker kafka://…)"
                ]
            )

    def identify(self, now: Identity) -> Identity:
        record, self._identity = self._record, now
        others = workers_topic(self._app_id) in self._cluster.topics(anew=True)
        try:
            before, fit = record.compared(now, self._config.renamed)
            self._hash = fit.identity.fingerprint
        except TopologyError as error:
            if others and self._others():
                raise TopologyError([is_another(self._app_id), *error.faults]) from None
            raise
        if others:
            self.roster = self._enrol()
        self._before, self._fit = before, fit
        self._hash = fit.identity.fingerprint
        self._topology = adopted(self._topology, fit.identity)
        return fit.identity

    def _record_identity(self) -> None:
        """Record what the application is now, if that has changed."""
        before, fit, now = self._before, self._fit, self._identity
        assert fit is not None
        assert now is not None
        if fit.identity == before:
            return
        kept = self._record.keep(now, self._config.renamed)
        if kept.identity != fit.identity:
            raise Passing(f"another worker of {self._app_id!r} has just changed what it is")
        if before is not None:
            announce(fit)

    def prepare(self, plan: Plan, inputs: Mapping[str, Sequence[Place]]) -> None:
        self._specs = {spec.task_id: spec for spec in plan.tasks}
        self._inputs = inputs
        self._leads = places_of_tasks(self._app_id, inputs, self._cluster.topics())
        self._led = {place: task_id for task_id, place in self._leads.items()}
        read = {topic for places in inputs.values() for topic, _ in places}
        self._tasks_topic = next((topic for topic, _ in self._led if topic not in read), "")
        self._logs = {
            task_id: {
                (f"{self._app_id}-{changelog.name}-changelog", spec.partition): changelog
                for changelog in changelogs(spec.stores())
                if changelog.spec.name not in self._topology.source_changelogs
            }
            for task_id, spec in self._specs.items()
        }
        self._make_topics()
        self._record_identity()
        self._writer.bound_batches(self._ask_largest(self._written()))
        if self.roster is None:
            self.roster = self._enrol()
        else:
            # Only now it is known by which topic tasks are shared out.
            self._refuse_misfits(self.roster)
        self._writer.open()
        instance = self._config.instance_id
        if instance is not None and self._slot.number:
            instance = f"{instance}-{self._slot.number}"
        self._seat = Seat(self._settings, self._app_id, {topic for topic, _ in self._leads.values()}, instance)

    def _make_topics(self) -> None:
        sizes = defaultdict[str, int](int)
        settings: dict[str, Mapping[str, str]] = {workers_topic(self._app_id): TOPIC_SETTINGS}
        settings[identity_topic(self._app_id)] = CHANGELOG
        sizes[workers_topic(self._app_id)] = sizes[identity_topic(self._app_id)] = 1
        for task_id, logs in self._logs.items():
            for (topic, partition), changelog in logs.items():
                sizes[topic] = max(sizes[topic], partition + 1)
                versioned = changelog.spec.kind == "versioned"
                settings[topic] = versioned_changelog(changelog.spec.retention_ms) if versioned else CHANGELOG
            own = memory_topic(self._app_id, task_id)
            sizes[own] = max(sizes[own], self._specs[task_id].partition + 1)
            settings[own] = CHANGELOG
        if self._tasks_topic:
            sizes[self._tasks_topic], settings[self._tasks_topic] = len(self._led), {}
        # Where nothing else is kept, a partition may be new: its memory begins with it.
        kept = {memory_topic(self._app_id, task_id) for task_id, logs in self._logs.items() if logs}
        grow = {memory_topic(self._app_id, task_id) for task_id in self._specs} - kept
        made = [NewInternal(topic, sizes[topic], settings[topic], topic in grow) for topic in sorted(sizes)]
        self._cluster.ensure(made, self._config.replication_factor)
        self._cluster.adjust({topic: settings[topic] for logs in self._logs.values() for topic, _ in logs})
        read = {topic for places in self._inputs.values() for topic, _ in places}
        self._cluster.check_rights(read | sizes.keys(), self._sinks() | sizes.keys() | self._internal)

    def largest(self, topic: str) -> int | None:
        if topic not in self._largest:
            self._ask_largest([topic])
        return self._largest[topic]

    def _ask_largest(self, topics: Iterable[str]) -> Iterable[int]:
        """Find out how large records may be, and return how large batches may be."""
        topics = set(topics)
        found = self._cluster.largest_batches(topics)
        self._largest |= {topic: self._writer.largest_record(found.get(topic)) for topic in topics}
        return found.values()

    def _written(self) -> set[str]:
        """The topics that are written to, but for those that functions name."""
        logs = {topic for logs in self._logs.values() for topic, _ in logs}
        memory = {memory_topic(self._app_id, task_id) for task_id in self._specs}
        return logs | memory | self._internal | self._sinks()

    def _check_topics(self) -> None:
        """Stop where a topic has been deleted: others than those of a pattern are needed, whether in use now or not."""
        named = {topic for source in self._topology.sources() for topic in source.topics}
        read = {topic for places in self._inputs.values() for topic, _ in places}
        there = self._cluster.topics()
        sinks = self._sinks()
        external = sorted((read & named | sinks) - there.keys())
        internal = sorted(self._written() - sinks - there.keys())
        if external or internal:
            raise StreamsError(_gone(external, internal))
        if self._tasks_topic and self._tasks_topic not in there:
            raise StreamsError(
                f"{self._tasks_topic}: deleted while the application ran; start all of its workers again, and it is "
                "made anew. Nothing was kept in it."
            )

    def _sinks(self) -> set[str]:
        """The topics that results are written to, but for those that functions name."""
        sinks = [node.topic for node in self._topology.nodes.values() if isinstance(node, Sink)]
        sinks += [topic for topic in (self._config.dead_letters, self._config.late) if topic is not None]
        return {t for t in sinks if isinstance(t, str) and t not in self._topology.internal_topics}

    def _roster_of_all(self) -> Roster:
        """Listen who else is there."""
        roster = Roster(self._settings, self._app_id, self._slot.id)
        deadline = time.monotonic() + LISTEN_SECONDS
        while not roster.known and time.monotonic() < deadline:
            roster.poll()
            time.sleep(0.01)
        return roster

    def _others(self) -> bool:
        roster = self._roster_of_all()
        try:
            return bool(roster.live())
        finally:
            roster.close()

    def _enrol(self) -> Roster:
        """Refuse to join those that this worker cannot run beside."""
        roster = self._roster_of_all()
        try:
            self._refuse_misfits(roster)
        except StreamsError:
            roster.close()
            raise
        return roster

    def _refuse_misfits(self, roster: Roster) -> None:
        misfits = [fault for other in roster.live().values() if (fault := self._misfit(other)) is not None]
        if misfits:
            raise misfits[0]

    def _misfit(self, other: Announcement) -> StreamsError | None:
        """Why this worker cannot run beside another; None if it can."""
        where = f"worker {other.worker!r} (process {other.pid} on {other.host})"
        if other.topology == self._hash and self._tasks_topic in (None, other.tasks_topic):
            return None
        if other.topology == self._hash:
            # It passes: whoever does not know of new partitions yet starts again when it hears of them.
            return Passing(
                f"{where} shares tasks out by {other.tasks_topic!r}, this one by {self._tasks_topic!r}: they do not "
                "see the same numbers of partitions"
            )
        if other.topology == self._described:
            return TopologyError(
                [
                    f"{where} of application {self._app_id!r} is of an older version of Headwater, which shares tasks "
                    "out in another way, and both would run the same task: stop all workers of that version first"
                ]
            )
        return TopologyError([is_another(self._app_id)])

    # ---- who runs what -----------------------------------------------------------------------------------------

    @property
    def _member(self) -> Seat:
        assert self._seat is not None, "prepare comes first"
        return self._seat

    def poll(self, give_up: GiveUp) -> bool:
        def leave(places: Sequence[Place], commit: bool) -> None:
            tasks = [self._led[place] for place in places if place in self._led]
            give_up(tasks, commit)
            for task_id in tasks:
                if task_id in self._copies:
                    self._copies.drop(task_id)

        moved = self._member.poll(leave)
        arrived = self._copies.poll()
        self._reader.fill()
        self._look_into_deletions(give_up)
        self._look_around()
        return moved or arrived

    def _look_into_deletions(self, give_up: GiveUp) -> None:
        """Stop where records were deleted that nobody has processed.

        If the group has offsets after them, others have, and deleted them from an internal topic: the task is another
        worker's by now, and this one, which was away for a while, has not heard of it yet.
        """
        for place, fault in list(self._reader.cut.items()):
            if place not in self._reader.cut:
                continue  # its task has just been given up, for another of its inputs
            task_id = next((task_id for task_id, offsets in self._offsets.items() if place in offsets), None)
            if task_id is None:
                raise fault
            committed = self._member.committed(self._inputs[task_id])
            if committed is None:
                continue
            at, _ = committed.get(place, (-1, ""))
            if at <= self._offsets[task_id][place]:
                raise fault
            give_up([task_id], False)

    def assigned(self, tasks: Sequence[str]) -> list[str]:
        held = self._member.held
        return [task_id for task_id in tasks if self._leads[task_id] in held]

    def open(self, spec: TaskSpec, path: Path) -> RocksBackend | None:
        task_id = spec.task_id
        if task_id not in self._copies or self._copies[task_id].targets is None:
            # First what this worker itself may have left open is ended; then the offsets, which wait for the last
            # owner's transaction to end; then the ends of the changelogs, which have its records by now.
            self._writer.open()
            committed = self._member.committed(self._inputs[task_id])
            if committed is None:
                return None
            self._fetch(spec, committed, path)
        copy = self._copies[task_id]
        if not copy.complete:
            return None
        backend = self._copies.take(task_id)
        try:
            self._rewrite_versions(task_id, backend, copy.committed)
            self._expired[task_id] = _settle(spec, backend, copy.committed)
        except BaseException:
            backend.close()
            raise
        self._offsets[task_id] = {place: at for place, (at, _) in copy.committed.items()}
        return backend

    def _fetch(self, spec: TaskSpec, committed: dict[Place, tuple[int, str]], path: Path) -> None:
        """Have a task's rows fetched, from where its copy here has come to."""
        task_id = spec.task_id
        # A table's own topic may be its changelog: it is read up to where the task goes on.
        sources = self._source_logs(spec, committed)
        if task_id in self._copies and sources:
            self._copies.drop(task_id)
        if task_id in self._copies:
            self._copies.met += 1
        else:
            self._begin_copy(spec, sources)
        kept, _ = read_committed(self._copies[task_id].backend)
        if any(kept.get(place, 0) > committed.get(place, (0, ""))[0] for place in self._inputs[task_id]):
            why = "it has read on from the group's offsets: Kafka has lost a transaction, or they were set back"
            self._copies.discard(task_id, why)
            self._begin_copy(spec, sources)
        copy = self._copies[task_id]
        ends = self._cluster.ends(copy.logs)
        targets = ends | {place: committed[place][0] for place in sources}
        for (topic, partition), end in ends.items():
            if max(copy.positions[topic, partition], targets[topic, partition]) > end:
                raise StateError(
                    f"{topic}-{partition} ends at {end}, before what task {task_id} has kept of it in {path}: it was "
                    "made anew, or cut. Reset the application (headwater reset) to begin anew."
                )
        self._copies.restore(task_id, targets, committed)

    def _begin_copy(self, spec: TaskSpec, sources: Mapping[Place, StateLog]) -> None:
        own: dict[Place, StateLog] = {self._memory_place(spec.task_id): MemoryLog()}
        logs = {**self._logs[spec.task_id], **own, **sources}
        new = {topic for topic, _ in logs} - self._ids.keys()
        if new:
            self._ids |= self._cluster.identities(new)
        self._copies.begin(spec, logs, self._cluster.starts(logs), self._ids)

    def _source_logs(self, spec: TaskSpec, committed: Mapping[Place, tuple[int, str]]) -> dict[Place, StateLog]:
        found: dict[Place, StateLog] = {}
        for store in spec.stores():
            topic = self._topology.source_changelogs.get(store.name)
            if topic is not None and (topic, spec.partition) in committed:
                found[topic, spec.partition] = Changelog(store)
        return found

    def _rewrite_versions(
        self, task_id: str, backend: RocksBackend, committed: Mapping[Place, tuple[int, str]]
    ) -> None:
        """Bring a versioned store's changelog to the form that Kafka Streams reads, where an earlier release has
        written to it."""
        records: list[NewRecord] = []
        marks: dict[bytes, bytes | None] = {}
        for (topic, partition), changelog in self._logs[task_id].items():
            if changelog.spec.kind == "versioned":
                versions, gone = rewritten_versions(changelog.spec, backend)
                records += [(topic, partition, key, value, time, ()) for key, value, time in versions]
                marks |= gone
        if not records:
            return
        log.info("task %s: %s versions are written to changelogs of an earlier form", task_id, f"{len(records):,}")
        offsets = [TopicPartition(*place, at, note) for place, (at, note) in committed.items()]
        try:
            written = self._writer.write(records, offsets, self._member)
        except Undone as fault:
            raise Passing(f"task {task_id}: its changelogs could not be rewritten ({fault})") from fault
        backend.write({CHECKPOINT: marks | checkpoint(written)})

    def shut(self, task_id: str, backend: RocksBackend) -> None:
        self._offsets.pop(task_id, None)
        self._expired.pop(task_id, None)
        self._member.forget(self._inputs[task_id])
        self._reader.stop(self._inputs[task_id])
        for place in self._inputs[task_id]:
            self._positions.pop(place, None)
        backend.close()
        if backend.damaged:
            self._copies.delete(task_id, "it is damaged")

    # ---- records -----------------------------------------------------------------------------------------------

    def begin(self, task_id: str, topic: str, partition: int, committed: int | None, reset: str | None) -> int:
        place = topic, partition
        start = self._cluster.starts([place])[place]
        offset = committed
        if committed is not None and committed < start:
            log.warning(
                "%s-%d: %d records were deleted before they were processed (retention, or delete-records)",
                topic, partition, start - committed,
            )  # fmt: skip
            offset = None
        if offset is None:
            if reset == "none":
                what = "there is no committed offset" if committed is None else f"offset {committed} is no longer there"
                raise StreamsError(
                    f"{topic}-{partition}: {what} and reset='none' forbids to choose one: reset the application's "
                    "offsets (headwater reset)"
                )
            offset = self._cluster.ends([place])[place] if reset == "latest" else start
        self._reader.start(place, offset)
        self._positions[place] = offset
        if task_id in self._offsets:
            self._offsets[task_id][place] = offset
        return offset

    def read(self, topic: str, partition: int, offset: int, limit: int) -> list[RawRecord]:
        records = self._reader.read((topic, partition), limit)
        if records:
            self._positions[topic, partition] = records[-1][4] + 1
        return records

    def caught_up(self, topic: str, partition: int) -> bool:
        place, position = (topic, partition), self._positions[topic, partition]
        # What this worker itself has written there is on its way, whatever Kafka said when it was last asked.
        return position >= self._written_to.get(place, 0) and self._reader.caught_up(place, position)

    def behind(self, topic: str, partition: int, position: int) -> int:
        place = topic, partition
        return max(self._reader.behind(place, position), self._written_to.get(place, 0) - position)

    def at_end(self, positions: Mapping[Place, int]) -> bool:
        if not self._member.heard:
            return False
        # What lies before the end is committed, or will be soon: it is waited for, not passed by.
        ends = self._cluster.ends(positions)
        return all(
            self._reader.caught_up(place, position) and max(position, self._reader.end(place)) >= ends[place]
            for place, position in positions.items()
        )

    # ---- commits -----------------------------------------------------------------------------------------------

    def commit(self, commits: Sequence[TaskCommit]) -> None:
        now = time.time_ns() // 1_000_000
        offsets: list[TopicPartition] = []
        for commit in commits:
            reached = self._offsets[commit.task_id] | commit.changes.offsets
            for place, at in reached.items():
                offsets.append(TopicPartition(*place, at, encode(commit.times.get(place, NO_TIME), commit.closed)))
        written = self._writer.write(self._records(commits, now), offsets, self._member)
        self._written_to |= {place: at for place, at in written.items() if place[0] in self._internal}
        for commit in commits:
            self._offsets[commit.task_id] |= commit.changes.offsets
            self._expired.pop(commit.task_id, None)
            self._keep(commit, written)
        self._purge()

    def send(self, outputs: Sequence[Output]) -> None:
        self._writer.send(self._routed(outputs))

    def _routed(self, outputs: Iterable[Output]) -> Iterator[NewRecord]:
        counts = self._cluster.topics()
        for topic, partition, key, value, timestamp, headers in outputs:
            if partition is None:
                count = counts.get(topic)
                if count is None:
                    raise StreamsError(_gone([topic], []))
                partition = partition_for(key, count) if key is not None else next(self._turns[topic]) % count
            yield topic, partition, key, value, timestamp, headers

    def _records(self, commits: Sequence[TaskCommit], now: int) -> Iterator[NewRecord]:
        # By time, over all tasks: who reads them must not find one task's records behind another's that are later.
        parts = [commit.changes.outputs for commit in commits]
        yield from self._routed(merged(parts, OUTPUT_TIME, by_time=self._config.compat is None))
        for commit in commits:
            changes = commit.changes
            expired = self._expired.get(commit.task_id, {})
            for (topic, partition), changelog in self._logs[commit.task_id].items():
                for rows in (expired, changes.rows):
                    for key, value, timestamp in changelog.records(rows, now):
                        yield topic, partition, key, value, timestamp, changelog.headers
            topic, partition = self._memory_place(commit.task_id)
            for key, value in changes.memory.items():
                yield topic, partition, key, value, now, ()

    def _memory_place(self, task_id: str) -> Place:
        return memory_topic(self._app_id, task_id), self._specs[task_id].partition

    def _keep(self, commit: TaskCommit, written: Mapping[Place, int]) -> None:
        """Write a task's rows to its database."""
        batch = commit.changes.batch()
        own = [*self._logs[commit.task_id], self._memory_place(commit.task_id)]
        reached = {place: written[place] for place in own if place in written}
        for store in self._specs[commit.task_id].stores():
            topic = self._topology.source_changelogs.get(store.name)
            place = topic or "", self._specs[commit.task_id].partition
            if place in commit.changes.offsets:
                reached[place] = commit.changes.offsets[place]
        marks = self._times(commit)
        if reached or marks:
            batch[CHECKPOINT] = checkpoint(reached) | marks
        commit.backend.write(batch)

    def _times(self, commit: TaskCommit) -> dict[bytes, bytes | None]:
        """How far the time of versioned stores has come, for who reads on in their changelogs."""
        found: dict[bytes, bytes | None] = {}
        for store in self._specs[commit.task_id].stores():
            memory = commit.changes.memory.get(memory_key(store_memory(store)))
            if store.kind == "versioned" and memory is not None:
                found[CHECKPOINT_TIME + store.rows.encode()] = b"%d" % pickle.loads(memory)["memory"][0]
        return found

    def _purge(self) -> None:
        """Have records of internal topics deleted that have been processed."""
        if time.monotonic() - self._purged_at < PURGE_SECONDS:
            return
        self._purged_at = time.monotonic()
        processed = {place: at for offsets in self._offsets.values() for place, at in offsets.items()}
        self._cluster.delete_before({place: at for place, at in processed.items() if place[0] in self._internal and at})

    # ---- the others --------------------------------------------------------------------------------------------

    def _look_around(self) -> None:
        """Say what goes on here, hear what goes on elsewhere, and keep the copies that are this worker's to keep."""
        now = time.monotonic()
        if now - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = now
        self._writer.listen()
        self._check_topics()
        assert self.roster is not None
        self.roster.poll()
        # Two that start at once hear of each other only now; all agree on which is to go.
        others = list(self.roster.live().values())
        for other in others:
            misfit = self._misfit(other)
            if misfit is not None and other.topology <= self._hash:
                raise misfit
        if any(other.topology != self._hash for other in others) and not self._insisted and self._identity is not None:
            # The one that goes may have written the record last.
            self._record.keep(self._identity, self._config.renamed)
            self._insisted = True
        standbys = self.standbys
        said = Announcement(
            worker=self._slot.id,
            endpoint=self._endpoint,
            tasks=tuple(sorted(self._offsets)),
            standbys={task_id: standby.lag for task_id, standby in standbys.items()},
            topology=self._hash,
            tasks_topic=self._tasks_topic or "",
            host=socket.gethostname(),
            pid=os.getpid(),
        )
        self.roster.announce(said)
        self._stand_by(self.roster.live(), self.roster.owners(), standbys)
        if now - self._cleaned_at > CLEAN_SECONDS:
            self._cleaned_at = now
            self._copies.clean(self._offsets)

    def _stand_by(self, live: Iterable[str], owners: Mapping[str, str], standbys: Mapping[str, Standby]) -> None:
        for task_id, spec in self._specs.items():
            if not self._logs[task_id] or self._leads[task_id] in self._member.held:
                continue
            wanted = self._slot.id in standbys_of(task_id, owners.get(task_id), live, self._config.standbys)
            if wanted and task_id in owners and task_id not in self._copies:
                self._begin_copy(spec, {})
            elif not wanted and task_id in standbys:
                self._copies.drop(task_id)

    @property
    def standbys(self) -> Mapping[str, Standby]:
        return self._copies.standbys()

    def workers(self) -> dict[str, Announcement]:
        """The workers of the application that were heard of lately."""
        return {} if self.roster is None else self.roster.live()

    def metrics(self) -> dict[str, object]:
        return {
            "restores-total": self._copies.restores,
            "restored-records-total": self._copies.restored,
            "restored-records-rate": self._copies.rate.rate(time.time_ns() // 1_000_000),
            "standbys-met-total": self._copies.met,
            "restoring": self._copies.restoring(),
            "standbys": {task_id: standby.lag for task_id, standby in self.standbys.items()},
            "workers": len(self.workers()),
        }

    def close(self) -> None:
        with ExitStack() as ends:
            ends.callback(self._slot.release)
            ends.callback(self._reader.close)
            ends.callback(self._copies.close)
            ends.callback(self._writer.close)
            if self.roster is not None:
                ends.callback(self.roster.close)
                ends.callback(self.roster.leave)
            # The seat first: others may go on at once.
            if self._seat is not None:
                ends.callback(self._seat.close)


def _gone(external: Sequence[str], internal: Sequence[str]) -> str:
    said = []
    if external:
        said.append(f"{', '.join(external)}: deleted while the application ran; create it again, and start again")
    if internal:
        said.append(
            f"{', '.join(internal)}: deleted while the application ran, and with it what it kept there for itself; "
            "reset the application (headwater reset) to begin anew"
        )
    return ". ".join(said)


def _settle(spec: TaskSpec, backend: RocksBackend, committed: Mapping[Place, tuple[int, str]]) -> Rows:
    """Bring what a database says of its task's offsets and times to what the group and the changelogs say; return the
    deletions of rows past their retention.

    Who wrote them last may have been Kafka Streams, which leaves no operator memory: partitions' times and up to where
    closed windows were emitted are in the notes beside its offsets, and how far a store's time had come its rows tell.
    """
    own = offset_rows({place: at for place, (at, _) in committed.items()}, backend)
    batch: dict[str, dict[bytes, bytes | None]] = {TASK: own}
    _, memories = read_committed(backend)
    times = memories.get("times", {"stream": NO_TIME, "partitions": {}})
    notes = {place: decode(note) for place, (_, note) in committed.items()}
    later = {at: time for at, (time, _) in notes.items() if time > times["partitions"].get(at, NO_TIME)}
    if later:
        stream = max(times["stream"], *later.values())
        own[memory_key("times")] = pickled({**times, "stream": stream, "partitions": {**times["partitions"], **later}})
    for node, name in spec.closing():
        own_memory = step_memory(spec.topology, node, name)
        memory = memories.get(own_memory) or memories.get(f"node {node}", {})
        closed = max((numbers.get(name, NO_TIME) for _, numbers in notes.values()), default=NO_TIME)
        if closed > memory.get("closed", NO_TIME):
            own[memory_key(own_memory)] = pickled({**memory, "closed": closed})
    past: Rows = {}
    for store in spec.stores():
        before = memories.get(store_memory(store), {}).get("memory")
        leapt = memories.get(LEAPT, {}).get(store.rows, NO_TIME)
        found = observed(store, backend, before, leapt)
        if found is not None and found != before:
            own[memory_key(store_memory(store))] = pickle.dumps({"memory": found})
            past |= expired(store, backend, found)
    backend.write(batch | past)
    return past
