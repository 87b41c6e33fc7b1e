"""Timestamp extractors, partition times and forwarded timestamps."""

import re
from typing import Any

from headwater import (
    OnInvalid,
    Processor,
    Record,
    SourceRecord,
    Str,
    StreamsBuilder,
)
from tests.conformance.case import Case
from tests.conformance.chapters.registry import ms, text, zero
from tests.conformance.more_chapters.registry import (
    TOPOLOGIES,
    L,
    adder,
    subtractor,
    topology,
    tumbling,
)


@topology
def extractor_table(b: StreamsBuilder, case: Case) -> None:
    def tenfold(record: SourceRecord, partition_time: int) -> int:
        if record.value is None:
            return record.timestamp
        return -1 if record.value == 7 else 10 * record.value

    (
        b.table("in", value=L, store="tab", timestamp=tenfold)
        .group_by(lambda key, value: (f"g{value % 2}", value), name="grp", key=Str(), value=L)
        .aggregate(zero, adder, subtractor, store="sum", value=L)
        .to_stream()
        .to("out")
    )


@topology
def extractor_repartition(b: StreamsBuilder, case: Case) -> None:
    def fivefold(record: SourceRecord, partition_time: int) -> int:
        return partition_time if record.value is None else 5 * record.value

    (
        b.stream("in", value=L, timestamp=fivefold)
        .select_key(lambda key, value: "none" if value is None else f"k{value % 2}")
        .group_by_key(name="grp", key=Str(), value=L)
        .windowed_by(tumbling(30, 10))
        .count(store="counts")
        .to_stream()
        .to("out")
    )


def time_in_value(record: SourceRecord, partition_time: int) -> int:
    number = re.search(":([0-9]+)$", record.value or "")
    return int(number[1]) if number else -1


class Stamp(Processor):
    def process(self, record: Record) -> None:
        times = f"{record.timestamp}/{self.context.stream_time}"
        self.context.forward(record.replace(value=f"{text(record.value)}@{times}"))


@topology
def extractor_two_topics(b: StreamsBuilder, case: Case) -> None:
    b.stream(["in1", "in2"], timestamp=OnInvalid.partition_time(time_in_value)).process(Stamp).to("out")


TOPOLOGIES["extractor-partition-time-fail"] = TOPOLOGIES["extractor-two-topics"]


class StampOnly(Processor):
    def process(self, record: Record) -> None:
        self.context.forward(record.replace(value=f"{record.timestamp}/{self.context.stream_time}"))


@topology
def extractor_sees_partition_time(b: StreamsBuilder, case: Case) -> None:
    def a_little_later(record: SourceRecord, partition_time: int) -> int:
        return record.timestamp if partition_time < 0 else partition_time + (record.value or 0) % 5

    b.stream("in", value=L, timestamp=a_little_later).merge(b.stream("other", value=L)).process(StampOnly).to("out")


class Ticks(Processor):
    def __init__(self, case: Case) -> None:
        self._case = case

    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(ms(50), "stream-time", lambda timestamp: self._case.effect(f"p {timestamp}"))

    def process(self, record: Record) -> None:
        self.context.forward(record.replace(value=str(self.context.stream_time)))


@topology
def extractor_punctuate(b: StreamsBuilder, case: Case) -> None:
    def tenfold(record: SourceRecord, partition_time: int) -> int:
        return -1 if record.value is None else 10 * record.value

    b.stream("in", value=L, timestamp=tenfold).process(lambda: Ticks(case)).to("out")


class Backwards(Processor):
    def process(self, record: Record) -> None:
        self.context.forward(record.replace(timestamp=max(0, 1000 - record.timestamp)))


@topology
def forwarded_timestamps(b: StreamsBuilder, case: Case) -> None:
    (
        b.stream("in", value=L)
        .process(Backwards)
        .group_by_key(name="grp", key=Str(), value=L)
        .windowed_by(tumbling(100, 100))
        .count(store="counts")
        .to_stream()
        .to("out")
    )
