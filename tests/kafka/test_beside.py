"""Beside the original: Kafka Streams and Headwater run the same topologies over the same topics of one broker, and what
they write is the same for each key."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from headwater import Config, run
from tests.kafka.broker import Broker
from tests.kafka.five import (
    PARTITIONS,
    TOPOLOGIES,
    await_written,
    expected,
    inputs,
    per_key,
    placed,
    send,
    topics,
    written,
)
from tests.kafka.original import Application, Original, described
from tests.kafka.reading import records


def out(who: str, topology: str) -> str:
    return f"beside-{topology}-{who}"


@pytest.fixture(scope="module")
def original(kafka: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Original]:
    """All five applications of Kafka Streams, over inputs that were there before they started."""
    applications = []
    for topology in TOPOLOGIES:
        names = topics(topology, f"beside-{topology}")
        for topic in (*names, out("original", topology), out("headwater", topology)):
            kafka.create(topic, PARTITIONS)
        send(kafka, placed(inputs(topology, names)))
        app_id = f"original-beside-{topology}"
        applications.append(Application(app_id, topology, out("original", topology), names))
    with Original(kafka, tmp_path_factory.mktemp("original"), *applications) as running:
        yield running


def awaited(topology: str, who: str) -> list:
    names = topics(topology, f"beside-{topology}")
    return expected(TOPOLOGIES[topology](out(who, topology), *names), out(who, topology), inputs(topology, names))


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_the_topologies_are_described_alike(topology):
    """Names of steps, stores and internal topics are the same, and so are those of changelogs."""
    names = topics(topology, "in")
    assert TOPOLOGIES[topology]("out", *names).describe() == described(topology, "out", *names)


def test_the_inputs_bring_out_what_is_hard():
    """Windows that are too late for a line, and lines without a partner."""
    assert len(awaited("window", "headwater")) < len(inputs("window", ("in",))) - 20
    assert sum(record.value.endswith(b"/null") for record in awaited("left-join", "headwater")) > 20
    assert any(record.key is None for record in awaited("left-join", "headwater"))


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_the_original_writes_what_the_driver_gives(kafka, original, topology):
    wanted = awaited(topology, "original")
    assert len(wanted) > 100
    await_written(kafka, out("original", topology), len(wanted))
    assert per_key(topology, written(kafka, out("original", topology))) == per_key(topology, wanted)


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_headwater_writes_what_the_original_writes(kafka: Broker, original: Original, tmp_path: Path, topology: str):
    wanted = awaited(topology, "headwater")
    names = topics(topology, f"beside-{topology}")
    await_written(kafka, out("original", topology), len(wanted))
    config = Config(state_dir=tmp_path, join_emit_interval=timedelta(0))
    made = TOPOLOGIES[topology](out("headwater", topology), *names)
    broker = f"kafka://{kafka.bootstrap}"
    with run(made, app_id=f"headwater-beside-{topology}", broker=broker, config=config, block=False):
        await_written(kafka, out("headwater", topology), len(wanted))
    theirs, ours = (written(kafka, out(who, topology)) for who in ("original", "headwater"))
    assert per_key(topology, ours) == per_key(topology, theirs)
    assert partitions(kafka, out("headwater", topology)) == partitions(kafka, out("original", topology))


def partitions(kafka: Broker, topic: str) -> set[tuple[bytes, int]]:
    """Where each key's records are."""
    found = ((message.key(), message.partition()) for message in records(kafka, topic))
    return {(key, partition) for key, partition in found if key is not None}
