"""The note that Kafka Streams keeps with each committed offset, so that a task goes on at the time it had reached. It
owns the note's bytes; which times belong into it, and when it is committed, is the worker's.

The note is the base64 text of (numbers big-endian):

| bytes | content |
|---|---|
| 0 | magic: 2, or 1 in the notes of older Kafka Streams, which end after the partition time |
| 1–8 | partition time: the highest timestamp read from the partition, -1 for none |
| 9–12 | how many numbers follow; missing if there is none |
| then for each | 4: length of its name; the name in UTF-8; 8: the number |

The numbers are what processors remember by name; Kafka Streams' own are up to where emit-on-close windows were emitted,
named by their store. Broken by: another magic, text that is not base64, too few bytes. Kafka Streams then goes on
without what it cannot read, since offsets committed by hand have any text or none: so does `decode`. What follows the
last number is ignored, as there.

confluent-kafka hands a note over without its end, so that anything may follow, even what is no text at all: a note is
read as far as it is base64, and `note_of` is how to take it from what a client answers. How to write one so that Kafka
Streams can read it is in plain_notes.py.
"""

import base64
import re
import struct
from collections.abc import Mapping
from typing import Protocol

__all__ = ["NO_TIME", "decode", "encode", "note_of"]

NO_TIME = -1

_HEAD = struct.Struct(">Bq")
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_TIME_ALONE, _TIME_AND_NUMBERS = 1, 2
_BASE64 = re.compile("[A-Za-z0-9+/]*")


def encode(partition_time: int, numbers: Mapping[str, int]) -> str:
    """Return the note of a partition time and the processors' numbers.

    >>> from headwater.streams.kafka.offset_notes import encode
    >>> encode(258, {})
    'AgAAAAAAAAEC'
    """
    parts = [_HEAD.pack(_TIME_AND_NUMBERS, partition_time)]
    if numbers:
        parts.append(_INT.pack(len(numbers)))
    for name, number in numbers.items():
        data = name.encode()
        parts += (_INT.pack(len(data)), data, _LONG.pack(number))
    return base64.b64encode(b"".join(parts)).decode("ascii")


def decode(note: str) -> tuple[int, dict[str, int]]:
    """Return the partition time and the processors' numbers of a note; (-1, {}) where there is none to be read.

    >>> from headwater.streams.kafka.offset_notes import decode
    >>> decode("AgAAAAAAAAEC"), decode("committed by hand")
    ((258, {}), (-1, {}))
    """
    data = _bytes_of(note)
    if len(data) < _HEAD.size:
        return NO_TIME, {}
    magic, time = _HEAD.unpack_from(data)
    if magic == _TIME_ALONE:
        return time, {}
    elif magic == _TIME_AND_NUMBERS:
        return time, _numbers(data)
    else:
        return NO_TIME, {}


class Committed(Protocol):
    """A committed offset, as the client answers it."""

    @property
    def metadata(self) -> str | None:
        """The note."""
        ...


def note_of(committed: Committed) -> str:
    """The note with a committed offset, as far as it is text; "" if there is none."""
    try:
        return committed.metadata or ""
    except UnicodeDecodeError as error:
        return error.object[: error.start].decode()


def _bytes_of(note: str) -> bytes:
    found = _BASE64.match(note)
    text = found[0] if found else ""
    # One character alone is no byte; otherwise the padding is made anew, wherever the text ends.
    text = text[: len(text) - (len(text) % 4 == 1)]
    return base64.b64decode(text + "=" * (-len(text) % 4))


def _numbers(data: bytes) -> dict[str, int]:
    """The numbers after the time; none where they are broken, and the time holds all the same, as in Kafka Streams."""
    numbers: dict[str, int] = {}
    at = _HEAD.size
    try:
        (count,) = _INT.unpack_from(data, at)
        at += _INT.size
        for _ in range(count):
            (length,) = _INT.unpack_from(data, at)
            if length < 0:
                return {}
            name = data[at + 4 : at + 4 + length]
            (numbers[name.decode(errors="replace")],) = _LONG.unpack_from(data, at + 4 + length)
            at += 12 + length
    except struct.error:
        return {}
    return numbers
