"""Timestamps far in the future on Spark: warned of, kept out, and the way back."""

import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headwater import Config, Json, Str, StreamsBuilder, StreamsError, TimeWindows, Topology, agg, col
from headwater.state.log import Log
from headwater.streams.queues import RawRecord
from headwater.streams.set_back import SetBack
from headwater.streams.spark.query import SparkBackend, plan_natively
from headwater.streams.spark.reset import open_spark_stream_time
from tests.spark.line import Line

YEAR_9999 = 253402300799999
MINUTE = 60_000
NOW = time.time_ns() // 1_000_000 // MINUTE * MINUTE


def windowed() -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by(lambda key, value: value)
    minutes = grouped.windowed_by(TimeWindows.of(timedelta(minutes=1), grace=timedelta(minutes=1)))
    minutes.count(store="minutes").to_stream().map(lambda key, value: (key.key, value)).to("out")
    return builder.build()


@dataclass
class Order:
    id: int


def per_batch() -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=Str(), value=Json(type=Order)).group_by_key()
    minutes = grouped.windowed_by(TimeWindows.of(timedelta(minutes=1)))
    minutes.aggregate(n=agg.count(), emit="per-batch").to_stream().to("out")
    return builder.build()


def records(*times: int) -> list[RawRecord]:
    return [(b"k", b'"tea"', at, (), 0) for at in times]


class Running:
    """The stages of the windowed topology without Spark, and what comes of each batch."""

    def __init__(self, **config: Any) -> None:
        self.line = Line(windowed(), Config("future", **config), ["in"], partitions=2)

    def batch(self, *times: int) -> tuple[list[bytes | None], int]:
        """Results, and how many were dropped as late or for their timestamp."""
        self.line.reports.clear()
        out = self.line.batch(self.line.send("in", records(*times)))
        return [record[1] for topic, record in out if topic == "out"], sum(
            sum(report.dropped.values()) for report in self.line.reports
        )


def test_stream_time_is_set_back_once_in_every_shard() -> None:
    running = Running()
    assert running.batch(NOW, YEAR_9999) == ([b"1", b"1"], 0)
    said = [text for report in running.line.reports for text in report.warnings]
    assert any("in-0@1" in text or "in-1@1" in text for text in said)
    assert running.batch(NOW + 1) == ([], 1)
    running.line.set_back = SetBack(NOW)
    assert running.batch(NOW + MINUTE) == ([b"1"], 0)
    assert running.batch(NOW + 5 * MINUTE) == ([b"1"], 0)
    # Not once more with every batch, else this would count; but another request is done.
    assert running.batch(NOW) == ([], 1)
    running.line.set_back = SetBack(NOW)
    assert running.batch(NOW + MINUTE) == ([b"1"], 0)  # its row has expired meanwhile


def test_compat_forgets_stream_time_when_the_query_is_started_again() -> None:
    """As at the restart of a task elsewhere, and not with every batch."""
    running = Running(compat="kafka-streams")
    running.line.run = "first"
    assert running.batch(NOW) == ([b"1"], 0)
    assert running.batch(YEAR_9999) == ([b"1"], 0)
    assert running.batch(NOW + 1) == ([], 1)
    running.line.run = "second"
    assert running.batch(NOW + 2) == ([b"1"], 0)
    assert running.batch(NOW - 5 * MINUTE) == ([], 1)


def test_max_future_keeps_them_out() -> None:
    running = Running(max_future=timedelta(hours=1), on_future="skip")
    assert running.batch(NOW, YEAR_9999, NOW + 1) == ([b"1", b"2"], 1)
    assert running.batch(NOW + 2) == ([b"3"], 0)


def test_after_a_record_of_the_year_9999_new_ones_count_again(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = Log.open(tmp_path / "log")
    for topic in ("in", "out"):
        log.create_topic(topic, 1)
    config, broker, checkpoint = Config("future", state_dir=tmp_path / "state"), f"log://{tmp_path}/log", tmp_path / "c"

    def run(*times: int) -> tuple[list[bytes | None], int]:
        with log.partition("in", 0) as partition:
            partition.append([record[:4] for record in records(*times)])
        query = SparkBackend(spark).start(windowed(), config, broker=broker, checkpoint=checkpoint)
        try:
            query.processAllAvailable()
            late = query.metrics()["late-records-total"]
        finally:
            query.stop()
        with log.partition("out", 0) as partition:
            return [record[1] for record in partition.read(0)], late

    assert run(NOW, YEAR_9999, NOW + 1) == ([b"1", b"1"], 1)
    said = [record.getMessage() for record in caplog.records]
    assert any("in-0@1" in text and "leaps to 9999-12-31T23:59:59.999Z" in text for text in said)
    with open_spark_stream_time(windowed(), config, broker, str(checkpoint), NOW) as times:
        assert times.to == NOW
        times.run()
    assert run(NOW + MINUTE) == ([b"1", b"1", b"1"], 0)


def test_the_watermark_of_spark_itself_is_not_set_back(tmp_path: Path) -> None:
    config = Config("future", state_dir=tmp_path)
    for topology, told in (
        (per_batch(), r"may run in Spark itself.*watermark cannot be set back.*headwater reset"),
        (windowed(), "there is no stream time to set back"),
    ):
        opened = open_spark_stream_time(topology, config, f"log://{tmp_path}", None, NOW)
        with pytest.raises(StreamsError, match=told), opened:
            pass


def test_max_future_keeps_stages_out_of_catalyst(spark: SparkSession) -> None:
    def planned(topology: Topology, config: Config) -> tuple[int, list[str]]:
        _, natives, reasons = plan_natively(spark, topology, config, {"in": 1, "out": 1})
        return len(natives), list(reasons.values())

    builder = StreamsBuilder()
    builder.stream("in", key=Str(), value=Json(type=Order)).filter(col("id") > 1).to("out")
    topology = builder.build()
    assert planned(topology, Config()) == (1, [])
    count, (reason,) = planned(topology, Config(max_future=timedelta(hours=1)))
    assert count == 0
    assert "max_future is set" in reason
