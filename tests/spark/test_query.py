"""What a query is asked for that cannot be, and where its checkpoint may be."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headwater import Config, StreamsBuilder, StreamsError, Topology
from headwater.state.log import Log
from headwater.streams.spark.query import SparkBackend, SparkQuery, _own_error

LOCK = threading.Lock()


def counting(step: Callable[[Any], Any] = str) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").map_values(step, name="step").group_by_key().count(store="counts")
    return builder.build()


@pytest.fixture
def log(tmp_path: Path) -> Log:
    made = Log.open(tmp_path / "log")
    made.create_topic("in", 1)
    return made


def start(spark: SparkSession, folder: Path, topology: Topology | None = None, **options: Any) -> SparkQuery:
    options.setdefault("checkpoint", folder / "checkpoint")
    topology = counting() if topology is None else topology
    return SparkBackend(spark).start(topology, Config("faulty"), broker=f"log://{folder}/log", **options)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"trigger": "availableNow"}, "trigger= is a timedelta, \"available-now\" or None, not 'availableNow'"),
        ({"partitions": 0}, "partitions= is 0: give 1 or more, or leave it out"),
        ({"max_records": 0}, "max_records= is 0: give 1 or more"),
        ({"topology": StreamsBuilder().build()}, "it reads no topic: there is nothing to do"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_noted(
    spark: SparkSession, log: Log, tmp_path: Path, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(StreamsError) as refused:
        start(spark, tmp_path, **options)
    assert told in str(refused.value)
    assert not (tmp_path / "checkpoint").exists()


def test_a_function_that_cannot_travel_is_named(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    held = LOCK

    def locked(value: Any) -> Any:
        with held:
            return value

    with pytest.raises(StreamsError, match=r"step 'step' holds something that cannot be sent to executors \(cannot pi"):
        start(spark, tmp_path, counting(locked))


def test_a_checkpoint_that_cannot_be_made_is_named(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    (tmp_path / "letter").touch()
    with pytest.raises(StreamsError) as refused:
        start(spark, tmp_path, checkpoint=tmp_path / "letter")
    assert f"the checkpoint {tmp_path / 'letter'} can be neither read nor made" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_stores_are_read_wherever_the_checkpoint_is_and_a_second_query_is_refused(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "Größe und [Maß] 100%"
    query = start(spark, tmp_path, checkpoint=checkpoint)
    try:
        assert list(query.store("counts").all()) == []
        with log.partition("in", 0) as partition:
            partition.append([(b"a", b'"x"', 1, ()), (None, b'"x"', 1, ()), (b"", b'""', 1, ())])
        query.processAllAvailable()
        assert list(query.store("counts").all()) == [("", 1), ("a", 1)]
        assert query.metrics()["dropped-records-total"] == 1
        with pytest.raises(StreamsError, match="'faulty' runs in this session already: stop it first"):
            start(spark, tmp_path, checkpoint=tmp_path / "another")
        assert not (tmp_path / "another").exists()
    finally:
        query.stop()


FAILED = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Traceback:
  File "py4j/clientserver.py", line 644, in _call_proxy
{}
 SQLSTATE: 39000 SQLSTATE: XXKST
=== Streaming Query ===
Logical Plan: headwater.errors.StreamsError: not this
"""
IN_PYTHON = "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (
            f"{IN_PYTHON}  File 'shop.py', line 9, in f\nheadwater.streams.faults.RecordFailed: step 'f' at in-0@7",
            "step 'f' at in-0@7",
        ),
        (
            f'{IN_PYTHON}  File "shop.py", line 90, in f\n    sys.exit(3)\n    ^^^^\nSystemExit: 3',
            "the query has failed at shop.py:90 with SystemExit: 3",
        ),
        (
            "py4j.protocol.Py4JJavaError: An error occurred while calling o280.collectToPython.\n"
            "Caused by: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed).\n\tat org.apache",
            "a Python process of Spark's has ended without a word: ",
        ),
        (
            "SparkRuntimeException: [USER_RAISED_EXCEPTION] headwater.errors.StreamsError: no in-0@1 SQLSTATE: P0001",
            "no in-0@1",
        ),
        ("java.io.IOException: No space left on device", "the query has failed: "),
    ],
)
def test_what_ended_a_query_is_told_in_a_line(raised: str, told: str) -> None:
    said = str(_own_error(Exception(FAILED.format(raised))))
    assert said.startswith(told)
    assert "Logical Plan" not in said
    assert "SQLSTATE: P0001" not in said
    assert ("\n" in said) == ("No space" in said)
