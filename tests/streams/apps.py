"""Applications on an embedded log of their own, for tests: topics filled, workers started, results read."""

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from headwater import Admin, Config, Consumer, Producer, StreamsBuilder, Topology
from headwater.streams.app import App
from headwater.streams.run import open_app

PATIENCE = 60.0
# A worker looks twice a second; the rest is for a machine that has other things to do.
TAKEOVER_SECONDS = 15.0


def counting() -> Topology:
    """Words per key, kept in `counts` and written to `out`."""
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(store="counts").to_stream().to("out")
    return builder.build()


class Place:
    """A log in a directory, with helpers to fill it and to look into it."""

    def __init__(self, folder: Path, partitions: int = 1, topics: Iterable[str] = ("in",)) -> None:
        self.folder = folder
        self.broker = f"log://{folder}"
        for topic in topics:
            Admin(self.broker).create_topic(topic, partitions)

    def send(self, *keys: str, topic: str = "in", value: Any = "x", at: int = 1000) -> None:
        """Append a record for each key."""
        with Producer(self.broker) as producer:
            for key in keys:
                producer.send(topic, key=key, value=json.dumps(value), timestamp=at)

    def app(self, topology: Topology | None = None, **settings: Any) -> App:
        """An application that has not been started."""
        on_state = settings.pop("on_state", None)
        return open_app(topology or counting(), Config("app", **settings), self.broker, on_state=on_state)

    @property
    def sockets(self) -> Path:
        return self.folder / "apps" / "app" / "sockets"

    def out(self, topic: str = "out") -> list[tuple[bytes | None, bytes | None]]:
        """Key and value of all records of a topic."""
        found: list[tuple[bytes | None, bytes | None]] = []
        with Consumer(self.broker, topic) as consumer:
            while records := consumer.poll(10_000):
                found += [(record.key, record.value) for record in records]
        return found


def until(true: Callable[[], Any], patience: float = PATIENCE) -> float:
    """Wait until something is true and return how many seconds that took."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < patience, "it does not come true"
        time.sleep(0.01)
    return time.monotonic() - began
