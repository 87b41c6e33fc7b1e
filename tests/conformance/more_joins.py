"""More topologies with golden traces (in `more`, made by `oracle`): names, the optimiser, and joins and tables in all
the combinations that the given traces leave out. Written in the public API; the Java twin of each is in `oracle`."""

from collections.abc import Callable, Iterable

from headwater import (
    Int64,
    JoinWindows,
    KStream,
    KTable,
    Str,
    StreamsBuilder,
    Suppress,
    TimeWindowed,
    TimeWindows,
    Topology,
    Versioned,
    Window,
)
from tests.conformance.case import Case
from tests.conformance.chapters.registry import before_colon, empty, ms, new_builder, plus, text, zero

TOPOLOGIES: dict[str, Callable[[Case], Topology]] = {}
Optimize = bool | set[str]
Define = Callable[[StreamsBuilder], object]

MERGE, REUSE, SELF_JOIN = {"merge-repartition-topics"}, {"reuse-source-topics"}, {"self-join"}
WINDOWS = JoinWindows.of(ms(10), grace=ms(15))


def topology(*names: str, optimize: Optimize = False) -> Callable[[Define], Define]:
    """Register what the function draws on a builder as the topologies of the traces called `names`."""

    def register(define: Define) -> Define:
        def build(case: Case) -> Topology:
            builder = new_builder()
            define(builder)
            return builder.build(optimize=optimize)

        for name in names:
            assert name not in TOPOLOGIES, f"{name} is registered twice"
            TOPOLOGIES[name] = build
        return define

    return register


def key_plus(key: object, left: object, right: object) -> str:
    return f"{text(key)}:{plus(left, right)}"


def to_reference(key: str | None, value: str | None) -> str | None:
    return before_colon(value)


def foreign_key(value: str) -> str | None:
    return None if value.startswith("n") else before_colon(value)


def first(value: str | None) -> str | None:
    return None if value is None else value[0]


def by_first(key: str | None, value: str | None) -> str | None:
    return first(value)


def first_pair(key: str, value: str) -> tuple[str | None, str]:
    return first(value), value


def last(value: str) -> str:
    return value[-1]


def even(value: str) -> bool:
    """Whether the last character is an even digit."""
    return (ord(value[-1]) - ord("0")) % 2 == 0


def is_even(key: object, value: str) -> bool:
    return even(value)


def bang(value: object) -> str:
    return f"{text(value)}!"


def tail(grown: str) -> str:
    """Return the last 16 characters: aggregates that grow without end make long traces."""
    return grown[-16:]


def dotted(key: object, value: object, aggregate: str) -> str:
    return tail(f"{aggregate}.{text(value)}")


def add(key: object, value: object, aggregate: str) -> str:
    return tail(f"{aggregate}+({text(value)})")


def subtract(key: object, value: object, aggregate: str) -> str:
    return tail(f"{aggregate}-({text(value)})")


def comma(aggregate: str, value: str) -> str:
    return tail(f"{aggregate},{value}")


def minus(aggregate: str, value: str) -> str:
    return tail(f"{aggregate}-{value}")


def newer(aggregate: str, value: str) -> str:
    return value


def versioned(builder: StreamsBuilder, topic: str, store: str, retention: int) -> KTable:
    return builder.table(topic, store=Versioned(store, retention=ms(retention)))


def out(table: KTable) -> None:
    table.to_stream().to("out")


# Naming

topology("unnamed-stream-join")(lambda b: b.stream("left").join(b.stream("right"), plus, WINDOWS).to("out"))
topology("unnamed-stream-left-join")(lambda b: b.stream("left").left_join(b.stream("right"), plus, WINDOWS).to("out"))
topology("unnamed-stream-outer-join")(lambda b: b.stream("left").outer_join(b.stream("right"), plus, WINDOWS).to("out"))
topology("stream-outer-join-name-only")(
    lambda b: b.stream("left").outer_join(b.stream("right"), plus, WINDOWS, name="oj").to("out")
)
topology("stream-left-join-store-only")(
    lambda b: b.stream("left").left_join(b.stream("right"), plus, WINDOWS, store="st").to("out")
)
topology("stream-inner-join-store-only")(
    lambda b: b.stream("left").join(b.stream("right"), plus, WINDOWS, store="st").to("out")
)


@topology("unnamed-stream-join-repartitioned")
def unnamed_stream_join_repartitioned(b: StreamsBuilder) -> None:
    left = b.stream("left").select_key(to_reference)
    left.left_join(b.stream("right").select_key(to_reference), plus, WINDOWS).to("out")


@topology("named-stream-join-one-side-repartitioned")
def named_stream_join_one_side_repartitioned(b: StreamsBuilder) -> None:
    left = b.stream("left").select_key(to_reference)
    left.outer_join(b.stream("right"), plus, WINDOWS, name="oj", store="oj").to("out")


@topology("unnamed-stream-join-chain")
def unnamed_stream_join_chain(b: StreamsBuilder) -> None:
    joined = b.stream("one").join(b.stream("two"), plus, WINDOWS)
    joined.left_join(b.stream("three"), plus, WINDOWS).to("out")


@topology("stream-table-join-named-repartitioned")
def stream_table_join_named_repartitioned(b: StreamsBuilder) -> None:
    b.stream("stream").select_key(to_reference).join(b.table("table"), plus, name="sj").to("out")


@topology("stream-table-joins-in-a-row")
def stream_table_joins_in_a_row(b: StreamsBuilder) -> None:
    keyed = b.stream("stream").select_key(to_reference).map_values(bang)
    keyed.left_join(b.table("one"), plus).join(b.table("two"), plus).to("out")


@topology("stream-two-joins-of-one-rekeyed")
def stream_two_joins_of_one_rekeyed(b: StreamsBuilder) -> None:
    keyed = b.stream("stream").select_key(to_reference)
    keyed.join(b.table("one"), plus).to("out")
    keyed.join(b.table("two"), plus).to("out")


topology("unnamed-global-table")(
    lambda b: b.stream("stream").left_join(b.global_table("table"), plus, select=to_reference).to("out")
)
topology("named-global-table-join")(
    lambda b: b.stream("stream").join(b.global_table("table"), plus, select=to_reference, name="gj").to("out")
)
topology("unnamed-foreign-key-join")(
    lambda b: out(b.table("left").join(b.table("right"), plus, foreign_key=foreign_key))
)
topology("unnamed-foreign-key-left-join")(
    lambda b: out(b.table("left").left_join(b.table("right"), plus, foreign_key=foreign_key, store="joined"))
)


@topology("two-foreign-key-joins")
def two_foreign_key_joins(b: StreamsBuilder) -> None:
    left, right = b.table("left"), b.table("right", store="rtab")
    out(left.join(right, plus, foreign_key=foreign_key))
    out(left.left_join(right, plus, foreign_key=foreign_key, name="second"))


topology("unnamed-group-by-count")(lambda b: out(b.stream("in").group_by(by_first).count()))


