"""The task: some sub-topologies on one partition. It takes records in, chooses among them, runs the operators over them
and gives out what a commit must write. It owns order, stream time and operator memory; it does no I/O but reading its
back end, and knows nothing of who feeds it or where its changes go.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
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
from headwater.streams.compile import Shared, compile_nodes
from headwater.streams.context import Output, TaskContext
from headwater.streams.faults import RecordFailed
from headwater.streams.queues import Head, PartitionGroup, RawRecord, RecordQueue
from headwater.streams.stores import Store, backend_stores, open_store

__all__ = ["Task", "TaskSpec"]

assert operators.__all__  # imported for its rules

# When the uncommitted rows of a task's stores take more than this, it asks for a commit.
DIRTY_BYTES = 32 << 20
# And when it has collected more outputs than this.
OUTPUTS = 200_000
# How many records are decoded at once.
CHUNK = 2_000
# For how many records the stores are told the keys in advance.
ANNOUNCED = 10_000

_fail_on_invalid = OnInvalid.fail()


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
    is a bound; `globals` are the stores of the global task. Over a back end with an earlier task's committed changes it
    goes on exactly where that was: feed it from `offsets` on.
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
    ) -> None:
        self.spec = spec
        self._failure: BaseException | None = None
        self._closed = False
        specs = spec.stores()
        self.stores: dict[str, Store] = {store.name: open_store(store, backend) for store in specs}
        self._store_memories = {store_memory(store): self.stores[store.name] for store in specs}
        context = self._context = TaskContext(spec.task_id, now)
        self.offsets, remembered = read_committed(backend)
        self._written: dict[str, bytes] = {name: pickled(memory) for name, memory in remembered.items()}
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

    # ---- set-up and memory -------------------------------------------------------------------------------------

    def _start(self) -> None:
        for node, start in self._shared.starts:
            try:
                start()
            except Exception as error:
                raise StreamsError(f"step {node!r}: init failed with {type(error).__name__}: {error}") from error
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
            return Head(timestamp, raw, key, value)

        return stamp

    def open_input(self, topic: str, partition: int) -> None:
        """Know of an input before its first record, so that others may have to wait for it."""
        self._queue(topic, partition)

    def waiting(self, topic: str, partition: int) -> int:
        """How many records of an input wait."""
        return len(self._queue(topic, partition))

    def caught_up(self, topic: str, partition: int, caught_up: bool) -> None:
        """Whether an input has no more records for now; while it has, the others wait for them when it is empty."""
        self._queue(topic, partition).caught_up = caught_up

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

    def process(self, limit: int, now: int) -> int:
        """Process up to `limit` records, each with the stream-time punctuators it makes due; return how many it was.

        Fewer come back when no more are ready, or when a commit is wanted.
        """
        self._check()
        context, inputs = self._context, self._inputs
        context.wall_clock = now
        done = announced = 0
        try:
            while done < limit and inputs.ready(now):
                if done >= announced and limit - done > 1:
                    announced = done + self._announce(limit - done)
                queue = inputs.only()
                if queue is not None and limit - done > 1 and queue.source.timestamp is None and queue.fifo:
                    done += self._process_run(queue, min(limit - done, CHUNK))
                else:
                    self._process_one()
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

    def _process_one(self) -> None:
        context = self._context
        queue, head = self._inputs.poll()
        if head.bad:
            return
        time, raw = head.time, head.raw
        if time > context.stream_time:
            context.stream_time = time
        context.topic, context.partition, context.offset = queue.topic, queue.partition, raw[4]
        context.timestamp, context.record = time, raw
        self._steps[queue.source.name](head.key, head.value, time, raw[3])
        if self._has_processors:
            self._shared.punctuations.fire("stream-time", context.stream_time)

    def _process_run(self, queue: RecordQueue, limit: int) -> int:
        """Process records of the one queue that has any, without making a head of each; return how many it was."""
        head, fifo = queue.head, queue.fifo
        assert head is not None
        if head.bad:
            self._process_one()
            return 1
        raws = [fifo.popleft() for _ in range(min(limit, len(fifo)))]
        source = queue.source
        try:
            keys = _decoded(source.key, [raw[0] for raw in raws])
            values = _decoded(source.value, [raw[1] for raw in raws])
        except Exception:
            # One of them is bad: one by one, so that the others go on as they must.
            fifo.extendleft(reversed(raws))
            done = 0
            while done < len(raws) and queue.head is not None and not self._context.commit_requested:
                self._process_one()
                done += 1
            return done
        # The last one only becomes the head: what follows it must be looked at before it is processed.
        fifo.appendleft(raws.pop())
        self._run(queue, [head.raw, *raws], [head.key, *keys[:-1]], [head.value, *values[:-1]])
        queue.position = (raws[-1] if raws else head.raw)[4] + 1
        queue.head = None
        queue.find_head()
        return len(raws) + 1

    def _run(self, queue: RecordQueue, raws: list[RawRecord], keys: list[Any], values: list[Any]) -> None:
        context, step = self._context, self._steps[queue.source.name]
        punctuations = self._shared.punctuations
        scheduled = punctuations.by_stream_time if self._has_processors else ()
        checked = not self.spec.is_global
        context.topic, context.partition = queue.topic, queue.partition
        stream_time, partition_time = context.stream_time, queue.partition_time
        for raw, key, value in zip(raws, keys, values, strict=True):
            _, _, time, headers, offset = raw
            if time > partition_time:
                partition_time = time
                if time > stream_time:
                    context.stream_time = stream_time = time
            elif time < 0 and checked:
                context.go((queue.topic, queue.partition, offset, time, raw))
                record = SourceRecord(key, value, time, headers, queue.topic, queue.partition, offset)
                _extracted(_fail_on_invalid, record, partition_time)
            context.offset, context.timestamp, context.record = offset, time, raw
            step(key, value, time, headers)
            if scheduled and scheduled[0].time <= stream_time:
                punctuations.fire("stream-time", stream_time)
        queue.partition_time = partition_time

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
            return self._shared.punctuations.fire("wall-clock", now)
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
            raise StreamsError(f"step {node!r}: close failed with {type(error).__name__}: {error}") from error

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
            f"the timestamp extractor {place(extract)} failed on {at}: {type(error).__name__}: {error}"
        ) from error
    if type(timestamp) is not int or timestamp > LONG_MAX:
        raise RecordFailed(
            f"the timestamp extractor {place(extract)} must give an int, epoch milliseconds up to 2**63 - 1, "
            f"but gave {timestamp!r:.80} for {at}"
        )
    return timestamp
