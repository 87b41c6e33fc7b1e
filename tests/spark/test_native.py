"""Stages in Catalyst bring what the test driver brings, from the same bytes, and fail on what it fails on."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headwater import (
    Bytes,
    Config,
    Int64,
    Json,
    KStream,
    SessionWindows,
    Str,
    StreamsBuilder,
    StreamsError,
    TimeWindows,
    Topology,
    TopologyTestDriver,
    agg,
    coalesce,
    col,
    concat,
    record_key,
    record_timestamp,
    record_value,
    when,
)
from headwater.state.log import Log
from headwater.streams.spark.native import Native
from headwater.streams.spark.query import SparkBackend, plan_natively
from headwater.streams.spark.rows import SOURCE_SCHEMA
from headwater.streams.spark.stages import Stages
from tests.spark.expression_cases import LARGE_EXAMPLES

Raw = tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]
Out = dict[str, list[tuple[Any, ...]]]


@dataclass
class User:
    name: str
    age: int | None = None


@dataclass
class Line:
    """Without anything in it that has braces, which Spark reads more quickly."""

    id: int
    user: str
    amount: float | None = None
    paid: bool | None = None
    note: str | None = None
    tags: list[str] | None = None


@dataclass
class Sale:
    """Without anything that may be missing, or be spelled in several ways: read most quickly."""

    id: int
    user: str
    paid: bool
    item: str


@dataclass
class Visit:
    id: int
    user: str


@dataclass
class Order:
    id: int
    user: str
    amount: float | None = None
    paid: bool | None = None
    note: str | None = None
    buyer: User | None = None
    tags: list[str] | None = None
    rates: dict[str, float] | None = None


def drawn(draw: Callable[[KStream], None], value: Any = Order, key: Any = None) -> Topology:
    builder = StreamsBuilder()
    draw(builder.stream("in", key=key or Str(), value=Json(type=value) if isinstance(value, type) else value))
    return builder.build()


def planned(spark: SparkSession, topology: Topology) -> tuple[Stages, list[Native], dict[str, str]]:
    return plan_natively(spark, topology, Config(app_id="app"), {"in": 1})


def source_frame(spark: SparkSession, records: Iterable[Raw]) -> DataFrame:
    rows = [
        ("in", 0, offset, at, key, value, list(headers) or None)
        for offset, (key, value, at, headers) in enumerate(records)
    ]
    return spark.createDataFrame(rows, SOURCE_SCHEMA).coalesce(1)


def native_frame(spark: SparkSession, topology: Topology, records: Iterable[Raw]) -> DataFrame:
    _, natives, reasons = planned(spark, topology)
    assert not reasons
    (native,) = natives
    return native.frame(source_frame(spark, records))


def shown(data: bytes | None) -> Any:
    """A value for comparison: 1, 1.0 and True are different ones, and so are 0.0 and -0.0.

    An order that is written as it was read is compared as an order: what was missing, Spark writes as null.
    """
    if data is None:
        return None
    value = msgspec.json.decode(data)
    is_order = isinstance(value, dict) and {"id", "user"} <= value.keys() <= {f.name for f in fields(Order)}
    return repr(msgspec.json.decode(data, type=Order) if is_order else value)


def by_catalyst(spark: SparkSession, topology: Topology, records: Iterable[Raw]) -> Out:
    out: Out = {}
    for row in native_frame(spark, topology, records).collect():
        headers = tuple((h.key, None if h.value is None else bytes(h.value)) for h in row.headers or ())
        key = None if row.key is None else bytes(row.key)
        value = None if row.value is None else bytes(row.value)
        out.setdefault(row.topic, []).append((key, shown(value), row.timestamp, headers))
    return out


def by_python(topology: Topology, records: Iterable[Raw]) -> Out:
    out: Out = {}
    with TopologyTestDriver(topology) as driver:
        for key, value, at, headers in records:
            driver.input("in").send_bytes(key, value, at=at, headers=headers)
        for topic in ("out", "other", "rest"):
            try:
                written = driver.output(topic, key=Bytes(), value=Bytes()).read_all()
            except StreamsError:  # this topology writes no such topic
                continue
            if written:
                out[topic] = [(r.key, shown(r.value), r.timestamp, r.headers) for r in written]
    return out


# ---- chains of stateless steps -----------------------------------------------------------------------------------


def filters(orders: KStream) -> None:
    orders.filter((col("amount") > 10) | col("paid")).filter_not(col("note") == "no").to("out")


def selects(orders: KStream) -> None:
    (
        orders.select(
            half=col("amount") / 2,
            next=col("id") + 1,
            buyer=col("buyer"),
            name=col("buyer.name").upper(),
            tags=col("tags"),
            first=col("tags")[0],
            rate=col("rates")["eur"],
            rates=col("rates"),
            at=record_timestamp().cast("timestamp"),
            key=record_key(),
            nothing=when(col("paid"), None),
        ).to("out")
    )


def with_columns(orders: KStream) -> None:
    orders.with_columns(size=when(col("amount") > 100.0, "large").otherwise("small"), id=col("id") % 7).to("out")


def maps(orders: KStream) -> None:
    orders.map_values(coalesce(col("note"), col("user"))).to("out", value=Json())
    orders.map_values(col("id")).to("other", value=Json())
    orders.map_values(col("amount") > 1.0).to("rest", value=Json())


def rekeys(orders: KStream) -> None:
    orders.select_key(col("buyer.name")).to("out")
    orders.select_key(col("id")).to("other", key=Int64())
    orders.select_key(col("id")).to("rest", key=Json())


def branches(orders: KStream) -> None:
    split = orders.split(name="is-").branch(col("amount") > 100, name="large").branch(col("paid"), name="paid")
    for part, topic in zip(split.default().values(), ("out", "other", "rest"), strict=True):
        part.with_columns(note=concat(col("user"), "!")).to(topic)


CHAINS = [filters, selects, with_columns, maps, rekeys, branches]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
texts |= st.sampled_from(["5", "-1e3", "true", '{"a":1}'])
doubles = st.floats(allow_nan=False, allow_infinity=False)
orders = st.builds(
    Order,
    st.integers(-(2**63), 2**63 - 1),
    texts,
    st.none() | doubles,
    st.none() | st.booleans(),
    st.none() | texts,
    st.none() | st.builds(User, texts, st.none() | st.integers(-(2**63), 2**63 - 1)),
    st.none() | st.lists(texts, max_size=3),
    st.none() | st.dictionaries(texts | st.just("eur"), doubles, max_size=3),
)


def written(order: Order | None, spare: bool, ascii_only: bool) -> bytes | None:
    """An order's JSON in one of its spellings: with escapes or not, without what is null, with more than asked."""
    if order is None:
        return None
    content = msgspec.to_builtins(order)
    if spare:
        content = {name: field for name, field in content.items() if field is not None} | {"more": [1, {"id": "x"}]}
    return json.dumps(content, ensure_ascii=ascii_only).encode()


