"""The task: micro-batches, offsets, memory and restores, over a back end that counts what is asked of it."""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwater import (
    Config,
    Int64,
    KeyValue,
    OnInvalid,
    Processor,
    Producer,
    Record,
    Str,
    StreamsBuilder,
    StreamsError,
    Topology,
)
from headwater.state.memory import MemoryBackend
from headwater.streams import task as task_module
from headwater.streams.changes import TASK, Changes
from headwater.streams.plan import plan
from headwater.streams.queues import RawRecord
from headwater.streams.task import Task, TaskSpec
from tests.streams.apps import Place


class Counting:
    """A memory back end that writes down every read."""

    def __init__(self, stores: Sequence[str]) -> None:
        self._inner = MemoryBackend(stores)
        self.reads: list[tuple[str, int]] = []

    def get_many(self, store: str, keys: Sequence[bytes]) -> list[bytes | None]:
        self.reads.append((store, len(keys)))
        return self._inner.get_many(store, keys)

    def scan(self, store: str, lo: bytes, hi: bytes | None, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        return self._inner.scan(store, lo, hi, reverse)

    def write(self, batch: Mapping[str, Mapping[bytes, bytes | None]]) -> None:
        self._inner.write(batch)

    def close(self) -> None:
        self._inner.close()


class Running:
    """A task as a runtime would have it: pickled, fed, committed, and made again over the same back end."""

    def __init__(self, topology: Topology, config: Config | None = None) -> None:
        self._spec = plan(topology, config or Config(), lambda topic: 1, as_one=True).tasks[0].dumps()
        self.backend = Counting(TaskSpec.loads(self._spec).backend_stores())
        self.outputs: list[Any] = []
        self.task = self._start()

    def _start(self, now: int = 0) -> Task:
        return Task(TaskSpec.loads(self._spec), self.backend, now=now)

    def restart(self, now: int = 0) -> None:
        self.task.close()
        self.task = self._start(now)

    def commit(self) -> Changes:
        changes = self.task.commit()
        self.backend.write(changes.batch())
        self.outputs += changes.outputs
        return changes

    def run(self, limit: int = 1000, now: int = 0) -> None:
        while self.task.process(limit, now):
            self.commit()


def raw(key: str | None, value: str | None, time: int, offset: int) -> RawRecord:
    return (None if key is None else key.encode(), None if value is None else value.encode(), time, (), offset)


def counting() -> Topology:
    builder = StreamsBuilder(key=Str(), value=Str())
    builder.stream("in").filter(lambda key, value: value != "no").group_by_key().count(store="c").to_stream().to("out")
    return builder.build()


def numbers(time_of: Any = None) -> Topology:
    builder = StreamsBuilder(key=Str(), value=Int64())
    merged = builder.stream("a", timestamp=time_of).merge(builder.stream("b"))
    merged.map_values(lambda value: None if value is None else 60 // value).to("out", value=Int64())
    return builder.build()


RECORDS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),
        st.sampled_from([b"x", b"y", None]),
        st.one_of(st.none(), st.just(b"bad"), st.integers(0, 3).map(Int64().encode)),
        st.integers(0, 20),
    ),
    max_size=30,
)


@settings(deadline=None, max_examples=60)
@given(RECORDS, st.sampled_from([1, 2, 3, 7, 1000]), st.booleans())
def test_the_size_of_a_batch_changes_nothing(
    records: list[tuple[str, bytes | None, bytes | None, int]], limit: int, stamped: bool
) -> None:
    config = Config(on_deserialization_error="dead-letter", on_processing_error="dead-letter", dead_letters="dead")
    topology = numbers((lambda record, time: record.timestamp - 5) if stamped else None)

    def outcome(limit: int) -> Any:
        running = Running(topology, config)
        offsets = {"a": 0, "b": 0}
        for topic, key, value, time in records:
            running.task.feed(topic, 0, [(key, value, time, (), offsets[topic])])
            offsets[topic] += 1
        running.run(limit)
        by_topic: dict[str, list[Any]] = {}
        for output in running.outputs:
            by_topic.setdefault(output[0], []).append(output)
        return by_topic, running.task.offsets, running.task.metrics()

    assert outcome(limit) == outcome(1)


def test_a_restored_task_goes_on_from_its_offsets() -> None:
    records = [raw("k", f"v{i}", i, i) for i in range(10)]
    straight = Running(counting())
    straight.task.feed("in", 0, records)
    straight.run(3)

    running = Running(counting())
    running.task.feed("in", 0, records)
    running.task.process(4, 0)
    running.commit()
    running.task.process(3, 0)  # never committed, so it never was
    running.restart()
    assert running.task.offsets == {("in", 0): 4}
    running.task.feed("in", 0, records[4:])
    running.run()
    assert running.outputs == straight.outputs
    assert running.task.stores["c"].get("k") == (10, 9)  # type: ignore[union-attr, call-arg, arg-type]


def test_a_commit_without_work_writes_nothing() -> None:
    running = Running(counting())
    running.task.feed("in", 0, [raw("k", "v", 5, 0)])
    running.run()
    changes = running.task.commit()
    assert changes.batch() == {}
    assert changes.outputs == []


