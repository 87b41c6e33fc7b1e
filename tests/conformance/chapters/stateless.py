"""Chapters: stateless stream operators, headers, timestamps and bad records."""

import re

from headwater import Int64, KStream, OnInvalid, SourceRecord, TimeWindows, Topology
from tests.conformance.case import Case
from tests.conformance.chapters.registry import empty, first_character, ms, new_builder, text, topology, words, zero


def is_even(key: str | None, value: int | None) -> bool:
    return value is not None and value % 2 == 0


def is_low(key: str | None, value: int | None) -> bool:
    return value is not None and value < 5


def unless_null(value: str | None, suffix: str) -> str | None:
    return None if value is None else value + suffix


@topology("stream-filter")
def stream_filter(case: Case) -> Topology:
    builder = new_builder()
    builder.stream("in", value=Int64()).filter(is_even).to("out")
    return builder.build()


@topology("stream-filter-not")
def stream_filter_not(case: Case) -> Topology:
    builder = new_builder()
    builder.stream("in", value=Int64()).filter_not(is_even).to("out")
    return builder.build()


@topology("stream-map")
def stream_map(case: Case) -> Topology:
    def remainder_and_tenfold(key: str | None, value: int | None) -> tuple[str | None, int | None]:
        return (None, None) if value is None else (f"{text(key)}-{value % 3}", value * 10)

    builder = new_builder()
    builder.stream("in", value=Int64()).map(remainder_and_tenfold).to("out", value=Int64())
    return builder.build()


@topology("stream-map-values")
def stream_map_values(case: Case) -> Topology:
    builder = new_builder()
    builder.stream("in", value=Int64()).map_values(lambda key, value: f"{text(key)}={text(value)}").to("out")
    return builder.build()


@topology("stream-flat-map")
def stream_flat_map(case: Case) -> Topology:
    def fan_out(key: str | None, value: int | None) -> list[tuple[str, int]]:
        return [] if value is None else [(f"{text(key)}{i}", value + i) for i in range(value % 4)]

    builder = new_builder()
    builder.stream("in", value=Int64()).flat_map(fan_out).to("out", value=Int64())
    return builder.build()


@topology("stream-flat-map-values")
def stream_flat_map_values(case: Case) -> Topology:
    builder = new_builder()
    builder.stream("in").flat_map_values(words).to("out")
    return builder.build()


@topology("stream-select-key")
def stream_select_key(case: Case) -> Topology:
    builder = new_builder()
    builder.stream("in").select_key(lambda key, value: first_character(value)).to("out")
    return builder.build()


@topology("stream-values")
def stream_values(case: Case) -> Topology:
    builder = new_builder()
    stream = builder.stream("in")
    stream.map_values(lambda value: None if value is None else value.upper()).to("out")
    stream.map_values(lambda value: 0 if value is None else len(value)).to("len", value=Int64())
    return builder.build()


@topology("stream-peek-foreach")
def stream_peek_foreach(case: Case) -> Topology:
    builder = new_builder()
    stream = builder.stream("in", value=Int64())
    (
        stream.peek(lambda key, value: case.effect(f"peek1 {text(key)}={text(value)}"))
        .filter(lambda key, value: value is not None)
        .peek(lambda key, value: case.effect(f"peek2 {text(key)}={text(value)}"))
        .to("out")
    )
    stream.foreach(lambda key, value: case.effect(f"each {text(key)}={text(value)}"))
    return builder.build()


@topology("stream-merge")
def stream_merge(case: Case) -> Topology:
    builder = new_builder()
    left = builder.stream("left").map_values(lambda value: f"L:{text(value)}")
    right = builder.stream("right").map_values(lambda value: f"R:{text(value)}")
    left.merge(right).to("out")
    return builder.build()


@topology("stream-split-branch")
def stream_split_branch(case: Case) -> Topology:
    builder = new_builder()
    branches = (
        builder.stream("in", value=Int64())
        .split(name="br-")
        .branch(is_low, name="low")
        .branch(is_even, name="even")
        .default(name="rest")
    )
    for name in ("low", "even", "rest"):
        branches[f"br-{name}"].to(name)
    return builder.build()


@topology("stream-split-no-default")
def stream_split_no_default(case: Case) -> Topology:
    def to_low(stream: KStream) -> None:
        stream.to("low")

    def to_high(stream: KStream) -> None:
        stream.map_values(lambda value: value * 100).to("high", value=Int64())

    builder = new_builder()
    (
        builder.stream("in", value=Int64())
        .split()
        .branch(is_low, to=to_low)
        .branch(lambda key, value: value is not None and value > 15, to=to_high)
        .no_default()
    )
    return builder.build()


