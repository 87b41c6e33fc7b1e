"""Stream-stream joins: records of two streams with the same key whose timestamps lie within a window. It owns the
order of results and when an unmatched record is given up; how long records are remembered is the window stores'.
"""

from collections.abc import Callable
from typing import Any

from headwater.dsl import ops
from headwater.dsl.durations import LONG_MAX
from headwater.dsl.records import Headers
from headwater.streams.compile import Memory, Site, Step, rule

__all__: list[str] = []


@rule(ops.JoinWindow)
def remember_for_join(op: ops.JoinWindow, site: Site) -> Step:
    """Emit the record, then remember it for the other side; one without a key is not remembered.

    One that is too old to be remembered has met what the other side had, but nothing will meet it: it is late, and
    dropped and counted as such.
    """
    store = site.store(op.store)
    put, late, fault, forward = store.put, site.late, site.fault, site.forward

    def remember(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        # First the join, then the store: else a stream joined with itself would meet each record twice.
        forward(key, value, timestamp, headers)
        if key is not None:
            try:
                if not put(key, value, timestamp) or timestamp < store.first_readable:
                    late(key, value, timestamp, headers)
            except Exception as error:
                fault(error, key, value, timestamp, headers)

    return remember


@rule(ops.StreamJoinSide)
def join_stream_side(op: ops.StreamJoinSide, site: Site) -> Step:
    """Emit the record joined with each of the other side's inside the window, at the later one's timestamp.

    Null values are dropped and counted; null keys too, unless this side is outer: then they are joined with None at
    once. An unmatched record of an outer side waits for its window to close: until stream time, that of both sides,
    is past its timestamp + after (a right record: + before) + grace. Late records are joined with what is there.
    """
    is_left, outer = op.is_left, op.outer
    before_ms, after_ms = _bounds(op)
    fetch = site.store(op.other_store).fetch
    unmatched = None if op.unmatched is None else site.store(op.unmatched)
    memory = site.shared_memory(op.shared, op.unmatched, stream_time=-1, min_time=LONG_MAX, next_emit=0)
    emit_unmatched = None if op.unmatched is None else _unmatched_emitter(op, site, memory)
    joined = _joiner(op.joiner, op.keyed)
    drop, fault, forward = site.drop, site.fault, site.forward

    def join(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        if timestamp > memory.stream_time:
            memory.stream_time = timestamp
        if value is None or (key is None and not outer):
            drop()
            return
        try:
            if key is None:
                forward(key, joined(key, value, None) if is_left else joined(key, None, value), timestamp, headers)
                return
            if emit_unmatched is not None and timestamp == memory.stream_time:
                emit_unmatched(headers)
            last = max(0, timestamp + after_ms)
            found = False
            for other_time, other in fetch(key, max(0, timestamp - before_ms), last):
                found = True
                if unmatched is not None:
                    unmatched.remove_all(other_time, not is_left, key)
                result = joined(key, value, other) if is_left else joined(key, other, value)
                forward(key, result, timestamp if timestamp > other_time else other_time, headers)
            if found or not outer:
                return
            if unmatched is None or last < memory.stream_time:
                forward(key, joined(key, value, None) if is_left else joined(key, None, value), timestamp, headers)
            else:
                if timestamp < memory.min_time:
                    memory.min_time = timestamp
                unmatched.put(timestamp, is_left, key, value)
        except Exception as error:
            fault(error, key, value, timestamp, headers)

    return join


def _bounds(op: ops.StreamJoinSide) -> tuple[int, int]:
    """How much older and newer than this side's record the other side's may be."""
    windows = op.windows
    return (windows.before_ms, windows.after_ms) if op.is_left else (windows.after_ms, windows.before_ms)


def _joiner(joiner: ops.Function, keyed: bool) -> Callable[[Any, Any, Any], Any]:
    """The joiner in its keyed form."""
    return joiner if keyed else lambda key, left, right: joiner(left, right)


def _unmatched_emitter(op: ops.StreamJoinSide, site: Site, memory: Memory) -> Callable[[Headers], None]:
    """A function that emits the unmatched records of both sides whose windows have closed, in the order of the store.

    `min_time` bounds the kept records' timestamps from below, roughly: it is the last one looked at, which may be too
    high and then delays results, as in Kafka Streams. It looks at most once per `join_emit_interval` of wall clock.
    """
    assert op.unmatched is not None
    unmatched, forward, context = site.store(op.unmatched), site.forward, site.context
    grace_ms = op.windows.grace_ms
    look_ms = _bounds(op)[1] + grace_ms
    open_ms = op.windows.before_ms + grace_ms, op.windows.after_ms + grace_ms  # right, left
    interval_ms = site.config.join_emit_interval_ms
    joined = _joiner(op.joiner, op.keyed)

    def emit_unmatched(headers: Headers) -> None:
        stream_time = memory.stream_time
        # No kept record: LONG_MAX. Kafka Streams' sum overflows then and it looks (and finds nothing), unless the
        # window and its grace are empty; that look counts for the interval.
        if stream_time <= memory.min_time + look_ms <= LONG_MAX:
            return
        now = context.wall_clock
        if now < memory.next_emit:
            return
        memory.next_emit = now + interval_ms
        memory.min_time = LONG_MAX
        is_open = [False, False]
        emitted: tuple[int, bool, Any] | None = None
        for timestamp, is_left, key, value in unmatched.all():
            memory.min_time = timestamp
            if all(is_open):
                break
            if timestamp + open_ms[is_left] >= stream_time:
                is_open[is_left] = True
                continue
            result = joined(key, value, None) if is_left else joined(key, None, value)
            forward(key, result, timestamp, headers)
            # Records of one place go together: removed only when all of them have been emitted.
            place = timestamp, is_left, key
            if emitted is not None and emitted != place:
                unmatched.remove_all(*emitted)
            emitted = place
        if emitted is not None:
            unmatched.remove_all(*emitted)

    return emit_unmatched


@rule(ops.StreamSelfJoin)
def join_with_itself(op: ops.StreamSelfJoin, site: Site) -> Step:
    """Emit what joining the stream with itself gives, in the same order, from one store.

    Null keys and null values are dropped, and counted once.
    """
    windows = op.windows
    before_ms, after_ms = windows.before_ms, windows.after_ms
    retention_ms = windows.size_ms + windows.grace_ms
    fetch = site.store(op.store).fetch
    memory = site.memory(op.store, stream_time=-1)
    joined = _joiner(op.joiner, op.keyed)
    drop, fault, forward = site.drop, site.fault, site.forward

    def join(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        if key is None or value is None:
            drop()
            return
        try:
            with_itself = joined(key, value, value)
            if timestamp > memory.stream_time:
                memory.stream_time = timestamp
            due = timestamp > memory.stream_time - retention_ms + 1
            for other_time, other in fetch(key, max(0, timestamp - before_ms), max(0, timestamp + after_ms)):
                forward(key, joined(key, value, other), max(timestamp, other_time), headers)
            for other_time, other in fetch(key, max(0, timestamp - after_ms), max(0, timestamp + before_ms)):
                if due and other_time > timestamp:
                    due = False
                    forward(key, with_itself, timestamp, headers)
                forward(key, joined(key, other, value), max(timestamp, other_time), headers)
            if due:
                forward(key, with_itself, timestamp, headers)
        except Exception as error:
            fault(error, key, value, timestamp, headers)

    return join
