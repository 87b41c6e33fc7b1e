"""Stream-table joins: current and as-of lookups, the null matrix, grace, and global tables."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest

from headwater import Config, Processor, Record, Str, StreamsBuilder, Topology, TopologyTestDriver, Versioned

MS = timedelta(milliseconds=1)
Sent = tuple[str, str | None, str | None, int]


def plus(left: str | None, right: str | None) -> str:
    return f"{left}+{right}"


class Place(Processor):
    """Emits where each record came from."""

    def process(self, record: Record) -> None:
        context = self.context
        self.context.forward(record.replace(value=f"{context.topic}@{context.offset}={record.value}"))


def joined(left: bool, versioned: bool = False, grace: timedelta | None = None) -> Topology:
    builder = StreamsBuilder(key=Str(), value=Str())
    store = Versioned("tab", retention=100 * MS) if versioned else "tab"
    stream, table = builder.stream("in"), builder.table("table", store=store)
    join = stream.left_join if left else stream.join
    join(table, plus, grace=grace, name="j").to("out")
    return builder.build()


def send(driver: TopologyTestDriver, records: Iterable[Sent]) -> list[tuple[Any, Any, int]]:
    """Send (topic, key, value, timestamp); what came out, as (key, value, timestamp)."""
    for topic, key, value, at in records:
        driver.input(topic).send(key, value, at=at)
    return [(record.key, record.value, record.timestamp) for record in driver.output("out").read_all()]


def test_only_the_stream_emits_with_its_own_timestamp() -> None:
    with TopologyTestDriver(joined(left=False)) as driver:
        assert send(driver, [("in", "a", "S", 1), ("table", "a", "T", 50), ("table", "a", "U", 10)]) == []
        assert send(driver, [("in", "a", "S", 5)]) == [("a", "S+U", 5)]
        assert send(driver, [("table", "a", None, 60), ("in", "a", "S", 70)]) == []


@pytest.mark.parametrize(
    ("left", "emitted", "dropped"), [(False, [], 3), (True, [(None, "S+None", 1), ("a", "S+None", 4)], 2)]
)
def test_null_values_are_dropped_and_null_keys_in_an_inner_join(left: bool, emitted: list[Any], dropped: int) -> None:
    with TopologyTestDriver(joined(left)) as driver:
        assert (
            send(driver, [("in", None, "S", 1), ("in", None, None, 2), ("in", "a", None, 3), ("in", "a", "S", 4)])
            == emitted
        )
        assert driver.metrics()["dropped-records-total"] == dropped


def test_a_keyed_joiner_that_raises_names_itself_and_is_skipped_if_wanted() -> None:
    def joiner(key: str, one: str, two: str) -> str:
        if one == "bad":
            raise ValueError(key)
        return f"{key}:{one}+{two}"

    builder = StreamsBuilder(key=Str(), value=Str())
    builder.stream("in").join(builder.table("table"), joiner).to("out")
    with TopologyTestDriver(builder.build(), Config("app", on_processing_error="skip")) as driver:
        send(driver, [("table", "a", "T", 0)])
        assert send(driver, [("in", "a", "bad", 1), ("in", "a", "S", 2)]) == [("a", "a:S+T", 2)]
        assert driver.metrics()["dropped-records-total"] == 1


def test_a_versioned_table_is_read_as_of_the_records_time() -> None:
    with TopologyTestDriver(joined(left=True, versioned=True)) as driver:
        send(driver, [("table", "a", "T10", 10), ("table", "a", "T30", 30), ("table", "a", "T20", 20)])
        assert send(driver, [("in", "a", f"S{at}", at) for at in (35, 29, 19, 9)]) == [
            ("a", "S35+T30", 35),
            ("a", "S29+T20", 29),
            ("a", "S19+T10", 19),
            ("a", "S9+None", 9),
        ]


def test_a_mapped_view_of_a_versioned_table_is_versioned_too() -> None:
    builder = StreamsBuilder(key=Str(), value=Str())
    table = builder.table("table", store=Versioned("tab", retention=100 * MS))
    view = table.filter(lambda key, value: value != "hidden").map_values(str.lower)
    builder.stream("in").left_join(view, plus).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        send(driver, [("table", "a", "T10", 10), ("table", "a", "hidden", 20), ("table", "a", "T30", 30)])
        assert send(driver, [("in", "a", "S", at) for at in (10, 20, 30)]) == [
            ("a", "S+t10", 10),
            ("a", "S+None", 20),
            ("a", "S+t30", 30),
        ]


def test_with_grace_a_record_waits_for_the_table_and_comes_in_order_of_time() -> None:
    with TopologyTestDriver(joined(left=True, versioned=True, grace=20 * MS)) as driver:
        assert (
            send(driver, [("in", "b", "S", 12), ("in", "a", "S", 10), ("in", "a", "S'", 10), ("in", "a", "late", 5)])
            == []
        )
        assert send(driver, [("table", "a", "T", 9), ("table", "z", "T", 1000)]) == []
        assert send(driver, [("in", "z", "S", 32)]) == [
            ("a", "late+None", 5),
            ("a", "S+T", 10),
            ("a", "S'+T", 10),
            ("b", "S+None", 12),
        ]


def test_a_record_later_than_the_grace_is_joined_at_once_and_a_keyless_one_too() -> None:
    with TopologyTestDriver(joined(left=True, versioned=True, grace=20 * MS)) as driver:
        assert send(driver, [("table", "a", "T", 0), ("in", "b", "S", 100), ("in", "a", "S", 79)]) == [("a", "S+T", 79)]
        assert send(driver, [("in", None, "S", 101)]) == [(None, "S+None", 101)]
        assert send(driver, [("in", "a", None, 102)]) == []
        assert driver.metrics()["dropped-records-total"] == 1


def test_a_record_that_waited_goes_on_as_what_it_was() -> None:
    builder = StreamsBuilder(key=Str(), value=Str())
    table = builder.table("table", store=Versioned("tab", retention=100 * MS))
    builder.stream("in").left_join(table, plus, grace=10 * MS).process(Place).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("in").send("a", "S", at=0, headers=(("h", b"1"),))
        driver.input("in").send("b", "S", at=10, headers=(("h", b"2"),))
        assert driver.output("out").read_all() == [Record("a", "in@0=S+None", 0, (("h", b"1"),))]


def test_a_waiting_record_that_fails_goes_alone() -> None:
    def joiner(one: str, two: str | None) -> str:
        if one == "bad":
            raise ValueError(one)
        return plus(one, two)

    builder = StreamsBuilder(key=Str(), value=Str())
    table = builder.table("table", store=Versioned("tab", retention=100 * MS))
    builder.stream("in").left_join(table, joiner, grace=10 * MS).to("out")
    with TopologyTestDriver(builder.build(), Config("app", on_processing_error="skip")) as driver:
        records = [("in", "a", "S", 0), ("in", "b", "bad", 1), ("in", "c", "S", 2), ("in", "z", "S", 12)]
        assert send(driver, records) == [("a", "S+None", 0), ("c", "S+None", 2)]
        assert driver.metrics()["dropped-records-total"] == 1


def selected(key: str | None, value: str | None) -> str | None:
    return None if value is None or value.startswith("n") else value[0]


@pytest.mark.parametrize(
    ("left", "emitted", "dropped"),
    [(False, [(None, "a1+T", 1)], 2), (True, [(None, "a1+T", 1), ("k", "b2+None", 2), ("k", "n3+None", 3)], 1)],
)
def test_a_global_table_is_joined_by_the_selected_key(left: bool, emitted: list[Any], dropped: int) -> None:
    builder = StreamsBuilder(key=Str(), value=Str())
    stream, table = builder.stream("in"), builder.global_table("table", store="gtab")
    (stream.left_join if left else stream.join)(table, plus, select=selected).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        send(driver, [("table", "a", "T", 100)])
        records = [("in", None, "a1", 1), ("in", "k", "b2", 2), ("in", "k", "n3", 3), ("in", "k", None, 4)]
        assert send(driver, records) == emitted
        assert driver.metrics()["dropped-records-total"] == dropped
