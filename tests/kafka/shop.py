"""The crash tests' shop on Kafka: its topics, its input as it comes bit by bit, and what came of it as other clients
read it. It knows neither processes nor kills."""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from headwater import Config
from headwater.streams.app import App
from tests.crash.shop import ORDER_IS_CHANCE, OUTPUTS, PARTITIONS, SOURCES, STORES, Input, Outcome
from tests.kafka.broker import PATIENCE, Broker
from tests.kafka.reading import records

APP = "shop"
TASKS = 3 * PARTITIONS
WINDOW_MS = 10_000


def config(folder: Path, **changes: Any) -> Config:
    """The settings of the application; it commits whenever there is anything to commit."""
    return Config(APP, state_dir=folder / "state", **({"commit_interval": timedelta(0)} | changes))


def lately(given: Input) -> Input:
    """The same input, of today: brokers delete changelog records whose windows are long over."""
    today = time.time_ns() // 1_000_000 // WINDOW_MS * WINDOW_MS
    return Input(
        {
            place: [(key, value, today + at, headers) for key, value, at, headers in rows]
            for place, rows in given.records.items()
        }
    )


def make_topics(kafka: Broker) -> None:
    for topic in (*SOURCES, *OUTPUTS):
        kafka.create(topic, PARTITIONS)


class Feed:
    """Writes an input's orders at a steady pace from a thread of its own, until it is ended; users and shops are there
    when it is made. A broker that is away for a while is waited for."""

    def __init__(self, kafka: Broker, given: Input, per_second: float) -> None:
        self._given = given
        self._pace = per_second / sum(len(rows) for (topic, _), rows in given.records.items() if topic == "orders")
        self._producer = Producer(
            {"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )
        self._refused: list[Any] = []
        self._written = dict.fromkeys(given.records, 0)
        self._write_up_to(1.0, ("users", "shops"))
        assert self._producer.flush(PATIENCE) == 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        began = time.monotonic()
        while not self._over.wait(0.02):
            self._write_up_to(min(1.0, (time.monotonic() - began) * self._pace), ("orders",))

    def _write_up_to(self, share: float, topics: Iterable[str]) -> None:
        for (topic, number), rows in self._given.records.items():
            if topic in topics:
                written, until = self._written[topic, number], round(share * len(rows))
                for key, value, at, _ in rows[written:until]:
                    self._producer.produce(topic, value, key, number, on_delivery=self._note, timestamp=at)
                self._written[topic, number] = until
        self._producer.poll(0)

    def _note(self, error: Any, message: Any) -> None:
        if error is not None:
            self._refused.append(error)

    def end(self) -> Input:
        """Write nothing more, and return what was written."""
        self._over.set()
        self._thread.join()
        assert self._producer.flush(PATIENCE) == 0
        assert self._refused == []
        return Input({place: rows[: self._written[place]] for place, rows in self._given.records.items()})


@contextmanager
def feeding(kafka: Broker, seed: int, per_second: float) -> Iterator[Feed]:
    """Orders of today, more than any test waits for."""
    feed = Feed(kafka, lately(Input.of(50_000, seed=seed, moving_users=False)), per_second)
    try:
        yield feed
    finally:
        feed.end()


def outcome(kafka: Broker, app: App) -> Outcome:
    """Read what an application that runs alone and is idle has brought about."""
    by_key: dict[tuple[str, bytes], list[Any]] = defaultdict(list)
    by_partition: dict[tuple[str, int], Counter[Any]] = {
        (topic, number): Counter() for topic in OUTPUTS for number in range(PARTITIONS)
    }
    for topic in OUTPUTS:
        # The client's types allow for messages without a place, which it never hands over.
        message: Any
        for message in records(kafka, topic):
            value = message.value()
            record = value if topic == ORDER_IS_CHANCE else (value, message.timestamp()[1])
            by_key[topic, message.key()].append(record)
            by_partition[topic, message.partition()][message.key(), record] += 1
    stores = {
        name: [
            (key, value if name == ORDER_IS_CHANCE else (value, timestamp))
            for key, (value, timestamp) in app.store(name).all(timestamps=True)
        ]
        for name in STORES
    }
    return Outcome(dict(by_key), by_partition, stores)