longs = st.integers(-(2**63), 2**63 - 1)
lines = st.builds(
    Line,
    longs,
    texts,
    st.none() | doubles,
    st.none() | st.booleans(),
    st.none() | texts,
    st.none() | st.lists(texts, max_size=3),
)
sales = st.builds(Sale, longs, texts, st.booleans(), texts)
styles = st.sampled_from([(",", ":"), (", ", ": "), (", ", " : "), (" ,\n", "\t:  ")])


def spelled(line: Line | Sale, spare: bool, ascii_only: bool, style: tuple[str, str]) -> bytes:
    """Its JSON, with more or less space in it, and behind it, and perhaps with more than asked."""
    content = msgspec.to_builtins(line) | ({"more": "}", "inner": {"user": "x"}} if spare else {})
    return (json.dumps(content, ensure_ascii=ascii_only, separators=style) + "\n" * spare).encode()


raws = st.tuples(
    st.none() | texts.map(str.encode),
    st.builds(written, st.none() | orders, st.booleans(), st.booleans()),
    st.integers(0, 2**45),
    st.lists(st.tuples(texts, st.none() | st.binary(max_size=3)), max_size=2).map(tuple),
)


@pytest.mark.parametrize("draw", CHAINS, ids=lambda draw: draw.__name__)
@settings(LARGE_EXAMPLES, max_examples=4)
@given(records=st.lists(raws, min_size=50, max_size=60))
def test_chains_bring_what_the_driver_brings(
    spark: SparkSession, draw: Callable[[KStream], None], records: list[Raw]
) -> None:
    topology = drawn(draw)
    assert by_catalyst(spark, topology, records) == by_python(topology, records)


