"""Rows with their history: what a key's value was as of a time. It owns how versions are kept, split and forgotten, in
every case as Kafka Streams' RocksDBVersionedStore does it; what is done with an out-of-order update is the caller's.

| back end store | row key | row |
|---|---|---|
| name | key | timestamp, value: the latest version, unless that is a deletion |
| name\\|history | segment number, key | the key's versions up to one that ended in that segment |

A history row is a chain of versions, each valid until the next one begins:

| bytes | content |
|---|---|
| 0–7 | when the last version ended, which is in the segment |
| then for each version, oldest first | 8: timestamp; 4: length of the value, all ones for a deletion; the value |

Two chains of a key never overlap, and what lies between them is deleted. A deletion which ends no version is one
itself, of no duration: several versions of a chain may have the same timestamp, and the last of them holds.

Kafka Streams has one peculiarity, which is kept: a deletion at the very timestamp of the latest version leaves a trace
only where an earlier version ends then. Without it, an older update that comes later is taken for the latest one.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Final, Generic, TypeVar

from headwater.state.backend import Backend
from headwater.state.codec import Codec, Timestamped
from headwater.state.layout import Raw, pack_time, unpack_time
from headwater.state.rows import Rows

__all__ = ["EXPIRED", "VersionedStore", "end_of_chain", "versions_of_chain"]

K = TypeVar("K")
V = TypeVar("V")

# What put answers where it stored nothing.
EXPIRED: Final = -1

_VERSION = struct.Struct(">QI")
_DELETED = 0xFFFFFFFF


def _segment_length(retention_ms: int) -> int:
    """Return how many milliseconds a segment covers: about a third of a short history, a 24th of a long one."""
    if retention_ms <= 60_000:
        return max(retention_ms // 3, 2_000)
    elif retention_ms <= 300_000:
        return max(retention_ms // 5, 20_000)
    elif retention_ms <= 3_600_000:
        return max(retention_ms // 12, 60_000)
    else:
        return max(retention_ms // 24, 300_000)


# Chains: bytes as they lie in the history.


def _version(timestamp: int, value: bytes | None) -> bytes:
    if value is None:
        return _VERSION.pack(timestamp, _DELETED)
    return _VERSION.pack(timestamp, len(value)) + value


def _chain(versions: Iterable[tuple[int, bytes | None]], end: int) -> bytes:
    return pack_time(end) + b"".join(_version(timestamp, value) for timestamp, value in versions)


def _end(chain: bytes) -> int:
    return unpack_time(chain, 0)


def end_of_chain(chain: bytes) -> int:
    """When the last version of a history row ended."""
    return _end(chain)


def versions_of_chain(chain: bytes) -> list[tuple[int, bytes | None]]:
    """The versions of a history row, oldest first: timestamp and value, None for a deletion."""
    return _versions(chain)


def _begin(chain: bytes) -> int:
    return unpack_time(chain, 8)


def _versions(chain: bytes) -> list[tuple[int, bytes | None]]:
    versions: list[tuple[int, bytes | None]] = []
    at = 8
    while at < len(chain):
        timestamp, length = _VERSION.unpack_from(chain, at)
        at += 12
        if length == _DELETED:
            versions.append((timestamp, None))
        else:
            versions.append((timestamp, chain[at : at + length]))
            at += length
    return versions


def _place(versions: list[tuple[int, bytes | None]], timestamp: int) -> int:
    """Return which of the versions is the one valid at the timestamp."""
    at = len(versions) - 1
    while versions[at][0] > timestamp:
        at -= 1
    return at


def _append(chain: bytes | None, timestamp: int, value: bytes | None, end: int) -> bytes:
    """Return the chain with one version more, after all it has; a gap before it becomes a deletion."""
    if chain is None:
        return _chain([(timestamp, value)], end)
    gap = _version(_end(chain), None) if _end(chain) < timestamp else b""
    return pack_time(end) + chain[8:] + gap + _version(timestamp, value)


def _prepend(chain: bytes, timestamp: int, value: bytes | None) -> bytes:
    """Return the chain with one version more, before all it has."""
    return chain[:8] + _version(timestamp, value) + chain[8:]


class VersionedStore(Generic[K, V]):
    """Rows by (key, time). A put older than the newest one - retention_ms is refused, a look further back finds nothing
    but the latest version.

    >>> from headwater.state.layout import Raw
    >>> from headwater.state.memory import MemoryBackend
    >>> from headwater.state.versioned import VersionedStore
    >>> backend = MemoryBackend(VersionedStore.backend_stores("prices"))
    >>> store = VersionedStore(backend, "prices", Raw(), Raw(), retention_ms=100)
    >>> store.put(b"k", b"a", 10), store.put(b"k", b"c", 30), store.put(b"k", b"b", 20)
    (None, None, 30)
    >>> store.get(b"k"), store.get(b"k", as_of=25)
    ((b'c', 30, None), (b'b', 20, 30))
    """

    __slots__ = (
        "_decode",
        "_decode_key",
        "_encode",
        "_encode_key",
        "_first_live",
        "_history",
        "_latest",
        "_observed",
        "_retention_ms",
        "_segment_ms",
        "name",
    )

    def __init__(self, backend: Backend, name: str, key: Codec[K], value: Codec[V], *, retention_ms: int) -> None:
        self.name = name
        self._latest = Rows(backend, name, Timestamped(value))
        self._history = Rows(backend, f"{name}|history", Raw())
        self._encode_key = key.encode
        self._decode_key = key.decode
        self._encode = value.encode
        self._decode = value.decode
        self._retention_ms = retention_ms
        self._segment_ms = _segment_length(retention_ms)
        self._observed = -1
        self._first_live = 0

    @staticmethod
    def backend_stores(name: str) -> tuple[str, ...]:
        """Return the names of the back end stores that a store of this name lives in."""
        return (name, f"{name}|history")

    def row_key(self, key: K) -> bytes:
        """Return what the key's latest version is filed under."""
        return self._encode_key(key)

    def prefetch(self, row_keys: Iterable[bytes]) -> None:
        """Read the latest versions in one call, for the gets and puts to come."""
        self._latest.prefetch(row_keys)

    def get(self, key: K, as_of: int | None = None) -> tuple[V, int, int | None] | None:
        """Return (value, timestamp, when it ended) of the version valid as of the time, of the latest if none is given.

        None is returned where there was no value then; the latest version has not ended: None.
        """
        key_bytes = self._encode_key(key)
        latest = self._latest.get(key_bytes)
        if latest is not None and (as_of is None or latest[1] <= as_of):
            return latest[0], latest[1], None
        if as_of is None or as_of < self._observed - self._retention_ms or as_of < 0:
            return None
        for _, chain in self._chains(key_bytes, as_of):
            end = _end(chain)
            if end <= as_of:
                return None
            if _begin(chain) <= as_of:
                versions = _versions(chain)
                at = _place(versions, as_of)
                timestamp, value = versions[at]
                if value is None:
                    return None
                return self._decode(value), timestamp, versions[at + 1][0] if at + 1 < len(versions) else end
        return None

    def put(self, key: K, value: V | None, timestamp: int) -> int | None:
        """Add the version, None for a deletion; return None if it is now the latest, else the time when it ended.

        EXPIRED is returned, and nothing is stored, if it is older than the retention.
        """
        if timestamp < self._observed - self._retention_ms:
            return EXPIRED
        if timestamp > self._observed:
            self._observe(timestamp)
        key_bytes = self._encode_key(key)
        latest = self._latest.get(key_bytes)
        if latest is None:
            return self._insert(key_bytes, value, timestamp, None)
        if timestamp < latest[1]:
            return self._insert(key_bytes, value, timestamp, latest[1])
        # The new row first: if its value cannot be encoded, nothing has changed.
        self._latest.put(key_bytes, None if value is None else (value, timestamp))
        if timestamp > latest[1]:
            self._add(key_bytes, latest[1], self._encode(latest[0]), timestamp)
        return None

    def _insert(self, key: bytes, value: V | None, timestamp: int, end: int | None) -> int | None:
        """Put a version among the earlier ones, where `end` is the latest version's timestamp if there is one."""
        data = None if value is None else self._encode(value)
        for segment, chain in self._chains(key, timestamp):
            if _end(chain) <= timestamp:
                break
            if _begin(chain) <= timestamp:
                return self._split(segment, key, chain, data, timestamp)
            end = _begin(chain)
        if end is None:
            if value is not None:
                self._latest.put(key, (value, timestamp))
            else:
                # The deletion ends no version and none follows it: older updates which come later end there.
                self._add(key, timestamp, None, timestamp)
        else:
            row_key = self._row_key(end // self._segment_ms, key)
            found = self._history.get(row_key)
            if found is None or _end(found) <= timestamp:
                self._history.put(row_key, _append(found, timestamp, data, end))
            else:
                self._history.put(row_key, _prepend(found, timestamp, data))
        return end

    def _split(self, segment: int, key: bytes, chain: bytes, data: bytes | None, timestamp: int) -> int:
        """Put a version into the chain of which one is valid at its timestamp, and return when the new one ends."""
        versions = _versions(chain)
        at = _place(versions, timestamp)
        if versions[at][0] == timestamp:
            versions[at] = (timestamp, data)
        else:
            at += 1
            versions.insert(at, (timestamp, data))
        self._history.put(self._row_key(segment, key), _chain(versions, _end(chain)))
        return versions[at + 1][0] if at + 1 < len(versions) else _end(chain)

    def _add(self, key: bytes, timestamp: int, value: bytes | None, end: int) -> None:
        """Put a version that has ended after all others of the segment in which it ended."""
        row_key = self._row_key(end // self._segment_ms, key)
        self._history.put(row_key, _append(self._history.get(row_key), timestamp, value, end))

    def all(self) -> Iterator[tuple[K, tuple[V, int]]]:
        """Iterate (key, (value, timestamp)) of the latest versions by serialised key."""
        decode = self._decode_key
        return ((decode(key), row) for key, row in self._latest.scan(b"", None))

    def history_keys(self, key: bytes, since: int) -> list[bytes]:
        """The row keys under which the history has what of a key ended since a time, wherever that may be."""
        segments = range(since // self._segment_ms, self._observed // self._segment_ms + 1)
        return [self._row_key(segment, key) for segment in segments]

    def _row_key(self, segment: int, key: bytes) -> bytes:
        return pack_time(segment) + key

    def _chains(self, key: bytes, since: int) -> Iterator[tuple[int, bytes]]:
        """Yield (segment, chain) of the key for the segments that reach beyond the time, newest first."""
        segments = range(self._observed // self._segment_ms, since // self._segment_ms - 1, -1)
        row_keys = [self._row_key(segment, key) for segment in segments]
        if len(row_keys) > 1:
            self._history.prefetch(row_keys)
        for segment, row_key in zip(segments, row_keys, strict=True):
            chain = self._history.get(row_key)
            if chain is not None:
                yield segment, chain

    # Time and the commit.

    def _observe(self, timestamp: int) -> None:
        self._observed = timestamp
        first_live = max(0, timestamp - self._retention_ms) // self._segment_ms
        if first_live > self._first_live:
            for row_key, _ in self._history.scan(pack_time(self._first_live), pack_time(first_live)):
                self._history.put(row_key, None)
            self._first_live = first_live

    @property
    def dirty_bytes(self) -> int:
        """About how many bytes of memory the uncommitted rows take."""
        return self._latest.dirty_bytes + self._history.dirty_bytes

    @property
    def gets(self) -> int:
        """How many rows were asked for one by one."""
        return self._latest.gets + self._history.gets

    def drain(self) -> dict[str, dict[bytes, bytes | None]]:
        """Return the uncommitted rows by back end store, and count them as committed."""
        return {self._latest.name: self._latest.drain(), self._history.name: self._history.drain()}

    def load(self, history: bool, row_key: bytes, row: bytes | None) -> None:
        """Take over a row as another store drained it, of the history or of the latest versions."""
        if history:
            self._history.put(row_key, row)
        else:
            self._latest.put(row_key, None if row is None else (self._decode(row[8:]), unpack_time(row, 0)))
        if row is not None:
            # A row of either kind begins with the time it has reached.
            self._observed = max(self._observed, unpack_time(row, 0))

    def memory(self) -> tuple[int]:
        """Return what must be committed besides the rows: the newest timestamp put."""
        return (self._observed,)

    def remember(self, memory: tuple[int]) -> None:
        """Go on where the store that gave this memory was, over the same committed rows."""
        (self._observed,) = memory
        self._first_live = max(0, self._observed - self._retention_ms) // self._segment_ms
