"""A damaged topic made whole again: what is sound is kept, what is not is given up, and that is shown first. It owns
what counts as lost and the files that take the place of damaged ones; what damage is, is said by the chain's reading.

- Sound batches keep their offsets. Where some between them are lost there is a gap, as compaction leaves them.
- An offset that may have been given out is never given out again: the partition's next one lies behind all that anybody
  knows of, its batches, how far it was synced, and the groups' committed offsets.
- A damaged file is kept beside the one that takes its place, under its name and `.damaged`.
- The manifest gets a new `repaired`: a task whose results were among what was lost goes on from what is there.

It holds the append lock while it looks and while it changes anything; readers take the new manifest as after a
compaction.
"""

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from headwater.state.log.batch import HEADER_BYTES, BadBatch, Batch, decode, parse, sequences
from headwater.state.log.errors import CorruptLog, UnknownTopic, storing
from headwater.state.log.files import Files, replace_contents
from headwater.state.log.index import Index
from headwater.state.log.manifest import (
    COUNTER_BYTES,
    LOCK_BYTES,
    LOCK_NAME,
    MANIFEST_NAME,
    Manifest,
    Mark,
    load_manifest,
    load_mark,
    store_manifest,
    store_mark,
)
from headwater.state.log.segment import SEGMENT_FILE, Segment
from headwater.state.log.topics import TOPIC_NAME, TopicInfo, load_topic, store_topic

__all__ = ["Loss", "PartitionRepair", "TopicRepair", "repair_topic"]

_MAGIC = b"HWLB"


class Loss(msgspec.Struct, frozen=True):
    """A run of bytes that holds no sound batch, and the offsets that are lost with it."""

    file: str
    position: int
    size: int
    """How many bytes; 0 if they are not there at all."""
    first: int
    end: int
    """One more than the last offset that is lost, as far as that is known."""


class PartitionRepair(msgspec.Struct, frozen=True):
    """What is wrong with a partition, and what making it whole gives up."""

    number: int
    losses: tuple[Loss, ...]
    mends: tuple[str, ...]
    """What is made anew without a loss."""
    end: int
    """The offset of the next record afterwards."""

    @property
    def lost_offsets(self) -> int:
        """How many offsets are lost."""
        return sum(loss.end - loss.first for loss in self.losses)


class TopicRepair(msgspec.Struct, frozen=True):
    """What is wrong with a topic: its own file, and its partitions."""

    topic: str
    mends: tuple[str, ...]
    partitions: tuple[PartitionRepair, ...]

    @property
    def sound(self) -> bool:
        """Whether there is nothing to do."""
        return not self.mends and not any(one.losses or one.mends for one in self.partitions)


class _Found(msgspec.Struct):
    """A segment as its file is."""

    base: int
    id: int
    known: Segment | None
    """What the manifest says of it, if it is closed there."""
    batches: list[tuple[int, Batch]]
    losses: list[Loss]
    size: int
    end: int

    @property
    def name(self) -> str:
        return Segment(self.id, self.base).name


def repair_topic(
    files: Files, directory: Path, committed: dict[int, int], numbers: Iterable[int] | None, *, execute: bool
) -> TopicRepair:
    """Look at a topic's files and return what is wrong; with `execute`, make it whole.

    `committed` is the highest offset that a group has committed, by partition.
    """
    there = sorted(int(name) for name in files.names(directory) if name.isdigit() and (directory / name).is_dir())
    with storing(f"repair the topic {directory.name!r}", directory):
        info, mends = _topic(files, directory, there)
        wanted = range(info.partitions) if numbers is None else numbers
        if unknown := [number for number in wanted if number not in there]:
            raise UnknownTopic(
                f"There is no directory of {', '.join(f'{directory.name}-{number}' for number in unknown)} in "
                f"{directory}: restore it from a copy."
            )
        if mends and execute:
            _put_aside(files, directory / TOPIC_NAME)
            store_topic(files, directory, info)
        partitions = tuple(
            _repair_partition(files, directory / str(number), number, info.id, committed.get(number, 0), execute)
            for number in wanted
        )
        return TopicRepair(directory.name, mends, partitions)