@topology("unnamed-group-two-aggregations")
def unnamed_group_two_aggregations(b: StreamsBuilder) -> None:
    grouped = b.stream("in").group_by(by_first)
    grouped.count().to_stream().to("counts")
    out(grouped.aggregate(empty, dotted))


@topology("named-group-two-aggregations")
def named_group_two_aggregations(b: StreamsBuilder) -> None:
    grouped = b.stream("in").group_by(by_first, name="grp")
    grouped.count().to_stream().to("counts")
    out(grouped.reduce(comma, store="red"))


@topology("group-by-key-after-map")
def group_by_key_after_map(b: StreamsBuilder) -> None:
    mapped = b.stream("in").map(first_pair)
    mapped.group_by_key().count(name="cnt").to_stream().to("counts")
    out(mapped.group_by_key(name="g").aggregate(empty, dotted, name="agg", store="dots"))


@topology("aggregations-step-names")
def aggregations_step_names(b: StreamsBuilder) -> None:
    grouped = b.stream("in").group_by_key()
    grouped.count(name="c", store="cs").to_stream(name="ts").to("counts")
    grouped.reduce(comma, name="r").to_stream().to("reduced")
    grouped.aggregate(empty, dotted).to_stream().to("out", name="sink")


topology("table-group-by-unnamed")(lambda b: out(b.table("in").group_by(first_pair).count()))


@topology("table-group-by-two-aggregations")
def table_group_by_two_aggregations(b: StreamsBuilder) -> None:
    grouped = b.table("in").group_by(first_pair)
    grouped.count().to_stream().to("counts")
    out(grouped.aggregate(empty, add, subtract, store="agg"))


@topology("table-group-by-named-two-aggregations")
def table_group_by_named_two_aggregations(b: StreamsBuilder) -> None:
    grouped = b.table("in").group_by(first_pair, name="tg")
    grouped.count(name="c").to_stream().to("counts")
    out(grouped.reduce(comma, minus, store="red"))


@topology("table-joins-named")
def table_joins_named(b: StreamsBuilder) -> None:
    left, right = b.table("left"), b.table("right", store="rtab")
    out(left.join(right, plus, name="tj"))
    left.outer_join(right, plus, name="tk", store="joined").to_stream(name="s").to("out")


@topology("table-joins-unnamed")
def table_joins_unnamed(b: StreamsBuilder) -> None:
    left, right = b.table("left"), b.table("right")
    out(left.join(right, plus))
    out(left.left_join(right, plus))
    out(left.outer_join(right, plus))


@topology("table-steps-named")
def table_steps_named(b: StreamsBuilder) -> None:
    (
        b.table("in", value=Int64(), name="src")
        .filter(lambda key, value: value >= 5, name="f")
        .map_values(lambda value: value * 2, name="m", store="doubled", value=Int64())
        .filter_not(lambda key, value: value % 4 == 0, name="fn")
        .to_stream(name="ts")
        .to("out")
    )


@topology("table-steps-unnamed")
def table_steps_unnamed(b: StreamsBuilder) -> None:
    (
        b.table("in", value=Int64())
        .filter_not(lambda key, value: value >= 15)
        .map_values(lambda key, value: f"{key}{value}")
        .filter(is_even)
        .to_stream(lambda key, value: "-" if value is None else last(value))
        .to("out")
    )


@topology("to-table-repartitioned")
def to_table_repartitioned(b: StreamsBuilder) -> None:
    stream = b.stream("in")
    out(stream.select_key(by_first).to_table())
    out(stream.select_key(by_first).to_table(name="tt", store="tab").filter(is_even))


@topology("to-table-unnamed")
def to_table_unnamed(b: StreamsBuilder) -> None:
    stream = b.stream("in")
    out(stream.to_table().map_values(bang))
    out(stream.to_table().join(b.table("other"), plus))


@topology("suppress-named-and-not")
def suppress_named_and_not(b: StreamsBuilder) -> None:
    table = b.table("in")
    out(table.suppress(Suppress.until_time_limit(ms(30)), name="sup"))
    out(table.suppress(Suppress.until_time_limit(ms(10))))


@topology("two-streams-of-one-topic")
def two_streams_of_one_topic(b: StreamsBuilder) -> None:
    out(b.stream("in").to_table())
    b.stream("in").map_values(lambda value: f"s{text(value)}").to("out")


@topology("merge-and-branch-unnamed")
def merge_and_branch_unnamed(b: StreamsBuilder) -> None:
    branches = (
        b.stream("left")
        .merge(b.stream("right"))
        .split()
        .branch(lambda key, value: value is not None and value.startswith("L") and even(value))
        .branch(lambda key, value: value is not None and value.startswith("R"))
        .default()
    )
    stem = min(branches)[:-1]
    branches[f"{stem}1"].merge(branches[f"{stem}0"]).map_values(bang).to("out")
    branches[f"{stem}2"].to("out")


@topology("merge-and-branch-named")
def merge_and_branch_named(b: StreamsBuilder) -> None:
    branches = (
        b.stream("left")
        .merge(b.stream("right"), name="mg")
        .split(name="sp-")
        .branch(is_even, name="even")
        .branch(lambda key, value: value.startswith("R"))
        .default(name="rest")
    )
    branches["sp-even"].merge(branches["sp-rest"]).to("out")
    branches["sp-2"].to("out")


@topology("repartition-unnamed")
def repartition_unnamed(b: StreamsBuilder) -> None:
    out(b.stream("in").select_key(by_first).repartition().group_by_key().aggregate(empty, dotted))


@topology("repartition-twice")
def repartition_twice(b: StreamsBuilder) -> None:
    one = b.stream("in").repartition(name="one")
    one.select_key(by_first).map_values(bang).repartition().to("out")
    one.left_join(b.table("table"), plus).to("out")


def stateless_named(case: Case) -> Topology:
    b = new_builder()
    (
        b.stream("in", name="src")
        .filter(lambda key, value: not value.endswith("0"), name="a")
        .filter_not(lambda key, value: value.endswith("1"), name="b")
        .map(lambda key, value: (value, key), name="c")
        .map_values(lambda key, value: f"{text(key)}{text(value)}", name="d")
        .flat_map(lambda key, value: [(key, value), (value, key)], name="e")
        .flat_map_values(lambda value: [value, bang(value)], name="f")
        .select_key(lambda key, value: last(key), name="g")
        .peek(lambda key, value: case.effect(f"{key}{value}"), name="h")
        .to("out", name="i")
    )
    return b.build()


TOPOLOGIES["stateless-named"] = stateless_named


# The optimiser


def two_groupings(keyed: KStream) -> None:
    keyed.group_by_key().count(store="c").to_stream().to("counts")
    out(keyed.group_by_key().aggregate(empty, dotted, store="d"))


@topology("merged-groupings", optimize=True)
@topology("merged-groupings-off")
@topology("merged-groupings-alone", optimize=MERGE)
@topology("merged-groupings-other", optimize=REUSE)
def merged_groupings(b: StreamsBuilder) -> None:
    two_groupings(b.stream("in").select_key(by_first))


