"""The two hashes of Kafka that decide what Headwater emits: murmur2, by which a key finds its partition, and
Murmur3-128, by which a foreign-key join recognises an outdated answer. It owns the arithmetic; when a partition is
chosen otherwise (no key, a user's partitioner) is not decided here."""

from functools import cache
from struct import Struct

__all__ = ["murmur2", "murmur3_128", "partition_for"]

_M = 0x5BD1E995
_U32 = 0xFFFFFFFF


@cache
def _words(count: int) -> Struct:
    return Struct(f"<{count}I")


def _murmur2(data: bytes) -> int:
    length = len(data)
    h = 0x9747B28C ^ length
    count = length >> 2
    for k in _words(count).unpack_from(data):
        k = k * _M & _U32
        h = h * _M & _U32 ^ (k ^ k >> 24) * _M & _U32
    if length & 3:
        h = (h ^ int.from_bytes(data[count << 2 :], "little")) * _M & _U32
    h = (h ^ h >> 13) * _M & _U32
    return h ^ h >> 15


def murmur2(data: bytes) -> int:
    """The signed 32-bit hash that Kafka's Java client gives a serialised key.

    >>> murmur2(b"foobar")
    -790332482
    """
    h = _murmur2(data)
    return h - (h >> 31 << 32)


def partition_for(key: bytes, partitions: int) -> int:
    """The partition that Kafka's Java client chooses for a serialised key.

    >>> [partition_for(key, 4) for key in (b"alice", b"bob", b"carol")]
    [1, 2, 2]
    """
    # toPositive drops the sign bit, it does not negate.
    return (_murmur2(key) & 0x7FFFFFFF) % partitions


_C1 = 0x87C37B91114253D5
_C2 = 0x4CF5AD432745937F
_U64 = 0xFFFFFFFFFFFFFFFF
_SEED = 104729


@cache
def _long_words(count: int) -> Struct:
    return Struct(f"<{count}Q")


def _k1(k: int) -> int:
    k = k * _C1 & _U64
    return (k << 31 | k >> 33) * _C2 & _U64


def _k2(k: int) -> int:
    k = k * _C2 & _U64
    return (k << 33 | k >> 31) * _C1 & _U64


def _fmix(h: int) -> int:
    h = (h ^ h >> 33) * 0xFF51AFD7ED558CCD & _U64
    h = (h ^ h >> 33) * 0xC4CEB9FE1A85EC53 & _U64
    return h ^ h >> 33


def murmur3_128(data: bytes) -> tuple[int, int]:
    """The two signed 64-bit halves of the Murmur3-128 hash of a value, with Kafka Streams' seed.

    >>> murmur3_128(b"foobar")
    (-1926091222759195742, 2201308245896195406)
    """
    h1 = h2 = _SEED
    length = len(data)
    blocks = length >> 4
    words = iter(_long_words(blocks * 2).unpack_from(data))
    for k1, k2 in zip(words, words, strict=True):
        h1 ^= _k1(k1)
        h1 = ((h1 << 27 | h1 >> 37) + h2) * 5 + 0x52DCE729 & _U64
        h2 ^= _k2(k2)
        h2 = ((h2 << 31 | h2 >> 33) + h1) * 5 + 0x38495AB5 & _U64
    # Missing bytes count as zero, and zero leaves h1 and h2 as they are.
    tail = int.from_bytes(data[blocks << 4 :], "little")
    h1 ^= _k1(tail & _U64) ^ length
    h2 ^= _k2(tail >> 64) ^ length
    h1 = h1 + h2 & _U64
    h2 = h2 + h1 & _U64
    h1, h2 = _fmix(h1), _fmix(h2)
    h1 = h1 + h2 & _U64
    h2 = h2 + h1 & _U64
    return h1 - (h1 >> 63 << 64), h2 - (h2 >> 63 << 64)
