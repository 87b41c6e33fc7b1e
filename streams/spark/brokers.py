"""Where a query's topics are: the embedded log, or Kafka. It owns what both must offer a query; how each is read and
written is its own modules' business.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession

from headwater.dsl.config import Config
from headwater.dsl.topology import Sink, Topology
from headwater.errors import StreamsError
from headwater.streams.broker import is_kafka, log_directory, open_log
from headwater.streams.kafka.settings import kafka_settings
from headwater.streams.spark.java_client import java_settings
from headwater.streams.spark.log_source import LogSource, log_options
from headwater.streams.spark.log_writer import LogWriter
from headwater.streams.spark.stages import Stages

__all__ = ["Broker", "open_broker"]

# How often retention and compaction are seen to.
MAINTAIN_SECONDS = 60.0


class Broker(Protocol):
    """A place for topics, as a query needs it."""

    is_kafka: bool

    def topics(self) -> dict[str, int]:
        """All topics, and how many partitions each has."""
        ...

    def identities(self, topics: Iterable[str]) -> dict[str, str]:
        """What tells each topic from another one that had its name before."""
        ...

    def prepare(self, topology: Topology, config: Config, stages: Stages) -> None:
        """See to the topics that results need and that are missing."""
        ...

    def frame(self, spark: SparkSession, topology: Topology, stages: Stages, max_records: int | None) -> DataFrame:
        """The records of the topology's sources, in the columns every source is brought to."""
        ...

    def writer(self, query: str, config: Config) -> Any:
        """What writes results on the executors."""
        ...

    def explain(self, error: Exception) -> StreamsError | None:
        """What an error of Spark's means here, if that can be said better."""
        ...

    def maintain(self) -> None:
        """Do what must be done now and then; called after every batch."""
        ...


def open_broker(broker: str, config: Config | None = None) -> Broker:
    """The broker at an address; `config` has the settings of Kafka's client."""
    if is_kafka(broker):
        given = {} if config is None else config.kafka
        settings = kafka_settings(broker, given)
        # The client is an extra of its own, and that it is there is known only now.
        from headwater.streams.spark.kafka import KafkaBroker

        return KafkaBroker(broker, settings, java_settings(given))
    return LogBroker(broker)


class LogBroker:
    """The embedded log in a directory that the driver and every executor have."""

    is_kafka = False

    def __init__(self, broker: str) -> None:
        self._broker = broker
        self._directory = log_directory(broker).absolute()
        self._widest = 1
        self._maintained = time.monotonic()

    def topics(self) -> dict[str, int]:
        with open_log(self._broker, create=False) as log:
            return {info.name: info.partitions for info in log.topics()}

    def identities(self, topics: Iterable[str]) -> dict[str, str]:
        with open_log(self._broker, create=False) as log:
            return {topic: log.topic(topic).id for topic in topics}

    def prepare(self, topology: Topology, config: Config, stages: Stages) -> None:
        there = self.topics()
        wanted = [sink.topic for sink in topology.nodes.values() if isinstance(sink, Sink)]
        named = {t for t in (*wanted, config.dead_letters, config.late) if isinstance(t, str)}
        self._widest = max((stage.shards for stage in stages.stages), default=1)
        with open_log(self._broker, create=False) as log:
            for topic in sorted(named - there.keys() - set(topology.internal_topics)):
                log.create_topic(topic, self._widest, exist_ok=True)

    def frame(self, spark: SparkSession, topology: Topology, stages: Stages, max_records: int | None) -> DataFrame:
        spark.dataSource.register(LogSource)
        starting: dict[str, Any] = {}
        for source in topology.sources():
            if source.reset is not None:
                names = source.topics if source.pattern is None else (source.pattern.pattern,)
                starting |= dict.fromkeys(names, source.reset)
        topics = [t for s in topology.sources() for t in s.topics if t not in topology.internal_topics]
        patterns = {s.pattern: stages.partitions[s.pattern.pattern] for s in topology.sources() if s.pattern}
        options = log_options(self._directory, topics, patterns, starting, max_records)
        return spark.readStream.format(LogSource.name()).options(**options).load()

    def writer(self, query: str, config: Config) -> LogWriter:
        return LogWriter(self._directory, config.app_id, query, widest=self._widest)

    def explain(self, error: Exception) -> StreamsError | None:
        return None

    def maintain(self) -> None:
        if time.monotonic() - self._maintained >= MAINTAIN_SECONDS:
            self._maintained = time.monotonic()
            with open_log(self._broker, create=False) as log:
                log.maintain()
