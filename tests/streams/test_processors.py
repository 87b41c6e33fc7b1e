"""Users' processors: what a restart and a redeploy keep of their attributes and punctuators, what init() sees, and what
forward() refuses."""

import functools
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from headwater import (
    KeyValue,
    Processor,
    Record,
    Str,
    StreamsBuilder,
    StreamsError,
    TimestampedKeyValue,
    Topology,
    TopologyError,
    TopologyTestDriver,
    Window,
)
from headwater.state.memory import MemoryBackend


def ms(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


def topology_of(supplier: Callable[[], Processor], *stores: Any) -> Topology:
    topology = Topology().add_source("in", "in", key=Str(), value=Str()).add_processor("p", supplier, "in")
    for store in stores:
        topology.add_store(store, "p")
    return topology.add_sink("out", "out", "p", key=Str(), value=Str())


def values(driver: TopologyTestDriver) -> list[str]:
    return [record.value for record in driver.output("out").read_all()]


class Tape(Processor):
    """Forwards what its punctuators and records tell."""

    def tell(self, text: str) -> None:
        self.context.forward(Record("k", text, 0))


# ---- attributes


class Limited(Tape):
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.tags = {"of": [limit]}

    def init(self, context: Any) -> None:
        super().init(context)
        self.seen = 0
        self.left = self.limit

    def process(self, record: Record) -> None:
        self.seen += 1
        self.left = self.limit - self.seen
        if record.value == "back":
            self.left = self.limit
        self.tell(f"{self.seen} of {self.limit}, {self.left} left, {self.tags}")


def test_a_redeploy_changes_settings_and_keeps_what_has_changed_since_init() -> None:
    kept: dict[str, MemoryBackend] = {}

    def backend(task_id: str, stores: Any) -> MemoryBackend:
        return kept.setdefault(task_id, MemoryBackend(stores))

    with TopologyTestDriver(topology_of(lambda: Limited(5)), backend=backend) as driver:
        driver.input("in").send("k", "v", at=0)
        assert values(driver) == ["1 of 5, 4 left, {'of': [5]}"]
    with TopologyTestDriver(topology_of(lambda: Limited(10)), backend=backend) as driver:
        driver._offsets["in", 0] = 1
        driver.input("in").send("k", "v", at=0)
        assert values(driver) == ["2 of 10, 8 left, {'of': [10]}"]
        # As init() left it again, so there is nothing to keep.
        driver.input("in").send("k", "back", at=0)
        assert values(driver) == ["3 of 10, 10 left, {'of': [10]}"]
    with TopologyTestDriver(topology_of(lambda: Limited(7)), backend=backend) as driver:
        [running] = driver._tasks
        processor = running.task._shared.processors["p"]
        assert (processor.seen, processor.limit, processor.left) == (3, 7, 7)


class Odd(Tape):
    """Attributes that hold themselves, share an object, go too deep, or are no data."""

    def process(self, record: Record) -> None:
        if not hasattr(self, "ring"):
            self.ring: list[Any] = ["ring"]
            self.ring.append(self.ring)
            self.one: list[str] = []
            self.two = {"one": self.one}
            self.no_data = functools.partial(print)
            self.deep: list[Any] = []
            for _ in range(100_000):
                self.deep = [self.deep]
        self.one.append(record.value)
        self.tell(f"{self.ring[1][1][0]} {self.two['one']} {hasattr(self, 'no_data')} {hasattr(self, 'deep')}")


def test_odd_attributes_are_kept_as_they_are_or_not_at_all() -> None:
    with TopologyTestDriver(topology_of(Odd)) as driver:
        driver.input("in").send("k", "a", at=0)
        assert values(driver) == ["ring ['a'] True True"]
        driver.restart()
        driver.input("in").send("k", "b", at=0)
        assert values(driver) == ["ring ['a', 'b'] False False"]


# ---- schedules


class Chain(Tape):
    """A punctuator that gives way to another, made by a record or by a punctuator."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.bell = context.schedule(ms(10), "stream-time", self.first)
        context.schedule(ms(15), "stream-time", lambda time: self.tell(f"init {time}"))

    def first(self, time: int) -> None:
        self.tell(f"first {time}")
        self.bell.cancel()
        self.bell = self.context.schedule(ms(7), "stream-time", self.second)

    def second(self, time: int) -> None:
        self.tell(f"second {time}")
        if time > 30:
            self.bell.cancel()

    def clock(self, time: int) -> None:
        self.tell(f"clock {time}")

    def process(self, record: Record) -> None:
        if record.value == "timer":
            self.timers = {
                **getattr(self, "timers", {}),
                record.key: self.context.schedule(ms(5), "wall-clock", self.clock),
            }
        elif record.value == "end":
            self.timers.pop(record.key).cancel()


@pytest.mark.parametrize("memory", [True, False])
def test_schedules_made_after_init_live_through_restarts_and_can_be_cancelled(memory: bool) -> None:
    def outcome(restarting: bool) -> list[str]:
        told = []
        with TopologyTestDriver(topology_of(Chain), memory=memory) as driver:
            for key, value, at in (
                ("a", "timer", 3),
                ("b", "timer", 8),
                ("k", "v", 15),
                ("a", "end", 22),
                ("k", "v", 31),
                ("b", "end", 40),
                ("k", "v", 70),
            ):
                driver.input("in").send(key, value, at=at)
                if restarting:
                    driver.restart()
                driver.advance(ms(3))
                if restarting:
                    driver.restart()
                told += values(driver)
        return told

    told = outcome(False)
    assert outcome(True) == told
    # Due at 5 (of a, which then ends at 9), and at 8 and 13 (of b, which ends at 15).
    assert [text for text in told if "clock" in text] == ["clock 6", "clock 9", "clock 15"]
    assert [text for text in told if "first" in text] == ["first 3"]
    assert [text for text in told if "second" in text] == [f"second {at}" for at in (3, 8, 15, 22, 31)]


class Loose(Tape):
    def process(self, record: Record) -> None:
        if record.value == "go":
            self.context.schedule(ms(1), "wall-clock", lambda time: self.tell("loose"))
            self.loose = self.context.schedule(ms(1), "wall-clock", lambda time: self.tell("loose"))
        else:
            self.loose.cancel()
            self.tell("alive")


def test_a_function_that_is_no_method_is_forgotten_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with TopologyTestDriver(topology_of(Loose)) as driver, caplog.at_level(logging.WARNING, "headwater"):
        driver.input("in").send("k", "go", at=0)
        [warning] = [message for message in caplog.messages if "after init()" in message]
        assert "step 'p' scheduled" in warning
        assert "no method of the processor" in warning
        driver.advance(ms(1))
        assert values(driver) == ["loose", "loose"]
        driver.restart()
        driver.advance(ms(1))
        driver.input("in").send("k", "cancel", at=0)
        assert values(driver) == ["alive"]


INTERVAL = [10]


class Paced(Tape):
    def init(self, context: Any) -> None:
        super().init(context)
        # Of this module, so that the copy which a restart makes reads the same list.
        context.schedule(ms(INTERVAL[0]), "wall-clock", lambda time: self.tell(f"paced {time}"))
        if INTERVAL[0] == 4:
            context.schedule(ms(3), "wall-clock", self.new)

    def new(self, time: int) -> None:
        self.tell(f"new {time}")


def test_a_redeploy_changes_the_schedules_of_init() -> None:
    INTERVAL[0] = 10
    with TopologyTestDriver(topology_of(Paced)) as driver:
        driver.advance(ms(9))
        driver.restart()
        driver.advance(ms(1))
        assert values(driver) == ["paced 10"]
        INTERVAL[0] = 4
        driver.restart()
        for _ in range(4):
            driver.advance(ms(1))
        assert values(driver) == ["new 13", "paced 14"]


def test_a_method_that_is_gone_is_no_longer_called(caplog: pytest.LogCaptureFixture) -> None:
    class Old(Tape):
        def process(self, record: Record) -> None:
            self.context.schedule(ms(1), "wall-clock", self.gone)

        def gone(self, time: int) -> None:
            self.tell("gone")

    class New(Tape):
        pass

    kept: dict[str, MemoryBackend] = {}

    def backend(task_id: str, stores: Any) -> MemoryBackend:
        return kept.setdefault(task_id, MemoryBackend(stores))

    with TopologyTestDriver(topology_of(Old), backend=backend) as driver:
        driver.input("in").send("k", "v", at=0)
        driver.advance(ms(1))
        assert values(driver) == ["gone"]
    with caplog.at_level(logging.WARNING, "headwater"), TopologyTestDriver(topology_of(New), backend=backend) as driver:
        driver.advance(ms(5))
        assert values(driver) == []
    assert "step 'p' no longer has the method gone that it had scheduled" in caplog.messages


# ---- init, suppliers


FOUND: list[Any] = []


class Looks(Processor):
    def init(self, context: Any) -> None:
        super().init(context)
        FOUND.append((context.stream_time, [window.start for window, _ in context.store("w").all()]))

    def process(self, record: Record) -> None:
        self.context.store("w").put(record.key, record.value, record.timestamp)


def test_init_finds_stores_and_stream_time_restored() -> None:
    FOUND.clear()
    with TopologyTestDriver(topology_of(Looks, Window("w", size=ms(10), retention=ms(20), value=Str()))) as driver:
        for at in (0, 50, 100):
            driver.input("in").send("k", "v", at=at)
        driver.restart()
    assert FOUND == [(-1, []), (100, [100])]


def test_a_supplier_that_raises_is_named() -> None:
    def supplier() -> Processor:
        if not works:
            raise KeyError("limit")
        return Processor()

    works = False
    where = f"{supplier.__module__}:{supplier.__code__.co_firstlineno}"
    with pytest.raises(TopologyError, match=rf"processor 'p': {where}: the supplier raised KeyError: 'limit'"):
        topology_of(supplier)
    works = True
    topology = topology_of(supplier)
    works = False
    with pytest.raises(StreamsError, match=rf"step 'p': the supplier \({where}\) failed with KeyError: 'limit'"):
        TopologyTestDriver(topology)


# ---- stores and forwarding


class Stamps(Processor):
    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(ms(1), "wall-clock", lambda time: context.store("ts").put("tick", "v"))

    def process(self, record: Record) -> None:
        self.context.forward(record)
        self.context.store("ts").put(record.key, record.value)
        self.context.store("w").put(record.key, record.value, 0)


class Later(Processor):
    def process(self, record: Record) -> None:
        self.context.forward(record.replace(timestamp=record.timestamp + 100))


def test_what_is_put_without_a_timestamp_has_the_current_records() -> None:
    builder = StreamsBuilder(key=Str(), value=Str())
    builder.add_store(TimestampedKeyValue("ts"))
    builder.add_store(Window("w", size=ms(10), retention=ms(1000), timestamped=True))
    late = builder.stream("in").process(Later)
    late.process(Stamps, stores=["ts", "w"]).process(Later).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("in").send("k", "v", at=5)
        driver.advance(ms(7))
        assert list(driver.store("ts").all(timestamps=True)) == [("k", ("v", 105)), ("tick", ("v", 7))]
        assert driver.store("w").get("k", 0, timestamps=True) == ("v", 105)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"timestamp": -1}, r"timestamp must be an int, epoch milliseconds from 0 .* but is -1"),
        ({"timestamp": 1.5}, r"timestamp must be an int, .* but is 1\.5"),
        ({"timestamp": 2**63}, r"timestamp must be an int, .* but is 9223372036854775808"),
        ({"timestamp": None}, r"timestamp must be an int, .* but is None"),
        ({"headers": None}, r"headers must be a tuple of .* pairs, but is None: write \(\) for none"),
        ({"headers": {"a": b"1"}}, r"headers must be a tuple of .* but is \{'a': b'1'\}: write tuple\(….items\(\)\)"),
        ({"headers": [("a", b"1")]}, r"headers must be a tuple of .* but is \[\('a', b'1'\)\]: write tuple\(…\)"),
        ({"headers": (("a", "1"),)}, r"headers must be .* pairs, but one is \('a', '1'\)"),
    ],
)
def test_forward_refuses_what_cannot_be_a_record(parts: dict[str, Any], said: str) -> None:
    class Wrong(Processor):
        def process(self, record: Record) -> None:
            self.context.forward(record.replace(**parts))

    with TopologyTestDriver(topology_of(Wrong)) as driver, pytest.raises(StreamsError, match=rf"step 'p' .*{said}"):
        driver.input("in").send("k", "v", at=0)


def test_forward_takes_good_headers() -> None:
    class Adds(Processor):
        def process(self, record: Record) -> None:
            self.context.forward(record.replace(headers=(*record.headers, ("b", None))))

    with TopologyTestDriver(topology_of(Adds)) as driver:
        driver.input("in").send("k", "v", at=0, headers=(("a", b"1"),))
        assert driver.output("out").read_all() == [Record("k", "v", 0, (("a", b"1"), ("b", None)))]


def test_kafka_streams_spellings_in_a_processor() -> None:
    class Java(Processor):
        def process(self, record: Record) -> None:
            self.context.getStateStore("kv").put(record.key, record.value)
            with pytest.raises(AttributeError, match="did you mean 'schedule'"):
                _ = self.context.scheduled

    with TopologyTestDriver(topology_of(Java, KeyValue("kv", value=Str()))) as driver:
        driver.createInputTopic("in").pipeInput("k", "v", at=0)  # type: ignore[attr-defined]
        assert driver.getKeyValueStore("kv").get("k") == "v"  # type: ignore[attr-defined]
        assert driver.createOutputTopic("out").readRecordsToList() == []  # type: ignore[attr-defined]
        driver.advanceWallClockTime(ms(1))  # type: ignore[attr-defined]
        with pytest.raises(AttributeError, match="'KeyValues' object has no attribute 'gett': did you mean 'get'"):
            driver.store("kv").gett("k")
