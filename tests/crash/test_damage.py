"""Random damages of every file of log and state: the answer is right, or the start is refused by name; never wrong,
never an unnamed error, never an endless retry. 100 of them here, 1,000 with HEADWATER_DAMAGE=many (`make damage`)."""

import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest

from headwater.state.log.chain import Chain
from headwater.streams.log_connection import LogConnection
from tests.crash.damage import Base, bases, random_damage, trial

MANY = os.environ.get("HEADWATER_DAMAGE") == "many"
# Others with every many: HEADWATER_DAMAGE_SEED=… repeats what one of them has found.
SEED = int(os.environ.get("HEADWATER_DAMAGE_SEED", Random().randrange(1_000_000) if MANY else 0))
# In parts, so that a failure does not hide the rest.
PARTS = 10


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A directory in memory, if there is such a place: thousands of syncs are not what is tried here."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > 1 << 30
    with TemporaryDirectory(dir=memory if roomy else None, prefix="headwater-damage-") as name:
        yield Path(name)


@pytest.fixture(scope="module")
def made(folder: Path) -> list[Base]:
    return bases(folder)


@pytest.mark.parametrize("part", range(PARTS))
def test_no_damage_gives_a_wrong_result_or_an_unnamed_error(made: list[Base], folder: Path, part: int) -> None:
    count = (1_000 if MANY else 100) // PARTS
    trials = [trial(made, folder, SEED + part * count + number) for number in range(count)]
    counted = Counter(" > ".join(one.verdicts) for one in trials)
    print(f"seeds from {SEED + part * count}: {dict(counted)}")
    assert [str(one) for one in trials if not one.good] == []
    assert counted["refused > refused > right"] > 0
    assert counted["right > right"] > 0


def test_without_the_checks_damages_give_wrong_results(
    made: list[Base], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: the comparison is able to fail, and what keeps it from failing are the checks."""
    monkeypatch.setattr(LogConnection, "check", lambda self, spec, path: None)
    monkeypatch.setattr(Chain, "_behind", lambda self, manifest: None)
    monkeypatch.setattr(Chain, "_check_cut", lambda self, tail: None)
    wrong = 0
    for seed in range(10_000):
        damage = str(random_damage(*_chosen(made, seed)))
        if damage.startswith(("older copy of apps", "delete apps/shop")) and "." not in damage:
            wrong += "wrong" in trial(made, folder, seed).verdicts
            if wrong >= 2:
                return
    pytest.fail("no damage was noticed")


def _chosen(made: list[Base], seed: int) -> tuple[Base, Random]:
    """What a trial with this seed is about."""
    rng = Random(seed)
    return rng.choice(made), rng
