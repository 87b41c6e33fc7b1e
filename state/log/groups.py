"""Consumer groups: how far each has read, who is in it and who owns what. It owns those files and locks; which member
should own what is the members' own computation, the same in each.

| path in the group's directory | what |
|---|---|
| `offsets` | the committed offsets of all partitions, replaced as a whole |
| `lock` | held while offsets are changed and while a member comes or goes |
| `members/<name>.member` | locked by the member as long as it lives; its content is the member's note |
| `units/<unit>.unit` | locked by whoever owns the unit; its content is the owner's name |

Whether a member lives is asked by trying a shared lock, which fails exactly if the member holds its own; two who
ask do not disturb each other. The kernel undoes a lock when its process dies, so that nothing has to time out. A
child that is forked keeps the locks of its parent: workers are spawned.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import msgspec

from headwater.errors import StreamsError
from headwater.state.log import documents
from headwater.state.log.errors import storing
from headwater.state.log.files import Files

if TYPE_CHECKING:
    from headwater.state.log.catalog import Log

__all__ = ["Group", "Member", "Membership", "group_names"]

_SUFFIX, _MEMBER, _UNIT = ".group", ".member", ".unit"
# Someone who asks for the owner holds the lock for an instant.
_TRIES, _PAUSE = 5, 0.001


class _Offsets(msgspec.Struct, frozen=True):
    offsets: dict[str, dict[int, int]]


class Member(msgspec.Struct, frozen=True, order=True):
    """A live member of a group, with what it said of itself when it joined."""

    name: str
    note: str


class Membership:
    """One's own place in a group, until one leaves or dies."""

    def __init__(self, group: "Group", name: str, note: str, fd: int) -> None:
        self.name, self.note = name, note
        self._group, self._fd = group, fd

    def leave(self) -> None:
        """Leave the group; a second time does nothing."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self._group._leave(self.name, fd)


def group_names(files: Files, directory: Path) -> list[str]:
    """Return the names of all groups that have ever committed or had a member."""
    return sorted(unquote(name.removesuffix(_SUFFIX)) for name in files.names(directory) if name.endswith(_SUFFIX))


class Group:
    """A group's committed offsets, members and owned units.

    >>> from tempfile import TemporaryDirectory
    >>> from headwater.state.log import Group, Log
    >>> with TemporaryDirectory() as folder, Log.open(folder) as log:
    ...     group = Group(log, "billing")
    ...     me = group.join("worker-1")
    ...     print([member.name for member in group.members()], group.acquire("task 0_1"))
    ...     group.commit({("orders", 0): 42})
    ...     print(group.committed())
    ...     group.close()
    ['worker-1'] True
    {('orders', 0): 42}
    """

    def __init__(self, log: "Log", name: str) -> None:
        if not name:
            raise StreamsError("A group needs a name.")
        self.name = name
        self._files = log.files
        self._directory = log.groups_directory / (quote(name, safe="") + _SUFFIX)
        self._membership: Membership | None = None
        self._units: dict[str, int] = {}

    def close(self) -> None:
        """Release what is owned and leave."""
        for unit in list(self._units):
            self.release(unit)
        if self._membership:
            self._membership.leave()

    @contextmanager
    def _changing(self, what: str) -> Iterator[None]:
        """Be the only one who changes offsets, comes or goes."""
        files = self._files
        with storing(what, self._directory):
            fd = self._lock_group()
            try:
                yield
            finally:
                files.close(fd)

    def _lock_group(self) -> int:
        files, path = self._files, self._directory / "lock"
        while True:
            if not self._directory.is_dir():
                files.make_directory(self._directory)
                files.sync_directory(self._directory.parent)
            files.make_directory(self._directory / "members")
            files.make_directory(self._directory / "units")
            try:
                fd = files.create(path, empty=False)
            except FileNotFoundError:
                # The group was deleted between the two.
                continue
            files.lock(fd)
            if files.same(fd, path):
                return fd
            files.close(fd)

    # Offsets

    def committed(self) -> dict[tuple[str, int], int]:
        """Return the offset to read next of each (topic, partition) that was committed."""
        return {
            (topic, partition): offset
            for topic, partitions in self._load().items()
            for partition, offset in partitions.items()
        }

    def commit(self, offsets: Mapping[tuple[str, int], int], *, sync: bool = True) -> None:
        """Remember the offset to read next of each (topic, partition); the others stay as they are.

        With `sync` they are on the disk when this returns; without, a power loss may leave earlier ones.
        """
        if not offsets:
            return
        with self._changing(f"commit offsets of the group {self.name!r}"):
            there = self._load()
            for (topic, partition), offset in offsets.items():
                there.setdefault(topic, {})[partition] = offset
            self._store(there, sync=sync)

    def reset(self, offsets: Mapping[tuple[str, int], int | None]) -> None:
        """Set committed offsets, or forget those that are None; refused while the group has live members."""
        self._without_members("reset")
        with self._changing(f"reset offsets of the group {self.name!r}"):
            there = self._load()
            for (topic, partition), offset in offsets.items():
                if offset is not None:
                    there.setdefault(topic, {})[partition] = offset
                elif topic in there:
                    there[topic].pop(partition, None)
            self._store({topic: partitions for topic, partitions in there.items() if partitions})

    def forget(self, topic: str) -> None:
        """Forget what was committed for a topic that is deleted: one made again under its name begins anew."""
        if topic in self._load():
            with self._changing(f"change offsets of the group {self.name!r}"):
                there = self._load()
                if there.pop(topic, None) is not None:
                    self._store(there)

    def begin_anew(self) -> None:
        """Forget all that was committed, also if the file that said so is damaged."""
        with self._changing(f"change offsets of the group {self.name!r}"):
            self._store({})

    def delete(self) -> None:
        """Delete the group and its committed offsets; refused while it has live members."""
        self._without_members("delete")
        with self._changing(f"delete the group {self.name!r}"):
            for part in (self._directory / "members", self._directory / "units", self._directory):
                for name in self._files.names(part):
                    if (part / name).is_file():
                        self._files.remove(part / name)
                if part != self._directory:
                    self._files.remove_directory(part)
            self._files.remove_directory(self._directory)
            self._files.sync_directory(self._directory.parent)

    def _without_members(self, what: str) -> None:
        if alive := [member.name for member in self.members()]:
            raise StreamsError(
                f"Cannot {what} the group {self.name!r} while it has live members: stop {', '.join(alive)} first."
            )

    def _load(self) -> dict[str, dict[int, int]]:
        try:
            return documents.load(self._files, self._directory / "offsets", "group", _Offsets).offsets
        except FileNotFoundError:
            return {}

    def _store(self, offsets: dict[str, dict[int, int]], *, sync: bool = True) -> None:
        documents.store(self._files, self._directory / "offsets", "group", _Offsets(offsets), sync=sync)

    # Members

    def join(self, name: str, note: str = "") -> Membership:
        """Become a live member under a name that no other live one has."""
        files, place = self._files, self._member(name)
        with self._changing(f"join the group {self.name!r}"):
            for file in files.names(place.parent):
                if self._probe(place.parent / file) is None:
                    files.remove(place.parent / file)
            if self._probe(place) is not None:
                raise StreamsError(f"The group {self.name!r} has a live member {name!r} already: take another name.")
            # Renamed when it is locked and has its note: others see all of it or nothing.
            fresh = place.with_suffix(".new")
            fd = files.create(fresh)
            try:
                files.lock(fd)
                files.write(fd, note.encode(), 0)
                files.replace(fresh, place)
            except BaseException:
                files.close(fd)
                raise
        self._membership = Membership(self, name, note, fd)
        return self._membership

    def _leave(self, name: str, fd: int) -> None:
        try:
            with self._changing(f"leave the group {self.name!r}"):
                self._files.remove(self._member(name))
        finally:
            self._files.close(fd)

    def _member(self, name: str) -> Path:
        return self._directory / "members" / (quote(name, safe="") + _MEMBER)

    def members(self) -> list[Member]:
        """Return the live members, by name."""
        place = self._directory / "members"
        return sorted(
            Member(unquote(name.removesuffix(_MEMBER)), note)
            for name in self._names(place, _MEMBER)
            if (note := self._probe(place / name)) is not None
        )

    def _names(self, place: Path, suffix: str) -> list[str]:
        try:
            return [name for name in self._files.names(place) if name.endswith(suffix)]
        except FileNotFoundError:
            return []

    def _probe(self, path: Path) -> str | None:
        """Return what is written in a file that someone has locked; None if nobody has."""
        files = self._files
        try:
            fd = files.open(path)
        except FileNotFoundError:
            return None
        try:
            if files.try_lock(fd, shared=True):
                return None
            return files.read(fd, files.size(fd), 0).decode(errors="replace")
        finally:
            files.close(fd)

    # Ownership

    def acquire(self, unit: str) -> bool:
        """Own the unit, until it is released or this process dies; False if another owns it."""
        if unit in self._units:
            return True
        files, path = self._files, self._unit(unit)
        with storing(f"acquire {unit!r} for the group {self.name!r}", path.parent):
            files.make_directory(path.parent)
            fd = files.create(path, empty=False)
            try:
                # A file that was deleted with its group meanwhile excludes nobody.
                if not self._lock(fd) or not files.same(fd, path):
                    files.close(fd)
                    return False
                files.truncate(fd, 0)
                files.write(fd, (self._membership.name if self._membership else "").encode(), 0)
            except BaseException:
                files.close(fd)
                raise
        self._units[unit] = fd
        return True

    def _lock(self, fd: int) -> bool:
        for _ in range(_TRIES):
            if self._files.try_lock(fd):
                return True
            time.sleep(_PAUSE)
        return False

    def release(self, unit: str) -> None:
        """Give the unit up; nothing if it is not owned."""
        fd = self._units.pop(unit, None)
        if fd is not None:
            self._files.close(fd)

    def _unit(self, unit: str) -> Path:
        return self._directory / "units" / (quote(unit, safe="") + _UNIT)

    def owners(self) -> dict[str, str]:
        """Return each unit that someone owns, with the owner's name."""
        place = self._directory / "units"
        return {
            unquote(name.removesuffix(_UNIT)): owner
            for name in self._names(place, _UNIT)
            if (owner := self._probe(place / name)) is not None
        }
