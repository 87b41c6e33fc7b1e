"""What each function of an expression computes: the one definition of its semantics, over decoded values. The Python
compiler calls these functions; the Catalyst compiler must agree with them, and tests compare the two.

| rule | |
|---|---|
| null | an operation on null gives null; `&` and `|` are three-valued; only true passes a filter |
| long | 64 bits; a result that does not fit is null |
| double | IEEE 754, but NaN equals itself and is greater than all other numbers |
| long with double | computed and compared as doubles; `/` always is |
| division, modulo | by zero gives null; the result of modulo has the sign of the dividend |
| string | a sequence of code points, ordered by them; case is Unicode's |
| timestamp | an instant in UTC, to the microsecond, in the years 1 to 9999; others are null |
| another kind | a TypeError: nothing is converted unless `cast` says so |
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, NoReturn

import msgspec

__all__ = ["CAST", "FUNCTION", "TRUNCATIONS", "item", "item_of_declared", "kind_of", "truth", "with_fields"]

LOW, HIGH = -(2**63), 2**63 - 1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
TRUNCATIONS = ("year", "month", "week", "day", "hour", "minute", "second")
_SECONDS = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800}
# The epoch was a Thursday, weeks begin on Monday.
_FIRST_MONDAY = -3 * 86_400
_KINDS: dict[type, str] = {
    int: "long",
    float: "double",
    str: "string",
    bool: "boolean",
    bytes: "binary",
    list: "list",
    dict: "struct or map",
    type(None): "null",
}


def kind_of(value: object) -> str:
    """What a value is called in an expression.

    >>> kind_of(3), kind_of(True), kind_of("x")
    ('long', 'boolean', 'string')
    """
    return _KINDS.get(type(value)) or ("timestamp" if isinstance(value, datetime) else type(value).__name__)


def _wrong(function: str, wanted: str, *values: object) -> NoReturn:
    shown = " and ".join(f"{kind_of(value)} {value!r:.60}" for value in values)
    raise TypeError(f"{function} takes {wanted}, not {shown}: cast() what is of another kind")


def item(value: Any, name: str | int) -> Any:
    """A field, entry or element; null if there is none, but a type that declares its fields must have it."""
    if value is None:
        return None
    fields = _fields(type(value))
    if isinstance(name, int):
        if not isinstance(value, list | tuple):
            _wrong(f"[{name}]", "a list", value)
        return value[name] if -len(value) <= name < len(value) else None
    if fields is None:
        if not isinstance(value, Mapping):
            _wrong(f"[{name!r}]", "a struct or a map", value)
        return value.get(name)
    if name not in fields:
        raise TypeError(f"{type(value).__name__} has no field {name!r}: it has {', '.join(fields)}")
    return getattr(value, name)


def _fields(kind: type) -> tuple[str, ...] | None:
    """The fields that a type declares; None for a map and all others."""
    if issubclass(kind, msgspec.Struct):
        return tuple(kind.__struct_fields__)
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    return getattr(kind, "_fields", None) if issubclass(kind, tuple) else None


def item_of_declared(name: str, known: set[type]) -> Callable[[Any], Any]:
    """`item` for one name; types that declare the field are added to `known`, to be read directly from then on."""

    def read(value: Any) -> Any:
        found = item(value, name)
        if _fields(type(value)) is not None:
            known.add(type(value))
        return found

    return read


def with_fields(value: Any, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a struct as a dict, with these in their place or after them."""
    names = _fields(type(value))
    if names is None:
        if not isinstance(value, Mapping):
            _wrong("with_columns()", "a struct", value)
        return {**value, **fields}
    return {**{name: getattr(value, name) for name in names}, **fields}


def truth(value: Any) -> bool | None:
    """A condition's value: a boolean or null, nothing that Python merely takes for one."""
    if value is not None and type(value) is not bool:
        _wrong("a condition", "a boolean", value)
    return value


# ---- numbers -------------------------------------------------------------------------------------------------------


def _are_numbers(a: Any, b: Any) -> bool:
    return type(a) in (int, float) and type(b) in (int, float)


