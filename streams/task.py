"""The task: some sub-topologies on one partition. It takes records in, chooses among them, runs the operators over them
and gives out what a commit must write. It owns order, stream time and operator memory; it does no I/O but reading its
back end, and knows nothing of who feeds it or where its changes go.
"""

from __future__ import annotations

import logging
import pickle
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from operator import itemgetter
from types import CodeType, FrameType
from typing import Any

import cloudpickle  # type: ignore[import-untyped]  # it comes without types

from headwater.dsl import ops
from headwater.dsl.callables import place
from headwater.dsl.config import Config
from headwater.dsl.durations import LONG_MAX
from headwater.dsl.java_order import hash_order
from headwater.dsl.records import Headers
from headwater.dsl.serde import Serde
from headwater.dsl.suppliers import stores_of
from headwater.dsl.timestamps import OnInvalid, SourceRecord
from headwater.dsl.topology import ProcessorNode, Source, StoreSpec, Topology
from headwater.errors import StreamsError
from headwater.state.backend import Backend
from headwater.streams import operators
from headwater.streams.attributes import Attributes
from headwater.streams.changes import (
    NOTHING,
    TASK,
    Changes,
    memory_key,
    pickled,
    read_committed,
    step_memory,
    store_memory,
)
from headwater.streams.clocks import FIRST_DATE_MS, HOUR_MS, date_of, duration_of, system_clock
from headwater.streams.compat import remembered_by_kafka_streams
from headwater.streams.compile import Shared, compile_nodes
from headwater.streams.context import Output, TaskContext
from headwater.streams.faults import RecordFailed, running, text_of
from headwater.streams.queues import UNKNOWN, Head, PartitionGroup, RawRecord, RecordQueue
from headwater.streams.set_back import LEAPT, SET_BACK, is_pending, set_back
from headwater.streams.stores import Store, backend_stores, open_store

__all__ = ["Task", "TaskSpec"]

log = logging.getLogger("headwater")

assert operators.__all__  # imported for its rules

# When the uncommitted rows of a task's stores take more than this, it asks for a commit.
DIRTY_BYTES = 32 << 20
# And when it has collected more outputs than this.
OUTPUTS = 200_000
# How many records are decoded at once.
CHUNK = 2_000
# At how many of the records that wait a task looks to tell the time that they reach.
SAMPLES = 8
# For how many records the stores are told the keys in advance.
ANNOUNCED = 10_000

_fail_on_invalid = OnInvalid.fail()
_time = itemgetter(2)  # of a record as it was read


@dataclass(frozen=True)
class TaskSpec:
    """Everything about a task that can travel: nodes of a topology, a partition, the application's settings."""

    topology: Topology
    config: Config
    nodes: tuple[str, ...]
    task_id: str
    partition: int
    is_global: bool = False
    # Steps that only keep a copy of what another task keeps: what goes wrong in them is told by that one.
    muted: frozenset[str] = frozenset()

    def dumps(self) -> bytes:
        """The description as bytes, the user's functions included."""
        data: bytes = cloudpickle.dumps(self)
        return data

    @staticmethod
    def loads(data: bytes) -> TaskSpec:
        """The description from its bytes; only from a place as trusted as code."""
        spec: TaskSpec = pickle.loads(data)
        return spec

    def stores(self) -> list[StoreSpec]:
        """The stores of the task, in Kafka Streams' order: by node, then as a Java HashSet lists them."""
        topology = self.topology
        kept = topology.global_stores if self.is_global else topology.stores
        names = [
            store
            for name in self.nodes
            if isinstance(node := topology.nodes[name], ProcessorNode)
            for store in hash_order(node.stores)
        ]
        return [kept[name] for name in dict.fromkeys(names)]

    def closing(self) -> list[tuple[str, str]]:
        """The steps that emit windows when they close, each with its store."""
        nodes = ((name, self.topology.nodes[name]) for name in self.nodes)
        return [
            (name, node.op.store)
            for name, node in nodes
            if isinstance(node, ProcessorNode) and isinstance(node.op, _WINDOWED) and node.op.on_close
        ]

    def backend_stores(self) -> list[str]:
        """The names of the stores that the task's back end must have."""
        return [*backend_stores(self.stores()), TASK]


