"""Queries whose JVM is killed with kill -9 again and again, and which go on from their checkpoints: results and stores
are those of a query that nobody disturbed, on the embedded log and, read committed, on Kafka. Where writers do not look
whether a batch is there already, the same comparison finds what was doubled."""

import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from headwater.state.log import Log
from headwater.streams.spark import query as queries
from tests.kafka.broker import Broker
from tests.kafka.reading import records
from tests.spark.killed import (
    BATCH,
    OUTPUTS,
    PARTITIONS,
    SOURCES,
    STOPPED,
    STORES,
    Input,
    Place,
    Victim,
    watch,
)

# `make kill-spark` takes its time.
KILLS, SEED = 10 if os.environ.get("HEADWATER_KILLS") == "many" else 4, 5
ORDERS = 900
# Of a batch, while there are kills: small ones, so that there are many.
MAX_RECORDS = 90
# How long a shard's writer waits before and after it writes: else hardly any would be killed while they do.
MOMENT = 0.02

# Key, value, timestamp.
Row = tuple[Any, Any, int]


@dataclass(frozen=True)
class Outcome:
    """What a query has brought about: results by partition, and the rows of stores."""

    results: dict[tuple[str, int], list[Row]]
    stores: dict[str, list[Any]]
    pulses: dict[str, int]


def differences(expected: Outcome, got: Outcome) -> list[str]:
    """Say where two outcomes differ, but for what the wall clock has brought."""
    found = []
    for topic, partition in sorted(expected.results):
        if topic == "pulses":
            continue
        wanted, there = (Counter(outcome.results[topic, partition]) for outcome in (expected, got))
        if wanted != there:
            lost, more = (wanted - there).total(), (there - wanted).total()
            found.append(f"{topic}-{partition}: {lost} lost, {more} too many")
        elif in_order(topic, expected.results[topic, partition]) != in_order(topic, got.results[topic, partition]):
            found.append(f"{topic}-{partition}: another order")
    return found + [f"store {name}" for name in STORES if expected.stores[name] != got.stores[name]]


def in_order(topic: str, rows: list[Row]) -> Any:
    """What of a partition's order is the same however the input falls into batches: all, if there was no repartition;
    behind one, that of each key."""
    if topic != "digests":
        return rows
    by_key = defaultdict(list)
    for row in rows:
        by_key[row[0]].append(row)
    return by_key


def pulses_are_whole(outcome: Outcome) -> bool:
    """Whether what was sent for the ticks of every shard is one thing for each that it has counted, in order."""
    sent: dict[str, list[list[int]]] = defaultdict(list)
    for (topic, _), rows in outcome.results.items():
        if topic == "pulses":
            for key, value, _ in rows:
                sent[key.decode()].append(msgspec.json.decode(value))
    counts = {shard: [count for count, _ in ticks] for shard, ticks in sent.items()}
    times = {shard: [now for _, now in ticks] for shard, ticks in sent.items()}
    return (
        counts == {shard: list(range(1, count + 1)) for shard, count in outcome.pulses.items()}
        and all(before < after for each in times.values() for before, after in pairwise(each))
    )


class Rig:
    """Makes places, with topics, starts victims there, and brings what they left to its end."""

    def __init__(self, spark: SparkSession, kafka: Broker, folder: Path) -> None:
        self._spark = spark
        self._kafka = kafka
        self._folder = folder
        self.victims: list[Victim] = []

    def on_log(self, name: str, protected: bool = True) -> Place:
        folder = self._folder / name
        with Log.open(folder / "log") as log:
            for topic in SOURCES:
                log.create_topic(f"{name}-{topic}", PARTITIONS)
        return Place(name, f"log://{folder}/log", str(folder / "checkpoint"), protected)

    def on_kafka(self, name: str, protected: bool = True) -> Place:
        for topic in (*SOURCES, *OUTPUTS):
            self._kafka.create(f"{name}-{topic}", PARTITIONS)
        return Place(name, f"kafka://{self._kafka.bootstrap}", str(self._folder / name / "checkpoint"), protected)

    def victim(self, *places: Place, **options: Any) -> Victim:
        self.victims.append(Victim(self._folder / f"victim-{len(self.victims)}", places, **options))
        return self.victims[-1]

    def finish(self, place: Place) -> Outcome:
        query = place.start(self._spark, trigger="available-now")
        query.awaitTermination()
        stores = {name: list(query.store(name).all(timestamps=True)) for name in STORES}
        results: dict[tuple[str, int], list[Row]] = {(t, number): [] for t in OUTPUTS for number in range(PARTITIONS)}
        for topic in OUTPUTS:
            for partition, row in self._read(place, f"{place.name}-{topic}"):
                results[topic, partition].append(row)
        return Outcome(results, stores, dict(query.store("pulses").all()))

    def _read(self, place: Place, topic: str) -> Iterator[tuple[Any, Row]]:
        if place.broker.startswith("kafka://"):
            for message in records(self._kafka, topic):
                yield message.partition(), (message.key(), message.value(), message.timestamp()[1])
            return
        with Log.open(place.broker.removeprefix("log://")) as log:
            for number in range(PARTITIONS):
                with log.partition(topic, number) as partition:
                    assert list(partition.verify()) == []
                    at = partition.start
                    while rows := partition.read(at):
                        yield from ((number, (key, value, time)) for key, value, time, _, _ in rows)
                        at = rows[-1][4] + 1


