"""Backfills on the embedded log: one worker drops nothing; of several, what is missing is counted."""

from pathlib import Path

import pytest

from tests.backfill.players import by_two_workers, by_worker
from tests.backfill.runs import Run, check_counted, check_equal, late, runs


@pytest.mark.parametrize("run", runs(), ids=str)
def test_one_worker_drops_nothing_in_a_backfill(run: Run, tmp_path: Path) -> None:
    check_equal(run, by_worker(run.build(), run.inputs, run.names, tmp_path))


@pytest.mark.parametrize("run", runs(), ids=str)
def test_of_two_workers_what_is_missing_is_counted_by_step(run: Run, tmp_path: Path) -> None:
    check_counted(run, by_two_workers(run.build(), run.inputs, run.names, tmp_path))


def test_what_is_late_is_counted_by_step(tmp_path: Path) -> None:
    run = late()
    assert check_counted(run, by_worker(run.build(), run.inputs, run.names, tmp_path)) > 100
