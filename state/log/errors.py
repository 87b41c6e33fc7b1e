"""What goes wrong with a log, one class per remedy, and the translation of the operating system's faults into them. It
owns the messages' common parts; whoever raises says which topic-partition@offset or file."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headwater.errors import StreamsError

__all__ = [
    "CorruptLog",
    "NewerFormat",
    "OutOfRange",
    "StorageError",
    "TopicExists",
    "UnknownTopic",
    "storage_error",
    "storing",
]


class UnknownTopic(StreamsError):
    """The topic or the partition is not there: create it, or correct the name."""


class TopicExists(StreamsError):
    """The topic is there already: take another name, or accept the one that exists."""


class OutOfRange(StreamsError):
    """The offset is below the log's start or above its end: go on at either, which is the reset policy's choice."""

    def __init__(self, place: str, offset: int, start: int, end: int) -> None:
        self.place, self.offset, self.start, self.end = place, offset, start, end
        # All of them are the arguments, and not the text: unpickling calls __init__ with them.
        super().__init__(place, offset, start, end)

    def __str__(self) -> str:
        return (
            f"{self.place} has no offset {self.offset}: it holds {self.start} up to but not including {self.end}. "
            "Read from its start or its end."
        )


class CorruptLog(StreamsError):
    """Bytes of the log are damaged: restore the file from a copy, or give up what is lost (headwater log repair)."""


class NewerFormat(StreamsError):
    """A later Headwater wrote this: install that version or a newer one."""


class StorageError(StreamsError):
    """The disk refused; nothing was appended. Free space or make the directory writable, then try again."""


_REMEDY = {
    errno.ENOSPC: "The disk is full: free space and try again.",
    errno.EDQUOT: "The disk quota is used up: free space and try again.",
    errno.EROFS: "The file system is read-only: remount it for writing, or give the log another directory.",
    errno.EACCES: "The permissions forbid it: make the directory writable for this user.",
    errno.EPERM: "The permissions forbid it: make the directory writable for this user.",
    errno.EMFILE: "This process has too many open files: raise the limit (ulimit -n).",
    errno.ENFILE: "The machine has too many open files: raise the limit.",
}


def storage_error(what: str, path: Path, error: OSError) -> StorageError:
    """Say what was tried, where it was refused, and what to do."""
    remedy = _REMEDY.get(error.errno or 0, "Check the disk, then open the log again.")
    return StorageError(f"Cannot {what} in {path}: {error.strerror or error}. {remedy}")


@contextmanager
def storing(what: str, path: Path) -> Iterator[None]:
    """Turn a refusal of the operating system into a StorageError."""
    try:
        yield
    except OSError as error:
        raise storage_error(what, path, error) from error
