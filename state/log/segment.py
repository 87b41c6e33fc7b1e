"""One segment file: a run of batches and nothing else, read in whole batches only. It owns the walk over a file, the
closed segment's index and the growing segment's tail; which segments there are is the partition's.

A segment is closed, then it never changes and its size is known, or it is the active one, the last, which grows. A
walk ends before an incomplete batch and raises BadBatch at a damaged one.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from headwater.state.log.batch import HEADER_BYTES, SEVERAL, BadBatch, Batch, parse, sequences
from headwater.state.log.files import Files
from headwater.state.log.index import Index

__all__ = ["SEGMENT_FILE", "Segment", "Tail", "load_index", "scan"]

# The base and the id in a segment's name.
SEGMENT_FILE = re.compile(r"(\d{20})-(\d+)\.log")
_CHUNK = 256 << 10


class Segment(msgspec.Struct, frozen=True):
    """What a partition knows of a segment; of the active one only where it begins."""

    id: int
    base: int
    end: int | None = None
    """One more than the last offset that belongs here; None for the active segment."""
    size: int = 0
    max_timestamp: int | None = None
    """None if there is no record in it."""
    horizon: int = 0
    """The earliest time at which a tombstone in it may go, 0 if none may yet."""

    @property
    def name(self) -> str:
        return f"{self.base:020d}-{self.id}.log"

    @property
    def index_name(self) -> str:
        return f"{self.base:020d}-{self.id}.index"


def scan(files: Files, fd: int, position: int, limit: int) -> Iterator[tuple[int, Batch]]:
    """Yield each whole batch with its position, up to the limit or the first incomplete one."""
    size = _CHUNK
    while limit - position >= HEADER_BYTES:
        wanted = min(size, limit - position)
        data = memoryview(files.read(fd, wanted, position))
        at = 0
        while True:
            batch = parse(data, at)
            if isinstance(batch, int):
                break
            yield position + at, batch
            at += batch.size
        position += at
        # The second: the file has become shorter than the limit, for an incomplete batch was cut off.
        if batch > limit - position or len(data) < wanted:
            return
        size = max(_CHUNK, batch)


class Tail:
    """How far the active segment has been followed: its last whole batch's end, and what its batches say so far."""

    __slots__ = ("end", "first_timestamp", "index", "max_timestamp", "position", "producers")

    def __init__(self, base: int, producers: dict[str, int]) -> None:
        self.position = 0
        self.end = base
        self.first_timestamp: int | None = None
        self.max_timestamp: int | None = None
        self.producers = dict(producers)
        self.index = Index()

    def follow(self, files: Files, fd: int, limit: int) -> None:
        """Go on over the whole batches up to the limit."""
        for position, batch in scan(files, fd, self.position, limit):
            if batch.base != self.end or batch.last - batch.base + 1 != batch.records:
                raise BadBatch(f"a batch of the offsets {batch.base} to {batch.last} lies where {self.end} is due")
            self.took(batch.base, batch.last, batch.max_timestamp, batch.producer, batch.sequence, position, batch.size)

    def took(
        self, base: int, last: int, max_timestamp: int, producer: str, sequence: int, position: int, size: int
    ) -> None:
        """Take note of a batch that is in the file."""
        highest = self.max_timestamp
        if position >= self.index.due:
            self.index.add(base, position, highest)
        if highest is None:
            self.first_timestamp = self.max_timestamp = max_timestamp
        elif max_timestamp > highest:
            self.max_timestamp = max_timestamp
        if sequence == SEVERAL:
            self.producers.update(sequences(producer, sequence))
        elif producer:
            self.producers[producer] = sequence
        self.end = last + 1
        self.position = position + size


def load_index(files: Files, directory: Path, segment: Segment, fd: int) -> Index:
    """Return a closed segment's index: from its file, or from the segment if that file is not good."""
    try:
        index_fd = files.open(directory / segment.index_name)
    except FileNotFoundError:
        index = None
    else:
        try:
            index = Index.decode(files.read(index_fd, files.size(index_fd), 0), segment.id, segment.size)
        finally:
            files.close(index_fd)
    if index is None:
        index, highest = Index(), None
        for position, batch in scan(files, fd, 0, segment.size):
            index.add(batch.base, position, highest)
            highest = batch.max_timestamp if highest is None else max(highest, batch.max_timestamp)
    return index
