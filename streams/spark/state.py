"""A task's rows in Spark's state, which has point access alone, at the price of a call over a socket each. It owns how
the sorted rows of a back end are cut into pages, one cell each, and how cells travel to and from Spark's state in bulk;
when a batch ends, and what other cells a shard keeps beside these (those that begin with `q`), is the caller's.

| cell | content |
|---|---|
| `t` | the head: version, the next page's number, and the rows of the stores whose names begin with `\\|` |
| `d` store | the store's directory: the keys at which its pages begin, in order, and the pages' numbers |
| `p` number (6 bytes) | a page: rows by key, in no order |

Each is LZ4 over MessagePack. A store without a directory is empty. The first page begins at the empty key, and a page
has every key up to where the next begins; two that begin alike would hide each other's rows. A page's number is never
given out again. All cells of a flush belong together: Spark commits them at a batch's end, or none of them.
"""

from __future__ import annotations

import pickle
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import lz4.block  # type: ignore[import-untyped]
import msgspec

from headwater.errors import StateError, StreamsError
from headwater.state.backend import unknown_store

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import MapState

__all__ = ["Cells", "PagedBackend", "SparkCells"]

_VERSION = 1
_HEAD = b"t"
# What a page may grow to before it is cut, in bytes of MessagePack. A bigger one costs more where few rows are touched,
# and saves little where many are.
PAGE_BYTES = 8192
# How many such bytes of pages stay in memory, where their rows take about four times as much.
HELD_BYTES = 64 << 20
# How many keys are looked up, and how many pages of a scan are read, in one go.
_KEYS = 10_000
_PAGES = 256
# How many calls wait for their answers at the same time.
_IN_FLIGHT = 64


class Cells(Protocol):
    """The state of one shard: a map from bytes to bytes, without order."""

    def get(self, key: bytes) -> bytes | None:
        """Return a cell, None where there is none."""
        ...

    def put(self, key: bytes, data: bytes) -> None:
        """Set a cell."""
        ...

    def delete(self, key: bytes) -> None:
        """Remove a cell, if there is one."""
        ...

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the cells in the keys' order, None where there is none."""
        ...

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        """Set the cells, remove those that are None."""
        ...


class SparkCells:
    """The Cells in a MapState of binary keys and values, of the shard whose rows are being handled.

    Spark's own client waits for the answer to each call. Here several are under way at once, of one kind: questions are
    small, and so are the answers to puts, so that never both sides wait for the other to read.
    """

    def __init__(self, state: MapState) -> None:
        from pyspark.sql.streaming.proto import StateMessage_pb2

        self._messages: Any = StateMessage_pb2
        self._name = state._stateName
        self._client = state._mapStateClient._stateful_processor_api_client

    def get(self, key: bytes) -> bytes | None:
        return self.get_many([key])[0]

    def put(self, key: bytes, data: bytes) -> None:
        self.write({key: data})

    def delete(self, key: bytes) -> None:
        self.write({key: None})

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        get = self._messages.GetValue
        answers = self._ask({"getValue": get(userKey=_as_row(key))} for key in keys)
        return [bytes(pickle.loads(answer)[0]) if answer else None for answer in answers]

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        update, remove = self._messages.UpdateValue, self._messages.RemoveKey
        self._ask(
            {"removeKey": remove(userKey=_as_row(key))}
            if data is None
            else {"updateValue": update(userKey=_as_row(key), value=_as_row(data))}
            for key, data in changes.items()
        )

    def _ask(self, calls: Iterable[dict[str, Any]]) -> list[bytes]:
        messages, client, name = self._messages, self._client, self._name
        answers: list[bytes] = []
        refusal: str | None = None
        calls = iter(calls)
        while some := list(islice(calls, _IN_FLIGHT)):
            for call in some:
                request = messages.StateVariableRequest(mapStateCall=messages.MapStateCall(stateName=name, **call))
                client._send_proto_message(messages.StateRequest(stateVariableRequest=request).SerializeToString())
            # All are taken before one is complained of: else the next call would get the answer to an earlier one.
            for _ in some:
                status, text, answer = client._receive_proto_message()
                if status != 0 and refusal is None:
                    refusal = text
                answers.append(answer)
            if refusal is not None:
                raise StreamsError(f"Spark's state {name!r} cannot be read or written: {refusal}")
        return answers


