"""The write-back buffer: which row is seen, what it costs the back end, and that no caller changes a row unawares."""

import copy
import gc
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.state.codec import Timestamped
from headwater.state.memory import MemoryBackend
from headwater.state.rows import Rows
from tests.state.codecs import Json, Text
from tests.state.places import PLACES
from tests.state.remote import RemoteBackend


def commit(rows, backend):
    backend.write({rows.name: rows.drain()})


@pytest.fixture
def remote():
    backend = RemoteBackend(["a"])
    backend.write({"a": {b"%d" % number: b"row %d" % number for number in range(10)}})
    backend.calls.clear()
    return backend


def test_rows_are_seen_before_and_after_the_commit_and_by_others_only_after(backend):
    rows, other = Rows(backend, "a", Text()), Rows(backend, "a", Text())
    rows.put(b"k", "new")
    assert rows.get(b"k") == "new"
    assert list(rows.scan(b"", None)) == [(b"k", "new")]
    assert list(other.scan(b"", None)) == []
    commit(rows, backend)
    assert rows.get(b"k") == other.get(b"k") == "new"
    rows.put(b"k", None)
    assert rows.get(b"k") is None
    assert list(rows.scan(b"", None)) == []
    commit(rows, backend)
    assert rows.get(b"k") is None
    assert backend.get_many("a", [b"k"]) == [None]


def test_drain_gives_each_changed_row_once(backend):
    rows = Rows(backend, "a", Text())
    assert rows.drain() == {}
    rows.put(b"1", "x")
    rows.put(b"1", "y")
    rows.put(b"2", None)
    rows.put(b"3", "ü")
    assert rows.drain() == {b"1": b"y", b"2": None, b"3": "ü".encode()}
    assert rows.drain() == {}


def test_opened_again_it_has_the_committed_rows_and_no_others(backend_factory):
    backend = backend_factory(["a"])
    rows = Rows(backend, "a", Json())
    rows.put(b"1", [1])
    commit(rows, backend)
    rows.put(b"1", [2])
    rows.put(b"2", [2])
    rows = Rows(backend_factory(["a"]), "a", Json())
    assert list(rows.scan(b"", None)) == [(b"1", [1])]


# Round trips.


def test_a_key_is_read_once_whether_it_has_a_row_or_not(remote):
    rows = Rows(remote, "a", Json())
    remote.write({"a": {b"list": b"[1]"}})
    remote.calls.clear()
    for _ in range(3):
        assert rows.get(b"list") == [1]
        assert rows.get(b"none") is None
    assert remote.calls == {"get_many": 2}


def test_a_written_key_is_never_read(remote):
    rows = Rows(remote, "a", Text())
    rows.put(b"1", "mine")
    rows.put(b"2", None)
    remote_rows = rows.drain()
    remote.write({"a": remote_rows})
    assert rows.get(b"1") == "mine"
    assert rows.get(b"2") is None
    assert remote.calls == {"write": 1}


def test_a_prefetch_is_one_round_trip_for_what_is_not_buffered(remote):
    rows = Rows(remote, "a", Text())
    rows.get(b"0")
    rows.put(b"1", "mine")
    remote.calls.clear()
    rows.prefetch([b"0", b"1", b"0"])
    assert remote.calls == {}
    rows.prefetch(key for key in [b"0", b"1", b"2", b"2", b"none"])
    rows.prefetch([b"2", b"none"])
    assert [rows.get(key) for key in (b"0", b"1", b"2", b"2", b"none")] == ["row 0", "mine", "row 2", "row 2", None]
    assert remote.calls == {"get_many": 1}


def test_a_prefetched_row_does_not_come_back_after_newer_ones(remote):
    rows = Rows(remote, "a", Text(), clean_rows=2)
    rows.prefetch([b"1", b"2"])
    rows.put(b"1", "newer")
    commit(rows, remote)
    for number in range(3, 9):
        rows.get(b"%d" % number)
    assert rows.get(b"1") == "newer"
    assert rows.get(b"2") == "row 2"


def test_a_row_that_was_written_in_a_great_commit_does_not_come_back_as_it_was(remote):
    rows = Rows(remote, "a", Text(), clean_rows=8)
    assert rows.get(b"1") == "row 1"
    for number in range(1, 10):
        rows.put(b"%d" % number, "newer")
    commit(rows, remote)
    assert [rows.get(b"%d" % number) for number in range(1, 10)] == ["newer"] * 9


@pytest.mark.parametrize("written", [False, True])
def test_clean_rows_are_bounded_and_the_ones_in_use_stay(written):
    remote = RemoteBackend(["a"])
    rows = Rows(remote, "a", Text(), clean_rows=100)
    for number in range(1000):
        if written:
            rows.put(b"%d" % number, "row")
            commit(rows, remote)
        else:
            rows.get(b"%d" % number)
        rows.get(b"0")
    remote.calls.clear()
    rows.get(b"0")
    assert remote.calls["get_many"] == 0
    for number in range(1000):
        rows.get(b"%d" % number)
    # 1,000 keys, of which no more than 100 can have been there.
    assert remote.calls["get_many"] >= 900


