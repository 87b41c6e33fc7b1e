"""The topologies of the oracle's WindowsAndMore area, in the public API: windows, suppress, emit on close, the record
cache, cogroup, processors, errors, timestamps, stateless and mixed. Each trace's description says what it must do."""

import re
from typing import Any

from headwater import (
    Int64,
    JoinWindows,
    KeyValue,
    KStream,
    OnInvalid,
    Processor,
    Record,
    Session,
    SessionWindowed,
    SessionWindows,
    SlidingWindows,
    SourceRecord,
    Str,
    StreamsBuilder,
    Suppress,
    TimestampedKeyValue,
    TimeWindowed,
    TimeWindows,
    Topology,
    UnlimitedWindows,
    Versioned,
    Window,
    Windowed,
)
from tests.conformance.case import Case
from tests.conformance.chapters.registry import Builder, dotted, empty, ms, new_builder, plus, text, zero

TOPOLOGIES: dict[str, Builder] = {}

L = Int64()
CLOSE = Suppress.until_window_closes()


def topology(build: Builder) -> Builder:
    """Register a function as the topology of its own name, with hyphens."""
    name = build.__name__.replace("_", "-")
    assert name not in TOPOLOGIES, f"{name} is registered twice"
    TOPOLOGIES[name] = build
    return build


def tumbling(size: int, grace: int = 0) -> TimeWindows:
    return TimeWindows.of(ms(size), grace=ms(grace))


def hopping(size: int, advance: int, grace: int = 0) -> TimeWindows:
    return TimeWindows.of(ms(size), advance=ms(advance), grace=ms(grace))


def sliding(difference: int, grace: int = 0) -> SlidingWindows:
    return SlidingWindows.of(ms(difference), grace=ms(grace))


def sessions(gap: int, grace: int = 0) -> SessionWindows:
    return SessionWindows.of(ms(gap), grace=ms(grace))


def parts(value: str | None) -> list[str]:
    return [] if value is None else value.split("_")


def adder(key: str, value: int, aggregate: int) -> int:
    return aggregate + value


def subtractor(key: str, value: int, aggregate: int) -> int:
    return aggregate - value


def add(aggregate: int, value: int) -> int:
    return aggregate + value


def subtract(aggregate: int, value: int) -> int:
    return aggregate - value


def comma(aggregate: str, value: str) -> str:
    return f"{text(aggregate)},{text(value)}"


def concatenate(aggregate: str, value: str) -> str:
    return aggregate + value


def bracketed(key: str, a: str, b: str) -> str:
    return f"({a}&{b})"


def ampersand(key: str, a: str, b: str) -> str:
    return f"{a}&{b}"


def even(key: Any, value: int) -> bool:
    return value % 2 == 0


# Windows


