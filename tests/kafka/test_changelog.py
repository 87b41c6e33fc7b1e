"""Changelogs: what a store needs survives the way through records, and the records are Kafka Streams' own bytes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater import Bytes, Str
from headwater.dsl.internal_serdes import Instruction, Subscription, SubscriptionSerde
from headwater.dsl.topology import StoreSpec
from headwater.errors import StreamsError
from headwater.state.buffers import Context
from headwater.state.memory import MemoryBackend
from headwater.streams.kafka.changelog import CHECKPOINT, Changelog, changelogs, rewritten_versions
from headwater.streams.kafka.recovery import expired, observed
from headwater.streams.stores import backend_stores, open_store
from tests.state.reopening import KEYS, times

NOW = 1_800_000_000_000
TIMES = times(10, 10, 10, 30_000)
LAST = 2**63 - 1
VALUES = st.one_of(st.none(), st.text(max_size=3))
ROWS = st.one_of(st.none(), st.tuples(st.text(max_size=3), st.integers(0, 99)))
SESSIONS = st.tuples(TIMES, TIMES).map(sorted).map(tuple)
HEADERS = st.sampled_from([(), (("h", b"1"), ("h", None))])
CONTEXTS = st.builds(Context, TIMES, HEADERS, st.sampled_from([None, "topic"]), st.integers(0, 3), st.integers(0, 9))
SUBSCRIPTIONS = st.builds(
    Subscription, st.none(), st.just(Instruction.ANSWER_ALWAYS), KEYS, st.just(1), st.integers(0, 3)
)


def put(*arguments: st.SearchStrategy) -> st.SearchStrategy:
    return st.tuples(st.just("put"), *arguments)


def text(keys: st.SearchStrategy) -> st.SearchStrategy:
    return keys.map(str.encode)


def windows(store, key):
    return [*store.fetch(key, 0, LAST), *store.fetch_all(0, LAST), *store.all()]


# Of each kind of store: its description, what may be done to it, and every way to read it.
KINDS = {
    "key-value": (
        StoreSpec("key-value", "s", Str(), Str()),
        [put(KEYS, VALUES), st.tuples(st.just("delete"), KEYS)],
        lambda store, key, time: [store.get(key), *store.all()],
    ),
    "timestamped": (
        StoreSpec("timestamped", "s", Str(), Str()),
        [put(KEYS, VALUES, TIMES), st.tuples(st.just("delete"), KEYS)],
        lambda store, key, time: [store.get(key), *store.all()],
    ),
    "window": (
        StoreSpec("window", "s", Str(), Str(), retention_ms=70),
        [put(KEYS, VALUES, TIMES)],
        lambda store, key, time: [store.get(key, time), *windows(store, key)],
    ),
    "window, timestamped": (
        StoreSpec("window", "s", Str(), Str(), retention_ms=130_000, timestamped=True, on_close=True),
        [put(KEYS, ROWS, TIMES)],
        lambda store, key, time: [store.get(key, time), *windows(store, key)],
    ),
    "window, duplicates": (
        StoreSpec("window", "s", Str(), Str(), retention_ms=70, duplicates=True),
        [put(KEYS, VALUES, TIMES)],
        lambda store, key, time: windows(store, key),
    ),
    "session": (
        StoreSpec("session", "s", Str(), Str(), retention_ms=70),
        [
            st.tuples(KEYS, SESSIONS, VALUES).map(lambda step: ("put", step[0], *step[1], step[2])),
            st.tuples(KEYS, SESSIONS).map(lambda step: ("remove", step[0], *step[1])),
        ],
        lambda store, key, time: [*store.fetch(key), *store.ended(0, time), *store.ended(0, LAST), *store.all()],
    ),
    "versioned": (
        StoreSpec("versioned", "s", Str(), Str(), retention_ms=70),
        [put(KEYS, VALUES, TIMES)],
        lambda store, key, time: [store.get(key), store.get(key, time), *store.all()],
    ),
    "unmatched": (
        StoreSpec("unmatched", "s", Str(), Str(), Bytes()),
        [
            st.tuples(st.just("put"), TIMES, st.just(True), KEYS, st.text(max_size=3)),
            st.tuples(st.just("put"), TIMES, st.just(False), KEYS, st.binary(max_size=3)),
            st.tuples(st.just("remove_all"), TIMES, st.booleans(), KEYS),
        ],
        lambda store, key, time: [*store.all()],
    ),
    "subscriptions": (
        StoreSpec("subscriptions", "s", Str(), SubscriptionSerde(Str())),
        [put(text(KEYS), text(KEYS), SUBSCRIPTIONS, TIMES), st.tuples(st.just("delete"), text(KEYS), text(KEYS))],
        lambda store, key, time: [store.get(key.encode(), b"a\0"), *store.scan(key.encode())],
    ),
    "suppressed": (
        StoreSpec("suppressed", "s", Str(), Str()),
        [put(TIMES, text(KEYS), st.binary(max_size=3), st.binary(max_size=3), CONTEXTS), st.just(("pop",))],
        lambda store, key, time: [store.get(key.encode()), len(store), store.byte_size, store.min_time],
    ),
    "grace": (
        StoreSpec("grace", "s", Str(), Str(), retention_ms=70),
        [put(text(KEYS), st.binary(max_size=3), CONTEXTS), st.just(("evict",))],
        lambda store, key, time: [len(store), store.memory()],
    ),
}


def opened(spec):
    backend = MemoryBackend([*backend_stores([spec]), CHECKPOINT])
    return backend, open_store(spec, backend)


def do(store, name, *arguments):
    if name == "pop" and len(store) == 0:
        return
    done = getattr(store, name)(*arguments)
    if name == "evict":
        list(done)


def logged(spec, backend, store, steps):
    """Do the steps, commit where they say so, and return the records of all commits."""
    log, records = Changelog(spec), []
    log.bind(backend)
    for step in [*steps, ("commit",)]:
        if step == ("commit",):
            rows = store.drain()
            records += log.records(rows, NOW)
            backend.write(rows)
        else:
            do(store, *step)
    return records


def restored(spec, records, portion):
    backend = MemoryBackend([*backend_stores([spec]), CHECKPOINT])
    for at in range(0, len(records), portion):
        log = Changelog(spec)
        log.bind(backend)
        backend.write(log.rows(records[at : at + portion]))
    return backend


def compacted(records, tombstones):
    last = {key: at for at, (key, _, _) in enumerate(records)}
    kept = [records[at] for at in sorted(last.values())]
    return kept if tombstones else [record for record in kept if record[1] is not None]


def contents(spec, backend):
    return {store: list(backend.scan(store, b"", None)) for store in backend_stores([spec])}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "versioned"])
def test_a_restored_store_reads_as_the_one_that_was_logged(kind):
    spec, steps, read = KINDS[kind]

    @settings(max_examples=150)
    @given(
        st.lists(st.one_of(*steps, *steps, st.just(("commit",))), max_size=30),
        st.integers(1, 9),
        st.sampled_from(["whole", "compacted", "compacted without tombstones"]),
        st.lists(st.tuples(KEYS, TIMES), min_size=1, max_size=5),
    )
    def check(steps, portion, topic, places):
        backend, store = opened(spec)
        records = logged(spec, backend, store, steps)
        if topic != "whole":
            records = compacted(records, tombstones=topic == "compacted")
        copy = restored(spec, records, portion)
        assert contents(spec, copy) == contents(spec, backend)
        again = open_store(spec, copy)
        if store.memory() is not None:
            again.remember(store.memory())
        for key, time in places:
            assert read(again, key, time) == read(store, key, time)

    check()


VERSIONED_STEPS = st.lists(
    st.one_of(put(KEYS, VALUES, TIMES), put(KEYS, VALUES, TIMES), st.just(("commit",))), max_size=30
)


def reads(store, retention_ms, steps):
    """Every key's latest version, and what it was at the times of all puts that the store still looks back to."""
    first = store.memory()[0] - retention_ms
    times = sorted({step[3] + by for step in steps if step[0] == "put" for by in (-1, 0, 1)})
    keys = {step[1] for step in steps if step[0] == "put"}
    return [[store.get(key), *(store.get(key, time) for time in times if time >= first)] for key in sorted(keys)] + [
        *store.all()
    ]


