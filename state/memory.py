"""Committed rows in this process' memory: a sorted map per store. It keeps nothing over a restart; who wants that puts
the rows elsewhere and loads them at the start."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from sortedcontainers import SortedDict

from headwater.state.backend import unknown_store

__all__ = ["MemoryBackend"]


class MemoryBackend:
    """A Backend over dictionaries.

    >>> from headwater.state.memory import MemoryBackend
    >>> backend = MemoryBackend(["counts"])
    >>> backend.write({"counts": {b"b": b"2", b"a": b"1"}})
    >>> backend.get_many("counts", [b"b", b"c"])
    [b'2', None]
    >>> list(backend.scan("counts", b"a", b"b"))
    [(b'a', b'1')]
    """

    __slots__ = ("_stores",)

    def __init__(self, stores: Iterable[str]) -> None:
        self._stores: dict[str, SortedDict[bytes, bytes]] = {store: SortedDict() for store in stores}

    def _rows(self, store: str) -> SortedDict[bytes, bytes]:
        try:
            return self._stores[store]
        except KeyError:
            raise unknown_store(store, self._stores) from None

    def get_many(self, store: str, keys: Sequence[bytes]) -> list[bytes | None]:
        get = self._rows(store).get
        return [get(key) for key in keys]

    def scan(self, store: str, lo: bytes, hi: bytes | None, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        rows = self._rows(store)
        return ((key, rows[key]) for key in rows.irange(lo, hi, (True, False), reverse))

    def write(self, batch: Mapping[str, Mapping[bytes, bytes | None]]) -> None:
        for stored, changes in [(self._rows(store), changes) for store, changes in batch.items()]:
            for key, row in changes.items():
                if row is None:
                    stored.pop(key, None)
                else:
                    stored[key] = row

    def close(self) -> None:
        """Do nothing: the rows stay readable, so that a restarted task can be given the same back end."""
