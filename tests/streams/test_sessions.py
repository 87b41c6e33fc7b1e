"""Session windows: merging, deletions for what was merged, lateness, emission on close."""

from headwater import Config, SessionWindows, Windowed
from headwater.dsl import ops
from headwater.dsl.serde import Int64, Json, Str
from headwater.dsl.topology import StoreSpec
from tests.streams.one_op import bench, ms


def spec(value=None, retention=10_000, on_close=False):
    return StoreSpec("session", "agg", Str(), value or Int64(), retention_ms=retention, on_close=on_close)


def counting(gap=5, grace=0, on_close=False, send_old=True):
    windows = SessionWindows.of(ms(gap), grace=ms(grace))
    return ops.SessionAggregate(
        "agg", windows, lambda: 0, lambda key, value, n: n + 1, lambda key, a, b: a + b, on_close, send_old
    )


def test_a_record_that_bridges_two_sessions_deletes_both_and_emits_the_merged_one():
    with bench(counting(grace=100), spec(), value=Str()) as b:
        assert b.send("a", "x", at=0) == [(Windowed("a", 0, 0), 1, None, True, 0, ())]
        assert b.send("a", "x", at=10) == [(Windowed("a", 10, 10), 1, None, True, 10, ())]
        assert b.send("a", "x", at=5, headers=(("h", b"1"),)) == [
            (Windowed("a", 0, 0), None, 1, True, 0, ()),
            (Windowed("a", 10, 10), None, 1, True, 10, ()),
            (Windowed("a", 0, 10), 3, None, True, 10, ()),
        ]


def test_a_session_of_one_moment_is_updated_without_a_deletion_and_without_an_old_value():
    with bench(counting(), spec(), value=Str()) as b:
        b.send("a", "x", at=3)
        assert b.send("a", "x", at=3) == [(Windowed("a", 3, 3), 2, None, True, 3, ())]


def test_a_record_inside_a_session_deletes_and_emits_the_same_window():
    with bench(counting(grace=100), spec(), value=Str()) as b:
        b.send("a", "x", at=0)
        b.send("a", "x", at=5)
        assert b.send("a", None, at=2) == [
            (Windowed("a", 0, 5), None, 2, True, 5, ()),
            (Windowed("a", 0, 5), 3, None, True, 5, ()),
        ]


def test_a_record_is_late_by_the_end_of_its_merged_session():
    with bench(counting(gap=5, grace=2, send_old=False), spec(), value=Str()) as b:
        b.send("a", "x", at=14)
        b.send("b", "x", at=20)
        # Alone [12, 12] would be closed at 12 + 5 + 2 < 20, but it joins the open [14, 14].
        assert b.send("a", "x", at=12) == [
            (Windowed("a", 14, 14), None, None, True, 14, ()),
            (Windowed("a", 12, 14), 2, None, True, 14, ()),
        ]
        assert len(b.send("c", "x", at=13)) == 1
        assert b.send("c", "x", at=7) == []
        assert b.send(None, "x", at=500) == []
        assert b.dropped == 2


def test_a_reduce_merges_with_its_reducer_in_the_order_of_the_sessions():
    windows = SessionWindows.of(ms(5), grace=ms(100))
    op = ops.SessionAggregate("agg", windows, None, lambda a, b: f"({a}{b})", None, False, False)
    with bench(op, spec(Str())) as b:
        b.send("k", "A", at=10)
        b.send("k", "B", at=0)
        assert b.send("k", "C", at=5)[-1][:2] == (Windowed("k", 0, 10), "((BA)C)")


def test_a_merger_that_mutates_does_not_change_the_old_values():
    def merge(key, a, b):
        b.extend(a)
        return b

    def appended(key, value, items):
        items.append(value)
        return items

    op = ops.SessionAggregate("agg", SessionWindows.of(ms(5), grace=ms(100)), list, appended, merge, False, True)
    with bench(op, spec(Json())) as b:
        b.send("k", "A", at=0)
        b.send("k", "B", at=10)
        assert [update[:3] for update in b.send("k", "C", at=5)] == [
            (Windowed("k", 0, 0), None, ["A"]),
            (Windowed("k", 10, 10), None, ["B"]),
            (Windowed("k", 0, 10), ["B", "A", "C"], None),
        ]


def test_an_aggregate_of_none_deletes_the_session():
    op = ops.SessionAggregate(
        "agg", SessionWindows.of(ms(5)), lambda: 0, lambda key, value, n: value, lambda key, a, b: b, False, False
    )
    with bench(op, spec()) as b:
        b.send("k", 1, at=0)
        assert b.send("k", None, at=1)[-1] == (Windowed("k", 0, 1), None, None, True, 1, ())
        assert list(b.driver.store("agg").all()) == []


def test_closed_sessions_come_by_end_start_and_key_with_the_headers_of_the_record():
    op = counting(gap=5, grace=0, on_close=True, send_old=False)
    with bench(op, spec(on_close=True), Config("app", window_emit_interval=ms(0)), Str()) as b:
        for key, at in (("b", 2), ("a", 4), ("b", 4), ("a", 4), ("c", 0)):
            assert b.send(key, "x", at=at) == []
        assert b.send("d", "x", at=9) == [(Windowed("c", 0, 0), 1, None, True, 0, ())]
        assert b.send("d", "x", at=10, headers=(("h", b"1"),)) == [
            (Windowed("b", 2, 4), 2, None, True, 4, (("h", b"1"),)),
            (Windowed("a", 4, 4), 2, None, True, 4, (("h", b"1"),)),
        ]
        assert b.send("d", "x", at=11) == []


def test_through_the_cache_updates_have_the_headers_of_the_record_and_the_old_values_of_the_store():
    cached = StoreSpec("session", "agg", Str(), Int64(), retention_ms=10_000, cached=True)
    headers = (("h", b"1"),)
    with bench(counting(grace=100), cached, Config("app", cache_bytes=10_000), Str()) as b:
        assert b.send("a", "x", at=3, headers=headers) == [(Windowed("a", 3, 3), 1, None, True, 3, headers)]
        assert b.send("a", "x", at=3) == [(Windowed("a", 3, 3), 2, 1, True, 3, ())]
        assert b.send("a", "x", at=5, headers=headers) == [
            (Windowed("a", 3, 3), None, 2, True, 3, headers),
            (Windowed("a", 3, 5), 3, None, True, 5, headers),
        ]
        # Deleted and put again within one commit: one update.
        assert b.send("a", "x", at=4) == [(Windowed("a", 3, 5), 4, 3, True, 5, ())]