def _as_row(data: bytes) -> bytes:
    """A row of one column, as Spark's state takes it."""
    return pickle.dumps((data,), protocol=5)


class _Head(msgspec.Struct, array_like=True):
    version: int
    next_page: int
    rows: dict[str, dict[bytes, bytes]]
    counts: dict[str, int]  # how many rows the other stores have


_encode = msgspec.msgpack.Encoder().encode
_decode_head = msgspec.msgpack.Decoder(_Head).decode
_decode_directory = msgspec.msgpack.Decoder(tuple[list[bytes], list[int]]).decode
_decode_page = msgspec.msgpack.Decoder(dict[bytes, bytes]).decode


def _compress(data: bytes) -> bytes:
    cell: bytes = lz4.block.compress(data)
    return cell


def _decompress(cell: bytes) -> bytes:
    data: bytes = lz4.block.decompress(cell)
    return data


def _directory_key(store: str) -> bytes:
    return b"d" + store.encode()


def _page_key(number: int) -> bytes:
    return b"p" + number.to_bytes(6, "big")


class _Page:
    """A page's rows as they are now, by key."""

    __slots__ = ("number", "order", "rows", "size")

    def __init__(self, number: int, rows: dict[bytes, bytes], size: int) -> None:
        self.number = number
        self.rows = rows
        # In bytes of MessagePack, as of when it was last read, cut, joined or put.
        self.size = size
        # The keys in order, from the first scan that needs them until the rows change.
        self.order: list[bytes] | None = None

    def sorted_keys(self) -> list[bytes]:
        if self.order is None:
            self.order = sorted(self.rows)
        return self.order


class _Store:
    """A store's directory, and those of its pages that are in memory."""

    __slots__ = ("dirty", "gone", "moved", "numbers", "pages", "starts")

    def __init__(self, starts: list[bytes], numbers: list[int]) -> None:
        self.starts = starts
        self.numbers = numbers
        self.pages: dict[int, _Page] = {}
        # Since the last flush: the pages with other rows, those that are no more, and whether the directory is another.
        self.dirty: set[int] = set()
        self.gone: set[int] = set()
        self.moved = False

    def drop(self, number: int) -> None:
        del self.pages[number]
        self.dirty.discard(number)
        self.gone.add(number)


