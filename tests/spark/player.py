"""A query on Spark as a player of traces: each step is appended to a topic of an embedded log, or moves the clock, and
is played when the query has nothing left to do."""

import contextlib
import io
import json
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

from pyspark.sql import SparkSession

from headwater import Config, Record, StreamsError, Topology
from headwater.state.log import Log
from headwater.streams.spark.query import SparkBackend
from tests.conformance.case import Case
from tests.conformance.driver import store_contents
from tests.conformance.local import config_of
from tests.conformance.replay import Contents, Observed, Step, Trace, encoded, input_headers, written_record

EFFECT = "effect: "


class SparkPlayer:
    """Plays a trace through a query on an embedded log of one partition per topic."""

    def __init__(
        self, spark: SparkSession, trace: Trace, topology: Topology, case: Case, config: Config | None = None
    ) -> None:
        self._spark = spark
        self._trace = trace
        self._topology = topology
        self._config = config_of(case) if config is None else config
        self._folder = tempfile.TemporaryDirectory(prefix="headwater-spark-")
        self._log = Log.open(Path(self._folder.name) / "log")
        for topic in trace.body["topics"]:
            self._log.create_topic(topic, 1)
        self._positions = dict.fromkeys(trace.body["topics"], 0)
        self._clock = Path(self._folder.name) / "clock"
        self._now = 0
        self._set_clock()
        self._dropped = 0
        self._printed = io.StringIO()
        case.print_effects(EFFECT)

    def _set_clock(self) -> None:
        fresh = self._clock.with_suffix(".new")
        fresh.write_text(str(self._now))
        fresh.rename(self._clock)

    def __enter__(self) -> "SparkPlayer":
        clock = str(self._clock)

        def now() -> int:
            with open(clock) as file:
                return int(file.read())

        self._query = SparkBackend(self._spark).start(
            self._topology,
            self._config,
            broker=f"log://{self._folder.name}/log",
            checkpoint=f"{self._folder.name}/checkpoint",
            clock=now,
            tick=timedelta(milliseconds=1),
            at_once=1,
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._query.stop()
        self._folder.cleanup()

    def play(self, step: Step) -> Observed:
        return self.play_all([step])

    def play_all(self, steps: list[Step]) -> Observed:
        """Take some steps before the query sees any of them; they are one batch then, or several."""
        error = None
        # From the first step on: the query may be done with it before the last has been taken.
        with contextlib.redirect_stdout(self._printed):
            for step in steps:
                if "in" in step:
                    self._send(step["in"])
                else:
                    self._now += step["advance_wall_clock_ms"]
                    self._set_clock()
            try:
                self._query.processAllAvailable()
            except StreamsError as raised:
                error = f"{type(raised).__name__}: {raised}"
        dropped = self._query.metrics()["dropped-records-total"]
        before, self._dropped = self._dropped, dropped
        effects = [json.loads(line.removeprefix(EFFECT)) for line in self._printed.getvalue().splitlines()]
        self._printed = io.StringIO()
        return Observed(list(self._read()), effects, 0 if error else dropped - before, error)

    def drain(self) -> list[dict[str, Any]]:
        """What comes when there is no more input to wait for."""
        self._query.drain()
        return list(self._read())

    def _send(self, given: dict[str, Any]) -> None:
        topic = given["topic"]
        key, value = encoded(self._trace, given)
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
                    key = None if key is None else key_serde.decode(key)
                    value = None if value is None else value_serde.decode(value)
                    yield written_record(topic, Record(key, value, timestamp, headers))

    def describe(self) -> str:
        return self._topology.describe()

    def contents(self, trace: Trace) -> Contents:
        return store_contents(trace, self._query.store)
