"""Committed rows on disk: one RocksDB database per task, a column family per store, the write-ahead log on. It owns the
files under its path and the memory RocksDB takes in this process; when a commit is due, and what else it must order
itself after, is the caller's.

The default column family holds one row that says what the others are:

| key | value |
|---|---|
| `layout` | JSON: `version`, of the rows' and keys' formats, and `stores`, the sorted names |

It is written before any other row. So a database without it is one whose making was interrupted, or not ours: with no
family but those asked for it is finished, otherwise refused. Another version is refused too, and so is another set of
stores, unless whoever opens it has compared what they are (`others`): then new ones are made, and those that are no
longer used stay until `drop_stores`.

Damage is never passed over: RocksDB makes a database only where none lies; a write-ahead log may end in the middle of a
write, which a killed process leaves, and is an error if it is damaged before that; a scan that ends at a damaged block
is an error and not the end. What RocksDB reports becomes a StateError that names store and directory.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any, cast
from weakref import ref

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    ColumnFamily,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    Rdict,
    RdictIter,
    ReadOptions,
    WriteBatch,
    WriteBufferManager,
    WriteOptions,
)

from headwater.errors import StateError, StreamsError
from headwater.state.backend import unknown_store

__all__ = ["LAYOUT_VERSION", "RocksBackend", "drop_stores", "is_made"]

LAYOUT_VERSION = 1

_LAYOUT = b"layout"
# A store may be called "default", which is the name of the family that every database has.
_FAMILY = "store:"

# For all databases of the process together: blocks read, and rows not yet in a file.
_CACHE_BYTES = 128 << 20
_WRITE_BUFFER_BYTES = 64 << 20

_REMEDY = "Restore the directory from a copy, or let the application begin anew (headwater reset)."


@cache
def _shared_memory() -> tuple[Cache, WriteBufferManager]:
    """Return what bounds RocksDB's memory in this process, however many databases and families are open in it."""
    return Cache(_CACHE_BYTES), WriteBufferManager(_WRITE_BUFFER_BYTES, False)


def is_made(path: Path) -> bool:
    """Say whether a database lies at a path; StateError if only a part of one does.

    RocksDB writes `CURRENT` as the last of a new database's files, and takes whatever lies without it for nothing: it
    would make an empty database there, and delete the files of the old one.
    """
    if (path / "CURRENT").exists():
        return True
    left = [
        name
        for name in (sorted(entry.name for entry in path.iterdir()) if path.is_dir() else ())
        if name.endswith((".sst", ".log")) or (name.startswith("MANIFEST-") and name != "MANIFEST-000001")
    ]
    if left:
        raise StateError(
            f"The state in {path} is damaged: there is no file CURRENT beside {', '.join(left[:3])}. {_REMEDY}"
        )
    return False


