"""A worker's seat in its application's consumer group: which tasks are its own. It owns membership, the moments at
which partitions come and go, and what is said when the group turns the worker away; records are read by reader.py.

The seat subscribes to one topic of each sub-topology, its widest: whoever has a partition of it has the task, and reads
the task's other inputs too. So a task is never torn, whatever the partition counts, and the assignor may spread tasks
as evenly as it can. Its own partitions are paused: it never fetches a record.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeAlias

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition

from headwater.errors import StreamsError
from headwater.streams.connection import Passing, Place
from headwater.streams.kafka.client_log import client_log
from headwater.streams.kafka.cluster import kafka_fault
from headwater.streams.kafka.offset_notes import note_of
from headwater.streams.kafka.plain_notes import commit_offsets
from headwater.streams.kafka.settings import for_consumers

__all__ = ["Seat"]

log = logging.getLogger("headwater")

# What an old broker, or one where the protocol is turned off, says to a member that speaks KIP-848's.
_TOO_NEW = {KafkaError.UNSUPPORTED_VERSION, KafkaError._UNSUPPORTED_FEATURE}
_TAKEN = {
    KafkaError.UNRELEASED_INSTANCE_ID: "its last member with this id was killed and its session is not over yet",
    KafkaError.FENCED_INSTANCE_ID: "another worker has taken it",
}
_LATE = KafkaError._MAX_POLL_EXCEEDED
_CLASSIC = ("session.timeout.ms", "heartbeat.interval.ms")
# Said of partitions that are only watched, and of brokers that are away for now: the clients connect again by
# themselves.
_HARMLESS = {
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    KafkaError._AUTO_OFFSET_RESET,
    KafkaError.OFFSET_OUT_OF_RANGE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._PARTITION_EOF,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.NOT_COORDINATOR,
}
# How long, in seconds, Kafka is asked for offsets at a time, and for how many tasks at once.
ASK_SECONDS, ASKERS = 2.0, 4
# The offset of each input that has one, and the note beside it.
Offsets: TypeAlias = dict[Place, tuple[int, str]]
# What Kafka says instead of offsets when it will tell them soon, or when this member has news to hear first.
_LATER = {
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.NOT_COORDINATOR,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError.FENCED_MEMBER_EPOCH,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.ILLEGAL_GENERATION,
}
# Called with partitions that must go: with True they may still be committed.
Leaving = Callable[[Sequence[Place], bool], None]


class Seat:
    """One member of a consumer group, and the partitions it holds."""

    def __init__(
        self, settings: Mapping[str, Any], group: str, topics: Iterable[str], instance_id: str | None = None
    ) -> None:
        self._settings = {
            "group.protocol": "consumer",
            "group.remote.assignor": "uniform",
            **for_consumers(settings),
            **({} if instance_id is None else {"group.instance.id": instance_id}),
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            # Offsets of a transaction that is not over are waited for, never passed by.
            "isolation.level": "read_committed",
        }
        # How long a member may be silent is the brokers' to say in KIP-848's protocol, and its client refuses these.
        self._classic = {name: self._settings.pop(name) for name in _CLASSIC if name in self._settings}
        if str(self._settings["group.protocol"]).lower() == "classic":
            self._be_classic()
        elif self._classic:
            log.warning(
                "%s: for the classic protocol of groups only (--set group.protocol=classic); in KIP-848's, "
                "group.consumer.session.timeout.ms of the brokers holds",
                ", ".join(self._classic),
            )
        self._topics = sorted(topics)
        self._leaving: Leaving = lambda places, commit: None
        self._fault: BaseException | None = None
        self._changed = False
        self.held: set[Place] = set()
        # Whether the group has ever said what this member has; it may have nothing.
        self.heard = False
        self._asking = ThreadPoolExecutor(ASKERS, "headwater-offsets")
        self._asked: dict[tuple[Place, ...], Future[Offsets | None]] = {}
        self._consumer = self._sit()

    @property
    def group(self) -> str:
        """The group's name."""
        return str(self._settings["group.id"])

    def _sit(self) -> Consumer:
        try:
            consumer = Consumer(self._settings, logger=client_log)
            # An application without inputs has no tasks to share.
            if self._topics:
                consumer.subscribe(
                    self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
                )
        except KafkaException as error:
            raise StreamsError(f"Kafka's client cannot join the group {self.group!r}: {error.args[0].str()}") from error
        return consumer

    # ---- partitions come and go, all of it inside `poll` ---------------------------------------------------------

    def poll(self, leaving: Leaving) -> bool:
        """Hear what the group has decided; whether partitions have moved. Those that must go are left in it."""
        self._leaving, self._changed = leaving, False
        while (message := self._consumer.poll(0)) is not None or self._fault is not None:
            if self._fault is not None:
                fault, self._fault = self._fault, None
                raise fault
            assert message is not None
            error = message.error()
            if error is not None:
                self._hear(error)
        return self._changed

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.incremental_assign([TopicPartition(p.topic, p.partition, OFFSET_END) for p in partitions])
        consumer.pause(partitions)
        self.heard = True
        self.held |= {(p.topic, p.partition) for p in partitions}
        self._changed = self._changed or bool(partitions)

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._leave(partitions, True)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        log.warning(
            "the group %r has gone on without this worker, which was not heard of in time: what its tasks %s did since "
            "their last commit is done again elsewhere",
            self.group,
            ", ".join(f"{p.topic}-{p.partition}" for p in partitions),
        )
        self._leave(partitions, False)

    def _leave(self, partitions: list[TopicPartition], commit: bool) -> None:
        places = [(p.topic, p.partition) for p in partitions]
        self._changed = True
        try:
            self._leaving(places, commit)
        except BaseException as fault:
            # Not through the client, which would go on as if nothing had happened.
            self._fault = fault
        self.held -= set(places)
        # What was asked for when they were this member's says nothing once others have committed.
        self._asked = {wanted: answer for wanted, answer in self._asked.items() if not set(wanted) & set(places)}

    def _hear(self, error: KafkaError) -> None:
        code = _code(error)
        if code in _TAKEN:
            raise Passing(
                f"the group {self.group!r} does not take the instance id {self._settings.get('group.instance.id')!r} "
                f"now: {_TAKEN[code]}"
            )
        if code in _TOO_NEW and self._settings["group.protocol"] == "consumer":
            self._speak_classic()
        elif code == _LATE:
            log.warning(
                "a step has kept this worker for longer than max.poll.interval.ms, and the group %r has given its "
                "tasks to others: make it faster, or allow more (--set max.poll.interval.ms=…)",
                self.group,
            )
        elif error.fatal() or code not in _HARMLESS:
            raise kafka_fault(f"the group {self.group!r}", error)
        else:
            log.debug("the group %r: %s", self.group, error.str())

    def _speak_classic(self) -> None:
        log.warning("the brokers do not know the group protocol of KIP-848: the classic one is used")
        self._consumer.close()
        self._be_classic()
        self.held.clear()
        self._consumer = self._sit()

    def _be_classic(self) -> None:
        del self._settings["group.remote.assignor"]
        self._settings |= {
            **self._classic,
            "group.protocol": "classic",
            "partition.assignment.strategy": "cooperative-sticky",
        }

    # ---- offsets -------------------------------------------------------------------------------------------------

    def metadata(self) -> bytes:
        """What proves to the broker that this member is still in the group when its transaction commits offsets."""
        proof: bytes = self._consumer.consumer_group_metadata()
        return proof

    def committed(self, places: Sequence[Place]) -> Offsets | None:
        """The group's offsets of a task's inputs, with the note beside each; None while they are not known yet.

        They are asked for in a thread: while a transaction that has some of them is not over, Kafka does not tell them,
        and the worker's other tasks shall not wait for that.
        """
        if not places:
            return {}
        wanted = tuple(places)
        answer = self._asked.get(wanted)
        if answer is None:
            self._asked[wanted] = self._asking.submit(self._ask, wanted)
            return None
        if not answer.done():
            return None
        del self._asked[wanted]
        return answer.result()

    def forget(self, places: Sequence[Place]) -> None:
        """Answer no more what was asked of a task's inputs before now."""
        self._asked.pop(tuple(places), None)

    def _ask(self, places: Sequence[Place]) -> Offsets | None:
        try:
            found = self._consumer.committed([TopicPartition(*place) for place in places], timeout=ASK_SECONDS)
        except KafkaException as error:
            if error.args[0].code() in _LATER:
                return None
            raise kafka_fault(f"the group {self.group!r} does not tell its offsets", error.args[0]) from error
        for at in found:
            if at.error is not None:
                raise kafka_fault(f"the group {self.group!r} does not tell its offset of {at.topic}", at.error)
        return {(at.topic, at.partition): (at.offset, note_of(at)) for at in found if at.offset >= 0}

    def commit(self, offsets: Sequence[TopicPartition]) -> None:
        """Commit offsets without a transaction."""
        if not offsets:
            return
        try:
            commit_offsets(self._consumer, offsets)
        except KafkaException as error:
            raise kafka_fault(f"the group {self.group!r} does not take offsets", error.args[0]) from error

    def close(self) -> None:
        """Leave the group; all tasks have been given up."""
        self._leaving = lambda places, commit: None
        self._asking.shutdown(cancel_futures=True)
        self._consumer.close()


def _code(error: KafkaError) -> int:
    """An error's code; that of a fatal one is told in its text only."""
    if error.code() == KafkaError._FATAL:
        for code in (*_TAKEN, *_TOO_NEW):
            if KafkaError(code).str() in error.str():
                return code
    return error.code()