def _topic(files: Files, directory: Path, numbers: list[int]) -> tuple[TopicInfo, tuple[str, ...]]:
    try:
        return load_topic(files, directory), ()
    except (CorruptLog, FileNotFoundError):
        pass
    found = uuid.uuid4().hex
    for number in numbers:
        try:
            found = load_manifest(files, directory / str(number)).topic_id
            break
        except (CorruptLog, FileNotFoundError):
            continue
    if not numbers:
        raise UnknownTopic(f"There is nothing of a topic in {directory}.")
    info = TopicInfo(directory.name, found, numbers[-1] + 1)
    return info, (
        f"the file {TOPIC_NAME} is made anew, with {info.partitions} partition(s) and the default settings: set others "
        f"with headwater topics alter {directory.name}",
    )


@contextmanager
def _locked(files: Files, directory: Path, execute: bool) -> Iterator[tuple[int, bool]]:
    """Hold the append lock, made if it is not there and something is to be done; -1 without one. And whether it was
    there as it should be."""
    path = directory / LOCK_NAME
    there = LOCK_NAME in files.names(directory)
    if not execute and not there:
        yield -1, False
        return
    fd = files.create(path, empty=False) if execute else files.open(path)
    try:
        files.lock(fd)
        whole = there and files.size(fd) >= COUNTER_BYTES
        if execute and files.size(fd) < LOCK_BYTES:
            files.truncate(fd, LOCK_BYTES)
        yield fd, whole
    finally:
        files.close(fd)


def _repair_partition(
    files: Files, directory: Path, number: int, topic_id: str, committed: int, execute: bool
) -> PartitionRepair:
    with _locked(files, directory, execute) as (lock, whole):
        mends = []
        counter, mark = 0, None
        if not whole:
            mends.append(f"the file {LOCK_NAME} is made anew")
        elif files.size(lock) >= LOCK_BYTES:
            with files.share(lock, LOCK_BYTES, write=False) as shared:
                counter, mark = int.from_bytes(shared[:COUNTER_BYTES], "little"), load_mark(shared)
        try:
            manifest = load_manifest(files, directory)
        except (CorruptLog, FileNotFoundError):
            manifest = None
            mends.append(f"the file {MANIFEST_NAME} is made anew from the segments")
        segments = _segments(files, directory, manifest)
        if manifest is not None and any(number >= manifest.next_id for _, number, _ in segments):
            mends.append(f"the file {MANIFEST_NAME} takes in later segments")
        due = segments[0][0] if manifest is None and segments else manifest.segments[0].base if manifest else 0
        found = []
        for place, segment in enumerate(segments):
            last = place == len(segments) - 1
            found.append(_look(files, directory, segment, due, None if last else segments[place + 1][0], mark))
            due = found[-1].end
        losses = [loss for one in found for loss in one.losses]
        end = max(due, committed, mark.end if mark else 0)
        if end > due:
            file = found[-1].name if found else MANIFEST_NAME
            if losses and losses[-1].file == file and losses[-1].end == due and not _ends_sound(found[-1]):
                losses[-1] = msgspec.structs.replace(losses[-1], end=end)
            else:
                losses.append(Loss(file, found[-1].size if found else 0, 0, due, end))
        elif found and not _ends_sound(found[-1]) and found[-1].losses:
            # Nobody knows how many offsets these bytes were: more than there can have been are passed over.
            end = due + found[-1].losses[-1].size
        repair = PartitionRepair(number, tuple(losses), tuple(mends), end)
        if execute and (losses or mends):
            _rewrite(files, directory, lock, topic_id, manifest, found, end, max(counter, 0))
        return repair


