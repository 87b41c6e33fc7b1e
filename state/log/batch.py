"""A batch: the records of one append as bytes, and back. It owns the format; where batches lie, and what a bad one
means there, is the segment's and the partition's.

All numbers are little-endian; times are milliseconds since 1970.

| at | bytes | what | broken |
|---|---|---|---|
| 0 | 4 | `HWLB` | bad header |
| 4 | 1 | format version: 1; 2 of several producers | with a good header checksum NewerFormat, else a bad header |
| 5 | 1 | codec of the body: 0 none, 1 lz4 block, 2 zstd | bad header |
| 6 | 2 | length of the producer's name | bad header |
| 8 | 4 | length of the body as stored | bad header: a flipped length is never believed |
| 12 | 4 | length of the body decompressed | bad header |
| 16 | 8 | first offset | bad header |
| 24 | 8 | last offset | bad header |
| 32 | 8 | lowest timestamp | bad header |
| 40 | 8 | highest timestamp | bad header |
| 48 | 4 | number of records | bad header |
| 52 | 4 | CRC-32 of the producer's name and of the body as stored | bad header |
| 56 | 8 | the producer's sequence number; -1 without a producer, -2 with several | bad header |
| 64 | 8 | time from which tombstones may go; 0 before the first compaction | bad header |
| 72 | 4 | CRC-32 of bytes 0 to 72 | bad header |
| 76 | … | producer's name, UTF-8; with several a line of sequence number, space and name for each | bad body |
| … | … | body: msgpack `[keys, values, timestamps, headers, offsets]`, one array each | bad body |

Headers are nil if no record has any, offsets are nil if they run from the first to the last without a gap. Arrays
by column are smaller, faster to decode than records by row, and do not depend on the offset: a batch is packed and
compressed before the append lock is taken.

Two checksums, so that a cut can be told from damage: a batch whose good header promises more bytes than there are,
or of whose header not even 76 bytes are there, is *incomplete*, which a killed writer leaves behind; any other
fault is *damage*, since no interrupted write makes it. Every single-bit flip is found by one of the two. What
follows a bad header cannot be found again, for its length is not known.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from zlib import crc32

import lz4.block  # type: ignore[import-untyped]
import msgspec
import zstandard

from headwater.errors import StreamsError
from headwater.state.log.errors import NewerFormat

__all__ = [
    "CODECS",
    "FORMAT_VERSION",
    "HEADER_BYTES",
    "SEVERAL",
    "BadBatch",
    "Batch",
    "Body",
    "Headers",
    "NewRecord",
    "Record",
    "decode",
    "encode_body",
    "frame",
    "listed",
    "parse",
    "sequences",
]

Headers = tuple[tuple[str, bytes | None], ...]
NewRecord = tuple[bytes | None, bytes | None, int, Headers]
"""key, value, timestamp, headers."""
Record = tuple[bytes | None, bytes | None, int, Headers, int]
"""key, value, timestamp, headers, offset."""

FORMAT_VERSION = 2
# A batch of several producers has a version of its own: an older Headwater would not tell their repeats.
_OF_ONE, _OF_SEVERAL = 1, 2
# What stands in place of the sequence number where several producers have one each.
SEVERAL = -2
CODECS = ("none", "lz4", "zstd")

_MAGIC = b"HWLB"
_FIELDS = struct.Struct("<4sBBHIIqqqqIIqq")
_HEADER = struct.Struct("<4sBBHIIqqqqIIqqI")
_CRC = struct.Struct("<I")
HEADER_BYTES = _HEADER.size
# Below this a body does not get smaller by more than compressing and decompressing it costs.
_COMPRESS_FROM = 512
_MAX_BODY = 1 << 30

_Columns = tuple[
    Sequence[bytes | None], Sequence[bytes | None], Sequence[int], Sequence[Headers] | None, Sequence[int] | None
]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(
    tuple[list[bytes | None], list[bytes | None], list[int], list[Headers] | None, list[int] | None]
).decode
_BYTES = frozenset({bytes, type(None)})
_INT = frozenset({int})
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1


class BadBatch(Exception):
    """The bytes at a place are no batch, and no interrupted write explains them."""


class Body(msgspec.Struct, frozen=True, gc=False):
    """Packed records that have no offsets yet, unless they came with gaps."""

    codec: int
    raw_size: int
    data: bytes
    records: int
    min_timestamp: int
    max_timestamp: int
    keyless: bool


class Batch(msgspec.Struct, frozen=True, gc=False):
    """A whole batch whose checksums are right; `size` is what it takes in the file."""

    size: int
    codec: int
    raw_size: int
    base: int
    last: int
    min_timestamp: int
    max_timestamp: int
    records: int
    sequence: int
    horizon: int
    producer: str
    body: memoryview


def _faulty(records: Iterable[object]) -> StreamsError:
    """Say which record cannot be appended, and why."""
    for number, record in enumerate(records):
        if not isinstance(record, tuple) or len(record) != 4:
            return StreamsError(f"Record {number} is not (key, value, timestamp, headers): {record!r}.")
        key, value, timestamp, headers = record
        if type(key) not in _BYTES or type(value) not in _BYTES:
            return StreamsError(f"Record {number} has a key or a value that is not bytes or None: {record!r}.")
        if type(timestamp) is not int or not _LOWEST <= timestamp <= _HIGHEST:
            return StreamsError(f"Record {number} has a timestamp that is no 64-bit int: {timestamp!r}.")
        if not _proper(headers):
            return StreamsError(f"Record {number} has headers that are not (str, bytes or None) pairs: {headers!r}.")
    return StreamsError("The records cannot be packed.")


def _proper(headers: Headers) -> bool:
    try:
        return all(type(name) is str and type(value) in _BYTES for name, value in headers)
    except (TypeError, ValueError):
        return False


def encode_body(records: Sequence[NewRecord], codec: str, offsets: Sequence[int] | None = None) -> Body:
    """Return the records packed and compressed; offsets are given only if they have gaps."""
    if not records:
        raise StreamsError("There is nothing to append: a batch has at least one record.")
    pack = _pack_one if len(records) == 1 else _pack_many
    columns, lowest, highest, keyless = pack(records, offsets)
    data = _encode(columns)
    raw_size, number = len(data), 0
    if raw_size > _MAX_BODY:
        raise StreamsError(f"A batch of {raw_size:,} bytes is too large: append fewer records at a time.")
    if raw_size >= _COMPRESS_FROM and codec != "none":
        packed = _compress(data, codec)
        if len(packed) < raw_size:
            data, number = packed, CODECS.index(codec)
    return Body(number, raw_size, data, len(records), lowest, highest, keyless)


def _pack_one(records: Sequence[NewRecord], offsets: Sequence[int] | None) -> tuple[_Columns, int, int, bool]:
    """As _pack_many, in a third of the time: batches of one are common, and all their cost is that of a batch."""
    record = records[0]
    if type(record) is not tuple or len(record) != 4:
        raise _faulty(records)
    key, value, timestamp, headers = record
    if (
        (type(key) is not bytes and key is not None)
        or (type(value) is not bytes and value is not None)
        or type(timestamp) is not int
        or not _LOWEST <= timestamp <= _HIGHEST
        or (headers and not _proper(headers))
    ):
        raise _faulty(records)
    return ((key,), (value,), (timestamp,), (headers,) if headers else None, offsets), timestamp, timestamp, key is None


def _pack_many(records: Sequence[NewRecord], offsets: Sequence[int] | None) -> tuple[_Columns, int, int, bool]:
    """Return the columns, the lowest and the highest timestamp and whether a record has no key."""
    try:
        keys, values, timestamps, headers = zip(*records, strict=True)
    except (TypeError, ValueError):
        raise _faulty(records) from None
    if not (
        _BYTES.issuperset(map(type, keys))
        and _BYTES.issuperset(map(type, values))
        and _INT.issuperset(map(type, timestamps))
    ):
        raise _faulty(records)
    lowest, highest, some_headers = min(timestamps), max(timestamps), any(headers)
    if lowest < _LOWEST or highest > _HIGHEST or (some_headers and not all(map(_proper, headers))):
        raise _faulty(records)
    return (keys, values, timestamps, headers if some_headers else None, offsets), lowest, highest, None in keys


def _compress(data: bytes, codec: str) -> bytes:
    packed: bytes
    if codec == "lz4":
        packed = lz4.block.compress(data, store_size=False)
    else:
        packed = zstandard.ZstdCompressor(level=1).compress(data)
    return packed


def frame(body: Body, base: int, last: int, producer: str = "", sequence: int = -1, horizon: int = 0) -> bytes:
    """Return the batch's bytes: header, producer's name, body."""
    data, name = body.data, producer.encode()
    head = _FIELDS.pack(
        _MAGIC,
        _OF_SEVERAL if sequence == SEVERAL else _OF_ONE,
        body.codec,
        len(name),
        len(data),
        body.raw_size,
        base,
        last,
        body.min_timestamp,
        body.max_timestamp,
        body.records,
        crc32(data, crc32(name)) if name else crc32(data),
        sequence,
        horizon,
    )
    return b"".join((head, _CRC.pack(crc32(head)), name, data))


def listed(producers: Mapping[str, int]) -> str:
    """The sequence numbers of several producers, in place of a producer's name.

    >>> listed({"app/0_0": 7, "app/0_1": 12})
    '7 app/0_0\\n12 app/0_1'
    >>> sequences(listed({"app/0_0": 7, "app/0_1": 12}), SEVERAL)
    {'app/0_0': 7, 'app/0_1': 12}
    """
    return "\n".join(f"{sequence} {name}" for name, sequence in producers.items())


def sequences(producer: str, sequence: int) -> dict[str, int]:
    """The sequence number of each producer that a batch has records of."""
    if sequence != SEVERAL:
        return {producer: sequence} if producer else {}
    try:
        return {name: int(number) for number, name in (line.split(" ", 1) for line in producer.split("\n"))}
    except ValueError as error:
        raise BadBatch(f"the list of producers cannot be read: {error}") from error


def parse(data: memoryview, at: int) -> Batch | int:
    """Return the whole batch at the place, or how many bytes from it on are needed, if there are fewer."""
    there = len(data) - at
    if there < HEADER_BYTES:
        return HEADER_BYTES
    (magic, version, codec, name_length, stored, raw, base, last, lowest, highest, count, body_crc, sequence, horizon,
     head_crc) = _HEADER.unpack_from(data, at)  # fmt: skip
    if magic != _MAGIC:
        raise BadBatch("no batch begins here")
    if crc32(data[at : at + _FIELDS.size]) != head_crc:
        raise BadBatch("the header's checksum is wrong")
    if version not in (_OF_ONE, _OF_SEVERAL):
        raise NewerFormat(
            f"The log has a batch of format version {version}; this Headwater reads up to {FORMAT_VERSION}. "
            "Install the version that wrote it, or a newer one."
        )
    size = HEADER_BYTES + name_length + stored
    if size > there:
        return int(size)
    rest = data[at + HEADER_BYTES : at + size]
    if crc32(rest) != body_crc:
        raise BadBatch("the body's checksum is wrong")
    if name_length:
        name, body = str(rest[:name_length], "utf-8"), rest[name_length:]
    else:
        name, body = "", rest
    return Batch(size, codec, raw, base, last, lowest, highest, count, sequence, horizon, name, body)


def decode(batch: Batch) -> list[Record]:
    """Return the batch's records, each with its offset."""
    try:
        if batch.codec == 0:
            raw: bytes | memoryview = batch.body
        elif batch.codec == 1:
            raw = lz4.block.decompress(batch.body, uncompressed_size=batch.raw_size)
        elif batch.codec == 2:
            raw = zstandard.ZstdDecompressor().decompress(batch.body, max_output_size=batch.raw_size)
        else:
            raise BadBatch(f"there is no codec {batch.codec}")
        keys, values, timestamps, headers, offsets = _decode(raw)
    except (lz4.block.LZ4BlockError, zstandard.ZstdError, msgspec.MsgspecError) as error:
        raise BadBatch(f"the body cannot be read: {error}") from error
    records = list(
        zip(
            keys,
            values,
            timestamps,
            repeat(()) if headers is None else headers,
            range(batch.base, batch.last + 1) if offsets is None else offsets,
            strict=False,
        )
    )
    if len(records) != batch.records:
        raise BadBatch(f"the body has {len(records)} records, the header promises {batch.records}")
    return records
