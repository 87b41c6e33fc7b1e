"""Producer, Consumer and Admin on a real log: where records go, in which order they come, who reads what in a group."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headwater.dsl.partitioner import partition_for
from headwater.errors import SerdeError, StreamsError
from headwater.state.log import Log, OutOfRange, Partition, StorageError, TopicExists, UnknownTopic
from headwater.streams.admin import Admin
from headwater.streams.broker import bootstrap_servers, is_kafka, log_directory, open_log
from headwater.streams.consumer import Consumer, ConsumerRecord
from headwater.streams.producer import Producer
from tests.brokers import BOTH, empty_broker

NOW = timedelta(0)
SOON = timedelta(seconds=60)
# Members look four times a second; the rest is for a machine that has other things to do.
TAKEOVER_SECONDS = 15.0


@pytest.fixture
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    yield from empty_broker(request, tmp_path / "log")


@pytest.fixture
def admin(broker: str) -> Admin:
    return Admin(broker)


def fill(broker: str, topic: str, count: int, **options: object) -> None:
    with Producer(broker) as producer:
        for number in range(count):
            producer.send(topic, value=str(number), timestamp=number * 1000, **options)  # type: ignore[arg-type]


def drain(consumer: Consumer, patience: float = 0.0) -> list[ConsumerRecord]:
    records = []
    while found := consumer.poll(timeout=timedelta(seconds=patience)):
        records += found
    return records


def until(condition: Callable[[], object], seconds: float = 60) -> float:
    """Wait for it and say how long that took."""
    start = time.monotonic()
    while not condition():
        assert time.monotonic() - start < seconds, "it did not happen"
        time.sleep(0.01)
    return time.monotonic() - start


class TestBroker:
    @pytest.mark.parametrize("address", ["redis://x", "./.headwater", "log://", "kafka://", "", "log:x", "kafka:x"])
    def test_another_address_is_told_what_there_is(self, address: str) -> None:
        for read in (is_kafka, log_directory, bootstrap_servers):
            with pytest.raises(StreamsError, match=r"write log://<directory>.* or kafka://<host>:<port>") as raised:
                read(address)
            assert repr(address) in str(raised.value)

    def test_a_log_is_no_cluster_and_a_cluster_no_log(self) -> None:
        with pytest.raises(StreamsError, match=r"is a Kafka cluster, and this needs an embedded log"):
            log_directory("kafka://localhost:9092")
        with pytest.raises(StreamsError, match=r"is an embedded log, and this needs Kafka"):
            bootstrap_servers("log://./.headwater")

    def test_the_servers_of_a_cluster(self) -> None:
        assert bootstrap_servers("kafka://one:9092,two.example:19092") == "one:9092,two.example:19092"
        assert bootstrap_servers("kafka://10.0.0.1,[fe80::1]:9094") == "10.0.0.1:9092,[fe80::1]:9094"

    @pytest.mark.parametrize(
        "servers", ["a:b", "a:70000", "a:1/", "a,", ",a", "a b", "::1", "SSL://a:9092", "a:9092?x"]
    )
    def test_what_is_no_server(self, servers: str) -> None:
        with pytest.raises(StreamsError, match="is no server: write kafka://<host>:<port>"):
            bootstrap_servers(f"kafka://{servers}")

    def test_a_password_in_an_address_is_refused_and_not_repeated(self) -> None:
        with pytest.raises(StreamsError, match=r"sasl\.username and sasl\.password") as raised:
            bootstrap_servers("kafka://ann:hunter2@localhost:9092")
        assert "hunter2" not in str(raised.value)

    def test_home_is_expanded(self) -> None:
        assert log_directory("log://~/x") == Path.home() / "x"

    def test_a_log_that_must_be_there_is_not_made(self, broker: str) -> None:
        with pytest.raises(StreamsError, match="There is no log in"):
            open_log(broker, create=False)
        with pytest.raises(StreamsError, match="There is no log in"):
            Consumer(broker, "orders")
        assert not log_directory(broker).exists()


class TestProducer:
    @BOTH
    def test_keys_go_where_kafka_sends_them(self, broker: str, admin: Admin) -> None:
        admin.create_topic("orders", 5)
        keys = [f"user-{number}".encode() for number in range(100)]
        with Producer(broker) as producer:
            for key in keys:
                producer.send("orders", key=key, value=b"x")
        with Consumer(broker, "orders") as consumer:
            found = drain(consumer)
        assert {record.key: record.partition for record in found} == {key: partition_for(key, 5) for key in keys}

    @BOTH
    def test_without_a_key_partitions_take_turns(self, broker: str, admin: Admin) -> None:
        admin.create_topic("orders", 3)
        fill(broker, "orders", 10)
        with Consumer(broker, "orders") as consumer:
            found = drain(consumer)
        assert {int(record.value or b""): record.partition for record in found} == {n: n % 3 for n in range(10)}

    @BOTH
    def test_every_part_of_a_record_arrives(self, broker: str, admin: Admin) -> None:
        admin.create_topic("orders", 2)
        with Producer(broker) as producer:
            producer.send(
                "orders", key="ключ", value=b"\xff\0", timestamp=7, headers=[("a", "ü"), ("b", None)], partition=1
            )
        with Consumer(broker, "orders") as consumer:
            assert consumer.poll() == [
                ConsumerRecord("orders", 1, 0, "ключ".encode(), b"\xff\0", 7, (("a", "ü".encode()), ("b", None)))
            ]

    @BOTH
    def test_the_time_is_now_unless_given(self, broker: str, admin: Admin) -> None:
        admin.create_topic("orders")
        before = time.time_ns() // 1_000_000
        with Producer(broker) as producer:
            producer.send("orders", value="x")
        with Consumer(broker, "orders") as consumer:
            assert before <= consumer.poll()[0].timestamp <= time.time_ns() // 1_000_000

    @BOTH
    @pytest.mark.parametrize(
        ("part", "wrong"),
        [("key", 1), ("value", {}), ("timestamp", -1), ("timestamp", 1.5), ("headers", [("a", 1)]), ("headers", "a")],
    )
    def test_a_record_that_cannot_be_is_refused_alone(
        self, broker: str, admin: Admin, part: str, wrong: object
    ) -> None:
        admin.create_topic("orders")
        with Producer(broker) as producer:
            producer.send("orders", value="before")
            with pytest.raises(SerdeError, match="orders: "):
                producer.send("orders", **{part: wrong})  # type: ignore[arg-type]
            producer.send("orders", value="after")
        with Consumer(broker, "orders") as consumer:
            assert [record.value for record in drain(consumer)] == [b"before", b"after"]

    @BOTH
    def test_unknown_places_are_refused(self, broker: str, admin: Admin) -> None:
        admin.create_topic("orders", 2)
        with Producer(broker) as producer:
            with pytest.raises(UnknownTopic, match="nowhere"):
                producer.send("nowhere", value="x")
            with pytest.raises(UnknownTopic, match="no 2"):
                producer.send("orders", value="x", partition=2)

    def test_a_compacted_topic_wants_keys(self, broker: str, admin: Admin) -> None:
        admin.create_topic("customers", compact=True)
        producer = Producer(broker)
        with producer, pytest.raises(StreamsError, match="give each record for it a key"):
            producer.send("customers", value="x")

    @BOTH
    def test_what_lingers_is_appended_in_time(self, broker: str, admin: Admin) -> None:
        admin.create_topic("orders")
        with Producer(broker, linger=timedelta(milliseconds=20)) as producer, Consumer(broker, "orders") as consumer:
            producer.send("orders", value="x")
            assert len(consumer.poll(timeout=SOON)) == 1

    @BOTH
    def test_without_linger_each_record_is_there_at_once(self, broker: str, admin: Admin) -> None:
        admin.create_topic("orders")
        with Producer(broker, linger=NOW) as producer, Consumer(broker, "orders") as consumer:
            for number in range(3):
                producer.send("orders", value=str(number))
                assert [record.value for record in consumer.poll()] == [str(number).encode()]

    def test_a_full_batch_does_not_wait(self, broker: str, admin: Admin) -> None:
        admin.create_topic("orders")
        with Producer(broker, linger=timedelta(hours=1), batch_bytes=1000) as producer:
            for _ in range(100):
                producer.send("orders", value=b"x" * 100)
            assert admin.describe("orders").partitions[0].end >= 90
        assert admin.describe("orders").partitions[0].end == 100

    @BOTH
    def test_a_new_partition_is_used_after_a_second(
        self, broker: str, admin: Admin, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        where = "kafka.producer" if is_kafka(broker) else "producer"
        monkeypatch.setattr(f"headwater.streams.{where}._REFRESH_SECONDS", 0.0)
        admin.create_topic("orders")
        with Producer(broker) as producer:
            producer.send("orders", value="x")
            admin.alter_topic("orders", partitions=2)
            until(lambda: len(admin.describe("orders").partitions) == 2)
            producer.send("orders", value="y", partition=1)
            producer.send("orders", value="z")
        assert [one.end for one in admin.describe("orders").partitions] == [1, 2]

    def test_a_disk_that_was_full_for_a_while_loses_nothing(
        self, broker: str, admin: Admin, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        admin.create_topic("orders")
        append = Partition.append

        def refuse(*args: object, **options: object) -> None:
            raise StorageError("Cannot append: no space left on device.")

        with Producer(broker, linger=timedelta(milliseconds=1)) as producer:
            monkeypatch.setattr(Partition, "append", refuse)
            producer.send("orders", value="0")
            until(lambda: producer._failure)
            with pytest.raises(StorageError, match="no space"):
                producer.send("orders", value="not taken")
            monkeypatch.setattr(Partition, "append", append)
            producer.send("orders", value="1")
        with Consumer(broker, "orders") as consumer:
            assert [record.value for record in drain(consumer)] == [b"0", b"1"]

    def test_a_refused_record_is_not_sent_later(
        self, broker: str, admin: Admin, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        admin.create_topic("orders")
        append = Partition.append

        def refuse(*args: object, **options: object) -> None:
            raise StorageError("Cannot append: no space left on device.")

        with Producer(broker, linger=NOW) as producer:
            monkeypatch.setattr(Partition, "append", refuse)
            with pytest.raises(StorageError):
                producer.send("orders", value="0")
            monkeypatch.setattr(Partition, "append", append)
        assert admin.describe("orders").partitions[0].end == 0

    def test_records_for_a_deleted_topic_are_said_to_be_lost(self, broker: str, admin: Admin) -> None:
        admin.create_topic("orders")
        admin.create_topic("others")
        producer = Producer(broker, linger=timedelta(hours=1))
        producer.send("orders", value="x")
        producer.send("others", value="y")
        admin.delete_topic("orders")
        with pytest.raises(StreamsError, match=r"1 record is lost, sent to orders-0.*There is no topic"):
            producer.flush()
        producer.close()
        assert admin.describe("others").partitions[0].end == 1

    def test_a_loss_in_the_background_is_told_at_the_next_call(self, broker: str, admin: Admin) -> None:
        admin.create_topic("orders")
        producer = Producer(broker, linger=timedelta(milliseconds=100))
        producer.send("orders", value="x")
        admin.delete_topic("orders")
        until(lambda: producer._failure)
        with pytest.raises(StreamsError, match="1 record is lost"):
            producer.close()

    def test_a_topic_made_again_gets_what_was_waiting(self, broker: str, admin: Admin) -> None:
        admin.create_topic("orders")
        with Producer(broker, linger=timedelta(hours=1)) as producer:
            producer.send("orders", value="x")
            producer.flush()
            producer.send("orders", value="y")
            admin.delete_topic("orders")
            admin.create_topic("orders")
        with Consumer(broker, "orders") as consumer:
            assert [record.value for record in drain(consumer)] == [b"y"]

    @BOTH
    def test_threads_share_a_producer(self, broker: str, admin: Admin) -> None:
        admin.create_topic("orders", 2)
        with Producer(broker, batch_bytes=2000) as producer:

            def send(name: str) -> None:
                for number in range(500):
                    producer.send("orders", key=name, value=str(number))

            threads = [threading.Thread(target=send, args=(name,)) for name in "abcd"]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        with Consumer(broker, "orders") as consumer:
            found = drain(consumer)
        for name in "abcd":
            assert [int(record.value or b"") for record in found if record.key == name.encode()] == list(range(500))


class TestConsumer:
    @BOTH
    def test_an_empty_topic_gives_nothing(self, broker: str, admin: Admin) -> None:
        admin.create_topic("orders", 2)
        with Consumer(broker, "orders") as consumer:
            assert consumer.poll() == []
            assert consumer.lag() == {("orders", 0): 0, ("orders", 1): 0}

    @BOTH
    def test_wrong_asks_are_refused(self, broker: str, admin: Admin) -> None:
        admin.create_topic("orders")
        with pytest.raises(UnknownTopic, match="nowhere"):
            Consumer(broker, ["orders", "nowhere"])
        with pytest.raises(UnknownTopic, match="no 3"):
            Consumer(broker, "orders", partitions=[3])
        for wrong in ({"start": "committed"}, {"start": "begin"}, {"group": "g", "partitions": [0]}, {"group": ""}):
            with pytest.raises(StreamsError):
                Consumer(broker, "orders", **wrong)  # type: ignore[arg-type]
        with pytest.raises(StreamsError, match="at least one topic"):
            Consumer(broker, [])
        with Consumer(broker, "orders") as consumer:
            with pytest.raises(StreamsError, match="Only a group can commit"):
                consumer.commit()
            with pytest.raises(StreamsError, match="orders-1 is not among"):
                consumer.seek("orders", 1, 0)

    @BOTH
    @pytest.mark.parametrize(
        ("start", "first"),
        [
            ("earliest", 0),
            ("latest", None),
            (4, 4),
            (10, None),
            (datetime.fromtimestamp(6.5, UTC), 7),
            (datetime.fromtimestamp(100, UTC), None),
        ],
    )
    def test_a_start(self, broker: str, admin: Admin, start: object, first: int | None) -> None:
        admin.create_topic("orders")
        fill(broker, "orders", 10)
        with Consumer(broker, "orders", start=start) as consumer:  # type: ignore[arg-type]
            found = [record.offset for record in drain(consumer)]
        assert found == ([] if first is None else list(range(first, 10)))

    @BOTH
    def test_an_offset_above_the_end_is_refused(self, broker: str, admin: Admin) -> None:
        admin.create_topic("orders")
        with pytest.raises(OutOfRange, match="orders-0 has no offset 5"):
            Consumer(broker, "orders", start=5)

    def test_max_records_and_fairness(self, broker: str, admin: Admin) -> None:
        admin.create_topic("orders", 3)
        fill(broker, "orders", 30)
        with Consumer(broker, "orders") as consumer:
            chunks = [[record.partition for record in consumer.poll(max_records=5)] for _ in range(6)]
            assert consumer.poll() == []
        assert chunks == [[0] * 5, [1] * 5, [2] * 5] * 2

    @BOTH
    def test_seeking_to_and_fro(self, broker: str, admin: Admin) -> None:
        admin.create_topic("orders")
        fill(broker, "orders", 10)
        with Consumer(broker, "orders") as consumer:
            assert len(drain(consumer)) == 10
            consumer.seek("orders", 0, 3)
            assert consumer.position("orders", 0) == 3
            assert consumer.poll(max_records=1)[0].offset == 3
            consumer.seek("orders", 0, "latest")
            assert consumer.poll() == []
            consumer.seek("orders", 0, "earliest")
            assert consumer.poll(max_records=1)[0].offset == 0
            consumer.seek_to_time(8500)
            assert [record.offset for record in drain(consumer)] == [9]
            consumer.seek_to_time(datetime.fromtimestamp(2, UTC))
            assert consumer.poll(max_records=1)[0].offset == 2
            with pytest.raises(OutOfRange):
                consumer.seek("orders", 0, 11)

    @BOTH
    def test_iterating_can_seek_pause_and_commit_on_the_way(self, broker: str, admin: Admin) -> None:
        admin.create_topic("orders")
        fill(broker, "orders", 10)
        seen = []
        with Consumer(broker, "orders", group="kitchen", commit_interval=None) as consumer:
            for record in consumer:
                seen.append(record.offset)
                if seen == [0, 1, 2]:
                    consumer.commit()
                    assert consumer.committed() == {("orders", 0): 3}
                    consumer.seek("orders", 0, 8)
                if record.offset == 9:
                    break
        assert seen == [0, 1, 2, 8, 9]
        assert admin.describe_group("kitchen").offsets[0].committed == 3

    @BOTH
    def test_iterating_waits_for_more(self, broker: str, admin: Admin) -> None:
        admin.create_topic("orders")
        threading.Timer(0.1, fill, (broker, "orders", 1)).start()
        with Consumer(broker, "orders") as consumer:
            assert next(iter(consumer)).value == b"0"

    @BOTH
    def test_partitions_that_come_later_are_read_from_their_beginning(
        self, broker: str, admin: Admin, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        where = "kafka.consumer" if is_kafka(broker) else "consumer"
        monkeypatch.setattr(f"headwater.streams.{where}._LOOK_SECONDS", 0.0)
        admin.create_topic("orders")
        fill(broker, "orders", 1)
        with Consumer(broker, "orders", start="latest") as consumer:
            admin.alter_topic("orders", partitions=2)
            fill(broker, "orders", 1, partition=1)
            assert [record.partition for record in consumer.poll()] == [1]

    def test_records_that_retention_took_are_passed_over(self, broker: str, admin: Admin) -> None:
        admin.create_topic("orders")
        fill(broker, "orders", 10)
        with Consumer(broker, "orders") as consumer:
            assert consumer.poll(max_records=1)[0].offset == 0
            admin.delete_records("orders", 0, before=6)
            assert [record.offset for record in drain(consumer)] == [6, 7, 8, 9]

    def test_a_committed_offset_that_is_gone(self, broker: str, admin: Admin) -> None:
        admin.create_topic("orders")
        fill(broker, "orders", 10)
        with Consumer(broker, "orders", group="kitchen") as consumer:
            consumer.poll(max_records=2)
        admin.delete_records("orders", 0, before=6)
        with pytest.raises(OutOfRange):
            Consumer(broker, "orders", group="kitchen", start="committed")
        with Consumer(broker, "orders", group="kitchen", start="latest") as consumer:
            assert consumer.position("orders", 0) == 10
        with Consumer(broker, "orders", group="other", start="earliest") as consumer:
            assert consumer.position("orders", 0) == 6

    def test_only_what_was_committed_may_be_asked_for(self, broker: str, admin: Admin) -> None:
        admin.create_topic("orders")
        with pytest.raises(StreamsError, match="orders-0: nothing is committed"):
            Consumer(broker, "orders", group="kitchen", start="committed")
        assert admin.describe_group("kitchen").members == ()

    @BOTH
    def test_a_topic_deleted_under_the_reader_is_an_error(
        self, broker: str, admin: Admin, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        admin.create_topic("orders")
        with Consumer(broker, "orders") as consumer:
            admin.delete_topic("orders")
            with pytest.raises(UnknownTopic, match="orders"):
                consumer.poll(timeout=SOON)

    @BOTH
    def test_what_was_handed_out_last_is_not_committed_after_an_exception(self, broker: str, admin: Admin) -> None:
        admin.create_topic("orders")
        fill(broker, "orders", 3)

        def fail() -> None:
            with Consumer(broker, "orders", group="kitchen") as consumer:
                consumer.poll()
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        with Consumer(broker, "orders", group="kitchen") as consumer:
            assert len(consumer.poll()) == 3

    @BOTH
    def test_commits_come_by_themselves(self, broker: str, admin: Admin) -> None:
        admin.create_topic("orders")
        fill(broker, "orders", 3)
        with Consumer(broker, "orders", group="kitchen", commit_interval=NOW) as consumer:
            consumer.poll(max_records=2)
            # Or nothing at all: records can come in the moment in which the partition does.
            assert consumer.committed().get(("orders", 0), 0) == 0
            consumer.poll(max_records=1)
            assert consumer.committed() == {("orders", 0): 2}

    def test_a_record_survives_pickling(self) -> None:
        record = ConsumerRecord("orders", 1, 2, b"k", None, 5, (("a", None),))
        assert pickle.loads(pickle.dumps(record)) == record


MEMBER = """
import sys
from datetime import timedelta
from headwater.streams.consumer import Consumer
with Consumer(sys.argv[1], "orders", group="kitchen", commit_interval=timedelta(milliseconds=50)) as consumer:
    while True:
        for record in consumer.poll(timeout=timedelta(milliseconds=50)):
            print(record.partition, record.offset, flush=True)
