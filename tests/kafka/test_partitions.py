"""Backfills over four partitions on Kafka: one worker drops nothing; and where it does not matter which task comes
first, Kafka Streams in a JVM ends with the same results."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer

from headwater import Topology
from headwater.streams.run import open_app
from tests.backfill.inputs import PARTITIONS, Inputs
from tests.backfill.players import PATIENCE as LONG
from tests.backfill.players import await_idle, await_share, count_app, settings
from tests.backfill.results import Outcome, Row, decoded, difference
from tests.backfill.runs import FEW, Run, check_counted, check_equal, few, runs
from tests.backfill.topologies import CASES, build, read_by
from tests.kafka.broker import PATIENCE, Broker
from tests.kafka.original import Application, Original
from tests.kafka.reading import records


def make_topics(kafka: Broker, topics: Iterable[str], prefix: str) -> None:
    for topic in topics:
        kafka.create(prefix + topic, PARTITIONS)


def send(kafka: Broker, inputs: Inputs, topics: set[str], prefix: str) -> None:
    """Fill topics, each partition in order."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True})
    for record in inputs.of(topics):
        while True:
            try:
                producer.produce(
                    prefix + record.topic,
                    key=record.key,
                    value=record.value,
                    partition=record.partition,
                    timestamp=record.timestamp,
                    headers=list(record.headers),
                )
                break
            except BufferError:
                producer.poll(1)
    assert producer.flush(PATIENCE) == 0


def results(kafka: Broker, topology: Topology, topic: str) -> list[Row]:
    """The committed records of a topic."""
    found = [(m.key(), m.value(), m.timestamp()[1], tuple(m.headers() or ())) for m in records(kafka, topic)]
    return decoded(topology, topic, found)


def by_worker(
    kafka: Broker, topology: Topology, inputs: Inputs, names: Sequence[str], prefix: str, folder: Path
) -> Outcome:
    """Through one worker, over topics that were full before it started."""
    make_topics(kafka, [*read_by(topology, prefix), *names], prefix)
    send(kafka, inputs, read_by(topology, prefix), prefix)
    config = settings(f"{prefix}app", state_dir=folder)
    with open_app(topology, config, f"kafka://{kafka.bootstrap}") as app:
        app.wait_idle(LONG)
        outcome = Outcome({name: results(kafka, topology, prefix + name) for name in names})
        count_app(outcome, app)
    return outcome


@pytest.mark.parametrize("run", runs("tables", "merged", "shop"), ids=str)
def test_one_worker_drops_nothing_in_a_backfill(kafka: Broker, run: Run, tmp_path: Path) -> None:
    prefix = f"partitions-{run}-"
    check_equal(run, by_worker(kafka, run.build(prefix), run.inputs, run.names, prefix, tmp_path))


def by_two_workers(
    kafka: Broker, topology: Topology, inputs: Inputs, names: Sequence[str], prefix: str, folder: Path
) -> Outcome:
    """Through two workers that have half of the tasks each before they are given anything: none moves any more."""
    make_topics(kafka, [*read_by(topology, prefix), *names], prefix)
    config = settings(f"{prefix}app", state_dir=folder)
    with ExitStack() as stack:
        apps = [open_app(topology, config, f"kafka://{kafka.bootstrap}") for _ in range(2)]
        for app in apps:
            stack.enter_context(app)
        await_share(apps)
        for app in apps:
            app.pause()
        send(kafka, inputs, read_by(topology, prefix), prefix)
        for app in apps:
            app.resume()
        await_idle(apps)
        outcome = Outcome({name: results(kafka, topology, prefix + name) for name in names})
        for app in apps:
            count_app(outcome, app)
    return outcome


@pytest.mark.parametrize("run", few("shop"), ids=str)
def test_of_two_workers_what_is_missing_is_counted_by_step(kafka: Broker, run: Run, tmp_path: Path) -> None:
    prefix = f"partitions-two-{run}-"
    outcome = by_two_workers(kafka, run.build(prefix), run.inputs, run.names, prefix, tmp_path)
    check_counted(run, outcome, once=False)


# ---- Kafka Streams ---------------------------------------------------------------------------------------------------

# A topology whose final results do not depend on which task came first, and what it reads, in the original's order.
BESIDE = {
    "count": ("orders",),
    "count-behind-two": ("orders",),
    "count-regrouped": ("orders",),
    "tables-regrouped": ("members", "profiles"),
    "foreign-key-join": ("members", "profiles", "places"),
}
PREFIX = "partitions-beside-"
BESIDE_INPUTS = Inputs(FEW, seed=3)


@pytest.fixture(scope="module")
def original(kafka: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Original]:
    """The applications of Kafka Streams, over inputs that were there before they started."""
    read = {topic for topics in BESIDE.values() for topic in topics}
    make_topics(kafka, [*read, *BESIDE], PREFIX)
    send(kafka, BESIDE_INPUTS, read, PREFIX)
    applications = []
    for name, topics in BESIDE.items():
        inputs = tuple(PREFIX + topic for topic in topics)
        applications.append(Application(f"{PREFIX}{name}-original", f"backfill-{name}", PREFIX + name, inputs))
    with Original(kafka, tmp_path_factory.mktemp("original"), *applications) as running:
        yield running


@pytest.mark.parametrize("name", BESIDE)
def test_kafka_streams_ends_with_the_same(kafka: Broker, original: Original, name: str) -> None:
    """The same as plain Python, and so the same as all the others."""
    case, topology = CASES[name], build([name], PREFIX)
    expected = case.expected(BESIDE_INPUTS)
    deadline = time.monotonic() + PATIENCE
    while (text := difference(case, expected, results(kafka, topology, PREFIX + name))) is not None:
        assert time.monotonic() < deadline, text
        time.sleep(0.5)
