import pickle
import re
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import Json, StreamsBuilder, TopologyTestDriver
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


def of_the_kind(base: Any, *fields: int) -> Any:
    """Windows of a user's own class."""
    return type("Daily", (base,), {"__slots__": (), "end": lambda self, start: start + 1})(*fields)


@pytest.mark.parametrize(
    "windows",
    [
        of_the_kind(TimeWindows, 10, 10, 0),
        of_the_kind(UnlimitedWindows, 0),
        of_the_kind(SlidingWindows, 10, 0),
        of_the_kind(SessionWindows, 10, 0),
    ],
    ids=lambda windows: type(windows).__mro__[1].__name__,
)
def test_windows_of_a_class_of_ones_own_are_refused_by_name(windows: Any) -> None:
    grouped = StreamsBuilder().stream("in").group_by_key()
    named = r"windowed_by\(\): Daily is a subclass of .*, and windows of your own are not supported.*group_by\("
    with pytest.raises(TopologyError, match=named):
        grouped.windowed_by(windows)
    with pytest.raises(TopologyError, match=named):
        grouped.cogroup(lambda key, value, total: total).windowed_by(windows)


def test_join_windows_of_a_class_of_ones_own_are_refused_by_name() -> None:
    builder = StreamsBuilder()
    with pytest.raises(TopologyError, match="Daily: use JoinWindows itself"):
        builder.stream("a").join(builder.stream("b"), lambda a, b: a, of_the_kind(JoinWindows, 1, 1, 0))


def test_days_in_a_time_zone_as_the_refusal_says() -> None:
    """The remedy: a key of one's own, here over the hour that Paris skipped on 2026-03-29."""
    paris = ZoneInfo("Europe/Paris")

    def day_of(value: int) -> str:
        return datetime.fromtimestamp(value, paris).date().isoformat()

    builder = StreamsBuilder()
    builder.stream("in").group_by(lambda key, value: [key, day_of(value)], key=Json()).count(store="per-day")
    first, last = (datetime(2026, 3, 29, hour, 30, tzinfo=paris) for hour in (0, 23))
    with TopologyTestDriver(builder.build()) as driver:
        for time in (first, last, last + timedelta(hours=1), first - timedelta(hours=1)):
            seconds = int(time.timestamp())
            driver.input("in").send("k", seconds, at=seconds * 1000)
        found = {tuple(key): count for key, count in driver.store("per-day").all()}
    assert found == {("k", "2026-03-28"): 1, ("k", "2026-03-29"): 2, ("k", "2026-03-30"): 1}
