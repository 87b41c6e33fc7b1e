"""The wall clock, and how times are written for people. It owns nothing that a result depends on."""

import time
from datetime import UTC, datetime, timedelta

__all__ = ["FIRST_DATE_MS", "HOUR_MS", "date_of", "duration_of", "system_clock"]

HOUR_MS = 3_600_000
# A clock before the year 2000 counts from some start, as a test's does, and says nothing about dates.
FIRST_DATE_MS = 946_684_800_000


def system_clock() -> int:
    """Epoch milliseconds."""
    return time.time_ns() // 1_000_000


def date_of(time: int) -> str:
    """A time in epoch milliseconds as a date in UTC; the number itself where no calendar reaches.

    >>> date_of(253402300799999), date_of(1 << 60)
    ('9999-12-31T23:59:59.999Z', '1152921504606846976')
    """
    try:
        return f"{datetime.fromtimestamp(time // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{time % 1000:03d}Z"
    except (OverflowError, OSError, ValueError):
        return str(time)


def duration_of(ms: int) -> str:
    """Some milliseconds as a duration.

    >>> duration_of(5_400_000), duration_of(1 << 60)
    ('1:30:00', '1152921504606846976 ms')
    """
    try:
        return str(timedelta(milliseconds=ms))
    except OverflowError:
        return f"{ms} ms"
