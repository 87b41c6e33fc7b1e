"""A topology over a user's DataFrames brings what the test driver brings, batch and streaming."""

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater import (
    Bytes,
    Config,
    Float64,
    Int64,
    Json,
    Str,
    StreamsBuilder,
    StreamsError,
    TimeWindows,
    Topology,
    TopologyError,
    TopologyTestDriver,
    agg,
    col,
)
from headwater.dsl.partitioner import partition_for
from headwater.streams.identity import identity_of
from headwater.streams.spark.dataframes import to_dataframes
from headwater.streams.spark.intake import _parts
from headwater.streams.spark.record import Recorded, check_state
from tests.spark.line import DictCells

Sent = tuple[str | None, int, int]  # key, n, timestamp
NUMBERED = "key string, value struct<n: long>, timestamp long, offset long"


@dataclass
class Order:
    n: int


def sums(serde: Json | None = None) -> Topology:
    """A running sum per key, whose every value tells the order it was made in."""
    builder = StreamsBuilder()
    orders = builder.stream("orders", value=serde or Json())
    summed = orders.group_by_key().aggregate(list, lambda key, order, seen: [*seen, order["n"]])
    summed.to_stream().to("sums")
    return builder.build()


def parities() -> Topology:
    """The same behind a stateless step and a repartition, so that each makes use of the order."""
    builder = StreamsBuilder()
    orders = builder.stream("orders")
    kept = orders.filter(lambda key, order: order["n"] >= 0)
    kept.map_values(lambda order: order["n"]).to("kept")
    grouped = kept.group_by(lambda key, order: "even" if order["n"] % 2 == 0 else "odd")
    grouped.aggregate(list, lambda key, order, seen: [*seen, order["n"]]).to_stream().to("sums")
    return builder.build()


def sent(count: int = 60, keys: str = "abc") -> list[Sent]:
    rng = random.Random(7)
    return [(rng.choice(keys), n, 1_000 + rng.randrange(50)) for n in range(count)]


def by_driver(topology: Topology, records: list[Sent], *topics: str) -> dict[str, dict[Any, list[Any]]]:
    """The values of each key, in order, by topic."""
    with TopologyTestDriver(topology) as driver:
        for key, n, at in records:
            driver.input("orders").send(key, {"n": n}, at=at)
        found: dict[str, dict[Any, list[Any]]] = {}
        for topic in topics:
            for record in driver.output(topic).read_all():
                found.setdefault(topic, {}).setdefault(record.key, []).append((record.value, record.timestamp))
        return found


def by_key(frame: DataFrame) -> dict[Any, list[Any]]:
    """The values of each key, in the order of the column."""
    found: dict[Any, list[Any]] = {}
    rows = frame.withColumn("timestamp", F.unix_millis("timestamp")).collect()
    for row in sorted(rows, key=lambda row: row.order):
        found.setdefault(row.key, []).append((msgspec.json.decode(row.value), row.timestamp))
    return found


def numbered(spark: SparkSession, records: list[Sent], spread: int = 3) -> DataFrame:
    """Records with offsets, in an order that has nothing to do with them."""
    rows = [(key, (n,), at, offset) for offset, (key, n, at) in enumerate(records)]
    random.Random(1).shuffle(rows)
    frame = spark.createDataFrame(rows, NUMBERED)
    return frame.coalesce(1) if spread == 1 else frame.repartition(spread)


@pytest.mark.parametrize("spread", [1, 3])
def test_a_batch_is_taken_by_offset_however_it_is_spread(spark: SparkSession, spread: int) -> None:
    results = to_dataframes(sums(), {"orders": numbered(spark, sent(), spread)}, partitions=2)
    assert list(results) == ["sums"]
    assert by_key(results["sums"]) == by_driver(sums(), sent(), "sums")["sums"]


