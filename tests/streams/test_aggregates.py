"""Aggregates without windows, of streams and of grouped tables. The traces cover what is emitted; here are old values,
nulls, mutation and errors. Expectations are read from Kafka Streams' KStreamAggregate and KTableAggregate."""

import pytest

from headwater import Config, StreamsError
from headwater.dsl import ops
from headwater.dsl.serde import Int64, Json, Str
from headwater.dsl.topology import StoreSpec
from tests.streams.one_op import bench

COUNT = (lambda: 0, lambda key, value, count: count + 1)
JSON = StoreSpec("timestamped", "agg", Str(), Json())
LONG = StoreSpec("timestamped", "agg", Str(), Int64())


def test_an_aggregate_carries_the_latest_timestamp_and_the_triggering_headers():
    with bench(ops.Aggregate("agg", *COUNT, send_old=False), LONG) as b:
        assert b.send("a", 1, at=10) == [("a", 1, None, True, 10, ())]
        assert b.send("a", 1, at=5, headers=(("h", b"1"),)) == [("a", 2, None, True, 10, (("h", b"1"),))]


def test_records_without_key_or_value_are_dropped():
    with bench(ops.Aggregate("agg", *COUNT, send_old=True), LONG) as b:
        assert b.send(None, 1, at=1) == b.send("a", None, at=2) == []
        assert b.dropped == 2


def test_the_old_value_of_a_new_key_is_the_initial_one():
    with bench(ops.Aggregate("agg", *COUNT, send_old=True), LONG) as b:
        assert b.send("a", 7, at=1) == [("a", 1, 0, True, 1, ())]
        assert b.send("a", 7, at=2) == [("a", 2, 1, True, 2, ())]


def test_a_reduce_takes_the_first_value_and_has_no_old_one_for_it():
    with bench(ops.Aggregate("agg", None, lambda total, value: total - value, send_old=True), LONG) as b:
        assert b.send("a", 7, at=1) == [("a", 7, None, True, 1, ())]
        assert b.send("a", 2, at=0) == [("a", 5, 7, True, 1, ())]


@pytest.mark.parametrize("send_old", [False, True])
def test_a_none_aggregate_deletes_the_row_and_the_next_record_starts_with_its_own_timestamp(send_old):
    op = ops.Aggregate("agg", lambda: 100, lambda key, value, total: None if value == 0 else total + value, send_old)
    with bench(op, LONG) as b:
        b.send("a", 5, at=10)
        assert b.send("a", 0, at=3) == [("a", None, 105 if send_old else None, True, 10, ())]
        assert b.driver.store("agg").get("a") is None
        assert b.send("a", 1, at=4) == [("a", 101, 100 if send_old else None, True, 4, ())]


def appended(key, value, items):
    items.append(value)
    return items


def test_an_aggregator_that_mutates_changes_no_old_value_and_nothing_that_was_sent():
    with bench(ops.Aggregate("agg", list, appended, send_old=True), JSON) as b:
        first = b.send("a", 1, at=1)
        second = b.send("a", 2, at=2)
        assert first == [("a", [1], [], True, 1, ())]
        assert second == [("a", [1, 2], [1], True, 2, ())]


@pytest.mark.parametrize("send_old", [False, True])
def test_an_aggregator_that_mutates_and_raises_leaves_the_row_as_it_was(send_old):
    def f(key, value, items):
        items.append(value)
        if value == 2:
            raise ValueError("no twos")
        return items

    with bench(ops.Aggregate("agg", list, f, send_old), JSON, Config("app", on_processing_error="skip")) as b:
        b.send("a", 1, at=1)
        assert b.send("a", 2, at=2) == []
        assert b.dropped == 1
        assert b.send("a", 3, at=3)[0][1] == [1, 3]


def test_an_error_names_the_cause():
    with (
        bench(ops.Aggregate("agg", list, lambda key, value, items: items / 0, False), JSON) as b,
        pytest.raises(StreamsError) as raised,
    ):
        b.send("a", 1, at=1)
    assert isinstance(raised.value.__cause__, TypeError)


