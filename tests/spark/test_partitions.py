"""Backfills over four partitions on Spark: the stages without Spark, a query over the log, and DataFrames."""

import random
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater import Json, Topology
from headwater.dsl.serde import Serde
from headwater.state.log import Log
from headwater.streams.spark.dataframes import to_dataframes
from headwater.streams.spark.query import SparkBackend
from tests.backfill.inputs import PARTITIONS, Inputs
from tests.backfill.players import fill, make_topics, outcome_of, settings
from tests.backfill.results import DROPPED, Key, Outcome, Row, decoded, serdes
from tests.backfill.runs import Run, check_counted, check_equal, late, runs
from tests.backfill.topologies import read_by
from tests.spark.line import Line

# ---- the stages, without Spark ---------------------------------------------------------------------------------------


def by_line(topology: Topology, inputs: Inputs, topics: Sequence[str], batches: int) -> Outcome:
    """Through the stages of a query, one batch after the other."""
    line = Line(topology, settings(), [*read_by(topology), *topics], PARTITIONS)
    records = inputs.of(read_by(topology))
    size = -(-len(records) // batches)
    written: dict[str, list[Any]] = defaultdict(list)
    for at in range(0, len(records), size):
        by_topic: dict[str, list[Any]] = defaultdict(list)
        for record in records[at : at + size]:
            by_topic[record.topic].append((record.key, record.value, record.timestamp, record.headers, 0))
        sources = [made for topic, found in by_topic.items() for made in line.send(topic, found)]
        for topic, result in line.batch(sources):
            written[topic].append(result[:4])
    outcome = Outcome({topic: decoded(topology, topic, written[topic]) for topic in topics})
    for report in line.reports:
        outcome.count([{step: {DROPPED: count} for step, count in report.dropped.items()}])
    return outcome


@pytest.mark.parametrize("batches", [1, 7])
@pytest.mark.parametrize("run", runs(), ids=str)
def test_the_stages_drop_nothing_in_a_backfill(run: Run, batches: int) -> None:
    check_equal(run, by_line(run.build(), run.inputs, run.names, batches))


def test_what_is_late_is_counted_by_the_stages() -> None:
    run = late()
    assert check_counted(run, by_line(run.build(), run.inputs, run.names, 1)) > 100


# ---- a query ---------------------------------------------------------------------------------------------------------


def by_query(spark: SparkSession, topology: Topology, inputs: Inputs, topics: Sequence[str], folder: Path) -> Outcome:
    """Through a query over the embedded log, whose topics were full before it started."""
    with Log.open(folder / "log") as log:
        make_topics(log, read_by(topology))
        fill(log, inputs.of(read_by(topology)))
        query = SparkBackend(spark).start(
            topology,
            settings(),
            broker=f"log://{folder}/log",
            checkpoint=folder / "checkpoint",
            trigger="available-now",
        )
        query.awaitTermination()
        outcome = outcome_of(log, topology, topics)
        outcome.count([query.metrics()["steps"]])
    return outcome


@pytest.mark.parametrize("run", runs("shop"), ids=str)
def test_a_query_drops_nothing_in_a_backfill(spark: SparkSession, run: Run, tmp_path: Path) -> None:
    check_equal(run, by_query(spark, run.build(), run.inputs, run.names, tmp_path))


# ---- DataFrames ------------------------------------------------------------------------------------------------------

COLUMNS = (
    "key binary, value binary, timestamp long, headers array<struct<key: string, value: binary>>, partition int, "
    "offset long"
)
HAND_OUT = 3


def frames_of(spark: SparkSession, topology: Topology, inputs: Inputs) -> dict[str, DataFrame]:
    """A DataFrame for each topic, its rows in an order that has nothing to do with theirs."""
    rows: dict[str, list[Any]] = defaultdict(list)
    offsets: dict[tuple[str, int], int] = defaultdict(int)
    for record in inputs.of(read_by(topology)):
        place = record.topic, record.partition
        headers = list(record.headers)
        rows[record.topic].append(
            (record.key, record.value, record.timestamp, headers, record.partition, offsets[place])
        )
        offsets[place] += 1
    for found in rows.values():
        random.Random(1).shuffle(found)
    return {topic: spark.createDataFrame(found, COLUMNS).repartition(HAND_OUT) for topic, found in rows.items()}


def by_frames(spark: SparkSession, topology: Topology, inputs: Inputs, topics: Sequence[str]) -> Outcome:
    """Through DataFrames, in one batch."""
    results = to_dataframes(topology, frames_of(spark, topology, inputs), settings(), partitions=PARTITIONS)
    outcome = Outcome({topic: _rows(results[topic], serdes(topology, topic)[1]) for topic in topics})
    outcome.count([results.metrics()["steps"]])
    return outcome


def _rows(frame: DataFrame, value_serde: Serde) -> list[Row]:
    found = frame.withColumn("timestamp", F.unix_millis("timestamp")).collect()
    found.sort(key=lambda row: (row.shard, row.order))
    rows = []
    for row in found:
        key: Key = (row.key, 0, 0) if isinstance(row.key, str) else (row.key.key, row.key.start, row.key.end)
        value = row.value
        if isinstance(value_serde, Json) and value is not None:
            value = msgspec.json.decode(value)
        headers = tuple((header.key, bytes(header.value)) for header in row.headers or ())
        rows.append(Row(key, value, row.timestamp, headers))
    return rows


@pytest.mark.parametrize("run", runs("shop"), ids=str)
def test_dataframes_drop_nothing_in_a_backfill(spark: SparkSession, run: Run) -> None:
    check_equal(run, by_frames(spark, run.build(), run.inputs, run.names))


def test_what_is_late_is_counted_by_dataframes(spark: SparkSession) -> None:
    run = late()
    assert check_counted(run, by_frames(spark, run.build(), run.inputs, run.names)) > 100
