"""The cluster's topics, as an application needs them: which there are, its own ones made with the settings they must
have, where partitions begin and end, and records deleted once they are processed. It owns the administrative client and
what its errors are told; who reads and writes the records are others.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its types do not say what it exports
    AclOperation,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicMetadata,
)

from headwater.errors import StreamsError, TopologyError
from headwater.streams.connection import Passing, Place
from headwater.streams.kafka.client_log import client_log
from headwater.streams.kafka.settings import for_consumers, for_producers, without_secrets

__all__ = ["CHANGELOG", "REPARTITION", "Cluster", "NewInternal", "kafka_fault", "versioned_changelog"]

log = logging.getLogger("headwater")

# How long brokers have to answer, in seconds, how long a list of topics is good for, and for how long a topic must be
# missing to be gone: a broker that has just started may not know all of them.
ANSWER, SHORT_ANSWER = 15.0, 3.0
FRESH_SECONDS = 2.0
GONE_SECONDS = 5.0
DAY_MS = 24 * 3600 * 1000
# What Kafka itself writes to.
INTERNAL = {"__consumer_offsets", "__transaction_state", "__share_group_state"}

# Event times, never the brokers' own: stores and joins live by them.
_TIMED = {"message.timestamp.type": "CreateTime"}
# Records go when they are processed, never by age: a worker may be down for weeks.
REPARTITION: Mapping[str, str] = {
    **_TIMED, "cleanup.policy": "delete", "retention.ms": "-1", "segment.bytes": "52428800"
}  # fmt: skip
# Of windows too. Brokers compare the records' event times with the clock: with `delete` they would delete rows of open
# windows seconds after they were written, while a backfill is under way. Rows past their retention are deleted by
# records, when stream time says so.
CHANGELOG: Mapping[str, str] = {**_TIMED, "cleanup.policy": "compact"}

_FORBIDDEN = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "topics",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "the group",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "the cluster",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional ids",
    KafkaError.SASL_AUTHENTICATION_FAILED: "anything: its name or password is wrong",
    KafkaError._AUTHENTICATION: "anything: its name, password or certificate is wrong",
    KafkaError._SSL: "anything: its certificate, or the authority it trusts, does not fit",
}


def versioned_changelog(retention_ms: int) -> dict[str, str]:
    """The settings of a changelog of versions: none is compacted away while the store still looks back that far."""
    return {**CHANGELOG, "min.compaction.lag.ms": str(retention_ms + DAY_MS)}


@dataclass(frozen=True)
class NewInternal:
    """A topic of an application's own that must be there; one that may grow may have had fewer partitions."""

    name: str
    partitions: int
    settings: Mapping[str, str] = field(default_factory=dict)
    may_grow: bool = False


def kafka_fault(what: str, error: KafkaError) -> StreamsError:
    """What to raise for an error of Kafka's: one that may pass, unless rights are missing."""
    forbidden = _FORBIDDEN.get(error.code())
    if forbidden is not None:
        return StreamsError(
            f"{what}: Kafka does not let this client use {forbidden} ({error.str()}): give it the rights (kafka-acls), "
            "or other credentials (--set sasl.username=…)."
        )
    return Passing(f"{what}: {error.str()}")


def _for_admin(settings: Mapping[str, Any]) -> dict[str, Any]:
    return for_consumers(for_producers(settings))


