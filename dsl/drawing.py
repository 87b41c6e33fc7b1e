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
from headwater.dsl.graph import GraphNode, RepartitionNode, Root, StoreNode
from headwater.dsl.options import text_fault
from headwater.dsl.passes import PASSES, Graph
from headwater.dsl.serde import Serde, serde_fault
from headwater.dsl.stores import Session, StoreDescription, Versioned, Window
from headwater.dsl.topology import StoreSpec, Topology, plain_store
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
        if isinstance(description, Window | Session):
            raise TopologyError(
                [
                    f"store {self.name!r}: a table without windows is kept in a KeyValue or Versioned store, not in a "
                    f"{type(description).__name__}"
                ]
            )
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
        self._built = topology.optimizations = optimize
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
        return generated if self.text("name=", name) is None else self._legal(f"{name}{suffix}")

    @staticmethod
    def text(argument: str, text: str | None) -> str | None:
        """A name or another text as it was given; a TopologyError at once if it is none: nothing can be named by it."""
        fault = text_fault(argument, text)
        if fault:
            raise TopologyError([fault])
        return text

    def _legal(self, name: str) -> str:
        self.text("name=", name)
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

    def check_topic(self, step: str, topic: object) -> None:
        """Note a fault unless Kafka would take the topic's name."""
        if not isinstance(topic, str) or not _LEGAL_NAME.fullmatch(topic) or topic in (".", ".."):
            self.fault(
                step, f"a topic's name is 1 to 249 letters, digits, '.', '_' or '-', not '.' or '..', and not {topic!r}"
            )

    def check_own(self, step: str, other: Any) -> None:
        """Refuse what comes from another builder: its steps would be lost."""
        if other._drawing is not self:
            raise TopologyError([f"{step}: {other!r} comes from another StreamsBuilder: build both with one"])

    def check_serde(self, step: str, argument: str, serde: object) -> None:
        """Note a fault unless the argument is a serde, or left out."""
        fault = None if serde is None else serde_fault(argument, serde)
        if fault:
            self.fault(step, fault)

    def check_supplier(self, step: str, supplier: Any) -> None:
        """Note a fault unless the supplier gives a new processor at every call."""
        for fault in callables.supplier_faults(supplier):
            self.fault(step, fault)

    def check(self, step: str, f: object, positional: int, *, iterates: bool = False) -> bool:
        """Whether the callable takes so many arguments; a fault is noted if not."""
        try:
            callables.check(f, positional, iterates=iterates)
        except ValueError as error:
            self.fault(step, str(error))
            return False
        return True

    def keyed(self, step: str, f: object, short: int, *, iterates: bool = False) -> bool:
        """Whether the callable wants the key in front; a fault is noted if it fits neither form."""
        try:
            return callables.keyed(f, short, iterates=iterates)
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
        given: object = store
        if not isinstance(given, str | StoreDescription | None):
            hint = f": write {given.__name__}(...)" if isinstance(given, type) else ""
            self.fault(prefix.rstrip("-"), f"store= takes a name or a store description, not {given!r}{hint}")
            store = None
        for argument, serde in (("key=", key), ("value=", value)):
            self.check_serde(prefix.rstrip("-"), argument, serde)
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

    def shared_store(self, store: str | StoreDescription) -> str:
        """The name of a store that processors share; one that is described here is added."""
        if isinstance(store, str):
            return store
        spec = self.collect(lambda: plain_store(store, self.default_key, self.default_value))
        if spec is None:
            return ""
        self.add(self.root, StoreNode(spec))
        return str(spec.name)

    def note_unnamed(self, name: str) -> None:
        """Remember a generated name that state or an internal topic hangs on."""
        self._topology.unnamed.append(name)

    def note_inherited(self, step: str, argument: str, given: Serde | None, own: Serde | None, default: Serde) -> None:
        """Remember where a step takes a stream's own serde and Kafka Streams would take the default."""
        if given is None and own is not None and own != default:
            self._topology.inherited_serdes.append(
                f"step {step!r} takes {own!r} from its stream where Kafka Streams takes the default {default!r}: give "
                f"it {argument}"
            )

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
