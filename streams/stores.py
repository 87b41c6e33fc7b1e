"""Stores for a task and for users: a description becomes the typed store of state/, and that becomes what
`context.store()`, `driver.store()` and an application's queries give. It owns the users' methods; layouts, retention
and order are state/'s.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from headwater.dsl.records import Windowed
from headwater.dsl.topology import StoreSpec
from headwater.errors import StreamsError
from headwater.state.backend import Backend
from headwater.state.buffers import ChangeBuffer, GraceBuffer
from headwater.state.codec import Timestamped
from headwater.state.keyvalue import KeyValueStore, TimestampedStore
from headwater.state.session import SessionStore
from headwater.state.subscriptions import SubscriptionStore
from headwater.state.unmatched import UnmatchedStore
from headwater.state.versioned import EXPIRED, VersionedStore
from headwater.state.window import WindowStore

__all__ = [
    "KeyValues",
    "Sessions",
    "Store",
    "TableStore",
    "Versions",
    "Windows",
    "backend_stores",
    "open_store",
    "public",
]

Row: TypeAlias = tuple[Any, int]
Store: TypeAlias = (
    KeyValueStore[Any, Any]
    | TimestampedStore[Any, Any]
    | VersionedStore[Any, Any]
    | WindowStore[Any, Any]
    | SessionStore[Any, Any]
    | ChangeBuffer
    | GraceBuffer
    | UnmatchedStore[Any, Any, Any]
    | SubscriptionStore[Any]
)

_CLASSES: dict[str, Any] = {
    "key-value": KeyValueStore,
    "timestamped": TimestampedStore,
    "versioned": VersionedStore,
    "window": WindowStore,
    "session": SessionStore,
    "suppressed": ChangeBuffer,
    "grace": GraceBuffer,
    "unmatched": UnmatchedStore,
    "subscriptions": SubscriptionStore,
}


def backend_stores(specs: Iterable[StoreSpec]) -> list[str]:
    """The names of the back end stores that these stores live in."""
    return [name for spec in specs for name in _CLASSES[spec.kind].backend_stores(spec.name)]


def open_store(spec: StoreSpec, backend: Backend) -> Store:
    """The typed store of a description, over a back end that has its rows."""
    name, key, value = spec.name, spec.key, spec.value
    match spec.kind:
        case "key-value":
            return KeyValueStore(backend, name, key, value)
        case "timestamped":
            return TimestampedStore(backend, name, key, value)
        case "versioned":
            return VersionedStore(backend, name, key, value, retention_ms=spec.retention_ms)
        case "window":
            return WindowStore(
                backend,
                name,
                key,
                Timestamped(value) if spec.timestamped else value,
                retention_ms=spec.retention_ms,
                duplicates=spec.duplicates,
                time_ordered=spec.on_close,
            )
        case "session":
            return SessionStore(backend, name, key, value, retention_ms=spec.retention_ms)
        case "suppressed":
            return ChangeBuffer(backend, name)
        case "grace":
            return GraceBuffer(backend, name, grace_ms=spec.retention_ms)
        case "unmatched":
            return UnmatchedStore(backend, name, key, value, spec.other_value or value)
        case "subscriptions":
            return SubscriptionStore(backend, name, value)


class TableStore:
    """A table's rows, whatever keeps them: current ones, and if `versioned` also earlier ones.

    `put` tells whether the row is now the latest, None if it was not stored.
    """

    __slots__ = ("as_of", "get", "put", "versioned")

    get: Callable[[Any], Row | None]
    put: Callable[[Any, Any, int], bool | None]
    as_of: Callable[[Any, int], Row | None]

    def __init__(self, store: Store) -> None:
        self.versioned = isinstance(store, VersionedStore)
        if isinstance(store, VersionedStore):
            self.get, self.put, self.as_of = _versioned(store)
        elif isinstance(store, TimestampedStore):
            self.get, self.put, self.as_of = _timestamped(store)
        else:
            raise StreamsError(f"the store {store.name!r} keeps no table")


def _versioned(store: VersionedStore[Any, Any]) -> tuple[Any, Any, Any]:
    def get(key: Any) -> Row | None:
        row = store.get(key)
        return None if row is None else row[:2]

    def put(key: Any, value: Any, timestamp: int) -> bool | None:
        ended = store.put(key, value, timestamp)
        return None if ended == EXPIRED else ended is None

    def as_of(key: Any, timestamp: int) -> Row | None:
        row = store.get(key, timestamp)
        return None if row is None else row[:2]

    return get, put, as_of


def _timestamped(store: TimestampedStore[Any, Any]) -> tuple[Any, Any, Any]:
    stored = store.put

    def put(key: Any, value: Any, timestamp: int) -> bool:
        stored(key, value, timestamp)
        return True

    def as_of(key: Any, timestamp: int) -> Row | None:
        return store.get(key)

    return store.get, put, as_of


# ---- what users see ----------------------------------------------------------------------------------------------


class _Public:
    """The parts of one store, a part per task, shown as one store."""

    def __init__(
        self,
        spec: StoreSpec,
        parts: Sequence[Any],
        now: Callable[[], int],
        writable: bool,
        route: Callable[[bytes], int] = lambda key: 0,
    ) -> None:
        self._spec = spec
        self._parts = parts
        self._now = now
        self._writable = writable
        self._route = route

    def _part(self, key: Any) -> Any:
        """The part to write a key to."""
        if not self._writable:
            raise StreamsError(f"the global store {self._spec.name!r} can only be read: write to its topic instead")
        return self._parts[0] if len(self._parts) == 1 else self._parts[self._route(self._spec.key.encode(key))]

    def _rows(self, read: Callable[[Any], Iterator[Any]], order: Callable[[Any], Any]) -> Iterator[Any]:
        """All parts' rows, in order."""
        if len(self._parts) == 1:
            return read(self._parts[0])
        return heapq.merge(*(read(part) for part in self._parts), key=order)

    def _find(self, read: Callable[[Any], Any]) -> Any:
        """The row of whichever part has one."""
        for part in self._parts:
            row = read(part)
            if row is not None:
                return row
        return None

    def _shown(self, timestamped: bool, timestamps: bool) -> Callable[[Any], Any]:
        """How a stored row is shown: without its timestamp, unless that is asked for."""
        if timestamps and not timestamped:
            raise StreamsError(f"the store {self._spec.name!r} keeps no timestamps: leave out timestamps=")
        return _value if timestamped and not timestamps else _as_it_is


