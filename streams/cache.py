"""Kafka Streams' record cache: updates of a key fold into one until the commit, or until the cache is full. It owns
what is forwarded late and in which order, and which rows can be read past their retention because they are in it; our
stores are written at once, so it never has a row of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headwater.dsl.records import Headers
from headwater.dsl.topology import StoreSpec
from headwater.state.session import SessionStore
from headwater.state.window import WindowStore
from headwater.streams.context import Place, TaskContext
from headwater.streams.stores import Store

if TYPE_CHECKING:
    from headwater.streams.compile import Step

__all__ = ["CachedStore", "RecordCache"]

# Kafka Streams' estimate: references in its linked list, then flag, timestamp, offset and partition of an entry.
_NODE_BYTES = 24
_ENTRY_BYTES = 1 + 8 + 8 + 4
# What its keys of window and session stores have besides the serialised key: segment, times and sequence number.
_WINDOW_KEY_BYTES = 8 + 8 + 4
_SESSION_KEY_BYTES = 8 + 16


class _Entry:
    """What is to be forwarded for one key; clean ones (nothing to forward) still take their place in the cache."""

    __slots__ = ("dirty", "headers", "key", "new", "old", "place", "size", "timestamp")

    def __init__(self, size: int) -> None:
        self.size = size
        self.dirty = False
        self.key: Any = None
        self.new: bytes | None = None
        self.old: Any = None
        self.timestamp = -1
        self.headers: Headers = ()
        self.place: Place = (None, None, None, -1, None)


class RecordCache:
    """The caches of a task's stores, which share one bound."""

    def __init__(self, max_bytes: int, context: TaskContext) -> None:
        self.max_bytes = max_bytes
        self.context = context
        self.size = 0
        self._stores: dict[str, CachedStore] = {}

    def store(self, spec: StoreSpec, store: Store) -> CachedStore:
        """The cache in front of one store; all nodes that update the store share it."""
        cached = self._stores.get(spec.name)
        if cached is None:
            cached = self._stores[spec.name] = CachedStore(self, spec, store)
        return cached

    def hits(self, store: str) -> int:
        """How many updates of a store have found their key in the cache."""
        cached = self._stores.get(store)
        return 0 if cached is None else cached.hits

    def sort(self, stores: list[str]) -> None:
        """Flush the stores in this order."""
        self._stores = {name: self._stores[name] for name in stores if name in self._stores}

    def flush(self) -> None:
        """Forward all folded updates, store by store, and those which that leads to."""
        stores = self._stores.values()
        while any(store.dirty for store in stores):
            for store in stores:
                store.flush()


