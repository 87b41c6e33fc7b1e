"""Stores for a task and for users: a description becomes the typed store of state/, and that becomes what
`context.store()`, `driver.store()` and an application's queries give. It owns the users' methods; layouts, retention
and order are state/'s.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

from headwater.dsl.camel import CamelCase
from headwater.dsl.durations import LONG_MAX
from headwater.dsl.options import flag_fault
from headwater.dsl.records import Windowed
from headwater.dsl.topology import StoreSpec
from headwater.errors import SerdeError, StreamsError
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

T = TypeVar("T")
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
    return [name for spec in specs for name in _CLASSES[spec.kind].backend_stores(spec.rows)]


def open_store(spec: StoreSpec, backend: Backend) -> Store:
    """The typed store of a description, over a back end that has its rows."""
    name, key, value = spec.rows, spec.key, spec.value
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


class _Public(CamelCase):
    """The parts of one store, a part per task, shown as one store."""

    def __init__(
        self,
        spec: StoreSpec,
        parts: Sequence[Any],
        now: Callable[[], int],
        writable: bool,
        route: Callable[[bytes], int] = lambda key: 0,
        drop: Callable[[], None] = lambda: None,
    ) -> None:
        self._spec = spec
        self._parts = parts
        self._now = now
        self._writable = writable
        self._route = route
        self._drop = drop

    def _write(self, key: Any, write: Callable[[Any], T]) -> T:
        """Write to the part that has a key."""
        if not self._writable:
            raise StreamsError(f"the global store {self._spec.name!r} can only be read: write to its topic instead")
        try:
            at = 0 if len(self._parts) == 1 else self._route(self._spec.key.encode(key))
            return write(self._parts[at])
        except SerdeError as error:
            raise SerdeError(f"{self._named(error)} (key {key!r:.80})") from error

    def _rows(self, read: Callable[[Any], Iterator[Any]], order: Callable[[Any], Any]) -> Iterator[Any]:
        """All parts' rows, in order."""
        try:
            parts = [read(part) for part in self._parts]
        except SerdeError as error:
            raise self._named(error) from error
        return parts[0] if len(parts) == 1 else heapq.merge(*parts, key=order)

    def _find(self, read: Callable[[Any], Any]) -> Any:
        """The row of whichever part has one."""
        try:
            for part in self._parts:
                row = read(part)
                if row is not None:
                    return row
        except SerdeError as error:
            raise self._named(error) from error
        return None

    def _named(self, error: SerdeError) -> SerdeError:
        return SerdeError(f"store {self._spec.name!r}: {error}")

    def _shown(self, timestamped: bool, timestamps: bool) -> Callable[[Any], Any]:
        """How a stored row is shown: without its timestamp, unless that is asked for."""
        if timestamps is not False and timestamps is not True:
            raise StreamsError(f"store {self._spec.name!r}: {flag_fault('timestamps=', timestamps)}")
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
        """The key's value, None if there is none; with `timestamps`, (value, timestamp).

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> _ = builder.table("in", store="s")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("in").send("k", 1, at=5)
        ...     driver.store("s").get("k"), driver.store("s").get("k", timestamps=True)
        (1, (1, 5))
        """
        return self._shown(self._timestamped, timestamps)(self._find(lambda part: part.get(key)))

    def put(self, key: Any, value: Any, *, timestamp: int | None = None) -> None:
        """Set the key's value; None deletes it. Without a timestamp it gets the current record's, if it keeps one.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> _ = builder.table("in", store="s")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.store("s").put("k", 1, timestamp=5)
        ...     driver.store("s").get("k", timestamps=True)
        (1, 5)
        """
        if self._timestamped:
            at = self._now() if timestamp is None else timestamp
            self._write(key, lambda part: part.put(key, value, at))
        elif timestamp is not None:
            raise StreamsError(f"the store {self._spec.name!r} keeps no timestamps: leave out timestamp=")
        else:
            self._write(key, lambda part: part.put(key, value))

    def delete(self, key: Any) -> None:
        """Delete the key's value, if there is one.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> _ = builder.table("in", store="s")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("in").send("k", 1, at=5)
        ...     driver.store("s").delete("k")
        ...     list(driver.store("s").all())
        []
        """
        self._write(key, lambda part: part.delete(key))

    def range(self, lo: Any, hi: Any, *, timestamps: bool = False) -> Iterator[tuple[Any, Any]]:
        """(key, value) from lo to hi, both included and None for no bound, in order of the serialised key.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> _ = builder.table("in", store="s")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     for key in "dacb":
        ...         driver.input("in").send(key, 1, at=0)
        ...     list(driver.store("s").range("b", "c"))
        [('b', 1), ('c', 1)]
        """
        shown, encode = self._shown(self._timestamped, timestamps), self._spec.key.encode
        rows = self._rows(lambda part: part.range(lo, hi), lambda item: encode(item[0]))
        return ((key, shown(row)) for key, row in rows)

    def all(self, *, timestamps: bool = False) -> Iterator[tuple[Any, Any]]:
        """Every (key, value), in order of the serialised key.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> _ = builder.table("in", store="s")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.send_all([("in", "b", 1, 5), ("in", "a", 2, 7)])
        ...     list(driver.store("s").all(timestamps=True))
        [('a', (2, 7)), ('b', (1, 5))]
        """
        return self.range(None, None, timestamps=timestamps)