class PagedBackend:
    """A Backend over the Cells of a shard; what is written reaches them at the next flush.

    Pages that were read stay in memory until they are more than `held_bytes`. Stores whose names begin with `|` must be
    small: they lie together in one cell, which is read and put as a whole.

    >>> from headwater.streams.spark.state import PagedBackend
    >>> class DictCells(dict):
    ...     def get_many(self, keys):
    ...         return [self.get(key) for key in keys]
    ...     def write(self, changes):
    ...         self.update(changes)
    >>> cells = DictCells()
    >>> backend = PagedBackend(cells, ["counts", "|task"])
    >>> backend.write({"counts": {b"b": b"2", b"a": b"1"}})
    >>> backend.flush()
    >>> sorted(cells)
    [b'dcounts', b'p\\x00\\x00\\x00\\x00\\x00\\x00', b't']
    >>> list(PagedBackend(cells, ["counts", "|task"]).scan("counts", b"", None))
    [(b'a', b'1'), (b'b', b'2')]
    """

    def __init__(
        self, cells: Cells, stores: Iterable[str], *, page_bytes: int = PAGE_BYTES, held_bytes: int = HELD_BYTES
    ) -> None:
        self._cells = cells
        self._names = frozenset(stores)
        self._page_bytes = page_bytes
        self._held_bytes = held_bytes
        # The bytes of the pages that were read, and of the rows written into them since.
        self._held = 0
        self._stores: dict[str, _Store] = {}
        self._known_head: _Head | None = None
        # Whether there is anything to flush.
        self._changed = False

    # ---- reading -----------------------------------------------------------------------------------------------

    def get_many(self, store: str, keys: Sequence[bytes]) -> list[bytes | None]:
        if self._is_small(store):
            small = self._small(store)
            return [small.get(key) for key in keys]
        kept = self._store(store)
        if not kept.starts:
            return [None] * len(keys)
        found: list[bytes | None] = []
        for some, pages in self._with_pages(kept, keys):
            found += [page.rows.get(key) for key, page in zip(some, pages, strict=True)]
        return found

    def scan(self, store: str, lo: bytes, hi: bytes | None, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        if self._is_small(store):
            small = self._small(store)
            keys = sorted((key for key in small if key >= lo and (hi is None or key < hi)), reverse=reverse)
            return ((key, small[key]) for key in keys)
        if hi is not None and lo >= hi:
            return iter(())
        return self._scan(self._store(store), lo, hi, reverse)

    def _scan(self, store: _Store, lo: bytes, hi: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        ahead, more = 1, bool(store.starts)
        while more:
            # Each page is looked for anew, by key: making room cuts and joins pages under a running scan.
            starts, numbers = store.starts, store.numbers
            first = bisect_right(starts, lo) - 1
            last = (len(starts) if hi is None else bisect_left(starts, hi)) - 1
            page = store.pages.get(numbers[last if reverse else first])
            if page is None:
                if not self._make_room():
                    # Most scans end early; those that do not are long.
                    begin, end = (max(first, last + 1 - ahead), last + 1) if reverse else (first, first + ahead)
                    self._load(store, numbers[begin : min(end, last + 1)])
                    ahead = min(4 * ahead, _PAGES)
                continue
            rows, keys = page.rows, page.sorted_keys()
            keys = keys[bisect_left(keys, lo) : None if hi is None else bisect_left(keys, hi)]
            more = first < last
            if more and reverse:
                hi = starts[last]
            elif more:
                lo = starts[first + 1]
            for key in reversed(keys) if reverse else keys:
                yield key, rows[key]

    def _with_pages(self, store: _Store, keys: Iterable[bytes]) -> Iterator[tuple[list[bytes], list[_Page]]]:
        """Yield the keys portion by portion, with the page that each belongs to; the store has pages."""
        rest = iter(keys)
        while some := list(islice(rest, _KEYS)):
            self._make_room()
            starts, numbers = store.starts, store.numbers
            places = [bisect_right(starts, key) - 1 for key in some]
            reached = set(places)
            self._load(store, [numbers[place] for place in reached])
            pages = {place: store.pages[numbers[place]] for place in reached}
            yield some, [pages[place] for place in places]

    def _load(self, store: _Store, numbers: Sequence[int]) -> None:
        missing = [number for number in numbers if number not in store.pages]
        for number, cell in zip(missing, self._cells.get_many([_page_key(n) for n in missing]), strict=True):
            if cell is None:
                raise StateError(f"Page {number} of the state is not there: start again with a new checkpoint.")
            data = _decompress(cell)
            store.pages[number] = _Page(number, _decode_page(data), len(data))
            self._held += len(data)

    def _make_room(self) -> bool:
        """Let go of the pages in memory if they are too many; return whether they were."""
        if self._held <= self._held_bytes:
            return False
        # Cells may be put several times in a batch: Spark commits the last.
        self._cells.write(self._settled())
        for store in self._stores.values():
            store.pages.clear()
        self._held = 0
        return True

    def _is_small(self, store: str) -> bool:
        if store not in self._names:
            raise unknown_store(store, self._names)
        return store.startswith("|")

    def _small(self, store: str) -> dict[bytes, bytes]:
        return self._head().rows.setdefault(store, {})

    def _head(self) -> _Head:
        if self._known_head is None:
            cell = self._cells.get(_HEAD)
            head = _Head(_VERSION, 0, {}, {}) if cell is None else _decode_head(_decompress(cell))
            if head.version != _VERSION:
                raise StateError(
                    f"The state in the checkpoint has layout version {head.version}, not {_VERSION}: go on with the "
                    "Headwater that wrote it, or start again with a new checkpoint."
                )
            self._known_head = head
        return self._known_head

    def _store(self, name: str) -> _Store:
        store = self._stores.get(name)
        if store is None:
            cell = self._cells.get(_directory_key(name))
            store = self._stores[name] = _Store(*([], []) if cell is None else _decode_directory(_decompress(cell)))
        return store

    # ---- writing -----------------------------------------------------------------------------------------------

    def write(self, batch: Mapping[str, Mapping[bytes, bytes | None]]) -> None:
        for name, is_small in [(name, self._is_small(name)) for name in batch]:
            changes = batch[name]
            if not is_small:
                counts = self._head().counts
                counts[name] = counts.get(name, 0) + self._write(self._store(name), changes)
                continue
            rows = self._small(name)
            for key, row in changes.items():
                self._changed |= rows.get(key) != row
                if row is None:
                    rows.pop(key, None)
                else:
                    rows[key] = row

    def _write(self, store: _Store, changes: Mapping[bytes, bytes | None]) -> int:
        """Put rows into their pages; return how many more there are now."""
        more = 0
        if not store.starts:
            if all(row is None for row in changes.values()):
                return 0
            store.starts, store.numbers, store.moved = [b""], [self._new_page(store, {}, 0)], True
        # Where not all pages fit into memory, those keys come together that are in the same.
        fits = len(store.numbers) * self._page_bytes <= self._held_bytes
        for some, pages in self._with_pages(store, changes if fits else sorted(changes)):
            touched: set[_Page] = set()
            written = 0
            for key, page in zip(some, pages, strict=True):
                row = changes[key]
                if row is not None:
                    more += key not in page.rows
                    page.rows[key] = row
                    written += len(key) + len(row)
                    touched.add(page)
                elif page.rows.pop(key, None) is not None:
                    more -= 1
                    touched.add(page)
            for page in touched:
                page.order = None
                store.dirty.add(page.number)
            self._held += written
            self._changed |= bool(touched)
            # No row takes less than four bytes; if cut at the flush, each scan until then would sort them all.
            grown = {page.number for page in touched if 4 * len(page.rows) > self._page_bytes}
            if grown:
                for number in grown:
                    store.pages[number].size = len(_encode(store.pages[number].rows))
                self._arrange(store, grown)
        return more

    def counts(self) -> dict[str, int]:
        """How many rows each store has, but for the small ones."""
        return dict(self._head().counts)

    def flush(self) -> None:
        """Put what has changed since the last flush into the cells."""
        if self._changed:
            cells = self._settled()
            cells[_HEAD] = _compress(_encode(self._head()))
            self._cells.write(cells)
            self._changed = False

    def close(self) -> None:
        """Do nothing: what was flushed is Spark's, and what was not must not become so."""

    def _settled(self) -> dict[bytes, bytes | None]:
        """Bring the dirty pages to a good size, and return the cells that are to be put, None to be removed."""
        cells: dict[bytes, bytes | None] = {}
        for name, store in self._stores.items():
            encoded = {store.pages[number]: _encode(store.pages[number].rows) for number in store.dirty}
            for page, data in encoded.items():
                page.size = len(data)
            odd = {n for n in store.dirty if not self._page_bytes <= 4 * store.pages[n].size <= 4 * self._page_bytes}
            if odd:
                self._arrange(store, odd)
            for number in store.dirty:
                page = store.pages[number]
                data = encoded.get(page) or _encode(page.rows)
                page.size = len(data)
                cells[_page_key(number)] = _compress(data)
            for number in store.gone:
                cells[_page_key(number)] = None
            if store.moved:
                cells[_directory_key(name)] = _compress(_encode((store.starts, store.numbers)))
            store.dirty, store.gone, store.moved = set(), set(), False
        return cells

    def _arrange(self, store: _Store, odd: set[int]) -> None:
        """Cut those of the pages that are too big, join those that are too small, and leave out those without rows.

        They are in memory, and measured. A small one is joined to a neighbour that is in memory too: to read one for it
        would cost more than a small page does.
        """
        starts: list[bytes] = []
        numbers: list[int] = []
        left = len(store.numbers)
        for start, number in zip(store.starts, store.numbers, strict=True):
            pieces = [(start, number)]
            if number in odd:
                page = store.pages[number]
                # The last one stays: a store that empties again and again keeps its directory.
                if not page.rows and left > 1:
                    store.drop(number)
                    left -= 1
                    continue
                if page.size > self._page_bytes:
                    pieces = self._cut(store, start, number)
            for begin, piece in pieces:
                if numbers and (piece in odd or numbers[-1] in odd) and self._join(store, numbers[-1], piece):
                    continue
                # The first has all keys that come before the others', whichever page was the first until now.
                starts.append(begin if numbers else b"")
                numbers.append(piece)
        store.moved |= numbers != store.numbers
        store.starts, store.numbers = starts, numbers

    def _cut(self, store: _Store, start: bytes, number: int) -> list[tuple[bytes, int]]:
        """Make several pages of one, with room to grow; return where each begins, and its number."""
        rows, keys = store.pages[number].rows, store.pages[number].sorted_keys()
        total = sum(_size(key, rows[key]) for key in keys)
        wanted = total / -(-4 * total // (3 * self._page_bytes))
        pieces: list[tuple[bytes, dict[bytes, bytes], int]] = []
        piece: dict[bytes, bytes] = {}
        size = 0
        for key in keys:
            if size >= wanted:
                pieces.append((start, piece, size))
                start, piece, size = _between(next(reversed(piece)), key), {}, 0
            piece[key] = rows[key]
            size += _size(key, rows[key])
        pieces.append((start, piece, size))
        (first, piece, size), *others = pieces
        # A new object, for a running scan may still be reading the old one.
        store.pages[number] = _Page(number, piece, size)
        return [(first, number), *((start, self._new_page(store, piece, size)) for start, piece, size in others)]

    def _new_page(self, store: _Store, rows: dict[bytes, bytes], size: int) -> int:
        head = self._head()
        number, head.next_page = head.next_page, head.next_page + 1
        store.pages[number] = _Page(number, rows, size)
        store.dirty.add(number)
        return number

    def _join(self, store: _Store, left: int, right: int) -> bool:
        """Move the rows of a page to the one before it, if both are in memory and fit; return whether they did."""
        one, other = store.pages.get(left), store.pages.get(right)
        if one is None or other is None or 4 * (one.size + other.size) > 3 * self._page_bytes:
            return False
        store.pages[left] = _Page(left, {**one.rows, **other.rows}, one.size + other.size)
        store.dirty.add(left)
        store.drop(right)
        return True


def _size(key: bytes, row: bytes) -> int:
    """What a row adds to a page, about."""
    return len(key) + len(row) + 4


def _between(left: bytes, right: bytes) -> bytes:
    """The shortest key that is greater than the one and not greater than the other.

    >>> from headwater.streams.spark.state import _between
    >>> _between(b"order-17", b"order-2345"), _between(b"a", b"a\\0b")
    (b'order-2', b'a\\x00')
    """
    for place, byte in enumerate(left):
        if byte != right[place]:
            return right[: place + 1]
    return right[: len(left) + 1]