"""


@pytest.fixture
def member(broker: str) -> Iterator[Callable[[], "subprocess.Popen[str]"]]:
    """Start members of the group `kitchen` in processes of their own."""
    started: list[subprocess.Popen[str]] = []

    def start() -> "subprocess.Popen[str]":
        process = subprocess.Popen([sys.executable, "-c", MEMBER, broker], stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


class TestGroups:
    def test_members_share_and_take_over(self, broker: str, admin: Admin) -> None:
        admin.create_topic("orders", 4)
        with Consumer(broker, "orders", group="kitchen") as one:
            assert len(one.assignment()) == 4
            with Consumer(broker, "orders", group="kitchen") as two:

                def both() -> bool:
                    one.poll()
                    two.poll()
                    return len(one.assignment()) == len(two.assignment()) == 2

                until(both)
                assert sorted(one.assignment() + two.assignment()) == [("orders", number) for number in range(4)]
                owned = {member.name: len(member.owns) for member in admin.describe_group("kitchen").members}
                assert owned == {one.member: 2, two.member: 2}

            def alone() -> bool:
                one.poll()
                return len(one.assignment()) == 4

            assert until(alone) < TAKEOVER_SECONDS

    def test_more_members_than_partitions(self, broker: str, admin: Admin) -> None:
        admin.create_topic("orders")
        with (
            Consumer(broker, "orders", group="kitchen") as one,
            Consumer(broker, "orders", group="kitchen") as two,
        ):
            assert (one.assignment(), two.assignment()) == ([("orders", 0)], [])

    def test_members_that_read_different_topics(self, broker: str, admin: Admin) -> None:
        admin.create_topic("a", 3)
        admin.create_topic("b", 3)
        with (
            Consumer(broker, ["a"], group="kitchen") as one,
            Consumer(broker, ["b"], group="kitchen") as two,
            Consumer(broker, ["a", "b"], group="kitchen") as three,
        ):

            def settled() -> bool:
                for consumer in (one, two, three):
                    consumer.poll()
                shares = [consumer.assignment() for consumer in (one, two, three)]
                return all(shares) and sum(map(len, shares)) == 6

            until(settled)
            assert {topic for topic, _ in one.assignment()} == {"a"}
            assert {topic for topic, _ in two.assignment()} == {"b"}

    def test_a_moving_partition_goes_on_where_it_was(self, broker: str, admin: Admin) -> None:
        admin.create_topic("orders", 2)
        fill(broker, "orders", 100)
        seen = []
        with Consumer(broker, "orders", group="kitchen") as one:
            seen += one.poll(max_records=30)
            with Consumer(broker, "orders", group="kitchen") as two:

                def moved() -> bool:
                    seen.extend(one.poll(max_records=1))
                    seen.extend(two.poll(max_records=1))
                    return bool(two.assignment())

                until(moved)
                until(lambda: seen.extend(one.poll() + two.poll()) or len(seen) >= 100)
        assert Counter((record.partition, record.offset) for record in seen) == Counter(
            (partition, offset) for partition in range(2) for offset in range(50)
        )

    def test_a_killed_members_share_is_taken_over_soon(
        self, broker: str, admin: Admin, member: "Callable[[], subprocess.Popen[str]]"
    ) -> None:
        admin.create_topic("orders", 4)
        with Consumer(broker, "orders", group="kitchen") as survivor:
            victim = member()

            def shared() -> bool:
                survivor.poll()
                owners = admin.describe_group("kitchen").members
                return len(owners) == 2 and all(len(one.owns) == 2 for one in owners)

            until(shared)
            os.kill(victim.pid, signal.SIGKILL)

            def taken() -> bool:
                survivor.poll()
                return len(survivor.assignment()) == 4

            assert until(taken) < TAKEOVER_SECONDS

    def test_nothing_is_lost_while_members_come_and_die(
        self, broker: str, admin: Admin, member: "Callable[[], subprocess.Popen[str]]"
    ) -> None:
        admin.create_topic("orders", 4)
        processes = [member(), member()]

        def shared() -> bool:
            members = admin.describe_group("kitchen").members if admin.groups() else ()
            return len(members) == 2 and all(len(one.owns) == 2 for one in members)

        for victim in range(3):
            until(shared)
            fill(broker, "orders", 400)
            processes[victim].kill()
            fill(broker, "orders", 400)
            processes.append(member())
        until(lambda: [at.committed for at in admin.describe_group("kitchen").offsets] == [600] * 4)
        for process in processes:
            process.kill()
        lines = [line for process in processes for line in process.communicate()[0].splitlines()]
        # What a killed member printed last and had not committed, another read again: at least once.
        assert {f"{partition} {offset}" for partition in range(4) for offset in range(600)} <= set(lines)

    def test_an_applications_group_is_not_joined(self, broker: str, admin: Admin) -> None:
        admin.create_topic("orders")
        group = Log.open(log_directory(broker)).group("app")
        group.join("worker", "a1b2c3")
        with pytest.raises(StreamsError, match="'app' is that of a running application"):
            Consumer(broker, "orders", group="app")
        assert [one.name for one in group.members()] == ["worker"]
        group.close()


class TestAdmin:
    @BOTH
    def test_a_compacted_topic_is_kept_unless_a_retention_is_given(self, broker: str, admin: Admin) -> None:
        day = timedelta(days=1)
        # On Kafka it is the cluster's choice, and that of the tests keeps all.
        usual = None if is_kafka(broker) else 7 * 86_400_000
        admin.create_topic("plain")
        admin.create_topic("compact", compact=True)
        admin.create_topic("both", compact=True, retention=day)
        admin.create_topic("forever", retention=None)
        settings = {one.name: (one.compact, one.delete, one.retention_ms) for one in admin.topics()}
        assert settings == {
            "plain": (False, True, usual),
            "compact": (True, False, None),
            "both": (True, True, 86_400_000),
            "forever": (False, True, None),
        }
        admin.alter_topic("plain", compact=True)
        admin.alter_topic("compact", retention=day)
        admin.alter_topic("both", compact=False)
        admin.alter_topic("forever", retention_bytes=1000, compression="zstd", segment_bytes=2 << 20, segment=day)
        settings = {one.name: (one.compact, one.delete, one.retention_ms) for one in admin.topics()}
        assert settings == {
            "plain": (True, False, None),
            "compact": (True, True, 86_400_000),
            "both": (False, True, 86_400_000),
            "forever": (False, True, None),
        }

    @BOTH
    def test_a_topic_is_made_once(self, admin: Admin) -> None:
        admin.create_topic("orders", 3)
        with pytest.raises(TopicExists):
            admin.create_topic("orders")
        admin.create_topic("orders", exist_ok=True)
        assert admin.topics()[0].partitions == 3

    @BOTH
    def test_offsets_are_reset(self, broker: str, admin: Admin) -> None:
        admin.create_topic("orders", 2)
        fill(broker, "orders", 10)
        with Consumer(broker, "orders", group="kitchen") as consumer:
            drain(consumer)
            consumer.commit()
            with pytest.raises(StreamsError, match="live members"):
                admin.reset_offsets("kitchen", "earliest")
        places = [("orders", 0), ("orders", 1)]
        assert admin.reset_offsets("kitchen", 99, dry_run=True) == dict.fromkeys(places, (5, 5))
        assert admin.reset_offsets("kitchen", 3, partitions=[1]) == {("orders", 1): (5, 3)}
        assert [at.lag for at in admin.describe_group("kitchen").offsets] == [0, 2]
        assert admin.reset_offsets("kitchen", datetime.fromtimestamp(4, UTC), ["orders"]) == {
            ("orders", 0): (5, 2),
            ("orders", 1): (3, 2),
        }
        assert admin.reset_offsets("kitchen", "latest")[places[0]] == (2, 5)
        assert admin.reset_offsets("fresh", "earliest", ["orders"]) == dict.fromkeys(places, (None, 0))

    @BOTH
    def test_resets_that_cannot_be(self, broker: str, admin: Admin) -> None:
        admin.create_topic("orders")
        with pytest.raises(StreamsError, match=r"no group 'kitchen'.*none at all"):
            admin.reset_offsets("kitchen", "earliest")
        with pytest.raises(UnknownTopic):
            admin.reset_offsets("kitchen", "earliest", ["nowhere"])
        with pytest.raises(StreamsError, match="no offset there"):
            admin.reset_offsets("kitchen", "earliest", ["orders"], partitions=[7])

    def test_an_applications_offsets_are_not_reset(self, broker: str, admin: Admin) -> None:
        admin.create_topic("orders")
        (log_directory(broker) / "apps" / "revenue").mkdir(parents=True)
        with pytest.raises(StreamsError, match="headwater reset"):
            admin.reset_offsets("revenue", "earliest", ["orders"])

    @BOTH
    def test_a_group_is_deleted_and_a_topics_offsets_go_with_it(self, broker: str, admin: Admin) -> None:
        admin.create_topic("orders")
        with Consumer(broker, "orders", group="kitchen") as consumer:
            consumer.poll()
            consumer.commit()
            with pytest.raises(StreamsError, match="live members"):
                admin.delete_group("kitchen")
        assert len(admin.describe_group("kitchen").offsets) == 1
        admin.delete_topic("orders")
        assert admin.describe_group("kitchen").offsets == ()
        admin.delete_group("kitchen")
        with pytest.raises(StreamsError, match="no group 'kitchen'"):
            admin.describe_group("kitchen")