@pytest.fixture(scope="module")
def given() -> Input:
    return Input.of(ORDERS)


@pytest.fixture(scope="module")
def rig(spark: SparkSession, kafka: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(spark, kafka, tmp_path_factory.mktemp("restart"))
    yield made
    if made.victims and made.victims[-1].alive:
        made.victims[-1].kill()


@pytest.fixture(scope="module")
def expected(rig: Rig, given: Input) -> Outcome:
    """What an undisturbed query brings about that has all of the input at once."""
    place = rig.on_log("undisturbed")
    place.produce(given.part(0, 1))
    outcome = rig.finish(place)
    assert min(sum(len(rows) for (t, _), rows in outcome.results.items() if t == topic) for topic in OUTPUTS) > 0
    assert pulses_are_whole(outcome)
    return outcome


def test_killed_at_random_moments_nothing_is_lost_or_doubled(rig: Rig, given: Input, expected: Outcome) -> None:
    rng = Random(SEED)
    places = rig.on_log("log"), rig.on_kafka("kafka")
    interrupted: Counter[str] = Counter()
    for kill in range(KILLS):
        for place in places:
            place.produce(given.part(kill / (KILLS + 1), (kill + 1) / (KILLS + 1)))
        victim = rig.victim(*places, max_records=MAX_RECORDS, moment=MOMENT)
        # When each has begun a batch, the one that it takes up again, or some more; which may have been written before.
        unseen = {place.name for place in places}
        while unseen:
            unseen.discard(victim.await_line(BATCH).split()[1])
        for _ in range(rng.randrange(4)):
            victim.await_line(BATCH)
        missed = [place.name for place in places if not interrupted[place.name]]
        if missed and kill >= KILLS - len(missed):
            # All kills so far were between two batches of this place: let one be within.
            while victim.await_line(BATCH).split()[1] != missed[0]:
                pass
        else:
            time.sleep(rng.uniform(0, 1))
        victim.kill()
        interrupted.update(place.name for place in places if place.begun > place.committed)
        told = (f"{place.name} began {place.begun}, committed {place.committed}" for place in places)
        print(f"seed {SEED}, kill {kill}:", *told, sep="; ")
    assert min(interrupted[place.name] for place in places) > 0
    for place in places:
        place.produce(given.part(KILLS / (KILLS + 1), 1))
        outcome = rig.finish(place)
        assert differences(expected, outcome) == [], place.name
        assert pulses_are_whole(outcome), place.name


def test_killed_in_the_drain_after_its_writing_results_are_doubled_unless_somebody_checks(
    rig: Rig, given: Input, expected: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [
        rig.on_log("log-checked"),
        rig.on_kafka("kafka-checked"),
        rig.on_log("log-unchecked", protected=False),
        rig.on_kafka("kafka-unchecked", protected=False),
    ]
    for place in places:
        place.produce(given.part(0, 1))
    victim = rig.victim(*places, stop=True)
    victim.await_line(STOPPED)
    victim.kill()
    assert [place.begun - place.committed for place in places] == [1] * 4
    monkeypatch.setattr(queries, "open_broker", watch(places))
    for place in places:
        outcome = rig.finish(place)
        found = differences(expected, outcome)
        if place.protected:
            assert found == [], place.name
        else:
            assert {line.partition(": ")[2].split(",")[0] for line in found} == {"0 lost"}, found
            assert {line.partition("-")[0] for line in found} == {"enriched", "digests"}, found
        assert pulses_are_whole(outcome) is place.protected, place.name
