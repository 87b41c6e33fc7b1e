"""A typed store in one of the places, which can be committed and made anew over what was committed, as by a restart."""

import pickle
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from hypothesis import strategies as st

from tests.state.places import PLACES


class Text:
    """Text that a buffer may keep as it is."""

    encode = staticmethod(str.encode)
    decode = staticmethod(bytes.decode)
    stable = staticmethod(lambda value: type(value) is str)


class Listed:
    """Lists of numbers: a buffer must not keep them."""

    encode = staticmethod(msgspec.json.encode)
    decode = staticmethod(msgspec.json.decode)
    stable = staticmethod(lambda value: False)


class Reopening:
    """`store` is the store as it is now."""

    def __init__(self, place: str, stores: Iterable[str], make: Callable[[Any], Any]) -> None:
        self._place = PLACES[place]()
        self._stores = tuple(stores)
        self._make = make
        self.backend: Any = self._place.open(self._stores)
        self.store: Any = make(self.backend)

    def __enter__(self) -> "Reopening":
        return self

    def __exit__(self, *_: object) -> None:
        self._place.leave()

    def commit(self) -> None:
        rows = self.store.drain()
        assert set(rows) == set(self._stores)
        self.backend.write(rows)
        assert not any(self.store.drain().values())

    def restart(self) -> None:
        memory = pickle.dumps(self.store.memory())
        self.commit()
        self.backend = self._place.open(self._stores)
        self.store = self._make(self.backend)
        remembered = pickle.loads(memory)
        if remembered is not None:
            self.store.remember(remembered)

    def do(self, step: str) -> None:
        {"commit": self.commit, "restart": self.restart}[step]()


# Keys that begin one another, with the bytes the escape uses; few, so that operations meet.
KEYS = st.sampled_from(["a", "a", "a\0", "a\0", "b", "", "a\0\0", "a\x01", "ÿ"])
STEPS = st.sampled_from([("commit",), ("restart",)])
EXAMPLES = {"memory": 150, "rocks": 12, "remote": 30}


def times(*units: int) -> st.SearchStrategy[int]:
    """Few times in several units, so that some meet, some lie just beside each other and some far away."""
    return st.builds(
        lambda count, unit, more: count * unit + more,
        st.integers(0, 6),
        st.sampled_from(units),
        st.sampled_from([0, 0, 1]),
    )


def operations(*kinds: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """Lists of operations long enough for what was put to be met again."""
    return st.integers(10, 60).flatmap(lambda count: st.lists(st.one_of(*kinds), min_size=count, max_size=count))