@settings(max_examples=300)
@given(VERSIONED_STEPS, st.integers(1, 9), st.sampled_from([20, 70, 5_000, 60_000]))
def test_a_versioned_store_is_logged_version_by_version_and_restored_from_them(steps, portion, retention_ms):
    spec = StoreSpec("versioned", "s", Str(), Str(), retention_ms=retention_ms)
    backend, store = opened(spec)
    records = logged(spec, backend, store, steps)
    # No more of them than there were puts: never a key's whole history.
    assert len(records) <= sum(step[0] == "put" for step in steps)
    copy = restored(spec, records, portion)
    again = open_store(spec, copy)
    again.remember(observed(spec, copy) or (-1,))
    # What was not stored moves no time; and puts that changed nothing are not logged.
    assert again.memory()[0] <= store.memory()[0]
    again.remember(store.memory())
    assert reads(again, retention_ms, steps) == reads(store, retention_ms, steps)


@settings(max_examples=100)
@given(VERSIONED_STEPS, VERSIONED_STEPS, st.integers(1, 9))
def test_a_versioned_changelog_of_an_earlier_release_opens_and_is_rewritten(before, after, portion):
    spec = StoreSpec("versioned", "s", Str(), Str(), retention_ms=5_000)
    backend, store = opened(spec)
    prefixes = {name: b"\xf7HW" + bytes((at,)) for at, name in enumerate(backend_stores([spec]))}
    records = []
    for step in [*before, ("commit",)]:
        if step == ("commit",):
            rows = store.drain()
            records += [(prefixes[name] + key, row, NOW) for name in rows for key, row in rows[name].items()]
            backend.write(rows)
        else:
            do(store, *step)
    # This release goes on, in its own form.
    records += logged(spec, backend, store, after)
    copy = restored(spec, records, portion)
    again = open_store(spec, copy)
    again.remember(store.memory())
    assert reads(again, 5_000, before + after) == reads(store, 5_000, before + after)
    # What is written when the task is opened has all of it, and nothing of the earlier form.
    rewritten, gone = rewritten_versions(spec, copy)
    copy.write({CHECKPOINT: gone})
    assert rewritten_versions(spec, copy) == ([], {})
    if rewritten:
        versions = [record for record in rewritten if not record[0].startswith(b"\xf7HW")]
        anew = open_store(spec, restored(spec, versions, portion))
        anew.remember(store.memory())
        assert reads(anew, 5_000, before + after) == reads(store, 5_000, before + after)


