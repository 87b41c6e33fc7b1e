"""The two compilers of expressions agree: random expressions over random records, as Python and as Catalyst columns."""

import math
import random
import struct as bits
import sys
import unicodedata
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, TypedDict

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from headwater import (
    Bytes,
    Expression,
    Float64,
    Int64,
    Json,
    Serde,
    Str,
    coalesce,
    col,
    record_key,
    record_timestamp,
    when,
)
from headwater.dsl.expression_code import compile_node
from headwater.dsl.expression_nodes import FUNCTIONS
from headwater.dsl.expression_steps import as_function, struct
from headwater.streams.spark import catalyst
from headwater.streams.spark.catalyst import TIMESTAMP, NotNative, Typed, schema_of, to_catalyst
from tests.spark.expression_cases import DOUBLES, EPOCH, LARGE_EXAMPLES, LONGS, TEXTS, Expressions, Inner, Row, row

LOW, HIGH = -(2**63), 2**63 - 1
VALUE = schema_of(Json(type=Row))
Record = tuple[str | None, Row | None, int]


def micros(value: datetime) -> int:
    return (value - EPOCH) // (datetime.resolution)


def spark_row(record: Record) -> tuple[Any, ...]:
    """A record for a DataFrame; timestamps as microseconds, for pyspark would convert them by the local time zone."""
    key, value, timestamp = record
    if value is None:
        return key, None, timestamp
    u = None if value.u is None else (value.u.name, value.u.n)
    d, e = (None if moment is None else micros(moment) for moment in (value.d, value.e))
    scalars = (value.a, value.b, value.x, value.y, value.s, value.t, value.p, value.q)
    return key, (*scalars, d, e, u, value.l, value.m), timestamp


def frame(spark: SparkSession, records: list[Record]) -> DataFrame:
    assert isinstance(VALUE, StructType)
    plain = StructType([StructField(f.name, LongType() if f.dataType == TIMESTAMP else f.dataType) for f in VALUE])
    schema = StructType([StructField("key", StringType()), StructField("value", plain), StructField("at", LongType())])
    rows = spark.createDataFrame([spark_row(record) for record in records], schema).coalesce(1)
    parts = {f.name: F.col("value")[f.name] for f in VALUE}
    fields = [
        (F.timestamp_micros(parts[f.name]) if f.dataType == TIMESTAMP else parts[f.name]).alias(f.name) for f in VALUE
    ]
    return rows.withColumn("value", F.when(F.col("value").isNotNull(), F.struct(*fields)))


def compiled(expression: Expression) -> Typed:
    assert VALUE is not None
    return to_catalyst(expression, Typed(F.col("value"), VALUE), Typed(F.col("key"), StringType()), F.col("at"))


def is_native(expression: Expression) -> bool:
    try:
        compiled(expression)
    except NotNative:
        return False
    return True


def by_catalyst(rows: DataFrame, expressions: list[Expression]) -> list[list[Any]]:
    """The results by expression and record."""
    columns = []
    for number, expression in enumerate(expressions):
        typed = compiled(expression)
        column = F.unix_micros(typed.column) if isinstance(typed.type, TimestampType) else typed.column
        columns.append(column.alias(f"c{number}"))
    results = rows.select(*columns).collect()
    return [[result[number] for result in results] for number in range(len(expressions))]


def by_python(records: list[Record], expressions: list[Expression]) -> list[list[Any]]:
    results = []
    for expression in expressions:
        clock = [0]
        f = compile_node(expression._node, clock=clock)
        column = []
        for key, value, timestamp in records:
            clock[0] = timestamp
            result = f(key, value)
            column.append(micros(result) if isinstance(result, datetime) else result)
        results.append(column)
    return results


def same(a: Any, b: Any) -> bool:
    """Whether two results are the same, to the bit and of one type."""
    if type(a) is not type(b):
        return False
    if type(a) is float:
        return bits.pack(">d", a) == bits.pack(">d", b) or (math.isnan(a) and math.isnan(b))
    return bool(a == b)


def check(spark: SparkSession, records: list[Record], expressions: list[Expression]) -> None:
    native, plain = by_catalyst(frame(spark, records), expressions), by_python(records, expressions)
    wrong = {
        str(expression): f"{expression}\n  of {record}\n  Python {p!r}, Spark {s!r}"
        for expression, python, catalyst in zip(expressions, plain, native, strict=True)
        for record, p, s in zip(records, python, catalyst, strict=True)
        if not same(p, s)
    }
    assert not wrong, f"{len(wrong)} expressions differ:\n" + "\n".join(list(wrong.values())[:10])


def records(rng: random.Random, count: int) -> list[Record]:
    keys, times = [None, "k", "straße"], [0, 1, 1709210096123]
    return [(rng.choice(keys), None if rng.random() < 0.05 else row(rng), rng.choice(times)) for _ in range(count)]


