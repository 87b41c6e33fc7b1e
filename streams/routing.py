"""Where a key of a store is: from the plan to the task that keeps its row. It owns when that can be known; who runs the
task is the workers' affair.

A key is in the task that gets its records. Topics the application fills itself are partitioned by the key's bytes, and
so, it is assumed, are those that others fill: by Kafka's own hash, murmur2. It cannot be known where a partitioner of
the user's decides, where a processor writes the store (under any key it likes), and where the inputs are those of a
pattern or have different numbers of partitions: then every task must be asked.
"""

from __future__ import annotations

from typing import Any

from headwater.dsl.foreign_key import primary_partition
from headwater.dsl.ops import Process
from headwater.dsl.partitioner import partition_for
from headwater.dsl.serde import SessionWindowed, TimeWindowed
from headwater.dsl.topology import ProcessorNode, Sink, Source, Topology
from headwater.errors import StreamsError
from headwater.streams.plan import Plan
from headwater.streams.task import TaskSpec

__all__ = ["keepers", "task_of"]


def keepers(plan: Plan, store: str) -> list[TaskSpec]:
    """The tasks that keep a part of a store, by partition."""
    keeping: dict[tuple[str, ...], bool] = {}
    for task in plan.tasks:
        if task.nodes not in keeping:
            keeping[task.nodes] = any(spec.name == store for spec in task.stores())
    return [task for task in plan.tasks if keeping[task.nodes]]


def task_of(plan: Plan, store: str, key: Any) -> str | None:
    """The task that has the key's row, if there is one; None if every task may have it.

    >>> from headwater import Config, StreamsBuilder
    >>> from headwater.streams.plan import plan
    >>> builder = StreamsBuilder()
    >>> _ = builder.stream("in").group_by_key().count(store="counts")
    >>> planned = plan(builder.build(), Config("app"), lambda topic: 4)
    >>> [task_of(planned, "counts", key) for key in ("alice", "bob", "carol")]
    ['0_1', '0_2', '0_2']
    """
    tasks = keepers(plan, store)
    if len(tasks) == 1:
        return tasks[0].task_id
    first = tasks[0]
    if _written_by_processors(first, store):
        return None
    places = {_place(plan, first, source, key) for source in _sources(first)}
    if len(places) != 1 or None in places:
        return None
    partition = places.pop()
    return next((task.task_id for task in tasks if task.partition == partition), None)


def _written_by_processors(task: TaskSpec, store: str) -> bool:
    nodes = [task.topology.nodes[name] for name in task.nodes]
    steps = [node for node in nodes if isinstance(node, ProcessorNode)]
    return any(isinstance(step.op, Process) and store in step.stores for step in steps)


def _sources(task: TaskSpec) -> list[Source]:
    """What brings keys into a task; the answers of a foreign-key join come to where the asking row is anyway."""
    sources = [node for name in task.nodes if isinstance(node := task.topology.nodes[name], Source)]
    return [source for source in sources if primary_partition not in _partitioners(task.topology, source)]


def _partitioners(topology: Topology, source: Source) -> list[Any]:
    """What decides, in the sinks that fill a source's internal topics, where a record goes; None is the key."""
    topics = [topic for topic in source.topics if topic in topology.internal_topics]
    return [node.partitioner for node in topology.nodes.values() if isinstance(node, Sink) and node.topic in topics]


def _place(plan: Plan, task: TaskSpec, source: Source, key: Any) -> int | None:
    """The partition in which a source finds a key, None if that cannot be known."""
    topology, app_id = task.topology, task.config.app_id
    internal = topology.internal_topics
    counts = {plan.partitions[f"{app_id}-{topic}" if topic in internal else topic] for topic in source.topics}
    if len(counts) != 1 or isinstance(source.key, TimeWindowed | SessionWindowed):
        return None
    if any(partitioner is not None for partitioner in _partitioners(topology, source)):
        return None
    try:
        return partition_for(source.key.encode(key), counts.pop())
    except (StreamsError, ValueError, TypeError):
        # The source has keys of another kind, which become the store's on the way.
        return None
