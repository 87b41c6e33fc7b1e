"""Chapters: unwindowed stream aggregations, cogroup."""

from headwater import Int64, SessionWindows, TimeWindows, Topology
from tests.conformance.case import Case
from tests.conformance.chapters.registry import dotted, empty, ms, new_builder, text, topology, words


@topology("group-by-key-count")
def group_by_key_count(case: Case) -> Topology:
    builder = new_builder()
    builder.stream("in").group_by_key().count(store="counts").to_stream().to("out")
    return builder.build()


@topology("group-by-count")
def group_by_count(case: Case) -> Topology:
    def letter(key: str | None, value: str | None) -> str | None:
        if value is None:
            return "0"
        return None if value.startswith("n") else value[0]

    builder = new_builder()
    builder.stream("in").group_by(letter, name="by-letter").count(store="counts").to_stream().to("out")
    return builder.build()


@topology("group-by-key-reduce")
def group_by_key_reduce(case: Case) -> Topology:
    builder = new_builder()
    (
        builder.stream("in")
        .group_by_key()
        .reduce(lambda aggregate, value: f"{aggregate},{value}", store="red")
        .to_stream()
        .to("out")
    )
    return builder.build()


@topology("reduce-to-null")
def reduce_to_null(case: Case) -> Topology:
    builder = new_builder()
    (
        builder.stream("in", value=Int64())
        .group_by_key()
        .reduce(lambda aggregate, value: None if value == 0 else aggregate + value, store="red")
        .to_stream()
        .to("out")
    )
    return builder.build()


@topology("group-by-key-aggregate")
def group_by_key_aggregate(case: Case) -> Topology:
    builder = new_builder()
    (
        builder.stream("in")
        .group_by_key()
        .aggregate(empty, lambda key, value, aggregate: f"{aggregate}[{key}{value}]", store="agg")
        .to_stream()
        .to("out")
    )
    return builder.build()


@topology("aggregate-null-result")
def aggregate_null_result(case: Case) -> Topology:
    builder = new_builder()
    (
        builder.stream("in")
        .group_by_key()
        .aggregate(
            lambda: "i", lambda key, value, aggregate: None if value == "DEL" else aggregate + value, store="agg"
        )
        .to_stream()
        .to("out")
    )
    return builder.build()


@topology("word-count")
@topology("word-count-cached")
def word_count(case: Case) -> Topology:
    builder = new_builder()
    (
        builder.stream("in")
        .flat_map_values(lambda value: [word.lower() for word in words(value)])
        .group_by(lambda key, word: word, name="words")
        .count(store="counts")
        .to_stream()
        .to("out")
    )
    return builder.build()


@topology("flat-count-cached")
def flat_count_cached(case: Case) -> Topology:
    builder = new_builder()
    lines = builder.stream("in").flat_map_values(words)
    lines.group_by_key().aggregate(empty, dotted, store="agg").to_stream().to("out")
    return builder.build()


# Cogroup


def slashed(key: str, value: str | None, aggregate: str) -> str:
    return f"{aggregate}/{text(value)}"


@topology("cogroup")
def cogroup(case: Case) -> Topology:
    builder = new_builder()
    left, right = builder.stream("left"), builder.stream("right")
    (
        left.group_by_key()
        .cogroup(dotted)
        .cogroup(right.group_by_key(), slashed)
        .aggregate(empty, store="agg")
        .to_stream()
        .to("out")
    )
    return builder.build()


@topology("cogroup-tumbling")
def cogroup_tumbling(case: Case) -> Topology:
    builder = new_builder()
    left, right = builder.stream("left"), builder.stream("right")
    (
        left.group_by_key()
        .cogroup(dotted)
        .cogroup(right.group_by_key(), slashed)
        .windowed_by(TimeWindows.of(ms(50), grace=ms(20)))
        .aggregate(empty, store="agg")
        .to_stream()
        .to("out")
    )
    return builder.build()


@topology("cogroup-session")
def cogroup_session(case: Case) -> Topology:
    builder = new_builder()
    left, right = builder.stream("left"), builder.stream("right")
    (
        left.group_by_key()
        .cogroup(dotted)
        .cogroup(right.group_by_key(), slashed)
        .windowed_by(SessionWindows.of(ms(20), grace=ms(30)))
        .aggregate(empty, merge=lambda key, a, b: f"({a}&{b})", store="agg")
        .to_stream()
        .to("out")
    )
    return builder.build()
