"""Workers on Kafka that come and go every few seconds under load: nothing is lost or doubled, and how long partitions
pause whose owner stays the same is measured and printed."""

import os
import time
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from tests.crash.shop import PARTITIONS, differences
from tests.crash.workers import undisturbed
from tests.kafka.broker import Broker
from tests.kafka.shop import feeding, make_topics
from tests.kafka.workers import PATIENCE, KafkaFleet, finish, fleet
from tests.streams.apps import until

# `make rebalance-kafka` takes its time.
SECONDS = 120 if os.environ.get("HEADWATER_REBALANCE") == "long" else 25
EVERY = 3.0
# However long that takes on a machine that has other things to do.
LEAST = SECONDS / EVERY / 3
# These read what is fed; other tasks may pause since those that feed them do.
FED = {f"0_{number}" for number in range(PARTITIONS)}


def come_and_go(workers: KafkaFleet, seconds: float, rng: Random) -> int:
    """Let workers join and leave, between two and four of them; how often they did."""
    ends, moves = time.monotonic() + seconds, 0
    while time.monotonic() < ends or moves < LEAST:
        due = time.monotonic() + EVERY
        if len(workers.alive) < 3 or (len(workers.alive) < 4 and rng.random() < 0.5):
            workers.start()
        else:
            workers.leave(rng.choice(workers.alive))
        moves += 1
        workers.check()
        time.sleep(max(0.0, due - time.monotonic()))
    return moves


def pauses(commits: Iterable[tuple[float, int, list[str]]]) -> list[float]:
    """How long after its last commit a fed task was committed again by the same worker, shortest first."""
    by_task: dict[str, list[tuple[float, int]]] = {task: [] for task in FED}
    for at, owner, tasks in sorted(commits):
        for task in FED.intersection(tasks):
            by_task[task].append((at, owner))
    return sorted(
        later - at for times in by_task.values() for (at, owner), (later, next_owner) in pairwise(times)
        if owner == next_owner
    )  # fmt: skip


def pauses_since(workers: KafkaFleet, began: float) -> list[float]:
    """The pauses since then; there is one at least."""
    until(lambda: pauses(commit for commit in workers.commits() if commit[0] > began), PATIENCE)
    return pauses(commit for commit in workers.commits() if commit[0] > began)


def test_workers_that_come_and_go_lose_and_double_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = Broker(tmp_path / "broker").start()
    make_topics(broker)
    try:
        with fleet(broker, tmp_path / "moved") as workers, feeding(broker, seed=3, per_second=150) as feed:
            workers.start()
            workers.start()
            workers.await_commits(20)
            began = time.monotonic()
            # Nobody comes or goes at first, for comparison.
            time.sleep(SECONDS / 5)
            calm = pauses_since(workers, began)
            began = time.monotonic()
            moves = come_and_go(workers, SECONDS, Random(3))
            moving = pauses_since(workers, began)
            given = feed.end()
            for worker in list(workers.alive):
                workers.leave(worker)
        got = finish(broker, tmp_path / "moved")
    finally:
        broker.kill()
    assert differences(undisturbed(given, tmp_path / "undisturbed"), got) == []
    with capsys.disabled():
        print(
            f"\n{moves} workers came or went within {SECONDS} s; partitions whose owner stayed paused for up to "
            f"{moving[-1]:.2f} s (median {moving[len(moving) // 2]:.3f} s); {calm[-1]:.2f} s while nobody moved "
            f"(median {calm[len(calm) // 2]:.3f} s)"
        )
