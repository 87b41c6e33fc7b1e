"""The administration: topics and groups made, shown, changed and deleted. It owns the questions people ask across
topics, partitions and groups; each single answer is the log's. For a Kafka cluster it is streams/kafka/admin.py that an
Admin comes from."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

import msgspec

from headwater.dsl.durations import checked_ms, to_ms
from headwater.dsl.options import check_flag
from headwater.errors import StreamsError
from headwater.state.log import Group, TopicInfo
from headwater.streams.broker import DEFAULT_BROKER, is_kafka, open_log
from headwater.streams.consumer import first_offset
from headwater.streams.kafka.settings import kafka_settings

__all__ = [
    "Admin",
    "GroupDescription",
    "GroupMember",
    "GroupOffset",
    "PartitionDescription",
    "TopicDescription",
    "altered_settings",
    "new_settings",
]

Place: TypeAlias = tuple[str, int]


class PartitionDescription(msgspec.Struct, frozen=True):
    """What a partition holds: the offsets from `start` up to but not including `end`; None is what is not known."""

    partition: int
    start: int
    end: int
    size_bytes: int | None
    segments: int | None
    last_timestamp: int | None
    """The highest of its records, None without any."""


class TopicDescription(msgspec.Struct, frozen=True):
    """A topic's settings and what its partitions hold."""

    info: TopicInfo
    partitions: tuple[PartitionDescription, ...]


class GroupMember(msgspec.Struct, frozen=True):
    """A live member of a group and what it owns: partitions, or tasks in an application."""

    name: str
    owns: tuple[str, ...]


class GroupOffset(msgspec.Struct, frozen=True):
    """How far a group has read a partition; `start` and `end` are None if there is no such partition any more."""

    topic: str
    partition: int
    committed: int
    start: int | None
    end: int | None
    owner: str | None

    @property
    def lag(self) -> int | None:
        """How many offsets are left to read."""
        return None if self.end is None or self.start is None else max(0, self.end - max(self.committed, self.start))


class GroupDescription(msgspec.Struct, frozen=True):
    """A group's live members and committed offsets."""

    name: str
    members: tuple[GroupMember, ...]
    offsets: tuple[GroupOffset, ...]


