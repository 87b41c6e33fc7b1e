"""The drawing board under a builder: the logical graph, and the numbering, faults and stores every step draws on.

Names follow Kafka Streams' counter exactly, burnt numbers included: a name is on-disk identity, and an application
that moves over from Kafka Streams keeps its changelogs.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from headwater.dsl import callables
from headwater.dsl.graph import GraphNode, RepartitionNode, Root
from headwater.dsl.passes import PASSES, Graph
from headwater.dsl.serde import Serde
from headwater.dsl.stores import StoreDescription, Versioned
from headwater.dsl.topology import StoreSpec, Topology
from headwater.errors import TopologyError

log = logging.getLogger("headwater")

_GENERATED = re.compile(r"KSTREAM.*-[0-9]{10}")
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


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


class Drawing:
    """A topology being drawn; everything made from one builder shares it."""

    def __init__(self, key: Serde, value: Serde) -> None:
        self.default_key = key
        self.default_value = value
        self.root = Root("root")
        self._index = 0
        self._faults: list[str] = []
        self._topology = Topology()
        self._topology.default_key, self._topology.default_value = key, value
        self._graph = Graph(self.root, self._topology, frozenset(), self._faults, self._merged_repartition)
        self._built: frozenset[str] | None = None  # the optimisations it was built with

    def build(self, optimize: frozenset[str]) -> Topology:
        """Run the passes, once, and give the topology; a TopologyError lists every fault."""
        topology = self._topology
        if self._built is not None:
            if optimize != self._built:
                raise TopologyError(["this builder has been built already, with other optimisations: use a new one"])
            return topology
        self._graph.optimize = optimize
        if not self._faults:
            for a_pass in PASSES:
                a_pass(self._graph)
        if self._faults:
            raise TopologyError(self._faults)
        topology.unnamed = [n for n in topology.unnamed if n in topology.stores or n in topology.internal_topics]
        self._built = optimize
        if topology.unnamed:
            log.warning(
                "State hangs on generated names, which change when steps are added above them; name the steps "
                "(store=, name=) before the first deployment: %s",
                ", ".join(topology.unnamed),
            )
        return topology

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
