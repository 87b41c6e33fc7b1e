"""The records of a left or outer stream-stream join that have found no partner yet, of both sides together. It owns
their order; when a record may be given up is the join's.

| bytes of the row key | content |
|---|---|
| 0–7 | timestamp |
| 8 | side: 0 right, 1 left |
| 9– | key |

A row holds all values of its (timestamp, side, key) in the order of arrival: the side's byte, then for each value its
length (4 bytes, big-endian) and its bytes.
"""

import struct
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Generic, TypeAlias, TypeVar

from headwater.state.backend import Backend
from headwater.state.codec import Codec
from headwater.state.layout import pack_time, unpack_time
from headwater.state.rows import Rows

__all__ = ["UnmatchedStore"]

K = TypeVar("K")
L = TypeVar("L")
R = TypeVar("R")

_LENGTH = struct.Struct(">I")
_SIDES = (b"\x00", b"\x01")
# After every row key there can be.
_LAST = b"\xff"

_Row: TypeAlias = tuple[bool, tuple[Any, ...]]


class _Values:
    """The codec of rows (is_left, values)."""

    __slots__ = ("_sides",)

    def __init__(self, left: Codec[Any], right: Codec[Any]) -> None:
        self._sides = (right, left)

    def encode(self, value: _Row) -> bytes:
        is_left, values = value
        parts = [_SIDES[is_left]]
        for data in map(self._sides[is_left].encode, values):
            parts += (_LENGTH.pack(len(data)), data)
        return b"".join(parts)

    def decode(self, data: bytes) -> _Row:
        is_left = data[0] == 1
        decode = self._sides[is_left].decode
        values = []
        at = 1
        while at < len(data):
            end = at + 4 + _LENGTH.unpack_from(data, at)[0]
            values.append(decode(data[at + 4 : end]))
            at = end
        return is_left, tuple(values)

    def stable(self, value: _Row) -> bool:
        is_left, values = value
        return all(map(self._sides[is_left].stable, values))


class UnmatchedStore(Generic[K, L, R]):
    """Records by timestamp, side (right before left), serialised key and order of arrival.

    >>> from headwater.state.layout import Raw
    >>> from headwater.state.memory import MemoryBackend
    >>> from headwater.state.unmatched import UnmatchedStore
    >>> backend = MemoryBackend(UnmatchedStore.backend_stores("open"))
    >>> store = UnmatchedStore(backend, "open", Raw(), Raw(), Raw())
    >>> store.put(5, True, b"k", b"a")
    >>> store.put(5, True, b"k", b"b")
    >>> store.put(5, False, b"z", b"c")
    >>> list(store.all())
    [(5, False, b'z', b'c'), (5, True, b'k', b'a'), (5, True, b'k', b'b')]
    >>> store.remove_all(5, True, b"k")
    >>> len(list(store.all()))
    1
    """

    __slots__ = ("_decode_key", "_encode_key", "_first", "_rows", "name")

    def __init__(self, backend: Backend, name: str, key: Codec[K], left: Codec[L], right: Codec[R]) -> None:
        self.name = name
        self._rows: Rows[_Row] = Rows(backend, name, _Values(left, right))
        self._encode_key = key.encode
        self._decode_key = key.decode
        # No row lies before it. Without it every look at the first row would pass over all that were deleted.
        self._first = b""

    @staticmethod
    def backend_stores(name: str) -> tuple[str, ...]:
        """Return the names of the back end stores that a store of this name lives in."""
        return (name,)

    def row_key(self, timestamp: int, is_left: bool, key: K) -> bytes:
        """Return what the records of one timestamp, side and key are filed under."""
        return pack_time(timestamp) + _SIDES[is_left] + self._encode_key(key)

    def prefetch(self, row_keys: Iterable[bytes]) -> None:
        """Read the rows in one call, for the puts and removals to come."""
        self._rows.prefetch(row_keys)

    def put(self, timestamp: int, is_left: bool, key: K, value: L | R) -> None:
        """Add a record after those of the same timestamp, side and key."""
        row_key = self.row_key(timestamp, is_left, key)
        row = self._rows.get(row_key)
        self._rows.put(row_key, (is_left, (value,) if row is None else (*row[1], value)))
        self._first = min(self._first, row_key)

    def remove_all(self, timestamp: int, is_left: bool, key: K) -> None:
        """Delete all records of the timestamp, side and key."""
        row_key = self.row_key(timestamp, is_left, key)
        # Most partners of a join are not here, and a read is remembered where a deletion would have to be written.
        if self._rows.get(row_key) is not None:
            self._rows.put(row_key, None)

    def all(self) -> Iterator[tuple[int, bool, K, L | R]]:
        """Iterate (timestamp, is_left, key, value) in order, lazily, as of the call; removals meanwhile are safe."""
        rows = self._rows.scan(self._first, None)
        first = next(rows, None)
        if first is None:
            self._first = _LAST
            return iter(())
        self._first = first[0]
        return self._iterate(chain((first,), rows))

    def _iterate(self, rows: Iterator[tuple[bytes, _Row]]) -> Iterator[tuple[int, bool, K, L | R]]:
        for row_key, (is_left, values) in rows:
            timestamp, key = unpack_time(row_key, 0), self._decode_key(row_key[9:])
            for value in values:
                yield timestamp, is_left, key, value

    @property
    def dirty_bytes(self) -> int:
        """About how many bytes of memory the uncommitted rows take."""
        return self._rows.dirty_bytes

    @property
    def gets(self) -> int:
        """How many rows were asked for one by one."""
        return self._rows.gets

    def drain(self) -> dict[str, dict[bytes, bytes | None]]:
        """Return the uncommitted rows by back end store, and count them as committed."""
        return {self.name: self._rows.drain()}

    def memory(self) -> None:
        """Return None: the rows hold everything."""

    def remember(self, memory: None) -> None:
        """Do nothing: the rows hold everything."""
