"""Tumbling, hopping and unlimited windows: bounds, lateness, old values, emission on close."""

import pytest

from headwater import Config, TimeWindows, UnlimitedWindows, Windowed
from headwater.dsl import ops
from headwater.dsl.durations import LONG_MAX
from headwater.dsl.serde import Int64, Json, Str
from headwater.dsl.topology import StoreSpec
from tests.streams.one_op import bench, ms

COUNT = (lambda: 0, lambda key, value, count: count + 1)
TUMBLING = TimeWindows.of(ms(10), grace=ms(5))
HOPPING = TimeWindows.of(ms(10), grace=ms(5), advance=ms(5))


def spec(value=None, retention=15, on_close=False):
    return StoreSpec(
        "window",
        "agg",
        Str(),
        value or Int64(),
        timestamped=True,
        retention_ms=retention,
        size_ms=10,
        on_close=on_close,
    )


def counting(windows, on_close=False, send_old=False):
    return ops.TimeWindowAggregate("agg", windows, *COUNT, on_close, send_old)


@pytest.mark.parametrize("send_old", [False, True])
def test_a_tumbling_window_takes_records_until_its_end_and_grace(send_old):
    with bench(counting(TUMBLING, send_old=send_old), spec(), value=Str()) as b:
        assert b.send("a", "x", at=9) == [(Windowed("a", 0, 10), 1, 0 if send_old else None, True, 9, ())]
        b.send("b", "x", at=14)
        assert b.send("a", None, at=3) == [(Windowed("a", 0, 10), 2, 1 if send_old else None, True, 9, ())]
        b.send("b", "x", at=15)
        assert b.send("a", "x", at=3) == []
        assert b.dropped == 1


def test_records_without_a_key_are_dropped_and_do_not_move_time():
    with bench(counting(TUMBLING), spec(), value=Str()) as b:
        assert b.send(None, "x", at=1000) == []
        assert len(b.send("a", "x", at=1)) == 1
        assert b.dropped == 1


def test_a_hopping_record_goes_to_the_open_windows_only_and_each_closed_one_counts():
    with bench(counting(HOPPING, send_old=True), spec(), value=Str()) as b:
        assert b.send("a", "x", at=7, headers=(("h", b""),)) == [
            (Windowed("a", 0, 10), 1, 0, True, 7, (("h", b""),)),
            (Windowed("a", 5, 15), 1, 0, True, 7, (("h", b""),)),
        ]
        b.send("b", "x", at=16)
        assert b.send("a", "x", at=8) == [(Windowed("a", 5, 15), 2, 1, True, 8, ())]
        assert b.dropped == 1
        b.send("b", "x", at=20)
        assert b.send("a", "x", at=8) == []
        assert b.dropped == 3


def test_an_unlimited_window_has_no_end_and_ignores_earlier_records():
    unlimited = StoreSpec("window", "agg", Str(), Int64(), timestamped=True, retention_ms=LONG_MAX, size_ms=LONG_MAX)
    with bench(counting(UnlimitedWindows.of(100)), unlimited, value=Str()) as b:
        assert b.send("a", "x", at=10**15) == [(Windowed("a", 100, LONG_MAX), 1, None, True, 10**15, ())]
        assert b.send("a", "x", at=100) == [(Windowed("a", 100, LONG_MAX), 2, None, True, 10**15, ())]
        assert b.send("a", "x", at=99) == []
        assert b.dropped == 0


@pytest.mark.parametrize("windows", [TUMBLING, HOPPING])
def test_a_reduce_that_gets_none_first_deletes_and_emits_it(windows):
    op = ops.TimeWindowAggregate("agg", windows, None, lambda total, value: f"{total},{value}", False, False)
    with bench(op, spec(Str())) as b:
        assert b.send("a", None, at=1) == [(Windowed("a", 0, 10), None, None, True, 1, ())]
        assert b.send("a", "x", at=0)[0][1:5] == ("x", None, True, 0)
        assert b.send("a", None, at=0)[0][1] == "x,None"


