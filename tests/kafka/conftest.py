"""What tests of workers that are killed, or whose broker is, begin with."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.broker import RestartableBroker
from tests.kafka.shop import make_topics


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RestartableBroker]:
    """A broker of the test's own, with the shop's topics."""
    broker = RestartableBroker(tmp_path / "broker").start()
    make_topics(broker)
    yield broker
    broker.close()
