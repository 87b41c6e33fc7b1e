"""The generators give the same input everywhere, which the examples read and answer."""

import hashlib
import importlib
import itertools
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from examples import data
from headwater import Topology, TopologyTestDriver

EXAMPLES = {
    "word_count": ["word-counts"],
    "revenue": ["revenue-per-country"],
    "trucks": ["trips"],
    "payments": ["fraud-alerts"],
    "database_changes": ["orders-with-customers", "open-per-city"],
    "error_rates": ["error-rates", "error-alerts"],
}
DIGEST = """
import hashlib
from examples import data
print([hashlib.sha256(repr(list(getattr(data, name)())).encode()).hexdigest() for name in %r])
"""


def digest(name: str) -> str:
    return hashlib.sha256(repr(list(getattr(data, name)())).encode()).hexdigest()


def test_another_process_makes_the_same_records() -> None:
    script = DIGEST % list(EXAMPLES)
    there = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert there.strip() == repr([digest(name) for name in EXAMPLES])


@pytest.mark.parametrize("name", EXAMPLES)
def test_seed_start_and_count_are_obeyed(name: str) -> None:
    make = getattr(data, name)
    assert list(make(seed=1)) != list(make(seed=2))
    topics = {topic for topic, *_ in make()} - {"users"}
    assert sum(topic in topics for topic, *_ in make(150)) == 150
    shifted = [(topic, key, at - 5000) for topic, key, _, at in make(start=data.START + 5000)]
    assert shifted == [(topic, key, at) for topic, key, _, at in make()]


@pytest.mark.parametrize("name", EXAMPLES)
def test_records_come_one_by_one(name: str) -> None:
    assert len(list(itertools.islice(getattr(data, name)(10**12), 50))) == 50


@pytest.mark.parametrize(("partitions", "memory"), [(1, True), (3, True), (1, False)])
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_answers_its_input(name: str, partitions: int, memory: bool) -> None:
    topology = importlib.import_module(f"examples.{name}").topology
    with TopologyTestDriver(topology, partitions=partitions, memory=memory, now=data.START) as driver:
        driver.send_all(getattr(data, name)())
        for topic in EXAMPLES[name]:
            assert driver.output(topic).read_all(), topic


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_script_runs_alone_and_no_state_hangs_on_a_generated_name(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    script = runpy.run_path(str(Path(data.__file__).with_name(f"{name}.py")))
    assert isinstance(script["topology"], Topology)
    assert caplog.messages == []
    # Its functions and classes are in no module that another process could import: they must travel along.
    with TopologyTestDriver(script["topology"], now=data.START) as driver:
        driver.restart()
        driver.send_all(getattr(data, name)())
        assert driver.output(EXAMPLES[name][0]).read_all()
