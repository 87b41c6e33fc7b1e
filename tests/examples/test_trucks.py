"""Trips merge when the missing positions arrive, and silence is noticed without a record."""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from examples import data
from examples.trucks import topology
from headwater import TopologyTestDriver, Windowed

MINUTE = 60_000
HERE = {"lat": 45.5, "lon": 9.2}


@pytest.fixture
def driver() -> Iterator[TopologyTestDriver]:
    with TopologyTestDriver(topology) as driver:
        yield driver


def report(driver: TopologyTestDriver, minute: int, km: int = 0, truck: str = "t1", parked: bool = False) -> None:
    driver.input("positions").send(truck, {**HERE, "km": km, "parked": parked}, at=minute * MINUTE)


def trips(driver: TopologyTestDriver) -> list[tuple[int, int, Any]]:
    """The new updates of trips: first minute, last minute, kilometres (None for a deletion)."""
    return [
        (trip.key.start // MINUTE, trip.key.end // MINUTE, trip.value and trip.value["to_km"] - trip.value["from_km"])
        for trip in driver.output("trips").read_all()
    ]


def alarms(driver: TopologyTestDriver) -> list[tuple[str, Any]]:
    return [(alarm.key, alarm.value) for alarm in driver.output("silent-trucks").read_all()]


def wait(driver: TopologyTestDriver, minutes: int) -> None:
    """Let minutes pass on the wall, one by one."""
    for _ in range(minutes):
        driver.advance(timedelta(minutes=1))


def test_a_trip_ends_when_a_truck_rests_for_more_than_ten_minutes(driver: TopologyTestDriver) -> None:
    report(driver, 0, km=100)
    report(driver, 10, km=108)
    report(driver, 21, km=108)
    assert trips(driver) == [(0, 0, 0), (0, 0, None), (0, 10, 8), (21, 21, 0)]


def test_positions_from_a_dead_spot_make_one_trip_of_two(driver: TopologyTestDriver) -> None:
    report(driver, 0, km=100)
    report(driver, 18, km=120)
    assert trips(driver) == [(0, 0, 0), (18, 18, 0)]
    report(driver, 9, km=111)
    assert trips(driver) == [(0, 0, None), (18, 18, None), (0, 18, 20)]
    kept = {"from_km": 100, "to_km": 120, "reports": 3}
    assert list(driver.store("trips").fetch("t1")) == [(Windowed("t1", 0, 18 * MINUTE), kept)]


def test_a_position_that_comes_after_the_grace_is_dropped_and_counted(driver: TopologyTestDriver) -> None:
    report(driver, 60, truck="t2")
    report(driver, 20)
    assert driver.metrics()["late-records-total"] == 0
    report(driver, 19, truck="t3")
    assert driver.metrics()["late-records-total"] == 1
    assert [trip.key.key for trip in driver.output("trips").read_all()] == ["t2", "t1"]


def test_a_silent_truck_raises_one_alarm_although_no_record_arrives(driver: TopologyTestDriver) -> None:
    report(driver, 0)
    wait(driver, 15)
    assert alarms(driver) == []
    wait(driver, 1)
    assert alarms(driver) == [("t1", {"silent_since": 0, "place": [45.5, 9.2]})]
    wait(driver, 60)
    assert alarms(driver) == []


def test_the_alarm_is_deleted_when_the_truck_reports_and_may_come_again(driver: TopologyTestDriver) -> None:
    report(driver, 0)
    wait(driver, 20)
    alarms(driver)
    report(driver, 20)
    assert alarms(driver) == [("t1", None)]
    wait(driver, 16)
    assert [(truck, alarm["silent_since"]) for truck, alarm in alarms(driver)] == [("t1", 20 * MINUTE)]


def test_other_trucks_reports_are_no_sign_of_life(driver: TopologyTestDriver) -> None:
    report(driver, 0)
    for minute in range(20):
        report(driver, minute, truck="t2")
        wait(driver, 1)
    assert [truck for truck, _ in alarms(driver)] == ["t1"]


def test_a_parked_truck_may_be_silent_even_if_an_older_position_arrives_later(driver: TopologyTestDriver) -> None:
    report(driver, 0)
    report(driver, 5, parked=True)
    report(driver, 3)
    wait(driver, 120)
    assert alarms(driver) == []


def test_silence_is_noticed_across_a_restart(driver: TopologyTestDriver) -> None:
    report(driver, 0)
    wait(driver, 10)
    driver.restart()
    wait(driver, 6)
    assert [truck for truck, _ in alarms(driver)] == ["t1"]


def test_a_morning_of_the_fleet() -> None:
    with TopologyTestDriver(topology, now=data.START) as driver:
        for topic, truck, position, at in data.trucks(600):
            driver.advance(timedelta(milliseconds=max(0, at - driver.now)))
            driver.input(topic).send(truck, position, at=at)
        assert [(truck, alarm is None) for truck, alarm in alarms(driver)] == [
            ("truck-1", False),
            ("truck-2", False),
            ("truck-1", True),
            ("truck-2", True),
        ]
        kept = {}
        for trip in driver.output("trips").read_all():
            kept[trip.key] = trip.value
    count = Counter(session.key for session, trip in kept.items() if trip is not None)
    # What truck-1 did not send in time belongs to the trip it was on; the other two began a new one.
    assert {truck: trips for truck, trips in count.items() if trips > 1} == {"truck-2": 2, "truck-3": 2}
    assert len(count) == 10
