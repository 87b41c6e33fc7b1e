"""RocksDB's memory and files: what a scan reads stays alive as long as the scan, and damage is an error by name."""

import gc
import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headwater import Int64, Str
from headwater.dsl.topology import StoreSpec
from headwater.errors import StateError
from headwater.state.rocks import RocksBackend
from headwater.streams.kafka.changelog import Changelog
from headwater.streams.kafka.recovery import expired

ROWS = {number.to_bytes(8, "big"): b"row-%d" % number for number in range(300)}


def filled(folder: Path, rows: dict[bytes, bytes] = ROWS) -> RocksBackend:
    backend = RocksBackend(folder, ["s"], sync=True)
    backend.write({"s": rows})
    return backend


def scans_with_temporary_bounds(folder: Path) -> None:
    """Scan up to bounds that nobody else keeps, while memory of their size is freed and taken again."""
    backend = filled(folder)
    running = []
    for end in range(1, 300):
        scan = backend.scan("s", (0).to_bytes(8, "big"), end.to_bytes(8, "big"), reverse=end % 3 == 0)
        running.append((end, scan))
        junk = [bytes(8) + number.to_bytes(8, "big") for number in range(20)]
        del junk
        if end % 50 == 0:
            gc.collect()
    for end, scan in running:
        rows = list(scan)
        assert len(rows) == end, (end, len(rows))
        assert {key: ROWS[key] for key, _ in rows} == dict(rows)
    backend.close()


def test_a_scan_keeps_its_bounds_as_long_as_it_lives(tmp_path: Path) -> None:
    scans_with_temporary_bounds(tmp_path)


def sessions_taken_over(folder: Path) -> None:
    """Ask which of the sessions from Kafka Streams have expired: the first three, and no other."""
    spec = StoreSpec("session", "visits", Str(), Int64(), retention_ms=1_000_000)
    backend = RocksBackend(folder, ["visits", "visits|time"])
    at = 1_700_000_000_000
    for number in range(200):
        ended = at + number if number >= 3 else at - 10_000_000
        time = ended.to_bytes(8, "big")
        backend.write(Changelog(spec).rows([(b"key-%d" % number + time + time, b"\0" * 8, ended)]))
    found = [len(rows) for _ in range(20) for rows in expired(spec, backend, (at + 200,)).values()]
    assert found == [3] * 40, found
    backend.close()


def in_overwritten_memory(what: str, folder: Path, filling: str) -> tuple[int, str]:
    """Run one of the above where glibc overwrites what is freed: whoever still reads it sees other bytes, always."""
    script = f"from pathlib import Path; from {__name__} import {what}; {what}(Path({str(folder)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "MALLOC_PERTURB_": filling},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("filling", ["1", "165"])
def test_a_scan_reads_no_freed_memory(tmp_path: Path, filling: str) -> None:
    assert in_overwritten_memory("scans_with_temporary_bounds", tmp_path, filling) == (0, "")


@pytest.mark.parametrize("filling", ["1", "165"])
def test_sessions_taken_over_from_kafka_streams_are_not_deleted(tmp_path: Path, filling: str) -> None:
    assert in_overwritten_memory("sessions_taken_over", tmp_path, filling) == (0, "")


def spoil(file: Path, position: int) -> None:
    data = bytearray(file.read_bytes())
    data[position] ^= 0x10
    file.write_bytes(data)


