"""Config(optimize=…): a topology that was built otherwise is refused before anything is written."""

from pathlib import Path
from typing import Any

import pytest

from headwater import Config, StreamsBuilder, Topology, TopologyError, TopologyTestDriver
from headwater.streams.run import open_app
from tests.spark.line import Line
from tests.streams.apps import Place

SELF_JOIN = frozenset({"self-join"})


def built(optimize: Any) -> Topology:
    builder = StreamsBuilder()
    builder.table("in", store="t").to_stream().to("out")
    return builder.build(optimize=optimize)


@pytest.mark.parametrize(
    ("wanted", "optimize"), [(True, False), (True, SELF_JOIN), (SELF_JOIN, False), (SELF_JOIN, True)]
)
def test_a_topology_built_without_the_optimizations_of_config_is_refused(
    wanted: Any, optimize: Any, tmp_path: Path
) -> None:
    topology, config = built(optimize), Config("app", optimize=wanted)
    with pytest.raises(TopologyError, match=r"Config\(optimize=.*was built with optimize=.*write builder.build\("):
        TopologyTestDriver(topology, config)
    place = Place(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(TopologyError, match="was built with optimize="):
        open_app(topology, config, place.broker)
    assert sorted(tmp_path.rglob("*")) == before
    with pytest.raises(TopologyError, match="was built with optimize="):
        Line(topology, config, ["in", "out"])


@pytest.mark.parametrize(
    ("wanted", "optimize"), [(True, True), (SELF_JOIN, SELF_JOIN), (True, set(SELF_JOIN) | {"reuse-source-topics"})]
)
def test_the_remedy_works(wanted: Any, optimize: Any) -> None:
    config = Config("app", optimize=wanted)
    with TopologyTestDriver(built(config.optimize), config) as driver:
        driver.input("in").send("k", 1, at=0)
        assert driver.store("t").get("k") == 1
    # What Config does not ask for may be there.
    with TopologyTestDriver(built(optimize), Config("app")) as driver:
        driver.input("in").send("k", 1, at=0)


def test_a_topology_made_by_hand_has_nothing_to_optimize() -> None:
    topology = Topology().add_source("s", "in").add_sink("o", "out", "s")
    with TopologyTestDriver(topology, Config("app", optimize=True)) as driver:
        driver.input("in").send("k", 1, at=0)
        assert len(driver.output("out").read_all()) == 1
