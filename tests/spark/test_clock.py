"""The clock as a Spark source: when it ticks, and that a batch that is run again has the time it had."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headwater.errors import StreamsError
from headwater.streams.spark.clock import Ticks, tick_options
from headwater.streams.spark.rows import COLUMNS, DRAIN, Row

MINUTE = 60_000


class Hand:
    """The hand of a clock that only moves when it is moved, also for other processes."""

    def __init__(self, path: Path, now: int) -> None:
        self._path = path
        self.move(now)

    def move(self, now: int) -> None:
        fresh = self._path.with_suffix(".new")
        fresh.write_text(str(now))
        fresh.replace(self._path)

    def clock(self) -> Callable[[], int]:
        path = str(self._path)

        # Within a function, for then it travels with its code: the tests are not where Spark's processes look.
        def clock() -> int:
            with open(path) as file:
                return int(file.read())

        return clock


@pytest.fixture
def hand(tmp_path: Path) -> Hand:
    return Hand(tmp_path / "clock", 5 * MINUTE)


def reader(hand: Hand, every_ms: int = MINUTE, **options: Any) -> Any:
    return Ticks(tick_options({0: 1, 3: 2}, every_ms, hand.clock(), **options)).simpleStreamReader(None)  # type: ignore[arg-type]


def ticks(now: int, data: bytes | None = None) -> list[Row]:
    return [(0, 0, None, -1, 0, now, data), (3, 0, None, -1, 0, now, data), (3, 1, None, -1, 1, now, data)]


def read(source: Any, start: Any) -> tuple[list[Row], Any]:
    rows, end = source.read(start)
    found = list(rows)
    # What is read again must be what was read.
    assert start == end or list(source.readBetweenOffsets(start, end)) == found
    return found, end


def test_there_is_a_tick_whenever_the_clock_has_passed_another_multiple(hand: Hand) -> None:
    source = reader(hand)
    hand.move(5 * MINUTE + 59_999)
    rows, first = read(source, source.initialOffset())
    assert rows == ticks(5 * MINUTE)
    assert first == {"now": 5 * MINUTE, "drain": False, "tick": 1}
    assert read(source, first) == ([], first)
    hand.move(6 * MINUTE)
    rows, second = read(source, first)
    assert rows == ticks(6 * MINUTE)
    hand.move(5 * MINUTE)
    assert read(source, second) == ([], second)
    hand.move(9 * MINUTE)
    assert read(source, second)[0] == ticks(9 * MINUTE)


def test_a_clock_may_begin_at_zero(hand: Hand) -> None:
    source = reader(hand, every_ms=1)
    hand.move(0)
    rows, first = read(source, source.initialOffset())
    assert rows == ticks(0)
    assert read(source, first) == ([], first)


def test_the_first_tick_drains_if_it_should_and_no_other(hand: Hand) -> None:
    source = reader(hand, drain=True)
    # It drains though the clock stands where an earlier run left it.
    rows, first = read(source, {"now": 5 * MINUTE, "drain": True, "tick": 7})
    assert rows == ticks(5 * MINUTE, DRAIN)
    assert first == {"now": 5 * MINUTE, "drain": True, "tick": 8}
    assert read(source, first) == ([], first)
    hand.move(6 * MINUTE)
    assert read(source, first)[0] == ticks(6 * MINUTE)


def test_under_available_now_there_is_one_tick_whatever_the_time(hand: Hand) -> None:
    source = reader(hand)
    source.prepareForTriggerAvailableNow()
    hand.move(2 * MINUTE)
    rows, first = read(source, {"now": 5 * MINUTE, "drain": False, "tick": 3})
    assert rows == ticks(5 * MINUTE)
    hand.move(8 * MINUTE)
    assert read(source, first) == ([], first)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "headwater-clock cannot be read with these options"),
        ({"shards": "{}"}, "needs shards and has {}"),
        ({"shards": '{"0": 1}', "every_ms": "0"}, "every_ms=0 must be 1 or more"),
        ({"shards": '{"0": 1}', "every_ms": "often"}, "headwater-clock cannot be read with these options"),
    ],
)
def test_faulty_options_are_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(StreamsError, match=message):
        Ticks(options).simpleStreamReader(None)  # type: ignore[arg-type]


# ---- in Spark ------------------------------------------------------------------------------------------------------


class Running:
    """A query over the clock alone."""

    def __init__(self, spark: SparkSession, hand: Hand, checkpoint: Path) -> None:
        self._spark, self._hand, self._checkpoint = spark, hand, checkpoint
        self.batches: dict[int, list[Row]] = {}
        self.partitions: set[int] = set()

    def start(self, *, drain: bool = False, **trigger: Any) -> Any:
        self.batches = {}
        options = tick_options({0: 1, 3: 2}, MINUTE, self._hand.clock(), drain=drain)
        frame = self._spark.readStream.format("headwater-clock").options(**options).load().select(*COLUMNS)
        writer = frame.writeStream.foreachBatch(self._keep).option("checkpointLocation", str(self._checkpoint))
        return writer.trigger(**trigger).start()

    def _keep(self, rows: DataFrame, batch: int) -> None:
        self.partitions.add(rows.rdd.getNumPartitions())
        self.batches[batch] = [tuple(row) for row in rows.collect()]  # type: ignore[misc]

    def once(self, *, drain: bool = False) -> dict[int, list[Row]]:
        self.start(drain=drain, availableNow=True).awaitTermination()
        return self.batches


@pytest.fixture
def running(spark: SparkSession, hand: Hand, tmp_path: Path) -> Running:
    spark.dataSource.register(Ticks)
    return Running(spark, hand, tmp_path / "checkpoint")


def test_each_run_with_what_is_available_has_one_tick(running: Running, hand: Hand) -> None:
    assert running.once() == {0: ticks(5 * MINUTE)}
    assert running.once(drain=True) == {1: ticks(5 * MINUTE, DRAIN)}
    hand.move(7 * MINUTE)
    assert running.once() == {2: ticks(7 * MINUTE)}
    assert running.partitions == {1}


def test_a_query_goes_on_from_its_checkpoint_and_repeats_what_it_had_not_committed(
    running: Running, hand: Hand, tmp_path: Path
) -> None:
    query = running.start(processingTime="0 seconds")
    try:
        query.processAllAvailable()
        assert running.batches == {0: ticks(5 * MINUTE)}
        hand.move(8 * MINUTE)
        query.processAllAvailable()
        hand.move(6 * MINUTE)
        query.processAllAvailable()
        assert running.batches == {0: ticks(5 * MINUTE), 1: ticks(8 * MINUTE)}
    finally:
        query.stop()
    for name in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    query = running.start(processingTime="0 seconds")
    try:
        query.processAllAvailable()
        assert running.batches == {1: ticks(8 * MINUTE)}
        hand.move(9 * MINUTE)
        query.processAllAvailable()
        assert running.batches == {1: ticks(8 * MINUTE), 2: ticks(9 * MINUTE)}
    finally:
        query.stop()
