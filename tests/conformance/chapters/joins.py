"""Chapters: stream–stream, stream–table, stream–global table, table–table and foreign-key joins."""

from collections.abc import Callable

from headwater import JoinWindows, KStream, KTable, StreamsBuilder, Topology, Versioned
from tests.conformance.case import Case
from tests.conformance.chapters.registry import before_colon, empty, ms, new_builder, plus, text, topology

SYMMETRIC = JoinWindows.of(ms(10), grace=ms(15))
ASYMMETRIC = JoinWindows.of(before=ms(20), after=ms(5), grace=ms(15))


# Stream-stream joins


def stream_stream(join: Callable[..., KStream], windows: JoinWindows) -> Topology:
    """Join the streams `left` and `right`; `join` is one of KStream's three methods."""
    builder = new_builder()
    left, right = builder.stream("left"), builder.stream("right")
    join(left, right, plus, windows, name="j", store="j").to("out")
    return builder.build()


@topology("stream-stream-inner-join")
def stream_stream_inner_join(case: Case) -> Topology:
    return stream_stream(KStream.join, SYMMETRIC)


@topology("stream-stream-inner-join-asymmetric")
def stream_stream_inner_join_asymmetric(case: Case) -> Topology:
    return stream_stream(KStream.join, ASYMMETRIC)


@topology("stream-stream-inner-join-after-only")
def stream_stream_inner_join_after_only(case: Case) -> Topology:
    return stream_stream(KStream.join, JoinWindows.of(before=ms(0), after=ms(12), grace=ms(15)))


@topology("stream-stream-left-join")
@topology("stream-stream-left-join-interval")
def stream_stream_left_join(case: Case) -> Topology:
    return stream_stream(KStream.left_join, SYMMETRIC)


@topology("stream-stream-left-join-asymmetric")
def stream_stream_left_join_asymmetric(case: Case) -> Topology:
    return stream_stream(KStream.left_join, ASYMMETRIC)


@topology("stream-stream-outer-join")
@topology("stream-stream-outer-join-interval")
def stream_stream_outer_join(case: Case) -> Topology:
    return stream_stream(KStream.outer_join, SYMMETRIC)


@topology("stream-stream-outer-join-asymmetric")
def stream_stream_outer_join_asymmetric(case: Case) -> Topology:
    return stream_stream(KStream.outer_join, ASYMMETRIC)


@topology("stream-stream-join-no-grace")
def stream_stream_join_no_grace(case: Case) -> Topology:
    return stream_stream(KStream.outer_join, JoinWindows.of(ms(10)))


def self_join() -> StreamsBuilder:
    builder = new_builder()
    stream = builder.stream("in")
    stream.join(stream, plus, SYMMETRIC, name="j", store="j").to("out")
    return builder


@topology("stream-stream-self-join")
def stream_stream_self_join(case: Case) -> Topology:
    return self_join().build()


@topology("stream-stream-self-join-optimized")
def stream_stream_self_join_optimized(case: Case) -> Topology:
    return self_join().build(optimize=True)


@topology("stream-stream-join-repartitioned")
def stream_stream_join_repartitioned(case: Case) -> Topology:
    builder = new_builder()
    left = builder.stream("left").select_key(lambda key, value: before_colon(value))
    right = builder.stream("right").select_key(lambda key, value: before_colon(value))
    left.join(right, plus, SYMMETRIC, name="j", store="j").to("out")
    return builder.build()


# Stream-table joins


@topology("stream-table-inner-join")
def stream_table_inner_join(case: Case) -> Topology:
    builder = new_builder()
    stream, table = builder.stream("stream"), builder.table("table", store="tab")
    stream.join(table, plus).to("out")
    return builder.build()


@topology("stream-table-inner-join-repartitioned")
def stream_table_inner_join_repartitioned(case: Case) -> Topology:
    builder = new_builder()
    stream, table = builder.stream("stream"), builder.table("table", store="tab")
    stream.select_key(lambda key, value: before_colon(value)).join(table, plus).to("out")
    return builder.build()


@topology("stream-table-left-join")
def stream_table_left_join(case: Case) -> Topology:
    builder = new_builder()
    stream, table = builder.stream("stream"), builder.table("table", store="tab")
    stream.left_join(table, plus).to("out")
    return builder.build()


@topology("stream-table-left-join-with-key")
def stream_table_left_join_with_key(case: Case) -> Topology:
    builder = new_builder()
    stream, table = builder.stream("stream"), builder.table("table", store="tab")
    stream.left_join(table, lambda key, left, right: f"{text(key)}:{plus(left, right)}").to("out")
    return builder.build()


def stream_and_versioned_table(builder: StreamsBuilder) -> tuple[KStream, KTable]:
    return builder.stream("stream"), builder.table("table", store=Versioned("tab", retention=ms(100)))


