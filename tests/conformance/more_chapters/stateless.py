"""Stateless steps, and topics that are read again."""

from typing import Any

from headwater import (
    KStream,
    Str,
    StreamsBuilder,
)
from tests.conformance.case import Case
from tests.conformance.chapters.registry import text
from tests.conformance.more_chapters.registry import (
    L,
    even,
    first_letter,
    times,
    topology,
)


@topology
def flat_map_many(b: StreamsBuilder, case: Case) -> None:
    def downward(key: str | None, value: int | None) -> list[tuple[str, int]]:
        return [(f"{text(key)}{i}", i) for i in reversed(range(value or 0))]

    def doubled(key: str, value: int) -> list[int]:
        if value % 2:
            return [value, value + 100]
        return [value] if value else []

    stream = b.stream("in", value=L)
    (
        stream.flat_map(downward)
        .flat_map_values(doubled)
        .merge(stream.filter(lambda key, value: value is not None and value > 15))
        .to("out", value=L)
    )


@topology
def branch_in_branch(b: StreamsBuilder, case: Case) -> None:
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


@topology
def merge_three(b: StreamsBuilder, case: Case) -> None:
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


@topology
def peek_order_many_children(b: StreamsBuilder, case: Case) -> None:
    def log(mark: str) -> Any:
        return lambda key, value: case.effect(f"{mark} {text(key)}={text(value)}")

    stream = b.stream("in", value=L)
    stream.peek(log("1")).filter(lambda key, value: value is not None and value % 2 == 0).peek(log("1e")).to("first")
    two = stream.peek(log("2"))
    two.foreach(log("2a"))
    two.map_values(lambda value: None if value is None else value + 1).peek(log("2b")).to("second", value=L)
    stream.foreach(log("3"))
    stream.print(file="/dev/null", label="seen")
    stream.select_key(lambda key, value: "k").repartition(name="rep", key=Str(), value=L).peek(log("4")).to("third")


@topology
def repartition_chain(b: StreamsBuilder, case: Case) -> None:
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


@topology
def dynamic_topic_read_again(b: StreamsBuilder, case: Case) -> None:
    def middle(value: int | None) -> str:
        if value is None:
            return "out"
        return "mid" if value % 2 else "side"

    b.stream("in", value=L).to(lambda key, value, context: middle(value))
    (
        b.stream("mid", value=L)
        .map_values(lambda value: None if value is None else value * 3 + 1)
        .to(lambda key, value, context: "side" if value is not None and value > 30 else "out", value=L)
    )


@topology
def feedback_topic(b: StreamsBuilder, case: Case) -> None:
    b.stream("in", value=L).filter(lambda key, value: value is not None).to("loop")
    branches = (
        b.stream("loop", value=L)
        .split(name="l-")
        .branch(lambda key, value: value is not None and value > 1, name="again")
        .default(name="done")
    )
    branches["l-again"].map_values(lambda value: value // 2).to("loop", value=L)
    branches["l-done"].to("out")


@topology
def same_topic_two_streams(b: StreamsBuilder, case: Case) -> None:
    b.stream("in").map_values(lambda value: f"{text(value)}1").to("one")
    b.stream("in").group_by_key().count(store="counts").to_stream().to("two")
    b.stream(["in"]).foreach(lambda key, value: case.effect(f"third {text(key)}={text(value)}"))


@topology
def select_key_to_table_join(b: StreamsBuilder, case: Case) -> None:
    table = b.stream("in").select_key(first_letter).to_table(name="tab", store="tabs")
    counts = b.stream("other").group_by_key().count(store="counts")
    (
        table.left_join(counts, lambda value, n: f"{value}/{text(n)}")
        .to_stream(lambda key, value: key + key)
        .to("out", value=Str())
    )
