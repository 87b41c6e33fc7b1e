"""What a place for committed rows must offer: point reads in one call, ordered scans, atomic writes. It owns the
protocol alone; memory.py and rocks.py live up to it, and Rows puts a buffer of decoded rows in front of it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from headwater.errors import StreamsError

__all__ = ["Backend", "unknown_store"]


class Backend(Protocol):
    """The committed rows of one task: several stores, each a map from bytes to bytes in unsigned byte order."""

    def get_many(self, store: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the keys' rows in the keys' order, None where there is no row."""
        ...

    def scan(self, store: str, lo: bytes, hi: bytes | None, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Iterate the rows with lo <= key < hi (hi None: to the end), from the last one down if reverse.

        The iterator is good until rows of this store are written.
        """
        ...

    def write(self, batch: Mapping[str, Mapping[bytes, bytes | None]]) -> None:
        """Put the rows (None deletes) of all the named stores: all of them, or after a failure none."""
        ...

    def close(self) -> None:
        """Give back what is held; closing twice is closing once."""
        ...


def unknown_store(store: str, stores: Iterable[str]) -> StreamsError:
    """Return the error that names a store which a back end was not opened with."""
    return StreamsError(f"There is no store {store!r} here, only {', '.join(sorted(stores)) or 'none at all'}.")
