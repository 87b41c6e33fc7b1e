"""What a topic holds, as another client reads it."""

from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, Message, TopicPartition
from confluent_kafka.admin import OffsetSpec

from tests.kafka.broker import PATIENCE, Broker


def records(kafka: Broker, topic: str) -> list[Message]:
    """The committed records of a topic, partition by partition."""
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
            # The end of the partition comes as a message, too.
            while (message := consumer.poll(PATIENCE)) is not None and message.error() is None:
                found.append(message)
            assert message is not None, f"{topic}-{partition} has no end: a transaction is open"
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
    finally:
        consumer.close()
    return found


def values(kafka: Broker, topic: str) -> list[bytes | None]:
    """The values of the committed records."""
    return [message.value() for message in records(kafka, topic)]


def end(kafka: Broker, topic: str, partition: int = 0, *, committed: bool) -> int:
    """The offset after the last record, or after the last one that no open transaction holds up."""
    admin: Any = kafka.admin()
    place = TopicPartition(topic, partition)
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    return int(admin.list_offsets({place: OffsetSpec.latest()}, isolation_level=level)[place].result().offset)


def start(kafka: Broker, topic: str, partition: int = 0) -> int:
    """The offset of the first record that has not been deleted."""
    admin: Any = kafka.admin()
    place = TopicPartition(topic, partition)
    return int(admin.list_offsets({place: OffsetSpec.earliest()})[place].result().offset)