def add(a: Any, b: Any) -> Any:
    """The sum."""
    if a is None or b is None:
        return None
    if type(a) is int and type(b) is int:
        result = a + b
        return result if LOW <= result <= HIGH else None
    if not _are_numbers(a, b):
        _wrong("+", "numbers (for text use concat())", a, b)
    return float(a) + float(b)


def subtract(a: Any, b: Any) -> Any:
    """The difference."""
    if a is None or b is None:
        return None
    if type(a) is int and type(b) is int:
        result = a - b
        return result if LOW <= result <= HIGH else None
    if not _are_numbers(a, b):
        _wrong("-", "numbers", a, b)
    return float(a) - float(b)


def multiply(a: Any, b: Any) -> Any:
    """The product."""
    if a is None or b is None:
        return None
    if type(a) is int and type(b) is int:
        result = a * b
        return result if LOW <= result <= HIGH else None
    if not _are_numbers(a, b):
        _wrong("*", "numbers", a, b)
    return float(a) * float(b)


def divide(a: Any, b: Any) -> Any:
    """The quotient, a double; null for a zero divisor."""
    if a is None or b is None:
        return None
    if not _are_numbers(a, b):
        _wrong("/", "numbers", a, b)
    return None if b == 0 else float(a) / float(b)


def modulo(a: Any, b: Any) -> Any:
    """What a division leaves, with the sign of the dividend; null for a zero divisor."""
    if a is None or b is None:
        return None
    if not _are_numbers(a, b):
        _wrong("%", "numbers", a, b)
    if b == 0:
        return None
    if type(a) is int and type(b) is int:
        rest = abs(a) % abs(b)
        return -rest if a < 0 else rest
    a, b = float(a), float(b)
    return math.nan if math.isinf(a) else math.fmod(a, b)


def negative(a: Any) -> Any:
    """The number with the other sign."""
    if type(a) is float:
        return -a
    return subtract(0, a)


def absolute(a: Any) -> Any:
    """The number without its sign."""
    if type(a) is float:
        return abs(a)
    return a if a is None or (type(a) is int and a >= 0) else negative(a)


def is_nan(a: Any) -> bool | None:
    """Whether a number is NaN."""
    if a is None:
        return None
    if type(a) not in (int, float):
        _wrong("is_nan()", "a number", a)
    return bool(a != a)


# ---- comparisons ---------------------------------------------------------------------------------------------------


def order(symbol: str, a: Any, b: Any) -> int:
    """-1, 0 or 1: how two values of a kind, neither null, stand to each other."""
    kinds = type(a), type(b)
    if kinds[0] is not kinds[1] or kinds[0] not in (int, str, bool, bytes):
        if _are_numbers(a, b):
            a, b = float(a), float(b)
            if a != a or b != b:
                return int(a != a) - int(b != b)
        elif isinstance(a, datetime) and isinstance(b, datetime):
            a, b = instant(a), instant(b)
        else:
            _wrong(symbol, "two values of one kind, numbers, strings, booleans or timestamps", a, b)
    return int(a > b) - int(a < b)


def equal(a: Any, b: Any) -> bool | None:
    """Whether two values are the same."""
    return None if a is None or b is None else order("==", a, b) == 0


def not_equal(a: Any, b: Any) -> bool | None:
    """Whether two values differ."""
    return None if a is None or b is None else order("!=", a, b) != 0


def less(a: Any, b: Any) -> bool | None:
    """Whether the first is smaller."""
    return None if a is None or b is None else order("<", a, b) < 0


def less_equal(a: Any, b: Any) -> bool | None:
    """Whether the first is not greater."""
    return None if a is None or b is None else order("<=", a, b) <= 0


def greater(a: Any, b: Any) -> bool | None:
    """Whether the first is greater."""
    return None if a is None or b is None else order(">", a, b) > 0


def greater_equal(a: Any, b: Any) -> bool | None:
    """Whether the first is not smaller."""
    return None if a is None or b is None else order(">=", a, b) >= 0


