"""Sinks: the end of a record's way through a task. It owns encoding, which records are too large, and the
choice of a topic and, where it is not left to the key, of a partition; the bytes leave with the commit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headwater.dsl.callables import place
from headwater.dsl.partitioner import partition_for
from headwater.dsl.records import Headers
from headwater.dsl.serde import Serde, SessionWindowed, TimeWindowed
from headwater.dsl.topology import Sink
from headwater.errors import StreamsError
from headwater.streams.compile import Site, Step, rule
from headwater.streams.context import RecordContext

__all__: list[str] = []

Chooser = Callable[[str, Any, Any], int | None]


@rule(Sink)
def write_records(sink: Sink, site: Site) -> Step:
    """Encode each record and write it to the sink's topic."""
    choose = _partition_chooser(sink, site)
    if callable(sink.topic):
        return _to_named_topics(sink, sink.topic, site, choose)
    topic = site.real_topic(sink.topic)
    if choose is not None:
        return _to_partitions(sink, topic, site, choose)
    append, unwritten = site.context.outputs.append, site.unwritten
    encode_key, encode_value = sink.key.encoder(), sink.value.encoder()
    encode = _careful_encoder(sink.key, sink.value)
    largest = site.largest(topic)

    def write(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        try:
            data = (
                topic,
                None,
                None if key is None else encode_key(key),
                None if value is None else encode_value(value),
                timestamp,
                headers,
            )
            if largest is not None:
                _check_size(topic, data[2], data[3], headers, largest)
        except Exception:
            try:
                key_bytes, value_bytes = encode(key, value)
                _check_size(topic, key_bytes, value_bytes, headers, largest)
            except Exception as error:
                unwritten(error, topic, key, value, timestamp, headers)
                return
            data = topic, None, key_bytes, value_bytes, timestamp, headers
        append(data)

    return write


def _to_partitions(sink: Sink, topic: str, site: Site, choose: Chooser) -> Step:
    append, unwritten, fault = site.context.outputs.append, site.unwritten, site.fault
    encode = _careful_encoder(sink.key, sink.value)
    largest = site.largest(topic)
    blames_parent = site.config.compat is not None

    def write(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        try:
            partition = choose(topic, key, value)
        except Exception as error:
            if blames_parent:
                raise
            fault(error, key, value, timestamp, headers)
            return
        try:
            key_bytes, value_bytes = encode(key, value)
            _check_size(topic, key_bytes, value_bytes, headers, largest)
        except Exception as error:
            unwritten(error, topic, key, value, timestamp, headers)
            return
        append((topic, partition, key_bytes, value_bytes, timestamp, headers))

    return write


def _to_named_topics(sink: Sink, name: Callable[..., str], site: Site, choose: Chooser | None) -> Step:
    append, unwritten, fault, context = site.context.outputs.append, site.unwritten, site.fault, site.context
    encode = _careful_encoder(sink.key, sink.value)
    blames_parent = site.config.compat is not None

    def write(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        try:
            topic = name(
                key, value, RecordContext(context.topic, context.partition, context.offset, timestamp, headers)
            )
            if type(topic) is not str or not topic:
                raise StreamsError(f"the function {place(name)} must name a topic, but gave {topic!r}")
            partition = None if choose is None else choose(topic, key, value)
        except Exception as error:
            if blames_parent:
                raise
            fault(error, key, value, timestamp, headers)
            return
        try:
            key_bytes, value_bytes = encode(key, value)
            _check_size(topic, key_bytes, value_bytes, headers, site.largest(topic))
        except Exception as error:
            unwritten(error, topic, key, value, timestamp, headers)
            return
        append((topic, partition, key_bytes, value_bytes, timestamp, headers))

    return write


def _check_size(topic: str, key: bytes | None, value: bytes | None, headers: Headers, largest: int | None) -> None:
    size = len(key or b"") + len(value or b"")
    if headers:
        size += sum(len(name.encode()) + len(content or b"") for name, content in headers)
    if largest is not None and size > largest:
        raise StreamsError(f"a record of {size:,} bytes is larger than the topic {topic!r} takes, {largest:,}")


def _careful_encoder(key_serde: Serde, value_serde: Serde) -> Callable[[Any, Any], tuple[bytes | None, bytes | None]]:
    """Encodes a record, with the serdes' own words for what cannot be."""
    encode_key, encode_value = key_serde.encode, value_serde.encode

    def encode(key: Any, value: Any) -> tuple[bytes | None, bytes | None]:
        return None if key is None else encode_key(key), None if value is None else encode_value(value)

    return encode


def _partition_chooser(sink: Sink, site: Site) -> Chooser | None:
    """Who names the partition: the user's partitioner, the inner key of a windowed one, or nobody: the key's bytes."""
    partitioner, partitions_of = sink.partitioner, site.partitions_of
    if partitioner is not None:

        def by_user(topic: str, key: Any, value: Any) -> int | None:
            count = partitions_of(topic)
            chosen = partitioner(topic, key, value, count)
            if chosen is not None and not (type(chosen) is int and 0 <= chosen < count):
                raise StreamsError(
                    f"the partitioner {place(partitioner)} must give a partition of {topic!r}, 0 to {count - 1}, "
                    f"or None, but gave {chosen!r}"
                )
            return chosen

        return by_user
    if isinstance(sink.key, TimeWindowed | SessionWindowed):
        encode = sink.key.inner.encode

        def by_inner_key(topic: str, key: Any, value: Any) -> int | None:
            count = partitions_of(topic)
            return None if key is None else 0 if count == 1 else partition_for(encode(key.key), count)

        return by_inner_key
    return None
