"""A worker's link to where records come from and go to. The embedded log is one; a Kafka cluster will be another.

It owns nothing but the words: what a worker asks for, in which order, and what it may rely on. A worker asks for the
tasks it should run, acquires each, lets the connection finish what an earlier owner began, reads its inputs, and hands
back what its tasks have changed. How that becomes exactly once is the connection's affair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from headwater.state.backend import Backend
from headwater.streams.changes import Changes
from headwater.streams.queues import RawRecord

__all__ = ["Connection", "TaskCommit"]


@dataclass(frozen=True)
class TaskCommit:
    """What one task has changed since its last commit, and the back end its rows belong into."""

    task_id: str
    backend: Backend
    changes: Changes


class Connection(Protocol):
    """Where one worker of an application reads and writes."""

    @property
    def extra_stores(self) -> Sequence[str]:
        """Names of stores the connection keeps for itself in each task's back end."""
        ...

    def topics(self) -> dict[str, int]:
        """All topics there are, with their numbers of partitions."""
        ...

    def create(self, topic: str, partitions: int, *, internal: bool) -> None:
        """Make a topic, unless it is there."""
        ...

    def assigned(self, tasks: Sequence[str]) -> list[str]:
        """Which of the application's tasks this worker should run now; changes as workers come and go."""
        ...

    def acquire(self, task_id: str) -> bool:
        """Become a task's only owner; False while another worker still is."""
        ...

    def settle(self, task_id: str, backend: Backend) -> None:
        """Tidy up in the back end of a task that is about to be given up: its next owner finds nothing to do."""
        ...

    def release(self, task_id: str) -> None:
        """Give a task up; its commits are done."""
        ...

    def recover(self, task_id: str, backend: Backend) -> None:
        """Finish what an earlier owner of the task began, before anything is read for it."""
        ...

    def begin(self, task_id: str, topic: str, partition: int, committed: int | None, reset: str | None) -> int:
        """Where a task reads from: its committed offset, or what the reset policy says if there is none in range."""
        ...

    def read(self, topic: str, partition: int, offset: int, limit: int) -> list[RawRecord]:
        """Up to `limit` records from an offset on; none at the end."""
        ...

    def end(self, topic: str, partition: int) -> int:
        """The offset after the last record."""
        ...

    def commit(self, commits: Sequence[TaskCommit]) -> None:
        """Write rows, offsets and outputs of tasks, all or nothing for each, also if the process dies in between."""
        ...

    def close(self) -> None:
        """Leave; all tasks are released."""
        ...
