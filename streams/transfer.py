"""Topics moved between embedded logs, Kafka clusters, JSON lines and Parquet files. It owns what a place to move from
or to is, that a topic arrives with its partitions, and what is lost on the way; records' own forms are others'.

Keys, values, headers, timestamps and, within each partition, the order arrive as they were. Offsets are kept in files;
a log or a cluster gives its own.
"""

from __future__ import annotations

import dataclasses
import os
import stat
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol

import msgspec

from headwater.errors import StreamsError
from headwater.state.log import UnknownTopic
from headwater.streams.admin import Admin
from headwater.streams.broker import is_kafka
from headwater.streams.consumer import Consumer, ConsumerRecord, Place
from headwater.streams.json_lines import fields_of, line_of, record_of
from headwater.streams.parquet import ParquetReader, ParquetWriter
from headwater.streams.producer import Producer

__all__ = ["Moved", "Source", "Target", "is_broker", "move", "open_source", "open_target"]

_CHUNK = 2000
_FORMS = "write a file that ends in .jsonl or .parquet, - for JSON lines, or an address such as kafka://localhost:9092"


class Source(Protocol):
    """Where records come from."""

    total: int
    """How many there are, or bytes if `in_bytes`; 0 if that is not known."""
    in_bytes: bool

    def partitions(self, topic: str) -> int | None:
        """How many partitions a topic has there, if that is known."""
        ...

    def settings(self, topic: str) -> dict[str, Any]:
        """The settings that a copy of the topic should have, as Admin.create_topic takes them."""
        ...

    def batches(self) -> Iterator[tuple[int, list[ConsumerRecord]]]:
        """Yield records, in order within each partition, and how far that is of the total."""
        ...


class Target(Protocol):
    """Where records go."""

    def write(self, records: Sequence[ConsumerRecord]) -> None:
        """Take records."""
        ...


@dataclasses.dataclass
class Moved:
    """What was moved: records of each topic, the oldest of them, and whether some have other offsets now."""

    records: dict[str, int] = dataclasses.field(default_factory=dict)
    oldest: dict[str, int] = dataclasses.field(default_factory=dict)
    renumbered: bool = False
    notes: list[str] = dataclasses.field(default_factory=list)

    def count(self, record: ConsumerRecord) -> None:
        """Add a record."""
        self.records[record.topic] = self.records.get(record.topic, 0) + 1
        self.oldest[record.topic] = min(self.oldest.get(record.topic, record.timestamp), record.timestamp)


def is_broker(place: str) -> bool:
    """Whether a place is a broker's address, and not a file.

    >>> is_broker("kafka://localhost:9092"), is_broker("orders.parquet"), is_broker("-")
    (True, False, False)
    """
    return "://" in place


def move(source: Source, target: Target, show: Callable[[int], None] = lambda done: None) -> Moved:
    """Move all there is."""
    moved = Moved()
    for done, records in source.batches():
        target.write(records)
        for record in records:
            moved.count(record)
        show(done)
    return moved


def open_source(
    place: str,
    topics: Collection[str],
    start: Literal["earliest"] | datetime = "earliest",
    kafka: Mapping[str, str] | None = None,
) -> AbstractContextManager[Source]:
    """What a place has of these topics from a time on; a file's records can be given another topic, one."""
    if is_broker(place):
        return _broker_source(place, topics, start, kafka)
    if start != "earliest":
        raise StreamsError(f"A time to start at is for a broker's topics, and {place} is a file: leave it out.")
    if len(topics) > 1:
        raise StreamsError(f"The records of {place} go to one topic, or to those they name: name one at most.")
    return _file_source(place, next(iter(topics), None))


# ---- from ----------------------------------------------------------------------------------------------------------