class Windows(_Public):
    """A window store: a value per key and window start."""

    def _windowed(self, key: Any, start: int) -> Windowed:
        return Windowed(key, start, min(start + self._spec.size_ms, LONG_MAX))

    def get(self, key: Any, start: int, *, timestamps: bool = False) -> Any:
        """The value of the key's window that starts then, None if there is none.

        >>> from datetime import timedelta
        >>> from headwater import StreamsBuilder, TimeWindows, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> _ = builder.stream("in").group_by_key().windowed_by(TimeWindows.of(timedelta(seconds=1))).count(store="s")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("in").send("k", "x", at=1500)
        ...     driver.store("s").get("k", 1000), driver.store("s").get("k", 1500)
        (1, None)
        """
        return self._shown(self._spec.timestamped, timestamps)(self._find(lambda part: part.get(key, start)))

    def put(self, key: Any, value: Any, start: int, *, timestamp: int | None = None) -> None:
        """Set the value of the key's window that starts then; None deletes it.

        Without a timestamp it gets the current record's, if the store keeps one.

        >>> from datetime import timedelta
        >>> from headwater import StreamsBuilder, TimeWindows, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> _ = builder.stream("in").group_by_key().windowed_by(TimeWindows.of(timedelta(seconds=1))).count(store="s")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.store("s").put("k", 7, 1000, timestamp=1500)
        ...     driver.store("s").get("k", 1000, timestamps=True)
        (7, 1500)
        """
        if self._spec.timestamped:
            row = None if value is None else (value, self._now() if timestamp is None else timestamp)
        elif timestamp is not None:
            raise StreamsError(f"the store {self._spec.name!r} keeps no timestamps: leave out timestamp=")
        else:
            row = value
        if not self._write(key, lambda part: part.put(key, row, start)):
            self._drop()

    def fetch(self, key: Any, lo: int, hi: int, *, timestamps: bool = False) -> Iterator[tuple[Windowed, Any]]:
        """(Windowed, value) of the key's windows that start from lo to hi, both included, by start.

        >>> from datetime import timedelta
        >>> from headwater import StreamsBuilder, TimeWindows, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> _ = builder.stream("in").group_by_key().windowed_by(TimeWindows.of(timedelta(seconds=1))).count(store="s")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.send_all([("in", "k", "x", 500), ("in", "k", "x", 1500)])
        ...     list(driver.store("s").fetch("k", 1, 1000))
        [(Windowed(key='k', start=1000, end=2000), 1)]
        """
        shown = self._shown(self._spec.timestamped, timestamps)
        rows = self._rows(lambda part: part.fetch(key, lo, hi), lambda item: item[0])
        return ((self._windowed(key, start), shown(row)) for start, row in rows)

    def all(self, *, timestamps: bool = False) -> Iterator[tuple[Windowed, Any]]:
        """Every (Windowed, value), in order of the serialised key, then of the start.

        >>> from datetime import timedelta
        >>> from headwater import StreamsBuilder, TimeWindows, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> _ = builder.stream("in").group_by_key().windowed_by(TimeWindows.of(timedelta(seconds=1))).count(store="s")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.send_all([("in", "b", "x", 0), ("in", "a", "x", 0)])
        ...     [(window.key, count) for window, count in driver.store("s").all()]
        [('a', 1), ('b', 1)]
        """
        shown, encode = self._shown(self._spec.timestamped, timestamps), self._spec.key.encode
        rows = self._rows(lambda part: part.all(), lambda item: (encode(item[0]), item[1]))
        return ((self._windowed(key, start), shown(row)) for key, start, row in rows)


