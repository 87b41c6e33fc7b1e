"""From a topology to the stages of a Spark query: which sub-topologies there are, in which order they run within a
batch, who reads which topic. It owns the cut of sub-topologies that feed each other in a circle (foreign-key joins)
into levels, and where each one runs; it runs nothing.

Within a batch every stage runs once, after all that feed it. A sub-topology that also needs what others make of its own
results is cut: one stage for the steps before, one for those after. The later one keeps its own copy of the tables that
its steps look into, from the same input; in a copy nothing is printed, counted or sent to the dead letters.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from headwater.dsl import ops
from headwater.dsl.config import Config
from headwater.dsl.topology import Node, ProcessorNode, Sink, Source, Topology
from headwater.errors import TopologyError
from headwater.streams.plan import plan
from headwater.streams.task import TaskSpec

__all__ = ["Stage", "Stages", "needs_clock", "stages"]


@dataclass(frozen=True)
class Stage:
    """A sub-topology, or a level of one, on all its shards.

    `arrow`: it keeps nothing and reads one topic, so that it runs where the records are read. `task`: it has state.
    `native`: it is all expressions, and runs without Python.
    """

    number: int
    name: str
    kind: Literal["arrow", "native", "task"]
    spec: TaskSpec | None  # of shard 0; None for a stage that only keeps global tables
    shards: int
    topics: tuple[str, ...]  # what it reads, by the names outside
    copied: frozenset[str]  # those of them that only feed copies
    circle: frozenset[str]  # the topics that go round the circle it is part of; none if it is part of none
    global_task: TaskSpec | None

    @property
    def tag(self) -> str | None:
        """The header under which records that go round say how far who asked was; None if nobody keeps copies of it."""
        group, _, level = self.name.partition(".")
        return f"headwater-{group}" if level else None

    @property
    def answers(self) -> frozenset[str]:
        """Those of its topics that bring the answers of a foreign-key join."""
        if self.spec is None:
            return frozenset()
        nodes = self.spec.topology.nodes.values()
        resolving = [n.parents for n in nodes if isinstance(n, ProcessorNode) and isinstance(n.op, ops.ResponseJoin)]
        named = {name for parents in resolving for name in parents}
        return frozenset(
            f"{self.spec.config.app_id}-{topic}"
            for node in nodes
            if isinstance(node, Source) and node.name in named
            for topic in node.topics
        )

    @property
    def muted(self) -> frozenset[str]:
        """The steps that only keep copies."""
        return frozenset() if self.spec is None else self.spec.muted

    def stores(self) -> list[str]:
        """The stores whose rows in this stage are the application's: not the copies, not the global ones."""
        if self.spec is None:
            return []
        nodes = [self.spec.topology.nodes[name] for name in self.spec.nodes if name not in self.muted]
        written = {store for node in nodes if isinstance(node, ProcessorNode) for store in _writes(node)}
        # A store that nobody writes here but no copy keeps either is one that its steps only read.
        copied = {
            store
            for name in self.muted
            if isinstance(node := self.spec.topology.nodes[name], ProcessorNode)
            for store in _writes(node)
        }
        return [store.name for store in self.spec.stores() if store.name in written or store.name not in copied]


@dataclass(frozen=True)
class Stages:
    """All stages in the order they run, and how many partitions each topic has (by the names outside)."""

    stages: tuple[Stage, ...]
    partitions: Mapping[str, int]
    internal: frozenset[str]
    global_topics: frozenset[str]

    def readers(self, topic: str) -> list[Stage]:
        """The stages that read a topic as an input of their own."""
        return [stage for stage in self.stages if topic in stage.topics]

    @property
    def chained(self) -> list[Stage]:
        """The stages with state, in the order they run."""
        return [stage for stage in self.stages if stage.kind == "task"]


