"""A worker on Kafka that is killed, or stopped for longer than its session, at each point of a commit while another
takes its tasks over: outputs and stores are those of a run that nobody disturbed."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.crash.shop import counted, differences
from tests.crash.workers import Dying, undisturbed
from tests.kafka.broker import PATIENCE, Broker
from tests.kafka.reading import end, start
from tests.kafka.shop import APP, feeding
from tests.kafka.workers import PAST_SESSION, HardOfHearing, Impatient, KafkaFleet, Stopping, finish, fleet
from tests.streams.apps import until

# The shortest session that a broker allows by default.
CLASSIC = {"group.protocol": "classic", "session.timeout.ms": "6000"}
POINTS = ("after-offsets", "after-records", "after-transaction", "after-rows")


def test_kills_at_every_point_of_a_commit_lose_and_double_nothing(tmp_path: Path, broker: Broker) -> None:
    with fleet(broker, tmp_path / "killed") as workers, feeding(broker, seed=1, per_second=50) as feed:
        workers.start()
        for point in POINTS:
            # Nobody takes its slot: what it has left open ends when the brokers end it, and the other waits for that.
            workers.died(workers.start(Dying(point, 5)))
            workers.await_tasks(workers.alive[0])
        given = feed.end()
        workers.end()
    got = finish(broker, tmp_path / "killed")
    assert differences(undisturbed(given, tmp_path / "undisturbed"), got) == []


def stop_and_go(workers: KafkaFleet, point: str, meanwhile: Callable[[], Any]) -> None:
    """Let a worker stop at a point, and go on after something has happened."""
    sleeper = workers.start(Stopping(point, 5))
    workers.await_stop(sleeper)
    meanwhile()
    workers.resume(sleeper)
    workers.await_commits()
    workers.leave(sleeper)


def test_a_worker_that_was_away_at_any_point_of_a_commit_loses_and_doubles_nothing(
    tmp_path: Path, broker: Broker
) -> None:
    with fleet(broker, tmp_path / "stopped") as workers, feeding(broker, seed=2, per_second=50) as feed:
        workers.start()
        for point in POINTS:
            stop_and_go(workers, point, lambda: time.sleep(PAST_SESSION))
        given = feed.end()
        workers.end()
    got = finish(broker, tmp_path / "stopped")
    assert differences(undisturbed(given, tmp_path / "undisturbed"), got) == []


def test_a_broker_that_was_away_at_any_point_of_a_commit_loses_and_doubles_nothing(
    tmp_path: Path, broker: Broker
) -> None:
    with fleet(broker, tmp_path / "stopped") as workers, feeding(broker, seed=3, per_second=50) as feed:
        workers.start()
        for point in ("after-records", "after-transaction"):
            stop_and_go(workers, point, lambda: (broker.kill(), broker.start()))
        given = feed.end()
        workers.end()
    got = finish(broker, tmp_path / "stopped")
    assert differences(undisturbed(given, tmp_path / "undisturbed"), got) == []


@pytest.mark.parametrize("protocol", [{}, CLASSIC], ids=["consumer", "classic"])
def test_a_worker_that_was_away_while_others_processed_and_deleted_its_records_goes_on(
    tmp_path: Path, broker: Broker, protocol: dict[str, str]
) -> None:
    with (
        fleet(broker, tmp_path / "stopped", connect=HardOfHearing, changes={"kafka": protocol}) as workers,
        feeding(broker, seed=5, per_second=50) as feed,
    ):
        sleeper = workers.start(Stopping("between", 50, moment=0.0))
        workers.await_stop(sleeper)
        topic = f"{APP}-by-shop-repartition"
        last = end(broker, topic, committed=False)
        workers.await_tasks(workers.start())
        # The other deletes what it has processed once in a while.
        until(lambda: start(broker, topic) > last, PATIENCE)
        before = len(workers.commits())
        workers.resume(sleeper)
        until(lambda: sleeper.pid in {pid for _, pid, _ in workers.commits()[before:]}, PATIENCE)
        given = feed.end()
        workers.end()
    got = finish(broker, tmp_path / "stopped", kafka=protocol)
    assert differences(undisturbed(given, tmp_path / "undisturbed"), got) == []


def test_who_does_not_wait_for_open_transactions_is_noticed(tmp_path: Path, broker: Broker) -> None:
    """The control: a worker takes offsets as they are, while the one that has just stopped still commits others."""
    # Longer than it takes to take all tasks over: a transaction that the broker has ended is nothing to wait for.
    lasting = {"kafka": {"transaction.timeout.ms": "180000"}}
    with (
        fleet(broker, tmp_path / "stopped", connect=Impatient, changes=lasting) as workers,
        feeding(broker, seed=4, per_second=50) as feed,
    ):
        workers.start()
        sleeper = workers.start(Stopping("after-records", 5, moment=0.0))
        workers.await_stop(sleeper)
        workers.await_tasks(workers.alive[0])
        workers.resume(sleeper)
        workers.await_commits()
        workers.leave(sleeper)
        given = feed.end()
        workers.end()
    got = finish(broker, tmp_path / "stopped")
    found = differences(undisturbed(given, tmp_path / "undisturbed"), got)
    assert any(counted(line, "too many") for line in found), found
