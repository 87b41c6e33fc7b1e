"""Workers as processes: started together, started again, taken over, stopped together."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headwater import Config, StreamsBuilder, StreamsError, Topology
from headwater.streams.fleet import Fleet
from headwater.streams.queries import Metrics, Query
from headwater.streams.sockets import ask_all, query
from tests.streams.apps import PATIENCE, TAKEOVER_SECONDS, Place, counting, until


def metrics(place: Place) -> list[dict[str, Any]]:
    return list(ask_all(place.sockets, Metrics()).values())


def shared(place: Place, workers: int, tasks: int = 4) -> bool:
    """Whether so many workers run, and each task has one of them."""
    found = metrics(place)
    running = [task for worker in found for task in worker["tasks"]]
    return len(found) == workers and len(running) == tasks and all(worker["tasks"] for worker in found)


@contextmanager
def fleet(place: Place, workers: int, topology: Topology | None = None) -> Iterator[Fleet]:
    made = Fleet(topology or counting(), Config("app"), place.broker, workers)
    try:
        yield made.start()
    finally:
        for process in made.processes:
            if process is not None and process.is_alive():
                process.kill()


def watch(workers: Fleet) -> None:
    """Watch over the workers until that raises."""
    until(lambda: workers.watch(0.05))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, partitions=4)


def counted(place: Place) -> dict[str, int] | None:
    found = query(place.sockets, Query("counts", "all"))
    if found is None or found.missing:
        return None
    return {row["key"]: row["value"] for row in found.rows}


def test_two_workers_share_the_tasks_and_stop_after_a_last_commit(place: Place) -> None:
    keys = [f"k{n}" for n in range(20)]
    place.send(*keys, *keys)
    with fleet(place, 2) as workers:
        until(lambda: shared(place, 2))
        until(lambda: counted(place) == dict.fromkeys(keys, 2))
        workers.stop()
    assert len(workers.last) == 2
    assert sum(told["records-total"] for told in workers.last) == 40
    assert len(place.out()) == 40
    assert metrics(place) == []


def test_a_killed_worker_is_replaced_at_once_and_started_again(place: Place) -> None:
    keys = [f"k{n}" for n in range(20)]
    place.send(*keys)
    with fleet(place, 2) as workers:
        until(lambda: shared(place, 2))
        until(lambda: counted(place) == dict.fromkeys(keys, 1))
        (victim, _) = (process for process in workers.processes if process is not None)
        assert victim.pid is not None
        os.kill(victim.pid, signal.SIGKILL)
        # Nobody watches over the fleet meanwhile, so the other one must take over all tasks itself.
        assert until(lambda: shared(place, 1)) < TAKEOVER_SECONDS
        place.send(*keys)
        until(lambda: counted(place) == dict.fromkeys(keys, 2))
        began = time.monotonic()
        while not shared(place, 2):
            workers.watch(0.05)
            assert time.monotonic() - began < PATIENCE
        place.send(*keys)
        until(lambda: counted(place) == dict.fromkeys(keys, 3))
        workers.stop()
    assert len(place.out()) == 60


def test_all_stop_when_one_fails_for_good(place: Place) -> None:
    builder = StreamsBuilder()
    builder.stream("in").map_values(lambda value: value["price"]).to("out")
    with fleet(place, 2, builder.build()) as workers:
        until(lambda: shared(place, 2))
        place.send("a")
        with pytest.raises(StreamsError, match=r"worker \d has failed: step 'KSTREAM-MAPVALUES-0000000001'.*TypeError"):
            watch(workers)
        assert workers.processes == [None, None]
    assert metrics(place) == []


def test_what_keeps_a_worker_from_starting_is_raised(tmp_path: Path) -> None:
    place = Place(tmp_path, topics=("other",))
    with fleet(place, 1) as workers, pytest.raises(StreamsError, match=r"topic 'in' .* does not exist"):
        watch(workers)
