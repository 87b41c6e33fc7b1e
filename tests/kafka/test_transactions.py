"""Moments of a commit that rarely happen, made to happen: the group's news are late, a transaction of another holds
offsets back, the client does not come back from a call, the brokers' answer to a commit is lost."""

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, Producer, TopicPartition

from headwater import Config, Int64, Str, StreamsBuilder, run
from headwater.streams.connection import Passing, Undone
from headwater.streams.kafka import writer as writing
from headwater.streams.kafka.cluster import Cluster
from headwater.streams.kafka.seat import Seat
from headwater.streams.kafka.writer import Writer
from tests.kafka.broker import PATIENCE, Broker
from tests.kafka.reading import records, values


def until(what: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (found := what()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def stay(places: Any, commit: bool) -> None:
    """What a worker without tasks does when partitions must go."""


@contextmanager
def seated(kafka: Broker, group: str, topic: str) -> Iterator[Seat]:
    seat = Seat({"bootstrap.servers": kafka.bootstrap}, group, [topic])
    try:
        yield seat
    finally:
        seat.close()


def held(seat: Seat, number: int) -> Callable[[], bool]:
    def look() -> bool:
        seat.poll(stay)
        return len(seat.held) == number

    return look


class Late(Seat):
    """A member that the group's news reach late: so often it shows what it was before."""

    def __init__(self, seat: Seat, before: bytes, times: int) -> None:
        self._seat, self._before, self.times = seat, before, times

    def metadata(self) -> bytes:
        self.times -= 1
        return self._before if self.times >= 0 else self._seat.metadata()


@pytest.fixture
def rebalanced(kafka: Broker) -> Iterator[tuple[Seat, bytes, str]]:
    """A member of a group that another has joined, what proved its membership before, and the topic they share."""
    name = uuid.uuid4().hex
    topic = kafka.create(name, 2)
    with seated(kafka, name, topic) as seat, ExitStack() as stack:
        until(held(seat, 2))
        before = seat.metadata()
        other = stack.enter_context(seated(kafka, name, topic))
        until(lambda: held(seat, 1)() and held(other, 1)())
        yield seat, before, topic


def offsets_of(topic: str, at: int) -> list[TopicPartition]:
    return [TopicPartition(topic, 0, at), TopicPartition(topic, 1, at)]


def test_a_commit_before_the_news_of_a_rebalance_goes_through(
    kafka: Broker, rebalanced: tuple[Seat, bytes, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "EPOCH_SECONDS", PATIENCE)
    seat, before, topic = rebalanced
    writer = Writer({"bootstrap.servers": kafka.bootstrap}, topic)
    late = Late(seat, before, times=2)
    assert writer.write([(topic, 0, b"k", b"v", 1, ())], offsets_of(topic, 7), late) == {(topic, 0): 1}
    assert late.times < 0
    assert values(kafka, topic) == [b"v"]
    found = until(lambda: seat.committed([(topic, 0), (topic, 1)]))
    assert {at for at, _ in found.values()} == {7}


def test_a_commit_of_a_member_that_the_group_has_left_behind_is_undone_and_the_next_goes_through(
    kafka: Broker, rebalanced: tuple[Seat, bytes, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "EPOCH_SECONDS", 0.2)
    seat, before, topic = rebalanced
    writer = Writer({"bootstrap.servers": kafka.bootstrap}, topic)
    with pytest.raises(Undone):
        writer.write([(topic, 0, b"k", b"lost", 1, ())], offsets_of(topic, 7), Late(seat, before, times=1_000_000))
    writer.write([(topic, 0, b"k", b"kept", 1, ())], offsets_of(topic, 8), seat)
    assert values(kafka, topic) == [b"kept"]


def test_a_client_that_does_not_come_back_is_given_up(kafka: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    name = uuid.uuid4().hex
    topic = kafka.create(name)
    writer = Writer({"bootstrap.servers": kafka.bootstrap}, topic)
    release = threading.Event()
    with seated(kafka, name, topic) as seat, monkeypatch.context() as stuck:
        until(held(seat, 1))
        stuck.setattr(writing, "OFFSETS_SECONDS", 0.2)
        stuck.setattr(writing, "send_offsets", lambda *given: release.wait(PATIENCE))
        with pytest.raises(Undone, match=rf"{topic}-0@7"):
            writer.write([(topic, 0, b"k", b"lost", 1, ())], [TopicPartition(topic, 0, 7)], seat)
        stuck.undo()
        writer.write([(topic, 0, b"k", b"kept", 1, ())], [TopicPartition(topic, 0, 8)], seat)
        release.set()
        assert until(lambda: seat.committed([(topic, 0)]))[topic, 0][0] == 8
    assert values(kafka, topic) == [b"kept"]


def test_offsets_in_an_open_transaction_are_waited_for_without_holding_anyone_up(kafka: Broker) -> None:
    name = uuid.uuid4().hex
    topic = kafka.create(name)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": name})
    producer.init_transactions(PATIENCE)
    with seated(kafka, name, topic) as seat:
        until(held(seat, 1))
        producer.begin_transaction()
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, 5)], seat.metadata(), PATIENCE)
        began, asked = time.monotonic(), 0
        while time.monotonic() - began < 3:
            assert seat.committed([(topic, 0)]) is None
            asked += 1
            time.sleep(0.01)
        # Kafka takes 2 s to say each time that it cannot tell them yet.
        assert asked > 10
        producer.commit_transaction(PATIENCE)
        assert until(lambda: seat.committed([(topic, 0)]))[topic, 0][0] == 5


def test_offsets_that_were_told_before_a_partition_left_are_asked_for_again(kafka: Broker) -> None:
    name = uuid.uuid4().hex
    topic = kafka.create(name)
    with seated(kafka, name, topic) as seat:
        until(held(seat, 1))
        seat.commit([TopicPartition(topic, 0, 5)])
        assert seat.committed([(topic, 0)]) is None
        time.sleep(1)
        # The answer is there; then the partition goes, and comes back after another has committed.
        seat._on_revoke(seat._consumer, [TopicPartition(topic, 0)])
        seat.commit([TopicPartition(topic, 0, 6)])
        assert until(lambda: seat.committed([(topic, 0)]))[topic, 0][0] == 6


def test_an_offset_that_no_broker_knows_is_not_taken_for_one(kafka: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was told for a moment after a broker had started again."""
    cluster = Cluster({"bootstrap.servers": kafka.bootstrap})
    unknown: Future[Any] = Future()
    unknown.set_result(SimpleNamespace(offset=OFFSET_INVALID))

    class Admin:
        def list_offsets(self, asked: Any, **options: Any) -> dict[TopicPartition, Future[Any]]:
            return dict.fromkeys(asked, unknown)

    monkeypatch.setattr(cluster, "_admin", Admin())
    with pytest.raises(Passing, match="counts-3"):
        cluster.ends([("counts", 3)])


class LostAnswer:
    """Lets the nth commit go through and then says that it has not."""

    def __init__(self, nth: int, fault: Exception) -> None:
        self._left, self._fault = nth, fault
        self._try = Writer._try

    def __call__(self, writer: Writer, step: Callable[..., None], offsets: Any, *arguments: object) -> None:
        self._try(writer, step, offsets, *arguments)
        if not arguments:
            self._left -= 1
            if self._left == 0:
                raise self._fault


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(KafkaException(KafkaError(KafkaError._TIMED_OUT)), id="in-doubt"),
        pytest.param(Passing("a commit has not gone through"), id="tried-for-too-long"),
    ],
)
def test_a_commit_whose_answer_is_lost_is_not_done_again(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    name = uuid.uuid4().hex[:8]
    given, out = kafka.create(f"{name}-in"), kafka.create(f"{name}-out")
    builder = StreamsBuilder(key=Str(), value=Str())
    builder.stream(given).group_by_key().count(store="counts").to_stream().to(out, value=Int64())
    producer = Producer({"bootstrap.servers": kafka.bootstrap})

    def send() -> None:
        producer.produce(given, b"v", b"k", timestamp=1)
        assert producer.flush(PATIENCE) == 0

    lost = LostAnswer(2, fault)
    # A function, to be bound to the writer as the method is.
    monkeypatch.setattr(Writer, "_try", lambda *given: lost(*given))
    config = Config(name, state_dir=tmp_path)
    with run(builder.build(), config=config, broker=f"kafka://{kafka.bootstrap}", block=False) as app:
        for number in range(1, 5):
            send()
            until(lambda number=number: len(records(kafka, out)) >= number)
        until(lambda: app.state == "running")
        app.wait_idle()
        assert app.store("counts").get("k") == 4
    assert [Int64().decode(value) for value in values(kafka, out) if value is not None] == [1, 2, 3, 4]

