"""A partition: an append-only run of records, each with its offset. It owns appending and reading; the files, and how
processes share them, are the chain's, the bytes the batch's."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from headwater.errors import StreamsError
from headwater.state.log import compaction, inspection
from headwater.state.log.batch import (
    HEADER_BYTES,
    SEVERAL,
    Body,
    NewRecord,
    Record,
    encode_body,
    frame,
    listed,
    sequences,
)
from headwater.state.log.chain import Chain, Gone
from headwater.state.log.errors import CorruptLog, OutOfRange, storage_error
from headwater.state.log.files import REAL_FILES, Files
from headwater.state.log.inspection import BatchInfo
from headwater.state.log.segment import Segment, Tail
from headwater.state.log.topics import TopicInfo

__all__ = ["Partition"]

# How many bytes the names and sequence numbers of a batch's producers may have.
MOST_NAMES = 0xFFFF


class Partition:
    """One opening of a partition. Threads may share it; a process has its own, and closes it.

    >>> from tempfile import TemporaryDirectory
    >>> from headwater.state.log import Log
    >>> with TemporaryDirectory() as folder, Log.open(folder) as log:
    ...     _ = log.create_topic("orders")
    ...     orders = log.partition("orders", 0)
    ...     print(orders.append([(b"a", b"1", 10, ()), (b"b", b"2", 20, ())]))
    ...     print(orders.read(1), orders.end)
    (0, 1)
    [(b'b', b'2', 20, (), 1)] 2
    """

    def __init__(self, directory: Path, topic: str, number: int, files: Files = REAL_FILES) -> None:
        self.topic, self.number, self.directory = topic, number, directory
        self._chain = Chain(files, directory, f"{topic}-{number}")
        self._cursor = (-1, -1, 0)
        self._rest: list[Record] = []
        self._rest_at = 0

    def __enter__(self) -> "Partition":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __str__(self) -> str:
        return self._chain.name

    def close(self) -> None:
        """Let go of files; what was appended stays appended. A second time does nothing."""
        self._chain.close()

    @property
    def config(self) -> TopicInfo:
        """The topic's settings as they are now."""
        with self._chain.mutex:
            self._chain.fresh()
            return self._chain.config

    # Appending

    def append(
        self,
        records: Sequence[NewRecord],
        *,
        producer: str | None = None,
        sequence: int | None = None,
        sync: bool = False,
    ) -> tuple[int, int] | None:
        """Append the records as one batch, all or none; return their first and last offset.

        With a producer and a sequence number that is not higher than that producer's last one, nothing is appended and
        None returned: it was, before. With `sync` they are on the disk when this returns.
        """
        if producer is None and sequence is None:
            producer, sequence = "", -1
        elif not producer or sequence is None or sequence < 0:
            raise StreamsError("A producer needs a name and a sequence number of 0 or more, or neither.")
        return self._append_once(records, producer, sequence, sync)

    def append_merged(self, records: Sequence[NewRecord], producers: Mapping[str, int]) -> tuple[int, int] | None:
        """Append records of several producers as one batch, with the sequence number of each.

        None, and nothing is appended, if the log has a number of one of them already, or if the producers are too many
        for one batch: append each one's on their own.
        """
        if len(producers) == 1:
            ((producer, sequence),) = producers.items()
            return self.append(records, producer=producer, sequence=sequence)
        names = listed(producers)
        if len(names.encode()) > MOST_NAMES:
            return None
        return self._append_once(records, names, SEVERAL, False)

    def _append_once(
        self, records: Sequence[NewRecord], producer: str, sequence: int, sync: bool
    ) -> tuple[int, int] | None:
        chain = self._chain
        body = encode_body(records, chain.config.compression)
        with chain.mutex:
            if not chain.appendable:
                chain.check_appendable(f"append to {self}")
            try:
                chain.files.lock(chain.lock_fd)
                tail = chain.catch_up()
                if producer and _has(tail.producers, producer, sequence):
                    offsets = None
                else:
                    offsets = self._append(tail, body, producer, sequence)
            except OSError as error:
                raise storage_error(f"append to {self}", self.directory, error) from error
            finally:
                chain.files.unlock(chain.lock_fd)
            if sync:
                chain.sync()
            return offsets

    def _append(self, tail: Tail, body: Body, producer: str, sequence: int) -> tuple[int, int]:
        chain = self._chain
        config = chain.config
        if body.keyless and config.compact:
            raise StreamsError(f"{self} is compacted by key: a record without a key cannot be appended.")
        if tail.first_timestamp is not None and (
            tail.position + HEADER_BYTES + len(body.data) > config.segment_bytes
            or body.max_timestamp - tail.first_timestamp > config.segment_ms
        ):
            chain.roll()
            tail = chain.tail
        base, position = tail.end, tail.position
        last = base + body.records - 1
        data = frame(body, base, last, producer, sequence)
        try:
            chain.files.write(chain.active_fd, data, position)
        except OSError:
            # If this fails too, the next append finds an incomplete batch and cuts it off.
            chain.files.truncate(chain.active_fd, position)
            raise
        tail.took(base, last, body.max_timestamp, producer, sequence, position, len(data))
        return base, last

    def sync(self) -> int:
        """Return the end up to which everything is on the disk, whoever appended it, after writing it there."""
        return self._chain.sync()

    def last_sequence(self, producer: str) -> int | None:
        """Return the sequence number of the producer's last batch, also of one that is no longer there."""
        with self._chain.mutex:
            return self._chain.follow().producers.get(producer)

    # Where it begins and ends

    @property
    def start(self) -> int:
        """The first offset that may be read."""
        with self._chain.mutex:
            return self._chain.fresh().start

    @property
    def end(self) -> int:
        """The offset that the next record will get. Unless it is the start, or a repair has given up the last records,
        there is a record at the one before it."""
        with self._chain.mutex:
            return self._chain.follow().end

    @property
    def sound_end(self) -> int:
        """The offset behind the last record that can be read: that is the end, unless there is damage, which the next
        read reports, or a repair has given up the last records."""
        with self._chain.mutex:
            gap = self._chain.fresh().gap
            end = self._end_for(-1)
            return gap if gap is not None and end == self._chain.manifest.active.base else end

    def behind_gap(self, offset: int) -> int:
        """Return where a reader that finds nothing at the offset goes on: behind what a repair has given up."""
        with self._chain.mutex:
            manifest = self._chain.fresh()
            return max(offset, manifest.active.base) if manifest.gap is not None and manifest.gap <= offset else offset

    @property
    def repaired(self) -> str:
        """The id of the last repair, which may have given up records; empty if there was none."""
        with self._chain.mutex:
            return self._chain.fresh().repaired

    @property
    def size_bytes(self) -> int:
        """What its segments take on the disk, without the indexes."""
        return sum(segment.size for segment in self.segments())

    def segments(self) -> list[Segment]:
        """Return the segments in the order of their offsets; the active one, the last, as far as it is now."""
        with self._chain.mutex:
            tail, manifest = self._chain.follow(), self._chain.manifest
            active = msgspec.structs.replace(manifest.active, size=tail.position, max_timestamp=tail.max_timestamp)
            return [*manifest.closed, active]

    # Reading

    def read(self, offset: int, max_records: int = 10_000, max_bytes: int = 4 << 20) -> list[Record]:
        """Return records from the offset on, in order; none at the end.

        At most `max_records`, and from batches of about `max_bytes` together, but at least one batch. An offset that
        compaction removed stands for the next one. OutOfRange below the start and above the end.
        """
        chain = self._chain
        with chain.mutex:
            self._check_start(offset, chain.fresh().start)
            if self._rest_at < len(self._rest) and self._rest[self._rest_at][4] == offset:
                return self._take(self._rest, self._rest_at, max_records)
            while True:
                try:
                    return self._read(offset, max_records, max_bytes)
                except Gone as gone:
                    chain.retake(gone.args[0])
                    # It may be gone for good: what follows must not be taken for what is at the offset.
                    self._check_start(offset, chain.manifest.start)

    def _check_start(self, offset: int, start: int) -> None:
        if offset < start:
            raise OutOfRange(str(self), offset, start, self.end)

    def _take(self, records: list[Record], at: int, room: int) -> list[Record]:
        """Return as many records as there is room for; the next read finds the others without decoding again."""
        if at == 0 and len(records) <= room:
            return records
        self._rest, self._rest_at = records, at + room
        return records[at : at + room]

    def _read(self, offset: int, max_records: int, max_bytes: int) -> list[Record]:
        chain = self._chain
        manifest, out, size = chain.manifest, list[Record](), 0
        for segment in manifest.segments[manifest.segment_at(offset) :]:
            fd = chain.open(segment)
            due = None
            if self._cursor[:2] == (offset, segment.id):
                due, _, position = self._cursor
            else:
                # What lies before is known, or nothing does: the beginning needs no look at all that follows.
                if segment.end is None and offset != segment.base and offset >= chain.tail.end:
                    try:
                        end = self._end_for(offset)
                    except CorruptLog:
                        if out:
                            return out
                        raise
                    if chain.manifest.active.id != segment.id:
                        # It was closed meanwhile, and so was the descriptor.
                        if out:
                            return out
                        raise Gone(segment)
                    if offset > end:
                        raise OutOfRange(str(self), offset, manifest.start, end)
                position = chain.index(segment, fd).position(offset)
            try:
                for at, batch in chain.walk(segment, fd, position, due):
                    if batch.last < offset:
                        continue
                    if out and (size + batch.size > max_bytes or len(out) >= max_records):
                        return out
                    records = chain.decode(segment, at, batch)
                    if batch.base < offset:
                        records = [record for record in records if record[4] >= offset]
                    taken = self._take(records, 0, max_records - len(out))
                    if out:
                        out.extend(taken)
                    else:
                        out = taken
                    size += batch.size
                    offset = batch.last + 1
                    self._cursor = (offset, segment.id, at + batch.size)
                    if len(taken) < len(records):
                        return out
            except CorruptLog:
                # Whoever asks for what is damaged is told, and not who asks for the sound records before it.
                if out:
                    return out
                raise
            if segment.end is not None:
                offset = max(offset, segment.end)
            elif not out and chain.unseen and not (
                self._cursor[:2] == (offset, segment.id) and chain.is_whole(self._cursor[2])
            ):
                # Nothing more: unless something was there.
                self._end_for(offset)
        return out

    def _end_for(self, offset: int) -> int:
        """Return the end; for an offset before damage, how far it is sound."""
        try:
            return self._chain.follow().end
        except CorruptLog:
            if offset >= self._chain.tail.end:
                raise
            return self._chain.tail.end

    def offset_at(self, timestamp: int) -> int:
        """Return the first offset whose record has this timestamp or a higher one; the end if there is none."""
        with self._chain.mutex:
            while True:
                try:
                    return self._offset_at(timestamp)
                except Gone as gone:
                    self._chain.retake(gone.args[0])

    def _offset_at(self, timestamp: int) -> int:
        chain = self._chain
        tail, manifest = chain.follow(), chain.manifest
        for segment in manifest.segments:
            highest = tail.max_timestamp if segment.end is None else segment.max_timestamp
            if highest is None or highest < timestamp:
                continue
            fd = chain.open(segment)
            for at, batch in chain.walk(segment, fd, chain.index(segment, fd).position_by_time(timestamp)):
                if batch.max_timestamp >= timestamp and batch.last >= manifest.start:
                    for record in chain.decode(segment, at, batch):
                        if record[2] >= timestamp and record[4] >= manifest.start:
                            return record[4]
        return tail.end

    # Taking out

    def delete_before(self, offset: int) -> None:
        """Make the offset the first that may be read, and delete the segments below it."""
        compaction.delete_before(self._chain, offset)

    def apply_retention(self, now: int) -> None:
        """Delete the oldest segments, as the topic's settings say, at this time in milliseconds."""
        compaction.apply_retention(self._chain, now)

    def compact(self, now: int) -> bool:
        """Keep the last record of each key in the closed segments; False if another process is at it already."""
        return compaction.compact(self._chain, now)

    def maintain(self, now: int, *, by_writing: bool = False) -> None:
        """Apply retention, and compact if the topic is compacted and enough has come since the last time.

        With `by_writing`, a record is not too old before it has been there for the retention.
        """
        compaction.maintain(self._chain, now, by_writing=by_writing)

    # Looking inside

    def dump(self) -> Iterator[BatchInfo]:
        """Yield what each batch's header says; CorruptLog at damage."""
        return inspection.dump(self._chain)

    def verify(self) -> list[str]:
        """Return one line for each fault in the partition's files; none if all is well."""
        return inspection.verify(self._chain)

    # For the log, when a topic changes

    def announce(self) -> None:
        """Make everyone who has the partition open take the topic's settings again."""
        with self._chain.changing(f"change {self}") as manifest:
            self._chain.publish(manifest)

    def retire(self) -> None:
        """Keep the append lock until closed, and make everyone look whether the partition is still there."""
        self._chain.retire()


def _has(known: Mapping[str, int], producer: str, sequence: int) -> bool:
    """Whether a batch's sequence number, or one of several, is not higher than its producer's last one."""
    if sequence != SEVERAL:
        return sequence <= known.get(producer, -1)
    return any(number <= known.get(name, -1) for name, number in sequences(producer, sequence).items())
