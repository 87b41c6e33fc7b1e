"""Errors: handlers that continue and handlers that fail, in every kind of step."""

from typing import Any

from headwater import (
    JoinWindows,
    Processor,
    Record,
    Str,
    StreamsBuilder,
)
from tests.conformance.case import Case
from tests.conformance.chapters.registry import ms, text, zero
from tests.conformance.more_chapters.registry import (
    L,
    add,
    even,
    hopping,
    sessions,
    sliding,
    subtract,
    topology,
)


class FaultyError(Exception):
    """What the topologies below raise on purpose."""


def fail_if(condition: bool) -> None:
    if condition:
        raise FaultyError


@topology
def deserialization_continue_table(b: StreamsBuilder, case: Case) -> None:
    (
        b.table("in", value=L, store="tab")
        .group_by(lambda key, value: ("all", value), name="grp", key=Str(), value=L)
        .reduce(add, subtract, store="sum")
        .to_stream()
        .to("out")
    )


@topology
def deserialization_fail(b: StreamsBuilder, case: Case) -> None:
    b.stream("in", value=L).map_values(lambda value: None if value is None else value + 1).to("out", value=L)


def divided(dividend: int, divisor: int) -> int:
    """Divide as Java's long division does, toward zero."""
    quotient = abs(dividend) // abs(divisor)
    return quotient if (dividend < 0) == (divisor < 0) else -quotient


@topology
def continue_map_flat_map(b: StreamsBuilder, case: Case) -> None:
    def mapped(key: str | None, value: int) -> tuple[str, int]:
        return f"{text(key)}{value % 3}", divided(12, value - 3)

    def fanned(key: str, value: int) -> list[tuple[str, int]]:
        fail_if(value == 4)
        return [(f"{key}{i}", value + i) for i in range(value % 4)]

    (
        b.stream("in", value=L)
        .map(mapped)
        .flat_map(fanned)
        .filter(lambda key, value: divided(100, value) > 5)
        .select_key(lambda key, value: key + "!")
        .to("out", value=L)
    )


@topology
def continue_aggregate(b: StreamsBuilder, case: Case) -> None:
    def fails_at_five(aggregate: int, value: int) -> int:
        fail_if((aggregate + value) % 5 == 0)
        return aggregate + value

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


@topology
def continue_windowed(b: StreamsBuilder, case: Case) -> None:
    def fails_at_four(key: str, value: int, aggregate: int) -> int:
        fail_if((aggregate + value) % 4 == 0)
        return aggregate + value

    def fails_at_three(key: str, a: int, b: int) -> int:
        fail_if((a + b) % 3 == 0)
        return a + b

    grouped = b.stream("in", value=L).group_by_key()
    hops = grouped.windowed_by(hopping(40, 20, 20)).aggregate(zero, fails_at_four, store="hop", value=L)
    hops.to_stream().to("hop")
    slides = grouped.windowed_by(sliding(10, 20)).aggregate(zero, fails_at_four, store="sli", value=L)
    slides.to_stream().to("sli")
    visits = grouped.windowed_by(sessions(10, 20))
    visits.aggregate(zero, fails_at_four, merge=fails_at_three, store="ses", value=L).to_stream().to("ses")


@topology
def continue_joiners(b: StreamsBuilder, case: Case) -> None:
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
def continue_punctuator(b: StreamsBuilder, case: Case) -> None:
    def exclaim(value: str | None) -> str:
        fail_if(value == "b4")
        return f"{text(value)}!"

    b.stream("in").process(lambda: Boom(case)).map_values(exclaim).to("out")


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
def continue_nested(b: StreamsBuilder, case: Case) -> None:
    fan = b.stream("in", value=L).process(lambda: Fan(case), name="fan")
    (
        fan.peek(lambda key, value: case.effect(f"peek {value}"))
        .map_values(lambda value: 60 // (value - 5), name="div")
        .to("out", value=L)
    )
    fan.process(lambda: Deep(case), name="deep").map_values(lambda value: value * 2).to("deep", value=L)


@topology
def continue_table(b: StreamsBuilder, case: Case) -> None:
    def adds_no_three(key: str, value: int, aggregate: int) -> int:
        fail_if(value == 3)
        return aggregate + value

    def subtracts_no_two(key: str, value: int, aggregate: int) -> int:
        fail_if(value == 2)
        return aggregate - value

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


@topology
def continue_branch_merge_foreach(b: StreamsBuilder, case: Case) -> None:
    def each(key: str | None, value: int) -> None:
        # In Java the comparison with a null value raises.
        fail_if(value is None or value == 4)
        case.effect(f"each {value}")

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


@topology
def processing_fail_aggregate(b: StreamsBuilder, case: Case) -> None:
    def unlucky(key: str, value: int, aggregate: int) -> int:
        fail_if(value == 13)
        return aggregate + value

    b.stream("in", value=L).group_by_key().aggregate(zero, unlucky, store="agg", value=L).to_stream().to("out")


@topology
def processing_fail_second_child(b: StreamsBuilder, case: Case) -> None:
    stream = b.stream("in", value=L)
    stream.peek(lambda key, value: case.effect(f"first {text(value)}")).to("first")
    stream.map_values(lambda value: None if value is None else 60 // value).to("second", value=L)


@topology
def processing_fail_punctuator(b: StreamsBuilder, case: Case) -> None:
    b.stream("in").process(lambda: Boom(case)).to("out")
