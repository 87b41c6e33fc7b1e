"""The write-back buffer: one store's rows in decoded form, from their first use until the commit. It owns which row a
reader sees and what a commit must write; it does not write, and what the rows mean is the typed stores'.

A row is kept as the object it is while its codec calls it stable, otherwise as bytes which every get decodes anew: so a
caller may mutate what it put or got, and the store is the one that would serialise at every put.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Generic, TypeVar
from weakref import ref

from sortedcontainers import SortedList

from headwater.state.backend import Backend
from headwater.state.codec import Codec, direct_encoder

__all__ = ["Rows"]

V = TypeVar("V")

# What a buffered row costs besides its bytes: the objects of key and row and their place in the dictionary.
_OVERHEAD = 150
_SAMPLE = 128


class _Encoded:
    """A row that is not stable, as its bytes."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


# Stand-ins for a row: there is none in this dictionary; the one that is there is still the one that was there.
_ABSENT: Any = object()
_UNCHANGED: Any = object()
_NO_MORE: tuple[bytes | None, Any] = (None, None)


class _View:
    """What one running scan needs to go on seeing the rows as they were when it began."""

    __slots__ = ("__weakref__", "before", "hi", "last", "lo", "rest", "reverse")

    def __init__(self, lo: bytes, hi: bytes | None, reverse: bool) -> None:
        self.lo = lo
        self.hi = hi
        self.reverse = reverse
        self.last: bytes | None = None
        # The buffered rows that were put over since, _ABSENT for those which were not buffered then.
        self.before: dict[bytes, Any] = {}
        # What is left to yield, read to its end before a commit changed the back end.
        self.rest: list[tuple[bytes, Any]] | None = None