@pytest.mark.parametrize(("kind", "of"), [(Line, lines), (Sale, sales)])
@settings(LARGE_EXAMPLES, max_examples=6)
@given(data=st.data())
def test_flat_objects_are_read_in_every_spelling(
    spark: SparkSession, kind: type, of: st.SearchStrategy[Line | Sale], data: st.DataObject
) -> None:
    topology = drawn(lambda stream: stream.select(**{f.name: col(f.name) for f in fields(kind)}).to("out"), kind)
    spellings = st.builds(spelled, of, st.booleans(), st.booleans(), styles)
    records: list[Raw] = [(None, value, 0, ()) for value in data.draw(st.lists(spellings, min_size=50, max_size=60))]
    assert by_catalyst(spark, topology, records) == by_python(topology, records)


@pytest.mark.parametrize("draw", CHAINS, ids=lambda draw: draw.__name__)
def test_there_is_no_python_in_the_plan_and_one_scan(
    spark: SparkSession, draw: Callable[[KStream], None], tmp_path: Path
) -> None:
    spark.createDataFrame([], SOURCE_SCHEMA).write.parquet(str(tmp_path / "in"))
    _, (native,), _ = planned(spark, drawn(draw))
    plan = native.frame(spark.read.parquet(str(tmp_path / "in")))._jdf.queryExecution().executedPlan().toString()
    assert plan.count("FileScan") == 1
    assert "Python" not in plan
    assert "Arrow" not in plan
    # A filter that Spark moved down would parse values again for each field it looks at.
    assert not [line for line in plan.splitlines() if "Filter" in line and "from_json" in line]


KINDS = {
    "text": (str, [b'"a"', b'"5"', b'"\\u0035"'], [b"5", b"true", b'{"a":1}', b"null", b"", b'"a" "b"']),
    "long": (int, [b"1", b" -9223372036854775808 "], [b"1.0", b'"1"', b"1e3", b"01", b"true", b"1 2"]),
    "double": (float, [b"1", b"-0.0", b"1e-400", b"1.7976931348623157e308"], [b"1e400", b"NaN", b'"1"', b".5", b"1."]),
    "boolean": (bool, [b"true"], [b"1", b'"true"', b"True"]),
    "list": (list[int], [b"[]", b"[1, 2]"], [b"[1,null]", b"[1,]", b'[1,"2"]', b"{}", b"1"]),
    "texts": (list[str], [b'["a","1"]'], [b"[1]", b'["a",null]', b'["a",1]', b'["\xef\xbf\xbd","\xc3"]']),
    "map": (dict[str, str], [b"{}", b'{"a":"1"}'], [b'{"a":1}', b'{"a":null}', b"[]", b'{"\xff":"a"}']),
    "open list": (list[float | None], [b"[1,null]"], [b'["x"]', b"[1e999]"]),
}


@pytest.mark.parametrize("name", KINDS)
def test_values_of_every_kind_are_read_as_python_reads_them(spark: SparkSession, name: str) -> None:
    kind, good, bad = KINDS[name]
    topology = drawn(lambda stream: stream.filter(record_timestamp() >= 0).to("out"), Json(type=kind))
    records: list[Raw] = [(None, value, 0, ()) for value in good]
    assert by_catalyst(spark, topology, records) == by_python(topology, records)
    for value in bad:
        check_both_refuse(spark, topology, (b"k", value, 0, ()))


