"""Small files that are read and replaced as a whole: what a topic is, which segments a partition has, what a group has
committed. It owns their envelope; the content is a msgspec Struct of the caller's.

| line | what | broken |
|---|---|---|
| 1 | `headwater <kind> <format version> <CRC-32 of the rest in hex>` | CorruptLog; a higher version: NewerFormat |
| 2 | the content as JSON | CorruptLog: the checksum is wrong |

A file is replaced by renaming a synced one over it, so that a reader has the old or the new, and a crash leaves one
of them.
"""

from pathlib import Path
from typing import TypeVar
from zlib import crc32

import msgspec

from headwater.state.log.errors import CorruptLog, NewerFormat
from headwater.state.log.files import Files, replace_contents

__all__ = ["load", "store"]

T = TypeVar("T", bound=msgspec.Struct)
_VERSION = 1


def store(files: Files, path: Path, kind: str, content: msgspec.Struct, *, sync: bool = True) -> None:
    """Replace the file's content, durably unless told otherwise. One writer at a time."""
    data = msgspec.json.encode(content) + b"\n"
    replace_contents(files, path, b"headwater %s %d %08x\n" % (kind.encode(), _VERSION, crc32(data)) + data, sync)


def load(files: Files, path: Path, kind: str, content: type[T]) -> T:
    """Return the file's content; FileNotFoundError if there is no file."""
    fd = files.open(path)
    try:
        whole = files.read(fd, files.size(fd), 0)
    finally:
        files.close(fd)
    first, _, data = whole.partition(b"\n")
    words = first.split(b" ")
    if len(words) != 4 or words[:2] != [b"headwater", kind.encode()] or not words[2].isdigit():
        raise CorruptLog(f"{path} does not begin as a {kind} file does: restore it from a copy.")
    if words[3] != b"%08x" % crc32(data):
        raise CorruptLog(f"{path} is damaged, its checksum is wrong: restore it from a copy.")
    if int(words[2]) > _VERSION:
        raise NewerFormat(
            f"{path} has format version {int(words[2])}; this Headwater reads up to {_VERSION}. "
            "Install the version that wrote it, or a newer one."
        )
    try:
        return msgspec.json.decode(data, type=content)
    except msgspec.MsgspecError as error:
        raise CorruptLog(f"{path} cannot be read: {error}. Restore it from a copy.") from error
