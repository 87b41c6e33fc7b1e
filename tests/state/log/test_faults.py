"""The disk refuses, the process dies, the power fails: at every operation of a small workload, each in turn."""

import errno
from pathlib import Path
from random import Random

import pytest

from headwater.state.log import Files, Log, Partition, StorageError
from tests.state.log.helpers import FAST, make, numbered, open_again, read_all
from tests.state.log.layers import Faulty, Killed, Lossy, ReadOnly

NOW = 10**15


def work(partition: Partition, acknowledged: list[int], first: int = 0) -> None:
    """Append ten batches over some segments, with deletions and compactions; note what is acknowledged."""
    for number in range(first, first + 10):
        assert partition.append(numbered(number, 1), producer="p", sequence=number) == (number, number)
        acknowledged.append(number)
        if number % 10 == 4:
            partition.compact(1)
        if number % 10 == 7:
            partition.delete_before(2)


def check(partition: Partition, acknowledged: list[int], *, attempted: int) -> None:
    """All that was acknowledged is there, and at most one that was not; everything still works."""
    assert partition.verify() in ([], [line for line in partition.verify() if "cuts them off" in line])
    start, end = partition.start, partition.end
    assert start in (0, 2)
    assert len(acknowledged) <= end <= attempted
    assert [(record[:4], record[4]) for record in read_all(partition)] == [
        (numbered(number)[0], number) for number in range(start, end)
    ]
    last = partition.last_sequence("p")
    assert last == (end - 1 if end else None)
    again: list[int] = []
    # Whoever is not sure repeats: what is there already is dropped.
    for number in range(10):
        offsets = partition.append(numbered(number), producer="p", sequence=number)
        assert offsets == ((number, number) if number >= end else None)
    work(partition, again, first=10)
    assert len(again) == 10
    partition.compact(NOW)
    assert [record[4] for record in read_all(partition)] == list(range(partition.start, 20))
    assert partition.verify() == []


def operations(folder: Path) -> int:
    make(folder, segment_bytes=250).close()
    files = Faulty()
    with open_again(folder, files) as partition:
        work(partition, [])
    return files.count


@pytest.mark.parametrize("times", [1, 10_000])
def test_a_disk_that_is_full_at_any_moment_loses_nothing(tmp_path: Path, times: int) -> None:
    total = operations(tmp_path / "count")
    assert total > 60
    for at in range(total):
        folder = tmp_path / f"{at}"
        make(folder, segment_bytes=250).close()
        acknowledged: list[int] = []
        with (
            open_again(folder, Faulty(at, errno.ENOSPC, times=times)) as partition,
            pytest.raises(StorageError, match=r"The disk is full: free space and try again\.") as caught,
        ):
            work(partition, acknowledged)
        assert str(folder) in str(caught.value)
        with open_again(folder) as partition:
            check(partition, acknowledged, attempted=len(acknowledged))


def test_the_same_opening_goes_on_when_there_is_space_again(tmp_path: Path) -> None:
    for at in range(operations(tmp_path / "count")):
        folder = tmp_path / f"{at}"
        make(folder, segment_bytes=250).close()
        acknowledged: list[int] = []
        with open_again(folder, files := Faulty(at, errno.ENOSPC)) as partition:
            with pytest.raises(StorageError) as caught:
                work(partition, acknowledged)
            if "sync t-0" in str(caught.value):
                # The kernel may have thrown away what it could not write: this opening is not to be trusted.
                with pytest.raises(StorageError, match="may be lost: open the log again"):
                    partition.append(numbered(0))
            else:
                check(partition, acknowledged, attempted=len(acknowledged))
            assert files.count > at


def test_a_death_at_any_moment_loses_nothing(tmp_path: Path) -> None:
    for at in range(operations(tmp_path / "count")):
        folder = tmp_path / f"{at}"
        make(folder, segment_bytes=250).close()
        acknowledged: list[int] = []
        witness = open_again(folder)
        assert witness.end == 0
        with open_again(folder, Faulty(at, None)) as partition, pytest.raises(Killed):
            work(partition, acknowledged)
        # One who had it open all the time, and one who opens it now.
        attempted = len(acknowledged) + 1
        assert len(acknowledged) <= witness.end <= attempted
        with open_again(folder) as partition:
            assert read_all(witness) == read_all(partition)
        check(witness, acknowledged, attempted=attempted)
        witness.close()


