"""What is taken out of a partition: segments by age and size, all below an offset, and records that a later one of the
same key replaced. It owns which go; how the manifest is replaced is the partition's.

Compaction reads the closed segments that have not been compacted, notes the last offset of each key, and writes all
closed segments up to there again without the records that a later one replaced; small neighbours become one file.
The new files are published by one manifest. Offsets never change; readers go on in the old files if they have them
open.

- The active segment is never compacted, nor do its records replace others yet.
- A tombstone (a value of None) stays for 24 hours after the compaction that first kept it, so that readers see it.
- A record without a key is kept: it was appended before the topic was compacted.
- The last record before the active segment is kept, even an old tombstone: reading up to the last record always ends
  at the partition's end.
- One who dies while compacting leaves files that no manifest names; the next one removes them."""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from headwater.errors import StreamsError
from headwater.state.log.batch import Batch, NewRecord, Record, encode_body, frame
from headwater.state.log.chain import Chain, Gone
from headwater.state.log.errors import storing
from headwater.state.log.index import Index
from headwater.state.log.manifest import Manifest
from headwater.state.log.segment import Segment
from headwater.state.log.topics import DAY_MS

__all__ = ["apply_retention", "compact", "delete_before", "maintain"]

# In memory while a compaction runs, with the key: about 200 bytes each.
_MAX_KEYS = 2_000_000
_BATCH_RECORDS = 1_000
_BATCH_BYTES = 256 << 10


_Written = tuple[tuple[Segment, ...], tuple[Segment, Index] | None]
"""Segments, and the one that replaces them with its index."""


def delete_before(chain: Chain, offset: int) -> None:
    """Move the start up to the offset, and delete the segments below it."""
    with chain.changing("delete records") as manifest:
        tail = chain.catch_up()
        if offset > tail.end:
            raise StreamsError(f"{chain.name} ends at {tail.end}: there is nothing before {offset} to delete.")
        if offset <= manifest.start:
            return
        if offset == tail.end and tail.position:
            manifest = chain.roll()
        _drop(chain, manifest, offset, sum((segment.end or 0) <= offset for segment in manifest.closed))


def apply_retention(chain: Chain, now: int, *, by_writing: bool = False) -> None:
    """Delete the oldest segments as long as all records in them are too old, or the partition stays large enough.

    A record's age counts from its timestamp; with `by_writing`, from when it was written if that is later: else a
    backfill of old events would be gone before anybody has read it.
    """
    with chain.changing("apply retention") as manifest:
        config, tail = chain.config, chain.catch_up()
        if not config.delete:
            return
        oldest = None if config.retention_ms is None else now - config.retention_ms
        size = sum(segment.size for segment in manifest.closed) + tail.position
        count = 0
        for segment in manifest.closed:
            too_old = (
                oldest is not None
                and (segment.max_timestamp is None or segment.max_timestamp < oldest)
                and (not by_writing or _written_before(chain, segment, oldest))
            )
            too_large = config.retention_bytes is not None and size - segment.size >= config.retention_bytes
            if not too_old and not too_large:
                break
            count += 1
            size -= segment.size
        else:
            if (
                oldest is not None
                and tail.max_timestamp is not None
                and tail.max_timestamp < oldest
                and (not by_writing or _written_before(chain, manifest.active, oldest))
            ):
                manifest = chain.roll()
                count += 1
        if count:
            _drop(chain, manifest, manifest.segments[count].base, count)


def _written_before(chain: Chain, segment: Segment, time: int) -> bool:
    return chain.files.written_at(chain.directory / segment.name) < time


def _drop(chain: Chain, manifest: Manifest, start: int, count: int) -> None:
    gone = manifest.segments[:count]
    chain.publish(
        msgspec.structs.replace(
            manifest,
            start=max(start, manifest.start),
            cleaned=max(manifest.cleaned, manifest.segments[count].base),
            segments=manifest.segments[count:],
        )
    )
    _remove(chain, gone)


def _remove(chain: Chain, segments: tuple[Segment, ...]) -> None:
    """Remove files that no manifest names; one that stays, for the power fails, is removed by a later cleaning."""
    for segment in segments:
        chain.files.remove(chain.directory / segment.name)
        chain.files.remove(chain.directory / segment.index_name)


