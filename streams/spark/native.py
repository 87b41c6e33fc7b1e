"""Stages that run without Python: every step an expression, every type declared. It owns which stages those are, what
keeps the others from it, and how a stage's steps become columns; expressions are catalyst.py's, serdes columns.py's.

Besides chains of stateless steps there are aggregates with `emit="per-batch"`: Spark's own aggregation, which gives one
row per key and batch. The steps before one, its repartition topic included, are part of the same stage.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater.dsl import ops
from headwater.dsl.aggregates import Aggregator
from headwater.dsl.config import Config
from headwater.dsl.expression_code import ExpressionFunction
from headwater.dsl.serde import Json, Serde, TimeWindowed
from headwater.dsl.topology import ProcessorNode, Sink, Source, Topology
from headwater.dsl.windows import TimeWindows
from headwater.streams.spark.catalyst import NotNative, Typed, to_catalyst
from headwater.streams.spark.columns import (
    Check,
    all_of,
    checked,
    encoded_long,
    holds_type,
    read,
    show,
    show_written,
    write,
)
from headwater.streams.spark.intake import row_batches
from headwater.streams.spark.rows import OUTPUT, PACKED, SCHEMA, pack_batch
from headwater.streams.spark.stages import Stage, Stages

__all__ = ["Native", "nativize", "packed_rows"]

_AGGREGATES = (ops.Aggregate, ops.TimeWindowAggregate, ops.SlidingWindowAggregate, ops.SessionAggregate)
# The mark of a column that watermarks close groups by, with their delay: Spark's own.
_WATERMARK = "spark.watermarkDelayMs"


@dataclass(frozen=True)
class Native:
    """A stage in Catalyst; `frame(sources)` are its results."""

    stage: int
    topic: str
    topology: Topology

    @property
    def is_aggregate(self) -> bool:
        """Whether its results are those of groups."""
        return self.aggregate is not None

    @property
    def aggregate(self) -> str | None:
        """The name of its step that groups, if it has one."""
        nodes = self.topology.nodes.values()
        return next((n.name for n in nodes if isinstance(n, ProcessorNode) and isinstance(n.op, _AGGREGATES)), None)

    @property
    def observed(self) -> str:
        """The name under which Spark counts its records in the progress of a query."""
        return f"headwater-{self.stage}"

    def topics(self) -> set[str]:
        """What it writes to."""
        sinks = [node.topic for node in self.topology.nodes.values() if isinstance(node, Sink)]
        return {t for t in sinks if isinstance(t, str) and t not in self.topology.internal_topics}

    def frame(self, sources: DataFrame) -> DataFrame:
        """Results (position, by_shard, sequence, topic, key, value, timestamp, headers) as bytes, from rows in the
        sources' columns; `position` orders those of one record."""
        source = {name: F.col(name) for name in sources.columns}
        return _Columns(self.topology, sources.where(F.col("topic") == self.topic), source).results(None)

    def shown(
        self, topic: str, frame: DataFrame, columns: Mapping[str, Column], checks: Sequence[Check]
    ) -> DataFrame:
        """Those for a topic as a DataFrame shows them, from rows of its own topic, of which `columns` makes the
        sources' columns where the checks hold."""
        return _Columns(self.topology, frame, columns, checks).results(topic)


# ---- which stages ------------------------------------------------------------------------------------------------


def nativize(
    stages: Stages, topology: Topology, config: Config, probe: DataFrame
) -> tuple[Stages, list[Native], dict[str, str]]:
    """The stages with those that can be moved to Catalyst, these in that form, and of the others why they stay.

    `probe` is a DataFrame in the sources' columns, to try on.
    """
    natives: list[Native] = []
    reasons: dict[str, str] = {}
    kept: list[Stage] = []
    merged: set[int] = set()
    for stage in stages.stages:
        spec = stage.spec
        if spec is None or not _is_of_expressions(stage, stages):
            kept.append(stage)
            continue
        written = _internal_topics(spec.topology, config)
        fed = [other for other in stages.stages if written.intersection(other.topics)]
        try:
            if {config.on_deserialization_error, config.on_processing_error, config.on_production_error} != {"fail"}:
                raise NotNative("a handler for bad records is set, which is called in Python")
            if config.max_future is not None:
                raise NotNative("max_future is set, and timestamps are compared with the clock in Python")
            whole = _with_aggregate(spec.topology, fed, topology)
            if config.late is not None and _aggregates(whole):
                raise NotNative("late records are to go to a topic, and Spark only counts them")
            native = Native(stage.number, stage.topics[0], whole)
            native.frame(probe)
        except NotNative as reason:
            reasons[stage.name] = str(reason)
            kept.append(stage)
        else:
            natives.append(native)
            merged |= {other.number for other in fed}
            kept.append(replace(stage, kind="native", spec=replace(spec, topology=whole, nodes=tuple(whole.nodes))))
    return replace(stages, stages=tuple(s for s in kept if s.number not in merged)), natives, reasons


