"""Stages that run without Python: every step an expression, every type declared. It owns which stages those are, what
keeps the others from it, and how records become columns and columns records again; expressions are catalyst.py's.

Besides chains of stateless steps there are aggregates with `emit="per-batch"`: Spark's own aggregation, which gives one
row per key and batch. The steps before one, its repartition topic included, are part of the same stage.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import and_
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater.dsl import ops
from headwater.dsl.aggregates import Aggregator
from headwater.dsl.config import Config
from headwater.dsl.expression_code import ExpressionFunction
from headwater.dsl.serde import Bytes, Int64, Json, Serde, Str, TimeWindowed
from headwater.dsl.topology import ProcessorNode, Sink, Topology
from headwater.dsl.windows import TimeWindows
from headwater.streams.spark.catalyst import NotNative, Typed, _timestamp_to_text, schema_of, to_catalyst
from headwater.streams.spark.intake import row_batches
from headwater.streams.spark.rows import OUTPUT, PACKED, SCHEMA, pack_batch
from headwater.streams.spark.stages import Stage, Stages

__all__ = ["Native", "decoded_long", "nativize", "packed_rows"]

_CORRUPT = "_corrupt"
_AGGREGATES = (ops.Aggregate, ops.TimeWindowAggregate, ops.SlidingWindowAggregate, ops.SessionAggregate)


@dataclass(frozen=True)
class Native:
    """A stage in Catalyst; `frame(sources)` are its results."""

    stage: int
    topic: str
    topology: Topology

    def topics(self) -> set[str]:
        """What it writes to."""
        sinks = [node.topic for node in self.topology.nodes.values() if isinstance(node, Sink)]
        return {t for t in sinks if isinstance(t, str) and t not in self.topology.internal_topics}

    def frame(self, sources: DataFrame) -> DataFrame:
        """Results (by_shard, sequence, topic, key, value, timestamp, headers) from rows in the sources' columns."""
        return _Columns(self.topology, sources.where(F.col("topic") == self.topic)).results()


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
        if stage.kind != "arrow" or spec is None or not _has_expressions(spec.topology):
            kept.append(stage)
            continue
        fed = [s for s in stages.stages if stages.internal.intersection(s.topics) & _written(spec.topology, config)]
        try:
            whole, more = _with_aggregate(spec.topology, fed, topology)
            native = Native(stage.number, stage.topics[0], whole)
            if config.on_deserialization_error != "fail" or config.on_processing_error != "fail":
                raise NotNative("a handler for bad records is set, which is called in Python")
            native.frame(probe)
        except NotNative as reason:
            reasons[stage.name] = str(reason)
            kept.append(stage)
        else:
            natives.append(native)
            merged |= {s.number for s in more}
            own = replace(spec, topology=whole, nodes=tuple(whole.nodes))
            kept.append(replace(stage, kind="native", spec=own))
    return replace(stages, stages=tuple(s for s in kept if s.number not in merged)), natives, reasons


def _has_expressions(topology: Topology) -> bool:
    found = [node.op for node in topology.nodes.values() if isinstance(node, ProcessorNode)]
    return any(isinstance(f, ExpressionFunction) for op in found for f in _functions(op))


def _functions(op: ops.Op) -> Iterator[Any]:
    for content in vars(op).values():
        yield from content if isinstance(content, tuple) else (content,)


def _written(topology: Topology, config: Config) -> set[str]:
    sinks = [node.topic for node in topology.nodes.values() if isinstance(node, Sink)]
    return {f"{config.app_id}-{topic}" for topic in sinks if topic in topology.internal_topics}


def _with_aggregate(part: Topology, fed: list[Stage], topology: Topology) -> tuple[Topology, list[Stage]]:
    """A stage's topology with that of the aggregate it feeds, if it feeds any."""
    if not fed:
        return part, []
    if len(fed) > 1 or fed[0].spec is None or len(fed[0].topics) > 1:
        raise NotNative('it repartitions for steps that are not one aggregate with emit="per-batch"')
    other = fed[0].spec.topology
    aggregates = [n.op for n in other.nodes.values() if isinstance(n, ProcessorNode) and isinstance(n.op, _AGGREGATES)]
    if len(aggregates) != 1 or aggregates[0].emit != "per-batch":
        raise NotNative('it repartitions for steps that are not one aggregate with emit="per-batch"')
    whole = copy.copy(topology)
    whole.nodes = {n: node for n, node in topology.nodes.items() if n in part.nodes or n in other.nodes}
    return whole, fed