def _segments(files: Files, directory: Path, manifest: Manifest | None) -> list[tuple[int, int, Segment | None]]:
    """The segments there should be, as (base, id, what the manifest says of a closed one), in order."""
    there = {
        (int(match[1]), int(match[2]))
        for name in files.names(directory)
        if (match := SEGMENT_FILE.fullmatch(name)) is not None
    }
    if manifest is None:
        newest: dict[int, int] = {}
        for base, number in sorted(there):
            newest[base] = max(number, newest.get(base, number))
        return [(base, number, None) for base, number in sorted(newest.items())]
    active = manifest.active
    later = sorted(
        (base, number)
        for base, number in there
        if number >= manifest.next_id and base > active.base and _size(files, directory, Segment(number, base)) > 0
    )
    return [
        *((segment.base, segment.id, segment) for segment in manifest.closed),
        (active.base, active.id, None),
        *((base, number, None) for base, number in later),
    ]


def _size(files: Files, directory: Path, segment: Segment) -> int:
    fd = files.open(directory / segment.name)
    try:
        return files.size(fd)
    finally:
        files.close(fd)


def _look(
    files: Files,
    directory: Path,
    segment: tuple[int, int, Segment | None],
    due: int,
    next_base: int | None,
    mark: Mark | None,
) -> _Found:
    """Read a segment's sound batches, whatever lies between them."""
    base, number, known = segment
    limit = known.end if known and known.end is not None else next_base
    one = _Found(base, number, known, [], [], 0, max(due, base))
    try:
        fd = files.open(directory / one.name)
    except FileNotFoundError:
        one.end = max(one.end, limit or 0)
        one.losses.append(Loss(one.name, 0, 0, max(due, base), one.end))
        return one
    try:
        data = files.read(fd, files.size(fd), 0)
    finally:
        files.close(fd)
    one.size = len(data)
    view, at = memoryview(data), 0
    while at < len(data):
        batch = _batch_at(view, at, one.end, limit)
        if batch is None:
            following = _next_batch(data, view, at + 1, one.end, limit)
            if following is None and _unfinished(data, at, one, limit, mark):
                break
            to, resumes = (len(data), limit or one.end) if following is None else (following[0], following[1].base)
            one.losses.append(Loss(one.name, at, to - at, one.end, max(one.end, resumes)))
            at, one.end = to, max(one.end, resumes)
        else:
            one.batches.append((at, batch))
            at, one.end = at + batch.size, batch.last + 1
    if limit is not None:
        # Of a closed one it is known how long it was; of another, that nothing was left out before the next begins.
        if one.end < limit and (known is None or len(data) < known.size):
            one.losses.append(Loss(one.name, len(data), 0, one.end, limit))
        one.end = max(one.end, limit)
    return one


def _unfinished(data: bytes, at: int, one: _Found, limit: int | None, mark: Mark | None) -> bool:
    """Whether this is what a killed writer leaves at the end: bytes that were not synced, of a batch or of nothing."""
    if limit is not None or (mark is not None and mark.segment == one.id and at < mark.position):
        return False
    if data.count(0, at) == len(data) - at:
        return True
    try:
        return isinstance(parse(memoryview(data), at), int)
    except BadBatch:
        return False


def _batch_at(view: memoryview, at: int, due: int, limit: int | None) -> Batch | None:
    """The sound batch that begins here, None if there is none."""
    try:
        batch = parse(view, at)
        if isinstance(batch, int) or batch.base < due or (limit is not None and batch.last >= limit):
            return None
        decode(batch)
    except BadBatch:
        return None
    return batch


def _next_batch(data: bytes, view: memoryview, at: int, due: int, limit: int | None) -> tuple[int, Batch] | None:
    while (at := data.find(_MAGIC, at, None)) >= 0 and at + HEADER_BYTES <= len(data):
        batch = _batch_at(view, at, due, limit)
        if batch is not None:
            return at, batch
        at += 1
    return None


def _ends_sound(one: _Found) -> bool:
    """Whether nothing is lost behind the last sound batch."""
    last = one.batches[-1][0] + one.batches[-1][1].size if one.batches else 0
    return all(loss.position < last for loss in one.losses)


