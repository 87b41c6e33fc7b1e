"""Which partition stands for which task: who is assigned the partition by the consumer group runs the task.

Assignors know partitions, not sub-topologies. Kafka's `uniform` gives a new member the last partitions of the others,
topic after topic, so two workers of an application with two sub-topologies got one whole sub-topology each. So where
there are several, the group shares out an empty topic that has one partition for each task,
`<application>-tasks-<n>-assignment`, and neighbouring partitions stand for tasks of different sub-topologies: any run
of partitions has a share of every sub-topology. One sub-topology needs no such topic: its widest input will do.

The number of tasks is in the topic's name: another number means another order, and workers that do not agree on the
order would run the same task twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from headwater.streams.connection import Place

__all__ = ["is_tasks_topic", "places_of_tasks", "spread"]


def spread(tasks: Iterable[str]) -> list[str]:
    """Order tasks so that any run of them has a share of every sub-topology, as large as the run allows.

    Every other round goes backwards: the classic protocol's assignor deals partitions out in turn, and two workers
    would otherwise have one of two sub-topologies each.

    >>> spread(["0_0", "0_1", "0_2", "0_3", "1_0", "1_1", "1_2", "1_3"])
    ['0_0', '1_0', '1_1', '0_1', '0_2', '1_2', '1_3', '0_3']
    >>> spread(["0_0", "0_1", "0_2", "0_3", "1_0", "1_1"])
    ['0_0', '1_0', '0_1', '0_2', '1_1', '0_3']
    """
    numbers = {task: tuple(map(int, task.split("_"))) for task in tasks}
    sizes: dict[int, int] = {}
    for group, _ in numbers.values():
        sizes[group] = sizes.get(group, 0) + 1

    def position(task: str) -> tuple[Fraction, int]:
        group, partition = numbers[task]
        return Fraction(2 * partition + 1, 2 * sizes[group]), -group if partition % 2 else group

    return sorted(numbers, key=position)


def places_of_tasks(
    app_id: str, inputs: Mapping[str, Sequence[Place]], partitions: Mapping[str, int]
) -> dict[str, Place]:
    """The partition that stands for each task, given the tasks' inputs and how many partitions each topic has.

    >>> places_of_tasks("shop", {"0_0": [("a", 0), ("b", 0)], "0_1": [("b", 1)]}, {"a": 1, "b": 2})
    {'0_0': ('b', 0), '0_1': ('b', 1)}
    >>> places_of_tasks("shop", {"0_0": [("a", 0)], "1_0": [("b", 0)]}, {"a": 1, "b": 1})
    {'0_0': ('shop-tasks-2-assignment', 0), '1_0': ('shop-tasks-2-assignment', 1)}
    """
    if len({task.partition("_")[0] for task in inputs}) > 1:
        topic = f"{app_id}-tasks-{len(inputs)}-assignment"
        return {task: (topic, number) for number, task in enumerate(spread(inputs))}
    topics = sorted({topic for places in inputs.values() for topic, _ in places})
    widest = max(topics, key=lambda topic: partitions[topic], default="")
    return {task: (widest, int(task.partition("_")[2])) for task in inputs}


def is_tasks_topic(topic: str, app_id: str) -> bool:
    """Whether a topic is one that an application's tasks are, or were, shared out by.

    >>> is_tasks_topic("shop-tasks-8-assignment", "shop"), is_tasks_topic("shop-tasks-changelog", "shop")
    (True, False)
    """
    return re.fullmatch(rf"{re.escape(app_id)}-tasks-\d+-assignment", topic) is not None
