"""Where a task is: the record it works on, its times, what it has sent so far, and the punctuators that are due. It
owns the user's view of all that, ProcessorContext; queues, stores and commits are the task's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import msgspec

from headwater.dsl.callables import check
from headwater.dsl.durations import checked_ms
from headwater.dsl.records import Headers, Record
from headwater.errors import StreamsError
from headwater.streams.queues import JavaQueue, RawRecord

if TYPE_CHECKING:
    from headwater.streams.compile import Site, Step

__all__ = ["Output", "ProcessorContext", "Punctuations", "RecordContext", "Schedule", "TaskContext"]

# Topic, partition (None: by the key), key, value, timestamp, headers.
Output: TypeAlias = tuple[str, int | None, bytes | None, bytes | None, int, Headers]
Clock: TypeAlias = Literal["stream-time", "wall-clock"]
# What `TaskContext.here` gives and `go` takes back.
Place: TypeAlias = tuple[str | None, int | None, int | None, int, RawRecord | None]


class TaskContext:
    """The record a task works on, and the task's times; one object for all its nodes.

    Topic, partition, offset and record are None while a punctuator runs. `timestamp` is the source record's.
    """

    __slots__ = (
        "commit_requested",
        "offset",
        "outputs",
        "partition",
        "record",
        "stream_time",
        "task_id",
        "timestamp",
        "topic",
        "wall_clock",
    )

    def __init__(self, task_id: str, now: int) -> None:
        self.task_id = task_id
        self.topic: str | None = None
        self.partition: int | None = None
        self.offset: int | None = None
        self.timestamp = now
        self.record: RawRecord | None = None
        self.stream_time = -1
        self.wall_clock = now
        # Always the same list: sinks keep its append.
        self.outputs: list[Output] = []
        self.commit_requested = False

    @property
    def headers(self) -> Headers:
        """The source record's headers."""
        return () if self.record is None else self.record[3]

    def here(self) -> Place:
        """Where the task is, for `go`."""
        return self.topic, self.partition, self.offset, self.timestamp, self.record

    def go(self, place: Place) -> None:
        """Work on another record, or on none."""
        self.topic, self.partition, self.offset, self.timestamp, self.record = place


class RecordContext(msgspec.Struct, frozen=True):
    """What a function that names a sink's topic is told about the record."""

    topic: str | None
    partition: int | None
    offset: int | None
    timestamp: int
    headers: Headers