def test_twenty_thousand_versions_of_one_key_are_as_many_small_records():
    spec = StoreSpec("versioned", "s", Str(), Str(), retention_ms=3_600_000)
    backend, store = opened(spec)
    steps = [step for number in range(20_000) for step in [("put", "k", str(number), number)]]
    steps[10_000:10_000] = [("commit",)]
    records = logged(spec, backend, store, steps)
    assert len(records) == 20_000
    assert max(len(key) + len(value) for key, value, _ in records) < 10


def test_rows_of_other_stores_are_not_in_the_changelog():
    spec = StoreSpec("key-value", "mine", Str(), Str())
    rows = {"mine": {b"k": b"v"}, "other": {b"k": b"w"}}
    assert list(Changelog(spec).records(rows, NOW)) == [(b"k", b"v", NOW)]
    assert list(Changelog(spec).records({"other": {b"k": b"w"}}, NOW)) == []


def test_a_store_without_a_changelog_has_none():
    specs = [StoreSpec("timestamped", "a", Str(), Str()), StoreSpec("window", "b", Str(), Str(), changelog=False)]
    specs.append(StoreSpec("session", "c", Str(), Str(), retention_ms=1))
    assert [(log.name, log.windowed) for log in changelogs(specs)] == [("a", False), ("c", True)]


