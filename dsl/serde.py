"""Serdes: values to Kafka's bytes and back. It owns the byte formats and the text of an error; which topic and step a
value belongs to is added by the callers, who also keep null (None) away from every serde.

| serde           | bytes                                                    | broken by                              |
| --------------- | -------------------------------------------------------- | -------------------------------------- |
| Str             | UTF-8                                                    | nothing: what is malformed is replaced |
| Bytes           | as they are                                              | nothing                                |
| Int64           | 8 bytes, big-endian, two's complement (Kafka's Long)     | any other length                       |
| Float64         | 8 bytes, big-endian IEEE 754, one NaN (Kafka's Double)   | any other length                       |
| Json            | UTF-8 JSON without spaces                                | malformed JSON; a value not of `type`, |
|                 |                                                          | read or written                        |
| TimeWindowed    | inner bytes, then start (8 bytes, big-endian)            | fewer than 8 bytes; what breaks inner  |
| SessionWindowed | inner bytes, then end, then start (8 bytes each)         | fewer than 16 bytes; what breaks inner |

The end of a time window is not written: two readers with different sizes read different ends.
"""

import codecs
import dataclasses
import math
import reprlib
import struct
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NoReturn

import msgspec
import msgspec.inspect

from headwater.dsl.callables import place, unrun
from headwater.dsl.durations import LONG_MAX, checked_ms
from headwater.dsl.records import Windowed
from headwater.errors import SerdeError, TopologyError

__all__ = ["Bytes", "Float64", "Int64", "Json", "Serde", "SessionWindowed", "Str", "TimeWindowed", "serde_fault"]

LONG_MIN = -LONG_MAX - 1

_long = struct.Struct(">q")
_double = struct.Struct(">d")
_two_longs = struct.Struct(">qq")
_pack_long, _unpack_long, _unpack_long_from = _long.pack, _long.unpack, _long.unpack_from
_pack_double, _unpack_double = _double.pack, _double.unpack
_pack_two_longs, _unpack_two_longs_from = _two_longs.pack, _two_longs.unpack_from
_NAN = b"\x7f\xf8" + bytes(6)


class Serde:
    """Encodes a key or value to bytes and decodes it again; derive from it for a format of your own.

    Serdes are immutable, comparable and picklable: they travel inside the topology.
    """

    __slots__ = ()

    def encode(self, value: Any) -> bytes:
        """The bytes of a value other than None; a SerdeError if it has none."""
        raise NotImplementedError

    def decode(self, data: bytes) -> Any:
        """The value of the bytes; a SerdeError if they are malformed."""
        raise NotImplementedError

    def stable(self, value: Any) -> bool:
        """Whether an object may be kept instead of its bytes.

        True only for a value that is immutable, certain to encode and equal to its own round trip. False is always
        correct, only slower.
        """
        return False

    def encoder(self) -> Callable[[Any], bytes]:
        """The shortest way to `encode`, for hot loops.

        It gives what `encode` gives or raises anything at all: whoever catches that asks `encode`, which then answers
        or says clearly what is wrong.
        """
        return self.encode

    def decoder(self) -> Callable[[bytes], Any]:
        """The shortest way to `decode`, under the same rule as `encoder`."""
        return self.decode


def serde_fault(argument: str, serde: object) -> str | None:
    """What is wrong with something given as a serde, or None.

    >>> serde_fault("stream('in'): key=", Str())
    >>> serde_fault("stream('in'): key=", Str)
    "stream('in'): key= must be a serde, but is the class Str: write Str()"
    """
    if isinstance(serde, Serde):
        for method in (serde.encode, serde.decode):
            reason = unrun(method)
            if reason is not None:
                name = f"{type(serde).__qualname__}.{method.__name__}()"
                return f"{argument} {place(method)}: {name} never runs: {reason}"
        return None
    if isinstance(serde, type):
        remedy = f"write {serde.__name__}()" if issubclass(serde, Serde) else "write Str(), Int64(), Json(type=…), …"
        return f"{argument} must be a serde, but is the class {serde.__name__}: {remedy}"
    return f"{argument} must be a serde such as Str() or Json(), but is {_shown(serde)}"


