"""How keys and times become row keys whose byte order is the order the stores read in. It owns the escape of keys, the form
of times and the codec of rows that are bytes already; which parts a row key has, and in which order, is each store's.

| part | bytes | broken by |
|---|---|---|
| key that something follows | the serialised key, 00 written 00 FF, then 00 00 | leaving out the escape: the times of key "a" reach into the rows of key "a\\0" |
| key at the end | the serialised key as it is | appending anything |
| time | 8, unsigned, big-endian | a sign bit: -1 would sort last, so that negative times are refused |
| sequence | 4, unsigned, big-endian | more than 2³¹ rows between a wrap and the oldest row |
"""  # noqa: E501

import struct

from headwater.errors import StreamsError

__all__ = [
    "HELD",
    "LAST_TIME",
    "Raw",
    "escape",
    "key_then_time",
    "pack_sequence",
    "pack_time",
    "unescape",
    "unpack_time",
]

LAST_TIME = 2**63 - 1
# What the index by time says of a row that a cache holds.
HELD = b"c"

_TIME = struct.Struct(">Q")
_END = b"\x00\x00"
_END_AND_TIME = struct.Struct(">HQ")

pack_sequence = struct.Struct(">I").pack


def pack_time(time: int) -> bytes:
    """Return the time's eight bytes, which sort as the times do.

    >>> from headwater.state.layout import pack_time
    >>> pack_time(258).hex()
    '0000000000000102'
    """
    try:
        return _TIME.pack(time)
    except struct.error:
        raise _no_time(time) from None


def _no_time(time: object) -> StreamsError:
    return StreamsError(f"{time!r} is no time a row can have: times are milliseconds since 1970.")


def unpack_time(data: bytes, at: int) -> int:
    """Return the time whose eight bytes begin at the place."""
    time: int = _TIME.unpack_from(data, at)[0]
    return time


def escape(key: bytes) -> bytes:
    """Return bytes that sort as the keys do whatever follows them, none of which begins another key's.

    >>> from headwater.state.layout import escape
    >>> escape(b"a").hex(" "), escape(b"a\\0").hex(" ")
    ('61 00 00', '61 00 ff 00 00')
    """
    return key.replace(b"\x00", b"\x00\xff") + _END


def key_then_time(key: bytes, time: int) -> bytes:
    """Return escape(key) + pack_time(time): the hot path of windowed aggregates, in one call.

    >>> from headwater.state.layout import key_then_time
    >>> key_then_time(b"a", 258).hex(" ", 1)
    '61 00 00 00 00 00 00 00 00 01 02'
    """
    try:
        return key.replace(b"\x00", b"\x00\xff") + _END_AND_TIME.pack(0, time)
    except struct.error:
        raise _no_time(time) from None


def unescape(data: bytes) -> bytes:
    """Return the key whose escaped bytes these are."""
    return data[:-2].replace(b"\x00\xff", b"\x00")


class Raw:
    """The codec of rows that are bytes already."""

    __slots__ = ()

    def encode(self, value: bytes) -> bytes:
        return value

    def decode(self, data: bytes) -> bytes:
        return data

    def stable(self, value: bytes) -> bool:
        return type(value) is bytes