# ---- from records to columns and back ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Part:
    """A record's key or value: as bytes of a serde, or as a typed column, or both."""

    raw: Column | None
    serde: Serde | None
    typed: Typed | None


@dataclass(frozen=True)
class _At:
    """A record on its way: what must hold for it to be there, and what it is."""

    conditions: tuple[Column, ...]
    key: _Part
    value: _Part


@dataclass
class _Columns:
    """One stage's steps as columns over its source's rows."""

    topology: Topology
    frame: DataFrame
    written: list[tuple[Sink, _At]] = field(default_factory=list)
    names: int = 0
    is_aggregated: bool = False

    def results(self) -> DataFrame:
        (source,) = [s for s in self.topology.sources() if s.topics[0] not in self.topology.internal_topics]
        self.frame = self.frame.withColumns({"by_shard": F.col("partition"), "sequence": F.col("offset")})
        at = _At(
            (_checked(F.col("timestamp") >= 0, "has an invalid (negative) timestamp"),),
            self._read("key", source.key),
            self._read("value", source.value),
        )
        at = replace(at, conditions=(*at.conditions, *(_present(part) for part in (at.key, at.value) if part.typed)))
        self._below(source.name, at)
        if not self.written:
            raise NotNative("nothing is written to a topic")
        rows = [
            (
                reduce(and_, at.conditions),
                F.lit(sink.topic),
                self._bytes(at.key, sink.key),
                self._bytes(at.value, sink.value),
            )
            for sink, at in self.written
        ]
        if len(rows) == 1:
            condition, topic, key, value = rows[0]
            frame = self.frame.where(condition).withColumns({"_topic": topic, "_key": key, "_value": value})
        else:
            made = F.array(
                *(
                    F.when(condition, F.struct(topic.alias("_topic"), key.alias("_key"), value.alias("_value")))
                    for condition, topic, key, value in rows
                )
            )
            frame = self.frame.withColumn("_out", F.explode(F.filter(made, lambda one: one.isNotNull())))
            frame = frame.withColumns({name: F.col(f"_out.{name}") for name in ("_topic", "_key", "_value")})
        columns = ["by_shard", "sequence", "_topic", "_key", "_value", "timestamp", "headers"]
        return frame.select(*columns).toDF("by_shard", "sequence", "topic", "key", "value", "timestamp", "headers")

    def _named(self, typed: Typed) -> Typed:
        self.names += 1
        name = f"_c{self.names}"
        self.frame = self.frame.withColumn(name, typed.column)
        return Typed(F.col(name), typed.type)

    # ---- steps -------------------------------------------------------------------------------------------------

    def _below(self, name: str, at: _At) -> None:
        for child in self.topology.children(name):
            node = self.topology.nodes[child]
            if isinstance(node, Sink):
                self._sink(node, at)
            elif isinstance(node, ProcessorNode):
                self._step(node, at)

    def _sink(self, sink: Sink, at: _At) -> None:
        if callable(sink.topic) or sink.partitioner is not None:
            raise NotNative(f"{sink.name}: a function chooses the topic or the partition")
        if sink.topic in self.topology.internal_topics:
            (source,) = [s for s in self.topology.sources() if sink.topic in s.topics]
            key, value = self._bytes(at.key, sink.key), self._bytes(at.value, sink.value)
            self._below(source.name, replace(at, key=replace(at.key, raw=key, serde=sink.key)))
            assert value is not None
        else:
            self.written.append((sink, at))

    def _step(self, node: ProcessorNode, at: _At) -> None:
        match node.op:
            case ops.Filter(predicate=f, negate=negate):
                found = F.coalesce(self._expression(node, f, at).column, F.lit(False))
                self._below(node.name, replace(at, conditions=(*at.conditions, ~found if negate else found)))
            case ops.MapValues(f=f) | ops.TableMapValues(f=f, store=None):
                typed = self._named(self._expression(node, f, at))
                self._below(node.name, replace(at, value=_Part(None, None, typed)))
            case ops.SelectKey(f=f):
                typed = self._named(self._expression(node, f, at))
                self._below(node.name, replace(at, key=_Part(None, None, typed)))
            case ops.Branch(predicates=predicates, children=children):
                before: tuple[Column, ...] = ()
                holds = [F.coalesce(self._expression(node, f, at).column, F.lit(False)) for f in predicates]
                for child, hold in zip(children, [*holds, F.lit(True)], strict=False):
                    self._below(child, replace(at, conditions=(*at.conditions, *before, hold)))
                    before = (*before, ~hold)
            case ops.RepartitionFilter(drop_null_keys=drops):
                keyed = (_present_key(at.key),) if drops else ()
                self._below(node.name, replace(at, conditions=(*at.conditions, *keyed)))
            case ops.PassThrough() | ops.ToStream() | ops.TablePassThrough():
                self._below(node.name, at)
            case ops.Aggregate() | ops.TimeWindowAggregate() if node.op.emit == "per-batch":
                self._below(node.name, self._aggregated(node, node.op, at))
            case _:
                raise NotNative(f"{node.name}: {type(node.op).__name__} runs in Python")

    def _expression(self, node: ProcessorNode, f: Any, at: _At) -> Typed:
        if not isinstance(f, ExpressionFunction):
            raise NotNative(f"{node.name}: a function of Python's, not an expression")
        try:
            return to_catalyst(f, at.value.typed, at.key.typed, None if self.is_aggregated else F.col("timestamp"))
        except NotNative as reason:
            raise NotNative(f"{node.name}: {reason}") from None

    def _aggregated(self, node: ProcessorNode, op: ops.Aggregate | ops.TimeWindowAggregate, at: _At) -> _At:
        """A batch's groups, by key and window, with their aggregates in place of the records."""
        if self.is_aggregated or self.written:
            raise NotNative(f"{node.name}: the records before an aggregate go elsewhere too")
        aggregator = op.f
        assert isinstance(aggregator, Aggregator)
        windows = op.windows if isinstance(op, ops.TimeWindowAggregate) else None
        if windows is not None and not isinstance(windows, TimeWindows):
            raise NotNative(f"{node.name}: its windows do not end")
        spec = self.topology.stores[op.store]
        of = {}
        for name, aggregate in aggregator.aggregates.items():
            if aggregate.of is None:
                of[name] = Typed(F.lit(1), T.LongType())
            else:
                try:
                    of[name] = to_catalyst(aggregate.of, at.value.typed, at.key.typed)
                except NotNative as reason:
                    raise NotNative(f"{node.name}: {name}={aggregate!r}: {reason}") from None
        kept = [*at.conditions, _present_key(at.key), _present_key(at.value)]
        frame = self.frame.where(reduce(and_, kept)).withColumns(
            {"_group": self._bytes(at.key, spec.key), "_at": F.timestamp_millis("timestamp")}
            | {f"_of{i}": typed.column for i, typed in enumerate(of.values())}
        )
        by: list[Column] = [F.col("_group")]
        if windows is not None:
            frame = frame.withWatermark("_at", f"{windows.grace_ms} milliseconds")
            by.append(
                F.window("_at", f"{windows.size_ms} milliseconds", f"{windows.advance_ms} milliseconds").alias(
                    "_window"
                )
            )
        results = [
            _AGGREGATE[aggregate.function](F.col(f"_of{i}"), of[name].type)
            for i, (name, aggregate) in enumerate(aggregator.aggregates.items())
        ]
        grouped = frame.groupBy(*by).agg(
            F.max("timestamp").alias("timestamp"), *(r.column.alias(f"_r{i}") for i, r in enumerate(results))
        )
        shown = [F.col(f"_r{i}").alias(name) for i, name in enumerate(of)]
        kind = T.StructType([T.StructField(name, r.type) for name, r in zip(of, results, strict=True)])
        raw, serde = F.col("_group"), spec.key
        if windows is not None:
            serde = TimeWindowed.of_ms(serde, windows.size_ms)
            raw = F.concat(raw, _long_bytes(F.unix_millis("_window.start")))
        # In an order of its own, so that a batch that is run again writes the same.
        self.frame = grouped.sortWithinPartitions(raw).withColumns(
            {
                "_raw": raw,
                "_totals": F.struct(*shown),
                "by_shard": F.spark_partition_id(),
                "sequence": F.lit(0).cast("long"),
                "headers": F.lit(None).cast("array<struct<key: string, value: binary>>"),
            }
        )
        self.is_aggregated = True
        return _At((F.lit(True),), _Part(F.col("_raw"), serde, None), _Part(None, None, Typed(F.col("_totals"), kind)))

    # ---- bytes -------------------------------------------------------------------------------------------------

    def _read(self, name: str, serde: Serde) -> _Part:
        """A source's key or value; one that cannot be read ends the query, with its place."""
        raw = F.col(name)
        kind = schema_of(serde)
        if kind is None:
            raise NotNative(f"{name}s are {serde!r}, which declares no type: give one, as Json(type=Order)")
        text = raw.cast("string")
        match serde:
            case Bytes():
                return _Part(raw, serde, Typed(raw, kind))
            case Str():
                # Python replaces what is no UTF-8, and so writes it.
                mended = self._named(Typed(F.make_valid_utf8(text), kind))
                return _Part(mended.column.cast("binary"), serde, mended)
            case Int64():
                return _Part(
                    raw,
                    serde,
                    self._named(Typed(_or_fail(raw, F.octet_length(raw) == 8, decoded_long(raw), name), kind)),
                )
            case Json() if isinstance(kind, T.StructType):
                _check_fields(serde)
                parsed = self._named(Typed(F.from_json(text, _with_corrupt(kind), _JSON), kind))
                sound = (
                    F.is_valid_utf8(text)
                    & parsed.column.getField(_CORRUPT).isNull()
                    & _complete(parsed.column, serde.type)
                )
                return _Part(raw, serde, self._named(Typed(_or_fail(raw, sound, parsed.column, name), kind)))
        raise NotNative(f"{name}s are {serde!r}, which Spark does not read as Python does")

    def _bytes(self, part: _Part, serde: Serde) -> Column:
        """A key or value as its serde writes it."""
        if part.raw is not None and (part.serde == serde or isinstance(serde, Bytes)):
            return part.raw
        typed = part.typed
        if typed is None:
            raise NotNative(f"{serde!r} is to write what {part.serde!r} has written")
        match serde:
            case Str() if typed.type == T.StringType():
                return typed.column.cast("binary")
            case Int64() if typed.type == T.LongType():
                return F.when(typed.column.isNotNull(), _long_bytes(typed.column))
            case Bytes() if typed.type == T.BinaryType():
                return typed.column
            case Json():
                return _json(typed).cast("binary")
        raise NotNative(f"{serde!r} does not write {typed.type.simpleString()} in Catalyst")