def _shown(value: object) -> str:
    return f"{type(value).__name__} {_shortener.repr(value)}"


_shortener = reprlib.Repr()
_shortener.maxstring = _shortener.maxother = 80


def _cannot_encode(serde: Serde, value: object, remedy: str, cause: Exception | None = None) -> NoReturn:
    if isinstance(value, Windowed) and not isinstance(serde, TimeWindowed | SessionWindowed):
        remedy = "a windowed key needs TimeWindowed(...) or SessionWindowed(...), or take its .key"
    raise SerdeError(f"{serde!r} cannot encode {_shown(value)}: {remedy}") from cause


def _cannot_decode(serde: Serde, data: object, remedy: str, cause: Exception | None = None) -> NoReturn:
    if isinstance(data, bytes):
        remedy = f"{remedy} ({len(data)} bytes)"
    raise SerdeError(f"{serde!r} cannot decode {_shown(data)}: {remedy}") from cause


def _java_replacement(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    data, start = error.object, error.start
    # Java reads an encoded surrogate as one malformed character, Python as one per byte.
    if data[start] == 0xED and start + 1 < len(data) and 0xA0 <= data[start + 1] <= 0xBF:
        third = start + 2 < len(data) and 0x80 <= data[start + 2] <= 0xBF
        return "\ufffd", start + (3 if third else 2)
    return "\ufffd", error.end


_JAVA = "headwater.java-utf8"
codecs.register_error(_JAVA, _java_replacement)


@dataclass(frozen=True, slots=True)
class Str(Serde):
    """Text as UTF-8.

    Like Kafka's, it never fails on bytes: what is not UTF-8 reads as U+FFFD; half a surrogate pair is written as '?'.

    >>> from headwater import Str
    >>> Str().encode("grün"), Str().decode(b"ok")
    (b'gr\\xc3\\xbcn', 'ok')
    """

    def encode(self, value: str) -> bytes:
        try:
            return str.encode(value)
        except UnicodeEncodeError:
            joined = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
            return joined.encode("utf-8", "replace")
        except Exception as error:
            _cannot_encode(self, value, "it writes text; convert it with str() or choose another serde", error)

    def decode(self, data: bytes) -> str:
        try:
            return str(data, "utf-8", _JAVA)
        except TypeError as error:
            _cannot_decode(self, data, "it reads bytes", error)

    def stable(self, value: Any) -> bool:
        return type(value) is str and value.isascii()

    def encoder(self) -> Callable[[Any], bytes]:
        return str.encode

    def decoder(self) -> Callable[[bytes], Any]:
        return bytes.decode


@dataclass(frozen=True, slots=True)
class Bytes(Serde):
    """Bytes as they are.

    >>> from headwater import Bytes
    >>> Bytes().encode(bytearray(b"raw"))
    b'raw'
    """

    def encode(self, value: bytes | bytearray | memoryview) -> bytes:
        if type(value) is bytes:
            return value
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value)
        _cannot_encode(self, value, "it writes bytes; encode it first or choose another serde")

    def decode(self, data: bytes) -> bytes:
        return data

    def stable(self, value: Any) -> bool:
        return type(value) is bytes


@dataclass(frozen=True, slots=True)
class Int64(Serde):
    """A signed 64-bit integer in 8 bytes, big-endian: Kafka's Long.

    >>> from headwater import Int64
    >>> Int64().encode(-2)
    b'\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xfe'
    """

    def encode(self, value: int) -> bytes:
        try:
            return _pack_long(value)
        except Exception as error:
            _cannot_encode(
                self, value, "it writes an int from -2**63 to 2**63 - 1; convert it or choose another serde", error
            )

    def decode(self, data: bytes) -> int:
        try:
            return _unpack_long(data)[0]  # type: ignore[no-any-return]
        except Exception as error:
            _cannot_decode(self, data, "it reads exactly 8 bytes; check what wrote them", error)

    def stable(self, value: Any) -> bool:
        return type(value) is int and LONG_MIN <= value <= LONG_MAX

    def encoder(self) -> Callable[[Any], bytes]:
        return _pack_long