@pytest.fixture(params=["UTC ansi", "America/New_York", "Asia/Kolkata ansi"])
def session(request: pytest.FixtureRequest, spark: SparkSession) -> Any:
    """The session under settings that users choose."""
    zone, _, ansi = request.param.partition(" ")
    wanted = {"spark.sql.session.timeZone": zone, "spark.sql.ansi.enabled": str(bool(ansi)).lower()}
    before = {name: spark.conf.get(name) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)


@settings(LARGE_EXAMPLES, max_examples=2)
@given(seed=st.integers(0, 2**32))
def test_random_expressions_agree(session: SparkSession, seed: int) -> None:
    rng = random.Random(seed)
    source = Expressions(rng)
    expressions = [source.any(rng.choice([1, 1, 2, 3])) for _ in range(150)]
    native = [expression for expression in expressions if is_native(expression)]
    assert len(native) > 140  # the others mix longs with doubles through a null
    check(session, records(rng, 40), native)


# What random values seldom hit together.
EDGES = [
    (col("a") + 1) + 2,
    (col("a") + -3) + 5,
    (col("a") * 7) * 0,
    (2 * col("a")) * col("b"),
    (col("a") - 1) - -1,
    col("s").upper().lower(),
    col("s").lower().upper(),
    when(col("p"), col("s").upper()).otherwise(None).lower(),
    col("x").isin(*DOUBLES),
    col("a") == col("x"),
    col("a").cast("double").cast("long"),
    col("s").cast("timestamp").trunc("week").cast("string"),
    col("t").cast("double") / col("s").cast("long"),
    col("s").substr(-3, 2),
    col("d").cast("string").cast("timestamp") == col("d"),
    (record_timestamp() / 1000).cast("long").cast("timestamp").year(),
]


def test_edges_agree(session: SparkSession) -> None:
    rng = random.Random(5)
    values = [Row(s=text, t=text) for text in TEXTS] + [Row(a=a, b=b) for a in LONGS for b in (0, -1, HIGH)]
    values += [Row(x=x, a=a) for x in DOUBLES for a in (0, 2**53 + 1, LOW)] + [row(rng) for _ in range(50)]
    check(session, [("k", value, n) for n, value in enumerate(values)], EDGES)


def test_case_differs_only_for_characters_newer_than_pythons_tables(spark: SparkSession) -> None:
    # Without halves of surrogates, and U+FEFF, which decode() takes for a byte order mark.
    codes = spark.range(sys.maxunicode + 1).filter("id not between 55296 and 57343 and id <> 65279")
    text = F.decode(F.unhex(F.lpad(F.hex("id"), 8, "0")), "UTF-32")
    typed = Typed(F.struct(text.alias("s")), StructType([StructField("s", StringType())]))
    columns = [to_catalyst(e, typed).column for e in (col("s").upper(), col("s").lower(), col("s").length())]
    rows = codes.select("id", text.alias("s"), *(c.alias(n) for c, n in zip(columns, ("up", "low", "n"), strict=True)))
    assert rows.filter("n <> 1").count() == 0
    native = {row.s: (row.up, row.low) for row in rows.filter("up <> s or low <> s").collect()}
    characters = (chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code <= 0xDFFF)
    python = {c: (c.upper(), c.lower()) for c in characters if c.upper() != c or c.lower() != c}
    assert len(python) > 2000
    wrong = {c for c in python.keys() | native.keys() if native.get(c, (c, c)) != python.get(c, (c, c))}
    assert all("Cn" in map(unicodedata.category, "".join((c, *native[c]))) for c in wrong)


def test_structs_agree(spark: SparkSession) -> None:
    rng = random.Random(7)
    made = [
        struct("select", ["a"], {"total": col("x") * 2, "who": col("u")}, keep=False)[0],
        struct("with_columns", [], {"a": col("b"), "key": record_key()}, keep=True)[0],
    ]
    some = records(rng, 60)
    rows = frame(spark, some)
    assert VALUE is not None
    for function in made:
        typed = to_catalyst(function, Typed(F.col("value"), VALUE), Typed(F.col("key"), StringType()))
        assert isinstance(typed.type, StructType)
        # Timestamps as text, which to_json would write by the session's time zone.
        kept = [name for name in typed.type.fieldNames() if typed.type[name].dataType != TIMESTAMP]
        shown = [typed.column[name].alias(name) for name in kept]
        native = rows.select(typed.column.isNull(), *shown).collect()
        for (key, value, _), (is_null, *fields) in zip(some, native, strict=True):
            result = function(key, value)
            assert is_null == (result is None)
            if result is not None:
                assert list(result) == typed.type.fieldNames()
                assert [plain(result[name]) for name in kept] == [plain(field) for field in fields]


