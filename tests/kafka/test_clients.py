"""Producer, Consumer and Admin on Kafka, where it has more than the embedded log: transactions, brokers that share
partitions out and can be away, other clients. What means the same on both is in tests/streams/test_clients.py."""

import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
import pytest

from headwater import Admin, Consumer, Producer
from headwater.dsl.partitioner import partition_for
from headwater.errors import StreamsError
from headwater.state.log import OutOfRange, UnknownTopic
from headwater.streams.consumer import ConsumerRecord
from headwater.streams.kafka import consumer as kafka_consumer
from headwater.streams.kafka import questions
from headwater.streams.kafka.admin import KafkaAdmin, KafkaPartition, KafkaTopic
from headwater.streams.kafka.consumer import KafkaConsumer
from headwater.streams.kafka.producer import KafkaProducer
from tests.kafka.broker import Broker
from tests.kafka.reading import records, settle
from tests.kafka.secured import PASSWORD, SecuredBroker

SOON = timedelta(seconds=60)


@pytest.fixture
def broker(kafka: Broker, monkeypatch: pytest.MonkeyPatch) -> str:
    # A busy broker takes longer to let the first member of its first group in.
    monkeypatch.setattr(kafka_consumer, "_JOIN_SECONDS", 60.0)
    return f"kafka://{kafka.bootstrap}"


@pytest.fixture
def topic(kafka: Broker) -> str:
    return kafka.create(f"t-{uuid.uuid4().hex}")


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex}"


def fill(broker: str, topic: str, count: int, first: int = 0, **options: object) -> None:
    with Producer(broker) as producer:
        for number in range(first, first + count):
            producer.send(topic, value=str(number), timestamp=1 + number * 1000, **options)  # type: ignore[arg-type]


def drain(consumer: Consumer) -> list[ConsumerRecord]:
    found = []
    while batch := consumer.poll():
        found += batch
    return found


def transaction(kafka: Broker, topic: str, values: list[bytes], end: str) -> confluent_kafka.Producer:
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions()
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    producer.flush()
    if end:
        getattr(producer, f"{end}_transaction")()
        settle(kafka, topic)
    return producer


class TestChoice:
    def test_the_address_says_which_client_it_is(self, broker: str, topic: str) -> None:
        with Producer(broker) as producer, Consumer(broker, topic) as consumer:
            assert (type(producer), type(consumer), type(Admin(broker))) == (KafkaProducer, KafkaConsumer, KafkaAdmin)
            assert isinstance(producer, Producer)
            assert isinstance(consumer, Consumer)
            assert isinstance(Admin(broker), Admin)

    def test_settings_reach_the_client_or_are_refused(self, broker: str, topic: str) -> None:
        for make in (Producer, Admin, lambda address, kafka: Consumer(address, topic, kafka=kafka)):
            with pytest.raises(StreamsError, match=r"group\.id is not yours to give"):
                make(broker, kafka={"group.id": "x"})
            with pytest.raises(StreamsError, match=r"write client\.id, or correct it"):
                make(broker, kafka={"client.idd": "x"})
            with pytest.raises(StreamsError, match=r"its client does not take its settings \(ssl\.ca\.location failed"):
                make(broker, kafka={"security.protocol": "ssl", "ssl.ca.location": "/nowhere.pem"})

    def test_a_cluster_that_is_not_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(questions, "ANSWER", 1.0)
        with pytest.raises(StreamsError, match=r"Kafka at 127\.0\.0\.1:1 cannot say .* start it, or correct"):
            Admin("kafka://127.0.0.1:1").topics()