def _rewrite(
    files: Files,
    directory: Path,
    lock: int,
    topic_id: str,
    manifest: Manifest | None,
    found: list[_Found],
    end: int,
    counter: int,
) -> None:
    """Write what takes the place of damaged files, publish it, and put them aside."""
    ids = [one.id + 1 for one in found]
    next_id = max([*ids, manifest.next_id if manifest else 0])
    producers = dict(manifest.producers) if manifest else {}
    segments: list[Segment] = []
    damaged: list[str] = []
    for place, one in enumerate(found):
        last = place == len(found) - 1
        if last and not one.losses and one.end == end:
            # Sound: it stays the active one. What it holds is not counted here.
            segments.append(Segment(one.id, one.base))
            break
        if manifest is None or one.known is None:
            for _, batch in one.batches:
                producers |= sequences(batch.producer, batch.sequence)
        closes = end if last else found[place + 1].base
        if one.losses:
            damaged.append(one.name)
        if one.known is not None and not one.losses:
            segments.append(one.known)
        elif one.batches:
            segments.append(_closed(files, directory, one, next_id if one.losses else one.id, closes))
            next_id += 1
    if not segments or segments[-1].end is not None:
        active = Segment(next_id, end)
        files.close(files.create(directory / active.name))
        segments.append(active)
        next_id += 1
    records_end = max((one.batches[-1][1].last + 1 for one in found if one.batches), default=0)
    fd = files.open(directory / segments[-1].name, write=True)
    try:
        files.sync(fd)
    finally:
        files.close(fd)
    files.sync_directory(directory)
    version = max(manifest.version if manifest else 0, counter) + 1
    new = Manifest(
        version=version,
        topic_id=manifest.topic_id if manifest else topic_id,
        start=manifest.start if manifest else segments[0].base,
        cleaned=manifest.cleaned if manifest else 0,
        next_id=next_id,
        segments=tuple(segments),
        producers=producers,
        repaired=uuid.uuid4().hex,
        gap=records_end if segments[-1].base > records_end else None,
    )
    _put_aside(files, directory / MANIFEST_NAME)
    with files.share(lock, LOCK_BYTES, write=True) as shared:
        shared[:COUNTER_BYTES] = version.to_bytes(COUNTER_BYTES, "little")
        store_manifest(files, directory, new)
        store_mark(shared, Mark(segments[-1].id, 0, segments[-1].base))
    for name in damaged:
        if name in files.names(directory):
            files.replace(directory / name, directory / f"{name}.damaged")


def _closed(files: Files, directory: Path, one: _Found, number: int, end: int) -> Segment:
    """A closed segment of the sound batches: its own file if nothing lies between them, else another."""
    index, highest, position = Index(), None, 0
    pieces = []
    for at, batch in one.batches:
        index.add(batch.base, position, highest)
        highest = batch.max_timestamp if highest is None else max(highest, batch.max_timestamp)
        pieces.append((at, batch.size))
        position += batch.size
    horizon = min((batch.horizon for _, batch in one.batches if batch.horizon), default=0)
    segment = Segment(number, one.base, end, position, highest, horizon)
    fd = files.open(directory / one.name, write=True)
    try:
        if number == one.id:
            files.truncate(fd, position)
            files.sync(fd)
        else:
            data = b"".join(files.read(fd, size, at) for at, size in pieces)
            new = files.create(directory / segment.name)
            try:
                files.write(new, data, 0)
                files.sync(new)
            finally:
                files.close(new)
    finally:
        files.close(fd)
    into = files.create(directory / segment.index_name)
    try:
        files.write(into, index.encode(segment.id, segment.size), 0)
    finally:
        files.close(into)
    return segment


def _put_aside(files: Files, path: Path) -> None:
    """Keep what a file says beside it, if there is one."""
    if path.name in files.names(path.parent):
        fd = files.open(path)
        try:
            data = files.read(fd, files.size(fd), 0)
        finally:
            files.close(fd)
        replace_contents(files, path.with_name(f"{path.name}.damaged"), data)
