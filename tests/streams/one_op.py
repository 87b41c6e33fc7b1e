"""One aggregation in a topology of its own: a source, the operator, and a tap that shows every table update as it is
passed on. Owns no expectation; the tests of the aggregations share it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from headwater import Config, TopologyTestDriver
from headwater.dsl import ops
from headwater.dsl.serde import Serde, Str
from headwater.dsl.topology import Source, StoreSpec, Topology
from headwater.streams.compile import Site, Step, rule

# Not in the operator: a task runs a copy of its topology.
_updates: list[tuple[Any, ...]] = []


@dataclass(frozen=True)
class Tap(ops.Op):
    """Note each update (key, new, old, latest, timestamp, headers)."""


@rule(Tap)
def tap(op: Tap, site: Site) -> Step:
    def note(*update: Any) -> None:
        _updates.append(update)

    return note


def ms(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


class Bench:
    """A running operator: send records, take the updates they caused."""

    def __init__(self, driver: TopologyTestDriver) -> None:
        self.driver = driver
        self._input = driver.input("in")
        _updates.clear()

    def send(self, key: Any, value: Any, at: int, headers: Any = ()) -> list[tuple[Any, ...]]:
        """The updates of one record."""
        self._input.send(key, value, at=at, headers=headers)
        return self.take()

    def take(self) -> list[tuple[Any, ...]]:
        updates = list(_updates)
        _updates.clear()
        return updates

    @property
    def dropped(self) -> int:
        return self.driver.metrics()["dropped-records-total"]


@contextmanager
def bench(op: ops.Op, spec: StoreSpec, config: Config | None = None, value: Serde | None = None) -> Iterator[Bench]:
    """Run the operator over the topic `in` with the store it needs; the values on it are the store's unless given."""
    topology = Topology()
    topology.put_source(Source("source", ("in",), None, Str(), value or spec.value))
    topology.put_processor("aggregate", op, "source")
    topology.put_store(spec, "aggregate")
    topology.put_processor("tap", Tap(), "aggregate")
    with TopologyTestDriver(topology, config) as driver:
        yield Bench(driver)
