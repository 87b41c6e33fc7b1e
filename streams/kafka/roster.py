"""How the workers of an application know of each other on Kafka: the topic `<application>-workers`, one partition,
compacted, in which each says under its id where it answers, which tasks it runs and which copies it keeps. It owns the
record, who counts as alive, whose word on a task is the last, and which workers keep a task's copies; who runs a task
is the consumer group's decision, and making the topic is not done here.

| key | value |
|---|---|
| the worker's id | an Announcement as JSON; nothing when it has left in order |

A worker says so every two seconds, and at once when something has changed. One that was killed says nothing more, and
is taken for dead after `live_seconds`; its last record goes when the topic's retention ends. A record that cannot be
read (another version's) is passed over. What goes wrong is logged, never raised: a worker that others cannot see still
works.

All read the same records in the same order, so all agree on whose a task is when two say they run it: his who began to
say so later. One that was stopped for a while, or cut off, reads that its task has moved before it reads its own next
word; until that comes back to it, it is not `in_touch`, and should not speak for its tasks.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from headwater.streams.kafka.client_log import client_log
from headwater.streams.kafka.settings import for_lone_consumers, for_producers

__all__ = ["TOPIC_SETTINGS", "Announcement", "Roster", "standbys_of", "workers_topic"]

log = logging.getLogger("headwater")

# How often, in seconds, a worker speaks up if nothing has changed, and how long it takes over its last word.
INTERVAL, FAREWELL = 2.0, 5.0
# How old its last word may be when it is in touch: no group gives a silent member's tasks away sooner, unless brokers
# were told to allow that.
TOUCH_SECONDS = 6.0
# Workers that were killed must go some day, and only segments that are closed are compacted: a newcomer reads them all.
TOPIC_SETTINGS: Mapping[str, str] = {
    "cleanup.policy": "compact,delete",
    "retention.ms": str(24 * 3600 * 1000),
    "segment.ms": str(10 * 60 * 1000),
    "delete.retention.ms": str(60 * 1000),
    "message.timestamp.type": "CreateTime",
}
_AT_ONCE = 500


class Announcement(msgspec.Struct, frozen=True):
    """What a worker says of itself; `standbys` are the tasks it keeps copies of, with how far each is behind, and
    `tasks_topic` is what tasks are shared out by, if that is a topic of its own.

    `life` tells one process from an earlier one of the same id, `sequence` counts what it has said; both are the
    roster's to fill in.
    """

    worker: str
    endpoint: str | None = None
    tasks: tuple[str, ...] = ()
    standbys: dict[str, int] = {}
    topology: str = ""
    host: str = ""
    pid: int = 0
    life: str = ""
    sequence: int = 0
    tasks_topic: str = ""

    def differs(self, other: Announcement) -> bool:
        """Whether it says anything new; a copy's lag, which always changes, is none."""
        return _news(self) != _news(other)


def _news(said: Announcement) -> tuple[object, ...]:
    return said.endpoint, said.tasks, said.standbys.keys(), said.topology, said.tasks_topic, said.host, said.pid


def workers_topic(app_id: str) -> str:
    """The name of an application's topic.

    >>> workers_topic("revenue")
    'revenue-workers'
    """
    return f"{app_id}-workers"


def standbys_of(task_id: str, owner: str | None, workers: Iterable[str], count: int) -> list[str]:
    """The workers, but for the owner, that keep a task's copies, the first choice first.

    Every worker computes the same, and one that comes or goes moves only the copies it gets or had (rendezvous hash).

    >>> standbys_of("0_1", "ann", ["ann", "bob", "cid", "dan"], 2)
    ['dan', 'cid']
    >>> standbys_of("0_1", "ann", ["ann", "bob", "dan"], 2)
    ['dan', 'bob']
    """

    def weight(worker: str) -> tuple[bytes, str]:
        return blake2b(f"{task_id}\0{worker}".encode(), digest_size=8).digest(), worker

    return sorted({*workers} - {owner}, key=weight, reverse=True)[:count]


