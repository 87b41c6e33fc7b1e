"""Aggregates over sliding windows (KStreamSlidingWindowAggregate). It owns which windows a record makes and which it
falls into.

A window exists for every place where the contents change: each record at t makes the window that ends with it,
[t - difference, t], and the one that begins just after it, [t + 1, t + 1 + difference], once that holds a record. A
record before `difference` would make a window that begins before time 0: it goes to [0, difference] instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headwater.dsl import ops
from headwater.dsl.records import Headers, Windowed
from headwater.errors import StreamsError
from headwater.streams.compile import Memory, Site, Step, rule
from headwater.streams.operators.aggregates import aggregator, initial_again, initializer
from headwater.streams.operators.closing import NEVER, Close, closed_windows, closing

__all__: list[str] = []

# An aggregate and the latest timestamp in it.
_Row = tuple[Any, int]


@rule(ops.SlidingWindowAggregate)
def aggregate_sliding(op: ops.SlidingWindowAggregate, site: Site) -> Step:
    """Emit the new aggregate of each open window the record falls into, then of those it makes.

    A window is closed once stream time is past its end + grace. A record whose last window is closed, or without a key
    or a value, is dropped and counted. On close instead of on update, each window's last aggregate is emitted when a
    record that is neither dropped nor earlier than `difference` finds it closed. With a difference of 0, which Kafka
    Streams does not have, that is before the record is placed: the store would not keep them beyond it.
    """
    difference, grace = op.windows.difference_ms, op.windows.grace_ms
    drop, late, fault = site.drop, site.late, site.fault
    memory = site.memory(op.store, observed=-1, closed=NEVER, next_emit=0)
    placing = _Placing(op, site)
    refused = site.config.compat is not None and difference == 0
    close = _closing(op, site, memory) if op.on_close else None

    def aggregate(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        if key is None or value is None:
            drop()
            return
        if timestamp > memory.observed:
            memory.observed = timestamp
        closed_until = memory.observed - grace
        if timestamp + difference < closed_until:
            late(key, value, timestamp, headers)
            return
        try:
            if refused:
                raise StreamsError(
                    f"step {site.node!r} has sliding windows of 0 ms, with which Kafka Streams throws an "
                    'IllegalArgumentException (compat="kafka-streams"): give them a longer difference'
                )
            if close is not None and not difference:
                close(closed_until, headers)
            placing.begin(key, value, timestamp, headers, closed_until)
            if timestamp < difference:
                placing.place_early()
            else:
                placing.place()
                if close is not None and difference:
                    close(closed_until, headers)
        except Exception as error:
            fault(error, key, value, timestamp, headers)

    return aggregate


class _Placing:
    """Puts one record after the other into its windows."""

    def __init__(self, op: ops.SlidingWindowAggregate, site: Site) -> None:
        self._store = site.store(op.store)
        self._name = op.store
        self._copy = site.copy
        self._aliases = site.config.compat is not None
        self._init = initializer(op.init)
        self._again = initial_again(op.store, op.init, site)
        self._f = aggregator(op.init, op.f)
        self._length = op.windows.difference_ms
        self._emit, self._wants_old = (site.forward, False) if op.on_close else site.emitter(op.store, op.send_old)
        self._cached = self._emit is not site.forward
        self._on_close = op.on_close
        self._keep = site.keeper(op.store) if op.on_close else None
        self._late = site.late
        self._drop = site.drop

    def begin(self, key: Any, value: Any, timestamp: int, headers: Headers, closed_until: int) -> None:
        """Take up the record that is to be placed."""
        self._key = key
        self._value = value
        self._timestamp = timestamp
        self._headers = headers
        self._closed_until = closed_until
        self._refused = False

    def place(self) -> None:
        """Update the windows that hold the record, the latest first, and make those that it brings about."""
        timestamp, length = self._timestamp, self._length
        starts = set()
        left: _Row | None = None
        right: _Row | None = None
        previous: int | None = None
        left_exists = right_exists = False
        for start, row in self._store.fetch(self._key, max(0, timestamp - 2 * length), timestamp + 1, reverse=True):
            starts.add(start)
            end, newest = start + length, row[1]
            if start == timestamp + 1:
                right_exists = True
            elif end > timestamp:
                if right is None:
                    right = self._apart(row)
                self._update(start, row)
            elif end == timestamp:
                left_exists = True
                self._update(start, row)
                if newest >= timestamp:
                    # A record of the same time has made all the windows before.
                    return
                previous = newest
            else:
                left, previous = row, newest
                break
        if previous is not None and previous + 1 not in starts and previous + 1 + length >= timestamp:
            self._make(previous + 1)
        if not left_exists:
            if left is not None and timestamp - length <= left[1]:
                self._make(timestamp - length, left[0])
            else:
                self._make(timestamp - length)
        if not right_exists:
            self._make_right(right)

    def place_early(self) -> None:
        """The same for a record before `difference`, the earliest window first and [0, difference] last."""
        timestamp = self._timestamp
        starts = set()
        combined: _Row | None = None
        right: _Row | None = None
        right_exists = False
        for start, row in self._store.fetch(self._key, 0, timestamp + 1):
            starts.add(start)
            if start == 0:
                combined = row
            elif start <= timestamp:
                right = self._apart(row)
                self._update(start, row)
            else:
                right_exists = True
        if right is None and combined is not None and combined[1] > timestamp:
            right = self._apart(combined)
        if not right_exists:
            self._make_right(right)
        if combined is None:
            self._make(0)
            return
        if combined[1] < timestamp and combined[1] + 1 not in starts:
            self._make(combined[1] + 1)
        self._update(0, combined)

    def _apart(self, row: _Row) -> _Row:
        """The row as it is now, out of the aggregator's reach."""
        return row if self._aliases else (self._copy(self._name, row[0]), row[1])

    def _update(self, start: int, row: _Row) -> None:
        """Add the record to an existing window."""
        aggregate, newest = row
        old = self._copy(self._name, aggregate) if self._wants_old else None
        self._fold(start, aggregate, old, max(newest, self._timestamp))

    def _make(self, start: int, aggregate: Any = None) -> None:
        """Add the record to a new window, which starts from an aggregate or from the initial one."""
        # The old value of a new window is what it starts from; the cache compares with the store.
        sends_old = self._wants_old and not self._cached
        if aggregate is None:
            aggregate = self._init()
            old = self._again(aggregate) if sends_old else None
        else:
            old = self._copy(self._name, aggregate) if sends_old else None
        self._fold(start, aggregate, old, self._timestamp)

    def _fold(self, start: int, aggregate: Any, old: Any, newest: int) -> None:
        if start + self._length < self._closed_until:
            # Every closed window counts as a drop, but the record is one late record.
            if self._refused:
                self._drop()
            else:
                self._late(self._key, self._value, self._timestamp, self._headers)
            self._refused = True
            return
        new = self._f(self._key, self._value, aggregate)
        self._put(start, new, old, newest)

    def _make_right(self, row: _Row | None) -> None:
        """Make the window that begins just after the record, if `row` has later records; it has no old value."""
        if row is not None and row[1] > self._timestamp:
            self._put(self._timestamp + 1, row[0], None, row[1])

    def _put(self, start: int, new: Any, old: Any, newest: int) -> None:
        if not self._store.put(self._key, None if new is None else (new, newest), start):
            self._drop()
        window = Windowed(self._key, start, start + self._length)
        if not self._on_close:
            at = self._timestamp if self._cached and new is None else newest
            self._emit(window, new, old, True, at, self._headers)
        elif self._keep is not None:
            self._keep(window, new, None, True, newest, self._headers)


def _closing(op: ops.SlidingWindowAggregate, site: Site, memory: Memory) -> Close:
    store, difference = site.store(op.store), op.windows.difference_ms

    def closed(until: int) -> Iterator[tuple[Windowed, Any, int]] | None:
        last = until - difference - 1
        if last < 0:
            return None
        first = 0 if memory.closed == NEVER else max(0, memory.closed - difference)
        return closed_windows(store, difference, first, last)

    return closing(site, memory, closed)
