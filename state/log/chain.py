"""The chain of a partition's segments as all processes share it: the append lock, the manifest, the tail. It owns who
may change what and what counts as damage; what is appended and read is the partition's, what is taken out is
compaction's.

Who may do what
- Appending, closing the active segment, replacing the manifest and cutting off an incomplete batch: only the holder
  of the append lock, a file lock that the kernel releases when its process dies. He looks first for what others did.
- Reading: everyone, without a lock. A reader takes the manifest, and from the files that it names whole batches only;
  a file that is gone was replaced, so the manifest is taken again. Closed segments never change.
- The manifest's version stands also in the first 8 bytes of the lock file, which all processes map. It is set before
  the manifest is replaced: whoever sees his own version there has the newest manifest. Behind it stands how far the
  active segment was synced, set after each sync and when another segment becomes the active one.

What can be broken
- An incomplete batch at the active segment's end, or only zeros there: a writer was killed, or the power failed.
  Readers stop before it, the next append cuts it off. It was acknowledged to nobody: it lies behind what was synced.
- Damage anywhere else, a closed segment that is too short or gone, an active one that is shorter than it was synced:
  CorruptLog, which names topic-partition@offset, file and position. What comes before is served.
- A manifest that is missing, or older than the segments beside it: CorruptLog.
- A full disk, a read-only directory: StorageError; what a failed append had written is cut off.
- A sync that fails: StorageError, and nothing more through this object, since the kernel may have dropped what it
  could not write, and would not say so again."""

import errno
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock

import msgspec

from headwater.errors import StreamsError
from headwater.state.log.batch import BadBatch, Batch, Record, decode
from headwater.state.log.errors import CorruptLog, StorageError, UnknownTopic, storage_error, storing
from headwater.state.log.files import Files
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
from headwater.state.log.segment import SEGMENT_FILE, Segment, Tail, load_index, scan
from headwater.state.log.topics import TopicInfo, load_topic

__all__ = ["Chain", "Gone"]

_log = logging.getLogger("headwater.log")
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)


class Gone(Exception):
    """A segment's file was replaced after its name had been read: take the manifest again."""