def isin(a: Any, *values: Any) -> bool | None:
    """Whether a value is one of these; null among them leaves it open for the others."""
    if a is None:
        return None
    if any(order("isin()", a, value) == 0 for value in values if value is not None):
        return True
    return None if None in values else False


# ---- strings -------------------------------------------------------------------------------------------------------


def _on_strings(name: str, f: Callable[..., Any]) -> Callable[..., Any]:
    """A function of strings only, null if any is."""

    def of_strings(*values: Any) -> Any:
        for value in values:
            if type(value) is not str:
                if None in values and all(value is None or type(value) is str for value in values):
                    return None
                _wrong(name, "strings", *values)
        return f(*values)

    return of_strings


def _trim(a: str) -> str:
    return a.strip(" ")


def _replace(a: str, old: str, new: str) -> str:
    # Python would put the new text between all characters.
    return a.replace(old, new) if old else a


def _concat(*values: str) -> str:
    return "".join(values)


def substr(a: Any, start: int, length: int) -> str | None:
    """So many characters from a place on: 1 is the first, -1 the last."""
    if a is None:
        return None
    if type(a) is not str:
        _wrong("substr()", "a string", a)
    begin = start - 1 if start > 0 else len(a) + start if start < 0 else 0
    return str(a[max(begin, 0) : max(begin + length, 0)])


def like(a: Any, pattern: str) -> bool | None:
    """Whether a string fits a pattern of SQL."""
    if a is None:
        return None
    if type(a) is not str:
        _wrong("like()", "a string", a)
    return like_regex(pattern).fullmatch(a) is not None


@lru_cache(maxsize=256)
def like_regex(pattern: str) -> re.Pattern[str]:
    """A pattern of SQL (`%` any text, `_` one character, a backslash before either or itself) as a regular expression.

    >>> like_regex("a%").fullmatch("abc") is not None
    True
    """
    parts, rest = [], iter(pattern)
    for character in rest:
        if character == "\\":
            escaped = next(rest, "")
            if escaped not in ("%", "_", "\\"):
                raise ValueError(f"the pattern {pattern!r}: a backslash stands before %, _ or another backslash only")
            parts.append(re.escape(escaped))
        else:
            parts.append({"%": ".*", "_": "."}.get(character) or re.escape(character))
    return re.compile("".join(parts), re.DOTALL)


# ---- timestamps ----------------------------------------------------------------------------------------------------


def instant(value: datetime) -> datetime:
    """A datetime in UTC; one without a zone is in UTC already."""
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _part(name: str) -> Callable[[Any], int | None]:
    def part(value: Any) -> int | None:
        if value is None:
            return None
        if not isinstance(value, datetime):
            _wrong(f"{name}()", "a timestamp", value)
        return int(getattr(instant(value), name))

    return part


