"""Foreign-key joins: who subscribes to what, which answers count, and that the result is the join of both tables."""

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import Json, Str, StreamsBuilder, Topology, TopologyTestDriver, Versioned

MS = timedelta(milliseconds=1)
Update = tuple[str, str, str | None, int]


def plus(left: str | None, right: str | None) -> str:
    return f"{left}+{right}"


def reference(value: str) -> str | None:
    """The foreign key of "x:payload" is "x"; one that begins with n is none."""
    return None if value.startswith("n") else value.partition(":")[0]


def joined(kind: str, foreign_key: Callable[..., Any] = reference, **left: Any) -> Topology:
    builder = StreamsBuilder(key=Str(), value=Str())
    table, other = builder.table("left", **left), builder.table("right", store="rtab")
    getattr(table, kind)(other, plus, foreign_key=foreign_key, store="joined", name="fk").to_stream().to("out")
    return builder.build()


def send(driver: TopologyTestDriver, updates: Iterable[Update]) -> list[tuple[Any, Any, int]]:
    """Send (topic, key, value, timestamp); what came out, as (key, value, timestamp)."""
    for topic, key, value, at in updates:
        driver.input(topic).send(key, value, at=at)
    return [(record.key, record.value, record.timestamp) for record in driver.output("out").read_all()]


def test_an_inner_join_emits_what_matches_and_deletes_what_no_longer_does() -> None:
    with TopologyTestDriver(joined("join")) as driver:
        assert send(driver, [("left", "a", "x:1", 10), ("left", "a", "x:2", 11)]) == []
        assert send(driver, [("right", "x", "X", 5)]) == [("a", "x:2+X", 5)]
        assert send(driver, [("left", "a", "x:3", 4)]) == [("a", "x:3+X", 5)]
        assert send(driver, [("left", "a", "y:4", 6)]) == [("a", None, 6)]
        assert send(driver, [("right", "x", "X'", 7)]) == []
        assert send(driver, [("left", "a", "n", 8)]) == [("a", None, 8)]
        assert send(driver, [("left", "b", "n", 9)]) == []
        assert driver.metrics()["dropped-records-total"] == 2
        assert send(driver, [("left", "b", "x:5", 9), ("left", "b", None, 12)]) == [("b", "x:5+X'", 9), ("b", None, 12)]


def test_a_left_join_always_has_a_result_for_a_left_row() -> None:
    with TopologyTestDriver(joined("left_join")) as driver:
        assert send(driver, [("left", "a", "x:1", 10)]) == [("a", "x:1+None", 10)]
        assert send(driver, [("left", "a", "n", 11)]) == [("a", "n+None", 11)]
        assert send(driver, [("right", "x", "X", 12), ("left", "a", "x:2", 13)]) == [("a", "x:2+X", 13)]
        assert send(driver, [("right", "x", None, 14)]) == [("a", "x:2+None", 14)]
        assert send(driver, [("left", "a", None, 15)]) == [("a", None, 15)]
        assert send(driver, [("left", "a", None, 16)]) == []
        assert driver.metrics()["dropped-records-total"] == 0


def test_a_foreign_update_reaches_its_subscribers_in_the_order_of_their_keys() -> None:
    with TopologyTestDriver(joined("join")) as driver:
        send(driver, [("left", key, "x:", 1) for key in ("b", "aa", "a")] + [("left", "c", "xx:", 1)])
        assert [key for key, _, _ in send(driver, [("right", "x", "X", 2)])] == ["a", "aa", "b"]


def test_the_foreign_key_may_be_made_of_the_key_too() -> None:
    with TopologyTestDriver(joined("join", lambda key, value: key)) as driver:
        assert send(driver, [("right", "a", "A", 1), ("left", "a", "L", 2)]) == [("a", "L+A", 2)]


def test_an_answer_to_a_row_that_has_changed_since_is_dropped_and_counted() -> None:
    with TopologyTestDriver(joined("join")) as driver:
        send(driver, [("right", "x", "X", 0)])
        # The second update has the lower timestamp: it is processed before the answer to the first one arrives.
        driver.send_all([("left", "a", "x:1", 10, ()), ("left", "a", "x:2", 5, ())])
        assert send(driver, []) == [("a", "x:2+X", 5)]
        assert driver.metrics()["dropped-records-total"] == 1


def test_out_of_order_updates_of_versioned_tables_are_dropped_and_counted() -> None:
    builder = StreamsBuilder(key=Str(), value=Str())
    left = builder.table("left", store=Versioned("ltab", retention=100 * MS))
    right = builder.table("right", store=Versioned("rtab", retention=100 * MS))
    left.join(right, plus, foreign_key=reference, name="fk").to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        assert send(driver, [("left", "a", "x:1", 50), ("right", "x", "X", 50)]) == [("a", "x:1+X", 50)]
        assert send(driver, [("left", "a", "y:0", 40), ("right", "x", "W", 40)]) == []
        assert driver.metrics()["dropped-records-total"] == 2


def test_foreign_keys_that_are_written_alike_are_the_same() -> None:
    builder = StreamsBuilder(key=Str(), value=Json())
    left, right = builder.table("left"), builder.table("right", key=Json())
    left.join(right, lambda one, two: two, foreign_key=lambda value: value["ref"], name="fk").to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("right").send([1, 2], "R", at=0)
        driver.input("left").send("a", {"ref": (1, 2)}, at=1)
        driver.input("left").send("a", {"ref": [1, 2]}, at=2)
        driver.input("right").send([1, 2], "S", at=3)
        assert [record.value for record in driver.output("out").read_all()] == ["R", "R", "S"]


updates = st.lists(
    st.one_of(
        st.tuples(
            st.just("left"),
            st.sampled_from(["a", "b", "c"]),
            st.sampled_from(["x:1", "x:2", "y:1", "n", None]),
            st.integers(0, 20),
        ),
        st.tuples(st.just("right"), st.sampled_from(["x", "y"]), st.sampled_from(["1", "2", None]), st.integers(0, 20)),
    ),
    max_size=15,
)


@given(updates, st.sampled_from([1, 3]), st.booleans())
@pytest.mark.parametrize("kind", ["join", "left_join"])
def test_what_is_kept_is_the_join_of_what_the_tables_hold(
    kind: str, updates: list[Update], partitions: int, at_once: bool
) -> None:
    tables: dict[str, dict[str, str]] = {"left": {}, "right": {}}
    if at_once:  # in the order of their timestamps, or the task would choose another one
        updates = sorted(updates, key=lambda update: update[3])
    for topic, key, value, _ in updates:
        tables[topic].pop(key, None)
        if value is not None:
            tables[topic][key] = value
    with TopologyTestDriver(joined(kind), partitions=partitions) as driver:
        if at_once:
            driver.send_all([(*update, ()) for update in updates])
        else:
            send(driver, updates)
        kept = dict(driver.store("joined").all())
    expected = {}
    for key, value in tables["left"].items():
        foreign = tables["right"].get(reference(value) or "")
        if foreign is not None or kind == "left_join":
            expected[key] = plus(value, foreign)
    assert kept == expected
