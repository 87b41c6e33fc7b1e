"""What clients ask a Kafka cluster beside reading and writing: which topics there are, where partitions begin and end.
It owns how clients are made and what their errors mean to a user; asking leaves nothing changed."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it is documented there
    AdminClient,
    OffsetSpec,
)

from headwater.errors import StreamsError
from headwater.state.log import OutOfRange, UnknownTopic
from headwater.streams.consumer import Place, Start
from headwater.streams.kafka.settings import kafka_settings, without_secrets

__all__ = ["ANSWER", "ATTEMPT", "Asking", "KafkaQuestions", "remedy"]

_log = logging.getLogger("headwater")
T = TypeVar("T")

# How long brokers have to answer, in seconds.
ANSWER = 15.0
# How long all of them may be away; a broker that is started again is back by then.
_PATIENCE = 6.0
# How often the same trouble is told of.
_TOLD_SECONDS = 30.0
# How long one broker has to answer before another is asked.
ATTEMPT = 5.0
# What Kafka itself writes to.
INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
UNKNOWN = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.UNKNOWN_TOPIC_ID,
    }
)
# What passes by itself: a partition or a group has a new leader, or none yet.
AGAIN = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError._WAIT_COORD,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.REQUEST_TIMED_OUT,
    }
)
# What is said of one broker that has gone, or does not answer: others may.
_ONE_GONE = frozenset({KafkaError._TRANSPORT, KafkaError._TIMED_OUT})
_RIGHTS = "grant this client the rights (kafka-acls), or give it other credentials"
_NAME = "correct the name and the password (sasl.username, sasl.password) or the certificate (ssl.…)"
_REMEDIES: Mapping[int, str] = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: _RIGHTS,
    KafkaError.GROUP_AUTHORIZATION_FAILED: _RIGHTS,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: _RIGHTS,
    KafkaError.SASL_AUTHENTICATION_FAILED: _NAME,
    KafkaError._AUTHENTICATION: _NAME,
    KafkaError._SSL: "correct the certificates (ssl.ca.location, …), or the port: this one may not speak TLS",
    KafkaError._RESOLVE: "correct the host's name",
    KafkaError.MSG_SIZE_TOO_LARGE: "raise message.max.bytes in the settings and max.message.bytes of the topic, or "
    "make the record smaller",
    KafkaError.INVALID_RECORD: "give every record a key, if the topic is compacted",
    KafkaError.INVALID_TIMESTAMP: "change message.timestamp.before.max.ms or message.timestamp.after.max.ms of the "
    "topic, or the timestamp",
    KafkaError.POLICY_VIOLATION: "do what the cluster's policy asks for",
    KafkaError.INVALID_REPLICATION_FACTOR: "ask for no more copies than there are brokers",
    KafkaError.NON_EMPTY_GROUP: "stop its members first",
    KafkaError.GROUP_SUBSCRIBED_TO_TOPIC: "stop its members first",
    KafkaError.UNKNOWN_MEMBER_ID: "stop the group's members first",
}
_LOCKED = frozenset({KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED})
_AWAY = "start it, or correct the address or the settings"
_SILENT = frozenset(
    {KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._MSG_TIMED_OUT}
)


def remedy(error: KafkaError) -> str:
    """What to do about an error of Kafka's."""
    return _REMEDIES.get(error.code(), _AWAY if error.code() in _SILENT else "change what was asked for, or try again")


class _Hopeless(KafkaException):
    """No broker can be reached, or none lets us in: asking again does not help."""


