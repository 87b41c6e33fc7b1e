"""The worker: a loop that runs an application's tasks, those of them that are its own. It owns when records are read,
when wall-clock punctuators run, when is committed and what happens as workers come and go; where records come from is
its connection's affair, what they become is the tasks'.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Protocol

from headwater.dsl.config import Config
from headwater.dsl.durations import LONG_MAX
from headwater.dsl.topology import Sink, Source, Topology
from headwater.errors import StreamsError, TopologyError
from headwater.state.memory import MemoryBackend
from headwater.state.rocks import RocksBackend
from headwater.streams.changes import Changes
from headwater.streams.clocks import system_clock
from headwater.streams.connection import OUTPUT_TIME, Connection, Place, Standby, TaskCommit, Undone, merged
from headwater.streams.context import Output
from headwater.streams.identity import adopted, identity_of
from headwater.streams.metrics import Lost, Meter
from headwater.streams.pace import Pace
from headwater.streams.plan import Plan, plan
from headwater.streams.stores import Store
from headwater.streams.task import Task, TaskSpec
from headwater.streams.watch import Watch

__all__ = ["Clock", "RunningTask", "SystemClock", "Worker"]

log = logging.getLogger("headwater")

# How many records are read at once for an input, and below how many waiting ones it is read again.
READ = 5_000
LOW = 2_000
_topic = itemgetter(0)
# How often, in milliseconds, a worker looks whether tasks have moved.
LOOK_MS = 500
# How long, about, a task may work before others have their turn; it begins with one record.
SLICE_SECONDS = 0.05
FIRST_SLICE = 1
# How long all tasks may work, one after the other, before the worker looks at what else there is to do.
TURN_SECONDS = 0.25
# How long a commit may take to bring the tasks that advance together to one time.
ROUND_SECONDS = 1.0


class Clock(Protocol):
    """Where the time comes from."""

    def now(self) -> int:
        """Milliseconds since the epoch."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait a little, for more records."""
        ...


class SystemClock:
    """The machine's own time."""

    def now(self) -> int:
        return system_clock()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class TopicsChanged(StreamsError):
    """The plan no longer fits the topics: a worker must be made anew."""


@dataclass
class RunningTask:
    """A task with its back end, and how far its inputs have been read."""

    spec: TaskSpec
    task: Task
    backend: RocksBackend
    positions: dict[tuple[str, int], int] = field(default_factory=dict)
    slice: int = FIRST_SLICE  # how many records are processed at once
    touched: bool = False  # something has happened since the last commit
    # What is counted: records by input read; rows by store, and results by topic; commits.
    read: Counter[tuple[str, int]] = field(default_factory=Counter)
    stored: Counter[str] = field(default_factory=Counter)
    written: Counter[str] = field(default_factory=Counter)
    commits: int = 0
    committed_at: int = 0
    # What it had dropped at its last commit: what it drops after that is done again if it is lost.
    lost: dict[str, tuple[int, int]] = field(default_factory=dict)
    rate: Meter = field(default_factory=Meter)
    latency: Meter = field(default_factory=Meter)

    @property
    def processed(self) -> int:
        """How many records its steps were given."""
        return self.task.processed

    def count(self, changes: Changes, now: int) -> None:
        """Count what has just been committed."""
        self.commits += 1
        self.committed_at = now
        self.lost = self.task.lost()
        for store, rows in changes.rows.items():
            self.stored[store] += len(rows)
        self.written.update(map(_topic, changes.outputs))
        if changes.offsets:
            self.latency.mark(now, max(0, now - self.task.record_time))


