"""The file layer: every call by which the log touches the disk, as the methods of one small object. A test gives
another object that loses what was not synced, or fails. It owns no policy: what is synced when, and what a fault
means, is the caller's."""

import fcntl
import os
import sys
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, LOCK_UN, flock
from mmap import ACCESS_READ, ACCESS_WRITE, mmap
from os import SEEK_END, lseek, pwrite
from pathlib import Path

__all__ = ["REAL_FILES", "Files", "replace_contents"]


class Files:
    """The operating system's files, by descriptors and paths; all of a read or a write, or an OSError."""

    def open(self, path: Path, *, write: bool = False) -> int:
        """Return a descriptor of a file that is there."""
        return os.open(path, os.O_RDWR if write else os.O_RDONLY)

    def create(self, path: Path, *, empty: bool = True) -> int:
        """Return a descriptor for reading and writing of a file that is made if need be and emptied if so asked."""
        return os.open(path, os.O_RDWR | os.O_CREAT | (os.O_TRUNC if empty else 0), 0o644)

    def close(self, fd: int) -> None:
        os.close(fd)

    def read(self, fd: int, size: int, position: int) -> bytes:
        """Return the bytes at the position: fewer than asked for only at the end of the file."""
        data = os.pread(fd, size, position)
        while 0 < len(data) < size:
            more = os.pread(fd, size - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def write(self, fd: int, data: bytes, position: int) -> None:
        """Write all of the data at the position; after an OSError a part of it may be there."""
        written = pwrite(fd, data, position)
        while written < len(data):
            written += pwrite(fd, memoryview(data)[written:], position + written)

    def size(self, fd: int) -> int:
        return lseek(fd, 0, SEEK_END)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def sync(self, fd: int) -> None:
        """Return when the file's contents are on the disk."""
        if sys.platform == "darwin":
            # fsync leaves the data in the drive's cache there.
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        else:
            os.fdatasync(fd)

    def sync_directory(self, path: Path) -> None:
        """Return when the directory's entries are on the disk: names made, replaced and removed."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def replace(self, source: Path, target: Path) -> None:
        os.replace(source, target)

    def remove(self, path: Path) -> None:
        """Remove a file, or nothing if there is none."""
        path.unlink(missing_ok=True)

    def make_directory(self, path: Path) -> None:
        """Make a directory and its parents, unless they are there."""
        path.mkdir(parents=True, exist_ok=True)

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""
        path.rmdir()

    def names(self, path: Path) -> list[str]:
        return sorted(os.listdir(path))

    def lock(self, fd: int) -> None:
        """Wait for the lock of the open file, which the kernel undoes when its last descriptor goes.

        The lock is the descriptor's and not the process's: a second opening of the file excludes the first.
        """
        flock(fd, LOCK_EX)

    def try_lock(self, fd: int, *, shared: bool = False) -> bool:
        """Take the lock of the open file unless another has it; shared ones exclude only the others."""
        try:
            flock(fd, (LOCK_SH if shared else LOCK_EX) | LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(self, fd: int) -> None:
        flock(fd, LOCK_UN)

    def written_at(self, path: Path) -> int:
        """Return when the file was last written to, in milliseconds."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def same(self, fd: int, path: Path) -> bool:
        """Say whether the path still names the open file."""
        try:
            named = os.stat(path)
        except FileNotFoundError:
            return False
        opened = os.fstat(fd)
        return (named.st_ino, named.st_dev) == (opened.st_ino, opened.st_dev)

    def share(self, fd: int, size: int, *, write: bool) -> mmap:
        """Return the file's first bytes as memory which all processes share; it is never synced."""
        return mmap(fd, size, access=ACCESS_WRITE if write else ACCESS_READ)


REAL_FILES = Files()


def replace_contents(files: Files, path: Path, data: bytes, sync: bool = True) -> None:
    """Give the file this content: after a crash it has all of the old or all of the new. One writer at a time."""
    fresh = path.with_name(path.name + ".new")
    fd = files.create(fresh)
    try:
        files.write(fd, data, 0)
        files.sync(fd)
    finally:
        files.close(fd)
    files.replace(fresh, path)
    if sync:
        files.sync_directory(path.parent)
