import math
import pickle
import struct
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.dsl.records import Windowed
from headwater.dsl.serde import Bytes, Float64, Int64, Json, Serde, SessionWindowed, Str, TimeWindowed, serde_fault
from headwater.errors import SerdeError, TopologyError

longs = st.integers(-(2**63), 2**63 - 1)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
json_values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10)
anything = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None))
    | st.binary()
    | st.builds(bytearray)
    | st.lists(st.integers())
    | st.builds(Windowed, st.text(), st.integers(), st.integers())
)


@dataclass
class Order:
    user: str
    amount: float | None = 0.0
    tags: list[str] = field(default_factory=list)


class Click(msgspec.Struct):
    page: str
    at: int


EVERY = [
    Str(),
    Bytes(),
    Int64(),
    Float64(),
    Json(),
    Json(type=Order),
    Json(type=int),
    TimeWindowed(Str(), size=timedelta(seconds=1)),
    SessionWindowed(Int64()),
]


def same(a: object, b: object) -> bool:
    return type(a) is type(b) and (a == b or (a != a and b != b)) and repr(a) == repr(b)


@given(st.text())
def test_str_round_trip(text: str) -> None:
    assert Str().decode(Str().encode(text)) == text == Str().decoder()(Str().encoder()(text))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"a\xffb", "a\ufffdb"),
        (b"\xed\xa0\x80!", "\ufffd!"),  # an encoded surrogate: one U+FFFD in Java, three in Python
        (b"\xed\xa0A", "\ufffdA"),
        (b"\xed\xbf", "\ufffd"),
        (b"\xe0\x80A", "\ufffd\ufffdA"),
        (b"\xe1\x80A", "\ufffdA"),
        (b"\xf4\x90\x80\x80", "\ufffd" * 4),
        (b"\xf0\x9f\x98", "\ufffd"),
    ],
)
def test_str_replaces_malformed_bytes_as_java_does(data: bytes, text: str) -> None:
    assert Str().decode(data) == text


def test_str_writes_half_a_surrogate_pair_as_java_does() -> None:
    assert Str().encode("a\ud800b\ude00\ud83d\ude00").hex() == "613f623ff09f9880"


@given(longs)
def test_int64_is_java_long(number: int) -> None:
    data = Int64().encode(number)
    assert data == (number % 2**64).to_bytes(8, "big")
    assert Int64().decode(data) == number


@given(st.floats())
def test_float64_is_java_double(number: float) -> None:
    data = Float64().encode(number)
    assert data == (struct.pack(">d", number) if number == number else bytes.fromhex("7ff8000000000000"))
    assert same(Float64().decode(data), number)


def test_float64_writes_one_nan() -> None:
    assert Float64().encode(math.copysign(math.nan, -1)) == bytes.fromhex("7ff8000000000000")


@given(st.binary())
def test_bytes_stay(data: bytes) -> None:
    assert Bytes().decode(Bytes().encode(data)) == data == Bytes().encode(memoryview(data))


@given(json_values)
def test_json_round_trip(value: Any) -> None:
    assert same(Json().decode(Json().encode(value)), value)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda x: x,
        lambda x: [1, [x]],
        lambda x: {"a": None, "b": {"c": x}},
        lambda x: (x,),
        lambda x: Order("a", x),
        lambda x: {"orders": (Order("null"), Order("b", x))},
    ],
)
def test_json_never_writes_nan_as_null(bad: float, wrap: Any) -> None:
    with pytest.raises(SerdeError, match="NaN"):
        Json().encode(wrap(bad))
    with pytest.raises(SerdeError, match="NaN"):
        Json().encoder()(wrap(bad))


@pytest.mark.parametrize("value", [None, "null", {"a": None}, (None, 1.5), Order("a", None), {"null": {1, 2}}])
def test_json_writes_honest_nulls(value: Any) -> None:
    assert b"null" in Json().encode(value)


@pytest.mark.parametrize("value", [Order("a", 1.5, ["x"]), Order("b", None)])
def test_json_reads_dataclasses(value: Order) -> None:
    serde = Json(type=Order)
    assert serde.decode(serde.encode(value)) == value


def test_json_reads_structs_and_says_what_does_not_fit() -> None:
    serde = Json(type=Click)
    assert serde.decode(serde.encode(Click("/", 5))) == Click("/", 5)
    with pytest.raises(SerdeError, match=r"Json\(type=Click\) cannot decode .*at.*\(24 bytes\)"):
        serde.decode(b'{"page":"/","at":"five"}')


def test_json_of_an_unreadable_type_is_a_build_fault() -> None:
    with pytest.raises(TopologyError, match="cannot be read from JSON"):
        Json(type=dict[str, int] | dict[str, str])


@given(st.text(), longs, st.integers(0, 10**6))
def test_time_windowed_is_key_then_start(key: str, start: int, size: int) -> None:
    serde = TimeWindowed(Str(), size=timedelta(milliseconds=size))
    windowed = Windowed(key, start, min(start + size, 2**63 - 1))
    data = serde.encode(windowed)
    assert data == key.encode() + start.to_bytes(8, "big", signed=True)
    assert serde.decode(data) == windowed


def test_an_unlimited_window_ends_where_java_truncates_it() -> None:
    serde = TimeWindowed.of_ms(Str(), 2**63 - 1)
    assert serde.decode(b"a" + (5).to_bytes(8, "big")) == Windowed("a", 5, 2**63 - 1)


@given(longs, longs, longs)
def test_session_windowed_is_key_then_end_then_start(key: int, start: int, end: int) -> None:
    serde = SessionWindowed(Int64())
    data = serde.encode(Windowed(key, start, end))
    assert data == b"".join(part.to_bytes(8, "big", signed=True) for part in (key, end, start))
    assert serde.decode(data) == Windowed(key, start, end)


