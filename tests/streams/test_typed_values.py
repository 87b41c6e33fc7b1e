"""Json(type=…): values are checked when they are written; types that nothing can be read as are refused at build."""

import collections
import datetime
import json
import pathlib
import typing
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import (
    Config,
    Json,
    KeyValue,
    Processor,
    Record,
    SerdeError,
    Str,
    StreamsBuilder,
    StreamsError,
    TopologyError,
    TopologyTestDriver,
)


@dataclass
class Order:
    user: str
    amount: float = 0.0


@dataclass
class BigOrder(Order):
    note: str = ""


class Total(msgspec.Struct):
    orders: list[Order] = []
    seen: dict[str, int] = {}
    last: Order | None = None
    anything: Any = None


class Renamed(msgspec.Struct, rename="camel", tag="r", omit_defaults=True):
    some_field: int
    other_field: int = 0


class Row(typing.TypedDict, total=False):
    n: int


class Pair(typing.NamedTuple):
    a: int
    b: Order


GOOD: list[tuple[Any, Any]] = [
    (Order, Order("a", 1.5)),
    (Order, Order("a", 1)),
    (Order, {"user": "a"}),
    (Order, {"amount": 3, "user": "a"}),
    (Total, Total([Order("a")], {"k": 1}, Order("b"), {"x": [1, None]})),
    (Total, {"orders": [{"user": "a"}, Order("b")], "last": None}),
    (Total, Total(orders=({"user": "a"},))),
    (Renamed, Renamed(1)),
    (Renamed, {"someField": 1, "otherField": 0}),
    (Renamed, {"type": "r", "someField": 1}),
    (Row, {"n": 1}),
    (Row, {}),
    (Pair, Pair(1, Order("a"))),
    (Pair, [1, {"user": "a"}]),
    (int, 5),
    (int | None, 5),
    (float, 5),
    (list[int], (1, 2)),
    (set[int], {1, 2}),
    (dict[int, int], {7: 1}),
    (dict[datetime.date, int], {datetime.date(2026, 1, 2): 1}),
    (datetime.datetime, "2026-01-02T03:04:05+00:00"),
    (typing.Any, {"x": 1}),
    (object, {"x": 1}),
    (collections.abc.Iterable, [1]),
]


@pytest.mark.parametrize(("kind", "value"), GOOD, ids=repr)
def test_a_value_of_the_type_is_written_as_it_is(kind: Any, value: Any) -> None:
    assert Json(type=kind).encode(value) == msgspec.json.encode(value)


BAD: list[tuple[Any, Any, str]] = [
    (Order, {"usr": "a"}, "missing required field `user`"),
    (Order, {"user": "a", "amuont": 3}, "`[$]` has 'amuont', which Order has no field for"),
    (Order, Order(5), r"Expected `str`, got `int` - at `\$\.user`"),
    (Order, BigOrder("a", 1.0, "lost"), "`[$]` has 'note', which Order has no field for"),
    (Order, [1], "Expected `object`, got `array`"),
    (Order, "a", "Expected `object`, got `str`"),
    (Total, {"orders": [{"user": "a"}, {"user": "b", "x": 1}]}, r"`\$\.orders\[1\]` has 'x'"),
    (Total, Total([{"user": "b", "x": 1}]), r"`\$\.orders\[0\]` has 'x'"),
    (Total, Total(seen={7: 1}), r"`\$\.seen` has the key 7 \(int\)"),
    (Total, Total(anything={"a": {7: 1}}), r"`\$\.anything\['a'\]` has the key 7 \(int\)"),
    (Total, Total(last={"user": "a", "z": 0}), r"`\$\.last` has 'z'"),
    (Renamed, {"some_field": 1}, "missing required field `someField`"),
    (Row, {"n": 1, "m": 2}, r"`\$` has the key 'm' \(str\)"),
    (Pair, [1, {"user": "a", "x": 1}], r"`\$\[1\]` has 'x'"),
    (int, "5", "Expected `int`, got `str`"),
    (int, True, "Expected `int`, got `bool`"),
    (list[int], [1, "2"], r"Expected `int`, got `str` - at `\$\[1\]`"),
    (dict[str, int], {7: 1}, r"has the key 7 \(int\)"),
    (dict[str, Order], {"a": {"user": "b", "x": 1}}, r"`\$\['a'\]` has 'x'"),
]


@pytest.mark.parametrize(("kind", "value", "says"), BAD, ids=repr)
def test_a_value_that_is_not_of_the_type_is_not_written(kind: Any, value: Any, says: str) -> None:
    with pytest.raises(SerdeError, match=says):
        Json(type=kind).encode(value)


