"""Where in a segment an offset or a time is: a sparse table, in memory while the segment grows, in a file once it is
closed. It owns that file's format. An index is a hint: a missing, foreign or damaged one is made anew from the
segment, and what is read at its positions is checked there.

| at | bytes | what | broken |
|---|---|---|---|
| 0 | 4 | `HWLI` | made anew |
| 4 | 4 | CRC-32 of the rest | made anew |
| 8 | 8 | the segment's id | made anew: another segment's |
| 16 | 8 | the segment's size | made anew: another segment's |
| 24 | 24 each | offset and position of a batch, highest timestamp of all batches before it in the segment | made anew |

Little-endian. An entry is made for each batch that begins 32 KiB or more behind the last entry's.
"""

import struct
from array import array
from bisect import bisect_left, bisect_right
from zlib import crc32

__all__ = ["Index"]

_MAGIC = b"HWLI"
_HEAD = struct.Struct("<4sI")
_SEGMENT = struct.Struct("<qq")
_EVERY = 32 << 10
_EARLIEST = -(2**63)


class Index:
    """Positions of some of a segment's batches, by their first offset and by what came before them."""

    __slots__ = ("_offsets", "_positions", "_times", "due")

    def __init__(self) -> None:
        self._offsets, self._positions, self._times = array("q"), array("q"), array("q")
        self.due = 0
        """The position from which on a batch is noted."""

    def add(self, offset: int, position: int, highest_before: int | None) -> None:
        """Take note of the batch, if it is far enough behind the last one noted."""
        if position >= self.due:
            self._offsets.append(offset)
            self._positions.append(position)
            self._times.append(_EARLIEST if highest_before is None else highest_before)
            self.due = position + _EVERY

    def position(self, offset: int) -> int:
        """Return where to begin looking for the offset: at it or before it."""
        found = bisect_right(self._offsets, offset) - 1
        return self._positions[found] if found >= 0 else 0

    def position_by_time(self, timestamp: int) -> int:
        """Return where to begin looking for the first record with this timestamp or a higher one."""
        # The times never fall: all batches before the last entry whose time is lower have lower ones only.
        found = bisect_left(self._times, timestamp) - 1
        return self._positions[found] if found >= 0 else 0

    def encode(self, segment_id: int, size: int) -> bytes:
        table = array("q", [0]) * (3 * len(self._offsets))
        table[0::3], table[1::3], table[2::3] = self._offsets, self._positions, self._times
        data = _SEGMENT.pack(segment_id, size) + struct.pack(f"<{len(table)}q", *table)
        return _HEAD.pack(_MAGIC, crc32(data)) + data

    @classmethod
    def decode(cls, data: bytes, segment_id: int, size: int) -> "Index | None":
        """Return the index of this segment, or None if the bytes are not its."""
        if len(data) < 24 or (len(data) - 24) % 24:
            return None
        magic, crc = _HEAD.unpack_from(data)
        if magic != _MAGIC or crc != crc32(data[8:]) or _SEGMENT.unpack_from(data, 8) != (segment_id, size):
            return None
        table = array("q", struct.unpack(f"<{(len(data) - 24) // 8}q", data[24:]))
        index = cls()
        index._offsets, index._positions, index._times = table[0::3], table[1::3], table[2::3]
        index.due = size
        return index
