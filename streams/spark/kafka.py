"""Kafka as the place of a query's topics. It owns how Spark's connector is brought into a session and told what to
read, what is asked of the brokers before a query starts, and what the connector's errors mean; KafkaWriter writes.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from headwater.dsl.config import Config
from headwater.dsl.topology import Sink, Topology
from headwater.errors import StreamsError
from headwater.streams.broker import bootstrap_servers
from headwater.streams.spark.kafka_writer import KafkaWriter
from headwater.streams.spark.stages import Stages

__all__ = [
    "KafkaBroker",
    "explain",
    "jars_conf",
    "kafka_frame",
    "kafka_identities",
    "kafka_topics",
    "starting_offsets",
]

JARS = "HEADWATER_SPARK_JARS"
CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13"
# What Kafka itself writes to; neither Spark nor a Kafka consumer matches a pattern against them.
INTERNAL = {"__consumer_offsets", "__transaction_state", "__share_group_state"}
# How long brokers have to answer, in seconds.
ANSWER = 15.0
# Spark's setting for options that plans do not show, and those of its Kafka client that none should.
REDACTED, SECRET = "spark.sql.redaction.options.regex", r"(?i)jaas|keystore\.key|password|secret"
FLAGS = {re.IGNORECASE: "i", re.MULTILINE: "m", re.DOTALL: "s", re.VERBOSE: "x"}


def jars_conf() -> dict[str, str]:
    """The settings that bring Spark's Kafka connector into a new session: it is fetched from Maven's repository.

    The environment's HEADWATER_SPARK_JARS, a folder that holds its jars, is for places that Maven does not reach.
    """
    folder = os.environ.get(JARS)
    if folder is None:
        return {"spark.jars.packages": f"{CONNECTOR}:{pyspark.__version__}"}
    jars = sorted(Path(folder).absolute().glob("*.jar"))
    if not jars:
        raise StreamsError(
            f"{JARS}={folder}: there are no jars in it. Put {CONNECTOR}:{pyspark.__version__} and what it depends on "
            f"there, or unset {JARS} and Spark fetches them."
        )
    return {"spark.jars": ",".join(map(str, jars))}


@contextmanager
def _asking(bootstrap: str, settings: Mapping[str, Any] | None) -> Iterator[AdminClient]:
    try:
        yield AdminClient({"bootstrap.servers": bootstrap, "log_level": 2, **(settings or {})})
    except KafkaException as error:
        raise StreamsError(
            f"Kafka at {bootstrap} cannot be asked for its topics ({error.args[0].str()}): start it, or correct the "
            "address or the settings."
        ) from error


def kafka_topics(bootstrap: str, settings: Mapping[str, Any] | None = None) -> dict[str, int]:
    """All topics but Kafka's own, and how many partitions each has."""
    with _asking(bootstrap, settings) as admin:
        # Asking for one topic by its name could create it; asking for all does not.
        found = admin.list_topics(timeout=ANSWER).topics
    return {name: len(topic.partitions) for name, topic in found.items() if name not in INTERNAL}


