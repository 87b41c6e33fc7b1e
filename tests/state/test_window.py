"""The window store against a plain model of Kafka Streams' RocksDB window stores, in every place rows can be."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import StreamsError
from headwater.state.codec import Timestamped
from headwater.state.window import WindowStore
from tests.state.places import PLACES
from tests.state.reopening import EXAMPLES, KEYS, STEPS, Reopening, Text, operations, times

STORES = WindowStore.backend_stores("w")


class Model:
    """Segments of rows by (serialised key, start, sequence), searched through from one end to the other."""

    def __init__(self, retention: int, duplicates: bool, time_ordered: bool) -> None:
        self.retention, self.duplicates, self.time_ordered = retention, duplicates, time_ordered
        self.segment = max(retention // 2, 60_000)
        self.segments = {}
        self.observed = -1
        self.sequence = 0

    def put(self, key, row, start):
        if self.duplicates and row is None:
            return True
        self.sequence += self.duplicates
        self.observed = max(self.observed, start)
        oldest = max(0, self.observed - self.retention) // self.segment
        if start // self.segment < oldest:
            return False
        self.segments = {number: rows for number, rows in self.segments.items() if number >= oldest}
        self.segments.setdefault(start // self.segment, {})[key.encode(), start, self.sequence] = row
        return True

    def rows(self):
        first = self.observed - self.retention + (not self.time_ordered)
        rows = [item for rows in self.segments.values() for item in rows.items() if item[1] is not None]
        return sorted((place, row) for place, row in rows if place[1] >= first)

    def get(self, key, start):
        return dict(self.rows()).get((key.encode(), start, self.sequence))

    def fetch(self, key, lo, hi):
        return [(start, row) for (found, start, _), row in self.rows() if found == key.encode() and lo <= start <= hi]

    def fetch_all(self, lo, hi):
        rows = sorted((start, key, number, row) for (key, start, number), row in self.rows() if lo <= start <= hi)
        return [(start, key.decode(), row) for start, key, _, row in rows]

    def all(self):
        return [(key.decode(), start, row) for (key, start, _), row in self.rows()]


TIMES = times(10, 10, 10, 30_000)
ROWS = st.one_of(st.none(), st.tuples(st.text(max_size=3), st.integers(0, 99)))
BOUNDS = st.one_of(TIMES, st.integers(-300, -1), st.just(2**63 - 1))
OPERATIONS = operations(
    st.tuples(st.just("put"), KEYS, ROWS, TIMES),
    st.tuples(st.just("put"), KEYS, ROWS, TIMES),
    st.tuples(st.just("put"), KEYS, ROWS, TIMES),
    st.tuples(st.just("get"), KEYS, TIMES),
    st.tuples(st.just("fetch"), KEYS, BOUNDS, BOUNDS),
    st.tuples(st.just("fetch_all"), BOUNDS, BOUNDS),
    st.tuples(st.just("all")),
    STEPS,
)


@pytest.mark.parametrize("place", PLACES)
def test_equals_the_model(place):
    @settings(max_examples=EXAMPLES[place], deadline=None)
    @given(OPERATIONS, st.sampled_from([1, 70, 130_000]), st.booleans(), st.booleans())
    def check(steps, retention, duplicates, time_ordered):
        def make(backend):
            return WindowStore(
                backend, "w", Text(), Timestamped(Text()),
                retention_ms=retention, duplicates=duplicates, time_ordered=time_ordered,
            )  # fmt: skip

        model = Model(retention, duplicates, time_ordered)
        with Reopening(place, STORES, make) as run:
            for name, *arguments in steps:
                if name in ("commit", "restart"):
                    run.do(name)
                elif name in ("put", "get"):
                    assert getattr(run.store, name)(*arguments) == getattr(model, name)(*arguments), (name, *arguments)
                else:
                    assert list(getattr(run.store, name)(*arguments)) == getattr(model, name)(*arguments)
                if name == "fetch":
                    assert list(run.store.fetch(*arguments, reverse=True)) == model.fetch(*arguments)[::-1]
            run.restart()
            assert list(run.store.all()) == model.all()
            # What no read can reach any more is not kept either: nothing is older than the oldest segment.
            kept = {start for segment in model.segments.values() for _, start, _ in segment}
            times = [int.from_bytes(key[:8]) for key, _ in run.backend.scan("w|time", b"", None)]
            assert kept.issuperset(times)
            assert len(times) == len(list(run.backend.scan("w", b"", None)))

    check()


def test_get_and_put_by_a_row_key_made_once(backend_factory):
    store = WindowStore(backend_factory(STORES), "w", Text(), Text(), retention_ms=50)
    row_key = store.row_key("k", 10)
    assert store.read(row_key, 10) is None
    assert store.write(row_key, "one", 10)
    assert store.get("k", 10) == store.read(row_key, 10) == "one"
    assert store.put("k", "two", 60)
    assert store.read(row_key, 10) is None


def test_the_row_at_the_limit_is_readable_in_a_time_ordered_store_only(backend_factory):
    seen = {}
    for time_ordered in (False, True):
        name = f"w{time_ordered}"
        backend = backend_factory(WindowStore.backend_stores(name))
        store = WindowStore(backend, name, Text(), Text(), retention_ms=70, time_ordered=time_ordered)
        for start in (29, 30, 31, 100):
            store.put("k", "row", start)
        seen[time_ordered] = [start for start, *_ in store.fetch_all(0, 99)]
        assert [start for start, _ in store.fetch("k", 0, 99)] == seen[time_ordered]
        assert [start for _, start, _ in store.all()] == [*seen[time_ordered], 100]
    assert seen == {False: [31], True: [30, 31]}


def test_an_update_writes_no_second_row_to_the_index(backend_factory):
    backend = backend_factory(STORES)
    store = WindowStore(backend, "w", Text(), Text(), retention_ms=50)
    store.put("k", "one", 10)
    backend.write(store.drain())
    store.put("k", "two", 10)
    assert store.drain() == {"w": {store.row_key("k", 10): b"two"}, "w|time": {}}


def test_a_row_that_cannot_be_encoded_leaves_the_store_as_it_was(backend_factory):
    store = WindowStore(backend_factory(STORES), "w", Text(), Text(), retention_ms=50)
    with pytest.raises(TypeError):
        store.put("k", 5, 10)
    assert list(store.all()) == list(store.fetch_all(0, 100)) == []
    assert not any(store.drain().values())


def test_rows_by_time_are_read_in_portions(backend_factory):
    backend = backend_factory(STORES)
    store = WindowStore(backend, "w", Text(), Text(), retention_ms=5000)
    for start in range(600):
        store.put("k", str(start), start)
    backend.write(store.drain())
    backend = backend_factory(STORES)
    store = WindowStore(backend, "w", Text(), Text(), retention_ms=5000)
    store.remember((599, 0))
    assert [row for _, _, row in store.fetch_all(0, 599)] == [str(start) for start in range(600)]
    if hasattr(backend, "calls"):
        assert backend.calls == {"scan": 1, "get_many": 3}


def test_duplicates_put_after_a_restart_do_not_replace_those_before(backend_factory):
    backend = backend_factory(STORES)
    store = WindowStore(backend, "w", Text(), Text(), retention_ms=50, duplicates=True)
    store.put("k", "one", 10)
    backend.write(store.drain())
    restarted = WindowStore(backend_factory(STORES), "w", Text(), Text(), retention_ms=50, duplicates=True)
    restarted.remember(store.memory())
    restarted.put("k", "two", 10)
    assert list(restarted.fetch("k", 0, 20)) == [(10, "one"), (10, "two")]
    assert restarted.get("k", 10) == "two"


def test_a_window_deleted_and_put_again_is_read_by_time(backend_factory):
    store = WindowStore(backend_factory(STORES), "w", Text(), Text(), retention_ms=50)
    for row in ("one", None, "two"):
        store.put("k", row, 10)
    assert list(store.fetch_all(0, 20)) == [(10, "k", "two")]


def test_putting_and_deleting_while_iterating_is_safe(backend_factory):
    backend = backend_factory(STORES)
    store = WindowStore(backend, "w", Text(), Text(), retention_ms=5000)
    for start in range(10):
        store.put("k", "row", start)
        if start == 4:
            backend.write(store.drain())
    seen = []
    for start, key, _ in store.fetch_all(0, 9):
        seen.append(start)
        store.put(key, None, start)
        store.put("later", "row", start)
    assert seen == list(range(10))
    assert [key for key, _, _ in store.all()] == ["later"] * 10


def test_a_negative_start_is_refused():
    store = WindowStore(PLACES["memory"]().open(STORES), "w", Text(), Text(), retention_ms=50)
    assert store.get("k", -1) is None
    with pytest.raises(StreamsError, match="-1"):
        store.put("k", "row", -1)
