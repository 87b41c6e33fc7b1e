"""Every trace, step by step, through the test driver: with rows in memory and on RocksDB."""

import json
from pathlib import Path

import pytest

from tests.conformance.driver import DriverPlayer
from tests.conformance.replay import TRACES, build, check, load_trace, replay, trace_files
from tests.conformance.topologies import TOPOLOGIES

MEMORY = {"memory": True, "rocks": False}


@pytest.mark.parametrize(
    ("path", "rows"),
    [pytest.param(path, rows, id=f"driver-{rows}-{path.stem}") for rows in MEMORY for path in trace_files()],
)
def test_trace(path: Path, rows: str) -> None:
    trace = load_trace(path)
    topology, case = build(trace)
    with DriverPlayer(trace, topology, case, memory=MEMORY[rows]) as player:
        check(trace, replay(trace, player), f"driver-{rows}")


@pytest.mark.parametrize("path", [pytest.param(path, id=f"driver-compat-{path.stem}") for path in trace_files()])
def test_trace_under_compat(path: Path) -> None:
    trace = load_trace(path)
    topology, case = build(trace)
    with DriverPlayer(trace, topology, case, compat="kafka-streams") as player:
        check(trace, replay(trace, player), "driver-compat")


def test_there_are_traces_to_replay() -> None:
    assert trace_files()


def test_the_project_has_every_trace_of_its_index_and_a_topology_for_each() -> None:
    index = json.loads((TRACES / "index.json").read_text())
    files = {trace["file"] for entry in index["topologies"] for trace in entry["traces"].values()}
    assert files == {path.name for path in TRACES.glob("*.json")} - {"index.json"}
    assert {entry["topology"] for entry in index["topologies"]} == set(TOPOLOGIES)
