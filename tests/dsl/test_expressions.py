"""Expressions as Python computes them, wherever a topology takes one, and what is said about wrong use. That Spark
computes the same is tested in tests/spark."""

import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import (
    Expression,
    Float64,
    Int64,
    JoinWindows,
    Json,
    KeyValue,
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
    agg,
    coalesce,
    col,
    concat,
    lit,
    record_key,
    record_timestamp,
    record_value,
    when,
)
from headwater.dsl import ops
from headwater.dsl.aggregates import Aggregator, TotalsSerde
from headwater.dsl.expression_code import ExpressionFunction, compile_node
from headwater.dsl.expression_nodes import FUNCTIONS, Call, Item, Literal, Record
from headwater.dsl.expression_values import FUNCTION
from headwater.dsl.topology import ProcessorNode

LOW, HIGH = -(2**63), 2**63 - 1
NAN = math.nan


@dataclass
class User:
    name: str
    nick: str | None = None


class Order(msgspec.Struct):
    user: User
    amount: float
    tags: list[str] = []
    rates: dict[str, float] = {}


# ---- what they compute ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "value", "expected"),
    [
        (col("a") + col("b"), {"a": 1, "b": 2}, 3),
        (col("a") + col("b"), {"a": 1, "b": 2.5}, 3.5),
        (col("a") + 1, {"a": HIGH}, None),
        (col("a") - 1, {"a": LOW}, None),
        (col("a") * 2, {"a": HIGH}, None),
        (-col("a"), {"a": LOW}, None),
        (col("a").abs(), {"a": LOW}, None),
        (abs(col("a")), {"a": -3}, 3),
        (1 - col("a"), {"a": 3}, -2),
        (col("a") / 2, {"a": 3}, 1.5),
        (1 / col("a"), {"a": 0}, None),
        (1 / col("a"), {"a": -0.0}, None),
        (col("a") % 3, {"a": -7}, -1),
        (col("a") % -3, {"a": 7}, 1),
        (col("a") % 0, {"a": 7}, None),
        (col("a") % 2, {"a": -7.5}, -1.5),
        (col("a") + 1, {"a": None}, None),
        (col("a") + 1, {}, None),
        (col("a") + 1, None, None),
        (col("a") == NAN, {"a": NAN}, True),
        (col("a") > 1, {"a": NAN}, True),
        (col("a") > math.inf, {"a": NAN}, True),
        (col("a") >= col("b"), {"a": 1.0, "b": NAN}, False),
        (col("a") == 2.0**53, {"a": 2**53 + 1}, True),
        (col("a") == 2**53, {"a": 2**53 + 1}, False),
        (col("a") < col("b"), {"a": "Z", "b": "a"}, True),
        (col("a") == None, {"a": None}, None),  # noqa: E711 - null equals nothing, not even null
        ((col("a") > 1) & (col("b") > 1), {"a": None, "b": 0}, False),
        ((col("a") > 1) & (col("b") > 1), {"a": 0, "b": None}, False),
        ((col("a") > 1) & (col("b") > 1), {"a": 2, "b": None}, None),
        ((col("a") > 1) | (col("b") > 1), {"a": None, "b": 2}, True),
        ((col("a") > 1) | (col("b") > 1), {"a": None, "b": 0}, None),
        (~(col("a") > 1), {"a": None}, None),
        (~col("p"), {"p": False}, True),
        (col("a").isin(1, 2), {"a": 2}, True),
        (col("a").isin([1, None]), {"a": 2}, None),
        (col("a").isin("x", "y"), {"a": "z"}, False),
        (col("a").is_null(), {"a": None}, True),
        (col("a").is_not_null(), {"a": None}, False),
        (col("a").null_if(0), {"a": 0}, None),
        (coalesce(col("a"), col("b"), 7), {"a": None, "b": None}, 7),
        (col("s").length(), {"s": "a😀"}, 2),
        (col("s").upper(), {"s": "straße"}, "STRASSE"),
        (col("s").trim(), {"s": "  a\t "}, "a\t"),
        (col("s").substr(2, 2), {"s": "😀bcd"}, "bc"),
        (col("s").substr(-5, 3), {"s": "abc"}, "a"),
        (col("s").substr(0, 2), {"s": "abc"}, "ab"),
        (col("s").replace("", "x"), {"s": "abc"}, "abc"),
        (col("s").like("a_c%"), {"s": "a\ncd"}, True),
        (col("s").like("100\\%"), {"s": "100%"}, True),
        (concat(col("s"), "-", col("t")), {"s": "a", "t": None}, None),
        (col("s").cast("long"), {"s": "9223372036854775808"}, None),
        (col("s").cast("long"), {"s": "\u0661"}, None),
        (col("s").cast(float), {"s": " 1e3 "}, 1000.0),
        (col("s").cast("double"), {"s": "nan"}, None),
        (col("s").cast("boolean"), {"s": "TRUE"}, True),
        (col("s").cast("boolean"), {"s": "yes"}, None),
        (col("x").cast("long"), {"x": -1.9}, -1),
        (col("x").cast("long"), {"x": 2.0**63}, None),
        (col("x").cast("long"), {"x": NAN}, None),
        (col("p").cast("string"), {"p": True}, "true"),
        (col("s").cast("timestamp").cast("long"), {"s": "1970-01-01T00:00:01.5+00:30"}, -1798500),
        (col("s").cast("timestamp"), {"s": "2023-02-29"}, None),
        (col("n").cast("timestamp").cast("string"), {"n": -1}, "1969-12-31T23:59:59.999000Z"),
        (col("n").cast("timestamp"), {"n": HIGH}, None),
        (col("d").trunc("week").cast("string"), {"d": datetime(2024, 5, 5, 23, tzinfo=UTC)}, "2024-04-29T00:00:00Z"),
        (col("d").hour(), {"d": datetime(2024, 5, 5, 23)}, 23),
        (col("d").day(), {"d": datetime.fromisoformat("2024-05-05T23:00:00-02:00")}, 6),
        (col("l")[0], {"l": [5, 6]}, 5),
        (col("l")[-1], {"l": [5, 6]}, 6),
        (col("l")[2], {"l": [5, 6]}, None),
        (col("m.k"), {"m": {"k": 1}}, 1),
        (col("m")["a.b"], {"m": {"a.b": 1}}, 1),
        (record_value()["a"], {"a": 1}, 1),
        (when(col("a") > 9, "l").when(col("a") > 4, "m"), {"a": 1}, None),
        (when(col("a") > 9, "l").otherwise("s"), {"a": None}, "s"),
    ],
)
def test_what_an_expression_computes(expression: Expression, value: Any, expected: Any) -> None:
    result = expression.evaluate(value)
    assert (type(result), result) == (type(expected), expected)