def paths(value: Any, at: str = "$") -> set[str]:
    """Where something stands in a JSON value."""
    if isinstance(value, dict):
        return {at}.union(*(paths(part, f"{at}.{key}") for key, part in value.items()))
    if isinstance(value, list):
        return {at}.union(*(paths(part, f"{at}[{number}]") for number, part in enumerate(value)))
    return {at}


names = st.sampled_from(["user", "amount", "usr", "orders", "seen", "last", "anything", "n"])
values = st.recursive(
    st.none() | st.integers(-3, 3) | st.floats(-1, 1) | st.text(max_size=2) | st.builds(Order, st.text(max_size=2)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(names | st.integers(0, 2), inner, max_size=4)
        | st.builds(Total, st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=1), inner, max_size=2), inner)
    ),
    max_leaves=8,
)


@given(st.sampled_from([Order, Total, dict[str, Order], list[Total], Total | None, dict[str, Any]]), values)
def test_what_is_written_is_read_back_whole(kind: Any, value: Any) -> None:
    serde = Json(type=kind)
    try:
        data = serde.encode(value)
    except SerdeError:
        return
    back = serde.decode(data)
    assert paths(json.loads(data)) <= paths(json.loads(msgspec.json.encode(back)))
    # And once it is of the type, it stays as it is.
    assert serde.decode(serde.encode(back)) == back


class Plain: ...


@dataclass
class Holds:
    orders: list[Order] = field(default_factory=list)
    plain: Plain | None = None


class Tree(msgspec.Struct):
    children: "list[Tree]" = []
    by_pair: dict[tuple[int, int], int] = {}


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (complex, "complex"),
        (set[complex], "complex"),
        (Plain, "Plain"),
        (list[Plain], "Plain"),
        (dict[str, list[Plain | None]], "Plain"),
        (Holds, r"Plain'> \(in Holds.plain\)"),
        (Tree, r"a dict \(in Tree.by_pair\) whose keys are of the kind Tuple"),
        (dict[bool, int], "keys are of the kind Bool"),
        (pathlib.Path, "Path"),
        (collections.OrderedDict, "OrderedDict"),
        (typing.Callable, "Callable"),
        (int | Plain, "custom type"),
        ("Order", "is not supported"),
        (5, "is not supported"),
    ],
)
def test_a_type_that_nothing_can_be_read_as_is_refused_at_build(kind: Any, says: str) -> None:
    with pytest.raises(TopologyError, match=rf"(?s)cannot be read from JSON: .*{says}"):
        Json(type=kind)


class Keeps(Processor):
    def process(self, record: Record) -> None:
        self.context.store("s").put(record.key, {"usr": "a"})


def build(way: str) -> Any:
    builder = StreamsBuilder(key=Str(), value=Json())
    stream, typed = builder.stream("in"), Json(type=Order)
    wrong = stream.map_values(lambda value: {"usr": "a"})
    if way == "aggregate":
        stream.group_by_key().aggregate(dict, lambda key, value, total: {"usr": "a"}, store="s", value=typed)
    elif way == "table":
        wrong.to_table(store="s", value=typed)
    elif way == "processor":
        stream.process(Keeps, stores=[KeyValue("s", value=typed)])
    elif way == "repartition":
        wrong.repartition(name="s", value=typed)
    elif way == "function":
        wrong.to(lambda key, value, context: "s", value=typed)
    else:
        wrong.to("s", value=typed)
    return builder.build()


@pytest.mark.parametrize("way", ["aggregate", "table", "processor", "repartition", "function", "sink"])
@pytest.mark.parametrize("cache", [0, 1 << 20])
def test_a_wrong_value_fails_where_it_is_written_and_is_handled_like_any_error(way: str, cache: int) -> None:
    places = {"repartition": "topic 'app-s-repartition'", "function": "topic 's'", "sink": "topic 's'"}
    place = places.get(way, "store 's'")
    named = rf"step '.*in-0@0: SerdeError: {place}: .*missing required field `user`.*key 'k'"
    with (
        TopologyTestDriver(build(way), Config("app", cache_bytes=cache)) as driver,
        pytest.raises(StreamsError, match=named),
    ):
        driver.input("in").send("k", 1, at=0)
    lenient: Any = {"on_processing_error": "dead-letter", "on_production_error": "dead-letter", "dead_letters": "bad"}
    with TopologyTestDriver(build(way), Config("app", cache_bytes=cache, **lenient)) as driver:
        driver.input("in").send("k", 1, at=0)
        assert driver.metrics()["dropped-records-total"] == 1
        assert [record.value for record in driver.output("bad", value=Json()).read_all()] == [1]
        if way in ("aggregate", "table", "processor"):
            assert driver.store("s").get("k") is None