def check_both_refuse(spark: SparkSession, topology: Topology, record: Raw) -> None:
    with pytest.raises(StreamsError, match="in-0@0"):
        by_python(topology, [record])
    with pytest.raises(PySparkException, match=r"headwater\.errors\.StreamsError: .*in-0@0 "):
        native_frame(spark, topology, [record]).collect()


MALFORMED = {
    "empty": b"",
    "cut off": b'{"id":1,"user":"a"',
    "more behind": b'{"id":1,"user":"a"} x',
    "a brace too many": b'{"id":1,"user":"a"}}',
    "two": b'{"id":1,"user":"a"}\n{"id":2,"user":"b"}',
    "null": b"null",
    "a list": b'[{"id":1,"user":"a"}]',
    "a field missing": b'{"id":1}',
    "a field null": b'{"id":null,"user":"a"}',
    "another case": b'{"ID":1,"user":"a"}',
    "a number for text": b'{"id":1,"user":5}',
    "a boolean for text": b'{"id":1,"user":"a","note":false}',
    "an object for text": b'{"id":1,"user":{"name":"a"}}',
    "text for a number": b'{"id":"1","user":"a"}',
    "a fraction for a whole number": b'{"id":1.5,"user":"a"}',
    "too large": b'{"id":1,"user":"a","amount":1e999}',
    "an inner field missing": b'{"id":1,"user":"a","buyer":{"age":3}}',
    "an inner field of another type": b'{"id":1,"user":"a","buyer":{"name":3}}',
    "null in a list": b'{"id":1,"user":"a","tags":["x",null]}',
    "a number in a list of texts": b'{"id":1,"user":"a","tags":["x",7]}',
    "null in a map": b'{"id":1,"user":"a","rates":{"eur":null}}',
    "single quotes": b"{'id':1,'user':'a'}",
    "half a character": b'{"id":1,"user":"bob\\ud83d"}',
    "a number in place of the second of two texts": b'{"id":1,"user":"a","note":17}',
    "NaN": b'{"id":1,"user":"a","amount":NaN}',
    "a control character": b'{"id":1,"user":"a\tb"}',
    "no UTF-8": b'{"id":1,"user":"\xff"}',
    "half a surrogate pair": b'{"id":1,"user":"\\ud800"}',
    "a comma too many": b'{"id":1,"user":"a",}',
    "a malformed field nobody reads": b'{"id":1,"user":"a","more":[1}',
}


MALFORMED_LINES = {name: value for name, value in MALFORMED.items() if b"buyer" not in value and b"rates" not in value}
MALFORMED_LINES |= {
    "a number that also stands in quotes": b'{"id":1,"user":5,"note":"5"}',
    "a number behind a text of that name": b'{"id":1,"user":"a","user":5}',
    "no UTF-8 in a list, but its replacement elsewhere": b'{"id":1,"user":"\xef\xbf\xbd","tags":["\xff"]}',
    "a number, and a text of that name within": b'{"id":1,"user":5,"inner":{"user":"a"}}',
    "a boolean behind a field in escapes": b'{"id":1,"a\\"user":"x","user":true}',
    "a text that takes the end": b'{"id":1,"user":"a}',
    "another object behind": b'{"id":1,"user":"a"} {"id":2,"user":"b"}',
    "the end of another object": b'{"id":1,"user":"a"},"note":"b"}',
    "no UTF-8 in a word": b'{"id":1,"user":"a\xff"}',
    "no UTF-8 in a list": b'{"id":1,"user":"a","tags":["a\xc0\x80"]}',
    "no UTF-8 and an escape": b'{"id":1,"user":"a\xff\\n"}',
    "half a character and its replacement": b'{"id":1,"user":"\\ud800","note":"?"}',
    "a list with its end missing": b'[{"id":1,"user":"a"}',
}
MALFORMED_VISITS = {
    name: value
    for name, value in MALFORMED_LINES.items()
    if not any(field in value for field in (b"note", b"amount", b"tags"))
}
MALFORMED_VISITS |= {
    "a text with a quote in it": b'{"id":1,"user":"a"b"}',
    "a fraction that ends with the number": b'{"id":1.0e,"user":"a"}',
}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        pytest.param(kind, value, id=f"{kind.__name__}-{name}")
        for kind, values in ((Order, MALFORMED), (Line, MALFORMED_LINES), (Visit, MALFORMED_VISITS))
        for name, value in values.items()
    ],
)
def test_what_python_cannot_read_catalyst_cannot(spark: SparkSession, kind: type, value: bytes) -> None:
    # It looks at nothing of the value: reading it is what fails.
    topology = drawn(lambda orders: orders.filter(record_key() == "no such").to("out"), kind)
    check_both_refuse(spark, topology, (b"k", value, 0, ()))