def _is_of_expressions(stage: Stage, stages: Stages) -> bool:
    """Whether Catalyst is worth a try: one topic, and only expressions or an aggregate over them per batch."""
    assert stage.spec is not None
    part = stage.spec.topology
    sources = part.sources()
    if len(sources) != 1 or sources[0].pattern is not None or sources[0].timestamp is not None:
        return False
    if stage.kind == "task" and (stage.topics[0] in stages.internal or not _is_per_batch(part)):
        return False
    found = [node.op for node in part.nodes.values() if isinstance(node, ProcessorNode)]
    return any(isinstance(f, ExpressionFunction | Aggregator) for op in found for f in _functions(op))


def _functions(op: ops.Op) -> Iterator[Any]:
    for content in vars(op).values():
        yield from content if isinstance(content, tuple) else (content,)


def _aggregates(topology: Topology) -> list[Any]:
    found = [node.op for node in topology.nodes.values() if isinstance(node, ProcessorNode)]
    return [op for op in found if isinstance(op, _AGGREGATES)]


def _is_per_batch(topology: Topology) -> bool:
    return [op.emit for op in _aggregates(topology)] == ["per-batch"]


def _internal_topics(topology: Topology, config: Config) -> set[str]:
    """The repartition topics it writes, by their names outside."""
    sinks = [node.topic for node in topology.nodes.values() if isinstance(node, Sink)]
    return {f"{config.app_id}-{topic}" for topic in sinks if topic in topology.internal_topics}


def _with_aggregate(part: Topology, fed: list[Stage], topology: Topology) -> Topology:
    """A stage's topology with that of the aggregate it feeds, if it feeds any."""
    if not fed:
        return part
    if len(fed) > 1 or fed[0].spec is None or len(fed[0].topics) > 1 or not _is_per_batch(fed[0].spec.topology):
        raise NotNative('it repartitions for steps that are not one aggregate with emit="per-batch"')
    other = fed[0].spec.topology
    whole = copy.copy(topology)
    whole.nodes = {name: node for name, node in topology.nodes.items() if name in part.nodes or name in other.nodes}
    return whole


# ---- steps as columns --------------------------------------------------------------------------------------------


# The types whose every value a column of this kind holds.
_SCALARS: dict[Any, Any] = {int: T.LongType(), str: T.StringType(), bool: T.BooleanType(), float: T.DoubleType()}


@dataclass(frozen=True)
class _Part:
    """A record's key or value: a typed column, or, where that is not known any more, bytes of a serde."""

    typed: Typed | None
    raw: Column | None = None
    serde: Serde | None = None
    shown: Column | None = None

    @property
    def is_there(self) -> Column:
        """Whether it is not null."""
        column = self.raw if self.typed is None else self.typed.column
        assert column is not None
        return column.isNotNull()

    def as_bytes(self, serde: Serde, *, is_key: bool = False) -> Column:
        """It as a serde writes it."""
        self._check(serde)
        if self.typed is not None:
            return write(self.typed, serde, is_key=is_key)
        if self.raw is None or self.serde != serde:
            raise NotNative(f"{serde!r} is to write what {self.serde!r} has written")
        return self.raw

    def as_shown(self, serde: Serde, *, is_key: bool = False) -> Column:
        """The same, as a DataFrame shows it."""
        self._check(serde)
        if self.typed is not None:
            return show(self.typed, serde, is_key=is_key)
        assert self.shown is not None
        return self.shown

    def _check(self, serde: Serde) -> None:
        """A declared type is checked when it is written, which Catalyst does not: only what was read as it may pass."""
        if not isinstance(serde, Json) or serde.type is None or self.serde == serde:
            return
        if self.typed is None or _SCALARS.get(serde.type) != self.typed.type:
            raise NotNative(f"{serde!r} checks in Python what it writes: write it by Json()")


@dataclass(frozen=True)
class _At:
    """A record on its way: what must hold for it to be there, and what it is."""

    conditions: tuple[Column, ...]
    key: _Part
    value: _Part
    is_aggregated: bool = False

    def where(self, *conditions: Column) -> _At:
        """It, if these hold too."""
        return replace(self, conditions=(*self.conditions, *conditions))