def test_memory_is_written_only_when_it_changed() -> None:
    running = Running(counting())
    running.task.feed("in", 0, [raw("k", "v", 5, 0), raw("k", "v", 3, 1)])
    running.task.process(1, 0)
    assert set(running.commit().memory) == {b"memory\0times"}
    running.task.process(1, 0)
    # The second record is older: no time has moved.
    changes = running.commit()
    assert changes.memory == {}
    assert set(changes.batch()) == {"c", TASK}


def test_the_offset_of_a_bad_tail_is_committed() -> None:
    running = Running(numbers(), Config(on_deserialization_error="skip"))
    running.task.feed("a", 0, [(b"k", b"bad", 1, (), 0), (b"k", b"bad", 1, (), 1)])
    assert running.task.process(10, 0) == 1
    assert running.commit().offsets == {("a", 0): 2}
    assert running.task.metrics()["KSTREAM-SOURCE-0000000000"]["dropped-records-total"] == 2


@given(
    st.lists(st.sampled_from(["good", "unreadable", "untimed"]), max_size=8),
    st.lists(st.integers(1, 4), min_size=1, max_size=8),
    st.integers(1, 3),
    st.booleans(),
    st.booleans(),
)
@example(["good", "unreadable"], [2], 1, True, False)
def test_records_beside_bad_ones_are_counted_once_in_any_order(
    kinds: list[str], sizes: list[int], limit: int, crashes: bool, extracts: bool
) -> None:
    """However they lie, are fed and are committed: each is processed or dropped, and has one result or dead letter."""
    builder = StreamsBuilder(key=Str(), value=Int64())
    extract = OnInvalid.skip(lambda record, _: record.timestamp) if extracts else OnInvalid.skip()
    builder.stream("a", timestamp=extract).to("out")
    config = Config(on_deserialization_error="dead-letter", dead_letters="bad")
    running = Running(builder.build(), config)
    records: list[RawRecord] = [
        (b"k", b"bad" if kind == "unreadable" else bytes(8), -1 if kind == "untimed" else 5, (), offset)
        for offset, kind in enumerate(kinds)
    ]
    fed, processed, dropped = 0, 0, 0
    for size in itertools.cycle(sizes):
        chunk = records[fed : fed + size]
        running.task.feed("a", 0, chunk)
        fed += len(chunk)
        while running.task.process(limit, 0):
            running.commit()
            if crashes:
                # What is not committed is lost, and read again from where the commit says.
                more = counts(running.task)
                processed, dropped = processed + more[0], dropped + more[1]
                running.restart()
                fed = running.task.offsets.get(("a", 0), 0)
                break
        if fed == len(records) and not running.task.queued:
            break
    running.commit()
    more = counts(running.task)
    total = Counter(kinds)
    assert processed + more[0] == total["good"]
    assert dropped + more[1] == total["unreadable"] + total["untimed"]
    assert Counter(output[0] for output in running.outputs) == Counter(out=total["good"], bad=total["unreadable"])


def counts(task: Task) -> tuple[int, int]:
    """How many records were processed, and how many dropped."""
    return task.processed, sum(step["dropped-records-total"] for step in task.metrics().values())


@pytest.mark.parametrize("values", [[b"{bad", b"1"], [b"1", b"{bad"]])
def test_a_worker_counts_a_bad_record_beside_a_good_one_alike_in_both_orders(
    values: list[bytes], tmp_path: Path
) -> None:
    place = Place(tmp_path)
    with Producer(place.broker) as producer:
        for value in values:
            producer.send("in", key="k", value=value)
    with place.app(on_deserialization_error="skip") as app:
        app.wait_idle()
        metrics = app.metrics()
    assert (metrics["records-total"], metrics["dropped-records-total"]) == (1, 1)


def test_a_batch_reads_each_store_once() -> None:
    running = Running(counting())
    running.task.feed("in", 0, [raw(f"k{i % 7}", "v", i, i) for i in range(100)])
    running.task.process(100, 0)
    assert running.backend.reads == [("c", 7)]
    running.commit()
    running.backend.reads.clear()
    running.task.feed("in", 0, [raw(f"k{i % 7}", "v", i, 100 + i) for i in range(100)])
    running.task.process(100, 0)
    assert running.backend.reads == []


def test_a_failed_task_refuses_to_go_on() -> None:
    running = Running(numbers())
    running.task.feed("a", 0, [(b"k", Int64().encode(0), 1, (), 0)])
    with pytest.raises(StreamsError, match="ZeroDivisionError"):
        running.task.process(1, 0)
    for go_on in (running.task.commit, lambda: running.task.process(1, 0), lambda: running.task.punctuate(0)):
        with pytest.raises(StreamsError, match="has failed before") as caught:
            go_on()
        assert isinstance(caught.value.__cause__, StreamsError)


