"""An application on Spark seen from its process: its life in a session that is there, and its figures."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress

from headwater import Admin, Producer, StreamsBuilder, StreamsError, Topology, run
from headwater.streams.spark.app import figures
from tests.streams.apps import until


def counting(broker: str, function: Any = None) -> Topology:
    Admin(broker).create_topic("words", 2)
    with Producer(broker) as producer:
        for word in ("tea", "milk", "tea"):
            producer.send("words", key=word, value='"x"', timestamp=1000)
    builder = StreamsBuilder()
    words = builder.stream("words")
    (words.filter(function) if function else words).group_by_key().count(store="counts").to_stream().to("counted")
    return builder.build()


def test_it_runs_in_a_session_that_is_there(spark: SparkSession, tmp_path: Path) -> None:
    broker = f"log://{tmp_path}"
    topology = counting(broker)
    states: list[str] = []
    app = run(
        topology,
        app_id="words",
        broker=broker,
        on="spark",
        block=False,
        on_state=lambda new, old: states.append(new),
    )
    with pytest.raises(StreamsError, match="the application has not been started"):
        app.store("counts")
    with app:
        until(lambda: app.error or app.metrics()["records-total"] == 3, 180)
        # Counted when the batch has written; its rows can be read when Spark has noted that it is done.
        until(lambda: app.error or app.store("counts").get("tea") == 2, 180)
        told = app.metrics()
        assert (told["state"], told["engine"], told["lag"], told["app-id"]) == ("running", "spark", 0, "words")
        assert told["state-rows"] > 0
        with pytest.raises(StreamsError, match="the application is running: it is started once"):
            app.start()
    assert states == ["starting", "running", "stopping", "stopped"]
    assert app.metrics()["records-total"] == 3
    # It is not ours to stop.
    assert spark.range(3).count() == 3
    assert (tmp_path / "apps" / "words" / "spark" / "offsets").is_dir()
    again = run(topology, app_id="words", broker=broker, on="spark", master="local[7]", block=False)
    with pytest.raises(StreamsError, match=r"There is a Spark session at local\[2\] in this process already"):
        again.start()
    assert again.state == "failed"


def test_a_step_that_raises_is_raised_by_join(spark: SparkSession, tmp_path: Path) -> None:
    broker = f"log://{tmp_path}"
    topology = counting(broker, lambda key, value: value["no"])
    app = run(topology, app_id="words", broker=broker, on="spark", trigger="available-now", block=False).start()
    with pytest.raises(StreamsError, match=r"words-\d@0"):
        app.join()
    assert app.state == "failed"
    assert app.metrics()["records-total"] == 0


def test_what_is_for_spark_alone_is_refused_elsewhere() -> None:
    with pytest.raises(StreamsError, match=r"master=, trigger= is for on='spark': leave it out"):
        run(StreamsBuilder().build(), master="local", trigger=None)  # type: ignore[call-overload]
    with pytest.raises(StreamsError, match=r"on='flink' is not there yet"):
        run(StreamsBuilder().build(), on="flink")  # type: ignore[call-overload]


def progress(at: str, rows: int, end: dict[str, int], latest: dict[str, int] | None) -> StreamingQueryProgress:
    clock = {"description": "clock", "startOffset": {"now": 1}, "endOffset": {"now": 2, "drain": False}}
    topics = {"description": "log", "startOffset": None, "endOffset": {"words": end}}
    rates = {"inputRowsPerSecond": 0.0, "processedRowsPerSecond": 0.0}
    operator = {
        "operatorName": "state", "numRowsTotal": 5, "numRowsUpdated": 1, "allUpdatesTimeMs": 1, "numRowsRemoved": 0,
        "allRemovalsTimeMs": 0, "commitTimeMs": 1, "memoryUsedBytes": 100, "numRowsDroppedByWatermark": 0,
        "numShufflePartitions": 2, "numStateStoreInstances": 2, "customMetrics": {},
    }
    whole = {
        "id": "5d5b1a7e-0000-0000-0000-000000000000", "runId": "5d5b1a7e-0000-0000-0000-000000000000",
        "name": "words", "timestamp": at, "batchId": 0, "batchDuration": 200, "numInputRows": rows + 4, **rates,
        "durationMs": {"triggerExecution": 200}, "stateOperators": [operator, operator],
        "sources": [
            {**clock, "latestOffset": None, "numInputRows": 4, **rates},
            {**topics, "latestOffset": None if latest is None else {"words": latest}, "numInputRows": rows, **rates},
        ],
        "sink": {"description": "sink", "numOutputRows": -1},
    }
    return StreamingQueryProgress.fromJson(json.loads(json.dumps(whole)))


def test_figures() -> None:
    counted = {
        "batches-total": 9, "records-total": 90, "state-rows": 7, "dropped-records-total": 1, "late-records-total": 2,
    }  # fmt: skip
    now = 1_700_000_010_000  # 2023-11-14T22:13:30Z
    old = progress("2023-11-14T22:13:00.000Z", 1000, {"0": 1}, None)
    late = progress("2023-11-14T22:13:25.000Z", 300, {"0": 2}, None)
    last = progress("2023-11-14T22:13:28.000Z", 200, {"0": 10, "1": 10}, {"0": 12, "1": 10, "2": 5})
    found = figures(counted, [old, late, last], now)
    assert (found["records-rate"], found["commit-ms"], found["lag"]) == (100.0, 200.0, 7)
    assert (found["state-rows"], found["state-bytes"], found["commits-total"]) == (7, 200, 9)
    nothing = figures(counted, [], now)
    assert (nothing["records-rate"], nothing["commit-ms"], nothing["lag"], nothing["state-bytes"]) == (0.0, None, 0, 0)
