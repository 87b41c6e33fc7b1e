"""A worker's link to where records come from and go to: the embedded log is one, a Kafka cluster another.

It owns nothing but the words: what a worker asks for, in which order, and what it may rely on. A worker asks for the
tasks it should run, opens each, reads its inputs, and hands back what its tasks have changed. How that becomes exactly
once is the connection's affair.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from operator import itemgetter
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar

from headwater.errors import StreamsError
from headwater.state.backend import Backend
from headwater.state.rocks import RocksBackend
from headwater.streams.changes import Changes
from headwater.streams.context import Output
from headwater.streams.identity import Identity
from headwater.streams.plan import Plan
from headwater.streams.queues import RawRecord
from headwater.streams.task import TaskSpec

__all__ = ["OUTPUT_TIME", "Connection", "GiveUp", "Passing", "Place", "Standby", "TaskCommit", "Undone", "merged"]

T = TypeVar("T", bound=tuple[Any, ...])
# Where the timestamp is in an Output.
OUTPUT_TIME = 4

# A partition of a topic.
Place: TypeAlias = tuple[str, int]
# What a connection calls when tasks must go: with True they are committed first, with False they have been lost.
GiveUp: TypeAlias = Callable[[Collection[str], bool], None]


class Undone(StreamsError):
    """A commit has not happened: its tasks begin again where their last one left them."""


class Passing(StreamsError):
    """The link is broken for now: a new one may work."""


@dataclass(frozen=True)
class TaskCommit:
    """What one task has changed since its last commit, the back end its rows belong into, and the times it has reached:
    its inputs', and by store those up to which closed windows have been emitted."""

    task_id: str
    backend: Backend
    changes: Changes
    times: Mapping[Place, int] = field(default_factory=dict)
    closed: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Standby:
    """A copy of a task's rows that another worker's commits are followed in, and by how many records it is behind."""

    backend: RocksBackend
    lag: int


def merged(parts: Sequence[Sequence[T]], at: int, *, by_time: bool = True) -> Sequence[T]:
    """Records of several senders in the order of time, each sender's in its own order; their time is in field `at`.

    Always the lowest of the first ones comes next; where they are equal, the first sender's. Without `by_time`, one
    sender's come after the other's.

    >>> merged([[("a", 10), ("b", 5), ("c", 30)], [("d", 7), ("e", 20)]], 1)
    [('d', 7), ('a', 10), ('b', 5), ('e', 20), ('c', 30)]
    """
    if len(parts) == 1:
        return parts[0]
    if not by_time:
        return list(chain.from_iterable(parts))
    time = itemgetter(at)
    # What comes behind a later record of its own sender comes right after it. So each sender's times only rise, and to
    # sort a few rising runs is to merge them.
    times = [reached for part in parts for reached in accumulate(map(time, part), max)]
    records = list(chain.from_iterable(parts))
    return [records[number] for number in sorted(range(len(records)), key=times.__getitem__)]


class Connection(Protocol):
    """Where one worker of an application reads and writes."""

    # Whether a task's rows are also elsewhere, so that damaged ones are restored when it is opened again.
    restores: bool

    def topics(self) -> dict[str, int]:
        """All topics there are, with their numbers of partitions."""
        ...

    def create(self, topic: str, partitions: int, *, internal: bool) -> None:
        """Make a topic, unless it is there."""
        ...

    def identify(self, now: Identity) -> Identity:
        """Compare what the application is with what it was, and keep the record; before anything else is made.

        Raises a TopologyError, and changes nothing, if state does not fit. Returns the record as it is kept.
        """
        ...

    def largest(self, topic: str) -> int | None:
        """How many bytes a record for a topic may have, key, value and headers together; None for any number."""
        ...

    def prepare(self, plan: Plan, inputs: Mapping[str, Sequence[Place]]) -> None:
        """Get ready to run the tasks of a plan, which read these places; all topics are there."""
        ...

    def poll(self, give_up: GiveUp) -> bool:
        """See to what goes on besides the tasks' work; whether anything did. Tasks that must go are given up in it."""
        ...

    def assigned(self, tasks: Sequence[str]) -> list[str]:
        """Which of the application's tasks this worker should run now; changes as workers come and go."""
        ...

    def open(self, spec: TaskSpec, path: Path) -> RocksBackend | None:
        """Become a task's only owner and open its rows, with what an earlier owner has begun finished.

        None while another worker is still its owner, or while the rows are being fetched: ask again.
        """
        ...

    def shut(self, task_id: str, backend: RocksBackend) -> None:
        """Close the rows of a task and give it up; its commits are done, and its next owner finds nothing to do."""
        ...

    def begin(self, task_id: str, topic: str, partition: int, committed: int | None, reset: str | None) -> int:
        """Where a task reads from: its committed offset, or what the reset policy says if there is none in range."""
        ...

    def read(self, topic: str, partition: int, offset: int, limit: int) -> list[RawRecord]:
        """Up to `limit` records from an offset on; none at the end, or while they are on their way."""
        ...

    def caught_up(self, topic: str, partition: int) -> bool:
        """Whether a read that has just given nothing has reached the end."""
        ...

    def behind(self, topic: str, partition: int, position: int) -> int:
        """About how many records lie between a position and the end."""
        ...

    def at_end(self, positions: Mapping[Place, int]) -> bool:
        """Whether there is nothing behind any of these positions, asked anew."""
        ...

    def send(self, outputs: Sequence[Output]) -> None:
        """Write results before their commit, where they need be written at least once only."""
        ...

    def commit(self, commits: Sequence[TaskCommit]) -> None:
        """Write rows, offsets and outputs of tasks, all or nothing for each, also if the process dies in between.

        Raises Undone if none of it has been written.
        """
        ...

    @property
    def standbys(self) -> Mapping[str, Standby]:
        """The copies kept here of tasks that run elsewhere."""
        ...

    def metrics(self) -> dict[str, object]:
        """What it counts itself."""
        ...

    def close(self) -> None:
        """Leave; all tasks are shut."""
        ...
