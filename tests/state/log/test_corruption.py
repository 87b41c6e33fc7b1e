"""Damage: every single bit of a small segment, every length it can be cut to."""

from pathlib import Path

import pytest

from headwater.errors import StreamsError
from headwater.state.log import CorruptLog, NewerFormat, Partition
from tests.state.log.helpers import FAST, make, numbered, open_again, read_all


def segment_file(partition: Partition, number: int) -> Path:
    return partition.directory / partition.segments()[number].name


def fill(folder: Path, *, closed: bool) -> tuple[Path, list]:
    """Return the file of a segment with three batches, which is the active one or not, and all records."""
    # Three of the batches fit, the fourth does not.
    partition = make(folder, segment_bytes=400 if closed else 1 << 20)
    for number in range(3):
        partition.append(numbered(number * 2, 2), producer="p", sequence=number)
    if closed:
        partition.append(numbered(6, 2), producer="p", sequence=3)
    assert len(partition.segments()) == 1 + closed
    records = read_all(partition)
    file = segment_file(partition, 0)
    partition.close()
    return file, records


def outcome(folder: Path, append: bool) -> tuple[list, StreamsError | None]:
    """Return what can be read, one batch after another, and the error at which it ends; perhaps after an append."""
    found: list = []
    try:
        with open_again(folder) as partition:
            if append:
                partition.append(numbered(100))
            offset = partition.start
            while records := partition.read(offset, max_bytes=1):
                found += records
                offset = records[-1][4] + 1
    except StreamsError as error:
        return found, error
    return found, None


