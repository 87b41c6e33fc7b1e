"""The driver as a player of traces. Owns how steps become calls of the test driver and how its stores are read."""

import dataclasses
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import TracebackType
from typing import Any, Literal

from headwater import Config, StreamsError, Topology, TopologyTestDriver
from tests.conformance.case import Case
from tests.conformance.replay import (
    Contents,
    Observed,
    Step,
    Trace,
    input_headers,
    raw_value,
    row_order,
    written_key,
    written_record,
)


class DriverPlayer:
    """Plays a trace through a TopologyTestDriver; `options` are the driver's own keywords.

    With `restart`, every task is committed, thrown away and rebuilt before each step but the first. With several
    partitions, each record put out says its partition, and a step may choose the partition of its input. `compat` is
    Config's.
    """

    def __init__(
        self,
        trace: Trace,
        topology: Topology,
        case: Case,
        *,
        restart: bool = False,
        compat: Literal["kafka-streams"] | None = None,
        **options: Any,
    ) -> None:
        self._topology = topology
        self._case = case
        self._restart = restart
        self._steps = 0
        self._dropped = 0
        self._partitions: int = options.get("partitions", 1)
        self.driver = TopologyTestDriver(
            topology, dataclasses.replace(Config.from_kafka(case.config), compat=compat), **options
        )
        self._key_serdes = {name: trace.serdes(name)[0] for name in trace.sources}
        self._inputs = {name: self.driver.input(name, *trace.serdes(name)) for name in trace.sources}
        self._outputs = {name: self.driver.output(name, *trace.serdes(name)) for name in trace.sinks}

    def __enter__(self) -> "DriverPlayer":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.driver.__exit__(kind, error, at)

    def play(self, step: Step, partition: int | None = None) -> Observed:
        if self._restart and self._steps:
            self.driver.restart()
        self._steps += 1
        error = None
        try:
            if "in" in step:
                self._send(step["in"], partition)
            else:
                self.driver.advance(timedelta(milliseconds=step["advance_wall_clock_ms"]))
        except StreamsError as raised:
            error = f"{type(raised).__name__}: {raised}"
        before, self._dropped = self._dropped, self.driver.metrics()["dropped-records-total"]
        return Observed(list(self._read()), self._case.take_effects(), self._dropped - before, error)

    def _send(self, given: dict[str, Any], partition: int | None) -> None:
        topic = self._inputs[given["topic"]]
        options: dict[str, Any] = {"at": given["ts"], "headers": input_headers(given)}
        if partition is not None:
            options["partition"] = partition
        raw = raw_value(given)
        if raw is None:
            topic.send(given["key"], given["value"], **options)
        else:
            key = given["key"]
            topic.send_bytes(None if key is None else self._key_serdes[given["topic"]].encode(key), raw, **options)

    def _read(self) -> Iterator[dict[str, Any]]:
        for name, output in self._outputs.items():
            if self._partitions == 1:
                yield from (written_record(name, record) for record in output.read_all())
            else:
                for partition in range(self._partitions):
                    for record in output.read_all(partition=partition):
                        yield written_record(name, record) | {"partition": partition}

    def describe(self) -> str:
        return self._topology.describe()

    def contents(self, trace: Trace) -> Contents:
        return store_contents(trace, self.driver.store)


def store_contents(trace: Trace, open_store: Callable[[str], Any]) -> Contents:
    """Return what the trace's stores hold, read through the public store methods."""
    stores = {name: open_store(name) for name in trace.body["stores"]}
    rows = {
        name: sorted(_rows(store, trace.body["store_kinds"][name]), key=row_order) for name, store in stores.items()
    }
    return Contents(
        {name: [[key, value] for key, value, _ in found] for name, found in rows.items()},
        {name: [timestamp for _, _, timestamp in found] for name, found in rows.items()},
        {
            name: [_version(stores[name], probe["key"], probe["as_of"]) for probe in probes]
            for name, probes in trace.body.get("store_versions", {}).items()
        },
    )


def _rows(store: Any, kind: str) -> Iterator[tuple[Any, Any, int | None]]:
    """Yield key, value and timestamp of each row; kinds without timestamps give None."""
    if kind in ("kv", "window"):
        for key, (value, timestamp) in store.all(timestamps=True):
            yield written_key(key), value, timestamp
    elif kind == "versioned":
        for key, value in store.all():
            found = store.get(key)
            assert found, f"all() has {key!r}, get() has not"
            assert found[0] == value, f"{key!r}: all() says {value!r}, get() {found[0]!r}"
            yield key, value, found[1]
    else:
        for key, value in store.all():
            yield written_key(key), value, None


def _version(store: Any, key: str, as_of: int) -> dict[str, Any]:
    value, timestamp, valid_to = store.get(key, as_of=as_of) or (None, None, None)
    return {"key": key, "as_of": as_of, "value": value, "ts": timestamp, "valid_to": valid_to}
