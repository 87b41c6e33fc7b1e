"""`repair`: what is sound stays under its offsets, what is lost is shown before it is given up, and nothing else
changes."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.errors import StreamsError
from headwater.state.log import CorruptLog, Group, Log, TopicRepair

Spoil = Callable[[Path], object]


def segments(place: Path) -> list[Path]:
    return sorted(place.glob("*.log"))


def flip(file: Path, share: float) -> None:
    data = bytearray(file.read_bytes())
    data[int(len(data) * share)] ^= 0x20
    file.write_bytes(data)


def cut(file: Path, size: int) -> None:
    file.write_bytes(file.read_bytes()[:size])


DAMAGES: dict[str, Spoil] = {
    "a flipped bit in the active segment": lambda place: flip(segments(place)[-1], 0.5),
    "a flipped bit in the active segment's first batch": lambda place: flip(segments(place)[-1], 0.01),
    "a flipped bit in the active segment's last batch": lambda place: flip(segments(place)[-1], 0.99),
    "an active segment cut in the middle of a batch": lambda place: cut(segments(place)[-1], 300),
    "an active segment that is empty": lambda place: cut(segments(place)[-1], 0),
    "an active segment that is gone": lambda place: segments(place)[-1].unlink(),
    "garbage behind the active segment": lambda place: segments(place)[-1].open("ab").write(b"garbage" * 20),
    "a flipped bit in a closed segment": lambda place: flip(segments(place)[1], 0.5),
    "a closed segment cut short": lambda place: cut(segments(place)[1], 300),
    "a closed segment that is gone": lambda place: segments(place)[1].unlink(),
    "the first segment gone": lambda place: segments(place)[0].unlink(),
    "no manifest": lambda place: (place / "manifest").unlink(),
    "an empty manifest": lambda place: cut(place / "manifest", 0),
    "an older manifest": lambda place: shutil.copy(place.parent.parent.parent / "older", place / "manifest"),
    "no append.lock": lambda place: (place / "append.lock").unlink(),
    "no topic file": lambda place: (place.parent / "topic").unlink(),
    "a garbled topic file": lambda place: (place.parent / "topic").write_bytes(b"\xff\xfe"),
}


def fill(folder: Path) -> tuple[Path, dict[int, bytes | None]]:
    """Make a topic of several segments, all synced, and return its directory and its records."""
    with Log.open(folder) as log:
        log.create_topic("t", segment_bytes=1_000)
        with log.partition("t", 0) as partition:
            for number in range(40):
                records = [(b"k", b"value-%d" % number, number, ())] * (1 + number % 3)
                partition.append(records, producer="p", sequence=number)
                if number == 15:
                    shutil.copy(partition.directory / "manifest", folder / "older")
            partition.sync()
            assert len(partition.segments()) > 3
        return log.directory / "topics" / "t" / "0", contents(folder)


def contents(folder: Path) -> dict[int, bytes | None]:
    found: dict[int, bytes | None] = {}
    with Log.open(folder) as log, log.partition("t", 0) as partition:
        offset = partition.start
        while records := partition.read(offset):
            found |= {record[4]: record[1] for record in records}
            offset = records[-1][4] + 1
    return found


def lost(repair: TopicRepair) -> set[int]:
    return {offset for one in repair.partitions for loss in one.losses for offset in range(loss.first, loss.end)}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_repair_shows_what_is_lost_and_keeps_the_rest(tmp_path: Path, damage: str) -> None:
    place, records = fill(tmp_path)
    DAMAGES[damage](place)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with Log.open(tmp_path) as log:
        shown = log.repair_topic("t")
        assert not shown.sound
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
        done = log.repair_topic("t", execute=True)
        assert done == shown
        assert log.repair_topic("t").sound
        with log.partition("t", 0) as partition:
            assert partition.verify() == []
            # What was lost is what was shown, and nothing else.
            assert contents(tmp_path) == {at: value for at, value in records.items() if at not in lost(shown)}
            following = partition.append([(b"k", b"new", 1, ())], sync=True)
            assert following is not None
            assert following[0] == shown.partitions[0].end >= max(records) + 1
            assert partition.read(following[0]) == [(b"k", b"new", 1, (), following[0])]
            # Whoever has committed anything, in what is lost too, goes on.
            for offset in [*records, following[0]]:
                found = partition.read(offset, max_bytes=1)
                assert found[0][4] >= offset
            assert partition.end == following[0] + 1
    with Log.open(tmp_path) as log:
        assert log.repair_topic("t").sound
        log.maintain()
        assert contents(tmp_path)[following[0]] == b"new"


@pytest.mark.parametrize("damage", list(DAMAGES)[:7])
def test_damage_in_the_active_segment_leaves_the_records_before_it_readable(tmp_path: Path, damage: str) -> None:
    """And nothing is appended behind it, nor its offsets given out again."""
    place, records = fill(tmp_path)
    DAMAGES[damage](place)
    found: dict[int, bytes | None] = {}
    with Log.open(tmp_path) as log:
        if damage.endswith("gone"):
            with pytest.raises(CorruptLog, match="headwater log repair t"):
                log.partition("t", 0)
            return
        with log.partition("t", 0) as partition:
            offset = partition.start
            while offset < partition.sound_end:
                got = partition.read(offset)
                found |= {record[4]: record[1] for record in got}
                offset = got[-1][4] + 1
            with log.partition("t", 0) as another:
                for ask in (
                    lambda: partition.read(offset),
                    lambda: another.read(offset),
                    lambda: partition.append([(b"k", b"new", 1, ())]),
                ):
                    with pytest.raises(CorruptLog, match="headwater log repair t"):
                        ask()
    assert found == {at: value for at, value in records.items() if at < offset}
    assert len(found) > 20


def test_offsets_that_a_group_has_committed_are_not_given_out_again(tmp_path: Path) -> None:
    place, records = fill(tmp_path)
    with Log.open(tmp_path) as log:
        Group(log, "g").commit({("t", 0): max(records) + 1})
        (place / "append.lock").write_bytes(bytes(8))
        cut(segments(place)[-1], 0)
        shown = log.repair_topic("t", execute=True)
        assert shown.partitions[0].end == max(records) + 1
        with log.partition("t", 0) as partition:
            assert partition.end == max(records) + 1
            assert partition.sound_end == min(lost(shown))
            assert partition.read(partition.end) == []
            assert partition.read(partition.sound_end) == []
            assert partition.behind_gap(partition.sound_end) == partition.end


def test_a_sound_topic_and_one_that_is_not_there(tmp_path: Path) -> None:
    fill(tmp_path)
    with Log.open(tmp_path) as log:
        assert log.repair_topic("t", execute=True).sound
        assert log.repair_topic("t", [0]).sound
        for ask in (lambda: log.repair_topic("other"), lambda: log.repair_topic("t", [1])):
            with pytest.raises(StreamsError, match="There is no"):
                ask()


def test_an_append_lock_that_is_too_short_is_mended(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place, records = fill(tmp_path)
    (place / "append.lock").write_bytes(b"abc")
    assert contents(tmp_path) == records
    assert "append.lock was too short, and is mended" in caplog.text
    with Log.open(tmp_path) as log, log.partition("t", 0) as partition:
        assert partition.append([(b"k", b"new", 1, ())]) == (max(records) + 1,) * 2


@pytest.mark.parametrize("damage", ["no manifest", "an older manifest", "no append.lock", "no topic file"])
def test_damage_to_the_files_around_the_segments_is_named(tmp_path: Path, damage: str) -> None:
    """Not "There is no partition", nor "Directory not empty", nor silence."""
    place, _ = fill(tmp_path)
    DAMAGES[damage](place)
    with Log.open(tmp_path) as log:
        for ask in (lambda: log.partition("t", 0), lambda: log.partition("t", 0)):
            with pytest.raises(CorruptLog, match="headwater log repair t"):
                ask()
        if damage == "no topic file":
            for again in (lambda: log.topics(), lambda: log.create_topic("t"), lambda: log.topic("t")):
                with pytest.raises(CorruptLog, match=r"there is no file .*topic"):
                    again()


def test_a_killed_roll_is_not_taken_for_an_older_manifest(tmp_path: Path) -> None:
    """The next segment's file is made before the manifest names it."""
    place, records = fill(tmp_path)
    with Log.open(tmp_path) as log:
        with log.partition("t", 0) as partition:
            end, number = partition.end, partition.segments()[-1].id + 1
        (place / f"{end:020d}-{number}.log").touch()
        with log.partition("t", 0) as partition:
            for _ in range(30):
                partition.append([(b"k", b"x" * 100, 1, ())])
            assert partition.verify() == []
    assert len(contents(tmp_path)) == len(records) + 30


def test_a_repair_knows_every_producer_of_a_batch_that_several_wrote(tmp_path: Path) -> None:
    with Log.open(tmp_path) as log:
        log.create_topic("t", segment_bytes=200)
        with log.partition("t", 0) as partition:
            for number in range(1, 9):
                partition.append_merged([(b"k", b"value", number, ())] * 3, {"a": number, "b": 10 * number})
            partition.sync()
            assert len(partition.segments()) > 2
    DAMAGES["no manifest"](tmp_path / "topics" / "t" / "0")
    with Log.open(tmp_path) as log:
        log.repair_topic("t", execute=True)
        with log.partition("t", 0) as partition:
            assert (partition.last_sequence("a"), partition.last_sequence("b")) == (8, 80)
            assert partition.append([(b"k", b"again", 9, ())], producer="b", sequence=80) is None
