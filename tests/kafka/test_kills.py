"""Three workers on Kafka, killed with SIGKILL again and again, one stopped for longer than its session, the broker
restarted under them: outputs and stores are those of a run that nobody disturbed. Without transactions the same
comparison finds what was doubled."""

import os
import time
from pathlib import Path
from random import Random

import pytest

from tests.crash.shop import counted, differences
from tests.crash.workers import Dying, undisturbed
from tests.kafka.broker import Broker
from tests.kafka.shop import feeding
from tests.kafka.workers import PAST_SESSION, KafkaFleet, finish, fleet

WORKERS = 3
# `make kill-kafka` takes its time.
MANY = os.environ.get("HEADWATER_KILLS") == "many"
KILLS = 40 if MANY else 15
SEEDS = range(1, 6) if MANY else (1,)


def random_kills(kafka: Broker, workers: KafkaFleet, kills: int, rng: Random) -> None:
    """Kill workers at random moments; one is only stopped for a while, and Kafka goes away in order and without."""
    restarts = {kills // 3: kafka.restart, 2 * kills // 3: lambda: (kafka.kill(), kafka.start())}
    for kill in range(kills):
        # Not always: a kill may find workers that start, or that restore what the last one left.
        if rng.random() < 0.6:
            workers.await_commits()
        time.sleep(rng.uniform(0.0, 0.5))
        if kill in restarts:
            restarts[kill]()
        if kill == kills // 2:
            sleeper = rng.choice(workers.alive)
            workers.suspend(sleeper)
            time.sleep(PAST_SESSION)
            workers.await_commits()
            workers.resume(sleeper)
        workers.kill(rng.choice(workers.alive))
        workers.start(wait=rng.random() < 0.5)
        workers.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_kills_lose_and_double_nothing(tmp_path: Path, broker: Broker, seed: int) -> None:
    # Every other time, tasks are taken over by workers that have stood by for them.
    standing_by = {"standbys": seed % 2}
    with (
        fleet(broker, tmp_path / "killed", changes=standing_by) as workers,
        feeding(broker, seed, per_second=100) as feed,
    ):
        for _ in range(WORKERS):
            workers.start()
        random_kills(broker, workers, KILLS, Random(seed))
        given = feed.end()
        workers.await_commits()
        workers.end()
        assert workers.kills >= KILLS
    got = finish(broker, tmp_path / "killed")
    assert differences(undisturbed(given, tmp_path / "undisturbed"), got) == []


def test_without_transactions_kills_are_noticed(tmp_path: Path, broker: Broker) -> None:
    """The control: the same, at least once; two of the kills fall between the records and their offsets."""
    at_least_once = {"exactly_once": False}
    with (
        fleet(broker, tmp_path / "killed", changes=at_least_once) as workers,
        feeding(broker, seed=1, per_second=100) as feed,
    ):
        workers.start()
        workers.start()
        for _ in range(2):
            workers.died(workers.start(Dying("after-flush", 5)))
            workers.await_commits()
            workers.kill(workers.alive[0])
            workers.start()
        given = feed.end()
        workers.end()
    got = finish(broker, tmp_path / "killed", **at_least_once)
    found = differences(undisturbed(given, tmp_path / "undisturbed"), got)
    assert any(counted(line, "too many") for line in found), found
    assert any(line.startswith("store") for line in found), found