def test_an_aggregator_that_mutates_keeps_windows_and_old_values_apart():
    def appended(key, value, items):
        items.append(value)
        return items

    with bench(ops.TimeWindowAggregate("agg", HOPPING, list, appended, False, True), spec(Json())) as b:
        updates = [*b.send("a", 1, at=7), *b.send("a", 2, at=3), *b.send("a", 3, at=8)]
        assert [(key.start, new, old) for key, new, old, *_ in updates] == [
            (0, [1], []),
            (5, [1], []),
            (0, [1, 2], [1]),
            (0, [1, 2, 3], [1, 2]),
            (5, [1, 3], [1]),
        ]


def test_an_aggregator_that_raises_keeps_what_the_earlier_windows_got():
    calls = []

    def f(key, value, count):
        calls.append(value)
        if len(calls) == 2:
            raise ValueError("second window")
        return count + 1

    op = ops.TimeWindowAggregate("agg", HOPPING, lambda: 0, f, False, False)
    with bench(op, spec(), Config("app", on_processing_error="skip"), Str()) as b:
        assert [update[0].start for update in b.send("a", "x", at=7)] == [0]
        assert [update[:2] for update in b.send("a", "x", at=7)] == [
            (Windowed("a", 0, 10), 2),
            (Windowed("a", 5, 15), 1),
        ]


# On close.


def on_close(interval):
    return Config("app", window_emit_interval=ms(interval))


def test_closed_windows_come_once_by_start_and_key_with_their_latest_timestamp():
    with bench(counting(TUMBLING, on_close=True), spec(retention=100, on_close=True), on_close(0), Str()) as b:
        for key, at in (("b", 4), ("a", 2), ("a", 1), ("a", 12)):
            assert b.send(key, "x", at=at) == []
        assert b.send("c", "x", at=15, headers=(("h", b"1"),)) == [
            (Windowed("a", 0, 10), 2, None, True, 2, (("h", b"1"),)),
            (Windowed("b", 0, 10), 1, None, True, 4, (("h", b"1"),)),
        ]
        assert b.send("c", "x", at=24) == []
        assert [update[0] for update in b.send("c", "x", at=25)] == [Windowed("a", 10, 20), Windowed("c", 10, 20)]
        # A late record changes nothing, but may be the one that finds a window closed.
        assert b.send("a", "x", at=1) == []
        assert b.dropped == 1


def test_a_closed_window_past_the_retention_is_lost():
    with bench(counting(TUMBLING, on_close=True), spec(retention=15, on_close=True), on_close(0), Str()) as b:
        b.send("a", "x", at=1)
        b.send("a", "x", at=11)
        assert [update[0].start for update in b.send("a", "x", at=28)] == [10]


def test_windows_wait_for_the_emit_interval_on_the_wall_clock_and_for_a_record():
    with bench(counting(TUMBLING, on_close=True), spec(retention=100, on_close=True), on_close(1000), Str()) as b:
        b.send("a", "x", at=1)
        assert b.send("a", "x", at=15) == []
        b.driver.advance(ms(999))
        assert b.send("a", "x", at=16) == []
        b.driver.advance(ms(1))
        assert b.take() == []
        assert [update[0].start for update in b.send("a", "x", at=3)] == [0]
        b.driver.advance(ms(5000))
        assert b.send("a", "x", at=17) == []
        # The look in vain has started a new interval.
        assert b.send("a", "x", at=40) == []
        b.driver.advance(ms(1000))
        assert [update[0].start for update in b.send("a", "x", at=40)] == [10]


def test_hopping_windows_close_one_after_the_other():
    with bench(counting(HOPPING, on_close=True), spec(retention=100, on_close=True), on_close(0), Str()) as b:
        b.send("a", "x", at=7)
        assert [update[0].start for update in b.send("b", "x", at=15)] == [0]
        assert b.send("b", "x", at=19) == []
        assert [update[0] for update in b.send("b", "x", at=20)] == [Windowed("a", 5, 15)]
