"""Which topologies are run, on how many records, and what must hold for what they have written."""

import os
from functools import cache
from typing import NamedTuple

from headwater import Topology
from tests.backfill.inputs import Inputs
from tests.backfill.results import Outcome, Row, difference, lost_records
from tests.backfill.topologies import CASES, GROUPS, LATE, build

# All of it takes half an hour: `make backfill`.
ALL = os.environ.get("HEADWATER_BACKFILL") == "all"
FEW, MANY = 2_000, 20_000


class Run(NamedTuple):
    """Topologies of the registry as one application, and its inputs."""

    label: str
    names: tuple[str, ...]
    inputs: Inputs

    def build(self, prefix: str = "") -> Topology:
        return build(self.names, prefix)

    def expected(self, name: str) -> list[Row]:
        return _expected(name, self.inputs)

    def __str__(self) -> str:
        return f"{self.label}-{self.inputs.size}"


@cache
def _expected(name: str, inputs: Inputs) -> list[Row]:
    return CASES[name].expected(inputs)


def _run(label: str, names: tuple[str, ...], size: int, seed: int = 0) -> Run:
    return Run(label, names, Inputs(size, seed, step_ms=1_000 if "copies-at-equal-times" in names else 2))


def runs(*only: str) -> list[Run]:
    """Each group as one application, the shop's on many records; or some of the groups, where each takes long.

    When all is asked for: all groups, with another seed, and each topology alone on many records.
    """
    if not ALL:
        groups = {group: names for group, names in GROUPS.items() if not only or group in only}
        return [_run(group, names, MANY if group == "shop" else FEW) for group, names in groups.items()]
    alone = [_run(f"{name}-alone", (name,), MANY, seed=2) for name in CASES if name not in LATE]
    return few(*GROUPS, seed=1) + alone


def few(*groups: str, seed: int = 0) -> list[Run]:
    """Some groups, each as one application, on few records."""
    return [_run(group, GROUPS[group], FEW, seed) for group in groups]


def late() -> Run:
    """What drops records on every back end."""
    return _run("late", LATE, FEW)


def check_equal(run: Run, outcome: Outcome) -> None:
    """All is there, as plain Python has it, and nothing was dropped."""
    found = [difference(CASES[name], run.expected(name), outcome.rows[name]) for name in run.names]
    wrong = "\n".join(text for text in found if text is not None)
    assert not wrong, f"{run}: dropped {dict(outcome.dropped)}\n{wrong}"
    assert outcome.dropped == {}


def check_counted(run: Run, outcome: Outcome, *, once: bool = True) -> int:
    """What is missing was dropped and counted, under the name of a step; how many records were.

    Work that is done again after a transaction was given up is counted again: then a record is not counted only `once`.
    """
    for name in run.names:
        case = CASES[name]
        dropped = sum(count for step, count in outcome.dropped.items() if step.startswith(name))
        text = difference(case, run.expected(name), outcome.rows[name])
        if dropped == 0:
            assert text is None, text
        if case.records is not None:
            lost = lost_records(case, run.expected(name), outcome.rows[name])
            assert lost == dropped if once else lost <= dropped, f"{name}: {lost} lost, {outcome.dropped}"
    named = sum(count for step, count in outcome.dropped.items() if step.startswith(run.names))
    assert named == outcome.dropped.total(), f"{run}: of no topology's steps: {dict(outcome.dropped)}"
    return named
