"""Records out of Kafka, partition by partition: what a worker's tasks read, and its global tables. It owns the consumer
that fetches them, what waits between it and the tasks, and what a partition that cannot be read is told.

Only what is committed is read. The client hands over the records of all partitions mixed; each partition's wait in a
list of their own, and one that runs over is paused until it is low again, so that a task which waits for one of its
inputs does not gather the other.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from headwater.errors import StreamsError
from headwater.streams.connection import Place
from headwater.streams.kafka.client_log import client_log
from headwater.streams.kafka.cluster import kafka_fault
from headwater.streams.kafka.settings import for_lone_consumers
from headwater.streams.queues import RawRecord

__all__ = ["FETCHING", "Reader", "read_errors"]

log = logging.getLogger("headwater")

# How many records are taken from the client at once, and between how many a partition is paused and goes on.
AT_ONCE = 10_000
HIGH, LOW = 40_000, 10_000
# Measured: with the first two at librdkafka's defaults `consume` was five times slower. The third is how long a broker
# holds back the news that there is nothing more, for which a task with several inputs may have to wait.
FETCHING: Mapping[str, Any] = {
    "queued.min.messages": 200_000, "fetch.queue.backoff.ms": 5, "fetch.wait.max.ms": 100
}  # fmt: skip

_GONE = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.UNKNOWN_TOPIC_ID,
    KafkaError.INCONSISTENT_TOPIC_ID,
}
_DELETED = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}
# The client connects again by itself.
_AWAY = {KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE, KafkaError._TIMED_OUT}


def read_errors(message: Any) -> StreamsError | None:
    """What the error that came instead of a record means; None if nothing has to be done about it."""
    error = message.error()
    place = f"{message.topic()}-{message.partition()}"
    if error.code() in _GONE:
        return StreamsError(
            f"{place} is no longer there: the topic was deleted while it was read. Create it again and reset the "
            "application (headwater reset), or take it out of the topology."
        )
    if error.code() in _DELETED:
        return StreamsError(
            f"{place}@{message.offset()} is no longer there: retention has deleted records that were not processed; "
            "raise it (retention.ms, retention.bytes of the topic), or reset the application's offsets."
        )
    if error.code() in _AWAY:
        log.debug("%s: %s", place, error.str())
        return None
    return kafka_fault(f"{place} cannot be read", error)


class Reader:
    """The records of the partitions it is given, each from an offset on."""

    def __init__(self, settings: Mapping[str, Any], app_id: str) -> None:
        self._waiting: dict[Place, list[RawRecord]] = {}
        # The offset at which each was found to end, until more comes.
        self._ends: dict[Place, int] = {}
        self._paused: set[Place] = set()
        # What is to be said of those whose next record has been deleted. Others may have processed it, and then this
        # worker has lost a task and will hear of it soon.
        self.cut: dict[Place, StreamsError] = {}
        self._consumer = Consumer(
            {
                **FETCHING,
                **for_lone_consumers(settings),
                "group.id": f"{app_id}-reader",
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
            },
            logger=client_log,
        )

    def start(self, place: Place, offset: int) -> None:
        """Read a partition from an offset on."""
        self._waiting[place] = []
        self._ends.pop(place, None)
        self._consumer.incremental_assign([TopicPartition(*place, offset)])

    def stop(self, places: Iterable[Place]) -> None:
        """Read partitions no longer."""
        known = [place for place in places if self._waiting.pop(place, None) is not None]
        self._paused -= set(known)
        for place in known:
            self.cut.pop(place, None)
        if known:
            self._consumer.incremental_unassign([TopicPartition(*place) for place in known])

    def fill(self) -> bool:
        """Take in what has arrived; whether anything had."""
        messages = self._consumer.consume(AT_ONCE, 0) if self._waiting else []
        waiting = self._waiting
        # The client's types allow for messages without a place, which it never hands over.
        message: Any
        for message in messages:
            if message.error() is not None:
                self._hear(message)
                continue
            records = waiting.get((message.topic(), message.partition()))
            if records is not None:
                headers = message.headers()
                records.append(
                    (
                        message.key(),
                        message.value(),
                        message.timestamp()[1],
                        () if headers is None else tuple(headers),
                        message.offset(),
                    )
                )
        self._regulate()
        return bool(messages)

    def _hear(self, message: Any) -> None:
        if message.error().code() == KafkaError._PARTITION_EOF:
            self._ends[message.topic(), message.partition()] = message.offset()
            return
        fault = read_errors(message)
        place = message.topic(), message.partition()
        if fault is not None and message.error().code() not in _DELETED:
            raise fault
        if fault is not None and place in self._waiting:
            self.cut[place] = fault

    def _regulate(self) -> None:
        full = [place for place, records in self._waiting.items() if len(records) > HIGH and place not in self._paused]
        low = [place for place in self._paused if len(self._waiting[place]) < LOW]
        if full:
            self._consumer.pause([TopicPartition(*place) for place in full])
        if low:
            self._consumer.resume([TopicPartition(*place) for place in low])
        self._paused = (self._paused | set(full)) - set(low)

    def read(self, place: Place, limit: int) -> list[RawRecord]:
        """The next records of a partition, as far as they have arrived."""
        records = self._waiting[place]
        if len(records) <= limit:
            self._waiting[place] = []
            return records
        self._waiting[place] = records[limit:]
        return records[:limit]

    def end(self, place: Place) -> int:
        """The offset at which a partition was last found to end, -1 before; what waits lies before it."""
        return self._ends.get(place, -1)

    def caught_up(self, place: Place, position: int) -> bool:
        """Whether a partition that was read up to a position had no more records when Kafka was last asked."""
        if self._waiting[place]:
            return False
        return self.end(place) >= position or 0 <= self._high(place) <= position

    def _high(self, place: Place) -> int:
        """The offset after the last record, as of the last fetch; beside records there may be ends of transactions."""
        _, high = self._consumer.get_watermark_offsets(TopicPartition(*place), cached=True)
        return int(high)

    def behind(self, place: Place, position: int) -> int:
        """About how many records lie between a position and the end."""
        return 0 if self.caught_up(place, position) else max(0, self._high(place) - position)

    def close(self) -> None:
        """Let go of the cluster."""
        self._consumer.close()