@topology("stream-repartition")
def stream_repartition(case: Case) -> Topology:
    builder = new_builder()
    (
        builder.stream("in")
        .select_key(lambda key, value: first_character(value))
        .repartition(name="by-letter", partitions=3)
        .map_values(lambda value: unless_null(value, "!"))
        .to("out")
    )
    return builder.build()


@topology("stream-through-topic")
def stream_through_topic(case: Case) -> Topology:
    builder = new_builder()
    builder.stream("in").map_values(lambda value: unless_null(value, "1")).to("mid")
    builder.stream("mid").map_values(lambda value: unless_null(value, "2")).to("out")
    return builder.build()


@topology("stream-to-dynamic-topic")
def stream_to_dynamic_topic(case: Case) -> Topology:
    def route(value: int | None, headers: dict[str, bytes]) -> str:
        if "route" in headers:
            return headers["route"].decode()
        if value is None:
            return "sink-null"
        return "sink-odd" if value % 2 else "sink-even"

    builder = new_builder()
    # A lambda, as in the trace: describe() shows its name.
    builder.stream("in", value=Int64()).to(lambda key, value, context: route(value, dict(context.headers)))
    return builder.build()


@topology("stream-multiple-topics")
def stream_multiple_topics(case: Case) -> Topology:
    builder = new_builder()
    builder.stream(["in1", "in2"]).map_values(lambda key, value: f"{text(key)}:{text(value)}").to("out")
    return builder.build()


# Headers


@topology("headers-stateless")
def headers_stateless(case: Case) -> Topology:
    builder = new_builder()
    stream = builder.stream("in")
    (
        stream.filter(lambda key, value: value is not None)
        .map_values(lambda value: value + "!")
        .select_key(lambda key, value: first_character(value))
        .repartition(name="hdr")
        .to("out")
    )
    stream.flat_map_values(words).to("flat")
    return builder.build()


@topology("headers-aggregate")
def headers_aggregate(case: Case) -> Topology:
    builder = new_builder()
    stream = builder.stream("in")
    stream.group_by_key().count(store="counts").to_stream().to("counts-out")
    (
        stream.group_by(lambda key, value: value, name="by-value")
        .aggregate(empty, lambda key, value, aggregate: aggregate + "x", store="agg")
        .to_stream()
        .to("agg-out")
    )
    return builder.build()


# Timestamps and bad records


def time_in_value(record: SourceRecord, partition_time: int) -> int:
    """Return the number after the last colon of the value, -1 without one."""
    number = re.search(r":([+-]?[0-9]+)$", record.value or "")
    return int(number[1]) if number else -1


@topology("timestamp-extractor-custom")
def timestamp_extractor_custom(case: Case) -> Topology:
    builder = new_builder()
    builder.stream("in", timestamp=time_in_value).to("out")
    return builder.build()


@topology("timestamp-extractor-tumbling")
def timestamp_extractor_tumbling(case: Case) -> Topology:
    builder = new_builder()
    (
        builder.stream("in", timestamp=time_in_value)
        .group_by_key()
        .windowed_by(TimeWindows.of(ms(50), grace=ms(20)))
        .count(store="counts")
        .to_stream()
        .to("out")
    )
    return builder.build()


@topology("timestamp-log-and-skip")
def timestamp_log_and_skip(case: Case) -> Topology:
    builder = new_builder()
    (
        builder.stream("in", timestamp=OnInvalid.skip(time_in_value))
        .group_by_key()
        .aggregate(empty, lambda key, value, aggregate: f"{aggregate}|{value}", store="agg")
        .to_stream()
        .to("out")
    )
    return builder.build()


@topology("timestamp-use-partition-time")
def timestamp_use_partition_time(case: Case) -> Topology:
    builder = new_builder()
    builder.stream("in", timestamp=OnInvalid.partition_time(time_in_value)).to("out")
    return builder.build()


@topology("timestamp-fail-on-invalid")
def timestamp_fail_on_invalid(case: Case) -> Topology:
    builder = new_builder()
    builder.stream("in", timestamp=OnInvalid.fail(time_in_value)).to("out")
    return builder.build()


@topology("deserialization-log-and-continue")
def deserialization_log_and_continue(case: Case) -> Topology:
    builder = new_builder()
    (
        builder.stream("in", value=Int64())
        .group_by_key()
        .aggregate(zero, lambda key, value, aggregate: aggregate + value, store="sum", value=Int64())
        .to_stream()
        .to("out")
    )
    return builder.build()


@topology("processing-exception-continue")
def processing_exception_continue(case: Case) -> Topology:
    builder = new_builder()
    stream = builder.stream("in", value=Int64())
    stream.map_values(lambda value: 100 // value).to("out", value=Int64())
    stream.map_values(lambda value: None if value is None else value + 1).to("second", value=Int64())
    return builder.build()
