"""Emit on window close: when the windows that have closed since the last time are looked for, and what is sent on for
them. It owns the throttle and the close time reached; which windows a close time closes is the operators'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from headwater.dsl.records import Headers, Windowed
from headwater.streams.compile import Memory, Site

__all__ = ["NEVER", "Close", "closed_windows", "closing"]

NEVER = -1

# Called with the close time (every window that ends before it is final) and the headers of the record that brought it.
Close = Callable[[int, Headers], None]
# Gives the (windowed key, value, timestamp) of the windows closed up to a close time, or None where none can be.
Closed = Callable[[int], Iterator[tuple[Windowed, Any, int]] | None]


def closing(site: Site, memory: Memory, closed: Closed) -> Close:
    """Emit the final result of each newly closed window, at most once per emit interval of the wall clock.

    `memory.closed` is the close time reached, NEVER at first, and `memory.next_emit` when the next look is due.
    """
    interval = site.config.window_emit_interval_ms
    context, forward = site.context, site.forward

    def close(until: int, headers: Headers) -> None:
        now = context.wall_clock
        if now < memory.next_emit:
            return
        memory.next_emit = now + interval
        if memory.closed != NEVER and memory.closed >= until:
            return
        results = closed(until)
        if results is None:
            return
        for key, value, timestamp in results:
            forward(key, value, None, True, timestamp, headers)
        memory.closed = until

    return close


def closed_windows(store: Any, length: int, first: int, last: int) -> Iterator[tuple[Windowed, Any, int]]:
    """The (windowed key, value, timestamp) of the windows that start from `first` to `last`, by start and key.

    A closed window that the store no longer shows is lost.
    """
    for start, key, (value, timestamp) in store.fetch_all(first, last):
        yield Windowed(key, start, start + length), value, timestamp
