"""Windowed tables joined, optimized topologies, names and edges."""

from headwater import JoinWindows, SessionWindowed, Str, StreamsBuilder, Suppress, TimeWindowed, Window
from tests.conformance.case import Case
from tests.conformance.chapters.registry import dotted, empty, ms, plus, text, zero
from tests.conformance.more_chapters.registry import (
    CLOSE,
    L,
    ampersand,
    comma,
    concatenate,
    even,
    hopping,
    parts,
    sessions,
    sliding,
    spread,
    subtract,
    topology,
    tumbling,
)


@topology
def windowed_table_left_join(b: StreamsBuilder, case: Case) -> None:
    counts = b.stream("left").group_by_key().windowed_by(tumbling(50, 20)).count(store="counts")
    reduced = b.stream("right").group_by_key().windowed_by(tumbling(50, 40)).reduce(comma, store="red")
    (
        counts.left_join(reduced, lambda n, value: f"{text(n)}/{text(value)}", store="joined", value=Str())
        .to_stream()
        .to("out")
    )


@topology
def session_table_outer_join(b: StreamsBuilder, case: Case) -> None:
    left = b.stream("left").group_by_key().windowed_by(sessions(20, 30)).count(store="lc")
    right = b.stream("right").group_by_key().windowed_by(sessions(20, 30)).count(store="rc")
    joined = left.outer_join(right, lambda left, right: f"{text(left)}/{text(right)}")
    joined.to_stream().to("out", key=SessionWindowed(Str()), value=Str())


@topology
def cached_windowed_table_join(b: StreamsBuilder, case: Case) -> None:
    grouped = spread(b).group_by_key()
    counts = grouped.windowed_by(tumbling(50, 30)).count(store="counts")
    texts = grouped.windowed_by(tumbling(50, 30)).aggregate(
        empty, lambda key, value, aggregate: aggregate + value, store=Window("agg", cached=False)
    )
    joined = counts.join(texts, lambda n, value: f"{n}/{value}")
    joined.to_stream().to("out", key=TimeWindowed(Str(), size=ms(50)), value=Str())


@topology
def windowed_filter_join(b: StreamsBuilder, case: Case) -> None:
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


@topology
def optimized_merged_repartitions(b: StreamsBuilder, case: Case) -> None:
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


@topology
def optimized_source_tables(b: StreamsBuilder, case: Case) -> None:
    left = b.table("left")
    left.left_join(b.table("right", store="rtab"), plus, store="joined").to_stream().to("out")
    left.filter(lambda key, value: not value.startswith("x")).to_stream().to("some")


@topology
def optimized_cascade(b: StreamsBuilder, case: Case) -> None:
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


@topology
def emit_close_session_big_times(b: StreamsBuilder, case: Case) -> None:
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(sessions(60_000, 30_000))
        .emit_strategy("on-close")
        .count(store="counts")
        .to_stream()
        .to("out")
    )


@topology
def emit_close_hopping_big_times(b: StreamsBuilder, case: Case) -> None:
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(hopping(120_000, 60_000, 30_000))
        .emit_strategy("on-close")
        .count(store="counts")
        .to_stream()
        .to("out")
    )


@topology
def suppress_big_times(b: StreamsBuilder, case: Case) -> None:
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(sliding(40_000, 60_000))
        .count(store="counts")
        .suppress(CLOSE)
        .to_stream()
        .to("out")
    )


@topology
def sliding_difference_one(b: StreamsBuilder, case: Case) -> None:
    b.stream("in").group_by_key().windowed_by(sliding(1, 5)).count(store="counts").to_stream().to("out")


@topology
def hopping_advance_one(b: StreamsBuilder, case: Case) -> None:
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(hopping(4, 1, 3))
        .aggregate(empty, lambda key, value, aggregate: aggregate + text(value), store="agg")
        .to_stream()
        .to("out")
    )


@topology
def hopping_uneven(b: StreamsBuilder, case: Case) -> None:
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(hopping(50, 35))
        .count(store=Window("counts", retention=ms(50)))
        .to_stream()
        .to("out")
    )


@topology
def everything_named(b: StreamsBuilder, case: Case) -> None:
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


@topology
def table_aggregate_null(b: StreamsBuilder, case: Case) -> None:
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


@topology
def tombstones_into_windows(b: StreamsBuilder, case: Case) -> None:
    stream = b.table("in", store="tab").to_stream()
    stream.group_by_key().windowed_by(tumbling(50, 20)).aggregate(empty, dotted, store="agg").to_stream().to("windows")
    stream.group_by_key().windowed_by(sessions(15, 20)).count(store="ses").to_stream().to("sessions")
    stream.to_table(store="again").to_stream().to("again")


@topology
def stream_join_into_session(b: StreamsBuilder, case: Case) -> None:
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


@topology
def cached_suppress_table(b: StreamsBuilder, case: Case) -> None:
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


@topology
def cached_to_table_group_by(b: StreamsBuilder, case: Case) -> None:
    (
        b.stream("in", value=L)
        .to_table(store="tab")
        .filter(lambda key, value: value > 2)
        .group_by(lambda key, value: (f"g{value % 2}", value), name="grp", key=Str(), value=L)
        .count(store="counts")
        .to_stream()
        .to("out")
    )
