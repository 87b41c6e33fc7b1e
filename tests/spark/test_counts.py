"""Reports of shards, added up: each batch once, however often and by how many queries it is computed."""

import logging

import msgspec
import pytest

from headwater.streams.spark.counts import Counts
from headwater.streams.spark.shard import Report


def late(count: int, shard: int = 0) -> bytes:
    return msgspec.msgpack.encode(Report(1, shard, processed=100, dropped={"step": count}, late={"step": count}))


def test_a_batch_that_is_computed_again_counts_once() -> None:
    counts = Counts()
    counts.take([("query", "0", late(3)), ("query", "0", late(4, shard=1))])
    counts.take([("query", "0", late(3))])
    counts.take([("query", "1", late(5))])
    assert counts.metrics() == {
        "records-total": 300,
        "dropped-records-total": 12,
        "late-records-total": 12,
        "steps": {"step": {"dropped-records-total": 12, "late-records-total": 12}},
    }


def test_of_several_queries_over_the_same_input_the_furthest_counts() -> None:
    counts = Counts()
    counts.take([("one", "0", late(3)), ("one", "1", late(4)), ("other", "0", late(3))])
    assert counts.metrics()["late-records-total"] == 7


def test_late_records_are_warned_about_by_step_and_again_when_they_have_doubled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    counts = Counts()
    with caplog.at_level(logging.WARNING, "headwater"):
        counts.take([("query", "0", late(0))])
        assert not caplog.records
        for batch, count in enumerate([5, 4, 1, 9]):
            counts.take([("query", str(batch + 1), late(count))])
    numbers = [record.message.split(" records as late")[0] for record in caplog.records]
    assert numbers == ["step step has dropped 5", "step step has dropped 10"]