def test_declared_types_are_read_by_their_fields() -> None:
    order = Order(User("ann"), 2.5, ["a", "b"], {"EUR": 1.1})
    for _ in range(2):  # the second time without asking for the type
        assert col("user.name").evaluate(order) == "ann"
        assert coalesce(col("user.nick"), col("user.name")).evaluate(order) == "ann"
        assert (col("amount") * 2).evaluate(order) == 5.0
        assert (col("tags")[1], col("rates.EUR"))[0].evaluate(order) == "b"
    function = ExpressionFunction((col("amount") > 1)._node)
    assert [function(None, value) for value in (order, {"amount": 0}, None, order)] == [True, False, None, True]
    with pytest.raises(TypeError, match="Order has no field 'amuont': it has user, amount, tags, rates"):
        col("amuont").evaluate(order)


def test_a_windowed_key_has_fields() -> None:
    from headwater import Windowed

    assert (record_key()["end"] - record_key()["start"]).evaluate(key=Windowed("a", 5, 9)) == 4


@pytest.mark.parametrize(
    ("expression", "value", "message"),
    [
        (col("a") + 1, {"a": "1"}, r"\+ takes numbers .for text use concat\(\)., not string '1' and long 1: cast\(\)"),
        (col("a") + 1, {"a": True}, r"not boolean True and long 1"),
        (col("a") > 1, {"a": "1"}, r"> takes two values of one kind"),
        (col("a") == "x", {"a": 1}, r"== takes two values of one kind"),
        (col("a").upper(), {"a": 1}, r"upper\(\) takes strings, not long 1"),
        (col("a") & col("b"), {"a": 1, "b": True}, r"a condition takes a boolean, not long 1"),
        (col("a").hour(), {"a": 1}, r"hour\(\) takes a timestamp"),
        (col("a")["x"], {"a": 1}, r"\['x'\] takes a struct or a map, not long 1"),
        (col("a")[0], {"a": "text"}, r"\[0\] takes a list, not string"),
        (col("a").cast("timestamp"), {"a": 1.5}, r'cast\("timestamp"\) takes a long'),
    ],
)
def test_nothing_is_converted_silently(expression: Expression, value: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        expression.evaluate(value)


def test_a_branch_that_is_not_taken_is_not_looked_at() -> None:
    safe = when(col("kind") == "n", col("x") + 1).otherwise(0)
    assert safe.evaluate({"kind": "s", "x": "text"}) == 0
    assert ((col("kind") == "n") & (col("x") > 1)).evaluate({"kind": "s", "x": "text"}) is False
    assert ((col("kind") == "s") | (col("x") > 1)).evaluate({"kind": "s", "x": "text"}) is True
    assert coalesce(col("kind"), col("x") + 1).evaluate({"kind": "s", "x": "text"}) == "s"
    # What a branch computed is not known after it.
    both = when(col("p"), col("x") + 1).otherwise(col("x") * 2) + (col("x") + 1)
    assert [both.evaluate({"p": p, "x": 10}) for p in (True, False)] == [22, 31]


NUMBERS = st.one_of(st.none(), st.integers(LOW, HIGH), st.floats(), st.sampled_from([0, 1, 2**53 + 1, 2.0**53, -0.0]))
COMPARED = ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"]


@given(st.sampled_from([*COMPARED, "add", "subtract", "multiply"]), NUMBERS, NUMBERS, st.booleans(), st.booleans())
def test_the_short_cuts_give_what_the_definition_says(name: str, a: Any, b: Any, left: bool, right: bool) -> None:
    record = Record("value")
    nodes = (Literal(a) if left else Item(record, "a"), Literal(b) if right else Item(record, "b"))
    result, expected = compile_node(Call(name, nodes))(None, {"a": a, "b": b}), FUNCTION[name](a, b)
    assert (type(result), repr(result)) == (type(expected), repr(expected))


@given(st.text(max_size=3), st.lists(st.text(max_size=3), min_size=1, max_size=3))
def test_the_short_cuts_for_text(a: str, choices: list[str]) -> None:
    assert col("a").isin(choices).evaluate({"a": a}) is (a in choices)
    assert (col("a") < choices[0]).evaluate({"a": a}) is (a < choices[0])


def test_every_function_is_defined_once() -> None:
    written_out = {"and", "or", "not", "is_null", "is_not_null", "coalesce"}
    assert set(FUNCTION) | written_out == set(FUNCTIONS)


def test_expressions_and_their_functions_survive_pickling() -> None:
    expression = when(col("a") > 1, concat("é", col("s"))).otherwise(None)
    function = ExpressionFunction(expression._node, predicate=False)
    copy = pickle.loads(pickle.dumps(function))
    assert copy == function
    assert copy("k", {"a": 2, "s": "x"}) == "éx"
    assert repr(pickle.loads(pickle.dumps(expression))) == repr(expression)
    assert ExpressionFunction(Literal(1)) != ExpressionFunction(Literal(1.0)) != ExpressionFunction(Literal(True))


# ---- wrong use -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda: col("a") > 1 and col("b") > 1, r"\(col\('a'\) > 1\) is neither true nor false .* & \| ~, each in"),
        (lambda: 1 < col("a") < 5, "not and, or, not, in, nor a < b < c"),
        (lambda: 1 if col("a") else 2, r"choose with when\(...\).otherwise\(...\)"),
        (lambda: not col("a"), "neither true nor false"),
        (lambda: "x" in col("a"), r"\.contains\(...\) for text, .isin"),
        (lambda: list(col("a")), "cannot be iterated over"),
        (lambda: col(""), "col.. takes a field's name"),
        (lambda: col("a..b"), "col.. takes a field's name"),
        (lambda: col(1), "col.. takes a field's name"),  # type: ignore[arg-type]
        (lambda: col("a")[1.5], "takes a field's name or an element's number"),  # type: ignore[index]
        (lambda: lit(object()), "lit.. takes None, a boolean, number, text or datetime"),
        (lambda: col("a") == [1], "lit.. takes None"),
        (lambda: lit(2**63), "integers have 64 bits"),
        (lambda: col("a").cast("decimal"), "cast.. knows long, double, string, boolean, timestamp, not 'decimal'"),
        (lambda: col("a").trunc("decade"), "trunc.. knows year"),
        (lambda: col("a").substr("1", 2), "substr.. takes two numbers"),  # type: ignore[arg-type]
        (lambda: col("a").like("x\\"), "a backslash stands before"),
        (lambda: col("a").isin(), "at least one value"),
        (lambda: (col("a") > 1) + 2, "argument 1 must be a number, but .* is a boolean: use cast"),
        (lambda: col("a").upper() == 1, "compares a number with a string: use cast"),
        (lambda: col("a").length().upper(), "must be a string"),
        (lambda: when(col("a") + 1, 2), "a condition is a boolean, not a number"),
        (lambda: col("a").alias(""), "alias.. takes a field's name"),
        (lambda: coalesce(), "at least one"),
        (lambda: concat(), "at least one"),
        (lambda: agg.sum("amount"), r"takes an expression, as agg.sum\(col\('amount'\)\), not 'amount'"),
        (lambda: agg.sum(col("s").upper()), "takes numbers, not a string"),
        (lambda: agg.max(record_timestamp()), "put it into a field before"),
    ],
)
def test_wrong_use_names_the_remedy(use: Callable[[], Any], message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        use()


def test_an_unknown_function_is_hinted_at() -> None:
    with pytest.raises(AttributeError, match="an expression has no 'uper': did you mean 'upper'"):
        col("a").uper()
    with pytest.raises(AttributeError, match=r"a field is read with col\(\"a\"\)\['city'\]"):
        _ = record_value().city
    with pytest.raises(TypeError, match="unhashable"):
        {col("a")}


# ---- in a topology -------------------------------------------------------------------------------------------------


def run(draw: Callable[[StreamsBuilder], Any], *records: tuple[Any, Any, int]) -> list[tuple[Any, Any]]:
    """What a topology writes to "out" for records of "in"."""
    builder = StreamsBuilder()
    draw(builder)
    with TopologyTestDriver(builder.build()) as driver:
        for key, value, at in records:
            driver.input("in").send(key, value, at=at)
        return [(record.key, record.value) for record in driver.output("out").read_all()]


ORDERS = [("k", {"user": "ann", "amount": 12}, 0), ("k", {"user": "bob"}, 5), ("k", {"user": "cid", "amount": 3}, 9)]


@pytest.mark.parametrize(
    ("draw", "expected"),
    [
        (lambda s: s.filter(col("amount") > 10).select("user"), [("k", {"user": "ann"})]),
        (
            lambda s: s.filter_not(col("amount") > 10).map_values(col("user")),
            [("k", "bob"), ("k", "cid")],
        ),
        (lambda s: s.select_key(col("user")).map_values(col("amount")), [("ann", 12), ("bob", None), ("cid", 3)]),
        (
            lambda s: s.map_values(concat(record_key(), "-", col("user"))),
            [("k", "k-ann"), ("k", "k-bob"), ("k", "k-cid")],
        ),
        (lambda s: s.filter(record_timestamp() >= 5).map_values(record_timestamp() + 1), [("k", 6), ("k", 10)]),
        (
            lambda s: s.with_columns(amount=coalesce(col("amount"), 0), at=record_timestamp()),
            [
                ("k", {"user": "ann", "amount": 12, "at": 0}),
                ("k", {"user": "bob", "amount": 0, "at": 5}),
                ("k", {"user": "cid", "amount": 3, "at": 9}),
            ],
        ),
        (
            lambda s: s.select(name=col("user")),
            [("k", {"name": "ann"}), ("k", {"name": "bob"}), ("k", {"name": "cid"})],
        ),
        (
            lambda s: s.split(name="b-").branch(record_timestamp() == 9, name="x").no_default()["b-x"].select("user"),
            [("k", {"user": "cid"})],
        ),
    ],
)
def test_a_stream_takes_expressions(draw: Any, expected: Any) -> None:
    assert run(lambda builder: draw(builder.stream("in")).to("out"), *ORDERS) == expected


def test_flat_map_values_takes_a_list() -> None:
    def draw(builder: StreamsBuilder) -> None:
        builder.stream("in").flat_map_values(col("items")).to("out")

    records = [("k", {"items": ["a", "b"]}, 0), ("k", {"items": None}, 1), ("k", {"items": []}, 2)]
    assert run(draw, *records) == [("k", "a"), ("k", "b")]
    with pytest.raises(StreamsError, match="flat_map_values takes a list, not string 'ab'"):
        run(draw, ("k", {"items": "ab"}, 0))


def test_null_values_pass_select_and_with_columns() -> None:
    def draw(builder: StreamsBuilder) -> None:
        builder.stream("in").select(n=lit(1)).with_columns(m=lit(2)).to("out")

    assert run(draw, ("k", None, 0), ("k", {}, 1)) == [("k", None), ("k", {"n": 1, "m": 2})]


def test_a_declared_type_becomes_a_dict_by_with_columns() -> None:
    builder = StreamsBuilder()
    builder.stream("in", value=Json(type=Order)).with_columns(total=col("amount") * 2).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("in").send("k", Order(User("ann"), 2.5), at=0)
        (record,) = driver.output("out").read_all()
    user = {"name": "ann", "nick": None}
    assert record.value == {"user": user, "amount": 2.5, "tags": [], "rates": {}, "total": 5.0}


def test_groups_and_tables_take_expressions() -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by(col("user")).count(store="orders").to_stream().to("out")
    users = builder.table("users", store="users")
    users.filter(col("age") >= 18, store="adults").select("city", store="cities")
    users.with_columns(old=col("age") > 60, store="old")
    users.group_by(col("city")).count(store="per-city")
    users.map_values(col("age") + 1, store="next")
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("in").send("k", {"user": "ann"}, at=0)
        assert driver.store("orders").get("ann") == 1
        driver.input("users").send("ann", {"city": "Rome", "age": 17}, at=0)
        assert driver.store("adults").get("ann") is None
        driver.input("users").send("ann", {"city": "Rome", "age": 18}, at=1)
        driver.input("users").send("bob", {"city": "Rome", "age": 70}, at=2)
        assert driver.store("adults").get("ann") == {"city": "Rome", "age": 18}
        assert driver.store("cities").get("bob") == {"city": "Rome"}
        assert driver.store("old").get("bob") == {"city": "Rome", "age": 70, "old": True}
        assert driver.store("per-city").get("Rome") == 2
        assert driver.store("next").get("ann") == 19


def test_joins_take_expressions_for_keys() -> None:
    builder = StreamsBuilder()
    users = builder.global_table("users")
    builder.stream("in").join(users, lambda order, user: user, select=col("user")).to("out")
    cities = builder.table("cities")
    builder.table("people").join(cities, lambda p, c: c, foreign_key=col("city"), store="lives")
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("users").send("ann", "Ann", at=0)
        driver.input("in").send("k", {"user": "ann"}, at=0)
        assert [record.value for record in driver.output("out").read_all()] == ["Ann"]
        driver.input("cities").send("r", "Rome", at=0)
        driver.input("people").send("p", {"city": "r"}, at=0)
        assert driver.store("lives").get("p") == "Rome"


def test_steps_are_named_as_map_values_is() -> None:
    def names(draw: Callable[[Any], Any]) -> list[str]:
        builder = StreamsBuilder()
        draw(builder).to("out")
        return list(builder.build().nodes)

    assert names(lambda b: b.stream("in").select("a")) == names(lambda b: b.stream("in").map_values(lambda v: v))
    assert names(lambda b: b.stream("in").select("a", name="step"))[1] == "step"
    table = names(lambda b: b.table("in").select("a").to_stream())
    assert table == names(lambda b: b.table("in").map_values(lambda v: v).to_stream())


def test_a_back_end_sees_the_expression() -> None:
    builder = StreamsBuilder()
    builder.stream("in").filter(col("a") > 1).select("b").to("out")
    found = [node.op for node in builder.build().nodes.values() if isinstance(node, ProcessorNode)]
    assert found == [
        ops.Filter(ExpressionFunction((col("a") > 1)._node, predicate=True)),
        ops.MapValues(found[1].f, keyed=True),
    ]
    assert str(found[1].f.node) == "select(b=col('b'))"


def test_a_failing_record_names_the_expression() -> None:
    def draw(builder: StreamsBuilder) -> None:
        builder.stream("in").filter(col("amount") > 10).to("out")

    with pytest.raises(StreamsError, match=r"\(\(col\('amount'\) > 10\)\) failed on in-0@0: TypeError: > takes two"):
        run(draw, ("k", {"amount": "x"}, 0))

    def branches(builder: StreamsBuilder) -> None:
        builder.stream("in").split().branch(col("a") > 10).branch(col("b") > 10).no_default()

    with pytest.raises(StreamsError, match=r"\(\(col\('b'\) > 10\)\) failed on in-0@0"):
        run(branches, ("k", {"a": 1, "b": "x"}, 0))


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda s: s.map(col("a")), "a function is needed here, but this is the expression col.'a'."),
        (lambda s: s.peek(col("a")), "a function is needed here"),
        (lambda s: s.filter(col("a") + 1), r"\(col\('a'\) \+ 1\) is a number, but a condition is needed"),
        (lambda s: s.select(), r"select\(\) needs at least one field"),
        (lambda s: s.select(col("a") + 1), "has no name"),
        (lambda s: s.select("a", a=col("b")), "gives the field 'a' twice"),
        (lambda s: s.select(a=1), r"a= is 1: write col\(...\) or lit\(...\)"),
        (lambda s: s.to_table().filter(record_timestamp() > 1), "put it into a field before"),
        (lambda s: s.to_table().select(at=record_timestamp()), "put it into a field before"),
        (lambda s: s.group_by_key().reduce(col("a")), "a function is needed here"),
        (lambda s: s.group_by_key().aggregate(col("a"), col("b")), "a function is needed here"),
        (lambda s: s.group_by_key().aggregate(agg.count()), "has no name"),
        (lambda s: s.group_by_key().aggregate(n=1), "aggregates, as n=agg.count.., but n= is 1"),
        (lambda s: s.group_by_key().aggregate(n=agg.count(), emit="often"), 'emit= is "per-record" or "per-batch"'),
        (lambda s: s.group_by_key().aggregate(list, lambda k, v, a: a, emit="per-batch"), "over expressions only"),
    ],
)
def test_a_fault_is_found_before_anything_runs(draw: Any, message: str) -> None:
    builder = StreamsBuilder()
    with pytest.raises(TopologyError, match=message):  # noqa: PT012 - drawing or building, whichever notices
        draw(builder.stream("in"))
        builder.build()