def test_of_fields_that_nobody_declared_nothing_is_asked(spark: SparkSession) -> None:
    topology = drawn(lambda stream: stream.map_values(col("user")).to("out", value=Json()), Line)
    values = [b'{"id":1,"user":"a","more":"\xff"}', b'{"id":1,"user":"","\xff":1}', b'{"id":1,"user":"\xef\xbf\xbd"}']
    records: list[Raw] = [(None, value, 0, ()) for value in values]
    assert by_catalyst(spark, topology, records) == by_python(topology, records)


def test_bad_keys_and_negative_timestamps_are_refused(spark: SparkSession) -> None:
    topology = drawn(lambda orders: orders.filter(col("id") > 0).to("out"), key=Int64())
    order = b'{"id":1,"user":"a"}'
    check_both_refuse(spark, topology, (b"seven b", order, 0, ()))
    check_both_refuse(spark, topology, (b"nine byte", order, 0, ()))
    check_both_refuse(spark, topology, (None, order, -1, ()))
    records: list[Raw] = [(n.to_bytes(8, "big", signed=True), order, 0, ()) for n in (0, -1, 2**63 - 1, -(2**63))]
    assert by_catalyst(spark, topology, records) == by_python(topology, records)


def test_nan_is_not_written(spark: SparkSession) -> None:
    topology = drawn(lambda orders: orders.select(x=col("amount") * 10).to("out"))
    record: Raw = (b"k", b'{"id":1,"user":"a","amount":1e308}', 0, ())
    with pytest.raises(StreamsError, match="no NaN and no infinity"):
        by_python(topology, [record])
    with pytest.raises(PySparkException, match="no NaN and no infinity"):
        native_frame(spark, topology, [record]).collect()


@dataclass
class Dated:
    at: datetime


@dataclass
class Defaulted:
    n: int = 5


@dataclass
class Outer:
    inner: Defaulted


@dataclass
class Checked:
    n: int

    def __post_init__(self) -> None:
        self.n += 1


class Sparse(msgspec.Struct, omit_defaults=True):
    n: int | None = None


class Cased(msgspec.Struct):
    n: int
    N: int


Wide = msgspec.defstruct("Wide", [(f"n{i}", int) for i in range(101)])

