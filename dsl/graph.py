"""The logical graph the DSL draws: what a user asked for, before passes rewrite it and write it into a topology.

A graph node may become several topology nodes (a join becomes three), and stays open to later calls until `build()`:
a table learns that a child needs old values, a repartition is merged with its siblings.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from headwater.dsl.internal_serdes import ChangeSerde
from headwater.dsl.java_order import hash_order
from headwater.dsl.ops import Op, RepartitionFilter
from headwater.dsl.serde import Serde
from headwater.dsl.suppliers import SourceTable, TableSupplier
from headwater.dsl.topology import Sink, Source, StoreSpec, Topology


class GraphNode:
    """One thing the user asked for, between what feeds it and what it feeds."""

    key_changing = False
    value_changing = False
    is_merge = False
    relaxed_null_keys = False  # a left or outer join: null keys must reach it
    grace_ms: int | None = None  # set by windowed aggregates, for suppress
    output_versioned: bool | None = None  # None: as its parents

    def __init__(self, name: str) -> None:
        self.name = name
        self.parents: list[GraphNode] = []
        self.children: list[GraphNode] = []
        self.priority = 0
        self.written = False

    def add_child(self, child: GraphNode) -> None:
        """Feed the child, if it is not fed already."""
        if child not in self.children:
            self.children.append(child)
        if self not in child.parents:
            child.parents.append(self)

    def remove_child(self, child: GraphNode) -> None:
        """Feed the child no more."""
        if child in self.children:
            self.children.remove(child)
            child.parents.remove(self)

    def parent_names(self) -> tuple[str, ...]:
        """The topology nodes that feed this one."""
        return tuple(parent.name for parent in self.parents)

    def use_versioned(self, parent: GraphNode) -> None:
        """This parent's updates carry versions: out-of-order ones must be told apart."""

    def write(self, topology: Topology) -> None:
        """Add this node's sources, processors, stores and sinks."""
        raise NotImplementedError(type(self))


class Root(GraphNode):
    """Where the graph begins."""

    def write(self, topology: Topology) -> None:
        """Nothing."""


class SourceNode(GraphNode):
    """Records of topics."""

    def __init__(
        self,
        name: str,
        topics: tuple[str, ...],
        pattern: re.Pattern[str] | None,
        key: Serde,
        value: Serde,
        timestamp: Callable[..., int] | None = None,
        reset: str | None = None,
    ) -> None:
        super().__init__(name)
        self.topics = tuple(hash_order(topics))
        self.pattern = pattern
        self.key, self.value = key, value
        self.timestamp, self.reset = timestamp, reset

    def write(self, topology: Topology) -> None:
        topology.put_source(
            Source(self.name, self.topics, self.pattern, self.key, self.value, self.timestamp, self.reset)
        )


class TableSourceNode(GraphNode):
    """Records of one topic, kept as a table; global ones are whole in every task."""

    def __init__(self, name: str, source: Source, table: SourceTable) -> None:
        super().__init__(name)
        self.source = source
        self.table = table
        self.reuse_topic = False

    def write(self, topology: Topology) -> None:
        if self.source.is_global:
            assert self.table.spec is not None
            topology.put_global_store(self.table.spec, self.source, self.name, self.table.op())
            return
        topology.put_source(self.source)
        topology.put_processor(self.name, self.table.op(), self.source.name)
        for spec in self.table.specs():
            topology.put_store(spec, self.name)
            if self.reuse_topic:
                topology.source_changelogs[spec.name] = self.source.topics[0]


class StepNode(GraphNode):
    """One operator with its own stores, and stores of others it reads."""

    def __init__(
        self, name: str, op: Op | None = None, stores: tuple[StoreSpec, ...] = (), connect: tuple[str, ...] = ()
    ) -> None:
        super().__init__(name)
        self._op = op
        self.stores = stores
        self.connect = connect

    def op(self) -> Op:
        """The operator as it stands now."""
        assert self._op is not None
        return self._op

    def specs(self) -> tuple[StoreSpec, ...]:
        """The stores it brings along."""
        return self.stores

    def write(self, topology: Topology) -> None:
        topology.put_processor(self.name, self.op(), *self.parent_names())
        for spec in self.specs():
            topology.put_store(spec, self.name)
        topology.connect(self.name, *self.connect)


class LazyStep(StepNode):
    """An operator whose arguments are settled only at the build (versioned input, branches added later)."""

    def __init__(
        self, name: str, make: Callable[[bool], Op], stores: tuple[StoreSpec, ...] = (), connect: tuple[str, ...] = ()
    ) -> None:
        super().__init__(name, None, stores, connect)
        self._make = make
        self._versioned = False

    def op(self) -> Op:
        return self._make(self._versioned)

    def use_versioned(self, parent: GraphNode) -> None:
        self._versioned = True


class TableNode(StepNode):
    """A table's operator; later calls may make it send old values or materialize."""

    def __init__(self, name: str, table: TableSupplier, connect: tuple[str, ...] = ()) -> None:
        super().__init__(name, None, (), connect)
        self.table = table

    def op(self) -> Op:
        return self.table.op()

    def specs(self) -> tuple[StoreSpec, ...]:
        return self.table.specs()

    def use_versioned(self, parent: GraphNode) -> None:
        self.table.versioned = True


class SuppressNode(TableNode):
    """A suppressed table: refused over versioned ones."""


