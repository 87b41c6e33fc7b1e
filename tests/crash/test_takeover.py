"""A killed worker's tasks go to the others within seconds, and the fleet starts it again."""

import os
import signal
import time
from pathlib import Path

from headwater.streams.fleet import Fleet
from tests.crash.shop import PARTITIONS, Input, config, differences, open_log, topology
from tests.crash.workers import PATIENCE, finish, fleet, prepared, undisturbed
from tests.streams.apps import TAKEOVER_SECONDS

TASKS = 3 * PARTITIONS


def owners(folder: Path) -> dict[str, str]:
    """Return the task ids that somebody owns, with the owner's name, which comes a moment after the task."""
    with open_log(folder) as log:
        return {task: owner for task, owner in log.group("shop").owners().items() if owner}


def test_the_others_take_a_killed_workers_tasks_over(tmp_path: Path) -> None:
    prepared(Input.of(0, moving_users=False), tmp_path)
    with fleet(tmp_path) as workers:
        workers.start()
        victim = workers.start()
        give_up = time.monotonic() + PATIENCE
        while len(owners(tmp_path)) < TASKS or len(set(owners(tmp_path).values())) < 2:
            assert time.monotonic() < give_up
            time.sleep(0.02)
        workers.kill(victim)
        killed_at = time.monotonic()
        while len(owned := owners(tmp_path)) < TASKS or len(set(owned.values())) > 1:
            assert time.monotonic() < killed_at + TAKEOVER_SECONDS, owned
            time.sleep(0.02)


def test_a_fleet_starts_killed_workers_again_and_loses_nothing(tmp_path: Path) -> None:
    given = Input.of(600, moving_users=True)
    folder = prepared(given, tmp_path / "killed")
    running = Fleet(topology(), config(folder), f"log://{folder / 'log'}", 2).start()
    try:
        for number in (0, 1):
            give_up = time.monotonic() + PATIENCE
            while len(set(owners(folder).values())) < 2:
                running.watch(0.05)
                assert time.monotonic() < give_up
            process = running.processes[number]
            assert process is not None
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
            while process is running.processes[number] or running.processes[number] is None:
                running.watch(0.05)
                assert time.monotonic() < give_up
    finally:
        running.stop()
    assert differences(undisturbed(given, tmp_path / "whole"), finish(folder)) == []
