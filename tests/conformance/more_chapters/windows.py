"""Windowed aggregations: nulls, big times, retention, regrouping, several on one grouped stream."""

from headwater import Session, Str, StreamsBuilder, UnlimitedWindows, Window
from tests.conformance.case import Case
from tests.conformance.chapters.registry import dotted, empty, ms, text
from tests.conformance.more_chapters.registry import (
    L,
    add,
    ampersand,
    bracketed,
    comma,
    concatenate,
    hopping,
    sessions,
    sliding,
    subtract,
    topology,
    tumbling,
    unless_del,
)


@topology
def tumbling_aggregate_null(b: StreamsBuilder, case: Case) -> None:
    def without_del(key: str, value: str | None, aggregate: str) -> str | None:
        return None if value == "DEL" else f"{aggregate}.{text(value)}"

    (
        b.stream("in")
        .group_by_key()
        .windowed_by(tumbling(50, 20))
        .aggregate(lambda: "i", without_del, store="agg")
        .to_stream()
        .to("out")
    )


@topology
def hopping_reduce_null(b: StreamsBuilder, case: Case) -> None:
    (
        b.stream("in", value=L)
        .group_by_key()
        .windowed_by(hopping(60, 25, 15))
        .reduce(lambda aggregate, value: None if not value else aggregate + value, store="red")
        .to_stream()
        .to("out")
    )


@topology
def sliding_reduce(b: StreamsBuilder, case: Case) -> None:
    b.stream("in").group_by_key().windowed_by(sliding(15, 20)).reduce(comma).to_stream().to("out")


@topology
def sliding_aggregate_null(b: StreamsBuilder, case: Case) -> None:
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(sliding(20, 25))
        .aggregate(empty, unless_del, store="agg")
        .to_stream()
        .to("out")
    )


@topology
def session_reduce(b: StreamsBuilder, case: Case) -> None:
    b.stream("in").group_by_key().windowed_by(sessions(15, 25)).reduce(comma, store="red").to_stream().to("out")


@topology
def session_aggregate_null(b: StreamsBuilder, case: Case) -> None:
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(sessions(20, 40))
        .aggregate(empty, unless_del, merge=ampersand, store="agg")
        .to_stream()
        .to("out")
    )


@topology
def session_smallest_gap(b: StreamsBuilder, case: Case) -> None:
    b.stream("in").group_by_key().windowed_by(sessions(1, 10)).count(store="counts").to_stream().to("out")


@topology
def unlimited_count(b: StreamsBuilder, case: Case) -> None:
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(UnlimitedWindows.of(start=50))
        .count(store="counts")
        .to_stream()
        .map(lambda window, n: (f"{window.key}@{window.start}", str(n)))
        .to("out")
    )


@topology
def tumbling_big_times(b: StreamsBuilder, case: Case) -> None:
    b.stream("in").group_by_key().windowed_by(tumbling(60_000, 10_000)).count(store="counts").to_stream().to("out")


@topology
def tumbling_long_retention_big_times(b: StreamsBuilder, case: Case) -> None:
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(tumbling(30_000, 600_000))
        .aggregate(empty, dotted, store=Window("agg", retention=ms(3_600_000)))
        .to_stream()
        .to("out")
    )


@topology
def hopping_long_retention(b: StreamsBuilder, case: Case) -> None:
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(hopping(40, 10, 60))
        .count(store=Window("counts", retention=ms(300)))
        .to_stream()
        .to("out")
    )


@topology
def sliding_big_times(b: StreamsBuilder, case: Case) -> None:
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(sliding(30_000, 120_000))
        .aggregate(empty, dotted, store="agg")
        .to_stream()
        .to("out")
    )


@topology
def session_big_times(b: StreamsBuilder, case: Case) -> None:
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(sessions(60_000, 300_000))
        .aggregate(empty, dotted, merge=bracketed, store="agg")
        .to_stream()
        .to("out")
    )


@topology
def session_long_retention(b: StreamsBuilder, case: Case) -> None:
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(sessions(30_000))
        .count(store=Session("counts", retention=ms(3_600_000)))
        .to_stream()
        .to("out")
    )


@topology
def window_start_select_key_count(b: StreamsBuilder, case: Case) -> None:
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


@topology
def window_start_regroup(b: StreamsBuilder, case: Case) -> None:
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


@topology
def windowed_table_group_by(b: StreamsBuilder, case: Case) -> None:
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


@topology
def session_table_group_by(b: StreamsBuilder, case: Case) -> None:
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


@topology
def two_windows_one_group(b: StreamsBuilder, case: Case) -> None:
    grouped = b.stream("in").group_by_key()
    grouped.windowed_by(tumbling(50)).count(store="t").to_stream().to("tumbling")
    grouped.windowed_by(sessions(15)).count(store="s").to_stream().to("session")
    grouped.count(store="all").to_stream().to("plain")


@topology
def two_aggregations_repartitioned(b: StreamsBuilder, case: Case) -> None:
    grouped = b.stream("in").group_by(lambda key, value: value, name="by-value")
    grouped.count(store="c").to_stream().to("counts")
    grouped.windowed_by(tumbling(40, 10)).reduce(concatenate, store="r").to_stream().to("reduced")


@topology
def two_aggregations_repartitioned_unnamed(b: StreamsBuilder, case: Case) -> None:
    grouped = b.stream("in").select_key(lambda key, value: value).group_by_key()
    grouped.count().to_stream().to("counts")
    grouped.aggregate(empty, lambda key, value, aggregate: aggregate + value).to_stream().to("joined")


@topology
def windowed_count_map_values_materialized(b: StreamsBuilder, case: Case) -> None:
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
