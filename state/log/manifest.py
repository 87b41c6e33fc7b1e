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
"""

from bisect import bisect_right
from pathlib import Path

import msgspec

from headwater.state.log import documents
from headwater.state.log.files import Files
from headwater.state.log.segment import Segment

__all__ = ["COUNTER_BYTES", "LOCK_NAME", "Manifest", "load_manifest", "make_partition", "store_manifest"]

_NAME = "manifest"
LOCK_NAME = "append.lock"
COUNTER_BYTES = 8


class Manifest(msgspec.Struct, frozen=True):
    version: int
    topic_id: str
    start: int
    cleaned: int
    next_id: int
    segments: tuple[Segment, ...]
    producers: dict[str, int]

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
    return documents.load(files, directory / _NAME, "partition", Manifest)


def store_manifest(files: Files, directory: Path, manifest: Manifest) -> None:
    documents.store(files, directory / _NAME, "partition", manifest)


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