@dataclass
class _Columns:
    """One stage's steps as columns over its source's rows."""

    topology: Topology
    frame: DataFrame
    source: Mapping[str, Column]
    checks: Sequence[Check] = ()
    written: list[tuple[Sink, _At]] = field(default_factory=list)
    names: int = 0
    is_aggregated: bool = False

    def results(self, topic: str | None) -> DataFrame:
        """The rows that its sinks write: as bytes, or those of one topic as a DataFrame shows them."""
        form = _Part.as_bytes if topic is None else _Part.as_shown
        (source,) = [s for s in self.topology.sources() if s.topics[0] not in self.topology.internal_topics]
        self._below(source.name, self._read(source))
        if not self.written:
            raise NotNative("nothing is written to a topic")
        rows = [
            (
                all_of(at.conditions),
                [
                    F.col("by_shard"),
                    F.col("sequence"),
                    F.lit(sink.topic).alias("topic"),
                    form(at.key, sink.key, is_key=True).alias("key"),
                    form(at.value, sink.value).alias("value"),
                    F.col("timestamp"),
                    F.col("headers"),
                ],
            )
            for sink, at in self.written
            if topic in (None, sink.topic)
        ]
        if len(rows) == 1:
            condition, columns = rows[0]
            return self.frame.where(condition).select(F.lit(0).alias("position"), *columns)
        # All columns are in the struct: of those beside posexplode, Spark's optimizer loses some.
        made = F.array(*(F.when(condition, F.struct(*columns)) for condition, columns in rows))
        one = F.posexplode(F.filter(made, lambda one: one.isNotNull())).alias("position", "_row")
        return self.frame.select(one).select("position", "_row.*")

    def _named(self, column: Column) -> Column:
        """A column under a name, so that it is computed once however often it is used."""
        self.names += 1
        name = f"_c{self.names}"
        self.frame = self.frame.withColumn(name, column)
        return F.col(name)

    # ---- from the source ---------------------------------------------------------------------------------------

    def _read(self, source: Source) -> _At:
        """A source's records; one that cannot be read ends the query, with its place."""
        topic, partition, offset, timestamp, headers = (
            self.source[name] for name in ("topic", "partition", "offset", "timestamp", "headers")
        )
        at = F.concat(topic, F.lit("-"), F.coalesce(partition.cast("string"), F.lit("?")), F.lit("@"), offset)
        untimed = F.concat(
            at,
            F.lit(" has the invalid (negative) timestamp "),
            timestamp,
            F.lit(": use OnInvalid.skip or OnInvalid.partition_time, or extract another one with timestamp="),
        )
        checks = [*self.checks, (timestamp >= 0, untimed)]
        columns: dict[str, Column] = {}
        parts: list[_Part] = []
        for name, serde in (("key", source.key), ("value", source.value)):
            raw = self.source[name]
            try:
                typed, is_sound = read(raw, serde)
            except NotNative as reason:
                raise NotNative(f"{name}s of {source.topics[0]}: {reason}") from None
            if is_sound is not None:
                remedy = F.lit(f" as {serde!r}: correct the input, or set on_deserialization_error")
                unread = F.concat(F.lit(f"step '{source.name}' cannot read the {name} of "), at, remedy)
                checks.append((raw.isNull() | is_sound, unread))
            columns[f"_{name}"] = typed.column
            parts.append(_Part(Typed(F.col(f"_{name}"), typed.type), serde=serde))
        # Spark moves a filter before the columns it looks at, with a copy of what computes them for each time it does:
        # a value was parsed a dozen times. It does not move one past what depends on more than the row.
        columns["_sound"] = (F.spark_partition_id() >= 0) & checked(F.lit(True), T.BooleanType(), checks)
        columns |= {"by_shard": partition, "sequence": offset, "timestamp": timestamp, "headers": headers}
        # All in one step: what stands in it several times, Spark computes once.
        self.frame = self.frame.select(*(column.alias(name) for name, column in columns.items()))
        key, value = parts
        return _At((F.col("_sound"),), key, value)

    # ---- step by step ------------------------------------------------------------------------------------------

    def _below(self, name: str, at: _At) -> None:
        for child in self.topology.children(name):
            self._node(child, at)

    def _node(self, name: str, at: _At) -> None:
        if self.is_aggregated and not at.is_aggregated:
            raise NotNative(f"{name}: the records before an aggregate go elsewhere too")
        node = self.topology.nodes[name]
        if isinstance(node, Sink):
            self._sink(node, at)
        elif isinstance(node, ProcessorNode):
            self._step(node, at)

    def _sink(self, sink: Sink, at: _At) -> None:
        if callable(sink.topic) or sink.partitioner is not None:
            raise NotNative(f"{sink.name}: a function chooses the topic or the partition")
        if sink.topic not in self.topology.internal_topics:
            self.written.append((sink, at))
            return
        (source,) = [s for s in self.topology.sources() if sink.topic in s.topics]
        if at.value.typed is None or holds_type(at.value.typed.type, T.TimestampType):
            raise NotNative(f"{sink.name}: timestamps are text behind a repartition: cast() them to it, or to a long")
        # Only to see that Catalyst could write it: what its serdes take, they give back.
        at.key.as_bytes(sink.key, is_key=True)
        at.value.as_bytes(sink.value)
        self._below(source.name, at)

    def _step(self, node: ProcessorNode, at: _At) -> None:
        match node.op:
            case ops.Filter(predicate=f, negate=negate):
                holds = self._holds(node, f, at)
                self._below(node.name, at.where(~holds if negate else holds))
            case ops.MapValues(f=f) | ops.TableMapValues(f=f, store=None):
                self._below(node.name, replace(at, value=self._expression(node, f, at)))
            case ops.SelectKey(f=f):
                self._below(node.name, replace(at, key=self._expression(node, f, at)))
            case ops.Branch(predicates=predicates, children=children):
                rest = at
                for child, predicate in zip_longest(children, predicates):
                    holds = F.lit(True) if predicate is None else self._holds(node, predicate, at)
                    self._node(child, rest.where(holds))
                    rest = rest.where(~holds)
            case ops.RepartitionFilter(drop_null_keys=drops):
                self._below(node.name, at.where(at.key.is_there) if drops else at)
            case ops.PassThrough() | ops.ToStream() | ops.TablePassThrough():
                self._below(node.name, at)
            case ops.Aggregate() | ops.TimeWindowAggregate() if node.op.emit == "per-batch":
                self._below(node.name, self._aggregated(node, node.op, at))
            case _:
                raise NotNative(f"{node.name}: {type(node.op).__name__} runs in Python")

    def _typed(self, node: ProcessorNode, f: Any, at: _At) -> Typed:
        if not isinstance(f, ExpressionFunction):
            raise NotNative(f"{node.name}: a function of Python's, not an expression")
        try:
            return to_catalyst(f, at.value.typed, at.key.typed, None if at.is_aggregated else F.col("timestamp"))
        except NotNative as reason:
            raise NotNative(f"{node.name}: {reason}") from None

    def _expression(self, node: ProcessorNode, f: Any, at: _At) -> _Part:
        typed = self._typed(node, f, at)
        return _Part(Typed(self._named(typed.column), typed.type))

    def _holds(self, node: ProcessorNode, f: Any, at: _At) -> Column:
        return F.coalesce(self._typed(node, f, at).column, F.lit(False))

    # ---- aggregates --------------------------------------------------------------------------------------------

    def _aggregated(self, node: ProcessorNode, op: ops.Aggregate | ops.TimeWindowAggregate, at: _At) -> _At:
        """A batch's groups, by key and window, with their aggregates in place of the records."""
        if self.is_aggregated or self.written:
            raise NotNative(f"{node.name}: the records before an aggregate go elsewhere too")
        aggregator = op.f
        assert isinstance(aggregator, Aggregator)
        windows = op.windows if isinstance(op, ops.TimeWindowAggregate) else None
        if windows is not None and not isinstance(windows, TimeWindows):
            raise NotNative(f"{node.name}: its windows do not end")
        serde = self.topology.stores[op.store].key
        of = {name: self._aggregated_over(node, name, aggregator, at) for name in aggregator.aggregates}
        # As in Kafka Streams, a window takes a record without a value.
        kept = at.where(at.key.is_there) if windows is not None else at.where(at.key.is_there, at.value.is_there)
        frame = self.frame.where(all_of(kept.conditions)).withColumns(
            {"_group": at.key.as_bytes(serde, is_key=True), "_at": F.timestamp_millis("timestamp")}
            | {f"_of{i}": typed.column for i, typed in enumerate(of.values())}
        )
        by = ["_group"]
        if windows is not None:
            sizes = [f"{ms} milliseconds" for ms in (windows.size_ms, windows.advance_ms)]
            frame = frame.withWatermark("_at", f"{windows.grace_ms} milliseconds")
            # By its end alone, which is a number less than the window has; so marked, Spark closes groups by it too.
            end = F.col("_window.end").alias("_end", metadata={_WATERMARK: windows.grace_ms})
            frame = frame.withColumn("_window", F.window("_at", *sizes)).select("*", end)
            by.append("_end")
        results = [
            _AGGREGATE[aggregate.function](F.col(f"_of{i}"), of[name].type)
            for i, (name, aggregate) in enumerate(aggregator.aggregates.items())
        ]
        grouped = frame.groupBy(*by).agg(
            F.max("timestamp").alias("timestamp"), *(r.column.alias(f"_r{i}") for i, r in enumerate(results))
        )
        raw = F.col("_group")
        shown = show_written(raw, serde)
        if windows is not None:
            end = F.unix_millis("_end")
            start = end - windows.size_ms
            shown = F.struct(shown.alias("key"), start.alias("start"), end.alias("end"))
            if windows.advance_ms < windows.size_ms:
                # Windows begin with the epoch; Spark also has those that a record just after it shares with the past.
                grouped = grouped.where(start >= 0)
            raw, serde = F.concat(raw, encoded_long(start)), TimeWindowed.of_ms(serde, windows.size_ms)
        totals = [F.col(f"_r{i}").alias(name) for i, name in enumerate(of)]
        self.frame = grouped.withColumns(
            {
                "_raw": raw,
                "_shown": shown,
                "_totals": F.struct(*totals),
                "by_shard": F.spark_partition_id(),
                "sequence": F.lit(0).cast("long"),
                "headers": F.lit(None).cast("array<struct<key: string, value: binary>>"),
            }
        )
        self.is_aggregated = True
        kind = T.StructType([T.StructField(name, r.type) for name, r in zip(of, results, strict=True)])
        return _At((), _Part(None, F.col("_raw"), serde, F.col("_shown")), _Part(Typed(F.col("_totals"), kind)), True)

    def _aggregated_over(self, node: ProcessorNode, name: str, aggregator: Aggregator, at: _At) -> Typed:
        aggregate = aggregator.aggregates[name]
        if aggregate.of is None:
            return Typed(F.lit(1), T.LongType())
        try:
            return to_catalyst(aggregate.of, at.value.typed, at.key.typed)
        except NotNative as reason:
            raise NotNative(f"{node.name}: {name}={aggregate!r}: {reason}") from None


