"""The rows that travel between the steps of a Spark query. It owns their columns, the packing of many records into one
row, and which key sends a shard's rows to which Spark partition; what a row is for, its sender and receiver know.

| column | content |
|---|---|
| to | the stage the row is for; `OUTPUT`: records for a topic; `REPORT`: a note for the driver |
| shard | the shard of that stage |
| topic | the topic of the records; none in a tick and a report |
| by, by_shard | the stage and shard that sent it; `SOURCE` and the partition for what was read, `SOURCE` for ticks |
| sequence | the order among its sender's rows: the first offset of what was read, the time of a tick |
| data | packed records; of a tick nothing, or `DRAIN`; of a report MessagePack |

Many records in a row, since Spark then shuffles, sorts and converts few rows. They are an Arrow stream of one batch,
which is a copy of memory for what comes from a source.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]

from headwater.dsl.records import Headers
from headwater.streams.queues import RawRecord

__all__ = [
    "COLUMNS",
    "DRAIN",
    "OUTPUT",
    "PACKED",
    "REGISTER",
    "REPORT",
    "SCHEMA",
    "SOURCE",
    "SOURCE_SCHEMA",
    "Row",
    "arrow_schema",
    "pack",
    "pack_batch",
    "slots",
    "unpack",
    "unpack_batch",
    "unpacked",
]

SCHEMA = "to int, shard int, topic string, by int, by_shard int, sequence long, data binary"
COLUMNS = ["to", "shard", "topic", "by", "by_shard", "sequence", "data"]
# What every source is brought to before anything else.
SOURCE_SCHEMA = (
    "topic string, partition int, offset long, timestamp long, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>"
)
OUTPUT, REPORT = -1, -2
SOURCE = -1
# In place of a shard: where the first stage keeps what the query is, whatever shards it has.
REGISTER = -1
DRAIN = b"drain"

Row: TypeAlias = tuple[int, int, str | None, int, int, int, bytes | None]
# A record as it is packed: key, value, timestamp, headers, and its offset or the partition chosen for it.
Packable: TypeAlias = tuple[bytes | None, bytes | None, int, Headers, int | None]

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
PACKED = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.int64()),
        ("headers", _HEADERS),
        ("number", pa.int64()),
    ]
)


def arrow_schema() -> Any:
    """The rows' columns in Arrow's terms."""
    return pa.schema(
        [
            ("to", pa.int32()),
            ("shard", pa.int32()),
            ("topic", pa.string()),
            ("by", pa.int32()),
            ("by_shard", pa.int32()),
            ("sequence", pa.int64()),
            ("data", pa.binary()),
        ]
    )


def pack(records: Sequence[Packable]) -> bytes:
    """Records as the data of a row.

    >>> from headwater.streams.spark.rows import pack, unpack
    >>> unpack(pack([(b"k", None, 5, (("trace", b"7"),), 0)]))
    [(b'k', None, 5, (('trace', b'7'),), 0)]
    """
    keys, values, timestamps, headers, numbers = zip(*records, strict=True)
    listed = (
        pa.array([[{"key": k, "value": v} for k, v in pairs] if pairs else None for pairs in headers], _HEADERS)
        if any(headers)
        else pa.nulls(len(records), _HEADERS)
    )
    arrays = [
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        pa.array(timestamps, pa.int64()),
        listed,
        pa.array(numbers, pa.int64()),
    ]
    return pack_batch(pa.RecordBatch.from_arrays(arrays, schema=PACKED))


def pack_batch(batch: Any) -> bytes:
    """An Arrow batch with the columns of `PACKED` as the data of a row."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, PACKED) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def unpack_batch(data: bytes) -> Any:
    """The Arrow batch in a row's data."""
    return pa.ipc.open_stream(data).read_next_batch()


def unpack(data: bytes) -> list[RawRecord]:
    """The records in a row's data."""
    return unpacked(unpack_batch(data))


def unpacked(batch: Any) -> list[RawRecord]:
    """The records in an Arrow batch with the columns of `PACKED`."""
    keys, values, timestamps, headers, numbers = (batch.column(i) for i in range(5))
    count = len(keys)
    pairs: Sequence[Headers]
    if not len(headers.flatten()):
        pairs = [()] * count
    else:
        pairs = [
            () if not listed else tuple((pair["key"], pair["value"]) for pair in listed)
            for listed in headers.to_pylist()
        ]
    return list(
        zip(keys.to_pylist(), values.to_pylist(), timestamps.to_pylist(), pairs, numbers.to_pylist(), strict=True)
    )


def slots(shards: int, partitions: int) -> list[int]:
    """For each shard the integer key under which Spark's hash spreads the shards evenly over its partitions.

    >>> from headwater.streams.spark.rows import slots
    >>> slots(4, 2)
    [2, 0, 4, 1]
    """
    found: list[int] = []
    used: set[int] = set()
    for shard in range(shards):
        candidate = 0
        while candidate in used or _spark_hash(candidate) % partitions != shard % partitions:
            candidate += 1
        used.add(candidate)
        found.append(candidate)
    return found


def _spark_hash(number: int) -> int:
    """Spark's hash of a 32-bit integer column: MurmurHash3, x86, 32 bits, seed 42, as a signed number."""
    mask = 0xFFFFFFFF
    k = number * 0xCC9E2D51 & mask
    k = (k << 15 | k >> 17) & mask
    k = k * 0x1B873593 & mask
    h = 42 ^ k
    h = (h << 13 | h >> 19) & mask
    h = (h * 5 + 0xE6546B64) & mask
    h ^= 4
    h ^= h >> 16
    h = h * 0x85EBCA6B & mask
    h ^= h >> 13
    h = h * 0xC2B2AE35 & mask
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h
