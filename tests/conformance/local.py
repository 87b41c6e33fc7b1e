"""The real worker over the embedded log as a player of traces: each step is appended to its topic, and played when all
that follows from it has been processed and committed."""

import dataclasses
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from types import TracebackType
from typing import Any

from headwater import Config, Record, StreamsError, Topology
from headwater.state.log import Log
from headwater.streams.run import open_app
from tests.conformance.case import Case
from tests.conformance.driver import store_contents
from tests.conformance.replay import Contents, Observed, Step, Trace, input_headers, raw_value, written_record

ZERO = timedelta(0)


class ManualClock:
    """A clock that stands still between steps."""

    def __init__(self) -> None:
        self.time = 0

    def now(self) -> int:
        return self.time

    def sleep(self, seconds: float) -> None:
        """Nothing to wait for: whoever asks for work is served at once."""


def config_of(case: Case) -> Config:
    """The trace's settings as Kafka Streams' driver takes them: emit intervals of 0 unless given."""
    config = Config.from_kafka(case.config)
    return dataclasses.replace(
        config,
        commit_interval=ZERO,
        join_emit_interval=ZERO if config.join_emit_interval is None else config.join_emit_interval,
        window_emit_interval=ZERO if config.window_emit_interval is None else config.window_emit_interval,
    )


class WorkerPlayer:
    """Plays a trace through an application on an embedded log of one partition per topic."""

    def __init__(self, trace: Trace, topology: Topology, case: Case) -> None:
        self._trace = trace
        self._topology = topology
        self._case = case
        self._folder = tempfile.TemporaryDirectory(prefix="headwater-local-")
        self._log = Log.open(self._folder.name)
        for topic in trace.body["topics"]:
            self._log.create_topic(topic, 1)
        self._positions = dict.fromkeys(trace.body["topics"], 0)
        self._clock = ManualClock()
        self._dropped = 0
        # One record between two commits, as in Kafka Streams' driver: the record cache shows the difference.
        broker = f"log://{self._folder.name}"
        self._app = open_app(topology, config_of(case), broker, clock=self._clock, at_once=1)

    def __enter__(self) -> "WorkerPlayer":
        self._app.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._app.stop()
        self._folder.cleanup()

    def play(self, step: Step) -> Observed:
        error = None
        if "in" in step:
            self._send(step["in"])
        else:
            self._clock.time += step["advance_wall_clock_ms"]
        try:
            self._app.wait_idle()
        except StreamsError as raised:
            error = f"{type(raised).__name__}: {raised}"
        dropped = self._dropped if error else self._app.metrics()["dropped-records-total"]
        before, self._dropped = self._dropped, dropped
        return Observed(list(self._read()), self._case.take_effects(), dropped - before, error)

    def _send(self, given: dict[str, Any]) -> None:
        topic = given["topic"]
        key_serde, value_serde = self._trace.serdes(topic)
        key = None if given["key"] is None else key_serde.encode(given["key"])
        value = raw_value(given)
        if value is None and given["value"] is not None:
            value = value_serde.encode(given["value"])
        with self._log.partition(topic, 0) as partition:
            partition.append([(key, value, given["ts"], input_headers(given))])
            if "sink" in self._trace.body["topics"][topic]["role"]:
                self._positions[topic] += 1

    def _read(self) -> Iterator[dict[str, Any]]:
        for topic in self._trace.sinks:
            key_serde, value_serde = self._trace.serdes(topic)
            with self._log.partition(topic, 0) as partition:
                for key, value, timestamp, headers, offset in partition.read(self._positions[topic]):
                    self._positions[topic] = offset + 1
                    record = Record(
                        None if key is None else key_serde.decode(key),
                        None if value is None else value_serde.decode(value),
                        timestamp,
                        headers,
                    )
                    yield written_record(topic, record)

    def describe(self) -> str:
        return self._topology.describe()

    def contents(self, trace: Trace) -> Contents:
        return store_contents(trace, self._app.store)