class _Trouble:
    """Why nothing comes: librdkafka goes on trying, and says in the end only that its patience is over.

    It is no part of what holds the client, which would otherwise be closed only when garbage is collected.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self.reason: KafkaError | None = None
        self._all_down = False
        self._told: tuple[int, float] = (0, -math.inf)

    def note(self, error: KafkaError) -> None:
        """Remember what the client of a question says; it ends with the question's answer."""
        self._all_down = self._all_down or error.code() == KafkaError._ALL_BROKERS_DOWN
        if error.code() != KafkaError._ALL_BROKERS_DOWN or self.reason is None:
            self.reason = error

    def tell(self, error: KafkaError) -> None:
        """Say what a client says that goes on trying, now and then."""
        self.note(error)
        code, at = self._told
        if error.code() != code or time.monotonic() - at > _TOLD_SECONDS:
            self._told = (error.code(), time.monotonic())
            _log.warning("%s: %s. Trying again.", self._where, error.str())

    def clear(self) -> None:
        """An answer has come."""
        self.reason, self._all_down = None, False

    def raise_if_hopeless(self, began: float) -> None:
        """Do not wait for an answer that will not come: nobody is there, or they do not let us in."""
        if self.reason is None:
            return
        code, waited = self.reason.code(), time.monotonic() - began
        # Of several servers, one that cannot be reached says little.
        patience = 1.0 if code in (KafkaError._SSL, KafkaError._RESOLVE) else _PATIENCE
        if code in _LOCKED or (self._all_down and waited > patience):
            raise _Hopeless(self.reason)


class Asking:
    """How clients of one cluster are made, and what is raised when they cannot do what they are asked."""

    def __init__(self, broker: str, given: Mapping[str, str] | None) -> None:
        self._settings = kafka_settings(broker, given or {})
        self.where = f"Kafka at {self._settings['bootstrap.servers']}"
        self._trouble = _Trouble(self.where)

    def client(
        self, kind: Callable[[dict[str, Any]], T], defaults: Mapping[str, Any], own: Mapping[str, Any], *, tell: bool
    ) -> T:
        """Make a client: `defaults` give way to the user's settings, these to its `own`; one that works on by itself
        tells of its troubles."""
        noted = self._trouble.tell if tell else self._trouble.note
        settings = {"log_level": 0, **defaults, **self._settings, **own, "error_cb": noted}
        try:
            return kind(settings)
        except KafkaException as error:
            said = str(error.args[0].str()).partition(": ")
            text = without_secrets(said[2] if said[0].startswith("Failed to create") else "".join(said), settings)
            raise StreamsError(
                f"{self.where}: its client does not take its settings ({text.strip()}): correct them; the names are "
                "librdkafka's."
            ) from error

    @contextmanager
    def to(self, what: str) -> Iterator[None]:
        """Turn an error of Kafka's while it is asked to do something into one that says what to do."""
        try:
            yield
        except KafkaException as error:
            raise self.fault(what, error.args[0]) from error

    def ask(self, what: str, request: Callable[[], T]) -> T:
        """Return what a request gives; it is made again for a while, where that may help."""
        deadline = time.monotonic() + ANSWER
        with self.to(what):
            while True:
                try:
                    return request()
                except _Hopeless:
                    raise
                except KafkaException as error:
                    if error.args[0].code() not in AGAIN | _ONE_GONE or time.monotonic() > deadline:
                        raise
                    if error.args[0].code() in _ONE_GONE:
                        self.look_around()
                time.sleep(0.05)

    def look_around(self) -> None:
        """Find out which brokers there are now, before another is asked."""

    def fault(self, what: str, error: KafkaError) -> StreamsError:
        """What to raise for an error of Kafka's."""
        cause = (self._trouble.reason if error.code() in _SILENT else None) or error
        kind = UnknownTopic if error.code() in UNKNOWN else StreamsError
        said = without_secrets(str(cause.str()), self._settings)
        return kind(f"{self.where} cannot {what} ({said}): {remedy(cause)}.")


