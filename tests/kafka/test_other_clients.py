"""Other clients read what Headwater wrote: confluent-kafka and kafka-console-consumer see keys, values, headers and
timestamps, and Kafka Streams' own serdes decode windowed keys and changelogs."""

import time
from datetime import timedelta

import pytest
from confluent_kafka import Producer

from headwater import (
    Config,
    Int64,
    SessionWindowed,
    SessionWindows,
    Str,
    StreamsBuilder,
    TimeWindowed,
    TimeWindows,
    run,
)
from tests.kafka.broker import PATIENCE, Broker
from tests.kafka.five import await_written
from tests.kafka.original import console_consumer, decoded
from tests.kafka.reading import records

APP = "readable"
SIZE = timedelta(seconds=10)
# Near the present: changelogs of windows forget by the broker's clock. A multiple of a minute, by which stores forget:
# else the first windows may be forgotten by the last record.
AT = int(time.time()) // 60 * 60_000 - 600_000
SENT = [
    ("tea", "a cup", AT, [("from", b"kitchen"), ("from", b"garden"), ("empty", b"")]),
    ("milk", "größe", AT + 1, []),
    ("tea", "a pot", AT + 2_000, [("nothing", None)]),
    ("tea", "a jar", AT + 30_000, []),
]


def copies_and_counts():
    """Every line again, and lines per key: in all, in windows and in sessions."""
    builder = StreamsBuilder()
    lines = builder.stream("readable-in", key=Str(), value=Str())
    lines.to("readable-copies", key=Str(), value=Str())
    grouped = lines.group_by_key(key=Str(), value=Str())
    grouped.count(store="total")
    windows = grouped.windowed_by(TimeWindows.of(SIZE, grace=timedelta(0))).count(store="windows")
    windows.to_stream().to("readable-windows", key=TimeWindowed(Str(), size=SIZE), value=Int64())
    sessions = grouped.windowed_by(SessionWindows.of(timedelta(seconds=5), grace=timedelta(0))).count(store="sessions")
    sessions.to_stream().to("readable-sessions", key=SessionWindowed(Str()), value=Int64())
    return builder.build()


@pytest.fixture(scope="module")
def written_by_headwater(kafka: Broker, tmp_path_factory: pytest.TempPathFactory) -> Broker:
    for topic in ("in", "copies", "windows", "sessions"):
        kafka.create(f"readable-{topic}")
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for key, value, at, headers in SENT:
        producer.produce("readable-in", key=key, value=value, timestamp=at, headers=headers)
    assert producer.flush(PATIENCE) == 0
    config = Config(APP, state_dir=tmp_path_factory.mktemp("readable"))
    with run(copies_and_counts(), broker=f"kafka://{kafka.bootstrap}", config=config, block=False):
        await_written(kafka, "readable-copies", len(SENT))
        # A session that grows takes the place of the shorter one, which is deleted.
        await_written(kafka, "readable-sessions", 5)
    return kafka


def test_confluent_kafka_sees_keys_values_headers_and_timestamps(written_by_headwater):
    found = records(written_by_headwater, "readable-copies")
    assert [
        (message.key().decode(), message.value().decode(), message.timestamp()[1], message.headers() or [])
        for message in found
    ] == SENT


def test_kafka_console_consumer_sees_them_too(written_by_headwater):
    shown = {"print_key": "true", "print_timestamp": "true", "print_headers": "true", "key_separator": "|"}
    lines = console_consumer(written_by_headwater, "readable-copies", len(SENT), **shown)
    assert lines == [
        f"CreateTime:{AT}|from:kitchen,from:garden,empty:|tea|a cup",
        f"CreateTime:{AT + 1}|NO_HEADERS|milk|größe",
        f"CreateTime:{AT + 2_000}|nothing:null|tea|a pot",
        f"CreateTime:{AT + 30_000}|NO_HEADERS|tea|a jar",
    ]


def windows_of(found, *more):
    return [tuple(line[name] for name in ("key", "start", "end", "value", "timestamp", *more)) for line in found]


WINDOWS = [
    ("tea", AT, AT + 10_000, 1, AT),
    ("milk", AT, AT + 10_000, 1, AT + 1),
    ("tea", AT, AT + 10_000, 2, AT + 2_000),
    ("tea", AT + 30_000, AT + 40_000, 1, AT + 30_000),
]
SESSIONS = [
    ("tea", AT, AT, 1, AT),
    ("milk", AT + 1, AT + 1, 1, AT + 1),
    ("tea", AT, AT, None, AT),
    ("tea", AT, AT + 2_000, 2, AT + 2_000),
    ("tea", AT + 30_000, AT + 30_000, 1, AT + 30_000),
]


def test_kafka_streams_decodes_windowed_keys(written_by_headwater):
    found = decoded(written_by_headwater, "readable-windows", "window", "long", 10_000)
    assert windows_of(found) == WINDOWS
    assert [line["headers"][0][0] if line["headers"] else None for line in found[:2]] == ["from", None]
    assert windows_of(decoded(written_by_headwater, "readable-sessions", "session", "long")) == SESSIONS


def last(found):
    """What a compacted topic comes to: the last record of each key, without those that were deleted."""
    kept = {row[:3]: row for row in found}
    return sorted(row for row in kept.values() if row[3] is not None)


def test_kafka_streams_decodes_changelogs(written_by_headwater):
    def changelog(store, *kinds):
        found = decoded(written_by_headwater, f"{APP}-{store}-changelog", *kinds)
        assert all(line["headers"] == [] for line in found)
        return found

    total = {line["key"]: (line["value"], line["timestamp"]) for line in changelog("total", "text", "long")}
    assert total == {"tea": (3, AT + 30_000), "milk": (1, AT + 1)}
    windows = changelog("windows", "window-store", "long", 10_000)
    assert {line["sequence"] for line in windows} == {0}
    assert last(windows_of(windows)) == last(WINDOWS)
    assert last(windows_of(changelog("sessions", "session-store", "long"))) == last(SESSIONS)
