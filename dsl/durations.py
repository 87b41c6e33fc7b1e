"""Durations as users give them (timedelta) and as the rest computes with them (whole milliseconds). It owns the checks
that every duration argument shares, and collects faults instead of raising them one by one."""

from datetime import timedelta

__all__ = ["LONG_MAX", "checked_ms", "to_ms"]

LONG_MAX = 2**63 - 1
_MILLISECOND = timedelta(milliseconds=1)


def to_ms(duration: timedelta) -> int:
    """The whole milliseconds of a duration that was checked before.

    >>> to_ms(timedelta(minutes=1, milliseconds=5))
    60005
    """
    return duration // _MILLISECOND


def checked_ms(argument: str, duration: object, faults: list[str], least: int | None = 0) -> int:
    """The milliseconds of a user's duration; what is wrong with it goes into `faults`, and the answer is then 0.

    >>> faults = []
    >>> checked_ms("TimeWindows.of: grace", timedelta(seconds=-1), faults), faults
    (0, ['TimeWindows.of: grace must not be negative, but is -1000 ms'])
    """
    if not isinstance(duration, timedelta):
        remedy = f"write timedelta(milliseconds={duration})" if type(duration) is int else "write timedelta(seconds=…)"
        faults.append(f"{argument} must be a timedelta, but is {duration!r}: {remedy}")
        return 0
    ms, rest = divmod(duration, _MILLISECOND)
    if rest:
        faults.append(f"{argument} must be whole milliseconds, but is {duration!r}: round it")
        return 0
    if least is not None and ms < least:
        wanted = "must not be negative" if least == 0 else f"must be at least {least} ms"
        faults.append(f"{argument} {wanted}, but is {ms} ms")
        return 0
    return ms
