"""The embedded log as a Spark data source, `headwater-log`, streaming and batch. It owns which records a batch has:
where a topic begins, how far a batch goes, and that the same offsets give the same records again. What becomes of them
is the query's.

An offset is `{"orders": {"0": 17, "1": 4}}`: the next offset of each partition. A topic that is missing in a batch's
start is one the query has not seen: in that batch none of its records are read, its end only notes where they begin.
So topics may appear later, and `latest` means the same when the batch is replayed.

| option | content |
|---|---|
| directory | the log's, an absolute path that every executor has |
| topics | a JSON list of names |
| patterns | a JSON list of [regular expression, its flags, the most partitions a topic it matches may have] |
| startingOffsets | a word or an object from topics and regular expressions to words or `{"0": 17, …}`; the words are \
`earliest`, which is the default, `latest`, and `none`, which refuses to choose |
| maxRecordsPerBatch | the most records a batch reads |
"""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from headwater.errors import StreamsError
from headwater.state.log import OutOfRange, Partition, Record
from headwater.streams.spark.log_handles import log_handles
from headwater.streams.spark.rows import SOURCE_SCHEMA

__all__ = ["LogSource", "log_options"]

Offset: TypeAlias = dict[str, dict[str, int]]
Start: TypeAlias = Literal["earliest", "latest", "none"] | dict[str, int]

# In one Arrow batch.
_ROWS = 10_000

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_ARROW = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", _HEADERS),
    ]
)


def log_options(
    directory: str | Path,
    topics: Sequence[str] = (),
    patterns: Mapping[re.Pattern[str], int] | None = None,
    starting: Mapping[str, Start] | None = None,
    max_records: int | None = None,
) -> dict[str, str]:
    """Return the options of a `headwater-log` source that reads these topics.

    `patterns` says of each pattern how many partitions a topic it matches may have, `starting` where a topic, or those
    of a pattern, begin; that is at the earliest record unless it says so.

    >>> from headwater.streams.spark.log_source import log_options
    >>> log_options("/data/log", ["orders"], starting={"orders": "latest"})["startingOffsets"]
    '{"orders": "latest"}'
    """
    options = {
        "directory": str(Path(directory).absolute()),
        "topics": json.dumps(list(topics)),
        "patterns": json.dumps([(p.pattern, p.flags, widest) for p, widest in (patterns or {}).items()]),
        "startingOffsets": json.dumps(dict(starting or {})),
    }
    if max_records is not None:
        options["maxRecordsPerBatch"] = str(max_records)
    return options


class LogSource(DataSource):
    """Records of an embedded log's topics, one Spark partition for each of theirs, in the order of their offsets."""

    @classmethod
    def name(cls) -> str:
        return "headwater-log"

    def schema(self) -> str:
        return SOURCE_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return _BatchReader(_Topics(_Settings.of(self.options)))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _StreamReader(_Topics(_Settings.of(self.options)))


class _Settings(msgspec.Struct, frozen=True):
    """The options, read and checked."""

    directory: str
    topics: tuple[str, ...]
    patterns: tuple[tuple[str, int, int], ...]
    starting: Literal["earliest", "latest", "none"] | dict[str, Start]
    limit: int | None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> _Settings:
        directory = options.get("directory", "")
        if not Path(directory).is_absolute():
            raise StreamsError(
                f"The source headwater-log needs an absolute directory and has {directory!r}: the executors work in "
                "other directories than the driver."
            )
        starting = options.get("startingOffsets", "earliest")
        raw = {
            "directory": directory,
            "topics": _parsed(options, "topics", "[]"),
            "patterns": _parsed(options, "patterns", "[]"),
            "starting": _parsed(options, "startingOffsets", "{}") if starting.lstrip().startswith("{") else starting,
            "limit": _parsed(options, "maxRecordsPerBatch", "null"),
        }
        try:
            settings = msgspec.convert(raw, cls)
        except msgspec.ValidationError as error:
            raise StreamsError(f"The source headwater-log cannot be read with these options: {error}.") from error
        if not settings.topics and not settings.patterns:
            raise StreamsError("The source headwater-log has nothing to read: give it topics or patterns.")
        if settings.limit is not None and settings.limit < 1:
            raise StreamsError(f"maxRecordsPerBatch={settings.limit} would never read anything: at least 1.")
        return settings


def _parsed(options: Mapping[str, str], name: str, default: str) -> Any:
    try:
        return json.loads(options.get(name, default))
    except ValueError as error:
        raise StreamsError(f"The option {name} of the source headwater-log is no JSON: {error}.") from error


