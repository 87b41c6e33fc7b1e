"""The versioned store against a model without segments or chains, in every place rows can be."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.state.versioned import EXPIRED, VersionedStore
from tests.state.places import PLACES
from tests.state.reopening import EXAMPLES, KEYS, STEPS, Listed, Reopening, Text, operations, times

STORES = VersionedStore.backend_stores("v")


class Model:
    """A latest version for each key, the intervals of those before it, the moments of deletions that ended nothing."""

    def __init__(self, retention: int) -> None:
        self.retention = retention
        self.observed = -1
        self.latest = {}
        self.past = {}
        self.moments = {}

    def put(self, key, value, timestamp):
        if timestamp < self.observed - self.retention:
            return EXPIRED
        self.observed = max(self.observed, timestamp)
        latest, past, moments = self.latest.get(key), self.past.setdefault(key, []), self.moments.setdefault(key, set())
        if latest is not None and timestamp >= latest[1]:
            if timestamp > latest[1]:
                past.append((latest[1], timestamp, latest[0]))
            self._set_latest(key, value, timestamp)
            return None
        for place, (begin, end, before) in enumerate(past):
            if begin <= timestamp < end:
                past[place] = (timestamp, end, value)
                if begin < timestamp:
                    past.append((begin, timestamp, before))
                return end
        bounds = {bound for begin, end, _ in past for bound in (begin, end)} | moments
        end = min((bound for bound in bounds | ({latest[1]} if latest else set()) if bound > timestamp), default=None)
        if end is not None:
            past.append((timestamp, end, value))
        elif value is None:
            moments.add(timestamp)
        else:
            self._set_latest(key, value, timestamp)
        return end

    def _set_latest(self, key, value, timestamp):
        if value is None:
            del self.latest[key]
        else:
            self.latest[key] = (value, timestamp)

    def get(self, key, as_of):
        latest = self.latest.get(key)
        if latest is not None and (as_of is None or latest[1] <= as_of):
            return (*latest, None)
        if as_of is None or as_of < self.observed - self.retention:
            return None
        for begin, end, value in self.past.get(key, ()):
            if begin <= as_of < end and value is not None:
                return value, begin, end
        return None

    def all(self):
        return sorted(self.latest.items(), key=lambda item: item[0].encode())


# The segments of a retention of 100 ms are 2 s long, those of 9 s 3 s.
TIMES = times(10, 1_000, 1_000)
VALUES = st.one_of(st.none(), st.lists(st.integers(0, 9), max_size=2))
FEW_KEYS = st.one_of(st.just("k"), st.just("k"), KEYS)
OPERATIONS = operations(
    st.tuples(st.just("put"), FEW_KEYS, VALUES, TIMES),
    st.tuples(st.just("put"), FEW_KEYS, VALUES, TIMES),
    st.tuples(st.just("put"), FEW_KEYS, VALUES, TIMES),
    st.tuples(st.just("get"), FEW_KEYS, st.one_of(st.none(), TIMES, st.just(-1), st.just(2**63 - 1))),
    STEPS,
)


@pytest.mark.parametrize("place", PLACES)
def test_equals_the_model(place):
    @settings(max_examples=EXAMPLES[place], deadline=None)
    @given(OPERATIONS, st.sampled_from([0, 100, 9_000, 50_000]))
    def check(steps, retention):
        def make(backend):
            return VersionedStore(backend, "v", Text(), Listed(), retention_ms=retention)

        model = Model(retention)
        with Reopening(place, STORES, make) as run:
            for name, *arguments in steps:
                if name in ("commit", "restart"):
                    run.do(name)
                else:
                    assert getattr(run.store, name)(*arguments) == getattr(model, name)(*arguments), (name, *arguments)
            moments = {step[3] for step in steps if step[0] == "put"}
            for as_of in moments | {moment - 1 for moment in moments}:
                for key in {step[1] for step in steps if step[0] == "put"}:
                    assert run.store.get(key, as_of) == model.get(key, as_of), (key, as_of)
            run.restart()
            assert list(run.store.all()) == model.all()

    check()


def put_all(store, *versions):
    return [store.put("k", value, timestamp) for value, timestamp in versions]


@pytest.fixture
def store(backend_factory):
    return VersionedStore(backend_factory(STORES), "v", Text(), Text(), retention_ms=100)


def test_put_tells_whether_a_version_is_the_latest_and_else_when_it_ended(store):
    assert put_all(store, ("a", 10), ("c", 30), ("b", 20), ("d", 30), ("old", 5)) == [None, None, 30, None, 10]
    assert [store.get("k", time) for time in (4, 5, 15, 25, 99)] == [
        None, ("old", 5, 10), ("a", 10, 20), ("b", 20, 30), ("d", 30, None),
    ]  # fmt: skip


def test_an_older_deletion_ends_the_version_before_it_and_leaves_the_latest(store):
    assert put_all(store, ("a", 10), ("b", 30), (None, 20)) == [None, None, 30]
    assert [store.get("k", time) for time in (15, 20, 30)] == [("a", 10, 20), None, ("b", 30, None)]


def test_a_put_older_than_the_retention_is_refused_and_a_look_further_back_finds_only_the_latest(store):
    assert put_all(store, ("a", 10), ("b", 20)) == [None, None]
    store.put("other", "x", 120)
    assert store.put("k", "late", 20) is None
    assert store.put("k", "too late", 19) == EXPIRED
    assert store.get("k", 20) == store.get("k") == ("late", 20, None)
    assert store.get("k", 19) is None
    store.put("other", "x", 5_000)
    assert store.get("k", 20) == ("late", 20, None)


def test_a_deletion_at_the_timestamp_of_the_only_version_leaves_no_trace(store):
    assert put_all(store, ("a", 10), (None, 10), ("older", 5)) == [None, None, None]
    assert store.get("k", 50) == ("older", 5, None)


def test_a_deletion_at_the_timestamp_of_the_latest_version_stays_where_another_ended(store):
    assert put_all(store, ("first", 2), ("a", 10), (None, 10), ("older", 5)) == [None, None, None, 10]
    assert store.get("k", 50) is None


def test_a_deletion_of_nothing_ends_what_comes_later_and_is_older(store):
    assert put_all(store, (None, 10), ("older", 5)) == [None, 10]
    assert [store.get("k", time) for time in (5, 10)] == [("older", 5, 10), None]


def test_history_is_deleted_with_its_segment(backend_factory):
    backend = backend_factory(STORES)
    store = VersionedStore(backend, "v", Text(), Text(), retention_ms=100)

    def history_after(value, timestamp):
        store.put("k", value, timestamp)
        backend.write(store.drain())
        return [int.from_bytes(key[:8]) for key, _ in backend.scan("v|history", b"", None)]

    assert [history_after("a", 10), history_after("b", 1_999), history_after("c", 2_000)] == [[], [0], [0, 1]]
    assert history_after("d", 2_099) == [0, 1]
    assert history_after("e", 2_100) == [1]


def test_a_look_into_the_history_is_one_round_trip_for_all_segments(backend_factory):
    backend = backend_factory(STORES)
    store = VersionedStore(backend, "v", Text(), Text(), retention_ms=9_000)
    put_all(store, *((str(time), time) for time in range(0, 9_000, 500)))
    backend.write(store.drain())
    backend = backend_factory(STORES)
    store = VersionedStore(backend, "v", Text(), Text(), retention_ms=9_000)
    store.remember((8_500,))
    assert store.get("k", 700) == ("500", 500, 1_000)
    if hasattr(backend, "calls"):
        assert backend.calls == {"get_many": 2}


def test_a_value_that_cannot_be_encoded_changes_nothing(store):
    put_all(store, ("a", 10), ("c", 30))
    for timestamp in (20, 30, 40):
        with pytest.raises(TypeError):
            store.put("k", 5, timestamp)
    assert [store.get("k", time) for time in (20, 99)] == [("a", 10, 30), ("c", 30, None)]
