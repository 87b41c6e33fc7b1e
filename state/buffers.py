"""Records that wait for time to pass: table changes held by a suppress step, and stream records held by a join with
grace. It owns their order and their size; when one may go is the caller's to ask.

Both keep what waits in memory, as Kafka Streams' suppress does, and in the back end so that it survives: a buffer loads
it when it is made.

| back end store | row key | row, MessagePack |
|---|---|---|
| a ChangeBuffer's | key | time, new value, old value, prior value, context |
| a GraceBuffer's | timestamp, key, sequence (4 bytes) | value, context |

A context is timestamp, headers, topic, partition, offset.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, NamedTuple, TypeVar

import msgspec

from headwater.state.backend import Backend
from headwater.state.layout import LAST_TIME, pack_sequence, pack_time, unpack_time

__all__ = ["Change", "ChangeBuffer", "Context", "GraceBuffer", "Waiting"]

T = TypeVar("T")

# What a waiting record costs besides its bytes, for the bound on what is not committed yet.
_OVERHEAD = 300


class Context(NamedTuple):
    """Where a record came from, which a buffered one needs again when it goes on."""

    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...] = ()
    topic: str | None = None
    partition: int = -1
    offset: int = -1


class Change(NamedTuple):
    """A buffered change of a table: values of the last update, and the value before the first one that is buffered."""

    new: bytes | None
    old: bytes | None
    prior: bytes | None
    context: Context


class Waiting(NamedTuple):
    """A buffered record of a stream."""

    key: bytes
    value: bytes
    context: Context


def _characters(text: str) -> int:
    """Return the text's length as Java counts it."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def _context_size(context: Context) -> int:
    size = 20 if context.topic is None else 20 + _characters(context.topic)
    for name, value in context.headers:
        size += _characters(name) + (0 if value is None else len(value))
    return size


def _change_size(key: bytes, change: Change) -> int:
    """Return Kafka Streams' estimate of what a buffered change takes: an old value equal to the prior one is free."""
    size = 8 + len(key) + _context_size(change.context)
    if change.prior is not None:
        size += len(change.prior)
    if change.old is not None and change.old != change.prior:
        size += len(change.old)
    return size if change.new is None else size + len(change.new)


class _Kept(Generic[T]):
    """What waits, by row key: all of it in memory, and in the back end as of the last commit."""

    __slots__ = ("_changed", "_committed", "_encoder", "dirty_bytes", "items", "name")

    def __init__(self, backend: Backend, name: str, kind: type[T]) -> None:
        decode = msgspec.msgpack.Decoder(kind).decode
        self._encoder = msgspec.msgpack.Encoder()
        self.name = name
        self.items: dict[bytes, T] = {key: decode(row) for key, row in backend.scan(name, b"", None)}
        self._committed = set(self.items)
        self._changed: set[bytes] = set()
        self.dirty_bytes = 0

    def put(self, key: bytes, item: T, size: int) -> None:
        self.items[key] = item
        self._changed.add(key)
        self.dirty_bytes += size + _OVERHEAD

    def pop(self, key: bytes) -> T:
        self._changed.add(key)
        return self.items.pop(key)

    def drain(self) -> dict[str, dict[bytes, bytes | None]]:
        rows: dict[bytes, bytes | None] = {}
        for key in self._changed:
            item = self.items.get(key)
            if item is not None:
                rows[key] = self._encoder.encode(item)
                self._committed.add(key)
            elif key in self._committed:
                rows[key] = None
                self._committed.discard(key)
        self._changed.clear()
        self.dirty_bytes = 0
        return {self.name: rows}