class _Topics:
    """The topics that are read, as they are in the log now."""

    def __init__(self, settings: _Settings) -> None:
        self.settings = settings
        self._patterns = [(re.compile(text, flags), widest) for text, flags, widest in settings.patterns]
        self._ids: dict[str, str] = {}

    def partition(self, topic: str, number: int) -> Partition:
        return log_handles(self.settings.directory).partition(topic, number)

    def counts(self) -> dict[str, int]:
        """Return the topics with their numbers of partitions."""
        log = log_handles(self.settings.directory).log
        found = {name: log.topic(name) for name in self.settings.topics}
        if self._patterns:
            for info in log.topics():
                for pattern, widest in self._patterns:
                    if info.name not in found and pattern.fullmatch(info.name):
                        if info.partitions > widest:
                            raise StreamsError(
                                f"The topic {info.name!r}, which matches {pattern.pattern!r}, has {info.partitions} "
                                f"partitions, and the query has shards for {widest}: start it with a new checkpoint."
                            )
                        found[info.name] = info
        for name, info in found.items():
            if self._ids.setdefault(name, info.id) != info.id:
                raise StreamsError(
                    f"The topic {name!r} has been deleted and made anew while the query read it: start the query with "
                    "a new checkpoint."
                )
        return {name: info.partitions for name, info in found.items()}

    def policy(self, topic: str) -> Start:
        """Return where the topic begins: what is said of itself, else of the first pattern that matches it."""
        starting = self.settings.starting
        if isinstance(starting, str):
            return starting
        names = (topic, *(p.pattern for p, _ in self._patterns if p.fullmatch(topic)))
        return next((starting[name] for name in names if name in starting), "earliest")

    def begin(self, topic: str, count: int) -> dict[str, int]:
        """Return where the topic's records begin for a query that has not seen it."""
        policy = self.policy(topic)
        if isinstance(policy, dict):
            if sorted(policy) != sorted(map(str, range(count))):
                raise StreamsError(
                    f"startingOffsets of {topic!r} name the partitions {', '.join(sorted(policy)) or 'none'}; "
                    f"it has {count}: give an offset for each of 0 to {count - 1}."
                )
            return policy
        if policy == "none":
            raise StreamsError(
                f"{topic}: the checkpoint has no offset and reset='none' forbids to choose one: give the query the "
                "checkpoint it had, or another reset="
            )
        if policy == "latest":
            return self.ends(topic, count)
        return {str(number): self.partition(topic, number).start for number in range(count)}

    def ends(self, topic: str, count: int) -> dict[str, int]:
        """Return the ends up to which the records are on the disk.

        Spark notes them in its checkpoint, which must not know of records that a power loss takes away.
        """
        return {str(number): self.partition(topic, number).sync() for number in range(count)}

    def check(self, topic: str, count: int, start: Mapping[str, int], end: Mapping[str, int]) -> None:
        """Raise unless the query can go on where it is."""
        if len(start) != count:
            raise StreamsError(
                f"The topic {topic!r} has {count} partitions now and had {len(start)} when the query's checkpoint was "
                "made, by which records and state are spread: start the query with a new checkpoint, or write to a "
                f"new topic with {count} partitions and keep this one as it was."
            )
        for number in range(count):
            at = start[str(number)]
            there = self.partition(topic, number).start
            if at < there:
                raise _gone(topic, number, at, there)
            if at > end[str(number)]:
                raise StreamsError(
                    f"{topic}-{number}@{at}: the log ends at {end[str(number)]}, before the offset in the checkpoint. "
                    "It has lost records, or was deleted and made anew: start the query with a new checkpoint."
                )


def _gone(topic: str, number: int, offset: int, start: int) -> StreamsError:
    return StreamsError(
        f"{topic}-{number}@{offset} is no longer there (the log starts at {start}): retention has deleted records that "
        "the query had not processed. Raise it (headwater topics alter), and start the query with a new checkpoint."
    )


@dataclass(frozen=True)
class _Slice(InputPartition):
    """Records of one partition, from an offset up to but not including another."""

    topic: str
    number: int
    start: int
    end: int


