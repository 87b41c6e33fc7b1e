"""The embedded log as a worker's connection: records are read from its partitions, and commits are exactly once.

A task's commit goes through its own database, step by step:

1. the input read so far is made durable;
2. one write: rows, operator memory, offsets, and the encoded outputs with their sequence numbers (the outbox);
3. each outbox entry is appended to its partition, under (application/task, sequence); what several tasks of a commit
   have for a partition that the application reads is one batch, merged by time, under all their names and numbers;
4. the outputs are made durable;
5. the outbox is forgotten, with the next commit's write or when the task is given up.

A crash before 2 has changed nothing. After 2, the task's next owner finds the outbox and goes on with 3 before it reads
anything; the log drops entries it already has. So nothing is lost or doubled, whatever the moment.

The outbox's store also keeps

| key | row |
|---|---|
| `producer` 00 | the name under which the task appends: made with the database, so that no other one goes on under it |
| `sequence` 00 topic 00 partition | the last sequence appended there |
| `topic` 00 topic | the id of a topic an offset was committed of: one that was deleted and made anew is another one |
| `output` 00 topic | the same of a topic results were written to |
| `witness` 00 topic 00 partition | offset and checksum of a processed record: an older copy has another there |
| `repair` 00 topic 00 partition | the last repair of an output partition that the sequence knows of |

At least once skips the outbox: outputs are appended as they come, then rows and offsets are written; a crash in
between repeats the outputs.

Before a task's rows are opened for writing, `check` compares them with what others know: the group's offsets, written
after each commit, and the log's sequences. Rows that are older, or an output that is gone, are refused by name, and
nothing has been changed then.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec

from headwater.dsl.partitioner import partition_for
from headwater.dsl.records import Headers
from headwater.dsl.topology import Sink
from headwater.errors import StateError, StreamsError, TopologyError
from headwater.state.backend import Backend
from headwater.state.log import CorruptLog, Group, Log, Membership, OutOfRange, Partition
from headwater.state.rocks import RocksBackend, is_made
from headwater.streams.changes import TASK, committed_offsets
from headwater.streams.connection import OUTPUT_TIME, GiveUp, Place, Standby, TaskCommit, merged
from headwater.streams.context import Output
from headwater.streams.identity import Identity
from headwater.streams.log_record import IDENTITY, LogRecord, is_another
from headwater.streams.plan import Plan
from headwater.streams.queues import RawRecord
from headwater.streams.task import TaskSpec

__all__ = ["OUTBOX", "RESETTING", "LogConnection", "member_name"]

log = logging.getLogger("headwater")

OUTBOX = "|outbox"
_PRODUCER = b"producer\0"
_ANEW = "Restore it from the newest copy, or let the application begin anew (headwater reset)."
# The note of a member that is no worker, but makes the application begin anew.
RESETTING = "reset"

# Where the timestamp is in a record to append.
RECORD_TIME = 2
# Records of an internal topic are deleted when so many of a partition have been processed since the last time.
PURGE = 100_000
# How often retention and compaction are seen to.
MAINTAIN_SECONDS = 60.0

_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.Decoder(list[tuple[bytes | None, bytes | None, int, Headers]]).decode


class LogConnection:
    """One worker's link to an embedded log.

    `at(point)` is called at the named points of a commit, for tests that kill the process there.
    """

    # Nobody needs a copy: all workers share the disk.
    standbys: Mapping[str, Standby] = {}
    restores = False

    def __init__(
        self,
        embedded: Log,
        app_id: str,
        member: str,
        directory: Path,
        *,
        renamed: Mapping[str, str | None] | None = None,
        exactly_once: bool = True,
        by_time: bool = True,
        at: Callable[[str], Any] = lambda point: None,
    ) -> None:
        self._log = embedded
        self._app_id = app_id
        self._exactly_once = exactly_once
        # Whether what several tasks of a commit send to a partition is merged by time.
        self._by_time = by_time
        self._at = at
        self._group = Group(embedded, app_id)
        self._partitions: dict[Place, Partition] = {}
        self._counts: dict[str, int] = {}
        self._turns: dict[str, itertools.count[int]] = defaultdict(itertools.count)
        self._sequences: dict[str, dict[Place, int]] = {}
        self._forgotten: dict[str, list[bytes]] = {}
        # The ids of the topics whose offsets a task has committed, and of those there are now.
        self._ids: dict[str, dict[str, str]] = {}
        self._topic_ids: dict[str, str] = {}
        # And of those its results were written to; under which name.
        self._output_ids: dict[str, dict[str, str]] = {}
        self._producers: dict[str, str] = {}
        self._inputs: Mapping[str, Sequence[Place]] = {}
        # Offset and checksum of the last record of each read that is not committed yet.
        self._last_read: dict[Place, list[tuple[int, int]]] = defaultdict(list)
        # How far the tasks' inputs have been committed.
        self._reached: dict[Place, int] = {}
        self._internal: set[str] = set()
        self._read_here: set[str] = set()
        self._purged: dict[Place, int] = {}
        # Where results were sent to since the last commit, at least once.
        self._sent: set[Place] = set()
        self._closing = threading.Event()
        self._maintenance = threading.Thread(target=self._maintain, name="headwater-log-maintenance", daemon=True)
        self._member_name = member
        self._record = LogRecord(directory, app_id, embedded.files)
        self._renamed = renamed
        self._member: Membership | None = None

    # ---- what the application is -------------------------------------------------------------------------------

    def identify(self, now: Identity) -> Identity:
        # Once to refuse before anything is written, and again as a member: another may have been there in between.
        try:
            note = self._record.compared(now, self._renamed).identity.fingerprint
        except TopologyError as error:
            if any(member.note != RESETTING for member in self._group.members()):
                raise TopologyError([is_another(self._app_id), *error.faults]) from None
            raise
        self._member = self._group.join(self._member_name, note)
        others = {m.note for m in self._group.members() if m.note != note}
        if RESETTING in others:
            self._member.leave()
            raise StreamsError(f"application {self._app_id!r} is being reset: start it when that is done")
        if others:
            self._member.leave()
            raise TopologyError([is_another(self._app_id)])
        try:
            # Workers that start at once write the same, but not at the same time.
            while not self._group.acquire(IDENTITY):
                time.sleep(0.01)
            kept = self._record.keep(now, self._renamed)
        except BaseException:
            self._group.close()
            raise
        self._group.release(IDENTITY)
        self._maintenance.start()
        return kept

    # ---- topics ------------------------------------------------------------------------------------------------

    def topics(self) -> dict[str, int]:
        self._counts = {info.name: info.partitions for info in self._log.topics()}
        return dict(self._counts)

    def create(self, topic: str, partitions: int, *, internal: bool) -> None:
        # Records of internal topics are deleted once they are processed, never by age: a worker may be down for weeks.
        if internal:
            self._internal.add(topic)
            if topic not in self._counts and any(place[0] == topic for place in self._group.committed()):
                raise StateError(
                    f"The internal topic {topic!r} of {self._app_id!r} is gone, with what its tasks had written for "
                    f"each other. {_ANEW}"
                )
            self._log.create_topic(topic, partitions, exist_ok=True, retention_ms=None)
        else:
            self._log.create_topic(topic, partitions, exist_ok=True)
        self._counts[topic] = self._log.topic(topic).partitions

    def _partition(self, topic: str, partition: int) -> Partition:
        found = self._partitions.get((topic, partition))
        if found is None:
            found = self._partitions[topic, partition] = self._log.partition(topic, partition)
        return found

    def begin(self, task_id: str, topic: str, partition: int, committed: int | None, reset: str | None) -> int:
        at = self._begin(task_id, topic, partition, committed, reset)
        if task_id in self._inputs:
            self._reached[topic, partition] = at
        return at

    def _begin(self, task_id: str, topic: str, partition: int, committed: int | None, reset: str | None) -> int:
        there = self._partition(topic, partition)
        known = self._ids.get(task_id, {}).get(topic)
        if committed is not None and known not in (None, self._id(topic)):
            if topic in self._internal:
                raise self._made_anew(topic)
            log.warning("%s has been deleted and made anew: its records are read from where reset= says", topic)
            committed = None
        # Damage that lies before it is an error of its own, which the end raises.
        if committed is not None and committed > there.sound_end and committed > there.end:
            raise StateError(
                f"{topic}-{partition} ends at {there.end}, but {self._app_id!r} has committed offset {committed} of it:"
                f" the topic has lost records that were processed. {_ANEW}"
            )
        if committed is not None and committed >= there.start:
            return committed
        if committed is not None and committed < there.start:
            log.warning(
                "%s-%d: %d records were deleted before they were processed (retention, or log delete-records)",
                topic,
                partition,
                there.start - committed,
            )
        if reset == "none":
            what = "there is no committed offset" if committed is None else f"offset {committed} is no longer there"
            raise StreamsError(
                f"{topic}-{partition}: {what} and reset='none' forbids to choose one: reset the application's offsets"
            )
        return there.end if reset == "latest" else there.start

    def _made_anew(self, topic: str) -> StateError:
        return StateError(
            f"The internal topic {topic!r} of {self._app_id!r} was deleted and made anew: what its tasks had written "
            f"for each other is gone. {_ANEW}"
        )

    def _id(self, topic: str) -> str:
        """What tells a topic from another one that had its name before."""
        found = self._topic_ids.get(topic)
        if found is None:
            found = self._topic_ids[topic] = self._log.topic(topic).id
        return found

    def read(self, topic: str, partition: int, offset: int, limit: int) -> list[RawRecord]:
        try:
            records = self._partition(topic, partition).read(offset, max_records=limit)
            # Global tables, which commit nothing, are not among what tasks read.
            if records and topic in self._read_here:
                self._last_read[topic, partition].append((records[-1][4], _checksum(records[-1])))
            return records
        except OutOfRange as gone:
            raise StreamsError(
                f"{topic}-{partition}@{offset} is no longer there (the log starts at {gone.start}): retention has "
                "deleted records that were not processed; raise it, or reset the application's offsets"
            ) from gone
        except CorruptLog:
            # The sound records before it are processed and committed first.
            if self._reached.get((topic, partition), offset) >= offset:
                raise
            return []

    def caught_up(self, topic: str, partition: int) -> bool:
        return True

    def behind(self, topic: str, partition: int, position: int) -> int:
        there = self._partition(topic, partition)
        try:
            there.end  # noqa: B018  # asked for what it raises
        except CorruptLog:
            # At least one that cannot be read: the read that reaches it says so.
            return there.sound_end + 1 - position
        return there.sound_end - position

    def at_end(self, positions: Mapping[Place, int]) -> bool:
        return all(self.behind(*place, position) <= 0 for place, position in positions.items())

    # ---- who runs what -----------------------------------------------------------------------------------------

    def largest(self, topic: str) -> int | None:
        return None

    def prepare(self, plan: Plan, inputs: Mapping[str, Sequence[Place]]) -> None:
        """Note what the tasks read, and what the application itself reads: the topics are all else it takes."""
        self._inputs = inputs
        self._read_here = {topic for places in inputs.values() for topic, _ in places}

    def poll(self, give_up: GiveUp) -> bool:
        """Nothing: tasks are dealt out by `assigned`, and let go when another worker waits for them."""
        return False

    def assigned(self, tasks: Sequence[str]) -> list[str]:
        """Every worker computes the same: the sorted tasks are dealt out to the sorted live workers."""
        members = [member.name for member in self._group.members()]
        mine = members.index(self._member_name)
        return list(tasks[mine :: len(members)])

    def open(self, spec: TaskSpec, path: Path) -> RocksBackend | None:
        if not self._group.acquire(spec.task_id):
            return None
        backend: RocksBackend | None = None
        try:
            self.check(spec, path)
            backend = RocksBackend(path, [*spec.backend_stores(), OUTBOX], sync=True, others=True)
            self._name(spec.task_id, backend)
            self.recover(spec.task_id, backend)
        except BaseException:
            if backend is not None:
                backend.close()
            self._release(spec.task_id)
            raise
        return backend

    def shut(self, task_id: str, backend: RocksBackend) -> None:
        for place in self._inputs.get(task_id, ()):
            self._last_read.pop(place, None)
        try:
            keys = self._forgotten.pop(task_id, ())
            if keys:
                self._at("before-forget")
                backend.write({OUTBOX: dict.fromkeys(keys)})
                self._at("after-forget")
        finally:
            backend.close()
            self._release(task_id)

    def _release(self, task_id: str) -> None:
        self._at("before-release")
        self._group.release(task_id)
        self._at("after-release")

    # ---- what others know of a task's rows ---------------------------------------------------------------------

    def check(self, spec: TaskSpec, path: Path) -> None:
        """Refuse rows that are older than what was committed, and outputs that are gone; changes nothing on disk."""
        task_id = spec.task_id
        reached = self._group.committed()
        inputs = {place: reached[place] for place in self._inputs.get(task_id, ()) if place in reached}
        if not is_made(path):
            for (topic, partition), at in inputs.items():
                raise StateError(
                    f"Task {task_id} of {self._app_id!r} has no state in {path}, but offset {at} of {topic}-{partition}"
                    " was committed: reading again what was processed would double its results. Restore the directory "
                    "from a copy, name the state directory it was in, or let the application begin anew (headwater "
                    "reset)."
                )
            return
        backend = RocksBackend(path, [TASK, OUTBOX], others=True, read_only=True)
        try:
            rows = _OutboxRows(backend)
            self._check_inputs(task_id, path, inputs, committed_offsets(backend), rows.ids)
            self._check_witnesses(task_id, rows)
            self._check_outputs(spec, path, rows)
        finally:
            backend.close()

    def _check_inputs(
        self,
        task_id: str,
        path: Path,
        reached: Mapping[Place, int],
        offsets: Mapping[Place, int],
        ids: Mapping[str, str],
    ) -> None:
        for (topic, partition), at in reached.items():
            mine = offsets.get((topic, partition))
            if ids.get(topic) in (None, self._id(topic)) and (mine is None or mine < at):
                found = "no offset" if mine is None else f"offset {mine}"
                raise StateError(
                    f"The state of task {task_id} in {path} is older than what it committed: it has {found} of "
                    f"{topic}-{partition}, and {at} was committed. {_ANEW}"
                )

    def _check_witnesses(self, task_id: str, rows: _OutboxRows) -> None:
        """Refuse an input that is an older copy of itself and has grown since: under offsets that were processed it has
        other records."""
        for place in self._inputs.get(task_id, ()):
            if place not in rows.witnesses or rows.ids.get(place[0]) not in (None, self._id(place[0])):
                continue
            at, checksum = rows.witnesses[place]
            try:
                found = self._partition(*place).read(at, max_records=1)
            except (OutOfRange, CorruptLog):
                # Deleted since, or lost: what that means is told by the committed offset, and by whoever reads it.
                continue
            if found and found[0][4] == at and _checksum(found[0]) != checksum:
                raise StateError(
                    f"{place[0]}-{place[1]}@{at} is another record than the one that {self._app_id!r} has processed: "
                    f"the topic is an older copy that has grown since, and records in it would be skipped. {_ANEW}"
                )

    def _check_outputs(self, spec: TaskSpec, path: Path, rows: _OutboxRows) -> None:
        """Compare sequences with the log's, as they will be when the outbox has been replayed."""
        task_id, there = spec.task_id, self._counts or self.topics()
        producer = rows.producer or self._first_name(task_id)
        for topic, topic_id in rows.output_ids.items():
            if topic in self._internal and topic_id != self._id(topic):
                raise self._made_anew(topic)
        first: dict[Place, int] = {}
        for _, place, sequence, _ in rows.pending:
            first[place] = min(sequence, first.get(place, sequence))
        # Whoever appends under a name of its own has appended nothing before its first sequence.
        places = {*rows.sequences, *(self._sinks(spec) if rows.producer else ())}
        for place in sorted(places):
            topic = place[0]
            if place[1] >= there.get(topic, 0) or rows.output_ids.get(topic, self._id(topic)) != self._id(topic):
                continue
            partition, mine = self._partition(*place), rows.sequences.get(place, 0)
            last = partition.last_sequence(producer) or 0
            if mine < last:
                raise StateError(
                    f"The state of task {task_id} in {path} is older than its results: {topic}-{place[1]} has those up "
                    f"to its commit {last} there, the state knows {mine}. {_ANEW}"
                )
            if last < first.get(place, mine + 1) - 1 and partition.repaired == rows.repairs.get(place, ""):
                if topic not in rows.output_ids and partition.end == 0:
                    # From before these ids were kept: it may be another topic.
                    log.warning("%s-%d is empty, though task %s has written to it before", topic, place[1], task_id)
                    continue
                raise StateError(
                    f"{topic}-{place[1]} has lost results of task {task_id}: it has those up to commit {last}, and the "
                    f"state in {path} has written {mine}. Restore the topic from the newest copy, or let the "
                    "application begin anew (headwater reset)."
                )

    def _sinks(self, spec: TaskSpec) -> list[Place]:
        """Where a task's results may go, as far as its topology names the topics."""
        internal = spec.topology.internal_topics
        named = [
            f"{self._app_id}-{node.topic}" if node.topic in internal else node.topic
            for name in spec.nodes
            if isinstance(node := spec.topology.nodes[name], Sink) and isinstance(node.topic, str)
        ]
        return [(topic, number) for topic in dict.fromkeys(named) for number in range(self._counts.get(topic, 0))]

    # ---- commits -----------------------------------------------------------------------------------------------

    def _first_name(self, task_id: str) -> str:
        return f"{self._app_id}/{task_id}"

    def _name(self, task_id: str, backend: RocksBackend) -> None:
        """Know under which name the task appends; a new database gives it one that no earlier one has."""
        (name,) = backend.get_many(OUTBOX, [_PRODUCER])
        if name is None and next(backend.scan(OUTBOX, b"", None), None) is None:
            name = f"{self._first_name(task_id)}/{uuid.uuid4().hex[:12]}".encode()
            backend.write({OUTBOX: {_PRODUCER: name}})
            # In a file of its own: a write-ahead log that is lost must not make it a new database again.
            backend.flush(OUTBOX)
        self._producers[task_id] = self._first_name(task_id) if name is None else name.decode()

    def recover(self, task_id: str, backend: Backend) -> None:
        """Append what an earlier owner's commit has left in the outbox."""
        rows = _OutboxRows(backend)
        self._ids[task_id], self._sequences[task_id] = rows.ids, rows.sequences
        self._output_ids[task_id] = rows.output_ids
        if rows.pending:
            self._at("before-replay")
            for _, place, sequence, row in rows.pending:
                self._append(task_id, place, sequence, _decode(row))
            for place in {place for _, place, _, _ in rows.pending}:
                self._partition(*place).sync()
            self._at("after-replay")
        self._forgotten[task_id] = [key for key, *_ in rows.pending]
        self._begin_anew(task_id, backend, rows.repairs)

    def _begin_anew(self, task_id: str, backend: Backend, repairs: Mapping[Place, str]) -> None:
        """Begin another sequence in output topics that were deleted and made anew, and where a repair gave some up."""
        there, own = self._counts or self.topics(), dict[bytes, bytes | None]()
        ids = self._output_ids[task_id]
        renewed = {topic for topic, known in ids.items() if topic in there and known != self._id(topic)}
        for topic in renewed:
            log.warning("%s has been deleted and made anew: the results written to it before are gone", topic)
            ids[topic] = self._id(topic)
            own[b"output\0" + topic.encode()] = ids[topic].encode()
        sequences = self._sequences[task_id]
        for place in [place for place in sequences if place[1] < there.get(place[0], 0)]:
            partition = self._partition(*place)
            repaired = partition.repaired
            if place[0] not in renewed and repaired == repairs.get(place, ""):
                continue
            last = partition.last_sequence(self._producer(task_id)) or 0
            if place[0] not in renewed and last < sequences[place]:
                log.warning("%s-%d was repaired: results that task %s had written there are gone", *place, task_id)
            own[_key(b"repair", place)] = repaired.encode()
            own[_key(b"sequence", place)] = b"%d" % last
            sequences[place] = last
        if own:
            backend.write({OUTBOX: own})

    def commit(self, commits: Sequence[TaskCommit]) -> None:
        for place in {place for commit in commits for place in commit.changes.offsets}:
            self._partition(*place).sync()
        self._at("after-input-sync")
        if self._exactly_once:
            self._commit_once(commits)
        else:
            self._commit_again(commits)
        # For people and tools: the offsets that count are in the tasks' databases.
        reached = {place: at for commit in commits for place, at in commit.changes.offsets.items()}
        self._group.commit(reached, sync=False)
        self._reached |= reached
        for place, at in reached.items():
            if place[0] in self._internal and at - self._purged.get(place, 0) >= PURGE:
                self._partition(*place).delete_before(at)
                self._purged[place] = at

    def _commit_once(self, commits: Sequence[TaskCommit]) -> None:
        appends: dict[Place, list[tuple[str, int, list[Any]]]] = defaultdict(list)
        done: dict[str, list[bytes]] = {}
        for commit in commits:
            outputs = self._route(commit.changes.outputs)
            batch = commit.changes.batch()
            own: dict[bytes, bytes | None] = dict.fromkeys(self._forgotten.pop(commit.task_id, ()))
            own |= self._new_ids(commit, {topic for topic, _ in outputs})
            sequences, keys = self._sequences[commit.task_id], []
            for place, records in outputs.items():
                if place not in sequences:
                    # Never written from this database: go on after an earlier one, which was deleted or reset, or the
                    # log would take these for its outputs and drop them.
                    sequences[place] = self._partition(*place).last_sequence(self._producer(commit.task_id)) or 0
                sequence = sequences[place] = sequences[place] + 1
                keys.append(b"%s\0%d" % (_key(b"out", place), sequence))
                own[keys[-1]] = _encode(records)
                own[_key(b"sequence", place)] = b"%d" % sequence
                appends[place].append((commit.task_id, sequence, records))
            if own:
                batch[OUTBOX] = own
            self._at("before-write")
            if batch:
                commit.backend.write(batch)
            self._at("after-write")
            done[commit.task_id] = keys
        for place, parts in appends.items():
            self._append_all(place, parts)
        self._at("before-sync")
        for place in appends:
            self._partition(*place).sync()
        self._at("after-sync")
        # Only now: an outbox that is forgotten before its outputs are durable is a loss.
        self._forgotten |= done

    def _append_all(self, place: Place, parts: Sequence[tuple[str, int, list[Any]]]) -> None:
        """Append what several tasks send to a partition, merged by time: who reads it must not find one task's records
        behind another's that are later."""
        if self._by_time and len(parts) > 1 and place[0] in self._read_here:
            self._at("before-append")
            records = merged([records for _, _, records in parts], RECORD_TIME)
            producers = {self._producer(task_id): sequence for task_id, sequence, _ in parts}
            offsets = self._partition(*place).append_merged(records, producers)
            self._at("after-append")
            if offsets is not None:
                return
        for task_id, sequence, records in parts:
            self._append(task_id, place, sequence, records)

    def send(self, outputs: Sequence[Output]) -> None:
        for place, records in self._route(outputs).items():
            self._at("before-append")
            self._partition(*place).append(records)
            self._at("after-append")
            self._sent.add(place)

    def _commit_again(self, commits: Sequence[TaskCommit]) -> None:
        self.send(merged([commit.changes.outputs for commit in commits], OUTPUT_TIME, by_time=self._by_time))
        self._at("before-sync")
        for place in self._sent:
            self._partition(*place).sync()
        self._sent.clear()
        self._at("after-sync")
        for commit in commits:
            self._at("before-write")
            batch = commit.changes.batch()
            if ids := self._new_ids(commit, ()):
                batch[OUTBOX] = ids
            if batch:
                commit.backend.write(batch)
            self._at("after-write")

    def _new_ids(self, commit: TaskCommit, outputs: Collection[str]) -> dict[bytes, bytes | None]:
        """Rows that say of which topics offsets and outputs of this commit are, as far as they are not there yet."""
        known = self._ids[commit.task_id]
        new = {topic: self._id(topic) for topic, _ in commit.changes.offsets if known.get(topic) != self._id(topic)}
        known.update(new)
        rows: dict[bytes, bytes | None] = {b"topic\0" + topic.encode(): new[topic].encode() for topic in new}
        for place, at in commit.changes.offsets.items():
            read = [one for one in self._last_read[place] if one[0] < at]
            if read:
                rows[_key(b"witness", place)] = b"%d %d" % max(read)
                self._last_read[place] = [one for one in self._last_read[place] if one[0] >= at]
        written = self._output_ids[commit.task_id]
        for topic in outputs:
            if topic not in written:
                written[topic] = self._id(topic)
                rows[b"output\0" + topic.encode()] = self._id(topic).encode()
        return rows

    def _append(self, task_id: str, place: Place, sequence: int, records: list[Any]) -> None:
        self._at("before-append")
        self._partition(*place).append(records, producer=self._producer(task_id), sequence=sequence)
        self._at("after-append")

    def _producer(self, task_id: str) -> str:
        return self._producers.get(task_id) or self._first_name(task_id)

    def _route(self, outputs: Sequence[Output]) -> dict[Place, list[Any]]:
        """The outputs by topic partition, each in order."""
        routed: dict[Place, list[Any]] = defaultdict(list)
        for topic, partition, key, value, timestamp, headers in outputs:
            if partition is None:
                count = self._counts.get(topic) or self.topics()[topic]
                partition = partition_for(key, count) if key is not None else next(self._turns[topic]) % count
            routed[topic, partition].append((key, value, timestamp, headers))
        return routed

    def _maintain(self) -> None:
        while not self._closing.wait(MAINTAIN_SECONDS):
            try:
                self._log.maintain()
            except StreamsError as error:
                # Nothing is lost by cleaning later; the next append or read meets the same fault and says so.
                log.warning("retention and compaction are put off: %s", error)

    def metrics(self) -> dict[str, object]:
        return {}

    def close(self) -> None:
        self._closing.set()
        if self._maintenance.ident is not None:
            self._maintenance.join()
        self._group.close()
        for partition in self._partitions.values():
            partition.close()