@pytest.mark.parametrize(("closed", "append"), [(False, False), (False, True), (True, False)])
def test_every_flipped_bit_of_a_segment_is_reported(tmp_path: Path, closed: bool, append: bool) -> None:
    file, records = fill(tmp_path, closed=closed)
    good = file.read_bytes()
    others = {other: other.read_bytes() for other in file.parent.iterdir() if other != file}
    assert len(good) == 3 * 105
    for bit in range(len(good) * 8):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        file.write_bytes(bad)
        found, error = outcome(tmp_path, append)
        assert isinstance(error, CorruptLog | NewerFormat), bit
        assert "t-0@" in str(error)
        assert str(file) in str(error)
        assert found == ([] if append else records[: bit // 8 // 105 * 2]), bit
        # What a reader may not be told of it, a look inside tells.
        with open_again(tmp_path) as partition:
            assert any("t-0@" in line for line in partition.verify())
        for other, content in others.items():
            other.write_bytes(content)
    file.write_bytes(good)
    assert outcome(tmp_path, False) == (records, None)


def test_every_length_that_the_active_segment_is_cut_to_ends_in_a_whole_batch(tmp_path: Path) -> None:
    file, records = fill(tmp_path, closed=False)
    good = file.read_bytes()
    with open_again(tmp_path) as partition:
        ends = [0, *(batch.position + batch.size for batch in partition.dump())]
    for length in range(len(good)):
        whole = sum(end <= length for end in ends) - 1
        file.write_bytes(good[:length])
        found, error = outcome(tmp_path, False)
        assert (found, error) == (records[: whole * 2], None)
        assert file.stat().st_size == length, "a reader repairs nothing"
        with open_again(tmp_path) as partition:
            assert partition.end == whole * 2
            assert partition.last_sequence("p") == (whole - 1 if whole else None)
            assert partition.append(numbered(100)) == (whole * 2, whole * 2)
            assert read_all(partition) == [*records[: whole * 2], (*numbered(100)[0], whole * 2)]
            assert partition.verify() == []


def test_every_length_that_a_closed_segment_is_cut_to_is_reported(tmp_path: Path) -> None:
    file, records = fill(tmp_path, closed=True)
    good = file.read_bytes()
    for length in range(len(good)):
        file.write_bytes(good[:length])
        found, error = outcome(tmp_path, False)
        assert isinstance(error, CorruptLog)
        assert "too short" in str(error)
        assert found == records[: len(found)]
        assert len(found) < 6
        with open_again(tmp_path) as partition:
            # What lies behind the damage can still be read from its own offset on.
            assert partition.read(6) == records[6:]


def test_zeros_at_the_end_are_what_a_power_loss_leaves(tmp_path: Path) -> None:
    file, records = fill(tmp_path, closed=False)
    file.write_bytes(file.read_bytes() + bytes(5_000))
    assert outcome(tmp_path, False) == (records, None)
    with open_again(tmp_path) as partition:
        assert ["5000 bytes behind the last whole batch" in line for line in partition.verify()] == [True]
        assert partition.append(numbered(6)) == (6, 6)
        assert len(read_all(partition)) == 7
        assert partition.verify() == []


def test_other_bytes_at_the_end_are_reported_and_kept(tmp_path: Path) -> None:
    file, records = fill(tmp_path, closed=False)
    file.write_bytes(file.read_bytes() + b"x" * 100)
    with open_again(tmp_path) as partition:
        assert partition.read(0) == records
        for action in (lambda: partition.read(6), lambda: partition.append(numbered(6)), lambda: partition.end):
            with pytest.raises(CorruptLog, match=r"t-0@6 is damaged: no batch begins here, at byte \d+ of"):
                action()
    assert file.read_bytes().endswith(b"x" * 100)


def test_a_batch_that_is_there_twice_is_reported(tmp_path: Path) -> None:
    file, records = fill(tmp_path, closed=False)
    data = file.read_bytes()
    file.write_bytes(data + data[-len(data) // 3 :])
    found, error = outcome(tmp_path, False)
    assert found == records
    assert isinstance(error, CorruptLog)


def test_a_closed_segment_that_is_gone_is_reported(tmp_path: Path) -> None:
    file, records = fill(tmp_path, closed=True)
    file.unlink()
    found, error = outcome(tmp_path, False)
    assert (found, type(error)) == ([], CorruptLog)
    assert f"t-0@0 is lost: there is no file {file}" in str(error)
    with open_again(tmp_path) as partition:
        assert partition.read(6) == records[6:]
        assert len(partition.verify()) == 1


@pytest.mark.parametrize("name", ["manifest", "../topic", "../../../log"])
def test_every_flipped_bit_of_a_small_file_is_harmless_or_reported(tmp_path: Path, name: str) -> None:
    file, records = fill(tmp_path, closed=True)
    small = file.parent / name
    good = small.read_bytes()
    for bit in range(len(good) * 8):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        small.write_bytes(bad)
        found, error = outcome(tmp_path, False)
        assert found == records or (found == [] and isinstance(error, CorruptLog | NewerFormat)), bit


@pytest.mark.parametrize("content", [None, b"", b"junk", "flip"])
def test_a_bad_index_is_made_anew(tmp_path: Path, content: bytes | str | None) -> None:
    partition = make(tmp_path, segment_bytes=200_000, compression="none")
    for number in range(300):
        partition.append([(b"k", b"v" * 1_000, number, ())])
    segment = partition.segments()[0]
    assert segment.end is not None
    file = partition.directory / segment.index_name
    good = file.read_bytes()
    assert len(good) >= 24 * 6
    assert partition.verify() == []
    partition.close()
    if content is None:
        file.unlink()
    elif content == "flip":
        file.write_bytes(good[:40] + bytes([good[40] ^ 1]) + good[41:])
    else:
        file.write_bytes(content)
    with open_again(tmp_path) as partition:
        assert [partition.read(offset, max_records=1)[0][4] for offset in range(300)] == list(range(300))
        assert [partition.offset_at(time) for time in range(300)] == list(range(300))
        assert "index" in partition.verify()[0]


def test_a_manifest_of_a_later_format_says_so(tmp_path: Path) -> None:
    file, _ = fill(tmp_path, closed=False)
    manifest = file.parent / "manifest"
    manifest.write_bytes(manifest.read_bytes().replace(b"headwater partition 1 ", b"headwater partition 2 "))
    with pytest.raises(NewerFormat, match="format version 2; this Headwater reads up to 1"):
        open_again(tmp_path, FAST)
