"""What every back end owes, and what only RocksDB can get wrong."""

import itertools
import json
import signal
import subprocess
import sys
from bisect import bisect_left

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rocksdict import Options, Rdict

from headwater.errors import StateError, StreamsError
from headwater.state import rocks
from headwater.state.rocks import RocksBackend
from tests.state.places import PLACES

# Few and short, so that they meet; with both ends of the unsigned order, and one the start of another.
KEYS = st.binary(max_size=3).map(lambda raw: bytes((0, 1, 97, 127, 128, 255)[byte % 6] for byte in raw))


def test_rows_come_in_the_order_of_the_keys_asked_for(backend):
    backend.write({"a": {b"1": b"one", b"2": b"two"}})
    assert backend.get_many("a", [b"2", b"3", b"1", b"2"]) == [b"two", None, b"one", b"two"]
    assert backend.get_many("a", (b"1",)) == [b"one"]
    assert backend.get_many("a", (b"3",)) == [None]
    assert backend.get_many("a", []) == []


def test_empty_keys_and_empty_rows_are_rows(backend):
    backend.write({"a": {b"": b"", b"x": b""}})
    assert backend.get_many("a", [b"", b"x", b"y"]) == [b"", b"", None]
    assert list(backend.scan("a", b"", None)) == [(b"", b""), (b"x", b"")]
    assert list(backend.scan("a", b"", None, reverse=True)) == [(b"x", b""), (b"", b"")]


def test_stores_are_apart(backend):
    backend.write({"a": {b"k": b"a"}, "b": {b"k": b"b", b"l": b"b"}})
    assert list(backend.scan("a", b"", None)) == [(b"k", b"a")]
    backend.write({"b": {b"k": None}})
    assert backend.get_many("a", [b"k"]) == [b"a"]
    assert list(backend.scan("b", b"", None)) == [(b"l", b"b")]


def test_deleting_what_is_not_there_is_no_fault(backend):
    backend.write({"a": {b"k": None}})
    assert backend.get_many("a", [b"k"]) == [None]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("lo", "hi"), [(b"b", b"b"), (b"c", b"b"), (b"d", None), (b"", b""), (b"b\0", b"c")])
def test_a_range_without_keys_is_empty(backend, lo, hi, reverse):
    backend.write({"a": {b"a": b"1", b"b": b"2", b"c": b"3"}})
    assert list(backend.scan("a", lo, hi, reverse)) == []


def test_an_unknown_store_is_named(backend):
    for ask in (
        lambda: backend.get_many("c", [b"k"]),
        lambda: backend.get_many("c", [b"k", b"l"]),
        lambda: backend.scan("c", b"", None),
        lambda: backend.write({"c": {}}),
    ):
        with pytest.raises(StreamsError, match="no store 'c' here, only a, b"):
            ask()


def test_a_batch_that_fails_writes_nothing(backend):
    with pytest.raises(StreamsError):
        backend.write({"a": {b"k": b"1"}, "c": {b"k": b"1"}})
    assert backend.get_many("a", [b"k"]) == [None]


def test_opened_again_at_once_it_has_the_same_rows(backend_factory):
    backend = backend_factory(["a", "b"])
    for turn in range(3):
        backend.write({"a": {b"%d" % turn: b"row"}, "b": {b"last": b"%d" % turn}})
        backend = backend_factory(["a", "b"])
    assert list(backend.scan("a", b"", None)) == [(b"0", b"row"), (b"1", b"row"), (b"2", b"row")]
    assert backend.get_many("b", [b"last"]) == [b"2"]


def test_closing_twice_is_closing_once(backend):
    backend.close()
    backend.close()


@pytest.mark.parametrize("place", PLACES)
@settings(max_examples=40, deadline=None)
@given(
    batches=st.lists(st.dictionaries(KEYS, st.none() | st.binary(max_size=3), max_size=12), max_size=4),
    lo=KEYS,
    hi=st.none() | KEYS,
)
def test_scans_equal_a_sorted_dictionary(place, batches, lo, hi):
    place = PLACES[place]()
    try:
        backend = place.open(["s"])
        model = {}
        for batch in batches:
            backend.write({"s": batch})
            model.update(batch)
        rows = sorted((key, row) for key, row in model.items() if row is not None)
        wanted = rows[bisect_left(rows, (lo,)) : None if hi is None else bisect_left(rows, (hi,))]
        assert list(backend.scan("s", lo, hi)) == wanted
        assert list(backend.scan("s", lo, hi, True)) == wanted[::-1]
    finally:
        place.leave()


# RocksDB alone.


def test_names_a_database_could_take_for_its_own(tmp_path):
    names = ["default", "store:default", "counts|time", "größe"]
    backend = RocksBackend(tmp_path, names)
    backend.write({name: {b"k": name.encode()} for name in names})
    backend.close()
    backend = RocksBackend(tmp_path, reversed(names))
    assert [backend.get_many(name, [b"k"]) for name in names] == [[name.encode()] for name in names]
    backend.close()