@topology("merged-groupings-map-values", optimize=True)
def merged_groupings_map_values(b: StreamsBuilder) -> None:
    keyed = b.stream("in").select_key(by_first)
    out(keyed.map_values(bang).group_by_key().aggregate(empty, dotted, store="d"))
    evens = keyed.filter(lambda key, value: value is not None and even(value))
    evens.group_by_key().count(store="c").to_stream().to("counts")
    out(keyed.group_by_key().reduce(comma, store="r"))


@topology("merged-groupings-named", optimize=True)
def merged_groupings_named(b: StreamsBuilder) -> None:
    keyed = b.stream("in").select_key(by_first)
    keyed.group_by_key(name="g1").count(store="c").to_stream().to("counts")
    out(keyed.group_by_key(name="g2").aggregate(empty, dotted, store="d"))


@topology("merged-group-bys", optimize=True)
def merged_group_bys(b: StreamsBuilder) -> None:
    stream = b.stream("in").filter(lambda key, value: value is not None)
    stream.group_by(by_first).count(store="c").to_stream().to("counts")
    out(stream.group_by(lambda key, value: last(value)).aggregate(empty, dotted, store="d"))


@topology("merged-two-key-changes", optimize=True)
def merged_two_key_changes(b: StreamsBuilder) -> None:
    keyed = b.stream("in").filter(lambda key, value: value is not None).select_key(by_first).map_values(bang)
    keyed.group_by_key().count(store="c").to_stream().to("counts")
    mapped = keyed.map(lambda key, value: (value[-2], value))
    out(mapped.group_by_key().aggregate(empty, dotted, store="d"))
    out(mapped.group_by_key().reduce(comma, store="r"))


@topology("merged-explicit-repartition", optimize=True)
def merged_explicit_repartition(b: StreamsBuilder) -> None:
    two_groupings(b.stream("in").select_key(by_first).repartition(name="rp"))


def merged_flat_map(case: Case) -> Topology:
    def pairs(key: str | None, value: str | None) -> Iterable[tuple[str, str]]:
        return [] if value is None else [(value[0], value), (last(value), value)]

    b = new_builder()
    keyed = b.stream("in").flat_map(pairs)
    keyed.group_by_key().count(store="c").to_stream().to("counts")
    logged = keyed.peek(lambda key, value: case.effect(f"{key}={value}"))
    out(logged.group_by_key().aggregate(empty, dotted, store="d"))
    return b.build(optimize=True)


TOPOLOGIES["merged-flat-map"] = merged_flat_map


@topology("merged-through-merge", optimize=True)
@topology("merged-through-merge-off")
def merged_through_merge(b: StreamsBuilder) -> None:
    left = b.stream("left").select_key(by_first)
    two_groupings(left.merge(b.stream("right").select_key(by_first)))


@topology("merged-one-side-of-merge", optimize=True)
def merged_one_side_of_merge(b: StreamsBuilder) -> None:
    two_groupings(b.stream("left").select_key(by_first).map_values(bang).merge(b.stream("right")))


@topology("merged-join-and-grouping", optimize=True)
def merged_join_and_grouping(b: StreamsBuilder) -> None:
    keyed = b.stream("in").select_key(to_reference)
    keyed.join(b.table("table", store="tab"), plus).to("out")
    keyed.group_by_key().count(store="c").to_stream().to("counts")


@topology("merged-stream-join-and-grouping", optimize=True)
def merged_stream_join_and_grouping(b: StreamsBuilder) -> None:
    keyed = b.stream("left").select_key(to_reference)
    keyed.left_join(b.stream("right"), plus, WINDOWS, name="j", store="j").to("out")
    upper = keyed.map_values(lambda value: None if value is None else value.upper())
    out(upper.group_by_key().aggregate(empty, dotted, store="d"))


@topology("reused-source-topics", optimize=True)
@topology("reused-source-topics-alone", optimize=REUSE)
@topology("reused-source-topics-off")
def reused_source_topics(b: StreamsBuilder) -> None:
    table = b.table("in", store="tab")
    out(table.filter(is_even))
    other = b.table("other")
    other.to_stream().join(table, plus).to("out")
    out(other.join(table, plus))


@topology("self-join-alone", optimize=SELF_JOIN)
@topology("self-join-merge-only", optimize=MERGE)
def self_join(b: StreamsBuilder) -> None:
    stream = b.stream("in")
    stream.join(stream, plus, WINDOWS).to("out")


@topology("self-left-join-optimized", optimize=True)
def self_left_join_optimized(b: StreamsBuilder) -> None:
    stream = b.stream("in")
    stream.left_join(stream, plus, WINDOWS, name="j", store="j").to("out")


@topology("self-join-two-reads")
@topology("self-join-two-reads-optimized", optimize=True)
def self_join_two_reads(b: StreamsBuilder) -> None:
    b.stream("in").join(b.stream("in"), plus, WINDOWS).to("out")


def bang_or_none(value: str | None) -> str | None:
    return None if value is None else bang(value)


@topology("self-join-mapped-optimized", optimize=True)
def self_join_mapped_optimized(b: StreamsBuilder) -> None:
    mapped = b.stream("in").map_values(bang_or_none)
    windows = JoinWindows.of(before=ms(20), after=ms(5), grace=ms(15))
    mapped.join(mapped, plus, windows, name="j", store="j").to("out")


@topology("self-join-one-side-mapped-optimized", optimize=True)
def self_join_one_side_mapped_optimized(b: StreamsBuilder) -> None:
    stream = b.stream("in")
    stream.join(stream.map_values(bang_or_none), plus, WINDOWS).to("out")


@topology("self-join-rekeyed-optimized", optimize=True)
def self_join_rekeyed_optimized(b: StreamsBuilder) -> None:
    keyed = b.stream("in").select_key(to_reference)
    keyed.join(keyed, plus, WINDOWS).to("out")


@topology("self-join-rekeyed")
def self_join_rekeyed(b: StreamsBuilder) -> None:
    keyed = b.stream("in").select_key(to_reference)
    keyed.join(keyed, plus, WINDOWS, name="j", store="j").to("out")


@topology("self-join-no-grace-optimized", optimize=True)
def self_join_no_grace_optimized(b: StreamsBuilder) -> None:
    stream = b.stream("in")
    stream.join(stream, key_plus, JoinWindows.of(ms(5)), name="j").to("out")
    stream.join(stream, plus, JoinWindows.of(ms(20))).to("out")


@topology("optimized-all-together", optimize=True)
def optimized_all_together(b: StreamsBuilder) -> None:
    table = b.table("table", store="tab")
    keyed = b.stream("in").select_key(to_reference)
    joined = keyed.left_join(table, plus)
    joined.to("out")
    joined.group_by_key().count(store="c").to_stream().to("counts")
    keyed.group_by_key().aggregate(empty, dotted, store="d").to_stream().join(table, plus).to("out")


# Table-table joins


@topology("table-join-chain-inner")
def table_join_chain_inner(b: StreamsBuilder) -> None:
    out(b.table("one").join(b.table("two"), plus).join(b.table("three"), plus))