def test_a_scan_is_one_round_trip(remote):
    rows = Rows(remote, "a", Text())
    rows.put(b"55", "mine")
    assert len(list(rows.scan(b"3", b"7"))) == 5
    assert remote.calls == {"scan": 1}


# Objects.


def test_stable_rows_are_the_objects_that_were_put(backend):
    rows = Rows(backend, "a", Text())
    row = "".join(["a", " row"])
    rows.put(b"k", row)
    assert rows.get(b"k") is row
    commit(rows, backend)
    assert rows.get(b"k") is row


def test_other_rows_are_new_objects_at_every_get(backend):
    rows = Rows(backend, "a", Json())
    mine = [1]
    rows.put(b"k", mine)
    mine.append(2)
    for _ in range(2):
        first = rows.get(b"k")
        first.append(3)
        next(rows.scan(b"", None))[1].append(4)
        assert rows.get(b"k") == [1]
        commit(rows, backend)
    fresh = Rows(backend, "a", Json())
    fresh.prefetch([b"k"])
    fresh.get(b"k").append(5)
    assert fresh.get(b"k") == [1]


def test_what_cannot_be_encoded_fails_in_put_and_leaves_the_row(backend):
    for codec, good, bad in ((Json(), [1], [object()]), (Text(), "x", "\ud800")):
        rows = Rows(backend, "a", codec)
        rows.put(b"k", good)
        with pytest.raises((TypeError, UnicodeEncodeError)):
            rows.put(b"k", bad)
        assert rows.get(b"k") == good
        assert list(rows.drain()) == [b"k"]


@pytest.mark.parametrize("timestamp", [2**63, -(2**63) - 1, 1.5, "1", None])
def test_what_is_no_timestamp_fails_in_put(timestamp):
    rows = Rows(MemoryBackend(["a"]), "a", Timestamped(Text()))
    with pytest.raises(struct.error):
        rows.put(b"k", ("x", timestamp))
    assert rows.drain() == {}


@pytest.mark.parametrize("timestamp", [-(2**63), -1, 0, 2**63 - 1])
def test_timestamped_rows_come_back_as_they_were(timestamp):
    codec = Timestamped(Json())
    assert codec.decode(codec.encode(([1], timestamp))) == ([1], timestamp)
    assert not codec.stable(([1], timestamp))
    assert codec.stable(("x", timestamp))


MUTABLE = st.one_of(
    st.text("ab", max_size=2),
    st.lists(st.integers(0, 3), max_size=3),
    st.dictionaries(st.sampled_from("xy"), st.lists(st.integers(0, 3), max_size=2), max_size=2),
)
KEY = st.sampled_from([b"1", b"1", b"2", b"3"])
STEP = st.tuples(
    # Some more often than others: what goes wrong takes two gets of a row after the same restart.
    st.sampled_from(
        [
            "put",
            "put",
            "update",
            "get",
            "get",
            "get",
            "mutate",
            "mutate",
            "prefetch",
            "delete",
            "scan",
            "drain",
            "restart",
        ]
    ),
    KEY,
    MUTABLE,
    st.integers(0, 30),
)


def mutate(row):
    if type(row) is list:
        row.append(9)
    elif type(row) is dict:
        for inner in row.values():
            inner.append(9)
        row["mutated"] = [9]


@pytest.mark.parametrize("place", PLACES)
def test_mutating_what_was_put_or_got_changes_nothing(place):
    # On RocksDB a database is made, opened again and removed for each example.
    @settings(max_examples=30 if place == "rocks" else 200, deadline=None)
    @given(steps=st.lists(STEP, min_size=5, max_size=40))
    def check(steps):
        check_mutation(PLACES[place](), steps)

    check()


def check_mutation(place, steps):
    """The model serialises at every put, here by a deep copy, and everything seen so far may be mutated at any time."""
    try:
        backend = place.open(["a"])
        rows = Rows(backend, "a", Json(), clean_rows=2)
        model = {}
        seen = []
        for step, key, value, back in steps:
            if step == "put":
                model[key] = copy.deepcopy(value)
                row = copy.deepcopy(value)
                rows.put(key, row)
                seen.append(row)
            elif step == "update":  # an aggregator that mutates its argument and returns it
                row = rows.get(key)
                assert row == model.get(key)
                if row is not None:
                    mutate(row)
                    rows.put(key, row)
                    model[key] = copy.deepcopy(row)
                    mutate(row)
                    seen.append(row)
            elif step == "get":
                row = rows.get(key)
                assert row == model.get(key)
                mutate(row)  # an aggregator that raises after it
                seen.append(row)
            elif step == "prefetch":
                rows.prefetch([key])
            elif step == "delete":
                rows.put(key, None)
                model.pop(key, None)
            elif step == "scan":
                found = list(rows.scan(b"", None))
                assert found == sorted(model.items())
                seen.extend(row for _, row in found)
            elif step in ("drain", "restart"):
                commit(rows, backend)
                if step == "restart":
                    rows = Rows(backend, "a", Json(), clean_rows=2)
            elif seen:
                mutate(seen[-1 - back % len(seen)])
        assert list(rows.scan(b"", None)) == sorted(model.items())
        assert [rows.get(key) for key in (b"1", b"2", b"3")] == [model.get(key) for key in (b"1", b"2", b"3")]
        commit(rows, backend)
        assert list(Rows(place.open(["a"]), "a", Json()).scan(b"", None)) == sorted(model.items())
    finally:
        place.leave()


