"""The session store against a plain model of Kafka Streams' RocksDB session stores, in every place rows can be."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.state.session import SessionStore
from tests.state.places import PLACES
from tests.state.reopening import EXAMPLES, KEYS, STEPS, Listed, Reopening, Text, operations, times

STORES = SessionStore.backend_stores("s")


class Model:
    """Segments of rows by (end, start, serialised key), searched through from one end to the other."""

    def __init__(self, retention: int) -> None:
        self.retention = retention
        self.segment = max(retention // 2, 60_000)
        self.segments = {}
        self.observed = -1

    def put(self, key, start, end, row):
        self.observed = max(self.observed, end)
        oldest = max(0, self.observed - self.retention) // self.segment
        if end // self.segment < oldest:
            return False
        self.segments = {number: rows for number, rows in self.segments.items() if number >= oldest}
        self.segments.setdefault(end // self.segment, {})[end, start, key.encode()] = row
        return True

    def remove(self, key, start, end):
        self.observed = max(self.observed, end)
        self.segments.get(end // self.segment, {}).pop((end, start, key.encode()), None)

    def kept(self):
        rows = [item for rows in self.segments.values() for item in rows.items() if item[1] is not None]
        return sorted((end, start, key, row) for (end, start, key), row in rows)

    def readable(self):
        return [found for found in self.kept() if found[0] > self.observed - self.retention]

    def get(self, key, start, end):
        return next((row for *place, row in self.readable() if place == [end, start, key.encode()]), None)

    def find(self, key, earliest_end, latest_start):
        rows = [found for found in self.readable() if found[2] == key.encode()]
        return [(start, end, row) for end, start, _, row in rows if end >= earliest_end and start <= latest_start]

    def fetch(self, key):
        return self.find(key, 0, 2**63 - 1)

    def ended(self, lo, hi):
        return [(start, end, key.decode(), row) for end, start, key, row in self.kept() if lo <= end <= hi]

    def all(self):
        rows = sorted(self.readable(), key=lambda found: (found[2], found[0], found[1]))
        return [(key.decode(), start, end, row) for end, start, key, row in rows]


TIMES = times(10, 10, 10, 30_000)
SESSIONS = st.one_of(
    st.tuples(TIMES, TIMES).map(sorted), TIMES.map(lambda end: [end // 2, end]), TIMES.map(lambda end: [end, end])
)
BOUNDS = st.one_of(TIMES, st.integers(-300, -1), st.just(2**63 - 1))
ROWS = st.one_of(st.none(), st.lists(st.integers(0, 9), max_size=2))
PUTS = st.tuples(st.just("put"), KEYS, SESSIONS, ROWS).map(lambda step: (step[0], step[1], *step[2], step[3]))
OPERATIONS = operations(
    PUTS,
    PUTS,
    PUTS,
    st.tuples(st.just("remove"), KEYS, SESSIONS).map(lambda step: (step[0], step[1], *step[2])),
    st.tuples(st.just("get"), KEYS, SESSIONS).map(lambda step: (step[0], step[1], *step[2])),
    st.tuples(st.just("find"), KEYS, BOUNDS, BOUNDS),
    st.tuples(st.just("fetch"), KEYS),
    st.tuples(st.just("ended"), BOUNDS, BOUNDS),
    st.tuples(st.just("all")),
    STEPS,
)


@pytest.mark.parametrize("place", PLACES)
def test_equals_the_model(place):
    @settings(max_examples=EXAMPLES[place], deadline=None)
    @given(OPERATIONS, st.sampled_from([1, 50, 130_000]))
    def check(steps, retention):
        def make(backend):
            return SessionStore(backend, "s", Text(), Listed(), retention_ms=retention)

        model = Model(retention)
        with Reopening(place, STORES, make) as run:
            for name, *arguments in steps:
                if name in ("commit", "restart"):
                    run.do(name)
                elif name in ("put", "get", "remove"):
                    assert getattr(run.store, name)(*arguments) == getattr(model, name)(*arguments), (name, *arguments)
                else:
                    assert list(getattr(run.store, name)(*arguments)) == getattr(model, name)(*arguments)
            run.restart()
            assert list(run.store.ended(0, 2**63 - 1)) == model.ended(0, 2**63 - 1)
            assert len(list(run.backend.scan("s", b"", None))) == len(model.kept())
            assert len(list(run.backend.scan("s|time", b"", None))) == len(model.kept())

    check()


def test_only_ended_sees_sessions_past_the_retention_and_only_while_their_segment_lasts(backend_factory):
    store = SessionStore(backend_factory(STORES), "s", Text(), Text(), retention_ms=50)
    store.put("k", 0, 10, "old")
    store.put("k", 100, 200, "new")
    assert store.get("k", 0, 10) is None
    assert [row for *_, row in store.fetch("k")] == ["new"]
    assert [row for *_, row in store.ended(0, 300)] == ["old", "new"]
    store.put("k", 60_049, 60_049, "next segment, but the retention reaches into the first")
    assert [row for *_, row in store.ended(0, 300)] == ["old", "new"]
    assert store.put("k", 5, 5, "late") is True
    store.put("k", 60_050, 60_050, "past it")
    assert list(store.ended(0, 300)) == []
    assert store.put("k", 5, 5, "late") is False


def test_a_removal_moves_the_time_but_drops_no_segment(backend_factory):
    store = SessionStore(backend_factory(STORES), "s", Text(), Text(), retention_ms=50)
    store.put("k", 0, 10, "old")
    store.remove("k", 0, 200_000)
    assert list(store.fetch("k")) == []
    assert [row for *_, row in store.ended(0, 300)] == ["old"]
    assert store.put("k", 0, 11, "late") is False
    assert [row for *_, row in store.ended(0, 300)] == ["old"]


def test_sessions_that_end_together_come_by_start_then_key(backend_factory):
    store = SessionStore(backend_factory(STORES), "s", Text(), Text(), retention_ms=50)
    for key, start, end in [("b", 1, 9), ("a", 2, 9), ("a", 1, 9), ("z", 0, 8), ("a\0", 1, 9), ("c", 9, 9)]:
        store.put(key, start, end, "row")
    keys = [(end, start, key) for start, end, key, _ in store.ended(0, 9)]
    assert keys == [(8, 0, "z"), (9, 1, "a"), (9, 1, "a\0"), (9, 1, "b"), (9, 2, "a"), (9, 9, "c")]


def test_a_row_may_be_mutated_after_it_was_put_or_got(backend_factory):
    store = SessionStore(backend_factory(STORES), "s", Text(), Listed(), retention_ms=50)
    row = [1]
    store.put("k", 0, 5, row)
    row.append(2)
    store.get("k", 0, 5).append(3)
    next(store.fetch("k"))[2].append(4)
    next(store.ended(0, 9))[3].append(5)
    assert store.get("k", 0, 5) == [1]
