"""Chapters: windowed aggregations, emit on window close, suppress."""

from headwater import Int64, SessionWindows, SlidingWindows, Suppress, TimeWindows, Topology, Window
from tests.conformance.case import Case
from tests.conformance.chapters.registry import dotted, empty, first_character, ms, new_builder, text, topology

TUMBLING = TimeWindows.of(ms(50), grace=ms(20))
HOPPING = TimeWindows.of(ms(50), grace=ms(20), advance=ms(20))
SLIDING = SlidingWindows.of(ms(10), grace=ms(30))
SESSIONS = SessionWindows.of(ms(20), grace=ms(30))


@topology("tumbling-count")
def tumbling_count(case: Case) -> Topology:
    builder = new_builder()
    builder.stream("in").group_by_key().windowed_by(TUMBLING).count(store="counts").to_stream().to("out")
    return builder.build()


@topology("tumbling-no-grace-reduce")
def tumbling_no_grace_reduce(case: Case) -> Topology:
    builder = new_builder()
    (
        builder.stream("in")
        .group_by_key()
        .windowed_by(TimeWindows.of(ms(50)))
        .reduce(lambda aggregate, value: f"{text(aggregate)},{text(value)}", store="red")
        .to_stream()
        .to("out")
    )
    return builder.build()


@topology("tumbling-count-after-group-by")
def tumbling_count_after_group_by(case: Case) -> Topology:
    builder = new_builder()
    (
        builder.stream("in")
        .group_by(lambda key, value: "0" if value is None else first_character(value), name="grp")
        .windowed_by(TUMBLING)
        .count(store="counts")
        .to_stream()
        .to("out")
    )
    return builder.build()


@topology("hopping-aggregate")
def hopping_aggregate(case: Case) -> Topology:
    builder = new_builder()
    builder.stream("in").group_by_key().windowed_by(HOPPING).aggregate(empty, dotted, store="agg").to_stream().to("out")
    return builder.build()


@topology("sliding-aggregate")
def sliding_aggregate(case: Case) -> Topology:
    builder = new_builder()
    builder.stream("in").group_by_key().windowed_by(SLIDING).aggregate(empty, dotted, store="agg").to_stream().to("out")
    return builder.build()


@topology("sliding-count-small-times")
def sliding_count_small_times(case: Case) -> Topology:
    builder = new_builder()
    (
        builder.stream("in")
        .group_by_key()
        .windowed_by(SlidingWindows.of(ms(100), grace=ms(1000)))
        .count(store="counts")
        .to_stream()
        .to("out")
    )
    return builder.build()


@topology("session-count")
def session_count(case: Case) -> Topology:
    builder = new_builder()
    builder.stream("in").group_by_key().windowed_by(SESSIONS).count(store="counts").to_stream().to("out")
    return builder.build()


@topology("session-aggregate")
def session_aggregate(case: Case) -> Topology:
    builder = new_builder()
    (
        builder.stream("in")
        .group_by_key()
        .windowed_by(SESSIONS)
        .aggregate(empty, dotted, merge=lambda key, a, b: f"({a}&{b})", store="agg")
        .to_stream()
        .to("out")
    )
    return builder.build()


# Emit on window close


def emit_on_close(windows: TimeWindows | SlidingWindows, store: str | Window) -> Topology:
    """Emit the dotted text of each window of `in` once, when it closes."""
    builder = new_builder()
    (
        builder.stream("in")
        .group_by_key()
        .windowed_by(windows)
        .emit_strategy("on-close")
        .aggregate(empty, dotted, store=store)
        .to_stream()
        .to("out")
    )
    return builder.build()


@topology("emit-close-tumbling")
def emit_close_tumbling(case: Case) -> Topology:
    return emit_on_close(TUMBLING, "agg")


@topology("emit-close-tumbling-interval")
def emit_close_tumbling_interval(case: Case) -> Topology:
    return emit_on_close(TUMBLING, Window("agg", retention=ms(10000)))


@topology("emit-close-hopping")
def emit_close_hopping(case: Case) -> Topology:
    return emit_on_close(HOPPING, "agg")


@topology("emit-close-sliding")
def emit_close_sliding(case: Case) -> Topology:
    return emit_on_close(SLIDING, "agg")


@topology("emit-close-session")
def emit_close_session(case: Case) -> Topology:
    builder = new_builder()
    (
        builder.stream("in")
        .group_by_key()
        .windowed_by(SESSIONS)
        .emit_strategy("on-close")
        .aggregate(empty, dotted, merge=lambda key, a, b: f"{a}&{b}", store="agg")
        .to_stream()
        .to("out")
    )
    return builder.build()


# Suppress


@topology("suppress-window-close-tumbling")
def suppress_window_close_tumbling(case: Case) -> Topology:
    builder = new_builder()
    (
        builder.stream("in")
        .group_by_key()
        .windowed_by(TUMBLING)
        .aggregate(empty, dotted, store="agg")
        .suppress(Suppress.until_window_closes())
        .to_stream()
        .to("out")
    )
    return builder.build()


@topology("suppress-window-close-hopping")
def suppress_window_close_hopping(case: Case) -> Topology:
    builder = new_builder()
    (
        builder.stream("in")
        .group_by_key()
        .windowed_by(HOPPING)
        .count(store="counts")
        .suppress(Suppress.until_window_closes())
        .to_stream()
        .to("out")
    )
    return builder.build()


@topology("suppress-window-close-session")
def suppress_window_close_session(case: Case) -> Topology:
    builder = new_builder()
    (
        builder.stream("in")
        .group_by_key()
        .windowed_by(SESSIONS)
        .count(store="counts")
        .suppress(Suppress.until_window_closes())
        .to_stream()
        .to("out")
    )
    return builder.build()


@topology("suppress-window-close-sliding")
def suppress_window_close_sliding(case: Case) -> Topology:
    builder = new_builder()
    (
        builder.stream("in")
        .group_by_key()
        .windowed_by(SLIDING)
        .aggregate(empty, dotted, store="agg")
        .suppress(Suppress.until_window_closes())
        .to_stream()
        .to("out")
    )
    return builder.build()


@topology("suppress-time-limit-windowed")
def suppress_time_limit_windowed(case: Case) -> Topology:
    builder = new_builder()
    (
        builder.stream("in")
        .group_by_key()
        .windowed_by(TUMBLING)
        .count(store="counts")
        .suppress(Suppress.until_time_limit(ms(30)))
        .to_stream()
        .to("out")
    )
    return builder.build()


def suppressed_table(suppress: Suppress) -> Topology:
    """Emit the suppressed updates of the table `in`."""
    builder = new_builder()
    builder.table("in", value=Int64(), store="tab").suppress(suppress).to_stream().to("out")
    return builder.build()


@topology("suppress-time-limit-table")
def suppress_time_limit_table(case: Case) -> Topology:
    return suppressed_table(Suppress.until_time_limit(ms(30)))


@topology("suppress-max-records-emit-early")
def suppress_max_records_emit_early(case: Case) -> Topology:
    return suppressed_table(Suppress.until_time_limit(ms(1000), max_records=3))


@topology("suppress-time-limit-zero")
def suppress_time_limit_zero(case: Case) -> Topology:
    return suppressed_table(Suppress.until_time_limit(ms(0)))


@topology("suppress-count-table")
def suppress_count_table(case: Case) -> Topology:
    builder = new_builder()
    (
        builder.stream("in")
        .group_by_key()
        .count(store="counts")
        .suppress(Suppress.until_time_limit(ms(40), max_records=10))
        .to_stream()
        .to("out")
    )
    return builder.build()
