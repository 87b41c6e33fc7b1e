"""Rows by key and start of window, for windowed aggregates and stream-stream joins. It owns their layout, their
retention and their order; what a row holds and which windows there are is the caller's.

| back end store | row key | row |
|---|---|---|
| name | escaped key, start (, sequence) | the caller's |
| name\\|time | start, escaped key (, sequence) | empty, or `c` while a cache holds the window row |

The index by time is for expiry and for reading by time: a row of it without its window row means nothing.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Generic, TypeVar

from headwater.state.backend import Backend
from headwater.state.codec import Codec
from headwater.state.layout import (
    HELD,
    LAST_TIME,
    Raw,
    escape,
    key_then_time,
    pack_sequence,
    pack_time,
    unescape,
    unpack_time,
)
from headwater.state.retention import first_live_time, segment_length
from headwater.state.rows import Rows

__all__ = ["WindowStore"]

K = TypeVar("K")
V = TypeVar("V")

# Rows by time are read in portions of this size, one call of the back end each.
_PORTION = 256
# How many rows may be remembered as having their row in the index, which saves writing it again at each update.
_INDEXED = 200_000


class WindowStore(Generic[K, V]):
    """Rows by (key, start), readable while start > newest start ever put - retention_ms.

    With time_ordered, as Kafka Streams' stores for emit-on-close, start = newest - retention_ms is readable too.
    With duplicates each put adds a row of its own; a put of None then does nothing. Rows that a cache holds (`hold`)
    are readable, and kept, until it lets go of them.

    >>> from headwater.state.layout import Raw
    >>> from headwater.state.memory import MemoryBackend
    >>> from headwater.state.window import WindowStore
    >>> backend = MemoryBackend(WindowStore.backend_stores("counts"))
    >>> store = WindowStore(backend, "counts", Raw(), Raw(), retention_ms=50)
    >>> [store.put(b"k", b"row", start) for start in (0, 10, 50)]
    [True, True, True]
    >>> store.get(b"k", 0), list(store.fetch(b"k", 0, 100))
    (None, [(10, b'row'), (50, b'row')])
    """

    __slots__ = (
        "_decode_key",
        "_duplicates",
        "_encode_key",
        "_first_live",
        "_first_readable",
        "_indexed",
        "_mark",
        "_observed",
        "_readable_ms",
        "_retention_ms",
        "_rows",
        "_segment_ms",
        "_sequence",
        "_suffix",
        "_times",
        "_touch",
        "name",
    )

    def __init__(
        self,
        backend: Backend,
        name: str,
        key: Codec[K],
        value: Codec[V],
        *,
        retention_ms: int,
        duplicates: bool = False,
        time_ordered: bool = False,
    ) -> None:
        self.name = name
        self._rows = Rows(backend, name, value)
        self._times = Rows(backend, f"{name}|time", Raw())
        self._encode_key = key.encode
        self._decode_key = key.decode
        self._retention_ms = retention_ms
        self._segment_ms = segment_length(retention_ms)
        self._readable_ms = retention_ms if time_ordered else retention_ms - 1
        self._duplicates = duplicates
        # What follows the key in a row key: the start, and for duplicates the sequence.
        self._suffix = 12 if duplicates else 8
        self._sequence = 0
        self._observed = -1
        self._first_readable = 0
        self._first_live = 0
        self._indexed: set[bytes] = set()
        self._mark = b""
        self._touch: Callable[[bytes], object] | None = None

    @property
    def first_readable(self) -> int:
        """The first start that may be read."""
        return self._first_readable

    @staticmethod
    def backend_stores(name: str) -> tuple[str, ...]:
        """Return the names of the back end stores that a store of this name lives in."""
        return (name, f"{name}|time")

    # One row: by key and start, or by a row key that was made once.

    def row_key(self, key: K, start: int) -> bytes:
        """Return what the row is filed under; with duplicates, the row put last."""
        row_key = key_then_time(self._encode_key(key), start)
        return row_key + pack_sequence(self._sequence) if self._duplicates else row_key

    def get(self, key: K, start: int) -> V | None:
        """Return the row, or None where there is none or it is past the retention."""
        return None if start < 0 else self.read(self.row_key(key, start), start)

    def put(self, key: K, row: V | None, start: int) -> bool:
        """Set the row, None deletes it; return False, and change nothing, if its segment has expired."""
        if self._duplicates:
            if row is None:
                return True
            self._sequence = (self._sequence + 1) & 0x7FFFFFFF
        return self.write(self.row_key(key, start), row, start)

    def read(self, row_key: bytes, start: int) -> V | None:
        """Return what get would, by the row key of (key, start)."""
        if start < self._first_readable and not self._is_held(row_key):
            return None
        if self._touch is not None:
            self._touch(row_key)
        return self._rows.get(row_key)

    def write(self, row_key: bytes, row: V | None, start: int) -> bool:
        """Do what put would on a store without duplicates, by the row key of (key, start)."""
        if self._touch is None:
            if start > self._observed:
                self._observe(start)
            elif start < self._first_live:
                return False
        self._rows.put(row_key, row)
        if row is None:
            self._times.put(self._time_key(row_key), None)
            self._indexed.discard(row_key)
        elif row_key not in self._indexed:
            self._times.put(self._time_key(row_key), self._mark)
            # A row of a store with duplicates is put once.
            if not self._duplicates:
                self._indexed.add(row_key)
        return True

    def prefetch(self, row_keys: Iterable[bytes]) -> None:
        """Read the rows in one call, for the gets to come."""
        self._rows.prefetch(row_keys)

    # Several rows. Puts and deletes during an iteration are safe; bounds and retention are those of the call.

    def fetch(self, key: K, lo: int, hi: int, reverse: bool = False) -> Iterator[tuple[int, V]]:
        """Iterate the key's (start, row) with lo <= start <= hi by start, duplicates in the order of their puts."""
        lo, hi = max(lo, self._first_readable if self._touch is None else 0), min(hi, LAST_TIME)
        if hi < lo:
            return iter(())
        prefix = escape(self._encode_key(key))
        at = len(prefix)
        rows = self._rows.scan(prefix + pack_time(lo), prefix + pack_time(hi + 1), reverse)
        found = ((unpack_time(row_key, at), row) for row_key, row in rows)
        return found if self._touch is None else self._touching(prefix, found, self._touch, self._first_readable)

    def _touching(
        self, prefix: bytes, rows: Iterator[tuple[int, V]], touch: Callable[[bytes], object], first_readable: int
    ) -> Iterator[tuple[int, V]]:
        for start, row in rows:
            row_key = prefix + pack_time(start)
            if start >= first_readable or self._is_held(row_key):
                touch(row_key)
                yield start, row

    def fetch_all(self, lo: int, hi: int) -> Iterator[tuple[int, K, V]]:
        """Iterate (start, key, row) with lo <= start <= hi by start, then serialised key."""
        first = self._first_readable
        lo, hi = max(lo, first if self._touch is None else 0), min(hi, LAST_TIME)
        if hi < lo:
            return iter(())
        times = self._times.scan(pack_time(lo), pack_time(hi + 1))
        if self._touch is not None:
            # Time keys begin with the start, so they sort as starts do.
            times = ((time_key, mark) for time_key, mark in times if mark == HELD or time_key >= pack_time(first))
        return self._by_time(times)

    def _by_time(self, times: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[int, K, V]]:
        get, decode, suffix = self._rows.get, self._decode_key, self._suffix
        while row_keys := [self._row_key_at(time_key) for time_key, _ in islice(times, _PORTION)]:
            self._rows.prefetch(row_keys)
            for row_key in row_keys:
                row = get(row_key)
                if row is not None:
                    yield unpack_time(row_key, len(row_key) - suffix), decode(unescape(row_key[:-suffix])), row

    def all(self) -> Iterator[tuple[K, int, V]]:
        """Iterate (key, start, row) by serialised key, then start."""
        first, decode, suffix = self._first_readable, self._decode_key, self._suffix
        rows = self._rows.scan(b"", None)
        dated = ((unpack_time(row_key, len(row_key) - suffix), row_key, row) for row_key, row in rows)
        return (
            (decode(unescape(row_key[:-suffix])), start, row)
            for start, row_key, row in dated
            if start >= first or self._is_held(row_key)
        )

    # Rows that a cache holds.

    def hold(self, touch: Callable[[bytes], object]) -> list[tuple[bytes, V]]:
        """Let a cache hold the rows put from now on, and tell it of each one read; return (row key, row) of those that
        an earlier one held, by start.

        Puts are then never refused, and time moves on by `settle` alone.
        """
        self._mark, self._touch = HELD, touch
        held = (self._row_key_at(time_key) for time_key, mark in self._times.scan(b"", None) if mark == HELD)
        return [(row_key, row) for row_key in held if (row := self._rows.get(row_key)) is not None]

    def settle(self, row_key: bytes) -> bool:
        """Move time on to a row that the cache has let through; return whether retention let a row be read there."""
        start = unpack_time(row_key, len(row_key) - self._suffix)
        readable = start >= self._first_readable
        if start > self._observed:
            self._observe(start)
        return readable

    def release(self, row_key: bytes) -> None:
        """Let retention decide again about a row that the cache has held."""
        if self._is_held(row_key):
            expired = unpack_time(row_key, len(row_key) - self._suffix) < self._first_live
            if expired:
                self._rows.put(row_key, None)
            self._times.put(self._time_key(row_key), None if expired else b"")
            self._indexed.discard(row_key)

    def _is_held(self, row_key: bytes) -> bool:
        return self._touch is not None and self._times.get(self._time_key(row_key)) == HELD

    def _time_key(self, row_key: bytes) -> bytes:
        if self._duplicates:
            return row_key[-12:-4] + row_key[:-12] + row_key[-4:]
        return row_key[-8:] + row_key[:-8]

    def _row_key_at(self, time_key: bytes) -> bytes:
        if self._duplicates:
            return time_key[8:-4] + time_key[:8] + time_key[-4:]
        return time_key[8:] + time_key[:8]

    # Time and the commit.

    def _observe(self, start: int) -> None:
        self._observed = start
        self._first_readable = max(0, start - self._readable_ms)
        first_live = first_live_time(start, self._retention_ms, self._segment_ms)
        if first_live > self._first_live:
            for time_key, mark in self._times.scan(pack_time(self._first_live), pack_time(first_live)):
                if mark == HELD:
                    continue
                row_key = self._row_key_at(time_key)
                self._rows.put(row_key, None)
                self._times.put(time_key, None)
                self._indexed.discard(row_key)
            self._first_live = first_live

    @property
    def dirty_bytes(self) -> int:
        """About how many bytes of memory the uncommitted rows take."""
        return self._rows.dirty_bytes + self._times.dirty_bytes

    @property
    def gets(self) -> int:
        """How many rows were asked for one by one."""
        return self._rows.gets + self._times.gets

    def drain(self) -> dict[str, dict[bytes, bytes | None]]:
        """Return the uncommitted rows by back end store, and count them as committed."""
        if len(self._indexed) > _INDEXED:
            self._indexed.clear()
        return {self._rows.name: self._rows.drain(), self._times.name: self._times.drain()}

    def memory(self) -> tuple[int, int]:
        """Return what must be committed besides the rows: the newest start and the sequence."""
        return self._observed, self._sequence

    def remember(self, memory: tuple[int, int]) -> None:
        """Go on where the store that gave this memory was, over the same committed rows."""
        self._observed, self._sequence = memory
        self._first_readable = max(0, self._observed - self._readable_ms)
        self._first_live = first_live_time(self._observed, self._retention_ms, self._segment_ms)
