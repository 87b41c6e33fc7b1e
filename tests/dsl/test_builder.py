"""What is wrong with a topology is said at once, all of it, by step and place; and what is right is named as always."""

import logging
import re
from datetime import timedelta
from typing import Any

import pytest

from headwater import (
    Int64,
    JoinWindows,
    KeyValue,
    Processor,
    SessionWindows,
    StreamsBuilder,
    Suppress,
    TimeWindows,
    Topology,
    TopologyError,
    UnlimitedWindows,
    Versioned,
    Window,
)

MINUTE = timedelta(minutes=1)
ONE = Processor()


def faults(builder: StreamsBuilder, **options: Any) -> str:
    with pytest.raises(TopologyError) as raised:
        builder.build(**options)
    return str(raised.value)


def test_every_fault_is_listed_with_its_step_and_place() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in")
    stream.map_values(lambda a, b, c: a)
    stream.filter(lambda key: True, name="too-few")
    stream.map("not callable")
    text = faults(builder)
    assert text.startswith("The topology has 3 faults:")
    assert "KSTREAM-MAPVALUES-0000000001" in text
    assert "too-few" in text
    assert "KSTREAM-MAP-0000000003" in text
    assert len(re.findall(r"test_builder:\d+", text)) == 2


@pytest.mark.parametrize(
    ("build", "part"),
    [
        (lambda b: b.stream([]), "at least one topic"),
        (lambda b: b.stream("in", name="bad name"), "letters, digits"),
        (lambda b: b.stream("in", reset="sometimes"), "reset="),
        (lambda b: b.stream("in").repartition(partitions=0), "at least 1"),
        (lambda b: b.stream("in").process(object(), name="p"), "callable"),
        (lambda b: b.stream("in").process(dict, stores=["missing"]), "'missing'"),
        (lambda b: [b.stream("in").to("a", name="s"), b.stream("in").to("b", name="s")], "'s' has already been added"),
        (lambda b: [b.stream("in"), b.table("in")], "already read"),
        (lambda b: [b.stream(["a", "b"]), b.stream(["b", "c"])], "overlapping"),
        (lambda b: [b.stream("a", reset="latest").to("x"), b.stream("a").to("y")], "reset="),
        (lambda b: b.table("t").suppress(Suppress.until_window_closes()), "windowed aggregate"),
        (
            lambda b: b.table("t", store=Versioned("v", retention=MINUTE)).suppress(Suppress.until_time_limit(MINUTE)),
            "without versions",
        ),
        (lambda b: b.global_table("g", store=Versioned("v", retention=MINUTE)), "cannot be versioned"),
        (
            lambda b: b.stream("s").join(b.table("t"), lambda a, c: a, grace=MINUTE),
            "versioned table",
        ),
        (
            lambda b: b.stream("s").join(
                b.table("t", store=Versioned("v", retention=MINUTE)), lambda a, c: a, grace=2 * MINUTE
            ),
            "history retention",
        ),
        (
            lambda b: b.stream("s").group_by_key().windowed_by(UnlimitedWindows.of()).emit_strategy("on-close").count(),
            "never do",
        ),
        (
            lambda b: (
                b.stream("s")
                .group_by_key()
                .windowed_by(TimeWindows.of(MINUTE))
                .count(store=Window("w", retention=timedelta(seconds=1)))
            ),
            "retention must be at least",
        ),
        (
            lambda b: (
                b.stream("s")
                .group_by_key()
                .windowed_by(TimeWindows.of(MINUTE))
                .count(store=Window("w", size=2 * MINUTE))
            ),
            "the windows' own",
        ),
        (
            lambda b: b.stream("a").join(
                b.stream("b"), max, JoinWindows.of(MINUTE), store=(Window("l"), Window("r", duplicates=True))
            ),
            "duplicates=True",
        ),
        (
            lambda b: [b.add_store(KeyValue("k")), b.add_store(KeyValue("k", value=Int64()))],
            "different store named 'k'",
        ),
        (
            lambda b: [b.stream(t).group_by_key().count(store="x") for t in ("a", "b")],
            "different store named 'x'",
        ),
        (lambda b: [b.table("a", store="x"), b.table("b", store="x")], "different store named 'x'"),
        (
            lambda b: b.stream("a").join(
                b.stream("b"),
                max,
                JoinWindows.of(MINUTE),
                store=(Window("w", duplicates=True), Window("w", duplicates=True)),
            ),
            "different store named 'w'",
        ),
        (lambda b: b.stream("a").process(lambda: ONE, name="p"), "the same processor each time"),
        (lambda b: b.stream("a").process(lambda: 1 / 0, name="p"), "ZeroDivisionError"),
        (lambda b: b.stream("a").group_by_key().count(store=KeyValue), "write KeyValue(...)"),
        (lambda b: b.stream("a").group_by_key().count(store=5), "store= takes a name"),
        (
            lambda b: b.stream("a").group_by_key().windowed_by(TimeWindows.of(MINUTE)).count(store=KeyValue("k")),
            "kept in a Window store",
        ),
        (lambda b: b.stream("a").join(b.stream("b"), max, JoinWindows.of(MINUTE), store=5), "a pair of Window"),
        (lambda b: b.stream("a", value=Int64), "Int64"),
        (lambda b: b.stream("a b"), "letters, digits"),
        (lambda b: b.stream("a").to(""), "letters, digits"),
        (lambda b: b.stream("a").repartition(partitions="3"), "must be a number"),
        (lambda b: b.stream("a").split().branch(lambda k, v: v, to=5), "to= takes a function"),
        (
            lambda b: (
                b.stream("a")
                .repartition(name="x", partitions=2)
                .join(b.stream("b").repartition(name="y", partitions=3), max, JoinWindows.of(MINUTE))
            ),
            "same number of partitions",
        ),
    ],
)
def test_faults(build: Any, part: str) -> None:
    builder = StreamsBuilder()
    build(builder)
    assert part in faults(builder)


