"""The test driver: a topology run in this process, with no broker, on a clock that moves when told to. It owns topics
as lists, the clock and the order of work, which is that of Kafka Streams' own driver; everything else is the same task
that runs elsewhere.

With one partition, all sub-topologies are one task. A record is processed to the end before the next is taken: one
record, a commit, then what it wrote to internal topics. With more partitions there is a task per sub-topology and
partition, and records between them are partitioned as by Kafka's producer (without a key: in turn).
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

from headwater.dsl.builder import StreamsBuilder
from headwater.dsl.camel import CamelCase
from headwater.dsl.config import Config
from headwater.dsl.durations import LONG_MAX, checked_ms
from headwater.dsl.options import flag_fault, number_fault
from headwater.dsl.partitioner import partition_for
from headwater.dsl.records import Headers, Record
from headwater.dsl.serde import Serde
from headwater.dsl.topology import Sink, Topology
from headwater.errors import SerdeError, StreamsError
from headwater.state.backend import Backend
from headwater.state.memory import MemoryBackend
from headwater.state.rocks import RocksBackend
from headwater.streams.context import Output, headers_fault
from headwater.streams.plan import plan
from headwater.streams.queues import RawRecord
from headwater.streams.stores import Store, public
from headwater.streams.task import Task, TaskSpec

__all__ = ["InputTopic", "OutputTopic", "TopologyTestDriver"]


class InputTopic(CamelCase):
    """A topic to send records to."""

    def __init__(self, driver: TopologyTestDriver, topic: str, key: Serde, value: Serde) -> None:
        self._driver = driver
        self._topic = topic
        self._key = key
        self._value = value

    def send(
        self, key: Any, value: Any, *, at: int | None = None, headers: Headers = (), partition: int | None = None
    ) -> None:
        """Send a record with the timestamp `at` (by default the driver's clock) and process all that follows from it.

        What fails raises a StreamsError; the driver can be used on, as Kafka Streams' own: the record that failed is
        done with, and what it wrote to stores and topics before that stays.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> builder.stream("in").filter(lambda key, value: value > 1).to("out")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("in").send("a", 2, at=5)
        ...     driver.output("out").read_all()
        [Record(key='a', value=2, timestamp=5, headers=())]
        """
        self.send_bytes(*self.encode(key, value), at=at, headers=headers, partition=partition)

    def send_bytes(
        self,
        key: bytes | None,
        value: bytes | None,
        *,
        at: int | None = None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> None:
        """Send a record as these very bytes, malformed ones too.

        >>> from headwater import Config, StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> builder.stream("in").to("out")
        >>> with TopologyTestDriver(builder.build(), Config(on_deserialization_error="skip")) as driver:
        ...     driver.input("in").send_bytes(b"k", b"{broken", at=0)
        ...     driver.metrics()["dropped-records-total"]
        1
        """
        at = self._driver.now if at is None else at
        self._driver._send([(self._topic, partition, key, value, *_checked(self._topic, at, headers))])

    def encode(self, key: Any, value: Any) -> tuple[bytes | None, bytes | None]:
        """The bytes of a record for this topic.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> builder.stream("in").to("out")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("in").encode("k", {"n": 1})
        (b'k', b'{"n":1}')
        """
        try:
            return None if key is None else self._key.encode(key), None if value is None else self._value.encode(value)
        except SerdeError as error:
            raise SerdeError(f"topic {self._topic!r}: {error}: give input() the serde that fits") from error


class OutputTopic(CamelCase):
    """A topic to read results from."""

    def __init__(self, driver: TopologyTestDriver, topic: str, key: Serde, value: Serde) -> None:
        self._driver = driver
        self._topic = topic
        self._key = key
        self._value = value

    def read_all(self, partition: int | None = None) -> list[Record]:
        """Return the records written since the last call, or only a partition's, and forget them.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> builder.stream("in").to("out")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("in").send("k", 1, at=0)
        ...     driver.output("out").read_all(), driver.output("out").read_all()
        ([Record(key='k', value=1, timestamp=0, headers=())], [])
        """
        written = self._driver._written(self._topic, partition)
        try:
            records = [
                Record(
                    None if key is None else self._key.decode(key),
                    None if value is None else self._value.decode(value),
                    timestamp,
                    headers,
                )
                for _, _, key, value, timestamp, headers in written
            ]
        except SerdeError as error:
            raise SerdeError(f"topic {self._topic!r}: {error}: give output() the serde that fits") from error
        self._driver._forget(self._topic, partition)
        return records


class _Running:
    """A task with its back end, and the records fed to it that are not committed yet."""

    def __init__(self, spec: TaskSpec, backend: Backend, start: Callable[[TaskSpec, Backend], Task]) -> None:
        self._spec = spec
        self.backend = backend
        self.fed: dict[tuple[str, int], deque[RawRecord]] = defaultdict(deque)
        self._start = start
        # The topology itself, not a copy: a test may look at what its functions left behind.
        self.task = start(spec, backend)

    def feed(self, topic: str, partition: int, record: RawRecord) -> None:
        self.fed[topic, partition].append(record)
        self.task.feed(topic, partition, (record,))

    def commit(self) -> list[Output]:
        changes = self.task.commit()
        batch = changes.batch()
        if batch:
            self.backend.write(batch)
        for place, offset in changes.offsets.items():
            fed = self.fed[place]
            while fed and fed[0][4] < offset:
                fed.popleft()
        return changes.outputs

    def restart(self) -> None:
        self.task.close()
        self.task = self._start(TaskSpec.loads(self._spec.dumps()), self.backend)
        for (topic, partition), records in self.fed.items():
            self.task.feed(topic, partition, list(records))


class TopologyTestDriver(CamelCase):
    """Runs a topology on the records you send, step by step, and shows what comes out.

    With `memory=False` rows live in RocksDB, in a directory of its own that goes with the driver; `backend` may bring
    any other place for them, as a function of a task's id and the names of its stores. `now` is the clock's first time.

    >>> from headwater import StreamsBuilder, Str, TopologyTestDriver
    >>> builder = StreamsBuilder(value=Str())
    >>> builder.stream("lines").group_by_key().count(store="counts").to_stream().to("totals")
    >>> with TopologyTestDriver(builder.build()) as driver:
    ...     for value in ("x", "y"):
    ...         driver.input("lines").send("a", value, at=0)
    ...     [record.value for record in driver.output("totals").read_all()], driver.store("counts").get("a")
    ([1, 2], 2)
    """

    def __init__(
        self,
        topology: Topology,
        config: Config | None = None,
        partitions: int = 1,
        memory: bool = True,
        now: int = 0,
        *,
        backend: Callable[[str, Sequence[str]], Backend] | None = None,
    ) -> None:
        _check_kinds(topology, config)
        for fault in (
            number_fault("TopologyTestDriver: partitions", partitions, 1),
            flag_fault("TopologyTestDriver: memory", memory),
            number_fault("TopologyTestDriver: now", now),
        ):
            if fault:
                raise StreamsError(fault)
        self.now = now
        self._topology = topology
        self._config = _unthrottled(config or Config())
        self._partitions = partitions
        self._directory = None if memory or backend is not None else tempfile.TemporaryDirectory(prefix="headwater-")
        self._open_backend = backend or self._own_backend
        self._outputs: dict[str, list[Output]] = defaultdict(list)
        self._offsets: Counter[tuple[str, int]] = Counter()
        self._turns: Counter[str] = Counter()
        self._counted: Counter[tuple[str, str]] = Counter()
        self._closed = False
        planned = plan(topology, self._config, lambda topic: partitions, as_one=partitions == 1)
        self._counts = planned.partitions
        self._backends: list[Backend] = []
        self._tasks: list[_Running] = []
        self._global: _Running | None = None
        try:
            if planned.global_task is not None:
                self._global = self._run(planned.global_task)
            self._tasks.extend(map(self._run, planned.tasks))
        except BaseException:
            self.close()
            raise

    def _own_backend(self, task_id: str, stores: Sequence[str]) -> Backend:
        if self._directory is None:
            return MemoryBackend(stores)
        return RocksBackend(Path(self._directory.name) / task_id, stores)

    def _run(self, spec: TaskSpec) -> _Running:
        backend = self._open_backend(spec.task_id, spec.backend_stores())
        self._backends.append(backend)
        return _Running(spec, backend, self._start)

    def _start(self, spec: TaskSpec, backend: Backend) -> Task:
        return Task(spec, backend, self._partitions_of, self._global_stores(), now=self.now, clock=lambda: self.now)

    def _global_stores(self) -> dict[str, Store]:
        return self._global.task.stores if self._global is not None else {}

    def _partitions_of(self, topic: str) -> int:
        return self._counts.get(topic, self._partitions)

    # ---- topics ------------------------------------------------------------------------------------------------

    def input(self, topic: str, key: Serde | None = None, value: Serde | None = None) -> InputTopic:
        """A topic to send to; without serdes, those of the source that reads it.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> builder.stream("in").foreach(print)
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("in").send("k", {"n": 1}, at=0)
        k {'n': 1}
        """
        topic = self._real(topic)
        if not self._readers(topic) and not self._is_global(topic):
            known = sorted({self._real(t) for source in self._topology.sources() for t in source.topics})
            raise StreamsError(f"nobody reads the topic {topic!r}: send to one of {', '.join(known) or 'none at all'}")
        own_key, own_value = self._serdes(topic)
        return InputTopic(self, topic, key or own_key, value or own_value)

    def output(self, topic: str, key: Serde | None = None, value: Serde | None = None) -> OutputTopic:
        """A topic to read from; without serdes, those of the sink that writes it.

        >>> from headwater import Bytes, StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> builder.stream("in").to("out")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("in").send("k", {"n": 1}, at=0)
        ...     driver.output("out", value=Bytes()).read_all()
        [Record(key='k', value=b'{"n":1}', timestamp=0, headers=())]
        """
        topic = self._real(topic)
        if topic not in self._outputs and not self._is_known(topic):
            known = sorted({self._real(sink.topic) for sink in self._sinks() if isinstance(sink.topic, str)})
            raise StreamsError(f"nobody writes the topic {topic!r}: read one of {', '.join(known) or 'none at all'}")
        own_key, own_value = self._serdes(topic)
        return OutputTopic(self, topic, key or own_key, value or own_value)

    def _real(self, topic: str) -> str:
        return f"{self._config.app_id}-{topic}" if topic in self._topology.internal_topics else topic

    def _sinks(self) -> list[Sink]:
        return [node for node in self._topology.nodes.values() if isinstance(node, Sink)]

    def _is_known(self, topic: str) -> bool:
        """Whether a topic is read or written, or may be: a function may name any."""
        return (
            any(callable(sink.topic) or self._real(sink.topic) == topic for sink in self._sinks())
            or topic in (self._config.dead_letters, self._config.late)
            or bool(self._readers(topic))
            or self._is_global(topic)
        )

    def _serdes(self, topic: str) -> tuple[Serde, Serde]:
        sinks = self._sinks()
        for sink in sinks:
            if isinstance(sink.topic, str) and self._real(sink.topic) == topic:
                return sink.key, sink.value
        for source in self._topology.sources():
            if topic in map(self._real, source.topics) or (source.pattern and source.pattern.fullmatch(topic)):
                return source.key, source.value
        for sink in sinks:
            if callable(sink.topic):
                return sink.key, sink.value
        return self._topology.default_key, self._topology.default_value

    def _readers(self, topic: str) -> list[_Running]:
        return [running for running in self._tasks if running.task.reads(topic)]

    def _is_global(self, topic: str) -> bool:
        return self._global is not None and self._global.task.reads(topic)

    def _written(self, topic: str, partition: int | None) -> list[Output]:
        return [record for record in self._outputs[topic] if partition is None or record[1] == partition]

    def _forget(self, topic: str, partition: int | None) -> None:
        written = self._outputs[topic]
        self._outputs[topic] = [record for record in written if partition is not None and record[1] != partition]

    # ---- work --------------------------------------------------------------------------------------------------

    def send_all(self, records: Iterable[tuple[Any, ...]]) -> None:
        """Send many records (topic, key, value, at) or (topic, key, value, at, headers) before any is processed.

        Among its inputs the task then takes the record with the lowest timestamp first, as a running application does.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> builder.stream("a").merge(builder.stream("b")).to("out")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.send_all([("a", "k", 2, 20), ("b", "k", 1, 10)])
        ...     [record.value for record in driver.output("out").read_all()]
        [1, 2]
        """
        encoded: list[Output] = []
        for topic, key, value, at, *headers in records:
            to = self.input(topic)
            stamped = _checked(topic, at, headers[0] if headers else ())
            encoded.append((self._real(topic), None, *to.encode(key, value), *stamped))
        self._send(encoded)

    def _send(self, records: list[Output]) -> None:
        self._begin()
        for record in records:
            self._deliver(self._partitioned(record))
        self._complete()

    def _partitioned(self, record: Output) -> Output:
        topic, partition, key, value, timestamp, headers = record
        count = self._partitions_of(topic)
        if partition is None:
            if count == 1:
                partition = 0
            elif key is not None:
                partition = partition_for(key, count)
            else:
                partition = self._turns[topic] % count
                self._turns[topic] += 1
        elif not 0 <= partition < count:
            raise StreamsError(f"the topic {topic!r} has the partitions 0 to {count - 1}, and no {partition}")
        return topic, partition, key, value, timestamp, headers

    def _deliver(self, record: Output) -> None:
        """Put a record into the queue of the task that reads it; a global table is updated at once."""
        topic, partition, key, value, timestamp, headers = record
        assert partition is not None
        readers = [running for running in self._readers(topic) if running.task.spec.partition == partition]
        if self._global is not None and self._is_global(topic):
            readers.append(self._global)
        if readers:
            raw = key, value, timestamp, headers, self._offsets[topic, partition]
            self._offsets[topic, partition] += 1
        for running in readers:
            running.feed(topic, partition, raw)
            while running is self._global and running.task.process(1, self.now):
                self._capture(running.commit())

    def _complete(self) -> None:
        """Process all that can be, one record and commit at a time."""
        worked = True
        while worked:
            worked = False
            for running in self._tasks:
                while running.task.process(1, self.now):
                    self._capture(running.commit())
                    worked = True

    def _capture(self, outputs: list[Output]) -> None:
        for output in outputs:
            record = self._partitioned(output)
            self._outputs[record[0]].append(record)
            self._deliver(record)

    def advance(self, duration: timedelta) -> None:
        """Move the clock, run the wall-clock punctuators that are due, and process all that follows from them.

        >>> from datetime import timedelta
        >>> from headwater import Processor, Topology, TopologyTestDriver
        >>> class Clock(Processor):
        ...     def init(self, context):
        ...         context.schedule(timedelta(seconds=1), "wall-clock", lambda time: print("it is", time))
        >>> with TopologyTestDriver(Topology().add_source("in", "a").add_processor("p", Clock, "in")) as driver:
        ...     driver.advance(timedelta(seconds=3))
        it is 3000
        """
        self._begin()
        faults: list[str] = []
        ms = checked_ms("advance: duration", duration, faults)
        if faults:
            raise StreamsError(faults[0])
        self.now += ms
        for running in self._tasks:
            running.task.punctuate(self.now)
            self._capture(running.commit())
        self._complete()

    def restart(self) -> None:
        """Commit every task, throw it away and make it again from pickled bytes and its committed state.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> _ = builder.stream("in").group_by_key().count(store="counts")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("in").send("k", "x", at=0)
        ...     driver.restart()
        ...     driver.input("in").send("k", "y", at=0)
        ...     driver.store("counts").get("k")
        2
        """
        self._begin()
        for running in self._running():
            self._capture(running.commit())
            self._count(running.task)
            running.restart()
        self._complete()

    # ---- looking inside ----------------------------------------------------------------------------------------

    def store(self, name: str) -> Any:
        """A store of the topology, to read and to write.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> _ = builder.stream("in").group_by_key().count(store="counts")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.store("counts").put("k", 41)
        ...     driver.input("in").send("k", "x", at=0)
        ...     driver.store("counts").get("k")
        42
        """
        topology = self._topology

        def now() -> int:
            return self.now

        if name in topology.global_stores:
            return public(topology.global_stores[name], [self._global_stores()[name]], now, True)
        parts = [running.task.stores[name] for running in self._tasks if name in running.task.stores]
        if not parts:
            if name in topology.stores:
                raise StreamsError(
                    f"no step uses the store {name!r}, so there is nothing in it: give it to one with "
                    "process(…, stores=…) or add_store(…, step)"
                )
            known = ", ".join(sorted({*topology.stores, *topology.global_stores})) or "none at all"
            raise StreamsError(f"there is no store {name!r}, only {known}")
        return public(topology.stores[name], parts, now, True, lambda key: partition_for(key, len(parts)))

    def metrics(self) -> dict[str, Any]:
        """Counts of dropped and late records: in all, and under "steps" by step.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> _ = builder.stream("in").group_by_key().count(store="counts", name="count")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("in").send(None, 1, at=0)
        ...     driver.metrics()["dropped-records-total"], driver.metrics()["steps"]["count"]
        (1, {'dropped-records-total': 1, 'late-records-total': 0})
        """
        counted = Counter(self._counted)
        for running in self._running():
            counted.update(_flat(running.task))
        totals: Counter[str] = Counter({"dropped-records-total": 0, "late-records-total": 0})
        steps: dict[str, dict[str, int]] = defaultdict(dict)
        for (step, name), count in counted.items():
            totals[name] += count
            steps[step][name] = count
        return {**totals, "steps": dict(steps)}

    def _count(self, task: Task) -> None:
        self._counted.update(_flat(task))

    def _running(self) -> list[_Running]:
        return [*([self._global] if self._global is not None else []), *self._tasks]

    # ---- the end -----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Be ready for work, after a failure too: what the failed record wrote before comes out first."""
        if self._closed:
            raise StreamsError("the driver is closed")
        for running in self._running():
            if running.task.failed:
                running.task.go_on()
                self._capture(running.commit())

    def close(self) -> None:
        """Close the processors and remove what was stored.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> builder.stream("in").to("out")
        >>> driver = TopologyTestDriver(builder.build())
        >>> driver.close()
        >>> driver.input("in").send("k", 1, at=0)
        Traceback (most recent call last):
        headwater.errors.StreamsError: the driver is closed
        """
        if self._closed:
            return
        self._closed = True
        failed: list[Exception] = []
        for close in [*(running.task.close for running in self._running()), *(b.close for b in self._backends)]:
            try:
                close()
            except Exception as error:
                failed.append(error)
        if self._directory is not None:
            self._directory.cleanup()
        if failed:
            raise failed[0]

    def __enter__(self) -> TopologyTestDriver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _check_kinds(topology: object, config: object) -> None:
    if not isinstance(topology, Topology):
        remedy = ": call its build() first" if isinstance(topology, StreamsBuilder) else ""
        raise StreamsError(f"the driver runs a Topology, but this is {topology!r:.80}{remedy}")
    if config is not None and not isinstance(config, Config):
        raise StreamsError(
            f"config= must be a Config, but is {config!r:.80}: write Config(…), or Config.from_kafka(…) for Kafka "
            "Streams' own keys"
        )


def _unthrottled(config: Config) -> Config:
    """The settings with emit intervals of 0 where none was given, as in Kafka Streams' own driver."""
    never = timedelta(0)
    return dataclasses.replace(
        config,
        join_emit_interval=config.join_emit_interval if config.join_emit_interval is not None else never,
        window_emit_interval=config.window_emit_interval if config.window_emit_interval is not None else never,
    )


def _checked(topic: str, at: object, headers: Any) -> tuple[int, Headers]:
    """The timestamp and headers of a record to send; negative timestamps are for the source's extractor to judge."""
    if type(at) is not int or not -LONG_MAX <= at <= LONG_MAX:
        raise StreamsError(
            f"topic {topic!r}: at= must be an int, epoch milliseconds below 2**63, but is {at!r:.80}: "
            "write int(…), int(moment.timestamp() * 1000) for a datetime"
        )
    if type(headers) is list:
        headers = tuple(headers)
    fault = headers_fault(headers)
    if fault is not None:
        raise StreamsError(f"topic {topic!r}: headers= {fault}")
    return at, headers


def _flat(task: Task) -> dict[tuple[str, str], int]:
    return {(step, name): count for step, counts in task.metrics().items() for name, count in counts.items()}
