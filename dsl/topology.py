"""A topology: sources, processors, sinks and stores by name, as both the DSL and the low-level API write them down.

It owns names, parents, store connections and the split into sub-topologies. It knows neither the DSL that wrote it
nor what runs it. Nodes are kept in the order they were added, which is a topological order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from headwater.dsl.callables import check, place, supplier_faults
from headwater.dsl.camel import CamelCase
from headwater.dsl.ops import Op, Process
from headwater.dsl.options import text_fault
from headwater.dsl.serde import Json, Serde, Str, serde_fault
from headwater.dsl.stores import KeyValue, Session, StoreDescription, TimestampedKeyValue, Versioned, Window
from headwater.errors import TopologyError

Kind = Literal[
    "key-value", "timestamped", "versioned", "window", "session", "suppressed", "grace", "unmatched", "subscriptions"
]


@dataclass(frozen=True)
class StoreSpec:
    """One store, with everything decided: kind, serdes, retention, caching."""

    kind: Kind
    name: str
    key: Serde
    value: Serde
    other_value: Serde | None = None  # "unmatched" only: the right side's
    timestamped: bool = False  # "window" only: rows are (value, timestamp)
    duplicates: bool = False  # "window" only
    retention_ms: int = 0
    size_ms: int = 0  # "window" only: of the windows in it
    on_close: bool = False  # "window" and "session" only: its aggregate emits on close
    cached: bool = False
    changelog: bool = True
    memory: bool = False
    kept: str = ""  # the name its rows are kept under, if it has been renamed
    formerly: tuple[str, ...] = ()  # names that an earlier version kept its steps' memory under

    @property
    def rows(self) -> str:
        """The name its rows are kept under."""
        return self.kept or self.name


@dataclass(frozen=True)
class Source:
    """Records of some topics, decoded."""

    name: str
    topics: tuple[str, ...]
    pattern: re.Pattern[str] | None
    key: Serde
    value: Serde
    timestamp: Callable[..., int] | None = None
    reset: str | None = None
    is_global: bool = False


@dataclass(frozen=True)
class ProcessorNode:
    """An operator, its parents and the stores it may touch."""

    name: str
    op: Op
    parents: tuple[str, ...]
    stores: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Sink:
    """Records encoded and written to a topic, or to the topic `topic(key, value, context)` names."""

    name: str
    topic: str | Callable[..., str]
    key: Serde
    value: Serde
    partitioner: Callable[..., int | None] | None
    parents: tuple[str, ...]


Node = Source | ProcessorNode | Sink
RESETS = ("earliest", "latest", "none")


class Topology(CamelCase):
    """Sources, processors and sinks, wired by name.

    >>> from headwater import Processor, Topology, TopologyTestDriver
    >>> class Shout(Processor):
    ...     def process(self, record):
    ...         self.context.forward(record.replace(value=record.value.upper()))
    >>> topology = (Topology().add_source("in", "words").add_processor("shout", Shout, "in")
    ...     .add_sink("out", "shouts", "shout"))
    >>> with TopologyTestDriver(topology) as driver:
    ...     driver.input("words").send("k", "hello", at=1)
    ...     driver.output("shouts").read_all()
    [Record(key='k', value='HELLO', timestamp=1, headers=())]
    """

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.stores: dict[str, StoreSpec] = {}
        self.global_stores: dict[str, StoreSpec] = {}
        self.internal_topics: dict[str, int | None] = {}
        self.copartitioned: list[set[str]] = []
        self.source_changelogs: dict[str, str] = {}
        self.unnamed: list[str] = []
        # The optimisations it was built with; None if no builder made it, so that there was nothing to optimise.
        self.optimizations: frozenset[str] | None = None
        # The numbers of sub-topologies in the ids of their tasks, where state has them under others than now.
        self.numbers: dict[int, int] = {}
        # Where a step has taken a stream's own serde instead of the default, which Kafka Streams would take.
        self.inherited_serdes: list[str] = []
        self.default_key: Serde = Str()
        self.default_value: Serde = Json()
        self._links: list[tuple[str, str]] = []
        self._users: dict[str, str] = {}

    # ---- the low-level API -------------------------------------------------------------------------------------

    def add_source(
        self,
        name: str,
        *topics: str | re.Pattern[str],
        key: Serde | None = None,
        value: Serde | None = None,
        timestamp: Callable[..., int] | None = None,
        reset: str | None = None,
    ) -> Topology:
        """Add a node that emits the records of the topics (or of those a pattern matches).

        >>> import re
        >>> from headwater import Topology, TopologyTestDriver
        >>> topology = Topology().add_source("in", re.compile("orders-.*")).add_sink("out", "all", "in")
        >>> with TopologyTestDriver(topology) as driver:
        ...     driver.input("orders-eu").send("k", 1, at=0)
        ...     driver.output("all").read_all()
        [Record(key='k', value=1, timestamp=0, headers=())]
        """
        patterns = [t for t in topics if isinstance(t, re.Pattern)]
        names = tuple(t for t in topics if isinstance(t, str))
        if not topics or (patterns and (names or len(patterns) > 1)):
            raise TopologyError([f"source {name!r} needs topic names, or exactly one pattern"])
        _check_step(f"source {name!r}", key, value, (("timestamp=", timestamp, 2),))
        if reset is not None and reset not in RESETS:
            raise TopologyError([f"source {name!r}: reset= must be one of {', '.join(RESETS)}, not {reset!r}"])
        self._add(
            Source(
                name,
                names,
                patterns[0] if patterns else None,
                key or self.default_key,
                value or self.default_value,
                timestamp,
                reset,
            )
        )
        return self

    def add_processor(self, name: str, supplier: Callable[[], Any], *parents: str) -> Topology:
        """Add a node that runs the processor the supplier (a class or a zero-argument callable) makes.

        >>> from headwater import Processor, Topology, TopologyTestDriver
        >>> class Show(Processor):
        ...     def process(self, record):
        ...         print(record.value)
        >>> with TopologyTestDriver(Topology().add_source("in", "words").add_processor("show", Show, "in")) as driver:
        ...     driver.input("words").send("k", "hello", at=0)
        hello
        """
        faults = supplier_faults(supplier)
        if faults:
            raise TopologyError([f"processor {name!r}: {fault}" for fault in faults])
        self._add(ProcessorNode(name, Process(supplier), parents))
        return self

    def add_store(self, spec: StoreDescription, *processors: str) -> Topology:
        """Add a store and give the processors access to it.

        >>> from headwater import KeyValue, Processor, Topology, TopologyTestDriver
        >>> topology = Topology().add_source("in", "words").add_processor("count", Processor, "in")
        >>> with TopologyTestDriver(topology.add_store(KeyValue("counts"), "count")) as driver:
        ...     driver.store("counts").put("k", 1)
        ...     driver.store("counts").get("k")
        1
        """
        self.put_shared_store(plain_store(spec, self.default_key, self.default_value), *processors)
        return self

    def add_sink(
        self,
        name: str,
        topic: str | Callable[..., str],
        *parents: str,
        key: Serde | None = None,
        value: Serde | None = None,
        partitioner: Callable[..., int | None] | None = None,
    ) -> Topology:
        """Add a node that writes to a topic, or to the one `topic(key, value, context)` names.

        >>> from headwater import Topology, TopologyTestDriver
        >>> topology = Topology().add_source("in", "words").add_sink("out", lambda k, v, c: f"{c.topic}-copy", "in")
        >>> with TopologyTestDriver(topology) as driver:
        ...     driver.input("words").send("k", "hello", at=0)
        ...     driver.output("words-copy").read_all()
        [Record(key='k', value='hello', timestamp=0, headers=())]
        """
        chosen = topic if callable(topic) else None
        if chosen is None and not (isinstance(topic, str) and topic):
            raise TopologyError([f"sink {name!r} needs a topic's name, or a function that names one, not {topic!r}"])
        _check_step(f"sink {name!r}", key, value, (("topic", chosen, 3), ("partitioner=", partitioner, 4)))
        self._add(Sink(name, topic, key or self.default_key, value or self.default_value, partitioner, parents))
        return self

    def describe(self) -> str:
        """The topology as Kafka Streams prints it.

        >>> from headwater import Topology
        >>> print(Topology().add_source("in", "words").add_sink("out", "copies", "in").describe())
        Topologies:
           Sub-topology: 0
            Source: in (topics: [words])
              --> out
            Sink: out (topic: copies)
              <-- in
        <BLANKLINE>
        <BLANKLINE>
        """
        from headwater.dsl.describe import describe

        return describe(self)

    def to_mermaid(self) -> str:
        """The topology as a Mermaid flow chart.

        >>> from headwater import Topology
        >>> print(Topology().add_source("in", "words").to_mermaid())
        flowchart TD
          n0["in"]
          n1(["words"])
          n1 --> n0
        <BLANKLINE>
        """
        from headwater.dsl.describe import to_mermaid

        return to_mermaid(self)

    def to_dot(self) -> str:
        """The topology as a Graphviz digraph.

        >>> from headwater import Topology
        >>> print(Topology().add_source("in", "words").to_dot())
        digraph topology {
          "in" [label="in", shape=box];
          "topic words" [label="words", shape=ellipse];
          "topic words" -> "in";
        }
        <BLANKLINE>
        """
        from headwater.dsl.describe import to_dot

        return to_dot(self)

    # ---- what the DSL writes -----------------------------------------------------------------------------------

    def put_source(self, source: Source) -> None:
        """Add a source; its topics must not be read by another one."""
        self._add(source)

    def put_processor(self, name: str, op: Op, *parents: str) -> None:
        """Add an operator under its parents."""
        self._add(ProcessorNode(name, op, parents))

    def put_sink(self, sink: Sink) -> None:
        """Add a sink under its parents."""
        self._add(sink)

    def put_shared_store(self, spec: StoreSpec, *processors: str) -> None:
        """Add a store that processors share by its name; adding an equal one again is adding it once."""
        known = self.stores.get(spec.name)
        self.put_store(known if known == spec else spec, *processors)

    def put_store(self, spec: StoreSpec, *processors: str) -> None:
        """Add a step's own store (again, if it is this very one) and connect the processors to it."""
        known = self.stores.get(spec.name)
        # Not equal, but the same: two steps that both say store="x" would count into one.
        if known is not None and known is not spec:
            raise TopologyError([f"a different store named {spec.name!r} has already been added: choose another name"])
        if spec.name in self.global_stores:
            raise TopologyError([f"a global store named {spec.name!r} has already been added: choose another name"])
        self.stores[spec.name] = spec
        for processor in processors:
            self.connect(processor, spec.name)

    def put_global_store(self, spec: StoreSpec, source: Source, processor: str, op: Op) -> None:
        """Add a store that every task sees whole, kept by one processor from one topic."""
        if spec.name in self.stores or spec.name in self.global_stores:
            raise TopologyError([f"a store named {spec.name!r} has already been added: choose another name"])
        self._add(source)
        self.global_stores[spec.name] = spec
        self._add(ProcessorNode(processor, op, (source.name,), [spec.name]))
        self.source_changelogs[spec.name] = source.topics[0]

    def connect(self, processor: str, *stores: str) -> None:
        """Give a processor access to stores; all users of a store share one sub-topology."""
        for store in stores:
            node = self.nodes.get(processor)
            if store in self.global_stores:
                raise TopologyError(
                    [f"{processor!r} reads the global store {store!r} anyway: leave it out of its stores"]
                )
            if store not in self.stores:
                raise TopologyError([f"{processor!r} uses the store {store!r}, which was not added: add_store() it"])
            if not isinstance(node, ProcessorNode):
                raise TopologyError([f"the store {store!r} goes to {processor!r}, which is no processor"])
            first = self._users.setdefault(store, processor)
            self._links.append((first, processor))
            if store not in node.stores:
                node.stores.append(store)

    def _add(self, node: Node) -> None:
        fault = text_fault("a step's name", node.name, optional=False)
        if fault:
            raise TopologyError([fault])
        if node.name in self.nodes:
            raise TopologyError([f"a step named {node.name!r} has already been added: choose another name"])
        if isinstance(node, Source):
            self._check_topics(node)
        else:
            self._check_parents(node)
            self._links.extend((parent, node.name) for parent in node.parents)
        self.nodes[node.name] = node

    def _check_parents(self, node: ProcessorNode | Sink) -> None:
        if not node.parents:
            raise TopologyError([f"step {node.name!r} has no parent: name at least one"])
        for parent in node.parents:
            if parent not in self.nodes:
                raise TopologyError([f"step {node.name!r} has an unknown parent {parent!r}: add the parent first"])
            if isinstance(self.nodes[parent], Sink):
                raise TopologyError([f"step {node.name!r} cannot have the sink {parent!r} as its parent"])

    def _check_topics(self, source: Source) -> None:
        for other in self.sources():
            for topic in source.topics:
                if topic in other.topics or (other.pattern and other.pattern.fullmatch(topic)):
                    raise TopologyError(
                        [f"topic {topic!r} of source {source.name!r} is already read by source {other.name!r}"]
                    )
            if source.pattern and any(source.pattern.fullmatch(topic) for topic in other.topics):
                raise TopologyError(
                    [f"pattern {source.pattern.pattern!r} matches a topic that source {other.name!r} already reads"]
                )

    # ---- what others ask ---------------------------------------------------------------------------------------

    def sources(self) -> list[Source]:
        """All sources, global ones too."""
        return [node for node in self.nodes.values() if isinstance(node, Source)]

    def children(self, name: str) -> list[str]:
        """The nodes fed by this one, in the order they were added."""
        return [n.name for n in self.nodes.values() if not isinstance(n, Source) for p in n.parents if p == name]

    def groups(self) -> list[list[str]]:
        """The sub-topologies: nodes joined by edges or shared stores, in topological order."""
        root = {name: name for name in self.nodes}

        def find(name: str) -> str:
            while root[name] != name:
                root[name] = root[root[name]]
                name = root[name]
            return name

        for a, b in self._links:
            root[find(a)] = find(b)
        groups: dict[str, list[str]] = {}
        for name in self.nodes:
            groups.setdefault(find(name), []).append(name)
        return list(groups.values())

    def is_global(self, group: Iterable[str]) -> bool:
        """Whether a sub-topology keeps a global store (it makes no tasks)."""
        return any(isinstance(node := self.nodes[name], Source) and node.is_global for name in group)