@dataclass(frozen=True, slots=True)
class Float64(Serde):
    """A 64-bit floating-point number in 8 bytes, big-endian: Kafka's Double.

    >>> from headwater import Float64
    >>> Float64().decode(Float64().encode(0.5))
    0.5
    """

    def encode(self, value: float) -> bytes:
        try:
            # Java writes every NaN with the same bits.
            return _pack_double(value) if value == value else _NAN
        except Exception as error:
            _cannot_encode(self, value, "it writes a float; convert it with float() or choose another serde", error)

    def decode(self, data: bytes) -> float:
        try:
            return _unpack_double(data)[0]  # type: ignore[no-any-return]
        except Exception as error:
            _cannot_decode(self, data, "it reads exactly 8 bytes; check what wrote them", error)

    def stable(self, value: Any) -> bool:
        return type(value) is float and value == value


_encode_json = msgspec.json.Encoder().encode
_decode_json = msgspec.json.Decoder().decode
_SCALARS = (bool, int, float, str)


@dataclass(frozen=True, slots=True)
class Json(Serde):
    """A value as JSON; with `type`, read as that dataclass, msgspec.Struct or any other type that msgspec knows.

    With `type`, a value is also checked when it is written: it must be readable as that type, and no field and no key
    of it may get lost. A dict may stand for a dataclass or Struct. JSON has no NaN and no infinity: encoding one is an
    error, never a silent null.

    >>> from dataclasses import dataclass
    >>> from headwater import Json
    >>> @dataclass
    ... class Order:
    ...     user: str
    ...     amount: float = 0.0
    >>> Json().encode({"user": "alice", "amount": 3})
    b'{"user":"alice","amount":3}'
    >>> Json(type=Order).decode(b'{"user":"alice"}')
    Order(user='alice', amount=0.0)
    >>> Json(type=Order).encode({"user": "alice", "amuont": 3})
    Traceback (most recent call last):
    headwater.errors.SerdeError: Json(type=Order) cannot encode dict {'amuont': 3, 'user': 'alice'}: \
`$` has 'amuont', which Order has no field for; write what the type declares, or declare what is written
    """

    type: Any = None
    _decode: Callable[[bytes], Any] = field(init=False, repr=False, compare=False)
    _scalars: tuple[Any, ...] = field(init=False, repr=False, compare=False)
    _flat: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        try:
            decode = _decode_json if self.type is None else msgspec.json.Decoder(self.type).decode
            info = None if self.type is None else msgspec.inspect.type_info(self.type)
            fault = _unreadable(info, "", set())
        except Exception as error:
            raise TopologyError([f"Json(type={self.type!r}) cannot be read from JSON: {error}"]) from error
        if fault is not None:
            raise TopologyError([f"Json(type={self.type!r}) cannot be read from JSON: {fault}"])
        object.__setattr__(self, "_decode", decode)
        object.__setattr__(self, "_flat", _is_flat(info))
        kept = _SCALARS if self.type is None else tuple(kind for kind in _SCALARS if kind is self.type)
        object.__setattr__(self, "_scalars", kept)

    def __reduce__(self) -> tuple[Any, ...]:
        _forget(self.type, set())
        return Json, (self.type,)  # the decoder cannot be pickled

    def __repr__(self) -> str:
        if self.type is None:
            return "Json()"
        return f"Json(type={getattr(self.type, '__name__', None) or repr(self.type)})"

    def encode(self, value: Any) -> bytes:
        try:
            data = _encode_json(value)
        except Exception as error:
            _cannot_encode(
                self,
                value,
                f"{error}; make it a dataclass or msgspec.Struct, convert it first or choose another serde",
                error,
            )
        # msgspec writes NaN as null; "null" is rare enough to look closer only then (find: `in` takes twice as long).
        if data.find(b"null") >= 0 and _hides_nan(value, data):
            _cannot_encode(self, value, "JSON has no NaN and no infinity; replace them, for example by None")
        if self.type is not None and type(value) not in self._scalars:
            self._check(value, data)
        return data

    def _check(self, value: Any, data: bytes) -> None:
        """Raise unless the bytes of a value read as the type, and nothing in them gets lost."""
        cause = None
        try:
            back = self._decode(data)
        except Exception as error:
            reason, cause = str(error), error
        else:
            if (self._flat and type(value) is self.type) or back == value:
                return
            lost = _lost(value, back, "$")
            if lost is None:
                return
            reason = lost
        _cannot_encode(self, value, f"{reason}; write what the type declares, or declare what is written", cause)

    def decode(self, data: bytes) -> Any:
        try:
            return self._decode(data)
        except Exception as error:
            _cannot_decode(self, data, f"{error}; check what wrote them", error)

    def stable(self, value: Any) -> bool:
        kind = type(value)
        if kind not in self._scalars:
            return False
        if kind is str:
            return bool(value.isascii())
        if kind is int:
            return bool(LONG_MIN <= value <= LONG_MAX)
        return kind is bool or math.isfinite(value)

    def decoder(self) -> Callable[[bytes], Any]:
        return self._decode


