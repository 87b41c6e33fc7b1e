"""Suppress in all its forms, and what may stand before and after it."""

from headwater import Str, StreamsBuilder, Suppress
from tests.conformance.case import Case
from tests.conformance.chapters.registry import dotted, empty, ms, plus
from tests.conformance.more_chapters.registry import (
    CLOSE,
    L,
    add,
    comma,
    even,
    hopping,
    sessions,
    sliding,
    subtract,
    topology,
    tumbling,
)


@topology
def suppress_windowed_filter_map(b: StreamsBuilder, case: Case) -> None:
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


@topology
def suppress_windowed_filter_materialized(b: StreamsBuilder, case: Case) -> None:
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


@topology
def suppress_strict_max_records(b: StreamsBuilder, case: Case) -> None:
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(tumbling(50, 20))
        .count(store="counts")
        .suppress(Suppress.until_window_closes(max_records=3))
        .to_stream()
        .to("out")
    )


@topology
def suppress_strict_max_bytes(b: StreamsBuilder, case: Case) -> None:
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(tumbling(50, 20))
        .aggregate(empty, dotted, store="agg")
        .suppress(Suppress.until_window_closes(max_bytes=250))
        .to_stream()
        .to("out")
    )


@topology
def suppress_emit_early_bytes(b: StreamsBuilder, case: Case) -> None:
    b.table("in", store="tab").suppress(Suppress.until_time_limit(ms(1000), max_bytes=150)).to_stream().to("out")


@topology
def suppress_strict_time_limit(b: StreamsBuilder, case: Case) -> None:
    limit = Suppress.until_time_limit(ms(40), max_records=4, full="fail")
    b.table("in", value=L, store="tab").suppress(limit).to_stream().to("out")


@topology
def suppress_sliding_named(b: StreamsBuilder, case: Case) -> None:
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(sliding(12, 8))
        .count(store="counts")
        .suppress(CLOSE, name="held")
        .to_stream()
        .to("out")
    )


@topology
def suppress_session_time_limit(b: StreamsBuilder, case: Case) -> None:
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(sessions(20, 30))
        .count(store="counts")
        .suppress(Suppress.until_time_limit(ms(25)))
        .to_stream()
        .to("out")
    )


@topology
def suppress_session_merged_away(b: StreamsBuilder, case: Case) -> None:
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


@topology
def suppress_filtered_table(b: StreamsBuilder, case: Case) -> None:
    (b.table("in", value=L, store="tab").filter(even).suppress(Suppress.until_time_limit(ms(25))).to_stream().to("out"))


@topology
def suppress_then_join(b: StreamsBuilder, case: Case) -> None:
    left = b.table("left", store="ltab").suppress(Suppress.until_time_limit(ms(30)))
    left.left_join(b.table("right", store="rtab"), plus).to_stream().to("out")


@topology
def suppress_then_group_by(b: StreamsBuilder, case: Case) -> None:
    (
        b.table("in", value=L, store="tab")
        .suppress(Suppress.until_time_limit(ms(20), max_records=5))
        .group_by(lambda key, value: (f"g{value % 3}", value), name="grp", key=Str(), value=L)
        .reduce(add, subtract, store="sum")
        .to_stream()
        .to("out")
    )


@topology
def suppress_twice(b: StreamsBuilder, case: Case) -> None:
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
