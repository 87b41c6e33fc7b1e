"""The buffers of suppress, of joins with grace, of outer joins and of foreign-key joins against plain models, in every
place rows can be."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.state.buffers import Change, ChangeBuffer, Context, GraceBuffer, Waiting
from headwater.state.layout import Raw
from headwater.state.subscriptions import SubscriptionStore
from headwater.state.unmatched import UnmatchedStore
from tests.state.places import PLACES
from tests.state.reopening import EXAMPLES, KEYS, STEPS, Listed, Reopening, Text, operations

BYTES = KEYS.map(str.encode)
TIMES = st.integers(0, 12)
SOME = st.sampled_from([b"", b"x", b"yy", b"\0"])
VALUES = st.one_of(st.none(), SOME)
HEADERS = st.lists(st.tuples(st.sampled_from(["h", "ü𝄞"]), st.one_of(st.none(), st.just(b"12"))), max_size=2).map(tuple)
CONTEXTS = st.builds(
    Context, TIMES, HEADERS, st.sampled_from([None, "topic", "日本"]), st.integers(0, 3), st.integers(0, 2**40)
)


# What suppress keeps.


class ChangeModel:
    """Changes by key with their place in order, searched through for the first."""

    def __init__(self) -> None:
        self.held = {}

    def put(self, time, key, new, old, context):
        place, prior = (self.held[key][0], self.held[key][1].prior) if key in self.held else ((time, key), old)
        self.held[key] = (place, Change(new, old, prior, context))

    def first(self):
        (_, key), change = min(self.held.values(), key=lambda held: held[0])
        return key, change

    def pop(self):
        key, change = self.first()
        del self.held[key]
        return key, change

    def byte_size(self):
        size = 0
        for (_, key), change in self.held.values():
            values = [change.new, change.prior, None if change.old == change.prior else change.old]
            texts = [change.context.topic or "", *(name for name, _ in change.context.headers)]
            size += 8 + len(key) + 8 + 8 + 4
            size += sum(len(value) for value in values + [value for _, value in change.context.headers] if value)
            size += sum(2 if ord(character) > 0xFFFF else 1 for text in texts for character in text)
        return size


CHANGES = operations(
    st.tuples(st.just("put"), TIMES, BYTES, VALUES, VALUES, CONTEXTS),
    st.tuples(st.just("put"), TIMES, BYTES, VALUES, VALUES, CONTEXTS),
    st.tuples(st.just("pop")),
    STEPS,
)


@pytest.mark.parametrize("place", PLACES)
def test_a_change_buffer_equals_the_model(place):
    @settings(max_examples=EXAMPLES[place], deadline=None)
    @given(CHANGES)
    def check(steps):
        model = ChangeModel()
        with Reopening(place, ChangeBuffer.backend_stores("c"), lambda backend: ChangeBuffer(backend, "c")) as run:
            for name, *arguments in steps:
                if name in ("commit", "restart"):
                    run.do(name)
                elif name == "put":
                    assert run.store.get(arguments[1]) == model.held.get(arguments[1], (None, None))[1]
                    run.store.put(*arguments)
                    model.put(*arguments)
                elif model.held:
                    assert run.store.pop() == model.pop()
                assert len(run.store) == len(model.held)
                assert run.store.byte_size == model.byte_size()
                assert run.store.min_time == min((held[0][0] for held in model.held.values()), default=2**63 - 1)
                if model.held:
                    assert run.store.first() == model.first()
            run.restart()
            while model.held:
                assert run.store.pop() == model.pop()
            run.commit()
            assert list(run.backend.scan("c", b"", None)) == []

    check()


def test_the_size_of_a_change_is_kafka_streams_estimate(backend_factory):
    buffer = ChangeBuffer(backend_factory(["c"]), "c")
    # 8 time, 3 key, 8 timestamp, 8 offset, 4 partition, 5 topic, 4 + 2 header, 2 new, 7 old, which is the prior value.
    buffer.put(0, b"key", b"22", b"7777777", Context(1, (("name", b"vv"),), "topic", 0, 9))
    assert buffer.byte_size == 51
    # Now the prior value differs from the old one, and there are neither headers nor a topic.
    buffer.put(0, b"key", None, b"22", Context(2))
    assert buffer.byte_size == 8 + 3 + 20 + 7 + 2


def test_what_comes_and_goes_between_two_commits_is_not_written(backend_factory):
    buffer = ChangeBuffer(backend_factory(["c"]), "c")
    buffer.put(0, b"key", b"new", None, Context(1))
    assert buffer.dirty_bytes > 0
    buffer.pop()
    assert buffer.drain() == {"c": {}}
    assert buffer.dirty_bytes == 0


# What a join with grace keeps.


class GraceModel:
    """Records in a list, sorted at each look."""

    def __init__(self, grace: int) -> None:
        self.grace = grace
        self.observed = -1
        self.sequence = 0
        self.held = []

    def put(self, key, value, context):
        if self.observed - self.grace > context.timestamp:
            return False
        self.observed = max(self.observed, context.timestamp)
        self.sequence += 1
        # Kafka Streams compares the key with the sequence behind it, as bytes.
        self.held.append((context.timestamp, key + self.sequence.to_bytes(4), Waiting(key, value, context)))
        return True

    def evict(self):
        self.held.sort()
        due = [held for held in self.held if held[0] <= self.observed - self.grace]
        del self.held[: len(due)]
        return [waiting for *_, waiting in due]


RECORDS = operations(
    st.tuples(st.just("put"), BYTES, SOME, CONTEXTS),
    st.tuples(st.just("put"), BYTES, SOME, CONTEXTS),
    st.tuples(st.just("evict")),
    STEPS,
)


@pytest.mark.parametrize("place", PLACES)
def test_a_grace_buffer_equals_the_model(place):
    @settings(max_examples=EXAMPLES[place], deadline=None)
    @given(RECORDS, st.sampled_from([0, 3, 9]))
    def check(steps, grace):
        def make(backend):
            return GraceBuffer(backend, "g", grace_ms=grace)

        model = GraceModel(grace)
        with Reopening(place, GraceBuffer.backend_stores("g"), make) as run:
            for name, *arguments in steps:
                if name in ("commit", "restart"):
                    run.do(name)
                elif name == "put":
                    assert run.store.put(*arguments) == model.put(*arguments)
                else:
                    assert list(run.store.evict()) == model.evict()
                assert len(run.store) == len(model.held)
            run.restart()
            run.store.put(b"last", b"", Context(1_000))
            model.put(b"last", b"", Context(1_000))
            assert list(run.store.evict()) == model.evict()

    check()


def test_a_record_exactly_the_grace_old_is_taken_and_is_due_at_once(backend_factory):
    buffer = GraceBuffer(backend_factory(["g"]), "g", grace_ms=20)
    assert buffer.put(b"k", b"young", Context(30))
    assert buffer.put(b"k", b"at the limit", Context(10))
    assert not buffer.put(b"k", b"too old", Context(9))
    assert [waiting.value for waiting in buffer.evict()] == [b"at the limit"]


# What an outer join keeps.

UNMATCHED = operations(
    st.tuples(st.just("put"), TIMES, st.booleans(), KEYS, st.integers(0, 9)),
    st.tuples(st.just("put"), TIMES, st.booleans(), KEYS, st.integers(0, 9)),
    st.tuples(st.just("remove_all"), TIMES, st.booleans(), KEYS),
    st.tuples(st.just("look"), TIMES),
    STEPS,
)


@pytest.mark.parametrize("place", PLACES)
def test_an_unmatched_store_equals_the_model(place):
    @settings(max_examples=EXAMPLES[place], deadline=None)
    @given(UNMATCHED)
    def check(steps):
        def make(backend):
            return UnmatchedStore(backend, "u", Text(), Listed(), Text())

        held = []

        def expected():
            return [
                (timestamp, is_left, key, value)
                for timestamp, is_left, key, value in sorted(held, key=lambda row: (*row[:2], row[2].encode()))
            ]

        with Reopening(place, UnmatchedStore.backend_stores("u"), make) as run:
            for name, *arguments in steps:
                if name in ("commit", "restart"):
                    run.do(name)
                elif name == "put":
                    timestamp, is_left, key, number = arguments
                    value = [number] if is_left else str(number)
                    run.store.put(timestamp, is_left, key, value)
                    held.append((timestamp, is_left, key, value))
                elif name == "remove_all":
                    run.store.remove_all(*arguments)
                    held = [row for row in held if row[:3] != tuple(arguments)]
                else:
                    # As a join looks for closed rows: what is old enough is removed while the look goes on.
                    wanted = expected()
                    for row in run.store.all():
                        assert row == wanted.pop(0)
                        if row[0] > arguments[0]:
                            break
                        run.store.remove_all(*row[:3])
                    held = [row for row in held if row[0] > arguments[0]]
            run.restart()
            assert list(run.store.all()) == expected()

    check()


def test_records_put_before_the_first_are_seen_after_a_look_at_an_empty_store(backend_factory):
    store = UnmatchedStore(backend_factory(["u"]), "u", Text(), Text(), Text())
    assert list(store.all()) == []
    store.put(7, True, "k", "seven")
    assert [value for *_, value in store.all()] == ["seven"]
    store.put(5, True, "k", "five")
    assert [value for *_, value in store.all()] == ["five", "seven"]


def test_removing_what_is_not_there_writes_nothing(backend_factory):
    store = UnmatchedStore(backend_factory(["u"]), "u", Text(), Text(), Text())
    store.remove_all(5, True, "k")
    assert store.drain() == {"u": {}}


# What a foreign-key join keeps.

SUBSCRIPTIONS = operations(
    st.tuples(st.just("put"), BYTES, BYTES, st.sampled_from([b"", b"row"]), TIMES),
    st.tuples(st.just("put"), BYTES, BYTES, st.sampled_from([b"", b"row"]), TIMES),
    st.tuples(st.just("delete"), BYTES, BYTES),
    st.tuples(st.just("get"), BYTES, BYTES),
    st.tuples(st.just("scan"), BYTES),
    STEPS,
)


@pytest.mark.parametrize("place", PLACES)
def test_a_subscription_store_equals_the_model(place):
    @settings(max_examples=EXAMPLES[place], deadline=None)
    @given(SUBSCRIPTIONS)
    def check(steps):
        def make(backend):
            return SubscriptionStore(backend, "f", Raw())

        held = {}
        with Reopening(place, SubscriptionStore.backend_stores("f"), make) as run:
            for name, *arguments in steps:
                if name in ("commit", "restart"):
                    run.do(name)
                elif name == "put":
                    run.store.put(*arguments)
                    held[tuple(arguments[:2])] = tuple(arguments[2:])
                elif name == "delete":
                    run.store.delete(*arguments)
                    held.pop(tuple(arguments), None)
                elif name == "get":
                    assert run.store.get(*arguments) == held.get(tuple(arguments))
                else:
                    found = sorted((key, row) for (foreign, key), row in held.items() if foreign == arguments[0])
                    assert list(run.store.scan(*arguments)) == found
            run.restart()
            for foreign in {foreign for foreign, _ in held}:
                found = sorted((key, row) for (other, key), row in held.items() if other == foreign)
                assert list(run.store.scan(foreign)) == found

    check()
