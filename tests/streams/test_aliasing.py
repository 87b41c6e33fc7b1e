"""Functions that change their arguments in place give what a store that serialises at every put would give.

Each topology is built twice: with functions that mutate and return what they got, and with pure ones that work on deep
copies. Outputs, old values (seen through subtractors) and stores must not differ, also when a function raises after it
has already changed its argument.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater import (
    Config,
    Json,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimeWindows,
    Topology,
    TopologyTestDriver,
)

MS = timedelta(milliseconds=1)


class Boom(Exception):
    """Raised by an aggregator that has already done its damage."""


def add(key: Any, value: Any, seen: dict[str, Any]) -> dict[str, Any]:
    seen["n"] = seen.get("n", 0) + 1
    seen.setdefault("values", []).append(value)
    if value["v"] == 0:
        raise Boom
    return seen


def subtract(key: Any, value: Any, seen: dict[str, Any]) -> dict[str, Any]:
    seen.setdefault("gone", []).append(value)
    return seen


def merge(key: Any, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    a["n"] = a.get("n", 0) + b.get("n", 0)
    a.setdefault("values", []).extend(b.get("values", []))
    return a


def fold(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    a.setdefault("rest", []).append(b["v"])
    if b["v"] == 0:
        raise Boom
    return a


def pure(f: Callable[..., Any]) -> Callable[..., Any]:
    """The function on deep copies of its arguments."""
    if f.__code__.co_argcount == 2:
        return lambda a, b: f(copy.deepcopy(a), copy.deepcopy(b))
    return lambda key, a, b: f(key, copy.deepcopy(a), copy.deepcopy(b))


def spoil(value: Any) -> Any:
    """A child that changes the value it gets, once it has noted it."""
    if isinstance(value, dict):
        note = {"seen": copy.deepcopy(value)}
        value["spoilt"] = True
        return note
    return value


def build(kind: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Topology:
    builder = StreamsBuilder(value=Json())
    grouped = builder.stream("in").group_by_key()
    if kind == "aggregate":
        table = grouped.aggregate(dict, wrap(add), store="state")
    elif kind == "reduce":
        table = grouped.reduce(wrap(fold), store="state")
    elif kind == "tumbling":
        table = grouped.windowed_by(TimeWindows.of(20 * MS, grace=50 * MS)).aggregate(dict, wrap(add), store="state")
    elif kind == "sliding":
        table = grouped.windowed_by(SlidingWindows.of(10 * MS, grace=50 * MS)).aggregate(dict, wrap(add), store="state")
    elif kind == "session":
        sessions = grouped.windowed_by(SessionWindows.of(5 * MS, grace=50 * MS))
        table = sessions.aggregate(dict, wrap(add), merge=wrap(merge), store="state")
    else:
        rows = builder.table("in2", store="rows").group_by(lambda key, value: (key[0], value), name="g")
        table = rows.aggregate(dict, wrap(add), wrap(subtract), store="state")
    # Three children: one that spoils what it gets, a materialized table, and a regrouping that needs old values.
    table.to_stream().map_values(spoil).to("spoilt", key=None)
    table.map_values(lambda value: {"n": len(value)}, store="sizes")
    again = table.group_by(lambda key, value: ("all", value), name="again")
    again.aggregate(dict, wrap(add_anything), wrap(subtract), store="again").to_stream().to("again-out")
    return builder.build()


def add_anything(key: Any, value: Any, seen: dict[str, Any]) -> dict[str, Any]:
    seen.setdefault("got", []).append(value)
    return seen


Send = tuple[str, int, int]


def run(topology: Topology, sends: list[Send], cache_bytes: int, topic: str) -> Any:
    config = Config(on_processing_error="skip", cache_bytes=cache_bytes)
    with TopologyTestDriver(topology, config) as driver:
        for key, number, at in sends:
            value = None if number < 0 and topic == "in2" else {"v": max(number, 0)}
            driver.input(topic).send(key, value, at=at)
        outputs = [driver.output(name).read_all() for name in ("spoilt", "again-out")]
        stores = [list(driver.store(name).all()) for name in ("state", "sizes", "again")]
        return outputs, stores, driver.metrics()["dropped-records-total"]


sends = st.lists(
    st.tuples(st.sampled_from(["a", "ab", "b"]), st.integers(-1, 3), st.integers(0, 60)), min_size=1, max_size=12
)


@pytest.mark.parametrize("cache_bytes", [0, 1_000_000])
@pytest.mark.parametrize("kind", ["aggregate", "reduce", "tumbling", "sliding", "session", "table"])
@settings(max_examples=40, deadline=None)
@given(sends=sends)
def test_mutation_is_not_seen_by_the_store(kind: str, cache_bytes: int, sends: list[Send]) -> None:
    topic = "in2" if kind == "table" else "in"
    mutating = run(build(kind, lambda f: f), sends, cache_bytes, topic)
    assert mutating == run(build(kind, pure), sends, cache_bytes, topic)