def _check_step(
    step: str, key: object, value: object, functions: Iterable[tuple[str, Callable[..., Any] | None, int]]
) -> None:
    """Raise what is wrong with the serdes and functions of a source or sink; None is one that was left out."""
    faults = [
        f"{step}: {fault}"
        for argument, serde in (("key=", key), ("value=", value))
        if serde is not None and (fault := serde_fault(argument, serde))
    ]
    for argument, f, positional in functions:
        try:
            if f is not None:
                check(f, positional)
        except ValueError as error:
            faults.append(f"{step}: {argument} {error}")
    if faults:
        raise TopologyError(faults)


def plain_store(spec: StoreDescription, key: Serde, value: Serde) -> StoreSpec:
    """The store a description means when a user adds it by hand: key-value and window stores are plain."""
    if not isinstance(spec, StoreDescription):
        raise TopologyError([f"add_store() takes a store description such as KeyValue('name'), not {spec!r}"])
    if spec.name is None:
        raise TopologyError(["add_store() needs a store with a name"])
    key, value = spec.key or key, spec.value or value
    common: dict[str, Any] = {
        "name": spec.name,
        "key": key,
        "value": value,
        "cached": bool(spec.cached),
        "changelog": spec.changelog,
        "memory": spec.memory,
    }
    match spec:
        case KeyValue():
            return StoreSpec("key-value", **common)
        case TimestampedKeyValue():
            return StoreSpec("timestamped", **common)
        case Versioned():
            return StoreSpec("versioned", retention_ms=spec.retention_ms, **common)
        case Window():
            if spec.retention_ms is None or spec.size_ms is None:
                raise TopologyError([f"window store {spec.name!r} needs size= and retention="])
            return StoreSpec(
                "window",
                timestamped=spec.timestamped,
                duplicates=spec.duplicates,
                retention_ms=spec.retention_ms,
                size_ms=spec.size_ms,
                **common,
            )
        case Session():
            if spec.retention_ms is None:
                raise TopologyError([f"session store {spec.name!r} needs retention="])
            return StoreSpec("session", retention_ms=spec.retention_ms, **common)
    raise TopologyError([f"{place(type(spec))}: not a store description: {spec!r}"])
