"""Table-table joins: the matrix of present and missing rows, timestamps, old values, and joins over views."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import (
    Config,
    KeyValue,
    KTable,
    SessionWindows,
    Str,
    StreamsBuilder,
    TimeWindows,
    Topology,
    TopologyTestDriver,
    Versioned,
    Windowed,
)

MS = timedelta(milliseconds=1)
Update = tuple[str, str | None, str | None, int]


def plus(left: str | None, right: str | None) -> str:
    return f"{left}+{right}"


def joined(kind: str, store: str | None = None) -> Topology:
    builder = StreamsBuilder(key=Str(), value=Str())
    left, right = builder.table("left", store="ltab"), builder.table("right", store="rtab")
    getattr(left, kind)(right, plus, store=store).to_stream().to("out")
    return builder.build()


def send(driver: TopologyTestDriver, updates: Iterable[Update]) -> list[tuple[Any, Any, int]]:
    """Send (topic, key, value, timestamp); what came out, as (key, value, timestamp)."""
    for topic, key, value, at in updates:
        driver.input(topic).send(key, value, at=at)
    return [(record.key, record.value, record.timestamp) for record in driver.output("out").read_all()]


@pytest.mark.parametrize("store", [None, "joined"])
def test_an_inner_join_needs_both_sides(store: str | None) -> None:
    with TopologyTestDriver(joined("join", store)) as driver:
        assert send(driver, [("left", "a", "L", 10), ("left", "a", None, 11), ("left", "a", "M", 12)]) == []
        assert send(driver, [("right", "a", "R", 5)]) == [("a", "M+R", 12)]
        assert send(driver, [("left", "a", None, 6), ("left", "a", None, 7)]) == [("a", None, 6), ("a", None, 7)]
        assert send(driver, [("right", "a", None, 8)]) == []


@pytest.mark.parametrize("store", [None, "joined"])
def test_a_left_join_needs_the_left_side(store: str | None) -> None:
    with TopologyTestDriver(joined("left_join", store)) as driver:
        assert send(driver, [("right", "a", "R", 1), ("right", "b", None, 1), ("left", "b", None, 2)]) == []
        assert send(driver, [("left", "a", "L", 0)]) == [("a", "L+R", 1)]
        assert send(driver, [("right", "a", None, 3)]) == [("a", "L+None", 3)]
        assert send(driver, [("left", "a", None, 2), ("left", "a", None, 4)]) == [("a", None, 2)]


@pytest.mark.parametrize("store", [None, "joined"])
def test_an_outer_join_needs_either_side(store: str | None) -> None:
    with TopologyTestDriver(joined("outer_join", store)) as driver:
        assert send(driver, [("right", "a", "R", 5)]) == [("a", "None+R", 5)]
        assert send(driver, [("left", "a", "L", 3)]) == [("a", "L+R", 5)]
        assert send(driver, [("right", "a", None, 1)]) == [("a", "L+None", 3)]
        assert send(driver, [("left", "a", None, 2), ("left", "a", None, 9)]) == [("a", None, 2)]


def test_null_keys_are_dropped_by_the_tables_themselves() -> None:
    with TopologyTestDriver(joined("outer_join")) as driver:
        assert send(driver, [("left", None, "L", 1), ("right", None, "R", 2)]) == []
        assert driver.metrics()["dropped-records-total"] == 2


def test_a_keyed_joiner_is_given_the_key_and_left_before_right() -> None:
    builder = StreamsBuilder(key=Str(), value=Str())
    left, right = builder.table("left"), builder.table("right")
    left.join(right, lambda key, one, two: f"{key}:{one}+{two}").to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        assert send(driver, [("left", "a", "L", 1), ("right", "a", "R", 2), ("left", "a", "M", 3)]) == [
            ("a", "a:L+R", 2),
            ("a", "a:M+R", 3),
        ]


def test_old_results_are_joined_again_for_those_who_need_them() -> None:
    builder = StreamsBuilder(key=Str(), value=Str())
    left, right = builder.table("left"), builder.table("right")
    (
        left.outer_join(right, plus)
        .group_by(lambda key, value: ("all", value), name="grp")
        .aggregate(str, lambda key, value, total: f"{total} +{value}", lambda key, value, total: f"{total} -{value}")
        .to_stream()
        .to("out")
    )
    with TopologyTestDriver(builder.build()) as driver:
        send(driver, [("left", "a", "L", 1), ("right", "a", "R", 2), ("left", "a", None, 3)])
        assert send(driver, [("right", "a", None, 4)]) == [("all", " +L+None -L+None +L+R -L+R +None+R -None+R", 4)]


def test_out_of_order_updates_of_a_versioned_table_are_dropped_and_counted() -> None:
    builder = StreamsBuilder(key=Str(), value=Str())
    left = builder.table("left", store=Versioned("ltab", retention=100 * MS))
    left.left_join(builder.table("right"), plus).to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        assert send(driver, [("left", "a", "new", 50), ("left", "a", "old", 40)]) == [("a", "new+None", 50)]
        assert driver.metrics()["dropped-records-total"] == 1
        assert send(driver, [("right", "a", "R", 1)]) == [("a", "new+R", 50)]


def over_views(table: KTable, other: KTable) -> KTable:
    mapped = table.filter(lambda key, value: value != "hidden").map_values(
        lambda value: None if value == "-" else value + "!"
    )
    return mapped.outer_join(other, plus)


def test_unmaterialized_tables_are_computed_when_they_are_read() -> None:
    builder = StreamsBuilder(key=Str(), value=Str())
    view = over_views(builder.table("left"), builder.table("right"))
    builder.stream("ask").left_join(view, plus).to("out")
    with TopologyTestDriver(builder.build()) as driver:

        def ask() -> Any:
            return send(driver, [("ask", "a", "?", 0)])[0][1]

        assert ask() == "?+None"
        send(driver, [("right", "a", "R", 1)])
        assert ask() == "?+None+R"
        send(driver, [("left", "a", "L", 1)])
        assert ask() == "?+L!+R"
        send(driver, [("left", "a", "hidden", 1)])
        assert ask() == "?+None+R"
        send(driver, [("left", "a", "-", 1), ("right", "a", None, 1)])
        assert ask() == "?+None"


def test_windowed_tables_are_joined_window_by_window() -> None:
    builder = StreamsBuilder(key=Str(), value=Str())
    left, right = (
        builder.stream(topic).group_by_key().windowed_by(TimeWindows.of(10 * MS, grace=100 * MS)).count(store=topic)
        for topic in ("left", "right")
    )
    left.join(right, plus).to_stream().to("out", value=Str())
    with TopologyTestDriver(builder.build()) as driver:
        assert send(driver, [("left", "a", "", 1), ("left", "a", "", 12), ("right", "a", "", 15)]) == [
            (Windowed("a", 10, 20), "1+1", 15)
        ]
        assert send(driver, [("right", "a", "", 3), ("left", "a", "", 5)]) == [
            (Windowed("a", 0, 10), "1+1", 3),
            (Windowed("a", 0, 10), "2+1", 5),
        ]


def test_session_tables_are_joined_session_by_session() -> None:
    builder = StreamsBuilder(key=Str(), value=Str())
    left, right = (
        builder.stream(topic).group_by_key().windowed_by(SessionWindows.of(5 * MS, grace=100 * MS)).count(store=topic)
        for topic in ("left", "right")
    )
    left.join(right, plus).to_stream().to("out", value=Str())
    with TopologyTestDriver(builder.build()) as driver:
        assert send(driver, [("left", "a", "", 1), ("right", "a", "", 1), ("right", "a", "", 3)]) == [
            (Windowed("a", 1, 1), "1+1", 1),
            (Windowed("a", 1, 1), None, 1),
        ]
        assert send(driver, [("left", "a", "", 3)]) == [(Windowed("a", 1, 3), "2+2", 3)]


def test_the_record_cache_folds_a_kept_join_and_knows_what_was_there() -> None:
    builder = StreamsBuilder(key=Str(), value=Str())
    words = builder.stream("left").flat_map_values(
        lambda value: [None if word == "-" else word for word in value.split()]
    )
    left = words.to_table(store=KeyValue("ltab", cached=False))
    right = builder.table("right", store=KeyValue("rtab", cached=False))
    left.join(right, plus, store="joined").to_stream().to("out")
    with TopologyTestDriver(builder.build(), Config("app", cache_bytes=10_000)) as driver:
        assert send(driver, [("right", "a", "R", 0), ("left", "a", "L -", 1)]) == []
        assert send(driver, [("left", "a", "L M", 2)]) == [("a", "M+R", 2)]
        assert send(driver, [("left", "a", "N -", 3)]) == [("a", None, 3)]


updates = st.lists(
    st.tuples(
        st.sampled_from(["left", "right"]),
        st.sampled_from(["a", "b"]),
        st.sampled_from(["x", "y", None]),
        st.integers(0, 20),
    ),
    max_size=12,
)


@given(updates)
@pytest.mark.parametrize("kind", ["join", "left_join", "outer_join"])
def test_what_is_kept_is_the_join_of_what_the_tables_hold(kind: str, updates: list[Update]) -> None:
    tables: dict[str, dict[str | None, str]] = {"left": {}, "right": {}}
    with TopologyTestDriver(joined(kind, "joined")) as driver:
        send(driver, updates)
        kept = dict(driver.store("joined").all())
    for topic, key, value, _ in updates:
        tables[topic].pop(key, None)
        if value is not None:
            tables[topic][key] = value
    left, right = tables["left"], tables["right"]
    keys = {"join": left.keys() & right.keys(), "left_join": left.keys(), "outer_join": left.keys() | right.keys()}[
        kind
    ]
    assert kept == {key: plus(left.get(key), right.get(key)) for key in keys}