def kafka_identities(
    bootstrap: str, topics: Iterable[str], settings: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """The id of each topic; one that is deleted and made anew has another."""
    wanted = list(topics)
    if not wanted:
        return {}
    with _asking(bootstrap, settings) as admin:
        asked = admin.describe_topics(TopicCollection(wanted), request_timeout=ANSWER)
        return {topic: str(asked[topic].result().topic_id) for topic in wanted}


def kafka_frame(
    spark: SparkSession,
    bootstrap: str,
    topics: Iterable[str] = (),
    patterns: Iterable[re.Pattern[str]] = (),
    *,
    starting: str = "earliest",
    max_records: int | None = None,
    streaming: bool = True,
    settings: Mapping[str, str] | None = None,
) -> DataFrame:
    """The committed records of topics, in the columns every source is brought to, in a partition's order.

    - `starting`: `earliest`, `latest`, or Spark's JSON of offsets; for a query without a checkpoint.
    - `max_records`: the most records a batch reads (more or less, over all partitions).
    - `settings`: of the connector's Kafka client, by the names that Java's client gives them.
    """
    _hide_secrets(spark)
    named, matched = list(topics), list(patterns)
    subscription = {"subscribePattern": _one_pattern(named, matched)} if matched else {"subscribe": ",".join(named)}
    options = {
        **{f"kafka.{name}": value for name, value in (settings or {}).items()},
        **subscription,
        "kafka.bootstrap.servers": bootstrap,
        "kafka.isolation.level": "read_committed",
        "includeHeaders": "true",
        "startingOffsets": starting,
        # Without it, records that Kafka has deleted before they were processed would be passed over in silence.
        "failOnDataLoss": "true",
    }
    if max_records is not None:
        options["maxOffsetsPerTrigger"] = str(max_records)
    try:
        frame = (spark.readStream if streaming else spark.read).format("kafka").options(**options).load()
    except AnalysisException as error:
        if "data source: kafka" not in str(error):
            raise
        raise StreamsError(
            "The Spark session has no Kafka connector: build it with "
            "SparkSession.builder.config(map=headwater.streams.spark.kafka.jars_conf()), or start Spark with "
            f"--packages {CONNECTOR}:{pyspark.__version__}."
        ) from error
    return frame.selectExpr(
        "topic", "partition", "offset", "unix_millis(timestamp) AS timestamp", "key", "value", "headers"
    )


def _hide_secrets(spark: SparkSession) -> None:
    """Have Spark leave keys and passwords out of the plans it shows; by itself it shows a certificate's key."""
    shown = spark.conf.get(REDACTED, "") or ""
    if SECRET not in shown:
        spark.conf.set(REDACTED, f"{shown}|{SECRET}" if shown else SECRET)


def _one_pattern(topics: Iterable[str], patterns: Iterable[re.Pattern[str]]) -> str:
    r"""One of Java's regular expressions for them all; Spark is content with a part of a name that matches.

    >>> print(_one_pattern(["a.b"], [re.compile("x|y", re.IGNORECASE)]))
    \A(?:a\.b|(?i:x|y))\z
    """
    flagged = [
        f"(?{''.join(letter for flag, letter in FLAGS.items() if pattern.flags & flag)}:{pattern.pattern})"
        for pattern in patterns
    ]
    return rf"\A(?:{'|'.join([*map(re.escape, topics), *flagged])})\z"


def starting_offsets(resets: Mapping[str, str], topics: Mapping[str, int]) -> str:
    """Spark's way to say where each of these topics, given with their partitions, begins: reset=, or the earliest.

    >>> starting_offsets({}, {"orders": 2})
    'earliest'
    >>> starting_offsets({"orders": "latest"}, {"orders": 1, "users": 2})
    '{"orders": {"0": -1}, "users": {"0": -2, "1": -2}}'
    """
    words = {topic: resets.get(topic, "earliest") for topic in topics}
    if set(words.values()) <= {"earliest"}:
        return "earliest"
    offset = {"earliest": -2, "latest": -1}
    # A topic that is left out stops a query that has no checkpoint, as reset="none" asks; explain() tells it so.
    return json.dumps(
        {
            topic: dict.fromkeys(map(str, range(count)), offset[words[topic]])
            for topic, count in topics.items()
            if words[topic] in offset
        }
    )


def explain(error: Exception) -> StreamsError | None:
    """What to do about an error of the connector's, None if it is about something else."""
    text = str(error)
    # Not every way an error takes to Python keeps its class, KAFKA_DATA_LOSS; its words are kept.
    _, lost, account = text.partition("Some data may have been lost because")
    if lost:
        reason = re.search(r"Reason:\s*(.+)", account)
        return StreamsError(
            "Kafka no longer has records that the query has not processed"
            f"{f' ({reason[1].strip()})' if reason else ''}: they were deleted by the topic's retention, or with the "
            "topic, while the query stood still or was slow. Going on would leave them out of every result, so it "
            "stops. Put the records back and start from a backup of the checkpoint, or start with a new checkpoint: "
            "the results are then computed again from what Kafka has. A longer retention (retention.ms, "
            "retention.bytes of the topic) prevents it."
        )
    if "you must specify all TopicPartitions" in text or "KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED" in text:
        partitions = re.search(r"Specified: .*", text)
        return StreamsError(
            "The query has no checkpoint yet, and a topic no place to start at: its source says reset='none', which "
            "forbids to choose one (say 'earliest' or 'latest'), or its partitions have changed while the query "
            f"started (start it again){f' ({partitions[0]})' if partitions else ''}."
        )
    return None


class KafkaBroker:
    """The topics of a Kafka cluster, `kafka://<host:port>,…`, as a query needs them.

    `settings` are those of librdkafka, which asks and writes; `reading` those of Java's client, which Spark reads with.
    """

    is_kafka = True

    def __init__(
        self, broker: str, settings: Mapping[str, Any] | None = None, reading: Mapping[str, str] | None = None
    ) -> None:
        self._bootstrap = bootstrap_servers(broker)
        self._settings = dict(settings or {})
        self._reading = dict(reading or {})
        self._markers: list[str] = []

    def topics(self) -> dict[str, int]:
        """All topics, and how many partitions each has."""
        return kafka_topics(self._bootstrap, self._settings)

    def identities(self, topics: Iterable[str]) -> dict[str, str]:
        """What tells each topic from another one that had its name before."""
        return kafka_identities(self._bootstrap, topics, self._settings)

    def prepare(self, topology: Topology, config: Config, stages: Stages) -> None:
        """Refuse topics for results that are missing: how they are replicated and kept is for the cluster's owner."""
        there = self.topics()
        sinks = [sink.topic for sink in topology.nodes.values() if isinstance(sink, Sink)]
        named = {topic for topic in (*sinks, config.dead_letters, config.late) if isinstance(topic, str)}
        missing = sorted(named - there.keys() - set(topology.internal_topics))
        if missing:
            raise StreamsError(
                f"Kafka at {self._bootstrap} has no topic {', '.join(map(repr, missing))}, which results are written "
                "to: create it with the partitions, replication and retention it should have (kafka-topics --create "
                f"--bootstrap-server {self._bootstrap} --partitions N --topic {missing[0]})."
            )

    def frame(self, spark: SparkSession, topology: Topology, stages: Stages, max_records: int | None) -> DataFrame:
        """The records of the topology's sources, in the columns every source is brought to."""
        there = self.topics()
        sources = topology.sources()
        topics = [t for s in sources for t in s.topics if t not in topology.internal_topics]
        patterns = [s.pattern for s in sources if s.pattern is not None]
        resets, counts = {}, {}
        for source in sources:
            matched = [t for t in there if t in source.topics or (source.pattern and source.pattern.fullmatch(t))]
            counts.update({topic: there[topic] for topic in matched})
            resets.update({topic: source.reset for topic in matched if source.reset is not None})
        # Named ones first: what a pattern matches changes.
        self._markers = [*dict.fromkeys(topics), *sorted(counts.keys() - set(topics))]
        return kafka_frame(
            spark,
            self._bootstrap,
            dict.fromkeys(topics),
            patterns,
            starting=starting_offsets(resets, counts),
            max_records=max_records,
            settings=self._reading,
        )

    def writer(self, query: str, config: Config) -> KafkaWriter:
        """What writes results on the executors."""
        if not self._markers:
            raise StreamsError(
                f"Kafka at {self._bootstrap} has no topic that the patterns of the sources match: the marks of batches "
                "are kept beside one. Create one."
            )
        return KafkaWriter(self._bootstrap, query, self._settings, markers=self._markers)

    def explain(self, error: Exception) -> StreamsError | None:
        """What an error of Spark's means here, if that can be said better."""
        return explain(error)

    def maintain(self) -> None:
        """Nothing: Kafka keeps its own house."""
