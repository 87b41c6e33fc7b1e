"""Timestamps far in the future: what they do to stream time, what is said of them, how they are kept out, and the way
back."""

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from headwater import (
    Config,
    ErrorContext,
    OnInvalid,
    Processor,
    Record,
    StreamsBuilder,
    StreamsError,
    Suppress,
    TopologyError,
    TopologyTestDriver,
)
from headwater.dsl.topology import Topology
from headwater.dsl.windows import JoinWindows, SessionWindows, SlidingWindows, TimeWindows
from headwater.state.memory import MemoryBackend
from headwater.streams.changes import TASK, read_committed
from headwater.streams.plan import plan
from headwater.streams.set_back import SetBack, ask, reached
from headwater.streams.task import Task

YEAR_9999 = 253402300799999
NOW = 1_790_000_000_000
CONFIG = Config()
MINUTE, HOUR = 60_000, 3_600_000


def windowed(**source: Any) -> Topology:
    builder = StreamsBuilder()
    minutes = builder.stream("in", **source).group_by_key().windowed_by(TimeWindows.of(timedelta(minutes=1)))
    minutes.count(store="minutes").to_stream().map(lambda key, value: (key.key, value)).to("out")
    return builder.build()


def opened(
    config: Config = CONFIG, backend: MemoryBackend | None = None, clock: Callable[[], int] = lambda: NOW
) -> tuple[Task, MemoryBackend]:
    """The task of the windowed topology, and its back end."""
    (spec,) = plan(windowed(), config, lambda topic: 1).tasks
    backend = backend or MemoryBackend(spec.backend_stores())
    return Task(spec, backend, now=0, clock=clock), backend


def counts(driver: TopologyTestDriver) -> list[int]:
    return [record.value for record in driver.output("out").read_all()]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


# ---- the fault, and what is said of it -------------------------------------------------------------------------------


def test_one_timestamp_of_the_year_9999_is_warned_of_by_name(caplog: pytest.LogCaptureFixture) -> None:
    with TopologyTestDriver(windowed(), now=NOW) as driver:
        driver.input("in").send("k", 1, at=NOW + HOUR)
        assert warnings(caplog) == []
        driver.input("in").send("k", 1, at=YEAR_9999)
        (said,) = warnings(caplog)
        assert said.startswith("task 0_0: stream time leaps to 9999-12-31T23:59:59.999Z, ")
        assert "beyond the wall clock, with in-0@1:" in said
        assert "max_future" in said
        assert "headwater reset --stream-time" in said
        # Once for the leap, not for every record in it, nor after a restart of the driver.
        driver.input("in").send("k", 1, at=YEAR_9999 + 1)
        driver.input("in").send("k", 1, at=NOW)
        driver.restart()
        driver.input("in").send("k", 1, at=NOW)
        assert len(warnings(caplog)) == 1
        assert driver.metrics()["late-records-total"] == 2
        driver.input("in").send("k", 1, at=YEAR_9999 + 2 * HOUR)
        assert len(warnings(caplog)) == 2


def test_records_of_today_and_a_clock_that_counts_from_0_are_no_leap(caplog: pytest.LogCaptureFixture) -> None:
    with TopologyTestDriver(windowed()) as driver:
        driver.send_all([("in", "k", 1, 1_700_000_000_000 + at) for at in range(0, 10 * HOUR, HOUR)])
        assert warnings(caplog) == []
        driver.input("in").send("k", 1, at=YEAR_9999)
        assert len(warnings(caplog)) == 1


def test_a_leap_inside_a_batch_is_warned_of_where_it_is(caplog: pytest.LogCaptureFixture) -> None:
    task, _ = opened()
    times = [NOW] * 500 + [YEAR_9999] + [NOW] * 499
    task.feed("in", 0, [(b"k", b"1", time, (), offset) for offset, time in enumerate(times)])
    while task.process(1000, NOW):
        pass
    (said,) = warnings(caplog)
    assert "in-0@500" in said


# ---- keeping them out ------------------------------------------------------------------------------------------------


def test_max_future_fails_by_name() -> None:
    config = Config(max_future=timedelta(hours=1))
    with TopologyTestDriver(windowed(), config, now=NOW) as driver:
        driver.input("in").send("k", 1, at=NOW + HOUR)
        with pytest.raises(StreamsError, match=r"does not take in-0@1: .*9999-12-31.*allows 1:00:00.*on_future"):
            driver.input("in").send("k", 1, at=YEAR_9999)
        driver.advance(timedelta(minutes=1))
        driver.input("in").send("k", 1, at=NOW + HOUR + MINUTE)
        assert counts(driver) == [1, 1]


