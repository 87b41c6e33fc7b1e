"""The five topologies that Kafka Streams and Headwater both run, and one more to be taken over (java/Original.java has
the same), inputs for them, and what must come out."""

import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, NamedTuple

from confluent_kafka import Producer

from headwater import (
    Bytes,
    Int64,
    JoinWindows,
    Str,
    StreamsBuilder,
    Suppress,
    TimeWindowed,
    TimeWindows,
    Topology,
    Versioned,
    Window,
)
from headwater import TopologyTestDriver as Driver
from headwater.dsl.partitioner import partition_for
from tests.kafka.broker import PATIENCE, Broker
from tests.kafka.reading import records

PARTITIONS = 2
WINDOW = timedelta(seconds=10)
VERSIONS = timedelta(minutes=1)
# Near the present: changelogs of windows forget by the broker's clock.
BEGIN = int(time.time()) // 100 * 100_000 - 600_000
WORDS = ("tea", "milk", "größe", "sugar", "a", "ox", "lemon", "rum")
KEYS = tuple(f"key-{number}" for number in range(9))


class In(NamedTuple):
    """A record of an input topic."""

    topic: str
    key: str | None
    value: str | None
    timestamp: int
    headers: tuple[tuple[str, bytes], ...] = ()


class Out(NamedTuple):
    """A record of an output topic, as bytes."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...]


# ---- the topologies --------------------------------------------------------------------------------------------------


def stateless(out: str, lines: str) -> Topology:
    builder = StreamsBuilder()
    (
        builder.stream(lines, key=Str(), value=Str())
        .filter(lambda key, value: len(value) > 2)
        .flat_map_values(lambda value: value.split(" "))
        .map_values(lambda word: word.upper())
        .to(out, key=Str(), value=Str())
    )
    return builder.build()


def count(out: str, lines: str) -> Topology:
    builder = StreamsBuilder()
    (
        builder.stream(lines, key=Str(), value=Str())
        .flat_map_values(lambda value: value.split(" "))
        .group_by(lambda key, word: word, key=Str(), value=Str())
        .count()
        .to_stream()
        .to(out, key=Str(), value=Int64())
    )
    return builder.build()


def window(out: str, lines: str) -> Topology:
    builder = StreamsBuilder()
    (
        builder.stream(lines, key=Str(), value=Str())
        .group_by_key(key=Str(), value=Str())
        .windowed_by(TimeWindows.of(WINDOW, grace=timedelta(seconds=5)))
        .count()
        .to_stream()
        .to(out, key=TimeWindowed(Str(), size=WINDOW), value=Int64())
    )
    return builder.build()


def closing(out: str, lines: str) -> Topology:
    """Windows that are kept for long after they were emitted: who does not know that emits them again."""
    builder = StreamsBuilder()
    (
        builder.stream(lines, key=Str(), value=Str())
        .group_by_key(key=Str(), value=Str())
        .windowed_by(TimeWindows.of(WINDOW, grace=timedelta(seconds=5)))
        .emit_strategy("on-close")
        .count(store=Window(key=Str(), value=Int64(), retention=timedelta(minutes=2)))
        .to_stream()
        .to(out, key=TimeWindowed(Str(), size=WINDOW), value=Int64())
    )
    return builder.build()


def stream_table(out: str, lines: str, users: str) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream(lines, key=Str(), value=Str())
    table = builder.table(users, key=Str(), value=Str())
    stream.join(table, lambda line, user: f"{line}/{user}").to(out, key=Str(), value=Str())
    return builder.build()


def left_join(out: str, left: str, right: str) -> Topology:
    builder = StreamsBuilder()
    near = JoinWindows.of(timedelta(seconds=5), grace=timedelta(seconds=2))
    (
        builder.stream(left, key=Str(), value=Str())
        .left_join(
            builder.stream(right, key=Str(), value=Str()),
            # As Java writes a missing value.
            lambda one, other: f"{one}/{'null' if other is None else other}",
            near,
            key=Str(),
            value=Str(),
            other_value=Str(),
        )
        .to(out, key=Str(), value=Str())
    )
    return builder.build()


def versioned(out: str, lines: str, users: str) -> Topology:
    """Each line with what its user was at the time: updates that come late change the past, and lines look back."""
    builder = StreamsBuilder()
    stream = builder.stream(lines, key=Str(), value=Str())
    table = builder.table(
        users, key=Str(), value=Str(), store=Versioned("versions", key=Str(), value=Str(), retention=VERSIONS)
    )
    stream.join(table, lambda line, user: f"{line}/{user}").to(out, key=Str(), value=Str())
    return builder.build()


def graceful(out: str, lines: str, users: str) -> Topology:
    """The same for lines that wait for their users."""
    builder = StreamsBuilder()
    stream = builder.stream(lines, key=Str(), value=Str())
    table = builder.table(
        users, key=Str(), value=Str(), store=Versioned("versions", key=Str(), value=Str(), retention=VERSIONS)
    )
    joined = stream.join(table, lambda line, user: f"{line}/{user}", grace=timedelta(seconds=30))
    joined.to(out, key=Str(), value=Str())
    return builder.build()


def suppressed(out: str, lines: str) -> Topology:
    """Counts that are held back for longer than any test: the buffer is what is kept."""
    builder = StreamsBuilder()
    (
        builder.stream(lines, key=Str(), value=Str())
        .group_by_key(key=Str(), value=Str())
        .count()
        .suppress(Suppress.until_time_limit(timedelta(hours=1)))
        .to_stream()
        .to(out, key=Str(), value=Int64())
    )
    return builder.build()


TOPOLOGIES: dict[str, Callable[..., Topology]] = {
    "stateless": stateless,
    "count": count,
    "window": window,
    "stream-table": stream_table,
    "left-join": left_join,
}
TAKEN_OVER: dict[str, Callable[..., Topology]] = {
    "count": count,
    "window": window,
    "closing": closing,
    "versioned": versioned,
}
# What neither of the two can take over from the other.
NOT_TAKEN_OVER: dict[str, Callable[..., Topology]] = {"suppressed": suppressed, "graceful": graceful}
TWO_INPUTS = ("stream-table", "left-join", "versioned", "graceful")


def topics(topology: str, stem: str) -> tuple[str, ...]:
    """The names of a topology's input topics."""
    return tuple(f"{stem}-{side}" for side in ("one", "two")[: 2 if topology in TWO_INPUTS else 1])