class SinkNode(GraphNode):
    """Records written to a topic."""

    def __init__(
        self,
        name: str,
        topic: str | Callable[..., str],
        key: Serde,
        value: Serde,
        partitioner: Callable[..., int | None] | None,
    ) -> None:
        super().__init__(name)
        self.topic = topic
        self.key, self.value, self.partitioner = key, value, partitioner

    def write(self, topology: Topology) -> None:
        topology.put_sink(Sink(self.name, self.topic, self.key, self.value, self.partitioner, self.parent_names()))


class StoreNode(GraphNode):
    """A store the user added by hand."""

    def __init__(self, spec: StoreSpec) -> None:
        super().__init__(spec.name)
        self.spec = spec

    def write(self, topology: Topology) -> None:
        topology.put_shared_store(self.spec)


class GlobalStoreNode(GraphNode):
    """A global store kept by the user's own processor."""

    def __init__(self, spec: StoreSpec, source: Source, processor: str, op: Op) -> None:
        super().__init__(processor)
        self.spec, self.source, self.op = spec, source, op

    def write(self, topology: Topology) -> None:
        topology.put_global_store(self.spec, self.source, self.name, self.op)


class RepartitionNode(GraphNode):
    """A filter, a sink and a source around an internal topic that spreads records by their new key.

    `optimizable` ones (made by groupings and joins, not by the user) may be merged with their siblings.
    """

    def __init__(
        self,
        topic: str,
        sink: str,
        filter_name: str,
        source: str,
        key: Serde | None,
        value: Serde | None,
        defaults: tuple[Serde, Serde],
        partitioner: Callable[..., int | None] | None = None,
        partitions: int | None = None,
        optimizable: bool = True,
    ) -> None:
        super().__init__(source)
        self.topic, self.sink, self.filter_name = topic, sink, filter_name
        self.key, self.value, self.defaults = key, value, defaults
        self.partitioner, self.partitions = partitioner, partitions
        self.optimizable = optimizable
        self.drop_null_keys = False

    def write(self, topology: Topology) -> None:
        key, value = self.key or self.defaults[0], self.value or self.defaults[1]
        topology.internal_topics[self.topic] = self.partitions
        topology.put_processor(self.filter_name, RepartitionFilter(self.drop_null_keys), *self.parent_names())
        topology.put_sink(Sink(self.sink, self.topic, key, value, self.partitioner, (self.filter_name,)))
        topology.put_source(Source(self.name, (self.topic,), None, key, value))


class TableRepartitionNode(GraphNode):
    """A sink and a source around the internal topic of a table's regrouped changes."""

    def __init__(self, topic: str, sink: str, source: str, key: Serde, value: Serde) -> None:
        super().__init__(source)
        self.topic, self.sink = topic, sink
        self.key, self.value = key, value

    def write(self, topology: Topology) -> None:
        pair = ChangeSerde(self.value)
        topology.internal_topics[self.topic] = None
        topology.put_sink(Sink(self.sink, self.topic, self.key, pair, None, self.parent_names()))
        topology.put_source(Source(self.name, (self.topic,), None, self.key, pair))


class StreamJoinNode(GraphNode):
    """Both sides of a stream-stream join and their meeting point; a self-join needs one side only."""

    relaxed_null_keys = False

    def __init__(
        self,
        name: str,
        windowed: tuple[str, str],
        sides: tuple[str, str],
        ops: tuple[Op, Op],
        merge: Op,
        self_join: Op,
        stores: tuple[tuple[StoreSpec, ...], tuple[StoreSpec, ...]],
        self_stores: tuple[StoreSpec, ...],
    ) -> None:
        super().__init__(name)
        self.windowed, self.sides, self.ops, self.merge = windowed, sides, ops, merge
        self.self_join, self.stores, self.self_stores = self_join, stores, self_stores
        self.is_self_join = False

    def write(self, topology: Topology) -> None:
        if self.is_self_join:
            topology.put_processor(self.name, self.self_join, self.windowed[0])
            for spec in self.self_stores:
                topology.put_store(spec, self.name)
            return
        for side, op, windowed, specs in zip(self.sides, self.ops, self.windowed, self.stores, strict=True):
            topology.put_processor(side, op, windowed)
            for spec in specs:
                topology.put_store(spec, side)
        topology.put_processor(self.name, self.merge, *self.sides)


class TableJoinNode(GraphNode):
    """Both sides of a table-table join and their meeting point."""

    output_versioned = False

    def __init__(
        self,
        name: str,
        sides: tuple[str, str],
        parents: tuple[GraphNode, GraphNode],
        parent_names: tuple[str, str],
        make: Callable[[int, bool], Op],
        table: TableSupplier,
        stores: tuple[tuple[str, ...], tuple[str, ...]],
    ) -> None:
        super().__init__(name)
        self.sides, self.tables, self.table_names = sides, parents, parent_names
        self.make, self.table, self.store_names = make, table, stores
        self.versioned = [False, False]

    def use_versioned(self, parent: GraphNode) -> None:
        for side, table in enumerate(self.tables):
            if table is parent:
                self.versioned[side] = True

    def write(self, topology: Topology) -> None:
        for side in (0, 1):
            topology.put_processor(self.sides[side], self.make(side, self.versioned[side]), self.table_names[side])
        topology.put_processor(self.name, self.table.op(), *self.sides)
        for spec in self.table.specs():
            topology.put_store(spec, self.name)
        topology.connect(self.sides[0], *self.store_names[1])
        topology.connect(self.sides[1], *self.store_names[0])