def test_steps_without_state_keep_the_order_too(spark: SparkSession) -> None:
    results = to_dataframes(parities(), {"orders": numbered(spark, sent())}, partitions=1)
    expected = by_driver(parities(), sent(), "kept", "sums")
    assert {topic: by_key(frame) for topic, frame in results.items()} == expected


def test_without_offsets_by_timestamp_and_then_a_column(spark: SparkSession) -> None:
    records = sent()
    rows = [(key, f'{{"n": {n}}}', at, n) for key, n, at in records]
    random.Random(2).shuffle(rows)
    frame = spark.createDataFrame(rows, "key string, value string, timestamp long, seen long").repartition(3)
    frame = frame.withColumns({"timestamp": F.timestamp_millis("timestamp"), "seen": F.timestamp_micros("seen")})
    in_order = sorted(records, key=lambda record: (record[2], record[1]))
    result = to_dataframes(sums(), {"orders": frame}, order_by="seen", partitions=2)["sums"]
    assert by_key(result) == by_driver(sums(), in_order, "sums")["sums"]


def test_the_last_value_of_a_key_is_that_of_the_highest_order(spark: SparkSession) -> None:
    result = to_dataframes(sums(), {"orders": numbered(spark, sent())}, partitions=2)["sums"]
    last = {
        row.key: msgspec.json.decode(row.value)
        for row in result.groupBy("key").agg(F.max_by("value", "order").alias("value")).collect()
    }
    expected = {key: values[-1][0] for key, values in by_driver(sums(), sent(), "sums")["sums"].items()}
    assert last == expected


def natives() -> Topology:
    builder = StreamsBuilder()
    orders = builder.stream("orders", value=Json(type=Order))
    orders.filter(col("n") % 3 != 0).with_columns(twice=col("n") * 2).to("kept")
    orders.map_values(col("n")).to("numbers", value=Int64())
    windows = TimeWindows.of(timedelta(milliseconds=20))
    payments = builder.stream("payments", key=Int64(), value=Json(type=Order))
    summed = payments.group_by_key().windowed_by(windows).aggregate(total=agg.sum(col("n")), emit="per-batch")
    summed.to_stream().to("totals")
    return builder.build()


def test_expressions_alone_run_without_python(spark: SparkSession) -> None:
    orders = numbered(spark, sent())
    payments = spark.createDataFrame(
        [(1, (3,), 105, 0), (2, (5,), 119, 1), (1, (4,), 110, 2), (1, (6,), 120, 3)],
        "key long, value struct<n: long>, timestamp long, offset long",
    )
    results = to_dataframes(natives(), {"orders": orders, "payments": payments}, Config(late=None))
    for frame in results.values():
        plan = frame._jdf.queryExecution().executedPlan().toString()
        assert "Python" not in plan
        assert "Arrow" not in plan
        assert "Pandas" not in plan
    builder = StreamsBuilder()
    builder.stream("orders").filter(col("n") % 3 != 0).with_columns(twice=col("n") * 2).to("kept")
    assert by_key(results["kept"]) == by_driver(builder.build(), sent(), "kept")["kept"]
    assert sorted(row.value for row in results["numbers"].collect()) == list(range(60))
    totals = [(row.key.asDict(), row.value) for row in results["totals"].collect()]
    assert sorted(totals, key=str) == [
        ({"key": 1, "start": 100, "end": 120}, '{"total":7}'),
        ({"key": 1, "start": 120, "end": 140}, '{"total":6}'),
        ({"key": 2, "start": 100, "end": 120}, '{"total":5}'),
    ]


def test_the_order_of_native_results_without_offsets_is_that_of_time(spark: SparkSession) -> None:
    rows = [("a", (1,), 30, 1), ("a", (2,), 10, 2), ("a", (4,), 20, 5), ("a", (5,), 20, 4)]
    frame = spark.createDataFrame(rows, "key string, value struct<n: long>, timestamp long, seen int")
    builder = StreamsBuilder()
    builder.stream("orders", value=Json(type=Order)).filter(col("n") > 0).to("kept")
    kept = to_dataframes(builder.build(), {"orders": frame}, order_by="seen")["kept"]
    assert [value["n"] for value, _ in by_key(kept)["a"]] == [2, 5, 4, 1]


