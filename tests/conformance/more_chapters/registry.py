"""What these chapters share: the registry, its decorator and the words that several of them use."""

from collections.abc import Callable
from typing import Any

from headwater import (
    Int64,
    KStream,
    Processor,
    Record,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppress,
    TimeWindows,
    Topology,
)
from tests.conformance.case import Case
from tests.conformance.chapters.registry import Builder, ms, new_builder, text

TOPOLOGIES: dict[str, Builder] = {}
Define = Callable[[StreamsBuilder, Case], Topology | None]

L = Int64()
CLOSE = Suppress.until_window_closes()


def topology(define: Define) -> Define:
    """Register what the function draws on a builder, or returns, as the topology of its own name, with hyphens."""

    def build(case: Case) -> Topology:
        builder = new_builder()
        optimize = case.config.get("topology.optimization") == "all"
        return define(builder, case) or builder.build(optimize=optimize)

    name = define.__name__.replace("_", "-")
    assert name not in TOPOLOGIES, f"{name} is registered twice"
    TOPOLOGIES[name] = build
    return define


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


def unless_del(key: str, value: str | None, aggregate: str) -> str | None:
    return None if value == "DEL" else aggregate + text(value)


class Spread(Processor):
    """Forward each word i of the value at timestamp + 20 * i."""

    def process(self, record: Record) -> None:
        for i, word in enumerate(parts(record.value)):
            self.context.forward(record.replace(value=word, timestamp=record.timestamp + 20 * i))


def spread(b: StreamsBuilder) -> KStream:
    return b.stream("in").process_values(Spread)


def first_letter(key: str | None, value: str | None) -> str | None:
    return None if value is None else value[0]


def times(factor: int) -> Any:
    return lambda value: None if value is None else value * factor
