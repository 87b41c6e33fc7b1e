"""Where the tests keep rows: each place opens its back end again with the contents it had."""

import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from headwater.state.backend import Backend
from headwater.state.memory import MemoryBackend
from headwater.state.rocks import RocksBackend
from tests.state.remote import RemoteBackend


class Memory:
    """One MemoryBackend per set of stores: what a restarted task in the same process is given again."""

    def __init__(self) -> None:
        self._opened: dict[frozenset[str], MemoryBackend] = {}

    def open(self, stores: Iterable[str]) -> Backend:
        stores = frozenset(stores)
        return self._opened.setdefault(stores, MemoryBackend(stores))

    def leave(self) -> None:
        self._opened.clear()


class Remote:
    """One server per set of stores, and a new client at each opening."""

    def __init__(self) -> None:
        self._servers: dict[frozenset[str], MemoryBackend] = {}

    def open(self, stores: Iterable[str]) -> Backend:
        stores = frozenset(stores)
        return RemoteBackend(stores, self._servers.setdefault(stores, MemoryBackend(stores)))

    def leave(self) -> None:
        self._servers.clear()


class Rocks:
    """One database per set of stores; opening it again closes it first, and opens it at once."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp())
        self._opened: dict[frozenset[str], RocksBackend] = {}

    def open(self, stores: Iterable[str]) -> Backend:
        stores = frozenset(stores)
        if stores in self._opened:
            self._opened[stores].close()
            path = self._opened[stores].path
        else:
            path = self._folder / str(len(self._opened))
        self._opened[stores] = RocksBackend(path, stores)
        return self._opened[stores]

    def leave(self) -> None:
        for backend in self._opened.values():
            backend.close()
        shutil.rmtree(self._folder)


PLACES: dict[str, Callable[[], Memory | Remote | Rocks]] = {"memory": Memory, "rocks": Rocks, "remote": Remote}