def test_windows_headers_and_partitions_come_through(spark: SparkSession) -> None:
    builder = StreamsBuilder()
    orders = builder.stream("orders", key=Bytes(), value=Str())
    orders.filter(lambda key, value: True).to("same", partitioner=lambda topic, key, value, count: 1)
    windows = TimeWindows.of(timedelta(seconds=1))
    orders.group_by_key().windowed_by(windows).count().to_stream().to("counts")
    rows = [(b"k", "v", 1_500, [("trace", b"7")], 1, 10), (b"k", None, 1_600, None, 1, 11), (None, "w", 0, None, 0, 0)]
    schema = "key binary, value string, timestamp long, headers array<struct<key: string, value: binary>>, "
    frame = spark.createDataFrame(rows, schema + "partition int, offset long")
    results = to_dataframes(builder.build(), {"orders": frame}, partitions=2)
    same = sorted(results["same"].collect(), key=lambda row: (row.shard, row.order))
    assert [(row.key, row.value, row.partition, row.shard) for row in same] == [
        (None, "w", 1, 0),
        (b"k", "v", 1, 1),
        (b"k", None, 1, 1),
    ]
    assert [(h.key, bytes(h.value)) for h in same[1].headers] == [("trace", b"7")]
    counts = sorted(results["counts"].collect(), key=lambda row: row.order)
    assert [row.key.asDict() for row in counts] == [{"key": b"k", "start": 1_000, "end": 2_000}] * 2
    assert [row.value for row in counts] == [1, 2]  # a window takes a record without a value