class TestProducer:
    def test_another_client_sees_every_part(self, kafka: Broker, broker: str) -> None:
        name = kafka.create(f"t-{uuid.uuid4().hex}", 3)
        headers = [("a", b"\xff"), ("a", None), ("ü", b""), ("b", "ü")]
        sent: list[tuple[bytes | None, bytes | None, int]] = [
            (b"k", b"v", 1_700_000_000_123),
            (b"", b"", 2),
            (b"gone", None, 3),
            (b"\xff\x00", b"\x00", time.time_ns() // 1_000_000),
        ]
        with Producer(broker) as producer:
            for key, value, timestamp in sent:
                producer.send(name, key=key, value=value, timestamp=timestamp, headers=headers)
        found = records(kafka, name)
        assert {(m.key(), m.value(), m.timestamp()[1]): m.partition() for m in found} == {
            (key, value, timestamp): partition_for(key or b"", 3) for key, value, timestamp in sent
        }
        for message in found:
            assert message.headers() == [("a", b"\xff"), ("a", None), ("ü", b""), ("b", "ü".encode())]

    def test_the_beginning_of_time_is_a_millisecond_late(self, kafka: Broker, broker: str, topic: str) -> None:
        with Producer(broker) as producer:
            producer.send(topic, value="x", timestamp=0)
        assert [message.timestamp()[1] for message in records(kafka, topic)] == [1]

    def test_records_that_cannot_be_delivered_are_told_of(self, kafka: Broker, broker: str) -> None:
        name = kafka.create(f"t-{uuid.uuid4().hex}", 2, cleanup_policy="compact")
        producer = Producer(broker)
        for number in range(3):
            producer.send(name, value="without a key", partition=number % 2)
        with pytest.raises(StreamsError, match=r"3 records are lost, sent to .* and 1 other .*: give every"):
            producer.flush()
        producer.send(name, key="k", value="v")
        producer.close()
        assert [message.value() for message in records(kafka, name)] == [b"v"]

    def test_a_loss_in_the_background_is_told_at_the_next_call(self, kafka: Broker, broker: str) -> None:
        name = kafka.create(f"t-{uuid.uuid4().hex}", 1, cleanup_policy="compact")
        with Producer(broker, linger=timedelta(milliseconds=1)) as producer:
            producer.send(name, value="without a key")

            def told() -> None:
                for _ in range(3_000):
                    producer.send(name, key="k", value="v")
                    time.sleep(0.02)

            with pytest.raises(
                StreamsError, match=r"(record is|records are) lost, sent to .*: give every record a key"
            ):
                told()

    def test_a_large_batch_goes_through_a_small_queue(self, kafka: Broker, broker: str, topic: str) -> None:
        with Producer(broker, kafka={"queue.buffering.max.messages": "100"}) as producer:
            for number in range(5000):
                producer.send(topic, value=str(number))
        assert [int(message.value() or b"") for message in records(kafka, topic)] == list(range(5000))


class Interrupted:
    """A client that reports an error before the second record it gives."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._told = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def consume(self, *given: Any) -> list[Any]:
        found = self._client.consume(*given)
        while not self._told and len(found) < 2:
            found += self._client.consume(*given)
        if not self._told:
            self._told = True
            return [Refused("elsewhere"), *found]
        return found


class Refused(NamedTuple):
    """What comes in a record's place when a topic may not be read."""

    name: str

    def topic(self) -> str:
        return self.name

    def partition(self) -> int:
        return 0

    def error(self) -> confluent_kafka.KafkaError:
        return confluent_kafka.KafkaError(confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED)


class TestConsumer:
    def test_only_committed_records_are_read_and_marks_are_not_waited_for(
        self, kafka: Broker, broker: str, topic: str
    ) -> None:
        transaction(kafka, topic, [b"a", b"b"], "commit")
        transaction(kafka, topic, [b"never"], "abort")
        with Consumer(broker, topic) as consumer:
            assert [record.value for record in drain(consumer)] == [b"a", b"b"]
            assert consumer.poll() == []
            assert consumer.lag() == {(topic, 0): 0}
            open_one = transaction(kafka, topic, [b"c"], "")
            assert consumer.poll(timeout=timedelta(milliseconds=300)) == []
            assert consumer.lag() == {(topic, 0): 0}
            open_one.commit_transaction()
            assert [record.value for record in consumer.poll(timeout=SOON)] == [b"c"]

    def test_what_there_is_comes_at_once_however_much_it_is(self, kafka: Broker, broker: str) -> None:
        name = kafka.create(f"t-{uuid.uuid4().hex}", 4)
        fill(broker, name, 20_000)
        with Consumer(broker, name) as consumer:
            found = Counter(int(record.value or b"") for record in drain(consumer))
        assert found == Counter(range(20_000))

    def test_an_error_among_records_takes_none_with_it(self, broker: str, topic: str) -> None:
        fill(broker, topic, 3)
        with Consumer(broker, topic) as consumer:
            assert isinstance(consumer, KafkaConsumer)
            consumer._client = Interrupted(consumer._client)
            with pytest.raises(StreamsError, match="Topic authorization failed"):
                drain(consumer)
            assert [record.value for record in drain(consumer)] == [b"0", b"1", b"2"]

    def test_pausing_holds_back_what_was_fetched(self, kafka: Broker, broker: str) -> None:
        name = kafka.create(f"t-{uuid.uuid4().hex}", 2)
        fill(broker, name, 10)
        with Consumer(broker, name) as consumer:
            first = next(iter(consumer))
            consumer.pause((name, first.partition))
            others = drain(consumer)
            assert {record.partition for record in others} == {1 - first.partition}
            assert len(others) == 5
            consumer.resume()
            assert [record.offset for record in drain(consumer)] == [1, 2, 3, 4]

    def test_iterating_and_polling_go_on_from_each_other(self, broker: str, topic: str) -> None:
        fill(broker, topic, 10)
        with Consumer(broker, topic) as consumer:
            for record in consumer:
                if record.offset == 3:
                    break
            assert [record.offset for record in consumer.poll(max_records=2)] == [4, 5]
            assert next(iter(consumer)).offset == 6
            assert consumer.position(topic, 0) == 7

    def test_records_that_retention_takes_on_the_way_are_passed_over(
        self, broker: str, topic: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        with Producer(broker) as producer:
            for number in range(20):
                producer.send(topic, value=b"%d" % number * 50_000)
        little = {"queued.min.messages": "1", "fetch.message.max.bytes": "1000", "queued.max.messages.kbytes": "1"}
        with Consumer(broker, topic, kafka=little) as consumer:
            assert consumer.poll(max_records=1)[0].offset == 0
            Admin(broker).delete_records(topic, 0, before=16)
            rest = [record.offset for record in drain(consumer)]
        assert rest[-4:] == [16, 17, 18, 19]
        assert 15 not in rest
        assert "Going on at 16" in caplog.text

    def test_a_committed_offset_that_is_gone(self, broker: str, topic: str, group: str) -> None:
        fill(broker, topic, 10)
        with Consumer(broker, topic, group=group) as consumer:
            consumer.poll(max_records=2)
        Admin(broker).delete_records(topic, 0, before=6)
        with Consumer(broker, topic, group=group, start="committed") as consumer, pytest.raises(OutOfRange):
            consumer.poll()
        with Consumer(broker, topic, group=group) as consumer:
            assert [record.offset for record in drain(consumer)] == [6, 7, 8, 9]

    def test_only_what_was_committed_may_be_asked_for(self, broker: str, topic: str, group: str) -> None:
        with (
            Consumer(broker, topic, group=group, start="committed") as consumer,
            pytest.raises(StreamsError, match="nothing is committed"),
        ):
            consumer.poll()

    def test_times_are_found_among_others(self, kafka: Broker, broker: str) -> None:
        name = kafka.create(f"t-{uuid.uuid4().hex}", 2)
        fill(broker, name, 10)
        with Consumer(broker, name, start=datetime.fromtimestamp(4.5, UTC)) as consumer:
            assert sorted(int(record.value or b"") for record in drain(consumer)) == [5, 6, 7, 8, 9]


@pytest.fixture(params=["classic", "consumer"])
def protocol(request: pytest.FixtureRequest) -> dict[str, str]:
    return {"group.protocol": request.param}


class Member:
    """A consumer of a group in a thread of its own, until it is stopped."""

    def __init__(self, broker: str, topic: str, group: str, kafka: dict[str, str]) -> None:
        self.seen: list[tuple[int, int]] = []
        self.share: list[tuple[str, int]] = []
        self.failure: BaseException | None = None
        self._stop = threading.Event()
        self._make: Callable[[], Consumer] = lambda: Consumer(
            broker, topic, group=group, kafka=kafka, commit_interval=timedelta(milliseconds=200)
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            with self._make() as consumer:
                while not self._stop.is_set():
                    for record in consumer.poll(timeout=timedelta(milliseconds=50)):
                        self.seen.append((record.partition, record.offset))
                    self.share = consumer.assignment()
        except BaseException as failure:
            self.failure = failure

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(90)
        assert self.failure is None, self.failure


def until(condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


@pytest.fixture
def member(broker: str) -> Iterator[Callable[..., Member]]:
    started: list[Member] = []

    def start(topic: str, group: str, kafka: dict[str, str]) -> Member:
        started.append(Member(broker, topic, group, kafka))
        return started[-1]

    yield start
    for one in started:
        one.stop()


class TestGroups:
    def test_members_share_and_take_over_without_a_loss_or_a_repetition(
        self, kafka: Broker, broker: str, group: str, protocol: dict[str, str], member: Callable[..., Member]
    ) -> None:
        name = kafka.create(f"t-{uuid.uuid4().hex}", 4)
        admin = Admin(broker)
        one = member(name, group, protocol)
        fill(broker, name, 400)
        until(lambda: len(one.seen) == 400)
        two = member(name, group, protocol)
        until(lambda: len(one.share) == len(two.share) == 2)
        fill(broker, name, 400, first=400)
        until(lambda: len(one.seen) + len(two.seen) == 800)
        described = admin.describe_group(group)
        assert sorted(unit for owner in described.members for unit in owner.owns) == [f"{name}-{n}" for n in range(4)]
        assert {at.owner for at in described.offsets} == {owner.name for owner in described.members}
        one.stop()
        until(lambda: len(two.share) == 4)
        fill(broker, name, 400, first=800)
        until(lambda: len(one.seen) + len(two.seen) == 1200)
        two.stop()
        # Clean moves commit what was handed out: each record was read once.
        assert Counter(one.seen + two.seen) == Counter((p, o) for p in range(4) for o in range(300))
        assert [(at.committed, at.lag) for at in admin.describe_group(group).offsets] == [(300, 0)] * 4
        assert admin.describe_group(group).members == ()

    def test_a_member_goes_on_where_the_group_was(
        self, broker: str, topic: str, group: str, protocol: dict[str, str]
    ) -> None:
        fill(broker, topic, 10)
        with Consumer(broker, topic, group=group, kafka=protocol) as consumer:
            assert [record.offset for record in consumer.poll(max_records=4)] == [0, 1, 2, 3]
            assert consumer.member in {one.name for one in Admin(broker).describe_group(group).members}
        with Consumer(broker, topic, group=group, kafka=protocol, start="committed") as consumer:
            assert [record.offset for record in drain(consumer)] == [4, 5, 6, 7, 8, 9]
            consumer.seek(topic, 0, 8)
            assert [record.offset for record in drain(consumer)] == [8, 9]
            consumer.commit({(topic, 0): 5})
            assert consumer.committed() == {(topic, 0): 5}

    def test_one_that_does_not_poll_in_time_says_so_and_comes_back(
        self, broker: str, topic: str, group: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        fill(broker, topic, 3)
        impatient = {"max.poll.interval.ms": "1500", "session.timeout.ms": "1500"}
        with Consumer(broker, topic, group=group, kafka=impatient, commit_interval=None) as consumer:
            assert len(consumer.poll(timeout=SOON)) == 3
            time.sleep(4)
            with caplog.at_level(logging.WARNING):
                until(lambda: consumer.poll(timeout=timedelta(seconds=1)))
        assert "poll() was not called in time" in caplog.text

    def test_a_member_without_a_share_does_not_wait_for_ever(
        self, broker: str, topic: str, group: str, member: Callable[..., Member], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(kafka_consumer, "_JOIN_SECONDS", 1.0)
        only = member(topic, group, {"group.protocol": "consumer"})
        until(lambda: only.share)
        with Consumer(broker, topic, group=group, kafka={"group.protocol": "consumer"}) as idle:
            assert idle.poll() == []
            assert idle.assignment() == []


class TestAdmin:
    def test_what_only_kafka_knows_of_a_topic(self, kafka: Broker, broker: str) -> None:
        name, admin = f"t-{uuid.uuid4().hex}", Admin(broker)
        admin.create_topic(name, 2, replication_factor=1, kafka={"max.message.bytes": "12345"}, compression="zstd")
        admin.alter_topic(name, kafka={"min.insync.replicas": "1"}, segment=timedelta(days=1))
        fill(broker, name, 3, partition=1)
        described = admin.describe(name)
        assert isinstance(described.info, KafkaTopic)
        assert (described.info.replication_factor, described.info.compression) == (1, "zstd")
        assert described.info.segment_ms == 86_400_000
        one = described.partitions[1]
        assert isinstance(one, KafkaPartition)
        assert (one.start, one.end, one.last_timestamp) == (0, 3, 2001)
        assert (one.leader, one.replicas, one.in_sync, one.size_bytes) == (1, (1,), (1,), None)
        assert described.partitions[0].last_timestamp is None

    def test_what_the_cluster_does_not_allow(self, broker: str, topic: str) -> None:
        admin = Admin(broker)
        with pytest.raises(StreamsError, match="no more copies than there are brokers"):
            admin.create_topic(f"t-{uuid.uuid4().hex}", replication_factor=3)
        with pytest.raises(StreamsError, match="they may only grow"):
            admin.alter_topic(topic, partitions=0)
        with pytest.raises(StreamsError, match=r"(?i)unknown topic config name: nonsense"):
            admin.alter_topic(topic, kafka={"nonsense": "1"})
        with pytest.raises(OutOfRange):
            admin.delete_records(topic, 0, before=5)
        with pytest.raises(UnknownTopic, match="There is no topic 'nowhere'"):
            admin.delete_topic("nowhere")

    def test_offsets_of_an_application_with_state_are_not_reset(self, kafka: Broker, broker: str) -> None:
        app = f"app-{uuid.uuid4().hex}"
        kafka.create(f"{app}-counts-changelog")
        with pytest.raises(StreamsError, match=r"is an application with state .*headwater reset"):
            Admin(broker).reset_offsets(app, "earliest", [f"{app}-counts-changelog"])


def test_a_broker_with_locks_that_is_away_for_a_while(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kafka = SecuredBroker(tmp_path / "kafka").start()
    try:
        address = f"kafka://{kafka.secured}"
        admin = Admin(address, kafka=kafka.settings)
        admin.create_topic("orders")
        with Producer(address, kafka=kafka.settings) as producer:
            producer.send("orders", value="tea")
            with Consumer(address, "orders", group="kitchen", kafka=kafka.settings) as consumer:
                assert [record.value for record in consumer.poll(timeout=SOON)] == [b"tea"]
                kafka.stop()
                producer.send("orders", value="milk")
                kafka.start()
                producer.send("orders", value="sugar")
                producer.flush()
                found: list[bytes | None] = []
                until(lambda: found.extend(record.value for record in consumer.poll(timeout=SOON)) or len(found) > 1)
                assert found == [b"milk", b"sugar"]
                # That it was away has been told, and is no reason to give up a question later.
                assert "Trying again" in caplog.text
                assert admin.partitions("orders") == 1
                assert len(admin.topics()) == 1
        with pytest.raises(StreamsError, match=r"Invalid username or password.*correct the name and the") as raised:
            Admin(address, kafka={**kafka.settings, "sasl.password": f"{PASSWORD}!"}).topics()
        assert PASSWORD not in str(raised.value)
        without = {name: value for name, value in kafka.settings.items() if not name.startswith("ssl.ca")}
        with pytest.raises(StreamsError, match=r"correct the certificates \(ssl\.ca\.location, …\), or the port"):
            Admin(address, kafka=without).topics()
    finally:
        kafka.kill()
