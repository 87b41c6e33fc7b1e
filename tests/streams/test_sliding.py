"""Sliding windows: which windows there are, in which order they are emitted, against a definition by brute force."""

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater import Config, SlidingWindows, Windowed
from headwater.dsl import ops
from headwater.dsl.serde import Json, Str
from headwater.dsl.topology import StoreSpec
from tests.streams.one_op import bench, ms


def spec(retention=10_000, on_close=False, value=None):
    return StoreSpec(
        "window", "agg", Str(), value or Str(), timestamped=True, retention_ms=retention, size_ms=10, on_close=on_close
    )


def joining(windows, on_close=False, send_old=False):
    return ops.SlidingWindowAggregate("agg", windows, str, lambda key, value, text: text + value, on_close, send_old)


def windows(updates):
    return [(key.start, key.end, new) for key, new, *_ in updates]


def test_a_record_makes_its_left_window_and_the_right_one_of_the_record_before():
    with bench(joining(SlidingWindows.of(ms(10)), send_old=True), spec()) as b:
        assert b.send("k", "A", at=10) == [(Windowed("k", 0, 10), "A", "", True, 10, ())]
        assert b.send("k", "B", at=15) == [
            (Windowed("k", 11, 21), "B", "", True, 15, ()),
            # A new window's old value is what it starts from.
            (Windowed("k", 5, 15), "AB", "A", True, 15, ()),
        ]


def test_an_out_of_order_record_makes_its_right_window_last_and_without_an_old_value():
    with bench(joining(SlidingWindows.of(ms(10), grace=ms(100)), send_old=True), spec()) as b:
        b.send("k", "A", at=20)
        assert b.send("k", "B", at=15) == [
            (Windowed("k", 10, 20), "AB", "A", True, 20, ()),
            (Windowed("k", 5, 15), "B", "", True, 15, ()),
            (Windowed("k", 16, 26), "A", None, True, 20, ()),
        ]


def test_records_before_the_difference_share_the_window_from_zero():
    with bench(joining(SlidingWindows.of(ms(10), grace=ms(100)), send_old=True), spec()) as b:
        assert b.send("k", "A", at=5) == [(Windowed("k", 0, 10), "A", "", True, 5, ())]
        assert windows(b.send("k", "B", at=8)) == [(6, 16, "B"), (0, 10, "AB")]
        assert b.send("k", "C", at=6) == [
            (Windowed("k", 6, 16), "BC", "B", True, 8, ()),
            (Windowed("k", 7, 17), "B", None, True, 8, ()),
            (Windowed("k", 0, 10), "ABC", "AB", True, 8, ()),
        ]


def test_null_keys_null_values_and_late_records_are_dropped():
    with bench(joining(SlidingWindows.of(ms(10), grace=ms(5))), spec()) as b:
        assert b.send(None, "A", at=900) == b.send("k", None, at=900) == []
        b.send("k", "A", at=100)
        assert b.send("k", "B", at=84) == []
        assert b.dropped == 3
        # Not late itself, but of its windows [75, 85] is closed and [86, 96] empty.
        assert b.send("k", "C", at=85) == []
        assert b.dropped == 4
        assert windows(b.send("k", "D", at=95)) == [(90, 100, "AD"), (85, 95, "D"), (96, 106, "A")]


def test_mutating_aggregators_do_not_reach_other_windows_or_old_values():
    def appended(key, value, items):
        items.append(value)
        return items

    op = ops.SlidingWindowAggregate("agg", SlidingWindows.of(ms(10), grace=ms(100)), list, appended, False, True)
    with bench(op, spec(value=Json())) as b:
        for value, at in (("A", 5), ("B", 8), ("C", 20)):
            b.send("k", value, at=at)
        assert [update[:3] for update in b.send("k", "D", at=6)] == [
            (Windowed("k", 6, 16), ["B", "D"], ["B"]),
            (Windowed("k", 7, 17), ["B"], None),
            (Windowed("k", 0, 10), ["A", "B", "D"], ["A", "B"]),
        ]
        assert [update[:3] for update in b.send("k", "E", at=17)] == [
            (Windowed("k", 10, 20), ["C", "E"], ["C"]),
            (Windowed("k", 7, 17), ["B", "E"], ["B"]),
            (Windowed("k", 9, 19), ["E"], []),
            (Windowed("k", 18, 28), ["C"], None),
        ]


def expected(records, difference):
    """Every window that some record begins or ends, with the records in it."""
    found = {}
    for at in {at for at, _ in records}:
        for start in (max(0, at - difference), at + 1):
            inside = {value for t, value in records if start <= t <= start + difference}
            if inside:
                found[start] = inside
    return found


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 60), max_size=12), st.integers(1, 15))
def test_the_windows_are_those_of_the_definition(times, difference):
    letters = "ABCDEFGHIJKL"
    records = list(zip(times, letters, strict=False))
    with bench(joining(SlidingWindows.of(ms(difference), grace=ms(1000))), spec()) as b:
        for at, value in records:
            b.send("k", value, at=at)
        stored = {key.start: set(text) for key, text in b.driver.store("agg").all()}
    assert stored == expected(records, difference)


def test_closed_windows_come_by_start_and_key_but_not_with_an_early_or_late_record():
    op = joining(SlidingWindows.of(ms(10)), on_close=True)
    with bench(op, spec(on_close=True), Config("app", window_emit_interval=ms(0))) as b:
        assert b.send("b", "A", at=12) == b.send("a", "B", at=12) == []
        # Too late for [0, 10].
        assert b.send("a", "C", at=5) == []
        assert windows(b.send("c", "D", at=23)) == [(2, 12, "BC"), (2, 12, "A"), (6, 16, "B")]
        assert b.send("a", "X", at=3) == []
        assert windows(b.send("c", "E", at=40)) == [(13, 23, "D")]
