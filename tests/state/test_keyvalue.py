"""The key-value stores over every back end, by themselves and against a dictionary through commits and reopenings."""

import copy
from itertools import islice

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from headwater.state.keyvalue import KeyValueStore, TimestampedStore
from headwater.state.rows import Rows
from tests.state.codecs import Json, Text
from tests.state.places import PLACES
from tests.state.remote import RemoteBackend


def test_a_key_value_store(backend_factory):
    backend = backend_factory(KeyValueStore.backend_stores("names"))
    store = KeyValueStore(backend, "names", Text(), Json())
    assert store.get("b") is None
    for key in ("b", "", "c", "a", "ä", "bb"):
        store.put(key, [key])
    store.put("c", None)
    store.delete("a")
    store.delete("never there")
    assert store.get("b") == ["b"]
    assert [key for key, _ in store.all()] == ["", "b", "bb", "ä"]
    assert list(store.range("b", "bb")) == [("b", ["b"]), ("bb", ["bb"])]
    assert [key for key, _ in store.range(None, "b")] == ["", "b"]
    assert [key for key, _ in store.range("ba", None)] == ["bb", "ä"]
    assert list(store.range("bb", "b")) == []
    assert store.dirty_bytes > 0
    backend.write(store.drain())
    assert store.dirty_bytes == 0
    again = KeyValueStore(backend_factory(["names"]), "names", Text(), Json())
    assert list(again.all()) == [(key, [key]) for key in ("", "b", "bb", "ä")]


def test_a_timestamped_store(backend_factory):
    backend = backend_factory(TimestampedStore.backend_stores("names"))
    store = TimestampedStore(backend, "names", Text(), Json())
    store.put("a", [1], 10)
    store.put("b", [2], -1)
    store.put("c", [3], 30)
    store.put("c", None, 40)
    assert store.get("a") == ([1], 10)
    assert store.get("c") is None
    assert list(store.range("b", None)) == [("b", ([2], -1))]
    backend.write(store.drain())
    again = TimestampedStore(backend_factory(["names"]), "names", Text(), Json())
    assert list(again.all()) == [("a", ([1], 10)), ("b", ([2], -1))]
    again.delete("a")
    assert again.get("a") is None


def test_a_timestamped_row_is_the_one_kafka_streams_writes():
    backend = RemoteBackend(["names"])
    store = TimestampedStore(backend, "names", Text(), Text())
    store.put("k", "value", 1_700_000_000_000)
    assert store.drain() == {"names": {b"k": bytes.fromhex("0000018bcfe56800") + b"value"}}


@pytest.mark.parametrize("kind", [KeyValueStore, TimestampedStore])
def test_announced_keys_are_one_round_trip(kind):
    backend = RemoteBackend(["names"])
    store = kind(backend, "names", Text(), Text())
    store.prefetch([b"a", b"b", b"c"])
    assert [store.get(key) for key in "abc"] == [None] * 3
    assert backend.calls == {"get_many": 1}


@pytest.mark.parametrize("kind", [KeyValueStore, TimestampedStore])
def test_there_is_nothing_to_remember_but_rows(kind):
    store = kind(RemoteBackend(["names"]), "names", Text(), Text())
    store.remember(store.memory())
    assert store.memory() is None


# Thirteen, so that buffered, committed and scanned ones meet.
KEYS = st.text("a\0ä", max_size=2)
VALUES = st.one_of(st.text("xy", max_size=2), st.lists(st.integers(0, 9), max_size=2))


def in_order(model):
    return sorted(model.items(), key=lambda item: item[0].encode())


