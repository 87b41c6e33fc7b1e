"""A topology in the middle of a Spark job: DataFrames in, DataFrames out, streaming or batch. It owns how the columns
of a user's DataFrame become records and how results become columns again; in between is the chain every query has.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater.dsl.config import Config
from headwater.dsl.serde import Float64, Int64, Json, Serde, SessionWindowed, Str, TimeWindowed
from headwater.dsl.topology import Sink, Source, Topology
from headwater.errors import StreamsError, TopologyError
from headwater.streams.spark.chain import build_chain
from headwater.streams.spark.clock import Ticks, tick_options
from headwater.streams.spark.columns import Check, checked, encoded_long
from headwater.streams.spark.counts import Counts, report_to
from headwater.streams.spark.native import Native
from headwater.streams.spark.query import plan_natively
from headwater.streams.spark.record import Recorded
from headwater.streams.spark.rows import COLUMNS, DRAIN, OUTPUT, SCHEMA, SOURCE, unpack_batch
from headwater.streams.spark.session import configure
from headwater.streams.spark.shipping import check_executors, ship
from headwater.streams.spark.stages import Stages, needs_clock

__all__ = ["DataFrames", "to_dataframes"]

log = logging.getLogger("headwater")

_HEADERS = "array<struct<key: string, value: binary>>"
# The columns of a result behind its key, value and timestamp.
_BESIDE = {
    "headers": _HEADERS,
    "partition": "int",
    "shard": "int",
    "order": "struct<stage: int, sequence: long, position: long>",
}


class DataFrames(dict[str, DataFrame]):
    """The DataFrame of each topic that a topology writes, and what was counted while they were computed."""

    def __init__(self, counts: Counts) -> None:
        super().__init__()
        self._counts = counts

    def metrics(self) -> dict[str, Any]:
        """Records that were processed, dropped and late: in all, and under "steps" by step, as of the test driver.

        They are there once something has been computed. A DataFrame that does not stream computes all of it each time,
        and its counts are those of one time; those of a stream are the sum over its batches.

        >>> from headwater.streams.spark.counts import Counts
        >>> from headwater.streams.spark.dataframes import DataFrames
        >>> DataFrames(Counts()).metrics()
        {'records-total': 0, 'dropped-records-total': 0, 'late-records-total': 0, 'steps': {}}
        """
        return self._counts.metrics()


def to_dataframes(
    topology: Topology,
    frames: Mapping[str, DataFrame],
    config: Config | None = None,
    *,
    order_by: str | None = None,
    partitions: int | None = None,
) -> DataFrames:
    """The topics a topology writes, as DataFrames, from DataFrames for the topics it reads.

    Each DataFrame has the columns `key`, `value` and `timestamp` (a timestamp, or epoch milliseconds), and may have
    `headers`, `partition` and `offset`. Keys and values are binary as in a topic, text for `Str`, JSON text, numbers,
    structs, maps and arrays for `Json`, whole numbers for `Int64`. Records are taken in the order of `offset` in each
    partition; without that column, by timestamp, and those with equal timestamps by the number or timestamp in the
    column `order_by`. Without `partition`, the key decides on one of `partitions`, by default as many as Spark has
    cores. Where DataFrames stream, the number must be given, and a checkpoint that was made with another is refused.

    Results have `key`, `value` (text, numbers, structs of windows where the topic's serdes are such), `timestamp`,
    `headers`, `partition` if one was chosen, and `shard` and `order`: of two results in one shard (none where no step
    needed one) and one batch the one with the higher `order` is later, so that `max_by(value, order)` over a batch is
    the last value of a key in it.

    How many records were dropped, and how many of them as late, is in `metrics()` of what is returned, and late ones
    are warned about.
    """
    if not frames:
        raise StreamsError(
            "to_dataframes() needs a DataFrame for each topic that the topology reads, and was given none"
        )
    config = config or Config()
    spark = next(iter(frames.values())).sparkSession
    streaming = any(frame.isStreaming for frame in frames.values())
    if streaming and not all(frame.isStreaming for frame in frames.values()):
        raise StreamsError("to_dataframes() takes streaming DataFrames or batch ones, not both: use either")
    configure(spark)
    # The first use of it starts what state reports to, which a session that runs no query lacks.
    assert spark.streams
    count = spark.sparkContext.defaultParallelism if partitions is None else partitions
    if streaming and partitions is None:
        raise StreamsError(
            "to_dataframes() needs partitions= where DataFrames stream: state belongs to the partition its key is in, "
            "and the number must be the same whenever the query is started again. Give one, such as "
            f"partitions={count}, the number of cores here; a query that was begun without goes on with the number of "
            "cores it had then"
        )
    if count < 1:
        raise StreamsError(f"to_dataframes() spreads records over at least one partition, not partitions={partitions}")
    readers = _readers(topology, frames)
    written = _written(topology, config)
    columns = {topic: _source_columns(topic, frames[topic], readers[topic], order_by, count) for topic in readers}
    sources = reduce(DataFrame.unionByName, (_source_rows(frames[topic], *columns[topic]) for topic in readers))
    unnumbered = frozenset(topic for topic, frame in frames.items() if "offset" not in frame.columns)
    planned, natives, _ = plan_natively(spark, topology, config, dict.fromkeys(frames, count))
    counts = Counts()
    chain = None
    if any(stage.kind != "native" for stage in planned.stages):
        check_executors(spark, ship(spark, topology, config))
        chain = _chain(spark, topology, _in_order(planned), config, sources, unnumbered, streaming, counts)
    results = DataFrames(counts)
    for topic, (key, value) in written.items():
        parts = [
            _native_results(
                native,
                native.shown(topic, frames[native.topic], *columns[native.topic]),
                numbered=native.topic not in unnumbered,
            )
            for native in natives
            if topic in native.topics()
        ]
        if chain is not None and (not parts or _writes_elsewhere(planned, topic)):
            parts.append(_results(chain, topic, key, value))
        elif not parts:  # for bad or late records, of which stages in Catalyst have none
            parts.append(_nothing(sources, key, value))
        results[topic] = reduce(DataFrame.unionByName, parts)
    return results


def _chain(
    spark: SparkSession,
    topology: Topology,
    planned: Stages,
    config: Config,
    sources: DataFrame,
    unnumbered: frozenset[str],
    streaming: bool,
    counts: Counts,
) -> DataFrame:
    """The rows of all stages that run in Python."""
    shards = {stage.number: stage.shards for stage in planned.chained}
    ticks: DataFrame | None = None
    if not streaming:
        now = time.time_ns() // 1_000_000
        rows = [(stage, at, None, SOURCE, at, now, DRAIN) for stage, many in shards.items() for at in range(many)]
        ticks = spark.createDataFrame(rows, SCHEMA)
    elif needs_clock(planned, config):
        spark.dataSource.register(Ticks)
        ticks = spark.readStream.format(Ticks.name()).options(**tick_options(shards)).load().select(*COLUMNS)
    over, widest = int(spark.conf.get("spark.sql.shuffle.partitions") or 1), max(shards.values())
    if over > 2 * widest:
        log.warning(
            "to_dataframes(): each step with state runs in %d Spark tasks, of which %d have something to do: set "
            "spark.sql.shuffle.partitions to %d while the results are computed, or give partitions= a larger number",
            over, widest, widest,
        )  # fmt: skip
    recorded = None
    if streaming:
        query = Recorded.of(topology, config, planned, lambda topics: {}, over)
        recorded = msgspec.json.encode(msgspec.structs.replace(query, query=""))
    reports = report_to(spark.sparkContext, counts)
    return build_chain(planned, sources, ticks, over, unnumbered=unnumbered, reports=reports, recorded=recorded)


def _in_order(planned: Stages) -> Stages:
    """The stages with none that takes records as they are read: a DataFrame has them in any order."""
    return dataclasses.replace(
        planned,
        stages=tuple(dataclasses.replace(s, kind="task") if s.kind == "arrow" else s for s in planned.stages),
    )


def _writes_elsewhere(planned: Stages, topic: str) -> bool:
    """Whether a stage that is not native writes a topic."""
    nodes = [
        node
        for stage in planned.stages
        if stage.kind != "native" and stage.spec is not None
        for node in stage.spec.topology.nodes.values()
    ]
    return any(isinstance(node, Sink) and node.topic == topic for node in nodes)


def _readers(topology: Topology, frames: Mapping[str, DataFrame]) -> dict[str, Source]:
    faults: list[str] = []
    readers: dict[str, Source] = {}
    for source in topology.sources():
        wanted = [topic for topic in source.topics if topic not in topology.internal_topics]
        if source.pattern is not None:
            wanted = [topic for topic in frames if source.pattern.fullmatch(topic)]
        for topic in wanted:
            if topic in frames:
                readers[topic] = source
            else:
                faults.append(f"source {source.name!r} reads the topic {topic!r}: give a DataFrame for it")
    faults += [
        f"no source reads the topic {topic!r}: leave its DataFrame out" for topic in frames if topic not in readers
    ]
    if faults:
        raise TopologyError(faults)
    return readers


# ---- in ----------------------------------------------------------------------------------------------------------


def _source_columns(
    topic: str, frame: DataFrame, source: Source, order_by: str | None, partitions: int
) -> tuple[dict[str, Column], list[Check]]:
    """The columns that every source has, of a user's DataFrame, and what must hold for them."""
    missing = [name for name in ("key", "value", "timestamp") if name not in frame.columns]
    if missing:
        raise StreamsError(f"the DataFrame for {topic!r} has no column {', '.join(missing)}: it has {frame.columns}")
    kind = frame.schema["timestamp"].dataType
    if isinstance(kind, T.TimestampType):
        timestamp = F.unix_millis("timestamp")
    elif isinstance(kind, T.IntegralType):
        timestamp = F.col("timestamp").cast("long")
    else:
        raise StreamsError(
            f"the column timestamp of the DataFrame for {topic!r} is {kind.simpleString()}: make it a timestamp, or "
            "epoch milliseconds as whole numbers"
        )
    order = _ordering(topic, frame, order_by)
    checks = [
        (order.isNotNull(), F.lit(f"a record for {topic} has nothing to order it by: null")),
        (timestamp.isNotNull(), F.lit(f"a record for {topic} has no timestamp: null")),
    ]
    partition = F.lit(None).cast("int")
    if "partition" in frame.columns:
        given = F.col("partition")
        is_known = (given >= 0) & (given < partitions)
        partition = F.when(is_known, given.cast("int"))
        told = f"{topic} has {partitions} partitions (partitions=), but a record is for: "
        checks.append((is_known, F.concat(F.lit(told), F.coalesce(given.cast("string"), F.lit("null")))))
    columns = {
        "topic": F.lit(topic),
        "partition": partition,
        "offset": order,
        "timestamp": timestamp,
        "key": _bytes(topic, frame, "key", source.key),
        "value": _bytes(topic, frame, "value", source.value),
        "headers": F.col("headers").cast(_HEADERS) if "headers" in frame.columns else F.lit(None).cast(_HEADERS),
    }
    return columns, checks


def _source_rows(frame: DataFrame, columns: Mapping[str, Column], checks: Sequence[Check]) -> DataFrame:
    rows = {**columns, "timestamp": checked(columns["timestamp"], T.LongType(), checks)}
    return frame.select(*(column.alias(name) for name, column in rows.items()))


def _ordering(topic: str, frame: DataFrame, order_by: str | None) -> Column:
    """What the records of a partition are ordered by; without offsets, those with equal timestamps."""
    name = "offset" if "offset" in frame.columns else order_by
    if name is None:
        raise StreamsError(
            f"the DataFrame for {topic!r} has no column offset, so that the order of records with equal timestamps is "
            "not known: add one, or name another column with order_by="
        )
    if name not in frame.columns:
        raise StreamsError(f"order_by={name!r}: the DataFrame for {topic!r} has no such column, but {frame.columns}")
    kind = frame.schema[name].dataType
    if isinstance(kind, T.IntegralType):
        return F.col(name).cast("long")
    if isinstance(kind, T.TimestampType) and name == order_by:
        return F.unix_micros(name)
    raise StreamsError(
        f"the column {name} of the DataFrame for {topic!r} is {kind.simpleString()}; records are ordered by whole "
        "numbers, or (order_by=) timestamps"
    )


def _bytes(topic: str, frame: DataFrame, name: str, serde: Serde) -> Column:
    """A column as the bytes that its serde would read from a topic."""
    kind, column = frame.schema[name].dataType, F.col(name)
    if isinstance(kind, T.BinaryType):
        return column
    if isinstance(kind, T.StringType) and isinstance(serde, Str | Json):
        return column.cast("binary")
    if isinstance(kind, T.StructType | T.MapType | T.ArrayType) and isinstance(serde, Json):
        return F.to_json(column, {"ignoreNullFields": "false"}).cast("binary")
    if isinstance(kind, T.NumericType | T.BooleanType) and isinstance(serde, Json):
        return column.cast("string").cast("binary")
    if isinstance(kind, T.IntegralType) and isinstance(serde, Int64):
        return encoded_long(column.cast("long"))
    raise StreamsError(
        f"the column {name} of the DataFrame for {topic!r} is {kind.simpleString()}, which the source's {serde!r} does "
        "not take: make it binary, as it would be in the topic"
    )


# ---- out ---------------------------------------------------------------------------------------------------------


def _written(topology: Topology, config: Config) -> dict[str, tuple[Serde | None, Serde | None]]:
    written: dict[str, tuple[Serde | None, Serde | None]] = {}
    for sink in topology.nodes.values():
        if isinstance(sink, Sink):
            if callable(sink.topic):
                raise TopologyError(
                    [
                        f"sink {sink.name!r} names its topics by a function, so that there is no telling which "
                        "DataFrames there are: give it a name, or run the topology with SparkBackend or locally"
                    ]
                )
            if sink.topic in topology.internal_topics:
                continue
            others = written.setdefault(sink.topic, (sink.key, sink.value))
            if [*map(_form, others)] != [_form(sink.key), _form(sink.value)]:
                raise TopologyError(
                    [
                        f"sink {sink.name!r} writes to {sink.topic!r} as another does, but with {sink.key!r} and "
                        f"{sink.value!r} instead of {others[0]!r} and {others[1]!r}, so that its DataFrame has no one "
                        "type: let them write to two topics, or with the same serdes"
                    ]
                )
    for topic in (config.dead_letters, config.late):
        if topic is not None:
            written.setdefault(topic, (None, None))
    return written


def _results(chain: DataFrame, topic: str, key: Serde | None, value: Serde | None) -> DataFrame:
    rows = chain.where((F.col("to") == OUTPUT) & (F.col("topic") == topic))
    kinds = {"key": _type(key), "value": _type(value), "timestamp": "long", **_BESIDE}
    schema = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
    unpacked = rows.mapInArrow(_unpacking(key, value), schema)
    return unpacked.withColumn("timestamp", F.timestamp_millis("timestamp"))


def _native_results(native: Native, rows: DataFrame, *, numbered: bool) -> DataFrame:
    sequence, position = F.col("sequence"), F.col("position").cast("long")
    if native.is_aggregate or not numbered:
        sequence, position = F.col("timestamp"), sequence
    order = F.struct(F.lit(native.stage).alias("stage"), sequence.alias("sequence"), position.alias("position"))
    return rows.select(
        F.col("key"),
        F.col("value"),
        F.timestamp_millis("timestamp").alias("timestamp"),
        F.col("headers"),
        F.lit(None).cast("int").alias("partition"),
        F.col("by_shard").alias("shard"),
        order.alias("order"),
    )


def _nothing(sources: DataFrame, key: Serde | None, value: Serde | None) -> DataFrame:
    """No results, where some could be."""
    kinds = {"key": _type(key), "value": _type(value), "timestamp": "timestamp", **_BESIDE}
    return sources.where(F.lit(False)).select(*(F.lit(None).cast(kind).alias(name) for name, kind in kinds.items()))


def _type(serde: Serde | None) -> str:
    match serde:
        case Str() | Json():
            return "string"
        case Int64():
            return "long"
        case Float64():
            return "double"
        case TimeWindowed() | SessionWindowed():
            return f"struct<key: {_type(serde.inner)}, start: long, end: long>"
        case _:
            return "binary"


def _form(serde: Serde | None) -> object:
    """What two serdes must share to be shown in one column: of windows, also how long they are."""
    return serde if isinstance(serde, TimeWindowed | SessionWindowed) else _type(serde)


def _unpacking(key: Serde | None, value: Serde | None) -> Callable[[Iterable[Any]], Iterator[Any]]:
    def unpacking(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            for row in batch.to_pylist():
                packed = unpack_batch(row["data"])
                count = len(packed)
                order = pa.StructArray.from_arrays(
                    [
                        pa.array([row["by"]] * count, pa.int32()),
                        pa.array([row["sequence"]] * count, pa.int64()),
                        pa.array(range(count), pa.int64()),
                    ],
                    ["stage", "sequence", "position"],
                )
                yield pa.RecordBatch.from_arrays(
                    [
                        _decoded(packed.column(0), key),
                        _decoded(packed.column(1), value),
                        packed.column(2),
                        packed.column(3),
                        packed.column(4).cast(pa.int32()),
                        pa.array([row["by_shard"]] * count, pa.int32()),
                        order,
                    ],
                    ["key", "value", "timestamp", "headers", "partition", "shard", "order"],
                )

    return unpacking


def _decoded(data: Any, serde: Serde | None) -> Any:
    match serde:
        case Str() | Json():
            return data.cast(pa.string())
        case Int64() | Float64():
            kind = pa.int64() if isinstance(serde, Int64) else pa.float64()
            return pa.array([None if item is None else serde.decode(item) for item in data.to_pylist()], kind)
        case TimeWindowed() | SessionWindowed():
            keys = [None if item is None else serde.decode(item) for item in data.to_pylist()]
            inner = [None if k is None else serde.inner.encode(k.key) for k in keys]
            parts = [
                _decoded(pa.array(inner, pa.binary()), serde.inner),
                pa.array([None if k is None else k.start for k in keys], pa.int64()),
                pa.array([None if k is None else k.end for k in keys], pa.int64()),
            ]
            return pa.StructArray.from_arrays(parts, ["key", "start", "end"])
        case _:
            return data
