"""Key-value stores, plain and timestamped: typed keys and rows over one Rows. They own the order of a range and the
shape of a row; who may see a store, and what an update forwards, is the operators'."""

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from headwater.state.backend import Backend
from headwater.state.codec import Codec, Timestamped
from headwater.state.rows import Rows

__all__ = ["KeyValueStore", "TimestampedStore"]

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")


class _Keyed(Generic[K, R]):
    """What both have in common: rows R under keys K, in the order of the serialised keys."""

    # The hot path: a row is read and written with its key encoded once; `write_stable` takes only what codecs call so.
    __slots__ = ("_decode_key", "_encode_key", "_rows", "name", "read", "row_key", "write", "write_stable")

    def __init__(self, backend: Backend, name: str, key: Codec[K], row: Codec[R]) -> None:
        self.name = name
        self._encode_key = self.row_key = key.encode
        self._decode_key = key.decode
        self._rows: Rows[R] = Rows(backend, name, row)
        self.read = self._rows.get
        self.write = self._rows.put
        self.write_stable = self._rows.put_stable

    @staticmethod
    def backend_stores(name: str) -> tuple[str, ...]:
        """Return the names of the back end's stores that a store of this name needs."""
        return (name,)

    def get(self, key: K) -> R | None:
        """Return the key's row, or None."""
        return self._rows.get(self._encode_key(key))

    def delete(self, key: K) -> None:
        """Delete the key's row, if there is one."""
        self._rows.put(self._encode_key(key), None)

    def range(self, lo: K | None, hi: K | None) -> Iterator[tuple[K, R]]:
        """Iterate the rows from lo to hi, both included and None for no bound, in order of the serialised key.

        They are the rows as of the call: puts and deletes during the iteration are safe, and it does not see them.
        """
        first = b"" if lo is None else self._encode_key(lo)
        # The smallest key that is greater.
        end = None if hi is None else self._encode_key(hi) + b"\0"
        decode = self._decode_key
        return ((decode(key), row) for key, row in self._rows.scan(first, end))

    def all(self) -> Iterator[tuple[K, R]]:
        """Iterate all rows as of the call, in order of the serialised key."""
        return self.range(None, None)

    def prefetch(self, keys: Iterable[bytes]) -> None:
        """Read the rows of these serialised keys in one call to the back end, for the gets to come."""
        self._rows.prefetch(keys)

    @property
    def dirty_bytes(self) -> int:
        """About how many bytes the uncommitted rows take."""
        return self._rows.dirty_bytes

    @property
    def gets(self) -> int:
        """How many rows were asked for one by one."""
        return self._rows.gets

    def drain(self) -> dict[str, dict[bytes, bytes | None]]:
        """Return the uncommitted rows by back end store, for the caller to write before it reads anything else."""
        return {self.name: self._rows.drain()}

    def memory(self) -> None:
        """Return None: there is nothing to remember besides the rows."""

    def remember(self, memory: None) -> None:
        """Take back what memory gave."""


class KeyValueStore(_Keyed[K, V]):
    """Values by key.

    >>> from headwater.state.keyvalue import KeyValueStore
    >>> from headwater.state.layout import Raw
    >>> from headwater.state.memory import MemoryBackend
    >>> store = KeyValueStore(MemoryBackend(KeyValueStore.backend_stores("names")), "names", Raw(), Raw())
    >>> store.put(b"b", b"Bob")
    >>> store.put(b"a", b"Ada")
    >>> store.get(b"b"), list(store.all())
    (b'Bob', [(b'a', b'Ada'), (b'b', b'Bob')])
    """

    __slots__ = ()

    def __init__(self, backend: Backend, name: str, key: Codec[K], value: Codec[V]) -> None:
        super().__init__(backend, name, key, value)

    def put(self, key: K, value: V | None) -> None:
        """Set the key's value; None deletes it."""
        self._rows.put(self._encode_key(key), value)


class TimestampedStore(_Keyed[K, tuple[V, int]]):
    """Values with their timestamps by key.

    >>> from headwater.state.keyvalue import TimestampedStore
    >>> from headwater.state.layout import Raw
    >>> from headwater.state.memory import MemoryBackend
    >>> store = TimestampedStore(MemoryBackend(["names"]), "names", Raw(), Raw())
    >>> store.put(b"a", b"Ada", 1815)
    >>> store.get(b"a")
    (b'Ada', 1815)
    """

    __slots__ = ()

    def __init__(self, backend: Backend, name: str, key: Codec[K], value: Codec[V]) -> None:
        super().__init__(backend, name, key, Timestamped(value))

    def put(self, key: K, value: V | None, timestamp: int) -> None:
        """Set the key's value and timestamp; None deletes both."""
        self._rows.put(self._encode_key(key), None if value is None else (value, timestamp))