# ---- aggregates ----------------------------------------------------------------------------------------------------


def fold(aggregates: dict[str, Any], values: list[Any]) -> Any:
    aggregator = Aggregator(aggregates)
    totals = aggregator.init()
    for value in values:
        totals = aggregator("k", value, totals)
    return totals


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], [0, 0, None, None, None, None]),
        ([{"n": None}, {}], [2, 0, None, None, None, None]),
        ([{"n": 1}, {"n": None}, {"n": 4}], [3, 2, 5, 1, 4, 2.5]),
        ([{"n": 1}, {"n": 0.5}], [2, 2, 1.5, 0.5, 1, 0.75]),
        ([{"n": 2.0}, {"n": NAN}], [2, 2, NAN, 2.0, NAN, NAN]),
    ],
)
def test_aggregates(values: list[Any], expected: list[Any]) -> None:
    n = col("n")
    aggregates = {"c": agg.count(), "cn": agg.count(n), "s": agg.sum(n)}
    aggregates |= {"lo": agg.min(n), "hi": agg.max(n), "avg": agg.avg(n)}
    assert repr(list(fold(aggregates, values).values())) == repr(expected)
    # In two parts, as sessions merge, and through the bytes of the store.
    serde = TotalsSerde(Aggregator(aggregates))
    for cut in range(len(values) + 1):
        parts = [serde.decode(serde.encode(fold(aggregates, part))) for part in (values[:cut], values[cut:])]
        merged = Aggregator(aggregates).merge("k", *parts)
        assert repr(list(merged.values())) == repr(expected)


