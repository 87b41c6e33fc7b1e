"""Kafka under Spark: what the connector reads, from where, and what its errors tell."""

import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewPartitions
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from headwater import Config, Str, StreamsBuilder
from headwater.dsl.partitioner import partition_for
from headwater.errors import StreamsError
from headwater.streams.spark.describe import describe
from headwater.streams.spark.java_client import java_settings
from headwater.streams.spark.kafka import (
    explain,
    jars_conf,
    kafka_frame,
    kafka_identities,
    kafka_topics,
    starting_offsets,
)
from headwater.streams.spark.query import SparkBackend
from headwater.streams.spark.rows import SOURCE_SCHEMA
from tests.kafka.broker import Broker
from tests.kafka.reading import records, settle
from tests.kafka.secured import SecuredBroker
from tests.streams.apps import until

# Key, value, timestamp, headers.
Sent = tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]


@pytest.fixture
def name() -> str:
    return f"t-{uuid.uuid4().hex}"


def send(kafka: Broker, topic: str, records: list[Sent], *, abort: bool = False) -> None:
    """Write to partition 0 in a transaction that has ended."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions()
    producer.begin_transaction()
    for key, value, timestamp, headers in records:
        producer.produce(topic, value, key, partition=0, timestamp=timestamp, headers=headers)
    producer.flush()
    if abort:
        producer.abort_transaction()
    else:
        producer.commit_transaction()
    settle(kafka, topic)


def numbered(first: int, count: int) -> list[Sent]:
    return [(b"k", b"%d" % number, 1 + number, []) for number in range(first, first + count)]


Run = Callable[[DataFrame], list[bytes]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Process what is there, from one checkpoint, and return the values."""

    def available(frame: DataFrame) -> list[bytes]:
        found: list[bytes] = []
        query = (
            frame.writeStream.foreachBatch(
                lambda rows, _: found.extend(bytes(row.value) for row in rows.orderBy("topic", "offset").collect())
            )
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return found

    return available


def test_records_are_read_as_they_are(spark: SparkSession, kafka: Broker, name: str) -> None:
    kafka.create(name, 2)
    sent: list[Sent] = [
        (b"k", b"v", 1_700_000_000_123, [("a", b"1"), ("a", None), ("ü", b"")]),
        (None, None, 1, []),
        (b"", b"", 2, []),
    ]
    send(kafka, name, sent)
    send(kafka, name, numbered(0, 3), abort=True)
    send(kafka, name, numbered(7, 1))
    frame = kafka_frame(spark, kafka.bootstrap, [name], streaming=False)
    assert [(f.name, f.dataType) for f in frame.schema] == [
        (f.name, f.dataType) for f in spark.createDataFrame([], SOURCE_SCHEMA).schema
    ]
    rows = frame.orderBy("offset").collect()
    assert [(row.topic, row.partition) for row in rows] == [(name, 0)] * 4
    got = [(row.key, row.value, row.timestamp, [(h.key, h.value) for h in row.headers or []]) for row in rows]
    assert got == sent + numbered(7, 1)
    # Between them stand the aborted records and the ends of the transactions.
    assert [row.offset for row in rows] == [0, 1, 2, 8]


def test_a_stream_goes_on_where_its_checkpoint_ends(spark: SparkSession, kafka: Broker, name: str, run: Run) -> None:
    kafka.create(name)
    frame = kafka_frame(spark, kafka.bootstrap, [name], max_records=4)
    send(kafka, name, numbered(0, 10))
    assert run(frame) == [b"%d" % number for number in range(10)]
    send(kafka, name, numbered(10, 5))
    assert run(frame) == [b"%d" % number for number in range(10, 15)]


def test_topics_and_patterns_are_read_together(spark: SparkSession, kafka: Broker, name: str) -> None:
    for topic in (f"{name}.a", f"{name}xa", f"{name}-EU", f"{name}-eu-old"):
        send(kafka, kafka.create(topic), [(None, topic.encode(), 1, [])])
    patterns = [re.compile(f"{name}-eu", re.IGNORECASE)]
    frame = kafka_frame(spark, kafka.bootstrap, [f"{name}.a"], patterns, streaming=False)
    assert {row.topic for row in frame.collect()} == {f"{name}.a", f"{name}-EU"}


def test_each_topic_starts_where_its_source_says(
    spark: SparkSession, kafka: Broker, name: str, run: Run
) -> None:
    old, new = kafka.create(f"{name}-old", 2), kafka.create(f"{name}-new")
    send(kafka, old, numbered(0, 2))
    send(kafka, new, numbered(10, 2))
    starting = starting_offsets({new: "latest"}, {old: 2, new: 1})
    frame = kafka_frame(spark, kafka.bootstrap, [old, new], starting=starting)
    assert run(frame) == [b"0", b"1"]
    send(kafka, new, numbered(12, 1))
    assert run(frame) == [b"12"]


def failure(run: Run, frame: DataFrame) -> str:
    with pytest.raises(StreamingQueryException) as raised:
        run(frame)
    explained = explain(raised.value)
    assert isinstance(explained, StreamsError)
    return str(explained)


def test_a_source_that_may_not_choose_a_start_stops(spark: SparkSession, kafka: Broker, name: str, run: Run) -> None:
    kafka.create(name)
    starting = starting_offsets({name: "none"}, {name: 1})
    said = failure(run, kafka_frame(spark, kafka.bootstrap, [name], starting=starting))
    assert "reset='none'" in said
    assert f"{name}-0" in said


def test_records_deleted_before_they_were_processed_stop_the_query(
    spark: SparkSession, kafka: Broker, name: str, run: Run
) -> None:
    kafka.create(name)
    frame = kafka_frame(spark, kafka.bootstrap, [name])
    send(kafka, name, numbered(0, 10))
    assert len(run(frame)) == 10
    send(kafka, name, numbered(10, 10))
    admin: Any = kafka.admin()
    for deleted in admin.delete_records([TopicPartition(name, 0, 15)]).values():
        deleted.result()
    said = failure(run, frame)
    assert f"{name}-0" in said
    assert "start with a new checkpoint" in said
    assert "retention.ms" in said
    # Spark's own advice would lose them in silence.
    assert "failOnDataLoss" not in said


def test_a_topic_made_anew_stops_the_query(spark: SparkSession, kafka: Broker, name: str, run: Run) -> None:
    kafka.create(name)
    frame = kafka_frame(spark, kafka.bootstrap, [name])
    send(kafka, name, numbered(0, 10))
    assert len(run(frame)) == 10
    kafka.delete(name)
    kafka.create(name)
    send(kafka, name, numbered(0, 2))
    assert f"{name}-0" in failure(run, frame)


def test_other_errors_are_left_alone() -> None:
    assert explain(ValueError("something else")) is None


def test_topics_and_their_partitions(kafka: Broker, name: str) -> None:
    kafka.create(name, 3)
    topics = kafka_topics(kafka.bootstrap)
    assert topics[name] == 3
    assert not [topic for topic in topics if topic.startswith("__")]


def test_a_topic_made_anew_is_another(kafka: Broker, name: str) -> None:
    other = kafka.create(f"{name}-other")
    kafka.create(name)
    before = kafka_identities(kafka.bootstrap, [name, other])
    kafka.delete(name)
    kafka.create(name)
    after = kafka_identities(kafka.bootstrap, [name, other])
    assert before[name] != after[name]
    assert before[other] == after[other] != after[name]


def test_a_cluster_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.streams.spark.kafka.ANSWER", 0.5)
    with pytest.raises(StreamsError, match=r"Kafka at 127\.0\.0\.1:1 .*correct the address"):
        kafka_topics("127.0.0.1:1")


def test_a_session_fetches_the_connector_of_its_own_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADWATER_SPARK_JARS", raising=False)
    assert jars_conf() == {
        "spark.jars.packages": f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
    }


def test_a_folder_of_jars_takes_its_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HEADWATER_SPARK_JARS", str(tmp_path))
    with pytest.raises(StreamsError, match="there are no jars in it"):
        jars_conf()
    for jar in ("b.jar", "a.jar", "readme.txt"):
        (tmp_path / jar).touch()
    assert jars_conf() == {"spark.jars": f"{tmp_path / 'a.jar'},{tmp_path / 'b.jar'}"}


def test_a_topology_reads_and_writes_kafka(spark: SparkSession, kafka: Broker, name: str, tmp_path: Path) -> None:
    source, sink = kafka.create(f"{name}-in", 2), f"{name}-out"
    builder = StreamsBuilder()
    counts = builder.stream(source, value=Str()).group_by(lambda key, value: value).count()
    counts.to_stream().map_values(str).to(sink, value=Str())
    topology, broker = builder.build(), f"kafka://{kafka.bootstrap}"

    def run_what_is_there() -> None:
        backend = SparkBackend(spark)
        config = Config(app_id=name)
        checkpoint = tmp_path / "checkpoint"
        backend.start(
            topology, config, broker=broker, checkpoint=checkpoint, trigger="available-now"
        ).awaitTermination()

    with pytest.raises(StreamsError, match=f"has no topic '{sink}'"):
        run_what_is_there()
    kafka.create(sink, 2)
    words = [b"a", b"b", b"a", b"a", b"b"]
    for turn in range(2):
        send(kafka, source, [(b"k", word, 10 * turn + number, []) for number, word in enumerate(words, 1)])
        run_what_is_there()
    got: dict[bytes | None, list[tuple[bytes | None, int]]] = {}
    for message in records(kafka, sink):
        assert message.partition() == partition_for(message.key() or b"", 2)
        got.setdefault(message.key(), []).append((message.value(), message.timestamp()[1]))
    assert got == {
        b"a": [(b"1", 1), (b"2", 3), (b"3", 4), (b"4", 11), (b"5", 13), (b"6", 14)],
        b"b": [(b"1", 2), (b"2", 5), (b"3", 12), (b"4", 15)],
    }


def test_certificates_and_passwords_reach_spark_and_are_never_shown(spark: SparkSession, tmp_path: Path) -> None:
    kafka = SecuredBroker(tmp_path / "kafka").start()
    try:
        kafka.create("in", 1)
        kafka.create("out", 1)
        send(kafka, "in", [(b"k", word, number, []) for number, word in enumerate([b"a", b"b", b"a"], 1)])
        builder = StreamsBuilder()
        builder.stream("in", value=Str()).group_by(lambda key, value: value).count().to_stream().map_values(str).to(
            "out", value=Str()
        )
        topology, broker = builder.build(), f"kafka://{kafka.secured}"
        config = Config(app_id="secured", kafka=kafka.settings)
        plan = describe(spark, topology, config, broker, plan=True)
        query = SparkBackend(spark).start(
            topology, config, broker=broker, checkpoint=tmp_path / "checkpoint", trigger="available-now"
        )
        query.awaitTermination()
        assert [(message.key(), message.value()) for message in records(kafka, "out")] == [
            (b"a", b"1"),
            (b"b", b"1"),
            (b"a", b"2"),
        ]
    finally:
        kafka.kill()
    assert "SASL_SSL" in plan
    assert "er2" not in plan
    assert "PRIVATE KEY" not in plan
    kept = b"".join(file.read_bytes() for file in (tmp_path / "checkpoint").rglob("*") if file.is_file())
    assert b"er2" not in kept
    assert b"PRIVATE KEY" not in kept


def test_what_java_has_nothing_like_is_named() -> None:
    with pytest.raises(StreamsError, match=r"nothing like sasl\.oauthbearer\.method, ssl\.crl\.location: say the same"):
        java_settings({"ssl.crl.location": "x", "sasl.oauthbearer.method": "oidc", "socket.timeout.ms": "5"})
    with pytest.raises(StreamsError, match=r"nothing like enable\.ssl\.certificate\.verification"):
        java_settings({"enable.ssl.certificate.verification": "false"})
    with pytest.raises(StreamsError, match="PKCS#8 only"):
        java_settings({"ssl.key.pem": "-----BEGIN RSA PRIVATE KEY-----", "ssl.certificate.pem": "x"})
    with pytest.raises(StreamsError, match=r"ssl\.key\.location: nowhere cannot be read"):
        java_settings({"ssl.key.location": "nowhere", "ssl.certificate.pem": "x"})


def test_the_same_trust_in_javas_words() -> None:
    assert java_settings(
        {
            "security.protocol": "sasl_ssl",
            "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.username": "ann",
            "sasl.password": "x",
            "ssl.ca.pem": "CA",
            "ssl.endpoint.identification.algorithm": "none",
            "ssl.keystore.location": "a.p12",
            "ssl.keystore.password": "y",
            "enable.ssl.certificate.verification": "true",
            "client.id": "shop",
            "linger.ms": "5",
        }
    ) == {
        "client.id": "shop",
        "sasl.mechanism": "SCRAM-SHA-512",
        "security.protocol": "SASL_SSL",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="ann" password="x";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "CA",
        "ssl.endpoint.identification.algorithm": "",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": "a.p12",
        "ssl.keystore.password": "y",
    }


def test_a_topic_that_grows_stops_the_query_by_name(
    spark: SparkSession, kafka: Broker, name: str, tmp_path: Path
) -> None:
    source = kafka.create(f"{name}-in", 1)
    builder = StreamsBuilder()
    builder.stream(source).group_by_key().count(store="counts")
    query = SparkBackend(spark).start(
        builder.build(), Config(app_id=name), broker=f"kafka://{kafka.bootstrap}", checkpoint=tmp_path / "checkpoint"
    )
    try:
        send(kafka, source, numbered(0, 2))
        query.processAllAvailable()
        assert query.store("counts").get("k") == 2
        admin: Any = kafka.admin()
        admin.create_partitions([NewPartitions(source, 2)])[source].result()
        # Else the producer would know of no such partition.
        until(lambda: len(admin.list_topics(source, timeout=10).topics[source].partitions) == 2)
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        producer.produce(source, b"1", b"k", partition=1)
        producer.flush()
        with pytest.raises(StreamsError, match=f"the topic '{source}' had 1 partitions when the query started"):
            query.awaitTermination(180)
    finally:
        query.stop()
