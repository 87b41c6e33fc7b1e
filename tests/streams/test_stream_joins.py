"""Stream-stream joins: bounds, null matrix, unmatched records and their clock, and the join of a stream with itself."""

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import Config, JoinWindows, Record, Str, StreamsBuilder, Topology, TopologyTestDriver

MS = timedelta(milliseconds=1)
AT_ONCE = Config("app", join_emit_interval=timedelta(0))
Sent = tuple[str, str | None, str | None, int]


def plus(left: str | None, right: str | None) -> str:
    return f"{left}+{right}"


def joined(kind: str, windows: JoinWindows, joiner: Callable[..., str] = plus) -> Topology:
    builder = StreamsBuilder(key=Str(), value=Str())
    left, right = builder.stream("left"), builder.stream("right")
    getattr(left, kind)(right, joiner, windows, name="j", store="j").to("out")
    return builder.build()


def send(driver: TopologyTestDriver, records: Iterable[Sent]) -> list[tuple[Any, int]]:
    """Send (topic, key, value, timestamp); what came out, as (value, timestamp)."""
    for topic, key, value, at in records:
        driver.input(topic).send(key, value, at=at)
    return [(record.value, record.timestamp) for record in driver.output("out").read_all()]


def test_bounds_are_inclusive_and_the_later_timestamp_counts() -> None:
    windows = JoinWindows.of(before=5 * MS, after=10 * MS, grace=50 * MS)
    with TopologyTestDriver(joined("join", windows)) as driver:
        right = [("right", "a", f"R{at}", at) for at in (14, 15, 20, 30, 31)]
        assert send(driver, right) == []
        assert send(driver, [("left", "a", "L", 20)]) == [("L+R15", 20), ("L+R20", 20), ("L+R30", 30)]
        assert send(driver, [("left", "b", "L", 20)]) == []


def test_a_right_record_sees_the_window_from_the_other_end() -> None:
    windows = JoinWindows.of(before=5 * MS, after=10 * MS, grace=50 * MS)
    with TopologyTestDriver(joined("join", windows)) as driver:
        send(driver, [("left", "a", f"L{at}", at) for at in (9, 10, 25, 26)])
        assert send(driver, [("right", "a", "R", 20)]) == [("L10+R", 20), ("L25+R", 25)]


def test_a_window_may_lie_wholly_to_one_side() -> None:
    windows = JoinWindows.of(before=-2 * MS, after=4 * MS)
    with TopologyTestDriver(joined("join", windows)) as driver:
        send(driver, [("left", "a", "L", 10)])
        records = [("right", "a", f"R{at}", at) for at in (11, 12, 14, 15)]
        assert send(driver, records) == [("L+R12", 12), ("L+R14", 14)]


def test_several_records_of_one_time_are_all_joined_in_order_of_arrival() -> None:
    with TopologyTestDriver(joined("join", JoinWindows.of(1 * MS))) as driver:
        send(driver, [("left", "a", value, 5) for value in "zyx"])
        assert send(driver, [("right", "a", "R", 5)]) == [("z+R", 5), ("y+R", 5), ("x+R", 5)]


@pytest.mark.parametrize(
    ("kind", "emitted", "dropped"),
    [("join", [], 4), ("left_join", [("L+None", 1)], 3), ("outer_join", [("L+None", 1), ("None+R", 3)], 2)],
)
def test_null_values_are_dropped_and_null_keys_too_on_a_side_that_is_not_outer(
    kind: str, emitted: list[tuple[str, int]], dropped: int
) -> None:
    with TopologyTestDriver(joined(kind, JoinWindows.of(10 * MS)), AT_ONCE) as driver:
        records = [("left", None, "L", 1), ("left", "a", None, 2), ("right", None, "R", 3), ("right", None, None, 4)]
        assert send(driver, records) == emitted
        assert driver.metrics()["dropped-records-total"] == dropped


def test_an_unmatched_record_is_emitted_once_when_stream_time_is_past_its_window() -> None:
    with TopologyTestDriver(joined("left_join", JoinWindows.of(10 * MS)), AT_ONCE) as driver:
        assert send(driver, [("left", "k", "a", 0), ("left", "k", "b", 10)]) == []
        assert send(driver, [("left", "k", "b", 11)]) == [("a+None", 0)]
        assert send(driver, [("left", "k", "b", 12)]) == []


def test_a_record_that_matched_is_never_joined_with_none() -> None:
    with TopologyTestDriver(joined("outer_join", JoinWindows.of(10 * MS)), AT_ONCE) as driver:
        assert send(driver, [("left", "k", "L", 0), ("right", "k", "R", 5)]) == [("L+R", 5)]
        assert send(driver, [("left", "z", "Z", 100)]) == []


def test_an_unmatched_record_that_is_already_past_its_window_does_not_wait() -> None:
    windows = JoinWindows.of(10 * MS, grace=50 * MS)
    with TopologyTestDriver(joined("outer_join", windows), AT_ONCE) as driver:
        assert send(driver, [("left", "a", "L", 100), ("right", "b", "R", 89)]) == [("None+R", 89)]
        assert send(driver, [("right", "b", "R", 90)]) == []


