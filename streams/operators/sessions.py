"""Aggregates over session windows (KStreamSessionWindowAggregate). It owns which sessions a record merges and what
becomes of the merged ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from headwater.dsl import ops
from headwater.dsl.records import Headers, Windowed
from headwater.streams.compile import Memory, Site, Step, rule
from headwater.streams.operators.aggregates import aggregator, initializer
from headwater.streams.operators.closing import NEVER, Close, closing

__all__: list[str] = []


@rule(ops.SessionAggregate)
def aggregate_sessions(op: ops.SessionAggregate, site: Site) -> Step:
    """Emit a deletion for each session the record merges or extends, in order of end and start, then what they became.

    Updates carry the session's end as their timestamp and no headers. The record is dropped and counted when the
    session it would end up in + gap + grace is before stream time, or when it has no key. On close instead of on
    update, each session's last aggregate is emitted when a record finds it closed.
    """
    store = site.store(op.store)
    find, get, put, remove = store.find, store.get, store.put, store.remove
    emit, wants_old = (site.forward, False) if op.on_close else site.emitter(op.store, op.send_old)
    cached = emit is not site.forward
    aliases = site.config.compat is not None and not cached
    init, f, merge = initializer(op.init), aggregator(op.init, op.f), _merger(op)
    gap, open_for = op.windows.gap_ms, op.windows.gap_ms + op.windows.grace_ms
    drop, late, fault = site.drop, site.late, site.fault
    memory = site.memory(op.store, observed=-1, closed=NEVER, next_emit=0)
    close = _closing(site, op.store, memory) if op.on_close else None

    def update(key: Any, value: Any, timestamp: int, headers: Headers, closed_until: int) -> None:
        start = end = timestamp
        aggregate = init()
        merged = []
        for session_start, session_end, row in find(key, timestamp - gap, timestamp + gap):
            merged.append((session_start, session_end, row))
            aggregate = merge(key, aggregate, row)
            start, end = min(start, session_start), max(end, session_end)
        if end < closed_until:
            late(key, value, timestamp, headers)
            return
        old = None
        if start != end:
            for session_start, session_end, row in merged:
                # Read again, for the merger may have changed what it got.
                gone = (row if aliases else get(key, session_start, session_end)) if wants_old else None
                remove(key, session_start, session_end)
                if close is None:
                    window = Windowed(key, session_start, session_end)
                    emit(window, None, gone, True, session_end, headers if cached else ())
        elif cached:
            # Sent on at once, a session of one moment has no old value; the cache compares with the store.
            old = get(key, start, end)
        new = f(key, value, aggregate)
        if not put(key, start, end, new):
            drop()
        if close is None:
            # Out of the cache an update has the headers of the record that was processed, else none.
            emit(Windowed(key, start, end), new, old, True, end, headers if cached else ())

    def aggregate(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        if key is None:
            drop()
            return
        if timestamp > memory.observed:
            memory.observed = timestamp
        closed_until = memory.observed - open_for
        try:
            if close is not None and not gap:
                # Sessions of one moment, which Kafka Streams does not have: the store would not keep them beyond it.
                close(closed_until, headers)
            update(key, value, timestamp, headers, closed_until)
            if close is not None and gap:
                close(closed_until, headers)
        except Exception as error:
            fault(error, key, value, timestamp, headers)

    return aggregate


def _merger(op: ops.SessionAggregate) -> Callable[[Any, Any, Any], Any]:
    if op.merge is not None:
        return op.merge
    reduced = aggregator(None, op.f)

    def merge(key: Any, a: Any, b: Any) -> Any:
        return reduced(key, b, a)

    return merge


def _closing(site: Site, name: str, memory: Memory) -> Close:
    ended = site.store(name).ended

    def closed(until: int) -> Iterator[tuple[Windowed, Any, int]] | None:
        first, last = max(0, memory.closed), until - 1
        if last < first:
            return None
        return ((Windowed(key, start, end), row, end) for start, end, key, row in ended(first, last))

    return closing(site, memory, closed)