# What JSON may be read as where no hook says how: these, and what has one of them as an instance (object, Iterable).
_READ_UNTYPED: tuple[Any, ...] = (None, True, 0, 0.5, "", [], {})
_JSON_KEYS = (
    msgspec.inspect.AnyType,
    msgspec.inspect.StrType,
    msgspec.inspect.IntType,
    msgspec.inspect.FloatType,
    msgspec.inspect.DecimalType,
    msgspec.inspect.BytesType,
    msgspec.inspect.UUIDType,
    msgspec.inspect.DateType,
    msgspec.inspect.TimeType,
    msgspec.inspect.DateTimeType,
    msgspec.inspect.TimeDeltaType,
    msgspec.inspect.EnumType,
    msgspec.inspect.LiteralType,
)


def _unreadable(kind: Any, place: str, seen: set[int]) -> str | None:
    """Why no JSON would ever be read as a type, and where in it, or None; msgspec itself says so at the first value."""
    if id(kind) in seen:
        return None
    seen.add(id(kind))
    at = f" (in {place})" if place else ""
    if isinstance(kind, msgspec.inspect.CustomType):
        if _holds_json(kind.cls):
            return None
        return f"{kind.cls!r}{at} has no form in it: use a dataclass, msgspec.Struct or another type that msgspec knows"
    if isinstance(kind, msgspec.inspect.DictType):
        keys = kind.key_type
        for key in keys.types if isinstance(keys, msgspec.inspect.UnionType) else (keys,):
            if not isinstance(key, _JSON_KEYS):
                what = type(key).__name__.removesuffix("Type")
                return f"a dict{at} whose keys are of the kind {what}: JSON's are text, numbers and dates"
    return _first(_unreadable(part, where, seen) for where, part in _parts(kind, place))


def _parts(kind: Any, place: str = "") -> list[tuple[str, Any]]:
    """The types that a type is made of, and where they stand: in a field of a class, or where the type itself does."""
    name = getattr(getattr(kind, "cls", None), "__name__", "")
    parts = [(f"{name}.{part.name}", part.type) for part in getattr(kind, "fields", ())]
    for attribute in ("key_type", "value_type", "item_type"):
        parts += [(place, getattr(kind, attribute))] if hasattr(kind, attribute) else []
    for attribute in ("types", "item_types"):
        parts += [(place, part) for part in getattr(kind, attribute, ())]
    return parts


_RECORDS = (msgspec.inspect.StructType, msgspec.inspect.DataclassType)
_WITH_KEYS = (
    *_RECORDS,
    msgspec.inspect.DictType,
    msgspec.inspect.TypedDictType,
    msgspec.inspect.NamedTupleType,
    msgspec.inspect.AnyType,
    msgspec.inspect.CustomType,
    msgspec.inspect.RawType,
)


