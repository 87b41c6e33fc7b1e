"""What tests of several folders share: a real Kafka broker, started by the first that needs one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.kafka.broker import Broker


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Apache Kafka on loopback; each worker of xdist that needs one has its own."""
    # Imported late: most tests run without the Kafka client.
    from tests.kafka.broker import Broker

    broker = Broker(tmp_path_factory.mktemp("kafka")).start()
    yield broker
    broker.kill()