class Worker:
    """One process' share of an application.

    `step()` does a little of everything and says whether there was anything to do; `close()` commits and leaves.
    """

    def __init__(
        self,
        topology: Topology,
        config: Config,
        connection: Connection,
        directory: Path,
        clock: Clock,
        at_once: int = READ,
    ) -> None:
        self.topology = topology
        self.config = config
        self.clock = clock
        self.tasks: dict[str, RunningTask] = {}
        self.global_task: Task | None = None
        self.paused = False
        self.commits = 0
        self.commit_time = Meter()
        self.departed = 0  # records of tasks that have moved away
        self.lost = Lost(topology)
        self._at_once = at_once  # the most records of a task between two looks at the clock
        self._connection = connection
        self._directory = directory
        self._names_topics = any(isinstance(n, Sink) and callable(n.topic) for n in topology.nodes.values())
        self._topics = connection.topics()
        self.plan = self._prepare()
        self._specs = {spec.task_id: spec for spec in self.plan.tasks}
        connection.prepare(self.plan, {spec.task_id: list(self._inputs_of(spec)) for spec in self.plan.tasks})
        self._global_positions: dict[Place, int] = {}
        self._looked_at: int | None = None
        self._missing: list[str] = []  # tasks that should be here, but are not yet
        self._committed_at = clock.now()
        self._pace = Pace(topology, self.plan, waits=config.compat is None)
        # Whether the worker is to stop: then a turn ends with the record it is at.
        self.stopping: Callable[[], bool] = lambda: False
        self.watch = Watch()
        self._turn: str | None = None  # the task whose turn is next
        self._growing = False  # a task has just been found to be able to take more records at once
        if self.plan.global_task is not None:
            self._start_global(self.plan.global_task)

    # ---- topics ------------------------------------------------------------------------------------------------

    def _prepare(self) -> Plan:
        """The plan, once all topics it needs are there; sources must exist, internal topics and sinks are made."""
        missing = [
            f"topic {topic!r} of source {source.name!r} does not exist: create it, with as many partitions as you want "
            f"tasks (headwater topics create {topic} --partitions 4)"
            for source in self.topology.sources()
            for topic in source.topics
            if topic not in self.topology.internal_topics and topic not in self._topics
        ]
        if missing:
            raise TopologyError(missing)
        planned = plan(self.topology, self.config, self._partitions_of_external)
        kept = self._connection.identify(identity_of(self.topology, self.config, planned.partitions))
        # From here on under the names that its state is kept under.
        self.topology = adopted(self.topology, kept)
        planned = plan(self.topology, self.config, self._partitions_of_external)
        for topic in self.topology.internal_topics:
            real = f"{self.config.app_id}-{topic}"
            self._ensure(real, planned.partitions[real], internal=True)
        widest = max(planned.partitions.values(), default=1)
        sinks = [node for node in self.topology.nodes.values() if isinstance(node, Sink)]
        named = [s.topic for s in sinks if isinstance(s.topic, str) and s.topic not in self.topology.internal_topics]
        for name in (*named, self.config.dead_letters, self.config.late):
            if name is not None:
                self._ensure(name, widest, internal=False)
        return planned

    def _ensure(self, topic: str, partitions: int, *, internal: bool) -> None:
        there = self._topics.get(topic)
        if internal and there not in (None, partitions):
            raise TopologyError(
                [
                    f"internal topic {topic!r} has {there} partitions, but the topology needs {partitions}: the number "
                    f"of source partitions has changed; reset the application (headwater reset) to start anew"
                ]
            )
        if internal or there is None:
            self._connection.create(topic, partitions, internal=internal)
            self._topics.setdefault(topic, partitions)

    def _partitions_of_external(self, topic: str) -> int:
        if topic in self._topics:
            return self._topics[topic]
        # A pattern: as many as the widest of the topics it matches.
        pattern = next(s.pattern for s in self.topology.sources() if s.pattern and s.pattern.pattern == topic)
        return max((count for name, count in self._topics.items() if pattern.fullmatch(name)), default=1)

    def partitions_of(self, topic: str) -> int:
        """How many partitions a topic has; one that a function named just now is made, as wide as the widest."""
        if topic not in self._topics:
            self._topics = self._connection.topics()
            self._ensure(topic, max(self.plan.partitions.values(), default=1), internal=False)
        return self._topics[topic]

    # ---- tasks come and go -------------------------------------------------------------------------------------

    def _check_topics(self) -> None:
        """Raise TopicsChanged when an input has other partitions than the plan was made for, or a new topic matches."""
        now = self._connection.topics()
        sources = self.topology.sources()
        read = {topic for source in sources for topic in self._topics_of(source)}
        matching = {topic for s in sources if s.pattern for topic in now if s.pattern.fullmatch(topic)}
        changed = sorted(t for t in read | matching if t in now and now[t] != self._topics.get(t))
        if changed:
            raise TopicsChanged(f"the partitions of {', '.join(changed)} have changed")

    def rebalance(self) -> bool:
        """Give up tasks that are no longer this worker's and start those that are; whether any moved."""
        wanted = self._connection.assigned(sorted(self._specs))
        leaving = [task_id for task_id in self.tasks if task_id not in wanted]
        if leaving:
            self.give_up(leaving, True)
        started = [task_id for task_id in wanted if task_id not in self.tasks and self._start(task_id)]
        self._missing = [task_id for task_id in wanted if task_id not in self.tasks]
        return bool(leaving or started)

    def give_up(self, task_ids: Collection[str], commit: bool) -> None:
        """Stop tasks, after a commit of all; or without one, if they have been lost."""
        if commit and any(task_id in self.tasks for task_id in task_ids):
            self.commit()
        for task_id in task_ids:
            if task_id in self.tasks:
                self._stop(task_id)

    def waiting_for(self) -> list[str]:
        """The tasks that should be here, but have not been let go by another worker yet."""
        wanted = self._connection.assigned(sorted(self._specs))
        return [task_id for task_id in wanted if task_id not in self.tasks]

    def _start(self, task_id: str) -> bool:
        spec = self._specs[task_id]
        backend = self._connection.open(spec, self._directory / task_id)
        if backend is None:
            return False
        try:
            task = Task(
                spec,
                backend,
                self.partitions_of,
                self._global_stores(),
                now=self.clock.now(),
                largest=self._connection.largest,
                clock=self.clock.now,
            )
            task.warn_if_ahead()
            running = RunningTask(
                spec, task, backend, slice=min(FIRST_SLICE, self._at_once), committed_at=self.clock.now()
            )
            self._find_inputs(running)
        except BaseException:
            self._connection.shut(task_id, backend)
            raise
        self.tasks[task_id] = running
        self._pace.began(task_id)
        if task.forgotten:
            log.warning(
                "task %s: the attributes of %s are not used: no processor has that name now. Give processors names of "
                "their own (name=), which do not shift",
                task_id,
                ", ".join(task.forgotten),
            )
        log.info("task %s started", task_id)
        return True

    def _find_inputs(self, running: RunningTask) -> None:
        for topic, partition in self._inputs_of(running.spec):
            if (topic, partition) not in running.positions:
                committed = running.task.offsets.get((topic, partition))
                reset = self._reset_of(topic)
                running.positions[topic, partition] = self._connection.begin(
                    running.spec.task_id, topic, partition, committed, reset
                )
                running.task.open_input(topic, partition)
                running.task.trail(topic, partition, fresh=True, trailing=True)

    def _inputs_of(self, spec: TaskSpec) -> Iterable[tuple[str, int]]:
        """The topic partitions a task reads; a global task reads all of them."""
        for name in spec.nodes:
            node = self.topology.nodes[name]
            if isinstance(node, Source):
                for topic in self._topics_of(node):
                    count = self._topics[topic]
                    if spec.is_global:
                        yield from ((topic, partition) for partition in range(count))
                    elif spec.partition < count:
                        yield topic, spec.partition

    def _topics_of(self, source: Source) -> list[str]:
        if source.pattern is not None:
            return sorted(topic for topic in self._topics if source.pattern.fullmatch(topic))
        internal = self.topology.internal_topics
        return [f"{self.config.app_id}-{topic}" if topic in internal else topic for topic in source.topics]

    def _reset_of(self, topic: str) -> str | None:
        return next((s.reset for s in self.topology.sources() if topic in self._topics_of(s)), None)

    def _stop(self, task_id: str) -> None:
        running = self.tasks.pop(task_id)
        self.departed += running.processed
        self.lost.depart(running.lost)
        try:
            running.task.close()
        finally:
            self._connection.shut(task_id, running.backend)
        log.info("task %s stopped", task_id)

    # ---- global tables -----------------------------------------------------------------------------------------

    def _start_global(self, spec: TaskSpec) -> None:
        """A copy of the global tables of this worker's own, read to the end before any task starts."""
        self._global_backend = MemoryBackend(spec.backend_stores())
        self.global_task = Task(spec, self._global_backend, self.partitions_of, now=self.clock.now())
        for topic, partition in self._inputs_of(spec):
            self._global_positions[topic, partition] = self._connection.begin(
                spec.task_id, topic, partition, None, "earliest"
            )
        while self._update_global() or not all(self._connection.caught_up(*at) for at in self._global_positions):
            if not self._connection.poll(self.give_up):
                self.clock.sleep(0.001)

    def _update_global(self) -> int:
        task = self.global_task
        if task is None:
            return 0
        done = 0
        for (topic, partition), position in self._global_positions.items():
            records = self._connection.read(topic, partition, position, READ)
            if records:
                task.feed(topic, partition, records)
                self._global_positions[topic, partition] = records[-1][4] + 1
                while task.queued:
                    with self.watch.on(task):
                        done += task.process(task.queued, self.clock.now())
        if done:
            self._global_backend.write(task.commit().batch())
        return done

    def _global_stores(self) -> dict[str, Store]:
        return self.global_task.stores if self.global_task is not None else {}

    # ---- work --------------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Look for moved tasks, read, process, punctuate and commit, each if it is time; whether it did anything."""
        now = self.clock.now()
        busy = self._connection.poll(self.give_up)
        look = self._looked_at is None or not 0 <= now - self._looked_at < LOOK_MS
        if look:
            self._looked_at = now
            self._check_topics()
            self.lost.warn([running.lost for running in self.tasks.values()], now)
        if look or busy or self._missing:
            busy = self.rebalance() or busy
        if self.paused:
            return busy
        busy = bool(self._update_global()) or busy
        done = self._work(now)
        ends = time.perf_counter() + SLICE_SECONDS
        # While slices are small, as at the start, there is more to do than look at the clock.
        while self._growing and not self.stopping() and time.perf_counter() < ends and not self._wants_commit():
            self._work(now)
        busy = busy or done
        # Tasks that wait for what others have done need not wait for the interval too.
        held_up = not done and self._pace.held_up(self._tasks(), now)
        if held_up or self._wants_commit() or not 0 <= now - self._committed_at < self.config.commit_interval_ms:
            busy = self.commit() or busy
        return busy

    def _wants_commit(self) -> bool:
        return any(running.task.wants_commit for running in self.tasks.values())

    def _tasks(self) -> dict[str, Task]:
        return {task_id: running.task for task_id, running in self.tasks.items()}

    def _work(self, now: int, *, begin: bool = True) -> bool:
        """Give each task its turn, as far as its pace allows; without `begin` only those whose round is not over.

        Whether any record was read or processed. After a while it ends, and goes on where it was with the next call.
        """
        ends = time.perf_counter() + TURN_SECONDS
        busy = False
        for running in self.tasks.values():
            busy = self._read(running) or busy
        tasks = {task_id: (running.task, running.slice) for task_id, running in self.tasks.items()}
        limits = self._pace.rounds(tasks, now, missing=self._missing, begin=begin)
        came_to: dict[str, int] = {}
        self._growing = False
        for task_id in self._in_turn():
            if task_id not in limits and not begin:
                continue
            running = self.tasks[task_id]
            slice, before = running.slice, running.processed
            done = self._process(running, now, limits.get(task_id, LONG_MAX))
            with self.watch.on(running.task):
                punctuated = running.task.punctuate(now)
            if punctuated or done:
                running.touched = True
            if done:
                busy = True
                running.rate.mark(now, running.processed - before)
                came_to[task_id] = running.task.stream_time
                self._growing = self._growing or running.slice > slice
            if self.stopping() or time.perf_counter() > ends:
                break
        self._pace.worked(self._tasks(), came_to, now)
        if not self.config.exactly_once:
            self._send()
        return busy

    def _in_turn(self) -> Iterator[str]:
        """The tasks, from the one whose turn is next."""
        order = list(self.tasks)
        first = order.index(self._turn) if self._turn in self.tasks else 0
        for number in range(len(order)):
            self._turn = order[(first + number + 1) % len(order)]
            yield order[(first + number) % len(order)]

    def _send(self) -> None:
        """Write the tasks' results at once: nobody needs to wait for the commit to see them.

        Those of tasks that work together are merged, and wait until their round is over.
        """
        sets: dict[str, list[RunningTask]] = {}
        for task_id, running in self.tasks.items():
            name = self._pace.together(task_id)
            if name is None or not self._pace.is_open(name):
                sets.setdefault(name or task_id, []).append(running)
        for several in sets.values():
            parts = [(running, running.task.take_outputs()) for running in several]
            outputs = merged([part for _, part in parts], OUTPUT_TIME, by_time=self.config.compat is None)
            if outputs:
                self._know_topics(outputs)
                self._connection.send(outputs)
                for running, part in parts:
                    running.written.update(map(_topic, part))

    def _finish_rounds(self) -> None:
        """Bring the tasks that advance together to one time, so that what follows a commit is later than what it has.

        Not at any price: what is dropped as late because of it is counted, and said.
        """
        ends = time.perf_counter() + ROUND_SECONDS
        while self._pace.open and not self.paused and time.perf_counter() < ends:
            if not self._work(self.clock.now(), begin=False):
                return

    def _know_topics(self, outputs: Iterable[Output]) -> None:
        """Make topics that a function has named just now."""
        if self._names_topics:
            for topic in set(map(_topic, outputs)):
                self.partitions_of(topic)

    def _process(self, running: RunningTask, now: int, until: int) -> int:
        """Process a slice of a task's records: so many that stop, commit and queries need not wait long for it."""
        began = time.perf_counter()
        with self.watch.on(running.task):
            done = running.task.process(running.slice, now, until)
        took = time.perf_counter() - began
        if took > SLICE_SECONDS:
            running.slice = max(1, running.slice // 2)
        elif done == running.slice or (done and until < LONG_MAX and running.task.queued):
            # It was stopped by the number of records, its own or that of one that it works together with.
            running.slice = min(2 * running.slice, self._at_once)
        return done

    def _read(self, running: RunningTask) -> bool:
        """Fill the inputs that run low; an input that is not at its end holds the others up, so that none overtakes."""
        any_read = False
        task = running.task
        paced = self._pace.together(running.spec.task_id) is not None
        for (topic, partition), position in running.positions.items():
            if task.waiting(topic, partition) >= LOW:
                continue
            records = self._connection.read(topic, partition, position, READ)
            if records:
                any_read = True
                running.positions[topic, partition] = records[-1][4] + 1
                running.read[topic, partition] += len(records)
                task.feed(topic, partition, records)
            ended = not records and self._connection.caught_up(topic, partition)
            task.caught_up(topic, partition, ended)
            if paced:
                trailing = task.trails(topic, partition)
                if records:
                    left = self._connection.behind(topic, partition, running.positions[topic, partition])
                    trailing = left > (0 if trailing else READ)
                task.trail(topic, partition, fresh=bool(records), trailing=trailing and not ended)
        return any_read

    def commit(self) -> bool:
        """Commit every task that has done anything since its last commit; whether there was one."""
        self._finish_rounds()
        self._committed_at = self.clock.now()
        touched = [running for running in self.tasks.values() if running.touched]
        if not touched:
            self._pace.committed(self._tasks(), self._committed_at)
            return False
        commits = [
            TaskCommit(r.spec.task_id, r.backend, self._changes(r.task), r.task.partition_times, r.task.closed_times)
            for r in touched
        ]
        self._know_topics(output for commit in commits for output in commit.changes.outputs)
        try:
            self._connection.commit(commits)
        except Undone as undone:
            # What the tasks have done since is in none of their stores: they are made anew from what is there.
            log.warning("%s; %d tasks begin again at their last commit", undone, len(self.tasks))
            self.give_up(list(self.tasks), False)
            return True
        now = self.clock.now()
        self.commits += 1
        self.commit_time.mark(now, now - self._committed_at)
        for running, commit in zip(touched, commits, strict=True):
            running.touched = False
            running.count(commit.changes, now)
        self._pace.committed(self._tasks(), now)
        return True

    def _changes(self, task: Task) -> Changes:
        with self.watch.on(task):
            return task.commit()

    def idle(self) -> bool:
        """Whether all that is in the topics has been processed and committed by the tasks that run here."""
        if any(running.touched or running.task.queued for running in self.tasks.values()):
            return False
        positions = {place: at for running in self.tasks.values() for place, at in running.positions.items()}
        return self._connection.at_end(positions | self._global_positions)

    def lag(self, running: RunningTask) -> int:
        """How many records a task has yet to process."""
        return running.task.queued + sum(
            self._connection.behind(*place, position) for place, position in running.positions.items()
        )

    @property
    def standbys(self) -> Mapping[str, Standby]:
        """Copies of the rows of tasks that run elsewhere."""
        return self._connection.standbys

    @property
    def can_restore(self) -> bool:
        """Whether a task here has met damage in its rows, and is restored when a worker is made anew."""
        return self._connection.restores and any(running.backend.damaged for running in self.tasks.values())

    def connection_metrics(self) -> dict[str, object]:
        """What its connection counts."""
        return self._connection.metrics()

    def close(self, *, commit: bool = True) -> None:
        """Commit (unless something has failed), stop all tasks and leave."""
        # All of it, whichever fails: a member that is not closed would keep its tasks.
        with ExitStack() as ends:
            ends.callback(self._connection.close)
            if self.global_task is not None:
                ends.callback(self.global_task.close)
            try:
                if commit:
                    self.commit()
            finally:
                self.lost.warn([running.lost for running in self.tasks.values()], self.clock.now(), last=True)
                for task_id in self.tasks:
                    ends.callback(self._stop, task_id)
