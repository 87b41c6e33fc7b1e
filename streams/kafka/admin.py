"""The administration of a Kafka cluster: topics and groups made, shown, changed and deleted. It owns how settings of
topics are said to Kafka and read from it; what may be asked for is Admin's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec
from confluent_kafka import Consumer as Client
from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it is documented there
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from headwater.dsl.options import check_flag
from headwater.errors import StreamsError
from headwater.state.log import OutOfRange, TopicExists, TopicInfo, UnknownTopic
from headwater.streams.admin import (
    Admin,
    GroupDescription,
    GroupMember,
    GroupOffset,
    PartitionDescription,
    TopicDescription,
    altered_settings,
    new_settings,
)
from headwater.streams.broker import DEFAULT_BROKER
from headwater.streams.consumer import Place
from headwater.streams.kafka.offset_notes import note_of
from headwater.streams.kafka.questions import ANSWER, KafkaQuestions

__all__ = ["KafkaAdmin", "KafkaPartition", "KafkaTopic"]

_NAMES = {
    "retention_ms": "retention.ms",
    "retention_bytes": "retention.bytes",
    "segment_bytes": "segment.bytes",
    "segment_ms": "segment.ms",
}


class KafkaTopic(TopicInfo, frozen=True):
    """A topic of a cluster: its settings, and how many copies of it there are."""

    replication_factor: int = 1


class KafkaPartition(PartitionDescription, frozen=True):
    """A partition of a cluster: what it holds, and which brokers keep it; sizes are not told by them."""

    leader: int | None = None
    replicas: tuple[int, ...] = ()
    in_sync: tuple[int, ...] = ()


def _said(settings: Mapping[str, Any]) -> dict[str, str]:
    """Settings by our names as Kafka's.

    >>> _said({"compact": True, "delete": True, "retention_ms": None, "compression": "none"})
    {'cleanup.policy': 'compact,delete', 'retention.ms': '-1', 'compression.type': 'uncompressed'}
    """
    said = {}
    if "delete" in settings:
        words = [word for word in ("compact", "delete") if settings.get(word)]
        said["cleanup.policy"] = ",".join(words)
    said |= {
        theirs: "-1" if settings[ours] is None else str(settings[ours])
        for ours, theirs in _NAMES.items()
        if ours in settings
    }
    if settings.get("compression") is not None:
        said["compression.type"] = "uncompressed" if settings["compression"] == "none" else settings["compression"]
    return said


class KafkaAdmin(Admin):
    """What `Admin` is for a `kafka://` address."""

    def __init__(
        self, broker: str = DEFAULT_BROKER, *, create: bool = True, kafka: Mapping[str, str] | None = None
    ) -> None:
        self._questions = KafkaQuestions(broker, kafka)
        self._admin = self._questions.admin

    # Topics

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        compact: bool = False,
        retention: timedelta | msgspec.UnsetType | None = msgspec.UNSET,
        retention_bytes: int | None = None,
        segment_bytes: int | None = None,
        segment: timedelta | None = None,
        compression: Literal["lz4", "zstd", "none"] | None = None,
        replication_factor: int | None = None,
        kafka: Mapping[str, str] | None = None,
        exist_ok: bool = False,
    ) -> None:
        """Make a topic, as Admin.create_topic does; what is left out is the cluster's choice."""
        check_flag("exist_ok=", exist_ok)
        given = new_settings(compact, retention, retention_bytes, segment_bytes, segment, compression)
        if not compact and retention is msgspec.UNSET and retention_bytes is None:
            del given["delete"]
        if retention_bytes is None:
            del given["retention_bytes"]
        new = NewTopic(
            name,
            partitions,
            -1 if replication_factor is None else replication_factor,
            config={**_said(given), **(kafka or {})},
        )
        try:
            with self._questions.to(f"create the topic {name!r}"):
                asked = self._admin.create_topics([new], operation_timeout=ANSWER, request_timeout=ANSWER)
                self._questions.answer(asked[name])
        except StreamsError as error:
            if not _is(error, KafkaError.TOPIC_ALREADY_EXISTS):
                raise
            if not exist_ok:
                raise TopicExists(
                    f"There is a topic {name!r} already in {self._questions.where}: take another name."
                ) from error
            return
        self._await(lambda: self._count(name) == partitions, f"show the topic {name!r} that it has just created")

    def _count(self, topic: str) -> int | None:
        return self._questions.topics().get(topic)

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until all brokers have heard of a change, at least those that answer here."""
        deadline = time.monotonic() + ANSWER
        while not condition():
            if time.monotonic() > deadline:
                raise StreamsError(f"{self._questions.where} does not {what}: look whether all its brokers are well.")
            time.sleep(0.02)

    def topics(self) -> list[TopicInfo]:
        """Return the settings of all topics but Kafka's own, by name."""
        return list(self._infos(self._questions.topics()).values())

    def _infos(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        described = self._questions.describe(names)
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in described]

        def request() -> dict[str, Any]:
            asked = self._admin.describe_configs(resources, request_timeout=ANSWER) if resources else {}
            return {resource.name: self._questions.answer(future) for resource, future in asked.items()}

        settings = self._questions.ask("say how topics are set up", request)
        return {name: _info(described[name], settings[name]) for name in sorted(described)}

    def partitions(self, topic: str) -> int:
        """Return how many partitions a topic has; UnknownTopic if there is none."""
        return self._questions.partitions(topic)

    def describe(self, topic: str) -> TopicDescription:
        """Return a topic's settings and what its partitions hold."""
        info = self._infos([topic])[topic]
        places = [(topic, number) for number in range(info.partitions)]
        starts, ends = self._questions.starts(places), self._questions.ends(places)
        newest = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]  # it has no types
        times = self._questions.offsets(places, newest)
        partitions = []
        for one in self._questions.describe([topic])[topic].partitions:
            place, time_ = (topic, one.id), times[topic, one.id][1]
            partitions.append(
                KafkaPartition(
                    one.id,
                    starts[place],
                    ends[place],
                    None,
                    None,
                    None if time_ < 0 else time_,
                    None if one.leader is None else one.leader.id,
                    tuple(node.id for node in one.replicas),
                    tuple(node.id for node in one.isr),
                )
            )
        return TopicDescription(info, tuple(partitions))

    def alter_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        compact: bool | None = None,
        retention: timedelta | msgspec.UnsetType | None = msgspec.UNSET,
        retention_bytes: int | msgspec.UnsetType | None = msgspec.UNSET,
        segment_bytes: int | None = None,
        segment: timedelta | None = None,
        compression: Literal["lz4", "zstd", "none"] | None = None,
        kafka: Mapping[str, str] | None = None,
    ) -> None:
        """Change what is given and leave the rest; partitions may only grow, and keys then move to other ones."""
        there = self._infos([name])[name]
        changes = altered_settings(
            there, partitions, compact, retention, retention_bytes, segment_bytes, segment, compression
        )
        count = changes.pop("partitions", there.partitions)
        if count < there.partitions:
            raise StreamsError(
                f"The topic {name!r} has {there.partitions} partitions and cannot have {count}: they may only grow. "
                "Create another topic and copy the records."
            )
        if "delete" in changes:
            changes.setdefault("compact", there.compact)
        said = {**_said(changes), **(kafka or {})}
        if said:
            entries = [
                ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in said.items()
            ]
            resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
            with self._questions.to(f"alter the topic {name!r}"):
                asked = self._admin.incremental_alter_configs([resource], request_timeout=ANSWER)
                self._questions.answer(asked[resource])
        if count > there.partitions:
            with self._questions.to(f"give more partitions to the topic {name!r}"):
                grown = self._admin.create_partitions([NewPartitions(name, count)], request_timeout=ANSWER)
                self._questions.answer(grown[name])
            self._await(lambda: self._count(name) == count, f"show the new partitions of {name!r}")

    def delete_topic(self, name: str) -> None:
        """Delete a topic, its records and what groups have committed for it."""
        try:
            with self._questions.to(f"delete the topic {name!r}"):
                asked = self._admin.delete_topics([name], operation_timeout=ANSWER, request_timeout=ANSWER)
                self._questions.answer(asked[name])
        except UnknownTopic:
            raise self._questions.unknown(name) from None
        self._await(lambda: self._count(name) is None, f"forget the topic {name!r} that it has just deleted")

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Delete the records of a partition below an offset, for good."""
        place = (topic, partition)
        count = self._questions.partitions(topic)
        if not 0 <= partition < count:
            raise self._questions.no_partition(topic, count, partition)
        try:
            with self._questions.to(f"delete records of {topic}-{partition}"):
                asked = self._admin.delete_records([TopicPartition(*place, before)], request_timeout=ANSWER)
                for future in asked.values():
                    self._questions.answer(future)
        except StreamsError as error:
            if not _is(error, KafkaError.OFFSET_OUT_OF_RANGE):
                raise
            start, end = self._questions.starts([place])[place], self._questions.ends([place])[place]
            raise OutOfRange(f"{topic}-{partition}", before, start, end) from error

    def maintain(self) -> None:
        """Nothing: Kafka's brokers delete and compact by themselves."""

    # Groups

    def groups(self) -> list[str]:
        """Return the names of all groups that have committed offsets or have members."""

        def request() -> list[str]:
            found = self._questions.answer(self._admin.list_consumer_groups(request_timeout=ANSWER))
            for error in found.errors or ():
                raise error if isinstance(error, KafkaException) else KafkaException(error)
            return sorted(listing.group_id for listing in found.valid or ())

        return self._questions.ask("say which groups there are", request)

    def describe_group(self, name: str) -> GroupDescription:
        """Return a group's live members and how far it has read."""
        members = self._members(name)
        committed = self.committed(name)
        if not members and not committed and name not in (there := self.groups()):
            known = ", ".join(there) or "none at all"
            raise StreamsError(f"There is no group {name!r} in {self._questions.where}, only {known}.")
        owners = {unit: member.name for member in members for unit in member.owns}
        starts, ends = self._questions.starts(committed), self._questions.ends(committed)
        offsets = [
            GroupOffset(*place, at, starts[place], ends[place], owners.get(f"{place[0]}-{place[1]}"))
            for place, at in committed.items()
        ]
        return GroupDescription(name, members, tuple(offsets))

    def _members(self, name: str) -> tuple[GroupMember, ...]:
        def request() -> Any:
            asked = self._admin.describe_consumer_groups([name], request_timeout=ANSWER)
            return self._questions.answer(asked[name])

        try:
            found = self._questions.ask(f"describe the group {name!r}", request)
        except StreamsError as error:
            if _is(error, KafkaError.GROUP_ID_NOT_FOUND):
                return ()
            raise
        if found.state == ConsumerGroupState.DEAD:
            return ()
        members = []
        for member in found.members:
            places = member.assignment.topic_partitions if member.assignment is not None else []
            owns = sorted((at.topic, at.partition) for at in places)
            members.append(GroupMember(member.member_id, tuple(f"{topic}-{number}" for topic, number in owns)))
        return tuple(sorted(members, key=lambda member: member.name))

    @contextmanager
    def _speaking_for(self, group: str) -> Iterator[Client]:
        """A client that speaks for a group without being its member.

        Not the administrative one: asked for a group's offsets while its coordinator moves, librdkafka 2.16 crashes.
        """
        client = self._questions.client(Client, {}, {"group.id": group, "enable.auto.commit": False}, tell=False)
        try:
            yield client
        finally:
            client.close()

    def committed(self, group: str) -> dict[Place, int]:
        """Return what a group has committed, in the topics that are there."""
        return {place: at for place, (at, _) in self.committed_notes(group).items()}

    def waiting(self, offsets: Mapping[Place, int]) -> dict[Place, int]:
        """Of these offsets those behind which there is something, each where reading goes on."""
        starts, ends = self._questions.starts(offsets), self._questions.ends(offsets)
        return {place: max(at, starts[place]) for place, at in offsets.items() if at < ends[place]}

    def committed_notes(self, group: str) -> dict[Place, tuple[int, str]]:
        """Return what a group has committed, in the topics that are there, each with its metadata."""
        counts = self._questions.topics()
        asked = [TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)]
        if not asked:
            return {}
        with self._speaking_for(group) as client:
            what = f"say what the group {group!r} has committed"
            found = self._questions.ask(what, lambda: client.committed(asked, timeout=ANSWER))
        return {
            (at.topic, at.partition): (at.offset, note_of(at)) for at in found if at.error is None and at.offset >= 0
        }

    def reset_offsets(
        self,
        group: str,
        to: Literal["earliest", "latest"] | int | datetime,
        topics: Iterable[str] = (),
        *,
        partitions: Iterable[int] | None = None,
        dry_run: bool = False,
    ) -> dict[Place, tuple[int | None, int]]:
        """Set where a group reads next and return (before, after) of each partition; refused while it has members."""
        check_flag("dry_run=", dry_run)
        names = list(topics)
        if not names:
            self.describe_group(group)
        self._refuse_application(group)
        committed = self.committed(group)
        wanted = None if partitions is None else set(partitions)
        places = [(name, number) for name in names for number in range(self._questions.partitions(name))]
        chosen = [place for place in sorted(places or committed) if wanted is None or place[1] in wanted]
        if not chosen:
            raise StreamsError(f"The group {group!r} has no offset there to reset: name a topic, or other partitions.")
        after = self.targets(chosen, to)
        if not dry_run:
            self.set_offsets(group, after)
        return {place: (committed.get(place), after[place]) for place in chosen}

    def _refuse_application(self, group: str) -> None:
        ends = ("-changelog", "-repartition")
        own = [t for t in self._questions.topics() if t.startswith(f"{group}-") and t.endswith(ends)]
        if own:
            raise StreamsError(
                f"{group!r} is an application with state ({own[0]}), which goes with its offsets: use `headwater "
                "reset`, or start it under another id."
            )

    def targets(self, places: list[Place], to: Literal["earliest", "latest"] | int | datetime) -> dict[Place, int]:
        """Return the offsets that a reset to something means; a number outside of a partition is the nearest inside."""
        if not isinstance(to, int):
            return self._questions.first_offsets(places, to)
        starts, ends = self._questions.starts(places), self._questions.ends(places)
        return {place: min(max(to, starts[place]), ends[place]) for place in places}

    def set_offsets(self, group: str, offsets: Mapping[Place, int]) -> None:
        """Commit offsets for a group; refused while it has live members."""
        self.refuse_if_alive(group, "reset")
        asked = [TopicPartition(*place, offset) for place, offset in offsets.items()]
        with self._speaking_for(group) as client:

            def request() -> None:
                for at in client.commit(offsets=asked, asynchronous=False) or []:
                    if at.error is not None:
                        raise KafkaException(at.error)

            self._questions.ask(f"set the offsets of the group {group!r}", request)

    def refuse_if_alive(self, group: str, what: str) -> None:
        """Raise if a group has live members."""
        alive = [member.name for member in self._members(group)]
        if alive:
            raise StreamsError(
                f"Cannot {what} the group {group!r} while it has live members: stop {', '.join(alive)} first."
            )

    def delete_group(self, name: str) -> None:
        """Delete a group and its committed offsets; refused while it has live members."""
        if name not in self.groups():
            self.describe_group(name)
        self.refuse_if_alive(name, "delete")
        with self._questions.to(f"delete the group {name!r}"):
            asked = self._admin.delete_consumer_groups([name], request_timeout=ANSWER)
            self._questions.answer(asked[name])


def _is(error: StreamsError, code: int) -> bool:
    cause = error.__cause__
    return isinstance(cause, KafkaException) and cause.args[0].code() == code


def _info(topic: Any, settings: Mapping[str, Any]) -> TopicInfo:
    def number(name: str) -> int | None:
        found = int(settings[name].value)
        return None if found < 0 else found

    policy = settings["cleanup.policy"].value.split(",")
    compression = settings["compression.type"].value
    return KafkaTopic(
        topic.name,
        str(topic.topic_id),
        len(topic.partitions),
        "compact" in policy,
        "delete" in policy,
        number("retention.ms"),
        number("retention.bytes"),
        number("segment.bytes") or 0,
        number("segment.ms") or 0,
        "none" if compression == "uncompressed" else compression,
        max((len(partition.replicas) for partition in topic.partitions), default=0),
    )
