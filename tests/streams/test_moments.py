"""Windows of a single moment: sliding ones with a difference of 0, sessions with a gap of 0. Each must hold the records
of a key that have the same timestamp, against a definition by brute force, on every way of emitting."""

from collections import defaultdict
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwater import (
    Config,
    SessionWindows,
    SlidingWindows,
    Str,
    StreamsBuilder,
    TopologyError,
    TopologyTestDriver,
    Window,
)

Sent = list[tuple[str, int]]
Result = tuple[str, int, int, str]


def brute_force(records: Sent, grace: int) -> tuple[list[Result], list[Result], int]:
    """The updates, the final results of the windows that closed, by start and key, and how many records were late."""
    updates: list[Result] = []
    closed: list[Result] = []
    open_: dict[tuple[int, str], str] = defaultdict(str)
    now, late = -1, 0
    for number, (key, at) in enumerate(records):
        now = max(now, at)
        if at < now - grace:
            late += 1
            continue
        for window in sorted(window for window in open_ if window[0] < now - grace):
            closed.append((window[1], window[0], window[0], open_.pop(window)))
        open_[at, key] += str(number)
        updates.append((key, at, at, open_[at, key]))
    return updates, closed, late


def run(kind: str, records: Sent, grace: int, when: Any, cache: int = 0) -> tuple[list[Result], int]:
    windows = SlidingWindows if kind == "sliding" else SessionWindows
    builder = StreamsBuilder(key=Str(), value=Str())
    grouped = builder.stream("in").group_by_key()
    windowed = grouped.windowed_by(windows.of(timedelta(0), grace=timedelta(milliseconds=grace)))
    windowed.emit_strategy(when).reduce(lambda a, b: a + b, store="s").to_stream().to("out", value=Str())
    with TopologyTestDriver(builder.build(), Config("app", cache_bytes=cache)) as driver:
        for number, (key, at) in enumerate(records):
            driver.input("in").send(key, str(number), at=at)
        found = [(r.key.key, r.key.start, r.key.end, r.value) for r in driver.output("out").read_all()]
        return found, driver.metrics()["late-records-total"]


RECORDS = st.lists(
    st.tuples(st.sampled_from("ab"), st.one_of(st.integers(0, 12), st.integers(0, 200_000))), max_size=12
)


@pytest.mark.parametrize("kind", ["sliding", "session"])
@settings(max_examples=60, deadline=None)
@given(RECORDS, st.integers(0, 10))
@example([("a", 5), ("a", 5), ("a", 5)], 0)
@example([("a", 5), ("b", 200_000), ("b", 200_000)], 0)
@example([("a", 5), ("a", 12), ("a", 5), ("a", 4)], 7)
def test_windows_of_a_moment_hold_all_records_of_that_moment(kind: str, records: Sent, grace: int) -> None:
    updates, closed, late = brute_force(records, grace)
    assert run(kind, records, grace, "on-update") == (updates, late)
    assert run(kind, records, grace, "on-close") == (closed, late)


@pytest.mark.parametrize("kind", ["sliding", "session"])
def test_windows_of_a_moment_hold_all_records_with_the_record_cache_too(kind: str) -> None:
    records = [("a", 5), ("a", 5), ("a", 9), ("a", 5)]
    assert run(kind, records, 10, "on-update", cache=1 << 20)[0][-1] == ("a", 5, 5, "013")


def test_a_store_for_windows_of_a_moment_that_would_keep_nothing_is_refused() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by_key().windowed_by(SlidingWindows.of(timedelta(0)))
    grouped.count(store=Window("s", retention=timedelta(0)))
    with pytest.raises(TopologyError, match="store 's': retention must be at least 1 ms plus the grace: 1 ms, not 0"):
        builder.build()