@pytest.mark.parametrize("serde", [TimeWindowed(Str(), size=timedelta(1)), SessionWindowed(Str())])
def test_no_bytes_are_no_windowed_key(serde: Serde) -> None:
    assert serde.decode(b"") is None


@pytest.mark.parametrize(
    ("serde", "value", "says"),
    [
        (Str(), 5, r"Str\(\) cannot encode int 5: .*str\(\)"),
        (Str(), b"raw", r"cannot encode bytes b'raw'"),
        (Bytes(), "text", r"Bytes\(\) cannot encode str 'text'"),
        (Int64(), "5", r"Int64\(\) cannot encode str '5'"),
        (Int64(), 2**63, r"2\*\*63"),
        (Int64(), 1.0, r"float 1.0"),
        (Float64(), "0.5", r"Float64\(\) cannot encode str"),
        (Float64(), 10**400, r"Float64\(\) cannot encode int"),
        (Json(), object(), r"Json\(\) cannot encode object .*dataclass"),
        (Json(), {(1, 2): 3}, r"Json\(\) cannot encode dict"),
        (Json(), "\ud800", r"surrogates"),
        (TimeWindowed(Str(), size=timedelta(1)), "a", r"Windowed\(key, start, end\)"),
        (SessionWindowed(Str()), Windowed("a", 0, 2**63), r"64 bits"),
        (SessionWindowed(Str()), Windowed(5, 0, 1), r"^Str\(\) cannot encode int 5"),
    ],
)
def test_what_cannot_be_encoded_is_named(serde: Serde, value: Any, says: str) -> None:
    with pytest.raises(SerdeError, match=says):
        serde.encode(value)


@pytest.mark.parametrize(
    ("serde", "data", "says"),
    [
        (Int64(), b"1234567", r"Int64\(\) cannot decode bytes b'1234567': .*8 bytes.*\(7 bytes\)"),
        (Float64(), b"123456789", r"\(9 bytes\)"),
        (Json(), b"{", r"Json\(\) cannot decode"),
        (Json(), b'"\xff"', r"Json\(\) cannot decode"),
        (TimeWindowed(Str(), size=timedelta(1)), b"1234567", r"\(7 bytes\)"),
        (SessionWindowed(Str()), b"123456789012345", r"\(15 bytes\)"),
        (SessionWindowed(Int64()), b"1" * 20, r"^Int64\(\) cannot decode"),
    ],
)
def test_what_cannot_be_decoded_is_named(serde: Serde, data: bytes, says: str) -> None:
    with pytest.raises(SerdeError, match=says):
        serde.decode(data)


def test_a_long_value_is_shortened_and_a_broken_repr_hides_nothing() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError

    with pytest.raises(SerdeError) as long:
        Int64().encode("x" * 10_000)
    assert len(str(long.value)) < 300
    with pytest.raises(SerdeError, match="Broken <Broken instance at"):
        Str().encode(Broken())


@pytest.mark.parametrize("serde", EVERY, ids=repr)
@given(value=anything)
def test_stable_is_never_wrong(serde: Serde, value: Any) -> None:
    if serde.stable(value):
        assert same(serde.decode(serde.encode(value)), value)
        hash(value)


@pytest.mark.parametrize(
    ("serde", "value"),
    [
        (Str(), "a"),
        (Bytes(), b"a"),
        (Int64(), -5),
        (Float64(), 0.5),
        (Json(), True),
        (Json(), 2**63 - 1),
        (Json(), 1e300),
        (Json(), "a"),
        (Json(type=int), 7),
        (TimeWindowed(Str(), size=timedelta(seconds=1)), Windowed("a", 1, 1001)),
        (SessionWindowed(Str()), Windowed("a", 1, 7)),
    ],
)
def test_common_values_are_stable(serde: Serde, value: Any) -> None:
    assert serde.stable(value)


@pytest.mark.parametrize("serde", EVERY, ids=repr)
@given(value=anything)
def test_the_short_way_gives_the_same_or_raises(serde: Serde, value: Any) -> None:
    try:
        data = serde.encoder()(value)
    except Exception:
        return
    assert data == serde.encode(value)
    try:
        again = serde.decoder()(data)
    except Exception:
        return
    assert same(again, serde.decode(data))


@pytest.mark.parametrize("serde", EVERY, ids=repr)
def test_serdes_are_values(serde: Serde) -> None:
    copy = pickle.loads(pickle.dumps(serde))
    assert copy == serde
    assert hash(copy) == hash(serde)
    assert [other for other in EVERY if other == serde] == [serde]
    with pytest.raises((AttributeError, TypeError)):
        serde.inner = Str()  # type: ignore[attr-defined]


def test_repr_is_short() -> None:
    assert [repr(serde) for serde in EVERY[:6]] == [
        "Str()",
        "Bytes()",
        "Int64()",
        "Float64()",
        "Json()",
        "Json(type=Order)",
    ]
    assert repr(EVERY[-2]) == "TimeWindowed(Str(), size_ms=1000)"
    assert repr(EVERY[-1]) == "SessionWindowed(Int64())"


def test_what_is_no_serde_is_a_fault() -> None:
    assert serde_fault("key", Int64()) is None
    assert serde_fault("key", Json) == "key must be a serde, but is the class Json: write Json()"
    assert "class int" in (serde_fault("key", int) or "")
    assert "str 'text'" in (serde_fault("key", "text") or "")
    with pytest.raises(TopologyError) as error:
        TimeWindowed(Str, size=5)  # type: ignore[arg-type]
    assert len(error.value.faults) == 2
    with pytest.raises(TopologyError, match="inner"):
        SessionWindowed("Str")  # type: ignore[arg-type]