@topology("table-join-chain-left-inner")
def table_join_chain_left_inner(b: StreamsBuilder) -> None:
    out(b.table("one").left_join(b.table("two"), plus).join(b.table("three"), plus))


@topology("table-join-chain-inner-left")
def table_join_chain_inner_left(b: StreamsBuilder) -> None:
    out(b.table("one").join(b.table("two"), plus).left_join(b.table("three"), plus))


@topology("table-join-chain-outer-left")
def table_join_chain_outer_left(b: StreamsBuilder) -> None:
    out(b.table("one").outer_join(b.table("two"), plus).left_join(b.table("three"), plus))


@topology("table-join-chain-inner-outer")
def table_join_chain_inner_outer(b: StreamsBuilder) -> None:
    joined = b.table("one").join(b.table("two"), plus, store="first")
    out(joined.outer_join(b.table("three"), plus, store="second"))


@topology("table-join-chain-right-nested")
def table_join_chain_right_nested(b: StreamsBuilder) -> None:
    out(b.table("one").left_join(b.table("two").outer_join(b.table("three"), plus), plus))


@topology("table-join-chain-materialized-end")
def table_join_chain_materialized_end(b: StreamsBuilder) -> None:
    out(b.table("one").left_join(b.table("two"), plus).outer_join(b.table("three"), plus, store="end"))


@topology("table-join-diamond")
def table_join_diamond(b: StreamsBuilder) -> None:
    one = b.table("one")
    out(one.join(b.table("two"), plus).outer_join(one.left_join(b.table("three"), plus), plus))


@topology("table-self-join")
def table_self_join(b: StreamsBuilder) -> None:
    table = b.table("in")
    out(table.join(table, plus))
    out(table.left_join(table.filter(is_even), plus))


@topology("table-join-filtered")
def table_join_filtered(b: StreamsBuilder) -> None:
    out(b.table("left").filter(is_even).join(b.table("right").map_values(bang), plus))


@topology("table-outer-join-filtered")
def table_outer_join_filtered(b: StreamsBuilder) -> None:
    out(b.table("left").filter_not(is_even).outer_join(b.table("right").filter(is_even), plus))


@topology("table-left-join-filtered-materialized")
def table_left_join_filtered_materialized(b: StreamsBuilder) -> None:
    left = b.table("left").filter(is_even, store="lf")
    out(left.left_join(b.table("right").filter(is_even, store="rf"), plus, store="joined"))


@topology("table-join-then-filter-materialized")
def table_join_then_filter_materialized(b: StreamsBuilder) -> None:
    joined = b.table("left").left_join(b.table("right"), plus)
    out(joined.filter(lambda key, value: last(value).isdigit() and even(value), store="end"))


@topology("table-join-then-map-values-materialized")
def table_join_then_map_values_materialized(b: StreamsBuilder) -> None:
    joined = b.table("left").outer_join(b.table("right"), plus)
    mapped = joined.map_values(lambda key, value: f"{key}{value}", store="end")
    out(mapped.filter_not(lambda key, value: "null" in value))


@topology("table-join-aggregated")
def table_join_aggregated(b: StreamsBuilder) -> None:
    counts = b.stream("left").group_by_key().count()
    right = b.table("right")
    out(counts.left_join(right, plus))
    out(right.outer_join(counts, plus))


@topology("table-join-two-aggregates")
def table_join_two_aggregates(b: StreamsBuilder) -> None:
    left = b.stream("left").group_by(by_first).aggregate(empty, dotted)
    out(left.join(b.stream("right").group_by_key().reduce(comma), plus, store="joined"))


@topology("table-join-suppressed")
def table_join_suppressed(b: StreamsBuilder) -> None:
    left = b.table("left").suppress(Suppress.until_time_limit(ms(20)))
    out(left.left_join(b.table("right"), plus))


@topology("table-outer-join-suppressed")
def table_outer_join_suppressed(b: StreamsBuilder) -> None:
    left = b.table("left")
    right = b.table("right").suppress(Suppress.until_time_limit(ms(20), max_records=2), name="sup")
    out(left.outer_join(right, plus, store="joined"))


@topology("table-join-then-suppress")
def table_join_then_suppress(b: StreamsBuilder) -> None:
    out(b.table("left").join(b.table("right"), plus).suppress(Suppress.until_time_limit(ms(25))))


@topology("table-join-longs")
def table_join_longs(b: StreamsBuilder) -> None:
    left, right = b.table("left", value=Int64(), store="ltab"), b.table("right", value=Int64(), store="rtab")
    total = left.join(right, lambda one, other: one + other, store="sum", value=Int64())
    out(total.filter(lambda key, value: value < 25))
    left.left_join(right, lambda one, other: one - (other or 0)).to_stream().to("diff", value=Int64())


@topology("table-join-windowed")
def table_join_windowed(b: StreamsBuilder) -> None:
    windows = TimeWindows.of(ms(20), grace=ms(10))
    left = b.stream("left").group_by_key().windowed_by(windows).count(store="lc")
    right = b.stream("right").group_by_key().windowed_by(windows).count(store="rc")
    left.outer_join(right, plus).to_stream().to("out", key=TimeWindowed(Str(), size=ms(20)), value=Str())


@topology("table-join-to-stream-joins")
def table_join_to_stream_joins(b: StreamsBuilder) -> None:
    right = b.table("right")
    joined = b.table("left").left_join(right, plus)
    joined.to_stream().join(right, plus).to("out")
    joined.to_stream(lambda key, value: f"{key}*").to("out")


@topology("table-inner-join-group-by")
def table_inner_join_group_by(b: StreamsBuilder) -> None:
    joined = b.table("left").join(b.table("right"), plus)
    grouped = joined.group_by(lambda key, value: (last(value), f"{key}/{value}"), name="grp")
    out(grouped.aggregate(empty, add, subtract, store="agg"))


@topology("table-outer-join-map-group-by")
def table_outer_join_map_group_by(b: StreamsBuilder) -> None:
    joined = b.table("left").outer_join(b.table("right"), plus).map_values(bang)
    kept = joined.filter(lambda key, value: ord(value[1]) % 2 == 0)
    out(kept.group_by(lambda key, value: (str(len(key)), value)).aggregate(empty, add, subtract))


def same(key: str, value: str) -> tuple[str, str]:
    return key, value


@topology("table-join-chain-group-by")
def table_join_chain_group_by(b: StreamsBuilder) -> None:
    joined = b.table("one").join(b.table("two"), plus).left_join(b.table("three"), plus)
    out(joined.group_by(same).aggregate(empty, add, subtract, store="agg"))


@topology("table-join-group-by-count")
def table_join_group_by_count(b: StreamsBuilder) -> None:
    joined = b.table("left").left_join(b.table("right"), lambda left, right: "-" if right is None else right)
    counts = joined.group_by(lambda key, value: (value, key)).count(store="c")
    out(counts.filter(lambda key, value: value > 0))