class Admin:
    """Make, show, change and delete topics and groups of an embedded log or a Kafka cluster. It need not be closed.

    `kafka` are settings of Kafka's client, by librdkafka's names.

    >>> from tempfile import TemporaryDirectory
    >>> from headwater import Admin
    >>> with TemporaryDirectory() as folder:
    ...     admin = Admin(f"log://{folder}")
    ...     admin.create_topic("orders", partitions=2)
    ...     print([(topic.name, topic.partitions) for topic in admin.topics()])
    [('orders', 2)]
    """

    def __new__(cls, broker: str = DEFAULT_BROKER, **options: Any) -> "Admin":
        """The one for the address: on Kafka, an Admin of that cluster."""
        if cls is Admin and is_kafka(broker):
            # First of all: it says so where the client is not installed.
            kafka_settings(broker, options.get("kafka") or {})
            from headwater.streams.kafka.admin import KafkaAdmin

            return super().__new__(KafkaAdmin)
        return super().__new__(cls)

    def __init__(
        self, broker: str = DEFAULT_BROKER, *, create: bool = True, kafka: Mapping[str, str] | None = None
    ) -> None:
        self._log = open_log(broker, create=create)

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
        """Make a topic; with `exist_ok` one that is there already stays as it is.

        Records are kept for 7 days after they were written (after their timestamp, if that is later), or as long as
        `retention` says, None without limit. With `compact` the last record of each key is kept, for ever unless a
        retention is given too. Batches of the log are compressed with lz4. On Kafka, what is left out is the cluster's
        choice, and `kafka` has further settings of the topic by Kafka's names.

        >>> from tempfile import TemporaryDirectory
        >>> from headwater import Admin
        >>> with TemporaryDirectory() as folder:
        ...     admin = Admin(f"log://{folder}")
        ...     admin.create_topic("customers", partitions=4, compact=True)
        ...     customers = admin.describe("customers").info
        ...     print(customers.partitions, customers.compact, customers.delete)
        4 True False
        """
        _refuse_copies(name, replication_factor, kafka)
        check_flag("exist_ok=", exist_ok)
        settings = new_settings(compact, retention, retention_bytes, segment_bytes, segment, compression)
        self._log.create_topic(name, partitions, exist_ok=exist_ok, **settings)

    def topics(self) -> list[TopicInfo]:
        """Return the settings of all topics, by name.

        >>> from tempfile import TemporaryDirectory
        >>> from headwater import Admin
        >>> with TemporaryDirectory() as folder:
        ...     print(Admin(f"log://{folder}").topics())
        []
        """
        return self._log.topics()

    def partitions(self, topic: str) -> int:
        """Return how many partitions a topic has; UnknownTopic if there is none.

        >>> from tempfile import TemporaryDirectory
        >>> from headwater import Admin
        >>> with TemporaryDirectory() as folder:
        ...     admin = Admin(f"log://{folder}")
        ...     admin.create_topic("orders", partitions=3)
        ...     print(admin.partitions("orders"))
        3
        """
        return self._log.topic(topic).partitions

    def describe(self, topic: str) -> TopicDescription:
        """Return a topic's settings and what its partitions hold.

        >>> from tempfile import TemporaryDirectory
        >>> from headwater import Admin, Producer
        >>> with TemporaryDirectory() as folder:
        ...     admin = Admin(f"log://{folder}")
        ...     admin.create_topic("orders")
        ...     with Producer(f"log://{folder}") as producer:
        ...         producer.send("orders", value="tea")
        ...     print([(one.partition, one.start, one.end) for one in admin.describe("orders").partitions])
        [(0, 0, 1)]
        """
        info = self._log.topic(topic)
        described = []
        for number in range(info.partitions):
            with self._log.partition(topic, number) as partition:
                segments = partition.segments()
                times = [one.max_timestamp for one in segments if one.max_timestamp is not None]
                described.append(
                    PartitionDescription(
                        number,
                        partition.start,
                        partition.end,
                        sum(one.size for one in segments),
                        len(segments),
                        max(times, default=None),
                    )
                )
        return TopicDescription(info, tuple(described))

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
        """Change what is given and leave the rest; partitions may only grow, and keys then move to other ones.

        >>> from tempfile import TemporaryDirectory
        >>> from datetime import timedelta
        >>> from headwater import Admin
        >>> with TemporaryDirectory() as folder:
        ...     admin = Admin(f"log://{folder}")
        ...     admin.create_topic("orders")
        ...     admin.alter_topic("orders", partitions=3, retention=timedelta(days=30))
        ...     print(admin.topics()[0].partitions, admin.topics()[0].retention_ms)
        3 2592000000
        """
        _refuse_copies(name, None, kafka)
        changes = altered_settings(
            self._log.topic(name), partitions, compact, retention, retention_bytes, segment_bytes, segment, compression
        )
        self._log.alter_topic(name, **changes)

    def delete_topic(self, name: str) -> None:
        """Delete a topic, its records and what groups have committed for it.

        >>> from tempfile import TemporaryDirectory
        >>> from headwater import Admin
        >>> with TemporaryDirectory() as folder:
        ...     admin = Admin(f"log://{folder}")
        ...     admin.create_topic("orders")
        ...     admin.delete_topic("orders")
        ...     print(admin.topics())
        []
        """
        self._log.delete_topic(name)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Delete the records of a partition below an offset, for good.

        >>> from tempfile import TemporaryDirectory
        >>> from headwater import Admin, Producer
        >>> with TemporaryDirectory() as folder:
        ...     admin = Admin(f"log://{folder}")
        ...     admin.create_topic("orders")
        ...     with Producer(f"log://{folder}") as producer:
        ...         for name in ("tea", "milk"):
        ...             producer.send("orders", value=name)
        ...     admin.delete_records("orders", 0, before=1)
        ...     print(admin.describe("orders").partitions[0].start)
        1
        """
        with self._log.partition(topic, partition) as there:
            there.delete_before(before)

    def maintain(self) -> None:
        """Delete and compact what the topics' settings say, now; a running application does it by itself.

        >>> from tempfile import TemporaryDirectory
        >>> from headwater import Admin
        >>> with TemporaryDirectory() as folder:
        ...     Admin(f"log://{folder}").maintain()
        """
        self._log.maintain()

    # Groups

    def groups(self) -> list[str]:
        """Return the names of all groups that have committed offsets or had members.

        >>> from tempfile import TemporaryDirectory
        >>> from headwater import Admin, Consumer
        >>> with TemporaryDirectory() as folder:
        ...     admin = Admin(f"log://{folder}")
        ...     admin.create_topic("orders")
        ...     with Consumer(f"log://{folder}", "orders", group="kitchen"):
        ...         print(admin.groups())
        ['kitchen']
        """
        return self._log.groups()

    def describe_group(self, name: str) -> GroupDescription:
        """Return a group's live members and how far it has read.

        >>> from tempfile import TemporaryDirectory
        >>> from headwater import Admin, Consumer
        >>> with TemporaryDirectory() as folder:
        ...     admin = Admin(f"log://{folder}")
        ...     admin.create_topic("orders")
        ...     with Consumer(f"log://{folder}", "orders", group="kitchen"):
        ...         print([member.owns for member in admin.describe_group("kitchen").members])
        [('orders-0',)]
        """
        group = self._group(name)
        owners = group.owners()
        members = tuple(
            GroupMember(member.name, tuple(sorted(unit for unit, owner in owners.items() if owner == member.name)))
            for member in group.members()
        )
        offsets = []
        for (topic, number), at in sorted(group.committed().items()):
            start, end = self._range((topic, number))
            offsets.append(GroupOffset(topic, number, at, start, end, owners.get(f"{topic}-{number}")))
        return GroupDescription(name, members, tuple(offsets))

    def _range(self, place: Place) -> tuple[int, int] | tuple[None, None]:
        topic, number = place
        counts = {info.name: info.partitions for info in self._log.topics()}
        if number >= counts.get(topic, 0):
            return None, None
        with self._log.partition(topic, number) as partition:
            return partition.start, partition.end

    def _group(self, name: str) -> Group:
        if name not in (there := self._log.groups()):
            known = ", ".join(there) or "none at all"
            raise StreamsError(f"There is no group {name!r} in {self._log.directory}, only {known}.")
        return self._log.group(name)

    def reset_offsets(
        self,
        group: str,
        to: Literal["earliest", "latest"] | int | datetime,
        topics: Iterable[str] = (),
        *,
        partitions: Iterable[int] | None = None,
        dry_run: bool = False,
    ) -> dict[Place, tuple[int | None, int]]:
        """Set where a group reads next and return (before, after) of each partition; refused while it has live members.

        Without `topics` it is all the group has committed for. An offset outside of what a partition holds becomes the
        nearest that is inside.

        >>> from tempfile import TemporaryDirectory
        >>> from headwater import Admin, Consumer, Producer
        >>> with TemporaryDirectory() as folder:
        ...     admin = Admin(f"log://{folder}")
        ...     admin.create_topic("orders")
        ...     with Producer(f"log://{folder}") as producer:
        ...         producer.send("orders", value="tea")
        ...     with Consumer(f"log://{folder}", "orders", group="kitchen") as consumer:
        ...         _ = consumer.poll()
        ...     print(admin.reset_offsets("kitchen", "earliest"))
        {('orders', 0): (1, 0)}
        """
        check_flag("dry_run=", dry_run)
        names = list(topics)
        there = self._log.group(group) if names else self._group(group)
        if (self._log.directory / "apps" / group).is_dir():
            raise StreamsError(
                f"{group!r} is an application, which keeps its offsets with its state: use `headwater reset`, "
                "or start it under another id."
            )
        committed = there.committed()
        wanted = None if partitions is None else set(partitions)
        places = [(name, number) for name in names for number in range(self._log.topic(name).partitions)]
        changes = {
            place: (committed.get(place), self._target(place, to))
            for place in sorted(places or committed)
            if wanted is None or place[1] in wanted
        }
        if not changes:
            raise StreamsError(f"The group {group!r} has no offset there to reset: name a topic, or other partitions.")
        if not dry_run:
            there.reset({place: after for place, (_, after) in changes.items()})
        return changes

    def _target(self, place: Place, to: Literal["earliest", "latest"] | int | datetime) -> int:
        with self._log.partition(*place) as partition:
            return first_offset(partition, min(to, partition.end) if isinstance(to, int) else to)

    def delete_group(self, name: str) -> None:
        """Delete a group and its committed offsets; refused while it has live members.

        >>> from tempfile import TemporaryDirectory
        >>> from headwater import Admin, Consumer
        >>> with TemporaryDirectory() as folder:
        ...     admin = Admin(f"log://{folder}")
        ...     admin.create_topic("orders")
        ...     Consumer(f"log://{folder}", "orders", group="kitchen").close()
        ...     admin.delete_group("kitchen")
        ...     print(admin.groups())
        []
        """
        self._group(name).delete()


def _check_settings(compact: object, retention: object, segment: object) -> None:
    check_flag("compact=", compact)
    faults: list[str] = []
    if retention is not None and not isinstance(retention, msgspec.UnsetType):
        checked_ms("retention=", retention, faults)
    if segment is not None:
        checked_ms("segment=", segment, faults)
    if faults:
        raise StreamsError("; ".join(faults))


def new_settings(
    compact: bool,
    retention: timedelta | msgspec.UnsetType | None,
    retention_bytes: int | None,
    segment_bytes: int | None,
    segment: timedelta | None,
    compression: str | None,
) -> dict[str, Any]:
    """The settings of a new topic that are said; by TopicInfo's names."""
    _check_settings(compact, retention, segment)
    settings: dict[str, Any] = {"compact": compact, "retention_bytes": retention_bytes}
    if compression is not None:
        settings["compression"] = compression
    if segment_bytes is not None:
        settings["segment_bytes"] = segment_bytes
    if segment is not None:
        settings["segment_ms"] = to_ms(segment)
    if isinstance(retention, timedelta):
        settings["retention_ms"] = to_ms(retention)
    elif retention is None or compact:
        settings["retention_ms"] = None
    settings["delete"] = not compact or settings["retention_ms"] is not None or retention_bytes is not None
    return settings


