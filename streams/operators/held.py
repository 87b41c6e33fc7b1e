"""Records that waited in a buffer and go on as what they were: with their own timestamp, headers, topic, partition and
offset. It owns the exchange of the task's record metadata; when they go on is the operators'.
"""

from typing import Any

from headwater.dsl.records import Headers
from headwater.state.buffers import Context
from headwater.streams.compile import Step
from headwater.streams.context import TaskContext

__all__ = ["context_of", "resume"]


def context_of(task: TaskContext, timestamp: int, headers: Headers) -> Context:
    """What a record must keep while it waits."""
    if task.topic is None or task.partition is None or task.offset is None:
        return Context(timestamp, headers)  # made by a punctuator: it came from no topic
    return Context(timestamp, headers, task.topic, task.partition, task.offset)


def resume(task: TaskContext, held: Context, step: Step, *args: Any) -> None:
    """Call the step as if the held record were being processed now; its bytes as they were read are gone."""
    here = task.here()
    timestamp, headers, topic, partition, offset = held
    if topic is None:
        task.go((None, None, None, timestamp, None))
    else:
        task.go((topic, partition, offset, timestamp, (None, None, timestamp, headers, offset)))
    try:
        step(*args)
    finally:
        task.go(here)