def test_unmatched_records_of_both_sides_come_by_time_right_before_left() -> None:
    with TopologyTestDriver(joined("outer_join", JoinWindows.of(10 * MS)), AT_ONCE) as driver:
        records = [("left", "a", "L5", 5), ("left", "a", "L5'", 5), ("right", "z", "R5", 5), ("right", "b", "R6", 6)]
        assert send(driver, records) == []
        assert send(driver, [("left", "q", "late", 50)]) == [
            ("None+R5", 5),
            ("L5+None", 5),
            ("L5'+None", 5),
            ("None+R6", 6),
        ]


def test_null_records_move_time_but_release_nothing() -> None:
    with TopologyTestDriver(joined("left_join", JoinWindows.of(10 * MS)), AT_ONCE) as driver:
        assert send(driver, [("left", "k", "a", 0), ("right", "k", None, 50), ("left", "k", "b", 49)]) == []
        assert send(driver, [("right", "z", "R", 50)]) == [("a+None", 0)]


def test_headers_are_those_of_the_record_that_caused_the_result() -> None:
    with TopologyTestDriver(joined("left_join", JoinWindows.of(10 * MS)), AT_ONCE) as driver:
        driver.input("left").send("a", "L", at=0, headers=(("from", b"left"),))
        driver.input("right").send("b", "R", at=50, headers=(("from", b"right"),))
        assert driver.output("out").read_all() == [Record("a", "L+None", 0, (("from", b"right"),))]


def test_unmatched_records_are_looked_for_once_per_interval_of_wall_clock() -> None:
    config = Config("app", join_emit_interval=timedelta(milliseconds=100))
    with TopologyTestDriver(joined("left_join", JoinWindows.of(10 * MS)), config) as driver:
        # The first record looks too, although nothing can be there.
        assert send(driver, [("left", "a", "L0", 0), ("left", "b", "L50", 50)]) == []
        driver.advance(99 * MS)
        assert send(driver, [("left", "c", "L60", 60)]) == []
        driver.advance(1 * MS)
        assert send(driver, [("left", "d", "L61", 61)]) == [("L0+None", 0), ("L50+None", 50)]


def test_a_joiner_that_raises_does_not_lose_unmatched_records() -> None:
    calls: list[str | None] = []

    def picky(left: str | None, right: str | None) -> str:
        calls.append(left)
        if len(calls) == 1:
            raise ValueError("not yet")
        return plus(left, right)

    config = Config("app", join_emit_interval=timedelta(0), on_processing_error="skip")
    with TopologyTestDriver(joined("left_join", JoinWindows.of(10 * MS), picky), config) as driver:
        assert send(driver, [("left", "a", "L0", 0), ("left", "b", "L50", 50)]) == []
        assert driver.metrics()["dropped-records-total"] == 1
        assert send(driver, [("left", "c", "L70", 70)]) == [("L0+None", 0)]


def self_joined(windows: JoinWindows, optimize: bool) -> Topology:
    builder = StreamsBuilder(key=Str(), value=Str())
    stream = builder.stream("in")
    stream.join(stream, plus, windows).to("out")
    return builder.build(optimize=optimize)


records = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 60)), max_size=12)


@given(records, st.integers(0, 10), st.integers(0, 10), st.integers(20, 30))
def test_a_self_join_from_one_store_equals_that_from_two(
    records: list[tuple[str, int]], before: int, after: int, grace: int
) -> None:
    windows = JoinWindows.of(before=before * MS, after=after * MS, grace=grace * MS)
    # Not as far back as the retention: there the two of Kafka Streams differ, by a millisecond already.
    first = max([at for _, at in records], default=0) - grace
    sent = [("in", key, str(number), at) for number, (key, at) in enumerate(records) if at > first + 1]
    with (
        TopologyTestDriver(self_joined(windows, False)) as two,
        TopologyTestDriver(self_joined(windows, True)) as one,
    ):
        for record in sent:
            assert send(one, [record]) == send(two, [record])


def test_a_record_that_is_too_old_to_be_joined_is_counted_as_late() -> None:
    builder = StreamsBuilder()
    windows = JoinWindows.of(timedelta(seconds=1), grace=timedelta(seconds=1))
    builder.stream("left").join(builder.stream("right"), lambda one, other: [one, other], windows).to("out")
    with TopologyTestDriver(builder.build(), Config(late="late")) as driver:
        left, right = driver.input("left"), driver.input("right")
        left.send("k", "first", at=1_000)
        left.send("k", "far", at=600_000)
        right.send("k", "far too", at=600_000)
        assert driver.metrics()["late-records-total"] == 0
        # Within the retention: remembered, and met by what comes.
        left.send("k", "open", at=599_000)
        assert driver.metrics()["late-records-total"] == 0
        # Its row can be read no more; and one whose segment is gone.
        left.send("k", "closed", at=597_000)
        left.send("k", "gone", at=2_000)
        right.send("k", "gone too", at=2_000)
        steps = {name: step for name, step in driver.metrics()["steps"].items() if step["late-records-total"]}
        assert [step["late-records-total"] for step in steps.values()] in ([2, 1], [1, 2])
        assert all("WINDOWED" in name for name in steps)
        late = [record.value for record in driver.output("late", value=Str()).read_all()]
        assert late == ['"closed"', '"gone"', '"gone too"']