@topology
def tumbling_aggregate_null(case: Case) -> Topology:
    def without_del(key: str, value: str | None, aggregate: str) -> str | None:
        return None if value == "DEL" else f"{aggregate}.{text(value)}"

    b = new_builder()
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(tumbling(50, 20))
        .aggregate(lambda: "i", without_del, store="agg")
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def hopping_reduce_null(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in", value=L)
        .group_by_key()
        .windowed_by(hopping(60, 25, 15))
        .reduce(lambda aggregate, value: None if not value else aggregate + value, store="red")
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def sliding_reduce(case: Case) -> Topology:
    b = new_builder()
    b.stream("in").group_by_key().windowed_by(sliding(15, 20)).reduce(comma).to_stream().to("out")
    return b.build()


def unless_del(key: str, value: str | None, aggregate: str) -> str | None:
    return None if value == "DEL" else aggregate + text(value)


@topology
def sliding_aggregate_null(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(sliding(20, 25))
        .aggregate(empty, unless_del, store="agg")
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def session_reduce(case: Case) -> Topology:
    b = new_builder()
    b.stream("in").group_by_key().windowed_by(sessions(15, 25)).reduce(comma, store="red").to_stream().to("out")
    return b.build()


@topology
def session_aggregate_null(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(sessions(20, 40))
        .aggregate(empty, unless_del, merge=ampersand, store="agg")
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def session_smallest_gap(case: Case) -> Topology:
    b = new_builder()
    b.stream("in").group_by_key().windowed_by(sessions(1, 10)).count(store="counts").to_stream().to("out")
    return b.build()


@topology
def unlimited_count(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(UnlimitedWindows.of(start=50))
        .count(store="counts")
        .to_stream()
        .map(lambda window, n: (f"{window.key}@{window.start}", str(n)))
        .to("out")
    )
    return b.build()


@topology
def tumbling_big_times(case: Case) -> Topology:
    b = new_builder()
    b.stream("in").group_by_key().windowed_by(tumbling(60_000, 10_000)).count(store="counts").to_stream().to("out")
    return b.build()


@topology
def tumbling_long_retention_big_times(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(tumbling(30_000, 600_000))
        .aggregate(empty, dotted, store=Window("agg", retention=ms(3_600_000)))
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def hopping_long_retention(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(hopping(40, 10, 60))
        .count(store=Window("counts", retention=ms(300)))
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def sliding_big_times(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(sliding(30_000, 120_000))
        .aggregate(empty, dotted, store="agg")
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def session_big_times(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(sessions(60_000, 300_000))
        .aggregate(empty, dotted, merge=bracketed, store="agg")
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def session_long_retention(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(sessions(30_000))
        .count(store=Session("counts", retention=ms(3_600_000)))
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def window_start_select_key_count(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(tumbling(50, 20))
        .count(store="counts")
        .to_stream()
        .select_key(lambda window, n: f"{window.key}@{window.start}")
        .group_by_key(name="by-window", key=Str(), value=L)
        .reduce(add, store="sums")
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def window_start_regroup(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(hopping(40, 20, 10))
        .count()
        .to_stream()
        .map(lambda window, n: (str(window.start), f"{window.key}={n}"))
        .group_by_key(key=Str(), value=Str())
        .aggregate(empty, lambda key, value, aggregate: f"{aggregate};{value}")
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def windowed_table_group_by(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(hopping(60, 30, 20))
        .count(store="counts")
        .group_by(lambda window, n: (window.key, n), name="again", key=Str(), value=L)
        .reduce(add, subtract, store="total")
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def session_table_group_by(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(sessions(20, 30))
        .count(store="counts")
        .group_by(lambda window, n: (f"n{n}", window.key), name="by-count", key=Str(), value=Str())
        .aggregate(empty, lambda key, v, agg: f"{agg}+{v}", lambda key, v, agg: f"{agg}-{v}", store="agg")
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def two_windows_one_group(case: Case) -> Topology:
    b = new_builder()
    grouped = b.stream("in").group_by_key()
    grouped.windowed_by(tumbling(50)).count(store="t").to_stream().to("tumbling")
    grouped.windowed_by(sessions(15)).count(store="s").to_stream().to("session")
    grouped.count(store="all").to_stream().to("plain")
    return b.build()


@topology
def two_aggregations_repartitioned(case: Case) -> Topology:
    b = new_builder()
    grouped = b.stream("in").group_by(lambda key, value: value, name="by-value")
    grouped.count(store="c").to_stream().to("counts")
    grouped.windowed_by(tumbling(40, 10)).reduce(concatenate, store="r").to_stream().to("reduced")
    return b.build()


@topology
def two_aggregations_repartitioned_unnamed(case: Case) -> Topology:
    b = new_builder()
    grouped = b.stream("in").select_key(lambda key, value: value).group_by_key()
    grouped.count().to_stream().to("counts")
    grouped.aggregate(empty, lambda key, value, aggregate: aggregate + value).to_stream().to("joined")
    return b.build()


@topology
def windowed_count_map_values_materialized(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(tumbling(50, 20))
        .count(store="counts")
        .map_values(lambda window, n: f"{window.key}{n}", store="texts", value=Str())
        .filter(lambda window, value: len(value) % 2 == 0, store="even")
        .to_stream()
        .to("out")
    )
    return b.build()


# Suppress


@topology
def suppress_windowed_filter_map(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(tumbling(50, 20))
        .count(store="counts")
        .filter(lambda window, n: n > 1)
        .map_values(lambda n: n * 10, value=L)
        .suppress(CLOSE)
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def suppress_windowed_filter_materialized(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(tumbling(50, 20))
        .count(store="counts")
        .filter(lambda window, n: n % 2 == 1, store="odd")
        .suppress(CLOSE, name="final")
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def suppress_strict_max_records(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(tumbling(50, 20))
        .count(store="counts")
        .suppress(Suppress.until_window_closes(max_records=3))
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def suppress_strict_max_bytes(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(tumbling(50, 20))
        .aggregate(empty, dotted, store="agg")
        .suppress(Suppress.until_window_closes(max_bytes=250))
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def suppress_emit_early_bytes(case: Case) -> Topology:
    b = new_builder()
    b.table("in", store="tab").suppress(Suppress.until_time_limit(ms(1000), max_bytes=150)).to_stream().to("out")
    return b.build()


@topology
def suppress_strict_time_limit(case: Case) -> Topology:
    b = new_builder()
    limit = Suppress.until_time_limit(ms(40), max_records=4, full="fail")
    b.table("in", value=L, store="tab").suppress(limit).to_stream().to("out")
    return b.build()


@topology
def suppress_sliding_named(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(sliding(12, 8))
        .count(store="counts")
        .suppress(CLOSE, name="held")
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def suppress_session_time_limit(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(sessions(20, 30))
        .count(store="counts")
        .suppress(Suppress.until_time_limit(ms(25)))
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def suppress_session_merged_away(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(sessions(30, 10))
        .reduce(comma, store="red")
        .suppress(Suppress.until_window_closes(max_records=50))
        .map_values(lambda value: value + "!")
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def suppress_filtered_table(case: Case) -> Topology:
    b = new_builder()
    (b.table("in", value=L, store="tab").filter(even).suppress(Suppress.until_time_limit(ms(25))).to_stream().to("out"))
    return b.build()


@topology
def suppress_then_join(case: Case) -> Topology:
    b = new_builder()
    left = b.table("left", store="ltab").suppress(Suppress.until_time_limit(ms(30)))
    left.left_join(b.table("right", store="rtab"), plus).to_stream().to("out")
    return b.build()


@topology
def suppress_then_group_by(case: Case) -> Topology:
    b = new_builder()
    (
        b.table("in", value=L, store="tab")
        .suppress(Suppress.until_time_limit(ms(20), max_records=5))
        .group_by(lambda key, value: (f"g{value % 3}", value), name="grp", key=Str(), value=L)
        .reduce(add, subtract, store="sum")
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def suppress_twice(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(hopping(40, 20, 10))
        .count(store="counts")
        .suppress(Suppress.until_time_limit(ms(10)))
        .suppress(CLOSE)
        .to_stream()
        .to("out")
    )
    return b.build()


# Emit on window close


@topology
def emit_close_hopping_retention(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(hopping(60, 20, 10))
        .emit_strategy("on-close")
        .count(store=Window("counts", retention=ms(1000)))
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def emit_close_sliding_retention(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(sliding(20, 10))
        .emit_strategy("on-close")
        .reduce(comma, store=Window("red", retention=ms(500)))
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def emit_close_session_retention(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(sessions(20, 10))
        .emit_strategy("on-close")
        .aggregate(empty, dotted, merge=ampersand, store=Session("agg", retention=ms(2000)))
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def emit_close_session_interval(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(sessions(15, 5))
        .emit_strategy("on-close")
        .count(store=Session("counts", retention=ms(10000)))
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def emit_close_sliding_interval(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(sliding(10, 5))
        .emit_strategy("on-close")
        .count(store=Window("counts", retention=ms(10000)))
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def emit_close_tumbling_big_times(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(tumbling(60_000, 30_000))
        .emit_strategy("on-close")
        .reduce(comma, store=Window("red", retention=ms(7_200_000)))
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def emit_close_group_by_named(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in")
        .group_by(lambda key, value: value, name="grp")
        .windowed_by(tumbling(30, 10))
        .emit_strategy("on-close")
        .count(name="counted", store=Window("counts", retention=ms(500)))
        .map_values(lambda n: n * 2)
        .to_stream(name="streamed")
        .to("out", value=L, name="sunk")
    )
    return b.build()


@topology
def emit_close_then_count(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(hopping(40, 20))
        .emit_strategy("on-close")
        .aggregate(empty, unless_del, store=Window("agg", retention=ms(400)))
        .to_stream()
        .select_key(lambda window, value: window.key)
        .group_by_key(name="again", key=Str(), value=Str())
        .count(store="finals")
        .to_stream()
        .to("out")
    )
    return b.build()


# The record cache


class Spread(Processor):
    """Forward each word i of the value at timestamp + 20 * i."""

    def process(self, record: Record) -> None:
        for i, word in enumerate(parts(record.value)):
            self.context.forward(record.replace(value=word, timestamp=record.timestamp + 20 * i))


def spread(b: StreamsBuilder) -> KStream:
    return b.stream("in").process_values(Spread)


@topology
def cached_count(case: Case) -> Topology:
    b = new_builder()
    b.stream("in").flat_map_values(parts).group_by_key().count(store="counts").to_stream().to("out")
    return b.build()


@topology
def cached_reduce_null(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in")
        .flat_map_values(parts)
        .group_by_key()
        .reduce(lambda aggregate, value: None if value == "DEL" else aggregate + value, store="red")
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def cached_tumbling(case: Case) -> Topology:
    b = new_builder()
    (spread(b).group_by_key().windowed_by(tumbling(50, 30)).aggregate(empty, dotted, store="agg").to_stream().to("out"))
    return b.build()


@topology
def cached_hopping(case: Case) -> Topology:
    b = new_builder()
    spread(b).group_by_key().windowed_by(hopping(60, 20, 20)).count(store="counts").to_stream().to("out")
    return b.build()


@topology
def cached_session(case: Case) -> Topology:
    b = new_builder()
    spread(b).group_by_key().windowed_by(sessions(15, 60)).count(store="counts").to_stream().to("out")
    return b.build()


@topology
def cached_session_aggregate(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(sessions(20, 40))
        .aggregate(empty, dotted, merge=bracketed, store="agg")
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def cached_sliding(case: Case) -> Topology:
    b = new_builder()
    (spread(b).group_by_key().windowed_by(sliding(30, 30)).aggregate(empty, dotted, store="agg").to_stream().to("out"))
    return b.build()


@topology
def cached_tiny_count(case: Case) -> Topology:
    b = new_builder()
    grouped = b.stream("in").flat_map_values(parts).group_by_key()
    grouped.aggregate(empty, dotted, store="agg").to_stream().to("out")
    grouped.count(store="counts").to_stream().to("counts")
    return b.build()


TOPOLOGIES["cached-tiny-hopping"] = cached_hopping
TOPOLOGIES["cached-tiny-session"] = cached_session


@topology
def cached_table_filter(case: Case) -> Topology:
    b = new_builder()
    table = b.table("in", value=L, store="tab")
    table.filter(even, store="even").to_stream().to("out")
    table.to_stream().to("all")
    return b.build()


@topology
def cached_table_join(case: Case) -> Topology:
    b = new_builder()
    left, right = b.table("left", store="ltab"), b.table("right", store="rtab")
    left.outer_join(right, plus, store="joined").to_stream().to("out")
    return b.build()


@topology
def cached_table_self_join(case: Case) -> Topology:
    b = new_builder()
    table = b.table("in", value=L, store="tab")
    evens = table.filter(even, store="even")
    big = table.map_values(lambda value: value * 100, store="big", value=L)
    evens.left_join(big, plus).to_stream().to("out", value=Str())
    return b.build()


@topology
def cached_table_group_by(case: Case) -> Topology:
    b = new_builder()
    (
        b.table("in", value=L, store="tab")
        .group_by(lambda key, value: (f"g{value % 3}", value), name="grp", key=Str(), value=L)
        .aggregate(zero, adder, subtractor, store="sum", value=L)
        .map_values(lambda value: value + 1, store="plus", value=L)
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def cached_cascade(case: Case) -> Topology:
    b = new_builder()
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
    return b.build()


@topology
def cached_one_store_off(case: Case) -> Topology:
    b = new_builder()
    grouped = b.stream("in").flat_map_values(parts).group_by_key()
    grouped.count(store=KeyValue("loud", cached=False)).to_stream().to("loud")
    grouped.count(store="quiet").to_stream().to("quiet")
    grouped.windowed_by(tumbling(50)).count(store=Window("loudw", cached=False)).to_stream().to("windows")
    return b.build()


@topology
def cached_suppress(case: Case) -> Topology:
    b = new_builder()
    (
        spread(b)
        .group_by_key()
        .windowed_by(tumbling(50, 20))
        .aggregate(empty, dotted, store="agg")
        .suppress(CLOSE)
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def cached_emit_close(case: Case) -> Topology:
    b = new_builder()
    (
        spread(b)
        .group_by_key()
        .windowed_by(tumbling(50, 20))
        .emit_strategy("on-close")
        .aggregate(empty, dotted, store=Window("agg", retention=ms(1000)))
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def cached_stream_table_join(case: Case) -> Topology:
    b = new_builder()
    stream = b.stream("in").flat_map_values(parts)
    table = stream.group_by_key().count(store="counts")
    stream.left_join(table, lambda value, n: f"{value}/{text(n)}").to("out", value=Str())
    table.to_stream().to("counts")
    return b.build()


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
def cached_punctuate(case: Case) -> Topology:
    b = new_builder()
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
    return b.build()


# Cogroup


def with_mark(mark: str) -> Any:
    """Return an aggregator that adds the mark and the value."""
    return lambda key, value, aggregate: f"{aggregate}{mark}{text(value)}"


@topology
def cogroup_three(case: Case) -> Topology:
    def third(key: str, value: str, aggregate: str) -> str | None:
        return None if value == "DEL" else f"{aggregate}3{value}"

    b = new_builder()
    (
        b.stream("in1")
        .group_by_key()
        .cogroup(with_mark("1"))
        .cogroup(b.stream("in2").group_by_key(), with_mark("2"))
        .cogroup(b.stream("in3").group_by_key(), third)
        .aggregate(empty)
        .to_stream()
        .to("out")
    )
    return b.build()


def first_letter(key: str | None, value: str | None) -> str | None:
    return None if value is None else value[0]


@topology
def cogroup_repartitioned(case: Case) -> Topology:
    b = new_builder()
    left = b.stream("left").group_by(first_letter, name="lgrp")
    right = b.stream("right").select_key(lambda key, value: value).group_by_key(name="rgrp")
    (
        left.cogroup(with_mark("."))
        .cogroup(right, with_mark("/"))
        .aggregate(empty, name="co", store="agg")
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def cogroup_repartitioned_unnamed(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("left")
        .group_by(first_letter)
        .cogroup(with_mark("."))
        .cogroup(b.stream("right").group_by_key(), with_mark("/"))
        .cogroup(b.stream("third").group_by_key(), with_mark("!"))
        .aggregate(empty)
        .to_stream()
        .to("out")
    )
    return b.build()


def cogrouped(b: StreamsBuilder) -> Any:
    left, right = b.stream("left").group_by_key(), b.stream("right").group_by_key()
    return left.cogroup(with_mark(".")).cogroup(right, with_mark("/"))


@topology
def cogroup_sliding(case: Case) -> Topology:
    b = new_builder()
    cogrouped(b).windowed_by(sliding(15, 20)).aggregate(empty, store="agg").to_stream().to("out")
    return b.build()


@topology
def cogroup_hopping_named(case: Case) -> Topology:
    b = new_builder()
    (
        cogrouped(b)
        .windowed_by(hopping(40, 20, 10))
        .aggregate(empty, name="co", store=Window("agg", retention=ms(300)))
        .suppress(CLOSE)
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def cogroup_cached_session(case: Case) -> Topology:
    b = new_builder()
    cogrouped(b).windowed_by(sessions(20, 50)).aggregate(empty, merge=bracketed, store="agg").to_stream().to("out")
    return b.build()


# Processors


class Around(Processor):
    """Put each record into the window store, then forward the rows around its time."""

    def process(self, record: Record) -> None:
        if record.key is None:
            return
        store = self.context.store("win")
        store.put(record.key, record.value, record.timestamp)
        rows = store.fetch(record.key, record.timestamp - 40, record.timestamp + 40)
        self.context.forward(record.replace(value=",".join(f"{value}@{window.start}" for window, value in rows)))


@topology
def processor_window_store(case: Case) -> Topology:
    b = new_builder()
    b.add_store(Window("win", size=ms(50), retention=ms(100)))
    b.stream("in").process(Around, stores=["win"]).to("out")
    return b.build()


@topology
def processor_window_store_duplicates(case: Case) -> Topology:
    b = new_builder()
    b.add_store(Window("win", size=ms(50), retention=ms(100), duplicates=True))
    b.stream("in").process(Around, stores=["win"]).to("out")
    return b.build()


class HandSessions(Processor):
    """Replace the sessions that contain the record's time by one that ends there."""

    def process(self, record: Record) -> None:
        if record.key is None:
            return
        store = self.context.store("ses")
        at = record.timestamp
        for window, _ in store.fetch(record.key):
            if window.start <= at <= window.end:
                store.remove(window)
        if record.value is not None:
            store.put(Windowed(record.key, at - at % 20, at), record.value)
        rows = store.fetch(record.key)
        shown = ",".join(f"{value}[{window.start},{window.end}]" for window, value in rows)
        self.context.forward(record.replace(value=shown))


@topology
def processor_session_store(case: Case) -> Topology:
    b = new_builder()
    b.add_store(Session("ses", retention=ms(500)))
    b.stream("in").process(HandSessions, stores=["ses"]).to("out")
    return b.build()


class Versions(Processor):
    """Put each record, then show the latest version, the one 30 ms before the record and the one at its time."""

    def process(self, record: Record) -> None:
        if record.key is None:
            return
        store = self.context.store("ver")
        store.put(record.key, record.value, record.timestamp)
        found = [
            store.get(record.key),
            store.get(record.key, as_of=record.timestamp - 30),
            store.get(record.key, as_of=record.timestamp),
        ]
        self.context.forward(record.replace(value="|".join(self.show(version) for version in found)))

    def show(self, version: tuple[str, int, int | None] | None) -> str:
        if version is None:
            return "none"
        value, timestamp, valid_to = version
        return f"{value}@{timestamp}>{'-' if valid_to is None else valid_to}"


@topology
def processor_versioned_store(case: Case) -> Topology:
    b = new_builder()
    b.add_store(Versioned("ver", retention=ms(80)))
    b.stream("in").process(Versions, stores=["ver"]).to("out")
    return b.build()


class Sums(Processor):
    """Sum the values of a key with the greatest timestamp; a 7 shows all rows first."""

    def process(self, record: Record) -> None:
        if record.key is None:
            return
        store = self.context.store("st")
        if record.value is None:
            store.delete(record.key)
            return
        if record.value == 7:
            for key, (value, timestamp) in store.all(timestamps=True):
                self.context.forward(Record(key, value, timestamp))
        value, timestamp = store.get(record.key, timestamps=True) or (0, 0)
        value, timestamp = value + record.value, max(timestamp, record.timestamp)
        store.put(record.key, value, timestamp=timestamp)
        self.context.forward(record.replace(value=value, timestamp=timestamp))


@topology
def processor_timestamped_store(case: Case) -> Topology:
    b = new_builder()
    b.add_store(TimestampedKeyValue("st", value=L))
    b.stream("in", value=L).process(Sums, stores=["st"]).to("out", value=L)
    return b.build()


class First(Processor):
    def process(self, record: Record) -> None:
        if record.key is None:
            return
        seen = self.context.store("seen")
        n = (seen.get(record.key) or 0) + 1
        seen.put(record.key, n)
        self.context.store("shared").put(record.key, record.value)
        numbered = record.replace(value=f"{text(record.value)}#{n}")
        self.context.forward(numbered)
        self.context.forward(numbered.replace(timestamp=record.timestamp + 5))


class Second(Processor):
    def process(self, record: Record) -> None:
        last = self.context.store("last")
        shared = self.context.store("shared").get(record.key)
        self.context.forward(record.replace(value=f"{text(shared)}<{record.value}<{text(last.get(record.key))}"))
        last.put(record.key, record.value)


@topology
def processor_chain(case: Case) -> Topology:
    b = new_builder()
    b.add_store(KeyValue("seen", value=L))
    b.add_store(KeyValue("shared"))
    b.add_store(KeyValue("last", memory=True))
    (
        b.stream("in")
        .process(First, stores=["seen", "shared"], name="first")
        .filter(lambda key, value: int(value.partition("#")[2]) % 3 != 0)
        .process(Second, stores=["shared", "last"], name="second")
        .to("out")
    )
    return b.build()


class Clocks(Processor):
    """Schedule and cancel punctuators as the values say."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._clocks: dict[str, Any] = {}

    def process(self, record: Record) -> None:
        value = record.value
        if value is not None and re.fullmatch("[sw][0-9]+", value):
            kind = "stream-time" if value[0] == "s" else "wall-clock"
            if kind in self._clocks:
                self._clocks[kind].cancel()
            self._clocks[kind] = self.context.schedule(
                ms(int(value[1:])), kind, lambda timestamp: self.fire(value, timestamp)
            )
        elif value == "stop":
            for clock in self._clocks.values():
                clock.cancel()
        else:
            self.context.forward(record)

    def fire(self, value: str, timestamp: int) -> None:
        self._case.effect(f"{value} {timestamp}")
        self.context.forward(Record("tick", f"{value} {timestamp}", timestamp))


@topology
def punctuators_rescheduled(case: Case) -> Topology:
    b = new_builder()
    b.stream("in").process(lambda: Clocks(case)).to("out")
    return b.build()


class Nested(Processor):
    """Punctuators that schedule and cancel punctuators."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self.fired = 0
        self.walls = 0

    def init(self, context: Any) -> None:
        super().init(context)
        self._outer = context.schedule(ms(40), "stream-time", self.outer)
        context.schedule(ms(100), "wall-clock", self.wall)

    def wall(self, timestamp: int) -> None:
        self._case.effect(f"wall {timestamp}")
        self.walls += 1
        if self.walls == 4:
            self._outer.cancel()

    def outer(self, timestamp: int) -> None:
        self.tell(f"outer {timestamp}", timestamp)
        self.fired += 1
        if self.fired > 3:
            return
        i = self.fired
        fired: list[int] = []

        def inner(at: int) -> None:
            self.tell(f"inner{i} {at}", at)
            fired.append(at)
            if len(fired) == 2:
                scheduled.cancel()

        scheduled = self.context.schedule(ms(10 * i), "stream-time", inner)

    def tell(self, said: str, timestamp: int) -> None:
        self._case.effect(said)
        self.context.forward(Record("p", said, timestamp))

    def process(self, record: Record) -> None:
        times = f"{self.context.stream_time}/{self.context.wall_clock}"
        self.context.forward(record.replace(value=f"{text(record.value)}@{times}"))


@topology
def punctuator_in_punctuator(case: Case) -> Topology:
    b = new_builder()
    b.stream("in").process(lambda: Nested(case)).to("out")
    return b.build()


class Router(Processor):
    def process(self, record: Record) -> None:
        if record.value is None:
            self.context.forward(record)
        else:
            self.context.forward(record, to="odds" if record.value % 2 else "evens")


def times(factor: int) -> Any:
    return lambda value: None if value is None else value * factor


@topology
def forward_to_named_children(case: Case) -> Topology:
    b = new_builder()
    routed = b.stream("in", value=L).process(Router, name="router")
    routed.map_values(times(2), name="evens").to("even", value=L)
    routed.map_values(times(10), name="odds").to("odd", value=L)
    routed.foreach(lambda key, value: case.effect(f"seen {text(key)}={text(value)}"), name="all")
    return b.build()


class WordKeys(Processor):
    def process(self, record: Record) -> None:
        for i, word in enumerate(parts(record.value)):
            self.context.forward(record.replace(key=word, value=text(record.key), timestamp=record.timestamp + i))


@topology
def process_key_change_count(case: Case) -> Topology:
    b = new_builder()
    b.stream("in").process(WordKeys).group_by_key().count(store="counts").to_stream().to("out")
    return b.build()


class Difference(Processor):
    """Forward by how much a value differs from the one before, now and 1000 ms later."""

    def process(self, record: Record) -> None:
        last = self.context.store("last")
        difference = record.replace(value=record.value - (last.get(record.key) or 0))
        self.context.forward(difference)
        self.context.forward(difference.replace(timestamp=record.timestamp + 1000))
        last.put(record.key, record.value)


@topology
def process_values_after_filter(case: Case) -> Topology:
    b = new_builder()
    b.add_store(KeyValue("last", value=L))
    (
        b.stream("in", value=L)
        .select_key(lambda key, value: None if value is None else f"k{value % 2}")
        .filter(lambda key, value: value is not None)
        .process_values(Difference, stores=["last"], name="diff")
        .group_by_key(name="grp", key=Str(), value=L)
        .windowed_by(tumbling(50, 1000))
        .reduce(add, store="sum")
        .to_stream()
        .to("out")
    )
    return b.build()


class Facts(Processor):
    def process(self, record: Record) -> None:
        if record.key is None:
            return
        store = self.context.store("glo")
        old = store.get(record.key.upper())
        store.put(
            record.key.upper(), None if record.value is None else f"{record.value}/{'none' if old is None else old}"
        )


class Ask(Processor):
    def process(self, record: Record) -> None:
        if record.key is None:
            return
        found = self.context.store("glo").get(record.key.upper())
        self.context.forward(record.replace(value=f"{text(record.value)}+{'none' if found is None else found}"))


@topology
def global_store_processor(case: Case) -> Topology:
    b = new_builder()
    b.add_global_store(KeyValue("glo"), "facts", Facts)
    b.stream("in").process(Ask).to("out")
    return b.build()


@topology
def two_global_tables(case: Case) -> Topology:
    b = new_builder()
    facts = b.global_table("facts", store="glo")
    more = b.global_table("more")
    (
        b.stream("in")
        .left_join(facts, plus, select=lambda key, value: key)
        .join(more, lambda value, found: f"{value}*{found}", select=lambda key, value: value[0])
        .to("out")
    )
    return b.build()


class LowFirst(Processor):
    def process(self, record: Record) -> None:
        if record.key is None:
            return
        self.context.store("win").put(record.key, record.value, record.timestamp - record.timestamp % 100)
        self.context.forward(record)


class LowSecond(Processor):
    def process(self, record: Record) -> None:
        if record.key is None:
            return
        found = self.context.store("win").get(record.key, record.timestamp - record.timestamp % 100)
        numbers = self.context.store("n")
        n = (numbers.get(record.key) or 0) + 1
        numbers.put(record.key, n)
        self.context.forward(record.replace(value=f"{text(record.value)}/{'none' if found is None else found}/{n}"))


@topology
def low_level_many(case: Case) -> Topology:
    strings = {"key": Str(), "value": Str()}
    built = Topology()
    built.add_source("S1", "in1", **strings)
    built.add_source("S2", "in2", "in3", **strings)
    built.add_processor("P1", LowFirst, "S1", "S2")
    built.add_processor("P2", LowSecond, "P1", "S2")
    built.add_store(Window("win", size=ms(100), retention=ms(1000), **strings), "P1", "P2")
    built.add_store(KeyValue("n", key=Str(), value=L), "P2")
    built.add_sink("K1", "out1", "P2", **strings)
    built.add_sink("K2", "out2", "P1", "S1", **strings)
    return built


class Counted(Processor):
    def process(self, record: Record) -> None:
        counts = self.context.store("c")
        n = (counts.get(text(record.key)) or 0) + 1
        counts.put(text(record.key), n)
        self.context.forward(record.replace(value=f"{text(record.value)}{n}"))


@topology
def low_level_two_subtopologies(case: Case) -> Topology:
    strings = {"key": Str(), "value": Str()}
    built = Topology()
    built.add_source("A", "in", **strings)
    built.add_sink("M", "mid", "A", **strings)
    built.add_source("B", "mid", **strings)
    built.add_processor("C", Counted, "B")
    built.add_store(KeyValue("c", key=Str(), value=L, memory=True), "C")
    built.add_sink("D", "out", "C", **strings)
    built.add_source("E", "other", **strings)
    built.add_sink(
        "F", lambda key, value, context: "out" if value is not None and len(value) > 2 else "side", "E", **strings
    )
    return built


@topology
def pattern_source(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream(re.compile("in-[0-9]"))
        .map_values(lambda key, value: f"{text(key)}:{text(value)}")
        .group_by_key()
        .count(store="counts")
        .to_stream()
        .to("out")
    )
    return b.build()


class Hold(Processor):
    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(ms(60), "stream-time", self.release)

    def release(self, timestamp: int) -> None:
        held = self.context.store("held")
        for key, value in held.all():
            self.context.forward(Record(key, value, timestamp))
            held.delete(key)

    def process(self, record: Record) -> None:
        if record.key is not None:
            held = self.context.store("held")
            held.put(record.key, f"{held.get(record.key) or ''}{text(record.value)},")


class Beat(Processor):
    def __init__(self) -> None:
        self.n = 0

    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(ms(30), "stream-time", self.beat)

    def beat(self, timestamp: int) -> None:
        self.context.forward(Record("beat", str(self.n), timestamp))

    def process(self, record: Record) -> None:
        self.n += 1
        self.context.forward(record)


@topology
def processor_schedule_forward_downstream(case: Case) -> Topology:
    b = new_builder()
    b.add_store(KeyValue("held"))
    (
        b.stream("in")
        .process(Hold, stores=["held"], name="hold")
        .map_values(lambda value: f"<{value}>")
        .process(Beat, name="again")
        .to("out")
    )
    return b.build()


# Errors


class FaultyError(Exception):
    """What the topologies below raise on purpose."""


def fail_if(condition: bool) -> None:
    if condition:
        raise FaultyError


@topology
def deserialization_continue_table(case: Case) -> Topology:
    b = new_builder()
    (
        b.table("in", value=L, store="tab")
        .group_by(lambda key, value: ("all", value), name="grp", key=Str(), value=L)
        .reduce(add, subtract, store="sum")
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def deserialization_fail(case: Case) -> Topology:
    b = new_builder()
    b.stream("in", value=L).map_values(lambda value: None if value is None else value + 1).to("out", value=L)
    return b.build()


def divided(dividend: int, divisor: int) -> int:
    """Divide as Java's long division does, toward zero."""
    quotient = abs(dividend) // abs(divisor)
    return quotient if (dividend < 0) == (divisor < 0) else -quotient


@topology
def continue_map_flat_map(case: Case) -> Topology:
    def mapped(key: str | None, value: int) -> tuple[str, int]:
        return f"{text(key)}{value % 3}", divided(12, value - 3)

    def fanned(key: str, value: int) -> list[tuple[str, int]]:
        fail_if(value == 4)
        return [(f"{key}{i}", value + i) for i in range(value % 4)]

    b = new_builder()
    (
        b.stream("in", value=L)
        .map(mapped)
        .flat_map(fanned)
        .filter(lambda key, value: divided(100, value) > 5)
        .select_key(lambda key, value: key + "!")
        .to("out", value=L)
    )
    return b.build()


@topology
def continue_aggregate(case: Case) -> Topology:
    def fails_at_five(aggregate: int, value: int) -> int:
        fail_if((aggregate + value) % 5 == 0)
        return aggregate + value

    b = new_builder()
    grouped = b.stream("in", value=L).group_by_key()
    (
        grouped.aggregate(zero, lambda key, value, aggregate: aggregate + 60 // value, store="agg", value=L)
        .to_stream()
        .to("out")
    )
    (
        grouped.reduce(fails_at_five, store="red")
        .to_stream()
        .map_values(lambda value: 60 // (value - 7))
        .to("red", value=L)
    )
    return b.build()


@topology
def continue_windowed(case: Case) -> Topology:
    def fails_at_four(key: str, value: int, aggregate: int) -> int:
        fail_if((aggregate + value) % 4 == 0)
        return aggregate + value

    def fails_at_three(key: str, a: int, b: int) -> int:
        fail_if((a + b) % 3 == 0)
        return a + b

    b = new_builder()
    grouped = b.stream("in", value=L).group_by_key()
    hops = grouped.windowed_by(hopping(40, 20, 20)).aggregate(zero, fails_at_four, store="hop", value=L)
    hops.to_stream().to("hop")
    slides = grouped.windowed_by(sliding(10, 20)).aggregate(zero, fails_at_four, store="sli", value=L)
    slides.to_stream().to("sli")
    visits = grouped.windowed_by(sessions(10, 20))
    visits.aggregate(zero, fails_at_four, merge=fails_at_three, store="ses", value=L).to_stream().to("ses")
    return b.build()


@topology
def continue_joiners(case: Case) -> Topology:
    b = new_builder()
    stream = b.stream("stream", value=L)
    table = b.table("table", value=L, store="tab")
    other = b.table("other", value=L, store="oth")
    stream.left_join(table, lambda left, right: 60 // (left - (right or 0))).to("st", value=L)
    table.join(other, lambda left, right: 60 // (left - right)).to_stream().to("tt", value=L)
    (
        stream.left_join(
            stream.filter(lambda key, value: value is not None and value % 2 == 0),
            lambda left, right: 60 // (left - (2 if right is None else right)),
            JoinWindows.of(ms(10), grace=ms(5)),
            value=L,
            other_value=L,
            name="j",
            store="j",
        ).to("ss", value=L)
    )
    return b.build()


class Boom(Processor):
    """Raises at every third punctuation of a kind and for the value boom."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self.fired = {"s": 0, "w": 0}

    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(ms(20), "stream-time", lambda timestamp: self.fire("s", timestamp))
        context.schedule(ms(50), "wall-clock", lambda timestamp: self.fire("w", timestamp))

    def fire(self, name: str, timestamp: int) -> None:
        self.fired[name] += 1
        n = self.fired[name]
        self._case.effect(f"{name}{n} {timestamp}")
        self.context.forward(Record(name, f"a{n}", timestamp))
        fail_if(n % 3 == 0)
        self.context.forward(Record(name, f"b{n}", timestamp))

    def process(self, record: Record) -> None:
        fail_if(record.value == "boom")
        self.context.forward(record)


@topology
def continue_punctuator(case: Case) -> Topology:
    def exclaim(value: str | None) -> str:
        fail_if(value == "b4")
        return f"{text(value)}!"

    b = new_builder()
    b.stream("in").process(lambda: Boom(case)).map_values(exclaim).to("out")
    return b.build()


class Fan(Processor):
    def __init__(self, case: Case) -> None:
        self._case = case

    def process(self, record: Record) -> None:
        for i in range(3):
            self.context.forward(record.replace(value=record.value + i))
        self._case.effect("fan done")


class Deep(Processor):
    def __init__(self, case: Case) -> None:
        self._case = case

    def process(self, record: Record) -> None:
        self.context.forward(record.replace(value=10 // (record.value - 7)))
        self._case.effect("deep done")


@topology
def continue_nested(case: Case) -> Topology:
    b = new_builder()
    fan = b.stream("in", value=L).process(lambda: Fan(case), name="fan")
    (
        fan.peek(lambda key, value: case.effect(f"peek {value}"))
        .map_values(lambda value: 60 // (value - 5), name="div")
        .to("out", value=L)
    )
    fan.process(lambda: Deep(case), name="deep").map_values(lambda value: value * 2).to("deep", value=L)
    return b.build()


@topology
def continue_table(case: Case) -> Topology:
    def adds_no_three(key: str, value: int, aggregate: int) -> int:
        fail_if(value == 3)
        return aggregate + value

    def subtracts_no_two(key: str, value: int, aggregate: int) -> int:
        fail_if(value == 2)
        return aggregate - value

    b = new_builder()
    table = b.table("in", value=L, store="tab")
    (
        table.filter(lambda key, value: 60 // value > 5)
        .map_values(lambda value: 60 // (value - 4), store="map", value=L)
        .to_stream()
        .to("out")
    )
    (
        table.group_by(lambda key, value: (f"g{6 // value}", value), name="grp", key=Str(), value=L)
        .aggregate(zero, adds_no_three, subtracts_no_two, store="agg", value=L)
        .to_stream()
        .to("agg")
    )
    return b.build()


@topology
def continue_branch_merge_foreach(case: Case) -> Topology:
    def each(key: str | None, value: int) -> None:
        # In Java the comparison with a null value raises.
        fail_if(value is None or value == 4)
        case.effect(f"each {value}")

    b = new_builder()
    stream = b.stream("in", value=L)
    branches = (
        stream.split(name="b-")
        .branch(lambda key, value: 6 // value > 2, name="x")
        .branch(even, name="y")
        .default(name="z")
    )
    (
        branches["b-x"]
        .merge(branches["b-y"])
        .merge(branches["b-z"])
        .peek(lambda key, value: fail_if(value == 5))
        .to("out", value=L)
    )
    stream.foreach(each)
    return b.build()


@topology
def processing_fail_aggregate(case: Case) -> Topology:
    def unlucky(key: str, value: int, aggregate: int) -> int:
        fail_if(value == 13)
        return aggregate + value

    b = new_builder()
    b.stream("in", value=L).group_by_key().aggregate(zero, unlucky, store="agg", value=L).to_stream().to("out")
    return b.build()


@topology
def processing_fail_second_child(case: Case) -> Topology:
    b = new_builder()
    stream = b.stream("in", value=L)
    stream.peek(lambda key, value: case.effect(f"first {text(value)}")).to("first")
    stream.map_values(lambda value: None if value is None else 60 // value).to("second", value=L)
    return b.build()


@topology
def processing_fail_punctuator(case: Case) -> Topology:
    b = new_builder()
    b.stream("in").process(lambda: Boom(case)).to("out")
    return b.build()


# Timestamps


@topology
def extractor_table(case: Case) -> Topology:
    def tenfold(record: SourceRecord, partition_time: int) -> int:
        if record.value is None:
            return record.timestamp
        return -1 if record.value == 7 else 10 * record.value

    b = new_builder()
    (
        b.table("in", value=L, store="tab", timestamp=tenfold)
        .group_by(lambda key, value: (f"g{value % 2}", value), name="grp", key=Str(), value=L)
        .aggregate(zero, adder, subtractor, store="sum", value=L)
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def extractor_repartition(case: Case) -> Topology:
    def fivefold(record: SourceRecord, partition_time: int) -> int:
        return partition_time if record.value is None else 5 * record.value

    b = new_builder()
    (
        b.stream("in", value=L, timestamp=fivefold)
        .select_key(lambda key, value: "none" if value is None else f"k{value % 2}")
        .group_by_key(name="grp", key=Str(), value=L)
        .windowed_by(tumbling(30, 10))
        .count(store="counts")
        .to_stream()
        .to("out")
    )
    return b.build()


def time_in_value(record: SourceRecord, partition_time: int) -> int:
    number = re.search(":([0-9]+)$", record.value or "")
    return int(number[1]) if number else -1


class Stamp(Processor):
    def process(self, record: Record) -> None:
        times = f"{record.timestamp}/{self.context.stream_time}"
        self.context.forward(record.replace(value=f"{text(record.value)}@{times}"))


@topology
def extractor_two_topics(case: Case) -> Topology:
    b = new_builder()
    b.stream(["in1", "in2"], timestamp=OnInvalid.partition_time(time_in_value)).process(Stamp).to("out")
    return b.build()


TOPOLOGIES["extractor-partition-time-fail"] = extractor_two_topics


class StampOnly(Processor):
    def process(self, record: Record) -> None:
        self.context.forward(record.replace(value=f"{record.timestamp}/{self.context.stream_time}"))


@topology
def extractor_sees_partition_time(case: Case) -> Topology:
    def a_little_later(record: SourceRecord, partition_time: int) -> int:
        return record.timestamp if partition_time < 0 else partition_time + (record.value or 0) % 5

    b = new_builder()
    b.stream("in", value=L, timestamp=a_little_later).merge(b.stream("other", value=L)).process(StampOnly).to("out")
    return b.build()


class Ticks(Processor):
    def __init__(self, case: Case) -> None:
        self._case = case

    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(ms(50), "stream-time", lambda timestamp: self._case.effect(f"p {timestamp}"))

    def process(self, record: Record) -> None:
        self.context.forward(record.replace(value=str(self.context.stream_time)))


@topology
def extractor_punctuate(case: Case) -> Topology:
    def tenfold(record: SourceRecord, partition_time: int) -> int:
        return -1 if record.value is None else 10 * record.value

    b = new_builder()
    b.stream("in", value=L, timestamp=tenfold).process(lambda: Ticks(case)).to("out")
    return b.build()


class Backwards(Processor):
    def process(self, record: Record) -> None:
        self.context.forward(record.replace(timestamp=max(0, 1000 - record.timestamp)))


@topology
def forwarded_timestamps(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in", value=L)
        .process(Backwards)
        .group_by_key(name="grp", key=Str(), value=L)
        .windowed_by(tumbling(100, 100))
        .count(store="counts")
        .to_stream()
        .to("out")
    )
    return b.build()


# Stateless


@topology
def flat_map_many(case: Case) -> Topology:
    def downward(key: str | None, value: int | None) -> list[tuple[str, int]]:
        return [(f"{text(key)}{i}", i) for i in reversed(range(value or 0))]

    def doubled(key: str, value: int) -> list[int]:
        if value % 2:
            return [value, value + 100]
        return [value] if value else []

    b = new_builder()
    stream = b.stream("in", value=L)
    (
        stream.flat_map(downward)
        .flat_map_values(doubled)
        .merge(stream.filter(lambda key, value: value is not None and value > 15))
        .to("out", value=L)
    )
    return b.build()


@topology
def branch_in_branch(case: Case) -> Topology:
    def low(stream: KStream) -> None:
        inner = (
            stream.split(name="in-")
            .branch(even, name="even")
            .default(name="odd", to=lambda odd: odd.map_values(times(1000)))
        )
        inner["in-even"].to("even")
        inner["in-odd"].to("odd", value=L)

    def big(stream: KStream) -> None:
        stream.to("big")

    b = new_builder()
    outer = (
        b.stream("in", value=L)
        .split()
        .branch(lambda key, value: value is None)
        .branch(lambda key, value: value < 10, to=low)
        .default()
    )
    rest, nulls = (outer[name] for name in sorted(outer))
    rest.split().branch(lambda key, value: value > 15, to=big).no_default()
    nulls.to("nulls")
    return b.build()


@topology
def merge_three(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in1")
        .filter(lambda key, value: value is not None)
        .merge(b.stream("in2").map_values(lambda value: f"2{text(value)}"))
        .merge(b.stream("in3").select_key(lambda key, value: value), name="all")
        .group_by_key()
        .count(store="counts")
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def peek_order_many_children(case: Case) -> Topology:
    def log(mark: str) -> Any:
        return lambda key, value: case.effect(f"{mark} {text(key)}={text(value)}")

    b = new_builder()
    stream = b.stream("in", value=L)
    stream.peek(log("1")).filter(lambda key, value: value is not None and value % 2 == 0).peek(log("1e")).to("first")
    two = stream.peek(log("2"))
    two.foreach(log("2a"))
    two.map_values(lambda value: None if value is None else value + 1).peek(log("2b")).to("second", value=L)
    stream.foreach(log("3"))
    stream.print(file="/dev/null", label="seen")
    stream.select_key(lambda key, value: "k").repartition(name="rep", key=Str(), value=L).peek(log("4")).to("third")
    return b.build()


@topology
def repartition_chain(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in")
        .select_key(lambda key, value: value)
        .repartition(name="one", partitions=4)
        .map_values(lambda key, value: text(key) + text(value))
        .map(lambda key, value: (value, text(key)))
        .repartition()
        .flat_map_values(lambda value: [value, value + value])
        .group_by_key()
        .reduce(lambda aggregate, value: f"{aggregate}|{value}", store="red")
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def dynamic_topic_read_again(case: Case) -> Topology:
    def middle(value: int | None) -> str:
        if value is None:
            return "out"
        return "mid" if value % 2 else "side"

    b = new_builder()
    b.stream("in", value=L).to(lambda key, value, context: middle(value))
    (
        b.stream("mid", value=L)
        .map_values(lambda value: None if value is None else value * 3 + 1)
        .to(lambda key, value, context: "side" if value is not None and value > 30 else "out", value=L)
    )
    return b.build()


@topology
def feedback_topic(case: Case) -> Topology:
    b = new_builder()
    b.stream("in", value=L).filter(lambda key, value: value is not None).to("loop")
    branches = (
        b.stream("loop", value=L)
        .split(name="l-")
        .branch(lambda key, value: value is not None and value > 1, name="again")
        .default(name="done")
    )
    branches["l-again"].map_values(lambda value: value // 2).to("loop", value=L)
    branches["l-done"].to("out")
    return b.build()


@topology
def same_topic_two_streams(case: Case) -> Topology:
    b = new_builder()
    b.stream("in").map_values(lambda value: f"{text(value)}1").to("one")
    b.stream("in").group_by_key().count(store="counts").to_stream().to("two")
    b.stream(["in"]).foreach(lambda key, value: case.effect(f"third {text(key)}={text(value)}"))
    return b.build()


@topology
def select_key_to_table_join(case: Case) -> Topology:
    b = new_builder()
    table = b.stream("in").select_key(first_letter).to_table(name="tab", store="tabs")
    counts = b.stream("other").group_by_key().count(store="counts")
    (
        table.left_join(counts, lambda value, n: f"{value}/{text(n)}")
        .to_stream(lambda key, value: key + key)
        .to("out", value=Str())
    )
    return b.build()


# Mixed


@topology
def orders_enriched(case: Case) -> Topology:
    b = new_builder()
    customers = b.table("customers", store="cust")
    products = b.global_table("products", store="prod")
    (
        b.stream("orders")
        .filter(lambda key, order: order is not None)
        .select_key(lambda key, order: order.split(":")[0])
        .join(customers, lambda order, country: f"{order}:{country}")
        .left_join(
            products,
            lambda order, product: f"{order}:{text(product)}",
            select=lambda key, order: order.split(":")[1],
        )
        .peek(lambda key, order: case.effect(order))
        .group_by(lambda key, order: order.split(":")[3], name="by-country")
        .windowed_by(tumbling(50, 30))
        .aggregate(zero, lambda key, order, total: total + int(order.split(":")[2]), store="revenue", value=L)
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def word_count_windows_and_total(case: Case) -> Topology:
    b = new_builder()
    grouped = b.stream("in").flat_map_values(parts).group_by(lambda key, word: word, name="words")
    total = grouped.count(store="total")
    (
        grouped.windowed_by(tumbling(40, 20))
        .count(store="windowed")
        .to_stream()
        .map(lambda window, n: (window.key, f"{n}@{window.start}"))
        .join(total, lambda value, n: f"{value}/{n}", key=Str(), value=Str(), other_value=L)
        .to("out")
    )
    return b.build()


@topology
def four_subtopologies(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in")
        .group_by(lambda key, value: value, name="one")
        .count(store="c1")
        .to_stream()
        .map(lambda key, n: (f"n{n}", key))
        .group_by_key(name="two", key=Str(), value=Str())
        .aggregate(empty, lambda key, value, aggregate: aggregate + value, store="c2")
        .group_by(lambda key, value: (str(len(value)), key), name="three", key=Str(), value=Str())
        .count(store="c3")
        .to_stream()
        .to("mid")
    )
    (
        b.stream("mid", value=L)
        .group_by_key()
        .reduce(max, store="c4")
        .to_stream()
        .filter(lambda key, value: value > 1)
        .to("out")
    )
    return b.build()


@topology
def left_join_then_window(case: Case) -> Topology:
    b = new_builder()
    joined = b.stream("left").left_join(
        b.stream("right"), plus, JoinWindows.of(ms(10), grace=ms(10)), name="j", store="j"
    )
    joined.to("joined")
    (
        joined.select_key(lambda key, value: "lone" if value.endswith("+null") else "matched")
        .group_by_key(name="grp", key=Str(), value=Str())
        .windowed_by(tumbling(50, 100))
        .count(store="counts")
        .suppress(CLOSE)
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def left_join_big_times(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("left")
        .left_join(b.stream("right"), plus, JoinWindows.of(ms(60_000), grace=ms(30_000)), name="j", store="j")
        .to("out")
    )
    return b.build()


@topology
def sessions_and_page_views(case: Case) -> Topology:
    b = new_builder()
    clicks = b.stream("clicks")
    last = (
        clicks.group_by_key()
        .windowed_by(sessions(30, 30))
        .aggregate(
            empty,
            lambda key, value, aggregate: aggregate + text(value),
            merge=lambda key, first, second: first + second,
            store="sessions",
        )
        .to_stream()
        .filter(lambda window, value: value is not None)
        .map(lambda window, value: (window.key, f"{value}[{window.start},{window.end}]"))
        .to_table(store="last")
    )
    clicks.left_join(last, lambda click, session: f"{text(click)}<{text(session)}").to("views")
    b.stream("logins").left_join(last, lambda login, session: f"{text(login)}~{text(session)}").to("out")
    return b.build()


@topology
def top_of_groups(case: Case) -> Topology:
    def by_team(key: str, score: str) -> tuple[str, str]:
        team, points = score.split(":")
        return team, f"{key}={points}"

    b = new_builder()
    (
        b.table("scores", store="scores")
        .filter(lambda key, score: ":" in score)
        .group_by(by_team, name="teams", key=Str(), value=Str())
        .aggregate(
            empty,
            lambda team, score, scores: f"{scores}{score};",
            lambda team, score, scores: scores.replace(f"{score};", "", 1),
            store="teams",
        )
        .map_values(lambda scores: ",".join(sorted(scores.rstrip(";").split(";"))))
        .join(b.table("names", store="names"), lambda scores, name: f"{scores}@{name}")
        .to_stream()
        .to("out")
    )
    return b.build()


class Dedup(Processor):
    """Forward a record unless the same key and value came within 30 ms of it."""

    def process(self, record: Record) -> None:
        if record.key is None or record.value is None:
            return
        seen = self.context.store("seen")
        same = record.key + record.value
        if not list(seen.fetch(same, record.timestamp - 30, record.timestamp + 30)):
            self.context.forward(record)
        seen.put(same, "1", record.timestamp)


@topology
def deduplicate_then_reduce(case: Case) -> Topology:
    b = new_builder()
    b.add_store(Window("seen", size=ms(60), retention=ms(60)))
    (
        b.stream("in")
        .process(Dedup, stores=["seen"], name="dedup")
        .repartition(name="clean")
        .group_by_key()
        .windowed_by(hopping(60, 30, 20))
        .reduce(concatenate, store="red")
        .to_stream()
        .select_key(lambda window, value: window.key)
        .to_table(store="latest")
        .map_values(len)
        .to_stream()
        .to("out", value=L)
    )
    return b.build()


@topology
def headers_through_windows(case: Case) -> Topology:
    b = new_builder()
    stream = b.stream("in")
    grouped = stream.group_by_key()
    grouped.windowed_by(tumbling(40, 10)).count(store="t").suppress(CLOSE).to_stream().to("closed")
    grouped.windowed_by(sessions(20, 10)).count(store="s").to_stream().to("sessions")
    (
        grouped.windowed_by(tumbling(40, 10))
        .emit_strategy("on-close")
        .count(store=Window("e", retention=ms(1000)))
        .to_stream()
        .to("emitted")
    )
    stream.to_table(store="tab").suppress(Suppress.until_time_limit(ms(20))).to_stream().to("limited")
    return b.build()


# Windowed tables joined, optimized topologies, names and edges


@topology
def windowed_table_left_join(case: Case) -> Topology:
    b = new_builder()
    counts = b.stream("left").group_by_key().windowed_by(tumbling(50, 20)).count(store="counts")
    reduced = b.stream("right").group_by_key().windowed_by(tumbling(50, 40)).reduce(comma, store="red")
    (
        counts.left_join(reduced, lambda n, value: f"{text(n)}/{text(value)}", store="joined", value=Str())
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def session_table_outer_join(case: Case) -> Topology:
    b = new_builder()
    left = b.stream("left").group_by_key().windowed_by(sessions(20, 30)).count(store="lc")
    right = b.stream("right").group_by_key().windowed_by(sessions(20, 30)).count(store="rc")
    joined = left.outer_join(right, lambda left, right: f"{text(left)}/{text(right)}")
    joined.to_stream().to("out", key=SessionWindowed(Str()), value=Str())
    return b.build()


@topology
def cached_windowed_table_join(case: Case) -> Topology:
    b = new_builder()
    grouped = spread(b).group_by_key()
    counts = grouped.windowed_by(tumbling(50, 30)).count(store="counts")
    texts = grouped.windowed_by(tumbling(50, 30)).aggregate(
        empty, lambda key, value, aggregate: aggregate + value, store=Window("agg", cached=False)
    )
    joined = counts.join(texts, lambda n, value: f"{n}/{value}")
    joined.to_stream().to("out", key=TimeWindowed(Str(), size=ms(50)), value=Str())
    return b.build()


@topology
def windowed_filter_join(case: Case) -> Topology:
    b = new_builder()
    sums = (
        b.stream("in", value=L)
        .group_by_key()
        .windowed_by(tumbling(40, 40))
        .reduce(lambda aggregate, value: (aggregate or 0) + (value or 0), store="sums")
    )
    evens = sums.filter(even)
    big = sums.filter(lambda window, value: value > 5).map_values(lambda value: value * 10)
    joined = evens.outer_join(big, lambda left, right: f"{text(left)}|{text(right)}")
    joined.to_stream().to("out", key=TimeWindowed(Str(), size=ms(40)), value=Str())
    return b.build()


@topology
def optimized_merged_repartitions(case: Case) -> Topology:
    b = new_builder()
    stream = b.stream("in").map(lambda key, value: (value, text(key)))
    stream.group_by_key(key=Str(), value=Str()).count(store="c").to_stream().to("counts")
    (
        stream.group_by_key(key=Str(), value=Str())
        .windowed_by(tumbling(40, 10))
        .reduce(concatenate, store="r")
        .to_stream()
        .to("windows")
    )
    (
        stream.map_values(lambda value: value + "!")
        .group_by_key(key=Str(), value=Str())
        .aggregate(empty, lambda key, value, aggregate: aggregate + value, store="a")
        .to_stream()
        .to("agg")
    )
    return b.build(optimize=True)


@topology
def optimized_source_tables(case: Case) -> Topology:
    b = new_builder()
    left = b.table("left")
    left.left_join(b.table("right", store="rtab"), plus, store="joined").to_stream().to("out")
    left.filter(lambda key, value: not value.startswith("x")).to_stream().to("some")
    return b.build(optimize=True)


@topology
def optimized_cascade(case: Case) -> Topology:
    b = new_builder()
    stream = (
        b.stream("in")
        .select_key(lambda key, value: value)
        .group_by_key(key=Str(), value=Str())
        .count(store="one")
        .to_stream()
        .select_key(lambda key, n: f"n{n}")
        .map_values(lambda n: str(n))
    )
    stream.group_by_key(key=Str(), value=Str()).count(store="two").to_stream().to("two")
    names = b.table("names", store="names")
    stream.left_join(names, lambda n, name: f"{n}={text(name)}", key=Str(), value=Str(), other_value=Str()).to("named")
    return b.build(optimize=True)


@topology
def emit_close_session_big_times(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(sessions(60_000, 30_000))
        .emit_strategy("on-close")
        .count(store="counts")
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def emit_close_hopping_big_times(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(hopping(120_000, 60_000, 30_000))
        .emit_strategy("on-close")
        .count(store="counts")
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def suppress_big_times(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(sliding(40_000, 60_000))
        .count(store="counts")
        .suppress(CLOSE)
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def sliding_difference_one(case: Case) -> Topology:
    b = new_builder()
    b.stream("in").group_by_key().windowed_by(sliding(1, 5)).count(store="counts").to_stream().to("out")
    return b.build()


@topology
def hopping_advance_one(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(hopping(4, 1, 3))
        .aggregate(empty, lambda key, value, aggregate: aggregate + text(value), store="agg")
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def hopping_uneven(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(hopping(50, 35))
        .count(store=Window("counts", retention=ms(50)))
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def everything_named(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in", name="source")
        .filter(lambda key, value: value is not None, name="present")
        .flat_map_values(parts, name="words")
        .map(lambda key, word: (word, text(key)), name="swap")
        .group_by_key(name="by-word", key=Str(), value=Str())
        .windowed_by(tumbling(50, 20))
        .count(name="tally", store="tally-store")
        .filter(lambda window, n: n > 1, name="often")
        .map_values(lambda n: n * 2, value=L, name="twice")
        .suppress(Suppress.until_time_limit(ms(30)), name="later")
        .to_stream(lambda window, n: window.key, name="flat")
        .peek(lambda key, n: case.effect(f"{text(key)}={text(n)}"), name="look")
        .to("out", key=Str(), value=L, name="sink")
    )
    return b.build()


@topology
def table_aggregate_null(case: Case) -> Topology:
    b = new_builder()
    grouped = b.table("in", value=L, store="tab").group_by(
        lambda key, value: (f"g{value % 2}", value), name="grp", key=Str(), value=L
    )
    (
        grouped.aggregate(
            zero,
            lambda key, value, aggregate: None if value == 5 else aggregate + value,
            lambda key, value, aggregate: None if aggregate == value else aggregate - value,
            store="agg",
            value=L,
        )
        .to_stream()
        .to("agg")
    )
    (
        grouped.reduce(lambda aggregate, value: None if value == 3 else aggregate + value, subtract, store="red")
        .to_stream()
        .to("red")
    )
    return b.build()


@topology
def tombstones_into_windows(case: Case) -> Topology:
    b = new_builder()
    stream = b.table("in", store="tab").to_stream()
    stream.group_by_key().windowed_by(tumbling(50, 20)).aggregate(empty, dotted, store="agg").to_stream().to("windows")
    stream.group_by_key().windowed_by(sessions(15, 20)).count(store="ses").to_stream().to("sessions")
    stream.to_table(store="again").to_stream().to("again")
    return b.build()


@topology
def stream_join_into_session(case: Case) -> Topology:
    b = new_builder()
    windows = JoinWindows.of(before=ms(5), after=ms(15), grace=ms(10))
    joined = b.stream("left").outer_join(
        b.stream("right"), lambda left, right: text(left) + text(right), windows, name="j", store="j"
    )
    (
        joined.group_by_key(key=Str(), value=Str())
        .windowed_by(sessions(10, 60))
        .aggregate(empty, dotted, merge=ampersand, store="agg")
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def cached_suppress_table(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in")
        .flat_map_values(parts)
        .group_by_key()
        .aggregate(empty, lambda key, value, aggregate: value if len(aggregate) > 5 else aggregate + value, store="agg")
        .filter(lambda key, value: len(value) > 2, store="long")
        .suppress(Suppress.until_time_limit(ms(30), max_records=2))
        .to_stream()
        .to("out")
    )
    return b.build()


@topology
def cached_to_table_group_by(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in", value=L)
        .to_table(store="tab")
        .filter(lambda key, value: value > 2)
        .group_by(lambda key, value: (f"g{value % 2}", value), name="grp", key=Str(), value=L)
        .count(store="counts")
        .to_stream()
        .to("out")
    )
    return b.build()
