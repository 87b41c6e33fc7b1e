"""From the logical graph to a topology: the passes of `build()`, in the order of the list at the end.

Their names, order and effects are Kafka Streams' own, so that optimised topologies get the same internal topics.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from headwater.dsl.graph import (
    GraphNode,
    RepartitionNode,
    SourceNode,
    StepNode,
    StreamJoinNode,
    SuppressNode,
    TableSourceNode,
)
from headwater.dsl.ops import StreamTableJoin
from headwater.dsl.suppliers import stores_of
from headwater.dsl.topology import ProcessorNode, Topology
from headwater.errors import TopologyError


@dataclass
class Graph:
    """The logical graph and what the passes need to know about it."""

    root: GraphNode
    topology: Topology
    optimize: frozenset[str]
    faults: list[str]
    make_repartition: Callable[[RepartitionNode], RepartitionNode]
    key_changers: dict[GraphNode, list[RepartitionNode]] = field(default_factory=dict)
    merges: list[GraphNode] = field(default_factory=list)
    priorities: Iterator[int] = field(default_factory=itertools.count)

    def add(self, parent: GraphNode, child: GraphNode) -> None:
        """Hang a node under a parent, remembering what the optimiser looks for."""
        parent.add_child(child)
        child.priority = next(self.priorities)
        if child.key_changing:
            self.key_changers[child] = []
        elif isinstance(child, RepartitionNode) and child.optimizable:
            changer = _key_changer(child)
            if changer is not None and child not in self.key_changers[changer]:
                self.key_changers[changer].append(child)
        elif child.is_merge and child not in self.merges:
            self.merges.append(child)

    def nodes(self) -> list[GraphNode]:
        """All nodes, each once, in the order they were added."""
        seen: dict[int, GraphNode] = {}
        waiting = [self.root]
        while waiting:
            node = waiting.pop()
            if id(node) not in seen:
                seen[id(node)] = node
                waiting.extend(node.children)
        return sorted(seen.values(), key=lambda node: node.priority)


def find_above(node: GraphNode, wanted: Callable[[GraphNode], bool]) -> GraphNode | None:
    """The node itself or the first ancestor that is wanted, searching depth first."""
    if wanted(node):
        return node
    for parent in node.parents:
        if (found := find_above(parent, wanted)) is not None:
            return found
    return None


def _child_above(node: GraphNode, parent: GraphNode) -> GraphNode | None:
    """The parent's own child on the way up from a node to it; None if the way does not lead there."""
    return find_above(node, lambda above: parent in above.parents)


def _key_changer(repartition: GraphNode) -> GraphNode | None:
    """The key-changing step above a repartition, unless a value-changing one lies between."""
    first = find_above(repartition, lambda n: n.key_changing or n.value_changing)
    changer = find_above(repartition, lambda n: n.key_changing)
    return changer if first is changer else None


def merge_duplicate_sources(graph: Graph) -> None:
    """Let streams over the same topics or pattern share one source."""
    first: dict[object, SourceNode] = {}
    for node in list(graph.root.children):
        if not isinstance(node, SourceNode):
            continue
        names: tuple[object, ...] = node.topics
        if node.pattern is not None:
            names = ((node.pattern.pattern, node.pattern.flags),)
        for topic in names:
            main = first.setdefault(topic, node)
            if main is node:
                continue
            if set(main.topics) != set(node.topics):
                graph.faults.append(
                    f"sources {main.name!r} and {node.name!r} read overlapping but different topics "
                    f"({', '.join(main.topics)} / {', '.join(node.topics)}): give each topic one source, then merge()"
                )
            elif main.reset != node.reset:
                graph.faults.append(
                    f"sources {main.name!r} and {node.name!r} read the same topics with different reset= policies"
                )
            else:
                for child in list(node.children):
                    node.remove_child(child)
                    main.add_child(child)
                graph.root.remove_child(node)
            break


def reuse_source_topics(graph: Graph) -> None:
    """Let source tables restore from their own topic instead of a changelog."""
    if "reuse-source-topics" in graph.optimize:
        for node in graph.nodes():
            if isinstance(node, TableSourceNode):
                node.reuse_topic = True


def merge_repartition_topics(graph: Graph) -> None:
    """Give the repartitions below one key-changing step a single topic, right below that step."""
    if "merge-repartition-topics" not in graph.optimize:
        return
    _move_below_merges(graph)
    for changer, repartitions in list(graph.key_changers.items()):
        if not repartitions:
            continue
        merged = graph.make_repartition(repartitions[0])
        merged.key = next((r.key for r in repartitions if r.key is not None), None)
        merged.value = next((r.value for r in repartitions if r.value is not None), None)
        merged.priority = changer.priority
        for old in repartitions:
            below = _child_above(old, changer)
            assert below is not None
            merged.add_child(below)
            changer.remove_child(below)
            parents, children = list(old.parents), list(old.children)
            for child in children:
                for parent in parents:
                    parent.add_child(child)
            for parent in parents:
                parent.remove_child(old)
            for child in children:
                old.remove_child(child)
            for group in graph.topology.copartitioned:
                if old.name in group:
                    group.remove(old.name)
                    group.add(merged.name)
        changer.add_child(merged)
        del graph.key_changers[changer]


