"""Where a task is: the record it works on, its times, what it has sent so far, and the punctuators that are due. It
owns the user's view of all that, ProcessorContext; queues, stores and commits are the task's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from types import MethodType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

import msgspec

from headwater.dsl.callables import check, check_ran, place
from headwater.dsl.camel import CamelCase
from headwater.dsl.durations import LONG_MAX, checked_ms
from headwater.dsl.records import Headers, Record
from headwater.errors import StreamsError
from headwater.streams.queues import JavaQueue, RawRecord

if TYPE_CHECKING:
    from headwater.streams.compile import Site, Step

__all__ = [
    "Output",
    "ProcessorContext",
    "Punctuations",
    "RecordContext",
    "Schedule",
    "ScheduleId",
    "TaskContext",
    "headers_fault",
]

log = logging.getLogger("headwater")

# Topic, partition (None: by the key), key, value, timestamp, headers.
Output: TypeAlias = tuple[str, int | None, bytes | None, bytes | None, int, Headers]
Clock: TypeAlias = Literal["stream-time", "wall-clock"]
# What `TaskContext.here` gives and `go` takes back.
Place: TypeAlias = tuple[str | None, int | None, int | None, int, RawRecord | None]


def headers_fault(headers: object) -> str | None:
    """What is wrong with something given as a record's headers, or None.

    >>> headers_fault((("trace", b"7"),))
    >>> headers_fault({"trace": b"7"})
    "must be a tuple of (name, bytes) pairs, but is {'trace': b'7'}: write tuple(….items())"
    """
    if type(headers) is tuple:
        wrong = next((pair for pair in headers if not _is_header(pair)), None)
        if wrong is None:
            return None
        return f"must be (name, bytes) pairs, but one is {wrong!r:.80}: the name is text, the content bytes or None"
    remedy = "tuple(….items())" if isinstance(headers, dict) else "tuple(…)" if headers is not None else "() for none"
    return f"must be a tuple of (name, bytes) pairs, but is {headers!r:.80}: write {remedy}"


def _is_header(pair: object) -> bool:
    return (
        type(pair) is tuple
        and len(pair) == 2
        and type(pair[0]) is str
        and (pair[1] is None or isinstance(pair[1], bytes))
    )


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


class ScheduleId(NamedTuple):
    """Which schedule it is, over restarts too: the number of its node's schedule() call, in init() or after it."""

    node: str
    in_init: bool
    number: int


