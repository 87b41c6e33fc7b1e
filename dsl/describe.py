"""A topology as text: Kafka Streams' own description, Mermaid and Graphviz.

The description follows Kafka Streams to the letter, its order of nodes included, so that tools and eyes trained on it
work. That order comes from sub-tree sizes and Java's hash order, as noted where it matters.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from headwater.dsl.java_order import TreeSet, hash_order
from headwater.dsl.topology import ProcessorNode, Sink, Source, Topology


@dataclass
class _Described:
    name: str
    size: int = 1
    before: TreeSet[_Described] = field(default_factory=lambda: TreeSet(_Described.rank))
    after: TreeSet[_Described] = field(default_factory=lambda: TreeSet(_Described.rank))

    def rank(self) -> tuple[int, str]:
        return -self.size, self.name

    def grow(self, delta: int) -> None:
        self.size += delta
        for parent in self.before:
            parent.grow(delta)


def describe(topology: Topology) -> str:
    """Kafka Streams' `Topology#describe()`."""
    return "Topologies:\n " + "".join(
        "  " + (_global(topology, number, group) if topology.is_global(group) else _sub(topology, number, group))
        for number, group in enumerate(topology.groups())
    )


def _sub(topology: Topology, number: int, group: list[str]) -> str:
    described = {name: _Described(name) for name in hash_order(group)}
    for node in described.values():
        for parent_name in getattr(topology.nodes[node.name], "parents", ()):
            parent = described[parent_name]
            node.before.add(parent)
            # Sizes still grow while the neighbours are filled in, which is why the kind of set matters.
            parent.after.add(node)
            parent.grow(node.size)
    lines = [_text(topology, node) for node in sorted(described.values(), key=_Described.rank)]
    return f"Sub-topology: {number}\n" + "".join(f"    {line}\n" for line in lines) + "\n"


def _global(topology: Topology, number: int, group: list[str]) -> str:
    nodes = [_Described(name) for name in group]
    for parent, child in itertools.pairwise(nodes):
        parent.after.add(child)
        child.before.add(parent)
    lines = "".join(f"    {_text(topology, node)}\n" for node in nodes)
    return f"Sub-topology: {number} for global store (will not generate tasks)\n{lines}"


def _text(topology: Topology, described: _Described) -> str:
    node = topology.nodes[described.name]
    before = f"\n      <-- {_names(described.before)}"
    after = f"\n      --> {_names(described.after)}"
    match node:
        case Source():
            topics = node.pattern.pattern if node.pattern else f"[{', '.join(hash_order(node.topics))}]"
            return f"Source: {node.name} (topics: {topics}){after}"
        case ProcessorNode():
            return f"Processor: {node.name} (stores: [{', '.join(hash_order(node.stores))}]){after}{before}"
        case Sink():
            where = f"topic: {node.topic}" if isinstance(node.topic, str) else f"extractor class: {_called(node.topic)}"
            return f"Sink: {node.name} ({where}){before}"


def _names(nodes: TreeSet[_Described]) -> str:
    return ", ".join(node.name for node in nodes) or "none"


def _called(f: Callable[..., object]) -> str:
    return str(getattr(f, "__name__", type(f).__name__))


def _edges(topology: Topology) -> Iterator[tuple[str, str]]:
    for node in topology.nodes.values():
        for parent in getattr(node, "parents", ()):
            yield parent, node.name


def _shapes(topology: Topology) -> Iterator[tuple[str, str, str]]:
    """(id, kind, label) of every node, store and topic."""
    topics: dict[str, None] = {}
    stores: dict[str, None] = {}
    for node in topology.nodes.values():
        yield node.name, "step", node.name
        match node:
            case Source():
                topics.update(dict.fromkeys(node.topics or (node.pattern.pattern if node.pattern else "",)))
            case Sink():
                topics[node.topic if isinstance(node.topic, str) else _called(node.topic)] = None
            case ProcessorNode():
                stores.update(dict.fromkeys(node.stores))
    for topic in topics:
        yield f"topic {topic}", "topic", topic
    for store in stores:
        yield f"store {store}", "store", store


def _flows(topology: Topology) -> Iterator[tuple[str, str, bool]]:
    """(from, to, whether it is a store's) for every arrow."""
    for node in topology.nodes.values():
        match node:
            case Source():
                for topic in node.topics or (node.pattern.pattern if node.pattern else "",):
                    yield f"topic {topic}", node.name, False
            case Sink():
                yield node.name, f"topic {node.topic if isinstance(node.topic, str) else _called(node.topic)}", False
            case ProcessorNode():
                for store in node.stores:
                    yield node.name, f"store {store}", True
    for parent, child in _edges(topology):
        yield parent, child, False


def to_mermaid(topology: Topology) -> str:
    """A Mermaid flow chart: topics as stadiums, steps as boxes, stores as cylinders."""
    ids = {name: f"n{number}" for number, (name, _, _) in enumerate(_shapes(topology))}
    shapes = {"step": '{}["{}"]', "topic": '{}(["{}"])', "store": '{}[("{}")]'}
    lines = ["flowchart TD"]
    lines += [f"  {shapes[kind].format(ids[name], label)}" for name, kind, label in _shapes(topology)]
    lines += [f"  {ids[a]} {'-.-' if store else '-->'} {ids[b]}" for a, b, store in _flows(topology)]
    return "\n".join(lines) + "\n"


def to_dot(topology: Topology) -> str:
    """A Graphviz digraph: topics as ellipses, steps as boxes, stores as cylinders."""
    shapes = {"step": "box", "topic": "ellipse", "store": "cylinder"}

    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    lines = ["digraph topology {"]
    lines += [
        f"  {quoted(name)} [label={quoted(label)}, shape={shapes[kind]}];" for name, kind, label in _shapes(topology)
    ]
    lines += [
        f"  {quoted(a)} -> {quoted(b)}{' [style=dashed, dir=none]' if store else ''};"
        for a, b, store in _flows(topology)
    ]
    return "\n".join([*lines, "}"]) + "\n"