@pytest.mark.parametrize("torn", [False, True])
def test_a_power_loss_at_any_moment_leaves_what_was_synced(tmp_path: Path, torn: bool) -> None:
    random = Random(1)

    class Stops(Lossy):
        left = 10**9

        def sync(self, fd: int) -> None:
            self._step()
            super().sync(fd)

        def sync_directory(self, path: Path) -> None:
            self._step()
            super().sync_directory(path)

        def write(self, fd: int, data: bytes, position: int) -> None:
            self._step()
            super().write(fd, data, position)

        def replace(self, source: Path, target: Path) -> None:
            self._step()
            super().replace(source, target)

        def _step(self) -> None:
            self.left -= 1
            if self.left < 0:
                raise Killed

    for moment in range(1_000):
        folder, shadow = tmp_path / f"log{moment}", tmp_path / f"shadow{moment}"
        folder.mkdir()
        files = Stops(folder, shadow)
        make(folder, files, segment_bytes=250).close()
        files.left = moment
        durable, acknowledged, done = 0, 0, False
        with open_again(folder, files) as partition:
            try:
                for number in range(12):
                    partition.append(numbered(number), producer="p", sequence=number)
                    acknowledged = number + 1
                    if number % 3 == 0:
                        durable = partition.sync()
                        assert durable == number + 1
                    if number == 8:
                        partition.compact(1)
                done = True
            except Killed:
                pass
        files.left = 10**9
        files.lose_power(random if torn else None)
        with open_again(folder, files) as partition:
            end = partition.end
            assert durable <= end <= acknowledged + 1
            assert [record[:4] for record in read_all(partition)] == numbered(0, end)
            assert partition.last_sequence("p") == (end - 1 if end else None)
            for number in range(15):
                partition.append(numbered(number), producer="p", sequence=number)
            assert [record[:4] for record in read_all(partition)] == numbered(0, 15)
            assert [line for line in partition.verify() if "index" not in line] == []
        if done:
            assert moment > 40
            return
    raise AssertionError("the workload never ended")


def test_the_power_loss_takes_what_was_not_synced(tmp_path: Path) -> None:
    """The layer itself is able to lose: else the test above could not fail."""
    (tmp_path / "log").mkdir()
    files = Lossy(tmp_path / "log", tmp_path / "shadow")
    partition = make(tmp_path / "log", files)
    partition.append(numbered(0), sync=True)
    partition.append(numbered(1))
    partition.close()
    files.lose_power()
    with open_again(tmp_path / "log", files) as partition:
        assert partition.end == 1


def test_a_sync_covers_what_others_appended_and_is_done_once(tmp_path: Path) -> None:
    class Counting(Files):
        syncs = 0

        def sync(self, fd: int) -> None:
            self.syncs += 1
            super().sync(fd)

    make(tmp_path).close()
    files = Counting()
    with open_again(tmp_path) as writer, open_again(tmp_path, files) as partition:
        writer.append(numbered(0, 3))
        assert (partition.sync(), files.syncs) == (3, 1)
        assert (partition.sync(), files.syncs) == (3, 1)
        writer.append(numbered(3, 1))
        assert (partition.sync(), files.syncs) == (4, 2)


def test_a_read_only_log_can_be_read(tmp_path: Path) -> None:
    with make(tmp_path) as partition:
        partition.append(numbered(0, 3))
    files = ReadOnly()
    with Log.open(tmp_path, files) as log:
        assert [topic.name for topic in log.topics()] == ["t"]
        partition = log.partition("t", 0)
        assert len(partition.read(0)) == 3
        assert partition.sync() == 3
        assert partition.verify() == []
        for action in (
            lambda: partition.append(numbered(3)),
            lambda: partition.delete_before(1),
            lambda: partition.compact(1),
            lambda: log.create_topic("other"),
            lambda: log.delete_topic("t"),
            lambda: log.group("g").commit({("t", 0): 1}),
        ):
            with pytest.raises(
                StorageError, match=r"in .*Read-only file system\. The file system is read-only: remount"
            ):
                action()
    # Others may still append, and the reader sees it.
    with Log.open(tmp_path, files).partition("t", 0) as reader, open_again(tmp_path) as writer:
        writer.append(numbered(3, 1))
        assert reader.end == 4


def test_a_read_only_log_with_an_incomplete_end_can_be_read(tmp_path: Path) -> None:
    with make(tmp_path) as partition:
        partition.append(numbered(0, 3))
        file = partition.directory / partition.segments()[0].name
    file.write_bytes(file.read_bytes() + file.read_bytes()[:-3])
    with open_again(tmp_path, ReadOnly()) as partition:
        assert len(read_all(partition)) == 3


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=f"Cannot open a log in {tmp_path}/new: Read-only file system"):
        Log.open(tmp_path / "new", ReadOnly())
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="Cannot open a log"):
        Log.open(tmp_path / "file", FAST)