def _options(*, create: bool = False) -> Options:
    blocks, write_buffers = _shared_memory()
    table = BlockBasedOptions()
    table.set_block_cache(blocks)
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    table.set_bloom_filter(10, False)
    options = Options(raw_mode=True)
    options.create_if_missing(create)
    options.create_missing_column_families(create)
    # Not RocksDB's own choice, which is to drop all that comes after damage and go on with older rows.
    options.set_wal_recovery_mode(DBRecoveryMode.tolerate_corrupted_tail_records())
    options.set_block_based_table_factory(table)
    options.set_write_buffer_manager(write_buffers)
    options.set_write_buffer_size(_WRITE_BUFFER_BYTES // 4)
    # A family's first row takes one such block: small, since a task has many families with few rows.
    options.set_arena_block_size(64 << 10)
    options.set_compression_type(DBCompressionType.lz4())
    # What else opening and closing would spend their time on: statistics of every file, a log file per run.
    options.set_skip_stats_update_on_db_open(True)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    # Opening reads the log again, and a family that is seldom written would keep it growing for all.
    options.set_max_total_wal_size(_WRITE_BUFFER_BYTES)
    options.set_keep_log_file_num(1)
    options.set_max_file_opening_threads(1)
    return options


class RocksBackend:
    """A Backend over a RocksDB database at a path, which is made if there is none.

    With `sync`, a write has reached the disk when it returns, and so survives a power loss; otherwise only the death of
    the process. With `others`, a store that is not there yet is made, and the rows of one that is not asked for stay.
    With `read_only`, one that is there is looked at, and nothing in its directory changes.

    >>> from tempfile import TemporaryDirectory
    >>> from headwater.state.rocks import RocksBackend
    >>> with TemporaryDirectory() as folder:
    ...     backend = RocksBackend(folder, ["counts"])
    ...     backend.write({"counts": {b"b": b"2", b"a": b"1"}})
    ...     backend.close()
    ...     backend = RocksBackend(folder, ["counts"])
    ...     print(list(backend.scan("counts", b"", None)))
    ...     backend.close()
    [(b'a', b'1'), (b'b', b'2')]
    """

    __slots__ = ("_database", "_families", "_handles", "_others", "_scans", "_writing", "damaged", "path", "reads")

    def __init__(
        self,
        path: str | PathLike[str],
        stores: Iterable[str],
        *,
        sync: bool = False,
        others: bool = False,
        read_only: bool = False,
    ) -> None:
        self.path = Path(path)
        # Whether the stores may have changed.
        self._others = others
        # Whether a read has met damage.
        self.damaged = False
        # How many rows of each store were asked for one by one, as opposed to scanned.
        self.reads: Counter[str] = Counter()
        self._writing = WriteOptions()
        self._writing.sync = sync
        names = sorted(set(stores))
        self._families: dict[str, Rdict] = {}
        self._handles: dict[str, ColumnFamily] = {}
        self._scans: list[ref[_Scan]] = []
        self._database: Rdict | None = None
        try:
            self._open(names, read_only)
        except StreamsError:
            raise
        except Exception as error:  # rocksdict raises nothing more specific
            raise StateError(f"The state in {self.path} cannot be opened: {error}. {_REMEDY}") from error

    def _open(self, names: list[str], read_only: bool) -> None:
        path, wanted = str(self.path), {_FAMILY + name for name in names}
        made = is_made(self.path)
        if made:
            # All that there are and no others: a database which is refused must stay as it is.
            there = set(Rdict.list_cf(path, _options())) - {"default"}
        elif read_only:
            raise StateError(f"There is no state in {self.path}.")
        else:
            self.path.mkdir(parents=True, exist_ok=True)
            there = wanted
        access = AccessType.read_only(False) if read_only else AccessType.read_write()
        database = Rdict(
            path, _options(create=not made), {family: _options(create=not made) for family in there}, access
        )
        try:
            layout = database.get(_LAYOUT)
            if layout is not None and self._others:
                known = json.loads(layout)
                self._check(known, known["stores"])
                for family in wanted - there if not read_only else ():
                    database.create_column_family(family, _options())
                stores = sorted({*known["stores"], *names})
                if stores != known["stores"] and not read_only:
                    database[_LAYOUT] = json.dumps({"version": LAYOUT_VERSION, "stores": stores}).encode()
            elif layout is not None:
                self._check(json.loads(layout), names)
            elif read_only and wanted <= there:
                pass
            elif there <= wanted and not read_only:
                for family in wanted - there:
                    database.create_column_family(family, _options())
                database[_LAYOUT] = json.dumps({"version": LAYOUT_VERSION, "stores": names}).encode()
            else:
                raise StateError(
                    f"The database in {self.path} is not one of Headwater's: give the state another place."
                )
            self._families = {name: database.get_column_family(_FAMILY + name) for name in names}
            self._handles = {name: database.get_column_family_handle(_FAMILY + name) for name in names}
        except BaseException:
            database.close()
            raise
        self._database = database

    def _check(self, layout: Any, names: list[str]) -> None:
        remedy = "Start with the version and the topology that wrote it, or reset the application (headwater reset)."
        if layout["version"] != LAYOUT_VERSION:
            raise StateError(
                f"The state in {self.path} has layout version {layout['version']}, not {LAYOUT_VERSION}. {remedy}"
            )
        if layout["stores"] != names:
            missing = [name for name in names if name not in layout["stores"]]
            extra = [name for name in layout["stores"] if name not in names]
            raise StateError(
                f"The state in {self.path} is another topology's: it lacks the stores {missing} and has also {extra}. "
                f"{remedy}"
            )

    def _unusable(self, store: str) -> StreamsError:
        if self._database is None:
            return StreamsError(f"The state in {self.path} is closed: nothing can be read from or written to it.")
        return unknown_store(store, self._families)

    def _damaged(self, store: str, error: Exception) -> StateError:
        self.damaged = True
        return StateError(f"The store {store!r} in {self.path} cannot be read: {error}. {_REMEDY}")

    def get_many(self, store: str, keys: Sequence[bytes]) -> list[bytes | None]:
        family = self._families.get(store)
        if family is None:
            raise self._unusable(store)
        self.reads[store] += len(keys)
        try:
            if len(keys) == 1:
                return [family.get(keys[0])]
            return cast(list[bytes | None], family.get(list(keys)))
        except Exception as error:  # rocksdict raises nothing more specific
            raise self._damaged(store, error) from error

    def scan(self, store: str, lo: bytes, hi: bytes | None, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        family = self._families.get(store)
        if family is None:
            raise self._unusable(store)
        if hi is not None and lo >= hi:
            return iter(())
        bounds = ReadOptions()
        if hi is not None:
            bounds.set_iterate_upper_bound(hi)
        scan = _Scan(self, store, family.iter(bounds), bounds, lo, reverse)
        self._scans.append(ref(scan, self._scans.remove))
        return scan

    def write(self, batch: Mapping[str, Mapping[bytes, bytes | None]]) -> None:
        writes = WriteBatch(raw_mode=True)
        put, delete = writes.put, writes.delete
        for store, rows in batch.items():
            handle = self._handles.get(store)
            if handle is None:
                raise self._unusable(store)
            for key, row in rows.items():
                if row is None:
                    delete(key, handle)
                else:
                    put(key, row, handle)
        if self._database is None:
            raise self._unusable("")
        try:
            self._database.write(writes, self._writing)
        except Exception as error:  # rocksdict raises nothing more specific
            raise self._unwritable(error) from error

    def _unwritable(self, error: Exception) -> StateError:
        return StateError(
            f"The state in {self.path} cannot be written: {error}. Make room there, and start again: what was "
            "committed is safe."
        )

    def flush(self, store: str) -> None:
        """Have a store's rows in a file of their own, so that they do not depend on the write-ahead log."""
        family = self._families.get(store)
        if family is None:
            raise self._unusable(store)
        try:
            family.flush()
        except Exception as error:  # rocksdict raises nothing more specific
            raise self._unwritable(error) from error

    @property
    def stores(self) -> Iterable[str]:
        """The names of the stores in it."""
        return self._families.keys()

    def estimated_rows(self, store: str) -> int:
        """Return about how many rows a store has: updates and deletions that wait to be compacted are counted twice."""
        return self._property(store, "rocksdb.estimate-num-keys")

    def disk_bytes(self, store: str) -> int:
        """Return about how many bytes a store takes: its files, and what waits in memory for the next one."""
        return self._property(store, "rocksdb.live-sst-files-size") + self._property(
            store, "rocksdb.cur-size-all-mem-tables"
        )

    def _property(self, store: str, name: str) -> int:
        family = self._families.get(store)
        if family is None:
            raise self._unusable(store)
        return family.property_int_value(name) or 0

    def close(self) -> None:
        if self._database is None:
            return
        # Whatever refers to the database keeps its lock: a running iterator as well as a family's handle.
        for scan in [scan() for scan in self._scans]:
            if scan is not None:
                scan.end()
        self._families.clear()
        self._handles.clear()
        self._database.close()
        self._database = None


def drop_stores(path: Path, names: Collection[str]) -> None:
    """Delete stores, and those named after them (`name|…`), from a database that nobody has open."""
    there = set(Rdict.list_cf(str(path), _options())) - {"default"}
    database = Rdict(str(path), _options(), {family: _options() for family in there})
    try:
        layout = database.get(_LAYOUT)
        if layout is None:
            return
        known = json.loads(layout)
        prefixes = tuple(f"{name}|" for name in names)
        gone = {name for name in known["stores"] if name in names or name.startswith(prefixes)}
        # Interrupted after this, the list has a store without a family: opened for it, it is made anew and empty.
        for family in sorted({_FAMILY + name for name in gone} & there):
            database.drop_column_family(family)
        known["stores"] = [name for name in known["stores"] if name not in gone]
        database[_LAYOUT] = json.dumps(known).encode()
    finally:
        database.close()


class _Scan:
    """An iterator that can be made to let go of its database.

    It keeps what RocksDB's iterator reads for as long as it lives: rocksdict copies neither the options nor the bounds.
    """

    __slots__ = ("__weakref__", "_backend", "_bounds", "_lo", "_rows", "_step", "_store")

    def __init__(
        self, backend: RocksBackend, store: str, rows: RdictIter, bounds: ReadOptions, lo: bytes, reverse: bool
    ) -> None:
        self._backend, self._store = backend, store
        self._rows: RdictIter | None = rows
        self._bounds: ReadOptions | None = bounds
        # Backwards the end is checked here and not by a bound: rocksdict 0.3.29 takes the lower for the upper one.
        self._lo = lo if reverse else None
        if reverse:
            rows.seek_to_last()
            self._step = rows.prev
        else:
            rows.seek(lo)
            self._step = rows.next

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return self

    def __next__(self) -> tuple[bytes, bytes]:
        rows = self._rows
        if rows is None:
            raise StreamsError("The state was closed before the scan had reached its end.")
        if not rows.valid():
            try:
                rows.status()
            except Exception as error:  # rocksdict raises nothing more specific
                raise self._backend._damaged(self._store, error) from error
            raise StopIteration
        key: bytes = rows.key()
        if self._lo is not None and key < self._lo:
            raise StopIteration
        row = key, rows.value()
        self._step()
        return row

    def end(self) -> None:
        """Let go of the database: whoever asks for more is refused."""
        # In this order: the iterator reads the bounds until it is gone.
        self._rows = None
        del self._step
        self._bounds = None
