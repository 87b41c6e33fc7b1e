"""Grouped streams: records brought together by key, ready to be folded into a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

from headwater.dsl import ops
from headwater.dsl.aggregates import Aggregate, Aggregator, PerBatchNode, TotalsSerde, over_expressions
from headwater.dsl.camel import CamelCase
from headwater.dsl.counts import plus_one, zero
from headwater.dsl.graph import GraphNode, RepartitionNode, TableNode
from headwater.dsl.ops import Emit, Function, Op
from headwater.dsl.serde import Int64, Json, Serde
from headwater.dsl.stores import StoreDescription
from headwater.dsl.suppliers import AggregateTable
from headwater.dsl.table import KTable
from headwater.dsl.windows import SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows, subclass_fault
from headwater.errors import TopologyError

if TYPE_CHECKING:
    from headwater.dsl.cogrouped import CogroupedKStream
    from headwater.dsl.drawing import Drawing, Materialized
    from headwater.dsl.topology import StoreSpec
    from headwater.dsl.windowed import SessionWindowedKStream, WindowedKStream


class KGroupedStream(CamelCase):
    """A stream grouped by key."""

    def __init__(
        self,
        drawing: Drawing,
        node: GraphNode,
        name: str,
        key: Serde | None,
        value: Serde | None,
        sources: frozenset[str],
        repartition: bool,
        given: str | None,
    ) -> None:
        self._drawing = drawing
        self._node = node
        self._name = name
        self._key = key
        self._value = value
        self._sources = sources
        self._repartition = repartition
        self._given = given  # the user's name for the grouping: the stem of its repartition topic
        self._repartition_node: RepartitionNode | None = None

    def count(self, *, store: str | StoreDescription | None = None, name: str | None = None) -> KTable:
        """The number of records per key; null keys and null values are dropped and counted as such.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> builder.stream("in").group_by_key().count(store="counts").to_stream().to("out")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     for n in range(3):
        ...         driver.input("in").send("k", n, at=n)
        ...     driver.store("counts").get("k")
        3
        """
        self._burn_unnamed(store)
        return self._aggregate("KSTREAM-AGGREGATE-", store, name, zero, plus_one, self._key, Int64())

    def reduce(self, f: Function, *, store: str | StoreDescription | None = None, name: str | None = None) -> KTable:
        """The values per key, folded by `f(aggregate, value)`; the first is taken as it is, None deletes.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> builder.stream("in").group_by_key().reduce(max, store="highest").to_stream().to("out")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     for n in (3, 8, 5):
        ...         driver.input("in").send("k", n, at=0)
        ...     driver.store("highest").get("k")
        8
        """
        return self._aggregate("KSTREAM-REDUCE-", store, name, None, f, self._key, self._value)

    @overload
    def aggregate(
        self,
        init: Function,
        f: Function,
        *,
        store: str | StoreDescription | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        name: str | None = None,
    ) -> KTable: ...
    @overload
    def aggregate(
        self,
        *aggregates: Aggregate,
        store: str | StoreDescription | Aggregate | None = None,
        key: Serde | Aggregate | None = None,
        value: Serde | Aggregate | None = None,
        name: str | Aggregate | None = None,
        emit: Emit = "per-record",
        **named: Aggregate,
    ) -> KTable: ...
    def aggregate(
        self,
        init: Any = None,
        f: Any = None,
        *more: Any,
        store: Any = None,
        key: Any = None,
        value: Any = None,
        name: Any = None,
        emit: Emit = "per-record",
        **named: Any,
    ) -> KTable:
        """The records per key, folded by `f(key, value, aggregate)` from `init()`; None deletes.

        With aggregates over expressions, `aggregate(total=agg.sum(col("amount")))`, the value is a dict of those
        fields. There `emit="per-batch"` lets a back end that works in batches emit one update per key and batch; only
        stateless steps and a sink may follow.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> (builder.stream("in").group_by_key()
        ...     .aggregate(list, lambda key, value, seen: seen + [value]).to_stream().to("out"))
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("in").send("k", 1, at=0)
        ...     driver.input("in").send("k", 2, at=1)
        ...     [record.value for record in driver.output("out").read_all()]
        [[1], [1, 2]]
        """
        options = {"store": store, "key": key, "value": value, "name": name}
        over = over_expressions((init, f, *more), named, options, emit)
        if over is not None:
            aggregator, faults = over
            return self._aggregate(
                "KSTREAM-AGGREGATE-",
                options["store"],
                options["name"],
                aggregator.init,
                aggregator,
                options["key"] or self._key,
                options["value"] or Json(),
                emit,
                faults,
            )
        return self._aggregate("KSTREAM-AGGREGATE-", store, name, init, f, key or self._key, value)

    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedKStream: ...
    @overload
    def windowed_by(self, windows: TimeWindows | UnlimitedWindows | SlidingWindows) -> WindowedKStream: ...
    def windowed_by(self, windows: Any) -> Any:
        """Fold the records of each key per window of time.

        The store keeps a window only as long as it may still change, or for the retention given in
        `store=Window(...)`; the long-term record is the topic the results go to.

        >>> from datetime import timedelta
        >>> from headwater import StreamsBuilder, TimeWindows, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> (builder.stream("in").group_by_key().windowed_by(TimeWindows.of(timedelta(seconds=10)))
        ...     .count().to_stream().to("out"))
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("in").send("k", "x", at=12_000)
        ...     driver.output("out").read_all()
        [Record(key=Windowed(key='k', start=10000, end=20000), value=1, timestamp=12000, headers=())]
        """
        from headwater.dsl.windowed import SessionWindowedKStream, WindowedKStream

        if not isinstance(windows, TimeWindows | UnlimitedWindows | SlidingWindows | SessionWindows):
            raise TopologyError(
                [f"{self._name}: windowed_by() takes windows, as TimeWindows.of(timedelta(minutes=1)), not {windows!r}"]
            )
        fault = subclass_fault(windows)
        if fault:
            raise TopologyError([f"{self._name}: windowed_by(): {fault}"])
        return (SessionWindowedKStream if isinstance(windows, SessionWindows) else WindowedKStream)(self, windows)

    def cogroup(self, f: Function) -> CogroupedKStream:
        """Begin to fold several grouped streams into one table; this one by `f(key, value, aggregate)`.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> views, clicks = (builder.stream(topic).group_by_key() for topic in ("views", "clicks"))
        >>> _ = (views.cogroup(lambda key, view, total: total + 1)
        ...     .cogroup(clicks, lambda key, click, total: total + 10).aggregate(lambda: 0, store="scores"))
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("views").send("ad", "v", at=0)
        ...     driver.input("clicks").send("ad", "c", at=1)
        ...     driver.store("scores").get("ad")
        11
        """
        from headwater.dsl.cogrouped import CogroupedKStream

        return CogroupedKStream(self._drawing, {}, {}).cogroup(self, f)

    # ---- how aggregates are built, also for windows and cogroups -----------------------------------------------

    def _burn_unnamed(self, store: str | StoreDescription | None) -> None:
        # Kafka Streams burns one more number for count(Materialized) without a name.
        if isinstance(store, StoreDescription) and store.name is None:
            self._drawing.new_name("KSTREAM-AGGREGATE-STATE-STORE-")

    def _aggregate(
        self,
        prefix: str,
        store: str | StoreDescription | None,
        name: str | None,
        init: Function | None,
        f: Function,
        key: Serde | None,
        value: Serde | None,
        emit: Emit = "per-record",
        faults: Iterable[str] = (),
    ) -> KTable:
        drawing = self._drawing
        materialized = drawing.materialized(store, prefix, key, value)
        key, value = materialized.key, materialized.value
        name = drawing.named(name, prefix)
        self._check_functions(name, init, f, faults)
        spec = materialized.key_value(key or drawing.default_key, value or drawing.default_value)
        return self._table(
            name,
            materialized,
            self._stored(spec, f),
            lambda store, send_old: ops.Aggregate(store, init, f, send_old, emit),
            key,
            value,
            output_versioned=materialized.versioned,
            emit=emit,
        )

    @staticmethod
    def _stored(spec: StoreSpec, f: Function) -> StoreSpec:
        """The store as it must be: an average is kept as what it is computed from."""
        return replace(spec, value=TotalsSerde(f)) if isinstance(f, Aggregator) else spec

    def _check_functions(self, step: str, init: Function | None, f: Function, faults: Iterable[str] = ()) -> None:
        for fault in faults:
            self._drawing.fault(step, fault)
        if init is not None:
            self._drawing.check(step, init, 0)
        self._drawing.check(step, f, 3 if init is not None else 2)

    def _table(
        self,
        name: str,
        materialized: Materialized,
        spec: StoreSpec,
        make: Callable[[str, bool], Op],
        key: Serde | None,
        value: Serde | None,
        *,
        output_versioned: bool = False,
        grace_ms: int | None = None,
        emit: Emit = "per-record",
    ) -> KTable:
        parent, sources = self._node, self._sources
        if self._repartition:
            stem = self._given if self._given is not None else materialized.name
            named = self._given is not None or materialized.queryable
            repartition = self._drawing.repartition(stem, self._key, self._value, named)
            if self._repartition_node is None or self._given is None:
                self._repartition_node = repartition
            self._drawing.add(parent, self._repartition_node)
            parent, sources = self._repartition_node, frozenset({repartition.name})
        table = AggregateTable(spec, make)
        node = PerBatchNode(name, table) if emit == "per-batch" else TableNode(name, table)
        node.output_versioned, node.grace_ms = output_versioned, grace_ms
        self._drawing.add(parent, node)
        return KTable(self._drawing, node, name, key, value, sources, table)