def test_a_negative_timestamp_fails_in_a_batch_as_alone() -> None:
    for records in ([-1], [5, 6, -1, 7]):
        running = Running(numbers())
        with pytest.raises(StreamsError, match=r"invalid .negative. timestamp -1"):  # noqa: PT012 - either may raise
            running.task.feed("a", 0, [(b"k", Int64().encode(1), time, (), i) for i, time in enumerate(records)])
            running.task.process(1000, 0)


def test_a_topic_the_task_does_not_read_is_refused() -> None:
    with pytest.raises(StreamsError, match="does not read the topic 'other'"):
        Running(counting()).task.feed("other", 0, [raw("k", "v", 0, 0)])


def test_much_uncommitted_state_asks_for_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_module, "DIRTY_BYTES", 200_000)
    running = Running(counting())
    running.task.feed("in", 0, [raw(f"k{i}", "v", i, i) for i in range(10_000)])
    done = running.task.process(10_000, 0)
    assert done < 10_000
    assert running.task.wants_commit
    running.commit()
    assert not running.task.wants_commit


class Ledger(Processor):
    """Counts in its attributes and ticks by both clocks."""

    count = 0

    def init(self, context: Any) -> None:
        super().init(context)
        self.pairs: list[tuple[str, int]] = []
        self.kinds = {("start", 1)}
        self.unkept = object()
        self.stream = context.schedule(timedelta(milliseconds=50), "stream-time", self.tick)
        context.schedule(timedelta(milliseconds=100), "wall-clock", lambda time: self.tell("wall", time))

    def tick(self, time: int) -> None:
        self.tell("stream", time)
        if len(self.pairs) == 4:
            self.stream.cancel()

    def tell(self, what: str, time: int) -> None:
        assert (self.context.topic, self.context.partition, self.context.offset) == (None, None, None)
        self.context.forward(Record(what, f"{self.count}@{time} {self.pairs} {sorted(self.kinds)}", time))

    def process(self, record: Record) -> None:
        self.count += 1
        self.pairs.append((record.key, record.timestamp))
        self.kinds.add((record.key, self.count))
        if record.value == "commit":
            self.context.commit()


def ledger() -> Topology:
    topology = Topology().add_source("in", "in", key=Str(), value=Str()).add_processor("p", Ledger, "in")
    topology.add_sink("out", "out", "p", key=Str(), value=Str())
    return topology


def test_attributes_and_punctuators_survive_a_restart_between_any_two_steps() -> None:
    def outcome(restarting: bool) -> list[Any]:
        running = Running(ledger())
        now = 0
        for offset, time in enumerate((5, 49, 50, 120, 121, 400)):
            now += 30
            running.task.feed("in", 0, [raw("k", "v", time, offset)])
            running.run(now=now)
            running.task.punctuate(now)
            running.commit()
            if restarting:
                running.restart(now)
        return running.outputs

    outputs = outcome(False)
    assert outcome(True) == outputs
    assert [output[2] for output in outputs] == [b"stream", b"stream", b"stream", b"wall"]


def test_a_processor_can_ask_for_a_commit() -> None:
    running = Running(ledger())
    running.task.feed("in", 0, [raw("k", value, i, i) for i, value in enumerate(["v", "commit", "v"])])
    assert running.task.process(1, 0) == 1
    assert not running.task.wants_commit
    running.task.process(10, 0)
    assert running.task.wants_commit
    running.commit()
    assert not running.task.wants_commit


def test_a_processor_reaches_only_the_stores_it_was_given() -> None:
    class Curious(Processor):
        def process(self, record: Record) -> None:
            self.context.store("other").get("k")

    topology = Topology().add_source("in", "in", value=Str()).add_processor("p", Curious, "in")
    topology.add_processor("q", Curious, "in").add_store(KeyValue("other"), "q")
    running = Running(topology)
    running.task.feed("in", 0, [raw("k", "v", 0, 0)])
    with pytest.raises(StreamsError, match=r"step 'p' was not given the store 'other': .*stores="):
        running.task.process(1, 0)


def test_a_supplier_must_make_a_processor() -> None:
    topology = Topology().add_source("in", "in").add_processor("p", dict, "in")
    with pytest.raises(StreamsError, match=r"step 'p': the supplier .* must make a Processor, but made {}"):
        Running(topology)


def test_init_that_raises_names_its_step() -> None:
    class Broken(Processor):
        def init(self, context: Any) -> None:
            context.schedule(timedelta(0), "stream-time", print)

    topology = Topology().add_source("in", "in").add_processor("p", Broken, "in")
    with pytest.raises(StreamsError, match=r"step 'p': init failed .* interval must be at least 1 ms"):
        Running(topology)


def test_the_time_that_records_out_of_order_reach_is_not_that_of_an_old_one_among_them() -> None:
    """Rounds of tasks would end after a record each, and a backfill with old records among the others would crawl."""
    task = Running(counting()).task
    task.feed("in", 0, [raw("k", "v", 5 if number % 2 else 1_000 + number, number) for number in range(100)])
    reached = [task.time_after(count) for count in range(20, 100)]
    assert all(1_000 + count - 5 <= time <= 1_000 + count for count, time in zip(range(20, 100), reached, strict=True))
    assert task.time_after(200) > 10**9  # all of them