def test_a_scan_left_open_does_not_keep_the_database_locked(tmp_path):
    backend = RocksBackend(tmp_path, ["a"])
    backend.write({"a": {b"1": b"", b"2": b""}})
    scans = [backend.scan("a", b"", None), backend.scan("a", b"", None, reverse=True)]
    assert [next(scan)[0] for scan in scans] == [b"1", b"2"]
    backend.close()
    again = RocksBackend(tmp_path, ["a"])
    for scan in scans:
        with pytest.raises(StreamsError, match="closed before the scan"):
            next(scan)
    again.close()


def test_after_closing_nothing_works_and_says_so(tmp_path):
    backend = RocksBackend(tmp_path, ["a"])
    backend.close()
    for ask in (
        lambda: backend.get_many("a", [b"k"]),
        lambda: backend.scan("a", b"", None),
        lambda: backend.write({"a": {b"k": b""}}),
        lambda: backend.write({}),
    ):
        with pytest.raises(StreamsError, match="is closed"):
            ask()


def test_two_at_once_are_refused(tmp_path):
    backend = RocksBackend(tmp_path, ["a"])
    with pytest.raises(StateError, match="cannot be opened"):
        RocksBackend(tmp_path, ["a"])
    backend.close()
    RocksBackend(tmp_path, ["a"]).close()


@pytest.mark.parametrize("stores", [["a"], ["a", "b", "c"], ["a", "c"], []])
def test_another_set_of_stores_is_refused_and_changes_nothing(tmp_path, stores):
    backend = RocksBackend(tmp_path, ["a", "b"])
    backend.write({"a": {b"k": b"row"}})
    backend.close()
    with pytest.raises(StateError, match="another topology's") as refusal:
        RocksBackend(tmp_path, stores)
    for name in {"a", "b"} ^ set(stores):
        assert repr(name) in str(refusal.value)
    assert sorted(Rdict.list_cf(str(tmp_path))) == ["default", "store:a", "store:b"]
    backend = RocksBackend(tmp_path, ["b", "a"])
    assert backend.get_many("a", [b"k"]) == [b"row"]
    backend.close()


def test_another_layout_version_is_refused(tmp_path, monkeypatch):
    RocksBackend(tmp_path, ["a"]).close()
    monkeypatch.setattr(rocks, "LAYOUT_VERSION", 99)
    with pytest.raises(StateError, match="version 1, not 99"):
        RocksBackend(tmp_path, ["a"])
    monkeypatch.undo()
    RocksBackend(tmp_path, ["a"]).close()


def _made_by_hand(path, families):
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    return Rdict(str(path), options, {family: Options(raw_mode=True) for family in families})


def test_a_database_whose_making_was_interrupted_is_finished(tmp_path):
    _made_by_hand(tmp_path, ["store:a"]).close()
    backend = RocksBackend(tmp_path, ["a", "b"])
    backend.write({"b": {b"k": b"row"}})
    backend.close()
    backend = RocksBackend(tmp_path, ["a", "b"])
    assert backend.get_many("b", [b"k"]) == [b"row"]
    backend.close()


def test_a_database_of_something_else_is_refused(tmp_path):
    _made_by_hand(tmp_path, ["users"]).close()
    with pytest.raises(StateError, match="not one of Headwater's"):
        RocksBackend(tmp_path, ["a"])


def test_a_layout_that_is_not_readable_is_refused(tmp_path):
    database = _made_by_hand(tmp_path, ["store:a"])
    database[b"layout"] = json.dumps({"version": 1})[:-1].encode()
    database.close()
    with pytest.raises(StateError, match="cannot be opened"):
        RocksBackend(tmp_path, ["a"])


def test_written_rows_survive_a_kill(tmp_path):
    script = f"""
import os, signal
from headwater.state.rocks import RocksBackend
backend = RocksBackend({str(tmp_path)!r}, ["a", "b"])
for turn in range(100):
    backend.write({{"a": {{b"%d" % turn: b"row"}}, "b": {{b"last": b"%d" % turn}}}})
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -signal.SIGKILL
    backend = RocksBackend(tmp_path, ["a", "b"])
    assert len(list(backend.scan("a", b"", None))) == 100
    assert backend.get_many("b", [b"last"]) == [b"99"]
    backend.close()


def test_all_databases_of_a_process_share_one_bound(tmp_path):
    _, write_buffers = rocks._shared_memory()
    backends = [RocksBackend(tmp_path / str(number), ["a", "b"]) for number in range(3)]
    used = [write_buffers.get_usage()]
    for backend in backends:
        backend.write({"a": {b"%d" % number: bytes(1000) for number in range(1000)}})
        used.append(write_buffers.get_usage())
    assert all(after - before > 900_000 for before, after in itertools.pairwise(used))
    for backend in backends:
        backend.close()