class _BatchReader(DataSourceReader):
    def __init__(self, topics: _Topics) -> None:
        self._topics = topics

    def partitions(self) -> Sequence[InputPartition]:
        slices = []
        for topic, count in self._topics.counts().items():
            begin, end = self._topics.begin(topic, count), self._topics.ends(topic, count)
            self._topics.check(topic, count, begin, end)
            slices += [_Slice(topic, int(n), begin[n], end[n]) for n in end if end[n] > begin[n]]
        return slices

    def read(self, partition: InputPartition) -> Iterator[Any]:
        # Spark makes up a partition where there is none.
        return _read(self._topics, partition) if isinstance(partition, _Slice) else iter(())


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, topics: _Topics) -> None:
        self._topics = topics
        self._target: Offset | None = None

    def initialOffset(self) -> Offset:
        """Return where the topics begin whose beginning is the same when the first batch is replayed."""
        fixed = {t: n for t, n in self._topics.counts().items() if self._topics.policy(t) not in ("latest", "none")}
        return {topic: self._topics.begin(topic, count) for topic, count in fixed.items()}

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._topics.settings.limit
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ends(self._topics.counts())

    def _ends(self, counts: Mapping[str, int]) -> Offset:
        return {topic: self._topics.ends(topic, count) for topic, count in counts.items()}

    def reportLatestOffset(self) -> Offset:
        return {
            topic: {str(number): self._topics.partition(topic, number).end for number in range(count)}
            for topic, count in self._topics.counts().items()
        }

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        counts = self._topics.counts()
        ends = self._ends(counts) if self._target is None else self._target
        offset = dict(start)
        behind: list[tuple[str, str, int]] = []
        for topic, end in ends.items():
            known = start.get(topic)
            if known is None:
                offset[topic] = end if self._topics.policy(topic) == "latest" else self._topics.begin(topic, len(end))
                continue
            if topic in counts:
                self._topics.check(topic, counts[topic], known, end)
            behind += [(topic, number, end[number] - at) for number, at in known.items()]
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        for (topic, number, _), share in zip(behind, _shares([lag for *_, lag in behind], most), strict=True):
            offset[topic] = {**offset[topic], number: start[topic][number] + share}
        return offset

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        return [
            _Slice(topic, int(number), start[topic][number], to)
            for topic, numbers in end.items()
            if topic in start
            for number, to in numbers.items()
            if to > start[topic][number]
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, _Slice)
        return _read(self._topics, partition)


def _shares(lags: Sequence[int], most: int | None) -> Sequence[int]:
    """How many records each partition may read: in proportion to what it is behind, so that their times stay close."""
    if most is None or sum(lags) <= most:
        return lags
    # One for each, or one that is little behind would wait for all the others; the fewest, if there are not enough.
    taking = sorted((i for i, lag in enumerate(lags) if lag), key=lambda i: -lags[i])[:most]
    rest, behind = most - len(taking), max(1, sum(lags[i] - 1 for i in taking))
    shares = [0] * len(lags)
    for i in taking:
        shares[i] = 1 + (lags[i] - 1) * rest // behind
    return shares


def _read(topics: _Topics, wanted: _Slice) -> Iterator[Any]:
    at = wanted.start
    while at < wanted.end:
        with _without_gc():
            records = _some(topics.partition(wanted.topic, wanted.number), at, wanted.end)
            at = records[-1][4] + 1
            if at > wanted.end:
                # Compaction has left a gap, and what follows it belongs to a later batch.
                records = [record for record in records if record[4] < wanted.end]
            batch = _arrow(wanted.topic, wanted.number, records) if records else None
        if batch is not None:
            yield batch


def _some(partition: Partition, at: int, end: int) -> list[Record]:
    """Return at least one record from the offset on, or raise."""
    try:
        records = partition.read(at, min(_ROWS, end - at))
    except OutOfRange as gone:
        raise _gone(partition.topic, partition.number, at, gone.start) from gone
    if not records:
        raise StreamsError(
            f"{partition}@{at} is no longer there, though it was: the log has lost its last records. Restore its files "
            "from a copy, or start the query with a new checkpoint."
        )
    return records


@contextmanager
def _without_gc() -> Iterator[None]:
    """Let no garbage be collected: looking through thousands of new tuples took more time than reading them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _arrow(topic: str, number: int, records: Sequence[Record]) -> Any:
    keys, values, timestamps, headers, offsets = zip(*records, strict=True)
    count = len(records)
    if any(headers):
        listed = pa.array([[{"key": k, "value": v} for k, v in each] if each else None for each in headers], _HEADERS)
    else:
        listed = pa.nulls(count, _HEADERS)
    arrays = [
        pa.repeat(pa.scalar(topic, pa.string()), count),
        pa.repeat(pa.scalar(number, pa.int32()), count),
        pa.array(offsets, pa.int64()),
        pa.array(timestamps, pa.int64()),
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        listed,
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)
