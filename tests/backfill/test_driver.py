"""The test driver with four partitions gives what plain Python gives: other back ends are measured by it."""

import pytest

from tests.backfill.inputs import BEGIN, DISORDER_MS, END, KEYS, PARTITIONS, Inputs
from tests.backfill.players import by_driver
from tests.backfill.runs import Run, check_counted, check_equal, few, late, runs
from tests.backfill.topologies import CASES, GROUPS, LATE, read_by


@pytest.mark.parametrize("run", runs(), ids=str)
def test_the_driver_gives_what_plain_python_gives(run: Run) -> None:
    check_equal(run, by_driver(run.build(), run.inputs, run.names))


@pytest.mark.parametrize("run", few("windows", "merged", "shop"), ids=str)
def test_what_comes_one_partition_after_the_other_is_found_missing_and_counted(run: Run) -> None:
    """The control: a back end that lets one partition run ahead loses records, and all of this notices."""
    outcome = by_driver(run.build(), run.inputs, run.names, one_after_the_other=True)
    assert check_counted(run, outcome) > run.inputs.size // 2
    with pytest.raises(AssertionError, match="differ"):
        check_equal(run, outcome)


def test_what_is_late_is_counted() -> None:
    run = late()
    assert check_counted(run, by_driver(run.build(), run.inputs, run.names)) > 100


def test_the_inputs_are_as_they_say() -> None:
    inputs = Inputs(2_000)
    for events in (inputs.orders, inputs.clicks, inputs.members):
        assert len(events) == 2_000
        assert len({event.key for event in events}) > KEYS // 2
        assert {event.sent().partition for event in events} == set(range(PARTITIONS))
        highest, behind = 0, []
        for event in events:
            highest = max(highest, event.timestamp)
            behind.append(highest - event.timestamp)
            assert BEGIN <= event.timestamp < END
        assert 3_000 < max(behind) <= DISORDER_MS
    assert inputs.orders == Inputs(2_000).orders != Inputs(2_000, seed=1).orders


def test_every_topology_of_the_registry_is_in_one_group_and_repartitions() -> None:
    assert sorted(name for names in (*GROUPS.values(), LATE) for name in names) == sorted(CASES)
    for run in [*runs(), late()]:
        topology = run.build()
        assert topology.internal_topics
        assert read_by(topology) <= {record.topic for record in run.inputs.of(read_by(topology))}
