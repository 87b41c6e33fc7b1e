"""What lies in a partition's files, for people who look: a list of its batches and a list of its faults. It owns no
repair."""

from collections.abc import Iterator
from contextlib import suppress

import msgspec

from headwater.errors import StreamsError
from headwater.state.log.batch import CODECS, SEVERAL, BadBatch, Batch, sequences
from headwater.state.log.chain import Chain, Gone
from headwater.state.log.index import Index
from headwater.state.log.segment import Segment, scan

__all__ = ["BatchInfo", "dump", "verify"]


class BatchInfo(msgspec.Struct, frozen=True):
    """What a batch's header says, and where it lies."""

    file: str
    position: int
    size: int
    raw_size: int
    """Of its body, decompressed."""
    base: int
    last: int
    count: int
    min_timestamp: int
    max_timestamp: int
    compression: str
    producer: str | None
    """Of several, each with its sequence number."""
    sequence: int | None
    horizon: int | None
    """From when on tombstones may go; None before the first compaction."""


def _current(chain: Chain) -> list[Segment]:
    with chain.mutex:
        chain.follow()
        return list(chain.manifest.segments)


def dump(chain: Chain) -> Iterator[BatchInfo]:
    """Yield what each batch's header says, in order; CorruptLog at damage."""
    reached, remaining = -1, _current(chain)
    while remaining:
        segment = remaining.pop(0)
        try:
            fd = chain.open_own(segment)
        except Gone:
            chain.retake(segment)
            remaining = [other for other in _current(chain) if other.end is None or other.end - 1 > reached]
            continue
        try:
            for position, batch in chain.walk(segment, fd, 0):
                if batch.last > reached:
                    reached = batch.last
                    yield BatchInfo(
                        file=segment.name,
                        position=position,
                        size=batch.size,
                        raw_size=batch.raw_size,
                        base=batch.base,
                        last=batch.last,
                        count=batch.records,
                        min_timestamp=batch.min_timestamp,
                        max_timestamp=batch.max_timestamp,
                        compression=CODECS[batch.codec],
                        producer=_producer(batch),
                        sequence=batch.sequence if batch.producer and batch.sequence != SEVERAL else None,
                        horizon=batch.horizon or None,
                    )
        finally:
            chain.files.close(fd)


def _producer(batch: Batch) -> str | None:
    if batch.sequence != SEVERAL:
        return batch.producer or None
    return ", ".join(f"{name} #{number}" for name, number in sequences(batch.producer, batch.sequence).items())


def verify(chain: Chain) -> list[str]:
    """Return one line for each fault: damage, files that are missing or too long, an incomplete end, a bad index."""
    faults = []
    try:
        remaining = _current(chain)
    except StreamsError as error:
        faults.append(str(error))
        remaining = list(chain.manifest.segments)
    for segment in remaining:
        try:
            fd = chain.open_own(segment)
        except Gone:
            try:
                chain.retake(segment)
            except StreamsError as error:
                faults.append(str(error))
            continue
        try:
            faults += _verify_segment(chain, segment, fd)
        except StreamsError as error:
            if str(error) not in faults:
                faults.append(str(error))
        finally:
            chain.files.close(fd)
    return faults


def _verify_segment(chain: Chain, segment: Segment, fd: int) -> Iterator[str]:
    end = 0
    for position, batch in chain.walk(segment, fd, 0):
        records = chain.decode(segment, position, batch)
        offsets, timestamps = [record[4] for record in records], [record[2] for record in records]
        if (
            offsets != sorted(set(offsets))
            or (offsets[0], offsets[-1]) != (batch.base, batch.last)
            or (min(timestamps), max(timestamps)) != (batch.min_timestamp, batch.max_timestamp)
        ):
            reason = "offsets or timestamps are not those that the header says"
            yield str(chain.corrupt(segment, position, batch.base, reason))
        end = position + batch.size
    if segment.end is None:
        # Nobody appends meanwhile: what is incomplete now stays so.
        # Only zeros, which the walk has let pass, are not a batch either.
        with chain.locked(), suppress(BadBatch):
            size = chain.files.size(fd)
            for position, batch in scan(chain.files, fd, end, size):
                end = position + batch.size
        what = "behind the last whole batch; the next append cuts them off"
    else:
        size, what = chain.files.size(fd), "too many"
    if size > end:
        yield f"{chain.name}: {size - end} bytes {what}, at byte {end:,} of {chain.directory / segment.name}."
    if segment.end is not None and not _sound_index(chain, segment):
        yield f"{chain.name}: the index {chain.directory / segment.index_name} is missing or damaged; it is not used."


def _sound_index(chain: Chain, segment: Segment) -> bool:
    try:
        fd = chain.files.open(chain.directory / segment.index_name)
    except FileNotFoundError:
        return False
    try:
        data = chain.files.read(fd, chain.files.size(fd), 0)
    finally:
        chain.files.close(fd)
    return Index.decode(data, segment.id, segment.size) is not None
