import pickle
import re
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.dsl.windows import JoinWindows, SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows
from headwater.errors import TopologyError


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


@given(st.data())
def test_starts_are_all_aligned_windows_that_hold_the_timestamp(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 60))
    advance = data.draw(st.integers(1, size))
    timestamp = data.draw(st.integers(0, 300))
    windows = TimeWindows.of(ms(size), advance=ms(advance))
    expected = [start for start in range(0, 301, advance) if start <= timestamp < start + size]
    assert list(windows.starts(timestamp)) == expected
    assert all(windows.end(start) == start + size for start in expected)


def test_large_timestamps_stay_exact() -> None:
    assert list(TimeWindows.of(ms(1000)).starts(2**62 + 5)) == [(2**62 + 5) // 1000 * 1000]


@given(st.integers(0, 100), st.integers(0, 100))
def test_an_unlimited_window_holds_everything_from_its_start(start: int, timestamp: int) -> None:
    windows = UnlimitedWindows.of(start)
    assert list(windows.starts(timestamp)) == ([start] if timestamp >= start else [])
    assert windows.end(start) == windows.size_ms == 2**63 - 1
    assert windows.grace_ms == 0


def test_fields() -> None:
    assert TimeWindows.of(ms(50)) == TimeWindows(size_ms=50, advance_ms=50, grace_ms=0)
    assert TimeWindows.of(ms(50), ms(7), ms(20)) == TimeWindows(size_ms=50, advance_ms=20, grace_ms=7)
    assert SlidingWindows.of(ms(0), grace=ms(3)) == SlidingWindows(difference_ms=0, grace_ms=3)
    assert SessionWindows.of(ms(0), grace=ms(3)) == SessionWindows(gap_ms=0, grace_ms=3)
    assert JoinWindows.of(ms(5)) == JoinWindows(before_ms=5, after_ms=5, grace_ms=0)
    assert JoinWindows.of(ms(5), after=ms(9), grace=ms(1)) == JoinWindows(before_ms=5, after_ms=9, grace_ms=1)
    assert JoinWindows.of(before=ms(-3), after=ms(9)) == JoinWindows(before_ms=-3, after_ms=9, grace_ms=0)
    assert JoinWindows.of(before=ms(-9), after=ms(9)).size_ms == 0


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: TimeWindows.of(ms(0)), ["size must be at least 1 ms"]),
        (lambda: TimeWindows.of(ms(5), advance=ms(0)), ["advance must be at least 1 ms"]),
        (lambda: TimeWindows.of(ms(5), advance=ms(6)), ["advance must not exceed size"]),
        (lambda: TimeWindows.of(ms(5), grace=ms(-1)), ["grace must not be negative"]),
        (lambda: TimeWindows.of(60000), [r"size must be a timedelta.*timedelta\(milliseconds=60000\)"]),
        (lambda: TimeWindows.of("1m", grace=None), ["size must be a timedelta", "grace must be a timedelta"]),
        (lambda: TimeWindows.of(timedelta(microseconds=1500)), ["whole milliseconds"]),
        (lambda: SlidingWindows.of(ms(-1), grace=ms(-1)), ["difference must not", "grace must not"]),
        (lambda: SessionWindows.of(ms(-1), grace=ms(-1)), ["gap must not", "grace must not"]),
        (lambda: UnlimitedWindows.of(-1), ["start must be"]),
        (lambda: UnlimitedWindows.of(ms(1)), ["start must be"]),
        (lambda: JoinWindows.of(), ["give before=", "give after="]),
        (lambda: JoinWindows.of(before=ms(1)), ["give after= or difference="]),
        (lambda: JoinWindows.of(ms(-1)), [r"before \+ after must not be negative, but is -1 \+ -1 ms"]),
        (lambda: JoinWindows.of(before=ms(-2), after=ms(1)), [r"before \+ after"]),
        (lambda: JoinWindows.of(ms(1), grace=ms(-1)), ["grace must not"]),
    ],
)
def test_faults_name_the_argument(make: Any, says: list[str]) -> None:
    with pytest.raises(TopologyError) as error:
        make()
    assert len(error.value.faults) == len(says)
    for fault, pattern in zip(error.value.faults, says, strict=True):
        assert re.search(pattern, fault), fault


@pytest.mark.parametrize(
    "windows",
    [
        TimeWindows.of(ms(1)),
        UnlimitedWindows.of(),
        SlidingWindows.of(ms(1)),
        SessionWindows.of(ms(1)),
        JoinWindows.of(ms(1)),
    ],
)
def test_windows_are_values(windows: Any) -> None:
    assert pickle.loads(pickle.dumps(windows)) == windows
    assert hash(windows) == hash(pickle.loads(pickle.dumps(windows)))
