"""Chapter: the Processor API. What a processor remembers between records lies in plain attributes."""

from typing import Any

from headwater import Int64, KeyValue, Processor, Record, Str, Topology
from tests.conformance.case import Case
from tests.conformance.chapters.registry import ms, new_builder, text, topology, zero


class Sweep(Processor):
    """Keep the latest value of each key; every 100 ms of the chosen clock forward and delete them all."""

    def __init__(self, case: Case, clock: str) -> None:
        self.case = case
        self.clock = clock

    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(ms(100), self.clock, self.sweep)

    def process(self, record: Record) -> None:
        if record.key is not None:
            self.context.store("st").put(record.key, record.value)

    def sweep(self, timestamp: int) -> None:
        self.case.effect(f"punctuate {timestamp}")
        store = self.context.store("st")
        for key, value in store.all():
            self.context.forward(Record(key, f"{value}@{timestamp}", timestamp))
            store.delete(key)


def swept(case: Case, clock: str) -> Topology:
    builder = new_builder()
    builder.add_store(KeyValue("st"))
    builder.stream("in").process(lambda: Sweep(case, clock), stores=["st"]).to("out")
    return builder.build()


@topology("process-punctuate-stream-time")
def process_punctuate_stream_time(case: Case) -> Topology:
    return swept(case, "stream-time")


@topology("process-punctuate-wall-clock")
def process_punctuate_wall_clock(case: Case) -> Topology:
    return swept(case, "wall-clock")


class CountOnBothClocks(Processor):
    """Report how many records came: by stream time, five times at most, and by the wall clock."""

    def __init__(self) -> None:
        self.n = 0
        self.fired = 0

    def init(self, context: Any) -> None:
        super().init(context)
        self.by_stream_time = context.schedule(ms(50), "stream-time", self.on_stream_time)
        context.schedule(ms(200), "wall-clock", self.on_wall_clock)

    def process(self, record: Record) -> None:
        self.n += 1
        self.context.forward(record.replace(value=f"in:{text(record.value)}"))

    def on_stream_time(self, timestamp: int) -> None:
        self.context.forward(Record("stream", f"{self.n}@{timestamp}", timestamp))
        self.fired += 1
        if self.fired == 5:
            self.by_stream_time.cancel()

    def on_wall_clock(self, timestamp: int) -> None:
        self.context.forward(Record("wall", f"{self.n}@{timestamp}", timestamp))


@topology("process-punctuate-both")
def process_punctuate_both(case: Case) -> Topology:
    builder = new_builder()
    builder.stream("in").process(CountOnBothClocks).to("out")
    return builder.build()


class Difference(Processor):
    """Forward by how much a key's value differs from the one before."""

    def process(self, record: Record) -> None:
        if record.value is None:
            return
        if record.key is None:
            self.context.forward(record)
            return
        last = self.context.store("last")
        self.context.forward(record.replace(value=record.value - (last.get(record.key) or 0)))
        last.put(record.key, record.value)


@topology("process-values")
def process_values(case: Case) -> Topology:
    builder = new_builder()
    builder.add_store(KeyValue("last", value=Int64()))
    (
        builder.stream("in", value=Int64())
        .process_values(Difference, stores=["last"])
        .group_by_key(value=Int64())
        .aggregate(zero, lambda key, value, aggregate: aggregate + value, store="sum", value=Int64())
        .to_stream()
        .to("out")
    )
    return builder.build()


class Remember(Processor):
    def process(self, record: Record) -> None:
        if record.key is not None:
            self.context.store("shared").put(record.key, record.value)


class Recall(Processor):
    def process(self, record: Record) -> None:
        if record.key is not None:
            stored = self.context.store("shared").get(record.key)
            self.context.forward(record.replace(value=f"{text(record.value)}/{'none' if stored is None else stored}"))


@topology("process-shared-store")
def process_shared_store(case: Case) -> Topology:
    builder = new_builder()
    builder.add_store(KeyValue("shared"))
    builder.stream("left").process(Remember, stores=["shared"])
    builder.stream("right").process(Recall, stores=["shared"]).to("out")
    return builder.build()


class ShowMetadata(Processor):
    def process(self, record: Record) -> None:
        context = self.context
        place = f"{context.topic}/{context.partition}/{context.offset}/{context.stream_time}"
        headers = () if record.value == "drop-headers" else (*record.headers, ("seen", str(context.offset).encode()))
        context.forward(
            record.replace(value=f"{place}/{text(record.value)}", timestamp=record.timestamp + 1000, headers=headers)
        )


@topology("process-headers-and-metadata")
def process_headers_and_metadata(case: Case) -> Topology:
    builder = new_builder()
    builder.stream("in").process(ShowMetadata).to("out")
    return builder.build()


class CountAndRoute(Processor):
    """Number the records of each key: even ones to one sink, odd ones to the other, null values to both."""

    def process(self, record: Record) -> None:
        counts = self.context.store("cnt")
        count = (counts.get(text(record.key)) or 0) + 1
        counts.put(text(record.key), count)
        if record.value is None:
            self.context.forward(record.replace(value=f"nil#{count}"))
        else:
            to = "sink-odd" if count % 2 else "sink-even"
            self.context.forward(record.replace(value=f"{record.value}#{count}"), to=to)


@topology("topology-low-level")
def topology_low_level(case: Case) -> Topology:
    built = Topology()
    built.add_source("S", "in", key=Str(), value=Str())
    built.add_processor("P", CountAndRoute, "S")
    built.add_store(KeyValue("cnt", key=Str(), value=Int64(), memory=True), "P")
    built.add_sink("sink-even", "even", "P", key=Str(), value=Str())
    built.add_sink("sink-odd", "odd", "P", key=Str(), value=Str())
    return built
