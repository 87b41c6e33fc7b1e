"""The producer of a Kafka cluster. It owns the choice of the partition and what is told of records that could not be
delivered; batches, retries and their order are librdkafka's, which delivers each record once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import Producer as Client

from headwater.dsl.partitioner import partition_for
from headwater.errors import StreamsError
from headwater.streams.broker import DEFAULT_BROKER
from headwater.streams.kafka.questions import ANSWER, ATTEMPT, UNKNOWN, KafkaQuestions, remedy
from headwater.streams.producer import Producer, checked_batching, checked_record

__all__ = ["KafkaProducer"]

# A topic may get more partitions while records are sent to it: how long that may go unnoticed.
_REFRESH_SECONDS = 10.0


class _Counted:
    """How many partitions a topic has, since when that is known, and whose turn it is among them."""

    __slots__ = ("partitions", "seen", "turn")

    def __init__(self, partitions: int, seen: float, turn: int) -> None:
        self.partitions, self.seen, self.turn = partitions, seen, turn


class _Lost:
    """Partitions that records could not be delivered to: why, and how many. It does not hold the client."""

    def __init__(self) -> None:
        self.places: dict[tuple[str, int], tuple[KafkaError, int]] = {}

    def note(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            place = (str(message.topic()), message.partition() or 0)
            first, count = self.places.get(place, (error, 0))
            self.places[place] = (first, count + 1)


class KafkaProducer(Producer):
    """What `Producer` is for a `kafka://` address. Every record is acknowledged by all in-sync replicas."""

    def __init__(
        self,
        broker: str = DEFAULT_BROKER,
        *,
        linger: timedelta = timedelta(milliseconds=5),
        batch_bytes: int = 256 << 10,
        sync: bool = False,
        kafka: Mapping[str, str] | None = None,
    ) -> None:
        checked_batching(linger, batch_bytes)
        self._questions = KafkaQuestions(broker, kafka)
        # With a linger of zero, send() waits for each record: nothing is gained by letting it lie.
        self._at_once = linger == timedelta(0)
        self._lost = _Lost()
        self._client = self._questions.client(
            Client,
            {"linger.ms": linger / timedelta(milliseconds=1), "batch.size": batch_bytes},
            # Only what fails needs a callback.
            {"enable.idempotence": True, "delivery.report.only.error": True, "on_delivery": self._lost.note},
            tell=True,
        )
        self._counted: dict[str, _Counted] = {}
        # Guards the topics, and each partition's turn.
        self._choosing = threading.Lock()
        self._closed = False

    def send(
        self,
        topic: str,
        *,
        key: bytes | str | None = None,
        value: bytes | str | None = None,
        timestamp: int | None = None,
        headers: Iterable[tuple[str, bytes | str | None]] = (),
        partition: int | None = None,
    ) -> None:
        """Take a record for a topic, as Producer.send does; 1970-01-01T00:00:00.000 is written a millisecond later."""
        record = checked_record(topic, key, value, timestamp, headers)
        if self._closed:
            raise StreamsError("The producer is closed: make another to send more.")
        self._client.poll(0)
        self._tell_of_losses()
        number = self._choose(topic, record[0], partition)
        self._produce(topic, number, record)
        if self._at_once:
            self.flush()

    def _choose(self, name: str, key: bytes | None, number: int | None) -> int:
        with self._choosing:
            topic = self._count(name, None)
            if number is None and key is not None:
                return partition_for(key, topic.partitions)
            if number is None:
                number = topic.turn % topic.partitions
                topic.turn = number + 1
            elif number >= topic.partitions:
                topic = self._count(name, number)
            if not 0 <= number < topic.partitions:
                raise self._questions.no_partition(name, topic.partitions, number)
            return number

    def _count(self, name: str, asked: int | None) -> _Counted:
        """What is known of a topic; asked anew now and then, and before a partition is said not to be there."""
        now = time.monotonic()
        topic = self._counted.get(name)
        if topic is None or asked is not None or now - topic.seen > _REFRESH_SECONDS:
            count = self._questions.partitions(name)
            topic = self._counted[name] = _Counted(count, now, topic.turn if topic else 0)
        return topic

    def _produce(self, topic: str, partition: int, record: tuple[Any, ...]) -> None:
        key, value, timestamp, headers = record
        deadline = time.monotonic() + ANSWER
        while True:
            try:
                # To the client, a timestamp of 0 means now.
                self._client.produce(
                    topic, value, key, partition, timestamp=timestamp or 1, headers=list(headers) or None
                )
                return
            except BufferError:
                # The queue is full: wait until some of it has been delivered, or has failed.
                self._client.poll(0.1)
            except KafkaException as error:
                fault = error.args[0]
                if fault.code() not in UNKNOWN or time.monotonic() > deadline:
                    raise self._questions.fault(f"take a record for {topic}-{partition}", fault) from error
                # The brokers have it, as we have asked; the client has not heard of it yet.
                what = f"describe the topic {topic!r}"
                self._questions.ask(what, lambda: self._client.list_topics(topic, timeout=ATTEMPT))
                time.sleep(0.01)

    def flush(self) -> None:
        """Wait until all that was sent so far is delivered; raise if some of it could not be."""
        self._client.flush()
        self._tell_of_losses()

    def _tell_of_losses(self) -> None:
        if not self._lost.places:
            return
        lost, self._lost.places = self._lost.places, {}
        count = sum(number for _, number in lost.values())
        (topic, number), (error, _) = next(iter(lost.items()))
        records = "1 record is" if count == 1 else f"{count:,} records are"
        places = f"{topic}-{number}" if len(lost) == 1 else f"{topic}-{number} and {len(lost) - 1} other partitions"
        raise StreamsError(
            f"{records} lost, sent to {places} and not appended: {self._questions.where} says {error.str()}: "
            f"{remedy(error)}."
        )

    def close(self) -> None:
        """Wait until all that was sent so far is delivered; a second time does nothing."""
        if not self._closed:
            self._closed = True
            self.flush()