def in_files(folder: Path) -> Path:
    """Make a database whose rows are in a table file, and return the file with most of them."""
    backend = filled(folder, {number.to_bytes(8, "big"): os.urandom(100) for number in range(2_000)})
    backend.flush("s")
    backend.close()
    return max(folder.glob("*.sst"), key=lambda file: file.stat().st_size)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_that_meets_a_damaged_block_is_an_error_and_not_the_end(tmp_path: Path, reverse: bool) -> None:
    file = in_files(tmp_path)
    spoil(file, file.stat().st_size // 2)
    backend = RocksBackend(tmp_path, ["s"])
    with pytest.raises(StateError, match=r"store 's' in .* cannot be read: .*orruption.*headwater reset") as refusal:
        list(backend.scan("s", b"", None, reverse))
    assert str(tmp_path) in str(refusal.value)
    backend.close()


def test_a_get_from_a_damaged_block_names_store_and_directory(tmp_path: Path) -> None:
    file = in_files(tmp_path)
    spoil(file, file.stat().st_size // 2)
    backend = RocksBackend(tmp_path, ["s"])
    keys = [number.to_bytes(8, "big") for number in range(2_000)]
    for ask in (lambda: backend.get_many("s", keys), lambda: [backend.get_many("s", [key]) for key in keys]):
        with pytest.raises(StateError, match=r"store 's' in .* cannot be read: .*orruption") as refusal:
            ask()
        assert str(tmp_path) in str(refusal.value)
    backend.close()


def test_a_deleted_current_is_refused_again_and_again_and_cured_by_putting_it_back(tmp_path: Path) -> None:
    in_files(tmp_path)
    current = tmp_path / "CURRENT"
    kept = current.read_bytes()
    current.unlink()
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    for _ in range(3):
        with pytest.raises(StateError, match="is damaged: there is no file CURRENT"):
            RocksBackend(tmp_path, ["s"])
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    current.write_bytes(kept)
    backend = RocksBackend(tmp_path, ["s"])
    assert len(list(backend.scan("s", b"", None))) == 2_000
    backend.close()


def test_a_database_that_a_killed_process_had_only_begun_to_make_is_made(tmp_path: Path) -> None:
    RocksBackend(tmp_path / "whole", ["s"]).close()
    begun = tmp_path / "begun"
    begun.mkdir()
    for name in ("LOCK", "LOG", "IDENTITY"):
        shutil.copy(tmp_path / "whole" / name, begun)
    (begun / "MANIFEST-000001").write_bytes(b"half")
    backend = RocksBackend(begun, ["s"])
    backend.write({"s": {b"k": b"row"}})
    backend.close()


def killed(folder: Path) -> Path:
    """Make a database whose process was killed after 50 writes, and return its write-ahead log."""
    whole = filled(folder.with_name("whole"), {})
    for number in range(50):
        whole.write({"s": {b"%03d" % number: b"x" * 100}})
    shutil.copytree(whole.path, folder)
    whole.close()
    return max(folder.glob("*.log"), key=lambda file: file.stat().st_size)


def test_damage_in_the_middle_of_a_write_ahead_log_is_an_error(tmp_path: Path) -> None:
    for number, share in enumerate((0.2, 0.5, 0.9, 0.999)):
        folder = tmp_path / str(number) / "killed"
        wal = killed(folder)
        spoil(wal, int(wal.stat().st_size * share))
        for _ in range(2):
            with pytest.raises(StateError, match=r"cannot be opened: .*orruption"):
                RocksBackend(folder, ["s"])


def test_a_write_ahead_log_that_ends_in_the_middle_of_a_write_opens_without_that_write(tmp_path: Path) -> None:
    """What a process that is killed while it writes leaves behind: nobody was told that the write was done."""
    wal = killed(tmp_path / "killed")
    wal.write_bytes(wal.read_bytes()[:-30])
    backend = RocksBackend(tmp_path / "killed", ["s"])
    assert [key for key, _ in backend.scan("s", b"", None)] == [b"%03d" % number for number in range(49)]
    backend.close()


def test_a_missing_table_file_is_refused(tmp_path: Path) -> None:
    in_files(tmp_path).unlink()
    for _ in range(2):
        with pytest.raises(StateError, match="cannot be opened"):
            RocksBackend(tmp_path, ["s"])


def test_a_look_changes_nothing_on_disk(tmp_path: Path) -> None:
    killed(tmp_path / "killed")

    def contents() -> dict[str, bytes]:
        return {file.name: file.read_bytes() for file in (tmp_path / "killed").iterdir() if file.name[:3] != "LOG"}

    before = contents()
    for _ in range(2):
        backend = RocksBackend(tmp_path / "killed", ["s"], read_only=True)
        assert len(list(itertools.islice(backend.scan("s", b"", None), 100))) == 50
        backend.close()
    assert contents() == before
    with pytest.raises(StateError, match="There is no state"):
        RocksBackend(tmp_path / "nothing", ["s"], read_only=True)
    assert not (tmp_path / "nothing").exists()
