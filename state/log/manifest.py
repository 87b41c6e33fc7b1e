"""Which segments a partition has: one small file that is replaced as a whole, and the counter by which others notice.
It owns what the file says; who may replace it, and when, is the partition's: only the holder of the append lock.

A directory listing would not do: one that is read while segments are replaced may show neither the old nor the new.

| field | what |
|---|---|
| version | grows with each replacement |
| topic_id | of the topic the partition belongs to: a topic made again under the same name is another one |
| start | the first offset that may be read |
| cleaned | the records below it have been compacted |
| next_id | of the next segment file: an id is never used twice |
| segments | in the order of their offsets, the last is the active one |
| producers | the last sequence number of each producer at the active segment's beginning; its batches tell the rest |
| repaired | of the last repair, its id; "" if there was none: results that were appended may be gone since |
| gap | after a repair: from here up to the active segment's beginning there is no record |

The lock file, which all processes map, has the counter and the mark: how far the active segment was synced at least. It
is not synced itself, and never says more than is on the disk: what it says was there, and is not, is lost.

| at | bytes | what |
|---|---|---|
| 0 | 8 | the manifest's version |
| 8 | 8 | the active segment's id |
| 16 | 8 | how many of its bytes were synced |
| 24 | 8 | the offset behind them |
| 32 | 4 | CRC-32 of bytes 8 to 32; a mark with another is none |
"""

import struct
from bisect import bisect_right
from mmap import mmap
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import msgspec

from headwater.state.log import documents
from headwater.state.log.files import Files
from headwater.state.log.segment import Segment

__all__ = [
    *("COUNTER_BYTES", "LOCK_BYTES", "LOCK_NAME", "MANIFEST_NAME", "Manifest", "Mark"),
    *("load_manifest", "load_mark", "make_partition", "store_manifest", "store_mark"),
]

MANIFEST_NAME = "manifest"
LOCK_NAME = "append.lock"
COUNTER_BYTES = 8
_MARK = struct.Struct("<QQQ")
_CRC = struct.Struct("<I")
_MARK_END = COUNTER_BYTES + _MARK.size
LOCK_BYTES = _MARK_END + _CRC.size


class Mark(NamedTuple):
    """How far an active segment was synced."""

    segment: int
    position: int
    end: int


def load_mark(shared: mmap) -> Mark | None:
    """Return the mark in the lock file; None if there is none."""
    data = shared[COUNTER_BYTES:LOCK_BYTES]
    if len(data) < _MARK.size + _CRC.size or _CRC.unpack_from(data, _MARK.size)[0] != crc32(data[: _MARK.size]):
        return None
    return Mark(*_MARK.unpack_from(data))


def store_mark(shared: mmap, mark: Mark) -> None:
    data = _MARK.pack(*mark)
    shared[COUNTER_BYTES:LOCK_BYTES] = data + _CRC.pack(crc32(data))


class Manifest(msgspec.Struct, frozen=True):
    version: int
    topic_id: str
    start: int
    cleaned: int
    next_id: int
    segments: tuple[Segment, ...]
    producers: dict[str, int]
    repaired: str = ""
    gap: int | None = None

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def closed(self) -> tuple[Segment, ...]:
        return self.segments[:-1]

    def segment_at(self, offset: int) -> int:
        """Return the number of the segment in which the offset lies or would lie."""
        return max(bisect_right(self.segments, offset, key=lambda segment: segment.base) - 1, 0)


def load_manifest(files: Files, directory: Path) -> Manifest:
    """Return the partition's manifest; FileNotFoundError if there is no such partition."""
    return documents.load(files, directory / MANIFEST_NAME, "partition", Manifest)


def store_manifest(files: Files, directory: Path, manifest: Manifest) -> None:
    documents.store(files, directory / MANIFEST_NAME, "partition", manifest)


def make_partition(files: Files, directory: Path, topic_id: str) -> None:
    """Make an empty partition's directory; one that a crash left unfinished is made again."""
    files.make_directory(directory)
    segment = Segment(id=0, base=0)
    files.close(files.create(directory / segment.name))
    fd = files.create(directory / LOCK_NAME)
    try:
        files.write(fd, bytes(COUNTER_BYTES), 0)
        # An empty file could not be mapped after a power loss.
        files.sync(fd)
    finally:
        files.close(fd)
    store_manifest(files, directory, Manifest(1, topic_id, 0, 0, 1, (segment,), {}))
