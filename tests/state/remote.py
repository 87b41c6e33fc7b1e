"""A back end at the other end of a wire, for tests: it counts round trips and hands out copies only."""

import pickle
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from headwater.state.memory import MemoryBackend


def _sent(message):
    """The message as it arrives at the other end: equal, but none of the same objects."""
    return pickle.loads(pickle.dumps(message))


class RemoteBackend:
    """A client of rows kept elsewhere; `calls` counts its round trips by name: get_many, scan, write."""

    def __init__(self, stores: Iterable[str], server: MemoryBackend | None = None) -> None:
        self.server = MemoryBackend(stores) if server is None else server
        self.calls: Counter[str] = Counter()

    def get_many(self, store: str, keys: Sequence[bytes]) -> list[bytes | None]:
        self.calls["get_many"] += 1
        return _sent(self.server.get_many(store, _sent(list(keys))))

    def scan(self, store: str, lo: bytes, hi: bytes | None, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        self.calls["scan"] += 1
        return iter(_sent(list(self.server.scan(store, *_sent((lo, hi, reverse))))))

    def write(self, batch: Mapping[str, Mapping[bytes, bytes | None]]) -> None:
        self.calls["write"] += 1
        message = _sent({store: dict(rows) for store, rows in batch.items()})
        for store, rows in message.items():
            for key, row in rows.items():
                if type(key) is not bytes or (row is not None and type(row) is not bytes):
                    raise TypeError(f"store {store!r}: {key!r}: {row!r} is no row of bytes")
        self.server.write(message)

    def close(self) -> None:
        """Nothing is held: the rows are the server's."""