class Schedule:
    """A punctuator and the time it is due next; `cancel()` ends it."""

    __slots__ = ("_f", "_fault", "cancelled", "clock", "id", "interval_ms", "method", "time")

    def __init__(
        self, id: ScheduleId, clock: Clock, interval_ms: int, time: int, f: Callable[[int], object], fault: Step
    ) -> None:
        self.id = id
        self.clock = clock
        self.interval_ms = interval_ms
        self.time = time
        self.cancelled = False
        # The processor's method that it calls, by which a restart finds it again.
        self.method: str | None = None
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
            check_ran(self._f, self._f(time))
        except Exception as error:
            self._fault(error, None, None, time, ())
        finally:
            self.time += ((time - self.time) // self.interval_ms + 1) * self.interval_ms


class _Saved(NamedTuple):
    """A schedule as it was committed."""

    id: tuple[str, bool, int]
    interval_ms: int
    time: int
    cancelled: bool
    method: str | None


class Punctuations:
    """The punctuators of a task, by stream time and by wall clock.

    `processors` and `sites` are the task's, by node, and may still be filled.
    """

    def __init__(self, context: TaskContext, processors: Mapping[str, object], sites: Mapping[str, Site]) -> None:
        self._context = context
        self._processors = processors
        self._sites = sites
        self._queues: dict[Clock, JavaQueue[Schedule]] = {"stream-time": JavaQueue(), "wall-clock": JavaQueue()}
        # How many schedule() calls each node has made, in init() (True) and after it.
        self._counts: dict[tuple[str, bool], int] = {}
        self._warned: set[str] = set()
        self.by_stream_time = self._queues["stream-time"].items
        # Whether processors are being started, so that what they schedule will be scheduled again after a restart.
        self.in_init = True

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
        number = self._counts.get((site.node, self.in_init), 0)
        self._counts[site.node, self.in_init] = number + 1
        schedule = Schedule(ScheduleId(site.node, self.in_init, number), clock, interval_ms, first, f, site.fault)
        schedule.method = self._method(site.node, f)
        if schedule.method is None and not self.in_init and site.node not in self._warned:
            self._warned.add(site.node)
            log.warning(
                "step %r scheduled %s after init(): a restart forgets it, since it is no method of the processor; "
                "schedule a method, self.…, or schedule it in init()",
                site.node,
                place(f),
            )
        self._queues[clock].offer(schedule)
        return schedule

    def _method(self, node: str, f: object) -> str | None:
        """The name of a method of the node's own processor; None of any other function."""
        processor = self._processors.get(node)
        if isinstance(f, MethodType) and f.__self__ is processor and getattr(processor, f.__name__, None) == f:
            return f.__name__
        return None

    def fire(self, clock: Clock, time: int) -> bool:
        """Run what is due, each once however many intervals have passed; whether there was anything."""
        queue, context = self._queues[clock], self._context
        if not queue.items or queue.items[0].time > time:
            return False
        here = context.here()
        fired = False
        try:
            while queue.items and queue.items[0].time <= time:
                schedule = queue.poll()
                if schedule.cancelled:
                    continue
                context.go((None, None, None, time, None))
                try:
                    schedule.run(time)
                finally:
                    if not schedule.cancelled:
                        queue.offer(schedule)
                fired = True
        finally:
            context.go(here)
        return fired

    def memory(self) -> dict[str, Any]:
        """When each is due and what it calls, in the heap's own order."""
        if not self._counts:
            return {}
        queues = {
            clock: [((*item.id,), item.interval_ms, item.time, item.cancelled, item.method) for item in queue.items]
            for clock, queue in self._queues.items()
        }
        return {"counts": dict(self._counts), "queues": queues}

    def remember(self, memory: Mapping[str, Any]) -> dict[ScheduleId, Schedule]:
        """Go on where the memory was taken, after every processor's init has scheduled its own again.

        Those of init() are found by their order, as long as clock and interval are still the same; later ones are made
        again if they call a method of their processor. Returns all there are.
        """
        counts = memory["counts"]
        saved = {clock: [_Saved(*entry) for entry in memory["queues"][clock]] for clock in self._queues}
        made = {item.id: item for queue in self._queues.values() for item in queue.items}
        known: dict[ScheduleId, Schedule] = {}
        for clock, queue in self._queues.items():
            queue.items.clear()
            for entry in saved[clock]:
                id = ScheduleId(*entry.id)
                item = made.get(id) if id.in_init else self._again(id, clock, entry)
                if item is not None and (item.clock, item.interval_ms) == (clock, entry.interval_ms):
                    item.time, item.cancelled = entry.time, entry.cancelled
                    known[id] = item
                    # In the heap's own order each one stays where it is offered.
                    queue.offer(item)
        running = {ScheduleId(*entry.id) for entries in saved.values() for entry in entries if not entry.cancelled}
        for id, item in made.items():
            if id not in known:
                # New in init(), or changed there; what was there and no longer waits had been cancelled.
                if id in running or id.number >= counts.get((id.node, True), 0):
                    self._queues[item.clock].offer(item)
                else:
                    item.cancelled = True
                known[id] = item
        for (node, in_init), count in counts.items():
            if not in_init:
                self._counts[node, False] = count
        return known

    def _again(self, id: ScheduleId, clock: Clock, entry: _Saved) -> Schedule | None:
        """What was scheduled after init(), made again."""
        if id.node not in self._processors:
            return None
        f = getattr(self._processors[id.node], entry.method or "", None)
        if entry.cancelled:
            # It only keeps its place in the heap, on which the order of the others depends.
            f = _never
        elif f is None:
            if entry.method is not None:
                log.warning("step %r no longer has the method %s that it had scheduled", id.node, entry.method)
            return None
        schedule = Schedule(id, clock, entry.interval_ms, entry.time, f, self._sites[id.node].fault)
        schedule.method = entry.method
        return schedule

    def ended(self, id: ScheduleId) -> Schedule:
        """A handle of a schedule that is no more."""
        schedule = Schedule(id, "stream-time", 1, 0, _never, _never)
        schedule.cancel()
        return schedule


def _never(*args: object) -> None:
    """What a cancelled schedule would call."""


class ProcessorContext(CamelCase):
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
        # The timestamp of the record this processor works on, which another processor may have changed.
        self.time: int | None = None

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
        timestamp, headers = record.timestamp, record.headers
        if type(timestamp) is not int or not 0 <= timestamp <= LONG_MAX:
            raise ValueError(
                "forward(): a record's timestamp must be an int, epoch milliseconds from 0 to 2**63 - 1, "
                f"but is {timestamp!r:.80}: set it with record.replace(timestamp=…)"
            )
        if headers != ():
            fault = headers_fault(headers)
            if fault is not None:
                raise TypeError(f"forward(): a record's headers {fault}")
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
        child(record.key, record.value, timestamp, headers)

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
            store = self._stores[name] = self._site.user_store(name, self._now)
        return store

    def _now(self) -> int:
        """The current record's timestamp; a punctuator's time."""
        return self._task.timestamp if self.time is None else self.time

    def schedule(self, interval: timedelta, clock: Clock, f: Callable[[int], object]) -> Schedule:
        """Call `f(timestamp)` every interval of "stream-time" or "wall-clock", until `.cancel()`.

        By stream time it is first called with the first record, then whenever stream time has passed a multiple of
        the interval; by wall clock first after one interval. A jump over several multiples is one call.

        Schedules live through a restart: those made in init() since init() makes them again, in the same order; those
        made later if `f` is a method of the processor (`self.tick`), and handles to them in its public attributes stay
        good. Any other function scheduled after init() is forgotten at a restart, and a warning is logged.

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
