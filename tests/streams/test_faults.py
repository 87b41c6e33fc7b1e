"""Bad records: what fails, what is skipped, what becomes a dead letter, and what is said about it."""

import sys
from datetime import timedelta
from typing import Any

import pytest

from headwater import (
    Bytes,
    Config,
    ErrorContext,
    Int64,
    KeyValue,
    Processor,
    Record,
    Str,
    StreamsBuilder,
    StreamsError,
    TimeWindows,
    Topology,
    TopologyTestDriver,
)
from headwater.state.memory import MemoryBackend
from headwater.streams.plan import plan
from headwater.streams.task import Task


def divide(value: int) -> int:
    return 100 // value


def dividing() -> Topology:
    """Two branches: one divides, which fails on 0, the other does not."""
    builder = StreamsBuilder(key=Str(), value=Int64())
    numbers = builder.stream("in")
    numbers.map_values(divide).to("divided", value=Int64())
    numbers.map_values(lambda value: value + 1).to("next", value=Int64())
    return builder.build()


def values(driver: TopologyTestDriver, topic: str) -> list[Any]:
    return [record.value for record in driver.output(topic).read_all()]


def test_fail_names_step_function_and_record_and_keeps_the_cause() -> None:
    with TopologyTestDriver(dividing()) as driver:
        driver.input("in").send("k", 5, at=1)
        with pytest.raises(StreamsError) as caught:
            driver.input("in").send("k", 0, at=2)
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        text = str(caught.value)
        assert "'KSTREAM-MAPVALUES-0000000001'" in text
        assert f"{divide.__module__}:{divide.__code__.co_firstlineno}" in text
        assert "in-0@1" in text
        assert "on_processing_error" in text


def test_the_driver_goes_on_behind_a_record_that_failed() -> None:
    with TopologyTestDriver(dividing()) as driver:
        driver.input("in").send("k", 5, at=1)
        with pytest.raises(StreamsError, match="ZeroDivisionError"):
            driver.input("in").send("k", 0, at=2)
        driver.input("in").send("k", 10, at=3)
        assert values(driver, "divided") == [20, 10]
        assert values(driver, "next") == [6, 11]
        with pytest.raises(StreamsError, match="could not read in-0@3"):
            driver.input("in").send_bytes(b"k", b"abc", at=4)
        # Done with, so that no restart takes it up again.
        driver.restart()
        driver.input("in").send("k", 4, at=5)
        assert values(driver, "divided") == [25]


def test_what_a_failed_record_wrote_before_stays() -> None:
    class Careless(Processor):
        def process(self, record: Record) -> None:
            self.context.store("s").put(record.key, record.value)
            self.context.forward(record)
            if record.value == "bad":
                raise ValueError("no")

    builder = StreamsBuilder(key=Str(), value=Str())
    builder.add_store(KeyValue("s"))
    builder.stream("in").process(Careless, stores=["s"]).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        with pytest.raises(StreamsError):
            driver.input("in").send("k", "bad", at=1)
        assert driver.store("s").get("k") == "bad"
        driver.input("in").send("l", "good", at=2)
        assert values(driver, "out") == ["bad", "good"]


def test_a_punctuator_that_failed_is_called_again_next_time() -> None:
    class Failing(Processor):
        def init(self, context: Any) -> None:
            super().init(context)
            context.schedule(timedelta(seconds=1), "wall-clock", self.fail)

        def fail(self, time: int) -> None:
            if time == 1000:
                raise ValueError("no")
            self.context.forward(Record("k", str(time), time))

    topology = Topology().add_source("in", "a").add_processor("p", Failing, "in")
    with TopologyTestDriver(topology.add_sink("out", "out", "p", value=Str())) as driver:
        with pytest.raises(StreamsError, match="its punctuator at 1000"):
            driver.advance(timedelta(seconds=1))
        driver.advance(timedelta(milliseconds=999))
        assert values(driver, "out") == []
        driver.advance(timedelta(milliseconds=1))
        assert values(driver, "out") == ["2000"]


def test_skip_abandons_the_branch_and_counts_one_drop() -> None:
    with TopologyTestDriver(dividing(), Config(on_processing_error="skip")) as driver:
        driver.input("in").send("k", 0, at=2)
        driver.input("in").send("k", 4, at=3)
        assert values(driver, "divided") == [25]
        assert values(driver, "next") == [1, 5]
        metrics = driver.metrics()
        assert metrics["dropped-records-total"] == 1
        assert metrics["steps"]["KSTREAM-MAPVALUES-0000000001"]["dropped-records-total"] == 1