REFUSED: dict[str, tuple[Callable[[KStream], None], Any, str]] = {
    "untyped": (lambda s: s.filter(col("n") > 1).to("out"), Json(), "declares no type"),
    "a datetime": (lambda s: s.filter(record_key() == "a").to("out"), Json(type=Dated), "zone"),
    "a default": (lambda s: s.filter(col("n") > 1).to("out"), Json(type=Defaulted), "n has a default"),
    "an inner default": (lambda s: s.filter(record_key() == "a").to("out"), Json(type=Outer), "n has a default"),
    "a hook": (lambda s: s.filter(col("n") > 1).to("out"), Json(type=Checked), "__post_init__"),
    "defaults left out": (lambda s: s.filter(col("n") > 1).to("out"), Json(type=Sparse), "leaves out"),
    "two cases": (lambda s: s.filter(record_key() == "a").to("out"), Json(type=Cased), "case only"),
    "many fields": (lambda s: s.filter(col("n1") > 1).to("out"), Json(type=Wide), "101 fields"),
    "null as a value": (lambda s: s.filter(col("n") > 1).to("out"), Json(type=Order | None), "or null"),
    "a lambda": (lambda s: s.filter(col("id") > 1).peek(print).to("out"), Json(type=Order), "Peek runs in Python"),
    "a function": (
        lambda s: s.filter(col("id") > 1).map_values(lambda v: v).to("out"),
        Json(type=Order),
        "not an expression",
    ),
    "a double as a key": (
        lambda s: s.select_key(col("amount")).to("out", key=Json()),
        Json(type=Order),
        "a double in a key",
    ),
    "a partitioner": (
        lambda s: s.filter(col("id") > 1).to("out", partitioner=lambda *_: 0),
        Json(type=Order),
        "a function chooses",
    ),
    "no sink": (lambda s: s.filter(col("id") > 1), Json(type=Order), "nothing is written"),
    "sessions": (
        lambda s: (
            s.group_by_key()
            .windowed_by(SessionWindows.of(timedelta(seconds=1)))
            .aggregate(n=agg.count(), emit="per-batch")
            .to_stream()
            .to("out")
        ),
        Json(type=Order),
        "SessionAggregate runs in Python",
    ),
    "records before an aggregate": (
        lambda s: (s.to("other"), s.group_by_key().aggregate(n=agg.count(), emit="per-batch").to_stream().to("out")),
        Json(type=Order),
        "go elsewhere",
    ),
    "records besides an aggregate": (
        lambda s: (s.group_by_key().aggregate(n=agg.count(), emit="per-batch").to_stream().to("out"), s.to("other")),
        Json(type=Order),
        "go elsewhere",
    ),
    "a declared type that is checked when it is written": (
        lambda s: s.select(user=col("user"), amuont=col("amount")).to("out", value=Json(type=Order)),
        Json(type=Order),
        "checks in Python what it writes",
    ),
    "a repartition for every record": (
        lambda s: s.group_by(col("user")).count().to_stream().to("out"),
        Json(type=Order),
        "not one aggregate",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_stays_in_python_says_why(spark: SparkSession, name: str) -> None:
    draw, serde, reason = REFUSED[name]
    stages, natives, reasons = planned(spark, drawn(draw, serde))
    assert not natives
    assert all(stage.kind != "native" for stage in stages.stages)
    (told,) = reasons.values()
    assert reason in told


@pytest.mark.parametrize("handler", ["on_deserialization_error", "on_processing_error", "on_production_error"])
def test_handlers_of_bad_records_are_called_in_python(spark: SparkSession, handler: str) -> None:
    config = Config(app_id="app", **{handler: "skip"})
    _, natives, reasons = plan_natively(spark, drawn(filters), config, {"in": 1})
    assert not natives
    assert "handler" in reasons["0"]


# ---- aggregates per batch ----------------------------------------------------------------------------------------

TOTALS = {
    "n": agg.count(),
    "notes": agg.count(col("note")),
    "ids": agg.sum(col("id")),
    "amount": agg.sum(col("amount")),
    "least": agg.min(col("user")),
    "most": agg.max(col("amount")),
    "mean": agg.avg(col("amount")),
}
HOPPING = TimeWindows.of(timedelta(seconds=4), advance=timedelta(seconds=2), grace=timedelta(seconds=2))


def by_key(orders: KStream) -> None:
    orders.group_by_key().aggregate(emit="per-batch", **TOTALS).to_stream().to("out")


def by_name(orders: KStream) -> None:
    totals = orders.filter(col("id") > -3).group_by(col("buyer.name")).aggregate(emit="per-batch", **TOTALS)
    totals.map_values(col("n") * 2).to_stream().filter(record_value() != 2).to("out", value=Json())


def in_windows(orders: KStream) -> None:
    windowed = orders.group_by_key().windowed_by(HOPPING)
    windowed.aggregate(emit="per-batch", **TOTALS).to_stream().select(all=col("n"), mean=col("mean")).to("out")


def in_windows_by_name(orders: KStream) -> None:
    windowed = orders.select(id=col("id"), name=col("buyer.name")).group_by(col("name")).windowed_by(HOPPING)
    windowed.aggregate(n=agg.count(), ids=agg.sum(col("id")), emit="per-batch").to_stream().to("out")


AGGREGATES = [by_key, by_name, in_windows, in_windows_by_name]

grouped = st.tuples(
    st.none() | st.sampled_from([b"a", b"b", "\u00e9".encode()]),
    st.builds(
        written,
        st.none()
        | st.builds(
            Order,
            st.integers(-5, 5),
            texts,
            st.none() | st.integers(-8, 8).map(lambda n: n / 4),
            note=st.none() | texts,
            buyer=st.none() | st.builds(User, st.sampled_from(["x", "y", "z"])),
        ),
        st.booleans(),
        st.booleans(),
    ),
    st.integers(0, 500),
    st.just(()),
)


def last_by_key(out: Out) -> dict[Any, tuple[Any, ...]]:
    return {(topic, record[0]): record[1:] for topic, records in out.items() for record in records}


@pytest.mark.parametrize("draw", AGGREGATES, ids=lambda draw: draw.__name__)
@settings(LARGE_EXAMPLES, max_examples=3)
@given(records=st.lists(grouped, min_size=40, max_size=50))
def test_aggregates_of_a_batch_are_the_last_ones_of_the_driver(
    spark: SparkSession, draw: Callable[[KStream], None], records: list[Raw]
) -> None:
    topology = drawn(draw)
    # Half a second later each, so that no record is late: that is decided otherwise.
    timed = [(key, value, at + 500 * n, headers) for n, (key, value, at, headers) in enumerate(records)]
    out = by_catalyst(spark, topology, timed)
    assert len(last_by_key(out)) == sum(map(len, out.values()))
    assert last_by_key(out) == last_by_key(by_python(topology, timed))


def test_an_aggregate_of_another_type_runs_record_by_record(spark: SparkSession) -> None:
    stages, natives, reasons = planned(spark, drawn(by_key, Json()))
    assert not natives
    assert [stage.kind for stage in stages.stages] == ["task"]
    assert "declares no type" in reasons["0"]


Sent = tuple[str, int, int]  # key, id, timestamp


class Running:
    """A topology as a query over an embedded log, batch by batch; the first batch is there when it starts."""

    def __init__(self, spark: SparkSession, folder: Path, topology: Topology, *first: Sent) -> None:
        self._log = Log.open(folder / "log")
        self._log.create_topic("in", 2)
        self._log.create_topic("out", 1)
        self._seen = 0
        self._append(first)
        self.query = SparkBackend(spark).start(
            topology, Config(app_id="native"), broker=f"log://{folder / 'log'}", checkpoint=folder / "checkpoint"
        )

    def _append(self, records: Iterable[Sent]) -> int:
        batches: dict[int, list[Raw]] = {}
        for key, number, at in records:
            value = f'{{"id":{number},"user":"u"}}'.encode()
            batches.setdefault(len(key) % 2, []).append((key.encode(), value, at, ()))
        for where, batch in batches.items():
            with self._log.partition("in", where) as partition:
                partition.append(batch)
        return len(batches)

    def batch(self, *records: Sent) -> list[tuple[bytes | None, Any, int]]:
        """What comes out for records, of one partition: those of two the query could read one after the other."""
        assert self._append(records) <= 1
        self.query.processAllAvailable()
        with self._log.partition("out", 0) as partition:
            found = [
                (key, msgspec.json.decode(value), at)
                for key, value, at, _, offset in partition.read(0)
                if offset >= self._seen
            ]
        self._seen += len(found)
        return found


def test_a_query_brings_one_row_per_touched_key_and_batch(spark: SparkSession, tmp_path: Path) -> None:
    def draw(orders: KStream) -> None:
        orders.group_by_key().aggregate(ids=agg.sum(col("id")), emit="per-batch").to_stream().to("out")

    running = Running(spark, tmp_path, drawn(draw), ("a", 1, 10), ("bb", 2, 20), ("a", 3, 5))
    try:
        assert sorted(running.batch()) == [(b"a", {"ids": 4}, 10), (b"bb", {"ids": 2}, 20)]
        assert running.batch(("bb", 5, 1)) == [(b"bb", {"ids": 7}, 20)]
        last = running.batch(("a", 1, 30), ("c", 9, 40), ("a", 1, 31))
        assert sorted(last) == [(b"a", {"ids": 6}, 31), (b"c", {"ids": 9}, 40)]
        assert running.batch(("bb", 1, 30)) == [(b"bb", {"ids": 8}, 30)]
        with pytest.raises(StreamsError, match="kept by Spark itself"):
            running.query.store("KSTREAM-AGGREGATE-STATE-STORE-0000000001")
    finally:
        running.query.stop()


def test_windows_close_by_the_watermark_of_the_query(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    windows = TimeWindows.of(timedelta(seconds=10), grace=timedelta(seconds=5))

    def draw(orders: KStream) -> None:
        counts = orders.group_by_key().windowed_by(windows).aggregate(n=agg.count(), emit="per-batch")
        counts.to_stream().to("out")

    def row(key: bytes, start: int, n: int, at: int) -> tuple[bytes, dict[str, int], int]:
        return key + start.to_bytes(8, "big"), {"n": n}, at

    running = Running(spark, tmp_path, drawn(draw))
    try:
        assert running.batch(("a", 1, 1_000), ("a", 1, 9_999)) == [row(b"a", 0, 2, 9_999)]
        assert running.batch(("a", 1, 14_999)) == [row(b"a", 10_000, 1, 14_999)]
        # The watermark is at 9,999: the first window is open, for another key too.
        assert running.batch(("bb", 1, 2_000)) == [row(b"bb", 0, 1, 2_000)]
        assert running.batch(("a", 1, 15_000)) == [row(b"a", 10_000, 2, 15_000)]
        assert running.batch(("bb", 1, 2_000), ("bb", 1, 10_000)) == [row(b"bb", 10_000, 1, 10_000)]
        told = running.query.metrics()
        assert (told["records-total"], told["late-records-total"]) == (7, 1)
        assert list(told["steps"].values()) == [{"late-records-total": 1}]
        # Of the first window nothing is left, once a batch has begun behind its end.
        assert running.query.lastProgress["stateOperators"][0]["numRowsTotal"] == 2
        # A record of the year 9999 closes them all: that is warned of.
        caplog.clear()
        running.batch(("a", 1, 253402300799999))
        running.query.metrics()
        (said,) = [record.getMessage() for record in caplog.records if record.name == "headwater"]
        assert "KSTREAM-AGGREGATE" in said
        assert "leaps to 9999-12-31T23:59:59.999Z" in said
    finally:
        running.query.stop()


def test_a_chain_in_a_query_writes_in_order(spark: SparkSession, tmp_path: Path) -> None:
    running = Running(spark, tmp_path, drawn(lambda orders: orders.filter(col("id") % 2 == 0).to("out")))
    try:
        found = running.batch(*(("a", n, 1_000 - n) for n in range(500)))
        assert [(value["id"], at) for _, value, at in found] == [(n, 1_000 - n) for n in range(0, 500, 2)]
        assert running.query.metrics()["records-total"] == 500
        broken = [(b"a", b"{", 0, ())]
        with running._log.partition("in", 1) as partition:
            partition.append(broken)
        with pytest.raises(StreamsError, match="cannot read the value of in-1@500 as Json"):
            running.query.processAllAvailable()
    finally:
        running.query.stop()
