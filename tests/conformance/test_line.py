"""All traces through the stages of a Spark query, called without Spark."""

from pathlib import Path

import pytest

from tests.conformance.line import LinePlayer
from tests.conformance.replay import build, check, load_trace, replay, trace_files


@pytest.mark.parametrize("path", [pytest.param(path, id=f"line-{path.stem}") for path in trace_files()])
def test_trace(path: Path):
    trace = load_trace(path)
    topology, case = build(trace)
    with LinePlayer(trace, topology, case) as player:
        check(trace, replay(trace, player), "the line of stages")
