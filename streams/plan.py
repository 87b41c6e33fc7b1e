"""From a topology to tasks: which sub-topologies there are, how many partitions each topic has, and so which tasks. It
owns names and counts of internal topics and the check that topics which meet are partitioned alike; it runs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headwater.dsl.config import Config, optimizations
from headwater.dsl.topology import Sink, Source, Topology
from headwater.errors import TopologyError
from headwater.streams.compat import check
from headwater.streams.task import TaskSpec

__all__ = ["Plan", "check_optimizations", "plan"]


@dataclass(frozen=True)
class Plan:
    """The tasks of an application, and the partitions of its topics (internal ones by their names outside)."""

    tasks: tuple[TaskSpec, ...]
    global_task: TaskSpec | None
    partitions: Mapping[str, int]


def check_optimizations(topology: Topology, config: Config) -> None:
    """Refuse a topology that was not built with the optimisations that the settings ask for."""
    wanted, built = optimizations(config.optimize), topology.optimizations
    if wanted and built is not None and wanted != built:
        raise TopologyError(
            [
                f"Config(optimize={_spelled(wanted)}), but the topology was built with optimize={_spelled(built)}: "
                f"write builder.build(optimize={_spelled(wanted)}), or leave optimize out of Config (they change the "
                "names of internal topics, so that state and offsets of one are not those of the other)"
            ]
        )


def _spelled(names: frozenset[str]) -> str:
    if names == optimizations(True):
        return "True"
    return f"{{{', '.join(repr(name) for name in sorted(names))}}}" if names else "False"


def plan(topology: Topology, config: Config, partitions_of: Callable[[str], int], *, as_one: bool = False) -> Plan:
    """The tasks of a topology whose external topics (or the topics of a pattern) have these numbers of partitions.

    With `as_one` all sub-topologies are one task and every topic has one partition, as in Kafka Streams' test driver.
    """
    check_optimizations(topology, config)
    if config.compat is not None:
        check(topology)
    groups = topology.groups()
    global_nodes = [name for group in groups if topology.is_global(group) for name in group]
    global_task = TaskSpec(topology, config, tuple(global_nodes), "global", 0, True) if global_nodes else None
    if as_one:
        nodes = tuple(name for name in topology.nodes if name not in global_nodes)
        return Plan((TaskSpec(topology, config, nodes, "0_0", 0),) if nodes else (), global_task, {})
    counts = _count_partitions(topology, groups, partitions_of)
    tasks = []
    for number, group in enumerate(groups):
        if not topology.is_global(group):
            most = max(counts[topic] for topic in _read_by(topology, group))
            kept = topology.numbers.get(number, number)
            tasks += [TaskSpec(topology, config, tuple(group), f"{kept}_{i}", i) for i in range(most)]
    real = {f"{config.app_id}-{t}" if t in topology.internal_topics else t: count for t, count in counts.items()}
    return Plan(tuple(tasks), global_task, real)


def _read_by(topology: Topology, group: list[str]) -> list[str]:
    """The topics, and the patterns, that a sub-topology reads."""
    sources = [node for name in group if isinstance(node := topology.nodes[name], Source)]
    return [topic for source in sources for topic in _topics(source)]


def _topics(source: Source) -> tuple[str, ...]:
    return source.topics if source.pattern is None else (source.pattern.pattern,)


def _count_partitions(
    topology: Topology, groups: list[list[str]], partitions_of: Callable[[str], int]
) -> dict[str, int]:
    """The partitions of every topic that is read.

    A repartition topic without a number of its own has as many as the widest topic of those who write it, or as the
    topics it must be partitioned alike with.
    """
    internal = topology.internal_topics
    counts = {topic: count for topic, count in internal.items() if count is not None}
    counts |= {t: partitions_of(t) for source in topology.sources() for t in _topics(source) if t not in internal}
    unknown = [topic for topic in internal if topic not in counts]
    while unknown:
        found = {topic: count for topic in unknown if (count := _widest(topology, groups, topic, counts)) is not None}
        if not found:
            raise TopologyError([f"nobody knows how many partitions {topic!r} must have" for topic in unknown])
        counts |= found
        unknown = [topic for topic in unknown if topic not in found]
    faults: list[str] = []
    for together in _copartitioned(topology):
        _align(together, internal, counts, faults)
    if faults:
        raise TopologyError(faults)
    return counts


def _widest(topology: Topology, groups: list[list[str]], topic: str, counts: Mapping[str, int]) -> int | None:
    """The most partitions among the inputs of the sub-topologies that write a topic, as far as they are known."""
    known = [
        counts[read]
        for group in groups
        if any(isinstance(node := topology.nodes[name], Sink) and node.topic == topic for name in group)
        for read in _read_by(topology, group)
        if read in counts
    ]
    return max(known, default=None)


def _copartitioned(topology: Topology) -> list[set[str]]:
    """The sets of topics that must be partitioned alike; sets with a topic in common are one."""
    topics_of = {source.name: _topics(source) for source in topology.sources()}
    merged: list[set[str]] = []
    for sources in topology.copartitioned:
        together = {topic for name in sources for topic in topics_of.get(name, ())}
        for other in [other for other in merged if other & together]:
            merged.remove(other)
            together |= other
        merged.append(together)
    return merged


def _align(together: set[str], internal: Mapping[str, int | None], counts: dict[str, int], faults: list[str]) -> None:
    """Give topics that meet in a join one number of partitions, or say why they cannot have one."""
    external = {topic: counts[topic] for topic in together if topic not in internal}
    explicit = {topic: counts[topic] for topic in together if internal.get(topic) is not None}
    if external:
        if len(set(external.values())) > 1:
            faults.append(f"Topics not co-partitioned: [{_listed(external)}]: give them the same number of partitions")
            return
        count = next(iter(external.values()))
        faults += [
            f"Number of partitions [{own}] of repartition topic [{topic}] doesn't match number of partitions [{count}] "
            "of the source topic: leave out partitions= or make it the same"
            for topic, own in sorted(explicit.items())
            if own != count
        ]
    elif len(set(explicit.values())) > 1:
        faults.append(
            f"Following topics do not have the same number of partitions: [{_listed(explicit)}]: make them the same"
        )
        return
    else:
        count = next(iter(explicit.values())) if explicit else max(counts[topic] for topic in together)
    counts.update({topic: count for topic in together if topic in internal and topic not in explicit})


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{topic}={count}" for topic, count in sorted(counts.items()))
