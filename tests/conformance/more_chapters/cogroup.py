"""Cogroup: three streams, repartitioned, windowed."""

from typing import Any

from headwater import (
    StreamsBuilder,
    Window,
)
from tests.conformance.case import Case
from tests.conformance.chapters.registry import empty, ms, text
from tests.conformance.more_chapters.registry import (
    CLOSE,
    bracketed,
    first_letter,
    hopping,
    sessions,
    sliding,
    topology,
)


def with_mark(mark: str) -> Any:
    """Return an aggregator that adds the mark and the value."""
    return lambda key, value, aggregate: f"{aggregate}{mark}{text(value)}"


@topology
def cogroup_three(b: StreamsBuilder, case: Case) -> None:
    def third(key: str, value: str, aggregate: str) -> str | None:
        return None if value == "DEL" else f"{aggregate}3{value}"

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


@topology
def cogroup_repartitioned(b: StreamsBuilder, case: Case) -> None:
    left = b.stream("left").group_by(first_letter, name="lgrp")
    right = b.stream("right").select_key(lambda key, value: value).group_by_key(name="rgrp")
    (
        left.cogroup(with_mark("."))
        .cogroup(right, with_mark("/"))
        .aggregate(empty, name="co", store="agg")
        .to_stream()
        .to("out")
    )


@topology
def cogroup_repartitioned_unnamed(b: StreamsBuilder, case: Case) -> None:
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


def cogrouped(b: StreamsBuilder) -> Any:
    left, right = b.stream("left").group_by_key(), b.stream("right").group_by_key()
    return left.cogroup(with_mark(".")).cogroup(right, with_mark("/"))


@topology
def cogroup_sliding(b: StreamsBuilder, case: Case) -> None:
    cogrouped(b).windowed_by(sliding(15, 20)).aggregate(empty, store="agg").to_stream().to("out")


@topology
def cogroup_hopping_named(b: StreamsBuilder, case: Case) -> None:
    (
        cogrouped(b)
        .windowed_by(hopping(40, 20, 10))
        .aggregate(empty, name="co", store=Window("agg", retention=ms(300)))
        .suppress(CLOSE)
        .to_stream()
        .to("out")
    )


@topology
def cogroup_cached_session(b: StreamsBuilder, case: Case) -> None:
    cogrouped(b).windowed_by(sessions(20, 50)).aggregate(empty, merge=bracketed, store="agg").to_stream().to("out")