@topology("table-filtered-join-group-by")
def table_filtered_join_group_by(b: StreamsBuilder) -> None:
    joined = b.table("left").filter(is_even).left_join(b.table("right").filter(is_even), plus)
    out(joined.group_by(lambda key, value: (last(value), value)).reduce(comma, minus, store="red"))


@topology("table-suppressed-group-by")
def table_suppressed_group_by(b: StreamsBuilder) -> None:
    joined = b.table("left").suppress(Suppress.until_time_limit(ms(15))).join(b.table("right"), plus)
    out(joined.group_by(same).aggregate(empty, add, subtract))


@topology("table-sums-of-sums")
def table_sums_of_sums(b: StreamsBuilder) -> None:
    table = b.table("in", value=Int64(), store="tab")
    one = table.group_by(lambda key, value: (f"{key}{value % 2}", value), key=Str(), value=Int64()).reduce(
        lambda total, value: total + value, lambda total, value: total - value, store="one"
    )
    two = one.group_by(lambda key, value: (key[0], value), key=Str(), value=Int64()).aggregate(
        zero,
        lambda key, value, total: total + value,
        lambda key, value, total: total - value,
        store="two",
        value=Int64(),
    )
    out(two.join(table, plus))
    two.to_stream().to("sums")


@topology("versioned-left-join-plain")
def versioned_left_join_plain(b: StreamsBuilder) -> None:
    out(versioned(b, "left", "lv", 60).join(b.table("right", store="rtab"), plus))


@topology("versioned-right-left-join")
def versioned_right_left_join(b: StreamsBuilder) -> None:
    out(b.table("left", store="ltab").left_join(versioned(b, "right", "rv", 60), plus))


@topology("versioned-both-outer-join")
def versioned_both_outer_join(b: StreamsBuilder) -> None:
    out(versioned(b, "left", "lv", 60).outer_join(versioned(b, "right", "rv", 30), plus))


@topology("versioned-both-join-materialized")
def versioned_both_join_materialized(b: StreamsBuilder) -> None:
    out(versioned(b, "left", "lv", 60).join(versioned(b, "right", "rv", 60), plus, store="joined"))


@topology("versioned-join-result")
def versioned_join_result(b: StreamsBuilder) -> None:
    left, right = versioned(b, "left", "lv", 60), versioned(b, "right", "rv", 60)
    out(left.left_join(right, plus, store=Versioned("joined", retention=ms(60))))


@topology("versioned-plain-join-result")
def versioned_plain_join_result(b: StreamsBuilder) -> None:
    left, right = b.table("left", store="ltab"), b.table("right", store="rtab")
    out(left.outer_join(right, plus, store=Versioned("joined", retention=ms(60))).map_values(bang))


@topology("versioned-join-group-by")
def versioned_join_group_by(b: StreamsBuilder) -> None:
    joined = versioned(b, "left", "lv", 60).left_join(versioned(b, "right", "rv", 60), plus)
    grouped = joined.group_by(lambda key, value: (last(value), f"{key}/{value}"))
    out(grouped.aggregate(empty, add, subtract, store="agg"))


@topology("versioned-filtered-join")
def versioned_filtered_join(b: StreamsBuilder) -> None:
    left = versioned(b, "left", "lv", 60).filter(is_even)
    out(left.left_join(versioned(b, "right", "rv", 60).map_values(bang), plus))


@topology("versioned-filter-materialized")
def versioned_filter_materialized(b: StreamsBuilder) -> None:
    table = versioned(b, "in", "tab", 60)
    out(table.filter(is_even, store=Versioned("f", retention=ms(60))))
    out(table.filter_not(is_even, store="p"))


@topology("versioned-map-values-materialized")
def versioned_map_values_materialized(b: StreamsBuilder) -> None:
    table = versioned(b, "in", "tab", 60)
    out(table.map_values(bang, store=Versioned("m", retention=ms(30))))
    keyed = table.map_values(lambda key, value: f"{key}{value}", store="p")
    out(keyed.group_by(same).aggregate(empty, add, subtract, store="agg"))


@topology("versioned-to-table-and-aggregate")
def versioned_to_table_and_aggregate(b: StreamsBuilder) -> None:
    out(b.stream("in").to_table(store=Versioned("tt", retention=ms(60))))
    newest = b.stream("in").group_by_key().reduce(newer, store=Versioned("va", retention=ms(60)))
    out(newest)
    out(newest.filter(is_even).group_by(same).aggregate(empty, add, subtract))


@topology("versioned-aggregates-expired")
def versioned_aggregates_expired(b: StreamsBuilder) -> None:
    out(b.stream("in").group_by_key().aggregate(empty, dotted, store=Versioned("va", retention=ms(60))))
    grouped = b.table("in2").group_by(first_pair)
    out(grouped.aggregate(empty, add, subtract, store=Versioned("vt", retention=ms(60))))


@topology("versioned-serde-only")
def versioned_serde_only(b: StreamsBuilder) -> None:
    mapped = versioned(b, "left", "lv", 60).map_values(bang, value=Str())
    out(mapped.filter(lambda key, value: ord(value[1]) % 2 == 0, store="f"))
    out(mapped.join(versioned(b, "right", "rv", 60).filter(is_even, value=Str()), plus))
    out(mapped.group_by(same).aggregate(empty, add, subtract))


@topology("versioned-join-chain")
def versioned_join_chain(b: StreamsBuilder) -> None:
    joined = versioned(b, "one", "v1", 60).join(versioned(b, "two", "v2", 60), plus)
    out(joined.left_join(versioned(b, "three", "v3", 60), plus))


# Foreign-key joins


@topology("fk-chained")
def fk_chained(b: StreamsBuilder) -> None:
    joined = b.table("left").join(b.table("right"), plus, foreign_key=foreign_key)
    out(joined.join(b.table("third"), plus, foreign_key=last, store="end"))


@topology("fk-chained-left-materialized")
def fk_chained_left_materialized(b: StreamsBuilder) -> None:
    joined = b.table("left").left_join(b.table("right"), plus, foreign_key=foreign_key, name="f1", store="mid")

    def reference(value: str) -> str | None:
        return None if last(value) == "l" else last(value)

    out(joined.left_join(b.table("third"), plus, foreign_key=reference, name="f2"))


@topology("fk-over-filtered")
def fk_over_filtered(b: StreamsBuilder) -> None:
    left = b.table("left").filter(is_even)
    right = b.table("right").map_values(bang).filter_not(lambda key, value: ord(value[1]) % 2 == 0)
    out(left.join(right, plus, foreign_key=foreign_key))


@topology("fk-left-over-filtered")
def fk_left_over_filtered(b: StreamsBuilder) -> None:
    left = b.table("left").map_values(lambda value: f"{value}0")
    out(left.left_join(b.table("right").filter(is_even), plus, foreign_key=foreign_key, store="joined"))


topology("fk-many-left-rows")(lambda b: out(b.table("left").join(b.table("right"), plus, foreign_key=foreign_key)))