@topology("stream-versioned-table-join")
def stream_versioned_table_join(case: Case) -> Topology:
    builder = new_builder()
    stream, table = stream_and_versioned_table(builder)
    stream.join(table, plus).to("out")
    return builder.build()


@topology("stream-table-grace-join")
def stream_table_grace_join(case: Case) -> Topology:
    builder = new_builder()
    stream, table = stream_and_versioned_table(builder)
    stream.join(table, plus, grace=ms(20), name="sj").to("out")
    return builder.build()


@topology("stream-versioned-table-left-join")
def stream_versioned_table_left_join(case: Case) -> Topology:
    builder = new_builder()
    stream, table = stream_and_versioned_table(builder)
    stream.left_join(table, plus).to("out")
    return builder.build()


@topology("stream-table-grace-left-join")
def stream_table_grace_left_join(case: Case) -> Topology:
    builder = new_builder()
    stream, table = stream_and_versioned_table(builder)
    stream.left_join(table, plus, grace=ms(20), name="sj").to("out")
    return builder.build()


# Stream-GlobalKTable joins


def reference(key: str | None, value: str | None) -> str | None:
    """Return the part of the value before the colon, null for `n…`."""
    return None if value is None or value.startswith("n") else before_colon(value)


@topology("stream-global-table-join")
def stream_global_table_join(case: Case) -> Topology:
    builder = new_builder()
    stream, table = builder.stream("stream"), builder.global_table("table", store="gtab")
    stream.join(table, plus, select=reference).to("out")
    return builder.build()


@topology("stream-global-table-left-join")
def stream_global_table_left_join(case: Case) -> Topology:
    builder = new_builder()
    stream, table = builder.stream("stream"), builder.global_table("table", store="gtab")
    stream.left_join(table, plus, select=reference).to("out")
    return builder.build()


# Table-table joins


def two_tables(builder: StreamsBuilder) -> tuple[KTable, KTable]:
    return builder.table("left", store="ltab"), builder.table("right", store="rtab")


def table_table(join: Callable[..., KTable], store: str | None = None) -> Topology:
    """Join the tables `left` and `right`; `join` is one of KTable's three methods."""
    builder = new_builder()
    left, right = two_tables(builder)
    join(left, right, plus, store=store).to_stream().to("out")
    return builder.build()


@topology("table-table-inner-join")
def table_table_inner_join(case: Case) -> Topology:
    return table_table(KTable.join)


@topology("table-table-inner-join-materialized")
def table_table_inner_join_materialized(case: Case) -> Topology:
    return table_table(KTable.join, store="joined")


@topology("table-table-left-join")
def table_table_left_join(case: Case) -> Topology:
    return table_table(KTable.left_join)


@topology("table-table-left-join-materialized")
def table_table_left_join_materialized(case: Case) -> Topology:
    return table_table(KTable.left_join, store="joined")


@topology("table-table-outer-join")
def table_table_outer_join(case: Case) -> Topology:
    return table_table(KTable.outer_join)


@topology("table-table-outer-join-materialized")
def table_table_outer_join_materialized(case: Case) -> Topology:
    return table_table(KTable.outer_join, store="joined")


@topology("table-table-join-then-group-by")
def table_table_join_then_group_by(case: Case) -> Topology:
    builder = new_builder()
    left, right = two_tables(builder)
    (
        left.left_join(right, plus)
        .group_by(lambda key, value: (value[-1], f"{key}/{value}"), name="grp")
        .aggregate(
            empty,
            lambda key, value, aggregate: f"{aggregate}+({value})",
            lambda key, value, aggregate: f"{aggregate}-({value})",
            store="agg",
        )
        .to_stream()
        .to("out")
    )
    return builder.build()


# Foreign-key joins


def foreign_key(value: str) -> str | None:
    """Return the part of the value before the colon, null for `n…`."""
    return None if value.startswith("n") else before_colon(value)


@topology("foreign-key-join")
def foreign_key_join(case: Case) -> Topology:
    builder = new_builder()
    left, right = two_tables(builder)
    left.join(right, plus, foreign_key=foreign_key, name="fk", store="joined").to_stream().to("out")
    return builder.build()


@topology("foreign-key-join-with-key-extractor")
def foreign_key_join_with_key_extractor(case: Case) -> Topology:
    builder = new_builder()
    left, right = two_tables(builder)
    (
        left.join(right, plus, foreign_key=lambda key, value: "y" if key == "a" else before_colon(value), name="fk")
        .to_stream()
        .to("out")
    )
    return builder.build()


@topology("foreign-key-left-join")
def foreign_key_left_join(case: Case) -> Topology:
    builder = new_builder()
    left, right = two_tables(builder)
    left.left_join(right, plus, foreign_key=foreign_key, name="fk", store="joined").to_stream().to("out")
    return builder.build()
