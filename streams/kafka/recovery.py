"""What a restored store needs besides its rows: how far its time had come, and which rows that leaves past their
retention. It owns what can be told from the rows themselves, for changelogs that Kafka Streams wrote last; where
operator memory came along, that says it.
"""

from typing import Any

from headwater.dsl.topology import StoreSpec
from headwater.state.backend import Backend
from headwater.state.layout import HELD, escape, pack_time, unpack_time
from headwater.state.retention import first_live_time, segment_length
from headwater.streams.kafka.changelog import CHECKPOINT, CHECKPOINT_TIME, Rows

__all__ = ["expired", "observed"]

_SEQUENCES = 1 << 31


def observed(spec: StoreSpec, backend: Backend, memory: Any = None, leapt: int = -1) -> Any:
    """Return a store's memory, moved on to its newest row; None if it needs none.

    `memory` is what was committed for it, if anything was: it stays where it is not older than the rows. Of rows that
    were deleted, nothing is known. Rows up to `leapt` are from before the store's time was set back: they say nothing.

    >>> from headwater import Int64, Str
    >>> from headwater.dsl.topology import StoreSpec
    >>> from headwater.state.memory import MemoryBackend
    >>> from headwater.streams.kafka.changelog import Changelog
    >>> from headwater.streams.kafka.recovery import observed
    >>> spec = StoreSpec("session", "visits", Str(), Int64(), retention_ms=1000)
    >>> backend = MemoryBackend(["visits", "visits|time"])
    >>> backend.write(Changelog(spec).rows([(b"k" + bytes([0] * 7 + [9] + [0] * 7 + [5]), b"row", 9)]))
    >>> observed(spec, backend), observed(spec, backend, (20,))
    ((9,), (20,))
    >>> observed(spec, backend, (5,)), observed(spec, backend, (5,), leapt=9), observed(spec, backend, (5,), leapt=8)
    ((9,), (5,), (9,))
    """
    if spec.kind == "versioned":
        (time,) = backend.get_many(CHECKPOINT, [CHECKPOINT_TIME + spec.rows.encode()])
        if time is None or (memory is not None and int(time) <= leapt):
            return memory
        return (max(int(time), *(memory or (-1,))),)
    if spec.kind not in ("window", "session"):
        return memory
    newest = next((unpack_time(key, 0) for key, _ in backend.scan(f"{spec.rows}|time", b"", None, reverse=True)), -1)
    if memory is not None and (memory[0] >= newest or newest <= leapt):
        return memory
    if newest < 0:
        return None
    if spec.kind == "session":
        return (newest,)
    return newest, _last_sequence(spec, backend) if spec.duplicates else 0


def _last_sequence(spec: StoreSpec, backend: Backend) -> int:
    """The sequence after which a store with duplicates goes on without putting over one of its rows.

    Sequences begin again after 2³¹ of them. Rows near both ends mean that they just have, and then the last one is the
    highest of those that came after.
    """
    sequences = (int.from_bytes(key[-4:]) for key, _ in backend.scan(f"{spec.rows}|time", b"", None))
    highest = highest_below = 0
    begun_again = False
    for sequence in sequences:
        highest = max(highest, sequence)
        if sequence < _SEQUENCES // 2:
            highest_below = max(highest_below, sequence)
            begun_again = begun_again or sequence < _SEQUENCES // 4
    return highest_below if begun_again and highest >= _SEQUENCES // 4 * 3 else highest


def expired(spec: StoreSpec, backend: Backend, memory: Any) -> Rows:
    """Return the deletions of those rows that the store with this memory would have deleted by now.

    Kafka Streams' changelogs hold them for as long as their topics do, and no store looks that far back for them.
    """
    if spec.kind not in ("window", "session") or memory is None:
        return {}
    first_live = first_live_time(memory[0], spec.retention_ms, segment_length(spec.retention_ms))
    kept: dict[bytes, bytes | None] = {}
    index: dict[bytes, bytes | None] = {}
    for time_key, mark in backend.scan(f"{spec.rows}|time", b"", pack_time(first_live)):
        if mark != HELD:
            kept[_row_key(spec, time_key)] = index[time_key] = None
    return {spec.rows: kept, f"{spec.rows}|time": index}


def _row_key(spec: StoreSpec, time_key: bytes) -> bytes:
    """The key of the row to which a row of the index by time belongs."""
    if spec.kind == "session":
        return escape(time_key[16:]) + time_key[:16]
    elif spec.duplicates:
        return time_key[8:-4] + time_key[:8] + time_key[-4:]
    else:
        return time_key[8:] + time_key[:8]
