"""How far tasks may go in event time, asked of the rules alone."""

from dataclasses import dataclass
from datetime import timedelta

from headwater import Config, StreamsBuilder, TimeWindows, Topology
from headwater.dsl.durations import LONG_MAX
from headwater.streams.pace import PATIENCE_MS, Pace
from headwater.streams.plan import plan


@dataclass
class Fake:
    """A task of which a test says what it has."""

    first: int | None
    far: int = LONG_MAX
    fetching: bool = False
    awaiting: bool = False

    def next_time(self, now: int) -> int | None:
        return self.first

    def first_time(self) -> int | None:
        return self.first

    def time_after(self, count: int) -> int:
        return self.far


def regrouped() -> Topology:
    """Sub-topology 0 sends to 1, which also reads a topic of its own."""
    builder = StreamsBuilder()
    orders = builder.stream("orders").select_key(lambda key, value: value).repartition(name="again")
    merged = orders.merge(builder.stream("others")).group_by_key()
    merged.windowed_by(TimeWindows.of(timedelta(seconds=1))).count(store="counts")
    return builder.build()


def pace(topology: Topology, partitions: int = 2) -> Pace:
    return Pace(topology, plan(topology, Config("app"), lambda topic: partitions))


def given(tasks: dict[str, Fake]) -> dict[str, tuple[Fake, int]]:
    return {task_id: (task, 100) for task_id, task in tasks.items()}


def started(tasks: dict[str, Fake], topology: Topology | None = None) -> Pace:
    made = pace(topology or regrouped())
    for task_id in tasks:
        made.began(task_id)
    return made


def test_siblings_go_up_to_the_lowest_time_that_one_of_them_reaches() -> None:
    tasks = {"0_0": Fake(100, 900), "0_1": Fake(300, 700)}
    made = started(tasks)
    assert made.rounds(given(tasks), 0) == {"0_0": 700, "0_1": 700}
    # The round goes on until both have come there, wherever else they could go by now.
    tasks = {"0_0": Fake(750), "0_1": Fake(600, 5_000)}
    made.worked(tasks, {"0_0": 690, "0_1": 590}, 0)
    assert made.open
    assert made.rounds(given(tasks), 0) == {"0_0": 690, "0_1": 690}
    made.worked({"0_0": Fake(750), "0_1": Fake(800)}, {"0_1": 680}, 0)
    assert not made.open


def test_a_far_record_of_one_does_not_let_the_others_run() -> None:
    tasks = {"0_0": Fake(9_999_999, 9_999_999), "0_1": Fake(300, 700)}
    assert started(tasks).rounds(given(tasks), 0) == {"0_0": 700, "0_1": 700}


def test_a_task_waits_for_what_its_senders_have_reached_and_committed() -> None:
    tasks = {"0_0": Fake(100, 900), "0_1": Fake(300, 700), "1_0": Fake(200)}
    made = started(tasks)
    assert made.rounds(given(tasks), 0)["1_0"] < 0
    assert made.held_up(tasks, 0)
    later = tasks | {"0_0": Fake(800), "0_1": Fake(701)}
    made.committed(later, 0)
    assert made.rounds(given(later), 0)["1_0"] == 700
    assert not made.held_up(later, 0)
    # They are at their ends: nothing more to wait for.
    made.committed(tasks | {"0_0": Fake(None), "0_1": Fake(None)}, 0)
    assert made.rounds(given(tasks), 0)["1_0"] == LONG_MAX


def test_who_has_nothing_to_do_holds_nobody_up() -> None:
    tasks = {"0_0": Fake(None), "0_1": Fake(300)}
    assert started(tasks).rounds(given(tasks), 0) == {"0_0": LONG_MAX, "0_1": LONG_MAX}
    nobody = {"0_0": Fake(None), "0_1": Fake(None)}
    assert set(started(nobody).rounds(given(nobody), 0).values()) == {-2}


def test_records_on_their_way_and_tasks_that_start_later_are_waited_for_but_not_for_ever() -> None:
    tasks = {"0_0": Fake(None, fetching=True), "0_1": Fake(300)}
    made = started(tasks)
    assert set(made.rounds(given(tasks), 1_000).values()) == {-2}
    assert set(made.rounds(given(tasks), 1_000 + PATIENCE_MS).values()) == {LONG_MAX}
    behind = {"0_1": Fake(300, 700)}
    made = started(behind)
    assert made.rounds(given(behind), 1_000, missing=["0_0"]) == {"0_1": -2}
    assert made.rounds(given(behind), 1_000 + PATIENCE_MS, missing=["0_0"]) == {"0_1": 700}
    # One that is not behind waits for nobody.
    live = {"0_1": Fake(300)}
    assert started(live).rounds(given(live), 1_000, missing=["0_0"]) == {"0_1": LONG_MAX}


def test_in_a_circle_a_commit_spans_no_more_than_half_the_grace() -> None:
    builder = StreamsBuilder()
    orders = builder.stream("orders")
    both = orders.merge(orders.select_key(lambda key, value: value).repartition(name="again")).group_by_key()
    both.windowed_by(TimeWindows.of(timedelta(seconds=60), grace=timedelta(seconds=10))).count(store="counts")
    tasks = {"0_0": Fake(100_000, 900_000), "0_1": Fake(100_000, 900_000)}
    made = started(tasks, builder.build())
    made.committed(tasks, 0)
    assert made.rounds(given(tasks), 0) == {"0_0": 105_000, "0_1": 105_000}


def test_tasks_that_meet_nobody_are_left_alone() -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(store="counts").to_stream().to("out")
    tasks = {"0_0": Fake(100, 900), "0_1": Fake(300, 700)}
    made = started(tasks, builder.build())
    assert made.rounds(given(tasks), 0) == {}
    assert not made.held_up(tasks, 0)
