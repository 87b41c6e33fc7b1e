"""The record cache: which updates fold, what comes out at the commit and in which order, and what a full cache does."""

from datetime import timedelta
from typing import Any

from headwater import Config, Int64, SessionWindows, Str, StreamsBuilder, TimeWindows, Topology, Windowed
from headwater.dsl.serde import SessionWindowed, TimeWindowed
from headwater.state.memory import MemoryBackend
from headwater.streams.plan import plan
from headwater.streams.task import Task

LARGE = 10_000_000


class Caching:
    """A task whose commits are ours to make."""

    def __init__(self, topology: Topology, cache_bytes: int = LARGE) -> None:
        spec = plan(topology, Config(cache_bytes=cache_bytes), lambda topic: 1, as_one=True).tasks[0]
        self.backend = MemoryBackend(spec.backend_stores())
        self.task = Task(spec, self.backend)
        self._offset = 0

    def send(self, key: str, value: str | None, time: int, headers: Any = (), topic: str = "in") -> None:
        record = (key.encode(), None if value is None else value.encode(), time, headers, self._offset)
        self._offset += 1
        self.task.feed(topic, 0, [record])
        self.task.process(1, 0)

    def sent(self) -> list[Any]:
        """What has been written so far, without a commit."""
        return list(self.task._context.outputs)

    def commit(self) -> list[Any]:
        changes = self.task.commit()
        self.backend.write(changes.batch())
        return [(key, value, time, headers) for _, _, key, value, time, headers in changes.outputs]


def joining() -> Topology:
    """Texts of a key joined with dots; `DEL` deletes."""
    builder = StreamsBuilder(key=Str(), value=Str())
    grouped = builder.stream("in").group_by_key()
    table = grouped.aggregate(str, lambda key, value, all: None if value == "DEL" else f"{all}.{value}", store="all")
    table.to_stream().to("out")
    return builder.build()


def test_updates_of_a_key_fold_until_the_commit_in_the_order_of_the_last_ones() -> None:
    caching = Caching(joining())
    for key, value, time in (("a", "1", 5), ("b", "2", 6), ("a", "3", 4)):
        caching.send(key, value, time, headers=(("h", value.encode()),))
    assert caching.sent() == []
    assert caching.commit() == [(b"b", b".2", 6, (("h", b"2"),)), (b"a", b".1.3", 5, (("h", b"3"),))]
    assert caching.commit() == []


def test_a_row_that_came_and_went_between_two_commits_is_never_seen() -> None:
    caching = Caching(joining())
    caching.send("a", "1", 5)
    caching.send("a", "DEL", 6)
    assert caching.commit() == []


def test_a_deletion_has_the_time_of_the_record_that_deleted() -> None:
    caching = Caching(joining())
    caching.send("a", "1", 50)
    caching.commit()
    caching.send("a", "DEL", 6)
    # Without the cache it would be 50, the latest of the row and the record.
    assert caching.commit() == [(b"a", None, 6, ())]


def test_old_values_are_those_of_the_last_commit() -> None:
    builder = StreamsBuilder(key=Str(), value=Str())
    table = builder.table("in", store="table")
    grouped = table.group_by(lambda key, value: (value, value), value=Str(), name="by")
    grouped.aggregate(
        str,
        lambda key, value, all: f"{all}+{value}",
        lambda key, value, all: f"{all}-{value}",
        store="all",
        value=Str(),
    ).to_stream().to("out")
    caching = Caching(builder.build())
    caching.send("k", "x", 1)
    caching.commit()
    caching.send("k", "y", 2)
    caching.send("k", "z", 3)
    # From x to z: nobody hears of y.
    assert [(key, value[-1:]) for key, value, _, _ in caching.commit()] == [(b"x", b"\x00"), (b"z", b"\x01")]


def test_a_full_cache_forwards_the_oldest_first_then_all_that_is_dirty() -> None:
    # One entry takes 1 + 24 + 21 + 2 + 8 + 2 bytes of key, list, entry, topic, timestamp and value.
    size = 58
    caching = Caching(joining(), cache_bytes=2 * size)
    caching.send("a", "1", 1)
    caching.send("b", "2", 2)
    assert caching.sent() == []
    caching.send("c", "3", 3)
    assert [output[2] for output in caching.sent()] == [b"a", b"b", b"c"]
    assert len(caching.commit()) == 3
    # They still take room, as clean ones do: d pushes out b, which has nothing to forward.
    caching.send("d", "4", 4)
    assert caching.sent() == []
    caching.send("e", "5", 5)
    caching.send("f", "6", 6)
    assert [output[2] for output in caching.sent()] == [b"d", b"e", b"f"]


def test_windows_and_sessions_fold_each_for_itself() -> None:
    builder = StreamsBuilder(key=Str(), value=Str())
    grouped = builder.stream("in").group_by_key()
    grouped.windowed_by(TimeWindows.of(timedelta(milliseconds=10))).count(store="w").to_stream().to("windows")
    grouped.windowed_by(SessionWindows.of(timedelta(milliseconds=5))).count(store="s").to_stream().to("sessions")
    caching = Caching(builder.build())
    caching.send("a", "1", 1)
    caching.send("a", "2", 3, headers=(("h", b"2"),))
    caching.send("a", "3", 12)
    changes = caching.task.commit()
    window, session = TimeWindowed.of_ms(Str(), 10), SessionWindowed(Str())
    headers = (("h", b"2"),)

    def read(topic: str, serde: Any) -> list[Any]:
        return [
            (serde.decode(key), value and Int64().decode(value), time, headers)
            for to, _, key, value, time, headers in changes.outputs
            if to == topic
        ]

    assert read("windows", window) == [(Windowed("a", 0, 10), 2, 3, headers), (Windowed("a", 10, 20), 1, 12, ())]
    # The session [1, 1] came and went. Uncached session updates have no headers; cached ones have the record's.
    assert read("sessions", session) == [(Windowed("a", 1, 3), 2, 3, headers), (Windowed("a", 12, 12), 1, 12, ())]


def test_a_flush_that_reaches_another_cached_store_flushes_that_too() -> None:
    builder = StreamsBuilder(key=Str(), value=Str())
    counts = builder.stream("in").group_by_key().count(store="first")
    counts.filter(lambda key, value: value > 1, store="second").to_stream().to("out")
    caching = Caching(builder.build())
    for time in range(3):
        caching.send("a", "v", time)
    assert caching.commit() == [(b"a", Int64().encode(3), 2, ())]


def test_a_step_after_the_cache_sees_the_place_of_the_folded_record() -> None:
    builder = StreamsBuilder(key=Str(), value=Str())
    table = builder.table("in", store="table")
    table.to_stream().to(lambda key, value, context: f"{context.topic}-{context.partition}-{context.offset}")
    caching = Caching(builder.build())
    for key in "abc":
        caching.send(key, "v", 1)
    outputs = caching.task.commit().outputs
    assert [output[0] for output in outputs] == ["in-0-0", "in-0-1", "in-0-2"]