class Schedule:
    """A punctuator and the time it is due next; `cancel()` ends it."""

    __slots__ = ("_f", "_fault", "cancelled", "index", "interval_ms", "node", "time")

    def __init__(
        self, node: str, index: int, time: int, interval_ms: int, f: Callable[[int], object], fault: Step
    ) -> None:
        self.node = node
        self.index = index
        self.time = time
        self.interval_ms = interval_ms
        self.cancelled = False
        self._f = f
        self._fault = fault

    def cancel(self) -> None:
        """Never call the punctuator again.

        >>> from datetime import timedelta
        >>> from headwater import Processor, Topology, TopologyTestDriver
        >>> class Once(Processor):
        ...     def init(self, context):
        ...         bell = context.schedule(timedelta(seconds=1), "wall-clock", lambda t: (print(t), bell.cancel()))
        >>> with TopologyTestDriver(Topology().add_source("in", "a").add_processor("p", Once, "in")) as driver:
        ...     driver.advance(timedelta(seconds=1))
        ...     driver.advance(timedelta(seconds=1))
        1000
        """
        self.cancelled = True

    def run(self, time: int) -> None:
        """Call the punctuator, then move on to the first multiple of the interval after this time."""
        try:
            self._f(time)
        except Exception as error:
            self._fault(error, None, None, time, ())
        self.time += ((time - self.time) // self.interval_ms + 1) * self.interval_ms


class Punctuations:
    """The punctuators of a task, by stream time and by wall clock."""

    def __init__(self, context: TaskContext) -> None:
        self._context = context
        self._queues: dict[Clock, JavaQueue[Schedule]] = {"stream-time": JavaQueue(), "wall-clock": JavaQueue()}
        self._counts: dict[str, int] = {}
        self.by_stream_time = self._queues["stream-time"].items

    def schedule(self, site: Site, interval: timedelta, clock: Clock, f: Callable[[int], object]) -> Schedule:
        """Call `f(time)` at each multiple of the interval: of stream time since 0, of the wall clock since now."""
        faults: list[str] = []
        interval_ms = checked_ms("schedule: interval", interval, faults, least=1)
        if clock not in get_args(Clock):
            faults.append(f'schedule: the clock is "stream-time" or "wall-clock", but is {clock!r}')
        try:
            check(f, 1)
        except ValueError as fault:
            faults.append(f"schedule: {fault}")
        if faults:
            raise StreamsError("; ".join(faults))
        first = 0 if clock == "stream-time" else self._context.wall_clock + interval_ms
        index = self._counts.get(site.node, 0)
        self._counts[site.node] = index + 1
        schedule = Schedule(site.node, index, first, interval_ms, f, site.fault)
        self._queues[clock].offer(schedule)
        return schedule

    def fire(self, clock: Clock, time: int) -> bool:
        """Run what is due, each once however many intervals have passed; whether there was anything."""
        queue, context = self._queues[clock], self._context
        if not queue.items or queue.items[0].time > time:
            return False
        here = context.here()
        fired = False
        while queue.items and queue.items[0].time <= time:
            schedule = queue.poll()
            if schedule.cancelled:
                continue
            context.go((None, None, None, time, None))
            schedule.run(time)
            fired = True
            if not schedule.cancelled:
                queue.offer(schedule)
        context.go(here)
        return fired

    def memory(self) -> dict[str, Any]:
        """When each is due, by the node and the number of its schedule() call, in the heap's own order."""
        queues = {
            clock: [(item.node, item.index, item.time, item.cancelled) for item in queue.items]
            for clock, queue in self._queues.items()
        }
        return {"counts": dict(self._counts), "queues": queues} if self._counts else {}

    def remember(self, memory: Mapping[str, Any]) -> None:
        """Go on where the memory was taken, after every processor's init has scheduled its own again.

        What a processor scheduled later than in init has no function here until it schedules it again.
        """
        counts = memory["counts"]
        for clock, queue in self._queues.items():
            here = {(item.node, item.index): item for item in queue.items}
            fresh = [item for item in queue.items if item.index >= counts.get(item.node, 0)]
            queue.items.clear()
            for node, index, time, cancelled in memory["queues"][clock]:
                known = here.get((node, index))
                if known is not None:
                    known.time, known.cancelled = time, cancelled
                    queue.items.append(known)
            for item in fresh:
                queue.offer(item)


class ProcessorContext:
    """What a processor may ask and do: forward records, read and write its stores, schedule punctuators.

    >>> from datetime import timedelta
    >>> from headwater import Processor, Topology, TopologyTestDriver
    >>> class Ticks(Processor):
    ...     def init(self, context):
    ...         super().init(context)
    ...         context.schedule(timedelta(seconds=1), "stream-time", lambda time: print("tick", time))
    ...     def process(self, record):
    ...         print(self.context.topic, record.value)
    >>> topology = Topology().add_source("in", "words").add_processor("ticks", Ticks, "in")
    >>> with TopologyTestDriver(topology) as driver:
    ...     driver.input("words").send("k", "v", at=2500)
    words v
    tick 2500
    """

    def __init__(self, site: Site, fixed_key: bool) -> None:
        self._site = site
        self._task = site.context
        self._forward = site.forward
        self._children = site.children
        self._fixed_key = fixed_key
        self._stores: dict[str, Any] = {}
        # The key that process_values must keep; punctuators have none.
        self.current: tuple[Any] | None = None

    def forward(self, record: Record, to: str | None = None) -> None:
        """Emit the record to all children, or to the child named `to`.

        >>> from headwater import Processor, Topology, TopologyTestDriver
        >>> class ByKey(Processor):
        ...     def process(self, record):
        ...         self.context.forward(record, to=record.key)
        >>> topology = Topology().add_source("in", "words").add_processor("p", ByKey, "in")
        >>> with TopologyTestDriver(topology.add_sink("a", "to-a", "p").add_sink("b", "to-b", "p")) as driver:
        ...     driver.input("words").send("b", 1, at=0)
        ...     len(driver.output("to-a").read_all()), len(driver.output("to-b").read_all())
        (0, 1)
        """
        if type(record) is not Record:
            raise TypeError(
                f"forward() takes a Record, but this is {record!r:.80}: write Record(key, value, timestamp)"
            )
        if record.timestamp < 0:
            raise ValueError(f"a record's timestamp must not be negative, but is {record.timestamp}")
        if self._fixed_key and self.current is not None and record.key != self.current[0]:
            raise StreamsError(
                f"step {self._site.node!r} must keep the key {self.current[0]!r}, but forwards {record.key!r}: "
                "use process() instead of process_values() to change keys"
            )
        if to is None:
            child = self._forward
        elif to in self._children:
            child = self._children[to]
        else:
            raise StreamsError(
                f"step {self._site.node!r} has no child {to!r}, only {', '.join(self._children) or 'none at all'}"
            )
        child(record.key, record.value, record.timestamp, record.headers)

    def store(self, name: str) -> Any:
        """The store of this name, which must be given to the processor; global stores can be read anyway.

        >>> from headwater import KeyValue, Processor, Topology, TopologyTestDriver
        >>> class Keep(Processor):
        ...     def process(self, record):
        ...         self.context.store("last").put(record.key, record.value)
        >>> topology = Topology().add_source("in", "a").add_processor("p", Keep, "in").add_store(KeyValue("last"), "p")
        >>> with TopologyTestDriver(topology) as driver:
        ...     driver.input("a").send("k", 1, at=0)
        ...     driver.store("last").get("k")
        1
        """
        store = self._stores.get(name)
        if store is None:
            store = self._stores[name] = self._site.user_store(name)
        return store

    def schedule(self, interval: timedelta, clock: Clock, f: Callable[[int], object]) -> Schedule:
        """Call `f(timestamp)` every interval of "stream-time" or "wall-clock", until `.cancel()`.

        By stream time it is first called with the first record, then whenever stream time has passed a multiple of
        the interval; by wall clock first after one interval. A jump over several multiples is one call.

        >>> from datetime import timedelta
        >>> from headwater import Processor, Topology, TopologyTestDriver
        >>> class Ticks(Processor):
        ...     def init(self, context):
        ...         context.schedule(timedelta(seconds=1), "stream-time", lambda time: print("tick", time))
        ...     def process(self, record): pass
        >>> with TopologyTestDriver(Topology().add_source("in", "a").add_processor("p", Ticks, "in")) as driver:
        ...     driver.send_all([("a", "k", 1, 400), ("a", "k", 2, 900), ("a", "k", 3, 2500)])
        tick 400
        tick 2500
        """
        return self._site.schedule(interval, clock, f)

    def commit(self) -> None:
        """Ask for a commit soon.

        >>> from headwater import Processor, Topology, TopologyTestDriver
        >>> class Orders(Processor):
        ...     def process(self, record):
        ...         print("stored", record.value)
        ...         self.context.commit()
        >>> with TopologyTestDriver(Topology().add_source("in", "a").add_processor("p", Orders, "in")) as driver:
        ...     driver.input("a").send("k", 1, at=0)
        stored 1
        """
        self._task.commit_requested = True

    @property
    def topic(self) -> str | None:
        """The topic of the record being processed, None in a punctuator."""
        return self._task.topic

    @property
    def partition(self) -> int | None:
        """The partition of the record being processed, None in a punctuator."""
        return self._task.partition

    @property
    def offset(self) -> int | None:
        """The offset of the record being processed, None in a punctuator."""
        return self._task.offset

    @property
    def stream_time(self) -> int:
        """The highest timestamp the task has seen, -1 before its first record."""
        return self._task.stream_time

    @property
    def wall_clock(self) -> int:
        """The current time, in epoch milliseconds."""
        return self._task.wall_clock

    @property
    def task_id(self) -> str:
        """The task: sub-topology and partition, as `0_1`."""
        return self._task.task_id
