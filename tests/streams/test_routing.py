"""Where a key is said to be is where it is: for every store of these topologies, after they have run."""

import json
from pathlib import Path
from typing import Any

import pytest

from headwater import Config, Int64, Json, KeyValue, Processor, Producer, Str, StreamsBuilder, Topology
from headwater.streams.plan import plan
from headwater.streams.queries import committed
from headwater.streams.routing import keepers, task_of
from tests.streams.apps import Place

PARTITIONS = 4
PEOPLE = [f"person-{number}" for number in range(40)]


def counted() -> StreamsBuilder:
    builder = StreamsBuilder()
    people = builder.stream("in")
    people.group_by_key().count(store="by-key")
    people.group_by(lambda key, value: value["city"]).count(store="by-city")
    people.group_by(lambda key, value: value["age"], key=Int64()).count(store="by-age")
    return builder


def joined() -> StreamsBuilder:
    builder = StreamsBuilder()
    people = builder.table("in", store="people")
    cities = builder.table("cities", store="cities")
    people.join(
        cities, lambda person, city: [person, city], foreign_key=lambda person: person["city"], store="with-city"
    )
    people.map_values(lambda person: person["age"], store="ages")
    return builder


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path, PARTITIONS, ("in", "cities"))
    with Producer(place.broker) as producer:
        for number, person in enumerate(PEOPLE):
            value = {"city": f"city-{number % 7}", "age": number % 5}
            producer.send("in", key=person, value=json.dumps(value), timestamp=1000)
        for number in range(7):
            producer.send("cities", key=f"city-{number}", value="1", timestamp=1000)
    return place


def kept(place: Place, topology: Topology, store: str) -> list[tuple[str, str | None]]:
    """For each row of a store, the task that has it and the one that is said to have it."""
    with place.app(topology) as app:
        app.wait_idle()

        def read(worker: Any) -> list[tuple[str, str | None]]:
            return [
                (task_id, task_of(worker.plan, store, key))
                for task_id, running in worker.tasks.items()
                if store in running.task.stores
                for key, _ in committed(worker, store, [running.backend]).all()
            ]

        return app.look(read)


@pytest.mark.parametrize(
    ("build", "store", "rows"),
    [
        (counted, "by-key", 40),
        (counted, "by-city", 7),
        (counted, "by-age", 5),
        (joined, "people", 40),
        (joined, "cities", 7),
        (joined, "with-city", 40),
        (joined, "ages", 40),
    ],
)
def test_a_key_is_where_it_is_said_to_be(place: Place, build: Any, store: str, rows: int) -> None:
    found = kept(place, build().build(), store)
    assert len(found) == rows
    assert len({task for task, _ in found}) > 1
    assert [said for _, said in found] == [task for task, _ in found]


class Keep(Processor):
    def process(self, record: Any) -> None:
        self.context.store("kept").put(record.value["city"], record.key)


def by_processor() -> Topology:
    return Topology().add_source("in", "in").add_processor("keep", Keep, "in").add_store(KeyValue("kept"), "keep")


def by_own_partitioner() -> Topology:
    builder = StreamsBuilder()
    odd = builder.stream("in").repartition(partitioner=lambda topic, key, value, partitions: len(key) % partitions)
    odd.group_by_key().count(store="kept")
    return builder.build()


def by_pattern() -> Topology:
    import re

    builder = StreamsBuilder()
    builder.stream(re.compile("in|other")).group_by_key().count(store="kept")
    return builder.build()


def by_uneven_topics() -> Topology:
    builder = StreamsBuilder()
    builder.stream(["in", "uneven"]).group_by_key().count(store="kept")
    return builder.build()


def by_foreign_key_partitioner() -> Topology:
    builder = StreamsBuilder()
    people, cities = builder.table("in", store="kept"), builder.table("cities")
    people.join(
        cities,
        lambda person, city: person,
        foreign_key=lambda person: person["city"],
        partitioner=lambda topic, key, value, partitions: len(key) % partitions,
    )
    return builder.build()


@pytest.mark.parametrize(
    "build", [by_processor, by_own_partitioner, by_pattern, by_uneven_topics, by_foreign_key_partitioner]
)
def test_where_it_cannot_be_known_nothing_is_said(build: Any) -> None:
    planned = plan(build(), Config("app"), lambda topic: 2 if topic == "uneven" else PARTITIONS)
    assert len(keepers(planned, "kept")) == PARTITIONS
    assert task_of(planned, "kept", "person-1") is None


def test_the_only_task_has_every_key() -> None:
    planned = plan(by_processor(), Config("app"), lambda topic: 1)
    assert task_of(planned, "kept", "anything") == "0_0"


def test_the_bytes_of_the_topic_count_and_not_those_of_the_store() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=Json()).group_by_key(key=Str()).count(store="kept")
    quoted = plan(builder.build(), Config("app"), lambda topic: 64)
    builder = StreamsBuilder()
    builder.stream("in", key=Str()).group_by_key(key=Str()).count(store="kept")
    bare = plan(builder.build(), Config("app"), lambda topic: 64)
    keys = [f"k{number}" for number in range(20)]
    assert [task_of(quoted, "kept", key) for key in keys] != [task_of(bare, "kept", key) for key in keys]