class KafkaQuestions(Asking):
    """Ask a cluster about its topics and partitions."""

    def __init__(self, broker: str, given: Mapping[str, str] | None) -> None:
        super().__init__(broker, given)
        self.admin = self.client(AdminClient, {}, {}, tell=False)

    def fault(self, what: str, error: KafkaError) -> StreamsError:
        """What to raise for an error of Kafka's, with what the client has to say of it."""
        self.admin.poll(0)
        return super().fault(what, error)

    def look_around(self) -> None:
        """Find out which brokers there are now: the client would go on asking the one that has gone."""
        with suppress(KafkaException):
            self.admin.list_topics(timeout=1)

    def answer(self, future: Future[T]) -> T:
        """What the cluster answers to a request, while it is polled: errors are told of only then."""
        began = time.monotonic()
        while not future.done() and time.monotonic() < began + ANSWER + 5:
            self.admin.poll(0.01)
            self._trouble.raise_if_hopeless(began)
        result = future.result(0)
        self._trouble.clear()
        return result

    def topics(self) -> dict[str, int]:
        """All topics but Kafka's own, and how many partitions each has."""
        with self.to("say which topics it has"):
            found = self._all_topics()
        return {name: len(topic.partitions) for name, topic in sorted(found.items()) if name not in INTERNAL}

    def _all_topics(self) -> dict[str, Any]:
        began = time.monotonic()
        while True:
            try:
                # Asking for one topic by its name could create it; asking for all does not.
                found = self.admin.list_topics(timeout=1).topics
                self._trouble.clear()
                return found
            except KafkaException as error:
                if error.args[0].code() not in _SILENT or time.monotonic() > began + ANSWER:
                    raise
            self.admin.poll(0)
            self._trouble.raise_if_hopeless(began)

    def describe(self, topics: Iterable[str]) -> dict[str, Any]:
        """The descriptions of topics, as the client gives them; UnknownTopic for one that is not there."""
        names = list(topics)
        if not names:
            return {}

        def request() -> dict[str, Any]:
            asked = self.admin.describe_topics(TopicCollection(names), request_timeout=ATTEMPT)
            return {name: self._described(name, future) for name, future in asked.items()}

        return self.ask(f"describe the topic {', '.join(map(repr, names))}", request)

    def _described(self, name: str, future: Future[T]) -> T:
        try:
            return self.answer(future)
        except KafkaException as error:
            if error.args[0].code() in UNKNOWN:
                raise self.unknown(name) from None
            raise

    def unknown(self, topic: str) -> UnknownTopic:
        """What to raise for a topic that is not there."""
        return UnknownTopic(
            f"There is no topic {topic!r} in {self.where}: create it (headwater topics create {topic} --broker …), or "
            "correct the name."
        )

    def no_partition(self, topic: str, count: int, number: int) -> UnknownTopic:
        """What to raise for a partition that a topic does not have."""
        return UnknownTopic(
            f"The topic {topic!r} in {self.where} has the partitions 0 to {count - 1} and no {number}: correct the "
            "number, or give it more partitions (headwater topics alter)."
        )

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has."""
        return len(self.describe([topic])[topic].partitions)

    def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        """The offset after the last record that no open transaction holds up."""
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # it has no types
        return {place: offset for place, (offset, _) in self.offsets(places, latest).items()}

    def starts(self, places: Iterable[Place]) -> dict[Place, int]:
        """The offset of the first record, or of the next one if there is none."""
        earliest = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # it has no types
        return {place: offset for place, (offset, _) in self.offsets(places, earliest).items()}

    def offsets(self, places: Iterable[Place], which: OffsetSpec) -> dict[Place, tuple[int, int]]:
        """Offset and timestamp of what is asked for in each partition; negative where there is nothing."""
        asked = {TopicPartition(*place): which for place in places}
        if not asked:
            return {}

        def request() -> dict[Place, tuple[int, int]]:
            futures = self.admin.list_offsets(
                asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=ANSWER
            )
            answers = {(at.topic, at.partition): self.answer(future) for at, future in futures.items()}
            return {place: (answer.offset, answer.timestamp) for place, answer in answers.items()}

        return self.ask("say where partitions begin and end", request)

    def first_offsets(self, places: Iterable[Place], start: Start) -> dict[Place, int]:
        """The offsets a start stands for; OutOfRange for a number above a partition's end."""
        wanted = list(places)
        if start == "earliest":
            return self.starts(wanted)
        ends = self.ends(wanted)
        if start == "latest":
            return ends
        if isinstance(start, datetime):
            spec = OffsetSpec.for_timestamp(int(start.timestamp() * 1000))
            found = self.offsets(wanted, spec)
            return {place: ends[place] if found[place][0] < 0 else found[place][0] for place in wanted}
        if isinstance(start, int):
            starts = self.starts(wanted)
            for place in wanted:
                if start > ends[place]:
                    raise OutOfRange(f"{place[0]}-{place[1]}", start, starts[place], ends[place])
            return {place: max(start, starts[place]) for place in wanted}
        missing = ", ".join(f"{topic}-{number}" for topic, number in wanted)
        raise StreamsError(
            f"{missing}: nothing is committed, so reading cannot start there: say 'earliest' or 'latest'."
        )
