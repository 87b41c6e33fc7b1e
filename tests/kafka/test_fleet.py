"""Workers and their group: what is said and done when a member is slow, comes back too soon, or does not fit in."""

import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headwater import JoinWindows, StreamsBuilder, StreamsError, Topology, TopologyError
from headwater.streams.kafka.connection import KafkaConnection
from headwater.streams.kafka.roster import Roster
from headwater.streams.worker import Worker
from tests.kafka.broker import Broker
from tests.kafka.place import Place, failed
from tests.kafka.reading import records
from tests.kafka.service import Service
from tests.streams.apps import until

KEYS = ["ann", "bob", "cid"] * 5
ALL = {"ann": 5, "bob": 5, "cid": 5}


@pytest.fixture
def place(kafka: Broker, tmp_path: Path) -> Place:
    return Place(kafka, tmp_path)


def test_a_worker_that_is_too_slow_for_its_group_says_so_and_comes_back(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    slept = []

    def slow(value: str) -> str:
        if value == "slow" and not slept:
            slept.append(value)
            time.sleep(6)
        return value

    with place.app(place.counting(slow), kafka={"max.poll.interval.ms": "2000"}) as app:
        place.send(KEYS)
        app.wait_idle()
        place.send(["ann"], b'"slow"')
        place.await_counts(ALL | {"ann": 6})
        place.send(KEYS)
        place.await_counts({"ann": 11, "bob": 10, "cid": 10})
    assert slept
    assert "a step has kept this worker for longer than max.poll.interval.ms" in caplog.text


def test_a_static_member_that_was_killed_waits_until_its_session_has_ended(
    place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # Longer than a busy machine takes to start the next.
    place.broker.configure_group(place.app_id, "consumer.session.timeout.ms=20000")
    service = Service(place.plot, tmp_path / "log", instance_id="one")
    place.send(KEYS)
    assert service.ask("wait_idle") is None
    service.kill()
    place.send(KEYS)
    with place.app(instance_id="one") as app:
        place.await_counts({"ann": 10, "bob": 10, "cid": 10})
        assert app.restarts >= 1
    said = f"the group '{place.app_id}' does not take the instance id 'one' now: its last member with this id was"
    assert said in caplog.text
    assert "Starting again in" in caplog.text


def test_a_static_member_that_stopped_in_order_is_taken_back_at_once(place: Place, tmp_path: Path) -> None:
    for count in (1, 2):
        service = Service(place.plot, tmp_path / "log", instance_id="one")
        place.send(KEYS)
        place.await_counts(dict.fromkeys(ALL, 5 * count))
        service.end()
    assert "does not take the instance id" not in service.log


def with_another_store(place: Place) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream(place.source)
    stream.group_by_key().count(store="counts")
    stream.group_by_key().reduce(lambda old, new: new, store="latest")
    return builder.build()


def test_another_topology_is_refused_while_the_first_runs(place: Place) -> None:
    more = with_another_store(place)
    with place.app() as app:
        place.send(KEYS)
        app.wait_idle()
        until(lambda: records(place.broker, place.own("workers")))
        topics = place.topics()
        with pytest.raises(TopologyError, match=f"'{place.app_id}' is running with another topology: stop it first"):
            place.app(more).start()
        assert place.topics() == topics
        place.send(KEYS)
        app.wait_idle()
    place.await_counts({"ann": 10, "bob": 10, "cid": 10})
    with place.app(more) as app:
        app.wait_idle()
        assert app.store("counts").get("ann") == 10
        assert app.store("latest").get("ann") is None


def test_of_two_topologies_that_start_at_once_one_goes(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def see_nobody(connection: KafkaConnection) -> Roster:
        return Roster(connection._settings, connection._app_id, connection._slot.id)

    monkeypatch.setattr(KafkaConnection, "_enrol", see_nobody)
    apps = [place.app(), place.app(with_another_store(place))]
    for app in apps:
        # The second may go before it is said to have started.
        with suppress(TopologyError):
            app.start()
    until(lambda: [app.state for app in apps].count("failed") == 1)
    (gone,) = [app for app in apps if app.state == "failed"]
    assert f"'{place.app_id}' is running with another topology" in str(gone.error)
    time.sleep(1)
    (other,) = [app for app in apps if app is not gone]
    assert other.state == "running"
    other.stop()


def test_a_task_that_lost_records_of_two_inputs_to_another_worker_is_given_up(place: Place) -> None:
    builder = StreamsBuilder()
    left, right = (builder.stream(place.source).repartition(name=name) for name in ("left", "right"))
    left.join(right, lambda a, b: a, JoinWindows.of(timedelta(seconds=1))).to(place.sink)
    with place.app(builder.build()) as app:
        place.send(KEYS[:3])
        app.wait_idle()

        def cut(worker: Worker) -> None:
            """As if the group had gone on, and others had deleted what this worker would read next."""
            connection: Any = worker._connection
            (task,) = [task for task, inputs in connection._inputs.items() if len(inputs) == 2]
            for at in connection._inputs[task]:
                connection._offsets[task][at] = 0
                connection._reader.cut[at] = StreamsError(f"{at} is gone")

        app.look(cut)
        until(lambda: not app.look(lambda worker: worker._connection._reader.cut))
        app.wait_idle()
        place.send(KEYS[:3])
        app.wait_idle()
    # Two records of a key, each joined with both.
    assert {key: len(values) for key, values in place.out().items()} == {"ann": 4, "bob": 4, "cid": 4}


def test_partitions_added_under_an_application_with_state_stop_it_by_name(place: Place) -> None:
    app = place.app().start()
    place.send(KEYS)
    app.wait_idle()
    place.widen(place.source, 2)
    said = failed(app)
    assert f"topic '{place.source}' had 1 partitions and has 2, but state belongs to the partitions" in said
    assert "reset the application" in said
    place.await_counts(ALL)


def test_partitions_added_under_an_application_without_state_are_read_too(place: Place) -> None:
    with place.app(place.copying()) as app:
        place.send(KEYS)
        app.wait_idle()
        place.widen(place.source, 4)

        def tasks() -> int:
            # While it starts again it cannot be asked.
            with suppress(StreamsError):
                return len(app.metrics()["tasks"])
            return 0

        until(lambda: tasks() == 4)
        place.send(KEYS)
        until(lambda: sum(map(len, place.out().values())) >= 30)
    assert {key: len(values) for key, values in place.out().items()} == {"ann": 10, "bob": 10, "cid": 10}


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory):
    """A broker that knows only the classic protocol."""
    broker = Broker(tmp_path_factory.mktemp("old"), {"group.coordinator.rebalance.protocols": "classic"}).start()
    yield broker
    broker.kill()


def test_brokers_without_the_new_group_protocol_are_spoken_to_in_the_classic_one(
    old: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = Place(old, tmp_path, 2)
    with place.app() as first:
        place.send(KEYS)
        place.await_counts(ALL)
        with place.app() as second:
            until(lambda: [len(app.metrics()["tasks"]) for app in (first, second)] == [1, 1], 60)
            place.send(KEYS)
            place.await_counts({"ann": 10, "bob": 10, "cid": 10})
        until(lambda: len(first.metrics()["tasks"]) == 2, 60)
        place.send(KEYS)
        place.await_counts({"ann": 15, "bob": 15, "cid": 15})
    assert "the brokers do not know the group protocol of KIP-848: the classic one is used" in caplog.text