@topology("fk-left-key-extractor")
def fk_left_key_extractor(b: StreamsBuilder) -> None:
    def reference(key: str, value: str) -> str | None:
        return "x" if key == "a" else before_colon(value) if key == "b" else None

    out(b.table("left").left_join(b.table("right"), plus, foreign_key=reference, name="fk"))


@topology("fk-long-foreign-keys")
def fk_long_foreign_keys(b: StreamsBuilder) -> None:
    left = b.table("left", value=Int64(), store="ltab")
    right = b.table("right", key=Int64())
    out(left.join(right, plus, foreign_key=lambda value: None if value % 4 == 3 else value % 4, store="joined"))


@topology("fk-long-left-keys")
def fk_long_left_keys(b: StreamsBuilder) -> None:
    left = b.table("left", key=Int64())
    left.left_join(b.table("right"), plus, foreign_key=foreign_key).to_stream().to("out", key=Int64(), value=Str())


@topology("fk-self")
def fk_self(b: StreamsBuilder) -> None:
    table = b.table("in", store="tab")
    out(table.left_join(table, lambda left, right: f"{left}<{text(right)}", foreign_key=foreign_key))


@topology("fk-then-group-by")
def fk_then_group_by(b: StreamsBuilder) -> None:
    joined = b.table("left").join(b.table("right"), plus, foreign_key=foreign_key, store="joined")
    grouped = joined.group_by(lambda key, value: (last(value), f"{key}{value}"))
    out(grouped.aggregate(empty, add, subtract, store="agg"))


@topology("fk-unmaterialized-then-group-by")
def fk_unmaterialized_then_group_by(b: StreamsBuilder) -> None:
    joined = b.table("left").left_join(b.table("right"), plus, foreign_key=foreign_key)
    out(joined.group_by(same, name="grp").aggregate(empty, add, subtract, store="agg"))


@topology("fk-then-table-join")
def fk_then_table_join(b: StreamsBuilder) -> None:
    left = b.table("left")
    joined = left.join(b.table("right"), plus, foreign_key=foreign_key)
    out(joined.outer_join(left, plus))
    out(joined.filter(is_even, store="f"))


@topology("fk-stream-table-join")
def fk_stream_table_join(b: StreamsBuilder) -> None:
    right = b.table("right")
    joined = b.table("left").left_join(right, plus, foreign_key=foreign_key)
    right.to_stream().join(joined, plus).to("out")


@topology("fk-aggregated-right")
def fk_aggregated_right(b: StreamsBuilder) -> None:
    out(b.table("left").left_join(b.stream("right").group_by_key().count(), plus, foreign_key=foreign_key))


@topology("fk-aggregated-left")
def fk_aggregated_left(b: StreamsBuilder) -> None:
    def not_five(aggregate: str, value: str) -> str | None:
        return None if value.endswith("5") else value

    left = b.stream("left").group_by_key().reduce(not_five, store="red")
    out(left.join(b.table("right"), plus, foreign_key=foreign_key, name="fk"))


@topology("fk-versioned-left")
def fk_versioned_left(b: StreamsBuilder) -> None:
    out(versioned(b, "left", "lv", 60).join(b.table("right", store="rtab"), plus, foreign_key=foreign_key))


@topology("fk-versioned-right")
def fk_versioned_right(b: StreamsBuilder) -> None:
    left = b.table("left", store="ltab")
    out(left.left_join(versioned(b, "right", "rv", 60), plus, foreign_key=foreign_key, store="joined"))


@topology("fk-versioned-both")
def fk_versioned_both(b: StreamsBuilder) -> None:
    left, right = versioned(b, "left", "lv", 60), versioned(b, "right", "rv", 60)
    out(left.left_join(right, plus, foreign_key=foreign_key, store=Versioned("joined", retention=ms(60))))


@topology("fk-versioned-filtered")
def fk_versioned_filtered(b: StreamsBuilder) -> None:
    left = versioned(b, "left", "lv", 60).filter(is_even)
    out(left.join(versioned(b, "right", "rv", 30).map_values(bang), plus, foreign_key=foreign_key))


@topology("fk-optimized", optimize=True)
def fk_optimized(b: StreamsBuilder) -> None:
    out(b.table("left").left_join(b.table("right"), plus, foreign_key=foreign_key))


@topology("fk-rekeyed-tables")
def fk_rekeyed_tables(b: StreamsBuilder) -> None:
    left = b.stream("left").select_key(lambda key, value: text(key) * 2).to_table()
    out(left.join(b.stream("right").to_table(store="rt"), plus, foreign_key=foreign_key))


# Stream-table joins


@topology("stream-filtered-table-join")
def stream_filtered_table_join(b: StreamsBuilder) -> None:
    b.stream("stream").join(b.table("table").filter(is_even), plus).to("out")


@topology("stream-filtered-table-left-join")
def stream_filtered_table_left_join(b: StreamsBuilder) -> None:
    stream = b.stream("stream")
    stream.left_join(b.table("table", store="tab").filter_not(is_even).map_values(bang), key_plus).to("out")


@topology("stream-mapped-table-join")
def stream_mapped_table_join(b: StreamsBuilder) -> None:
    def mapped(key: str, value: str) -> str | None:
        return None if last(value) in "05" else f"{key}{value}"

    b.stream("stream").join(b.table("table").map_values(mapped, store="m"), plus).to("out")


@topology("stream-aggregated-table-join")
def stream_aggregated_table_join(b: StreamsBuilder) -> None:
    stream = b.stream("stream")
    stream.join(b.stream("table").group_by_key().count(), plus).to("out")
    stream.left_join(stream.group_by_key().count(), plus).to("out")


@topology("stream-joined-table-join")
def stream_joined_table_join(b: StreamsBuilder) -> None:
    b.stream("stream").join(b.table("one").left_join(b.table("two"), plus), plus).to("out")


@topology("stream-joined-filtered-table-left-join")
def stream_joined_filtered_table_left_join(b: StreamsBuilder) -> None:
    stream = b.stream("stream")
    stream.left_join(b.table("one").join(b.table("two"), plus).filter(is_even), plus).to("out")


@topology("stream-suppressed-table-join")
def stream_suppressed_table_join(b: StreamsBuilder) -> None:
    stream = b.stream("stream")
    stream.left_join(b.table("table").suppress(Suppress.until_time_limit(ms(20))), plus).to("out")


@topology("stream-table-left-join-rekeyed")
def stream_table_left_join_rekeyed(b: StreamsBuilder) -> None:
    joined = b.stream("stream").select_key(to_reference).left_join(b.table("table"), plus)
    joined.group_by_key().count().to_stream().map_values(str).to("out")


@topology("stream-table-join-longs")
def stream_table_join_longs(b: StreamsBuilder) -> None:
    stream = b.stream("stream", value=Int64()).select_key(lambda key, value: text(key) * 2)
    table = b.table("table", value=Int64(), store="tab")
    joined = stream.left_join(
        table,
        lambda one, other: one + (other or 0),
        key=Str(),
        value=Int64(),
        other_value=Int64(),
        name="j",
    )
    joined.to("out", value=Int64())