def test_a_sum_that_did_not_fit_once_is_null_from_then_on() -> None:
    values = [{"n": HIGH}, {"n": 1}, {"n": -5}]
    totals = fold({"s": agg.sum(col("n"))}, values)
    serde = TotalsSerde(Aggregator({"s": agg.sum(col("n"))}))
    assert totals == serde.decode(serde.encode(totals)) == {"s": None}
    assert serde.aggregator("k", {"n": -5}, serde.decode(serde.encode(totals))) == {"s": None}
    assert serde.aggregator.merge("k", fold(serde.aggregator.aggregates, [{"n": 1}]), totals) == {"s": None}


def test_minimum_and_maximum_of_other_kinds() -> None:
    days = [datetime(2024, 1, d, tzinfo=UTC) for d in (2, 1, 3)]
    aggregates = {"lo": agg.min(col("d")), "hi": agg.max(col("d")), "s": agg.max(col("s"))}
    totals = fold(aggregates, [{"d": d, "s": str(d.day)} for d in days])
    assert totals == {"lo": days[1], "hi": days[2], "s": "3"}


def test_an_aggregate_refuses_what_it_cannot_add() -> None:
    with pytest.raises(TypeError, match="takes numbers"):
        fold({"s": agg.sum(col("n"))}, [{"n": "1"}])


