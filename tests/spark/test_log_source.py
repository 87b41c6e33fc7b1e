"""The embedded log as a Spark source: which records a batch has, and that it has the same ones again."""

import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from headwater.errors import StreamsError
from headwater.state.log import Log, NewRecord, UnknownTopic
from headwater.streams.spark import log_handles
from headwater.streams.spark.log_source import LogSource, _shares, log_options
from headwater.streams.spark.rows import SOURCE_SCHEMA
from tests.state.log.helpers import FAST, numbered


@pytest.fixture(autouse=True)
def let_go() -> Iterator[None]:
    yield
    for handles in log_handles._open.values():
        handles.close()
    log_handles._open.clear()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log.open(tmp_path / "log", FAST) as opened:
        yield opened


def append(log: Log, topic: str, number: int, records: Sequence[NewRecord]) -> None:
    with log.partition(topic, number) as partition:
        partition.append(records)


def reader(log: Log, *topics: str, **options: Any) -> Any:
    """The reader that Spark's process for the source has; it must survive the way to the executors."""
    made = LogSource(log_options(log.directory, topics, **options)).streamReader(None)  # type: ignore[arg-type]
    return pickle.loads(pickle.dumps(made))


def read(source: Any, start: Any, end: Any) -> list[tuple[str, int, int]]:
    """Return topic, partition and offset of what a batch reads."""
    rows = [
        row
        for partition in source.partitions(start, end)
        for batch in source.read(pickle.loads(pickle.dumps(partition)))
        for row in batch.to_pylist()
    ]
    return [(row["topic"], row["partition"], row["offset"]) for row in rows]


ALL = ReadAllAvailable()


# ---- which records a batch has -------------------------------------------------------------------------------------


def test_a_batch_goes_from_where_the_last_ended_to_the_end(log: Log) -> None:
    log.create_topic("orders", 2)
    append(log, "orders", 0, numbered(0, 3))
    source = reader(log, "orders")
    start = source.initialOffset()
    assert start == {"orders": {"0": 0, "1": 0}}
    end = source.latestOffset(start, ALL)
    assert end == {"orders": {"0": 3, "1": 0}}
    assert read(source, start, end) == [("orders", 0, 0), ("orders", 0, 1), ("orders", 0, 2)]
    assert source.latestOffset(end, ALL) == end
    assert source.partitions(end, end) == []
    append(log, "orders", 1, numbered(3))
    assert source.reportLatestOffset() == {"orders": {"0": 3, "1": 1}}
    assert read(source, end, source.latestOffset(end, ALL)) == [("orders", 1, 0)]


def test_earliest_is_what_retention_has_left(log: Log) -> None:
    log.create_topic("orders")
    append(log, "orders", 0, numbered(0, 5))
    log.partition("orders", 0).delete_before(3)
    assert reader(log, "orders").initialOffset() == {"orders": {"0": 3}}


def test_latest_is_noted_by_the_first_batch_so_that_its_replay_begins_there_too(log: Log) -> None:
    log.create_topic("orders")
    log.create_topic("users")
    append(log, "orders", 0, numbered(0, 5))
    append(log, "users", 0, numbered(0, 2))
    source = reader(log, "orders", "users", starting={"orders": "latest"})
    start = source.initialOffset()
    first = source.latestOffset(start, ALL)
    assert read(source, start, first) == [("users", 0, 0), ("users", 0, 1)]
    append(log, "orders", 0, numbered(5, 2))
    again = reader(log, "orders", "users", starting={"orders": "latest"})
    assert again.initialOffset() == start
    assert read(again, first, again.latestOffset(first, ALL)) == [("orders", 0, 5), ("orders", 0, 6)]


def test_given_offsets_are_where_a_topic_begins(log: Log) -> None:
    log.create_topic("orders", 2)
    append(log, "orders", 0, numbered(0, 5))
    source = reader(log, "orders", starting={"orders": {"0": 4, "1": 0}})
    start = source.initialOffset()
    assert read(source, start, source.latestOffset(start, ALL)) == [("orders", 0, 4)]
    with pytest.raises(StreamsError, match="startingOffsets of 'orders' name the partitions 0; it has 2"):
        reader(log, "orders", starting={"orders": {"0": 4}}).initialOffset()


def test_none_chooses_nothing(log: Log) -> None:
    log.create_topic("orders")
    source = reader(log, "orders", starting={"orders": "none"})
    with pytest.raises(StreamsError, match="orders: the checkpoint has no offset and reset='none' forbids"):
        source.latestOffset(source.initialOffset(), ALL)
    known = {"orders": {"0": 0}}
    assert source.latestOffset(known, ALL) == known


