"""A store's changelog: its committed rows as records, and records as rows. It owns the translation between our row keys
and the bytes in which Kafka Streams 4.3.1 writes the same store, so that one application can take over from the other;
topics, offsets and who writes when are others'. Records have no headers.

| kind of store | record key | value | timestamp |
|---|---|---|---|
| key-value | key | value | now |
| timestamped | key | value | the stored one |
| window | key, start (8), sequence (4; 0 without duplicates) | value | the stored one, or the start |
| session | key, end (8), start (8) | value | the end |
| subscriptions | length of the foreign key (4), foreign key, primary key | subscription | the stored one |
| unmatched | timestamp (8), side (1; left 1), key | 01, count (4), then of each: length (4), side, value | now |
| versioned | key | value of one version, none for a deletion | the version's own |
| suppressed, grace | F7 48 57, number of the back end store (1), row key | our row | now |

Numbers are big-endian. A deletion is a record without a value; its timestamp is now, for a window its start and for a
session its end: they pass out of the topic with what they delete. Kafka Streams gives those the time of the record that
deletes, and leaves rows past their retention to the topic's; ours are deleted by records too, so that a copy which only
reads the changelog holds what the store holds.

Of a versioned store each record is one version, as Kafka Streams logs its puts; those of a commit come by their
timestamps, so that none is too old for a store which has read the one before. They are found by comparing changed rows
with the committed ones, and are put again one by one to restore them. Versions of Headwater before this wrote rows of
their own here too, with a key's whole history of a segment in each: those are read, and rewritten as versions when
their task is opened.

The last line are rows of our own, which Kafka Streams cannot read: it keeps where a buffered record came from in a form
of its own. The three bytes in front tell them from its keys. It would restore them as nothing; so those of a suppress
have a header `v` that it stops at ("apparently invalid changelog record"), and with those of a grace buffer goes a
record whose key is too short for it.

What does not travel: the index by time (made anew from the keys), its marks of rows that a record cache holds (a
restored store holds nothing, as in Kafka Streams), and a store's memory, which is operator memory; recovery.py makes up
for it, and for the deletions that were not written, where Kafka Streams wrote last.

Broken by: a key shorter than its numbers; a sequence where the store keeps no duplicates; a list of unmatched values
without the 01; our own kinds without the bytes in front, or a versioned store's key that begins with them and names no
store. Each is an error that names the store. A timestamp of 0 comes
back as 1 where the client cannot write 0, and one below 0, which Kafka does not have, as 0.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from headwater.dsl.topology import StoreSpec
from headwater.errors import StreamsError
from headwater.state.backend import Backend
from headwater.state.layout import Raw, escape, unescape
from headwater.state.versioned import VersionedStore, end_of_chain, versions_of_chain
from headwater.streams.stores import backend_stores

__all__ = [
    "CHECKPOINT",
    "CHECKPOINT_TIME",
    "Changelog",
    "Record",
    "Rows",
    "changelogs",
    "rewritten_versions",
]

Record: TypeAlias = tuple[bytes, bytes | None, int]
Rows: TypeAlias = dict[str, dict[bytes, bytes | None]]
_CommittedRows: TypeAlias = Mapping[bytes, bytes | None]
_Committed: TypeAlias = Mapping[str, _CommittedRows]

_TIME = struct.Struct(">q")
_INT = struct.Struct(">I")
_OURS = b"\xf7HW"
# A key in which Kafka Streams looks for a timestamp of eight bytes, and a version of its buffers that it does not know.
_STOP = b"\xf7HW"
_STOP_HEADERS = (("v", b"\xf7"),)
# The back end store for what a copy must know of its changelogs: how far a versioned store's time had come in them, and
# the keys of rows in the earlier form.
CHECKPOINT = "|changelog"
CHECKPOINT_TIME, CHECKPOINT_OLD = b"time\0", b"old\0"
_NO_SEQUENCE = bytes(4)
_OF_ANY_SIZE = 1


class _Format(NamedTuple):
    """How one kind of store is logged."""

    records: Callable[[_Committed, int], Iterator[Record]]
    rows: Callable[[Iterable[Record]], Rows]
    headers: tuple[tuple[str, bytes | None], ...] = ()
    # What needs the committed rows is given them.
    bind: Callable[[Backend], None] = lambda backend: None


class Changelog:
    """One store's changelog: its rows as records, and records as rows.

    >>> from headwater import Int64, Str
    >>> from headwater.dsl.topology import StoreSpec
    >>> from headwater.streams.kafka.changelog import Changelog
    >>> log = Changelog(StoreSpec("timestamped", "counts", Str(), Int64()))
    >>> records = list(log.records({"counts": {b"k": bytes.fromhex("0000000000000005 0000000000000002")}}, now=9))
    >>> records
    [(b'k', b'\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x02', 5)]
    >>> log.rows(records)["counts"][b"k"].hex(" ", 8)
    '0000000000000005 0000000000000002'
    """

    __slots__ = ("_format", "headers", "name", "spec", "windowed")

    def __init__(self, spec: StoreSpec) -> None:
        self.spec = spec
        self.name = spec.rows
        # Whether its rows have an end: its records are then dated by what they are about.
        self.windowed = spec.kind in ("window", "session")
        self._format = _FORMATS[spec.kind](spec)
        self.headers = self._format.headers

    def bind(self, backend: Backend) -> None:
        """Use the committed rows of this back end from now on; what one call returns is written before the next."""
        self._format.bind(backend)

    def records(self, rows: _Committed, now: int) -> Iterator[Record]:
        """Iterate (key, value, timestamp) of the records that a commit's rows make; other stores' rows make none."""
        return self._format.records(rows, now)

    def rows(self, records: Iterable[Record]) -> Rows:
        """Return what the records, in the order of their offsets, write to the back end: rows by back end store."""
        return self._format.rows(records)


def changelogs(specs: Iterable[StoreSpec]) -> list[Changelog]:
    """The changelogs of those stores that have one."""
    return [Changelog(spec) for spec in specs if spec.changelog]


# ---- stores by key -----------------------------------------------------------------------------------------------


def _key_value(spec: StoreSpec) -> _Format:
    name = spec.rows

    def records(rows: _Committed, now: int) -> Iterator[Record]:
        return ((key, row, now) for key, row in rows.get(name, {}).items())

    def rows(records: Iterable[Record]) -> Rows:
        return {name: {key: value for key, value, _ in records}}

    return _Format(records, rows)


def _timestamped(spec: StoreSpec) -> _Format:
    name = spec.rows

    def records(rows: _Committed, now: int) -> Iterator[Record]:
        for key, row in rows.get(name, {}).items():
            yield (key, None, now) if row is None else (key, row[8:], _stored_time(row))

    def rows(records: Iterable[Record]) -> Rows:
        pack = _TIME.pack
        return {name: {key: None if value is None else pack(time) + value for key, value, time in records}}

    return _Format(records, rows)


def _subscriptions(spec: StoreSpec) -> _Format:
    plain = _timestamped(spec)

    def records(rows: _Committed, now: int) -> Iterator[Record]:
        for row_key, value, time in plain.records(rows, now):
            # An escaped key ends with the first 00 00 in it.
            end = row_key.index(b"\x00\x00") + 2
            foreign = unescape(row_key[:end])
            yield _INT.pack(len(foreign)) + foreign + row_key[end:], value, time

    def row_key(key: bytes) -> bytes:
        end = 4 + _INT.unpack_from(key)[0] if len(key) >= 4 else 4
        if len(key) < end:
            raise _broken(spec, key, "it is shorter than the foreign key in it")
        return escape(key[4:end]) + key[end:]

    def rows(records: Iterable[Record]) -> Rows:
        return plain.rows((row_key(key), value, time) for key, value, time in records)

    return _Format(records, rows)


def _stored_time(row: bytes) -> int:
    time: int = _TIME.unpack_from(row)[0]
    return max(time, 0)


# ---- stores by key and time --------------------------------------------------------------------------------------


def _window(spec: StoreSpec) -> _Format:
    name, timestamped, duplicates = spec.rows, spec.timestamped, spec.duplicates
    suffix = 12 if duplicates else 8

    def records(rows: _Committed, now: int) -> Iterator[Record]:
        for row_key, row in rows.get(name, {}).items():
            times = row_key[-suffix:]
            key = unescape(row_key[:-suffix]) + (times if duplicates else times + _NO_SEQUENCE)
            if row is not None and timestamped:
                yield key, row[8:], _stored_time(row)
            else:
                yield key, row, _TIME.unpack_from(times)[0]

    def rows(records: Iterable[Record]) -> Rows:
        kept: dict[bytes, bytes | None] = {}
        index: dict[bytes, bytes | None] = {}
        for key, value, time in records:
            start, sequence = key[-12:-4], key[-4:]
            if len(key) < 12:
                raise _broken(spec, key, "it is shorter than a start and a sequence")
            if duplicates:
                escaped = escape(key[:-12])
            elif sequence == _NO_SEQUENCE:
                escaped, sequence = escape(key[:-12]), b""
            else:
                raise _broken(spec, key, "it has a sequence, but the store keeps no duplicates")
            row = value if value is None or not timestamped else _TIME.pack(time) + value
            kept[escaped + start + sequence] = row
            index[start + escaped + sequence] = None if row is None else b""
        return {name: kept, f"{name}|time": index}

    return _Format(records, rows)


def _session(spec: StoreSpec) -> _Format:
    name = spec.rows

    def records(rows: _Committed, now: int) -> Iterator[Record]:
        for row_key, row in rows.get(name, {}).items():
            times = row_key[-16:]
            yield unescape(row_key[:-16]) + times, row, _TIME.unpack_from(times)[0]

    def rows(records: Iterable[Record]) -> Rows:
        kept: dict[bytes, bytes | None] = {}
        index: dict[bytes, bytes | None] = {}
        for key, value, _ in records:
            if len(key) < 16:
                raise _broken(spec, key, "it is shorter than an end and a start")
            key_bytes, times = key[:-16], key[-16:]
            kept[escape(key_bytes) + times] = value
            index[times + key_bytes] = None if value is None else b""
        return {name: kept, f"{name}|time": index}

    return _Format(records, rows)


# ---- inner stores of steps ---------------------------------------------------------------------------------------


def _unmatched(spec: StoreSpec) -> _Format:
    name = spec.rows

    def records(rows: _Committed, now: int) -> Iterator[Record]:
        for key, row in rows.get(name, {}).items():
            yield key, None if row is None else _as_list(row), now

    def rows(records: Iterable[Record]) -> Rows:
        return {name: {key: None if value is None else of_list(key, value) for key, value, _ in records}}

    def of_list(key: bytes, value: bytes) -> bytes:
        if len(value) < 5 or value[0] != _OF_ANY_SIZE or len(key) < 9:
            raise _broken(spec, key, "its value is not a list of unmatched values")
        parts = [key[8:9]]
        at = 5
        for _ in range(_INT.unpack_from(value, 1)[0]):
            length = _INT.unpack_from(value, at)[0] if len(value) >= at + 4 else 0
            if not 0 < length <= len(value) - at - 4:
                raise _broken(spec, key, "its value ends before its list does")
            # The side, which is in the key already, is left out.
            parts += (_INT.pack(length - 1), value[at + 5 : at + 4 + length])
            at += 4 + length
        return b"".join(parts)

    return _Format(records, rows)


def _as_list(row: bytes) -> bytes:
    side, parts, at = row[:1], [], 1
    while at < len(row):
        length = _INT.unpack_from(row, at)[0]
        parts += [_INT.pack(length + 1), side, row[at + 4 : at + 4 + length]]
        at += 4 + length
    return bytes((_OF_ANY_SIZE,)) + _INT.pack(len(parts) // 3) + b"".join(parts)


def _versioned(spec: StoreSpec) -> _Format:
    name, past = spec.rows, f"{spec.rows}|history"
    time_key = CHECKPOINT_TIME + name.encode()
    own = _own_prefixes(spec)
    store: VersionedStore[bytes, bytes]
    committed: Backend

    def bind(backend: Backend) -> None:
        nonlocal committed, store
        committed = backend
        store = VersionedStore(backend, name, Raw(), Raw(), retention_ms=spec.retention_ms)
        (time,) = backend.get_many(CHECKPOINT, [time_key])
        if time is not None:
            store.remember((int(time),))

    def records(rows: _Committed, now: int) -> Iterator[Record]:
        latest = rows.get(name, {})
        # A history row goes only when its time is over; who reads the versions knows that by itself.
        chains = {row_key: row for row_key, row in rows.get(past, {}).items() if row is not None}
        before = dict(zip(latest, committed.get_many(name, list(latest)), strict=True))
        chains_before = dict(zip(chains, committed.get_many(past, list(chains)), strict=True))
        by_key: dict[bytes, list[bytes]] = {key: [] for key in latest}
        for row_key in chains:
            by_key.setdefault(row_key[8:], []).append(row_key)
        newest = max([_stored_time(row) for row in (*latest.values(), *chains.values()) if row], default=-1)
        store.remember((max(newest, *store.memory()),))
        found: list[Record] = []
        for key, row_keys in by_key.items():
            old = _versions_in([before.get(key)], [chains_before[row_key] for row_key in row_keys])
            new = _versions_in([latest.get(key)], [chains[row_key] for row_key in row_keys])
            # A latest version that was deleted at its own timestamp leaves no trace.
            gone = before.get(key)
            if gone is not None and _stored_time(gone) not in new:
                new[_stored_time(gone)] = None
            ends = {end_of_chain(chains[row_key]) for row_key in row_keys}
            ends -= {end_of_chain(chain) for row_key in row_keys if (chain := chains_before[row_key]) is not None}
            for end in ends - new.keys():
                if not begins_at(end, key, latest, chains):
                    new[end] = None
            found += [(key, value, time) for time, value in new.items() if old.get(time, ...) != value]
        return iter(sorted(found, key=lambda record: record[2]))

    def begins_at(time: int, key: bytes, latest: _CommittedRows, chains: _CommittedRows) -> bool:
        """Whether a version of the key begins at a time at which another ends."""
        (row,) = [latest[key]] if key in latest else committed.get_many(name, [key])
        if row is not None and _stored_time(row) == time:
            return True
        row_keys = store.history_keys(key, time)
        rows = zip(row_keys, committed.get_many(past, row_keys), strict=True)
        return any(
            chain is not None and time in dict(versions_of_chain(chain))
            for chain in (chains.get(row_key, before) for row_key, before in rows)
        )

    def rows(records: Iterable[Record]) -> Rows:
        old: dict[bytes, bytes | None] = {}
        for key, value, time in records:
            at = own.get(key[:4])
            if at is not None:
                store.load(at == past, key[4:], value)
                old[CHECKPOINT_OLD + name.encode() + b"\0" + key] = None if value is None else b""
            else:
                store.put(key, value, time)
        return {**store.drain(), CHECKPOINT: old | {time_key: b"%d" % store.memory()[0]}}

    return _Format(records, rows, bind=bind)


def _versions_in(latest: Iterable[bytes | None], chains: Iterable[bytes | None]) -> dict[int, bytes | None]:
    """When each version in these rows begins, and its value; of several at one time the last one holds."""
    found: dict[int, bytes | None] = {}
    for chain in chains:
        found |= dict(versions_of_chain(chain)) if chain is not None else {}
    return found | {_stored_time(row): row[8:] for row in latest if row is not None}


def rewritten_versions(spec: StoreSpec, backend: Backend) -> tuple[list[Record], dict[bytes, bytes | None]]:
    """What makes a changelog one of versions that an earlier release has written rows to; empty where there are none.

    The records, and the rows of the back end that go with them.
    """
    mark = CHECKPOINT_OLD + spec.rows.encode() + b"\0"
    old = [key for key, _ in backend.scan(CHECKPOINT, b"", None) if key.startswith(mark)]
    if not old:
        return [], {}
    by_key: dict[bytes, tuple[list[bytes | None], list[bytes | None]]] = {}
    for key, row in backend.scan(spec.rows, b"", None):
        by_key.setdefault(key, ([], []))[0].append(row)
    for key, row in backend.scan(f"{spec.rows}|history", b"", None):
        by_key.setdefault(key[8:], ([], []))[1].append(row)
    found: list[Record] = []
    for key, (latest, chains) in by_key.items():
        versions = _versions_in(latest, chains)
        for chain in chains:
            if chain is not None:
                versions.setdefault(end_of_chain(chain), None)
        found += [(key, value, time) for time, value in versions.items()]
    # The rows go with the oldest timestamp there is: a later one would make Kafka Streams forget what is older.
    gone: list[Record] = [(key.removeprefix(mark), None, 1) for key in old]
    return [*gone, *sorted(found, key=lambda record: record[2])], dict.fromkeys(old)


def _own_prefixes(spec: StoreSpec) -> dict[bytes, str]:
    return {_OURS + bytes((at,)): store for at, store in enumerate(backend_stores([spec]))}


def _own_rows(spec: StoreSpec) -> _Format:
    prefixes = _own_prefixes(spec)

    def records(rows: _Committed, now: int) -> Iterator[Record]:
        changed = False
        for prefix, store in prefixes.items():
            for row_key, row in rows.get(store, {}).items():
                changed = True
                yield prefix + row_key, row, now
        if changed and spec.kind == "grace":
            yield _STOP, b"Headwater", now

    def rows(records: Iterable[Record]) -> Rows:
        found: Rows = {store: {} for store in prefixes.values()}
        for key, value, _ in records:
            store = prefixes.get(key[:4])
            if store is not None:
                found[store][key[4:]] = value
            elif key != _STOP:
                why = (
                    f"Headwater did not write it, and changelogs of Kafka Streams' {spec.kind} stores it cannot read; "
                    "give the application another id, or reset it"
                )
                raise _broken(spec, key, why)
        return found

    return _Format(records, rows, _STOP_HEADERS if spec.kind == "suppressed" else ())


def _broken(spec: StoreSpec, key: bytes, why: str) -> StreamsError:
    return StreamsError(f"store {spec.name!r}: its changelog has an impossible record, with the key {key!r:.80}: {why}")


_FORMATS: dict[str, Callable[[StoreSpec], _Format]] = {
    "key-value": _key_value,
    "timestamped": _timestamped,
    "window": _window,
    "session": _session,
    "subscriptions": _subscriptions,
    "unmatched": _unmatched,
    "versioned": _versioned,
    "suppressed": _own_rows,
    "grace": _own_rows,
}
