"""Suppression: when held updates go on, in which order, as which record, and what a full buffer does."""

from datetime import timedelta
from typing import Any

import pytest

from headwater import (
    Config,
    Int64,
    Processor,
    Record,
    SessionWindows,
    Str,
    StreamsBuilder,
    StreamsError,
    Suppress,
    TimeWindows,
    Topology,
    TopologyTestDriver,
    Windowed,
)

MS = timedelta(milliseconds=1)


class Place(Processor):
    """Emits where each record came from."""

    def process(self, record: Record) -> None:
        context = self.context
        self.context.forward(
            record.replace(value=f"{context.topic}/{context.partition}/{context.offset}={record.value}")
        )


def over_table(suppress: Suppress) -> Topology:
    builder = StreamsBuilder(key=Str(), value=Int64())
    builder.table("in", store="tab").suppress(suppress, name="held").to_stream().process(Place).to("out", value=Str())
    return builder.build()


def send(driver: TopologyTestDriver, *records: tuple[Any, Any, int]) -> list[tuple[Any, Any, int]]:
    """Send records; what came out, as (key, value, timestamp)."""
    for key, value, at in records:
        driver.input("in").send(key, value, at=at)
    return [(record.key, record.value, record.timestamp) for record in driver.output("out").read_all()]


def test_an_update_goes_on_as_the_record_it_was() -> None:
    with TopologyTestDriver(over_table(Suppress.until_time_limit(10 * MS))) as driver:
        driver.input("in").send("a", 1, at=0, headers=(("h", b"1"),))
        driver.input("in").send("a", 2, at=3, headers=(("h", b"2"),))
        assert driver.output("out").read_all() == []
        driver.input("in").send("b", 3, at=10)
        assert driver.output("out").read_all() == [Record("a", "in/0/1=2", 3, (("h", b"2"),))]
        assert send(driver, ("c", 4, 20)) == [("b", "in/0/2=3", 10)]


def test_what_is_due_together_goes_by_time_then_key() -> None:
    with TopologyTestDriver(over_table(Suppress.until_time_limit(10 * MS))) as driver:
        assert send(driver, ("b", 1, 5), ("a", 2, 5), ("c", 3, 4), ("z", 4, 100)) == [
            ("c", "in/0/2=3", 4),
            ("a", "in/0/1=2", 5),
            ("b", "in/0/0=1", 5),
        ]


def test_a_time_limit_passes_deletions_on() -> None:
    with TopologyTestDriver(over_table(Suppress.until_time_limit(10 * MS))) as driver:
        assert send(driver, ("a", 1, 0), ("a", None, 1), ("z", 1, 10)) == [("a", "in/0/1=None", 1)]


def test_a_full_buffer_emits_the_oldest_early() -> None:
    with TopologyTestDriver(over_table(Suppress.until_time_limit(1000 * MS, max_records=2))) as driver:
        assert send(driver, ("a", 1, 5), ("b", 2, 6)) == []
        assert send(driver, ("c", 3, 1)) == [("c", "in/0/2=3", 1)]
        assert send(driver, ("d", 4, 7)) == [("a", "in/0/0=1", 5)]


def test_the_bytes_of_a_buffer_are_bounded_too() -> None:
    # One entry as Kafka Streams counts it: time 8, key 1, context 20 + topic 2, new value 8; no old and prior value.
    with TopologyTestDriver(over_table(Suppress.until_time_limit(1000 * MS, max_bytes=2 * 39))) as driver:
        assert send(driver, ("a", 1, 5), ("b", 2, 6)) == []
        assert send(driver, ("c", 3, 7)) == [("a", "in/0/0=1", 5)]


def test_a_buffer_that_must_not_overflow_fails_and_says_how_to_go_on() -> None:
    with TopologyTestDriver(over_table(Suppress.until_time_limit(1000 * MS, max_records=1, full="fail"))) as driver:
        assert send(driver, ("a", 1, 5)) == []
        with pytest.raises(StreamsError, match=r"'held'.*full with 2 of 1 records.*max_records"):
            send(driver, ("b", 2, 6))


def test_a_skipped_overflow_is_counted_and_the_update_stays() -> None:
    topology = over_table(Suppress.until_time_limit(10 * MS, max_records=1, full="fail"))
    with TopologyTestDriver(topology, Config("app", on_processing_error="skip")) as driver:
        assert send(driver, ("a", 1, 5), ("b", 2, 6)) == []
        assert driver.metrics()["dropped-records-total"] == 1
        assert send(driver, ("a", 3, 16)) == [("a", "in/0/2=3", 16), ("b", "in/0/1=2", 6)]


def test_a_window_goes_on_once_when_it_has_closed() -> None:
    builder = StreamsBuilder(key=Str(), value=Str())
    counts = builder.stream("in").group_by_key().windowed_by(TimeWindows.of(10 * MS, grace=5 * MS)).count(store="n")
    counts.suppress(Suppress.until_window_closes()).to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        assert send(driver, ("b", "", 3), ("a", "", 9), ("a", "", 4), ("a", "", 14)) == []
        assert send(driver, ("a", "", 15)) == [(Windowed("a", 0, 10), 2, 9), (Windowed("b", 0, 10), 1, 3)]


def test_sessions_that_were_merged_away_leave_no_trace() -> None:
    builder = StreamsBuilder(key=Str(), value=Str())
    counts = builder.stream("in").group_by_key().windowed_by(SessionWindows.of(5 * MS)).count(store="n")
    counts.suppress(Suppress.until_window_closes()).to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        assert send(driver, ("a", "", 0), ("a", "", 4)) == []
        assert send(driver, ("a", "", 100)) == [(Windowed("a", 0, 4), 2, 4)]


def test_another_table_sees_the_value_before_the_held_one() -> None:
    builder = StreamsBuilder(key=Str(), value=Int64())
    held = builder.table("in", store="tab").suppress(Suppress.until_time_limit(10 * MS), name="held")
    builder.table("other", store="others").left_join(held, lambda a, b: f"{a}+{b}").to_stream().to("out", value=Str())

    def ask(driver: TopologyTestDriver, at: int) -> list[Any]:
        driver.input("other").send("a", 0, at=at)
        return [(record.value, record.timestamp) for record in driver.output("out").read_all()]

    with TopologyTestDriver(builder.build()) as driver:
        driver.input("in").send("a", 1, at=0)
        assert ask(driver, 1) == [("0+None", 1)]
        driver.input("in").send("a", 2, at=2)
        assert ask(driver, 3) == [("0+None", 3)]
        driver.input("in").send("b", 1, at=10)
        assert ask(driver, 11) == [("0+2", 3), ("0+2", 11)]
        driver.input("in").send("a", 3, at=12)
        # Nobody knows the timestamp of the value before: it counts as earlier than all.
        assert ask(driver, 5) == [("0+2", 5)]