def _value(row: Any) -> Any:
    return None if row is None else row[0]


def _as_it_is(row: Any) -> Any:
    return row


class KeyValues(_Public):
    """A key-value store: a value per key.

    >>> from headwater import KeyValue, Processor, Str, Topology, TopologyTestDriver
    >>> class Last(Processor):
    ...     def process(self, record):
    ...         self.context.store("last").put(record.key, record.value)
    >>> topology = (Topology().add_source("in", "words", value=Str()).add_processor("keep", Last, "in")
    ...     .add_store(KeyValue("last", value=Str()), "keep"))
    >>> with TopologyTestDriver(topology) as driver:
    ...     driver.input("words").send("b", "two", at=1)
    ...     driver.input("words").send("a", "one", at=2)
    ...     driver.store("last").get("a"), list(driver.store("last").all())
    ('one', [('a', 'one'), ('b', 'two')])
    """

    @property
    def _timestamped(self) -> bool:
        return self._spec.kind == "timestamped"

    def get(self, key: Any, *, timestamps: bool = False) -> Any:
        """The key's value, None if there is none; with `timestamps`, (value, timestamp)."""
        return self._shown(self._timestamped, timestamps)(self._find(lambda part: part.get(key)))

    def put(self, key: Any, value: Any, *, timestamp: int | None = None) -> None:
        """Set the key's value; None deletes it. Without a timestamp it gets the current record's, if it keeps one."""
        part = self._part(key)
        if self._timestamped:
            part.put(key, value, self._now() if timestamp is None else timestamp)
        elif timestamp is not None:
            raise StreamsError(f"the store {self._spec.name!r} keeps no timestamps: leave out timestamp=")
        else:
            part.put(key, value)

    def delete(self, key: Any) -> None:
        """Delete the key's value, if there is one."""
        self._part(key).delete(key)

    def range(self, lo: Any, hi: Any, *, timestamps: bool = False) -> Iterator[tuple[Any, Any]]:
        """(key, value) from lo to hi, both included and None for no bound, in order of the serialised key."""
        shown, encode = self._shown(self._timestamped, timestamps), self._spec.key.encode
        rows = self._rows(lambda part: part.range(lo, hi), lambda item: encode(item[0]))
        return ((key, shown(row)) for key, row in rows)

    def all(self, *, timestamps: bool = False) -> Iterator[tuple[Any, Any]]:
        """Every (key, value), in order of the serialised key."""
        return self.range(None, None, timestamps=timestamps)


