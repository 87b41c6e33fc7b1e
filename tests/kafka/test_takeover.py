"""Taking over: one application stops, its state directory is deleted, and the other goes on under the same application
id: from the changelogs, the committed offsets and the notes with them, to the result of one that never stopped."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions

from headwater import Config, run
from headwater.streams.kafka.offset_notes import decode, note_of
from tests.kafka.broker import PATIENCE, Broker
from tests.kafka.five import (
    NOT_TAKEN_OVER,
    PARTITIONS,
    TAKEN_OVER,
    In,
    await_written,
    expected,
    inputs,
    per_key,
    placed,
    send,
    topics,
    written,
)
from tests.kafka.original import Application, Original
from tests.kafka.reading import records, settle
from tests.streams.apps import until


@contextmanager
def original(kafka: Broker, directory: Path, applications: list[Application]) -> Iterator[None]:
    with Original(kafka, directory, *applications):
        yield


@contextmanager
def headwater(kafka: Broker, directory: Path, applications: list[Application]) -> Iterator[None]:
    with ExitStack() as running:
        for app_id, topology, out, names in applications:
            made = {**TAKEN_OVER, **NOT_TAKEN_OVER}[topology](out, *names)
            config = Config(app_id, state_dir=directory, window_emit_interval=timedelta(0))
            running.enter_context(run(made, broker=f"kafka://{kafka.bootstrap}", config=config, block=False))
        yield


# The buffers that Kafka Streams cannot read, and what it says of them.
STORES = {"suppressed": "KTABLE-SUPPRESS-STATE-STORE-0000000004", "graceful": "KSTREAM-JOIN-0000000003-Buffer"}
STOPS = {"suppressed": "Restoring apparently invalid changelog record", "graceful": "IndexOutOfBoundsException"}
RUNNERS = {"the original": original, "headwater": headwater}


def halves(application: Application) -> tuple[list[tuple[int, In]], list[tuple[int, In]]]:
    """Its inputs in two halves.

    The second half of what is counted is older than the first: the notes' times must be kept. That of the windows
    begins with each partition's newest record again, since Kafka Streams' windows forget at a restart what time it was.
    """
    made = placed(inputs(application.topology, application.inputs))
    middle = len(made) // 2
    first, second = made[:middle], made[middle:]
    if application.topology == "count":
        return first, [(at, record._replace(timestamp=record.timestamp - 3_600_000)) for at, record in second]
    newest = {at: max((one for one in first if one[0] == at), key=lambda one: one[1].timestamp) for at, _ in first}
    return first, [*newest.values(), *second]


def notes(kafka: Broker, application: Application) -> dict[tuple[str, int], int]:
    """The partition times that the notes with the committed offsets of its inputs tell.

    Where windows are emitted when they close, the notes also tell up to which time they were.
    """
    settle(kafka, "__consumer_offsets")
    # Kept in a name: with the client go its answers.
    admin = kafka.admin()
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(application.app_id)])
    found = asked[application.app_id].result(PATIENCE).topic_partitions
    told = {(at.topic, at.partition): decode(note_of(at)) for at in found if at.topic in application.inputs}
    stores = {store for _, numbers in told.values() for store in numbers}
    assert stores == ({"KSTREAM-AGGREGATE-STATE-STORE-0000000002"} if application.topology == "closing" else set())
    return {place: time for place, (time, _) in told.items()}


def times(sent: list[tuple[int, In]]) -> dict[tuple[str, int], int]:
    """The highest timestamp in each partition."""
    return {
        (topic, partition): max(one.timestamp for at, one in sent if (at, one.topic) == (partition, topic))
        for partition, topic in {(at, one.topic) for at, one in sent}
    }


@pytest.mark.parametrize(
    ("before", "after"),
    [("the original", "headwater"), ("headwater", "the original")],
    ids=["headwater takes over", "the original takes over"],
)
def test_the_other_application_goes_on_to_the_same_result(kafka: Broker, tmp_path: Path, before: str, after: str):
    applications = []
    for topology in TAKEN_OVER:
        app_id = f"takeover-{before}-{topology}".replace(" ", "-")
        application = Application(app_id, topology, f"{app_id}-out", topics(topology, app_id))
        for topic in (*application.inputs, application.out):
            kafka.create(topic, PARTITIONS)
        send(kafka, halves(application)[0])
        applications.append(application)

    def wanted(application: Application, *portions: list[tuple[int, In]]) -> list:
        made = TAKEN_OVER[application.topology](application.out, *application.inputs)
        return expected(made, application.out, *([record for _, record in portion] for portion in portions))

    with RUNNERS[before](kafka, tmp_path / "before", applications):
        for application in applications:
            await_written(kafka, application.out, len(wanted(application, halves(application)[0])))
    shutil.rmtree(tmp_path / "before")
    for application in applications:
        first, second = halves(application)
        assert notes(kafka, application) == times(first)
        send(kafka, second)

    with RUNNERS[after](kafka, tmp_path / "after", applications):
        for application in applications:
            await_written(kafka, application.out, len(wanted(application, *halves(application))))
    for application in applications:
        first, second = halves(application)
        assert per_key(application.topology, written(kafka, application.out)) == per_key(
            application.topology, wanted(application, first, second)
        )
        assert notes(kafka, application) == times(first + second)


@pytest.mark.parametrize("topology", NOT_TAKEN_OVER)
def test_a_buffer_of_ours_stops_kafka_streams_instead_of_being_restored_as_nothing(
    kafka: Broker, tmp_path: Path, topology: str
) -> None:
    app_id = f"not-taken-over-{topology}"
    application = Application(app_id, topology, f"{app_id}-out", topics(topology, app_id))
    for topic in (*application.inputs, application.out):
        kafka.create(topic, PARTITIONS)
    send(kafka, placed(inputs(topology, application.inputs))[:60])
    with headwater(kafka, tmp_path / "before", [application]):
        until(lambda: records(kafka, f"{app_id}-{STORES[topology]}-changelog"), PATIENCE)
        until(lambda: notes(kafka, application) == times(placed(inputs(topology, application.inputs))[:60]), PATIENCE)
    with pytest.raises(RuntimeError, match=STOPS[topology]), original(kafka, tmp_path / "after", [application]):
        pytest.fail("Kafka Streams has restored what it cannot read")
