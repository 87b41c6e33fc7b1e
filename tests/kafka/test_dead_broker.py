"""Three brokers, of which one is killed: the clients go on with the other two, as librdkafka does."""

import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from headwater import Admin, Producer
from headwater.streams.kafka import producer as producing
from tests.kafka.broker import PATIENCE, Broker, Controller
from tests.kafka.reading import values

COUNT = 3


class OneOfThree(Broker):
    """A broker of a cluster whose controller is a process of its own."""

    classpath = Controller.classpath

    def __init__(self, directory: Path, number: int, controller: Controller) -> None:
        super().__init__(directory, {"node.id": str(number)}, controller)
        self.number = number

    def _format(self, cluster: str, settings: Mapping[str, str]) -> None:
        """What Kafka's own tool writes, for a broker that is no controller; a process for each would take long."""
        data = self.directory / "data"
        data.mkdir()
        lines = {"version": "1", "cluster.id": cluster, "node.id": settings["node.id"]}
        (data / "meta.properties").write_text("".join(f"{name}={value}\n" for name, value in lines.items()))


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[list[OneOfThree]]:
    with ExitStack() as ends, ThreadPoolExecutor() as pool:
        controller = Controller(tmp_path / "controller")
        controller.launch()
        ends.callback(controller.kill)

        def start(number: int) -> OneOfThree:
            broker = OneOfThree(tmp_path / str(number), number, controller)
            ends.callback(broker.kill)
            broker.start()
            return broker

        yield list(pool.map(start, range(1, COUNT + 1)))


def test_one_dead_broker_of_three_stops_neither_send_nor_describe(
    brokers: list[OneOfThree], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Every record asks how many partitions there are.
    monkeypatch.setattr(producing, "_REFRESH_SECONDS", 0.0)
    address = "kafka://" + ",".join(broker.bootstrap for broker in brokers)
    admin = Admin(address)
    admin.create_topic("orders", partitions=COUNT, replication_factor=COUNT)

    def leaders() -> list[int | None]:
        return [partition.leader for partition in admin.describe("orders").partitions]

    # It leads one partition at least, and has all of them.
    killed = brokers[0]
    deadline = time.monotonic() + PATIENCE
    while killed.number not in leaders():
        assert time.monotonic() < deadline
    dead = threading.Timer(1.0, killed.kill)
    dead.start()
    sent = 0
    with Producer(address) as producer:
        # Until the others lead what it led, and some records more.
        while dead.is_alive() or killed.number in leaders() or sent < 200:
            assert time.monotonic() < deadline + PATIENCE
            for partition in range(COUNT):
                producer.send("orders", value=str(sent), partition=partition)
                sent += 1
    dead.join()
    assert not killed.alive
    assert sorted(int(value or b"") for value in values(brokers[1], "orders")) == list(range(sent))
