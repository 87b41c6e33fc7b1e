"""Cogrouping: several grouped streams folded into one table, each by its own function."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, overload

from headwater.dsl import ops
from headwater.dsl.camel import CamelCase
from headwater.dsl.graph import GraphNode, TableNode
from headwater.dsl.ops import Function, Op
from headwater.dsl.serde import Serde
from headwater.dsl.stores import StoreDescription
from headwater.dsl.suppliers import AggregateTable, CogroupedTable
from headwater.dsl.table import KTable
from headwater.dsl.windowed import Windows, grace_of, window_store, windowed_key, windowed_op
from headwater.dsl.windows import SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows, subclass_fault
from headwater.errors import TopologyError

if TYPE_CHECKING:
    from headwater.dsl.drawing import Drawing
    from headwater.dsl.grouped import KGroupedStream
    from headwater.dsl.topology import StoreSpec

Groups = dict["KGroupedStream", Function]
_AGGREGATE = "COGROUPKSTREAM-AGGREGATE-"


class CogroupedKStream(CamelCase):
    """Grouped streams on their way into one table."""

    def __init__(self, drawing: Drawing, groups: Groups, parents: dict[KGroupedStream, GraphNode]) -> None:
        self._drawing = drawing
        self._groups = groups
        self._parents = parents  # shared by everything made from this: a group is repartitioned once

    def cogroup(self, grouped: KGroupedStream, f: Function) -> CogroupedKStream:
        """Fold another grouped stream in, by `f(key, value, aggregate)`.

        >>> from headwater import StreamsBuilder
        >>> builder = StreamsBuilder()
        >>> both = (builder.stream("a").group_by_key().cogroup(lambda k, v, total: total + v)
        ...     .cogroup(builder.stream("b").group_by_key(), lambda k, v, total: total - v))
        """
        from headwater.dsl.grouped import KGroupedStream

        if not isinstance(grouped, KGroupedStream):
            raise TopologyError([f"cogroup() takes a grouped stream (group_by_key() or group_by()), not {grouped!r}"])
        self._drawing.check_own("cogroup", grouped)
        return CogroupedKStream(self._drawing, {**self._groups, grouped: f}, self._parents)

    def aggregate(
        self,
        init: Function,
        *,
        store: str | StoreDescription | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        name: str | None = None,
    ) -> KTable:
        """One aggregate per key over all the streams, from `init()`.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> (builder.stream("a").group_by_key().cogroup(lambda k, v, total: total + v)
        ...     .cogroup(builder.stream("b").group_by_key(), lambda k, v, total: total - v)
        ...     .aggregate(lambda: 0).to_stream().to("out"))
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("a").send("k", 5, at=0)
        ...     driver.input("b").send("k", 2, at=1)
        ...     [record.value for record in driver.output("out").read_all()]
        [5, 3]
        """
        materialized = self._drawing.materialized(store, _AGGREGATE, key, value)
        defaults = self._drawing.default_key, self._drawing.default_value
        return self._table(
            init,
            name,
            materialized.queryable,
            lambda step: materialized.key_value(*defaults),
            lambda f, store, send_old: ops.Aggregate(store, init, f, send_old),
            materialized.key,
            materialized.value,
            output_versioned=materialized.versioned,
        )

    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedCogroupedKStream: ...
    @overload
    def windowed_by(self, windows: TimeWindows | UnlimitedWindows | SlidingWindows) -> WindowedCogroupedKStream: ...
    def windowed_by(self, windows: Windows) -> WindowedCogroupedKStream | SessionWindowedCogroupedKStream:
        """Fold per window of time; lateness is judged for each stream by its own stream time.

        >>> from datetime import timedelta
        >>> from headwater import StreamsBuilder, TimeWindows
        >>> windowed = (StreamsBuilder().stream("a").group_by_key().cogroup(lambda k, v, total: total + v)
        ...     .windowed_by(TimeWindows.of(timedelta(minutes=1))))
        """
        if not isinstance(windows, TimeWindows | UnlimitedWindows | SlidingWindows | SessionWindows):
            raise TopologyError([f"cogroup: windowed_by() takes windows, not {windows!r}"])
        fault = subclass_fault(windows)
        if fault:
            raise TopologyError([f"cogroup: windowed_by(): {fault}"])
        if isinstance(windows, SessionWindows):
            return SessionWindowedCogroupedKStream(self, windows)
        return WindowedCogroupedKStream(self, windows)

    def _windowed(
        self,
        windows: Windows,
        init: Function,
        merge: Function | None,
        store: str | StoreDescription | None,
        key: Serde | None,
        value: Serde | None,
        name: str | None,
    ) -> KTable:
        drawing = self._drawing
        materialized = drawing.materialized(store, _AGGREGATE, key, value)
        return self._table(
            init,
            name,
            materialized.queryable,
            lambda step: window_store(drawing, step, materialized, windows, False),
            lambda f, store, send_old: windowed_op(windows, store, init, f, merge, False, send_old),
            windowed_key(drawing, materialized.key, windows),
            materialized.value,
            grace_ms=grace_of(windows),
        )

    def _table(
        self,
        init: Function,
        name: str | None,
        queryable: bool,
        make_spec: Callable[[str], StoreSpec],
        make: Callable[[Function, str, bool], Op],
        key: Serde | None,
        value: Serde | None,
        *,
        output_versioned: bool | None = None,
        grace_ms: int | None = None,
    ) -> KTable:
        drawing = self._drawing
        spec = make_spec(name or "cogroup")
        drawing.check(name or "cogroup", init, 0)
        self._repartition(spec.name, queryable)
        nodes: list[GraphNode] = []
        tables: list[AggregateTable] = []
        for number, (grouped, f) in enumerate(self._groups.items()):
            step = drawing.suffixed(name, f"-cogroup-agg-{number}", _AGGREGATE)
            drawing.check(step, f, 3)
            table = AggregateTable(spec, partial(make, f))
            node = TableNode(step, table)
            node.output_versioned, node.grace_ms = output_versioned, grace_ms
            drawing.add(self._parents[grouped], node)
            nodes.append(node)
            tables.append(table)
        merge = drawing.suffixed(name, "-cogroup-merge", "COGROUPKSTREAM-MERGE-")
        together = CogroupedTable(tables)
        merged = TableNode(merge, together)
        drawing.add(nodes, merged)
        sources = frozenset().union(*(self._sources(grouped) for grouped in self._groups))
        return KTable(drawing, merged, merge, key, value, sources, together)

    def _sources(self, grouped: KGroupedStream) -> frozenset[str]:
        return frozenset({self._parents[grouped].name}) if grouped._repartition else grouped._sources

    def _repartition(self, store: str, queryable: bool) -> None:
        for grouped in self._groups:
            if not grouped._repartition:
                self._parents[grouped] = grouped._node
                continue
            stem = grouped._given if grouped._given is not None else store
            named = grouped._given is not None or queryable
            repartition = self._drawing.repartition(stem, grouped._key, grouped._value, named)
            if grouped not in self._parents:
                self._drawing.add(grouped._node, repartition)
                self._parents[grouped] = repartition
        self._drawing.copartition(*(self._sources(grouped) for grouped in self._groups))


class WindowedCogroupedKStream(CamelCase):
    """Cogrouped streams per time window."""

    def __init__(self, cogrouped: CogroupedKStream, windows: Windows) -> None:
        self._cogrouped = cogrouped
        self._windows = windows

    def aggregate(
        self,
        init: Function,
        *,
        store: str | StoreDescription | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        name: str | None = None,
    ) -> KTable:
        """One aggregate per key and window over all the streams, from `init()`.

        >>> from datetime import timedelta
        >>> from headwater import StreamsBuilder, TimeWindows
        >>> table = (StreamsBuilder().stream("a").group_by_key().cogroup(lambda k, v, total: total + v)
        ...     .windowed_by(TimeWindows.of(timedelta(minutes=1))).aggregate(lambda: 0, store="totals"))
        """
        return self._cogrouped._windowed(self._windows, init, None, store, key, value, name)


class SessionWindowedCogroupedKStream(CamelCase):
    """Cogrouped streams per session."""

    def __init__(self, cogrouped: CogroupedKStream, windows: SessionWindows) -> None:
        self._cogrouped = cogrouped
        self._windows = windows

    def aggregate(
        self,
        init: Function,
        *,
        merge: Function,
        store: str | StoreDescription | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        name: str | None = None,
    ) -> KTable:
        """One aggregate per key and session over all the streams; `merge(key, a, b)` joins sessions.

        >>> from datetime import timedelta
        >>> from headwater import SessionWindows, StreamsBuilder
        >>> table = (StreamsBuilder().stream("a").group_by_key().cogroup(lambda k, v, total: total + v)
        ...     .windowed_by(SessionWindows.of(timedelta(minutes=1)))
        ...     .aggregate(lambda: 0, merge=lambda k, a, b: a + b, store="totals"))
        """
        self._cogrouped._drawing.check(name or "cogroup", merge, 3)
        return self._cogrouped._windowed(self._windows, init, merge, store, key, value, name)
