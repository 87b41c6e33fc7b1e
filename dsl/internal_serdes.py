"""Serdes of internal topics and stores: what a table's group-by and a foreign-key join send to themselves, in Kafka
Streams' own bytes, so that an application can be taken over in the middle. It owns these formats and the messages in
them; who sends what, and when, is the operators'. A plain table row is its value's bytes and needs nothing from here.

| serde             | bytes                                                                              |
| ----------------- | ---------------------------------------------------------------------------------- |
| ChangeSerde       | old value, 0x00; or new value, 0x01; or varint length of new, new, old, 0x02       |
| (read only)       | the same, a byte 0 or 1 (is it the latest), then 0x03, 0x04 or 0x05                |
| SubscriptionSerde | version (0x80 added: no hash), instruction, hash (16 bytes, big-endian) if any,    |
|                   | primary key, and from version 1 on the primary partition (4 bytes, big-endian)     |
| ResponseSerde     | version (0x80 added: no hash), hash (16 bytes, big-endian) if any, foreign value   |

The varint is zigzag-encoded, as in Kafka's records. A response with a foreign value of no bytes reads as one without a
value: the format cannot tell them apart. Broken by: too few bytes, an unknown last byte, instruction or version, and
whatever breaks the inner serde.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from headwater.dsl.serde import Serde
from headwater.errors import SerdeError

__all__ = ["ChangeSerde", "Instruction", "Response", "ResponseSerde", "Subscription", "SubscriptionSerde"]

Hash = tuple[int, int]

_NO_HASH = 0x80
_SUBSCRIPTION_VERSION = 1
_RESPONSE_VERSION = 0

_hash = struct.Struct(">qq")
_partition = struct.Struct(">i")


class Instruction(IntEnum):
    """What the foreign side does with a subscription."""

    DELETE = 0  # remove it, answer nothing
    DELETE_AND_ANSWER = 1  # remove it, answer without a value
    ANSWER_ALWAYS = 2  # keep it, answer with the foreign value or without one
    ANSWER_IF_FOUND = 3  # keep it, answer only with a foreign value


class Subscription(NamedTuple):
    """A left row asks for a foreign row, or no longer does; `hash` is that of the left value, None for a deletion."""

    hash: Hash | None
    instruction: Instruction
    primary_key: Any
    version: int = _SUBSCRIPTION_VERSION
    primary_partition: int | None = None


class Response(NamedTuple):
    """What a foreign row answers to a left row whose value had this hash; the partition itself is not written."""

    hash: Hash | None
    foreign_value: Any
    version: int = _RESPONSE_VERSION
    primary_partition: int | None = None


@dataclass(frozen=True, slots=True)
class ChangeSerde(Serde):
    """Pairs (new, old) of a table's values, of which one may be None.

    >>> from headwater.dsl.internal_serdes import ChangeSerde
    >>> from headwater.dsl.serde import Str
    >>> ChangeSerde(Str()).encode(("new", "old"))
    b'\\x06newold\\x02'
    >>> ChangeSerde(Str()).decode(b"old\\x00")
    (None, 'old')
    """

    inner: Serde

    def encode(self, value: tuple[Any, Any]) -> bytes:
        new, old = value
        if old is None:
            if new is None:
                raise SerdeError(f"{self!r} cannot encode a change without a new and an old value: do not send it")
            return self.inner.encode(new) + b"\x01"
        if new is None:
            return self.inner.encode(old) + b"\x00"
        data = self.inner.encode(new)
        return b"".join((_varint(len(data)), data, self.inner.encode(old), b"\x02"))

    def decode(self, data: bytes) -> tuple[Any, Any]:
        kind = data[-1] if data else None
        end = len(data) - (2 if kind in (3, 4, 5) else 1)
        if end >= 0:
            if kind in (0, 3):
                return None, self.inner.decode(data[:end])
            if kind in (1, 4):
                return self.inner.decode(data[:end]), None
            if kind in (2, 5):
                middle = _after_prefixed(data)
                if middle is not None and middle[1] <= end:
                    start, stop = middle
                    return self.inner.decode(data[start:stop]), self.inner.decode(data[stop:end])
        raise _malformed(self, data)


@dataclass(frozen=True, slots=True)
class SubscriptionSerde(Serde):
    """Subscriptions of a foreign-key join, by the serde of the left table's key.

    >>> from headwater.dsl.internal_serdes import Instruction, Subscription, SubscriptionSerde
    >>> from headwater.dsl.serde import Str
    >>> serde = SubscriptionSerde(Str())
    >>> serde.encode(Subscription(None, Instruction.DELETE_AND_ANSWER, "k", primary_partition=3))
    b'\\x81\\x01k\\x00\\x00\\x00\\x03'
    >>> serde.decode(_).primary_key
    'k'
    """

    primary: Serde

    def encode(self, value: Subscription) -> bytes:
        hashed, instruction, primary_key, version, partition = value
        head = _head(version, hashed, bytes((instruction,)))
        key = self.primary.encode(primary_key)
        if version == 0:
            return head + key
        if partition is None:
            raise SerdeError(f"{self!r} cannot encode a subscription of {primary_key!r} without its partition")
        return head + key + _partition.pack(partition)

    def decode(self, data: bytes) -> Subscription:
        try:
            version = data[0] & 0x7F
            instruction = Instruction(data[1])
            hashed, start = _hash_at(data, 2)
            end = len(data) - (_partition.size if version else 0)
            partition = _partition.unpack_from(data, end)[0] if version else None
        except (IndexError, ValueError, struct.error) as error:
            raise _malformed(self, data) from error
        if version > _SUBSCRIPTION_VERSION or end < start:
            raise _malformed(self, data)
        return Subscription(hashed, instruction, self.primary.decode(data[start:end]), version, partition)


@dataclass(frozen=True, slots=True)
class ResponseSerde(Serde):
    """Responses of a foreign-key join, by the serde of the foreign table's value.

    >>> from headwater.dsl.internal_serdes import Response, ResponseSerde
    >>> from headwater.dsl.serde import Str
    >>> ResponseSerde(Str()).encode(Response(None, "v"))
    b'\\x80v'
    >>> ResponseSerde(Str()).decode(_)
    Response(hash=None, foreign_value='v', version=0, primary_partition=None)
    """

    value: Serde

    def encode(self, value: Response) -> bytes:
        hashed, foreign_value, version, _ = value
        head = _head(version, hashed)
        return head if foreign_value is None else head + self.value.encode(foreign_value)

    def decode(self, data: bytes) -> Response:
        try:
            version = data[0] & 0x7F
            hashed, start = _hash_at(data, 1)
        except (IndexError, struct.error) as error:
            raise _malformed(self, data) from error
        if version > _RESPONSE_VERSION:
            raise _malformed(self, data)
        return Response(hashed, self.value.decode(data[start:]) if len(data) > start else None, version)


def _head(version: int, hashed: Hash | None, rest: bytes = b"") -> bytes:
    if hashed is None:
        return bytes((version | _NO_HASH,)) + rest
    return bytes((version,)) + rest + _hash.pack(*hashed)


def _hash_at(data: bytes, at: int) -> tuple[Hash | None, int]:
    if data[0] & _NO_HASH:
        return None, at
    first, second = _hash.unpack_from(data, at)
    return (first, second), at + _hash.size


def _varint(value: int) -> bytes:
    value <<= 1  # zigzag of a number from 0 on
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _after_prefixed(data: bytes) -> tuple[int, int] | None:
    """Where the bytes after a varint length start and stop, or None for a malformed length."""
    number = 0
    for at, byte in enumerate(data[:5]):
        number |= (byte & 0x7F) << 7 * at
        if byte < 0x80:
            return None if number & 1 else (at + 1, at + 1 + (number >> 1))
    return None


def _malformed(serde: Serde, data: bytes) -> SerdeError:
    shown = data if len(data) <= 64 else data[:64] + "…".encode()
    return SerdeError(f"{serde!r} cannot decode {shown!r}: malformed ({len(data)} bytes); check what wrote them")
