"""How tasks are shared out among the workers of an application that has several sub-topologies."""

import hashlib
import logging
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from headwater import StreamsBuilder, Topology, TopologyError
from headwater.streams.app import App
from headwater.streams.kafka.dealing import spread
from headwater.streams.kafka.reset import planned_reset
from headwater.streams.kafka.roster import Announcement, Roster
from headwater.streams.kafka.settings import kafka_settings
from tests.kafka.broker import PATIENCE, Broker
from tests.kafka.place import Place
from tests.kafka.reading import records
from tests.streams.apps import until

PARTITIONS = 4
KEYS = [f"key-{number}" for number in range(40)]


@pytest.fixture
def place(kafka: Broker, tmp_path: Path) -> Place:
    return Place(kafka, tmp_path, PARTITIONS)


def chained(place: Place, repartitions: int = 2) -> Topology:
    """Sub-topologies in a row, one more than there are repartition topics."""
    builder = StreamsBuilder()
    stream = builder.stream(place.source)
    for number in range(repartitions):
        stream = stream.repartition(name=f"again-{number}")
    stream.group_by_key().count(store="counts").to_stream().to(place.sink)
    return builder.build()


def shares(*apps: App) -> list[dict[str, int]]:
    """How many tasks of each sub-topology each worker runs."""
    return [dict(Counter(task.partition("_")[0] for task in app.metrics()["tasks"])) for app in apps]


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_two_workers_get_a_share_of_every_sub_topology_instead_of_whole_ones(
    place: Place, tmp_path: Path, protocol: str
) -> None:
    half = {"0": 2, "1": 2, "2": 2}
    settings: dict[str, Any] = {"kafka": {"group.protocol": protocol}, "standbys": 1}
    with ExitStack() as running:

        def worker(name: str) -> App:
            return running.enter_context(place.app(chained(place), state_dir=tmp_path / name, **settings))

        one = worker("one")
        until(lambda: sum(shares(one)[0].values()) == 12, PATIENCE)
        two = worker("two")
        until(lambda: shares(one, two) == [half, half], PATIENCE)
        place.send(KEYS)
        place.await_counts(dict.fromkeys(KEYS, 1), PATIENCE)
        # One is replaced.
        one.stop()
        until(lambda: sum(shares(two)[0].values()) == 12, PATIENCE)
        three = worker("three")
        until(lambda: shares(two, three) == [half, half], PATIENCE)
        place.send(KEYS)
        place.await_counts(dict.fromkeys(KEYS, 2), PATIENCE)


@pytest.mark.parametrize(
    ("sizes", "workers"),
    [([4, 4], 2), ([4, 4], 4), ([4] * 6, 2), ([2] * 4, 2), ([8, 4, 2], 2), ([12] * 3, 4), ([6, 6, 1], 3), ([5, 5], 2)],
)
def test_any_run_of_tasks_has_its_share_of_every_sub_topology(sizes: list[int], workers: int) -> None:
    order = spread(f"{group}_{number}" for group, size in enumerate(sizes) for number in range(size))
    total = len(order)
    assert len(set(order)) == sum(sizes)
    for worker in range(workers):
        run = order[worker * total // workers : (worker + 1) * total // workers]
        found = Counter(int(task.partition("_")[0]) for task in run)
        for group, size in enumerate(sizes):
            assert abs(found[group] - size / workers) <= 1, (run, group)


def test_one_sub_topology_is_shared_out_by_its_input_as_before(place: Place) -> None:
    with place.app() as app:
        until(lambda: len(app.metrics()["tasks"]) == PARTITIONS, PATIENCE)
        assert not [topic for topic in place.topics() if "tasks" in topic]


def test_a_worker_of_an_older_version_is_refused_by_name_and_nothing_is_run_twice(place: Place) -> None:
    topology = chained(place)
    with place.app(topology) as app:
        until(lambda: sum(shares(app)[0].values()) == 12, PATIENCE)
        (topic,) = [topic for topic in place.topics() if topic.endswith("-assignment")]
        assert topic == place.own("tasks-12-assignment")
        # What an older one compares with its own: it refuses to run beside this one.
        until(lambda: records(place.broker, place.own("workers")), PATIENCE)
        described = hashlib.sha256(topology.describe().encode()).hexdigest()
        said = [record.value() or b"" for record in records(place.broker, place.own("workers"))]
        assert said
        assert not any(described.encode() in value for value in said)
    # And this one beside an older one.
    roster = Roster(kafka_settings(place.address, {}), place.app_id, "older")
    older = Announcement(worker="older", topology=described, host="elsewhere", pid=7, tasks=("0_0",))
    roster.announce(older)
    until(lambda: roster.poll() or roster.in_touch(), PATIENCE)
    with pytest.raises(TopologyError, match=r"'older' \(process 7 on elsewhere\).*is of an older version of Headwater"):
        place.app(topology).start()
    roster.leave()
    roster.close()
    # The topic is the application's own, and goes with a reset.
    assert topic in planned_reset(topology, place.config(), place.address, None, ()).topics


def test_a_worker_that_sees_other_partition_counts_waits_until_all_see_the_same(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headwater")
    topology = chained(place)
    with place.app(topology) as app:
        until(lambda: sum(shares(app)[0].values()) == 12, PATIENCE)
        hashes = app.look(lambda worker: worker._connection._hash)  # type: ignore[attr-defined]  # it is Kafka's
    roster = Roster(kafka_settings(place.address, {}), place.app_id, "behind")
    behind = Announcement(worker="behind", topology=hashes, tasks_topic=place.own("tasks-9-assignment"))
    roster.announce(behind)
    until(lambda: roster.poll() or roster.in_touch(), PATIENCE)
    with place.app(topology) as app:
        until(lambda: "do not see the same numbers of partitions" in caplog.text, PATIENCE)
        roster.leave()
        roster.close()
        place.send(KEYS)
        place.await_counts(dict.fromkeys(KEYS, 1), PATIENCE)