@topology("stream-own-table-join")
def stream_own_table_join(b: StreamsBuilder) -> None:
    stream = b.stream("in")
    stream.join(stream.to_table(), plus).to("out")
    evens = stream.filter(lambda key, value: value is not None and even(value))
    stream.left_join(evens.to_table(store="t"), plus).to("out")


@topology("stream-table-join-then-group")
def stream_table_join_then_group(b: StreamsBuilder) -> None:
    joined = b.stream("stream").join(b.table("table"), plus)
    out(joined.group_by(lambda key, value: last(value)).aggregate(empty, dotted, store="agg"))


@topology("stream-grace-join-equal-retention")
def stream_grace_join_equal_retention(b: StreamsBuilder) -> None:
    b.stream("stream").join(versioned(b, "table", "tab", 30), plus, grace=ms(30), name="sj").to("out")


@topology("stream-grace-left-join-long-retention")
def stream_grace_left_join_long_retention(b: StreamsBuilder) -> None:
    b.stream("stream").left_join(versioned(b, "table", "tab", 500), key_plus, grace=ms(50), name="sj").to("out")


@topology("stream-grace-join-zero")
def stream_grace_join_zero(b: StreamsBuilder) -> None:
    b.stream("stream").join(versioned(b, "table", "tab", 60), plus, grace=ms(0), name="z").to("out")


@topology("stream-grace-join-unnamed")
def stream_grace_join_unnamed(b: StreamsBuilder) -> None:
    b.stream("stream").join(versioned(b, "table", "tab", 60), plus, grace=ms(15)).to("out")


@topology("stream-grace-join-rekeyed")
def stream_grace_join_rekeyed(b: StreamsBuilder) -> None:
    keyed = b.stream("stream").select_key(to_reference)
    keyed.join(versioned(b, "table", "tab", 60), plus, grace=ms(15), name="g").to("out")


@topology("stream-grace-join-duplicates")
def stream_grace_join_duplicates(b: StreamsBuilder) -> None:
    b.stream("stream").left_join(versioned(b, "table", "tab", 60), plus, grace=ms(10), name="g").to("out")


@topology("stream-versioned-filtered-join")
def stream_versioned_filtered_join(b: StreamsBuilder) -> None:
    stream = b.stream("stream")
    stream.left_join(versioned(b, "table", "tab", 60).filter(is_even).map_values(bang), plus).to("out")


@topology("stream-versioned-map-materialized-join")
def stream_versioned_map_materialized_join(b: StreamsBuilder) -> None:
    stream, table = b.stream("stream"), versioned(b, "table", "tab", 60)
    stream.join(table.map_values(bang, store="m"), plus).to("out")
    asked = table.map_values(lambda value: f"{value}?", store=Versioned("mv", retention=ms(60)))
    stream.join(asked, plus).to("out")


@topology("stream-versioned-joined-join")
def stream_versioned_joined_join(b: StreamsBuilder) -> None:
    stream, one, two = b.stream("stream"), versioned(b, "one", "v1", 60), versioned(b, "two", "v2", 60)
    stream.left_join(one.join(two, plus, store=Versioned("j", retention=ms(60))), plus).to("out")


@topology("stream-versioned-aggregate-join")
def stream_versioned_aggregate_join(b: StreamsBuilder) -> None:
    stream = b.stream("stream")
    newest = b.stream("table").group_by_key().reduce(newer, store=Versioned("va", retention=ms(60)))
    stream.join(newest, plus, grace=ms(10), name="g").to("out")


def own_key(key: str | None, value: str | None) -> str | None:
    return key


@topology("global-join-with-key")
def global_join_with_key(b: StreamsBuilder) -> None:
    b.stream("stream").join(b.global_table("table", store="g"), key_plus, select=to_reference).to("out")


@topology("global-left-join-with-key")
def global_left_join_with_key(b: StreamsBuilder) -> None:
    b.stream("stream").left_join(b.global_table("table", store="g"), key_plus, select=own_key, name="gl").to("out")


@topology("global-joins-in-a-row")
def global_joins_in_a_row(b: StreamsBuilder) -> None:
    one, two = b.global_table("table", store="g1"), b.global_table("two")
    joined = b.stream("stream").join(one, plus, select=to_reference)
    joined.left_join(two, plus, select=lambda key, value: last(value)).to("out")


@topology("global-join-rekeyed")
def global_join_rekeyed(b: StreamsBuilder) -> None:
    keyed = b.stream("stream").select_key(to_reference)
    joined = keyed.join(b.global_table("table", store="g"), plus, select=own_key)
    out(joined.group_by_key().aggregate(empty, dotted))


# Stream-stream joins

FUTURE_ONLY = JoinWindows.of(before=ms(-5), after=ms(20), grace=ms(15))
PAST_ONLY = JoinWindows.of(before=ms(20), after=ms(-5), grace=ms(15))


def joined_streams(
    join: Callable[..., KStream], windows: JoinWindows, joiner: Callable[..., str] = plus, name: str | None = "j"
) -> Define:
    """Return what joins the streams `left` and `right` with the step and stores of one name; `join` is KStream's."""
    return lambda b: join(b.stream("left"), b.stream("right"), joiner, windows, name=name, store=name).to("out")


topology("join-before-negative")(joined_streams(KStream.join, FUTURE_ONLY))
topology("left-join-before-negative")(joined_streams(KStream.left_join, FUTURE_ONLY))
topology("outer-join-before-negative")(joined_streams(KStream.outer_join, FUTURE_ONLY))
topology("left-join-after-negative")(joined_streams(KStream.left_join, PAST_ONLY))
topology("outer-join-after-negative")(joined_streams(KStream.outer_join, PAST_ONLY))
topology("outer-join-one-distance")(joined_streams(KStream.outer_join, JoinWindows.of(before=ms(-5), after=ms(5))))
topology("outer-join-same-time")(joined_streams(KStream.outer_join, JoinWindows.of(ms(0), grace=ms(5))))
topology("outer-join-before-only")(joined_streams(KStream.outer_join, JoinWindows.of(ms(12), after=ms(0))))
topology("outer-join-large-grace")(
    joined_streams(KStream.outer_join, JoinWindows.of(ms(15), before=ms(5), grace=ms(100)), name=None)
)
topology("outer-join-duplicates", "outer-join-interval-configured")(
    joined_streams(KStream.outer_join, JoinWindows.of(ms(5), grace=ms(5)))
)
topology("inner-join-duplicates")(joined_streams(KStream.join, JoinWindows.of(ms(5), grace=ms(5)), key_plus))
topology("left-join-duplicates")(joined_streams(KStream.left_join, JoinWindows.of(before=ms(3), after=ms(6)), key_plus))


@topology("self-left-join")
def self_left_join(b: StreamsBuilder) -> None:
    stream = b.stream("left")
    stream.left_join(stream, plus, JoinWindows.of(ms(5), grace=ms(5)), name="j", store="j").to("out")
    b.stream("right").to("out")


