"""The embedded log as a worker's connection: records are read from its partitions, and commits are exactly once.

A task's commit goes through its own database, step by step:

1. the input read so far is made durable;
2. one write: rows, operator memory, offsets, and the encoded outputs with their sequence numbers (the outbox);
3. each outbox entry is appended to its partition, under (application/task, sequence);
4. the outputs are made durable;
5. the outbox is forgotten, with the next commit's write or when the task is given up.

A crash before 2 has changed nothing. After 2, the task's next owner finds the outbox and goes on with 3 before it reads
anything; the log drops entries it already has. So nothing is lost or doubled, whatever the moment.

The outbox's store also keeps the last sequence of each output partition, and the id of each topic an offset was
committed of: a topic that was deleted and made anew is another one.

At least once skips the outbox: outputs are appended as they come, then rows and offsets are written; a crash in
between repeats the outputs.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from headwater.dsl.partitioner import partition_for
from headwater.dsl.records import Headers
from headwater.errors import StreamsError, TopologyError
from headwater.state.backend import Backend
from headwater.state.log import Group, Log, Membership, OutOfRange, Partition
from headwater.state.rocks import RocksBackend
from headwater.streams.connection import GiveUp, Place, Standby, TaskCommit
from headwater.streams.context import Output
from headwater.streams.identity import Identity
from headwater.streams.log_record import IDENTITY, LogRecord, is_another
from headwater.streams.plan import Plan
from headwater.streams.queues import RawRecord
from headwater.streams.task import TaskSpec

__all__ = ["OUTBOX", "RESETTING", "LogConnection", "member_name"]

log = logging.getLogger("headwater")

OUTBOX = "|outbox"
# The note of a member that is no worker, but makes the application begin anew.
RESETTING = "reset"

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

    def __init__(
        self,
        embedded: Log,
        app_id: str,
        member: str,
        directory: Path,
        *,
        renamed: Mapping[str, str | None] | None = None,
        exactly_once: bool = True,
        at: Callable[[str], Any] = lambda point: None,
    ) -> None:
        self._log = embedded
        self._app_id = app_id
        self._exactly_once = exactly_once
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
        self._internal: set[str] = set()
        self._purged: dict[Place, int] = {}
        # Where results were sent to since the last commit, at least once.
        self._sent: set[Place] = set()
        self._closing = threading.Event()
        self._maintenance = threading.Thread(target=self._maintain, name="headwater-log-maintenance", daemon=True)
        self._name = member
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
        self._member = self._group.join(self._name, note)
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
        there = self._partition(topic, partition)
        known = self._ids.get(task_id, {}).get(topic)
        if committed is not None and known not in (None, self._id(topic)):
            log.warning("%s has been deleted and made anew: its records are read from where reset= says", topic)
            committed = None
        if committed is not None and there.start <= committed <= there.end:
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

    def _id(self, topic: str) -> str:
        """What tells a topic from another one that had its name before."""
        found = self._topic_ids.get(topic)
        if found is None:
            found = self._topic_ids[topic] = self._log.topic(topic).id
        return found

    def read(self, topic: str, partition: int, offset: int, limit: int) -> list[RawRecord]:
        try:
            return self._partition(topic, partition).read(offset, max_records=limit)
        except OutOfRange as gone:
            raise StreamsError(
                f"{topic}-{partition}@{offset} is no longer there (the log starts at {gone.start}): retention has "
                "deleted records that were not processed; raise it, or reset the application's offsets"
            ) from gone

    def caught_up(self, topic: str, partition: int) -> bool:
        return True

    def behind(self, topic: str, partition: int, position: int) -> int:
        return self._partition(topic, partition).end - position

    def at_end(self, positions: Mapping[Place, int]) -> bool:
        return all(self.behind(*place, position) <= 0 for place, position in positions.items())

    # ---- who runs what -----------------------------------------------------------------------------------------

    def largest(self, topic: str) -> int | None:
        return None

    def prepare(self, plan: Plan, inputs: Mapping[str, Sequence[Place]]) -> None:
        """Nothing: the topics are all it takes."""

    def poll(self, give_up: GiveUp) -> bool:
        """Nothing: tasks are dealt out by `assigned`, and let go when another worker waits for them."""
        return False

    def assigned(self, tasks: Sequence[str]) -> list[str]:
        """Every worker computes the same: the sorted tasks are dealt out to the sorted live workers."""
        members = [member.name for member in self._group.members()]
        mine = members.index(self._name)
        return list(tasks[mine :: len(members)])

    def open(self, spec: TaskSpec, path: Path) -> RocksBackend | None:
        if not self._group.acquire(spec.task_id):
            return None
        backend: RocksBackend | None = None
        try:
            backend = RocksBackend(path, [*spec.backend_stores(), OUTBOX], sync=True, others=True)
            self.recover(spec.task_id, backend)
        except BaseException:
            if backend is not None:
                backend.close()
            self._release(spec.task_id)
            raise
        return backend

    def shut(self, task_id: str, backend: RocksBackend) -> None:
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

    # ---- commits -----------------------------------------------------------------------------------------------

    def recover(self, task_id: str, backend: Backend) -> None:
        """Append what an earlier owner's commit has left in the outbox."""
        sequences: dict[Place, int] = {}
        pending: list[tuple[bytes, Place, int, bytes]] = []
        ids = self._ids[task_id] = {}
        for key, row in backend.scan(OUTBOX, b"", None):
            kind, name = key.split(b"\0", 1)
            if kind == b"topic":
                ids[name.decode()] = row.decode()
                continue
            topic, partition, *rest = name.split(b"\0")
            place = topic.decode(), int(partition)
            if kind == b"sequence":
                sequences[place] = int(row)
            else:
                pending.append((key, place, int(rest[0]), row))
        self._sequences[task_id] = sequences
        if pending:
            self._at("before-replay")
            for _, place, sequence, row in pending:
                self._append(task_id, place, sequence, _decode(row))
            for place in {place for _, place, _, _ in pending}:
                self._partition(*place).sync()
            self._at("after-replay")
        self._forgotten[task_id] = [key for key, *_ in pending]

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
        for place, at in reached.items():
            if place[0] in self._internal and at - self._purged.get(place, 0) >= PURGE:
                self._partition(*place).delete_before(at)
                self._purged[place] = at

    def _commit_once(self, commits: Sequence[TaskCommit]) -> None:
        appends: list[tuple[str, Place, int, list[Any]]] = []
        done: dict[str, list[bytes]] = {}
        for commit in commits:
            outputs = self._route(commit.changes.outputs)
            batch = commit.changes.batch()
            own: dict[bytes, bytes | None] = dict.fromkeys(self._forgotten.pop(commit.task_id, ()))
            own |= self._new_ids(commit)
            sequences, keys = self._sequences[commit.task_id], []
            for place, records in outputs.items():
                if place not in sequences:
                    # Never written from this database: go on after an earlier one, which was deleted or reset, or the
                    # log would take these for its outputs and drop them.
                    sequences[place] = self._partition(*place).last_sequence(self._producer(commit.task_id)) or 0
                sequence = sequences[place] = sequences[place] + 1
                name = b"%s\0%d" % (place[0].encode(), place[1])
                keys.append(b"out\0%s\0%d" % (name, sequence))
                own[keys[-1]] = _encode(records)
                own[b"sequence\0" + name] = b"%d" % sequence
                appends.append((commit.task_id, place, sequence, records))
            if own:
                batch[OUTBOX] = own
            self._at("before-write")
            if batch:
                commit.backend.write(batch)
            self._at("after-write")
            done[commit.task_id] = keys
        for append in appends:
            self._append(*append)
        self._at("before-sync")
        for place in {place for _, place, _, _ in appends}:
            self._partition(*place).sync()
        self._at("after-sync")
        # Only now: an outbox that is forgotten before its outputs are durable is a loss.
        self._forgotten |= done

    def send(self, task_id: str, outputs: Sequence[Output]) -> None:
        for place, records in self._route(outputs).items():
            self._at("before-append")
            self._partition(*place).append(records)
            self._at("after-append")
            self._sent.add(place)

    def _commit_again(self, commits: Sequence[TaskCommit]) -> None:
        for commit in commits:
            self.send(commit.task_id, commit.changes.outputs)
        self._at("before-sync")
        for place in self._sent:
            self._partition(*place).sync()
        self._sent.clear()
        self._at("after-sync")
        for commit in commits:
            self._at("before-write")
            batch = commit.changes.batch()
            if ids := self._new_ids(commit):
                batch[OUTBOX] = ids
            if batch:
                commit.backend.write(batch)
            self._at("after-write")

    def _new_ids(self, commit: TaskCommit) -> dict[bytes, bytes | None]:
        """Rows that say of which topics the offsets in this commit are, as far as they are not there yet."""
        known = self._ids[commit.task_id]
        new = {topic: self._id(topic) for topic, _ in commit.changes.offsets if known.get(topic) != self._id(topic)}
        known.update(new)
        return {b"topic\0" + topic.encode(): topic_id.encode() for topic, topic_id in new.items()}

    def _append(self, task_id: str, place: Place, sequence: int, records: list[Any]) -> None:
        self._at("before-append")
        self._partition(*place).append(records, producer=self._producer(task_id), sequence=sequence)
        self._at("after-append")

    def _producer(self, task_id: str) -> str:
        return f"{self._app_id}/{task_id}"

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


def member_name() -> str:
    """A name for this process among an application's workers; sorted by start, so that newcomers come last."""
    return f"{time.time_ns():020d}-{os.getpid()}"
