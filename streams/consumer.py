"""The consumer: records out, one partition's in their order. It owns what may be asked for and, on the embedded log,
positions, when they are committed and which of a group's partitions are this member's; the files and locks behind them
are the log's. For a Kafka cluster it is streams/kafka/consumer.py that a Consumer comes from."""

import json
import logging
import os
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Literal, TypeAlias

import msgspec

from headwater.dsl.options import check_flag
from headwater.errors import StreamsError
from headwater.state.log import CorruptLog, Headers, Log, Member, OutOfRange, Partition
from headwater.streams.broker import is_kafka, open_log
from headwater.streams.kafka.settings import kafka_settings

__all__ = ["Consumer", "ConsumerRecord", "Place", "Start", "checked_wish", "first_offset"]

Start: TypeAlias = Literal["earliest", "latest", "committed"] | int | datetime
Place: TypeAlias = tuple[str, int]

_log = logging.getLogger("headwater")
# How often a member looks who else is there, and for new partitions; sooner while another holds part of its share.
_LOOK_SECONDS = 0.25
_SOON_SECONDS = 0.02
_LONGEST_REST = 0.02
_CHUNK = 500


class ConsumerRecord(msgspec.Struct, frozen=True):
    """A record as it lies in the log, with its place; the timestamp is epoch milliseconds."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


class _Assigned:
    """A partition this consumer reads, and how far it has handed it out."""

    __slots__ = ("held", "log", "paused", "place", "position")

    def __init__(self, place: Place, log: Partition, position: int) -> None:
        self.place, self.log, self.position = place, log, position
        self.paused, self.held = False, True


def checked_wish(
    topics: str | Iterable[str], group: str | None, start: Start, partitions: Iterable[int] | None
) -> tuple[tuple[str, ...], list[int] | None]:
    """Return the topics and the numbers of partitions that a consumer is to read; raise what cannot be asked for."""
    names = tuple(dict.fromkeys([topics] if isinstance(topics, str) else topics))
    if not names:
        raise StreamsError("A consumer needs at least one topic.")
    if isinstance(start, str) and start not in ("earliest", "latest", "committed"):
        raise StreamsError(f"start={start!r}: 'earliest', 'latest', 'committed', an offset or a datetime.")
    numbers = None if partitions is None else sorted(set(partitions))
    if group is not None and numbers is not None:
        raise StreamsError("A member of a group reads the partitions of its share: give group= or partitions=.")
    if group is None and start == "committed":
        raise StreamsError("Only a group has committed offsets: give group=, or another start.")
    if group == "":
        raise StreamsError("A group has a name: give one, or leave group= out.")
    return names, numbers


def first_offset(partition: Partition, start: Start) -> int:
    """Return the offset a start stands for in a partition; OutOfRange for a number above its end."""
    if isinstance(start, datetime):
        return partition.offset_at(int(start.timestamp() * 1000))
    if isinstance(start, int):
        if start > partition.end:
            raise OutOfRange(str(partition), start, partition.start, partition.end)
        return max(start, partition.start)
    if start in ("earliest", "latest"):
        return partition.start if start == "earliest" else partition.end
    raise StreamsError(f"{partition}: nothing is committed, so reading cannot start there: say 'earliest' or 'latest'.")


class Consumer:
    """Read the committed records of topics, alone or as a member of a group. Threads do not share one.

    `start` says where a partition is begun: "earliest", "latest", an offset, or a datetime for the first record that is
    not older. In a group what it has committed goes first, and start="committed" allows nothing else. If retention has
    deleted what is to be read next, reading goes on at the start of what is left, or at the end if start is "latest".

    Members of a group share the partitions of their topics; when one comes, leaves or dies, the others have its share
    within a second, provided they poll; on Kafka, when its brokers say so. What was handed out counts as processed when
    the next is asked for, and is committed every `commit_interval`, when a partition moves and at the end; with None
    only by `commit()`. `kafka` are settings of Kafka's client, by librdkafka's names.

    >>> from tempfile import TemporaryDirectory
    >>> from headwater import Admin, Consumer, Producer
    >>> folder = TemporaryDirectory()
    >>> broker = f"log://{folder.name}"
    >>> Admin(broker).create_topic("orders")
    >>> with Producer(broker) as producer:
    ...     for name in ("tea", "milk"):
    ...         producer.send("orders", value=name)
    >>> with Consumer(broker, "orders", group="kitchen") as consumer:
    ...     [(record.offset, record.value) for record in consumer.poll()]
    [(0, b'tea'), (1, b'milk')]
    >>> with Consumer(broker, "orders", group="kitchen") as consumer:
    ...     consumer.poll()
    []
    >>> folder.cleanup()
    """

    def __new__(cls, broker: str, *topics: Any, **options: Any) -> "Consumer":
        """The one for the address: on Kafka, a Consumer that reads there."""
        if cls is Consumer and is_kafka(broker):
            # First of all: it says so where the client is not installed.
            kafka_settings(broker, options.get("kafka") or {})
            from headwater.streams.kafka.consumer import KafkaConsumer

            return super().__new__(KafkaConsumer)
        return super().__new__(cls)

    def __init__(
        self,
        broker: str,
        topics: str | Iterable[str],
        *,
        group: str | None = None,
        start: Start = "earliest",
        partitions: Iterable[int] | None = None,
        commit_interval: timedelta | None = timedelta(seconds=5),
        kafka: Mapping[str, str] | None = None,
    ) -> None:
        self.topics, self._numbers = checked_wish(topics, group, start, partitions)
        self._start = start
        self._log: Log = open_log(broker, create=False)
        self._assigned: dict[Place, _Assigned] = {}
        self._turn = 0
        self._closed = False
        # Partitions that come later are read from their beginning: else what was sent before they were seen is missed.
        self._known = {topic: self._log.topic(topic).partitions for topic in self.topics}
        self._commit_seconds = None if commit_interval is None else commit_interval.total_seconds()
        self._next_commit = time.monotonic() + (self._commit_seconds or 0)
        self._next_look = 0.0
        self._group = None if group is None else self._log.group(group)
        self._member: str | None = None
        if self._group is not None:
            # Sorted by age: a newcomer changes least if it comes last.
            self._member = f"{time.time_ns():020d}-{os.getpid()}-{secrets.token_hex(2)}"
            self._group.join(self._member, json.dumps(sorted(self.topics)))
        try:
            self._look()
        except BaseException:
            self.close(commit=False)
            raise

    @property
    def member(self) -> str | None:
        """The name under which others see this consumer in its group, None without one."""
        return self._member

    def __enter__(self) -> "Consumer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close(commit=error is None)

    def close(self, *, commit: bool = True) -> None:
        """Commit what was handed out, unless told not to, and leave the group; a second time does nothing.

        After an exception a `with` block does not commit: what it was handed last is read again.

        >>> from tempfile import TemporaryDirectory
        >>> from headwater import Admin, Consumer
        >>> with TemporaryDirectory() as folder:
        ...     Admin(f"log://{folder}").create_topic("orders")
        ...     consumer = Consumer(f"log://{folder}", "orders")
        ...     consumer.close()
        ...     consumer.poll()
        Traceback (most recent call last):
        headwater.errors.StreamsError: The consumer is closed: make another to read more.
        """
        if self._closed:
            return
        check_flag("close: commit", commit)
        self._closed = True
        try:
            if commit and self._commit_seconds is not None:
                self._commit(self._assigned.values())
        finally:
            for assigned in self._assigned.values():
                assigned.log.close()
            self._assigned = {}
            if self._group is not None:
                self._group.close()

    # Reading

    def poll(self, max_records: int = _CHUNK, timeout: timedelta = timedelta(0)) -> list[ConsumerRecord]:
        """Return the next records, in order within each partition; wait for the first as long as `timeout` says.

        >>> from tempfile import TemporaryDirectory
        >>> from headwater import Admin, Consumer, Producer
        >>> folder = TemporaryDirectory()
        >>> broker = f"log://{folder.name}"
        >>> Admin(broker).create_topic("orders")
        >>> with Producer(broker) as producer:
        ...     producer.send("orders", key="ann", value="tea", timestamp=1000)
        >>> with Consumer(broker, "orders") as consumer:
        ...     consumer.poll(max_records=1)[0]
        ConsumerRecord(topic='orders', partition=0, offset=0, key=b'ann', value=b'tea', timestamp=1000, headers=())
        >>> folder.cleanup()
        """
        self._check_open()
        deadline = time.monotonic() + timeout.total_seconds()
        rest = 0.001
        while True:
            self._tend()
            out: list[ConsumerRecord] = []
            try:
                while len(out) < max_records and (chunk := self._read(max_records - len(out))) is not None:
                    assigned, records = chunk
                    assigned.position = records[-1].offset + 1
                    out += records
            except CorruptLog:
                # The sound records before it first: the next poll says so.
                if not out:
                    raise
            left = deadline - time.monotonic()
            if out or left <= 0:
                return out
            time.sleep(min(rest, left))
            rest = min(2 * rest, _LONGEST_REST)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Yield record by record, without an end; each counts as handed out when it is yielded."""
        rest = 0.001
        while True:
            self._check_open()
            self._tend()
            chunk = self._read(_CHUNK)
            if chunk is None:
                time.sleep(rest)
                rest = min(2 * rest, _LONGEST_REST)
                continue
            rest = 0.001
            assigned, records = chunk
            at = assigned.position
            for record in records:
                # Sought elsewhere, paused, or no longer ours: what was read ahead is void.
                if assigned.position != at or assigned.paused or not assigned.held:
                    break
                at = assigned.position = record.offset + 1
                yield record
                self._tend()

    def _read(self, room: int) -> tuple[_Assigned, list[ConsumerRecord]] | None:
        """Return what comes next in the partition whose turn it is, of those that have something."""
        all_assigned = list(self._assigned.values())
        for turn in range(self._turn, self._turn + len(all_assigned)):
            assigned = all_assigned[turn % len(all_assigned)]
            if assigned.paused:
                continue
            try:
                records = assigned.log.read(assigned.position, max_records=room)
            except OutOfRange as gone:
                self._reset(assigned, gone)
                records = assigned.log.read(assigned.position, max_records=room)
            if records:
                self._turn = (turn + 1) % len(all_assigned)
                topic, number = assigned.place
                return assigned, [
                    ConsumerRecord(topic, number, offset, key, value, timestamp, headers)
                    for key, value, timestamp, headers, offset in records
                ]
            assigned.position = assigned.log.behind_gap(assigned.position)
        return None

    def _reset(self, assigned: _Assigned, gone: OutOfRange) -> None:
        if self._start == "committed":
            raise gone
        assigned.position = gone.end if self._start == "latest" else gone.start
        _log.warning("%s Going on at %d.", gone, assigned.position)

    def _check_open(self) -> None:
        if self._closed:
            raise StreamsError("The consumer is closed: make another to read more.")

    # Who reads what

    def _tend(self) -> None:
        """Commit and look who is there, when it is time to; all that was handed out so far counts as processed."""
        now = time.monotonic()
        if self._commit_seconds is not None and now >= self._next_commit:
            self._commit(self._assigned.values())
            self._next_commit = now + self._commit_seconds
        if now >= self._next_look:
            self._look()

    def _look(self) -> None:
        """Take the partitions that are this consumer's share now, and give up those that no longer are."""
        counts = {topic: self._log.topic(topic).partitions for topic in self.topics}
        share = self._alone(counts) if self._group is None else self._share(counts)
        for place in self._assigned.keys() - share:
            self._release(place)
        complete = True
        for place in share:
            if place not in self._assigned:
                complete = self._acquire(place) and complete
        self._next_look = time.monotonic() + (_LOOK_SECONDS if complete else _SOON_SECONDS)

    def _alone(self, counts: dict[str, int]) -> list[Place]:
        return [
            (topic, number)
            for topic, count in counts.items()
            for number in (range(count) if self._numbers is None else self._numbers)
        ]

    def _share(self, counts: dict[str, int]) -> list[Place]:
        """Deal the partitions out to the members that read their topic; every member computes the same."""
        assert self._group is not None
        wishes = {member.name: _topics(self._group.name, member) for member in self._group.members()}
        if self._member not in wishes:
            raise StreamsError(f"This consumer is no longer in the group {self._group.name!r}: its files were removed.")
        for info in self._log.topics():
            if any(info.name in topics for topics in wishes.values()):
                counts[info.name] = info.partitions
        mine, turn = [], 0
        for topic in sorted(counts):
            readers = [name for name, topics in wishes.items() if topic in topics]
            for number in range(counts[topic]):
                if readers[turn % len(readers)] == self._member:
                    mine.append((topic, number))
                turn += 1
        return mine

    def _acquire(self, place: Place) -> bool:
        topic, number = place
        if self._group is not None and not self._group.acquire(f"{topic}-{number}"):
            return False
        partition = self._log.partition(topic, number)
        try:
            position = self._begin(place, partition)
        except BaseException:
            partition.close()
            raise
        self._assigned[place] = _Assigned(place, partition, position)
        return True

    def _begin(self, place: Place, partition: Partition) -> int:
        # Asked only now that the partition is ours: its last owner may have committed until it let go.
        offset = None if self._group is None else self._group.committed().get(place)
        if offset is None:
            return first_offset(partition, "earliest" if place[1] >= self._known[place[0]] else self._start)
        start = partition.start
        # Up to damage, if there is any: the read that reaches it says so.
        if start <= offset <= partition.sound_end:
            return offset
        end = partition.end
        if start <= offset <= end:
            return offset
        gone = OutOfRange(str(partition), offset, start, end)
        if self._start == "committed":
            raise gone
        _log.warning("%s", gone)
        return end if self._start == "latest" else start

    def _release(self, place: Place) -> None:
        assigned = self._assigned[place]
        if self._commit_seconds is not None:
            self._commit([assigned])
        del self._assigned[place]
        assigned.held = False
        assigned.log.close()
        if self._group is not None:
            self._group.release(f"{place[0]}-{place[1]}")

    def assignment(self) -> list[Place]:
        """Return the (topic, partition) pairs this consumer reads now.

        >>> from tempfile import TemporaryDirectory
        >>> from headwater import Admin, Consumer
        >>> with TemporaryDirectory() as folder:
        ...     Admin(f"log://{folder}").create_topic("orders", partitions=3)
        ...     with Consumer(f"log://{folder}", "orders", partitions=[0, 2]) as consumer:
        ...         print(consumer.assignment())
        [('orders', 0), ('orders', 2)]
        """
        return sorted(self._assigned)

    def _own(self, topic: str, partition: int) -> _Assigned:
        self._check_open()
        assigned = self._assigned.get((topic, partition))
        if assigned is None:
            mine = ", ".join(f"{name}-{number}" for name, number in self.assignment()) or "none"
            raise StreamsError(f"{topic}-{partition} is not among the partitions this consumer reads now: {mine}.")
        return assigned

    # Positions

    def position(self, topic: str, partition: int) -> int:
        """Return the offset that comes next in a partition.

        >>> from tempfile import TemporaryDirectory
        >>> from headwater import Admin, Consumer
        >>> with TemporaryDirectory() as folder:
        ...     Admin(f"log://{folder}").create_topic("orders")
        ...     with Consumer(f"log://{folder}", "orders") as consumer:
        ...         print(consumer.position("orders", 0))
        0
        """
        return self._own(topic, partition).position

    def lag(self) -> dict[Place, int]:
        """Return how many offsets lie between the position and the end, for each partition this consumer reads.

        >>> from tempfile import TemporaryDirectory
        >>> from headwater import Admin, Consumer
        >>> with TemporaryDirectory() as folder:
        ...     Admin(f"log://{folder}").create_topic("orders")
        ...     with Consumer(f"log://{folder}", "orders") as consumer:
        ...         print(consumer.lag())
        {('orders', 0): 0}
        """
        self._check_open()
        return {place: max(0, at.log.sound_end - at.position) for place, at in sorted(self._assigned.items())}

    def seek(self, topic: str, partition: int, to: Literal["earliest", "latest"] | int | datetime) -> None:
        """Go on reading a partition at its start, its end, an offset, or the first record not older than a time.

        >>> from tempfile import TemporaryDirectory
        >>> from headwater import Admin, Consumer, Producer
        >>> folder = TemporaryDirectory()
        >>> broker = f"log://{folder.name}"
        >>> Admin(broker).create_topic("orders")
        >>> with Producer(broker) as producer:
        ...     for name in ("tea", "milk"):
        ...         producer.send("orders", value=name)
        >>> with Consumer(broker, "orders", start="latest") as consumer:
        ...     consumer.seek("orders", 0, 1)
        ...     consumer.poll()[0].value
        b'milk'
        >>> folder.cleanup()
        """
        assigned = self._own(topic, partition)
        assigned.position = first_offset(assigned.log, to)

    def seek_to_time(self, timestamp: int | datetime) -> None:
        """Go on, in every partition, at the first record that is not older than a time (epoch milliseconds).

        >>> from tempfile import TemporaryDirectory
        >>> from headwater import Admin, Consumer, Producer
        >>> folder = TemporaryDirectory()
        >>> broker = f"log://{folder.name}"
        >>> Admin(broker).create_topic("orders")
        >>> with Producer(broker) as producer:
        ...     for second in range(3):
        ...         producer.send("orders", value=str(second), timestamp=second * 1000)
        >>> with Consumer(broker, "orders") as consumer:
        ...     consumer.seek_to_time(1500)
        ...     consumer.poll()[0].value
        b'2'
        >>> folder.cleanup()
        """
        self._check_open()
        moment = int(timestamp.timestamp() * 1000) if isinstance(timestamp, datetime) else timestamp
        for assigned in self._assigned.values():
            assigned.position = assigned.log.offset_at(moment)

    def pause(self, *places: Place) -> None:
        """Read nothing from these partitions, or from any if none is given, until `resume()`.

        >>> from tempfile import TemporaryDirectory
        >>> from headwater import Admin, Consumer, Producer
        >>> folder = TemporaryDirectory()
        >>> broker = f"log://{folder.name}"
        >>> Admin(broker).create_topic("orders")
        >>> with Producer(broker) as producer:
        ...     producer.send("orders", value="tea")
        >>> with Consumer(broker, "orders") as consumer:
        ...     consumer.pause(("orders", 0))
        ...     print(len(consumer.poll()))
        ...     consumer.resume()
        ...     print(len(consumer.poll()))
        0
        1
        >>> folder.cleanup()
        """
        self._set_paused(places, True)

    def resume(self, *places: Place) -> None:
        """Read from these partitions again, or from all if none is given.

        >>> from tempfile import TemporaryDirectory
        >>> from headwater import Admin, Consumer
        >>> with TemporaryDirectory() as folder:
        ...     Admin(f"log://{folder}").create_topic("orders")
        ...     with Consumer(f"log://{folder}", "orders") as consumer:
        ...         consumer.resume(("orders", 0))
        """
        self._set_paused(places, False)

    def _set_paused(self, places: tuple[Place, ...], paused: bool) -> None:
        for topic, partition in places or self.assignment():
            self._own(topic, partition).paused = paused

    # Commits

    def commit(self, offsets: Mapping[Place, int] | None = None) -> None:
        """Remember, durably and for the group, that all that was handed out so far has been processed.

        With `offsets` those are remembered instead: for each (topic, partition) the offset to read next.

        >>> from tempfile import TemporaryDirectory
        >>> from headwater import Admin, Consumer, Producer
        >>> folder = TemporaryDirectory()
        >>> broker = f"log://{folder.name}"
        >>> Admin(broker).create_topic("orders")
        >>> with Producer(broker) as producer:
        ...     producer.send("orders", value="tea")
        >>> with Consumer(broker, "orders", group="kitchen", commit_interval=None) as consumer:
        ...     for record in consumer:
        ...         consumer.commit()
        ...         break
        ...     consumer.committed()
        {('orders', 0): 1}
        >>> folder.cleanup()
        """
        self._check_open()
        if self._group is None:
            raise StreamsError("Only a group can commit: make the consumer with group=.")
        if offsets is None:
            self._commit(self._assigned.values())
        else:
            self._commit_offsets({self._own(*place): offset for place, offset in offsets.items()})

    def _commit(self, assigned: Iterable[_Assigned]) -> None:
        self._commit_offsets({one: one.position for one in assigned})

    def _commit_offsets(self, offsets: Mapping[_Assigned, int]) -> None:
        if self._group is None:
            return
        there = self._group.committed()
        moved = {one: offset for one, offset in offsets.items() if there.get(one.place) != offset}
        for one in moved:
            # An offset must never point past what a power loss leaves.
            one.log.sync()
        self._group.commit({one.place: offset for one, offset in moved.items()})

    def committed(self) -> dict[Place, int]:
        """Return the offsets that the group has committed in the topics of this consumer.

        >>> from tempfile import TemporaryDirectory
        >>> from headwater import Admin, Consumer
        >>> with TemporaryDirectory() as folder:
        ...     Admin(f"log://{folder}").create_topic("orders")
        ...     with Consumer(f"log://{folder}", "orders", group="kitchen") as consumer:
        ...         print(consumer.committed())
        {}
        """
        if self._group is None:
            return {}
        return {place: at for place, at in sorted(self._group.committed().items()) if place[0] in self.topics}


def _topics(group: str, member: Member) -> list[str]:
    """Return the topics a member said that it reads."""
    try:
        return msgspec.json.decode(member.note, type=list[str])
    except msgspec.MsgspecError:
        raise StreamsError(
            f"The group {group!r} is that of a running application (member {member.name}): take another name."
        ) from None