def test_aggregates_of_groups() -> None:
    builder = StreamsBuilder(value=Float64())
    (
        builder.stream("in", value=Json())
        .group_by(col("user"), key=Str())
        .aggregate(total=agg.sum(col("amount")), mean=agg.avg(col("amount")), name=agg.max(col("user")), store="totals")
        .filter(col("total") > 3)
        .to_stream()
        .to("out")
    )
    with TopologyTestDriver(builder.build()) as driver:
        for amount in (2, 4):
            driver.input("in").send("k", {"user": "ann", "amount": amount}, at=0)
        assert driver.store("totals").get("ann") == {"total": 6, "mean": 3.0, "name": "ann"}
        records = driver.output("out").read_all()
    assert [record.value for record in records] == [{"total": 6, "mean": 3.0, "name": "ann"}]


def ms(n: int) -> timedelta:
    return timedelta(milliseconds=n)


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        (TimeWindows.of(ms(10)), [(0, 10, 1, 1.0), (0, 10, 3, 1.5), (10, 20, 4, 4.0)]),
        (SlidingWindows.of(ms(5)), [(0, 5, 1, 1.0), (0, 5, 3, 1.5), (1, 6, 2, 2.0), (7, 12, 4, 4.0)]),
        (SessionWindows.of(ms(5)), [(0, 0, 1, 1.0), (0, 0, None, None), (0, 2, 3, 1.5), (12, 12, 4, 4.0)]),
    ],
)
def test_aggregates_of_windows(windows: Any, expected: Any) -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", value=Int64()).group_by_key().windowed_by(windows)
    table = grouped.aggregate(total=agg.sum(record_value()), mean=agg.avg(record_value()))
    table.to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        for value, at in ((1, 0), (2, 2), (4, 12)):
            driver.input("in").send("k", value, at=at)
        found = [
            (r.key.start, r.key.end, *(r.value or {"total": None, "mean": None}).values())
            for r in driver.output("out").read_all()
        ]
    assert sorted(found, key=str) == sorted(expected, key=str)