class ChangeBuffer:
    """Table changes, one for each key, in the order (time, key) of the first that is buffered of the key.

    >>> from headwater.state.buffers import ChangeBuffer, Context
    >>> from headwater.state.memory import MemoryBackend
    >>> buffer = ChangeBuffer(MemoryBackend(ChangeBuffer.backend_stores("held")), "held")
    >>> buffer.put(10, b"k", b"one", None, Context(10))
    >>> buffer.put(15, b"k", b"two", b"one", Context(15))
    >>> buffer.min_time, len(buffer), buffer.byte_size
    (10, 1, 35)
    >>> key, change = buffer.first()
    >>> key, change.new, change.prior
    (b'k', b'two', None)
    """

    __slots__ = ("_kept", "_order", "byte_size", "name")

    def __init__(self, backend: Backend, name: str) -> None:
        self.name = name
        self._kept: _Kept[tuple[int, Change]] = _Kept(backend, name, tuple[int, Change])
        self._order = [(time, key) for key, (time, _) in self._kept.items.items()]
        heapify(self._order)
        self.byte_size = sum(_change_size(key, change) for key, (_, change) in self._kept.items.items())

    @staticmethod
    def backend_stores(name: str) -> tuple[str, ...]:
        """Return the names of the back end stores that a buffer of this name lives in."""
        return (name,)

    def __len__(self) -> int:
        return len(self._order)

    @property
    def min_time(self) -> int:
        """The time of the first change in order; the last of all times if there is none."""
        return self._order[0][0] if self._order else LAST_TIME

    def get(self, key: bytes) -> Change | None:
        """Return the key's buffered change, or None."""
        held = self._kept.items.get(key)
        return None if held is None else held[1]

    def put(self, time: int, key: bytes, new: bytes | None, old: bytes | None, context: Context) -> None:
        """Buffer a change; one of the same key gives it its place and its prior value."""
        held = self._kept.items.get(key)
        if held is None:
            change = Change(new, old, old, context)
            heappush(self._order, (time, key))
        else:
            time = held[0]
            change = Change(new, old, held[1].prior, context)
            self.byte_size -= _change_size(key, held[1])
        size = _change_size(key, change)
        self.byte_size += size
        self._kept.put(key, (time, change), size)

    def first(self) -> tuple[bytes, Change]:
        """Return the key and change that are first in order, and leave them there; there must be one."""
        key = self._order[0][1]
        return key, self._kept.items[key][1]

    def pop(self) -> tuple[bytes, Change]:
        """Return the key and change that are first in order, and take them out; there must be one."""
        _, key = heappop(self._order)
        change = self._kept.pop(key)[1]
        self.byte_size -= _change_size(key, change)
        return key, change

    @property
    def dirty_bytes(self) -> int:
        """About how many bytes of memory the uncommitted changes take."""
        return self._kept.dirty_bytes

    def drain(self) -> dict[str, dict[bytes, bytes | None]]:
        """Return the uncommitted rows by back end store, and count them as committed."""
        return self._kept.drain()

    def memory(self) -> None:
        """Return None: the rows hold everything."""

    def remember(self, memory: None) -> None:
        """Do nothing: the rows hold everything."""


class GraceBuffer:
    """Stream records that wait until a record grace_ms younger has been put.

    >>> from headwater.state.buffers import Context, GraceBuffer
    >>> from headwater.state.memory import MemoryBackend
    >>> buffer = GraceBuffer(MemoryBackend(GraceBuffer.backend_stores("held")), "held", grace_ms=20)
    >>> [buffer.put(b"k", value, Context(time)) for value, time in ((b"one", 10), (b"two", 35), (b"three", 14))]
    [True, True, False]
    >>> [(waiting.value, waiting.context.timestamp) for waiting in buffer.evict()], len(buffer)
    ([(b'one', 10)], 1)
    """

    __slots__ = ("_grace_ms", "_kept", "_observed", "_order", "_sequence", "name")

    def __init__(self, backend: Backend, name: str, *, grace_ms: int) -> None:
        self.name = name
        self._kept: _Kept[tuple[bytes, Context]] = _Kept(backend, name, tuple[bytes, Context])
        # The row keys themselves: in Kafka Streams too the sequence follows the key with nothing between, so that where
        # a key holds zero bytes the order is not (key, sequence). The back end gives them sorted, which is a heap.
        self._order = list(self._kept.items)
        self._grace_ms = grace_ms
        self._observed = -1
        self._sequence = 0

    @staticmethod
    def backend_stores(name: str) -> tuple[str, ...]:
        """Return the names of the back end stores that a buffer of this name lives in."""
        return (name,)

    def __len__(self) -> int:
        return len(self._order)

    def put(self, key: bytes, value: bytes, context: Context) -> bool:
        """Buffer a record; return False, and change nothing, if it is more than the grace older than the newest put."""
        timestamp = context.timestamp
        if timestamp < self._observed - self._grace_ms:
            return False
        self._observed = max(self._observed, timestamp)
        self._sequence = (self._sequence + 1) & 0x7FFFFFFF
        row_key = pack_time(timestamp) + key + pack_sequence(self._sequence)
        heappush(self._order, row_key)
        self._kept.put(row_key, (value, context), len(row_key) + len(value))
        return True

    def due(self) -> Waiting | None:
        """Return the first that `evict` would take out, None if there is none."""
        if not self._order or unpack_time(self._order[0], 0) > self._observed - self._grace_ms:
            return None
        value, context = self._kept.items[self._order[0]]
        return Waiting(self._order[0][8:-4], value, context)

    def pop(self) -> None:
        """Take out the first."""
        self._kept.pop(heappop(self._order))

    def evict(self) -> Iterator[Waiting]:
        """Take out and yield what is at least the grace older than the newest put, by timestamp, key and sequence."""
        due = self._observed - self._grace_ms
        while self._order and unpack_time(self._order[0], 0) <= due:
            row_key = heappop(self._order)
            value, context = self._kept.pop(row_key)
            yield Waiting(row_key[8:-4], value, context)

    @property
    def dirty_bytes(self) -> int:
        """About how many bytes of memory the uncommitted records take."""
        return self._kept.dirty_bytes

    def drain(self) -> dict[str, dict[bytes, bytes | None]]:
        """Return the uncommitted rows by back end store, and count them as committed."""
        return self._kept.drain()

    def memory(self) -> tuple[int, int]:
        """Return what must be committed besides the rows: the newest timestamp and the sequence."""
        return self._observed, self._sequence

    def remember(self, memory: tuple[int, int]) -> None:
        """Go on where the buffer that gave this memory was, over the same committed rows."""
        self._observed, self._sequence = memory
