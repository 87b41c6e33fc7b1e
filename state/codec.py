"""How a row becomes bytes and comes back, and when a buffer may keep the row itself instead of its bytes. It owns the
protocol and the timestamped row; the formats of keys and values are the serdes', which have the same three methods.

A timestamped row, as in Kafka Streams' timestamped stores and their changelogs:

| bytes | content |
|---|---|
| 0–7 | timestamp, signed, big-endian |
| 8–  | the value's bytes, as long as they are |
"""

import struct
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

__all__ = ["Codec", "Timestamped", "direct_encoder"]

T = TypeVar("T")

_TIMESTAMP = struct.Struct(">q")
_EARLIEST, _LATEST = -(2**63), 2**63 - 1


class Codec(Protocol[T]):
    """A row's way to bytes and back. None never reaches a codec: it is the absence of a row."""

    def encode(self, value: T) -> bytes:
        """Return the value's bytes."""
        ...

    def decode(self, data: bytes) -> T:
        """Return a new value for the bytes that encode gave."""
        ...

    def stable(self, value: T) -> bool:
        """Tell whether a buffer may keep the object itself: immutable, equal to its round trip, sure to encode."""
        ...


def direct_encoder(codec: Codec[T]) -> Callable[[T], bytes]:
    """The quickest way to encode values that the codec calls stable: its `encoder()` if it has one."""
    encoder = getattr(codec, "encoder", None)
    return codec.encode if encoder is None else encoder()


class Timestamped(Generic[T]):
    """The codec of rows (value, timestamp) over the value's own codec.

    >>> from headwater.state.codec import Timestamped
    >>> class Raw:
    ...     encode = decode = staticmethod(bytes)
    ...     stable = staticmethod(lambda value: type(value) is bytes)
    >>> Timestamped(Raw()).encode((b"v", 258)).hex(" ")
    '00 00 00 00 00 00 01 02 76'
    """

    __slots__ = ("_decode", "_direct", "_encode", "_stable")

    def __init__(self, inner: Codec[T]) -> None:
        self._direct = direct_encoder(inner)
        self._encode = inner.encode
        self._decode = inner.decode
        self._stable = inner.stable

    def encode(self, value: tuple[T, int]) -> bytes:
        return _TIMESTAMP.pack(value[1]) + self._encode(value[0])

    def encoder(self) -> Callable[[tuple[T, int]], bytes]:
        """A function that encodes stable rows with fewer calls."""
        pack, direct = _TIMESTAMP.pack, self._direct
        return lambda row: pack(row[1]) + direct(row[0])

    def decode(self, data: bytes) -> tuple[T, int]:
        return self._decode(data[8:]), _TIMESTAMP.unpack_from(data)[0]

    def stable(self, value: tuple[T, int]) -> bool:
        inner, timestamp = value
        # A timestamp that cannot be packed must fail in put, where its caller is, and not in the commit.
        return type(timestamp) is int and _EARLIEST <= timestamp <= _LATEST and self._stable(inner)