class Sessions(_Public):
    """A session store: a value per key and session."""

    def get(self, session: Windowed) -> Any:
        """The session's value, None if there is none.

        >>> from datetime import timedelta
        >>> from headwater import SessionWindows, StreamsBuilder, TopologyTestDriver, Windowed
        >>> builder = StreamsBuilder()
        >>> _ = builder.stream("a").group_by_key().windowed_by(SessionWindows.of(timedelta(seconds=1))).count(store="s")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.send_all([("a", "k", "x", 0), ("a", "k", "x", 900)])
        ...     driver.store("s").get(Windowed("k", 0, 900))
        2
        """
        return self._find(lambda part: part.get(session.key, session.start, session.end))

    def put(self, session: Windowed, value: Any) -> None:
        """Set the session's value; None deletes it.

        >>> from datetime import timedelta
        >>> from headwater import SessionWindows, StreamsBuilder, TopologyTestDriver, Windowed
        >>> builder = StreamsBuilder()
        >>> _ = builder.stream("a").group_by_key().windowed_by(SessionWindows.of(timedelta(seconds=1))).count(store="s")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.store("s").put(Windowed("k", 0, 900), 7)
        ...     driver.store("s").get(Windowed("k", 0, 900))
        7
        """
        key, start, end = session
        if not self._write(key, lambda part: part.put(key, start, end, value)):
            self._drop()

    def remove(self, session: Windowed) -> None:
        """Delete the session, if there is one.

        >>> from datetime import timedelta
        >>> from headwater import SessionWindows, StreamsBuilder, TopologyTestDriver, Windowed
        >>> builder = StreamsBuilder()
        >>> _ = builder.stream("a").group_by_key().windowed_by(SessionWindows.of(timedelta(seconds=1))).count(store="s")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("a").send("k", "x", at=5)
        ...     driver.store("s").remove(Windowed("k", 5, 5))
        ...     list(driver.store("s").all())
        []
        """
        key, start, end = session
        self._write(key, lambda part: part.remove(key, start, end))

    def fetch(self, key: Any) -> Iterator[tuple[Windowed, Any]]:
        """(Windowed, value) of the key's sessions, by end and start.

        >>> from datetime import timedelta
        >>> from headwater import SessionWindows, StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> _ = builder.stream("a").group_by_key().windowed_by(SessionWindows.of(timedelta(seconds=1))).count(store="s")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.send_all([("a", "k", "x", 0), ("a", "other", "x", 0)])
        ...     list(driver.store("s").fetch("k"))
        [(Windowed(key='k', start=0, end=0), 1)]
        """
        rows = self._rows(lambda part: part.fetch(key), lambda item: (item[1], item[0]))
        return ((Windowed(key, start, end), value) for start, end, value in rows)

    def all(self) -> Iterator[tuple[Windowed, Any]]:
        """Every (Windowed, value), in order of the serialised key, then by end and start.

        >>> from datetime import timedelta
        >>> from headwater import SessionWindows, StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> _ = builder.stream("a").group_by_key().windowed_by(SessionWindows.of(timedelta(seconds=1))).count(store="s")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.send_all([("a", "k", "x", 0), ("a", "k", "x", 900)])
        ...     list(driver.store("s").all())
        [(Windowed(key='k', start=0, end=900), 2)]
        """
        encode = self._spec.key.encode
        rows = self._rows(lambda part: part.all(), lambda item: (encode(item[0]), item[2], item[1]))
        return ((Windowed(key, start, end), value) for key, start, end, value in rows)


class Versions(_Public):
    """A versioned store: every version of a key's value that is not older than its retention."""

    def get(self, key: Any, as_of: int | None = None) -> tuple[Any, int, int | None] | None:
        """(value, timestamp, None) of the version valid as of the time, of the latest if none is given.

        The third part is for the time when the version ended, which Kafka Streams' typed stores do not tell.

        >>> from datetime import timedelta
        >>> from headwater import StreamsBuilder, TopologyTestDriver, Versioned
        >>> builder = StreamsBuilder()
        >>> _ = builder.table("in", store=Versioned("s", retention=timedelta(minutes=1)))
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.send_all([("in", "k", "old", 10), ("in", "k", "new", 20)])
        ...     driver.store("s").get("k"), driver.store("s").get("k", as_of=19)
        (('new', 20, None), ('old', 10, None))
        """
        row = self._find(lambda part: part.get(key, as_of))
        return None if row is None else (row[0], row[1], None)

    def put(self, key: Any, value: Any, timestamp: int) -> None:
        """Add a version; None deletes from then on. One that is older than the retention is not kept.

        >>> from datetime import timedelta
        >>> from headwater import StreamsBuilder, TopologyTestDriver, Versioned
        >>> builder = StreamsBuilder()
        >>> _ = builder.table("in", store=Versioned("s", retention=timedelta(minutes=1)))
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.store("s").put("k", "new", 20)
        ...     driver.store("s").put("k", "old", 10)
        ...     driver.store("s").get("k")
        ('new', 20, None)
        """
        if self._write(key, lambda part: part.put(key, value, timestamp)) == EXPIRED:
            self._drop()

    def all(self, *, timestamps: bool = False) -> Iterator[tuple[Any, Any]]:
        """Every key with its latest value, in order of the serialised key.

        >>> from datetime import timedelta
        >>> from headwater import StreamsBuilder, TopologyTestDriver, Versioned
        >>> builder = StreamsBuilder()
        >>> _ = builder.table("in", store=Versioned("s", retention=timedelta(minutes=1)))
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.send_all([("in", "b", 1, 10), ("in", "a", 2, 20), ("in", "b", 3, 30)])
        ...     list(driver.store("s").all())
        [('a', 2), ('b', 3)]
        """
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
    drop: Callable[[], None] = lambda: None,
) -> _Public:
    """A store as users see it; several parts (one per task) are shown as one, and `route` says which one has a key.

    `drop` is called for each row that is not stored because it is past the retention.
    """
    kind = _PUBLIC.get(spec.kind)
    if kind is None:
        raise StreamsError(f"{spec.name!r} is the inner store of a step, which only that step can read")
    return kind(spec, parts, now, writable, route, drop)
