"""The record of what an application is, on Kafka: the topic `<application>-identity`, compacted, one partition and one
key. It owns the topic, and that one of several writers wins; what fits is decided in streams/identity.py.

A worker reads the record, compares, and only then writes, in a transaction of an id that all workers share. Who begins
one later fences the others: their commit fails, and they read and compare again. A record that has not changed is not
written.

An application that an earlier version of Headwater ran, or Kafka Streams, has no such topic. What is known of it is
which of its changelogs are there, with how many partitions.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from headwater.errors import StateError
from headwater.streams.connection import Passing
from headwater.streams.identity import Fit, Identity, Part, StoreIdentity, compare, first
from headwater.streams.kafka.client_log import client_log
from headwater.streams.kafka.cluster import ANSWER, Cluster, kafka_fault
from headwater.streams.kafka.settings import for_lone_consumers, for_producers

__all__ = ["KafkaRecord", "identity_topic"]

_KEY = b"identity"
_NUMBER = re.compile(r"\d{10}")
_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
# How often a worker tries when others write at the same time.
_TRIES = 20


def identity_topic(app_id: str) -> str:
    """The name of an application's topic.

    >>> identity_topic("revenue")
    'revenue-identity'
    """
    return f"{app_id}-identity"


class KafkaRecord:
    """The record of an application on a cluster."""

    def __init__(self, settings: Mapping[str, Any], app_id: str, cluster: Cluster) -> None:
        self._settings = settings
        self._app_id = app_id
        self._topic = identity_topic(app_id)
        self._cluster = cluster

    def load(self) -> Identity | None:
        """What is recorded, None if nothing is."""
        if self._topic not in self._cluster.topics(anew=True):
            return None
        place = self._topic, 0
        end = self._cluster.ends([place])[place]
        data = self._last(end) if end else None
        if data is None:
            return None
        try:
            found = msgspec.json.decode(data, type=Identity)
        except msgspec.DecodeError as error:
            raise StateError(
                f"{self._topic} has a record that cannot be read ({error}): start the version that wrote it, or reset "
                "the application to begin anew (headwater reset)."
            ) from error
        return found

    def _last(self, end: int) -> bytes | None:
        """The last record before an offset, of those whose transactions are over."""
        consumer = Consumer(
            {
                **for_lone_consumers(self._settings),
                "group.id": self._app_id,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            },
            logger=client_log,
        )
        found: bytes | None = None
        try:
            consumer.assign([TopicPartition(self._topic, 0, OFFSET_BEGINNING)])
            deadline = time.monotonic() + ANSWER
            while time.monotonic() < deadline:
                for message in consumer.consume(100, 0.1):
                    fault = message.error()
                    if fault is None:
                        found = message.value()
                    elif fault.code() != KafkaError._PARTITION_EOF:
                        raise kafka_fault(f"{self._topic} cannot be read", fault)
                    elif (message.offset() or 0) >= end:
                        return found
        finally:
            consumer.close()
        raise Passing(f"{self._topic} cannot be read to its end within {ANSWER:.0f} s")

    def compared(self, now: Identity, renamed: Mapping[str, str | None]) -> tuple[Identity | None, Fit]:
        """What was recorded, and what fits; nothing is changed."""
        before = self.load() or self._from_topics(now, renamed)
        return before, first(now) if before is None else compare(before, now, renamed, changelogs=True)

    def _from_topics(self, now: Identity, renamed: Mapping[str, str | None]) -> Identity | None:
        """What the changelogs that are there say of an application without a record."""
        there = self._cluster.topics()
        known = {
            store: there[topic]
            for store in {*now.stores, *renamed, *self._like_generated(now, there)}
            if (topic := f"{self._app_id}-{store}-changelog") in there
        }
        if not known:
            return None
        parts = []
        for part in now.parts:
            names = {name for name in part.stores if name in known}
            names |= {old for old, new in renamed.items() if new in part.stores and old in known}
            tasks = max((known[name] for name in names), default=0)
            parts.append(Part(part.number, dict.fromkeys(part.topics, 0), tuple(sorted(names)), tasks))
        return Identity(
            self._app_id, {name: StoreIdentity("") for name in sorted(known)}, now.topics, tuple(parts)
        )

    def _like_generated(self, now: Identity, there: Mapping[str, int]) -> set[str]:
        """Names of changelogs that differ from a store without one by their number alone."""
        prefix, suffix = f"{self._app_id}-", "-changelog"
        missing = {name for name in now.stores if f"{prefix}{name}{suffix}" not in there and _NUMBER.search(name)}
        shapes = {_NUMBER.sub("#", name) for name in missing}
        names = {
            topic.removeprefix(prefix).removesuffix(suffix)
            for topic in there
            if topic.startswith(prefix) and topic.endswith(suffix)
        }
        return {name for name in names if _NUMBER.search(name) and _NUMBER.sub("#", name) in shapes}

    def keep(self, now: Identity, renamed: Mapping[str, str | None]) -> Fit:
        """Compare, and record what fits from now on; the topic is there."""
        for _ in range(_TRIES):
            producer = Producer(
                {**for_producers(self._settings), "transactional.id": self._topic}, logger=client_log
            )
            try:
                # From here on, whoever else is about to write cannot; what they have written is read.
                producer.init_transactions(ANSWER)
                _, fit = self.compared(now, renamed)
                self._write(producer, fit.identity)
            except KafkaException as error:
                fault = error.args[0]
                if fault.code() not in _FENCED:
                    raise kafka_fault(f"{self._topic} cannot be written", fault) from error
            else:
                return fit
        raise Passing(f"{self._topic} cannot be written: other workers are starting too")

    def store(self, identity: Identity) -> None:
        """Replace the record, where no worker is alive."""
        producer = Producer({**for_producers(self._settings), "transactional.id": self._topic}, logger=client_log)
        try:
            producer.init_transactions(ANSWER)
            self._write(producer, identity)
        except KafkaException as error:
            raise kafka_fault(f"{self._topic} cannot be written", error.args[0]) from error

    def _write(self, producer: Producer, identity: Identity) -> None:
        producer.begin_transaction()
        producer.produce(self._topic, msgspec.json.encode(identity), _KEY, partition=0)
        producer.commit_transaction(ANSWER)
