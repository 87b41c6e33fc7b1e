"""What a topic holds, as another client reads it."""

import time
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, Message, TopicPartition
from confluent_kafka.admin import OffsetSpec

from tests.kafka.broker import PATIENCE, Broker


def records(kafka: Broker, topic: str, *, patient: bool = True) -> list[Message]:
    """The committed records of a topic, partition by partition.

    Transactions that are open there are waited for, unless told not to: a commit is answered before its end is marked.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": "reading",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            # The end of a partition is told by an answer that is empty.
            "fetch.wait.max.ms": 20,
        }
    )
    found: list[Message] = []
    try:
        for partition in consumer.list_topics(topic, timeout=PATIENCE).topics[topic].partitions:
            consumer.assign([TopicPartition(topic, partition, 0)])
            found += _up_to_the_end(consumer, TopicPartition(topic, partition), patient)
    finally:
        consumer.close()
    return found


def _up_to_the_end(consumer: Consumer, place: TopicPartition, patient: bool) -> Iterator[Message]:
    goal = None
    while True:
        # The end of the partition comes as a message, too; and again when a transaction that held it up is over.
        message: Any = consumer.poll(2 * PATIENCE)
        assert message is not None, f"{place.topic}-{place.partition} has no end: a transaction is open"
        if message.error() is None:
            yield message
            continue
        assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
        if goal is None:
            _, goal = consumer.get_watermark_offsets(place, cached=True)
        if not patient or message.offset() >= goal:
            return


def values(kafka: Broker, topic: str, *, patient: bool = True) -> list[bytes | None]:
    """The values of the committed records."""
    return [message.value() for message in records(kafka, topic, patient=patient)]


def end(kafka: Broker, topic: str, partition: int = 0, *, committed: bool) -> int:
    """The offset after the last record, or after the last one that no open transaction holds up."""
    admin: Any = kafka.admin()
    place = TopicPartition(topic, partition)
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    return int(admin.list_offsets({place: OffsetSpec.latest()}, isolation_level=level)[place].result().offset)


def settle(kafka: Broker, topic: str) -> None:
    """Wait until no transaction holds records of a topic up: a commit is answered before its end is marked there."""
    admin: Any = kafka.admin()
    latest = {
        TopicPartition(topic, partition): OffsetSpec.latest()
        for partition in admin.list_topics(topic, timeout=PATIENCE).topics[topic].partitions
    }

    def ends(level: IsolationLevel) -> list[int]:
        return [told.result().offset for told in admin.list_offsets(latest, isolation_level=level).values()]

    # Longer than brokers wait for the end of a transaction whose writer has died.
    deadline = time.monotonic() + 2 * PATIENCE
    while ends(IsolationLevel.READ_COMMITTED) != ends(IsolationLevel.READ_UNCOMMITTED):
        assert time.monotonic() < deadline, f"{topic}: a transaction is open"
        time.sleep(0.01)


def start(kafka: Broker, topic: str, partition: int = 0) -> int:
    """The offset of the first record that has not been deleted."""
    admin: Any = kafka.admin()
    place = TopicPartition(topic, partition)
    return int(admin.list_offsets({place: OffsetSpec.earliest()})[place].result().offset)