@pytest.mark.parametrize("setting", ["on_future", "on_deserialization_error"])
def test_max_future_skips(setting: str, caplog: pytest.LogCaptureFixture) -> None:
    config = Config(max_future=timedelta(hours=1), **{setting: "skip"})  # type: ignore[arg-type]
    with TopologyTestDriver(windowed(), config, now=NOW) as driver:
        driver.send_all([("in", "k", 1, at) for at in (NOW, YEAR_9999, NOW + 1, NOW + HOUR + 1)])
        driver.input("in").send("k", 1, at=NOW + 2)
        assert counts(driver) == [1, 2, 3]
        assert driver.metrics()["dropped-records-total"] == 2
        assert driver.metrics()["late-records-total"] == 0
    assert warnings(caplog) == []


def test_max_future_makes_dead_letters() -> None:
    config = Config(max_future=timedelta(hours=1), on_future="dead-letter", dead_letters="dead")
    with TopologyTestDriver(windowed(), config, now=NOW) as driver:
        driver.send_all([("in", "k", 1, at) for at in (NOW, YEAR_9999, NOW + 1)])
        assert counts(driver) == [1, 2]
        (letter,) = driver.output("dead").read_all()
        headers = dict(letter.headers)
        assert headers["__streams.errors.offset"] == b"1"
        assert b"9999-12-31" in headers["__streams.errors.message"]


def test_max_future_asks_a_handler() -> None:
    asked: list[ErrorContext] = []

    def handler(context: ErrorContext) -> Any:
        asked.append(context)
        return "skip"

    config = Config(max_future=timedelta(hours=1), on_future=handler)
    with TopologyTestDriver(windowed(), config, now=NOW) as driver:
        driver.input("in").send("k", 7, at=YEAR_9999)
        assert [(told.kind, told.value, told.timestamp, told.topic) for told in asked] == [
            ("future", 7, YEAR_9999, "in")
        ]


def test_max_future_looks_at_what_an_extractor_gives() -> None:
    topology = windowed(timestamp=OnInvalid.fail(lambda record, partition_time: record.value))
    with TopologyTestDriver(topology, Config(max_future=timedelta(0), on_future="skip"), now=NOW) as driver:
        driver.send_all([("in", "k", value, 0) for value in (NOW, NOW + 1, YEAR_9999)])
        assert counts(driver) == [1]


def test_max_future_of_many_records_at_once() -> None:
    task, _ = opened(Config(max_future=timedelta(hours=1), on_future="skip"))
    # A clock that stood still while nothing was processed: what counts is the time when a record arrives.
    times = [YEAR_9999 if at % 7 == 3 else NOW + at for at in range(1000)]
    task.feed("in", 0, [(b"k", b"1", time, (), offset) for offset, time in enumerate(times)])
    while task.process(300, NOW):
        pass
    assert task.stream_time == NOW + 999
    assert sum(counts["dropped-records-total"] for counts in task.metrics().values()) == times.count(YEAR_9999)


def test_internal_topics_are_not_looked_at_again() -> None:
    builder = StreamsBuilder()
    builder.stream("in").map(lambda key, value: (value, value)).group_by_key().count(store="c").to_stream().to("out")
    config = Config(max_future=timedelta(0))
    with TopologyTestDriver(builder.build(), config, now=NOW) as driver:
        driver.input("in").send("k", "a", at=NOW)
        driver.now -= 1  # another machine's clock
        driver._complete()
        assert [record.value for record in driver.output("out").read_all()] == [1]


def test_on_future_needs_a_bound() -> None:
    with pytest.raises(TopologyError, match="on_future= needs a bound: give max_future=timedelta"):
        Config(on_future="skip")
    with pytest.raises(TopologyError, match='on_future must be "fail", "skip", "dead-letter" or a function'):
        Config(max_future=timedelta(1), on_future="drop")  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match=r'on_future="dead-letter" needs a topic'):
        Config(max_future=timedelta(1), on_future="dead-letter")
    with pytest.raises(TopologyError, match="max_future must not be negative"):
        Config(max_future=timedelta(-1))


# ---- the way back ----------------------------------------------------------------------------------------------------


