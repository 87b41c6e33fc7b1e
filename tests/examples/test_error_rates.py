"""One final rate per service and minute, by the time that stands in the lines."""

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from examples import data
from examples.error_rates import topology, written_at
from headwater import SourceRecord, TopologyTestDriver


@pytest.fixture
def driver() -> Iterator[TopologyTestDriver]:
    with TopologyTestDriver(topology) as driver:
        yield driver


def log(
    driver: TopologyTestDriver, time: str, level: str = "INFO", service: str = "cart"
) -> list[tuple[str, str, float]]:
    """The rates that a line written at minutes:seconds leads to: service, minute, percent."""
    driver.input("logs").send("host-1", f"2026-03-02T08:{time}.000Z {service} {level} some text", at=0)
    return rates(driver)


def rates(driver: TopologyTestDriver, topic: str = "error-rates") -> list[tuple[str, str, float]]:
    return [
        (rate.key.key, f"08:{(rate.key.start - data.START) // 60_000:02}", rate.value["percent"])
        for rate in driver.output(topic).read_all()
    ]


def test_a_rate_is_told_once_when_its_minute_and_the_grace_are_over(driver: TopologyTestDriver) -> None:
    assert log(driver, "00:00", "ERROR") == []
    for second in range(1, 20):
        assert log(driver, f"00:{second:02}") == []
    assert log(driver, "01:14") == []
    assert log(driver, "01:15") == [("cart", "08:00", 5.0)]


def test_an_early_error_wakes_nobody(driver: TopologyTestDriver) -> None:
    log(driver, "00:00", "ERROR")
    for second in range(1, 20):
        log(driver, f"00:{second:02}")
    log(driver, "02:00", "ERROR")
    assert rates(driver, "error-alerts") == []
    log(driver, "04:00")
    assert rates(driver, "error-alerts") == [("cart", "08:02", 100.0)]


def test_a_late_line_counts_within_the_grace_and_is_counted_as_late_after_it(driver: TopologyTestDriver) -> None:
    log(driver, "00:59", "ERROR")
    log(driver, "01:10")
    log(driver, "00:30")
    assert log(driver, "01:20") == [("cart", "08:00", 50.0)]
    assert log(driver, "00:31", "ERROR") == []
    assert driver.metrics()["late-records-total"] == 1


def test_nothing_closes_until_a_later_line_of_any_service_arrives(driver: TopologyTestDriver) -> None:
    log(driver, "00:10", service="cart")
    assert log(driver, "00:20", "ERROR", service="login") == []
    assert log(driver, "05:00", service="search") == [("cart", "08:00", 0.0), ("login", "08:00", 100.0)]


def test_a_line_that_is_none_counts_for_nobody_and_moves_no_clock(driver: TopologyTestDriver) -> None:
    log(driver, "00:10")
    driver.input("logs").send("host-1", "    at Pool.connect(Pool.java:112)", at=data.START + 3_600_000)
    assert rates(driver) == []
    assert log(driver, "00:11", "ERROR") == []
    assert log(driver, "02:00") == [("cart", "08:00", 50.0)]


def test_what_is_no_line_stays_at_the_time_of_the_lines_before_it(driver: TopologyTestDriver) -> None:
    trace = SourceRecord("host-1", "    at Pool.connect(Pool.java:112)", data.START, (), "logs", 0, 7)
    assert written_at(trace, partition_time=data.START - 30_000) == data.START - 30_000
    assert written_at(replace(trace, value="2026-03-02T08:00:00.250Z cart INFO ok"), 0) == data.START + 250


def test_what_is_held_back_survives_a_restart(driver: TopologyTestDriver) -> None:
    log(driver, "00:10", "ERROR")
    driver.restart()
    assert log(driver, "02:00") == [("cart", "08:00", 100.0)]


def test_checkout_in_trouble_is_found_in_the_logs_of_all_hosts(driver: TopologyTestDriver) -> None:
    for topic, host, line, at in data.error_rates(3000):
        driver.input(topic).send(host, line, at=at)
    told = [(service, minute) for service, minute, _ in rates(driver)]
    assert len(told) == len(set(told))
    assert len(told) >= 15
    assert ("checkout", "08:01") in [(service, minute) for service, minute, _ in rates(driver, "error-alerts")]
    assert driver.metrics()["late-records-total"] > 0
