"""`Config(compat="kafka-streams")`: each deliberate difference of decision 008 with and without it. What is expected
with it is what Kafka Streams' own driver gives (conformance/oracle, Differences.java), and for restarts, which that does
not have, what its sources say. That its traces hold under it too is tested in tests/conformance."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headwater import (
    Bytes,
    Config,
    Int64,
    JoinWindows,
    Processor,
    Record,
    SessionWindows,
    SlidingWindows,
    Str,
    StreamsBuilder,
    StreamsError,
    Suppress,
    TimeWindows,
    Topology,
    TopologyError,
    TopologyTestDriver,
    Versioned,
)
from headwater.streams.compat import DIFFERENCES, table

KINDS = pytest.mark.parametrize("compat", [None, "kafka-streams"], ids=["default", "compat"])
MS = timedelta(milliseconds=1)


def driver(topology: Topology, compat: Any, **config: Any) -> TopologyTestDriver:
    return TopologyTestDriver(topology, Config(compat=compat, **config))


def values(running: TopologyTestDriver, topic: str = "out") -> list[Any]:
    return [record.value for record in running.output(topic).read_all()]


def test_the_decision_shows_the_table_that_the_code_prints() -> None:
    decision = Path(__file__).parents[2] / "docs" / "decisions" / "008-where-we-differ-from-kafka-streams.md"
    assert table() in decision.read_text()
    assert len({entry.name for entry in DIFFERENCES}) == len(DIFFERENCES)


def test_there_is_no_other_compat() -> None:
    with pytest.raises(TopologyError, match='compat must be "kafka-streams" or None'):
        Config(compat="flink")  # type: ignore[arg-type]


# ---- operator memory -------------------------------------------------------------------------------------------------


@KINDS
def test_a_restart_forgets_what_operators_have_observed(compat: Any) -> None:
    builder = StreamsBuilder()
    windows = TimeWindows.of(10 * MS)
    builder.stream("in").group_by_key().windowed_by(windows).count(store="c").to_stream().map_values(str).to("out")
    with driver(builder.build(), compat) as running:
        running.input("in").send("k", 1, at=100)
        running.restart()
        running.input("in").send("k", 1, at=5)
        assert values(running) == (["1"] if compat is None else ["1", "1"])
        assert running.metrics()["late-records-total"] == (1 if compat is None else 0)


@KINDS
def test_a_restart_forgets_how_far_suppression_was(compat: Any) -> None:
    builder = StreamsBuilder()
    counts = builder.stream("in").group_by_key().windowed_by(TimeWindows.of(10 * MS, grace=90 * MS)).count(store="c")
    final = counts.suppress(Suppress.until_window_closes())
    final.to_stream().map(lambda key, value: (key.key, key.start)).to("out")
    with driver(builder.build(), compat) as running:
        running.send_all([("in", "k", 1, at) for at in (0, 150)])
        running.restart()
        # Late, unless time is forgotten: then it is held back until time is there again.
        running.input("in").send("k", 1, at=5)
        assert values(running) == [0]
        running.input("in").send("k", 1, at=151)
        assert values(running) == ([] if compat is None else [0])


@KINDS
def test_a_restart_keeps_partition_times_and_what_was_emitted_on_close(compat: Any) -> None:
    builder = StreamsBuilder()
    closed = builder.stream("in").group_by_key().windowed_by(TimeWindows.of(10 * MS)).emit_strategy("on-close")
    closed.count(store="c").to_stream().map(lambda key, value: (key.key, key.start)).to("out")
    config = {"window_emit_interval": timedelta(0)}
    with driver(builder.build(), compat, **config) as running:
        running.send_all([("in", "k", 1, at) for at in (0, 10, 20)])
        assert values(running) == [0, 10]
        running.restart()
        running.send_all([("in", "k", 1, at) for at in (25, 30)])
        assert values(running) == [20]  # and none a second time
        assert running._tasks[0].task.partition_times == {("in", 0): 30}


class Counter(Processor):
    def init(self, context: Any) -> None:
        super().init(context)
        self.seen = 0
        context.schedule(10 * MS, "stream-time", lambda time: context.forward(Record("tick", time, time)))

    def process(self, record: Record) -> None:
        self.seen += 1
        self.context.forward(Record(record.key, self.seen, record.timestamp))


@KINDS
def test_a_restart_forgets_schedules_and_fields_of_processors(compat: Any) -> None:
    topology = Topology().add_source("in", "in").add_processor("p", Counter, "in").add_sink("s", "out", "p")
    with driver(topology, compat) as running:
        running.input("in").send("k", 1, at=15)
        running.restart()
        running.input("in").send("k", 1, at=16)
        assert values(running) == ([1, 15, 2] if compat is None else [1, 15, 1, 16])


@KINDS
def test_a_restart_forgets_the_time_of_a_join(compat: Any) -> None:
    builder = StreamsBuilder()
    windows = JoinWindows.of(10 * MS)
    builder.stream("a").left_join(builder.stream("b"), lambda a, b: [a, b], windows).to("out")
    with driver(builder.build(), compat) as running:
        running.input("a").send("k", 1, at=100)
        running.restart()
        # With the time of the join at 100 this one is too late to wait.
        running.input("a").send("k", 2, at=0)
        assert values(running) == ([[2, None]] if compat is None else [])


# ---- mutating functions ----------------------------------------------------------------------------------------------


def append(key: Any, value: Any, seen: list[Any]) -> list[Any]:
    seen.append(value)
    return seen


def regrouped(aggregated: Callable[[Any], Any]) -> Topology:
    """An aggregate whose old values are seen by a subtractor."""
    builder = StreamsBuilder()
    aggregate = aggregated(builder.stream("in").group_by_key())
    groups = aggregate.group_by(lambda key, value: ("all", value))
    groups.aggregate(
        list, lambda key, new, seen: [*seen, "+", *new], lambda key, old, seen: [*seen, "-", *old], store="groups"
    ).to_stream().to("out")
    return builder.build()


@KINDS
def test_a_mutating_aggregator_changes_the_old_value(compat: Any) -> None:
    topology = regrouped(lambda grouped: grouped.aggregate(list, append, store="lists"))
    with driver(topology, compat) as running:
        for value in (1, 2):
            running.input("in").send("k", value, at=0)
        assert values(running)[-1] == ["+", 1, "-", *([1] if compat is None else [1, 2]), "+", 1, 2]
    # Out of the record cache old values are read again.
    with driver(topology, compat, cache_bytes=1 << 20) as running:
        for value in (1, 2):
            running.input("in").send("k", value, at=0)
        assert values(running)[-1] == ["+", 1, "-", 1, "+", 1, 2]


@KINDS
@pytest.mark.parametrize("windows", [TimeWindows.of(10 * MS), SlidingWindows.of(10 * MS)], ids=["time", "sliding"])
def test_a_mutating_aggregator_changes_old_values_of_windows(compat: Any, windows: Any) -> None:
    topology = regrouped(lambda grouped: grouped.windowed_by(windows).aggregate(list, append, store="lists"))
    with driver(topology, compat) as running:
        for value in (1, 2):
            running.input("in").send("k", value, at=20)
        assert values(running)[-1] == ["+", 1, "-", *([1] if compat is None else [1, 2]), "+", 1, 2]


@KINDS
def test_a_mutating_aggregator_changes_what_a_right_window_starts_from(compat: Any) -> None:
    builder = StreamsBuilder()
    sliding = builder.stream("in").group_by_key().windowed_by(SlidingWindows.of(10 * MS))
    lists = sliding.aggregate(list, append, store="lists").to_stream()
    lists.map(lambda key, value: (key.key, [key.start, *value])).to("out")
    with driver(builder.build(), compat) as running:
        for value, at in ((1, 20), (2, 25), (3, 22)):
            running.input("in").send("k", value, at=at)
        assert values(running)[-1] == ([23, 2] if compat is None else [23, 2, 3])


@KINDS
def test_a_merger_that_changes_its_argument_changes_the_old_session(compat: Any) -> None:
    def merge(key: Any, a: list[Any], b: list[Any]) -> list[Any]:
        b.append("merged")
        return [*a, *b]

    def sessions(grouped: Any) -> Any:
        return grouped.windowed_by(SessionWindows.of(10 * MS)).aggregate(list, append, merge=merge, store="lists")

    with driver(regrouped(sessions), compat) as running:
        running.input("in").send("k", 1, at=0)
        running.input("in").send("k", 2, at=5)
        gone = ["-", 1] if compat is None else ["-", 1, "merged"]
        assert values(running)[1] == ["+", 1, *gone]


# ---- what Kafka Streams throws at ------------------------------------------------------------------------------------


def with_grace(joiner: Callable[[Any, Any], Any] = lambda a, b: [a, b]) -> Topology:
    builder = StreamsBuilder()
    rows = builder.table("table", store=Versioned("rows", retention=timedelta(seconds=1)))
    builder.stream("in").left_join(rows, joiner, grace=10 * MS, name="j").to("out")
    return builder.build()


@KINDS
def test_a_grace_join_without_a_key(compat: Any) -> None:
    with driver(with_grace(), compat) as running:
        if compat is None:
            running.input("in").send(None, 1, at=0)
            assert values(running) == [[1, None]]
            return
        with pytest.raises(StreamsError, match=r"step 'j' joins with grace and got a record without a key.*Null"):
            running.input("in").send(None, 1, at=0)
        running.input("in").send(None, None, at=0)  # dropped, in both
    with driver(with_grace(), compat, on_processing_error="skip") as running:
        running.input("in").send(None, 1, at=0)
        assert (values(running), running.metrics()["dropped-records-total"]) == ([], 1)


@KINDS
def test_a_waiting_record_whose_joiner_raises(compat: Any) -> None:
    def joiner(value: Any, row: Any) -> Any:
        if value == "bad":
            raise ValueError(value)
        return value

    with driver(with_grace(joiner), compat, on_processing_error="skip") as running:
        for at, value in ((0, "bad"), (1, "good"), (20, "a"), (40, "b"), (60, "c")):
            running.input("in").send("k", value, at=at)
        dropped = running.metrics()["dropped-records-total"]
        # It stays the first in the buffer, fails with every later record, and keeps all behind it waiting.
        assert (values(running), dropped) == ((["good", "a", "b"], 1) if compat is None else ([], 3))


def test_sliding_windows_of_0() -> None:
    builder = StreamsBuilder()
    sliding = builder.stream("in").group_by_key().windowed_by(SlidingWindows.of(timedelta(0)))
    sliding.count(store="c", name="s").to_stream().map_values(str).to("out")
    topology = builder.build()
    told = r"sliding windows of 0 ms, with which Kafka Streams throws.*longer"
    with driver(topology, "kafka-streams") as running, pytest.raises(StreamsError, match=told):
        running.input("in").send("k", 1, at=5)
    with driver(topology, "kafka-streams", on_processing_error="skip") as running:
        for at in (5, 5, 4):
            running.input("in").send("k", 1, at=at)
        assert (values(running), running.metrics()["late-records-total"]) == ([], 1)


@KINDS
def test_serdes_of_a_join_that_are_the_streams_own(compat: Any) -> None:
    def topology(**join: Any) -> Topology:
        builder = StreamsBuilder()
        left, right = (builder.stream(topic, key=Int64(), value=Str()) for topic in "ab")
        left.join(right, lambda a, b: a + b, JoinWindows.of(10 * MS), name="j", **join).to("out", value=Str())
        return builder.build()

    given = {"key": Int64(), "value": Str(), "other_value": Str()}
    if compat is not None:
        with pytest.raises(TopologyError) as refused:
            driver(topology(), compat)
        told = "step 'j-merge' takes Int64() from its stream where Kafka Streams takes the default Str(): give it key="
        assert told in str(refused.value)
        assert str(refused.value).count("takes the default Json()") == 2
    for joined in [topology(**given)] + ([topology()] if compat is None else []):
        with driver(joined, compat) as running:
            running.input("a").send(1, "x", at=0)
            running.input("b").send(1, "y", at=0)
            assert values(running) == ["xy"]


# ---- groups and sinks ------------------------------------------------------------------------------------------------


@KINDS
def test_groups_of_bytes(compat: Any) -> None:
    builder = StreamsBuilder()
    rows = builder.table("in", store="rows")
    groups = rows.group_by(lambda key, value: (value["g"].encode(), value["n"]), key=Bytes())
    groups.reduce(lambda a, b: a + b, lambda a, b: a - b, store="sums").to_stream().to("out")
    with driver(builder.build(), compat) as running:
        running.input("in").send("k", {"g": "a", "n": 1}, at=0)
        running.input("in").send("k", {"g": "a", "n": 5}, at=1)
        assert values(running) == ([1, 5] if compat is None else [1, 0, 5])


def failing_sink(behind_a_source: bool) -> Topology:
    def name(key: Any, value: Any, context: Any) -> str:
        if value == "bad":
            raise ValueError(value)
        return "out"

    builder = StreamsBuilder()
    stream = builder.stream("in")
    if not behind_a_source:
        stream = stream.flat_map_values(str.split, name="parent")
    stream.to(name)
    stream.to("sibling")
    return builder.build()


@KINDS
def test_a_sink_that_raises_under_skip(compat: Any) -> None:
    with driver(failing_sink(False), compat, on_processing_error="skip") as running:
        running.input("in").send("k", "a bad c", at=0)
        # The parent fails: neither its later children nor its later results see the record.
        told = (["a", "c"], ["a", "bad", "c"]) if compat is None else (["a"], ["a"])
        assert (values(running), values(running, "sibling")) == told
        assert running.metrics()["dropped-records-total"] == 1
        (step,) = [name for name, counts in running.metrics()["steps"].items() if counts["dropped-records-total"]]
        assert (step == "parent") is (compat is not None)


@KINDS
def test_a_sink_that_raises_behind_a_source(compat: Any) -> None:
    with driver(failing_sink(True), compat, on_processing_error="skip") as running:
        running.input("in").send("k", "a", at=0)
        if compat is None:
            running.input("in").send("k", "bad", at=0)
        else:
            with pytest.raises(StreamsError, match=r"a sink behind 'KSTREAM-SOURCE-0000000000' failed on in-0@1 with"):
                running.input("in").send("k", "bad", at=0)
        assert values(running, "sibling") == (["a", "bad"] if compat is None else ["a"])


def test_handlers_that_fail_still_name_the_record() -> None:
    told = r"step 'parent'.*failed on in-0@0: ValueError: bad; .*on_processing_error"
    with driver(failing_sink(False), "kafka-streams") as running, pytest.raises(StreamsError, match=told):
        running.input("in").send("k", "bad", at=0)