class Cluster:
    """The topics of one cluster."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._bootstrap = settings["bootstrap.servers"]
        # Why the brokers do not let this client in, which a question that gets no answer does not say.
        self._denied: KafkaError | None = None
        own: dict[str, Any] = {**_for_admin(settings), "error_cb": self._note}
        try:
            self._admin = AdminClient(own, logger=client_log)
        except KafkaException as error:
            said = without_secrets(error.args[0].str(), settings)
            raise StreamsError(f"Kafka's client does not take its settings ({said}): correct them.") from error
        self._topics: dict[str, int] = {}
        self._seen_at: dict[str, float] = {}
        self._asked_at = 0.0
        self._deletions: list[Future[Any]] = []

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        try:
            yield
            self._denied = None
        except KafkaException as error:
            self._admin.poll(0)
            cause = self._denied or error.args[0]
            raise kafka_fault(f"Kafka at {self._bootstrap} cannot {what}", cause) from error

    def _note(self, error: KafkaError) -> None:
        if error.code() in _FORBIDDEN:
            self._denied = error

    def _list_topics(self) -> dict[str, TopicMetadata]:
        deadline = time.monotonic() + ANSWER
        while True:
            try:
                # Asking for one topic by its name could create it; asking for all does not.
                return self._admin.list_topics(timeout=SHORT_ANSWER).topics
            except KafkaException:
                self._admin.poll(0)
                if self._denied is not None or time.monotonic() > deadline:
                    raise

    def topics(self, *, anew: bool = False) -> dict[str, int]:
        """All topics but Kafka's own, and how many partitions each has.

        Asked anew, those that are there now; otherwise seconds old, and with those that are missing only just.
        """
        now = time.monotonic()
        if not anew and now - self._asked_at <= FRESH_SECONDS:
            return dict(self._topics)
        with self._asking("say which topics it has"):
            found = self._list_topics()
        there = {name: len(topic.partitions) for name, topic in found.items() if name not in INTERNAL}
        self._seen_at |= dict.fromkeys(there, now)
        missing = {name: n for name, n in self._topics.items() if name not in there}
        self._topics = there | {name: n for name, n in missing.items() if now - self._seen_at[name] < GONE_SECONDS}
        self._asked_at = now
        return there if anew else dict(self._topics)

    def ensure(self, wanted: Iterable[NewInternal], replication_factor: int | None) -> None:
        """Make topics that are missing; one that is there with another number of partitions is refused."""
        there = self.topics(anew=True)
        faults, missing, narrow = [], {}, []
        for topic in wanted:
            if topic.name not in there:
                missing[topic.name] = topic
            elif topic.may_grow and there[topic.name] < topic.partitions:
                narrow.append(topic)
            elif there[topic.name] != topic.partitions:
                faults.append(
                    f"internal topic {topic.name!r} has {there[topic.name]} partitions, but the topology needs "
                    f"{topic.partitions}: the number of source partitions has changed, and state belongs to the "
                    "partitions it was made in; reset the application (headwater reset) to start anew"
                )
        if faults:
            raise TopologyError(faults)
        if missing:
            self._create(missing.values(), -1 if replication_factor is None else replication_factor)
        self._widen(narrow)

    def adjust(self, changelogs: Mapping[str, Mapping[str, str]]) -> None:
        """Give changelogs that are there the settings they must have: earlier releases gave them others.

        Who may not change them is told what to run.
        """
        there = self.topics(anew=True)
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in sorted(changelogs) if topic in there]
        if not resources:
            return
        with self._asking("describe the settings of topics"):
            asked = self._admin.describe_configs(resources, request_timeout=ANSWER)
        for resource, future in asked.items():
            try:
                found = {name: str(entry.value) for name, entry in future.result().items()}
            except KafkaException as error:
                log.debug("the settings of %s are not told: %s", resource.name, error.args[0].str())
                continue
            self._alter(resource.name, _lacking(found, changelogs[resource.name]))

    def _alter(self, topic: str, settings: Mapping[str, str]) -> None:
        if not settings:
            return
        said = ", ".join(f"{name}={value}" for name, value in settings.items())
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        try:
            self._admin.incremental_alter_configs([resource], request_timeout=ANSWER)[resource].result()
        except KafkaException as error:
            log.warning(
                "%s: it should have the settings %s, or state is deleted from it that is still needed, but they cannot "
                "be changed (%s): run kafka-configs.sh --alter --topic %s --add-config %s",
                topic, said, error.args[0].str(), topic, said.replace(", ", ","),
            )  # fmt: skip
        else:
            log.info("%s: its settings are %s from now on", topic, said)

    def _create(self, missing: Iterable[NewInternal], replication: int) -> None:
        new = [
            NewTopic(topic.name, topic.partitions, replication, config=dict(topic.settings)) for topic in missing
        ]
        with self._asking("create topics"):
            made = self._admin.create_topics(new, operation_timeout=ANSWER, request_timeout=ANSWER)
        for name, future in made.items():
            with self._asking(f"create the topic {name!r}"):
                try:
                    future.result()
                except KafkaException as error:
                    # Another worker was quicker.
                    if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                        raise
        self._await({topic.topic: topic.num_partitions for topic in new})

    def _widen(self, narrow: Iterable[NewInternal]) -> None:
        new = [NewPartitions(topic.name, topic.partitions) for topic in narrow]
        if not new:
            return
        with self._asking("add partitions"):
            for future in self._admin.create_partitions(new, operation_timeout=ANSWER, request_timeout=ANSWER).values():
                try:
                    future.result()
                except KafkaException as error:
                    # Another worker was quicker.
                    if error.args[0].code() != KafkaError.INVALID_PARTITIONS:
                        raise
        self._await({topic.topic: topic.new_total_count for topic in new})

    def _await(self, wanted: Mapping[str, int]) -> None:
        """Wait until the brokers have heard of topics and their partitions."""
        deadline = time.monotonic() + ANSWER
        while any(self.topics(anew=True).get(topic, 0) < partitions for topic, partitions in wanted.items()):
            if time.monotonic() > deadline:
                raise Passing(f"Kafka at {self._bootstrap} does not show the topics it has just created")
            time.sleep(0.05)

    def check_rights(self, reading: Iterable[str], writing: Iterable[str]) -> None:
        """Refuse, all together, topics that may not be read or written."""
        needs: dict[str, set[AclOperation]] = {}
        for topic in reading:
            needs.setdefault(topic, set()).add(AclOperation.READ)
        for topic in writing:
            needs.setdefault(topic, set()).add(AclOperation.WRITE)
        if not needs:
            return
        with self._asking("describe topics"):
            asked = self._admin.describe_topics(
                TopicCollection(sorted(needs)), include_authorized_operations=True, request_timeout=ANSWER
            )
        faults = []
        for topic, future in sorted(asked.items()):
            try:
                granted = set(future.result().authorized_operations or ())
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise kafka_fault(f"Kafka at {self._bootstrap} cannot describe {topic!r}", error.args[0]) from error
                granted = set()
            lacking = sorted(operation.name.lower() for operation in needs[topic] - granted)
            if lacking:
                faults.append(f"this client may not {' and '.join(lacking)} the topic {topic!r}: grant it (kafka-acls)")
        if faults:
            raise TopologyError(faults)

    def identities(self, topics: Iterable[str]) -> dict[str, str]:
        """The id of each topic; one that is deleted and made anew has another."""
        wanted = sorted(topics)
        if not wanted:
            return {}
        with self._asking("describe topics"):
            asked = self._admin.describe_topics(TopicCollection(wanted), request_timeout=ANSWER)
            return {topic: str(asked[topic].result().topic_id) for topic in wanted}

    def largest_batches(self, topics: Iterable[str]) -> dict[str, int]:
        """How many bytes each topic takes at once, where this client may know (max.message.bytes)."""
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in sorted(topics)]
        if not resources:
            return {}
        with self._asking("describe the settings of topics"):
            asked = self._admin.describe_configs(resources, request_timeout=ANSWER)
        found = {}
        for resource, future in asked.items():
            try:
                found[resource.name] = int(future.result()["max.message.bytes"].value)
            except KafkaException as error:
                log.debug("the settings of %s are not told: %s", resource.name, error.args[0].str())
        return found

    def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        """The offset after the last record of each, whether its transaction is over or not."""
        return self._offsets(places, OffsetSpec.latest())  # type: ignore[no-untyped-call]  # as it is

    def starts(self, places: Iterable[Place]) -> dict[Place, int]:
        """The offset of the first record of each."""
        return self._offsets(places, OffsetSpec.earliest())  # type: ignore[no-untyped-call]  # as it is

    def _offsets(self, places: Iterable[Place], which: OffsetSpec) -> dict[Place, int]:
        asked = {TopicPartition(*place): which for place in places}
        if not asked:
            return {}
        with self._asking("say where partitions begin and end"):
            found = self._admin.list_offsets(
                asked, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=ANSWER
            )
            offsets = {(at.topic, at.partition): int(future.result().offset) for at, future in found.items()}
        for (topic, partition), at in offsets.items():
            # Taken for an offset, it would let a task start without its rows.
            if at < 0:
                raise Passing(f"Kafka at {self._bootstrap} does not know now where {topic}-{partition} begins and ends")
        return offsets

    def delete_before(self, offsets: Mapping[Place, int]) -> None:
        """Have records deleted that nobody needs any more, without waiting for it."""
        self._deletions = [future for future in self._deletions if not _done(future)]
        if offsets:
            asked = self._admin.delete_records([TopicPartition(*place, at) for place, at in offsets.items()])
            self._deletions += asked.values()


def _lacking(found: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    """The settings of a changelog that must be others: what is deleted, and how soon it is compacted.

    >>> _lacking({"cleanup.policy": "compact,delete", "min.compaction.lag.ms": "0"}, {"cleanup.policy": "compact"})
    {'cleanup.policy': 'compact'}
    >>> _lacking({"cleanup.policy": "compact", "min.compaction.lag.ms": "9"}, {"min.compaction.lag.ms": "5"})
    {}
    """
    lacking = {}
    policy, lag = "cleanup.policy", "min.compaction.lag.ms"
    if "delete" in found.get(policy, "compact") and policy in wanted:
        lacking[policy] = wanted[policy]
    if int(found.get(lag, "0")) < int(wanted.get(lag, "0")):
        lacking[lag] = wanted[lag]
    return lacking


def _done(deletion: Future[Any]) -> bool:
    """Whether a deletion is over; one that failed is tried again with the next, which covers it."""
    if not deletion.done():
        return False
    error = deletion.exception()
    if error is not None:
        log.warning("processed records of an internal topic could not be deleted: %s", error)
    return True