class CachedStore:
    """The folded updates of one store, by serialised key; a window or session store's by row key."""

    def __init__(self, cache: RecordCache, spec: StoreSpec, store: Store) -> None:
        self._cache = cache
        self._context = cache.context
        self._spec = spec
        # From the least to the most recently used one.
        self._entries: dict[bytes, _Entry] = {}
        # In the order of their last update.
        self.dirty: dict[bytes, tuple[_Entry, Step, bool]] = {}
        # How many updates have found their key in the cache.
        self.hits = 0
        self._file = _filing(spec, store)
        self._entry_bytes = _NODE_BYTES + _ENTRY_BYTES + (8 if spec.kind == "timestamped" or spec.timestamped else 0)
        self._settle: Callable[[bytes], bool] = _always
        self._release: Callable[[bytes], None] = _nothing
        if isinstance(store, WindowStore | SessionStore):
            self._hold_again(store)

    def _hold_again(self, store: WindowStore[Any, Any] | SessionStore[Any, Any]) -> None:
        """Take up the rows that the cache of an earlier task held; of these nothing is left to forward."""
        self._settle, self._release = store.settle, store.release
        for filed, row in store.hold(self._touch):
            value = row[0] if self._spec.timestamped else row
            entry = self._entries[filed] = _Entry(len(filed) + self._entry_bytes + len(self._spec.value.encode(value)))
            self._cache.size += entry.size

    def _touch(self, filed: bytes) -> None:
        entry = self._entries.pop(filed, None)
        if entry is not None:
            self._entries[filed] = entry

    def emitter(self, forward: Step, send_old: bool) -> Step:
        """How one node forwards its updates of the store."""
        context, dirty, entries, cache = self._context, self.dirty, self._entries, self._cache
        encode, file, fixed = self._spec.value.encode, self._file, self._entry_bytes

        def emit(key: Any, new: Any, old: Any, latest: bool, timestamp: int, headers: Headers) -> None:
            filed, key_bytes = file(key)
            entry = entries.pop(filed, None)
            if entry is None:
                entry = _Entry(0)
            else:
                self.hits += 1
            entries[filed] = entry
            if not entry.dirty:
                entry.dirty, entry.old = True, old
            entry.key = key
            entry.new = None if new is None else encode(new)
            entry.headers = headers
            entry.timestamp = timestamp
            entry.place = context.here()
            dirty.pop(filed, None)
            dirty[filed] = entry, forward, send_old
            size = key_bytes + fixed + len(entry.new or b"") + len(context.topic or "")
            for name, content in entry.headers:
                size += len(name) + len(content or b"")
            cache.size += size - entry.size
            entry.size = size
            if cache.size > cache.max_bytes:
                self._evict()

        return emit

    def _evict(self) -> None:
        cache, entries = self._cache, self._entries
        while cache.size > cache.max_bytes and entries:
            filed = next(iter(entries))
            entry = entries.pop(filed)
            cache.size -= entry.size
            if filed in self.dirty:
                self._forward({filed: self.dirty.pop(filed)})
            if filed not in entries:
                self._release(filed)

    def flush(self) -> None:
        """Forward all folded updates."""
        if self.dirty:
            self._forward({})

    def _forward(self, first: dict[bytes, tuple[_Entry, Step, bool]]) -> None:
        context, decode = self._context, self._spec.value.decode
        # Forwarding may lead back here, so what is dirty is taken out before.
        updates = list({**first, **self.dirty}.items())
        self.dirty.clear()
        for _, (entry, _, _) in updates:
            entry.dirty = False
        here = context.here()
        for filed, (entry, forward, send_old) in updates:
            old, entry.old = entry.old, None
            if entry.new is None and not entry.dirty and self._entries.get(filed) is entry:
                del self._entries[filed]
                self._cache.size -= entry.size
            # Only now does Kafka Streams read the old value, from a store which may no longer show it.
            if not self._settle(filed):
                old = None
            if entry.new is None and old is None:
                continue
            context.go(entry.place)
            new = None if entry.new is None else decode(entry.new)
            forward(entry.key, new, old if send_old else None, True, entry.timestamp, entry.headers)
        context.go(here)


def _always(filed: bytes) -> bool:
    """Whether a store that keeps its rows for ever still has a row."""
    return True


def _nothing(filed: bytes) -> None:
    """What a store does that keeps its rows for ever when the cache lets go of one."""


def _filing(spec: StoreSpec, store: Store) -> Callable[[Any], tuple[bytes, int]]:
    """What a key is filed under, and how many bytes it takes in Kafka Streams' cache."""
    encode = spec.key.encode
    if isinstance(store, WindowStore):

        def window(key: Any) -> tuple[bytes, int]:
            return store.row_key(key.key, key.start), len(encode(key.key)) + _WINDOW_KEY_BYTES

        return window
    if isinstance(store, SessionStore):

        def session(key: Any) -> tuple[bytes, int]:
            return store.row_key(key.key, key.start, key.end), len(encode(key.key)) + _SESSION_KEY_BYTES

        return session

    def plain(key: Any) -> tuple[bytes, int]:
        filed = encode(key)
        return filed, len(filed)

    return plain
