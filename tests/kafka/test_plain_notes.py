"""Offsets committed with their notes as they are, to the byte, and the faults that a client would raise."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from headwater.streams.kafka import plain_notes
from headwater.streams.kafka.plain_notes import commit_offsets, send_offsets
from tests.kafka.broker import PATIENCE, Broker
from tests.kafka.reading import records

TOPIC, GROUP = "noted", "noting"
# Of lengths at which a byte more or less would show, and one that is not ASCII.
NOTES = ["", "AgAAAAAAAAEC", "x" * 23, "y" * 24, "z" * 25, "größe" * 60]


@pytest.fixture(scope="module")
def noted(kafka: Broker) -> Broker:
    kafka.create(TOPIC, len(NOTES))
    return kafka


@pytest.fixture
def consumer(noted: Broker) -> Iterator[Consumer]:
    consumer = Consumer({"bootstrap.servers": noted.bootstrap, "group.id": GROUP, "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0)])
    yield consumer
    consumer.close()


def begun(kafka: Broker) -> Producer:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "noting"})
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    return producer


def offsets(at: int) -> list[TopicPartition]:
    return [TopicPartition(TOPIC, number, at, note) for number, note in enumerate(NOTES)]


def kept(kafka: Broker, at: int) -> dict[int, bytes]:
    """The notes with an offset, by partition, as they lie in the brokers' own topic.

    A key there is version (2), group, topic, partition (4); a value version (2), offset (8), epoch (4), note. Texts
    have their length (2) in front in keys, and in values their length + 1 as a varint.
    """
    name = len(GROUP).to_bytes(2) + GROUP.encode() + len(TOPIC).to_bytes(2) + TOPIC.encode()
    found = {}
    for message in records(kafka, "__consumer_offsets"):
        key, value = message.key(), message.value()
        if value is not None and key[2:-4] == name and int.from_bytes(value[2:10]) == at:
            assert value[:2] == b"\0\4", "the brokers write offsets in another way: teach this test"
            length, start = (value[14], 15) if value[14] < 0x80 else ((value[14] & 0x7F) | value[15] << 7, 16)
            found[int.from_bytes(key[-4:])] = value[start : start + length - 1]
    return found


EXACT = {number: note.encode() for number, note in enumerate(NOTES)}


def test_a_transaction_commits_notes_as_they_are(noted, consumer):
    producer = begun(noted)
    send_offsets(producer, offsets(3), consumer.consumer_group_metadata(), PATIENCE)
    producer.commit_transaction(PATIENCE)
    assert kept(noted, 3) == EXACT
    assert [at.offset for at in consumer.committed(offsets(0), timeout=PATIENCE)] == [3] * len(NOTES)


def test_a_consumer_commits_notes_as_they_are(noted, consumer):
    commit_offsets(consumer, offsets(4))
    assert kept(noted, 4) == EXACT


def test_the_client_itself_would_write_a_byte_more(noted, consumer):
    """When this fails, plain_notes.py has nothing more to do: take it out."""
    consumer.commit(offsets=offsets(5), asynchronous=False)
    assert kept(noted, 5) == {number: note + b"\0" for number, note in EXACT.items()}


def test_a_release_that_is_not_known_writes_its_own_way(noted, consumer, monkeypatch):
    monkeypatch.setattr(plain_notes, "_library", lambda: None)
    commit_offsets(consumer, offsets(6))
    producer = begun(noted)
    send_offsets(producer, offsets(7), consumer.consumer_group_metadata(), PATIENCE)
    producer.commit_transaction(PATIENCE)
    assert [at.offset for at in consumer.committed(offsets(0), timeout=PATIENCE)] == [7] * len(NOTES)


def test_the_release_in_use_is_known():
    assert plain_notes._library() is not None


def raised(call, *arguments):
    with pytest.raises(KafkaException) as caught:
        call(*arguments)
    error = caught.value.args[0]
    return error.code(), error.str(), error.fatal(), error.retriable(), error.txn_requires_abort()


def test_faults_are_those_that_the_client_raises(noted, consumer):
    group = consumer.consumer_group_metadata()
    idle = Producer({"bootstrap.servers": noted.bootstrap, "transactional.id": "idle"})
    idle.init_transactions(PATIENCE)
    assert raised(send_offsets, idle, offsets(8), group, 5.0) == raised(
        idle.send_offsets_to_transaction, offsets(8), group, 5.0
    )
    fenced = []
    for send in (lambda producer, *rest: producer.send_offsets_to_transaction(*rest), send_offsets):
        producer = begun(noted)
        begun(noted).abort_transaction(PATIENCE)
        fenced.append(raised(send, producer, offsets(8), group, 20.0))
    assert fenced[0] == fenced[1]
    assert fenced[1][2], "a producer that was replaced is lost for good"


def test_an_offset_that_the_brokers_refuse_is_a_fault(consumer):
    with pytest.raises(KafkaException) as caught:
        commit_offsets(consumer, [TopicPartition("there-is-no-such-topic", 0, 1, "note")])
    assert "UNKNOWN_TOPIC_OR_PART" in caught.value.args[0].name()
