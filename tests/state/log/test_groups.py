"""Groups: committed offsets, live members and owned units, also of processes that are killed."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from headwater.errors import StreamsError
from headwater.state.log import Group, Log
from tests.state.log.helpers import FAST
from tests.state.log.layers import Faulty, Killed, Lossy

ROOT = Path(__file__).parents[3]


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log.open(tmp_path, FAST)


def names(group: Group) -> list[str]:
    return [member.name for member in group.members()]


def test_offsets_are_those_committed_last(log: Log) -> None:
    group = Group(log, "g")
    assert group.committed() == {}
    group.commit({("t", 0): 5, ("t", 1): 7})
    group.commit({("t", 0): 3, ("u", 0): 1}, sync=False)
    group.commit({})
    for opened in (group, log.group("g")):
        assert opened.committed() == {("t", 0): 3, ("t", 1): 7, ("u", 0): 1}
    assert log.groups() == ["g"]


@pytest.mark.parametrize("name", ["a/b", "..", ".", "ü ~", "x.group", "%2F"])
def test_any_name_will_do(log: Log, name: str) -> None:
    group = log.group(name)
    member = group.join(name)
    assert group.acquire(name)
    group.commit({("t", 0): 1})
    assert (log.groups(), names(group), group.owners()) == ([name], [name], {name: name})
    assert group.committed() == {("t", 0): 1}
    member.leave()
    with pytest.raises(StreamsError, match="needs a name"):
        log.group("")


def test_offsets_are_reset_and_groups_deleted_only_without_members(log: Log) -> None:
    group = log.group("g")
    group.commit({("t", 0): 5, ("t", 1): 7, ("u", 0): 1})
    member = group.join("worker")
    for action in (lambda: group.reset({("t", 0): 0}), group.delete):
        with pytest.raises(StreamsError, match="while it has live members: stop worker first"):
            action()
    member.leave()
    group.reset({("t", 0): 0, ("t", 1): None, ("u", 0): None, ("v", 0): None})
    assert group.committed() == {("t", 0): 0}
    group.delete()
    assert (log.groups(), group.committed(), names(group)) == ([], {}, [])
    group.commit({("t", 0): 1})
    assert group.committed() == {("t", 0): 1}


def test_members_come_and_go(log: Log) -> None:
    one, two = log.group("g"), log.group("g")
    b = one.join("b", "note of b")
    a = two.join("a")
    assert [(member.name, member.note) for member in one.members()] == [("a", ""), ("b", "note of b")]
    with pytest.raises(StreamsError, match="has a live member 'a' already"):
        log.group("g").join("a")
    a.leave()
    a.leave()
    assert names(one) == names(two) == ["b"]
    two.join("a")
    assert names(one) == ["a", "b"]
    assert log.group("other").members() == []
    b.leave()
    two.close()
    assert names(one) == []


def test_a_unit_has_one_owner(log: Log) -> None:
    one, two = log.group("g"), log.group("g")
    one.join("one")
    two.join("two")
    assert one.acquire("0_0")
    assert one.acquire("0_0")
    assert not two.acquire("0_0")
    assert two.acquire("0_1")
    assert one.owners() == {"0_0": "one", "0_1": "two"}
    one.release("0_0")
    one.release("0_0")
    assert two.acquire("0_0")
    assert one.owners() == {"0_0": "two", "0_1": "two"}
    two.close()
    assert one.owners() == {}
    assert log.group("other").acquire("0_0")


def test_who_looks_does_not_disturb_who_acquires(log: Log) -> None:
    command = (
        "import sys, time\nfrom headwater.state.log import Log\ngroup = Log.open(sys.argv[1]).group('g')\n"
        "end = time.time() + 2\nprint('ready', flush=True)\n"
        "while time.time() < end: group.owners(); group.members()"
    )
    group = log.group("g")
    group.join("me")
    looker = subprocess.Popen(
        [sys.executable, "-c", command, str(log.directory)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert looker.stdout is not None
    assert looker.stdout.readline() == "ready\n"
    turns = 0
    while looker.poll() is None:
        assert group.acquire("unit")
        group.release("unit")
        turns += 1
    looker.communicate()
    assert turns > 100


def test_a_killed_member_is_gone_with_all_it_owned(log: Log) -> None:
    command = (
        "import sys, time\nfrom headwater.state.log import Log\ngroup = Log.open(sys.argv[1]).group('g')\n"
        "me = group.join('victim', 'note')\nassert group.acquire('0_0')\nprint('ready', flush=True)\ntime.sleep(60)"
    )
    group = log.group("g")
    group.join("survivor")
    victim = subprocess.Popen(
        [sys.executable, "-c", command, str(log.directory)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert victim.stdout is not None
    assert victim.stdout.readline() == "ready\n"
    assert names(group) == ["survivor", "victim"]
    assert group.owners() == {"0_0": "victim"}
    assert not group.acquire("0_0")
    victim.kill()
    victim.communicate()
    began = time.monotonic()
    assert names(group) == ["survivor"]
    assert group.acquire("0_0")
    assert time.monotonic() - began < 10
    # Its name is free again, and its file is not kept for ever.
    other = log.group("g")
    other.join("victim")
    assert names(group) == ["survivor", "victim"]


def test_a_death_at_any_moment_leaves_old_or_new_offsets(tmp_path: Path) -> None:
    counting = Faulty()

    def work(group: Group) -> None:
        group.join("member")
        group.acquire("unit")
        group.commit({("t", 0): 2, ("t", 1): 2})
        group.close()

    def prepare(folder: Path) -> Log:
        log = Log.open(folder, FAST)
        log.group("g").commit({("t", 0): 1, ("t", 1): 1})
        return log

    prepare(tmp_path / "count")
    work(Log.open(tmp_path / "count", counting).group("g"))
    for at in range(counting.count):
        log = prepare(tmp_path / f"{at}")
        group = Log.open(log.directory, Faulty(at, None)).group("g")
        with pytest.raises(Killed):
            work(group)
        # As the kernel does it.
        held = [*group._units.values(), group._membership._fd if group._membership else -1]
        for fd in filter(lambda fd: fd >= 0, held):
            FAST.close(fd)
        survivor = log.group("g")
        offsets = survivor.committed()
        assert offsets in ({("t", 0): 1, ("t", 1): 1}, {("t", 0): 2, ("t", 1): 2})
        assert names(survivor) == []
        assert survivor.acquire("unit")
        work(log.group("h"))
        survivor.join("member")
        survivor.close()


def test_a_commit_survives_a_power_loss(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    files = Lossy(tmp_path / "log", tmp_path / "shadow")
    Log.open(tmp_path / "log", files).group("g").commit({("t", 0): 5})
    files.lose_power()
    log = Log.open(tmp_path / "log", files)
    assert log.group("g").committed() == {("t", 0): 5}
    log.group("g").commit({("t", 0): 6})
    files.lose_power()
    assert Log.open(tmp_path / "log", files).group("g").committed() == {("t", 0): 6}