def test_a_pattern_finds_topics_that_come_later(log: Log) -> None:
    log.create_topic("orders-dk")
    log.create_topic("users")
    append(log, "orders-dk", 0, numbered(0))
    pattern = re.compile("ORDERS-.*", re.IGNORECASE)
    source = reader(log, patterns={pattern: 2}, starting={pattern.pattern: "earliest"})
    start = source.initialOffset()
    assert start == {"orders-dk": {"0": 0}}
    log.create_topic("orders-se", 2)
    append(log, "orders-se", 1, numbered(0, 2))
    first = source.latestOffset(start, ALL)
    assert first == {"orders-dk": {"0": 1}, "orders-se": {"0": 0, "1": 0}}
    assert read(source, start, first) == [("orders-dk", 0, 0)]
    assert read(source, first, source.latestOffset(first, ALL)) == [("orders-se", 1, 0), ("orders-se", 1, 1)]


def test_latest_of_a_pattern_holds_for_topics_that_come_later(log: Log) -> None:
    pattern = re.compile("orders-.*")
    source = reader(log, patterns={pattern: 1}, starting={pattern.pattern: "latest"})
    start = source.initialOffset()
    assert start == source.latestOffset(start, ALL) == {}
    log.create_topic("orders-se")
    append(log, "orders-se", 0, numbered(0, 2))
    first = source.latestOffset(start, ALL)
    assert first == {"orders-se": {"0": 2}}
    assert read(source, start, first) == []


def test_a_topic_too_wide_for_its_pattern_is_refused(log: Log) -> None:
    source = reader(log, patterns={re.compile("orders-.*"): 2})
    log.create_topic("orders-se", 3)
    with pytest.raises(StreamsError, match=r"'orders-se', which matches 'orders-.*', has 3 partitions.* for 2"):
        source.latestOffset({}, ALL)


def test_compaction_leaves_gaps_and_later_records_wait_for_their_batch(log: Log) -> None:
    log.create_topic("users", compact=True, segment_bytes=600)
    keys = [b"a", b"b", b"a", b"b", b"a", b"c", b"b", b"a"]
    for number, key in enumerate(keys):
        append(log, "users", 0, [(key, b"%d" % number * 100, 0, ())])
    source = reader(log, "users", max_records=3)
    whole, ends = [], [source.initialOffset()]
    while (end := source.latestOffset(ends[-1], source.getDefaultReadLimit())) != ends[-1]:
        whole.append(read(source, ends[-1], end))
        ends.append(end)
    assert [len(batch) for batch in whole] == [3, 3, 2]
    with log.partition("users", 0) as partition:
        assert partition.compact(0)
    left = [read(source, start, end) for start, end in pairwise(ends)]
    assert sum(map(len, left)) < 8
    assert all(set(after) <= set(before) for after, before in zip(left, whole, strict=True))
    assert [row for batch in left for row in batch] == read(source, ends[0], ends[-1])


def test_the_same_offsets_give_the_same_records_again(log: Log) -> None:
    log.create_topic("orders", 2, segment_bytes=400)
    source = reader(log, "orders", max_records=7)
    offsets = [source.initialOffset()]
    batches = []
    for step in range(12):
        append(log, "orders", step % 2, numbered(step * 5, 5))
        offsets.append(source.latestOffset(offsets[-1], source.getDefaultReadLimit()))
        batches.append(read(source, *offsets[-2:]))
    assert all(0 < len(batch) <= 7 for batch in batches)
    again = reader(log, "orders")
    assert [read(again, start, end) for start, end in pairwise(offsets)] == batches


# ---- how much a batch reads ----------------------------------------------------------------------------------------


@given(lags=st.lists(st.integers(0, 10_000), max_size=12), most=st.integers(1, 5_000))
def test_shares_stay_within_the_limit_and_leave_nobody_out(lags: list[int], most: int) -> None:
    shares = _shares(lags, most)
    assert sum(shares) <= most
    assert all(0 <= share <= lag for share, lag in zip(shares, lags, strict=True))
    if sum(lags) <= most:
        assert shares == lags
    elif most >= len(lags):
        assert all(share for share, lag in zip(shares, lags, strict=True) if lag)
        # What rounding down leaves is less than one each.
        assert sum(shares) > most - len(lags)
    else:
        assert sum(shares) > 0


