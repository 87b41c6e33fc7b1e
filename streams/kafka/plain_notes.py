"""Committing offsets with their notes as they are. confluent-kafka writes a zero byte behind every note, and Kafka
Streams takes nothing from a note with one: so the list of offsets is made here and given to the librdkafka that the
client has loaded. It owns these two calls; what notes say is offset_notes.py's, and when to commit others'.

All of it is librdkafka's public interface but one thing: that a client object begins with its handle, as it does in the
releases from 2.11 to 2.16. With any other release, or where its library is not to be found, the client writes the notes
its own way: Headwater still reads them, and a Kafka Streams application that takes over begins without their times.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

__all__ = ["commit_offsets", "send_offsets"]

_KNOWN = (2, 11), (2, 16)


class _Place(ctypes.Structure):
    """librdkafka's rd_kafka_topic_partition_t."""

    _fields_ = (
        ("topic", ctypes.c_char_p),
        ("partition", ctypes.c_int32),
        ("offset", ctypes.c_int64),
        ("metadata", ctypes.c_void_p),
        ("metadata_size", ctypes.c_size_t),
        ("opaque", ctypes.c_void_p),
        ("err", ctypes.c_int),
        ("_private", ctypes.c_void_p),
    )


_POINTER, _INT, _TEXT = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
_CALLS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "rd_kafka_topic_partition_list_new": (_POINTER, (_INT,)),
    "rd_kafka_topic_partition_list_add": (ctypes.POINTER(_Place), (_POINTER, _TEXT, ctypes.c_int32)),
    "rd_kafka_topic_partition_list_destroy": (None, (_POINTER,)),
    "rd_kafka_mem_malloc": (_POINTER, (_POINTER, ctypes.c_size_t)),
    "rd_kafka_consumer_group_metadata_read": (_POINTER, (ctypes.POINTER(_POINTER), _TEXT, ctypes.c_size_t)),
    "rd_kafka_consumer_group_metadata_destroy": (None, (_POINTER,)),
    "rd_kafka_send_offsets_to_transaction": (_POINTER, (_POINTER, _POINTER, _POINTER, _INT)),
    "rd_kafka_commit": (_INT, (_POINTER, _POINTER, _INT)),
    "rd_kafka_error_code": (_INT, (_POINTER,)),
    "rd_kafka_error_string": (_TEXT, (_POINTER,)),
    "rd_kafka_error_is_fatal": (_INT, (_POINTER,)),
    "rd_kafka_error_is_retriable": (_INT, (_POINTER,)),
    "rd_kafka_error_txn_requires_abort": (_INT, (_POINTER,)),
    "rd_kafka_error_destroy": (None, (_POINTER,)),
}


def send_offsets(producer: Producer, offsets: Sequence[TopicPartition], group: bytes, timeout: float) -> None:
    """Do what `producer.send_offsets_to_transaction` does, and raise what it raises."""
    library = _library()
    if library is None:
        producer.send_offsets_to_transaction(list(offsets), group, timeout)
        return
    with _listed(library, offsets) as (places, _), _member(library, group) as member:
        _check(
            library,
            library.rd_kafka_send_offsets_to_transaction(_handle(producer), places, member, int(timeout * 1000)),
        )


def commit_offsets(consumer: Consumer, offsets: Sequence[TopicPartition]) -> None:
    """Do what `consumer.commit` does, and wait for it; raise what it raises, or the first offset's fault."""
    library = _library()
    if library is None:
        faults = [at.error for at in consumer.commit(offsets=list(offsets), asynchronous=False) or ()]
    else:
        with _listed(library, offsets) as (places, elements):
            code = library.rd_kafka_commit(_handle(consumer), places, 0)
            codes = [code, *(element.contents.err for element in elements)]
        faults = [KafkaError(code) if code else None for code in codes]
    for fault in faults:
        if fault is not None:
            raise KafkaException(fault)


@cache
def _library() -> Any:
    """The librdkafka that the client has loaded, None where that is not known well enough."""
    release = tuple(int(number) for number in importlib.metadata.version("confluent-kafka").split(".")[:2])
    if not _KNOWN[0] <= release <= _KNOWN[1]:
        return None
    for file in importlib.metadata.files("confluent-kafka") or ():
        if file.name.startswith("librdkafka"):
            try:
                # Not loaded means not the one: a second copy must not be made.
                library = ctypes.CDLL(str(file.locate()), mode=os.RTLD_NOLOAD)
            except OSError:
                continue
            for name, (result, arguments) in _CALLS.items():
                call = getattr(library, name)
                call.restype, call.argtypes = result, arguments
            return library
    return None


def _handle(client: Any) -> int | None:
    """A client's rd_kafka_t, which is the first thing in its object."""
    return ctypes.c_void_p.from_address(id(client) + object.__basicsize__).value


@contextmanager
def _listed(library: Any, offsets: Sequence[TopicPartition]) -> Iterator[tuple[int, list[Any]]]:
    """The offsets as librdkafka's list, and its elements."""
    places = library.rd_kafka_topic_partition_list_new(len(offsets))
    try:
        elements = []
        for at in offsets:
            element = library.rd_kafka_topic_partition_list_add(places, at.topic.encode(), at.partition)
            elements.append(element)
            element.contents.offset = at.offset
            note = (at.metadata or "").encode()
            if note:
                element.contents.metadata = library.rd_kafka_mem_malloc(None, len(note))
                ctypes.memmove(element.contents.metadata, note, len(note))
                element.contents.metadata_size = len(note)
        yield places, elements
    finally:
        library.rd_kafka_topic_partition_list_destroy(places)


@contextmanager
def _member(library: Any, group: bytes) -> Iterator[Any]:
    member = ctypes.c_void_p()
    _check(library, library.rd_kafka_consumer_group_metadata_read(ctypes.byref(member), group, len(group)))
    try:
        yield member
    finally:
        library.rd_kafka_consumer_group_metadata_destroy(member)


def _check(library: Any, error: int | None) -> None:
    if error is None:
        return
    fault = KafkaError(
        library.rd_kafka_error_code(error),
        library.rd_kafka_error_string(error).decode(errors="replace"),
        bool(library.rd_kafka_error_is_fatal(error)),
        bool(library.rd_kafka_error_is_retriable(error)),
        bool(library.rd_kafka_error_txn_requires_abort(error)),
    )
    library.rd_kafka_error_destroy(error)
    raise KafkaException(fault)
