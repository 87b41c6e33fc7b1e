"""Timestamp extractors: where a source record's event time comes from, and what becomes of a negative one. It owns
Kafka Streams' three stock rules; dropping and counting a record whose answer is still negative is the task's."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import msgspec

from headwater.dsl.callables import check, place
from headwater.dsl.options import choice_fault
from headwater.dsl.records import Headers
from headwater.errors import StreamsError, TopologyError

__all__ = ["Extractor", "OnInvalid", "SourceRecord"]


class SourceRecord(msgspec.Struct, frozen=True):
    """A record as it was read, with its place: what a timestamp extractor gets.

    >>> from headwater import SourceRecord
    >>> SourceRecord("k", {"at": 7}, 5, (), "orders", 0, 12).value["at"]
    7
    """

    key: Any
    value: Any
    timestamp: int
    headers: Headers
    topic: str
    partition: int
    offset: int


Extractor: TypeAlias = Callable[[SourceRecord, int], int]


@dataclass(frozen=True, slots=True)
class OnInvalid:
    """A timestamp extractor: the answer of `extract`, or the record's own timestamp, with a rule for negative ones."""

    rule: Literal["fail", "skip", "partition-time"]
    extract: Extractor | None = None

    def __post_init__(self) -> None:
        fault = choice_fault("OnInvalid: rule", self.rule, ("fail", "skip", "partition-time"))
        if fault:
            raise TopologyError([fault])
        if self.extract is not None:
            try:
                check(self.extract, 2)
            except ValueError as fault:
                raise TopologyError([f"OnInvalid.{self.rule.replace('-', '_')}: {fault}"]) from None

    @staticmethod
    def fail(extract: Extractor | None = None) -> "OnInvalid":
        """Raises a StreamsError at the first negative timestamp; without `extract`, what every source does by default.

        >>> from headwater import OnInvalid, StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> builder.stream("in", timestamp=OnInvalid.fail(lambda record, partition_time: record.value)).to("out")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("in").send("k", 5, at=-1)
        ...     driver.output("out").read_all()
        [Record(key='k', value=5, timestamp=5, headers=())]
        """
        return OnInvalid("fail", extract)

    @staticmethod
    def skip(extract: Extractor | None = None) -> "OnInvalid":
        """Lets a negative timestamp through, so that the record is dropped and counted.

        >>> from headwater import OnInvalid, StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> builder.stream("in", timestamp=OnInvalid.skip()).to("out")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("in").send("k", 1, at=-1)
        ...     driver.output("out").read_all(), driver.metrics()["dropped-records-total"]
        ([], 1)
        """
        return OnInvalid("skip", extract)

    @staticmethod
    def partition_time(extract: Extractor | None = None) -> "OnInvalid":
        """Takes the partition's time, the highest timestamp it has had so far, instead of a negative one.

        Before the first valid record that time is unknown (-1), and an invalid record raises a StreamsError.

        >>> from headwater import OnInvalid, StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> builder.stream("in", timestamp=OnInvalid.partition_time()).to("out")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.send_all([("in", "k", 1, 100), ("in", "k", 2, -1)])
        ...     [record.timestamp for record in driver.output("out").read_all()]
        [100, 100]
        """
        return OnInvalid("partition-time", extract)

    def __call__(self, record: SourceRecord, partition_time: int) -> int:
        """The record's event time in epoch milliseconds; negative only under `skip`."""
        timestamp = record.timestamp if self.extract is None else self.extract(record, partition_time)
        try:
            if timestamp >= 0 or self.rule == "skip":
                return timestamp
        except TypeError:
            raise StreamsError(
                f"{_at(record)}: the timestamp extractor {place(self.extract)} must give epoch milliseconds, "
                f"but gave {timestamp!r}"
            ) from None
        if self.rule == "fail":
            raise StreamsError(
                f"{_at(record)} has the invalid (negative) timestamp {timestamp}: "
                "use OnInvalid.skip or OnInvalid.partition_time, or extract another one with timestamp="
            )
        if partition_time < 0:
            raise StreamsError(
                f"{_at(record)} has the invalid (negative) timestamp {timestamp} and comes before any valid one, so "
                "the partition's time is unknown: use OnInvalid.skip, or extract another timestamp with timestamp="
            )
        return partition_time


def _at(record: SourceRecord) -> str:
    return f"{record.topic}-{record.partition}@{record.offset}"