def maintain(chain: Chain, now: int, *, by_writing: bool = False) -> None:
    """Do what the topic's settings say; compact only if that is worth rewriting what is there."""
    apply_retention(chain, now, by_writing=by_writing)
    if chain.config.compact:
        with chain.changing("compact") as manifest:
            manifest = _close_if_old(chain, manifest, now)
            dirty = sum(segment.size for segment in manifest.closed if segment.base >= manifest.cleaned)
            clean = sum(segment.size for segment in manifest.closed) - dirty
            due = any(segment.horizon and segment.horizon <= now for segment in manifest.closed)
        if due or dirty > clean:
            compact(chain, now)


def _close_if_old(chain: Chain, manifest: Manifest, now: int) -> Manifest:
    """Close an active segment that would wait for more records too long to be compacted."""
    tail = chain.catch_up()
    if tail.first_timestamp is not None and now - tail.first_timestamp > chain.config.segment_ms:
        return chain.roll()
    return manifest


def compact(chain: Chain, now: int) -> bool:
    """Keep the last record of each key in the closed segments; False if another process is at it."""
    with _cleaning(chain) as alone:
        if not alone:
            return False
        with chain.changing("compact") as manifest:
            _remove_orphans(chain, manifest)
        more = True
        while more:
            try:
                more = _compact_some(chain, now)
            except Gone as gone:
                # Deleted by its age meanwhile.
                with chain.mutex:
                    chain.retake(gone.args[0])
        return True


@contextmanager
def _cleaning(chain: Chain) -> Iterator[bool]:
    """Be the only one who compacts this partition; False if another is."""
    with storing("compact", chain.directory):
        chain.check_appendable("compact")
        fd = chain.files.create(chain.directory / "compact.lock", empty=False)
        try:
            yield chain.files.try_lock(fd)
        finally:
            chain.files.close(fd)


def _batches(chain: Chain, segment: Segment) -> Iterator[tuple[Batch, list[Record]]]:
    fd = chain.open_own(segment)
    try:
        for position, batch in chain.walk(segment, fd, 0):
            yield batch, chain.decode(segment, position, batch)
    finally:
        chain.files.close(fd)


def _remove_orphans(chain: Chain, manifest: Manifest) -> None:
    known = {name for segment in manifest.segments for name in (segment.name, segment.index_name)}
    for name in chain.files.names(chain.directory):
        if name.endswith(".compacting") or (name.endswith((".log", ".index")) and name not in known):
            chain.files.remove(chain.directory / name)


def _compact_some(chain: Chain, now: int) -> bool:
    """Compact as many segments as their keys fit in memory; say whether there are more."""
    with chain.mutex:
        manifest = chain.fresh()
    last_offsets: dict[bytes, int] = {}
    end = manifest.cleaned
    taken = 0
    for number, segment in enumerate(manifest.closed, 1):
        if segment.base >= manifest.cleaned:
            if len(last_offsets) >= _MAX_KEYS:
                break
            for _, records in _batches(chain, segment):
                last_offsets.update((record[0], record[4]) for record in records if record[0] is not None)
        taken, end = number, segment.end or end
    with storing("compact", chain.directory):
        written = _rewrite(chain, manifest.closed[:taken], last_offsets, now, end - 1)
        _publish(chain, written, end)
    return taken < len(manifest.closed)


def _rewrite(
    chain: Chain, segments: tuple[Segment, ...], last_offsets: dict[bytes, int], now: int, last_offset: int
) -> list[_Written]:
    """Write what is left of the segments, neighbours into one file as long as it is not larger than one may be."""
    written: list[_Written] = []
    writer: _Writer | None = None
    try:
        for segment in segments:
            if writer and writer.position + segment.size > chain.config.segment_bytes:
                written.append(writer.finish())
                writer = None
            writer = writer or _Writer(chain, segment, now, last_offset)
            writer.add(segment, last_offsets)
        if writer:
            written.append(writer.finish())
    except BaseException:
        if writer:
            writer.close()
        raise
    return written


