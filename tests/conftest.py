"""What tests of several folders share: a real Kafka broker, started by the first that needs one, and no deadlines."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from tests.kafka.broker import Broker

# A shell that starts the tests in the background has them ignore Ctrl-C; the processes they start must not.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Machines are shared: how long an example takes says nothing.
settings.register_profile("headwater", deadline=None)
settings.load_profile("headwater")


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Apache Kafka on loopback; each worker of xdist that needs one has its own."""
    # Imported late: most tests run without the Kafka client.
    from tests.kafka.broker import Broker

    broker = Broker(tmp_path_factory.mktemp("kafka")).start()
    yield broker
    broker.kill()
