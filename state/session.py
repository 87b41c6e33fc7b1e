"""Rows by key, start and end of session. It owns their layout, their retention and their order; which sessions merge is
the caller's.

| back end store | row key | row |
|---|---|---|
| name | escaped key, end, start | the caller's |
| name\\|time | end, start, key | empty, or `c` while a cache holds the session row |

The index by time is for expiry and for reading by end: a row of it without its session row means nothing.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Generic, TypeVar

from headwater.state.backend import Backend
from headwater.state.codec import Codec
from headwater.state.layout import HELD, LAST_TIME, Raw, escape, pack_time, unescape, unpack_time
from headwater.state.retention import first_live_time, segment_length
from headwater.state.rows import Rows

__all__ = ["SessionStore"]

K = TypeVar("K")
V = TypeVar("V")

# Sessions by end are read in portions of this size, one call of the back end each.
_PORTION = 256


class SessionStore(Generic[K, V]):
    """Rows by (key, start, end), both ends inclusive, readable while end > newest end ever seen - retention_ms.

    Only `ended` sees older ones, until their segment goes: as in Kafka Streams, where emit-on-close relies on it. Rows
    that a cache holds (`hold`) are readable, and kept, until it lets go of them.

    >>> from headwater.state.layout import Raw
    >>> from headwater.state.memory import MemoryBackend
    >>> from headwater.state.session import SessionStore
    >>> backend = MemoryBackend(SessionStore.backend_stores("visits"))
    >>> store = SessionStore(backend, "visits", Raw(), Raw(), retention_ms=50)
    >>> store.put(b"k", 0, 7, b"first"), store.put(b"k", 20, 60, b"second")
    (True, True)
    >>> list(store.fetch(b"k")), list(store.ended(0, 30))
    ([(20, 60, b'second')], [(0, 7, b'k', b'first')])
    """

    __slots__ = (
        "_decode_key",
        "_encode_key",
        "_first_live",
        "_first_readable",
        "_mark",
        "_observed",
        "_retention_ms",
        "_rows",
        "_segment_ms",
        "_times",
        "_touch",
        "name",
    )

    def __init__(self, backend: Backend, name: str, key: Codec[K], value: Codec[V], *, retention_ms: int) -> None:
        self.name = name
        self._rows = Rows(backend, name, value)
        self._times = Rows(backend, f"{name}|time", Raw())
        self._encode_key = key.encode
        self._decode_key = key.decode
        self._retention_ms = retention_ms
        self._segment_ms = segment_length(retention_ms)
        self._observed = -1
        self._first_readable = 0
        self._first_live = 0
        self._mark = b""
        self._touch: Callable[[bytes], object] | None = None

    @staticmethod
    def backend_stores(name: str) -> tuple[str, ...]:
        """Return the names of the back end stores that a store of this name lives in."""
        return (name, f"{name}|time")

    # One session.

    def row_key(self, key: K, start: int, end: int) -> bytes:
        """Return what the session's row is filed under."""
        return escape(self._encode_key(key)) + pack_time(end) + pack_time(start)

    def get(self, key: K, start: int, end: int) -> V | None:
        """Return the session's row, or None where there is none or it is past the retention."""
        if end < self._first_readable and self._touch is None:
            return None
        row_key = self.row_key(key, start, end)
        if end < self._first_readable and not self._is_held(row_key):
            return None
        if self._touch is not None:
            self._touch(row_key)
        return self._rows.get(row_key)

    def put(self, key: K, start: int, end: int, row: V | None) -> bool:
        """Set the session's row, None deletes it; return False, and change nothing, if its segment has expired."""
        if self._touch is None and not self._advance(end):
            return False
        key_bytes = self._encode_key(key)
        times = pack_time(end) + pack_time(start)
        self._rows.put(escape(key_bytes) + times, row)
        self._times.put(times + key_bytes, None if row is None else self._mark)
        return True

    def remove(self, key: K, start: int, end: int) -> None:
        """Delete the session's row if there is one."""
        if self._touch is None and end > self._observed:
            self._observe(end)
        key_bytes = self._encode_key(key)
        times = pack_time(end) + pack_time(start)
        self._rows.put(escape(key_bytes) + times, None)
        self._times.put(times + key_bytes, None)

    def prefetch(self, row_keys: Iterable[bytes]) -> None:
        """Read the rows in one call, for the gets to come."""
        self._rows.prefetch(row_keys)

    # Several sessions. Puts and removals during an iteration are safe; bounds and retention are those of the call.

    def find(self, key: K, earliest_end: int, latest_start: int) -> Iterator[tuple[int, int, V]]:
        """Iterate the key's (start, end, row) with end >= earliest_end and start <= latest_start, by (end, start)."""
        prefix = escape(self._encode_key(key))
        first = min(max(earliest_end, self._first_readable if self._touch is None else 0), LAST_TIME)
        at_end, at_start = len(prefix), len(prefix) + 8
        rows = self._rows.scan(prefix + pack_time(first), prefix + pack_time(LAST_TIME + 1))
        sessions: Iterator[tuple[int, int, V]] = (
            (unpack_time(row_key, at_start), unpack_time(row_key, at_end), row) for row_key, row in rows
        )
        if self._touch is not None:
            sessions = self._touching(prefix, sessions, self._touch, self._first_readable)
        return (session for session in sessions if session[0] <= latest_start)

    def _touching(
        self, prefix: bytes, sessions: Iterator[tuple[int, int, V]], touch: Callable[[bytes], object], first: int
    ) -> Iterator[tuple[int, int, V]]:
        for start, end, row in sessions:
            row_key = prefix + pack_time(end) + pack_time(start)
            if end >= first or self._is_held(row_key):
                touch(row_key)
                yield start, end, row

    def fetch(self, key: K) -> Iterator[tuple[int, int, V]]:
        """Iterate the key's (start, end, row) by (end, start)."""
        return self.find(key, 0, LAST_TIME)

    def ended(self, earliest_end: int, latest_end: int) -> Iterator[tuple[int, int, K, V]]:
        """Iterate (start, end, key, row) with earliest_end <= end <= latest_end by end, start, serialised key.

        Sessions past the retention are among them until their segment goes.
        """
        lo, hi = max(earliest_end, self._first_live), min(latest_end, LAST_TIME)
        if hi < lo:
            return iter(())
        return self._by_time(self._times.scan(pack_time(lo), pack_time(hi + 1)))

    def _by_time(self, times: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[int, int, K, V]]:
        while time_keys := [time_key for time_key, _ in islice(times, _PORTION)]:
            row_keys = [self._row_key_at(time_key) for time_key in time_keys]
            self._rows.prefetch(row_keys)
            for time_key, row_key in zip(time_keys, row_keys, strict=True):
                row = self._rows.get(row_key)
                if row is not None:
                    yield unpack_time(time_key, 8), unpack_time(time_key, 0), self._decode_key(time_key[16:]), row

    def all(self) -> Iterator[tuple[K, int, int, V]]:
        """Iterate (key, start, end, row) by serialised key, then (end, start)."""
        first, decode = self._first_readable, self._decode_key
        rows = ((unpack_time(row_key, len(row_key) - 16), row_key, row) for row_key, row in self._rows.scan(b"", None))
        return (
            (decode(unescape(row_key[:-16])), unpack_time(row_key, len(row_key) - 8), end, row)
            for end, row_key, row in rows
            if end >= first or self._is_held(row_key)
        )

    # Rows that a cache holds.

    def hold(self, touch: Callable[[bytes], object]) -> list[tuple[bytes, V]]:
        """Let a cache hold the rows put from now on, and tell it of each one read; return (row key, row) of those that
        an earlier one held, by end.

        Puts are then never refused, and time moves on by `settle` alone.
        """
        self._mark, self._touch = HELD, touch
        held = (self._row_key_at(time_key) for time_key, mark in self._times.scan(b"", None) if mark == HELD)
        return [(row_key, row) for row_key in held if (row := self._rows.get(row_key)) is not None]

    def settle(self, row_key: bytes) -> bool:
        """Move time on to a row that the cache has let through; return whether retention let a row be read there."""
        end = unpack_time(row_key, len(row_key) - 16)
        readable = end >= self._first_readable
        self._advance(end)
        return readable

    def release(self, row_key: bytes) -> None:
        """Let retention decide again about a row that the cache has held."""
        if self._is_held(row_key):
            expired = unpack_time(row_key, len(row_key) - 16) < self._first_live
            if expired:
                self._rows.put(row_key, None)
            self._times.put(self._time_key(row_key), None if expired else b"")

    def _is_held(self, row_key: bytes) -> bool:
        return self._touch is not None and self._times.get(self._time_key(row_key)) == HELD

    def _time_key(self, row_key: bytes) -> bytes:
        return row_key[-16:] + unescape(row_key[:-16])

    def _row_key_at(self, time_key: bytes) -> bytes:
        return escape(time_key[16:]) + time_key[:16]

    # Time and the commit.

    def _advance(self, end: int) -> bool:
        """Move time on to a session that is put; return False if its segment has expired."""
        if end > self._observed:
            self._observe(end)
        # Removals move the time too, but only a put drops segments, and only one that is not refused.
        first_live = first_live_time(self._observed, self._retention_ms, self._segment_ms)
        if end < first_live:
            return False
        if first_live > self._first_live:
            self._expire(first_live)
        return True

    def _observe(self, end: int) -> None:
        self._observed = end
        self._first_readable = max(0, end - self._retention_ms + 1)

    def _expire(self, first_live: int) -> None:
        for time_key, mark in self._times.scan(pack_time(self._first_live), pack_time(first_live)):
            if mark != HELD:
                self._rows.put(self._row_key_at(time_key), None)
                self._times.put(time_key, None)
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
        return {self._rows.name: self._rows.drain(), self._times.name: self._times.drain()}

    def memory(self) -> tuple[int]:
        """Return what must be committed besides the rows: the newest end seen."""
        return (self._observed,)

    def remember(self, memory: tuple[int]) -> None:
        """Go on where the store that gave this memory was, over the same committed rows."""
        self._observe(memory[0])
