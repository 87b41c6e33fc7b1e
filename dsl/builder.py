"""`StreamsBuilder`: where a topology begins, and the numbering, faults and store names every step draws on.

Names follow Kafka Streams' counter exactly, burnt numbers included: a name is on-disk identity, and an application
that moves over from Kafka Streams keeps its changelogs.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headwater.dsl import callables
from headwater.dsl.camel import CamelCase
from headwater.dsl.config import Optimize, optimizations
from headwater.dsl.graph import (
    GlobalStoreNode,
    GraphNode,
    RepartitionNode,
    Root,
    SourceNode,
    StoreNode,
    TableSourceNode,
)
from headwater.dsl.ops import Process
from headwater.dsl.passes import PASSES, Graph
from headwater.dsl.serde import Json, Serde, Str
from headwater.dsl.stores import StoreDescription, Versioned
from headwater.dsl.suppliers import SourceTable
from headwater.dsl.topology import Source, StoreSpec, Topology, plain_store
from headwater.errors import TopologyError

if TYPE_CHECKING:
    from headwater.dsl.stream import KStream
    from headwater.dsl.table import GlobalKTable, KTable

log = logging.getLogger("headwater")

_GENERATED = re.compile(r"KSTREAM.*-[0-9]{10}")
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_RESETS = ("earliest", "latest", "none")


@dataclass(frozen=True)
class Materialized:
    """What `store=`, `key=` and `value=` of one step come to."""

    name: str
    queryable: bool
    key: Serde | None
    value: Serde | None
    description: StoreDescription | None

    def key_value(self, key: Serde, value: Serde) -> StoreSpec:
        """The store of an unwindowed table: timestamped, or versioned if asked for."""
        description = self.description or StoreDescription()
        common: dict[str, Any] = {"name": self.name, "key": self.key or key, "value": self.value or value}
        common |= {"changelog": description.changelog, "memory": description.memory}
        if isinstance(description, Versioned):
            return StoreSpec("versioned", retention_ms=description.retention_ms, **common)
        return StoreSpec("timestamped", cached=description.cached is not False, **common)

    @property
    def versioned(self) -> bool:
        """Whether the store keeps versions."""
        return isinstance(self.description, Versioned)


class StreamsBuilder(CamelCase):
    """Builds a topology, step by step.

    >>> from headwater import StreamsBuilder, TopologyTestDriver
    >>> builder = StreamsBuilder()
    >>> builder.stream("orders").filter(lambda key, order: order["amount"] > 10).to("large")
    >>> with TopologyTestDriver(builder.build()) as driver:
    ...     driver.input("orders").send("a", {"amount": 12}, at=0)
    ...     driver.input("orders").send("b", {"amount": 7}, at=1)
    ...     driver.output("large").read_all()
    [Record(key='a', value={'amount': 12}, timestamp=0, headers=())]
    """

    def __init__(self, key: Serde | None = None, value: Serde | None = None) -> None:
        self.default_key: Serde = key if key is not None else Str()
        self.default_value: Serde = value if value is not None else Json()
        self._index = 0
        self._faults: list[str] = []
        self._topology = Topology()
        self._topology.default_key, self._topology.default_value = self.default_key, self.default_value
        self._root = Root("root")
        self._graph = Graph(self._root, self._topology, frozenset(), self._faults, self._merged_repartition)
        self._built: Topology | None = None
        self._optimized: object = None

    # ---- what users call ---------------------------------------------------------------------------------------

    def stream(
        self,
        topics: str | Iterable[str] | re.Pattern[str],
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        timestamp: Callable[..., int] | None = None,
        reset: str | None = None,
        name: str | None = None,
    ) -> KStream:
        """The records of a topic, of several, or of all topics a pattern matches, as a stream.

        >>> from headwater import StreamsBuilder
        >>> builder = StreamsBuilder()
        >>> builder.stream(["eu-orders", "us-orders"]).to("orders")
        >>> print(builder.build().describe())  # doctest: +ELLIPSIS
        Topologies:
           Sub-topology: 0
            Source: KSTREAM-SOURCE-0000000000 (topics: [us-orders, eu-orders])
        ...
        """
        from headwater.dsl.stream import KStream

        name = self.named(name, "KSTREAM-SOURCE-")
        pattern = topics if isinstance(topics, re.Pattern) else None
        names: tuple[str, ...] = ()
        if isinstance(topics, str):
            names = (topics,)
        elif not isinstance(topics, re.Pattern):
            names = tuple(topics)
        if not names and pattern is None:
            self.fault(name, "stream() needs at least one topic")
        self._check_source(name, timestamp, reset)
        node = SourceNode(name, names, pattern, key or self.default_key, value or self.default_value, timestamp, reset)
        self.add(self._root, node)
        return KStream(self, node, name, key, value, frozenset({name}), False)

    def table(
        self,
        topic: str,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        store: str | StoreDescription | None = None,
        timestamp: Callable[..., int] | None = None,
        reset: str | None = None,
        name: str | None = None,
    ) -> KTable:
        """The latest value per key of a topic; a null value deletes, a null key is dropped and counted.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> users = builder.table("users", store="users")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("users").send("ann", "Rome", at=0)
        ...     driver.input("users").send("ann", "Oslo", at=1)
        ...     driver.store("users").get("ann")
        'Oslo'
        """
        from headwater.dsl.table import KTable

        materialized = self.materialized(store, f"{topic}-", key, value)
        key, value = materialized.key, materialized.value
        source_name, table_name, source = self._table_source(topic, key, value, timestamp, reset, name, False)
        spec = materialized.key_value(source.key, source.value)
        table = SourceTable(spec, materialized.queryable)
        node = TableSourceNode(table_name, source, table)
        node.output_versioned = materialized.versioned
        self.add(self._root, node)
        return KTable(self, node, table_name, key, value, frozenset({source_name}), table)

    def global_table(
        self,
        topic: str,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        store: str | StoreDescription | None = None,
        timestamp: Callable[..., int] | None = None,
        name: str | None = None,
    ) -> GlobalKTable:
        """A table that every task holds whole, so that streams may be joined with it by any key.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> rates = builder.global_table("rates")
        >>> builder.stream("prices").join(
        ...     rates, lambda price, rate: price["n"] * rate, select=lambda key, price: price["currency"]).to("euros")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("rates").send("USD", 0.5, at=0)
        ...     driver.input("prices").send("a", {"currency": "USD", "n": 3}, at=1)
        ...     driver.output("euros").read_all()
        [Record(key='a', value=1.5, timestamp=1, headers=())]
        """
        from headwater.dsl.table import GlobalKTable

        materialized = self.materialized(store, f"{topic}-", key, value)
        key, value = materialized.key, materialized.value
        _, table_name, source = self._table_source(topic, key, value, timestamp, None, name, True)
        if materialized.versioned:
            self.fault(table_name, "a global table cannot be versioned: use another store, or table()")
        spec = replace(materialized.key_value(source.key, source.value), changelog=False)
        table = SourceTable(spec, True)
        self.add(self._root, TableSourceNode(table_name, source, table))
        return GlobalKTable(self, table)

    def add_store(self, spec: StoreDescription) -> StreamsBuilder:
        """Add a store for processors that name it in `stores=`."""
        store = self.collect(lambda: plain_store(spec, self.default_key, self.default_value))
        if store is not None:
            self.add(self._root, StoreNode(store))
        return self

    def add_global_store(
        self,
        spec: StoreDescription,
        topic: str,
        processor: Callable[[], Any],
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        timestamp: Callable[..., int] | None = None,
        reset: str | None = None,
        name: str | None = None,
    ) -> StreamsBuilder:
        """Add a store that every task sees whole, kept by the processor from the topic's records."""
        _, processor_name, source = self._table_source(topic, key, value, timestamp, reset, name, True)
        store = self.collect(lambda: plain_store(spec, source.key, source.value))
        self.check(processor_name, processor, 0)
        if store is not None:
            store = replace(store, changelog=False)
            op = Process(processor, stores=(store.name,))
            self.add(self._root, GlobalStoreNode(store, source, processor_name, op))
        return self

    def build(self, optimize: Optimize = False) -> Topology:
        """The finished topology; a TopologyError lists every fault at once.

        `optimize=True` applies all of Kafka Streams' optimisations, or name some: "reuse-source-topics",
        "merge-repartition-topics", "self-join". They change the names of internal topics.
        """
        wanted = optimizations(optimize)
        if self._built is not None:
            if wanted != self._optimized:
                raise TopologyError(["this builder has been built already, with other optimisations: use a new one"])
            return self._built
        self._graph.optimize = wanted
        if not self._faults:
            for a_pass in PASSES:
                a_pass(self._graph)
        if self._faults:
            raise TopologyError(self._faults)
        topology = self._topology
        topology.unnamed = [n for n in topology.unnamed if n in topology.stores or n in topology.internal_topics]
        self._built, self._optimized = topology, wanted
        if topology.unnamed:
            log.warning(
                "State hangs on generated names, which change when steps are added above them; name the steps "
                "(store=, name=) before the first deployment: %s",
                ", ".join(topology.unnamed),
            )
        return topology

    # ---- what steps draw on ------------------------------------------------------------------------------------

    def add(self, parents: GraphNode | Iterable[GraphNode], node: GraphNode) -> None:
        """Hang a node under its parents."""
        if self._built is not None:
            raise TopologyError([f"{node.name}: the topology is built already; steps added now would be lost"])
        for parent in (parents,) if isinstance(parents, GraphNode) else parents:
            self._graph.add(parent, node)

    def copartition(self, *sources: frozenset[str]) -> frozenset[str]:
        """Record that these sources meet in one step and must be partitioned alike."""
        together = frozenset().union(*sources)
        self._topology.copartitioned.append(set(together))
        return together

    def add_internal_topic(self, topic: str) -> None:
        """Announce an internal topic, which gets the application's id in front of its name."""
        self._topology.internal_topics[topic] = None

    def new_name(self, prefix: str) -> str:
        """The next generated name."""
        name = f"{prefix}{self._index:010d}"
        self._index += 1
        return name

    def named(self, name: str | None, prefix: str) -> str:
        """The given name or a generated one; a number is burnt either way."""
        generated = self.new_name(prefix)
        if name is None:
            return generated
        return self._legal(name)

    def suffixed(self, name: str | None, suffix: str, prefix: str) -> str:
        """The given name with a suffix, or a generated one; a number is burnt either way."""
        generated = self.new_name(prefix)
        return generated if name is None else self._legal(name + suffix)

    def _legal(self, name: str) -> str:
        if not _LEGAL_NAME.fullmatch(name) or name in (".", ".."):
            self.fault(
                name, "a name may hold letters, digits, '.', '_' and '-' only, 249 at most, and not be '.' or '..'"
            )
        return name

    def fault(self, step: str, text: str) -> None:
        """Note what is wrong with a step; `build()` raises all faults together."""
        self._faults.append(f"{step}: {text}")

    def collect(self, make: Callable[[], Any]) -> Any:
        """What `make()` gives; None if it raised a TopologyError, whose faults are noted."""
        try:
            return make()
        except TopologyError as error:
            self._faults.extend(error.faults)
            return None

    def check(self, step: str, f: object, positional: int) -> None:
        """Note a fault unless the callable takes so many arguments."""
        try:
            callables.check(f, positional)
        except ValueError as error:
            self.fault(step, str(error))

    def keyed(self, step: str, f: object, short: int) -> bool:
        """Whether the callable wants the key in front; a fault is noted if it fits neither form."""
        try:
            return callables.keyed(f, short)
        except ValueError as error:
            self.fault(step, str(error))
            return False

    def materialized(
        self,
        store: str | StoreDescription | None,
        prefix: str,
        key: Serde | None = None,
        value: Serde | None = None,
    ) -> Materialized:
        """What a step's `store=`, `key=` and `value=` mean; a store without a name gets a generated one."""
        description = store if isinstance(store, StoreDescription) else None
        name = store if isinstance(store, str) else (description.name if description else None)
        queryable = name is not None
        if name is None:
            name = self.new_name(f"{prefix}STATE-STORE-")
            self.note_unnamed(name)
        else:
            self._legal(name)
        if description is not None:
            key, value = description.key or key, description.value or value
        return Materialized(name, queryable, key, value, description)

    def note_unnamed(self, name: str) -> None:
        """Remember a generated name that state or an internal topic hangs on."""
        self._topology.unnamed.append(name)

    def repartition(
        self,
        stem: str,
        key: Serde | None,
        value: Serde | None,
        named: bool,
        partitioner: Callable[..., int | None] | None = None,
        partitions: int | None = None,
        optimizable: bool = True,
    ) -> RepartitionNode:
        """A repartition around the topic `<stem>-repartition`."""
        topic = stem if stem.endswith("-repartition") else f"{stem}-repartition"
        if not named:
            self.note_unnamed(topic)
        sink = self.new_name("KSTREAM-SINK-")
        filter_name = self.new_name("KSTREAM-FILTER-")
        source = self.new_name("KSTREAM-SOURCE-")
        if not _GENERATED.fullmatch(stem):
            sink, filter_name, source = f"{topic}-sink", f"{topic}-filter", f"{topic}-source"
        return RepartitionNode(
            topic,
            sink,
            filter_name,
            source,
            key,
            value,
            (self.default_key, self.default_value),
            partitioner,
            partitions,
            optimizable,
        )

    def _merged_repartition(self, first: RepartitionNode) -> RepartitionNode:
        return self.repartition(first.topic, None, None, True)

    def _table_source(
        self,
        topic: str,
        key: Serde | None,
        value: Serde | None,
        timestamp: Callable[..., int] | None,
        reset: str | None,
        name: str | None,
        is_global: bool,
    ) -> tuple[str, str, Source]:
        source_name = self.suffixed(name, "-source", "KSTREAM-SOURCE-")
        table_name = self.named(name, "KTABLE-SOURCE-")
        self._check_source(table_name, timestamp, reset)
        key, value = key or self.default_key, value or self.default_value
        return source_name, table_name, Source(source_name, (topic,), None, key, value, timestamp, reset, is_global)

    def _check_source(self, step: str, timestamp: object, reset: str | None) -> None:
        if timestamp is not None:
            self.check(step, timestamp, 2)
        if reset is not None and reset not in _RESETS:
            self.fault(step, f"reset= must be one of {', '.join(_RESETS)}, not {reset!r}")
