"""Two workers, killed with SIGKILL again and again: outputs and stores are those of a run that nobody disturbed. With a
part of the commit protocol switched off, the same comparison finds what was lost or doubled."""

import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headwater.streams.log_connection import LogConnection
from tests.crash.shop import Input, counted, differences, open_log
from tests.crash.workers import Dying, Fleet, NoReplay, NoSequence, finish, fleet, prepared, undisturbed

RANDOM_KILLS = 32
# Before and after the write, the appends and the syncs of a commit; each early, and in a later commit.
COMMIT_POINTS = (
    "after-input-sync",
    "before-write",
    "after-write",
    "before-append",
    "after-append",
    "before-sync",
    "after-sync",
)
# Reached when a task is given up: the delete of its outbox, the release of its lock.
PARTING_POINTS = ("before-forget", "after-forget", "before-release", "after-release")
REPLAY_POINTS = ("before-replay", "before-append", "after-append", "after-replay")


def random_kills(workers: Fleet, given: Input, kills: int, seed: int) -> None:
    """Kill one of two workers at random moments, while orders keep coming."""
    rng = Random(seed)
    with open_log(workers.folder) as log:
        given.make_topics(log)
        given.produce(log, ("users", "shops"))
        given.produce(log, share=1 / kills)
        workers.start()
        workers.start()
        for kill in range(kills):
            given.produce(log, share=(kill + 1) / kills)
            time.sleep(rng.uniform(0.0, 0.3))
            workers.kill(rng.choice(workers.alive))
            # Now and then not waited for: then the next kill may find it while it starts, and replays outboxes.
            workers.start(wait=rng.random() < 0.6)
        workers.end()


def test_random_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    given = Input.of(3_200, moving_users=False)
    with fleet(tmp_path / "killed") as workers:
        random_kills(workers, given, RANDOM_KILLS, seed=1)
        assert workers.kills >= RANDOM_KILLS
    expected = undisturbed(given, tmp_path / "undisturbed")
    assert differences(expected, finish(tmp_path / "killed")) == []


def test_without_the_protocol_random_kills_are_noticed(tmp_path: Path) -> None:
    """The control: the same kills, at least once."""
    given = Input.of(1_200, moving_users=False)
    with fleet(tmp_path / "killed", changes={"exactly_once": False}) as workers:
        random_kills(workers, given, 10, seed=1)
    expected = undisturbed(given, tmp_path / "undisturbed")
    found = differences(expected, finish(tmp_path / "killed", exactly_once=False))
    assert any(counted(line, "too many") for line in found), found


def die_at(workers: Fleet, point: str, nth: int) -> None:
    """Let a worker die at a point while another works."""
    workers.died(workers.start(Dying(point, nth)))


def owns_tasks(folder: Path, process: BaseProcess) -> bool:
    with open_log(folder) as log:
        return any(owner.endswith(f"-{process.pid}") for owner in log.group("shop").owners().values())


def die_parting(workers: Fleet, point: str, way: str) -> None:
    """Let a worker die as it gives its tasks up: to one that comes, or because it is asked to stop."""
    victim = workers.start(Dying(point))
    while not owns_tasks(workers.folder, victim):
        time.sleep(0.05)
    time.sleep(0.2)
    if way == "asked to stop":
        victim.terminate()
    else:
        # A task that has had nothing to write since it came has nothing to forget: then it must move once more.
        for _ in range(6):
            newcomer = workers.start()
            victim.join(3)
            if victim.exitcode is not None:
                break
            workers.kill(newcomer)
    workers.died(victim)


def test_kills_at_every_point_of_a_commit_lose_and_double_nothing(tmp_path: Path) -> None:
    rng = Random(2)
    given = Input.of(6_000, moving_users=True)
    killed = prepared(given, tmp_path / "killed")
    # One record of a task between two commits: the input must last until the last kill.
    with fleet(killed, at_once=1) as workers:
        workers.start()
        for point in COMMIT_POINTS:
            for nth in (1, rng.randint(2, 20)):
                die_at(workers, point, nth)
        for point in PARTING_POINTS:
            for way in ("another comes", "asked to stop"):
                die_parting(workers, point, way)
                while len(workers.alive) > 1:
                    workers.kill(workers.alive[0])
        for point in REPLAY_POINTS:
            # All are dead: whoever comes next finds the outboxes, and dies over them.
            die_at(workers, "after-write", rng.randint(1, 5))
            workers.end()
            die_at(workers, point, 1)
            workers.start()
        workers.end()
    expected = undisturbed(given, tmp_path / "undisturbed")
    assert differences(expected, finish(killed)) == []


@pytest.mark.parametrize(
    ("point", "options", "what"),
    [
        pytest.param("after-append", {"changes": {"exactly_once": False}}, "too many", id="at-least-once"),
        pytest.param("after-append", {"connect": NoSequence}, "too many", id="no-sequence-numbers"),
        pytest.param("after-write", {"connect": NoReplay}, "lost", id="outbox-not-replayed"),
    ],
)
def test_without_the_protocol_a_kill_at_a_point_is_noticed(
    tmp_path: Path, point: str, options: dict[str, Any], what: str
) -> None:
    """The controls: kills that the protocol makes harmless, with a part of it switched off."""
    given = Input.of(6_000, moving_users=True)
    killed = prepared(given, tmp_path / "killed")
    with fleet(killed, **options) as workers:
        workers.start()
        for nth in (4, 6):
            die_at(workers, point, nth)
        workers.end()
    connect = options.get("connect", LogConnection)
    got = finish(killed, connect=connect, **options.get("changes", {}))
    found = differences(undisturbed(given, tmp_path / "undisturbed"), got)
    assert any(counted(line, what) for line in found), found
    assert any(line.startswith("store") for line in found), found
