"""Power loss: all workers die at once, and the log's files go back to what was synced, or to a little more. No offset
points past what is left, and in the end nothing is lost or doubled.

The log's file layer is substituted: it keeps a copy of what each sync made durable. RocksDB is not: a commit writes to
it with sync=True, and its synced write-ahead log is trusted. Producers of the test do not sync, so input is lost too,
as far as no commit relied on it; they then go on from where the log ends.
"""

import time
from pathlib import Path
from random import Random

import pytest

from headwater.errors import StateError
from headwater.state.log import Files
from headwater.state.rocks import RocksBackend
from headwater.streams.log_connection import OUTBOX, LogConnection
from headwater.streams.plan import plan
from headwater.streams.task import Task
from tests.crash.shop import PARTITIONS, Input, config, counted, differences, open_log, topology
from tests.crash.workers import Dying, NoInputSync, NoOutputSync, Unchecked, finish, fleet, tasks_directory, undisturbed
from tests.state.log.layers import Lossy

LOSSES = 6
POINTS = ("before-write", "after-write", "after-append", "before-sync", "after-sync")


def past_the_end(folder: Path, files: Files) -> list[str]:
    """Return the committed offsets that point past the log's end."""
    found = []
    settings = config(folder)
    with open_log(folder, files) as log:
        ends: dict[tuple[str, int], int] = {}
        for info in log.topics():
            for number in range(info.partitions):
                with log.partition(info.name, number) as partition:
                    ends[info.name, number] = partition.end
        committed = {("group", *place): at for place, at in log.group(settings.app_id).committed().items()}
    for spec in plan(topology(), settings, lambda topic: PARTITIONS).tasks:
        directory = tasks_directory(settings, folder) / spec.task_id
        if (directory / "CURRENT").exists():
            backend = RocksBackend(directory, [*spec.backend_stores(), OUTBOX])
            offsets = Task(spec, backend, lambda topic: PARTITIONS).offsets
            backend.close()
            committed |= {(spec.task_id, *place): at for place, at in offsets.items()}
    for (who, *place), at in committed.items():
        if at > ends[tuple(place)]:
            found.append(f"{who} has committed {place}@{at}, which ends at {ends[tuple(place)]}")
    return found


def lossy(folder: Path) -> Lossy:
    folder.mkdir()
    return Lossy(folder / "log", folder / "shadow")


def test_power_losses_lose_and_double_nothing(tmp_path: Path) -> None:
    # The other worker must not be done with it before the one that is to die has come so far.
    given = Input.of(16_000, moving_users=False)
    folder = tmp_path / "lost"
    files = lossy(folder)
    rng = Random(3)
    moments = [Dying(point, rng.randint(1, 12)) for point in POINTS] + [None] * LOSSES
    with open_log(folder, files) as log:
        given.make_topics(log)
        given.produce(log, ("users", "shops"))
    with fleet(folder, files) as workers:
        for number, dying in enumerate(moments):
            with open_log(folder, files) as log:
                given.produce(log, ("orders",), share=(number + 1) / len(moments), sync=False)
            workers.start()
            victim = workers.start(dying)
            if dying is None:
                time.sleep(rng.uniform(0.0, 0.8))
            else:
                workers.died(victim)
            workers.end()
            files.lose_power(rng)
            assert past_the_end(folder, files) == []
    with open_log(folder, files) as log:
        given.produce(log)
    got = finish(folder, files)
    assert differences(undisturbed(given, tmp_path / "whole"), got) == []


def lose_power_once(given: Input, folder: Path, connect: type[LogConnection]) -> Lossy:
    """Let two workers commit a few times, then take everything back that was not synced."""
    files = lossy(folder)
    with open_log(folder, files) as log:
        given.make_topics(log)
        given.produce(log, sync=False)
    with fleet(folder, files, connect=connect) as workers:
        workers.start()
        workers.died(workers.start(Dying("after-sync", 3)))
        workers.end()
    files.lose_power()
    return files


def test_without_the_sync_of_inputs_offsets_point_past_the_end(tmp_path: Path) -> None:
    """A control: the check of offsets is able to fail."""
    files = lose_power_once(Input.of(3_000, moving_users=False), tmp_path / "lost", NoInputSync)
    assert past_the_end(tmp_path / "lost", files) != []


def test_without_the_sync_of_outputs_records_are_lost(tmp_path: Path) -> None:
    """A control: the comparison is able to fail, and so is the check that refuses to go on without them."""
    given = Input.of(3_000, moving_users=False)
    folder = tmp_path / "lost"
    files = lose_power_once(given, folder, NoOutputSync)
    with open_log(folder, files) as log:
        given.produce(log)
    with pytest.raises(StateError, match="has lost results of task"):
        finish(folder, files)
    got = finish(folder, files, connect=Unchecked)
    found = differences(undisturbed(given, tmp_path / "whole"), got)
    assert any(counted(line, "lost") for line in found), found