def trunc(value: Any, unit: str) -> datetime | None:
    """The beginning, in UTC, of the year, month, week (Monday), day, hour, minute or second of an instant."""
    if value is None:
        return None
    if not isinstance(value, datetime):
        _wrong("trunc()", "a timestamp", value)
    moment = instant(value)
    if unit in ("year", "month"):
        return datetime(moment.year, 1 if unit == "year" else moment.month, 1, tzinfo=UTC)
    size = _SECONDS[unit]
    seconds = (moment - EPOCH) // timedelta(seconds=1)
    first = _FIRST_MONDAY if unit == "week" else 0
    return _after_epoch((first + (seconds - first) // size * size) * 1_000_000)


def _after_epoch(microseconds: int) -> datetime | None:
    try:
        return EPOCH + microseconds * MICROSECOND
    except OverflowError:
        return None


# ---- casts ---------------------------------------------------------------------------------------------------------

# ASCII digits only, and no suffix, hexadecimal or "Infinity": what languages disagree about is no number here.
LONG_TEXT = r"[+-]?[0-9]{1,19}"
DOUBLE_TEXT = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?"
DATE_TEXT = r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
TIME_TEXT = r"([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9])(?:\.([0-9]{1,6}))?"
ZONE_TEXT = r"(Z|[+-](?:0[0-9]|1[0-7]):[0-5][0-9])?"
TIMESTAMP_TEXT = rf"{DATE_TEXT}(?:[T ]{TIME_TEXT}{ZONE_TEXT})?"
_long_text, _double_text, _timestamp_text = map(re.compile, (LONG_TEXT, DOUBLE_TEXT, TIMESTAMP_TEXT))


def _as_long(value: Any) -> int | None:
    kind = type(value)
    if kind is str:
        text = value.strip(" ")
        result = int(text) if _long_text.fullmatch(text) else None
    elif kind is float:
        result = int(value) if math.isfinite(value) else None
    elif isinstance(value, datetime):
        result = (instant(value) - EPOCH) // timedelta(milliseconds=1)
    elif kind is int or kind is bool:
        result = int(value)
    else:
        _wrong('cast("long")', "a number, string, boolean or timestamp", value)
    return result if result is not None and LOW <= result <= HIGH else None


def _as_double(value: Any) -> float | None:
    if type(value) is str:
        text = value.strip(" ")
        return float(text) if _double_text.fullmatch(text) else None
    if type(value) not in (int, float, bool):
        _wrong('cast("double")', "a number, string or boolean", value)
    return float(value)


def _as_string(value: Any) -> str:
    if type(value) is bool:
        return "true" if value else "false"
    if isinstance(value, datetime):
        return instant(value).isoformat().replace("+00:00", "Z")
    if type(value) not in (int, float, str):
        _wrong('cast("string")', "a number, string, boolean or timestamp", value)
    return str(value)


def _as_boolean(value: Any) -> bool | None:
    if type(value) is str:
        return {"true": True, "false": False}.get(value.strip(" ").lower())
    if type(value) not in (int, float, bool):
        _wrong('cast("boolean")', "a number, string or boolean", value)
    return bool(value != 0)


def _as_timestamp(value: Any) -> datetime | None:
    if isinstance(value, datetime):
        return instant(value)
    if type(value) is int:
        return _after_epoch(value * 1000)
    if type(value) is not str:
        _wrong('cast("timestamp")', "a long (milliseconds since 1970), string or timestamp", value)
    found = _timestamp_text.fullmatch(value.strip(" "))
    if found is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    try:
        moment = datetime(
            int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0),
            int((fraction or "").ljust(6, "0")), UTC,
        )  # fmt: skip
        if zone not in (None, "Z"):
            offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[4:6]))
            moment = moment - offset if zone[0] == "+" else moment + offset
    except (ValueError, OverflowError):
        return None
    return moment


def _nullable(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def cast(value: Any) -> Any:
        return None if value is None else f(value)

    return cast


CAST: dict[str, Callable[[Any], Any]] = {
    "long": _nullable(_as_long),
    "double": _nullable(_as_double),
    "string": _nullable(_as_string),
    "boolean": _nullable(_as_boolean),
    "timestamp": _nullable(_as_timestamp),
}

# All but those that the compiler writes out, because they need not look at all their arguments.
FUNCTION: dict[str, Callable[..., Any]] = {
    "add": add,
    "subtract": subtract,
    "multiply": multiply,
    "divide": divide,
    "modulo": modulo,
    "negative": negative,
    "abs": absolute,
    "is_nan": is_nan,
    "equal": equal,
    "not_equal": not_equal,
    "less": less,
    "less_equal": less_equal,
    "greater": greater,
    "greater_equal": greater_equal,
    "isin": isin,
    "upper": _on_strings("upper()", str.upper),
    "lower": _on_strings("lower()", str.lower),
    "length": _on_strings("length()", len),
    "trim": _on_strings("trim()", _trim),
    "substr": substr,
    "contains": _on_strings("contains()", str.__contains__),
    "startswith": _on_strings("startswith()", str.startswith),
    "endswith": _on_strings("endswith()", str.endswith),
    "like": like,
    "replace": _on_strings("replace()", _replace),
    "concat": _on_strings("concat()", _concat),
    "year": _part("year"),
    "month": _part("month"),
    "day": _part("day"),
    "hour": _part("hour"),
    "minute": _part("minute"),
    "second": _part("second"),
    "trunc": trunc,
}