# As strict as it gets: what Python's reader refuses, it refuses.
_JSON = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
    "allowNumericLeadingZeros": "false",
}


def _with_corrupt(kind: T.StructType) -> T.StructType:
    return T.StructType([*kind.fields, T.StructField(_CORRUPT, T.StringType())])


def _check_fields(serde: Json) -> None:
    """Refuse fields that are missing in a record and yet have a value: Spark reads them as null."""
    for info in msgspec.inspect.type_info(serde.type).fields if serde.type is not None else ():  # type: ignore[attr-defined]
        is_null = info.default is None
        if not info.required and not is_null:
            raise NotNative(f"the field {info.name} has a default, which Spark does not know")


def _complete(parsed: Column, kind: Any) -> Column:
    """Whether all fields that must be there are; of structs in structs too."""
    found = F.lit(True)
    for info in msgspec.inspect.type_info(kind).fields:  # type: ignore[attr-defined]
        column = parsed.getField(info.name)
        if info.required and not _may_be_null(info.type):
            found = found & column.isNotNull()
    return found


def _may_be_null(info: msgspec.inspect.Type) -> bool:
    return isinstance(info, msgspec.inspect.UnionType) and info.includes_none


def _or_fail(raw: Column, sound: Column, result: Column, what: str) -> Column:
    place = F.concat(F.col("topic"), F.lit("-"), F.col("partition"), F.lit("@"), F.col("offset"))
    told = F.concat(
        F.lit(f"headwater.errors.StreamsError: the {what} of "),
        place,
        F.lit(" cannot be read: correct the input, or set on_deserialization_error, and its steps run in Python"),
    )
    return F.when(raw.isNotNull(), F.when(sound, result).otherwise(F.raise_error(told).cast(T.NullType())))


