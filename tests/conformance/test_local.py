"""Seed 0 of every topology through the real worker over the embedded log, step by step."""

from pathlib import Path

import pytest

from tests.conformance.local import WorkerPlayer
from tests.conformance.replay import build, check, load_trace, replay, trace_files

SEED_0 = [path for path in trace_files() if path.stem.endswith(".0")]


@pytest.mark.parametrize("path", [pytest.param(path, id=f"local-{path.stem}") for path in SEED_0])
def test_trace(path: Path) -> None:
    trace = load_trace(path)
    topology, case = build(trace)
    with WorkerPlayer(trace, topology, case) as player:
        check(trace, replay(trace, player), "local")