def op_of(topology: Topology) -> Any:
    (op,) = (n.op for n in topology.nodes.values() if isinstance(n, ProcessorNode) and hasattr(n.op, "emit"))
    return op


@pytest.mark.parametrize(
    "draw",
    [
        lambda t: t.to_stream().to("out"),
        lambda t: t.to_stream().filter(col("n") > 1).map_values(lambda v: v).peek(print).to("out"),
        lambda t: t.map_values(col("n")).to_stream().to("out"),
        lambda t: t.to_stream().split(name="b-").branch(col("n") > 1, name="x", to=lambda s: s.to("out")).no_default(),
    ],
)
def test_per_batch_is_allowed_before_stateless_steps(draw: Any) -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by(col("user"))
    draw(grouped.aggregate(n=agg.count(), total=agg.sum(col("amount")), emit="per-batch"))
    op = op_of(builder.build())
    assert op.emit == "per-batch"
    assert repr(op.f.aggregates) == "{'n': agg.count(), 'total': agg.sum(col('amount'))}"


def test_per_batch_emits_per_record_here() -> None:
    def draw(builder: StreamsBuilder) -> None:
        builder.stream("in").group_by_key().aggregate(n=agg.count(), emit="per-batch").to_stream().to("out")

    assert run(draw, ("k", 1, 0), ("k", 2, 1)) == [("k", {"n": 1}), ("k", {"n": 2})]


