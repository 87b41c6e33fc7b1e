"""Versioned stores on Kafka whose changelog an earlier release has written, with a key's whole history in a record."""

import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from headwater import Str, StreamsBuilder, Topology, Versioned
from headwater.streams.kafka import changelog
from headwater.streams.kafka.connection import KafkaConnection
from tests.kafka.broker import PATIENCE, Broker
from tests.kafka.five import VERSIONS
from tests.kafka.place import Place
from tests.kafka.reading import records
from tests.streams.apps import until

NOW = int(time.time() * 1000)


def joined(place: Place) -> Topology:
    """Lines with what their user was at the time."""
    builder = StreamsBuilder(key=Str(), value=Str())
    versions = Versioned("versions", key=Str(), value=Str(), retention=VERSIONS)
    users = builder.table(place.own("users"), store=versions)
    builder.stream(place.source).join(users, lambda line, user: f"{line}/{user}").to(place.sink)
    return builder.build()


def produce(place: Place, topic: str, *updates: tuple[str, str | None, int]) -> None:
    producer = Producer({"bootstrap.servers": place.broker.bootstrap})
    for key, value, ago in updates:
        producer.produce(topic, value, key, partition=0, timestamp=NOW - ago)
    assert producer.flush(PATIENCE) == 0


@pytest.mark.parametrize("kept", [True, False], ids=["with-its-state-directory", "on-an-empty-disk"])
def test_a_versioned_changelog_of_an_earlier_release_is_rewritten_when_its_task_is_opened(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    place = Place(kafka, tmp_path)
    users = kafka.create(place.own("users"))
    updates = [("ann", f"a{ago}", ago) for ago in (30_000, 20_000, 10_000)]
    with monkeypatch.context() as earlier:
        earlier.setitem(changelog._FORMATS, "versioned", changelog._own_rows)
        earlier.setattr(KafkaConnection, "_times", lambda connection, commit: {})
        with place.app(joined(place), state_dir=tmp_path / "one") as app:
            produce(place, users, *updates, ("bob", "b", 25_000), ("bob", None, 15_000))
            app.wait_idle(PATIENCE)
            until(lambda: app.store("versions").get("ann") is not None, PATIENCE)
    topic = place.own("versions-changelog")
    assert all((record.key() or b"").startswith(b"\xf7HW") for record in records(kafka, topic))
    with place.app(joined(place), state_dir=tmp_path / ("one" if kept else "two")) as app:
        lines = [("ann", "l", ago) for ago in (25_000, 12_000, 5_000)] + [("bob", "l", 20_000), ("bob", "l", 12_000)]
        produce(place, place.source, *lines)
        until(lambda: sum(map(len, place.out().values())) == 4, PATIENCE)
        app.wait_idle(PATIENCE)
    assert place.out() == {"ann": [b"l/a30000", b"l/a20000", b"l/a10000"], "bob": [b"l/b"]}
    last = {record.key(): record for record in records(kafka, topic)}
    # Nothing of the earlier form is left when the topic is compacted, and each version is a record with its own time.
    assert all(record.value() is None for key, record in last.items() if key.startswith(b"\xf7HW"))
    versions = [record for record in records(kafka, topic) if not (record.key() or b"").startswith(b"\xf7HW")]
    assert [(record.key(), record.value(), NOW - record.timestamp()[1]) for record in versions] == [
        (b"ann", b"a30000", 30_000),
        (b"bob", b"b", 25_000),
        (b"ann", b"a20000", 20_000),
        (b"bob", None, 15_000),
        (b"ann", b"a10000", 10_000),
    ]
    # And who begins with nothing has them from there.
    with place.app(joined(place), state_dir=tmp_path / "three") as app:
        produce(place, place.source, ("ann", "m", 25_000))
        until(lambda: len(place.out()["ann"]) == 4, PATIENCE)
    assert place.out()["ann"][-1] == b"m/a30000"
