"""The inputs of a task: a queue per topic partition, and the choice of the next record among them. It owns when a
record is decoded and stamped (as it becomes the head of its queue) and the order of heads with equal timestamps, which
is that of Java's priority queue; what becomes of a bad record is decided by the handlers it is given.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from headwater.dsl.records import Headers
from headwater.dsl.topology import Source

__all__ = ["UNKNOWN", "Head", "JavaQueue", "PartitionGroup", "RawRecord", "RecordQueue"]

UNKNOWN = -1

# A record as it was read: key, value, timestamp, headers, offset.
RawRecord: TypeAlias = tuple[bytes | None, bytes | None, int, Headers, int]


class Timed(Protocol):
    """What can wait in a JavaQueue."""

    time: int


T = TypeVar("T", bound=Timed)


class JavaQueue(Generic[T]):
    """A binary heap by `time` that breaks ties as java.util.PriorityQueue does; heapq moves other elements.

    >>> from types import SimpleNamespace
    >>> queue = JavaQueue()
    >>> for name, time in (("a", 1), ("b", 1), ("c", 1)):
    ...     queue.offer(SimpleNamespace(name=name, time=time))
    >>> [queue.poll().name for _ in range(3)]
    ['a', 'c', 'b']
    """

    __slots__ = ("items",)

    def __init__(self) -> None:
        self.items: list[T] = []

    def offer(self, item: T) -> None:
        """Add an element."""
        items = self.items
        at = len(items)
        items.append(item)
        while at:
            parent = (at - 1) >> 1
            if item.time >= items[parent].time:
                break
            items[at] = items[parent]
            at = parent
        items[at] = item

    def poll(self) -> T:
        """Remove and return the element with the lowest time."""
        items = self.items
        first, last = items[0], items.pop()
        size = len(items)
        if not size:
            return first
        at, half = 0, size >> 1
        while at < half:
            child = 2 * at + 1
            right = child + 1
            if right < size and items[child].time > items[right].time:
                child = right
            if last.time <= items[child].time:
                break
            items[at] = items[child]
            at = child
        items[at] = last
        return first


class Head(NamedTuple):
    """The decoded first record of a queue; a `bad` one is only there to move the offset past it."""

    time: int
    raw: RawRecord
    key: Any
    value: Any
    bad: bool = False


# Decodes and stamps a record with the partition's time so far; None: it cannot be used, and that has been dealt with.
Stamp = Callable[["RecordQueue", RawRecord], Head | None]


class RecordQueue:
    """The records of one topic partition that wait, with the first of them decoded."""

    __slots__ = (
        "_stamp", "awaited", "caught_up", "fifo", "fresh", "head", "partition", "partition_time", "position", "source",
        "time", "topic", "trailing",
    )  # fmt: skip

    def __init__(self, topic: str, partition: int, source: Source, stamp: Stamp) -> None:
        self.topic = topic
        self.partition = partition
        self.source = source
        self.fifo: deque[RawRecord] = deque()
        self.head: Head | None = None
        self.time = UNKNOWN  # the head's
        self.partition_time = UNKNOWN  # the highest timestamp taken so far
        self.position: int | None = None  # the offset after the last record taken
        self.caught_up = True  # no more records are known to come
        self.fresh = False  # the last read has given records, so that another may give more at once
        self.trailing = False  # it is behind: its end has not been read yet
        self.awaited = True  # others may have to wait for it while it is empty
        self._stamp = stamp

    def __len__(self) -> int:
        return len(self.fifo) + (self.head is not None)

    @property
    def next_offset(self) -> int | None:
        """Where reading must go on after a commit: what was passed over on the way to the head is done with.

        So is a bad head: whoever read it again would count it, and send its dead letter, twice.
        """
        head = self.head
        if head is None:
            return self.position
        return head.raw[4] + 1 if head.bad else head.raw[4]

    def extend(self, records: Iterable[RawRecord]) -> None:
        """Add records at the end."""
        self.fifo.extend(records)
        self.find_head()

    def poll(self) -> Head:
        """Remove and return the head."""
        head = self.head
        assert head is not None
        self.head = None
        self.position = head.raw[4] + 1
        if head.time > self.partition_time:
            self.partition_time = head.time
        self.find_head()
        return head

    def find_head(self) -> None:
        """Decode and stamp the next usable record; when none is left, the last bad one stands in for its offset."""
        fifo = self.fifo
        last = None
        while self.head is None and fifo:
            raw = fifo.popleft()
            self.head = self._stamp(self, raw)
            last = raw
        if self.head is None and last is not None:
            self.head = Head(UNKNOWN, last, None, None, True)
        if self.head is not None:
            self.time = self.head.time


class PartitionGroup:
    """All inputs of a task, and which of them is next: the one whose head has the lowest timestamp.

    An empty input may hold the others up: for `idle_ms` since it was first missed.
    """

    __slots__ = ("_heads", "_idle_ms", "deadlines", "draining", "queues")

    def __init__(self, idle_ms: int) -> None:
        self.queues: dict[tuple[str, int], RecordQueue] = {}
        self.draining = False  # no more than are known of will come: wait for nothing else
        self._heads: JavaQueue[RecordQueue] = JavaQueue()
        self._idle_ms = idle_ms
        # Until when the others wait for an input that is empty.
        self.deadlines: dict[tuple[str, int], int] = {}

    def __len__(self) -> int:
        return sum(len(queue) for queue in self._heads.items)

    def feed(self, queue: RecordQueue, records: Iterable[RawRecord]) -> None:
        """Add records to one of the queues."""
        waiting = queue.head is not None
        queue.extend(records)
        if not waiting and queue.head is not None:
            self._heads.offer(queue)

    def ready(self, now: int) -> bool:
        """Whether the next record may be taken at this wall-clock time."""
        waiting = self._heads.items
        if not waiting:
            return False
        if self.draining or len(waiting) == len(self.queues):
            self.deadlines.clear()
        for place, queue in self.queues.items() if len(waiting) < len(self.queues) else ():
            if queue.head is not None:
                self.deadlines.pop(place, None)
            elif queue.awaited and (not queue.caught_up or self._is_missed(place, now)):
                return False
        return True

    def next_time(self, now: int) -> int | None:
        """The time of the next record, if it may be taken now, or as soon as an input has been read again."""
        heads = self._heads.items
        if heads and (
            self.ready(now)
            or any(q.head is None and not q.caught_up and (q.fresh or q.trailing) for q in self.queues.values())
        ):
            return heads[0].time
        return None

    def due(self, until: int) -> bool:
        """Whether the next record is not later than a time; there is one."""
        return self._heads.items[0].time <= until

    def _is_missed(self, place: tuple[str, int], now: int) -> bool:
        """Whether the others still wait for an empty input of which nothing is known to come."""
        return not self.draining and now < self.deadlines.setdefault(place, now + self._idle_ms)

    def poll(self) -> tuple[RecordQueue, Head]:
        """Remove and return the next record; `ready` said that there is one."""
        queue = self._heads.poll()
        head = queue.poll()
        if queue.head is not None:
            self._heads.offer(queue)
        return queue, head

    def only(self) -> RecordQueue | None:
        """The one queue that holds records, if it is one and the others are not waited for."""
        waiting = self._heads.items
        if len(waiting) == 1 and (not self._idle_ms or self.draining or len(self.queues) == 1):
            return waiting[0]
        return None

    def waiting(self) -> list[RecordQueue]:
        """The queues that hold records."""
        return self._heads.items