class _Broker:
    """Topics of a log or a cluster, up to where they ended when it was opened."""

    in_bytes = False

    def __init__(self, admin: Admin, consumer: Consumer) -> None:
        self._admin, self._consumer = admin, consumer
        self._begin = {place: consumer.position(*place) for place in consumer.assignment()}
        self._left = {place: self._begin[place] + lag for place, lag in consumer.lag().items() if lag}
        self.total = sum(end - self._begin[place] for place, end in self._left.items())

    def partitions(self, topic: str) -> int | None:
        return self._admin.partitions(topic)

    def settings(self, topic: str) -> dict[str, Any]:
        info = self._admin.describe(topic).info
        kept = None if info.retention_ms is None else timedelta(milliseconds=info.retention_ms)
        retention = kept if info.delete else msgspec.UNSET
        return {"compact": info.compact, "retention": retention, "retention_bytes": info.retention_bytes}

    def batches(self) -> Iterator[tuple[int, list[ConsumerRecord]]]:
        """Yield what there was at the beginning: what is written meanwhile would never end."""
        while self._left:
            records = self._consumer.poll(_CHUNK)
            ours = [one for one in records if one.offset < self._left.get((one.topic, one.partition), 0)]
            self._left = {place: end for place, end in self._left.items() if not self._is_read(place, end)}
            yield self.total - self._missing(), ours
            if not records:
                # The last offsets are those of transactions' ends.
                return

    def _is_read(self, place: Place, end: int) -> bool:
        return self._consumer.position(*place) >= end

    def _missing(self) -> int:
        return sum(end - self._consumer.position(*place) for place, end in self._left.items())


@contextmanager
def _broker_source(
    place: str, topics: Collection[str], start: Literal["earliest"] | datetime, kafka: Mapping[str, str] | None
) -> Iterator[Source]:
    if not topics:
        raise StreamsError(f"Name the topics of {place} to move.")
    with Consumer(place, topics, start=start, kafka=kafka) as consumer:
        yield _Broker(Admin(place, create=False, kafka=kafka), consumer)


class _Lines:
    """Records in lines of JSON."""

    in_bytes = True

    def __init__(self, name: str, stream: BinaryIO, total: int, topic: str | None) -> None:
        self._name, self._stream, self.total, self._topic = name, stream, total, topic
        self._counts: dict[str, int] = {}
        if total:
            # Nothing else says how many partitions there were; what cannot be read twice is not.
            for _, records in self.batches():
                for record in records:
                    self._counts[record.topic] = max(self._counts.get(record.topic, 0), record.partition + 1)
            stream.seek(0)

    def partitions(self, topic: str) -> int | None:
        return self._counts.get(topic) or None

    def settings(self, topic: str) -> dict[str, Any]:
        return {}

    def batches(self) -> Iterator[tuple[int, list[ConsumerRecord]]]:
        now, done, chunk = time.time_ns() // 1_000_000, 0, list[ConsumerRecord]()
        for number, line in enumerate(self._stream, 1):
            done += len(line)
            if line.strip():
                chunk.append(self._record(f"{self._name}:{number}", line, now))
            if len(chunk) >= _CHUNK:
                yield done, chunk
                chunk = []
        yield done, chunk

    def _record(self, where: str, line: bytes, now: int) -> ConsumerRecord:
        fields = fields_of(where, line)
        if self._topic is not None:
            fields["topic"] = self._topic
        elif "topic" not in fields:
            raise StreamsError(f"{where}: the record names no topic: name one (--topic NAME).")
        return record_of(fields, "", now)


class _Parquet:
    """Records in a Parquet file."""

    in_bytes = False

    def __init__(self, path: Path, topic: str | None) -> None:
        self._reader = ParquetReader(path, topic)
        self.total = self._reader.total

    def partitions(self, topic: str) -> int | None:
        return self._reader.partitions

    def settings(self, topic: str) -> dict[str, Any]:
        return {}

    def batches(self) -> Iterator[tuple[int, list[ConsumerRecord]]]:
        done = 0
        for records in self._reader:
            done += len(records)
            yield done, records


@contextmanager
def _file_source(place: str, topic: str | None) -> Iterator[Source]:
    if place == "-":
        yield _Lines("standard input", sys.stdin.buffer, 0, topic)
        return
    path = Path(place)
    if not path.is_file() and not (path.exists() and not path.is_dir()):
        raise StreamsError(f"There is no file {place}: correct the path.")
    if _is_parquet(place):
        yield _Parquet(path, topic)
        return
    with path.open("rb") as stream:
        status = os.fstat(stream.fileno())
        yield _Lines(place, stream, status.st_size if stat.S_ISREG(status.st_mode) else 0, topic)


