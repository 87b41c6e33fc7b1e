"""How far each task of a worker may go in event time: while tasks are behind, those that write into the same topic
advance together, and a task does not overtake what its senders have yet to send it. It owns who sends to whom and the
times up to which tasks may work; reading, processing and committing are the worker's.

Tasks meet in two ways (decision 013):

- **Siblings** write into the same topic. They work in rounds: all of them up to one time, so that what a commit writes
  into a partition can be merged by time and the next commit has nothing older to add.
- A task waits for its **senders**: it takes no record that is later than what they have reached and committed. Where
  tasks send in a circle, that would be for ever; there what a commit may span is bounded instead.

A task that has caught up with its inputs holds nobody up, so that nothing waits where nobody is behind.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from headwater.dsl.durations import LONG_MAX
from headwater.dsl.topology import ProcessorNode, Sink, Source, Topology
from headwater.streams.plan import Plan

__all__ = ["Pace", "Paced"]

# How much of event time a commit may span in a circle, in milliseconds: half the shortest grace in it, but no less.
LEAST_SPAN = 1_000
# For how many milliseconds siblings that are behind wait for records that are on their way to one of them, or for one
# that has not started yet.
PATIENCE_MS = 10_000
# The time of what is not known yet.
UNKNOWN = -1
# The time up to which a task may work that may not work at all: even a record that cannot be read has a higher one.
NOTHING = -2


class Paced(Protocol):
    """What is asked of a task."""

    def next_time(self, now: int) -> int | None:
        """The time of the record it would take next; None if there is none, or if it waits for an input."""
        ...

    def first_time(self) -> int | None:
        """The lowest time of its first records, whether it may take them or not."""
        ...

    def time_after(self, count: int) -> int:
        """The time that so many records of each input reach, about; the highest there is if that is all of them."""
        ...

    @property
    def fetching(self) -> bool:
        """Whether an input that is behind has no records here: more are on their way."""
        ...


    @property
    def awaiting(self) -> bool:
        """Whether an input has no records here, and is not known to have no more."""
        ...


class Pace:
    """The times up to which a worker's tasks may work; a task is known by its id. Without `waits` they
    work as far as they like."""

    def __init__(self, topology: Topology, plan: Plan, *, waits: bool = True) -> None:
        groups = {_group(spec.task_id): spec.nodes for spec in plan.tasks}
        sends = {
            (sender, reader): topics
            for sender, written in ((group, _written(topology, nodes)) for group, nodes in groups.items())
            for reader, nodes in groups.items()
            if waits and (topics := _read_of(topology, nodes, written))
        }
        reached = _reached(groups, sends)
        # What a group waits for: its senders, and how far beyond what they have reached it may go.
        self._senders: dict[str, dict[str, int]] = {group: {} for group in groups}
        for sender, reader in sends:
            circle = sender in reached[reader]
            self._senders[reader][sender] = (
                _span(topology, _circle(groups, reached, sender), groups) if circle else -1
            )
        self._siblings = _siblings(groups, sends)
        # What the tasks of each group had reached, and committed, when that was last looked at.
        self._reached: dict[str, int] = {}
        # Of each set of siblings whose round is not over: up to where it goes, and how far the first of them has come.
        # And since when one has to wait.
        self._until: dict[str, int] = {}
        self._came: dict[str, int] = {}
        self._waiting_since: dict[str, int] = {}

    def together(self, task_id: str) -> str | None:
        """The name of the set of siblings that a task works together with; None if there is nobody to wait for."""
        return self._siblings.get(_group(task_id))

    def began(self, task_id: str) -> None:
        """A task is new here: what its group has reached is not known yet."""
        self._reached[_group(task_id)] = UNKNOWN

    def _limit(self, group: str) -> int:
        """The time up to which a group's tasks may work, for what their senders may yet send."""
        return min(
            (
                LONG_MAX if (reached := self._reached.get(sender, LONG_MAX)) == LONG_MAX else reached + slack
                for sender, slack in self._senders[group].items()
            ),
            default=LONG_MAX,
        )

    def rounds(
        self,
        tasks: Mapping[str, tuple[Paced, int]],
        now: int,
        *,
        missing: Collection[str] = (),
        begin: bool = True,
    ) -> dict[str, int]:
        """Up to which time each of these tasks may work now; tasks are given with how many records they take at once.

        What is not in it works as it likes. A round that is not over goes on; without `begin` no other is begun.
        `missing` are tasks that will be here soon.
        """
        limits: dict[str, int] = {}
        for name, members in self._sets(tasks).items():
            # What one of them has to wait for the others must not overtake.
            ceiling = min(self._limit(_group(task_id)) for task_id in members)
            awaited = bool(missing) and self._misses(name, members, missing)
            if len(members) == 1 and not awaited:
                # Nobody here to go together with.
                limits[members[0]] = ceiling
                continue
            if begin and name not in self._until and not self._must_wait(name, members, tasks, awaited, now):
                # One that waits for an input of its own holds nobody up.
                ready = [
                    (first, task.time_after(count))
                    for task, count in (tasks[task_id] for task_id in members)
                    if (first := task.next_time(now)) is not None
                ]
                lowest = min((first for first, _ in ready), default=LONG_MAX)
                if ready and lowest <= ceiling:
                    self._until[name] = max(lowest, min(far for _, far in ready))
            limits |= dict.fromkeys(members, min(self._until.get(name, NOTHING), ceiling))
        return limits

    def _must_wait(
        self, name: str, members: Iterable[str], tasks: Mapping[str, tuple[Paced, int]], awaited: bool, now: int
    ) -> bool:
        """Whether what is on its way to one of them, or one that is not here yet, may be older than what they have."""
        fetching = any(tasks[task_id][0].fetching for task_id in members)
        if not fetching and not (awaited and any(_is_behind(*tasks[task_id]) for task_id in members)):
            self._waiting_since.pop(name, None)
            return False
        return self._is_patient(name, now)

    def _sets(self, tasks: Collection[str]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for task_id in tasks:
            name = self.together(task_id)
            if name is not None:
                found.setdefault(name, []).append(task_id)
        return found

    def _misses(self, name: str, members: Iterable[str], missing: Iterable[str]) -> bool:
        """Whether one of the missing belongs to a set of siblings, or sends to it."""
        senders = {sender for task_id in members for sender in self._senders[_group(task_id)]}
        return any(self.together(task_id) == name or _group(task_id) in senders for task_id in missing)

    def worked(self, tasks: Mapping[str, Paced], came_to: Mapping[str, int], now: int) -> None:
        """Tasks have worked: end the rounds that are over. `came_to` has the highest time of those that took records.

        Where one was stopped on the way, the others need not go further than the first of them has come.
        """
        sets = self._sets(tasks)
        for name in self._until.keys() - sets.keys():
            self._forget(name)
        for name, members in sets.items():
            if name not in self._until:
                continue
            came = max((came_to[task_id] for task_id in members if task_id in came_to), default=UNKNOWN)
            came = self._came[name] = max(self._came.get(name, UNKNOWN), came)
            until = self._until[name] = min(self._until[name], came)
            until = min(until, *(self._limit(_group(task_id)) for task_id in members))
            firsts = [tasks[task_id].next_time(now) for task_id in members]
            if any(first is not None and first <= until for first in firsts):
                continue
            if not (any(tasks[task_id].fetching for task_id in members) and self._is_patient(name, now)):
                self._forget(name)

    def _forget(self, name: str) -> None:
        del self._until[name]
        self._came.pop(name, None)

    def _is_patient(self, name: str, now: int) -> bool:
        """Whether a set of siblings has not yet waited for too long."""
        return 0 <= now - self._waiting_since.setdefault(name, now) < PATIENCE_MS

    @property
    def open(self) -> bool:
        """Whether a round is not over."""
        return bool(self._until)

    def is_open(self, name: str) -> bool:
        """Whether the round of a set of siblings is not over."""
        return name in self._until

    def held_up(self, tasks: Mapping[str, Paced], now: int) -> bool:
        """Whether a task could work, but for what its senders have not committed yet."""
        return any(
            (first := task.next_time(now)) is not None and first > self._limit(_group(task_id))
            for task_id, task in tasks.items()
            if self._senders[_group(task_id)]
        )

    def committed(self, tasks: Mapping[str, Paced], now: int) -> None:
        """All that the tasks have done is committed: take note of what they have reached."""
        self._until.clear()
        self._came.clear()
        reached: dict[str, int] = {}
        for task_id, task in tasks.items():
            group = _group(task_id)
            # What came in with this very commit the task has not seen yet: what its senders had reached before counts.
            before = min((self._reached.get(s, LONG_MAX) for s, slack in self._senders[group].items() if slack < 0),
                         default=LONG_MAX)  # fmt: skip
            reached[group] = min(reached.get(group, LONG_MAX), before, self._reach(group, task, now))
        self._reached = reached

    def _reach(self, group: str, task: Paced, now: int) -> int:
        if task.fetching or task.awaiting:
            return self._reached.get(group, UNKNOWN)
        if task.next_time(now) is None:
            # It has caught up, or waits for an input that stays empty: that may be for ever.
            return LONG_MAX
        first = task.first_time()
        return LONG_MAX if first is None else first


def _is_behind(task: Paced, count: int) -> bool:
    """Whether a task has more to do than it does at once."""
    return task.fetching or task.time_after(count) < LONG_MAX


def _group(task_id: str) -> str:
    return task_id.partition("_")[0]


def _written(topology: Topology, nodes: Iterable[str]) -> set[str]:
    return {
        node.topic for name in nodes if isinstance(node := topology.nodes[name], Sink) and isinstance(node.topic, str)
    }


def _read_of(topology: Topology, nodes: Iterable[str], topics: Iterable[str]) -> set[str]:
    """Those of some topics that nodes read."""
    sources = [node for name in nodes if isinstance(node := topology.nodes[name], Source)]
    return {
        topic
        for topic in topics
        for source in sources
        if topic in source.topics or (source.pattern is not None and source.pattern.fullmatch(topic))
    }


def _reached(groups: Iterable[str], sends: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """The groups that a group's records come to, over others too."""
    following: dict[str, list[str]] = {group: [] for group in groups}
    for sender, reader in sends:
        following[sender].append(reader)
    reached: dict[str, set[str]] = {}
    for group in following:
        found: set[str] = set()
        waiting = list(following[group])
        while waiting:
            one = waiting.pop()
            if one not in found:
                found.add(one)
                waiting += following[one]
        reached[group] = found
    return reached


def _circle(groups: Iterable[str], reached: Mapping[str, set[str]], one: str) -> list[str]:
    return [group for group in groups if group in reached[one] and one in reached[group]]


def _span(topology: Topology, circle: Iterable[str], groups: Mapping[str, Iterable[str]]) -> int:
    """How much of event time a commit may span in a circle: without windows in it, any."""
    ops = [
        node.op for group in circle for name in groups[group] if isinstance(node := topology.nodes[name], ProcessorNode)
    ]
    graces = [windows.grace_ms for op in ops if (windows := getattr(op, "windows", None)) is not None]
    return max(min(graces) // 2, LEAST_SPAN) if graces else LONG_MAX


def _siblings(groups: Iterable[str], sends: Mapping[tuple[str, str], set[str]]) -> dict[str, str]:
    """For each group that sends or reads within the topology, the name of the set that it works together with.

    Groups that write into a common topic are one set; one that only reads is a set for itself.
    """
    name = {group: group for pair in sends for group in pair}
    first: dict[str, str] = {}
    for (sender, _), topics in sends.items():
        for topic in topics:
            old, new = name[sender], name[first.setdefault(topic, sender)]
            name = {group: new if named == old else named for group, named in name.items()}
    return {group: name[group] for group in groups if group in name}
