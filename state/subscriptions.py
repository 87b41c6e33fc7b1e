"""Who waits for which foreign key: a foreign-key join's subscriptions. It owns their layout and order; what a
subscription says is the join's.

| bytes of the row key | content |
|---|---|
| first | foreign key, escaped |
| then | primary key |

Keys are compared as the bytes they are serialised to, as in Kafka Streams.
"""

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from headwater.state.backend import Backend
from headwater.state.codec import Codec, Timestamped
from headwater.state.layout import escape
from headwater.state.rows import Rows

__all__ = ["SubscriptionStore"]

V = TypeVar("V")


class SubscriptionStore(Generic[V]):
    """Rows (value, timestamp) by (foreign key, primary key), readable by foreign key.

    >>> from headwater.state.layout import Raw
    >>> from headwater.state.memory import MemoryBackend
    >>> from headwater.state.subscriptions import SubscriptionStore
    >>> backend = MemoryBackend(SubscriptionStore.backend_stores("subscribers"))
    >>> store = SubscriptionStore(backend, "subscribers", Raw())
    >>> store.put(b"fk", b"b", b"row", 7)
    >>> store.put(b"fk", b"a", b"row", 8)
    >>> list(store.scan(b"fk"))
    [(b'a', (b'row', 8)), (b'b', (b'row', 7))]
    """

    __slots__ = ("_rows", "name")

    def __init__(self, backend: Backend, name: str, value: Codec[V]) -> None:
        self.name = name
        self._rows = Rows(backend, name, Timestamped(value))

    @staticmethod
    def backend_stores(name: str) -> tuple[str, ...]:
        """Return the names of the back end stores that a store of this name lives in."""
        return (name,)

    def row_key(self, foreign_key: bytes, primary_key: bytes) -> bytes:
        """Return what the subscription is filed under."""
        return escape(foreign_key) + primary_key

    def prefetch(self, row_keys: Iterable[bytes]) -> None:
        """Read the subscriptions in one call, for the gets to come."""
        self._rows.prefetch(row_keys)

    def get(self, foreign_key: bytes, primary_key: bytes) -> tuple[V, int] | None:
        """Return the subscription's (value, timestamp), or None."""
        return self._rows.get(self.row_key(foreign_key, primary_key))

    def put(self, foreign_key: bytes, primary_key: bytes, value: V, timestamp: int) -> None:
        """Set the subscription."""
        self._rows.put(self.row_key(foreign_key, primary_key), (value, timestamp))

    def delete(self, foreign_key: bytes, primary_key: bytes) -> None:
        """Delete the subscription if there is one."""
        self._rows.put(self.row_key(foreign_key, primary_key), None)

    def scan(self, foreign_key: bytes) -> Iterator[tuple[bytes, tuple[V, int]]]:
        """Iterate (primary key, (value, timestamp)) of the foreign key by serialised primary key, as of the call."""
        prefix = escape(foreign_key)
        at = len(prefix)
        # The escaped key ends with 00 00: with 00 01 in its place, it is after all that begin with it.
        return ((row_key[at:], row) for row_key, row in self._rows.scan(prefix, prefix[:-1] + b"\x01"))

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