def test_a_dead_letter_keeps_the_original_bytes_headers_and_place() -> None:
    config = Config(on_processing_error="dead-letter", dead_letters="dead")
    with TopologyTestDriver(dividing(), config) as driver:
        driver.input("in").send("k", 1, at=1)
        driver.input("in").send("k", 0, at=2, headers=(("trace", b"7"),))
        [letter] = driver.output("dead", Str(), Int64()).read_all()
        assert (letter.key, letter.value, letter.timestamp) == ("k", 0, 2)
        assert letter.headers == (
            ("trace", b"7"),
            ("__streams.errors.exception", b"builtins.ZeroDivisionError"),
            ("__streams.errors.message", b"integer division or modulo by zero"),
            ("__streams.errors.topic", b"in"),
            ("__streams.errors.partition", b"0"),
            ("__streams.errors.offset", b"1"),
            ("__streams.errors.step", b"KSTREAM-MAPVALUES-0000000001"),
        )
        assert values(driver, "next") == [2, 1]


TOLD: list[ErrorContext] = []


def lenient(error: ErrorContext) -> Any:
    # Of this module, so that the task's copy of the handler writes into the same list.
    TOLD.append(error)
    return "skip" if error.key == "mild" else "fail"


def test_a_handler_is_told_everything_and_decides_for_each_record() -> None:
    TOLD.clear()
    with TopologyTestDriver(dividing(), Config(on_processing_error=lenient)) as driver:
        driver.input("in").send("mild", 0, at=2)
        with pytest.raises(StreamsError):
            driver.input("in").send("grave", 0, at=3)
    first, second = TOLD
    assert (first.kind, first.step) == ("processing", "KSTREAM-MAPVALUES-0000000001")
    assert (first.key, first.value, first.timestamp) == ("mild", 0, 2)
    assert (first.topic, first.partition, first.offset, first.task_id) == ("in", 0, 0, "0_0")
    assert isinstance(first.error, ZeroDivisionError)
    assert first.function == f"{divide.__module__}:{divide.__code__.co_firstlineno}"
    assert (second.key, second.offset) == ("grave", 1)


@pytest.mark.parametrize(
    ("answer", "said"),
    [("retry", "answered 'retry'"), ("dead-letter", 'dead_letters="…"')],
)
def test_an_answer_that_cannot_be_followed_is_a_failure(answer: Any, said: str) -> None:
    config = Config(on_processing_error=lambda error: answer)
    with TopologyTestDriver(dividing(), config) as driver, pytest.raises(StreamsError, match=said):
        driver.input("in").send("k", 0, at=2)


def test_a_handler_that_raises_is_a_failure_with_its_own_error_as_the_cause() -> None:
    def handler(error: ErrorContext) -> Any:
        raise KeyError("oh")

    config = Config(on_processing_error=handler)
    with TopologyTestDriver(dividing(), config) as driver, pytest.raises(StreamsError) as caught:
        driver.input("in").send("k", 0, at=2)
    assert isinstance(caught.value.__cause__, KeyError)
    assert "on_processing_error" in str(caught.value)


def test_bytes_that_cannot_be_read() -> None:
    with TopologyTestDriver(dividing()) as driver:
        with pytest.raises(StreamsError, match=r"KSTREAM-SOURCE-0000000000.* could not read in-0@0") as caught:
            driver.input("in").send_bytes(b"k", b"abc", at=2)
        assert "Int64() cannot decode" in str(caught.value)
    config = Config(on_deserialization_error="dead-letter", dead_letters="dead")
    with TopologyTestDriver(dividing(), config) as driver:
        driver.input("in").send_bytes(b"k", b"abc", at=2, headers=(("h", None),))
        driver.input("in").send("k", 1, at=3)
        [letter] = driver.output("dead", Str(), Bytes()).read_all()
        assert (letter.key, letter.value, letter.timestamp) == ("k", b"abc", 2)
        assert letter.headers[0] == ("h", None)
        assert values(driver, "next") == [2]
        assert driver.metrics()["dropped-records-total"] == 1


def test_a_result_that_cannot_be_written_is_lost_for_its_sink_alone() -> None:
    builder = StreamsBuilder(key=Str(), value=Int64())
    numbers = builder.stream("in").map_values(lambda value: value * 2**62)
    numbers.to("narrow", value=Int64())
    numbers.map_values(str).to("wide", value=Str())
    topology = builder.build()
    with (
        TopologyTestDriver(topology) as driver,
        pytest.raises(StreamsError, match="could not write a result of in-0@0"),
    ):
        driver.input("in").send("k", 8, at=0)
    with TopologyTestDriver(topology, Config(on_production_error="skip")) as driver:
        driver.input("in").send("k", 8, at=0)
        driver.input("in").send("k", 1, at=0)
        assert values(driver, "narrow") == [2**62]
        assert values(driver, "wide") == [str(2**65), str(2**62)]
        assert driver.metrics()["dropped-records-total"] == 1


def test_an_error_in_a_punctuator_goes_to_the_processing_handler() -> None:
    class Failing(Processor):
        def init(self, context: Any) -> None:
            context.schedule(timedelta(seconds=1), "wall-clock", self.fail)

        def fail(self, time: int) -> None:
            raise ValueError("no")

        def process(self, record: Record) -> None:
            pass

    topology = Topology().add_source("in", "a").add_processor("p", Failing, "in")
    with TopologyTestDriver(topology) as driver, pytest.raises(StreamsError, match="its punctuator at 1000"):
        driver.advance(timedelta(seconds=1))
    with TopologyTestDriver(topology, Config(on_processing_error="skip")) as driver:
        driver.advance(timedelta(seconds=1))
        driver.advance(timedelta(seconds=1))
        assert driver.metrics()["steps"]["p"]["dropped-records-total"] == 2