class Model(RuleBasedStateMachine):
    """A key-value store, a timestamped store and bare Rows with a tiny cache; plain dictionaries are the truth."""

    place_name: str

    def __init__(self):
        super().__init__()
        self.place = PLACES[self.place_name]()
        self.now = {"plain": {}, "stamped": {}, "bare": {}}
        self.committed = copy.deepcopy(self.now)
        self.scans = []

    @initialize()
    def open(self):
        self.backend = self.place.open(["plain", "stamped", "bare"])
        self.plain = KeyValueStore(self.backend, "plain", Text(), Json())
        self.stamped = TimestampedStore(self.backend, "stamped", Text(), Json())
        self.bare = Rows(self.backend, "bare", Json(), clean_rows=4)

    @rule(key=KEYS, value=st.none() | VALUES, timestamp=st.integers(-2, 2))
    def put(self, key, value, timestamp):
        self.plain.put(key, value)
        self.stamped.put(key, value, timestamp)
        self.bare.put(key.encode(), value)
        for name, row in (("plain", value), ("stamped", (value, timestamp)), ("bare", value)):
            if value is None:
                self.now[name].pop(key, None)
            else:
                self.now[name][key] = copy.deepcopy(row)
        if type(value) is list:
            value.append("mutated")

    @rule(rows=st.dictionaries(KEYS, st.none() | VALUES, min_size=4), timestamp=st.integers(-2, 2))
    def put_many(self, rows, timestamp):
        for key, value in rows.items():
            self.put(key, value, timestamp)

    @rule(key=KEYS)
    def delete(self, key):
        self.plain.delete(key)
        self.stamped.delete(key)
        self.bare.put(key.encode(), None)
        for model in self.now.values():
            model.pop(key, None)

    @rule(key=KEYS)
    def get(self, key):
        for store, name, raw in ((self.plain, "plain", key), (self.stamped, "stamped", key), (self.bare, "bare", key)):
            row = store.get(raw.encode() if store is self.bare else raw)
            assert row == self.now[name].get(key)
            if name != "stamped" and type(row) is list:
                row.append("mutated")

    @rule(keys=st.lists(KEYS, max_size=4))
    def prefetch(self, keys):
        for store in (self.plain, self.stamped, self.bare):
            store.prefetch(key.encode() for key in keys)

    @rule(lo=st.none() | KEYS, hi=st.none() | KEYS)
    def range(self, lo, hi):
        for store, name in ((self.plain, "plain"), (self.stamped, "stamped")):
            assert list(store.range(lo, hi)) == [
                (key, row)
                for key, row in in_order(self.now[name])
                if (lo is None or lo.encode() <= key.encode()) and (hi is None or key.encode() <= hi.encode())
            ]

    @rule(lo=KEYS, hi=st.none() | KEYS, reverse=st.booleans())
    def begin_scan(self, lo, hi, reverse):
        wanted = [
            (key.encode(), copy.deepcopy(row))
            for key, row in in_order(self.now["bare"])
            if lo.encode() <= key.encode() and (hi is None or key.encode() < hi.encode())
        ]
        scan = self.bare.scan(lo.encode(), None if hi is None else hi.encode(), reverse)
        self.scans.append((scan, iter(wanted[::-1] if reverse else wanted)))

    @precondition(lambda self: self.scans)
    @rule(which=st.integers(0, 9), count=st.integers(1, 4))
    def continue_scan(self, which, count):
        scan, wanted = self.scans[which % len(self.scans)]
        assert list(islice(scan, count)) == list(islice(wanted, count))

    @precondition(lambda self: self.scans)
    @rule(which=st.integers(0, 9))
    def end_scan(self, which):
        scan, wanted = self.scans.pop(which % len(self.scans))
        assert list(scan) == list(wanted)

    @rule()
    def commit(self):
        self.backend.write({**self.plain.drain(), **self.stamped.drain(), "bare": self.bare.drain()})
        self.committed = copy.deepcopy(self.now)

    @rule(how=st.sampled_from(["crash", "commit"]))
    def reopen(self, how):
        if how == "commit":
            self.commit()
        self.scans.clear()
        self.now = copy.deepcopy(self.committed)
        self.open()

    @invariant()
    def uncommitted_rows_stay_here(self):
        for name, model in self.committed.items():
            keys = [key.encode() for key, _ in in_order(model)]
            assert [key for key, _ in self.backend.scan(name, b"", None)] == keys

    def teardown(self):
        self.scans.clear()
        self.place.leave()


@pytest.mark.parametrize("place", PLACES)
def test_the_stores_equal_dictionaries(place):
    machine = type(place.title(), (Model,), {"place_name": place})
    # A database is made and removed for each example, and opened again several times.
    examples = 25 if place == "rocks" else 150
    run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=50, deadline=None))
