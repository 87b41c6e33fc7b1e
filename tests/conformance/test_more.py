"""More topologies than the oracle's own, replayed in memory: their traces come from Kafka Streams too (see oracle/)."""

from pathlib import Path

import pytest

from tests.conformance.case import Case
from tests.conformance.driver import DriverPlayer
from tests.conformance.more_joins import TOPOLOGIES as JOINS
from tests.conformance.more_windows import TOPOLOGIES as WINDOWS
from tests.conformance.replay import check, load_trace, replay

MORE = sorted((Path(__file__).parent / "more").glob("*.json"))
TOPOLOGIES = {**JOINS, **WINDOWS}


def test_every_topology_has_a_trace() -> None:
    assert {path.stem.rsplit(".", 1)[0] for path in MORE} == TOPOLOGIES.keys()


@pytest.mark.parametrize("path", [pytest.param(path, id=f"driver-memory-{path.stem}") for path in MORE])
def test_trace(path: Path) -> None:
    trace = load_trace(path)
    case = Case(trace.body["config"])
    topology = TOPOLOGIES[trace.topology](case)
    with DriverPlayer(trace, topology, case) as player:
        check(trace, replay(trace, player), "driver-memory")


@pytest.mark.parametrize("path", [pytest.param(path, id=f"driver-compat-{path.stem}") for path in MORE])
def test_trace_under_compat(path: Path) -> None:
    trace = load_trace(path)
    case = Case(trace.body["config"])
    topology = TOPOLOGIES[trace.topology](case)
    with DriverPlayer(trace, topology, case, compat="kafka-streams") as player:
        check(trace, replay(trace, player), "driver-compat")