def _checked(holds: Column, fault: str) -> Column:
    place = F.concat(F.col("topic"), F.lit("-"), F.col("partition"), F.lit("@"), F.col("offset"))
    told = F.concat(F.lit("headwater.errors.StreamsError: "), place, F.lit(f" {fault}"))
    return F.when(holds, F.lit(True)).otherwise(F.raise_error(told).cast("boolean"))


def _present(part: _Part) -> Column:
    """True, but reading the part on the way: what cannot be read must not pass because nobody looks at it."""
    assert part.raw is not None
    assert part.typed is not None
    return part.typed.column.isNotNull() | part.raw.isNull()


def _present_key(part: _Part) -> Column:
    column = part.typed.column if part.typed is not None else part.raw
    assert column is not None
    return column.isNotNull()


def decoded_long(raw: Column) -> Column:
    """The number in eight bytes."""
    unsigned = F.conv(F.hex(raw), 16, 10).cast("decimal(20,0)")
    return F.when(unsigned >= F.lit(2**63), unsigned - F.lit(2**64)).otherwise(unsigned).cast("long")


def _long_bytes(column: Column) -> Column:
    return F.unhex(F.lpad(F.hex(column), 16, "0"))


def _json(typed: Typed) -> Column:
    made = _plain(typed.column, typed.type)
    if isinstance(typed.type, T.StructType | T.MapType | T.ArrayType):
        return F.to_json(made, {"ignoreNullFields": "false"})
    # Spark writes no single values; in an array they are between its brackets.
    text = F.to_json(F.array(made), {"ignoreNullFields": "false"})
    return F.when(typed.column.isNotNull(), F.substring(text, F.lit(2), F.length(text) - 2))


