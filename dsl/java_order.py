"""The order in which Java's hash collections list strings: `describe()` and the order of cache flushes follow it."""

from __future__ import annotations

from collections.abc import Iterable


def string_hash(text: str) -> int:
    """Java's `String.hashCode`, as an unsigned 32-bit number."""
    data = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for i in range(0, len(data), 2):
        value = (31 * value + (data[i] << 8 | data[i + 1])) & 0xFFFFFFFF
    return value


def hash_order(texts: Iterable[str]) -> list[str]:
    """The strings as a Java HashSet iterates over them: by bucket, then by insertion.

    >>> hash_order(["in1", "in2"])
    ['in2', 'in1']
    """
    unique = list(dict.fromkeys(texts))
    buckets = 16
    while len(unique) > buckets * 3 // 4:
        buckets *= 2

    def bucket(text: str) -> int:
        value = string_hash(text)
        return (value ^ value >> 16) & (buckets - 1)

    return sorted(unique, key=bucket)