def test_a_limit_is_kept_unless_spark_wants_everything(log: Log) -> None:
    log.create_topic("orders", 2)
    append(log, "orders", 0, numbered(0, 90))
    append(log, "orders", 1, numbered(0, 10))
    source = reader(log, "orders", max_records=20)
    start = source.initialOffset()
    assert source.getDefaultReadLimit() == ReadMaxRows(20)
    assert source.latestOffset(start, ReadMaxRows(20)) == {"orders": {"0": 17, "1": 2}}
    assert source.latestOffset(start, ALL) == {"orders": {"0": 90, "1": 10}}
    assert reader(log, "orders").getDefaultReadLimit() == ALL


# ---- what is refused -----------------------------------------------------------------------------------------------


def test_what_retention_took_from_under_a_checkpoint_is_named(log: Log) -> None:
    log.create_topic("orders")
    append(log, "orders", 0, numbered(0, 9))
    source = reader(log, "orders")
    end = source.latestOffset(source.initialOffset(), ALL)
    log.partition("orders", 0).delete_before(4)
    gone = r"orders-0@2 is no longer there \(the log starts at 4\).*headwater topics alter.* new checkpoint"
    with pytest.raises(StreamsError, match=gone):
        source.latestOffset({"orders": {"0": 2}}, ALL)
    with pytest.raises(StreamsError, match=gone):
        read(source, {"orders": {"0": 2}}, end)


def test_a_log_that_ends_before_the_checkpoint_is_refused(log: Log) -> None:
    log.create_topic("orders")
    append(log, "orders", 0, numbered(0, 3))
    with pytest.raises(StreamsError, match="orders-0@7: the log ends at 3, before the offset in the checkpoint"):
        reader(log, "orders").latestOffset({"orders": {"0": 7}}, ALL)
    with pytest.raises(StreamsError, match="orders-0@3 is no longer there, though it was"):
        read(reader(log, "orders"), {"orders": {"0": 1}}, {"orders": {"0": 5}})


def test_more_partitions_than_the_checkpoint_knows_are_refused(log: Log) -> None:
    log.create_topic("orders", 2)
    source = reader(log, "orders")
    start = source.initialOffset()
    log.alter_topic("orders", partitions=3)
    with pytest.raises(StreamsError, match=r"The topic 'orders' has 3 partitions now and had 2 .* new checkpoint"):
        source.latestOffset(start, ALL)


def test_a_topic_made_anew_under_a_running_query_is_refused(log: Log) -> None:
    log.create_topic("orders")
    source = reader(log, "orders")
    start = source.initialOffset()
    log.delete_topic("orders")
    with pytest.raises(UnknownTopic, match="There is no topic 'orders'"):
        source.latestOffset(start, ALL)
    log.create_topic("orders")
    with pytest.raises(StreamsError, match="'orders' has been deleted and made anew while the query read it"):
        source.latestOffset(start, ALL)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topics": '["orders"]'}, "needs an absolute directory and has ''"),
        ({"directory": "log", "topics": '["orders"]'}, "needs an absolute directory and has 'log'"),
        ({"directory": "/log"}, "has nothing to read: give it topics or patterns"),
        ({"directory": "/log", "topics": "orders"}, "The option topics of the source headwater-log is no JSON"),
        ({"directory": "/log", "topics": '"orders"'}, r"with these options: Expected `array`.*topics"),
        ({"directory": "/log", "topics": '["a"]', "startingOffsets": "first"}, r"Invalid enum value 'first'"),
        ({"directory": "/log", "topics": '["a"]', "maxRecordsPerBatch": "0"}, "maxRecordsPerBatch=0 would never read"),
    ],
)
def test_faulty_options_are_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(StreamsError, match=message):
        LogSource(options).streamReader(None)  # type: ignore[arg-type]


# ---- in Spark ------------------------------------------------------------------------------------------------------


@pytest.fixture
def frame(spark: SparkSession, log: Log) -> Callable[..., DataFrame]:
    spark.dataSource.register(LogSource)
    return lambda *topics, **options: (
        spark.readStream.format("headwater-log").options(**log_options(log.directory, topics, **options)).load()
    )


def available_now(
    frame: DataFrame, checkpoint: Path, then: Callable[[int], object] = lambda batch: None
) -> dict[int, list[tuple[str, int, int]]]:
    """Run a query until it has read what there is, and return what each batch had."""
    batches: dict[int, list[tuple[str, int, int]]] = {}

    def keep(rows: DataFrame, batch: int) -> None:
        batches[batch] = [(row.topic, row.partition, row.offset) for row in rows.collect()]
        then(batch)

    query = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).start().awaitTermination()
    return batches