def _plain(column: Column, kind: T.DataType) -> Column:
    """What JSON can hold, as Python writes it: times as text; NaN is an error."""
    match kind:
        case T.DoubleType():
            fault = "headwater.errors.StreamsError: JSON has no NaN and no infinity; replace them, for example by null"
            endless = F.isnan(column) | (F.abs(column) == float("inf"))
            return F.when(endless, F.raise_error(F.lit(fault)).cast("double")).otherwise(column)
        case T.TimestampType():
            return _timestamp_to_text(column)
        case T.StructType():
            fields = [_plain(column.getField(f.name), f.dataType).alias(f.name) for f in kind.fields]
            return F.when(column.isNotNull(), F.struct(*fields))
        case T.ArrayType():
            return F.transform(column, lambda item: _plain(item, kind.elementType))
        case T.MapType():
            return F.transform_values(column, lambda key, item: _plain(item, kind.valueType))
        case T.LongType() | T.StringType() | T.BooleanType():
            return column
    raise NotNative(f"JSON of {kind.simpleString()} is written by Python")


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
    """A stage's results as rows for the writer."""
    number = native.stage

    def pack(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            topics = batch.column("topic")
            for topic in topics.unique().to_pylist():
                part = batch.filter(pc.equal(topics, topic))
                packed = pa.RecordBatch.from_arrays(
                    [
                        part.column("key"),
                        part.column("value"),
                        part.column("timestamp"),
                        part.column("headers").cast(PACKED.field("headers").type),
                        pa.nulls(len(part), pa.int64()),
                    ],
                    schema=PACKED,
                )
                shard, first = part.column("by_shard")[0].as_py(), part.column("sequence")[0].as_py()
                yield from row_batches([(OUTPUT, shard, topic, number, shard, first, pack_batch(packed))])

    return native.frame(sources).mapInArrow(pack, SCHEMA)