class Task:
    """Some nodes of a topology on one partition, over a back end that it reads and the caller writes.

    `partitions_of` tells how many partitions a topic has, `largest` how many bytes a record for it may have, if there
    is a bound; `globals` are the stores of the global task. `clock` is asked how far a timestamp is in the future, and
    `warn` is told when stream time leaps there. Over a back end with an earlier task's committed changes it goes on
    exactly where that was: feed it from `offsets` on. If it is `restarted`, compat="kafka-streams" has it forget what
    Kafka Streams forgets then.
    """

    def __init__(
        self,
        spec: TaskSpec,
        backend: Backend,
        partitions_of: Callable[[str], int] = lambda topic: 1,
        globals: Mapping[str, Store] | None = None,
        *,
        now: int = 0,
        largest: Callable[[str], int | None] = lambda topic: None,
        clock: Callable[[], int] = system_clock,
        warn: Callable[[str], object] = log.warning,
        restarted: bool = True,
    ) -> None:
        self.spec = spec
        # How many records the steps were given; one that could not be read, or had no timestamp, was only dropped.
        self.processed = 0
        self._clock = clock
        self._warn = warn
        self._failure: BaseException | None = None
        self._closed = False
        self._hurried = False
        self._passing: list[RawRecord] = []
        specs = spec.stores()
        self.stores: dict[str, Store] = {store.name: open_store(store, backend) for store in specs}
        self._store_memories = {store_memory(store): self.stores[store.name] for store in specs}
        context = self._context = TaskContext(spec.task_id, now)
        self.offsets, remembered = read_committed(backend)
        self._written: dict[str, bytes] = {name: pickled(memory) for name, memory in remembered.items()}
        if is_pending(remembered):
            # Not written yet: the first commit does, all of it at once.
            remembered = set_back(remembered)
        if spec.config.compat is not None and restarted:
            # The second is what earlier versions call it.
            closing = [(step_memory(spec.topology, node, store), f"node {node}") for node, store in spec.closing()]
            remembered = remembered_by_kafka_streams(remembered, chain.from_iterable(closing))
        self._set_back = {name: remembered[name] for name in (SET_BACK, LEAPT) if name in remembered}
        topology = spec.topology
        shared = self._shared = Shared(
            topology,
            spec.config,
            context,
            {**(globals or {}), **self.stores},
            {**topology.global_stores, **topology.stores},
            remembered,
            partitions_of,
            largest,
            spec.muted,
        )
        self._steps = compile_nodes(spec.nodes, shared)
        shared.cache.sort([store.name for store in specs])
        self._inputs = PartitionGroup(0 if spec.is_global else spec.config.max_task_idle_ms)
        self._sources = [node for name in spec.nodes if isinstance(node := topology.nodes[name], Source)]
        self._by_topic: dict[str, Source] = {}
        for source in self._sources:
            for topic in source.topics:
                real = shared.real_topic(topic)
                self._by_topic[real] = source
                if spec.partition < partitions_of(real):
                    self._queue(real, spec.partition)
        self._prefetches = {source.name: self._read_by_source_key(source) for source in self._sources}
        self._has_processors = bool(shared.processors)
        self._attributes: dict[str, Attributes] = {}
        # Processors that are not there any more, or have another name, and had attributes.
        self.forgotten: list[str] = []
        # Processors may look at stores and times in init(); what they then set and schedule themselves comes after it.
        self._remember(remembered)
        self._start()
        self._remember_processors(remembered)
        # Stream time up to here is no leap: an hour beyond the wall clock when last looked at, or beyond the last leap.
        self._far = context.stream_time + HOUR_MS if self._ahead() > HOUR_MS else UNKNOWN

    # ---- set-up and memory -------------------------------------------------------------------------------------

    def _start(self) -> None:
        for node, start in self._shared.starts:
            try:
                start()
            except Exception as error:
                raise StreamsError(f"step {node!r}: init failed with {text_of(error)}") from error
            self._attributes[node] = Attributes(self._shared.processors[node])
        self._shared.punctuations.in_init = False

    def _remember(self, remembered: Mapping[str, Mapping[str, Any]]) -> None:
        for spec in self.spec.stores():
            memory = remembered.get(store_memory(spec))
            if memory is not None:
                self.stores[spec.name].remember(memory["memory"])
        times = remembered.get("times")
        if times is not None:
            self._context.stream_time = times["stream"]
            self._inputs.deadlines.update(times.get("deadlines", {}))
            for (topic, partition), time in times["partitions"].items():
                if self.reads(topic):
                    self._queue(topic, partition).partition_time = time
        for (topic, partition), offset in self.offsets.items():
            if self.reads(topic):
                self._queue(topic, partition).position = offset

    def _remember_processors(self, remembered: Mapping[str, Mapping[str, Any]]) -> None:
        kept = {name.partition(" ")[2]: memory for name, memory in remembered.items() if name.startswith("processor ")}
        self.forgotten = [name for name, memory in kept.items() if memory and name not in self._attributes]
        punctuations = self._shared.punctuations
        punctuators = remembered.get("punctuators")
        schedules = punctuations.remember(punctuators) if punctuators else {}
        for node, attributes in self._attributes.items():
            memory = remembered.get(f"processor {node}", {})
            attributes.remember(memory, lambda id: schedules.get(id) or punctuations.ended(id))

    def _memories(self) -> dict[str, Mapping[str, Any]]:
        """Everything the task must know again after a restart, by name."""
        shared = self._shared
        memories: dict[str, Mapping[str, Any]] = {name: vars(memory) for name, memory in shared.memories.items()}
        for memory_name, store in self._store_memories.items():
            memory = store.memory()
            if memory is not None:
                memories[memory_name] = {"memory": memory}
        times = {place: time for place, time in self.partition_times.items() if time >= 0}
        waits = {"deadlines": dict(self._inputs.deadlines)} if self._inputs.deadlines else {}
        memories["times"] = {"stream": self._context.stream_time, "partitions": times, **waits}
        memories["punctuators"] = shared.punctuations.memory()
        memories |= self._set_back
        for node, attributes in self._attributes.items():
            memories[f"processor {node}"] = attributes.memory()
        return memories

    def _read_by_source_key(self, source: Source) -> list[Any]:
        """The stores that are surely read under the very key of this source's records, serialised alike."""
        topology = self.spec.topology
        found: list[str] = []
        reached = list(topology.children(source.name))
        while reached:
            node = topology.nodes[reached.pop()]
            if not isinstance(node, ProcessorNode):
                continue
            match node.op:
                case ops.Aggregate(store=store):
                    found.append(store)
                case ops.TableSource(store=str() as store, send_old=True):
                    found.append(store)
                case ops.StreamTableJoin(table=view, buffer=None):
                    found.extend(stores_of(view))
            if isinstance(node.op, _KEEP_KEYS):
                reached.extend(topology.children(node.name))
        specs = [topology.stores[name] for name in dict.fromkeys(found) if name in self.stores]
        pointed = [spec for spec in specs if spec.kind in ("key-value", "timestamped") and spec.key == source.key]
        return [self.stores[spec.name] for spec in pointed]

    # ---- input -------------------------------------------------------------------------------------------------

    def reads(self, topic: str) -> bool:
        """Whether the task reads a topic."""
        return self._source(topic) is not None

    def source_of(self, topic: str) -> str | None:
        """The source that reads a topic, None if none does."""
        source = self._source(topic)
        return None if source is None else source.name

    def real_topic(self, topic: str) -> str:
        """The topic's name outside."""
        return self._shared.real_topic(topic)

    def _source(self, topic: str) -> Source | None:
        source = self._by_topic.get(topic)
        if source is None:
            matching = [s for s in self._sources if s.pattern is not None and s.pattern.fullmatch(topic)]
            if matching:
                source = self._by_topic[topic] = matching[0]
        return source

    def _queue(self, topic: str, partition: int) -> RecordQueue:
        queue = self._inputs.queues.get((topic, partition))
        if queue is None:
            source = self._source(topic)
            if source is None:
                raise StreamsError(f"task {self.spec.task_id} does not read the topic {topic!r}")
            queue = RecordQueue(topic, partition, source, self._stamper(source))
            queue.awaited = source.name not in self.spec.muted
            self._inputs.queues[topic, partition] = queue
        return queue

    def _stamper(self, source: Source) -> Callable[[RecordQueue, RawRecord], Head | None]:
        """How a record of a source becomes the head of its queue."""
        context, site = self._context, self._shared.sites[source.name]
        decode_key, decode_value = source.key.decode, source.value.decode
        extract = source.timestamp or _fail_on_invalid
        # Kafka Streams' global task asks no timestamp extractor.
        stamped = not self.spec.is_global
        limit = self._limit_of(source)

        def stamp(queue: RecordQueue, raw: RawRecord) -> Head | None:
            key_bytes, value_bytes, timestamp, headers, offset = raw
            context.go((queue.topic, queue.partition, offset, timestamp, raw))
            # Whoever goes on after a failure here does so behind this record.
            queue.position = offset + 1
            try:
                key = None if key_bytes is None else decode_key(key_bytes)
                value = None if value_bytes is None else decode_value(value_bytes)
            except Exception as error:
                site.unread(error, key_bytes, value_bytes, timestamp, headers)
                return None
            if stamped:
                record = SourceRecord(key, value, timestamp, headers, queue.topic, queue.partition, offset)
                timestamp = _extracted(extract, record, queue.partition_time)
                if timestamp < 0:
                    site.drop()
                    return None
                if limit is not None and timestamp > self._clock() + limit:
                    site.ahead(_too_far(timestamp, self._clock(), limit), key, value, timestamp, headers)
                    return None
            return Head(timestamp, raw, key, value)

        return stamp

    def _limit_of(self, source: Source) -> int | None:
        """How far ahead of the clock records of a source may be; those of internal topics have been looked at before,
        by another machine's clock maybe."""
        internal = self.spec.topology.internal_topics
        checked = not self.spec.is_global and not any(topic in internal for topic in source.topics)
        return self.spec.config.max_future_ms if checked else None

    def open_input(self, topic: str, partition: int) -> None:
        """Know of an input before its first record, so that others may have to wait for it."""
        self._queue(topic, partition)

    def waiting(self, topic: str, partition: int) -> int:
        """How many records of an input wait."""
        return len(self._queue(topic, partition))

    def caught_up(self, topic: str, partition: int, caught_up: bool) -> None:
        """Whether an input has no more records for now; while it has, the others wait for them when it is empty."""
        self._queue(topic, partition).caught_up = caught_up

    def trail(self, topic: str, partition: int, *, fresh: bool, trailing: bool) -> None:
        """Whether the last read of an input has given records, and whether the input is far from its end."""
        queue = self._queue(topic, partition)
        queue.fresh, queue.trailing = fresh, trailing

    def trails(self, topic: str, partition: int) -> bool:
        """Whether an input was far from its end when it was last read."""
        return self._queue(topic, partition).trailing

    def next_time(self, now: int) -> int | None:
        """The time of the record it would take next; None if there is none, or if it waits for an input."""
        return self._inputs.next_time(now)

    def first_time(self) -> int | None:
        """The lowest time of its first records, whether it may take them or not."""
        return min((queue.time for queue in self._inputs.waiting()), default=None)

    def time_after(self, count: int) -> int:
        """The time that so many records of each input reach, about; the highest there is if that is all of them."""
        return min((self._time_after(queue, count) for queue in self._inputs.waiting()), default=LONG_MAX)

    def _time_after(self, queue: RecordQueue, count: int) -> int:
        fifo = queue.fifo
        if len(fifo) < count and not queue.trailing:
            return LONG_MAX
        # Where they are out of order, the last of them may well be one of the oldest: look at some before it too, at
        # distances that have nothing in common.
        last = min(count - 1, len(fifo)) - 1
        looked_at = (fifo[at] for part in range(SAMPLES) if (at := last - part * (part + 1) // 2) >= 0)
        return max((self._time_of(queue, raw) for raw in looked_at), default=queue.time)

    def _time_of(self, queue: RecordQueue, raw: RawRecord) -> int:
        """The time of a record that waits; if it cannot be told, that of the first of them."""
        source = queue.source
        if source.timestamp is None:
            return raw[2]
        try:
            key, value = (None if data is None else serde.decode(data)
                          for serde, data in ((source.key, raw[0]), (source.value, raw[1])))  # fmt: skip
            record = SourceRecord(key, value, raw[2], raw[3], queue.topic, queue.partition, raw[4])
            return _extracted(source.timestamp, record, queue.partition_time)
        except Exception:
            # What is wrong with it is dealt with when its turn comes; until then go no further than is known.
            return queue.time

    @property
    def fetching(self) -> bool:
        """Whether an input that is far from its end has no records here: more are on their way."""
        return any(queue.head is None and queue.trailing for queue in self._inputs.queues.values())

    @property
    def awaiting(self) -> bool:
        """Whether an input has no records here, and is not known to have no more."""
        queues = self._inputs.queues.values()
        return any(queue.head is None and not (queue.caught_up or queue.fresh) for queue in queues)

    def interrupt(self) -> None:
        """Have `process` return after the record that it is at; from another thread."""
        self._hurried = True
        # The loop in `_run` goes over this list and ends where it ends: to look at a flag would cost every record.
        self._passing.clear()

    def feed(self, topic: str, partition: int, records: Iterable[RawRecord]) -> None:
        """Add records of a topic partition, in offset order: (key, value, timestamp, headers, offset) each."""
        self._check()
        try:
            self._inputs.feed(self._queue(topic, partition), records)
        except BaseException as error:
            self._failure = error
            raise

    @property
    def stream_time(self) -> int:
        """The highest timestamp processed so far, -1 before the first record."""
        return self._context.stream_time

    @property
    def record_time(self) -> int:
        """The timestamp of the record processed last."""
        return self._context.timestamp

    @property
    def record_place(self) -> tuple[str | None, int | None, Headers]:
        """Topic, offset and headers of the record processed last."""
        return self._context.topic, self._context.offset, self._context.headers

    @property
    def partition_times(self) -> dict[tuple[str, int], int]:
        """The highest timestamp taken so far from each input, -1 for none."""
        return {place: queue.partition_time for place, queue in self._inputs.queues.items()}

    @property
    def closed_times(self) -> dict[str, int]:
        """The time up to which closed windows have been emitted, by the store of each step that emits them."""
        memories = self._shared.memories
        closed = {
            store: int(memory.closed)
            for name, store in self.spec.closing()
            if (memory := memories.get(step_memory(self.spec.topology, name, store))) is not None
        }
        return {store: time for store, time in closed.items() if time >= 0}

    @property
    def queued(self) -> int:
        """How many records wait."""
        return len(self._inputs)

    @property
    def draining(self) -> bool:
        """Whether no more records will come, so that none is waited for."""
        return self._inputs.draining

    @draining.setter
    def draining(self, draining: bool) -> None:
        self._inputs.draining = draining

    # ---- work --------------------------------------------------------------------------------------------------

    def process(self, limit: int, now: int, until: int = LONG_MAX) -> int:
        """Process up to `limit` records, each with the stream-time punctuators it makes due; return how many it was.

        Fewer come back when no more are ready, when the next one is later than `until`, when a commit is wanted, or
        after `interrupt`. A step over bad records at an input's end is one of them; how many records were processed is
        in `processed`.
        """
        self._check()
        context, inputs = self._context, self._inputs
        context.wall_clock = now
        done = announced = 0
        self._hurried = False
        try:
            while done < limit and not self._hurried and inputs.ready(now) and inputs.due(until):
                if done >= announced and limit - done > 1:
                    announced = done + self._announce(limit - done)
                queue = inputs.only()
                if queue is not None and limit - done > 1 and queue.source.timestamp is None and queue.fifo:
                    done += self._process_run(queue, min(limit - done, CHUNK), until)
                else:
                    self._survive_one()
                    done += 1
                if context.commit_requested or (done % CHUNK == 0 and self.wants_commit):
                    break
        except BaseException as error:
            self._failure = error
            raise
        return done

    def _announce(self, limit: int) -> int:
        """Have the stores read, in one call each, the rows that the next records will ask for; return how many."""
        limit = min(limit, ANNOUNCED)
        for queue in self._inputs.waiting():
            stores = self._prefetches[queue.source.name]
            if stores and queue.fifo and queue.head is not None:
                keys = [raw[0] for raw in (queue.head.raw, *islice(queue.fifo, limit)) if raw[0] is not None]
                for store in stores:
                    store.prefetch(keys)
        return limit

    def _survive_one(self) -> None:
        try:
            self._process_one()
        except BaseException as error:
            self._survive(error)

    def _process_one(self) -> None:
        context = self._context
        queue, head = self._inputs.poll()
        if head.bad:
            return
        self.processed += 1
        time, raw = head.time, head.raw
        if time > context.stream_time:
            context.stream_time = time
            if time > self._far:
                self._look_ahead(queue, raw[4])
        context.topic, context.partition, context.offset = queue.topic, queue.partition, raw[4]
        context.timestamp, context.record = time, raw
        self._steps[queue.source.name](head.key, head.value, time, raw[3])
        if self._has_processors:
            self._shared.punctuations.fire("stream-time", context.stream_time)

    def _process_run(self, queue: RecordQueue, limit: int, until: int) -> int:
        """Process records of the one queue that has any, without making a head of each; return how many it was."""
        head, fifo = queue.head, queue.fifo
        assert head is not None
        count = min(limit, len(fifo))
        if until < LONG_MAX and count and max(map(_time, islice(fifo, count))) > until:
            count = next((number for number, raw in enumerate(islice(fifo, count)) if raw[2] > until), count)
        if head.bad or not count:
            self._survive_one()
            return 1
        raws = [fifo.popleft() for _ in range(count)]
        source = queue.source
        bound = self._limit_of(source)
        try:
            if bound is not None and max((raw[2] for raw in raws), default=0) > self._clock() + bound:
                raise _too_far(max(raw[2] for raw in raws), self._clock(), bound)
            keys = _decoded(source.key, [raw[0] for raw in raws])
            values = _decoded(source.value, [raw[1] for raw in raws])
        except Exception:
            # One of them is bad: one by one, so that the others go on as they must.
            fifo.extendleft(reversed(raws))
            done = 0
            stop = self._context
            while done < len(raws) and queue.head is not None and not (stop.commit_requested or self._hurried):
                self._survive_one()
                done += 1
            return done
        # The last one only becomes the head: what follows it must be looked at before it is processed.
        fifo.appendleft(raws.pop())
        raws.insert(0, head.raw)
        self._passing = raws.copy()
        try:
            self._run(queue, self._passing, [head.key, *keys[:-1]], [head.value, *values[:-1]])
        except BaseException as error:
            self._survive(error)
            self._passing.clear()
        if not self._passing:
            # It was interrupted: what it has not come to is still to be done.
            at = self._context.offset
            done = next((number for number, raw in enumerate(raws, 1) if raw[4] == at), 0)
            fifo.extendleft(reversed(raws[max(done, 1) :]))
            if not done:
                return 0
            del raws[done:]
        self.processed += len(raws)
        queue.position = raws[-1][4] + 1
        queue.head = None
        queue.find_head()
        return len(raws)

    def _run(self, queue: RecordQueue, raws: list[RawRecord], keys: list[Any], values: list[Any]) -> None:
        context, step = self._context, self._steps[queue.source.name]
        punctuations = self._shared.punctuations
        scheduled = punctuations.by_stream_time if self._has_processors else ()
        checked = not self.spec.is_global
        context.topic, context.partition, context.offset = queue.topic, queue.partition, None
        stream_time, partition_time, far = context.stream_time, queue.partition_time, self._far
        # The shortest ends it: `interrupt` empties the first of them.
        try:
            for raw, key, value in zip(raws, keys, values, strict=False):
                _, _, time, headers, offset = raw
                if time > partition_time:
                    partition_time = time
                    if time > stream_time:
                        context.stream_time = stream_time = time
                        if time > far:
                            far = self._look_ahead(queue, offset)
                elif time < 0 and checked:
                    context.go((queue.topic, queue.partition, offset, time, raw))
                    record = SourceRecord(key, value, time, headers, queue.topic, queue.partition, offset)
                    _extracted(_fail_on_invalid, record, partition_time)
                context.offset, context.timestamp, context.record = offset, time, raw
                step(key, value, time, headers)
                if scheduled and scheduled[0].time <= stream_time:
                    punctuations.fire("stream-time", stream_time)
        finally:
            queue.partition_time = partition_time

    def _survive(self, error: BaseException) -> None:
        """Deal with what no step catches, such as sys.exit() in a function, as with any error of the record's step.

        Errors that steps deal with come through as they are, and so does what stops a program from outside.
        """
        if isinstance(error, Exception | KeyboardInterrupt | GeneratorExit):
            raise error
        shared, context = self._shared, self._context
        codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
        step, function = self._running(codes[::-1]) or (self._sources[0].name, None)
        key, value, timestamp, headers, _ = context.record or (None, None, context.timestamp, (), -1)
        shared.faults.handle("processing", step, error, key, value, timestamp, headers, function)
        shared.sites[step].drop()

    def _running(self, codes: Sequence[CodeType]) -> tuple[str, str] | None:
        nodes = self.spec.topology.nodes
        ops_of = {
            name: node.op if isinstance(node := nodes[name], ProcessorNode) else node
            for name in reversed(self.spec.nodes)
        }
        return running(ops_of, self._shared.processors, codes)

    def whereabouts(self, frame: FrameType | None) -> str:
        """What the task is doing, by the stack of its thread: step, function and record."""
        stack = [frame for frame, _ in traceback.walk_stack(frame)] if frame is not None else []
        found = self._running([frame.f_code for frame in stack])
        context = self._context
        if found is not None:
            where = f"step {found[0]!r} ({found[1]})"
        elif stack:
            where = f"task {self.spec.task_id} ({stack[0].f_code.co_filename}:{stack[0].f_lineno})"
        else:
            where = f"task {self.spec.task_id}"
        if context.topic is None:
            return f"{where} in a punctuator at {context.timestamp}"
        key = None if context.record is None else context.record[0]
        return f"{where} on {context.topic}-{context.partition}@{context.offset}, key {key!r:.80}"

    def _ahead(self) -> int:
        """How far stream time is beyond the wall clock."""
        now = self._clock()
        return self._context.stream_time - (now if now >= FIRST_DATE_MS else system_clock())

    def _look_ahead(self, queue: RecordQueue, offset: int) -> int:
        """Warn if stream time has leapt beyond the wall clock, once for each leap; return how far it may go now."""
        stream_time, ahead = self._context.stream_time, self._ahead()
        self._far = (stream_time if ahead > HOUR_MS else stream_time - ahead) + HOUR_MS
        if ahead > HOUR_MS and not self.spec.is_global:
            self._warn(
                f"task {self.spec.task_id}: stream time leaps to {date_of(stream_time)}, {duration_of(ahead)} beyond "
                f"the wall clock, with {queue.topic}-{queue.partition}@{offset}: records before it count as late from "
                "now on, also after a restart. Refuse such records with Config(max_future=…), and set stream time back "
                "with headwater reset --stream-time"
            )
        return self._far

    def warn_if_ahead(self) -> None:
        """Warn if the task goes on with a stream time far beyond the wall clock, which it was given before."""
        ahead = self._ahead()
        if ahead > HOUR_MS and not self.spec.is_global:
            self._warn(
                f"task {self.spec.task_id}: stream time is at {date_of(self.stream_time)}, {duration_of(ahead)} beyond "
                "the wall clock: records before it count as late. Set it back with headwater reset --stream-time"
            )

    def take_outputs(self) -> list[Output]:
        """Take what has been sent since the last commit, before the next one would."""
        outputs = self._context.outputs[:]
        self._context.outputs.clear()
        return outputs

    def punctuate(self, now: int) -> bool:
        """Run the wall-clock punctuators that are due; whether there were any."""
        self._check()
        self._context.wall_clock = now
        try:
            try:
                return self._shared.punctuations.fire("wall-clock", now)
            except BaseException as error:
                self._survive(error)
                return True
        except BaseException as error:
            self._failure = error
            raise

    # ---- commit ------------------------------------------------------------------------------------------------

    @property
    def wants_commit(self) -> bool:
        """Whether a commit should come soon: a processor asked for one, or what is not committed takes much memory."""
        context = self._context
        return (
            context.commit_requested
            or len(context.outputs) > OUTPUTS
            or sum(store.dirty_bytes for store in self.stores.values()) > DIRTY_BYTES
        )

    def commit(self) -> Changes:
        """Flush the record cache and return what has changed since the last commit.

        The caller writes `batch()` to the task's back end before it does anything else with the task.
        """
        self._check()
        context = self._context
        try:
            self._shared.cache.flush()
            rows: dict[str, dict[bytes, bytes | None]] = {}
            for store in self.stores.values():
                rows.update(store.drain())
            memory = self._changed_memory()
        except BaseException as error:
            self._failure = error
            raise
        offsets = {
            at: offset
            for at, queue in self._inputs.queues.items()
            if (offset := queue.next_offset) is not None and offset != self.offsets.get(at)
        }
        self.offsets.update(offsets)
        context.commit_requested = False
        return Changes(rows, memory, offsets, self.take_outputs())

    def _changed_memory(self) -> dict[bytes, bytes | None]:
        changed: dict[bytes, bytes | None] = {}
        for name, memory in self._memories().items():
            data = pickled(memory)
            if data != self._written.get(name, NOTHING):
                self._written[name] = data
                changed[memory_key(name)] = data
        return changed

    def metrics(self) -> dict[str, dict[str, int]]:
        """Dropped and late records of each node, and those it has taken if they are counted."""
        counted = self.spec.config.metrics == "debug"
        return {
            name: {
                "dropped-records-total": site.dropped,
                "late-records-total": site.came_late,
                **({"records-total": site.taken} if counted else {}),
            }
            for name, site in self._shared.sites.items()
        }

    def lost(self) -> dict[str, tuple[int, int]]:
        """How many records each node has dropped, and how many of them were late; only those that have."""
        return {name: (site.dropped, site.came_late) for name, site in self._shared.sites.items() if site.dropped}

    def cache_hits(self, store: str) -> int:
        """How many updates of a store have found their key in the record cache."""
        return self._shared.cache.hits(store)

    def close(self) -> None:
        """Close the processors; what was not committed is lost."""
        if self._closed:
            return
        self._closed = True
        failed: list[tuple[str, Exception]] = []
        for node, close in self._shared.closes:
            try:
                close()
            except Exception as raised:
                failed.append((node, raised))
        for node, error in failed[:1]:
            raise StreamsError(f"step {node!r}: close failed with {text_of(error)}") from error

    @property
    def failed(self) -> bool:
        """Whether it refuses to work, since a record or a commit has failed."""
        return self._failure is not None

    def go_on(self) -> None:
        """Work on after a failure: the record that failed is done with, and what it had done before that stays.

        So does Kafka Streams' test driver. A worker must not: it makes a new task from what was committed.
        """
        self._failure = None
        for (topic, partition), queue in self._inputs.queues.items():
            if queue.head is None and queue.fifo:
                self.feed(topic, partition, ())

    def _check(self) -> None:
        if self._failure is not None:
            raise StreamsError(f"task {self.spec.task_id} has failed before: make a new one") from self._failure
        if self._closed:
            raise StreamsError(f"task {self.spec.task_id} is closed")


def _too_far(timestamp: int, now: int, limit: int) -> StreamsError:
    return StreamsError(
        f"its timestamp {date_of(timestamp)} is {duration_of(timestamp - now)} beyond the wall clock, and max_future "
        f"allows {duration_of(limit)}"
    )


_WINDOWED = (ops.TimeWindowAggregate, ops.SlidingWindowAggregate, ops.SessionAggregate)
_KEEP_KEYS = (ops.Filter, ops.MapValues, ops.FlatMapValues, ops.Peek, ops.PassThrough, ops.RepartitionFilter)


def _decoded(serde: Serde, data: Sequence[bytes | None]) -> list[Any]:
    decode = serde.decoder()
    if None in data:
        return [None if item is None else decode(item) for item in data]
    return list(map(decode, data))  # type: ignore[arg-type]


def _extracted(extract: Callable[[SourceRecord, int], int], record: SourceRecord, partition_time: int) -> int:
    """The timestamp of a record; what goes wrong is fatal, as in Kafka Streams."""
    at = f"{record.topic}-{record.partition}@{record.offset}"
    try:
        timestamp = extract(record, partition_time)
    except StreamsError:
        raise
    except Exception as error:
        raise RecordFailed(
            f"the timestamp extractor {place(extract)} failed on {at}: {text_of(error)}"
        ) from error
    if type(timestamp) is not int or timestamp > LONG_MAX:
        raise RecordFailed(
            f"the timestamp extractor {place(extract)} must give an int, epoch milliseconds up to 2**63 - 1, "
            f"but gave {timestamp!r:.80} for {at}"
        )
    return timestamp