class _OutboxRows:
    """What the outbox's store of a task holds."""

    def __init__(self, backend: Backend) -> None:
        self.producer: str | None = None
        self.ids: dict[str, str] = {}
        self.output_ids: dict[str, str] = {}
        self.sequences: dict[Place, int] = {}
        self.repairs: dict[Place, str] = {}
        self.witnesses: dict[Place, tuple[int, int]] = {}
        self.pending: list[tuple[bytes, Place, int, bytes]] = []
        for key, row in backend.scan(OUTBOX, b"", None):
            kind, name = key.split(b"\0", 1)
            if key == _PRODUCER:
                self.producer = row.decode()
            elif kind == b"topic":
                self.ids[name.decode()] = row.decode()
            elif kind == b"output":
                self.output_ids[name.decode()] = row.decode()
            else:
                topic, partition, *rest = name.split(b"\0")
                place = topic.decode(), int(partition)
                if kind == b"sequence":
                    self.sequences[place] = int(row)
                elif kind == b"repair":
                    self.repairs[place] = row.decode()
                elif kind == b"witness":
                    at, checksum = row.split()
                    self.witnesses[place] = int(at), int(checksum)
                else:
                    self.pending.append((key, place, int(rest[0]), row))


def _checksum(record: RawRecord) -> int:
    return crc32(_encode(record[:4]))


def _key(kind: bytes, place: Place) -> bytes:
    return b"%s\0%s\0%d" % (kind, place[0].encode(), place[1])


def member_name() -> str:
    """A name for this process among an application's workers; sorted by start, so that newcomers come last."""
    return f"{time.time_ns():020d}-{os.getpid()}"
