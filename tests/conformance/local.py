"""The real worker as a player of traces, over the embedded log here and over other brokers elsewhere."""

import dataclasses
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from datetime import timedelta
from types import TracebackType
from typing import Any

from headwater import Config, Record, StreamsError, Topology
from headwater.dsl.records import Headers
from headwater.state.log import Log
from headwater.streams.app import App
from headwater.streams.queues import RawRecord
from headwater.streams.run import open_app
from tests.conformance.case import Case
from tests.conformance.driver import store_contents
from tests.conformance.replay import Contents, Observed, Step, Trace, encoded, input_headers, written_record

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


class AppPlayer(ABC):
    """Plays a trace through an application: each step is sent, and over when all that follows from it is committed."""

    def __init__(self, trace: Trace, topology: Topology, case: Case, clock: ManualClock, app: App) -> None:
        self._trace = trace
        self._topology = topology
        self._case = case
        self._clock = clock
        self._app = app
        self._dropped = 0

    def play(self, step: Step) -> Observed:
        error = None
        if "in" in step:
            given = step["in"]
            key, value = encoded(self._trace, given)
            self._send(given["topic"], key, value, given["ts"], input_headers(given))
        else:
            self._clock.time += step["advance_wall_clock_ms"]
        try:
            self._app.wait_idle()
        except StreamsError as raised:
            error = f"{type(raised).__name__}: {raised}"
        dropped = self._dropped if error else self._app.metrics()["dropped-records-total"]
        before, self._dropped = self._dropped, dropped
        return Observed(list(self._outputs()), self._case.take_effects(), dropped - before, error)

    def _outputs(self) -> Iterator[dict[str, Any]]:
        for topic in self._trace.sinks:
            key_serde, value_serde = self._trace.serdes(topic)
            for key, value, timestamp, headers, _ in self._read(topic):
                record = Record(
                    None if key is None else key_serde.decode(key),
                    None if value is None else value_serde.decode(value),
                    timestamp,
                    headers,
                )
                yield written_record(topic, record)

    def _is_sink(self, topic: str) -> bool:
        """Whether what is sent there would be read as if it were a result."""
        return "sink" in self._trace.body["topics"][topic]["role"]

    @abstractmethod
    def _send(self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers) -> None:
        """Append a record to a topic."""

    @abstractmethod
    def _read(self, topic: str) -> Iterable[RawRecord]:
        """What has been written to a topic since it was last read."""

    def describe(self) -> str:
        return self._topology.describe()

    def contents(self, trace: Trace) -> Contents:
        return store_contents(trace, self._app.store)


class WorkerPlayer(AppPlayer):
    """On an embedded log of one partition per topic."""

    def __init__(self, trace: Trace, topology: Topology, case: Case) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="headwater-local-")
        self._log = Log.open(self._folder.name)
        for topic in trace.body["topics"]:
            self._log.create_topic(topic, 1)
        self._positions = dict.fromkeys(trace.body["topics"], 0)
        clock = ManualClock()
        # One record between two commits, as in Kafka Streams' driver: the record cache shows the difference.
        broker = f"log://{self._folder.name}"
        super().__init__(
            trace, topology, case, clock, open_app(topology, config_of(case), broker, clock=clock, at_once=1)
        )

    def __enter__(self) -> "WorkerPlayer":
        self._app.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._app.stop()
        self._folder.cleanup()

    def _send(self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers) -> None:
        with self._log.partition(topic, 0) as partition:
            partition.append([(key, value, timestamp, headers)])
        if self._is_sink(topic):
            self._positions[topic] += 1

    def _read(self, topic: str) -> Iterator[RawRecord]:
        with self._log.partition(topic, 0) as partition:
            for record in partition.read(self._positions[topic]):
                self._positions[topic] = record[4] + 1
                yield record