def _move_below_merges(graph: Graph) -> None:
    """Where several key-changing steps flow through a merge into the same repartitions, the merge stands for them."""
    replaced: list[GraphNode] = []
    for merge in graph.merges:
        changers = [
            changer
            for changer, repartitions in graph.key_changers.items()
            if all(_child_above(repartition, merge) is not None for repartition in repartitions)
            and _child_above(merge, changer) is not None
        ]
        together = [r for changer in changers for r in graph.key_changers[changer]]
        replaced.extend(changers)
        graph.key_changers[merge] = list(dict.fromkeys(together))
    for changer in replaced:
        graph.key_changers.pop(changer, None)


def rewrite_self_joins(graph: Graph) -> None:
    """A stream joined with itself needs one store, not two."""
    if "self-join" not in graph.optimize:
        return
    for node in graph.nodes():
        if isinstance(node, StreamJoinNode) and len(node.parents) == 1:
            parent = node.parents[0]
            for child in list(parent.children):
                if isinstance(child, StepNode) and child.name == node.windowed[1]:
                    parent.remove_child(child)
            node.is_self_join = True


def drop_null_keys(graph: Graph) -> None:
    """Keep records without a key out of repartition topics, unless a left or outer join below still wants them."""
    wanted: set[int] = set()
    seen: set[int] = set()

    def visit(node: GraphNode) -> None:
        if id(node) in seen:
            return
        for child in node.children:
            visit(child)
            if child.relaxed_null_keys or id(child) in wanted:
                wanted.add(id(node))
        seen.add(id(node))

    visit(graph.root)
    for node in graph.nodes():
        if isinstance(node, RepartitionNode):
            node.drop_null_keys = id(node) not in wanted


def enable_versioned(graph: Graph) -> None:
    """Tell operators below versioned tables that updates may be out of order; suppress refuses those."""
    memo: dict[int, bool] = {}

    def versioned(node: GraphNode) -> bool:
        if node.output_versioned is not None:
            return node.output_versioned
        if id(node) not in memo:
            memo[id(node)] = node is not graph.root and all(versioned(parent) for parent in node.parents)
        return memo[id(node)]

    for node in graph.nodes():
        for parent in node.parents:
            if versioned(parent):
                node.use_versioned(parent)
        if isinstance(node, SuppressNode) and node.parents and all(versioned(parent) for parent in node.parents):
            graph.faults.append(
                f"{node.name}: suppress() works on tables without versions only (they are inherited from upstream)"
            )


def write(graph: Graph) -> None:
    """Add every node to the topology, parents first, in the order of the user's calls."""
    counter = itertools.count()
    faulty: set[GraphNode] = set()
    queue = [(graph.root.priority, next(counter), graph.root)]
    while queue:
        _, _, node = heapq.heappop(queue)
        if not node.written and all(parent.written for parent in node.parents):
            node.written = True
            # Below a node with a fault there would be nothing but the same fault again.
            if any(parent in faulty for parent in node.parents):
                faulty.add(node)
            else:
                try:
                    node.write(graph.topology)
                except TopologyError as error:
                    graph.faults.extend(error.faults)
                    faulty.add(node)
        for child in node.children:
            heapq.heappush(queue, (child.priority, next(counter), child))


def check_copartitioned(graph: Graph) -> None:
    """Repartition topics that meet in a join and all have explicit partition counts must agree."""
    topology = graph.topology
    topics_of = {source.name: source.topics for source in topology.sources()}
    for group in topology.copartitioned:
        topics = {topic for name in group for topic in topics_of.get(name, ())}
        explicit = {topic: count for topic in topics if (count := topology.internal_topics.get(topic)) is not None}
        if explicit and explicit.keys() == topics and len(set(explicit.values())) > 1:
            counts = ", ".join(f"{topic}={count}" for topic, count in sorted(explicit.items()))
            graph.faults.append(f"Following topics do not have the same number of partitions: [{counts}]")


def check_grace(graph: Graph) -> None:
    """A stream-table join that waits for late table updates needs a table that still knows its past."""
    for node in graph.topology.nodes.values():
        if not (isinstance(node, ProcessorNode) and isinstance(node.op, StreamTableJoin)):
            continue
        grace_ms = node.op.grace_ms
        for spec in (graph.topology.stores[name] for name in stores_of(node.op.table)):
            if grace_ms is not None and spec.kind != "versioned":
                graph.faults.append(
                    f"{node.name}: grace= needs a versioned table: use store=Versioned({spec.name!r}, retention=...)"
                )
            elif grace_ms is not None and grace_ms > spec.retention_ms:
                graph.faults.append(
                    f"{node.name}: grace ({grace_ms} ms) must not exceed the history retention of {spec.name!r} "
                    f"({spec.retention_ms} ms)"
                )


PASSES: tuple[Callable[[Graph], None], ...] = (
    merge_duplicate_sources,
    reuse_source_topics,
    merge_repartition_topics,
    rewrite_self_joins,
    drop_null_keys,
    enable_versioned,
    write,
    check_copartitioned,
    check_grace,
)
