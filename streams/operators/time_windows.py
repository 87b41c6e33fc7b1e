"""Aggregates over tumbling, hopping and unlimited windows (KStreamWindowAggregate). It owns stream time as the operator
sees it, which windows still take a record and which have closed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headwater.dsl import ops
from headwater.dsl.records import Headers, Windowed
from headwater.dsl.windows import TimeWindows
from headwater.streams.compile import Memory, Site, Step, rule
from headwater.streams.operators.aggregates import aggregator, initial_again, initializer
from headwater.streams.operators.closing import NEVER, Close, closed_windows, closing

__all__: list[str] = []

# Half the time of Windowed(…), whose own __new__ is a Python function.
_tuple = tuple.__new__


@rule(ops.TimeWindowAggregate)
def aggregate_windows(op: ops.TimeWindowAggregate, site: Site) -> Step:
    """Emit, in order of the window's start, the new aggregate of each open window that holds the record.

    A window is closed, and the record dropped from it and counted, once stream time has reached its end + grace.
    Records without a key are dropped and counted; those without a value reach the aggregator. On close instead of on
    update, each window's last aggregate is emitted when a record finds it closed.
    """
    windows = op.windows
    if op.on_close:
        return _hopping(op, site, site.forward, False)
    emit, wants_old = site.emitter(op.store, op.send_old)
    if not wants_old and isinstance(windows, TimeWindows) and windows.advance_ms == windows.size_ms:
        return _tumbling(op, site, windows, emit)
    return _hopping(op, site, emit, wants_old)


def _tumbling(op: ops.TimeWindowAggregate, site: Site, windows: TimeWindows, emit: Step) -> Step:
    """One window per record, emitted on update, no old values: the usual case by its shortest way."""
    store = site.store(op.store)
    row_key_of, read, write = store.row_key, store.read, store.write
    init, f = initializer(op.init), aggregator(op.init, op.f)
    size, open_for = windows.size_ms, windows.size_ms + windows.grace_ms
    drop, late, fault = site.drop, site.late, site.fault
    memory = site.memory(op.store, observed=-1)

    def aggregate(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        if key is None:
            drop()
            return
        start = timestamp - timestamp % size
        if timestamp > memory.observed:
            memory.observed = timestamp
        elif start + open_for <= memory.observed:
            late(key, value, timestamp, headers)
            return
        newest = timestamp
        try:
            row_key = row_key_of(key, start)
            row = read(row_key, start)
            if row is None:
                new = f(key, value, init())
            else:
                aggregate, stored = row
                new = f(key, value, aggregate)
                if stored > newest:
                    newest = stored
            if not write(row_key, None if new is None else (new, newest), start):
                drop()
        except Exception as error:
            fault(error, key, value, timestamp, headers)
            return
        emit(_tuple(Windowed, (key, start, start + size)), new, None, True, newest, headers)

    return aggregate


def _hopping(op: ops.TimeWindowAggregate, site: Site, emit: Step, wants_old: bool) -> Step:
    """Any number of windows per record, old values, emission on close."""
    store = site.store(op.store)
    row_key_of, read, write = store.row_key, store.read, store.write
    init, f, again = initializer(op.init), aggregator(op.init, op.f), initial_again(op.store, op.init, site)
    starts, end_of, grace = op.windows.starts, op.windows.end, op.windows.grace_ms
    name, copy, drop, late, fault = op.store, site.copy, site.drop, site.late, site.fault
    cached = emit is not site.forward
    sends_initial = wants_old and not cached
    memory = site.memory(op.store, observed=-1, closed=NEVER, next_emit=0)
    close = _closing(op, site, memory) if op.on_close else None
    keep = site.keeper(op.store) if op.on_close else None

    def aggregate(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        if key is None:
            drop()
            return
        if timestamp > memory.observed:
            memory.observed = timestamp
        closed_until = memory.observed - grace
        refused = False
        try:
            for start in starts(timestamp):
                end = end_of(start)
                if end <= closed_until:
                    # Every closed window counts as a drop, but the record is one late record.
                    if refused:
                        drop()
                    else:
                        late(key, value, timestamp, headers)
                    refused = True
                    continue
                newest = timestamp
                row_key = row_key_of(key, start)
                row = read(row_key, start)
                if row is None:
                    aggregate = init()
                    old = again(aggregate) if sends_initial else None
                else:
                    aggregate, stored = row
                    old = copy(name, aggregate) if wants_old else None
                    newest = max(timestamp, stored)
                new = f(key, value, aggregate)
                if not write(row_key, None if new is None else (new, newest), start):
                    drop()
                if close is None:
                    at = timestamp if cached and new is None else newest
                    emit(Windowed(key, start, end), new, old, True, at, headers)
                elif keep is not None:
                    keep(Windowed(key, start, end), new, None, True, newest, headers)
            if close is not None:
                close(closed_until, headers)
        except Exception as error:
            fault(error, key, value, timestamp, headers)

    return aggregate


def _closing(op: ops.TimeWindowAggregate, site: Site, memory: Memory) -> Close:
    store = site.store(op.store)
    size, starts = op.windows.size_ms, op.windows.starts

    def closed(until: int) -> Iterator[tuple[Windowed, Any, int]] | None:
        last = until - size
        if last < 0:
            return None
        if memory.closed == NEVER:
            return closed_windows(store, size, 0, last)
        before = max(0, memory.closed - size)
        # No further window may have closed, although stream time went on.
        return None if starts(last) == starts(before) else closed_windows(store, size, before + 1, last)

    return closing(site, memory, closed)