# ---- Kafka Streams' bytes: keys and values in hex, as its own serializers made them ----------------------------------


def records_of(kind, *steps):
    spec, _, _ = KINDS[kind]
    backend, store = opened(spec)
    return [(key.hex(), value and value.hex(), time) for key, value, time in logged(spec, backend, store, steps)]


AT = 1_700_000_000_123


def test_a_window_is_logged_under_key_start_and_sequence():
    key = "6b0079" + "0000018bcfe5687b" + "00000000"
    assert records_of("window", ("put", "k\0y", "v", AT)) == [(key, "76", AT)]
    assert records_of("window, timestamped", ("put", "k\0y", ("v", AT + 9), AT)) == [(key, "76", AT + 9)]


def test_the_sequence_of_duplicates_is_logged_and_begins_again_after_two_to_the_31():
    spec, _, _ = KINDS["window, duplicates"]
    backend, store = opened(spec)
    store.remember((AT, 0x7FFFFFFE))
    records = logged(spec, backend, store, [("put", "k\0y", "v", AT), ("put", "k\0y", "w", AT)])
    assert [(key.hex(), value, time) for key, value, time in records] == [
        ("6b00790000018bcfe5687b7fffffff", b"v", AT),
        ("6b00790000018bcfe5687b00000000", b"w", AT),
    ]


def test_a_session_is_logged_under_key_end_and_start():
    key = "6b0079" + "0000018bcfe5687b" + "0000000000000005"
    assert records_of("session", ("put", "k\0y", 5, AT, "v")) == [(key, "76", AT)]
    steps = [("put", "k\0y", 5, AT, "v"), ("commit",), ("remove", "k\0y", 5, AT)]
    assert records_of("session", *steps)[1:] == [(key, None, AT)]


def test_keys_and_values_of_stores_by_key_are_logged_bare():
    assert records_of("key-value", ("put", "k", "v"), ("put", "d", None)) == [("6b", "76", NOW), ("64", None, NOW)]
    assert records_of("timestamped", ("put", "k", "v", AT), ("delete", "d")) == [("6b", "76", AT), ("64", None, NOW)]


def test_unmatched_values_are_logged_as_a_list():
    records = records_of("unmatched", ("put", AT, True, "key", "ab"), ("put", AT, True, "key", ""))
    assert records == [("0000018bcfe5687b016b6579", "0100000002000000030161620000000101", NOW)]


def test_a_subscription_is_logged_under_both_keys():
    subscription = Subscription(None, Instruction.DELETE_AND_ANSWER, "pk", 1, 3)
    records = records_of("subscriptions", ("put", b"f\0k", b"pk", subscription, AT))
    assert records == [("0000000366006b706b", "8101706b00000003", AT)]


def test_a_timestamp_that_kafka_does_not_have_becomes_0():
    assert records_of("timestamped", ("put", "k", "v", -5)) == [("6b", "76", 0)]


# ---- what cannot be in a changelog -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "key", "value", "says"),
    [
        ("window", b"short", b"v", "shorter than a start and a sequence"),
        ("window", b"k" + bytes(11) + b"\1", b"v", "keeps no duplicates"),
        ("session", b"short", b"v", "shorter than an end and a start"),
        ("subscriptions", b"\0\0\0\x09fk", b"v", "shorter than the foreign key"),
        ("subscriptions", b"\0\0", b"v", "shorter than the foreign key"),
        ("unmatched", bytes(8) + b"\1k", b"v", "not a list"),
        ("unmatched", bytes(8) + b"\1k", b"\0\0\0\0\1\0\0\0\1\1", "not a list"),
        ("unmatched", bytes(8) + b"\1k", b"\1\0\0\0\2\0\0\0\1\1", "ends before its list"),
        ("unmatched", bytes(8) + b"\1k", b"\1\0\0\0\1\0\0\0\5\1", "ends before its list"),
        ("suppressed", b"k", b"v", "Headwater did not write it"),
        ("grace", b"\0" + bytes(8) + b"k", b"v", "Headwater did not write it"),
    ],
)
def test_a_record_that_the_store_cannot_have_is_an_error_with_its_name(kind, key, value, says):
    with pytest.raises(StreamsError, match=f"store 's'.*{says}"):
        Changelog(KINDS[kind][0]).rows([(key, value, 5)])


