"""Logs that earlier versions wrote: each must open for ever. `fixtures/<format>` is such a log beside what is in it.

`python -m tests.state.log.test_fixtures` writes the one of today's format, which is done once for each format and kept.
"""

import json
import shutil
from base64 import b64encode
from pathlib import Path

import pytest

from headwater.state.log import Log, Partition
from headwater.state.log.batch import NewRecord
from headwater.state.log.topics import DAY_MS
from tests.state.log.helpers import FAST, read_all

FIXTURES = Path(__file__).parent / "fixtures"
FORMATS = sorted(path.name for path in FIXTURES.iterdir())


def contents(partition: Partition) -> dict[str, object]:
    """Return all that a partition holds, as JSON can say it."""

    def text(data: bytes | None) -> str | None:
        return None if data is None else b64encode(data).decode()

    return {
        "start": partition.start,
        "end": partition.end,
        "sequences": {name: partition.last_sequence(name) for name in ("app/0_0", "app/0_1", "nobody")},
        "segments": len(partition.segments()),
        "records": [
            [text(key), text(value), timestamp, [[name, text(header)] for name, header in headers], offset]
            for key, value, timestamp, headers, offset in read_all(partition)
        ],
    }


def everything(log: Log) -> dict[str, object]:
    """Return all that a log holds."""
    found: dict[str, object] = {}
    for topic in log.topics():
        found[topic.name] = [topic.compression, topic.compact, topic.partitions]
        for number in range(topic.partitions):
            with log.partition(topic.name, number) as partition:
                assert partition.verify() == []
                found[f"{topic.name}-{number}"] = contents(partition)
    for group in log.groups():
        committed = log.group(group).committed()
        found[f"group {group}"] = {f"{topic}-{number}": offset for (topic, number), offset in committed.items()}
    return found


@pytest.mark.parametrize("name", FORMATS)
def test_a_log_of_each_format_opens(tmp_path: Path, name: str) -> None:
    expected = json.loads((FIXTURES / name / "expected.json").read_text())
    shutil.copytree(FIXTURES / name / "log", tmp_path / "log")
    log = Log.open(tmp_path / "log", FAST)
    assert json.loads(json.dumps(everything(log))) == expected
    # And it can be gone on with.
    for topic in log.topics():
        with log.partition(topic.name, 0) as partition:
            end = partition.end
            assert partition.append([(b"k", b"v", 1, ())], producer="app/0_0", sequence=5) is None
            assert partition.append([(b"k", b"v", 1, ())], producer="app/0_0", sequence=1_000) == (end, end)
            partition.compact(10 * DAY_MS)
            assert partition.read(end) == [(b"k", b"v", 1, (), end)]
            assert partition.verify() == []


def test_there_is_one_of_todays_format() -> None:
    assert "v1" in FORMATS


def write(folder: Path) -> None:
    """Write a log that has a bit of everything."""
    log = Log.open(folder / "log")
    for compression in ("none", "lz4", "zstd"):
        log.create_topic(compression, 2, compression=compression, segment_bytes=1_500, retention_ms=None)
        with log.partition(compression, 0) as partition:
            for sequence in range(12):
                records: list[NewRecord] = [
                    (b"key-%d" % number, b"value " * sequence, 1_000 * sequence + number, (("h", b"x"), ("n", None)))
                    for number in range(sequence)
                ]
                records.append((None, None, 1_000 * sequence, ()))
                partition.append(records, producer=f"app/0_{sequence % 2}", sequence=sequence)
            partition.delete_before(20)
    log.create_topic("compacted", compact=True, delete=False, segment_bytes=600)
    with log.partition("compacted", 0) as partition:
        for sequence in range(30):
            value = None if sequence % 7 == 3 else b"%d" % sequence
            partition.append([(b"key-%d" % (sequence % 9), value, sequence, ())], producer="app/0_0", sequence=sequence)
            if sequence == 20:
                partition.compact(1)
        partition.compact(DAY_MS + 1)
    log.group("billing").commit({("lz4", 0): 21, ("compacted", 0): 30})
    (folder / "expected.json").write_text(json.dumps(everything(log), indent=1) + "\n")


if __name__ == "__main__":
    target = FIXTURES / "v1"
    if target.exists():
        raise SystemExit(f"{target} is there: a fixture is kept as it was written")
    write(target)