def test_late_records_are_counted_and_go_to_their_topic_once() -> None:
    builder = StreamsBuilder(key=Str(), value=Str())
    windows = TimeWindows.of(timedelta(milliseconds=10), advance=timedelta(milliseconds=5))
    builder.stream("in").group_by_key().windowed_by(windows).count(store="counts").to_stream().to("out")
    with TopologyTestDriver(builder.build(), Config(late="late")) as driver:
        driver.input("in").send("k", "a", at=100)
        driver.input("in").send("k", "b", at=7, headers=(("h", b"1"),))
        assert driver.output("late", Str(), Str()).read_all() == [Record("k", "b", 7, (("h", b"1"),))]
        metrics = driver.metrics()
        # Kafka Streams counts a drop for each of the two windows it would have been in.
        assert (metrics["late-records-total"], metrics["dropped-records-total"]) == (1, 2)


def test_an_extractor_whose_answer_is_no_timestamp_is_named() -> None:
    def extract(record: Any, partition_time: int) -> int:
        return 2**63

    builder = StreamsBuilder(key=Str(), value=Str())
    builder.stream("in", timestamp=extract).to("out")
    where = f"{extract.__module__}:{extract.__code__.co_firstlineno}"
    with (
        TopologyTestDriver(builder.build()) as driver,
        pytest.raises(StreamsError, match=rf"extractor {where} must give an int, .*2\*\*63 - 1, but gave {2**63}"),
    ):
        driver.input("in").send("k", "v", at=0)


def test_an_extractor_that_raises_is_named() -> None:
    builder = StreamsBuilder(key=Str(), value=Str())

    def extract(record: Any, partition_time: int) -> int:
        return int(record.value)

    builder.stream("in", timestamp=extract).to("out")
    with TopologyTestDriver(builder.build()) as driver, pytest.raises(StreamsError) as caught:
        driver.input("in").send("k", "x", at=0)
    assert f"{extract.__module__}:{extract.__code__.co_firstlineno}" in str(caught.value)
    assert "in-0@0" in str(caught.value)
    assert isinstance(caught.value.__cause__, ValueError)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError


class Leaving(BaseException):
    pass


def leave(value: int) -> int:
    if value == 0:
        sys.exit(7)
    if value == 1:
        raise Leaving("now")
    if value == 2:
        raise Unspeakable
    return value


def leaving() -> Topology:
    builder = StreamsBuilder(key=Str(), value=Int64())
    builder.stream("in").map_values(leave, name="leaving").to("out", value=Int64())
    return builder.build()


@pytest.mark.parametrize(
    ("value", "said"), [(0, "SystemExit: 7"), (1, "Leaving: now"), (2, "Unspeakable: (its text cannot be had")]
)
def test_what_is_no_exception_or_has_no_text_is_named_with_step_and_record(value: int, said: str) -> None:
    with TopologyTestDriver(leaving()) as driver:
        driver.input("in").send("k", 5, at=1)
        with pytest.raises(StreamsError) as caught:
            driver.input("in").send("k", value, at=2)
    text = str(caught.value)
    assert f"step 'leaving' ({leave.__module__}:{leave.__code__.co_firstlineno}) failed on in-0@1" in text
    assert said in text


@pytest.mark.parametrize("at_once", [1, 100])
def test_dead_letters_survive_what_is_no_exception_or_has_no_text(at_once: int) -> None:
    config = Config(on_processing_error="dead-letter", dead_letters="dead")
    spec = plan(leaving(), config, lambda topic: 1).tasks[0]
    task = Task(spec, MemoryBackend(spec.backend_stores()))
    numbers = [5, 0, 6, 1, 2, 7, 0]
    records = [(b"k", Int64().encode(value), at, (), at) for at, value in enumerate(numbers)]
    task.feed("in", 0, records)
    while task.process(at_once, 0):
        pass
    changes = task.commit()
    assert [Int64().decode(value or b"") for topic, _, _, value, *_ in changes.outputs if topic == "out"] == [5, 6, 7]
    dead = [dict(headers) for topic, *_, headers in changes.outputs if topic == "dead"]
    assert [headers["__streams.errors.exception"].decode().rpartition(".")[2] for headers in dead] == [
        "SystemExit",
        "Leaving",
        "Unspeakable",
        "SystemExit",
    ]
    assert [int(headers["__streams.errors.offset"]) for headers in dead] == [1, 3, 4, 6]
    assert {headers["__streams.errors.step"] for headers in dead} == {b"leaving"}
    assert changes.offsets == {("in", 0): len(numbers)}
    assert task.lost() == {"leaving": (4, 0)}