# ---- time and retention after a restore ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["window", "window, timestamped", "window, duplicates", "session"])
@given(st.lists(st.tuples(KEYS, TIMES), max_size=20))
def test_a_store_finds_out_its_time_from_its_rows(kind, places):
    spec, _, read = KINDS[kind]
    backend, store = opened(spec)
    for key, time in places:
        row = ("v", 1) if spec.timestamped else "v"
        store.put(key, time, time, row) if kind == "session" else store.put(key, row, time)
    copy = restored(spec, logged(spec, backend, store, []), 3)
    found = observed(spec, copy)
    if not places:
        assert found is None
        return
    assert found == store.memory() if not spec.duplicates else found[0] == store.memory()[0]
    again = open_store(spec, copy)
    again.remember(found)
    assert read(again, "a", 10) == read(store, "a", 10)


def test_a_memory_that_is_newer_than_all_rows_stays_and_an_older_one_does_not():
    spec, _, _ = KINDS["window"]
    backend, store = opened(spec)
    logged(spec, backend, store, [("put", "k", "v", 50)])
    assert observed(spec, backend, (80, 0)) == (80, 0)
    assert observed(spec, backend, (40, 0)) == (50, 0)


def test_stores_without_a_time_keep_the_memory_they_have():
    spec, _, _ = KINDS["grace"]
    backend, _ = opened(spec)
    assert observed(spec, backend, (5, 6)) == (5, 6)
    assert expired(spec, backend, (5, 6)) == {}


@pytest.mark.parametrize(
    ("sequences", "last"),
    [
        ([1, 2, 3], 3),
        ([2**30 - 1, 2**30], 2**30),
        ([2**31 - 2, 2**31 - 1], 2**31 - 1),
        ([2**31 - 2, 2**31 - 1, 0, 1], 1),
        ([2**31 - 1, 0], 0),
    ],
)
def test_duplicates_go_on_after_the_last_sequence(sequences, last):
    spec, _, _ = KINDS["window, duplicates"]
    records = [(b"k" + (5).to_bytes(8) + sequence.to_bytes(4), b"v", 5) for sequence in sequences]
    assert observed(spec, restored(spec, records, 2)) == (5, last)


@pytest.mark.parametrize("kind", ["window", "window, duplicates", "session"])
def test_rows_that_kafka_streams_left_to_the_topics_retention_go(kind):
    """It writes no deletions for them, and a store that is restored does not look back that far."""
    spec, _, _ = KINDS[kind]
    times = [bytes(8), (119_999).to_bytes(8), (120_000).to_bytes(8), (130_000).to_bytes(8)]
    sequence = (b"\0\0\0\1" if spec.duplicates else bytes(4)) if spec.kind == "window" else b""
    records = [(b"k\0" + time + (time if spec.kind == "session" else b"") + sequence, b"v", 5) for time in times]
    backend = restored(spec, records, 3)
    memory = observed(spec, backend)
    assert memory[0] == 130_000
    backend.write(expired(spec, backend, memory))
    assert [int.from_bytes(key[:8]) for key, _ in backend.scan("s|time", b"", None)] == [120_000, 130_000]
    assert len(list(backend.scan("s", b"", None))) == 2


def test_rows_that_a_cache_held_are_restored_but_no_longer_held():
    spec, _, _ = KINDS["window"]
    backend, store = opened(spec)
    store.hold(lambda row_key: None)
    records = logged(spec, backend, store, [("put", "k", "v", 0), ("put", "k", "w", 500)])
    store.settle(store.row_key("k", 500))
    assert store.get("k", 0) == "v"
    copy = restored(spec, records, 9)
    again = open_store(spec, copy)
    assert again.hold(lambda row_key: None) == []
    again.remember(store.memory())
    assert again.get("k", 0) is None
    assert again.get("k", 500) == "w"