def test_a_stream_of_files_is_taken_file_by_file(spark: SparkSession, tmp_path: Path) -> None:
    records = sent(40)
    files = tmp_path / "files"
    schema = "key string, value struct<n: long>, timestamp long, offset long"
    for number in range(2):
        part = numbered(spark, records).where(F.col("offset").between(number * 20, number * 20 + 19))
        part.coalesce(1).write.mode("append").json(str(files))
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(files))
    assert stream.isStreaming
    results = to_dataframes(sums(), {"orders": stream}, partitions=2)
    result = results["sums"]
    gathered: list[Any] = []

    def gather(batch: DataFrame, number: int) -> None:
        rows = batch.withColumn("timestamp", F.unix_millis("timestamp")).collect()
        gathered.extend(sorted(rows, key=lambda row: row.order))

    query = (
        result.writeStream.outputMode("update")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .foreachBatch(gather)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found: dict[Any, list[Any]] = {}
    for row in gathered:
        found.setdefault(row.key, []).append((msgspec.json.decode(row.value), row.timestamp))
    assert found == by_driver(sums(), records, "sums")["sums"]
    assert results.metrics()["records-total"] == len(records)


class Orders:
    """A stream of files, and what a query over it has brought: the values of each key in the last run."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._sent = 0

    def send(self, *keys: str) -> None:
        rows = [(key, (0,), 0, self._sent + at) for at, key in enumerate(keys)]
        self._sent += len(keys)
        self._spark.createDataFrame(rows, NUMBERED).write.mode("append").json(str(self._folder / "files"))

    def run(self, topology: Topology, partitions: int | None, shuffle: int = 2) -> dict[str, list[str]]:
        stream = self._spark.readStream.schema(NUMBERED).json(str(self._folder / "files"))
        before = self._spark.conf.get("spark.sql.shuffle.partitions")
        self._spark.conf.set("spark.sql.shuffle.partitions", str(shuffle))
        found: dict[str, list[str]] = {}
        try:
            result = to_dataframes(topology, {"orders": stream}, partitions=partitions)["counts"]

            def gather(batch: DataFrame, number: int) -> None:
                for row in sorted(batch.collect(), key=lambda row: row.order):
                    found.setdefault(row.key, []).append(str(row.value))

            writer = result.writeStream.outputMode("update").foreachBatch(gather).trigger(availableNow=True)
            writer.option("checkpointLocation", str(self._folder / "checkpoint")).start().awaitTermination()
        finally:
            assert before is not None
            self._spark.conf.set("spark.sql.shuffle.partitions", before)
            self.found = found
        return found


def counted() -> Topology:
    builder = StreamsBuilder()
    builder.stream("orders").group_by_key().count(store="counts").to_stream().to("counts")
    return builder.build()


def test_a_stream_goes_on_with_its_own_shards_or_not_at_all(spark: SparkSession, tmp_path: Path) -> None:
    orders = Orders(spark, tmp_path)
    keys = [f"k{n}" for n in range(12)]
    orders.send(*keys)
    with pytest.raises(StreamsError, match=r"needs partitions= where DataFrames stream.*partitions=2"):
        orders.run(counted(), None)
    assert orders.run(counted(), 2) == {key: ["1"] for key in keys}
    orders.send(*keys)
    for partitions, shuffle, message in (
        (4, 2, r"'orders' had 2 partitions and now has 4.*\(partitions=2\)"),
        (2, 5, r"shuffle.partitions was 2 and is 5.*set it to 2 before"),
    ):
        with pytest.raises(PySparkException, match=f"headwater.errors.StreamsError: to_dataframes.*{message}"):
            orders.run(counted(), partitions, shuffle)
        assert orders.found == {}
    # As it was begun, it goes on, and nothing was lost or counted twice.
    assert orders.run(counted(), 2) == {key: ["2"] for key in keys}


def test_state_of_an_earlier_version_does_not_say_whose_it_is_and_goes_on() -> None:
    cells = DictCells({b"t": b"as it was"})
    check_state(cells, recorded(2, 2))
    check_state(cells, recorded(2, 2))
    for other, message in (
        (recorded(4, 2), "had 2 partitions and now has 4"),
        (recorded(2, 4), "shuffle.partitions was 2 and is 4"),
        (recorded(2, 2, timedelta(minutes=2)), "its windows were 60000 ms and are 120000 ms"),
    ):
        with pytest.raises(StreamsError, match=message):
            check_state(cells, other)
    assert cells == {b"t": b"as it was", b"i": recorded(2, 2)}


def recorded(width: int, shuffle: int, size: timedelta = timedelta(minutes=1)) -> bytes:
    identity = identity_of(by_minute(size), Config("app"), {"orders": width})
    stages = {"0": f"task on {width}"}
    return msgspec.json.encode(Recorded("", "app", "", stages, {"orders": width}, {}, shuffle, identity=identity))


def by_minute(size: timedelta = timedelta(minutes=1)) -> Topology:
    builder = StreamsBuilder()
    minutes = builder.stream("orders").group_by_key().windowed_by(TimeWindows.of(size))
    minutes.count(name="by-minute", store="minutes").to_stream().to("counts")
    return builder.build()


def test_late_records_are_counted_once_and_warned_about(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    late, good = 30, 300_000
    records: list[Sent] = [("a", 0, good), *(("a", n, n) for n in range(late)), (None, 1, good), ("a", 1, good + 1)]
    results = to_dataframes(by_minute(), {"orders": numbered(spark, records)}, Config(late="late"), partitions=2)
    expected = {
        "records-total": len(records),
        "dropped-records-total": late + 1,
        "late-records-total": late,
        "steps": {"by-minute": {"dropped-records-total": late + 1, "late-records-total": late}},
    }
    with caplog.at_level(logging.WARNING, "headwater"):
        # Each computes all of it.
        assert [row.value for row in results["counts"].collect()] == [1, 2]
        assert results.metrics() == expected
        assert results["late"].count() == late
        assert results.metrics() == expected
    (warned,) = [record.message for record in caplog.records if record.name == "headwater"]
    assert f"step by-minute has dropped {late} records as late" in warned


# ---- what cannot be ----------------------------------------------------------------------------------------------


def frame_of(spark: SparkSession, schema: str, *rows: tuple[Any, ...]) -> DataFrame:
    return spark.createDataFrame(list(rows), schema)


FAULTS = [
    ("key string, value string, offset long", {}, "'orders' has no column timestamp"),
    ("key string, value string, timestamp long", {}, "no column offset.* order_by="),
    ("key string, value string, timestamp long", {"order_by": "seen"}, "order_by='seen'.* has no such column"),
    ("key string, value string, timestamp long, seen string", {"order_by": "seen"}, "seen .* is string"),
    ("key string, value string, timestamp long, offset double", {}, "offset .* is double"),
    ("key string, value string, timestamp string, offset long", {}, "timestamp .* is string: make it a timestamp"),
    ("key struct<a: int>, value string, timestamp long, offset long", {}, "key .* struct<a:int>.*make it binary"),
    ("key string, value string, timestamp long, offset long", {"partitions": 0}, "at least one partition"),
]


@pytest.mark.parametrize(("schema", "options", "message"), FAULTS)
def test_columns_that_do_not_fit_are_named(
    spark: SparkSession, schema: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(StreamsError, match=message):
        to_dataframes(sums(), {"orders": frame_of(spark, schema)}, **options)


def test_missing_and_unknown_topics_are_named_together(spark: SparkSession) -> None:
    with pytest.raises(StreamsError, match="given none"):
        to_dataframes(sums(), {})
    frame = frame_of(spark, NUMBERED)
    with pytest.raises(TopologyError) as raised:
        to_dataframes(sums(), {"order": frame})
    assert "reads the topic 'orders': give a DataFrame for it" in str(raised.value)
    assert "no source reads the topic 'order': leave its DataFrame out" in str(raised.value)
    with pytest.raises(StreamsError, match="not both"):
        to_dataframes(sums(), {"orders": frame, "more": spark.readStream.format("rate").load()})


def test_topics_that_a_function_names_are_refused(spark: SparkSession) -> None:
    builder = StreamsBuilder()
    builder.stream("orders").to(lambda key, value, context: "anywhere", name="somewhere")
    with pytest.raises(TopologyError, match="'somewhere' names its topics by a function"):
        to_dataframes(builder.build(), {"orders": frame_of(spark, NUMBERED)})


def test_a_topic_that_is_written_as_text_and_as_numbers_is_refused(spark: SparkSession) -> None:
    builder = StreamsBuilder()
    orders = builder.stream("orders", value=Json(type=Order))
    orders.map_values(col("n")).to("numbers", value=Int64(), name="by-int")
    orders.map_values(col("n")).to("numbers", value=Json(), name="by-json")
    with pytest.raises(TopologyError, match=r"sink 'by-json' writes to 'numbers' as another does, but with Str"):
        to_dataframes(builder.build(), {"orders": frame_of(spark, NUMBERED)})


def test_two_windows_of_different_lengths_in_one_topic_are_refused(spark: SparkSession) -> None:
    builder = StreamsBuilder()
    orders = builder.stream("orders").group_by_key()
    for minutes in (1, 5):
        windows = TimeWindows.of(timedelta(minutes=minutes))
        orders.windowed_by(windows).count().to_stream().to("counts", name=f"every-{minutes}")
    with pytest.raises(TopologyError, match="sink 'every-5' writes to 'counts' as another does"):
        to_dataframes(builder.build(), {"orders": frame_of(spark, NUMBERED)})


def test_two_results_of_a_record_in_one_topic_are_in_order(spark: SparkSession) -> None:
    builder = StreamsBuilder()
    orders = builder.stream("orders", value=Json(type=Order))
    orders.filter(col("n") > 0).to("out")
    orders.select(n=col("n") * 10).to("out", value=Json())
    frame = spark.createDataFrame([("a", (1,), 30, 1)], NUMBERED)
    out = to_dataframes(builder.build(), {"orders": frame})["out"]
    assert [value["n"] for value, _ in by_key(out)["a"]] == [1, 10]


def test_a_batch_of_records_with_and_without_partitions_keeps_those_it_was_given() -> None:
    columns = {"topic": ["a", "b", "b"], "partition": pa.array([None, 3, None], pa.int32()), "key": [b"k", b"k", b"k"]}
    parts = [(topic, partition) for topic, partition, _ in _parts(pa.record_batch(columns), lambda topic: 4)]
    assert parts == [("a", partition_for(b"k", 4)), ("b", 3), ("b", partition_for(b"k", 4))]


def test_doubles_for_float64_are_to_be_bytes(spark: SparkSession) -> None:
    builder = StreamsBuilder()
    builder.stream("orders", value=Float64()).filter(lambda key, value: value > 1).to("out")
    schema = "key string, value double, timestamp long, offset long"
    with pytest.raises(StreamsError, match=r"value .* is double.*make it binary"):
        to_dataframes(builder.build(), {"orders": frame_of(spark, schema)})
    rows = [("a", Float64().encode(n), 0, int(n)) for n in (1.0, 2.0, 3.0)]
    frame = frame_of(spark, schema.replace("double", "binary"), *rows)
    result = to_dataframes(builder.build(), {"orders": frame})["out"]
    assert sorted(row.value for row in result.collect()) == [2.0, 3.0]


def positive() -> Topology:
    """One that runs in Catalyst."""
    builder = StreamsBuilder()
    builder.stream("orders", value=Json(type=Order)).filter(col("n") > 0).to("kept")
    return builder.build()


@pytest.mark.parametrize("topology", [sums, positive])
@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("a", "{}", 1, 2, 0), "orders has 2 partitions .* a record is for: 2"),
        (("a", "{}", 1, -1, 0), "a record is for: -1"),
        (("a", "{}", 1, 2**32, 0), "a record is for: 4294967296"),
        (("a", "{}", 1, None, 0), "a record is for: null"),
        (("a", "{}", None, 0, 0), "a record for orders has no timestamp"),
        (("a", "{}", 1, 0, None), "nothing to order it by"),
    ],
)
def test_rows_that_do_not_fit_end_the_job(
    spark: SparkSession, row: tuple[Any, ...], message: str, topology: Callable[[], Topology]
) -> None:
    schema = "key string, value string, timestamp long, partition long, offset long"
    (result,) = to_dataframes(topology(), {"orders": frame_of(spark, schema, row)}, partitions=2).values()
    with pytest.raises(PySparkException, match=f"headwater.errors.StreamsError: .*{message}"):
        result.collect()


def test_many_shuffle_partitions_for_few_shards_are_warned_of(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "200")
    try:
        with caplog.at_level(logging.WARNING, "headwater"):
            to_dataframes(sums(), {"orders": frame_of(spark, NUMBERED)}, partitions=4)
            assert "set spark.sql.shuffle.partitions to 4" in caplog.text
            caplog.clear()
            spark.conf.set("spark.sql.shuffle.partitions", "4")
            to_dataframes(sums(), {"orders": frame_of(spark, NUMBERED)}, partitions=4)
            assert "shuffle.partitions" not in caplog.text
    finally:
        assert before is not None
        spark.conf.set("spark.sql.shuffle.partitions", before)


def test_a_topic_for_late_records_has_its_dataframe(spark: SparkSession) -> None:
    results = to_dataframes(positive(), {"orders": numbered(spark, sent(5))}, Config(late="late"))
    assert results["late"].collect() == []
    assert results["kept"].count() == 4