def _is_parquet(place: str) -> bool:
    suffix = Path(place).suffix.lower()
    if suffix in (".jsonl", ".ndjson", ".json"):
        return False
    if suffix in (".parquet", ".pq"):
        return True
    raise StreamsError(f"{place}: what is in it is told by its name: {_FORMS}.")


# ---- to ------------------------------------------------------------------------------------------------------------


class _LineWriter:
    """Records as lines of JSON."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def write(self, records: Sequence[ConsumerRecord]) -> None:
        self._stream.write(b"".join(map(line_of, records)))


class BrokerTarget:
    """Topics of a log or a cluster, made if they are not there; `by_key` deals records out anew."""

    def __init__(
        self,
        place: str,
        source: Source,
        kafka: Mapping[str, str] | None,
        producer: Producer,
        partitions: int | None,
        by_key: bool,
    ) -> None:
        self._place, self._source, self._producer = place, source, producer
        self._admin = Admin(place, kafka=kafka)
        self._partitions, self._by_key = partitions, by_key
        self._next: dict[Place, int] = {}
        self._ready: set[str] = set()
        self.renumbered = False

    def write(self, records: Sequence[ConsumerRecord]) -> None:
        """Send records to the partitions they were in."""
        for record in records:
            if record.topic not in self._ready:
                self._prepare(record.topic)
            place = (record.topic, record.partition)
            stay = not self._by_key and record.partition >= 0
            self._producer.send(
                record.topic,
                key=record.key,
                value=record.value,
                timestamp=record.timestamp,
                headers=record.headers,
                partition=record.partition if stay else None,
            )
            self.renumbered = self.renumbered or not stay or self._next.get(place) != record.offset
            self._next[place] = self._next.get(place, 0) + 1

    def _prepare(self, topic: str) -> None:
        self._ready.add(topic)
        wanted = self._partitions or self._source.partitions(topic)
        try:
            there = self._admin.partitions(topic)
        except UnknownTopic:
            self._admin.create_topic(topic, wanted or 1, **self._source.settings(topic))
        else:
            if not self._by_key and wanted is not None and there < wanted:
                raise StreamsError(
                    f"{topic} has {there} partition{'' if there == 1 else 's'} in {self._place}, and {wanted} where it "
                    "comes from: give it as many (headwater topics alter), or have keys decide anew (--by-key)."
                )
        self._next |= {(topic, one.partition): one.end for one in self._admin.describe(topic).partitions}

    def old_records(self, moved: Moved) -> list[str]:
        """What is to be said of records that Kafka will delete because they are old."""
        notes = []
        for topic, oldest in moved.oldest.items() if is_kafka(self._place) else ():
            info = self._admin.describe(topic).info
            age = time.time_ns() // 1_000_000 - oldest
            if info.delete and info.retention_ms is not None and age > info.retention_ms:
                notes.append(
                    f"{topic}: some records are older than its retention, and Kafka will delete them: raise it "
                    f"(headwater topics alter {topic} --retention forever), or import them again afterwards"
                )
        return notes


@contextmanager
def open_target(
    place: str,
    source: Source,
    kafka: Mapping[str, str] | None = None,
    *,
    partitions: int | None = None,
    by_key: bool = False,
    replace: bool = False,
) -> Iterator[Target]:
    """What takes records at a place; a file is there when all of it is, and one that was there only if `replace`."""
    if is_broker(place):
        with Producer(place, kafka=kafka) as producer:
            yield BrokerTarget(place, source, kafka, producer, partitions, by_key)
    elif place == "-":
        yield _LineWriter(sys.stdout.buffer)
    else:
        path, as_parquet = Path(place), _is_parquet(place)
        if path.exists() and not replace:
            raise StreamsError(f"{place} is there already: name another file, or say --replace.")
        unfinished = path.with_name(f"{path.name}.part")
        try:
            if as_parquet:
                with ParquetWriter(unfinished) as writer:
                    yield writer
            else:
                with unfinished.open("wb") as stream:
                    yield _LineWriter(stream)
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
