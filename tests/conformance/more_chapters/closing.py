"""Emit on window close."""

from headwater import Session, Str, StreamsBuilder, Window
from tests.conformance.case import Case
from tests.conformance.chapters.registry import dotted, empty, ms
from tests.conformance.more_chapters.registry import (
    L,
    ampersand,
    comma,
    hopping,
    sessions,
    sliding,
    topology,
    tumbling,
    unless_del,
)


@topology
def emit_close_hopping_retention(b: StreamsBuilder, case: Case) -> None:
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(hopping(60, 20, 10))
        .emit_strategy("on-close")
        .count(store=Window("counts", retention=ms(1000)))
        .to_stream()
        .to("out")
    )


@topology
def emit_close_sliding_retention(b: StreamsBuilder, case: Case) -> None:
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(sliding(20, 10))
        .emit_strategy("on-close")
        .reduce(comma, store=Window("red", retention=ms(500)))
        .to_stream()
        .to("out")
    )


@topology
def emit_close_session_retention(b: StreamsBuilder, case: Case) -> None:
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(sessions(20, 10))
        .emit_strategy("on-close")
        .aggregate(empty, dotted, merge=ampersand, store=Session("agg", retention=ms(2000)))
        .to_stream()
        .to("out")
    )


@topology
def emit_close_session_interval(b: StreamsBuilder, case: Case) -> None:
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(sessions(15, 5))
        .emit_strategy("on-close")
        .count(store=Session("counts", retention=ms(10000)))
        .to_stream()
        .to("out")
    )


@topology
def emit_close_sliding_interval(b: StreamsBuilder, case: Case) -> None:
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(sliding(10, 5))
        .emit_strategy("on-close")
        .count(store=Window("counts", retention=ms(10000)))
        .to_stream()
        .to("out")
    )


@topology
def emit_close_tumbling_big_times(b: StreamsBuilder, case: Case) -> None:
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(tumbling(60_000, 30_000))
        .emit_strategy("on-close")
        .reduce(comma, store=Window("red", retention=ms(7_200_000)))
        .to_stream()
        .to("out")
    )


@topology
def emit_close_group_by_named(b: StreamsBuilder, case: Case) -> None:
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


@topology
def emit_close_then_count(b: StreamsBuilder, case: Case) -> None:
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