def everything() -> Topology:
    """Every operator that keeps a time of its own."""
    builder = StreamsBuilder()
    stream = builder.stream("in")
    grouped, minute = stream.group_by_key(), timedelta(minutes=1)
    tables = {
        "tumbling": grouped.windowed_by(TimeWindows.of(minute, grace=minute)).count(store="tumbling"),
        "sliding": grouped.windowed_by(SlidingWindows.of(minute, grace=minute)).count(store="sliding"),
        "session": grouped.windowed_by(SessionWindows.of(minute, grace=minute)).count(store="session"),
        "final": grouped.windowed_by(TimeWindows.of(minute, grace=timedelta(0)))
        .count(store="final")
        .suppress(Suppress.until_window_closes(max_records=None)),
    }
    for name, table in tables.items():
        table.to_stream().map(lambda key, value: (f"{key.key}@{key.start}", value)).to(name)
    joined = JoinWindows.of(minute, grace=timedelta(0))
    stream.left_join(builder.stream("other"), lambda a, b: [a, b], joined).to("joined")
    return builder.build()


OUTPUTS = ["tumbling", "sliding", "session", "final", "joined"]


def play(driver: TopologyTestDriver, start: int) -> list[list[Any]]:
    """Send some records and return all that follows from them, with times counted from the start."""
    for at in (0, 1000, 5 * MINUTE, 5 * MINUTE + 1, 9 * MINUTE, 5 * MINUTE):
        driver.input("in").send("k", at, at=start + at)
    driver.input("other").send("k", 0, at=start + 9 * MINUTE)
    results = []
    for topic in OUTPUTS:
        for record in driver.output(topic).read_all():
            key, _, window = record.key.partition("@")
            shown = f"{key}@{int(window) - start}" if window else key
            results.append([topic, shown, record.value, record.timestamp - start])
    return results


@pytest.mark.parametrize("partitions", [1, 2])
def test_stream_time_that_is_set_back_lets_new_records_count_again(partitions: int) -> None:
    start = NOW - NOW % HOUR
    with TopologyTestDriver(everything(), now=start, partitions=partitions) as driver:
        expected = play(driver, start)
    with TopologyTestDriver(everything(), now=start, partitions=partitions) as driver:
        driver.input("in").send("k", "future", at=YEAR_9999)
        for topic in OUTPUTS:
            driver.output(topic).read_all()
        late = driver.metrics()["late-records-total"]
        driver.input("in").send("k", "lost", at=start - HOUR)
        driver.restart()
        driver.input("in").send("k", "lost", at=start - HOUR)
        assert driver.metrics()["late-records-total"] > late
        for topic in OUTPUTS:
            driver.output(topic).read_all()
        wanted = SetBack(start)
        for backend in driver._backends:
            ask(backend, wanted)
        driver.restart()
        assert play(driver, start) == expected
        # It is done once: another start does not set the time back again, and times have gone on.
        driver.restart()
        for backend in driver._backends:
            _, memories = read_committed(backend)
            assert memories["set back"]["done"]
            assert reached(memories) <= start + 9 * MINUTE
        assert max(reached(read_committed(backend)[1]) for backend in driver._backends) == start + 9 * MINUTE


def test_a_request_is_done_once_however_often_it_is_interrupted() -> None:
    task, backend = opened()
    task.feed("in", 0, [(b"k", b"1", YEAR_9999, (), 0)])
    task.process(1, NOW)
    backend.write(task.commit().batch())
    ask(backend, SetBack(NOW))
    for _ in range(2):
        # Opened, and killed before its first commit.
        assert opened(backend=backend)[0].stream_time == NOW
        assert not read_committed(backend)[1]["set back"]["done"]
    again, _ = opened(backend=backend)
    backend.write(again.commit().batch())
    memories = read_committed(backend)[1]
    assert memories["set back"]["done"]
    assert reached(memories) == NOW
    assert memories["leapt"] == {"minutes": YEAR_9999 - YEAR_9999 % MINUTE}
    assert list(backend.scan(TASK, b"offset", b"offset\1")) == [(b"offset\0in\x000", b"1")]


class Ticks(Processor):
    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(timedelta(minutes=1), "stream-time", lambda time: context.forward(Record("tick", time, time)))

    def process(self, record: Any) -> None:
        """Only time counts."""


def test_stream_time_punctuators_are_due_again() -> None:
    topology = Topology().add_source("in", "in").add_processor("p", Ticks, "in").add_sink("s", "out", "p")
    with TopologyTestDriver(topology, now=NOW) as driver:
        driver.input("in").send("k", 1, at=YEAR_9999)
        driver.input("in").send("k", 1, at=NOW)
        assert counts(driver) == [YEAR_9999]
        ask(driver._backends[0], SetBack(NOW))
        driver.restart()
        driver.input("in").send("k", 1, at=NOW + MINUTE)
        driver.input("in").send("k", 1, at=NOW + MINUTE + 1)
        assert counts(driver) == [NOW + MINUTE]
