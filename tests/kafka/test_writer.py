"""KafkaWriter against a real broker: what arrives, and that it arrives once, whoever is killed when."""

import pickle
import random
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headwater.dsl.partitioner import partition_for
from headwater.errors import StreamsError
from headwater.streams.spark import kafka_writer
from headwater.streams.spark.kafka_writer import KafkaWriter
from tests.kafka.broker import PATIENCE, Broker, RestartableBroker
from tests.kafka.hands import DONE, HALF, Hand, batch_records, batch_values
from tests.kafka.reading import end, records, values

SIZE = 500
# A hand is killed this often, at moments chosen by this seed.
KILLS, SEED = 6, 5


@pytest.fixture(scope="session")
def source(kafka: Broker) -> str:
    """The topic that carries the marks."""
    return kafka.create("source")


@pytest.fixture
def out(kafka: Broker) -> str:
    return kafka.create(f"out-{uuid.uuid4().hex}", 3)


@pytest.fixture
def writer(kafka: Broker, source: str) -> Callable[..., KafkaWriter]:
    """Writers of one query."""
    query = uuid.uuid4().hex

    def make(check: bool = True, **settings: Any) -> KafkaWriter:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        return KafkaWriter(kafka.bootstrap, query, named, markers=[source], check=check)

    return make


@pytest.fixture
def hand(writer: Callable[..., KafkaWriter], out: str) -> Iterator[Callable[..., Hand]]:
    """Start processes that write to `out`; they end with the test."""
    hands: list[Hand] = []

    def start(**options: Any) -> Hand:
        hands.append(Hand(writer(**options), out))
        return hands[-1]

    yield start
    for one in hands:
        one.kill()


