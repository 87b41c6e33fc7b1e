"""Suppress: how long a table's updates are held back, and what happens when too many are. It owns the description; the
buffer itself is the operator's."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from headwater.dsl.durations import checked_ms
from headwater.errors import TopologyError

__all__ = ["Suppress"]


@dataclass(frozen=True, slots=True)
class Suppress:
    """When a suppressed update is emitted; `None` bounds mean unbounded."""

    kind: Literal["window-closes", "time-limit"]
    limit_ms: int | None
    max_records: int | None
    max_bytes: int | None
    full: Literal["emit-early", "fail"]

    @staticmethod
    def until_window_closes(
        max_records: int | None = None, max_bytes: int | None = None, full: Literal["fail"] = "fail"
    ) -> "Suppress":
        """Emits one final result per window, when stream time reaches the window's end + grace.

        Emitting early would make a result that is not final, so a full buffer can only fail.

        >>> from headwater import Suppress
        >>> Suppress.until_window_closes(max_records=1000).full
        'fail'
        """
        faults = _faults("until_window_closes", max_records, max_bytes, full, ["fail"])
        if faults:
            raise TopologyError(faults)
        return Suppress("window-closes", None, max_records, max_bytes, full)

    @staticmethod
    def until_time_limit(
        limit: timedelta,
        max_records: int | None = None,
        max_bytes: int | None = None,
        full: Literal["emit-early", "fail"] = "emit-early",
    ) -> "Suppress":
        """Emits a key's latest update once stream time is `limit` past the first update held back for it.

        >>> from datetime import timedelta
        >>> from headwater import Suppress
        >>> Suppress.until_time_limit(timedelta(seconds=30)).limit_ms
        30000
        """
        faults = _faults("until_time_limit", max_records, max_bytes, full, ["emit-early", "fail"])
        limit_ms = checked_ms("Suppress.until_time_limit: limit", limit, faults)
        if faults:
            raise TopologyError(faults)
        return Suppress("time-limit", limit_ms, max_records, max_bytes, full)


def _faults(method: str, max_records: object, max_bytes: object, full: object, allowed: list[str]) -> list[str]:
    faults = [
        f"Suppress.{method}: {argument} must be a number from 0 on, or left out for no bound, but is {bound!r}"
        for argument, bound in (("max_records", max_records), ("max_bytes", max_bytes))
        if bound is not None and (type(bound) is not int or bound < 0)
    ]
    if full not in allowed:
        wanted = " or ".join(f'"{word}"' for word in allowed)
        remedy = ": a result emitted early would not be final; use until_time_limit" if full == "emit-early" else ""
        faults.append(f"Suppress.{method}: full must be {wanted}, but is {full!r}{remedy}")
    return faults
