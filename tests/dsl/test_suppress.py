from datetime import timedelta
from typing import Any

import pytest

from headwater.dsl.suppress import Suppress
from headwater.errors import TopologyError


def test_fields() -> None:
    assert Suppress.until_window_closes() == Suppress("window-closes", None, None, None, "fail")
    assert Suppress.until_window_closes(5, 600) == Suppress("window-closes", None, 5, 600, "fail")
    limit = timedelta(milliseconds=7)
    assert Suppress.until_time_limit(limit) == Suppress("time-limit", 7, None, None, "emit-early")
    assert Suppress.until_time_limit(limit, max_bytes=0, full="fail") == Suppress("time-limit", 7, None, 0, "fail")


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (lambda: Suppress.until_window_closes(full="emit-early"), 1),
        (lambda: Suppress.until_window_closes(max_records=-1, max_bytes=1.5, full="drop"), 3),
        (lambda: Suppress.until_time_limit(timedelta(-1), max_records=True, full="drop"), 3),
        (lambda: Suppress.until_time_limit(30), 1),
    ],
)
def test_faults_come_together(make: Any, count: int) -> None:
    with pytest.raises(TopologyError) as error:
        make()
    assert len(error.value.faults) == count


def test_a_final_result_is_never_emitted_early() -> None:
    with pytest.raises(TopologyError, match="would not be final"):
        Suppress.until_window_closes(full="emit-early")  # type: ignore[arg-type]