# ---- what goes in ----------------------------------------------------------------------------------------------------


def inputs(topology: str, names: tuple[str, ...], size: int = 300) -> list[In]:
    """Records for its topics, the same at each call, some of them late; no two topics have a timestamp in common."""
    rng = random.Random(topology)
    made: list[In] = []
    at = BEGIN
    for number in range(size):
        at += rng.choice((0, 20, 200, 900))
        for side, name in enumerate(names):
            late = rng.choice((0, 0, 0, 0, 3_000, 17_000)) if len(names) == 1 else rng.choice((0, 0, 0, 4_000))
            key = rng.choice((*KEYS, None) if topology in ("stateless", "left-join") else KEYS)
            deleted = name == names[-1] and topology in ("stream-table", "versioned") and rng.random() < 0.2
            value = None if deleted else _line(rng)
            headers = (("number", str(number).encode()),) if rng.random() < 0.3 else ()
            made.append(In(name, key, value, (at - late) // 2 * 2 + side, headers))
    return made


def _line(rng: random.Random) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 3)))


def placed(made: Iterable[In]) -> list[tuple[int, In]]:
    """The records with their partitions: by key as Kafka's clients do it, without a key in turn as the driver does."""
    turns: dict[str, int] = defaultdict(int)
    found = []
    for record in made:
        if record.key is None:
            partition = turns[record.topic] % PARTITIONS
            turns[record.topic] += 1
        else:
            partition = partition_for(record.key.encode(), PARTITIONS)
        found.append((partition, record))
    return found


def send(kafka: Broker, placed: Iterable[tuple[int, In]]) -> None:
    """Write records to their topics, each to its partition."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True})
    for partition, record in placed:
        producer.produce(
            record.topic,
            key=record.key,
            value=record.value,
            partition=partition,
            timestamp=record.timestamp,
            headers=list(record.headers),
        )
    assert producer.flush(PATIENCE) == 0


# ---- what comes out --------------------------------------------------------------------------------------------------


def expected(topology: Topology, out: str, *portions: list[In]) -> list[Out]:
    """What the test driver gives for inputs that are all there before it begins, portion by portion."""
    with Driver(topology, partitions=PARTITIONS) as driver:
        for portion in portions:
            driver.send_all([(record.topic, *record[1:]) for record in portion])
        found = driver.output(out, key=Bytes(), value=Bytes()).read_all()
    return [Out(record.key, record.value, record.timestamp, record.headers) for record in found]


def written(kafka: Broker, topic: str) -> list[Out]:
    """The committed records of a topic."""
    return [
        Out(message.key(), message.value(), message.timestamp()[1], tuple(message.headers() or ()))
        for message in records(kafka, topic)
    ]


def await_written(kafka: Broker, topic: str, count: int, patience: float = PATIENCE) -> None:
    """Wait until a topic has that many committed records."""
    deadline = time.monotonic() + patience
    while (found := len(written(kafka, topic))) < count:
        assert time.monotonic() < deadline, f"{topic} has {found} records, and {count} are expected"
        time.sleep(0.3)


def per_key(topology: str, found: Iterable[Out]) -> dict[bytes | None, Any]:
    """Results by key, in their order, as far as it does not depend on which task came first.

    Records without a key come from all partitions. A word is counted from all of them too: its counts are in order, and
    the last one has the highest timestamp, but which line came when differs.
    """
    by_key: dict[bytes | None, list[Out]] = defaultdict(list)
    for record in found:
        by_key[record.key].append(record)
    if topology == "count":
        return {key: ([one.value for one in kept], kept[-1].timestamp) for key, kept in by_key.items()}
    return {key: sorted(kept) if key is None else kept for key, kept in by_key.items()}