# Through the record cache, which the driver flushes after each record.


CACHED = StoreSpec("timestamped", "agg", Str(), Int64(), cached=True)


@pytest.mark.parametrize("send_old", [False, True])
def test_through_the_cache_old_values_are_those_of_the_store(send_old):
    op = ops.Aggregate("agg", lambda: 0, lambda key, value, total: None if value == 0 else total + value, send_old)
    with bench(op, CACHED, Config("app", cache_bytes=10_000)) as b:
        assert b.send("a", 0, at=1) == []
        assert b.send("a", 5, at=10, headers=(("h", b"1"),)) == [("a", 5, None, True, 10, (("h", b"1"),))]
        assert b.send("a", 6, at=7) == [("a", 11, 5 if send_old else None, True, 10, ())]
        # The row's timestamp has gone with the row.
        assert b.send("a", 0, at=3) == [("a", None, 11 if send_old else None, True, 3, ())]


# Of a grouped table: the value is a pair (new, old).


def joined(send_old):
    return ops.TableAggregate(
        "agg", str, lambda key, value, text: f"{text}+{value}", lambda key, value, text: f"{text}-{value}", send_old
    )


TEXT = StoreSpec("timestamped", "agg", Str(), Str())


def test_a_table_aggregate_subtracts_then_adds_in_one_update():
    with bench(joined(True), TEXT, value=Json()) as b:
        assert b.send("g", (1, None), at=5) == [("g", "+1", None, True, 5, ())]
        assert b.send("g", (2, 1), at=3) == [("g", "+1-1+2", "+1", True, 5, ())]
        assert b.send("g", (None, 2), at=9) == [("g", "+1-1+2-2", "+1-1+2", True, 9, ())]


def test_a_table_aggregate_subtracts_nothing_from_a_missing_row():
    with bench(joined(True), TEXT, value=Json()) as b:
        assert b.send("g", (None, 1), at=5) == [("g", None, None, True, 5, ())]
        assert b.send("g", (2, 1), at=4) == [("g", "+2", None, True, 4, ())]


def test_a_table_aggregate_that_becomes_none_is_deleted_and_starts_anew():
    op = ops.TableAggregate(
        "agg",
        lambda: 0,
        lambda key, value, total: total + value,
        lambda key, value, total: None if total == value else total - value,
        True,
    )
    with bench(op, LONG, value=Json()) as b:
        b.send("g", (3, None), at=9)
        assert b.send("g", (None, 3), at=5) == [("g", None, 3, True, 9, ())]
        assert b.driver.store("agg").get("g") is None
        assert b.send("g", (4, None), at=6) == [("g", 4, None, True, 6, ())]
        # Within one update: subtracted to None, so the new value is added to the initial one.
        assert b.send("g", (5, 4), at=2) == [("g", 5, 4, True, 6, ())]


def test_a_table_reduce_adds_and_subtracts_without_an_initial_value():
    op = ops.TableAggregate("agg", None, lambda total, value: total + value, lambda total, value: total - value, True)
    with bench(op, LONG, value=Json()) as b:
        assert b.send("g", (3, None), at=5) == [("g", 3, None, True, 5, ())]
        assert b.send("g", (10, 3), at=4) == [("g", 10, 3, True, 5, ())]
        assert b.send("g", (None, 10), at=6) == [("g", 0, 10, True, 6, ())]


def test_a_table_aggregate_without_a_key_is_an_error():
    with bench(joined(False), TEXT, value=Json()) as b, pytest.raises(StreamsError):
        b.send(None, (1, None), at=1)


def test_a_subtractor_that_mutates_changes_no_old_value():
    def without(key, value, items):
        items.remove(value)
        return items

    with bench(ops.TableAggregate("agg", list, appended, without, True), JSON) as b:
        b.send("g", [1, None], at=1)
        assert b.send("g", [2, 1], at=2) == [("g", [2], [1], True, 2, ())]