def _publish(chain: Chain, written: list[_Written], cleaned: int) -> None:
    with chain.changing("compact") as manifest:
        segments, number, gone = list(manifest.segments), manifest.next_id, list[Segment]()
        for old, new in written:
            # Deleted meanwhile by their age: then what replaces them is of no use, and is removed as an orphan.
            if new is None or any(segment not in segments for segment in old):
                continue
            fresh, index = msgspec.structs.replace(new[0], id=number), new[1]
            chain.files.replace(chain.directory / _name(old[0]), chain.directory / fresh.name)
            chain.write_index(fresh, index)
            at = segments.index(old[0])
            segments[at : at + len(old)] = [fresh]
            gone += old
            number += 1
        if gone or cleaned > manifest.cleaned:
            cleaned = max(cleaned, manifest.cleaned)
            chain.publish(msgspec.structs.replace(manifest, segments=tuple(segments), next_id=number, cleaned=cleaned))
            _remove(chain, tuple(gone))


def _name(segment: Segment) -> str:
    return f"{segment.base:020d}.compacting"


class _Writer:
    """Writes what is left of neighbouring segments into one file."""

    def __init__(self, chain: Chain, first: Segment, now: int, last_offset: int) -> None:
        self.position = 0
        self._chain = chain
        self._path = chain.directory / _name(first)
        self._now, self._last_offset = now, last_offset
        self._segments: list[Segment] = []
        self._changed = False
        self._index = Index()
        self._max_timestamp: int | None = None
        self._horizons: set[int] = set()
        self._records: list[Record] = []
        self._bytes = 0
        self._horizon = 0
        self._fd = chain.files.create(self._path)

    def close(self) -> None:
        if self._fd >= 0:
            self._chain.files.close(self._fd)
            self._fd = -1

    def add(self, segment: Segment, last_offsets: dict[bytes, int]) -> None:
        """Write the segment's records, except those that were replaced and tombstones whose time is over."""
        self._segments.append(segment)
        for batch, records in _batches(self._chain, segment):
            horizon = batch.horizon or self._now + DAY_MS
            for record in records:
                key, value, offset = record[0], record[1], record[4]
                tombstone = value is None and key is not None
                replaced = key is not None and last_offsets.get(key, -1) > offset
                if replaced or (tombstone and self._now >= horizon and offset != self._last_offset):
                    self._changed = True
                else:
                    # A tombstone that stays for the first time is given its time.
                    self._changed |= tombstone and not batch.horizon
                    self._keep(record, horizon if tombstone else 0)
        self._flush()

    def finish(self) -> _Written:
        """Return the segments, and what replaces them, yet without an id; None if they may stay as they are."""
        files, segments = self._chain.files, tuple(self._segments)
        files.sync(self._fd)
        self.close()
        first, last = segments[0], segments[-1]
        horizon = min(self._horizons, default=0)
        if len(segments) == 1 and not self._changed and horizon == first.horizon:
            files.remove(self._path)
            return segments, None
        new = Segment(-1, first.base, last.end, self.position, self._max_timestamp, horizon)
        return segments, (new, self._index)

    def _keep(self, record: Record, horizon: int) -> None:
        if (
            len(self._records) >= _BATCH_RECORDS
            or self._bytes >= _BATCH_BYTES
            or (horizon and self._horizon not in (0, horizon))
        ):
            self._flush()
        self._records.append(record)
        self._bytes += len(record[0] or b"") + len(record[1] or b"")
        self._horizon = horizon or self._horizon

    def _flush(self) -> None:
        if not self._records:
            return
        new: list[NewRecord] = [record[:4] for record in self._records]
        offsets = [record[4] for record in self._records]
        base, last = offsets[0], offsets[-1]
        gaps = offsets if last - base + 1 != len(offsets) else None
        body = encode_body(new, self._chain.config.compression, gaps)
        data = frame(body, base, last, horizon=self._horizon)
        self._chain.files.write(self._fd, data, self.position)
        self._index.add(base, self.position, self._max_timestamp)
        self.position += len(data)
        highest = self._max_timestamp
        self._max_timestamp = body.max_timestamp if highest is None else max(highest, body.max_timestamp)
        # One in the past is that of a tombstone which stays for being the last record.
        if self._horizon > self._now:
            self._horizons.add(self._horizon)
        self._records, self._bytes, self._horizon = [], 0, 0