class Chain:
    """One opening of a partition's files."""

    def __init__(self, files: Files, directory: Path, name: str) -> None:
        self.files, self.directory, self.name = files, directory, name
        self.mutex = RLock()
        self.manifest: Manifest
        self.config: TopicInfo
        self.tail: Tail
        self.active_fd = -1
        self.lock_fd = -1
        self.appendable = True
        # Whether the active segment has yet to be compared with how far it was synced.
        self.unseen = True
        self._failed: str | None = None
        self._read_only: OSError | None = None
        self._durable = (-1, 0)
        self._reading = (-1, -1)
        self._indexes: dict[int, Index] = {}
        self._topic_id: str | None = None
        self._seen = b""
        try:
            self.lock_fd = files.open(directory / LOCK_NAME, write=True)
        except FileNotFoundError:
            raise self._unknown(LOCK_NAME) from None
        except OSError as error:
            if error.errno not in _READ_ONLY:
                raise storage_error(f"open {name}", directory, error) from error
            self._read_only, self.appendable = error, False
            self.lock_fd = files.open(directory / LOCK_NAME)
        try:
            self._counter = files.share(self.lock_fd, self._lock_bytes(), write=self._read_only is None)
        except BaseException:
            files.close(self.lock_fd)
            raise
        try:
            self._reload()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of files and locks."""
        with self.mutex:
            # It has a descriptor of its own, which would keep a lock.
            self._counter.close()
            for fd in (self.lock_fd, self.active_fd, self._reading[1]):
                if fd >= 0:
                    self.files.close(fd)
            self.lock_fd = self.active_fd = -1
            self._reading = (-1, -1)
            self.appendable = False

    def _lock_bytes(self) -> int:
        """Return how many bytes of the lock file there are to share, after adding what an older version left out.

        Nothing in it is worth more than a look at the other files: a counter that is wrong is set right by the next
        append, a mark that is missing is set by the next sync.
        """
        size = self.files.size(self.lock_fd)
        if size >= LOCK_BYTES:
            return LOCK_BYTES
        if self._read_only is None:
            if size < COUNTER_BYTES:
                _log.warning("%s: %s was too short, and is mended", self.name, self.directory / LOCK_NAME)
            self.files.truncate(self.lock_fd, LOCK_BYTES)
            return LOCK_BYTES
        if size < COUNTER_BYTES:
            raise CorruptLog(f"{self.directory / LOCK_NAME} is too short, and cannot be mended here: it is read-only.")
        return COUNTER_BYTES

    # What others did

    def fresh(self) -> Manifest:
        """Return the newest manifest."""
        if self.lock_fd < 0:
            raise StreamsError(f"{self.name} is closed: nothing can be read from or appended to it.")
        if self._counter[:COUNTER_BYTES] != self._seen:
            self._reload()
        return self.manifest

    def _reload(self) -> None:
        """Take the manifest and the topic's settings from the disk, and open the segment that is active now."""
        doubted = -1
        while True:
            try:
                manifest = load_manifest(self.files, self.directory)
            except FileNotFoundError:
                raise self._unknown(MANIFEST_NAME) from None
            try:
                config = load_topic(self.files, self.directory.parent)
            except FileNotFoundError:
                raise self._unknown("") from None
            if self._topic_id not in (None, manifest.topic_id):
                raise UnknownTopic(f"The topic of {self.name} was deleted and made again: open it anew.")
            active = manifest.active
            if self.active_fd >= 0 and active.id == self.manifest.active.id:
                break
            fd = -1
            try:
                fd = self.files.open(self.directory / active.name, write=self._read_only is None)
                fault = self._behind(manifest)
            except FileNotFoundError:
                fault = self._missing(active)
            except BaseException:
                if fd >= 0:
                    self.files.close(fd)
                raise
            if fault is not None:
                if fd >= 0:
                    self.files.close(fd)
                # Others may just have replaced it: then the next look finds another one.
                if doubted == manifest.version:
                    raise fault
                doubted = manifest.version
                continue
            if self.active_fd >= 0:
                self.files.close(self.active_fd)
            self.active_fd, self.tail, self.unseen = fd, Tail(active.base, manifest.producers), True
            break
        self.manifest, self.config, self._topic_id = manifest, config, manifest.topic_id
        self._seen = manifest.version.to_bytes(COUNTER_BYTES, "little")
        there = {segment.id for segment in manifest.segments}
        self._indexes = {number: index for number, index in self._indexes.items() if number in there}

    def _behind(self, manifest: Manifest) -> CorruptLog | None:
        """Return the fault of a manifest that is older than the files beside it."""
        active, mark = manifest.active, load_mark(self._counter)
        later = [name for name in self.files.names(self.directory) if self._is_later(name, manifest)]
        if later or (mark is not None and mark.segment > active.id):
            what = f"{self.directory / later[-1]} is not in it" if later else "another segment was active since"
            return CorruptLog(
                f"{self.name}: {self.directory / MANIFEST_NAME} is older than the segments beside it: {what}. "
                f"{self._remedy()}"
            )
        return None

    def _is_later(self, name: str, manifest: Manifest) -> bool:
        """Say whether a file is of a segment that was active after those the manifest names, with records in it.

        One without is left by a process that was killed before it published the segment.
        """
        found = SEGMENT_FILE.fullmatch(name)
        return (
            found is not None
            and int(found[2]) >= manifest.next_id
            and int(found[1]) > manifest.active.base
            and self._size_of(name) > 0
        )

    def _size_of(self, name: str) -> int:
        try:
            fd = self.files.open(self.directory / name)
        except FileNotFoundError:
            return 0
        try:
            return self.files.size(fd)
        finally:
            self.files.close(fd)

    def _check_cut(self, tail: Tail) -> None:
        """Raise CorruptLog if the active segment ends before what was synced: no killed writer leaves that."""
        mark = load_mark(self._counter)
        if mark is not None and mark.segment == self.manifest.active.id and tail.position < mark.position:
            # Others may have appended and synced since the file was looked at.
            with suppress(BadBatch):
                tail.follow(self.files, self.active_fd, self.files.size(self.active_fd))
            if tail.position < mark.position:
                file = self.directory / self.manifest.active.name
                raise CorruptLog(
                    f"{self.name}@{tail.end} is lost, and all up to {mark.end}: {file} is sound up to byte "
                    f"{tail.position:,}, and {mark.position:,} were on the disk. {self._remedy()}"
                )
        self.unseen = False

    def is_whole(self, position: int) -> bool:
        """Say whether an active segment whose batches are sound up to here has all that was synced."""
        mark = load_mark(self._counter)
        if mark is None or mark.segment != self.manifest.active.id or position >= mark.position:
            self.unseen = False
        return not self.unseen

    def retake(self, segment: Segment) -> None:
        """Take a newer manifest, since this segment's file is gone; if it is named there too, the file was lost."""
        self._reload()
        if segment in self.manifest.segments and segment.name not in self.files.names(self.directory):
            version = self.manifest.version
            self._reload()
            if self.manifest.version == version:
                raise self._missing(segment)

    def follow(self) -> Tail:
        """Return the tail, moved over the whole batches that are in the active segment now."""
        self.fresh()
        tail = self.tail
        size = self.files.size(self.active_fd)
        if size != tail.position or self.unseen:
            try:
                tail.follow(self.files, self.active_fd, size)
            except BadBatch:
                self._confirm(tail.position, tail.end)
            if self.unseen or self.tail.position < size:
                self._check_cut(self.tail)
        return self.tail

    def _confirm(self, position: int, due: int | None) -> None:
        """Raise CorruptLog if the active segment is damaged here, and not only being repaired at this moment."""
        segment = self.manifest.active
        with self.locked() as manifest:
            if manifest.active.id != segment.id:
                return
            size = self.files.size(self.active_fd)
            try:
                found = next(scan(self.files, self.active_fd, position, size), None)
                if found and due is not None and found[1].base != due:
                    raise BadBatch(f"a batch of the offset {found[1].base} lies where {due} is due")
            except BadBatch as error:
                if not self._only_zeros(position, size):
                    offset = segment.base if due is None else due
                    raise self.corrupt(segment, position, offset, str(error)) from error

    def _only_zeros(self, position: int, size: int) -> bool:
        while position < size:
            data = self.files.read(self.active_fd, min(1 << 20, size - position), position)
            if data.count(0) != len(data) or not data:
                return False
            position += len(data)
        return True

    # Faults

    def _unknown(self, name: str) -> StreamsError:
        """Return the error for a file that is not there: with the whole partition, or alone."""
        if name and self.directory.is_dir():
            return CorruptLog(f"{self.name} is damaged: there is no file {self.directory / name}. {self._remedy()}")
        return UnknownTopic(
            f"There is no partition {self.name} in {self.directory.parent}: create the topic, or correct the name."
        )

    def _remedy(self) -> str:
        return (
            f"Restore the file from a copy, or give up what is lost: headwater log repair {self.directory.parent.name} "
            "shows what that is."
        )

    def _missing(self, segment: Segment) -> CorruptLog:
        return CorruptLog(
            f"{self.name}@{segment.base} is lost: there is no file {self.directory / segment.name}. {self._remedy()}"
        )

    def corrupt(self, segment: Segment, position: int, offset: int, reason: str) -> CorruptLog:
        return CorruptLog(
            f"{self.name}@{offset} is damaged: {reason}, at byte {position:,} of {self.directory / segment.name}. "
            f"{self._remedy()}"
        )

    def check_appendable(self, what: str) -> None:
        """Raise if nothing can be changed through this object, and say why."""
        if self._failed:
            raise StorageError(self._failed)
        if self._read_only:
            raise storage_error(what, self.directory, self._read_only)
        self.fresh()

    # Changing

    @contextmanager
    def changing(self, what: str) -> Iterator[Manifest]:
        """Hold the append lock, at the partition's end, with the newest manifest at hand."""
        with self.mutex, storing(what, self.directory):
            self.check_appendable(what)
            with self.locked():
                self.catch_up()
                yield self.manifest

    @contextmanager
    def locked(self) -> Iterator[Manifest]:
        """Hold the append lock with the newest manifest at hand, without changing anything. Not within itself."""
        with self.mutex:
            self.fresh()
            try:
                self.files.lock(self.lock_fd)
                yield self.fresh()
            finally:
                self.files.unlock(self.lock_fd)

    def catch_up(self) -> Tail:
        """Return the tail behind what others appended, and cut off what one of them left incomplete.

        Only under the append lock.
        """
        if self._counter[:COUNTER_BYTES] != self._seen:
            self._reload()
            # Unless it is the same: whoever was about to replace the manifest died before it was there.
            self._counter[:COUNTER_BYTES] = self._seen
        tail, fd = self.tail, self.active_fd
        size = self.files.size(fd)
        if size != tail.position or self.unseen:
            self._go_on(tail, fd, size)
        return tail

    def _go_on(self, tail: Tail, fd: int, size: int) -> None:
        segment = self.manifest.active
        if size < tail.position:
            raise self.corrupt(segment, size, tail.end, "the file has become shorter")
        try:
            tail.follow(self.files, fd, size)
        except BadBatch as error:
            if not self._only_zeros(tail.position, size):
                raise self.corrupt(segment, tail.position, tail.end, str(error)) from error
        if self.unseen or tail.position < size:
            self._check_cut(tail)
        if tail.position < size:
            _log.warning("%s: cut off %d bytes of an incomplete batch at its end", self.name, size - tail.position)
            self.files.truncate(fd, tail.position)

    def roll(self) -> Manifest:
        """Close the active segment, durably, and begin another; only under the append lock and after catching up."""
        manifest, tail = self.manifest, self.tail
        self.sync_file(self.active_fd)
        old = msgspec.structs.replace(
            manifest.active, end=tail.end, size=tail.position, max_timestamp=tail.max_timestamp
        )
        self.write_index(old, tail.index)
        new = Segment(manifest.next_id, tail.end)
        self.files.close(self.files.create(self.directory / new.name))
        segments = (*manifest.closed, old, new)
        self.publish(
            msgspec.structs.replace(
                manifest, next_id=new.id + 1, segments=segments, producers=tail.producers, gap=None
            )
        )
        self.mark(Mark(new.id, 0, new.base))
        return self.manifest

    def mark(self, mark: Mark) -> None:
        """Note how far the active segment is on the disk, for whoever looks whether it still is."""
        if self._read_only is None:
            store_mark(self._counter, mark)

    def write_index(self, segment: Segment, index: Index) -> None:
        """Write a closed segment's index; it is not synced, since a bad one is only made anew."""
        fd = self.files.create(self.directory / segment.index_name)
        try:
            self.files.write(fd, index.encode(segment.id, segment.size), 0)
        finally:
            self.files.close(fd)

    def publish(self, manifest: Manifest) -> None:
        """Replace the manifest, durably; only under the append lock."""
        # The files it names must be in the directory before it is: else a power loss leaves names without files.
        self.files.sync_directory(self.directory)
        version = self._count_up()
        store_manifest(self.files, self.directory, msgspec.structs.replace(manifest, version=version))
        self._reload()

    def _count_up(self) -> int:
        version = max(self.manifest.version, int.from_bytes(self._counter[:COUNTER_BYTES], "little")) + 1
        self._counter[:COUNTER_BYTES] = version.to_bytes(COUNTER_BYTES, "little")
        return version

    def retire(self) -> None:
        """Keep the append lock until closed, and make everyone look whether the partition is still there."""
        self.files.lock(self.lock_fd)
        self.fresh()
        self._count_up()

    def sync(self) -> int:
        """Return the end up to which everything is on the disk, whoever appended it, after writing it there.

        With damage, that is where it begins.
        """
        with self.mutex:
            if self._failed:
                raise StorageError(self._failed)
            try:
                tail = self.follow()
            except CorruptLog:
                # What is sound can be made durable all the same; whoever reads or appends is told.
                self.sync_file(self.active_fd)
                return self.tail.end
            here = (self.manifest.active.id, tail.position)
            if here != self._durable:
                # Closed segments are on the disk: closing one syncs it.
                self.sync_file(self.active_fd)
                self._durable = here
                self.mark(Mark(*here, tail.end))
            return tail.end

    def sync_file(self, fd: int) -> None:
        try:
            self.files.sync(fd)
        except OSError as error:
            failure = storage_error(f"sync {self.name}", self.directory, error)
            self.appendable = False
            self._failed = f"{failure} What was appended since the last sync may be lost: open the log again."
            raise failure from error

    # Walking

    def open(self, segment: Segment) -> int:
        """Return the descriptor by which the segment is read, until another closed one is opened."""
        if segment.id == self.manifest.active.id:
            return self.active_fd
        number, fd = self._reading
        if number != segment.id:
            opened = self.open_own(segment)
            if fd >= 0:
                self.files.close(fd)
            fd, self._reading = opened, (segment.id, opened)
        return fd

    def open_own(self, segment: Segment) -> int:
        """Return a descriptor that the caller closes; Gone if the segment was replaced."""
        try:
            return self.files.open(self.directory / segment.name)
        except FileNotFoundError:
            raise Gone(segment) from None

    def index(self, segment: Segment, fd: int) -> Index:
        """Return the segment's index; of the active one as far as it was followed."""
        if segment.end is None:
            return self.tail.index
        index = self._indexes.get(segment.id)
        if index is None:
            try:
                index = load_index(self.files, self.directory, segment, fd)
            except BadBatch:
                # The walk from the beginning will say where.
                return Index()
            self._indexes[segment.id] = index
        return index

    def walk(self, segment: Segment, fd: int, position: int, due: int | None = None) -> Iterator[tuple[int, Batch]]:
        """Yield the segment's whole batches from the position on; CorruptLog at damage.

        `due` is the lowest offset that the first batch may have, if that is known.
        """
        active = segment.end is None
        limit = self.files.size(fd) if active else segment.size
        if position == 0:
            due = segment.base
        try:
            for at, batch in scan(self.files, fd, position, limit):
                if due is not None and (batch.base != due if active else batch.base < due):
                    raise BadBatch(f"a batch of the offsets {batch.base} to {batch.last} lies where {due} is due")
                if segment.end is not None and batch.last >= segment.end:
                    raise BadBatch(f"a batch of the offsets {batch.base} to {batch.last} lies before {segment.end}")
                due, position = batch.last + 1, at + batch.size
                yield at, batch
        except BadBatch as error:
            if not active:
                raise self.corrupt(segment, position, segment.base if due is None else due, str(error)) from error
            self._confirm(position, due)
        if not active and position != limit:
            raise self.corrupt(segment, position, segment.base if due is None else due, "the file is too short")

    def decode(self, segment: Segment, position: int, batch: Batch) -> list[Record]:
        """Return the batch's records; CorruptLog if there are none in it."""
        try:
            return decode(batch)
        except BadBatch as error:
            raise self.corrupt(segment, position, batch.base, str(error)) from error