def stages(
    topology: Topology, config: Config, partitions_of: Callable[[str], int], topics_of: Callable[[Source], list[str]]
) -> Stages:
    """The stages of a topology; `topics_of` gives a source's topics by the names outside, those of a pattern too."""
    planned = plan(topology, config, partitions_of)
    counts = dict(planned.partitions)
    shards: dict[tuple[str, ...], int] = {}
    for task in planned.tasks:
        shards[task.nodes] = shards.get(task.nodes, 0) + 1
    internal = frozenset(f"{config.app_id}-{topic}" for topic in topology.internal_topics)
    groups = list(shards)
    found: list[_Found] = []
    for number, group in enumerate(groups):
        circle = _circle(topology, groups, group)
        cut = _levels(topology, group, circle)
        round_ = frozenset(f"{config.app_id}-{topic}" for topic in _going_round(topology, circle))
        names = {level: str(number) if len(cut) == 1 else f"{number}.{at}" for at, level in enumerate(cut)}
        for level, own in cut.items():
            part, copies = _part(topology, group, own, {n for lower in cut if lower < level for n in cut[lower]})
            found.append((names[level], shards[group], part, copies, round_))
    ordered = _in_order(found)
    global_task = planned.global_task
    global_topics = frozenset(
        topic
        for name in (global_task.nodes if global_task else ())
        if isinstance(node := topology.nodes[name], Source)
        for topic in topics_of(node)
    )
    built: list[Stage] = []
    for name, count, part, copies, round_ in ordered:
        spec = TaskSpec(part, config, tuple(part.nodes), name.replace(".", "-") + "_0", 0, muted=copies)
        topics = tuple(topic for source in part.sources() for topic in topics_of(source))
        copied = frozenset(topic for source in part.sources() if source.name in copies for topic in topics_of(source))
        needs_globals = global_task is not None and any(_may_read_globals(node) for node in part.nodes.values())
        kind: Literal["arrow", "task"] = "arrow" if _keeps_nothing(part, topics, internal) else "task"
        own_globals = global_task if needs_globals else None
        built.append(Stage(len(built), name, kind, spec, count, topics, copied, round_, own_globals))
    if global_task is not None and not any(stage.global_task for stage in built):
        built.append(Stage(len(built), "global", "task", None, 1, (), frozenset(), frozenset(), global_task))
    for topic in (*global_topics, *(topic for stage in built for topic in stage.topics)):
        if topic not in counts:
            counts[topic] = partitions_of(topic)
    return Stages(tuple(built), counts, internal, global_topics)


# Name, shards, topology, copies, and the topics of its circle.
_Found: TypeAlias = tuple[str, int, Topology, frozenset[str], frozenset[str]]


# ---- circles -----------------------------------------------------------------------------------------------------


def _levels(topology: Topology, group: tuple[str, ...], circle: list[tuple[str, ...]]) -> dict[int, list[str]]:
    """The steps of a sub-topology by the level they run at: one level, unless it is part of a circle."""
    if not circle:
        return {0: list(group)}
    nodes = [name for name in topology.nodes if any(name in other for other in circle)]
    ranks = _ranks(topology, nodes)
    feeding = {
        ranks[name]
        for name in group
        if isinstance(sink := topology.nodes[name], Sink) and _is_read_in(topology, sink, nodes)
    }
    levels = sorted(feeding | {max(ranks[name] for name in group)})
    cut: dict[int, list[str]] = {}
    for name in group:
        cut.setdefault(next(level for level in levels if level >= ranks[name]), []).append(name)
    return dict(sorted(cut.items()))


