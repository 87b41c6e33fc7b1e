"""What the log's tests share: opening a log, records, reading a partition to its end."""

from pathlib import Path

from headwater.state.log import Files, Log, Partition, Record
from headwater.state.log.batch import NewRecord
from tests.state.log.layers import Unsynced

FAST = Unsynced()


def make(folder: Path, files: Files = FAST, **settings: object) -> Partition:
    """Return the only partition of a new topic "t"."""
    log = Log.open(folder, files)
    log.create_topic("t", **settings)  # type: ignore[arg-type]
    return open_again(folder, files)


def open_again(folder: Path, files: Files = FAST) -> Partition:
    return Log.open(folder, files).partition("t", 0)


def numbered(first: int, count: int = 1) -> list[NewRecord]:
    """Return records that say which they are."""
    return [(b"k%d" % n, b"v%d" % n, 1_000 + n, ()) for n in range(first, first + count)]


def read_all(partition: Partition, **limits: int) -> list[Record]:
    """Return all records from the start to the end."""
    found: list[Record] = []
    offset = partition.start
    while records := partition.read(offset, **limits):
        found += records
        offset = records[-1][4] + 1
    return found
