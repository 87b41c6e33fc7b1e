"""The stages of a Spark query, called without Spark, as a player of traces."""

from types import TracebackType
from typing import Any

from headwater import Config, Record, StreamsError, Topology
from headwater.streams.changes import committed_store
from headwater.streams.spark.shard import of_globals, open_backend
from headwater.streams.stores import public
from tests.conformance.case import Case
from tests.conformance.driver import store_contents
from tests.conformance.local import config_of
from tests.conformance.replay import Contents, Observed, Step, Trace, input_headers, raw_value, written_record
from tests.spark.line import Line


class LinePlayer:
    """Plays each step as a batch, and as many more as there are until nothing comes back in."""

    def __init__(self, trace: Trace, topology: Topology, case: Case, config: Config | None = None) -> None:
        self._trace = trace
        self._topology = topology
        self._case = case
        self._line = Line(topology, config or config_of(case), trace.body["topics"], at_once=1)
        self._now = 0

    def __enter__(self) -> "LinePlayer":
        self._line.batch([], self._now)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        pass

    def play(self, step: Step) -> Observed:
        out: list[dict[str, Any]] = []
        error = None
        self._line.reports.clear()
        records = []
        if "in" in step:
            records = [(step["in"]["topic"], _record(self._trace, step["in"]))]
        else:
            self._now += step["advance_wall_clock_ms"]
        try:
            first = True
            while records or first:
                first = False
                sources = [batch for topic, record in records for batch in self._line.send(topic, [record])]
                written = self._line.batch(sources, self._now)
                out += [self._written(topic, record) for topic, record in written if topic in self._trace.sinks]
                read = {*self._trace.sources, *self._trace.global_topics}
                records = [(topic, record) for topic, record in written if topic in read]
        except StreamsError as raised:
            error = f"{type(raised).__name__}: {raised}"
            out = []
        out.sort(key=lambda record: record["topic"])
        dropped = sum(sum(report.dropped.values()) for report in self._line.reports)
        return Observed(out, self._case.take_effects(), dropped, error)

    def feed(self, given: list[dict[str, Any]], drain: bool = False) -> list[dict[str, Any]]:
        """Take some inputs in one batch; return what came out."""
        sources = [batch for one in given for batch in self._line.send(one["topic"], [_record(self._trace, one)])]
        written = self._line.batch(sources, self._now, drain)
        return [self._written(topic, record) for topic, record in written if topic in self._trace.sinks]

    def _written(self, topic: str, record: Any) -> dict[str, Any]:
        key_serde, value_serde = self._trace.serdes(topic)
        key, value, timestamp, headers, _ = record
        key = None if key is None else key_serde.decode(key)
        return written_record(
            topic, Record(key, None if value is None else value_serde.decode(value), timestamp, headers)
        )

    def describe(self) -> str:
        return self._topology.describe()

    def contents(self, trace: Trace) -> Contents:
        return store_contents(trace, self._store)

    def _store(self, name: str) -> Any:
        topology = self._topology
        specs = {**topology.global_stores, **topology.stores}
        for stage in self._line.stages.chained:
            is_global = stage.global_task is not None and name in topology.global_stores
            if is_global or name in stage.stores():
                cells = [self._line.cells(stage.number, shard) for shard in range(1 if is_global else stage.shards)]
                backends = [open_backend(stage.spec, stage.global_task, part) for part in cells]
                parts = [committed_store(specs[name], of_globals(b) if is_global else b) for b in backends]
                return public(specs[name], parts, lambda: self._now, False)
        raise StreamsError(f"no stage keeps the store {name!r}")


def encoded(trace: Trace, given: dict[str, Any]) -> tuple[bytes | None, bytes | None, int, Any]:
    """An input as key, value, timestamp and headers, in bytes."""
    key_serde, value_serde = trace.serdes(given["topic"])
    key = None if given["key"] is None else key_serde.encode(given["key"])
    value = raw_value(given)
    if value is None and given["value"] is not None:
        value = value_serde.encode(given["value"])
    return key, value, given["ts"], input_headers(given)


def _record(trace: Trace, given: dict[str, Any]) -> Any:
    return *encoded(trace, given), 0