@pytest.mark.parametrize(
    ("build", "part"),
    [
        (lambda b: b.stream("a").merge(b.table("t")), "takes a KStream"),
        (lambda b: b.stream("a").merge(StreamsBuilder().stream("b")), "another StreamsBuilder"),
        (lambda b: b.stream("a").join(StreamsBuilder().table("b"), max), "another StreamsBuilder"),
        (lambda b: b.table("a").join(b.stream("b"), max), "another KTable"),
        (lambda b: b.stream("a").join(b.table("b"), max, store="x"), "takes no store="),
        (lambda b: b.stream("a").group_by_key().windowed_by(MINUTE), "takes windows"),
        (lambda b: b.table("a").suppress("x"), "Suppress.until"),
        (lambda b: b.stream("a").group_by_key().cogroup(max).cogroup(b.stream("b"), max), "grouped stream"),
        (lambda b: b.table("a", store=Window("w")), "KeyValue or Versioned"),
        (lambda b: b.table("a").join(b.table("b"), max, partitioner=max), "foreign_key="),
        (lambda b: b.stream(5), "a topic, several or a pattern"),
        (lambda b: b.add_store("k"), "takes a store description"),
        (lambda b: b.stream("a", name=5), "must be text"),
    ],
)
def test_what_cannot_be_drawn_is_refused_at_once(build: Any, part: str) -> None:
    with pytest.raises(TopologyError, match=re.escape(part)):
        build(StreamsBuilder())


def test_a_fault_is_told_once_and_not_again_below() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("a", name="s")
    builder.table("in").filter(lambda k, v: v).to_stream().to("b")
    assert faults(builder).startswith("The topology has 1 fault:")


def test_a_store_described_in_a_step_is_added_for_it() -> None:
    builder = StreamsBuilder()
    builder.stream("in").process(Processor, stores=[KeyValue("k"), Window("w", size=MINUTE, retention=MINUTE)])
    assert list(builder.build().stores) == ["k", "w"]


def test_equal_stores_added_twice_are_one() -> None:
    builder = StreamsBuilder().add_store(KeyValue("k")).add_store(KeyValue("k"))
    builder.stream("in").process(Processor, stores="k")
    assert list(builder.build().stores) == ["k"]


def test_a_stream_join_without_windows_says_so_at_once() -> None:
    builder = StreamsBuilder()
    with pytest.raises(TopologyError, match=r"needs windows="):
        builder.stream("a").join(builder.stream("b"), max)


def test_unknown_optimisations_are_refused() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    assert "self-join" in faults(builder, optimize={"no-such"})


def test_steps_after_the_build_are_refused() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in")
    builder.build()
    with pytest.raises(TopologyError, match="built already"):
        stream.to("late")
    assert builder.build() is builder.build()


def test_state_on_generated_names_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by(lambda k, v: v).count()
    with caplog.at_level(logging.WARNING, logger="headwater"):
        builder.build()
    assert "KSTREAM-AGGREGATE-STATE-STORE-0000000002" in caplog.text
    caplog.clear()
    named = StreamsBuilder()
    named.table("unused-generated-store-name")
    named.stream("in").group_by(lambda k, v: v).count(store="counts")
    with caplog.at_level(logging.WARNING, logger="headwater"):
        named.build()
    assert caplog.text == ""


def test_low_level_faults_name_the_step() -> None:
    topology = Topology()
    with pytest.raises(TopologyError, match="unknown parent"):
        topology.add_processor("p", dict, "nobody")
    with pytest.raises(TopologyError, match="exactly one pattern"):
        topology.add_source("s")
    topology.add_source("s", "in").add_sink("out", "t", "s")
    with pytest.raises(TopologyError, match="cannot have the sink"):
        topology.add_processor("p", dict, "out")
    with pytest.raises(TopologyError, match="no processor"):
        topology.add_store(KeyValue("k"), "s")


def test_camel_case_resolves_and_typos_are_hinted_at() -> None:
    builder = StreamsBuilder()
    counts: Any = builder.stream("in").groupByKey().count(store="c")
    counts.toStream().to("out")
    assert builder.build().describe() == _snake().describe()
    with pytest.raises(AttributeError, match="group_by_key"):
        _ = StreamsBuilder().stream("other").group_by_kee


def _snake() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(store="c").to_stream().to("out")
    return builder.build()


def test_drawings_show_topics_steps_and_stores() -> None:
    mermaid, dot = _snake().to_mermaid(), _snake().to_dot()
    assert mermaid.startswith("flowchart TD\n")
    assert '(["in"])' in mermaid
    assert '[("c")]' in mermaid
    assert '"store c" [label="c", shape=cylinder];' in dot
    assert '"KSTREAM-AGGREGATE-0000000001" -> "KTABLE-TOSTREAM-0000000002";' in dot


def test_sessions_need_a_merger() -> None:
    builder = StreamsBuilder()
    sessions = builder.stream("in").group_by_key().windowed_by(SessionWindows.of(MINUTE))
    sessions.aggregate(int, lambda k, v, n: n, merge=lambda a, b: a)
    assert "3 parameters" in faults(builder)