def test_a_batch_frame_has_the_columns_of_every_source(spark: SparkSession, log: Log) -> None:
    log.create_topic("orders", 2)
    log.create_topic("empty")
    headers = (("trace", b"\x00\xff"), ("trace", None), ("ü", b""))
    append(log, "orders", 1, [(b"k", b"v", 1_700_000_000_000, headers), (None, None, -5, ())])
    spark.dataSource.register(LogSource)
    frame = spark.read.format("headwater-log").options(**log_options(log.directory, ["orders", "empty"])).load()
    assert frame.schema == spark.createDataFrame([], SOURCE_SCHEMA).schema
    assert [row.asDict(recursive=True) for row in frame.collect()] == [
        {
            "topic": "orders",
            "partition": 1,
            "offset": 0,
            "timestamp": 1_700_000_000_000,
            "key": b"k",
            "value": b"v",
            "headers": [{"key": name, "value": value} for name, value in headers],
        },
        {
            "topic": "orders",
            "partition": 1,
            "offset": 1,
            "timestamp": -5,
            "key": None,
            "value": None,
            "headers": None,
        },
    ]
    nothing = spark.read.format("headwater-log").options(**log_options(log.directory, ["empty"])).load()
    assert nothing.collect() == []


def test_available_now_reads_all_there_is_in_batches_of_the_limit_and_nothing_later(
    frame: Callable[..., DataFrame], log: Log, tmp_path: Path
) -> None:
    log.create_topic("orders", 2)
    for number in range(2):
        append(log, "orders", number, numbered(0, 25))
    more = {0: lambda: append(log, "orders", 0, numbered(25, 6))}
    batches = available_now(
        frame("orders", max_records=20), tmp_path / "checkpoint", lambda batch: more.pop(batch, lambda: None)()
    )
    assert [len(rows) for rows in batches.values()] == [20, 20, 10]
    for number in range(2):
        offsets = [row[2] for rows in batches.values() for row in rows if row[1] == number]
        assert offsets == list(range(25))
    assert available_now(frame("orders", max_records=20), tmp_path / "checkpoint") == {
        3: [("orders", 0, offset) for offset in range(25, 31)]
    }


def test_a_batch_that_was_not_committed_is_read_again_as_it_was(
    frame: Callable[..., DataFrame], log: Log, tmp_path: Path
) -> None:
    log.create_topic("orders")
    log.create_topic("clicks")
    append(log, "orders", 0, numbered(0, 3))
    append(log, "clicks", 0, numbered(0, 3))
    starting = {"clicks": "latest"}
    checkpoint = tmp_path / "checkpoint"
    first = {0: [("orders", 0, offset) for offset in range(3)]}
    assert available_now(frame("orders", "clicks", starting=starting), checkpoint) == first
    for name in ("0", ".0.crc"):
        (checkpoint / "commits" / name).unlink()
    append(log, "orders", 0, numbered(3, 2))
    append(log, "clicks", 0, numbered(3, 2))
    second = [("orders", 0, 3), ("orders", 0, 4), ("clicks", 0, 3), ("clicks", 0, 4)]
    again = available_now(frame("orders", "clicks", starting=starting), checkpoint)
    assert {batch: sorted(rows) for batch, rows in again.items()} == first | {1: sorted(second)}


def test_a_running_query_takes_up_new_records_and_topics_and_says_what_is_gone(
    frame: Callable[..., DataFrame], log: Log, tmp_path: Path
) -> None:
    log.create_topic("orders-dk")
    append(log, "orders-dk", 0, numbered(0, 3))
    rows: list[tuple[str, int]] = []

    def keep(batch: DataFrame, _: int) -> None:
        rows.extend((row.topic, row.offset) for row in batch.collect())

    stream = frame(patterns={re.compile("orders-.*"): 1}).writeStream.foreachBatch(keep)
    query = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        query.processAllAvailable()
        assert rows == [("orders-dk", offset) for offset in range(3)]
        log.create_topic("orders-se")
        append(log, "orders-se", 0, numbered(0, 2))
        query.processAllAvailable()
        assert rows[3:] == [("orders-se", 0), ("orders-se", 1)]
        log.alter_topic("orders-dk", partitions=2)
        with pytest.raises(StreamingQueryException, match=r"'orders-dk', which matches .* has 2 partitions"):
            query.awaitTermination()
    finally:
        query.stop()
    log.delete_topic("orders-dk")
    log.create_topic("orders-dk")
    with pytest.raises(StreamingQueryException, match="orders-dk-0@3: the log ends at 0"):
        available_now(frame("orders-dk"), tmp_path / "checkpoint")