@pytest.mark.parametrize(
    ("draw", "step"),
    [
        (lambda b, t: t.filter(col("n") > 1, name="few").to_stream().to("out"), "few"),
        (lambda b, t: t.map_values(col("n"), store="s", name="kept").to_stream().to("out"), "kept"),
        (lambda b, t: t.to_stream().select_key(col("n")).group_by_key(name="again").count().to_stream(), "again-rep"),
        (lambda b, t: t.to_stream().merge(b.stream("other"), name="merged").to("out"), "merged"),
        (lambda b, t: b.stream("other").join(t, lambda a, b: a, name="joined").to("out"), "joined"),
        (lambda b, t: t.join(b.table("other"), lambda a, b: a, name="joined"), "joined"),
        (lambda b, t: t.suppress(Suppress.until_time_limit(ms(5)), name="held").to_stream().to("out"), "held"),
        (lambda b, t: t.to_stream().repartition(name="spread").to("out"), "spread"),
        (
            lambda b, t: t.to_stream().join(b.stream("o"), lambda a, b: a, JoinWindows.of(ms(5))).to("out"),
            "KSTREAM-WINDOWED",
        ),
    ],
)
def test_per_batch_is_refused_before_anything_else(draw: Any, step: str) -> None:
    builder = StreamsBuilder()
    table = builder.stream("in").group_by_key().aggregate(n=agg.count(), emit="per-batch", name="totals")
    draw(builder, table)
    with pytest.raises(TopologyError, match=rf'totals: emit="per-batch" .* not {step}.*: leave emit= out, write the'):
        builder.build()


def test_per_batch_contradicts_emission_on_close() -> None:
    builder = StreamsBuilder()
    windowed = builder.stream("in").group_by_key().windowed_by(TimeWindows.of(ms(5))).emit_strategy("on-close")
    windowed.aggregate(n=agg.count(), emit="per-batch").to_stream().to("out")
    with pytest.raises(TopologyError, match="choose one"):
        builder.build()


def test_a_store_description_is_taken_as_elsewhere() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by_key()
    grouped.aggregate(n=agg.count(), store=KeyValue("totals", memory=True)).to_stream().to("out")
    assert builder.build().stores["totals"].memory
