"""Keys and values as JSON, for those who ask from outside: how a key is read from it, or from text as a person types
it, and how a row is shown in it. What bytes they are is the serdes' own affair."""

import base64
from typing import Any

import msgspec

from headwater.dsl.serde import Bytes, Float64, Int64, Json, Serde, Str

__all__ = ["from_json", "from_text", "plain"]


def plain(value: Any) -> Any:
    """A key or value as JSON can hold it; bytes as text if they are text, what is unknown to JSON as its repr.

    >>> plain({7: "a"}), plain(b"tea"), plain(bytes([255]))
    ({'7': 'a'}, 'tea', {'base64': '/w=='})
    """
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    return msgspec.to_builtins(value, str_keys=True, enc_hook=repr)


def from_json(serde: Serde, given: Any) -> Any:
    """A key of this serde from a JSON value; ValueError, TypeError or StreamsError if it is none.

    >>> from_json(Float64(), 1), from_json(Bytes(), "tea"), from_json(Bytes(), {"base64": "/w=="})
    (1.0, b'tea', b'\\xff')
    """
    if isinstance(serde, Bytes):
        if isinstance(given, dict) and given.keys() == {"base64"}:
            return base64.b64decode(given["base64"], validate=True)
        return str(given).encode()
    if isinstance(serde, Json):
        return serde.decode(msgspec.json.encode(given))
    if isinstance(serde, Float64):
        return float(given)
    return given


def from_text(serde: Serde, given: str) -> Any:
    """The same from text as a person types it: quotes and brackets only where the serde needs them.

    >>> from_text(Str(), "42"), from_text(Int64(), "42"), from_text(Json(), "tea"), from_text(Json(), "[1, 2]")
    ('42', 42, 'tea', [1, 2])
    """
    if isinstance(serde, Str):
        return given
    if isinstance(serde, Bytes):
        return given.encode()
    if isinstance(serde, Int64):
        return int(given)
    if isinstance(serde, Float64):
        return float(given)
    try:
        value = msgspec.json.decode(given)
    except msgspec.DecodeError:
        value = given
    return from_json(serde, value)