class Roster:
    """One worker's view of all, and its own word among them.

    `announce` and `poll` belong to one thread and never wait; `live` may be called from any. Without `announce` it only
    listens: for that, `worker` may be left empty.
    """

    def __init__(
        self, settings: Mapping[str, Any], app_id: str, worker: str = "", *, live_seconds: float = 10.0
    ) -> None:
        self.topic = workers_topic(app_id)
        self.worker = worker
        # Whether all that was in the topic at the beginning has been read.
        self.known = False
        self._settings = dict(settings)
        self._live_seconds = live_seconds
        self._lock = threading.Lock()
        self._heard: dict[str, tuple[float, Announcement]] = {}
        # Where in the topic a worker began to say, without a break, that it runs a task.
        self._claims: dict[str, dict[str, int]] = {}
        self._life = secrets.token_hex(4)
        self._own: Announcement | None = None
        # When this worker said what it has not read in the topic yet, and when it said what it has read last.
        self._unread: dict[int, float] = {}
        self._touched_at: float | None = None
        self._said_at = 0.0
        self._faults: dict[str, str] = {}
        self._producer: Producer | None = None
        self._consumer = Consumer(
            {
                **for_lone_consumers(settings),
                "group.id": app_id,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_uncommitted",
            },
            logger=client_log,
        )
        self._consumer.assign([TopicPartition(self.topic, 0, OFFSET_BEGINNING)])

    # ---- what the others say -----------------------------------------------------------------------------------

    def poll(self) -> None:
        """Take in what others have said."""
        if self._producer is not None:
            self._producer.poll(0)
        try:
            messages = self._consumer.consume(_AT_ONCE, 0)
        except KafkaException as error:
            self._note("read", error.args[0])
            return
        for message in messages:
            fault = message.error()
            if fault is None:
                self._note("read", None)
                self._hear(message)
            elif fault.code() == KafkaError._PARTITION_EOF:
                self._note("read", None)
                self.known = True
            else:
                self._note("read", fault)

    def _hear(self, message: Message) -> None:
        worker, value, at = (message.key() or b"").decode(errors="replace"), message.value(), message.offset() or 0
        if value is None:
            with self._lock:
                self._heard.pop(worker, None)
                self._claims.pop(worker, None)
            return
        try:
            said = msgspec.json.decode(value, type=Announcement)
        except msgspec.DecodeError as error:
            log.warning("%s@%s: worker %r says what cannot be read (%s)", self.topic, at, worker, error)
            return
        heard = time.monotonic()
        if not self.known:
            # Said before we listened. Clocks differ, but there is nothing else to go by until its next word.
            heard -= max(0.0, time.time() - message.timestamp()[1] / 1000)
        with self._lock:
            if worker != self.worker:
                before = self._heard.get(worker)
                if before is not None and before[1].life != said.life:
                    # It has started anew, and what it ran before is not what it runs.
                    self._claims.pop(worker, None)
                self._heard[worker] = heard, said
            elif said.life == self._life:
                self._touched_at = self._unread.get(said.sequence, self._touched_at)
                self._unread = {number: when for number, when in self._unread.items() if number > said.sequence}
            else:
                return
            claims = self._claims.get(worker, {})
            self._claims[worker] = {task: claims.get(task, at) for task in said.tasks}

    def live(self) -> dict[str, Announcement]:
        """The workers heard of lately, this one included if it has announced itself."""
        since = time.monotonic() - self._live_seconds
        with self._lock:
            found = {worker: said for worker, (heard, said) in self._heard.items() if heard >= since}
            if self._own is not None:
                found[self.worker] = self._own
        return dict(sorted(found.items()))

    def owners(self) -> dict[str, str]:
        """The live worker that runs each task, as far as the topic says; of two, the one that began later."""
        live = self.live()
        with self._lock:
            claims = [
                (at, worker, task)
                for worker, tasks in self._claims.items()
                if worker in live
                for task, at in tasks.items()
            ]
        return {task: worker for _, worker, task in sorted(claims)}

    def in_touch(self) -> bool:
        """Whether a word that this worker has said lately is in the topic, and all that came before it was read."""
        touched_at = self._touched_at
        return touched_at is not None and time.monotonic() - touched_at < min(self._live_seconds, TOUCH_SECONDS)

    # ---- what this one says ------------------------------------------------------------------------------------

    def announce(self, announcement: Announcement) -> None:
        """Say so, if it is time to or if it is news."""
        before = self._own
        if before is not None and not before.differs(announcement) and time.monotonic() - self._said_at < INTERVAL:
            return
        sequence = 0 if before is None else before.sequence + 1
        own = msgspec.structs.replace(announcement, life=self._life, sequence=sequence)
        self._said_at = now = time.monotonic()
        with self._lock:
            self._own = own
            self._unread = {number: at for number, at in self._unread.items() if now - at < self._live_seconds}
            self._unread[sequence] = now
        self._say(msgspec.json.encode(own))

    def _say(self, value: bytes | None) -> None:
        try:
            if self._producer is None:
                self._producer = self._open_producer()
            self._producer.produce(self.topic, value, self.worker, partition=0, on_delivery=self._delivered)
            self._producer.poll(0)
        except BufferError:
            # Kafka has been away for long; what waits to be sent is outdated, and says so when it expires.
            return
        except KafkaException as error:
            self._note("write", error.args[0])

    def _open_producer(self) -> Producer:
        return Producer(
            {
                **for_producers(self._settings),
                "linger.ms": 0,
                # One after the other: a retry must not put an older word behind a younger.
                "max.in.flight.requests.per.connection": 1,
                # What is older says nothing any more.
                "message.timeout.ms": round(1000 * self._live_seconds),
            },
            logger=client_log,
        )

    def _delivered(self, fault: KafkaError | None, message: Message) -> None:
        self._note("write", fault)

    def _note(self, what: str, fault: KafkaError | None) -> None:
        """Log a fault when it begins, and its end."""
        text = None if fault is None else fault.str()
        if text == self._faults.get(what):
            return
        if text is None:
            del self._faults[what]
            log.info("topic %r can be %s again", self.topic, "read" if what == "read" else "written")
        else:
            self._faults[what] = text
            effect = "this worker does not see the others" if what == "read" else "others do not see this worker"
            log.warning("topic %r: %s; until that passes, %s", self.topic, text, effect)

    def leave(self) -> None:
        """Say good-bye, so that nobody counts on this worker any longer."""
        if self._own is None:
            return
        with self._lock:
            self._own = self._touched_at = None
            self._unread.clear()
        self._say(None)
        if self._producer is not None:
            self._producer.flush(FAREWELL)

    def close(self) -> None:
        """Stop to listen, without a word."""
        self._consumer.close()