@topology("self-outer-join-two-reads")
def self_outer_join_two_reads(b: StreamsBuilder) -> None:
    stream = b.stream("in")
    evens = b.stream("in").filter(lambda key, value: value is not None and even(value))
    stream.outer_join(evens, plus, JoinWindows.of(ms(8), grace=ms(5))).to("out")


@topology("outer-join-repartitioned")
def outer_join_repartitioned(b: StreamsBuilder) -> None:
    left = b.stream("left").select_key(to_reference)
    left.outer_join(b.stream("right").select_key(to_reference), plus, WINDOWS, name="j", store="j").to("out")


@topology("join-of-joins")
def join_of_joins(b: StreamsBuilder) -> None:
    joined = b.stream("one").join(b.stream("two"), plus, WINDOWS, name="a", store="a")
    joined.outer_join(b.stream("three"), plus, WINDOWS, name="b", store="b").to("out")


@topology("left-join-of-outer-join")
def left_join_of_outer_join(b: StreamsBuilder) -> None:
    outer = b.stream("one").outer_join(b.stream("two"), plus, JoinWindows.of(ms(5)), name="a", store="a")
    b.stream("three").left_join(outer, plus, WINDOWS, name="b", store="b").to("out")


def outer_joined(b: StreamsBuilder) -> KStream:
    return b.stream("left").outer_join(b.stream("right"), plus, WINDOWS, name="j", store="j")


@topology("outer-join-then-group")
def outer_join_then_group(b: StreamsBuilder) -> None:
    out(outer_joined(b).group_by_key().aggregate(empty, dotted, store="agg"))


@topology("outer-join-then-group-by")
def outer_join_then_group_by(b: StreamsBuilder) -> None:
    out(outer_joined(b).group_by(lambda key, value: last(value)).count(store="c"))


@topology("outer-join-then-aggregate-cached")
def outer_join_then_aggregate_cached(b: StreamsBuilder) -> None:
    def without_fives(key: str, value: str, aggregate: str) -> str | None:
        return None if value.endswith("5") else dotted(key, value, aggregate)

    windows = JoinWindows.of(before=ms(20), after=ms(5))
    joined = b.stream("left").outer_join(b.stream("right"), plus, windows, name="j", store="j")
    out(joined.group_by_key().aggregate(empty, without_fives, store="agg"))


topology("outer-join-interval-asymmetric")(
    joined_streams(KStream.outer_join, JoinWindows.of(before=ms(20), after=ms(5), grace=ms(10)))
)
topology("left-join-interval-and-wall-clock")(joined_streams(KStream.left_join, JoinWindows.of(ms(5)), name=None))


@topology("outer-join-longs")
def outer_join_longs(b: StreamsBuilder) -> None:
    left = b.stream("left", value=Int64())
    serdes = {"key": Str(), "value": Int64(), "other_value": Str()}
    left.outer_join(b.stream("right"), key_plus, WINDOWS, name="j", store="s", **serdes).to("out")


@topology("join-given-stores")
def join_given_stores(b: StreamsBuilder) -> None:
    stores = tuple(Window(name, size=ms(20), retention=ms(35), duplicates=True) for name in ("ls", "rs"))
    b.stream("left").join(b.stream("right"), plus, WINDOWS, store=stores).to("out")


topology("left-join-key-order")(joined_streams(KStream.left_join, JoinWindows.of(ms(10))))
topology("outer-join-key-order")(
    joined_streams(KStream.outer_join, JoinWindows.of(before=ms(10), after=ms(4), grace=ms(3)))
)


@topology("two-joins-of-one-pair")
def two_joins_of_one_pair(b: StreamsBuilder) -> None:
    left, right = b.stream("left"), b.stream("right")
    left.join(right, plus, JoinWindows.of(ms(5))).to("out")
    left.left_join(right, plus, JoinWindows.of(ms(10))).to("out")
    right.outer_join(left, plus, JoinWindows.of(ms(3))).to("out")


@topology("stream-join-then-table-join")
def stream_join_then_table_join(b: StreamsBuilder) -> None:
    joined = b.stream("left").left_join(b.stream("right"), plus, JoinWindows.of(ms(10)))
    out(joined.join(b.table("table"), plus).to_table())


# Headers in joins

topology("headers-stream-stream-inner")(
    lambda b: b.stream("left").join(b.stream("right"), plus, WINDOWS, store="j").to("out")
)
topology("headers-stream-stream-left")(joined_streams(KStream.left_join, WINDOWS, name=None))
topology("headers-stream-stream-outer")(joined_streams(KStream.outer_join, JoinWindows.of(ms(10)), name=None))


@topology("headers-self-join", optimize=True)
def headers_self_join(b: StreamsBuilder) -> None:
    stream = b.stream("left")
    stream.join(stream, plus, WINDOWS).to("out")


@topology("headers-stream-table")
def headers_stream_table(b: StreamsBuilder) -> None:
    right = b.table("right")
    b.stream("left").join(right, plus).to("out")
    b.stream("left").left_join(right.filter(is_even), plus).to("out")


@topology("headers-stream-table-rekeyed")
def headers_stream_table_rekeyed(b: StreamsBuilder) -> None:
    b.stream("left").select_key(by_first).left_join(b.table("right"), plus).to("out")


@topology("headers-grace-join")
def headers_grace_join(b: StreamsBuilder) -> None:
    b.stream("left").join(versioned(b, "right", "rv", 60), plus, grace=ms(15), name="g").to("out")


@topology("headers-global-table")
def headers_global_table(b: StreamsBuilder) -> None:
    b.stream("left").left_join(b.global_table("right", store="g"), plus, select=own_key).to("out")


@topology("headers-table-table")
def headers_table_table(b: StreamsBuilder) -> None:
    left, right = b.table("left"), b.table("right")
    out(left.join(right, plus))
    out(left.outer_join(right, plus, store="joined"))


@topology("headers-table-steps")
def headers_table_steps(b: StreamsBuilder) -> None:
    left = b.table("left")
    out(left.filter(is_even).map_values(bang, store="m"))
    joined = left.left_join(b.table("right"), plus)
    out(joined.group_by(lambda key, value: (last(value), value)).aggregate(empty, add, subtract))


@topology("headers-foreign-key")
def headers_foreign_key(b: StreamsBuilder) -> None:
    left, right = b.table("left"), b.table("right")
    out(left.join(right, plus, foreign_key=foreign_key))
    out(left.left_join(right, plus, foreign_key=foreign_key, store="joined"))


@topology("headers-suppress")
def headers_suppress(b: StreamsBuilder) -> None:
    left = b.table("left")
    joined = left.join(b.table("right"), plus)
    out(joined.suppress(Suppress.until_time_limit(ms(15), max_records=3)))
    out(left.suppress(Suppress.until_time_limit(ms(30))))


@topology("headers-aggregates")
def headers_aggregates(b: StreamsBuilder) -> None:
    left = b.stream("left")
    left.group_by(lambda key, value: last(value)).count().to_stream().to("counts")
    right = b.table("right")
    out(left.merge(right.to_stream()).to_table())
    out(right.group_by(lambda key, value: (last(value), value)).reduce(comma, minus))
