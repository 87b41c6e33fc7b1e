"""Windows: which stretches of time a record belongs to, or which records of the other side it may join. It owns the
bounds and their arithmetic; what is late is judged by the operators, who know stream time."""

from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias, final

from headwater.dsl.durations import LONG_MAX, checked_ms
from headwater.errors import TopologyError

__all__ = [
    "JoinWindows",
    "SessionWindows",
    "SlidingWindows",
    "TimeWindows",
    "UnlimitedWindows",
    "Windows",
    "subclass_fault",
]

_ZERO = timedelta(0)


def _raise_if_any(faults: list[str]) -> None:
    if faults:
        raise TopologyError(faults)


@final
@dataclass(frozen=True, slots=True)
class TimeWindows:
    """Windows of one size, aligned to the epoch: tumbling, or hopping when `advance` is smaller than the size."""

    size_ms: int
    advance_ms: int
    grace_ms: int

    @staticmethod
    def of(size: timedelta, grace: timedelta = _ZERO, advance: timedelta | None = None) -> "TimeWindows":
        """Tumbling windows of `size`, or hopping ones that start every `advance`: [start, end).

        A window still takes records until stream time reaches its end + `grace`; later ones are dropped and counted.

        >>> from datetime import timedelta
        >>> from headwater import TimeWindows
        >>> TimeWindows.of(timedelta(minutes=1), grace=timedelta(seconds=10))
        TimeWindows(size_ms=60000, advance_ms=60000, grace_ms=10000)
        """
        faults: list[str] = []
        size_ms = checked_ms("TimeWindows.of: size", size, faults, least=1)
        grace_ms = checked_ms("TimeWindows.of: grace", grace, faults)
        advance_ms = size_ms
        if advance is not None:
            advance_ms = checked_ms("TimeWindows.of: advance", advance, faults, least=1)
            if size_ms and advance_ms > size_ms:
                faults.append(
                    f"TimeWindows.of: advance must not exceed size ({size_ms} ms), but is {advance_ms} ms: "
                    "records between two windows would belong to none"
                )
        _raise_if_any(faults)
        return TimeWindows(size_ms, advance_ms, grace_ms)

    def starts(self, timestamp: int) -> range:
        """The starts of all windows that hold a timestamp, in order.

        >>> from datetime import timedelta
        >>> from headwater import TimeWindows
        >>> list(TimeWindows.of(timedelta(seconds=10), advance=timedelta(seconds=5)).starts(12000))
        [5000, 10000]
        """
        advance = self.advance_ms
        first = timestamp - self.size_ms + advance
        return range(first // advance * advance if first > 0 else 0, timestamp + 1, advance)

    def end(self, start: int) -> int:
        """The exclusive end of the window with this start."""
        return start + self.size_ms


@final
@dataclass(frozen=True, slots=True)
class UnlimitedWindows:
    """One window without an end."""

    start_ms: int

    @staticmethod
    def of(start: int = 0) -> "UnlimitedWindows":
        """One window from `start` (epoch milliseconds) on; earlier records belong to none.

        >>> from headwater import UnlimitedWindows
        >>> UnlimitedWindows.of()
        UnlimitedWindows(start_ms=0)
        """
        if type(start) is not int or not 0 <= start < LONG_MAX:
            raise TopologyError([f"UnlimitedWindows.of: start must be epoch milliseconds from 0 on, but is {start!r}"])
        return UnlimitedWindows(start)

    @property
    def size_ms(self) -> int:
        """The size that Kafka Streams gives an endless window."""
        return LONG_MAX

    @property
    def grace_ms(self) -> int:
        """Zero: nothing is late for a window that never closes."""
        return 0

    def starts(self, timestamp: int) -> range:
        """The window's start if it holds the timestamp.

        >>> from headwater import UnlimitedWindows
        >>> list(UnlimitedWindows.of(100).starts(100)), list(UnlimitedWindows.of(100).starts(99))
        ([100], [])
        """
        return range(self.start_ms, self.start_ms + 1) if timestamp >= self.start_ms else range(0)

    def end(self, start: int) -> int:
        """The end that Kafka Streams writes for an endless window."""
        return LONG_MAX


@final
@dataclass(frozen=True, slots=True)
class SlidingWindows:
    """A window for every set of records that lie within a time difference of each other."""

    difference_ms: int
    grace_ms: int

    @staticmethod
    def of(difference: timedelta, grace: timedelta = _ZERO) -> "SlidingWindows":
        """Windows of `difference`, both ends inclusive, wherever their contents change.

        A window takes records while its end + `grace` is not before stream time; a record that one of its windows no
        longer takes is counted as late.

        >>> from datetime import timedelta
        >>> from headwater import SlidingWindows
        >>> SlidingWindows.of(timedelta(seconds=10))
        SlidingWindows(difference_ms=10000, grace_ms=0)
        """
        faults: list[str] = []
        difference_ms = checked_ms("SlidingWindows.of: difference", difference, faults)
        grace_ms = checked_ms("SlidingWindows.of: grace", grace, faults)
        _raise_if_any(faults)
        return SlidingWindows(difference_ms, grace_ms)


@final
@dataclass(frozen=True, slots=True)
class SessionWindows:
    """A window for every burst of records of a key, ended by inactivity."""

    gap_ms: int
    grace_ms: int

    @staticmethod
    def of(gap: timedelta, grace: timedelta = _ZERO) -> "SessionWindows":
        """Sessions from first to last record, both inclusive, that merge when no more than `gap` lies between them.

        A record is dropped and counted when the session it would end up in + `gap` + `grace` is before stream time.

        >>> from datetime import timedelta
        >>> from headwater import SessionWindows
        >>> SessionWindows.of(timedelta(minutes=5))
        SessionWindows(gap_ms=300000, grace_ms=0)
        """
        faults: list[str] = []
        gap_ms = checked_ms("SessionWindows.of: gap", gap, faults)
        grace_ms = checked_ms("SessionWindows.of: grace", grace, faults)
        _raise_if_any(faults)
        return SessionWindows(gap_ms, grace_ms)


@final
@dataclass(frozen=True, slots=True)
class JoinWindows:
    """How far the timestamps of two joined records may lie apart, seen from the left record."""

    before_ms: int
    after_ms: int
    grace_ms: int

    @staticmethod
    def of(
        difference: timedelta | None = None,
        before: timedelta | None = None,
        after: timedelta | None = None,
        grace: timedelta = _ZERO,
    ) -> "JoinWindows":
        """Joins a left record at t with right records from t - `before` to t + `after`, both inclusive.

        `difference` sets both bounds, `before` and `after` override it; a bound may be negative while their sum is not.

        >>> from datetime import timedelta
        >>> from headwater import JoinWindows
        >>> JoinWindows.of(timedelta(seconds=5), before=timedelta(0))
        JoinWindows(before_ms=0, after_ms=5000, grace_ms=0)
        """
        faults: list[str] = []
        bounds = []
        difference_ms = (
            None if difference is None else checked_ms("JoinWindows.of: difference", difference, faults, None)
        )
        for argument, bound in (("before", before), ("after", after)):
            if bound is not None:
                bounds.append(checked_ms(f"JoinWindows.of: {argument}", bound, faults, None))
            elif difference_ms is not None:
                bounds.append(difference_ms)
            else:
                faults.append(f"JoinWindows.of: {argument} has no value: give {argument}= or difference=")
        grace_ms = checked_ms("JoinWindows.of: grace", grace, faults)
        if not faults and sum(bounds) < 0:
            faults.append(
                f"JoinWindows.of: before + after must not be negative, but is {bounds[0]} + {bounds[1]} ms: "
                "no right record lies between the bounds"
            )
        _raise_if_any(faults)
        before_ms, after_ms = bounds
        return JoinWindows(before_ms, after_ms, grace_ms)

    @property
    def size_ms(self) -> int:
        """The length of the join window."""
        return self.before_ms + self.after_ms


def subclass_fault(windows: object) -> str | None:
    """Why windows of a user's own class cannot be used, or None.

    Stores and topics keep a window's start alone, so that every reader must know its end by the windows' size: a class
    that overrides `starts` or `end` would be one thing to its aggregate and another to whoever reads the result.

    >>> subclass_fault(UnlimitedWindows(0))
    """
    kind = type(windows)
    if kind in (TimeWindows, UnlimitedWindows, SlidingWindows, SessionWindows):
        return None
    base = next(c.__name__ for c in kind.__mro__ if c.__module__ == __name__)
    return (
        f"{kind.__qualname__} is a subclass of {base}, and windows of your own are not supported: where one ends must "
        f"follow from its start and one size, as {base}.of(...) has it. For other stretches of time, such as days in a "
        "time zone, put the stretch into the key: group_by(lambda key, value: [key, day_of(value)])"
    )


Windows: TypeAlias = TimeWindows | UnlimitedWindows | SlidingWindows | SessionWindows