class Windows(_Public):
    """A window store: a value per key and window start."""

    def _windowed(self, key: Any, start: int) -> Windowed:
        return Windowed(key, start, start + self._spec.size_ms)

    def get(self, key: Any, start: int, *, timestamps: bool = False) -> Any:
        """The value of the key's window that starts then, None if there is none."""
        return self._shown(self._spec.timestamped, timestamps)(self._find(lambda part: part.get(key, start)))

    def put(self, key: Any, value: Any, start: int, *, timestamp: int | None = None) -> None:
        """Set the value of the key's window that starts then; None deletes it."""
        part = self._part(key)
        if self._spec.timestamped:
            row = None if value is None else (value, self._now() if timestamp is None else timestamp)
        elif timestamp is not None:
            raise StreamsError(f"the store {self._spec.name!r} keeps no timestamps: leave out timestamp=")
        else:
            row = value
        part.put(key, row, start)

    def fetch(self, key: Any, lo: int, hi: int, *, timestamps: bool = False) -> Iterator[tuple[Windowed, Any]]:
        """(Windowed, value) of the key's windows that start from lo to hi, both included, by start."""
        shown = self._shown(self._spec.timestamped, timestamps)
        rows = self._rows(lambda part: part.fetch(key, lo, hi), lambda item: item[0])
        return ((self._windowed(key, start), shown(row)) for start, row in rows)

    def all(self, *, timestamps: bool = False) -> Iterator[tuple[Windowed, Any]]:
        """Every (Windowed, value), in order of the serialised key, then of the start."""
        shown, encode = self._shown(self._spec.timestamped, timestamps), self._spec.key.encode
        rows = self._rows(lambda part: part.all(), lambda item: (encode(item[0]), item[1]))
        return ((self._windowed(key, start), shown(row)) for key, start, row in rows)


class Sessions(_Public):
    """A session store: a value per key and session."""

    def get(self, session: Windowed) -> Any:
        """The session's value, None if there is none."""
        return self._find(lambda part: part.get(session.key, session.start, session.end))

    def put(self, session: Windowed, value: Any) -> None:
        """Set the session's value; None deletes it."""
        self._part(session.key).put(session.key, session.start, session.end, value)

    def remove(self, session: Windowed) -> None:
        """Delete the session, if there is one."""
        self._part(session.key).remove(session.key, session.start, session.end)

    def fetch(self, key: Any) -> Iterator[tuple[Windowed, Any]]:
        """(Windowed, value) of the key's sessions, by end and start."""
        rows = self._rows(lambda part: part.fetch(key), lambda item: (item[1], item[0]))
        return ((Windowed(key, start, end), value) for start, end, value in rows)

    def all(self) -> Iterator[tuple[Windowed, Any]]:
        """Every (Windowed, value), in order of the serialised key, then by end and start."""
        encode = self._spec.key.encode
        rows = self._rows(lambda part: part.all(), lambda item: (encode(item[0]), item[2], item[1]))
        return ((Windowed(key, start, end), value) for key, start, end, value in rows)


class Versions(_Public):
    """A versioned store: every version of a key's value that is not older than its retention."""

    def get(self, key: Any, as_of: int | None = None) -> tuple[Any, int, int | None] | None:
        """(value, timestamp, None) of the version valid as of the time, of the latest if none is given.

        The third part is for the time when the version ended, which Kafka Streams' typed stores do not tell.
        """
        row = self._find(lambda part: part.get(key, as_of))
        return None if row is None else (row[0], row[1], None)

    def put(self, key: Any, value: Any, timestamp: int) -> None:
        """Add a version; None deletes from then on. One that is older than the retention is not kept."""
        self._part(key).put(key, value, timestamp)

    def all(self, *, timestamps: bool = False) -> Iterator[tuple[Any, Any]]:
        """Every key with its latest value, in order of the serialised key."""
        shown, encode = self._shown(True, timestamps), self._spec.key.encode
        rows = self._rows(lambda part: part.all(), lambda item: encode(item[0]))
        return ((key, shown(row)) for key, row in rows)


_PUBLIC: dict[str, type[_Public]] = {
    "key-value": KeyValues,
    "timestamped": KeyValues,
    "versioned": Versions,
    "window": Windows,
    "session": Sessions,
}


def public(
    spec: StoreSpec,
    parts: Sequence[Any],
    now: Callable[[], int],
    writable: bool,
    route: Callable[[bytes], int] = lambda key: 0,
) -> _Public:
    """A store as users see it; several parts (one per task) are shown as one, and `route` says which one has a key."""
    kind = _PUBLIC.get(spec.kind)
    if kind is None:
        raise StreamsError(f"{spec.name!r} is the inner store of a step, which only that step can read")
    return kind(spec, parts, now, writable, route)
