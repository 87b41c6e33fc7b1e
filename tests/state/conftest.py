"""Every test that takes `backend` or `backend_factory` runs in memory, on RocksDB and on the fake remote back end."""

from collections.abc import Callable, Iterable, Iterator

import pytest

from headwater.state.backend import Backend
from tests.state.places import PLACES


@pytest.fixture(params=list(PLACES))
def backend_factory(request: pytest.FixtureRequest) -> Iterator[Callable[[Iterable[str]], Backend]]:
    """Opens a back end with the given stores; for the same stores again, it closes that one and opens it anew."""
    place = PLACES[request.param]()
    yield place.open
    place.leave()


@pytest.fixture
def backend(backend_factory: Callable[[Iterable[str]], Backend]) -> Backend:
    """A back end with the stores a and b."""
    return backend_factory(["a", "b"])
