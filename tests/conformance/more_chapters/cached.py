"""The record cache, large and tiny."""

from typing import Any

from headwater import (
    KeyValue,
    Processor,
    Record,
    Str,
    StreamsBuilder,
    Window,
)
from tests.conformance.case import Case
from tests.conformance.chapters.registry import dotted, empty, ms, plus, text, zero
from tests.conformance.more_chapters.registry import (
    CLOSE,
    TOPOLOGIES,
    L,
    adder,
    bracketed,
    even,
    hopping,
    parts,
    sessions,
    sliding,
    spread,
    subtractor,
    topology,
    tumbling,
)


@topology
def cached_count(b: StreamsBuilder, case: Case) -> None:
    b.stream("in").flat_map_values(parts).group_by_key().count(store="counts").to_stream().to("out")


@topology
def cached_reduce_null(b: StreamsBuilder, case: Case) -> None:
    (
        b.stream("in")
        .flat_map_values(parts)
        .group_by_key()
        .reduce(lambda aggregate, value: None if value == "DEL" else aggregate + value, store="red")
        .to_stream()
        .to("out")
    )


@topology
def cached_tumbling(b: StreamsBuilder, case: Case) -> None:
    (spread(b).group_by_key().windowed_by(tumbling(50, 30)).aggregate(empty, dotted, store="agg").to_stream().to("out"))


@topology
def cached_hopping(b: StreamsBuilder, case: Case) -> None:
    spread(b).group_by_key().windowed_by(hopping(60, 20, 20)).count(store="counts").to_stream().to("out")


@topology
def cached_session(b: StreamsBuilder, case: Case) -> None:
    spread(b).group_by_key().windowed_by(sessions(15, 60)).count(store="counts").to_stream().to("out")


@topology
def cached_session_aggregate(b: StreamsBuilder, case: Case) -> None:
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(sessions(20, 40))
        .aggregate(empty, dotted, merge=bracketed, store="agg")
        .to_stream()
        .to("out")
    )


@topology
def cached_sliding(b: StreamsBuilder, case: Case) -> None:
    (spread(b).group_by_key().windowed_by(sliding(30, 30)).aggregate(empty, dotted, store="agg").to_stream().to("out"))


@topology
def cached_tiny_count(b: StreamsBuilder, case: Case) -> None:
    grouped = b.stream("in").flat_map_values(parts).group_by_key()
    grouped.aggregate(empty, dotted, store="agg").to_stream().to("out")
    grouped.count(store="counts").to_stream().to("counts")


TOPOLOGIES["cached-tiny-hopping"] = TOPOLOGIES["cached-hopping"]
TOPOLOGIES["cached-tiny-session"] = TOPOLOGIES["cached-session"]


@topology
def cached_table_filter(b: StreamsBuilder, case: Case) -> None:
    table = b.table("in", value=L, store="tab")
    table.filter(even, store="even").to_stream().to("out")
    table.to_stream().to("all")


@topology
def cached_table_join(b: StreamsBuilder, case: Case) -> None:
    left, right = b.table("left", store="ltab"), b.table("right", store="rtab")
    left.outer_join(right, plus, store="joined").to_stream().to("out")


@topology
def cached_table_self_join(b: StreamsBuilder, case: Case) -> None:
    table = b.table("in", value=L, store="tab")
    evens = table.filter(even, store="even")
    big = table.map_values(lambda value: value * 100, store="big", value=L)
    evens.left_join(big, plus).to_stream().to("out", value=Str())


@topology
def cached_table_group_by(b: StreamsBuilder, case: Case) -> None:
    (
        b.table("in", value=L, store="tab")
        .group_by(lambda key, value: (f"g{value % 3}", value), name="grp", key=Str(), value=L)
        .aggregate(zero, adder, subtractor, store="sum", value=L)
        .map_values(lambda value: value + 1, store="plus", value=L)
        .to_stream()
        .to("out")
    )


@topology
def cached_cascade(b: StreamsBuilder, case: Case) -> None:
    counts = b.stream("in").flat_map_values(parts).group_by_key().count(store="counts").to_stream()
    (
        counts.map_values(lambda n: str(n))
        .peek(lambda key, value: case.effect(f"peek {text(key)}={text(value)}"))
        .group_by_key(key=Str(), value=Str())
        .aggregate(empty, lambda key, value, aggregate: f"{aggregate},{value}", store="history")
        .to_stream()
        .to("out")
    )
    counts.to("counts")


@topology
def cached_one_store_off(b: StreamsBuilder, case: Case) -> None:
    grouped = b.stream("in").flat_map_values(parts).group_by_key()
    grouped.count(store=KeyValue("loud", cached=False)).to_stream().to("loud")
    grouped.count(store="quiet").to_stream().to("quiet")
    grouped.windowed_by(tumbling(50)).count(store=Window("loudw", cached=False)).to_stream().to("windows")


@topology
def cached_suppress(b: StreamsBuilder, case: Case) -> None:
    (
        spread(b)
        .group_by_key()
        .windowed_by(tumbling(50, 20))
        .aggregate(empty, dotted, store="agg")
        .suppress(CLOSE)
        .to_stream()
        .to("out")
    )


@topology
def cached_emit_close(b: StreamsBuilder, case: Case) -> None:
    (
        spread(b)
        .group_by_key()
        .windowed_by(tumbling(50, 20))
        .emit_strategy("on-close")
        .aggregate(empty, dotted, store=Window("agg", retention=ms(1000)))
        .to_stream()
        .to("out")
    )


@topology
def cached_stream_table_join(b: StreamsBuilder, case: Case) -> None:
    stream = b.stream("in").flat_map_values(parts)
    table = stream.group_by_key().count(store="counts")
    stream.left_join(table, lambda value, n: f"{value}/{text(n)}").to("out", value=Str())
    table.to_stream().to("counts")


class LastValues(Processor):
    """Keep the latest value of each key; forward all of them by both clocks."""

    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(ms(50), "stream-time", self.all)
        context.schedule(ms(100), "wall-clock", self.all)

    def all(self, timestamp: int) -> None:
        for key, value in self.context.store("last").all():
            self.context.forward(Record(key, value, timestamp))

    def process(self, record: Record) -> None:
        if record.key is not None:
            self.context.store("last").put(record.key, record.value)


@topology
def cached_punctuate(b: StreamsBuilder, case: Case) -> None:
    b.add_store(KeyValue("last"))
    (
        b.stream("in")
        .process(LastValues, stores=["last"])
        .repartition(name="re")
        .group_by_key()
        .count(store="counts")
        .to_stream()
        .to("out")
    )
