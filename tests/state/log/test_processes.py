"""Several processes on one log: writers, readers and cleaners that open and close it all the time, and a writer that is
killed again and again."""

import json
import subprocess
import sys
import time
from pathlib import Path
from random import Random

from headwater.state.log import Log
from tests.state.log.helpers import read_all
from tests.state.log.workers import ENOUGH, Watcher, said

ROOT = Path(__file__).parents[3]
# How long they work at least, and how long they have to do enough.
SECONDS, PATIENCE = 10, 120
KILLS = 3


def start(role: str, folder: Path, until: float, seed: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.state.log.workers", role, str(folder), str(until), str(seed)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def enough(folder: Path, names: list[str]) -> bool:
    """Whether all have done enough, the victim something, and records have been deleted."""
    with Log.open(folder) as log, log.partition("plain", 0) as plain, log.partition("compacted", 0) as compacted:
        there = plain.start > 0 and compacted.last_sequence("write3") is not None
    return there and all((folder.parent / name).exists() for name in names)


def test_no_reader_sees_a_torn_doubled_or_reordered_record(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    with Log.open(folder) as log:
        log.create_topic("plain", segment_bytes=20_000, retention_ms=None, retention_bytes=400_000)
        log.create_topic("compacted", compact=True, delete=False, segment_bytes=20_000)
    began = time.time()
    roles = (("write", 1), ("write", 2), ("clean", 1), ("read", 1), ("read", 2))
    names = [f"{role}{seed}" for role, seed in roles]
    processes = [start(role, folder, began + PATIENCE, seed) for role, seed in roles]
    random, kills = Random(7), 0
    try:
        while kills < KILLS or time.time() < began + SECONDS or not enough(folder, names):
            if time.time() > began + PATIENCE or any(process.poll() is not None for process in processes):
                break
            victim = start("write", folder, began + PATIENCE, 3)
            assert victim.stdout is not None
            assert victim.stdout.readline() == "begins\n"
            time.sleep(random.random())
            victim.kill()
            _, faults = victim.communicate()
            assert faults == ""
            kills += 1
    finally:
        (tmp_path / "stop").touch()
    assert kills >= KILLS
    for name, process in zip(names, processes, strict=True):
        output, faults = process.communicate(timeout=60)
        assert process.returncode == 0, f"{name}: {faults}"
        assert json.loads(output.splitlines()[-1]) > ENOUGH, name
    with Log.open(folder) as log:
        plain, compacted = log.partition("plain", 0), log.partition("compacted", 0)
        for partition in (plain, compacted):
            # The victim may have left an incomplete batch: then, and only then, there is one thing to say.
            assert [line for line in partition.verify() if "cuts them off" not in line] == []
            watcher = Watcher(partition.topic)
            while watcher.offset != partition.end:
                watcher.take(partition, random)
            assert sorted(watcher.last) == ["write1", "write2", "write3"] or partition is plain
            for producer, (sequence, number, count) in watcher.last.items():
                assert (partition.last_sequence(producer), number) == (sequence, count - 1)
        assert plain.start > 0
        # The last record of each key outlives compaction.
        for producer in ("write1", "write2", "write3"):
            sequences = {said(record)[1] for record in read_all(compacted) if said(record)[0] == producer}
            last = compacted.last_sequence(producer)
            assert last is not None
            assert set(range(max(0, last - 19), last + 1)) <= sequences