def plain(value: Any) -> Any:
    """A value as text, structs and rows of Spark alike."""
    if isinstance(value, Inner):
        return plain((value.name, value.n))
    if isinstance(value, dict):
        return repr(sorted(value.items()))
    return repr(tuple(value)) if isinstance(value, tuple) else repr(value)


def test_a_chain_of_steps_agrees(spark: SparkSession) -> None:
    """Spark collapses them into one, and must not optimise across: (a + 1) + 2 where a + 1 does not fit."""
    first = struct("select", [], {"n": col("a") + 1, "s": col("s").upper()}, keep=False)[0]
    second = struct("select", [], {"n": col("n") + -2, "s": col("s").lower()}, keep=False)[0]
    values = [Row(a=HIGH, s="straße"), Row(a=1, s="x"), None]
    rows = frame(spark, [("k", value, 0) for value in values])
    assert VALUE is not None
    one = to_catalyst(first, Typed(F.col("value"), VALUE))
    rows = rows.select(one.column.alias("value"))
    two = to_catalyst(second, Typed(F.col("value"), one.type))
    found = rows.select(two.column.alias("value")).collect()
    native = [None if found_row.value is None else found_row.value.asDict() for found_row in found]
    assert native == [second("k", first("k", value)) for value in values]
    assert native == [{"n": None, "s": "strasse"}, {"n": 0, "s": "x"}, None]


def test_conditions_keep_what_python_keeps(spark: SparkSession) -> None:
    some = records(random.Random(9), 40)
    rows = frame(spark, some)
    condition = as_function((col("a") > 0) | (col("x") > 0), predicate=True)
    assert VALUE is not None
    column = to_catalyst(condition, Typed(F.col("value"), VALUE)).column
    kept = sum(1 for key, value, _ in some if condition(key, value))
    assert rows.filter(column).count() == kept
    assert rows.filter(~F.coalesce(column, F.lit(False))).count() == len(some) - kept


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        (col("nope") + 1, "there is no such field"),
        (col("x").cast("string"), "Spark does not make string of double as Python does"),
        (coalesce(col("x"), 0), "gives bigint and double, and a column has one type"),
        (when(col("p"), col("s")).otherwise(1), "gives bigint and string"),
        (col("s") + 1, "takes numbers, not string"),
        (col("s") == col("a"), "compares string with bigint"),
        (col("u") == col("u"), "compares struct"),
        (col("s")["x"], "string has no such part"),
        (col("a").upper(), "takes string, not bigint"),
        (col("a") & col("p"), "takes boolean, not bigint"),
    ],
)
def test_what_is_not_native_says_why(expression: Expression, reason: str) -> None:
    with pytest.raises(NotNative, match=reason):
        compiled(expression)


def test_undeclared_types_are_not_guessed(spark: SparkSession) -> None:
    for expression in (col("a"), record_key(), record_timestamp()):
        with pytest.raises(NotNative, match="is not declared"):
            to_catalyst(expression)
    twins = StructType([StructField("a", LongType()), StructField("A", LongType())])
    with pytest.raises(NotNative, match="differ in case only"):
        to_catalyst(col("a"), Typed(F.col("value"), twins))
    with pytest.raises(NotNative, match="is a condition, but of type bigint"):
        to_catalyst(as_function(col("n"), predicate=True), Typed(F.col("value"), StructType().add("n", LongType())))


def test_both_compilers_know_the_same_functions() -> None:
    assert set(catalyst.FUNCTIONS) == set(FUNCTIONS)


class Tagged(msgspec.Struct, tag=True):
    n: int


class Renamed(msgspec.Struct, rename="camel"):
    some_name: int


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    n: int


class Tree(msgspec.Struct):
    left: "Tree | None" = None


class Fields(TypedDict):
    n: int


@pytest.mark.parametrize(
    ("serde", "expected"),
    [
        (Str(), "string"),
        (Int64(), "bigint"),
        (Float64(), "double"),
        (Bytes(), "binary"),
        (Json(), None),
        (Json(type=int), "bigint"),
        (Json(type=list[float]), "array<double>"),
        (Json(type=dict[str, int]), "map<string,bigint>"),
        (Json(type=dict[int, int]), None),
        (Json(type=Inner), "struct<name:string,n:bigint>"),
        (Json(type=Fields), "struct<n:bigint>"),
        (Json(type=int | float), None),
        (Json(type=Decimal), None),
        (Json(type=Annotated[int, msgspec.Meta(ge=0)]), None),
        (Json(type=Tagged), None),
        (Json(type=Renamed), None),
        (Json(type=Strict), None),
        (Json(type=Tree), None),
    ],
)
def test_the_spark_type_of_a_serde(serde: Serde, expected: str | None) -> None:
    found = schema_of(serde)
    assert (found if found is None else found.simpleString()) == expected