class Rows(Generic[V]):
    """One store of a back end, with its uncommitted rows over it.

    >>> from headwater.state.memory import MemoryBackend
    >>> from headwater.state.rows import Rows
    >>> class Text:
    ...     encode = staticmethod(str.encode)
    ...     decode = staticmethod(bytes.decode)
    ...     stable = staticmethod(lambda value: type(value) is str)
    >>> backend = MemoryBackend(["names"])
    >>> rows = Rows(backend, "names", Text())
    >>> rows.put(b"k", "Ada")
    >>> rows.get(b"k"), backend.get_many("names", [b"k"])
    ('Ada', [None])
    >>> backend.write({"names": rows.drain()})
    >>> backend.get_many("names", [b"k"])
    [b'Ada']
    """

    __slots__ = (
        "_backend",
        "_clean",
        "_decode",
        "_dirty",
        "_encode",
        "_encode_stable",
        "_fetched",
        "_generation",
        "_mean",
        "_older",
        "_order",
        "_puts",
        "_stable",
        "_syncs",
        "_views",
        "gets",
        "name",
    )

    def __init__(self, backend: Backend, name: str, codec: Codec[V], *, clean_rows: int = 100_000) -> None:
        self.name = name
        self._backend = backend
        self._encode = codec.encode
        self._encode_stable = direct_encoder(codec)
        self._decode = codec.decode
        self._stable = codec.stable
        # A row is in any of these as itself, as _Encoded, or as None where there is none.
        # Nothing leaves _dirty but by drain, so that its newest keys are always its last.
        self._dirty: dict[bytes, Any] = {}
        # Rows equal to the back end's, in two generations: once the younger is full, the older is dropped and the
        # younger takes its place. That keeps what is in use, and an access to a young row costs no bookkeeping.
        self._clean: dict[bytes, Any] = {}
        self._older: dict[bytes, Any] = {}
        self._generation = max(1, clean_rows // 2)
        # Prefetched rows nobody has asked for yet.
        self._fetched: dict[bytes, bytes | None] = {}
        # The keys of _dirty in order, as far as the latest scan needed them; _syncs counts its changes.
        self._order: SortedList[bytes] = SortedList()
        self._syncs = 0
        self._views: list[ref[_View]] = []
        # Puts since the mean size of a dirty row was last measured.
        self._puts = 0
        self._mean = 0.0
        # How many rows were asked for one by one, found or not.
        self.gets = 0

    def get(self, key: bytes) -> V | None:
        """Return the key's row, or None; unless it is stable, a new object at each call."""
        self.gets += 1
        row = self._dirty.get(key, _ABSENT)
        if row is _ABSENT:
            row = self._clean.get(key, _ABSENT)
            if row is _ABSENT:
                return self._recall(key)
        if type(row) is _Encoded:
            return self._decode(row.data)
        return row  # type: ignore[no-any-return]

    def put(self, key: bytes, row: V | None) -> None:
        """Set the key's row, None deletes it. What happens to the object afterwards does not change the row."""
        if self._views:
            self._preserve(key)
        self._dirty[key] = row if row is None or self._stable(row) else _Encoded(self._encode(row))
        self._puts += 1

    def put_stable(self, key: bytes, row: V) -> None:
        """Set the key's row, which the caller knows to be stable: `put` without looking."""
        if self._views:
            self._preserve(key)
        self._dirty[key] = row
        self._puts += 1

    def prefetch(self, keys: Iterable[bytes]) -> None:
        """Read the rows of those keys that are not buffered, in one call, for the gets to come."""
        dirty, clean, older, fetched = self._dirty, self._clean, self._older, self._fetched
        wanted = [
            key for key in dict.fromkeys(keys) if not (key in dirty or key in clean or key in older or key in fetched)
        ]
        if wanted:
            if len(fetched) > self._generation:
                fetched.clear()
            fetched.update(zip(wanted, self._backend.get_many(self.name, wanted), strict=True))

    def _recall(self, key: bytes) -> V | None:
        """Return the row of a key that is neither dirty nor young, and make it young."""
        row = self._older.pop(key, _ABSENT)
        if row is not _ABSENT:
            self._keep(key, row)
            return self._decode(row.data) if type(row) is _Encoded else row
        data = self._fetched.pop(key, _ABSENT)
        if data is _ABSENT:
            data = self._backend.get_many(self.name, (key,))[0]
        if data is None:
            self._keep(key, None)
            return None
        value = self._decode(data)
        self._keep(key, value if self._stable(value) else _Encoded(data))
        return value

    def _keep(self, key: bytes, row: Any) -> None:
        if len(self._clean) >= self._generation:
            self._older, self._clean = self._clean, {}
        self._clean[key] = row

    @property
    def dirty_bytes(self) -> int:
        """About how many bytes of memory the uncommitted rows take: exact for few rows, else from a sample."""
        dirty = self._dirty
        # Measuring passes over all of them, so it must stay rare beside the puts.
        if self._puts and 2 * self._puts >= len(dirty):
            sizes = [
                len(key) + (0 if row is None else len(row.data if type(row) is _Encoded else self._encode(row)))
                for key, row in islice(dirty.items(), 0, None, len(dirty) // _SAMPLE + 1)
            ]
            self._mean = sum(sizes) / len(sizes)
            self._puts = 0
        return int(len(dirty) * (self._mean + _OVERHEAD))

    def drain(self) -> dict[bytes, bytes | None]:
        """Return the uncommitted rows as bytes, None for the deleted ones, and count them as committed.

        The caller writes them to the back end before it reads anything else.
        """
        dirty = self._dirty
        if not dirty:
            return {}
        self._settle()
        encode = self._encode_stable
        drained = {
            key: None if row is None else row.data if type(row) is _Encoded else encode(row)
            for key, row in dirty.items()
        }
        self._dirty = {}
        self._order.clear()
        self._puts = 0
        if len(dirty) > self._generation:
            # The older ones among them are dropped, so no older copy of theirs may stay.
            self._older, self._clean = {}, dict(islice(reversed(dirty.items()), self._generation))
        elif len(self._clean) + len(dirty) > self._generation:
            self._older, self._clean = self._clean, dirty
        else:
            self._clean.update(dirty)
        if self._fetched:
            for key in dirty:
                self._fetched.pop(key, None)
        return drained

    def scan(self, lo: bytes, hi: bytes | None, reverse: bool = False) -> Iterator[tuple[bytes, V]]:
        """Iterate the rows with lo <= key < hi (hi None: to the end) as of the call, from the last down if reverse.

        Puts, deletes and commits during the iteration are safe, and it does not see them. Rows deleted since the last
        commit are passed over one by one: who takes the first row again and again begins where the last one was.
        """
        # Stores that never scan never sort, and between scans only the keys that are new since the last one are.
        unsorted = len(self._dirty) - len(self._order)
        if unsorted:
            self._order.update(islice(reversed(self._dirty), unsorted))
            self._syncs += 1
        view = _View(lo, hi, reverse)
        # The iterator alone holds the view: with the one goes the other, however the iteration ends.
        self._views.append(ref(view, self._views.remove))
        return self._iterate(view, self._merge(view, self._backend.scan(self.name, lo, hi, reverse)))

    def _iterate(self, view: _View, rows: Iterator[tuple[bytes, V]]) -> Iterator[tuple[bytes, V]]:
        while view.rest is None:
            item = next(rows, None)
            if item is None:
                return
            view.last = item[0]
            yield item
        yield from view.rest

    def _merge(self, view: _View, committed: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, V]]:
        """Yield the rows of both, in order; a buffered row hides the committed one of its key."""
        decode, reverse = self._decode, view.reverse
        buffered = self._buffered(view)
        held, row = next(buffered, _NO_MORE)
        for key, data in committed:
            while held is not None and (held > key if reverse else held < key):
                if row is not None:
                    yield held, decode(row.data) if type(row) is _Encoded else row
                held, row = next(buffered, _NO_MORE)
            if held != key:
                yield key, decode(data)
        while held is not None:
            if row is not None:
                yield held, decode(row.data) if type(row) is _Encoded else row
            held, row = next(buffered, _NO_MORE)

    def _buffered(self, view: _View) -> Iterator[tuple[bytes, Any]]:
        """Yield the keys in the view's range that were dirty when it began, with the rows they had then."""
        lo, hi, reverse, before, dirty = view.lo, view.hi, view.reverse, view.before, self._dirty
        from_lo = True
        while True:
            syncs = self._syncs
            for key in self._order.irange(lo, hi, (from_lo, False), reverse):
                row = before.get(key, _UNCHANGED)
                if row is not _ABSENT:
                    yield key, dirty[key] if row is _UNCHANGED else row
                    if self._syncs != syncs:
                        # Another scan has put keys into the order under this iterator.
                        if reverse:
                            hi = key
                        else:
                            lo, from_lo = key, False
                        break
            else:
                return

    def _preserve(self, key: bytes) -> None:
        """Keep the key's buffered row for the running scans, before it is put over."""
        for view in [view() for view in self._views]:
            if view is not None:
                view.before.setdefault(key, self._dirty.get(key, _ABSENT))

    def _settle(self) -> None:
        """Read the running scans to their ends, before the back end changes under them."""
        for view in [view() for view in self._views]:
            if view is not None and view.rest is None:
                if view.last is not None and view.reverse:
                    view.hi = view.last
                elif view.last is not None:
                    view.lo = view.last + b"\0"
                committed = self._backend.scan(self.name, view.lo, view.hi, view.reverse)
                view.rest = list(self._merge(view, committed))