def _summed(column: Column, kind: T.DataType) -> Typed:
    return Typed(F.try_sum(column) if kind == T.LongType() else F.sum(column), kind)


_AGGREGATE: dict[str, Any] = {
    "count": lambda column, kind: Typed(F.count(column), T.LongType()),
    "sum": _summed,
    "min": lambda column, kind: Typed(F.min(column), kind),
    "max": lambda column, kind: Typed(F.max(column), kind),
    "avg": lambda column, kind: Typed(F.avg(column), T.DoubleType()),
}


# ---- into the rows of a query ------------------------------------------------------------------------------------


def packed_rows(native: Native, sources: DataFrame) -> DataFrame:
    """A stage's results as rows for the writer; the records it reads are counted in the progress of the query."""
    read = sources.where(F.col("topic") == native.topic).observe(native.observed, F.count(F.lit(1)).alias("records"))
    number, is_aggregate = native.stage, native.is_aggregate

    def pack(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in _in_order(batches) if is_aggregate else batches:
            for shard in batch.column("by_shard").unique().to_pylist():
                of_shard = batch.filter(pc.equal(batch.column("by_shard"), shard))
                for topic in of_shard.column("topic").unique().to_pylist():
                    part = of_shard.filter(pc.equal(of_shard.column("topic"), topic))
                    columns = [part.column(name) for name in ("key", "value", "timestamp", "headers")]
                    arrays = [column.cast(kind.type) for column, kind in zip(columns, PACKED, strict=False)]
                    arrays.append(pa.nulls(len(part), PACKED.field("number").type))
                    data = pack_batch(pa.RecordBatch.from_arrays(arrays, schema=PACKED))
                    first = part.column("sequence")[0].as_py()
                    yield from row_batches([(OUTPUT, shard, topic, number, shard, first, data)])

    return native.frame(read).mapInArrow(pack, SCHEMA)


def _in_order(batches: Iterable[Any]) -> Iterator[Any]:
    """A partition's groups in an order that is the same when the batch is run again: writers count on it."""
    held = list(batches)
    if held:
        whole = pa.Table.from_batches(held)
        order = pc.sort_indices(whole, sort_keys=[(name, "ascending") for name in ("topic", "key", "value")])
        yield from whole.take(order).combine_chunks().to_batches()