def _circle(topology: Topology, groups: list[tuple[str, ...]], group: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The sub-topologies that feed this one and are fed by it, itself included; none if it feeds nobody back."""

    def fed_by(start: tuple[str, ...]) -> set[tuple[str, ...]]:
        reached: set[tuple[str, ...]] = set()
        ahead = [start]
        while ahead:
            sinks = [node for name in ahead.pop() if isinstance(node := topology.nodes[name], Sink)]
            new = {g for g in groups if any(_is_read_in(topology, sink, g) for sink in sinks)} - reached
            reached |= new
            ahead.extend(new)
        return reached

    return [other for other in fed_by(group) if group in fed_by(other)]


def _going_round(topology: Topology, circle: list[tuple[str, ...]]) -> set[str]:
    """The topics that sub-topologies of a circle write for each other."""
    nodes = [name for group in circle for name in group]
    sinks = [sink for name in nodes if isinstance(sink := topology.nodes[name], Sink)]
    return {str(sink.topic) for sink in sinks if _is_read_in(topology, sink, nodes)}


def _is_read_in(topology: Topology, sink: Sink, nodes: Iterable[str]) -> bool:
    """Whether a sink's internal topic is read by one of these steps."""
    return sink.topic in topology.internal_topics and any(
        isinstance(node := topology.nodes[name], Source) and sink.topic in node.topics for name in nodes
    )


def _ranks(topology: Topology, names: list[str]) -> dict[str, int]:
    """How often a record must have gone round before it reaches each step of a circle."""
    ranks = dict.fromkeys(names, 0)
    nodes = [topology.nodes[name] for name in names]
    writers: dict[str, list[str]] = {}
    for node in nodes:
        for store in _writes(node):
            writers.setdefault(store, []).append(node.name)
    changed = True
    while changed:
        changed = False
        for node in nodes:
            before = [ranks[writer] for store in _uses(node) for writer in writers.get(store, ())]
            if isinstance(node, Source):
                sinks = [sink for sink in nodes if isinstance(sink, Sink) and sink.topic in node.topics]
                before += [ranks[s.name] + 1 for s in sinks if s.topic in topology.internal_topics]
            else:
                before += [ranks[parent] for parent in node.parents]
            rank = max(before, default=0)
            if rank > ranks[node.name]:
                ranks[node.name] = rank
                changed = True
        most = len(topology.internal_topics)
        if max(ranks.values()) > most:
            looping = [node.name for node in nodes if _uses(node) and ranks[node.name] >= most]
            raise TopologyError(
                [
                    f"step {name!r} takes part in a loop through stores and repartition topics, which a batch of Spark "
                    "cannot go round for ever: run it with --on local, or let it use a store of its own"
                    for name in looping
                ]
            )
    return ranks


def _writes(node: Node) -> list[str]:
    """The stores a step writes to."""
    if not isinstance(node, ProcessorNode) or isinstance(node.op, ops.ForeignTableJoin):
        return []
    if isinstance(node.op, ops.Process):
        return node.stores
    return [store for name in ("store", "buffer", "unmatched") if (store := getattr(node.op, name, None)) is not None]


def _uses(node: Node) -> list[str]:
    return node.stores if isinstance(node, ProcessorNode) else []


def _part(
    topology: Topology, group: tuple[str, ...], own: list[str], lower: set[str]
) -> tuple[Topology, frozenset[str]]:
    """The topology of some steps of a sub-topology, with copies of the lower steps whose tables they look into."""
    wanted = set(own)
    ahead = list(own)
    while ahead:
        node = topology.nodes[ahead.pop()]
        needed = [] if isinstance(node, Source) else list(node.parents)
        stores = set(_uses(node))
        needed += [name for name in lower if stores.intersection(_writes(topology.nodes[name]))]
        new = [name for name in needed if name not in wanted]
        wanted.update(new)
        ahead.extend(new)
    copies = frozenset(wanted.difference(own))
    nodes: dict[str, Node] = {}
    for name in group:
        node = topology.nodes[name]
        if name in copies and isinstance(node, ProcessorNode) and isinstance(node.op, ops.Peek):
            node = ProcessorNode(name, ops.PassThrough(), node.parents)
        if name in wanted:
            nodes[name] = node
        elif not isinstance(node, Source) and any(_names_children(topology.nodes[p], copies) for p in node.parents):
            # Its parent chooses among its children by name: the way there ends here.
            nodes[name] = ProcessorNode(name, ops.PassThrough(), tuple(p for p in node.parents if p in copies))
    part = copy.copy(topology)
    part.nodes = nodes
    return part, copies | {name for name in nodes if name not in wanted}


def _names_children(node: Node, copies: frozenset[str]) -> bool:
    return node.name in copies and isinstance(node, ProcessorNode) and isinstance(node.op, ops.Branch | ops.Process)


def _in_order(found: list[_Found]) -> list[_Found]:
    """Each one after all those whose internal topics it reads."""

    def feeds(one: Topology, other: Topology) -> bool:
        written = {node.topic for node in one.nodes.values() if isinstance(node, Sink)}
        return any(topic in written and topic in one.internal_topics for s in other.sources() for topic in s.topics)

    left, ordered = list(found), []
    while left:
        ready = next(p for p in left if not any(feeds(q[2], p[2]) for q in left if q is not p))
        left.remove(ready)
        ordered.append(ready)
    return ordered


# ---- what a stage needs ------------------------------------------------------------------------------------------


def _may_read_globals(node: Node) -> bool:
    return isinstance(node, ProcessorNode) and isinstance(node.op, ops.GlobalTableJoin | ops.Process)


def _keeps_nothing(part: Topology, topics: tuple[str, ...], internal: frozenset[str]) -> bool:
    """Whether every record can be dealt with by itself: one topic, no store, no clock, no time but the record's own."""
    (*_, source) = sources = part.sources()
    return (
        len(sources) == 1
        and len(topics) == 1
        and source.pattern is None
        and source.timestamp is None
        and topics[0] not in internal
        and not any(_uses(node) or _may_read_globals(node) for node in part.nodes.values())
    )


# What emits by the wall clock, or lets the user look at it.
_BY_CLOCK = (ops.Process, ops.StreamJoinSide)


def needs_clock(stages: Stages, config: Config) -> bool:
    """Whether a batch may have to do something that no record asks for, or asks the time."""
    if config.max_task_idle_ms:
        return True
    nodes = [node for stage in stages.chained if stage.spec is not None for node in stage.spec.topology.nodes.values()]
    found = [node.op for node in nodes if isinstance(node, ProcessorNode)]
    return any(isinstance(op, _BY_CLOCK) or getattr(op, "on_close", False) for op in found)