def _is_flat(kind: Any) -> bool:
    """Whether an instance of a record type that reads back can have lost nothing: none of its fields has keys."""
    return isinstance(kind, _RECORDS) and all(_has_no_keys(part) for _, part in _parts(kind))


def _has_no_keys(kind: Any) -> bool:
    return not isinstance(kind, _WITH_KEYS) and all(_has_no_keys(part) for _, part in _parts(kind))


def _holds_json(cls: Any) -> bool:
    try:
        return any(isinstance(value, cls) for value in _READ_UNTYPED)
    except TypeError:
        return False


def _lost(value: Any, back: Any, path: str) -> str | None:
    """What of a value is no longer there when it is read back as its type, and where, or None.

    It may come back as another kind of object: a dict as a dataclass, a tuple as a list, text as a date.
    """
    if isinstance(back, dict):
        if not isinstance(value, dict):
            given = _fields(value)
            return None if given is None else _lost(given, back, path)
        if value.keys() != back.keys():
            key = next(key for key in value if key not in back)
            return f"`{path}` has the key {key!r} ({type(key).__name__}), which is not read back as the type's"
        return _first(_lost(value[key], back[key], f"{path}[{key!r}]") for key in value)
    names = _fields(back)
    if names is not None:
        if isinstance(value, list | tuple):
            return f"`{path}` has more elements than {type(back).__name__}" if len(value) > len(names) + 1 else None
        given = value if isinstance(value, dict) else _fields(value)
        if given is None:
            return None
        for name in given:
            if name not in names and name != _tag_field(back):
                return f"`{path}` has {name!r}, which {type(back).__name__} has no field for"
        return _first(_lost(given[name], names[name], f"{path}.{name}") for name in given if name in names)
    if isinstance(back, list | tuple) and isinstance(value, list | tuple):
        pairs = enumerate(zip(value, back, strict=False))
        return _first(_lost(one, other, f"{path}[{at}]") for at, (one, other) in pairs)
    return None


def _first(faults: Iterable[str | None]) -> str | None:
    return next((fault for fault in faults if fault is not None), None)


def _fields(value: Any) -> dict[str, Any] | None:
    """The fields of a dataclass or Struct by their names in JSON; None of anything else."""
    if isinstance(value, msgspec.Struct):
        names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        return {name: getattr(value, field) for name, field in names}
    if dataclasses.is_dataclass(value):
        return {part.name: getattr(value, part.name, None) for part in dataclasses.fields(value)}
    attributes = getattr(type(value), "__attrs_attrs__", None)  # of a class made by attrs
    return None if attributes is None else {part.name: getattr(value, part.name, None) for part in attributes}


def _tag_field(value: Any) -> str | None:
    return value.__struct_config__.tag_field if isinstance(value, msgspec.Struct) else None


def _forget(kind: Any, seen: set[int]) -> None:
    """Take away what msgspec notes on dataclasses and their kin: it cannot be pickled, and is only a cache."""
    if id(kind) in seen:
        return
    seen.add(id(kind))
    if isinstance(kind, type) and "__msgspec_cache__" in vars(kind):
        del kind.__msgspec_cache__  # type: ignore[attr-defined]  # it is msgspec's
        for part in typing.get_type_hints(kind).values():
            _forget(part, seen)
    for part in typing.get_args(kind):
        _forget(part, seen)


def _hides_nan(value: Any, data: bytes) -> bool:
    # The comparison runs in C and settles plain JSON values; what it leaves open (tuples, dataclasses) is walked.
    return value != _decode_json(data) and _has_nan(msgspec.to_builtins(value))