def until(wanted: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not wanted():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def await_open_transaction(kafka: Broker, topic: str) -> None:
    """Wait until the broker has records of a transaction that is not over."""
    place = partition_for(b"k", 3)
    until(lambda: end(kafka, topic, place, committed=False) > end(kafka, topic, place, committed=True))


def test_keys_values_timestamps_and_headers_arrive(
    kafka: Broker, writer: Callable[..., KafkaWriter], out: str
) -> None:
    headers = (("a", b"1"), ("a", None), ("ü", b""))
    sent = [
        (b"alice", b"1", 1_700_000_000_123, headers, None),
        (b"alice", None, 5, (), None),
        (b"", b"", 6, None, None),
        (None, b"no key", 7, None, None),
        (None, None, 8, None, 2),
        ("zoë".encode(), b"chosen", 9, None, 0),
    ]
    assert writer().write(0, 0, 0, [(out, sent)])
    found = records(kafka, out)
    got = {
        (m.key(), m.value(), m.timestamp()[1], tuple(m.headers() or ())): m.partition() for m in found
    }
    assert len(found) == len(sent)
    assert got.keys() == {(key, value, at, tuple(headers or ())) for key, value, at, headers, _ in sent}
    for (key, *_), partition in got.items():
        if key in (b"alice", b""):
            assert partition == partition_for(key, 3)
    assert got[None, None, 8, ()] == 2
    assert got["zoë".encode(), b"chosen", 9, ()] == 0


def test_keys_land_where_javas_client_sends_them(kafka: Broker, writer: Callable[..., KafkaWriter], out: str) -> None:
    keys = [random.Random(number).randbytes(number % 23) for number in range(300)]
    writer().write(0, 0, 0, [(out, [(key, b"", 1, None, None) for key in keys])])
    found = records(kafka, out)
    assert len(found) == len(keys)
    assert [(m.key(), m.partition()) for m in found if m.partition() != partition_for(m.key() or b"", 3)] == []


def test_the_first_millisecond_is_written_as_the_second_not_as_now(
    kafka: Broker, writer: Callable[..., KafkaWriter], out: str
) -> None:
    writer().write(0, 0, 0, [(out, [(b"k", b"v", 0, None, None)])])
    assert [m.timestamp()[1] for m in records(kafka, out)] == [1]


def test_order_within_a_partition_is_that_of_the_pairs(
    kafka: Broker, writer: Callable[..., KafkaWriter], out: str
) -> None:
    pairs = [(out, batch_records(part, 100)) for part in range(5)]
    writer().write(0, 0, 0, iter(pairs))
    assert values(kafka, out) == [value for part in range(5) for value in batch_values(part, 100)]


def test_a_batch_larger_than_the_clients_queue(kafka: Broker, writer: Callable[..., KafkaWriter], out: str) -> None:
    queue = 10_000
    assert writer(queue_buffering_max_messages=queue).write(0, 0, 0, [(out, batch_records(0, 6 * queue))])
    assert values(kafka, out) == batch_values(0, 6 * queue)


def test_a_batch_that_is_there_is_not_written_again(
    kafka: Broker, writer: Callable[..., KafkaWriter], out: str
) -> None:
    one, pickled = writer(), pickle.loads(pickle.dumps(writer()))
    pairs = [(out, batch_records(0, 3))]
    assert [one.write(0, 0, 4, pairs), pickled.write(0, 0, 4, pairs), one.write(0, 0, 3, pairs)] == [True, False, False]
    # Other shards, other stages and later batches are others.
    assert [one.write(0, 1, 4, pairs), one.write(1, 0, 4, pairs), one.write(0, 0, 7, pairs)] == [True, True, True]
    assert len(values(kafka, out)) == 4 * 3


def test_a_batch_without_records_needs_no_kafka(source: str) -> None:
    nowhere = KafkaWriter("127.0.0.1:1", "query", markers=[source])
    assert not nowhere.write(0, 0, 0, [])
    assert not nowhere.write(0, 0, 1, [("out", [])])


def test_marks_are_found_when_another_topic_has_come_to_carry_them(
    kafka: Broker, source: str, out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs, query = [(out, batch_records(0, 1))], uuid.uuid4().hex
    assert KafkaWriter(kafka.bootstrap, query, markers=[source]).write(0, 0, 0, pairs)
    monkeypatch.setattr(kafka_writer._Sender, "_open", OrderedDict())
    assert not KafkaWriter(kafka.bootstrap, query, markers=[out, source]).write(0, 0, 0, pairs)


def test_killed_in_the_middle_a_batch_is_read_once(kafka: Broker, hand: Callable[..., Hand], out: str) -> None:
    first = hand()
    first.begin(0, SIZE, stop=HALF)
    first.await_stop()
    await_open_transaction(kafka, out)
    first.kill()
    second = hand()
    second.begin(0, SIZE, stop=HALF)
    second.await_stop()
    await_open_transaction(kafka, out)
    second.kill()
    assert hand().write(0, SIZE)
    assert values(kafka, out) == batch_values(0, SIZE)


@pytest.mark.parametrize(("check", "times"), [(True, 1), (False, 2)], ids=["checked", "unchecked"])
def test_killed_after_its_commit_a_batch_is_read_once_unless_nobody_checks(
    kafka: Broker, hand: Callable[..., Hand], out: str, check: bool, times: int
) -> None:
    first = hand(check=check)
    first.begin(0, SIZE, stop=DONE)
    first.await_stop()
    first.kill()
    assert hand(check=check).write(0, SIZE) is not check
    assert values(kafka, out) == batch_values(0, SIZE) * times


def test_killed_at_random_moments_every_batch_is_read_once(
    kafka: Broker, hand: Callable[..., Hand], out: str
) -> None:
    choice = random.Random(SEED)
    size, cut_short = 20_000, 0
    one = hand()
    for batch in range(KILLS):
        one.begin(batch, size)
        time.sleep(choice.uniform(0, 0.4))
        one.kill()
        cut_short += batch_values(batch, size)[-1] not in values(kafka, out, patient=False)[-1:]
        # As Spark does: the batch is done again, and the next one by the same process.
        one = hand()
        one.write(batch, size)
    assert cut_short > 0
    assert values(kafka, out) == [value for batch in range(KILLS) for value in batch_values(batch, size)]


def test_a_shard_that_moves_between_processes(kafka: Broker, hand: Callable[..., Hand], out: str) -> None:
    one, other = hand(), hand()
    batches = range(7)
    for batch in batches:
        assert (one if batch in (0, 1, 4, 6) else other).write(batch, SIZE)
    assert values(kafka, out) == [value for batch in batches for value in batch_values(batch, SIZE)]


def test_a_process_that_was_shut_out_opens_anew(kafka: Broker, hand: Callable[..., Hand], out: str) -> None:
    one, other = hand(), hand()
    assert one.write(0, SIZE)
    # It only looks, and shuts out the first by that.
    assert not other.write(0, SIZE)
    assert one.write(1, SIZE)
    assert values(kafka, out) == batch_values(0, SIZE) + batch_values(1, SIZE)


def test_a_process_taken_for_dead_that_goes_on_adds_nothing(
    kafka: Broker, hand: Callable[..., Hand], out: str
) -> None:
    late, other = hand(), hand()
    late.begin(0, SIZE, stop=HALF)
    late.await_stop()
    assert other.write(0, SIZE)
    late.go_on()
    assert not late.result()
    assert values(kafka, out) == batch_values(0, SIZE)


def test_a_transaction_that_has_expired_is_written_anew(kafka: Broker, hand: Callable[..., Hand], out: str) -> None:
    slow = hand(transaction_timeout_ms=1_000)
    slow.begin(0, SIZE, stop=HALF)
    slow.await_stop()
    place = partition_for(b"k", 3)
    # Begun and over: how long it was open is the broker's affair.
    until(lambda: 0 < end(kafka, out, place, committed=False) == end(kafka, out, place, committed=True))
    slow.go_on()
    assert slow.result()
    assert values(kafka, out) == batch_values(0, SIZE)


class TestRestart:
    @pytest.fixture
    def kafka(self, broker: RestartableBroker) -> Broker:
        return broker

    @pytest.fixture
    def source(self, kafka: Broker) -> str:
        return kafka.create("source")

    @pytest.mark.parametrize("end_it", [Broker.stop, Broker.kill], ids=["stopped", "killed"])
    def test_a_broker_that_goes_and_comes_back(
        self, kafka: Broker, hand: Callable[..., Hand], out: str, end_it: Callable[[Broker], None]
    ) -> None:
        patient = hand()
        assert patient.write(0, SIZE)
        patient.begin(1, SIZE, stop=HALF)
        patient.await_stop()
        await_open_transaction(kafka, out)
        end_it(kafka)
        patient.go_on()
        kafka.start()
        assert patient.result()
        assert values(kafka, out) == batch_values(0, SIZE) + batch_values(1, SIZE)


@pytest.mark.parametrize(
    ("record", "fault", "remedy"),
    [
        ((b"k", b"v", 1, None, 7), "Unknown partition", "choose one that it has"),
        ((b"k", b"v" * 2_000_000, 1, None, None), "too large", "max.message.bytes"),
        ((None, b"v", 1, None, None), "failed to validate", "compacted"),
    ],
    ids=["partition", "size", "key"],
)
def test_what_a_topic_refuses_is_raised_with_topic_and_remedy(
    kafka: Broker, writer: Callable[..., KafkaWriter], record: Any, fault: str, remedy: str
) -> None:
    compacted = kafka.create(f"compacted-{uuid.uuid4().hex}", cleanup_policy="compact")
    with pytest.raises(StreamsError) as raised:
        writer().write(3, 2, 1, [(compacted, [(b"k", b"before", 1, None, None), record])])
    for part in (compacted, "batch 1 of stage 3, shard 2", fault, remedy):
        assert part in str(raised.value)
    # Nothing of the batch is there, nothing is held up, and the shard goes on.
    assert values(kafka, compacted) == []
    assert writer().write(3, 2, 1, [(compacted, [(b"k", b"v", 1, None, None)])])
    assert values(kafka, compacted) == [b"v"]


def test_a_topic_that_is_missing_is_named(writer: Callable[..., KafkaWriter]) -> None:
    with pytest.raises(StreamsError, match=r"Topic 'missing'.*create the topic"):
        writer(topic_metadata_propagation_max_ms=500).write(0, 0, 0, [("missing", batch_records(0, 1))])


def test_a_topic_for_marks_that_is_missing_is_named(
    kafka: Broker, out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_writer, "ANSWER", 1.0)
    lost = KafkaWriter(kafka.bootstrap, uuid.uuid4().hex, markers=["missing"])
    with pytest.raises(StreamsError, match=r"Topic 'missing'.*create the topic"):
        lost.write(0, 0, 0, [(out, batch_records(0, 1))])
    assert values(kafka, out) == []


def test_a_broker_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("ANSWER", 0.2), ("PATIENCE", 0.2), ("ATTEMPTS", 2)):
        monkeypatch.setattr(kafka_writer, name, value)
    with pytest.raises(StreamsError, match=r"Kafka at 127.0.0.1:1: batch 0 .* start the query again"):
        KafkaWriter("127.0.0.1:1", "query", markers=["source"]).write(0, 0, 0, [("out", batch_records(0, 1))])


def test_a_wrong_setting_is_named(writer: Callable[..., KafkaWriter]) -> None:
    with pytest.raises(StreamsError, match=r'"such\.a\.thing".*librdkafka'):
        writer(such_a_thing=1).write(0, 0, 0, [("out", batch_records(0, 1))])


def test_pairs_that_cannot_be_made_leave_nothing_behind(
    kafka: Broker, writer: Callable[..., KafkaWriter], out: str
) -> None:
    class Faulty:
        def __iter__(self) -> Iterator[tuple[str, Any]]:
            yield out, batch_records(0, SIZE)
            raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        writer().write(0, 0, 0, Faulty())
    assert values(kafka, out) == []
    assert writer().write(0, 0, 0, [(out, batch_records(0, SIZE))])
    assert values(kafka, out) == batch_values(0, SIZE)


def test_many_shards_do_not_keep_as_many_clients(
    kafka: Broker, writer: Callable[..., KafkaWriter], out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_writer, "OPEN", 2)
    monkeypatch.setattr(kafka_writer._Sender, "_open", OrderedDict())
    for batch in range(2):
        for shard in range(4):
            assert writer().write(0, shard, batch, [(out, batch_records(batch, 1))])
    assert len(kafka_writer._Sender._open) == 2
    assert len(values(kafka, out)) == 8
