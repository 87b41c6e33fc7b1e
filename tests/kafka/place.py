"""An application's own topics on a broker, for tests: filled, worked on by applications in this process, and read."""

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, ResourceType

from headwater import Config, StreamsBuilder, Topology
from headwater.streams.app import App
from headwater.streams.run import open_app
from tests.kafka.broker import PATIENCE, Broker
from tests.kafka.reading import records
from tests.streams.apps import until

Change = Callable[[Any], Any]


def same(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Plot:
    """What an application needs to know: its id, where the broker is, and where it keeps its state."""

    app_id: str
    address: str
    folder: Path

    def own(self, rest: str) -> str:
        """The full name of one of its topics."""
        return f"{self.app_id}-{rest}"

    @property
    def source(self) -> str:
        return self.own("in")

    @property
    def sink(self) -> str:
        return self.own("out")

    def counting(self, change: Change = same) -> Topology:
        """Records per key, kept in `counts` and written to the sink."""
        builder = StreamsBuilder()
        changed = builder.stream(self.source).map_values(change)
        changed.group_by_key().count(store="counts").to_stream().to(self.sink)
        return builder.build()

    def regrouping(self) -> Topology:
        """Records per value, by way of the topic `<app id>-again-repartition`."""
        builder = StreamsBuilder()
        again = builder.stream(self.source).group_by(lambda key, value: value, name="again")
        again.count(store="counts").to_stream().to(self.sink)
        return builder.build()

    def copying(self) -> Topology:
        """The records themselves; nothing is kept."""
        builder = StreamsBuilder()
        builder.stream(self.source).to(self.sink)
        return builder.build()

    def config(self, **settings: Any) -> Config:
        """The application's settings; it commits often."""
        settings = {"commit_interval": timedelta(milliseconds=50), "state_dir": self.folder} | settings
        return Config(self.app_id, **settings)

    def app(self, topology: Topology | None = None, **settings: Any) -> App:
        """An application that has not been started."""
        return open_app(topology or self.counting(), self.config(**settings), self.address)


class Place(Plot):
    """An application's plot with its topics `<app id>-in` and `<app id>-out` on a broker, and what is in them."""

    def __init__(self, broker: Broker, folder: Path, partitions: int = 1, **settings: str) -> None:
        super().__init__(f"app-{uuid.uuid4().hex[:8]}", f"kafka://{broker.bootstrap}", folder)
        object.__setattr__(self, "broker", broker)
        broker.create(self.source, partitions)
        broker.create(self.sink, partitions, **settings)
        # The controller has made it; the broker hears of it a little later.
        admin = broker.admin()
        until(lambda: {self.source, self.sink} <= admin.list_topics(timeout=PATIENCE).topics.keys())

    broker: Broker

    @property
    def plot(self) -> Plot:
        """What another process needs of it."""
        return Plot(self.app_id, self.address, self.folder)

    def send(self, keys: Iterable[str], value: bytes = b'"x"') -> None:
        """Write a record for each key."""
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "partitioner": "murmur2_random"})
        for key in keys:
            producer.produce(self.source, value, key, timestamp=1000)
        assert producer.flush(PATIENCE) == 0

    def topics(self) -> list[str]:
        """The names of the application's topics."""
        admin = self.broker.admin()
        return [topic for topic in admin.list_topics(timeout=PATIENCE).topics if topic.startswith(f"{self.app_id}-")]

    def delete(self, topic: str) -> None:
        """Delete a topic, and return when it is gone."""
        self.broker.delete(topic)

    def alter(self, topic: str, **settings: str) -> None:
        """Change settings of a topic, with `_` for `.`."""
        entries = [
            ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for name, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        admin = self.broker.admin()
        admin.incremental_alter_configs([resource])[resource].result()
        # The controller has decided it; the broker hears of it a little later.
        wanted = {entry.name: entry.value for entry in entries}
        until(lambda: wanted.items() <= self._settings(topic).items())

    def widen(self, topic: str, partitions: int) -> None:
        """Add partitions to a topic."""
        admin = self.broker.admin()
        admin.create_partitions([NewPartitions(topic, partitions)], operation_timeout=PATIENCE)[topic].result()

    def settings(self, topic: str) -> dict[str, str]:
        """The settings of one of its topics, by their names."""
        return self._settings(self.own(topic))

    def _settings(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        admin = self.broker.admin()
        found = admin.describe_configs([resource])[resource].result()
        return {name: entry.value for name, entry in found.items()}

    def out(self, topic: str | None = None) -> dict[str, list[bytes | None]]:
        """The committed values of each key in the sink."""
        found = defaultdict(list)
        for record in records(self.broker, topic or self.sink):
            found[(record.key() or b"").decode()].append(record.value())
        return dict(found)

    def counts(self) -> dict[str, list[int]]:
        """The counts of each key in the order they were written; each from 1 on if none was lost or doubled."""
        return {key: [int.from_bytes(value or b"") for value in values] for key, values in self.out().items()}

    def await_counts(self, wanted: dict[str, int], patience: float = PATIENCE) -> None:
        """Wait until each key is counted so far, once for each record and in order."""
        until(lambda: sum(map(len, self.counts().values())) >= sum(wanted.values()), patience)
        assert self.counts() == {key: list(range(1, count + 1)) for key, count in wanted.items()}


def failed(app: App, patience: float = PATIENCE) -> str:
    """What an application ends with that should fail."""
    until(lambda: app.state == "failed", patience)
    return str(app.error)