def _has_nan(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(map(_has_nan, value.values()))
    return isinstance(value, list | tuple | set | frozenset) and any(map(_has_nan, value))


@dataclass(frozen=True, slots=True, init=False)
class TimeWindowed(Serde):
    """Keys of time and sliding windows: the inner key's bytes, then the window's start.

    The end is not written; reading gives start + `size` (for sliding windows, the time difference).

    >>> from datetime import timedelta
    >>> from headwater import Str, TimeWindowed, Windowed
    >>> serde = TimeWindowed(Str(), size=timedelta(seconds=5))
    >>> serde.encode(Windowed("a", 1, 5001))
    b'a\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x01'
    >>> serde.decode(_)
    Windowed(key='a', start=1, end=5001)
    """

    inner: Serde
    size_ms: int

    def __init__(self, inner: Serde, size: timedelta) -> None:
        faults: list[str] = []
        fault = serde_fault("TimeWindowed: inner", inner)
        if fault:
            faults.append(fault)
        size_ms = checked_ms("TimeWindowed: size", size, faults)
        if faults:
            raise TopologyError(faults)
        object.__setattr__(self, "inner", inner)
        object.__setattr__(self, "size_ms", size_ms)

    @classmethod
    def of_ms(cls, inner: Serde, size_ms: int) -> "TimeWindowed":
        """The same from milliseconds: an unlimited window's size fits no timedelta."""
        self = cls.__new__(cls)
        object.__setattr__(self, "inner", inner)
        object.__setattr__(self, "size_ms", size_ms)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return TimeWindowed.of_ms, (self.inner, self.size_ms)

    def __repr__(self) -> str:
        return f"TimeWindowed({self.inner!r}, size_ms={self.size_ms})"

    def encode(self, value: Windowed) -> bytes:
        try:
            key, start, _ = value
            return self.inner.encode(key) + _pack_long(start)
        except Exception as error:
            _not_windowed(self, value, error)

    def decode(self, data: bytes) -> Windowed | None:
        # As Kafka's: no bytes are no key.
        if not data:
            return None
        try:
            (start,) = _unpack_long_from(data, len(data) - 8)
        except Exception as error:
            _cannot_decode(self, data, "it reads a key and 8 bytes; check what wrote them", error)
        return Windowed(self.inner.decode(data[:-8]), start, min(start + self.size_ms, LONG_MAX))

    def stable(self, value: Any) -> bool:
        return (
            type(value) is Windowed
            and type(value.start) is int
            and type(value.end) is int
            and LONG_MIN <= value.start <= LONG_MAX
            and value.end == min(value.start + self.size_ms, LONG_MAX)
            and self.inner.stable(value.key)
        )


@dataclass(frozen=True, slots=True)
class SessionWindowed(Serde):
    """Keys of session windows: the inner key's bytes, then the session's end, then its start.

    >>> from headwater import SessionWindowed, Str, Windowed
    >>> SessionWindowed(Str()).encode(Windowed("a", 1, 2))
    b'a\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x02\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x01'
    >>> SessionWindowed(Str()).decode(_)
    Windowed(key='a', start=1, end=2)
    """

    inner: Serde

    def __post_init__(self) -> None:
        fault = serde_fault("SessionWindowed: inner", self.inner)
        if fault:
            raise TopologyError([fault])

    def __repr__(self) -> str:
        return f"SessionWindowed({self.inner!r})"

    def encode(self, value: Windowed) -> bytes:
        try:
            key, start, end = value
            return self.inner.encode(key) + _pack_two_longs(end, start)
        except Exception as error:
            _not_windowed(self, value, error)

    def decode(self, data: bytes) -> Windowed | None:
        if not data:
            return None
        try:
            end, start = _unpack_two_longs_from(data, len(data) - 16)
        except Exception as error:
            _cannot_decode(self, data, "it reads a key and 16 bytes; check what wrote them", error)
        return Windowed(self.inner.decode(data[:-16]), start, end)

    def stable(self, value: Any) -> bool:
        return (
            type(value) is Windowed
            and type(value.start) is int
            and type(value.end) is int
            and LONG_MIN <= value.start <= LONG_MAX
            and LONG_MIN <= value.end <= LONG_MAX
            and self.inner.stable(value.key)
        )


def _not_windowed(serde: Serde, value: object, error: Exception) -> NoReturn:
    if isinstance(error, SerdeError):
        raise error
    _cannot_encode(serde, value, "it writes a Windowed(key, start, end) with bounds of 64 bits", error)