# Scans.


@pytest.fixture
def half_committed(backend):
    """Rows 0, 2, 4, 6, 8 committed, 1, 2, 5, 8, 9 over them, of which 2 and 5 are deleted."""
    rows = Rows(backend, "a", Text())
    for number in range(0, 10, 2):
        rows.put(b"%d" % number, "old")
    commit(rows, backend)
    for number in (9, 1, 8):
        rows.put(b"%d" % number, "new")
    for number in (5, 2):
        rows.put(b"%d" % number, None)
    return rows


ALL = [(b"0", "old"), (b"1", "new"), (b"4", "old"), (b"6", "old"), (b"8", "new"), (b"9", "new")]


def test_a_scan_merges_buffered_and_committed_rows(half_committed):
    assert list(half_committed.scan(b"", None)) == ALL
    assert list(half_committed.scan(b"", None, reverse=True)) == ALL[::-1]
    assert list(half_committed.scan(b"1", b"8")) == ALL[1:4]
    assert list(half_committed.scan(b"1", b"8", reverse=True)) == ALL[1:4][::-1]
    assert list(half_committed.scan(b"2", b"4")) == []
    assert list(half_committed.scan(b"8", b"1")) == list(half_committed.scan(b"8", b"1", reverse=True)) == []


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("at", range(6))
@pytest.mark.parametrize("disturb", ["put", "delete", "commit", "scan", "all"])
def test_a_scan_goes_on_as_of_its_call(half_committed, backend, reverse, at, disturb):
    rows = half_committed
    wanted = ALL[::-1] if reverse else ALL
    found = []
    for position, item in enumerate(rows.scan(b"", None, reverse)):
        found.append(item)
        if position >= at:
            for number in range(10):
                if disturb in ("put", "all"):
                    rows.put(b"%d" % number, "later")
                    rows.put(b"%d.%d" % (number, position), "later")
                if disturb in ("scan", "all"):
                    list(rows.scan(b"", None, reverse))
                if disturb in ("delete", "all"):
                    rows.put(b"%d" % number, None)
            if disturb in ("commit", "all"):
                commit(rows, backend)
    assert found == wanted


def test_a_scan_is_as_of_its_call_even_if_nothing_was_read_of_it(half_committed, backend):
    first, second = half_committed.scan(b"", None), half_committed.scan(b"4", None, reverse=True)
    for number in range(10):
        half_committed.put(b"%d" % number, None)
    commit(half_committed, backend)
    assert list(half_committed.scan(b"", None)) == []
    assert list(first) == ALL
    assert list(second) == ALL[:1:-1]


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_inside_a_scan_does_not_move_it(backend, reverse):
    rows = Rows(backend, "a", Text())
    wanted = [(b"%02d" % number, "new") for number in range(0, 60, 2)]
    for key, row in wanted:
        rows.put(key, row)
    found = []
    for key, row in rows.scan(b"", None, reverse):
        found.append((key, row))
        # One key, so that the buffer's order is changed in place, on either side of where the scan is.
        rows.put(b"%02d" % (int(key) + len(found) % 4 - 2), "later")
        assert list(rows.scan(b"", None, reverse))
    assert found == (wanted[::-1] if reverse else wanted)


def test_scans_given_up_cost_nothing_further(half_committed):
    for _ in range(3):
        next(half_committed.scan(b"", None))
        half_committed.scan(b"", None)
        list(half_committed.scan(b"", None))
    gc.collect()
    assert half_committed._views == []


# The estimate of what is to be committed.


def test_dirty_bytes_grow_with_the_rows_and_end_with_the_commit(backend):
    for codec, unit in ((Text(), lambda size: "x" * size), (Json(), lambda size: ["x" * size])):
        rows = Rows(backend, "a", codec)
        assert rows.dirty_bytes == 0
        rows.put(b"k", unit(10_000))
        assert 10_000 < rows.dirty_bytes < 11_000
        rows.put(b"k", unit(20_000))
        assert 20_000 < rows.dirty_bytes < 21_000
        rows.put(b"k", None)
        assert 0 < rows.dirty_bytes < 1_000
        commit(rows, backend)
        assert rows.dirty_bytes == 0


def test_dirty_bytes_of_many_rows_are_near_enough():
    rows = Rows(MemoryBackend(["a"]), "a", Text())
    for size in (100, 1000):
        for number in range(5000):
            rows.put(b"%04d" % number, "x" * size)
            if number % 100 == 0:
                # Asking often must not make it wrong.
                assert rows.dirty_bytes > 0
        assert 0.7 < rows.dirty_bytes / (5000 * (4 + size)) < 3
