"""Chapters: KTable operators, versioned tables."""

from headwater import Int64, StreamsBuilder, Topology, Versioned
from tests.conformance.case import Case
from tests.conformance.chapters.registry import after_colon, before_colon, empty, ms, new_builder, topology, zero


def at_least_5(key: str, value: int) -> bool:
    return value >= 5


def labelled(key: str, value: int) -> str | None:
    return None if value == 9 else f"{key}={value}"


@topology("to-table")
def to_table(case: Case) -> Topology:
    builder = new_builder()
    builder.stream("in", value=Int64()).to_table(store="tab").to_stream().to("out")
    return builder.build()


@topology("table-to-stream")
def table_to_stream(case: Case) -> Topology:
    builder = new_builder()
    builder.table("in", value=Int64(), store="tab").to_stream().to("out")
    return builder.build()


@topology("table-to-stream-key-mapper")
def table_to_stream_key_mapper(case: Case) -> Topology:
    builder = new_builder()
    (
        builder.table("in", value=Int64(), store="tab")
        .to_stream(lambda key, value: f"{key}-" if value is None else f"{key}{value % 2}")
        .to("out")
    )
    return builder.build()


@topology("table-filter")
def table_filter(case: Case) -> Topology:
    builder = new_builder()
    builder.table("in", value=Int64()).filter(at_least_5).to_stream().to("out")
    return builder.build()


@topology("table-filter-materialized")
def table_filter_materialized(case: Case) -> Topology:
    builder = new_builder()
    builder.table("in", value=Int64(), store="tab").filter(at_least_5, store="filtered").to_stream().to("out")
    return builder.build()


@topology("table-filter-not")
def table_filter_not(case: Case) -> Topology:
    builder = new_builder()
    builder.table("in", value=Int64(), store="tab").filter_not(at_least_5).to_stream().to("out")
    return builder.build()


@topology("table-map-values")
def table_map_values(case: Case) -> Topology:
    builder = new_builder()
    builder.table("in", value=Int64(), store="tab").map_values(labelled).to_stream().to("out")
    return builder.build()


@topology("table-map-values-materialized")
def table_map_values_materialized(case: Case) -> Topology:
    builder = new_builder()
    builder.table("in", value=Int64(), store="tab").map_values(labelled, store="mapped").to_stream().to("out")
    return builder.build()


@topology("table-chain")
def table_chain(case: Case) -> Topology:
    builder = new_builder()
    (
        builder.table("in", value=Int64(), store="tab")
        .filter(lambda key, value: value % 2 == 0)
        .map_values(lambda value: value * 10)
        .filter(lambda key, value: value < 100, store="final", value=Int64())
        .to_stream()
        .to("out")
    )
    return builder.build()


@topology("table-group-by-aggregate")
def table_group_by_aggregate(case: Case) -> Topology:
    builder = new_builder()
    (
        builder.table("in", store="tab")
        .group_by(lambda key, value: (before_colon(value), key + after_colon(value)), name="grp")
        .aggregate(
            empty,
            lambda key, value, aggregate: f"{aggregate}+{value}",
            lambda key, value, aggregate: f"{aggregate}-{value}",
            store="agg",
        )
        .to_stream()
        .to("out")
    )
    return builder.build()


@topology("table-group-by-count")
def table_group_by_count(case: Case) -> Topology:
    builder = new_builder()
    (
        builder.table("in", store="tab")
        .group_by(lambda key, value: (before_colon(value), value), name="grp")
        .count(store="counts")
        .to_stream()
        .to("out")
    )
    return builder.build()


@topology("table-group-by-reduce")
def table_group_by_reduce(case: Case) -> Topology:
    builder = new_builder()
    (
        builder.table("in", value=Int64(), store="tab")
        .group_by(lambda key, value: (str(value % 3), value), name="grp", value=Int64())
        .reduce(lambda aggregate, value: aggregate + value, lambda aggregate, value: aggregate - value, store="sums")
        .to_stream()
        .to("out")
    )
    return builder.build()


@topology("table-group-by-null-key")
def table_group_by_null_key(case: Case) -> Topology:
    def group_unless_x(key: str, value: str) -> tuple[str | None, str]:
        group = before_colon(value)
        return (None if group == "x" else group, value)

    builder = new_builder()
    (
        builder.table("in", store="tab")
        .group_by(group_unless_x, name="grp")
        .aggregate(
            empty,
            lambda key, value, aggregate: f"{aggregate}+{after_colon(value)}",
            lambda key, value, aggregate: f"{aggregate}-{after_colon(value)}",
            store="agg",
        )
        .to_stream()
        .to("out")
    )
    return builder.build()


# Versioned tables


@topology("versioned-table-to-stream")
def versioned_table_to_stream(case: Case) -> Topology:
    builder = new_builder()
    builder.table("in", value=Int64(), store=Versioned("tab", retention=ms(100))).to_stream().to("out")
    return builder.build()


@topology("versioned-table-filter")
def versioned_table_filter(case: Case) -> Topology:
    builder = new_builder()
    (
        builder.table("in", value=Int64(), store=Versioned("tab", retention=ms(100)))
        .filter(lambda key, value: value % 20 == 0)
        .map_values(lambda value: value + 1)
        .to_stream()
        .to("out", value=Int64())
    )
    return builder.build()


def sum_of_all(builder: StreamsBuilder, store: str | Versioned) -> Topology:
    """Sum all values of the table `in`."""
    (
        builder.table("in", value=Int64(), store=store)
        .group_by(lambda key, value: ("all", value), name="grp", value=Int64())
        .aggregate(
            zero,
            lambda key, value, aggregate: aggregate + value,
            lambda key, value, aggregate: aggregate - value,
            store="sum",
            value=Int64(),
        )
        .to_stream()
        .to("out")
    )
    return builder.build()


@topology("versioned-table-aggregate")
def versioned_table_aggregate(case: Case) -> Topology:
    return sum_of_all(new_builder(), Versioned("tab", retention=ms(100)))


@topology("plain-table-aggregate")
def plain_table_aggregate(case: Case) -> Topology:
    return sum_of_all(new_builder(), "tab")
