"""A backfill over four partitions through one worker on the embedded log ends as in the test driver, and nothing is
dropped: its tasks advance together in event time."""

from datetime import timedelta
from pathlib import Path

import pytest

from tests.streams.backfills import KINDS, backfilled, expected, records

RECORDS = 1_500


@pytest.mark.parametrize("kind", KINDS)
def test_a_backfill_over_several_partitions_loses_nothing_behind_a_repartition(kind: str, tmp_path: Path) -> None:
    sent = records(RECORDS)
    assert backfilled(kind, sent, tmp_path) == (expected(kind, sent), 0)


@pytest.mark.parametrize("kind", ["tumbling", "joined_with_a_source", "window_behind_window"])
def test_a_backfill_in_order_needs_no_grace(kind: str, tmp_path: Path) -> None:
    sent, none = records(RECORDS, seed=11, disorder_ms=0), timedelta(0)
    assert backfilled(kind, sent, tmp_path, grace=none) == (expected(kind, sent, grace=none), 0)


@pytest.mark.parametrize("kind", ["table_then_window", "sessions"])
def test_a_backfill_at_least_once_loses_nothing_either(kind: str, tmp_path: Path) -> None:
    sent = records(RECORDS, seed=3)
    assert backfilled(kind, sent, tmp_path, exactly_once=False) == (expected(kind, sent), 0)


def test_the_control_without_waiting_and_merging_drops_records_and_counts_them(tmp_path: Path) -> None:
    sent = records(RECORDS)
    rows, dropped = backfilled("tumbling", sent, tmp_path, compat="kafka-streams")
    assert dropped > 0
    assert rows != expected("tumbling", sent)