def altered_settings(
    there: TopicInfo,
    partitions: int | None,
    compact: bool | None,
    retention: timedelta | msgspec.UnsetType | None,
    retention_bytes: int | msgspec.UnsetType | None,
    segment_bytes: int | None,
    segment: timedelta | None,
    compression: str | None,
) -> dict[str, Any]:
    """The settings of a topic that change, with what follows from them; by TopicInfo's names."""
    _check_settings(False if compact is None else compact, retention, segment)
    given = {
        "partitions": partitions,
        "compact": compact,
        "segment_bytes": segment_bytes,
        "segment_ms": None if segment is None else to_ms(segment),
        "compression": compression,
    }
    changes: dict[str, Any] = {setting: value for setting, value in given.items() if value is not None}
    if not isinstance(retention, msgspec.UnsetType):
        changes["retention_ms"] = None if retention is None else to_ms(retention)
    if not isinstance(retention_bytes, msgspec.UnsetType):
        changes["retention_bytes"] = retention_bytes
    if changes.keys() & {"compact", "retention_ms", "retention_bytes"}:
        kept_ms = changes.get("retention_ms", there.retention_ms)
        if compact and not there.compact and "retention_ms" not in changes:
            kept_ms = changes["retention_ms"] = None
        limited = kept_ms is not None or changes.get("retention_bytes", there.retention_bytes) is not None
        changes["delete"] = limited or not changes.get("compact", there.compact)
    return changes


def _refuse_copies(topic: str, copies: int | None, kafka: Mapping[str, str] | None) -> None:
    if copies not in (None, 1):
        raise StreamsError(
            f"{topic}: {copies} copies cannot be kept: the embedded log keeps one copy of each record, on this "
            "machine. Leave the replication factor out or give 1; for more copies, copy the directory or take Kafka."
        )
    if kafka:
        raise StreamsError(
            f"{topic}: the embedded log has no setting {', '.join(sorted(kafka))}: leave it out, or take Kafka."
        )
